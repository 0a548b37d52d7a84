"""Trains, aligns and measures what this folder reports; the numbers go to one JSON file for each run.

    python results/campaign.py mnist fashion-mnist --root data --out results/numbers
    python results/campaign.py cifar10 --root data --out results/numbers --runs runs
    python results/campaign.py mnist --tiny --out /tmp/numbers        # the same steps on a few images

Runs are ordinary run folders (`bayesin train` makes the same ones), so that a finished one is never repeated.
"""

import argparse
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import jax

import bayesin
from bayesin.data import load
from bayesin.experiments.config import RunConfig, build_model, make_training
from bayesin.experiments.presets import preset
from bayesin.experiments.run import run
from bayesin.files import write_json
from bayesin.store import load_posterior

START = time.time()


class Entry(NamedTuple):
    """One row of the table: members are trained from keys 0, 1, … and neighbours are paired."""

    data: str
    model: str
    preset: str
    members: int
    width: int
    changes: Mapping[str, Any] = MappingProxyType({})
    samples: int = 128  # draws for test scores and barriers
    taus: int = 25
    restarts: int = 1
    train_pairs: int = 0  # pairs whose barrier is measured on the training set too

    @property
    def name(self) -> str:
        extra = "".join(f"-{k}-{v}" for k, v in self.changes.items())
        return f"{self.data}-{self.model}{self.width}-{self.preset}{extra}"


def _mlp(data: str, members: int = 6) -> list[Entry]:
    return [Entry(data, "mlp", name, members, 512, train_pairs=1) for name in ("paper", "converged")]


def _resnet(data: str, **changes) -> Entry:
    return Entry(data, "resnet20", "paper", 2, 64, changes, samples=16, taus=9, restarts=3)


ENTRIES = {
    "mnist": [*_mlp("mnist"), Entry("mnist", "mlp", "paper", 6, 512, {"compute": "bfloat16"})],
    "fashion-mnist": _mlp("fashion-mnist"),
    "cifar10": _mlp("cifar10"),
    "cifar10-resnet": [
        _resnet("cifar10", epochs=40),
        _resnet("cifar10", epochs=40, compute="bfloat16"),
        _resnet("cifar10", epochs=100, compute="bfloat16"),
    ],
    "cifar100": [*_mlp("cifar100", 3), _resnet("cifar100", epochs=40, compute="bfloat16")],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="+", choices=[*ENTRIES])
    parser.add_argument("--root", default=None, help="where the data files are")
    parser.add_argument("--out", type=Path, default=Path("results/numbers"))
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--cache", default=None, help="folder of compiled programs")
    parser.add_argument("--tiny", action="store_true", help="a few images and epochs, to try the steps")
    options = parser.parse_args()
    if options.cache:
        jax.config.update("jax_compilation_cache_dir", options.cache)
    for entry in (entry for name in options.names for entry in ENTRIES[name]):
        measure(_small(entry) if options.tiny else entry, options)


def measure(entry: Entry, options: argparse.Namespace) -> None:
    """One entry: train, then align and walk between neighbouring members."""
    config = _config(entry, options.tiny)
    say(entry.name, "training")
    outcome = run(config, options.runs / entry.name, root=options.root)
    numbers = {"name": entry.name, "config": config.to_json(), "provenance": outcome.provenance}
    numbers |= {"results": outcome.results, "pairs": []}
    path = options.out / f"{entry.name}.json"
    write_json(path, numbers)
    say(
        [f"{member['test_accuracy']:.4f}" for member in outcome.results["members"]],
        outcome.provenance["train_seconds"],
    )

    data = load(config.data, options.root, config.limit)
    model = build_model(config, data)
    posteriors = [load_posterior(outcome.folder / f"posterior-{i}.safetensors") for i in range(entry.members)]
    spec = bayesin.discover(model.apply, posteriors[0].mean, data.x_test[:2])
    for index in range(entry.members - 1):
        began = time.time()
        numbers["pairs"].append(_pair(entry, model, data, spec, posteriors[index], posteriors[index + 1], index))
        write_json(path, numbers)
        pair = numbers["pairs"][-1]
        short = {name: round(pair[name]["value"], 4) for name in pair if name.startswith(("naive", "aligned"))}
        say(entry.name, index, short, f"{time.time() - began:.1f} s")


def _pair(entry: Entry, model, data, spec, first, second, index: int) -> dict:
    key = jax.random.fold_in(jax.random.key(20231016), index)
    began = time.time()
    alignment = bayesin.align(first, second, spec, key=key, restarts=entry.restarts)
    found = {
        "members": [index, index + 1],
        "align_seconds": time.time() - began,
        "w2_squared": [float(alignment.history[0]), float(alignment.history[-1])],
        "sweeps": alignment.sweeps,
        "converged": alignment.converged,
        "start": alignment.start,
        "moved": sum(alignment.moved.values()),
        "units": sum(spec.sizes.values()),
    }
    sets = {"test": (data.x_test, data.y_test)}
    if index < entry.train_pairs:
        sets["train"] = (data.x_train, data.y_train)
    for label, other in (("naive", second), ("aligned", alignment.posterior)):
        path = bayesin.geodesic(first, other)
        for name, examples in sets.items():
            measured = bayesin.barrier(path, model.apply, examples, key=key, samples=entry.samples, taus=entry.taus)
            found[f"{label}_{name}"] = measured.to_json()
    return found


def _config(entry: Entry, tiny: bool) -> RunConfig:
    fields = preset(entry.preset, entry.data, entry.model) | dict(entry.changes) | {"members": entry.members}
    if tiny:
        fields |= {"epochs": 1, "batch": 100, "warmup": 0}
    return RunConfig(
        data=entry.data,
        model=entry.model,
        training=make_training("vi", fields),
        width=entry.width,
        limit=300 if tiny else None,
        test_samples=entry.samples,
    )


def _small(entry: Entry) -> Entry:
    return entry._replace(members=2, width=16 if entry.model == "mlp" else 4, samples=2, taus=3, restarts=1)


def say(*words) -> None:
    print(f"[{time.time() - START:6.1f}]", *words, flush=True)


if __name__ == "__main__":
    main()
