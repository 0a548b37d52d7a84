"""Files that are whole or absent, and JSON that means one thing.

A write goes to a temporary file beside its target, reaches the disk, and takes the target's name in one
step: a reader sees the old file or the new one, never a part. The temporary file is locked while it is
written, and the kernel's lock ends with its process, so that what a killed one left is known and removed.
"""

import fcntl
import itertools
import json
import math
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from .errors import ArtifactError, BayesinError

TEMPORARY = ".tmp-"  # prefix of unfinished files; `remove_leftovers` clears what a killed process left
LONGEST_NUMBER = 64  # digits of a whole number in JSON; a float holds it, and no count or key needs as many
_NUMBERS = itertools.count()  # two threads may write the same file


def write_with(path: Path | str, fill: Callable[[BinaryIO], Any]) -> Path:
    """Writes a file atomically and durably, making its folder where needed; `fill` writes the content."""
    path = Path(path)
    temporary = path.with_name(f"{TEMPORARY}{os.getpid()}-{next(_NUMBERS)}-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path.parent, path.name)
        with _create(temporary) as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as error:
        _remove(temporary)
        raise ArtifactError(f"cannot write {path}: {error.strerror or error}") from error
    except BaseException:
        _remove(temporary)
        raise
    return path


def write_bytes(path: Path | str, content: bytes) -> Path:
    """Writes a file atomically and durably, making its folder where needed."""
    return write_with(path, lambda file: file.write(content))


def write_json(path: Path | str, value: Any) -> Path:
    """Writes a JSON file atomically, indented, keys in the given order."""
    return write_bytes(path, (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode())


def read_bytes(path: Path | str, limit: int = 1 << 40) -> bytes:
    """Reads a whole file, refusing one of more than `limit` bytes before it is read."""
    path = Path(path)
    try:
        about = path.stat()
        if stat.S_ISDIR(about.st_mode):
            raise ArtifactError(f"{path} is a folder, not a file")
        if not stat.S_ISREG(about.st_mode):  # a pipe would block, a device never end
            raise ArtifactError(f"{path} is not a file")
        if about.st_size > limit:
            raise ArtifactError(f"{path} has {about.st_size:,} bytes, more than the {limit:,} such a file can have")
        return path.read_bytes()
    except OSError as error:
        raise ArtifactError(f"cannot read {path}: {error.strerror or error}") from None


def read_json(path: Path | str, limit: int = 64 << 20) -> Any:
    """Reads a JSON file; a name that stands twice in one object is refused, not silently dropped."""
    return parse_json(read_bytes(path, limit), str(path))


def parse_json(content: bytes | str, what: str) -> Any:
    """Reads JSON text; errors start with `what`.

    Duplicate names, NaN, numbers beyond a float, half characters and bottomless nesting are refused.
    """
    try:
        text = content.decode() if isinstance(content, bytes) else content
        numbers: dict[str, Any] = {"parse_constant": _no_constant, "parse_float": _finite, "parse_int": _whole}
        value = json.loads(text, object_pairs_hook=_unique, **numbers)
        if _HALF_CHARACTER.search(text):
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except BayesinError as error:
        raise ArtifactError(f"{what}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{what} is not valid JSON: {error}") from None


def remove_leftovers(folder: Path | str, name: str = "") -> int:
    """Removes the unfinished files, of one target or of all, that killed processes left; returns how many."""
    try:
        found = [entry for entry in os.scandir(folder) if entry.name.startswith(TEMPORARY)]
    except OSError:
        return 0
    left = [e.path for e in found if e.name.endswith(f"-{name}" if name else "") and e.is_file(follow_symlinks=False)]
    return sum(_remove_unless_held(path) for path in left)


@contextmanager
def held(path: Path | str, *, wait: bool = True) -> Iterator[bool]:
    """Locks a file or folder while this process lives; yields whether it could, which without `wait` it may not."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            locked = True
        except OSError:  # another holds it, or this file system has no locks
            locked = False
        yield locked
    finally:
        os.close(descriptor)


_HALF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")  # half of a pair, which no file can hold alone


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ArtifactError(f"{name[:80]!r} is named twice")
        found[name] = value
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is beyond what a number can be")
    return value


def _whole(text: str) -> int:
    if len(text) > LONGEST_NUMBER:
        raise ValueError(f"a number of {len(text):,} digits")
    return int(text)


def _create(path: Path) -> BinaryIO:
    """Opens a new file for writing and locks it; one that was taken for a leftover in between is made again."""
    while True:
        file = open(path, "wb")  # noqa: SIM115 (closed by the caller)
        with suppress(OSError):  # some file systems have no locks; there leftovers stay
            fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()


def _remove_unless_held(path: str) -> bool:
    try:
        with held(path, wait=False) as mine:
            if mine:
                os.unlink(path)
            return mine
    except OSError:  # gone, or not ours to remove
        return False


def _remove(path: Path) -> None:
    with suppress(OSError):  # the folder may be missing or read-only, which is what the caller reports
        path.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
