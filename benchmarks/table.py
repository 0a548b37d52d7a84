"""Speed in one table: ours, the plain way, the floor, the ratio; and how that stands to the last committed table.

    python benchmarks/table.py                 some minutes; writes benchmarks/table.json
    python benchmarks/table.py --only align    rows whose name holds this; writes nothing without --record
    python benchmarks/table.py --quick         few repeats, to see that it runs; writes nothing
    python benchmarks/table.py --peer FOLDER   rows of git-re-basin or rebasin, too, from their own code (`_peers.py`)

CPU seconds on one thread, all columns of a row measured in turns and the least of several, so that ratios hold on a
busy machine. `plain` is what one would write by hand (numpy and scipy), `floor` is work that cannot be left
out. A row is marked where its ratio fell by more than a tenth against `table.json` as it was before.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import jax
import numpy as np
from scipy.optimize import linear_sum_assignment

from _align_problems import mlp_spec, random_gaussian, random_point, resnet20_spec
from _peers import Modules, git_re_basin, rebasin
from _plain_align import plain_align, plain_move
from assignment import bare_lapx, trained
from bayesin import Alignment, Gaussian, align, compact
from bayesin.matching import assign
from compact import SPEC, made_up, plain

FILE = Path(__file__).with_suffix(".json")
SLOWER = 0.9  # of the ratio before: below it a row is marked


class Row(NamedTuple):
    """What is timed for one row."""

    name: str
    ours: Callable[[], object]
    plain: Callable[[], object] | None
    floor: Callable[[], object] | None
    repeats: int
    clock: Callable[[], float] = time.process_time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="rows whose name holds this")
    parser.add_argument("--record", action="store_true", help="with --only: write these rows, and leave the others")
    parser.add_argument("--peer", action="append", default=[], help="a clone of git-re-basin, or rebasin")
    parser.add_argument("--quick", action="store_true", help="two repeats of every row")
    options = parser.parse_args()
    before = json.loads(FILE.read_text())["rows"] if FILE.exists() else {}
    print(f"{'CPU milliseconds':44}{'ours':>10}{'plain':>10}{'floor':>10}{'ratio':>8}{'before':>8}")
    table = {}
    peers = [partial(beside if (Path(peer) / "src").is_dir() else beside_rebasin, peer) for peer in options.peer]
    for make in (aligning, assigning, folding, starting, *peers):
        for row in make():
            if options.only in row.name:
                table[row.name] = measured(row, 2 if options.quick else row.repeats)
                show(row.name, table[row.name], before.get(row.name))
    if not options.quick and (options.record or not options.only):
        about = {"jax": jax.__version__, "numpy": np.__version__, "load": os.getloadavg()[0]}
        table = {name: row | {"load": about["load"]} for name, row in table.items()}
        table = before | table
        FILE.write_text(
            json.dumps({"unit": "CPU seconds, one thread", "about": about, "rows": table}, indent=2) + "\n"
        )


def measured(row: Row, repeats: int) -> dict[str, float]:
    """The least of several, in turns, and the ratio."""
    works = {"ours": row.ours, "plain": row.plain, "floor": row.floor}
    works = {name: work for name, work in works.items() if work is not None}
    best = dict.fromkeys(works, np.inf)
    for work in works.values():
        work()
    for _ in range(repeats):
        for name, work in works.items():
            begin = row.clock()
            work()
            best[name] = min(best[name], row.clock() - begin)
    against = best.get("plain", best.get("floor", np.nan))
    return best | {"ratio": against / best["ours"]}


def show(name: str, now: dict[str, float], before: dict[str, float] | None) -> None:
    columns = "".join(
        f"{1e3 * now[each]:>10.3g}" if each in now else f"{'':>10}" for each in ("ours", "plain", "floor")
    )
    old = "" if before is None else f"{before['ratio']:.2f}"
    mark = "  SLOWER" if before is not None and now["ratio"] < SLOWER * before["ratio"] else ""
    print(f"{name:44}{columns}{now['ratio']:>8.2f}{old:>8}{mark}", flush=True)


def aligning() -> Iterator[Row]:
    """Whole calls at a given order against the plain loop; the floor is the products of one sweep."""
    mlp, key = mlp_spec(784, 512, 512, 512, 10), jax.random.key(0)
    for title, spec, repeats in (
        ("ResNet20 x1", resnet20_spec(1), 40),
        ("ResNet20 x2", resnet20_spec(2), 15),
        ("MLP 3x512", mlp, 5),
    ):
        for kind, make in (("points", random_point), ("Gaussians", random_gaussian)):
            p, q, rng = make(0, spec), make(1, spec), np.random.default_rng(0)
            order = [[str(group) for group in rng.permutation(list(spec.sizes))] for _ in range(100)]
            yield Row(
                f"align {title}, random {kind}",
                lambda p=p, q=q, spec=spec, order=order: align(p, q, spec, key=key, order=order),
                lambda p=p, q=q, spec=spec, order=order: _plainly(p, q, spec, order),
                lambda p=p, q=q, spec=spec: _products(p, q, spec),
                repeats,
            )
            if title == "ResNet20 x1":
                yield Row(
                    f"align {title}, {kind}, default order",
                    lambda p=p, q=q, spec=spec: align(p, q, spec, key=key),
                    lambda p=p, q=q, spec=spec, order=order: _plainly(p, q, spec, order),
                    None,
                    20,
                )


def assigning() -> Iterator[Row]:
    """One assignment from the potentials of a similar one, against scipy; the floor is lapx alone."""
    for size, repeats in ((64, 40), (512, 8), (1024, 3)):
        similarity = trained(np.random.default_rng(size), size)
        noise = np.random.default_rng(0).standard_normal(similarity.shape, np.float32)
        potentials = assign(similarity + np.float32(0.01 * similarity.std()) * noise).potentials
        work = np.empty((2, size, size), np.float32)
        yield Row(
            f"assign {size}, as between trained networks",
            lambda s=similarity, v=potentials, w=work: assign(s, v, w),
            lambda s=similarity: linear_sum_assignment(s, maximize=True),
            lambda s=similarity: bare_lapx(s),
            repeats,
        )


def folding() -> Iterator[Row]:
    """A hundred samples folded to the first, against a plain loop; the floor is products and assignments alone.

    Ours takes moments of the samples as they came too.
    """
    samples = made_up(100, 0.3)
    first = samples[0]
    yield Row(
        "compact 100 samples of 784-512-10",
        lambda: compact(samples, SPEC, key=jax.random.key(0), reference="first"),
        lambda: plain(samples),
        lambda: [bare_lapx(first["w0"].T @ samples[index]["w0"]) for index in range(1, 100)],
        3,
    )


def beside(folder: str) -> Iterator[Row]:
    """The search of a peer in place of the plain loop, in the order that it draws; the permutations are the same."""
    for title, spec, repeats in (
        ("MLP 3x512", mlp_spec(784, 512, 512, 512, 10), 3),
        ("ResNet20 x1", resnet20_spec(1), 5),
    ):
        match, order = git_re_basin(Path(folder), spec)
        p, q = random_point(0, spec), random_point(1, spec)
        ours = align(p, q, spec, key=jax.random.key(0), order=order)
        on_device = jax.tree.map(jax.numpy.asarray, (p, q))
        theirs = match(*on_device)
        assert all(np.array_equal(ours.perms[group], theirs[group]) for group in theirs), "the permutations differ"
        yield Row(
            f"align {title}, random points, git-re-basin",
            lambda p=p, q=q, spec=spec, order=order: align(p, q, spec, key=jax.random.key(0), order=order),
            lambda match=match, both=on_device: match(*both),
            None,
            repeats,
        )


def beside_rebasin(where: str) -> Iterator[Row]:
    """rebasin's search in place of the plain loop; ours, a whole call, ends no farther from the target."""
    for title, repeats in (("MLP 3x512", 3), ("ResNet18", 2)):
        pair = rebasin(where, title)

        def ours(pair: Modules = pair) -> Alignment:
            exclude = pair.statistics
            return align(pair.target, pair.source, pair.spec, key=jax.random.key(0), exclude=exclude)

        pair.match()
        objectives = ours().objective, pair.objective()
        print("objectives of {}: ours {:.6g}, rebasin {:.6g}".format(title, *objectives))
        assert objectives[0] <= objectives[1], "rebasin's objective is better"
        yield Row(f"align {title}, fresh weights, rebasin", ours, rebasin(where, title).match, None, repeats)


