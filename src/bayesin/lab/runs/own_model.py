"""A network of the user's own in a run: `--model file.py:model`, known by the text of its file.

The text's SHA-256 stands in the config of a run and travels with its posteriors, so that a file that was edited since
is not taken for what was trained. A file is code: it is run only where the user names it, never because a posterior
says so.
"""

import contextlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

from ...errors import ConfigError, ModelError
from ...files import content_hash
from ...models import Model, load_model

SHOWN = 12  # digits of a hash in a message


def is_address(name: Any) -> bool:
    """Whether a model is named by its place in a file or a module, rather than built in."""
    return isinstance(name, str) and ":" in name


def address_content(address: str) -> str:
    """The hash of the text that an address points into, and of the name in it; where the file lies does not count.

    Raises:
        ModelError: there is no such file or module.
    """
    source, _, attribute = address.rpartition(":")
    path = Path(source)
    if path.suffix != ".py":
        with contextlib.suppress(ImportError, ValueError):
            found = importlib.util.find_spec(source)
            path = Path(found.origin) if found is not None and found.origin else path
    try:
        return content_hash([path.read_bytes(), attribute.encode()])
    except OSError:
        raise ModelError(f"there is no file or module {source} with a text to know a run by") from None


def own_model(address: str, example: Any, content: str | None, of: str) -> Model:
    """The model at an address, whose text must be that of `content` where that is known.

    Args:
        address: `file.py:model` or `package.module:model`.
        example: an input, or shape and dtype.
        content: the hash that a run was trained with; None where nothing is known.
        of: whose it is, for messages.

    Raises:
        ConfigError: the text is another one.
        ModelError: the file fails, or holds no model there.
    """
    found = address_content(address)
    if content not in (None, found):
        raise ConfigError(
            f"{address} is not the text that {of} was trained with ({found[:SHOWN]}…, not {content[:SHOWN]}…); "
            "--model names a file with the old text, or train again"
        )
    with contextlib.redirect_stdout(sys.stderr):  # the user's code may print; standard output is ours
        return load_model(address, example)
