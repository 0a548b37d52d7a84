"""The built-in models by name, through the same adapter that users call."""

import math
from collections.abc import Sequence
from typing import Any

from ..errors import ConfigError, did_you_mean
from .mlp import MLP
from .model import Model
from .nnx import from_nnx
from .norms import check_norm
from .resnet import ResNet20

WIDTHS = {"mlp": 512, "resnet20": 16}  # base widths of the papers


def build(
    name: str,
    input_shape: Sequence[int],
    classes: int,
    *,
    width: int | None = None,
    depth: int = 3,
    norm: str = "layernorm",
    dtype: Any = None,
) -> Model:
    """Returns a built-in model.

    Args:
        name: `mlp` or `resnet20`.
        input_shape: shape of one example, without the batch: (28, 28, 1) for MNIST.
        classes: number of outputs; for regression the width of the target.
        width: units of a hidden layer (`mlp`, 512), channels of the first stage (`resnet20`, 16).
        depth: hidden layers of an `mlp`; `resnet20` has 20 layers.
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
    if name == "mlp":
        return from_nnx(
            lambda rngs: MLP(math.prod(shape), classes, depth=depth, width=width, dtype=dtype, rngs=rngs), name=name
        )
    check_norm(norm)
    if len(shape) != 3:
        raise ConfigError(f"resnet20 takes images (height, width, channels), not an input of shape {shape}")
    return from_nnx(
        lambda rngs: ResNet20(shape[-1], classes, width=width, norm=norm, dtype=dtype, rngs=rngs), name=name
    )


def _check_count(what: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{what} must be a whole number of at least {least}, not {value!r}")
