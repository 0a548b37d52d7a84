"""A network with a gain and a bias for every unit of groups that have none: a correction inside `apply`.

Where a layer has no parameters that could map its units, as one without biases, the map stands behind the value
itself. The parameters are then `{"network": the network's, "units": {number of the site: {"gain", "bias"}}}`, with
gains of one and biases of zero at the ends, where the network computes what it did. What is mapped is found like any
gain and bias, so that the rest of rescaling sees a network like any other.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from ..jaxprs import Apply, evaluate, follow, output_shapes
from ..paths import as_gaussian
from ..posteriors import Gaussian
from ..symmetry import Factor, PermutationSpec, Site, find_sites, groups_without_map
from ..trees import Tree


@dataclass(frozen=True)
class Corrected:
    """The network with gains and biases at some sites, a function of its parameters and theirs."""

    network: Apply
    sites: tuple[Site, ...]

    def __call__(self, params: Tree, x: Any) -> Any:
        """What the network returns when the units at the sites are mapped."""
        inner, maps = params["network"], {site.number: params["units"][str(at)] for at, site in enumerate(self.sites)}
        by_value, count = {site.number: site for site in self.sites}, 0

        def step(equation: Any, inputs: list[Any]) -> list[Any]:
            nonlocal count
            outputs = evaluate(equation, inputs)
            for at in range(len(outputs)):
                if count in by_value:
                    outputs[at] = _mapped(outputs[at], by_value[count], **maps[count])
                count += 1
            return outputs

        flat = follow(self.network, inner, x, [*jax.tree.leaves(inner), *jax.tree.leaves(x)], step)
        return jax.tree.unflatten(jax.tree.structure(output_shapes(self.network, inner, x)), flat)

    def posterior(self, inner: Gaussian, sizes: dict[str, int]) -> Gaussian:
        """The posterior of the network with maps that change nothing, which are certain."""
        shapes = [tuple(sizes[group] for group in site.groups) for site in self.sites]
        units = {str(at): {"gain": jnp.ones(shape), "bias": jnp.zeros(shape)} for at, shape in enumerate(shapes)}
        return Gaussian(
            {"network": inner.mean, "units": units},
            {"network": inner.std, "units": jax.tree.map(jnp.zeros_like, units)},
        )

    def spec(self, inner: PermutationSpec) -> PermutationSpec:
        """The groups of the network, with the gains and biases of their units."""
        parameters = [(f"network/{path}", axes) for path, axes in inner.parameters]
        for at, site in enumerate(self.sites):
            # Permuted like any parameter: a corrected posterior can be aligned and saved as the network's own.
            axes = tuple(((Factor(inner.sizes[g], g, outer=inner.outer(g)),),) for g in site.groups)
            parameters += [(f"units/{at}/gain", axes), (f"units/{at}/bias", axes)]
        return PermutationSpec(tuple(parameters))


def corrected_where_needed(
    path: Callable[[float], Any], apply: Apply, x: Any, spec: PermutationSpec
) -> tuple[Callable[[float], Any], Apply, PermutationSpec]:
    """Path, network and groups as they are, or with gains and biases for the groups that have none."""
    mean = as_gaussian(path(0.0)).mean
    sites = find_sites(apply, mean, x, spec).joined
    lacking = set(groups_without_map(sites, mean, x, spec))
    if not lacking:
        return path, apply, spec
    network = Corrected(apply, tuple(site for site in sites.sites if set(site.groups) & lacking))
    return lambda tau: network.posterior(as_gaussian(path(tau)), spec.sizes), network, network.spec(spec)


def _mapped(value: Any, site: Site, gain: Any, bias: Any) -> Any:
    """`gain · value + bias`, one of each for every unit."""
    order = sorted(range(len(site.axes)), key=lambda at: site.axes[at])
    shape = [size if axis in site.axes else 1 for axis, size in enumerate(value.shape)]
    wide = [part.transpose(order).reshape(shape).astype(value.dtype) for part in (gain, bias)]
    return value * wide[0] + wide[1]
