"""A convolutional network with BatchNorm and dropout, on arrays of one's own: trained, aligned, measured, used.

`fit_vi` runs the network in training mode and collects its running statistics, each member its own. They travel with
the posterior as leaves without a std, move with their channels, and are estimated anew halfway between two networks.
The same at the command line: `bayesin train --data mine.npz --model batchnorm_cnn.py:Network --members 2`.
"""

import jax
import numpy as np
from flax import nnx
from sklearn.datasets import load_digits

import bayesin
from bayesin import data, models


class Network(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(1, 16, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(16, momentum=0.9, rngs=rngs)
        self.drop = nnx.Dropout(0.2, rngs=rngs)
        self.out = nnx.Linear(16 * 16, 10, rngs=rngs)

    def __call__(self, x):
        x = nnx.max_pool(nnx.relu(self.norm(self.conv(x))), (2, 2), (2, 2))
        return self.out(self.drop(x.reshape(len(x), -1)))


def main():
    raw = load_digits()
    pixels, labels = (raw.images * 15).astype(np.uint8), raw.target  # images of bytes, as files have them
    cut = len(pixels) - 397
    np.savez("mine.npz", x_train=pixels[:cut], y_train=labels[:cut], x_test=pixels[cut:], y_test=labels[cut:])

    key, mine, model = jax.random.key(0), data.load("mine.npz"), models.from_nnx(Network)
    settings = bayesin.VI(members=2, epochs=30, batch=100, learning_rate=3e-3, prior=bayesin.FanIn(1.0))
    first, second = bayesin.fit_vi(key, model, mine, settings).posteriors
    means, stds = first.mean["norm"]["mean"], first.std["norm"]["mean"]
    print(f"collected: means from {means.min():.2f} to {means.max():.2f}, std {stds.max():.1f}")

    spec = bayesin.discover(model.apply, first.mean, mine.x_test[:2])
    aligned = bayesin.align(first, second, spec, key=key, exclude=model.statistics).posterior
    for name, other in (("as trained", second), ("aligned", aligned)):
        found = bayesin.barrier(
            bayesin.geodesic(first, other), model.apply, (mine.x_test, mine.y_test), key=key, samples=16, taus=5
        )
        print(f"{name}: barrier {found.value:.3f} nats, accuracy {found.accuracy[0]:.1%}")
    middle = bayesin.recalibrate(bayesin.geodesic(first, aligned)(0.5), model, mine.x_train, key=key, batch=100)

    new = mine.transform(pixels[cut:])  # bytes, prepared as the training set was
    seen = bayesin.predict(middle, model, new, key=key, samples=16, likelihood="categorical")
    print(f"halfway, statistics estimated anew: accuracy {(seen.probabilities.argmax(1) == mine.y_test).mean():.1%}")


if __name__ == "__main__":
    main()
