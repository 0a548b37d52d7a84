"""What a prior is worth on an MLP, a CNN and a transformer: test accuracy and loss under each.

    python benchmarks/priors.py

Digits (scikit-learn's) for the MLP of two layers of 128 and the CNN of 16 and 32 channels, 60 epochs of batches of
100; does the first token come again, in 2,000 made sentences, for the transformer of `examples/token_transformer.py`,
15 epochs of batches of 50. Adam at 3e-3, constant; three members each, of which mean and standard deviation are
printed.
"""

import argparse
import dataclasses
import time

import jax
import numpy as np
from flax import nnx

import bayesin
from bayesin import data, models

MEMBERS, DRAWS = 3, 64
PRIORS = {
    "Isotropic(0.01)": bayesin.Isotropic(0.01),
    "Isotropic(0.1)": bayesin.Isotropic(0.1),
    "Isotropic(1)": bayesin.Isotropic(1.0),
    "FanIn(1)": bayesin.FanIn(1.0),
}
TOKENS, LENGTH, WIDTH = 8, 10, 32


class CNN(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Conv(1, 16, (3, 3), strides=2, rngs=rngs)
        self.second = nnx.Conv(16, 32, (3, 3), strides=2, rngs=rngs)
        self.out = nnx.Linear(2 * 2 * 32, 10, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.second(nnx.relu(self.first(x))))
        return self.out(x.reshape(len(x), -1))


class Transformer(nnx.Module):
    def __init__(self, rngs):
        self.embed = nnx.Embed(TOKENS, WIDTH, rngs=rngs)
        self.place = nnx.Param(0.1 * jax.random.normal(rngs.params(), (LENGTH, WIDTH)))
        self.attend = nnx.MultiHeadAttention(4, WIDTH, decode=False, rngs=rngs)
        self.norms = nnx.List([nnx.LayerNorm(WIDTH, rngs=rngs) for _ in range(2)])
        self.up, self.down = nnx.Linear(WIDTH, 64, rngs=rngs), nnx.Linear(64, WIDTH, rngs=rngs)
        self.out = nnx.Linear(WIDTH, 2, rngs=rngs)

    def __call__(self, x):
        mask = x["mask"][:, None, None, :]
        h = self.embed(x["ids"]) + self.place[...]
        h = h + self.attend(self.norms[0](h), mask=mask)
        h = h + self.down(nnx.gelu(self.up(self.norms[1](h))))
        return self.out(h[:, 0])


def sentences(generator, count):
    ids = generator.integers(0, TOKENS, (count, LENGTH))
    mask = np.arange(LENGTH) < generator.integers(3, LENGTH + 1, count)[:, None]
    again = ((ids[:, 1:] == ids[:, :1]) & mask[:, 1:]).any(1)
    return {"ids": np.where(mask, ids, 0), "mask": mask}, again.astype(np.int32)


def problems():
    """Name, network, data, epochs, batch."""
    digits, generator = data.load("digits"), np.random.default_rng(0)
    tokens = data.from_arrays(*sentences(generator, 2000), *sentences(generator, 500), normalise="none")
    yield "MLP 2×128", models.build("mlp", digits.input_shape, 10, width=128, depth=2), digits, 60, 100
    yield "CNN, 16 and 32 channels", models.from_nnx(CNN), digits, 60, 100
    yield "transformer, width 32", models.from_nnx(Transformer), tokens, 15, 50


def scores(fit, model, dataset):
    """Accuracy and loss of each member."""
    members = fit.posterior if isinstance(fit.config, bayesin.Ensemble) else fit.posteriors
    found = []
    for number in range(MEMBERS):
        own = members[number]
        key = jax.random.key(number)
        of = bayesin.predict(own, model, dataset.x_test, key=key, samples=DRAWS).metrics(dataset.y_test)
        found.append((of["accuracy"], of["nll"]))
    return np.array(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--network", default="", help="those with this in their name")
    chosen = parser.parse_args()
    for name, model, dataset, epochs, batch in problems():
        if chosen.network not in name:
            continue
        common = {"members": MEMBERS, "epochs": epochs, "batch": batch, "learning_rate": 3e-3, "schedule": "constant"}
        for method, fit, settings in (
            ("variational", bayesin.fit_vi, bayesin.VI(**common)),
            ("ensemble", bayesin.fit_ensemble, bayesin.Ensemble(**common)),
        ):
            cells, began = [], time.process_time()
            for prior in PRIORS.values():
                own = dataclasses.replace(settings, prior=prior)
                found = scores(fit(jax.random.key(0), model, dataset, own), model, dataset)
                (right, loss), (right_std, loss_std) = found.mean(0), found.std(0, ddof=1)
                cells.append(f"{right:.1%} ± {100 * right_std:.1f}, {loss:.3f} ± {loss_std:.3f}")
            print(
                f"| {name} | {method} | {' | '.join(cells)} |",
                f"  {time.process_time() - began:.0f} CPU s",
                flush=True,
            )


if __name__ == "__main__":
    main()
