"""What can be folded: samples in memory or on disk, a list of networks, the members of a fit, a list of Gaussians.

Several Gaussians are their means with a spread of their own: all that is done to samples is done to the means, and
the variance of each joins the variance between them,

    mean = mean of the means,    variance = mean of the variances + variance of the means (divisor K),

which are mean and variance of the mixture of the Gaussians with equal weights. Low-rank Gaussians bring factors of
their own: then the same holds for whole covariances, factor by factor.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import ConfigError, ModelError, PosteriorError
from ..inference import Draws, Fit, chains_of
from ..posteriors import FactorGaussian, Gaussian, LowRankGaussian, Samples, is_posterior
from ..symmetry import PermutationSpec, invert_signs, permute
from ..trees import Tree, flatten
from .moments import Moments, moments, rebase
from .unit_matrix import PermsOfEach, SampleSet, on_host

OneGaussian = Gaussian | LowRankGaussian | FactorGaussian
Foldable = Samples | Draws | Fit | Sequence[OneGaussian] | Sequence[Tree]


class Members(NamedTuple):
    """Networks to be moved onto each other, each with a spread of its own where it is a Gaussian."""

    means: SampleSet
    stds: Samples | None  # of every weight, in all
    chains: int | None  # of which they are draws, one chain after the other; None where they are of no chain
    low_rank: tuple[OneGaussian, ...] = ()  # the Gaussians themselves, where some have factors

    @property
    def networks(self) -> list[Gaussian] | list[Tree]:
        """The members one by one: Gaussians, or points where they are samples."""
        return self.gaussians if self.stds is not None else [self.means[k] for k in range(len(self.means))]

    @property
    def gaussians(self) -> list[Gaussian]:
        """The members as Gaussians; points where they are samples."""
        if self.stds is None:
            return [Gaussian.point(self.means[k]) for k in range(len(self.means))]
        return [Gaussian(self.means[k], self.stds[k]) for k in range(len(self.means))]


def members_of(given: Foldable) -> Members:
    """Returns what was given as members on the host.

    Raises:
        PosteriorError: it is none of the kinds, or its parts are of different ones.
    """
    if isinstance(given, Fit):
        members = members_of(given.posterior if len(given.posteriors) == 1 else list(given.posteriors))
        return members._replace(chains=chains_of(given))
    if isinstance(given, Samples | Draws):
        return Members(on_host(given), None, chains_of(given))
    if not isinstance(given, list | tuple):
        raise PosteriorError(
            f"compact folds Samples, Draws, a Fit of several members, or a list of networks or Gaussians, "
            f"not {type(given).__name__}"
        )
    gaussian = [isinstance(one, OneGaussian) for one in given]
    if not all(gaussian) and (any(gaussian) or any(map(is_posterior, given))):
        kinds = ", ".join(sorted({type(one).__name__ for one in given}))
        raise PosteriorError(f"a list to fold holds networks alone or Gaussians alone, not {kinds}")
    if not given:
        raise PosteriorError("one Gaussian needs at least two samples, not 0")
    try:
        if not gaussian[0]:
            return Members(on_host(Samples.stack(given)), None, None)
        means, stds = (Samples.stack([getattr(one, name) for one in given]) for name in ("mean", "std"))
    except (ValueError, TypeError) as error:
        raise PosteriorError(f"the members are not of one network: {error}") from None
    low_rank = () if all(isinstance(one, Gaussian) for one in given) else tuple(given)
    return Members(on_host(means), Samples(jax.tree.map(np.asarray, stds.params)), None, low_rank)


def flipped(members: Members, spec: PermutationSpec, perms: PermsOfEach, signs: PermsOfEach) -> Members:
    """Returns the members with the signs of their units changed, units in their old order; `perms` then move them."""
    if not signs:
        return members
    still, count = spec.identity(), len(members.means)
    own = []
    for k in range(count):
        perm, sign = ({group: part[k] for group, part in each.items()} for each in (perms, signs))
        own.append(invert_signs(perm, sign, spec))
    means = (permute(members.means[k], spec, still, own[k]) for k in range(count))
    return members._replace(
        means=Samples(jax.tree.map(lambda *leaves: np.stack(leaves), *means)),
        low_rank=tuple(one.permute(spec, still, own[k]) for k, one in enumerate(members.low_rank)),
    )


def fold(members: Members, spec: PermutationSpec, perms: PermsOfEach, exclude: frozenset[str]) -> Moments:
    """Returns mean, std and spread of the members, each moved by its own permutations."""
    between = moments(members.means, spec, perms, exclude)
    if members.stds is None:
        return between
    share = (len(members.means) - 1) / len(members.means)  # from the divisor K − 1 to K
    std = jax.tree.map(lambda own, s: np.sqrt(own**2 + share * s**2), noise(members, spec, perms), between.std)
    squares = [np.square(leaf).reshape(-1) for path, leaf in flatten(std).items() if path not in exclude]
    return Moments(between.mean, std, float(np.sqrt(np.concatenate(squares).mean())) if squares else 0.0)


def low_rank(
    members: Members, spec: PermutationSpec, perms: PermsOfEach, rank: int | None
) -> LowRankGaussian | FactorGaussian:
    """Returns the Gaussian with the covariance of the moved members, and their own spread where they have one."""
    if members.low_rank and rank is not None:
        raise ConfigError("rank= limits what samples and mean-field Gaussians vary in; these have factors")
    between = LowRankGaussian.from_samples(rebase(members.means, spec, perms), rank)
    if members.stds is None:
        return between
    count = len(members.means)

    def times(tree: Tree, share: float) -> Tree:
        return jax.tree.map(lambda leaf: (leaf * np.float32(share)).astype(leaf.dtype), tree)

    parts, own = [times(between.factors, np.sqrt((count - 1) / count))], members.stds
    if members.low_rank:
        for number, one in enumerate(members.low_rank):
            if not isinstance(one, Gaussian):
                moved = one.permute(spec, {group: perm[number] for group, perm in perms.items()})
                parts.append(times(moved.factors, 1 / np.sqrt(count)))
        own = Samples(jax.tree.map(np.asarray, Samples.stack([_own_noise(one) for one in members.low_rank]).params))
    factors = jax.tree.map(lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves]), *parts)
    return FactorGaussian(between.mean, factors, noise(members._replace(stds=own), spec, perms))


def _own_noise(one: OneGaussian) -> Tree:
    """The part of a Gaussian's spread in which weights are independent."""
    if isinstance(one, LowRankGaussian):
        return jax.tree.map(lambda leaf: jnp.zeros_like(jnp.asarray(leaf)), one.mean)
    return one.noise if isinstance(one, FactorGaussian) else one.std


def noise(members: Members, spec: PermutationSpec, perms: PermsOfEach) -> Tree:
    """Root of the mean of the members' own variances, moved."""
    if members.stds is None:
        raise ModelError("samples have no spread of their own")
    moved = rebase(members.stds, spec, perms)

    def root(leaf: np.ndarray) -> np.ndarray:
        return np.sqrt(np.mean(np.square(leaf, dtype=np.float64), 0)).astype(leaf.dtype)

    return jax.tree.map(root, moved.params)
