"""Named settings as differences from the defaults.

`paper`      gradient descent 0.05 with momentum on the loss per example: the reading of the first paper's
             learning rates under which its barriers vanish. The stds stay near the 0.01 they start at.
`converged`  Adam 1e-3: the stds grow towards the prior's, most units are pruned, and a barrier stays.
`demo`       the digits of `bayesin demo`: small, quick, T = 0.1.

Prior variances are those of the first paper where it says them (MNIST MLP 0.01, CIFAR-10 MLP 0.0025, CIFAR-10
ResNet20 0.01); Fashion-MNIST is treated as MNIST, CIFAR-100 as CIFAR-10. Its epochs on CIFAR-10, its optimiser
and schedule are unknown: 100 epochs, momentum and cosine are ours. ResNet20 warms up and clips, without which
gradient descent at 0.05 can diverge.
"""

from typing import Any

from ..errors import ConfigError

_RULES = {  # what follows from the optimiser
    "paper": {"optimiser": "sgd", "learning_rate": 0.05, "momentum": 0.9, "schedule": "cosine", "epochs": 100},
    "converged": {"optimiser": "adam", "learning_rate": 1e-3, "schedule": "cosine", "epochs": 100},
}
_NETWORKS = {  # what follows from the network
    "mlp": {},
    "resnet20": {"warmup": 500, "clip": 5.0},
}
_PRIORS = {  # what follows from the data
    ("cifar10", "mlp"): {"prior_variance": 0.0025},
    ("cifar100", "mlp"): {"prior_variance": 0.0025},
    ("digits", "mlp"): {"prior_variance": 0.05, "batch": 100, "epochs": 150},
    ("digits", "resnet20"): {"batch": 100, "warmup": 100},
}
_DEMO = {"temperature": 0.1, "prior_variance": 0.05, "learning_rate": 3e-3, "epochs": 150, "batch": 100}
_DEMO_NETWORK = {"width": 256, "depth": 2}

NAMES = (*_RULES, "demo")


def preset(name: str, data: str, model: str) -> dict[str, Any]:
    """Returns the fields in which a preset differs from the defaults; "width" and "depth" are the network's.

    Example:
        >>> preset("paper", "cifar10", "mlp")["prior_variance"]
        0.0025
        >>> preset("converged", "cifar10", "resnet20")["clip"]
        5.0
    """
    if name not in NAMES:
        raise ConfigError(f"there is no preset '{name}'; choose {', '.join(NAMES)}")
    if model not in _NETWORKS:
        raise ConfigError(f"preset '{name}' is for {' and '.join(_NETWORKS)}, not '{model}'; set the fields yourself")
    if name == "demo":
        if (data, model) != ("digits", "mlp"):
            raise ConfigError("preset 'demo' is for --data digits --model mlp; elsewhere use paper or converged")
        return _DEMO_NETWORK | _DEMO
    return _RULES[name] | _NETWORKS[model] | _PRIORS.get((data, model), {})
