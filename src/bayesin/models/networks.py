"""Networks as Flax NNX modules: those of the papers, a multilayer perceptron and ResNet20; two recurrent ones; a
small vision transformer.

ResNet20 takes small images and has shortcuts that keep every channel permutation: a stem, three stages of three
blocks with widths w, 2w, 4w, the mean over the image, and a dense layer. A block is

    rectify(shortcut(x) + norm(conv(rectify(norm(conv(x))))))

with 3 × 3 convolutions without bias. Where a stage changes the size, the shortcut is a 3 × 3 convolution of stride
2 with its own norm: zero-padded shortcuts would tie the channels of two stages and leave nothing to permute.

Its norms know no batch statistics, since weights are random here: LayerNorm over the channels of each pixel, or
filter response normalisation, which divides each channel by its root mean square over the image,

    y = gamma * x / sqrt(mean_hw(x²) + eps) + beta,

and is followed by a rectifier with a learned threshold for each channel, `max(y, tau)`, in place of ReLU.

The transformer cuts an image into patches of 4 × 4 pixels and reads off the mean of all tokens. Its norms come first
in each block; queries, keys and values are separate arrays (units, heads, units of a head), so that heads and the
units inside them can be permuted.

References: He et al. 2016 (CIFAR variant); Ainsworth et al. 2023 for LayerNorm and the shortcuts; Singh and Krishnan
2020, Filter Response Normalization Layer; Dosovitskiy et al. 2021, vision transformers.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from ..errors import ConfigError, did_you_mean
from ..trees import common_dtype
from .model import Model
from .nnx import from_nnx

# Built-in models by name, and their base widths: of the papers, who have neither recurrent nets nor transformers.
WIDTHS = {"mlp": 512, "resnet20": 16, "rnn": 128, "lstm": 128, "vit": 128}
NORMS = ("layernorm", "frn")
EPSILON = 1e-6
BLOCKS = 3  # in each stage; 2 convolutions each, with stem and dense 20 layers
PATCH, HEADS = 4, 4  # of the vision transformer: pixels on a side, and heads of each block


def build(
    name: str,
    input_shape: Sequence[int],
    classes: int,
    *,
    width: int | None = None,
    depth: int = 3,
    norm: str = "layernorm",
    dtype: DTypeLike | None = None,
) -> Model:
    """Returns a built-in model; the same one for the same arguments, so that a process compiles its programs once.

    Args:
        name: `mlp`, `resnet20`, `rnn` or `lstm`, which read an image row by row, or `vit`, in patches.
        input_shape: shape of one example, without the batch: (28, 28, 1) for MNIST.
        classes: number of outputs; for regression the width of the target.
        width: units of a hidden layer (`mlp`, 512), channels of the first stage (`resnet20`, 16), units of the
            recurrent state (`rnn` and `lstm`, 128), units of a token (`vit`, 128).
        depth: hidden layers of an `mlp`, blocks of a `vit`; `resnet20` has 20 layers.
        norm: of `resnet20`: `layernorm` over channels, or `frn`.
        dtype: of the arithmetic, such as `jnp.bfloat16`; parameters and logits stay float32.

    Raises:
        ConfigError: an unknown name, or a size that has no meaning.

    Example:
        >>> import jax
        >>> model = build("mlp", (8, 8, 1), 10, width=32, depth=2)
        >>> params = model.init(jax.random.key(0))
        >>> params["layers"]["0"]["kernel"].shape
        (64, 32)
    """
    if name not in WIDTHS:
        hint = did_you_mean(str(name).lower(), WIDTHS, 0.4) or f"; choose {' or '.join(WIDTHS)}"
        raise ConfigError(f"there is no built-in model '{name}'{hint}")
    width = WIDTHS[name] if width is None else width
    shape = tuple(input_shape) if isinstance(input_shape, Sequence) else (input_shape,)
    for what, value, least in (("width", width, 1), ("depth", depth, 0), ("classes", classes, 1)):
        _check_count(what, value, least)
    for size in shape:
        _check_count("every size of the input shape", size, 1)
    if name == "resnet20":
        _check_norm(norm)
    else:
        norm = NORMS[0]  # which they do not have
    return _built(name, shape, classes, width, depth, norm, dtype)


# Programs are kept for as long as the functions they were made from: a campaign with functions of its own for every
# pair traced the same network anew each time, and grew by some 10 MiB with each.
@lru_cache(maxsize=64)
def _built(name: str, shape: tuple[int, ...], classes: int, width: int, depth: int, norm: str, dtype: Any) -> Model:
    if name == "mlp":
        return from_nnx(
            lambda rngs: MLP(math.prod(shape), classes, depth=depth, width=width, dtype=dtype, rngs=rngs), name=name
        )
    if name in ("rnn", "lstm"):
        if len(shape) < 2:
            raise ConfigError(f"{name} takes a sequence (steps, ...) such as the rows of an image, not shape {shape}")
        return from_nnx(
            lambda rngs: Recurrent(name, math.prod(shape[1:]), classes, width=width, dtype=dtype, rngs=rngs),
            name=name,
        )
    if name == "vit":
        if len(shape) != 3 or shape[0] % PATCH or shape[1] % PATCH or width % HEADS:
            raise ConfigError(
                f"vit takes images (height, width, channels) of sides that {PATCH} divides and a width that {HEADS} "
                f"divides, not {shape} and {width}"
            )
        return from_nnx(
            lambda rngs: VisionTransformer(shape, classes, width=width, depth=depth, dtype=dtype, rngs=rngs),
            name=name,
        )
    if len(shape) != 3:
        raise ConfigError(f"resnet20 takes images (height, width, channels), not an input of shape {shape}")
    return from_nnx(
        lambda rngs: ResNet20(shape[-1], classes, width=width, norm=norm, dtype=dtype, rngs=rngs), name=name
    )


class MLP(nnx.Module):
    """`depth` hidden layers of `width` ReLU units; flattens its input, returns logits.

    Kernels start He-normal, biases at zero. Parameters are float32; `dtype` is that of the arithmetic, by default
    the parameters' own. Logits have at least single precision.

    Example:
        >>> net = MLP(64, 10, depth=2, width=32, rngs=nnx.Rngs(0))
        >>> net(jnp.ones((5, 8, 8, 1))).shape
        (5, 10)
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        depth: int = 3,
        width: int = 512,
        dtype: DTypeLike | None = None,
        rngs: nnx.Rngs,
    ):
        sizes = [inputs, *[width] * depth, outputs]
        kernel = nnx.initializers.he_normal()
        self.layers = nnx.List(
            [
                nnx.Linear(before, after, kernel_init=kernel, dtype=dtype, rngs=rngs)
                for before, after in pairwise(sizes)
            ]
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x.reshape(x.shape[0], -1)
        *hidden, last = self.layers
        for layer in hidden:
            x = jax.nn.relu(layer(x))
        return _at_least_single(last(x))


class Recurrent(nnx.Module):
    """A recurrent cell that reads its input step by step, the rows of an image, and a dense layer on its last state.

    `rnn` has the cell `h ← tanh(W x + U h + b)`, `lstm` the usual gates. One permutation moves the units of the
    state, on both sides of `U`.

    Example:
        >>> net = Recurrent("rnn", 8, 10, width=32, rngs=nnx.Rngs(0))
        >>> net(jnp.ones((5, 8, 8, 1))).shape
        (5, 10)
    """

    def __init__(
        self,
        kind: str,
        inputs: int,
        outputs: int,
        *,
        width: int = 128,
        dtype: DTypeLike | None = None,
        rngs: nnx.Rngs,
    ):
        cell = nnx.SimpleCell if kind == "rnn" else nnx.OptimizedLSTMCell
        self.layer = nnx.RNN(cell(inputs, width, dtype=dtype, rngs=rngs))
        self.dense = nnx.Linear(width, outputs, dtype=dtype, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        states = jnp.asarray(self.layer(x.reshape(*x.shape[:2], -1)))
        return _at_least_single(self.dense(states[:, -1]))


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
        dtype: DTypeLike | None = None,
        rngs: nnx.Rngs,
    ):
        _check_norm(norm)
        self.stem = _ConvNorm(channels, width, 1, norm, dtype, rngs)
        self.stem_rectify = _make_rectifier(norm, width, dtype=dtype)
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
        return _at_least_single(self.dense(jnp.mean(x, axis=(-3, -2))))


class Block(nnx.Module):
    """Two convolutions beside a shortcut; halves the image where the number of channels changes."""

    def __init__(self, before: int, after: int, *, norm: str, dtype: DTypeLike | None, rngs: nnx.Rngs):
        stride = 1 if before == after else 2
        self.first = _ConvNorm(before, after, stride, norm, dtype, rngs)
        self.rectify_first = _make_rectifier(norm, after, dtype=dtype)
        self.second = _ConvNorm(after, after, 1, norm, dtype, rngs)
        self.shortcut = None if stride == 1 else _ConvNorm(before, after, stride, norm, dtype, rngs)
        self.rectify = _make_rectifier(norm, after, dtype=dtype)

    def __call__(self, x: jax.Array) -> jax.Array:
        branch = self.second(self.rectify_first(self.first(x)))
        return self.rectify((self.shortcut(x) if self.shortcut else x) + branch)


class VisionTransformer(nnx.Module):
    """Attention over the patches of NHWC images; returns logits.

    Parameters are float32; `dtype` is that of the arithmetic, by default the parameters' own. Logits have at least
    single precision.

    Example:
        >>> net = VisionTransformer((8, 8, 1), 10, width=16, depth=2, rngs=nnx.Rngs(0))
        >>> net(jnp.ones((5, 8, 8, 1))).shape
        (5, 10)
    """

    def __init__(
        self,
        shape: Sequence[int],
        outputs: int,
        *,
        width: int = 128,
        depth: int = 4,
        dtype: DTypeLike | None = None,
        rngs: nnx.Rngs,
    ):
        height, across, channels = shape
        tokens = (height // PATCH) * (across // PATCH)
        kernel = nnx.initializers.he_normal()
        self.embed = nnx.Linear(PATCH * PATCH * channels, width, kernel_init=kernel, dtype=dtype, rngs=rngs)
        self.positions = nnx.Param(0.1 * jax.random.normal(rngs.params(), (tokens, width)))
        self.blocks = nnx.List([AttentionBlock(width, dtype=dtype, rngs=rngs) for _ in range(depth)])
        self.norm = nnx.LayerNorm(width, epsilon=EPSILON, dtype=dtype, rngs=rngs)
        self.dense = nnx.Linear(width, outputs, dtype=dtype, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        batch, height, across, channels = x.shape
        x = x.reshape(batch, height // PATCH, PATCH, across // PATCH, PATCH, channels)
        x = jnp.moveaxis(x, 3, 2).reshape(batch, -1, PATCH * PATCH * channels)
        x = self.embed(x)
        x = x + self.positions[...].astype(x.dtype)
        for block in self.blocks:
            x = block(x)
        return _at_least_single(self.dense(jnp.mean(self.norm(x), axis=-2)))


class AttentionBlock(nnx.Module):
    """Attention and a hidden layer of twice the width, each after a norm and beside a shortcut."""

    def __init__(self, width: int, *, dtype: DTypeLike | None, rngs: nnx.Rngs):
        per_head = (HEADS, width // HEADS)
        self.norm, self.norm_hidden = (
            nnx.LayerNorm(width, epsilon=EPSILON, dtype=dtype, rngs=rngs) for _ in range(2)
        )
        self.query, self.key, self.value = (
            nnx.LinearGeneral(width, per_head, dtype=dtype, rngs=rngs) for _ in range(3)
        )
        self.out = nnx.LinearGeneral(per_head, width, axis=(-2, -1), dtype=dtype, rngs=rngs)
        kernel = nnx.initializers.he_normal()
        self.hidden = nnx.Linear(width, 2 * width, kernel_init=kernel, dtype=dtype, rngs=rngs)
        self.back = nnx.Linear(2 * width, width, dtype=dtype, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        y = self.norm(x)
        query, key, value = self.query(y), self.key(y), self.value(y)
        scores = jnp.einsum("bthd,bshd->bhts", query, key) / math.sqrt(query.shape[-1])
        weights = jax.nn.softmax(_at_least_single(scores), axis=-1).astype(value.dtype)
        x = x + self.out(jnp.einsum("bhts,bshd->bthd", weights, value))
        return x + self.back(jax.nn.relu(self.hidden(self.norm_hidden(x))))


class FilterResponseNorm(nnx.Module):
    """Divides each channel of NHWC images by its root mean square over the image."""

    def __init__(self, features: int, *, dtype: DTypeLike | None = None):
        self.gamma = nnx.Param(jnp.ones(features, jnp.float32))
        self.beta = nnx.Param(jnp.zeros(features, jnp.float32))
        self.dtype = dtype

    def __call__(self, x: jax.Array) -> jax.Array:
        wide = _at_least_single(x)  # squares of bfloat16 lose too much
        mean_square = jnp.mean(jnp.square(wide), axis=(-3, -2), keepdims=True)
        gamma, beta = (param[...].reshape((1,) * (x.ndim - 1) + (-1,)) for param in (self.gamma, self.beta))
        y = gamma * wide * jax.lax.rsqrt(mean_square + EPSILON) + beta
        return y.astype(self.dtype or common_dtype(x.dtype, gamma.dtype))


class Threshold(nnx.Module):
    """The rectifier `max(x, tau)` with a learned threshold for each channel; ReLU at the start."""

    def __init__(self, features: int, *, dtype: DTypeLike | None = None):
        self.tau = nnx.Param(jnp.zeros(features, jnp.float32))
        self.dtype = dtype

    def __call__(self, x: jax.Array) -> jax.Array:
        tau = self.tau[...].reshape((1,) * (x.ndim - 1) + (-1,))
        return jnp.maximum(x, tau if self.dtype is None else tau.astype(self.dtype))


class _ConvNorm(nnx.Module):
    def __init__(self, before: int, after: int, stride: int, norm: str, dtype: DTypeLike | None, rngs: nnx.Rngs):
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
        self.norm = _make_norm(norm, after, dtype=dtype, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.norm(self.conv(x))


def _make_norm(
    kind: str, features: int, *, dtype: DTypeLike | None = None, rngs: nnx.Rngs
) -> Callable[[jax.Array], jax.Array]:
    """The norm of this name: `layernorm` over the channels of each pixel, or `frn` over the image of each channel."""
    if kind == "frn":
        return FilterResponseNorm(features, dtype=dtype)
    return nnx.LayerNorm(features, epsilon=EPSILON, dtype=dtype, rngs=rngs)


def _make_rectifier(kind: str, features: int, *, dtype: DTypeLike | None = None) -> Callable[[jax.Array], jax.Array]:
    """The rectifier that goes with a norm: a learned threshold after `frn`, ReLU otherwise."""
    return Threshold(features, dtype=dtype) if kind == "frn" else jax.nn.relu


def _check_norm(kind: str) -> None:
    """Raises `ConfigError` for an unknown norm."""
    if kind not in NORMS:
        raise ConfigError(f"there is no norm '{kind}'; choose {' or '.join(NORMS)}")


def _at_least_single(x: jax.Array) -> jax.Array:
    return x.astype(common_dtype(x.dtype, jnp.float32))


def _check_count(what: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{what} must be a whole number of at least {least}, not {value!r}")
