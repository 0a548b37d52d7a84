"""The marginalised loss barrier along a path between two posteriors.

With L the marginal loss (`marginal.py`) and q_τ the posterior at τ,

    value            max_τ [ L(q_τ) − ((1 − τ) L(q_0) + τ L(q_1)) ]       height above the chord
    value_over_mean  max_τ L(q_τ) − ½ (L(q_0) + L(q_1))                   height above the mean of the ends

The two agree where the ends are equally good; on a straight line between unequal ends the first is zero
and the second is not. Neither is clipped. As both ends belong to the grid the first is never below zero, and a
maximum of noisy numbers leans upwards: "zero" means "within the standard error", which is small because
every τ sees the same noise.

Much of a barrier may be mere under-confidence. `calibrated_value` is the barrier that is left after every τ, the ends
included, was given the temperature that fits held-out data best; `accuracy_drop` does not see confidence at all.
Where no data were held out, every second example lends its temperature to the others, and they theirs to it.

References: Entezari et al. 2022 and Ainsworth et al. 2023 (points); Rossi et al. 2023 (marginal).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from ..errors import ConfigError, PosteriorError
from ..jaxprs import Apply
from ..likelihoods import LikelihoodLike, as_likelihood
from ..paths import Mixture
from ..posteriors import Posterior
from ..randomness import PRNGKey
from ..trees import Tree
from . import metrics
from .marginal import Data, KeptNoise
from .predict import Evaluation, evaluate_prepared, prepare, standard_error
from .sizes import ChunkSizes

NO_CLASSES = "calibrate= needs a likelihood with class probabilities; leave it out"


class Barrier(eqx.Module):
    """Losses along a path, and how high they rise. Arrays have one entry for each τ.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from bayesin.paths import geodesic
        >>> path = geodesic({"w": jnp.array([[4.0, -4.0]])}, {"w": jnp.array([[-4.0, 4.0]])})
        >>> x, y = jnp.array([[1.0], [-1.0]]), jnp.array([0, 1])
        >>> apply = lambda p, x: x @ (p["w"] ** 2 * jnp.array([[1.0, -1.0]]))
        >>> found = barrier(path, apply, (x, y), key=jax.random.key(0), taus=3)
        >>> round(found.value, 3), found.argmax
        (0.693, 0.5)
    """

    taus: Float[np.ndarray, " taus"]
    nll: Float[np.ndarray, " taus"]  # marginal loss, nats per example
    accuracy: Float[np.ndarray, " taus"] | None  # None, as the scores below, where there are no class probabilities
    ece: Float[np.ndarray, " taus"] | None
    brier: Float[np.ndarray, " taus"] | None
    standard_errors: Float[np.ndarray, " taus"]  # Monte-Carlo standard error of the height above the chord
    bias: Float[np.ndarray, " taus"]  # estimated upward Monte-Carlo bias of `nll`
    standard_error_over_mean: float
    samples: int  # draws of the weights; 1 where every posterior is a point
    examples: int
    calibration: Float[np.ndarray, "taus 3 bins"] | None = None  # confidence, accuracy, count
    confusion: Int[np.ndarray, "taus classes classes"] | None = None  # true class, named class
    kept: Int[np.ndarray, " kept"] | None = None  # examples whose probabilities were kept
    probabilities: Float[np.ndarray, "taus kept classes"] | None = None
    held_out_nll: Float[np.ndarray, " taus"] | None = None  # loss on the data for calibration, as these below
    temperatures: Float[np.ndarray, " taus"] | None = None
    calibrated_nll: Float[np.ndarray, " taus"] | None = None

    def __repr__(self) -> str:
        height = f"{self.value:.4f} ± {self.standard_error:.4f} at τ = {self.argmax:g}"
        return f"Barrier({height}, {len(self.taus)} points, {self.examples:,} examples)"

    @property
    def excess(self) -> np.ndarray:
        """Height of the loss above the chord between its ends."""
        return self.nll - _chord(self.nll, self.taus)

    @property
    def value(self) -> float:
        """The barrier: the largest height above the chord."""
        return _height(self.nll, self.taus)

    @property
    def value_over_mean(self) -> float:
        """The other definition: the largest loss minus the mean of the two ends."""
        return float(self.nll.max() - 0.5 * (self.nll[0] + self.nll[-1]))

    @property
    def argmax(self) -> float:
        """The τ at which `value` is reached."""
        return float(self.taus[self.excess.argmax()])

    @property
    def standard_error(self) -> float:
        """Monte-Carlo standard error of `value`, at the τ where it is reached."""
        return float(self.standard_errors[self.excess.argmax()])

    @property
    def accuracy_drop(self) -> float | None:
        """The same definition on accuracy: how far it falls below the chord, as a share."""
        return None if self.accuracy is None else float((_chord(self.accuracy, self.taus) - self.accuracy).max())

    @property
    def calibrated_value(self) -> float | None:
        """The barrier of the calibrated loss; None where there were no data to calibrate on."""
        return None if self.calibrated_nll is None else _height(self.calibrated_nll, self.taus)

    @property
    def held_out_value(self) -> float | None:
        """The barrier on the data for calibration, by which a remedy may be chosen without looking at this one's."""
        return None if self.held_out_nll is None else _height(self.held_out_nll, self.taus)

    def to_json(self, *, detail: bool = False) -> dict[str, Any]:
        """Plain numbers; with `detail` also calibration, confusion and kept probabilities."""
        names = ["taus", "nll", "accuracy", "ece", "brier", "standard_errors", "bias"]
        names += ["calibration", "confusion", "kept", "probabilities"] if detail else []
        scalars = ["value", "standard_error", "argmax", "value_over_mean", "standard_error_over_mean"]
        scalars += ["accuracy_drop", "samples", "examples"]
        if self.calibrated_nll is not None:
            names += ["temperatures", "calibrated_nll"]
            scalars += ["calibrated_value"]
        if self.held_out_nll is not None:
            names += ["held_out_nll"]
            scalars += ["held_out_value"]
        arrays = {name: getattr(self, name) for name in names}
        return {name: getattr(self, name) for name in scalars} | {
            name: None if array is None else array.tolist() for name, array in arrays.items()
        }


