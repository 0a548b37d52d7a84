"""Files that change while a verb reads them: cut short, overwritten where they stand, replaced by others.

`align --stream` reads its files over and over as it works; it must end with the right answer, or with one line that
names the file and nothing written. Of a file whose name another takes, the old content and the new are both right.
"""

import itertools
import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from .common import Tally, contents, foreign, must, run, start

WIDE = [
    "--data",
    "digits",
    "--limit",
    "100",
    "--width",
    "700",
    "--depth",
    "4",
    "--test-samples",
    "2",
    "--batch",
    "50",
]
ROLES = ("target", "source")
CLOCKS = "alignment.safetensors"


def _cut(path: Path, other: Path, draws: random.Random) -> None:
    os.truncate(path, draws.randrange(path.stat().st_size))


def _overwrite(path: Path, other: Path, draws: random.Random) -> None:
    with open(path, "r+b") as file:
        file.seek(draws.randrange(path.stat().st_size))
        file.write(draws.randbytes(1 << 16))


def _replace(path: Path, other: Path, draws: random.Random) -> None:
    new = path.with_name("new")
    shutil.copy(other, new)
    os.replace(new, path)


CHANGES: dict[str, Callable[[Path, Path, random.Random], None]] = {
    "a file cut short while it is read": _cut,
    "a file overwritten while it is read": _overwrite,
    "a file replaced while it is read": _replace,
}


def changed(count: int, scratch: Path, seed: int = 0) -> list[Tally]:
    """`count` changes of each kind, of either file, at moments spread evenly over the work."""
    draws, files = random.Random(seed), _prepare(scratch)
    right, took = _undisturbed(files, scratch)
    tallies = []
    for fault, change in CHANGES.items():
        tally = Tally(fault)
        for number in range(count):
            role = ROLES[number % 2]
            wanted = [right["as they were"]] + [right[role]] * (change is _replace)
            tally.add(_try(files, role, change, scratch, draws, wanted, took))
        tallies.append(tally)
    return tallies


def _prepare(scratch: Path) -> dict[str, Path]:
    """Two files that hold their spec, and a third network of the same kind to replace either."""
    log, given = scratch / "prepare.log", scratch / "given"
    must(["train", *WIDE, "--quiet", "--epochs", "1", "--members", "3", "--out", str(given / "run")], log)
    for number in (1, 2, 0):  # each moved onto its neighbour, which is not where the stream will take it
        pair = [f"{given / 'run'}#{(number + 1) % 3}", f"{given / 'run'}#{number}"]
        must(["align", *pair, "--quiet", "--out", str(given / str(number))], log)
    names = dict(zip((*ROLES, "other"), "012", strict=True))
    return {role: given / name / "posterior-0.safetensors" for role, name in names.items()}


def _put(files: dict[str, Path], scratch: Path) -> list[str]:
    """Fresh copies, and the command that reads them."""
    read = scratch / "read"
    shutil.rmtree(read, ignore_errors=True)
    shutil.rmtree(scratch / "out", ignore_errors=True)
    read.mkdir()
    paths = [shutil.copy(files[role], read / f"{role}.safetensors") for role in ROLES]
    return ["align", "--stream", *map(str, paths), "--quiet", "--out", str(scratch / "out")]


def _undisturbed(files: dict[str, Path], scratch: Path) -> tuple[dict[str, dict[str, bytes]], float]:
    """The right answers: of the files as they were, and with another in place of either; and how long one takes."""
    found, took = {}, 0.0
    for what, given in itertools.chain(
        [("as they were", files)], ((role, files | {role: files["other"]}) for role in ROLES)
    ):
        command, began = _put(given, scratch), time.monotonic()
        must(command, scratch / "whole.log")
        took, found[what] = time.monotonic() - began, _compared(scratch)
    return found, took


def _try(
    files: dict[str, Path],
    role: str,
    change: Callable[[Path, Path, random.Random], None],
    scratch: Path,
    draws: random.Random,
    wanted: list[dict[str, bytes]],
    took: float,
) -> list[str]:
    child = start(_put(files, scratch), scratch / "cut.log")
    time.sleep(draws.random() * took)
    change(scratch / "read" / f"{role}.safetensors", files["other"], draws)
    code, said, left = child.wait(120), child.said, _compared(scratch)
    problems = foreign(child)
    if code == 0:
        return problems + ([] if left in wanted else ["it says that it is done, and the answer is another one"])
    problems += [] if code in (1, 2) else [f"ended with {code}"]
    problems += [] if f"{role}.safetensors" in said and said.count("\n") == 1 else [f"said {said[-200:]!r}"]
    problems += [f"left {', '.join(left)}"] if left else []
    again = run(_put(files, scratch), scratch / "again.log")
    return problems + ([] if again.code == 0 and _compared(scratch) == wanted[0] else ["the next one is not right"])


def _compared(scratch: Path) -> dict[str, bytes]:
    found = contents(scratch / "out") if (scratch / "out").exists() else {}
    return {name: b"" if name == CLOCKS else content for name, content in found.items()}
