"""What the cards of runs and verbs say beyond the headers of posteriors: scores with errors, settings, versions."""

import math
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...data import Dataset
from ...errors import BayesinError
from ...inputs import take
from ...models import Model
from ...posteriors import Posterior
from ...store import card_is_ours, write_card
from ...symmetry import PermutationSpec, discover
from .config import RunConfig
from .pairs import point_of
from .records import provenance


def write_run_card(
    folder: Path, config: RunConfig, data: Dataset, model: Model, posterior: Posterior, results: Mapping[str, Any]
) -> None:
    """Writes the card of a run that was scored and saved; one that its reader made their own is left as it is."""
    if not card_is_ours(folder):
        return
    rows = [("all together", results["ensemble"])] if "ensemble" in results else []
    kind = "network" if rows else "posterior"
    rows += [(f"{kind} {score['member']}", score) for score in results["members"]]
    scores = {of: _run_scores(score, len(data.y_test)) for of, score in rows}
    about = {"training": config.to_json()["training"], "versions": versions()}
    write_card(folder, about=about, scores=scores, spec=_spec(model, posterior, data))


def with_errors(scores: Mapping[str, float], examples: int) -> dict[str, Any]:
    """Scores for a card; shares of the test set have a binomial standard error, others none that is known."""
    return {name: _share(value, examples) if name == "accuracy" else value for name, value in scores.items()}


def versions() -> dict[str, Any]:
    """What a card says of the programs that made it."""
    made = provenance()
    return {name: made[name] for name in ("bayesin", "commit", "python")} | made["packages"]


def _run_scores(score: Mapping[str, Any], examples: int) -> dict[str, Any]:
    nll = {"value": score["test_nll"], "error": score["test_nll_error"], "over": "draws of the weights"}
    right = score.get("test_accuracy")
    return ({} if right is None else {"accuracy": _share(right, examples)}) | {"nll": nll}


def _share(share: float, examples: int) -> dict[str, Any]:
    error = math.sqrt(max(share * (1 - share), 0.0) / examples)
    return {"value": share, "error": error, "over": f"{examples:,} test examples"}


def _spec(model: Model, posterior: Posterior, data: Dataset) -> PermutationSpec | None:
    """The symmetry, where it can be found; a run does not fail for its card."""
    with suppress(BayesinError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return discover(model.apply, point_of(posterior), take(data.x_test, slice(2)))
    return None
