"""`bayesin try`: two networks of your own, in one command: what they are, their symmetry, the barrier."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from ..data import Normalise, is_data_file
from ..errors import ConfigError
from ..json_files import plain, write_json
from ..lab.report import BARRIER_FORMAT, MeasuredPair, page_files, with_plane, write_barrier_report
from ..lab.runs import (
    Clock,
    Measured,
    ModelChoice,
    PosteriorPair,
    dataset_of,
    doubts_about_inputs,
    find_posterior,
    first_of_each_class,
    is_own_checkpoint,
    load_own_pair,
    load_pair,
    rescaled_path,
)
from ..randomness import seed_key
from ..symmetry import explain
from .align import align_with_bar
from .barrier import measure_with_bar, numbers_file
from .main import Common
from .output import Output
from .output_dir import numbers_without_page, result_folder, tell_of_missing_page

NUMBERS = "barrier.json"
PAGE = page_files("barrier", "plane")
TENSORS = 3  # shown of each group; 'bayesin explain' shows all
TITLES = {"naive": "as they are", "aligned": "aligned", "rescaled": "aligned, rescaled"}
IMAGES = 10  # on the page, one of each class


@dataclass(frozen=True)
class Try(Common):
    """Take two checkpoints of one network: say what they are, which units may be permuted, and measure the barrier.

    FIRST and SECOND are run folders or posteriors of bayesin, which name their network and data, or checkpoints of
    your own (.safetensors or .npz, arrays by parameter name) together with --model and --data. Measured on the test
    set as they are and aligned, with few draws, for a first look.
    """

    first: Annotated[str, tyro.conf.Positional] = ""
    """Run folder, posterior or checkpoint at τ = 0."""
    second: Annotated[str, tyro.conf.Positional] = ""
    """Run folder, posterior or checkpoint at τ = 1, which is moved."""
    model: str | None = None
    """Your network: file.py:attribute or package.module:attribute; what bayesin built itself needs none."""
    data: str | None = None
    """Data set: digits, mnist, fashion-mnist, cifar10, cifar100, or an .npz file. What bayesin trained needs none."""
    root: Path | None = None
    """Folder to look for data in first."""
    limit: int | None = None
    """Use so many examples of the test set."""
    normalise: Normalise | None = None
    """How inputs are prepared: standard (mean 0, deviation 1 on the training set), unit (pixels divided by their
    largest value) or none. Files of bayesin say it; by default it is none for another's .npz, else standard."""
    signs: bool = False
    """Let units also change their sign where the network allows it, as behind tanh and in attention."""
    rescale: bool = False
    """Also measure the aligned path with every unit kept as active as it is at both ends, by training inputs."""
    restarts: int = 2
    """Starts of the alignment, of which the best is kept."""
    samples: int = 32
    """Draws of the weights at every point; points need none."""
    taus: int = 11
    """Points on the path; an odd number, so that both ends and the middle are among them."""
    key: int = 0
    """Seed of the draws, and of the alignment."""
    out: Path = Path("tried")
    """Folder for the numbers, the page and figures; older ones are replaced."""

    def run(self, out: Output) -> dict[str, Any]:
        if not self.first or not self.second:
            raise ConfigError("needs two networks: bayesin try FIRST SECOND")
        numbers_file(self.out)  # which refuses a folder with something else in it
        pair = self._pair(out)
        _describe(out, pair, self.model)
        clock = Clock()
        with result_folder(self.out, [NUMBERS], [], force=True, gone=PAGE) as place:
            with clock("align"):
                aligned = align_with_bar(out, pair, key=self.key, restarts=self.restarts)
            paths: dict[str, Any] = aligned.paths
            if self.rescale:
                with clock("rescale"):
                    paths["rescaled"] = rescaled_path(paths["aligned"], pair, key=seed_key(self.key))
            with clock("measure"):
                measured = MeasuredPair(pair, self._measure(out, pair, paths), aligned)
            named = {"first": self.first, "second": self.second, "model": self.model, "data": measured.data.name}
            settings = named | {"samples": self.samples, "taus": self.taus, "key": self.key}
            result = {"format": BARRIER_FORMAT, "version": 1} | settings | {"alignment": aligned.numbers}
            result["sets"] = plain(measured.barriers)
            write_json(place / NUMBERS, result)
            draw = lambda: self._page(out, place, measured, settings, clock)  # noqa: E731
            page, failure = numbers_without_page(place, draw) if out.can_draw() else (None, None)
        _show(out, measured)
        if pair.model is not None and pair.model.statistics and not self.rescale:
            out.line("Half-way, running statistics (BatchNorm) fit neither network; --rescale mends that")
        if page is not None:
            out.line(f"Open {(self.out / page).resolve().as_uri()}")
        tell_of_missing_page(out, failure, f"'bayesin report {self.out}' makes one")
        return result | {"page": None if page is None else str(self.out / page)}

    def _pair(self, out: Output) -> PosteriorPair:
        own = is_own_checkpoint(self.first) or is_own_checkpoint(self.second)
        if own and (self.model is None or self.data is None):
            raise ConfigError("a checkpoint of your own needs --model file.py:attribute and --data NAME or file.npz")
        files = () if own else (find_posterior(self.first), find_posterior(self.second))
        named = {"model": self.model, "data": self.data, "root": self.root}
        choice = ModelChoice(**named, limit=self.limit, normalise=self.normalise)
        if is_data_file(self.data or "") and not self.normalise and not any(file.run_data for file in files):
            choice = replace(choice, normalise="none")
        if files:
            pair = load_pair(*files, choice, signs=self.signs, data_needed=True)
        else:
            data = dataset_of(choice)
            assert self.model is not None and data is not None
            pair = load_own_pair(self.first, self.second, self.model, data, self.signs)
        if doubts := doubts_about_inputs(pair, choice, *files):
            out.warn(doubts)
        return pair

    def _measure(self, out: Output, pair: PosteriorPair, paths: dict[str, Any]) -> dict[str, Any]:
        data = pair.data
        if data is None or pair.model is None or data.classes is None:
            raise ConfigError("'try' measures classifiers; for a regression use 'bayesin barrier … --noise'")
        kept = first_of_each_class(data.y_test)[:IMAGES]
        sets = {"test": Measured(data.x_test, data.y_test, self.samples, kept)}
        return measure_with_bar(out, paths, pair.model, sets, key=self.key, taus=self.taus)

    def _page(self, out: Output, place: Path, measured: MeasuredPair, settings: dict[str, Any], clock: Clock) -> str:
        with out.progress("writing the page", None), clock("plane"):
            work = 2 * self.taus * self.samples * len(measured.data.x_test)
            measured = with_plane(measured, key=seed_key(self.key), work=work)
        config = {name: str(value) for name, value in settings.items() if value is not None}
        links = {NUMBERS: "all curves, with errors and settings"}
        return write_barrier_report(place, measured, config=config, seconds=clock.seconds, files=links).name


