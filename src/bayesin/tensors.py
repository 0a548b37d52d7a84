"""Checked safetensors files: named arrays and a few strings, written whole, read with suspicion.

The layout is that of safetensors: eight bytes with the length of a JSON header, the header, the arrays.
The reader believes nothing: sizes are compared with the file before memory is taken, and a CRC-32 of the
whole file (its own eight digits taken as zeros) stands in the header, so that a flipped bit is an error
and never another posterior. One array at a time is held in memory while writing.
"""

import json
import os
import stat
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import ml_dtypes
import numpy as np

from .errors import ArtifactError
from .files import parse_json, write_with

CODES = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
HEADER_LIMIT = 16 << 20  # bytes; a network of 50,000 tensors needs 5 MiB
BLOCK = 16 << 20  # bytes read, written or checked at a time
LONGEST_NAME = 1024
NO_CHECKSUM = "00000000"


class Entry(NamedTuple):
    """Where one array lies: type, shape, first byte and end within the data."""

    dtype: np.dtype
    shape: tuple[int, ...]
    start: int
    end: int


class Header(NamedTuple):
    """What a file says of itself."""

    entries: dict[str, Entry]
    metadata: dict[str, str]
    raw: bytes  # length, header and padding, as they stand in the file


def write_tensors(path: Path | str, tensors: Mapping[str, Any], metadata: Mapping[str, str]) -> Path:
    """Writes arrays and strings as one safetensors file, atomically; arrays may live on any device."""
    for name in tensors:
        if not is_name(name):
            raise ArtifactError(f"{name[:80]!r} cannot name an array: at most {LONGEST_NAME} printable characters")
    entries = _lay_out(tensors)
    raw = _write_header(entries, metadata)

    def fill(file: BinaryIO) -> None:
        file.write(raw)
        checksum = zlib.crc32(raw)
        for name in entries:
            for block in _blocks(np.asarray(tensors[name])):
                file.write(block)
                checksum = zlib.crc32(block, checksum)
        file.seek(_checksum_place(raw, NO_CHECKSUM))
        file.write(f"{checksum:08x}".encode())

    return write_with(path, fill)


def read_tensors(path: Path | str) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Reads every array and the strings, after checking all that can be checked.

    Raises:
        ArtifactError: the file is missing, cut off, damaged, or not safetensors; says which.
    """
    try:
        with _open(path) as file:
            header = _read_header(path, file)
            return _read_arrays(path, file, header), header.metadata
    except OSError as error:
        raise ArtifactError(f"cannot read {path}: {error.strerror or error}") from None


def read_header(path: Path | str) -> Header:
    """Reads names, shapes and strings without the arrays; their checksum is not verified."""
    try:
        with _open(path) as file:
            return _read_header(path, file)
    except OSError as error:
        raise ArtifactError(f"cannot read {path}: {error.strerror or error}") from None


def is_name(name: str) -> bool:
    """Whether a name may stand in a file, and so in a message on a terminal."""
    return len(name) <= LONGEST_NAME and name.isprintable()


def _lay_out(tensors: Mapping[str, Any]) -> dict[str, Entry]:
    codes = {dtype: code for code, dtype in CODES.items()}
    entries, start = {}, 0
    # Wide types first, as safetensors itself does, so that every array is aligned to its type.
    for name in sorted(tensors, key=lambda name: (-np.dtype(tensors[name].dtype).itemsize, name)):
        dtype, shape = np.dtype(tensors[name].dtype).newbyteorder("<"), tuple(tensors[name].shape)
        if dtype not in codes:
            raise ArtifactError(f"'{name}' holds {dtype}, which safetensors files cannot; convert it first")
        end = start + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        entries[name] = Entry(dtype, shape, start, end)
        start = end
    return entries


def _write_header(entries: dict[str, Entry], metadata: Mapping[str, str]) -> bytes:
    codes = {dtype: code for code, dtype in CODES.items()}
    header: dict[str, Any] = {"__metadata__": {"checksum": NO_CHECKSUM, **metadata}}
    for name, (dtype, shape, start, end) in entries.items():
        header[name] = {"dtype": codes[dtype], "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > HEADER_LIMIT:
        raise ArtifactError(f"a header of {len(text):,} bytes; at most {HEADER_LIMIT:,} can be read back")
    return len(text).to_bytes(8, "little") + text


def _blocks(array: np.ndarray) -> Iterator[memoryview]:
    array = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    view = array.reshape(-1).view(np.uint8).data
    for start in range(0, len(view), BLOCK):
        yield view[start : start + BLOCK]


def _checksum_place(raw: bytes, checksum: str) -> int:
    """Position of the checksum's digits; -1 where they do not stand in the one way we write them."""
    label = b'"checksum":"'
    place = raw.find(label + checksum.encode() + b'"')
    return place + len(label) if place >= 0 else -1


