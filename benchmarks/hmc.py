"""Speed and acceptance of HMC by the precision of its gradients: full batch, 784-512-10 on MNIST.

    python benchmarks/hmc.py --seconds 300                      an accelerator: all precisions, 1, 2 and 4 chains
    python benchmarks/hmc.py --precisions bf16x3 float32 --chains 4
    python benchmarks/hmc.py --gradients --precisions bf16x3 --chains 4 --chunk 60000   gradients alone
    python benchmarks/hmc.py --tiny                             a dry run in seconds

One line for each precision, kind of inputs (pixels as whole numbers, or as floats like any others), size of chunks,
number of chains and start, as soon as it is measured: compilation apart, the smallest time of an iteration, the
mean acceptance and the mean size of the energy error over all measured iterations and chains, and how far the
gradient is from that of float32, relative to its length. All begin where a short burn-in from trained (MAP)
networks, or from random ones, has led. Energies are in float32 throughout, with compensated sums.
"""

import argparse
import itertools
import time
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from bayesin.data import load
from bayesin.inference import HMC, Ensemble, fit_ensemble
from bayesin.inference.hmc.kernel import ChainStates, advance, begin, target_of
from bayesin.inference.hmc.sampling import chain_plan
from bayesin.inference.hmc.target import PRECISIONS as NAMES
from bayesin.inference.hmc.target import usable_precision
from bayesin.inference.hmc.whole_inputs import PARTS, whole_chunks
from bayesin.inputs import cut
from bayesin.models import build

COLUMNS = "s/iteration  ms/gradient  accept  |energy error|  gradient off  compile s"
PRECISIONS = ["bf16x3", "bf16x6", "tf32x3", "float32", "tf32"]


def main() -> None:
    options = arguments()
    began = time.perf_counter()
    limit, width = (500, 16) if options.tiny else (None, 512)
    steps, epochs = (10, 2) if options.tiny else (options.steps, options.epochs)
    data = load("mnist", limit=limit, normalise="unit")
    model = build("mlp", data.input_shape, 10, width=width, depth=1)
    say(f"{jax.devices()[0].device_kind}, jax {jax.__version__}; {len(data.x_train):,} images, width {width}")
    chunks = {length: cut(data.x_train, data.y_train, length) for length in options.chunk}
    config = HMC(step_size=options.step_size, steps=steps, burn_in=0)
    most = max(options.chains)
    if options.gradients:
        return gradients(model, config, options, chunks, first_networks("random", model, data, most, epochs))
    starts = {}
    for name in options.starts:
        positions = first_networks(name, model, data, most, epochs)
        starts[name] = burn(model, replace(config, chains=most, precision=options.burn_precision), positions,
                            chunks[options.chunk[0]], options.burn)  # fmt: skip
        say(f"start {name:6} after {options.burn} iterations: {summary(starts[name][1])}")
    say(f"{'precision':9} inputs  chunk chains start   {COLUMNS}")
    for precision, inputs in itertools.product(options.precisions, options.inputs):
        if usable_precision(precision) != precision or (inputs == "whole" and precision not in PARTS):
            continue
        for length, chains, name in itertools.product(chunks, options.chains, starts):
            if time.perf_counter() - began > options.seconds:
                return say(f"stopped after {options.seconds:.0f} s")
            setting, here = replace(config, chains=chains, precision=precision), starts[name][0].chains.position
            begun = f"{precision:9} {inputs:6} {length:6} {chains:6} {name:6}"
            say(f"{begun} {measured(model, setting, here, chunks[length], inputs, options.iterations)}")
    return None


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--precisions", nargs="+", default=PRECISIONS, choices=list(NAMES))
    parser.add_argument("--gradients", action="store_true", help="gradients alone, no chains")
    parser.add_argument("--inputs", nargs="+", default=["whole", "floats"], choices=["whole", "floats"])
    parser.add_argument("--chains", type=int, nargs="+", default=[1, 4, 2])
    parser.add_argument("--starts", nargs="+", default=["map", "random"], choices=["map", "random"])
    parser.add_argument("--seconds", type=float, default=300.0, help="begin no further line after so many")
    parser.add_argument("--iterations", type=int, default=4, help="measured for each line")
    parser.add_argument("--burn", type=int, default=3, help="iterations before anything is measured")
    parser.add_argument("--burn-precision", default="bf16x6", choices=list(NAMES))
    parser.add_argument("--repeats", type=int, default=50, help="of each gradient, with --gradients")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--step-size", type=float, default=1e-3)
    parser.add_argument("--epochs", type=int, default=5, help="of Adam, for the trained start")
    parser.add_argument("--chunk", type=int, nargs="+", default=[20_000], help="examples of one gradient pass")
    parser.add_argument("--tiny", action="store_true", help="500 images, 16 units, 10 steps")
    return parser.parse_args()


