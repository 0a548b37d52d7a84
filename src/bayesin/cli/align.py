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
        moved_to, alignment_to = self._places(*given)
        problem = load_pair(self, *given, spec=self.spec)
        found = align_pair(
            problem, out, key=self.key, cost=self.cost, restarts=self.restarts, max_sweeps=self.max_sweeps
        )
        settings = {"cost": self.cost, "restarts": self.restarts, "max_sweeps": self.max_sweeps, "key": self.key}
        settings |= {"target": str(given[0].path), "source": str(given[1].path)} | found.numbers
        metadata = given[1].metadata | {"aligned_to": str(given[0].path)}
        save_alignment(alignment_to, found.alignment.perms, problem.spec, settings=settings)
        save_posterior(moved_to, found.alignment.posterior, spec=problem.spec, metadata=metadata)
        found.show(out, problem)
        out.line(escape(f"Wrote {moved_to} and {alignment_to}"))
        return {"posterior": str(moved_to), "alignment": str(alignment_to)} | settings

    def _places(self, *given: Given) -> tuple[Path, Path]:
        folder = self.out or Path()
        if folder.suffix == ".safetensors" or folder.is_file():
            raise ConfigError(f"--out {folder} must be a folder; the files in it get their names from bayesin")
        places = folder / "posterior-0.safetensors", folder / "alignment.safetensors"
        for place in places:
            if any(place.resolve() == one.path.resolve() for one in given):
                raise ConfigError(f"--out {folder} would overwrite the input {place}; choose another folder")
            if place.exists() and not self.force:
                raise ConfigError(f"{place} exists; choose another folder, or --force to replace it")
        return places
