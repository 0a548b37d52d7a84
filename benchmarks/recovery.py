"""Whether `align` finds a permutation that was planted, with one start, whatever the key.

    python benchmarks/recovery.py                  six small shapes, 20 keys each: units in the wrong place
    python benchmarks/recovery.py --independent    unrelated weights: where it ends, beside ten random orders
    python benchmarks/recovery.py --independent --more --weights 1 2 3    other shapes, and other weights
    python benchmarks/recovery.py --large          the true sizes once: seconds, and the system's peak memory
    python benchmarks/recovery.py --files FOLDER   GPT-2 XL in bfloat16 from file to file: 9 GB of disk, and one try
    python benchmarks/recovery.py --files FOLDER --shape Llama-7B   the same: 41 GB of disk, for an accelerator

The source is the target with its units permuted (all groups, those of each head included), and a tenth of each
tensor's spread as noise on top.
"""

import argparse
import json
import resource
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import jax
import ml_dtypes
import numpy as np

from _shapes import LARGE, MORE, ON_FILES, SMALL
from bayesin import align, align_files, invert, permute, save_posterior
from bayesin.store.artifacts import save_permuted

NOISE = 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--independent", action="store_true", help="unrelated weights in place of planted ones")
    parser.add_argument("--more", action="store_true", help="with --independent: six other shapes")
    parser.add_argument("--weights", type=int, nargs="+", default=[0], help="with --independent: seeds of weights")
    parser.add_argument("--large", nargs="?", const="all", help="the true sizes (or one of them, by name)")
    parser.add_argument("--bfloat16", action="store_true", help="weights in bfloat16, with --large")
    parser.add_argument("--files", type=Path, help="align from file to file in this folder")
    parser.add_argument("--shape", choices=ON_FILES, default="GPT-2 XL", help="what, with --files")
    parser.add_argument("--plant", action="store_true", help="write these files and stop")
    parser.add_argument("--keys", type=int, default=20)
    parser.add_argument("--json", type=Path, help="also write the rows here")
    options = parser.parse_args()
    if options.files:
        rows = from_files(options.files, options.shape, options.plant)
    elif options.large:
        rows = large(options.large, options.bfloat16)
    else:
        if options.independent:
            shapes = MORE if options.more else SMALL
            rows = [independent(name, spec, seed) for name, spec in shapes.items() for seed in options.weights]
        else:
            rows = [small(name, options.keys) for name in SMALL]
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


def small(name: str, keys: int) -> dict:
    """One shape, planted anew for every key."""
    spec, wrong, seconds = SMALL[name], [], 0.0
    units = sum(perm.size for perm in spec.identity().values())
    for seed in range(keys):
        target, source, planted = plant(spec, seed)
        clock = time.process_time()
        found = align(target, source, spec, key=jax.random.key(seed))
        seconds += time.process_time() - clock
        wrong.append(misplaced(found.perms, planted, spec))
    row = {"shape": name, "units": units, "keys": keys, "recovered": wrong.count(0), "wrong": wrong}
    row["seconds"] = seconds / keys
    print(
        f"{name:12}{units:6} units  recovered {row['recovered']} of {keys}  {row['seconds']:.2f} CPU s each",
        flush=True,
    )
    return row


def independent(name: str, spec, weights: int, orders: int = 10) -> dict:
    """One shape with unrelated weights: where the default ends, relative to ten random orders from the identity."""
    target, source = random_weights(spec, 2 * weights), random_weights(spec, 2 * weights + 1)
    ours = [align(target, source, spec, key=jax.random.key(seed)).objective for seed in range(3)]
    start = spec.identity()
    random = [align(target, source, spec, key=jax.random.key(seed), init=start).objective for seed in range(orders)]
    row = {"shape": name, "weights": weights, "ours": ours, "random": random, "gap": max(ours) / min(random) - 1}
    mean = sum(ours) / len(ours) / (sum(random) / orders) - 1
    print(
        f"{name:13} weights {weights}: worst of 3 keys {row['gap']:+.2%} of the best of {orders} random orders, "
        f"mean {mean:+.2%} of their mean",
        flush=True,
    )
    return row


def large(which: str, half: bool) -> list[dict]:
    """Each in a process of its own, so that its peak memory is its own."""
    if which != "all":
        print(json.dumps(large_one(which, half)))
        return []
    rows = []
    for name in LARGE:
        command = [sys.executable, __file__, "--large", name, *(["--bfloat16"] if half else [])]
        rows.append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
        row = rows[-1]
        print(
            f"{name:12}{row['weights'] / 1e6:7.1f} M weights  wrong {row['wrong']} of {row['units']}"
            f"  {row['seconds']:.1f} s, {row['cpu_seconds']:.1f} CPU s  {row['sweeps']} sweeps"
            f"  peak {row['peak_gib']:.2f} GiB, {row['before_gib']:.2f} before: {row['bytes_a_weight']:.1f} B/weight",
            flush=True,
        )
    return rows


def large_one(name: str, half: bool) -> dict:
    """Aligns one planted network of true size."""
    spec = LARGE[name]
    target, source, planted = plant(spec, 0, ml_dtypes.bfloat16 if half else np.float32)
    weights = sum(leaf.size for leaf in target.values())
    before, clock, busy = peak_bytes(), time.perf_counter(), time.process_time()
    found = align(target, source, spec, key=jax.random.key(0))
    return {
        "shape": name,
        "weights": weights,
        "units": sum(perm.size for perm in found.perms.values()),
        "wrong": misplaced(found.perms, planted, spec),
        "seconds": time.perf_counter() - clock,
        "cpu_seconds": time.process_time() - busy,
        "spent": dict(found.seconds),
        "sweeps": found.sweeps,
        "before_gib": before / 2**30,
        "peak_gib": peak_bytes() / 2**30,
        "bytes_a_weight": (peak_bytes() - before) / weights,
        "objective": found.objective,
    }


