"""Paths on which every unit keeps its mean and spread.

Half-way between two networks a unit is the mean of two that are alike but not equal, so that it varies less than
either; layer after layer this adds up, and most of what alignment leaves of a barrier comes from it. A rescaled path
gives each unit, at each site before a non-linearity (`symmetry/activations.py`), an affine map by which its mean and
standard deviation over data are those of the two ends, interpolated:

    mean_τ = (1 − τ) mean_0 + τ mean_1        spread_τ = (1 − τ) spread_0 + τ spread_1

The map is folded into parameters (`symmetry/unit_maps.py`), stds scaled along, so that a point of the path is a
posterior like any other. Where a layer has no such parameters the map stands inside the network (`correction.py`),
and its numbers are parameters of the points. A site without parameters of its own in a group that has some elsewhere,
such as the sum of a residual stream, follows from those that have. Correcting one site changes what comes after it,
so they are corrected one after the other, in the order of evaluation, each measured after those before it: all at
once overshoots, and left a ResNet20 worse than it was. One pass does that where all inputs and draws fit into
memory at once (`one_pass.py`). It is exact where a map acts at its site alone, which a second pass over the result
checks; else, and where memory does not suffice, there is a pass for each site. The data need no labels. The ends are
left as they are, to the bit.

With labels the same maps are then fitted to the loss, some 0.3 % of the parameters; so are those of the ends, lest a
path seem better than its ends for having been trained. Without any the ends can teach the points between them, and
stay as they are.

References: Jordan et al. 2023 (REPAIR, for points); Hinton et al. 2015 (networks taught by others' predictions).
"""

from collections.abc import Callable, Sequence
from typing import Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Shaped

from ..errors import ConfigError, DataError
from ..inputs import ExampleInputs, count_of
from ..jaxprs import Apply
from ..likelihoods import Likelihood, LikelihoodLike, as_likelihood, check_outputs
from ..paths import Mixture, as_gaussian
from ..posteriors import Gaussian, Posterior
from ..randomness import PRNGKey
from ..symmetry import PermutationSpec
from ..trees import Tree
from .correction import corrected_where_needed
from .label_fit import LabelFit
from .units import Network, UnitMoments, checked, network_of, weighted

Path = Callable[[float], Posterior | Mixture | Tree]


class Rescaled:
    """A rescaled path, a function of τ; made by `rescale`. Points are computed when asked for and then kept.

    `apply` evaluates its points, and `spec` has their groups. Where units have no parameters that could map them
    it is the network with a gain and a bias for each, and points have them beside the network's own parameters; else
    it is the network itself.
    """

    def __init__(self, path: Path, network: Network, spec: PermutationSpec, fit: LabelFit | None):
        self.path, self.apply, self.spec = path, network.apply, spec
        self._network, self._fit = network, fit
        self._ends = [as_gaussian(path(tau)) for tau in (0.0, 1.0)]
        self._moments = [network.moments(end) for end in self._ends]
        self._points: dict[float, Gaussian] = {}

    def __call__(self, tau: float) -> Gaussian:
        """The posterior at τ; without labels exactly that of the path at 0 and 1."""
        tau = float(tau)
        if tau not in self._points:
            point = self._ends[int(tau)] if tau in (0.0, 1.0) else self._rescaled(tau)
            own = self._fit is None or (self._fit.taught and tau in (0.0, 1.0))  # an end is its own teacher
            self._points[tau] = point if own else self._fitted(point, tau)
        return self._points[tau]

    def __repr__(self) -> str:
        fitted = "" if self._fit is None else ", taught by its ends" if self._fit.taught else ", fitted to labels"
        return f"Rescaled({self.path}{fitted})"

    def _rescaled(self, tau: float) -> Gaussian:
        return self._network.rescaled(as_gaussian(self.path(tau)), self._wanted(tau))

    def _fitted(self, point: Gaussian, tau: float) -> Gaussian:
        spreads = [jnp.asarray(spread, jnp.float32) for _, spread in self._wanted(tau)]
        return self._network.mapped(point, self._fit.fit(point, spreads, tau)) if self._fit else point

    def _wanted(self, tau: float) -> UnitMoments:
        return weighted(self._moments, [1 - tau, tau])


