"""JSON that means one thing: one reader, one writer, and schemas for what a file must hold.

A file may come from a stranger or from an editor, so that whatever is read is checked against a schema (`expect`)
that names file and field; no other part of the program has to doubt it again.
"""

import dataclasses
import json
import math
import os
import re
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import ArtifactError, BayesinError
from .files import read_bytes, write_bytes

LONGEST_NUMBER = 64  # digits of a whole number in JSON; a float holds it, and no count or key needs as many

Json = Any  # None, bool, int, float, str, lists of these and dicts with text keys
Schema = Any  # see `expect`


def read_json(path: Path | str, schema: Schema = object, *, limit: int = 64 << 20) -> Json:
    """Reads a JSON file, refusing what `parse_json` refuses and what does not have the shape of `schema`."""
    return parse_json(read_bytes(path, limit), str(path), schema)


def write_json(path: Path | str, value: Any, *, digits: int | None = None) -> Path:
    """Writes a value (see `plain`) as a JSON file atomically, indented, keys in the given order."""
    return write_bytes(path, f"{json_text(value, indent=2, digits=digits)}\n".encode())


def parse_json(content: bytes | str, what: str, schema: Schema = object) -> Json:
    """Reads JSON text; errors start with `what`.

    Duplicate names, NaN, numbers beyond a float, half characters and bottomless nesting are refused.
    """
    try:
        text = content.decode() if isinstance(content, bytes) else content
        numbers: dict[str, Any] = {"parse_constant": _no_constant, "parse_float": _finite, "parse_int": _whole}
        value = json.loads(text, object_pairs_hook=_unique, **numbers)
        if _HALF_CHARACTER.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except BayesinError as error:
        raise ArtifactError(f"{what}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{what} is not valid JSON: {error}") from None
    return expect(value, schema, what)


def json_text(
    value: Any,
    *,
    indent: int | None = None,
    compact: bool = False,
    canonical: bool = False,
    ascii: bool = False,
    digits: int | None = None,
) -> str:
    """Returns a value (see `plain`) as JSON text.

    `compact` leaves out all spaces, `canonical` sorts the names too: one text for one value, fit for a hash. `ascii`
    escapes what is not ASCII, for streams of any encoding.

    Example:
        >>> json_text({"b": (1, 2), "a": float("nan")}, canonical=True)
        '{"a":null,"b":[1,2]}'
    """
    spaces = (",", ":") if compact or canonical else None
    try:
        return json.dumps(
            plain(value, digits), indent=indent, sort_keys=canonical, separators=spaces, ensure_ascii=ascii
        )
    except RecursionError:
        raise ArtifactError("JSON cannot hold a value that is nested so deeply, or in itself") from None


