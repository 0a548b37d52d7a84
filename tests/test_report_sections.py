"""Sections of the report against what they are made of."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesin.data import from_arrays
from bayesin.evaluation import barrier, metrics, plane
from bayesin.json_files import plain
from bayesin.lab.report import sections
from bayesin.lab.report.barrier_report import title_of
from bayesin.lab.report.document import check_report
from bayesin.lab.report.sections import largest, pruned_units, unit_correlation, unit_vectors
from bayesin.matching import align
from bayesin.paths import geodesic, wasserstein
from bayesin.posteriors import Gaussian
from bayesin.symmetry import PermutationSpec, permute, transpositions

SPEC = PermutationSpec.parse(
    {"a": ["64", "g0"], "b": ["g0"], "c": ["g0", "g1"], "d": ["g1"], "e": ["g1", "3"]}, {"g0": 7, "g1": 5}
)


def apply(params, x):
    x = x.reshape(len(x), -1)
    x = jax.nn.relu(x @ params["a"] + params["b"][None])
    x = jax.nn.relu(x @ params["c"] + params["d"][None])
    return x @ params["e"]


def gaussian(seed: int) -> Gaussian:
    random = np.random.default_rng(seed)
    shapes = {path: SPEC.shape(path) for path in SPEC.axes}
    mean = {path: jnp.asarray(random.normal(size=shape), jnp.float32) for path, shape in shapes.items()}
    std = {path: jnp.asarray(random.uniform(0.01, 0.1, shape), jnp.float32) for path, shape in shapes.items()}
    return Gaussian(mean, std)


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng(0)
    x, y = random.uniform(0, 1, (40, 8, 8, 1)).astype(np.float32), np.arange(40) % 3
    return from_arrays(x[:20], y[:20], x[20:], y[20:])


@pytest.fixture(scope="module")
def barriers(data):
    path = geodesic(gaussian(0), gaussian(1))
    kept = [0, 1, 2]
    test = barrier(path, apply, (data.x_test, data.y_test), key=jax.random.key(0), samples=8, taus=5, keep=kept)
    return {"naive": test, "aligned": test}


def test_unit_vectors_hold_every_weight_a_unit_touches_once():
    mean = jax.tree.map(np.asarray, gaussian(0).mean)
    rows = unit_vectors(mean, SPEC, "g0")
    for unit in range(7):
        expected = np.concatenate([mean["a"][:, unit], mean["b"][unit : unit + 1], mean["c"][unit]])
        np.testing.assert_array_equal(rows[unit], expected)
    assert unit_vectors(mean, SPEC, "g1", exclude=("c", "d", "e")).shape == (5, 0)


def test_unit_vectors_of_a_flattened_axis():
    """A group inside a product: the channel of a flattened feature map."""
    spec = PermutationSpec.parse({"w": ["2 * g0 * 3", "4"]}, {"g0": 5})
    w = np.arange(120.0).reshape(30, 4)
    np.testing.assert_array_equal(
        unit_vectors({"w": w}, spec, "g0"), np.moveaxis(w.reshape(2, 5, 3, 4), 1, 0).reshape(5, -1)
    )


def test_unit_correlation_is_that_of_numpy():
    random = np.random.default_rng(0)
    one, other = random.normal(size=(4, 9)), random.normal(size=(6, 9))
    np.testing.assert_allclose(unit_correlation(one, other), np.corrcoef(one, other)[:4, 4:], atol=1e-12)
    constant = unit_correlation(np.ones((2, 5)), other[:, :5])
    assert np.all(constant == 0)


def test_pruned_and_largest_units():
    mean, std = np.array([[0.5, -0.9], [0.5, 1.1], [0.0, 0.0]]), np.ones((3, 2))
    assert pruned_units(mean, std).tolist() == [True, False, True]
    assert not pruned_units(mean, np.zeros((3, 2))).any()  # a point is certain of its weights
    assert largest(mean, 2).tolist() == [1, 0]


def test_a_planted_permutation_shows_as_perfect_correlation():
    target, planted = gaussian(0), SPEC.random(jax.random.key(3))
    source = Gaussian(*(permute(tree, SPEC, planted) for tree in (target.mean, target.std)))
    found = align(target, source, SPEC, key=jax.random.key(0), restarts=4)
    section = _plain(sections.alignment_section(target, source, found.posterior, found, SPEC))
    for group in SPEC.sizes:
        np.testing.assert_allclose(section["correlation"][group]["after"], 1.0, atol=1e-3)
        assert np.diag(section["similarity"][group]["after"]).min() > 0.99
        assert max(section["correlation"][group]["before"]) <= 1.0
    moved = {row["name"]: (row["moved"], row["transpositions"]) for row in section["groups"]}
    swaps = transpositions(found.perms)
    assert moved == {group: (found.moved[group], swaps[group]) for group in SPEC.sizes}
    assert section["unaligned"] == pytest.approx(float(wasserstein(target, source)) ** 2, rel=1e-4)
    for curve in section["stds"]["curves"]:
        assert sum(curve["shares"]) == pytest.approx(1.0, abs=1e-4)
    by_role = {curve["role"]: curve["shares"] for curve in section["stds"]["curves"]}
    assert by_role["first"] == by_role["second"] == by_role["aligned"]  # moving units changes no histogram
    assert by_role["naive"] != by_role["first"]
    check_report(_document(alignment=section))


def test_the_matrices_between_sweeps_go_from_before_to_after():
    target, planted = gaussian(0), SPEC.random(jax.random.key(3))
    source = Gaussian(*(permute(tree, SPEC, planted) for tree in (target.mean, target.std)))
    sweeps = []
    found = align(target, source, SPEC, key=jax.random.key(0), on_sweep=lambda sweep: sweeps.append(sweep.perms))
    whole = [SPEC.identity(), *sweeps]  # as if the search had begun with a sweep that moved nothing
    section = _plain(sections.alignment_section(target, source, found.posterior, found, SPEC, sweeps=whole))
    for matrices in section["similarity"].values():
        assert len(matrices["between"]) == len(sweeps)
        assert matrices["between"][0] == matrices["before"]
    again = sections.alignment_section(target, source, found.posterior, found, SPEC, sweeps=[*sweeps, sweeps[-1]])
    for matrices in _plain(again)["similarity"].values():
        assert matrices["between"][-1] == matrices["after"]
    check_report(_document(alignment=section))


@pytest.mark.parametrize(
    ("heights", "points", "title"),
    [
        (
            {"naive": 0.9, "aligned": 0.0125},
            False,
            "Alignment takes away 98.6\u00a0% of the barrier between two posteriors",
        ),
        (
            {"naive": 0.9, "aligned": 0.0001},
            True,
            "Alignment takes away 99.9\u00a0% of the barrier between two networks",
        ),
        ({"naive": 0.9}, False, "A barrier of 0.90 nats between two posteriors"),
        ({"naive": 0.9, "aligned": 0.9}, False, "Alignment does not lower the barrier between two posteriors"),
        ({"naive": 0.015, "aligned": 0.0}, False, "No barrier between two posteriors"),
    ],
)
def test_the_title_says_what_was_found(heights, points, title):
    curves = {kind: SimpleNamespace(value=height, standard_error=0.01) for kind, height in heights.items()}
    assert title_of(SimpleNamespace(headline=("test set", curves), points=points)) == title


def test_classes_have_their_names_where_the_data_are_known(data):
    assert sections.class_names(dataclasses.replace(data, name="fashion-mnist"), 10)[:2] == ["T-shirt", "trouser"]
    assert sections.class_names(dataclasses.replace(data, name="fashion-mnist"), 3) == ["0", "1", "2"]
    assert sections.class_names(data, 3) == ["0", "1", "2"]


def test_points_have_no_histogram_of_stds():
    point = Gaussian.point(gaussian(0).mean)
    assert sections.std_section(point, point, point) is None


def test_the_walk_agrees_with_the_barrier(data, barriers):
    walk = _plain(sections.walk_section(barriers, data))
    one = barriers["naive"]
    for at, step in enumerate(walk["naive"]):
        confusion = np.array(step["confusion"])
        assert confusion.sum() == one.examples == 20
        assert np.trace(confusion) / 20 == pytest.approx(step["accuracy"], abs=1e-5)
        counts = np.array([bin["count"] for bin in step["calibration"]])
        gaps = np.array([abs(bin["accuracy"] - bin["confidence"]) for bin in step["calibration"]])
        assert (counts * gaps).sum() / 20 == pytest.approx(step["ece"], abs=1e-4)
        assert step["nll"] == pytest.approx(one.nll[at], rel=1e-5)
        np.testing.assert_allclose(np.sum(step["probabilities"], 1), 1.0, atol=1e-3)
    pixels = np.array(walk["images"]["pixels"]).reshape(3, 8, 8, 1)
    shown = np.round(255 * (data.x_test[:3] * data.std + data.mean))
    np.testing.assert_allclose(pixels, np.clip(shown, 0, 255), atol=1)
    assert walk["images"]["labels"] == data.y_test[:3].tolist()
    assert metrics.accuracy(np.array(walk["naive"][0]["probabilities"]), data.y_test[:3]) in {0, 1 / 3, 2 / 3, 1}
    check_report(_document(walk=walk, barrier=_plain(sections.barrier_section({"test": barriers}))))


def test_the_barrier_section_keeps_value_and_error(barriers):
    curve = _plain(sections.barrier_section({"test": barriers}))["sets"]["test"]["naive"]
    assert curve["value"] == pytest.approx(barriers["naive"].value, rel=1e-5)
    assert curve["nll_error"][0] == curve["nll_error"][-1] == 0  # the chord is exact at its ends
    assert curve["error"] == pytest.approx(barriers["naive"].standard_error, rel=1e-5)


def test_the_plane_section(data):
    corners = [gaussian(seed) for seed in (0, 1, 2)]
    test = (data.x_test, data.y_test)
    found = plane(corners, apply, test, key=jax.random.key(0), prior_variance=1.0, resolution=5, samples=2)
    section = _plain(sections.plane_section(found, 20, [0.1, 0.2, 0.3], ["a", "b", "c"]))
    np.testing.assert_allclose(section["nll"], -found.log_likelihood / 20, rtol=1e-5)
    assert [point["role"] for point in section["points"]] == ["target", "source", "aligned"]
    assert section["points"][1]["distance"] == pytest.approx(found.corners[1, 0], rel=1e-5)
    check_report(_document(plane=section))


def test_the_posterior_section():
    one, other = gaussian(0), gaussian(1)
    quiet = Gaussian(jax.tree.map(lambda m: 0 * m, one.mean), one.std)
    section = _plain(sections.posterior_section({"x": one, "y": quiet}, SPEC, prior_variance=0.25))
    assert section["prior_std"] == 0.5
    assert [row["pruned"] for row in section["units"]] == [[0, 7], [0, 5]]
    kernel = next(row for row in section["layers"] if row["name"] == "a")
    np.testing.assert_allclose(kernel["std"][0], np.quantile(one.std["a"], sections.QUANTILES), rtol=1e-5)
    np.testing.assert_allclose(
        kernel["snr"][0], np.quantile(np.abs(one.mean["a"] / one.std["a"]), sections.QUANTILES), rtol=1e-5
    )
    check_report(_document(posterior=section))
    assert _plain(sections.posterior_section({"p": Gaussian.point(other.mean)}, SPEC))["layers"][0]["snr"] == [
        [None] * 5
    ]


def test_wide_nets_do_not_make_wide_pages():
    spec = PermutationSpec.parse({"w": ["g0", "2"]}, {"g0": 3000})
    assert sections._units_shown(spec) == {"g0": sections.UNITS}
    many = PermutationSpec.parse({f"w{i}": [f"g{i}"] for i in range(100)}, {f"g{i}": 512 for i in range(100)})
    assert 2 * sum(n**2 for n in sections._units_shown(many).values()) <= sections.CELLS


def test_permuting_both_sides_permutes_the_vectors():
    perms = SPEC.random(jax.random.key(1))
    mean = jax.tree.map(np.asarray, gaussian(0).mean)
    moved = unit_vectors(permute(mean, SPEC, perms), SPEC, "g1")
    np.testing.assert_array_equal(
        np.sort(moved, axis=1), np.sort(unit_vectors(mean, SPEC, "g1")[perms["g1"]], axis=1)
    )


def _plain(section):
    return plain(section, digits=6)


def _document(**parts):
    return {"format": "bayesin-report", "version": 1, **parts}


def test_bands_are_the_spread_over_fresh_test_sets():
    """Accuracy and ECE of many simulated test sets scatter as the error bands say."""
    random, size, sets = np.random.default_rng(0), 2000, 400
    sure = random.uniform(0.5, 1.0, size)
    chance = 0.9 * sure - 0.1  # right less often than it is sure, in every bin
    probs = np.stack([sure, 1 - sure], 1)
    accuracies, eces = [], []
    for _ in range(sets):
        labels = (random.uniform(size=size) >= chance).astype(int)
        accuracies.append(metrics.accuracy(probs, labels))
        eces.append(metrics.ece(probs, labels))
    bins = np.stack(metrics.calibration(probs, labels))
    # a sample std of 400 values has a relative error of 1/sqrt(2·399) = 3.5 %; bins differ a little between sets
    assert sections._ece_error(bins) == pytest.approx(np.std(eces), rel=0.15)
    # each example has its own chance, which spreads less than equal chances: the band of accuracy is an upper bound
    own = np.sqrt((chance * (1 - chance)).sum()) / size
    assert np.std(accuracies) == pytest.approx(own, rel=0.15)
    equal = np.sqrt(chance.mean() * (1 - chance.mean()) / size)
    assert own <= equal <= 1.1 * own
