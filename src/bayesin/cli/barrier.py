"""`bayesin barrier`: the marginal loss on the way between two posteriors, naive and aligned."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from ..data import Dataset
from ..errors import ArtifactError, ConfigError
from ..evaluation import Barrier as BarrierCurve
from ..evaluation import estimate_seconds
from ..json_files import plain, read_json, write_json
from ..lab.report import BARRIER_FORMAT, MeasuredPair, page_files, with_plane, write_barrier_report
from ..lab.runs import (
    Clock,
    CostName,
    Measured,
    PosteriorFile,
    SymmetryChoice,
    doubts_about_data,
    doubts_about_inputs,
    find_posterior,
    first_of_each_class,
    load_pair,
    measure_barriers,
    rescaled_path,
)
from ..likelihoods import Categorical, Likelihood, Normal
from ..models import Model
from ..paths import geodesic, mixture
from ..randomness import seed_key
from .align import align_with_bar, show_alignment
from .main import Common
from .output import Output, duration
from .output_dir import numbers_without_page, result_folder, tell_of_missing_page

NUMBERS = "barrier.json"
PAGE = page_files("barrier", "barrier-train", "plane")
SETS = {"test": "Test set", "train": "Training set"}
LONG = 60.0  # seconds; a longer measurement is announced
IMAGES = 10  # test images on the page, one of each class


@dataclass(frozen=True)
class Barrier(SymmetryChoice, Common):
    """Measure the loss along the Wasserstein geodesic between two posteriors, on the test and the training set.

    Without --align the geodesic runs between the posteriors as they are; with it, the second one is also aligned to
    the first. The value is the largest height of the marginal loss above the chord between its ends, in nats per
    example, with its Monte-Carlo standard error. The folder gets the numbers, a page that shows them, and figures.
    """

    first: Annotated[str, tyro.conf.Positional] = ""
    """Run folder or safetensors file at τ = 0."""
    second: Annotated[str, tyro.conf.Positional] = ""
    """Run folder or safetensors file at τ = 1."""
    align: bool = False
    """Also align the second posterior to the first, and measure again."""
    cost: CostName = "wasserstein"
    """With --align, what it makes small: W2, the distance of means, KL, activations on training inputs, or blend."""
    rescale: bool = False
    """With --align, also measure the path on which every unit keeps the spread that it has at both ends."""
    control: bool = False
    """Also measure the mixture path, whose barrier is zero whatever the posteriors are."""
    sets: Literal["both", "test", "train"] = "both"
    """Data to measure on."""
    samples: int = 128
    """Draws of the weights at every point."""
    taus: int = 25
    """Points on the path; an odd number, so that both ends and the middle are among them."""
    restarts: int = 1
    """Starts of the alignment, of which the best is kept."""
    noise: float | None = None
    """Standard deviation of the likelihood of a regression."""
    key: int = 0
    """Seed of the draws, and of the alignment."""
    out: Path = Path("barrier")
    """Folder for all numbers, the page and figures; older ones are replaced. A name in .json: the numbers alone."""
    page: bool = True
    """Leave the page and the figures out."""

    def run(self, out: Output) -> dict[str, Any]:
        if not self.first or not self.second:
            raise ConfigError("needs two posteriors: bayesin barrier FIRST SECOND --align")
        if not self.align and (self.rescale or self.signs or self.cost != "wasserstein"):
            raise ConfigError("--cost, --signs and --rescale are for what --align moves; add --align")
        numbers = numbers_file(self.out)
        files = find_posterior(self.first), find_posterior(self.second)
        if numbers == self.out:  # the numbers alone
            measured, result, _ = self._run(out, files)
            write_json(numbers, result)
            page = failure = None
        else:
            with result_folder(self.out, [NUMBERS], [], force=True, gone=PAGE) as place:
                measured, result, clock = self._run(out, files)
                write_json(place / NUMBERS, result)
                draw = lambda: self._write_page(out, place, measured, files, clock)  # noqa: E731
                wanted = self.page and out.can_draw()
                page, failure = numbers_without_page(place, draw) if wanted else (None, None)
        self._show(out, measured)
        opened = "" if page is None else f"; open {(self.out / page).resolve().as_uri()}"
        out.line(f"Wrote {numbers}{opened}")
        tell_of_missing_page(out, failure, f"'bayesin report {self.out}' makes one")
        return result | {"file": str(numbers), "page": None if page is None else str(self.out / page)}

    def _run(
        self, out: Output, files: tuple[PosteriorFile, PosteriorFile]
    ) -> tuple[MeasuredPair, dict[str, Any], Clock]:
        pair = load_pair(*files, self, spec=self.spec, signs=self.signs, symmetry=self.align, data_needed=True)
        if doubts := doubts_about_data(pair.data, *files) or doubts_about_inputs(pair, self, *files):
            out.warn(doubts)
        measured = MeasuredPair(pair, {}, prior_variance=files[0].prior_variance)
        self._likelihood(measured.data)  # which refuses what lacks a setting, before anything is measured
        result: dict[str, Any] = {"format": BARRIER_FORMAT, "version": 1}
        result |= {"first": str(files[0].path), "second": str(files[1].path)}
        result |= {"samples": self.samples, "taus": self.taus, "key": self.key}
        paths: dict[str, Any] = {"naive": geodesic(pair.target, pair.source)}
        clock = Clock()
        if self.align:
            with clock("align"):
                aligned = align_with_bar(out, pair, key=self.key, cost=self.cost, restarts=self.restarts)
            measured, paths = replace(measured, aligned=aligned), aligned.paths
            result["alignment"] = aligned.numbers | {"cost": self.cost}
            if self.rescale:
                with clock("rescale"):
                    paths["rescaled"] = rescaled_path(paths["aligned"], pair, key=seed_key(self.key))
        if self.control:
            paths["mixture"] = mixture(pair.target, pair.source)
        with clock("measure"):
            measured = replace(measured, barriers=self._measure(out, measured, paths))
        return measured, result | {"sets": plain(measured.barriers)}, clock

    def _show(self, out: Output, measured: MeasuredPair) -> None:
        if measured.aligned is not None:
            show_alignment(out, measured.aligned)
        for name, kinds in measured.barriers.items():
            columns = ["path", "barrier", "at τ", "over mean", "losses", "accuracy, %"]  # fits 80 characters
            rows = [[kind, *_row(curve)] for kind, curve in kinds.items()]
            out.table(f"{SETS[name]}: loss on the way, nats per example", columns, rows)

    def _measure(
        self, out: Output, measured: MeasuredPair, paths: dict[str, Any]
    ) -> dict[str, dict[str, BarrierCurve]]:
        data = measured.data
        images = () if data.classes is None else first_of_each_class(data.y_test)[:IMAGES]
        sets = {"test": Measured(data.x_test, data.y_test, self.samples, images)}
        sets["train"] = Measured(data.x_train, data.y_train, self.samples)
        sets = {name: examples for name, examples in sets.items() if self.sets in ("both", name)}
        self._announce(out, measured, [examples.x for examples in sets.values()], len(paths))
        options = {"key": self.key, "taus": self.taus, "likelihood": self._likelihood(data)}
        return measure_with_bar(out, paths, measured.model, sets, **options)

    def _announce(self, out: Output, measured: MeasuredPair, inputs: list[Any], paths: int) -> None:
        samples = 1 if measured.points else self.samples
        apply, mean, taus = measured.model.apply, measured.ends[0].mean, self.taus
        seconds = paths * sum(estimate_seconds(apply, mean, x, samples=samples, taus=taus) for x in inputs)
        if seconds > LONG:
            out.warn(
                f"this takes about {duration(seconds)}: {paths} paths × {self.taus} points × {samples} draws "
                f"× {sum(map(len, inputs)):,} examples; --samples, --taus, --limit and --sets test make it shorter"
            )

    def _write_page(
        self, out: Output, place: Path, measured: MeasuredPair, files: tuple[PosteriorFile, ...], clock: Clock
    ) -> str:
        data = measured.data
        with out.progress("plane", None) as bar, clock("plane"):
            measured = with_plane(
                measured,
                key=seed_key(self.key),
                work=2 * self.taus * self.samples * len(data.y_test),
                on_point=lambda done, points: bar.update(done, "", points),
                likelihood=self._likelihood(data),
            )
        shown = {
            "first": files[0].text,
            "second": files[1].text,
            "data": f"{data.name}, {len(data):,} training and {len(data.y_test):,} test examples",
            "model": files[0].model_words,
            "weight samples": f"{self.samples:,}",
            "points on a path": str(self.taus),
            "key": str(self.key),
            "starts of the alignment": str(self.restarts) if self.align else "",
            "cost of the alignment": self.cost if self.align else "",
        }
        config = {name: text for name, text in shown.items() if text}
        links = {NUMBERS: "all curves, with errors and settings"}
        with out.progress("writing the page", None):
            return write_barrier_report(place, measured, config=config, seconds=clock.seconds, files=links).name

    def _likelihood(self, data: Dataset) -> Likelihood:
        if data.classes is not None:
            return Categorical()
        if self.noise is None or not self.noise > 0:
            raise ConfigError("a regression needs --noise, the standard deviation of its likelihood")
        return Normal(self.noise)


def measure_with_bar(
    out: Output, paths: dict[str, Any], model: Model, sets: dict[str, Measured], *, key: int, **options: Any
) -> dict[str, dict[str, BarrierCurve]]:
    """Measures every path on every set while a bar shows the loss."""
    with out.progress("measuring", None) as bar:
        told = lambda done, points, note: bar.update(done, note, points)  # noqa: E731
        return measure_barriers(paths, model.apply, sets, key=seed_key(key), on_point=told, **options)


def numbers_file(path: Path) -> Path:
    """The file for the numbers. An older result may be replaced, anything else not."""
    if path.suffix in (".html", ".safetensors") or (path.suffix != ".json" and path.is_file()):
        raise ConfigError(f"--out {path}: choose another name, of a folder or of a file that ends in .json")
    if path.suffix == ".json" and path.is_dir():
        raise ConfigError(f"--out {path} is a folder; choose another name")
    numbers = path if path.suffix == ".json" else path / NUMBERS
    others = [numbers] if path.suffix == ".json" else [numbers, path / "report.json"]
    if any(other.exists() for other in others) and not _is_ours(numbers):
        raise ConfigError(
            f"--out {path} holds something else than a result of 'bayesin barrier'; choose another name"
        )
    return numbers


def _is_ours(numbers: Path) -> bool:
    try:
        content = read_json(numbers)
    except ArtifactError:
        return False
    return isinstance(content, dict) and content.get("format") == BARRIER_FORMAT


def _row(curve: BarrierCurve) -> list[str]:
    accuracy = curve.accuracy
    return [
        f"{curve.value:.4f} ± {curve.standard_error:.4f}",
        f"{curve.argmax:.2f}",
        f"{curve.value_over_mean:.4f}",
        f"{curve.nll[0]:.3f}, {curve.nll[-1]:.3f}",
        "–" if accuracy is None else f"{100 * accuracy[0]:.1f}, {100 * accuracy[-1]:.1f}",
    ]