def gradients(model, config, options, chunks, positions) -> None:
    """One line for each way to compute the gradient of all chains at random networks."""
    exact, whole_of = None, {}
    say(f"{'precision':9} inputs  chunk chains  ms/gradient  gradient off  compile s")
    ways = itertools.product(options.precisions, options.inputs, chunks, options.chains)
    for precision, inputs, length, chains in ways:
        if usable_precision(precision) != precision or (inputs == "whole" and precision not in PARTS):
            continue
        here = {
            name: jax.tree.map(lambda leaf, n=n: leaf[:n], positions) for name, n in (("all", chains), ("one", 1))
        }
        plan = chain_plan(replace(config, chains=chains, precision=precision), model)
        if inputs == "whole" and length not in whole_of:
            single = jax.tree.map(lambda leaf: leaf[0], positions)
            whole_of[length] = whole_chunks(chunks[length], plan.apply, single, precision)
        data = chunks[length], whole_of[length] if inputs == "whole" else None
        if exact is None:
            exact = compiled(replace(plan, precision="float32"))(here["one"], chunks[length], None)
        gradient, clock = compiled(plan), time.perf_counter()
        found = jax.block_until_ready(gradient(here["all"], *data))
        compiling, clock = time.perf_counter() - clock, time.perf_counter()
        for _ in range(options.repeats):
            last = gradient(here["all"], *data)
        jax.block_until_ready(last)
        seconds = (time.perf_counter() - clock) / options.repeats
        off = distance(jax.tree.map(lambda leaf: leaf[:1], found), exact)
        off /= distance(exact, jax.tree.map(jnp.zeros_like, exact))
        say(
            f"{precision:9} {inputs:6} {length:6} {chains:6} {1e3 * seconds / chains:12.3f} "
            f"{off:13.2g} {compiling:10.1f}"
        )


def compiled(plan):
    """The gradients of all chains as a program of its own."""

    def every(positions, chunks, whole):
        return jax.vmap(jax.grad(target_of(plan, chunks, None, whole).log_density))(positions)

    return jax.jit(every)


def first_networks(name, model, data, count, epochs):
    """Networks to begin at, with a leading axis: maxima of the posterior, or fresh ones."""
    if name == "map":
        config = Ensemble(members=count, epochs=epochs, optimiser="adam", learning_rate=1e-3, batch=100)
        return fit_ensemble(jax.random.key(1), model, data, config).posterior.params
    nets = [model.init(jax.random.key(10 + chain)) for chain in range(count)]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *nets)


def burn(model, config, positions, chunks, count):
    """Chains after a few iterations, and what happened."""
    plan, infos = chain_plan(config, model), []
    whole = whole_chunks(chunks, plan.apply, jax.tree.map(lambda leaf: leaf[0], positions), plan.precision)
    states = begin(plan, positions, chunks, None, whole)
    keys = jax.random.split(jax.random.key(2), config.chains)
    for iteration in range(count):
        states, info, _ = advance(plan, states, chunks, keys, np.int32(iteration), None, whole)
        infos.append(jax.device_get(info))
    return states, infos


def measured(model, config, positions, chunks, inputs, count) -> str:
    """What is measured of one line of the table."""
    # advance() takes over the buffers it is given: the start is needed again, so it is copied
    positions = jax.tree.map(lambda leaf: jnp.array(leaf[: config.chains], copy=True), positions)
    plan = chain_plan(config, model)
    single = jax.tree.map(lambda leaf: leaf[0], positions)
    whole = whole_chunks(chunks, plan.apply, single, plan.precision) if inputs == "whole" else None
    states: ChainStates = begin(plan, positions, chunks, None, whole)
    full = begin(replace(plan, precision="float32"), positions, chunks).chains.gradient
    off = distance(states.chains.gradient, full) / distance(full, jax.tree.map(jnp.zeros_like, full))
    keys = jax.random.split(jax.random.key(3), config.chains)
    times, infos = [], []
    for iteration in range(count + 1):  # the first one compiles
        clock = time.perf_counter()
        states, info, _ = advance(plan, states, chunks, keys, np.int32(iteration), None, whole)
        infos.append(jax.device_get(info))
        times.append(time.perf_counter() - clock)
    seconds = min(times[1:])
    compiled = times[0] - seconds
    return (
        f"{seconds:12.3f} "
        f"{1e3 * seconds / config.steps / config.chains:12.3f} {rate(infos):7.3f} {error(infos):15.3g} "
        f"{off:13.2g} {compiled:10.1f}"
    )


def distance(first, second) -> float:
    gaps = jax.tree.map(lambda a, b: float(jnp.sum(jnp.square(a - b))), first, second)
    return float(np.sqrt(sum(jax.tree.leaves(gaps))))


def rate(infos) -> float:
    return float(np.mean([info.acceptance for info in infos]))


def error(infos) -> float:
    return float(np.mean([np.abs(info.energy_error) for info in infos]))


def summary(infos) -> str:
    last = [f"{value:.0f}" for value in infos[-1].log_posterior] if infos else []
    return f"accept {rate(infos):.3f}, |energy error| {error(infos):.3g}, log-posteriors {' '.join(last)}"


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
