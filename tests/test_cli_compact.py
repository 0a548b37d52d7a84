"""`bayesin compact` on sample files: what it writes, what it says, what it refuses."""

import json

import jax
import numpy as np
import pytest

from bayesin import Gaussian, LowRankGaussian, Samples, discover, permute
from bayesin.cli.main import main
from bayesin.compact import Score
from bayesin.lab.report import read_report
from bayesin.store import describe, load_posterior, save_posterior
from bayesin.store.tensors import read_tensors
from cli_toys import call, mlp, point, status_of

pytest.importorskip("tyro")
ABOUT = {"name": "mlp", "input_shape": [8, 8, 1], "classes": 10, "width": 8, "depth": 1}
METADATA = {"model": ABOUT, "data": {"name": "digits", "limit": 60}}


@pytest.fixture(scope="module")
def spec():
    return discover(mlp(depth=1).apply, point(depth=1), np.zeros((2, 8, 8, 1), np.float32))


@pytest.fixture(scope="module")
def stack(tmp_path_factory, spec):
    """Noisy copies of one network, shuffled, as the sample set of a run folder."""
    base, rng, nets = point(depth=1), np.random.default_rng(0), []
    for _ in range(5):
        noisy = jax.tree.map(lambda leaf: leaf + (0.01 * rng.normal(size=leaf.shape)).astype(np.float32), base)
        nets.append(permute(noisy, spec, {"g0": rng.permutation(8)}))
    folder = tmp_path_factory.mktemp("run")
    save_posterior(folder / "posterior-0.safetensors", Samples.stack(nets), metadata=METADATA)
    return folder


def fold(capsys, *arguments):
    return call(capsys, "compact", *arguments)


def test_shuffled_samples_become_one_gaussian(tmp_path, capsys, stack, spec):
    before = (stack / "posterior-0.safetensors").read_bytes()
    code, result, _ = fold(capsys, stack, "--reference", "mean", "--match", "weights", "--out", tmp_path / "one")
    assert code == 0
    assert result["spread_after"] < 0.02 < result["spread_before"] and result["converged"]
    assert len(result["transpositions"]["g0"]) == 5
    posterior = load_posterior(result["posterior"])
    assert isinstance(posterior, Gaussian)
    about = describe(result["posterior"])
    assert about.spec == spec and about.metadata["model"] == ABOUT
    perms, strings = read_tensors(tmp_path / "one" / "permutations.safetensors")
    assert perms["perms/g0"].shape == (5, 8) and strings["format"] == "bayesin-permutations"
    stored = json.loads((tmp_path / "one" / "compact.json").read_text())
    assert stored["scores"] == result["scores"]
    scores = result["scores"]
    assert scores["samples"]["agreement"] == 1 and scores["samples"]["total_variation"] == 0
    assert scores["compact"]["total_variation"] < 0.05 < scores["direct"]["total_variation"]
    assert (stack / "posterior-0.safetensors").read_bytes() == before
    assert status_of(capsys, tmp_path / "one")[:2] == ("compact", "done")
    # the result is a posterior like any other
    assert main(["align", result["posterior"], str(stack) + "#1", "--out", str(tmp_path / "moved"), "--json"]) == 0


def test_the_page_shows_the_table_and_every_sample(tmp_path, capsys, stack):
    code, result, _ = fold(capsys, stack, "--out", tmp_path / "one", "--draws", 4, "--family", "lowrank")
    assert code == 0 and result["page"] == str(tmp_path / "one" / "report.html")
    report = read_report(tmp_path / "one")
    rows = {row["name"]: row for row in report["compact"]["scores"]}
    assert rows["Gaussian in a common order"]["agreement"] == pytest.approx(result["scores"]["compact"]["agreement"])
    assert set(rows["the samples"]) == {"name", *Score._fields} and len(rows) == 5
    assert report["compact"]["groups"][0]["transpositions"] == result["transpositions"]["g0"]
    before, after = report["compact"]["stds"]["curves"]
    assert (before["role"], after["role"]) == ("naive", "aligned") and sum(after["shares"]) == pytest.approx(1)
    curves = report["evaluation"]
    assert {len(curves[name]) for name in ("rows", "reliability", "selective", "entropy")} == {5}
    assert set(result["metrics"]["compact"]) >= {"accuracy", "nll", "ece", "brier"} and "tables" not in report
    assert report["posterior"]["names"] == ["as they came", "in a common order"]
    for ending in ("svg", "pdf", "json"):
        assert (tmp_path / "one" / "figures" / f"compact.{ending}").is_file()
    code, result, _ = fold(capsys, stack, "--out", tmp_path / "bare", "--untested", "--no-page")
    assert code == 0 and result["page"] is None and not (tmp_path / "bare" / "report.html").exists()


