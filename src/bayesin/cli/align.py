"""`bayesin align`: move one posterior's units onto another's, and check that its function stayed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from ..errors import ConfigError
from ..lab.runs import (
    BY_DATA,
    AlignedPair,
    CostName,
    PosteriorFile,
    PosteriorPair,
    SymmetryChoice,
    align_pair,
    find_posterior,
    load_pair,
    search_numbers,
    spec_of,
)
from ..randomness import seed_key
from ..store import align_files, save_alignment, save_posterior
from ..symmetry import PermutationSpec
from .main import Common
from .output import Output
from .output_dir import result_folder

FILES = ("alignment.safetensors", "posterior-0.safetensors")


@dataclass(frozen=True)
class Align(SymmetryChoice, Common):
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
    stream: bool = False
    """For networks larger than memory: read both files a block at a time, and write the moved one a tensor at a time.
    The files must hold the spec, or --spec; the function is not compared."""
    force: bool = False
    """Replace results of an earlier alignment."""

    def run(self, out: Output) -> dict[str, Any]:
        if not self.target or not self.source or self.out is None:
            raise ConfigError("needs two posteriors and a place: bayesin align TARGET SOURCE --out FOLDER")
        target, source = find_posterior(self.target), find_posterior(self.source)
        if self.stream:
            return self._stream(out, target, source)
        with result_folder(self.out, FILES, [target.path, source.path], force=self.force) as place:
            needed = self.cost in BY_DATA
            pair = load_pair(target, source, self, spec=self.spec, signs=self.signs, data_needed=needed)
            search = {"cost": self.cost, "restarts": self.restarts, "max_sweeps": self.max_sweeps, "key": self.key}
            aligned = align_with_bar(out, pair, **search)
            settings = search | {"target": str(target.path), "source": str(source.path)} | aligned.numbers
            found = aligned.alignment
            save_alignment(place / FILES[0], found.perms, pair.spec, settings=settings, signs=found.signs)
            metadata = source.metadata | {"aligned_to": str(target.path)}
            save_posterior(place / FILES[1], found.posterior, spec=pair.spec, metadata=metadata)
        show_alignment(out, aligned)
        alignment_to, moved_to = (self.out / name for name in FILES)
        out.line(f"Wrote {moved_to} and {alignment_to}")
        return {"posterior": str(moved_to), "alignment": str(alignment_to)} | settings

    def _stream(self, out: Output, target: PosteriorFile, source: PosteriorFile) -> dict[str, Any]:
        """The same from file to file, without the network."""
        if self.cost in BY_DATA or self.model is not None:
            raise ConfigError("--stream compares weights alone; leave out --model, and take another --cost")
        if self.out is None or target.member is not None or source.member is not None:
            raise ConfigError("--stream takes whole posteriors, and a place: --out FOLDER")
        spec = spec_of(target, source, path=self.spec, signs=self.signs)
        if spec is None:
            lacking = "one with signs" if self.signs else "one"
            raise ConfigError(f"--stream needs the permutation spec: no file holds {lacking}; use --spec")
        search = {"cost": self.cost, "restarts": self.restarts, "max_sweeps": self.max_sweeps}
        with result_folder(self.out, FILES, [target.path, source.path], force=self.force) as place:
            with out.progress("aligning", None) as bar:
                found = align_files(
                    target.path,
                    source.path,
                    place / FILES[1],
                    key=seed_key(self.key),
                    spec=spec,
                    metadata=source.metadata | {"aligned_to": str(target.path)},
                    about=source.description,
                    on_sweep=lambda sweep: bar.update(0, f"objective {sweep.objective:.6g}"),
                    **search,
                )
            numbers = search_numbers(found)
            settings = search | {"key": self.key, "target": str(target.path), "source": str(source.path)} | numbers
            save_alignment(place / FILES[0], found.perms, spec, settings=settings, signs=found.signs)
        show_moved(out, found.moved, found.flipped, spec)
        out.line(f"Objective {found.history[0]:.4g} before, {found.objective:.4g} after")
        out.line(search_words(numbers))
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


def show_moved(out: Output, moved: Mapping[str, int], flipped: Mapping[str, int], spec: PermutationSpec) -> None:
    """Prints the table of groups."""
    sizes = {group: math.prod(spec.perm_shape(group)) for group in spec.sizes}
    rows = [[group, size, moved[group], f"{moved[group] / size:.0%}"] for group, size in sizes.items()]
    rows.append(["all", sum(sizes.values()), sum(moved.values()), ""])
    columns = ["group", "units", "moved", "share"]
    if flipped:
        columns.append("sign changed")
        rows = [[*row, flipped.get(row[0], "")] for row in rows[:-1]] + [[*rows[-1], sum(flipped.values())]]
    out.table("Units moved", columns, rows)


def search_words(numbers: Mapping[str, Any]) -> str:
    """How the search went, and how far from the best it can have ended."""
    state = "converged" if numbers["converged"] else "stopped before it converged; raise --max-sweeps"
    share = f" ({numbers['gap'] / numbers['objective']:.0%})" if numbers["objective"] > 0 else ""
    bound = f"no permutation lowers the objective of {numbers['objective']:.4g} by more than {numbers['gap']:.3g}"
    return f"{numbers['sweeps']} sweeps, {state}, {numbers['seconds']:.2f} s; {bound}{share}"


def show_alignment(out: Output, aligned: AlignedPair) -> None:
    """Prints the table of groups and the lines below it."""
    pair, numbers = aligned.pair, aligned.numbers
    show_moved(out, numbers["moved"], aligned.alignment.flipped, pair.spec)
    out.line(f"W2 distance {numbers['w2_before']:.4g} before, {numbers['w2_after']:.4g} after")
    out.line(f"{search_words(numbers)}; spec {pair.spec_from}")
    if numbers["function_change"] is None:
        out.warn("nothing names the model, so that its function was not compared; --model and --data do")
    else:
        out.line(
            f"The function is preserved: its outputs on {numbers['checked_on']} changed by at most "
            f"{numbers['function_change']:.1e} of their largest"
        )
