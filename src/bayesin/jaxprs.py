"""Jaxprs: the one place that traces an `apply(params, x)` and looks at what it computes.

A jaxpr is a list of equations, some of which hold jaxprs of their own (calls, loops, branches). `equations` lists
all of them; `interpret` follows a program from its inputs to its outputs, with arrays (`values`) or with anything
else that an equation can be given a meaning for (discovery carries the axes of arrays).
"""

import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, jaxprs_in_params

from .errors import BayesinError, ModelError, first_line
from .inputs import Inputs, shapes_of
from .trees import OF_TORCH, Flat, Tree, flatten, of_torch

Apply = Callable[[Tree, Inputs], Tree]  # (params, x) -> outputs, pure and traceable

# Calls that compute what their inner jaxpr computes, whatever else they say about derivatives or compilation.
TRANSPARENT = ("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call")
WRITTEN_OUT = 5_000  # equations that a network may have when its loops are written out; more compile for minutes


def trace(apply: Apply, params: Tree, x: Any) -> ClosedJaxpr:
    """Returns the closed jaxpr of `apply(params, x)`.

    Args:
        apply: a pure function that JAX can trace.
        params: arrays, or `jax.ShapeDtypeStruct` objects.
        x: one input, the same way.

    Raises:
        ModelError: `apply` is not a function of arrays, or fails on these shapes.
    """
    check_callable(apply)
    try:
        jaxpr = _jaxpr(apply, params, x)
    except BayesinError:
        raise
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError) as error:
        raise ModelError(
            f"apply cannot be traced, since it looks at values ({first_line(error)}); "
            "write its branches with jnp.where or jax.lax.cond, and its arrays with jax.numpy"
        ) from error
    except Exception as error:  # whatever a user's network raises while it is traced
        raise ModelError(
            f"apply fails on params and an input of {_shapes(x)}: {type(error).__name__}: {first_line(error)}"
        ) from error
    if not jaxpr.jaxpr.outvars:
        raise ModelError("apply returns no arrays")
    return jaxpr


def check_arrays(tree: Tree, what: str) -> Flat:
    """Returns the leaves by path, all of them arrays with entries.

    Raises:
        ModelError: there are no leaves, or one of them is not an array; `what` names the tree.
    """
    try:
        flat = flatten(tree)
    except (TypeError, ValueError) as error:  # keys that cannot be sorted, two leaves of one path
        raise ModelError(f"{what} is not a tree of arrays: {first_line(error)}") from error
    if not flat:
        raise ModelError(f"{what} has no arrays")
    for path, leaf in flat.items():
        where = f"{what}: '{path}'" if path else what
        if of_torch(leaf):
            raise ModelError(f"{where} {OF_TORCH}")
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            raise ModelError(f"{where} is a {type(leaf).__name__}, not an array; keep settings out of the tree")
        if isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.kind not in "biufcV":
            raise ModelError(f"{where} holds {leaf.dtype}, which is not a type of numbers")
        if 0 in leaf.shape:
            raise ModelError(f"{where} is empty: its shape is {tuple(leaf.shape)}")
    return flat


def check_callable(apply: Any) -> None:
    """Raises `ModelError` for something that cannot be called with (params, x)."""
    if not callable(apply):
        raise ModelError(f"the network is a Model or a function apply(params, x), not {type(apply).__name__}")


def hashable(apply: Apply) -> Apply:
    """`apply` as something that a compiled program can be looked up by.

    Raises:
        ModelError: it is not callable.
    """
    check_callable(apply)
    if isinstance(apply, tuple):  # a Model, whose programs are those of its apply
        apply = apply.apply  # pyright: ignore[reportAttributeAccessIssue]
    try:
        hash(apply)
    except TypeError:  # a callable that holds arrays, such as an Equinox module
        return lambda params, x: apply(params, x)
    return apply


_JITTED: weakref.WeakKeyDictionary[Callable[..., Any], Any] = weakref.WeakKeyDictionary()


