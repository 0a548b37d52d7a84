"""What every test of discovery asks of a model: the groups that theory names hold, and a wrong one does not.

Theory is written as axes: `"w0: 5 a, b0: a, w1: a 2*b+a"` names the parameters and, for each axis, the sum of
products of its factors, as in a spec; a letter is a group (`fix` a fixed factor with a name), a number is fixed. The
sizes of the letters give the shapes too.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
from hypothesis import strategies as st

import bayesin
from bayesin.errors import SpecError, SymmetryError
from bayesin.symmetry import Factor, PermutationSpec
from bayesin.symmetry.diagnose import with_factor
from bayesin.symmetry.spec import Choice, factors_of, write_axis
from bayesin.trees import unflatten

NAME = r"[a-z]\w*"


class Architecture(NamedTuple):
    """A network, an input, and its symmetry as theory has it."""

    apply: Callable[[Any, Any], Any]
    x: Any
    axes: str
    sizes: dict[str, int]

    @property
    def params(self) -> dict[str, Any]:
        """Random parameters of the shapes that the axes say; no entry is like another."""
        return unflatten(weights(**{path: self._shape(text) for path, text in read_axes(self.axes).items()}))

    def _shape(self, text: str) -> tuple[int, ...]:
        plain = {name: str(size) for name, size in self.sizes.items()}
        return tuple(
            eval(re.sub(NAME, lambda name: plain[name[0]], re.sub(r"\[.*?\]", "", axis))) for axis in text.split()
        )


def normal(number: int, *shape: int, scale: float | None = None) -> np.ndarray:
    """Standard normal numbers, scaled to keep activations in range."""
    scale = 1 / np.sqrt(max(1, np.prod(shape[:-1]))) if scale is None else scale
    return np.asarray(scale * np.random.default_rng(number).standard_normal(shape), np.float32)


def weights(**shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Random parameters by name and shape; no entry is like another."""
    return {name: normal(sum(map(ord, name)) + i, *shape) for i, (name, shape) in enumerate(shapes.items())}


def read_axes(text: str) -> dict[str, str]:
    """`"w: 5 a, b: a"` by path; several paths with one meaning are written `"q k: 5 a"`."""
    entries = (entry.split(":") for entry in re.split(r",(?![^\[]*\])", text))
    return {path: axes.strip() for paths, axes in entries for path in paths.split()}


def check(model: Architecture, params: Any = None) -> PermutationSpec:
    """Discovers, compares with theory, verifies, and plants an error that must be refused."""
    params = model.params if params is None else params
    spec = bayesin.discover(model.apply, params, model.x)
    if model.axes:
        check_axes(spec, read_axes(model.axes), model.sizes)
    bayesin.verify(model.apply, params, model.x, spec, key=jax.random.key(3), trials=1)
    check_caught(model.apply, params, model.x, spec)
    assert PermutationSpec.from_json(spec.to_json()) == spec
    return spec


def check_axes(spec: PermutationSpec, expected: Mapping[str, str], sizes: Mapping[str, int]) -> None:
    """The groups are those of `expected`, up to their names."""
    assert sorted(expected) == sorted(spec.axes)
    written = {path: " ".join(write_axis(axis).replace(" ", "") for axis in axes) for path, axes in spec.axes.items()}
    names: dict[str, str] = {}
    for path, text in expected.items():
        letters, groups = (re.findall(NAME, t) for t in (text, written[path]))
        for letter, group in zip(letters, groups, strict=False):
            names.setdefault(letter, group)
    renamed = {p: re.sub(NAME, lambda m: names.get(m[0], m[0] + "?"), t) for p, t in expected.items()}
    assert renamed == written, f"expected {dict(expected)}"
    assert len(set(names.values())) == len(names), f"groups that should differ are one: {names}"
    known = spec.sizes | spec.fixed_factors
    assert {letter: known[group] for letter, group in names.items()} == dict(sizes)
    assert set(names.values()) == set(known)
    assert all((group in spec.fixed_factors) == letter.startswith("fix") for letter, group in names.items())


