"""`bayesin compact`: many samples folded into one Gaussian, after their units were put into a common order."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import numpy as np
import tyro
from rich.markup import escape

from ..compact import Compact, Score, compact, scores
from ..data import Dataset
from ..errors import ConfigError, DataError
from ..experiments.clock import Clock
from ..experiments.provenance import provenance
from ..files import write_json
from ..inference import Draws
from ..models import Model
from ..posteriors import Gaussian, LowRankGaussian, Samples
from ..report.folded import PREDICTIONS, Folded, write_folded_report
from ..store import load_posterior, save_posterior
from ..symmetry import PermutationSpec, discover, verify
from ..tensors import write_tensors
from .artifacts import Given, WithModel, dataset_of, example_inputs, find, model_of, read, spec_of
from .compilation import use_compilation_cache
from .drawing import can_draw
from .output import Output
from .places import begin_writing, result_folder

FILES = ("permutations.safetensors", "compact.json", "posterior-0.safetensors")
SAYS = ("the permutation of every sample", "the numbers of the table, and settings", "the Gaussian")
BATCH = 64  # inputs to discover the symmetry on


@dataclass(frozen=True)
class Fold(WithModel):
    """Fold the samples of RUN into one Gaussian, after moving each onto a common reference.

    RUN is an ensemble ('bayesin train --method ensemble --members 20 --width 32 --depth 1 --out runs/ensemble' trains
    one), an HMC run, or any safetensors file with samples. Writes the Gaussian as a posterior like
    any other, the permutation of every sample, and the numbers of the table. On data that are known, the
    predictions of samples, Gaussians and mean networks are compared.
    """

    samples: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN", help_behavior_hint="")] = ""
    """Run folder or safetensors file that holds samples."""
    out: Path | None = None
    """Folder for the result. Needed."""
    reference: str = "mean"
    """What samples are moved onto: mean (their own, by iteration), first, or a run folder or file (RUN#2)."""
    match: Literal["weights", "activations", "correlations"] = "weights"
    """By the weights of all layers, or by what hidden units do on the training set."""
    family: Literal["diagonal", "lowrank"] = "diagonal"
    """An independent normal for each weight, or the samples' full covariance."""
    rank: int | None = None
    """Directions that lowrank keeps; all by default."""
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
    spec: Path | None = None
    """Permutation spec (JSON); by default the one in the file, else it is discovered."""
    force: bool = False
    """Replace earlier results."""
    page: bool = True
    """Leave the page and the figure out."""

    def run(self, out: Output) -> dict[str, Any]:
        if not self.samples or self.out is None:
            raise ConfigError("needs samples and a place: bayesin compact RUN --out FOLDER")
        if self.every < 1 or self.draws < 1:
            raise ConfigError(f"--every and --draws start at 1, not {self.every} and {self.draws}")
        use_compilation_cache()
        given = find(self.samples)
        with result_folder(self.out, FILES, [given.path], force=self.force) as places:
            return self._run(out, given, places)

    def _run(self, out: Output, given: Given, places: list[Path]) -> dict[str, Any]:
        data = self._data(given)
        model = model_of(self, data, given)
        samples = self._samples(given, model)
        spec, origin = self._spec(given, model, data, samples)
        clock = Clock()
        with clock("match"):
            found = self._fold(out, samples, spec, model, data)
        with clock("compare predictions"):
            tested = {} if self.untested else self._test(out, samples, found, model, data)
        numbers = _numbers(self, given, samples, found, tested)
        self._write(places, given, found, spec, numbers)
        folder = places[-1].parent
        page = (
            self._page(out, folder, given, samples, found, tested, spec, clock.seconds)
            if self.page and can_draw(out)
            else None
        )
        _show(out, spec, found, tested, origin)
        wrote = f"Wrote {places[-1]}, {FILES[0]} and {FILES[1]}"
        out.line(escape(wrote if page is None else f"{wrote}; open {page.resolve().as_uri()}"))
        return {"posterior": str(places[-1]), "page": None if page is None else str(page)} | numbers

    def _data(self, given: Given) -> Dataset | None:
        """The data set; None where it is not on this machine and the weights can be matched without it."""
        try:
            return dataset_of(self, given)
        except DataError:
            if self.data is not None or self.match != "weights" or not given.about_model.get("input_shape"):
                raise
            return None

    def _samples(self, given: Given, model: Model | None) -> Samples:
        like = None if model is None else jax.eval_shape(model.init, jax.random.key(0))
        found = load_posterior(given.path, like=like)
        if not isinstance(found, Samples) or given.member is not None:
            raise ConfigError(
                f"{given.text} is one posterior; compact folds many samples: an ensemble, an HMC run, a stack"
            )
        return Samples(found[:: self.every])

    def _spec(
        self, given: Given, model: Model | None, data: Dataset | None, samples: Samples
    ) -> tuple[PermutationSpec, str]:
        found = spec_of(given, path=self.spec)
        origin = "from the file" if self.spec is None else f"from {self.spec}"
        batch = example_inputs(data, BATCH, given) if model is not None else None
        if model is None or batch is None:
            if found is not None:
                return found, origin
            raise ConfigError(
                "the file holds no permutation spec, and nothing names the model to find it; use --model"
            )
        if found is None:
            found, origin = discover(model.apply, samples[0], batch[0][:2]), "discovered"
        verify(model.apply, samples[0], batch[0][:2], found, key=jax.random.key(0))  # a file may say anything
        return found, f"{origin} and verified"

    def _fold(
        self, out: Output, samples: Samples, spec: PermutationSpec, model: Model | None, data: Dataset | None
    ) -> Compact:
        if self.match != "weights" and (model is None or data is None):
            raise ConfigError(f"--match {self.match} needs the network and its data; use --model and --data")
        with out.progress("matching", None) as bar:
            return compact(
                samples,
                spec,
                key=jax.random.key(self.key),
                reference=self._reference(model),
                match=self.match,
                family=self.family,
                rank=self.rank,
                apply=None if model is None else model.apply,
                x=None if data is None else data.x_train,
                exclude=() if model is None else model.statistics,
                max_rounds=self.max_rounds,
                on_round=lambda number, done, count: bar.update(done, f"pass {number}", count),
            )

    def _reference(self, model: Model | None) -> Any:
        if self.reference in ("mean", "first"):
            return self.reference
        found = read(find(self.reference), model)
        return found.mean if isinstance(found, Gaussian | LowRankGaussian) else found

    def _test(
        self, out: Output, samples: Samples | Draws, found: Compact, model: Model | None, data: Dataset | None
    ) -> dict[str, Score]:
        if model is None or data is None or data.classes is None:
            return {}
        with out.progress("comparing predictions", None):
            key = jax.random.fold_in(jax.random.key(self.key), 1)
            return scores(samples, found, model.apply, (data.x_test, data.y_test), key=key, draws=self.draws)

    def _write(self, places: list[Path], given: Given, found: Compact, spec: PermutationSpec, numbers: dict) -> None:
        metadata = given.metadata | {"compact_of": str(given.path)}
        perms = {f"perms/{group}": perm.astype(np.int32) for group, perm in found.perms.items()}
        strings = {"format": "bayesin-permutations", "version": "1"}
        begin_writing(places)
        write_tensors(places[0], perms, strings)
        write_json(places[1], numbers)
        save_posterior(places[2], found.posterior, spec=spec, metadata=metadata)

    def _page(
        self,
        out: Output,
        folder: Path,
        given: Given,
        samples: Samples,
        found: Compact,
        tested: dict[str, Score],
        spec: PermutationSpec,
        seconds: dict[str, float],
    ) -> Path:
        config = {
            "samples": f"{len(samples):,} of {given.text}",
            "model": given.model_words or "not named",
            "reference": self.reference,
            "match": self.match,
            "family": self.family if self.rank is None else f"{self.family}, rank {self.rank}",
            "draws": str(self.draws),
            "key": str(self.key),
        }
        folded = Folded(
            samples=len(samples),
            found=found,
            scores=tested,
            spec=spec,
            config=config,
            provenance=provenance(),
            seconds={name: value for name, value in seconds.items() if value > 0.01},
        )
        with out.progress("writing the page", None):
            return write_folded_report(folder, folded, dict(zip(FILES, SAYS, strict=True)))


def _numbers(flags: Fold, given: Given, samples: Samples, found: Compact, tested: dict[str, Score]) -> dict[str, Any]:
    total = found.total
    return {
        "of": str(given.path),
        "samples": len(samples),
        "reference": flags.reference,
        "match": flags.match,
        "family": flags.family,
        "rank": flags.rank,
        "key": flags.key,
        "spread_before": found.spread_before,
        "spread_after": found.spread_after,
        "passes": found.rounds,
        "converged": found.converged,
        "transpositions": {group: counts.tolist() for group, counts in found.transpositions.items()},
        "transpositions_mean": float(total.mean()),
        "scores": {name: score._asdict() for name, score in tested.items()},
    }


def _show(out: Output, spec: PermutationSpec, found: Compact, tested: dict[str, Score], origin: str) -> None:
    rows = [
        [group, spec.sizes[group], f"{counts.mean():.1f}", counts.min(), counts.max()]
        for group, counts in found.transpositions.items()
    ]
    out.table("Transpositions of a sample", ["group", "units", "mean", "least", "most"], rows)
    out.line(
        f"Spread (root mean square std): {found.spread_before:.4g} as they came, {found.spread_after:.4g} in a "
        "common order"
    )
    state = "converged" if found.converged else "stopped before it converged; raise --max-rounds"
    out.line(f"{found.rounds} {'pass' if found.rounds == 1 else 'passes'}, {state}; spec {escape(origin)}")
    if tested:
        lines = [
            [PREDICTIONS[name], f"{s.agreement:.4f}", f"{s.total_variation:.4f}", f"{s.accuracy:.2%}"]
            for name, s in tested.items()
        ]
        out.table(
            "Predictions on the test set, against those of the samples",
            ["of", "agreement", "total variation", "accuracy"],
            lines,
        )
