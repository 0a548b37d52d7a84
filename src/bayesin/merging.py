"""Many posteriors of one network merged into one: aligned, averaged, and rescaled to keep its units' spread.

The merged posterior is the Wasserstein barycentre of the moved ones, the mean of their means and of their stds.
Half-way between networks that are alike but not equal a unit varies less than in any of them; given inputs, every
unit gets the average of the means and spreads that it has in the members (`rescaling/`), folded into parameters.
So the result is a posterior like any other, of the size of one.

All members are moved onto their common middle by any cost (`align_many`), so that none of them is the reference.

References: Ainsworth et al. 2023 (merging points); Jordan et al. 2023 (REPAIR).
"""

from collections.abc import Iterable, Sequence

import equinox as eqx
import jax

from .errors import ConfigError, PosteriorError
from .inputs import ExampleInputs
from .jaxprs import Apply, statistics_of
from .matching import align_many, barycentre
from .matching.costs import CostLike, name_of
from .paths import as_gaussian
from .posteriors import Gaussian, Posterior, is_posterior
from .randomness import PRNGKey, check_key
from .rescaling import rescale_middle
from .symmetry import Perms, PermutationSpec, Signs
from .trees import Tree


class Merged(eqx.Module):
    """One posterior in place of several, and what it was made of.

    Example:
        >>> import numpy as np
        >>> spec = PermutationSpec.parse({"w": ["2", "g0"]}, {"g0": 3})
        >>> w = np.array([[1.0, 2.0, 3.0], [3.0, 1.0, 2.0]])
        >>> merged = merge([{"w": w}, {"w": w[:, ::-1]}], spec, key=jax.random.key(0))
        >>> merged.perms[1]["g0"].tolist(), merged.rescaled
        ([2, 1, 0], False)
    """

    posterior: Gaussian | Tree  # in the middle, rescaled where inputs were given; a point where all members are
    average: Gaussian | Tree  # the same before it was rescaled
    members: list[Posterior | Tree]  # moved
    perms: list[Perms]  # one for each member; new[i] = old[perm[i]]
    signs: list[Signs]  # of each, where the spec has signs; new[i] = sign[i] old[perm[i]]
    cost: str = eqx.field(static=True)
    rescaled: bool = eqx.field(static=True)

    def __repr__(self) -> str:
        what = "aligned and rescaled" if self.rescaled else "aligned"
        return f"Merged({len(self.members)} posteriors, {what}, by {self.cost})"


def merge(
    posteriors: Sequence[Posterior | Tree],
    spec: PermutationSpec,
    *,
    key: PRNGKey,
    cost: CostLike = "wasserstein",
    apply: Apply | None = None,
    x: ExampleInputs | None = None,
    samples: int = 1,
    exclude: Iterable[str] = (),
) -> Merged:
    """Returns the one posterior at the middle of many of the same network.

    Args:
        posteriors: mean-field Gaussians or points, at least two.
        spec: which axes move together, and where units may flip.
        key: decides visiting orders, and the draws on which units are measured.
        cost: by which they are aligned; see `bayesin.costs`.
        apply: the network; needed with `x`. The statistics of a `Model` are excluded.
        x: inputs of the training set, a thousand or so, without labels; with them the result is rescaled.
        samples: draws of the weights over which units are measured; 0 takes the mean of the weights.
        exclude: paths that are moved but kept out of the cost, such as running statistics.

    Raises:
        ConfigError: `x` without `apply`.
        ModelError: a group has no parameters that could rescale it; leave `x` out.
        PosteriorError: fewer than two, or others than Gaussians and points.

    Example:
        >>> import numpy as np
        >>> from bayesin import permute
        >>> spec = PermutationSpec.parse({"b0": ["g0"], "w0": ["2", "g0"], "w1": ["g0", "1"]}, {"g0": 3})
        >>> net = {"b0": np.zeros(3), "w0": np.array([[1.0, 2, 3], [3, 1, 2]]), "w1": np.array([[1.0], [5], [9]])}
        >>> turned = [permute(net, spec, {"g0": np.roll(np.arange(3), k)}) for k in range(3)]
        >>> merged = merge(turned, spec, key=jax.random.key(0))
        >>> merged, merged.posterior["w1"].ravel().tolist()
        (Merged(3 posteriors, aligned, by wasserstein), [1.0, 5.0, 9.0])
    """
    check_key(key)
    if not isinstance(posteriors, Sequence) or len(posteriors) < 2:
        raise PosteriorError("merge takes a list of at least two posteriors of one network, such as fit.posteriors")
    if x is not None and apply is None:
        raise ConfigError("rescaling on x= needs apply=, the network")
    for posterior in posteriors:
        as_gaussian(posterior)  # refuses others
    paths = frozenset(exclude) | (frozenset() if apply is None else statistics_of(apply))
    together = align_many(posteriors, spec, key=key, cost=cost, exclude=paths)
    members = together.posteriors
    middle = barycentre(members)
    rescaled = middle
    if x is not None and apply is not None:
        draws = jax.random.fold_in(key, 1)
        rescaled = rescale_middle(middle, members, apply, x, key=draws, samples=samples, spec=spec)
    points = not any(map(is_posterior, posteriors))
    return Merged(
        posterior=rescaled.mean if points else rescaled,
        average=middle.mean if points else middle,
        members=members,
        perms=together.perms,
        signs=together.signs,
        cost=name_of(cost),
        rescaled=x is not None,
    )
