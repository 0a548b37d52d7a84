"""Alignment over several devices, simulated on a CPU: the layers of a network sharded over a mesh.

    python benchmarks/devices.py --devices 4

Within a sweep the hidden units of different layers do not see each other once the stream between the layers is held.
So a sweep has two rounds. First the stream: each device adds up the products of its own layers, and one `psum` of
(stream × stream) numbers is all that travels. Then the hidden units: every device has the similarities of its layers,
and gives their permutations. The permutations must be those of `align` at the same order of visits.
"""

import argparse
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

if __name__ == "__main__":  # before JAX counts its devices
    count = sys.argv[sys.argv.index("--devices") + 1] if "--devices" in sys.argv else "4"
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={count}"
    os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from bayesin import PermutationSpec, align
from bayesin.matching import assign

LAYERS, STREAM, HIDDEN, WORDS = 8, 48, 96, 5
SHARDED = P("layer")
exactly = partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--devices", type=int, default=4, help="how many the CPU pretends to be; divides the 8 layers"
    )
    devices = parser.parse_args().devices
    target, source = (weights(seed) for seed in (0, 1))
    perms, sweeps = align_sharded(target, source, Mesh(np.array(jax.devices()), ("layer",)))
    order = [("s", *(f"m{layer}" for layer in range(LAYERS)))] * 100
    found = align(apart(target), apart(source), spec(), key=jax.random.key(0), order=order)
    same = (found.perms["s"] == perms["s"]).all()
    same &= all((found.perms[f"m{layer}"] == perms["m"][layer]).all() for layer in range(LAYERS))
    print(f"{devices} devices, {sweeps} sweeps (align: {found.sweeps}); same permutations: {'yes' if same else 'NO'}")
    sys.exit(not same)


def align_sharded(target: dict, source: dict, mesh: Mesh) -> tuple[dict[str, np.ndarray], int]:
    """Sweeps until nothing moves; returns the permutations of the stream and of every layer's hidden units."""
    put = {name: NamedSharding(mesh, P() if name == "embed" else SHARDED) for name in target}
    target, source = (jax.device_put(tree, put) for tree in (target, source))
    stream = jax.jit(
        jax.shard_map(
            of_stream, mesh=mesh, in_specs=(*[{name: put[name].spec for name in put}] * 2, SHARDED), out_specs=P()
        )
    )
    hidden = jax.jit(of_hidden, out_shardings=NamedSharding(mesh, SHARDED))
    perms = {"s": np.arange(STREAM), "m": np.tile(np.arange(HIDDEN), (LAYERS, 1))}
    with ThreadPoolExecutor(len(jax.devices())) as pool:
        for sweep in range(1, 101):
            before = {group: perm.copy() for group, perm in perms.items()}
            perms["s"] = assign(np.asarray(stream(target, source, perms["m"]))).perm
            shards = hidden(target, source, perms["s"]).addressable_shards
            for shard, own in zip(shards, pool.map(assigned, shards), strict=True):
                perms["m"][shard.index[0]] = own
            if all((perms[group] == before[group]).all() for group in perms):
                return perms, sweep
    raise RuntimeError("no end after 100 sweeps")


def assigned(shard: jax.Shard) -> np.ndarray:
    """What one device does for its layers."""
    return np.stack([assign(matrix).perm for matrix in np.asarray(shard.data)])


def of_stream(target: dict, source: dict, perms: jax.Array) -> jax.Array:
    """The similarity of the stream's units: a device's own layers, then the sum over devices."""
    up = jax.vmap(lambda leaf, perm: leaf[:, perm])(source["up"], perms)
    down = jax.vmap(lambda leaf, perm: leaf[perm])(source["down"], perms)
    own = exactly("lim,ljm->ij", target["up"], up) + exactly("lmi,lmj->ij", target["down"], down)
    own += exactly("li,lj->ij", target["gain"], source["gain"])
    return jax.lax.psum(own, "layer") + exactly("vi,vj->ij", target["embed"], source["embed"])


def of_hidden(target: dict, source: dict, perm: jax.Array) -> jax.Array:
    """The similarities of all layers' hidden units, each where its layer is."""
    similarity = exactly("lsi,lsj->lij", target["up"], source["up"][:, perm])
    return similarity + exactly("lis,ljs->lij", target["down"], source["down"][:, :, perm])


def weights(seed: int) -> dict[str, np.ndarray]:
    """A network's weights, those of all layers stacked."""
    rng = np.random.default_rng(seed)
    shapes = {"up": (LAYERS, STREAM, HIDDEN), "down": (LAYERS, HIDDEN, STREAM), "gain": (LAYERS, STREAM)}
    shapes["embed"] = (WORDS, STREAM)
    return {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def apart(stacked: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same with a tensor for each layer."""
    layers = {f"{name}{at}": stacked[name][at] for name in ("up", "down", "gain") for at in range(LAYERS)}
    return layers | {"embed": stacked["embed"]}


def spec() -> PermutationSpec:
    """Which axes move together."""
    axes = {"embed": [str(WORDS), "s"]}
    for at in range(LAYERS):
        axes |= {f"up{at}": ["s", f"m{at}"], f"down{at}": [f"m{at}", "s"], f"gain{at}": ["s"]}
    return PermutationSpec.parse(axes, {"s": STREAM} | {f"m{at}": HIDDEN for at in range(LAYERS)})


if __name__ == "__main__":
    main()
