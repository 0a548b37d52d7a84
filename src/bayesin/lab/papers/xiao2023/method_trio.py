"""One posterior by HMC, ensemble and mean-field VI: the runs of Table 1 and figure 5. Xiao et al. 2023.

The full chain of the paper, 10,000 iterations of 500 leapfrog steps, is hours of a GPU. Ours is shorter and declared:
four chains side by side, gradients in three bfloat16 passes with energies in float32, and trajectories three times
as long, which under an N(0, 1) prior decorrelates draws: for a weight that the data leave free the correlation of
neighbours is cos 1.5 = 0.07, not cos 0.5 = 0.88.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ....data import Dataset
from ....inference import HMC, VI, Ensemble, rhat_bound
from ....models import Model
from ....posteriors import Gaussian, Samples
from ....store import load_posterior
from ....symmetry import PermutationSpec
from ...campaign import Resources, Task, TaskContext, TrainTask
from ...runs import RunConfig
from ..reproduction import Finding, Record, of_kind

CHAINS = {
    "smoke": HMC(samples=20, chains=2, burn_in=20, step_size=5e-3, steps=60, chunk=2_000),
    "cpu": HMC(samples=40, chains=2, burn_in=20, step_size=2e-3, steps=750, chunk=2_000),
    "paper": HMC(samples=30, chains=4, burn_in=8, step_size=1e-3, steps=1_500, precision="bf16x3", draws_per_file=10),
}
SHAPES: dict[str, dict[str, Any]] = {
    "smoke": {"data": "digits", "width": 24},
    "cpu": {"data": "mnist", "width": 64, "limit": 2_000},
    "paper": {"data": "mnist", "width": 512},
}
EPOCHS = {"smoke": 10, "cpu": 50, "paper": 50}
SEEDS = {"smoke": 1, "cpu": 3, "paper": 3}
ADAM: dict[str, Any] = {"optimiser": "adam", "learning_rate": 1e-3, "schedule": "constant", "batch": 100}
USUAL_RHAT, PROBED = 1.1, 640  # predictions of which HMC takes R-hat: 64 images, ten classes
NAMES = {"hmc": "HMC", "ensemble": "ensemble", "vi": "VI"}


@dataclass(frozen=True)
class MethodTrio:
    """The runs of three methods on one network and one data set."""

    hmc: RunConfig
    ensemble: RunConfig
    vi: RunConfig


def method_trio(scale: str, seed: int = 0) -> MethodTrio:
    """The three runs at a scale; a seed decides all of them."""
    shape = SHAPES[scale] | {"model": "mlp", "depth": 1, "normalise": "unit", "key": seed}
    trained: dict[str, Any] = ADAM | {"epochs": EPOCHS[scale], "prior_variance": 1.0}
    return MethodTrio(
        RunConfig(training=CHAINS[scale], **shape),
        RunConfig(training=Ensemble(members=5, **trained), **shape),
        RunConfig(training=VI(members=1, initial_std=0.05, **trained), **shape),
    )


class Posteriors(NamedTuple):
    """What the three runs left, with their network, data and symmetry."""

    hmc: Samples  # the draws of all chains, one chain after the other
    ensemble: Samples
    vi: Gaussian
    model: Model
    data: Dataset
    spec: PermutationSpec


@dataclass(frozen=True)
class TrioTask(Task):
    """Base of tasks on the three posteriors."""

    runs: MethodTrio

    @property
    def needs(self) -> tuple[Task, ...]:
        return TrainTask(self.runs.hmc), TrainTask(self.runs.ensemble), TrainTask(self.runs.vi)

    @property
    def resources(self) -> Resources:
        return Resources(cpus=2, gpus=1, memory=12 << 30)

    def load(self, context: TaskContext) -> Posteriors:
        """The three posteriors, from the folders of their runs."""
        ensemble, vi = (posterior_of(run, context) for run in (self.runs.ensemble, self.runs.vi))
        data, model = context.prepared(self.runs.hmc)
        return Posteriors(self.hmc_draws(context), ensemble, vi, model, data, context.spec(self.runs.hmc))

    def hmc_draws(self, context: TaskContext) -> Samples:
        """Those of HMC, all chains one after the other."""
        return posterior_of(self.runs.hmc, context)


def posterior_of(run: RunConfig, context: TaskContext) -> Any:
    """The first posterior of a run that is done."""
    return load_posterior(context.runs / TrainTask(run).name / "posterior-0.safetensors")


def hmc_runs(records: Sequence[Record]) -> list[Record]:
    """The runs of HMC among records that are done."""
    return [run for run in of_kind(records, "train") if run["settings"]["config"]["method"] == "hmc"]


def rhat_limit(chains: Mapping[str, Any]) -> float:
    """The largest R-hat of predictions that passes for mixed: the usual one, or what independent draws may have."""
    count = len(chains["acceptance"])
    return max(USUAL_RHAT, rhat_bound(count, chains["samples"] // count, PROBED))


def mixed(chains: Mapping[str, Any]) -> bool:
    """Whether what HMC recorded of its chains lets anything be said of the posterior."""
    return chains["rhat_max"] is not None and chains["rhat_max"] <= rhat_limit(chains)


def judged_if_mixed(finding: Finding, records: Sequence[Record]) -> Finding:
    """The finding; without a verdict where it rests on chains that have not mixed."""
    apart = [chains for run in hmc_runs(records) if not mixed(chains := run["numbers"]["chains"])]
    if not apart:
        return finding
    rhats = ", ".join("–" if chains["rhat_max"] is None else f"{chains['rhat_max']:.3f}" for chains in apart)
    reason = f"not judged: the chains have not mixed (R-hat {rhats}, limit {rhat_limit(apart[0]):.3f})"
    return replace(finding, verdict="not judged", reason="; ".join(filter(None, (reason, finding.reason))))
