"""What a posterior predicts: the average of its draws' predictions, how uncertain it is and why, and how good.

For classes, with p_s the probabilities of draw s and p = mean_s p_s,

    total entropy      H[p]                    all of the uncertainty
    aleatoric entropy  mean_s H[p_s]           what the draws themselves are unsure of
    epistemic entropy  H[p] − mean_s H[p_s]    how much they contradict each other: the mutual information

For real targets the prediction is the mixture of the draws' normal distributions (`normal_mixtures.py`), whose
variance is `mean_s σ_s²` (aleatoric) plus the variance of the means (epistemic).

References: Depeweg et al. 2018 (entropies); Guo et al. 2017 (temperature); Geifman and El-Yaniv 2017 (selective).
"""

from abc import abstractmethod
from collections.abc import Sequence

import equinox as eqx
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float
from scipy.special import logsumexp

from ..errors import ConfigError, DataError
from . import metrics, normal_mixtures

LEVEL = 0.9  # of the central interval whose coverage `metrics` reports


class Predictive(eqx.Module):
    """The prediction of a posterior on some inputs; a `ClassPredictive` or a `RealPredictive`.

    Example:
        >>> prediction = RealPredictive(np.zeros((2, 5, 1)), np.ones((2, 5, 1)), np.full(2, 0.5))
        >>> len(prediction), len(prediction[:3]), prediction.uncertainty.tolist()
        (5, 3, [1.0, 1.0, 1.0, 1.0, 1.0])
    """

    @abstractmethod
    def __len__(self) -> int:
        """Number of examples."""

    @abstractmethod
    def __getitem__(self, examples: slice) -> "Predictive":
        """The prediction on some of the examples."""

    @property
    @abstractmethod
    def uncertainty(self) -> Float[np.ndarray, " examples"]:
        """One number for each example, larger where less is known: total entropy, or the std."""

    @abstractmethod
    def log_likelihood(self, y: ArrayLike) -> Float[np.ndarray, " examples"]:
        """Returns the log of the averaged likelihood of every target."""

    @abstractmethod
    def metrics(self, y: ArrayLike, *, outside: "Predictive | None" = None) -> dict[str, float]:
        """Returns every score that fits the targets, by name.

        Args:
            y: the targets of these inputs.
            outside: the prediction on inputs of another kind; adds "ood_auroc", the probability that one of them
                is less certain than one of these.
        """


class ClassPredictive(Predictive):
    """Class probabilities averaged over draws.

    Example:
        >>> sure = ClassPredictive(np.log([[0.5, 0.5]]), np.array([0.0]))  # two draws, certain of opposite classes
        >>> sure.total_entropy.round(4).tolist(), sure.epistemic_entropy.round(4).tolist()
        ([0.6931], [0.6931])
    """

    log_probs: Float[np.ndarray, "examples classes"]
    aleatoric_entropy: Float[np.ndarray, " examples"] | None  # None where the draws were not looked at one by one

    def __repr__(self) -> str:
        return f"ClassPredictive({len(self):,} examples, {self.log_probs.shape[1]} classes)"

    def __len__(self) -> int:
        return len(self.log_probs)

    def __getitem__(self, examples: slice) -> "ClassPredictive":
        entropy = self.aleatoric_entropy
        return ClassPredictive(self.log_probs[examples], None if entropy is None else entropy[examples])

    @property
    def probabilities(self) -> Float[np.ndarray, "examples classes"]:
        """Averaged over draws, in float64."""
        return np.exp(self.log_probs.astype(np.float64))

    @property
    def label(self) -> np.ndarray:
        """The most probable class of every example."""
        return self.log_probs.argmax(1)

    @property
    def total_entropy(self) -> Float[np.ndarray, " examples"]:
        """Entropy of the averaged probabilities, in nats."""
        logs = self.log_probs.astype(np.float64)
        return -(np.exp(logs) * np.where(np.isfinite(logs), logs, 0.0)).sum(1)

    @property
    def epistemic_entropy(self) -> Float[np.ndarray, " examples"]:
        """Mutual information of class and weights, in nats; never below zero."""
        if self.aleatoric_entropy is None:
            raise ConfigError("the entropy of single draws is not known here: take it before temperature scaling")
        return np.maximum(self.total_entropy - self.aleatoric_entropy, 0.0)  # rounding alone makes it negative

    @property
    def uncertainty(self) -> Float[np.ndarray, " examples"]:
        return self.total_entropy

    def log_likelihood(self, y: ArrayLike) -> Float[np.ndarray, " examples"]:
        _, y = metrics.checked(self.log_probs, y)
        return self.log_probs.astype(np.float64)[np.arange(len(y)), y]

    def metrics(self, y: ArrayLike, *, outside: Predictive | None = None) -> dict[str, float]:
        """Accuracy, NLL, ECE, Brier score, selective accuracy (its mean over all coverages), and with `outside`
        the out-of-distribution AUROC of the total entropy."""
        probs = self.probabilities
        found = {
            "accuracy": metrics.accuracy(probs, y),
            "nll": metrics.nll(self.log_probs, y),
            "ece": metrics.ece(probs, y),
            "brier": metrics.brier(probs, y),
            "selective_accuracy": float(metrics.selective_accuracy(probs, y).accuracy.mean()),
        }
        return found | _against(self, outside)

    def at_temperature(self, temperature: float) -> "ClassPredictive":
        """Returns the prediction with probabilities proportional to `p^(1/T)`; above 1 it is less certain.

        Example:
            >>> hot = ClassPredictive(np.log([[0.8, 0.2]]), None).at_temperature(2.0)
            >>> hot.probabilities.round(4).tolist()
            [[0.6667, 0.3333]]
        """
        if not (np.isfinite(temperature) and temperature > 0):
            raise ConfigError(f"a temperature is positive, not {temperature!r}")
        return ClassPredictive(metrics.tempered(self.log_probs, temperature), None)


