"""What a reproduction reads and writes: damage is named in one line, inputs stay, numbers do not wait for figures."""

import json
import sys
from pathlib import Path

import pytest

from bayesin.cli.main import main
from bayesin.errors import ArtifactError, BayesinError
from bayesin.lab.papers import CATALOGUE, as_text, judged, read_reproduction, reproduce

KL = Path(__file__).resolve().parents[1] / "results" / "numbers" / "kl.json"
TEMPERATURE = KL.with_name("temperature.json")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder in which the one task of `kl` is done."""
    folder = tmp_path_factory.mktemp("kl")
    reproduce("kl", runs=folder / "runs", out=folder / "out")
    return folder / "runs"


@pytest.fixture
def copied(runs, tmp_path):
    """A copy of that folder, and its task's own one."""
    (task,) = CATALOGUE["kl"].tasks("smoke")
    for path in (runs / task.name).iterdir():
        (tmp_path / "runs" / task.name).mkdir(parents=True, exist_ok=True)
        (tmp_path / "runs" / task.name / path.name).write_bytes(path.read_bytes())
    return tmp_path / "runs", tmp_path / "runs" / task.name


@pytest.mark.parametrize(
    "content", ["[]", "{}", '{"format": "bayesin-reproduction"}', '{"format": "other", "records": []}']
)
def test_a_file_of_something_else_is_refused(content, tmp_path):
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(ArtifactError, match=r"x\.json"):
        read_reproduction(tmp_path / "x.json")


