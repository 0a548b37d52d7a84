"""Mistakes of the first hour: each ends in one line that says what to do, not in a traceback from deep inside."""

from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx

import bayesin
from bayesin import data
from bayesin.errors import ConfigError, DataError, ModelError, PosteriorError
from bayesin.evaluation import evaluate
from bayesin.inference.training_loop import _warn_of_a_poor_fit
from bayesin.models import from_nnx

KEY = jax.random.key(0)


def network(rngs):
    return nnx.Sequential(nnx.Linear(3, 4, rngs=rngs), nnx.relu, nnx.Linear(4, 2, rngs=rngs))


MODEL = from_nnx(network)
PARAMS = MODEL.init(KEY)
X, Y = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32), np.arange(6) % 2
SPEC = bayesin.discover(MODEL.apply, PARAMS, X[:2])
SAMPLES = bayesin.Samples.stack([PARAMS, PARAMS])
POINT = bayesin.Gaussian.point(PARAMS)
SPREAD = bayesin.Gaussian(PARAMS, jax.tree.map(np.ones_like, PARAMS))
ONE = {"w": np.ones((3, 1), np.float32)}  # one output: a regression, or one class
apply_one = lambda params, x: x @ params["w"]  # noqa: E731
STATE_DICT = {"w": type("Tensor", (), {"__module__": "torch", "shape": (3, 1), "dtype": "float32"})()}
CHAINS = bayesin.Samples(jax.tree.map(lambda leaf: np.zeros((2, 5, *leaf.shape), np.float32), PARAMS))
FIT = bayesin.Fit((SPREAD, SPREAD), {}, bayesin.VI(), (bayesin.Categorical(),) * 2)
ALIGNED = bayesin.align(PARAMS, PARAMS, SPEC, key=KEY)


def labelled(y):
    return bayesin.fit_ensemble(KEY, MODEL, (X, y), bayesin.Ensemble(epochs=1))