class RealPredictive(Predictive):
    """A mixture of normal distributions for every target, one component a draw; outputs are independent given it.

    Example:
        >>> means = np.array([[[1.0]], [[3.0]]])  # of two draws, at one target
        >>> found = RealPredictive(means, np.ones((2, 1, 1)), np.full(2, 0.5))
        >>> found.mean.item(), found.aleatoric_variance.item(), found.epistemic_variance.item()
        (2.0, 1.0, 1.0)
    """

    means: Float[np.ndarray, "draws examples outputs"]
    stds: Float[np.ndarray, "draws examples outputs"]  # of the noise
    weights: Float[np.ndarray, " draws"]

    def __repr__(self) -> str:
        draws, examples, outputs = self.means.shape
        return f"RealPredictive({examples:,} examples, {outputs} outputs, {draws} draws)"

    def __len__(self) -> int:
        return self.means.shape[1]

    def __getitem__(self, examples: slice) -> "RealPredictive":
        return RealPredictive(self.means[:, examples], self.stds[:, examples], self.weights)

    @property
    def mean(self) -> Float[np.ndarray, "examples outputs"]:
        """The expected target."""
        return np.tensordot(self.weights, self.means, 1)

    @property
    def aleatoric_variance(self) -> Float[np.ndarray, "examples outputs"]:
        """The noise: the draws' own variances, averaged."""
        return np.tensordot(self.weights, self.stds**2, 1)

    @property
    def epistemic_variance(self) -> Float[np.ndarray, "examples outputs"]:
        """How much the draws' means differ."""
        return np.tensordot(self.weights, (self.means - self.mean) ** 2, 1)

    @property
    def variance(self) -> Float[np.ndarray, "examples outputs"]:
        """Of the target: noise and disagreement together."""
        return self.aleatoric_variance + self.epistemic_variance

    @property
    def std(self) -> Float[np.ndarray, "examples outputs"]:
        return np.sqrt(self.variance)

    @property
    def uncertainty(self) -> Float[np.ndarray, " examples"]:
        return np.sqrt(self.variance.sum(1))

    def quantile(self, level: float) -> Float[np.ndarray, "examples outputs"]:
        """Returns the value that a target stays below with probability `level`."""
        if not 0 < level < 1:
            raise ConfigError(f"a quantile has a level between 0 and 1, not {level!r}")
        return normal_mixtures.quantile(level, self.means, self.stds, self.weights)

    def interval(self, level: float = LEVEL) -> tuple[np.ndarray, np.ndarray]:
        """Returns the central interval that a target lies in with probability `level`: its two ends."""
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def log_likelihood(self, y: ArrayLike) -> Float[np.ndarray, " examples"]:
        return normal_mixtures.log_density(self._targets(y), self.means, self.stds, self.weights)

    def coverage(self, y: ArrayLike, level: float = LEVEL) -> float:
        """Returns the share of targets in the central interval of that probability; `level` where calibrated."""
        # As many comparisons as targets instead of a bisection: y is inside where its probability integral is.
        below = normal_mixtures.cdf(self._targets(y), self.means, self.stds, self.weights)
        return float((np.abs(below - 0.5) <= level / 2).mean())

    def metrics(self, y: ArrayLike, *, outside: Predictive | None = None) -> dict[str, float]:
        """RMSE, NLL, CRPS, coverage of the central 90 % interval, and with `outside` the out-of-distribution AUROC
        of the std."""
        targets = self._targets(y)
        found = {
            "rmse": float(np.sqrt(np.mean((targets - self.mean) ** 2))),
            "nll": float(-self.log_likelihood(y).mean()),
            "crps": float(normal_mixtures.crps(targets, self.means, self.stds, self.weights).mean()),
            f"coverage_{100 * LEVEL:.0f}": self.coverage(y),
        }
        return found | _against(self, outside)

    def _targets(self, y: ArrayLike) -> np.ndarray:
        y, shape = np.asarray(y, np.float64), self.means.shape[1:]
        if y.size != np.prod(shape) or len(y) != shape[0]:
            raise DataError(f"targets have shape {y.shape}, but the prediction (examples, outputs) = {shape}")
        if not np.isfinite(y).all():
            raise DataError("a target is NaN or infinite")
        return y.reshape(shape)


