"""The formats of data files, read without trusting a byte: idx, the CIFAR binary format, `.npz`, gzip; the digits.

idx (MNIST): two zeros, a type, the number of axes, their sizes as big-endian 32-bit integers, then the values. Images
and labels are unsigned bytes, type 8, with three axes and one. CIFAR: records of label bytes and a 32 × 32 image in
three planes, red, green, blue; CIFAR-10 has one label byte, CIFAR-100 two, the coarse class (of 20) and the fine one
(of 100). `.npz`: four plain arrays. Every size is checked against what is there before memory is set aside, and
nothing is ever unpickled, so that a hostile file costs an error message and no more.
"""

import math
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np

from ..errors import ArtifactError, DataError, first_line
from ..files import open_file
from .dataset import quotas

UNSIGNED_BYTE = 8
SIDE, CHANNELS = 32, 3
PIXELS = CHANNELS * SIDE * SIDE
ARRAYS = ("x_train", "y_train", "x_test", "y_test")
LARGEST = 8 << 30  # bytes of the four arrays of an .npz together; ImageNet at 32 × 32 has 4
GZIP = b"\x1f\x8b"  # neither idx (zeros) nor CIFAR binary (a class below 20) starts like this
DIGITS_TOP = 16  # the brightest pixel
DIGITS_TEST = 360


