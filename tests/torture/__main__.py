"""`python -m torture`: every fault, and the table of what was lost. `--count` scales all of them."""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from . import commands, disk, edits, files, guided, inject, kill, load, same, science, soak, surroundings, together
from .common import Tally, dump, import_everything

# Fault -> (function, tries at count 100), the cheap ones first.
FAULTS: dict[str, tuple[Callable[[int, Path], list[Tally]], int]] = {
    "science": (science.refusals, 1),
    "edges": (science.edges, 100),
    "programs": (science.programs, 200),
    "files": (files.fuzz, 1000),
    "flips": (files.flips, 600),
    "checkpoints": (files.checkpoints, 200),
    "guided": (guided.guided, 1000),
    "edits": (edits.edits, 20_000),
    "surroundings": (surroundings.surroundings, 1),
    "commands": (commands.commands, 1),
    "members": (same.members, 20),
    "hashes": (same.hash_seeds, 4),
    "two": (together.two_at_once, 4),
    "stale": (together.stale_lock, 4),
    "ten": (together.ten_on_one_campaign, 1),
    "disk": (disk.disk, 8),
    "load": (load.load, 100),
    "inject": (inject.inject, 100),
    "kill": (kill.kill, 100),
    "soak": (soak.soak, 3600),
    "train": (lambda count, scratch: kill.kill(count, scratch, ("train",)), 20),  # the shortest of them
}

APART = ("train", "soak")  # by name alone: a part of another, and an hour long


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m torture", description=__doc__)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=f"{', '.join(FAULTS)}; all by default")
    parser.add_argument("--count", type=int, default=100, help="per cent of the usual number of tries")
    parser.add_argument("--out", type=Path, help="file for the table as JSON")
    flags = parser.parse_args()
    if unknown := set(flags.faults) - set(FAULTS):
        parser.error(f"there is no fault '{min(unknown)}'; choose from {', '.join(FAULTS)}")
    scratch = Path(tempfile.mkdtemp(prefix="bayesin-torture-"))
    # A cache of its own: a quota or a kill may cut entries, which JAX writes in place, and others share theirs.
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(scratch / "compiled")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    rows: list[dict] = []
    try:
        for name in flags.faults or [name for name in FAULTS if name not in APART]:
            function, usual = FAULTS[name]
            began = time.monotonic()
            found = _apart(function, max(1, usual * flags.count // 100), scratch / name)
            rows += [row | {"group": name} for row in found]
            print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
            _print(found, header=len(rows) == len(found))
            if flags.out is not None:
                dump(flags.out, rows)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return int(any(row["lost"] for row in rows))


def _apart(function: Callable[[int, Path], list[Tally]], count: int, scratch: Path) -> list[dict]:
    """Runs a fault in a fork, so that this process stays one that can be forked: JAX is imported and not started."""
    import_everything()
    scratch.mkdir(parents=True)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            dump(scratch / "tallies.json", [tally.to_json() for tally in function(count, scratch)])
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status:
        return [Tally(f"{function.__module__} itself", 1, [f"the fault itself ended with {status}"]).to_json()]
    import json

    return json.loads((scratch / "tallies.json").read_text())


def _print(rows: list[dict], header: bool) -> None:
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
