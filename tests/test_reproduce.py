"""Reproductions: every one has tasks at every scale, judges and draws what was saved, and says what is missing."""

import dataclasses
import json
import os
from pathlib import Path

import numpy as np
import pytest

from bayesin.cli.main import main
from bayesin.errors import ArtifactError, BayesinError, ConfigError
from bayesin.experiments.campaign import everything
from bayesin.reproduce import CATALOGUE, SCALES, judged, read_reproduction, reproduce, write_reproduction
from bayesin.reproduce.grids import judge_width
from bayesin.reproduce.kl import best, costs
from bayesin.reproduce.words import (
    rank_correlation,
    spread,
    verdict_of_nearly_zero,
    verdict_of_no_rise,
    verdict_of_rise,
    verdict_of_zero,
)

RESULTS = Path(__file__).resolve().parents[1] / "results"
LISTED = (
    "barriers width prior temperature kl timings cifar100 plane regime table1 transpositions dynamics stds pruning"
)


def test_the_catalogue_has_every_figure_of_the_papers():
    assert set(LISTED.split()) <= set(CATALOGUE)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", CATALOGUE)
def test_every_scale_has_tasks_and_a_stated_cost(name, scale):
    chosen = CATALOGUE[name]
    tasks = everything(chosen.tasks(scale))
    assert tasks and chosen.minutes[scale] > 0 and chosen.claim and chosen.source
    assert len({task.name for task in tasks}) == len(tasks)
    assert all(json.loads(json.dumps(task.to_json()))["kind"] == task.kind for task in tasks)
    data = {task.config.data for task in tasks if hasattr(task, "config")}
    assert data <= {"digits"} if scale == "smoke" else "digits" not in data


@pytest.mark.parametrize("name", CATALOGUE)
def test_nothing_measured_is_no_verdict(name, tmp_path):
    """A figure without a single number is drawn and judged as such: no crash, no claim."""
    tasks = everything(CATALOGUE[name].tasks("smoke"))
    open_ones = [
        {"name": t.name, "title": t.title, "settings": t.to_json(), "state": "failed", "error": "it diverged"}
        | {"seconds": None, "numbers": None}
        for t in tasks
    ]
    found = write_reproduction(_result(name, open_ones), tmp_path)
    assert {one["verdict"] for one in found["findings"]} <= {"not measured"}
    assert "it diverged" in json.dumps(found["findings"])
    assert (tmp_path / f"{name}.svg").read_text().count("failed:") == 1
    assert "it diverged" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("path", sorted((RESULTS / "numbers").glob("*.json")), ids=lambda path: path.stem)
def test_committed_verdicts_follow_from_the_committed_numbers(path):
    saved = read_reproduction(path)
    again = judged(saved)
    assert again["findings"] == saved["findings"]
    assert saved["provenance"]["commit"] and saved["devices"]
    assert saved["scale"] == "paper"
    page = (RESULTS / "README.md").read_text()
    for one in saved["findings"]:  # the page says the same, word for word
        row = " | ".join(one[column].replace("|", "∣") for column in ("claim", "paper", "ours", "verdict", "reason"))
        assert f"| {row} |" in page


def test_the_first_figure_from_nothing(tmp_path):
    found = reproduce("kl", scale="smoke", runs=tmp_path / "runs", out=tmp_path / "out")
    verdicts = [one["verdict"] for one in found["findings"]]
    assert verdicts == ["confirmed", "not confirmed", "confirmed"]
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"kl.json", "kl.svg", "kl.pdf", "kl.png", "report.json", "report.html"} <= written
    before = (tmp_path / "out" / "kl.svg").read_bytes()
    again = reproduce("kl", scale="smoke", runs=tmp_path / "runs", out=tmp_path / "out")
    assert again["records"] == found["records"] and (tmp_path / "out" / "kl.svg").read_bytes() == before


