"""How much of the symmetry of real architectures is found: theory, counted by hand, beside discovery.

    python benchmarks/zoo.py                  # all that can be imported
    python benchmarks/zoo.py --out results/symmetry.md
    python benchmarks/zoo.py gpt-2 llama      # those whose names hold one of the words
    python benchmarks/zoo.py gpt-2 --planted  # also moves the weights by all that was found, and aligns them back

Libraries, each left out where it is missing: `pip install "transformers<5" flax dm-haiku jraph`, and for PyTorch
`pip install ".[torch]" --constraint constraints.txt torchvision timm`. Weights are random, sizes small, nothing is
downloaded. Networks of PyTorch come through `models.from_torch`; the others whose library is not in JAX are written
out here as it computes them, and say so. Theory is log10 of the number of settings of the weights that compute the
same function; a row is complete if discovery finds as many. Every row is verified, too.
"""

import argparse
import importlib.util
import sys
import time
import warnings
from collections.abc import Callable
from math import lgamma, log
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import bayesin
from _torchvision import import_torchvision
from bayesin.errors import InconclusiveWarning

KEY = jax.random.key(0)
TEXT = np.array([[1, 2, 3, 4, 5], [5, 4, 0, 2, 1]], np.int32)
IMAGES = np.random.default_rng(0).standard_normal((2, 16, 16, 3)).astype(np.float32)
TOKENS = np.random.default_rng(1).standard_normal((2, 5, 6)).astype(np.float32)


class Row(NamedTuple):
    """One architecture: how to make it, and what theory says."""

    name: str
    library: str  # several with commas; empty for one that is written out here
    make: Callable[[], tuple[Any, Any, Any]]  # -> apply, params, x
    theory: float
    remark: str = ""

    @property
    def libraries(self) -> tuple[str, ...]:
        return tuple(self.library.split(", ")) if self.library else ()


ROWS: list[Row] = []


def log10_factorial(size: int) -> float:
    return lgamma(size + 1) / log(10)


f = log10_factorial


def row(name: str, theory: float, library: str = "", remark: str = ""):
    """Enters a function that makes (apply, params, x)."""

    def enter(make):
        ROWS.append(Row(name, library, make, theory, remark))
        return make

    return enter


def attention(heads: int, size: int, rotary: bool = False, values: int | None = None) -> float:
    """Settings of one block: heads, for each of them queries with keys (unless rotated), and values with outputs."""
    return f(heads) + heads * ((0 if rotary else f(size)) + f(values or size))


