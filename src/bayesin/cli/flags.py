"""The fields of settings as optional flags: types and help text are those of the dataclass, said once."""

import ast
import dataclasses
import inspect
import textwrap
from itertools import pairwise
from typing import Annotated, Any, get_args, get_type_hints

import tyro


def optional_flags(name: str, base: type, *kinds: type) -> Any:
    """Returns a dataclass below `base` with every field of `kinds` as a flag that is None where not given."""
    fields: dict[str, Any] = {}
    for kind in kinds:
        types, texts = get_type_hints(kind), field_texts(kind)
        for field in dataclasses.fields(kind):
            shown = tyro.conf.arg(
                help=texts.get(field.name),
                help_behavior_hint=f"(default: {field.default}, or the preset's)",
                metavar=_metavar(types[field.name]),
            )
            fields.setdefault(field.name, Annotated[types[field.name] | None, shown])
    made = [(field, kind, dataclasses.field(default=None)) for field, kind in fields.items()]
    return dataclasses.make_dataclass(name, made, bases=(base,), frozen=True)


def given(flags: Any, *kinds: type) -> dict[str, Any]:
    """The fields of `kinds` that were given on the command line."""
    names = dict.fromkeys(field.name for kind in kinds for field in dataclasses.fields(kind))
    return {name: getattr(flags, name) for name in names if getattr(flags, name) is not None}


def _metavar(kind: Any) -> str:
    choices = ("True", "False") if kind is bool else get_args(kind)
    return "{" + ",".join(map(str, choices)) + "}" if choices else kind.__name__.upper()


def field_texts(kind: type) -> dict[str, str]:
    """The text below each field of a dataclass, its bases' included."""
    texts: dict[str, str] = {}
    for part in reversed(kind.__mro__):
        if not dataclasses.is_dataclass(part):
            continue
        try:
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(part))).body
        except (OSError, TypeError):  # made by `optional_flags`, whose flags carry their texts
            continue
        body = tree.body if isinstance(tree, ast.ClassDef) else []
        for line, below in pairwise(body):
            target = line.target if isinstance(line, ast.AnnAssign) else None
            if isinstance(target, ast.Name) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                texts[target.id] = " ".join(str(below.value.value).split())
    return texts
