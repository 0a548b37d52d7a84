"""Speed of training: variational inference, batch 500, in milliseconds a step and ratios.

    python benchmarks/train.py            this CPU: against plain PyTorch, and what the random numbers cost
    python benchmarks/train.py --gpu      64 posteriors of MNIST's MLP for 100 epochs; ResNet20; what bounds them

Rows of one table are measured in turns, round after round, so that a busy machine slows all of them alike;
the smallest time of each counts, on the CPU in CPU seconds of all threads. Data are random numbers of MNIST's and
CIFAR-10's shapes.
"""

import argparse
import dataclasses
import time
from contextlib import contextmanager

import jax
import jax.numpy as jnp
import numpy as np

from _plain_vi import make_epoch
from bayesin import VI, fit_vi
from bayesin.inference import parallel
from bayesin.inference.training_problem import Problem, prepare, training_arrays
from bayesin.likelihoods import Categorical
from bayesin.models import Model, build

BATCH = 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", action="store_true", help="the accelerator's table")
    parser.add_argument("--rounds", type=int, default=10, help="of the CPU's table")
    parser.add_argument("--members", type=int, default=64, help="posteriors side by side on the accelerator")
    parser.add_argument("--epochs", type=int, default=100, help="of these")
    parser.add_argument("--widths", type=int, nargs="*", default=[16, 64], help="of ResNet20")
    options = parser.parse_args()
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}")
    if not options.gpu:
        return on_cpu(options.rounds)
    if jax.default_backend() == "cpu":
        parser.error("--gpu: JAX sees no accelerator here")
    return on_gpu(options)


