"""What two posteriors are compared on: the terms of the matching cost as pairs of arrays.

Every cost here has the form `constant − 2 Σ ⟨target, P source⟩` over pairs of arrays, so that one algorithm
serves all of them:

    wasserstein   |m₀ − P m₁|² + |s₀ − P s₁|²               pairs (m₀, m₁) and (s₀, s₁)
    means         |m₀ − P m₁|²                              pair  (m₀, m₁)
    kl            KL[P#q₁ ‖ q₀]                             pairs (½ m₀/s₀², m₁) and (−¼ s₀⁻², s₁² + m₁²)

The trace term of the KL divergence, Σ P s₁² / s₀², depends on the permutation and is part of its cost.

References: Rossi et al. 2023, section 4; its appendix A drops the trace term by mistake.
"""

from typing import Any, NamedTuple

import jax
import numpy as np

from ..errors import ConfigError, PosteriorError
from ..posteriors import Gaussian
from ..symmetry import PermutationSpec
from ..trees import flatten
from .layout import Layout, layouts

COSTS = ("wasserstein", "means", "kl")

Flat = dict[str, np.ndarray]


class Term(NamedTuple):
    """One tensor: the arrays of target and source that belong together, in factored shape."""

    layout: Layout
    target: tuple[np.ndarray, ...]
    source: tuple[np.ndarray, ...]


class Problem(NamedTuple):
    """A target, a source and the cost of a permutation between them."""

    spec: PermutationSpec
    cost: str
    dtype: np.dtype  # of the similarity; never below float32
    terms: tuple[Term, ...]  # what is multiplied in the similarity
    raw: tuple[Term, ...]  # the tensors themselves, (mean,) or (mean, std), from which the objective is computed
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
    (mean0, std0), (mean1, std1) = parts(target, spec, "target"), parts(source, spec, "source")
    for path in exclude - set(mean0):
        raise ConfigError(f"exclude: there is no parameter '{path}'")
    if cost == "means":
        std0 = std1 = None
    if cost == "kl":
        _check_positive(std0, "target")
        _check_positive(std1, "source")
    if (std0 is None) != (std1 is None):  # a point is a Gaussian with zero std
        std0 = std0 or {path: np.zeros_like(mean) for path, mean in mean0.items()}
        std1 = std1 or {path: np.zeros_like(mean) for path, mean in mean1.items()}
    raw = []
    for path, layout in layouts(spec).items():
        if path not in exclude and not _is_integer(mean0[path]) and not _is_integer(mean1[path]):
            sides = [(mean0, std0), (mean1, std1)]
            raw.append(Term(layout, *(tuple(factored(f[path], layout) for f in side if f) for side in sides)))
    terms = [_kl_term(term) for term in raw] if cost == "kl" else raw
    arrays = [pair for term in terms for pair in zip(term.target, term.source, strict=True)]
    dtype = np.result_type(np.float32, *(array for pair in arrays for array in pair))
    return Problem(spec, cost, dtype, tuple(terms), tuple(raw), sum(_norm(t) * _norm(s) for t, s in arrays))


def parts(posterior: Any, spec: PermutationSpec, role: str) -> tuple[Flat, Flat | None]:
    """Returns the checked means and stds of a Gaussian, or a point and None, by path, on the host."""
    trees = (posterior.mean, posterior.std) if isinstance(posterior, Gaussian) else (posterior,)
    if spec.check(trees[0]):
        raise PosteriorError(f"the {role} has leading axes; align one posterior at a time, or pass a list")
    paths = list(flatten(trees[0]))
    flats = [dict(zip(paths, map(np.asarray, jax.tree.leaves(tree)), strict=True)) for tree in trees]
    for path, leaf in (item for flat in flats for item in flat.items()):
        if not _is_integer(leaf) and not _is_finite(leaf):
            what = "NaN" if np.isnan(leaf).any() else "an infinity"
            raise PosteriorError(f"'{path}' of the {role} holds {what}; the fit that wrote it has diverged")
    if len(flats) == 1:
        return flats[0], None
    for path, std in flats[1].items():
        if std.min(initial=0) < 0:
            raise PosteriorError(f"the std of '{path}' of the {role} is negative; pass stds, not their logarithms")
    return flats[0], flats[1]


def factored(array: np.ndarray, layout: Layout) -> np.ndarray:
    """Returns the array in factored shape; half precision is widened before anything is summed."""
    array = array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)
    return array.reshape(layout.shape)


def _kl_term(raw: Term) -> Term:
    """½(s₁² + m₁²)/s₀² − m₀m₁/s₀², all of the KL that depends on both sides, as −2 Σ ⟨target, source⟩."""
    mean0, std0, mean1, std1 = (array.astype(np.float64) for array in (*raw.target, *raw.source))
    precision = std0**-2.0
    return Term(raw.layout, (0.5 * mean0 * precision, -0.25 * precision), (mean1, std1**2 + mean1**2))


def _check_positive(stds: Flat | None, role: str) -> None:
    if stds is None:
        raise PosteriorError(f"cost 'kl' needs Gaussians, but the {role} is a point; use 'wasserstein'")
    for path, std in stds.items():
        if not _is_integer(std) and not (std > 0).all():
            raise PosteriorError(f"cost 'kl' needs positive stds; '{path}' of the {role} holds a zero")


def _is_finite(array: np.ndarray) -> bool:
    """A finite sum means finite entries; only another sum needs a closer look."""
    with np.errstate(all="ignore"):
        return bool(np.isfinite(array.sum()) or np.isfinite(array).all())


def _is_integer(array: np.ndarray) -> bool:
    return array.dtype.kind in "biu"


def _norm(array: np.ndarray) -> float:
    flat = array.reshape(-1)
    return float(flat @ flat) ** 0.5