def barrier(
    path: Callable[[float], Posterior | Mixture | Tree],
    apply: Apply,
    data: Data,
    *,
    key: PRNGKey,
    samples: int = 128,
    taus: int | Sequence[float] = 25,
    likelihood: LikelihoodLike = "categorical",
    keep: int | Sequence[int] = 0,
    on_tau: Callable[[int, float, float], None] | None = None,
    chunks: ChunkSizes | None = None,
    calibrate: Data | Literal["halves"] | None = None,
) -> Barrier:
    """Returns the marginal loss along a path and its barrier, with Monte-Carlo error.

    Points are evaluated once and exactly: between two of them this is the ordinary loss barrier.

    Args:
        path: from `geodesic` or `mixture`, or any function of τ that returns a posterior.
        apply: the network, `apply(params, x)`.
        data: inputs and targets of the training or the test set.
        key: seed of the draws, the same for every τ.
        samples: draws of the weights.
        taus: an odd number of equispaced points, so that 0, ½ and 1 belong to the grid, or the points.
        likelihood: `Categorical()`, `Normal(std)`, one of your own, their name, or `(outputs, targets) -> (batch,)`.
        keep: how many examples' class probabilities to keep at every τ, or which.
        on_tau: called with (number of τs done, τ, loss) after each.
        chunks: examples and draws at once; chosen from the sizes when left out.
        calibrate: inputs and labels that are neither trained nor tested on, to fit a temperature at every τ; or
            "halves" of the data themselves, each calibrated by the other.

    Raises:
        ConfigError: a grid without its ends or middle.
        PosteriorError: a loss that is not a number; says at which τ.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from bayesin.paths import geodesic
        >>> path = geodesic({"w": jnp.array([[4.0, -4.0]])}, {"w": jnp.array([[-4.0, 4.0]])})
        >>> x, y = jnp.array([[1.0], [-1.0]]), jnp.array([0, 1])
        >>> found = barrier(path, lambda p, x: x @ p["w"] ** 2, (x, y), key=jax.random.key(0), taus=3)
        >>> found.nll.round(4).tolist(), found.samples
        ([0.6931, 0.6931, 0.6931], 1)
    """
    grid = _grid(taus)
    prepared = prepare(path(0.0), apply, data, samples, as_likelihood(likelihood), chunks)
    kept = _kept(keep, prepared.count)
    labels = np.asarray(data[1])
    others = None if calibrate is None or isinstance(calibrate, str) else calibrate
    held_out = None if others is None else prepare(path(0.0), apply, others, samples, prepared.likelihood, chunks)
    noise = KeptNoise(key, samples)
    predictions: list[Evaluation] = []
    rows: list[dict[str, Any]] = []
    for number, tau in enumerate(grid):
        try:
            there = evaluate_prepared(path(tau), prepared, key, samples, noise)
            beside = None if held_out is None else evaluate_prepared(path(tau), held_out, key, samples, noise)
        except PosteriorError as error:
            raise PosteriorError(f"at τ = {tau:g}: {error}") from None
        rows.append(_scores(there, labels, kept))
        if beside is not None and others is not None:
            rows[-1] |= _calibrated(there, labels, beside, np.asarray(others[1]))
        elif calibrate is not None:
            rows[-1] |= _calibrated_by_halves(there, labels)
        predictions.append(replace(there, log_probs=None))  # one set of probabilities in memory at a time
        if on_tau is not None:
            on_tau(number + 1, float(tau), there.nll)
    scores = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    return Barrier(
        taus=grid,
        nll=np.array([there.nll for there in predictions]),
        accuracy=scores.get("accuracy"),
        ece=scores.get("ece"),
        brier=scores.get("brier"),
        standard_errors=_errors_above_chord(predictions, grid),
        bias=np.array([there.bias for there in predictions]),
        standard_error_over_mean=_error_above_mean(predictions),
        samples=max(len(there.influence) for there in predictions),
        examples=prepared.count,
        calibration=scores.get("calibration"),
        confusion=scores.get("confusion"),
        kept=kept if len(kept) and "probabilities" in scores else None,
        probabilities=scores.get("probabilities"),
        held_out_nll=scores.get("held_out_nll"),
        temperatures=scores.get("temperatures"),
        calibrated_nll=scores.get("calibrated_nll"),
    )


