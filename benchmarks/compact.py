"""Time to fold 1,000 samples of a 784-512-10 network into one Gaussian; the target is 60 s on two cores.

    python benchmarks/compact.py                      1,000 samples, made up to a recipe
    python benchmarks/compact.py --samples 200 --signal 0.2

Each sample is `signal · base + √(1 − signal²) · noise`, units shuffled: at 0.3 two samples are barely alike
(the first reference misplaces most units), while the mean of all is found exactly, and the spread that is left is
√(1 − signal²). The plain loop beside it matches with numpy and scipy, one sample at a time, to the first, moves it,
and takes mean and std of all in the end.
"""

import argparse
import resource
import time

import jax
import numpy as np
from scipy.optimize import linear_sum_assignment

from bayesin import PermutationSpec, Samples, compact

SHAPES = {"w0": (784, 512), "b0": (512,), "w1": (512, 10), "b1": (10,)}
SPEC = PermutationSpec.parse({"w0": ["784", "g0"], "b0": ["g0"], "w1": ["g0", "10"], "b1": ["10"]}, {"g0": 512})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--signal", type=float, default=0.3)
    options = parser.parse_args()
    samples = made_up(options.samples, options.signal)
    print(f"{options.samples} samples; the spread that no order can remove is {np.sqrt(1 - options.signal**2):.4f}")
    for reference in ("first", "mean"):
        began, busy = time.perf_counter(), time.process_time()
        found = compact(samples, SPEC, key=jax.random.key(0), reference=reference)
        seconds, busy = time.perf_counter() - began, time.process_time() - busy
        spread = f"spread {found.spread_before:.4f} -> {found.spread_after:.4f}"
        passes = f"{found.rounds} passes, mean transpositions {found.total.mean():.0f}"
        print(f"reference {reference:5} {seconds:6.1f} s ({busy:.1f} s of processor), {spread}, {passes}")
    count = min(options.samples, 100)
    began, busy = time.perf_counter(), time.process_time()
    plain(samples[np.arange(count)])
    each, busy = (time.perf_counter() - began) / count, (time.process_time() - busy) / count
    print(
        f"plain loop to the first: {1e3 * each:.1f} ms a sample, {each * options.samples:.1f} s "
        f"({busy * options.samples:.1f} s of processor) for all"
    )
    print(f"largest memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f} GB")


def made_up(count: int, signal: float) -> Samples:
    """Noisy, shuffled copies of one network."""
    rng = np.random.default_rng(0)
    base = {path: rng.standard_normal(shape, np.float32) for path, shape in SHAPES.items()}
    stack = {path: np.empty((count, *shape), np.float32) for path, shape in SHAPES.items()}
    for index in range(count):
        perm = rng.permutation(512)
        net = {
            path: np.float32(signal) * base[path]
            + np.float32(np.sqrt(1 - signal**2)) * rng.standard_normal(shape, np.float32)
            for path, shape in SHAPES.items()
        }
        stack["w0"][index], stack["b0"][index] = net["w0"][:, perm], net["b0"][perm]
        stack["w1"][index], stack["b1"][index] = net["w1"][perm], net["b1"]
    return Samples(stack)


def plain(samples: Samples) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """All samples matched to the first and moved, then mean and std, as one would first write it."""
    first, moved = samples[0], {path: [] for path in SHAPES}
    for index in range(len(samples)):
        other = samples[index]
        perm = linear_sum_assignment(similarity(first, other), maximize=True)[1] if index else np.arange(512)
        moved["w0"].append(other["w0"][:, perm])
        moved["b0"].append(other["b0"][perm])
        moved["w1"].append(other["w1"][perm])
        moved["b1"].append(other["b1"])
    return {path: (np.mean(stack, 0), np.std(stack, 0, ddof=1)) for path, stack in moved.items()}


def similarity(first: dict, other: dict) -> np.ndarray:
    """Inner products of the hidden units of two networks."""
    return first["w0"].T @ other["w0"] + np.outer(first["b0"], other["b0"]) + first["w1"] @ other["w1"].T


if __name__ == "__main__":
    main()