def starting() -> Iterator[Row]:
    """Processes of their own; `plain` is importing JAX, without which nothing is computed."""

    def run(*arguments: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, *arguments], check=True, capture_output=True)

    def clock() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    jax_alone, python = run("-c", "import jax"), run("-c", "pass")
    yield Row("import bayesin", run("-c", "import bayesin"), jax_alone, python, 5, clock)
    yield Row("from bayesin import align", run("-c", "from bayesin import align"), jax_alone, python, 5, clock)
    every = "from bayesin import fit_vi, align, barrier, compact, models"
    yield Row("import all of bayesin", run("-c", every), jax_alone, python, 5, clock)
    yield Row("bayesin --help", run("-m", "bayesin", "--help"), jax_alone, python, 5, clock)


def _plainly(target, source, spec, order) -> None:
    ours, theirs = _trees(target), _trees(source)
    perms, _ = plain_align(ours, theirs, spec, order)
    plain_move(theirs, spec, perms)


def _products(target, source, spec) -> None:
    """The products of every group once, from tensors as they stand."""
    for ours, theirs in zip(_trees(target), _trees(source), strict=True):
        for group, size in spec.sizes.items():
            for path, axis, _ in spec.touched_by(group):
                if axis == ours[path].ndim - 1:
                    ours[path].reshape(-1, size).T @ theirs[path].reshape(-1, size)
                else:
                    rows = ours[path].reshape(size, -1) if axis == 0 else ours[path].reshape(-1, size).T
                    others = theirs[path].reshape(size, -1) if axis == 0 else theirs[path].reshape(-1, size).T
                    rows @ others.T


def _trees(posterior) -> list[dict]:
    trees = [posterior.mean, posterior.std] if isinstance(posterior, Gaussian) else [posterior]
    return [{path: np.asarray(leaf, np.float32) for path, leaf in tree.items()} for tree in trees]


if __name__ == "__main__":
    main()
