"""What a run is: data, network, method, settings and key; its JSON, and the hash that names it.

A preset names settings as differences from the defaults:

`paper`      gradient descent 0.05 with momentum on the loss per example: the reading of the first paper's
             learning rates under which its barriers vanish. The stds stay near the 0.01 they start at.
`converged`  Adam 1e-3: the stds grow towards the prior's, most units are pruned, and a barrier stays.
`demo`       the digits of `bayesin demo`: small, quick, T = 0.1.

Prior variances are those of the first paper where it says them (MNIST MLP 0.01, CIFAR-10 MLP 0.0025, CIFAR-10
ResNet20 0.01); Fashion-MNIST is treated as MNIST, CIFAR-100 as CIFAR-10. Its epochs on CIFAR-10, its optimiser
and schedule are unknown: 100 epochs, momentum and cosine are ours. ResNet20 warms up and clips, without which
gradient descent at 0.05 can diverge, and so does the transformer.
"""

import dataclasses
import hashlib
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from ...data import Dataset, is_data_file
from ...errors import ArtifactError, ConfigError, did_you_mean
from ...inference import (
    HMC,
    SGMCMC,
    SWAG,
    VI,
    Ensemble,
    Laplace,
    fit_ensemble,
    fit_hmc,
    fit_laplace,
    fit_sgmcmc,
    fit_swag,
    fit_vi,
    identity_fields,
)
from ...inputs import shapes_of
from ...json_files import expect, json_text
from ...models import Model, build
from ...randomness import check_seed
from .own_model import is_address, own_model
from .run_data import RunData

Settings = VI | Ensemble | HMC | SWAG | Laplace | SGMCMC


class Method(NamedTuple):
    """How a run finds its posterior: the settings it takes, and the verb that takes them."""

    settings: type[Settings]
    fit: Any  # (key, model, data, settings, *, checkpoint, on_progress) -> Fit


METHODS = {
    "vi": Method(VI, fit_vi),
    "ensemble": Method(Ensemble, fit_ensemble),
    "hmc": Method(HMC, fit_hmc),
    "swag": Method(SWAG, fit_swag),
    "laplace": Method(Laplace, fit_laplace),
    "sgmcmc": Method(SGMCMC, fit_sgmcmc),
}

# How often and in how many files a run is saved; it decides nothing of the result, and is no part of the hash.
OPERATIONAL = ("checkpoint_epochs", "checkpoint_minutes", "draws_per_file")

