"""Many samples, one Gaussian: remove the permutation freedom, then take mean and spread.

Samples of a network's posterior are equivalent up to the order of their hidden units, so their raw mean and
spread say nothing. Every sample is moved onto one reference first; the permutation's number of transpositions
says how far from it the sample was. What is left is narrow enough for one Gaussian.

Reference: Xiao, Liu and Bamler 2023. Past it: the reference may be the samples' own mean, found by iteration;
weights are compared in all layers; and the Gaussian may keep the samples' full covariance.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Int

from ..errors import ConfigError, PosteriorError
from ..evaluation import Data
from ..inference import ChainDiagnostics, Fit, compare_chains, predictions_of, warn_unmixed
from ..inputs import Inputs, take
from ..jaxprs import Apply, statistics_of
from ..likelihoods import LikelihoodLike
from ..matching import MatchedSamples, OnRound, align, align_many, costs, identity_of_each, match_activations
from ..matching.costs import CostLike
from ..posteriors import Gaussian
from ..randomness import PRNGKey, check_key
from ..symmetry import Activations, PermutationSpec, hidden_activations, transpositions
from ..trees import Tree
from .members import Foldable, Members, flipped, fold, low_rank, members_of, noise
from .moments import mixture_of, rebase
from .sample_matching import match_activations_to_mean, match_weights, match_weights_to_mean, stacked
from .scaling import DRAWS, SCALES, Folded, certain, losses_of_scales, scaled
from .unit_matrix import SampleSet

Match = Literal["weights", "activations", "correlations"]
Family = Literal["diagonal", "lowrank"]
Reference = Literal["mean", "first"] | Tree


class Compact(eqx.Module):
    """One posterior in place of many samples, and what it took to get there.

    Example:
        >>> spec = PermutationSpec.parse({"w": ["2", "g0"]}, {"g0": 3})
        >>> w = np.array([[1.0, 2.0, 3.0], [3.0, 1.0, 2.0]])
        >>> found = compact([{"w": np.roll(w, k, 1)} for k in range(3)], spec, key=jax.random.key(0))
        >>> found.samples, round(found.spread_before, 3), round(found.spread_after, 3)
        (3, 1.0, 0.0)
    """

    posterior: Folded
    direct: Gaussian  # fitted to the samples as they came, for comparison
    perms: dict[str, Int[np.ndarray, "samples units"]]  # by group; new[i] = old[perm[i]]
    transpositions: dict[str, Int[np.ndarray, "samples"]]  # by group
    signs: dict[str, Int[np.ndarray, "samples units"]]  # of groups that may flip; new[i] = sign[i] old[perm[i]]
    reference: Tree  # the network that all samples were matched to
    spread_before: float  # root mean square of all stds of the samples as they came
    spread_after: float  # before any scaling
    samples: int = eqx.field(static=True)  # how many there were
    rounds: int = eqx.field(static=True)
    converged: bool = eqx.field(static=True)  # matching again would change nothing, or less than the tolerance
    scale: float = eqx.field(static=True, default=1.0)  # that all deviations were multiplied by
    held_out_nll: Mapping[str, float] | None = eqx.field(static=True, default=None)  # of everything that was tried
    mixing: ChainDiagnostics | None = eqx.field(static=True, default=None)  # of several chains: one basin?

    @property
    def total(self) -> Int[np.ndarray, "samples"]:
        """Transpositions of every sample, summed over groups."""
        return sum(self.transpositions.values(), np.zeros(self.samples, int))

    def __repr__(self) -> str:
        spread = f"spread {self.spread_before:.4g} -> {self.spread_after:.4g}"
        ended = f"rounds {self.rounds}, {'none moves alone' if self.converged else 'not ended'}"
        scale = "" if self.scale == 1 else f", scale {self.scale:g}"
        mixed = "" if self.mixing is None else f", chains {'in one basin' if self.mixing.one_basin else 'not mixed'}"
        return f"Compact({self.samples} samples, {spread}{scale}, {ended}{mixed})"


def compact(
    samples: Foldable,
    spec: PermutationSpec,
    *,
    key: PRNGKey,
    reference: Reference | None = None,
    match: Match | None = None,
    cost: CostLike | None = None,
    family: Family = "diagonal",
    rank: int | None = None,
    components: int | Sequence[int] = 1,
    chains: int | None = None,
    scale: float | Literal["held-out"] = 1.0,
    held_out: Data | None = None,
    apply: Apply | None = None,
    x: Inputs | None = None,
    activations: Activations | None = None,
    likelihood: LikelihoodLike | None = None,
    exclude: Iterable[str] = (),
    max_rounds: int = 200,
    tolerance: float = 1e-5,
    on_round: OnRound | None = None,
) -> Compact:
    """Returns one Gaussian that stands for all samples, after moving each onto a common reference.

    Args:
        samples: at least two ensemble members or HMC draws, `Draws` on disk (read as needed), a list of networks, the
            `Fit` that made them, or a list of Gaussians such as `fit.posteriors`, whose own variances are kept.
        spec: which axes move together, and where units may flip.
        key: decides visiting orders, draws, and where activations are looked for.
        reference: `"mean"` (the samples' own mean, by iteration), `"first"` (sample 0), or a parameter tree.
        match: by `"weights"` of all layers, or by what hidden units do on data: `"activations"` (uncentred inner
            products) or `"correlations"`. The last two need `x`, and `apply` or `activations`. Where neither match
            nor reference is given: weights to the mean, and for chains (`Draws`, a `Fit` of chains, `chains=`)
            activations to the first where `x` and `apply` are given. `docs/choosing.md` has the numbers.
        cost: in place of `match`, any of `bayesin.costs`: samples go to the mean by `align_many`, to a reference one
            by one with `align`.
        family: `"diagonal"`, a `Gaussian` with unbiased stds; or `"lowrank"`, a `LowRankGaussian` whose
            covariance is that of the moved samples (of Gaussians a `FactorGaussian`).
        rank: directions that the low-rank Gaussian keeps; all where not given.
        components: of a `GaussianMixture` where above one; of several numbers the one with the best held-out NLL.
        chains: how many Markov chains the samples are draws of, one after the other; a fit and `Draws` know it.
        scale: multiplies all deviations; `"held-out"` is the one of `SCALES` with the best held-out NLL.
        held_out: inputs and targets that these choices are made on; needs `apply`.
        apply: the network, or its `Model`; hidden activations are found in it, and the statistics of a `Model` are
            excluded.
        x: inputs that activations are computed on.
        activations: `(params, x) -> {group: (..., units)}`, where they cannot be found in `apply`.
        likelihood: of the held-out targets; that of the fit, or categorical.
        exclude: paths that are moved and averaged, but neither compared nor given a spread: running statistics, of
            which a draw could be a negative variance. Those of a `Fit` are known.
        max_rounds: bound on the passes for `"mean"`; late ones visit few samples.
        tolerance: a pass that lowers the squared spread by a smaller part than this is the last.
        on_round: called with (round, samples matched in it, samples).

    Warns:
        UserWarning: the chains have not mixed, so that one Gaussian covers several basins. `Compact.mixing` has R-hat
            and effective sample size of weights in one order and, with `apply` and `x`, of predictions.

    Raises:
        PosteriorError: fewer than two samples, or NaN in them.
        SpecError: the spec does not fit the samples.
        ConfigError: an unknown choice, or something that the choice needs is missing.

    Example:
        >>> from bayesin import Samples, permute
        >>> spec = PermutationSpec.parse({"w0": ["2", "g0"], "w1": ["g0", "1"]}, {"g0": 3})
        >>> net = {"w0": np.array([[1.0, 2.0, 3.0], [3.0, 1.0, 2.0]]), "w1": np.array([[1.0], [5.0], [9.0]])}
        >>> turned = [permute(net, spec, {"g0": np.roll(np.arange(3), k)}) for k in range(4)]
        >>> folded = compact(turned, spec, key=jax.random.key(0))
        >>> folded, folded.total.tolist()
        (Compact(4 samples, spread 2.236 -> 0, rounds 2, none moves alone), [0, 2, 2, 0])
    """
    check_key(key)
    paths = frozenset(exclude) | (samples.statistics if isinstance(samples, Fit) else frozenset())
    paths |= frozenset() if apply is None else statistics_of(apply)
    members = members_of(samples)
    if chains is not None:
        members = members._replace(chains=chains)
    if cost is not None and match is not None:
        raise ConfigError("match= and cost= both say what is compared; give one of them")
    functional = members.chains is not None and x is not None and (apply is not None or activations is not None)
    match, reference = _choice(match, reference, functional and cost is None)
    numbers = (components,) if isinstance(components, int) else tuple(components)
    _check_choices(match, family, reference, rank, numbers, scale, len(members.means))
    _check_samples(members.means, spec, paths)
    before = fold(members, spec, identity_of_each(spec, len(members.means)), paths)
    if not np.isfinite(before.spread):
        raise PosteriorError(
            "a sample holds NaN or an infinity, or weights whose squares are beyond float64; "
            "the fit that made it has diverged, or divide all weights by one large number"
        )
    if spec.signed and match != "weights":
        match, cost = "weights", _cost_of(match, activations, apply, x)
    if match == "weights":
        matched = _by_weights(members, spec, cost, reference, key, paths, max_rounds, tolerance, on_round)
    else:
        if x is None:
            raise ConfigError("matching by activations needs x= and either apply= or activations=")
        seen = activations or _activations(members.means, spec, key, apply, x)
        matched = _by_activations(members.means, spec, reference, seen, x, match, paths, max_rounds, on_round)
    if _is(reference, "first"):
        _keep_first(matched)
    members = flipped(members, spec, matched.perms, matched.signs)
    after = fold(members, spec, matched.perms, paths)
    candidates = {}
    for number in numbers:
        if number > 1:
            own = None if members.stds is None else noise(members, spec, matched.perms)
            candidates[number] = mixture_of(rebase(members.means, spec, matched.perms), number, own)
        else:
            wide = family == "lowrank"
            candidates[number] = (
                low_rank(members, spec, matched.perms, rank) if wide else Gaussian(after.mean, after.std)
            )
    candidates = {number: certain(folded, paths) for number, folded in candidates.items()}
    if isinstance(samples, Fit) and likelihood is None and held_out is not None:
        likelihood = samples.likelihood
    posterior, chosen, losses = _chosen(candidates, scale, held_out, apply, likelihood, key)
    mixing = _mixing(members, spec, matched.perms, apply, x, key)
    if mixing is not None:
        parts = {name: part for name, part in mixing.parts.items() if part is not mixing.as_they_came}
        warn_unmixed(parts, "one Gaussian covers several basins; draw longer, or try components=", stacklevel=2)
    count = len(members.means)
    counts = [transpositions({g: perm[k] for g, perm in matched.perms.items()}) for k in range(count)]
    return Compact(
        posterior=posterior,
        direct=certain(Gaussian(before.mean, before.std), paths),
        perms=matched.perms,
        signs=dict(matched.signs),
        transpositions={group: np.array([each[group] for each in counts]) for group in spec.sizes},
        reference=after.mean if _is(reference, "mean") else _reference(members.means, reference),
        spread_before=before.spread,
        spread_after=after.spread,
        samples=count,
        rounds=matched.rounds,
        converged=matched.converged,
        scale=chosen,
        held_out_nll=losses,
        mixing=mixing,
    )


def _choice(match: Match | None, reference: Reference | None, by_activations: bool) -> tuple[Match, Reference]:
    """What was given, and where nothing was, what the evidence says for this kind of samples."""
    if match is None and reference is None:
        return ("activations", "first") if by_activations else ("weights", "mean")
    return match or "weights", "mean" if reference is None else reference


def _mixing(
    members: Members, spec: PermutationSpec, perms: dict[str, np.ndarray], apply: Apply | None, x: Any, key: PRNGKey
) -> ChainDiagnostics | None:
    """Whether several chains agree once their units are in one order; None where there is nothing to compare."""
    count = len(members.means)
    if members.chains is None or members.chains < 2 or count % members.chains or count < 4 * members.chains:
        return None
    probes = None if apply is None or x is None else predictions_of(members.means, apply, x)
    return compare_chains(members.means, members.chains, spec, perms, probes, key=key)


def _by_weights(
    members: Members,
    spec: PermutationSpec,
    cost: CostLike | None,
    reference: Reference,
    key: PRNGKey,
    exclude: frozenset[str],
    max_rounds: int,
    tolerance: float,
    on_round: OnRound | None,
) -> MatchedSamples:
    options: dict[str, Any] = {"key": key, "exclude": exclude}
    if cost is not None or members.stds is not None:
        options["cost"] = "wasserstein" if cost is None else cost  # which compares the spreads of Gaussians too
        networks = members.networks
        if _is(reference, "mean"):
            found = align_many(networks, spec, max_sweeps=max_rounds, relative_tolerance=tolerance, **options)
            return stacked(found.perms, found.signs, found.sweeps, found.converged, spec)
        target = networks[0] if _is(reference, "first") else _reference(members.means, reference)
        each = [align(target, one, spec, **options) for one in networks]
        converged = all(one.converged for one in each)
        return stacked([one.perms for one in each], [one.signs for one in each], 1, converged, spec)
    options["on_round"] = on_round
    if _is(reference, "mean"):
        return match_weights_to_mean(members.means, spec, max_rounds=max_rounds, tolerance=tolerance, **options)
    return match_weights(_reference(members.means, reference), members.means, spec, **options)


def _by_activations(
    samples: SampleSet,
    spec: PermutationSpec,
    reference: Reference,
    activations: Activations,
    x: Inputs,
    match: Match,
    exclude: frozenset[str],
    max_rounds: int,
    on_round: OnRound | None,
) -> MatchedSamples:
    options: dict[str, Any] = {"correlation": match == "correlations", "on_round": on_round}
    if _is(reference, "mean"):
        options |= {"exclude": exclude, "max_rounds": max_rounds}
        return match_activations_to_mean(samples, spec, activations, x, **options)
    return match_activations(_reference(samples, reference), samples, spec, activations, x, **options)


def _chosen(
    candidates: Mapping[int, Folded],
    scale: float | Literal["held-out"],
    held_out: Data | None,
    apply: Apply | None,
    likelihood: LikelihoodLike | None,
    key: PRNGKey,
) -> tuple[Folded, float, dict[str, float] | None]:
    """The candidate and the scale with the best held-out NLL; without a choice to make nothing is computed."""
    scales = SCALES if isinstance(scale, str) else (float(scale),)
    if len(candidates) == 1 and len(scales) == 1:
        (only,) = candidates.values()
        return (only if scales[0] == 1 else scaled(only, scales[0])), scales[0], None
    if held_out is None or apply is None:
        raise ConfigError("choosing a scale or a number of components needs held_out=(x, y) and apply=")
    options: dict[str, Any] = {"key": key, "samples": DRAWS, "likelihood": likelihood}
    losses = {
        (number, one): loss
        for number, posterior in candidates.items()
        for one, loss in losses_of_scales(posterior, apply, held_out, scales, **options).items()
    }
    number, best = min(losses, key=lambda tried: losses[tried])
    several = len(candidates) > 1
    said = {f"{n} components, scale {one:g}" if several else f"{one:g}": loss for (n, one), loss in losses.items()}
    return scaled(candidates[number], best), best, said


def _keep_first(matched: MatchedSamples) -> None:
    """The reference itself stays where it is, whatever the order of equal units."""
    for perm in matched.perms.values():
        perm[0] = np.arange(perm.shape[-1])
    for sign in matched.signs.values():
        sign[0] = 1


def _cost_of(match: Match, activations: Activations | None, apply: Apply | None, x: Inputs | None) -> CostLike:
    """The cost that compares what units do and knows what their signs do to it."""
    if activations is not None or apply is None or x is None:
        raise ConfigError(
            f"match='{match}' with signs needs apply= and x=, in which they are found; or pass spec.without_signs"
        )
    return costs.Activations(apply, x, compare="covariance" if match == "activations" else "correlation")


def _activations(
    samples: SampleSet,
    spec: PermutationSpec,
    key: PRNGKey,
    apply: Apply | None,
    x: Inputs,
) -> Activations:
    if apply is None:
        raise ConfigError("matching by activations needs x= and either apply= or activations=")
    return hidden_activations(apply, samples[0], take(x, slice(8)), spec, key=key)


def _reference(samples: SampleSet, reference: Reference) -> Tree:
    return samples[0] if _is(reference, "first") else jax.tree.map(np.asarray, reference)


def _is(reference: Reference, name: str) -> bool:
    return isinstance(reference, str) and reference == name


def _check_choices(
    match: str,
    family: str,
    reference: Reference,
    rank: int | None,
    components: tuple[int, ...],
    scale: float | str,
    count: int,
) -> None:
    for name, value, choices in (("match", match, get_args(Match)), ("family", family, get_args(Family))):
        if value not in choices:
            raise ConfigError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
    if isinstance(reference, str) and reference not in ("mean", "first"):
        raise ConfigError(f"reference must be mean, first or a parameter tree, not {reference!r}")
    if rank is not None and family != "lowrank":
        raise ConfigError("rank is for family='lowrank'")
    if scale != "held-out" and not (isinstance(scale, int | float) and 0 <= scale < np.inf):
        raise ConfigError(f"scale must be a number that is not negative, or 'held-out', not {scale!r}")
    if not components or min(components) < 1 or max(components) > max(1, count // 2):
        raise ConfigError(f"components: from 1 to half of the {count} samples, not {components}")
    if max(components) > 1 and family != "diagonal":
        raise ConfigError("a mixture has diagonal components; leave family='diagonal'")


def _check_samples(samples: SampleSet, spec: PermutationSpec, exclude: frozenset[str]) -> None:
    if len(samples) < 2:
        raise PosteriorError(f"one Gaussian needs at least two samples, not {len(samples)}")
    if extra := spec.check(samples[0]):
        raise PosteriorError(
            f"every sample has {extra} more leading axes than the network; trees of (chains, draws, ...) go in by "
            "Samples.from_chains(tree)"
        )
    for path in exclude - set(spec.axes):
        raise ConfigError(f"exclude: there is no parameter '{path}'")