def _describe(out: Output, pair: PosteriorPair, address: str | None) -> None:
    seen = MeasuredPair(pair, {})
    weights, kind = seen.ends[0].size, "networks" if seen.points else "posteriors"
    name = address or (pair.model.name if pair.model is not None else "")
    named = f" of {name}" if name else ""
    groups = f"{len(pair.spec.sizes)} group" + ("" if len(pair.spec.sizes) == 1 else "s")
    out.line(f"Two {kind}{named}, {weights:,} weights each; {groups} of interchangeable units")
    rows = []
    for line in explain(pair.spec).groups:
        more = f" and {len(line.tensors) - TENSORS} more" if len(line.tensors) > TENSORS else ""
        rows.append([line.group, line.size, ", ".join(line.tensors[:TENSORS]) + more])
    out.table(f"Symmetry, {pair.spec_from}", ["group", "units", "tensors"], rows)


def _show(out: Output, measured: MeasuredPair) -> None:
    (kinds,), aligned = measured.barriers.values(), measured.aligned
    rows = []
    for kind, curve in kinds.items():
        accuracy = np.asarray(curve.accuracy)
        shown = [f"{100 * accuracy[at]:.1f}" for at in (0, len(accuracy) // 2, -1)]
        error = "" if measured.points else f" ± {curve.standard_error:.4f}"  # a point has no draws, and no error
        rows.append([TITLES[kind], f"{curve.value:.4f}{error}", *shown])
    out.table("Test set", ["", "barrier, nats", "accuracy at 0, %", "half way", "at 1"], rows)
    if aligned is not None:
        moved, units = sum(aligned.alignment.moved.values()), sum(aligned.pair.spec.sizes.values())
        flips = (
            f", {sum(aligned.alignment.flipped.values()):,} with their sign changed"
            if aligned.alignment.signs
            else ""
        )
        change = f"outputs changed by at most {aligned.function_change:.1e}"
        out.line(f"{moved:,} of {units:,} units moved{flips}; {change}")
