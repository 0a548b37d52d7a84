"""Discovery takes a moment, trace included: ResNet20 in under a second, a transformer of 12 layers in under three."""

import time

import jax
import jax.numpy as jnp
from flax import nnx

import bayesin
from bayesin import models


def seconds(model: models.Model, x: jax.ShapeDtypeStruct) -> tuple[float, bayesin.PermutationSpec]:
    """Processor time of one discovery; unlike wall time it does not depend on what else the machine does."""
    params = jax.eval_shape(model.init, jax.random.key(0))
    start = time.process_time()
    spec = bayesin.discover(model.apply, params, x)
    return time.process_time() - start, spec


def test_resnet20_under_a_second():
    taken, spec = seconds(
        models.build("resnet20", (32, 32, 3), 10, width=16), jax.ShapeDtypeStruct((8, 32, 32, 3), jnp.float32)
    )
    assert len(spec.sizes) == 12
    assert taken < 1


class Block(nnx.Module):
    def __init__(self, rngs):
        self.norm1, self.norm2 = nnx.LayerNorm(768, rngs=rngs), nnx.LayerNorm(768, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(12, 768, decode=False, rngs=rngs)
        self.up, self.down = nnx.Linear(768, 3072, rngs=rngs), nnx.Linear(3072, 768, rngs=rngs)

    def __call__(self, x):
        x = x + self.attention(self.norm1(x), mask=nnx.make_causal_mask(jnp.ones(x.shape[:2])))
        return x + self.down(nnx.gelu(self.up(self.norm2(x))))


class Transformer(nnx.Module):
    """The size of the smallest GPT-2, its embeddings tied."""

    def __init__(self, rngs):
        self.embed = nnx.Embed(50257, 768, rngs=rngs)
        self.position = nnx.Param(jnp.zeros((1024, 768)))
        self.blocks = nnx.List([Block(rngs) for _ in range(12)])
        self.norm = nnx.LayerNorm(768, rngs=rngs)

    def __call__(self, tokens):
        x = self.embed(tokens) + self.position[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.embed.attend(self.norm(x))


def test_transformer_of_twelve_layers_under_three_seconds():
    taken, spec = seconds(models.from_nnx(Transformer), jax.ShapeDtypeStruct((2, 128), jnp.int32))
    # The stream, and for every layer its heads, their queries and keys, their values, and the hidden units.
    assert sorted(spec.sizes.values()) == sorted([768] + 12 * [12, 64, 64, 3072])
    assert taken < 3
