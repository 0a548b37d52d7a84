"""Does the Gaussian predict what the samples predict?

The samples' averaged prediction is compared with that of the Gaussian fitted to them as they came and of the
compact one, and with those of the two mean networks: agreement and total variation (with its factor ½). Neither
says whether a prediction is as sure as it may be: one that names the same classes can be far too wide. So NLL,
expected calibration error and accuracy on the labels stand beside them.

Reference: Xiao et al. 2023, table 1.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax

from ..errors import ConfigError
from ..evaluation import ClassPredictive, Predictive, pooled, predict
from ..evaluation.metrics import agreement, total_variation
from ..likelihoods import LikelihoodLike
from ..symmetry import Apply
from .compact import Compact
from .members import Foldable, members_of

AT_ONCE = 100  # samples whose predictions are averaged in one pass


class Score(NamedTuple):
    """One prediction against that of the samples, and against the labels."""

    agreement: float
    total_variation: float
    accuracy: float
    nll: float
    ece: float


def scores(
    samples: Foldable,
    found: Compact,
    model: Apply,
    data: tuple[Any, Any],
    *,
    key: jax.Array,
    draws: int = 200,
) -> dict[str, Score]:
    """Returns the scores of "samples", "direct", "compact", "direct mean" and "compact mean".

    Args:
        samples: what was folded.
        found: what `compact` returned.
        model: the network, a classifier.
        data: test inputs and labels.
        key: decides the draws.
        draws: networks drawn from each Gaussian.

    Example:
        >>> import numpy as np
        >>> from bayesin import PermutationSpec, compact
        >>> spec = PermutationSpec.parse({"a": ["1", "g0"], "b": ["g0", "2"]}, {"g0": 2})
        >>> net = {"a": np.array([[1.0, -1.0]], np.float32), "b": np.eye(2, dtype=np.float32)}
        >>> nets = [net, {"a": net["a"][:, ::-1], "b": net["b"][::-1]}]
        >>> apply = lambda p, x: jax.nn.relu(x @ p["a"]) @ p["b"]
        >>> found = compact(nets, spec, key=jax.random.key(0))
        >>> data = np.array([[1.0], [-1.0]], np.float32), np.array([0, 1])
        >>> scored = scores(nets, found, apply, data, key=jax.random.key(0), draws=2)
        >>> scored["compact mean"].agreement, scored["direct mean"].accuracy
        (1.0, 0.5)
    """
    x, y = data
    return class_scores(predictions(samples, found, model, x, key=key, draws=draws), y)


def class_scores(predicted: Mapping[str, Predictive], y: Any) -> dict[str, Score]:
    """Returns the scores of `predictions`, each compared with that of the samples."""
    classes = {name: one for name, one in predicted.items() if isinstance(one, ClassPredictive)}
    if "samples" not in classes:
        raise ConfigError("agreement is for classes; real targets have predictive.metrics(y)")
    return {name: _score(one, classes["samples"], y) for name, one in classes.items()}


def predictions(
    samples: Foldable,
    found: Compact,
    model: Apply,
    x: Any,
    *,
    key: jax.Array,
    draws: int = 200,
    likelihood: LikelihoodLike = "categorical",
) -> dict[str, Predictive]:
    """Returns what "samples", "direct", "compact", "direct mean" and "compact mean" predict.

    Args:
        samples: what was folded.
        found: what `compact` returned.
        model: the network.
        x: test inputs.
        key: decides the draws.
        draws: networks drawn from each Gaussian.
        likelihood: of the targets; for a regression that of the fit.

    Example:
        >>> import numpy as np
        >>> from bayesin import PermutationSpec, compact
        >>> spec = PermutationSpec.parse({"a": ["1", "g0"], "b": ["g0", "2"]}, {"g0": 2})
        >>> net = {"a": np.array([[1.0, -1.0]], np.float32), "b": np.eye(2, dtype=np.float32)}
        >>> nets = [net, {"a": net["a"][:, ::-1], "b": net["b"][::-1]}]
        >>> apply = lambda p, x: jax.nn.relu(x @ p["a"]) @ p["b"]
        >>> found = compact(nets, spec, key=jax.random.key(0))
        >>> x = np.array([[3.0], [-3.0]], np.float32)
        >>> predictions(nets, found, apply, x, key=jax.random.key(0), draws=2)["compact mean"].probabilities.argmax(1)
        array([0, 1])
    """
    networks = {"direct": found.direct, "compact": found.posterior}
    networks |= {"direct mean": found.direct.mean, "compact mean": found.posterior.mean}
    options: dict[str, Any] = {"key": key, "likelihood": likelihood}
    return {"samples": predict_members(samples, model, x, draws=draws, **options)} | {
        name: predict(network, model, x, samples=draws, **options) for name, network in networks.items()
    }


def predict_members(
    folded: Foldable,
    model: Apply,
    x: Any,
    *,
    key: jax.Array,
    draws: int = 200,
    likelihood: LikelihoodLike = "categorical",
) -> Predictive:
    """Returns the prediction averaged over all samples, a part at a time, or over draws of all Gaussians."""
    members = members_of(folded)
    options: Any = {"likelihood": likelihood}
    if members.stds is not None:
        gaussians = list(members.low_rank) or members.gaussians
        return predict(gaussians, model, x, key=key, samples=draws, **options)
    samples = members.means
    parts = [samples[start : start + AT_ONCE] for start in range(0, len(samples), AT_ONCE)]
    return pooled([predict(part, model, x, key=None, **options) for part in parts], [len(part) for part in parts])


def _score(predictive: ClassPredictive, reference: ClassPredictive, y: Any) -> Score:
    found, probs = predictive.metrics(y), (predictive.probabilities, reference.probabilities)
    return Score(agreement(*probs), total_variation(*probs), found["accuracy"], found["nll"], found["ece"])
