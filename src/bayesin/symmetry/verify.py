"""Whether a spec holds: permuted parameters must compute the same function.

Every group is permuted alone, so that a failure names it, and then all of them together.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ..errors import ConfigError, ModelError, SpecError, SymmetryError
from ..keys import check_key
from ..trees import Tree
from .blame import blame
from .exact import Exact
from .permute import permute
from .probe import check_no_nan, filled, perturbed
from .randomness import generator
from .spec import Perms, PermutationSpec
from .trace import check_arrays

NOISE = (0.5, 0.05)  # relative noise of the parameters: the first that gives an output without NaN is used

TINY = 1e-3  # share of the largest entry of all below which a leaf of the output counts as tiny


def verify(
    apply: Callable[[Any, Any], Any],
    params: Tree,
    x: Any,
    spec: PermutationSpec,
    *,
    key: jax.Array,
    tolerance: float | None = None,
    trials: int = 2,
) -> float:
    """Returns the largest change of the output under permutations of the spec, relative to its largest entry.

    Parameters are given noise first, since constant ones look the same in every order, and the model runs in
    double precision where it can.

    Args:
        apply: the function whose symmetry the spec describes.
        params: arrays, or `jax.ShapeDtypeStruct` objects, which get random values.
        x: one input; `jax.ShapeDtypeStruct` objects, and arrays of one value, get random values.
        spec: what to check.
        key: random key of noise, inputs and permutations.
        tolerance: largest change that counts as rounding; by default `eps ** (2/3)` of the coarsest floating
            point type that the computation goes through: 4e-11 in double, 2e-5 in single precision.
        trials: how often everything is drawn anew.

    Raises:
        SymmetryError: a group, or all of them together, change the output.
        SpecError: the spec does not fit the parameters.
        ModelError: `apply` cannot be traced, or its output holds NaN.

    Example:
        >>> params = {"w0": np.ones((4, 8)), "w1": np.ones((8, 3))}
        >>> spec = PermutationSpec.parse({"w0": ["4", "g0"], "w1": ["g0", "3"]}, {"g0": 8})
        >>> def apply(params, x):
        ...     return jax.numpy.tanh(x @ params["w0"]) @ params["w1"]
        >>> verify(apply, params, np.ones((2, 4)), spec, key=jax.random.key(0)) < 1e-10
        True
    """
    check_key(key)
    if trials < 1:
        raise ConfigError(f"verify needs at least one trial, not {trials}")
    for tree, what in ((params, "params"), (x, "x")):
        check_arrays(tree, what)
        check_no_nan(tree, what)
    if spec.check(params):
        raise SpecError("verify takes one set of parameters, not a stack of them; pass one member")
    run = Exact(apply, params, x)
    limit = run.eps ** (2 / 3) if tolerance is None else tolerance
    worst = 0.0
    for trial in range(trials):
        trial_key = jax.random.fold_in(key, trial)
        draw = _Draw(run, params, x, trial_key)
        for group, size in spec.sizes.items():
            perms = spec.identity() | {group: _cycle(generator(trial_key, "alone", group), size)}
            worst = max(worst, _check(draw, spec, perms, group, limit))
        worst = max(worst, _check(draw, spec, spec.random(trial_key), None, limit))
    return worst


class _Draw:
    """One draw of parameters and an input, with the output that every permutation must reproduce."""

    def __init__(self, run: Exact, params: Tree, x: Any, key: jax.Array):
        self._run, self._x = run, filled(x, key)
        for noise in NOISE:
            self._params = perturbed(params, key, noise)
            self._output = run(self._params, self._x)
            if not any(np.isnan(leaf).any() for leaf in self._output):
                return
        raise ModelError("the output holds NaN, at parameters near those given; nothing can be verified")

    def gap(self, spec: PermutationSpec, perms: Perms) -> float:
        """The change of the output, relative to its largest entry."""
        return _change(self._output, self._run(permute(self._params, spec, perms), self._x))


def _check(draw: _Draw, spec: PermutationSpec, perms: Perms, group: str | None, tolerance: float) -> float:
    gap = draw.gap(spec, perms)
    if gap <= tolerance:
        return gap
    change = f"changes the output by {gap:.1e} of its largest entry (tolerance {tolerance:.1e})"
    if group is None:
        raise SymmetryError(f"each group holds alone, but permuting all of them at once {change}")
    raise SymmetryError(
        f"group '{group}' is no symmetry: permuting it {change}; {blame(draw.gap, spec, perms, group)}"
    )


def _cycle(draws: np.random.Generator, size: int) -> np.ndarray:
    """A random permutation in which no unit stays where it is."""
    order = draws.permutation(size)
    perm = np.empty_like(order)
    perm[order] = np.roll(order, 1)
    return perm


def _change(before: list[np.ndarray], after: list[np.ndarray]) -> float:
    """The largest change of any leaf, relative to the largest entry of that leaf.

    A leaf that is tiny beside the others, such as a sum that happens to cancel, is measured by them.
    """
    largest = [float(np.abs(leaf[np.isfinite(leaf)]).max(initial=0)) for leaf in before]
    scales = [max(own, TINY * max(largest)) or 1 for own in largest]
    return max(_difference(*leaves) / scale for *leaves, scale in zip(before, after, scales, strict=True))


def _difference(before: np.ndarray, after: np.ndarray) -> float:
    finite = np.isfinite(before)
    if not np.array_equal(before[~finite], after[~finite]) or not np.isfinite(after[finite]).all():
        return float("inf")
    return float(np.abs(before[finite] - after[finite]).max(initial=0))
