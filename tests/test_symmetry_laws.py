"""The group laws: what permutations do to trees, whatever the spec."""

import itertools
from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bayesin
from bayesin.errors import SpecError
from bayesin.symmetry import (
    Factor,
    PermutationSpec,
    compose,
    compose_signs,
    invert,
    invert_signs,
    multiply,
    permute,
    transpositions,
)
from bayesin.symmetry.spec import Choice, size_of_term
from symmetry_checks import signed_specs, specs

LAW = settings(deadline=None, max_examples=60, derandomize=True)


def tree_of(spec: PermutationSpec, lead: tuple[int, ...] = ()) -> dict[str, np.ndarray]:
    """Different numbers everywhere."""
    rng = np.random.default_rng(0)
    return {
        path: rng.permutation(int(np.prod(shape := (*lead, *spec.shape(path))))).reshape(shape) for path in spec.axes
    }


def perms_of(spec: PermutationSpec, seed: int) -> dict[str, np.ndarray]:
    return spec.random(jax.random.key(seed))


def same(left, right) -> bool:
    return left.keys() == right.keys() and all(np.array_equal(left[path], right[path]) for path in left)


def agrees_with_the_definition(tree, spec, perms, signs=None) -> bool:
    """Entry by entry: every coordinate is taken apart into its factors, each of which is looked up.

    Of tensors with more than a thousand entries so many at random; of all it is checked that none is lost.
    """
    moved = permute(tree, spec, perms, signs)
    for path, leaf in tree.items():
        assert np.array_equal(np.sort(np.abs(moved[path]), None), np.sort(np.abs(leaf), None))
        some = np.arange(leaf.size) if leaf.size <= 1000 else np.random.default_rng(1).integers(leaf.size, size=1000)
        for place in zip(*np.unravel_index(some, leaf.shape), strict=True) if leaf.ndim else [()]:
            axes = axes_at(place, spec.axes[path])
            read = [digits_of(coordinate, axis) for coordinate, axis in zip(place, axes, strict=True)]
            source, sign = [], 1
            for digits in read:
                position = 0
                for factor, digit, weight in digits:
                    position += weight * moved_digit(factor, digit, digits, read, perms)
                    if factor.flips:
                        sign *= moved_digit(factor, digit, digits, read, signs or spec.identity_signs())
                source.append(position)
            if moved[path][place] != sign * leaf[tuple(source)]:
                return False
    return True


def axes_at(place, axes):
    """The axes as they are at one entry: of options that of the term in which the entry stands."""
    options = [len(axis.options) for axis in axes if isinstance(axis, Choice)]
    if not options:
        return axes
    (by,) = (i for i, axis in enumerate(axes) if not isinstance(axis, Choice) and len(axis) == options[0])
    number = sum(place[by] >= end for end in itertools.accumulate(map(size_of_term, axes[by])))
    return tuple(axis.options[number] if isinstance(axis, Choice) else axis for axis in axes)


def digits_of(coordinate, axis, weight=1):
    """The coordinate in the factors of the term that it falls into: (factor, digit, weight of the digit), and the
    start of that term as a digit of a fixed factor."""
    start = 0
    for term in axis:
        if coordinate < start + size_of_term(term):
            break
        start += size_of_term(term)
    digits, coordinate = [(Factor(start + 1), start, weight)], coordinate - start
    for part in reversed(term):
        coordinate, digit = divmod(coordinate, size_of_term((part,)))
        digits += [(part, digit, weight)] if isinstance(part, Factor) else digits_of(digit, part, weight)
        weight *= size_of_term((part,))
    return digits


def moved_digit(factor, digit, own, read, perms):
    """Where one digit is taken from; the permutation of an indexed group is looked up by the other digits."""
    if not factor.group:
        return digit
    everywhere = [*own, *(entry for digits in read for entry in digits)]
    position = [next(d for f, d, _ in everywhere if f.called == name) for name in factor.outer]
    return perms[factor.group][(*position, digit)]


