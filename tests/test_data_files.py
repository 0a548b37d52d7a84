"""Files found in the order of search, accepted by content, refused with what is wrong."""

import gzip
import struct

import numpy as np
import pytest

import bayesin.data.folders as folders_module
from bayesin.data import check, home, load, locate
from bayesin.data.folders import searched
from bayesin.data.formats import gunzip, parse_idx
from bayesin.data.loading import read_files
from bayesin.errors import BayesinError, DataError
from data_toys import CLASSES, cifar_contents, cifar_source, idx_contents, idx_source, squeeze, tarball, write_files

TRAIN, LABELS, TEST = "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte"


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    """No data but what a test writes: an empty cache, no $BAYESIN_DATA, an empty working folder."""
    monkeypatch.delenv("BAYESIN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


@pytest.fixture
def contents():
    return idx_contents()


@pytest.fixture
def source(contents):
    return idx_source(contents)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("below", ["toy/raw", "toy", "."])
def test_files_are_read_from_every_customary_place(tmp_path, contents, source, zipped, below):
    write_files(tmp_path / "root" / below, contents, zipped=zipped)
    x_train, y_train, x_test, y_test = read_files(source, tmp_path / "root")
    assert x_train.shape == (24, 1, 5, 3) and x_test.shape == (12, 1, 5, 3)
    # the oracle: the header cut off by hand
    assert x_train.tobytes() == contents[TRAIN][16:]
    assert y_train.tobytes() == contents[LABELS][8:]
    assert sorted(set(y_test.tolist())) == list(range(CLASSES))


def test_the_dotted_names_of_some_unpackers_are_found(tmp_path, contents, source):
    write_files(tmp_path / "toy", {n.replace("-idx", ".idx"): c for n, c in contents.items()}, zipped=False)
    assert read_files(source, tmp_path)[0].shape == (24, 1, 5, 3)


def test_cifar_records_become_planes_and_labels(tmp_path):
    contents = cifar_contents()
    source = cifar_source(contents, tarball(contents))
    write_files(tmp_path / "toy-batches-bin", contents, zipped=False)
    x_train, y_train, x_test, _ = read_files(source, tmp_path)
    assert x_train.shape == (12, 3, 32, 32) and x_test.shape == (6, 3, 32, 32)
    record = contents["data_batch_2.bin"][3073 * 4 : 3073 * 5]
    assert y_train[6 + 4] == record[0]
    assert x_train[6 + 4, 1, 2, 3] == record[1 + 1024 + 2 * 32 + 3]  # green, row 2, column 3


def test_order_of_search(tmp_path, monkeypatch, contents, source):
    places = [
        tmp_path / "root",
        tmp_path / "env",
        tmp_path / "work" / "data",
        tmp_path / "cache" / "bayesin" / "data",
    ]
    for place in places:
        write_files(place / "toy", contents)
    monkeypatch.setenv("BAYESIN_DATA", str(tmp_path / "env"))
    system = source._replace(system=(str(write_files(tmp_path / "system", contents)),))
    for number, place in enumerate(places):
        root = places[0] if number == 0 else None
        assert locate(system, root).folder.resolve() == place / "toy"
        for path in (place / "toy").iterdir():
            path.unlink()
    assert locate(system).folder == tmp_path / "system"
    assert len(searched(system, places[0])) == 5


def test_fetch_goes_to_root_then_the_environment_then_the_cache(tmp_path, monkeypatch):
    assert home(None) == tmp_path / "cache" / "bayesin" / "data"
    monkeypatch.setenv("BAYESIN_DATA", str(tmp_path / "env"))
    assert home(None) == tmp_path / "env"
    assert home(tmp_path) == tmp_path


def test_a_whole_copy_wins_over_a_part(tmp_path, monkeypatch, contents, source):
    write_files(tmp_path / "work" / "data" / "toy", {TRAIN: contents[TRAIN]})
    write_files(tmp_path / "env" / "toy", contents)
    assert locate(source).missing(source) == [LABELS, TEST, "t10k-labels-idx1-ubyte"]
    monkeypatch.setenv("BAYESIN_DATA", str(tmp_path / "env"))
    assert locate(source).missing(source) == []
    with pytest.raises(DataError, match=rf"lacks {LABELS}, {TEST}.*bayesin data fetch toy"):
        read_files(source, tmp_path / "work" / "data")  # the root was named, so it is not passed over


def test_a_stray_file_in_a_folder_of_all_sorts_says_nothing(tmp_path, contents, source):
    write_files(tmp_path / "work" / "data", {TRAIN: contents[TRAIN]})
    assert locate(source) is None


def test_absent_data_name_the_places_and_the_way_out(source, tmp_path):
    with pytest.raises(DataError, match=r"not on this machine \(searched data, .*bayesin data fetch toy"):
        read_files(source)
    with pytest.raises(DataError, match="nowhere is not a folder"):
        read_files(source, tmp_path / "nowhere")


def test_recompressed_files_are_the_same_file(tmp_path, contents, source):
    folder = write_files(tmp_path / "toy", contents)
    whole = contents[TRAIN]
    members = gzip.compress(whole[:100], 1) + gzip.compress(whole[100:], 9) + b"\0" * 512  # in parts, and padded
    (folder / f"{TRAIN}.gz").write_bytes(members)
    (folder / f"{TEST}.gz").write_bytes(contents[TEST])  # unpacked, yet still called .gz
    check(source, tmp_path)


def flipped(content: bytes, place: int, bits: int = 1) -> bytes:
    return content[:place] + bytes([content[place] ^ bits]) + content[place + 1 :]


DAMAGE = {  # what the gzipped training images become, of the contents of all files
    "truncated gzip": (lambda c: squeeze(c[TRAIN])[:-40], "is truncated: its gzip stream stops after"),
    "truncated content": (
        lambda c: squeeze(c[TRAIN][:-7]),
        "is truncated: 369 of the 376 bytes of the content",
    ),
    "train and test": (
        lambda c: squeeze(c[TEST]),
        f"is swapped: it holds the content of {TEST} of TOY, not the content of {TRAIN}",
    ),
    "images and labels": (lambda c: squeeze(c[LABELS]), f"is swapped: it holds the content of {LABELS} of TOY"),
    "one bit": (lambda c: squeeze(flipped(c[TRAIN], 200)), "is corrupted: as long as .* but its SHA-256 differs"),
    "gzip stream": (lambda c: flipped(squeeze(c[TRAIN]), 150, 255), "is (corrupted|truncated): its gzip stream"),
    "trailing bytes": (lambda c: squeeze(c[TRAIN] + b"more"), "380 bytes instead of 376"),
    "trailing rubbish": (lambda c: squeeze(c[TRAIN]) + b"rubbish", "is corrupted: its gzip stream is broken"),
    "empty": (lambda c: b"", "is empty"),
    "web page": (lambda c: b"<html>404 Not Found</html>" * 100, "2,600 bytes instead of 376"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_files_are_refused_by_name(tmp_path, contents, source, name):
    folder, (damage, message) = write_files(tmp_path / "toy", contents), DAMAGE[name]
    (folder / f"{TRAIN}.gz").write_bytes(damage(contents))
    with pytest.raises(DataError, match=message) as refusal:
        read_files(source, tmp_path)
    assert str(refusal.value).startswith(str(folder / f"{TRAIN}.gz"))
    assert "\n" not in str(refusal.value)


def test_a_file_of_another_data_set_is_recognised(tmp_path, monkeypatch, contents, source):
    other = idx_contents(seed=1)
    monkeypatch.setitem(folders_module.SOURCES, "other", idx_source(other, name="other"))
    folder = write_files(tmp_path / "toy", contents)
    (folder / f"{TRAIN}.gz").write_bytes(squeeze(other[TRAIN]))
    with pytest.raises(DataError, match=f"is swapped: it holds the content of {TRAIN} of OTHER, not .* of TOY"):
        read_files(source, tmp_path)


def test_a_gzip_bomb_makes_no_more_than_the_bound(tmp_path):
    bomb = gzip.compress(bytes(50 << 20))
    assert len(bomb) < 1 << 16
    with pytest.raises(DataError, match="unpacks to more than 1,000 bytes"):
        gunzip(bomb, tmp_path / "bomb.gz", 1000)
    many = gzip.compress(b"x" * 400) * 3
    with pytest.raises(DataError, match="unpacks to more than 1,000 bytes"):
        gunzip(many, tmp_path / "bomb.gz", 1000)
    assert len(gunzip(gzip.compress(bytes(1000)), tmp_path / "x.gz", 1000)) == 1000


def test_a_huge_file_is_refused_before_it_is_read(tmp_path, contents, source):
    folder = write_files(tmp_path / "toy", contents)
    with open(folder / f"{TRAIN}.gz", "wb") as file:
        file.truncate(10 << 30)  # sparse: takes no room, would take ten gigabytes of memory
    with pytest.raises(DataError, match="10,737,418,240 bytes, more than"):
        read_files(source, tmp_path)


def test_a_folder_in_the_place_of_a_file_is_not_a_file(tmp_path, contents, source):
    folder = write_files(tmp_path / "toy", contents)
    (folder / f"{TRAIN}.gz").unlink()
    (folder / TRAIN).mkdir()
    with pytest.raises(DataError, match=f"lacks {TRAIN}"):
        read_files(source, tmp_path)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"\1\0\10\1" + struct.pack(">I", 2), "not an idx file"),
        (b"\0\0\11\1" + struct.pack(">I", 2), "idx type 0x09"),
        (b"\0\0\10\3" + struct.pack(">III", 1, 1, 2), "3 axes, expected 1; are images and labels swapped"),
        (b"\0\0\10\1" + struct.pack(">I", 3), r"declares shape \(3,\), 3 bytes, but holds 2"),
        (b"\0\0\10\1" + struct.pack(">I", 2**32 - 1), "4,294,967,295 bytes, but holds 2"),
    ],
)
def test_idx_headers_that_do_not_hold(header, message):
    with pytest.raises(DataError, match=message):
        parse_idx(header + b"\7\11", 1, "labels")


