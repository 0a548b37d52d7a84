"""Have Markov chains of a network mixed, once the order of its hidden units no longer counts?

Weights of two chains cannot be compared as they came: equal functions have their units in different orders. So every
draw is moved onto the first by what its units do (or by weights), and then R-hat and effective sample size are taken
of weights and, as before, of predictions. Both are judged by what independent draws of as many quantities would give.

Reference: Vehtari et al. 2021 (R-hat).
"""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import ArrayLike

from ..errors import ConfigError, PosteriorError
from ..evaluation import predict
from ..inference import Draws, Fit, Mixing, mixing_of
from ..models import Model
from ..posteriors import Samples
from ..randomness import PRNGKey, check_key, generator
from ..symmetry import Apply, PermutationSpec
from .compact import compact
from .members import members_of
from .moments import rebase
from .unit_matrix import is_floating

WEIGHTS = 5_000  # weights that are looked at, drawn at random
PROBED = 64  # inputs whose predictions are


class ChainDiagnostics(NamedTuple):
    """How chains have mixed: in weights as they came, in weights modulo symmetry, in predictions.

    Example:
        >>> good, bad = Mixing(10, 1.0, 1.01, 1.05, 900.0, 800.0), Mixing(10, 1.2, 4.0, 1.05, 30.0, 5.0)
        >>> ChainDiagnostics(as_they_came=bad, weights=good, predictions=good).one_basin
        True
    """

    as_they_came: Mixing
    weights: Mixing
    predictions: Mixing

    @property
    def one_basin(self) -> bool:
        """Whether nothing tells the chains apart modulo symmetry: neither their weights nor their predictions."""
        return self.weights.mixed and self.predictions.mixed

    def __repr__(self) -> str:
        parts = [
            f"{name} {part.rhat_max:.3f} (independent draws: below {part.rhat_bound:.3f})"
            for name, part in zip(("as they came", "weights", "predictions"), self, strict=True)
        ]
        return (
            f"ChainDiagnostics(largest R-hat: {', '.join(parts)}; {'one basin' if self.one_basin else 'not mixed'})"
        )


def diagnose_chains(
    draws: Fit | Samples | Draws,
    spec: PermutationSpec,
    model: Model | Apply,
    x: ArrayLike,
    *,
    key: PRNGKey,
    chains: int | None = None,
) -> ChainDiagnostics:
    """Returns R-hat and effective sample size of weights and predictions modulo permutation symmetry.

    Args:
        draws: chain by chain, as `fit_hmc` returns them.
        spec: which axes move together.
        model: the network, or its apply.
        x: inputs; all for what units do, the first 64 for predictions.
        key: decides which weights are looked at.
        chains: how many; a fit and `Draws` know it.

    Raises:
        ConfigError: the number of chains is not known, or does not divide that of the draws.
        PosteriorError: fewer than four draws a chain.

    Example:
        >>> from bayesin import discover
        >>> apply = lambda p, x: jax.nn.relu(x @ p["a"]) @ p["b"]
        >>> random = np.random.default_rng(0)
        >>> net = {"a": random.normal(size=(3, 4)), "b": random.normal(size=(4, 2))}
        >>> stack = {n: w + 0.1 * random.normal(size=(40, *w.shape)) for n, w in net.items()}
        >>> draws = Samples(jax.tree.map(np.float32, stack))
        >>> x = random.normal(size=(20, 3)).astype(np.float32)
        >>> spec = discover(apply, draws[0], x[:2])
        >>> diagnose_chains(draws, spec, apply, x, key=jax.random.key(0), chains=2).one_basin
        True
    """
    check_key(key)
    known = chains or getattr(draws, "chains", None) or getattr(getattr(draws, "config", None), "chains", None)
    means = members_of(draws).means
    if known is None or len(means) % known:
        raise ConfigError(f"chains={known}: say how many chains the {len(means)} draws are of")
    if len(means) // known < 4:
        raise PosteriorError(f"{len(means) // known} draws a chain; R-hat needs at least four")
    apply = model.apply if isinstance(model, Model) else model
    folded = compact(means, spec, key=key, match="activations", reference="first", apply=apply, x=x)
    moved = rebase(means, spec, folded.perms)
    came = means if isinstance(means, Samples) else means.load()
    inputs = np.asarray(x)[:PROBED]
    outputs = [predict(draw, apply, inputs, key=None, likelihood="gaussian").mean for draw in came]  # the raw outputs
    shape = (known, len(means) // known, -1)
    return ChainDiagnostics(
        mixing_of(_some_weights(came, key).reshape(shape)),
        mixing_of(_some_weights(moved, key).reshape(shape)),
        mixing_of(np.stack(outputs).reshape(shape)),
    )


def _some_weights(draws: Samples, key: PRNGKey) -> np.ndarray:
    """Weights drawn at random, the same ones whatever the order of units: (draws, weights)."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(draws.params)]
    flat = np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves if is_floating(leaf)], 1)
    chosen = generator(key, "weights").choice(flat.shape[1], min(WEIGHTS, flat.shape[1]), replace=False)
    return flat[:, np.sort(chosen)]
