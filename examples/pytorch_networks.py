"""Two checkpoints of a PyTorch network: aligned, the barrier measured, the merged network loaded in PyTorch.

Needs `pip install 'bayesin[torch]'`. Nothing is transposed: parameters have the names of the state dict, images their
channels in front. BatchNorm's running statistics move with their channels, and are estimated anew for the merged one.
"""

import jax
import torch
from torch import nn

import bayesin
from bayesin import data, models

digits = data.load("digits")
x_train, x_test = (x.transpose(0, 3, 1, 2) for x in (digits.x_train, digits.x_test))  # NHWC to torch's NCHW


def network():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512, 10),
    )


def train(seed):
    torch.manual_seed(seed)
    net, x, y = network(), torch.tensor(x_train), torch.tensor(digits.y_train).long()
    optimiser = torch.optim.Adam(net.parameters(), 3e-3)
    for _ in range(20):
        for batch in torch.randperm(len(x)).split(100):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(x[batch]), y[batch]).backward()
            optimiser.step()
    return net


for seed in range(2):
    torch.save(train(seed).state_dict(), f"{seed}.pt")

# From here on it is what you do with checkpoints of your own.
first, second, merged = network(), network(), network()
first.load_state_dict(torch.load("0.pt"))
second.load_state_dict(torch.load("1.pt"))

key, test = jax.random.key(0), (x_test, digits.y_test)
model = models.from_torch(first, x_test[:2])
ends = [model.init(key), models.from_torch(second, x_test[:2]).init(key)]
spec = bayesin.discover(model.apply, ends[0], x_test[:2])
aligned = bayesin.align(*ends, spec, key=key, restarts=4, exclude=model.statistics, check=(model.apply, x_test))
for name, other in (("as trained", ends[1]), ("aligned", aligned.posterior)):
    path = bayesin.geodesic(ends[0], other)
    found = bayesin.barrier(path, model.apply, test, key=key, taus=11)
    print(f"{name}: barrier {found.value:.3f} nats, halfway {found.accuracy[5]:.1%}")
middle = bayesin.recalibrate(path(0.5), model, x_train, key=key, batch=100)
merged.load_state_dict(models.to_torch(middle.mean, merged))
torch.save(merged.state_dict(), "merged.pt")
with torch.no_grad():
    right = merged.eval()(torch.tensor(x_test)).argmax(1) == torch.tensor(digits.y_test)
print(f"merged, in PyTorch: {right.float().mean():.1%}")
