"""The report of the demonstration: sections, headline numbers, and the words around them."""

from pathlib import Path
from typing import Any

from ..demo import TEST, Demo
from .barrier_report import (
    MeasuredPair,
    about_rescaled,
    barrier_cards,
    draw_figures,
    half_way_card,
    moved_card,
    pair_sections,
    title_of,
)
from .document import card, percent, run_section
from .page import publish

FILES = {
    "barrier.json": "loss, accuracy, calibration error and Brier score along both paths, with errors",
    "plane.json": "likelihood and prior on the plane",
    "config.json": "all settings",
    "provenance.json": "versions, machine and seconds",
    "first.safetensors": "the first posterior: means and standard deviations",
    "second.safetensors": "the second posterior",
    "aligned.safetensors": "the second posterior, units moved",
    "alignment.safetensors": "the permutations and the spec they belong to",
}


def write_demo_report(out: Path | str, demo: Demo) -> Path:
    """Writes print figures, `report.json` and `report.html` into the demonstration's folder; returns the page."""
    measured = MeasuredPair(
        pair=demo.aligned.pair,
        barriers=demo.barriers,
        aligned=demo.aligned,
        plane=demo.plane,
        plane_examples=len(demo.data.x_test),
        prior_variance=demo.settings.training.prior_variance,
    )
    report = {
        "title": title_of(measured),
        "lead": _lead(demo),
        "summary": _summary(demo),
        **pair_sections(measured, _how(demo)),
        "run": run_section(_config(demo), demo.provenance, demo.seconds),
    }
    return publish(out, report, FILES | draw_figures(out, report))


def _lead(demo: Demo) -> list[str]:
    naive, aligned = (demo.barriers[TEST][kind] for kind in ("naive", "aligned"))
    share = f", {100 * aligned.value / naive.value:.1f} % of what it was" if naive.value > 0 else ""
    return [
        "Two Bayesian neural networks learned the same handwritten digits from different random starts. Both are "
        "good. But on the straight way from one to the other the predictions get worse and then better again: "
        f"between them stands a barrier of {naive.value:.2f} nats.",
        "The hidden units of a network have no order of their own. Put those of the second network in the order that "
        "best fits the first, which changes nothing about what it computes, and walk again: the barrier is "
        f"{aligned.value:.3f} nats{share}.{about_rescaled(demo.barriers[TEST])}",
    ]


def _summary(demo: Demo) -> list[dict[str, str]]:
    first, second = (percent(share) for share in demo.accuracies)
    return [
        *barrier_cards(demo.barriers[TEST], "test set"),
        card("Test accuracy", first, "", f"of the first posterior; the second: {second}"),
        half_way_card(demo.barriers[TEST]),
        moved_card(demo.aligned),
    ]


def _how(demo: Demo) -> str:
    groups = ", ".join(f"{name} with {size} units" for name, size in demo.spec.sizes.items())
    search = demo.alignment
    return (
        f"The groups of interchangeable units were found from the network's own computation ({groups}) and checked. "
        "The search visits one group after the other and solves each step exactly, as an assignment problem on the "
        "means and standard deviations of all weights that the units touch. "
        f"Of {demo.settings.restarts} starts the best is shown ({search.start}): {search.sweeps} sweeps, "
        f"{search.ended}."
    )


def _config(demo: Demo) -> dict[str, Any]:
    settings, training = demo.settings, demo.settings.training
    return {
        "data": f"digits, {len(demo.data):,} training and {len(demo.data.x_test):,} test images of 8 × 8 pixels",
        "network": f"{settings.depth} hidden layers of {settings.width} units, ReLU; {demo.first.size:,} weights",
        "posterior": "mean-field Gaussian, variational inference",
        "temperature": f"{training.temperature:g}, on the KL term (1 would be the Bayes posterior)",
        "prior variance": training.prior_variance,
        "optimiser": f"{training.optimiser}, rate {training.learning_rate:g}, {training.schedule} schedule",
        "epochs": f"{training.epochs} of batch {training.batch}",
        "starts of the alignment": settings.restarts,
        "points on a path": settings.taus,
        "weight samples": f"{settings.samples} on the test set, {settings.train_samples} on the training set, "
        f"{settings.plane_samples} on the plane",
        "key": demo.key,
    }
