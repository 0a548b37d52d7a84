"""Models as the libraries ship them, with every leaf randomised: running statistics are leaves too."""

from collections.abc import Callable

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import bayesin
from bayesin import models
from bayesin.symmetry.verify import perturbed
from symmetry_checks import Architecture, check, normal

IMAGES = normal(1, 2, 8, 8, 3, scale=1.0)
VECTORS = normal(2, 4, 6, scale=1.0)
SEQUENCES = normal(3, 4, 5, 8, scale=1.0)
TOKENS = np.array([[0, 2, 1, 3, 4], [4, 3, 3, 0, 1]], np.int32)


def init(model: models.Model):
    """Random parameters of the model's shapes, and positive vectors: gains, biases, variances."""
    return perturbed(jax.eval_shape(model.init, jax.random.key(0)), jax.random.key(0), noise=0.3)


# name -> (how to make the model, input, axes, sizes)
LIBRARIES: dict[str, tuple[Callable[[], models.Model], np.ndarray, str, dict[str, int]]] = {}


def theory(x, axes: str, **sizes: int):
    """Enters a model in the table, with an input and its axes."""

    def enter(make):
        LIBRARIES[make.__name__.replace("_", " ")] = (make, x, axes, sizes)
        return make

    return enter


@theory(
    IMAGES,
    "layers/0/kernel: 3 3 3 a, layers/0/bias layers/1/scale layers/1/bias layers/1/mean layers/1/var: a,"
    "layers/4/kernel: 3 3 a g*c[g], layers/4/bias layers/5/scale layers/5/bias: g*c[g],"
    "layers/9/kernel: 4*g*c[g] 5, layers/9/bias: 5",
    a=4, g=3, c=2,
)  # fmt: skip
def nnx_convolutions_with_batch_and_group_norm():
    return models.from_nnx(
        lambda rngs: nnx.Sequential(
            nnx.Conv(3, 4, (3, 3), rngs=rngs),
            nnx.BatchNorm(4, rngs=rngs),
            nnx.relu,
            nnx.Dropout(0.5, rngs=rngs),
            nnx.Conv(4, 6, (3, 3), strides=2, rngs=rngs),
            nnx.GroupNorm(6, num_groups=3, rngs=rngs),
            nnx.relu,
            lambda x: nnx.avg_pool(x, (2, 2), (2, 2)),
            lambda x: x.reshape(len(x), -1),
            nnx.Linear(24, 5, rngs=rngs),
        )
    )


@theory(
    SEQUENCES,
    "query/kernel key/kernel: 8 h a[h], value/kernel: 8 h b[h], out/kernel: h b[h] 8,"
    "query/bias key/bias: h a[h], value/bias: h b[h], out/bias: 8",
    h=2, a=3, b=3,
)  # fmt: skip
def nnx_attention():
    return models.from_nnx(
        lambda rngs: nnx.MultiHeadAttention(2, in_features=8, qkv_features=6, decode=False, rngs=rngs)
    )


@theory(
    IMAGES,
    "layers/0/kernel: 3 3 3 a, layers/0/bias layers/2/bias: a, layers/2/kernel: 3 3 1 a,"
    "layers/3/kernel: 1 1 a 2, layers/3/bias: 2",
    a=4,
)
def nnx_transposed_and_depthwise():
    return models.from_nnx(
        lambda rngs: nnx.Sequential(
            nnx.ConvTranspose(3, 4, (3, 3), strides=2, rngs=rngs),
            nnx.relu,
            nnx.Conv(4, 4, (3, 3), feature_group_count=4, rngs=rngs),
            nnx.Conv(4, 2, (1, 1), rngs=rngs),
        )
    )


class Recurrent(nnx.Module):
    def __init__(self, rngs):
        self.cell = nnx.RNN(nnx.LSTMCell(8, 6, rngs=rngs), rngs=rngs)
        self.head = nnx.Linear(6, 2, rngs=rngs)

    def __call__(self, x):
        return self.head(self.cell(x)[:, -1])


@theory(
    SEQUENCES,
    ",".join(f"cell/cell/h{gate}/kernel: a a, cell/cell/h{gate}/bias: a" for gate in "ifgo")
    + ", cell/cell/ii/kernel cell/cell/if_/kernel cell/cell/ig/kernel cell/cell/io/kernel: 8 a,"
    "head/kernel: a 2, head/bias: 2",
    a=6,
)
def nnx_recurrent_cell():
    return models.from_nnx(Recurrent)  # its loop starts in single precision


