"""Wrong science is refused with the reason; numbers at the edge stay finite or say why not."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .common import Tally


def refusals(_: int, scratch: Path) -> list[Tally]:
    """Each wrong use must raise an error of ours that names what is wrong."""
    from bayesin.errors import BayesinError

    tally = Tally("wrong science")
    for name, (attempt, word) in _wrong(scratch).items():
        try:
            attempt()
            tally.add([f"{name}: accepted"])
        except BayesinError as error:
            tally.add([] if word in str(error) else [f"{name}: says '{error}', not '{word}'"])
        except Exception as error:
            tally.add([f"{name}: {type(error).__name__}: {error!s:.120}"])
    return [tally]


def edges(count: int, scratch: Path) -> list[Tally]:
    """Extremes, `count` of them and at most all, must give finite numbers or an error of ours."""
    from bayesin.errors import BayesinError

    tally, said = Tally("numerical edges"), 0
    for name, attempt in [*_edges().items()][:count]:
        try:
            found = [float(value) for value in attempt()]
            tally.add([] if all(map(math.isfinite, found)) else [f"{name}: {found}"])
        except BayesinError:
            said += 1
            tally.add([])
        except Exception as error:
            tally.add([f"{name}: {type(error).__name__}: {error!s:.160}"])
    tally.note = f"{tally.tries - said} finite, {said} refused with the reason"
    return [tally]


KINDS: tuple[dict[str, Any], ...] = (  # of random programs, in turns
    {"steps": 14},
    {"multiplied": True},
    {"steps": 8, "choosing": True},
    {"steps": 10, "stacked": True},
    {"steps": 8, "choosing": True, "stacked": True},
)


def programs(count: int, _: Path) -> list[Tally]:
    """Random programs with the symmetry, signs and scales too, that discovery finds: moved, they compute the same."""
    import jax

    import bayesin
    from bayesin.errors import BayesinError
    from symmetry_programs import Program

    tally, x = Tally("symmetry of random programs"), np.random.default_rng(1).normal(size=(2, 3)).astype(np.float32)
    for seed in range(100, 100 + count):
        program = Program(seed, **KINDS[seed % len(KINDS)])
        params = program.params()
        try:
            spec = bayesin.discover(program, params, x, signs=True, scales=True)
            bayesin.verify(program, params, x, spec, key=jax.random.key(seed), trials=1)
            tally.add([])
        except BayesinError as error:
            tally.add([f"seed {seed}: {error}"])
    return [tally]


def net(width: int = 4, inputs: int = 3, classes: int = 3, seed: int = 0, dtype: Any = np.float32) -> dict[str, Any]:
    """Parameters of a network with one hidden layer."""
    draws = np.random.default_rng(seed)
    shapes = {"w0": (inputs, width), "b0": (width,), "w1": (width, classes)}
    return {name: draws.normal(size=shape).astype(dtype) for name, shape in shapes.items()}


def apply(params: dict[str, Any], x: Any) -> Any:
    """The network."""
    import jax

    return jax.nn.relu(x @ params["w0"] + params["b0"][None]) @ params["w1"]


def _wrong(scratch: Path) -> dict[str, tuple[Callable[[], Any], str]]:
    import jax

    import bayesin as b
    from bayesin.data import from_arrays
    from bayesin.models import Model
    from bayesin.store import load_posterior, save_alignment, save_posterior

    key, x = jax.random.key(0), np.random.default_rng(1).normal(size=(12, 3)).astype(np.float32)
    y = np.arange(12) % 3
    p, q, wide = net(), net(seed=1), net(width=5)
    spec = b.discover(apply, p, x)
    group = next(iter(spec.sizes))
    other = b.discover(apply, wide, x)
    gaussian = b.Gaussian(p, {name: np.full_like(leaf, 0.1) for name, leaf in p.items()})
    negative = b.Gaussian(p, {name: -np.ones_like(leaf) for name, leaf in p.items()})
    nan = {**p, "w0": np.full_like(p["w0"], np.nan)}
    false_spec = b.PermutationSpec.parse({"w0": ["g0", "4"], "b0": ["4"], "w1": ["4", "3"]}, {"g0": 3})
    model = Model(lambda key: {name: jax.numpy.asarray(leaf) for name, leaf in net().items()}, apply)
    stack = {name: np.stack([leaf, leaf + 1]) for name, leaf in p.items()}
    path = scratch / "q.safetensors"

    def settings(kind: Any, **given: Any) -> Callable[[], Any]:
        return lambda: kind(**given)

    cases: dict[str, tuple[Callable[[], Any], str]] = {}
    for kind, names in ((b.VI, ("temperature", "prior_variance", "noise", "initial_std")),
                        (b.Ensemble, ("prior_variance", "noise")),
                        (b.HMC, ("temperature", "prior_variance", "noise", "step_size"))):  # fmt: skip
        for name in names:
            for value in (0.0, -1.0, float("nan"), float("inf"), "1", None, True):
                cases[f"{kind.__name__}({name}={value!r})"] = settings(kind, **{name: value}), name
    train, evaluate = (x, y), {"key": key, "samples": 4, "taus": 3}
    return cases | {
        "align: another width": (lambda: b.align(p, wide, spec, key=key), "shape"),
        "align: spec of another network": (lambda: b.align(p, q, other, key=key), "spec"),
        "align: NaN": (lambda: b.align(p, nan, spec, key=key), "NaN"),
        "align: negative stds": (lambda: b.align(gaussian, negative, spec, key=key), "negative"),
        "align: KL with a point": (lambda: b.align(gaussian, q, spec, key=key, cost="kl"), "point"),
        "align: false spec": (
            lambda: b.align(p, q, false_spec, key=key, init={"g0": np.roll(np.arange(3), 1)}, check=(apply, x)),
            "function"),
        "verify: false spec": (lambda: b.verify(apply, p, x, false_spec, key=key), "not a symmetry"),
        "permute: not a permutation": (lambda: b.permute(p, spec, {group: np.array([0, 0, 1, 2])}), group),
        "permute: too long": (lambda: b.permute(p, spec, {group: np.arange(5)}), group),
        "permute: fractions": (lambda: b.permute(p, spec, {group: np.arange(4) + 0.5}), group),
        "permute: no such group": (lambda: b.permute(p, spec, {"g9": np.arange(4)}), "g9"),
        "save: permutation of another spec": (lambda: save_alignment(path, {"g0": np.arange(5)}, spec), "g0"),
        "save: NaN": (lambda: save_posterior(path, nan), "nan"),
        "save: negative stds": (lambda: save_posterior(path, negative), "negative"),
        "load: another model": (lambda: load_posterior(save_posterior(path, wide), like=p), "shape"),
        "geodesic: another width": (lambda: b.geodesic(p, wide), "shape"),
        "geodesic: negative stds": (lambda: b.geodesic(gaussian, negative), "negative"),
        "geodesic: beyond its end": (lambda: b.geodesic(p, q)(1.5), "1.5"),
        "density of a point": (lambda: b.Gaussian.point(p).log_density(p), "no density"),
        "density with negative stds": (lambda: negative.log_density(p), "no density"),
        "density elsewhere": (lambda: gaussian.log_density(wide), "shape"),
        "barrier: more classes than outputs": (
            lambda: b.barrier(b.geodesic(p, q), apply, (x, y + 1), **evaluate), "3 outputs"),
        "barrier: negative labels": (lambda: b.barrier(b.geodesic(p, q), apply, (x, y - 1), **evaluate), "labels"),
        "barrier: other inputs": (lambda: b.barrier(b.geodesic(p, q), apply, (x[:, :2], y), **evaluate), "shape"),
        "barrier: NaN weights": (lambda: b.barrier(b.geodesic(p, nan), apply, train, **evaluate), "τ"),
        "barrier: no draws": (
            lambda: b.barrier(b.geodesic(gaussian, q), apply, train, **(evaluate | {"samples": 0})), "samples=0"),
        "train: more classes than outputs": (lambda: b.fit_vi(key, model, (x, y + 1), b.VI(epochs=1)), "3 outputs"),
        "train: NaN inputs": (lambda: b.fit_vi(key, model, (x * np.nan, y), b.VI(epochs=1)), "NaN"),
        "train: other inputs": (lambda: b.fit_vi(key, model, (x[:, :2], y), b.VI(epochs=1)), "shape"),
        "train: raw key": (lambda: b.fit_vi(7, model, train, b.VI(epochs=1)), "key"),
        "compact: one sample": (lambda: b.compact(b.Samples(jax.tree.map(_first, stack)), spec, key=key), "two"),
        "compact: spec of another network": (lambda: b.compact(b.Samples(stack), other, key=key), "spec"),
        "samples: no common axis": (lambda: b.Samples({"a": np.ones(2), "b": np.ones(3)}), "leading"),
        "data: test labels beyond the training set": (lambda: from_arrays(x, y, x, y + 1), "label 3"),
        "data: inputs of two shapes": (lambda: from_arrays(x, y, x[:, :2], y), "shape"),
        "data: NaN": (lambda: from_arrays(x * np.nan, y, x, y), "finite"),
        "data: one class": (lambda: from_arrays(x, 0 * y, x, 0 * y), "two classes"),
    }  # fmt: skip


def _edges() -> dict[str, Callable[[], list[Any]]]:
    import jax
    import ml_dtypes

    import bayesin as b
    from bayesin.evaluation.predict import evaluate
    from bayesin.models import Model

    key, draws = jax.random.key(0), np.random.default_rng(2)

    def walk(p: Any, q: Any, x: Any, y: Any, align: bool = True) -> list[Any]:
        if align:
            q = b.align(p, q, b.discover(apply, p.mean if isinstance(p, b.Gaussian) else p, x), key=key).posterior
        found = b.barrier(b.geodesic(p, q), apply, (x, y), key=key, samples=4, taus=3)
        return [*found.nll, found.value, found.standard_error, *found.bias]

    def trained(params: Any, x: Any, y: Any, **settings: Any) -> list[Any]:
        model = Model(lambda key: {name: jax.numpy.asarray(leaf) for name, leaf in params.items()}, apply)
        fit = b.fit_vi(key, model, (x, y), b.VI(epochs=2, batch=8, **settings))
        found = evaluate(fit.posterior, apply, (x, y), key=key, samples=4)
        return [*fit.trace["loss"].ravel(), *fit.trace["kl"].ravel(), found.nll]

    def spread(params: Any, std: float) -> Any:
        return b.Gaussian(params, {name: np.full_like(leaf, std) for name, leaf in params.items()})

    x, y = draws.normal(size=(12, 3)).astype(np.float32), np.arange(12) % 3
    many = (draws.normal(size=(4, 3)).astype(np.float32), np.array([0, 9999, 5000, 1]))
    one = (x[:1], y[:1])
    cases: dict[str, Callable[[], list[Any]]] = {
        "width 1": lambda: walk(net(1), net(1, seed=1), x, y),
        "one class": lambda: walk(net(classes=1), net(classes=1, seed=1), x, 0 * y),
        "one example": lambda: walk(net(), net(seed=1), *one),
        "10,000 classes": lambda: walk(net(classes=10_000), net(classes=10_000, seed=1), *many),
        "logits of 1e4": lambda: walk(_louder(net(), 1e4), _louder(net(seed=1), 1e4), x, y),
        "logits of 1e30": lambda: walk(_louder(net(), 1e30), _louder(net(seed=1), 1e30), x, y),
        "weights of 1e-30": lambda: walk(_louder(net(), 1e-30), _louder(net(seed=1), 1e-30), x, y),
        "equal ends": lambda: walk(net(), net(), x, y),
        "dead network": lambda: walk(_louder(net(), 0.0), net(seed=1), x, y),
        "train: width 1": lambda: trained(net(1), x, y),
        "train: one example": lambda: trained(net(), *one),
        "train: one class": lambda: trained(net(classes=1), x, 0 * y),
        "train: 10,000 classes": lambda: trained(net(classes=10_000), *many),
        "train: prior variance 1e-20": lambda: trained(net(), x, y, prior_variance=1e-20),
        "train: prior variance 1e20": lambda: trained(net(), x, y, prior_variance=1e20),
        "train: initial std 1e-20": lambda: trained(net(), x, y, initial_std=1e-20),
        "train: initial std 1e20": lambda: trained(net(), x, y, initial_std=1e20),
        "train: temperature 1e-20": lambda: trained(net(), x, y, temperature=1e-20),
        "train: temperature 1e20": lambda: trained(net(), x, y, temperature=1e20),
        "train: logits of 1e4": lambda: trained(_louder(net(), 1e4), x, y, explosion=1e9),
        "wasserstein at 1e19": lambda: [float(b.paths.wasserstein(_louder(net(), 1e19), net()))],
        "fold equal samples": lambda: _spread_of(b.compact(_twice(net()), b.discover(apply, net(), x), key=key)),
        "density at std 1e-20": lambda: [spread(net(), 1e-20).log_density(net())],
    }
    for std in (0.0, 1e-45, 1e-20, 1e-3, 1e3, 1e10, 1e20, 3e38):
        cases[f"std {std:g}"] = lambda std=std: walk(spread(net(), std), spread(net(seed=1), std), x, y)
    for kind in (np.float16, ml_dtypes.bfloat16, np.float64):
        cases[f"{np.dtype(kind).name} leaves"] = lambda kind=kind: walk(
            net(dtype=kind), net(seed=1, dtype=kind), x, y
        )
    for std in (1e-20, 1e20):
        cases[f"low precision, std {std:g}"] = lambda std=std: walk(
            spread(net(dtype=np.float16), min(std, 6e4)), spread(net(seed=1, dtype=np.float16), min(std, 6e4)), x, y
        )
    return cases


def _louder(params: dict[str, Any], factor: float) -> dict[str, Any]:
    return params | {"w1": (params["w1"] * factor).astype(params["w1"].dtype)}


def _twice(params: dict[str, Any]) -> Any:
    from bayesin import Samples

    return Samples({name: np.stack([leaf, leaf]) for name, leaf in params.items()})


def _first(leaf: Any) -> Any:
    return leaf[:1]


def _spread_of(found: Any) -> list[Any]:
    return [found.spread_before, found.spread_after]
