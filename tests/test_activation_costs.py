"""Matching by what units compute: where they show, and `Activations` and `Blend` against their definitions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import networks
from architectures import ARCHITECTURES
from bayesin import Gaussian, align, align_many, compose, costs, discover, invert, permute
from bayesin.errors import ConfigError, DataError, ModelError
from bayesin.jaxprs import unrolled
from bayesin.matching.incoming import incoming_moments, weighted
from bayesin.symmetry import find_sites
from matching_problems import all_perms, assert_same_perms

pytestmark = pytest.mark.promotes  # the networks of the table do
KEY = jax.random.key(0)
X, _ = networks.data(60)
NET = networks.params(0)
SPEC = discover(networks.apply, NET, X[:2])


def relu(x):
    return np.maximum(x, 0)


def mlp_sites(p, x):
    first = x @ p["w0"] + p["b0"]
    return [first, relu(first) @ p["w1"] + p["b1"]]


def layer_norm_sites(p, x):
    x = x @ p["w0"]
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-3)
    return [x * p["gain"] + p["bias"]]


def residual_sites(p, x):
    """The stream before each use, the units of each branch, and what each branch adds."""
    stream, found = x @ p["embed"], []
    for i in range(2):
        inside = stream @ p[f"up{i}"]
        added = relu(inside) @ p[f"down{i}"]
        found += [stream, inside, added]
        stream = stream + added
    return [*found, stream]


def attention_sites(p, x):
    """Queries, keys, values, and the scores of each head."""
    q, k, v = (x @ p[name] for name in "qkv")
    split = lambda y: y.reshape(*y.shape[:-1], -1, 4)  # noqa: E731
    scores = np.einsum("bthk,bshk->btsh", split(q), split(k)) / 2
    return [q, k, v, scores]


SITES = {
    "mlp": mlp_sites,
    "layer norm": layer_norm_sites,
    "residual stream": residual_sites,
    "separate projections": attention_sites,
}


@pytest.mark.parametrize("name", SITES)
def test_groups_show_before_every_non_linearity_sum_and_contraction(name):
    model = ARCHITECTURES[name]
    spec = discover(model.apply, model.params, model.x)
    found = find_sites(model.apply, model.params, model.x, spec).joined(model.params, model.x)
    wanted = SITES[name]({path: np.asarray(leaf, np.float64) for path, leaf in model.params.items()}, model.x)
    assert len(found) == len(wanted)
    for value in wanted:
        gaps = [np.abs(value - other).max() for other in found if other.shape == value.shape]
        assert min(gaps) < 1e-5 * np.abs(value).max()


def test_a_group_that_shows_nowhere_is_named():
    apply = lambda p, x: jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, p["w"])[0]  # noqa: E731
    params = {"w": np.random.default_rng(0).normal(size=(2, 4, 4)).astype(np.float32)}
    spec = costs.PermutationSpec.parse({"w": ["2", "g0", "g0"]}, {"g0": 4})
    with pytest.raises(ModelError, match=r"follows group 'g0' .*scan"):
        find_sites(apply, params, np.eye(4, dtype=np.float32), spec)


def by_definition(compare, target, source, spec, perms):
    """Σ over sites and units of E|a − b|², a and b centred; of correlations, after each was made of unit variance."""
    total = 0.0
    for ours, theirs in zip(hidden(target), hidden(permute(source, spec, perms)), strict=True):
        if compare == "correlation":
            ours, theirs = ours / ours.std(0), theirs / theirs.std(0)
        total += (ours - theirs).var(0).sum()
    return total


def hidden(params):
    x, found = X.astype(np.float64), []
    for layer in sorted(params)[:-1]:
        found.append(x @ np.asarray(params[layer]["kernel"], np.float64) + np.asarray(params[layer]["bias"]))
        x = relu(found[-1])
    return found


@pytest.mark.parametrize("compare", ["covariance", "correlation"])
def test_the_best_of_all_permutations_is_found(compare):
    target, source = networks.params(0, (6, 4, 4, 2)), networks.params(1, (6, 4, 4, 2))
    spec = discover(networks.apply, target, X[:2])
    cost = costs.Activations(networks.apply, X, compare=compare)
    alignment = align(target, source, spec, key=KEY, cost=cost)
    best = min(by_definition(compare, target, source, spec, perms) for perms in all_perms(spec))
    reached = by_definition(compare, target, source, spec, alignment.perms)
    np.testing.assert_allclose([alignment.objective, reached], best, rtol=1e-5)


def test_planted_permutations_are_found_by_activations_alone():
    """Every rectified unit scaled up and its outgoing weights down: the function stays, its weights say little."""
    rng, planted = np.random.default_rng(3), SPEC.random(jax.random.key(1))
    scaled = jax.tree.map(np.array, NET)
    for before, after in (("l0", "l1"), ("l1", "l2")):
        factor = np.exp(rng.uniform(-2, 2, 8)).astype(np.float32)
        scaled[before] = {name: leaf * factor for name, leaf in scaled[before].items()}
        scaled[after]["kernel"] /= factor[:, None]
    moved = permute(scaled, SPEC, planted)
    cost = costs.Activations(networks.apply, X, compare="correlation")
    found = align(NET, moved, SPEC, key=KEY, cost=cost, check=(networks.apply, X[:4]))
    assert_same_perms(found.perms, {group: np.argsort(perm) for group, perm in planted.items()})


def test_planted_permutations_are_found_in_draws_of_posteriors():
    q = networks.gaussian(0, spread=0.1)
    planted = SPEC.random(jax.random.key(2))
    cost = costs.Activations(networks.apply, X, samples=8, key=jax.random.key(3))
    found = align(q, q.permute(SPEC, planted), SPEC, key=KEY, cost=cost)
    assert_same_perms(found.perms, {group: np.argsort(perm) for group, perm in planted.items()})


def state_after_state(params, x):
    """A tanh cell over rows, turn by turn."""
    state = jnp.zeros((len(x), 8))
    for turn in range(x.shape[1]):
        state = jnp.tanh(x[:, turn] @ params["w"] + state @ params["u"] + params["b"])
    return state @ params["out"]


def in_a_loop(params, x):
    def step(state, row):
        return jnp.tanh(row @ params["w"] + state @ params["u"] + params["b"]), None

    return jax.lax.scan(step, jnp.zeros((len(x), 8)), x.transpose(1, 0, 2))[0] @ params["out"]


@pytest.mark.parametrize("make", [costs.Activations, costs.Incoming])
def test_a_state_is_compared_in_every_turn_of_its_loop(make):
    rng = np.random.default_rng(0)
    shapes = {"w": (3, 8), "u": (8, 8), "b": (8,), "out": (8, 2)}
    draws = [{name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()} for _ in range(2)]
    x = rng.normal(size=(40, 5, 3)).astype(np.float32)
    spec = discover(in_a_loop, draws[0], x[:2])
    found = [align(*draws, spec, key=KEY, cost=make(apply, x)) for apply in (in_a_loop, state_after_state)]
    assert_same_perms(found[0].perms, found[1].perms)
    np.testing.assert_allclose(found[0].history, found[1].history, rtol=1e-4)
    last = align(*draws, spec, key=KEY, cost=costs.Activations(lambda p, x: in_a_loop(p, x[:, -1:]), x))
    assert (last.perms["g0"] != found[0].perms["g0"]).any()  # the last turn alone says something else


def stack_of_layers(params, x):
    """A residual stream through layers that lie in one array, and whose units have an order each."""

    def layer(stream, own):
        return stream + jax.nn.relu(stream @ own["up"] + own["bias"]) @ own["down"], None

    return jax.lax.scan(layer, x @ params["embed"], params["layers"])[0] @ params["out"]


def layer_after_layer(params, x):
    stream = x @ params["embed"]
    for own in params["layers"]:
        stream = stream + jax.nn.relu(stream @ own["up"] + own["bias"]) @ own["down"]
    return stream @ params["out"]


def layers_problem():
    rng = np.random.default_rng(1)
    shapes = {"up": (3, 6, 8), "bias": (3, 8), "down": (3, 8, 6)}
    draw = lambda shape: rng.normal(size=shape).astype(np.float32) / 2  # noqa: E731
    target, source = (
        {"embed": draw((4, 6)), "layers": {n: draw(shape) for n, shape in shapes.items()}, "out": draw((6, 2))}
        for _ in range(2)
    )
    return target, source, draw((50, 4))


@pytest.mark.parametrize("make", [costs.Activations, costs.Incoming])
def test_units_of_scanned_layers_are_compared_layer_by_layer(make):
    *pair, x = layers_problem()
    apart = [q | {"layers": [{n: leaf[i] for n, leaf in q["layers"].items()} for i in range(3)]} for q in pair]
    spec, written_out = discover(stack_of_layers, pair[0], x[:2]), discover(layer_after_layer, apart[0], x[:2])
    found = align(*pair, spec, key=KEY, cost=make(stack_of_layers, x))
    wanted = align(*apart, written_out, key=KEY, cost=make(layer_after_layer, x))
    assert spec.sizes == {"g0": 6, "g1": 8} and written_out.sizes == {"g0": 6, "g1": 8, "g2": 8, "g3": 8}
    np.testing.assert_array_equal(found.perms["g1"], [wanted.perms[f"g{i}"] for i in (1, 2, 3)])
    np.testing.assert_array_equal(found.perms["g0"], wanted.perms["g0"])
    np.testing.assert_allclose(found.history[-1], wanted.history[-1], rtol=1e-4)


def test_a_stack_of_layers_that_was_shuffled_is_found_by_activations_alone():
    target, _, x = layers_problem()
    spec = discover(stack_of_layers, target, x[:2])
    planted = spec.random(jax.random.key(4))
    found = align(target, permute(target, spec, planted), spec, key=KEY, cost=costs.Activations(stack_of_layers, x))
    assert_same_perms(found.perms, {group: np.argsort(perm, -1) for group, perm in planted.items()})
    with pytest.raises(ModelError, match="'g1' has units of its own in every layer of a stack"):
        find_sites(unrolled(stack_of_layers, target, x), target, x, spec).joined.values(target, x)


def test_heads_are_found_by_their_scores_and_their_units_by_what_each_head_computes():
    model = ARCHITECTURES["kernels of three axes"]
    spec = discover(model.apply, model.params, model.x)
    heads = next(group for group, size in spec.sizes.items() if size == 2)
    x = np.random.default_rng(0).normal(size=(20, *model.x.shape[1:])).astype(np.float32)
    moved = permute(model.params, spec, {**spec.identity(), heads: np.array([1, 0])})
    cost = costs.Activations(model.apply, x)
    found = align(model.params, moved, spec, key=KEY, cost=cost)
    assert_same_perms(found.perms, {**spec.identity(), heads: np.array([1, 0])})
    assert set(cost.similarities(model.params, moved, spec)) == set(spec.sizes)


def test_a_blend_of_all_or_nothing_is_one_of_its_parts():
    target, source = networks.gaussian(0), networks.gaussian(1)
    parts = costs.Wasserstein(), costs.Activations(networks.apply, X)
    for weight, part in enumerate(parts):
        alone = align(target, source, SPEC, key=KEY, cost=part)
        blended = align(target, source, SPEC, key=KEY, cost=costs.Blend(*parts, float(weight)))
        assert_same_perms(alone.perms, blended.perms)
        ratio = blended.history / alone.history
        np.testing.assert_allclose(ratio, ratio[0], rtol=1e-4)


def test_a_blend_is_the_sum_of_its_parts_in_units_of_their_largest_products():
    target, source = networks.params(0), networks.params(1)
    activations = costs.Activations(networks.apply, X)
    alignment = align(target, source, SPEC, key=KEY, cost=costs.Blend("wasserstein", activations, 0.3))
    moved = permute(source, SPEC, alignment.perms)
    pairs = list(zip(jax.tree.leaves(target), jax.tree.leaves(moved), strict=True))
    weights = sum(((a - b) ** 2).sum() for a, b in pairs)
    largest = sum(np.linalg.norm(a) * np.linalg.norm(b) for a, b in pairs)
    units = by_definition("covariance", target, source, SPEC, alignment.perms)
    spreads = 0.5 * sum(value.var(0).sum() for net in (target, source) for value in hidden(net))
    np.testing.assert_allclose(alignment.objective, 0.7 * weights / largest + 0.3 * units / spreads, rtol=1e-5)


def conv(p, x):
    return jax.lax.conv_general_dilated(
        x, p["w"], (2, 1), "SAME", rhs_dilation=(1, 2), dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def dense(p, x):
    return jnp.einsum("bij,kji->bk", x, p["w"].reshape(3, 4, 5))


@pytest.mark.parametrize("apply, kernel, shape", [(conv, (3, 2, 4, 3), (7, 6, 5, 4)), (dense, (12, 5), (7, 5, 4))])
def test_what_enters_a_layer_says_what_a_change_of_its_kernel_does(apply, kernel, shape):
    rng = np.random.default_rng(0)
    x, change = rng.normal(size=shape).astype(np.float32), rng.normal(size=kernel).astype(np.float32)
    moments = incoming_moments(apply, [{"w": change}], x)
    found = np.vdot(change, weighted(moments, {"w": change})["w"])
    exact = np.square(np.asarray(apply({"w": change}, x), np.float64)).sum(-1).mean()
    np.testing.assert_allclose(found, exact, rtol=1e-5)


def test_the_outputs_of_a_layer_are_matched_by_what_a_change_of_them_does():
    """Inputs held: E|(W₀ − P W₁) h|² of the first layer, the mean over what enters both, against brute force."""
    target, source = networks.gaussian(0, (6, 4, 3)), networks.gaussian(1, (6, 4, 3))
    spec = discover(networks.apply, target.mean, X[:2])
    cost = costs.Incoming(networks.apply, X)
    found = align(target, source, spec, key=KEY, cost=cost, exclude=["l1/kernel"])

    def of_layer(perms):
        moved, h = source.permute(spec, perms), X.astype(np.float64)
        gap, narrow = (
            [
                np.asarray(getattr(target, part)["l0"][name] - getattr(moved, part)["l0"][name], np.float64)
                for name in ("kernel", "bias")
            ]
            for part in ("mean", "std")
        )
        means = np.square(h @ gap[0]).sum(-1).mean() + np.square(gap[1]).sum()
        return means + (np.square(h) @ np.square(narrow[0])).sum(-1).mean() + np.square(narrow[1]).sum()

    best = min(all_perms(spec), key=of_layer)
    assert_same_perms(found.perms, best)
    assert found.history[0] - found.objective == pytest.approx(of_layer(spec.identity()) - of_layer(best), rel=1e-4)
    together = align_many([target, source], spec, key=KEY, cost=cost, exclude=["l1/kernel"])
    assert_same_perms(compose(invert(together.perms[0]), together.perms[1]), best)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: costs.Activations(networks.apply, X, compare="cosine"), "compare must be one of"),
        (lambda: costs.Activations(networks.apply, X[0]), "batch first"),
        (lambda: costs.Activations(networks.apply, X[:1]), "batch first"),
        (lambda: costs.Activations(networks.apply, X, samples=-1), "samples starts at 0"),
        (lambda: costs.Blend("wasserstein", "means", 1.5), "between 0 and 1"),
        (lambda: costs.Blend("wasserstein", "kl"), "'kl' is no sum of squares"),
        (lambda: costs.Blend("means", costs.Incoming(networks.apply, X)), "'incoming' is no sum of squares"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(DataError if "batch" in message else ConfigError, match=message):
        make()


@pytest.mark.parametrize("make", [costs.Activations, costs.Incoming])
def test_a_network_that_cannot_compute_these_inputs_is_refused(make):
    decides = lambda params, x: networks.apply(params, x) if x.sum() > 0 else x  # noqa: E731
    for apply, x, message in ((networks.apply, X[:, 1:], "apply fails on params"), (decides, X, "cannot be traced")):
        with pytest.raises(ModelError, match=message):
            align(NET, NET, SPEC, key=KEY, cost=make(apply, x))


def test_a_network_for_one_batch_size_is_refused():
    model = ARCHITECTURES["separate projections"]
    spec = discover(model.apply, model.params, model.x)
    with pytest.raises(ModelError, match="apply fails on params and an input of shape"):
        align(model.params, model.params, spec, key=KEY, cost=costs.Activations(model.apply, model.x))


def test_draws_need_a_key():
    cost = costs.Activations(networks.apply, X, samples=2)
    with pytest.raises(ConfigError, match="key= is needed"):
        align(networks.gaussian(0), networks.gaussian(1), SPEC, key=KEY, cost=cost)
    point = Gaussian.point(NET).mean
    assert align(point, NET, SPEC, key=KEY, cost=cost).objective < 1e-4  # points are drawn without one
