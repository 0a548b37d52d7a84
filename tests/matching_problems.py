"""Problems that the tests of matching share, and the cost of a permutation from its definition."""

import itertools

import numpy as np

from bayesin import Gaussian, PermutationSpec, permute


def moved_by(q, spec, perms):
    """A Gaussian or a point with its units permuted."""
    return q.permute(spec, perms) if isinstance(q, Gaussian) else permute(q, spec, perms)


def mlp_spec(*widths, bias=True):
    """Spec of a plain MLP: one group for each hidden layer."""
    names = [str(widths[0])] + [f"g{i}" for i in range(len(widths) - 2)] + [str(widths[-1])]
    axes = {f"w{i}": [names[i], names[i + 1]] for i in range(len(widths) - 1)}
    if bias:
        axes |= {f"b{i}": [names[i + 1]] for i in range(len(widths) - 1)}
    return PermutationSpec.parse(axes, {f"g{i}": n for i, n in enumerate(widths[1:-1])})


def random_tree(spec, seed, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return {path: rng.normal(size=spec.shape(path)).astype(dtype) for path, _ in spec.parameters}


def random_gaussian(spec, seed, dtype=np.float64):
    std = {
        path: np.abs(leaf) + np.asarray(0.1, dtype) for path, leaf in random_tree(spec, seed + 1000, dtype).items()
    }
    return Gaussian(random_tree(spec, seed, dtype), std)


def all_perms(spec):
    """Every setting of a spec's permutations, those of indexed groups included."""
    shapes = [spec.perm_shape(group) for group in spec.sizes]
    counts = [int(np.prod(shape[:-1])) for shape in shapes]
    orders = [
        itertools.product(itertools.permutations(range(shape[-1])), repeat=count)
        for shape, count in zip(shapes, counts, strict=True)
    ]
    for choice in itertools.product(*orders):
        yield {
            group: np.array(perms).reshape(shape)
            for group, perms, shape in zip(spec.sizes, choice, shapes, strict=True)
        }


def cost_by_definition(target, source, spec, perms, cost="wasserstein"):
    """W₂², squared distance of means or KL, straight from the formula and `permute`."""
    gaussian = isinstance(target, Gaussian)
    m0, m1 = (target.mean, source.mean) if gaussian else (target, source)
    m1 = permute(m1, spec, perms)
    total = sum(((m0[p] - m1[p]) ** 2).sum() for p in m0)
    if not gaussian or cost == "means":
        return total
    s0, s1 = target.std, permute(source.std, spec, perms)
    if cost == "wasserstein":
        return total + sum(((s0[p] - s1[p]) ** 2).sum() for p in s0)
    terms = [np.log(s0[p] / s1[p]) + (s1[p] ** 2 + (m0[p] - m1[p]) ** 2) / (2 * s0[p] ** 2) - 0.5 for p in s0]
    return sum(term.sum() for term in terms)


def assert_never_rises(history):
    assert (np.diff(history) <= 0).all()


def assert_same_perms(first, second):
    assert {group: perm.tolist() for group, perm in first.items()} == {g: p.tolist() for g, p in second.items()}


ONE_GROUP = {
    "one hidden layer": mlp_spec(3, 5, 2),
    "no bias": mlp_spec(2, 6, 3, bias=False),
    "flattened map": PermutationSpec.parse({"k": ["3", "3", "2", "g0"], "d": ["4 * g0", "3"]}, {"g0": 5}),
    "group before fixed": PermutationSpec.parse({"k": ["2", "g0 * 3"], "d": ["g0", "2"]}, {"g0": 4}),
}
QUADRATIC = {
    "x + Wx": PermutationSpec.parse({"in": ["2", "g0"], "w": ["g0", "g0"], "out": ["g0", "2"]}, {"g0": 6}),
    "W alone": PermutationSpec.parse({"w": ["g0", "g0"]}, {"g0": 5}),
    "one axis": PermutationSpec.parse({"in": ["2", "g0"], "w": ["g0 * g0", "3"]}, {"g0": 5}),
    "gates": PermutationSpec.parse({"in": ["2", "4 * g0"], "w": ["g0", "4 * g0"], "b": ["4 * g0"]}, {"g0": 5}),
}
