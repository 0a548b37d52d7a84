"""Speed on an accelerator: training, what slows it, and the similarity of an alignment.

    python benchmarks/gpu.py                   every row, printed as soon as it is measured
    python benchmarks/gpu.py --seconds 300     begin no row after so many seconds
    python benchmarks/gpu.py --tiny            a dry run of every row at toy size, on a CPU too

Data are random numbers of MNIST's and CIFAR-10's shapes. A step's time is that of the fastest logging interval;
seconds are all of a call, compilation included.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import jax
import numpy as np

from _align_problems import mlp_spec, random_gaussian, random_point, resnet20_spec
from bayesin import VI, fit_vi
from bayesin.matching.descent import descend
from bayesin.matching.features import build as build_problem
from bayesin.matching.similarity import Similarities
from bayesin.models import build
from train import _data, _fixed_noise, _seconds

Row = tuple[str, Callable[[], str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="toy sizes: whether every row runs")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no row after this time")
    parser.add_argument("--only", default="", help="rows whose name holds this text")
    options = parser.parse_args()
    began = time.perf_counter()
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}", flush=True)
    for name, measure in rows(options.tiny):
        if options.only not in name:
            continue
        if time.perf_counter() - began > options.seconds:
            print(f"{name}: left out, the time is used up", flush=True)
            continue
        print(f"{name}: {measure()}", flush=True)


def rows(tiny: bool) -> Iterator[Row]:
    """Names and measurements, the targets first."""
    yield "64 MNIST MLP 3x512, 100 epochs (target under 180 s)", lambda: many(tiny)
    yield "ResNet20 16 features, float32 (target under 4 ms)", lambda: resnet(tiny)
    yield "ResNet20 16 features, bfloat16", lambda: resnet(tiny, compute="bfloat16")
    for size in ("mlp512", "mlp2048", "resnet4"):
        yield f"similarity, {size}, Gaussians", lambda size=size: similarity(size, tiny, random_gaussian)
    yield "similarity, resnet4, points", lambda: similarity("resnet4", tiny, random_point)
    # What the time of a ResNet step is spent on: products in full float32, the norm, the random numbers.
    for precision in ("highest", "tensorfloat32", "bfloat16"):
        yield f"ResNet20, float32, products in {precision}", lambda p=precision: resnet(tiny, precision=p)
    yield "ResNet20, float32, norm over the image (frn)", lambda: resnet(tiny, norm="frn")
    yield "ResNet20, float32, fixed noise", lambda: resnet(tiny, fixed=True)
    yield "ResNet20, float32, gradient of one network alone", lambda: gradient(tiny)


def many(tiny: bool) -> str:
    """Many posteriors side by side."""
    members, epochs, count = (3, 2, 1_000) if tiny else (64, 100, 60_000)
    model = build("mlp", (28, 28, 1), 10, width=32 if tiny else 512)
    config = VI(members=members, epochs=epochs, batch=500, parallel="vmap", log_every=2 if tiny else 600)
    clock = time.perf_counter()
    fit = fit_vi(jax.random.key(0), model, _data(count, (28, 28, 1)), config)
    seconds, step = time.perf_counter() - clock, 1 / np.max(fit.trace["steps_per_second"])
    return f"{seconds:.1f} s, {1e3 * step:.2f} ms a step of all {members}, {fit.memory.member / 1e6:.1f} MB a member"


def resnet(
    tiny: bool, compute: Any = "float32", precision: str | None = None, norm: str = "layernorm", fixed: bool = False
) -> str:
    """One ResNet20, batch 500."""
    shape, count, batch = ((8, 8, 3), 80, 20) if tiny else ((32, 32, 3), 25_000, 500)
    model = build("resnet20", shape, 10, width=4 if tiny else 16, norm=norm)
    config = VI(epochs=2 if tiny else 6, batch=batch, compute=compute, clip=5.0)
    products = jax.default_matmul_precision(precision) if precision else nullcontext()
    with products, _fixed_noise() if fixed else nullcontext():
        fit = fit_vi(jax.random.key(0), model, _data(count, shape), config)
    step, first = 1 / np.max(fit.trace["steps_per_second"]), fit.trace["seconds"][0]
    return f"{1e3 * step:.2f} ms a step (first epoch, compilation included, {first:.0f} s)"


def gradient(tiny: bool) -> str:
    """The network and its derivative without inference: the floor of a step."""
    shape, batch, length = ((8, 8, 3), 20, 2) if tiny else ((32, 32, 3), 500, 50)
    model = build("resnet20", shape, 10, width=4 if tiny else 16)
    x, y = _data(batch, shape)

    def loss(params):
        return -jax.nn.log_softmax(model.apply(params, x))[np.arange(batch), y].mean()

    def step(params, _):
        slope = jax.grad(loss)(params)
        return jax.tree.map(lambda w, g: w - np.float32(1e-3) * g, params, slope), None

    program = jax.jit(lambda params: jax.lax.scan(step, params, length=length)[0])
    params = jax.block_until_ready(program(model.init(jax.random.key(0))))
    best = min(_seconds(lambda: jax.block_until_ready(program(params))) for _ in range(2 if tiny else 5))
    return f"{1e3 * best / length:.2f} ms a step"


def similarity(size: str, tiny: bool, posterior: Callable) -> str:
    """The same search with the similarity on the host and on the device: permutations and times."""
    spec = {
        "mlp512": lambda: mlp_spec(784, 512, 512, 512, 10) if not tiny else mlp_spec(20, 16, 16, 10),
        "mlp2048": lambda: mlp_spec(784, 2048, 2048, 2048, 10) if not tiny else mlp_spec(20, 24, 24, 10),
        "resnet4": lambda: resnet20_spec(4) if not tiny else resnet20_spec(1),
    }[size]()
    problem = build_problem(posterior(0, spec), posterior(1, spec), spec, "wasserstein", frozenset())
    rng = np.random.default_rng(0)
    order = [tuple(str(group) for group in rng.permutation(list(spec.sizes))) for _ in range(100)]
    found, text = {}, []
    for place in ("host", "device"):
        times = []
        for _ in range(3):  # the first call on the device compiles
            clock = time.perf_counter()
            similarities = Similarities(problem, on_device=place == "device")
            found[place] = descend(similarities, spec.identity(), order, 1e-7)
            times.append(time.perf_counter() - clock)
        spent = found[place].seconds
        text.append(
            f"{place} {min(times):.3f} s (first {times[0]:.2f}; similarity {spent['similarity']:.3f}, "
            f"assignment {spent['assignment']:.3f})"
        )
    same = all((found["host"].perms[group] == perm).all() for group, perm in found["device"].perms.items())
    return f"{'; '.join(text)}; same permutations: {'yes' if same else 'NO'}; {found['host'].sweeps} sweeps"


if __name__ == "__main__":
    main()
