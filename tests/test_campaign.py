"""Campaigns: every task once, whatever happened before; failures kept; the state readable at any time."""

import dataclasses
import json
import shutil
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import bayesin
from bayesin.data import load
from bayesin.errors import ArtifactError, ConfigError, TrainingError
from bayesin.lab.campaign import (
    PairTask,
    Task,
    TaskContext,
    TrainTask,
    ledgers,
    neighbours,
    packs,
    perform,
    read_campaign,
    run_local,
    task_status,
    topological_order,
    write_ledger,
)
from bayesin.lab.campaign.ray_engine import _work, run_ray
from bayesin.lab.papers.rossi2023.timings import Timing
from bayesin.lab.runs import RunConfig, make_training, run
from bayesin.store import load_posterior


def small(**changes) -> RunConfig:
    fields = {"members": 2, "epochs": 3, "batch": 100} | changes
    return RunConfig("digits", "mlp", make_training("vi", fields), width=8, depth=2, limit=300, test_samples=4)


@dataclass(frozen=True)
class Note(Task):
    """Appends a line to a file each time it is really done."""

    text: str
    after: tuple[Task, ...] = ()
    fails: bool = False

    kind = "note"

    @property
    def title(self):
        return f"note {self.text}"

    @property
    def needs(self):
        return self.after

    def perform(self, folder, context):
        with open(context.runs / "log", "a") as log:
            log.write(f"{self.text}\n")
        context.tell("working")
        if self.fails:
            raise TrainingError("it diverged")
        return {"text": self.text, "bad": float("nan")}


@dataclass(frozen=True)
class Greedy(Note):
    """Wants more memory than there is."""

    kind = "greedy"

    def perform(self, folder, context):
        super().perform(folder, context)
        raise RuntimeError("RESOURCE_EXHAUSTED: out of memory\nlist of buffers")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return run(small(), tmp_path_factory.mktemp("trained") / small().name).folder


def campaigns(runs):
    return [read_campaign(ledger) for ledger in ledgers(runs)]


def logged(runs: Path) -> list[str]:
    return (runs / "log").read_text().split() if (runs / "log").exists() else []


def test_names_come_from_what_decides_the_result():
    assert Note("a").name == Note("a").name != Note("b").name
    assert Note("a", after=(Note("b"),)).name != Note("a").name
    assert TrainTask(small()).name == small().name  # the folder of `bayesin train`
    assert PairTask(small()).name == PairTask(small(checkpoint_minutes=9.0)).name  # saving more often decides nothing
    assert PairTask(small()).name != PairTask(small(epochs=4)).name


def test_needs_come_first_and_once():
    shared = Note("first")
    found = topological_order([Note("left", (shared,)), Note("right", (shared, Note("left", (shared,))))])
    assert [task.text for task in found] == ["first", "left", "right"]


@pytest.mark.parametrize("workers", [0, 3])
def test_every_task_is_done_once_and_again_not_at_all(tmp_path, workers):
    tasks = [Note(str(i), after=(Note("root"),)) for i in range(5)]
    found = run_local(tasks, tmp_path, workers=workers)
    assert sorted(logged(tmp_path)) == ["0", "1", "2", "3", "4", "root"]
    assert {one.state for one in found.values()} == {"done"}
    assert found[tasks[0].name].numbers == {"text": "0", "bad": None}  # JSON has no NaN
    run_local(tasks, tmp_path, workers=workers)
    assert len(logged(tmp_path)) == 6


@dataclass(frozen=True)
class Busy(Note):
    """Notes when it begins and when it ends."""

    kind = "busy"

    def perform(self, folder, context):
        super().perform(folder, context)
        time.sleep(0.1)
        return super().perform(folder, context)


@dataclass(frozen=True)
class Quiet(Busy):
    kind = "quiet"
    alone = True


