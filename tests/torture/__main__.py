"""`python -m torture`: every fault, and the table of what was lost. `--count` scales all of them."""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from . import (
    change,
    clock,
    commands,
    disk,
    edits,
    files,
    guided,
    inject,
    kill,
    load,
    same,
    science,
    soak,
    surroundings,
    together,
)
from .common import Rows, Tally, dump, import_everything, in_forks
from .verbs import INJECTED, JOBS

# Fault -> (function, tries at count 100); long pieces first, so that none is left alone at the end.
FAULTS: dict[str, tuple[Callable[[int, Path], list[Tally]], int]] = {
    "load": (load.load, 100),
    "commands": (commands.commands, 1),
    **{f"kill {name}": (partial(kill.kill, jobs=(name,)), -(-100 // len(JOBS))) for name in JOBS},
    "guided": (guided.guided, 1000),
    "surroundings": (surroundings.surroundings, 1),
    "disk": (disk.disk, 2 * len(disk.VERBS)),
    **{f"inject {name}": (partial(inject.inject, names=(name,)), 100) for name in INJECTED},
    "chains": (together.two_on_one_chain, 4),
    "ten": (together.ten_on_one_campaign, 1),
    "files": (files.fuzz, 1000),
    "edits": (edits.edits, 32_000),
    "programs": (science.programs, 200),
    "two": (together.two_at_once, 4),
    "stale": (together.stale_lock, 4),
    "hashes": (same.hash_seeds, 4),
    "changed": (change.changed, 20),
    "members": (same.members, 20),
    "science": (science.refusals, 1),
    "edges": (science.edges, 100),
    "clock": (clock.clock, 1),
    "checkpoints": (files.checkpoints, 200),
    "flips": (files.flips, 600),
    "soak": (soak.soak, 3600),
}

APART = ("soak",)  # by name alone: an hour long


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m torture", description=__doc__)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=f"{', '.join(FAULTS)}; all but soak by default")
    parser.add_argument("--count", type=int, default=100, help="per cent of the usual number of tries")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="faults that are tried at once")
    parser.add_argument("--out", type=Path, help="file for the table as JSON")
    flags = parser.parse_args()
    called = {name: {name, name.partition(" ")[0]} for name in FAULTS}  # `kill` is every kill
    if unknown := set(flags.faults).difference(*called.values()):
        parser.error(f"there is no fault '{min(unknown)}'; choose from {', '.join(FAULTS)}")
    wanted = [name for name in FAULTS if called[name] & {*flags.faults}]
    scratch = Path(tempfile.mkdtemp(prefix="bayesin-torture-"))
    _compile_quickly(scratch / "compiled")
    import_everything()
    began, rows, order = time.monotonic(), [], [*FAULTS]
    table = {"commit": _commit(), "began": datetime.now(UTC).isoformat(timespec="minutes"), "count": flags.count}
    table |= {"cores": os.cpu_count(), "jobs": flags.jobs, "rows": rows}
    names = wanted or [name for name in FAULTS if name not in APART]
    try:
        for name, found in in_forks(
            {name: partial(_fault, name, flags.count, scratch) for name in names}, scratch, flags.jobs
        ):
            rows += [row | {"group": name} for row in found]
            rows.sort(key=lambda row: order.index(row["group"]))
            print(f"{name}: {found[0]['seconds']} s, {found[0]['cpu']} s of computing", file=sys.stderr, flush=True)
            _print(found, header=len(rows) == len(found))
            table["minutes"], table["load"] = round((time.monotonic() - began) / 60), round(os.getloadavg()[2])
            if flags.out is not None:
                dump(flags.out, table)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return int(any(row["lost"] for row in rows))


def _compile_quickly(cache: Path) -> None:
    """Programs run for less time than they take to compile: they are not optimised, and kept for all processes.

    The cache is one of its own: a quota or a kill may cut its entries, which JAX writes in place.
    """
    settings = {
        "jax_compilation_cache_dir": str(cache),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_disable_most_optimizations": True,
    }
    import jax

    for name, value in settings.items():
        jax.config.update(
            name, value
        )  # of this process and its forks: the environment was read when JAX was imported
        os.environ[name.upper()] = str(value) if isinstance(value, str) else str(int(value))


def _fault(name: str, count: int, scratch: Path) -> list[Tally]:
    function, usual = FAULTS[name]
    place = scratch / name.replace(" ", "-")
    place.mkdir()
    return function(max(1, usual * count // 100), place)


def _commit() -> str:
    """The commit that is tried; with a plus where files differ from it."""
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty=+", "--abbrev=7", "--exclude=*"]
    done = subprocess.run(git, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def _print(rows: Rows, header: bool) -> None:
    if header:
        print(f"{'fault':<48}{'tries':>7}{'survived':>10}{'lost':>6}  note")
    for row in rows:
        note = f"skipped: {row['skipped']}" if row["skipped"] else row["note"]
        print(f"{row['fault']:<48}{row['tries']:>7}{row['survived']:>10}{row['lost']:>6}  {note}")
        for loss in row["losses"]:
            print(f"    {loss}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
