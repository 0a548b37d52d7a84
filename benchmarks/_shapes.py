"""Networks as specs alone: the shapes of their weights and their whole permutation symmetry, at any size.

Attention has heads, with permutations of the query-key and of the value dimensions of their own where no rotation
ties these to positions; fused projections are sums.
"""

from bayesin import PermutationSpec


class _Spec:
    """Axes and groups as they are collected."""

    def __init__(self, **sizes: int):
        self.axes: dict[str, list[str]] = {}
        self.sizes: dict[str, int] = dict(sizes)

    def done(self) -> PermutationSpec:
        return PermutationSpec.parse(self.axes, self.sizes)

    def norm(self, name: str, axis: str = "s") -> None:
        self.axes |= {f"{name}.scale": [axis], f"{name}.bias": [axis]}

    def dense(self, name: str, entry: str, exit: str, bias: bool = True) -> None:
        self.axes |= {f"{name}.kernel": [entry, exit]} | ({f"{name}.bias": [exit]} if bias else {})

    def attention(self, name: str, heads: int, size: int, fused: bool, bias: bool, shared: str = "") -> None:
        """Query, key, value, output; each head with its own permutations. Heads may be `shared` with other layers."""
        h, q, v = shared or f"{name}.h", f"{name}.q", f"{name}.v"
        self.sizes |= {h: heads, f"{q}[{h}]": size, f"{v}[{h}]": size}
        query, value = f"{h} * {q}[{h}]", f"{h} * {v}[{h}]"
        if fused:
            self.dense(f"{name}.qkv", "s", f"{query} + {query} + {value}", bias)
        else:
            self.dense(f"{name}.query", "s", query, bias)
            self.dense(f"{name}.key", "s", query, bias)
            self.dense(f"{name}.value", "s", value, bias)
        self.dense(f"{name}.out", value, "s", bias)

    def mlp(self, name: str, hidden: int, gated: bool = False, bias: bool = True) -> None:
        self.sizes[f"{name}.m"] = hidden
        for part in ("up", "gate") if gated else ("up",):
            self.dense(f"{name}.{part}", "s", f"{name}.m", bias)
        self.dense(f"{name}.down", f"{name}.m", "s", bias)


