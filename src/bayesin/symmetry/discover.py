"""The permutation symmetry of any `apply(params, x)`, read off its jaxpr.

Parameters start with fresh units on every axis, the input is fixed. One walk through the equations joins the axes
that must move together, refines those that a reshape cuts and fixes those whose order matters; the output is fixed
last. What is still free is a group. Whatever is not understood is fixed, so that the answer may have too few
symmetries, and never a wrong one.

A reshape may show only later that it told parts apart, when one of them is taken: (3, heads, dimensions) is query,
key and value if the 3 is sliced. Then the walk begins anew, with those parts on the axes of the parameters.
"""

import warnings
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import jax
from jax.interpreters.partial_eval import dce_jaxpr

from ..errors import LeftBehindWarning
from ..inputs import Inputs
from ..jaxprs import Apply, check_arrays, interpret, statistics_of, trace
from ..trees import Tree
from .entries import known_entries
from .factors import (
    Array,
    Axis,
    Choice,
    Sum,
    Tag,
    Units,
    constant,
    fix,
    fixed,
    join,
    leaves_of,
    settled,
    size_of,
    units_of,
    without_choices,
)
from .indexed import Meeting, outer_factors
from .multipliers import find_scales, find_signs
from .positions import generic, note, release, settle
from .rules import CALLING, CHOOSING, DROPPING, ENTERING, RULES, Equation, closed_over, freeze
from .spec import PermutationSpec
from .values import Known, Value
from .write_spec import write_spec

UNUSED = "does not reach the output"
WALKS = 6  # each begins with the parts that the one before told apart
MOST_PARTS = 256
MOST_CHOICES = 64  # parts that other axes of a parameter choose by

Output = Callable[[Tree], Tree] | str | int | None  # what of a result is meant

Template = tuple["int | tuple[Template, ...]", ...]  # sizes of the factors that an axis starts with; a tuple is a sum


class Start(NamedTuple):
    """How the axes of a parameter start a walk."""

    templates: tuple[Template, ...]
    by: int | None = None  # the axis for each part of which the other axes have units of their own


def discover(
    apply: Apply,
    params: Tree,
    x: Inputs,
    *,
    output: Output = None,
    modes: Sequence[tuple[Apply, Inputs]] = (),
    signs: bool = False,
    scales: bool = False,
) -> PermutationSpec:
    """Returns the permutations of units that leave `apply(params, x)` unchanged.

    Args:
        apply: a pure function that JAX can trace, or a `Model`.
        params: arrays, or `jax.ShapeDtypeStruct` objects: only shapes are looked at.
        x: one input, of any batch size: arrays or `jax.ShapeDtypeStruct` objects.
        output: what of the result of `apply` has to stay unchanged, where it returns more than that: a key, an index,
            or a function of the result.
        modes: other functions of the same parameters that must stay unchanged too, each with an input: evaluation
            beside training, a second head, another size of the input.
        signs: also find the units that may change their sign, as behind tanh: `spec.signed`.
        scales: also find the positive numbers that units may be multiplied by, as before a ReLU: `spec.scaled`.

    Warns:
        LeftBehindWarning: parameters that no function reaches have the size of a group (but for statistics of a
            `Model` that training alone reads), or a group is one only because a closed-over value is constant.

    Raises:
        ModelError: `apply` cannot be traced, or a leaf of `params` is not an array.

    Example:
        >>> import jax.numpy as jnp
        >>> params = {"w0": jnp.ones((4, 8)), "b0": jnp.ones(8), "w1": jnp.ones((8, 3))}
        >>> spec = discover(lambda p, x: jax.nn.relu(x @ p["w0"] + p["b0"]) @ p["w1"], params, jnp.ones((1, 4)))
        >>> spec.sizes
        {'g0': 8}
        >>> spec.touched_by("g0")
        (('b0', 0, 0), ('w0', 1, 0), ('w1', 0, 0))
        >>> odd = lambda p, x: jnp.tanh(x @ p["w0"] + p["b0"]) @ p["w1"]
        >>> discover(odd, params, jnp.ones((1, 4)), signs=True).signed
        ('g0',)
    """
    flat = check_arrays(params, "params")
    programs = [_Program(selecting(apply, output), params, x)]
    programs += [_Program(other, params, own) for other, own in modes]
    reaching = {path: any(program.reads[i] for program in programs) for i, path in enumerate(flat)}

    starts = {path: Start(tuple((size,) for size in leaf.shape)) for path, leaf in flat.items()}
    for _ in range(WALKS):
        # Fresh units for every walk: what the last one fixed for want of parts may be free with them.
        parameters: dict[str, Array] = {
            path: generic(_axes_of(starts[path], reaching[path]), flat[path].dtype) for path in flat
        }
        walk = _Walk()
        for program in programs:
            # All programs share the units of the parameters: what one of them fixes is fixed for all.
            walk.follow(program, list(parameters.values()))
        told_apart = {path: _refined(array, starts[path]) for path, array in parameters.items()}
        if told_apart == starts:
            break
        starts = told_apart
    _fix_what_is_dropped(parameters, walk.met)
    outer = outer_factors(parameters.values(), walk.met)
    dtypes = {path: leaf.dtype for path, leaf in flat.items()}
    flips = find_signs(parameters, dtypes, walk.trail, outer) if signs else frozenset()
    powers = find_scales(parameters, dtypes, walk.trail, outer) if scales else {}
    spec = write_spec(parameters, walk.order_met, outer, flips, powers)
    idle = {path for path in flat if not reaching[path]} - statistics_of(apply)
    _warn_of_what_stays(spec, parameters, idle)
    return spec


