"""Other libraries of Bayesian deep learning beside ours: one run, the same data, networks, prior and training, seeds.

    pip install 'torch==2.13.0' laplace-torch torch-uncertainty lightning posteriors numpyro
    python benchmarks/libraries.py --out libraries.json

Digits (scikit-learn's, 1,437 to train on and 360 to test on) and diabetes (scikit-learn's, 353 and 89; targets
standardised). Everybody gets a network of one hidden layer of 50 ReLU units, a normal prior of variance 0.1 on every
weight, Adam at 3e-3 with batches of 100 for 60 epochs where there is gradient descent, known noise of 0.7 for the
regression, and 64 draws for a prediction; whatever else there is to set stays as the library has it, but for starts:
SGHMC starts at rest, NumPyro at a draw from the prior, stds of variational fits at 0.01 where that is to be set.
TorchUncertainty's own start of 0.0009 makes so much of a difference that two more rows have it and ours exchanged.
SWAG has gradient descent and rates of its own, and as many deviations as it collects in 60 epochs, 15.
The steps of SGHMC (0.3 on digits, 0.1 on diabetes, the largest of those tried that stayed finite) and these starts
were chosen after trials with defaults that served those libraries worse; ours had no trials. HMC gets 120
trajectories of 64 steps, NUTS 120 of at most 63, half of them burn-in. All are scored by one function. A seed is that
of initial weights, batches and draws; the data stay. Seconds are those of the processor for the first seed,
compilation included and imports not, over those of one network trained by PyTorch in the same loop.
"""

import argparse
import importlib
import json
import math
import re
import sys
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

warnings.filterwarnings("ignore")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from sklearn.datasets import load_diabetes  # noqa: E402
from torch import nn  # noqa: E402

import bayesin  # noqa: E402
from _torchvision import import_torchvision  # noqa: E402
from bayesin import ClassPredictive, RealPredictive, data, models  # noqa: E402

HIDDEN, PRIOR, NOISE, RATE, BATCH, EPOCHS, DRAWS, MEMBERS = 50, 0.1, 0.7, 3e-3, 100, 60, 64, 5
TRAJECTORIES, STEPS = 120, 64  # of HMC: half of the trajectories are burn-in
STEP = {"digits": 0.3, "diabetes": 0.1}  # of SGHMC: of 0.3 and 0.1 the larger at which it stays finite
PACKAGES = ("bayesin", "torch", "laplace-torch", "torch-uncertainty", "posteriors", "numpyro", "jax")


class Task(NamedTuple):
    name: str
    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    outputs: int
    seed: int = 0

    @property
    def key(self) -> jax.Array:
        return jax.random.key(self.seed)

    @property
    def classes(self) -> bool:
        return self.outputs > 1

    @property
    def tensors(self) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.tensor(self.y)
        return torch.tensor(self.x), y.long() if self.classes else y

    def dataset(self) -> data.Dataset:
        return data.from_arrays(self.x, self.y, self.x_test, self.y_test, name=self.name, normalise="none")


