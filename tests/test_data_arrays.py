"""Data sets from arrays and .npz files, subsets, the embedded digits, and statistics against plain numpy."""

import io
import struct
import zipfile
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayesin.data import Dataset, from_arrays, load, normalise
from bayesin.data.dataset import stratified
from bayesin.data.formats import read_digits, read_npz
from bayesin.data.normalise import feature_statistics, pixel_statistics, pixels_to_floats
from bayesin.errors import ConfigError, DataError

X, Y = np.arange(12.0).reshape(6, 2), np.array([0, 1, 2, 0, 1, 2])


def arrays(**changes):
    return {"x_train": X, "y_train": Y, "x_test": X[:3], "y_test": Y[:3]} | changes


# -- the value ------------------------------------------------------------------------------------------------


def test_a_dataset_is_frozen_and_leaves_its_callers_arrays_alone():
    mine = np.zeros((4, 2), np.float32)
    data = Dataset(mine, [0, 1, 0, 1], mine[:2], [0, 1], classes=2)
    with pytest.raises(ValueError, match="read-only"):
        data.x_train[0] = 1
    with pytest.raises(AttributeError):
        data.name = "other"
    mine[0] = 1  # still the caller's
    assert data.y_train.dtype == np.int32 and data.input_shape == (2,) and len(data) == 4


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((np.zeros((4, 2)), [0, 1], np.zeros((2, 2)), [0, 1]), "x_train has shape"),
        ((np.zeros((2, 2)), [0, 1], np.zeros((2, 3)), [0, 1]), "a training example has shape"),
        ((np.zeros((2, 2)), [0, 1], np.zeros((0, 2)), []), "x_test is empty"),
        ((np.float32(0), [0, 1], np.zeros((2, 2)), [0, 1]), "x_train has shape"),
    ],
)
def test_a_dataset_whose_parts_do_not_fit_is_refused(parts, message):
    with pytest.raises(DataError, match=message):
        Dataset(*parts, classes=2)


# -- statistics and normalisation --------------------------------------------------------------------------------


@pytest.mark.parametrize("top", [16, 255])
def test_pixel_statistics_are_those_of_numpy(top):
    images = np.random.RandomState(0).randint(0, top + 1, (700, 3, 5, 4)).astype(np.uint8)
    mean, std = pixel_statistics(images, top)
    scaled = images.astype(np.float64) / top
    np.testing.assert_allclose(mean, scaled.mean((0, 2, 3)), rtol=1e-13)
    np.testing.assert_allclose(std, scaled.std((0, 2, 3)), rtol=1e-12)


def test_pixel_statistics_are_exact_where_floats_would_cancel():
    images = np.full((5000, 1, 8, 8), 200, np.uint8)
    images[0, 0, 0, 0] = 201
    mean, std = pixel_statistics(images)
    n = images.size
    exact = Fraction(200 * n + 1, 255 * n)
    variance = Fraction(n * (200**2 * n - 200**2 + 201**2) - (200 * n + 1) ** 2, (255 * n) ** 2)
    assert mean[0] == float(exact)
    assert std[0] == pytest.approx(float(variance) ** 0.5, rel=1e-15)


def test_floats_of_pixels_are_the_formula_in_float32():
    images = np.random.RandomState(0).randint(0, 256, (600, 3, 4, 2)).astype(np.uint8)
    mean, std = np.array([0.1, 0.2, 0.3]), np.array([0.5, 0.25, 0.3])
    floats = pixels_to_floats(images, mean, std)
    expected = images.astype(np.float32).transpose(0, 2, 3, 1) / np.float32(255)
    expected = (expected - mean.astype(np.float32)) / std.astype(np.float32)
    np.testing.assert_array_equal(floats, expected)
    assert floats.flags.c_contiguous


def test_feature_statistics_are_those_of_numpy_in_every_chunking(monkeypatch):
    x = np.random.RandomState(0).normal(1e6, 1e-2, (301, 2, 3)).astype(np.float64)
    for chunk_bytes in (1, 1000, 1 << 20):
        monkeypatch.setattr(normalise, "CHUNK_BYTES", chunk_bytes)
        mean, std = feature_statistics(x, "x")
        np.testing.assert_allclose(mean, x.mean((0, 1)), rtol=1e-13)
        np.testing.assert_allclose(std, x.std((0, 1)), rtol=1e-6)