PRESETS = {  # what follows from the optimiser
    "paper": {"optimiser": "sgd", "learning_rate": 0.05, "momentum": 0.9, "schedule": "cosine", "epochs": 100},
    "converged": {"optimiser": "adam", "learning_rate": 1e-3, "schedule": "cosine", "epochs": 100},
    # A ResNet20 wide enough to be accurate. Where there are 256 channels stds that start at 0.01 are a quarter of a
    # weight, and more after some decay: under `paper` such networks are at 79 % on test images of CIFAR-10, and
    # hardly above it on those of training. Of eight other settings (rates 0.1 and 0.2, variances 0.005 to 0.2, stds
    # from 0.003 to 0.01, 12 or 40 epochs: 54 to 85 %) this one was the best: 85 % of 2,000 unseen images, 40 epochs.
    "accurate": {
        "optimiser": "sgd",
        "learning_rate": 0.1,
        "momentum": 0.9,
        "schedule": "cosine",
        "epochs": 60,
        "initial_std": 0.003,
        "compute": "bfloat16",
    },
    "demo": {"temperature": 0.1, "prior_variance": 0.05, "learning_rate": 3e-3, "epochs": 150, "batch": 100},
}
_NETWORKS = {  # what follows from the network
    "mlp": {},
    "resnet20": {"warmup": 500, "clip": 5.0},
    "rnn": {"clip": 1.0},  # gradients through many steps can explode
    "lstm": {"clip": 1.0},
    "vit": {"warmup": 500, "clip": 1.0},
}
_PRIORS = {  # what follows from the data
    ("cifar10", "mlp"): {"prior_variance": 0.0025},
    ("cifar100", "mlp"): {"prior_variance": 0.0025},
    ("digits", "mlp"): {"prior_variance": 0.05, "batch": 100, "epochs": 150},
    ("digits", "resnet20"): {"batch": 100, "warmup": 100},
}


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides the result of a run."""

    data: str
    model: str
    training: Settings
    key: int = 0
    width: int | None = None  # None: the paper's
    depth: int = 3
    norm: str = "layernorm"
    limit: int | None = None  # examples of each of the training and the test set
    normalise: Literal["standard", "unit", "none"] = "standard"
    test_samples: int = 128  # weight samples of the final look at the test set
    data_content: str | None = None  # SHA-256; None: not looked at yet, or a run of version 0.1
    model_content: str | None = None  # SHA-256 of the text that a network of the user's own stands in

    def __post_init__(self):
        check_seed(self.key)
        for field in dataclasses.fields(self.training):
            value = getattr(self.training, field.name)
            if value is not None and not isinstance(value, str | int | float):
                raise ConfigError(
                    f"{field.name}={value!r:.60} is an object, and a run keeps its settings as names and numbers; "
                    f"fit it by {METHODS[self.method].fit.__name__} yourself"
                )

    @property
    def method(self) -> str:
        """The name of the method, as in `METHODS`."""
        return next(name for name, method in METHODS.items() if type(self.training) is method.settings)

    @property
    def about_data(self) -> RunData:
        """Which data it is trained on."""
        return RunData(self.data, self.data_content, self.limit, self.normalise)

    @property
    def network(self) -> tuple[Any, ...]:
        """What decides the network, which is everything but how it is trained and tested."""
        training = ("training", "key", "test_samples")
        return tuple(value for name, value in _shallow(self).items() if name not in training)

    @property
    def hash(self) -> str:
        """Ten digits that name the run; how often it is saved, or where a file of data lies, does not change them."""
        identity = _shallow(self) | {"method": self.method, "training": _decisive(self.training)}
        content, text = identity.pop("data_content"), identity.pop("model_content")
        if content is not None and is_data_file(self.data):  # the name of any other data set decides its content
            identity["data"] = content
        if text is not None:
            identity["model"] = text
        return hashlib.sha256(json_text(identity, canonical=True).encode()).hexdigest()[:10]

    @property
    def name(self) -> str:
        """A folder name: what a person wants to see, and the hash."""
        data = self.data.rsplit("/", 1)[-1].removesuffix(".npz")
        width = "" if self.width is None else str(self.width)
        return f"{data}-{_short(self.model)}{width}-{self.method}-{self.hash}"

    def to_json(self) -> dict[str, Any]:
        """The config as plain data; `from_json` reads it back."""
        network = {"depth": self.depth} if self.model in ("mlp", "vit") else {"norm": self.norm}
        network = network if self.model_content is None else {"content": self.model_content}
        width = {} if self.width is None else {"width": self.width}
        content = {} if self.data_content is None else {"content": self.data_content}
        return _FORMAT | {
            "hash": self.hash,
            "data": {"name": self.data, "limit": self.limit, "normalise": self.normalise} | content,
            "model": {"name": self.model} | width | network,
            "method": self.method,
            "training": identity_fields(self.training, leave_out=()),
            "key": self.key,
            "test_samples": self.test_samples,
        }

    @classmethod
    def from_json(cls, value: Any, what: str = "the config of this run") -> "RunConfig":
        """Reads what `to_json` wrote; `ArtifactError`, which starts with `what`, where it is something else."""
        expect(value, _SCHEMA, what)
        data, model, method = value["data"], value["model"], METHODS.get(value["method"])
        if method is None:
            raise ArtifactError(f"{what} names a method {value['method']!r:.40}, which is not known")
        try:
            return cls(
                data=data["name"],
                model=model["name"],
                training=method.settings(**value["training"]),
                key=value["key"],
                limit=data["limit"],
                normalise=data["normalise"],
                test_samples=value["test_samples"],
                data_content=data.get("content"),
                model_content=model.get("content"),
                **{name: model[name] for name in ("width", "depth", "norm") if name in model},
            )
        except (TypeError, ConfigError) as error:
            raise ArtifactError(f"{what} cannot be read: {error}") from None


_FORMAT = {"format": "bayesin-run", "version": 1}
_SCHEMA = _FORMAT | {
    "data": {"name": str, "limit": int | None, "normalise": str, "content?": str},
    "model": {"name": str, "width?": int | None, "depth?": int, "norm?": str, "content?": str},
    "method": str,
    "training": dict,
    "key": int,
    "test_samples": int,
}


def build_model(config: RunConfig, data: Dataset) -> Model:
    """The network of a run: built in and sized for its data, or the user's own."""
    if is_address(config.model):
        return own_model(config.model, shapes_of(data.x_train, 2), config.model_content, "this run")
    sizes = {"width": config.width, "depth": config.depth, "norm": config.norm}
    return build(config.model, data.input_shape, data.outputs, **sizes)


