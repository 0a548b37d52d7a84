"""Alignment of sums and of indexed groups: brute force over every permutation, planted networks, refusals."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesin import PermutationSpec, align, align_many, compact, costs, discover, invert, permute
from bayesin.errors import ConfigError, SpecError
from bayesin.matching import Similarities, descend, pose, pose_given
from bayesin.matching.costs import Wasserstein, similarity_shape
from bayesin.matching.families import structure_of
from bayesin.matching.problem import gain_of_units, objective
from bayesin.posteriors import Samples
from matching_problems import (
    all_perms,
    assert_never_rises,
    assert_same_perms,
    cost_by_definition,
    moved_by,
    random_gaussian,
    random_tree,
)

KEY = jax.random.key(0)

# One family each, whose global optimum a single step must reach.
ONE_FAMILY = {
    "heads": PermutationSpec.parse(
        {"qkv": ["2", "h * q[h] + h * q[h] + h * v[h]"], "o": ["h * v[h]", "2"], "slope": ["h"]},
        {"h": 3, "q[h]": 2, "v[h]": 2},
    ),
    "factors apart": PermutationSpec.parse({"w": ["h", "2", "u[h]"], "b": ["u[h]", "h"]}, {"h": 3, "u[h]": 3}),
    "layers": PermutationSpec.parse(
        {"w": ["layer", "2", "u[layer]"], "x": ["layer * u[layer]"]}, {"u[layer]": 4}, fixed={"layer": 2}
    ),
    "a chain of three": PermutationSpec.parse(
        {"w": ["a", "b[a] * c[a, b]", "2"], "v": ["a * b[a]", "3"]}, {"a": 2, "b[a]": 2, "c[a, b]": 2}
    ),
    "layers, heads, dimensions": PermutationSpec.parse(
        {"w": ["layer", "h[layer]", "2", "q[layer, h]"], "s": ["layer * h[layer]"]},
        {"h[layer]": 2, "q[layer, h]": 2},
        fixed={"layer": 2},
    ),
    "fixed between": PermutationSpec.parse(
        {"w": ["h * part * u[h, part]", "2"]}, {"h": 2, "u[h, part]": 2}, fixed={"part": 2}
    ),
    "a sum with a plain part": PermutationSpec.parse({"w": ["h * q[h] + 2 * h + 3", "2"]}, {"h": 3, "q[h]": 2}),
}
# Coupled to a stream, side by side, twice in a tensor: a step is exact with the others held, or at least never rises.
COUPLED = {
    "attention": PermutationSpec.parse(
        {"in": ["3", "s"], "qkv": ["s", "h * q[h] + h * q[h] + h * v[h]"], "o": ["h * v[h]", "s"], "out": ["s", "2"]},
        {"s": 3, "h": 2, "q[h]": 2, "v[h]": 3},
    ),
    "scanned": PermutationSpec.parse(
        {"in": ["2", "s"], "up": ["layer", "s", "u[layer]"], "down": ["layer", "u[layer]", "s"]},
        {"s": 3, "u[layer]": 3},
        fixed={"layer": 2},
    ),
    "two layers meet": PermutationSpec.parse(
        {"a": ["2", "layer * u[layer]"], "w": ["layer", "u[layer]", "v[layer]"], "b": ["layer * v[layer]", "2"]},
        {"u[layer]": 3, "v[layer]": 3},
        fixed={"layer": 2},
    ),
    "experts": PermutationSpec.parse(
        {"route": ["s", "e"], "up": ["e", "s", "u[e]"], "down": ["e", "u[e]", "s"], "in": ["2", "s"]},
        {"s": 3, "e": 2, "u[e]": 3},
    ),
    "shared heads": PermutationSpec.parse(
        {"a": ["layer", "h * u[layer, h]", "2"], "b": ["h", "2"]}, {"h": 2, "u[layer, h]": 2}, fixed={"layer": 2}
    ),
}
BESIDE = {
    "grouped queries": PermutationSpec.parse(
        {"q": ["3", "h * u[h] * 2"], "v": ["3", "h * w[h]"], "o": ["h * u[h] * w[h]", "2"], "k": ["3", "h"]},
        {"h": 2, "u[h]": 3, "w[h]": 2},
    ),
    "recurrent heads": PermutationSpec.parse(
        {"in": ["3", "h * u[h]"], "r": ["h", "u[h]", "u[h]"], "out": ["h * u[h]", "2"]}, {"h": 2, "u[h]": 3}
    ),
}
TWICE = {
    "heads on both axes": PermutationSpec.parse(
        {"w": ["h * u[h]", "h * u[h]"], "b": ["h * u[h]"]}, {"h": 2, "u[h]": 2}
    )
}
ALL = ONE_FAMILY | COUPLED | BESIDE | TWICE


def problem_of(spec, dtype=np.float64):
    return pose(random_gaussian(spec, 0, dtype), random_gaussian(spec, 1, dtype), spec, Wasserstein(), frozenset())


@pytest.mark.parametrize("name", ONE_FAMILY)
def test_one_family_is_exact_in_one_step(name):
    spec = ONE_FAMILY[name]
    for seed in range(2):
        target, source = random_tree(spec, seed), random_tree(spec, seed + 50)
        best = min(_costs_of_all(target, source, spec))
        result = align(target, source, spec, key=KEY, order=[list(spec.sizes)])
        np.testing.assert_allclose(result.objective, best, rtol=1e-12)
        assert 0.0 <= result.objective - result.gap <= best
        assert result.converged and result.sweeps == 1
        np.testing.assert_allclose(align(target, source, spec, key=KEY).objective, best, rtol=1e-12)


def _costs_of_all(target, source, spec):
    problem = pose(target, source, spec, Wasserstein(), frozenset())
    return [objective(problem, perms) for perms in all_perms(spec)]


@pytest.mark.parametrize("name", ALL)
def test_objective_and_gains_follow_the_definition(name):
    """What the flat view of a problem computes is what `permute` and the formula give."""
    spec, problem = ALL[name], problem_of(ALL[name])
    target, source = random_gaussian(spec, 0), random_gaussian(spec, 1)
    similarities = Similarities(problem)
    perms = spec.identity()
    for seed in range(4):
        new = spec.random(jax.random.key(seed))
        value = objective(problem, new)
        np.testing.assert_allclose(value, cost_by_definition(target, source, spec, new), rtol=1e-12)
        before, after = (problem.structure.flat(p) for p in (perms, new))
        for family in problem.structure.families if similarities.is_linear else ():
            if not similarities.is_linear(family):
                continue
            own = {unit: after[unit] for unit, u in problem.structure.units.items() if u.family == family}
            members = {problem.structure.members[m].group for m in problem.structure.families[family]}
            mixed = {g: p.copy() for g, p in perms.items()}
            for member in problem.structure.families[family]:
                m = problem.structure.members[member]
                mixed[m.group][m.at] = new[m.group][m.at]
            assert members
            fell = objective(problem, perms) - objective(problem, mixed)
            predicted = exact = 0.0
            for unit in similarities.units_of(family):
                alike, rows = similarities.matrix(unit, before), np.arange(own[unit].size)
                predicted += 2 * (alike[rows, own[unit]] - alike[rows, before[unit]]).sum()
                exact += gain_of_units(problem, unit, before, own[unit])
            np.testing.assert_allclose([predicted, exact], fell, atol=1e-9 * value)
        perms = new


@pytest.mark.parametrize("name", COUPLED)
def test_no_family_can_be_improved_with_the_others_held(name):
    spec = COUPLED[name]
    for seed in range(2):
        target, source = random_gaussian(spec, seed), random_gaussian(spec, seed + 50)
        result = align(target, source, spec, key=KEY)
        assert result.converged
        assert_never_rises(result.history)
        np.testing.assert_allclose(
            result.objective, cost_by_definition(target, source, spec, result.perms), rtol=1e-12
        )
        problem = pose(target, source, spec, Wasserstein(), frozenset())
        structure = structure_of(spec)
        for family, members in structure.families.items():
            groups = {structure.members[m].group for m in members}
            reached = [
                objective(problem, _with(structure, result.perms, members, perms))
                for perms in all_perms_of(spec, groups)
            ]
            assert min(reached) >= result.objective * (1 - 1e-9), family


def all_perms_of(spec, groups):
    """Every setting of some groups; the others are left out."""
    shapes = {group: spec.perm_shape(group) for group in groups}
    orders = [
        itertools.product(itertools.permutations(range(shape[-1])), repeat=int(np.prod(shape[:-1])))
        for shape in shapes.values()
    ]
    for choice in itertools.product(*orders):
        yield {g: np.array(perms).reshape(shapes[g]) for g, perms in zip(shapes, choice, strict=True)}


def _with(structure, perms, members, others):
    result = {group: perm.copy() for group, perm in perms.items()}
    for name in members:
        member = structure.members[name]
        result[member.group][member.at] = others[member.group][member.at]
    return result


@pytest.mark.parametrize("name", [*BESIDE, *TWICE])
def test_members_side_by_side_never_rise_and_no_swap_helps(name):
    spec, exact = ALL[name], 0
    for seed in range(4):
        target, source = random_tree(spec, seed), random_tree(spec, seed + 50)
        result = align(target, source, spec, key=KEY)
        assert_never_rises(result.history)
        assert result.converged
        best = min(_costs_of_all(target, source, spec))
        assert result.objective - result.gap <= best
        many = align(target, source, spec, key=KEY, restarts=20)
        assert best * (1 - 1e-12) <= many.objective <= result.objective
        exact += many.objective <= best * (1 + 1e-9)
        planted = spec.random(jax.random.key(seed))
        back = align(target, permute(target, spec, planted), spec, key=KEY, restarts=4)
        assert_same_perms(back.perms, invert(planted, spec))
    assert exact >= 3


def tiny_gpt2(layers=2, width=24, heads=3):
    axes, sizes = {"wte": ["40", "s"], "wpe": ["12", "s"], "ln": ["s"]}, {"s": width}
    for layer in range(layers):
        h, q, v, m = (f"{name}{layer}" for name in "hqvm")
        sizes |= {h: heads, f"{q}[{h}]": width // heads, f"{v}[{h}]": width // heads, m: 4 * width}
        fused = f"{h} * {q}[{h}] + {h} * {q}[{h}] + {h} * {v}[{h}]"
        axes |= {f"{layer}.attn": ["s", fused], f"{layer}.attn_b": [fused], f"{layer}.proj": [f"{h} * {v}[{h}]", "s"]}
        axes |= {f"{layer}.up": ["s", m], f"{layer}.up_b": [m], f"{layer}.down": [m, "s"], f"{layer}.ln": ["s"]}
    return PermutationSpec.parse(axes, sizes)


@pytest.mark.parametrize("limit", [1 << 23, 0], ids=["laid out", "streamed"])
def test_a_planted_gpt2_is_recovered_to_zero(limit, monkeypatch):
    monkeypatch.setattr("bayesin.matching.similarity.LAID_OUT", limit)
    monkeypatch.setattr("bayesin.matching.similarity.BLOCK", 500)
    spec = tiny_gpt2()
    for seed in range(3):
        target, planted = random_tree(spec, seed, np.float32), spec.random(jax.random.key(seed))
        result = align(target, permute(target, spec, planted), spec, key=jax.random.key(seed))
        assert result.objective == 0.0 and result.start == "anchored"
        assert_same_perms(result.perms, invert(planted, spec))
        assert result.moved == {g: int((p != np.arange(p.shape[-1])).sum()) for g, p in result.perms.items()}


def test_streamed_and_laid_out_searches_agree(monkeypatch):
    spec = tiny_gpt2(1, 12, 2)
    target, source = random_gaussian(spec, 0), random_gaussian(spec, 1)
    first = align(target, source, spec, key=KEY, restarts=3)
    monkeypatch.setattr("bayesin.matching.similarity.LAID_OUT", 0)
    monkeypatch.setattr("bayesin.matching.similarity.BLOCK", 100)
    second = align(target, source, spec, key=KEY, restarts=3)
    assert_same_perms(first.perms, second.perms)
    np.testing.assert_allclose(first.history, second.history, rtol=1e-10)


@pytest.mark.parametrize("name", ["heads", "layers", "layers, heads, dimensions"])
def test_similarities_given_outright(name):
    spec, rng = ONE_FAMILY[name], np.random.default_rng(0)
    given = {group: rng.normal(size=similarity_shape(spec, group)) for group in spec.sizes}
    problem = pose_given(spec, given)
    found = descend(Similarities(problem), spec.identity(), [tuple(spec.sizes)], 0.0)

    def worth(perms):
        total = 0.0
        for group, matrix in given.items():
            outer = spec.outer(group)
            for at in np.ndindex(*spec.perm_shape(group)[:-1]):
                here = dict(zip(outer, at, strict=True))
                moved = [
                    here[o] if o not in perms else perms[o][tuple(here[x] for x in (*spec.outer(o), o))]
                    for o in outer
                ]
                index = (*at, *(m for o, m in zip(outer, moved, strict=True) if o in perms))
                perm = perms[group][at]
                total += matrix[index][np.arange(perm.size), perm].sum()
        return total

    best = max(worth(perms) for perms in all_perms(spec))
    np.testing.assert_allclose(worth(found.perms), best, rtol=1e-12)
    np.testing.assert_allclose(found.objective, -2 * best, rtol=1e-12)


def test_a_similarity_across_fixed_factors_is_read_within_them():
    spec = ONE_FAMILY["layers, heads, dimensions"]
    full = np.random.default_rng(0).normal(size=(2, 2, 2, 2, 2, 2))  # layers and heads of target and source, units
    within = np.stack([full[layer, :, layer] for layer in range(2)])
    results = [
        align(random_tree(spec, 0), random_tree(spec, 1), spec, key=KEY, cost=Given({"q": matrix}))
        for matrix in (full, within)
    ]
    assert_same_perms(results[0].perms, results[1].perms)
    assert results[0].objective == results[1].objective < results[0].history[0]


class Given:
    """A cost all of whose evidence is given."""

    def __init__(self, matrices):
        self.matrices = matrices

    def similarities(self, target, source, spec):
        return {group: costs.GroupSimilarity(matrix) for group, matrix in self.matrices.items()}


def test_a_cost_that_gives_a_similarity_of_the_wrong_shape_is_refused():
    spec = ONE_FAMILY["heads"]
    with pytest.raises(ConfigError, match=r"needs finite numbers of shape \(3, 3, 2, 2\)"):
        align(random_tree(spec, 0), random_tree(spec, 1), spec, key=KEY, cost=Given({"q": np.zeros((3, 3))}))


def test_many_and_compact_know_indexed_groups():
    spec = tiny_gpt2(1, 12, 2)
    base = random_tree(spec, 0, np.float32)
    planted = [spec.random(jax.random.key(seed)) for seed in range(3)]
    moved = [permute(base, spec, perms) for perms in planted]
    assert align_many(moved, spec, key=KEY).objective == 0.0
    folded = compact(Samples.stack(moved), spec, key=KEY)
    assert max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(folded.posterior.std)) < 1e-6
    layers = ONE_FAMILY["layers"]
    base = random_gaussian(layers, 0)
    pair = [moved_by(base, layers, layers.random(jax.random.key(seed))) for seed in range(2)]
    assert align_many(pair, layers, key=KEY).objective == 0.0


def test_what_no_sequence_of_assignments_solves_is_refused():
    independent = PermutationSpec.parse({"w": ["a", "b", "u[a, b]"]}, {"a": 2, "b": 2, "u[a, b]": 2})
    with pytest.raises(SpecError, match="indexed by the independent groups 'a' and 'b'"):
        align(random_tree(independent, 0), random_tree(independent, 1), independent, key=KEY)
    depths = PermutationSpec.parse(
        {"w": ["h", "u[h]", "v[h]", "x[h, v]"]}, {"h": 2, "u[h]": 2, "v[h]": 2, "x[h, v]": 2}
    )
    with pytest.raises(SpecError, match="'w' has side by side at different depths"):
        align(random_tree(depths, 0), random_tree(depths, 1), depths, key=KEY)


def layer(x, p, heads=3):
    """One layer of a transformer with fused projections."""
    query, key, value = (part.reshape(*x.shape[:2], heads, -1) for part in jnp.split(norm(x) @ p["qkv"], 3, -1))
    weights = jax.nn.softmax(jnp.einsum("bthd,bshd->bhts", query, key), -1)
    x = x + jnp.einsum("bhts,bshd->bthd", weights, value).reshape(*x.shape[:2], -1) @ p["out"]
    return x + jax.nn.gelu(norm(x) @ p["up"]) @ p["down"]


def norm(x):
    return x / jnp.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)


def scanned(params, tokens):
    x = params["embed"][tokens]
    x, _ = jax.lax.scan(lambda x, p: (layer(x, p), None), x, params["layers"])
    return x @ params["embed"].T


def unrolled(params, tokens):
    x = params["embed"][tokens]
    for name in sorted(params["layers"]):
        x = layer(x, params["layers"][name])
    return x @ params["embed"].T


def test_a_scanned_transformer_is_aligned_as_the_same_one_unrolled():
    """From discovery to the moved network: fused projections, dimensions of each head, layers under a scan."""
    shapes = {"qkv": (12, 27), "out": (9, 12), "up": (12, 10), "down": (10, 12)}

    def draw(seed):
        rng = np.random.default_rng(seed)
        layers = {name: rng.normal(size=(2, *shape)).astype(np.float32) for name, shape in shapes.items()}
        return {"embed": rng.normal(size=(11, 12)).astype(np.float32), "layers": layers}

    def unrolled_params(tree):
        return {**tree, "layers": {f"l{i}": {n: leaf[i] for n, leaf in tree["layers"].items()} for i in range(2)}}

    tokens = jax.random.randint(jax.random.key(5), (2, 4), 0, 11)
    target, source = draw(0), draw(1)
    spec, flat_spec = discover(scanned, target, tokens), discover(unrolled, unrolled_params(target), tokens)
    np.testing.assert_allclose(spec.log10_order, flat_spec.log10_order)
    ours = align(target, source, spec, key=KEY, check=(scanned, tokens))
    other = align(unrolled_params(target), unrolled_params(source), flat_spec, key=KEY, check=(unrolled, tokens))
    np.testing.assert_allclose(ours.history[1], other.history[1], rtol=1e-6)  # the first sweep takes no key
    planted = spec.random(jax.random.key(1))
    assert align(target, permute(target, spec, planted), spec, key=KEY).objective == 0.0
