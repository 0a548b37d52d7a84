"""Your own Flax NNX model on your own arrays: two posteriors, aligned, and the barrier between them.

Nothing about symmetry is written down: the groups of interchangeable units are found from the computation itself.
"""

import jax
from flax import nnx
from sklearn.datasets import load_digits  # stands for any arrays of yours
from sklearn.model_selection import train_test_split

import bayesin
from bayesin import data, models


class Network(nnx.Module):
    """A small convolutional network, as you would write it without bayesin."""

    def __init__(self, rngs: nnx.Rngs):
        self.conv = nnx.Conv(1, 16, kernel_size=(3, 3), strides=2, rngs=rngs)
        self.norm = nnx.LayerNorm(16, rngs=rngs)
        self.hidden = nnx.Linear(4 * 4 * 16, 64, rngs=rngs)
        self.out = nnx.Linear(64, 10, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.norm(self.conv(x)))
        x = nnx.relu(self.hidden(x.reshape(len(x), -1)))
        return self.out(x)


# 1. Arrays become a data set: images (n, height, width), labels counted from 0.
pixels, labels = load_digits(return_X_y=True)
pixels = pixels / 16  # from 0 to 1, so that nobody takes them for raw bytes
x_train, x_test, y_train, y_test = train_test_split(pixels.reshape(-1, 8, 8), labels, test_size=360, random_state=0)
digits = data.from_arrays(x_train, y_train, x_test, y_test, name="my digits")

# 2. The class becomes a model: two pure functions, init(key) and apply(params, x).
model = models.from_nnx(lambda rngs: Network(rngs))
key = jax.random.key(0)

# 3. Which units may be exchanged? Channels stay together through the flattening: 16 of them, then 64 hidden units.
spec = bayesin.discover(model.apply, model.init(key), digits.x_test[:2])
bayesin.verify(model.apply, model.init(key), digits.x_test[:2], spec, key=key)
print("groups:", spec.sizes)

# 4. Two posteriors from different starts; the second is moved onto the first.
settings = bayesin.VI(members=2, epochs=40, batch=100, learning_rate=3e-3, temperature=0.1, prior_variance=0.05)
first, second = bayesin.fit_vi(key, model, digits, settings).posteriors
aligned = bayesin.align(first, second, spec, key=key, restarts=2).posterior

# 5. The loss on the way between them.
test = (digits.x_test, digits.y_test)
for name, end in (("as trained", second), ("aligned", aligned)):
    found = bayesin.barrier(bayesin.geodesic(first, end), model.apply, test, key=key, samples=16, taus=9)
    print(f"{name}: barrier {found.value:.3f} ± {found.standard_error:.3f} nats, accuracy {found.accuracy[0]:.1%}")