def test_a_constant_feature_becomes_zero_and_not_noise():
    x = np.stack([np.full(1000, 0.1), np.arange(1000.0)], 1)
    data = from_arrays(x, np.arange(1000) % 2, x, np.arange(1000) % 2)
    assert np.abs(data.x_train[:, 0]).max() < 1e-12 and data.std[0] == 1
    assert data.x_train[:, 1].std() == pytest.approx(1, rel=1e-6)
    dark = np.zeros((4, 2, 2, 1), np.uint8)
    assert from_arrays(dark, [0, 1, 0, 1], dark, [0, 1, 0, 1]).x_train.max() == 0


def test_bytes_are_pixels_in_images_and_in_rows():
    images = np.random.RandomState(0).randint(0, 256, (6, 3, 2)).astype(np.uint8)
    as_images = from_arrays(**arrays(x_train=images, x_test=images[:3]), normalise="unit")
    assert as_images.input_shape == (3, 2, 1)
    np.testing.assert_array_equal(as_images.x_train[..., 0], images / np.float32(255))
    rows = images.reshape(6, 6)
    as_rows = from_arrays(**arrays(x_train=rows, x_test=rows[:3]), normalise="unit")
    np.testing.assert_array_equal(as_rows.x_train, rows / np.float32(255))
    colour = np.random.RandomState(0).randint(0, 256, (6, 3, 2, 3)).astype(np.uint8)
    standard = from_arrays(**arrays(x_train=colour, x_test=colour[:3]))
    np.testing.assert_allclose(standard.x_train.mean((0, 1, 2), dtype=np.float64), 0, atol=1e-6)
    np.testing.assert_allclose(standard.x_train.std((0, 1, 2), dtype=np.float64), 1, atol=1e-6)


# -- arrays that do not fit ---------------------------------------------------------------------------------------


def test_regression_and_classification_are_told_apart_by_type():
    assert from_arrays(**arrays()).classes == 3
    regression = from_arrays(**arrays(y_train=Y.astype(np.float64) / 2, y_test=Y[:3].astype(np.float16) / 2))
    assert regression.classes is None and regression.y_train.dtype == np.float32
    np.testing.assert_array_equal(regression.y_train, Y / 2)
    two = from_arrays(**arrays(y_train=X, y_test=X[:3]), limit=4)
    assert two.y_train.shape == (4, 2) and two.y_test.shape == (3, 2)
    assert from_arrays(**arrays(y_train=Y > 0, y_test=Y[:3] > 0)).classes == 2