def from_files(folder: Path, shape: str, only_plant: bool) -> list[dict]:
    """Aligns a large planted network from file to file; another process makes the files."""
    spec, paths = ON_FILES[shape], [folder / f"{part}.safetensors" for part in ("target", "source", "moved")]
    if only_plant:
        plant_files(spec, *paths[:2])
        return []
    began = time.perf_counter()

    def say(text: str) -> None:
        print(f"{time.perf_counter() - began:7.1f} s  {text}", flush=True)

    if not paths[1].exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, __file__, "--files", folder, "--shape", shape, "--plant"], check=True)
        say("both files are written")
    own, done = [0], threading.Event()
    watch = threading.Thread(target=watch_own_memory, args=(own, done), daemon=True)
    watch.start()
    clock, busy = time.perf_counter(), time.process_time()
    found = align_files(
        *paths,
        key=jax.random.key(0),
        on_sweep=lambda sweep: say(f"sweep {sweep.number}: {sweep.objective:.6g}, {sweep.moved} moved"),
    )
    row = {
        "shape": f"{shape} in bfloat16, from file to file",
        "device": jax.devices()[0].device_kind,
        "weights": sum(leaf.size for leaf in found.posterior.values()),
        "units": sum(perm.size for perm in found.perms.values()),
        "wrong": misplaced(found.perms, spec.random(jax.random.key(1_000)), spec),
        "seconds": time.perf_counter() - clock,
        "cpu_seconds": time.process_time() - busy,
        "spent": dict(found.seconds),
        "sweeps": found.sweeps,
        "peak_gib": peak_bytes() / 2**30,
        "own_gib": own[0] / 2**30,
        "objective": found.objective,
    }
    done.set()
    say("done")
    print(json.dumps(row, indent=2))
    return [row]


def plant_files(spec, target: Path, source: Path) -> None:
    """Writes a target in bfloat16, and the same permuted with noise; both are drawn on the accelerator if there is
    one."""

    @partial(jax.jit, static_argnums=1)
    def drawn(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        scale = (1.0 / max(int(np.prod(shape[:-1])), 1)) ** 0.5 if len(shape) > 1 else 0.1
        return (scale * jax.random.normal(key, shape)).astype(jax.numpy.bfloat16)

    @jax.jit
    def noisy(key: jax.Array, leaf: jax.Array) -> jax.Array:
        wide = leaf.astype(jax.numpy.float32)
        return (wide + NOISE * wide.std() * jax.random.normal(key, leaf.shape)).astype(leaf.dtype)

    keys = [jax.random.split(jax.random.key(seed), len(spec.parameters)) for seed in (0, 2_000)]
    paths = [path for path, _ in spec.parameters]
    first = {path: drawn(key, spec.shape(path)) for path, key in zip(paths, keys[0], strict=True)}
    second = {path: noisy(key, first[path]) for path, key in zip(paths, keys[1], strict=True)}
    planted = spec.random(jax.random.key(1_000))
    with ThreadPoolExecutor() as pool:
        work = [pool.submit(save_posterior, target, first, spec=spec)]
        work.append(pool.submit(save_permuted, source, second, spec, planted))
        for each in work:
            each.result()


def watch_own_memory(largest: list[int], done: threading.Event) -> None:
    """Notes the most memory that is not pages of files, ten times a second; only Linux tells the two apart."""
    while not done.wait(0.1):
        lines = Path("/proc/self/status").read_text().splitlines()
        own = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))
        largest[0] = max(largest[0], own)


def plant(spec, seed: int, dtype=np.float32) -> tuple[dict, dict, dict]:
    """A target, the permuted target with noise, and the permutations."""
    target, planted = random_weights(spec, seed, dtype), spec.random(jax.random.key(1_000 + seed))
    source, rng = permute(target, spec, planted), np.random.default_rng(2_000 + seed)
    for leaf in source.values():
        for part in np.array_split(leaf.reshape(-1), max(1, leaf.size >> 20)):  # in place, piece by piece
            spread = np.float32(NOISE) * np.float32(part.astype(np.float32).std())
            part += (spread * rng.standard_normal(part.size, np.float32)).astype(leaf.dtype)
    return target, source, planted


def random_weights(spec, seed: int, dtype=np.float32) -> dict:
    """Normal weights at the usual scale; vectors around zero."""
    rng, params = np.random.default_rng(seed), {}
    for path, _ in spec.parameters:
        shape = spec.shape(path)
        scale = (1.0 / max(int(np.prod(shape[:-1])), 1)) ** 0.5 if len(shape) > 1 else 0.1
        params[path] = np.empty(shape, dtype)
        for part in np.array_split(params[path].reshape(-1), max(1, params[path].size >> 20)):
            part[:] = np.float32(scale) * rng.standard_normal(part.size, np.float32)
    return params


def misplaced(perms, planted, spec) -> int:
    """Units that are not where they came from."""
    right = invert(planted, spec)
    return sum(int((perms[group] != right[group]).sum()) for group in right)


def peak_bytes() -> int:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
