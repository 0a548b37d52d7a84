"""What a run is: data, network, method, settings and key; its JSON, and the hash that names it."""

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..data import Dataset
from ..errors import ArtifactError, ConfigError, did_you_mean
from ..inference import HMC, VI, Ensemble
from ..inference.training import OPERATIONAL
from ..models import Model, build

METHODS = {"vi": VI, "ensemble": Ensemble, "hmc": HMC}
Settings = VI | Ensemble | HMC


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
    normalise: Literal["standard", "unit"] = "standard"
    test_samples: int = 128  # weight samples of the final look at the test set

    @property
    def method(self) -> str:
        """vi, ensemble or hmc."""
        return next(name for name, kind in METHODS.items() if type(self.training) is kind)

    def to_json(self) -> dict[str, Any]:
        """The config as plain data; `from_json` reads it back."""
        network = {"depth": self.depth} if self.model == "mlp" else {"norm": self.norm}
        width = {} if self.width is None else {"width": self.width}
        return {
            "format": "bayesin-run",
            "version": 1,
            "hash": self.hash,
            "data": {"name": self.data, "limit": self.limit, "normalise": self.normalise},
            "model": {"name": self.model} | width | network,
            "method": self.method,
            "training": dataclasses.asdict(self.training),
            "key": self.key,
            "test_samples": self.test_samples,
        }

    @classmethod
    def from_json(cls, value: Any) -> "RunConfig":
        """Reads what `to_json` wrote; `ArtifactError` where it is something else."""
        if not isinstance(value, dict) or value.get("format") != "bayesin-run" or value.get("version") != 1:
            raise ArtifactError("this is not the config of a run")
        try:
            data, model, kind = value["data"], value["model"], METHODS[value["method"]]
            sizes = {name: model[name] for name in ("width", "depth", "norm") if name in model}
            config = cls(
                data=data["name"],
                model=model["name"],
                training=kind(**value["training"]),
                key=value["key"],
                limit=data["limit"],
                normalise=data["normalise"],
                test_samples=value["test_samples"],
                **sizes,
            )
        except KeyError as error:
            raise ArtifactError(f"the config of this run has no {error}, or not one that is known") from None
        except (TypeError, ConfigError) as error:
            raise ArtifactError(f"the config of this run cannot be read: {error}") from None
        for name, kinds in _KINDS.items():
            if type(getattr(config, name)) not in kinds:
                raise ArtifactError(f"the config of this run cannot be read: {name} is {getattr(config, name)!r:.40}")
        return config

    @property
    def hash(self) -> str:
        """Ten digits that name the run; how often it is saved does not change them."""
        plain = {name: getattr(self, name) for name in _FIELDS if name != "training"}
        plain |= {"method": self.method, "training": _decisive(self.training)}
        text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:10]

    @property
    def name(self) -> str:
        """A folder name: what a person wants to see, and the hash."""
        data = self.data.rsplit("/", 1)[-1].removesuffix(".npz")
        width = "" if self.width is None else str(self.width)
        return f"{data}-{self.model}{width}-{self.method}-{self.hash}"


_KINDS = {
    **{name: (str,) for name in ("data", "model", "norm", "normalise")},
    **{name: (int,) for name in ("key", "depth", "test_samples")},
    **{name: (int, type(None)) for name in ("width", "limit")},
}
_FIELDS = tuple(field.name for field in dataclasses.fields(RunConfig))


def build_model(config: RunConfig, data: Dataset) -> Model:
    """The network of a run, sized for its data."""
    outputs = data.classes or int(np.prod(data.y_train.shape[1:], dtype=np.int64))
    return build(config.model, data.input_shape, outputs, width=config.width, depth=config.depth, norm=config.norm)


def differences(first: RunConfig, second: RunConfig) -> list[str]:
    """In which settings two runs differ, as text: "epochs 100, not 200"."""
    left, right = _flat(first), _flat(second)
    return [f"{n} {left.get(n)!r}, not {right.get(n)!r}" for n in left | right if left.get(n) != right.get(n)]


def make_training(method: str, fields: dict[str, Any]) -> Settings:
    """Settings of a method from field names; an unknown one is named with its nearest neighbour."""
    if method not in METHODS:
        raise ConfigError(f"there is no method '{method}'; choose one of {', '.join(METHODS)}")
    known = {field.name for field in dataclasses.fields(METHODS[method])}
    for name in fields:
        if name not in known:
            owner = next(
                (m for m, kind in METHODS.items() if name in {f.name for f in dataclasses.fields(kind)}), None
            )
            hint = did_you_mean(name, known, 0.6) if owner is None else f"; it belongs to method '{owner}'"
            raise ConfigError(f"'{name}' is no setting of method '{method}'{hint}")
    return METHODS[method](**fields)


def _flat(config: RunConfig) -> dict[str, Any]:
    plain = {name: getattr(config, name) for name in _FIELDS if name != "training"} | {"method": config.method}
    return plain | _decisive(config.training)


def _decisive(training: Settings) -> dict[str, Any]:
    """The settings that decide the result; how often and in how many files it is saved does not."""
    operational = (*OPERATIONAL, "draws_per_file")
    return {name: value for name, value in dataclasses.asdict(training).items() if name not in operational}