def weights(**shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    draws = np.random.default_rng(0)
    scale = {name: 1 / np.sqrt(max(1, np.prod(shape[:-1]))) for name, shape in shapes.items()}
    return {name: (scale[name] * draws.standard_normal(shape)).astype(np.float32) for name, shape in shapes.items()}


# Hugging Face in Flax


def hugging_face(model: str, config: str, x: Any = TEXT, **settings: Any):
    import transformers

    made = getattr(transformers, model)(getattr(transformers, config)(**settings), seed=0, dtype=jnp.float32)

    def apply(params, x):
        return made(x, params=params)[0]

    return apply, jax.tree.map(of_unit_scale, made.params), x


def of_unit_scale(leaf: Any, outputs: int = -1) -> np.ndarray:
    """Kernels large enough for every part to count: with those of a fresh model much is too faint to be verified.

    Every other axis than that of the outputs, the last in JAX and the first in PyTorch, is summed over.
    """
    if leaf.ndim < 2:
        return np.asarray(leaf)
    draws = np.random.default_rng(leaf.size)
    inputs = leaf.size / leaf.shape[outputs]
    return (draws.standard_normal(leaf.shape) / np.sqrt(inputs)).astype(leaf.dtype)


SMALL = {"vocab_size": 11}
DECODER = {
    **SMALL, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 12,
    "max_position_embeddings": 8,
}  # fmt: skip


@row("GPT-2", f(16) + 2 * (attention(4, 4) + f(64)), "transformers")
def gpt2():
    return hugging_face("FlaxGPT2LMHeadModel", "GPT2Config", n_layer=2, n_embd=16, n_head=4, n_positions=8, **SMALL)


@row("GPT-J", f(16) + 2 * (f(4) + 4 * (f(2) + f(4)) + f(64)), "transformers", "half of each head is rotated")
def gptj():
    return hugging_face(
        "FlaxGPTJForCausalLM", "GPTJConfig", n_layer=2, n_embd=16, n_head=4, n_positions=8, rotary_dim=2, **SMALL
    )


@row("GPT-Neo", f(16) + 2 * (attention(4, 4) + f(64)), "transformers")
def gpt_neo():
    return hugging_face(
        "FlaxGPTNeoForCausalLM", "GPTNeoConfig", num_layers=2, hidden_size=16, num_heads=4,
        max_position_embeddings=8, attention_types=[[["global"], 2]], **SMALL,
    )  # fmt: skip


@row("Bloom", f(16) + 2 * (f(1) + 4 * 2 * f(4) + f(64)), "transformers", "every head forgets at its own speed")
def bloom():
    return hugging_face("FlaxBloomForCausalLM", "BloomConfig", n_layer=2, hidden_size=16, n_head=4, **SMALL)


@row("Llama", f(16) + 2 * (attention(4, 4, rotary=True) + f(12)), "transformers")
def llama():
    return hugging_face("FlaxLlamaForCausalLM", "LlamaConfig", **DECODER)


@row("Mistral", f(16) + 2 * (f(2) + 2 * (f(2) + f(4)) + f(12)), "transformers", "two queries for each key")
def mistral():
    return hugging_face("FlaxMistralForCausalLM", "MistralConfig", num_key_value_heads=2, **DECODER)


@row("BERT", f(16) + 2 * (attention(4, 4) + f(12)) + f(16), "transformers", "classifier behind a pooler")
def bert():
    return hugging_face("FlaxBertForSequenceClassification", "BertConfig", **DECODER)


@row("ViT", f(16) + 2 * (attention(4, 4) + f(12)), "transformers")
def vit():
    settings = {
        name: value for name, value in DECODER.items() if name not in ("vocab_size", "max_position_embeddings")
    }
    images = np.moveaxis(IMAGES, -1, 1)
    return hugging_face(
        "FlaxViTForImageClassification", "ViTConfig", images, image_size=16, patch_size=8, num_labels=3, **settings
    )


# Haiku and jraph


@row("LSTM", f(8), "haiku")
def haiku_lstm():
    import haiku as hk

    def forward(x):
        states, _ = hk.dynamic_unroll(core := hk.LSTM(8), x, core.initial_state(2), time_major=False)
        return hk.Linear(3)(states[:, -1])

    model = hk.without_apply_rng(hk.transform(forward))
    return model.apply, model.init(KEY, TOKENS), TOKENS


@row("layers under one scan", f(6) * 0 + 3 * f(9), "haiku", "`layer_stack`: units of each of three layers")
def haiku_layer_stack():
    import haiku as hk

    def forward(x):
        return hk.layer_stack(3)(lambda h: h + hk.Linear(6)(jax.nn.relu(hk.Linear(9)(h))))(x)

    model = hk.without_apply_rng(hk.transform(forward))
    return model.apply, model.init(KEY, TOKENS), TOKENS


@row("GraphNetwork", 3 * f(7), "jraph", "edges, nodes and globals, each updated from a concatenation")
def graph_network():
    import jraph

    graph = jraph.GraphsTuple(
        nodes=np.ones((4, 3), np.float32) * np.arange(12).reshape(4, 3), edges=np.arange(10.0).reshape(5, 2),
        senders=np.array([0, 1, 2, 3, 0]), receivers=np.array([1, 2, 3, 0, 2]), n_node=np.array([4]),
        n_edge=np.array([5]), globals=np.ones((1, 2), np.float32),
    )  # fmt: skip
    params = weights(edge=(2 + 3 + 3 + 2, 7), node=(3 + 7 + 7 + 2, 7), globe=(7 + 7 + 2, 7), head=(7, 3))

    def apply(p, x):
        def update(name):
            return lambda *parts: jnp.tanh(
                jnp.concatenate([part for part in parts if part is not None], -1) @ p[name]
            )

        network = jraph.GraphNetwork(update("edge"), update("node"), update("globe"))
        nodes, edges, globe = x
        return network(graph._replace(nodes=nodes, edges=edges, globals=globe)).globals @ p["head"]

    return apply, params, (graph.nodes.astype(np.float32), graph.edges.astype(np.float32), graph.globals)


# PyTorch and its libraries


def from_torch(make: Callable[[], Any], x: Any, output: Any = None, **options: Any):
    """A module in evaluation mode; `make` runs when the libraries can be imported."""
    import torch  # pyright: ignore[reportMissingImports]

    from bayesin import models

    import_torchvision()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = models.from_torch(make().eval(), x, output=output, **options)
    return model.apply, jax.tree.map(lambda leaf: of_unit_scale(leaf, outputs=0), model.init(KEY)), x


def torch_transformers(kind: str, config: str, x: Any = TEXT, **settings: Any):
    import transformers

    options = {"use_cache": False} if "use_cache" in settings else {}
    return from_torch(lambda: getattr(transformers, kind)(getattr(transformers, config)(**settings)), x, **options)


CHANNELS_FIRST = np.random.default_rng(2).standard_normal((2, 3, 32, 32)).astype(np.float32)


@row("PyTorch: GPT-2", f(16) + 2 * (attention(4, 4) + f(64)), "torch, transformers", "tied embedding and head")
def torch_gpt2():
    sizes = {"n_layer": 2, "n_embd": 16, "n_head": 4, "n_positions": 8, **SMALL}
    return torch_transformers("GPT2LMHeadModel", "GPT2Config", use_cache=False, **sizes)


@row("PyTorch: BERT", f(16) + 2 * (attention(4, 4) + f(12)) + f(16), "torch, transformers", "behind a pooler")
def torch_bert():
    inputs = {"input_ids": TEXT, "attention_mask": np.ones_like(TEXT)}
    # Its other attention looks at the values of the mask.
    eager = {"attn_implementation": "eager"}
    return torch_transformers("BertForSequenceClassification", "BertConfig", inputs, **eager, **DECODER)


@row("PyTorch: Qwen2", f(16) + 2 * (f(2) + 2 * (f(2) + f(4)) + f(12)), "torch, transformers", "two queries a key")
def torch_qwen2():
    return torch_transformers("Qwen2ForCausalLM", "Qwen2Config", num_key_value_heads=2, use_cache=False, **DECODER)


@row(
    "PyTorch: GPT-NeoX",
    f(16) + 2 * (f(4) + 4 * (f(2) + f(4)) + f(12)),
    "torch, transformers",
    "half a head is rotated",
)
def torch_neox():
    return torch_transformers("GPTNeoXForCausalLM", "GPTNeoXConfig", rotary_pct=0.5, use_cache=False, **DECODER)


@row(
    "PyTorch: Phi-3", f(16) + 2 * (f(2) + 2 * (f(2) + f(4)) + f(12)), "torch, transformers", "fused, grouped queries"
)
def torch_phi3():
    settings = DECODER | {"pad_token_id": 0, "num_key_value_heads": 2}
    return torch_transformers("Phi3ForCausalLM", "Phi3Config", use_cache=False, **settings)


@row(
    "PyTorch: T5",
    # A bias by position, which all layers of a side share, ties the heads of its self-attentions.
    f(16) + 2 * (f(4) + 2 * 4 * 2 * f(4)) + 2 * attention(4, 4) + 4 * f(12),
    "torch, transformers",
    "encoder and decoder over one embedding; all self-attentions of a side share their order of heads",
)
def torch_t5():
    sizes = {"d_model": 16, "d_kv": 4, "d_ff": 12, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}
    inputs = {"input_ids": TEXT, "attention_mask": np.ones_like(TEXT), "decoder_input_ids": TEXT[:, ::-1].copy()}
    return torch_transformers("T5ForConditionalGeneration", "T5Config", inputs, use_cache=False, **sizes, **SMALL)


@row("PyTorch: ViT, timm", f(16) + 2 * (attention(2, 8) + f(64)), "torch, timm")
def torch_timm_vit():
    import_torchvision()
    import timm  # pyright: ignore[reportMissingImports]

    sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2, "num_classes": 5}
    return from_torch(lambda: timm.create_model("vit_tiny_patch16_224", **sizes), CHANNELS_FIRST)


