"""`bayesin align`: move one posterior's units onto another's, and check that its function stayed."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from ..errors import ConfigError
from ..lab.runs import (
    BY_DATA,
    AlignedPair,
    CostName,
    ModelChoice,
    PosteriorPair,
    align_pair,
    find_posterior,
    load_pair,
)
from ..randomness import seed_key
from ..store import save_alignment, save_posterior
from .main import Common
from .output import Output
from .output_dir import result_folder

FILES = ("alignment.safetensors", "posterior-0.safetensors")


@dataclass(frozen=True)
class Align(ModelChoice, Common):
    """Permute the units of SOURCE so that it lies as close as possible to TARGET, without changing its function.

    Writes the moved posterior, and one file with permutations, spec and settings. The inputs are never
    overwritten. RUN#1 picks the second posterior of a run folder.
    """

    target: Annotated[str, tyro.conf.Positional] = ""
    """Run folder or safetensors file that stays where it is."""
    source: Annotated[str, tyro.conf.Positional] = ""
    """Run folder or safetensors file whose units are moved."""
    out: Path | None = None
    """Folder for posterior-0.safetensors (the source, moved) and alignment.safetensors. Needed."""
    cost: CostName = "wasserstein"
    """What is made small: the W2 distance, the distance of the means, the KL divergence, the difference of what units
    compute on training inputs (activations), or W2 and that in equal parts (blend)."""
    restarts: int = 1
    """Number of starts, of which the best is kept."""
    max_sweeps: int = 100
    """Bound on the sweeps over all groups."""
    key: int = 0
    """Seed of the visiting order and the random starts."""
    spec: Path | None = None
    """Permutation spec (JSON); by default the one in the files, else it is discovered."""
    force: bool = False
    """Replace results of an earlier alignment."""

    def run(self, out: Output) -> dict[str, Any]:
        if not self.target or not self.source or self.out is None:
            raise ConfigError("needs two posteriors and a place: bayesin align TARGET SOURCE --out FOLDER")
        target, source = find_posterior(self.target), find_posterior(self.source)
        with result_folder(self.out, FILES, [target.path, source.path], force=self.force) as place:
            pair = load_pair(target, source, self, spec=self.spec, data_needed=self.cost in BY_DATA)
            search = {"cost": self.cost, "restarts": self.restarts, "max_sweeps": self.max_sweeps, "key": self.key}
            aligned = align_with_bar(out, pair, **search)
            settings = search | {"target": str(target.path), "source": str(source.path)} | aligned.numbers
            save_alignment(place / FILES[0], aligned.alignment.perms, pair.spec, settings=settings)
            metadata = source.metadata | {"aligned_to": str(target.path)}
            save_posterior(place / FILES[1], aligned.alignment.posterior, spec=pair.spec, metadata=metadata)
        show_alignment(out, aligned)
        alignment_to, moved_to = (self.out / name for name in FILES)
        out.line(f"Wrote {moved_to} and {alignment_to}")
        return {"posterior": str(moved_to), "alignment": str(alignment_to)} | settings


def align_with_bar(
    out: Output,
    pair: PosteriorPair,
    *,
    key: int,
    cost: CostName = "wasserstein",
    restarts: int = 1,
    max_sweeps: int = 100,
) -> AlignedPair:
    """Aligns while a bar shows the objective."""
    with out.progress("aligning", None) as bar:
        return align_pair(
            pair,
            key=seed_key(key),
            cost=cost,
            restarts=restarts,
            max_sweeps=max_sweeps,
            on_sweep=lambda sweep: bar.update(0, f"objective {sweep.objective:.6g}"),
        )


def show_alignment(out: Output, aligned: AlignedPair) -> None:
    """Prints the table of groups and the lines below it."""
    pair, numbers = aligned.pair, aligned.numbers
    moved, sizes = numbers["moved"], pair.spec.sizes
    rows = [[group, size, moved[group], f"{moved[group] / size:.0%}"] for group, size in sizes.items()]
    rows.append(["all", sum(sizes.values()), sum(moved.values()), ""])
    out.table("Units moved", ["group", "units", "moved", "share"], rows)
    out.line(f"W2 distance {numbers['w2_before']:.4g} before, {numbers['w2_after']:.4g} after")
    state = "converged" if numbers["converged"] else "stopped before it converged; raise --max-sweeps"
    out.line(f"{numbers['sweeps']} sweeps, {state}, {numbers['seconds']:.2f} s; spec {pair.spec_from}")
    if numbers["function_change"] is None:
        out.warn("nothing names the model, so that its function was not compared; --model and --data do")
    else:
        out.line(
            f"The function is preserved: its outputs on {numbers['checked_on']} changed by at most "
            f"{numbers['function_change']:.1e} of their largest"
        )
