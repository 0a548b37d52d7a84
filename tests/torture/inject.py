"""Every call that writes fails once, in every verb: with no space, on a disk full from then on, and by a kill.

A small library (`failing_calls.c`) stands between libc and the process and counts the calls that change the folder of
the result: open for writing, write, sync, truncate, rename, link, make, remove, chmod, of Python and of the C++ below
it alike. Each one fails in turn. What is left must be the old result, the new one, or files that say they are mixed;
a verb that says it succeeded must have; and the same command then ends with the bits of an undisturbed run.

A verb has one process for all of its tries, in which flags are parsed and programs compiled once: a try takes a tenth
of a second. What a kill leaves is the folder as it was at that call, so that copies made in one run stand for a kill
at each; `kill` kills true processes. Tries that leave the same folder, but for clocks and random names, share what
comes after.
"""

import contextlib
import copy
import ctypes
import errno
import faulthandler
import functools
import hashlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from .common import Child, Tally, contents, differences, dump, foreign, import_everything, in_forks, whole
from .verbs import INJECTED, NO_CLIENT, Injected, hub_for, mirror, prepare_injected

COPY, ONCE, FULL = 1, 2, 3
FAULTS = {"ENOSPC": (ONCE, errno.ENOSPC), "full disk": (FULL, errno.EDQUOT)}
CLEAR = ("cannot write", "cannot lock", "free some space", "cannot read", "No space left", "quota exceeded")
LONGEST = 120  # seconds that one try may take
CLOCKS = {
    "seconds",
    "started",
    "ended",
    "error",
    "steps_per_second",
    "train_seconds",
    "test_seconds",
    "share_seconds",
}
RANDOM = re.compile(r"(?<=\.tmp-)\d+-[0-9a-f]{8}|(?<=/)[0-9a-f]{32}$")  # parts of the names of files
NO_COMPILER = "no C compiler, with which the calls are met"


def inject(count: int, scratch: Path, names: tuple[str, ...] = tuple(INJECTED)) -> list[Tally]:
    """All faults at `count` per cent of the calls of each verb, evenly spread."""
    library = scratch / "failing_calls.so"
    source = Path(__file__).with_name("failing_calls.c")
    compiler = shutil.which("cc")
    reasons = {name: NO_CLIENT * name.startswith("pull") if compiler else NO_COMPILER for name in names}
    skipped = [Tally(f"a failing call of {name}", skipped=reason) for name, reason in reasons.items() if reason]
    names = tuple(name for name in names if not reasons[name])
    if compiler is None or not names:
        return skipped
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    environment = {"LD_PRELOAD": str(library), "PYTHONPATH": os.pathsep.join(sys.path), "NO_PROXY": "127.0.0.1"}
    command = [sys.executable, "-m", "torture.inject", str(count), str(scratch), *names]
    done = subprocess.run(command, env=os.environ | environment)
    if done.returncode:
        raise RuntimeError(f"the process of the injection ended with {done.returncode}")
    rows = json.loads((scratch / "inject.json").read_text())
    return [*skipped, *(Tally(row["fault"], row["tries"], row["losses"], row["note"]) for row in rows)]


def _inside(count: int, scratch: Path, names: list[str]) -> list[dict]:
    import_everything()
    given = prepare_injected(scratch, names)
    with mirror(given), hub_for(names, given):
        work = {name: functools.partial(_one, name, count, given, scratch / name.replace(" ", "-")) for name in names}
        return [row for _, rows in in_forks(work, scratch, jobs=1) for row in rows]