def efficientnet_settings() -> float:
    """Of EfficientNet-B0's published table: (expansion, channels, blocks) of every stage."""
    stages = ((1, 16, 1), (6, 24, 2), (6, 40, 2), (6, 80, 3), (6, 112, 3), (6, 192, 4), (6, 320, 1))
    found, channels = f(32) + f(1280), 32  # stem and head
    for expansion, width, blocks in stages:
        for _ in range(blocks):
            found += f(channels // 4) + (f(expansion * channels) if expansion > 1 else 0)  # squeezed, expanded
            channels = width
        found += f(width)  # the stream of the stage
    return found


@row("PyTorch: EfficientNet-B0", efficientnet_settings(), "torch, timm", "at its true widths")
def torch_efficientnet():
    import_torchvision()
    import timm  # pyright: ignore[reportMissingImports]

    return from_torch(lambda: timm.create_model("efficientnet_b0", num_classes=5), CHANNELS_FIRST)


@row("PyTorch: ResNet18", 3 * (f(64) + f(128) + f(256) + f(512)), "torch, torchvision", "at its true widths")
def torch_resnet18():
    return from_torch(_torchvision("resnet18", num_classes=5), CHANNELS_FIRST)


@row(
    "PyTorch: ViT",
    f(16) + 2 * (attention(2, 8) + f(24)),
    "torch, torchvision",
    "its head, zero at first, has weights",
)
def torch_vit():
    sizes = {"image_size": 32, "patch_size": 8, "num_layers": 2, "num_heads": 2, "hidden_dim": 16, "mlp_dim": 24}
    return from_torch(_torchvision("VisionTransformer", **sizes, num_classes=5), CHANNELS_FIRST)


@row(
    "PyTorch: SqueezeNet",
    f(64) + sum(f(s) + 2 * f(4 * s) for s in (16, 16, 32, 32, 48, 48, 64, 64)),
    "torch, torchvision",
)
def torch_squeezenet():
    return from_torch(_torchvision("squeezenet1_1", num_classes=5), CHANNELS_FIRST)


def _torchvision(name: str, **sizes: Any) -> Callable[[], Any]:
    def make():
        import torchvision  # pyright: ignore[reportMissingImports]

        return getattr(torchvision.models, name)(**sizes)

    return make


@row(
    "PyTorch: DenseNet",
    6 * f(8) + 4 * f(4),
    "torch, torchvision",
    "two blocks of two layers, with bottlenecks and a transition",
)
def torch_densenet():
    sizes = {"growth_rate": 4, "block_config": (2, 2), "num_init_features": 8, "bn_size": 2, "num_classes": 5}
    return from_torch(_torchvision("DenseNet", **sizes), CHANNELS_FIRST)


@row(
    "PyTorch: ResNeXt",
    f(64) + sum(f(4) + 4 * 2 * f(w) + f(64 * w) for w in (4, 8, 16, 32)),
    "torch, torchvision",
    "bottlenecks in four groups",
)
def torch_resnext():
    def make():
        from torchvision.models.resnet import Bottleneck, ResNet  # pyright: ignore[reportMissingImports]

        return ResNet(Bottleneck, [1, 1, 1, 1], groups=4, width_per_group=4, num_classes=5)

    return from_torch(make, CHANNELS_FIRST)


@row(
    "PyTorch: Swin",
    f(8) + 2 * (attention(2, 4) + f(32)) + f(16) + 2 * (attention(2, 8) + f(64)),
    "torch, torchvision",
    "windows that are shifted, patches that are merged",
)
def torch_swin():
    sizes = {"patch_size": [4, 4], "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 2], "window_size": [4, 4]}
    return from_torch(_torchvision("SwinTransformer", **sizes, num_classes=5), CHANNELS_FIRST)


@row("PyTorch: ConvNeXt", sum(f(width) + f(4 * width) for width in (8, 12, 16, 20)), "torch, timm")
def torch_convnext():
    return from_torch(_timm("convnext_atto", depths=(1, 1, 1, 1), dims=(8, 12, 16, 20)), CHANNELS_FIRST)


def regnet_settings() -> float:
    """Of RegNetY-200MF: groups of 8, a squeeze to a quarter of the block's input."""
    found, channels = f(32), 32
    for width, blocks in ((24, 1), (56, 1), (152, 4), (368, 7)):
        for _ in range(blocks):
            found += f(width // 8) + width // 8 * 2 * f(8) + f(round(channels / 4))
            channels = width
        found += f(width)
    return found


@row("PyTorch: RegNetY", regnet_settings(), "torch, timm", "at its true widths; convolutions in groups")
def torch_regnet():
    return from_torch(_timm("regnety_002"), CHANNELS_FIRST)


def _timm(name: str, **sizes: Any) -> Callable[[], Any]:
    def make():
        import_torchvision()
        import timm  # pyright: ignore[reportMissingImports]

        return timm.create_model(name, num_classes=5, **sizes)

    return make


@row(
    "PyTorch: GPT-BigCode",
    f(16) + 2 * (f(4) + 2 * f(4) + f(64)),
    "torch, transformers",
    "one key for all queries, fused",
)
def torch_bigcode():
    sizes = {"n_layer": 2, "n_embd": 16, "n_head": 4, "n_positions": 8, **SMALL}
    return torch_transformers("GPTBigCodeForCausalLM", "GPTBigCodeConfig", use_cache=False, **sizes)


@row(
    "PyTorch: Falcon",
    f(16) + 2 * (f(4) + f(4) + f(12)),
    "torch, transformers",
    "one key for all queries, picked from one tensor by an index that is computed: fixed",
)
def torch_falcon():
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_hidden_size": 12, **SMALL}
    eager = {"attn_implementation": "eager", "use_cache": False}
    return torch_transformers("FalconForCausalLM", "FalconConfig", **eager, **sizes)


@row(
    "PyTorch: MPT",
    f(16) + 2 * (4 * 2 * f(4) + f(64)),
    "torch, transformers",
    "heads forget at their own speeds; that the heads of values are counted alike is not seen",
)
def torch_mpt():
    sizes = {"d_model": 16, "n_layers": 2, "n_heads": 4, "max_seq_len": 8, **SMALL}
    return torch_transformers("MptForCausalLM", "MptConfig", use_cache=False, **sizes)


@row(
    "PyTorch: Whisper",
    3 * f(16) + 3 * attention(2, 8) + 2 * f(12),
    "torch, transformers",
    "convolutions in front, encoder and decoder",
)
def torch_whisper():
    sizes = {"vocab_size": 11, "num_mel_bins": 4, "d_model": 16, "max_source_positions": 6, "max_target_positions": 8}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": 1, f"{side}_attention_heads": 2, f"{side}_ffn_dim": 12}
    sizes |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    sound = np.random.default_rng(0).standard_normal((1, 4, 12)).astype(np.float32)
    inputs = {"input_features": sound, "decoder_input_ids": TEXT[:1]}
    return torch_transformers("WhisperForConditionalGeneration", "WhisperConfig", inputs, use_cache=False, **sizes)


@row("PyTorch: Mamba", f(8) + f(16) + f(3) + f(2), "torch, transformers", "stream, state inputs, states, steps")
def torch_mamba():
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "state_size": 3, "time_step_rank": 2, **SMALL}
    return torch_transformers("MambaForCausalLM", "MambaConfig", use_cache=False, **sizes)


@row("PyTorch: RWKV", f(8) + 2 * (f(8) + f(12)), "torch, transformers")
def torch_rwkv():
    sizes = {"hidden_size": 8, "attention_hidden_size": 8, "num_hidden_layers": 2, "intermediate_size": 12, **SMALL}
    return torch_transformers("RwkvForCausalLM", "RwkvConfig", use_cache=False, **sizes)


@row("PyTorch: LSTM", 2 * f(7), "torch", "two layers, the states of the second read by a linear layer")
def torch_lstm():
    import torch  # pyright: ignore[reportMissingImports]

    class Classifier(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.states, self.head = torch.nn.LSTM(6, 7, 2, batch_first=True), torch.nn.Linear(7, 3)

        def forward(self, x):
            return self.head(self.states(x)[0])

    return from_torch(Classifier, TOKENS)


@row("PyTorch: TransformerEncoder", 2 * (attention(2, 3) + f(12)), "torch", "its stream is its output")
def torch_encoder():
    from torch import nn  # pyright: ignore[reportMissingImports]

    return from_torch(
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 12, batch_first=True), 2), TOKENS
    )


@row("PyTorch: MultiheadAttention", attention(2, 3), "torch")
def torch_multihead_attention():
    from torch import nn  # pyright: ignore[reportMissingImports]

    attended = lambda: nn.MultiheadAttention(6, 2, batch_first=True)  # noqa: E731
    return from_torch(attended, (TOKENS, TOKENS, TOKENS), output=lambda made: made[0], need_weights=False)


# Written out as their libraries compute them


def attend(q, k, v):
    """(batch, heads, tokens, size) each."""
    scores = jax.nn.softmax(q @ jnp.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]))
    return jnp.swapaxes(scores @ v, 1, 2).reshape(q.shape[0], q.shape[2], -1)


