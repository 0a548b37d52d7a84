"""What signs cost: the search over signed permutations beside that over permutations alone, in turns, in CPU seconds.

    python benchmarks/signs.py

An MLP 784-512-512-512-10 with tanh, all of whose units may flip, and a transformer of four blocks, where the
dimensions of queries with keys and of values may. One pair is planted, the other has nothing in common.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np

import bayesin

KEY = jax.random.key(0)
WIDTH, HEADS, SIZE, HIDDEN, BLOCKS = 256, 8, 32, 1024, 4
MLP = {"w0": (784, 512), "w1": (512, 512), "w2": (512, 512), "w3": (512, 10)}
MLP |= {f"b{layer}": (512,) for layer in range(3)}
TRANSFORMER = {"embed": (20, WIDTH), "out": (WIDTH, 20)}
for block in range(BLOCKS):
    TRANSFORMER |= {f"{part}{block}": (WIDTH, HEADS, SIZE) for part in "qkv"}
    TRANSFORMER |= {f"o{block}": (HEADS, SIZE, WIDTH), f"up{block}": (WIDTH, HIDDEN), f"down{block}": (HIDDEN, WIDTH)}


def mlp(p, x):
    for layer in range(3):
        x = jnp.tanh(x @ p[f"w{layer}"] + p[f"b{layer}"])
    return x @ p["w3"]


def transformer(p, x):
    h = x @ p["embed"]
    for block in range(BLOCKS):
        normal = h / jnp.sqrt(jnp.square(h).mean(-1, keepdims=True) + 1e-5)
        q, k, v = (jnp.einsum("td,dhk->thk", normal, p[f"{part}{block}"]) for part in "qkv")
        weights = jax.nn.softmax(jnp.einsum("thk,shk->hts", q, k), -1)
        h = h + jnp.einsum("hts,shk,hkd->td", weights, v, p[f"o{block}"])
        h = h + jax.nn.gelu(h @ p[f"up{block}"]) @ p[f"down{block}"]
    return h @ p["out"]


def posterior(seed: int, shapes: dict[str, tuple[int, ...]]) -> bayesin.Gaussian:
    draws = np.random.default_rng(seed)
    scale = {path: 1 / np.sqrt(max(1, np.prod(shape[:-1]))) for path, shape in shapes.items()}
    mean = {path: (scale[path] * draws.normal(size=shape)).astype(np.float32) for path, shape in shapes.items()}
    std = {path: (0.02 * draws.uniform(0.5, 1.5, leaf.shape)).astype(np.float32) for path, leaf in mean.items()}
    return bayesin.Gaussian(mean, std)


def timed(p, q, spec) -> tuple[float, bayesin.Alignment]:
    start = time.process_time()
    found = bayesin.align(p, q, spec, key=KEY)
    return time.process_time() - start, found


def main() -> None:
    print("| network | pair | with signs, s | without, s | ratio | objective with | without |")
    print("|---|---|---|---|---|---|---|")
    for apply, shapes, x in ((mlp, MLP, np.ones((4, 784))), (transformer, TRANSFORMER, np.eye(20)[:6])):
        p, other = posterior(0, shapes), posterior(1, shapes)
        signed = bayesin.discover(apply, p.mean, x.astype(np.float32), signs=True)
        plain, perms = signed.without_signs, signed.random(jax.random.key(1))
        flipped = p.permute(signed, perms, signed.random_signs(jax.random.key(2)))
        for pair, with_signs, without in (("planted", flipped, p.permute(plain, perms)), ("unrelated", other, other)):
            runs = [(timed(p, with_signs, signed), timed(p, without, plain)) for _ in range(2)][
                -1
            ]  # the first warms up
            (ours, found), (base, alone) = runs
            print(
                f"| {apply.__name__} | {pair} | {ours:.2f} | {base:.2f} | {ours / base:.2f} "
                f"| {found.objective:.6g} | {alone.objective:.6g} |"
            )


if __name__ == "__main__":
    main()
