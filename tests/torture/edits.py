"""Valid JSON edited by type, in every file of every kind of run and result: read rightly, or refused by its name.

An edit replaces one value, anywhere in the document, by one of another type, removes it, or puts it twice. Any hand
could have done it; nothing but an error of ours may come of it.
"""

import copy
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .common import Tally
from .readers import FIXTURES

TEXTS = ("", "x", "\x1b[2J", "a\0b", "../..")
VALUES = (None, True, False, 0, -1, 7, 10**30, 0.5, -1e300, *TEXTS, [], [None], [[1]], {}, {"a": 1})
Read = Callable[[Path], Any]


def edits(count: int, scratch: Path, seed: int = 0) -> list[Tally]:
    """`count` edits in all, spread evenly over the files."""
    return [edit_one(name, -(-count // len(FILES)), scratch, seed) for name in FILES]


def edit_one(name: str, count: int, scratch: Path, seed: int = 0) -> Tally:
    """So many edits of one kind of file; the same seed makes the same edits."""
    from bayesin.errors import BayesinError

    fixture, read = FILES[name]
    draws, refused = random.Random(f"{name} {seed}"), 0
    tally = Tally(f"edited JSON: {name}")
    lines = (FIXTURES / fixture).read_text().splitlines() if fixture.endswith("jsonl") else None
    document = [json.loads(line) for line in lines] if lines else json.loads((FIXTURES / fixture).read_text())
    for _ in range(count):
        folder = scratch / "edited"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        path = folder / Path(fixture).name
        edited = edit(document, draws)
        many = isinstance(edited, list) and lines is not None
        path.write_text("".join(json.dumps(row) + "\n" for row in edited) if many else json.dumps(edited))
        try:
            read(path)
            tally.add([])
        except BayesinError as error:
            refused += 1
            text = str(error)
            named = path.name in text or str(folder) in text
            tally.add([*(["several lines"] if "\n" in text else []), *([] if named else [f"unnamed: {text[:80]}"])])
        except Exception as error:
            tally.add([f"{type(error).__name__}: {error!s:.120} from {json.dumps(edited)[:80]}"])
    tally.note = f"{refused} refused"
    return tally


def edit(document: Any, draws: random.Random) -> Any:
    """A copy with one value replaced, removed or doubled."""
    document = copy.deepcopy(document)
    places = list(_places(document))
    if not places or draws.random() < 0.02:
        return draws.choice(VALUES)
    holder, name = draws.choice(places)
    kind = draws.random()
    if kind < 0.1:
        del holder[name]
    elif kind < 0.2 and isinstance(holder, list):
        holder.insert(name, copy.deepcopy(holder[name]))
    elif kind < 0.3:
        holder[name] = [copy.deepcopy(holder[name])]  # one level deeper
    elif kind < 0.4:
        holder[name] = json.dumps(holder[name])  # as text
    else:
        holder[name] = copy.deepcopy(draws.choice(VALUES))
    return document


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every value below the root, as what holds it and where."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in items:
        yield value, name
        yield from _places(inner)


def _run_file(path: Path) -> Any:
    """A run that is done: as `train`, campaigns and `status` read it, and a posterior beside it."""
    from bayesin.cli.output import Output
    from bayesin.cli.train import _table
    from bayesin.lab.campaign import task_status
    from bayesin.lab.runs import finished

    _beside(path, "run-v1", "config.json", "provenance.json", "results.json", "posterior-0.safetensors")
    task_status(path.parent, thorough=True)
    _table(Output(quiet=True), finished(path.parent))


def _config(path: Path) -> Any:
    from bayesin.json_files import read_json
    from bayesin.lab.runs import RunConfig, find_posterior

    _beside(path, "run-v1", "posterior-0.safetensors")
    file = find_posterior(str(path.parent))
    _ = file.prior_variance, file.run_data, file.model_words
    config = RunConfig.from_json(read_json(path), str(path))
    return config.hash, config.name, config.about_data


def _metrics(path: Path) -> Any:
    from bayesin.lab.runs import read_metrics

    return read_metrics(path.parent)


def _spec(path: Path) -> Any:
    from bayesin import PermutationSpec
    from bayesin.symmetry import explain

    return explain(PermutationSpec.load(path))


def _page(path: Path) -> Any:
    from bayesin.lab.report.page import _embed, _link, read_report

    report = dict(read_report(path))
    report["files"] = [_link(entry, path.parent, path.parent / "page.html") for entry in report.get("files") or []]
    return _embed(report)


def _campaign(path: Path) -> Any:
    from bayesin.cli.status import _plain, _row
    from bayesin.lab.campaign import read_campaign

    folder = path.parent / "campaigns"
    folder.mkdir()
    found = read_campaign(path.rename(folder / path.name))
    return _row(found), _plain(found)


def _listed(path: Path) -> Any:
    """A result as `status` lists it, from the folder above and by itself."""
    from bayesin.lab.campaign import run_folders

    path = path.rename(path.with_name(path.name.replace("-v1", "")))
    return [found.says for place in (path.parent, path.parent.parent) for found in run_folders(place)]


def _reproduction(path: Path) -> Any:
    from bayesin.lab.papers import judged, read_reproduction

    return judged(read_reproduction(path))


def _mark(path: Path) -> Any:
    from bayesin.file_sets import check_one_making

    path.rename(path.parent / ".unfinished")
    (path.parent / "numbers.json").write_text("{}")
    check_one_making(path.parent)


def _beside(path: Path, folder: str, *names: str) -> None:
    for name in names:
        if name != path.name and (FIXTURES / folder / name).is_file():
            shutil.copy(FIXTURES / folder / name, path.parent / name)


FILES: dict[str, tuple[str, Read]] = {
    "config": ("run-v1/config.json", _config),
    "provenance": ("run-v1/provenance.json", _run_file),
    "results": ("run-v1/results.json", _run_file),
    "results of chains": ("run-hmc-v1/results.json", _run_file),
    "metrics": ("run-v1/metrics.jsonl", _metrics),
    "spec": ("spec-v1.json", _spec),
    "report": ("report-v1.json", _page),
    "barrier": ("barrier-v1.json", _page),
    "campaign": ("campaign-v1.json", _campaign),
    "spec with signs": ("spec-v3.json", _spec),
    "barrier in a list": ("barrier-v1.json", _listed),
    "merge in a list": ("results-v1/merge.json", _listed),
    "compact in a list": ("results-v1/compact.json", _listed),
    "evaluation in a list": ("results-v1/evaluation.json", _listed),
    "results of a reproduction": ("reproduction-v1.json", _reproduction),
    "mark of an unfinished result": ("unfinished-v1.json", _mark),
}
