"""`bayesin evaluate`: how good the predictions of posteriors are, and how sure they may be."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import tyro

from ..data import Dataset, load
from ..errors import ConfigError
from ..evaluation import ClassPredictive, Predictive, fit_temperature, predict
from ..inputs import Inputs
from ..jaxprs import output_shapes
from ..json_files import plain, write_json
from ..lab.report import SCORE_NAMES, EvaluationReport, page_files, page_of, shown, write_evaluation_report
from ..lab.runs import Clock, ModelChoice, PosteriorFile, dataset_of, find_posterior, likelihood_of_file, model_of
from ..models import Model
from ..randomness import seed_key
from ..store import load_posterior
from .main import Common
from .output import Output
from .output_dir import numbers_without_page, result_folder, tell_of_missing_page
from .same_command import MADE_BY, SameCommand, contents_of

NUMBERS = "evaluation.json"
FILES = {NUMBERS: "every score"}


@dataclass(frozen=True)
class Evaluate(ModelChoice, Common):
    """Score the predictions of POSTERIORS on the test set of their data.

    Classes: accuracy, NLL, calibration error (ECE), Brier score, selective accuracy; real targets: RMSE, NLL, CRPS,
    coverage of the 90 % interval. With --outside also how well inputs of another kind are told apart (AUROC). With
    --out a page draws reliability, selective accuracy and entropies.
    """

    posteriors: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Run folders or safetensors files; RUN#1 is member 1, and a sample set is averaged over."""
    outside: str | None = None
    """Data set of another kind, with inputs of the same shape; adds the out-of-distribution AUROC."""
    calibrate: bool = False
    """Add a row with one temperature fitted on the first half of the test set; all rows then score the second."""
    samples: int = 128
    """Networks drawn from each posterior."""
    key: int = 0
    """Seed of the draws."""
    out: Path | None = None
    """Folder for evaluation.json and the page; without it the table alone is shown."""
    force: bool = False
    """Replace earlier results."""

    def run(self, out: Output) -> dict[str, Any]:
        if not self.posteriors:
            raise ConfigError("which posterior? give one or more: bayesin evaluate runs/digits#0")
        files = [find_posterior(text) for text in self.posteriors]
        data = dataset_of(self, *files)
        if data is None:
            raise ConfigError("nothing names the data to test on; use --data")
        other = None if self.outside is None else self._load_outside(data)
        if self.out is None:
            result, page, failure = self._score(out, files, data, other)[1], None, None
        else:
            result, page, failure = self._into(self.out, out, files, data, other)
        scores = result["scores"]
        columns: list[str] = list(dict.fromkeys(name for row in scores.values() for name in row))
        rows = [[name, *(_cell(n, row[n]) for n in columns)] for name, row in scores.items()]
        title = f"{result['examples']:,} test examples of {result['data']}"
        out.table(title, ["of", *(SCORE_NAMES.get(n, n) for n in columns)], rows)
        if self.out is not None:
            wrote = f"Wrote {self.out / NUMBERS}"
            out.line(wrote if page is None else f"{wrote}; open {(self.out / page).resolve().as_uri()}")
        tell_of_missing_page(out, failure, "the same command makes one")
        return result | {"page": None if page is None or self.out is None else str(self.out / page)}

    def _into(
        self, folder: Path, out: Output, files: list[PosteriorFile], data: Dataset, other: Dataset | None
    ) -> tuple[dict[str, Any], str | None, BaseException | None]:
        """The numbers, in a folder with their page, and what went wrong with it."""
        same = SameCommand(self, NUMBERS, FILES, lambda: contents_of(self, [data, other], files))
        wanted, inputs = out.can_draw(), [file.path for file in files]
        options: dict[str, Any] = {"force": self.force, "gone": page_files("evaluation")}
        options |= {"again": same.lacks_page} if wanted else {}
        with result_folder(folder, [*FILES], inputs, **options) as place:
            result = same.taken_over(folder, place) if wanted and not self.force else None
            draw = lambda: page_of(place).name  # noqa: E731
            if result is None:
                by = same.made_by  # before anything is read
                report, result = self._score(out, files, data, other)
                result |= {MADE_BY: by}
                write_json(place / NUMBERS, result)
                draw = lambda: write_evaluation_report(place, report, FILES).name  # noqa: E731
            page, failure = numbers_without_page(place, draw) if wanted else (None, None)
            return result, page, failure

    def _score(
        self, out: Output, files: list[PosteriorFile], data: Dataset, other: Dataset | None
    ) -> tuple[EvaluationReport, dict[str, Any]]:
        """Predictions with their scores, and what is written of them."""
        clock = Clock()
        with clock("predict"), out.progress("predicting", None):
            x, y = data.x_test, data.y_test
            predictions = {file.text: self._predict(file, data, x) for file in files}
            away = {} if other is None else self._outside(files, data, other)
        if self.calibrate:
            predictions, y = _calibrated(predictions, y)
        scores = {
            name: one.metrics(y, outside=away.get(name.removesuffix(CALIBRATED))) for name, one in predictions.items()
        }
        result = {"data": data.name, "examples": len(y), "scores": plain(scores), "page": None}
        return EvaluationReport(predictions, scores, y, away, self._config(data), clock.seconds), result

    def _predict(self, file: PosteriorFile, data: Dataset, x: Inputs) -> Predictive:
        model = model_of(self, data, file)
        if model is None:
            raise ConfigError(f"nothing names the network of {file.text}; use --model")
        posterior: Any = load_posterior(file.path, like=_like(model), about=file.description)
        posterior = posterior if file.member is None else posterior[file.member]
        likelihood = likelihood_of_file(file, data)
        key = seed_key(self.key)
        return predict(posterior, model, x, key=key, samples=self.samples, likelihood=likelihood)

    def _load_outside(self, data: Dataset) -> Dataset:
        prepared = "none" if data.normalise == "none" else "unit"
        other = load(str(self.outside), self.root, self.limit, normalise=prepared)
        if other.input_shape != data.input_shape:
            raise ConfigError(
                f"inputs of {other.name} have shape {other.input_shape}, those of {data.name} {data.input_shape}"
            )
        return other

    def _outside(self, files: list[PosteriorFile], data: Dataset, other: Dataset) -> dict[str, Predictive]:
        x = other.x_test
        if data.normalise == "standard":  # as the network would get them: with the mean and std of its own data
            x = ((x - data.mean) / data.std).astype(np.float32)
        return {file.text: self._predict(file, data, x) for file in files}

    def _config(self, data: Dataset) -> dict[str, str]:
        chosen = {"posteriors": ", ".join(self.posteriors), "data": data.name, "outside": self.outside or "none"}
        if self.calibrate:
            chosen["temperature"] = "fitted on the first half of the test set"
        return chosen | {"samples": str(self.samples), "key": str(self.key)}


CALIBRATED = ", calibrated"


def _cell(name: str, value: float | None) -> str:
    return "–" if value is None else shown(name, value).replace("\xa0", " ")  # null in JSON: NaN, an infinity


def _like(model: Model) -> Any:
    return output_shapes(model.init, jax.random.key(0))


def _calibrated(predictions: dict[str, Predictive], y: np.ndarray) -> tuple[dict[str, Predictive], np.ndarray]:
    """Every prediction on the second half of the examples, as it is and at the temperature that suits the first."""
    half, found = len(y) // 2, {}
    for name, one in predictions.items():
        temperature = fit_temperature(one[:half], y[:half])  # which refuses what has no temperature
        found[name] = one[half:]
        if isinstance(one, ClassPredictive):
            found[f"{name}{CALIBRATED}"] = one[half:].at_temperature(temperature)
    return found, y[half:]
