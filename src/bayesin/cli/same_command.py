"""A result that lacks nothing but its page: the same command goes on with it, and needs no --force.

Numbers may have taken hours, and whoever stops their command while the page is drawn keeps them. With them lies what
they were made by: the flags, and the content of all that was read. A command made by the same makes the page, from
`report.json` where that was reached. Any other result stands in its way as ever.
"""

import dataclasses
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from .. import __version__
from ..data import Dataset
from ..errors import ArtifactError
from ..file_sets import replaced_already
from ..files import content_hash, file_hash
from ..json_files import json_text, plain, read_json
from ..lab.report import read_report
from ..lab.runs import ModelChoice, PosteriorFile, SymmetryChoice, address_content, foldable_files, is_address
from ..store import read_tensors
from .main import Common
from .output_dir import PAGE_NUMBERS

MADE_BY = "made_by"  # in the file of the numbers
ANY_RESULT = {"json", "quiet", "debug", "out", "force", "page"}  # flags that decide nothing about the numbers
PAGE = "report.html"


class SameCommand:
    """What a command is known by, and what it finds of its own in its folder.

    Args:
        options: the verb with its flags.
        numbers: the file of its numbers.
        files: what is made with them, itself among it.
        contents: gives the hashes of what is read (`contents_of`).
    """

    def __init__(
        self, options: Common, numbers: str, files: Iterable[str], contents: Callable[[], Mapping[str, Any]]
    ):
        self._options, self._numbers, self._files, self._contents = options, numbers, tuple(files), contents

    @cached_property
    def made_by(self) -> dict[str, Any]:
        """Version, flags and contents, as JSON has them."""
        flags = {field.name: getattr(self._options, field.name) for field in dataclasses.fields(self._options)}
        chosen = {name: value for name, value in flags.items() if name not in ANY_RESULT}
        return plain({"bayesin": __version__, "flags": chosen, "contents": dict(self._contents())})

    def lacks_page(self, folder: Path) -> bool:
        """Whether the folder holds whole numbers that this command made, and no whole page of them."""
        try:
            if read_json(folder / self._numbers, {MADE_BY: dict})[MADE_BY] != self.made_by:
                return False
            for name in self._files:
                if name.endswith(".safetensors"):
                    read_tensors(folder / name)
        except ArtifactError:  # none, or damaged
            return False
        return bool(replaced_already(folder)) or not all((folder / name).is_file() for name in (PAGE, PAGE_NUMBERS))

    def taken_over(self, folder: Path, place: Path) -> dict[str, Any] | None:
        """Puts the numbers that are there beside the page that is to come; None where all is to be made anew."""
        if not self.lacks_page(folder) or replaced_already(folder):
            return None
        try:
            read_report(folder)
        except ArtifactError:  # not reached
            return None
        for name in (*self._files, PAGE_NUMBERS):
            shutil.copyfile(folder / name, place / name)
        return read_json(place / self._numbers, dict)


def contents_of(
    choice: ModelChoice, data: Sequence[Dataset | None], posteriors: Iterable[PosteriorFile]
) -> dict[str, Any]:
    """Hashes of what a verb reads: posteriors with what is known of them, data, a spec and a network of one's own."""
    found: dict[str, Any] = {"data": [None if one is None else one.content for one in data]}
    found["posteriors"] = [
        content_hash(
            [json_text(file.metadata, canonical=True).encode()]
            + [file_hash(path).encode() for path in foldable_files(file)]
        )
        for file in posteriors
    ]
    if isinstance(choice, SymmetryChoice) and choice.spec is not None:
        found["spec"] = file_hash(choice.spec)
    if is_address(choice.model):
        found["model"] = address_content(str(choice.model))
    return found
