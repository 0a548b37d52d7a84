"""The demonstration: two posteriors of the embedded digits, the barrier between them, and its end.

Two mean-field posteriors are trained from different random starts, the second is aligned to the first, and
the marginal loss is measured along both geodesics. Everything is written under one folder as it is made:
posteriors, permutations, spec, and the numbers of every curve.

The temperature of 0.1 is a choice, not the Bayes posterior. With 85,000 weights for 1,437 training images the prior
of the untempered posterior weighs so much that test accuracy is 96.4 % (key 0). The effect does not hang on it:
barriers before and after alignment were 1.36 and 0.05 nats at T = 1, 1.17 and 0.03 at T = 0.3, 0.97 and 0.01 at
T = 0.1 (key 0, 9 points on the path, 64 samples).
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from .. import data as datasets
from ..data import Dataset
from ..evaluation.barrier import Barrier, barrier
from ..evaluation.plane import Plane, plane
from ..files import write_json
from ..inference import VI, fit_vi
from ..matching import Alignment, align
from ..models import Model, build
from ..paths import geodesic
from ..posteriors import Gaussian
from ..store import save_alignment, save_posterior
from ..symmetry import PermutationSpec, discover, verify
from .clock import Clock
from .provenance import provenance

STAGES = {"train": 30, "match": 6, "barrier": 36, "landscape": 18}  # share of the work, for the bar
TEST, TRAIN = "test", "train"
SETS = {TEST: "test set", TRAIN: "training set"}


@dataclass(frozen=True)
class DemoSettings:
    """What the demonstration does; the defaults are the demonstration."""

    width: int = 256
    depth: int = 2
    training: VI = dataclasses.field(
        default_factory=lambda: VI(
            members=2, temperature=0.1, prior_variance=0.05, learning_rate=3e-3, epochs=150, batch=100
        )
    )
    restarts: int = 4
    taus: int = 25
    samples: int = 128  # draws of the weights at every τ on the test set
    train_samples: int = 32  # on the training set, which is four times as large
    plane_resolution: int = 21
    plane_samples: int = 8


class DemoProgress(NamedTuple):
    """Where the demonstration stands."""

    stage: str  # one of STAGES
    share: float  # of this stage, 0 to 1
    note: str = ""

    @property
    def overall(self) -> float:
        """Share of the whole work, 0 to 1."""
        names = list(STAGES)
        before = sum(STAGES[name] for name in names[: names.index(self.stage)])
        return (before + self.share * STAGES[self.stage]) / sum(STAGES.values())


@dataclass(frozen=True)
class Demo:
    """Everything that the demonstration found."""

    settings: DemoSettings
    key: int
    data: Dataset
    model: Model
    spec: PermutationSpec
    first: Gaussian
    second: Gaussian
    alignment: Alignment
    function_gap: float  # largest change of an output by moving the second posterior's mean
    barriers: dict[str, dict[str, Barrier]]  # {"test": {"naive": …, "aligned": …}, "train": …}
    plane: Plane
    seconds: dict[str, float]
    provenance: dict[str, Any]  # versions, machine, commit

    @property
    def accuracies(self) -> tuple[float, float]:
        """Test accuracy of both posteriors."""
        accuracy = self.barriers[TEST]["naive"].accuracy
        return (float(accuracy[0]), float(accuracy[-1])) if accuracy is not None else (float("nan"), float("nan"))

    @property
    def units_moved(self) -> tuple[int, int]:
        """Units that changed place, and units."""
        return sum(self.alignment.moved.values()), sum(self.spec.sizes.values())


def run_demo(
    out: Path | str,
    key: int = 0,
    *,
    settings: DemoSettings | None = None,
    on_progress: Callable[[DemoProgress], Any] | None = None,
) -> Demo:
    """Trains, aligns and measures; writes posteriors, permutations and numbers under `out`.

    Args:
        out: folder for the files; made where needed. Files of an earlier demonstration are replaced.
        key: seed of everything that is random.
        settings: what to do, where it is not the demonstration itself.
        on_progress: called with a `DemoProgress` as the work goes on.

    Raises:
        SymmetryError: moving units changed the function.
        TrainingError: a posterior diverged.
    """
    settings, out = settings or DemoSettings(), Path(out)
    clock, tell = Clock(), on_progress or (lambda progress: None)
    root = jax.random.key(key)
    data = datasets.load("digits")
    model = build("mlp", data.input_shape, data.classes or 1, width=settings.width, depth=settings.depth)

    with clock("train two posteriors"):
        report = lambda p: tell(DemoProgress("train", p.step / p.steps, f"loss {float(np.mean(p.row['loss'])):.3f}"))  # noqa: E731
        fit = fit_vi(jax.random.fold_in(root, 0), model, data, settings.training, on_progress=report)
        first, second = fit.posteriors

    with clock("find the symmetry and align"):
        tell(DemoProgress("match", 0.0))
        probe = data.x_test[:16]
        spec = discover(model.apply, first.mean, probe)
        verify(model.apply, first.mean, probe, spec, key=jax.random.fold_in(root, 1))
        alignment = align(
            first,
            second,
            spec,
            key=jax.random.fold_in(root, 2),
            restarts=settings.restarts,
            exclude=model.statistics,
            check=(model.apply, data.x_test),
        )
        gap = _largest_change(model, second, alignment.posterior, data.x_test)

    ends = {"naive": second, "aligned": alignment.posterior}
    barriers = _barriers(first, ends, model, data, settings, jax.random.fold_in(root, 3), clock, tell)

    with clock("plane"):
        found = plane(
            [first, second, alignment.posterior],
            model.apply,
            (data.x_test, data.y_test),
            key=jax.random.fold_in(root, 4),
            prior_variance=settings.training.prior_variance,
            resolution=settings.plane_resolution,
            samples=settings.plane_samples,
            exclude=model.statistics,
            on_point=lambda done, points: tell(DemoProgress("landscape", done / points)),
        )
    demo = Demo(
        settings, key, data, model, spec, first, second, alignment, gap, barriers, found, clock.seconds, provenance()
    )
    save_demo(out, demo)
    return demo


def save_demo(out: Path, demo: Demo) -> None:
    """Writes posteriors, permutations and numbers; each file is whole or absent."""
    described = {
        "model": {"name": "mlp", "width": demo.settings.width, "depth": demo.settings.depth},
        "data": "digits",
    }
    posteriors = {"first": demo.first, "second": demo.second, "aligned": demo.alignment.posterior}
    for name, posterior in posteriors.items():
        save_posterior(out / f"{name}.safetensors", posterior, spec=demo.spec, metadata=described)
    found = {"cost": demo.alignment.cost, "restarts": demo.settings.restarts, "start": demo.alignment.start}
    save_alignment(out / "alignment.safetensors", demo.alignment.perms, demo.spec, settings=found)
    numbers = {name: {kind: one.to_json() for kind, one in kinds.items()} for name, kinds in demo.barriers.items()}
    write_json(out / "barrier.json", numbers)
    write_json(out / "plane.json", demo.plane.to_json())
    write_json(out / "provenance.json", {**demo.provenance, "seconds": demo.seconds})
    write_json(out / "config.json", {"key": demo.key, **dataclasses.asdict(demo.settings)})


def _barriers(first, ends, model, data, settings, key, clock, tell) -> dict[str, dict[str, Barrier]]:
    sets = {
        TEST: ((data.x_test, data.y_test), settings.samples, first_of_each(data.y_test)),
        TRAIN: ((data.x_train, data.y_train), settings.train_samples, ()),
    }
    found: dict[str, dict[str, Barrier]] = {}
    for number, (name, (arrays, samples, kept)) in enumerate(sets.items()):
        found[name] = {}
        with clock(f"barrier, {SETS[name]}"):
            for half, (kind, end) in enumerate(ends.items()):
                done = 2 * number + half

                def on_tau(count: int, tau: float, loss: float, done: int = done) -> None:
                    tell(DemoProgress("barrier", (done + count / settings.taus) / 4, f"τ = {tau:.2f}"))

                found[name][kind] = barrier(
                    geodesic(first, end),
                    model.apply,
                    arrays,
                    key=key,
                    samples=samples,
                    taus=settings.taus,
                    keep=kept,
                    on_tau=on_tau,
                )
    return found


def first_of_each(labels: np.ndarray) -> np.ndarray:
    """Returns the first example of each class: a choice of images that does not depend on any result.

    Example:
        >>> first_of_each(np.array([2, 0, 2, 1])).tolist()
        [1, 3, 0]
    """
    return np.unique(labels, return_index=True)[1]


def _largest_change(model: Model, before: Gaussian, after: Gaussian, x: Any) -> float:
    with jax.default_matmul_precision("highest"):
        return float(np.abs(np.asarray(model.apply(after.mean, x)) - np.asarray(model.apply(before.mean, x))).max())