def parse_idx(content: bytes, axes: int, name: str) -> np.ndarray:
    """Returns the bytes of an idx file as an array with so many axes, without copying them.

    Args:
        content: the decompressed file.
        axes: 3 for images, 1 for labels.
        name: the file, for messages.

    Raises:
        DataError: the header is not that of an idx file of bytes, or its sizes and the content disagree.

    Example:
        >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]), 1, "labels").tolist()
        [7, 9]
    """
    if len(content) < 4 or content[:2] != b"\0\0":
        raise DataError(f"{name} is not an idx file: it should start with two zero bytes")
    if content[2] != UNSIGNED_BYTE:
        raise DataError(f"{name}: idx type {content[2]:#04x}, expected unsigned bytes (0x08)")
    if content[3] != axes:
        raise DataError(f"{name}: {content[3]} axes, expected {axes}; are images and labels swapped?")
    start = 4 + 4 * axes
    if len(content) < start:
        raise DataError(f"{name} is truncated: {len(content)} bytes, its header alone has {start}")
    shape = struct.unpack(f">{axes}I", content[4:start])
    if math.prod(shape) != len(content) - start:
        raise DataError(
            f"{name} declares shape {shape}, {math.prod(shape):,} bytes, but holds {len(content) - start:,}"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def parse_cifar(content: bytes, classes: int, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns images `(n, 3, 32, 32)` and fine labels `(n,)` as views of the content.

    Args:
        content: the decompressed file.
        classes: 10 or 100; tells how many label bytes a record has.
        name: the file, for messages.

    Raises:
        DataError: the content is not a whole number of records, or a label is out of range.

    Example:
        >>> images, labels = parse_cifar(bytes([3]) + bytes(3072), 10, "batch")
        >>> images.shape, labels.tolist()
        ((1, 3, 32, 32), [3])
    """
    label_bytes = 2 if classes == 100 else 1
    length = label_bytes + PIXELS
    if not content or len(content) % length:
        raise DataError(f"{name}: {len(content):,} bytes are not a whole number of records of {length:,}")
    records = np.frombuffer(content, np.uint8).reshape(-1, length)
    labels = records[:, label_bytes - 1]
    if labels.max() >= classes:
        raise DataError(
            f"{name}: record {int(labels.argmax())} has label {labels.max()}, expected 0 to {classes - 1}"
        )
    return records[:, label_bytes:].reshape(-1, CHANNELS, SIDE, SIDE), labels


def read_npz(
    path: Path | str, largest: int = LARGEST, names: tuple[str, ...] | None = ARRAYS
) -> dict[str, np.ndarray]:
    """Returns arrays of an `.npz` file, by default x_train, y_train, x_test and y_test; others are left unread.

    Where an input is several arrays, the file has `x_train/ids` and `x_train/mask`, say, in place of `x_train`.

    Args:
        path: the file, as `numpy.savez` or `savez_compressed` writes it.
        largest: refuse a file whose arrays declare more bytes than this.
        names: of the arrays; None for all that are there.

    Raises:
        DataError: the file is absent, damaged, too large, lacks an array, or holds Python objects.
    """
    with _open_npz(path, largest, names) as (archive, members):
        return {name: _read(archive, member, f"{path}: {name}") for name, member in members.items()}


def npz_shapes(path: Path | str) -> dict[str, tuple[int, ...]]:
    """Returns the shapes that the arrays of an `.npz` file declare, unread: a few kilobytes unpack to gigabytes.

    Raises:
        DataError: as `read_npz`.
    """
    with _open_npz(path, LARGEST, None) as (archive, members):
        return {name: _declared(archive, member, f"{path}: {name}")[0] for name, member in members.items()}


@contextmanager
def _open_npz(
    path: Path | str, largest: int, names: tuple[str, ...] | None
) -> Iterator[tuple[zipfile.ZipFile, dict[str, zipfile.ZipInfo]]]:
    """The archive and those of its members; whatever is wrong with it becomes a `DataError`."""
    try:
        with open_file(path) as file, zipfile.ZipFile(file) as archive:
            members = _members(archive, path, names)
            total = sum(member.file_size for member in members.values())
            if total > largest:
                raise DataError(f"{path} declares {total:,} bytes of arrays, more than the {largest:,} allowed")
            yield archive, members
    except DataError:
        raise
    except ArtifactError as error:
        raise DataError(str(error)) from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None
    except MemoryError:
        raise DataError(f"{path} needs more memory than there is") from None
    except Exception as error:  # zipfile, zlib, struct, ast and tokenize each raise their own on broken bytes
        raise DataError(f"{path} is not a whole .npz file: {first_line(error, 200)}") from None


def gunzip(content: bytes, path: Path, limit: int) -> bytes:
    """Returns the content, unzipped where it is gzip; at most `limit` bytes are ever made of it."""
    if not content.startswith(GZIP):
        return content
    parts, room = [], limit
    while content:
        machine = zlib.decompressobj(wbits=31)
        try:
            part = machine.decompress(content, room + 1)
        except zlib.error as error:
            raise DataError(f"{path} is corrupted: its gzip stream is broken ({error}); get it again") from None
        parts.append(part)
        room -= len(part)
        if room < 0:
            raise DataError(f"{path} unpacks to more than {limit:,} bytes, so it is no file of a known data set")
        if not machine.eof:
            done = limit - room
            raise DataError(f"{path} is truncated: its gzip stream stops after {done:,} bytes; get it again")
        content = machine.unused_data.lstrip(b"\0")  # several members are one file, and zeros may pad it
    return parts[0] if len(parts) == 1 else b"".join(parts)


def read_digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns training images and labels, test images and labels; images are bytes `(n, 1, 8, 8)`.

    scikit-learn carries 1,797 digits of 43 people (Alpaydin and Kaynak 1998, the test part), pixels 0 to 16. The
    authors' own training part is not among them, so the split is ours and fixed: 360 test digits, in the shares of
    the classes, drawn with numpy's frozen generator `RandomState(0)`; the other 1,437 are for training.

    Example:
        >>> [part.shape for part in read_digits()]
        [(1437, 1, 8, 8), (1437,), (360, 1, 8, 8), (360,)]
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise DataError("the digits come with scikit-learn: pip install scikit-learn") from None
    pixels, labels = load_digits(return_X_y=True)
    images = np.asarray(pixels).astype(np.uint8).reshape(-1, 1, 8, 8)
    labels = np.asarray(labels)
    test, random = np.zeros(len(labels), bool), np.random.RandomState(0)
    for label, quota in enumerate(quotas(np.bincount(labels), DIGITS_TEST)):
        test[random.permutation(np.flatnonzero(labels == label))[:quota]] = True
    return images[~test], labels[~test], images[test], labels[test]


def _members(archive: zipfile.ZipFile, path: Path | str, names: tuple[str, ...] | None) -> dict[str, zipfile.ZipInfo]:
    there = [member.filename.removesuffix(".npy") for member in archive.infolist()]
    wanted = there if names is None else [part for name in names for part in _parts(name, there)]
    for name in wanted:
        if name not in there:
            held = ", ".join(other if other.isprintable() else repr(other) for other in there[:8])
            raise DataError(f"{path} has no array '{name}'; it holds {held[:200] or 'nothing'}")
        if there.count(name) > 1:
            raise DataError(f"{path} has '{name}' {there.count(name)} times")
    return {name: archive.infolist()[there.index(name)] for name in wanted}


def _parts(name: str, there: list[str]) -> list[str]:
    """The arrays that an input is made of: one of its name, else all of the folder of that name."""
    return [name] if name in there else sorted(part for part in there if part.startswith(f"{name}/")) or [name]


def _declared(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and type of an array, which agree with the size of its file."""
    with archive.open(member) as stream:
        shape, dtype = _header(stream, name)
        declared, there = math.prod(shape) * dtype.itemsize, member.file_size - stream.tell()
    if min(shape, default=0) < 0 or declared != there:
        raise DataError(f"{name} declares shape {shape} of {dtype}, {declared:,} bytes, but holds {there:,}")
    return shape, dtype


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> np.ndarray:
    _declared(archive, member, name)
    with archive.open(member) as stream:
        array = np.lib.format.read_array(stream, allow_pickle=False)
        stream.read(1)  # past the end, where the archive's checksum is compared
    return array


def _header(stream: IO[bytes], name: str) -> tuple[tuple[int, ...], np.dtype]:
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):  # 3 is for field names beyond ASCII, which no plain array has
        raise DataError(f"{name} is in npy version {version}; save plain arrays with numpy.savez")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    if dtype.hasobject:
        raise DataError(f"{name} holds Python objects, which are never loaded; save an array of numbers")
    if dtype.fields is not None or dtype.subdtype is not None:
        raise DataError(f"{name} is a table with fields; save an array of numbers")
    return shape, dtype
