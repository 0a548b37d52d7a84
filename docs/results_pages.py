"""One page for every figure of results/README.md, and a gallery of thumbnails before them.

The README of results/ is one long page, which suits a repository; here it is cut at its headings. A new result needs
no edit: its section, its figure and its verdicts are found by its name.
"""

import json
import re
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULTS, PAGES = HERE.parent / "results", HERE / "results"
HEADING = re.compile(r"^## `(\w+)`: (.*)$", re.MULTILINE)
VERDICTS = ("confirmed", "partly", "not confirmed", "not decided", "not judged", "not measured")


def write_results_pages() -> None:
    """Writes `docs/results/`, and leaves alone what has not changed, so that a second build is quick."""
    readme = (RESULTS / "README.md").read_text(encoding="utf-8")
    found = list(HEADING.finditer(readme))
    ends = [match.start() for match in found[1:]] + [readme.index("<!-- end -->")]
    bodies = {match[1]: readme[match.end() : end] for match, end in zip(found, ends, strict=True)}
    claims = {match[1]: match[2] for match in found}
    pages = {name: f"# `{name}`: {claims[name]}\n{body}" for name, body in bodies.items()}
    how = readme[: readme.index("<!-- made by summary.py -->")].split("\n", 1)[1]
    rest = readme[readme.index("<!-- end -->") + len("<!-- end -->") :]
    pages["index"] = _gallery(claims)
    pages["how"] = f"# How it was measured\n{how}\n{rest}"
    pages["speed"] = (RESULTS / "speed.md").read_text(encoding="utf-8")
    PAGES.mkdir(exist_ok=True)
    for old in PAGES.glob("*.md"):
        if old.stem not in pages:
            old.unlink()
    for name, text in pages.items():
        _write(PAGES / f"{name}.md", text.replace("](figures/", "](../../results/figures/"))


def _gallery(claims: dict[str, str]) -> str:
    cards = "\n".join(_card(name, claim) for name, claim in claims.items())
    names = "\n".join(f"{name} <{name}>" for name in claims)
    return f"""# Results

Every figure was made by `bayesin reproduce NAME --scale paper` on one H200,
from numbers that are kept in `results/`. The words on a card
are the claim; below them is what measuring it gave. [How it was measured](how.md), [speed](speed.md).

::::{{grid}} 1 2 3 3
:gutter: 2

{cards}
::::

```{{toctree}}
:hidden:

how
{names}
speed
```
"""


def _card(name: str, claim: str) -> str:
    result = json.loads((RESULTS / "numbers" / f"{name}.json").read_text(encoding="utf-8"))
    counts = Counter(finding["verdict"] for finding in result["findings"])
    verdicts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
    return f""":::{{grid-item-card}} {name}
:link: {name}
:link-type: doc
:link-alt: {name}
:img-top: ../../results/figures/{name}.png
:img-alt: the figure of {name}
:class-img-top: figure

{claim}

*{verdicts}*
:::
"""


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