def gpt2(layers=12, width=768, heads=12, vocabulary=50257, positions=1024) -> PermutationSpec:
    """GPT-2: fused query-key-value, learned positions, tied embedding."""
    spec = _Spec(s=width)
    spec.axes |= {"wte": [str(vocabulary), "s"], "wpe": [str(positions), "s"]}
    for layer in range(layers):
        spec.norm(f"l{layer}.ln1")
        spec.norm(f"l{layer}.ln2")
        spec.attention(f"l{layer}.attn", heads, width // heads, fused=True, bias=True)
        spec.mlp(f"l{layer}.mlp", 4 * width)
    spec.norm("ln")
    return spec.done()


def vit(layers=12, width=768, heads=12, patch=768, positions=197, classes=1000) -> PermutationSpec:
    """A vision transformer: patches, a class token, learned positions, a head."""
    spec = _Spec(s=width)
    spec.dense("patch", str(patch), "s")
    spec.dense("head", "s", str(classes))
    spec.axes |= {"positions": [str(positions), "s"], "class": ["s"]}
    for layer in range(layers):
        spec.norm(f"l{layer}.ln1")
        spec.norm(f"l{layer}.ln2")
        spec.attention(f"l{layer}.attn", heads, width // heads, fused=False, bias=True)
        spec.mlp(f"l{layer}.mlp", 4 * width)
    spec.norm("ln")
    return spec.done()


def t5(layers=6, width=512, heads=8, size=64, hidden=2048, vocabulary=32128, buckets=32) -> PermutationSpec:
    """T5: one stream for encoder and decoder, no biases but those of relative positions, which tie a side's heads."""
    spec = _Spec(s=width)
    spec.axes["shared"] = [str(vocabulary), "s"]
    for side in ("encoder", "decoder"):
        spec.axes |= {f"{side}.ln": ["s"], f"{side}.positions": [str(buckets), f"{side}.h"]}
        for name in (f"{side}.l{layer}" for layer in range(layers)):
            spec.attention(f"{name}.self", heads, size, fused=False, bias=False, shared=f"{side}.h")
            if side == "decoder":
                spec.attention(f"{name}.cross", heads, size, fused=False, bias=False)
                spec.axes[f"{name}.ln3"] = ["s"]
            spec.mlp(f"{name}.mlp", hidden, bias=False)
            spec.axes |= {f"{name}.ln1": ["s"], f"{name}.ln2": ["s"]}
    return spec.done()


def llama(layers=4, width=64, kv_heads=2, queries=2, size=16, hidden=160, vocabulary=200) -> PermutationSpec:
    """Llama: rotations tie the query-key dimensions; queries that are grouped share the values of a head."""
    spec = _Spec(s=width)
    spec.axes |= {"embed": [str(vocabulary), "s"], "head": ["s", str(vocabulary)], "norm": ["s"]}
    for layer in range(layers):
        h, u, v = (f"l{layer}.{name}" for name in ("h", "u", "v"))
        spec.sizes |= {h: kv_heads, f"{v}[{h}]": size} | ({f"{u}[{h}]": queries} if queries > 1 else {})
        head = f"{h} * {u}[{h}]" if queries > 1 else h
        spec.axes |= {f"l{layer}.norm1": ["s"], f"l{layer}.norm2": ["s"]}
        spec.dense(f"l{layer}.query", "s", f"{head} * {size}", bias=False)
        spec.dense(f"l{layer}.key", "s", f"{h} * {size}", bias=False)
        spec.dense(f"l{layer}.value", "s", f"{h} * {v}[{h}]", bias=False)
        spec.dense(f"l{layer}.out", f"{head} * {v}[{h}]", "s", bias=False)
        spec.mlp(f"l{layer}.mlp", hidden, gated=True, bias=False)
    return spec.done()


def mamba(layers=4, width=48, state=8, rank=4, taps=4, vocabulary=200) -> PermutationSpec:
    """Mamba: two halves of a fused projection, a depthwise convolution, step sizes, states."""
    spec = _Spec(s=width)
    spec.axes |= {"embed": [str(vocabulary), "s"], "norm": ["s"]}
    for layer in range(layers):
        i, n, r = (f"l{layer}.{name}" for name in ("i", "n", "r"))
        spec.sizes |= {i: 2 * width, n: state, r: rank}
        spec.dense(f"l{layer}.in", "s", f"{i} + {i}", bias=False)
        spec.dense(f"l{layer}.x", i, f"{r} + {n} + {n}", bias=False)
        spec.dense(f"l{layer}.dt", r, i)
        spec.dense(f"l{layer}.out", i, "s", bias=False)
        spec.axes |= {f"l{layer}.conv.kernel": [str(taps), i], f"l{layer}.conv.bias": [i]}
        spec.axes |= {f"l{layer}.A": [i, n], f"l{layer}.D": [i], f"l{layer}.norm": ["s"]}
    return spec.done()


def resnet50(width=64, blocks=(3, 4, 6, 3), classes=1000) -> PermutationSpec:
    """ResNet-50: four streams, two inner groups in each bottleneck."""
    spec = _Spec(s0=width)
    spec.axes["stem"] = ["7", "7", "3", "s0"]
    spec.norm("stem_norm", "s0")
    for stage, count in enumerate(blocks, 1):
        stream, inner = f"s{stage}", width * 2 ** (stage - 1)
        spec.sizes[stream] = 4 * inner
        for block in range(count):
            name, entry = f"b{stage}.{block}", stream if block else f"s{stage - 1}"
            a, b = f"{name}.a", f"{name}.b"
            spec.sizes |= {a: inner, b: inner}
            spec.axes |= {f"{name}.conv1": ["1", "1", entry, a], f"{name}.conv2": ["3", "3", a, b]}
            spec.axes |= {f"{name}.conv3": ["1", "1", b, stream]}
            for number, axis in ((1, a), (2, b), (3, stream)):
                spec.norm(f"{name}.norm{number}", axis)
            if not block:
                spec.axes[f"{name}.shortcut"] = ["1", "1", entry, stream]
                spec.norm(f"{name}.shortcut_norm", stream)
    spec.dense("head", f"s{len(blocks)}", str(classes))
    return spec.done()


SMALL = {
    "ViT": vit(4, 48, 4, 48, 17, 20),
    "GPT-2": gpt2(4, 48, 4, 200, 32),
    "T5": t5(2, 48, 4, 12, 96, 200, 16),
    "ResNet-50": resnet50(8, (3, 4, 6, 3), 20),
    "Llama": llama(),
    "Mamba": mamba(),
}
# Mamba, deep and wide, and T5, deep, were among the trials by which kicks got their rule, with the first weights.
MORE = {
    "Mamba, deep": mamba(8, 32, 4, 2, 4, 60),
    "Mamba, wide": mamba(3, 96, 16, 6, 4, 100),
    "T5, deep": t5(4, 40, 4, 10, 80, 150, 16),
    "Llama, deep": llama(6, 48, 2, 2, 12, 120, 100),
    "GPT-2, wide": gpt2(3, 96, 8, 100, 32),
    "ResNet, short": resnet50(12, (2, 2, 2), 20),
}
LARGE = {"ViT-B/16": vit(), "GPT-2 124M": gpt2(), "ResNet-50": resnet50(), "T5 small": t5()}
ON_FILES = {
    "GPT-2 XL": gpt2(layers=48, width=1600, heads=25),
    "Llama-7B": llama(32, 4096, 32, 1, 128, 11008, 32000),
    "Llama, tiny": llama(4, 256, 8, 1, 32, 688, 2000),
}
