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
from ..files import read_json, write_json
from ..paths import as_gaussian, geodesic, is_point, mixture
from .artifacts import WithModel, find
from .output import Bar, Output
from .pairs import Pair, align_pair, load_pair

FORMAT = "bayesin-barrier"
SETS = {"test": "Test set", "train": "Training set"}
LONG = 60.0  # seconds; a longer measurement is announced


@dataclass(frozen=True)
class Barrier(WithModel):
    """Measure the loss along the Wasserstein geodesic between two posteriors, on the test and the training set.

    Without --align the geodesic runs between the posteriors as they are; with it, the second one is also aligned to
    the first. The value is the largest height of the marginal loss above the chord between its ends, in nats per
    example, with its Monte-Carlo standard error.
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
    out: Path = Path("barrier.json")
    """File for all numbers; an older one is replaced."""

    def run(self, out: Output) -> dict[str, Any]:
        if not self.first or not self.second:
            raise ConfigError("needs two posteriors: bayesin barrier FIRST SECOND --align")
        _check_place(self.out)
        given = find(self.first), find(self.second)
        pair = load_pair(self, *given, spec=self.spec, symmetry=self.align, data_needed=True)
        log_likelihood = self._log_likelihood(pair)
        paths: dict[str, Any] = {"naive": geodesic(pair.target, pair.source)}
        result: dict[str, Any] = {
            "format": FORMAT,
            "version": 1,
            "first": str(given[0].path),
            "second": str(given[1].path),
        }
        result |= {"samples": self.samples, "taus": self.taus, "key": self.key}
        if self.align:
            aligned = align_pair(pair, out, key=self.key, cost="wasserstein", restarts=self.restarts, max_sweeps=100)
            aligned.show(out, pair)
            paths["aligned"] = geodesic(pair.target, aligned.alignment.posterior)
            result["alignment"] = aligned.numbers
        if self.control:
            paths["mixture"] = mixture(pair.target, pair.source)
        result["sets"] = self._measure(out, pair, paths, log_likelihood)
        write_json(self.out, result)
        out.line(f"Wrote {escape(str(self.out))}")
        return result | {"file": str(self.out)}

    def _measure(self, out: Output, pair: Pair, paths: dict[str, Any], log_likelihood: Any) -> dict[str, Any]:
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
                    on_tau=_teller(bar, number * self.taus, f"{kind}, {name} set"),
                )
        _show(out, found)
        return {name: {kind: one.to_json() for kind, one in kinds.items()} for name, kinds in found.items()}

    def _announce(self, out: Output, pair: Pair, sets: dict[str, tuple[Any, Any]], paths: int) -> None:
        ends = [as_gaussian(end) for end in (pair.target, pair.source)]
        samples = 1 if all(is_point(end) for end in ends) else self.samples
        apply = pair.model.apply  # pyright: ignore[reportOptionalMemberAccess]
        inputs = [x for x, _ in sets.values()]
        one = sum(estimate_seconds(apply, ends[0].mean, x, samples=samples, taus=self.taus) for x in inputs)
        if one * paths > LONG:
            out.warn(
                f"this takes about {_duration(one * paths)}: {paths} paths × {self.taus} points × {samples} draws "
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


def _check_place(path: Path) -> None:
    """An older result may be replaced, anything else not."""
    if path.is_dir():
        raise ConfigError(f"--out {path} is a folder; name a file, such as {path / 'barrier.json'}")
    if not path.exists():
        return
    try:
        content = read_json(path)
    except ArtifactError:
        content = None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ConfigError(f"--out {path} exists and is no result of 'bayesin barrier'; choose another name")


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


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
