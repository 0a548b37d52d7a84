"""Hostile bytes: every reader returns an array or raises an error of ours, and nothing else."""

import gzip
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bayesin.data.cifar import parse_cifar
from bayesin.data.content import gunzip, read_checked
from bayesin.data.idx import parse_idx
from bayesin.data.npz import read_npz
from bayesin.data.sources import SOURCES
from bayesin.errors import DataError
from data_toys import cifar_contents, idx_contents

IDX = idx_contents()["train-images-idx3-ubyte"]
CIFAR = cifar_contents()["test_batch.bin"]
EDITS = st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=6)
MANY = settings(max_examples=200, deadline=None)


def edited(content: bytes, edits: list[tuple[int, int]], cut: int) -> bytes:
    wrong = bytearray(content)
    for place, value in edits:
        wrong[place % len(wrong)] = value
    return bytes(wrong[: len(wrong) - cut] if cut < len(wrong) else b"")


@given(st.binary(max_size=300) | st.builds(edited, st.just(IDX), EDITS, st.integers(0, 400)), st.sampled_from([1, 3]))
@MANY
def test_idx(content, axes):
    try:
        array = parse_idx(content, axes, "fuzz")
    except DataError:
        return
    assert array.ndim == axes and array.dtype == np.uint8
    assert array.size == len(content) - 4 - 4 * axes


@given(
    st.binary(max_size=4) | st.builds(edited, st.just(CIFAR), EDITS, st.integers(0, 7000)), st.sampled_from([10, 100])
)
@MANY
def test_cifar(content, classes):
    try:
        images, labels = parse_cifar(content, classes, "fuzz")
    except DataError:
        return
    assert images.shape == (len(labels), 3, 32, 32) and labels.max() < classes


@given(
    st.binary(max_size=100).map(lambda tail: b"\x1f\x8b" + tail)
    | st.builds(edited, st.just(gzip.compress(IDX, mtime=0)), EDITS, st.integers(0, 400)),
    st.integers(0, 1000),
)
@MANY
def test_gzip(content, limit):
    try:
        whole = gunzip(content, Path("fuzz.gz"), limit)
    except DataError:
        return
    assert whole == content or len(whole) <= limit


@given(st.binary(max_size=400))
@settings(max_examples=60, deadline=None)
def test_whole_readers(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("fuzz", numbered=True) / "file"
    path.write_bytes(content)
    source = SOURCES["mnist"]
    for read in (lambda: read_checked(path, source, source.files[0]), lambda: read_npz(path)):
        try:
            read()
        except DataError:
            continue
        raise AssertionError("random bytes passed for a data set")
