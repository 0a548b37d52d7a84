"""Five PyTorch networks from a plain loop, folded to one posterior: evaluated, saved, loaded back into PyTorch.

Needs `pip install 'bayesin[torch]'`. The folder that is saved holds the weights as safetensors and a card that says
what they are; with `bayesin push posterior user/name` it goes to the Hugging Face hub as it is.
"""

import jax
import torch
from torch import nn

import bayesin
from bayesin import data, models

digits = data.load("digits")
x_train, x_test = (x.reshape(len(x), -1) for x in (digits.x_train, digits.x_test))


def network():
    return nn.Sequential(nn.Linear(64, 48), nn.LayerNorm(48), nn.ReLU(), nn.Linear(48, 10))


def train(seed):
    torch.manual_seed(seed)
    net, x, y = network(), torch.tensor(x_train), torch.tensor(digits.y_train).long()
    optimiser = torch.optim.AdamW(net.parameters(), 3e-3, weight_decay=0.1)
    for _ in range(20):
        for batch in torch.randperm(len(x)).split(100):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(x[batch]), y[batch]).backward()
            optimiser.step()
    return net.eval()


nets = [train(seed) for seed in range(5)]

# Each network's weights under the names of its state dict; the symmetry comes from the computation.
key = jax.random.key(0)
model = models.from_torch(nets[0], x_test[:2])
members = [models.from_torch(net, x_test[:2]).init(key) for net in nets]
spec = bayesin.discover(model.apply, members[0], x_test[:2])
print("groups:", dict(spec.sizes))

# One Gaussian for all five: units in a common order, then mean and covariance, as wide as training labels like best.
held_out = (x_train, digits.y_train)
options = {"family": "lowrank", "scale": "held-out", "held_out": held_out, "apply": model.apply}
folded = bayesin.compact(members, spec, key=key, **options)
print(f"spread {folded.spread_before:.3f} as trained, {folded.spread_after:.3f} in a common order")
scores = {}
for name, posterior in (("ensemble", bayesin.Samples.stack(members)), ("folded", folded.posterior)):
    scores = bayesin.predict(posterior, model, x_test, key=key).metrics(digits.y_test)
    print(f"{name}: accuracy {scores['accuracy']:.3f}, NLL {scores['nll']:.3f}, ECE {scores['ece']:.3f}")

# Saved as a folder with a card, and read back.
about = {"model": "64-48-10 with LayerNorm", "data": {"name": "digits", "content": digits.content}}
about |= {"method": "five PyTorch networks, folded", "metrics": scores}
back = bayesin.load_posterior(bayesin.save_posterior("posterior", folded.posterior, spec=spec, metadata=about))

# The mean, and networks drawn from it, go into PyTorch again.
drawn = [jax.tree.map(lambda leaf, i=i: leaf[i], back.sample(key, 8)) for i in range(8)]
chances, net, x = 0.0, network().eval(), torch.tensor(x_test)
with torch.no_grad():
    for weights in drawn:
        net.load_state_dict(models.to_torch(weights, net))
        chances = chances + net(x).softmax(1) / len(drawn)
right = chances.argmax(1) == torch.tensor(digits.y_test)
print(f"eight draws, in PyTorch: accuracy {right.float().mean():.3f}")
