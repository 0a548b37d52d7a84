"""What goes into a file comes out of it, to the bit."""

import functools
import json
import re
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from bayesin import Gaussian, LowRankGaussian, PermutationSpec, Samples, align, align_files, permute
from bayesin.errors import ArtifactError, BayesinError, ConfigError, PosteriorError, SpecError
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


POSTERIORS = {
    "gaussian": _gaussian(),
    "lowrank": LowRankGaussian(_tree(), jax.tree.map(lambda leaf: np.stack([leaf, 2 * leaf]), _tree(1))),
    "samples": Samples.stack([_tree(), _tree(1)]),
    "point": _tree(),
}


@pytest.mark.parametrize("kind", POSTERIORS)
def test_posteriors_come_back_as_they_were(tmp_path, kind):
    posterior, metadata = POSTERIORS[kind], {"model": {"width": 3}, "unicode": "τ", "nested": [1, None, {"a": 0.5}]}
    path = save_posterior(tmp_path / "q.safetensors", posterior, metadata=metadata, spec=SPEC)
    read = load_posterior(path)
    assert type(read) is type(posterior) and _same(posterior, read)
    assert _same(posterior, load_posterior(path, like=_tree()))
    found = describe(path)
    assert (found.kind, found.metadata, found.spec, found.version) == (kind, metadata, SPEC, 1)
    assert found.weights == 9  # of one network
    assert save_posterior(tmp_path / "r.safetensors", posterior, metadata=metadata, spec=SPEC).read_bytes() == (
        path.read_bytes()
    )


class Mine(eqx.Module):
    """A posterior of a user's own, uniform around a tree."""

    mean: dict
    width: float

    @property
    def std(self):
        return jax.tree.map(lambda leaf: np.full_like(leaf, self.width / 12**0.5), self.mean)

    def sample(self, key, count):
        raise NotImplementedError

    def permute(self, spec, perms):
        raise NotImplementedError


def test_a_class_of_ones_own_is_kept_as_a_gaussian_only_where_asked(tmp_path):
    mine, path = Mine(_tree(), 0.5), tmp_path / "q.safetensors"
    with pytest.raises(PosteriorError, match="no file holds a Mine; kind='gaussian' keeps its mean and std"):
        save_posterior(path, mine)
    assert not path.exists()
    for posterior in (mine, POSTERIORS["lowrank"], POSTERIORS["samples"]):
        read = load_posterior(save_posterior(path, posterior, kind="gaussian"))
        assert _same(read, Gaussian(posterior.mean, posterior.std))
    for wrong in ({"kind": "wishful"}, {"kind": "gaussian"}):
        with pytest.raises(PosteriorError, match="kind"):
            save_posterior(path, _tree(), **wrong)


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


@pytest.mark.parametrize(
    "values",
    [
        np.array([-0.0, 1e-45, 3e38, 1e-20], np.float32),
        np.array([1e300, 2e300, 1 + 1e-9, 5e-324]),
        np.array([2**62 + 1, -(2**63)], np.int64),
        np.array([2**64 - 1], np.uint64),
        np.ones((1,) * 32, np.float32),
    ],
)
def test_extreme_values_survive_although_jax_would_round_them(tmp_path, values):
    tree = {"w": values, "big-endian": values.astype(values.dtype.newbyteorder(">"))}
    read = load_posterior(save_posterior(tmp_path / "p.safetensors", tree))
    assert read["w"].tobytes() == read["big-endian"].tobytes() == values.tobytes() and read["w"].dtype == values.dtype


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


