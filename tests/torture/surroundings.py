"""Every verb in poor surroundings: streams that are closed, full or in ASCII, no home, a lock that is none.

Whatever is wrong with a stream, the result is in its files, and is that of an undisturbed run.
"""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from .common import Child, Tally, contents, differences, foreign, must, start
from .verbs import INJECTED, NO_CLIENT, SHORT, Injected, hub_for, prepare_injected

UNKNOWN = ("pull --force",) if NO_CLIENT else ()
VERBS = {
    "train": Injected("train", lambda _, out: [*SHORT, "--out", str(out)]),
    **{
        name.removesuffix(" --force"): job
        for name, job in INJECTED.items()
        if job.together and not (name.startswith("pull") and NO_CLIENT)
    },
    "explain --svg": Injected(
        "explain --svg",
        lambda _, out: ["explain", "mlp", "--width", "4", "--out", str(out / "s.json"), "--svg", str(out / "s.svg")],
    ),
    "status": Injected("status", lambda given, _: ["status", str(given)]),
    "data list": Injected("data list", lambda *_: ["data", "list"]),
}


def _without_home() -> None:
    import pwd

    def unknown(number: int) -> None:
        raise KeyError(f"uid not found: {number}")

    for name in ("HOME", "XDG_CACHE_HOME", "BAYESIN_DATA"):
        os.environ.pop(name, None)
    pwd.getpwuid = unknown  # pyright: ignore[reportAttributeAccessIssue]


def _ascii() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="ascii", errors="strict")  # pyright: ignore[reportAttributeAccessIssue]


def _full() -> None:
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)


def _closed() -> None:
    os.close(1)
    sys.stdout = None  # as Python has it where it was closed before it began


STREAMS: dict[str, Callable[[], None]] = {
    "output in ASCII": _ascii,
    "standard output on a full disk": _full,
    "standard output closed": _closed,
    "no home": _without_home,
}
LOCKS: dict[str, Callable[[Path, Path], None]] = {
    "lock is a link": lambda lock, precious: lock.symlink_to(precious),
    "lock is a pipe": lambda lock, _: os.mkfifo(lock),
}


def surroundings(_: int, scratch: Path) -> list[Tally]:
    """Every verb in each of them, once."""
    given = prepare_injected(scratch)
    with hub_for(VERBS, given):
        return _all(given, scratch)


def _all(given: Path, scratch: Path) -> list[Tally]:
    out = scratch / "out"
    tallies = {name: Tally(name) for name in (*STREAMS, *LOCKS, "working folder gone")}
    for name, job in VERBS.items():
        words = [word for word in job.command(given, out) if word not in ("--quiet", "--force")]
        _clean(out)
        must(words, scratch / "whole.log")
        wanted = _compared(job, out)
        for what, prepared in STREAMS.items():
            _clean(out)
            child = _run(words, scratch, prepared)
            fine = child.code == 0 or (prepared is _full and child.code == 1)
            problems = foreign(child) + ([] if fine else [f"ended with {child.code}: {child.said[-200:]}"])
            tallies[what].add(f"{name}: {one}" for one in problems + differences(_compared(job, out), wanted))
        for what, plant in LOCKS.items():
            _clean(out)
            precious = scratch / "precious"
            precious.write_text("precious")
            plant(out / ".lock", precious)
            child = _run(words, scratch, lambda: None)
            problems = foreign(child) + ([] if child.code in (0, 1, 2) else [f"ended with {child.code}"])
            problems += [] if precious.read_text() == "precious" else ["the target was written over"]
            tallies[what].add(f"{name}: {one}" for one in problems)
        child = _run(words, scratch, lambda: _leave(scratch))
        problems = foreign(child) + ([] if child.code == 2 else [f"ended with {child.code}"])
        problems += [] if "working folder is gone" in child.said else [f"says {child.said[-200:]}"]
        tallies["working folder gone"].add(f"{name}: {one}" for one in problems)
    return list(tallies.values())


def _run(words: list[str], scratch: Path, prepared: Callable[[], None]) -> Child:
    child = start(words, scratch / "cut.log", prepared=prepared)
    child.wait()
    return child


def _leave(scratch: Path) -> None:
    gone = scratch / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()


def _clean(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()


def _compared(job: Injected, folder: Path) -> dict[str, bytes]:
    # Names of temporary places stand in the pages; clocks in what a job says it ignores.
    return {name: b"" if name in job.ignored else content for name, content in contents(folder).items()}
