"""The recipes of docs/bridges.md, run where their library is installed."""

import importlib.util
import re
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest

from bayesin import Samples
from bayesin.errors import PosteriorError

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "bridges.md").read_text()
SECTIONS = {
    part.split("\n", 1)[0]: "\n".join(re.findall(r"```python\n(.*?)```", part, re.S)) for part in PAGE.split("\n## ")
}
NEEDS = {
    "NumPyro": "numpyro",
    "ArviZ": "arviz",
    "PyTorch state dicts": "torch",
    "posteriors": "posteriors",
    "TorchUncertainty": "torch_uncertainty",
    "blackjax": "blackjax",
    "Checkpoints": "orbax",
}
COMMON = SECTIONS["A loop of your own"] + SECTIONS["Chains"]
FOUND = {"NumPyro": ("variational", "nuts"), "ArviZ": ("back",), "blackjax": ("hmc",), "Checkpoints": ("pair",)}
FOUND |= {"PyTorch state dicts": ("torch_members",), "posteriors": ("torch_variational", "torch_draws")}
FOUND |= {"TorchUncertainty": ("ensemble_members", "bayesian_layers")}
AFTER = dict.fromkeys(("posteriors", "TorchUncertainty"), "PyTorch state dicts")  # whose names they use


@pytest.fixture(scope="module")
def begun():
    names: dict = {}
    exec(COMMON, names)
    return names


@pytest.mark.parametrize("section", [name for name in SECTIONS if "```" not in name and SECTIONS[name]])
def test_recipe(section, begun):
    library = NEEDS.get(section)
    if library and importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    names = dict(begun)
    easy = jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow")  # as a user has it
    with warnings.catch_warnings(), easy[0], easy[1]:
        warnings.simplefilter("ignore")  # of the other libraries
        exec(SECTIONS.get(AFTER.get(section, ""), ""), names)
        exec(SECTIONS[section], names)
    for name in FOUND.get(section, ()):
        prediction = names["predict"](names[name], names["apply"], names["x"], key=names["key"], samples=4)
        assert np.isfinite(prediction.probabilities).all()


def test_chains_go_in_and_out(begun):
    draws = begun["draws"]
    for name in ("a", "b"):
        np.testing.assert_array_equal(begun["again"][name], begun["stacked"][name])
        np.testing.assert_array_equal(draws.params[name], begun["members"].params[name])
    with pytest.raises(PosteriorError, match="chains, draws"):
        Samples.from_chains({"w": np.zeros(3), "v": np.zeros((2, 3))})
    with pytest.raises(PosteriorError, match="equal length"):
        draws.to_chains(4)
