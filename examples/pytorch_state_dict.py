"""PyTorch networks through safetensors: an MLP and a CNN are aligned and merged in torch's own layout.

In PyTorch, write each network once:

    from safetensors.torch import save_file
    save_file(model.state_dict(), "a.safetensors")

Nothing has to be transposed. torch keeps Linear weights as (out, in), convolutions as (out, in, height, width) =
OIHW, images as NCHW, and flattens C·H·W. The forward pass below says just that, the symmetry is found from it, and
what comes out fits `model.load_state_dict(load_file("cnn-merged.safetensors"))`.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
from safetensors.numpy import load_file, save_file

import bayesin
from bayesin import data, models


def mlp(state, x):
    """nn.Sequential(Flatten(), Linear(64, 128), ReLU(), Linear(128, 10))"""
    x = x.reshape(len(x), -1)
    x = jax.nn.relu(x @ state["1.weight"].T + state["1.bias"])
    return x @ state["3.weight"].T + state["3.bias"]


def cnn(state, x):
    """nn.Sequential(Conv2d(1, 32, 3, padding=1), ReLU(), MaxPool2d(2), Flatten(), Linear(512, 10))"""
    layout = ("NCHW", "OIHW", "NCHW")
    x = jax.lax.conv_general_dilated(x, state["0.weight"], (1, 1), "SAME", dimension_numbers=layout)
    x = jax.nn.relu(x + state["0.bias"][:, None, None])
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    return x.reshape(len(x), -1) @ state["4.weight"].T + state["4.bias"]


def stand_in(forward, shapes, stem):
    """Where PyTorch has not written two state dicts yet: trains two networks and writes them as torch would."""
    weight = jax.nn.initializers.he_normal(in_axis=1, out_axis=0)

    def init(key):
        keys = dict(zip(shapes, jax.random.split(key, len(shapes)), strict=True))
        return {n: weight(keys[n], s) if len(s) > 1 else jnp.zeros(s) for n, s in shapes.items()}

    model = models.from_functions(init, forward)
    settings = bayesin.Ensemble(members=2, epochs=30, batch=100, learning_rate=3e-3, prior_variance=0.1)
    trained = bayesin.fit_ensemble(key, model, (x_train, digits.y_train), settings).posterior
    for number in range(2):
        save_file(jax.device_get(trained[number]), f"{stem}-{number}.safetensors")


def accuracy(forward, state):
    return float(jnp.mean(forward(state, x_test).argmax(1) == digits.y_test))


key, digits = jax.random.key(0), data.load("digits")
x_train, x_test = (x.transpose(0, 3, 1, 2) for x in (digits.x_train, digits.x_test))  # NHWC to torch's NCHW
SHAPES = {
    mlp: {"1.weight": (128, 64), "1.bias": (128,), "3.weight": (10, 128), "3.bias": (10,)},
    cnn: {"0.weight": (32, 1, 3, 3), "0.bias": (32,), "4.weight": (10, 512), "4.bias": (10,)},
}
for forward, shapes in SHAPES.items():
    name = forward.__name__
    if not Path(f"{name}-1.safetensors").exists():
        stand_in(forward, shapes, name)
    first, second = (load_file(f"{name}-{number}.safetensors") for number in range(2))
    spec = bayesin.discover(forward, first, x_test[:2])
    moved = bayesin.align(first, second, spec, key=key, restarts=4, check=(forward, x_test)).posterior
    average, merged = ({n: (first[n] + jax.device_get(one[n])) / 2 for n in first} for one in (second, moved))
    save_file(merged, f"{name}-merged.safetensors")
    print(
        f"{name}: groups {spec.sizes}, ends {accuracy(forward, first):.1%} and {accuracy(forward, second):.1%}, ",
        end="",
    )
    print(f"average {accuracy(forward, average):.1%}, aligned average {accuracy(forward, merged):.1%}")
