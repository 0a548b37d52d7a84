"""Makes the pictures of the documentation from the demonstration's own run.

    bayesin demo --out demo
    python docs/pictures.py demo          # a minute on two cores

Every curve is measured. `alignment.svg` moves: it is the second posterior at stages on the way to its alignment, each
with a share of its units in place, and the loss on the way from the first posterior to it.
"""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

import bayesin
from bayesin import data, models
from bayesin.lab.report import KINDS, read_report, save, style
from bayesin.lab.report.figures import barrier_figure, plane_figure
from bayesin.store import load_alignment
from bayesin.symmetry import hidden_activations

HERE = Path(__file__).resolve().parent / "pictures"
STAGES = (0.0, 0.2, 0.4, 0.6, 0.75, 0.9, 1.0)  # share of the units in their place
SHOWN = 26  # units drawn, of one layer
SECONDS, REPEATS = 9, 4  # of the moving picture; it then rests on its end
NAIVE, ALIGNED = (KINDS[kind]["color"] for kind in ("naive", "aligned"))
SLATE, PURPLE = "#5b6b82", "#6a51a3"
LOOK = """
text{font:17px system-ui,"Segoe UI","DejaVu Sans",sans-serif}
.large{font-size:22px;font-weight:650}
.ink{fill:#1b2430}.muted{fill:#566273}.card{fill:#fff}.axis{stroke:#c9d0d9}
@media (prefers-color-scheme:dark){.ink{fill:#e8ecf2}.muted{fill:#a3afbf}.card{fill:#181e27}.axis{stroke:#3a4554}}
"""


class Run:
    """The demonstration as it was saved."""

    def __init__(self, folder: Path):
        self.first, self.second = (
            bayesin.load_posterior(folder / f"{name}.safetensors") for name in ("first", "second")
        )
        stored = load_alignment(folder / "alignment.safetensors")
        self.spec, self.perms = stored.spec, {group: np.asarray(perm) for group, perm in stored.perms.items()}
        self.digits = data.load("digits")
        width, depth = next(iter(self.spec.sizes.values())), len(self.spec.sizes)
        self.model = models.build("mlp", self.digits.input_shape, self.digits.classes, width=width, depth=depth)
        self.key = jax.random.key(0)

    def moved(self, perms: dict[str, np.ndarray]) -> Any:
        return self.second.permute(self.spec, perms)

    def barrier(self, path: Any) -> Any:
        test = (self.digits.x_test, self.digits.y_test)
        return bayesin.barrier(path, self.model.apply, test, key=self.key, samples=16, taus=25)


def partly(perm: np.ndarray, share: float) -> np.ndarray:
    """The permutation that has put the first `share` of the places right and keeps the other units in their order.

    Example:
        >>> partly(np.array([2, 0, 3, 1]), 0.5).tolist()
        [2, 0, 1, 3]
    """
    done = perm[: round(share * len(perm))]
    return np.concatenate([done, np.setdiff1d(np.arange(len(perm)), done)])


def moving_picture(run: Run) -> None:
    """Units slide into place while the barrier falls."""
    stages = [{group: partly(perm, share) for group, perm in run.perms.items()} for share in STAGES]
    curves = [run.barrier(bayesin.geodesic(run.first, run.moved(perms))) for perms in stages]
    group = next(iter(run.spec.sizes))
    units = np.linspace(0, run.spec.sizes[group] - 1, SHOWN).round().astype(int)  # of the first, evenly spread
    partners = run.perms[group][units]
    places = [np.argsort(perms[group])[partners] for perms in stages]  # where each partner stands at a stage
    (HERE / "alignment.svg").write_text(_animated(units, places, curves, run.spec.sizes[group]), encoding="utf-8")
    print("barriers of the stages:", [round(curve.value, 3) for curve in curves])


