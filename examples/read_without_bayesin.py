"""Reading our files without bayesin: safetensors, json and numpy are all it takes.

bayesin train --data mine.npz --model mlp --width 64 --depth 1 --members 2 --out run
bayesin align run#0 run#1 --out aligned
python read_without_bayesin.py run/posterior-0.safetensors aligned/alignment.safetensors mine.npz
"""

import json
import sys

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file

posterior, alignment, archive = sys.argv[1:4]

# The header: strings, some of them JSON.
with safe_open(posterior, "np") as file:
    header = file.metadata()
about = json.loads(header["metadata"])
print(
    f"{header['format']} {header['version']}: {header['kind']} of {about['model']['name']} on {about['data']['name']}"
)

# The arrays: flat names, "mean/<path>" and "std/<path>" of a Gaussian.
arrays = load_file(posterior)
mean = {name.removeprefix("mean/"): array for name, array in arrays.items() if name.startswith("mean/")}
std = {name.removeprefix("std/"): array for name, array in arrays.items() if name.startswith("std/")}
print("weights:", sum(array.size for array in mean.values()), "of", ", ".join(mean))


def forward(weights, x):  # Flax keeps dense kernels as (in, out)
    layers = len(weights) // 2
    for layer in range(layers):
        x = x @ weights[f"layers/{layer}/kernel"] + weights[f"layers/{layer}/bias"]
        x = np.maximum(x, 0) if layer < layers - 1 else x
    return x


# Inputs as in training: each feature with the mean and std of the training set.
data = np.load(archive)
shift, scale = data["x_train"].mean(0), data["x_train"].std(0)
x = (data["x_test"] - shift) / np.where(scale > 0, scale, 1)

# The predictive: probabilities averaged over networks drawn from the Gaussian.
random, total = np.random.default_rng(0), 0.0
for _ in range(32):
    logits = forward({n: mean[n] + std[n] * random.normal(size=mean[n].shape) for n in mean}, x)
    chances = np.exp(logits - logits.max(1, keepdims=True))
    total = total + chances / chances.sum(1, keepdims=True)
print(f"accuracy: {np.mean(total.argmax(1) == data['y_test']):.4f}")

# Permutations: new[i] = old[perm[i]], and a spec that says which axis belongs to which group.
perms = load_file(alignment)
with safe_open(alignment, "np") as file:
    spec = json.loads(file.metadata()["spec"])
moved = sum(int(np.sum(perm != np.arange(len(perm)))) for perm in perms.values())
print(f"permutations: {', '.join(perms)}; {moved} units moved; spec of {len(spec['parameters'])} tensors")
