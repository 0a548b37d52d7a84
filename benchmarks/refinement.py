"""Permutations refined on the loss of the middle, from those of W2: does it win? On a converged MLP, on the CPU.

    python benchmarks/refinement.py RUNS                     trains two posteriors in RUNS where it has none
    python benchmarks/refinement.py RUNS --rates 0.03 0.1

Straight-through: every group has a matrix, at first the permutation of W2. Forwards the assignment that is nearest to
it is used, and the loss of one draw from the middle of the geodesic is taken on 250 training images; backwards its
gradient goes to the matrix as if nothing had been rounded (Adam, 300 steps). Printed are barriers in nats on 4,000
test images and on 2,000 training images that no network saw, by which a remedy is chosen.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.optimize import linear_sum_assignment

from bayesin import align, barrier, geodesic, rescale
from bayesin.lab.campaign import TaskContext, TrainTask, perform
from bayesin.lab.papers.rossi2023 import remedies
from bayesin.trees import map_with_path

KEY, STEPS, BATCH = jax.random.key(0), 300, 250


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.003, 0.01, 0.03])
    options = parser.parse_args()
    context, config = TaskContext(options.runs), remedies.cases("cpu")[1].config
    config = replace(config, training=replace(config.training, members=2))
    perform(TrainTask(config), context)
    data, model = context.prepared(config)
    pair, unseen = context.pair(config, 0, 1), context.held_out(config, 2_000)
    print("| permutations | path | barrier, nats | unseen, nats | points lost |\n|---|---|---|---|---|")

    def show(name: str, perms: Any) -> None:
        path = geodesic(pair.target, pair.source.permute(pair.spec, perms))
        same = {"key": KEY, "samples": 2, "spec": pair.spec}
        x, y = data.x_train[:4_000], data.y_train[:4_000]
        ways = {"geodesic": path, "rescaled": rescale(path, model.apply, x[:1_000], **same)}
        ways["fitted"] = rescale(path, model.apply, x, labels=y, **same)
        for kind, way in ways.items():
            test = data.x_test[:4_000], data.y_test[:4_000]
            found = barrier(way, model.apply, test, key=KEY, samples=8, taus=3, calibrate=unseen)
            cells = f"{found.value:.4f} | {found.held_out_value:.4f} | {100 * found.accuracy_drop:.2f}"
            print(f"| {name} | {kind} | {cells} |", flush=True)

    start = align(pair.target, pair.source, pair.spec, key=KEY).perms
    show("W2", start)
    for rate in options.rates:
        refined = refine(pair, model, data, start, rate)
        changed = sum(int((refined[group] != np.asarray(start[group])).sum()) for group in refined)
        show(f"refined, rate {rate:g}, {changed} of {sum(pair.spec.sizes.values())} units changed", refined)


def refine(pair: Any, model: Any, data: Any, start: Any, rate: float) -> dict[str, np.ndarray]:
    """The permutations that are nearest to the matrices after all steps."""
    spec, target, source = pair.spec, pair.target, pair.source
    places = [(group, path, axis) for group in spec.sizes for path, axis, _ in spec.touched_by(group)]

    def moved(tree: Any, matrices: Any) -> Any:
        def move(path: str, leaf: Any) -> Any:
            for group, of, axis in places:
                if of == path:
                    leaf = jnp.moveaxis(jnp.tensordot(matrices[group], leaf, (1, axis)), 0, axis)
            return leaf

        return map_with_path(move, tree)

    @jax.jit
    @jax.value_and_grad
    def loss(matrices: Any, x: Any, y: Any, key: Any) -> Any:
        middle = geodesic(target, type(source)(moved(source.mean, matrices), moved(source.std, matrices)))(0.5)
        logits = model.apply(middle.draw(key), x)
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1))

    matrices = _one_hot(start, spec)
    optimiser, draws = optax.adam(rate), np.random.default_rng(0)
    state = optimiser.init(matrices)
    for step in range(STEPS):
        batch = draws.choice(len(data.y_train), BATCH, replace=False)
        x, y = data.x_train[batch], data.y_train[batch]
        _, gradient = loss(_one_hot(_nearest(matrices), spec), x, y, jax.random.fold_in(KEY, step))
        updates, state = optimiser.update(gradient, state)
        matrices = optax.apply_updates(matrices, updates)
    return _nearest(matrices)


def _nearest(matrices: Any) -> dict[str, np.ndarray]:
    return {group: linear_sum_assignment(-np.asarray(matrix))[1] for group, matrix in matrices.items()}


def _one_hot(perms: Any, spec: Any) -> dict[str, Any]:
    return {group: jax.nn.one_hot(np.asarray(perms[group]), size) for group, size in spec.sizes.items()}


if __name__ == "__main__":
    main()
