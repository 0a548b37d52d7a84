"""From words to a verb: its dataclass says once which flags there are, of which type, and what the help says.

tyro parses and writes the help. It prints what it refuses into a box and has no public way to hand it over, so a
refusal is explained here from the same declarations, in one line, with the nearest word that would have been right.
"""

import ast
import contextlib
import dataclasses
import functools
import inspect
import io
import textwrap
import types
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import tyro

from ..errors import ConfigError, did_you_mean, nearest

WORDS = (bool, int, float, str, Path)  # types that one word of a command line can give
LARGEST = 2**31 - 1  # that a flag may count
GROUPS = "flag_groups"  # of a verb: the names of its fields by the title under which the help shows them
NAMES = {int: "a whole number", float: "a number"}


class Argument(NamedTuple):
    """A flag, or a positional word, as the field of a verb declares it."""

    name: str  # "--max-sweeps", or "MODEL" for a word without a flag
    type: type  # of one value
    choices: tuple[str, ...]  # the only values, where they are known
    least: int  # how many values it takes: a switch none, others one
    most: float  # infinite where it takes as many as there are
    needed: bool  # whether there is no default

    @property
    def positional(self) -> bool:
        return not self.name.startswith("--")

    def objection(self, value: str) -> str | None:
        """What is wrong with a value, or None."""
        if self.choices and value not in self.choices:
            hint = did_you_mean(value, self.choices) or ";"
            return f"{self.name} cannot be '{value}'{hint} known are {', '.join(self.choices)}"
        try:
            self.type(value)
        except ValueError:
            return f"{self.name} needs {NAMES[self.type]}, not '{value}'"


def parse(name: str, verb: type, example: str, argv: list[str]) -> Any:
    """Returns the verb with its settings; exits after `--help`.

    Raises:
        ConfigError: an unknown flag, a value of the wrong type, something missing.
    """
    try:
        presented, grouped = _for_tyro(verb)
        with contextlib.redirect_stderr(io.StringIO()):
            given = tyro.cli(
                grouped,
                prog=f"bayesin {name}",
                args=argv,
                description=f"{inspect.cleandoc(verb.__doc__ or '')}\n\nExample: {example}",
                config=(tyro.conf.FlagCreatePairsOff, tyro.conf.DisallowNone, tyro.conf.OmitArgPrefixes),
            )
        flags = _flat(given, presented)
        _check_sizes(flags)
        return presented(**flags)
    except SystemExit as left:
        if not left.code:
            raise
        raise ConfigError(_objection(name, arguments(verb), argv)) from None


def _check_sizes(flags: dict[str, Any]) -> None:
    """Whole numbers other than keys count something, of which there are never more than 32 bits can say."""
    for name, value in flags.items():
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, int) and abs(number) > LARGEST and name not in ("key", "seed"):
                raise ConfigError(f"--{name.replace('_', '-')} {number} is too large; at most {LARGEST:,}")


def arguments(verb: type) -> dict[str, Argument]:
    """Every flag and every positional word of a verb, in order."""
    types_of, declared = get_type_hints(verb, include_extras=True), []
    for field in dataclasses.fields(verb):
        kind, positional = types_of[field.name], _is_positional(types_of[field.name])
        value, many = _one_value(kind)
        switch = isinstance(field.default, bool)  # an unset one takes True or False
        flag = ("--no-" if field.default is True else "--") + field.name.replace("_", "-")
        choices = ("True", "False") if value is bool and not switch else _choices(value)
        needed = field.default is dataclasses.MISSING
        most = 0 if switch else float("inf") if many else 1
        name, least = field.name.upper() if positional else flag, int(not switch and not (positional and many))
        declared.append(Argument(name, value if value in NAMES else str, choices, least, most, needed))
    declared.append(Argument("--help", bool, (), 0, 0, False))
    return {argument.name: argument for argument in declared}


def settings_as_flags(name: str, base: type, *kinds: type) -> Any:
    """Returns a dataclass below `base` with every field of `kinds` as a flag that is None where not given.

    A field that also takes objects, as an optimiser does, takes its names here; one that takes objects alone is left
    to the Python interface. The help shows them in groups, by the kinds that have them.
    """
    fields: dict[str, Any] = {}
    for kind in kinds:
        types_of, texts = get_type_hints(kind), field_texts(kind)
        for field in dataclasses.fields(kind):
            words = _words(types_of[field.name])
            shown = tyro.conf.arg(
                help=texts.get(field.name), help_behavior_hint=f"(default: {field.default}, or the preset's)"
            )
            markers = (tyro.conf.FlagConversionOff,) if words is bool else ()  # one must be able to turn it off
            if words is not None:
                fields.setdefault(field.name, Annotated[words | None, shown, *markers])
    made = [(field, kind, dataclasses.field(default=None)) for field, kind in fields.items()]
    groups: dict[str, list[str]] = {}
    for field in fields:
        takers = [kind.__name__ for kind in kinds if field in {own.name for own in dataclasses.fields(kind)}]
        groups.setdefault("every_method" if len(takers) == len(kinds) else "_and_".join(takers), []).append(field)
    groups = dict(sorted(groups.items(), key=lambda entry: (entry[0] != "every_method", -entry[0].count("_and_"))))
    return dataclasses.make_dataclass(name, made, bases=(base,), frozen=True, namespace={GROUPS: groups})


