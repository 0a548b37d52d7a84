"""Speed on an accelerator: training, what slows it, and the similarity of an alignment.

    python benchmarks/gpu.py                   every row, printed as soon as it is measured
    python benchmarks/gpu.py --seconds 300     begin no row after so many seconds
    python benchmarks/gpu.py --tiny            a dry run of every row at toy size, on a CPU too

Data are random numbers of MNIST's and CIFAR-10's shapes. A step's time is that of the fastest logging interval;
seconds are all of a call, compilation included.
"""

import argparse
import gzip
import json
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jax
import numpy as np

from _align_problems import mlp_spec, random_gaussian, random_point, resnet20_spec
from _resnet_variants import network
from bayesin import VI, fit_vi
from bayesin.matching import Similarities, costs, descend, pose
from bayesin.models import build
from train import _data, _fixed_noise, _seconds

Row = tuple[str, Callable[[], str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="toy sizes: whether every row runs")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no row after this time")
    parser.add_argument("--only", default="", help="rows whose name holds this text")
    parser.add_argument("--ways", nargs="*", default=[], help="of the row of ways to write ResNet20: these alone")
    options = parser.parse_args()
    began = time.perf_counter()
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}", flush=True)
    for name, measure in rows(options.tiny, options.ways):
        if options.only not in name:
            continue
        if time.perf_counter() - began > options.seconds:
            print(f"{name}: left out, the time is used up", flush=True)
            continue
        print(f"{name}: {measure()}", flush=True)


def rows(tiny: bool, chosen: list[str]) -> Iterator[Row]:
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
    yield "ResNet20, float32, kernels of that gradient", lambda: kernels(tiny)
    yield "ResNet20, float32, limits of that gradient", lambda: limits(tiny)
    yield "ways to write ResNet20, bfloat16, gradient of one network alone", lambda: ways(tiny, chosen)


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
    program, params, length = _gradient_steps(tiny)
    jax.block_until_ready(program(params))
    best = min(_seconds(lambda: jax.block_until_ready(program(params))) for _ in range(2 if tiny else 5))
    return f"{1e3 * best / length:.2f} ms a step"


def kernels(tiny: bool) -> str:
    """What the gradient's time goes to, by the profiler: kernels of the device, grouped."""
    program, params, length = _gradient_steps(tiny)
    jax.block_until_ready(program(params))
    return _profile(program, params, length)


def ways(tiny: bool, chosen: list[str]) -> str:
    """The same gradient with its convolutions and norms written otherwise; timed in turns, then profiled."""
    named = {
        "as it is": None,
        "packed to 64 channels": network("packed"),
        "packed to 64, one-pass norm": network("packed", "one_pass"),
        "packed to 64, norm as a kernel": network("packed", "kernel"),
        "norm as a kernel": network("plain", "kernel"),
        "packed to 32, norm as a kernel": network("packed", "kernel", fill=32),
    }
    began, programs, length = time.perf_counter(), {}, 0
    for name in chosen or named:
        clock = time.perf_counter()
        try:
            program, params, length = _gradient_steps(tiny, named[name], jax.numpy.bfloat16)
            program = program.lower(params).compile()
            jax.block_until_ready(program(params))
        except Exception as error:  # a way that this machine cannot compile must not hide the others
            print(f"  {name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
            continue
        programs[name] = (program, params)
        print(f"  {name}: compiled in {time.perf_counter() - clock:.0f} s", flush=True)
    best = dict.fromkeys(programs, np.inf)
    for _ in range(2 if tiny else 12):
        for name, (program, params) in programs.items():
            best[name] = min(best[name], _seconds(lambda: jax.block_until_ready(program(params))))  # noqa: B023
    for name, seconds in best.items():
        print(f"  {name}: {1e3 * seconds / length:.2f} ms a step", flush=True)
    for name, (program, params) in programs.items():
        print(f"  {name}: {_profile(program, params, length)}", flush=True)
    return f"{time.perf_counter() - began:.0f} s in all"


def _profile(program: Any, params: Any, length: int) -> str:
    """Milliseconds of a step by kind of kernel."""
    spent: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(program(params))
        for path in Path(folder).rglob("*.trace.json.gz"):
            spent.update(_kernel_times(json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]))
    if not spent:
        return "the profiler saw no kernels of an accelerator"
    total = sum(spent.values()) / length
    return f"{total:.2f} ms: " + ", ".join(f"{name} {ms / length:.2f}" for name, ms in spent.most_common(8))


