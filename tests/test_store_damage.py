"""Damaged and hostile files: refused by name, quickly, with our own error, or read and right.

`_craft` writes files with a valid checksum, so that the checks behind it are reached.
"""

import json
import os
import resource
import time
import zlib
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors import safe_open

from bayesin import Gaussian, PermutationSpec
from bayesin.errors import ArtifactError
from bayesin.store import describe, load_alignment, load_posterior, save_posterior

SPEC = PermutationSpec.parse({"b": ["g0"], "w": ["2", "g0"]}, {"g0": 3})


def _gaussian() -> Gaussian:
    mean = {"b": np.arange(3, dtype=np.float32), "w": np.ones((2, 3), np.float32)}
    return Gaussian(mean, jax.tree.map(lambda leaf: leaf + 1, mean))


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("store") / "q.safetensors"
    return save_posterior(path, _gaussian(), spec=SPEC, metadata={"data": "digits"}).read_bytes()


def _read(path: Path, content: bytes):
    """Our error, or a posterior; any other exception fails the test."""
    path.write_bytes(content)
    try:
        describe(path)
    except ArtifactError as error:
        assert str(path) in str(error)
    try:
        return load_posterior(path)
    except ArtifactError as error:
        assert str(path) in str(error), error
        assert "\n" not in str(error)
        return None


def test_cut_off_at_every_length_or_longer_than_it_says(tmp_path, whole):
    for length in range(len(whole)):
        assert _read(tmp_path / "q.safetensors", whole[:length]) is None
    for extra in (b"\0", b"x" * 100, whole):
        assert _read(tmp_path / "q.safetensors", whole + extra) is None


def test_every_flipped_bit_is_noticed(tmp_path, whole):
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (place % 8)
        assert _read(tmp_path / "q.safetensors", bytes(damaged)) is None, place


def test_a_file_that_is_replaced_while_it_is_read_is_read_whole(tmp_path, whole, monkeypatch):
    """The header of one file is never put together with the arrays of the next one of that name."""
    path = tmp_path / "q.safetensors"
    path.write_bytes(whole)

    def replaced(*arguments, **options):
        save_posterior(path, {"other": np.zeros(7)})
        return safe_open(*arguments, **options)

    monkeypatch.setattr("bayesin.store.tensors.safe_open", replaced)
    assert load_posterior(path).mean["b"].tolist() == [0, 1, 2]


def _craft(path: Path, header: str, data: bytes = b"") -> Path:
    """A file with this header and a checksum that holds."""
    text = header.encode()
    raw = len(text).to_bytes(8, "little") + text
    checksum = f"{zlib.crc32(raw + data):08x}".encode()
    path.write_bytes(raw.replace(b'"checksum":"00000000"', b'"checksum":"' + checksum + b'"') + data)
    return path


def _header(tensors: dict, **strings: str) -> str:
    known = {"checksum": "00000000", "format": "bayesin-posterior", "version": "1", "kind": "gaussian"}
    return json.dumps({"__metadata__": known | strings} | tensors, separators=(",", ":"))


