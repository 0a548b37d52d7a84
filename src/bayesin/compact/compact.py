"""Many samples, one Gaussian: remove the permutation freedom, then take mean and spread.

Samples of a network's posterior are equivalent up to the order of their hidden units, so their raw mean and
spread say nothing. Every sample is moved onto one reference first; the permutation's number of transpositions
says how far from it the sample was. What is left is narrow enough for one Gaussian.

Reference: Xiao, Liu and Bamler 2023. Past it: the reference may be the samples' own mean, found by iteration;
weights are compared in all layers; and the Gaussian may keep the samples' full covariance.
"""

from collections.abc import Iterable
from typing import Literal, get_args

import equinox as eqx
import jax
import numpy as np
from jaxtyping import ArrayLike, Int

from ..errors import ConfigError, PosteriorError
from ..posteriors import Gaussian, LowRankGaussian
from ..randomness import PRNGKey, check_key
from ..symmetry import Activations, Apply, PermutationSpec, hidden_activations, transpositions
from ..trees import Tree
from .moments import moments, rebase
from .sample_matching import (
    MatchedSamples,
    OnRound,
    match_activations,
    match_activations_to_mean,
    match_weights,
    match_weights_to_mean,
)
from .unit_matrix import SampleSet, identity_of_each, on_host

Match = Literal["weights", "activations", "correlations"]
Family = Literal["diagonal", "lowrank"]
Reference = Literal["mean", "first"] | Tree


class Compact(eqx.Module):
    """One posterior in place of many samples, and what it took to get there."""

    posterior: Gaussian | LowRankGaussian
    direct: Gaussian  # fitted to the samples as they came, for comparison
    perms: dict[str, Int[np.ndarray, "samples units"]]  # by group; new[i] = old[perm[i]]
    transpositions: dict[str, Int[np.ndarray, "samples"]]  # by group
    reference: Tree  # the network that all samples were matched to
    spread_before: float  # root mean square of all stds of the samples as they came
    spread_after: float
    samples: int = eqx.field(static=True)  # how many there were
    rounds: int = eqx.field(static=True)
    converged: bool = eqx.field(static=True)  # matching again would change nothing, or less than the tolerance

    @property
    def total(self) -> Int[np.ndarray, "samples"]:
        """Transpositions of every sample, summed over groups."""
        return sum(self.transpositions.values(), np.zeros(self.samples, int))

    def __repr__(self) -> str:
        spread = f"spread {self.spread_before:.4g} -> {self.spread_after:.4g}"
        ended = f"rounds {self.rounds}, {'' if self.converged else 'not '}converged"
        return f"Compact({self.samples} samples, {spread}, {ended})"


def compact(
    samples: SampleSet,
    spec: PermutationSpec,
    *,
    key: PRNGKey,
    reference: Reference = "mean",
    match: Match = "weights",
    family: Family = "diagonal",
    rank: int | None = None,
    apply: Apply | None = None,
    x: ArrayLike | None = None,
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
        >>> from bayesin import Samples, permute
        >>> spec = PermutationSpec.parse({"w0": ["2", "g0"], "w1": ["g0", "1"]}, {"g0": 3})
        >>> net = {"w0": np.array([[1.0, 2.0, 3.0], [3.0, 1.0, 2.0]]), "w1": np.array([[1.0], [5.0], [9.0]])}
        >>> turned = [permute(net, spec, {"g0": np.roll(np.arange(3), k)}) for k in range(4)]
        >>> folded = compact(Samples.stack(turned), spec, key=jax.random.key(0))
        >>> folded, folded.total.tolist()
        (Compact(4 samples, spread 2.236 -> 0, rounds 2, converged), [0, 2, 2, 0])
    """
    check_key(key)
    _check_choices(match, family, reference, rank)
    samples, paths = on_host(samples), frozenset(exclude)
    _check_samples(samples, spec, paths)
    before = moments(samples, spec, identity_of_each(spec, len(samples)), paths)
    if not np.isfinite(before.spread):
        raise PosteriorError("a sample holds NaN or an infinity; the fit that made it has diverged")
    to_mean = _is(reference, "mean")
    if match == "weights":
        options = {"key": key, "exclude": paths, "on_round": on_round}
        if to_mean:
            matched = match_weights_to_mean(samples, spec, max_rounds=max_rounds, tolerance=tolerance, **options)
        else:
            matched = match_weights(_reference(samples, reference), samples, spec, **options)
    else:
        if x is None:
            raise ConfigError("matching by activations needs x= and either apply= or activations=")
        seen = activations or _activations(samples, spec, key, apply, x)
        options = {"correlation": match == "correlations", "on_round": on_round}
        if to_mean:
            options |= {"exclude": paths, "max_rounds": max_rounds}
            matched = match_activations_to_mean(samples, spec, seen, x, **options)
        else:
            matched = match_activations(_reference(samples, reference), samples, spec, seen, x, **options)
    if _is(reference, "first"):
        _keep_first(matched)
    after = moments(samples, spec, matched.perms, paths)
    posterior = Gaussian(after.mean, after.std)
    if family == "lowrank":
        posterior = LowRankGaussian.from_samples(rebase(samples, spec, matched.perms), rank)
    counts = [transpositions({g: perm[k] for g, perm in matched.perms.items()}) for k in range(len(samples))]
    return Compact(
        posterior=posterior,
        direct=Gaussian(before.mean, before.std),
        perms=matched.perms,
        transpositions={group: np.array([count[group] for count in counts]) for group in spec.sizes},
        reference=after.mean if to_mean else _reference(samples, reference),
        spread_before=before.spread,
        spread_after=after.spread,
        samples=len(samples),
        rounds=matched.rounds,
        converged=matched.converged,
    )


def _keep_first(matched: MatchedSamples) -> None:
    """The reference itself stays where it is, whatever the order of equal units."""
    for perm in matched.perms.values():
        perm[0] = np.arange(perm.shape[1])


def _activations(
    samples: SampleSet,
    spec: PermutationSpec,
    key: PRNGKey,
    apply: Apply | None,
    x: ArrayLike,
) -> Activations:
    if apply is None:
        raise ConfigError("matching by activations needs x= and either apply= or activations=")
    return hidden_activations(apply, samples[0], np.asarray(x)[:8], spec, key=key)


def _reference(samples: SampleSet, reference: Reference) -> Tree:
    return samples[0] if _is(reference, "first") else jax.tree.map(np.asarray, reference)


def _is(reference: Reference, name: str) -> bool:
    return isinstance(reference, str) and reference == name


def _check_choices(match: str, family: str, reference: Reference, rank: int | None) -> None:
    for name, value, choices in (("match", match, get_args(Match)), ("family", family, get_args(Family))):
        if value not in choices:
            raise ConfigError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
    if isinstance(reference, str) and reference not in ("mean", "first"):
        raise ConfigError(f"reference must be mean, first or a parameter tree, not {reference!r}")
    if rank is not None and family != "lowrank":
        raise ConfigError("rank is for family='lowrank'")


def _check_samples(samples: SampleSet, spec: PermutationSpec, exclude: frozenset[str]) -> None:
    if len(samples) < 2:
        raise PosteriorError(f"one Gaussian needs at least two samples, not {len(samples)}")
    spec.check(samples[0])
    for path in exclude - set(spec.axes):
        raise ConfigError(f"exclude: there is no parameter '{path}'")
