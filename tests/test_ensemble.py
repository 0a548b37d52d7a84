"""Deep ensembles: the same engine with points."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

import training_toys as toys
from bayesin import Ensemble, fit_ensemble
from bayesin.inference.training_step import INIT

KEY = jax.random.key(5)


def test_one_step_is_weight_decay():
    model, (x, y) = toys.mlp(), toys.blobs()
    config = Ensemble(members=2, epochs=1, batch=60, optimiser="sgd", momentum=0.0, learning_rate=0.3)
    config = dataclasses.replace(config, schedule="constant", prior_variance=0.05)
    found = fit_ensemble(KEY, model, (x, y), config).posterior
    start = model.init(jax.random.fold_in(jax.random.fold_in(KEY, 1), INIT))

    def loss(params):
        logs = jax.nn.log_softmax(model.apply(params, x))
        decay = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params)) / (2 * len(x) * 0.05)
        return -jnp.take_along_axis(logs, jnp.asarray(y)[:, None], 1).mean() + decay

    expected = jax.tree.map(lambda w, g: w - 0.3 * g, start, jax.grad(loss)(start))
    for a, b in zip(jax.tree.leaves(found[1]), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


def test_members_do_not_depend_on_their_number_and_keep_statistics():
    model, data = toys.gained(), toys.blobs()
    one = fit_ensemble(KEY, model, data, Ensemble(members=1, epochs=2, batch=20)).posterior
    three = fit_ensemble(KEY, model, data, Ensemble(members=3, epochs=2, batch=20)).posterior
    assert toys.same_bits(one[0], three[0]) and not toys.same_bits(three[1], three[2])
    np.testing.assert_array_equal(three.params["seen"], np.full((3, 4), 0.5, np.float32))
    np.testing.assert_array_equal(three.params["count"], [[0, 1]] * 3)


def test_trace_has_no_stds():
    fit = fit_ensemble(KEY, toys.mlp(), toys.blobs(), Ensemble(members=2, epochs=20, batch=20, prior_variance=1.0))
    assert "kl" not in fit.trace and "std_mean" not in fit.trace
    assert fit.trace["loss"].shape == (20, 2) and (fit.trace["loss"][-1] < fit.trace["loss"][0]).all()
