"""What goes into a file comes out of it, to the bit."""

import json
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from bayesin import Gaussian, PermutationSpec, Samples
from bayesin.errors import ArtifactError, PosteriorError, SpecError
from bayesin.store import describe, load_alignment, load_posterior, save_alignment, save_posterior

FIXTURES = Path(__file__).parent / "fixtures"
SPEC = PermutationSpec.parse({"b": ["g0"], "w": ["2", "g0"]}, {"g0": 3})


def _tree(seed: int = 0):
    rng = np.random.default_rng(seed)
    return {"b": rng.normal(size=3).astype(np.float32), "w": rng.normal(size=(2, 3)).astype(np.float32)}


def _gaussian(seed: int = 0) -> Gaussian:
    return Gaussian(_tree(seed), jax.tree.map(np.abs, _tree(seed + 1)))


def _same(one, other) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(
        np.asarray(a).tobytes() == np.asarray(b).tobytes() and a.dtype == b.dtype and a.shape == b.shape
        for a, b in pairs
    )


@pytest.mark.parametrize(
    ("kind", "posterior"),
    [("gaussian", _gaussian()), ("samples", Samples({"w": np.ones((5, 2, 3), np.float32)})), ("point", _tree())],
)
def test_posteriors_come_back_as_they_were(tmp_path, kind, posterior):
    metadata = {
        "model": {"name": "mlp", "width": 3},
        "data": "digits",
        "unicode": "τ",
        "nested": [1, None, {"a": 0.5}],
    }
    path = save_posterior(tmp_path / "q.safetensors", posterior, metadata=metadata)
    read = load_posterior(path)
    assert type(read) is type(posterior)
    assert _same(posterior, read)
    found = describe(path)
    assert (found.kind, found.metadata, found.spec, found.version) == (kind, metadata, None, 1)


@pytest.mark.parametrize(
    "dtype", ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]
)
def test_every_type_comes_back_to_the_bit(tmp_path, dtype):
    rng = np.random.default_rng(0)
    values = (rng.normal(size=(4, 3)) * 3).astype(jnp.dtype(dtype))
    tree = {"a": values, "scalar": values[0, 0], "empty": values[:0], "turned": values.T, "strided": values[::2]}
    tree["scalar"] = np.asarray(tree["scalar"])
    read = load_posterior(save_posterior(tmp_path / "p.safetensors", tree))
    assert _same(tree, read)


def test_small_and_negative_zeros_and_huge_values_survive(tmp_path):
    tree = {"w": np.array([-0.0, 1e-45, 3e38, 1e-20], np.float32)}
    assert _same(tree, load_posterior(save_posterior(tmp_path / "p.safetensors", tree)))


def test_any_safetensors_reader_opens_it(tmp_path):
    q = _gaussian()
    path = save_posterior(tmp_path / "q.safetensors", q, spec=SPEC)
    arrays = load_file(path)
    assert set(arrays) == {"mean/b", "mean/w", "std/b", "std/w"}
    np.testing.assert_array_equal(arrays["std/w"], q.std["w"])
    with safe_open(path, "np") as file:
        strings = file.metadata()
    assert strings["format"] == "bayesin-posterior"
    assert strings["version"] == "1"
    assert json.loads(strings["spec"])["groups"] == {"g0": 3}


def test_reading_needs_no_code_of_ours(tmp_path):
    path = save_posterior(tmp_path / "q.safetensors", _gaussian())
    program = (
        "import sys; from safetensors.numpy import load_file; a = load_file(sys.argv[1]);"
        "assert 'bayesin' not in sys.modules; sys.exit(len(a))"
    )
    assert subprocess.run([sys.executable, "-c", program, str(path)], check=False).returncode == 4


def test_spec_travels_with_the_weights(tmp_path):
    path = save_posterior(tmp_path / "q.safetensors", _gaussian(), spec=SPEC)
    assert describe(path).spec == SPEC
    with pytest.raises(SpecError):
        save_posterior(tmp_path / "r.safetensors", {"other": np.zeros(3)}, spec=SPEC)
    assert not (tmp_path / "r.safetensors").exists()


def test_description_counts_the_weights_of_one_network(tmp_path):
    for number, posterior in enumerate((_gaussian(), _tree(), Samples.stack([_tree(), _tree(1)]))):
        assert describe(save_posterior(tmp_path / f"{number}.safetensors", posterior)).weights == 9


def test_like_restores_lists_and_refuses_another_model(tmp_path):
    params = [np.zeros(3, np.float32) for _ in range(12)]  # "10" sorts before "2" in a dict
    params[10] += 1
    path = save_posterior(tmp_path / "p.safetensors", params)
    read = load_posterior(path, like=params)
    assert isinstance(read, list)
    assert _same(params, read)
    shapes = jax.eval_shape(lambda: [jnp.zeros(3) for _ in range(12)])
    assert _same(params, load_posterior(path, like=shapes))
    with pytest.raises(ArtifactError, match="'11' is not of this model"):
        load_posterior(path, like=params[:-1])
    with pytest.raises(ArtifactError, match="'12' is missing"):
        load_posterior(path, like=[*params, params[0]])
    with pytest.raises(ArtifactError, match=re.escape("'0' has shape (3,), the model needs (4,)")):
        load_posterior(path, like=[np.zeros(4), *params[1:]])


