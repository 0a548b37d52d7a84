"""Where members are computed: after one another, side by side, on one device or on several.

A *lane* is a stack of members that one call of the compiled program advances. `sequence` has lanes of one
member a device, all through the same program, so that a member's bits cannot depend on how many others there
are; `vmap` has a single lane. On several devices a lane is spread over a mesh by members, each device on
its own; or, when there are fewer members than devices, every batch is spread and gradients are summed.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from ..errors import ConfigError
from .settings import Training
from .training_step import MemberHyperparameters, Shared, State, TrainingPlan, advance, evaluate_mean

AXIS = "devices"


@dataclass(frozen=True)
class Arrangement:
    """How members are laid out; static and hashable."""

    members: int
    width: int  # members in one lane, over all devices
    mesh: Mesh | None = None
    spread: Literal["members", "batch"] = "members"

    @property
    def lanes(self) -> int:
        return -(-self.members // self.width)

    @property
    def by_member(self) -> bool:
        return self.mesh is not None and self.spread == "members"


def arrange(config: Training, members: int, convolutional: bool, devices: list[Any]) -> Arrangement:
    """Returns the arrangement that the settings ask for on these devices."""
    side_by_side = config.parallel == "vmap"
    if config.parallel == "auto":  # measured: on a CPU vmap gains nothing, vmapped convolutions lose 2.4 times
        side_by_side = devices[0].platform != "cpu" and not convolutional
    if len(devices) == 1 or config.shard == "none":
        return Arrangement(members, members if side_by_side else 1)
    mesh = Mesh(np.array(devices), (AXIS,))
    spread = config.shard if config.shard != "auto" else "members" if members >= len(devices) else "batch"
    if spread == "batch":
        if config.batch % len(devices):
            raise ConfigError(
                f"a batch of {config.batch} cannot be spread over {len(devices)} devices; "
                "choose a multiple, or shard='none'"
            )
        return Arrangement(members, members if side_by_side else 1, mesh, "batch")
    width = -(-members // len(devices)) * len(devices) if side_by_side else len(devices)
    return Arrangement(members, width, mesh)


def place(arrangement: Arrangement, trees: list[Any]) -> list[Any]:
    """Returns one tree for each member as lanes on the devices; the last lane is filled up with copies."""
    filled = trees + [trees[0]] * (arrangement.lanes * arrangement.width - arrangement.members)
    lanes = []
    for start in range(0, len(filled), arrangement.width):
        lane = jax.tree.map(lambda *leaves: jnp.stack(leaves), *filled[start : start + arrangement.width])
        spec = P(AXIS) if arrangement.by_member else P()
        lanes.append(
            lane if arrangement.mesh is None else jax.device_put(lane, NamedSharding(arrangement.mesh, spec))
        )
    return lanes


def place_shared(arrangement: Arrangement, shared: Any) -> Any:
    """Returns the data on every device."""
    target = None if arrangement.mesh is None else NamedSharding(arrangement.mesh, P())
    return jax.device_put(shared, target)


def collect(arrangement: Arrangement, lanes: list[Any]) -> Any:
    """Returns lanes as one host tree whose leaves have a leading axis over all members."""
    fetched = jax.device_get(lanes)
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[: arrangement.members], *fetched)


def batch_sharding(arrangement: Arrangement) -> Any:
    """What a batch is spread by; None where it is not."""
    spreads = arrangement.mesh is not None and arrangement.spread == "batch"
    return NamedSharding(arrangement.mesh, P(AXIS)) if spreads else None  # pyright: ignore[reportArgumentType]


def compiled_advance(plan: TrainingPlan, arrangement: Arrangement, *args: Any) -> Any:
    """Returns the compiled program of one lane for arguments like these; compiled once, whatever their values."""
    return _compile(plan, arrangement.mesh if arrangement.by_member else None, "advance", *_signature(args))


def compiled_evaluation(plan: TrainingPlan, arrangement: Arrangement, *args: Any) -> Any:
    """Returns the compiled look at the test set of one lane."""
    return _compile(plan, arrangement.mesh if arrangement.by_member else None, "evaluate", *_signature(args))


@functools.lru_cache(maxsize=64)
def _compile(plan: TrainingPlan, mesh: Mesh | None, what: str, structure: Any, leaves: tuple[Any, ...]) -> Any:
    function = functools.partial(_advance_lane if what == "advance" else _evaluate_lane, plan)
    if mesh is not None:
        specs = (P(AXIS), P(AXIS), P(), P())
        function = jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=P(AXIS), check_vma=False)
    jitted = jax.jit(function, donate_argnums=(0,) if what == "advance" else ())
    return jitted.lower(*jax.tree.unflatten(structure, leaves)).compile()


def _signature(args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    leaves, structure = jax.tree.flatten(args)
    return structure, tuple(
        jax.ShapeDtypeStruct(np.shape(leaf), leaf.dtype, sharding=getattr(leaf, "sharding", None)) for leaf in leaves
    )


def _advance_lane(
    plan: TrainingPlan, states: State, members: MemberHyperparameters, shared: Shared, start: jax.Array
) -> Any:
    return _over_members(lambda state, member: advance(plan, state, member, shared, start), states, members)


def _evaluate_lane(
    plan: TrainingPlan, states: State, members: MemberHyperparameters, x: jax.Array, y: jax.Array
) -> Any:
    return _over_members(lambda state, member: evaluate_mean(plan, state, member, x, y), states, members)


def _over_members(function: Callable[..., Any], states: State, members: MemberHyperparameters) -> Any:
    """A lone member is not vmapped: its program is the same whatever the number of members."""
    if members.temperature.shape[0] > 1:
        return jax.vmap(function)(states, members)
    state, member = jax.tree.map(lambda leaf: leaf[0], (states, members))
    return jax.tree.map(lambda leaf: leaf[None], function(state, member))