NOT_A_NUMBER = X.copy()
NOT_A_NUMBER[4, 1] = np.nan


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x_train": NOT_A_NUMBER}, r"x_train holds nan at \[4, 1\]"),
        ({"x_test": np.where(X[:3] == 2, np.inf, X[:3])}, r"x_test holds inf at \[1, 0\]"),
        ({"x_train": X * 1e200}, "too large for a standard deviation"),
        ({"x_test": X[:3] * 1e60}, "in float32 holds inf"),
        ({"x_train": X[0]}, r"x_train has shape \(2,\)"),
        ({"x_train": X[:5]}, "x_train has 5 examples and y_train 6"),
        ({"x_test": X[:3, :1]}, r"x_train has examples of shape \(2,\), x_test of \(1,\)"),
        ({"x_test": X[:0], "y_test": Y[:0]}, "x_test is empty"),
        ({"x_train": X.astype(str)}, "x_train holds <U"),
        ({"x_train": X.astype(complex)}, "x_train holds complex"),
        ({"x_train": X.astype("datetime64[s]")}, "x_train holds datetime"),
        ({"y_train": Y.astype("timedelta64[s]"), "y_test": Y[:3]}, "y_train holds timedelta"),
        ({"x_train": np.ma.masked_array(X, X > 3)}, "x_train is a masked array"),
        ({"x_train": X * 1e-170, "x_test": X[:3] * 1e-170}, "differ by too little"),
        ({"x_train": X.astype(object)}, "x_train holds object"),
        ({"x_train": [[1.0], [2.0, 3.0]]}, "x_train is not an array"),
        ({"x_train": X.astype(np.uint8)}, "x_train holds .*, x_test float64"),
        ({"x_train": np.ones((6, 2, 2, 2, 2))}, "x_train has shape"),
        ({"y_train": 2 * np.eye(3, dtype=int)[Y]}, r"labels are \(n,\); take argmax"),
        ({"y_train": Y - 1}, "y_train holds the label -1"),
        ({"y_train": Y.astype(np.uint64) + np.uint64(2**63)}, "y_train holds the label 9223372036854775808"),
        ({"y_train": Y * 10**6}, "y_train holds the label 2000000"),
        ({"y_train": Y * 0, "y_test": Y[:3] * 0}, "every label is 0"),
        ({"y_test": Y[:3] + 1}, "y_test holds the label 3, y_train none above 2"),
        ({"y_test": Y[:3] * 1.0}, "labels in one of y_train and y_test"),
        ({"y_train": X, "y_test": X[:3, :1]}, "y_train has shape"),
        ({"y_train": np.full(6, np.nan), "y_test": np.zeros(3)}, r"y_train holds nan at \[0\]"),
        ({"y_train": np.full(6, 1e60), "y_test": np.zeros(3)}, "y_train, in float32 holds inf"),
        ({"y_train": None}, "y_train holds object"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_by_name(changes, message):
    with pytest.raises(DataError, match=message) as refusal:
        from_arrays(**arrays(**changes), name="mine")
    assert str(refusal.value).startswith("mine: ")


@pytest.mark.parametrize("limit", [0, -1, 1.5, "3", True, float("nan")])
def test_a_limit_must_be_a_positive_whole_number(limit):
    with pytest.raises(ConfigError, match="limit needs a positive whole number"):
        from_arrays(**arrays(), limit=limit)
    with pytest.raises(ConfigError, match="limit needs a positive whole number"):
        from_arrays(**arrays(y_train=Y * 0.5, y_test=Y[:3] * 0.5), limit=limit)


def test_other_options_are_refused():
    with pytest.raises(ConfigError, match="'standard', 'unit' or 'none'"):
        from_arrays(**arrays(), normalise="whiten")
    with pytest.raises(ConfigError, match="limit 2 is too small: the training set of arrays has 3 classes"):
        from_arrays(**arrays(), limit=2)
    with pytest.raises(ConfigError, match="the training set of digits has 10 classes"):
        load("digits", limit=9)


# -- subsets ------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 6), min_size=1, max_size=120), st.integers(1, 130))
@settings(max_examples=200, deadline=None)
def test_a_subset_keeps_order_and_shares(labels, limit):
    labels = np.array(labels)
    classes, counts = np.unique(labels, return_counts=True)
    if limit < len(classes) and limit < len(labels):
        with pytest.raises(ConfigError):
            stratified(labels, limit)
        return
    chosen = stratified(labels, limit)
    assert len(chosen) == min(limit, len(labels))
    assert (np.diff(chosen) > 0).all()
    taken = np.array([(labels[chosen] == c).sum() for c in classes])
    assert (taken >= 1).all() and (taken <= counts).all()
    if limit < len(labels):
        # largest remainders, in fractions: each class gets its share of the rest, rounded down or up
        rest = limit - len(classes)
        for count, got in zip(counts, taken, strict=True):
            share = Fraction(rest * (int(count) - 1), len(labels) - len(classes))
            assert abs(got - 1 - share) < 1
    np.testing.assert_array_equal(chosen, stratified(labels, limit))


def test_a_subset_is_spread_over_the_file():
    labels = np.zeros(1000, int)
    labels[::2] = 1
    chosen = stratified(labels, 10)
    assert chosen.min() < 120 and chosen.max() > 880
    assert np.diff(chosen).max() < 250


# -- digits ---------------------------------------------------------------------------------------------------------


def test_digits_are_split_once_and_for_all():
    from sklearn.datasets import load_digits

    x_train, _, x_test, y_test = read_digits()
    assert len(x_train) == 1437 and len(x_test) == 360
    whole = load_digits()
    together = np.concatenate([x_train, x_test])[:, 0].astype(float)
    assert sorted(map(bytes, together)) == sorted(map(bytes, whole.images))  # a partition: nothing lost or doubled
    share = np.bincount(y_test) / np.bincount(whole.target)
    assert np.abs(share - 360 / 1797).max() < 1 / 174  # within one digit of the share of every class
    # the split is part of every published number, so it must never move
    assert y_test[:12].tolist() == [3, 7, 3, 9, 0, 8, 7, 0, 8, 0, 3, 3]
    assert int((np.arange(360) * y_test).sum()) == 292_611


def test_digits_as_a_data_set():
    data = load("digits")
    assert data.x_train.shape == (1437, 8, 8, 1) and data.x_train.dtype == np.float32
    assert abs(float(data.x_train.mean(dtype=np.float64))) < 1e-6
    assert float(data.x_train.std(dtype=np.float64)) == pytest.approx(1, abs=1e-6)
    unit = load("digits", normalise="unit")
    assert unit.x_train.max() == 1 and unit.x_train.min() == 0
    np.testing.assert_allclose(unit.x_train, data.x_train * data.std + data.mean, atol=1e-6)
    small = load("digits", limit=100)
    assert np.bincount(small.y_train).tolist() == [10] * 10 and len(small.x_test) == 100


# -- .npz -----------------------------------------------------------------------------------------------------------


def archive(members: dict[str, bytes]) -> bytes:
    """An .npz with members as given: the good arrays, changed by `members`."""
    good = {f"{name}.npy": npy(np.asarray(array)) for name, array in arrays().items()}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in (good | members).items():
            file.writestr(name, content)
    return buffer.getvalue()


def npz(save=np.savez, **changes) -> bytes:
    buffer = io.BytesIO()
    save(buffer, **arrays(**changes))
    return buffer.getvalue()


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def header(shape: str, dtype: str = "<f8") -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def lying() -> bytes:
    """The central directory declares more than the compressed stream holds, and the header agrees with the lie."""
    lie = header("(100000000, 2)")
    true, false = len(lie) + X.nbytes, len(lie) + 100_000_000 * 16
    content = archive({"x_train.npy": lie + X.tobytes()})
    return content.replace(struct.pack("<I", true), struct.pack("<I", false))


def changed(content: bytes, place: int, value: int) -> bytes:
    return content[:place] + bytes([value]) + content[place + 1 :]


def without(*names: str) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **{name: array for name, array in arrays().items() if name not in names})
    return buffer.getvalue()


