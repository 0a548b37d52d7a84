"""Speed of `bayesin.align` against a plain numpy + scipy loop at equal visiting order.

    python benchmarks/align.py            the table of ratios; trains its pairs the first time (some minutes)
    python benchmarks/align.py --wide     one converged pair of width 1024, wall-clock seconds on all threads
    python benchmarks/align.py --large    width 4096 and ResNet20 at 16 times width: seconds and peak memory

Times are CPU seconds on one thread, the least of several runs in turn, so that ratios hold on a busy machine.
`ratio` is that of whole calls: both start with two posteriors and end with the second one moved, and ours also
checks its input and computes the objective anew. `search` is that of the searches alone. The plain loop works
in float32; permutations are compared to those it finds in float64, where rounding decides nothing.
"""

import argparse
import importlib
import json
import os
import resource
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

if not {"--large", "--wide"} & set(sys.argv):
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import jax
import numpy as np

from _align_problems import (
    digits,
    enlarged_digits,
    images,
    mlp,
    mlp_spec,
    pruned_gaussian,
    random_gaussian,
    random_point,
    resnet20,
    resnet20_spec,
    train_gaussian,
    train_point,
)
from _plain_align import plain_align, plain_move
from bayesin import Gaussian, align
from bayesin.matching.assignment import solver_name