def given_settings(flags: Any, *kinds: type) -> dict[str, Any]:
    """The fields of `kinds` that were given on the command line."""
    names = dict.fromkeys(field.name for kind in kinds for field in dataclasses.fields(kind))
    values = {name: getattr(flags, name, None) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def field_texts(kind: type) -> dict[str, str]:
    """The text below each field of a dataclass, its bases' included."""
    texts: dict[str, str] = {}
    for part in reversed(kind.__mro__):
        if not dataclasses.is_dataclass(part):
            continue
        try:
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(part))).body
        except (OSError, TypeError):  # made by `settings_as_flags`, whose flags carry their texts
            continue
        body = tree.body if isinstance(tree, ast.ClassDef) else []
        for line, below in pairwise(body):
            target = line.target if isinstance(line, ast.AnnAssign) else None
            if isinstance(target, ast.Name) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                texts[target.id] = " ".join(str(below.value.value).split())
    return texts


def _objection(name: str, known: dict[str, Argument], argv: list[str]) -> str:
    """Why these words make no verb, in one line."""
    more = f"; 'bayesin {name} --help' shows what it takes"
    words = [word.partition("=") for word in argv]
    for word, _, _ in words:  # first of all: an unknown flag may hide what else is wrong
        if word.startswith("--") and word.replace("_", "-") not in known:
            close = nearest(word, [flag for flag in known if flag.startswith("--")])
            return f"'{name}' has no flag '{word}'" + (f"; did you mean '{close}'?" if close else more)
    free = [argument for argument in known.values() if argument.positional]
    while words:
        word, equals, value = words.pop(0)
        if word.startswith("--"):
            argument, values = known[word.replace("_", "-")], [value] if equals else []
        elif free:
            argument, values = free.pop(0), [word + equals + value]
        else:
            return f"'{name}' takes no '{word}{equals}{value}'{more}"
        while words and len(values) < argument.most and not words[0][0].startswith("--"):
            values.append("".join(words.pop(0)))
        if len(values) < argument.least:
            return f"{argument.name} needs a value{more}"
        for value in values:
            if problem := argument.objection(value):
                return problem
    for argument in free:
        if argument.needed:
            return f"'{name}' needs {argument.name}{more}"
    return f"'{name} {' '.join(argv)}' cannot be understood{more}"


def _presented(verb: type) -> type:
    """The same verb, whose help does not say `(default: None)` of what is off or unset, and names what is a word."""
    types_of, texts, fields = get_type_hints(verb, include_extras=True), field_texts(verb), []
    for field in dataclasses.fields(verb):
        kind, default = types_of[field.name], field.default
        value, many = _one_value(kind)
        if get_origin(kind) is Annotated and not _is_positional(kind):  # of `settings_as_flags`
            continue
        unset = default is None or isinstance(default, bool) or default in ((), "")
        name = field.name.upper() if _is_positional(kind) else getattr(value, "__name__", "").upper()
        named = not _choices(value) and (many or _is_positional(kind))
        shown = tyro.conf.arg(
            help=texts.get(field.name),
            help_behavior_hint="" if unset else None,
            metavar=(f"{name} ..." if many else name) if named else None,
        )
        fields.append((field.name, Annotated[kind, shown], dataclasses.field(default=default, kw_only=field.kw_only)))
    made = dataclasses.make_dataclass(verb.__name__, fields, bases=(verb,), frozen=True)
    made.__module__ = verb.__module__
    return made


@functools.cache  # tyro keeps what it read of every class, however often the same one is made
def _for_tyro(verb: type) -> tuple[type, type]:
    """A verb as it is presented, and as tyro is given it."""
    presented = _presented(verb)
    return presented, _in_groups(presented)


def _in_groups(presented: type) -> type:
    """What tyro is given: the flags of each group inside a class of their own, which the help shows apart."""
    groups: dict[str, list[str]] = getattr(presented, GROUPS, {})
    if not groups:
        return presented
    group_of = {field: group for group, fields in groups.items() for field in fields}
    types_of, own, grouped = get_type_hints(presented, include_extras=True), [], {group: [] for group in groups}
    for field in dataclasses.fields(presented):
        entry = (field.name, types_of[field.name], dataclasses.field(default=field.default))
        (grouped[group_of[field.name]] if field.name in group_of else own).append(entry)
    for group, entries in grouped.items():
        made = dataclasses.make_dataclass(group, entries, frozen=True, namespace={"__doc__": ""})
        shown = Annotated[made, tyro.conf.arg(name=group.replace("_and_", ", ").replace("_", " "))]
        own.append((group, shown, dataclasses.field(default=made())))
    return dataclasses.make_dataclass(presented.__name__, own, frozen=True)


def _flat(given: Any, presented: type) -> dict[str, Any]:
    """The values of all flags, those of groups included."""
    groups = [getattr(given, group) for group in getattr(presented, GROUPS, {})]
    holders = {field.name: holder for holder in (given, *groups) for field in dataclasses.fields(holder)}
    return {field.name: getattr(holders[field.name], field.name) for field in dataclasses.fields(presented)}


def _is_positional(kind: Any) -> bool:
    return tyro.conf.Positional in getattr(kind, "__metadata__", ())


def _one_value(kind: Any) -> tuple[Any, bool]:
    """The type of one value without what is written around it, and whether there may be several."""
    if get_origin(kind) is Annotated:
        return _one_value(get_args(kind)[0])
    if get_origin(kind) in (Union, types.UnionType):
        return _one_value(next(part for part in get_args(kind) if part is not type(None)))
    return (get_args(kind)[0], True) if get_origin(kind) is tuple else (kind, False)


def _choices(kind: Any) -> tuple[str, ...]:
    return tuple(map(str, get_args(kind))) if get_origin(kind) is Literal else ()


def _words(kind: Any) -> Any:
    """The part of a type that one word can give; None where there is none."""
    if get_origin(kind) in (Union, types.UnionType):
        parts = [words for part in get_args(kind) if (words := _words(part)) is not None]
        return Union[tuple(parts)] if parts else None  # noqa: UP007 (of parts that are known at run time)
    return kind if kind in WORDS or get_origin(kind) is Literal else None
