"""Judges and draws everything in results/numbers again, and writes the tables of results/README.md.

    python results/summary.py

The files are those of `bayesin reproduce NAME --scale paper`, put there by `join.py`. Figures share tasks: what is
left open in one file and done in another is taken from there, by the name of the task.
"""

from pathlib import Path

from bayesin.files import write_bytes
from bayesin.lab.papers import CATALOGUE, as_text, draw, judged, read_reproduction

HERE = Path(__file__).parent
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


def _tables(results: dict[str, dict]) -> list[str]:
    lines = []
    for name, result in results.items():
        lines += [f"## `{name}`: {result['claim']}", "", f"{result['source']}. {_compute(result)}", ""]
        lines += ["| claim | the paper | measured | verdict | why |", "|---|---|---|---|---|"]
        for finding in result["findings"]:
            cells = [finding[column] for column in ("claim", "paper", "ours", "verdict", "reason")]
            lines.append("| " + " | ".join(cell.replace("|", "∣") for cell in cells) + " |")
        lines += ["", *_all_numbers(name, result)]
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