CACHE = Path(__file__).parents[1] / "runs" / "bench"
MLP512 = mlp_spec(784, 512, 512, 512, 10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--large", nargs="?", const="all", help="measure large networks (or: mlp4096, resnet16)")
    parser.add_argument("--wide", action="store_true", help="measure one converged pair of width 1024 on all threads")
    parser.add_argument("--orders", type=int, default=3, help="visiting orders for each pair")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each, of which the fastest counts")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    options = parser.parse_args()
    if options.wide:
        rows = [wide(options.repeats)]
    else:
        rows = large(options.large) if options.large else table(options.orders, options.repeats)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


def table(orders: int, repeats: int) -> list[dict]:
    """Measures and prints every row."""
    print(f"assignment by {solver_name()}; CPU seconds on one thread, fastest of {repeats}, sum of {orders} orders\n")
    columns = f"{'plain':>9}{'ours':>9}{'ratio':>7}{'search':>8}  {'same permutations':18}{'objective':>10}"
    print(f"{'pair':44}{'sweeps':>7}{columns}")
    rows = []
    for name, pair, count, times in pairs(orders, repeats):
        rows.append({"pair": name, **compare(*pair, count, times)})
        row = rows[-1]
        print(
            f"{name:44}{row['sweeps']:>7}{row['plain']:>9.3f}{row['ours']:>9.3f}{row['ratio']:>7.1f}{row['search_ratio']:>8.1f}"
            f"  {row['same']:18}{row['objective_gap']:>10.0e}",
            flush=True,
        )
    return rows


def pairs(orders: int, repeats: int):
    """The pairs of posteriors, with the number of orders and of repeats each can afford."""
    mnist = images()
    resnet, small = resnet20_spec(2, 1), digits()
    yield (
        "MLP 3x512, trained points",
        _trained("mlp_point", MLP512, lambda key: train_point(key, MLP512, mlp, mnist, 4)),
        orders,
        repeats,
    )
    yield (
        "MLP 3x512, trained Gaussians",
        _trained("mlp_gaussian", MLP512, lambda key: train_gaussian(key, MLP512, mlp, mnist, 8)),
        orders,
        repeats,
    )
    yield (
        "ResNet20 x2, trained Gaussians (digits)",
        _trained("resnet_gaussian", resnet, lambda key: train_gaussian(key, resnet, resnet20, small, 12, batch=100)),
        orders,
        repeats,
    )
    yield (
        "ResNet20 x2, trained points (digits)",
        _trained("resnet_point", resnet, lambda key: train_point(key, resnet, resnet20, small, 12, batch=100)),
        orders,
        repeats,
    )
    wide = resnet20_spec(2)
    yield "ResNet20 x2, random Gaussians", (random_gaussian(0, wide), random_gaussian(1, wide), wide), orders, repeats
    yield "ResNet20 x2, random points", (random_point(0, wide), random_point(1, wide), wide), orders, repeats
    pruned = mlp_spec(784, 1024, 1024, 1024, 10)
    pair = pruned_gaussian(0, pruned), pruned_gaussian(1, pruned), pruned
    yield "MLP 3x1024, one unit in eight active", pair, 1, 1
    yield "MLP 3x1024, converged Gaussians (digits)", converged(pruned), 1, 1


def converged(spec) -> tuple:
    """Two posteriors of which most units were pruned by the prior, which makes many similarities nearly equal."""
    data = enlarged_digits()
    return _trained("mlp1024_gaussian", spec, lambda key: train_gaussian(key, spec, mlp, data, 200, batch=250))


@contextmanager
def clocked_search():
    """Yields a list that collects the CPU seconds of every search inside `align`."""
    module = importlib.import_module("bayesin.matching.align")  # the package exports the function by this name
    search, seconds = module.descend, []

    def timed(*arguments, **options):
        clock = time.process_time()
        found = search(*arguments, **options)
        seconds.append(time.process_time() - clock)
        return found

    module.descend = timed
    try:
        yield seconds
    finally:
        module.descend = search


def compare(target, source, spec, orders: int, repeats: int) -> dict:
    """Times both on the same orders and compares what they found."""
    total, gap = dict.fromkeys(("plain", "ours", "plain_search", "search"), 0.0), 0.0
    sweeps, same = [], True
    for seed in range(orders):
        rng = np.random.default_rng(seed)
        order = [[str(group) for group in rng.permutation(list(spec.sizes))] for _ in range(100)]
        best = dict.fromkeys(total, np.inf)
        for _ in range(repeats):
            clock = time.process_time()
            trees = _trees(source)
            perms, _ = plain_align(_trees(target), trees, spec, order)
            best["plain_search"] = min(best["plain_search"], time.process_time() - clock)
            plain_move(trees, spec, perms)
            best["plain"] = min(best["plain"], time.process_time() - clock)
            for _ in range(3):
                with clocked_search() as searches:
                    clock = time.process_time()
                    result = align(target, source, spec, key=jax.random.key(0), order=order)
                    best["ours"] = min(best["ours"], time.process_time() - clock)
                best["search"] = min(best["search"], sum(searches))
        exact, history = plain_align(_trees(target, np.float64), _trees(source, np.float64), spec, order)
        total = {name: total[name] + best[name] for name in total}
        sweeps.append(result.sweeps)
        same &= all((exact[group] == result.perms[group]).all() for group in exact)
        gap = max(gap, abs(result.objective / history[-1] - 1))
    return {
        "sweeps": f"{min(sweeps)}-{max(sweeps)}",
        **total,
        "ratio": total["plain"] / total["ours"],
        "search_ratio": total["plain_search"] / total["search"],
        "same": "yes" if same else "no",
        "objective_gap": gap,
    }


def wide(repeats: int) -> dict:
    """The time a user waits for one alignment of width 1024, and the plain loop's in float64."""
    target, source, spec = converged(mlp_spec(784, 1024, 1024, 1024, 10))
    order = [[str(group) for group in np.random.default_rng(0).permutation(list(spec.sizes))] for _ in range(100)]
    clock = time.perf_counter()
    exact, history = plain_align(_trees(target, np.float64), _trees(source, np.float64), spec, order)
    row, found, seconds = {"plain": time.perf_counter() - clock}, None, []
    for _ in range(repeats):
        clock = time.perf_counter()
        found = align(target, source, spec, key=jax.random.key(0), order=order)
        seconds.append(time.perf_counter() - clock)
    row |= {"ours": min(seconds), "sweeps": found.sweeps, "objective_gap": abs(found.objective / history[-1] - 1)}
    row["same"] = all((exact[group] == found.perms[group]).all() for group in exact)
    same = "same" if row["same"] else "other"
    print(
        f"MLP 3x1024, converged: ours {row['ours']:.2f} s, fastest of {repeats}, {row['sweeps']} sweeps; "
        f"plain loop in float64 {row['plain']:.1f} s; {same} permutations, "
        f"objectives differ by {row['objective_gap']:.0e}"
    )
    return row


def large(which: str) -> list[dict]:
    """Each in a process of its own, so that its peak memory is its own."""
    if which != "all":
        print(json.dumps(large_one(which)))
        return []
    rows = []
    for name in ("mlp4096", "resnet16"):
        command = [sys.executable, __file__, "--large", name]
        rows.append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
        row = rows[-1]
        print(
            f"{name:10} {row['parameters'] / 1e6:6.1f} M weights  {row['seconds']:7.1f} s  {row['sweeps']:3} sweeps"
            f"  peak {row['peak_gib']:.2f} GiB, of which posteriors {row['input_gib']:.2f} GiB",
            flush=True,
        )
    return rows


def large_one(name: str) -> dict:
    """Aligns one large pair of Gaussians."""
    spec = mlp_spec(784, 4096, 4096, 4096, 10) if name == "mlp4096" else resnet20_spec(16)
    target, source = random_gaussian(0, spec), random_gaussian(1, spec)
    clock = time.perf_counter()
    result = align(target, source, spec, key=jax.random.key(0))
    seconds = time.perf_counter() - clock
    return {
        "name": name,
        "parameters": target.size,
        "seconds": seconds,
        "spent": result.seconds,
        "sweeps": result.sweeps,
        "converged": result.converged,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "input_gib": 4 * target.size * 4 / 2**30,
    }


def _trained(name: str, spec, train):
    """Two independently trained posteriors, kept between runs."""
    posteriors = []
    for index in range(2):
        file = CACHE / f"{name}{index}.npz"
        if not file.exists():
            print(f"training {name} {index + 1} of 2 …", file=sys.stderr, flush=True)
            posterior = train(jax.random.key(index))
            parts = vars(posterior) if isinstance(posterior, Gaussian) else {"point": posterior}
            CACHE.mkdir(parents=True, exist_ok=True)
            np.savez(file, **{f"{part}/{path}": leaf for part, tree in parts.items() for path, leaf in tree.items()})
        stored: dict[str, dict] = {}
        for path, leaf in np.load(file).items():
            stored.setdefault(path.split("/")[0], {})[path.split("/")[1]] = leaf
        posteriors.append(stored["point"] if "point" in stored else Gaussian(**stored))
    return *posteriors, spec


def _trees(posterior, dtype=np.float32) -> list[dict]:
    trees = [posterior.mean, posterior.std] if isinstance(posterior, Gaussian) else [posterior]
    return [{path: np.asarray(leaf, dtype) for path, leaf in tree.items()} for tree in trees]


if __name__ == "__main__":
    main()
