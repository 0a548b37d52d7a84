"""A little of every fault of `make torture`; nothing may be lost. The counts of the long version are in the docs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from torture import files, science
from torture.mutate import mutate
from torture.readers import FIXTURES, READERS, checkpoint

HERE = Path(__file__).parent


@pytest.mark.parametrize("name", READERS)
def test_bad_files_are_refused_by_name(tmp_path, name):
    tally = files.fuzz_one(READERS[name], 60, tmp_path, seed=1)
    assert tally.tries == 60 and not tally.losses


def test_every_flipped_bit_of_a_checked_file_is_noticed(tmp_path):
    assert [tally.losses for tally in files.flips(40, tmp_path)] == [[]] * 8


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # reads that orbax gives up half-way
def test_damaged_checkpoints_go_and_do_not_lie(tmp_path):
    (tally,) = files.checkpoints(30, tmp_path)
    assert tally.tries == 30 and not tally.losses


def test_wrong_science_is_refused_with_the_reason(tmp_path):
    (tally,) = science.refusals(1, tmp_path)
    assert tally.tries > 100 and not tally.losses


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_numbers_at_the_edge_stay_finite_or_say_why_not(tmp_path):
    (tally,) = science.edges(9, tmp_path)
    assert tally.tries == 9 and not tally.losses


@pytest.mark.slow
def test_nothing_is_lost(tmp_path):
    """The faults that need processes of their own, once each; they share what they compile."""
    table = tmp_path / "table.json"
    command = [sys.executable, "-m", "torture", "kill train", "disk", "--count", "1", "--out", str(table)]
    done = subprocess.run(command, cwd=HERE, env=os.environ, capture_output=True, text=True, timeout=290)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(table.read_text())["rows"]
    assert rows and all(row["lost"] == 0 and (row["tries"] or row["skipped"]) for row in rows)


def test_the_fuzzer_makes_the_same_files_for_the_same_seed():
    import random

    content, others = READERS["posterior: Gaussian"].content, [reader.content for reader in READERS.values()]
    first, second = ([mutate(content, others, draws) for _ in range(50)] for draws in map(random.Random, (4, 4)))
    assert first == second and len(set(first)) > 40


@pytest.mark.parametrize("name", READERS)
def test_files_of_the_first_version_are_read(tmp_path, name):
    assert files.read_quietly(READERS[name], READERS[name].content, tmp_path) is not None


def test_checkpoint_of_the_first_version_is_read(tmp_path):
    import shutil

    folder = tmp_path / "checkpoint"
    shutil.copytree(FIXTURES / "checkpoint-v1", folder)
    assert checkpoint(folder)[0] == 4


def test_folders_that_differ_in_clocks_and_random_names_alone_are_one_to_the_injection(tmp_path):
    from torture.inject import _fingerprint

    def folder(name: str, content: str, temporary: str = ".tmp-7-0a1b2c3d-x") -> Path:
        place = tmp_path / name
        place.mkdir()
        (place / "provenance.json").write_text(content)
        (place / temporary).write_text("half")
        return place

    first = _fingerprint(folder("a", '{"status": "done", "started": "1"}'))
    assert first == _fingerprint(folder("b", '{"status": "done", "started": "2"}', ".tmp-9-ffffffff-x"))
    for name, other in {"c": '{"status": "failed", "started": "1"}', "d": '{"status": "done", "sta'}.items():
        assert first != _fingerprint(folder(name, other))


def test_the_commands_of_every_attack_are_tried():
    from torture.commands import ATTACKS

    assert [int(name.partition(" ")[0]) for name in ATTACKS] == [*range(1, 26)]


def test_the_tables_of_the_page_are_what_was_tried(tmp_path):
    from torture.table import KEPT, PAGE, keep, write

    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text())
    write(json.loads(KEPT.read_text()), page)
    assert page.read_text() == PAGE.read_text()

    row = {
        "fault": "SIGKILL of align",
        "tries": 7,
        "survived": 6,
        "lost": 1,
        "note": "",
        "skipped": "",
        "losses": ["x"],
    }
    run, kept = tmp_path / "torture.json", tmp_path / "tried.json"
    run.write_text(json.dumps({"commit": "abc", "began": "2026-11-19T05:00+00:00", "rows": [row]}))
    kept.write_text(json.dumps([row | {"commit": "old", "tries": 1}]))
    (found,) = keep([run], kept)
    assert (found["commit"], found["day"], found["tries"]) == ("abc", "2026-11-19", 7)
    write([found], page)
    assert "| SIGKILL of align | 7 | 6 | 1 | abc | 2026-11-19 |" in page.read_text()
