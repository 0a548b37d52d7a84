"""Running statistics estimated anew: after an alignment, on a path, for a posterior that no fit has seen.

A running statistic moves by `s ← d s + (1 − d) v` with every batch, v the batch's own. Neither d nor v is known from
outside, but the update is affine in s: from its values at s = 0 and s = 1, averaged over batches (and draws of the
weights), follow d and the statistic that stays where it is, s = E[v]. Counters that grow by one a batch are put where
corrections for a short run (`1 − dⁿ`) have died out. What comes out is checked by an update from elsewhere, so that a
statistic which is no running average is named and not guessed.

Reference: re-estimated batch statistics after merging, Jordan et al. 2023 (REPAIR), Izmailov et al. 2018 (SWA).
"""

from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..errors import ConfigError, ModelError, PosteriorError
from ..inputs import Inputs, as_inputs, count_of, take
from ..models import Model, has_training_mode
from ..posteriors import Samples, is_posterior
from ..randomness import check_key
from ..trees import Tree, flatten, is_float

MANY = 1 << 16  # batches after which no correction for a short run is left
LARGEST_DECAY = 0.9999
TOLERANCE = 1e-3  # of the check, relative to the statistic's own size

P = TypeVar("P")


def recalibrate(posterior: P, model: Model, x: Inputs, *, key: jax.Array, batch: int = 500, samples: int = 8) -> P:
    """Returns the posterior with its running statistics estimated anew on these inputs, in training mode.

    Weights and stds stay as they are. The statistics of a Gaussian are averages over draws of the weights, as those
    are that a fit collects; those of a sample set are each member's own.

    Args:
        posterior: `Samples`, a posterior with a mean that can be drawn from, or the parameters of one network.
        model: the network, with a training mode.
        x: inputs, of the training set as a rule, batch first; what fills no batch is left out.
        key: for the draws of the weights and for dropout.
        batch: examples of one batch, as many as in training: a variance within small batches is smaller.
        samples: draws of the weights of a Gaussian.

    Raises:
        ModelError: the network has no training mode, or a statistic that is no running average.

    Example:
        >>> from flax import nnx
        >>> from bayesin.models import from_nnx
        >>> model = from_nnx(lambda rngs: nnx.BatchNorm(1, rngs=rngs))
        >>> key, x = jax.random.key(0), np.array([[1.0], [5.0]])
        >>> params = recalibrate(model.init(key), model, x, key=key)
        >>> round(float(params["mean"][0]), 3), round(float(params["var"][0]), 3)
        (3.0, 4.0)
    """
    check_key(key)
    if not has_training_mode(model) or not model.statistics:
        raise ModelError(
            f"{model.name} has no training mode that collects statistics: there is nothing to recalibrate"
        )
    if batch < 1 or samples < 1:
        raise ConfigError(f"batch={batch}, samples={samples}: at least one of each")
    batches = _batches(as_inputs(x, "the"), batch)
    if isinstance(posterior, Samples):
        keys = jax.random.split(key, len(posterior))
        found = [
            _recalibrated(
                jax.tree.map(lambda leaf, at=at: jnp.asarray(leaf[at])[None], posterior.params), model, batches, own
            )
            for at, own in enumerate(keys)
        ]
        return Samples(jax.tree.map(lambda *leaves: jnp.stack(leaves), *found))  # pyright: ignore[reportReturnType]
    if is_posterior(posterior):
        if "mean" not in getattr(type(posterior), "__dataclass_fields__", {}):
            raise PosteriorError(f"recalibrate the parts of a {type(posterior).__name__}, one after the other")
        first, second = jax.random.split(key)
        certain = not any(np.any(leaf) for leaf in jax.tree.leaves(posterior.std))
        draws = posterior.sample(first, 1 if certain else samples)
        found = flatten(_recalibrated(draws, model, batches, second))
        mean = flatten(posterior.mean) | {path: found[path] for path in model.statistics}
        return eqx.tree_at(lambda whole: whole.mean, posterior, _like(posterior.mean, mean))
    return _recalibrated(jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], posterior), model, batches, key)