def test_what_measures_time_has_nothing_beside_it(tmp_path, trained):
    shutil.copytree(trained, tmp_path / trained.name)
    ready = (TrainTask(small()),)
    tasks = [kind(f"{kind.kind}{i}", ready) for kind in (Quiet, Busy) for i in range(2)]
    run_local(tasks, tmp_path, workers=4)
    lines = logged(tmp_path)
    assert sorted(lines[:4]) == ["busy0", "busy0", "busy1", "busy1"]
    assert lines[4:] == ["quiet0", "quiet0", "quiet1", "quiet1"]
    assert Timing.alone


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (Note("bad", fails=True), "it diverged"),
        (Greedy("bad"), "RuntimeError: RESOURCE_EXHAUSTED: out of memory"),  # not ours, and in a line
    ],
)
def test_a_failure_is_kept_passed_on_and_tried_again(tmp_path, bad, reason):
    child = Note("child", after=(bad,))
    found = run_local([Note("before"), child, Note("after")], tmp_path)
    assert [status.state for status in found.values()] == ["done", "failed", "failed", "done"]
    assert found[bad.name].error == reason and reason in found[child.name].error
    assert logged(tmp_path) == ["before", "bad", "after"]
    assert _work(bad, str(tmp_path), None) == "failed"  # what a node of a cluster does
    assert logged(tmp_path).count("bad") == 2


@pytest.mark.parametrize("count", [1, 2])  # alone, and packed
def test_missing_data_fails_its_runs_by_name_until_it_is_there(tmp_path, count):
    path = tmp_path / "toy.npz"
    configs = [dataclasses.replace(small(prior_variance=v), data=str(path)) for v in (0.01, 0.1)[:count]]
    pair = PairTask(configs[0], samples=2, taus=3)
    tasks = [TrainTask(config) for config in configs] + [pair, Note("good")]
    write_ledger("toys", tasks, tmp_path)
    found = run_local(tasks, tmp_path)
    errors = [found[config.name].error or "" for config in configs]
    assert all(found[config.name].state == "failed" for config in configs) and all(str(path) in one for one in errors)
    assert found[pair.name].error == f"needs {TrainTask(configs[0]).title}, which failed: {errors[0]}"
    assert found[Note("good").name].state == "done"
    assert campaigns(tmp_path)[0].counts["failed"] == count + 1
    digits = load("digits", None, 300)
    np.savez(path, **{name: getattr(digits, name) for name in ("x_train", "y_train", "x_test", "y_test")})
    assert {one.state for one in run_local(tasks, tmp_path).values()} == {"done"}


def test_what_is_too_much_together_is_trained_alone(tmp_path, monkeypatch):
    def too_much(key, model, data, settings, **options):
        raise RuntimeError("RESOURCE_EXHAUSTED")

    monkeypatch.setattr(sys.modules[run.__module__], "fit_vi_grid", too_much)
    found = run_local([TrainTask(small(prior_variance=v)) for v in (0.01, 0.1)], tmp_path)
    assert [one.state for one in found.values()] == ["done", "done"]
    assert not list(tmp_path.glob(".together-*"))


def test_what_is_done_stays_done_whatever_became_of_its_needs(tmp_path):
    parent = Note("parent")
    child = Note("child", after=(parent,))
    run_local([child], tmp_path)
    (tmp_path / parent.name / "numbers.json").unlink()
    assert perform(child, TaskContext(tmp_path)).state == "done"
    assert task_status(tmp_path / child.name).state == "done" and logged(tmp_path) == ["parent", "child"]


def test_an_interrupt_stops_and_the_next_call_goes_on(tmp_path):
    def stop(event):
        if event.title == "note 2" and event.note:
            raise KeyboardInterrupt

    tasks = [Note(str(i)) for i in range(4)]
    with pytest.raises(KeyboardInterrupt):
        run_local(tasks, tmp_path, on_event=stop)
    assert [task_status(tmp_path / task.name).state for task in tasks] == ["done", "done", "interrupted", "left"]
    run_local(tasks, tmp_path)
    assert logged(tmp_path) == ["0", "1", "2", "2", "3"]


def test_no_task_begins_after_the_time_is_up(tmp_path):
    found = run_local([Note("late")], tmp_path, seconds=-1)
    assert [one.state for one in found.values()] == ["left"] and not logged(tmp_path)


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"status": "done"}'])
def test_a_damaged_record_is_work_not_done(tmp_path, damage):
    task = Note("again")
    run_local([task], tmp_path)
    (tmp_path / task.name / "provenance.json").write_bytes(damage)
    if damage == b'{"status": "done"}':
        (tmp_path / task.name / "numbers.json").write_bytes(b"{")
    assert task_status(tmp_path / task.name).state in ("left", "interrupted")
    run_local([task], tmp_path)
    assert logged(tmp_path) == ["again", "again"]


