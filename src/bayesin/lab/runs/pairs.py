"""A pair of posteriors, from files to barriers: load, find the symmetry, align, check, measure.

`bayesin align`, `bayesin barrier`, the demonstration and every campaign go this one way. Whatever found the
permutations, the moved posterior must compute the same function on real inputs, by the tolerance of
`symmetry.check_same_function`, before anything is measured on it.
"""

import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import jax
import numpy as np

from ...data import Dataset, Normalise
from ...errors import BayesinError, ConfigError
from ...evaluation import Barrier, barrier
from ...inputs import Inputs, take
from ...matching import Alignment, Sweep, align
from ...matching.costs import Activations, Blend, CostLike, Wasserstein
from ...models import Model
from ...paths import Geodesic, geodesic, wasserstein
from ...posteriors import Posterior, is_posterior
from ...rescaling import Rescaled, rescale
from ...symmetry import Perms, PermutationSpec, check_same_function
from ...trees import Tree
from .posterior_files import (
    ModelChoice,
    PosteriorFile,
    dataset_of,
    discover_and_verify,
    example_inputs,
    model_of,
    read_posterior,
    spec_of,
)

CHECKED = 256  # inputs on which the function is compared before and after
SEEN = 2_000  # training inputs at most on which units are compared and rescaled
DRAWS = 2  # of the weights, for both
LOOKED_AT = 200  # test examples on which ways to prepare inputs are compared
FAR = 0.1  # in accuracy; three standard errors of that many examples

CostName = Literal["wasserstein", "means", "kl", "activations", "blend"]
BY_DATA: tuple[CostName, ...] = ("activations", "blend")


@dataclass(frozen=True)
class PosteriorPair:
    """Two posteriors of one network, and the symmetry by which `source` may be moved onto `target`."""

    target: Posterior | Tree  # a point is a plain tree
    source: Posterior | Tree
    spec: PermutationSpec
    model: Model | None = None  # None where nothing names it: then the function is not compared
    inputs: Inputs | None = None  # on which it is compared
    inputs_are: str = "test examples"
    spec_from: str = "discovered and verified"
    data: Dataset | None = None


@dataclass(frozen=True)
class AlignedPair:
    """A pair, and its source moved onto its target."""

    pair: PosteriorPair
    alignment: Alignment
    function_change: float | None  # of the outputs by moving, relative to the largest; None where not compared
    sweeps: tuple[Perms, ...] = ()  # where the units stood after each sweep of the best start

    @property
    def paths(self) -> dict[str, Geodesic]:
        """The geodesics from the target to the source as it was ("naive") and as it was moved ("aligned")."""
        target = self.pair.target
        return {"naive": geodesic(target, self.pair.source), "aligned": geodesic(target, self.alignment.posterior)}

    @property
    def numbers(self) -> dict[str, Any]:
        """How it went, as plain data; running statistics do not count in the distances."""
        pair, alignment, compared = self.pair, self.alignment, self.function_change is not None
        exclude = _statistics(pair.model)
        return {
            **search_numbers(alignment),
            "w2_before": float(wasserstein(pair.target, pair.source, exclude=exclude)),
            "w2_after": float(wasserstein(pair.target, alignment.posterior, exclude=exclude)),
            "function_change": self.function_change,
            "checked_on": pair.inputs_are if compared else None,
        }


def search_numbers(alignment: Alignment) -> dict[str, Any]:
    """How a search went, as plain data, with the most by which another permutation can be better."""
    return {
        "moved": alignment.moved,
        **({"flipped": alignment.flipped} if alignment.signs else {}),
        "sweeps": alignment.sweeps,
        "converged": alignment.converged,
        "objective": alignment.objective,
        "gap": alignment.gap,
        "seconds": alignment.seconds["total"],
    }


class Measured(NamedTuple):
    """Examples on which a path is measured."""

    x: Inputs
    y: np.ndarray
    samples: int  # draws of the weights at every point of the path
    keep: Any = ()  # examples whose predictions are kept


