"""Checkpoints of training: written by orbax, whole or absent, the last two kept.

A checkpoint holds the state of all members, the trace so far, what makes the run this run, and a checksum of
it all. One that cannot be read, or holds other bits than were written, is removed, and the one before it is taken.
"""

import json
import logging
import re
import shutil
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from ..errors import ArtifactError, ConfigError, first_line
from ..files import remove_folder, write_bytes

KEPT, VERSION = 2, 1
LATE = 0.2  # seconds for what a failed save left to threads to end
CLOSED = "Event loop is closed"
LOGGERS = ("absl", "asyncio", "concurrent.futures")  # to which orbax and its threads tell of errors


class Resumed(NamedTuple):
    """Where a run stands."""

    step: int
    leaves: list[np.ndarray]  # of the states, leading axis: members
    rows: list[dict[str, Any]]
    limit: Any  # beyond which the loss counts as exploded


class Checkpoints:
    """The checkpoints of one run in one folder."""

    def __init__(self, folder: Path | str, identity: dict[str, Any], need: int):
        """Makes the folder and makes sure that it can hold checkpoints of `need` bytes."""
        self.folder, self.identity = Path(folder).absolute(), identity
        self._manager: Any = None
        probe = write_bytes(self.folder / ".writable", b"")
        try:
            probe.unlink()
        except OSError as error:
            raise ArtifactError(f"cannot write {self.folder}: {error.strerror or error}") from error
        self._remove_unfinished()
        free = shutil.disk_usage(self.folder).free
        wanted = (KEPT + 1) * need + (1 << 20)
        if free < wanted:
            raise ArtifactError(
                f"{self.folder} has {free / 1e9:.2f} GB free, checkpoints of this run need {wanted / 1e9:.2f} GB; "
                "free some space or choose another folder"
            )

    @property
    def steps(self) -> list[int]:
        """Steps that have a checkpoint, oldest first; unfinished ones have other names."""
        return sorted(int(path.name) for path in self.folder.iterdir() if re.fullmatch(r"\d+", path.name))

    @property
    def latest(self) -> Path | None:
        """The newest checkpoint."""
        return self.folder / str(self.steps[-1]) if self.steps else None

    def save(self, resumed: Resumed) -> None:
        """Writes a checkpoint; returns when it is on disk."""
        import orbax.checkpoint as ocp  # a second to import, and short runs never need it

        state = _named(resumed.leaves)
        about = {
            "version": VERSION,
            "identity": self.identity,
            "step": resumed.step,
            "limit": np.asarray(resumed.limit).tolist(),
            "rows": [{name: np.asarray(value).tolist() for name, value in row.items()} for row in resumed.rows],
        }
        about["checksum"] = _checksum(about, resumed.leaves)
        args = ocp.args.Composite(state=ocp.args.StandardSave(state), about=ocp.args.JsonSave(about))
        try:
            self._save(resumed.step, args)
        except OSError as error:
            raise ArtifactError(f"cannot write a checkpoint to {self.folder}: {error.strerror or error}") from error
        except Exception as error:  # the storage layers of orbax have their own words for a full disk
            raise ArtifactError(f"cannot write a checkpoint to {self.folder}: {first_line(error)}") from error

    def _save(self, step: int, args: Any) -> None:
        """Saves, and where that fails once more: of a save that failed, threads of the storage may still be writing
        where the next one begins."""
        with _quiet():  # in between, too: that is when threads of the first one tell of it
            try:
                self._open().save(step, args=args)
            except Exception as first:
                time.sleep(LATE)
                self._remove_unfinished()
                self._manager = None
                try:
                    self._open().save(step, args=args)
                except Exception:
                    raise first from None

    def _remove_unfinished(self) -> None:
        for unfinished in self.folder.glob("*.orbax-checkpoint-tmp*"):
            remove_folder(unfinished)

    def restore(self, like: list[Any]) -> Resumed | None:
        """Returns the newest checkpoint that can be read, or None; refuses one of another run."""
        for step in reversed(self.steps):
            try:
                with _quiet():
                    about, leaves = self._read(step, like)
            except Exception:  # orbax raises what its storage layers raise
                remove_folder(self.folder / str(step))
                self._manager = None
                continue
            self._check(about["identity"])
            return Resumed(step, leaves, [_as_row(row) for row in about["rows"]], np.asarray(about["limit"]))
        return None

    def close(self) -> None:
        """Lets go of the folder."""
        if self._manager is not None:
            self._manager.close()
            self._manager = None

    def _read(self, step: int, like: list[Any]) -> tuple[Any, list[np.ndarray]]:
        import orbax.checkpoint as ocp

        shapes = _named(like)
        about = self._open().restore(step, args=ocp.args.Composite(about=ocp.args.JsonRestore())).about
        if about["identity"] != self.identity:
            return about, []
        found = self._open().restore(step, args=ocp.args.Composite(state=ocp.args.StandardRestore(shapes))).state
        leaves = [np.asarray(found.get(_name(n), leaf)).reshape(leaf.shape) for n, leaf in enumerate(like)]
        if about.pop("checksum") != _checksum(about, leaves) or about["version"] != VERSION or about["step"] != step:
            raise ArtifactError("other bits than were written")
        return about, leaves

    def _open(self) -> Any:
        import orbax.checkpoint as ocp

        if self._manager is None:
            options = ocp.CheckpointManagerOptions(max_to_keep=KEPT, enable_async_checkpointing=False)
            self._manager = ocp.CheckpointManager(self.folder, options=options)
        return self._manager

    def _check(self, found: dict[str, Any]) -> None:
        for name in [*self.identity, *found]:
            here, there = self.identity.get(name), found.get(name)
            if here != there:
                raise ConfigError(
                    f"{self.folder} holds checkpoints of another run ({name} was {there!r:.60}, now {here!r:.60}); "
                    "give this run a folder of its own"
                )