def doubled() -> bytes:
    buffer = io.BytesIO(npz())
    with zipfile.ZipFile(buffer, "a") as file:
        file.writestr("x_test.npy", b"")
    return buffer.getvalue()


class Explodes:
    def __reduce__(self):
        return (pytest.fail, ("unpickled",))


DIRECTORY = b"PK\x01\x02"
BAD_NPZ = {
    "empty": (lambda: b"", "is not a whole .npz file"),
    "two letters": (lambda: b"PK", "is not a whole .npz file"),
    "an .npy": (lambda: npy(X), "is not a whole .npz file"),
    "text": (lambda: b"text", "is not a whole .npz file"),
    "an array missing": (lambda: without("x_test", "y_test"), "has no array 'x_test'; it holds x_train, y_train"),
    "an array twice": (doubled, "has 'x_test' 2 times"),
    "objects": (lambda: npz(x_train=np.array([Explodes()], dtype=object)), "x_train holds Python objects"),
    "a pickle": (lambda: archive({"x_train.npy": b"\x80\x04N."}), "not a whole"),
    "a table": (lambda: npz(x_train=np.zeros(6, [("a", float), ("b", int)])), "x_train is a table"),
    "names beyond ASCII": (lambda: npz(x_train=np.zeros(6, [("Ω", float)])), r"npy version \(3, 0\)"),
    "sizes that lie": (lying, ""),
    "a flipped byte": (lambda: changed(npz(), npz().find(X.tobytes()) + 20, 255), "CRC"),
    "a password": (lambda: changed(npz(), npz().find(DIRECTORY) + 8, 1), ""),
    "an unknown method": (lambda: changed(npz(), npz().find(DIRECTORY) + 10, 99), ""),
} | {
    shape: (lambda shape=shape: archive({"x_train.npy": header(shape) + X.tobytes()}), "x_train declares shape")
    for shape in ("(1000000000000000, 2)", "(6, 3)", "(-6, -2)", "(6, 2, 0)", "()", f"({2**70},)")
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::UserWarning")  # numpy and zipfile find these files odd, too
@pytest.mark.parametrize("name", BAD_NPZ)
def test_npz_files_that_are_not_right_are_refused_by_name(tmp_path, name):
    make, message = BAD_NPZ[name]
    (tmp_path / "bad.npz").write_bytes(make())
    with pytest.raises(DataError, match=message) as refusal:
        load(tmp_path / "bad.npz")
    assert str(refusal.value).startswith(str(tmp_path / "bad.npz")) or "cannot read" in str(refusal.value)


def test_npz_that_is_absent_or_a_folder(tmp_path):
    with pytest.raises(DataError, match="No such file"):
        load(tmp_path / "none.npz")
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(DataError, match="is a folder, not a file"):
        load(tmp_path / "folder.npz")


def test_npz_gives_the_data_set_of_its_arrays(tmp_path):
    saved = tmp_path / "mine.npz"
    np.savez_compressed(saved, **arrays(), notes="left unread")
    for name in (saved, str(saved)):
        data = load(name, limit=3)
        np.testing.assert_array_equal(data.x_train, from_arrays(**arrays(), limit=3).x_train)
        assert data.name == "mine" and data.classes == 3
    assert load("mine.npz", root=tmp_path).name == "mine"
    saved.write_bytes(npz(x_train=np.asfortranarray(X), y_train=Y.astype(">i2")))
    np.testing.assert_array_equal(load(saved).x_train, from_arrays(**arrays()).x_train)


def test_npz_bombs_are_refused_by_their_declared_size(tmp_path):
    path = tmp_path / "bomb.npz"
    path.write_bytes(npz(np.savez_compressed, x_train=np.zeros((6, 1 << 20))))
    assert path.stat().st_size < 1 << 17
    with pytest.raises(DataError, match=r"declares 50,.* bytes of arrays, more than the 1,000,000 allowed"):
        read_npz(path, largest=1_000_000)


IMAGES = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3)).astype(np.uint8)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"x_train": IMAGES.astype(np.float32), "x_test": IMAGES[:3].astype(np.float32)},
            "up to 255 as float32: read",
        ),
        (
            {"x_train": np.moveaxis(IMAGES, -1, 1), "x_test": np.moveaxis(IMAGES, -1, 1)[:3]},
            "that is with 8 channels",
        ),
        ({"x_train": X.astype(int) % 7, "x_test": X[:3].astype(int) % 7}, "tokens stay whole with normalise='none'"),
        ({"y_train": np.eye(3, dtype=np.float32)[Y]}, "read as one-hot labels of 3 classes"),
        ({"y_train": np.eye(3, dtype=int)[Y]}, "read as one-hot labels of 3 classes"),
        ({"y_train": Y.astype(float), "y_test": Y[:3].astype(float)}, "as float64: read as targets of a regression"),
        ({"y_train": Y + 1, "y_test": Y[:3] + 1}, "labels count from 1"),
        ({"y_train": Y * 2, "y_test": Y[:3]}, "2 of 5 classes have no training example: 1, 3"),
    ],
)
def test_what_can_be_read_in_two_ways_is_met_with_one_warning(changes, message):
    given = {"x_train": X, "y_train": Y, "x_test": X[:3], "y_test": Y[:3]} | changes
    with pytest.warns(UserWarning, match=message) as seen:
        data = from_arrays(**given)
    assert len(seen) == 1
    column = from_arrays(X, Y[:, None], X[:3], Y[:3, None])  # labels as Keras has them
    assert np.array_equal(column.y_train, Y)
    if "one-hot" in message:
        assert data.classes == 3 and np.array_equal(data.y_train, Y)


