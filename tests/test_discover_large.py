"""Discovery on networks of real size, from shapes alone; `benchmarks/start.py` has the times."""

import jax
import jax.numpy as jnp

import bayesin
from bayesin import models
from transformer import Transformer


def discovered(model: models.Model, x: jax.ShapeDtypeStruct) -> bayesin.PermutationSpec:
    return bayesin.discover(model.apply, jax.eval_shape(model.init, jax.random.key(0)), x)


def test_resnet20_has_a_stream_a_stage_and_a_group_a_block():
    spec = discovered(models.build("resnet20", (32, 32, 3), 10), jax.ShapeDtypeStruct((8, 32, 32, 3), jnp.float32))
    assert sorted(spec.sizes.values()) == [16] * 4 + [32] * 4 + [64] * 4


def test_a_transformer_of_twelve_layers():
    spec = discovered(models.from_nnx(Transformer), jax.ShapeDtypeStruct((2, 128), jnp.int32))
    # The stream, and for every layer its heads, their queries and keys, their values, and the hidden units.
    assert sorted(spec.sizes.values()) == sorted([768] + 12 * [12, 64, 64, 3072])
