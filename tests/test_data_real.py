"""The real data sets, where this machine has them: published statistics, labels and real mix-ups."""

import gzip
import shutil
from pathlib import Path

import numpy as np
import pytest

from bayesin.data import SOURCES, check, load, locate
from bayesin.errors import DataError

# Mean and standard deviation of the training pixels, as every tutorial of the field quotes them.
PUBLISHED = {
    "mnist": ([0.1307], [0.3081]),
    "fashion-mnist": ([0.2860], [0.3530]),
    "cifar10": ([0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]),
    "cifar100": ([0.5071, 0.4865, 0.4409], [0.2673, 0.2564, 0.2762]),
}
FIRST_LABELS = {
    "mnist": ([5, 0, 4, 1, 9, 2], [7, 2, 1, 0, 4, 1]),
    "fashion-mnist": ([9, 0, 0, 3, 0, 2], [9, 2, 1, 1, 6, 1]),
    "cifar10": ([6, 9, 9, 4, 1, 1], [3, 8, 8, 0, 6, 6]),
    "cifar100": ([19, 29, 0, 11, 1, 86], [49, 33, 72, 51, 71, 92]),
}


@pytest.mark.parametrize("name", SOURCES)
def test_published_statistics_and_labels(real, name):
    root = real(name)
    data = load(name, root)
    source = SOURCES[name]
    count = 60_000 if source.reader == "idx" else 50_000
    assert data.x_train.shape == (count, *source.shape) and data.x_test.shape == (10_000, *source.shape)
    assert data.x_train.dtype == data.x_test.dtype == np.float32 and data.y_train.dtype == np.int32
    mean, std = PUBLISHED[name]
    np.testing.assert_allclose(data.mean, mean, atol=6e-5)
    np.testing.assert_allclose(data.std, std, atol=6e-5)
    np.testing.assert_allclose(data.x_train[::50].mean((0, 1, 2)), 0, atol=0.1)
    assert data.y_train[:6].tolist() == FIRST_LABELS[name][0]
    assert data.y_test[:6].tolist() == FIRST_LABELS[name][1]
    assert data.classes == source.classes == len(np.unique(data.y_train)) == len(np.unique(data.y_test))


def test_pixels_of_one_image_read_by_hand(real):
    root = real("cifar10")
    found = locate(SOURCES["cifar10"], root)
    with open(found.paths["data_batch_3.bin"], "rb") as file:
        file.seek(77 * 3073)
        record = file.read(3073)
    data = load("cifar10", root, normalise="unit")
    image = np.array([[[record[1 + c * 1024 + r * 32 + k] for c in range(3)] for k in range(32)] for r in range(32)])
    np.testing.assert_array_equal(data.x_train[20_077], image.astype(np.float32) / np.float32(255))
    assert data.y_train[20_077] == record[0]


def test_a_limit_keeps_shares_and_is_part_of_the_whole(real):
    root = real("mnist")
    whole, few = load("mnist", root), load("mnist", root, limit=600)
    shares = np.bincount(whole.y_train) / 100
    assert np.abs(np.bincount(few.y_train) - shares).max() < 1.5
    assert len(few) == len(few.x_test) == 600
    np.testing.assert_array_equal(few.mean, whole.mean)
    rows = {row.tobytes() for row in whole.x_train}
    assert all(row.tobytes() in rows for row in few.x_train)


def copy(source_name: str, root: Path, target: Path) -> Path:
    target.mkdir()
    for path in locate(SOURCES[source_name], root).paths.values():
        shutil.copy(path, target / path.name)
    return target


def test_fashion_in_the_place_of_mnist_is_told(real, tmp_path):
    mnist, fashion = real("mnist"), real("fashion-mnist")
    folder = copy("mnist", mnist, tmp_path / "mnist")
    name = "t10k-labels-idx1-ubyte.gz"
    shutil.copy(locate(SOURCES["fashion-mnist"], fashion).paths[name.removesuffix(".gz")], folder / name)
    with pytest.raises(
        DataError, match=f"{name} is swapped: it holds the test labels of Fashion-MNIST, not .* MNIST"
    ):
        load("mnist", tmp_path)
    with pytest.raises(
        DataError, match=r"is swapped: it holds the training images of MNIST, not .* of Fashion-MNIST"
    ):
        load("fashion-mnist", folder)


def test_a_recompressed_and_a_cut_mnist(real, tmp_path):
    folder = copy("mnist", real("mnist"), tmp_path / "mnist")
    path = folder / "t10k-images-idx3-ubyte.gz"
    content = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(content, 1))
    check("mnist", tmp_path)
    path.write_bytes(gzip.compress(content[:-784], 1))
    with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte.gz is truncated: 7,839,232 of the 7,840,016 bytes"):
        load("mnist", tmp_path)
