"""Have Markov chains of a network mixed, once the order of its hidden units no longer counts?

Weights of two chains cannot be compared as they came: equal functions have their units in different orders. So every
draw is moved onto the first by what its units do, and then R-hat and effective sample size are taken of weights and,
as before, of predictions. Both are judged by what independent draws of as many quantities would give.

Reference: Vehtari et al. 2021 (R-hat).
"""

import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..errors import BayesinError, ConfigError, PosteriorError
from ..inputs import Inputs, count_of, take
from ..jaxprs import hashable
from ..likelihoods import Likelihood
from ..matching import ManySamples, batches, match_activations
from ..models import Model
from ..randomness import PRNGKey, check_key, generator
from ..symmetry import Apply, PermutationSpec, discover, hidden_activations, permute
from .fit import Fit
from .mixing import Mixing, mixing_of

WEIGHTS = 5_000  # weights that are looked at, drawn at random
PROBED = 64  # inputs whose predictions are
FEWEST = 4  # draws of a chain that R-hat can be taken of


class ChainDiagnostics(eqx.Module):
    """How chains have mixed: in weights as they came, in weights modulo symmetry, in predictions.

    Example:
        >>> good, bad = Mixing(10, 1.0, 1.01, 1.05, 900.0, 800.0), Mixing(10, 1.2, 4.0, 1.05, 30.0, 5.0)
        >>> ChainDiagnostics(as_they_came=bad, weights=good, predictions=good).one_basin
        True
    """

    as_they_came: Mixing
    weights: Mixing
    predictions: Mixing | None  # None where no network was at hand to predict with

    @property
    def one_basin(self) -> bool:
        """Whether nothing tells the chains apart modulo symmetry: neither their weights nor their predictions."""
        return self.weights.mixed and (self.predictions is None or self.predictions.mixed)

    @property
    def parts(self) -> dict[str, Mixing]:
        """What was looked at, in words."""
        named = {"weights as they came": self.as_they_came, "weights in one order": self.weights}
        return named if self.predictions is None else named | {"predictions": self.predictions}

    def __repr__(self) -> str:
        said = [
            f"{name} {part.rhat_max:.3f} (independent draws: below {part.rhat_bound:.3f})"
            for name, part in self.parts.items()
        ]
        return f"ChainDiagnostics(largest R-hat: {', '.join(said)}; {'one basin' if self.one_basin else 'not mixed'})"


