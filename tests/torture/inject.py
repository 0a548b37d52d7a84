"""Every call that writes fails once: the k-th with no space, over quota or a kill, for every k, for every verb.

A shim counts, in a process of its own, each call by which Python changes a folder: open for writing, write, sync,
rename, link, make, remove. What it failed at must leave the old result, the new one, or a folder that says it is
mixed; the same command then ends as if nothing had been. Writes of a checkpoint inside tensorstore, which is C++,
are not seen; the opens, renames and removals around them are.
"""

import builtins
import errno
import io
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .common import Child, Tally, contents, differences, foreign, run, whole
from .verbs import JOBS, Job, prepare

FAULTS = {"ENOSPC": errno.ENOSPC, "EDQUOT": errno.EDQUOT, "kill": 0}
FRESH = ("train", "train hmc", "reproduce", "report")  # into an empty folder
OVER = ("align", "compact", "barrier")  # over an earlier result
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
ONE_PATH, TWO_PATHS = ("os.mkdir", "os.remove", "os.rmdir", "os.truncate"), ("os.rename", "os.link", "os.symlink")


def inject(count: int, scratch: Path) -> list[Tally]:
    """All faults at `count` per cent of the calls of each verb, evenly spread."""
    given = prepare(scratch)
    return [_one(name, name in OVER, count, given, scratch) for name in (*FRESH, *OVER)]


def _one(name: str, over: bool, count: int, given: Path, scratch: Path) -> Tally:
    job, folder, log = JOBS[name], scratch / "cut", scratch / "inject.log"
    tally = Tally(f"a failing call of {name}" + (" over an earlier result" if over else ""))
    old = scratch / f"old-{name}"
    command = job.command(given, folder)
    if over:
        command += [] if name == "barrier" else ["--force"]
        _must([*command, "--key", "1"], folder, log)
        shutil.copytree(folder, old)
    for _ in range(2):  # the first one fills the cache of compiled programs
        _reset(folder, old)
        _must(command, folder, log)
    wanted = _compared(job, folder)
    changing = {name for name in contents(folder) if not same_bytes(folder / name, old / name)}
    _reset(folder, old)
    counted = scratch / "calls"
    run(command, log, prepared=lambda: _arm(folder, None, "", counted))
    calls = int(counted.read_text())
    step = max(1, 100 // max(1, count))
    tried = 0
    for fault in FAULTS:
        for number in range(1 + tried % step, calls + 1, step):
            tried += 1
            _reset(folder, old)
            child = run(command, log, prepared=lambda at=number, how=fault: _arm(folder, at, how, None))
            problems = _met(child, fault, folder, old if over else None, changing)
            again = run(command, log)
            problems += [f"the second start ended with {again.code}: {again.said[-200:]}"] if again.code else []
            problems += [] if again.code else differences(_compared(job, folder), wanted)
            tally.add([f"{fault} at call {number}: {problem}" for problem in problems])
    tally.note = f"{calls} calls, {' and '.join(FAULTS)} at {'each' if step == 1 else f'one in {step}'}"
    return tally


def _met(child: Child, fault: str, folder: Path, old: Path | None, changing: set[str]) -> list[str]:
    """What is wrong with how it ended, and with what is there."""
    from bayesin.file_sets import replaced_already

    ended = (0, -signal.SIGKILL) if fault == "kill" else (0, 1, 2)
    problems = foreign(child) + ([] if child.code in ended else [f"ended with {child.code}"])
    problems += whole(folder) if folder.exists() else []
    if old is None:
        return problems
    now = {name for name in contents(folder) if not name.startswith((".tmp-", ".lock", ".unfinished"))}
    if not now:
        return [*problems, "neither the old result nor the new one is there"]
    kept = {name for name in changing if (folder / name).is_file() and same_bytes(folder / name, old / name)}
    if kept not in (set(), changing) and not replaced_already(folder):
        problems.append(f"{sorted(kept)} of the old result beside {sorted(now - kept)}, and no mark")
    return problems


def same_bytes(first: Path, second: Path) -> bool:
    return second.is_file() and first.read_bytes() == second.read_bytes()


def _reset(folder: Path, old: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if old.exists():
        shutil.copytree(old, folder)


def _must(command: list[str], folder: Path, log: Path) -> None:
    child = run(command, log)
    if child.code:
        raise RuntimeError(f"{' '.join(command)} fails undisturbed: {child.said}")


def _compared(job: Job, folder: Path) -> dict[str, bytes]:
    return {name: b"" if name in job.ignored else content for name, content in contents(folder).items()}


def _arm(folder: Path, at: int | None, fault: str, counted: Path | None) -> None:
    """Counts the calls of this process that change `folder`, and lets the one with the number `at` fail."""
    below, calls, busy = str(folder), 0, False

    def call(path: Any, descriptor: Any = -1) -> None:
        nonlocal calls, busy
        if busy or not _is_below(path, descriptor, below):
            return
        calls += 1
        if counted is not None:
            busy = True
            counted.write_text(str(calls))
            busy = False
        if calls == at:
            if fault == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError(FAULTS[fault], os.strerror(FAULTS[fault]))

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if flags & WRITES and not isinstance(path, int):
                call(path)
        elif event in ONE_PATH:
            call(arguments[0], arguments[-1] if len(arguments) > 1 else -1)
        elif event in TWO_PATHS:
            call(arguments[0])

    class Counted(io.FileIO):
        def write(self, content: Any) -> int | None:
            call(None, self.fileno())
            return super().write(content)

    def counted_open(path: Any, mode: str = "r", *options: Any, **named: Any) -> Any:
        if mode in ("wb", "ab", "xb"):
            return io.BufferedWriter(Counted(path, mode))
        return opened(path, mode, *options, **named)

    def before(function: Callable[..., Any]) -> Callable[..., Any]:
        def counted_call(descriptor: int, *arguments: Any) -> Any:
            call(None, descriptor)
            return function(descriptor, *arguments)

        return counted_call

    opened = builtins.open
    builtins.open = counted_open
    os.fdopen = counted_open
    os.fsync, os.write, os.pwrite = before(os.fsync), before(os.write), before(os.pwrite)
    sys.addaudithook(audit)


def _is_below(path: Any, descriptor: Any, below: str) -> bool:
    """Whether a call touches the folder: by a path, by an open file, or by a path from an open folder."""
    base = ""
    if isinstance(descriptor, int) and descriptor >= 0:
        try:
            base = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            return False
    text = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
    return os.path.join(base, text).startswith(below)
