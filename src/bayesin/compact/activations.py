"""The hidden activations of a group, found in any `apply` without naming its layers.

A value inside the network carries a group when it follows the group's permutation: computed with permuted
parameters, it is the same value with one axis permuted. So the network is run twice on a few inputs, once with
a group permuted, and every intermediate value of its jaxpr is compared. Of those that follow, and that
depend on the input, the last one is taken: what the group hands on to the next layer, after its non-linearity.

Calls inside the jaxpr (`jit`, `relu`'s custom derivative) are entered; loops and branches are not, but what
they return is looked at.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import Literal

from ..errors import ModelError
from ..symmetry import PermutationSpec, permute
from ..symmetry.probe import perturbed
from ..trees import Tree

Apply = Callable[[Tree, Any], Any]
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
        values = dict(enumerate(_values(apply, params, x)))
        return {group: _pick(values, place, group, spec.sizes[group]) for group, place in places.items()}

    return activations


def locate(apply: Apply, params: Tree, x: Any, spec: PermutationSpec, *, key: jax.Array) -> dict[str, Place]:
    """Returns the last value of the network that carries each group."""
    params = perturbed(jax.tree.map(np.asarray, params), key, 0.3)

    @jax.jit
    def run(params: Tree, x: Any) -> list[Any]:
        with jax.default_matmul_precision("highest"):
            return list(_values(apply, params, x))

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


def _pick(values: dict[int, Any], place: Place, group: str, size: int) -> Any:
    value = values.get(place.number)
    if value is None or value.ndim <= place.axis or value.shape[place.axis] != size:
        raise ModelError(f"the network computes group '{group}' elsewhere for this input; pass activations=")
    return jax.numpy.moveaxis(value, place.axis, -1)


def _values(apply: Apply, params: Tree, x: Any) -> Iterator[Any]:
    """Yields every value that `apply` computes, in the order of evaluation."""
    closed = jax.make_jaxpr(apply)(params, x)
    outputs: list[Any] = []
    yield from _evaluate(closed.jaxpr, closed.consts, [*jax.tree.leaves(params), *jax.tree.leaves(x)], outputs)


def _evaluate(jaxpr: Any, consts: Any, inputs: list[Any], outputs: list[Any]) -> Iterator[Any]:
    known: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    known.update(zip(jaxpr.invars, inputs, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else known[atom]

    for eqn in jaxpr.eqns:
        arguments = [read(atom) for atom in eqn.invars]
        inner = _inner(eqn)
        if inner is not None:
            results: list[Any] = []
            yield from _evaluate(inner.jaxpr, inner.consts, arguments, results)
        else:
            found = eqn.primitive.bind(*arguments, **eqn.primitive.get_bind_params(eqn.params))
            results = list(found) if eqn.primitive.multiple_results else [found]
            yield from results
        known.update(zip(eqn.outvars, results, strict=True))
    outputs.extend(read(atom) for atom in jaxpr.outvars)


def _inner(eqn: Any) -> Any:
    """The closed jaxpr of a call that does not change what is computed; None for everything else."""
    if eqn.primitive.name not in ("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call"):
        return None
    found = next((eqn.params[name] for name in ("jaxpr", "call_jaxpr") if name in eqn.params), None)
    return found if hasattr(found, "consts") else None