def _animated(units: np.ndarray, places: list[np.ndarray], curves: list[Any], size: int) -> str:
    # Times: rest on the barrier, move through the stages, rest without it.
    times = [0.0, *np.linspace(0.12, 0.68, len(places)), 1.0]
    around = [places[0], *places, places[-1]]
    losses = [curves[0], *curves, curves[-1]]

    def down(place: float) -> float:
        return round(46 + 258 * place / (size - 1), 1)

    def animate(name: str, values: list[Any]) -> str:
        stops = ";".join(f"{time:.3f}" for time in times)
        return (
            f'<animate attributeName="{name}" dur="{SECONDS}s" repeatCount="{REPEATS}" fill="freeze" '
            f'keyTimes="{stops}" values="{";".join(map(str, values))}"/>'
        )

    lines, dots = [], []
    for number, unit in enumerate(units):
        colour = _colour(number / (len(units) - 1))
        ends = [down(place[number]) for place in around]
        start = down(unit)
        lines.append(
            f'<line x1="78" y1="{start}" x2="262" y2="{ends[-1]}" stroke="{colour}" stroke-width="1.3" opacity=".75">'
            f"{animate('y2', ends)}</line>"
        )
        dots.append(f'<circle cx="70" cy="{start}" r="4.6" fill="{colour}"/>')
        dots.append(f'<circle cx="270" cy="{ends[-1]}" r="4.6" fill="{colour}">{animate("cy", ends)}</circle>')
    top = max(float(np.max(curve.nll)) for curve in curves) * 1.08
    paths = [_path(curve, top) for curve in losses]
    colours = [NAIVE] * len(curves) + [ALIGNED] * 2
    first, last = curves[0], curves[-1]
    shown = [f"{curve.value:.2f}" for curve in curves]
    numbers = "".join(_number(text, at, len(shown), times) for at, text in enumerate(shown))
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 780 352" role="img" aria-labelledby="t d">
<title id="t">Units slide into place while the barrier falls</title>
<desc id="d">Left: {len(units)} of {size} hidden units of two networks, matched units joined by a line. Right: the
loss on the way between the networks. As the units of the second are put in the order of the first, the barrier falls
from {first.value:.2f} to {last.value:.2f} nats.</desc>
<style>{LOOK}</style>
<rect class="card" width="780" height="352" rx="12"/>
<text class="ink" x="70" y="26" text-anchor="middle">first network</text>
<text class="ink" x="270" y="26" text-anchor="middle">second network</text>
{"".join(lines)}
{"".join(dots)}
<line class="axis" x1="410" y1="304" x2="740" y2="304"/><line class="axis" x1="410" y1="46" x2="410" y2="304"/>
<path d="{paths[-1]}" fill="none" stroke="{ALIGNED}" stroke-width="3.2" stroke-linejoin="round">
{animate("d", paths)}{animate("stroke", colours)}</path>
<text class="ink" x="410" y="26">loss on the way between them</text>
<text class="muted" x="410" y="326">first</text><text class="muted" x="740" y="326" text-anchor="end">second</text>
<text class="muted" x="170" y="338" text-anchor="middle">{len(units)} of {size} units of a layer, matched</text>
<text class="ink" x="740" y="66" text-anchor="end">barrier</text>{numbers}
</svg>
"""


def _path(curve: Any, top: float) -> str:
    steps = zip(curve.taus, curve.nll, strict=True)
    return "M" + " L".join(f"{410 + 330 * tau:.1f},{304 - 250 * loss / top:.1f}" for tau, loss in steps)


def _number(text: str, at: int, count: int, times: list[float]) -> str:
    """The height of the barrier at one stage, seen while the picture is nearest to that stage."""
    centres = times[1:-1]
    begin = 0.0 if at == 0 else (centres[at - 1] + centres[at]) / 2
    end = 1.0 if at == count - 1 else (centres[at] + centres[at + 1]) / 2
    edges = {0.0: int(at == 0), begin: 1} | ({end: 0, 1.0: 0} if at < count - 1 else {1.0: 1})
    stops, seen = ";".join(f"{stop:.3f}" for stop in edges), ";".join(map(str, edges.values()))
    return (
        f'<text class="ink large" x="740" y="92" text-anchor="end" opacity="{seen[-1]}">{text} nats'
        f'<animate attributeName="opacity" calcMode="discrete" dur="{SECONDS}s" repeatCount="{REPEATS}" '
        f'fill="freeze" keyTimes="{stops}" values="{seen}"/></text>'
    )


def _colour(share: float) -> str:
    """From violet over teal to ochre: a scale that rises in lightness, for units from first to last."""
    stops = np.array([[74, 58, 140], [38, 120, 142], [92, 160, 110], [201, 162, 39]])
    at = share * (len(stops) - 1)
    low = min(int(at), len(stops) - 2)
    red, green, blue = ((1 - at + low) * stops[low] + (at - low) * stops[low + 1]).round().astype(int)
    return f"#{red:02x}{green:02x}{blue:02x}"


@style()
def permutation() -> None:
    """What a permutation does: two hidden units change places with all their weights, and nothing else changes."""
    figure, axes = _figure(2, (6.4, 2.5))
    random = np.random.default_rng(3)
    into, out = random.normal(size=(3, 4)), random.normal(size=(4, 2))
    for axis, order, title in zip(
        axes, ([0, 1, 2, 3], [2, 0, 3, 1]), ("a network", "the same function"), strict=True
    ):
        places = {"in": (0.2, 0.8, 3), "hidden": (0.02, 0.98, 4), "out": (0.3, 0.7, 2)}
        heights = {name: np.linspace(*place) for name, place in places.items()}
        for place, unit in enumerate(order):
            colour = _colour(unit / 3)
            for i in range(3):
                _weight(axis, (0, heights["in"][i]), (1, heights["hidden"][place]), into[i, unit], colour)
            for j in range(2):
                _weight(axis, (1, heights["hidden"][place]), (2, heights["out"][j]), out[unit, j], colour)
            axis.plot(1, heights["hidden"][place], "o", markersize=15, color=colour, zorder=3)
            axis.text(1, heights["hidden"][place], "abcd"[unit], color="white", ha="center", va="center", zorder=4)
        for x, name in ((0, "in"), (2, "out")):
            axis.plot([x] * len(heights[name]), heights[name], "o", markersize=12, color=SLATE, zorder=3)
        axis.set_title(title)
        axis.set_axis_off()
    save(figure, HERE / "permutation", ("svg",))


@style()
def stds_move_along() -> None:
    """Why stds move along: a weight that is certain must not be mixed with one that is not."""
    figure, axes = _figure(3, (7.4, 2.3))
    means, stds = np.array([1.6, -0.4, 0.7]), np.array([0.12, 0.55, 0.25])
    order = np.array([2, 0, 1])
    cases = (
        ("first posterior", means, stds),
        ("second: means and stds\nin another order", means[order], stds[order]),
        ("half-way,\nonly the means moved", means, (stds + stds[order]) / 2),
    )
    for axis, (title, mean, std) in zip(axes, cases, strict=True):
        for unit in range(3):
            colour = _colour(unit / 2)
            axis.plot(_reach(mean[unit], std[unit]), [unit, unit], lw=5, alpha=0.4, color=colour, marker="")
            axis.plot(mean[unit], unit, "o", color=colour)
            axis.plot(_reach(means[unit], stds[unit]), [unit - 0.22] * 2, lw=1, color="0.6", marker="")
        axis.set(title=title, xlabel="weight", yticks=range(3), ylim=(2.6, -0.6), xlim=(-1.8, 2.4))
        axis.set_yticklabels(["unit a", "unit b", "unit c"])
    save(figure, HERE / "stds", ("svg",))


def _reach(mean: float, std: float) -> list[float]:
    return [mean - 2 * std, mean + 2 * std]


@style()
def wasserstein_and_kl() -> None:
    """What W2 sees, and KL too: equal means, mirrored stds."""
    from matplotlib.patches import Ellipse

    figure, axes = _figure(2, (6.0, 2.6))
    first, swapped = np.array([0.1, 1.0]) ** 0.5, np.array([1.0, 0.1]) ** 0.5
    cases = (("units as they came", swapped), ("units swapped", first))
    for axis, (title, stds) in zip(axes, cases, strict=True):
        for own, colour, line in ((first, SLATE, "-"), (stds, PURPLE, "--")):
            axis.add_patch(Ellipse((1, 1), *(2 * own), fill=False, edgecolor=colour, linestyle=line, lw=1.8))
        trace = float(np.sum(stds**2 / first**2))
        kl = 0.5 * (trace - 2 + float(np.sum(np.log(first**2 / stds**2))))
        axis.set_title(f"{title}\nW₂² = {float(np.sum((first - stds) ** 2)):.3f}, KL = {abs(kl):.2f}")
        axis.set(xlim=(-0.4, 2.4), ylim=(-0.4, 2.4), aspect="equal")
        axis.set(xlabel="weight of unit 1", ylabel="weight of unit 2")
    save(figure, HERE / "wasserstein-and-kl", ("svg",))


@style()
def rescaling(run: Run) -> None:
    """What rescaling does: the spread of a unit's activation half-way, and the barrier, on the aligned path."""
    figure, (left, right) = _figure(2, (6.8, 2.5))
    aligned = bayesin.geodesic(run.first, run.moved(run.perms))
    x = run.digits.x_train[:1000]
    rescaled = bayesin.rescale(aligned, run.model.apply, x, key=run.key, spec=run.spec)
    activations = hidden_activations(run.model.apply, run.first.mean, run.digits.x_test[:2], run.spec, key=run.key)
    taus = np.linspace(0, 1, 9)
    group = list(run.spec.sizes)[-1]
    naive = bayesin.geodesic(run.first, run.second)
    for kind, path in (("naive", naive), ("aligned", aligned), ("rescaled", rescaled)):
        spreads = [float(np.mean(np.std(activations(path(float(t)).mean, x)[group], axis=0))) for t in taus]
        left.plot(taus, spreads, **KINDS[kind])
        curve = run.barrier(path)
        right.plot(curve.taus, curve.nll, **KINDS[kind])
        print(f"{kind}: barrier {curve.value:.4f}, spread {spreads[0]:.3f} at the ends, {spreads[4]:.3f} half-way")
    left.set(xlabel="position on the path, τ", ylabel="spread of a unit, last layer")
    left.set_ylim(bottom=0)
    right.set(xlabel="position on the path, τ", ylabel="loss (nats)")
    right.set_ylim(bottom=0)
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper left", ncols=3)
    save(figure, HERE / "rescaling", ("svg",))


def _weight(axis: Any, start: tuple, end: tuple, weight: float, colour: str) -> None:
    look = "-" if weight > 0 else "--"
    axis.plot(*zip(start, end, strict=True), look, color=colour, lw=0.4 + 1.3 * abs(weight), alpha=0.8, marker="")


def _figure(count: int, size: tuple[float, float]) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(1, count)


def main(folder: str) -> None:
    HERE.mkdir(exist_ok=True)
    run = Run(Path(folder))
    moving_picture(run)
    permutation()
    stds_move_along()
    wasserstein_and_kl()
    rescaling(run)
    report = read_report(folder)
    with tempfile.TemporaryDirectory() as place:
        for name, draw in (("barrier", barrier_figure), ("plane", plane_figure)):
            draw(report[name], Path(place) / name)
            shutil.copy(Path(place) / f"{name}.svg", HERE.parent / f"{name}.svg")


if __name__ == "__main__":
    main(sys.argv[1])
