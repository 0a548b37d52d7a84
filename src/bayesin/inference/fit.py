"""What a fit returns, and what it tells on the way."""

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import equinox as eqx
import jax
import numpy as np

from ..errors import PosteriorError
from ..likelihoods import Likelihood
from ..posteriors import Posterior, Samples

if TYPE_CHECKING:
    from .chain_diagnostics import ChainDiagnostics

Row = dict[str, np.ndarray | float | int]
Trace = dict[str, np.ndarray]  # column -> one entry for each row, and for each member where members differ
P = TypeVar("P", bound=Posterior)
C = TypeVar("C")


class Progress(NamedTuple):
    """What `on_progress` is told after every logging interval, and once when a run is taken up again.

    Example:
        >>> told = Progress(step=50, steps=200, epoch=1.0, row={"loss": np.array([0.7])}, seconds=2.5)
        >>> f"{told.step / told.steps:.0%}, loss {told.row['loss'].mean():.1f}"
        '25%, loss 0.7'
    """

    step: int
    steps: int
    epoch: float
    row: Row  # the newest row of the trace
    seconds: float  # of training, earlier processes included
    rows: tuple[Row, ...] = ()  # all rows so far
    resumed: bool = False


class Memory(NamedTuple):
    """Bytes on the device: what each member keeps, what a step of one lane needs besides, and the data."""

    member: int
    work: int
    data: int


class Fit(eqx.Module, Generic[P, C]):
    """Posteriors, the likelihood they go with, and how they were reached.

    `trace` has a row for every logging interval: "step", "epoch", "seconds" and "steps_per_second" of
    shape (rows,), and of shape (rows, members) "loss", "nll" and "accuracy" (or "mse") averaged over the
    interval's batches, and "kl" and "std_mean", "std_min", "std_max" at its end. `fit_hmc` says what its own holds.

    Example:
        >>> import bayesin
        >>> x = np.eye(2, dtype=np.float32).repeat(8, 0)
        >>> init = lambda key: {"w": np.zeros((2, 3), np.float32)}
        >>> model = bayesin.models.from_functions(init, lambda params, x: x @ params["w"])
        >>> fit = bayesin.fit_vi(jax.random.key(0), model, (x, np.arange(2).repeat(8)), bayesin.VI(epochs=5, batch=4))
        >>> fit.posterior, fit.config.epochs, fit.trace["loss"].shape
        (Gaussian(6 weights), 5, (5, 1))
    """

    posteriors: tuple[P, ...]
    trace: Trace
    config: C = eqx.field(static=True)  # the settings
    likelihoods: tuple[Likelihood, ...] = eqx.field(static=True)  # of each member, with the noise that was learned
    memory: Memory | None = eqx.field(static=True, default=None)
    probes: np.ndarray | None = None  # HMC: predictions of the draws on a few inputs, (chains, draws, outputs)
    mixing: "ChainDiagnostics | None" = eqx.field(
        static=True, default=None
    )  # of several Markov chains: have they mixed, modulo symmetry?
    statistics: frozenset[str] = eqx.field(static=True, default=frozenset())  # those of the model

    @property
    def posterior(self) -> P:
        """The only posterior; a clear error where there are several."""
        if len(self.posteriors) != 1:
            raise PosteriorError(f"this fit has {len(self.posteriors)} posteriors; take one of fit.posteriors")
        return self.posteriors[0]

    @property
    def likelihood(self) -> Likelihood:
        """The likelihood of all members; a clear error where each has learned a noise of its own."""
        if len(set(self.likelihoods)) != 1:
            raise PosteriorError("the members have learned different likelihoods; take one of fit.likelihoods")
        return self.likelihoods[0]

    def __repr__(self) -> str:
        kind, count = type(self.posteriors[0]).__name__, len(self.posteriors)
        first = self.posteriors[0]
        if isinstance(first, Samples):
            weights = sum(leaf.size for leaf in jax.tree.leaves(first.params)) // len(first)
            many = f"{len(first)} networks in one {kind}"
        else:
            weights = sum(leaf.size for leaf in jax.tree.leaves(first.mean))
            many = f"{count} {kind}"
        shown = [name for name in ("loss", "accuracy", "mse", "acceptance", "rhat_max") if name in self.trace]
        ends = ", ".join(f"{name} {_mean(self.trace[name][-1])}" for name in shown)
        learned = ", ".join(dict.fromkeys(map(repr, self.likelihoods)))
        mixed = [] if self.mixing is None else [f"  chains      {self.mixing}"]
        return "\n".join(
            [
                f"Fit of {type(self.config).__name__}: {many}, {weights:,} weights each",
                f"  steps       {int(self.trace['step'][-1]):,} in {float(self.trace['seconds'][-1]):.1f} s",
                f"  at the end  {ends}",
                f"  trace       {len(self.trace['step'])} rows of {', '.join(self.trace)}",
                f"  likelihood  {learned}",
                *mixed,
            ]
        )


def _mean(values: np.ndarray) -> str:
    """Of the members that have a value; a dash where none has."""
    known = np.asarray(values)[np.isfinite(values)]
    return f"{known.mean():.4g}" if known.size else "–"


def trace_of(rows: list[Row]) -> Trace:
    """Returns rows as columns; a value missing from a row is NaN."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    trace = {}
    for name in names:
        like = next(np.asarray(row[name]) for row in rows if name in row)
        empty = np.full(like.shape, np.nan)
        trace[name] = np.stack([np.asarray(row[name]) if name in row else empty for row in rows])
    return trace