def diagnose_chains(
    draws: Fit | ManySamples,
    spec: PermutationSpec,
    model: Apply,
    x: Inputs,
    *,
    key: PRNGKey,
    chains: int | None = None,
) -> ChainDiagnostics:
    """Returns R-hat and effective sample size of weights and predictions modulo permutation symmetry.

    Args:
        draws: chain by chain, as `fit_hmc` returns them: a fit, `Samples`, or `Draws` on disk.
        spec: which axes move together.
        model: the network.
        x: inputs; all for what units do, the first 64 for predictions.
        key: decides which weights are looked at.
        chains: how many; a fit and `Draws` know it.

    Raises:
        ConfigError: the number of chains is not known, or does not divide that of the draws.
        PosteriorError: fewer than four draws a chain.

    Example:
        >>> from bayesin import Samples
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
    known, samples = chains or chains_of(draws), draws.posterior if isinstance(draws, Fit) else draws
    if known is None or len(samples) % known:
        raise ConfigError(f"chains={known}: say how many chains the {len(samples)} draws are of")
    if len(samples) // known < FEWEST:
        raise PosteriorError(f"{len(samples) // known} draws a chain; R-hat needs at least four")
    probes = predictions_of(samples, model, x, draws.likelihood if isinstance(draws, Fit) else None)
    return compare_chains(samples, known, spec, _orders(samples, spec, model, x, key), probes, key=key)


def compare_chains(
    samples: ManySamples,
    chains: int,
    spec: PermutationSpec,
    perms: Mapping[str, np.ndarray],
    probes: np.ndarray | None,
    *,
    key: PRNGKey,
) -> ChainDiagnostics:
    """Returns the same for draws whose permutations, and predictions (draws, …), are known."""
    shape = (chains, len(samples) // chains, -1)
    came, moved = _some_weights(samples, spec, None, key), _some_weights(samples, spec, perms, key)
    return ChainDiagnostics(
        mixing_of(came.reshape(shape)),
        mixing_of(moved.reshape(shape)),
        None if probes is None else mixing_of(probes.reshape(shape)),
    )


def diagnose_fit(
    key: jax.Array,
    model: Model,
    samples: ManySamples,
    chains: int,
    x: Inputs,
    likelihood: Likelihood,
    probes: np.ndarray | None = None,
) -> ChainDiagnostics | None:
    """Returns what a fit of several chains tells of itself; None for one chain, few draws, or nothing to look at.

    The symmetry is discovered. A network of which it cannot be found is no reason to lose the draws: weights are then
    compared as they came, with a warning.
    """
    if chains < 2 or len(samples) // chains < FEWEST or not count_of(x):
        return None
    perms, spec = {}, PermutationSpec(())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what is left behind: `discover` says it to those who call it
            spec = discover(model.apply, samples[0], take(x, slice(2)))
        perms = _orders(samples, spec, model.apply, x, key)
    except BayesinError as error:
        warnings.warn(f"weights of the chains are compared in the order in which they came: {error}", stacklevel=4)
    if probes is None:
        probes = predictions_of(samples, model.apply, x, likelihood)
    return compare_chains(samples, chains, spec, perms, probes, key=key)


def warn_unmixed(parts: Mapping[str, Mixing], what: str, *, stacklevel: int) -> None:
    """Says once that chains are apart, where they are so by more than independent draws would be, and by 0.1."""
    if apart := {name: part for name, part in parts.items() if part.apart}:
        said = " and ".join(
            f"the {name} {part.rhat_max:.2f} and {part.rhat_median:.2f} (independent draws: below "
            f"{part.rhat_bound:.2f} and {part.median_bound:.2f})"
            for name, part in apart.items()
        )
        text = f"the chains have not mixed: the largest and the median R-hat are of {said}; {what}"
        warnings.warn(text, stacklevel=stacklevel + 1)


def chains_of(given: Any) -> int | None:
    """How many chains a fit, or draws on disk, are of; None for anything else."""
    return getattr(given, "chains", None) or getattr(getattr(given, "config", None), "chains", None)


def predictions_of(samples: ManySamples, apply: Apply, x: Inputs, likelihood: Likelihood | None = None) -> np.ndarray:
    """What every draw says of a few inputs, (draws, …): log-probabilities where there are any, else outputs."""
    inputs = jax.tree.map(jnp.asarray, take(x, slice(PROBED)))
    parts = [np.asarray(_outputs(hashable(apply), stack, inputs)) for _, stack in batches(samples)]
    outputs = np.concatenate(parts)
    if likelihood is not None and hasattr(likelihood, "log_probs"):
        outputs = np.asarray(likelihood.log_probs(jnp.asarray(outputs)))  # pyright: ignore[reportAttributeAccessIssue]
    return outputs.reshape(len(samples), -1)


@partial(jax.jit, static_argnums=0)
def _outputs(apply: Any, stack: Any, inputs: Any) -> jax.Array:
    return jax.lax.map(lambda params: apply(params, inputs), stack)


def _orders(
    samples: ManySamples, spec: PermutationSpec, apply: Apply, x: Inputs, key: PRNGKey
) -> dict[str, np.ndarray]:
    """Permutations of every draw onto the first, by what its units do."""
    if not spec.sizes:
        return {}
    activations = hidden_activations(apply, samples[0], take(x, slice(8)), spec, key=key)
    return match_activations(samples[0], samples, spec, activations, x).perms


def _some_weights(
    samples: ManySamples, spec: PermutationSpec, perms: Mapping[str, np.ndarray] | None, key: PRNGKey
) -> np.ndarray:
    """Weights drawn at random, the same ones whatever the order of units: (draws, weights)."""
    found, chosen = [], None
    for part, stack in batches(samples):
        if perms:
            stack = permute(stack, spec, {group: perm[part] for group, perm in perms.items()})
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(stack)]
        flat = [leaf.reshape(len(leaf), -1) for leaf in leaves if leaf.dtype.kind not in "biu"]
        weights = np.concatenate(flat, 1)
        if chosen is None:
            count = weights.shape[1]
            chosen = np.sort(generator(key, "weights").choice(count, min(WEIGHTS, count), replace=False))
        found.append(weights[:, chosen])
    return np.concatenate(found)
