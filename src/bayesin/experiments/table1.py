"""Table 1 of Xiao et al. 2023 and columns past it: does one Gaussian predict what the samples predict?

Every column is a set of networks whose averaged prediction on the test set is compared with that of the HMC samples:
agreement, total variation (with its ½), accuracy; and the accuracy of the column's mean network.

    hmc, ensemble           the samples themselves
    … direct                q_d: a diagonal Gaussian fitted to the samples as they came
    … M/R diagonal          q_r: the same after matching by M to the reference R; the paper's is activations/first
    … M/R lowrank           the Gaussian with the full covariance of the moved samples
    … M/R F shrunk          family F with every deviation multiplied by one number, a hyper-parameter
    vi                      the mean-field posterior

Why a diagonal Gaussian over-disperses: under N(0, 1) the posterior leaves most single weights nearly as wide as
the prior and constrains their combinations, such as a unit's input on a given image. Independent draws lose
those combinations, while the samples' covariance keeps every linear one exactly. The number that shrinks a
Gaussian is the one of `SCALES` with the highest likelihood of training labels under the averaged prediction. No
choice looks at the test set.

Tried on short chains of a small network and not kept: scaling every unit to one norm before matching changes
nothing, as so many weights pin the norm; stds along the principal axes of the inputs help a diagonal Gaussian, but
far less than the covariance does.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..compact import Compact, compact, rebase
from ..compact.scores import predict_samples
from ..data import Dataset
from ..evaluation.metrics import accuracy, agreement, nll, total_variation
from ..inference import VI, Draws, Ensemble
from ..models import Model
from ..posteriors import Gaussian, LowRankGaussian, Samples
from ..symmetry import PermutationSpec
from ..trees import Tree

Folding = tuple[str, str]  # (match, reference)
PAPER: Folding = ("activations", "first")
FOLDINGS: tuple[Folding, ...] = (PAPER, ("activations", "mean"), ("correlations", "mean"), ("weights", "mean"))
SCALES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
TRAINING = 10_000  # training examples that the scale is chosen on
FEW = 50  # draws that it is chosen with

PAPER_ENSEMBLE = Ensemble(
    members=5, epochs=50, batch=100, optimiser="adam", learning_rate=1e-3, schedule="constant", prior_variance=1.0
)
PAPER_VI = VI(
    members=1,
    epochs=50,
    batch=100,
    optimiser="adam",
    learning_rate=1e-3,
    schedule="constant",
    prior_variance=1.0,
    initial_std=0.05,
)

Column = dict[str, Any]


def table1(
    hmc: Samples | Draws | Path | str,
    ensemble: Samples,
    vi: Gaussian,
    model: Model,
    data: Dataset,
    spec: PermutationSpec,
    *,
    key: jax.Array,
    draws: int = 200,
    foldings: Iterable[Folding] = FOLDINGS,
    every: int = 1,
    on_column: Callable[[str, Column], Any] | None = None,
) -> dict[str, Column]:
    """Returns the columns by name, as plain numbers.

    Args:
        hmc: HMC samples of one or several chains, or the folder they were written to.
        ensemble: maximum-a-posteriori networks, such as of `PAPER_ENSEMBLE`.
        vi: a mean-field posterior, such as of `PAPER_VI`.
        model: a classifier.
        data: matched on its training set, compared on its test set.
        spec: which axes move together.
        key: decides draws, and visiting orders of the matching.
        draws: networks drawn from each Gaussian.
        foldings: (match, reference) of the Gaussians after rebasin.
        every: use one HMC sample in so many.
        on_column: called with every finished column.
    """
    samples = _loaded(hmc, every)
    truth = predict_samples(samples, model.apply, data.x_test)
    columns: dict[str, Column] = {}

    def add(name: str, column: Column) -> None:
        columns[name] = column
        if on_column is not None:
            on_column(name, column)

    def score(networks: Samples | Draws, mean: Tree | None, **more: Any) -> Column:
        return _column(networks, mean, model, data, truth) | more

    for number, (method, members) in enumerate((("hmc", samples), ("ensemble", ensemble))):
        stream = jax.random.fold_in(key, number)
        add(method, score(members, None, samples=len(members)))
        for match, reference in foldings:
            found = _fold(members, model, data, spec, stream, match, reference)
            name = f"{method} {match}/{reference}"
            about = {
                "spread": found.spread_after,
                "transpositions": float(found.total.mean()),
                "passes": found.rounds,
                "converged": found.converged,
            }
            if f"{method} direct" not in columns:
                networks = Samples(found.direct.sample(stream, draws))
                add(f"{method} direct", score(networks, found.direct.mean, spread=found.spread_before))
            families = {
                "diagonal": found.posterior,
                "lowrank": LowRankGaussian.from_samples(rebase(members, spec, found.perms)),
            }
            for family, gaussian in families.items():
                networks = Samples(jax.tree.map(np.asarray, gaussian.sample(stream, draws)))
                add(f"{name} {family}", score(networks, gaussian.mean, **about))
                scale, fits = choose_scale(networks, gaussian.mean, model, data)
                narrow = shrunk(networks, gaussian.mean, scale)
                shrinking = {"scale": scale, "training_nll": fits}
                add(f"{name} {family} shrunk", score(narrow, gaussian.mean, **about, **shrinking))
    add("vi", score(Samples(vi.sample(jax.random.fold_in(key, 2), draws)), vi.mean))
    return columns


def choose_scale(networks: Samples, mean: Tree, model: Model, data: Dataset) -> tuple[float, dict[str, float]]:
    """Returns the scale of `SCALES` under which training labels are likeliest, and the loss of each.

    Args:
        networks: draws of a Gaussian; the first `FEW` are used.
        mean: its mean.
        model: a classifier.
        data: the first `TRAINING` examples of its training set are used, and nothing else.
    """
    x, y, few = data.x_train[:TRAINING], data.y_train[:TRAINING], Samples(networks[:FEW])
    losses = {
        scale: nll(np.log(np.maximum(predict_samples(shrunk(few, mean, scale), model.apply, x), 1e-12)), y)
        for scale in SCALES
    }
    best = min(losses, key=lambda scale: losses[scale])
    return best, {f"{scale:g}": loss for scale, loss in losses.items()}


def shrunk(networks: Samples, mean: Tree, scale: float) -> Samples:
    """Returns the networks with their deviations from the mean multiplied by `scale`.

    Example:
        >>> shrunk(Samples({"w": np.array([[1.0], [5.0]])}), {"w": np.array([3.0])}, 0.5).params["w"].tolist()
        [[2.0], [4.0]]
    """
    factor = np.float32(scale)
    return Samples(
        jax.tree.map(
            lambda w, m: (np.asarray(m) + factor * (w - np.asarray(m))).astype(w.dtype), networks.params, mean
        )
    )


def _column(networks: Samples | Draws, mean: Tree | None, model: Model, data: Dataset, truth: np.ndarray) -> Column:
    found = predict_samples(networks, model.apply, data.x_test)
    column = {
        "agreement": agreement(found, truth),
        "total_variation": total_variation(found, truth),
        "accuracy": accuracy(found, data.y_test),
    }
    if mean is not None:
        alone = predict_samples(
            Samples(jax.tree.map(lambda leaf: np.asarray(leaf)[None], mean)), model.apply, data.x_test
        )
        column |= {"mean_accuracy": accuracy(alone, data.y_test), "mean_agreement": agreement(alone, truth)}
    return column


def _fold(
    members: Samples | Draws,
    model: Model,
    data: Dataset,
    spec: PermutationSpec,
    key: jax.Array,
    match: Any,
    reference: str,
) -> Compact:
    return compact(members, spec, key=key, match=match, reference=reference, apply=model.apply, x=data.x_train)


def _loaded(hmc: Samples | Draws | Path | str, every: int) -> Samples:
    if isinstance(hmc, Samples):
        return Samples(hmc[::every])
    return (hmc if isinstance(hmc, Draws) else Draws(hmc)).load(every)
