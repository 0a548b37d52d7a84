"""What every test of discovery asks of a model: the groups that theory names, and an output that does not move."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import strategies as st

import bayesin
from bayesin.errors import SymmetryError
from bayesin.symmetry import Factor, PermutationSpec
from bayesin.symmetry.exact import widened


def normal(number: int, *shape: int, scale: float | None = None) -> np.ndarray:
    """Standard normal numbers, scaled to keep activations in range."""
    scale = 1 / np.sqrt(max(1, np.prod(shape[:-1]))) if scale is None else scale
    return np.asarray(scale * np.random.default_rng(number).standard_normal(shape), np.float32)


def weights(**shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Random parameters by name and shape; no entry is like another."""
    return {name: normal(sum(map(ord, name)) + i, *shape) for i, (name, shape) in enumerate(shapes.items())}


def check_model(
    apply: Callable[[Any, Any], Any],
    params: Any,
    x: Any,
    expected: Mapping[str, str] | None = None,
    sizes: Mapping[str, int] | None = None,
    *,
    double: bool = True,
) -> PermutationSpec:
    """Discovers, compares with theory, permutes in single and in double precision, and plants an error.

    Args:
        apply: the model.
        params: its parameters, none of them constant.
        x: an input.
        expected: for every parameter its axes, as in "3 a b*4": a letter is a group, a number is fixed.
        sizes: size of each letter.
        double: whether the model takes double precision.
    """
    spec = bayesin.discover(apply, params, x)
    assert spec.check(params) == 0
    if expected is not None:
        check_axes(spec, expected, sizes or {})
    check_unchanged(apply, params, x, spec, double=double)
    assert bayesin.verify(apply, params, x, spec, key=jax.random.key(3), trials=1) <= 1e-4
    check_caught(apply, params, x, spec)
    assert PermutationSpec.from_json(spec.to_json()) == spec
    return spec


def check_axes(spec: PermutationSpec, expected: Mapping[str, str], sizes: Mapping[str, int]) -> None:
    """The groups are those of `expected`, up to their names."""
    assert sorted(expected) == sorted(spec.axes)
    found = {path: " ".join("*".join(map(str, axis)) or "1" for axis in axes) for path, axes in spec.axes.items()}
    names: dict[str, str] = {}
    for path, text in expected.items():
        assert len(text) == 0 or len(text.split()) == len(found[path].split()), (path, text, found[path])
        letters, groups = (re.findall(r"[a-z]\w*", t) for t in (text, found[path]))
        for letter, group in zip(letters, groups, strict=False):
            names.setdefault(letter, group)
    renamed = {p: re.sub(r"[a-z]\w*", lambda m: names.get(m[0], m[0] + "?"), t) for p, t in expected.items()}
    assert renamed == found, f"expected {dict(expected)}"
    assert len(set(names.values())) == len(names), f"groups that should differ are one: {names}"
    assert {letter: spec.sizes[group] for letter, group in names.items()} == dict(sizes)
    assert set(names.values()) == set(spec.sizes)


def check_unchanged(
    apply: Callable[..., Any], params: Any, x: Any, spec: PermutationSpec, *, double: bool = True
) -> None:
    """Random permutations leave the output as it is, to rounding, in both precisions."""
    for wide, tolerance in ((False, 1e-5), (True, 1e-10))[: 1 + double]:
        with jax.enable_x64(wide), jax.default_matmul_precision("highest"):  # as `verify` runs: compiled once
            tree, inputs = widened((params, x)) if wide else (params, x)
            run = jax.jit(apply)
            before = jax.tree.leaves(run(tree, inputs))
            perms = spec.random(jax.random.key(1))
            after = jax.tree.leaves(run(bayesin.permute(tree, spec, perms), inputs))
            moved = [
                np.abs(np.asarray(b) - np.asarray(a)).max() / np.abs(b).max()
                for a, b in zip(after, before, strict=True)
            ]
            assert max(moved) <= tolerance, (wide, moved)
            assert not wide or any(leaf.dtype == np.float64 for leaf in before)


def check_caught(apply: Callable[..., Any], params: Any, x: Any, spec: PermutationSpec) -> None:
    """A spec with one place too few is refused, and the message names the group."""
    for group in spec.sizes:
        places = spec.touched_by(group)
        if len(places) > 1:
            path, number, place = places[-1]
            wrong = edited(spec, path, number, place, None)
            with pytest.raises(SymmetryError, match=f"group '{group}'"):
                bayesin.verify(apply, params, x, wrong, key=jax.random.key(5), trials=1)
            return


def edited(spec: PermutationSpec, path: str, number: int, place: int, group: str | None) -> PermutationSpec:
    """The spec with one factor handed to another group."""
    axes = [list(axis) for axis in spec.axes[path]]
    axes[number][place] = Factor(axes[number][place].size, group)
    changed = (path, tuple(map(tuple, axes)))
    return PermutationSpec(tuple(changed if entry[0] == path else entry for entry in spec.parameters))


def reasons(spec: PermutationSpec, path: str) -> list[str]:
    """Why the axes of a parameter are fixed, one text an axis."""
    return ["; ".join(f.reason for f in axis if not f.group) for axis in spec.axes[path]]


@st.composite
def specs(draw):
    """Specs with up to three groups, each on any number of axes, several times on one axis too."""
    sizes = draw(st.dictionaries(st.sampled_from(["g0", "g1", "heads"]), st.integers(1, 4), min_size=1))
    factor = st.one_of(
        st.sampled_from(sorted(sizes)).map(lambda group: Factor(sizes[group], group)), st.integers(2, 3).map(Factor)
    )
    axis = st.lists(factor, max_size=3).map(tuple)
    axes = st.lists(axis, max_size=3).map(tuple)
    return PermutationSpec(tuple(draw(st.dictionaries(st.sampled_from("abcd"), axes, min_size=1)).items()))
