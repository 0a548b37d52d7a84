"""Priors over the weights: independent normals, one centre and one variance for each weight.

    Isotropic   N(c, v) on every weight; c is zero, or where a norm gain starts
    FanIn       N(0, v / fan-in) on kernels, N(0, v) on everything else (He et al. 2015; Neal 1996)

A prior of your own is an object with one method, `moments(start) -> (centre, variance)`: two trees like the
parameters, whose leaves are arrays of the leaf's shape or plain numbers. `start` is a parameter tree that holds
the initial value of every leaf that starts at the same value whatever the key (norm gains at 1) and zeros elsewhere.
"""

import math
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import ConfigError, ModelError
from ..trees import Tree, flatten


@runtime_checkable
class Prior(Protocol):
    """What every prior has.

    Example:
        >>> class Narrow:  # one of your own: means and variances as trees like the start
        ...     def moments(self, start):
        ...         return jax.tree.map(lambda leaf: 0.0, start), jax.tree.map(lambda leaf: 0.01, start)
        >>> Narrow().moments({"w": np.ones(2)})
        ({'w': 0.0}, {'w': 0.01})
    """

    def moments(self, start: Tree) -> tuple[Tree, Tree]:
        """Returns centre and variance of every weight, as trees like `start`."""
        ...


@dataclass(frozen=True)
class Isotropic:
    """One variance for all weights.

    Example:
        >>> Isotropic(0.5, centre="zero").moments({"gain": np.ones(2)})
        ({'gain': 0.0}, {'gain': 0.5})
    """

    variance: float = 0.01
    centre: Literal["initial", "zero"] = "initial"

    def __post_init__(self):
        if not (math.isfinite(self.variance) and self.variance > 0) or self.centre not in ("initial", "zero"):
            raise ConfigError(f"a prior needs a positive variance and a centre, initial or zero, not {self}")

    def moments(self, start: Tree) -> tuple[Tree, Tree]:
        centre = start if self.centre == "initial" else jax.tree.map(lambda leaf: 0.0, start)
        return centre, jax.tree.map(lambda leaf: self.variance, start)


@dataclass(frozen=True)
class FanIn:
    """Variance over the number of inputs of a unit, so that activations keep their size whatever the width.

    A leaf with two or more axes is a kernel. Its last axis counts the outputs in Flax, Haiku and plain JAX; its first
    one in PyTorch and Equinox, which `outputs="first"` says.

    Example:
        >>> FanIn(2.0).moments({"kernel": np.zeros((4, 8))})[1]
        {'kernel': 0.5}
        >>> FanIn(2.0, outputs="first").moments({"weight": np.zeros((8, 4))})[1]
        {'weight': 0.5}
    """

    variance: float = 1.0
    outputs: Literal["last", "first"] = "last"

    def __post_init__(self):
        if not (math.isfinite(self.variance) and self.variance > 0) or self.outputs not in ("last", "first"):
            raise ConfigError(f"a prior needs a positive variance, and outputs last or first, not {self}")

    def moments(self, start: Tree) -> tuple[Tree, Tree]:
        def variance(leaf: jax.Array) -> float:
            shape = jnp.shape(leaf)
            inputs = shape[:-1] if self.outputs == "last" else shape[1:]
            return self.variance / math.prod(inputs) if len(shape) > 1 else self.variance

        return start, jax.tree.map(variance, start)


def checked_moments(prior: Prior, start: Tree) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Returns centre and variance of every floating leaf by path, each of the leaf's shape, in float32.

    Raises:
        ModelError: the prior's trees are not like the parameters.
        ConfigError: a variance is not positive, or a centre not finite.
    """
    centre, variance = (flatten(tree) for tree in prior.moments(start))
    found: tuple[dict[str, np.ndarray], dict[str, np.ndarray]] = {}, {}
    for path, leaf in flatten(start).items():
        if not jnp.issubdtype(jnp.asarray(leaf).dtype, jnp.floating):
            continue
        for name, given, kept in (("centre", centre, found[0]), ("variance", variance, found[1])):
            if path not in given or np.shape(given[path]) not in ((), np.shape(leaf)):
                raise ModelError(f"the prior's {name} does not fit '{path}' of shape {np.shape(leaf)}")
            kept[path] = np.broadcast_to(np.asarray(given[path], np.float32), np.shape(leaf))
        if not np.isfinite(found[0][path]).all() or not (found[1][path] > 0).all():
            raise ConfigError(f"the prior of '{path}' needs a finite centre and a positive variance everywhere")
    return found
