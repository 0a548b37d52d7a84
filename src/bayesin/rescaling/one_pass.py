"""The moments of all units, and the maps that give them others, each found in one pass over the network.

At every site the units are measured, in all draws and on all inputs at once, and what goes on from there is what
their map makes of them. The network is cut at its sites into pieces that are compiled alone: as one program with all
statistics in it, it would compile for minutes where norms stand between them. Of what a piece computes only what a
later one needs is kept.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import JaxprEqn
from jaxtyping import Array, Float

from ..inputs import count_of, shapes_of
from ..jaxprs import Apply, evaluate, follow
from ..symmetry import Site
from ..trees import Tree

LARGEST = 20.0  # factor; a unit that all but died on the way is not blown up beyond it

Maps = list[
    tuple[Float[Array, " units"], Float[Array, " units"]]
]  # a and b of every unit: its value v becomes a v + b
Moments = tuple[Float[Array, " units"], Float[Array, " units"]]  # mean and spread


class Pass(NamedTuple):
    """A network cut at the sites that have maps, and the inputs that it is run on."""

    apply: Apply
    stops: tuple[Site, ...]
    x: Any

    def moments(self, draws: Sequence[Tree]) -> list[Moments]:
        """Mean and spread of every unit over inputs, places and draws, at every site."""
        found = []
        self._run(draws, lambda values, site: found.append(_moments(values, site)) or values)
        return found

    def maps(self, draws: Sequence[Tree], wanted: Sequence[Moments]) -> Maps:
        """The maps by which units have the moments that are wanted."""
        found, goals = [], iter(wanted)

        def mapped(values: list[Array], site: Site) -> list[Array]:
            found.append(map_between(_moments(values, site), next(goals)))
            return [_on_units(value, site, *found[-1]) for value in values]

        self._run(draws, mapped)
        return found

    def _run(self, draws: Sequence[Tree], visit: Callable[[list[Array], Site], list[Array]]) -> None:
        """Runs all draws side by side, and goes on at every site with what `visit` makes of the values there."""
        shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf), leaf.dtype), draws[0])
        leaves, structure = jax.tree.flatten((shapes, shapes_of(self.x, count_of(self.x))))
        pieces, constants = _pieces(self.apply, self.stops, structure, tuple(leaves))
        given = [*map(jnp.asarray, jax.tree.leaves(self.x)), *constants]
        alive = [dict(enumerate([*jax.tree.leaves(params), *given])) for params in draws]
        for piece in pieces:
            for values in alive:
                made = piece.run([values[name] for name in piece.reads])
                # Freed as soon as nobody reads it: else a pass would hold every activation of every draw.
                for name in piece.last_read:
                    del values[name]
                values.update(zip(piece.makes, made, strict=True))
            there = visit([values[piece.stop] for values in alive], piece.site)
            for values, value in zip(alive, there, strict=True):
                values[piece.stop] = value


class _Piece(NamedTuple):
    """The equations between two sites; values go by the numbers of inputs, constants and results in one count."""

    site: Site  # at which it ends
    stop: int  # the value there
    reads: tuple[int, ...]
    makes: tuple[int, ...]  # what it computes and a later piece reads, or its site
    last_read: tuple[int, ...]  # what none reads after it
    run: Callable[[list[Any]], list[Any]]


class _Scalar(NamedTuple):
    """A constant that stands in the program."""

    value: Any


class _Line(NamedTuple):
    """An equation, what it reads and the first of the values that it makes."""

    equation: JaxprEqn
    reads: list[Any]
    makes: int


@lru_cache(maxsize=16)
def _pieces(
    apply: Apply, stops: tuple[Site, ...], structure: Any, leaves: tuple[Any, ...]
) -> tuple[list[_Piece], list[Array]]:
    """The pieces that end at sites, and the array constants that they read, which are numbered behind the inputs."""
    params, x = jax.tree.unflatten(structure, leaves)
    constants: list[Array] = []
    lines: list[_Line] = []

    def constant(value: Any) -> Any:
        if np.ndim(value) == 0:
            return _Scalar(value)
        constants.append(value)
        return -len(constants)  # until it is known how many there are

    def step(equation: JaxprEqn, reads: list[Any]) -> list[Any]:
        first = lines[-1].makes + len(lines[-1].equation.outvars) if lines else len(leaves)
        lines.append(_Line(equation, reads, first))
        return list(range(first, first + len(equation.outvars)))

    follow(apply, params, x, list(range(len(leaves))), step, constant)

    def renumbered(name: Any) -> Any:
        if isinstance(name, _Scalar) or 0 <= name < len(leaves):
            return name
        return len(leaves) - 1 - name if name < 0 else name + len(constants)

    lines = [_Line(line.equation, [*map(renumbered, line.reads)], renumbered(line.makes)) for line in lines]
    first, pieces = 0, []
    ends = [len(leaves) + len(constants) + site.number for site in stops]
    cuts = [next(at for at, line in enumerate(lines) if end < _after(line)) + 1 for end in ends]
    for site, end, cut in zip(stops, ends, cuts, strict=True):
        inside, later = lines[first:cut], lines[cut : cuts[-1]]
        reads, needed = _read(inside), _read(later) | {end}
        made = {name for line in inside for name in range(line.makes, _after(line))}
        outside = tuple(sorted(reads - made))
        makes = tuple(sorted(made & needed))
        gone = tuple(name for name in outside if name not in needed)
        pieces.append(_Piece(site, end, outside, makes, gone, jax.jit(partial(_run, inside, outside, makes))))
        first = cut
    return pieces, constants


def _after(line: _Line) -> int:
    return line.makes + len(line.equation.outvars)


def _read(lines: Sequence[_Line]) -> set[int]:
    return {name for line in lines for name in line.reads if not isinstance(name, _Scalar)}


def _run(lines: list[_Line], reads: tuple[int, ...], makes: tuple[int, ...], inputs: list[Any]) -> list[Any]:
    known = dict(zip(reads, inputs, strict=True))
    for line in lines:
        taken = [name.value if isinstance(name, _Scalar) else known[name] for name in line.reads]
        known.update(zip(range(line.makes, _after(line)), evaluate(line.equation, taken), strict=True))
    return [known[name] for name in makes]


@partial(jax.jit, static_argnums=1)
def _moments(values: list[Array], site: Site) -> Moments:
    """Mean and spread of units whose values, in all draws, are at hand."""
    rest = tuple(axis for axis in range(values[0].ndim) if axis not in site.axes)
    wide = [value.astype(jnp.float32) for value in values]
    mean = sum(value.mean(rest, keepdims=True) for value in wide) / len(wide)
    # Around the mean of all draws, in a second look at values that are at hand: the mean of squares less the square
    # of the mean would lose the digits of units far from zero.
    variance = sum(jnp.square(value - mean).mean(rest, keepdims=True) for value in wide) / len(wide)
    mean, variance = (
        jnp.moveaxis(part, site.axes, range(-len(site.axes), 0)).reshape(-1) for part in (mean, variance)
    )
    return mean, jnp.sqrt(variance)


@jax.jit
def map_between(now: Moments, wanted: Moments) -> tuple[Array, Array]:
    """(a, b) that give the moments that are wanted to units that have others; one that never varies is only moved."""
    mean, spread = now
    # A unit that never varies, as a dead ReLU, has no factor that would give it a spread.
    alive = spread > 1e-6 * (jnp.abs(mean) + 1e-6)
    a = jnp.where(alive, wanted[1] / jnp.where(alive, spread, 1.0), 1.0)
    a = jnp.clip(a, 1 / LARGEST, LARGEST)
    # Bounded first: the mean is right even where the spread cannot be.
    return a, wanted[0] - a * mean


@partial(jax.jit, static_argnums=1)
def _on_units(value: Array, site: Site, a: Array, b: Array) -> Array:
    """`a · value + b`, an a and b for each unit."""
    units = [value.shape[axis] for axis in site.axes]
    last = jnp.moveaxis(value, site.axes, range(-len(units), 0)).astype(jnp.float32)
    shape = [1] * (last.ndim - len(units)) + units
    mapped = last * a.reshape(shape) + b.reshape(shape)
    return jnp.moveaxis(mapped, range(-len(units), 0), site.axes).astype(value.dtype)
