"""Files that are whole or absent, and JSON that means one thing.

A write goes to a temporary file beside its target, reaches the disk, and takes the target's name in one
step: a reader sees the old file or the new one, never a part.
"""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from .errors import ArtifactError, BayesinError

TEMPORARY = ".tmp-"  # prefix of unfinished files; `remove_leftovers` clears what a killed process left


def write_with(path: Path | str, fill: Callable[[BinaryIO], Any]) -> Path:
    """Writes a file atomically and durably, making its folder where needed; `fill` writes the content."""
    path = Path(path)
    temporary = path.with_name(f"{TEMPORARY}{os.getpid()}-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
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
        if path.stat().st_size > limit:
            raise ArtifactError(
                f"{path} has {path.stat().st_size:,} bytes, more than the {limit:,} such a file can have"
            )
        return path.read_bytes()
    except OSError as error:
        raise ArtifactError(f"cannot read {path}: {error.strerror or error}") from None


def read_json(path: Path | str, limit: int = 64 << 20) -> Any:
    """Reads a JSON file; a name that stands twice in one object is refused, not silently dropped."""
    return parse_json(read_bytes(path, limit), str(path))


def parse_json(content: bytes | str, what: str) -> Any:
    """Reads JSON text; errors start with `what`. Duplicate names, NaN and bottomless nesting are refused."""
    try:
        text = content.decode() if isinstance(content, bytes) else content
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except BayesinError as error:
        raise ArtifactError(f"{what}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{what} is not valid JSON: {error}") from None


def remove_leftovers(folder: Path | str) -> int:
    """Removes the unfinished files that a killed process left in a folder; returns how many."""
    leftovers = [path for path in Path(folder).glob(f"{TEMPORARY}*") if path.is_file()]
    for path in leftovers:
        path.unlink(missing_ok=True)
    return len(leftovers)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ArtifactError(f"{name[:80]!r} is named twice")
        found[name] = value
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _remove(path: Path) -> None:
    with suppress(OSError):  # the folder may be missing or read-only, which is what the caller reports
        path.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
