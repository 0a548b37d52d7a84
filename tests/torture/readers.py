"""Every reader of files, with a file of the first version that it must go on reading for ever.

A reader returns plain values that can be compared, or raises an error of ours.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

FIXTURES = Path(__file__).parents[1] / "fixtures"


@dataclass(frozen=True)
class Reader:
    """How one kind of file is read."""

    name: str
    fixture: str  # below tests/fixtures
    read: Callable[[Path], Any]  # of a file with that name in a folder of its own
    checked: bool = False  # a checksum covers every bit: what is read is what was written

    @property
    def content(self) -> bytes:
        return (FIXTURES / self.fixture).read_bytes()

    @property
    def filename(self) -> str:
        return Path(self.fixture).name


def plain(value: Any) -> Any:
    """Arrays as (type, shape, bits), so that values can be compared exactly."""
    leaves, structure = jax.tree.flatten(value)
    arrays = [np.asarray(leaf) for leaf in leaves]
    return str(structure), [
        (str(one.dtype), one.shape, one.tobytes() if one.dtype != object else one) for one in arrays
    ]


def _posterior(path: Path) -> Any:
    from bayesin.store import describe, load_posterior

    describe(path)
    found = load_posterior(path)
    assert all(np.isfinite(leaf.astype(np.float64)).all() for leaf in jax.tree.leaves(found)), "NaN was let in"
    assert not hasattr(found, "std") or all((leaf >= 0).all() for leaf in jax.tree.leaves(found.std)), "negative std"
    return plain(found)


def _alignment(path: Path) -> Any:
    from bayesin.store import load_alignment

    found = load_alignment(path)
    return plain(found.perms), found.spec, json.dumps(found.settings)


def _tensors(path: Path) -> Any:
    from bayesin.store.tensors import read_tensors

    arrays, strings = read_tensors(path)
    return plain(arrays), strings


def _draws(path: Path) -> Any:
    from bayesin.inference.hmc.draws import Draws

    found = Draws(path.parent)
    assert all(np.isfinite(leaf.astype(np.float64)).all() for leaf in jax.tree.leaves(found[:])), "NaN was let in"
    return plain(found[:]), found.chains, found.per_chain


def _state(path: Path) -> Any:
    from bayesin.inference.hmc.draws import read_state

    return plain(read_state(path.parent, {"key": [0, 7], "samples": 2}))


def _spec(path: Path) -> Any:
    from bayesin import PermutationSpec

    spec = PermutationSpec.load(path)
    return PermutationSpec.from_json(json.loads(json.dumps(spec.to_json())))


def _config(path: Path) -> Any:
    from bayesin.json_files import read_json
    from bayesin.lab.runs import RunConfig

    config = RunConfig.from_json(read_json(path))
    return config.hash, config.name


def _metrics(path: Path) -> Any:
    from bayesin.lab.runs.records import read_metrics

    return read_metrics(path.parent)


def _run(path: Path) -> Any:
    """A run that is done, as `bayesin train` and campaigns find it."""
    from bayesin.lab.runs import finished

    for name in ("config.json", "provenance.json", "results.json", "posterior-0.safetensors"):
        if name != path.name:
            shutil.copy(FIXTURES / "run-v1" / name, path.parent / name)
    return finished(path.parent).results


def _report(path: Path) -> Any:
    from bayesin.lab.report import write_page

    return write_page(path.parent / "page.html", [path]).stat().st_size > 0


def _campaign(path: Path) -> Any:
    from bayesin.lab.campaign import read_campaign

    folder = path.parent / "campaigns"
    folder.mkdir()
    path.rename(folder / path.name)
    found = read_campaign(folder / path.name)
    return found.name, found.counts


def _npz(path: Path) -> Any:
    from bayesin.data import load

    found = load(str(path))
    return plain((found.x_train, found.y_train, found.x_test, found.y_test))


def checkpoint(folder: Path) -> Any:
    """A copy of the checkpoint, which is a folder of files; damage makes it go, and must not make it lie."""
    from bayesin.store.checkpoints import Checkpoints

    like = [np.zeros((2, 3), np.float32), np.zeros(2, np.int32), np.zeros((2, 0), np.float32)]
    checkpoints = Checkpoints(folder, {"key": [0, 1], "settings": [{"epochs": 3}]}, 100)
    try:
        found = checkpoints.restore(like)
    finally:
        checkpoints.close()
    return None if found is None else (found.step, plain(found.leaves), plain(found.rows), plain(found.limit))


def _idx(path: Path) -> Any:
    from bayesin.data.formats import gunzip, parse_idx

    return plain(parse_idx(gunzip(path.read_bytes(), path, 1 << 20), 3, str(path)))


def _cifar(path: Path) -> Any:
    from bayesin.data.formats import parse_cifar

    return plain(parse_cifar(path.read_bytes(), 10, str(path)))


READERS = {
    reader.name: reader
    for reader in (
        Reader("posterior: Gaussian", "gaussian-v1.safetensors", _posterior, True),
        Reader("posterior: low rank", "lowrank-v1.safetensors", _posterior, True),
        Reader("posterior: samples", "samples-v1.safetensors", _posterior, True),
        Reader("posterior: point", "point-v1.safetensors", _posterior, True),
        Reader("alignment", "alignment-v1.safetensors", _alignment, True),
        Reader("permutations of samples", "permutations-v1.safetensors", _tensors, True),
        Reader("HMC draws", "hmc-v1/draws-000000.safetensors", _draws, True),
        Reader("HMC state", "hmc-v1/state.safetensors", _state, True),
        Reader("spec JSON", "spec-v1.json", _spec),
        Reader("config JSON", "run-v1/config.json", _config),
        Reader("provenance JSON", "run-v1/provenance.json", _run),
        Reader("results JSON", "run-v1/results.json", _run),
        Reader("metrics JSONL", "run-v1/metrics.jsonl", _metrics),
        Reader("report JSON", "report-v1.json", _report),
        Reader("barrier JSON", "barrier-v1.json", _report),
        Reader("campaign JSON", "campaign-v1.json", _campaign),
        Reader("data: npz", "data-v1.npz", _npz),
        Reader("data: idx", "images-v1.idx.gz", _idx),
        Reader("data: CIFAR", "cifar-v1.bin", _cifar),
    )
}