def fit_temperature(predictive: Predictive, y: ArrayLike) -> float:
    """Returns the temperature T under which labels are likeliest, for `predictive.at_temperature(T)`.

    Fit it on held-out examples, which neither training nor the final scores have seen.

    Raises:
        ConfigError: the prediction is none of classes.
        DataError: the labels leave no best temperature, as where every one of them is the most probable class.

    Example:
        >>> said = ClassPredictive(np.log([[0.9, 0.1]] * 4), None)  # says 90 %, is right in 3 of 4
        >>> round(1 / fit_temperature(said, [0, 0, 0, 1]), 4) == round(float(np.log(3) / np.log(9)), 4)
        True
    """
    if not isinstance(predictive, ClassPredictive):
        raise ConfigError("a temperature scales class probabilities; real targets have a noise that can be learned")
    temperature = metrics.best_temperature(predictive.log_probs, y)
    if temperature in (metrics.COLDEST, metrics.HOTTEST):
        raise DataError(
            "no temperature is best for these labels: the likelihood grows up to certainty (every label is the most "
            "probable class) or to uniform probabilities; use more held-out examples"
        )
    return temperature


def pooled(parts: "Sequence[Predictive]", counts: Sequence[int]) -> Predictive:
    """Returns the prediction of all draws from those of several batches of them, each with its number of draws."""
    reals = [part for part in parts if isinstance(part, RealPredictive)]
    parts = [part for part in parts if isinstance(part, ClassPredictive)]
    if reals and parts:
        raise ConfigError("predictions of classes and of real targets cannot be pooled")
    if reals:
        means, stds = (np.concatenate([getattr(part, name) for part in reals]) for name in ("means", "stds"))
        shares = [part.weights * (count / sum(counts)) for part, count in zip(reals, counts, strict=True)]
        return RealPredictive(means, stds, np.concatenate(shares))
    logs = np.log(np.asarray(counts, np.float64) / sum(counts))
    log_probs = logsumexp([part.log_probs + log for part, log in zip(parts, logs, strict=True)], axis=0)
    entropies = [part.aleatoric_entropy for part in parts if part.aleatoric_entropy is not None]
    known = len(entropies) == len(parts)
    return ClassPredictive(np.asarray(log_probs), np.average(entropies, axis=0, weights=counts) if known else None)


def _against(inside: Predictive, outside: Predictive | None) -> dict[str, float]:
    if outside is None:
        return {}
    if type(outside) is not type(inside):
        raise ConfigError(
            f"compare predictions of one kind, not {type(inside).__name__} and {type(outside).__name__}"
        )
    return {"ood_auroc": metrics.auroc(inside.uncertainty, outside.uncertainty)}
