"""Judges and draws everything in results/numbers again, and writes the tables of results/README.md.

    python results/summary.py

The first table has every claim of both papers, the second part every figure with its findings, its numbers and the
command that made them. The files are those of `bayesin reproduce NAME --scale paper`, put there by `join.py`. Figures
share tasks: what is left open in one file and done in another is taken from there, by the name of the task.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from bayesin.files import write_bytes
from bayesin.inference import VI
from bayesin.lab.papers import CATALOGUE, as_text, draw, drawing, judged, read_reproduction
from bayesin.lab.papers.reproduction import grouped, of_kind, runs_with_pairs
from bayesin.lab.papers.rossi2023.initialisation import decay_left
from bayesin.lab.papers.verdicts import Barriers, barriers_of, format_mean_std, trend
from bayesin.lab.report import save, style

HERE = Path(__file__).parent
KINDS = ("naive", "aligned", "rescaled")
LOOKS = ((3, True), (1, False), (3, False), (3, True))  # digits and spread: nats, points, ECE, calibrated nats
MNIST = 60_000  # training examples
ONE_AXIS = "one_axis"
BEGIN, END = "<!-- made by summary.py -->", "<!-- end -->"


def main() -> None:
    paths = {path.stem: path for path in sorted((HERE / "numbers").glob("*.json"))}
    saved = {name: read_reproduction(path) for name, path in paths.items()}
    every_record = [record for result in saved.values() for record in result["records"]]
    done = {record["name"]: record for record in every_record if record["state"] == "done"}
    results = {}
    for name in (name for name in CATALOGUE if name in saved):
        records = [done.get(r["name"], r) if r["state"] != "done" else r for r in saved[name]["records"]]
        results[name] = judged(saved[name] | {"records": records})
        write_bytes(paths[name], as_text(results[name]).encode())
        draw(results[name], HERE / "figures" / name, ("svg", "png"))  # `bayesin reproduce --redraw` makes the PDF
    page = HERE / "README.md"
    before, rest = page.read_text().split(BEGIN)
    page.write_text(before + BEGIN + "\n\n" + "\n".join(_tables(results)) + "\n\n" + END + rest.split(END)[1])


def _claims(results: dict[str, dict]) -> list[str]:
    """Every claim of the papers in one table; what is ours stands with its figure."""
    lines = ["## Every claim of both papers", ""]
    lines += ["| figure | claim | the paper | measured | verdict |", "|---|---|---|---|---|"]
    papers = {"Rossi et al. 2023": [], "Xiao et al. 2023": []}
    for name, result in results.items():
        paper = next((paper for paper in papers if result["source"].startswith(paper)), None)
        if paper is not None:
            papers[paper] += [(name, finding) for finding in result["findings"]]
    for paper, found in papers.items():
        lines.append(f"| **{paper}** | | | | {_count(finding for _, finding in found)} |")
        for name, finding in found:
            cells = [finding[column] for column in ("claim", "paper", "ours", "verdict")]
            lines.append(f"| `{name}` | " + " | ".join(cell.replace("|", "∣") for cell in cells) + " |")
    lines += ["", "± is the standard deviation over pairs or seeds, whose number is in brackets. What is ours alone:"]
    ours = [name for name, result in results.items() if result["source"].startswith("Ours")]
    return [*lines[:-1], lines[-1] + " " + ", ".join(f"`{name}`" for name in ours) + ".", ""]


def _campaign(results: dict[str, dict]) -> list[str]:
    """What the whole of it takes, figure by figure; tasks that an earlier figure has are not counted again."""
    lines = ["## What the campaign takes", ""]
    lines += ["| figure | tasks | left | seconds | of these its own | sum |", "|---|--:|--:|--:|--:|--:|"]
    seen: set[str] = set()
    total = 0.0
    for name, result in results.items():
        done = [record for record in result["records"] if record["state"] == "done"]
        seconds = {record["name"]: record["seconds"] or 0.0 for record in done}
        own = sum(took for task, took in seconds.items() if task not in seen) / max(sum(seconds.values()), 1e-9)
        total += own * result["compute_seconds"]
        numbers = [len(done), len(result["records"]) - len(done), result["compute_seconds"]]
        numbers += [own * result["compute_seconds"], total]
        lines.append(f"| `{name}` | " + " | ".join(f"{number:,.0f}" for number in numbers) + " |")
        seen |= set(seconds)
    said = (
        f"`bayesin reproduce all --scale paper` is these, one after the other: {total / 3600:.1f} hours of one H200 "
        "as measured, without what is left. *Seconds* are those in which anything of a figure ran; *its own* is "
        "their part for tasks that no figure above has, by the seconds of the tasks. Some were measured beside other "
        "work on the same GPU, which makes them slower, never quicker."
    )
    unmeasured = {name: CATALOGUE[name].minutes["paper"] for name in CATALOGUE if name not in results}
    if unmeasured:
        parts = ", ".join(f"`{name}` {minutes:g}" for name, minutes in unmeasured.items())
        said += f" Estimated, not measured, in minutes: {parts}."
    return [*lines, "", said, ""]


def _by_ratio(results: dict[str, dict]) -> dict[tuple[float, float], tuple[Barriers, float]]:
    """Pairs of `prior` and `temperature` by (T, v), T on the KL, and what weight decay leaves of their start."""
    found = {}
    for name in ("prior", "temperature"):
        for run, pairs in runs_with_pairs(results[name]["records"]) if name in results else ():
            training = VI(**run["settings"]["config"]["training"])
            if pairs and training.temperature_meaning == "kl":
                left = decay_left(training, MNIST) or 0.0
                found[training.temperature, training.prior_variance] = barriers_of(pairs), left
    return dict(sorted(found.items(), key=lambda item: item[0][0] / item[0][1]))


def _one_axis(results: dict[str, dict]) -> list[str]:
    """What alignment leaves in the order of T / v, beside what weight decay leaves of the start."""
    found = _by_ratio(results)
    if len(found) < 3:
        return []
    by_epochs = _by_epochs(results)
    _draw_one_axis(found, by_epochs)
    lines = [
        "| T/v | T | v | left of the barrier, % | of the start left by weight decay, % |",
        "|--:|--:|--:|--:|--:|",
    ]
    for (temperature, variance), (barriers, kept) in found.items():
        share = f"{100 * barriers.share:.1f} ± {100 * barriers.share_error:.1f}"
        ratio = temperature / variance
        lines.append(f"| {ratio:g} | {temperature:g} | {variance:g} | {share} | {100 * kept:.1f} |")
    shares = [barriers.share for barriers, _ in found.values()]
    errors = [barriers.share_error for barriers, _ in found.values()]
    verdict, reason = trend([kept for _, kept in found.values()], shares, errors, what="the last two columns")
    said = (
        "T on the KL, settings of `prior` and of this figure together; ± is the standard error. The last column is "
        "computed from the settings, not measured: what gradient descent with the prior's pull alone leaves of a "
        "weight (`initialisation` measures it). That more of the barrier stays where more of the start does is "
        f"{verdict}: {reason}."
    )
    if by_epochs:
        epochs = ", ".join(
            f"{100 * barriers.share:.1f} ± {100 * barriers.share_error:.1f} % after {epochs} epochs"
            for epochs, barriers in by_epochs.items()
        )
        said += (
            f" ResNet20 with 32 features (`conditions`) keeps {epochs}: training erases what is left up to a point, "
            "beyond which it does not go on falling, as it would if the start alone explained it."
        )
    picture = (
        "![what alignment leaves against T/v, against what weight decay leaves of the start, and against epochs]"
    )
    return [*lines, "", said, "", f"{picture}(figures/{ONE_AXIS}.png)", ""]


def _by_epochs(results: dict[str, dict]) -> dict[int, Barriers]:
    """Pairs of ResNet20 with 32 features and LayerNorm by the epochs of their training."""
    found = {}
    for run, pairs in runs_with_pairs(results["conditions"]["records"]) if "conditions" in results else ():
        config = run["settings"]["config"]
        training, model = VI(**config["training"]), config["model"]
        plain = training.prior_centre == VI.prior_centre and training.compute == "bfloat16"
        if pairs and plain and (model["width"], model["norm"]) == (32, "layernorm"):
            found[training.epochs] = barriers_of(pairs)
    return dict(sorted(found.items()))


@style()
def _draw_one_axis(found: dict[tuple[float, float], tuple[Barriers, float]], by_epochs: dict[int, Barriers]) -> None:
    """The table of `_one_axis` twice, and ResNet20 of `conditions` against its epochs."""
    figure = Figure(figsize=(8.6, 2.7), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)

    def points(axis: Any, places: list[float], barriers: list[Barriers], **look: Any) -> None:
        errors = [100 * one.share_error for one in barriers]
        axis.errorbar(places, [100 * one.share for one in barriers], errors, linestyle="", capsize=2, **look)

    varied = {"v varied, T = 1": lambda at: at[0] == 1, "T varied, v = 0.01": lambda at: at[0] != 1}
    for (what, chosen), look in zip(varied.items(), ((drawing.OCHRE, "o"), (drawing.PURPLE, "s")), strict=True):
        settings = [at for at in found if chosen(at)]
        barriers = [found[at][0] for at in settings]
        colours = {"color": look[0], "marker": look[1]}
        points(axes[0], [t / v for t, v in settings], barriers, **colours, label=what)
        points(axes[1], [100 * found[at][1] for at in settings], barriers, **colours)
    points(axes[2], list(by_epochs), list(by_epochs.values()), color=drawing.SLATE, marker="D")
    drawing.log_scale(axes[0].yaxis)
    axes[0].set_xscale("log")  # decades alone: there are five
    axes[2].set(xscale="log", xticks=list(by_epochs), xticklabels=[f"{epochs}" for epochs in by_epochs])
    axes[2].minorticks_off()
    drawing.legend_inside(axes[0])
    axes[0].set(xlabel="T / v", ylabel="left of the barrier (%)", title="MLP on MNIST")
    axes[1].set(xlabel="of the start left by weight decay (%)", title="the same")
    axes[2].set(xlabel="epochs", title="ResNet20, 32 features")
    save(figure, HERE / "figures" / ONE_AXIS, ("svg", "png"))


def _count(findings: Iterable[dict]) -> str:
    verdicts = [finding["verdict"] for finding in findings]
    return ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts))


def _beside_barriers(result: dict) -> list[str]:
    """Accuracy lost and calibration error beside the barriers of a figure, without and after alignment."""
    cases = grouped(of_kind(result["records"], "pair"), _setting_of)
    if not cases:
        return []
    head = "| pairs of | barrier, nats | points of accuracy lost | ECE at the highest point | calibrated, nats |"
    lines = [head, "|---|--:|--:|--:|--:|"]
    for title, of_case in cases.items():
        curves = [[pair["numbers"].get(kind, {}).get("test") for pair in of_case] for kind in KINDS]
        sides = [[curve for curve in of_kind if curve] for of_kind in curves]
        columns = (
            lambda curve: curve["value"],
            lambda curve: 100 * curve["accuracy_drop"],
            lambda curve: curve["ece"][int(np.argmax(curve["nll"]))],
            lambda curve: curve.get("calibrated_value"),
        )
        cells = [
            " → ".join(_cell(map(of, side), *look) for side in sides) for of, look in zip(columns, LOOKS, strict=True)
        ]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    said = "Test set; without alignment → after it → on the rescaled path."
    if any("–" in line for line in lines):
        said += (
            " –: not measured; the command of the figure does it now, but for the rescaled path of recurrent "
            "networks, whose units are inside a loop."
        )
    return [*lines, "", said, ""]


def _cell(values: Iterable[float | None], digits: int, spread: bool) -> str:
    """The mean over the pairs that have the number, with its deviation if so asked; a dash where none has."""
    known = [value for value in values if value is not None]
    return format_mean_std(known, digits, count=False) if spread or not known else f"{np.mean(known):.{digits}f}"


def _setting_of(pair: dict) -> str:
    return re.sub(r"^.*members \d+ and \d+(, | of )", "", pair["title"])


def _tables(results: dict[str, dict]) -> list[str]:
    lines = _claims(results) + _campaign(results)
    for name, result in results.items():
        lines += [
            f"## `{name}`: {result['claim']}",
            "",
            f"{result['source']}. {_compute(result)} Made by `bayesin reproduce {name} --scale {result['scale']}`.",
            "",
        ]
        lines += ["| claim | the paper | measured | verdict | why |", "|---|---|---|---|---|"]
        for finding in result["findings"]:
            cells = [finding[column] for column in ("claim", "paper", "ours", "verdict", "reason")]
            lines.append("| " + " | ".join(cell.replace("|", "∣") for cell in cells) + " |")
        lines += ["", *_all_numbers(name, result), *_beside_barriers(result)]
        lines += _one_axis(results) if name == "temperature" else []
        lines += [f"![{result['claim']}](figures/{name}.png)", ""]
        said = [*(f"Choice: {choice}." for choice in result["choices"]), *result.get("remarks", [])]
        lines += [f"- {sentence}" for sentence in said] + [""]
    missing = [name for name in CATALOGUE if name not in results]
    if missing:
        lines += ["## Not measured yet", "", ", ".join(f"`{name}`" for name in missing), ""]
    return lines[:-1]


def _all_numbers(name: str, result: dict) -> list[str]:
    """The table of a reproduction that is one, the paper's numbers in brackets."""
    table = CATALOGUE[name].table
    rows = [] if table is None else table(result["records"])
    if not rows:
        return []
    head = ["| " + " | ".join(rows[0]) + " |", "|---" + "|--:" * (len(rows[0]) - 1) + "|"]
    body = ["| " + " | ".join(row) + " |" for row in rows[1:]]
    return [*head, *body, "", "± over seeds; in brackets: the paper.", ""]


def _compute(result: dict) -> str:
    done = [record for record in result["records"] if record["state"] == "done"]
    recorded = (str(record.get("commit", result["provenance"]["commit"])) for record in done)
    commits = dict.fromkeys(commit[:7] + ("+" if commit.endswith("+") else "") for commit in recorded)
    where = ", ".join(result["devices"])
    at = f"commit{'s' if len(commits) > 1 else ''} {', '.join(commits)}"
    return f"Scale `{result['scale']}`, {where}, {result['compute_seconds']:.0f} s of it, {at}."


if __name__ == "__main__":
    main()
