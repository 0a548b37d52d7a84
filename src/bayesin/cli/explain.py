"""`bayesin explain`: a model's permutation groups, and why every other axis is fixed."""

import contextlib
import math
import re
import sys
import time
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import tyro

from ..data import NAMES, SOURCES, Normalise, load
from ..errors import ConfigError, InconclusiveWarning, LeftBehindWarning, did_you_mean
from ..files import write_bytes
from ..inputs import shapes_of
from ..jaxprs import order_of_use, output_shapes
from ..json_files import write_json
from ..models import WIDTHS, Loaded, build, example_input
from ..models import load as load_model
from ..randomness import seed_key
from ..symmetry import Explanation, GroupLine, PermutationSpec, discover, explain, fold_names, picture, verify
from .main import Common
from .output import Output

EXPECTED = ("joined to the input", "output", "spatial axis of a convolution", "spatial axis of a pooling window")
FEW = 3  # axes that are named of those that are fixed for an expected reason

USUAL_DATA = {"mlp": "mnist", "resnet20": "cifar10", "rnn": "mnist", "lstm": "mnist"}


@dataclass(frozen=True, kw_only=True)
class Explain(Common):
    """Find the permutation symmetry of a model, verify it numerically, and say why the other axes are fixed.

    MODEL is one of
      mlp, resnet20,
      rnn, lstm              built in; see --data, --width, --depth, --norm
      file.py:attribute      your own, or package.module:attribute
      spec.json              a spec that --out saved, or that you edited

    The attribute is a bayesin.models.Model, an NNX, Linen or Equinox module, or the result of hk.transform; a pair
    of one of these and an example input; a triple (apply, params, example input); or a function without arguments
    that returns one of them. Without an example, --input-shape gives the shape of one.
    """

    model: Annotated[str, tyro.conf.Positional]
    """What to explain."""
    data: str | None = None
    """Data set that gives the shape of the input and the number of classes; cifar10 for resnet20, else mnist."""
    normalise: Normalise = "standard"
    """How inputs of an .npz are prepared, as for 'bayesin train'; none for tokens."""
    input_shape: tuple[int, ...] | None = None
    """Shape of one example, without the batch: 28 28 1."""
    classes: int | None = None
    """Number of outputs of a built-in model."""
    width: int | None = None
    """Units of a hidden layer (mlp: 512) or of the state (rnn, lstm: 128); channels of the first stage (resnet20:
    16)."""
    depth: int = 3
    """Hidden layers of mlp."""
    norm: Literal["layernorm", "frn"] = "layernorm"
    """Normalisation of resnet20."""
    out: Path | None = None
    """Save the spec, a JSON file that can be edited and explained again."""
    svg: Path | None = None
    """Draw the network as a graph of its layers, one colour for each group."""
    signs: bool = False
    """Also find the units that may change their sign."""
    seed: int = 0
    """Of the random parameters, inputs and permutations that verify the spec."""
    no_verify: bool = False
    """Do not verify."""

    def run(self, out: Output) -> dict[str, Any]:
        start = time.perf_counter()
        if self.model.endswith(".json"):
            spec, checked, order = PermutationSpec.load(self.model), {}, []
        else:
            spec, checked, order = self._discover(out)
        explanation = explain(spec)
        summary = {
            "model": self.model,
            "parameters": sum(math.prod(spec.shape(path)) for path in spec.axes),
            "tensors": len(spec.parameters),
            "signed": list(spec.signed),
            "log10_copies": spec.log10_order,
            **checked,
            "seconds": time.perf_counter() - start,
        }
        _show(out, explanation, summary)
        if self.out is not None:
            write_json(self.out, spec.to_json())
            out.line(f"Saved to {self.out}.")
        if self.svg is not None:
            write_bytes(self.svg, picture(spec, order).encode())
            out.line(f"Drawn in {self.svg}.")
        return {
            **summary,
            "groups": [asdict(line) for line in explanation.groups],
            "fixed": [asdict(line) for line in explanation.fixed],
            "out": None if self.out is None else str(self.out),
            "svg": None if self.svg is None else str(self.svg),
        }

    def _discover(self, out: Output) -> tuple[PermutationSpec, dict[str, Any], list[str]]:
        with out.progress("finding the symmetry", None) as bar:

            def broken(done: int, groups: int) -> None:
                bar.update(done, "verifying", groups)

            key = seed_key(self.seed)
            with contextlib.redirect_stdout(sys.stderr):  # the user's code may print; standard output is ours
                apply, params, x, *_ = self._load(key)
                with warnings.catch_warnings(record=True) as raised:
                    warnings.simplefilter("always")
                    spec = discover(apply, params, x, signs=self.signs)
                    change = None if self.no_verify else verify(apply, params, x, spec, key=key, on_group=broken)
                    order = [] if self.svg is None else order_of_use(apply, params, x)
        said = [
            str(one.message) for one in raised if issubclass(one.category, InconclusiveWarning | LeftBehindWarning)
        ]
        for text in said:
            out.warn(text)
        return spec, {"largest_change": change, "warnings": said}, order

    def _load(self, key: jax.Array) -> Loaded:
        if ":" in self.model:
            example = None if self.data is None else self._example(self.data)
            return load_model(self.model, key=key, input_shape=self.input_shape, example=example)
        if self.model.endswith(".py"):
            raise ConfigError(f"which model of {self.model}? name it after a colon: {self.model}:model")
        if self.model not in WIDTHS:
            raise ConfigError(
                f"there is no model '{self.model}'{did_you_mean(self.model, WIDTHS) or '.'} "
                f"MODEL is {', '.join(WIDTHS)}, file.py:attribute, package.module:attribute, or a spec.json"
            )
        shape, classes = self._shape_of_data()
        model = build(self.model, shape, classes, width=self.width, depth=self.depth, norm=self.norm)
        params = output_shapes(model.init, key)  # shapes are enough, and `verify` draws its own values
        return Loaded(model.apply, params, example_input(shape), self.model)

    def _example(self, name: str) -> Any:
        """Two inputs of a data set, for a network of one's own."""
        if name.endswith(".npz") and self.input_shape is None:
            return shapes_of(load(name, normalise=self.normalise).x_test, 2)
        return example_input(self._shape_of_data()[0])

    def _shape_of_data(self) -> tuple[tuple[int, ...], int]:
        if self.input_shape is not None:
            if self.data is not None:
                raise ConfigError("--input-shape and --data both give the shape of the input; leave one out")
            return self.input_shape, 10 if self.classes is None else self.classes
        shape, classes = _shape_and_classes(self.data or USUAL_DATA.get(self.model, ""))
        return shape, classes if self.classes is None else self.classes


