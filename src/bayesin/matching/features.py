"""What two posteriors are compared on: the terms of the matching cost as pairs of arrays.

Every cost here has the form `constant − 2 Σ ⟨target, P source⟩` over pairs of arrays, so that one algorithm
serves all of them:

    wasserstein   |m₀ − P m₁|² + |s₀ − P s₁|²               pairs (m₀, m₁) and (s₀, s₁)
    means         |m₀ − P m₁|²                              pair  (m₀, m₁)
    kl            KL[P#q₁ ‖ q₀], means and stds             pairs (m₀/2s₀², m₁) · 2 … see `_kl_pairs`

The trace term of the KL divergence, Σ P s₁² / s₀², depends on the permutation and is part of its cost.

References: Rossi et al. 2023, section 4; its appendix A drops the trace term by mistake.
"""

from typing import Any, NamedTuple

import numpy as np

from ..errors import ConfigError, ModelError, PosteriorError
from ..posteriors import Gaussian
from ..symmetry import Perms, PermutationSpec
from ..trees import Tree, check_same_structure, flatten
from .layout import Layout, gather, layouts

COSTS = ("wasserstein", "means", "kl")

Flat = dict[str, np.ndarray]


class Pair(NamedTuple):
    """One tensor of target and source, in factored shape, whose product enters the similarity."""

    layout: Layout
    target: np.ndarray
    source: np.ndarray


class Problem(NamedTuple):
    """A target, a source and the cost of a permutation between them."""

    spec: PermutationSpec
    cost: str
    pairs: tuple[Pair, ...]  # factors of the similarity
    raw: tuple[tuple[Layout, tuple[np.ndarray, ...]], ...]  # (m0, m1) or (m0, s0, m1, s1), for the objective
    scale: float  # Σ |target| |source|: what rounding errors of the objective are relative to


def build(target: Any, source: Any, spec: PermutationSpec, cost: str, exclude: frozenset[str]) -> Problem:
    """Returns the matching problem of two posteriors, after checking that there is one.

    Raises:
        ConfigError: an unknown cost, or an excluded path that is in no tree.
        PosteriorError: mismatched trees, NaN, infinities, negative stds, or stds of zero under `kl`.
        SpecError: the spec belongs to another model.
    """
    if cost not in COSTS:
        raise ConfigError(f"there is no cost '{cost}'; choose one of {', '.join(COSTS)}")
    (mean0, std0), (mean1, std1) = _parts(target, spec, "target"), _parts(source, spec, "source")
    _check_alike(target, source)
    for path in exclude - set(mean0):
        raise ConfigError(f"exclude: there is no parameter '{path}'")
    if cost == "means":
        std0 = std1 = None
    if (std0 is None) != (std1 is None):  # a point is a Gaussian with zero std
        std0 = std0 or {path: np.zeros_like(mean) for path, mean in mean0.items()}
        std1 = std1 or {path: np.zeros_like(mean) for path, mean in mean1.items()}
    if cost == "kl":
        _check_positive(std0, "target")
        _check_positive(std1, "source")
    pairs: list[Pair] = []
    raw: list[tuple[Layout, tuple[np.ndarray, ...]]] = []
    for path, layout in layouts(spec).items():
        if path in exclude or _is_integer(mean0[path]) or _is_integer(mean1[path]):
            continue
        arrays = [mean0[path], mean1[path]]
        if std0 is not None and std1 is not None:
            arrays = [mean0[path], std0[path], mean1[path], std1[path]]
        arrays = tuple(_work(array).reshape(layout.shape) for array in arrays)
        raw.append((layout, arrays))
        pairs += [Pair(layout, t, s) for t, s in (_kl_pairs(*arrays) if cost == "kl" else _plain_pairs(arrays))]
    scale = sum(float(np.linalg.norm(p.target.ravel()) * np.linalg.norm(p.source.ravel())) for p in pairs)
    return Problem(spec, cost, tuple(pairs), tuple(raw), scale)


