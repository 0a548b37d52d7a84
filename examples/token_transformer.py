"""A transformer on tokens and their mask: an ensemble is trained, its symmetry found, its predictions measured.

Sequences of different lengths are padded, and the mask says what is padding. Both go in as a dict; whole numbers stay
whole. The task: does the first token come again?
"""

import jax
import numpy as np
from flax import nnx

import bayesin
from bayesin import data, models

TOKENS, LENGTH, WIDTH = 8, 10, 32


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


generator = np.random.default_rng(0)


def sentences(count):
    ids = generator.integers(0, TOKENS, (count, LENGTH))
    mask = np.arange(LENGTH) < generator.integers(3, LENGTH + 1, count)[:, None]
    again = ((ids[:, 1:] == ids[:, :1]) & mask[:, 1:]).any(1)
    return {"ids": np.where(mask, ids, 0), "mask": mask}, again.astype(np.int32)


train, test = sentences(2000), sentences(500)
key, task, model = jax.random.key(0), data.from_arrays(*train, *test, normalise="none"), models.from_nnx(Transformer)
settings = bayesin.Ensemble(members=3, epochs=15, batch=50, learning_rate=3e-3, prior=bayesin.FanIn(1.0))
fit = bayesin.fit_ensemble(key, model, task, settings)
spec = bayesin.discover(model.apply, fit.posterior[0], jax.tree.map(lambda part: part[:2], task.x_test))
seen = bayesin.predict(fit, model, task.x_test, key=None)
print(f"groups {spec.sizes}")
right = seen.probabilities.argmax(1) == task.y_test
print(f"accuracy {right.mean():.1%}, entropy {seen.total_entropy.mean():.3f} nats")
