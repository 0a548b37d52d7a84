"""Locks that end with their process, and name it.

They are the kernel's `flock` and not `filelock`, which does not say who holds a lock, and which falls back, where the
file system has none, to files that outlive a killed process.
"""

import errno
import fcntl
import os
import socket
import stat
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import ArtifactError, LockedError

NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}  # what file systems without them say
GLANCE = 0.2  # seconds that a lock may look taken because `is_locked` looks at it
CAREFULLY = os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW  # neither waits for a pipe nor follows a link


@contextmanager
def locked(path: Path | str, *, wait: bool = False) -> Iterator[None]:
    """Holds the lock file `path`; where another process does, waits for it or raises `LockedError` saying who.

    The file is made where needed, says who holds it, and is removed on leaving. It is never a link or a pipe, and
    one with content (a killed process left it, or somebody planted it) is put aside by name, not written over.
    """
    path = Path(path)
    descriptor = _acquire(path, wait)
    try:
        with suppress(OSError):  # on a full disk it is still held, by someone unnamed
            os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        yield
    finally:
        with suppress(OSError):  # a folder that became read-only keeps the file, which says nothing by itself
            if _is_current(path, os.fstat(descriptor)):  # not another's, where the folder was moved or replaced
                path.unlink()
        os.close(descriptor)


def is_locked(path: Path | str) -> bool:
    """Whether a process holds this lock file just now."""
    try:
        descriptor = os.open(path, os.O_RDONLY | CAREFULLY)
    except OSError:
        return False
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError:  # no locks here, so that nobody holds one
        return False
    finally:
        os.close(descriptor)


@contextmanager
def held(path: Path | str, *, wait: bool = True) -> Iterator[bool]:
    """Locks an existing file or folder; yields whether it could, which without `wait` it may not."""
    descriptor = os.open(path, os.O_RDONLY | CAREFULLY)
    try:
        yield lock(descriptor, wait=wait)
    finally:
        os.close(descriptor)


def lock(descriptor: int, *, wait: bool = False) -> bool:
    """Locks an open file until it is closed; whether it could."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:  # another holds it, or this file system has no locks
        return False
    return True


def _acquire(path: Path, wait: bool) -> int:
    until = time.monotonic() + GLANCE
    while True:
        descriptor = _open_lock(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 200, 0).decode(errors="replace") or "another process"
            os.close(descriptor)
            if not wait and time.monotonic() > until:
                holder = holder if holder.isprintable() else "another process"
                raise LockedError(
                    f"{holder} works in {path.parent}; wait for it (--wait), or choose another folder"
                ) from None
            time.sleep(0.2 if wait else 0.02)
            continue
        except OSError as error:
            if error.errno not in NO_LOCKS:
                os.close(descriptor)
                raise ArtifactError(f"cannot lock {path.parent}: {error.strerror or error}") from error
            warnings.warn(
                f"the file system of {path.parent} has no locks, so that nothing keeps a second process out of it",
                stacklevel=2,
            )
        about = os.fstat(descriptor)
        if _is_current(path, about):
            if about.st_size == 0 and about.st_nlink == 1:
                return descriptor
            try:
                path.unlink()  # the name goes, the content stays for whoever else links to it
            except OSError as error:
                os.close(descriptor)
                raise ArtifactError(f"cannot lock {path}: {error.strerror or error}; remove it") from error
        os.close(descriptor)


def _open_lock(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | CAREFULLY, 0o644)
    except OSError as error:
        if error.errno == errno.ELOOP:  # what O_NOFOLLOW says of a link
            raise ArtifactError(f"cannot lock {path}: it is a link; remove it") from None
        raise ArtifactError(f"cannot write {path.parent}: {error.strerror or error}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ArtifactError(f"cannot lock {path}: it is not a file; remove it")
    return descriptor


def _is_current(path: Path, about: os.stat_result) -> bool:
    """Whether the name still means the file that was opened: whoever left has removed it."""
    try:
        return os.path.samestat(os.lstat(path), about)
    except FileNotFoundError:
        return False
