"""What can be folded: samples in memory or on disk, a list of networks, the members of a fit, a list of Gaussians.

Several Gaussians are their means with a spread of their own: all that is done to samples is done to the means, and
the variance of each joins the variance between them,

    mean = mean of the means,    variance = mean of the variances + variance of the means (divisor K),

which are mean and variance of the mixture of the Gaussians with equal weights.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from ..errors import ModelError, PosteriorError
from ..inference import Draws, Fit
from ..posteriors import FactorGaussian, Gaussian, LowRankGaussian, Samples, is_posterior
from ..symmetry import PermutationSpec
from ..trees import Tree, flatten
from .moments import Moments, moments, rebase
from .unit_matrix import PermsOfEach, SampleSet, on_host

Foldable = Samples | Draws | Fit | Sequence[Gaussian] | Sequence[Tree]


class Members(NamedTuple):
    """Networks to be moved onto each other, each with a spread of its own where it is a Gaussian."""

    means: SampleSet
    stds: Samples | None
    chained: bool  # draws of Markov chains

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
        chained = hasattr(given.config, "chains")
        return members_of(given.posterior if len(given.posteriors) == 1 else list(given.posteriors))._replace(
            chained=chained
        )
    if isinstance(given, Samples | Draws):
        return Members(on_host(given), None, isinstance(given, Draws))
    if not isinstance(given, list | tuple):
        raise PosteriorError(
            f"compact folds Samples, Draws, a Fit of several members, or a list of networks or Gaussians, "
            f"not {type(given).__name__}"
        )
    gaussian = [isinstance(one, Gaussian) for one in given]
    if not all(gaussian) and (any(gaussian) or any(map(is_posterior, given))):
        kinds = ", ".join(sorted({type(one).__name__ for one in given}))
        raise PosteriorError(f"a list to fold holds networks alone or Gaussians alone, not {kinds}")
    if not given:
        raise PosteriorError("one Gaussian needs at least two samples, not 0")
    try:
        if not gaussian[0]:
            return Members(on_host(Samples.stack(given)), None, False)
        means, stds = (Samples.stack([getattr(one, name) for one in given]) for name in ("mean", "std"))
    except (ValueError, TypeError) as error:
        raise PosteriorError(f"the members are not of one network: {error}") from None
    return Members(on_host(means), Samples(jax.tree.map(np.asarray, stds.params)), False)


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
    between = LowRankGaussian.from_samples(rebase(members.means, spec, perms), rank)
    if members.stds is None:
        return between
    share = np.sqrt((len(members.means) - 1) / len(members.means)).astype(np.float32)
    factors = jax.tree.map(lambda leaf: (leaf * share).astype(leaf.dtype), between.factors)
    return FactorGaussian(between.mean, factors, noise(members, spec, perms))


def noise(members: Members, spec: PermutationSpec, perms: PermsOfEach) -> Tree:
    """Root of the mean of the members' own variances, moved."""
    if members.stds is None:
        raise ModelError("samples have no spread of their own")
    moved = rebase(members.stds, spec, perms)

    def root(leaf: np.ndarray) -> np.ndarray:
        return np.sqrt(np.mean(np.square(leaf, dtype=np.float64), 0)).astype(leaf.dtype)

    return jax.tree.map(root, moved.params)
