"""The page of `bayesin barrier`: the plane through both posteriors, and everything put together."""

import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..data import Dataset
from ..errors import ConfigError, PosteriorError
from ..evaluation import Barrier, Plane, plane
from ..experiments.provenance import provenance
from ..files import read_json
from ..models import Model
from ..report.crossing import Crossing, write_crossing_report
from .artifacts import Given
from .output import Output
from .pairs import Aligned, Pair

NUMBERS = "barrier.json"
SAMPLES, EXAMPLES, SIDES = 4, 1000, (9, 21)  # the plane is a picture: few draws, and never more work than the curves


def write_barrier_page(
    out: Output,
    flags: Any,
    pair: Pair,
    given: tuple[Given, Given],
    found: dict[str, dict[str, Barrier]],
    aligned: Aligned | None,
    log_likelihood: Any,
    seconds: dict[str, float],
) -> Path:
    """Computes the plane where there is an aligned copy, and writes page and figures into `flags.out`."""
    data, model = pair.data, pair.model
    if data is None or model is None:
        raise ConfigError("a page needs the model and its data; use --model and --data")
    flat, start = None, time.perf_counter()
    if aligned is not None:
        flat = _plane(out, flags, pair, data, model, aligned, log_likelihood)
        seconds = seconds | {"plane": time.perf_counter() - start}
    crossing = Crossing(
        target=pair.target,
        source=pair.source,
        data=data,
        model=model,
        spec=pair.spec,
        barriers=found,
        config=_settings(flags, data, given),
        provenance=provenance(),
        seconds=seconds,
        alignment=None if aligned is None else aligned.alignment,
        function_change=None if aligned is None else aligned.numbers["function_change"],
        plane=flat,
        plane_examples=min(len(data.x_test), EXAMPLES),
        prior_variance=_prior_variance(given[0]),
    )
    with out.progress("writing the page", None):
        return write_crossing_report(flags.out, crossing, {NUMBERS: "all curves, with errors and settings"})


def _plane(
    out: Output, flags: Any, pair: Pair, data: Dataset, model: Model, aligned: Aligned, log_likelihood: Any
) -> Plane | None:
    """The plane through both and the moved one; None where they lie on one line, as when nothing had to move."""
    count = min(len(data.x_test), EXAMPLES)
    work = 2 * flags.taus * flags.samples * len(data.x_test)
    side = int(np.clip(np.sqrt(work / (SAMPLES * count)), *SIDES))
    try:
        with out.progress("plane", side**2) as bar:
            return plane(
                [pair.target, pair.source, aligned.alignment.posterior],
                model.apply,
                (data.x_test[:count], data.y_test[:count]),
                key=jax.random.key(flags.key),
                prior_variance=1.0,  # the page shows the likelihood alone
                resolution=side,
                samples=SAMPLES,
                log_likelihood=log_likelihood,
                exclude=model.statistics,
                on_point=lambda done, points: bar.update(done, "", points),
            )
    except PosteriorError:
        return None


def _settings(flags: Any, data: Dataset, given: tuple[Given, Given]) -> dict[str, str]:
    shown = {"first": given[0].text, "second": given[1].text}
    shown["data"] = f"{data.name}, {len(data):,} training and {len(data.x_test):,} test examples"
    shown["model"] = given[0].model_words
    shown |= {"weight samples": f"{flags.samples:,}", "points on a path": str(flags.taus), "key": str(flags.key)}
    shown |= {"starts of the alignment": str(flags.restarts)} if flags.align else {}
    return {name: text for name, text in shown.items() if text}


def _prior_variance(given: Given) -> float | None:
    """Of the run that the first posterior belongs to, where that says it."""
    config = given.path.parent / "config.json"
    content = read_json(config) if config.is_file() else None
    training = content.get("training") if isinstance(content, dict) else None
    found = training.get("prior_variance") if isinstance(training, dict) else None
    return float(found) if isinstance(found, int | float) and found > 0 else None
