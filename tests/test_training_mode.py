"""Networks that do something else in training: batch statistics, running statistics, dropout; in every library.

The oracle is arithmetic: with a learning rate of zero and the whole set in every batch, the running mean of the
inputs is `(1 − d^n) · mean` after n steps, and the variance goes likewise from 1 to that of the inputs.
"""

import dataclasses
import warnings
from functools import cache, partial

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
    SGMCMC,
    SWAG,
    VI,
    Ensemble,
    Laplace,
    discover,
    fit_ensemble,
    fit_hmc,
    fit_laplace,
    fit_sgmcmc,
    fit_swag,
    fit_vi,
    geodesic,
    models,
    recalibrate,
    rescale,
)
from bayesin.errors import LeftBehindWarning, ModelError
from bayesin.inference import HMC
from bayesin.inference.training_problem import initialise
from bayesin.models import Model
from bayesin.trees import flatten

pytestmark = pytest.mark.promotes
KEY = jax.random.key(0)
X, Y = toys.blobs()
DECAY = 0.9
STILL = Ensemble(members=2, epochs=7, batch=len(X), learning_rate=0.0)


def _nnx():
    class Net(nnx.Module):
        def __init__(self, rngs):
            self.norm = nnx.BatchNorm(4, momentum=DECAY, rngs=rngs)
            self.drop = nnx.Dropout(0.5, rngs=rngs)
            self.out = nnx.Linear(4, 3, rngs=rngs)

        def __call__(self, x):
            return self.out(self.drop(self.norm(x)))

    return models.from_nnx(Net)


