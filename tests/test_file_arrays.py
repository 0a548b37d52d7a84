"""Arrays that stay in their file: what is read is what was there when it was opened, or an error that names it."""

import os
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

from bayesin import Gaussian, PermutationSpec, align, align_files, permute
from bayesin.errors import ArtifactError
from bayesin.file_arrays import FileArray, SteadyFile
from bayesin.lab.runs.own_checkpoints import read_checkpoint
from bayesin.store import describe, load_posterior, save_posterior

SPEC = PermutationSpec.parse({"w0": ["6", "g0"], "b": ["g0"], "w1": ["g0", "3"]}, {"g0": 8})
KEY = jax.random.key(0)


def gaussian(seed: int) -> Gaussian:
    rng = np.random.default_rng(seed)
    mean = {path: rng.normal(size=SPEC.shape(path)).astype(np.float32) for path in SPEC.axes}
    return Gaussian(mean, {path: 0.1 + rng.random(leaf.shape).astype(np.float32) for path, leaf in mean.items()})


@pytest.fixture
def pair(tmp_path):
    q, perms = gaussian(0), SPEC.random(jax.random.key(1))
    moved = Gaussian(permute(q.mean, SPEC, perms), permute(q.std, SPEC, perms))
    return tuple(save_posterior(tmp_path / f"{n}.safetensors", one, spec=SPEC) for n, one in enumerate((q, moved)))


def cut(path):
    os.truncate(path, path.stat().st_size // 2)  # of a mapped file the system would end the process


def overwrite(path):
    with open(path, "r+b") as file:
        file.seek(-40, os.SEEK_END)
        file.write(bytes(40))


@pytest.mark.parametrize("change", [cut, overwrite])
@pytest.mark.parametrize("which", [0, 1])
def test_a_file_that_is_changed_while_it_is_aligned_is_named(tmp_path, pair, change, which):
    out = tmp_path / "moved.safetensors"
    with pytest.raises(ArtifactError, match=f"{which}.safetensors was changed while it was read"):
        align_files(*pair, out, key=KEY, on_sweep=lambda _: change(pair[which]))
    assert not list(tmp_path.glob(".tmp-*"))
    if out.exists():  # the target was met at the very end, when its distance is computed
        assert which == 0 and isinstance(load_posterior(out), Gaussian)


@pytest.mark.parametrize("which", [0, 1])
def test_a_file_whose_name_another_takes_is_read_to_its_end(tmp_path, pair, which):
    wanted = align(*map(load_posterior, pair), SPEC, key=KEY)

    def replace(_):
        save_posterior(pair[which], gaussian(5), spec=SPEC)

    found = align_files(*pair, tmp_path / "moved.safetensors", key=KEY, on_sweep=replace)
    assert found.objective == wanted.objective
    jax.tree.map(np.testing.assert_array_equal, jax.tree.map(np.asarray, found.posterior), wanted.posterior)


def test_a_file_that_another_replaced_between_its_header_and_its_arrays_is_named(tmp_path):
    path = save_posterior(tmp_path / "q.safetensors", gaussian(0), spec=SPEC, metadata={"member": 0})
    about = describe(path)
    assert isinstance(load_posterior(path, about=about), Gaussian)
    save_posterior(path, gaussian(1), spec=SPEC, metadata={"member": 1})
    for mapped in (False, True):
        with pytest.raises(ArtifactError, match="was replaced while it was read"):
            load_posterior(path, mapped=mapped, about=about)
    with pytest.raises(ArtifactError, match="was replaced while it was read"):
        align_files(path, path, tmp_path / "moved.safetensors", key=KEY, about=about)


def test_an_array_in_a_file_is_that_of_numpy(tmp_path):
    numbers = np.arange(24, dtype="<f4").reshape(4, 3, 2)
    path = tmp_path / "numbers"
    path.write_bytes(b"head" + numbers.tobytes())
    with open(path, "rb") as file:
        array = FileArray(SteadyFile(path, file), 4, numbers.dtype, numbers.shape)
    assert (array.shape, array.ndim, array.size, array.nbytes, len(array)) == ((4, 3, 2), 3, 24, 96, 4)
    indices = (
        slice(1, 3),
        slice(None),
        slice(3, 1),
        slice(None, None, 2),
        2,
        -1,
        (slice(2), 1),
        ...,
        np.array([3, 0]),
    )
    for index in indices:
        np.testing.assert_array_equal(array[index], numbers[index])
    turned = array.seen_as(lambda whole: whole.transpose(2, 0, 1), (2, 4, 3)).reshape(2, -1)
    np.testing.assert_array_equal(turned, numbers.transpose(2, 0, 1).reshape(2, -1))
    np.testing.assert_array_equal(array.reshape(-1).take([5, 1]), numbers.reshape(-1).take([5, 1]))
    np.testing.assert_array_equal(1 - array, 1 - numbers)
    assert not hasattr(array, "__array_interface__") and array.astype(np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="reshape"):
        array.reshape(5, 5)
    cut(path)
    with pytest.raises(ArtifactError, match="numbers"):
        np.asarray(array)


def test_a_checkpoint_of_another_program_that_changes_while_it_is_read_is_named(tmp_path, monkeypatch):
    from safetensors.numpy import save_file

    from bayesin.lab.runs import own_checkpoints

    arrays = {"w": np.ones((4, 2), np.float32), "b": np.zeros(2, np.float32)}
    names = own_checkpoints._names

    def changed_after(change):
        def meanwhile(*given):
            found = names(*given)
            change()
            return found

        return meanwhile

    path, other = tmp_path / "net.safetensors", tmp_path / "other.safetensors"
    save_file(arrays, path)
    save_file({"w": 2 * arrays["w"], "b": arrays["b"]}, other)
    for change in (cut, overwrite):
        copy = Path(shutil.copy(path, tmp_path / f"{change.__name__}.safetensors"))
        monkeypatch.setattr(own_checkpoints, "_names", changed_after(lambda copy=copy, change=change: change(copy)))
        with pytest.raises(ArtifactError, match=change.__name__):
            read_checkpoint(copy, arrays)
    monkeypatch.setattr(own_checkpoints, "_names", changed_after(lambda: os.replace(other, path)))
    jax.tree.map(np.testing.assert_array_equal, read_checkpoint(path, arrays), arrays)

    npz, later = tmp_path / "net.npz", tmp_path / "later.npz"
    np.savez(npz, **arrays)
    np.savez(later, w=arrays["w"])
    monkeypatch.setattr(own_checkpoints, "_names", changed_after(lambda: later.exists() and os.replace(later, npz)))
    with pytest.raises(ArtifactError, match="net\\.npz"):
        read_checkpoint(npz, arrays)
