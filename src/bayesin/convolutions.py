"""Whether a network convolves; several such networks side by side are slow."""

from collections.abc import Callable
from typing import Any

import jax

from .trees import Tree


def has_convolution(apply: Callable[[Tree, Any], Any], params: Tree, x: Any) -> bool:
    """Whether a convolution stands anywhere in the network; vmapped over weights it becomes a slow grouped one."""
    return "conv_general_dilated" in str(jax.make_jaxpr(apply)(params, x))
