"""Posteriors and alignments as files: safetensors with a JSON header, whole or absent, checked on reading.

A posterior is one file of flat arrays: `mean/<path>` and `std/<path>` of a Gaussian, `mean/<path>` and
`factors/<path>` of a low-rank one (leading axis: the factors; with `noise/<path>` where it has a diagonal part too),
`means/<path>` and `stds/<path>` of a mixture (leading axis: its components), or `params/<path>` of a sample set
(leading axis: the samples) or of a point. The header's metadata are strings: `format`, `version`, `kind`, `checksum`,
and the JSON texts `spec`, `metadata` (model description, data set, whatever the writer adds) and, of a mixture,
`weights`. No code is stored and none is run. Any safetensors reader opens it:

    from safetensors.numpy import load_file
    arrays = load_file("posterior-0.safetensors")      # {"mean/dense/kernel": array, "std/dense/kernel": ...}

A posterior may also be a folder: `posterior-0.safetensors` and a card, `README.md`, that says what it is (`card.py`).

Leaves come back bit for bit, as numpy arrays in nested dicts.
"""

import itertools
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import ArtifactError, BayesinError, ModelError, PosteriorError, SpecError, first_line
from ..file_sets import check_one_making, replaced_together
from ..files import file_hash, read_bytes, write_bytes
from ..json_files import json_text, parse_json
from ..posteriors import (
    FactorGaussian,
    Gaussian,
    GaussianMixture,
    LowRankGaussian,
    Posterior,
    Samples,
    is_posterior,
)
from ..symmetry import Perms, PermutationSpec, Signs, move_one
from ..trees import Tree, flatten, unflatten
from .card import CARD, MARK, Scores, card
from .tensors import BLOCK, CODE_OF, open_tensors, read_header, read_tensors, write_tensors

POSTERIOR, ALIGNMENT, VERSION = "bayesin-posterior", "bayesin-alignment", 1
PARTS = {
    "gaussian": ("mean", "std"),
    "lowrank": ("mean", "factors"),
    "factor": ("mean", "factors", "noise"),
    "mixture": ("means", "stds"),
    "samples": ("params",),
    "point": ("params",),
}
# Parts with a leading axis.
STACKED = {
    *{("samples", "params"), ("lowrank", "factors"), ("factor", "factors")},
    *{("mixture", "means"), ("mixture", "stds")},
}
FAMILIES = {"gaussian": Gaussian, "lowrank": LowRankGaussian, "factor": FactorGaussian, "mixture": GaussianMixture}
FIRST = "posterior-0.safetensors"  # of a folder
SPREADS = ("std/", "stds/", "noise/")  # what is never negative
LARGEST_CARD = 1 << 20  # bytes
DEEPEST = 64  # levels of a parameter tree


@dataclass(frozen=True)
class Description:
    """What the header of a file says; the arrays are not read.

    Example:
        >>> Description("bayesin-posterior", 1, "point", {"point/w": ("float32", (3, 2))}, {}, None).weights
        6
    """

    format: str
    version: int
    kind: str  # of PARTS; or alignment
    tensors: dict[str, tuple[str, tuple[int, ...]]]  # name -> (type, shape)
    metadata: dict[str, Any]
    spec: PermutationSpec | None

    @property
    def weights(self) -> int:
        """Number of weights of one network (running statistics included)."""
        lead = 1 if self.kind in ("samples", "mixture") else 0
        others = (*SPREADS, "factors/")
        shapes = [shape for name, (_, shape) in self.tensors.items() if not name.startswith(others)]
        return sum(int(np.prod(shape[lead:], dtype=np.int64)) for shape in shapes)


@dataclass(frozen=True)
class StoredAlignment:
    """Permutations with the spec they belong to and the settings that found them.

    Example:
        >>> spec = PermutationSpec.parse({"w": ["g0"]}, {"g0": 2})
        >>> StoredAlignment({"g0": np.array([1, 0])}, spec, {"cost": "means"}).settings["cost"]
        'means'
    """

    perms: Perms
    spec: PermutationSpec
    settings: dict[str, Any]
    signs: Signs = field(default_factory=dict)  # of groups that may flip


