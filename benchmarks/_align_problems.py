"""Pairs of posteriors to align: trained on MNIST by a small loop of their own, or made up to a recipe.

Trained weights are what matters in practice and are harder for an assignment than random ones (their
similarities are low-rank and full of near-ties), so the claims are measured on them.
"""

import gzip
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bayesin import Gaussian, PermutationSpec

MNIST = Path(__file__).parents[1] / "data" / "MNIST" / "raw"


def images() -> tuple[np.ndarray, np.ndarray]:
    """MNIST training images, or the embedded digits enlarged to the same size where it is absent."""
    if MNIST.is_dir():
        with gzip.open(MNIST / "train-images-idx3-ubyte.gz") as file:
            x = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784)
        with gzip.open(MNIST / "train-labels-idx1-ubyte.gz") as file:
            y = np.frombuffer(file.read(), np.uint8, offset=8)
        return (x / 255.0).astype(np.float32), y.astype(np.int32)
    return enlarged_digits()


def enlarged_digits() -> tuple[np.ndarray, np.ndarray]:
    """The embedded digits at the size of MNIST's, flat: few examples, so that a posterior prunes many units soon."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    x = np.kron(digits.images / 16.0, np.ones((4, 4)))[:, 2:30, 2:30].reshape(-1, 784)
    return x.astype(np.float32), digits.target.astype(np.int32)


def digits() -> tuple[np.ndarray, np.ndarray]:
    """The embedded digits as 8 × 8 images of one channel: small enough to train a ResNet on in seconds."""
    from sklearn.datasets import load_digits

    data = load_digits()
    return (data.images[..., None] / 16.0).astype(np.float32), data.target.astype(np.int32)


def mlp_spec(*widths: int) -> PermutationSpec:
    """Spec of an MLP with biases."""
    names = [str(widths[0]), *(f"g{i}" for i in range(len(widths) - 2)), str(widths[-1])]
    axes = {f"w{i}": [names[i], names[i + 1]] for i in range(len(widths) - 1)}
    axes |= {f"b{i}": [names[i + 1]] for i in range(len(widths) - 1)}
    return PermutationSpec.parse(axes, {f"g{i}": n for i, n in enumerate(widths[1:-1])})


def resnet20_spec(width: int, channels: int = 3, classes: int = 10) -> PermutationSpec:
    """Spec of ResNet20 with LayerNorm: three streams, one inner group for each of nine blocks."""
    sizes = {f"s{stage}": 16 * width * 2**stage for stage in range(3)}
    axes = {"stem": ["3", "3", str(channels), "s0"], "stem_scale": ["s0"], "stem_bias": ["s0"]}
    for stage in range(3):
        for block in range(3):
            name, inner = f"block{stage}{block}", f"i{stage}{block}"
            entry = f"s{stage - 1}" if block == 0 and stage else f"s{stage}"
            sizes[inner] = sizes[f"s{stage}"]
            axes |= {f"{name}_conv1": ["3", "3", entry, inner], f"{name}_conv2": ["3", "3", inner, f"s{stage}"]}
            axes |= {f"{name}_scale1": [inner], f"{name}_bias1": [inner]}
            axes |= {f"{name}_scale2": [f"s{stage}"], f"{name}_bias2": [f"s{stage}"]}
            if entry != f"s{stage}":
                axes |= {f"{name}_shortcut": ["3", "3", entry, f"s{stage}"]}
                axes |= {f"{name}_scale3": [f"s{stage}"], f"{name}_bias3": [f"s{stage}"]}
    return PermutationSpec.parse(axes | {"dense": ["s2", str(classes)], "dense_bias": [str(classes)]}, sizes)


def mlp(params, x):
    """Logits of an MLP with ReLUs."""
    depth = len(params) // 2
    for layer in range(depth):
        x = x @ params[f"w{layer}"] + params[f"b{layer}"]
        x = jax.nn.relu(x) if layer < depth - 1 else x
    return x


def resnet20(params, x):
    """Logits of ResNet20 with LayerNorm over channels and 3 × 3 shortcuts, as in Git Re-Basin."""
    x = jax.nn.relu(_norm(_conv(x, params["stem"], 1), params, "stem_scale", "stem_bias"))
    for stage in range(3):
        for block in range(3):
            name, stride = f"block{stage}{block}", 2 if block == 0 and stage else 1
            y = _norm(_conv(x, params[f"{name}_conv1"], stride), params, f"{name}_scale1", f"{name}_bias1")
            y = _norm(_conv(jax.nn.relu(y), params[f"{name}_conv2"], 1), params, f"{name}_scale2", f"{name}_bias2")
            if stride == 2:
                x = _norm(_conv(x, params[f"{name}_shortcut"], 2), params, f"{name}_scale3", f"{name}_bias3")
            x = jax.nn.relu(x + y)
    return x.mean((1, 2)) @ params["dense"] + params["dense_bias"]


def _conv(x, kernel, stride: int):
    return jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _norm(x, params, scale: str, bias: str):
    centred = x - x.mean(-1, keepdims=True)
    spread = jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-6)
    return centred * spread * (1.0 + params[scale]) + params[bias]


def initial(key, spec: PermutationSpec):
    """He-normal weights; biases, and scales less one, at zero."""
    params = {}
    for index, (path, _) in enumerate(spec.parameters):
        shape = spec.shape(path)
        scale = (2.0 / max(int(np.prod(shape[:-1])), 1)) ** 0.5 if len(shape) > 1 else 0.0
        params[path] = scale * jax.random.normal(jax.random.fold_in(key, index), shape, jnp.float32)
    return params


def train_point(key, spec: PermutationSpec, apply, data, epochs: int, batch: int = 500):
    """One network trained with Adam."""

    def loss(params, rho, noise_key, x, y):
        return optax.softmax_cross_entropy_with_integer_labels(apply(params, x), y).mean()

    return _train(key, spec, loss, data, epochs, batch)[0]


def train_gaussian(
    key, spec: PermutationSpec, apply, data, epochs: int, batch: int = 500, prior_std: float = 0.1
) -> Gaussian:
    """One mean-field posterior (temperature 1, stds from a softplus)."""

    def loss(mean, rho, noise_key, x, y):
        std = jax.tree.map(jax.nn.softplus, rho)
        keys = dict(zip(mean, jax.random.split(noise_key, len(mean)), strict=True))
        params = {p: mean[p] + std[p] * jax.random.normal(keys[p], mean[p].shape) for p in mean}
        ratio = [((mean[p] / prior_std) ** 2, (std[p] / prior_std) ** 2) for p in mean]
        kl = 0.5 * sum(jnp.sum(m + s - 1.0 - jnp.log(s)) for m, s in ratio)
        return optax.softmax_cross_entropy_with_integer_labels(apply(params, x), y).mean() + kl / len(data[0])

    mean, rho = _train(key, spec, loss, data, epochs, batch)
    return Gaussian(mean, jax.tree.map(jax.nn.softplus, rho))


def _train(key, spec, loss, data, epochs: int, batch: int):
    x, y = data
    params = initial(jax.random.fold_in(key, 0), spec)
    rho = jax.tree.map(lambda leaf: jnp.full(leaf.shape, -4.6, jnp.float32), params)
    rates = optax.multi_transform({"mean": optax.adam(1e-3), "rho": optax.adam(5e-3)}, ("mean", "rho"))
    state = rates.init((params, rho))

    @jax.jit
    def step(params, rho, state, step_key, x, y):
        gradient = jax.grad(loss, (0, 1))(params, rho, step_key, x, y)
        updates, state = rates.update(gradient, state)
        params, rho = optax.apply_updates((params, rho), updates)
        return params, rho, state

    count = 0
    for epoch in range(epochs):
        rows = np.asarray(jax.random.permutation(jax.random.fold_in(key, 1 + epoch), len(x)))
        for at in range(0, len(x) - batch + 1, batch):
            pick, count = rows[at : at + batch], count + 1
            params, rho, state = step(params, rho, state, jax.random.fold_in(key, 10_000 + count), x[pick], y[pick])
    return params, rho


def random_point(seed: int, spec: PermutationSpec):
    """Random weights at the usual scale."""
    rng = np.random.default_rng(seed)
    params = {}
    for path, _ in spec.parameters:
        shape = spec.shape(path)
        scale = (2.0 / max(int(np.prod(shape[:-1])), 1)) ** 0.5 if len(shape) > 1 else 0.1
        params[path] = rng.standard_normal(shape, np.float32) * np.float32(scale)
    return params


def random_gaussian(seed: int, spec: PermutationSpec) -> Gaussian:
    """Random means, and stds of a tenth of their scale with a spread of a fifth."""
    mean, rng = random_point(seed, spec), np.random.default_rng(seed + 1_000)
    std = {
        p: np.float32(0.01) * np.exp(np.float32(0.2) * rng.standard_normal(m.shape, np.float32))
        for p, m in mean.items()
    }
    return Gaussian(mean, std)


def pruned_gaussian(seed: int, spec: PermutationSpec, active: float = 0.125, prior_std: float = 0.1) -> Gaussian:
    """A converged posterior: one unit in eight carries weights, the rest sit at the prior, near-tied."""
    rng = np.random.default_rng(seed)
    alive = {group: rng.permutation(size) < active * size for group, size in spec.sizes.items()}
    mean, std = {}, {}
    for path, axes in spec.parameters:
        mask = np.ones((1,) * len(axes), bool)
        for number, axis in enumerate(axes):
            if axis[0] and axis[0][0].group:
                mask = mask & alive[axis[0][0].group].reshape([-1 if i == number else 1 for i in range(len(axes))])
        mask = np.broadcast_to(mask, spec.shape(path))
        weights = rng.standard_normal(mask.shape, np.float32)
        mean[path] = np.where(mask, 0.1 * weights, 1e-3 * weights).astype(np.float32)
        known = 0.03 * np.exp(0.3 * rng.standard_normal(mask.shape, np.float32))
        free = prior_std * (1 + 1e-3 * rng.standard_normal(mask.shape, np.float32))
        std[path] = np.where(mask, known, free).astype(np.float32)
    return Gaussian(mean, std)
