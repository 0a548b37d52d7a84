"""What the stds are and what they are good for: histograms before and after rebasin, pruning by any of them.

A mask made from one posterior's stds prunes another's mean only in one reference frame, so every posterior, and
every single network, is first matched by activations to the frame of HMC's reference. Accuracies are those of
the test set, of networks that keep the share f of weights with the lowest stds, ranked over weights and biases.

Reference: Xiao et al. 2023, figure 5.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ..compact import compact, hidden_activations, prune
from ..data import Dataset
from ..inference import Draws
from ..models import Model
from ..posteriors import Gaussian, Samples
from ..symmetry import PermutationSpec, permute
from ..trees import Tree, flatten
from .device import Parts, losses, match_pairs, on_device, stack

FRACTIONS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.01)
QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


def spread_study(
    hmc: Samples | Draws,
    ensemble: Samples,
    vi: Gaussian,
    model: Model,
    data: Dataset,
    spec: PermutationSpec,
    *,
    key: jax.Array,
    match: Any = "activations",
    reference: str = "first",
    fractions: Sequence[float] = FRACTIONS,
    bins: int = 100,
) -> dict[str, Any]:
    """Returns histograms of stds before and after rebasin, and pruning curves of every (network, std) pair.

    Args:
        hmc: HMC samples.
        ensemble: maximum-a-posteriori networks.
        vi: a mean-field posterior.
        model: a classifier.
        data: matched on its training set, tested on its test set.
        spec: which axes move together.
        key: decides visiting orders.
        match: how samples of one method are matched, as for `compact`.
        reference: to what, `"first"` or `"mean"`.
        fractions: shares of weights that are kept.
        bins: of the histograms.
    """
    folded = {
        name: compact(members, spec, key=key, match=match, reference=reference, apply=model.apply, x=data.x_train)
        for name, members in (("hmc", hmc), ("ensemble", ensemble))
    }
    parts = on_device(data)
    home = _frame(folded["hmc"].reference, model, data, spec, parts, key)
    gaussians = {name: Gaussian(found.posterior.mean, found.posterior.std) for name, found in folded.items()}
    framed = {
        "hmc": gaussians["hmc"],
        **{name: home(other.mean, other) for name, other in (("ensemble", gaussians["ensemble"]), ("vi", vi))},
    }
    networks = {f"{name} mean": gaussian.mean for name, gaussian in framed.items()}
    networks |= {
        f"{name} last": home(members[-1], members[-1]) for name, members in (("hmc", hmc), ("ensemble", ensemble))
    }
    stds = {name: gaussian.std for name, gaussian in framed.items()}
    before_and_after = {"hmc before": folded["hmc"].direct, "ensemble before": folded["ensemble"].direct}
    before_and_after |= {f"{name} after": gaussian for name, gaussian in gaussians.items()} | {"vi": vi}
    return {
        "match": match,
        "reference": reference,
        "stds": std_histograms({name: gaussian.std for name, gaussian in before_and_after.items()}, bins),
        "pruning": pruning_curves(networks, stds, model, parts, fractions),
    }


def std_histograms(stds: Mapping[str, Tree], bins: int = 100) -> dict[str, Any]:
    """Returns counts over common bins, means and quantiles of the stds of every posterior.

    Example:
        >>> found = std_histograms({"q": {"w": np.array([0.5, 1.5, 1.5])}}, bins=2)
        >>> found["counts"]["q"], found["edges"]
        ([1, 2], [0.0, 0.75, 1.5])
    """
    flat = {name: np.concatenate([np.ravel(leaf) for leaf in flatten(std).values()]) for name, std in stds.items()}
    edges = np.linspace(0, max(float(values.max()) for values in flat.values()), bins + 1)
    return {
        "edges": edges.tolist(),
        "counts": {name: np.histogram(values, edges)[0].tolist() for name, values in flat.items()},
        "mean": {name: float(values.mean(dtype=np.float64)) for name, values in flat.items()},
        "quantiles": {
            name: {f"{q:g}": float(v) for q, v in zip(QUANTILES, np.quantile(values, QUANTILES), strict=True)}
            for name, values in flat.items()
        },
    }


def pruning_curves(
    networks: Mapping[str, Tree],
    stds: Mapping[str, Tree],
    model: Model,
    parts: Parts,
    fractions: Sequence[float] = FRACTIONS,
) -> dict[str, Any]:
    """Returns the test accuracy of every network pruned by every std, all in one reference frame.

    Every curve begins at the network as it was given: pruning leaves its input alone.
    """
    curves = {}
    for network, mean in networks.items():
        for std, widths in stds.items():
            pruned = stack([prune(mean, widths, fraction) for fraction in fractions])
            curves[f"{network} by {std}"] = (1 - losses(model.apply, pruned, parts.test)[1]).tolist()
    return {"fractions": list(fractions), "accuracy": curves}


def _frame(
    reference: Tree, model: Model, data: Dataset, spec: PermutationSpec, parts: Parts, key: jax.Array
) -> Callable[[Tree, Any], Any]:
    """The function that moves something whose units are those of a network into the reference's frame."""
    activations = hidden_activations(model.apply, reference, np.asarray(data.x_train[:8]), spec, key=key)

    def home(network: Tree, what: Any) -> Any:
        perms = match_pairs(activations, stack([reference]), stack([network]), parts.train)
        perms = {group: perm[0] for group, perm in perms.items()}
        if isinstance(what, Gaussian):
            return Gaussian(permute(what.mean, spec, perms), permute(what.std, spec, perms))
        return permute(what, spec, perms)

    return home
