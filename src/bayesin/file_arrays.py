"""Arrays that stay in their file and are read whenever they are used, for what is larger than memory.

A map of the file would be less to write down, but where somebody shortens a mapped file the system ends the process,
and where somebody writes into it the numbers become others without a word. So every use is a read, after which the
file must still be as it was when it was opened. Another file that takes its name does no harm: this one stays open.
"""

import math
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from .errors import ArtifactError

View = Callable[[np.ndarray], np.ndarray]


class SteadyFile:
    """An open file that must not change: whoever reads is told by name where it did."""

    def __init__(self, path: Path | str, file: BinaryIO):
        self._path, self._descriptor = path, os.dup(file.fileno())
        weakref.finalize(self, os.close, self._descriptor)
        self._known = self._look()

    def check(self) -> None:
        """Raises `ArtifactError` where the file is not what it was when it was opened."""
        if self._look() != self._known:
            raise ArtifactError(f"{self._path} was changed while it was read; run the same command again")

    def array(self, at: int, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        """Reads an array that stands at this place."""
        array = np.empty(shape, dtype)
        left = array.reshape(-1).view(np.uint8).data
        try:
            while left:
                count = os.preadv(self._descriptor, [left], at)
                if not count:
                    break
                left, at = left[count:], at + count
        except OSError as error:
            raise ArtifactError(f"cannot read {self._path}: {error.strerror or error}") from None
        self.check()  # afterwards: what was read before anything changed is what was wanted
        if left:
            raise ArtifactError(f"{self._path} is cut off")
        return array

    def _look(self) -> tuple[int, int]:
        about = os.fstat(self._descriptor)
        return about.st_size, about.st_mtime_ns


class FileArray(np.lib.mixins.NDArrayOperatorsMixin):
    """One array in a file, with shape and type at hand; whatever else is asked of it reads it anew.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryFile() as file:
        ...     _ = file.write(np.arange(6, dtype="<f4").tobytes())
        ...     file.flush()
        ...     array = FileArray(SteadyFile("numbers", file), 0, np.dtype("<f4"), (3, 2))
        >>> array.reshape((2, 3)).shape, array[1:].tolist(), float(np.sum(2 * array))
        ((2, 3), [[2.0, 3.0], [4.0, 5.0]], 30.0)
    """

    def __init__(
        self, file: SteadyFile, at: int, dtype: np.dtype, shape: tuple[int, ...], seen: tuple[View, ...] = ()
    ):
        self.dtype, self.shape = dtype, shape
        self._file, self._at, self._stored, self._seen = file, at, shape, seen

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all entries."""
        return self.size * self.dtype.itemsize

    def seen_as(self, view: View, shape: tuple[int, ...]) -> "FileArray":
        """The same array behind a view, which is taken each time that it is read."""
        found = FileArray(self._file, self._at, self.dtype, self._stored, (*self._seen, view))
        found.shape = shape
        return found

    def reshape(self, *shape: Any) -> "FileArray":
        """The same numbers in another shape, without a look at them."""
        wanted = np.broadcast_to(np.zeros((), bool), self.shape).reshape(*shape).shape  # takes no memory
        if self._seen:
            return self.seen_as(lambda array: array.reshape(wanted), wanted)
        return FileArray(self._file, self._at, self.dtype, wanted)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self._file.array(self._at, self.dtype, self._stored)
        for view in self._seen:
            array = view(array)
        return array if dtype is None else array.astype(dtype, copy=False)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return getattr(ufunc, method)(*(np.asarray(x) if isinstance(x, FileArray) else x for x in inputs), **options)

    def __getitem__(self, index: Any) -> np.ndarray:
        first, *rest = index if isinstance(index, tuple) else (index,)
        if self._seen or not self.shape or not isinstance(first, slice) or first.step not in (None, 1):
            return np.asarray(self)[index]
        start, stop, _ = first.indices(self.shape[0])  # rows one behind the other, which can be read alone
        each = math.prod(self.shape[1:])
        shape = (max(0, stop - start), *self.shape[1:])
        rows = self._file.array(self._at + start * each * self.dtype.itemsize, self.dtype, shape)
        return rows[(slice(None), *rest)]

    def __len__(self) -> int:
        return len(np.broadcast_to(0, self.shape))

    def __getattr__(self, name: str) -> Any:
        # Methods of numpy's arrays. Not what begins with an underscore: many libraries ask for such names, and would
        # read the file for it.
        if name.startswith("_") or not hasattr(np.ndarray, name):
            raise AttributeError(f"a FileArray has no '{name}'")
        return getattr(np.asarray(self), name)

    def __repr__(self) -> str:
        return f"FileArray({self.dtype.name}{list(self.shape)})"


def on_host(leaf: Any) -> Any:
    """The leaf as numpy has it; one that lies in a file stays there."""
    return leaf if isinstance(leaf, FileArray) else np.asarray(leaf)