class LinenLanguageModel(nn.Module):
    """Tied embeddings, causal attention, layers under scan and remat."""

    @nn.compact
    def __call__(self, tokens):
        embed = nn.Embed(7, 8)
        x = embed(tokens)
        x = x + nn.MultiHeadDotProductAttention(2, use_bias=False)(
            nn.LayerNorm(use_bias=False)(x), mask=nn.make_causal_mask(tokens)
        )
        layers = nn.scan(LinenLayer, variable_axes={"params": 0}, split_rngs={"params": True}, length=3)
        return embed.attend(nn.RMSNorm()(layers()(x, None)[0]))


class LinenLayer(nn.Module):
    @nn.compact
    def __call__(self, x, _):
        hidden = nn.gelu(nn.remat(nn.Dense)(5, use_bias=False, name="up")(x))
        return x + nn.Dense(8, name="down")(hidden), None


@theory(
    TOKENS,
    "params/Embed_0/embedding: 7 s, params/LayerNorm_0/scale params/RMSNorm_0/scale: s,"
    "params/MultiHeadDotProductAttention_0/query/kernel params/MultiHeadDotProductAttention_0/key/kernel: s h a[h],"
    "params/MultiHeadDotProductAttention_0/value/kernel: s h b[h],"
    "params/MultiHeadDotProductAttention_0/out/kernel: h b[h] s,"
    "params/ScanLinenLayer_0/up/kernel: fix s m[fix], params/ScanLinenLayer_0/down/kernel: fix m[fix] s,"
    "params/ScanLinenLayer_0/down/bias: fix s",
    s=8, h=2, a=4, b=4, m=5, fix=3,
)  # fmt: skip
def linen_language_model():
    return models.from_linen(LinenLanguageModel(), TOKENS)


class LinenConvolutions(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(6, (3, 3))(x))
        x = nn.max_pool(x, (2, 2), (2, 2))
        x = nn.relu(nn.WeightNorm(nn.Conv(4, (3, 3), use_bias=False))(x))
        x = nn.relu(nn.DenseGeneral((2, 3), use_bias=False)(x.reshape(len(x), -1)))
        return nn.DenseGeneral(5, axis=(-2, -1), use_bias=False)(x)


@theory(
    IMAGES,
    "params/Conv_0/kernel: 3 3 3 a, params/Conv_0/bias: a, params/Conv_1/kernel: 3 3 a b,"
    "params/WeightNorm_0/Conv_1%2Fkernel%2Fscale: b, params/DenseGeneral_0/kernel: 16*b c d[c],"
    "params/DenseGeneral_1/kernel: c d[c] 5",
    a=6, b=4, c=2, d=3,
)  # fmt: skip
def linen_convolutions_and_dense_general():
    return models.from_linen(LinenConvolutions(), IMAGES)


@theory(
    VECTORS,
    "layers/0/weight: a 6, layers/0/bias: a, layers/1/weight: b a, layers/1/bias: b,"
    "layers/2/weight: 3 b, layers/2/bias: 3",
    a=8, b=8,
)  # fmt: skip
def equinox_mlp():
    return models.from_equinox(lambda key: eqx.nn.MLP(6, 3, 8, 2, key=key))


class EquinoxCells(eqx.Module):
    """Two cells on top of each other, then a dense layer."""

    gru: eqx.nn.GRUCell
    lstm: eqx.nn.LSTMCell
    head: eqx.nn.Linear

    def __init__(self, key):
        first, second, third = jax.random.split(key, 3)
        self.gru = eqx.nn.GRUCell(8, 6, key=first)
        self.lstm = eqx.nn.LSTMCell(6, 5, key=second)
        self.head = eqx.nn.Linear(5, 3, key=third)

    def __call__(self, x):
        def step(carry, token):
            h = self.gru(token, carry[0])
            return (h, self.lstm(h, carry[1])), None

        start = (jnp.zeros(6, x.dtype), (jnp.zeros(5, x.dtype), jnp.zeros(5, x.dtype)))
        (_, (h, _)), _ = jax.lax.scan(step, start, x)
        return self.head(h)


@theory(
    SEQUENCES,
    "gru/weight_ih: 3*a 8, gru/weight_hh: 3*a a, gru/bias: 3*a, gru/bias_n: a,"
    "lstm/weight_ih: 4*b a, lstm/weight_hh: 4*b b, lstm/bias: 4*b, head/weight: 3 b, head/bias: 3",
    a=6, b=5,
)  # fmt: skip
def equinox_cells():
    return models.from_equinox(lambda key: EquinoxCells(key))


class RotaryAttention(eqx.Module):
    attention: eqx.nn.MultiheadAttention
    rotary: eqx.nn.RotaryPositionalEmbedding

    def __init__(self, key):
        self.attention = eqx.nn.MultiheadAttention(2, 8, key=key)
        self.rotary = eqx.nn.RotaryPositionalEmbedding(4)

    def __call__(self, x):
        turn = jax.vmap(self.rotary, 1, 1)
        return self.attention(x, x, x, process_heads=lambda q, k, v: (turn(q), turn(k), v))


