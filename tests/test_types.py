"""Annotations are true: public verbs, checked by jaxtyping and beartype, take what they say and refuse the rest."""

import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping

import equinox as eqx
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


def public_signatures() -> Iterator[tuple[str, Callable]]:
    """Functions of the package, and methods and properties of its classes, by name."""
    for name in sorted(bayesin._HOME_OF):  # pyright: ignore[reportAttributeAccessIssue]
        value = getattr(bayesin, name)
        if inspect.isfunction(value):
            yield name, value
        for member, inner in vars(value).items() if inspect.isclass(value) else ():
            inner = inner.fget if isinstance(inner, property) else getattr(inner, "__func__", inner)
            if inspect.isfunction(inner) and not member.startswith("_"):
                yield f"{name}.{member}", inner


def says_nothing(annotation: object) -> bool:
    """Whether it is `Any` or holds it, other than as the values of JSON or the inner terms of a spec."""
    if annotation is typing.Any:
        return True
    kind, inside = typing.get_origin(annotation), typing.get_args(annotation)
    if (kind in (dict, Mapping) and inside == (str, typing.Any)) or inside == (typing.Any, ...):
        return False
    parts = [part for inner in inside for part in (inner if isinstance(inner, list) else [inner])]
    return any(map(says_nothing, parts))


# Passed on to `align`; JSON of any kind, of which the message says what is wrong.
UNTYPED = {("align_files", "options"), ("PermutationSpec.from_json", "data")}
# A point is a plain parameter tree for every verb, so also in a file.
OF_TWO_KINDS = {"load_posterior"}


def test_public_signatures_say_what_they_take_and_return_one_kind():
    signatures = {name: typing.get_type_hints(function) for name, function in public_signatures()}
    vague = {(name, role) for name, hints in signatures.items() for role, hint in hints.items() if says_nothing(hint)}
    assert vague == UNTYPED
    unions = {
        name
        for name, hints in signatures.items()
        if typing.get_origin(hints.get("return")) in (typing.Union, types.UnionType)
        and len(set(typing.get_args(hints["return"])) - {type(None)}) > 1
    }
    assert unions == OF_TWO_KINDS
    assert len(signatures) > 100


@pytest.mark.parametrize("name", bayesin._HOME_OF)  # pyright: ignore[reportAttributeAccessIssue]
def test_results_have_a_short_repr_of_their_own(name):
    value = getattr(bayesin, name)
    if inspect.isclass(value) and issubclass(value, eqx.Module) and not inspect.isabstract(value):
        assert value.__repr__ is not eqx.Module.__repr__


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