def selecting(apply: Apply, output: Output) -> Apply:
    """`apply` with only a part of its result, as `discover` and `verify` take it."""
    if output is None:
        return apply
    pick = output if callable(output) else itemgetter(output)
    return lambda params, x: pick(apply(params, x))


class _Program:
    """The equations of one function, without those that its output does not depend on."""

    def __init__(self, apply: Apply, params: Tree, x: Any):
        check_arrays(x, "x")
        closed = trace(apply, params, x)
        # Equations that the output does not depend on must not fix anything, so they are removed first.
        self.jaxpr, used = dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars))
        self.reads = used  # of the leaves of params and x
        values = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
        self.consts = [values[var] for var in self.jaxpr.constvars]
        self.inputs = [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(x)]
        # A reason names an equation by its place in the program as the user would print it, before the removal.
        self.numbers = {var: index for index, eqn in enumerate(closed.jaxpr.eqns) for var in eqn.outvars}


class _Walk:
    """Carries axes through a jaxpr, and remembers what it met on the way."""

    def __init__(self):
        self.order_met: dict[Units, int] = {}
        self.met: list[Meeting] = []
        self.trail: list[Meeting] = []  # the same, with links between arrays outside and inside of calls and loops
        self._steps: tuple[Axis, ...] = ()  # of the scans that are being walked
        self._known: dict[int, tuple[Any, Array]] = {}  # constants by identity; held, so that no id comes back

    def follow(self, program: _Program, parameters: list[Array]) -> None:
        """Walks one program from its parameters to its output, which is fixed."""
        reason = "joined to the input"
        inputs = [generic(tuple(fixed(size, reason) for size in shape), dtype) for shape, dtype in program.inputs]
        read = zip([*parameters, *inputs], program.reads, strict=True)
        outputs = self.run(program.jaxpr, program.consts, [array for array, used in read if used], program.numbers)
        release(outputs)
        for axis in (axis for array in outputs for axis in array):
            fix(axis, "output")

    def run(
        self, jaxpr: Any, consts: Sequence[Any], arrays: Sequence[Array], numbers: dict[Any, int], place: str = ""
    ) -> list[Array]:
        """Returns the axes of the outputs of a jaxpr.

        Args:
            jaxpr: the equations.
            consts: values of its `constvars`.
            arrays: axes of its inputs.
            numbers: number of an equation by its output, where that is not its place in this jaxpr.
            place: number of the equation that holds this jaxpr, and a dot.
        """

        def step(index: int, equation: Any, inputs: list[Array]) -> list[Array]:
            number = next((numbers[var] for var in equation.outvars if var in numbers), index)
            return self._step(equation, inputs, f"{place}{number}")

        return interpret(jaxpr, [self._constant(value) for value in consts], arrays, step, self._constant)

    def _step(self, eqn: Any, arrays: list[Array], number: str) -> list[Array]:
        name = eqn.primitive.name
        shapes = tuple(getattr(var.aval, "shape", ()) for var in eqn.outvars)

        def enter(inner: Any, inputs: Sequence[Array], steps: Axis | None = None) -> list[Array]:
            around = self._steps
            self._steps = around if steps is None else (*around, steps)
            closed_over = getattr(inner, "consts", ())
            outputs = self.run(getattr(inner, "jaxpr", inner), closed_over, inputs, {}, place=f"{number}.")
            self._steps = around
            if name not in CALLING:
                release(outputs)
            return outputs

        def stand_outside(arrays: Sequence[Array]) -> None:
            self.met.append(Meeting(name, {}, tuple(arrays), (), self._steps))

        # Before the rules, which cut and join axes by their sizes.
        if shapes and all(0 in shape for shape in shapes):
            return [Value(map(constant, shape)) for shape in shapes]  # of no entries any claim is true
        # The inputs of a call are met inside of it, where they are used.
        if name not in ENTERING:
            self._meet(arrays)
        equation = Equation(name, eqn.params, shapes, number, enter, stand_outside, self._link)
        outputs = self._apply_rule(equation, arrays if name in CALLING else settle(eqn, arrays))
        if name not in ENTERING:
            note(eqn, equation.ordered, arrays, outputs)
            self.met.append(Meeting(name, eqn.params, tuple(arrays), tuple(outputs), self._steps))
            self.trail.append(self.met[-1])
        return list(outputs)

    def _link(self, how: str, arrays: Sequence[Array], made: Array) -> Value:
        """Notes that an array is made of others by no equation; returns it as a value of its own."""
        made = Value(made)
        if how == "same":
            made.like(arrays[0])
        self.trail.append(Meeting(how, {}, tuple(arrays), (made,), self._steps))
        return made

    def _apply_rule(self, equation: Equation, arrays: list[Array]) -> list[Value]:
        """What the rule says; a primitive whose parameters or shapes its rule does not expect is frozen."""
        is_call = equation.name in ENTERING
        if equation.name not in CHOOSING:
            plain = [Value(without_choices(array)).like(array) for array in arrays]
            arrays = [self._link("same", [a], p) if is_call else p for a, p in zip(arrays, plain, strict=True)]
        try:
            outputs = RULES.get(equation.name, freeze)(equation, *arrays)
        except (AttributeError, KeyError):  # as after a change of JAX
            return list(map(Value, freeze(equation, *arrays)))
        if [tuple(map(size_of, array)) for array in outputs] != list(equation.shapes):
            return list(map(Value, freeze(equation, *arrays)))
        now = [settled(array) for array in outputs]
        return [self._link("same", [a], n) if is_call else Value(n) for a, n in zip(outputs, now, strict=True)]

    def _meet(self, arrays: list[Array]) -> None:
        for factor in (factor for array in arrays for axis in array for factor in leaves_of(axis)):
            if isinstance(factor, Units):
                self.order_met.setdefault(factor, len(self.order_met))

    def _constant(self, value: Any) -> Array:
        if not getattr(value, "shape", ()):
            return Known.of((), value, known_entries(value))
        if id(value) not in self._known:
            self._known[id(value)] = (value, Known.of(closed_over(value), value, known_entries(value)))
        return self._known[id(value)][1]