@LAW
@given(specs(), st.integers(0, 99))
def test_permute_agrees_with_the_definition(spec, seed):
    tree, perms = tree_of(spec), perms_of(spec, seed)
    assert agrees_with_the_definition(tree, spec, perms)


@LAW
@given(specs(), st.integers(0, 99), st.integers(100, 199))
def test_permute_is_a_group_action(spec, first, second):
    tree, inner, outer = tree_of(spec), perms_of(spec, first), perms_of(spec, second)
    one_after_the_other = permute(permute(tree, spec, inner), spec, outer)
    assert same(one_after_the_other, permute(tree, spec, compose(outer, inner, spec)))
    assert same(permute(tree, spec, spec.identity()), tree)


@LAW
@given(specs(), st.integers(0, 99))
def test_inverse_undoes(spec, seed):
    perms, tree = perms_of(spec, seed), tree_of(spec)
    undone = invert(perms, spec)
    assert same(compose(perms, undone, spec), spec.identity())
    assert same(compose(undone, perms, spec), spec.identity())
    assert same(permute(permute(tree, spec, perms), spec, undone), tree)
    assert same(invert(undone, spec), perms)


@LAW
@given(specs(), st.lists(st.integers(0, 99), min_size=3, max_size=3, unique=True))
def test_composition_is_associative(spec, seeds):
    a, b, c = (perms_of(spec, seed) for seed in seeds)
    assert same(compose(compose(a, b, spec), c, spec), compose(a, compose(b, c, spec), spec))


def setting_of(spec: PermutationSpec, seed: int):
    return perms_of(spec, seed), spec.random_signs(jax.random.key(seed))


@settings(LAW, max_examples=20)
@given(signed_specs(), st.integers(0, 99), st.integers(100, 199))
def test_signed_permutations_are_a_group_that_acts(spec, first, second):
    """The hyperoctahedral group: definition, action, inverse, and the way through a file."""
    tree, inner, outer = tree_of(spec), setting_of(spec, first), setting_of(spec, second)
    if sum(leaf.size for leaf in tree.values()) < 500:
        assert agrees_with_the_definition(tree, spec, *inner)
    both = compose(outer[0], inner[0], spec), compose_signs(outer[0], (outer[1], inner[1]), spec)
    assert same(permute(permute(tree, spec, *inner), spec, *outer), permute(tree, spec, *both))
    undone = invert(inner[0], spec), invert_signs(*inner, spec)
    assert same(permute(permute(tree, spec, *inner), spec, *undone), tree)
    assert same(compose_signs(undone[0], (undone[1], inner[1]), spec), spec.identity_signs())
    assert PermutationSpec.from_json(spec.to_json()) == spec
    flipped = sum(np.prod(spec.perm_shape(group)) for group in spec.signed)
    assert np.isclose(spec.log10_order, spec.without_signs.log10_order + flipped * np.log10(2))


def test_signs_of_each_sample_and_traced_ones():
    spec = PermutationSpec.parse({"w": ["2 * ±a", "a + ±b"]}, {"a": 3, "b": 2})
    stack, each = tree_of(spec, (3,)), [setting_of(spec, seed) for seed in range(3)]
    perms, signs = ({g: np.stack([one[k][g] for one in each]) for g in spec.sizes} for k in (0, 1))
    moved = permute(stack, spec, perms, signs)
    for k, (own, sign) in enumerate(each):
        assert same({"w": moved["w"][k]}, permute({"w": stack["w"][k]}, spec, own, sign))
    assert same(jax.jit(lambda t, p, s: permute(t, spec, p, s))(stack, perms, signs), moved)


def test_scales_multiply_as_their_powers_say():
    leaf, numbers = np.arange(6.0) + 1, np.array([[1.0, 2.0], [4.0, 0.5], [1.0, 1.0]])
    spec = PermutationSpec.parse({"v": ["a{2 s0} * b[a]{-s2}"]}, {"a": 3, "b[a]": 2})
    found = multiply({"v": leaf}, spec, {"s0": np.array([1.0, 2.0, 3.0]), "s2": numbers})["v"]
    assert np.allclose(found, (leaf.reshape(3, 2) * np.array([[1.0], [4.0], [9.0]]) / numbers).reshape(-1))
    assert PermutationSpec.from_json(spec.to_json()) == spec


