"""How campaigns stand: the time left is that of like tasks, and one damaged campaign hides no other."""

import json
import shutil
from pathlib import Path

import pytest

from bayesin.cli.main import main
from bayesin.json_files import write_json
from bayesin.lab.campaign import TrainTask, ledgers, read_campaign, run_folders, topological_order, write_ledger
from bayesin.lab.papers import CATALOGUE, SCALES
from bayesin.lab.runs import RunConfig, make_training
from bayesin.locks import locked

FINENESS = ("samples", "taus", "train_samples", "test_samples", "key")  # how finely, how often: not what


def campaigns(runs):
    return [read_campaign(ledger) for ledger in ledgers(runs)]


def trained(runs, model, width, seconds, **changes):
    """A run; done where its seconds are given."""
    task = TrainTask(RunConfig("digits", model, make_training("vi", changes), width=width))
    if seconds is not None:
        times = {"train_seconds": seconds, "test_seconds": 0.0}
        write_json(runs / task.name / "provenance.json", {"status": "done"} | times)
        write_json(runs / task.name / "results.json", {"members": [], "weights": 0, "steps": 0, "memory": None})
    return task


@pytest.mark.parametrize(
    ("model", "width", "expected"),
    [
        ("resnet20", 64, 500.0),  # the same network
        ("resnet20", 32, 400.0),  # of another width: all ResNet20
        ("cnn", 8, 205.0),  # of another kind: all training
    ],
)
def test_the_time_left_is_that_of_the_tasks_most_alike(tmp_path, model, width, expected):
    done = [trained(tmp_path, "mlp", 8, 5.0), trained(tmp_path, "mlp", 16, 15.0)]
    done += [trained(tmp_path, "resnet20", 16, 300.0), trained(tmp_path, "resnet20", 64, 500.0)]
    write_ledger("all", [*done, trained(tmp_path, model, width, None, epochs=7)], tmp_path)
    (found,) = campaigns(tmp_path)
    assert found.seconds_left == pytest.approx(expected) and found.seconds_spent == 820.0


def test_a_ledger_without_costs_goes_by_kind(tmp_path):
    path = write_ledger("old", [trained(tmp_path, "mlp", 8, 5.0), trained(tmp_path, "resnet20", 8, None)], tmp_path)
    ledger = json.loads(path.read_text())
    for task in ledger["tasks"]:
        del task["cost"]
    write_json(path, ledger)
    assert campaigns(tmp_path)[0].seconds_left == 5.0


@pytest.mark.parametrize("seconds", ["long", [1], True, -1.0])
def test_a_record_with_a_time_that_is_none_is_damaged_or_unknown(tmp_path, capsys, seconds):
    write_ledger("odd", [trained(tmp_path, "mlp", 8, seconds), trained(tmp_path, "mlp", 16, None)], tmp_path)
    write_ledger("well", [trained(tmp_path, "mlp", 32, 3.0)], tmp_path)
    assert main(["status", str(tmp_path), "--json"]) == 0
    odd, well = json.loads(capsys.readouterr().out)["campaigns"]
    assert (odd["done"], odd["seconds_spent"], odd["seconds_left"]) == (int(seconds == -1.0), 0.0, None)
    assert (well["done"], well["seconds_spent"]) == (1, 3.0)


def test_a_damaged_ledger_is_named_and_hides_no_other(tmp_path, capsys):
    write_ledger("well", [trained(tmp_path, "mlp", 8, 3.0)], tmp_path)
    (tmp_path / "campaigns" / "bad.json").write_text('{"format": "bayesin-campaign"}')
    assert main(["status", str(tmp_path), "--json"]) == 1
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert [one["name"] for one in found["campaigns"]] == ["well"]
    assert "bad.json" in found["damaged"][0] and "bad.json" in said.err and "Traceback" not in said.err


def test_runs_outside_campaigns_are_shown_once_each_and_a_damaged_one_by_name(tmp_path, capsys):
    fixtures = Path(__file__).parent / "fixtures"
    write_ledger("well", [trained(tmp_path, "mlp", 8, 3.0)], tmp_path)
    shutil.copytree(fixtures / "run-v1", tmp_path / "mine" / "trained")
    for name, file in (("way", "barrier.json"), ("bad", "compact.json"), ("drawn", "report.json")):
        (tmp_path / name).mkdir()
        source = fixtures / file.replace(".json", "-v1.json")
        (tmp_path / name / file).write_text(source.read_text() if source.is_file() else "[]")
    (tmp_path / "nothing" / "of" / "ours").mkdir(parents=True)
    (tmp_path / "nothing" / "plane.json").write_text("{}")  # a figure's numbers in a folder of results
    failed = {"status": "failed", "error": "the loss diverged"}
    shutil.copytree(fixtures / "run-v1", tmp_path / "lost", ignore=shutil.ignore_patterns("provenance.json"))
    write_json(tmp_path / "lost" / "provenance.json", failed)
    with locked(tmp_path / "fresh" / ".lock"):
        assert main(["status", str(tmp_path), "--json"]) == 0
    runs = {Path(one["path"]).name: one for one in json.loads(capsys.readouterr().out)["runs"]}
    assert {name: (one["kind"], one["state"]) for name, one in runs.items()} == {
        "bad": ("compact", "done"), "drawn": ("page", "done"), "fresh": ("–", "running"),
        "lost": ("train", "failed"), "trained": ("train", "done"), "way": ("barrier", "done"),
    }  # fmt: skip
    assert "compact.json" in runs["bad"]["error"] and runs["lost"]["error"] == "the loss diverged"
    assert main(["status", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "well" in shown and "trained" in shown and "the loss diverged" in shown


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", CATALOGUE)
def test_titles_tell_the_tasks_of_a_figure_apart(name, scale):
    """Tasks that differ only in how finely or how often something is measured may share one."""
    settings = {}
    for task in topological_order(CATALOGUE[name].tasks(scale)):
        settings.setdefault(task.title, set()).add(json.dumps(_what(task.to_json()), sort_keys=True))
    assert {title: found for title, found in settings.items() if len(found) > 1} == {}


def _what(value):
    if isinstance(value, dict):
        return {name: _what(one) for name, one in value.items() if name not in (*FINENESS, "hash")}
    return value


EDITED = [
    ("barrier.json", {"sets": []}, "sets"),
    ("barrier.json", {"sets": {"test": {"naive": {"value": None}}}}, "sets.test.naive.value"),
    ("barrier.json", {"sets": {}}, None),  # nothing is measured, and nothing wrong
    ("merge.json", {"scores": {"a": {"nll": "x"}}}, "scores.a.nll"),
    ("merge.json", {"scores": {}}, None),
    ("merge.json", {"scores": {"a": {"nll": None}}}, None),
]


@pytest.mark.parametrize("name, content, wrong", EDITED)
def test_a_result_that_was_edited_is_listed_with_the_field_that_is_wrong(tmp_path, name, content, wrong):
    write_json(tmp_path / "result" / name, content)
    (found,) = run_folders(tmp_path)
    assert found.error is None if wrong is None else name in found.error and wrong in found.error
