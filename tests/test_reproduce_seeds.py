"""Figures over several seeds: how many the papers' scale has, what is said of them, and how calls are joined."""

import importlib.util
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bayesin.experiments.campaign import everything
from bayesin.reproduce import CATALOGUE, write_reproduction
from bayesin.reproduce.plane import judge as judge_plane
from bayesin.reproduce.spread import judge_pruning, judge_stds
from bayesin.reproduce.table1 import PAPER, table
from bayesin.reproduce.table1 import judge as judge_table
from bayesin.reproduce.timings import judge as judge_timings
from bayesin.reproduce.transpositions import judge_dynamics

JOIN = Path(__file__).resolve().parents[1] / "results" / "join.py"


def done(kind, numbers, **settings):
    return {"state": "done", "settings": {"kind": kind} | settings, "numbers": numbers}


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_papers_scale_has_enough_seeds(name):
    tasks = CATALOGUE[name].tasks("paper")
    paired = [task for task in tasks if task.kind in ("pair", "timing", "plane")]
    counts = Counter(replace(task, first=0, second=0) for task in paired)
    assert all(count >= (5 if task.config.model == "mlp" else 3) for task, count in counts.items())
    seeds = {task.key for task in tasks if task.kind in ("table1", "spread", "study")}
    assert name not in ("table1", "stds", "pruning") or len(seeds) == 3
    assert name != "dynamics" or len(seeds) == 5


def test_seeds_have_runs_of_their_own():
    tables = CATALOGUE["table1"].tasks("paper")
    needs = [{need.name for need in task.needs} for task in tables]
    assert all(not one & other for i, one in enumerate(needs) for other in needs[:i])


def columns(agreement, candidates=()):
    """A table whose columns agree as said; candidates are (name, agreement, loss of training labels)."""
    both = {"total_variation": 0.1, "accuracy": 0.96, "mean_accuracy": 0.9}
    found = {name: {"agreement": agreement} | both for name in PAPER}
    for name, agrees, loss in candidates:
        found[name] = {"agreement": agrees, "training_nll": {"1": loss, "0.5": loss + 1}} | both
    return {"columns": found}


FIRST, SECOND = "hmc weights/mean diagonal shrunk", "hmc weights/mean lowrank shrunk"


def test_one_gaussian_is_chosen_for_all_seeds_by_training_labels_alone():
    """Each seed prefers another; the average loss decides, though the other agrees better on the test set."""
    seeds = [
        columns(0.5, [(FIRST, 0.99, 0.1), (SECOND, 0.90, 0.2)]),
        columns(0.5, [(FIRST, 0.99, 0.9), (SECOND, 0.98, 0.3)]),
    ]
    found = judge_table([done("table1", one) for one in seeds])
    (chosen,) = (one for one in found if "ours" in one.claim)
    assert "low rank" in chosen.claim and "diagonal" not in chosen.claim
    assert "agreement 0.9400 ± 0.0566 (2)" in chosen.ours and chosen.verdict == "partly"


def test_a_candidate_that_a_seed_lacks_is_not_chosen():
    seeds = [columns(0.5, [(FIRST, 0.99, 0.1), (SECOND, 0.9, 0.2)]), columns(0.5, [(SECOND, 0.9, 0.2)])]
    del seeds[1]["columns"][SECOND]["training_nll"]
    found = judge_table([done("table1", one) for one in seeds])
    assert not [one for one in found if "ours" in one.claim]


def test_a_damaged_table_does_not_hide_the_other_seeds(tmp_path):
    tables = [columns(0.9), columns(0.5)]
    del tables[1]["columns"]["vi"]
    tables[0]["columns"]["hmc"]["total_variation"] = None  # what JSON has for a number that is none
    names = ("name", "title", "error")
    records = [done("table1", one) | dict.fromkeys(names, "a table") | {"seconds": 1.0} for one in tables]
    head = {"format": "bayesin-reproduction", "version": 1, "name": "table1", "scale": "smoke", "devices": []}
    found = write_reproduction(
        head | {"provenance": {}, "compute_seconds": 0.0, "written": "", "records": records}, tmp_path
    )
    verdicts = {one["claim"]: one["ours"] for one in found["findings"]}
    assert "agreement 0.9000 (1)" in verdicts["mean-field VI agrees with HMC"]
    assert verdicts["every task was done"] == "1 of 2 were not"
    assert "'vi'" in found["findings"][-1]["reason"]
    assert next(row for row in table(found["records"]) if row[0] == "HMC samples")[2] == "–"


def test_cells_of_the_table_are_means_over_seeds():
    rows = table([done("table1", columns(agreement)) for agreement in (0.9, 0.94)])
    cells = next(row for row in rows if row[0] == "VI")
    assert cells[1] == "0.9200 ± 0.0283 (0.9885)"
    assert cells[3] == "96.00 ± 0.00 (98.11)" and cells[-1] == "–"


