"""From words to a verb's settings: help without noise, and misuse as one line instead of a box.

tyro parses. What it says about a wrong word is caught, shortened to one line, and completed with the nearest
word that would have been right.
"""

import contextlib
import dataclasses
import inspect
import io
import re
import types
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro

from ..errors import ConfigError, did_you_mean, nearest
from .flags import field_texts

BOX = re.compile(r"[│╭╮╰╯─]+")


def parse(name: str, verb: type, example: str, argv: list[str]) -> Any:
    """Returns the verb with its settings; exits after `--help`.

    Raises:
        ConfigError: an unknown flag, a value of the wrong kind, something missing.
    """
    said, flags = io.StringIO(), flags_of(verb)
    for word in argv:  # first of all: an unknown flag may hide what else is wrong
        if word.startswith("--") and word.split("=")[0].replace("_", "-") not in flags:
            raise ConfigError(unknown_flag(word.split("=")[0], name, flags))
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(
                presented(verb),
                prog=f"bayesin {name}",
                args=argv,
                description=f"{inspect.cleandoc(verb.__doc__ or '')}\n\nExample: {example}",
                config=(tyro.conf.FlagCreatePairsOff,),
            )
    except SystemExit as left:
        if not left.code:
            raise
        raise ConfigError(one_line(said.getvalue(), name)) from None


def presented(verb: type) -> type:
    """The same verb; flags that are off or unset by default do not say `{None}|PATH` and `(default: None)`."""
    hints, texts, fields = get_type_hints(verb, include_extras=True), field_texts(verb), []
    for field in dataclasses.fields(verb):
        kind, default = hints[field.name], field.default
        plain = default is None or isinstance(default, bool) or default == ()
        if not plain or any(_is_argument(one) for one in getattr(kind, "__metadata__", ())):
            continue
        stands = metavar(kind) if default is None else None
        shown = Annotated[kind, tyro.conf.arg(help=texts.get(field.name), help_behavior_hint="", metavar=stands)]
        fields.append((field.name, shown, dataclasses.field(default=default, kw_only=field.kw_only)))
    made = dataclasses.make_dataclass(verb.__name__, fields, bases=(verb,), frozen=True)
    made.__module__ = verb.__module__
    return made


def flags_of(verb: type) -> list[str]:
    """Every flag that the verb takes."""
    hints = get_type_hints(verb, include_extras=True)
    found = [flag_of(field, hints[field.name]) for field in dataclasses.fields(verb)]
    return [*filter(None, found), "--help"]


def flag_of(field: dataclasses.Field, kind: Any) -> str:
    """The flag of a setting of this type; nothing where it is a positional word."""
    if tyro.conf.Positional in getattr(kind, "__metadata__", ()):
        return ""
    word = field.name.replace("_", "-")
    return f"--no-{word}" if field.default is True else f"--{word}"


def choices_of(kind: Any) -> list[str]:
    """The words that a flag of this type takes, where they are known."""
    if get_origin(kind) is Annotated:
        return choices_of(get_args(kind)[0])
    if get_origin(kind) is Literal:
        return [str(choice) for choice in get_args(kind)]
    if get_origin(kind) in (Union, types.UnionType):
        return [choice for part in get_args(kind) for choice in choices_of(part)]
    return []


def metavar(kind: Any) -> str:
    """What stands for the value of an optional flag in the help: PATH, INT, {a,b}."""
    if get_origin(kind) is Annotated:
        return metavar(get_args(kind)[0])
    choices = choices_of(kind)
    if choices:
        return "{" + ",".join(choices) + "}"
    (inner,) = [part for part in get_args(kind) if part is not type(None)] or [kind]
    if get_origin(inner) is tuple:
        return f"{metavar(get_args(inner)[0] | None)} ..."
    return {Path: "PATH", str: "TEXT"}.get(inner, getattr(inner, "__name__", str(inner)).upper())


def unknown_flag(word: str, name: str, flags: list[str]) -> str:
    """One line about a flag that does not exist, with the nearest that does."""
    close = nearest(word, flags)
    hint = f"did you mean '{close}'?" if close else f"'bayesin {name} --help' lists all"
    return f"'{name}' has no flag '{word}'; {hint}"


def one_line(said: str, name: str) -> str:
    """What tyro printed in a box, as one line with the nearest word that would have been right."""
    text = " ".join(BOX.sub(" ", said.split("Perhaps you meant")[0]).split())
    more = f"; 'bayesin {name} --help' shows what it takes"
    if found := re.search(r"Unrecognized options: (\S+)", text):
        return f"'{name}' takes no '{found[1].rstrip(',')}'{more}"
    if found := re.search(r"invalid choice '(.*?)' for argument '(.*?)'\. Expected one of \((.*?),?\)", text):
        known = [word.strip(" '") for word in found[3].split(",") if word.strip(" '") != "None"]
        hint = did_you_mean(found[1], known) or ";"
        return f"{found[2]} cannot be '{found[1]}'{hint} known are {', '.join(known)}"
    if found := re.search(
        r"Error parsing (\S+?): .*? from \[(.*?)\].*?Argument helptext: \S+ (\S+) (.*?) For full", text
    ):
        needed = found[3].replace("{None}|", "")
        about = found[4].split(" (default")[0].removeprefix("... ")
        return f"{found[1]} needs {needed}, not {found[2]}: {about}"
    if found := re.search(r"Missing value for argument '(.*?)'", text):
        return f"{found[1]} needs a value{more}"
    if found := re.search(r"Missing from .*?: (\S+) (.*?) \(required\)", text):
        return f"'{name}' needs {found[1]}: {found[2]}{more}"
    return f"{re.split('For full helptext', text)[0].strip() or 'cannot be understood'}{more}"


def _is_argument(annotation: Any) -> bool:
    return type(annotation).__name__ == "_ArgConfig"
