"""Many small networks at once, for the studies of transpositions and of training dynamics.

`fit_ensemble`, `evaluate` and `compact` take one fit, one posterior, one set of samples, and data from anywhere. A
study trains hundreds of networks from given starts, looks at them after every epoch and compares them in pairs, all
on one data set. So that is sent to the device once, and a stack of networks (`Samples`) passes through one compiled
program each to be trained, measured and matched.

The paper's networks: 784-512-10 on MNIST with pixels between 0 and 1, started as PyTorch starts linear layers;
gradient descent 1e-3 with momentum 0.9, batch 64, 50 epochs, no weight decay; matching by uncentred inner products of
activations over the training set.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ....data import Dataset
from ....errors import ConfigError
from ....inference import Ensemble
from ....inputs import Chunks, cut
from ....likelihoods import Categorical, negative_log_likelihood
from ....matching import assign, inner_products
from ....models import Model
from ....paths import geodesic
from ....posteriors import Samples
from ....symmetry import Activations, Perms, PermutationSpec, discover, hidden_activations, transpositions
from ....trees import Tree, flatten, map_with_path
from ...campaign import Resources, Task, TaskContext, seeded
from ...runs import RunConfig
from ..reproduction import Record, of_kind

LENGTH = 5_000  # examples of one pass
NETWORKS = 16  # of one pass
SHAPES: dict[str, dict[str, Any]] = {
    "smoke": {"data": "digits", "width": 24},
    "cpu": {"data": "mnist", "width": 64, "limit": 5_000},
    "paper": {"data": "mnist", "width": 512},
}
EPOCHS = {"smoke": 10, "cpu": 20, "paper": 50}


@dataclass(frozen=True)
class SGDConfig:
    """Settings of gradient descent; the defaults are the paper's."""

    epochs: int = 50
    batch: int = 64
    learning_rate: float = 1e-3
    momentum: float = 0.9

    def __post_init__(self):
        if self.epochs < 0 or self.batch < 1 or not self.learning_rate > 0 or not 0 <= self.momentum < 1:
            raise ConfigError(f"these settings of gradient descent make no sense: {self}")


@dataclass(frozen=True)
class Study(Task):
    """Base of the studies. `which` is a field, as 0.1 has named finished tasks by it."""

    network: RunConfig  # data and network; how it says to train is not used
    descent: SGDConfig
    which: str = ""
    run: int = 0  # of permuted starts: run r depends on the key and r alone
    values: int = 50  # numbers of initial transpositions, or pairs of networks
    key: int = 0

    kind = "study"
    words: ClassVar[str] = ""  # what a person wants to read

    @property
    def title(self) -> str:
        what = self.words.format(run=self.run)
        return f"{what}, width {self.network.width} on {self.network.data}{seeded(self.key)}"

    @property
    def resources(self) -> Resources:
        return Resources(cpus=2, gpus=1, memory=8 << 30)

    def setting(self, context: TaskContext) -> "Setting":
        """What the study works on."""
        return make_setting(*context.prepared(self.network), self.descent)


def network_and_descent(scale: str) -> tuple[RunConfig, SGDConfig]:
    """Data, network and training of a study at a scale."""
    shape = SHAPES[scale] | {"model": "mlp", "depth": 1, "normalise": "unit"}
    return RunConfig(training=Ensemble(), **shape), SGDConfig(epochs=EPOCHS[scale])


def of_study(records: Sequence[Record], which: str) -> list[Record]:
    """The records of one study that are done."""
    return [record for record in of_kind(records, "study") if record["settings"]["which"] == which]


class Setting(NamedTuple):
    """What a study works on: a network, its symmetry, how it is trained, and the data on the device."""

    model: Model
    spec: PermutationSpec
    activations: Activations
    descent: SGDConfig
    examples: tuple[jax.Array, jax.Array]  # to train on
    sets: dict[str, Chunks]  # "train" and "test", to measure on


def make_setting(data: Dataset, model: Model, descent: SGDConfig) -> Setting:
    """Sends the data to the device once; the networks start as PyTorch's do."""
    model, key, x = _started_as_in_pytorch(model), jax.random.key(0), np.asarray(data.x_train[:8])
    spec = discover(model.apply, model.init(key), x[:2])
    activations = hidden_activations(model.apply, model.init(key), x, spec, key=key)
    sets = {"train": (data.x_train, data.y_train), "test": (data.x_test, data.y_test)}
    chunks = {name: cut(*part, LENGTH) for name, part in sets.items()}
    return Setting(model, spec, activations, descent, (jnp.asarray(data.x_train), jnp.asarray(data.y_train)), chunks)


def trained(key: jax.Array, setting: Setting, starts: Samples) -> Iterator[Samples]:
    """Yields a stack of networks before training and after every epoch.

    Network i visits the examples in orders that depend on `fold_in(key, i)` alone; what fills no batch is left out of
    that epoch.
    """
    keys = jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(len(starts)))
    params = jax.tree.map(jnp.asarray, starts.params)
    state = jax.vmap(_optimiser(setting.descent).init)(params)
    yield Samples(params)
    for epoch in range(setting.descent.epochs):
        program = partial(_epoch, setting.model.apply, setting.descent)
        params, state = program(params, state, keys, np.int32(epoch), *setting.examples)
        yield Samples(params)


