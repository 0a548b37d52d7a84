"""Two checkpoints that another program wrote, as a pair: arrays by name, for a model by its address.

    NAME.safetensors     as `safetensors.numpy.save_file` and its like write it
    NAME.npz             as `numpy.savez` writes it

A name is the path of a parameter as `model.init` has it, with `/` or `.` between its parts. Nothing is unpickled.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ...data import Dataset, npz_shapes, read_npz
from ...errors import ArtifactError, ConfigError, did_you_mean, first_line
from ...file_arrays import SteadyFile
from ...files import open_file
from ...inputs import take
from ...jaxprs import output_shapes
from ...store import describe, library_open
from ...trees import Tree, flatten, is_float, unflatten
from .own_model import own_model
from .pairs import PosteriorPair
from .posterior_files import discover_and_verify

COUNTER = "num_batches_tracked"  # of PyTorch's batch normalisation, in every state dict; no output depends on it
PICKLED = (".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".bin")
WANTED = "a checkpoint is one .safetensors or .npz file of arrays by parameter name"


def load_own_pair(
    first: Path | str, second: Path | str, address: str, data: Dataset, signs: bool = False
) -> PosteriorPair:
    """Reads two checkpoints of the model at an address, and finds and verifies its symmetry.

    Raises:
        ModelError: there is no such model, or it does not take these inputs.
        ArtifactError: a file that cannot be read, or holds other arrays than the model has.
        SymmetryError: what was discovered is no symmetry after all.
    """
    model = own_model(address, take(data.x_test, slice(2)), None, str(first))
    like = output_shapes(model.init, jax.random.key(0))
    target, source = (read_checkpoint(path, like) for path in (first, second))
    spec = discover_and_verify(model, target, data.x_test, signs=signs)
    return PosteriorPair(target, source, spec, model, data.x_test, data=data)


def is_own_checkpoint(text: str) -> bool:
    """Whether this names a file that bayesin has not written."""
    if not Path(text).is_file():
        return False
    try:
        describe(text)
    except ArtifactError:
        return True
    return False


def read_checkpoint(path: Path | str, like: Tree) -> Tree:
    """Reads the arrays of a checkpoint into a tree like the given one; refuses what is missing, unknown or misshapen.

    Raises:
        ArtifactError: names the file and the first parameter that does not fit.
    """
    path, wanted = Path(path), flatten(like)
    if path.is_dir():
        raise ArtifactError(f"{path} is a folder without posteriors; {WANTED}")
    if not path.is_file():
        raise ConfigError(f"there is no file '{path}'")
    if path.suffix in PICKLED:
        raise ArtifactError(
            f"{path} is pickled, which may run code; {WANTED}, as safetensors.torch.save_file makes it"
        )
    try:
        arrays, names = _read_npz(path, wanted) if path.suffix == ".npz" else _read_safetensors(path, wanted)
    except ArtifactError:
        raise
    except Exception as error:  # of two libraries, for files that may hold anything
        raise ArtifactError(f"{path} cannot be read as safetensors or npz: {first_line(error)}") from error
    return unflatten(
        {place: _as(arrays[names[place]], leaf.dtype, f"{path}: '{place}'") for place, leaf in wanted.items()}
    )


# Names are compared before anything is read: a small file may promise gigabytes.


def _read_npz(path: Path, wanted: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    names = _names(path, npz_shapes(path), wanted)
    arrays = read_npz(path, names=None)
    if _names(path, {name: array.shape for name, array in arrays.items()}, wanted) != names:
        raise ArtifactError(f"{path} was changed while it was read; run the same command again")
    return arrays, names


def _read_safetensors(path: Path, wanted: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    with open_file(path) as file:
        steady = SteadyFile(path, file)
        with library_open(path, file) as opened:
            shapes = {name: tuple(opened.get_slice(name).get_shape()) for name in opened.offset_keys()}
            names = _names(path, shapes, wanted)
            arrays = {name: opened.get_tensor(name) for name in names.values()}
        steady.check()  # such files have no checksum
    return arrays, names


def _names(path: Path, shapes: Mapping[str, tuple[int, ...]], wanted: Mapping[str, Any]) -> dict[str, str]:
    """The name in the file of every parameter; refuses what is missing, unknown, misshapen or there twice."""
    named: dict[str, str] = {}
    for name in shapes:
        place = name if name in wanted else name.replace(".", "/")
        if place not in wanted and place.endswith(COUNTER) and shapes[name] == ():
            continue
        if place in named:
            raise ArtifactError(f"{path} holds '{place}' twice, under two spellings of its name")
        named[place] = name
    for name in wanted.keys() - named.keys():
        raise ArtifactError(f"{path} has no '{name}', which the model needs{did_you_mean(name, shapes)}")
    for name in named.keys() - wanted.keys():
        raise ArtifactError(f"{path} holds '{name}', which the model does not have{did_you_mean(name, wanted)}")
    for name, leaf in wanted.items():
        if (shape := shapes[named[name]]) != leaf.shape:
            raise ArtifactError(f"{path}: '{name}' has shape {shape}, in the model {tuple(leaf.shape)}")
    return named


def _as(value: np.ndarray, dtype: Any, what: str) -> np.ndarray:
    """The array in the precision of the model; refused where that would be another number."""
    if np.iscomplexobj(value) or is_float(value.dtype) != is_float(dtype):
        raise ArtifactError(f"{what} holds {value.dtype}, the model {np.dtype(dtype)}")
    with np.errstate(over="ignore", invalid="ignore"):
        found = value.astype(dtype)
    same = np.isfinite(found) == np.isfinite(value) if is_float(dtype) else found == value
    if not np.all(same):
        raise ArtifactError(f"{what} holds numbers beyond {np.dtype(dtype)}, which the model has")
    return found