def test_a_spec_of_another_model_is_not_written(tmp_path):
    with pytest.raises(SpecError):
        save_posterior(tmp_path / "r.safetensors", {"other": np.zeros(3)}, spec=SPEC)
    assert not list(tmp_path.iterdir())


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


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_posteriors_are_aligned_from_file_to_file(tmp_path, dtype):
    """To the same permutations and the same numbers as in memory, in the precision of the file."""
    spec = PermutationSpec.parse({"a": ["5", "g"], "b": ["g", "h"], "c": ["h + 2", "3"]}, {"g": 6, "h": 4})
    rng = np.random.default_rng(0)
    p, q = (
        Gaussian(*({k: np.abs(rng.standard_normal(spec.shape(k))).astype(dtype) for k in "abc"} for _ in range(2)))
        for _ in range(2)
    )
    paths = [save_posterior(tmp_path / f"{i}.safetensors", x, spec=spec) for i, x in enumerate((p, q))]
    streamed = align_files(*paths, tmp_path / "moved.safetensors", key=jax.random.key(0))
    whole = align(p, q, spec, key=jax.random.key(0))
    assert all(np.array_equal(streamed.perms[g], whole.perms[g]) for g in "gh")
    assert streamed.objective == pytest.approx(whole.objective, rel=1e-6) and streamed.gap <= streamed.objective
    moved = load_posterior(tmp_path / "moved.safetensors")
    for stored in (moved, streamed.posterior):
        for part in ("mean", "std"):
            for k, leaf in getattr(whole.posterior, part).items():
                got = getattr(stored, part)[k]
                assert got.dtype == leaf.dtype == dtype and np.array_equal(got, leaf)
    bad = bytearray(paths[1].read_bytes())
    bad[-3] ^= 1
    paths[1].write_bytes(bad)
    with pytest.raises(ArtifactError, match="damaged"):
        align_files(*paths, tmp_path / "again.safetensors", key=jax.random.key(0))
    save_posterior(paths[1], q)
    with pytest.raises(ConfigError, match="no permutation spec"):
        align_files(*paths, tmp_path / "again.safetensors", key=jax.random.key(0))


def test_alignments_hold_permutations_spec_and_settings(tmp_path):
    perms = {"g0": np.array([2, 0, 1])}
    path = save_alignment(tmp_path / "a.safetensors", perms, SPEC, settings={"cost": "wasserstein", "seed": 3})
    read = load_alignment(path)
    assert read.spec == SPEC
    assert read.settings == {"cost": "wasserstein", "seed": 3}
    np.testing.assert_array_equal(read.perms["g0"], perms["g0"])
    assert _same(permute(_tree(), read.spec, read.perms), permute(_tree(), SPEC, perms))
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
        ({"w": "text"}, "'w' holds <U4, not numbers"),
        ({"w": object()}, "'w' holds object, not numbers"),
        ({"w": np.ones(2, complex)}, "'w' holds complex128"),
        ({"w": np.ones(2, np.longdouble)}, "'w' holds float128"),
        ({"w": jnp.ones(2, jnp.float8_e4m3fn)}, "'w' holds float8_e4m3fn"),
        ({"a": {"w": np.ma.masked_array([1.0, 2.0], [True, False])}}, "'a/w' is a masked array"),
        ({"a": {"w": jax.random.key(0)}}, "'a/w' holds random keys; save their jax.random.key_data"),
        ({"w": np.ones((1,) * 40)}, "'params/w' has 40 axes, of which files hold 32"),
        ({1: np.zeros(2), "1": np.ones(2)}, "keys that cannot be sorted"),
        ({"a": {"b/c": np.zeros(2)}, "x\ny": np.zeros(1)}, "printable"),
        ({"\x1b[2J": np.zeros(1)}, "printable"),
        ({"\ud800": np.zeros(1)}, "printable"),
        ({"w" * 2000: np.zeros(1)}, "printable"),
        (functools.reduce(lambda tree, _: {"a": tree}, range(70), np.zeros(1)), "64 levels deep"),
    ],
)
def test_what_would_not_come_back_is_not_written(tmp_path, posterior, message):
    with pytest.raises(BayesinError, match=message):
        save_posterior(tmp_path / "q.safetensors", posterior)
    assert not list(tmp_path.iterdir())


def test_traced_values_are_refused_by_name(tmp_path):
    with pytest.raises(PosteriorError, match="'w' has no values to save"):
        jax.jit(lambda w: save_posterior(tmp_path / "q.safetensors", {"w": w}) and w)(jnp.ones(2))


def test_metadata_must_be_json(tmp_path):
    for metadata in ({"a": object()}, {1: 2, "1": 3}):
        with pytest.raises(ArtifactError, match="metadata"):
            save_posterior(tmp_path / "q.safetensors", _tree(), metadata=metadata)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("kind", "leaf"),
    [
        ("gaussian", lambda read: read.std["w"]),
        ("samples", lambda read: read.params["w"]),
        ("point", lambda read: read["w"]),
    ],
)
def test_files_of_the_first_version_stay_readable(kind, leaf):
    path = FIXTURES / f"{kind}-v1.safetensors"
    assert np.asarray(leaf(load_posterior(path)), np.float64).ravel().tolist() == [0.5, 1.5, 2.5, 3.5, 4.5, 5.5]
    assert describe(path).metadata == {"data": "digits"}


def test_alignments_of_the_first_version_stay_readable():
    assert load_alignment(FIXTURES / "alignment-v1.safetensors").perms["g0"].tolist() == [2, 0, 1]


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
