"""The optimiser without its rate, and the rate without its scale, so that a grid can share one program.

    update = −rate · shape(step) · direction(gradient)

`direction` is optax's Adam or heavy-ball momentum behind global-norm clipping; `shape` rises from
1/(warmup + 1) to 1 and then stays or falls to 0 along a cosine.
"""

from typing import Literal

import optax


def direction(kind: Literal["adam", "sgd"], momentum: float, clip: float) -> optax.GradientTransformation:
    """Returns the optimiser with rate 1; the caller multiplies by minus the rate."""
    clipped = [optax.clip_by_global_norm(clip)] if clip else []
    inner = optax.scale_by_adam() if kind == "adam" else optax.trace(momentum) if momentum else optax.identity()
    return optax.chain(*clipped, inner)


def rate_shape(schedule: Literal["constant", "cosine"], warmup: int, steps: int) -> optax.Schedule:
    """Returns the rate as a share of its peak, as a function of the step.

    Example:
        >>> [round(float(rate_shape("cosine", 0, 100)(step)), 3) for step in (0, 50, 100)]
        [1.0, 0.5, 0.0]
        >>> [round(float(rate_shape("constant", 3, 100)(step)), 3) for step in (0, 1, 2, 3)]
        [0.25, 0.5, 0.75, 1.0]
    """
    after = max(steps - warmup, 1)
    body = optax.cosine_decay_schedule(1.0, after) if schedule == "cosine" else optax.constant_schedule(1.0)
    if not warmup:
        return body
    rise = optax.linear_schedule(1.0 / (warmup + 1), 1.0, warmup)
    return optax.join_schedules([rise, body], [warmup])
