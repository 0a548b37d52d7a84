"""Long chains in parts: each goes on from the last draws of the one before, to the bit, without its other draws."""

import dataclasses
import shutil

import numpy as np
import pytest

from bayesin.errors import ArtifactError
from bayesin.inference import HMC
from bayesin.lab.campaign import TaskContext, run_local
from bayesin.lab.papers.xiao2023.long_chains import LAST, chain_parts, draws_folder, joined_draws
from bayesin.lab.runs import RunConfig
from bayesin.store import load_posterior

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


def test_parts_are_different_tasks_and_know_their_predecessor():
    parts = chain_parts(RUN, 3)
    assert len({part.name for part in parts}) == 3
    assert parts[2].needs == (parts[1],) and not parts[0].needs
    other = dataclasses.replace(RUN, training=dataclasses.replace(HMC_PART, step_size=1e-3))
    assert not {part.name for part in parts} & {part.name for part in chain_parts(other, 3)}
