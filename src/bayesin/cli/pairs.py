"""Two posteriors of one model: read, aligned, and checked on one batch that the function stayed."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.markup import escape

from ..data import Dataset
from ..errors import ConfigError, DataError, SymmetryError
from ..matching import Alignment, align
from ..models import Model
from ..paths import wasserstein
from ..posteriors import Gaussian
from ..symmetry import PermutationSpec, discover, verify
from .artifacts import Given, WithModel, dataset_of, example_inputs, model_of, read, spec_of
from .output import Output

BATCH = 64  # inputs on which the function is compared before and after
TOLERANCE = 1e-3  # of the largest output: float32 sums in another order stay far below


@dataclass(frozen=True)
class Pair:
    """Two posteriors of one model, ready to be aligned or compared."""

    target: Any
    source: Any
    spec: PermutationSpec
    model: Model | None  # None where nothing names it
    data: Dataset | None
    batch: tuple[np.ndarray, str] | None  # inputs to try the function on, and what they are
    spec_from: str


@dataclass(frozen=True)
class Aligned:
    """An alignment and what is worth saying about it."""

    alignment: Alignment
    numbers: dict[str, Any]

    def show(self, out: Output, pair: Pair) -> None:
        """Prints the table of groups and the lines below it."""
        moved, sizes, numbers = self.alignment.moved, pair.spec.sizes, self.numbers
        rows = [[group, size, moved[group], f"{moved[group] / size:.0%}"] for group, size in sizes.items()]
        rows.append(["all", sum(sizes.values()), sum(moved.values()), ""])
        out.table("Units moved", ["group", "units", "moved", "share"], rows)
        out.line(f"W2 distance {numbers['w2_before']:.4g} before, {numbers['w2_after']:.4g} after")
        state = "converged" if numbers["converged"] else "stopped before it converged; raise --max-sweeps"
        out.line(f"{numbers['sweeps']} sweeps, {state}, {numbers['seconds']:.2f} s; spec {escape(pair.spec_from)}")
        if numbers["function_change"] is None:
            out.warn("nothing names the model, so that its function was not compared; --model and --data do")
        else:
            out.line(
                f"The function is preserved: its outputs on {numbers['checked_on']} changed by at most "
                f"{numbers['function_change']:.1e} of their largest"
            )


def load_pair(
    flags: WithModel,
    target: Given,
    source: Given,
    *,
    spec: Path | None = None,
    symmetry: bool = True,
    data_needed: bool = False,
) -> Pair:
    """Reads two posteriors, their model, data and spec; the spec is discovered where no file has it.

    Without `symmetry` no spec is looked for. With `data_needed` model and data must be known.
    """
    data = _data(flags, data_needed, target, source)
    model = model_of(flags, data, target, source)
    if data_needed and (data is None or model is None):
        missing = "--data" if data is None else "--model"
        raise ConfigError(
            f"neither {target.path.name} nor its run names the {missing[2:]} it belongs to; use {missing}"
        )
    posteriors = read(target, model), read(source, model)
    batch = example_inputs(data, BATCH, target, source) if model is not None else None
    if not symmetry:
        return Pair(*posteriors, PermutationSpec(()), model, data, batch, "")
    found, origin = spec_of(target, source, path=spec), "from the files" if spec is None else f"from {spec}"
    if found is None:
        if model is None or batch is None:
            raise ConfigError("no file holds a permutation spec, and nothing names the model to find it; use --model")
        mean = posteriors[0].mean if isinstance(posteriors[0], Gaussian) else posteriors[0]
        found, origin = discover(model.apply, mean, batch[0][:2]), "discovered and verified"
        verify(model.apply, mean, batch[0][:2], found, key=jax.random.key(0))
    return Pair(*posteriors, found, model, data, batch, origin)


def align_pair(pair: Pair, out: Output, *, key: int, cost: str, restarts: int, max_sweeps: int) -> Aligned:
    """Aligns, and checks on one batch that the function stayed."""
    exclude = pair.model.statistics if pair.model is not None else ()
    with out.progress("aligning", None) as bar:
        found = align(
            pair.target,
            pair.source,
            pair.spec,
            key=jax.random.key(key),
            cost=cost,
            restarts=restarts,
            max_sweeps=max_sweeps,
            exclude=exclude,
            on_sweep=lambda sweep: bar.update(0, f"objective {sweep.objective:.6g}"),
        )
    numbers = {
        "moved": found.moved,
        "w2_before": wasserstein(pair.target, pair.source, exclude=exclude),
        "w2_after": wasserstein(pair.target, found.posterior, exclude=exclude),
        "sweeps": found.sweeps,
        "converged": found.converged,
        "seconds": found.seconds["total"],
        "function_change": None,
        "checked_on": None,
    }
    if pair.model is not None and pair.batch is not None:
        numbers |= {
            "function_change": _function_change(pair.model, pair.source, found.posterior, pair.batch[0]),
            "checked_on": pair.batch[1],
        }
    return Aligned(found, numbers)


def _data(flags: WithModel, needed: bool, *given: Given) -> Dataset | None:
    """The data set; None where it is not on this machine and a file describes the model in full without it."""
    try:
        return dataset_of(flags, *given)
    except DataError:
        if needed or flags.data is not None or not any(one.about_model.get("input_shape") for one in given):
            raise
        return None


def _function_change(model: Model, before: Any, after: Any, x: np.ndarray) -> float:
    means = [one.mean if isinstance(one, Gaussian) else one for one in (before, after)]
    with jax.default_matmul_precision("highest"):
        first, second = (np.asarray(model.apply(mean, x), np.float64) for mean in means)
    change = float(np.abs(second - first).max() / max(np.abs(first).max(), 1e-30))
    if not change <= TOLERANCE:
        raise SymmetryError(
            f"moving the units changed the outputs by {change:.1e} of their largest: the spec is wrong for this "
            "model; leave it out, or look at 'bayesin explain'"
        )
    return change