def check_caught(apply: Callable[..., Any], params: Any, x: Any, spec: PermutationSpec) -> None:
    """A spec with one place too few is refused, and the message names the group."""
    wrong = list(_with_one_place_too_few(spec))
    for group, spec_of_fewer in wrong[:6]:
        try:
            bayesin.verify(apply, params, x, spec_of_fewer, key=jax.random.key(5), trials=1)
        except SymmetryError as error:
            assert f"group '{group}'" in str(error)
            return
    assert not wrong


def _with_one_place_too_few(spec: PermutationSpec) -> Iterator[tuple[str, PermutationSpec]]:
    for group in spec.sizes:
        places = spec.touched_by(group)
        for path, number, place in places[::-1] if len(places) > 1 else ():
            with suppress(SpecError):  # of units that are indexed by this group
                yield group, edited(spec, path, number, place, None)


def edited(spec: PermutationSpec, path: str, number: int, place: int, group: str | None) -> PermutationSpec:
    """The spec with one factor handed to another group."""
    size = list(factors_of(spec.axes[path][number]))[place].size
    changed = (path, with_factor(spec.axes[path], number, place, Factor(size, group)))
    return PermutationSpec(tuple(changed if entry[0] == path else entry for entry in spec.parameters))


def reasons(spec: PermutationSpec, path: str) -> list[str]:
    """Why the axes of a parameter are fixed, one text an axis."""
    return ["; ".join(f.reason for f in factors_of(axis) if not f.group) for axis in spec.axes[path]]


@st.composite
def specs(draw):
    """Specs with up to three groups on any axes, and up to two that are indexed by a group or a fixed factor.

    An indexed group brings its outer factors along: beside it in one product, or first of another axis.
    """
    sizes = draw(st.dictionaries(st.sampled_from(["g0", "g1", "heads"]), st.integers(1, 4), min_size=1))
    plain = [Factor(size, group) for group, size in sorted(sizes.items())]
    layer, inner = Factor(2, name="layer"), draw(st.integers(1, 3))
    chains = [
        (plain[0], Factor(inner, "q", outer=(plain[0].called,))),
        (layer, Factor(3, "of_layer", outer=("layer",)), Factor(inner, "r", outer=("layer", "of_layer"))),
    ]
    factor = st.one_of(st.sampled_from(plain), st.integers(2, 3).map(Factor))
    product = st.lists(factor, max_size=3).map(tuple)
    nested = st.tuples(factor, product, product).map(lambda parts: (parts[0], parts[1:]))
    sums = st.lists(st.one_of(product, nested), min_size=1, max_size=2).map(tuple)
    ordinary = st.lists(sums, max_size=3).map(tuple)
    indexed = st.sampled_from(chains).flatmap(
        lambda chain: st.one_of(
            st.tuples(st.permutations(chain).map(tuple), st.permutations(chain).map(tuple)).map(lambda sum_: (sum_,)),
            st.permutations([((f,),) for f in chain]).map(tuple),
            st.permutations(chain).map(lambda term: ((tuple(term),), ((Factor(2),), (Factor(3),)))),
            st.just((((*chain[:-1], (chain[-1:], (Factor(2),), chain[-1:])), (Factor(2),)),)),
        )
    )
    chosen = st.tuples(product, st.sampled_from(chains)).map(_with_options)
    axes = draw(st.dictionaries(st.sampled_from("abcd"), st.one_of(ordinary, indexed, chosen), min_size=1))
    return PermutationSpec(tuple(axes.items()))


def _with_options(parts):
    """Two parts of different sizes, whose units on the other axes are other ones."""
    product, chain = parts
    fixed = (Factor(math.prod(factor.size for factor in chain)),)
    first = Choice(((tuple(product),), (tuple(product[::-1]),)))
    return (((Factor(2),), (*chain,)), first, Choice(((chain,), (fixed,))))


@st.composite
def signed_specs(draw):
    """Specs as above, some of whose places change their sign with the units."""
    spec = draw(specs())
    marks = iter(draw(st.lists(st.booleans(), min_size=64, max_size=64)))
    return spec._with_factors(lambda f: replace(f, flips=next(marks, False)) if f.group else f)
