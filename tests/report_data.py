"""A report with every section, made of formulas instead of training, for the tests of the page."""

import numpy as np

HOSTILE = "</script><img src=x onerror=alert(1)>"


def synthetic(title: str = "Two posteriors, one basin", group: str = "g0") -> dict:
    rng = np.random.default_rng(0)
    taus = np.linspace(0, 1, 25)
    return {
        "format": "bayesin-report",
        "version": 1,
        "title": title,
        "lead": [
            "Two Bayesian networks learn the same digits from different random starts. On the straight way from "
            "one to the other the loss rises: a barrier. Hidden units have no order of their own; when those of the "
            "second are put in the order of the first, the barrier is gone."
        ],
        "summary": [
            {"label": "Barrier without alignment", "value": "0.830", "unit": "± 0.012 nats", "tone": "naive"},
            {"label": "Barrier after", "value": "0.026", "unit": "± 0.004 nats", "tone": "aligned", "note": "3 %"},
            {"label": "Test accuracy", "value": "98.6 %", "note": "98.6 % and 98.3 % at the two ends"},
            {"label": "Units moved", "value": "509", "unit": "of 512"},
        ],
        "barrier": {"sets": {s: {k: _curve(taus, k, s) for k in ("naive", "aligned")} for s in ("test", "train")}},
        "walk": _walk(rng, taus),
        "plane": _plane(),
        "alignment": _alignment(rng, group),
        "compact": _compact(rng, group),
        "evaluation": _evaluation(np.random.default_rng(1)),
        "posterior": _posterior(rng, group),
        "tables": [
            {"title": "Agreement", "columns": ["method", "agreement"], "rows": [["mean", 0.98], [HOSTILE, 1]]}
        ],
        "run": {
            "config": {"data": "digits", "model": "MLP 2 × 256", "temperature": 0.1},
            "provenance": {"jax": "0.10.2", "device": "cpu", "seconds": 61.3},
            "seconds": [{"name": n, "seconds": s} for n, s in (("train", 20.1), ("align", 0.4), ("barrier", 14.0))],
        },
        "files": [{"name": "report.json", "bytes": 0, "says": "every number on this page"}],
    }


def _curve(taus, kind, name):
    height, base = (0.83 if kind == "naive" else 0.026), (0.06 if name == "test" else 0.03)
    bump = 4 * taus * (1 - taus)
    nll = base + height * bump**1.5
    return {
        "taus": taus.tolist(),
        "nll": nll.tolist(),
        "nll_error": (0.002 + 0.02 * (nll - base)).tolist(),
        "accuracy": (0.986 - 0.25 * (nll - base)).tolist(),
        "ece": (0.02 + 0.3 * (nll - base)).tolist(),
        "value": height,
        "error": 0.002 + 0.01 * height,
    }


def _walk(rng, taus):
    labels = np.arange(10)

    def step(tau, height):
        sharp = 6 * (1 - height * 4 * tau * (1 - tau))
        logits = rng.normal(size=(10, 10)) + sharp * np.eye(10)
        chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        confusion = np.round(36 * chances).astype(int)
        bins = [
            {"confidence": c, "accuracy": c * (0.7 + 0.3 * height), "count": int(80 * c)}
            for c in np.arange(0.05, 1, 0.1)
        ]
        return {
            "nll": float(0.06 + height * 4 * tau * (1 - tau)), "accuracy": 0.9, "ece": 0.05, "confidence": 0.8,
            "calibration": bins, "confusion": confusion.tolist(), "probabilities": chances.tolist(),
        }  # fmt: skip

    return {
        "classes": [str(label) for label in labels],
        "taus": taus.tolist(),
        "naive": [step(tau, 0.9) for tau in taus],
        "aligned": [step(tau, 0.1) for tau in taus],
        "images": {"shape": [8, 8, 1], "pixels": rng.integers(0, 256, (10, 64)).tolist(), "labels": labels.tolist()},
    }


