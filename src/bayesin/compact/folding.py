"""Many samples, one Gaussian: remove the permutation freedom, then take mean and spread.

Samples of a network's posterior are equivalent up to the order of their hidden units, so their raw mean and
spread say nothing. Every sample is moved onto one reference first; the permutation's number of transpositions
says how far from it the sample was. What is left is narrow enough for one Gaussian.

Reference: Xiao, Liu and Bamler 2023. Past it: the reference may be the samples' own mean, found by iteration;
weights are compared in all layers; and the Gaussian may keep the samples' full covariance.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import jax
import numpy as np

from ..errors import ConfigError, PosteriorError
from ..inference.hmc import Draws
from ..keys import check_key
from ..posteriors import Gaussian, LowRankGaussian, Samples
from ..symmetry import PermutationSpec, transpositions
from ..trees import Tree
from .activations import Activations, Apply, hidden_activations
from .gram import match_activations
from .moments import moments, rebase
from .rows import identity, on_host
from .weights import Matched, OnRound, match_to, match_to_mean

Match = Literal["weights", "activations", "correlations"]
Family = Literal["diagonal", "lowrank"]


@dataclass(frozen=True)
class Compact:
    """One posterior in place of many samples, and what it took to get there."""

    posterior: Gaussian | LowRankGaussian
    direct: Gaussian  # fitted to the samples as they came, for comparison
    perms: dict[str, np.ndarray]  # {group: (samples, units)}; new[i] = old[perm[i]]
    reference: Tree  # the network that all samples were matched to
    transpositions: dict[str, np.ndarray]  # {group: (samples,)}
    total: np.ndarray  # (samples,): transpositions summed over groups
    spread_before: float  # root mean square of all stds of the samples as they came
    spread_after: float
    rounds: int
    converged: bool  # matching again would change nothing, or less than the tolerance


def compact(
    samples: Samples | Draws,
    spec: PermutationSpec,
    *,
    key: jax.Array,
    reference: Any = "mean",
    match: Match = "weights",
    family: Family = "diagonal",
    rank: int | None = None,
    apply: Apply | None = None,
    x: Any = None,
    activations: Activations | None = None,
    exclude: Iterable[str] = (),
    max_rounds: int = 200,
    tolerance: float = 1e-5,
    on_round: OnRound | None = None,
) -> Compact:
    """Returns one Gaussian that stands for all samples, after moving each onto a common reference.

    Args:
        samples: ensemble members or HMC draws, at least two; `Draws` are read from disk as needed.
        spec: which axes move together.
        key: decides visiting orders, and where activations are looked for.
        reference: `"mean"` (the samples' own mean, by iteration), `"first"` (sample 0), or a parameter tree.
        match: by `"weights"` of all layers, or by what hidden units do on data: `"activations"` (uncentred inner
            products) or `"correlations"`. The last two need `x`, and `apply` or `activations`.
        family: `"diagonal"`, a `Gaussian` with unbiased stds; or `"lowrank"`, a `LowRankGaussian` whose
            covariance is that of the moved samples.
        rank: directions that the low-rank Gaussian keeps; all where not given.
        apply: the network; hidden activations are found in it.
        x: inputs that activations are computed on.
        activations: `(params, x) -> {group: (..., units)}`, where they cannot be found in `apply`.
        exclude: paths that are moved but not compared, such as running statistics.
        max_rounds: bound on the passes for `"mean"`; late ones visit few samples.
        tolerance: a pass that lowers the squared spread by a smaller part than this is the last.
        on_round: called with (round, samples matched in it, samples).

    Raises:
        PosteriorError: fewer than two samples, or NaN in them.
        SpecError: the spec does not fit the samples.
        ConfigError: an unknown choice, or something that the choice needs is missing.

    Example:
        >>> from ..symmetry import permute
        >>> spec = PermutationSpec.parse({"w0": ["2", "g0"], "w1": ["g0", "1"]}, {"g0": 3})
        >>> net = {"w0": np.array([[1.0, 2.0, 3.0], [3.0, 1.0, 2.0]]), "w1": np.array([[1.0], [5.0], [9.0]])}
        >>> turned = [permute(net, spec, {"g0": np.roll(np.arange(3), k)}) for k in range(4)]
        >>> found = compact(Samples.stack(turned), spec, key=jax.random.key(0))
        >>> round(found.spread_before, 2), found.spread_after, found.total.tolist()
        (2.24, 0.0, [0, 2, 2, 0])
    """
    check_key(key)
    _check_choices(match, family, reference, rank)
    samples, exclude = on_host(samples), frozenset(exclude)
    _check_samples(samples, spec, exclude)
    before = moments(samples, spec, identity(spec, len(samples)), exclude)
    if not np.isfinite(before.spread):
        raise PosteriorError("a sample holds NaN or an infinity; the fit that made it has diverged")
    if match == "weights":
        found = _by_weights(samples, spec, key, reference, exclude, max_rounds, tolerance, on_round)
    else:
        seen = _activations(samples, spec, key, apply, x, activations)
        found = _by_activations(samples, spec, seen, x, reference, match, exclude, max_rounds, on_round)
    counts = [transpositions({g: perm[k] for g, perm in found.perms.items()}) for k in range(len(samples))]
    by_group = {group: np.array([count[group] for count in counts]) for group in spec.sizes}
    after = moments(samples, spec, found.perms, exclude)
    posterior = Gaussian(after.mean, after.std)
    if family == "lowrank":
        posterior = LowRankGaussian.from_samples(rebase(samples, spec, found.perms), rank)
    return Compact(
        posterior=posterior,
        direct=Gaussian(before.mean, before.std),
        perms=found.perms,
        reference=after.mean if _is(reference, "mean") else _reference(samples, reference),
        transpositions=by_group,
        total=np.sum(list(by_group.values()), 0) if by_group else np.zeros(len(samples), int),
        spread_before=before.spread,
        spread_after=after.spread,
        rounds=found.rounds,
        converged=found.converged,
    )


def _by_weights(samples, spec, key, reference, exclude, max_rounds, tolerance, on_round) -> Matched:
    options = {"key": key, "exclude": exclude, "on_round": on_round}
    if _is(reference, "mean"):
        return match_to_mean(samples, spec, max_rounds=max_rounds, tolerance=tolerance, **options)
    return _anchored(match_to(_reference(samples, reference), samples, spec, **options), reference)


def _by_activations(samples, spec, seen, x, reference, match, exclude, max_rounds, on_round) -> Matched:
    """One pass; or passes to the mean of the last one, until nothing changes or the spread no longer falls."""
    options = {"correlation": match == "correlations", "on_round": on_round}
    first = _reference(samples, "first" if _is(reference, "mean") else reference)
    found = match_activations(first, samples, spec, seen, x, **options)
    if not _is(reference, "mean"):
        return _anchored(found, reference)
    width = moments(samples, spec, found.perms, exclude)
    while found.rounds < max_rounds:
        again = match_activations(width.mean, samples, spec, seen, x, number=found.rounds + 1, **options)
        narrower = moments(samples, spec, again.perms, exclude)
        same = all((again.perms[group] == perm).all() for group, perm in found.perms.items())
        if same or narrower.spread >= width.spread:
            return found._replace(rounds=again.rounds)
        found, width = again, narrower
    return found._replace(converged=False)


def _anchored(found: Matched, reference: Any) -> Matched:
    """The reference itself stays where it is, whatever the order of equal units."""
    if _is(reference, "first"):
        for perm in found.perms.values():
            perm[0] = np.arange(perm.shape[1])
    return found


def _activations(samples, spec, key, apply, x, activations) -> Activations:
    if x is not None and activations is not None:
        return activations
    if x is None or apply is None:
        raise ConfigError("matching by activations needs x= and either apply= or activations=")
    return hidden_activations(apply, samples[0], np.asarray(x[:8]), spec, key=key)


def _reference(samples: Samples | Draws, reference: Any) -> Tree:
    return samples[0] if _is(reference, "first") else jax.tree.map(np.asarray, reference)


def _is(reference: Any, name: str) -> bool:
    return isinstance(reference, str) and reference == name


def _check_choices(match: str, family: str, reference: Any, rank: int | None) -> None:
    for name, value, choices in (("match", match, get_args(Match)), ("family", family, get_args(Family))):
        if value not in choices:
            raise ConfigError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
    if isinstance(reference, str) and reference not in ("mean", "first"):
        raise ConfigError(f"reference must be mean, first or a parameter tree, not {reference!r}")
    if rank is not None and family != "lowrank":
        raise ConfigError("rank is for family='lowrank'")


def _check_samples(samples: Samples | Draws, spec: PermutationSpec, exclude: frozenset[str]) -> None:
    if len(samples) < 2:
        raise PosteriorError(f"one Gaussian needs at least two samples, not {len(samples)}")
    spec.check(samples[0])
    for path in exclude - set(spec.axes):
        raise ConfigError(f"exclude: there is no parameter '{path}'")