class _Linen(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.BatchNorm(use_running_average=not train, momentum=DECAY)(x)
        return nn.Dense(3)(nn.Dropout(0.5, deterministic=not train)(x))


def _equinox(key, mode="ema"):
    class Net(eqx.Module):
        norm: eqx.nn.BatchNorm
        drop: eqx.nn.Dropout
        out: eqx.nn.Linear

        def __call__(self, x, state, key=None):
            x, state = self.norm(x, state)
            return self.out(self.drop(x, key=key)), state

    def make():
        norm = eqx.nn.BatchNorm(4, "examples", momentum=DECAY, mode=mode)
        return Net(norm, eqx.nn.Dropout(0.5), eqx.nn.Linear(4, 3, key=key))

    return eqx.nn.make_with_state(make)()


def _haiku(x, is_training):
    x = hk.BatchNorm(True, True, DECAY)(x, is_training)
    return hk.Linear(3)(hk.dropout(hk.next_rng_key(), 0.5, x) if is_training else x)


def _haiku_deep(x, is_training):
    return hk.Linear(3)(jax.nn.relu(hk.BatchNorm(True, True, DECAY)(hk.Linear(6)(x), is_training)))


def _functions(params, x):
    return ((x - params["mean"]) / jnp.sqrt(params["var"] + 1e-5)) @ params["w"]


def _functions_in_training(params, x, key):
    mean, var = x.mean(0), x.var(0)
    kept = jax.random.bernoulli(key, 0.5, x.shape) / 0.5
    outputs = ((x - mean) / jnp.sqrt(var + 1e-5) * kept) @ params["w"]
    moved = {"mean": DECAY * params["mean"] + (1 - DECAY) * mean, "var": DECAY * params["var"] + (1 - DECAY) * var}
    return outputs, params | moved


def _deep_in_training(params, x, key):
    hidden = x @ params["first"]
    mean = hidden.mean(0)
    return jnp.tanh(hidden - mean) @ params["w"], params | {"mean": DECAY * params["mean"] + (1 - DECAY) * mean}


@cache
def adapted(library) -> Model:
    if library == "nnx":
        return _nnx()
    if library == "linen":
        return models.from_linen(_Linen(), X[:1], train=False)
    if library == "equinox":
        return models.from_equinox(_equinox)
    if library == "equinox, debiased":
        return models.from_equinox(partial(_equinox, mode="batch"))
    if library == "haiku":
        return models.from_haiku(hk.transform_with_state(_haiku), X[:1], is_training=False)
    if library == "functions deep":  # statistics behind weights that are trained
        return models.from_functions(
            lambda key: {
                "mean": jnp.zeros(3),
                "first": jax.random.normal(key, (4, 3)),
                "w": jax.random.normal(jax.random.fold_in(key, 1), (3, 3)),
            },
            lambda params, x: jnp.tanh(x @ params["first"] - params["mean"]) @ params["w"],
            statistics=["mean"],
            apply_train=_deep_in_training,
        )
    return models.from_functions(
        lambda key: {"mean": jnp.zeros(4), "var": jnp.ones(4), "w": jax.random.normal(key, (4, 3))},
        _functions,
        statistics=["mean", "var"],
        apply_train=_functions_in_training,
    )


LIBRARIES = ("nnx", "linen", "equinox", "equinox, debiased", "haiku", "functions")
# Haiku and Equinox's newer mode divide by 1 − d^n, so that the start is forgotten at once; Equinox's other mode
# takes the first batch whole.
DEBIASED = {"haiku", "equinox, debiased", "equinox"}


@pytest.mark.parametrize("library", LIBRARIES)
def test_statistics_are_collected_by_members_and_evaluation_uses_them(library):
    model = adapted(library)
    fit = fit_ensemble(KEY, model, (X, Y), STILL)
    for member in range(2):
        params = jax.tree.map(lambda leaf, at=member: leaf[at], fit.posterior.params)
        forgotten = 0.0 if library in DEBIASED else DECAY**STILL.epochs
        mean, var = (1 - forgotten) * X.mean(0), (1 - forgotten) * X.var(0) + forgotten
        normalised = (X - mean) / np.sqrt(var + 1e-5)
        expected = _dense(params, normalised)
        if library == "equinox, debiased":  # its hidden variance starts at 1 and is debiased as if at 0
            debiased = 1 - DECAY**STILL.epochs
            expected = _dense(params, (X - X.mean(0)) / np.sqrt(X.var(0) + (1 - debiased) / debiased + 1e-5))
        np.testing.assert_allclose(model.apply(params, X), expected, rtol=1e-3, atol=1e-3)
        start = initialise(model, jax.random.fold_in(KEY, member))
        assert all(
            np.array_equal(leaf, flatten(params)[path])
            for path, leaf in flatten(start).items()
            if path not in model.statistics
        )


def _dense(params, x):
    flat = {path: np.asarray(leaf, np.float64) for path, leaf in flatten(params).items()}
    weight = next(leaf for leaf in flat.values() if leaf.size == 12)
    bias = sum((leaf for leaf in flat.values() if leaf.shape == (3,)), np.zeros(3))
    return x @ (weight if weight.shape == (4, 3) else weight.T) + bias


@pytest.mark.parametrize("library", LIBRARIES)
def test_dropout_follows_its_key_in_training_and_is_off_in_evaluation(library):
    model = adapted(library)
    params = model.init(KEY)
    one, again, other = (model.apply_train(params, X, jax.random.key(seed))[0] for seed in (1, 1, 2))
    assert np.array_equal(one, again)
    assert not np.allclose(one, other)
    assert np.array_equal(model.apply(params, X), model.apply(params, X))


@pytest.mark.parametrize("library", LIBRARIES)
def test_recalibration_finds_the_statistics_of_the_data(library):
    model = adapted(library)
    params = recalibrate(model.init(KEY), model, X, key=KEY, batch=20)
    within = X.reshape(3, 20, 4).var(1).mean(0)  # what a running variance is an average of
    np.testing.assert_allclose(
        model.apply(params, X), _dense(params, (X - X.mean(0)) / np.sqrt(within + 1e-5)), rtol=2e-3, atol=2e-3
    )


def test_a_gaussian_keeps_statistics_as_certain_leaves_and_resumes_to_the_bit(tmp_path):
    model = adapted("nnx")
    config = VI(epochs=6, batch=20, learning_rate=1e-2, members=2, train_samples=2, checkpoint_epochs=2)
    whole = fit_vi(KEY, model, (X, Y), config)
    for posterior in whole.posteriors:
        assert float(jnp.abs(posterior.mean["norm"]["mean"]).max()) > 0.1
        assert not np.any(posterior.std["norm"]["mean"]) and not np.any(posterior.std["norm"]["var"])
        assert float(posterior.std["out"]["kernel"].min()) > 0

    def stop(progress):
        if progress.step >= 9 and not progress.resumed:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_vi(KEY, model, (X, Y), config, checkpoint=tmp_path, on_progress=stop)
    resumed = fit_vi(KEY, model, (X, Y), config, checkpoint=tmp_path)
    assert toys.same_bits(whole.posteriors, resumed.posteriors)


def test_members_side_by_side_collect_what_they_collect_alone():
    model = adapted("nnx")
    together, alone = (
        fit_ensemble(KEY, model, (X, Y), dataclasses.replace(STILL, learning_rate=1e-2, parallel=parallel))
        for parallel in ("vmap", "sequence")
    )
    for one, other in zip(*map(jax.tree.leaves, (together.posterior, alone.posterior)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_recalibration_of_a_gaussian_averages_over_its_draws_and_of_samples_over_each():
    model = adapted("nnx")
    fit = fit_vi(KEY, model, (X, Y), VI(epochs=2, batch=20))
    moved = recalibrate(fit.posterior, model, X, key=KEY, batch=len(X))
    np.testing.assert_allclose(moved.mean["norm"]["mean"], X.mean(0), rtol=1e-3, atol=1e-4)
    assert np.array_equal(moved.mean["out"]["kernel"], fit.posterior.mean["out"]["kernel"])
    assert np.array_equal(moved.std["out"]["kernel"], fit.posterior.std["out"]["kernel"])
    samples = fit_ensemble(KEY, model, (X, Y), STILL).posterior
    found = recalibrate(samples, model, X, key=KEY)
    np.testing.assert_allclose(found.params["norm"]["var"], np.stack([X.var(0)] * 2), rtol=1e-3)


def test_methods_that_end_elsewhere_than_their_last_step_have_statistics_of_where_they_end():
    model = adapted("functions deep")
    quick = {"epochs": 8, "batch": 20}
    swag = fit_swag(KEY, model, (X, Y), SWAG(rank=2, **quick)).posterior
    chain = fit_sgmcmc(KEY, model, (X, Y), SGMCMC(samples=3, **quick)).posterior
    for params in (swag.mean, chain[0], chain[2]):
        np.testing.assert_allclose(params["mean"], (X @ np.asarray(params["first"])).mean(0), rtol=0.05, atol=0.02)
    laplace = fit_laplace(KEY, model, (X, Y), Laplace(**quick)).posterior
    assert np.any(laplace.mean["mean"]) and not np.any(laplace.std["mean"])


def test_statistics_that_no_verb_can_honour_are_refused_by_name():
    class Fixed(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(3)(nn.BatchNorm(use_running_average=True)(x))

    silent = models.from_linen(Fixed(), X[:1])
    with pytest.raises(ModelError, match=r"batch_stats/BatchNorm_0/mean.*train_options.*frozen"):
        fit_vi(KEY, silent, (X, Y), VI(epochs=1))
    held = fit_vi(KEY, models.frozen(silent), (X, Y), VI(epochs=1)).posterior
    assert not np.any(held.mean["batch_stats"]["BatchNorm_0"]["mean"])
    with pytest.raises(ModelError, match="frozen"):
        fit_hmc(KEY, adapted("nnx"), (X, Y), HMC(samples=1, burn_in=1))
    with pytest.raises(ModelError, match="no training mode"):
        recalibrate(toys.mlp().init(KEY), toys.mlp(), X, key=KEY)


def test_statistics_that_are_no_running_averages_are_refused():
    model = models.from_functions(
        lambda key: {"most": jnp.zeros(4), "w": jnp.ones((4, 3))},
        lambda params, x: x @ params["w"],
        statistics=["most"],
        apply_train=lambda params, x, key: (
            x @ params["w"],
            params | {"most": jnp.maximum(params["most"], x.max(0))},
        ),
    )
    with pytest.raises(ModelError, match=r"'most' is not a running average"):
        recalibrate(model.init(KEY), model, X, key=KEY)


def test_hmc_runs_a_frozen_network_in_evaluation_mode():
    model = models.frozen(adapted("functions"))
    fit = fit_hmc(KEY, model, (X, Y), HMC(samples=2, burn_in=2, chains=2, steps=2, step_size=0.1))
    params = fit.posterior.params
    assert params["mean"].shape == (4, 4) and not np.any(params["mean"]) and np.all(np.asarray(params["var"]) == 1)
    assert len(np.unique(np.asarray(params["w"])[:, 0, 0])) > 1


def test_haiku_without_apply_rng_and_state_is_trained():
    model = models.from_haiku(hk.without_apply_rng(hk.transform(lambda x: hk.Linear(3)(x))), X[:1])
    fit = fit_ensemble(KEY, model, (X, Y), Ensemble(members=1, epochs=20, batch=20, learning_rate=0.05))
    assert fit.trace["accuracy"][-1].min() > 0.8


def test_statistics_that_training_alone_reads_are_no_surprise():
    """Haiku keeps averages beside the debiased ones that evaluation reads; a bare apply cannot know what they are."""
    wide = models.from_haiku(hk.transform_with_state(_haiku_deep), X[:1])
    params = wide.init(KEY)
    with pytest.warns(LeftBehindWarning, match="hidden"):
        discover(wide.apply, params, X[:2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert discover(wide, params, X[:2]).sizes == {"g0": 6}
        path = rescale(geodesic(params, wide.init(jax.random.key(1))), wide, X, key=KEY)
    # Its variances have the shape (1, 6) of a kernel; where they were drawn like one, no unit was found.
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(path(0.5).mean))
