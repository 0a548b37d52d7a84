"""The data of a run: known by their content, so that a file may move, and its namesake is not taken for it.

What a run was trained on stands in its config as a SHA-256, and travels with its posteriors. Where the file lay
stands in provenance.json alone, beside the run: it is looked for there, too, and believed by its content only.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...data import Dataset, data_file, is_data_file, load, published_content
from ...errors import ArtifactError, DataError
from ...json_files import read_json

DATA_AT = "data_at"  # of provenance.json: where the file lay, as seen from the run's folder, and from the root
SHOWN = 12  # digits of a hash in a message


@dataclass(frozen=True)
class RunData:
    """Which data a run was trained on, and how they were prepared."""

    name: str  # of a data set, or of a file
    content: str | None = None  # SHA-256; None: an older version did not write it down
    limit: int | None = None
    normalise: Any = "standard"

    def __str__(self) -> str:
        limit = "" if self.limit is None else f", limit {self.limit:,}"
        normalise = "" if self.normalise == "standard" else f", normalise {self.normalise}"
        content = f", content {self.content[:8]}" if self.content and is_data_file(self.name) else ""
        return f"{self.name}{limit}{normalise}{content}"

    @property
    def identity(self) -> tuple[Any, ...]:
        """What two runs on the same data have in common, wherever each found them."""
        return self.content or published_content(self.name) or self.name, self.limit, self.normalise

    @property
    def unchecked(self) -> bool:
        """Whether nothing tells a changed file, or a namesake, from what was trained on."""
        return self.content is None and is_data_file(self.name)


def load_run_data(
    about: RunData, root: Path | str | None = None, *, of: str = "this run", folder: Path | None = None
) -> Dataset:
    """Loads what a run was trained on.

    Args:
        about: which data.
        root: where to look first.
        of: whose data they are, for messages.
        folder: of the run, whose provenance says where the file lay.

    Raises:
        DataError: it is not here, or what bears its name has another content.
    """
    if not is_data_file(about.name):
        data = load(about.name, root, about.limit, normalise=about.normalise)
        if about.content not in (None, data.content):
            raise DataError(f"{about.name} is not what {of} was trained on ({_contents(about, data)})")
        return data
    others = []
    for path in _candidates(about, root, folder):
        data = load(path, None, about.limit, normalise=about.normalise)
        if about.content in (None, data.content):
            return data
        others.append(f"{path} ({_contents(about, data)})")
    if others:
        raise DataError(
            f"{' and '.join(others)} is not what {of} was trained on; --data names the right file, wherever it lies"
        )
    return load(about.name, root)  # which says that it is not there


def data_places(name: str, root: Path | str | None, folder: Path) -> dict[str, Any]:
    """What provenance.json says of where the data lay; nothing of data sets that are found by name."""
    if not is_data_file(name):
        return {}
    path = data_file(name, root).resolve()
    return {DATA_AT: [os.path.relpath(path, folder.resolve()), str(path)]}


def _candidates(about: RunData, root: Path | str | None, folder: Path | None) -> Iterator[Path]:
    """Where the file may lie: as it was named, and, where its content tells it from others, where it lay."""
    places = [data_file(about.name, root)]
    if about.content is not None and folder is not None:
        with suppress(ArtifactError):  # it only helps to find the file
            record = read_json(folder / "provenance.json", {f"{DATA_AT}?": [str]})
            places += [folder / place for place in record.get(DATA_AT, [])]
    seen = set()
    for place in places:
        if os.path.isfile(place) and (real := os.path.realpath(place)) not in seen:
            seen.add(real)
            yield place


def _contents(about: RunData, data: Dataset) -> str:
    return f"content {data.content[:SHOWN]}, not {str(about.content)[:SHOWN]}"
