"""What a fit returns."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import PosteriorError

Trace = dict[str, np.ndarray]  # column -> one entry a row, or one a row and member


@dataclass(frozen=True)
class Fit:
    """Posteriors, how they were reached, and where training stands.

    `trace` has a row for every logging interval: "step", "epoch", "seconds" and "steps_per_second" of
    shape (rows,), and of shape (rows, members) "loss", "nll" and "accuracy" (or "mse") averaged over the
    interval's batches, and "kl" and "std_mean", "std_min", "std_max" at its end.
    """

    posteriors: tuple[Any, ...]
    trace: Trace
    state: Any = field(repr=False)
    config: Any
    memory: Any = None  # bytes on the device for each member, for a step, and for the data

    @property
    def posterior(self) -> Any:
        """The only posterior; a clear error where there are several."""
        if len(self.posteriors) != 1:
            raise PosteriorError(f"this fit has {len(self.posteriors)} posteriors; take one of fit.posteriors")
        return self.posteriors[0]


def trace_of(rows: list[dict[str, Any]]) -> Trace:
    """Returns rows as columns; a value missing from a row is NaN."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    trace = {}
    for name in names:
        like = next(np.asarray(row[name]) for row in rows if name in row)
        empty = np.full(like.shape, np.nan)
        trace[name] = np.stack([np.asarray(row[name]) if name in row else empty for row in rows])
    return trace


def joined(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The row of an interval from rows of its steps: averages over the batches, the rest as it is at the end."""
    if len(rows) == 1:
        return rows[0]
    last = rows[-1]
    average = {name: np.mean([row[name] for row in rows], axis=0, dtype=np.float32) for name in ("nll", "score")}
    return last | average | {"first_nll": rows[0]["first_nll"], "loss": last["loss"] - last["nll"] + average["nll"]}
