"""What is left of the barrier of well-trained ResNet20s on CIFAR-10, by matching and by path, on the CPU.

    python benchmarks/matching.py FOLDER                          both pairs in FOLDER, ln32.npz and frn32.npz
    python benchmarks/matching.py FOLDER --only ln32 --test 300 --images 200
    python benchmarks/matching.py FOLDER --fit 60 --batch 50      and with the unit maps fitted to labels
    python benchmarks/matching.py FOLDER --fit 60 --taught        and with them fitted to what both ends predict
    python benchmarks/matching.py FOLDER --matchings none activations incoming --images 100 --test 300
    python benchmarks/matching.py FOLDER --matchings none W2 W2/0 W2/1 W2/2       W2 from the identity in three orders
    python benchmarks/matching.py FOLDER --seconds                what a search and a point of the path take, in turns

The files hold two posteriors each of a ResNet20 with 32 features, in arrays `member|part|name` with part 0 the mean
and part 1 the std. The barrier is the test loss half-way less the mean of both ends, in nats, with the points of
accuracy that are lost there. Units are compared and rescaled on training images without labels. Rescaling the path
between posteriors that were not aligned is the control, and so is fitting it. Ends are fitted to labels alike, and
are left as they are where they teach; those of a matched path are those of the naive one, of which a permutation
changes nothing but the draws.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bayesin import Gaussian, align, costs, discover, geodesic, predict, rescale, wasserstein
from bayesin.data import load
from bayesin.models import Model, build
from bayesin.trees import flatten, map_with_path

NORMS = {"ln32": "layernorm", "frn32": "frn"}
SITES = {"n1": "first", "n2": "second", "sn": "shortcut"}
PARTS = {"c": ("conv/kernel",), "g": ("norm/scale", "norm/gamma"), "b": ("norm/bias", "norm/beta")}
KEY = jax.random.key(0)
ORDERS = {f"W2/{seed}": seed for seed in range(3)}  # searches from the identity, whose orders a key decides
MATCHINGS = ("none", "W2", "activations", "both", "incoming", *ORDERS)
TURNS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=[*NORMS])
    parser.add_argument("--matchings", nargs="+", choices=[*MATCHINGS], default=["none", "W2", "activations", "both"])
    parser.add_argument("--seconds", action="store_true", help="time searches and points in place of measuring them")
    parser.add_argument("--test", type=int, default=1000, help="test images")
    parser.add_argument("--images", type=int, default=500, help="training images on which units are measured")
    parser.add_argument(
        "--fit", type=int, default=0, help="steps of a fit of the unit maps to labels; 0 leaves it out"
    )
    parser.add_argument("--batch", type=int, default=50, help="images a step of the fit")
    parser.add_argument("--seen", type=int, help="training images that the fit sees; one after the other by default")
    parser.add_argument("--taught", action="store_true", help="fit to what both ends predict, in place of labels")
    parser.add_argument("--draws", type=int, default=2, help="draws of the weights for the loss")
    options = parser.parse_args()
    data = load("cifar10")
    if options.seconds:
        print("| network | what | CPU seconds |\n|---|---|---|", flush=True)
        for name in [options.only] if options.only else NORMS:
            time_searches(name, options, data)
        return
    print(
        f"{options.test} test images, {options.draws} draws; units on {options.images} training images, their means"
    )
    print("| network | matching | path | barrier, nats | left | points lost | CPU seconds | W2² to the end |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for name in [options.only] if options.only else NORMS:
        measure(name, options, data)


def measure(name: str, options: argparse.Namespace, data: Any) -> None:
    model, target, source, x, spec = pair_of(name, options, data)

    def score(q: Gaussian) -> np.ndarray:
        seen = predict(q, model, data.x_test[: options.test], key=KEY, samples=options.draws)
        found = seen.metrics(data.y_test[: options.test])
        return np.array([found["nll"], 100 * found["accuracy"]])

    def fitted(path: Any) -> Any:
        some = slice(0, options.seen or options.fit * options.batch)
        labels = "ends" if options.taught else data.y_train[some]
        labelled = {"labels": labels, "steps": options.fit, "batch": options.batch}
        return rescale(path, model.apply, data.x_train[some], key=KEY, samples=0, spec=spec, **labelled)

    by_function = costs.Activations(model.apply, x)
    matchings = {"none": None, "W2": "wasserstein", "activations": by_function}
    matchings |= {"both": costs.Blend("wasserstein", by_function), "incoming": costs.Incoming(model.apply, x)}

    def moved_by(matching: str) -> Gaussian:
        if matching in ORDERS:
            key = jax.random.key(ORDERS[matching])
            return align(target, source, spec, key=key, init=spec.identity()).posterior
        cost = matchings[matching]
        return source if cost is None else align(target, source, spec, key=KEY, cost=cost).posterior

    naive, ends = None, {"geodesic": (score(target) + score(source)) / 2}
    for matching in options.matchings:
        moved, aligning = timed(lambda matching=matching: moved_by(matching))
        path, distance = geodesic(target, moved), float(wasserstein(target, moved)) ** 2
        paths = {"geodesic": path, "rescaled": rescale(path, model.apply, x, key=KEY, samples=0, spec=spec)}
        if options.fit and "W2" not in matching:
            way = "taught" if options.taught else "fitted"
            paths[way] = fitted(path)
            if way not in ends:
                ends[way] = (score(paths[way](0.0)) + score(paths[way](1.0))) / 2
        for kind, way in paths.items():
            middle, seconds = timed(lambda way=way: way(0.5))
            seconds += aligning if kind == "geodesic" else 0.0
            barrier, lost = (score(middle) - ends.get(kind, ends["geodesic"])) * (1, -1)
            naive = barrier if naive is None else naive
            cells = [f"{barrier:.3f}", f"{100 * barrier / naive:.0f} %", f"{lost:.1f}"]
            cells += [f"{seconds:.0f}", f"{distance:.1f}"]
            print(f"| {name} | {matching} | {kind} | {' | '.join(cells)} |", flush=True)


def pair_of(name: str, options: argparse.Namespace, data: Any) -> tuple[Model, Gaussian, Gaussian, Any, Any]:
    """Network, posteriors, the training images on which units are seen, and the groups."""
    model = build("resnet20", data.input_shape, 10, width=32, norm=NORMS[name])
    target, source = read(options.folder / f"{name}.npz", model)
    x = np.asarray(data.x_train[: options.images])
    return model, target, source, x, discover(model.apply, target.mean, x[:2])


def time_searches(name: str, options: argparse.Namespace, data: Any) -> None:
    """Least CPU seconds over some turns: of statistics, of the searches after them, and of points of a path."""
    model, target, source, x, spec = pair_of(name, options, data)
    by_function = costs.Activations(model.apply, x)
    found = by_function.similarities(target, source, spec)

    class Given:
        name = "activations"

        def similarities(self, *_: Any) -> Any:
            return found

    path = rescale(geodesic(target, source), model.apply, x, key=KEY, samples=0, spec=spec)
    path(0.5)  # compiled
    taus = iter(np.linspace(0.1, 0.4, TURNS))
    what = {
        f"statistics of activations, {options.images} images": lambda: by_function.similarities(target, source, spec),
        "search by W2": lambda: align(target, source, spec, key=KEY),
        "search by activations, statistics given": lambda: align(target, source, spec, key=KEY, cost=Given()),
        f"point of the rescaled path, {options.images} images": lambda: path(float(next(taus))),
    }
    took: dict[str, list[float]] = {label: [] for label in what}
    for _ in range(TURNS):
        for label, make in what.items():
            took[label].append(timed(make)[1])
    for label, seconds in took.items():
        print(f"| {name} | {label} | {min(seconds):.2f} |", flush=True)


def timed(make: Callable[[], Any]) -> tuple[Any, float]:
    began = time.process_time()
    made = jax.block_until_ready(make())
    return made, time.process_time() - began


def read(path: Path, model: Model) -> list[Gaussian]:
    """Both posteriors, in the parameter tree of the network."""
    like = jax.eval_shape(model.init, KEY)
    known = set(flatten(like))
    with np.load(path) as stored:
        arrays = {name: stored[name].astype(np.float32) for name in stored.files if name.count("|") == 2}
    flats: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    for name, array in arrays.items():
        member, part, own = name.split("|")
        flats.setdefault((member, part), {})[path_of(own, known)] = array
    tree = lambda flat: map_with_path(lambda at, leaf: flat[at].reshape(leaf.shape), like)  # noqa: E731
    return [Gaussian(tree(flats[member, "0"]), tree(flats[member, "1"])) for member in ("0", "1")]


def path_of(own: str, known: set[str]) -> str:
    """`g1b0n2c` is the second kernel of stage 1, block 0; `…t` are thresholds, `…ot` those after the block's sum."""
    if own in ("w", "b"):
        return {"w": "dense/kernel", "b": "dense/bias"}[own]
    if own.startswith("n0"):
        return (
            "stem_rectify/tau" if own == "n0t" else next(f"stem/{p}" for p in PARTS[own[2]] if f"stem/{p}" in known)
        )
    block = f"blocks/{3 * int(own[1]) + int(own[3])}"
    if own.endswith("t"):
        return f"{block}/rectify/tau" if own[4:] == "ot" else f"{block}/rectify_first/tau"
    return _in(f"{block}/{SITES[own[4:6]]}", own[6], known)


def _in(layer: str, part: str, known: set[str]) -> str:
    """The two norms name gain and bias differently."""
    return next(f"{layer}/{name}" for name in PARTS[part] if f"{layer}/{name}" in known)


if __name__ == "__main__":
    main()
