"""Your own Equinox model on your own arrays: a regression with two posteriors of one network.

Equinox models take one example; the adapter maps them over the batch. Real targets make it a regression.
"""

import equinox as eqx
import jax
from sklearn.datasets import load_diabetes  # stands for any arrays of yours
from sklearn.model_selection import train_test_split

import bayesin
from bayesin import Normal, data, models


class Network(eqx.Module):
    """Two hidden layers with a skip connection around the second."""

    enter: eqx.nn.Linear
    block: eqx.nn.Linear
    leave: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, 3)
        self.enter = eqx.nn.Linear(10, 32, key=keys[0])
        self.block = eqx.nn.Linear(32, 32, key=keys[1])
        self.leave = eqx.nn.Linear(32, 1, key=keys[2])

    def __call__(self, x):
        x = jax.nn.relu(self.enter(x))
        return self.leave(x + jax.nn.relu(self.block(x)))


# 1. Arrays: floating-point targets, here standardised with the training set.
x, y = load_diabetes(return_X_y=True)
x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=90, random_state=0)
centre, scale = y_train.mean(), y_train.std()
patients = data.from_arrays(x_train, (y_train - centre) / scale, x_test, (y_test - centre) / scale, name="diabetes")

# 2. The model, and its symmetry. The skip connection ties the units of both layers together: one group of 32.
model = models.from_equinox(lambda key: Network(key))
key = jax.random.key(0)
spec = bayesin.discover(model.apply, model.init(key), patients.x_test[:2])
print("groups:", spec.sizes)

# 3. Two posteriors, one moved onto the other.
settings = bayesin.VI(members=2, epochs=200, batch=88, likelihood="gaussian", noise=0.7, prior_variance=0.1)
first, second = bayesin.fit_vi(key, model, patients, settings).posteriors
found = bayesin.align(first, second, spec, key=key, restarts=4)
print("units moved:", found.moved)

# 4. The loss on the way, with the likelihood that was trained on.
test = (patients.x_test, patients.y_test)
for name, end in (("as trained", second), ("aligned", found.posterior)):
    path = bayesin.geodesic(first, end)
    loss = bayesin.barrier(path, model.apply, test, key=key, samples=32, taus=9, likelihood=Normal(0.7))
    print(f"{name}: barrier {loss.value:.3f} nats, loss {loss.nll[0]:.3f} at the first, {loss.nll[4]:.3f} half way")
