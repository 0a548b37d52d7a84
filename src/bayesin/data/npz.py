"""The `.npz` file of one's own data: four plain arrays, read without trusting a byte of it.

Every size is checked against what the archive declares before memory is set aside, and nothing is ever
unpickled, so that a hostile file costs an error message and no more.
"""

import math
import zipfile
from pathlib import Path
from typing import IO

import numpy as np

from ..errors import DataError

ARRAYS = ("x_train", "y_train", "x_test", "y_test")
LARGEST = 8 << 30  # bytes of the four arrays together; ImageNet at 32 × 32 has 4


def read_npz(path: Path | str, largest: int = LARGEST) -> dict[str, np.ndarray]:
    """Returns the arrays x_train, y_train, x_test and y_test of an `.npz` file; others are left unread.

    Args:
        path: the file, as `numpy.savez` or `savez_compressed` writes it.
        largest: refuse a file whose four arrays declare more bytes than this.

    Raises:
        DataError: the file is absent, damaged, too large, lacks an array, or holds Python objects.
    """
    path = Path(path)
    if path.exists() and not path.is_file():  # a pipe would block, a device never end
        raise DataError(f"{path} is not a file")
    try:
        with zipfile.ZipFile(path) as archive:
            members = _members(archive, path)
            total = sum(member.file_size for member in members.values())
            if total > largest:
                raise DataError(f"{path} declares {total:,} bytes of arrays, more than the {largest:,} allowed")
            return {name: _read(archive, member, f"{path}: {name}") for name, member in members.items()}
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(f"there is no file {path}") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None
    except MemoryError:
        raise DataError(f"{path} needs more memory than there is") from None
    except Exception as error:  # zipfile, zlib, struct, ast and tokenize each raise their own on broken bytes
        raise DataError(f"{path} is not a whole .npz file: {_line(error)}") from None


def _members(archive: zipfile.ZipFile, path: Path) -> dict[str, zipfile.ZipInfo]:
    names = [member.filename.removesuffix(".npy") for member in archive.infolist()]
    for name in ARRAYS:
        if name not in names:
            held = ", ".join(one if one.isprintable() else repr(one) for one in names[:8])
            raise DataError(f"{path} has no array '{name}'; it holds {held[:200] or 'nothing'}")
        if names.count(name) > 1:
            raise DataError(f"{path} has '{name}' {names.count(name)} times")
    return {name: archive.infolist()[names.index(name)] for name in ARRAYS}


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> np.ndarray:
    with archive.open(member) as stream:
        shape, dtype = _header(stream, name)
        declared, there = math.prod(shape) * dtype.itemsize, member.file_size - stream.tell()
    if min(shape, default=0) < 0 or declared != there:
        raise DataError(f"{name} declares shape {shape} of {dtype}, {declared:,} bytes, but holds {there:,}")
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


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