def _entry(shape, start, end, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


GOOD = {"mean/w": _entry([2], 0, 8), "std/w": _entry([2], 8, 16)}
DATA = np.array([1, 2, 3, 4], np.float32).tobytes()


def test_a_crafted_file_is_read(tmp_path):
    read = load_posterior(_craft(tmp_path / "q.safetensors", _header(GOOD), DATA))
    assert read.mean["w"].tolist() == [1, 2]
    assert read.std["w"].tolist() == [3, 4]


@pytest.mark.parametrize(
    ("tensors", "strings", "message"),
    [
        ({"mean/w": _entry([2], 0, 8), "std/v": _entry([2], 8, 16)}, {}, "not in both mean and std"),
        ({"mean/w": _entry([4], 0, 16)}, {}, "not in both mean and std"),
        ({"std/w": _entry([4], 0, 16)}, {}, "holds no 'mean'"),
        ({}, {}, "cut off, or longer"),
        ({"mean/w": _entry([2], 0, 8), "std/w": _entry([1, 2], 8, 16)}, {}, "has shape"),
        ({"mean/w": _entry([3], 0, 12), "std/w": _entry([1], 12, 16)}, {}, "has shape"),
        (GOOD | {"extra": _entry([0], 16, 16)}, {}, "unexpected tensor 'extra'"),
        (GOOD | {"params/w": _entry([0], 16, 16)}, {}, "unexpected tensor"),
        (GOOD | {"std/w": _entry([2], 4, 12)}, {}, "InvalidOffset|invalid offset"),
        (GOOD | {"std/w": _entry([2], 8, 12)}, {}, "damaged"),
        (GOOD | {"std/w": _entry([2], 16, 8)}, {}, "damaged"),
        (GOOD | {"std/w": _entry([-2], 8, 16)}, {}, "no usable shape"),
        (GOOD | {"std/w": _entry([2.0], 8, 16)}, {}, r"shape\[0\]' must be a whole number"),
        (GOOD | {"std/w": _entry([True, 2], 8, 16)}, {}, r"shape\[0\]' must be a whole number"),
        (GOOD | {"std/w": _entry([1] * 40, 8, 12)}, {}, "no usable shape"),
        (GOOD | {"std/w": _entry([1 << 60], 8, 16)}, {}, "no usable shape"),
        (GOOD | {"std/w": _entry([1 << 40, 1 << 40], 8, 16)}, {}, "damaged"),
        (GOOD | {"std/w": _entry([2], 8, 16, "F33")}, {}, "has type 'F33'"),
        (GOOD | {"std/w": _entry([2], 8, 16, ["F32"])}, {}, "dtype' must be text"),
        (GOOD | {"std/w": [1, 2]}, {}, "'std/w' must be an object"),
        (GOOD | {"std/w": {"dtype": "F32"}}, {}, "'std/w.shape' is missing"),
        (GOOD | {"std/w": _entry([0, 1 << 47, 1 << 47], 8, 8)}, {}, "damaged"),
        (GOOD | {"std/w": _entry([2], 0, 8)}, {}, "damaged"),
        (GOOD | {"mean/" + "a/" * 70 + "w": _entry([0], 16, 16)}, {}, "levels deep"),
        (GOOD | {"mean/\x1b[2J": _entry([0], 16, 16)}, {}, "no array can have the name"),
        (GOOD | {"mean/" + "w" * 2000: _entry([0], 16, 16)}, {}, "no array can have the name"),
        (GOOD, {"version": "2"}, "has version '2'; this bayesin reads version 1"),
        (GOOD, {"format": "other"}, "is no bayesin file"),
        (GOOD, {"kind": "wishful"}, "unknown kind 'wishful'"),
        (GOOD, {"kind": "point"}, "unexpected tensor 'mean/w'"),
        ({"params/w": _entry([], 0, 4), "params/v": _entry([3], 4, 16)}, {"kind": "samples"}, "leading axis"),
        ({"params/w": _entry([2], 0, 8), "params/v": _entry([1, 2], 8, 16)}, {"kind": "samples"}, "leading axis"),
        ({"params/a": _entry([2], 0, 8), "params/a/b": _entry([2], 8, 16)}, {"kind": "point"}, "runs through a leaf"),
    ],
)
def test_headers_that_do_not_hold_together(tmp_path, tensors, strings, message):
    path = _craft(tmp_path / "q.safetensors", _header(tensors, **strings), DATA)
    with pytest.raises(ArtifactError, match=message):
        load_posterior(path)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, np.nan, 1, 1], "'mean/w' holds nan at position 1"),
        ([1, 1, np.inf, 1], "'std/w' holds inf"),
        ([1, 1, 1, -1e-30], "'std/w' is negative at position 1"),
    ],
)
def test_values_that_no_posterior_has(tmp_path, values, message):
    path = _craft(tmp_path / "q.safetensors", _header(GOOD), np.array(values, np.float32).tobytes())
    with pytest.raises(ArtifactError, match=message):
        load_posterior(path)