@pytest.mark.parametrize("damage", [{"version": 2}, {"name": "nothing"}, {"format": "other"}])
def test_a_file_of_another_version_is_refused(damage):
    with pytest.raises(BayesinError):
        judged(json.loads(KL.read_text()) | damage)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("name",), None, "'name' must be text"),
        (("scale",), 3, "'scale' must be text"),
        (("scale",), "huge", "smoke, cpu, paper"),
        (("devices",), "one", "'devices' must be a list"),
        (("devices",), [1], "'devices[0]' must be text"),
        (("provenance",), [], "'provenance' must be an object"),
        (("compute_seconds",), "long", "'compute_seconds' must be a number"),
        (("remarks",), 5, "'remarks' must be a list"),
        (("records",), [], "holds no record"),
        (("records", 0), 7, "'records[0]' must be an object"),
        (("records", 0, "settings"), None, "'records[0].settings' must be an object"),
        (("records", 0, "settings", "kind"), None, "'records[0].settings.kind' must be text"),
        (("records", 0, "state"), None, "'records[0].state' must be text"),
        (("records", 0, "error"), 5, "'records[0].error' must be text or null"),
        (("records", 0, "numbers"), "absent", "'records[0].numbers' is missing"),
    ],
)
def test_a_file_that_lacks_something_is_refused_in_one_line(path, value, words, tmp_path, capsys):
    found = json.loads(KL.read_text())
    *parents, last = path
    place = found
    for name in parents:
        place = place[name]
    place[last] = value
    if value == "absent":
        del place[last]
    (tmp_path / "kl.json").write_text(json.dumps(found))
    assert main(["reproduce", "--redraw", str(tmp_path / "kl.json"), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert words in said and "kl.json" in said and said.count("\n") == 1
    assert not (tmp_path / "out").exists()
    with pytest.raises(ArtifactError, match=r"must be|holds no|is missing"):
        judged(found)


def test_redrawing_leaves_its_input_alone(tmp_path, capsys):
    before = KL.read_bytes().replace(b'"verdict": "confirmed"', b'"verdict": "older"')
    (tmp_path / "kl.json").write_bytes(before)
    assert main(["reproduce", "--redraw", str(tmp_path / "kl.json")]) == 0
    assert (tmp_path / "kl.json").read_bytes() == before
    assert (tmp_path / "kl.svg").is_file() and (tmp_path / "report.html").is_file()
    assert main(["reproduce", "--redraw", str(tmp_path / "kl.json"), "--out", str(tmp_path / "new")]) == 0
    assert read_reproduction(tmp_path / "new" / "kl.json")["findings"] == json.loads(KL.read_text())["findings"]


@pytest.mark.parametrize("numbers", [{}, [], {"figure": 3, "recovered": None}])
def test_a_run_whose_numbers_were_changed_is_done_again(numbers, copied, tmp_path, capsys):
    runs, folder = copied
    whole = json.loads((folder / "numbers.json").read_text())
    (folder / "numbers.json").write_text(json.dumps(numbers))
    argv = ["reproduce", "kl", "--runs", str(runs), "--out", str(tmp_path / "out"), "--json"]
    assert main(argv) == 0
    assert json.loads(capsys.readouterr().out)["failed"] == 0
    assert json.loads((folder / "numbers.json").read_text()) == whole
    assert read_reproduction(tmp_path / "out" / "kl.json")["records"][0]["state"] == "done"


def test_one_damaged_record_does_not_hide_the_others(tmp_path):
    saved = json.loads(TEMPERATURE.read_text())
    pair = next(one for one in saved["records"] if one["settings"]["kind"] == "pair")
    pair["numbers"] = {"naive": "lost"}
    found = judged(saved)
    damaged = [one["name"] for one in found["records"] if one["state"] == "failed"]
    assert damaged == [pair["name"]] and "1 of 72 were not" in found["findings"][-1]["ours"]
    assert len(found["findings"]) == len(saved["findings"]) + 1


@pytest.mark.parametrize(("lost", "end"), [(1, ": it diverged"), (3, ": it diverged; and 2 more")])
def test_the_first_of_what_is_missing_is_named_and_the_others_are_counted(lost, end):
    saved = json.loads(TEMPERATURE.read_text())
    for one in saved["records"][:lost]:
        one |= {"state": "failed", "error": "it diverged"}
    assert judged(saved)["findings"][-1]["reason"] == saved["records"][0]["title"] + end


@pytest.mark.parametrize("damage", [{"ended": "x"}, {"ended": 5}, {"seconds": "long", "ended": None}])
def test_times_that_cannot_be_read_are_unknown(damage, copied, tmp_path):
    runs, folder = copied
    record = json.loads((folder / "provenance.json").read_text()) | damage
    (folder / "provenance.json").write_text(json.dumps(record))
    found = reproduce("kl", runs=runs, out=tmp_path / "out")
    assert found["compute_seconds"] == 0.0
    assert found["records"][0]["seconds"] == (None if "seconds" in damage else record["seconds"])


def test_a_record_names_commit_and_device_of_its_own_run(copied, tmp_path):
    runs, folder = copied
    record = json.loads((folder / "provenance.json").read_text())
    (folder / "provenance.json").write_text(json.dumps(record | {"commit": "0123456789abcdef+", "device": "abacus"}))
    found = reproduce("kl", runs=runs, out=tmp_path)
    assert (found["records"][0]["commit"], found["records"][0]["device"]) == ("0123456789+", "abacus")
    assert found["devices"] == ["abacus"]
    (folder / "provenance.json").write_text(json.dumps(record | {"commit": None, "device": 5}))
    found = reproduce("kl", runs=runs, out=tmp_path)
    assert not {"commit", "device"} & set(found["records"][0]) and found["devices"] == []


def test_choices_are_said_to_be_those_of_the_papers_sizes():
    saved = json.loads(KL.read_text())
    assert judged(saved)["choices"] == list(CATALOGUE["kl"].choices)
    small = judged(saved | {"scale": "cpu"})
    again = judged(json.loads(as_text(small)))
    assert small["choices"] == again["choices"] == [f"at the papers' sizes: {one}" for one in CATALOGUE["kl"].choices]


@pytest.mark.filterwarnings("default")
def test_without_matplotlib_numbers_and_page_are_written(runs, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["reproduce", "kl", "--runs", str(runs), "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().err.endswith("warning: no figure is drawn: pip install matplotlib\n")
    assert {path.name for path in tmp_path.iterdir()} == {"kl.json", "report.json", "report.html"}
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["claims"] and "pictures" not in report
    assert [one["name"] for one in report["files"]] == ["kl.json"]
