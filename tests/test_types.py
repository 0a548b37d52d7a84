"""Annotations are true: public verbs, checked by jaxtyping and beartype, take what they say and refuse the rest."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from beartype import beartype
from jaxtyping import TypeCheckError, jaxtyped

import bayesin
import networks
from posterior_table import SPEC, posteriors

KEY = jax.random.key(0)
X, Y = networks.data(10)
TABLE = posteriors()
VERBS = {
    "predict": lambda verb, q: verb(q, networks.apply, X, key=KEY, samples=2),
    "evaluate": lambda verb, q: verb(q, networks.apply, (X, Y), key=KEY, samples=2),
    "marginal_loss": lambda verb, q: verb(q, networks.apply, (X, Y), key=KEY, samples=2),
    "barrier": lambda verb, q: verb(lambda tau: q, networks.apply, (X, Y), key=KEY, samples=2, taus=3),
    "geodesic": lambda verb, q: verb(q, q),
    "mixture": lambda verb, q: verb(q, q),
    "wasserstein": lambda verb, q: verb(q, q),
    "align": lambda verb, q: verb(q, q, SPEC, key=KEY),
}
NO_DISTANCE = ("mixture", "wasserstein")  # of a sample set


def checked(name: str):
    return jaxtyped(getattr(bayesin, name), typechecker=beartype)


@pytest.mark.parametrize("name", [n for n in dir(bayesin) if inspect.isfunction(getattr(bayesin, n)) and n[0] != "_"])
def test_annotations_of_every_public_function_can_be_checked(name):
    assert callable(checked(name))
    signature = inspect.signature(getattr(bayesin, name))
    bare = [p.name for p in signature.parameters.values() if p.annotation is inspect.Parameter.empty]
    assert not bare and signature.return_annotation is not inspect.Signature.empty, f"{name}: {bare}"


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", TABLE)
def test_every_verb_takes_every_posterior_as_annotated(verb, name):
    if name == "samples" and verb in NO_DISTANCE:
        with pytest.raises(bayesin.errors.PosteriorError):
            VERBS[verb](checked(verb), TABLE[name])
    else:
        VERBS[verb](checked(verb), TABLE[name])


@pytest.mark.parametrize(
    "call",
    [
        lambda: checked("evaluate")(TABLE["gaussian"], networks.apply, (X, Y[:-1]), key=KEY),
        lambda: checked("barrier")(lambda tau: TABLE["point"], networks.apply, (X[:3], Y), key=KEY),
        lambda: checked("predict")(TABLE["gaussian"], networks.apply, np.float32(1.0), key=KEY),
        lambda: checked("evaluate")(TABLE["gaussian"], networks.apply, (X, Y), key=jnp.zeros((2, 2))),
        lambda: checked("marginal_loss")(TABLE["gaussian"], networks.apply, (X, Y), key=KEY, samples=2.5),
        lambda: jaxtyped(bayesin.LowRankGaussian.at, typechecker=beartype)(TABLE["lowrank"], jnp.zeros((3,), int)),
    ],
    ids=["targets", "inputs", "scalar", "key", "samples", "noise"],
)
def test_wrong_shapes_and_kinds_are_refused(call):
    with pytest.raises(TypeCheckError):
        call()