def test_keys_with_slashes_and_percent_signs(tmp_path):
    tree = {"a/b": {"c%2F": np.ones(2)}, "a": {"b": np.zeros(2)}, "ü τ \\ \" '": np.ones(1)}
    read = load_posterior(save_posterior(tmp_path / "p.safetensors", tree))
    assert set(read) == set(tree)
    assert _same(tree, read)


def test_alignments_hold_permutations_spec_and_settings(tmp_path):
    perms = {"g0": np.array([2, 0, 1])}
    path = save_alignment(tmp_path / "a.safetensors", perms, SPEC, settings={"cost": "wasserstein", "seed": 3})
    read = load_alignment(path)
    assert read.spec == SPEC
    assert read.settings == {"cost": "wasserstein", "seed": 3}
    np.testing.assert_array_equal(read.perms["g0"], perms["g0"])
    assert describe(path).kind == "alignment"
    with pytest.raises(SpecError):
        save_alignment(tmp_path / "b.safetensors", {"g0": np.array([0, 0, 1])}, SPEC)


def test_a_model_without_symmetry_has_an_empty_alignment(tmp_path):
    spec = PermutationSpec.parse({"w": ["2", "3"]}, {})
    assert load_alignment(save_alignment(tmp_path / "a.safetensors", {}, spec)).perms == {}


def test_kinds_are_not_mixed_up(tmp_path):
    posterior = save_posterior(tmp_path / "q.safetensors", _gaussian())
    alignment = save_alignment(tmp_path / "a.safetensors", SPEC.identity(), SPEC)
    with pytest.raises(ArtifactError, match="format bayesin-alignment, but bayesin-posterior is needed"):
        load_posterior(alignment)
    with pytest.raises(ArtifactError, match="format bayesin-posterior"):
        load_alignment(posterior)


@pytest.mark.parametrize(
    ("posterior", "message"),
    [
        ({"w": np.array([1.0, np.nan])}, "nan at position 1"),
        ({"w": np.array([np.inf])}, "inf"),
        (Gaussian({"w": np.zeros(2)}, {"w": np.array([1.0, -1.0])}), "negative"),
        ({}, "at least one parameter"),
        ({"w": "text"}, "not numbers"),
        ({"w": object()}, "not numbers"),
    ],
)
def test_what_no_reader_would_accept_is_not_written(tmp_path, posterior, message):
    with pytest.raises(PosteriorError, match=message):
        save_posterior(tmp_path / "q.safetensors", posterior)
    assert not list(tmp_path.iterdir())


def test_names_that_would_garble_a_terminal_are_not_written(tmp_path):
    for name in ("a\nb", "\x1b[2J", "\ud800", "w" * 2000):
        with pytest.raises(ArtifactError, match="printable"):
            save_posterior(tmp_path / "q.safetensors", {name: np.zeros(1)})
    assert not list(tmp_path.iterdir())


def test_metadata_must_be_json(tmp_path):
    for metadata in ({"a": object()}, {"a": float("nan")}, {1: 2, "1": 3}):
        with pytest.raises(ArtifactError, match="metadata"):
            save_posterior(tmp_path / "q.safetensors", _tree(), metadata=metadata)
    assert not list(tmp_path.iterdir())


def test_an_older_file_is_replaced_whole_and_nothing_is_left_behind(tmp_path):
    path = save_posterior(tmp_path / "q.safetensors", _gaussian(0))
    save_posterior(path, _gaussian(5))
    assert _same(load_posterior(path), _gaussian(5))
    assert [p.name for p in tmp_path.iterdir()] == ["q.safetensors"]


def test_a_failed_write_leaves_the_older_file(tmp_path, monkeypatch):
    path = save_posterior(tmp_path / "q.safetensors", _gaussian(0))
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ArtifactError, match="No space left"):
        save_posterior(path, _gaussian(5))
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["q.safetensors"]


def test_the_same_posterior_gives_the_same_bytes(tmp_path):
    one, other = (save_posterior(tmp_path / f"{i}.safetensors", _gaussian(), spec=SPEC) for i in range(2))
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("name", ["gaussian", "samples", "point", "alignment"])
def test_files_of_the_first_version_stay_readable(name):
    path = FIXTURES / f"{name}-v1.safetensors"
    if name == "alignment":
        assert load_alignment(path).perms["g0"].tolist() == [2, 0, 1]
        return
    read = load_posterior(path)
    leaf = {"gaussian": lambda: read.std["w"], "samples": lambda: read.params["w"], "point": lambda: read["w"]}[
        name
    ]()
    assert np.asarray(leaf, np.float64).ravel().tolist() == [0.5, 1.5, 2.5, 3.5, 4.5, 5.5]
    assert describe(path).metadata == {"data": "digits"}


@pytest.mark.slow
def test_a_hundred_million_weights_are_saved_and_read_in_bounded_memory(tmp_path):
    program = f"""
import resource, numpy as np
from bayesin import Gaussian
from bayesin.store import save_posterior, load_posterior
leaves = {{f"l{{i}}": np.full((1000, 1000), i + 1, np.float32) for i in range(100)}}
q = Gaussian(leaves, leaves)  # the stds are the same arrays: 0.4 GB in memory, 0.8 GB in the file
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
path = save_posterior({str(tmp_path / "big.safetensors")!r}, q)
saved = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
read = load_posterior(path)
loaded = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert read.std["l99"][0, 0] == 100
print(saved - before, loaded - saved)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    saving, loading = (int(word) / 1024 for word in done.stdout.split())
    assert saving < 100  # MiB: one block, one check
    assert loading < 900  # the posterior itself, 763 MiB