def limits(tiny: bool) -> str:
    """How fast the device could be: its matrix and copy rates, against what the program multiplies and moves."""
    program, params, _ = _gradient_steps(tiny)
    cost = program.lower(params).compile().cost_analysis()
    size = 256 if tiny else 8192
    a = jax.numpy.ones((size, size), jax.numpy.float32)
    multiply, copy = jax.jit(lambda a: a @ a), jax.jit(lambda a: a + 1)
    wide = jax.numpy.ones(size * size * (1 if tiny else 8), jax.numpy.float32)
    rates = []
    for function, argument in ((multiply, a), (copy, wide)):
        jax.block_until_ready(function(argument))
        rates.append(min(_seconds(lambda f=function, x=argument: jax.block_until_ready(f(x))) for _ in range(5)))
    products, bytes_moved = 2 * size**3 / rates[0], 2 * wide.nbytes / rates[1]
    # XLA counts the body of a loop once.
    return (
        f"{1e3 * cost['flops'] / products:.2f} ms at {products / 1e12:.0f} TFLOP/s, "
        f"{1e3 * cost['bytes accessed'] / bytes_moved:.2f} ms at {bytes_moved / 1e12:.2f} TB/s"
    )


def _gradient_steps(tiny: bool, apply: Any = None, dtype: Any = np.float32) -> tuple[Any, Any, int]:
    """A compiled loop of plain gradient steps, its parameters, and its length."""
    shape, batch, length = ((8, 8, 3), 20, 2) if tiny else ((32, 32, 3), 500, 30)
    model = build("resnet20", shape, 10, width=4 if tiny else 16)
    x, y = _data(batch, shape)
    apply = apply or model.apply

    def loss(params):
        outputs = apply(jax.tree.map(lambda w: w.astype(dtype), params), x.astype(dtype))
        return -jax.nn.log_softmax(outputs)[np.arange(batch), y].mean()

    def step(params, _):
        slope = jax.grad(loss)(params)
        return jax.tree.map(lambda w, g: w - np.float32(1e-3) * g, params, slope), None

    program = jax.jit(lambda params: jax.lax.scan(step, params, length=length)[0])
    return program, model.init(jax.random.key(0)), length


def _kernel_times(events: list[dict[str, Any]]) -> Counter[str]:
    """Milliseconds of the device's streams in a trace, by what a kernel is for."""
    named = {(e["pid"], e.get("tid")): e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    devices = {e["pid"] for e in events if e.get("name") == "process_name" and "GPU" in e["args"]["name"]}
    spent: Counter[str] = Counter()
    for e in events:
        if e.get("ph") == "X" and e["pid"] in devices and "Stream" in named.get((e["pid"], e.get("tid")), ""):
            operation = e.get("args", {}).get("hlo_op", "")
            kinds = {
                "conv-bw-filter": "gradients of kernels",
                "conv-bw-input": "gradients of images",
                "conv": "convolutions",
            }
            kind = next(
                (words for part, words in kinds.items() if part in operation and "convert" not in operation), ""
            )
            spent[kind or re.sub(r"[_.\d]+$", "", e["name"])] += e["dur"] / 1e3
    return spent


def similarity(size: str, tiny: bool, posterior: Callable) -> str:
    """The same search with the similarity on the host and on the device: permutations and times."""
    spec = {
        "mlp512": lambda: mlp_spec(784, 512, 512, 512, 10) if not tiny else mlp_spec(20, 16, 16, 10),
        "mlp2048": lambda: mlp_spec(784, 2048, 2048, 2048, 10) if not tiny else mlp_spec(20, 24, 24, 10),
        "resnet4": lambda: resnet20_spec(4) if not tiny else resnet20_spec(1),
    }[size]()
    problem = pose(posterior(0, spec), posterior(1, spec), spec, costs.Wasserstein(), frozenset())
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