def make_training(method: str, fields: dict[str, Any]) -> Settings:
    """Settings of a method from field names; an unknown one is named with its nearest neighbour."""
    if method not in METHODS:
        raise ConfigError(f"there is no method '{method}'; choose one of {', '.join(METHODS)}")
    for name in fields:
        if name not in _settings_of(method):
            owner = next((other for other in METHODS if name in _settings_of(other)), None)
            hint = f"; it belongs to method '{owner}'" if owner else did_you_mean(name, _settings_of(method), 0.6)
            raise ConfigError(f"'{name}' is no setting of method '{method}'{hint}")
    return METHODS[method].settings(**fields)


def preset(name: str, data: str, model: str) -> dict[str, Any]:
    """Returns the fields in which a preset differs from the defaults; "width" and "depth" are the network's.

    Example:
        >>> preset("paper", "cifar10", "mlp")["prior_variance"]
        0.0025
        >>> preset("converged", "cifar10", "resnet20")["clip"]
        5.0
    """
    if name not in PRESETS:
        raise ConfigError(f"there is no preset '{name}'; choose {', '.join(PRESETS)}")
    if model not in _NETWORKS:
        raise ConfigError(f"preset '{name}' is for {' and '.join(_NETWORKS)}, not '{model}'; set the fields yourself")
    if name == "demo":
        if (data, model) != ("digits", "mlp"):
            raise ConfigError("preset 'demo' is for --data digits --model mlp; elsewhere use paper or converged")
        return {"width": 256, "depth": 2} | PRESETS[name]
    if name == "accurate":
        if model != "resnet20":
            raise ConfigError(
                f"preset 'accurate' is for --model resnet20, not '{model}'; elsewhere use paper or converged"
            )
        return {"width": 64} | PRESETS[name] | _NETWORKS[model]
    return PRESETS[name] | _NETWORKS[model] | _PRIORS.get((data, model), {})


def differences(first: RunConfig, second: RunConfig) -> list[str]:
    """In which settings two runs differ, as text: "epochs 100, not 200"."""
    left, right = (_shallow(c) | {"method": c.method} | _decisive(c.training) for c in (first, second))
    names = [name for name in left | right if name != "training" and left.get(name) != right.get(name)]
    return [f"{name} {left.get(name)!r}, not {right.get(name)!r}" for name in names]


def _short(model: str) -> str:
    """A model's name within the name of a folder: of an address the file and the attribute, without the way there."""
    return model.rsplit("/", 1)[-1].replace(".py:", "-").replace(":", "-")


def _settings_of(method: str) -> set[str]:
    return {field.name for field in dataclasses.fields(METHODS[method].settings)}


def _shallow(config: RunConfig) -> dict[str, Any]:
    return {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}


def _decisive(training: Settings) -> dict[str, Any]:
    """The settings that decide the result."""
    return identity_fields(training, OPERATIONAL)