@LAW
@given(specs(), st.integers(0, 99), st.sampled_from([(3,), (2, 2)]))
def test_a_stack_is_permuted_like_its_members(spec, seed, lead):
    stack, perms = tree_of(spec, lead), perms_of(spec, seed)
    moved = permute(stack, spec, perms)
    for index in np.ndindex(lead):
        member = {path: leaf[index] for path, leaf in stack.items()}
        assert same({path: leaf[index] for path, leaf in moved.items()}, permute(member, spec, perms))


@LAW
@given(specs(), st.integers(0, 99), st.sampled_from([(3,), (3, 2)]))
def test_every_sample_of_a_stack_may_have_its_own_permutation(spec, seed, lead):
    stack, each = tree_of(spec, lead), [perms_of(spec, seed + k) for k in range(3)]
    perms = {group: np.stack([one[group] for one in each]) for group in spec.sizes}
    if not perms:
        return
    moved = permute(stack, spec, perms)
    for k, own in enumerate(each):
        member = {path: leaf[k] for path, leaf in stack.items()}
        assert same({path: leaf[k] for path, leaf in moved.items()}, permute(member, spec, own))


def test_permutations_of_each_sample_are_checked_and_may_be_traced():
    spec = PermutationSpec.parse({"w": ["2 * a", "a * b"], "b": ["b"]}, {"a": 3, "b": 2})
    stack, perms = tree_of(spec, (4,)), {"a": np.tile(np.array([1, 2, 0]), (4, 1)), "b": np.array([1, 0])}
    moved = permute(stack, spec, perms)
    assert same(moved, permute(stack, spec, {"a": np.array([1, 2, 0]), "b": np.array([1, 0])}))
    assert same(jax.jit(lambda t, a: permute(t, spec, {**perms, "a": a}))(stack, perms["a"]), moved)
    for wrong, message in [
        ({"a": perms["a"][:3]}, "the stack has 4 samples"),
        ({"a": np.where(np.arange(4)[:, None] == 2, 0, perms["a"])}, "unit 1 is missing"),
    ]:
        with pytest.raises(SpecError, match=message):
            permute(stack, spec, {**perms, **wrong})
    with pytest.raises(SpecError, match="the stack has 0 samples"):
        permute(tree_of(spec), spec, perms)


@LAW
@given(specs(), st.integers(0, 99))
def test_nothing_is_changed_in_place(spec, seed):
    tree, perms = tree_of(spec), perms_of(spec, seed)
    before = ({p: a.copy() for p, a in tree.items()}, {g: a.copy() for g, a in perms.items()})
    for array in (*tree.values(), *perms.values()):
        array.setflags(write=False)
    permute(tree, spec, perms), compose(perms, perms, spec), invert(perms, spec), transpositions(perms)
    assert same(tree, before[0]) and same(perms, before[1])


@LAW
@given(specs())
def test_identity_is_a_fresh_dict(spec):
    spec.identity().clear()
    spec.sizes.clear()
    spec.axes.clear()
    assert spec.identity().keys() == spec.sizes.keys()
    assert len(spec.axes) == len(spec.parameters)


def test_traced_permutations_agree_with_concrete_ones():
    axes = {"w": ["2 * g0 + g1", "g0 * g1"], "b": ["g1"], "h": ["g0 * (g2[g0] + 2) + 5", "3"]}
    spec = PermutationSpec.parse(axes, {"g0": 3, "g1": 2, "g2[g0]": 4})
    tree, perms = tree_of(spec), perms_of(spec, 0)
    jitted = jax.jit(lambda tree, perms: permute(tree, spec, perms))(tree, perms)
    assert same(jitted, permute(tree, spec, perms))
    traced = {group: jnp.asarray(perm) for group, perm in perms.items()}
    assert same(invert(traced, spec), invert(perms, spec))
    assert same(compose(traced, traced, spec), compose(perms, perms, spec))


