"""The hidden activations of a group, found in any `apply` without naming its layers.

A value inside the network carries a group when it follows the group's permutation: computed with permuted
parameters, it is the same value with one axis permuted. So the network is run twice on a few inputs, once with
a group permuted, and every intermediate value of its jaxpr is compared. Of those that follow, and that
depend on the input, the last one is taken: what the group hands on to the next layer, after its non-linearity.

Calls inside the jaxpr (`jit`, `relu`'s custom derivative) are entered; loops and branches are not, but what
they return is looked at.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from ..errors import ModelError
from ..jaxprs import Apply, values
from ..trees import Tree
from .permute import permute
from .spec import PermutationSpec
from .verify import perturbed

Activations = Callable[[Tree, Any], dict[str, Any]]  # (params, x) -> {group: (..., units)}, the inputs' axes first


class Place(NamedTuple):
    """Where a group shows: the number of a value in the order of evaluation, and the axis of its units."""

    number: int
    axis: int


def hidden_activations(apply: Apply, params: Tree, x: Any, spec: PermutationSpec, *, key: jax.Array) -> Activations:
    """Returns the function that computes the activations of every group.

    Args:
        apply: the network.
        params: parameters of one network; they are perturbed, so freshly initialised ones will do.
        x: a few inputs that differ from each other; two to eight are enough.
        spec: the groups to look for.
        key: decides perturbation and permutations.

    Raises:
        ModelError: no value inside the network follows a group.

    Example:
        >>> import jax.numpy as jnp
        >>> apply = lambda p, x: jax.nn.relu(x @ p["w0"]) @ p["w1"]
        >>> params = {"w0": jax.random.normal(jax.random.key(0), (4, 6)), "w1": jnp.ones((6, 2))}
        >>> spec = PermutationSpec.parse({"w0": ["4", "g0"], "w1": ["g0", "2"]}, {"g0": 6})
        >>> x = jax.random.normal(jax.random.key(1), (3, 4))
        >>> activations = hidden_activations(apply, params, x, spec, key=jax.random.key(2))
        >>> bool(jnp.allclose(activations(params, x)["g0"], jax.nn.relu(x @ params["w0"])))
        True
    """
    places = locate(apply, params, x, spec, key=key)

    def activations(params: Tree, x: Any) -> dict[str, Any]:
        computed = dict(enumerate(values(apply, params, x)))
        return {group: _pick(computed, place, group, spec.sizes[group]) for group, place in places.items()}

    return activations


def locate(apply: Apply, params: Tree, x: Any, spec: PermutationSpec, *, key: jax.Array) -> dict[str, Place]:
    """Returns the last value of the network that carries each group."""
    params = perturbed(jax.tree.map(np.asarray, params), key, 0.3)

    @jax.jit
    def run(params: Tree, x: Any) -> list[Any]:
        with jax.default_matmul_precision("highest"):
            return values(apply, params, x)

    before, shuffled = run(params, x), spec.random(key)
    places = {}
    for group, size in spec.sizes.items():
        perm = np.roll(shuffled[group], 1) if (shuffled[group] == np.arange(size)).all() else shuffled[group]
        after = run(permute(params, spec, {**spec.identity(), group: perm}), x)
        follows = [_axis(np.asarray(v), np.asarray(w), perm) for v, w in zip(before, after, strict=True)]
        numbers = [number for number, axis in enumerate(follows) if axis is not None]
        if not numbers:
            raise ModelError(
                f"no value inside the network follows group '{group}'; pass activations=, a function of "
                "(params, x) that returns them by group, or match by weights"
            )
        places[group] = Place(numbers[-1], follows[numbers[-1]] or 0)
    return places


def _axis(before: np.ndarray, after: np.ndarray, perm: np.ndarray) -> int | None:
    """The axis along which a value was permuted; None where it was not, or where all inputs have one value."""
    if before.ndim < 2 or before.dtype.kind != "f" or np.array_equal(before, after):
        return None
    if (before == before[:1]).all():  # a parameter broadcast over the batch
        return None
    tolerance = 1e-4 * np.abs(before).max()  # sums over units were reordered
    for axis in range(before.ndim - 1, 0, -1):
        if before.shape[axis] == perm.size:
            moved = np.take(before, perm, axis)
            if np.abs(moved - after).max() <= tolerance < np.abs(before - after).max():
                return axis
    return None


def _pick(computed: dict[int, Any], place: Place, group: str, size: int) -> Any:
    value = computed.get(place.number)
    if value is None or value.ndim <= place.axis or value.shape[place.axis] != size:
        raise ModelError(f"the network computes group '{group}' elsewhere for this input; pass activations=")
    return jax.numpy.moveaxis(value, place.axis, -1)
