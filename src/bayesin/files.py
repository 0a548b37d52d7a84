"""Files that are whole or absent.

A write goes to a temporary file beside its target, reaches the disk, and takes the target's name in one
step: a reader sees the old file or the new one, never a part. The temporary file stays locked until it has
that name, and the kernel's lock ends with its process, so that what a killed one left is known and removed.

Files may come from strangers: only regular files are opened (a pipe would block, a device never end), and sizes are
checked before memory is taken.
"""

import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

import platformdirs

from .errors import ArtifactError
from .locks import CAREFULLY, held, lock

TEMPORARY = ".tmp-"  # prefix of unfinished files; `remove_leftovers` clears what a killed process left


def open_file(path: Path | str) -> BufferedReader:
    """Opens a regular file for reading; anything else is refused, without waiting for it.

    Raises:
        ArtifactError: there is no such file, it may not be read, or it is a folder, a pipe or a device.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise ArtifactError(f"cannot read {path}: {error.strerror or error}") from None
    except ValueError:  # a NUL in the name
        raise ArtifactError(f"cannot read {str(path)!r}: no file can have this name") from None
    mode = os.fstat(descriptor).st_mode  # of what was opened: the name may mean something else by now
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise ArtifactError(f"{path} is {'a folder, not a file' if stat.S_ISDIR(mode) else 'not a file'}")
    return os.fdopen(descriptor, "rb")


def read_bytes(path: Path | str, limit: int = 1 << 40) -> bytes:
    """Reads a whole file, refusing one of more than `limit` bytes before it is read."""
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise ArtifactError(f"{path} has {size:,} bytes, more than the {limit:,} such a file can have")
        try:
            return file.read()
        except OSError as error:
            raise ArtifactError(f"cannot read {path}: {error.strerror or error}") from None


def content_hash(parts: Iterable[bytes | memoryview]) -> str:
    """The SHA-256 of some pieces of content in their order, each with its length, in hexadecimal.

    Example:
        >>> content_hash([b"ab", b"c"]) == content_hash([b"a", b"bc"])
        False
    """
    digest = hashlib.sha256()
    for part in parts:
        view = memoryview(part).cast("B")
        digest.update(view.nbytes.to_bytes(8, "little"))
        digest.update(view)
    return digest.hexdigest()


def file_hash(path: Path | str) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with open_file(path) as file:
        try:
            return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise ArtifactError(f"cannot read {path}: {error.strerror or error}") from None


def write_with(path: Path | str, fill: Callable[[BinaryIO], Any]) -> Path:
    """Writes a file atomically and durably, making its folder where needed; `fill` writes the content.

    Two writers of one file do not disturb each other: the last to finish wins, with its whole content.
    """
    path = Path(path)
    if "\0" in str(path) or not path.name:
        raise ArtifactError(f"cannot write {str(path)!r}: no file can have this name")
    # The random part keeps processes of two machines (or containers) apart that share folder and number.
    temporary = path.with_name(f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(4)}-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path.parent, path.name)
        with _create(temporary) as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
            os.replace(temporary, path)  # while locked, or another writer would take it for a leftover
        sync_folder(path.parent)
    except OSError as error:
        raise ArtifactError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):  # it is there only where something went wrong
            temporary.unlink(missing_ok=True)
    return path


def write_bytes(path: Path | str, content: bytes) -> Path:
    """Writes a file atomically and durably, making its folder where needed."""
    return write_with(path, lambda file: file.write(content))


def remove_leftovers(folder: Path | str, name: str = "") -> int:
    """Removes the unfinished files and folders, of one name or of all, that killed processes left; how many."""
    ending = f"-{name}" if name else ""
    try:
        with os.scandir(folder) as entries:
            unfinished = [entry for entry in entries if entry.name.startswith(TEMPORARY)]
        left = [entry.path for entry in unfinished if entry.name.endswith(ending) and _is_file_or_folder(entry)]
    except OSError:
        return 0
    return sum(_remove_unless_held(path) for path in left)


@contextmanager
def temporary_folder(beside: Path, name: str) -> Iterator[Path]:
    """A new folder in `beside`, gone on leaving; it is locked, which tells it from what a killed process left."""
    while True:
        path = beside / f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(4)}-{name}"
        path.mkdir(parents=True)
        try:
            descriptor = os.open(path, os.O_RDONLY | CAREFULLY)
        except FileNotFoundError:  # taken for a leftover before it was locked
            continue
        lock(descriptor, wait=True)
        if path.is_dir():
            break
        os.close(descriptor)
    try:
        yield path
    finally:
        remove_folder(path)
        os.close(descriptor)


def remove_folder(folder: Path | str) -> None:
    """Removes a folder with all that is in it, as far as it can be; what failed once is tried once more."""
    for _ in range(2):
        shutil.rmtree(folder, ignore_errors=True)


def cache_folder(name: str) -> Path | None:
    """Where files that can be made again are kept for this user; None where the user has no home folder.

    Example:
        >>> folder = cache_folder("data")
        >>> folder is None or folder.parts[-2:]
        ('bayesin', 'data')
    """
    try:
        folder = platformdirs.user_cache_path("bayesin", appauthor=False)
    except RuntimeError:  # neither HOME nor an entry in the password file
        return None
    return folder / name if folder.is_absolute() else None  # older ones leave `~` as it is


def _create(path: Path) -> BinaryIO:
    """Opens a new file for writing and locks it; one that was taken for a leftover in between is made again."""
    while True:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | CAREFULLY, 0o666)
        lock(descriptor, wait=True)  # some file systems have no locks; there leftovers stay
        if os.fstat(descriptor).st_nlink:
            return os.fdopen(descriptor, "wb")
        os.close(descriptor)


def _is_file_or_folder(entry: os.DirEntry[str]) -> bool:
    return entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)


def _remove_unless_held(path: str) -> bool:
    try:
        with held(path, wait=False) as mine:
            if mine and os.path.isdir(path):
                shutil.rmtree(path)
            elif mine:
                os.unlink(path)
            return mine
    except OSError:  # gone, or not ours to remove
        return False


def sync_file(path: Path | str) -> None:
    """Waits until what was written to a file is on the disk."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path | str) -> None:
    """Brings the names in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