def jitted(function: Callable[..., Any]) -> Any:
    """Returns `jax.jit(function)`, the same one for as long as the function lives; the caller keeps it alive.

    JAX keeps what it finds in a trace until the function is gone, and `jax.make_jaxpr`, `jax.eval_shape` and a new
    `jax.jit` each look for nothing that was found before: a network that lives on gathered another record with every
    question. Asked through this, it is traced once for each kind of arguments.
    """
    if type(function).__eq__ is not object.__eq__:  # equal ones are looked up as one, and one may go before the other
        return jax.jit(function)
    try:
        known = _JITTED.get(function)
    except TypeError:  # something of which one cannot know when it is gone
        return jax.jit(function)
    if known is None:
        alive = weakref.ref(function)  # else what is kept of it would keep it

        def call(*args: Any) -> Any:
            return cast(Any, alive())(*args)

        call.__name__ = call.__qualname__ = getattr(function, "__name__", type(function).__name__)
        known = _JITTED[function] = jax.jit(call)
    return known


def output_shapes(function: Callable[..., Any], *args: Any) -> Any:
    """Returns the shapes and dtypes of what a function returns, as `jax.eval_shape` does, traced but once."""
    return jax.eval_shape(jitted(function), *args)


def statistics_of(apply: Apply) -> frozenset[str]:
    """The running statistics that a `Model` names; a plain function names none."""
    return apply.statistics if isinstance(apply, tuple) else frozenset()  # pyright: ignore[reportAttributeAccessIssue]


def in_precision(apply: Apply, compute: str) -> Apply:
    """A network that computes in another precision; its outputs are float32."""
    if compute == "float32":
        return apply
    narrow = lambda tree: jax.tree.map(  # noqa: E731
        lambda leaf: leaf.astype(compute) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, tree
    )
    return lambda params, x: apply(narrow(params), narrow(x)).astype(jnp.float32)


