"""One representative of all networks that differ by scales of their units alone.

A unit before a ReLU may be multiplied by any positive number, if what reads it is divided by it: the function stays
as it is, and every distance between weights changes. Of all such networks the canonical one has the least

    Σ mean² + std²        over all weights.

In the logarithms of the scales that is a sum of exponentials, which is convex: there is one least value, and a
search from anywhere finds it. There every unit is balanced: with one scale, what goes into it has the norm of what
comes out of it, which is also where weight decay drives a network. References: Neyshabur et al. 2015, Stock et al.
2019 (points).
"""

from collections.abc import Iterator
from typing import Any, TypeVar

import jax
import numpy as np

from ..errors import PosteriorError
from ..symmetry import Layout, PermutationSpec, layouts, multiply
from ..trees import Tree, flatten, is_float, stacked
from .factor import FactorGaussian
from .gaussian import Gaussian
from .lowrank import LowRankGaussian
from .mixture import GaussianMixture
from .protocol import is_posterior
from .samples import Samples

Family = TypeVar("Family")  # a family of this library, or a parameter tree
STEPS = 500  # of the search for the least norm; some tens are enough for the networks that were tried


def canonical(posterior: Family, spec: PermutationSpec) -> Family:
    """Returns the same network, or distribution of networks, with balanced scales; units stay in their order.

    Mean and std are multiplied alike, so that draws compute what they did before, to rounding. Samples and the
    components of a mixture are balanced each on its own. A unit without any weight on one side keeps its scale.

    Args:
        posterior: a posterior of this library, or a point as a plain parameter tree.
        spec: found with `discover(…, scales=True)`.

    Raises:
        SpecError: the spec does not fit the parameters.
        PosteriorError: the spec has no scales, or the posterior is of a class of its own.

    Example:
        >>> spec = PermutationSpec.parse({"w0": ["1", "g0{s0}"], "w1": ["g0{-s0}", "1"]}, {"g0": 2})
        >>> found = canonical({"w0": np.array([[4.0, 1.0]]), "w1": np.array([[1.0], [9.0]])}, spec)
        >>> found["w0"].round(3).tolist(), found["w1"].round(3).tolist()
        ([[2.0, 3.0]], [[2.0], [3.0]])
    """
    if not spec.scaled:
        raise PosteriorError("the spec has no scales; find them with discover(…, scales=True)")
    return _balanced(posterior, spec)


def _balanced(posterior: Any, spec: PermutationSpec) -> Any:
    if isinstance(posterior, Samples | GaussianMixture):
        return _each(posterior, spec)
    if not is_posterior(posterior):
        return multiply(posterior, spec, _balancing(posterior, None, spec))
    scales = _balancing(posterior.mean, posterior.std, spec)
    mean = multiply(posterior.mean, spec, scales)
    if isinstance(posterior, Gaussian):
        return Gaussian(mean, multiply(posterior.std, spec, scales))
    if isinstance(posterior, LowRankGaussian):
        return LowRankGaussian(mean, multiply(posterior.factors, spec, scales))
    if isinstance(posterior, FactorGaussian):
        return FactorGaussian(mean, *(multiply(part, spec, scales) for part in (posterior.factors, posterior.noise)))
    raise PosteriorError(f"canonical does not know the parts of a {type(posterior).__name__}; pass its mean")


def _each(posterior: Samples | GaussianMixture, spec: PermutationSpec) -> Samples | GaussianMixture:
    def member(tree: Tree, index: int) -> Tree:
        return jax.tree.map(lambda leaf: leaf[index], tree)

    if isinstance(posterior, Samples):
        trees = [member(posterior.params, index) for index in range(len(posterior))]
        return Samples(stacked([canonical(tree, spec) for tree in trees]))
    count = len(posterior.weights)
    parts = [canonical(Gaussian(member(posterior.means, i), member(posterior.stds, i)), spec) for i in range(count)]
    return GaussianMixture(stacked([q.mean for q in parts]), stacked([q.std for q in parts]), posterior.weights)


