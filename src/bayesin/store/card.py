"""The card of a posterior folder: a page in Markdown that says what the files are, for people and for the hub.

Front matter (YAML) names the library, tags and scores as the Hugging Face hub reads them; the page below it says of
which network and data the posteriors are, how they were made, how good they are, which of their units may be
permuted, and how to load them. Names come from users and strangers: whatever is not ours is escaped, shortened and
kept on its line.
"""

import importlib.metadata
import math
import platform
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..json_files import json_text
from ..symmetry import PermutationSpec

if TYPE_CHECKING:
    from .artifacts import Description

CARD = "README.md"  # the name under which the hub looks for it
MARK = "<!-- written by bayesin; without this line the card is yours, and is left as it is -->"
LONGEST, MOST = 200, 40  # characters of a name, rows of a table
PACKAGES = ("bayesin", "jax", "numpy", "safetensors")
KINDS = {
    "gaussian": "a Gaussian: a mean and a standard deviation for every weight",
    "lowrank": "a Gaussian of low rank: a mean, and factors of the covariance of all weights",
    "factor": "a Gaussian of low rank plus diagonal: a mean, factors of the covariance, and a std for every weight",
    "mixture": "a mixture of Gaussians: means and standard deviations, with a leading axis for the components",
    "samples": "a set of networks: every array has a leading axis for them",
    "point": "one network",
}
PART = {"mixture": "means", "samples": "params", "point": "params"}  # where networks are found; else the mean
Scores = Mapping[str, Any]  # name -> number, or {"value": number, "error": number, "over": text}


def card(
    files: "Mapping[str, Description]",
    hashes: Mapping[str, str],
    *,
    about: Mapping[str, Any] | None = None,
    scores: Mapping[str, Scores] | None = None,
    spec: PermutationSpec | None = None,
) -> str:
    """Returns the text of a card.

    Args:
        files: what the header of every posterior says, by the name of its file.
        hashes: the SHA-256 of those files.
        about: what the headers do not say: "training" (settings), "versions", and whatever else names a fact.
        scores: of each of several posteriors, or of one under the name ""; those that count most come first. By
            default the "metrics" of the header.
        spec: the symmetry, where the headers hold none.
    """
    first = next(iter(files.values()))
    known = {**first.metadata, **(about or {})}
    scores = scores or {"": _dict(known.get("metrics"))}
    spec = spec or first.spec
    title = _title(known)
    parts = [
        _front_matter(title, known, scores),
        MARK,
        f"# {escaped(title)}",
        f"{_kind(files)}, of {first.weights:,} weights.",
        _table(("", ""), _facts(known)),
        _scores(scores),
        _symmetry(spec),
        _files(files, hashes),
        _how_to_load(next(iter(files)), first.kind),
        _versions(known),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def escaped(text: Any, longest: int = LONGEST) -> str:
    """Returns a name as Markdown that shows it as it is, on one line, and does nothing else.

    Example:
        >>> escaped("a|b <script>\\n# x")
        'a\\\\|b &lt;script&gt; \\\\# x'
    """
    line = _one_line(text, longest).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]()#+!|~$@:])", r"\\\1", line)


