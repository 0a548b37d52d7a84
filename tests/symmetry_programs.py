"""Random programs on random parameters: what nobody would write, and discovery must still get right."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

SIZES = (2, 3, 4, 6)
LARGEST = 300  # entries of one array


class Program:
    """A random computation; the same seed gives the same one, whatever the values are."""

    def __init__(
        self, seed: int, steps: int = 10, multiplied: bool = False, choosing: bool = False, stacked: bool = False
    ):
        """`multiplied`: of operations, and with a last one, that leave units signs and scales; `choosing`: of some
        that look for the best units; `stacked`: of some that take tensors apart whose parts are used each in its
        own way."""
        self.seed, self.steps = seed, steps
        self.operations, self.last = (MULTIPLIED, jnp.asarray) if multiplied else (OPERATIONS, jnp.tanh)
        if choosing:
            self.operations = [*self.operations, *[one_hot, pick_best, write_best, linear] * 4]
        if stacked:
            self.operations = [*self.operations, *[part_by_part, all_at_once, chain] * 6]
        self.shapes: dict[str, tuple[int, ...]] = {}
        jax.eval_shape(lambda x: self._run(self._record, x), jax.ShapeDtypeStruct((2, 3), jnp.float32))

    def params(self) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(self.seed)
        return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in self.shapes.items()}

    def __call__(self, params: dict[str, Any], x: Any) -> Any:
        names = iter(self.shapes)
        return self._run(lambda shape: jnp.asarray(params[next(names)]), x)

    def _record(self, shape: tuple[int, ...]) -> Any:
        self.shapes[f"p{len(self.shapes):02d}"] = shape
        return jnp.zeros(shape)

    def _run(self, parameter: Callable[[tuple[int, ...]], Any], x: Any) -> list[Any]:
        rng = np.random.default_rng(self.seed)
        pool = [x] + [parameter(tuple(rng.choice(SIZES, rng.integers(1, 4)))) for _ in range(3)]
        for _ in range(self.steps):
            array = pool[rng.integers(len(pool))]
            made = self.operations[rng.integers(len(self.operations))](rng, array, pool, parameter)
            if made is not None and 0 < made.size <= LARGEST:
                pool.append(made)
        return [_read(rng, self.last(array)) for array in pool[-4:]]


def _read(rng, array):
    return array.sum(tuple(i for i in range(array.ndim) if rng.random() < 0.7))


def _axis(rng, array):
    return int(rng.integers(array.ndim)) if array.ndim else None


def _window(array, axis):
    return [2 if i == axis else 1 for i in range(array.ndim)]


def along(function):
    """An operation along one axis."""

    def operation(rng, array, pool, parameter):
        axis = _axis(rng, array)
        return None if axis is None else function(array, axis)

    return operation


def dense(rng, array, pool, parameter):
    axis = _axis(rng, array)
    if axis is None:
        return None
    kernel = parameter((array.shape[axis], int(rng.choice(SIZES))))
    return jnp.tanh(jnp.moveaxis(jnp.tensordot(array, kernel, (axis, 0)), -1, axis))


def gain(rng, array, pool, parameter):
    shape = tuple(size if rng.random() < 0.6 else 1 for size in array.shape)
    return array * parameter(shape)


def combine(rng, array, pool, parameter):
    same = [other for other in pool if other.shape == array.shape]
    return jnp.sin(array) + same[rng.integers(len(same))]


def contract(rng, array, pool, parameter):
    other = pool[rng.integers(len(pool))]
    pairs = [(i, j) for i in range(array.ndim) for j in range(other.ndim) if array.shape[i] == other.shape[j]]
    if not pairs or array.size * other.size > LARGEST**2:
        return None
    i, j = pairs[rng.integers(len(pairs))]
    if rng.random() < 0.5 or array.ndim > 1:
        return jnp.tanh(jnp.tensordot(array, other, (i, j)))
    return jnp.tanh(lax.dot_general(array, other, (((), ()), ((i,), (j,)))))


def reshape(rng, array, pool, parameter):
    left, shape = array.size, []
    while left > 1:
        divisors = [d for d in range(2, left + 1) if left % d == 0]
        shape.append(divisors[rng.integers(len(divisors))])
        left //= shape[-1]
    return jax.nn.softmax(array.reshape(shape), axis=int(rng.integers(len(shape)))) if shape else None


def transpose(rng, array, pool, parameter):
    return array.transpose(rng.permutation(array.ndim))


def slices(rng, array, pool, parameter):
    axis = _axis(rng, array)
    if axis is None:
        return None
    size = array.shape[axis]
    start = int(rng.integers(size))
    limit = int(rng.integers(start, size)) + 1
    return lax.slice_in_dim(array, start, limit, int(rng.choice([1, 1, 2, 3])), axis)


def concatenate(rng, array, pool, parameter):
    axis = _axis(rng, array)
    if axis is None:
        return None
    fits = [o for o in pool if o.ndim == array.ndim and o.shape[:axis] == array.shape[:axis]]
    fits = [o for o in fits if o.shape[axis + 1 :] == array.shape[axis + 1 :]]
    return jnp.concatenate([array, 2 * fits[rng.integers(len(fits))]], axis)


def pad(rng, array, pool, parameter):
    config = [(0, 0, 0)] * array.ndim
    if array.ndim:
        low, high, inner = int(rng.integers(-1, 4)), int(rng.integers(-1, 4)), int(rng.random() < 0.2)
        config[int(rng.integers(array.ndim))] = (low, high, inner)
    try:
        return lax.pad(array, jnp.zeros((), array.dtype), config)
    except (TypeError, ValueError):
        return None  # nothing would be left


def constant(rng, array, pool, parameter):
    axis = _axis(rng, array)
    if axis is None:
        return None
    size = array.shape[axis]
    values = [np.arange(size), np.arange(size) // 2, np.arange(size) % 2, np.ones(size)][rng.integers(4)]
    shape = [1] * array.ndim
    shape[axis] = size
    return array + values.reshape(shape).astype(np.float32)


def pick(rng, array, pool, parameter):
    axis = _axis(rng, array)
    if axis is None:
        return None
    return jnp.take(array, rng.integers(0, array.shape[axis], 3), axis=axis, mode="clip")


def scatter(rng, array, pool, parameter):
    if not array.ndim:
        return None
    rows = rng.integers(0, array.shape[0], 2)
    return array.at[rows].add(parameter((2, *array.shape[1:])))


def spread(rng, array, pool, parameter):
    axis = int(rng.integers(array.ndim + 1))
    wider = jnp.repeat(jnp.expand_dims(array, axis), 2, axis)
    return wider * parameter((2,)).reshape([2 if i == axis else 1 for i in range(wider.ndim)])


def tile(rng, array, pool, parameter):
    return jnp.tile(array, [int(rng.integers(1, 3)) for _ in range(array.ndim)]) if array.ndim else None


def scan(rng, array, pool, parameter):
    """Down the first axis, with a state that starts as zeros."""
    if array.ndim < 2:
        return None
    weight = parameter(array.shape[1:])
    carry, outputs = lax.scan(lambda h, row: (jnp.tanh(h * weight + row), h), jnp.zeros_like(array[0]), array)
    return outputs if rng.random() < 0.5 else carry


def loop(rng, array, pool, parameter):
    weight = parameter(array.shape)
    return lax.fori_loop(0, 2, lambda _, h: jnp.tanh(h + weight), array)


def branch(rng, array, pool, parameter):
    weight = parameter(array.shape)
    return lax.cond(weight.sum() > 0, lambda h: h * weight, lambda h: jnp.zeros_like(h), array)


def convolve(rng, array, pool, parameter):
    """(batch, positions, features), features in one or two groups."""
    if array.ndim != 3:
        return None
    groups = 2 if array.shape[2] % 2 == 0 and rng.random() < 0.5 else 1
    kernel = parameter((int(rng.choice([1, 2])), array.shape[2] // groups, 2 * int(rng.choice([1, 2, 3]))))
    return lax.conv_general_dilated(
        array, kernel, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"), feature_group_count=groups
    )


def compare(rng, array, pool, parameter):
    if array.ndim != 1:
        return None
    return jnp.where(array[:, None] > array[None, :], array[:, None], 0.5)


OPERATIONS = [
    *[dense, gain, combine, contract, reshape, transpose] * 2,
    *[slices, concatenate, pad, constant, pick, scatter, spread, tile, scan, loop, branch, convolve, compare],
    along(lambda a, i: a.sum(i)),
    along(lambda a, i: a - a.max(i, keepdims=True)),
    along(lambda a, i: jnp.cumsum(a, i)),
    along(lambda a, i: jnp.flip(a, i)),
    along(lambda a, i: jnp.sort(a, i)),
    along(lambda a, i: a * jnp.argmax(a, i, keepdims=True)),
    along(lambda a, i: lax.reduce_window(a, -jnp.inf, lax.max, _window(a, i), [1] * a.ndim, "SAME")),
]


def entrywise(rng, array, pool, parameter):
    """Odd, even, homogeneous and none of these."""
    return ENTRYWISE[rng.integers(len(ENTRYWISE))](array)


def linear(rng, array, pool, parameter):
    axis = _axis(rng, array)
    if axis is None:
        return None
    kernel = parameter((array.shape[axis], int(rng.choice(SIZES))))
    return jnp.moveaxis(jnp.tensordot(array, kernel, (axis, 0)), -1, axis)


def contract_plainly(rng, array, pool, parameter):
    other = pool[rng.integers(len(pool))]
    pairs = [(i, j) for i in range(array.ndim) for j in range(other.ndim) if array.shape[i] == other.shape[j]]
    if not pairs or array.size * other.size > LARGEST**2:
        return None
    return jnp.tensordot(array, other, pairs[rng.integers(len(pairs))])


def two_of_a_shape(rng, array, pool, parameter):
    other = (same := [other for other in pool if other.shape == array.shape])[rng.integers(len(same))]
    choices = [array + other, array * other, jnp.maximum(array, other), jnp.where(array > other, array, other)]
    return [*choices, array / (1 + jnp.abs(other)), jnp.where(array >= 0, array, 0.1 * array)][rng.integers(6)]


def reshape_plainly(rng, array, pool, parameter):
    divisors = [d for d in range(1, array.size + 1) if array.size % d == 0]
    return array.reshape(-1, divisors[rng.integers(len(divisors))])


def _best(rng, array, axis):
    """Numbers of the best units, found and moved about in some way."""
    scores = [array, jax.nn.softmax(array, axis), jnp.exp(array), -array, array * array, jax.nn.relu(array)][
        rng.integers(6)
    ]
    if rng.random() < 0.5:
        return lax.top_k(jnp.moveaxis(scores, axis, -1), 2)[1] if array.shape[axis] > 1 else None
    return jnp.argmax(scores, axis) if rng.random() < 0.5 else jnp.argmin(scores, axis).T


def one_hot(rng, array, pool, parameter):
    axis = _axis(rng, array)
    if axis is None or (best := _best(rng, array, axis)) is None:
        return None
    hot = jax.nn.one_hot(best, array.shape[axis] + int(rng.random() < 0.1), axis=int(rng.integers(best.ndim + 1)))
    gain_of_units = parameter((hot.shape[-1],))
    return hot * gain_of_units if rng.random() < 0.7 else hot.reshape(-1)


def pick_best(rng, array, pool, parameter):
    axis = _axis(rng, array)
    if axis is None or (best := _best(rng, array, axis)) is None:
        return None
    fits = [(o, i) for o in pool for i in range(o.ndim) if o.shape[i] == array.shape[axis]]
    if not fits or rng.random() < 0.5:
        return parameter((array.shape[axis], 3))[best]
    other, at = fits[rng.integers(len(fits))]
    return jnp.take(other, best, axis=at, mode=str(rng.choice(["clip", "fill"])))


def write_best(rng, array, pool, parameter):
    """Scores of the best, written where their units stand; behind a norm, a residual or a ReLU."""
    if array.ndim != 2:
        return None
    stream = [array * lax.rsqrt((array**2).mean(-1, keepdims=True) + 0.1), array + parameter(array.shape[1:])]
    stream = [*stream, jax.nn.relu(array), jnp.tanh(array) @ parameter((array.shape[1], 3)) + parameter((3,))]
    chosen = stream[rng.integers(4)]
    scores = jax.nn.softmax(chosen @ parameter((chosen.shape[1], 4)))
    best, which = lax.top_k(scores, int(rng.integers(1, 3)))
    rows = jnp.arange(len(array))[:, None]
    return jnp.zeros_like(scores).at[rows, which].set(best) @ parameter((4, 3))


def _stack(rng, array, parameter):
    size, axis = int(rng.choice(SIZES)), _axis(rng, array)
    if axis is None or array.size * size > LARGEST:
        return None
    return jnp.moveaxis(array, axis, -1), parameter((int(rng.integers(2, 4)), array.shape[axis], size))


def _put_together(rng, parts, pool, parameter):
    functions = [jnp.tanh, jnp.sin, jnp.abs, lambda a: a.sum(-1, keepdims=True) * a, lambda a: a]
    made = [functions[rng.integers(len(functions))](part) for part in parts]
    if rng.random() < 0.3:
        return jnp.concatenate(made, -1)
    if rng.random() < 0.3:
        return sum(made)
    # Each read by a part of its own, so that they have nothing in common.
    back = parameter((len(made), made[0].shape[-1], 3))
    return sum(jnp.tanh(part @ back[number]) for number, part in enumerate(made))


def part_by_part(rng, array, pool, parameter):
    if (found := _stack(rng, array, parameter)) is None:
        return None
    array, stack = found
    return _put_together(rng, [array @ stack[number] for number in range(len(stack))], pool, parameter)


def all_at_once(rng, array, pool, parameter):
    if (found := _stack(rng, array, parameter)) is None:
        return None
    array, stack = found
    parts = jnp.einsum("...d,cdh->c...h", array, stack)
    return _put_together(rng, list(parts), pool, parameter)


def chain(rng, array, pool, parameter):
    """Layers in one tensor."""
    if not array.ndim:
        return None
    layers = parameter((3, array.shape[-1], array.shape[-1]))
    for number in range(3):
        array = jnp.tanh(array @ layers[number]) + (array if rng.random() < 0.5 else 0)
    return array


ENTRYWISE = [
    jnp.tanh,
    jnp.sin,
    jnp.abs,
    jnp.square,
    jax.nn.relu,
    jax.nn.sigmoid,
    jax.nn.soft_sign,
    lambda a: a * jnp.abs(a),
    lambda a: a**3,
    lambda a: jnp.sqrt(jnp.abs(a)),
    lambda a: jnp.max(a, axis=0) if a.ndim else a,
    lambda a: jnp.cumsum(a, axis=0) if a.ndim else a,
    lambda a: a + 0.5,
    lambda a: jnp.where(a > 0, a, 0.0),
]
MULTIPLIED = [
    *[linear, entrywise, two_of_a_shape, gain] * 3,
    *[contract_plainly, reshape_plainly, transpose, slices, concatenate, pad, pick, scatter, spread, tile],
    *[scan, loop, branch, convolve, compare],
]
