"""Energy differences: against float64 sums, where float32 sums fail."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesin.inference.hmc.energy import compensated_sum, energy_difference


@pytest.mark.parametrize("size", [0, 1, 2, 7, 1000])
def test_compensated_sum_is_the_exact_sum_rounded_once(size):
    values = np.random.default_rng(size).normal(size=size).astype(np.float32) * 10.0 ** np.arange(size).clip(0, 8)
    values = np.concatenate([values, -values, [1e-3] * size]).astype(np.float32)
    total = jax.jit(compensated_sum)(jnp.asarray(values))
    # the remainder of each level is itself rounded: second order in eps of the summed magnitudes
    bound = 64 * np.finfo(np.float32).eps ** 2 * np.abs(values).sum() + 1e-7 * abs(math.fsum(values))
    assert abs(float(total) - math.fsum(values)) <= bound


def _states(weights, examples, rng):
    w0, p0 = rng.normal(size=(2, weights))
    angle = 0.5  # prior and kinetic energy trade with each other along a trajectory
    w1, p1 = w0 * np.cos(angle) + p0 * np.sin(angle), p0 * np.cos(angle) - w0 * np.sin(angle)
    w1 += 1e-4 * rng.normal(size=weights)
    l0 = -rng.exponential(0.3, size=examples)
    l1 = l0 + 0.05 * rng.normal(size=examples)
    return [a.astype(np.float32) for a in (w0, p0, w1, p1, l0, l1)]


def test_energy_difference_equals_float64_where_float32_energies_do_not():
    w0, p0, w1, p1, l0, l1 = states = _states(400_000, 60_000, np.random.default_rng(0))

    def tree(leaf):
        return {"a": jnp.asarray(leaf[:300_000]), "b": jnp.asarray(leaf[300_000:])}

    found = jax.jit(energy_difference)((tree(w0), tree(p0)), (tree(w1), tree(p1)), (l0, l1), 1.0)
    wide = [s.astype(np.float64) for s in states]
    exact = 0.5 * (wide[2] ** 2 - wide[0] ** 2 + wide[3] ** 2 - wide[1] ** 2).sum() + (wide[4] - wide[5]).sum()
    # √(number of terms) roundings of terms of size one
    assert abs(float(found) - exact) < 5 * np.sqrt(460_000) * 6e-8

    def energy(w, p, terms):
        return np.float32(0.5) * (w @ w + p @ p) - terms.sum(dtype=np.float32)

    naive = energy(w1, p1, l1) - energy(w0, p0, l0)
    assert abs(float(naive) - exact) > 10 * abs(float(found) - exact)


def test_energy_difference_of_a_state_with_itself_is_zero_and_nan_is_rejected():
    w, p, *_, terms, _ = _states(100, 10, np.random.default_rng(1))
    state = ({"w": jnp.asarray(w)}, {"w": jnp.asarray(p)})
    assert float(energy_difference(state, state, (terms, terms), 3.0)) == 0.0
    assert float(energy_difference(state, state, (terms, terms * np.nan), 3.0)) == np.inf
