"""The Ray engine on a real cluster of two nodes on this machine, with a worker killed in the middle."""

import os
import re
import signal
import threading
import time

import pytest

from bayesin.lab.campaign import neighbours, run_local
from bayesin.lab.papers.rossi2023.timings import Timing
from bayesin.lab.runs import RunConfig, make_training

ray = pytest.importorskip("ray", reason="Ray is not installed (pip install 'bayesin[ray]')")

from bayesin.lab.campaign import run_ray  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def cluster(monkeypatch):
    """Two nodes of one processor each."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 80 << 20})
    made.add_node(num_cpus=1, object_store_memory=80 << 20)
    ray.init(address=made.address, log_to_driver=False, logging_level="error")
    yield made
    ray.shutdown()
    made.shutdown()


def run_of(variance: float) -> RunConfig:
    fields = {"members": 2, "epochs": 30, "batch": 100, "prior_variance": variance, "checkpoint_epochs": 10}
    return RunConfig("digits", "mlp", make_training("vi", fields), width=32, depth=2, test_samples=4)


def kill_a_worker(runs, killed: list[int]) -> None:
    """Waits until a worker holds a training run, then kills that process."""
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline and not killed:
        for lock in runs.glob("digits-*/.lock"):
            try:
                found = re.match(r"process (\d+)", lock.read_text())
            except OSError:
                continue
            # A first checkpoint shows that it is in the middle.
            if found and any((lock.parent / "checkpoints").glob("*")):
                os.kill(int(found[1]), signal.SIGKILL)
                killed.append(int(found[1]))
                return
        time.sleep(0.05)


def test_a_campaign_on_two_nodes_survives_a_killed_worker_and_equals_the_local_one(tmp_path, cluster):
    assert len([node for node in ray.nodes() if node["Alive"]]) == 2
    tasks = [pair for variance in (0.01, 0.1) for pair in neighbours(run_of(variance), samples=4, taus=3)]
    timings = [Timing(pair.config) for pair in tasks]  # these want the machine to themselves
    killed: list[int] = []
    killer = threading.Thread(target=kill_a_worker, args=(tmp_path / "ray", killed), daemon=True)
    killer.start()
    events = []
    found = run_ray([*timings, *tasks], tmp_path / "ray", on_event=events.append)
    killer.join(5)
    assert killed, "no worker was caught in the middle of a run"
    assert {one.state for one in found.values()} == {"done"}
    assert events[-1].done == events[-1].tasks == len(found)
    times = {name: (one.provenance["started"], one.provenance["ended"]) for name, one in found.items()}
    spans = [times.pop(timing.name) for timing in timings]
    assert max(ended for _, ended in times.values()) <= spans[0][0] and spans[0][1] <= spans[1][0]
    local = run_local(tasks, tmp_path / "local")
    for name, one in local.items():
        assert _without_times(found[name].numbers) == _without_times(one.numbers)
    again = run_ray([*timings, *tasks], tmp_path / "ray")  # nothing is left to do
    assert {name: one.provenance for name, one in again.items()} == {
        name: one.provenance for name, one in found.items()
    }


def _without_times(numbers):
    return {name: value for name, value in numbers.items() if "seconds" not in name}
