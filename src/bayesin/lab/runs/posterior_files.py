"""Posteriors by name: run folders or safetensors files, and the model and data that they belong to.

    RUN                       posterior-0.safetensors in a run folder
    RUN#1                     posterior-1.safetensors in it, or member 1 of its only sample set
    FILE.safetensors          a posterior
    FILE.safetensors#3        member 3 of a sample set

Model and data set come from the file's own metadata, else from the run's config.json, else from a `ModelChoice`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ...data import Dataset, Normalise, published_content
from ...errors import ArtifactError, ConfigError, DataError, did_you_mean
from ...file_sets import check_one_making
from ...inputs import Inputs, count_of, shapes_of, take
from ...jaxprs import activation_bytes, output_shapes
from ...json_files import expect, json_text, read_json
from ...likelihoods import Categorical, Likelihood, Normal
from ...models import Model, build, example_input
from ...posteriors import Samples
from ...store import Description, describe, load_posterior
from ...symmetry import PermutationSpec, discover, verify
from ...trees import Tree
from .own_model import is_address, own_model
from .run_data import RunData, load_run_data

GAUSSIANS = ("gaussian", "lowrank", "factor")  # kinds of files that hold one
TRIED = 64  # inputs on which a function is tried
SIZES = ("width", "depth", "norm")
_DATA = {"name?": str, "content?": str, "limit?": int | None, "normalise?": str}
EXAMPLES_BUDGET = 8 << 20  # bytes of the largest activation of all inputs that are made up
LARGEST_INPUT = 1 << 22  # numbers in one example; a file may promise any shape, and this one is allocated


@dataclass(frozen=True)
class ModelChoice:
    """The model and the data, for files that do not name them; what is given here wins."""

    model: str | None = None
    """mlp, resnet20, rnn or lstm, where the files do not say; or a network of your own, file.py:model."""
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
    normalise: Normalise | None = None
    """How --data are prepared: standard, unit or none; by default as the files say, and standard if they do not."""


@dataclass(frozen=True)
class SymmetryChoice(ModelChoice):
    """The same, and by what units may be moved."""

    spec: Path | None = None
    """Permutation spec (JSON); by default the one in the files, else it is discovered."""
    signs: bool = False
    """Let units also change their sign where the network allows it, as behind tanh and in attention."""


@dataclass(frozen=True)
class PosteriorFile:
    """A file that holds a posterior or a set of samples; its header is read, its arrays are not."""

    text: str  # as it was named, such as "runs/digits#1"
    path: Path
    member: int | None  # of a sample set
    description: Description
    metadata: dict[str, Any]  # the file's own, completed from the run's config

    @property
    def about_model(self) -> dict[str, Any]:
        """Name and sizes of the model, as far as the file tells."""
        return _named(self.metadata.get("model"))

    @property
    def about_data(self) -> dict[str, Any]:
        """Name and options of the data set, as far as the file tells."""
        return _named(self.metadata.get("data"))

    @property
    def run_data(self) -> RunData | None:
        """The data that the posterior was trained on, as far as the file tells.

        Raises:
            ArtifactError: it says something that no data set can be.
        """
        about = expect(self.about_data, _DATA, f"{self.path}, or config.json beside it")
        known = {field: about[field] for field in ("content", "limit", "normalise") if field in about}
        return RunData(about["name"], **known) if "name" in about else None

    @property
    def model_words(self) -> str:
        """The model for people: name, then sizes."""
        hidden = ("input_shape", "classes", "content")
        about = {name: value for name, value in self.about_model.items() if name not in hidden}
        return ", ".join(str(value) if name == "name" else f"{name} {value}" for name, value in about.items())

    @property
    def prior_variance(self) -> float | None:
        """Of the run that the file belongs to, where that says it."""
        config = self.path.parent / "config.json"
        content = read_json(config) if config.is_file() else None
        training = content.get("training") if isinstance(content, dict) else None
        variance = training.get("prior_variance") if isinstance(training, dict) else None
        return float(variance) if isinstance(variance, int | float) and variance > 0 else None


def find_posterior(text: str) -> PosteriorFile:
    """Finds the file that `text` names and reads its header.

    Raises:
        ConfigError: no such folder, file or member.
        ArtifactError: a file that is damaged or holds no posterior.
    """
    base, _, number = text.rpartition("#") if "#" in text and not Path(text).exists() else (text, "", "")
    if number and not number.isdecimal():
        raise ConfigError(f"'{text}': after # comes the number of a member, such as {base}#1")
    path, member = Path(base), int(number) if number else None
    if path.is_dir():
        check_one_making(path)
        path, member = _in_folder(path, member)
    elif not path.exists():
        raise ConfigError(f"there is no run folder or file '{base}'{_suggestion(path)}")
    description = describe(path)
    if description.kind == "alignment":
        raise ArtifactError(f"{path} is an alignment; give the posterior beside it")
    if member is not None and description.kind != "samples":
        raise ConfigError(f"'{text}': {path.name} holds one posterior, so there is no member {member}")
    return PosteriorFile(text, path, member, description, _metadata(path, description))


def read_posterior(file: PosteriorFile, model: Model | None) -> Any:
    """Reads the posterior; a sample set gives its chosen member. A file of another model is refused."""
    like = None if model is None else output_shapes(model.init, jax.random.key(0))
    posterior = load_posterior(file.path, like=like, about=file.description)
    if not isinstance(posterior, Samples):
        return posterior
    if file.member is None:
        raise ConfigError(
            f"{file.path} holds {len(posterior)} samples: pick one as '{file.text}#0', "
            "or fold them into one posterior with 'bayesin compact'"
        )
    if file.member >= len(posterior):
        raise ConfigError(f"'{file.text}': members are numbered 0 to {len(posterior) - 1}")
    return posterior[file.member]


def likelihood_of_file(file: PosteriorFile, data: Dataset) -> Likelihood:
    """The likelihood that a posterior was fitted with: categorical for classes, else normal with the noise it names.

    Raises:
        ConfigError: real targets, and the file does not say how large the noise is.
    """
    if data.classes is not None:
        return Categorical()
    noise = file.metadata.get("noise")
    if not isinstance(noise, int | float) or not noise > 0:
        raise ConfigError(f"{file.path} does not say the noise of its targets (metadata 'noise'); fit it again")
    return Normal(float(noise))


def foldable_files(file: PosteriorFile) -> list[Path]:
    """The files that `read_foldable` reads: all Gaussians of a run, else the one."""
    if file.description.kind in GAUSSIANS and "#" not in file.text and file.path.name == "posterior-0.safetensors":
        count = len(list(file.path.parent.glob("posterior-*.safetensors")))
        return [file.path.with_name(f"posterior-{number}.safetensors") for number in range(count)]
    return [file.path]


def read_foldable(file: PosteriorFile, model: Model | None) -> Samples | list[Any]:
    """Reads what `compact` folds: a set of samples, or all Gaussians of a run. A file of another model is refused."""
    like = None if model is None else output_shapes(model.init, jax.random.key(0))
    if len(paths := foldable_files(file)) > 1:
        return [load_posterior(path, like=like) for path in paths]
    samples = load_posterior(file.path, like=like, about=file.description)
    if not isinstance(samples, Samples) or file.member is not None:
        raise ConfigError(
            f"{file.text} is one posterior; compact folds many: an ensemble, an HMC run, a stack, several members"
        )
    return samples


def verified_spec(
    file: PosteriorFile, model: Model | None, data: Dataset | None, params: Tree, choice: SymmetryChoice
) -> tuple[PermutationSpec, str]:
    """The spec that was chosen, or that of a file, else what is discovered; verified where the model is known."""
    known = spec_of(file, path=choice.spec, signs=choice.signs)
    origin = "from the file" if choice.spec is None else f"from {choice.spec}"
    inputs = example_inputs(data, TRIED, model, file) if model is not None else None
    if model is None or inputs is None:
        if known is not None:
            return known, origin
        raise ConfigError("the file holds no permutation spec, and nothing names the model to find it; use --model")
    spec = discover_and_verify(model, params, inputs[0], known, choice.signs)  # a file may say anything
    return spec, f"{'discovered' if known is None else origin} and verified"


def discover_and_verify(
    model: Model, params: Tree, inputs: Inputs, known: PermutationSpec | None = None, signs: bool = False
) -> PermutationSpec:
    """Returns the symmetry of a network, verified; it is discovered unless it is `known`.

    Both take two inputs, of which the shape is what counts.
    """
    two = take(inputs, slice(2))
    spec = discover(model, params, two, signs=signs) if known is None else known
    verify(model.apply, params, two, spec, key=jax.random.key(0))
    return spec


def dataset_of(choice: ModelChoice, *files: PosteriorFile, needed: bool = True) -> Dataset | None:
    """Loads the data set that the choice or the files name; None where nothing names one.

    Unless `needed`, also None where it is not on this machine but a file describes the model in full without it.
    """
    named = {file.run_data.identity: file for file in files if file.run_data is not None}
    if choice.data is None and len(named) > 1:
        names = " and ".join(str(file.run_data) for file in named.values() if file.run_data)
        raise ConfigError(f"the posteriors were trained on different data ({names}); --data says which to use")
    file = next(iter(named.values()), None)
    about = None if file is None else file.run_data
    if choice.data is not None:  # wherever they lie, they are prepared as those that the files were trained on
        about = RunData(choice.data) if about is None else RunData(choice.data, normalise=about.normalise)
    if about is None:
        return None
    if choice.normalise is not None:
        about = replace(about, normalise=choice.normalise)
    if choice.limit is not None:
        about = replace(about, limit=choice.limit)
    own = {} if file is None or choice.data is not None else {"of": file.text, "folder": file.path.parent}
    try:
        return load_run_data(about, choice.root, **own)
    except DataError:
        if needed or choice.data is not None or not any(file.about_model.get("input_shape") for file in files):
            raise
        return None


def doubts_about_data(data: Dataset | None, *files: PosteriorFile) -> str | None:
    """What a person should know who measures on these data; None where they are what the files were trained on."""
    for file in files:
        about = file.run_data
        if about is None or data is None:
            continue
        if about.unchecked:
            return f"{file.text} is of a version that kept no content of its data; {data.name} cannot be checked"
        if data.content not in (about.content, published_content(about.name)):
            return f"{data.name} is not what {file.text} was trained on ({about.name})"
    return None


def model_of(choice: ModelChoice, data: Dataset | None, *files: PosteriorFile) -> Model | None:
    """Builds the model that the choice or the files name; None where nothing names one."""
    named = {_model_identity(file.about_model): file.about_model for file in files if file.about_model}
    if len(named) > 1:
        models = " and ".join(f"{model:.200}" for model in named)
        raise ConfigError(f"the posteriors are of different models: {models}")
    about: Mapping[str, Any] = next(iter(named.values()), {})
    name = choice.model or about.get("name")
    if name is None:
        return None
    if is_address(name):
        return _own_model(choice, about, data, files)
    shape = about.get("input_shape") or (data.input_shape if data is not None else None)
    classes = about.get("classes") or (data.outputs if data is not None else None)
    if shape is None or classes is None:
        raise ConfigError(f"the sizes of '{name}' follow from its data, which nothing names; use --data")
    chosen = {key: getattr(choice, key) if getattr(choice, key) is not None else about.get(key) for key in SIZES}
    options = {key: value for key, value in chosen.items() if value is not None}
    _check_depth(options.get("depth"), files)
    return build(name, _shape(shape), classes, **options)


def _own_model(
    choice: ModelChoice, about: Mapping[str, Any], data: Dataset | None, files: tuple[PosteriorFile, ...]
) -> Model:
    """A network of the user's own, which is run where the user names it and its text is what was trained."""
    if choice.model is None:
        raise ConfigError(
            f"{files[0].text} is of a network of your own, {about['name']}, which is code that is run only where you "
            f"name it: --model {about['name']}"
        )
    if data is None and not about.get("input_shape"):
        raise ConfigError(f"nothing says what {choice.model} takes in; use --data")
    example = example_input(_shape(about["input_shape"])) if data is None else shapes_of(data.x_test, 2)
    known = about.get("content") if is_address(str(about.get("name", ""))) else None
    return own_model(choice.model, example, known, files[0].text if files else "the posterior")


