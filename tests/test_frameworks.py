"""One network with batch statistics and dropout in five libraries, through everything that one does with a posterior.

What must hold is the same in all: running statistics are collected, carry no spread, move with their units, and are
what evaluation uses; a draw of a folded posterior predicts, where a spread in a running variance would make it NaN.
"""

from functools import cache

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import training_toys as toys
from bayesin import (
    HMC,
    SGMCMC,
    SWAG,
    VI,
    Ensemble,
    Laplace,
    align,
    barrier,
    compact,
    discover,
    fit_ensemble,
    fit_hmc,
    fit_laplace,
    fit_sgmcmc,
    fit_swag,
    fit_vi,
    geodesic,
    load_posterior,
    merge,
    models,
    predict,
    recalibrate,
    save_posterior,
)
from bayesin.errors import ModelError
from bayesin.trees import flatten

pytestmark = [pytest.mark.promotes, pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*stay behind when units")]
KEY = jax.random.key(0)
X, Y = toys.blobs()
DECAY, DROP = 0.5, 0.2  # so few steps leave nothing of where the statistics began
QUICK = {"epochs": 4, "batch": 20}
FITS = {
    "vi": (fit_vi, VI(members=2, learning_rate=1e-2, **QUICK)),
    "ensemble": (fit_ensemble, Ensemble(members=3, learning_rate=1e-2, **QUICK)),
    "swag": (fit_swag, SWAG(rank=2, collect_from=0.25, **QUICK)),
    "laplace": (fit_laplace, Laplace(learning_rate=1e-2, **QUICK)),
    "sgmcmc": (fit_sgmcmc, SGMCMC(samples=2, members=1, **QUICK)),
}


class _NNX(nnx.Module):
    def __init__(self, rngs):
        self.hidden, self.out = nnx.Linear(4, 6, rngs=rngs), nnx.Linear(6, 3, rngs=rngs)
        self.norm, self.drop = nnx.BatchNorm(6, momentum=DECAY, rngs=rngs), nnx.Dropout(DROP, rngs=rngs)

    def __call__(self, x):
        return self.out(self.drop(nnx.relu(self.norm(self.hidden(x)))))


class _Linen(nn.Module):
    @nn.compact
    def __call__(self, x, train=False):
        x = nn.relu(nn.BatchNorm(use_running_average=not train, momentum=DECAY)(nn.Dense(6)(x)))
        return nn.Dense(3)(nn.Dropout(DROP, deterministic=not train)(x))


class _Equinox(eqx.Module):
    hidden: eqx.nn.Linear
    norm: eqx.nn.BatchNorm
    drop: eqx.nn.Dropout
    out: eqx.nn.Linear

    def __init__(self, key):
        first, second = jax.random.split(key)
        self.hidden, self.out = eqx.nn.Linear(4, 6, key=first), eqx.nn.Linear(6, 3, key=second)
        self.norm, self.drop = eqx.nn.BatchNorm(6, "batch", momentum=DECAY, mode="batch"), eqx.nn.Dropout(DROP)

    def __call__(self, x, state, key=None):
        x, state = self.norm(self.hidden(x), state)
        return self.out(self.drop(jax.nn.relu(x), key=key)), state


def _haiku(x, is_training=False):
    x = jax.nn.relu(hk.BatchNorm(True, True, DECAY)(hk.Linear(6)(x), is_training))
    return hk.Linear(3)(hk.dropout(hk.next_rng_key(), DROP, x) if is_training else x)


def _torch():
    torch = pytest.importorskip("torch", reason="torch and torchax are not installed: pip install 'bayesin[torch]'")

    def make():
        norm = torch.nn.BatchNorm1d(6, momentum=1 - DECAY)  # which counts from the other end
        layers = torch.nn.Linear(4, 6), norm, torch.nn.ReLU(), torch.nn.Dropout(DROP), torch.nn.Linear(6, 3)
        return torch.nn.Sequential(*layers)

    return models.from_torch(make, X[:2])


@cache
def model_of(library):
    """No switch is set by hand: `train` and `is_training` are found among the arguments."""
    if library == "nnx":
        return models.from_nnx(_NNX)
    if library == "linen":
        return models.from_linen(_Linen(), X[:1])
    if library == "equinox":
        return models.from_equinox(_Equinox)
    if library == "haiku":
        return models.from_haiku(hk.transform_with_state(_haiku), X[:1])
    return _torch()


def statistics(params, model):
    return {path: np.asarray(leaf) for path, leaf in flatten(params).items() if path in model.statistics}


@pytest.mark.parametrize("library", ["nnx", "linen", "equinox", "haiku", "torch"])
def test_a_network_with_state_goes_through_every_verb(library, tmp_path):
    model = model_of(library)
    begin = statistics(model.init(KEY), model)
    assert model.statistics and model.apply_train is not None
    # A fit sees nothing of a library but its `Model`: one of them goes through all methods.
    methods = FITS if library == "nnx" else ("vi", "ensemble")
    fits = {name: FITS[name][0](KEY, model, (X, Y), FITS[name][1]) for name in methods}
    with pytest.raises(ModelError, match="frozen"):
        fit_hmc(KEY, model, (X, Y), HMC(samples=2, burn_in=1, steps=2))
    frozen = models.frozen(model)
    fits["hmc"] = fit_hmc(KEY, frozen, (X, Y), HMC(samples=2, burn_in=1, steps=2, step_size=1e-2))
    spec = discover(model.apply, fits["vi"].posteriors[0].mean, X[:2])
    assert spec.sizes == {"g0": 6}

    for name, fit in fits.items():
        posterior = fit.posteriors[0]
        assert fit.statistics == model.statistics
        if name not in ("ensemble", "sgmcmc"):  # whose members differ in them
            assert not any(np.any(leaf) for leaf in statistics(posterior.std, model).values())
        if name == "hmc":  # held; where Haiku's begin depends on the first weights
            assert all((leaf == leaf[0]).all() for leaf in statistics(posterior.params, model).values())
        else:
            moved = statistics(posterior.mean, model)
            assert not all(np.array_equal(moved[path], begin[path]) for path in begin), name
        assert np.isfinite(predict(posterior, model, X, key=KEY, samples=3).probabilities).all()
        again = load_posterior(save_posterior(tmp_path / f"{name}.safetensors", posterior))
        assert toys.same_bits(posterior, again)
        fresh = recalibrate(posterior, model, X, key=KEY, batch=20)
        before, after = flatten(posterior.mean), flatten(fresh.mean)
        if name not in ("swag", "sgmcmc"):  # which did it themselves
            assert any(not np.array_equal(before[path], after[path]) for path in model.statistics)
        assert all(np.array_equal(before[path], after[path]) for path in before if path not in model.statistics)

    first, second = fits["vi"].posteriors
    aligned = align(first, second, spec, key=KEY, exclude=model.statistics)
    np.testing.assert_allclose(model.apply(aligned.posterior.mean, X), model.apply(second.mean, X), atol=1e-4)
    found = barrier(geodesic(first, aligned.posterior), model.apply, (X, Y), key=KEY, samples=2, taus=3)
    assert np.isfinite(found.value)
    merged = merge([first, second], spec, key=KEY, exclude=model.statistics).posterior
    assert np.isfinite(model.apply(recalibrate(merged, model, X, key=KEY, batch=20).mean, X)).all()

    for given in (fits["vi"], fits["ensemble"], list(fits["ensemble"].posterior)):
        for family in ("diagonal", "lowrank"):
            folded = compact(given, spec, key=KEY, family=family, apply=model)
            assert not any(np.any(leaf) for leaf in statistics(folded.posterior.std, model).values())
            assert any(np.any(leaf) for leaf in jax.tree.leaves(folded.posterior.std))
            assert np.isfinite(predict(folded.posterior, model, X, key=KEY, samples=20).probabilities).all()
    certain = compact(fits["ensemble"], spec, key=KEY).posterior  # a fit knows its statistics without the model
    assert not any(np.any(leaf) for leaf in statistics(certain.std, model).values())
    held_out = {"apply": model, "held_out": (X, Y), "components": (2,), "scale": "held-out"}
    several = compact([*fits["ensemble"].posterior] * 2, spec, key=KEY, **held_out).posterior
    assert not any(np.any(leaf) for leaf in statistics(several.stds, model).values())


def test_switches_of_a_call_are_found_and_given_ones_win():
    class Needs(nn.Module):
        @nn.compact
        def __call__(self, x, *, deterministic):
            return nn.Dense(3)(nn.Dropout(0.5, deterministic=deterministic)(x))

    found = models.from_linen(Needs(), X[:1])
    params = found.init(KEY)
    assert np.array_equal(found.apply(params, X), found.apply(params, X)) and found.apply_train is not None
    assert not np.allclose(found.apply_train(params, X, KEY)[0], found.apply(params, X))
    assert models.from_linen(Needs(), X[:1], deterministic=True, train_options={}).apply_train is not None

    class Switched(nnx.Module):
        def __init__(self, rngs):
            self.out, self.drop = nnx.Linear(4, 3, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)

        def __call__(self, x, train: bool = True):
            return self.out(self.drop(x, deterministic=not train))

    net = models.from_nnx(lambda rngs: Switched(rngs))
    start = net.init(KEY)
    exact = X @ np.asarray(start["out"]["kernel"]) + np.asarray(start["out"]["bias"])
    np.testing.assert_allclose(net.apply(start, jnp.asarray(X)), exact, rtol=1e-4, atol=1e-5)
    assert not np.allclose(net.apply_train(start, jnp.asarray(X), KEY)[0], exact)