@pytest.mark.parametrize(
    ("status", "name", "damage"),
    [
        ("interrupted", "config.json", b""),
        ("done", "provenance.json", b"{"),
        ("done", "results.json", b"[]"),
        ("done", "posterior-1.safetensors", None),  # gone
    ],
)
def test_a_damaged_training_run_is_done_again(trained, tmp_path, status, name, damage):
    folder = shutil.copytree(trained, tmp_path / trained.name)
    record = json.loads((folder / "provenance.json").read_text())
    (folder / "provenance.json").write_text(json.dumps(record | {"status": status}))
    (folder / name).unlink()
    if damage is not None:
        (folder / name).write_bytes(damage)
    assert task_status(folder).state != "done"
    assert [one.state for one in run_local([TrainTask(small())], tmp_path).values()] == ["done"]
    for file in ("config.json", "results.json", "posterior-0.safetensors", "posterior-1.safetensors"):
        assert (folder / file).read_bytes() == (trained / file).read_bytes()


def test_ten_at_once_do_each_task_exactly_once(tmp_path):
    # The lock belongs to an open file, so threads stand for processes; `make torture` uses processes.
    tasks = [Note(str(i)) for i in range(20)]
    with ThreadPoolExecutor(10) as pool:
        list(pool.map(lambda _: run_local(tasks, tmp_path), range(10)))
    assert sorted(logged(tmp_path), key=int) == [str(i) for i in range(20)]
    assert not list(tmp_path.glob("*/.lock")) and not list(tmp_path.rglob(".tmp-*"))


def test_runs_of_one_shape_are_packed():
    tasks = [TrainTask(small(prior_variance=v, temperature=t)) for v in (0.01, 0.1) for t in (0.5, 1.0)]
    other = [TrainTask(small(epochs=4)), TrainTask(small(temperature_meaning="posterior"))]
    assert packs([*tasks, *other]) == [tasks, other[:1], other[1:]]


def test_what_runs_took_together_is_counted_once(tmp_path):
    """That they have the bits of each alone is in test_runs.py."""
    statuses = run_local([TrainTask(small(prior_variance=v)) for v in (0.01, 0.1)], tmp_path).values()
    assert [status.provenance["together"] for status in statuses] == [2, 2]
    whole = {status.provenance["train_seconds"] for status in statuses}
    assert sum(status.seconds for status in statuses) == pytest.approx(*whole)
    assert not list(tmp_path.glob(".together-*"))


def test_one_that_diverges_does_not_take_its_pack_along(tmp_path):
    good, bad = small(), small(learning_rate=1e6)
    found = run_local(neighbours(good, samples=2, taus=3) + neighbours(bad, samples=2, taus=3), tmp_path)
    assert found[good.name].state == "done" and found[bad.name].state == "failed"
    assert found[PairTask(good, samples=2, taus=3).name].state == "done"
    assert "needs" in (found[PairTask(bad, samples=2, taus=3).name].error or "")


def test_a_pair_measures_what_the_library_measures(tmp_path):
    import jax

    task = PairTask(small(), samples=4, taus=3, train_samples=2)
    found = run_local([task], tmp_path)[task.name]
    assert found.error is None
    numbers = found.numbers
    context = TaskContext(tmp_path)
    data, model = context.prepared(task.config)
    first, second = (load_posterior(tmp_path / task.config.name / f"posterior-{i}.safetensors") for i in (0, 1))
    key = jax.random.fold_in(jax.random.key(0), 1)
    naive = bayesin.barrier(
        bayesin.geodesic(first, second), model.apply, (data.x_test, data.y_test), key=key, samples=4, taus=3
    )
    assert numbers["naive"]["test"]["nll"] == naive.nll.tolist()
    assert set(numbers["aligned"]) == {"test", "train"} and set(numbers["rescaled"]) == {"test"}
    whole = data.y_train.size == context.prepared(dataclasses.replace(task.config, limit=None))[0].y_train.size
    for kind in ("naive", "aligned", "rescaled"):  # a temperature is fitted on what the run has not seen
        assert "calibrated_value" in numbers[kind]["test"]
        assert ("held_out_value" in numbers[kind]["test"]) != whole
        assert numbers[kind]["test"]["nll"][0] == numbers["naive"]["test"]["nll"][0]  # the end they share
    assert numbers["w2_squared"][1] <= numbers["w2_squared"][0]