def plain(value: Any, digits: int | None = None) -> Json:
    """Returns a value as JSON has it: what can be written, and reads back as itself.

    Arrays and tuples become lists, dataclasses and whatever has a `to_json` become objects, paths text; NaN and
    infinities, which JSON does not have, become null. With `digits`, floats keep that many significant ones.

    Raises:
        ArtifactError: for a value of any other kind, and for two names of one object that are the same as text.

    Example:
        >>> import numpy as np
        >>> plain({"loss": np.array([0.12345678, np.nan]), "steps": np.int64(3)}, digits=6)
        {'loss': [0.123457, None], 'steps': 3}
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value.encode(errors="replace").decode()  # half characters come from undecodable file names
    if isinstance(value, int):
        if abs(value) >= 10 ** (LONGEST_NUMBER - 1):
            raise ArtifactError("JSON of ours cannot hold a whole number of so many digits")
        return int(value)
    if isinstance(value, float):
        number = float(value) if digits is None else float(f"{value:.{digits}g}")
        return number if math.isfinite(number) else None
    if isinstance(value, list | tuple):
        return [plain(inner, digits) for inner in value]
    if isinstance(value, Mapping):
        items = [(_name(name), plain(inner, digits)) for name, inner in value.items()]
        return _unique(items)
    if isinstance(value, os.PathLike):
        return plain(os.fspath(value))
    if isinstance(value, type):
        raise ArtifactError(f"JSON cannot hold the type {value.__name__}")
    if hasattr(value, "to_json"):
        return plain(value.to_json(), digits)
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name), digits) for field in dataclasses.fields(value)}
    if hasattr(value, "tolist"):  # arrays and scalars of numpy and JAX
        return plain(value.tolist(), digits)
    raise ArtifactError(f"JSON cannot hold a value of type {type(value).__name__}")


def expect(value: Json, schema: Schema, what: str) -> Json:
    """Returns `value` where it has the shape of `schema`; otherwise says which field of `what` has not.

    Args:
        value: as `parse_json` returns it.
        schema: a type or a union of types (`str`, `int | None`; `float` takes whole numbers too, `object`
            anything; true and false are not numbers); a text or a number that the value must equal; `[schema]` for a
            list; `{"name": schema, "other?": schema}` for an object, whose members with a question mark may be absent
            (more members than named are let pass); `str` in place of a name stands for all other names;
            `(schema, None)` for a value that may also be null.
        what: the file, for messages.

    Raises:
        ArtifactError: the value has another shape.

    Example:
        >>> expect({"nll": [1, 0.5]}, {"nll": [float], "note?": str | None}, "results.json")
        {'nll': [1, 0.5]}
        >>> expect({"nll": [1, "x"]}, {"nll": [float]}, "results.json")
        Traceback (most recent call last):
        bayesin.errors.ArtifactError: results.json: 'nll[1]' must be a number, not text
    """
    _expect(value, schema, what, ())
    return value


Where = tuple[str | int, ...]  # names and numbers from the root; put together only for a message


def _expect(value: Json, schema: Schema, what: str, where: Where) -> None:
    if isinstance(schema, dict):
        if not isinstance(value, dict):
            raise _unexpected(value, "an object", what, where)
        others = schema.get(str, object)
        for name, inner in value.items():
            wanted = schema[name] if name in schema else schema.get(f"{name}?", others)
            if wanted is not object:
                _expect(inner, wanted, what, (*where, name))
        for name in schema:
            if name is not str and not name.endswith("?") and name not in value:
                raise ArtifactError(f"{what}: '{_field((*where, name))}' is missing")
    elif isinstance(schema, tuple):
        if value is not None:
            _expect(value, schema[0], what, where)
    elif isinstance(schema, list):
        if not isinstance(value, list):
            raise _unexpected(value, "a list", what, where)
        for index, inner in enumerate(value):
            _expect(inner, schema[0], what, (*where, index))
    elif isinstance(schema, type | types.UnionType):
        kinds = schema.__args__ if isinstance(schema, types.UnionType) else (schema,)
        if not any(_is_a(value, kind) for kind in kinds):
            raise _unexpected(value, " or ".join(_KINDS.get(kind, kind.__name__) for kind in kinds), what, where)
    elif value != schema or isinstance(value, bool) != isinstance(schema, bool):
        raise _unexpected(value, repr(schema), what, where)


_KINDS = {
    str: "text", bool: "true or false", int: "a whole number", float: "a number", dict: "an object", list: "a list",
    type(None): "null",
}  # fmt: skip


def _is_a(value: Json, kind: type) -> bool:
    if isinstance(value, bool):  # which Python takes for an int
        return kind in (bool, object)
    return isinstance(value, int | float) if kind is float else isinstance(value, kind)


def _unexpected(value: Json, wanted: str, what: str, where: Where) -> ArtifactError:
    is_kind = wanted[0] not in "'\"-0123456789"  # otherwise a value that was expected to the letter
    shown = _KINDS.get(type(value), type(value).__name__) if is_kind else repr(value)[:40]
    field = f"'{_field(where)}'" if where else "it"
    return ArtifactError(f"{what}: {field} must be {wanted}, not {shown}")


def _field(where: Where) -> str:
    """`members[0].nll`; names may come from a stranger's file, so what would drive a terminal is escaped."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{repr(part[:40])[1:-1]}" for part in where]
    return "".join(parts).removeprefix(".")


_HALF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")  # half of a pair, which no file can hold alone


def _name(name: Any) -> str:
    if isinstance(name, str):
        return plain(name)
    if isinstance(name, int) and not isinstance(name, bool):
        return str(name)
    raise ArtifactError(f"JSON cannot name a member {str(name)[:40]!r}: names are text")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise ArtifactError(f"{name[:80]!r} is named twice")
        members[name] = value
    return members


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is beyond what a number can be")
    return value


def _whole(text: str) -> int:
    if len(text) > LONGEST_NUMBER:
        raise ValueError(f"a number of {len(text):,} digits")
    return int(text)
