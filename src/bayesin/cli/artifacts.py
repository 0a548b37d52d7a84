"""What `align` and `barrier` are given: run folders or safetensors files, and the model and data they name.

    RUN                       posterior-0.safetensors in a run folder
    RUN#1                     posterior-1.safetensors in it, or member 1 of its sample set
    FILE.safetensors          a posterior
    FILE.safetensors#3        member 3 of a sample set

Model and data set come from the file's own metadata, else from the run's config.json, else from flags.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..data import Dataset, load
from ..errors import ArtifactError, ConfigError, did_you_mean
from ..files import read_json
from ..models import Model, build
from ..posteriors import Samples
from ..store import Description, describe, load_posterior
from ..symmetry import PermutationSpec
from .main import Common


@dataclass(frozen=True)
class WithModel(Common):
    """Flags that name a model and its data, for files that do not."""

    model: str | None = None
    """mlp or resnet20, where the files do not say."""
    width: int | None = None
    """Units of a hidden layer, or channels of the first stage."""
    depth: int | None = None
    """Hidden layers of an mlp."""
    norm: str | None = None
    """Normalisation of resnet20: layernorm or frn."""
    data: str | None = None
    """Data set, where the files do not say: digits, mnist, fashion-mnist, cifar10, cifar100, or an .npz file."""
    root: Path | None = None
    """Folder to look for data in first."""
    limit: int | None = None
    """Use so many examples of each of the training and the test set."""


@dataclass(frozen=True)
class Given:
    """One posterior of the command line."""

    text: str  # as typed
    path: Path
    member: int | None  # of a sample set
    description: Description
    metadata: dict[str, Any]  # the file's own, completed from the run's config

    @property
    def about_model(self) -> dict[str, Any]:
        """Name and sizes of the model, as far as the file tells."""
        found = self.metadata.get("model")
        return {"name": found} if isinstance(found, str) else dict(found) if isinstance(found, dict) else {}

    @property
    def model_words(self) -> str:
        """The same in words for people: name, then sizes."""
        about = {name: value for name, value in self.about_model.items() if name not in ("input_shape", "classes")}
        return ", ".join(str(value) if name == "name" else f"{name} {value}" for name, value in about.items())

    @property
    def about_data(self) -> dict[str, Any]:
        """Name and options of the data set, as far as the file tells."""
        found = self.metadata.get("data")
        return {"name": found} if isinstance(found, str) else dict(found) if isinstance(found, dict) else {}


def find(text: str) -> Given:
    """Finds the file that an argument names and reads its header."""
    base, _, number = text.rpartition("#") if "#" in text and not Path(text).exists() else (text, "", "")
    if number and not number.isdecimal():
        raise ConfigError(f"'{text}': after # comes the number of a member, such as {base}#1")
    path, member = Path(base), int(number) if number else None
    if path.is_dir():
        path, member = _in_folder(path, member)
    elif not path.exists():
        raise ConfigError(f"there is no run folder or file '{base}'{_beside(path)}")
    description = describe(path)
    if description.kind == "alignment":
        raise ArtifactError(f"{path} is an alignment; give the posterior beside it")
    if member is not None and description.kind != "samples":
        raise ConfigError(f"'{text}': {path.name} holds one posterior, so there is no member {member}")
    return Given(text, path, member, description, _metadata(path, description))


def read(given: Given, model: Model | None) -> Any:
    """Reads the posterior; a sample set gives its chosen member. A file of another model is refused."""
    like = None if model is None else jax.eval_shape(model.init, jax.random.key(0))
    posterior = load_posterior(given.path, like=like)
    if not isinstance(posterior, Samples):
        return posterior
    if given.member is None:
        raise ConfigError(
            f"{given.path} holds {len(posterior)} samples: pick one as '{given.text}#0', "
            "or fold them into one posterior with 'bayesin compact'"
        )
    if given.member >= len(posterior):
        raise ConfigError(f"'{given.text}': members are numbered 0 to {len(posterior) - 1}")
    return posterior[given.member]


def dataset_of(flags: WithModel, *given: Given) -> Dataset | None:
    """Loads the data set that the flags or the files name; None where nothing names one."""
    named = {json.dumps(one.about_data, sort_keys=True): one.about_data for one in given if one.about_data}
    if flags.data is None and len(named) > 1:
        names = " and ".join(str(about.get("name")) for about in named.values())
        raise ConfigError(f"the posteriors were trained on different data ({names}); --data says which to use")
    about: dict[str, Any] = {"name": flags.data} if flags.data is not None else next(iter(named.values()), {})
    if not isinstance(about.get("name"), str):
        return None
    limit = flags.limit if flags.limit is not None else about.get("limit")
    return load(about["name"], flags.root, limit, normalise=about.get("normalise", "standard"))


def model_of(flags: WithModel, data: Dataset | None, *given: Given) -> Model | None:
    """Builds the model that the flags or the files name; None where nothing names one."""
    named = {json.dumps(one.about_model, sort_keys=True): one.about_model for one in given if one.about_model}
    if len(named) > 1:
        raise ConfigError(f"the posteriors are of different models: {' and '.join(named)}")
    about: Mapping[str, Any] = next(iter(named.values()), {})
    name = flags.model or about.get("name")
    if name is None:
        return None
    shape = about.get("input_shape") or (data.input_shape if data is not None else None)
    classes = about.get("classes") or (_outputs(data) if data is not None else None)
    if shape is None or classes is None:
        raise ConfigError(f"the sizes of '{name}' follow from its data, which nothing names; use --data")
    chosen = {key: getattr(flags, key) if getattr(flags, key) is not None else about.get(key) for key in SIZES}
    options = {key: value for key, value in chosen.items() if value is not None}
    _check_depth(options.get("depth"), given)
    return build(name, _shape(shape), classes, **options)


SIZES = ("width", "depth", "norm")
LARGEST_INPUT = 1 << 22  # numbers in one example, since a file may promise any


def spec_of(*given: Given, path: Path | None = None) -> PermutationSpec | None:
    """The spec of a file named by a flag, else of the posteriors' files; None where there is none."""
    if path is not None:
        return PermutationSpec.from_json(read_json(path))
    specs = [one.description.spec for one in given if one.description.spec is not None]
    if len(set(specs)) > 1:
        raise ConfigError("the two files hold different permutation specs; --spec FILE says which to use")
    return specs[0] if specs else None


