"""Networks of torchvision, timm, Hugging Face and PyTorch itself, at small sizes and with random weights.

The oracle is PyTorch, twice: our output is its own, and a network that was permuted and loaded back still gives it.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
import torch
from torch import nn

import bayesin
from bayesin import models
from bayesin.models.torch import inputs_of

pytestmark = [pytest.mark.promotes, pytest.mark.slow, pytest.mark.timeout(900)]
KEY = jax.random.key(0)
jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})  # large programs, run once
IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
TOKENS = torch.randint(0, 50, (2, 7), generator=torch.Generator().manual_seed(0))


class Case(NamedTuple):
    make: Any
    example: Any
    groups: int  # at least
    options: dict | None = None
    output: Any = None


def _torchvision(name, **sizes):
    def make():
        import torchvision

        module = getattr(torchvision.models, name)(**sizes)
        if name == "VisionTransformer":  # its head is zero at first, and a network that is zero shows nothing
            nn.init.normal_(module.heads[-1].weight)
        return module

    return make


def _timm(name, **sizes):
    def make():
        return pytest.importorskip("timm").create_model(name, **sizes)

    return make


def _transformers(kind, config, **sizes):
    def make():
        transformers = pytest.importorskip("transformers")
        return getattr(transformers, kind)(getattr(transformers, config)(vocab_size=50, **sizes))

    return make


VIT = {"image_size": 32, "patch_size": 8, "num_layers": 2, "num_heads": 2, "hidden_dim": 16, "mlp_dim": 24}
BERT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
CASES = {
    "TransformerEncoder": Case(
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 12, batch_first=True), 2),
        torch.randn(2, 5, 8),
        2,
    ),
    "LSTM": Case(lambda: nn.LSTM(4, 6, batch_first=True), torch.randn(2, 5, 4), 0, output=lambda out: out[0]),
    "torchvision ResNet18": Case(_torchvision("resnet18", num_classes=5), IMAGES, 12),
    "torchvision ViT": Case(_torchvision("VisionTransformer", **VIT, num_classes=5), IMAGES, 7),
    "timm EfficientNet": Case(_timm("efficientnet_b0", num_classes=5), IMAGES, 40),
    "timm BEiT": Case(  # calls `linear` by keywords
        _timm("beit_base_patch16_224", img_size=32, patch_size=8, embed_dim=16, depth=2, num_heads=2, num_classes=5),
        IMAGES,
        9,
    ),
    "timm ViT": Case(
        _timm("vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=16, depth=2, num_heads=2, num_classes=5),
        IMAGES,
        7,
    ),
    "Hugging Face BERT": Case(
        _transformers("BertForSequenceClassification", "BertConfig", max_position_embeddings=16, **BERT),
        {"input_ids": TOKENS, "attention_mask": torch.ones_like(TOKENS)},
        8,
    ),
    "Hugging Face GPT-2": Case(
        _transformers("GPT2LMHeadModel", "GPT2Config", n_positions=16, n_embd=16, n_layer=2, n_head=2),
        TOKENS,
        7,
        {"use_cache": False},
    ),
    "Hugging Face Qwen2": Case(
        _transformers("Qwen2ForCausalLM", "Qwen2Config", num_key_value_heads=2, **BERT | {"num_attention_heads": 4}),
        TOKENS,
        7,
        {"use_cache": False},
    ),
}


def assert_same(found, expected):
    """Within rounding of the largest output: some networks start with outputs of 1e-5."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_network_computes_what_it_computes_in_pytorch_and_goes_back(case):
    torch.manual_seed(0)
    module = case.make().eval()
    model = models.from_torch(module, case.example, output=case.output, **(case.options or {}))
    params, x = model.init(KEY), inputs_of(case.example)
    arguments = ((), case.example) if isinstance(case.example, dict) else ((case.example,), {})
    with torch.no_grad():
        expected = module(*arguments[0], **arguments[1], **(case.options or {}))
    expected = case.output(expected) if case.output else getattr(expected, "logits", expected)
    assert_same(jit(model.apply)(params, x), expected.numpy())
    assert set(params) <= set(module.state_dict())

    spec = bayesin.discover(model.apply, params, x)
    assert len(spec.sizes) >= case.groups
    moved = bayesin.permute(params, spec, spec.random(KEY)) if spec.sizes else params
    other = case.make().eval()
    other.load_state_dict(models.to_torch(moved, other), strict=True)
    with torch.no_grad():
        again = other(*arguments[0], **arguments[1], **(case.options or {}))
    again = case.output(again) if case.output else getattr(again, "logits", again)
    assert_same(again.numpy(), expected.numpy())
