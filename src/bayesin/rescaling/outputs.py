"""The outputs of a network as one more group of units, which are rescaled but never permuted.

What averaging takes from hidden units it takes from outputs as well: half-way between two classifiers logits vary
less than at either end, and the network is less sure than it should be. Which parameters carry the outputs is found
like any group: a function of the outputs that does not see their order leaves theirs free.
"""

import warnings
from dataclasses import replace
from typing import Any

import jax.numpy as jnp

from ..errors import LeftBehindWarning
from ..jaxprs import Apply, output_shapes
from ..symmetry import Axis, Factor, PermutationSpec, discover
from ..trees import Tree

OUTPUTS = "outputs"  # the name of their group


def with_outputs(spec: PermutationSpec, apply: Apply, params: Tree, x: Any) -> PermutationSpec:
    """Returns the spec with the outputs as a group; as it is where they are tied to other units or to inputs."""
    found = output_shapes(apply, params, x)
    if not hasattr(found, "shape") or found.ndim < 2 or not jnp.issubdtype(found.dtype, jnp.floating):
        return spec
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LeftBehindWarning)  # the network's own spec has said it
        free = discover(lambda params, x: jnp.sum(jnp.square(apply(params, x)), -1), params, x)
    axes, known = spec.axes, set(spec.sizes) | set(spec.fixed_factors)
    # A network may have a group of that name already.
    name = next(name for name in (OUTPUTS, *(f"{OUTPUTS}{n}" for n in range(len(known)))) if name not in known)
    for group, size in free.sizes.items():
        places = {(path, axis) for path, axis, _ in free.touched_by(group)}
        if size == found.shape[-1] and all(_is_fixed(axes[path][axis], size) for path, axis in places):
            changed = {
                path: tuple(
                    ((Factor(size, name),),) if (path, at) in places else axis for at, axis in enumerate(of_path)
                )
                for path, of_path in axes.items()
            }
            return replace(spec, parameters=tuple(changed.items()))
    return spec


def _is_fixed(axis: Axis, size: int) -> bool:
    """Whether an axis is one fixed factor of this size."""
    return axis == ((Factor(size),),)