def load_pair(
    target: PosteriorFile,
    source: PosteriorFile,
    choice: ModelChoice | None = None,
    *,
    spec: Path | None = None,
    signs: bool = False,
    symmetry: bool = True,
    data_needed: bool = False,
) -> PosteriorPair:
    """Reads two posteriors, their model, data and spec; the spec is discovered where no file has it.

    Args:
        target: what stays where it is.
        source: what may be moved.
        choice: model and data, for files that do not name them.
        spec: a file with the spec; by default the one in the posteriors' files.
        signs: whether units may also change their sign, where the network allows it.
        symmetry: without it no spec is looked for.
        data_needed: whether model and data must be known.

    Raises:
        ConfigError: something is not named, or the posteriors are of different networks.
        SymmetryError: what was discovered is no symmetry after all.
    """
    choice = choice or ModelChoice()
    data = dataset_of(choice, target, source, needed=data_needed)
    model = model_of(choice, data, target, source)
    if data_needed and (data is None or model is None):
        missing = "--data" if data is None else "--model"
        raise ConfigError(
            f"neither {target.path.name} nor its run names the {missing[2:]} it belongs to; use {missing}"
        )
    first, second = read_posterior(target, model), read_posterior(source, model)
    example = example_inputs(data, CHECKED, model, target, source) if model is not None else None
    inputs, inputs_are = example or (None, "")
    known = spec_of(target, source, path=spec, signs=signs) if symmetry else PermutationSpec(())
    origin = "from the files" if spec is None else f"from {spec}"
    if known is None:
        if model is None or inputs is None:
            lacking = "a permutation spec" if not signs else "a spec with signs"
            raise ConfigError(f"no file holds {lacking}, and nothing names the model to find it; use --model")
        known = discover_and_verify(model, point_of(first), inputs, signs=signs)
        found = "discovered with signs" if known.signed else "discovered, without a sign to change," if signs else ""
        origin = f"{found or 'discovered'} and verified"
    return PosteriorPair(first, second, known, model, inputs, inputs_are, origin, data)


def doubts_about_inputs(pair: PosteriorPair, choice: ModelChoice, *files: PosteriorFile) -> str | None:
    """What a person should know where both networks are right far more often on inputs that are prepared otherwise.

    None where a file says how its inputs were prepared. A checkpoint of another program does not, and on other inputs
    its barrier means nothing.
    """
    data, model = pair.data, pair.model
    if data is None or model is None or data.classes is None or any(file.run_data for file in files):
        return None
    points = [point_of(posterior) for posterior in (pair.target, pair.source)]
    right = {data.normalise: _accuracies(model, points, data)}
    for other in (way for way in get_args(Normalise)[::-1] if way != data.normalise):
        with suppress(BayesinError), warnings.catch_warnings():  # tokens, say, can only be left as they are
            warnings.simplefilter("ignore")  # on how arrays are read that are only looked at
            right[other] = _accuracies(model, points, dataset_of(replace(choice, normalise=other), *files))
    best = max(right, key=lambda way: sum(right[way]))
    if sum(right[best]) - sum(right[data.normalise]) < 2 * FAR:
        return None
    now, then = (" and ".join(f"{accuracy:.1%}" for accuracy in right[way]) for way in (data.normalise, best))
    return f"accuracies are {now}, with --normalise {best} they would be {then}: were the two trained on such inputs?"


def _accuracies(model: Model, points: list[Tree], data: Dataset | None) -> list[float]:
    assert data is not None
    x, y = take(data.x_test, slice(LOOKED_AT)), data.y_test[:LOOKED_AT]
    return [float(np.mean(np.asarray(model.apply(params, x)).argmax(-1) == y)) for params in points]


def align_pair(
    pair: PosteriorPair,
    *,
    key: jax.Array,
    cost: CostName = "wasserstein",
    restarts: int = 1,
    max_sweeps: int = 100,
    on_sweep: Callable[[Sweep], None] | None = None,
) -> AlignedPair:
    """Moves the source onto the target, and checks that it computes what it did.

    Raises:
        ConfigError: a cost that looks at data, and no network or no data.
        SymmetryError: moving the units changed the function, so that the spec is wrong for this network.
    """
    searches: list[list[Perms]] = []  # one for each start

    def swept(sweep: Sweep) -> None:
        if sweep.number == 1:
            searches.append([])
        if sweep.perms is not None:
            searches[-1].append(sweep.perms)
        if on_sweep is not None:
            on_sweep(sweep)

    alignment = align(
        pair.target,
        pair.source,
        pair.spec,
        key=key,
        cost=cost_of_name(cost, pair.model, pair.data, key),
        restarts=restarts,
        max_sweeps=max_sweeps,
        exclude=_statistics(pair.model),
        on_sweep=swept,
    )
    change = None
    if pair.model is not None and pair.inputs is not None:
        before, after = (point_of(posterior) for posterior in (pair.source, alignment.posterior))
        change = check_same_function(pair.model.apply, before, after, take(pair.inputs, slice(CHECKED)))
    return AlignedPair(pair, alignment, change, _sweeps_to(alignment.perms, searches))


