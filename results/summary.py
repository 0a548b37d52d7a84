"""Judges and draws everything in results/numbers again, and writes the tables of results/README.md.

    python results/summary.py

The first table has every claim of both papers, the second part every figure with its findings, its numbers and the
command that made them. The files are those of `bayesin reproduce NAME --scale paper`, put there by `join.py`. Figures
share tasks: what is left open in one file and done in another is taken from there, by the name of the task.
"""

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from bayesin.files import write_bytes
from bayesin.inference import VI
from bayesin.lab.papers import CATALOGUE, as_text, draw, judged, read_reproduction
from bayesin.lab.papers.reproduction import grouped, of_kind, runs_with_pairs
from bayesin.lab.papers.rossi2023.initialisation import decay_left
from bayesin.lab.papers.verdicts import barriers_of, format_mean_std, trend

HERE = Path(__file__).parent
KINDS = ("naive", "aligned", "rescaled")
LOOKS = ((3, True), (1, False), (3, False), (3, True))  # digits and spread: nats, points, ECE, calibrated nats
MNIST = 60_000  # training examples
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
    return [*lines, "", said, ""]


def _one_axis(results: dict[str, dict]) -> list[str]:
    """Pairs of `prior` and `temperature` in the order of T / v, beside what weight decay leaves of their start."""
    found = {}
    for name in ("prior", "temperature"):
        for run, pairs in runs_with_pairs(results[name]["records"]) if name in results else ():
            training = VI(**run["settings"]["config"]["training"])
            if pairs and training.temperature_meaning == "kl":
                found[training.temperature, training.prior_variance] = barriers_of(pairs), decay_left(training, MNIST)
    if len(found) < 3:
        return []
    lines = [
        "| T/v | T | v | left of the barrier, % | of the start left by weight decay, % |",
        "|--:|--:|--:|--:|--:|",
    ]
    rows = sorted((temperature / variance, temperature, variance) for temperature, variance in found)
    columns = [found[temperature, variance] for _, temperature, variance in rows]
    for (ratio, temperature, variance), (barriers, kept) in zip(rows, columns, strict=True):
        share = f"{100 * barriers.share:.1f} ± {100 * barriers.share_error:.1f}"
        lines.append(f"| {ratio:g} | {temperature:g} | {variance:g} | {share} | {100 * (kept or 0.0):.1f} |")
    shares = [barriers.share for barriers, _ in columns]
    errors = [barriers.share_error for barriers, _ in columns]
    verdict, reason = trend([kept or 0.0 for _, kept in columns], shares, errors, what="the last two columns")
    said = (
        "T on the KL, settings of `prior` and of this figure together; ± is the standard error. The last column is "
        "computed from the settings, not measured: what gradient descent with the prior's pull alone leaves of a "
        "weight (`initialisation` measures it). That more of the barrier stays where more of the start does is "
        f"{verdict}: {reason}."
    )
    return [*lines, "", said, ""]


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
    return [*lines, "", "Test set; without alignment → after it → on the rescaled path. –: not measured.", ""]


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
    commits = dict.fromkeys(record.get("commit", str(result["provenance"]["commit"]))[:7] for record in done)
    where = ", ".join(result["devices"])
    at = f"commit{'s' if len(commits) > 1 else ''} {', '.join(commits)}"
    return f"Scale `{result['scale']}`, {where}, {result['compute_seconds']:.0f} s of it, {at}."


if __name__ == "__main__":
    main()