def test_inputs_that_are_not_normalised_stay_what_they_are():
    tokens = np.arange(12, dtype=np.int64).reshape(6, 2)
    data = from_arrays(tokens, Y, tokens[:3], Y[:3], normalise="none")
    assert data.x_train.dtype == np.int32 and np.array_equal(data.x_train, tokens) and data.input_shape == (2,)
    both = {"ids": tokens, "mask": tokens > 3}
    data = from_arrays(both, Y, {name: part[:3] for name, part in both.items()}, Y[:3], normalise="none", limit=3)
    assert len(data) == 3 and data.input_shape == {"ids": (2,), "mask": (2,)}
    assert data.x_train["mask"].dtype == np.bool_ and data.x_train["ids"].shape == (3, 2)
    assert np.array_equal(data.transform(both)["ids"], tokens)
    with pytest.raises(DataError, match="x_train has 6 examples and y_train 5"):
        from_arrays(both, Y[:5], both, Y, normalise="none")
    with pytest.raises(DataError, match="a dict of inputs is taken as it is"):
        from_arrays(both, Y, both, Y)


@pytest.mark.parametrize("normalise", ["standard", "unit"])
def test_new_inputs_are_transformed_as_the_training_set_was(normalise):
    data = from_arrays(IMAGES, Y, IMAGES[:3], Y[:3], normalise=normalise)
    assert np.array_equal(data.transform(IMAGES[:2]), data.x_train[:2])
    rows = IMAGES.reshape(6, -1)
    assert np.allclose(
        (made := from_arrays(rows, Y, rows, Y, normalise=normalise)).transform(rows), made.x_train, atol=1e-5
    )
    made = from_arrays(X, Y, X[:3], Y[:3], normalise=normalise)
    assert np.allclose(made.transform(X), made.x_train, atol=1e-6)
    for wrong, message in ((IMAGES / 255, "whole pixels of 0 to 255"), (IMAGES[:, :4], "shape")):
        with pytest.raises(DataError, match=message):
            data.transform(wrong)
    with pytest.raises(DataError, match="bytes"):
        made.transform(X.astype(np.uint8))