@pytest.mark.parametrize("name", ["minst", "MNIST", "fashion_mnist", "cifar-10", "CIFAR100"])
def test_a_misspelt_name_is_met_with_the_nearest(name):
    nearest = {"minst": "mnist", "MNIST": "mnist", "fashion_mnist": "fashion-mnist"}
    expected = nearest.get(name, name.lower().replace("-", ""))
    with pytest.raises(DataError, match=rf"did you mean '{expected}'\?"):
        load(name)


@pytest.mark.parametrize("name", ["", "imagenet", "a/b.csv", "\0", "x" * 10_000])
def test_names_of_nothing_are_refused(name):
    with pytest.raises(BayesinError):
        load(name)


def test_unit_and_standard(tmp_path, monkeypatch, contents, source):
    import bayesin.data.sources as sources

    monkeypatch.setitem(sources.SOURCES, "toy", source)
    write_files(tmp_path / "toy", contents)
    pixels = np.frombuffer(contents[TRAIN][16:], np.uint8).reshape(24, 5, 3, 1) / 255
    unit = load("toy", tmp_path, normalise="unit")
    np.testing.assert_array_equal(unit.x_train, pixels.astype(np.float32))
    standard = load("toy", tmp_path)
    # three float32 roundings of numbers below 4: 3 × 2⁻²⁴ × 4
    np.testing.assert_allclose(standard.x_train, (pixels - pixels.mean()) / pixels.std(), atol=7.2e-7)
    np.testing.assert_allclose(standard.mean, pixels.mean(), rtol=1e-7)
    np.testing.assert_array_equal(unit.std, standard.std)
    few = load("toy", tmp_path, 8)
    np.testing.assert_array_equal(few.mean, standard.mean)  # of the whole training set
    assert np.bincount(few.y_train).tolist() == [2, 2, 2, 2]