def _one_line(text: Any, longest: int = LONGEST) -> str:
    """Without what is not printed: line ends, control characters, marks that turn the direction, half characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in str(text)[: 4 * longest]).split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def _front_matter(title: str, known: Mapping[str, Any], scores: Mapping[str, Scores]) -> str:
    """Every text stands in double quotes, in which JSON and YAML mean the same."""
    lines = ["---", "library_name: bayesin", "tags:"]
    lines += [f"- {tag}" for tag in ("bayesin", "bayesian-neural-network", "posterior", "safetensors")]
    data, first = _named(known.get("data")), next(iter(scores.values()))
    numbers = {name: number for name, (number, _) in _numbers(first).items()}
    if numbers and "name" in data:
        name, task = _file_name(data["name"]), _task(known, numbers)
        lines += ["model-index:", f"- name: {_quoted(title)}", "  results:", "  - task:", f"      type: {task}"]
        lines += ["    dataset:", f"      name: {_quoted(name)}", f"      type: {_quoted(name)}", "    metrics:"]
        for metric, number in numbers.items():
            lines += [f"    - type: {_quoted(metric)}", f"      value: {json_text(number)}"]
    return "\n".join([*lines, "---"])


def _quoted(text: Any) -> str:
    return json_text(_one_line(text))


def _task(known: Mapping[str, Any], numbers: Mapping[str, float]) -> str:
    shape = _named(known.get("model")).get("input_shape")
    if "rmse" in numbers or "noise" in known:
        return "tabular-regression"
    return "image-classification" if isinstance(shape, list) and len(shape) == 3 else "tabular-classification"


def _title(known: Mapping[str, Any]) -> str:
    model, data = (_named(known.get(field)).get("name") for field in ("model", "data"))
    words = [_file_name(model) if model else "A posterior", *(["on", _file_name(data)] if data else [])]
    return _one_line(" ".join(words))


def _file_name(name: Any) -> str:
    """Where a file lies on the writer's machine is nobody's business."""
    return str(name).rstrip("/").rsplit("/", 1)[-1]


def _kind(files: "Mapping[str, Description]") -> str:
    kinds = list(dict.fromkeys(description.kind for description in files.values()))
    said = "; ".join(KINDS[kind] for kind in kinds)
    return f"{said[0].upper()}{said[1:]}" if len(files) == 1 else f"{len(files)} posteriors, each {said}"


def _facts(known: Mapping[str, Any]) -> list[tuple[str, str]]:
    model, data, training = _named(known.get("model")), _named(known.get("data")), _dict(known.get("training"))
    facts = {
        "network": _with_options(model),
        "data": _with_options(data),
        "method": known.get("method"),
        "prior": _prior(training),
        "noise of targets": known.get("noise"),
        "folded from": known.get("compact_of") and _file_names(known["compact_of"]),
        "merged from": known.get("merged") and _file_names(known["merged"]),
        "settings": ", ".join(f"{name} {value}" for name, value in list(training.items())[:MOST] if _is_plain(value)),
    }
    return [(name, escaped(value, 4 * LONGEST)) for name, value in facts.items() if value not in (None, "")]


def _with_options(about: Mapping[str, Any]) -> str:
    words = []
    for name, value in about.items():
        if name == "name":
            words.append(_file_name(value))
        elif name == "content":
            words.append(f"SHA-256 of its content {value}")
        elif name == "input_shape" and isinstance(value, list):
            words.append(f"inputs {'×'.join(map(str, value[:8]))}")
        elif value is not None and _is_plain(value):
            words.append(f"{name} {value}")
    return ", ".join(words[:MOST])


def _file_names(paths: Any) -> str:
    paths = paths if isinstance(paths, list) else [paths]
    return ", ".join("/".join(str(path).split("/")[-2:]) for path in paths[:MOST])


def _prior(training: Mapping[str, Any]) -> str | None:
    variance = training.get("prior_variance")
    return None if variance is None else f"normal, independent, of variance {variance}"


def _scores(scores: Mapping[str, Scores]) -> str:
    found = {of: _numbers(row) for of, row in list(scores.items())[:MOST]}
    names = list(dict.fromkeys(name for row in found.values() for name in row))
    if not names:
        return ""
    shown = {of: [_with_error(*row[name]) if name in row else "–" for name in names] for of, row in found.items()}
    rows = [(*([escaped(of)] if of else []), *cells) for of, cells in shown.items()]
    heads = [*([] if "" in found else ["of"]), *map(escaped, names)]
    overs = {
        name: value["over"]
        for row in scores.values()
        for name, value in row.items()
        if isinstance(value, Mapping) and value.get("over")
    }
    said = "; ".join(f"{escaped(name)}: over {escaped(over)}" for name, over in overs.items())
    note = f"\n\nAfter ± stands one standard error ({said})." if said else ""
    return f"## Scores on the test set\n\n{_table(heads, rows)}{note}"


def _numbers(row: Scores) -> dict[str, tuple[float, float | None]]:
    """Name -> (value, standard error or None), of what are numbers."""
    found = {}
    for name, value in list(row.items())[:MOST]:
        number, error = (value.get("value"), value.get("error")) if isinstance(value, Mapping) else (value, None)
        if (known := _number(number)) is not None:
            found[_one_line(name)] = (known, _number(error))
    return found


def _with_error(value: float, error: float | None) -> str:
    return f"{value:.4f}" if error is None else f"{value:.4f} ± {error:.4f}"


def _symmetry(spec: PermutationSpec | None) -> str:
    if spec is None:
        return ""
    sizes = list(spec.sizes.items())
    rows = [(escaped(group), f"{size:,}") for group, size in sizes[:MOST]]
    rest = f"\n\nand {len(sizes) - MOST:,} more groups." if len(sizes) > MOST else ""
    orders = f"about 10^{spec.log10_order:,.0f}" if spec.log10_order >= 6 else f"{10**spec.log10_order:,.0f}"
    return (
        f"## Permutation symmetry\n\nUnits of these groups can be put into {orders} orders, and the network computes "
        f"the same in each:\n\n{_table(('group', 'units'), rows)}{rest}"
    )


def _files(files: "Mapping[str, Description]", hashes: Mapping[str, str]) -> str:
    rows = [
        (f"`{name}`", description.kind, str(len(description.tensors)), f"`{hashes[name]}`")
        for name, description in list(files.items())[:MOST]
    ]
    rest = f"\n\nand {len(files) - MOST:,} more." if len(files) > MOST else ""
    return f"## Files\n\n{_table(('file', 'kind', 'arrays', 'SHA-256'), rows)}{rest}"


def _how_to_load(name: str, kind: str) -> str:
    part = PART.get(kind, "mean")
    return f"""## How to load it

With bayesin:

```python
import bayesin
posterior = bayesin.load_posterior("{name}")
about = bayesin.store.describe("{name}").metadata
```

Without it (`pip install safetensors numpy`):

```python
from safetensors.numpy import load_file
arrays = load_file("{name}")
weights = {{name.removeprefix("{part}/"): a for name, a in arrays.items() if name.startswith("{part}/")}}
```"""


def _versions(known: Mapping[str, Any]) -> str:
    versions = _dict(known.get("versions")) or {name: _version(name) for name in PACKAGES} | {
        "python": platform.python_version()
    }
    said = ", ".join(f"{escaped(name)} {escaped(value)}" for name, value in list(versions.items())[:MOST] if value)
    return f"Made with {said}."


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heads, rows = list(heads), [*rows]
    if not rows:
        return ""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _named(about: Any) -> dict[str, Any]:
    return {"name": about} if isinstance(about, str) else _dict(about)


def _dict(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float)


def _number(value: Any) -> float | None:
    whole = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if whole else None