@pytest.mark.parametrize(
    ("mistake", "kind", "says"),
    [
        (lambda: bayesin.align(PARAMS, PARAMS, SPEC, key=3), ConfigError, r"write jax\.random\.key\(3\)"),
        (lambda: bayesin.verify(MODEL.apply, PARAMS, X, SPEC, key=3), ConfigError, "jax.random"),
        (lambda: bayesin.compact(SAMPLES, SPEC, key=3), ConfigError, "jax.random"),
        (lambda: evaluate(SPREAD, MODEL.apply, (X, Y), key=3), ConfigError, "jax.random"),
        (lambda: bayesin.fit_vi(3, MODEL, (X, Y), bayesin.VI()), ConfigError, "jax.random"),
        (lambda: bayesin.geodesic(POINT, SAMPLES), PosteriorError, "bayesin.compact"),
        (
            lambda: bayesin.barrier(bayesin.geodesic(POINT, POINT), MODEL.apply, MODEL, key=KEY),
            DataError,
            r"a pair \(x, y\)",
        ),
        (lambda: bayesin.fit_vi(KEY, network(nnx.Rngs(0)), (X, Y), bayesin.VI()), ModelError, "models.from_nnx"),
        (lambda: bayesin.fit_ensemble(KEY, network, (X, Y), bayesin.Ensemble()), ModelError, "models.from_nnx"),
        (lambda: bayesin.fit_vi(KEY, MODEL, (X, Y), bayesin.Ensemble()), ConfigError, r"VI\(...\), not Ensemble"),
        (lambda: bayesin.fit_ensemble(KEY, MODEL, (X, Y), bayesin.VI()), ConfigError, "not VI"),
        (lambda: bayesin.VI(epoch=3), ConfigError, "VI has no setting 'epoch'; did you mean 'epochs'?"),
        (lambda: bayesin.predict(ONE, apply_one, X, key=None), ConfigError, "likelihood='gaussian'"),
        (lambda: bayesin.compact(CHAINS, SPEC, key=KEY), PosteriorError, "Samples.from_chains"),
        (lambda: bayesin.Ensemble(colour=3), ConfigError, "settings are members"),
        (lambda: data.load("MNIST"), DataError, "did you mean 'mnist'"),
        (
            lambda: bayesin.align(PARAMS, PARAMS, SPEC, key=KEY, cost=lambda p, q: 3),
            ConfigError,
            "are 3; return a list",
        ),
        (
            lambda: bayesin.align(PARAMS, PARAMS, SPEC, key=KEY, cost=lambda p, q: np.sum(p.mean)),
            ConfigError,
            r"return a list of pairs of arrays, such as \[\(target.mean, source.mean\)\]",
        ),
        (lambda: bayesin.align(STATE_DICT, STATE_DICT, SPEC, key=KEY), PosteriorError, r"'w'.*models\.from_torch"),
        (lambda: bayesin.discover(apply_one, STATE_DICT, X[:2]), ModelError, r"'w'.*models\.from_torch"),
        (lambda: bayesin.discover("net", PARAMS, X[:2]), ModelError, r"a Model or a function apply\(params, x\)"),
        (lambda: bayesin.align(FIT, FIT, SPEC, key=KEY), PosteriorError, r"\.posterior or one of its \.posteriors"),
        (lambda: bayesin.geodesic(POINT, ALIGNED), PosteriorError, r"Alignment holds a posterior .* its \.posterior"),
        (lambda: bayesin.save_posterior("q.safetensors", FIT), PosteriorError, "Fit holds a posterior"),
        (lambda: bayesin.align_many(FIT, SPEC, key=KEY), PosteriorError, "such as fit.posteriors"),
        (lambda: bayesin.merge(FIT, SPEC, key=KEY), PosteriorError, "such as fit.posteriors"),
        (lambda: labelled(np.eye(2)[Y]), DataError, r"one-hot rows give y\.argmax\(1\)"),
        (lambda: labelled(Y.astype(float)), DataError, r"of labels give y\.astype\(int\)"),
        (lambda: labelled(Y[:, None]), DataError, r"give y\[:, 0\]"),
        (lambda: labelled(Y.astype(str)), DataError, r"np\.unique\(y, return_inverse=True\)\[1\]"),
        (lambda: labelled(Y + 1), DataError, "labels count from 0"),
        (lambda: data.from_arrays(X, Y.astype(str), X, Y.astype(str)), DataError, "numbers names"),
        (lambda: bayesin.save_posterior("q.safetensors", "q"), PosteriorError, r"path comes first"),
        (lambda: bayesin.linearised(MODEL, SAMPLES), PosteriorError, "no one place to expand"),
    ],
)
def test_a_mistake_is_named(mistake, kind, says):
    with pytest.raises(kind, match=says) as error:
        mistake()
    assert "\n" not in str(error.value)


def test_a_fit_that_stays_poor_says_what_to_try():
    problem: Any = SimpleNamespace(arrays=SimpleNamespace(y=np.arange(10) % 2), config=bayesin.VI())
    trace = {"step": np.array([1000]), "accuracy": np.array([[0.55]])}
    with pytest.warns(UserWarning, match=r"accuracy is 55%.*larger prior_variance .*FanIn"):
        _warn_of_a_poor_fit(problem, trace)


def test_bytes_are_named():
    with jax.numpy_dtype_promotion("standard"), pytest.warns(UserWarning, match="these inputs are bytes"):
        bayesin.predict(ONE | {"w": np.ones((3, 2), np.float32)}, apply_one, np.full((2, 3), 200, np.uint8), key=None)


def test_members_of_a_sample_set_come_to_an_end():
    assert len([*SAMPLES]) == 2


def test_settings_can_still_be_copied():
    import copy
    import dataclasses
    import pickle

    settings = bayesin.VI(epochs=3)
    for other in (copy.copy(settings), copy.deepcopy(settings), pickle.loads(pickle.dumps(settings))):
        assert other == settings
    assert dataclasses.replace(settings, epochs=4).epochs == 4