def _plane():
    x, y = np.linspace(-4, 16, 31), np.linspace(-4, 14, 29)
    points = [(0.0, 0.0), (12.0, 0.0), (5.0, 9.0)]
    wells = [np.exp(-((x[None] - a) ** 2 + (y[:, None] - b) ** 2) / 18) for a, b in points]
    wells.append(np.exp(-((x[None] - 2.5) ** 2 + (y[:, None] - 4.5) ** 2) / 18))
    loss = 2.0 - 1.9 * np.clip(sum(wells), 0, 1)
    names = [("first", "target"), ("second", "source"), ("second, aligned", "aligned")]
    marks = [{"name": n, "role": r, "x": a, "y": b} for (n, r), (a, b) in zip(names, points, strict=True)]
    return {"x": x.tolist(), "y": y.tolist(), "nll": loss.tolist(), "points": marks, "cut": 2.0}


def _alignment(rng, group):
    noise = np.clip(rng.normal(0, 0.2, (64, 64)), -1, 1)
    after = np.clip(noise + 0.7 * np.eye(64), -1, 1)
    names = (group, "g1")
    centres = np.geomspace(0.01, 0.3, 30)
    shape = np.exp(-((np.log(centres) - np.log(0.1)) ** 2) * 4)
    roles = (
        ("first", "first"),
        ("second", "second"),
        ("midpoint, not aligned", "naive"),
        ("midpoint, aligned", "aligned"),
    )
    swept = [np.round(np.clip(noise + share * np.eye(64), -1, 1), 2).tolist() for share in (0.0, 0.2, 0.5, 0.7)]
    return {
        "says": ["Coordinate descent over two groups, one exact assignment at each step, best of four starts."],
        "history": [410.0, 330.0, 290.0, 270.0, 262.0, 260.0],
        "groups": [{"name": n, "size": 256, "moved": 255, "transpositions": 250} for n in names],
        "similarity": {n: {"before": swept[0], "after": swept[-1], "between": swept[1:-1]} for n in names},
        "correlation": {n: {"before": np.diag(noise).tolist(), "after": np.diag(after).tolist()} for n in names},
        "stds": {
            "centres": centres.tolist(),
            "curves": [{"name": n, "role": r, "shares": (shape / shape.sum()).tolist()} for n, r in roles],
        },
    }


def _compact(rng, group):
    centres = np.geomspace(0.01, 0.3, 30)
    names = (("as they came", "naive"), ("in a common order", "aligned"))
    return {
        "says": ["Every sample was moved onto one reference."],
        "scores": [
            {"name": "the samples", "agreement": 1.0, "total_variation": 0.0, "accuracy": 0.98},
            {"name": HOSTILE, "agreement": 0.97, "total_variation": 0.031, "accuracy": None},
        ],
        "groups": [
            {"name": n, "size": 32, "transpositions": rng.integers(0, 32, 20).tolist()} for n in (group, "g1")
        ],
        "stds": {
            "centres": centres.tolist(),
            "curves": [{"name": n, "role": r, "shares": [1 / 30] * 30} for n, r in names],
        },
    }


def _evaluation(rng):
    lines = [{"name": name, "x": [0.2, 0.6, 1.0], "y": rng.random(3).tolist()} for name in ("samples", HOSTILE)]
    return {
        "columns": ["accuracy", "NLL"],
        "rows": [{"name": "samples", "values": ["98.0 %", "0.0912"]}, {"name": HOSTILE, "values": ["–", "0.1"]}],
        "reliability": lines,
        "selective": lines,
        "entropy": lines,
        "coverage": lines,
    }


def _posterior(rng, group):
    layers = [f"layer{i}/{kind}" for i in range(3) for kind in ("bias", "kernel")]
    quantiles = lambda scale: [sorted((scale * np.exp(rng.normal(0, 0.5, 5))).tolist()) for _ in range(2)]  # noqa: E731
    return {
        "names": ["first", "second"],
        "prior_std": 0.2236,
        "layers": [{"name": name, "std": quantiles(0.1), "snr": quantiles(1.0)} for name in layers],
        "units": [{"name": group, "size": 256, "pruned": [12, 15]}],
        "pruned_says": "A unit is pruned where its weights are noise.",
    }
