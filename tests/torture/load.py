"""Large and long: the memory it takes at the peak, and that it does not grow. Each job has a process of its own."""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .common import Tally

LIMIT = 16 << 30  # bytes
GROWTH = 64 << 20  # bytes that a soak may gain after its first tenth


def load(count: int, scratch: Path) -> list[Tally]:
    """Every job at `count` per cent of its full size."""
    return [_one(name, count, scratch) for name in JOBS]


def _one(name: str, count: int, scratch: Path) -> Tally:
    tally, began = Tally(f"load: {name}"), time.monotonic()
    command = [
        sys.executable,
        "-m",
        "torture.load",
        name,
        str(count),
        str(scratch / name.replace(" ", "-").replace(",", "")),
    ]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "JAX_DISABLE_MOST_OPTIMIZATIONS": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        tally.add([f"ended with {done.returncode}: {done.stderr.strip()[-300:]}"])
        return tally
    found = json.loads(done.stdout.splitlines()[-1])
    problems = [f"needed {found['peak'] / 2**30:.1f} GiB"] if found["peak"] > LIMIT else []
    tally.add(problems + found["problems"])
    tally.note = f"{found['says']}; peak {found['peak'] / 2**30:.2f} GiB, {time.monotonic() - began:.0f} s"
    return tally


