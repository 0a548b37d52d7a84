"""Ways to write the same ResNet20 for an accelerator, to see which one its gradient is fastest in.

`network(conv, norm)` takes the parameters of `build("resnet20", ...)` with LayerNorm and computes the same outputs.

Convolutions: `plain`, or `packed` so that several neighbouring pixels of a row stand side by side as channels, since
sixteen channels leave a matrix unit idle. An image (height, width, channels) is in memory the image (height,
width / p, p channels); its kernel is then a banded matrix over p pixels, half zeros for p = 2, three quarters for 4.

Norms: `flax` as the library has it, `one_pass` with a derivative written by hand, `kernel` as one Pallas kernel each
for the norm with its shortcut and rectifier, and for its derivative.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

EPSILON = 1e-6
BLOCK = 8192  # numbers that one program of a Pallas kernel works on

Norm = Callable[[jax.Array, Any, jax.Array | None], jax.Array]  # (x, gains and biases, shortcut) -> rectified


def network(conv: str = "plain", norm: str = "flax", fill: int = 64) -> Callable[[Any, jax.Array], jax.Array]:
    """Returns `apply(params, x)`; `fill` is the number of channels that packing aims at."""
    convolve = plain if conv == "plain" else partial(packed, fill=fill)
    rectified: Norm = {"flax": as_flax, "one_pass": one_pass, "kernel": as_kernel}[norm]

    def conv_norm(params: Any, x: jax.Array, stride: int, shortcut: jax.Array | None, rectify: bool = True):
        y = convolve(x, params["conv"]["kernel"], stride)
        return (rectified if rectify else layer_norm)(y, params["norm"], shortcut)

    def apply(params: Any, x: jax.Array) -> jax.Array:
        x = conv_norm(params["stem"], x, 1, None)
        for number in range(9):
            block = params["blocks"][str(number)]
            stride = 2 if "shortcut" in block else 1
            branch = conv_norm(block["first"], x, stride, None)
            aside = conv_norm(block["shortcut"], x, stride, None, rectify=False) if stride == 2 else x
            x = conv_norm(block["second"], branch, 1, aside)
        dense = params["dense"]
        return (jnp.mean(x, (1, 2)) @ dense["kernel"] + dense["bias"]).astype(jnp.float32)

    return apply


def plain(x: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    return lax.conv_general_dilated(x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def packed(x: jax.Array, kernel: jax.Array, stride: int, fill: int) -> jax.Array:
    """The same convolution with pixels of a row as channels; plain where it has channels enough."""
    count, height, width, channels = x.shape
    after = kernel.shape[-1]
    out = 1
    while after * out * 2 <= fill and width % (stride * out * 2) == 0:
        out *= 2
    if out == 1:
        return plain(x, kernel, stride)
    into = stride * out  # pixels of the input beside those of the output
    low = (3 - stride) // 2  # of SAME, for even sizes
    first, last = -low // into, (stride * (out - 1) + 2 - low) // into  # blocks that an output block sees
    length = (last - first + 1) * into
    starts = [stride * pixel - low - first * into for pixel in range(out)]
    bands = [jnp.pad(kernel, ((0, 0), (s, length - 3 - s), (0, 0), (0, 0))) for s in starts]
    banded = jnp.stack(bands, axis=3).reshape(3, last - first + 1, into * channels, out * after)
    y = lax.conv_general_dilated(
        x.reshape(count, height, width // into, into * channels),
        banded,
        (stride, 1),
        ((low, 2 - stride + 1 - low if stride == 1 else 1), (-first, last)),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    return y.reshape(count, height // stride, width // stride, after)


def layer_norm(x: jax.Array, params: Any, shortcut: jax.Array | None = None) -> jax.Array:
    """As flax computes it: in float32 whatever it is given."""
    wide = x.astype(jnp.float32)
    mean, square = jnp.mean(wide, -1, keepdims=True), jnp.mean(wide * wide, -1, keepdims=True)
    variance = jnp.maximum(0.0, square - mean * mean)
    y = (x - mean) * (lax.rsqrt(variance + EPSILON) * params["scale"]) + params["bias"]
    return y.astype(x.dtype)


def as_flax(x: jax.Array, params: Any, shortcut: jax.Array | None) -> jax.Array:
    y = layer_norm(x, params)
    return jax.nn.relu(y if shortcut is None else shortcut + y)


def one_pass(x: jax.Array, params: Any, shortcut: jax.Array | None) -> jax.Array:
    aside = jnp.zeros((), x.dtype) if shortcut is None else shortcut
    return _one_pass(x, params["scale"], params["bias"], aside)


@jax.custom_vjp
def _one_pass(x: jax.Array, scale: jax.Array, bias: jax.Array, shortcut: jax.Array) -> jax.Array:
    return as_flax(x, {"scale": scale, "bias": bias}, shortcut)


def _one_pass_forward(x: jax.Array, scale: jax.Array, bias: jax.Array, shortcut: jax.Array):
    y = _one_pass(x, scale, bias, shortcut)
    return y, (x, scale, y, shortcut)


def _one_pass_backward(kept: Any, slope: jax.Array):
    x, scale, y, shortcut = kept
    wide = x.astype(jnp.float32)
    mean, square = jnp.mean(wide, -1, keepdims=True), jnp.mean(wide * wide, -1, keepdims=True)
    rate = lax.rsqrt(jnp.maximum(0.0, square - mean * mean) + EPSILON)
    g = jnp.where(y > 0, slope, 0).astype(jnp.float32)
    unit, scaled = (wide - mean) * rate, g * scale
    inner, level = jnp.mean(scaled * unit, -1, keepdims=True), jnp.mean(scaled, -1, keepdims=True)
    down = rate * (scaled - level - unit * inner)
    axes = tuple(range(x.ndim - 1))
    gains, biases = jnp.sum(g * unit, axes), jnp.sum(g, axes)
    aside = jnp.zeros_like(shortcut) if shortcut.ndim == 0 else g.astype(x.dtype)
    return down.astype(x.dtype), gains.astype(scale.dtype), biases.astype(scale.dtype), aside


_one_pass.defvjp(_one_pass_forward, _one_pass_backward)


def as_kernel(x: jax.Array, params: Any, shortcut: jax.Array | None) -> jax.Array:
    if shortcut is None:
        return _kernel_alone(x, params["scale"], params["bias"])
    return _kernel_beside(x, params["scale"], params["bias"], shortcut)


@jax.custom_vjp
def _kernel_alone(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    return _forward(x, scale, bias, None)


@jax.custom_vjp
def _kernel_beside(x: jax.Array, scale: jax.Array, bias: jax.Array, shortcut: jax.Array) -> jax.Array:
    return _forward(x, scale, bias, shortcut)


def _kept(x: jax.Array, scale: jax.Array, bias: jax.Array, shortcut: jax.Array | None = None):
    y = _forward(x, scale, bias, shortcut)
    return y, (x, scale, y)


def _forward(x: jax.Array, scale: jax.Array, bias: jax.Array, shortcut: jax.Array | None) -> jax.Array:
    def kernel(*refs: Any) -> None:
        x_ref, scale_ref, bias_ref, *aside, y_ref = refs
        wide = x_ref[...].astype(jnp.float32)
        unit, _ = _standardised(wide)
        y = unit * scale_ref[...].astype(jnp.float32) + bias_ref[...].astype(jnp.float32)
        y = y.astype(y_ref.dtype)
        if aside:
            y = y + aside[0][...]
        y_ref[...] = jnp.maximum(y, 0)

    given = [x, *([] if shortcut is None else [shortcut])]
    flat, rows, channels, grid = _rows(x)
    image, vector = pl.BlockSpec((rows, channels), lambda i: (i, 0)), pl.BlockSpec((1, channels), lambda i: (0, 0))
    y = _call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(flat, x.dtype),
        grid=grid,
        in_specs=[image, vector, vector, *[image] * (len(given) - 1)],
        out_specs=image,
    )(x.reshape(flat), scale[None], bias[None], *[a.reshape(flat) for a in given[1:]])
    return y.reshape(x.shape)


def _backward(kept: Any, slope: jax.Array):
    x, scale, y = kept

    def kernel(x_ref, scale_ref, y_ref, slope_ref, down_ref, aside_ref, gains_ref, biases_ref) -> None:
        wide = x_ref[...].astype(jnp.float32)
        unit, rate = _standardised(wide)
        g = jnp.where(y_ref[...] > 0, slope_ref[...], 0).astype(jnp.float32)
        scaled = g * scale_ref[...].astype(jnp.float32)
        inner, level = _mean(scaled * unit), _mean(scaled)
        down_ref[...] = (rate * (scaled - level - unit * inner)).astype(down_ref.dtype)
        aside_ref[...] = g.astype(aside_ref.dtype)
        gains_ref[...] = jnp.sum(g * unit, 0, keepdims=True)
        biases_ref[...] = jnp.sum(g, 0, keepdims=True)

    flat, rows, channels, grid = _rows(x)
    image, vector = pl.BlockSpec((rows, channels), lambda i: (i, 0)), pl.BlockSpec((1, channels), lambda i: (0, 0))
    part = pl.BlockSpec((1, channels), lambda i: (i, 0))
    partial_sums = jax.ShapeDtypeStruct((*grid, channels), jnp.float32)
    down, aside, gains, biases = _call(
        kernel,
        out_shape=(*[jax.ShapeDtypeStruct(flat, x.dtype)] * 2, partial_sums, partial_sums),
        grid=grid,
        in_specs=[image, vector, image, image],
        out_specs=(image, image, part, part),
    )(x.reshape(flat), scale[None], y.reshape(flat), slope.reshape(flat))
    gains, biases = (jnp.sum(sums, 0).astype(scale.dtype) for sums in (gains, biases))
    return down.reshape(x.shape), gains, biases, aside.reshape(x.shape)


_kernel_alone.defvjp(_kept, lambda kept, slope: _backward(kept, slope)[:3])
_kernel_beside.defvjp(_kept, _backward)


def _mean(x: jax.Array) -> jax.Array:
    return jnp.sum(x, -1, keepdims=True) * (1.0 / x.shape[-1])


def _standardised(wide: jax.Array) -> tuple[jax.Array, jax.Array]:
    centred = wide - _mean(wide)
    rate = lax.rsqrt(_mean(centred * centred) + EPSILON)
    return centred * rate, rate


def _rows(x: jax.Array) -> tuple[tuple[int, int], int, int, tuple[int]]:
    """The array as (pixels, channels), the pixels of one program, the channels, and how many programs there are."""
    channels = x.shape[-1]
    pixels, rows = x.size // channels, BLOCK // channels
    while pixels % rows:
        rows //= 2
    return (pixels, channels), rows, channels, (pixels // rows,)


def _call(kernel: Any, **settings: Any) -> Any:
    if jax.default_backend() == "cpu":
        return pl.pallas_call(kernel, **settings, interpret=True)
    from jax.experimental.pallas import triton

    return pl.pallas_call(kernel, **settings, compiler_params=triton.CompilerParams(num_warps=4))
