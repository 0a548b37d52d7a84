"""Does the Gaussian predict what the samples predict?

The samples' averaged prediction is compared with that of the Gaussian fitted to them as they came and of the
compact one, and with those of the two mean networks: agreement, total variation (with its factor ½), and
accuracy where labels are known.

Reference: Xiao et al. 2023, table 1.
"""

from typing import Any, NamedTuple

import jax
import numpy as np

from ..evaluation import predict
from ..evaluation.metrics import accuracy, agreement, total_variation
from ..symmetry import Apply
from .compact import Compact
from .unit_matrix import SampleSet

AT_ONCE = 100  # samples whose predictions are averaged in one pass


class Score(NamedTuple):
    """One prediction against that of the samples, and against the labels."""

    agreement: float
    total_variation: float
    accuracy: float


def scores(
    samples: SampleSet, found: Compact, apply: Apply, data: tuple[Any, Any], *, key: jax.Array, draws: int = 200
) -> dict[str, Score]:
    """Returns the scores of "samples", "direct", "compact", "direct mean" and "compact mean".

    Args:
        samples: what was folded.
        found: what `compact` returned.
        apply: a classifier.
        data: test inputs and labels.
        key: decides the draws.
        draws: networks drawn from each Gaussian.
    """
    x, y = data
    reference = _predict_samples(samples, apply, x)
    predictions = {
        "samples": reference,
        "direct": _predict(found.direct, apply, x, key, draws),
        "compact": _predict(found.posterior, apply, x, key, draws),
        "direct mean": _predict(found.direct.mean, apply, x, key, 1),
        "compact mean": _predict(found.posterior.mean, apply, x, key, 1),
    }
    return {
        name: Score(agreement(p, reference), total_variation(p, reference), accuracy(p, y))
        for name, p in predictions.items()
    }


def _predict_samples(samples: SampleSet, apply: Apply, x: Any) -> np.ndarray:
    """Returns the class probabilities averaged over all samples, a part of them in memory at a time."""
    total = np.zeros(())
    for start in range(0, len(samples), AT_ONCE):
        part = samples[start : start + AT_ONCE]
        total = total + len(part) * _predict(part, apply, x, None, len(part))
    return total / len(samples)


def _predict(posterior: Any, apply: Apply, x: Any, key: jax.Array | None, draws: int) -> np.ndarray:
    return np.exp(predict(posterior, apply, x, key=key, samples=draws).astype(np.float64))
