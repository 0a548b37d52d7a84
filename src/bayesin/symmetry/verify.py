"""Whether units may be moved: permuted parameters must compute the same function.

`verify` asks it of a spec, at random parameters. All groups are permuted together; if that changes the output, each
of them alone, so that the failure names one. Freshly initialised leaves are often constant (zero biases, unit gains,
unit variances), and constants look the same in every order, so noise makes every entry differ; it keeps every sign,
so that a variance stays one. Rounding hides small errors, and flips discrete choices such as a routing or an argmax;
in double precision both are a billion times rarer, so that is what a model runs in here, if it can.

Signs and scales of the spec are drawn at random too, and every one alone where they fail together.

A check that cannot fail proves nothing. So every group is also broken on purpose: one of its tensors is permuted and
the others are not. Where the output does not show that, a warning says so.

`check_same_function` asks it of two given sets of parameters, after one was made from the other.
"""

import warnings
from collections.abc import Callable
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import ConfigError, InconclusiveWarning, ModelError, SpecError, SymmetryError
from ..inputs import Inputs
from ..jaxprs import Apply, check_arrays, coarsest_eps, convolves, hashable, jitted, trace
from ..randomness import check_key, generator
from ..trees import Tree, flatten, map_with_path
from .diagnose import diagnose
from .discover import Output, selecting
from .permute import move_one, multiply, permute
from .spec import Perms, PermutationSpec, Signs, factors_of

NOISE = (0.5, 0.05)  # relative noise of the parameters: the first that gives an output without NaN is used

# Trained weights are larger than those that `verify` draws, and their sums cancel more: four times its tolerance,
# 1e-4 of the largest output in single precision.
REORDERED = 4

TENSORS_TO_BREAK = 3  # of one group, before it is said that nothing shows

# Convolutions in double precision take some thirty times as long on a CPU. A break is far larger than rounding, so
# that it is looked for in single precision first, where there are enough groups to pay for a second program.
GROUPS_FOR_SINGLE = 8

TINY = 1e-3  # share of the largest entry of all below which a leaf of the output counts as tiny