def on_cpu(rounds: int) -> None:
    """Our step, the same with fixed noise, one written by hand in JAX, and PyTorch's, in turns."""
    sizes, shape = [784, 512, 512, 512, 10], (28, 28, 1)
    x, y = _data(5_000, shape)
    model = build("mlp", shape, 10)
    traces = []

    def apply(params, x):
        traces.append(1)
        return model.apply(params, x)

    with _fixed_noise():
        fixed = _stepper(Model(model.init, lambda params, x: model.apply(params, x)), x, y)
    epoch = make_epoch(sizes, x.reshape(len(x), -1), y, BATCH)
    rows = {
        "ours": _stepper(Model(model.init, apply), x, y),
        "ours, fixed noise": fixed,
        "by hand in JAX": lambda: _busy(epoch) / (len(x) // BATCH),
    }
    compiled = len(traces)
    try:
        import _torch_vi
    except ImportError:
        print("PyTorch is not installed: its row is left out (pip install torch==2.13.0)")
    else:
        step = _torch_vi.make_step(sizes, x.reshape(len(x), -1), y, BATCH)
        rows["plain PyTorch"] = lambda: min(_busy(step) for _ in range(3))
    best = {name: min(times) for name, times in _in_turns(rows, rounds).items()}
    ours = best["ours"]
    print(f"MLP {'-'.join(map(str, sizes))}, batch {BATCH}, one sample, Adam: CPU ms a step, best of {rounds}")
    for name, seconds in best.items():
        print(f"  {name:<20} {1e3 * seconds:7.1f}   {seconds / ours:5.2f} times ours")
    share = 1 - best["ours, fixed noise"] / ours
    print(f"random numbers: {share:.0%} of the step (target: at most 33%)")
    print(f"against JAX by hand: {ours / best['by hand in JAX']:.2f} of its time (target: at most 1.02)")
    if "plain PyTorch" in best:
        print(f"against PyTorch: {ours / best['plain PyTorch']:.2f} of its time (target: at most 1.00)")
    print(f"compiled again while measuring: {len(traces) - compiled} times (target: 0)")


def on_gpu(options: argparse.Namespace) -> None:
    """The two targets, and how far the limits of the machine are."""
    rate, bandwidth = _ceilings()
    print(f"matrix product {rate / 1e12:.0f} TFLOP/s in float32 as JAX does it, copy {bandwidth / 1e12:.2f} TB/s")
    x, y = _data(60_000, (28, 28, 1))
    config = VI(members=options.members, epochs=options.epochs, batch=BATCH, log_every=600)
    seconds, fit = _timed(lambda: fit_vi(jax.random.key(0), build("mlp", (28, 28, 1), 10), (x, y), config))
    weights, step = fit.posteriors[0].size, 1 / np.max(fit.trace["steps_per_second"])
    print(f"MNIST MLP 3x512, {options.members} posteriors, {options.epochs} epochs: {seconds:.1f} s, all of it")
    _bounds(step, 6 * weights * BATCH * options.members, 4 * weights * options.members * 14, rate, bandwidth)
    print(f"  memory: {fit.memory.member / 1e6:.1f} MB a member, {fit.memory.work / 1e9:.2f} GB for a step")
    for width in options.widths:
        for compute in ("float32", "bfloat16"):
            _resnet(width, compute, rate, bandwidth)


def _resnet(width: int, compute: str, rate: float, bandwidth: float) -> None:
    shape = (32, 32, 3)
    x, y = _data(25_000, shape)
    model = build("resnet20", shape, 10, width=width)
    config = VI(epochs=6, batch=BATCH, compute=compute, clip=5.0)
    fit = fit_vi(jax.random.key(0), model, (x, y), config)
    step = 1 / np.max(fit.trace["steps_per_second"])
    flops = 3 * _flops(model, x[:BATCH])
    first = fit.trace["seconds"][0]
    print(f"ResNet20, {width} features, {compute}: {1e3 * step:.2f} ms a step (compiled after {first:.0f} s)")
    _bounds(step, flops, 0, rate, bandwidth)


def _bounds(step: float, flops: float, traffic: float, rate: float, bandwidth: float) -> None:
    text = f"  {1e3 * step:.2f} ms a step, {flops / step / 1e12:.1f} TFLOP/s achieved"
    text += f"; the matrix rate alone would allow {1e3 * flops / rate:.2f} ms"
    print(text + (f", the memory traffic of weights {1e3 * traffic / bandwidth:.2f} ms" if traffic else ""))


def _ceilings() -> tuple[float, float]:
    """FLOP/s of a large product, bytes/s of a large copy."""
    a = jax.random.normal(jax.random.key(0), (8192, 8192))
    product = jax.jit(lambda a: a @ a)
    big = jnp.ones((1 << 28,), jnp.float32)
    copy = jax.jit(lambda b: b + 1)
    for warm in (product(a), copy(big)):
        warm.block_until_ready()
    fast = min(_seconds(lambda: product(a).block_until_ready()) for _ in range(10))
    moved = min(_seconds(lambda: copy(big).block_until_ready()) for _ in range(10))
    return 2 * 8192**3 / fast, 2 * big.nbytes / moved


def _flops(model: Model, x: np.ndarray) -> float:
    params = model.init(jax.random.key(0))
    found = jax.jit(model.apply).lower(params, x).cost_analysis()
    return float((found[0] if isinstance(found, list) else found)["flops"])


def _stepper(model: Model, x: np.ndarray, y: np.ndarray):
    """Returns a function that runs one epoch of ten steps and returns the seconds of a step."""
    config = VI(epochs=1000, batch=BATCH)
    problem = Problem(model, training_arrays((x, y), Categorical()), (config,), (1.0,))
    prepared = prepare(jax.random.key(0), problem)
    arrangement = parallel.arrange(dataclasses.replace(config, shard="none"), 1, False, jax.devices())
    (state,), (member,) = parallel.place(arrangement, prepared.states), parallel.place(arrangement, prepared.members)
    shared = parallel.place_shared(arrangement, prepared.shared)
    program = parallel.compiled_advance(prepared.plan, arrangement, state, member, shared, np.int32(0))
    kept = [state]

    def run() -> float:
        start = time.process_time()
        kept[0], seen = program(kept[0], member, shared, np.int32(0))
        jax.block_until_ready(seen)
        return (time.process_time() - start) / prepared.plan.length

    run()
    return run


@contextmanager
def _fixed_noise():
    """The same noise at every step: what is left is the step without its random numbers."""
    drawn = jax.random.normal

    def fixed(key, shape, dtype=jnp.float32):
        return jnp.broadcast_to(jax.random.key_data(key)[0].astype(dtype) * 2.0**-32, shape)

    jax.random.normal = fixed
    try:
        yield
    finally:
        jax.random.normal = drawn


def _in_turns(rows: dict, rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(rounds):
        for name, run in rows.items():
            times[name].append(run())
    return times


def _data(count: int, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    x = generator.standard_normal((count, *shape), dtype=np.float32)
    return x, generator.integers(0, 10, count).astype(np.int32)


def _timed(function):
    start = time.perf_counter()
    found = function()
    return time.perf_counter() - start, found


def _seconds(function) -> float:
    return _timed(function)[0]


def _busy(function) -> float:
    """CPU seconds of all threads."""
    start = time.process_time()
    function()
    return time.process_time() - start


if __name__ == "__main__":
    main()