def equations(jaxpr: Jaxpr) -> Iterator[JaxprEqn]:
    """Yields every equation of a jaxpr, and after it those of the jaxprs that it holds."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from equations(inner)


def has_convolution(apply: Apply, params: Tree, x: Any) -> bool:
    """Whether a convolution stands anywhere in the network; vmapped over weights it becomes a slow grouped one."""
    return convolves(_jaxpr(apply, params, x).jaxpr)


def convolves(jaxpr: Jaxpr) -> bool:
    """Whether a convolution stands anywhere in a program."""
    return any(equation.primitive.name == "conv_general_dilated" for equation in equations(jaxpr))


def activation_bytes(apply: Apply, params: Tree, x: Any) -> int:
    """Bytes of the largest intermediate array of one example, its input included.

    What grows with the batch belongs to the examples: the program is traced for one and for three of them, and
    the difference is that of two. Copies of parameters, which do not grow, cancel.
    """
    one, three = (_output_bytes(apply, params, shapes_of(x, n)) for n in (1, 3))
    own = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes_of(x, 1)))
    if len(one) != len(three):  # the program depends on the batch size
        return max([own, *three])
    return max([own, *((large - small) // 2 for small, large in zip(one, three, strict=True))])


def coarsest_eps(jaxpr: Jaxpr) -> float:
    """The coarsest spacing of floating-point numbers that a program rounds to; 0 where it computes none."""
    kinds = {getattr(variable.aval, "dtype", None) for equation in equations(jaxpr) for variable in equation.outvars}
    spacings = [jnp.finfo(kind).eps for kind in kinds if kind is not None and jnp.issubdtype(kind, jnp.inexact)]
    return float(max(spacings, default=0.0))


def interpret(
    jaxpr: Jaxpr,
    consts: Sequence[Any],
    inputs: Sequence[Any],
    step: Callable[[int, JaxprEqn, list[Any]], Sequence[Any]],
    constant: Callable[[Any], Any] = lambda value: value,
) -> list[Any]:
    """Returns what a jaxpr makes of its inputs, when `step` says what each equation makes of its own.

    What is carried from equation to equation need not be arrays: discovery carries axes.

    Args:
        jaxpr: the equations.
        consts: one entry for each of its `constvars`.
        inputs: one entry for each of its `invars`.
        step: from the place of an equation, the equation and its inputs to its outputs.
        constant: from the value of a literal to what is carried for it.
    """
    known = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *inputs], strict=True))

    def read(atom: Any) -> Any:
        return constant(atom.val) if isinstance(atom, Literal) else known[atom]

    for place, equation in enumerate(jaxpr.eqns):
        outputs = step(place, equation, [read(atom) for atom in equation.invars])
        known.update(zip(equation.outvars, outputs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def values(apply: Apply, params: Tree, x: Any) -> list[Any]:
    """Returns every value that `apply` computes, in the order of evaluation. May be traced.

    Calls (`jit`, custom derivatives) are entered; of loops and branches only the results are seen.
    """
    computed: list[Any] = []

    def step(equation: JaxprEqn, inputs: list[Any]) -> list[Any]:
        outputs = evaluate(equation, inputs)
        computed.extend(outputs)
        return outputs

    follow(apply, params, x, [*jax.tree.leaves(params), *jax.tree.leaves(x)], step)
    return computed


def evaluate(equation: JaxprEqn, inputs: Sequence[Any]) -> list[Any]:
    """Returns what one equation makes of arrays."""
    outputs = equation.primitive.bind(*inputs, **equation.primitive.get_bind_params(equation.params))
    return list(outputs) if equation.primitive.multiple_results else [outputs]


def follow(
    apply: Apply,
    params: Tree,
    x: Any,
    inputs: Sequence[Any],
    step: Callable[[JaxprEqn, list[Any]], list[Any]],
    constant: Callable[[Any], Any] = lambda value: value,
) -> list[Any]:
    """Follows `apply(params, x)`, calls entered, from what is carried for each leaf of both to what for its outputs.

    `step` makes the outputs of an equation that is no call from its inputs.
    """

    closed, enter = trace(apply, params, x), _entering(step, constant)
    return interpret(closed.jaxpr, [constant(value) for value in closed.consts], inputs, enter, constant)


def _entering(
    step: Callable[[JaxprEqn, list[Any]], list[Any]], constant: Callable[[Any], Any] = lambda value: value
) -> Callable[[int, JaxprEqn, list[Any]], list[Any]]:
    """The step of `interpret` that goes through calls, and makes `step` of every other equation."""

    def enter(place: int, equation: JaxprEqn, carried: list[Any]) -> list[Any]:
        inner = _transparent(equation)
        if inner is None:
            return step(equation, carried)
        return interpret(inner.jaxpr, [constant(value) for value in inner.consts], carried, enter, constant)

    return enter


class Step(NamedTuple):
    """How one of the `values` came about."""

    primitive: str
    inputs: tuple[int, ...]  # numbers of values; PARAMETER, INPUT or CONSTANT where it is none
    params: dict[str, Any]  # of the primitive


PARAMETER, INPUT, CONSTANT = -1, -2, -3


def steps(apply: Apply, params: Tree, x: Any) -> list[Step]:
    """Returns how each of the `values` came about, in the same order, without computing anything."""
    taken: list[Step] = []

    def step(equation: JaxprEqn, inputs: list[int]) -> list[int]:
        first = len(taken)
        taken.extend(Step(equation.primitive.name, tuple(inputs), equation.params) for _ in equation.outvars)
        return list(range(first, len(taken)))

    inputs = [PARAMETER] * len(jax.tree.leaves(params)) + [INPUT] * len(jax.tree.leaves(x))
    follow(apply, params, x, inputs, step, lambda value: CONSTANT)
    return taken


def unrolled(apply: Apply, params: Tree, x: Any) -> Apply:
    """Returns the network with its loops written out turn by turn, so that the `values` inside can be seen.

    The network itself where it has no loop of known length (a `scan`). Of loops that would make it too long every so
    many turns one is written out, the last among them; those between stay loops.

    Example:
        >>> step = lambda h, x: (jnp.tanh(x + h), None)
        >>> cell = lambda p, x: jax.lax.scan(step, p["h"], x.T)[0]
        >>> params, x = {"h": np.zeros(2)}, np.ones((2, 3))
        >>> [len(values(net, params, x)) for net in (cell, unrolled(cell, params, x))]
        [2, 13]
    """
    function = hashable(apply)
    whole = trace(function, params, x).jaxpr
    if not any(equation.primitive.name == "scan" for equation in equations(whole)):
        return function
    return _written_out(function, math.ceil(_turns_counted(whole) / WRITTEN_OUT))


@lru_cache(maxsize=16)  # the same function for one network, by which what is known of it is looked up
def _written_out(apply: Apply, every: int) -> Apply:
    def step(equation: JaxprEqn, inputs: list[Any]) -> list[Any]:
        return turns(equation, inputs) if equation.primitive.name == "scan" else evaluate(equation, inputs)

    enter = _entering(step)

    def turns(loop: JaxprEqn, inputs: list[Any]) -> list[Any]:
        body, length, kept = loop.params["jaxpr"], loop.params["length"], loop.params["num_carry"]
        if not length:
            return evaluate(loop, inputs)
        first, backwards = loop.params["num_consts"], loop.params["reverse"]
        constants, carry, rows = inputs[:first], inputs[first : first + kept], inputs[first + kept :]

        def turn(carry: list[Any], of_turn: list[Any]) -> tuple[list[Any], list[Any]]:
            outputs = interpret(body.jaxpr, body.consts, [*constants, *carry, *of_turn], enter)
            return outputs[:kept], outputs[kept:]

        made = []
        for start in range(0, length, every):
            last = min(start + every, length) - 1
            if last > start:
                between = (length - last, length - start) if backwards else (start, last)
                part = [jax.lax.slice_in_dim(row, *between) for row in rows]
                carry, columns = jax.lax.scan(turn, carry, part, length=last - start, reverse=backwards)
                made.append(columns)
            at = length - 1 - last if backwards else last
            carry, column = turn(carry, [jax.lax.index_in_dim(row, at, keepdims=False) for row in rows])
            made.append([value[None] for value in column])
        in_order = made[::-1] if backwards else made
        return [*carry, *(jnp.concatenate(parts) for parts in zip(*in_order, strict=True))]

    def network(params: Tree, x: Any) -> Tree:
        outputs = follow(apply, params, x, [*jax.tree.leaves(params), *jax.tree.leaves(x)], step)
        return jax.tree.unflatten(jax.tree.structure(output_shapes(apply, params, x)), outputs)

    return network


def _turns_counted(jaxpr: Jaxpr) -> int:
    """How many equations a program has, those of a loop once for every turn."""
    count = 0
    for equation in jaxpr.eqns:
        turns = equation.params["length"] if equation.primitive.name == "scan" else 1
        count += 1 + turns * sum(_turns_counted(inner) for inner in jaxprs_in_params(equation.params))
    return count


def order_of_use(apply: Apply, params: Tree, x: Any) -> list[str]:
    """Returns the paths of the parameters in the order in which the computation meets them; unused ones come last.

    A parameter is met where it, or what was made of parameters alone, is joined to something that depends on `x`.

    Example:
        >>> params = {"head": np.ones((4, 2)), "stem": np.ones((3, 4))}
        >>> order_of_use(lambda p, x: x @ p["stem"] @ p["head"], params, np.ones((1, 3)))
        ['stem', 'head']
    """
    paths, met = list(flatten(params)), dict[int, None]()

    def step(place: int, equation: JaxprEqn, inputs: list[Any]) -> list[Any]:
        inner = _transparent(equation)
        if inner is not None:
            return interpret(inner.jaxpr, [frozenset()] * len(inner.consts), inputs, step, lambda value: frozenset())
        made_of = frozenset[int]().union(*(one for one in inputs if one is not None))
        if None in inputs:
            met.update(dict.fromkeys(sorted(made_of)))
        return [None if None in inputs else made_of] * len(equation.outvars)

    closed = trace(apply, params, x)
    inputs = [*(frozenset([number]) for number in range(len(paths))), *(None for _ in jax.tree.leaves(x))]
    interpret(closed.jaxpr, [frozenset()] * len(closed.consts), inputs, step, lambda value: frozenset())
    return [paths[number] for number in dict.fromkeys([*met, *range(len(paths))])]


def _transparent(equation: JaxprEqn) -> ClosedJaxpr | None:
    if equation.primitive.name not in TRANSPARENT:
        return None
    held = next((equation.params[name] for name in ("jaxpr", "call_jaxpr") if name in equation.params), None)
    return held if isinstance(held, ClosedJaxpr) else None


def _jaxpr(apply: Apply, params: Tree, x: Any) -> ClosedJaxpr:
    function = hashable(apply)
    closed = jitted(function).trace(params, x).jaxpr
    if len(closed.in_avals) > len(jax.tree.leaves((params, x))):  # it holds values of another trace
        return jax.make_jaxpr(function)(params, x)
    return closed


def _output_bytes(apply: Apply, params: Tree, x: Any) -> list[int]:
    jaxpr = _jaxpr(apply, params, x).jaxpr
    return [_bytes(variable.aval) for equation in equations(jaxpr) for variable in equation.outvars]


def _bytes(aval: Any) -> int:
    if not hasattr(aval, "shape") or not hasattr(aval, "dtype"):
        return 0
    return int(np.prod(aval.shape, dtype=np.int64)) * getattr(aval.dtype, "itemsize", 4)  # random keys have none


def _shapes(x: Any) -> str:
    leaves = flatten(x)
    return ", ".join(f"{path + ' ' if path else ''}shape {tuple(leaf.shape)}" for path, leaf in leaves.items())
