"""One posterior of every family over the network of `networks`, for tables of posteriors × verbs."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import networks
from bayesin import FactorGaussian, GaussianMixture, LowRankGaussian, PermutationSpec, Samples

SIZES = (6, 8, 8, 4)
SPEC = PermutationSpec.parse(
    {
        "l0/kernel": ["6", "g0"],
        "l0/bias": ["g0"],
        "l1/kernel": ["g0", "g1"],
        "l1/bias": ["g1"],
        "l2/kernel": ["g1", "4"],
        "l2/bias": ["4"],
    },
    {"g0": 8, "g1": 8},
)
_GUIDE = Path(__file__).resolve().parents[1] / "docs" / "extending.md"


def _class_of_guide(section: str, name: str) -> type:
    """A class of the guide `docs/extending.md`, which is thereby run."""
    text = _GUIDE.read_text().split(f"## {section}\n")[1].split("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    names: dict = {}
    exec(code, names)
    return names[name]


Uniform = _class_of_guide("A posterior family", "Uniform")
LaplaceErrors = _class_of_guide("A likelihood", "Laplace")


def samples(seed: int, count: int = 5) -> Samples:
    return Samples.stack([networks.params(seed + 10 * k) for k in range(count)])


def posteriors(seed: int = 0) -> dict:
    """By name: a point as a plain tree, the families, and a class that only has the four members."""
    mean = networks.params(seed)
    half = jax.tree.map(lambda leaf: 0.2 + 0.1 * jnp.abs(leaf), mean)
    return {
        "point": mean,
        "gaussian": networks.gaussian(seed),
        "lowrank": LowRankGaussian.from_samples(samples(seed)),
        "factor": FactorGaussian(mean, LowRankGaussian.from_samples(samples(seed, 3)).factors, half),
        "mixture": GaussianMixture.of([networks.gaussian(seed), networks.gaussian(seed + 7)], [0.3, 0.7]),
        "samples": samples(seed),
        "own": Uniform(jax.tree.map(jnp.subtract, mean, half), jax.tree.map(jnp.add, mean, half)),
    }


def flat(tree) -> np.ndarray:
    """All weights as one float64 vector; with a leading axis, as rows."""
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(tree)]
    return np.concatenate([leaf.ravel() for leaf in leaves])


def rows(stack) -> np.ndarray:
    """A stack of trees as (members, weights) in float64."""
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(stack)]
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], 1)