def verify(
    apply: Apply,
    params: Tree,
    x: Inputs,
    spec: PermutationSpec,
    *,
    key: jax.Array,
    output: Output = None,
    tolerance: float | None = None,
    trials: int = 2,
    on_group: Callable[[int, int], None] | None = None,
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
        output: what of the result has to stay unchanged, as in `discover`.
        tolerance: largest change that counts as rounding; by default `eps ** (2/3)` of the coarsest floating-
            point type that the computation goes through: 4e-11 in double, 2e-5 in single precision.
        trials: how often everything is drawn anew.
        on_group: called with the number of groups that were broken on purpose so far, and of all.

    Warns:
        InconclusiveWarning: a group could be wrong, and these parameters and inputs would not show it.

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
        _check_no_nan(tree, what)
    if spec.check(params):
        raise SpecError("verify takes one set of parameters, not a stack of them; pass one member")
    run = DoublePrecisionApply(selecting(apply, output), params, x)
    limit = run.eps ** (2 / 3) if tolerance is None else tolerance
    worst = 0.0
    for trial in range(trials):
        trial_key = jax.random.fold_in(key, trial)
        draw = _Draw(run, params, x, trial_key)
        alone: Perms = {g: _some_moved(generator(trial_key, "alone", g), spec.perm_shape(g)) for g in spec.sizes}
        for perms in (spec.random(trial_key), alone):
            gap = draw.gap(spec, perms)
            worst = max(worst, gap)
            if gap > limit:
                raise _failure(draw, spec, alone, limit, gap)
        worst = max(worst, _check_multipliers(draw, spec, trial_key, limit))
        if trial == 0:
            quick = None
            if run.convolves and run.double and len(spec.sizes) >= GROUPS_FOR_SINGLE:
                with suppress(ModelError):  # numbers that single precision cannot hold
                    quick = _Draw(run.in_single(), params, x, trial_key)
            _prove_power(draw, quick, spec, alone, limit, on_group)
    return worst


def check_same_function(apply: Apply, before: Tree, after: Tree, x: Inputs) -> float:
    """Returns by how much the outputs on `x` differ between two sets of parameters, relative to the largest.

    The check after units were moved: both compute one function, up to the rounding of sums in another order. Where
    `verify` asks whether a spec holds at all, this asks whether it held for these parameters, in the precision in
    which the network is used (matrix products in the highest one, so as not to hide a change behind their error).

    Raises:
        SymmetryError: the outputs differ by more than rounding can explain.
        ModelError: `apply` fails on the input, or its output holds NaN.

    Example:
        >>> params = {"w0": np.eye(3), "w1": np.ones((3, 2))}
        >>> swapped = {"w0": params["w0"][:, [1, 0, 2]], "w1": params["w1"][[1, 0, 2]]}
        >>> def apply(params, x):
        ...     return jax.numpy.tanh(x @ params["w0"]) @ params["w1"]
        >>> check_same_function(apply, params, swapped, np.ones((2, 3)))
        0.0
    """
    with jax.default_matmul_precision("highest"):
        eps = coarsest_eps(trace(apply, before, x).jaxpr) or float(jnp.finfo(jnp.float32).eps)
        function = hashable(apply)
        run = jitted(function)
        outputs = [[widened(np.asarray(leaf)) for leaf in jax.tree.leaves(run(tree, x))] for tree in (before, after)]
    if any(np.isnan(leaf).any() for leaf in outputs[0]):
        raise ModelError("the output holds NaN before any unit is moved; nothing can be compared")
    change, tolerance = _change(*outputs), REORDERED * eps ** (2 / 3)
    if not change <= tolerance:
        raise SymmetryError(
            f"the network computes another function after its units were moved: outputs changed by {change:.1e} of "
            f"their largest (tolerance {tolerance:.1e}); the spec is wrong for this model, discover it again"
        )
    return change


def perturbed(params: Tree, key: jax.Array, noise: float) -> Tree:
    """Returns the parameters with relative noise; shapes without values get random ones."""

    def perturb(path: str, leaf: Any) -> Any:
        draws = generator(key, "params", path)
        leaf = _like_a_weight(leaf, draws) if isinstance(leaf, jax.ShapeDtypeStruct) else leaf
        if not _is_inexact(leaf):
            return leaf
        values, normal = widened(leaf), draws.standard_normal(leaf.shape)
        return np.where(values == 0, noise * np.abs(normal), values * np.exp(noise * normal)).astype(leaf.dtype)

    return map_with_path(perturb, params)


class DoublePrecisionApply:
    """A compiled `apply` in double precision where possible.

    Attributes:
        double: whether parameters and inputs are widened. A model with single precision written into a loop
            refuses that, and runs as it is.
        eps: the coarsest spacing of floating point numbers that the computation rounds to.
        convolves: whether there is a convolution in it.
    """

    def __init__(self, apply: Apply, params: Tree, x: Any, double: bool = True):
        shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), (params, x))
        self.double = double
        try:
            with self.precision():
                jaxpr = trace(apply, *(widened(shapes) if double else shapes))
        except ModelError:
            if not double:
                raise
            self.double = False
            with self.precision():
                jaxpr = trace(apply, *shapes)
        self.eps = coarsest_eps(jaxpr.jaxpr) or float(jnp.finfo(jnp.float32).eps)
        self.convolves = convolves(jaxpr.jaxpr)
        self.in_single = partial(DoublePrecisionApply, apply, params, x, double=False)
        self._network = hashable(apply)

    def prepared(self, tree: Tree) -> Tree:
        """Returns parameters or inputs on the device, in the precision in which the model runs."""
        with self.precision():
            return jax.tree.map(jnp.asarray, widened(tree) if self.double else tree)

    def __call__(self, params: Tree, x: Any) -> list[np.ndarray]:
        """Returns the leaves of the output, of prepared parameters and inputs, in double precision."""
        with self.precision():
            return [widened(np.asarray(leaf)) for leaf in jax.tree.leaves(jitted(self._network)(params, x))]

    @contextmanager
    def precision(self):
        """Where arrays may be double, and products are as precise as can be."""
        with ExitStack() as stack:
            stack.enter_context(jax.default_matmul_precision("highest"))
            if self.double:
                stack.enter_context(jax.enable_x64(True))
            yield


def widened(tree: Tree) -> Tree:
    """Returns the tree, of arrays or shapes, with all real and complex leaves in double precision."""
    return jax.tree.map(_widen, tree)


