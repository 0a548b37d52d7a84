"""A command that was stopped while its page was drawn, given again: it makes the page of numbers that are there."""

import json
import os
import shutil

import jax
import numpy as np
import pytest

import bayesin.cli.compact
import bayesin.cli.evaluate
from bayesin import Samples
from bayesin.file_sets import UNFINISHED
from bayesin.lab.report import compact_report, page
from bayesin.store import save_posterior
from cli_toys import METADATA, call, gaussian, point

pytest.importorskip("tyro")
CLOCKS = ("report.json", "report.html")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Samples and a Gaussian, by the verb that reads them."""
    folder, rng, base = tmp_path_factory.mktemp("read"), np.random.default_rng(0), point()
    noisy = [jax.tree.map(lambda leaf: leaf + rng.normal(size=leaf.shape).astype(leaf.dtype), base) for _ in range(3)]
    about = METADATA | {"data": {"name": "digits", "limit": 60}}
    return {
        "compact": save_posterior(folder / "many.safetensors", Samples.stack(noisy), metadata=about),
        "evaluate": save_posterior(folder / "one.safetensors", gaussian(), metadata=about),
    }


WORK = {  # what takes the time, and what draws
    "compact": ((bayesin.cli.compact, "compact"), (compact_report, "compact_figure"), ["--draws", "2"]),
    "evaluate": ((bayesin.cli.evaluate, "predict"), (page, "write_page"), ["--samples", "2"]),
}


def contents(folder, *without):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in without
    }


def interrupt(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.parametrize("verb", WORK)
def test_the_page_alone_is_made_again(tmp_path, capsys, monkeypatch, files, verb):
    work, draws, flags = WORK[verb]
    command = [verb, files[verb], *flags]
    assert call(capsys, *command, "--out", tmp_path / "whole" / "out")[0] == 0
    wanted, out = contents(tmp_path / "whole" / "out", *CLOCKS), tmp_path / "cut" / "out"

    def stopped():
        shutil.rmtree(out, ignore_errors=True)
        with monkeypatch.context() as patch:
            patch.setattr(*draws, interrupt)
            code, _, said = call(capsys, *command, "--out", out)
        assert code == 130 and "the same command makes one" in said and "is whole" in said
        return contents(out)

    kept = stopped()
    assert "report.json" in kept and "report.html" not in kept and not any("figures" in name for name in kept)
    with monkeypatch.context() as patch:
        patch.setattr(*work, interrupt)  # nothing is computed again
        code, result, _ = call(capsys, *command, "--out", out)
    assert code == 0 and result["page"] == str(out / "report.html")
    assert contents(out, *CLOCKS) == wanted and contents(out)["report.json"] == kept["report.json"]
    code, _, said = call(capsys, *command, "--out", out)
    assert code == 2 and "--force" in said  # there is nothing left to do

    stopped()  # before the numbers of the page
    (out / "report.json").unlink()
    assert call(capsys, *command, "--out", out)[0] == 0 and contents(out, *CLOCKS) == wanted


@pytest.mark.parametrize("verb", WORK)
def test_numbers_of_another_command_or_of_other_content_stand(tmp_path, capsys, monkeypatch, files, verb):
    _, draws, flags = WORK[verb]
    source, out = shutil.copy(files[verb], tmp_path / "source.safetensors"), tmp_path / "out"
    command = [verb, source, *flags, "--out", out]
    with monkeypatch.context() as patch:
        patch.setattr(*draws, interrupt)
        assert call(capsys, *command)[0] == 130
    kept = contents(out)

    def refused(*more):
        code, _, said = call(capsys, *command, *more)
        assert code == 2 and "--force" in said and contents(out) == kept

    refused("--key", 1)
    numbers = out / ("compact.json" if verb == "compact" else "evaluation.json")
    old = json.loads(numbers.read_text())
    numbers.write_text(json.dumps({name: value for name, value in old.items() if name != "made_by"}))
    kept = contents(out)
    refused()
    numbers.write_text(json.dumps(old))
    if verb == "compact":
        posterior = out / "posterior-0.safetensors"
        posterior.write_bytes(posterior.read_bytes()[:-1])
        kept = contents(out)
        refused()
    other = Samples.stack([point(8), point(9)]) if verb == "compact" else gaussian(3)
    save_posterior(source, other, metadata=METADATA | {"data": {"name": "digits", "limit": 60}})
    kept = contents(out)
    refused()


@pytest.mark.parametrize("verb", WORK)
def test_a_kill_while_files_take_their_names_leaves_what_the_same_command_ends(
    tmp_path, capsys, monkeypatch, files, verb
):
    command = [verb, files[verb], *WORK[verb][2]]
    whole, out = tmp_path / "whole" / "out", tmp_path / "cut" / "out"
    assert call(capsys, *command, "--out", whole)[0] == 0
    with monkeypatch.context() as patch:
        rename = os.replace

        def killed(source, place):
            if os.path.basename(place) == "report.html" and os.path.dirname(place) == str(out):
                raise RuntimeError  # numbers are in their places, the page is not
            rename(source, place)

        patch.setattr(os, "replace", killed)
        assert call(capsys, *command, "--out", out)[0] == 1
    assert (out / UNFINISHED).exists() and not (out / "report.html").exists()
    assert call(capsys, *command, "--out", out)[0] == 0
    assert contents(out, *CLOCKS) == contents(whole, *CLOCKS)
