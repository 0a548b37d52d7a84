"""ResNet20 for 32 × 32 images, with shortcuts that keep every channel permutation.

A stem, three stages of three blocks with widths w, 2w, 4w, the mean over the image, and a dense layer. A block is

    rectify(shortcut(x) + norm(conv(rectify(norm(conv(x))))))

with 3 × 3 convolutions without bias. Where a stage changes the size, the shortcut is a 3 × 3 convolution of stride
2 with its own norm: zero-padded shortcuts would tie the channels of two stages and leave nothing to permute.

References: He et al. 2016 (CIFAR variant); Ainsworth et al. 2023 for LayerNorm and the shortcuts.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from .norms import make_norm, make_rectifier

BLOCKS = 3  # in each stage; 2 convolutions each, with stem and dense 20 layers


class ResNet20(nnx.Module):
    """The 20-layer residual network on NHWC images; returns logits.

    Kernels start He-normal, the bias of the dense layer at zero. Parameters are float32; `dtype` is that of the
    arithmetic, by default the parameters' own. Logits have at least single precision.

    Example:
        >>> net = nnx.eval_shape(lambda: ResNet20(3, 10, norm="frn", rngs=nnx.Rngs(0)))  # shapes alone
        >>> net.blocks[8].second.conv.kernel.shape
        (3, 3, 64, 64)
    """

    def __init__(
        self,
        channels: int,
        outputs: int,
        *,
        width: int = 16,
        norm: str = "layernorm",
        dtype: Any = None,
        rngs: nnx.Rngs,
    ):
        self.stem = _ConvNorm(channels, width, 1, norm, dtype, rngs)
        self.stem_rectify = make_rectifier(norm, width, dtype=dtype)
        blocks, before = [], width
        for stage in range(3):
            after = width * 2**stage
            for _ in range(BLOCKS):
                blocks.append(Block(before, after, norm=norm, dtype=dtype, rngs=rngs))
                before = after
        self.blocks = nnx.List(blocks)
        self.dense = nnx.Linear(before, outputs, kernel_init=nnx.initializers.he_normal(), dtype=dtype, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = self.stem_rectify(self.stem(x))
        for block in self.blocks:
            x = block(x)
        logits = self.dense(jnp.mean(x, axis=(-3, -2)))
        return logits.astype(jnp.promote_types(logits.dtype, jnp.float32))


class Block(nnx.Module):
    """Two convolutions beside a shortcut; halves the image where the number of channels changes."""

    def __init__(self, before: int, after: int, *, norm: str, dtype: Any, rngs: nnx.Rngs):
        stride = 1 if before == after else 2
        self.first = _ConvNorm(before, after, stride, norm, dtype, rngs)
        self.rectify_first = make_rectifier(norm, after, dtype=dtype)
        self.second = _ConvNorm(after, after, 1, norm, dtype, rngs)
        self.shortcut = None if stride == 1 else _ConvNorm(before, after, stride, norm, dtype, rngs)
        self.rectify = make_rectifier(norm, after, dtype=dtype)

    def __call__(self, x: jax.Array) -> jax.Array:
        branch = self.second(self.rectify_first(self.first(x)))
        return self.rectify((self.shortcut(x) if self.shortcut else x) + branch)


class _ConvNorm(nnx.Module):
    def __init__(self, before: int, after: int, stride: int, norm: str, dtype: Any, rngs: nnx.Rngs):
        self.conv = nnx.Conv(
            before,
            after,
            (3, 3),
            strides=stride,
            use_bias=False,
            kernel_init=nnx.initializers.he_normal(),
            dtype=dtype,
            rngs=rngs,
        )
        self.norm = make_norm(norm, after, dtype=dtype, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.norm(self.conv(x))
