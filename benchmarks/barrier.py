"""Time of a barrier curve: 25 τ × 128 draws × 10,000 images of MNIST's shape through an MLP 784-512-512-512-10.

    python benchmarks/barrier.py            a fraction of it on this machine, with the estimate for all of it
    python benchmarks/barrier.py --gpu      all of it; the target is 20 s on one H200

Three numbers stand side by side: what `estimate_seconds` announced, what `barrier` took once compiled, and
a plain loop: a jitted draw and a jitted forward pass at a time, probabilities averaged in numpy.
"""

import argparse
import resource
import time

import jax
import jax.numpy as jnp
import numpy as np

from bayesin import Gaussian, barrier, geodesic
from bayesin.evaluation import choose_sizes, estimate_seconds
from bayesin.models import build

FULL = {"images": 10_000, "samples": 128, "taus": 25}
PART = {"images": 2_000, "samples": 8, "taus": 3}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", action="store_true", help="the whole problem, on the accelerator of this machine")
    parser.add_argument("--model", default="mlp", choices=["mlp", "resnet20"])
    parser.add_argument("--width", type=int, default=None)
    options = parser.parse_args()
    if options.gpu and jax.default_backend() == "cpu":
        parser.error("--gpu: JAX sees no accelerator here")
    size = FULL if options.gpu else PART
    shape = (28, 28, 1) if options.model == "mlp" else (32, 32, 3)
    model = build(options.model, shape, 10, width=options.width)
    p, q = (_posterior(model, seed) for seed in (0, 1))
    rng = np.random.default_rng(0)
    x = rng.normal(size=(size["images"], *shape)).astype(np.float32)
    y = rng.integers(0, 10, size["images"]).astype(np.int32)

    announced = estimate_seconds(model.apply, p.mean, x, samples=size["samples"], taus=size["taus"], exact=True)
    whole = estimate_seconds(
        model.apply,
        p.mean,
        np.broadcast_to(x[:1], (FULL["images"], *shape)),
        samples=FULL["samples"],
        taus=FULL["taus"],
        exact=True,
    )

    def run() -> None:
        barrier(
            geodesic(p, q), model.apply, (x, y), key=jax.random.key(0), samples=size["samples"], taus=size["taus"]
        )

    first = _seconds(run)
    again = min(_seconds(run) for _ in range(2))
    plain_draws = min(size["samples"], 8)
    plain = _plain(model, p, q, x, y, plain_draws, 3)  # and scaled: every draw and τ costs the same
    plain *= size["samples"] * size["taus"] / (plain_draws * 3)
    weights = sum(leaf.size for leaf in jax.tree.leaves(p.mean))
    print(f"{options.model}, {weights:,} weights, on {jax.devices()[0].device_kind}, jax {jax.__version__}")
    chunks = choose_sizes(model.apply, p.mean, x, size["samples"])
    work = f"{size['taus']} τ × {size['samples']} draws × {size['images']:,} images"
    print(f"{work}, in chunks of {chunks.examples:,} images and {chunks.draws} draws")
    print(f"  announced              {announced:8.2f} s")
    print(f"  barrier, first call    {first:8.2f} s")
    print(f"  barrier                {again:8.2f} s   {announced / again:.2f} of it announced")
    print(f"  plain loop             {plain:8.2f} s   {plain / again:.2f} times the barrier's")
    print(f"  all of it, announced   {whole:8.0f} s   ({FULL['taus']} τ × {FULL['samples']} × {FULL['images']:,})")
    print(f"  peak memory of the host {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB", end="")
    used = jax.devices()[0].memory_stats()
    print(f", of the device {used['peak_bytes_in_use'] / 2**30:.2f} GiB" if used else "")


def _posterior(model, seed: int) -> Gaussian:
    mean = model.init(jax.random.key(seed))
    return Gaussian(mean, jax.tree.map(lambda leaf: jnp.full_like(leaf, 0.01), mean))


def _seconds(function) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def _plain(model, p: Gaussian, q: Gaussian, x, y, samples: int, taus: int) -> float:
    forward = jax.jit(lambda params, x: jax.nn.softmax(model.apply(params, x)))
    draw = jax.jit(lambda q, key: jax.tree.map(lambda leaf: leaf[0], q.sample(key, 1)))
    x = jnp.asarray(x)

    def run(taus) -> None:
        for tau in taus:
            blend = lambda a, b: (1 - tau) * a + tau * b  # noqa: B023, E731
            middle = jax.tree.map(blend, p, q)
            total = 0.0
            for s in range(samples):
                total = total + np.asarray(forward(draw(middle, jax.random.key(s)), x), np.float64)
            -np.log(total[np.arange(len(y)), y] / samples).mean()

    run([0.5])  # compile
    return _seconds(lambda: run(np.linspace(0, 1, taus)))


if __name__ == "__main__":
    main()
