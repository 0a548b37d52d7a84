"""Scores against loops written out, and against known values."""

import numpy as np
import pytest

from bayesin.errors import DataError
from bayesin.evaluation import metrics


def _case(seed: int, count: int = 200, classes: int = 4):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(classes), count), rng.integers(0, classes, count)


def _slow_ece(probs, y, bins):
    total = 0.0
    for b in range(bins):
        inside = [i for i in range(len(y)) if b / bins < probs[i].max() <= (b + 1) / bins]
        if inside:
            right = np.mean([probs[i].argmax() == y[i] for i in inside])
            total += len(inside) / len(y) * abs(right - np.mean([probs[i].max() for i in inside]))
    return total


@pytest.mark.parametrize("seed", range(3))
def test_scores_equal_plain_loops(seed):
    probs, y = _case(seed)
    assert metrics.nll(np.log(probs), y) == pytest.approx(
        np.mean([-np.log(p[t]) for p, t in zip(probs, y, strict=True)])
    )
    assert metrics.accuracy(probs, y) == np.mean([p.argmax() == t for p, t in zip(probs, y, strict=True)])
    slow = np.mean([sum((p[c] - (c == t)) ** 2 for c in range(4)) for p, t in zip(probs, y, strict=True)])
    assert metrics.brier(probs, y) == pytest.approx(slow)
    for bins in (1, 10, 15):
        assert metrics.ece(probs, y, bins) == pytest.approx(_slow_ece(probs, y, bins))
    counts = metrics.confusion(probs, y)
    assert counts.sum() == len(y)
    assert np.trace(counts) / len(y) == metrics.accuracy(probs, y)
    assert counts[1, 2] == sum(t == 1 and p.argmax() == 2 for p, t in zip(probs, y, strict=True))


def test_known_values():
    sure = np.array([[1.0, 0.0], [0.0, 1.0]])
    assert metrics.ece(sure, [0, 1]) == 0
    assert metrics.ece(sure, [1, 0]) == 1
    assert metrics.brier(sure, [1, 0]) == 2
    uniform = np.full((10, 10), 0.1)
    assert metrics.nll(np.log(uniform), np.arange(10)) == pytest.approx(np.log(10))
    assert metrics.brier(uniform, np.arange(10)) == pytest.approx(0.9)
    assert metrics.ece(np.ones((3, 1)), [0, 0, 0]) == 0  # one class


def test_calibration_bins_count_every_example_once():
    probs, y = _case(7)
    found = metrics.calibration(probs, y)
    assert found.count.sum() == len(y)
    assert len(found.count) == 15
    edges = np.array([[1.0, 0.0], [0.6, 0.4]])  # 0.6 = 9/15 lies on an edge and belongs below
    assert metrics.calibration(edges, [0, 0]).count[[8, 14]].tolist() == [1, 1]


def test_agreement_and_total_variation():
    p, _ = _case(0)
    q, _ = _case(1)
    assert metrics.agreement(p, p) == 1
    assert metrics.total_variation(p, p) == 0
    assert metrics.total_variation(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])) == 1
    slow = np.mean([max(sum(a[list(s)]) - sum(b[list(s)]) for s in _subsets(4)) for a, b in zip(p, q, strict=True)])
    assert metrics.total_variation(p, q) == pytest.approx(slow)  # the largest difference over all events


def _subsets(n):
    return [[c for c in range(n) if mask >> c & 1] for mask in range(1, 2**n)]


@pytest.mark.parametrize(
    ("probs", "y"),
    [
        (np.ones((3, 2)), [0, 1]),
        (np.ones(3), [0, 1, 1]),
        (np.ones((2, 2)), [0, 2]),
        (np.ones((2, 2)), [-1, 0]),
        (np.ones((2, 2)), [0.0, 1.0]),
        (np.ones((0, 2)), np.zeros(0, int)),
    ],
)
def test_labels_that_do_not_fit_are_refused(probs, y):
    with pytest.raises(DataError):
        metrics.accuracy(probs, y)


def test_predictions_of_different_shapes_are_refused():
    with pytest.raises(DataError):
        metrics.agreement(np.ones((2, 2)), np.ones((3, 2)))