def _axes_of(start: Start, reaches: bool) -> Array:
    reason = "" if reaches else UNUSED
    if start.by is None:
        return tuple(_units(template, reason) for template in start.templates)
    (terms,), tag = start.templates[start.by], Tag()
    assert isinstance(terms, tuple)
    return tuple(
        (Sum(tuple(_units(term, reason) for term in terms), tag),)
        if number == start.by
        else _chosen_by(tag, [_units(template, reason) for _ in terms])
        for number, template in enumerate(start.templates)
    )


def _chosen_by(tag: Tag, options: list[Axis]) -> Axis:
    return (Choice(tuple(options), tag),) if options[0] else ()


def _units(template: Template, reason: str) -> Axis:
    """Fresh units in the shape of a template."""
    return tuple(
        Units(part, reason) if isinstance(part, int) else Sum(tuple(_units(term, reason) for term in part))
        for part in template
        if part != 1
    )


def _refined(array: Array, start: Start) -> Start:
    """The start, with parts where the walk told some apart."""
    axes = settled(array)
    templates = tuple(
        template if (found := _template(axis)) is None else found
        for axis, template in zip(axes, start.templates, strict=True)
    )
    if templates != start.templates or start.by is not None:
        return start._replace(templates=templates)
    # Keys and values in one tensor (2, …): each has units of its own on the other axes.
    for number, axis in enumerate(axes if len(axes) > 1 else ()):
        whole = axis[0] if len(axis) == 1 else None
        if isinstance(whole, Sum) and len(whole.terms) <= MOST_CHOICES:
            sizes = tuple((size_of(term),) for term in whole.terms)
            return Start((*templates[:number], (sizes,), *templates[number + 1 :]), number)
    return start