def _large(count: int, folder: Path) -> tuple[str, list[str]]:
    """A mean-field posterior of 100 million weights with hidden permutations: aligned, saved, read back."""
    import jax

    from bayesin import Gaussian, PermutationSpec, align, permute
    from bayesin.store import load_posterior, save_posterior

    width, depth, draws = 1024, max(2, 97 * count // 100), np.random.default_rng(0)
    axes: dict[str, list[str]] = {"w000": ["64", "g0"]}
    axes |= {f"w{n:03d}": [f"g{n - 1}", f"g{n}"] for n in range(1, depth)} | {"w999": [f"g{depth - 1}", "10"]}
    spec = PermutationSpec.parse(axes, {f"g{n}": width for n in range(depth)})
    mean = {name: draws.standard_normal(spec.shape(name), np.float32) for name in axes}
    std = {name: np.abs(0.1 * draws.standard_normal(spec.shape(name), np.float32)) for name in axes}
    target, hidden = Gaussian(mean, std), spec.random(jax.random.key(1))
    source = jax.tree.map(np.asarray, Gaussian(permute(mean, spec, hidden), permute(std, spec, hidden)))
    found = align(target, source, spec, key=jax.random.key(0), restarts=2)
    path = save_posterior(folder / "large.safetensors", found.posterior, spec=spec)
    again = load_posterior(path)
    pairs = zip(jax.tree.leaves(again), jax.tree.leaves(found.posterior), strict=True)
    problems = [] if all(np.array_equal(a, b) for a, b in pairs) else ["came back with other bits"]
    problems += (
        [] if found.objective == 0 else [f"the hidden permutations were not found: W2² is {found.objective:g}"]
    )
    return f"{target.size:,} weights, {path.stat().st_size / 1e9:.2f} GB on disk", problems


def _network(width: int, seed: int) -> tuple[Any, Any]:
    from bayesin import PermutationSpec

    axes = {"w0": ["16", "g0"], "w1": ["g0", "g1"], "w2": ["g1", "10"]}
    spec = PermutationSpec.parse(axes, {"g0": width, "g1": width})
    draws = np.random.default_rng(seed)
    return spec, {name: draws.standard_normal(spec.shape(name), np.float32) for name in axes}


def _many(count: int, folder: Path) -> tuple[str, list[str]]:
    """1,000 samples, each with hidden permutations, folded into one Gaussian."""
    import jax

    from bayesin import Samples, compact, permute

    size = max(2, 10 * count)
    spec, first = _network(32, 0)
    draws = np.random.default_rng(1)
    moved = [permute(first, spec, spec.random(jax.random.key(n))) for n in range(size)]
    noise = {name: 0.05 * draws.standard_normal((size, *leaf.shape), np.float32) for name, leaf in first.items()}
    stack = {name: np.stack([np.asarray(one[name]) for one in moved]) + noise[name] for name in first}
    found = compact(Samples(stack), spec, key=jax.random.key(0))
    problems = [] if found.spread_after < 0.06 else [f"spread {found.spread_after:.3g}, the noise has 0.05"]
    return f"{size:,} samples, spread {found.spread_before:.3g} to {found.spread_after:.3g}", problems


def _soak(count: int, folder: Path) -> tuple[str, list[str]]:
    """1,000 alignments in one process, at most ten minutes: memory does not grow."""
    import jax

    from bayesin import align

    size, until, early, done = max(10, 10 * count), time.monotonic() + 600, 0, 0
    spec, target = _network(64, 0)
    for done in range(1, size + 1):
        align(target, _network(64, done)[1], spec, key=jax.random.key(done))
        if done == max(1, size // 10):
            early = _now()
        if time.monotonic() > until:
            break
    grown = _now() - early
    problems = [f"grew by {grown >> 20} MiB"] if grown > GROWTH else []
    return f"{done:,} alignments, {grown / 2**20:+.1f} MiB from the first tenth to the end", problems


def _page(count: int, folder: Path) -> tuple[str, list[str]]:
    """A page over 200 runs."""
    from bayesin.lab.report import write_page, write_report

    size, draws = max(2, 2 * count), np.random.default_rng(0)
    for number in range(size):
        taus = np.linspace(0, 1, 25)
        curves = {
            kind: {"taus": taus, "nll": 1 + draws.random(25), "value": 0.5, "error": 0.01}
            for kind in ("naive", "aligned")
        }
        write_report(folder / f"run-{number}", {"title": f"run {number}", "barrier": {"sets": {"test": curves}}})
    began = time.monotonic()
    page = write_page(folder / "page.html", [folder / f"run-{number}" for number in range(size)])
    took = time.monotonic() - began
    problems = [] if page.stat().st_size < 20e6 else ["the page is too large"]
    return f"{size} runs, {page.stat().st_size / 1e6:.1f} MB, written in {took:.1f} s", problems


def _campaign(count: int, folder: Path) -> tuple[str, list[str]]:
    """A campaign of 500 tiny runs: 50 packs of ten that share a program."""
    from bayesin import VI
    from bayesin.lab.campaign import TrainTask, run_local
    from bayesin.lab.runs import RunConfig

    size = max(2, 5 * count)
    configs = [
        RunConfig(
            "digits",
            "mlp",
            VI(epochs=1, batch=25, prior_variance=0.01 * (1 + number % 10)),
            key=number // 10,
            width=4,
            depth=1,
            limit=50,
            test_samples=1,
        )
        for number in range(size)
    ]
    began = time.monotonic()
    standing = run_local([TrainTask(config) for config in configs], folder)
    took = time.monotonic() - began
    undone = [name for name, one in standing.items() if one.state != "done"]
    left = [path.name for path in folder.glob(".*")]
    problems = [f"{len(undone)} are not done"] if undone else []
    return f"{size} runs in {took:.0f} s", problems + ([f"left over: {left[:3]}"] if left else [])


JOBS: dict[str, Callable[[int, Path], tuple[str, list[str]]]] = {
    "100 million weights aligned, saved and read": _large,
    "1,000 samples aligned": _many,
    "soak of 1,000 alignments": _soak,
    "page over 200 runs": _page,
    "campaign of 500 runs": _campaign,
}


def _now() -> int:
    """Resident bytes of this process."""
    import gc

    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    place = Path(sys.argv[3])
    place.mkdir(parents=True, exist_ok=True)
    says, wrong = JOBS[sys.argv[1]](int(sys.argv[2]), place)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    sys.stdout.write("\n" + json.dumps({"says": says, "problems": wrong, "peak": peak}) + "\n")
