"""`bayesin compact`: many samples folded into one Gaussian, after their units were put into a common order."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import jax
import numpy as np
import tyro

from ..compact import Compact, Score, class_scores, compact, predictions
from ..data import Dataset
from ..errors import ConfigError
from ..evaluation import ClassPredictive, Predictive
from ..inputs import take
from ..json_files import write_json
from ..lab.report import (
    PREDICTIONS,
    CompactReport,
    draw_compact_page,
    page_files,
    shown,
    write_compact_report,
)
from ..lab.runs import (
    Clock,
    PosteriorFile,
    SymmetryChoice,
    dataset_of,
    doubts_about_data,
    find_posterior,
    likelihood_of_file,
    mixing_numbers,
    mixing_table,
    model_of,
    point_of,
    read_foldable,
    read_posterior,
    verified_spec,
    versions,
    with_errors,
)
from ..likelihoods import Likelihood
from ..models import Model
from ..randomness import seed_key
from ..store import card_is_ours, save_posterior, write_card, write_tensors
from ..symmetry import PermutationSpec
from .main import Common
from .output import Output
from .output_dir import numbers_without_page, result_folder, tell_of_missing_page
from .same_command import MADE_BY, SameCommand, contents_of

CHAINS = ("hmc", "sgmcmc")  # methods whose samples are draws of Markov chains
HELD_OUT = 10_000  # training examples that a scale is chosen on
NUMBERS = "compact.json"
FILES = {
    "permutations.safetensors": "the permutation of every sample",
    NUMBERS: "the numbers of the table, and settings",
    "posterior-0.safetensors": "the Gaussian",
}
PAGE = page_files("compact")
SCORES = {"agreement": ".4f", "TV": ".4f", "accuracy": ".2%", "NLL": ".3f", "ECE": ".3f"}  # in the order of `Score`


@dataclass(frozen=True)
class Fold(SymmetryChoice, Common):
    """Fold SAMPLES into one Gaussian, after moving each onto a common reference.

    SAMPLES are the run folder of an ensemble ('bayesin train --method ensemble --members 20 --width 32 --depth 1
    --out runs/ensemble' trains one), of HMC, or of several Gaussians, or any safetensors file with samples. Writes
    the Gaussian as a posterior like any other, the permutation of every sample, and the numbers of the table. On data
    that are known, the predictions of samples, Gaussians and mean networks are compared.
    """

    samples: Annotated[str, tyro.conf.Positional] = ""
    """Run folder or safetensors file that holds samples."""
    out: Path | None = None
    """Folder for the result. Needed."""
    reference: str | None = None
    """What samples are moved onto: mean (their own, by iteration), first, or a run folder or file (RUN#2). By default
    the first draw of chains, and the mean of anything else."""
    match: Literal["weights", "activations", "correlations"] | None = None
    """By the weights of all layers, or by what hidden units do on the training set. By default activations for chains
    and weights for anything else."""
    family: Literal["diagonal", "lowrank"] = "diagonal"
    """An independent normal for each weight, or the samples' full covariance."""
    rank: int | None = None
    """Directions that lowrank keeps; all by default."""
    components: tuple[int, ...] = (1,)
    """Gaussians of a mixture; of several numbers the one under which training labels are likeliest."""
    scale: Literal["none", "held-out"] = "none"
    """held-out: multiply all deviations by the number under which training labels are likeliest."""
    every: int = 1
    """Use one sample in so many."""
    draws: int = 200
    """Networks drawn from each Gaussian for the comparison."""
    untested: bool = False
    """Leave the comparison on the test set out."""
    max_rounds: int = 200
    """Bound on the passes over the samples."""
    key: int = 0
    """Seed of visiting orders and draws."""
    force: bool = False
    """Replace earlier results."""
    page: bool = True
    """Leave the page and the figure out."""

    def run(self, out: Output) -> dict[str, Any]:
        if not self.samples or self.out is None:
            raise ConfigError("needs samples and a place: bayesin compact SAMPLES --out FOLDER")
        if not self.components:
            raise ConfigError("--components needs one number or several, such as --components 1 2 4")
        if self.every < 1 or self.draws < 1:
            raise ConfigError(f"--every and --draws start at 1, not {self.every} and {self.draws}")
        file = find_posterior(self.samples)
        chains = file.metadata.get("method") in CHAINS
        chosen = dataclasses.replace(
            self,
            match=self.match or ("activations" if chains else "weights"),
            reference=self.reference or ("first" if chains else "mean"),
        )
        data = dataset_of(chosen, file, needed=chosen.match != "weights")
        same = SameCommand(chosen, NUMBERS, FILES, lambda: contents_of(chosen, [data], chosen._posteriors(file)))
        wanted = self.page and out.can_draw()
        options = {"again": same.lacks_page} if wanted else {}
        with result_folder(self.out, [*FILES], [file.path], force=self.force, gone=PAGE, **options) as place:
            numbers = same.taken_over(self.out, place) if wanted and not self.force else None
            if numbers is None:
                by = same.made_by  # before anything is read
                made = chosen._make(out, file, data)
                numbers = chosen._numbers(file, made) | {MADE_BY: by}
                chosen._write(place, file, made, numbers)
                draw = lambda: chosen._write_page(out, place, file, made)  # noqa: E731
            else:
                draw = lambda: draw_compact_page(place).name  # noqa: E731
            page, failure = numbers_without_page(place, draw) if wanted else (None, None)
        _show(out, numbers)
        written = [self.out / name for name in FILES]
        wrote = f"Wrote {written[2]}, {written[0].name} and {written[1].name}"
        out.line(wrote if page is None else f"{wrote}; open {(self.out / page).resolve().as_uri()}")
        tell_of_missing_page(out, failure, "the same command makes one")
        shown = {"posterior": str(written[2]), "page": None if page is None else str(self.out / page)}
        return shown | numbers

    def _posteriors(self, file: PosteriorFile) -> list[PosteriorFile]:
        """All that are read."""
        return [file] if self.reference in ("mean", "first") else [file, find_posterior(str(self.reference))]

    def _make(self, out: Output, file: PosteriorFile, data: Dataset | None) -> "_Made":
        if doubts := doubts_about_data(data, file):
            out.warn(doubts)
        model = model_of(self, data, file)
        samples = read_foldable(file, model)
        chains = _chains(file, len(samples), self.every)
        samples = samples[:: self.every]
        spec, spec_from = verified_spec(file, model, data, point_of(samples[0]), self)
        clock = Clock()
        with clock("match"):
            compacted = self._compact(out, file, samples, spec, model, data, chains)
        with clock("compare predictions"):
            predicted = self._predict(out, file, samples, compacted, model, data)
        y = None if data is None else np.asarray(data.y_test)
        examples = 0 if data is None else len(data.y_test)
        return _Made(len(samples), compacted, predicted, y, spec, spec_from, clock.seconds, examples)

    def _write(self, place: Path, file: PosteriorFile, made: "_Made", numbers: dict[str, Any]) -> None:
        permutations, numbers_file, posterior = (place / name for name in FILES)
        found = {"perms": made.compacted.perms, "signs": made.compacted.signs}
        arrays = {
            f"{what}/{g}": np.asarray(part, np.int32) for what, each in found.items() for g, part in each.items()
        }
        write_tensors(permutations, arrays, {"format": "bayesin-permutations", "version": "1"})
        write_json(numbers_file, numbers)
        metadata = file.metadata | {"compact_of": str(file.path)}
        save_posterior(posterior, made.compacted.posterior, spec=made.spec, metadata=metadata)
        if self.out is not None and card_is_ours(self.out):
            write_card(place, about=self._about(file, made), scores=_card_scores(made))

    def _write_page(self, out: Output, place: Path, file: PosteriorFile, made: "_Made") -> str:
        seconds = {name: taken for name, taken in made.seconds.items() if taken > 0.01}
        config = self._config(file, made.samples)
        report = CompactReport(
            made.samples, made.compacted, made.tested, made.spec, config, seconds, made.predicted, made.y
        )
        with out.progress("writing the page", None):
            return write_compact_report(place, report, FILES).name

    def _compact(
        self,
        out: Output,
        file: PosteriorFile,
        samples: Any,
        spec: PermutationSpec,
        model: Model | None,
        data: Dataset | None,
        chains: int | None,
    ) -> Compact:
        if self.match != "weights" and (model is None or data is None):
            raise ConfigError(f"--match {self.match} needs the network and its data; use --model and --data")
        reference: Any = self.reference
        if reference not in ("mean", "first"):
            reference = point_of(read_posterior(find_posterior(reference), model))
        with out.progress("matching", None) as bar:
            return compact(
                samples,
                spec,
                key=seed_key(self.key),
                reference=reference,
                match=self.match,
                family=self.family,
                rank=self.rank,
                components=self.components,
                chains=chains,
                scale="held-out" if self.scale == "held-out" else 1.0,
                held_out=None if data is None else take((data.x_train, data.y_train), slice(HELD_OUT)),
                likelihood=self._likelihood(file, data),
                apply=None if model is None else model.apply,
                x=None if data is None else data.x_train,
                exclude=() if model is None else model.statistics,
                max_rounds=self.max_rounds,
                on_round=lambda number, done, count: bar.update(done, f"pass {number}", count),
            )

    def _predict(
        self,
        out: Output,
        file: PosteriorFile,
        samples: Any,
        compacted: Compact,
        model: Model | None,
        data: Dataset | None,
    ) -> dict[str, Predictive]:
        likelihood = self._likelihood(file, data)
        if self.untested or model is None or data is None or likelihood is None:
            return {}
        options: dict[str, Any] = {"key": jax.random.fold_in(seed_key(self.key), 1), "draws": self.draws}
        with out.progress("comparing predictions", None):
            return predictions(samples, compacted, model.apply, data.x_test, likelihood=likelihood, **options)

    def _likelihood(self, file: PosteriorFile, data: Dataset | None) -> Likelihood | None:
        """That of the targets; None where nothing names them, or the noise of real ones."""
        if data is None or (data.classes is None and "noise" not in file.metadata):
            return None
        return likelihood_of_file(file, data)

    def _config(self, file: PosteriorFile, samples: int) -> dict[str, Any]:
        return {
            "samples": f"{samples:,} of {file.text}",
            "model": file.model_words or "not named",
            "reference": self.reference,
            "match": self.match,
            "family": self.family if self.rank is None else f"{self.family}, rank {self.rank}",
            "components": ", ".join(map(str, self.components)),
            "scale": f"{self.scale}",
            "draws": str(self.draws),
            "key": str(self.key),
        }

    def _about(self, file: PosteriorFile, made: "_Made") -> dict[str, Any]:
        """What the card says beyond the header."""
        method = f"{file.metadata.get('method', 'samples')}, {made.samples} folded into one after alignment"
        settings = {"match": self.match, "reference": self.reference, "family": self.family, "key": self.key}
        return {"method": method, "training": settings | {"scale": made.compacted.scale}, "versions": versions()}

    def _numbers(self, file: PosteriorFile, made: "_Made") -> dict[str, Any]:
        compacted = made.compacted
        return {
            "of": str(file.path),
            "samples": made.samples,
            "reference": self.reference,
            "match": self.match,
            "family": self.family,
            "rank": self.rank,
            "scale": compacted.scale,
            "components": len(getattr(compacted.posterior, "components", [None])),
            "held_out_nll": compacted.held_out_nll,
            "key": self.key,
            "spread_before": compacted.spread_before,
            "spread_after": compacted.spread_after,
            "passes": compacted.rounds,
            "converged": compacted.converged,
            "transpositions": {group: counts.tolist() for group, counts in compacted.transpositions.items()},
            "units": {group: made.spec.sizes[group] for group in compacted.transpositions},
            "spec": made.spec_from,
            "transpositions_mean": float(compacted.total.mean()),
            "scores": {name: score._asdict() for name, score in made.tested.items()},
            "metrics": made.metrics,
            "mixing": None if compacted.mixing is None else mixing_numbers(compacted.mixing),
        }


class _Made(NamedTuple):
    """The Gaussian, and what is known of it."""

    samples: int
    compacted: Compact
    predicted: dict[str, Predictive]
    y: np.ndarray | None
    spec: PermutationSpec
    spec_from: str
    seconds: dict[str, float]
    examples: int  # that were tested

    @property
    def tested(self) -> dict[str, Score]:
        """Agreement with the samples and scores on the labels; nothing for real targets."""
        classes = any(isinstance(one, ClassPredictive) for one in self.predicted.values())
        return class_scores(self.predicted, self.y) if classes else {}

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        """Every score of every prediction, by name."""
        return {} if self.y is None else {name: one.metrics(self.y) for name, one in self.predicted.items()}


def _card_scores(made: _Made) -> dict[str, dict[str, Any]]:
    """Of the posterior that was saved, first, and of the samples it was folded from."""
    names = {"compact": "this posterior", "samples": "the samples it was folded from"}
    return {
        title: with_errors(made.tested[name]._asdict(), made.examples)
        for name, title in names.items()
        if name in made.tested
    }


def _chains(file: PosteriorFile, count: int, every: int) -> int | None:
    """How many chains the samples are of, where the file says so and one in `every` leaves them of equal length."""
    chains = file.metadata.get("chains")
    if not isinstance(chains, int) or not 1 <= chains <= count or count % chains or (count // chains) % every:
        return None
    return chains


def _show(out: Output, numbers: Mapping[str, Any]) -> None:
    """Prints the numbers, whether they were made just now or are those of the file."""
    rows = [
        [group, numbers["units"][group], f"{np.mean(counts):.1f}", min(counts), max(counts)]
        for group, counts in numbers["transpositions"].items()
    ]
    out.table("Transpositions of a sample", ["group", "units", "mean", "least", "most"], rows)
    before, after = numbers["spread_before"], numbers["spread_after"]
    out.line(f"Spread (root mean square std): {before:.4g} as they came, {after:.4g} in a common order")
    state = "converged" if numbers["converged"] else "stopped before it converged; raise --max-rounds"
    passes = numbers["passes"]
    out.line(f"{passes} {'pass' if passes == 1 else 'passes'}, {state}; spec {numbers['spec']}")
    if numbers["scores"]:
        title = "Predictions on the test set, against those of the samples"
        rows = [
            [
                PREDICTIONS[name],
                *(format(value, how) for value, how in zip(score.values(), SCORES.values(), strict=True)),
            ]
            for name, score in numbers["scores"].items()
        ]
        out.table(title, ["of", *SCORES], rows)
    elif numbers["metrics"]:
        columns = list(next(iter(numbers["metrics"].values())))
        rows = [[PREDICTIONS[name], *(shown(n, row[n]) for n in columns)] for name, row in numbers["metrics"].items()]
        out.table("Predictions on the test set", ["of", *columns], rows)
    if numbers["mixing"] is not None:
        out.table(*mixing_table(numbers["mixing"]))