def _open(path: Path | str) -> BinaryIO:
    if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would block, a device never end
        raise ArtifactError(f"{path} is not a file")
    return open(path, "rb")


def _read_header(path: Path | str, file: BinaryIO) -> Header:
    size = os.fstat(file.fileno()).st_size
    prefix = file.read(8)
    length = int.from_bytes(prefix, "little")
    if len(prefix) < 8 or length > size - 8:
        raise ArtifactError(
            f"{path} is cut off or no safetensors file: {size:,} bytes, its header asks for {8 + length:,}"
        )
    if length > HEADER_LIMIT:
        raise ArtifactError(f"{path}: a header of {length:,} bytes; at most {HEADER_LIMIT:,} are read")
    text = file.read(length)
    content = parse_json(text, f"the header of {path}")
    if not isinstance(content, dict):
        raise ArtifactError(f"{path}: its header is not a JSON object")
    metadata = content.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ArtifactError(f"{path}: the metadata of its header is not a table of strings")
    for name in content:
        if not is_name(name):
            raise ArtifactError(f"{path}: no array can have the name {name[:80]!r}")
    entries = {name: _read_entry(path, name, entry) for name, entry in content.items()}
    _check_layout(path, entries, size - 8 - length)
    return Header(entries, metadata, prefix + text)


def _read_entry(path: Path | str, name: str, entry: Any) -> Entry:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ArtifactError(f"{path}: '{name}' needs dtype, shape and data_offsets")
    dtype = CODES.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
    if dtype is None:
        raise ArtifactError(f"{path}: '{name}' has type {str(entry['dtype'])[:40]!r}; known are {', '.join(CODES)}")
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not _are_sizes(shape) or len(shape) > 32:
        raise ArtifactError(f"{path}: '{name}' has no usable shape")
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise ArtifactError(f"{path}: '{name}' has no usable place in the file")
    needed = dtype.itemsize
    for length in shape:
        needed *= length
    if needed != offsets[1] - offsets[0]:
        raise ArtifactError(
            f"{path}: '{name}' of shape {tuple(shape)} needs {needed:,} bytes, has {offsets[1] - offsets[0]:,}"
        )
    return Entry(dtype, tuple(shape), offsets[0], offsets[1])


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(
        isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 48 for value in values
    )


def _check_layout(path: Path | str, entries: dict[str, Entry], size: int) -> None:
    """Every byte of the data belongs to exactly one array."""
    place = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].end)):
        if entry.start != place:
            raise ArtifactError(f"{path}: '{name}' starts at byte {entry.start:,}, expected {place:,}")
        place = entry.end
    if place != size:
        kind = "is cut off" if place > size else "has bytes that belong to nothing"
        raise ArtifactError(f"{path} {kind}: {size:,} bytes of data, its header names {place:,}")


def _read_arrays(path: Path | str, file: BinaryIO, header: Header) -> dict[str, np.ndarray]:
    expected = header.metadata.get("checksum", "")
    place = _checksum_place(header.raw, expected)
    if len(expected) != 8 or place < 0:
        raise ArtifactError(f"{path} has no checksum; it is damaged or was not written by bayesin")
    checksum = zlib.crc32(header.raw[:place] + NO_CHECKSUM.encode() + header.raw[place + 8 :])
    arrays = {}
    for name, entry in sorted(header.entries.items(), key=lambda item: (item[1].start, item[1].end)):
        array = np.empty(entry.shape, entry.dtype)
        view = array.reshape(-1).view(np.uint8).data
        for start in range(0, len(view), BLOCK):
            block = view[start : start + BLOCK]
            if file.readinto(block) != len(block):  # pyright: ignore[reportAttributeAccessIssue]
                raise ArtifactError(f"{path} became shorter while it was read")
            checksum = zlib.crc32(block, checksum)
        arrays[name] = array
    if f"{checksum:08x}" != expected:
        raise ArtifactError(f"{path} is damaged: its checksum is {checksum:08x}, the header says {expected[:8]}")
    return {name: arrays[name] for name in header.entries}
