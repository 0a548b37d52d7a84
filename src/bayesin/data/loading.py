"""`load`: a data set by name, found, checked, normalised."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from ..errors import DataError
from ..trees import unflatten
from .arrays import from_arrays, normalised
from .dataset import Dataset, Normalise, check_normalise
from .folders import Found, locate, read_checked, searched
from .formats import DIGITS_TOP, parse_cifar, parse_idx, read_digits, read_npz
from .normalise import in_threads
from .sources import DIGITS, Source, content_of_arrays, content_of_source, is_data_file, source_of


def load(
    name: str | Path,
    root: str | Path | None = None,
    limit: int | None = None,
    *,
    normalise: Normalise = "standard",
) -> Dataset:
    """Returns a data set, normalised with the statistics of its training set.

    Args:
        name: `digits`, `mnist`, `fashion-mnist`, `cifar10`, `cifar100` (fine labels), or the path of an
            `.npz` file with x_train, y_train, x_test and y_test (see `from_arrays`); `x_train/ids` and
            `x_train/mask`, say, are one dict of inputs.
        root: folder to search first; then `$BAYESIN_DATA`, `./data`, the user's cache and system packages.
        limit: keep so many training and so many test examples, in the shares of the classes, always the
            same ones. The statistics stay those of the whole training set.
        normalise: `"standard"` makes each channel of the training set mean 0 and standard deviation 1;
            `"unit"` only divides pixels by their largest value.

    Raises:
        DataError: no such data set, files missing, or a file that is not what it should be.
        ConfigError: an option has no meaning.

    Example:
        >>> load("digits", limit=100)
        Dataset('digits', 100 training and 100 test examples of shape (8, 8, 1), 10 classes)
    """
    check_normalise(normalise)
    text = os.fspath(name)
    if is_data_file(text):
        path = data_file(text, root)
        arrays = read_npz(path)
        parts = cast(dict[str, Any], unflatten(arrays))
        data = from_arrays(**parts, name=path.stem, limit=limit, normalise=normalise)
        return replace(data, read_from=content_of_arrays(arrays.values()))
    if text == "digits":
        parts = read_digits()
        if content_of_arrays(parts) != DIGITS:
            raise DataError("scikit-learn's digits are not those of this version; reinstall scikit-learn")
        data = normalised(parts, name=text, classes=10, limit=limit, normalise=normalise, top=DIGITS_TOP)
        return replace(data, read_from=DIGITS)
    if os.sep in text and not text.endswith(os.sep):
        raise DataError(f"'{text}' is neither a data set nor an .npz file; other formats are not read")
    source = source_of(text)
    parts = read_files(source, root)
    data = normalised(parts, name=source.name, classes=source.classes, limit=limit, normalise=normalise)
    return replace(data, read_from=content_of_source(source))


def data_file(name: str | Path, root: str | Path | None = None) -> Path:
    """The file that a data set is named by: as it is named, else below `root`."""
    return Path(root, name) if root is not None and not os.path.isfile(name) else Path(name)


def read_files(
    source: Source, root: str | Path | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns the checked training images and labels, test images and labels, as bytes `(n, c, h, w)`."""
    found = find(source, root)
    contents = in_threads(lambda file: read_checked(found.paths[file.name], source, file), source.files)
    names = [str(found.paths[file.name]) for file in source.files]
    if source.reader == "idx":
        x_train, y_train, x_test, y_test = (
            parse_idx(content, axes, name) for content, axes, name in zip(contents, (3, 1, 3, 1), names, strict=True)
        )
        return x_train[:, None], y_train, x_test[:, None], y_test
    batches = [parse_cifar(content, source.classes, name) for content, name in zip(contents, names, strict=True)]
    *training, (x_test, y_test) = batches
    (x_train, y_train), *more = training
    if more:  # one batch alone stays a view of its file
        x_train, y_train = (np.concatenate(parts) for parts in zip(*training, strict=True))
    return x_train, y_train, x_test, y_test


def find(source: Source, root: str | Path | None = None) -> Found:
    """Returns where all files of a data set are, or raises `DataError` with what to do."""
    found = locate(source, root)
    if found is None:
        places = ", ".join(str(place) for place in searched(source, root))
        raise DataError(
            f"{source.title} is not on this machine (searched {places}); 'bayesin data fetch {source.name}' gets it"
        )
    if missing := found.missing(source):
        raise DataError(
            f"{found.folder} lacks {', '.join(missing)} of {source.title}; "
            f"'bayesin data fetch {source.name}' completes it"
        )
    return found


def check(name: str | Source, root: str | Path | None = None) -> Found:
    """Returns where a data set is after comparing every file with the published one.

    Raises:
        DataError: a file is absent or not what it should be; the message names it and says what is wrong.
    """
    source = name if isinstance(name, Source) else source_of(name)
    found = find(source, root)
    in_threads(lambda file: len(read_checked(found.paths[file.name], source, file)), source.files)
    return found