def rotated(x, size):
    """RoPE on the first `size` dimensions of the last axis."""
    turned, rest = x[..., :size], x[..., size:]
    angle = np.arange(x.shape[-2])[:, None] * 10.0 ** -np.arange(size // 2)
    cos, sin = (np.concatenate([g(angle)] * 2, -1).astype(np.float32) for g in (np.cos, np.sin))
    first, second = jnp.split(turned, 2, -1)
    return jnp.concatenate([turned * cos + jnp.concatenate([-second, first], -1) * sin, rest], -1)


@row("timm ViT block", attention(2, 4), remark="qkv seen as (3, heads, size)")
def timm_vit():
    def apply(p, x):
        q, k, v = jnp.unstack((x @ p["qkv"] + p["b"]).reshape(2, 5, 3, 2, 4).transpose(2, 0, 3, 1, 4))
        return x + attend(q, k, v) @ p["o"]

    return apply, weights(qkv=(6, 24), b=(24,), o=(8, 6)), TOKENS


@row("nn.MultiheadAttention", attention(2, 3), remark="qkv seen as (3, size), each taken by its position")
def torch_attention():
    def apply(p, x):
        packed = (x @ p["in"].T + p["b"]).reshape(2, 5, 3, 6).transpose(2, 0, 1, 3)
        q, k, v = (packed[i].reshape(2, 5, 2, 3).swapaxes(1, 2) for i in range(3))
        return attend(q, k, v) @ p["out"].T

    return apply, weights(**{"in": (18, 6), "b": (18,), "out": (6, 6)}), TOKENS


@row("GPT-NeoX block", f(2) + 2 * (f(2) + f(4)), remark="each head has its query, key and value; half of it rotated")
def neox():
    def apply(p, x):
        q, k, v = jnp.split((x @ p["qkv"]).reshape(2, 5, 2, 12), 3, -1)
        q, k, v = (h.swapaxes(1, 2) for h in (q, k, v))
        return x + attend(rotated(q, 2), rotated(k, 2), v) @ p["o"]

    return apply, weights(qkv=(6, 24), o=(8, 6)), TOKENS


@row("Phi-3 block", f(2) + 2 * (f(2) + f(4)) + f(9), remark="grouped queries in one kernel; gate and up in another")
def phi3():
    def apply(p, x):
        packed = x @ p["qkv"]  # four queries, two keys, two values of size 4
        q, k, v = packed[..., :16], packed[..., 16:24], packed[..., 24:]
        q, k, v = (h.reshape(2, 5, -1, 4).swapaxes(1, 2) for h in (q, k, v))
        k, v = (jnp.repeat(h[:, :, None], 2, 2).reshape(2, 4, 5, 4) for h in (rotated(k, 4), v))
        x = x + attend(rotated(q, 4), k, v) @ p["o"]
        gate, up = jnp.split(x @ p["gate_up"], 2, -1)
        return x + (jax.nn.silu(gate) * up) @ p["down"]

    return apply, weights(qkv=(6, 32), o=(16, 6), gate_up=(6, 18), down=(9, 6)), TOKENS


@row("ChatGLM block", f(2) + 2 * (f(2) + f(4)), remark="queries, keys and values behind each other, half rotated")
def chatglm():
    def apply(p, x):
        q, k, v = (h.reshape(2, 5, 2, 4).swapaxes(1, 2) for h in jnp.split(x @ p["qkv"], 3, -1))
        return x + attend(rotated(q, 2), rotated(k, 2), v) @ p["o"]

    return apply, weights(qkv=(6, 24), o=(8, 6)), TOKENS


@row("Mamba-2 block", f(3) + 3 * f(2) + f(4), remark="gate, state input, B, C and steps in one projection")
def mamba2():
    heads, size, state = 3, 2, 4

    def apply(p, x):
        inner = heads * size
        z, xbc, steps = jnp.split(x @ p["in"], [inner, 2 * inner + 2 * state], -1)
        xbc = jax.nn.silu(
            lax.conv_general_dilated(
                xbc, p["conv"], (1,), [(2, 0)], dimension_numbers=("NWC", "WIO", "NWC"), feature_group_count=14
            )
        )
        u, b, c = jnp.split(xbc, [inner, inner + state], -1)
        u, steps = u.reshape(2, 5, heads, size), jax.nn.softplus(steps + p["bias"])
        decay = jnp.exp(-steps * jnp.exp(p["a"]))

        def step(h, inputs):
            u, b, c, dt, decay = inputs
            h = decay[..., None, None] * h + jnp.einsum("bh,bhp,bn->bhpn", dt, u, b)
            return h, jnp.einsum("bhpn,bn->bhp", h, c)

        sequence = [jnp.swapaxes(s, 0, 1) for s in (u, b, c, steps, decay)]
        _, y = lax.scan(step, jnp.zeros((2, heads, size, state), x.dtype), sequence)
        y = jnp.swapaxes(y, 0, 1) + u * p["d"][:, None]
        y = y.reshape(2, 5, inner) * jax.nn.silu(z)
        return (y * lax.rsqrt((y**2).mean(-1, keepdims=True) + 1e-5) * p["norm"]) @ p["out"]

    shapes = {"in": (6, 2 * 6 + 2 * 4 + 3), "conv": (3, 1, 14), "bias": (3,), "a": (3,), "d": (3,), "norm": (6,)}
    return apply, weights(**shapes, out=(6, 6)), TOKENS


def conv(x, kernel, stride=1):
    return lax.conv_general_dilated(x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


@row("DenseNet block", f(4) + 3 * (f(8) + f(3)), remark="three layers of growth 3 with bottlenecks of 8")
def densenet():
    def norm(x, p, name):
        return jax.nn.relu(x * p[name] + p[name + "_b"])

    def apply(p, x):
        x = conv(x, p["stem"])
        for i in range(3):
            y = conv(norm(x, p, f"n{i}"), p[f"a{i}"])
            x = jnp.concatenate([x, conv(norm(y, p, f"m{i}"), p[f"b{i}"])], -1)
        return norm(x, p, "last").mean((1, 2)) @ p["head"]

    shapes: dict[str, tuple[int, ...]] = {"stem": (3, 3, 3, 4), "last": (13,), "last_b": (13,), "head": (13, 5)}
    for i in range(3):
        width = 4 + 3 * i
        shapes |= {f"n{i}": (width,), f"n{i}_b": (width,), f"a{i}": (1, 1, width, 8), f"m{i}": (8,), f"m{i}_b": (8,)}
        shapes[f"b{i}"] = (3, 3, 8, 3)
    return apply, weights(**shapes), IMAGES


@row("U-Net", f(4) + f(6) + f(7) + f(5), remark="skip connection by concatenation")
def unet():
    def apply(p, x):
        first = jax.nn.relu(conv(x, p["down0"]))
        deep = jax.nn.relu(conv(jax.nn.relu(conv(first, p["down1"], 2)), p["middle"]))
        up = lax.conv_transpose(deep, p["up"], (2, 2), "SAME")
        return conv(jax.nn.relu(jnp.concatenate([first, up], -1)), p["out"])

    shapes = {"down0": (3, 3, 3, 4), "down1": (3, 3, 4, 6), "middle": (3, 3, 6, 7), "up": (3, 3, 7, 5)}
    return apply, weights(**shapes, out=(1, 1, 9, 2)), IMAGES


@row("SqueezeNet fire", f(4) + f(5) + f(6) + f(7), remark="two expansions side by side")
def squeezenet():
    def apply(p, x):
        s = jax.nn.relu(conv(jax.nn.relu(conv(x, p["stem"])), p["squeeze"]))
        both = jnp.concatenate([jax.nn.relu(conv(s, p["one"])), jax.nn.relu(conv(s, p["three"]))], -1)
        return conv(both, p["head"]).mean((1, 2))

    shapes = {"stem": (3, 3, 3, 4), "squeeze": (1, 1, 4, 5), "one": (1, 1, 5, 6), "three": (3, 3, 5, 7)}
    return apply, weights(**shapes, head=(1, 1, 13, 3)), IMAGES


@row("BiLSTM", 2 * f(7), remark="states of both directions side by side")
def bilstm():
    def direction(x, kernel, bias, reverse):
        def cell(carry, x):
            h, c = carry
            i, g, o, fgt = jnp.split(jnp.concatenate([x, h], -1) @ kernel + bias, 4, -1)
            c = jax.nn.sigmoid(fgt) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        start = jnp.zeros((2, 7), x.dtype)
        _, states = lax.scan(cell, (start, start), jnp.swapaxes(x, 0, 1), reverse=reverse)
        return states

    def apply(p, x):
        both = [direction(x, p[f"w{i}"], p[f"b{i}"], bool(i)) for i in range(2)]
        return jnp.concatenate(both, -1) @ p["head"]

    return apply, weights(w0=(13, 28), w1=(13, 28), b0=(28,), b1=(28,), head=(14, 3)), TOKENS


@row("Swin block", attention(2, 4) + f(9), remark="qkv as (3, heads, size), a bias of every head by position")
def swin():
    def apply(p, x):
        q, k, v = jnp.unstack((x @ p["qkv"]).reshape(2, 5, 3, 2, 4).transpose(2, 0, 3, 1, 4))
        where = np.arange(5)[:, None] - np.arange(5) + 4
        bias = p["table"][where.reshape(-1)].reshape(5, 5, 2).transpose(2, 0, 1)
        scores = jax.nn.softmax(q @ jnp.swapaxes(k, -1, -2) + bias)
        x = x + jnp.swapaxes(scores @ v, 1, 2).reshape(2, 5, 8) @ p["o"]
        return x + jax.nn.gelu(x @ p["up"]) @ p["down"]

    return apply, weights(qkv=(6, 24), table=(9, 2), o=(8, 6), up=(6, 9), down=(9, 6)), TOKENS


@row("scanned ViT", 3 * (attention(2, 3) + f(9)), remark="heads, sizes and units of each of three layers")
def scanned_vit():
    def apply(p, x):
        def layer(x, p):
            q, k, v = (jnp.einsum("btd,dhk->bhtk", x, p[name]) for name in "qkv")
            x = x + attend(q, k, v) @ p["o"]
            return x + jax.nn.gelu(x @ p["up"]) @ p["down"], None

        return lax.scan(layer, x, p)[0]

    shapes = {name: (3, 6, 2, 3) for name in "qkv"}
    return apply, weights(**shapes, o=(3, 6, 6), up=(3, 6, 9), down=(3, 9, 6)), TOKENS


@row("experts, every token to all", f(4) + 4 * f(7), remark="weighted by a softmax")
def soft_experts():
    def apply(p, x):
        gates = jax.nn.softmax(x @ p["router"])
        hidden = jax.nn.relu(jnp.einsum("btd,edh->bteh", x, p["up"]))
        return jnp.einsum("bte,bteh,ehd->btd", gates, hidden, p["down"])

    return apply, weights(router=(6, 4), up=(4, 6, 7), down=(4, 7, 6)), TOKENS


@row("experts, two a token", f(4) + 4 * f(7), remark="chosen by `top_k`, and one-hot")
def top_experts():
    def apply(p, x):
        best, which = lax.top_k(x @ p["router"], 2)
        gates = jnp.einsum("btk,btke->bte", jax.nn.softmax(best), jax.nn.one_hot(which, 4, dtype=x.dtype))
        hidden = jax.nn.relu(jnp.einsum("btd,edh->bteh", x, p["up"]))
        return jnp.einsum("bte,bteh,ehd->btd", gates, hidden, p["down"])

    return apply, weights(router=(6, 4), up=(4, 6, 7), down=(4, 7, 6)), TOKENS


@row(
    "decoder with experts",
    f(6) + attention(2, 3) + f(4) + 4 * f(7),
    remark="as in Mixtral: a router behind RMS norm and attention, two gated experts a token, all computed",
)
def decoder_with_experts():
    def norm(x, gain):
        return x * lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-5) * gain

    def apply(p, tokens):
        x = p["table"][tokens]
        h = norm(x, p["n0"])
        q, k, v = ((h @ p[name]).reshape(2, 5, 2, 3).swapaxes(1, 2) for name in "qkv")
        x = x + attend(q, k, v) @ p["o"]
        h = norm(x, p["n1"])
        best, which = lax.top_k(jax.nn.softmax(h @ p["router"]), 2)
        best = best / best.sum(-1, keepdims=True)
        gates = jnp.einsum("btk,btke->bte", best, jax.nn.one_hot(which, 4, dtype=x.dtype))
        hidden = jax.nn.silu(jnp.einsum("btd,edh->bteh", h, p["gate"])) * jnp.einsum("btd,edh->bteh", h, p["up"])
        return norm(x + jnp.einsum("bte,bteh,ehd->btd", gates, hidden, p["down"]), p["n2"]) @ p["head"]

    shapes = {name: (6, 6) for name in "qkvo"} | {f"n{i}": (6,) for i in range(3)} | {"router": (6, 4)}
    shapes |= {"gate": (4, 6, 7), "up": (4, 6, 7), "down": (4, 7, 6), "table": (11, 6), "head": (6, 11)}
    return apply, weights(**shapes), TEXT


@row("experts, weights picked", f(4) + 4 * f(7), remark="`w[which]`: units have one order for all experts")
def picked_experts():
    def apply(p, x):
        best, which = lax.top_k(x @ p["router"], 2)
        hidden = jax.nn.relu(jnp.einsum("btd,btkdh->btkh", x, p["up"][which]))
        return jnp.einsum("btk,btkh,btkhd->btd", jax.nn.softmax(best), hidden, p["down"][which])

    return apply, weights(router=(6, 4), up=(4, 6, 7), down=(4, 7, 6)), TOKENS


@row("layers taken from a stack", 3 * (attention(2, 3) + f(9)), remark="a loop in Python, `w[i]`")
def stacked_layers():
    def apply(p, x):
        for i in range(3):
            q, k, v = (jnp.einsum("btd,dhk->bhtk", x, p[name][i]) for name in "qkv")
            x = x + attend(q, k, v) @ p["o"][i]
            x = x + jax.nn.gelu(x @ p["up"][i]) @ p["down"][i]
        return x

    shapes = {name: (3, 6, 2, 3) for name in "qkv"}
    return apply, weights(**shapes, o=(3, 6, 6), up=(3, 6, 9), down=(3, 9, 6)), TOKENS


@row("ResNeXt block", f(6) + f(3) + 3 * (f(2) + f(2)), remark="convolution in three groups of two")
def resnext():
    def apply(p, x):
        x = jax.nn.relu(conv(x, p["stem"]))
        y = jax.nn.relu(conv(x, p["a"]))
        y = lax.conv_general_dilated(
            y, p["b"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=3
        )
        return jax.nn.relu(x + conv(jax.nn.relu(y), p["c"])).mean((1, 2)) @ p["head"]

    shapes = {"stem": (3, 3, 3, 6), "a": (1, 1, 6, 6), "b": (3, 3, 2, 6), "c": (1, 1, 6, 6), "head": (6, 4)}
    return apply, weights(**shapes), IMAGES


@row("Gemma, fused keys and values", f(2) + 2 * f(4), remark="one tensor (2, …), whose two parts move differently")
def gemma():
    def apply(p, x):
        q = jnp.einsum("btd,dhk->bhtk", x, p["q"])
        k, v = jnp.einsum("btd,cdhk->cbhtk", x, p["kv"])
        return x + attend(rotated(q, 4), rotated(k, 4), v) @ p["o"]

    return apply, weights(q=(6, 2, 4), kv=(2, 6, 2, 4), o=(8, 6)), TOKENS


class Result(NamedTuple):
    row: Row
    found: float
    gap: float
    unseen: str  # what `verify` says of groups that could be wrong without its being seen

    @property
    def complete(self) -> bool:
        return abs(self.found - self.row.theory) < 1e-6 * max(1.0, self.row.theory)


def measured(row: Row) -> Result:
    apply, params, x = row.make()
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        spec = bayesin.discover(apply, params, x)
        gap = bayesin.verify(apply, params, x, spec, key=KEY, trials=1)
    unseen = [str(w.message) for w in raised if issubclass(w.category, InconclusiveWarning)]
    return Result(row, spec.log10_order, gap, unseen[0].split(":")[1].split("could")[0].strip() if unseen else "")


def recovered(row: Row) -> str:
    """W2² of the network to itself, moved by a random setting of its whole symmetry, before and after alignment."""
    apply, params, x = row.make()
    lines = []
    for signs in (False, True):
        spec = bayesin.discover(apply, params, x, signs=signs)
        moved = bayesin.permute(params, spec, spec.random(KEY), spec.random_signs(KEY))
        found = bayesin.align(params, moved, spec, key=KEY, check=(apply, x))
        what = f"{'with' if signs else 'without'} signs, 10^{spec.log10_order:.2f} settings"
        lines.append(f"    planted {what}: W2² {found.history[0]:.2f} -> {found.objective:.2g}")
    return "\n".join(lines)


def table(results: list[Result]) -> str:
    lines = [
        "| architecture | from | theory | found | | largest change | inconclusive | remark |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        row, mark = result.row, "complete" if result.complete else f"{result.found / result.row.theory:.0%}"
        numbers = f"{row.theory:.2f} | {result.found:.2f} | {mark} | {result.gap:.0e} | {result.unseen}"
        lines.append(f"| {row.name} | {row.library or 'written out'} | {numbers} | {row.remark} |")
    return "\n".join(lines)


def full_size() -> list[str]:
    """Seconds of discovery from shapes alone, trace included."""
    lines = ["| model | parameters | groups | theory | found | seconds |", "|---|---|---|---|---|---|"]
    for name, (make, theory) in FULL.items():
        apply, params, x = make()
        start = time.perf_counter()
        spec = bayesin.discover(apply, params, x)
        seconds = time.perf_counter() - start
        count = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(params)) / 1e6
        numbers = f"{len(spec.sizes)} | {theory:,.1f} | {spec.log10_order:,.1f} | {seconds:.1f}"
        lines.append(f"| {name} | {count:,.0f} M | {numbers} |")
    return lines


def decoder(layers: int, width: int, heads: int, hidden: int, vocabulary: int, llama: bool):
    """A decoder of GPT-2's or Llama's shape, with a fused projection or with rotation and a gated MLP."""
    size = width // heads
    shapes: dict[str, tuple[int, ...]] = {"table": (vocabulary, width), "head": (width, vocabulary), "norm": (width,)}
    if not llama:
        shapes["positions"] = (1024, width)
    for i in range(layers):
        names = {"n0": (width,), "n1": (width,), "o": (width, width), "down": (hidden, width)}
        names |= (
            {"q": (width, width), "k": (width, width), "v": (width, width)} if llama else {"qkv": (width, 3 * width)}
        )
        names |= {"gate": (width, hidden), "up": (width, hidden)} if llama else {"up": (width, hidden)}
        shapes |= {f"{i}/{name}": shape for name, shape in names.items()}
    params = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()}

    def norm(x, gain):
        return x * lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-5) * gain

    def apply(p, tokens):
        batch, length = tokens.shape
        x = p["table"][tokens] if llama else p["table"][tokens] + p["positions"][:length]
        for i in range(layers):
            h = norm(x, p[f"{i}/n0"])
            parts = [h @ p[f"{i}/{name}"] for name in "qkv"] if llama else jnp.split(h @ p[f"{i}/qkv"], 3, -1)
            q, k, v = (part.reshape(batch, length, heads, size).swapaxes(1, 2) for part in parts)
            q, k = (rotated(q, size), rotated(k, size)) if llama else (q, k)
            x = x + attend(q, k, v) @ p[f"{i}/o"]
            h = norm(x, p[f"{i}/n1"])
            h = jax.nn.silu(h @ p[f"{i}/gate"]) * (h @ p[f"{i}/up"]) if llama else jax.nn.gelu(h @ p[f"{i}/up"])
            x = x + h @ p[f"{i}/down"]
        return norm(x, p["norm"]) @ p["head"]

    return apply, params, jax.ShapeDtypeStruct((1, 8), jnp.int32)


