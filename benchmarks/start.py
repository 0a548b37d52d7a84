"""What a user waits for before anything is computed: seconds of loading data and of discovery, trace included.

    python benchmarks/start.py

Wall-clock seconds beside their targets: the best of three loads, the first discovery.
"""

import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp

import bayesin
from bayesin import models
from bayesin.data import load
from bayesin.errors import DataError

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from transformer import Transformer

TARGETS = {"mnist": 1.0, "fashion-mnist": 1.0, "cifar10": 3.0, "cifar100": 3.0}


def main() -> None:
    print("seconds")
    for name, target in TARGETS.items():
        try:
            report(f"load {name}", best(lambda name=name: load(name)), target)
        except DataError:
            print(f"  load {name:<22} not found here")
    resnet = models.build("resnet20", (32, 32, 3), 10)
    report("discover ResNet20", discovery(resnet, jax.ShapeDtypeStruct((8, 32, 32, 3), jnp.float32)), 1.0)
    transformer = models.from_nnx(Transformer)
    report("discover a 12-layer transformer", discovery(transformer, jax.ShapeDtypeStruct((2, 128), jnp.int32)), 3.0)


def discovery(model: models.Model, x: jax.ShapeDtypeStruct) -> float:
    params = jax.eval_shape(model.init, jax.random.key(0))
    return _seconds(lambda: bayesin.discover(model.apply, params, x))  # once: JAX remembers what it has traced


def best(work) -> float:
    return min(_seconds(work) for _ in range(3))


def report(what: str, seconds: float, target: float) -> None:
    print(f"  {what:<32} {seconds:6.2f}   (target: under {target:g})")


def _seconds(work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