def _balancing(mean: Tree, std: Tree | None, spec: PermutationSpec) -> dict[str, np.ndarray]:
    """The scales of least norm, by name."""
    spec.check(mean)
    shapes = {name: spec.perm_shape(group) for name, group in spec.scaled.items()}
    starts = dict(zip(shapes, np.cumsum([0, *(int(np.prod(shape)) for shape in shapes.values())]), strict=False))
    size = sum(int(np.prod(shape)) for shape in shapes.values())
    terms = [
        (squares, [(starts[name], shapes[name], places, power) for name, places, power in powers])
        for squares, powers in _squares(mean, std, spec)
    ]

    def norm(logs: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """The sum, its gradient, and what of it rises and falls with every scale."""
        total, up, down = 0.0, np.zeros(size), np.zeros(size)
        for squares, powers in terms:
            exponent = np.zeros(squares.shape)
            for start, shape, places, power in powers:
                exponent += (
                    2 * power * _put(logs[start : start + int(np.prod(shape))].reshape(shape), places, squares)
                )
            scaled = squares * np.exp(exponent)
            total += float(scaled.sum())
            for start, _, places, power in powers:
                others = tuple(axis for axis in range(squares.ndim) if axis not in places)
                share = scaled.sum(others).transpose(np.argsort(np.argsort(places))).reshape(-1)
                (up if power > 0 else down)[start : start + share.size] += 2 * abs(power) * share
        return total, up, down

    whole, up, down = norm(np.zeros(size))
    whole = whole or 1.0  # of a network without weights, or with zeros alone
    held = (up == 0) | (down == 0)  # without weights on one side nothing says how large the other should be

    def of(logs: np.ndarray) -> tuple[float, np.ndarray]:
        total, up, down = norm(logs)
        return total / whole, np.where(held, 0.0, (up - down) / whole)

    # First by the scales of each unit alone, which is exact where units do not depend on one another.
    start = np.where(held, 0.0, 0.25 * np.log(np.where(held, 1.0, down) / np.where(held, 1.0, up)))
    start = start if of(start)[0] < 1 else np.zeros(size)
    options = {"maxiter": STEPS, "maxfun": 4 * STEPS, "ftol": 1e-15, "gtol": 1e-10}
    from scipy.optimize import minimize  # a third of the time that importing this module takes

    logs = minimize(of, start, jac=True, method="L-BFGS-B", options=options).x
    return {
        name: np.exp(logs[starts[name] : starts[name] + int(np.prod(shape))]).reshape(shape)
        for name, shape in shapes.items()
    }


Powers = list[tuple[str, tuple[int, ...], int]]  # (scale, axes that count its units, power)


def _squares(mean: Tree, std: Tree | None, spec: PermutationSpec) -> Iterator[tuple[np.ndarray, Powers]]:
    """Squares of the weights of every piece that a scale multiplies, summed over the factors that none does."""
    stds = {} if std is None else flatten(std)
    weights = {path: np.asarray(leaf, np.float64) for path, leaf in flatten(mean).items() if is_float(leaf.dtype)}
    spreads = {path: np.asarray(stds[path], np.float64) for path in weights if path in stds}
    # One number that divides all changes no scale, and keeps squares from overflowing or vanishing.
    parts = [leaf for leaf in (*weights.values(), *spreads.values()) if leaf.size]
    largest = max((float(np.abs(leaf).max()) for leaf in parts), default=0.0) or 1.0
    for path, leaf in weights.items():
        for piece in layouts(spec)[path]:
            if not any(piece.scales):
                continue
            squares = piece.factored(leaf / largest) ** 2
            if path in spreads:
                squares = squares + piece.factored(spreads[path] / largest) ** 2
            yield _summed(squares, piece)


def _summed(squares: np.ndarray, piece: Layout) -> tuple[np.ndarray, Powers]:
    powers = [
        (name, (*piece.outer[place], place), power)
        for place, scales in enumerate(piece.scales)
        for name, power in scales
    ]
    kept = sorted({axis for _, places, _ in powers for axis in places})
    squares = squares.sum(tuple(axis for axis in range(squares.ndim) if axis not in kept))
    return squares, [(name, tuple(map(kept.index, places)), power) for name, places, power in powers]


def _put(values: np.ndarray, places: tuple[int, ...], like: np.ndarray) -> np.ndarray:
    """An array with its axes at given places among those of another."""
    shape = [like.shape[axis] if axis in places else 1 for axis in range(like.ndim)]
    return values.transpose(np.argsort(places)).reshape(shape)
