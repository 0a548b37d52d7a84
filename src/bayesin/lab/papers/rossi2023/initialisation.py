"""What explains the trends with prior variance, temperature and epochs: what survives of the initialisation. Ours.

With T on the KL, the means feel the prior as weight decay of T / v for N examples. Gradient descent with rates r and
momentum μ then leaves of a weight that nothing else moves

    exp(−(T / v) Σ r / ((1 − μ) N))

of where it started. If what alignment leaves of a barrier is what two posteriors remember of their own beginnings,
then variance and temperature are one axis, T / v, the number of epochs stretches it, and what is left follows the
share of the initialisation that is found in the means after training.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from ....inference import Training, initialise
from ....randomness import seed_key
from ....trees import Tree, flatten
from ...campaign import RunTask, Task, TaskContext, TrainTask
from ...runs import RunConfig, find_posterior, read_posterior
from .. import drawing
from ..reproduction import Finding, Record, Reproduction, grouped, of_kind, run_hash, runs_with_pairs
from ..verdicts import above, barriers_of, format_mean_std, standard_error, trend, verdict_of_all, verdict_of_miss
from .variational_pairs import disjoint_pairs, network_of, posteriors, resnet_disjoint_pairs

RATIOS = {"smoke": (5.0, 50.0), "cpu": (1.0, 10.0, 100.0), "paper": (1.0, 10.0, 100.0, 1_000.0)}  # T / v
VARIANCES = {"smoke": (0.01, 0.05), "cpu": (0.001, 0.1), "paper": (0.001, 0.01, 0.1)}
VARIANCE = 0.01  # where the epochs vary
EPOCHS = {"smoke": (10,), "cpu": (10,), "paper": (10, 30, 300)}  # beside those of the preset
FINENESS = {"smoke": {}, "cpu": {}, "paper": {"samples": 32, "taus": 9}}  # many settings
HOTTEST = 10.0  # above it the entropy alone blows up the stds
RESNET = (  # (T / v, v, epochs), in order of value
    *((100.0, 0.01, 40), (10.0, 0.01, 40), (1_000.0, 0.01, 40), (100.0, 0.1, 40)),
    *((1_000.0, 0.01, 10), (100.0, 0.01, 10)),
)
ALIKE = 1.5  # factor within which shares of the barrier are called the same; over all T / v they differ by far more
PREDICTED = 0.1  # how far the surviving share may be from the prediction
LOOKS = ("o", "s", "^", "D", "v")


@dataclass(frozen=True)
class Drift(RunTask):
    """How far the means of a run have gone from where they started, for every member."""

    kind = "drift"

    @property
    def title(self) -> str:
        return f"distance from the initialisation, {TrainTask(self.config).title}"

    def perform(self, folder: Path, context: TaskContext) -> dict[str, Any]:
        data, model = context.prepared(self.config)
        key, training = seed_key(self.config.key), self.config.training
        count = training.members  # pyright: ignore[reportAttributeAccessIssue]
        starts = [initialise(model, jax.random.fold_in(key, member)) for member in range(count)]
        drawn = drawn_leaves(*(starts if len(starts) > 1 else [*starts, model.init(key)])[:2])
        rows = []
        for member, start in enumerate(starts):
            found = read_posterior(find_posterior(f"{context.runs / self.config.name}#{member}"), model)
            rows.append(drift_of(start, found.mean, drawn) | {"std": _mean_std(found, drawn)})
        return {"members": rows, "predicted": decay_left(training, len(data.x_train))}


def drawn_leaves(start: Tree, other: Tree) -> list[str]:
    """Leaves that start at random: biases and gains start alike in all networks and have nothing to remember."""
    one, two = flatten(start), flatten(other)
    return [path for path in one if not np.array_equal(np.asarray(one[path]), np.asarray(two[path]))]


def drift_of(start: Tree, mean: Tree, leaves: Sequence[str]) -> dict[str, float]:
    """What of `start` is in `mean`: its share by projection, the cosine between them, and the relative distance."""
    begun, ended = (
        np.concatenate([np.asarray(flatten(tree)[path], np.float64).ravel() for path in leaves])
        for tree in (start, mean)
    )
    length = float(np.linalg.norm(begun))
    inner = float(begun @ ended)
    return {
        "kept": inner / length**2,
        "cosine": inner / (length * max(float(np.linalg.norm(ended)), 1e-300)),
        "distance": float(np.linalg.norm(ended - begun) / length),
    }


def decay_left(training: Any, examples: int) -> float | None:
    """The share of a weight that the prior alone leaves in gradient descent; None for other optimisers."""
    if not isinstance(training, Training) or training.optimiser != "sgd":
        return None
    temperature = getattr(training, "temperature", 1.0)
    pull = (temperature if getattr(training, "temperature_meaning", "kl") == "kl" else 1.0) / training.prior_variance
    steps = training.epochs * max(1, examples // training.batch)
    flat = (
        steps - 0.5 * training.warmup if training.schedule == "constant" else 0.5 * steps
    )  # a cosine's mean is half
    return float(np.exp(-pull / examples * training.learning_rate / (1 - training.momentum) * flat))


def _mean_std(posterior: Any, leaves: Sequence[str]) -> float:
    stds = flatten(posterior.std)
    return float(np.mean(np.concatenate([np.asarray(stds[path]).ravel() for path in leaves])))


def tasks(scale: str) -> list[Task]:
    mlps = [
        _mlp(scale, ratio, variance)
        for ratio in RATIOS[scale]
        for variance in VARIANCES[scale]
        if ratio * variance <= HOTTEST
    ]
    mlps += [_mlp(scale, ratio, VARIANCE, epochs=epochs) for epochs in EPOCHS[scale] for ratio in RATIOS[scale]]
    found: list[Task] = []
    for config in mlps:
        found += [*disjoint_pairs(scale, config, **FINENESS[scale]), Drift(config)]
    for ratio, variance, epochs in RESNET if scale == "paper" else ():
        settings = {"temperature": _temperature(ratio, variance), "prior_variance": variance, "epochs": epochs}
        pairs = resnet_disjoint_pairs(scale, width=1, **settings)
        found += [*pairs, Drift(pairs[0].config)]
    return found


def _mlp(scale: str, ratio: float, variance: float, **changes: Any) -> RunConfig:
    settings: dict[str, Any] = {"temperature": _temperature(ratio, variance), "prior_variance": variance} | changes
    return posteriors(scale, "mnist", **settings)


def _temperature(ratio: float, variance: float) -> float:
    return float(f"{ratio * variance:.6g}")  # so that runs are those of `prior` and `temperature`


class Point(NamedTuple):
    """What was measured at one setting."""

    ratio: float  # T / v
    variance: float
    temperature: float
    epochs: int
    share: float  # of the naive barrier that alignment leaves
    error: float
    naive: Sequence[float]
    aligned: Sequence[float]
    kept: Sequence[float]  # of the initialisation, for every member
    distance: float
    std: float
    predicted: float | None


def points(records: Sequence[Record]) -> dict[str, list[Point]]:
    """The settings of every network that have pairs and a drift, by T / v, variance and epochs."""
    drifts = {run_hash(record): record["numbers"] for record in of_kind(records, "drift")}
    found: dict[str, list[Point]] = {}
    for run, pairs in runs_with_pairs(records):
        if not pairs or (drift := drifts.get(run_hash(run))) is None:
            continue
        training, barriers, members = run["settings"]["config"]["training"], barriers_of(pairs), drift["members"]
        variance, temperature = training["prior_variance"], training["temperature"]
        point = Point(
            *(temperature / variance, variance, temperature, training["epochs"]),
            *(barriers.share, barriers.share_error, barriers.naive, barriers.aligned),
            kept=[member["kept"] for member in members],
            distance=float(np.mean([member["distance"] for member in members])),
            std=float(np.mean([member["std"] for member in members])),
            predicted=drift["predicted"],
        )
        found.setdefault(network_of(run), []).append(point)
    return {network: sorted(of_network) for network, of_network in found.items()}


def judge(records: Sequence[Record]) -> list[Finding]:
    findings = []
    for network, found in points(records).items():
        findings += [*_one_axis(network, found), *_survival(network, found), *_prediction(network, found)]
    return findings


def _one_axis(network: str, found: Sequence[Point]) -> list[Finding]:
    """Settings that share T / v and epochs and differ in the variance leave the same share."""
    parts, verdicts = [], []
    for (ratio, epochs), alike in _alike(found).items():
        low, high = min(alike, key=lambda point: point.share), max(alike, key=lambda point: point.share)
        factor = high.share / max(low.share, 1e-9)
        error = float(np.hypot(high.error / high.share, low.error / max(low.share, 1e-9)))
        more = above(float(np.log(factor)), error, float(np.log(ALIKE)))
        verdicts.append(verdict_of_miss(more))
        shares = ", ".join(f"v {point.variance:g} {_percent(point)}" for point in alike)
        parts.append(f"T/v {ratio:g}, {epochs} epochs: {shares} %")
    if not parts:
        return []
    verdict, held = verdict_of_all(verdicts, "values")
    reason = f"shares of the barrier left agree within a factor of {ALIKE:g} at {held}"
    claim = f"{network}: prior variance and temperature are one axis, T/v"
    return [Finding(claim, "not studied", "; ".join(parts), verdict, reason)]


def _percent(point: Point) -> str:
    error = f" ± {100 * point.error:.1f}" if np.isfinite(point.error) else ""
    return f"{100 * point.share:.1f}{error}"


def _alike(found: Sequence[Point]) -> dict[tuple[float, int], list[Point]]:
    groups = grouped(found, lambda point: (float(f"{point.ratio:.4g}"), point.epochs))
    return {key: group for key, group in groups.items() if len(group) > 1}


def _survival(network: str, found: Sequence[Point]) -> list[Finding]:
    if len(found) < 3:
        return []
    kept = [float(np.mean(point.kept)) for point in found]
    verdict, reason = trend(
        kept, [p.share for p in found], [p.error for p in found], what="share kept and share left"
    )
    ends = [min(found, key=lambda p: np.mean(p.kept)), max(found, key=lambda p: np.mean(p.kept))]
    ours = " to ".join(
        f"{100 * np.mean(p.kept):.0f} % kept and {_percent(p)} % of the barrier left "
        f"(T/v {p.ratio:g}, {p.epochs} epochs)"
        for p in ends
    )
    claim = f"{network}: the more of the initialisation survives, the more of the barrier is left"
    return [Finding(claim, "not studied", f"from {ours}", verdict, f"{len(found)} settings; {reason}")]


def _prediction(network: str, found: Sequence[Point]) -> list[Finding]:
    known = [point for point in found if point.predicted is not None]
    if not known:
        return []
    off = [abs(float(np.mean(point.kept)) - float(point.predicted or 0.0)) for point in known]
    errors = [standard_error(point.kept) for point in known]
    missed = [above(difference, error, PREDICTED) for difference, error in zip(off, errors, strict=True)]
    verdict, held = verdict_of_all([verdict_of_miss(far) for far in missed], "settings")
    ours = f"kept and predicted share differ by {format_mean_std(off)} over the settings, at most {max(off):.3f}"
    claim = f"{network}: what survives of the initialisation is what weight decay by the prior leaves"
    return [Finding(claim, "not studied", ours, verdict, f"within {PREDICTED:g} at {held}")]


def table(records: Sequence[Record]) -> list[list[str]]:
    head = ["network", "T/v", "v", "T", "epochs", "naive, nats", "aligned, nats", "left (%)"]
    rows = [[*head, "start kept (%)", "predicted (%)", "distance from it", "mean std"]]
    for network, found in points(records).items():
        for point in found:
            settings = [f"{value:g}" for value in (point.ratio, point.variance, point.temperature, point.epochs)]
            barriers = [format_mean_std(values, count=False) for values in (point.naive, point.aligned)]
            predicted = "–" if point.predicted is None else f"{100 * point.predicted:.1f}"
            kept = format_mean_std([100 * share for share in point.kept], 1, count=False)
            rows.append(
                [
                    network,
                    *settings,
                    *barriers,
                    _percent(point),
                    kept,
                    predicted,
                    f"{point.distance:.2f}",
                    f"{point.std:.4f}",
                ]
            )
    return rows if len(rows) > 1 else []


def draw(figure: Any, records: Sequence[Record]) -> None:
    axes = figure.subplots(1, 3, sharey=True)
    found = points(records)
    seen = sorted({float(f"{point.ratio:.4g}") for of_network in found.values() for point in of_network})
    for colour, (network, of_network) in zip((drawing.PURPLE, drawing.OCHRE), found.items(), strict=False):
        usual = max(Counter(point.epochs for point in of_network).items(), key=lambda item: (item[1], item[0]))[0]
        variances = sorted({point.variance for point in of_network})
        for marker, variance in zip(LOOKS, variances, strict=False):
            chosen = [point for point in of_network if point.variance == variance and point.epochs == usual]
            label = f"{network}, v = {variance:g}"
            _line(axes[0], [p.ratio for p in chosen], chosen, color=colour, marker=marker, label=label)
        base = max(Counter(point.variance for point in of_network).items(), key=lambda item: item[1])[0]
        for shade, (marker, ratio) in enumerate(zip(LOOKS, seen, strict=False), 1):
            chosen = [p for p in of_network if np.isclose(p.ratio, ratio, rtol=1e-3) and p.variance == base]
            chosen = sorted(chosen, key=lambda point: point.epochs)
            if len(chosen) > 1:
                look = {"color": colour, "alpha": 0.35 + 0.65 * shade / len(seen), "marker": marker}
                _line(axes[1], [p.epochs for p in chosen], chosen, **look, label=f"{network}, T/v = {ratio:g}")
        kept = [100 * float(np.mean(point.kept)) for point in of_network]
        _line(axes[2], kept, of_network, color=colour, marker="o", linestyle="", label=network)
    for axis, label in zip(axes, ("T / v", "epochs", "of the initialisation kept (%)"), strict=True):
        drawing.log_scale(axis.yaxis)
        if axis is not axes[2]:
            drawing.log_scale(axis.xaxis)
        axis.set_xlabel(label)
        drawing.legend_inside(axis, fontsize=6)
    axes[0].set_ylabel("left of the barrier after alignment (%)")


def _line(axis: Any, places: Sequence[float], chosen: Sequence[Point], **look: Any) -> None:
    if chosen:
        errors = [100 * point.error if np.isfinite(point.error) else 0.0 for point in chosen]
        axis.errorbar(places, [100 * point.share for point in chosen], errors, capsize=2, lw=1, markersize=4, **look)


INITIALISATION = Reproduction(
    name="initialisation",
    source="Ours; after Rossi et al. 2023, prior variance and temperature (section 5)",
    claim="alignment leaves what posteriors remember of their start; prior variance and temperature are one axis",
    tasks=tasks,
    judge=judge,
    draw=draw,
    minutes={"smoke": 0.4, "cpu": 12, "paper": 9},
    choices=(
        "MLP on MNIST, T on the KL; T/v from 1 to 1,000 at three variances, T at most 10; 10 to 300 epochs, v = 0.01",
        "three pairs that share no posterior, 32 draws on 9 τ",
        "ResNet20 with 16 features and LayerNorm on CIFAR-10, bfloat16: six settings, two pairs each, 8 draws on 9 τ",
        "of the start the weights count that are drawn at random, not biases and gains",
    ),
    size=(9.6, 3.2),
    table=table,
)