def rescale(
    path: Path,
    apply: Apply,
    x: ExampleInputs,
    *,
    key: PRNGKey,
    samples: int = 1,
    spec: PermutationSpec | None = None,
    labels: Shaped[Array | np.ndarray, "examples ..."] | Literal["ends"] | None = None,
    steps: int = 300,
    batch: int = 250,
    likelihood: LikelihoodLike = "categorical",
    compute: Literal["float32", "bfloat16"] = "float32",
) -> Rescaled:
    """Returns the path on which every unit has the mean and spread that the two ends have there, interpolated.

    Evaluate it by its own `apply`: where a layer has no parameters that could map its units, its points have a gain
    and a bias for each unit beside the parameters of the network.

    Args:
        path: from `geodesic`, or any function of τ that gives mean-field Gaussians or points.
        apply: the network, `apply(params, x)`.
        x: inputs of the training set, a thousand or so; they need no labels. Units are measured on the first 2,000.
        key: decides the draws, the same for every τ.
        samples: draws of the weights over which mean and spread are taken; 0 takes the mean of the weights.
        spec: the groups of units; discovered where it is not given.
        labels: with them the maps are fitted to the loss as well, at every τ and at the ends. "ends" needs none: the
            maps between the ends are then fitted to what both ends predict on `x`, weighted by 1 − τ and τ.
        steps: of that fit.
        batch: examples of each step.
        likelihood: of the labels.
        compute: what the network computes in while it is fitted; best that of its training.

    Raises:
        ModelError: no value inside the network shows a group, as where its units are inside a loop.
        PosteriorError: the path goes through something else than Gaussians and points.

    Example:
        >>> import jax
        >>> from bayesin import geodesic
        >>> apply = lambda p, x: jax.nn.relu(x @ p["w0"] + p["b0"]) @ p["w1"]
        >>> def net(seed):
        ...     keys = jax.random.split(jax.random.key(seed))
        ...     w0, w1 = jax.random.normal(keys[0], (4, 8)), jax.random.normal(keys[1], (8, 2))
        ...     return {"b0": jnp.zeros(8), "w0": w0, "w1": w1}
        >>> x = jax.random.normal(jax.random.key(2), (500, 4))
        >>> path = rescale(geodesic(net(0), net(1)), apply, x, key=jax.random.key(3))
        >>> hidden = [jnp.std(x @ path(tau).mean["w0"], 0) for tau in (0.0, 0.5, 1.0)]
        >>> bool(jnp.allclose(hidden[1], (hidden[0] + hidden[2]) / 2, rtol=1e-4))
        True
    """
    if steps < 1 or batch < 1:
        raise ConfigError(f"steps and batch start at 1, not {steps} and {batch}")
    apply, x, spec = checked(apply, as_gaussian(path(0.0)).mean, x, spec, key, samples)
    path, apply, spec = corrected_where_needed(path, apply, x, spec)
    mean = as_gaussian(path(0.0)).mean
    network = network_of(apply, mean, x, spec, key, samples)
    fit = None
    if labels is not None:
        chosen = as_likelihood(likelihood)
        taught = isinstance(labels, str)
        targets = _no_labels(labels, chosen, count_of(network.x)) if taught else np.asarray(labels)
        if len(targets) != count_of(network.x):
            raise DataError(f"need as many labels as inputs, not {len(targets)} and {count_of(network.x)}")
        check_outputs(chosen, network.apply, mean, (network.x, targets))
        teachers = [as_gaussian(path(tau)) for tau in (0.0, 1.0)] if taught else targets
        fit = LabelFit(network, teachers, steps, batch, chosen, compute)
    return Rescaled(path, network, spec, fit)


def _no_labels(labels: str, likelihood: Likelihood, count: int) -> np.ndarray:
    """Labels that stand for none, where the ends are to teach the points between them."""
    if labels != "ends":
        raise ConfigError(f"labels are an array, or 'ends', not '{labels}'")
    if not hasattr(likelihood, "log_probs"):
        raise ConfigError("labels='ends' needs a likelihood with probabilities of classes; else give labels")
    return np.zeros(count, np.int32)


def rescale_middle(
    middle: Gaussian,
    members: Sequence[Posterior | Tree],
    apply: Apply,
    x: ExampleInputs,
    *,
    key: PRNGKey,
    samples: int = 1,
    spec: PermutationSpec | None = None,
) -> Gaussian:
    """Returns the posterior in the middle of many with every unit's mean and spread the average of theirs.

    Half-way between two that is what `rescale` gives at τ = ½.
    """
    apply, x, spec = checked(apply, middle.mean, x, spec, key, samples)
    network = network_of(apply, middle.mean, x, spec, key, samples)
    moments = [network.moments(as_gaussian(member)) for member in members]
    return network.rescaled(middle, weighted(moments, [1 / len(moments)] * len(moments)))
