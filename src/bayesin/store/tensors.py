"""Checked safetensors files: named arrays and a few strings, written whole, read with suspicion.

The layout is that of safetensors: eight bytes with the length of a JSON header, the header, the arrays. The
`safetensors` library reads it, and refuses offsets that overlap, leave gaps or do not fit shape, type or file
before memory is taken. Around it stand the checks that it does not make: a bounded header, names that stand
once and can be printed, types and axes that numpy has, and a CRC-32 of the whole file (its own eight digits
taken as zeros) in the header, so that a flipped bit is an error and never another posterior.
"""

import math
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import jax
import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from ..errors import ArtifactError, first_line
from ..file_arrays import FileArray, SteadyFile
from ..files import open_file, write_with
from ..json_files import json_text, parse_json

CODES = {
    code: np.dtype(dtype)
    for code, dtype in {
        "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": ml_dtypes.bfloat16, "I64": "<i8", "I32": "<i4",
        "I16": "<i2", "I8": "i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?",
    }.items()
}  # fmt: skip
CODE_OF = {dtype: code for code, dtype in CODES.items()}
HEADER_LIMIT = 16 << 20  # bytes; a network of 50,000 tensors needs 5 MiB
BLOCK = 16 << 20  # bytes written or checked at a time
LONGEST_NAME = 1024
MOST_AXES = 32  # what every numpy can hold
LONGEST_AXIS = 1 << 48  # entries; even where another axis has none, numpy counts them
NO_CHECKSUM = "00000000"

_HEADER = {"__metadata__?": {str: str}, str: {"dtype": str, "shape": [int], "data_offsets": [int]}}


class Entry(NamedTuple):
    """Type and shape of one array."""

    dtype: np.dtype
    shape: tuple[int, ...]


class Header(NamedTuple):
    """What a file says of itself."""

    entries: dict[str, Entry]
    metadata: dict[str, str]
    raw: bytes  # length, header and padding, as they stand in the file


def write_tensors(
    path: Path | str, tensors: Mapping[str, np.ndarray | jax.Array], metadata: Mapping[str, str]
) -> Path:
    """Writes arrays and strings as one safetensors file, atomically; arrays may live on any device."""
    entries = _lay_out(tensors)
    raw = _header_bytes(entries, metadata)

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
    with _opened(path) as (header, opened, _):
        arrays = dict(_checked(path, header, opened))
    return {name: arrays[name] for name in header.entries}, header.metadata


def open_tensors(path: Path | str) -> tuple[dict[str, FileArray], dict[str, str]]:
    """The same for files larger than memory: the file is checked a tensor at a time, then read where it is used.

    Where somebody changes the file while the arrays are in use, whatever reads them next raises `ArtifactError`;
    replacing it, as `write_tensors` does, leaves them what they were.
    """
    with _opened(path) as (header, opened, file):
        steady = SteadyFile(path, file)
        order = [name for name, _ in _checked(path, header, opened)]
        steady.check()
    arrays, at = {}, len(header.raw)
    for name in order:
        arrays[name] = FileArray(steady, at, *header.entries[name])
        at += arrays[name].nbytes
    return {name: arrays[name] for name in header.entries}, header.metadata


def read_header(path: Path | str) -> Header:
    """Reads names, shapes and strings without the arrays; their checksum is not verified."""
    with _opened(path) as (header, _, _):
        return header


def library_open(path: Path | str, file: BinaryIO) -> Any:
    """What the safetensors library has of an open file: the same file where another has taken its name meanwhile.

    It reads without mmap, under which a file that became shorter would end the process.
    """
    same = f"/dev/fd/{file.fileno()}"
    return safe_open(same if os.path.exists(same) else path, "np", backend="pread")


