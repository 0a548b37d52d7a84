"""`bayesin align`: move one posterior's units onto another's, and check that its function stayed."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.markup import escape

from ..errors import ConfigError
from ..store import save_alignment, save_posterior
from .artifacts import Given, WithModel, find
from .output import Output
from .pairs import align_pair, load_pair
from .places import begin_writing, result_folder

FILES = ("alignment.safetensors", "posterior-0.safetensors")


@dataclass(frozen=True)
class Align(WithModel):
    """Permute the units of SOURCE so that it lies as close as possible to TARGET, without changing its function.

    Writes the moved posterior, and one file with permutations, spec and settings. The inputs are never
    overwritten. RUN#1 picks the second posterior of a run folder.
    """

    target: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TARGET", help_behavior_hint="")] = ""
    """Run folder or safetensors file that stays where it is."""
    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE", help_behavior_hint="")] = ""
    """Run folder or safetensors file whose units are moved."""
    out: Path | None = None
    """Folder for posterior-0.safetensors (the source, moved) and alignment.safetensors. Needed."""
    cost: Literal["wasserstein", "means", "kl"] = "wasserstein"
    """What is made small: the W2 distance, the distance of the means, or the KL divergence."""
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
        given = find(self.target), find(self.source)
        with result_folder(self.out, FILES, [one.path for one in given], force=self.force) as places:
            return self._align(out, given, places)

    def _align(self, out: Output, given: tuple[Given, Given], places: list[Path]) -> dict[str, Any]:
        alignment_to, moved_to = places
        problem = load_pair(self, *given, spec=self.spec)
        found = align_pair(
            problem, out, key=self.key, cost=self.cost, restarts=self.restarts, max_sweeps=self.max_sweeps
        )
        settings = {"cost": self.cost, "restarts": self.restarts, "max_sweeps": self.max_sweeps, "key": self.key}
        settings |= {"target": str(given[0].path), "source": str(given[1].path)} | found.numbers
        metadata = given[1].metadata | {"aligned_to": str(given[0].path)}
        begin_writing(places)
        save_alignment(alignment_to, found.alignment.perms, problem.spec, settings=settings)
        save_posterior(moved_to, found.alignment.posterior, spec=problem.spec, metadata=metadata)
        found.show(out, problem)
        out.line(escape(f"Wrote {moved_to} and {alignment_to}"))
        return {"posterior": str(moved_to), "alignment": str(alignment_to)} | settings