def test_names_that_stand_twice(tmp_path):
    header = _header(GOOD)[:-1] + ',"mean/w":' + json.dumps(_entry([2], 0, 8)) + "}"
    with pytest.raises(ArtifactError, match="'mean/w' is named twice"):
        load_posterior(_craft(tmp_path / "q.safetensors", header, DATA))


@pytest.mark.parametrize(
    "spec", ["", "{}", "[1]", '{"format":"bayesin-spec","version":2}', "[" * 5000, '{"a":1,"a":2}']
)
def test_specs_that_cannot_be_read(tmp_path, spec):
    path = _craft(tmp_path / "q.safetensors", _header(GOOD, spec=spec), DATA)
    with pytest.raises(ArtifactError, match=r"q\.safetensors"):
        describe(path)


@pytest.mark.parametrize("metadata", ["", "1", "[]", "{", '{"a":NaN}', '{"a":1,"a":2}'])
def test_metadata_that_cannot_be_read(tmp_path, metadata):
    path = _craft(tmp_path / "q.safetensors", _header(GOOD, metadata=metadata), DATA)
    with pytest.raises(ArtifactError, match=r"q\.safetensors"):
        describe(path)


@pytest.mark.parametrize("perm", [[0, 0, 1], [0, 1, 3], [-1, 0, 1], [0, 1]])
def test_permutations_that_are_none(tmp_path, perm):
    tensors = {"perms/g0": _entry([len(perm)], 0, 4 * len(perm), "I32")}
    strings = {"format": "bayesin-alignment", "kind": "alignment", "spec": json.dumps(SPEC.to_json())}
    path = _craft(tmp_path / "a.safetensors", _header(tensors, **strings), np.array(perm, np.int32).tobytes())
    with pytest.raises(ArtifactError, match="'g0'"):
        load_alignment(path)


def test_an_alignment_without_its_spec(tmp_path):
    strings = {"format": "bayesin-alignment", "kind": "alignment"}
    path = _craft(tmp_path / "a.safetensors", _header({"perms/g0": _entry([0], 0, 0, "I32")}, **strings))
    with pytest.raises(ArtifactError, match="without its spec"):
        load_alignment(path)


@pytest.mark.parametrize("promised", [9, 1 << 20, 1 << 40, (1 << 64) - 1])
def test_a_header_that_promises_terabytes_is_refused_at_once(tmp_path, promised):
    started = time.process_time()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert _read(tmp_path / "q.safetensors", promised.to_bytes(8, "little") + b"{}") is None
    huge = _header({"mean/w": _entry([1 << 40], 0, 1 << 42), "std/w": _entry([1 << 40], 1 << 42, 1 << 43)})
    with pytest.raises(ArtifactError, match="cut off, or longer than its header says"):
        load_posterior(_craft(tmp_path / "r.safetensors", huge, DATA))
    assert time.process_time() - started < 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 << 10  # KiB


def test_a_sparse_file_of_a_terabyte_is_refused_at_once(tmp_path):
    path = tmp_path / "q.safetensors"
    with open(path, "wb") as file:
        file.write((1 << 39).to_bytes(8, "little"))
        try:
            file.truncate(1 << 40)
        except OSError:
            pytest.skip("this file system has no sparse files of a terabyte")
    started = time.process_time()
    with pytest.raises(ArtifactError, match="a header of"):
        load_posterior(path)
    assert time.process_time() - started < 1


def test_deep_and_long_headers_are_refused_at_once(tmp_path):
    started = time.process_time()
    for text in (b"[" * 10**6, b'{"a":' * 10**6, b"9" * 10**6, b'"' + b"\\u0041" * 10**5):
        assert _read(tmp_path / "q.safetensors", len(text).to_bytes(8, "little") + text) is None
    assert time.process_time() - started < 5  # four files on a busy machine; a quarter of a second each


def test_things_that_are_no_files(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (tmp_path, tmp_path / "missing", pipe, Path("/dev/zero")):
        for reader in (load_posterior, load_alignment, describe):
            with pytest.raises(ArtifactError):
                reader(path)
