"""The card of a posterior folder: what it says, that its snippets run, and that no name breaks out of its place."""

import re

import numpy as np
import pytest
import yaml

from bayesin import load_posterior, save_posterior
from bayesin.errors import ArtifactError
from bayesin.files import file_hash
from bayesin.store import CARD, describe
from bayesin.store.card import MARK
from test_store import POSTERIORS, SPEC

ABOUT = {
    "model": {"name": "nets/mine.py:model", "width": 3, "input_shape": [2]},
    "data": {"name": "/home/me/secret/mine.npz", "content": "ab" * 32},
    "method": "vi",
    "training": {"prior_variance": 0.05, "epochs": 3},
    "metrics": {"accuracy": {"value": 0.9, "error": 0.03, "over": "100 test examples"}, "nll": 0.25, "odd": "text"},
}


def front_matter(text: str) -> dict:
    return yaml.safe_load(text.split("---\n")[1])


@pytest.mark.parametrize("kind", POSTERIORS)
def test_a_folder_can_be_read_as_its_card_says(tmp_path, monkeypatch, kind):
    folder = save_posterior(tmp_path / "mine", POSTERIORS[kind], spec=SPEC, metadata=ABOUT)
    assert sorted(path.name for path in folder.iterdir()) == [CARD, "posterior-0.safetensors"]
    assert describe(folder) == describe(folder / "posterior-0.safetensors")
    assert type(load_posterior(folder)) is type(POSTERIORS[kind])
    text = (folder / CARD).read_text()
    for said in ("mine.py", "mine.npz", "ab" * 32, "variance 0.05", "0.9000 ± 0.0300", "over 100 test examples"):
        assert said in text, said
    assert "secret" not in text and "odd" not in text
    assert "| g0 | 3 |" in text and "into 6 orders" in text  # 3!
    assert file_hash(folder / "posterior-0.safetensors") in text
    monkeypatch.chdir(folder)
    ours, without = re.findall(r"```python\n(.*?)```", text, re.S)
    assert ours.count("\n") == without.count("\n") == 3
    found: dict = {}
    exec(ours, found)
    assert found["about"]["method"] == "vi"
    exec(without, found)
    assert set(found["weights"]) == {"b", "w"} and found["weights"]["w"].shape[-2:] == (2, 3)
    (result,) = front_matter(text)["model-index"][0]["results"]
    assert result["task"]["type"] == "tabular-classification" and result["dataset"]["name"] == "mine.npz"
    assert result["metrics"] == [{"type": "accuracy", "value": 0.9}, {"type": "nll", "value": 0.25}]


HOSTILE = [
    "x\n---\nlicense: mit",
    '"\\ : {a: b} # & * ! | > %',
    "<script>alert(1)</script>",
    "[go](javascript:x) ![](http://x) `code` **b** |cell|",
    "\u202egnp.exe \x00\x1b[31m \u2028 \ud800",
    "y" * 100_000,
]


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_no_name_breaks_out_of_its_place(tmp_path, name):
    about = {"model": name, "data": name, "method": name, "metrics": {name: 0.5}, "training": {name: name}}
    text = (save_posterior(tmp_path / "q", POSTERIORS["point"], metadata=about) / CARD).read_text()
    front = front_matter(text)
    assert list(front) == ["library_name", "tags", "model-index"] and "license" not in front
    (result,) = front["model-index"][0]["results"]
    assert result["metrics"][0]["value"] == 0.5 and "\n" not in result["dataset"]["name"]
    body = text.split(MARK)[1]
    assert "<" not in body and len(text) < 20_000
    assert not re.search(r"(?<!\\)\]\(", body) and not re.search(r"(?<!\\)!\[", body)
    assert all(c.isprintable() or c == "\n" for c in text)
    rows = [line for line in body.splitlines() if line.startswith("| ") and "SHA-256" not in line]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} <= {2, 3, 5}
    headings = [line for line in body.splitlines() if line.startswith("#")]
    assert headings[1:] == ["## Scores on the test set", "## Files", "## How to load it"]


def test_a_card_that_somebody_made_their_own_stays_and_a_run_is_not_overwritten(tmp_path):
    folder, q = tmp_path / "q", POSTERIORS["gaussian"]
    save_posterior(folder, POSTERIORS["point"])
    save_posterior(folder / "posterior-1.safetensors", q)
    save_posterior(folder, q)
    assert sorted(path.name for path in folder.iterdir()) == [CARD, "posterior-0.safetensors"]
    assert "a Gaussian" in (folder / CARD).read_text().replace("A Gaussian", "a Gaussian")
    (folder / CARD).write_text("mine")
    save_posterior(folder, {"w": np.ones(2)})
    assert (folder / CARD).read_text() == "mine" and load_posterior(folder)["w"].shape == (2,)
    (folder / "config.json").write_text("{}")
    with pytest.raises(ArtifactError, match="holds a training run"):
        save_posterior(folder, q)