def test_random_permutations_are_reproducible_and_spread():
    spec = PermutationSpec.parse({"w": ["a", "b"]}, {"a": 3, "b": 3})
    assert same(perms_of(spec, 1), perms_of(spec, 1))
    drawn = [tuple(perms_of(spec, seed)["a"]) for seed in range(300)]
    counts = [drawn.count(perm) for perm in itertools.permutations(range(3))]
    assert min(counts) > 50 - 4 * (300 * 5 / 36) ** 0.5  # four standard deviations of a count
    assert any((perms_of(spec, seed)["a"] != perms_of(spec, seed)["b"]).any() for seed in range(5))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_transpositions_are_the_distance_in_swaps(size):
    """Breadth first over all permutations: the least number of swaps from the identity to each of them."""
    start = tuple(range(size))
    distance, queue = {start: 0}, deque([start])
    while queue:
        perm = queue.popleft()
        for i, j in itertools.combinations(range(size), 2):
            swapped = list(perm)
            swapped[i], swapped[j] = perm[j], perm[i]
            if tuple(swapped) not in distance:
                distance[tuple(swapped)] = distance[perm] + 1
                queue.append(tuple(swapped))
    assert len(distance) == len(list(itertools.permutations(start)))
    for perm, swaps in distance.items():
        assert transpositions({"g0": np.array(perm)}) == {"g0": swaps}


@LAW
@given(st.integers(1, 60), st.integers(0, 99))
def test_transpositions_are_units_minus_cycles(size, seed):
    perm = np.random.default_rng(seed).permutation(size)
    graph = {
        frozenset(itertools.accumulate(range(size), lambda i, _: perm[i], initial=start)) for start in range(size)
    }
    assert transpositions({"g0": perm}) == {"g0": size - len(graph)}


def test_permutations_that_are_none_are_refused():
    spec = PermutationSpec.parse({"w": ["a", "b"]}, {"a": 3, "b": 2})
    tree, good = tree_of(spec), spec.identity()
    for wrong, message in [
        ({"a": good["a"]}, "group 'b' has no permutation"),
        (good | {"c": np.arange(2)}, "no group 'c'"),
        (good | {"b": np.arange(3)}, "'b' has shape"),
        (good | {"b": np.array([0, 0])}, "unit 1 is missing"),
        (good | {"b": np.array([0, -1])}, "unit 1 is missing"),
        (good | {"b": np.array([0.0, 1.0])}, "expected integers"),
    ]:
        with pytest.raises(SpecError, match=message):
            permute(tree, spec, wrong)
    with pytest.raises(SpecError, match="'b' is in one of the two"):
        compose(good, {"a": good["a"]})
    with pytest.raises(SpecError, match="'b' has size"):
        compose(good, good | {"b": np.arange(3)})
    with pytest.raises(SpecError, match="unit 1 is missing"):
        transpositions({"a": np.array([0, 0])})


def test_arrays_keep_their_kind():
    spec = PermutationSpec.parse({"w": ["a"]}, {"a": 3})
    perms = {"a": np.array([2, 0, 1])}
    for kind in ("float16", "bfloat16", "int8", "bool", "complex64"):
        anywhere = jnp.asarray([0, 1, 1]).astype(kind)
        for leaf in (anywhere, jax.device_put(anywhere, jax.devices()[0])):
            moved = bayesin.permute({"w": leaf}, spec, perms)["w"]
            assert moved.dtype == kind
            assert isinstance(moved, jax.Array)
            assert moved.sharding == leaf.sharding
            assert moved.committed == leaf.committed  # one tied to a device has programs of its own
    assert isinstance(bayesin.permute({"w": np.zeros(3)}, spec, perms)["w"], np.ndarray)