def _grid(taus: int | Sequence[float]) -> np.ndarray:
    if isinstance(taus, int):
        if taus < 3 or taus % 2 == 0:
            raise ConfigError(f"taus={taus}: use an odd number, at least 3, so that 0, ½ and 1 are all on the grid")
        return np.arange(taus) / (taus - 1)  # exact at 0, ½ and 1
    grid = np.asarray(taus, np.float64)
    if grid.ndim != 1 or not np.all(np.diff(grid) > 0) or not {0.0, 0.5, 1.0} <= set(grid.tolist()):
        raise ConfigError("the points τ must rise from 0 to 1 and hold 0, ½ and 1")
    if grid[0] != 0 or grid[-1] != 1:
        raise ConfigError(f"the points τ must lie between 0 and 1, not from {grid[0]:g} to {grid[-1]:g}")
    return grid


def _kept(keep: int | Sequence[int], count: int) -> np.ndarray:
    kept = np.arange(min(keep, count)) if isinstance(keep, int) else np.asarray(keep, np.int64).reshape(-1)
    if len(kept) and (kept.min() < 0 or kept.max() >= count):
        raise ConfigError(f"keep= names example {int(kept.max())}; there are {count}")
    return kept


def _scores(there: Evaluation, labels: np.ndarray, kept: np.ndarray) -> dict[str, Any]:
    if there.log_probs is None:
        return {}
    probs = np.exp(there.log_probs.astype(np.float64))
    scores = {
        "accuracy": metrics.accuracy(probs, labels),
        "ece": metrics.ece(probs, labels),
        "brier": metrics.brier(probs, labels),
        "calibration": np.stack(metrics.calibration(probs, labels)),
        "confusion": metrics.confusion(probs, labels),
    }
    return scores | ({"probabilities": probs[kept]} if len(kept) else {})


def _calibrated(there: Evaluation, labels: np.ndarray, beside: Evaluation, others: np.ndarray) -> dict[str, Any]:
    if there.log_probs is None or beside.log_probs is None:
        raise ConfigError(NO_CLASSES)
    temperature = metrics.best_temperature(beside.log_probs, others)
    calibrated = metrics.nll(metrics.tempered(there.log_probs, temperature), labels)
    return {"held_out_nll": beside.nll, "temperatures": temperature, "calibrated_nll": calibrated}


def _calibrated_by_halves(there: Evaluation, labels: np.ndarray) -> dict[str, Any]:
    """Temperatures fitted on every second example for the others, and the other way round; the mean is kept."""
    if there.log_probs is None:
        raise ConfigError(NO_CLASSES)
    if len(labels) < 2:
        raise ConfigError('calibrate="halves" needs two examples or more')
    halves = slice(0, None, 2), slice(1, None, 2)
    logs, temperatures, losses = there.log_probs, [], []
    for fitted, judged in (halves, halves[::-1]):
        temperature = metrics.best_temperature(logs[fitted], labels[fitted])
        temperatures.append(temperature)
        losses.append(metrics.nll(metrics.tempered(logs[judged], temperature), labels[judged]) * len(labels[judged]))
    return {"temperatures": float(np.mean(temperatures)), "calibrated_nll": sum(losses) / len(labels)}


def _height(nll: np.ndarray, taus: np.ndarray) -> float:
    return float((nll - _chord(nll, taus)).max())


def _chord(values: np.ndarray, taus: np.ndarray) -> np.ndarray:
    return values[0] + taus * (values[-1] - values[0])  # exactly flat where the ends are equal


def _errors_above_chord(predictions: list[Evaluation], taus: np.ndarray) -> np.ndarray:
    """Draw s enters every τ with the same noise, so its influence on the height is the same combination."""
    influence = [there.influence for there in predictions]  # a point has a single one, which broadcasts
    first, last = influence[0], influence[-1]
    return np.array(
        [standard_error(here - ((1 - tau) * first + tau * last)) for here, tau in zip(influence, taus, strict=True)]
    )


def _error_above_mean(predictions: list[Evaluation]) -> float:
    highest = max(predictions, key=lambda there: there.nll).influence
    return standard_error(highest - 0.5 * (predictions[0].influence + predictions[-1].influence))