def with_own_statistics(posterior: P, model: Model, x: Inputs, *, key: jax.Array, batch: int) -> P:
    """The posterior of a method that ends at other weights than its last step, whose statistics those are not."""
    collects = has_training_mode(model) and model.statistics
    return recalibrate(posterior, model, x, key=key, batch=batch) if collects else posterior


def _recalibrated(draws: Tree, model: Model, batches: Inputs, key: jax.Array) -> Tree:
    """The first of some networks (leading axis) with statistics that are averages over them all."""
    one = {path: leaf[0] for path, leaf in flatten(draws).items()}
    moving = {path: leaf for path, leaf in one.items() if path in model.statistics}
    averages = {path: leaf for path, leaf in moving.items() if is_float(leaf.dtype)}

    @jax.jit
    def updated(statistics: dict[str, Any]) -> dict[str, Any]:
        def one_batch(at: tuple[Tree, Any, jax.Array]) -> dict[str, Any]:
            params, x, key = at
            tree = _like(params, flatten(params) | statistics)
            after = flatten(model.apply_train(tree, x, key)[1])  # pyright: ignore[reportOptionalCall]
            return {path: after[path] for path in moving}

        count = count_of(batches)
        keys = jax.random.split(key, (len(jax.tree.leaves(draws)[0]), count))
        every = jax.lax.map(
            lambda of: jax.lax.map(lambda part: one_batch((of[0], *part)), (batches, of[1])), (draws, keys)
        )
        return {path: leaf.mean((0, 1)) if is_float(leaf.dtype) else leaf[0, 0] for path, leaf in every.items()}

    def at(value: Any, counters: dict[str, Any]) -> dict[str, Any]:
        return counters | {path: jnp.full_like(leaf, value) for path, leaf in averages.items()}

    counters = {path: leaf for path, leaf in moving.items() if path not in averages}
    after = updated(at(0, counters))
    for path, leaf in counters.items():
        grows = jnp.issubdtype(leaf.dtype, jnp.integer) and bool((after[path] == leaf + 1).all())
        counters[path] = jnp.maximum(leaf, MANY) if grows else after[path]
    low, high = updated(at(0, counters)), updated(at(1, counters))
    decays = {path: high[path] - low[path] for path in averages}
    found = {}
    for path, decay in decays.items():
        untouched = decay > LARGEST_DECAY  # a constant that training leaves alone
        if not bool(((decay > -TOLERANCE) & (~untouched | (low[path] == 0))).all()):
            raise ModelError(_no_average(path))
        solved = low[path] / jnp.where(untouched, 1, 1 - decay)
        found[path] = jnp.where(untouched, averages[path], solved).astype(averages[path].dtype)
    away = {path: 1 + jnp.abs(leaf) for path, leaf in found.items()}
    again = updated(counters | {path: leaf + away[path] for path, leaf in found.items()})
    for path, leaf in found.items():
        expected = leaf + decays[path] * away[path]
        if not bool((jnp.abs(again[path] - expected) <= TOLERANCE * away[path]).all()):
            raise ModelError(_no_average(path))
    return _like(jax.tree.map(lambda leaf: leaf[0], draws), one | counters | found)


def _no_average(path: str) -> str:
    return f"the statistic '{path}' is not a running average of batches, so that recalibrate cannot estimate it anew"


def _batches(x: Inputs, batch: int) -> Inputs:
    """Equal batches, one after the other; one of all examples where there are fewer."""
    size = min(batch, count_of(x))
    each = count_of(x) // size
    return jax.tree.map(
        lambda leaf: jnp.asarray(leaf.reshape(each, size, *leaf.shape[1:])), take(x, slice(each * size))
    )


def _like(tree: Tree, flat: dict[str, Any]) -> Tree:
    """A tree of the structure of another, with these leaves."""
    return jax.tree.unflatten(jax.tree.structure(tree), [flat[path] for path in flatten(tree)])
