"""Long chains in parts: each goes on from the last draws of the one before, to the bit, without its other draws."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from bayesin.errors import ArtifactError
from bayesin.files import file_hash
from bayesin.inference import HMC
from bayesin.lab.campaign import TaskContext, run_local
from bayesin.lab.papers.xiao2023.long_chains import LAST, chain_parts, draws_folder, joined_draws
from bayesin.lab.runs import RunConfig
from bayesin.posteriors import Samples
from bayesin.store import load_posterior, save_posterior

HMC_PART = HMC(samples=4, chains=2, burn_in=2, step_size=5e-3, steps=5, probe=4, draws_per_file=2)
RUN = RunConfig(data="digits", model="mlp", width=8, depth=1, normalise="unit", training=HMC_PART)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the chains have not mixed")
def test_a_part_needs_nothing_but_the_last_draws_of_the_one_before(tmp_path):
    first, second = parts = chain_parts(RUN, 2)
    here, there = TaskContext(tmp_path / "here"), TaskContext(tmp_path / "there")
    statuses = run_local(parts, here.runs)
    assert {status.state for status in statuses.values()} == {"done"}
    whole = joined_draws(parts, here)
    assert len(whole) == 2 * 2 * 4

    # carried: the folder of the first part without its draws
    shutil.copytree(here.runs / first.name, there.runs / first.name, ignore=lambda folder, names: {"draws"})
    assert run_local([second], there.runs)[second.name].state == "done"
    bias = [joined_draws((second,), context).params["layers"]["1"]["bias"] for context in (here, there)]
    np.testing.assert_array_equal(*bias)
    with pytest.raises(ArtifactError, match="part 1"):
        joined_draws(parts, there)

    # chain by chain: the draws of the first part, then those of the second, which go on from where it ended
    order = np.asarray(whole.params["layers"]["1"]["bias"]).reshape(2, 2, 4, -1)
    np.testing.assert_array_equal(order[:, 1], bias[0].reshape(2, 4, -1))
    last = load_posterior(here.runs / first.name / LAST).params["layers"]["1"]["bias"]
    np.testing.assert_array_equal(order[:, 0, -1], last)
    assert draws_folder(first, here).is_dir() and not draws_folder(first, there).exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the chains have not mixed")
def test_draws_of_another_part_and_last_draws_that_are_none_are_refused_by_name(tmp_path):
    first, second = parts = chain_parts(RUN, 2)
    whole = TaskContext(tmp_path / "whole")
    run_local(parts, whole.runs)

    def copied(name: str) -> TaskContext:
        return TaskContext(shutil.copytree(whole.runs, tmp_path / name))

    other = copied("draws of the first part twice")
    shutil.rmtree(draws_folder(second, other))
    shutil.copytree(draws_folder(first, other), draws_folder(second, other))
    short = copied("the last file is gone")
    sorted(draws_folder(second, short).glob("draws-*"))[-1].unlink()
    for context in (other, short):
        assert {status.state for status in run_local(parts, context.runs).values()} == {"done"}
        with pytest.raises(ArtifactError, match="part 2' did: a file is missing or another's"):
            joined_draws(parts, context)

    folder = copied("the folder of another part")
    shutil.rmtree(folder.runs / second.name)
    shutil.copytree(folder.runs / first.name, folder.runs / second.name)
    before = {path: path.read_bytes() for path in folder.runs.rglob("*") if path.is_file()}
    status = run_local(parts, folder.runs)[second.name]
    assert status.state == "failed" and "holds another task's results (2 × 4 draws" in str(status.error)
    assert {path: path.read_bytes() for path in folder.runs.rglob("*") if path.is_file()} == before

    for number, params in enumerate(({"w": np.ones(3)}, Samples({"w": np.ones((2, 3))}))):
        planted = copied(f"planted {number}")
        shutil.rmtree(planted.runs / second.name)
        save_posterior(planted.runs / first.name / LAST, params)
        record = planted.runs / first.name / "provenance.json"  # whoever can write a file can write its checksum
        content = json.loads(record.read_text())
        content["files"][LAST] = file_hash(planted.runs / first.name / LAST)
        record.write_text(json.dumps(content))
        status = run_local(parts, planted.runs)[second.name]
        assert status.state == "failed" and "Error" not in str(status.error), status.error


def test_parts_are_different_tasks_and_know_their_predecessor():
    parts = chain_parts(RUN, 3)
    assert len({part.name for part in parts}) == 3
    assert parts[2].needs == (parts[1],) and not parts[0].needs
    other = dataclasses.replace(RUN, training=dataclasses.replace(HMC_PART, step_size=1e-3))
    assert not {part.name for part in parts} & {part.name for part in chain_parts(other, 3)}