def test_a_task_of_a_users_own_as_the_guide_has_it(tmp_path, trained):
    from bayesin.lab.campaign import RunTask

    text = (Path(__file__).parents[1] / "docs" / "extending.md").read_text().split("## A task of a campaign")[1]
    code = text.split("```python\n")[1].split("```")[0].rsplit("run_local", 1)[0]
    names = {
        "dataclass": dataclass,
        "RunTask": RunTask,
        "TrainTask": TrainTask,
        "wasserstein": bayesin.paths.wasserstein,
    }
    names |= {"Path": Path, "Any": object, "TaskContext": TaskContext}
    exec(code, names)
    shutil.copytree(trained, tmp_path / trained.name)
    task = names["MeanDistance"](small())
    assert run_local([task], tmp_path)[task.name].numbers["w2"] > 0


def test_status_tells_done_failed_and_left_and_the_time_left(tmp_path):
    tasks = [Note("a"), Note("b", fails=True), Note("c")]
    write_ledger("notes", tasks, tmp_path)
    (empty,) = campaigns(tmp_path)
    assert empty.counts["left"] == 3 and empty.seconds_left is None
    run_local(tasks[:2], tmp_path)
    (found,) = campaigns(tmp_path)
    assert found.counts == {"done": 1, "running": 0, "failed": 1, "interrupted": 0, "left": 1}
    done = task_status(tmp_path / tasks[0].name)
    assert found.seconds_left == done.seconds  # as long as what was done of its kind


def test_status_sees_a_task_that_runs(tmp_path):
    inside, go_on = threading.Event(), threading.Event()

    def wait(event):
        if event.note:
            inside.set()
            go_on.wait(30)

    tasks = [Note("slow")]
    write_ledger("notes", tasks, tmp_path)
    thread = threading.Thread(target=run_local, args=(tasks, tmp_path), kwargs={"on_event": wait})
    thread.start()
    assert inside.wait(30)
    assert campaigns(tmp_path)[0].counts["running"] == 1
    go_on.set()
    thread.join(30)
    assert campaigns(tmp_path)[0].counts["done"] == 1


LEDGER = '{"format": "bayesin-campaign", "version": 1, "name": "x", "tasks": [{"name": %s, "kind": "", "title": ""}]}'


@pytest.mark.parametrize(
    "text", ["[]", "{}", "{", '{"format": "bayesin-campaign", "version": 2}', LEDGER % '"../up"']
)
def test_a_ledger_of_something_else_is_refused(tmp_path, text):
    (tmp_path / "campaigns").mkdir()
    (tmp_path / "campaigns" / "x.json").write_text(text)
    with pytest.raises(ArtifactError):
        campaigns(tmp_path)


def test_the_engine_for_clusters_says_when_ray_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match="pip install"):
        run_ray([Note("a")], tmp_path)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:port"])
def test_a_cluster_that_is_not_there_is_missed_at_once_and_only_where_work_is_left(tmp_path, address):
    pytest.importorskip("ray", reason="Ray is not installed (pip install 'bayesin[ray]')")
    began = time.monotonic()
    with pytest.raises(ConfigError, match=f"no Ray cluster at {address}.*ray start"):
        run_ray([Note("a")], tmp_path, address=address)
    assert time.monotonic() - began < 30
    run_local([Note("a")], tmp_path)
    assert [one.state for one in run_ray([Note("a")], tmp_path, address=address).values()] == ["done"]


def test_perform_waits_for_needs_that_are_not_done(tmp_path):
    found = perform(Note("child", after=(Note("parent"),)), TaskContext(tmp_path))
    assert found.state == "failed" and "is not done" in (found.error or "")