class _Draw:
    """One draw of parameters and an input, with the output that every permutation must reproduce."""

    def __init__(self, run: DoublePrecisionApply, params: Tree, x: Any, key: jax.Array):
        self.eps = run.eps
        self._run, self._x = run, run.prepared(_filled(x, key))
        for noise in NOISE:
            self._params = run.prepared(perturbed(params, key, noise))
            self._output = run(self._params, self._x)
            if not any(np.isnan(leaf).any() for leaf in self._output):
                return
        raise ModelError("the output holds NaN, at parameters near those given; nothing can be verified")

    def gap(self, spec: PermutationSpec, perms: Perms, signs: Signs | None = None) -> float:
        """The change of the output, relative to its largest entry."""
        with self._run.precision():
            moved = permute(self._params, spec, perms, signs)
        return _change(self._output, self._run(moved, self._x))

    def gap_of_scales(self, spec: PermutationSpec, scales: dict[str, np.ndarray]) -> float:
        """The same where units are multiplied."""
        with self._run.precision():
            scaled = jax.tree.map(jnp.asarray, multiply(self._params, spec, scales))
        return _change(self._output, self._run(scaled, self._x))

    def gap_of_one(self, path: str, change: Callable[[np.ndarray], np.ndarray]) -> float:
        """The change of the output when one parameter alone is changed."""
        with self._run.precision():
            changed = map_with_path(lambda p, a: jnp.asarray(change(np.asarray(a))) if p == path else a, self._params)
        return _change(self._output, self._run(changed, self._x))


def _check_multipliers(draw: _Draw, spec: PermutationSpec, key: jax.Array, tolerance: float) -> float:
    """The largest change under random signs, with random permutations, and under random scales."""
    signs: Signs = {
        group: _some_flipped(generator(key, "signs", group), spec.perm_shape(group)) for group in spec.signed
    }
    scales = {
        name: np.exp(generator(key, "scales", name).uniform(-0.7, 0.7, spec.perm_shape(group)))
        for name, group in spec.scaled.items()
    }
    gaps = [draw.gap(spec, spec.random(key), signs)] if signs else []
    gaps += [draw.gap_of_scales(spec, scales)] if scales else []
    if max(gaps, default=0.0) <= tolerance:
        return max(gaps, default=0.0)
    for what, values in (("signs", signs), ("scale", scales)):
        for name, value in values.items():
            gap = (
                draw.gap(spec, spec.identity(), {name: value})
                if what == "signs"
                else draw.gap_of_scales(spec, {name: np.asarray(value)})
            )
            if gap > tolerance:
                whose = f"the signs of group '{name}'" if what == "signs" else f"the scale '{name}'"
                raise SymmetryError(
                    f"{whose} are no symmetry: the output changes by {gap:.1e} of its largest entry "
                    f"(tolerance {tolerance:.1e}); discover the spec of this model again"
                )
    raise SymmetryError(
        f"every sign and scale holds alone, but together they change the output by {max(gaps):.1e} of its largest "
        f"entry (tolerance {tolerance:.1e})"
    )


