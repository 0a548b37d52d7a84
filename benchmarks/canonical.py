"""What balanced scales do to the distance and the barrier between two posteriors: `python benchmarks/canonical.py`.

Pairs of mean-field fits of a ReLU network on the digits, from different seeds: W₂ and the test barrier after
alignment, of the posteriors as they were fitted and of their canonical forms.
"""

import jax
from flax import nnx

import bayesin
from bayesin import data, models

PAIRS = 2


def main() -> None:
    """Prints one row a pair and form."""
    digits, key = data.load("digits"), jax.random.key(0)
    model = models.from_nnx(
        lambda rngs: nnx.Sequential(
            lambda x: x.reshape(len(x), -1),
            nnx.Linear(64, 256, rngs=rngs),
            nnx.relu,
            nnx.Linear(256, 256, rngs=rngs),
            nnx.relu,
            nnx.Linear(256, 10, rngs=rngs),
        )
    )
    spec = bayesin.discover(model.apply, model.init(key), digits.x_test[:2], scales=True)
    settings = bayesin.VI(
        members=2 * PAIRS, epochs=60, batch=100, learning_rate=3e-3, temperature=0.1, prior_variance=0.05
    )
    posteriors = bayesin.fit_vi(key, model, digits, settings).posteriors
    print("pair  form        W2 before  W2 aligned  barrier aligned (nats)")
    for pair in range(PAIRS):
        fitted = posteriors[2 * pair : 2 * pair + 2]
        for form, (p, q) in (("as fitted", fitted), ("canonical", [bayesin.canonical(r, spec) for r in fitted])):
            aligned = bayesin.align(p, q, spec, key=key).posterior
            path = bayesin.geodesic(p, aligned)
            height = bayesin.barrier(path, model.apply, (digits.x_test, digits.y_test), key=key).value
            before, after = (float(bayesin.wasserstein(p, other)) for other in (q, aligned))
            print(f"{pair:<6}{form:<12}{before:9.3f}  {after:10.3f}  {float(height):10.4f}", flush=True)


if __name__ == "__main__":
    main()
