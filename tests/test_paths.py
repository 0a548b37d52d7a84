"""Laws of the geodesic, the mixture and the W2 distance; low-rank ones against the dense formula of Bures."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import sqrtm

from bayesin import Gaussian, LowRankGaussian, Samples, geodesic, mixture, wasserstein
from bayesin.errors import ConfigError, PosteriorError


def _gaussian(seed: int, dtype=jnp.float32) -> Gaussian:
    rng = np.random.default_rng(seed)
    shapes = {"a": {"kernel": (5, 3), "bias": (3,)}, "scalar": ()}
    mean = jax.tree.map(lambda s: jnp.asarray(rng.normal(size=s), dtype), shapes, is_leaf=lambda s: type(s) is tuple)
    std = jax.tree.map(lambda s: jnp.asarray(rng.random(size=s), dtype), shapes, is_leaf=lambda s: type(s) is tuple)
    return Gaussian(mean, std)


def _bits(tree) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
def test_ends_are_exact_to_the_bit(dtype):
    p, q = _gaussian(0, dtype), _gaussian(1, dtype)
    p = Gaussian(p.mean | {"scalar": jnp.asarray(-0.0, dtype)}, p.std)
    path = geodesic(p, q)
    for zero, one in ((0, 1), (0.0, 1.0), (jnp.zeros(()), jnp.ones(()))):
        assert _bits(path(zero)) == _bits(p)
        assert _bits(path(one)) == _bits(q)
    assert all(leaf.dtype == dtype for leaf in jax.tree.leaves(path(0.3)))


def test_mean_and_std_are_linear_in_tau():
    p, q = _gaussian(0), _gaussian(1)
    for tau in (0.1, 0.25, 0.5, 0.8):
        middle = geodesic(p, q)(tau)
        for name in ("mean", "std"):
            for a, b, c in zip(*(jax.tree.leaves(getattr(one, name)) for one in (p, q, middle)), strict=True):
                exact = (1 - tau) * np.float64(a) + tau * np.float64(b)
                np.testing.assert_allclose(c, exact, rtol=3e-6, atol=1e-6)


@pytest.mark.parametrize("tau", [0.04, 0.5, 0.7])
def test_distance_grows_in_proportion_to_tau(tau):
    p, q = _gaussian(2), _gaussian(3)
    path, whole = geodesic(p, q), float(wasserstein(p, q))
    assert float(wasserstein(p, path(tau))) == pytest.approx(tau * whole, rel=1e-5)
    assert float(wasserstein(path(tau), q)) == pytest.approx((1 - tau) * whole, rel=1e-5)


def test_a_path_from_p_to_p_stays_there_to_the_bit():
    p = _gaussian(4)
    for tau in np.arange(25) / 24:
        assert _bits(geodesic(p, p)(tau)) == _bits(p)


@pytest.mark.as_shipped
def test_the_way_back_is_the_same_way():
    p, q = _gaussian(5), _gaussian(6)
    for tau in (0.25, 0.375):
        assert _bits(geodesic(p, q)(tau)) == _bits(geodesic(q, p)(1 - tau))


def test_stds_never_go_below_zero():
    small, large = {"w": jnp.array([1e-30, 0.0, 1e20], jnp.float32)}, {"w": jnp.array([1.0, 3.0, 0.0], jnp.float32)}
    mean = {"w": jnp.zeros(3)}
    for p, q in ((small, large), (large, small)):
        for tau in np.linspace(0, 1, 41):
            assert (np.asarray(geodesic(Gaussian(mean, p), Gaussian(mean, q))(tau).std["w"]) >= 0).all()


def test_points_are_gaussians_without_spread():
    p, q = _gaussian(0).mean, _gaussian(1).mean
    middle = geodesic(p, q)(0.5)
    assert all((leaf == 0).all() for leaf in jax.tree.leaves(middle.std))
    assert wasserstein(p, q) == pytest.approx(
        np.sqrt(sum(np.sum((np.float64(a) - b) ** 2) for a, b in zip(*map(jax.tree.leaves, (p, q)), strict=True))),
        rel=1e-6,
    )


def test_integers_come_from_the_nearer_end():
    p = {"steps": jnp.array(10), "flag": jnp.array(True), "w": jnp.array([0.0])}
    q = {"steps": jnp.array(20), "flag": jnp.array(False), "w": jnp.array([1.0])}
    path = geodesic(p, q)
    assert [int(path(tau).mean["steps"]) for tau in (0, 0.4, 0.5, 0.6, 1)] == [10, 10, 10, 20, 20]
    assert path(0.6).mean["steps"].dtype == p["steps"].dtype
    assert not bool(path(0.6).mean["flag"])
    assert wasserstein(p, q) == 1.0  # counters are no weights


def test_excluded_leaves_do_not_count():
    p, q = (
        {"w": jnp.array([3.0]), "running": jnp.array([100.0])},
        {"w": jnp.array([0.0]), "running": jnp.array([0.0])},
    )
    assert wasserstein(p, q, exclude={"running"}) == 3.0


def test_ends_of_different_precision_are_widened():
    p, q = _gaussian(0, jnp.bfloat16), _gaussian(1)
    path = geodesic(p, q)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(path(0)))
    for a, b in zip(jax.tree.leaves(p), jax.tree.leaves(path(0)), strict=True):
        np.testing.assert_array_equal(np.asarray(a, np.float32), b)


def test_inputs_are_left_alone():
    p, q = _gaussian(0), _gaussian(1)
    before = _bits(p), _bits(q)
    geodesic(p, q)(0.3)
    mixture(p, q)(0.3)
    assert (_bits(p), _bits(q)) == before


def test_the_path_works_inside_jit_without_tracing_again():
    p, q = _gaussian(0), _gaussian(1)
    traced = []

    @jax.jit
    def at(path, tau):
        traced.append(None)
        return path(tau)

    path = geodesic(p, q)
    for tau in (0.0, 0.25, 1.0):
        assert _bits(at(path, jnp.float32(tau))) == _bits(path(tau))
    assert len(traced) == 1


@pytest.mark.parametrize(
    ("q", "message"),
    [
        ({"w": jnp.zeros(3)}, "shape"),
        ({"w": jnp.zeros(2), "b": jnp.zeros(2)}, "'b' is in the second tree only"),
        (Samples({"w": jnp.zeros((4, 2))}), "compact"),
        (Gaussian({"w": jnp.zeros(2)}, {"w": jnp.array([1.0, -1.0])}), "negative"),
        (Gaussian({"w": jnp.zeros(2)}, {"w": jnp.array([1.0, jnp.nan])}), "finite"),
    ],
)
def test_ends_that_do_not_fit_are_refused(q, message):
    for path in (geodesic, mixture):
        with pytest.raises(PosteriorError, match=message):
            path({"w": jnp.zeros(2)}, q)


def test_samples_go_to_the_partners_of_least_total_distance():
    draws = np.random.default_rng(0)
    p, q = (
        {"w": draws.normal(size=(5, 3)).astype(np.float32), "b": draws.normal(size=5).astype(np.float32)}
        for _ in "pq"
    )
    path = geodesic(Samples(p), Samples(q))

    def cost(order):
        return sum(np.square(p[name] - q[name][list(order)]).sum() for name in p)

    best = list(min(itertools.permutations(range(5)), key=cost))
    for tau in (0.0, 0.25, 1.0):
        for name in p:
            between = (1 - tau) * p[name] + tau * q[name][best]
            np.testing.assert_allclose(path(tau).params[name], between, atol=1e-6)
    shuffled = Samples(jax.tree.map(lambda leaf: leaf[::-1], p))
    np.testing.assert_array_equal(geodesic(Samples(p), shuffled)(0.5).params["w"], p["w"])
    with pytest.raises(PosteriorError, match="5 and 4 samples"):
        geodesic(Samples(p), Samples(q)[:4])


@pytest.mark.parametrize("tau", [-0.1, 1.01, float("nan")])
def test_there_is_nothing_beyond_the_ends(tau):
    with pytest.raises(ConfigError, match="τ = 0 to τ = 1"):
        geodesic({"w": jnp.zeros(2)}, {"w": jnp.ones(2)})(tau)


def _lowrank(seed: int, rank: int, dtype=np.float32) -> LowRankGaussian:
    rng = np.random.default_rng(seed)
    mean = {"a": rng.normal(size=(2, 3)), "b": rng.normal(size=4), "steps": np.array(seed)}
    factors = {"a": rng.normal(size=(rank, 2, 3)), "b": rng.normal(size=(rank, 4)), "steps": np.zeros(rank, int)}
    cast = lambda leaf: jnp.asarray(leaf, dtype if leaf.dtype.kind == "f" else None)  # noqa: E731
    return LowRankGaussian(jax.tree.map(cast, mean), jax.tree.map(cast, factors))


def _moments(q: LowRankGaussian) -> tuple[np.ndarray, np.ndarray]:
    """Mean and dense covariance of the ten weights."""
    mean = np.concatenate([np.ravel(q.mean[name]) for name in "ab"]).astype(np.float64)
    factors = np.concatenate([np.reshape(q.factors[name], (q.rank, -1)) for name in "ab"], 1).astype(np.float64)
    return mean, factors.T @ factors


def _bures(p, q) -> float:
    """W2 between Gaussians with dense covariances."""
    (m0, c0), (m1, c1) = p, q
    root = np.real(sqrtm(c0))
    cross = np.trace(np.real(sqrtm(root @ c1 @ root)))
    return np.sqrt(np.sum((m0 - m1) ** 2) + np.trace(c0) + np.trace(c1) - 2 * cross)


@pytest.mark.filterwarnings("ignore:Matrix is singular")
@pytest.mark.parametrize("ranks", [(3, 3), (2, 5), (12, 12), (4, 1)])
def test_low_rank_geodesic_is_that_of_bures(ranks):
    p, q = _lowrank(0, ranks[0]), _lowrank(1, ranks[1])
    whole = _bures(_moments(p), _moments(q))
    assert float(wasserstein(p, q)) == pytest.approx(whole, rel=1e-4)
    path = geodesic(p, q)
    for end, tau in ((p, 0), (q, 1)):  # the same distributions, whatever the rotation of the factors
        for exact, there in zip(_moments(end), _moments(path(tau)), strict=True):
            np.testing.assert_allclose(there, exact, atol=1e-5)
    for tau in (0.25, 0.6):  # constant speed, by the dense formula: what makes a path a geodesic
        there = _moments(path(tau))
        assert _bures(_moments(p), there) == pytest.approx(tau * whole, rel=1e-3)
        assert _bures(there, _moments(q)) == pytest.approx((1 - tau) * whole, rel=1e-3)
    assert int(path(0.6).mean["steps"]) == 1 and path(0.6).rank == max(ranks)


def test_low_rank_path_to_a_point_shrinks_the_factors():
    p = _lowrank(0, 3)
    middle = geodesic(p, p.mean)(0.5)
    np.testing.assert_allclose(_moments(middle)[1], 0.25 * _moments(p)[1], rtol=1e-5)
    assert float(wasserstein(p, p.mean)) == pytest.approx(np.sqrt(np.trace(_moments(p)[1])), rel=1e-5)


def _slopes(function, q, step=1e-6):
    """Central differences of a function of a tree, for every number in it."""
    leaves, structure = jax.tree.flatten(q)
    for number, leaf in enumerate(leaves):
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):
            continue
        for place in np.ndindex(leaf.shape):
            ends = [
                function(structure.unflatten([*leaves[:number], leaf.at[place].add(by), *leaves[number + 1 :]]))
                for by in (step, -step)
            ]
            yield number, place, (float(ends[0]) - float(ends[1])) / (2 * step)


@pytest.mark.parametrize("kind", ["gaussian", "lowrank", "point"])
def test_distance_is_a_function_that_jit_grad_and_vmap_take(kind):
    with jax.enable_x64(True):
        p, q = {
            "gaussian": lambda: (_gaussian(0, jnp.float64), _gaussian(1, jnp.float64)),
            "lowrank": lambda: (_lowrank(0, 3, np.float64), _lowrank(1, 3, np.float64)),
            "point": lambda: (_gaussian(0, jnp.float64).mean, _gaussian(1, jnp.float64).mean),
        }[kind]()
        distance = lambda q: wasserstein(p, q)  # noqa: E731
        gradient = jax.tree.leaves(jax.jit(jax.grad(distance, allow_int=True))(q))
        for number, place, slope in _slopes(jax.jit(distance), q):
            assert float(gradient[number][place]) == pytest.approx(slope, abs=1e-6)
        at_zero = jax.grad(distance, allow_int=True)(p)
        floats = [leaf for leaf in jax.tree.leaves(at_zero) if leaf.dtype == jnp.float64]
        # The rotation of low-rank factors leaves differences of rounding, whose direction is any.
        assert all(jnp.isfinite(leaf).all() if kind == "lowrank" else (leaf == 0).all() for leaf in floats)
        both = jax.tree.map(lambda a, b: jnp.stack([a, b]), p, q)
        np.testing.assert_allclose(jax.vmap(distance)(both), [0, distance(q)], atol=1e-12)


def test_tiny_and_huge_distances_neither_vanish_nor_overflow():
    for scale in (1e-30, 1e25):
        far = {"w": jnp.array([3.0, 4.0]) * scale}
        assert float(wasserstein({"w": jnp.zeros(2)}, far)) == pytest.approx(5 * scale, rel=1e-6)


def test_under_x64_the_path_is_taken_at_the_exact_tau():
    with jax.enable_x64(True):
        p, q = ({"w": jnp.array([value], jnp.float64)} for value in (0.0, 1.0))
        assert float(geodesic(p, q)(0.1).mean["w"][0]) == 0.1
        assert float(geodesic(p, q)(jnp.float64(0.7)).mean["w"][0]) == pytest.approx(0.7, abs=1e-16)
