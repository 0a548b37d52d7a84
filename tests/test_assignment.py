"""Assignment: exact with either solver, with any potentials, on ties and on awkward scales."""

import itertools

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from bayesin.matching import assignment
from bayesin.matching.assignment import assign


@pytest.fixture(params=["as installed", "scipy"])
def solver(request, monkeypatch):
    if request.param == "scipy":
        monkeypatch.setattr(assignment, "_lapx", lambda: None)
    return request.param


def value(similarity, perm):
    return similarity[np.arange(perm.size), perm].astype(np.float64).sum()


def matrices():
    rng = np.random.default_rng(0)
    low_rank = rng.normal(size=(120, 6)) @ rng.normal(size=(6, 120))
    yield "random", rng.normal(size=(90, 90))
    yield "low rank", low_rank
    yield "negative", -1e3 - np.abs(low_rank)
    yield "integers with ties", rng.integers(0, 4, (60, 60)).astype(float)
    yield "equal rows", np.repeat(rng.normal(size=(1, 50)), 50, axis=0)
    yield "zeros", np.zeros((40, 40))
    yield "large common part", 1e6 + rng.normal(size=(70, 70))
    yield "float32", low_rank.astype(np.float32)
    yield "tiny", 1e-30 * rng.normal(size=(30, 30))


@pytest.mark.parametrize("name, similarity", list(matrices()))
def test_reaches_the_optimum_of_scipy_and_is_a_permutation(name, similarity, solver):
    perm = assign(similarity).perm
    assert sorted(perm.tolist()) == list(range(len(similarity)))
    best = value(similarity, linear_sum_assignment(similarity, maximize=True)[1])
    scale = np.abs(similarity - np.median(similarity)).sum()
    eps = np.finfo(similarity.dtype).eps
    assert value(similarity, perm) >= best - 4 * eps * scale - eps * np.abs(similarity).max() * len(similarity)


@pytest.mark.parametrize("size", range(1, 7))
def test_against_brute_force(size, solver):
    rng = np.random.default_rng(size)
    for _ in range(20):
        similarity = rng.normal(size=(size, size))
        best = max(value(similarity, np.array(perm)) for perm in itertools.permutations(range(size)))
        np.testing.assert_allclose(value(similarity, assign(similarity).perm), best, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_potentials_leave_the_optimum(dtype, solver):
    rng = np.random.default_rng(1)
    similarity = (rng.normal(size=(80, 8)) @ rng.normal(size=(8, 80))).astype(dtype)
    cold = assign(similarity)
    for potentials in (cold.potentials, rng.normal(size=80).astype(dtype), np.zeros(80, dtype)):
        assert assign(similarity, potentials).perm.tolist() == cold.perm.tolist()


def test_a_chain_of_slowly_changing_problems_stays_exact(solver):
    rng = np.random.default_rng(2)
    similarity, potentials = rng.normal(size=(100, 5)) @ rng.normal(size=(5, 100)), None
    for _ in range(30):
        perm, potentials = assign(similarity, potentials)
        best = value(similarity, linear_sum_assignment(similarity, maximize=True)[1])
        np.testing.assert_allclose(value(similarity, perm), best, rtol=1e-10)
        similarity = similarity + 0.1 * rng.normal(size=(100, 1)) @ rng.normal(size=(1, 100))


def test_input_is_left_as_it_is():
    similarity = np.random.default_rng(3).normal(size=(20, 20))
    before = similarity.copy()
    assign(similarity, np.ones(20))
    np.testing.assert_array_equal(similarity, before)


def test_empty_and_single():
    assert assign(np.zeros((0, 0))).perm.tolist() == []
    assert assign(np.array([[3.0]])).perm.tolist() == [0]


def test_another_package_named_lap_is_not_used(monkeypatch):
    """`lap` and `lapx` install the same module; without `lapjvh` it is the wrong one."""
    import sys
    import types

    assignment._lapx.cache_clear()
    monkeypatch.setitem(sys.modules, "lap", types.ModuleType("lap"))
    try:
        assert assignment.solver_name() == "scipy"
        assert assign(np.array([[1.0, 5.0], [2.0, 3.0]])).perm.tolist() == [1, 0]
    finally:
        assignment._lapx.cache_clear()
