"""One exact assignment, by kind of matrix and size: ours beside the solvers that can be had.

    python benchmarks/assignment.py                        256 to 2048
    python benchmarks/assignment.py --sizes 4096 8192      takes minutes; scipy is left out above 4096
    python benchmarks/assignment.py --reduced --sizes 4096     without solvers of the whole matrix

CPU seconds on one thread, the least of several runs in turn. `ours` starts from nothing, `again` from the potentials
of the same problem with a little noise, as every visit of a group after its first does. PyPI's `lapjv` is measured
where it is installed, alone and in the place of lapx's solver in both of ours; the library does not need it. All
solvers are exact; the values they reach are compared.
"""

import argparse
import os
import time
from functools import partial
from unittest import mock

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from scipy.optimize import linear_sum_assignment

from bayesin.matching import assignment
from bayesin.matching.assignment import assign

try:
    from lapjv import lapjv  # pyright: ignore[reportMissingImports]
except ImportError:
    lapjv = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[16, 64, 256, 512, 1024, 2048])
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--reduced", action="store_true", help="only ours, with either solver: the others take long")
    parser.add_argument("--budget", type=float, default=1.0, help="CPU seconds of runs for each entry, at least one")
    options = parser.parse_args()
    print("milliseconds of one assignment")
    names = ["ours", "again", "ours, lapjv", "again, lapjv", "lapjvh", "lapjv", "scipy"]
    print(f"{'kind':10}{'n':>6}" + "".join(f"{name:>14}" for name in names))
    for kind in options.kinds:
        for size in options.sizes:
            row = measure(KINDS[kind](np.random.default_rng(size), size), options.budget, options.reduced)
            print(f"{kind:10}{size:>6}" + "".join(f"{_shown(row.get(name)):>14}" for name in names), flush=True)


def measure(similarity: np.ndarray, budget: float, reduced: bool = False) -> dict[str, float]:
    """CPU milliseconds of every solver; raises where one misses the optimum."""
    size = len(similarity)
    noise = np.random.default_rng(0).standard_normal(similarity.shape, np.float32)
    near = similarity + np.float32(0.01 * similarity.std()) * noise
    work, potentials = np.empty((2, size, size), np.float32), assign(near).potentials
    solvers = {
        "ours": lambda: assign(similarity, work=work).perm,
        "again": lambda: assign(similarity, potentials, work).perm,
        "lapjvh": partial(bare_lapx, similarity),
        "scipy": lambda: linear_sum_assignment(similarity, maximize=True)[1],
    }
    if lapjv is not None:
        solvers["ours, lapjv"] = lambda: with_lapjv(similarity, None, work)
        solvers["again, lapjv"] = lambda: with_lapjv(similarity, potentials, work)
        solvers["lapjv"] = lambda: lapjv(similarity.max() - similarity)[0]
    for name in ("lapjvh", "lapjv", "scipy") if reduced else ("scipy",) if size > 4096 else ():
        solvers.pop(name, None)
    best, values, spent = dict.fromkeys(solvers, np.inf), {}, 0.0
    while spent < budget * len(solvers):
        for name, solve in solvers.items():
            clock = time.process_time()
            perm = solve()
            best[name] = min(best[name], time.process_time() - clock)
            spent += time.process_time() - clock
            values[name] = float(similarity[np.arange(size), perm].sum(dtype=np.float64))
    top, scale = max(values.values()), float(np.abs(similarity).max()) * size
    assert all(top - value <= 1e-6 * scale for value in values.values()), values
    return {name: 1e3 * seconds for name, seconds in best.items()}


def with_lapjv(similarity: np.ndarray, potentials: np.ndarray | None, work: np.ndarray) -> np.ndarray:
    """Ours, with another solver for the reduced matrix."""
    with mock.patch.object(assignment, "_solve", lambda cost: lapjv(cost)[0]):
        return assign(similarity, potentials, work).perm


def bare_lapx(similarity: np.ndarray) -> np.ndarray:
    """lapx alone, on costs that are not negative."""
    import lap

    return lap.lapjvh(similarity.max() - similarity, return_cost=False)[1]


def random(rng: np.random.Generator, size: int) -> np.ndarray:
    """Nothing in common: every entry by itself."""
    return rng.standard_normal((size, size), np.float32)


def planted(rng: np.random.Generator, size: int) -> np.ndarray:
    """The same units in another order, a tenth of their spread as noise on top."""
    units = rng.standard_normal((size, size), np.float32)
    moved = units[rng.permutation(size)] + np.float32(0.1) * rng.standard_normal((size, size), np.float32)
    return units @ moved.T


def trained(rng: np.random.Generator, size: int) -> np.ndarray:
    """Two networks that learnt the same from other starts: few directions matter, and units share them."""
    spectrum = np.arange(1, size + 1, dtype=np.float32) ** -1.0
    ours, theirs = (rng.standard_normal((size, size), np.float32) * spectrum for _ in range(2))
    return np.maximum(ours, 0) @ np.maximum(theirs, 0).T


def pruned(rng: np.random.Generator, size: int) -> np.ndarray:
    """Converged posteriors: one unit in eight carries weights, the others are nearly tied."""
    scale = np.where(np.arange(size) < size // 8, 1.0, 1e-2).astype(np.float32)
    ours, theirs = (
        rng.standard_normal((size, size), np.float32) * scale[rng.permutation(size), None] for _ in (0, 1)
    )
    return ours @ theirs.T


def low_rank(rng: np.random.Generator, size: int) -> np.ndarray:
    """Units that are described by few numbers each."""
    ours, theirs = (rng.standard_normal((size, size // 16), np.float32) for _ in (0, 1))
    return ours @ theirs.T


KINDS = {"random": random, "planted": planted, "trained": trained, "pruned": pruned, "low rank": low_rank}


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


if __name__ == "__main__":
    main()