def save_posterior(
    path: Path | str,
    posterior: Posterior | Tree,
    *,
    kind: Literal["gaussian"] | None = None,
    spec: PermutationSpec | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Path:
    """Writes a Gaussian, a sample set or a point (a parameter tree) as one file, or as a folder with a card.

    Args:
        path: where to; an older file of that name is replaced in one step. A name without an ending, or a folder that
            is there, is a folder: it gets `posterior-0.safetensors` and `README.md`, a card that says what that is.
        posterior: a `Gaussian`, a `LowRankGaussian`, `Samples`, or a parameter tree; leaves may live on any device.
        kind: `"gaussian"` keeps the mean and the std of any posterior, a class of your own included, and no more.
        spec: the permutation spec of the model, kept beside the weights.
        metadata: anything JSON can hold (NaN becomes null). `{"model": {"name": "mlp", ...}, "data": "mnist"}`
            lets the command line use the file alone. The card also shows "method", "training" (settings) and
            "metrics": numbers, or `{"value": 0.97, "error": 0.01, "over": "359 examples"}`.

    Returns:
        The path.

    Raises:
        PosteriorError: a NaN, an infinity or a negative std, which no reader would accept; a leaf that is no
            array of numbers; a class of your own without `kind="gaussian"`.
        ArtifactError: the file cannot be written.

    Example:
        >>> import tempfile
        >>> q = Gaussian({"w": np.zeros(3, np.float32)}, {"w": np.ones(3, np.float32)})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = save_posterior(f"{folder}/q.safetensors", q, metadata={"data": "digits"})
        ...     load_posterior(path).std["w"], describe(path).metadata
        (array([1., 1., 1.], dtype=float32), {'data': 'digits'})
    """
    name, parts = _parts_of(posterior, kind)
    tensors = {}
    for part, tree in parts.items():
        tensors |= {f"{part}/{leaf}": _as_array(leaf, value) for leaf, value in flatten(tree).items()}
    if not tensors:
        raise PosteriorError("a posterior needs at least one parameter")
    for tensor, array in tensors.items():
        if wrong := _wrong_values(tensor, array):
            raise PosteriorError(f"cannot save {path}: {wrong}")
    if spec is not None:
        spec.check(next(iter(parts.values())))
    strings = _strings(POSTERIOR, name, spec, metadata)
    if isinstance(posterior, GaussianMixture) and name == "mixture":
        strings["weights"] = json_text([float(weight) for weight in np.asarray(posterior.weights, np.float64)])
    path = Path(path)
    if not path.name or (path.suffix and not path.is_dir()):
        return write_tensors(path, tensors, strings)
    if (path / "config.json").exists():
        raise ArtifactError(f"{path} holds a training run, whose posteriors are its own; choose another folder")
    stale = [other.name for other in path.glob("posterior-*.safetensors")]
    with replaced_together(path, gone=stale) as place:
        write_tensors(place / FIRST, tensors, strings)
        if card_is_ours(path):
            write_card(place)
    return path


def write_card(
    folder: Path | str,
    *,
    about: Mapping[str, Any] | None = None,
    scores: Mapping[str, Scores] | None = None,
    spec: PermutationSpec | None = None,
) -> Path:
    """Writes `README.md` beside the posteriors of a folder, from their headers and what else is known; see `card`.

    Raises:
        ArtifactError: there is no posterior, or one is damaged.
    """
    paths = posterior_files(folder)
    if not paths:
        raise ArtifactError(f"{folder} holds no {FIRST}, so that there is nothing to write a card of")
    text = card_of({path.name: path for path in paths}, about=about, scores=scores, spec=spec)
    return write_bytes(Path(folder) / CARD, text.encode())


def card_of(paths: Mapping[str, Path], **known: Any) -> str:
    """The card of some posteriors, by the names that they have or get; `known` is what `card` takes besides."""
    files = {name: describe(path) for name, path in paths.items()}
    return card(files, {name: file_hash(path) for name, path in paths.items()}, **known)


def posterior_files(folder: Path | str) -> list[Path]:
    """The posteriors of a folder in their order: `posterior-0.safetensors`, `posterior-1.safetensors`, …"""
    names = (f"posterior-{number}.safetensors" for number in itertools.count())
    return list(itertools.takewhile(Path.is_file, (Path(folder) / name for name in names)))


def card_is_ours(folder: Path | str) -> bool:
    """Whether a new card may take the place of what is in a folder: nothing, or a card that nobody made their own."""
    path = Path(folder) / CARD
    return not os.path.lexists(path) or (path.is_file() and MARK.encode() in read_bytes(path, LARGEST_CARD))


def save_permuted(
    path: Path | str,
    posterior: Posterior | Tree,
    spec: PermutationSpec,
    perms: Perms,
    *,
    signs: Signs | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Path:
    """Writes a posterior with its units reordered, a tensor at a time: no more than one is ever held in memory."""
    name, parts = _parts_of(posterior, None)
    tensors: dict[str, Any] = {
        f"{part}/{leaf}": _Moved(value, spec, perms, leaf, {} if f"{part}/" in SPREADS else signs or {})
        for part, tree in parts.items()
        for leaf, value in flatten(tree).items()
    }
    return write_tensors(path, tensors, _strings(POSTERIOR, name, spec, metadata))


class _Moved:
    """One array with its units reordered, which is computed when it is asked for."""

    def __init__(self, array: Any, spec: PermutationSpec, perms: Perms, path: str, signs: Signs):
        self.dtype, self.shape = array.dtype, array.shape
        self._move = partial(move_one, array, spec, perms, path, signs)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self._move(), dtype)


def load_posterior(
    path: Path | str, *, like: Tree | None = None, mapped: bool = False, about: Description | None = None
) -> Posterior | Tree:
    """Reads what `save_posterior` wrote: a posterior of any of our families, or the parameter tree of a point.

    Args:
        path: the file, or a folder, whose first posterior is meant.
        like: parameters of the model, arrays or shapes. The result then has the same tree type (lists and
            tuples included; otherwise nested dicts), and a file of another model is refused.
        mapped: leave the arrays in the file, from where they are read whenever they are used. For posteriors that are
            larger than memory; a file that is changed meanwhile is refused then. Their values are not looked at here,
            and `np.asarray` brings a leaf into memory, as JAX wants it.
        about: what `describe` said of the file, where that is used too; another one that took its name is refused.

    Raises:
        ArtifactError: the file is missing, damaged, of another kind or version, or of another model.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = save_posterior(f"{folder}/point.safetensors", {"w": np.zeros(3, np.float32)})
        ...     load_posterior(path)
        {'w': array([0., 0., 0.], dtype=float32)}
    """
    path = _file_of(path)
    arrays: dict[str, Any]
    arrays, strings = open_tensors(path) if mapped else read_tensors(path)
    kind = _check_strings(path, strings, POSTERIOR)
    if about is not None and (kind, _read_metadata(path, strings)) != (about.kind, about.metadata):
        raise ArtifactError(f"{path} was replaced while it was read; run the same command again")
    parts = _split(path, arrays, kind)
    for name, value in () if mapped else arrays.items():
        wrong = _wrong_values(name, value)
        if wrong:
            raise ArtifactError(f"{path}: {wrong}")
    trees = [_rebuild(path, part, like, int((kind, name) in STACKED)) for name, part in parts.items()]
    try:
        if kind == "samples":
            samples = Samples(trees[0])
            if len(samples) == 0:
                raise PosteriorError("holds no samples")
            return samples
        if kind == "mixture":
            return GaussianMixture(trees[0], trees[1], np.asarray(_read_weights(path, strings), np.float32))
        return FAMILIES[kind](*trees) if kind in FAMILIES else trees[0]  # pyright: ignore[reportCallIssue]
    except PosteriorError as error:
        raise ArtifactError(f"{path}: {error}") from None


def save_alignment(
    path: Path | str,
    perms: Perms,
    spec: PermutationSpec,
    *,
    settings: Mapping[str, Any] | None = None,
    signs: Signs | None = None,
) -> Path:
    """Writes permutations, and signs, the spec they belong to and the settings that found them as one file.

    Example:
        >>> import tempfile
        >>> spec = PermutationSpec.parse({"w": ["g0"]}, {"g0": 2})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = save_alignment(f"{folder}/a.safetensors", {"g0": np.array([1, 0])}, spec, settings={"key": 0})
        ...     load_alignment(path).settings
        {'key': 0}
    """
    spec.check_perms(perms)
    spec.check_signs(signs or {})
    tensors = {f"perms/{group}": np.asarray(perm, np.int32) for group, perm in perms.items()}
    tensors |= {f"signs/{group}": np.asarray(sign, np.int32) for group, sign in (signs or {}).items()}
    return write_tensors(path, tensors, _strings(ALIGNMENT, "alignment", spec, settings))


def load_alignment(path: Path | str) -> StoredAlignment:
    """Reads what `save_alignment` wrote, such as the `alignment.safetensors` of `bayesin align`.

    With `permute(source, stored.spec, stored.perms, stored.signs)` another tree of that model is moved alike.

    Raises:
        ArtifactError: the file is missing or damaged, or its permutations do not fit its spec.

    Example:
        >>> import tempfile
        >>> spec = PermutationSpec.parse({"w": ["g0"]}, {"g0": 2})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = save_alignment(f"{folder}/alignment.safetensors", {"g0": np.array([1, 0])}, spec)
        ...     load_alignment(path).perms["g0"].tolist()
        [1, 0]
    """
    arrays, strings = read_tensors(path)
    _check_strings(path, strings, ALIGNMENT)
    spec = _read_spec(path, strings)
    if spec is None:
        raise ArtifactError(f"{path}: an alignment without its spec")
    signs: Signs = {
        name.removeprefix("signs/"): arrays.pop(name) for name in list(arrays) if name.startswith("signs/")
    }
    (perms,) = _split(path, arrays, "alignment").values() if arrays else ({},)
    try:
        spec.check_perms(perms)
        spec.check_signs(signs)
    except SpecError as error:
        raise ArtifactError(f"{path}: {error}") from None
    return StoredAlignment(perms, spec, _read_metadata(path, strings), signs)


def describe(path: Path | str) -> Description:
    """Reads the header alone: what the file holds, its metadata and spec. Quick whatever the size.

    Of a folder the header of its first posterior is read.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = save_posterior(f"{folder}/q.safetensors", {"w": np.zeros(3, np.float32)})
        ...     describe(path).kind, describe(path).weights
        ('point', 3)
    """
    path = _file_of(path)
    header = read_header(path)
    kind = _check_strings(path, header.metadata, header.metadata.get("format", ""))
    tensors = {name: (entry.dtype.name, entry.shape) for name, entry in header.entries.items()}
    return Description(
        format=header.metadata["format"],
        version=VERSION,
        kind=kind,
        tensors=tensors,
        metadata=_read_metadata(path, header.metadata),
        spec=_read_spec(path, header.metadata),
    )


def _file_of(path: Path | str) -> Path:
    if not Path(path).is_dir():
        return Path(path)
    check_one_making(path)
    return Path(path) / FIRST


def _parts_of(posterior: Posterior | Tree, kind: str | None) -> tuple[str, dict[str, Tree]]:
    if isinstance(posterior, str | Path):
        raise PosteriorError(
            f"{str(posterior)[:80]!r} is no posterior; the path comes first: save_posterior(path, q)"
        )
    if kind not in (None, "gaussian"):
        raise PosteriorError(f"kind needs 'gaussian' or None, not {kind!r}")
    if isinstance(posterior, Gaussian) or kind == "gaussian":
        if not is_posterior(posterior):
            raise PosteriorError("kind='gaussian' needs a posterior with a mean and a std, not a parameter tree")
        gaussian = Gaussian(posterior.mean, posterior.std)  # which holds the two trees against each other
        return "gaussian", {"mean": gaussian.mean, "std": gaussian.std}
    for name, family in FAMILIES.items():
        if isinstance(posterior, family):
            return name, {part: getattr(posterior, part) for part in PARTS[name]}
    if isinstance(posterior, Samples):
        return "samples", {"params": posterior.params}
    if is_posterior(posterior):
        name = type(posterior).__name__
        raise PosteriorError(f"no file holds a {name}; kind='gaussian' keeps its mean and std, and only these")
    return "point", {"params": posterior}


def _as_array(path: str, leaf: Any) -> np.ndarray:
    """A leaf on the host; what would come back as something else is refused by name."""
    if path.count("/") >= DEEPEST:
        raise PosteriorError(f"'{path[:80]}…' is more than {DEEPEST} levels deep")
    if isinstance(leaf, np.ma.MaskedArray):
        raise PosteriorError(f"'{path}' is a masked array, and a file keeps no mask; fill it first")
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        raise PosteriorError(f"'{path}' holds random keys; save their jax.random.key_data")
    try:
        array = np.asarray(leaf)
    except Exception as error:  # a traced value, a donated buffer, a list of lists of different lengths
        raise PosteriorError(f"'{path}' has no values to save: {first_line(error)}") from None
    if array.dtype.newbyteorder("<") not in CODE_OF:
        raise PosteriorError(f"'{path}' holds {array.dtype}, not numbers that a file can keep")
    return array


def _wrong_values(name: str, array: np.ndarray) -> str:
    """What is wrong with the values of one array, or nothing; in blocks, to need little memory."""
    if array.dtype.kind in "biu":
        return f"'{name}' is negative" if name.startswith(SPREADS) and np.any(array < 0) else ""
    flat, step = array.reshape(-1), BLOCK // array.dtype.itemsize
    for start in range(0, flat.size, step):
        block = flat[start : start + step]
        finite = np.isfinite(block)
        if not finite.all():
            return f"'{name}' holds {block[np.argmin(finite)]} at position {start + int(np.argmin(finite)):,}"
        if name.startswith(SPREADS) and np.any(block < 0):
            return f"'{name}' is negative at position {start + int(np.argmax(block < 0)):,}; a std is not"
    return ""


def _strings(
    file_format: str, kind: str, spec: PermutationSpec | None, metadata: Mapping[str, Any] | None
) -> dict[str, str]:
    strings = {"format": file_format, "version": str(VERSION), "kind": kind}
    try:
        strings["metadata"] = json_text(dict(metadata or {}))
    except ArtifactError as error:
        raise ArtifactError(f"the metadata must be what JSON can hold: {error}") from None
    if spec is not None:
        strings["spec"] = json_text(spec)
    return strings


def _check_strings(path: Path | str, strings: dict[str, str], file_format: str) -> str:
    found = strings.get("format", "")
    if found not in {POSTERIOR, ALIGNMENT}:
        named = f"its header names format {found[:40]!r}" if found else "its header names no format"
        raise ArtifactError(f"{path} is no bayesin file: {named}; 'bayesin try' takes checkpoints of your own")
    if found != file_format:
        raise ArtifactError(f"{path} has format {found}, but {file_format} is needed here")
    version = strings.get("version", "")
    if version != str(VERSION):
        raise ArtifactError(f"{path} has version {version[:20]!r}; this bayesin reads version {VERSION}")
    kind = strings.get("kind", "")
    if kind not in (PARTS if found == POSTERIOR else {"alignment"}):
        raise ArtifactError(f"{path} holds a posterior of unknown kind {kind[:40]!r}; known: {', '.join(PARTS)}")
    return kind


def _read_metadata(path: Path | str, strings: dict[str, str]) -> dict[str, Any]:
    return parse_json(strings.get("metadata", "{}"), f"the metadata of {path}", dict)


def _read_weights(path: Path | str, strings: dict[str, str]) -> list[float]:
    return parse_json(strings.get("weights", "null"), f"the weights of {path}", [float])


def _read_spec(path: Path | str, strings: dict[str, str]) -> PermutationSpec | None:
    if "spec" not in strings:
        return None
    try:
        return PermutationSpec.from_json(parse_json(strings["spec"], f"the spec in {path}"))
    except BayesinError as error:
        raise ArtifactError(f"{path}: {error}" if str(path) not in str(error) else str(error)) from None


def _split(path: Path | str, arrays: dict[str, np.ndarray], kind: str) -> dict[str, dict[str, Any]]:
    """Arrays by part; every part must have the same paths and shapes, but for one leading axis where stacked."""
    parts = PARTS.get(kind, ("perms",))
    split: dict[str, dict[str, Any]] = {part: {} for part in parts}
    for name, array in arrays.items():
        part, _, leaf = name.partition("/")
        if part not in split or "/" not in name:
            raise ArtifactError(f"{path}: unexpected tensor '{name[:80]}'; expected {' and '.join(parts)}")
        if leaf.count("/") >= DEEPEST:
            raise ArtifactError(f"{path}: '{name[:80]}…' is more than {DEEPEST} levels deep")
        split[part][leaf] = array
    first, *others = split.items()
    if not first[1]:
        raise ArtifactError(f"{path} holds no '{first[0]}'")
    for part, leaves in others:
        odd = sorted(set(leaves) ^ set(first[1]))
        if odd:
            raise ArtifactError(f"{path}: '{odd[0][:80]}' is not in both {first[0]} and {part}")
        for leaf, array in leaves.items():
            lead, other = ((kind, name) in STACKED for name in (part, first[0]))
            if array.shape[lead:] != first[1][leaf].shape[other:]:
                raise ArtifactError(
                    f"{path}: '{leaf}' has shape {first[1][leaf].shape} in {first[0]} and {array.shape} in {part}"
                )
    return split


def _rebuild(path: Path | str, flat: dict[str, Any], like: Tree | None, lead: int) -> Tree:
    if like is None:
        try:
            return unflatten(flat)
        except ModelError as error:
            raise ArtifactError(f"{path}: {error}") from None
    wanted = flatten(like)
    odd = sorted(set(wanted) ^ set(flat))
    if odd:
        where = "missing from" if odd[0] in wanted else "not of this model, but in"
        raise ArtifactError(f"'{odd[0][:80]}' is {where} {path}")
    for leaf, array in flat.items():
        if array.shape[lead:] != tuple(np.shape(wanted[leaf])):
            raise ArtifactError(
                f"{path}: '{leaf}' has shape {array.shape[lead:]}, the model needs {tuple(np.shape(wanted[leaf]))}"
            )
    return jax.tree.unflatten(jax.tree.structure(like), [flat[leaf] for leaf in wanted])
