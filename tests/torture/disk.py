"""Disks that are full, become full, are read-only or have a quota: a clear error, nothing torn, on with more room.

Runs inside a mount namespace of its own (`unshare`), where a small tmpfs can be had without touching the machine.
"""

import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

from .common import Child, Tally, contents, differences, foreign, run, start, whole
from .verbs import JOBS, NO_CLIENT, Job, hub_for, prepare

SIZE = 12 << 20  # bytes of the tmpfs
NAMES = ("disk full from the start", "disk that fills up", "quota on the size of files", "read-only disk")
VERBS = ("train", "train hmc", "compact", "report", "align --stream", *(() if NO_CLIENT else ("pull",)))


def disk(count: int, scratch: Path) -> list[Tally]:
    """All faults of disks, in a namespace; skipped with the reason where none can be had."""
    inside = [sys.executable, "-m", "torture.disk", str(count), str(scratch)]
    command = ["unshare", *([] if os.geteuid() == 0 else ["-Ur"]), "-m", *inside]
    if not _can_mount(scratch):
        return [Tally(name, skipped="no tmpfs: neither root nor user namespaces here") for name in NAMES]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}, capture_output=True)
    if done.returncode:
        raise RuntimeError(done.stderr.decode()[-2000:])
    import json

    rows = json.loads((scratch / "disk.json").read_text())
    return [Tally(row["fault"], row["tries"], row["losses"], row["note"], row["skipped"]) for row in rows]


def _can_mount(scratch: Path) -> bool:
    place = scratch / "probe"
    place.mkdir(parents=True, exist_ok=True)
    flags = [] if os.geteuid() == 0 else ["-Ur"]
    command = ["unshare", *flags, "-m", "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    return shutil.which("unshare") is not None and subprocess.run(command, capture_output=True).returncode == 0


def _inside(count: int, scratch: Path) -> list[Tally]:
    given = prepare(scratch, VERBS[:count])
    with hub_for(VERBS[:count], given):
        return _tries(count, given, scratch)


def _tries(count: int, given: Path, scratch: Path) -> list[Tally]:
    small = scratch / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(small)], check=True)
    wanted = {}
    for name in VERBS[:count]:
        child = run(JOBS[name].command(given, small / "cut"), scratch / "whole.log")
        if child.code:
            raise RuntimeError(child.said)
        found = _compared(JOBS[name], small / "cut")
        shutil.rmtree(small / "cut") if wanted else os.replace(small / "cut", small / "earlier")
        wanted[name] = found
    # What was there before must stay as it is.
    kept, draws = contents(small / "earlier"), random.Random(5)
    tallies = [Tally(name) for name in NAMES]
    for number in range(count):
        job = JOBS[VERBS[number % len(VERBS)]]
        for tally, fault in zip(tallies, (_full, _filling, _quota, _read_only), strict=True):
            problems = fault(job, given, small, scratch, draws)
            (small / "ballast").unlink(missing_ok=True)
            problems += differences(contents(small / "earlier"), kept)
            again = run(job.command(given, small / "cut"), scratch / "again.log")
            done = again.code == 2 and "--force to replace it" in again.said  # it had been done in time
            problems += [f"did not go on: {again.code} {again.said[-200:]}"] if again.code and not done else []
            tally.add(problems + differences(_compared(job, small / "cut"), wanted[job.name]))
            shutil.rmtree(small / "cut", ignore_errors=True)
    return tallies


def _full(job: Job, given: Path, small: Path, scratch: Path, draws: random.Random) -> list[str]:
    """Little or no room when the verb starts."""
    _fill(small, draws.choice([0, 2000, 20_000, 200_000, 1_200_000]))
    return _met(run(job.command(given, small / "cut"), scratch / "cut.log"), small)


def _filling(job: Job, given: Path, small: Path, scratch: Path, draws: random.Random) -> list[str]:
    """Room when it starts and none a little later."""
    child = start(job.command(given, small / "cut"), scratch / "cut.log")
    time.sleep(draws.random() * 2.5)
    _fill(small, draws.choice([0, 0, 1000, 9000]))
    child.wait()
    return _met(child, small)


def _quota(job: Job, given: Path, small: Path, scratch: Path, draws: random.Random) -> list[str]:
    limit = draws.choice([3000, 6000, 9000, 30_000])  # the message needs some, too
    return _met(run(job.command(given, small / "cut"), scratch / "cut.log", limit=limit), small)


def _read_only(job: Job, given: Path, small: Path, scratch: Path, draws: random.Random) -> list[str]:
    subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
    try:
        child = run(job.command(given, small / "cut"), scratch / "cut.log")
        return (["it succeeded"] if child.code == 0 else []) + _met(child, small)
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(small)], check=True)


def _met(child: Child, small: Path) -> list[str]:
    """A clear error or success, and whole files."""
    problems = foreign(child) + ([f"ended with {child.code}"] if child.code not in (0, 1, 2) else [])
    if child.code and not any(word in child.said for word in ("cannot write", "free some space", "cannot lock")):
        problems.append(f"says nothing clear: {child.said.strip()[-200:]}")
    problems += whole(small / "cut") if (small / "cut").exists() else []
    return problems


def _fill(small: Path, left: int) -> None:
    """Takes all room but `left` bytes."""
    free = shutil.disk_usage(small).free
    with open(small / "ballast", "wb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, max(1, free - left))
        except OSError:
            file.write(b"\0" * max(0, shutil.disk_usage(small).free - left))


def _compared(job: Job, folder: Path) -> dict[str, bytes]:
    return {name: b"" if name in job.ignored else content for name, content in contents(folder).items()}


if __name__ == "__main__":
    import json

    scratch = Path(sys.argv[2])
    found = _inside(int(sys.argv[1]), scratch)
    (scratch / "disk.json").write_text(json.dumps([tally.to_json() for tally in found]))
