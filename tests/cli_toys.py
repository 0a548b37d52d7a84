"""A small network, posteriors of it in files, and a call of the command line, for the tests of the verbs."""

import json
from pathlib import Path

import jax
import numpy as np

from bayesin import Gaussian, permute
from bayesin.cli.main import main
from bayesin.models import build
from bayesin.store import save_posterior

MODEL = {"name": "mlp", "input_shape": [8, 8, 1], "classes": 10, "width": 8, "depth": 2}
METADATA = {"model": MODEL, "data": "digits"}


def call(capsys, *arguments) -> tuple[int, dict, str]:
    """Exit code, the JSON result where there is one, and what was said on standard error."""
    code = main([*map(str, arguments), "--json"])
    said = capsys.readouterr()
    return code, json.loads(said.out) if said.out.strip() else {}, said.err


def status_of(capsys, folder) -> tuple[str, str, str]:
    """Kind, state and words that `bayesin status` has for one result."""
    code, result, _ = call(capsys, "status", folder)
    (found,) = result["runs"]
    assert code == 0 and found["path"] == str(folder) and found["error"] is None, found
    return found["kind"], found["state"], found["says"]


def mlp(depth: int = 2):
    return build("mlp", (8, 8, 1), 10, width=8, depth=depth)


def point(seed: int = 0, depth: int = 2):
    return jax.tree.map(np.asarray, mlp(depth).init(jax.random.key(seed)))


def gaussian(seed: int = 0) -> Gaussian:
    mean, random = point(seed), np.random.default_rng(seed)
    return Gaussian(mean, jax.tree.map(lambda leaf: (0.05 * random.random(leaf.shape)).astype(np.float32), mean))


def save_pair(folder: Path, symmetry, **options) -> tuple[Path, Path]:
    """A posterior, and the same one with its units shuffled, each in a run folder of its own."""
    q, perms = gaussian(), symmetry.random(jax.random.key(7))
    moved = Gaussian(permute(q.mean, symmetry, perms), permute(q.std, symmetry, perms))
    return (
        save_posterior(folder / "a" / "posterior-0.safetensors", q, **options),
        save_posterior(folder / "b" / "posterior-0.safetensors", moved, **options),
    )
