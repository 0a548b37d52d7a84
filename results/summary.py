"""Writes the tables of results/README.md and the figure beside them from results/numbers.

python results/summary.py
"""

import json
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import bayesin.report

HERE = Path(__file__).parent
STYLE = Path(bayesin.report.__file__).parent / "bayesin.mplstyle"
NAIVE, ALIGNED = "#d55e00", "#0072b2"  # vermilion and blue of Okabe and Ito
BEGIN, END = "<!-- made by summary.py -->", "<!-- end -->"


def main() -> None:
    runs = [json.loads(path.read_text()) for path in sorted((HERE / "numbers").glob("*.json"))]
    page = HERE / "README.md"
    before, rest = page.read_text().split(BEGIN)
    after = rest.split(END)[1]
    page.write_text(before + BEGIN + "\n\n" + "\n".join(_table(runs)) + "\n\n" + END + after)
    _figure([run for run in runs if run["pairs"] and "bfloat16" not in run["name"]])


def _table(runs: list[dict]) -> list[str]:
    titles = ["run", "seeds", "test accuracy %", "mean std", "pairs", "naive barrier", "aligned barrier"]
    titles += ["accuracy points lost after", "train s", "align s"]
    lines = ["| " + " | ".join(titles) + " |", "|---" + "|--:" * (len(titles) - 1) + "|"]
    for run in runs:
        members, pairs = run["results"]["members"], run["pairs"]
        cells = [
            run["name"],
            len(members),
            _spread([100 * m["test_accuracy"] for m in members], 2),
            f"{np.mean([m['std_mean'] for m in members]):.4f}",
            len(pairs),
            _spread([p["naive_test"]["value"] for p in pairs], 3),
            _spread([p["aligned_test"]["value"] for p in pairs], 4),
            _spread([100 * _lost(p["aligned_test"]) for p in pairs], 2),
            f"{run['provenance']['train_seconds']:.0f}",
            _spread([p["align_seconds"] for p in pairs], 2),
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def _spread(values: list[float], digits: int) -> str:
    """Mean and standard deviation over seeds or pairs."""
    if not values:
        return "–"
    spread = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{spread}"


def _lost(barrier: dict) -> float:
    taus, accuracy = np.array(barrier["taus"]), np.array(barrier["accuracy"])
    return float(((1 - taus) * accuracy[0] + taus * accuracy[-1] - accuracy).max())


def _figure(runs: list[dict]) -> None:
    plt.style.use(STYLE)
    columns = (len(runs) + 1) // 2
    figure, axes = plt.subplots(2, columns, figsize=(3.1 * columns, 5.6), sharex=True)
    for axis, run in zip(axes.flat, runs, strict=False):
        for label, colour, mark in (("naive", NAIVE, "--"), ("aligned", ALIGNED, "-")):
            for pair in run["pairs"]:
                curve = pair[f"{label}_test"]
                axis.plot(curve["taus"], curve["nll"], mark, color=colour, linewidth=1, marker="")
        axis.set_title(run["name"].replace("-mlp512-", " MLP, ").replace("-resnet2064-", " ResNet20×4, "), fontsize=9)
        axis.set_ylim(bottom=0)
    for axis in axes.flat[len(runs) :]:
        axis.axis("off")
    for axis in axes[-1]:
        axis.set_xlabel("position on the path, τ")
    for row in axes:
        row[0].set_ylabel("test loss (nats)")
    handles = [plt.Line2D([], [], color=NAIVE, linestyle="--"), plt.Line2D([], [], color=ALIGNED)]
    figure.legend(handles, ["without alignment", "after alignment"], loc="outside upper left", ncols=2, frameon=False)
    for ending in ("svg", "png"):
        figure.savefig(HERE / f"barriers.{ending}", metadata={"Date": None} if ending == "svg" else None)


if __name__ == "__main__":
    main()
