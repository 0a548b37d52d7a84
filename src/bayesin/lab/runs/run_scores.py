"""What a run found, as numbers: scores of each member and of all together on the test set, and how chains mixed;
and the card, which says them beyond the headers of posteriors, with their errors, settings and versions.

Scores are a function of the config alone, so that a run that was stopped and taken up again has the very
same `results.json`; times go with the provenance.
"""

import math
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ...data import Dataset
from ...errors import BayesinError
from ...evaluation import evaluate
from ...evaluation.metrics import accuracy
from ...inference import HMC, ChainDiagnostics, Fit
from ...inputs import take
from ...json_files import plain
from ...models import Model
from ...posteriors import Posterior, Samples, is_posterior
from ...randomness import seed_key
from ...store import card_is_ours, write_card
from ...symmetry import PermutationSpec, discover
from ...trees import Tree, flatten
from .config import RunConfig
from .pairs import point_of
from .records import provenance

TEST_STREAM = 0x7E57  # folded into the run's key for the final look at the test set


def test_results(config: RunConfig, data: Dataset, model: Model, fit: Fit) -> dict[str, Any]:
    """Returns what `results.json` holds."""

    def predictive(posterior: Posterior | Tree, member: int = 0) -> dict[str, float]:
        return _predictive(config, data, model, fit, posterior, member)

    members = []
    for number, posterior in enumerate(_members(fit)):
        score = {"member": number} | predictive(posterior, number)
        score["train_loss"] = float(fit.trace["loss"][-1, number])
        if is_posterior(posterior):
            score["std_mean"] = _mean_std(posterior)
        members.append(score)
    results = {
        "members": members,
        "weights": _weights(fit.posteriors[0]),
        "steps": int(fit.trace["step"][-1]),
        "memory": None if fit.memory is None else fit.memory._asdict(),
    }
    if isinstance(fit.config, HMC):
        results["chains"] = _mixing(fit)
    if fit.mixing is not None:
        results["mixing"] = mixing_numbers(fit.mixing)
    if isinstance(fit.posteriors[0], Samples):  # which predict together
        results["ensemble"] = predictive(fit.posterior)
    return plain(results)


def _members(fit: Fit) -> list[Posterior | Tree]:
    """What is tested one by one; the draws of a chain are one posterior."""
    if hasattr(fit.config, "chains"):
        return []
    first = fit.posteriors[0]
    return [first[i] for i in range(len(first))] if isinstance(first, Samples) else list(fit.posteriors)


def _predictive(
    config: RunConfig, data: Dataset, model: Model, fit: Fit, posterior: Posterior | Tree, member: int
) -> dict[str, float]:
    """Scores of the marginal predictive distribution on the test set."""
    key = jax.random.fold_in(jax.random.fold_in(seed_key(config.key), member), TEST_STREAM)
    test, likelihood = (data.x_test, data.y_test), fit.likelihoods[member]
    score = evaluate(posterior, model.apply, test, key=key, samples=config.test_samples, likelihood=likelihood)
    losses = {"test_nll": score.nll, "test_nll_error": score.standard_error}
    if score.log_probs is None:  # a regression
        return losses
    return {"test_accuracy": accuracy(score.log_probs, data.y_test)} | losses


def mixing_numbers(mixing: ChainDiagnostics) -> dict[str, Any]:
    """R-hat and effective sample size of weights and predictions, as files hold them."""
    return {"one_basin": mixing.one_basin, "parts": {name: part._asdict() for name, part in mixing.parts.items()}}


def mixing_table(numbers: Mapping[str, Any]) -> tuple[str, list[str], list[list[str]]]:
    """Title, columns and rows of the same, as people read them; in brackets, what independent draws exceed rarely."""
    answer = "they visit one basin" if numbers["one_basin"] else "not mixed"
    rows = [
        [
            name,
            *(
                f"{_fixed(part[rhat], 3)} ({_fixed(part[bound], 3)})"
                for rhat, bound in (("rhat_median", "median_bound"), ("rhat_max", "rhat_bound"))
            ),
            *(_fixed(part[which], 0) for which in ("ess_median", "ess_min")),
        ]
        for name, part in numbers["parts"].items()
    ]
    columns = ["of", "median R-hat", "largest R-hat", "median ESS", "least ESS"]
    return f"Chains modulo symmetry: {answer} (in brackets: the bound of independent draws)", columns, rows


def _fixed(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _mixing(fit: Fit) -> dict[str, Any]:
    """Whether the chains accept and agree, after burn-in."""
    after = {name: column[fit.config.burn_in :] for name, column in fit.trace.items()}
    mixing = {
        "samples": len(fit.posterior),
        "acceptance": after["accepted"].mean(0),
        "energy_error": np.abs(after["energy_error"]).mean(0),
        "step_size": after["step_size"][-1],
    }
    mixing |= {name: after[name][-1] for name in ("rhat_max", "rhat_median", "ess_min", "ess_median")}
    return mixing


def _mean_std(posterior: Posterior) -> float:
    """Over the leaves that have any: those that are not trained are points."""
    stds = [np.asarray(leaf) for leaf in flatten(posterior.std).values()]
    stds = [leaf for leaf in stds if np.any(leaf)]
    return float(sum(leaf.sum(dtype=np.float64) for leaf in stds) / sum(leaf.size for leaf in stds))


def _weights(posterior: Posterior) -> int:
    params = posterior[0] if isinstance(posterior, Samples) else posterior.mean
    return sum(int(np.size(leaf)) for leaf in jax.tree.leaves(params))


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
