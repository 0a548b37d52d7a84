"""Merging two deterministic networks: a point is a posterior without spread, so Git Re-Basin is the special case.

Two networks are trained from different starts. Their average is worse than either; after the units of the second
have been put in the order of the first, it is nearly as good as they are.
"""

import jax
import jax.numpy as jnp

import bayesin
from bayesin import data, models, save_posterior

key = jax.random.key(0)
digits = data.load("digits")
model = models.build("mlp", digits.input_shape, digits.classes, width=128, depth=2)

# Two trained networks. Any parameter tree will do, also one that another program has trained.
settings = bayesin.Ensemble(members=2, epochs=30, batch=100, learning_rate=3e-3, prior_variance=0.05)
networks = bayesin.fit_ensemble(key, model, digits, settings).posterior
first, second = networks[0], networks[1]

# Points go into align as they are. `check` compares outputs before and after and refuses a change.
spec = bayesin.discover(model.apply, first, digits.x_test[:2])
found = bayesin.align(first, second, spec, key=key, restarts=4, check=(model.apply, digits.x_test))
print(f"moved {sum(found.moved.values())} of {sum(spec.sizes.values())} units in {found.sweeps} sweeps")


def average(one, other):
    return jax.tree.map(lambda a, b: (a + b) / 2, one, other)


def accuracy(params):
    return float(jnp.mean(model.apply(params, digits.x_test).argmax(-1) == digits.y_test))


merged = average(first, found.posterior)
print(f"first {accuracy(first):.1%}, second {accuracy(second):.1%}, second moved {accuracy(found.posterior):.1%}")
print(f"average as trained {accuracy(average(first, second)):.1%}, average aligned {accuracy(merged):.1%}")

# The ordinary loss barrier: points need no draws.
test = (digits.x_test, digits.y_test)
for name, end in (("as trained", second), ("aligned", found.posterior)):
    barrier = bayesin.barrier(bayesin.geodesic(first, end), model.apply, test, key=key, taus=11)
    print(f"{name}: barrier {barrier.value:.3f} nats")

# A file for the command line, and for everyone else: see read_without_bayesin.py.
save_posterior("merged.safetensors", merged, spec=spec)