def _template(axis: Axis) -> Template | None:
    """The template in which units that follow a sum are other ones in every term; None where there are none."""
    for place, factor in enumerate(axis):
        if isinstance(factor, Sum):
            lead, rest = tuple(other.size for other in axis[:place]), axis[place + 1 :]
            if any(not units.reason for units in units_of(rest)) and len(factor.terms) <= MOST_PARTS:
                return (*lead, tuple((size_of(term) * size_of(rest),) for term in factor.terms))
            found = [_template(term) for term in factor.terms]
            if any(template is not None for template in found):
                terms = [t or (size_of(term),) for t, term in zip(found, factor.terms, strict=True)]
                return (*lead, tuple(terms), *(other.size for other in rest))
    return None


def _fix_what_is_dropped(parameters: dict[str, Array], met: list[Meeting]) -> None:
    """Units that only stand where slices leave them out are no symmetry of the network, but of this input's size."""
    used: set[Units] = set()
    for meeting in met:
        if meeting.name not in DROPPING:
            left = {units for array in meeting.outputs for axis in array for units in units_of(axis)}
            used.update(units for a in meeting.inputs for axis in a for units in units_of(axis) if units not in left)
    factors = [factor for array in parameters.values() for axis in array for factor in axis]
    for options in (factor.options for factor in factors if isinstance(factor, Choice)):
        # A part that nothing reads moves with one that is read: an input of another size may read both.
        read = [option for option in options if any(units.reason or units in used for units in units_of(option))]
        for option in options if read else ():
            if option not in read:
                join(option, read[0])
                used.update(units_of(option))
    for units in (units for array in parameters.values() for axis in array for units in units_of(axis)):
        if units not in used:
            units.reason = units.reason or UNUSED


def _warn_of_what_stays(spec: PermutationSpec, parameters: dict[str, Array], idle: set[str]) -> None:
    """Says what a person should know before units are moved by this spec."""
    sizes = {size: group for group, size in spec.sizes.items() if size > 1}
    behind = {path: sizes[size] for path in parameters if path in idle for size in spec.shape(path) if size in sizes}
    if behind:
        named = ", ".join(f"'{path}' (the size of {group})" for path, group in list(behind.items())[:5])
        more = f" and {len(behind) - 5} more" if len(behind) > 5 else ""
        warnings.warn(
            f"{len(behind)} parameters do not reach the output and stay behind when units move: {named}{more}; "
            "if another mode reads them, as evaluation reads running statistics, pass modes=[(apply, x)]",
            LeftBehindWarning,
            stacklevel=3,
        )
    for units in (units for array in parameters.values() for axis in array for units in units_of(axis)):
        if units.beside and not units.reason:
            places = [path for path, array in parameters.items() for axis in array if units in units_of(axis)]
            if len(places) == 1:
                warnings.warn(
                    f"{units.size} units of '{places[0]}' may move only because they meet {units.beside}; if the "
                    "value can be another, make it part of x",
                    LeftBehindWarning,
                    stacklevel=3,
                )
