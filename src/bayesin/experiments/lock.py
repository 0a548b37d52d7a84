"""One process at a time in a run folder.

The lock is the kernel's (`flock`), so it vanishes with its process however that ends; the file beside it only
says who holds it.
"""

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import ArtifactError, BayesinError

NAME = ".lock"
GLANCE = 0.2  # seconds; longer than `is_locked` holds a lock to look at it


class LockedError(BayesinError):
    """A folder in which another process works."""

    exit_code = 1


@contextmanager
def locked(folder: Path | str, *, wait: bool = False) -> Iterator[None]:
    """Holds a folder's lock; where another process does, waits for it or raises `LockedError` saying who.

    The file is removed on leaving. A process that waited on a removed file starts over with the new one.
    """
    folder = Path(folder)
    path = folder / NAME
    descriptor = _acquire(path, wait)
    try:
        with suppress(OSError):  # on a full disk it is still held, by someone unnamed
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        yield
    finally:
        with suppress(OSError):  # a folder that became read-only keeps the file, which says nothing by itself
            path.unlink(missing_ok=True)
        os.close(descriptor)


def is_locked(folder: Path | str) -> bool:
    """Whether a process works in the folder just now."""
    try:
        descriptor = os.open(Path(folder) / NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def _acquire(path: Path, wait: bool) -> int:
    until = time.monotonic() + GLANCE
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ArtifactError(f"cannot write {path.parent}: {error.strerror or error}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 200, 0).decode(errors="replace") or "another process"
            os.close(descriptor)
            if not wait and time.monotonic() > until:
                raise LockedError(
                    f"{holder} works in {path.parent}; wait for it (--wait), or choose another folder"
                ) from None
            time.sleep(0.2 if wait else 0.02)
            continue
        except OSError as error:
            os.close(descriptor)
            raise ArtifactError(f"cannot lock {path.parent}: {error.strerror or error}") from error
        if _is_current(path, descriptor):
            return descriptor
        os.close(descriptor)


def _is_current(path: Path, descriptor: int) -> bool:
    try:
        return os.stat(path).st_ino == os.fstat(descriptor).st_ino
    except FileNotFoundError:
        return False