def _one(name: str, count: int, given: Path, scratch: Path) -> list[Tally]:
    """The tries of one verb; what it says on the way goes to a log."""
    scratch.mkdir()
    _remember()
    log = os.open(scratch / "log", os.O_RDWR | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    return [_Tries(INJECTED[name], given, scratch, log).all(count)]


def _remember() -> None:
    """Keeps what a verb makes of its flags, the data and networks of its runs, and its figures, for all tries."""
    import bayesin.cli.main as cli
    import bayesin.lab.papers.rossi2023.kl as kl
    import bayesin.lab.runs  # noqa: F401

    runs = sys.modules["bayesin.lab.runs.run"]
    parse, prepare = cli._parse, runs._prepare
    parsed, prepared = {}, {}

    def parse_once(name: str, argv: list[str]) -> object:
        if (name, *argv) not in parsed:
            parsed[name, *argv] = parse(name, argv)
        return copy.deepcopy(parsed[name, *argv])

    def prepare_once(config, root, tell):
        if config.hash not in prepared:
            prepared[config.hash] = prepare(config, root, tell)
        return prepared[config.hash]

    cli._parse, runs._prepare = parse_once, prepare_once
    _remember_figures()
    kl._recovered = functools.cache(kl._recovered)


def _remember_figures() -> None:
    """A figure that looks like an earlier one is its PDF and its PNG, too; these take longest of all in a page."""
    from matplotlib.figure import Figure

    draw, drawn = Figure.savefig, {}

    def draw_once(figure, file, **flags):
        kind, looks = flags["format"], getattr(figure, "looks", None)
        content = drawn.get((kind, looks))
        if content is None:
            buffer = io.BytesIO()
            draw(figure, buffer, **flags)
            content = buffer.getvalue()
            if kind == "svg":
                figure.looks = content
            elif looks is not None:
                drawn[kind, looks] = content
        file.write(content)

    Figure.savefig = draw_once


class _Tries:
    """One verb, and what it leaves where one of its calls fails."""

    def __init__(self, job: Injected, given: Path, scratch: Path, log: int):
        self.job, self.scratch, self.log = job, scratch, log
        self.given, self.folder, self.old, self.copies = given, scratch / "cut", scratch / "old", scratch / "copies"
        self.command = job.command(given, self.folder)
        self.calls = ctypes.CDLL(None)
        self.calls.call_met.restype = ctypes.c_char_p
        self.tally = Tally(f"a failing call of {job.name}")
        self.known: dict[str, list[str]] = {}  # folder -> what was wrong after the same command once more

    def all(self, count: int) -> Tally:
        self._begin()
        step = max(1, 100 // max(1, count))
        number = self._copied()
        for at in range(1, number + 1, step):
            self._killed(at)
        tried = {"kill": number}
        for fault in FAULTS:
            at = 1
            while self._failed(fault, at):
                tried[fault] = at
                at += step
        shown = ", ".join(f"{fault} at {calls}" for fault, calls in tried.items())
        every = shown if step == 1 else f"one in {step} of them"
        self.tally.note = f"{number} calls; {every}; {len(self.known)} different folders left"
        return self.tally

    def _begin(self) -> None:
        """The old result, and the one that is to come; the first run compiles."""
        self._reset(None)
        if self.job.old is not None:
            self.job.old(self.must, self.given, self.folder)
            shutil.copytree(self.folder, self.old, symlinks=True)
        for _ in range(2):
            self._reset(self.old)
            self.must(self.command)
        self.wanted, new = self._compared(), _visible(self.folder)
        self._reset(self.old)
        self.damaged = whole(self.folder) if self.old.exists() else []  # on purpose, before anything fails
        before = _visible(self.old) if self.old.exists() else {}
        self.changing = {name for name in new if before.get(name) != new[name]}
        self.whole_old = before

    def _copied(self) -> int:
        """How many calls there are; a copy of the folder is kept from before each."""
        self._reset(self.old)
        self.copies.mkdir()
        with self._armed(COPY, 0, 0):
            self.must(self.command)
        return self.calls.calls_counted()

    def _killed(self, at: int) -> None:
        copy = self.copies / f"{at:05d}"
        called = copy.with_suffix(".call").read_text()
        self._reset(None)
        if copy.exists():
            copy.rename(self.folder)
        problems = self._left() + self._again()
        self.tally.add([f"killed at call {at} ({called}): {problem}" for problem in problems])

    def _failed(self, fault: str, at: int) -> bool:
        """Whether there was such a call."""
        how, error = FAULTS[fault]
        self._reset(self.old)
        with self._armed(how, at, error):
            child = self._run(self.command)
        if not self.calls.calls_failed():
            return False
        called = self.calls.call_met().decode(errors="replace")
        problems = foreign(child) + ([] if child.code in (0, 1, 2) else [f"ended with {child.code}"])
        if child.code and not any(word in child.said for word in CLEAR):
            problems.append(f"says nothing clear: {child.said.strip()[-200:]}")
        if child.code == 0:
            now = {name: content for name, content in self._compared().items() if not _is_hidden(name)}
            problems += [f"it said that all is well, but {one}" for one in differences(now, self.wanted)]
        problems += self._left() + self._again()
        self.tally.add([f"{fault} at call {at} ({called}): {problem}" for problem in problems])
        return True

    def _left(self) -> list[str]:
        """What is wrong with what is there now."""
        from bayesin.file_sets import replaced_already

        problems = [one for one in (whole(self.folder) if self.folder.exists() else []) if one not in self.damaged]
        if not self.old.exists() or not self.job.together:
            return problems
        now = _visible(self.folder) if self.folder.exists() else {}
        kept = {name for name in self.changing if name in self.whole_old and now.get(name) == self.whole_old[name]}
        fresh = {name for name in self.changing if name in now} - kept
        gone = {name for name in self.whole_old if name not in now}
        if kept != {*self.changing} & {*self.whole_old} and not fresh:
            problems.append(f"neither the old result nor the new one is there: {sorted(gone)[:3]} are gone")
        if kept and fresh and not replaced_already(self.folder):
            problems.append(f"{sorted(kept)[:3]} of the old result beside {sorted(fresh)[:3]}, and no mark")
        return problems

    def _again(self) -> list[str]:
        """What is wrong after the same command once more, undisturbed."""
        state = _fingerprint(self.folder)
        if state not in self.known:
            again = self._run(self.command)
            self.known[state] = differences(self._compared(), self.wanted)
            if again.code:
                self.known[state] = [f"the second start ended with {again.code}: {again.said.strip()[-200:]}"]
        return self.known[state]

    def must(self, command: list[str]) -> None:
        child = self._run(command)
        if child.code:
            raise RuntimeError(f"{' '.join(command)} fails undisturbed: {child.said}")

    def _run(self, command: list[str]) -> Child:
        """The verb in this process; what it says goes to the log, which holds one run."""
        import bayesin.cli.main

        os.ftruncate(self.log, 0)
        os.lseek(self.log, 0, os.SEEK_SET)
        faulthandler.dump_traceback_later(LONGEST, exit=True)
        try:
            code = bayesin.cli.main.main(command)
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        finally:
            faulthandler.cancel_dump_traceback_later()
        sys.stdout.flush()
        sys.stderr.flush()
        return Child(0, self.scratch / "log", code)

    @contextlib.contextmanager
    def _armed(self, how: int, at: int, error: int) -> Iterator[None]:
        folder, copies = os.fsencode(self.folder), os.fsencode(self.copies)
        self.calls.fail_calls(folder, how, ctypes.c_long(at), error, copies)
        try:
            yield
        finally:
            self.calls.fail_no_more()

    def _reset(self, to: Path | None) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        if to is not None and to.exists():
            shutil.copytree(to, self.folder, symlinks=True)

    def _compared(self) -> dict[str, bytes]:
        found = contents(self.folder)
        return {name: b"" if name in self.job.ignored else content for name, content in found.items()}


def _fingerprint(folder: Path) -> str:
    """One text for all folders that differ in clocks and random names alone."""
    found = []
    for path in sorted(folder.rglob("*")):
        name = RANDOM.sub("", str(path.relative_to(folder)))
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b"none"
        if "checkpoints" in path.parts:  # those of orbax have clocks and random names inside
            content = str(len(content)).encode()
        elif path.suffix in (".json", ".jsonl"):
            content = _without_clocks(content)
        found.append(
            f"{name} {path.stat().st_mode if path.exists() else 'gone'} {hashlib.sha256(content).hexdigest()}"
        )
    return "\n".join(sorted(found)) + f"\n{folder.exists()}"


def _without_clocks(content: bytes) -> bytes:
    try:
        rows = [json.loads(line) for line in content.splitlines()] if b"\n{" in content else json.loads(content)
    except ValueError:  # half of a file
        return content
    for row in rows if isinstance(rows, list) else [rows]:
        for name in CLOCKS & row.keys() if isinstance(row, dict) else ():
            del row[name]
    return json.dumps(rows).encode()


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in Path(name).parts)


def _visible(folder: Path) -> dict[str, bytes]:
    paths = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in paths.items() if not _is_hidden(name)}


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    place = Path(sys.argv[2])
    dump(place / "inject.json", _inside(int(sys.argv[1]), place, sys.argv[3:]))
