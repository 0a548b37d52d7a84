"""`bayesin.report`: two posteriors of one's own to a page, in one call from Python.

What `bayesin barrier FIRST SECOND --align` does with files: the symmetry is found and verified, the second posterior
aligned to the first, both paths measured, and everything drawn on one page that works offline.
"""

from dataclasses import replace
from pathlib import Path

import jax

from ...data import Dataset
from ...errors import ConfigError, DataError, ModelError
from ...inputs import take
from ...likelihoods import Categorical, LikelihoodLike, as_likelihood
from ...models import Model
from ...posteriors import Posterior
from ...trees import Tree
from ..runs import (
    CHECKED,
    Clock,
    Measured,
    PosteriorPair,
    align_pair,
    discover_and_verify,
    first_of_each_class,
    measure_barriers,
    point_of,
)
from .barrier_report import MeasuredPair, with_plane, write_barrier_report

IMAGES = 10  # test images on the page, one of each class


def report(
    first: Posterior | Tree,
    second: Posterior | Tree,
    model: Model,
    data: Dataset,
    folder: Path | str,
    *,
    key: jax.Array,
    likelihood: LikelihoodLike | None = None,
    samples: int = 128,
    taus: int = 25,
    restarts: int = 1,
) -> Path:
    """Aligns two posteriors, measures the loss between them, and writes `report.html` with its figures; returns it.

    Args:
        first: a posterior or a parameter tree; it stays where it is.
        second: one of the same network, which is moved.
        model: the network.
        data: what is measured on, the test and the training set.
        folder: where the page goes, with `report.json`, which holds its numbers.
        key: of the draws and the alignment.
        likelihood: by default categorical for classes; of a regression `fit.likelihood`.
        samples: draws of the weights at every point of a path.
        taus: points on a path; an odd number, so that both ends and the middle are among them.
        restarts: starts of the alignment, of which the best is kept.

    Raises:
        ModelError, DataError, ConfigError: something is not what it should be, or a regression lacks its likelihood.
        SymmetryError: what was discovered is no symmetry after all.

    Example:
        >>> import tempfile, bayesin
        >>> data = bayesin.data.load("digits", limit=20)
        >>> model = bayesin.models.build("mlp", data.input_shape, data.outputs, width=4, depth=1)
        >>> first = model.init(jax.random.key(0))
        >>> spec = bayesin.discover(model.apply, first, data.x_test[:2])
        >>> second = bayesin.permute(first, spec, {group: range(n)[::-1] for group, n in spec.sizes.items()})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     bayesin.report(first, second, model, data, folder, key=jax.random.key(2), taus=3).name
        'report.html'
    """
    if not isinstance(model, Model):
        raise ModelError(f"report takes a bayesin Model, not {type(model).__name__}; models.from_nnx makes one, say")
    if not isinstance(data, Dataset):
        raise DataError(f"report takes a Dataset, not {type(data).__name__}; data.from_arrays makes one")
    if likelihood is None and data.classes is None:
        raise ConfigError("a regression needs likelihood=Normal(std), or that of its fit, fit.likelihood")
    known, clock = Categorical() if likelihood is None else as_likelihood(likelihood), Clock()
    inputs = take(data.x_test, slice(CHECKED))
    with clock("symmetry"):
        spec = discover_and_verify(model, point_of(first), inputs)
    pair = PosteriorPair(first, second, spec, model, inputs, data=data)
    with clock("align"):
        aligned = align_pair(pair, key=key, restarts=restarts)
    kept = first_of_each_class(data.y_test)[:IMAGES] if data.classes is not None else ()
    sets = {
        "test": Measured(data.x_test, data.y_test, samples, kept),
        "train": Measured(data.x_train, data.y_train, samples),
    }
    with clock("measure"):
        curves = measure_barriers(aligned.paths, model.apply, sets, key=key, taus=taus, likelihood=known)
    with clock("plane"):
        work = 2 * taus * samples * len(data.y_test)
        measured = with_plane(
            replace(MeasuredPair(pair, curves), aligned=aligned), key=key, work=work, likelihood=known
        )
    config = {
        "data": f"{data.name}, {len(data):,} training and {len(data.y_test):,} test examples",
        "model": model.name,
        "weight samples": f"{samples:,}",
        "points on a path": str(taus),
        "starts of the alignment": str(restarts),
    }
    return write_barrier_report(folder, measured, config=config, seconds=clock.seconds, files={})
