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
from .layout import Layout, layouts, leaves_by_path

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
    scale: float  # |target| |source|: what rounding errors of the objective are relative to


def build(target: Any, source: Any, spec: PermutationSpec, cost: str, exclude: frozenset[str]) -> Problem:
    """Returns the matching problem of two posteriors, after checking that there is one.

    Raises:
        ConfigError: an unknown cost, or an excluded path that is in no tree.
        PosteriorError: mismatched trees, NaN, infinities, negative stds, or stds of zero under `kl`.
        SpecError: the spec belongs to another model.
    """
    if cost not in COSTS:
        raise ConfigError(f"there is no cost '{cost}'; choose one of {', '.join(COSTS)}")
    (mean0, std0, norm0), (mean1, std1, norm1) = parts(target, spec, "target"), parts(source, spec, "source")
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
    if not np.isfinite(norm0 * norm1):  # the numbers are finite, their squares are not in float32
        raw = [_widened(term) for term in raw]
    terms = [_kl_term(term) for term in raw] if cost == "kl" else raw
    if cost == "kl" or not np.isfinite(norm0 * norm1):
        norm0 = sum(_square(array) for term in terms for array in term.target) ** 0.5
        norm1 = sum(_square(array) for term in terms for array in term.source) ** 0.5
    dtype = np.result_type(np.float32, *(array for term in terms for array in (*term.target, *term.source)))
    return Problem(spec, cost, dtype, tuple(terms), tuple(raw), norm0 * norm1)


def parts(posterior: Any, spec: PermutationSpec, role: str) -> tuple[Flat, Flat | None, float]:
    """Returns the checked means and stds (None for a point) by path, on the host, and their common norm."""
    trees = (posterior.mean, posterior.std) if isinstance(posterior, Gaussian) else (posterior,)
    paths = leaves_by_path(trees[0], spec)
    flats = [dict(zip(paths, map(np.asarray, jax.tree.leaves(tree)), strict=True)) for tree in trees]
    total = 0.0
    for path, leaf in (item for flat in flats for item in flat.items() if not _is_integer(item[1])):
        square = _square(leaf)
        total += square
        if not np.isfinite(square) and not np.isfinite(leaf).all():  # a finite sum means finite entries
            what = "NaN" if np.isnan(leaf).any() else "an infinity"
            raise PosteriorError(f"'{path}' of the {role} holds {what}; the fit that wrote it has diverged")
    for path, std in flats[1].items() if len(flats) > 1 else ():
        if std.min(initial=0) < 0:
            raise PosteriorError(f"the std of '{path}' of the {role} is negative; pass stds, not their logarithms")
    return flats[0], flats[1] if len(flats) > 1 else None, total**0.5


def factored(array: np.ndarray, layout: Layout) -> np.ndarray:
    """Returns the array in factored shape; half precision is widened before anything is summed."""
    array = array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)
    return array.reshape(layout.shape)


def _widened(term: Term) -> Term:
    target, source = (tuple(array.astype(np.float64) for array in side) for side in (term.target, term.source))
    return Term(term.layout, target, source)


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


def _is_integer(array: np.ndarray) -> bool:
    return array.dtype.kind in "biu"


def _square(array: np.ndarray) -> float:
    """Σ x², without a warning where it overflows."""
    flat = array.reshape(-1) if array.dtype in (np.float32, np.float64) else array.reshape(-1).astype(np.float32)
    return float(np.vdot(flat, flat))