def objective(problem: Problem, perms: Perms) -> float:
    """Returns the cost of a permutation, computed directly from its definition in float64."""
    total = 0.0
    for layout, arrays in problem.raw:
        half = len(arrays) // 2
        target = [array.astype(np.float64) for array in arrays[:half]]
        source = [gather(array, layout, perms).astype(np.float64) for array in arrays[half:]]
        if problem.cost == "kl":
            total += _kl(*target, *source)
        else:
            total += sum(float(np.sum((t - s) ** 2)) for t, s in zip(target, source, strict=True))
    return total


def _kl(mean0: np.ndarray, std0: np.ndarray, mean1: np.ndarray, std1: np.ndarray) -> float:
    """KL[q₁ ‖ q₀] = ½ Σ [ (s₁² + (m₀ − m₁)²)/s₀² − 1 − log(s₁²/s₀²) ]."""
    ratio = (std1 / std0) ** 2
    return 0.5 * float(np.sum(ratio + ((mean0 - mean1) / std0) ** 2 - 1.0 - np.log(ratio)))


def _plain_pairs(arrays: tuple[np.ndarray, ...]) -> list[tuple[np.ndarray, np.ndarray]]:
    half = len(arrays) // 2
    return list(zip(arrays[:half], arrays[half:], strict=True))


def _kl_pairs(mean0, std0, mean1, std1) -> list[tuple[np.ndarray, np.ndarray]]:
    """½(s₁² + m₁²)/s₀² − m₀m₁/s₀² + terms of one side only, as −2 Σ ⟨target, source⟩."""
    mean0, std0, mean1, std1 = (array.astype(np.float64) for array in (mean0, std0, mean1, std1))
    precision = std0**-2.0
    return [(0.5 * mean0 * precision, mean1), (-0.25 * precision, std1**2 + mean1**2)]


def _parts(posterior: Any, spec: PermutationSpec, role: str) -> tuple[Flat, Flat | None]:
    trees = (posterior.mean, posterior.std) if isinstance(posterior, Gaussian) else (posterior,)
    flats = []
    for tree in trees:
        if spec.check(tree):
            raise PosteriorError(f"the {role} has leading axes; align one posterior at a time, or pass a list")
        flats.append({path: np.asarray(leaf) for path, leaf in flatten(tree).items()})
        for path, leaf in flats[-1].items():
            if not _is_integer(leaf) and not np.isfinite(leaf).all():
                what = "NaN" if np.isnan(leaf).any() else "an infinity"
                raise PosteriorError(f"'{path}' of the {role} holds {what}; the fit that wrote it has diverged")
    if len(flats) == 1:
        return flats[0], None
    for path, std in flats[1].items():
        if not _is_integer(std) and (std < 0).any():
            raise PosteriorError(f"the std of '{path}' of the {role} is negative; pass stds, not their logarithms")
    return flats[0], flats[1]


def _check_alike(target: Any, source: Any) -> None:
    first: Tree = target.mean if isinstance(target, Gaussian) else target
    second: Tree = source.mean if isinstance(source, Gaussian) else source
    try:
        check_same_structure(first, second, "target and source")
    except ModelError as error:
        raise PosteriorError(str(error)) from None


def _check_positive(stds: Flat | None, role: str) -> None:
    if stds is None:
        raise PosteriorError(f"cost 'kl' needs Gaussians, but the {role} is a point; use 'wasserstein'")
    for path, std in stds.items():
        if not _is_integer(std) and not (std > 0).all():
            raise PosteriorError(f"cost 'kl' needs positive stds; '{path}' of the {role} holds a zero")


def _is_integer(array: np.ndarray) -> bool:
    return array.dtype.kind in "biu"


def _work(array: np.ndarray) -> np.ndarray:
    """Half precision is widened before anything is summed."""
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)