@pytest.fixture(scope="session")
def shared_runs(tmp_path_factory):
    """One folder of runs for all processes of the test session: figures share them, and lock what they work on."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "smoke-runs"


@pytest.mark.slow
@pytest.mark.parametrize("name", CATALOGUE)
def test_every_figure_from_nothing(name, shared_runs, tmp_path, capsys):
    assert main(["reproduce", name, "--runs", str(shared_runs), "--out", str(tmp_path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["failed"] == 0 and shown["findings"]
    open_ones = [one for one in shown["findings"] if one["verdict"] == "not measured"]
    assert not open_ones or name == "presets"  # digits have no accuracy to compare with
    assert main(["status", str(shared_runs), "--json"]) == 0
    campaigns = {one["name"]: one for one in json.loads(capsys.readouterr().out)["campaigns"]}
    campaign = campaigns[f"{name}-smoke"]
    assert campaign["done"] == len(everything(CATALOGUE[name].tasks("smoke"))) and campaign["left"] == 0


def test_the_costs_of_the_toy_are_those_of_the_closed_forms():
    """The table of the appendix: both means (1, 1), variances (0.1, 1) and mirrored."""
    mean, std = np.ones((2, 1)), np.sqrt([[0.1], [1.0]])
    identity, swapped = costs(mean, std, mean, std[::-1]), costs(mean, std, mean, std)
    assert identity["kl"] == pytest.approx(0.5 * (10.1 - 2)) and swapped["kl"] == pytest.approx(0, abs=1e-12)
    assert identity["wasserstein"] == pytest.approx(2 * (1 - np.sqrt(0.1)) ** 2) and swapped["wasserstein"] == 0
    assert identity["truncated"] == swapped["truncated"] == 0
    assert best(mean, std, mean, std[::-1]) == {"kl": (1, 0), "truncated": (0, 1), "wasserstein": (1, 0)}


def test_kl_of_the_toy_against_numerical_integration():
    rng = np.random.default_rng(0)
    m0, m1, s0, s1 = rng.normal(), rng.normal(), 0.7, 1.3
    x = np.linspace(m1 - 12 * s1, m1 + 12 * s1, 200_001)
    q1 = np.exp(-0.5 * ((x - m1) / s1) ** 2) / (s1 * np.sqrt(2 * np.pi))
    logs = -0.5 * ((x - m1) / s1) ** 2 - np.log(s1) + 0.5 * ((x - m0) / s0) ** 2 + np.log(s0)
    one = lambda value: np.array([[value]])  # noqa: E731
    assert costs(one(m0), one(s0), one(m1), one(s1))["kl"] == pytest.approx(
        float(np.trapezoid(q1 * logs, x)), rel=1e-6
    )


def test_words_for_barriers():
    assert verdict_of_zero([1.0], [0.04]) == ("confirmed", "4.0% of the barrier is left")
    assert verdict_of_zero([2.0], [0.06])[0] == "partly"  # a small share of a high barrier is not zero
    assert verdict_of_zero([1.0], [0.6])[0] == "not confirmed"
    assert verdict_of_zero([], [])[0] == "not measured"
    assert verdict_of_nearly_zero([2.0], [0.2])[0] == "confirmed"
    assert verdict_of_zero([0.05], [0.0])[0] == "not measured"  # nothing was there to remove
    assert verdict_of_nearly_zero([0.05], [0.0])[0] == "not measured"
    assert spread([]) == "–" and spread([0.5]) == "0.500 (1)"
    limits = {0.8: ("confirmed", "not confirmed"), 0.5: ("partly", "partly"), 0.3: ("not confirmed", "confirmed")}
    assert limits == {value: (verdict_of_rise(value), verdict_of_no_rise(value)) for value in limits}
    assert rank_correlation([1, 2, 3, 4], [1, 1, 2, 2]) == pytest.approx(np.sqrt(0.8))  # equal values share a rank
    assert np.isnan(rank_correlation([1], [1])) and np.isnan(rank_correlation([1, 2], [3, 3]))


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["reproduce"], "needs a name"),
        (["reproduce", "barier"], "did you mean 'barriers'"),
        (["reproduce", "kl", "--scale", "papr"], "paper"),
        (["reproduce", "--redraw", "missing.json"], "cannot read missing.json"),
        (["status", "nowhere"], "holds no campaign"),
    ],
)
def test_misuse_is_one_line(argv, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        code = main(argv)
    except SystemExit as left:
        code = left.code
    said = capsys.readouterr()
    assert code == 2 and words in said.err + said.out and "Traceback" not in said.err
    assert not list(tmp_path.iterdir())


def test_the_list_shows_claim_cost_and_what_is_done(capsys, tmp_path):
    assert main(["reproduce", "--list", "--runs", str(tmp_path), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["reproductions"]
    assert [one["name"] for one in listed] == [*CATALOGUE]
    assert all(one["done"]["paper"][0] == 0 < one["done"]["paper"][1] for one in listed)


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
        judged(_result("kl", []) | damage)


def test_a_wrong_scale_or_engine_leaves_nothing_behind(tmp_path):
    for wrong in ({"scale": "huge"}, {"engine": "slurm"}):
        with pytest.raises(ConfigError):
            reproduce("kl", runs=tmp_path / "runs", out=tmp_path / "out", **wrong)
    assert not list(tmp_path.iterdir())


def test_prior_and_temperature_grids_train_in_one_program_each():
    from bayesin.experiments.campaign import Train
    from bayesin.experiments.campaign.training import packs

    for name, programs in (("prior", 1), ("temperature", 2), ("regime", 2)):
        runs = [task for task in everything(CATALOGUE[name].tasks("paper")) if isinstance(task, Train)]
        assert len(packs(runs)) == programs


def test_figures_share_their_runs():
    names = {name: {task.name for task in everything(CATALOGUE[name].tasks("paper"))} for name in CATALOGUE}
    assert names["table1"] & names["stds"] and names["stds"] == names["pruning"]
    assert names["width"] & names["barriers"] and names["width"] & names["regime"]
    assert names["width"] & names["conditions"]


def _result(name: str, records: list) -> dict:
    chosen = CATALOGUE[name]
    fields = {field.name: getattr(chosen, field.name) for field in dataclasses.fields(chosen)}
    said = {key: fields[key] for key in ("name", "source", "claim")} | {"choices": list(chosen.choices)}
    head = {"format": "bayesin-reproduction", "version": 1, "scale": "smoke", "devices": [], "provenance": {}}
    return head | said | {"written": "", "compute_seconds": 0.0, "records": records}


@pytest.mark.parametrize("naive, verdict", [(1.5, "confirmed"), (0.02, "not measured")])
def test_a_trend_is_judged_only_where_there_is_a_barrier(naive, verdict):
    """Networks that are hardly trained have none, and tell nothing of width."""

    def pair(width, aligned):
        settings = {"kind": "pair", "config": {"model": {"name": "mlp", "width": width}, "data": {"name": "mnist"}}}
        numbers = {"naive": {"test": {"value": naive / width}}, "aligned": {"test": {"value": aligned}}}
        return {"state": "done", "settings": settings, "numbers": numbers}

    found = judge_width([pair(1, 0.015), pair(2, 0.010), pair(4, 0.005)])
    assert [one.verdict for one in found] == [verdict, verdict]


@pytest.mark.parametrize(
    "naive, aligned, verdict",
    [(1.0, 0.01, "not confirmed"), (1.0, 0.08, "partly"), (1.0, 0.9, "confirmed"), (0.01, 0.01, "not measured")],
)
def test_the_failure_on_cifar100_is_confirmed_by_a_barrier_that_stays(naive, aligned, verdict):
    settings = {"kind": "pair", "config": {"model": {"name": "mlp", "width": 8}}, "restarts": 1}
    numbers = {"naive": {"test": {"value": naive, "accuracy": [0.3]}}, "aligned": {"test": {"value": aligned}}}
    found = CATALOGUE["cifar100"].judge([{"state": "done", "settings": settings, "numbers": numbers}])
    assert [one.verdict for one in found] == [verdict]


def test_conditions_change_one_setting_at_a_time():
    """The runs of one width and of another setting differ from the common one in that setting alone."""
    runs = {task.config for task in CATALOGUE["conditions"].tasks("paper")}
    common = next(run for run in runs if run.width == 32 and run.test_samples == 128)
    plain = [dataclasses.replace(run, test_samples=common.test_samples) for run in runs - {common}]
    for run in plain:
        told = {**vars(run), **vars(run.training)}
        base = {**vars(common), **vars(common.training)}
        changed = {name for name in told if told[name] != base[name]} - {"training"}
        assert len(changed) == 1, changed
    assert len(plain) == 8