def test_other_references_matches_and_families(tmp_path, capsys, stack):
    flags = ["--untested", "--draws", 4, "--no-page"]
    code, first, _ = fold(
        capsys, stack, "--reference", "first", "--match", "activations", "--out", tmp_path / "a", *flags
    )
    assert code == 0 and first["transpositions"]["g0"][0] == 0 and first["scores"] == {}
    code, third, _ = fold(capsys, stack, "--reference", f"{stack}#3", "--out", tmp_path / "b", *flags)
    assert code == 0 and third["transpositions"]["g0"][3] == 0
    assert third["spread_after"] == pytest.approx(first["spread_after"], rel=1e-6)
    code, low, _ = fold(capsys, stack, "--family", "lowrank", "--every", 2, "--out", tmp_path / "c", *flags)
    assert code == 0 and low["samples"] == 3
    assert isinstance(load_posterior(low["posterior"]), LowRankGaussian)


def test_draws_of_chains_say_whether_they_mixed(tmp_path, capsys, stack, spec):
    nets = load_posterior(stack / "posterior-0.safetensors").params
    twice = jax.tree.map(lambda leaf: np.concatenate([leaf, leaf]), nets)
    many = Samples(jax.tree.map(lambda leaf: np.concatenate([leaf, leaf + np.float32(0.5)]), twice))
    path = save_posterior(tmp_path / "draws.safetensors", many, metadata=METADATA | {"chains": 2})
    code, result, _ = fold(capsys, path, "--out", tmp_path / "one", "--untested", "--components", 2)
    assert code == 0 and not result["mixing"]["one_basin"]
    assert result["components"] == 2 and set(result["mixing"]["parts"]) > {"weights in one order", "predictions"}
    report = read_report(tmp_path / "one")
    (table,) = report["tables"]
    assert "not mixed" in table["title"] and len(table["rows"]) == 3 and "have not mixed" in report["lead"][-1]


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["RUN"], "--out"),
        (["nowhere", "--out", "OUT"], "nowhere"),
        (["RUN#1", "--out", "OUT"], "one posterior"),
        (["RUN", "--out", "RUN"], "overwrite"),
        (["RUN", "--out", "OUT", "--every", "0"], "--every"),
        (["RUN", "--out", "OUT", "--every", "9"], "two samples"),
        (["RUN", "--out", "OUT", "--rank", "2"], "rank"),
        (["RUN", "--out", "OUT", "--reference", "last"], "last"),
    ],
)
def test_misuse_is_one_line_and_writes_nothing(tmp_path, capsys, stack, arguments, names):
    places = {"RUN": str(stack), "OUT": str(tmp_path / "out"), "RUN#1": f"{stack}#1"}
    code, _, error = fold(capsys, *[places.get(word, word) for word in arguments])
    assert code == 2 and error.count("\n") == 1 and names in error
    assert not (tmp_path / "out").exists()


def test_results_are_not_overwritten_by_chance(tmp_path, capsys, stack):
    flags = ["--draws", "4", "--no-page", "--out", str(tmp_path / "one")]
    assert main(["compact", str(stack), *flags]) == 0
    text = capsys.readouterr().out  # for people
    assert all(word in text for word in ("Transpositions", "Spread", "agreement", "NLL", "discovered and verified"))
    code, _, error = fold(capsys, stack, *flags)
    assert code == 2 and "--force" in error
    assert fold(capsys, stack, *flags, "--force")[0] == 0


def test_a_bare_stack_needs_to_be_told_its_model(tmp_path, capsys, stack):
    bare = save_posterior(tmp_path / "bare.safetensors", load_posterior(stack / "posterior-0.safetensors"))
    code, _, error = fold(capsys, bare, "--out", tmp_path / "one")
    assert code == 2 and "--model" in error
    flags = ["--model", "mlp", "--width", 8, "--depth", 1, "--data", "digits", "--limit", 60, "--draws", 4]
    code, result, _ = fold(capsys, bare, "--out", tmp_path / "one", *flags)
    assert code == 0 and result["spread_after"] < 0.02
