"""The report of the demonstration: sections, headline numbers, and the words around them."""

from pathlib import Path
from typing import Any

from ..experiments.demo import TEST, Demo
from .collect import (
    alignment_section,
    barrier_section,
    plane_section,
    posterior_section,
    walk_section,
)
from .figures import barrier_figure, plane_figure
from .page import publish
from .words import FIRST_IMAGES, PRUNED, card, half_way, percent, power

NAMES = ("first", "second", "second, aligned")
FILES = {
    "report.json": "every number on this page",
    "barrier.json": "loss, accuracy, calibration error and Brier score along both paths, with errors",
    "plane.json": "likelihood and prior on the plane",
    "config.json": "all settings",
    "provenance.json": "versions, machine and seconds",
    "first.safetensors": "the first posterior: means and standard deviations",
    "second.safetensors": "the second posterior",
    "aligned.safetensors": "the second posterior, units moved",
    "alignment.safetensors": "the permutations and the spec they belong to",
    "figures/barrier.pdf": "the curves for print, test set (also .svg, .png, .csv and .json)",
    "figures/barrier-train.pdf": "the curves for print, training set",
    "figures/plane.pdf": "the plane for print (also .svg, .png and .json)",
}


def write_demo_report(out: Path | str, demo: Demo) -> Path:
    """Writes print figures, `report.json` and `report.html` into the demonstration's folder; returns the page."""
    out = Path(out)
    report = demo_report(demo)
    barrier_figure(report["barrier"], out / "figures" / "barrier")
    barrier_figure(report["barrier"], out / "figures" / "barrier-train", part="train")
    plane_figure(report["plane"], out / "figures" / "plane")
    return publish(out, report, FILES)


def demo_report(demo: Demo) -> dict[str, Any]:
    """Returns the report of a demonstration as a dict of sections."""
    test, exclude = demo.barriers[TEST], demo.model.statistics
    ends = [test["naive"].nll[0], test["naive"].nll[-1], test["aligned"].nll[-1]]
    posteriors = {"first": demo.first, "second": demo.second}
    prior = demo.settings.training.prior_variance
    alignment = alignment_section(demo.first, demo.second, demo.alignment, demo.spec, exclude=exclude)
    walk = walk_section(test, demo.data)
    if walk and "images" in walk:
        walk["images"]["says"] = FIRST_IMAGES
    return {
        "title": "Two posteriors, one basin",
        "lead": _lead(demo),
        "summary": _summary(demo),
        "barrier": barrier_section(demo.barriers),
        "walk": walk,
        "plane": plane_section(demo.plane, len(demo.data.x_test), ends, NAMES),
        "alignment": {**alignment, "says": [_how(demo)]},
        "posterior": {
            **posterior_section(posteriors, demo.spec, prior_variance=prior, exclude=exclude),
            "pruned_says": PRUNED,
        },
        "run": {"config": _config(demo), "provenance": _provenance(demo), "seconds": _seconds(demo)},
    }


def _lead(demo: Demo) -> list[str]:
    naive, aligned = (demo.barriers[TEST][kind] for kind in ("naive", "aligned"))
    share = f", {100 * aligned.value / naive.value:.1f} % of what it was" if naive.value > 0 else ""
    return [
        "Two Bayesian neural networks learned the same handwritten digits from different random starts. Both are "
        "good. But on the straight way from one to the other the predictions get worse and then better again: "
        f"between them stands a barrier of {naive.value:.2f} nats.",
        "The hidden units of a network have no order of their own. Put those of the second network in the order that "
        "best fits the first, which changes nothing about what it computes, and walk again: the barrier is "
        f"{aligned.value:.3f} nats{share}.",
    ]


def _summary(demo: Demo) -> list[dict[str, str]]:
    naive, aligned = (demo.barriers[TEST][kind] for kind in ("naive", "aligned"))
    first, second = (percent(share) for share in demo.accuracies)
    without, after = (percent(half_way(one)) for one in (naive, aligned))
    moved, units = demo.units_moved
    gap = f"no output changes by more than {power(demo.function_gap)}"
    errors = [f"± {one.standard_error:.3f}, test set" for one in (naive, aligned)]
    return [
        card("Barrier, not aligned", f"{naive.value:.3f}", "nats", errors[0], "naive"),
        card("Barrier, aligned", f"{aligned.value:.3f}", "nats", errors[1], "aligned"),
        card("Test accuracy", first, "", f"of the first posterior; the second: {second}"),
        card("Accuracy half way", after, "", f"aligned; without: {without}"),
        card("Units moved", f"{moved}", f"of {units}", gap),
    ]


def _how(demo: Demo) -> str:
    groups = ", ".join(f"{name} with {size} units" for name, size in demo.spec.sizes.items())
    found, ended = demo.alignment, "converged" if demo.alignment.converged else "not converged"
    return (
        f"The groups of interchangeable units were found from the network's own computation ({groups}) and checked. "
        "The search visits one group after the other and solves each step exactly, as an assignment problem on the "
        "means and standard deviations of all weights that the units touch. "
        f"Of {demo.settings.restarts} starts the best is shown ({found.start}): {found.sweeps} sweeps, {ended}."
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


def _provenance(demo: Demo) -> dict[str, Any]:
    return {**demo.provenance, "seconds in all": f"{sum(demo.seconds.values()):.0f}"}


def _seconds(demo: Demo) -> list[dict[str, Any]]:
    return [{"name": name, "seconds": seconds} for name, seconds in demo.seconds.items()]