def example_inputs(data: Dataset | None, count: int, *given: Given) -> tuple[np.ndarray, str] | None:
    """A batch to try the function on, and what it is: test examples, else random numbers of the right shape."""
    if data is not None:
        return data.x_test[:count], f"{min(count, len(data.x_test))} test examples"
    for one in given:
        if one.about_model.get("input_shape"):
            shape = (count, *_shape(one.about_model["input_shape"]))
            return np.random.default_rng(0).normal(size=shape).astype(np.float32), f"{count} random inputs"
    return None


def _beside(path: Path) -> str:
    """The nearest name in the same folder, as a suggestion; else what makes a run."""
    try:
        names = [other.name for other in path.parent.iterdir()]
    except OSError:
        names = []
    close = did_you_mean(path.name, names)
    return close or "; 'bayesin train --out FOLDER' makes one"


def _in_folder(folder: Path, member: int | None) -> tuple[Path, int | None]:
    path = folder / f"posterior-{member or 0}.safetensors"
    if path.exists():
        return path, None
    first = folder / "posterior-0.safetensors"
    if member is not None and first.exists() and describe(first).kind == "samples":
        return first, member
    others = sorted(one.name for one in folder.glob("*.safetensors"))
    hint = f"; it has {', '.join(others[:6])}" if others else "; is it a run that has not finished?"
    raise ConfigError(f"{folder} has no {path.name}{hint}")


def _metadata(path: Path, description: Description) -> dict[str, Any]:
    metadata, config = dict(description.metadata), path.parent / "config.json"
    if {"model", "data"} <= set(metadata) or not config.is_file():
        return metadata
    content = read_json(config)
    if isinstance(content, dict):
        metadata = {key: content[key] for key in ("model", "data") if key in content} | metadata
    return metadata


def _check_depth(depth: Any, given: tuple[Given, ...]) -> None:
    """A file may claim any depth, and a network of a million layers takes for ever to build."""
    arrays = max((len(one.description.tensors) for one in given), default=0)
    if given and isinstance(depth, int) and depth > arrays:
        raise ConfigError(f"a network of depth {depth:,} has more than the {arrays:,} arrays of {given[0].path}")


def _shape(shape: Any) -> tuple[int, ...]:
    whole = isinstance(shape, list | tuple) and all(type(size) is int and size > 0 for size in shape)
    if not whole or math.prod(shape) > LARGEST_INPUT:
        raise ConfigError(f"an input shape is a list of whole numbers, {LARGEST_INPUT:,} in all, not {shape!r:.80}")
    return tuple(shape)


def _outputs(data: Dataset) -> int:
    return data.classes if data.classes is not None else int(np.prod(data.y_train.shape[1:], dtype=np.int64))