def trained_end(key: jax.Array, setting: Setting, starts: Samples) -> Samples:
    """Returns the last of `trained`."""
    for networks in trained(key, setting, starts):  # a list of all would hold every epoch in memory
        starts = networks
    return starts


def losses_and_errors(setting: Setting, networks: Samples, part: str) -> np.ndarray:
    """Returns (2, networks): mean cross-entropy and share of errors of each on the "train" or "test" set."""
    return np.asarray(_losses_and_errors(setting.model.apply, networks.params, setting.sets[part]), np.float64)


def match_pairs(setting: Setting, first: Samples, second: Samples) -> Perms:
    """Returns the permutations {group: (pairs, units)} that match network k of `second` to network k of `first`.

    Units are compared by what they do on the training set, as in `compact(match="activations")`.
    """
    products = jax.device_get(
        _inner_products(setting.activations, first.params, second.params, setting.sets["train"])
    )
    return {
        group: np.stack([assign(np.ascontiguousarray(matrix, np.float64)).perm for matrix in matrices])
        for group, matrices in products.items()
    }


def count_transpositions(perms: Perms) -> list[int]:
    """Returns the number of transpositions of every pair, over all groups."""
    pairs = zip(*perms.values(), strict=True)
    return [sum(transpositions(dict(zip(perms, of_pair, strict=True))).values()) for of_pair in pairs]


def on_line(first: Tree, second: Tree, taus: np.ndarray) -> Samples:
    """Returns the networks at every τ of the line between two."""
    line = geodesic(first, second)
    return Samples(jax.vmap(lambda tau: line(tau).mean)(jnp.asarray(taus, jnp.float32)))


def _started_as_in_pytorch(model: Model) -> Model:
    """A dense model whose weights and biases start as U(±1/√fan_in), the default of PyTorch."""

    def init(key: jax.Array) -> Tree:
        params = model.init(key)
        leaves = flatten(params)
        fan_in = {path.rpartition("/")[0]: leaf.shape[0] for path, leaf in leaves.items() if leaf.ndim == 2}
        numbers = {path: number for number, path in enumerate(sorted(leaves))}

        def start(path: str, leaf: Any) -> jax.Array:
            bound = 1 / np.sqrt(fan_in[path.rpartition("/")[0]])
            stream = jax.random.fold_in(key, numbers[path])
            return jax.random.uniform(stream, leaf.shape, jnp.float32, -bound, bound)

        return map_with_path(start, params)

    return model._replace(init=init)


def _optimiser(descent: SGDConfig) -> optax.GradientTransformation:
    return optax.sgd(descent.learning_rate, descent.momentum)


@partial(jax.jit, static_argnums=(0, 1))
def _epoch(apply: Any, descent: SGDConfig, params: Tree, state: Any, keys: jax.Array, epoch: Any, x: Any, y: Any):
    batch = min(descent.batch, len(x))
    steps = len(x) // batch

    def of_network(params: Tree, state: Any, key: jax.Array) -> tuple[Tree, Any]:
        order = jax.random.permutation(jax.random.fold_in(key, epoch), len(x))[: steps * batch].reshape(steps, batch)

        def step(carry: tuple[Tree, Any], index: jax.Array) -> tuple[tuple[Tree, Any], None]:
            params, state = carry
            gradient = jax.grad(lambda p: negative_log_likelihood(Categorical(), apply(p, x[index]), y[index]).mean())
            updates, state = _optimiser(descent).update(gradient(params), state)
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(step, (params, state), order)[0]

    return jax.vmap(of_network)(params, state, keys)


@partial(jax.jit, static_argnums=0)
def _losses_and_errors(apply: Any, networks: Tree, chunks: Chunks) -> jax.Array:
    def of_network(params: Tree) -> jax.Array:
        def add(total: jax.Array, chunk: Chunks) -> tuple[jax.Array, None]:
            with jax.default_matmul_precision("highest"):
                outputs = apply(params, chunk.x)
            loss = negative_log_likelihood(Categorical(), outputs, chunk.y)
            wrong = (outputs.argmax(-1) != chunk.y).astype(loss.dtype)
            return total + jnp.stack([loss, wrong]) @ chunk.weight, None

        return jax.lax.scan(add, jnp.zeros(2), chunks)[0] / chunks.weight.sum()

    return jax.lax.map(of_network, networks, batch_size=NETWORKS).T


@partial(jax.jit, static_argnums=0)
def _inner_products(activations: Activations, first: Tree, second: Tree, chunks: Chunks) -> dict[str, jax.Array]:
    def of_pair(pair: tuple[Tree, Tree]) -> dict[str, jax.Array]:
        sums = inner_products(activations, pair[0], jax.tree.map(lambda leaf: leaf[None], pair[1]), chunks)
        return {group: of_group["products"][0] for group, of_group in sums.items()}

    return jax.lax.map(of_pair, (first, second), batch_size=NETWORKS // 2)