@contextmanager
def _quiet() -> Iterator[None]:
    """What orbax and its threads tell of an error, tracebacks too, is said once and in one line by us.

    It closes its event loop at the first error; the others then find it closed, each from a thread of tensorstore's
    and at a time of its own, and Python would print a traceback for each. So after an error, whose threads may take
    longer, these alone stay unheard.
    """
    loggers = [logging.getLogger(name) for name in LOGGERS]
    before = [logger.level for logger in loggers]
    hooks = sys.unraisablehook, sys.excepthook
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    sys.unraisablehook, sys.excepthook = _but_for_closed_loops(*hooks)
    try:
        yield
    except Exception:
        for logger in loggers:
            logger.addFilter(_is_not_of_orbax)  # which takes the same one but once
        raise
    else:
        sys.unraisablehook, sys.excepthook = hooks
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def _but_for_closed_loops(unraisable: Any, raised: Any) -> tuple[Any, Any]:
    """Python's two hooks as they are, but silent about a closed event loop; once is enough."""

    def show_unraisable(error: Any) -> None:
        if str(error.exc_value) != CLOSED:
            unraisable(error)

    def show_raised(kind: Any, error: Any, trace: Any) -> None:
        if str(error) != CLOSED:
            raised(kind, error, trace)

    if getattr(unraisable, "__name__", "") == show_unraisable.__name__:
        return unraisable, raised
    return show_unraisable, show_raised


def _is_not_of_orbax(record: logging.LogRecord) -> bool:
    """False for what became of a write that orbax gave up, told by its thread, or because nobody has asked."""
    text = record.getMessage()
    return not ("orbax" in text and any(words in text for words in ("never retrieved", "raised an exception")))


def checksum(*arrays: Any) -> int:
    """A number that changes when the data do."""
    total = 0
    for array in arrays:
        content = memoryview(np.ascontiguousarray(array))  # pyright: ignore[reportArgumentType]
        total = zlib.crc32(content.cast("B"), total)
    return total


def _checksum(about: dict[str, Any], leaves: list[Any]) -> int:
    """Of everything in a checkpoint; storage checks some of it, but not every bit."""
    text = json.dumps(about, sort_keys=True).encode()
    return checksum(np.frombuffer(text, np.uint8), *(leaf for leaf in leaves if np.size(leaf)))


def key_numbers(key: jax.Array) -> list[int]:
    """A random key as plain numbers."""
    return np.asarray(jax.random.key_data(key)).ravel().tolist()


def _name(number: int) -> str:
    return f"leaf{number:03d}"


def _named(leaves: list[Any]) -> dict[str, np.ndarray]:
    """Leaves as orbax takes them: by name, none without axes, none empty."""
    return {_name(n): np.atleast_1d(leaf) for n, leaf in enumerate(leaves) if np.size(leaf)}


def _as_row(row: dict[str, Any]) -> dict[str, Any]:
    return {name: np.asarray(value, np.float32) if isinstance(value, list) else value for name, value in row.items()}
