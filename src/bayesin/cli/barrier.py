"""`bayesin barrier`: the marginal loss on the way between two posteriors, naive and aligned."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import tyro
from rich.markup import escape

from ..errors import ArtifactError, ConfigError
from ..evaluation import Barrier as Found
from ..evaluation import Normal, barrier, categorical, estimate_seconds
from ..experiments.clock import Clock
from ..experiments.demo import first_of_each
from ..files import read_json, write_json
from ..paths import as_gaussian, geodesic, is_point, mixture
from .artifacts import WithModel, find
from .barrier_page import NUMBERS, write_barrier_page
from .drawing import can_draw
from .output import Bar, Output
from .pairs import Pair, align_pair, load_pair
from .words import duration

FORMAT = "bayesin-barrier"
SETS = {"test": "Test set", "train": "Training set"}
LONG = 60.0  # seconds; a longer measurement is announced
IMAGES = 10  # test images on the page, one of each class


@dataclass(frozen=True)
class Barrier(WithModel):
    """Measure the loss along the Wasserstein geodesic between two posteriors, on the test and the training set.

    Without --align the geodesic runs between the posteriors as they are; with it, the second one is also aligned to
    the first. The value is the largest height of the marginal loss above the chord between its ends, in nats per
    example, with its Monte-Carlo standard error. The folder gets the numbers, a page that shows them, and figures.
    """

    first: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FIRST", help_behavior_hint="")] = ""
    """Run folder or safetensors file at τ = 0."""
    second: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SECOND", help_behavior_hint="")] = ""
    """Run folder or safetensors file at τ = 1."""
    align: bool = False
    """Also align the second posterior to the first, and measure again."""
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
    spec: Path | None = None
    """Permutation spec (JSON); by default the one in the files, else it is discovered."""
    out: Path = Path("barrier")
    """Folder for all numbers, the page and figures; older ones are replaced. A name in .json: the numbers alone."""
    page: bool = True
    """Leave the page and the figures out."""

    def run(self, out: Output) -> dict[str, Any]:
        if not self.first or not self.second:
            raise ConfigError("needs two posteriors: bayesin barrier FIRST SECOND --align")
        numbers = _place(self.out)
        given = find(self.first), find(self.second)
        pair = load_pair(self, *given, spec=self.spec, symmetry=self.align, data_needed=True)
        log_likelihood = self._log_likelihood(pair)
        paths: dict[str, Any] = {"naive": geodesic(pair.target, pair.source)}
        clock = Clock()
        result: dict[str, Any] = {
            "format": FORMAT,
            "version": 1,
            "first": str(given[0].path),
            "second": str(given[1].path),
        }
        result |= {"samples": self.samples, "taus": self.taus, "key": self.key}
        aligned = None
        if self.align:
            with clock("align"):
                aligned = align_pair(
                    pair, out, key=self.key, cost="wasserstein", restarts=self.restarts, max_sweeps=100
                )
            aligned.show(out, pair)
            paths["aligned"] = geodesic(pair.target, aligned.alignment.posterior)
            result["alignment"] = aligned.numbers
        if self.control:
            paths["mixture"] = mixture(pair.target, pair.source)
        with clock("measure"):
            found = self._measure(out, pair, paths, log_likelihood)
        result["sets"] = {name: {kind: one.to_json() for kind, one in kinds.items()} for name, kinds in found.items()}
        write_json(numbers, result)
        page = None
        if self.page and numbers != self.out and can_draw(out):
            page = write_barrier_page(out, self, pair, given, found, aligned, log_likelihood, clock.seconds)
        out.line(escape(f"Wrote {numbers}" if page is None else f"Wrote {numbers}; open {page.resolve().as_uri()}"))
        return result | {"file": str(numbers), "page": None if page is None else str(page)}

    def _measure(
        self, out: Output, pair: Pair, paths: dict[str, Any], log_likelihood: Any
    ) -> dict[str, dict[str, Found]]:
        sets = _sets(pair, self.sets)
        self._announce(out, pair, sets, len(paths))
        found: dict[str, dict[str, Found]] = {name: {} for name in sets}
        with out.progress("measuring", len(sets) * len(paths) * self.taus) as bar:
            for number, (name, kind) in enumerate([(name, kind) for name in sets for kind in paths]):
                found[name][kind] = barrier(
                    paths[kind],
                    pair.model.apply,  # pyright: ignore[reportOptionalMemberAccess]
                    sets[name],
                    key=jax.random.key(self.key),
                    samples=self.samples,
                    taus=self.taus,
                    log_likelihood=log_likelihood,
                    keep=_images(pair) if name == "test" else (),
                    on_tau=_teller(bar, number * self.taus, f"{kind}, {name} set"),
                )
        _show(out, found)
        return found

    def _announce(self, out: Output, pair: Pair, sets: dict[str, tuple[Any, Any]], paths: int) -> None:
        ends = [as_gaussian(end) for end in (pair.target, pair.source)]
        samples = 1 if all(is_point(end) for end in ends) else self.samples
        apply = pair.model.apply  # pyright: ignore[reportOptionalMemberAccess]
        inputs = [x for x, _ in sets.values()]
        one = sum(estimate_seconds(apply, ends[0].mean, x, samples=samples, taus=self.taus) for x in inputs)
        if one * paths > LONG:
            out.warn(
                f"this takes about {duration(one * paths)}: {paths} paths × {self.taus} points × {samples} draws "
                f"× {sum(map(len, inputs)):,} examples; --samples, --taus, --limit and --sets test make it shorter"
            )

    def _log_likelihood(self, pair: Pair) -> Any:
        if pair.data is None or pair.data.classes is not None:
            return categorical
        if self.noise is None or not self.noise > 0:
            raise ConfigError("a regression needs --noise, the standard deviation of its likelihood")
        return Normal(self.noise)


def _sets(pair: Pair, which: str) -> dict[str, tuple[Any, Any]]:
    if pair.data is None:
        raise ConfigError("nothing names the data to measure on; use --data")
    data = pair.data
    sets = {"test": (data.x_test, data.y_test), "train": (data.x_train, data.y_train)}
    return sets if which == "both" else {which: sets[which]}


def _images(pair: Pair) -> Any:
    """The first test example of each of the first classes; none for a regression."""
    data = pair.data
    return () if data is None or data.classes is None else first_of_each(data.y_test)[:IMAGES]


def _place(path: Path) -> Path:
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
    return isinstance(content, dict) and content.get("format") == FORMAT


def _teller(bar: Bar, before: int, label: str) -> Any:
    return lambda done, tau, loss: bar.update(before + done, f"{label}: loss {loss:.4f} at τ = {tau:.2f}")


def _show(out: Output, found: dict[str, dict[str, Found]]) -> None:
    columns = ["path", "barrier", "at τ", "over mean", "losses", "accuracy, %"]  # fits 80 characters
    for name, kinds in found.items():
        rows = [[kind, *_row(one)] for kind, one in kinds.items()]
        out.table(f"{SETS[name]}: loss on the way, nats per example", columns, rows)


def _row(one: Found) -> list[str]:
    accuracy = "–" if one.accuracy is None else f"{100 * one.accuracy[0]:.1f}, {100 * one.accuracy[-1]:.1f}"
    return [
        f"{one.value:.4f} ± {one.standard_error:.4f}",
        f"{one.argmax:.2f}",
        f"{one.value_over_mean:.4f}",
        f"{one.nll[0]:.3f}, {one.nll[-1]:.3f}",
        accuracy,
    ]
