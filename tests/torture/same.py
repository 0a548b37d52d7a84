"""The same input gives the same bits: in another process, with another hash seed, alone or among others."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from .common import Tally, contents, differences
from .verbs import TINY

SCRIPT = """
import sys
from bayesin.cli.main import main
out = sys.argv[1]
tiny = sys.argv[2:]
codes = [
    main(["train", *tiny, "--batch", "50", "--epochs", "3", "--members", "2", "--quiet", "--out", f"{out}/two"]),
    main(["align", f"{out}/two", f"{out}/two#1", "--quiet", "--out", f"{out}/aligned"]),
    main(["train", *tiny, "--batch", "50", "--epochs", "2", "--method", "ensemble", "--members", "5", "--quiet",
          "--out", f"{out}/many"]),
    main(["compact", f"{out}/many", "--quiet", "--out", f"{out}/one"]),
    main(["explain", "mlp", "--quiet"]),
]
sys.exit(max(codes))
"""
TIMED = {"aligned/alignment.safetensors", "one/report.json", "one/report.html"}


def hash_seeds(count: int, scratch: Path) -> list[Tally]:
    """Train, align and compact in processes with different hash seeds."""
    tally, wanted, folder = Tally("another process, another PYTHONHASHSEED"), None, scratch / "same"
    for seed in ["0", *(str(1 + 7919 * n) for n in range(count - 1)), "random"]:
        subprocess.run(["rm", "-rf", str(folder)], check=True)
        folder.mkdir(parents=True)
        command = [sys.executable, "-c", SCRIPT, str(folder), *TINY]
        done = subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, text=True)
        found = {name: b"" if name in TIMED else content for name, content in contents(folder).items()}
        if wanted is None:
            wanted = found
            continue
        problems = [f"ended with {done.returncode}: {done.stderr[-200:]}"] if done.returncode else []
        tally.add(problems + differences(found, wanted))
    return [tally]


def members(count: int, scratch: Path) -> list[Tally]:
    """A member trained alone and among others, one after the other through one program."""
    import jax

    from bayesin import VI, fit_vi
    from bayesin.models import build

    tally, model = Tally("members=1 and members=k"), build("mlp", (3,), 3, width=8, depth=1)
    x = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    y = np.arange(40) % 3
    for number in range(count):
        key = jax.random.key(number)
        settings = {"epochs": 2, "batch": 10, "parallel": "sequence"}
        alone = fit_vi(key, model, (x, y), VI(**settings)).posteriors[0]
        among = fit_vi(key, model, (x, y), VI(**settings, members=2 + number % 3)).posteriors[0]
        pairs = zip(jax.tree.leaves(alone), jax.tree.leaves(among), strict=True)
        same = all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)
        tally.add([] if same else ["other bits"])
    return [tally]