def _model_identity(about: Mapping[str, Any]) -> str:
    """What tells models apart: of one's own the text, wherever it lies."""
    known = {key: value for key, value in about.items() if key != "name" or "content" not in about}
    return json_text(known, canonical=True)


def spec_of(*files: PosteriorFile, path: Path | None = None, signs: bool = False) -> PermutationSpec | None:
    """The spec in the file at `path`, else the one that the posteriors' files hold; None where there is none.

    With `signs`, one without them in the posteriors' files counts as none: it is discovered anew.

    Raises:
        ConfigError: the files have different ones, or the one at `path` lacks the signs that were asked for.
    """
    if path is not None:
        known = PermutationSpec.load(path)
        if signs and not known.signed:
            raise ConfigError(f"--signs: no unit of {path} may change its sign; write ± into it, or leave --spec out")
        return known
    specs = [file.description.spec for file in files if file.description.spec is not None]
    if len(set(specs)) > 1:
        raise ConfigError("the two files hold different permutation specs; --spec FILE says which to use")
    return specs[0] if specs and (specs[0].signed or not signs) else None


def example_inputs(
    data: Dataset | None, count: int, model: Model, *files: PosteriorFile
) -> tuple[Inputs, str] | None:
    """A batch to try the function on, and what it is: test examples, else random numbers of the right shape.

    A file may promise any shape, so that there are as many random ones as the network computes in little memory.

    Raises:
        ConfigError: it takes much memory for two.
    """
    if data is not None:
        return take(data.x_test, slice(count)), f"{min(count, count_of(data.x_test))} test examples"
    for file in files:
        if file.about_model.get("input_shape"):
            shape = _shape(file.about_model["input_shape"])
            count = min(count, _affordable(model, shape, file))
            inputs = np.random.default_rng(0).normal(size=(count, *shape)).astype(np.float32)
            return inputs, f"{count} random inputs"
    return None


