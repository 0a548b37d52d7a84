"""An ensemble folded into one posterior: twenty networks become one Gaussian.

The same call folds HMC draws. What matters is the order of units: without a common one, mean and spread of the
members say nothing. Whether the Gaussian names the classes that the members name is one question (agreement), whether
it is as sure of them as it may be another (NLL, calibration): an independent normal for each weight is far too wide.
"""

import jax

import bayesin
from bayesin import data, models
from bayesin.compact import scores

key = jax.random.key(0)
digits = data.load("digits")
model = models.build("mlp", digits.input_shape, digits.classes, width=32, depth=1)

settings = bayesin.Ensemble(members=20, epochs=40, batch=200, learning_rate=3e-3, prior_variance=0.1)
members = bayesin.fit_ensemble(key, model, digits, settings).posterior
print(f"{len(members)} networks of {sum(leaf.size for leaf in jax.tree.leaves(members[0])):,} weights")

# Move every member onto the members' own mean, found by iteration, then take mean and standard deviation.
spec = bayesin.discover(model.apply, members[0], digits.x_test[:2])
found = bayesin.compact(members, spec, key=key, reference="mean")
print(f"spread {found.spread_before:.3f} as trained, {found.spread_after:.3f} in a common order")
print(f"transpositions of a member: {found.total.min()} to {found.total.max()}")

# Does the one Gaussian predict what twenty networks predict?
test = (digits.x_test, digits.y_test)
for name, score in scores(members, found, model.apply, test, key=key, draws=50).items():
    against = f"agreement {score.agreement:.3f}, TV {score.total_variation:.3f}"
    print(f"{name}: {against}, accuracy {score.accuracy:.3f}, NLL {score.nll:.3f}, ECE {score.ece:.3f}")

# `lowrank` keeps how weights vary together: as many directions as there are members, less one.
lowrank = bayesin.compact(members, spec, key=key, family="lowrank")
found = bayesin.predict(lowrank.posterior, model, digits.x_test, key=key, samples=50).metrics(digits.y_test)
print(f"lowrank: accuracy {found['accuracy']:.3f}, NLL {found['nll']:.3f}, ECE {found['ece']:.3f}")
