"""`bayesin evaluate`: the scores are those of `predict`, and the page shows them."""

import jax
import numpy as np
import pytest

from bayesin import Gaussian, Samples, data, predict
from bayesin.lab.report import read_report
from bayesin.models import build
from bayesin.store import save_posterior
from cli_toys import METADATA, call, gaussian, mlp, point, status_of


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("posteriors")
    one = save_posterior(folder / "one.safetensors", gaussian(), metadata=METADATA)
    several = Samples.stack([point(seed) for seed in range(3)])
    return one, save_posterior(folder / "many.safetensors", several, metadata=METADATA)


@pytest.mark.slow
def test_the_scores_and_the_page(files, tmp_path, capsys):
    code, result, _ = call(
        capsys,
        "evaluate",
        *files,
        f"{files[1]}#2",
        "--samples",
        8,
        "--outside",
        "digits",
        "--out",
        tmp_path / "scores",
    )
    digits = data.load("digits")
    own = predict(gaussian(), mlp(), digits.x_test, key=jax.random.key(0), samples=8).metrics(digits.y_test)
    found = result["scores"]
    assert code == 0 and set(found) == {str(files[0]), str(files[1]), f"{files[1]}#2"}
    assert {name: found[str(files[0])][name] for name in own} == pytest.approx(own, rel=1e-5)
    assert found[str(files[0])]["ood_auroc"] == pytest.approx(0.5, abs=1e-6)  # the same inputs
    alone = predict(point(2), mlp(), digits.x_test, key=None).metrics(digits.y_test)
    assert found[f"{files[1]}#2"]["nll"] == pytest.approx(alone["nll"], rel=1e-5)
    section = read_report(tmp_path / "scores")["evaluation"]
    assert [row["name"] for row in section["rows"]] == [*found]
    assert {len(section[name]) for name in ("reliability", "selective")} == {3} and len(section["entropy"]) == 6
    assert status_of(capsys, tmp_path / "scores") == ("evaluate", "done", "scores of 3 on digits")
    code, _, said = call(capsys, "evaluate", files[0], "--out", tmp_path / "scores")
    assert code == 2 and "--force" in said


def test_temperatures_are_fitted_on_the_half_that_is_not_scored(files, capsys):
    code, result, _ = call(capsys, "evaluate", files[0], "--samples", 4, "--calibrate")
    raw, cool = result["scores"].values()
    assert code == 0 and raw["accuracy"] == cool["accuracy"] and cool["nll"] < raw["nll"]
    assert result["examples"] == len(data.load("digits").y_test) - len(data.load("digits").y_test) // 2


def test_a_regression_is_scored_with_its_noise(tmp_path, capsys):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3)).astype(np.float32)
    arrays = {"x_train": x[:40], "y_train": x[:40, 0], "x_test": x[40:], "y_test": x[40:, 0]}
    np.savez(tmp_path / "line.npz", **arrays)
    about = {"model": {"name": "mlp", "input_shape": [3], "classes": 1, "width": 4, "depth": 1}}
    q = Gaussian.point(build("mlp", (3,), 1, width=4, depth=1).init(jax.random.key(0)))
    q = Gaussian(q.mean, jax.tree.map(lambda leaf: leaf + 0.1, q.std))
    place = save_posterior(tmp_path / "q.safetensors", q, metadata=about | {"noise": 0.5})
    arguments = ("--data", tmp_path / "line.npz", "--samples", 6)
    code, result, _ = call(capsys, "evaluate", place, *arguments, "--out", tmp_path / "scores")
    (scores,) = result["scores"].values()
    assert code == 0 and set(scores) == {"rmse", "nll", "crps", "coverage_90"}
    assert len(read_report(tmp_path / "scores")["evaluation"]["coverage"][0]["x"]) == 19
    silent = save_posterior(tmp_path / "silent.safetensors", q, metadata=about)
    code, _, said = call(capsys, "evaluate", silent, *arguments)
    assert code == 2 and "noise" in said
    assert call(capsys, "evaluate")[0] == 2


def test_report_makes_the_page_of_posteriors_too(files, tmp_path, capsys):
    code, made, _ = call(capsys, "report", *files, "--out", tmp_path / "page", "--limit", 40)
    assert code == 0 and (tmp_path / "page" / "report.html").is_file() and len(made["scores"]) == 2
    for arguments, word in ((files, "--out FOLDER"), ((files[0], "--out", "page.html"), "name a folder")):
        code, _, said = call(capsys, "report", *arguments)
        assert code == 2 and word in said and said.count("\n") == 1