FULL = {
    "GPT-2, 124 M and its head": (
        lambda: decoder(12, 768, 12, 3072, 50257, llama=False),
        f(768) + 12 * (attention(12, 64) + f(3072)),
    ),
    "Llama-7B": (
        lambda: decoder(32, 4096, 32, 11008, 32000, llama=True),
        f(4096) + 32 * (attention(32, 128, rotary=True) + f(11008)),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only architectures whose names hold one of these")
    parser.add_argument("--out", type=Path, help="write a page")
    parser.add_argument("--no-full-size", action="store_true")
    parser.add_argument("--planted", action="store_true", help="also plant a random setting, and align it away")
    options = parser.parse_args()
    chosen = [r for r in ROWS if not options.words or any(word.lower() in r.name.lower() for word in options.words)]
    needed = sorted({library for r in chosen for library in r.libraries})
    missing = {library for library in needed if importlib.util.find_spec(library) is None}
    results = []
    for r in chosen:
        if missing.intersection(r.libraries):
            continue
        try:
            results.append(measured(r))
        except Exception as error:  # one architecture must not hide the others
            print(f"{r.name}: {type(error).__name__}: {str(error).splitlines()[0][:200]}", file=sys.stderr)
            continue
        last = results[-1]
        print(
            f"{r.name:32} theory {r.theory:8.2f} found {last.found:8.2f} change {last.gap:.0e} {last.unseen}",
            flush=True,
        )
        if options.planted:
            print(recovered(r), flush=True)
    large = [] if options.no_full_size or options.words else full_size()
    print("\n".join(large))
    if missing:
        print(f"left out, for their libraries are missing: {', '.join(sorted(missing))}")
    if options.out:
        options.out.write_text(PAGE.format(table=table(results), large="\n".join(large)))


PAGE = """# How much of the symmetry is found

Made by `python benchmarks/zoo.py --out results/symmetry.md`; theory is counted by hand, as log10 of the number of
settings of the weights that compute the same function, and every row was verified: *largest change* is that of the
output, relative to its largest entry, when all groups are permuted at once, and *inconclusive* the groups of which
one tensor moved alone would not show (none, where it is empty). Sizes are small and weights random.
*Written out* means that the architecture's library is not in JAX, and the program follows what it computes.

{table}

From shapes alone, seconds with the trace, on two shared cores:

{large}
"""

if __name__ == "__main__":
    main()