def _checked(path: Path | str, header: Header, opened: Any) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays, one after another; raises after the last one where the checksum is not that of the header."""
    expected = header.metadata.get("checksum", "")
    place = _checksum_place(header.raw, expected)
    if len(expected) != 8 or place < 0:
        raise ArtifactError(f"{path} has no checksum; it is damaged or was not written by bayesin")
    checksum = zlib.crc32(header.raw[:place] + NO_CHECKSUM.encode() + header.raw[place + 8 :])
    for name in opened.offset_keys():  # in the order of the file, of which they cover every byte
        array = opened.get_tensor(name)
        for block in _blocks(array):
            checksum = zlib.crc32(block, checksum)
        yield name, array
    if f"{checksum:08x}" != expected:
        raise ArtifactError(f"{path} is damaged: its checksum is {checksum:08x}, the header says {expected[:8]}")


@contextmanager
def _opened(path: Path | str) -> Iterator[tuple[Header, Any, BinaryIO]]:
    """The checked header of a file, the file as the library has it open, and as the system has."""
    with open_file(path) as file:
        try:
            header = _read_header(path, file)
            with library_open(path, file) as opened:
                yield header, opened, file
        except OSError as error:
            raise ArtifactError(f"cannot read {path}: {error.strerror or error}") from None
        except ArtifactError:
            raise
        except (SafetensorError, ValueError, OverflowError) as error:
            reason = first_line(error)
            if "not fully covered" in reason:  # the library's word for a file of another size than the header's
                reason = "it is cut off, or longer than its header says"
            raise ArtifactError(f"{path} is damaged: {reason}") from None
        except MemoryError:
            raise ArtifactError(f"{path} needs more memory than there is") from None


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
    content = parse_json(text, f"the header of {path}", _HEADER)
    metadata = content.pop("__metadata__", {})
    entries = {}
    for name, entry in content.items():
        if not _is_name(name):
            raise ArtifactError(f"{path}: no array can have the name {name[:80]!r}")
        if entry["dtype"] not in CODES:
            raise ArtifactError(f"{path}: '{name}' has type {entry['dtype'][:40]!r}; known are {', '.join(CODES)}")
        shape = tuple(entry["shape"])
        if len(shape) > MOST_AXES or not all(0 <= length < LONGEST_AXIS for length in shape):
            raise ArtifactError(f"{path}: '{name}' has no usable shape")
        entries[name] = Entry(CODES[entry["dtype"]], shape)
    return Header(entries, metadata, prefix + text)


def _is_name(name: str) -> bool:
    """Whether a name may stand in a file, and so in a message on a terminal."""
    return len(name) <= LONGEST_NAME and name.isprintable()


# The library's writer takes all arrays at once instead of one after the other, and puts the strings in another order
# each time: with ours the same posterior gives the same bytes.


def _lay_out(tensors: Mapping[str, np.ndarray | jax.Array]) -> dict[str, Entry]:
    entries = {}
    for name, array in tensors.items():
        dtype, shape = np.dtype(array.dtype).newbyteorder("<"), tuple(array.shape)
        if not _is_name(name):
            raise ArtifactError(f"{name[:80]!r} cannot name an array: at most {LONGEST_NAME} printable characters")
        if dtype not in CODE_OF:
            raise ArtifactError(f"'{name}' holds {dtype}, which safetensors files cannot; convert it first")
        if len(shape) > MOST_AXES:
            raise ArtifactError(f"'{name}' has {len(shape)} axes, of which files hold {MOST_AXES}; reshape it first")
        entries[name] = Entry(dtype, shape)
    # Wide types first, as safetensors itself does, so that every array is aligned to its type.
    return dict(sorted(entries.items(), key=lambda item: (-item[1].dtype.itemsize, item[0])))


def _header_bytes(entries: dict[str, Entry], metadata: Mapping[str, str]) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"checksum": NO_CHECKSUM, **metadata}}
    end = 0
    for name, (dtype, shape) in entries.items():
        start, end = end, end + math.prod(shape) * dtype.itemsize
        header[name] = {"dtype": CODE_OF[dtype], "shape": list(shape), "data_offsets": [start, end]}
    text = json_text(header, compact=True).encode()
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
