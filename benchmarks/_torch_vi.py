"""Plain PyTorch weight-space variational inference: what one would write without a library, and the bar to clear."""

import math
from itertools import pairwise

import torch


def make_step(
    sizes: list[int], x, y, batch: int, *, prior_variance: float = 0.01, rate: float = 1e-3, threads: int = 2
):
    """Returns a function that does one step of Adam on the ELBO per example and returns the loss."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    x, y = torch.as_tensor(x), torch.as_tensor(y, dtype=torch.long)
    means, rhos = [], []
    for before, after in pairwise(sizes):
        for shape, scale in (((after, before), math.sqrt(2 / before)), ((after,), 0.0)):
            means.append((scale * torch.randn(shape)).requires_grad_())
            rhos.append(torch.full(shape, math.log(math.expm1(0.01))).requires_grad_())
    optimiser = torch.optim.Adam([*means, *rhos], lr=rate)
    examples = len(x)

    def step() -> float:
        index = torch.randint(examples, (batch,))
        hidden, kl = x[index], 0.0
        stds = [torch.nn.functional.softplus(rho) for rho in rhos]
        for mean, std in zip(means, stds, strict=True):
            ratio = std.square() / prior_variance
            kl = kl + 0.5 * (ratio - 1 - ratio.log() + mean.square() / prior_variance).sum()
        drawn = [mean + std * torch.randn_like(std) for mean, std in zip(means, stds, strict=True)]
        for number in range(0, len(drawn), 2):
            hidden = torch.nn.functional.linear(hidden, drawn[number], drawn[number + 1])
            hidden = torch.relu(hidden) if number + 2 < len(drawn) else hidden
        loss = torch.nn.functional.cross_entropy(hidden, y[index]) + kl / examples
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        return float(loss.detach())

    return step