def _some_flipped(draws: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Random signs, of which at least one is −1 and, where there are several, one is 1."""
    signs = draws.choice(np.array([1, -1], np.int8), shape)
    flat = signs.reshape(-1)
    flat[draws.permutation(flat.size)[:2]] = [-1, 1][: min(2, flat.size)]
    return signs


def _failure(draw: _Draw, spec: PermutationSpec, alone: Perms, tolerance: float, together: float) -> SymmetryError:
    """What to say of groups that change the output by more than the tolerance."""
    for group in spec.sizes:
        perms = {**spec.identity(), group: alone[group]}
        gap = draw.gap(spec, perms)
        if gap > tolerance:
            return SymmetryError(
                f"group '{group}' is not a symmetry: permuting it changes the output by {gap:.1e} of its largest "
                f"entry (tolerance {tolerance:.1e}); {diagnose(draw.gap, spec, perms, group)}"
            )
    return SymmetryError(
        f"each group holds alone, but permuting all of them at once changes the output by {together:.1e} of its "
        f"largest entry (tolerance {tolerance:.1e})"
    )


def _prove_power(
    draw: _Draw,
    quick: _Draw | None,
    spec: PermutationSpec,
    alone: Perms,
    tolerance: float,
    on_group: Callable[[int, int], None] | None,
) -> None:
    """Warns of groups that could be wrong without any of it being seen.

    One tensor of a group is moved without the others, the largest first; some tensors do not count at all, such as
    the bias of a key in attention, so that a few are tried. Of what `quick` shows beyond its rounding, `draw` is not
    asked.
    """
    hidden: dict[str, float] = {}
    for number, group in enumerate(spec.sizes):
        perms = {**spec.identity(), group: alone[group]}
        places = [(p, list(factors_of(spec.axes[p][i]))[place].flips) for p, i, place in spec.touched_by(group)]
        settings: list[Signs] = [{}]
        if group in spec.signed:
            settings.append({group: _some_flipped(np.random.default_rng(0), spec.perm_shape(group))})
        for signs in settings:
            order = spec.identity() if signs else perms
            paths = dict.fromkeys(path for path, flips in places if flips or not signs)
            move = partial(move_one, spec=spec, perms=order, signs=signs)
            gaps = [0.0]
            for path in sorted(paths, key=lambda path: -int(np.prod(spec.shape(path))))[:TENSORS_TO_BREAK]:
                # Units of one tensor alone have nothing to be out of step with: there any change will do.
                change = partial(_shaken, path) if len(paths) == 1 else partial(move, path=path)
                if quick is not None and quick.gap_of_one(path, change) > max(tolerance, quick.eps ** (2 / 3)):
                    break
                gaps.append(draw.gap_of_one(path, change))
                if gaps[-1] > tolerance:
                    break
            else:
                hidden[group] = max(gaps)
        if on_group is not None:
            on_group(number + 1, len(spec.sizes))
    if hidden:
        names = ", ".join(list(hidden)[:5]) + (f" and {len(hidden) - 5} more" if len(hidden) > 5 else "")
        warnings.warn(
            f"inconclusive: {len(hidden)} of {len(spec.sizes)} groups ({names}) could be wrong without its being "
            f"seen: one tensor moved alone changes the output by {max(hidden.values()):.1e} of its largest entry "
            f"(tolerance {tolerance:.1e}); pass trained parameters or larger random ones, more inputs, or a model "
            "that computes in double precision",
            InconclusiveWarning,
            stacklevel=3,
        )


def _shaken(path: str, array: np.ndarray) -> np.ndarray:
    """Other numbers in the place of those given."""
    return perturbed({path: array}, jax.random.key(0), NOISE[0])[path]


def _some_moved(draws: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Random permutations in which no unit stays where it is; of an indexed group at every second position only.

    Were all of its permutations alike, as those of two units are, an index that is not there would not be missed.
    """
    order = draws.permuted(np.broadcast_to(np.arange(shape[-1]), shape), axis=-1)
    perm = np.empty_like(order)
    np.put_along_axis(perm, order, np.roll(order, 1, axis=-1), axis=-1)
    outer = int(np.prod(shape[:-1]))
    if outer > 1:
        still = draws.permutation(outer)[: outer // 2]
        perm.reshape(outer, -1)[still] = np.arange(shape[-1])
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


def _filled(x: Any, key: jax.Array) -> Any:
    """Returns an input with values: those given, or random ones for shapes and for arrays all of one value."""

    def fill(path: str, leaf: Any) -> Any:
        draws = generator(key, "x", path)
        is_shape = isinstance(leaf, jax.ShapeDtypeStruct)
        if not _is_inexact(leaf):
            # Zeros and ones are tokens, labels and masks of any model.
            return draws.integers(0, 2, leaf.shape).astype(leaf.dtype) if is_shape else leaf
        if is_shape or (leaf.size > 1 and np.ptp(np.abs(widened(leaf))) == 0):
            return draws.standard_normal(leaf.shape).astype(leaf.dtype)
        return leaf

    return map_with_path(fill, x)


def _like_a_weight(shape: jax.ShapeDtypeStruct, draws: np.random.Generator) -> np.ndarray:
    """Kernels of a scale that keeps activations in range; vectors positive, for they may be variances.

    A vector may have axes of length one around it, as the statistics of Haiku's norms of images do.
    """
    if not _is_inexact(shape):
        return np.zeros(shape.shape, shape.dtype)
    if sum(size > 1 for size in shape.shape) < 2:
        return np.ones(shape.shape, shape.dtype)
    return (draws.standard_normal(shape.shape) / np.prod(shape.shape[:-1]) ** 0.5).astype(shape.dtype)


def _check_no_nan(tree: Tree, what: str) -> None:
    """Raises `ModelError` naming the first leaf that holds NaN."""
    for path, leaf in flatten(tree).items():
        if _is_inexact(leaf) and not isinstance(leaf, jax.ShapeDtypeStruct):
            count = int(np.isnan(widened(leaf)).sum())
            if count:
                where = f"{what}: '{path}'" if path else what
                raise ModelError(f"{where} holds NaN in {count} of {leaf.size} entries")


def _widen(leaf: Any) -> Any:
    if not _is_inexact(leaf):
        return leaf
    wide = np.complex128 if jnp.issubdtype(leaf.dtype, jnp.complexfloating) else np.float64
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return jax.ShapeDtypeStruct(leaf.shape, wide)
    return np.asarray(leaf).astype(wide)


def _is_inexact(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.inexact)