@theory(
    SEQUENCES,
    "attention/query_proj/weight attention/key_proj/weight: h*4 8,"
    "attention/value_proj/weight: h*b[h] 8, attention/output_proj/weight: 8 h*b[h]",
    h=2, b=4,
)  # fmt: skip
def equinox_rotary_attention():
    return models.from_equinox(lambda key: RotaryAttention(key))


@theory(
    IMAGES.transpose(0, 3, 1, 2),
    "layers/0/weight: g*a[g] 3 3 3, layers/0/bias: g*a[g] 1 1, layers/1/weight layers/1/bias: g*a[g],"
    "layers/3/weight: g*b[g] a[g] 3 3, layers/3/bias: g*b[g] 1 1, layers/7/weight: 3 g*b[g]*4, layers/7/bias: 3",
    g=2, a=2, b=3,
)  # fmt: skip
def equinox_convolutions():
    return models.from_equinox(
        lambda key: eqx.nn.Sequential(
            [
                eqx.nn.Conv2d(3, 4, 3, key=key),
                eqx.nn.GroupNorm(2, 4),
                eqx.nn.Lambda(jax.nn.relu),
                eqx.nn.ConvTranspose2d(4, 6, 3, groups=2, key=key),
                eqx.nn.Lambda(jax.nn.relu),
                eqx.nn.AdaptiveAvgPool2d((2, 2)),
                eqx.nn.Lambda(jnp.ravel),
                eqx.nn.Linear(24, 3, key=key),
            ]
        )
    )


def unrolled(core, x):
    return hk.Linear(2)(hk.dynamic_unroll(core, x.swapaxes(0, 1), core.initial_state(4))[0])


@theory(
    SEQUENCES,
    "linear/w: a 2, linear/b: 2, vanilla_rnn%2Flinear/w: 8 a, vanilla_rnn%2Flinear_1/w: a a,"
    "vanilla_rnn%2Flinear/b vanilla_rnn%2Flinear_1/b: a",
    a=6,
)
def haiku_recurrence():
    return models.from_haiku(hk.transform(lambda x: unrolled(hk.VanillaRNN(6), x)), SEQUENCES)


# Input and state share one axis of one kernel: a sum, of which only the state may move.
@theory(SEQUENCES, "linear/w: h 2, linear/b: 2, lstm%2Flinear/w: 8+h 4*h, lstm%2Flinear/b: 4*h", h=8)
def haiku_lstm_joins_its_input_in_one_axis():
    return models.from_haiku(hk.transform(lambda x: unrolled(hk.LSTM(8), x)), SEQUENCES)


@theory(
    normal(0, 2, 8, 8, 1),
    "layers/0/kernel: 64 a, layers/0/bias: a, layers/1/kernel: a b, layers/1/bias: b,"
    "layers/2/kernel: b c, layers/2/bias: c, layers/3/kernel: c 10, layers/3/bias: 10",
    a=16, b=16, c=16,
)  # fmt: skip
def built_in_mlp():
    return models.build("mlp", (8, 8, 1), 10, width=16, depth=3)


@pytest.mark.parametrize("name", LIBRARIES)
def test_groups_are_those_of_theory(name):
    make, x, axes, sizes = LIBRARIES[name]
    model = make()
    check(Architecture(model.apply, x, axes, sizes), init(model))


def test_haiku_mlp_and_attention():
    def forward(x):
        x = hk.nets.MLP([7, 8])(x)
        x = x + hk.MultiHeadAttention(2, 3, w_init=hk.initializers.RandomNormal(), model_size=8)(x, x, x)
        return hk.Linear(2)(hk.LayerNorm(-1, True, True)(x))

    model = models.from_haiku(hk.transform(forward), SEQUENCES)
    spec = check(Architecture(model.apply, SEQUENCES, "", {}), init(model))
    assert spec.sizes == {"g0": 7, "g1": 8, "g2": 2, "g3": 3, "g4": 3}


@pytest.mark.parametrize("norm", ["layernorm", "frn"])
def test_resnet20_has_twelve_groups(norm):
    """A stream for each of three stages, and the hidden channels of nine blocks."""
    model = models.build("resnet20", (8, 8, 3), 10, width=4, norm=norm)
    params = init(model)
    spec = bayesin.discover(model.apply, params, IMAGES)
    assert sorted(spec.sizes.values()) == [4] * 4 + [8] * 4 + [16] * 4
    bayesin.verify(model.apply, params, IMAGES, spec, key=jax.random.key(0), trials=1)
    touched = {path for group in spec.sizes for path, _, _ in spec.touched_by(group)}
    untouched = set(spec.axes) - touched
    assert all(spec.shape(path) in ((10,), ()) for path in untouched), untouched  # only the classifier's bias