def test_stds_and_pruning_say_the_spread_of_seeds():
    def seed(after, shift):
        mean = {"hmc before": 1.0, "hmc after": after, "ensemble before": 0.1, "ensemble after": 0.05}
        kept = {"mean by hmc": 0.80, "mean by ensemble": 0.20, "mean by vi": 0.95, "last by hmc": 0.60}
        accuracy = {f"ensemble {name}": [0.98, value + shift] for name, value in kept.items()}
        accuracy["ensemble last by hmc"][0] = 0.97
        return done("spread", {"stds": {"mean": mean}, "pruning": {"fractions": [1.0, 0.2], "accuracy": accuracy}})

    records = [seed(0.9, 0.01), seed(1.0, -0.01)]
    hmc, ensemble = judge_stds(records)
    assert hmc.ours == "mean std 1.0000 ± 0.0000 (2) → 0.9500 ± 0.0707 (2)" and hmc.verdict == "confirmed"
    assert ensemble.verdict == "confirmed"
    (pruning,) = judge_pruning(records)
    assert pruning.ours == (
        "ensemble mean with 20% of its weights: 80.00 ± 1.41 (2) % by HMC's stds, 20.00 ± 1.41 (2) by its own, "
        "95.00 ± 1.41 (2) by VI's, 98.00 ± 0.00 (2) with all; a single member 60.00 ± 1.41 (2), "
        "97.00 ± 0.00 (2) with all"
    )
    assert pruning.verdict == "partly"
    assert judge_stds([]) == judge_pruning([]) == []


def test_gaussians_take_longer_only_where_they_do_in_every_pair_of_the_widest():
    def timing(width, ratio, first):
        numbers = {"points": {"seconds": 1.0}, "Gaussians": {"seconds": ratio}}
        return done("timing", numbers, config={"model": {"name": "mlp", "width": width}}, first=first)

    records = [timing(64, 0.1, 0), timing(128, 1.5, 0), timing(128, 1.2, 1)]
    assert judge_timings(records)[1].verdict == "confirmed"
    assert "MLP 1.35 ± 0.21 (2) times" in judge_timings(records)[1].ours
    assert judge_timings([*records, timing(128, 1.0, 2)])[1].verdict == "not confirmed"


@pytest.mark.parametrize("last, verdict", [(-0.9, "partly"), (-0.01, "confirmed")])
def test_every_pair_must_lie_on_a_ridge(last, verdict):
    """Corners (0, 0), (2, 0) and (0, 2): the middles are grid points (1, 0) and (0, 1)."""

    def landscape(ridge):
        values = np.array([[0.0, -1.0, 0.0], [ridge, -1.0, -1.0], [0.0, -1.0, -1.0]])
        grid = {"u": [0, 1, 2], "v": [0, 1, 2], "corners": [[0, 0], [2, 0], [0, 2]]}
        examples = {"examples": 1, "training_examples": 1}
        return done("plane", grid | examples | {"log_likelihood": values.tolist(), "log_prior": np.zeros((3, 3))})

    found = judge_plane([landscape(-0.01), landscape(last)])
    assert [one.verdict for one in found] == [verdict, verdict]
    assert "half-way to the second it changes by -1.000 ± 0.000 (2) nats per example" in found[0].ours


def test_dynamics_are_judged_by_the_worst_pair():
    def pair(matched):
        return done(
            "study", {"naive_barrier": {"test": [0.5, 0.4]}, "matched_barrier": {"test": [matched, 0.01]}}
        ) | {"settings": {"kind": "study", "which": "dynamics"}}

    assert judge_dynamics([pair(0.01), pair(0.04)])[0].verdict == "confirmed"
    assert judge_dynamics([pair(0.01), pair(0.06)])[0].verdict == "partly"


def test_joined_calls_keep_what_was_measured_and_where():
    found = importlib.util.spec_from_file_location("join", JOIN)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)

    def result(commit, remarks, **states):
        records = [{"name": name, "state": state, "numbers": commit} for name, state in states.items()]
        head = {"name": "it", "scale": "paper", "written": commit, "devices": ["a GPU"], "compute_seconds": 10.0}
        return head | {"provenance": {"commit": commit}, "records": records} | remarks

    old = result("0123456789abcdef", {"remarks": ["said"]}, kept="done", again="done", gone="done", open="failed")
    new = result("fedcba9876543210", {}, kept="left", again="done", open="left")
    joined = module.join(old, new)
    assert [(one["name"], one["state"], one["numbers"][:3]) for one in joined["records"]] == [
        ("kept", "done", "012"),
        ("again", "done", "fed"),
        ("open", "left", "fed"),
    ]
    assert joined["records"][0]["commit"] == "0123456789" and joined["records"][0]["device"] == "a GPU"
    assert joined["remarks"] == ["said"] and joined["compute_seconds"] == 20.0
    alone = module.join(old, result("f", {}, kept="done", again="done"))
    assert alone["compute_seconds"] == 10.0
    for wrong in (joined, new | {"scale": "cpu"}):  # the same call again, and one of another size
        with pytest.raises(SystemExit):
            module.join(joined, wrong)


def test_titles_tell_tasks_apart():
    for name, chosen in CATALOGUE.items():
        titles = Counter(task.title for task in everything(chosen.tasks("paper")))
        assert max(titles.values()) == 1, (name, titles.most_common(1))