def _shape_and_classes(name: str) -> tuple[tuple[int, ...], int]:
    if name == "digits":
        return (8, 8, 1), 10
    if name in SOURCES:
        return tuple(SOURCES[name].shape), SOURCES[name].classes
    if not name.endswith(".npz"):
        raise ConfigError(
            f"there is no data set '{name}'{did_you_mean(name, NAMES) or ';'} choose {', '.join(NAMES)} or an .npz"
        )
    data = load(name)
    targets = 1 if data.y_train.ndim == 1 else data.y_train.shape[-1]
    return data.x_train.shape[1:], targets if data.classes is None else data.classes


def _show(out: Output, explanation: Explanation, summary: dict[str, Any]) -> None:
    groups = _rows(explanation)
    if groups:
        out.table("Groups: units that may be permuted", ["group", "units", "for each", "axes they move"], groups)
        if summary["signed"]:
            out.line(f"Units of {fold_names(summary['signed'])} may change their sign too.")
        remarks: dict[str, list[str]] = {}
        for line in explanation.groups:
            remarks.setdefault(line.remark, []).append(line.group)
        for remark, named in remarks.items():
            if remark:
                out.line(f"{fold_names(named)}: {remark}.")
    else:
        out.line("No group: nothing of this model can be permuted.")
    reasons: dict[str, list[Any]] = {}
    for line in explanation.fixed:
        reasons.setdefault(line.reason or "not said", []).append(f"{line.tensor}: {line.size}")
    fixed = [
        [reason, len(axes), fold_names(axes, FEW if reason in EXPECTED else None)] for reason, axes in reasons.items()
    ]
    if fixed:
        out.table("Fixed axes", ["why", "axes", "where, and of which size"], fixed)
    out.line(f"{summary['parameters']:,} parameters in {summary['tensors']} tensors.")
    if not groups:
        return
    out.line(f"10^{summary['log10_copies']:,.0f} settings of the parameters compute this very function.")
    change = summary.get("largest_change")
    if change is None:
        out.line("Not verified.")
    else:
        out.line(f"Verified: permuting changes the output by at most {change:.1e} of its largest entry.")


def _rows(explanation: Explanation) -> list[list[Any]]:
    """One row for all groups that differ in numbers only, as those of equal layers do."""
    alike: dict[Any, list[GroupLine]] = {}
    for line in explanation.groups:
        names = tuple(re.sub(r"\d+", "#", tensor) for tensor in line.tensors)
        alike.setdefault((line.size, len(line.outer), line.permutations, names), []).append(line)
    rows = []
    for lines in alike.values():
        first, tensors = lines[0], [tensor for line in lines for tensor in line.tensors]
        if len(lines) > 1:  # what else stands on the axes has another name in every layer
            tensors = [tensor.partition(" = ")[0] for tensor in tensors]
        outer = [f"{line.permutations} of {' × '.join(line.outer)}" for line in lines if line.outer]
        rows.append([fold_names(line.group for line in lines), first.size, fold_names(outer), fold_names(tensors)])
    return rows
