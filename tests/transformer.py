"""A transformer of twelve layers, for discovery and its benchmark."""

import jax.numpy as jnp
from flax import nnx


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
