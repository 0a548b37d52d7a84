"""A regression with uncertainty bands: HMC draws of a small network, its predictions scored and drawn.

Between the two groups of points nothing was seen; the bands there should be wider than where the data are. The fit
carries its likelihood on, so that `predict` knows what a target is.
"""

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import bayesin
from bayesin import models

key, random = jax.random.key(0), np.random.default_rng(0)


def observe(count):
    x = np.concatenate([random.uniform(-2, -0.7, count), random.uniform(0.7, 2, count)])
    return x[:, None].astype(np.float32), (np.sin(2 * x) + 0.1 * random.normal(size=len(x))).astype(np.float32)


def init(key):
    one, two = jax.random.split(key)
    return {"a": jax.random.normal(one, (1, 50)), "b": jnp.zeros(50), "c": jax.random.normal(two, (50, 1)) / 7}


def apply(params, x):
    return jnp.tanh(x @ params["a"] + params["b"]) @ params["c"]


model, (x, y), (x_test, y_test) = models.from_functions(init, apply), observe(60), observe(60)
settings = bayesin.HMC(
    likelihood=bayesin.Normal(0.1), samples=200, burn_in=200, step_size=5e-3, steps=300, adapt=True, jitter=0.2
)
fit = bayesin.fit_hmc(key, model, (x, y), settings)
print(f"largest R-hat of the predictions {fit.trace['rhat_max'][-1]:.2f}")

found = bayesin.predict(fit, model, x_test, key=key)
print(", ".join(f"{name} {value:.3f}" for name, value in found.metrics(y_test).items()))

grid = np.linspace(-3, 3, 200, dtype=np.float32)[:, None]
there = bayesin.predict(fit, model, grid, key=key)
figure = Figure(figsize=(6, 3.5), layout="constrained")
axes = figure.subplots()
for level in (0.5, 0.9):
    low, high = there.interval(level)
    axes.fill_between(grid[:, 0], low[:, 0], high[:, 0], alpha=0.25, color="tab:blue", label=f"{level:.0%}")
axes.plot(grid, there.mean, color="tab:blue")
axes.plot(x, y, ".", color="black", markersize=3)
axes.set(xlabel="x", ylabel="y", ylim=(-2.5, 2.5))
axes.legend()
figure.savefig("regression.png")
gap, seen = (np.sqrt(there.epistemic_variance[np.abs(np.abs(grid[:, 0]) - at) < 0.2].mean()) for at in (0.0, 1.3))
print(f"std of the mean between the points {gap:.3f}, among them {seen:.3f}")