def cost_of_name(name: CostName, model: Model | None, data: Dataset | None, key: jax.Array) -> CostLike:
    """The cost that a flag names; those that look at data take the training inputs."""
    if name not in BY_DATA:
        return name
    network, x = _seen(model, data, f"--cost {name}")
    by_function = Activations(network.apply, x, samples=DRAWS, key=key)
    return by_function if name == "activations" else Blend(Wasserstein(), by_function)


def rescaled_path(path: Callable[[float], Any], pair: PosteriorPair, *, key: jax.Array) -> Rescaled:
    """The path on which units keep the spread that they have on the training inputs at both ends."""
    model, x = _seen(pair.model, pair.data, "--rescale")
    return rescale(path, model.apply, x, key=key, samples=DRAWS, spec=pair.spec)


def measure_barriers(
    paths: Mapping[str, Callable[..., Any]],
    apply: Callable[[Tree, Any], Any],
    sets: Mapping[str, Measured],
    *,
    key: jax.Array,
    taus: int = 25,
    on_point: Callable[[int, int, str], Any] | None = None,
    **options: Any,
) -> dict[str, dict[str, Barrier]]:
    """Returns the barrier of every path on every set, as `{set: {path: barrier}}`.

    All are measured with one key: the same draws at the same τ, so that paths differ by themselves alone.

    Args:
        on_point: called with the points done so far, all points, and what was measured, in words.
        options: passed on to `barrier`, such as the likelihood.
    """
    curves = [(name, kind) for name in sets for kind in paths]
    barriers: dict[str, dict[str, Barrier]] = {name: {} for name in sets}
    for number, (name, kind) in enumerate(curves):

        def on_tau(count: int, tau: float, loss: float, number: int = number, what: str = f"{kind}, {name}") -> None:
            if on_point is not None:
                on_point(number * taus + count, len(curves) * taus, f"{what} set: loss {loss:.4f} at τ = {tau:.2f}")

        examples = sets[name]
        path = paths[kind]
        barriers[name][kind] = barrier(
            path,
            path.apply if isinstance(path, Rescaled) else apply,
            (examples.x, examples.y),
            key=key,
            samples=examples.samples,
            taus=taus,
            keep=examples.keep,
            on_tau=on_tau,
            **options,
        )
    return barriers


def first_of_each_class(labels: np.ndarray) -> np.ndarray:
    """Returns the first example of each class: a choice of images that does not depend on any result.

    Example:
        >>> first_of_each_class(np.array([2, 0, 2, 1])).tolist()
        [1, 3, 0]
    """
    return np.unique(labels, return_index=True)[1]


def point_of(posterior: Posterior | Tree) -> Tree:
    """The weights that stand for a posterior: its mean, or the point itself."""
    return posterior.mean if is_posterior(posterior) else posterior


def _seen(model: Model | None, data: Dataset | None, flag: str) -> tuple[Model, Inputs]:
    if model is None or data is None:
        raise ConfigError(f"{flag} looks at what units compute on training inputs; use --model and --data")
    return model, take(data.x_train, slice(SEEN))


def _statistics(model: Model | None) -> frozenset[str]:
    return frozenset() if model is None else model.statistics


def _sweeps_to(perms: Perms, searches: list[list[Perms]]) -> tuple[Perms, ...]:
    """The sweeps of the start that ended where the alignment did; empty where none is known to."""
    for sweeps in searches:
        if sweeps and all(np.array_equal(sweeps[-1][group], perm) for group, perm in perms.items()):
            return tuple(sweeps)
    return ()