def _affordable(model: Model, shape: tuple[int, ...], file: PosteriorFile) -> int:
    params = output_shapes(model.init, jax.random.key(0))
    example = np.broadcast_to(np.float32(0), (1, *shape))  # takes no memory
    cost = activation_bytes(model.apply, params, example)
    if 2 * cost > EXAMPLES_BUDGET:
        raise ConfigError(
            f"{file.path} promises inputs of shape {list(shape)}, for which one activation of its network takes "
            f"{cost:,} bytes; --data names what it was trained on"
        )
    return EXAMPLES_BUDGET // cost


def _named(about: Any) -> dict[str, Any]:
    """What metadata say of a model or a data set: a name alone, or a name with options."""
    return {"name": about} if isinstance(about, str) else dict(about) if isinstance(about, dict) else {}


def _suggestion(path: Path) -> str:
    """The nearest name in the same folder; else what makes a run."""
    try:
        names = [other.name for other in path.parent.iterdir()]
    except OSError:
        names = []
    return did_you_mean(path.name, names) or "; 'bayesin train --out FOLDER' makes one"


def _in_folder(folder: Path, member: int | None) -> tuple[Path, int | None]:
    path, first = (folder / f"posterior-{number}.safetensors" for number in (member or 0, 0))
    only = first.exists() and not (folder / "posterior-1.safetensors").exists()
    if member is not None and only and describe(first).kind == "samples":
        return first, member
    if path.exists():
        return path, None
    others = sorted(file.name for file in folder.glob("*.safetensors"))
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


def _check_depth(depth: Any, files: tuple[PosteriorFile, ...]) -> None:
    """A file may claim any depth, and a network of a million layers takes for ever to build."""
    arrays = max((len(file.description.tensors) for file in files), default=0)
    if files and isinstance(depth, int) and depth > arrays:
        raise ConfigError(f"a network of depth {depth:,} has more than the {arrays:,} arrays of {files[0].path}")


def _shape(shape: Any) -> tuple[int, ...]:
    whole = isinstance(shape, list | tuple) and all(type(size) is int and size > 0 for size in shape)
    if not whole or math.prod(shape) > LARGEST_INPUT:
        raise ConfigError(f"an input shape is a list of whole numbers, {LARGEST_INPUT:,} in all, not {shape!r:.80}")
    return tuple(shape)
