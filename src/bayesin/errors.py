"""Every error that bayesin raises on purpose.

A message is one line that says what is wrong, where, and what to do about it. The command line prints
it without a traceback and leaves with `exit_code`: 2 when the input was at fault, 1 when the work was.

Example:
    >>> try:
    ...     raise ConfigError("a learning rate of -1; it must be positive")
    ... except BayesinError as error:
    ...     print(error, error.exit_code)
    a learning rate of -1; it must be positive 2
"""

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def nearest(word: str, known: Iterable[str], cutoff: float = 0.5) -> str | None:
    """The known word that a misspelt one was meant to be, or None where none is close.

    Example:
        >>> nearest("barier", ["barrier", "train"]), nearest("x", ["barrier"])
        ('barrier', None)
    """
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)), None)


def did_you_mean(word: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    """The nearest known word as the end of a message, `; did you mean …?`; empty where none is close."""
    close = nearest(word, known, cutoff)
    return f"; did you mean '{close}'?" if close else ""


def first_line(error: BaseException, limit: int = 300) -> str:
    """The first line of an error's message, for a line of ours; the error's type where it has no message.

    Example:
        >>> first_line(ValueError("shapes differ\\n(3,) and (4,)")), first_line(KeyboardInterrupt())
        ('shapes differ', 'KeyboardInterrupt')
    """
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return text if len(text) <= limit else text[: limit - 1] + "…"


class BayesinError(Exception):
    """Base of every error of this library."""

    exit_code = 2


class ConfigError(BayesinError, ValueError):
    """A setting that has no meaning: a negative variance, an unknown name, a missing flag."""


class DataError(BayesinError, ValueError):
    """A data set that is missing, damaged or not what its name promises."""


class ModelError(BayesinError, ValueError):
    """A model or a parameter tree that cannot be used: not traceable, not arrays, wrong shapes."""


class SpecError(BayesinError, ValueError):
    """A permutation spec, or permutations, that do not fit the parameters."""


class PosteriorError(BayesinError, ValueError):
    """Posteriors that cannot be used: mismatched trees, negative stds, NaN, infinities."""


class ArtifactError(BayesinError, ValueError):
    """A file of ours that is truncated, corrupted, of another kind or of another version."""


class LockedError(BayesinError):
    """A file or folder in which another process works."""

    exit_code = 1


class HubError(BayesinError):
    """The Hugging Face hub could not be reached, refused, or sent something else than it promised."""

    exit_code = 1


class InconclusiveWarning(UserWarning):
    """A check that passed, and would have passed for something wrong as well."""


class LeftBehindWarning(UserWarning):
    """Something that looks as if it should move with a group, or not move, and that the network does not tell."""


class SymmetryError(BayesinError):
    """A permutation that should leave the function unchanged and does not."""

    exit_code = 1


class TrainingError(BayesinError):
    """A fit that diverged or could not go on; it keeps the step, the trace so far and the last checkpoint."""

    exit_code = 1

    def __init__(self, message: str, *, step: int | None = None, trace: Any = None, checkpoint: Path | None = None):
        super().__init__(message)
        self.step, self.trace, self.checkpoint = step, trace, checkpoint