def tasks() -> list[Task]:
    digits = data.load("digits")
    flat = [x.reshape(len(x), -1) for x in (digits.x_train, digits.x_test)]
    x, y = load_diabetes(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[:353], order[353:]
    x = ((x - x[train].mean(0)) / x[train].std(0)).astype(np.float32)
    y = ((y - y[train].mean()) / y[train].std()).astype(np.float32)[:, None]
    return [
        Task("digits", flat[0], digits.y_train, flat[1], digits.y_test, 10),
        Task("diabetes", x[train], y[train], x[test], y[test], 1),
    ]


def scores(task: Task, found) -> dict[str, float]:
    """Of draws' outputs (draws, examples, outputs), or of a prediction that a library averaged itself."""
    if isinstance(found, ClassPredictive | RealPredictive):
        return found.metrics(task.y_test)
    outputs = jnp.asarray(np.asarray(found, np.float32))
    if task.classes:
        logs = jax.nn.log_softmax(outputs, -1)
        averaged = jax.scipy.special.logsumexp(logs, 0) - math.log(len(logs))
        return ClassPredictive(np.asarray(averaged), None).metrics(task.y_test)
    draws = np.asarray(outputs, np.float64)
    return RealPredictive(draws, np.full_like(draws, NOISE), np.full(len(draws), 1 / len(draws))).metrics(task.y_test)


# PyTorch: one network, the loop that all of its libraries are given.


def network(task: Task) -> nn.Module:
    return nn.Sequential(nn.Linear(task.x.shape[1], HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, task.outputs))


def nll(task: Task, outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Mean over a batch, up to a constant."""
    if task.classes:
        return nn.functional.cross_entropy(outputs, y)
    return ((outputs - y) ** 2).mean() / (2 * NOISE**2)


def batches(task: Task):
    x, y = task.tensors
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(x)).split(BATCH):
            yield x[batch], y[batch]


def train(task: Task, member: int = 0) -> nn.Module:
    """The mode of the posterior: Adam on the loss and the prior."""
    torch.manual_seed(task.seed * MEMBERS + member)
    net = network(task)
    optimiser = torch.optim.Adam(net.parameters(), RATE)
    for x, y in batches(task):
        prior = sum((w**2).sum() for w in net.parameters()) / (2 * PRIOR * len(task.x))
        optimiser.zero_grad()
        (nll(task, net(x), y) + prior).backward()
        optimiser.step()
    return net.eval()


def one_network(task: Task):
    return train(task)(torch.tensor(task.x_test))[None].detach().numpy()


# TorchUncertainty


def tu_ensemble(task: Task):
    from torch_uncertainty.methods import deep_ensembles

    nets = [train(task, member) for member in range(MEMBERS)]
    kind = "classification" if task.classes else "regression"
    whole = deep_ensembles(nets, task=kind, probabilistic=False, reset_model_parameters=False).eval()
    with torch.no_grad():
        return whole(torch.tensor(task.x_test)).reshape(MEMBERS, len(task.x_test), -1).numpy()


def tu_variational(task: Task, start: float | None = None):
    """With stds that start as the library has them, softplus(−7) = 0.0009, or at `start`."""
    from torch_uncertainty.layers.bayesian import BayesLinear
    from torch_uncertainty.losses import ELBOLoss
    from torch_uncertainty.methods.stochastic import StochasticModel

    class Loss(nn.Module):
        def forward(self, outputs, y):
            return nll(task, outputs, y)

    torch.manual_seed(task.seed)
    own = {"prior_sigma_1": math.sqrt(PRIOR), "prior_pi": 1}
    own |= {} if start is None else {"sigma_init": math.log(math.expm1(start))}
    layers = [BayesLinear(task.x.shape[1], HIDDEN, **own), nn.ReLU(), BayesLinear(HIDDEN, task.outputs, **own)]
    net = StochasticModel(nn.Sequential(*layers), num_samples=DRAWS)
    loss = ELBOLoss(net, Loss(), kl_weight=1 / len(task.x), num_samples=1)
    optimiser = torch.optim.Adam(net.parameters(), RATE)
    for x, y in batches(task):
        optimiser.zero_grad()
        loss(x, y).backward()
        optimiser.step()
    with torch.no_grad():
        return net.eval()(torch.tensor(task.x_test)).reshape(DRAWS, len(task.x_test), -1).numpy()


# laplace-torch


def laplace_torch(task: Task, subset: str, structure: str, tune: bool = False):
    from laplace import Laplace

    x, y = task.tensors
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), BATCH)
    kind = "classification" if task.classes else "regression"
    noise = {} if task.classes else {"sigma_noise": NOISE}
    found = Laplace(train(task), kind, subset, structure, prior_precision=1 / PRIOR, **noise)
    found.fit(loader)
    if tune:
        found.optimize_prior_precision(method="marglik")
    inside = torch.tensor(task.x_test)
    if task.classes:
        return ClassPredictive(np.log(found(inside).detach().numpy() + 1e-12), None)
    mean, variance = (part.detach().numpy().reshape(1, -1, 1).astype(np.float64) for part in found(inside))
    return RealPredictive(mean, np.sqrt(variance + NOISE**2), np.ones(1))


# posteriors


def posteriors_problem(task: Task):
    net = network(task)
    params = dict(net.named_parameters())

    def log_posterior(params, batch):
        x, y = batch
        outputs = torch.func.functional_call(net, params, (x,))
        prior = sum((w**2).sum() for w in params.values()) / (2 * PRIOR * len(task.x))
        return -nll(task, outputs, y) - prior, outputs

    def outputs(params):
        with torch.no_grad():
            return torch.func.functional_call(net, params, (torch.tensor(task.x_test),)).numpy()

    return {name: value.detach().clone() for name, value in params.items()}, log_posterior, outputs


def posteriors_variational(task: Task):
    import posteriors
    import torchopt

    torch.manual_seed(task.seed)
    params, log_posterior, outputs = posteriors_problem(task)
    method = posteriors.vi.diag.build(
        log_posterior, torchopt.adam(lr=RATE), temperature=1 / len(task.x), init_log_sds=math.log(0.01)
    )
    state = method.init(params)
    for batch in batches(task):
        state, _ = method.update(state, batch)
    return np.stack([outputs(posteriors.vi.diag.sample(state)) for _ in range(DRAWS)])


def posteriors_sghmc(task: Task):
    import posteriors

    torch.manual_seed(task.seed)
    params, log_posterior, outputs = posteriors_problem(task)
    method = posteriors.sgmcmc.sghmc.build(
        log_posterior, lr=STEP[task.name], alpha=1.0, temperature=1 / len(task.x), momenta=0.0
    )
    state, kept, steps = method.init(params), [], EPOCHS * math.ceil(len(task.x) / BATCH)
    every = max(steps // 2 // DRAWS, 1)
    for step, batch in enumerate(batches(task)):
        state, _ = method.update(state, batch)
        if step >= steps // 2 and step % every == 0:
            kept.append(outputs(state.params))
    return np.stack(kept)


# NumPyro


def numpyro_model(task: Task):
    import numpyro
    from numpyro import distributions as dist

    inputs, scale = task.x.shape[1], math.sqrt(PRIOR)

    def model(x, y):
        shapes = {"a": (inputs, HIDDEN), "b": (HIDDEN,), "c": (HIDDEN, task.outputs), "d": (task.outputs,)}
        w = {n: numpyro.sample(n, dist.Normal(0, scale).expand(s).to_event(len(s))) for n, s in shapes.items()}
        out = jax.nn.relu(x @ w["a"] + w["b"]) @ w["c"] + w["d"]
        with numpyro.plate("data", len(task.x), subsample_size=len(x)):
            likelihood = dist.Categorical(logits=out) if task.classes else dist.Normal(out, NOISE).to_event(1)
            numpyro.sample("y", likelihood, obs=y)

    def outputs(w):
        hidden = jax.nn.relu(jnp.einsum("ni,sih->snh", task.x_test, w["a"]) + w["b"][:, None])
        return jnp.einsum("snh,sho->sno", hidden, w["c"]) + w["d"][:, None]

    return model, outputs


def numpyro_variational(task: Task):
    import numpyro
    from numpyro.infer import SVI, Trace_ELBO, init_to_sample
    from numpyro.infer.autoguide import AutoNormal

    model, outputs = numpyro_model(task)
    guide = AutoNormal(model, init_loc_fn=init_to_sample, init_scale=0.01)
    svi = SVI(model, guide, numpyro.optim.Adam(RATE), Trace_ELBO())
    x, y = jnp.asarray(task.x), jnp.asarray(task.y)
    state = svi.init(task.key, x[:BATCH], y[:BATCH])
    epoch = jax.jit(lambda state, order: jax.lax.scan(lambda s, at: svi.update(s, x[at], y[at]), state, order)[0])
    random, whole = np.random.default_rng(task.seed), len(x) // BATCH * BATCH
    for _ in range(EPOCHS):
        state = epoch(state, random.permutation(len(x))[:whole].reshape(-1, BATCH))
    draws = guide.sample_posterior(jax.random.fold_in(task.key, 1), svi.get_params(state), sample_shape=(DRAWS,))
    return outputs(draws)


def numpyro_hmc(task: Task):
    from numpyro.infer import MCMC, NUTS, init_to_sample

    model, outputs = numpyro_model(task)
    kernel = NUTS(model, init_strategy=init_to_sample, max_tree_depth=math.ceil(math.log2(STEPS)))
    half = TRAJECTORIES // 2
    mcmc = MCMC(kernel, num_warmup=half, num_samples=half, progress_bar=False)
    mcmc.run(task.key, jnp.asarray(task.x), jnp.asarray(task.y))
    return outputs(mcmc.get_samples())


# bayesin


def ours(task: Task, fit: Callable, settings: type, **fields):
    likelihood = {} if task.classes else {"likelihood": "gaussian", "noise": NOISE}
    common = {"prior_variance": PRIOR} | likelihood
    if settings is not bayesin.HMC:
        common |= {"epochs": EPOCHS, "batch": BATCH}
    if settings not in (bayesin.HMC, bayesin.SWAG):
        common |= {"learning_rate": RATE, "schedule": "constant"}
    dataset = task.dataset()
    model = models.build("mlp", dataset.input_shape, task.outputs, width=HIDDEN, depth=1)
    found = fit(task.key, model, dataset, settings(**common | fields))
    return model, dataset, found


def predicted(task: Task, model, posterior):
    likelihood, key = (
        bayesin.Categorical() if task.classes else bayesin.Normal(NOISE),
        jax.random.fold_in(task.key, 1),
    )
    return bayesin.predict(posterior, model, task.x_test, key=key, samples=DRAWS, likelihood=likelihood)


def our_fit(task: Task, fit: Callable, settings: type, **fields):
    model, _, found = ours(task, fit, settings, **fields)
    return predicted(task, model, found.posterior)


def our_scaled(task: Task, fit: Callable, settings: type, **fields):
    """With the scale of the spread that is best for a fifth of the training set, by a fit to the rest of it."""
    order = np.random.default_rng(task.seed).permutation(len(task.x))
    kept, held = np.split(order, [len(order) * 4 // 5])
    model, _, part = ours(task._replace(x=task.x[kept], y=task.y[kept]), fit, settings, **fields)
    scale = bayesin.fit_scale(part, model, (task.x[held], task.y[held]), key=task.key)
    model, _, whole = ours(task, fit, settings, **fields)
    return predicted(task, model, bayesin.scaled(whole.posterior, scale))


def our_laplace(task: Task, **fields):
    """Predictions of the network linearised at the mean, as laplace-torch's are."""
    model, _, found = ours(task, bayesin.fit_laplace, bayesin.Laplace, **fields)
    return predicted(task, bayesin.linearised(model, found), found.posterior)


def our_compact(task: Task):
    model, dataset, found = ours(task, bayesin.fit_ensemble, bayesin.Ensemble, members=MEMBERS)
    spec = bayesin.discover(model.apply, found.posterior[0], task.x_test[:2])
    likelihood = bayesin.Categorical() if task.classes else bayesin.Normal(NOISE)
    one = bayesin.compact(
        found.posterior,
        spec,
        key=task.key,
        family="lowrank",
        scale="held-out",
        held_out=(dataset.x_train, dataset.y_train),
        apply=model.apply,
        likelihood=likelihood,
    )
    return predicted(task, model, one.posterior)


METHODS: dict[str, dict[str, Callable]] = {
    "PyTorch": {"one network": one_network},
    "TorchUncertainty": {
        f"ensemble of {MEMBERS}": tu_ensemble,
        "variational": tu_variational,
        "variational, stds from 0.01": lambda task: tu_variational(task, 0.01),
    },
    "laplace-torch": {
        "last layer, Kronecker": lambda task: laplace_torch(task, "last_layer", "kron"),
        "last layer, Kronecker, prior by marginal likelihood": lambda t: laplace_torch(t, "last_layer", "kron", True),
        "all layers, diagonal": lambda task: laplace_torch(task, "all", "diag"),
    },
    "posteriors": {"variational": posteriors_variational, "SGHMC": posteriors_sghmc},
    "NumPyro": {"variational (AutoNormal)": numpyro_variational, "NUTS": numpyro_hmc},
    "bayesin": {
        f"ensemble of {MEMBERS}": lambda t: our_fit(t, bayesin.fit_ensemble, bayesin.Ensemble, members=MEMBERS),
        "that ensemble folded to one Gaussian": our_compact,
        "variational": lambda task: our_fit(task, bayesin.fit_vi, bayesin.VI),
        "variational, stds from 0.0009": lambda t: our_fit(t, bayesin.fit_vi, bayesin.VI, initial_std=0.0009),
        "variational, scale by a held-out fifth": lambda task: our_scaled(task, bayesin.fit_vi, bayesin.VI),
        "SWAG": lambda task: our_fit(task, bayesin.fit_swag, bayesin.SWAG, rank=15),
        "Laplace, all layers, diagonal": lambda task: our_fit(task, bayesin.fit_laplace, bayesin.Laplace),
        "Laplace, all layers, diagonal, scale by a held-out fifth": lambda task: our_scaled(
            task, bayesin.fit_laplace, bayesin.Laplace
        ),
        "Laplace, all layers, diagonal, linearised": our_laplace,
        "Laplace, last layer, full covariance": lambda task: our_laplace(task, layers="last", covariance="full"),
        "HMC": lambda task: our_fit(
            task,
            bayesin.fit_hmc,
            bayesin.HMC,
            samples=TRAJECTORIES // 2,
            burn_in=TRAJECTORIES // 2,
            steps=STEPS,
            adapt=True,
        ),
    },
}
ROWS = [(library, method) for library, methods in METHODS.items() for method in methods]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("libraries.json"))
    parser.add_argument("--only", help="rows whose library and method match this")
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    import_torchvision()
    for name in ("laplace", "torch_uncertainty", "posteriors", "torchopt", "numpyro.infer.autoguide"):
        importlib.import_module(name)
    train(tasks()[-1])  # what PyTorch prepares when it is first used
    rows = []
    for task in tasks():
        print(f"{task.name}: {len(task.x):,} to train on, {len(task.x_test)} to test on")
        for library, methods in METHODS.items():
            for method, act in methods.items():
                if chosen.only and not re.search(chosen.only, f"{library} {method}"):
                    continue
                jax.clear_caches()
                rows.append(
                    {"task": task.name, "library": library, "method": method} | measured(task, act, chosen.seeds)
                )
                shown = {name: value for name, value in rows[-1].items() if isinstance(value, list)}
                numbers = ", ".join(f"{name} {np.round(value, 3).tolist()}" for name, value in shown.items())
                print(f"  {library}, {method}: {numbers or rows[-1]['error']}", flush=True)
    settings = {
        "hidden": HIDDEN, "prior_variance": PRIOR, "noise": NOISE, "learning_rate": RATE, "batch": BATCH,
        "epochs": EPOCHS, "draws": DRAWS, "members": MEMBERS, "trajectories": TRAJECTORIES, "steps": STEPS,
        "seeds": chosen.seeds,
    }  # fmt: skip
    versions = {name: version(name) for name in PACKAGES}
    if chosen.only and chosen.out.exists():  # the other rows of a run in parts
        before = json.loads(chosen.out.read_text())
        if (before["settings"], before["versions"]) != (settings, versions):
            sys.exit(f"{chosen.out} is of other settings or versions")
        now = {row["method"]: row["library"] for row in rows}
        rows += [row for row in before["rows"] if now.get(row["method"]) != row["library"]]
        places = [(task.name, *names) for task in tasks() for names in ROWS]
        rows.sort(key=lambda row: places.index((row["task"], row["library"], row["method"])))
    chosen.out.write_text(json.dumps({"settings": settings, "versions": versions, "rows": rows}, indent=1) + "\n")
    print(table(rows))


def measured(task: Task, act: Callable, seeds: int) -> dict:
    """Every score as a list with one entry a seed, and the first seed's seconds; a row that failed says so."""
    found: dict = {}
    for seed in range(seeds):
        began = time.process_time()
        try:
            of = scores(task, act(task._replace(seed=seed)))
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"[:300]}
        for name, value in of.items():
            found.setdefault(name, []).append(value)
        found.setdefault("cpu_seconds", time.process_time() - began)
    return found


def table(rows: list[dict]) -> str:
    """The rows as Markdown: mean ± standard deviation over seeds; the best mean of a column is in bold."""
    lines = []
    shown = {"digits": ("accuracy", "nll", "ece", "brier"), "diabetes": ("rmse", "nll", "crps", "coverage_90")}
    for task, columns in shown.items():
        of = [row for row in rows if row["task"] == task and "error" not in row]
        if not of:
            continue
        base = of[0]["cpu_seconds"]
        means = [{name: round(float(np.mean(row[name])), 3) for name in columns} for row in of]
        far = {"accuracy": lambda v: -v, "coverage_90": lambda v: abs(v - 0.9)}
        best = {name: min((mean[name] for mean in means), key=far.get(name, lambda v: v)) for name in columns}
        lines += ["", f"| {task} | " + " | ".join(columns) + " | seconds |", "|---|" + "--:|" * (len(columns) + 1)]
        for row, mean in zip(of, means, strict=True):
            cells = [
                (f"**{mean[n]:.3f}**" if mean[n] == best[n] else f"{mean[n]:.3f}") + f" ± {spread(row[n]):.3f}"
                for n in columns
            ]
            lines.append(
                f"| {row['library']}, {row['method']} | {' | '.join(cells)} | {row['cpu_seconds'] / base:.1f} |"
            )
    return "\n".join(lines)


def spread(values: list[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


if __name__ == "__main__":
    main()
