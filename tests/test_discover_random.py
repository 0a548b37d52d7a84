"""No less and no more: random programs against numbers, small models against all permutations there are."""

import itertools
from math import factorial, prod

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayesin
from symmetry_checks import normal, weights
from symmetry_programs import Program

X = normal(1, 2, 3, scale=1.0)


@pytest.mark.parametrize("seed", range(24))
def test_random_programs_keep_their_output(seed):
    check_program(seed, steps=10)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 250))
def test_many_random_programs_keep_their_output(seed):
    check_program(seed, steps=14)


def check_program(seed: int, steps: int) -> None:
    program = Program(seed, steps)
    params = program.params()
    spec = bayesin.discover(program, params, X)
    assert spec.check(params) == 0
    bayesin.verify(program, params, X, spec, key=jax.random.key(seed), trials=1)


def test_random_programs_have_symmetries_to_lose():
    """The test above means something: most programs have groups, some of them with products of factors."""
    specs = [bayesin.discover(p, p.params(), X) for p in map(Program, range(24))]
    assert sum(bool(spec.sizes) for spec in specs) >= 12
    assert any(len(axis) > 1 for spec in specs for axes in spec.axes.values() for axis in axes)


def mlp(p, x):
    return jnp.tanh(jnp.tanh(x @ p["w0"] + p["b0"]) @ p["w1"]) @ p["w2"]


def residual(p, x):
    h = x @ p["w0"]
    return (h + jnp.tanh(h @ p["w1"]) @ p["w2"]) @ p["w3"]


def x_plus_wx(p, x):
    h = x @ p["w0"]
    return (h + jnp.tanh(h @ p["w"])) @ p["w1"]


def tied(p, x):
    return jnp.tanh(x @ p["w"]) @ p["v"] @ p["w"].T


def normalised(p, x):
    h = x @ p["w0"]
    return (p["g"] * (h - h.mean(-1, keepdims=True)) / h.std(-1, keepdims=True)) @ p["w1"]


def experts(p, x):
    gates = jax.nn.softmax(x @ p["r"])
    return jnp.einsum("ne,nei->ni", gates, jnp.tanh(jnp.einsum("ni,eij->nej", x, p["w"])))


def bilinear(p, x):
    h = jnp.tanh(x @ p["w"])
    return jnp.einsum("ni,ij,nj->n", h, p["m"], h)


SMALL = {
    "mlp": (mlp, weights(w0=(3, 3), b0=(3,), w1=(3, 2), w2=(2, 2))),
    "residual": (residual, weights(w0=(3, 3), w1=(3, 2), w2=(2, 3), w3=(3, 2))),
    "x + W x": (x_plus_wx, weights(w0=(3, 3), w=(3, 3), w1=(3, 2))),
    "tied": (tied, weights(w=(3, 3), v=(3, 3))),
    "normalised": (normalised, weights(w0=(3, 3), g=(3,), w1=(3, 3))),
    "experts": (experts, weights(r=(3, 2), w=(2, 3, 3))),
    "bilinear": (bilinear, weights(w=(3, 4), m=(4, 4))),
}


@pytest.mark.parametrize("name", SMALL)
def test_discovery_finds_all_permutations_there_are(name):
    """Tries every combination of permutations of all axes of all parameters; counts those that change nothing."""
    apply, params = SMALL[name]
    sizes = [size for leaf in params.values() for size in leaf.shape]
    choices = [np.array(list(itertools.permutations(range(size)))) for size in sizes]
    picked = [c.reshape(-1) for c in np.meshgrid(*[np.arange(len(c)) for c in choices], indexing="ij")]
    perms = [choice[index] for choice, index in zip(choices, picked, strict=True)]  # one row a combination

    def moved(perms):
        perms, leaves = iter(perms), {}
        for path, leaf in params.items():
            for axis in range(leaf.ndim):
                leaf = jnp.take(leaf, next(perms), axis)
            leaves[path] = leaf
        return jnp.abs(apply(leaves, X) - apply(params, X)).max()

    unchanged = int((jax.jit(lambda perms: jax.lax.map(moved, perms, batch_size=4096))(perms) < 1e-5).sum())
    spec = bayesin.discover(apply, params, X)
    assert unchanged == prod(factorial(size) for size in spec.sizes.values())
