"""One walk through a jaxpr, equation by equation."""

from collections.abc import Sequence
from typing import Any

from jax.extend.core import Literal

from .factors import Array, Units, constant, resolve, size_of
from .rules import RULES, Equation, calls, freeze
from .rules.constants import closed_over


class Walk:
    """Carries axes through a jaxpr, and remembers in which order it met the units of the parameters."""

    def __init__(self):
        self.met: dict[Units, int] = {}
        self._known: dict[int, tuple[Any, Array]] = {}  # constants by identity; held, so that no id comes back

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
        axes: dict[Any, Array] = dict(zip(jaxpr.constvars, map(self._constant, consts), strict=True))
        axes.update(zip(jaxpr.invars, arrays, strict=True))

        def read(atom: Any) -> Array:
            return self._constant(atom.val) if isinstance(atom, Literal) else axes[atom]

        for index, eqn in enumerate(jaxpr.eqns):
            number = next((numbers[var] for var in eqn.outvars if var in numbers), index)
            outputs = self._step(eqn, [read(atom) for atom in eqn.invars], f"{place}{number}")
            axes.update(zip(eqn.outvars, outputs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _step(self, eqn: Any, arrays: list[Array], number: str) -> list[Array]:
        name = eqn.primitive.name
        shapes = tuple(getattr(var.aval, "shape", ()) for var in eqn.outvars)

        def enter(inner: Any, inputs: Sequence[Array]) -> list[Array]:
            return self.run(
                getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), inputs, {}, place=f"{number}."
            )

        if shapes and all(0 in shape for shape in shapes):
            return [tuple(map(constant, shape)) for shape in shapes]  # of no entries any claim is true
        if name not in calls.RULES:
            self._meet(arrays)
        return _apply_rule(Equation(name, eqn.params, shapes, number, enter), arrays)

    def _meet(self, arrays: list[Array]) -> None:
        for factor in (factor for array in arrays for axis in array for factor in axis):
            if isinstance(factor, Units):
                self.met.setdefault(factor, len(self.met))

    def _constant(self, value: Any) -> Array:
        if not getattr(value, "shape", ()):
            return ()
        if id(value) not in self._known:
            self._known[id(value)] = (value, closed_over(value))
        return self._known[id(value)][1]


def _apply_rule(equation: Equation, arrays: list[Array]) -> list[Array]:
    """What the rule says; a primitive whose parameters or shapes its rule does not expect is frozen."""
    try:
        outputs = RULES.get(equation.name, freeze)(equation, *arrays)
    except (AttributeError, KeyError):  # as after a change of JAX
        return freeze(equation, *arrays)
    if [tuple(map(size_of, array)) for array in outputs] != list(equation.shapes):
        return freeze(equation, *arrays)
    return [tuple(map(resolve, array)) for array in outputs]
