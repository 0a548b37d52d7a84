"""`bayesin data`: which data sets are here, get one, compare one with the published files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from ..data import NAMES, SOURCES, check, fetch, load, locate
from ..errors import ConfigError
from .main import Common
from .output import Output


@dataclass(frozen=True)
class Data(Common):
    """List the data sets and where they are, fetch one from its public mirrors, or check every byte of one.

    Files are looked for in --root, in $BAYESIN_DATA, in ./data, in the user's cache and in system packages.
    They are compared by content, so a file that was compressed again is accepted.
    """

    action: Annotated[Literal["list", "fetch", "check"], tyro.conf.Positional] = "list"
    """What to do."""
    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """mnist, fashion-mnist, cifar10, cifar100, digits; for check also the path of an .npz file."""
    root: Path | None = None
    """Folder to look in first, and to fetch to."""
    timeout: float = 30.0
    """Seconds without data after which a mirror has stalled."""
    mirror: tuple[str, ...] = ()
    """Addresses to fetch from, in this order, instead of the public ones."""

    def run(self, out: Output) -> dict[str, Any]:
        if self.action == "list":
            return self._list(out)
        if not self.names:
            raise ConfigError(f"say which data set to {self.action}: bayesin data {self.action} mnist")
        if not self.timeout > 0:
            raise ConfigError(f"--timeout needs a positive number of seconds, not {self.timeout}")
        act = self._fetch if self.action == "fetch" else self._check
        return {"action": self.action, "datasets": [act(name, out) for name in self.names]}

    def _list(self, out: Output) -> dict[str, Any]:
        rows = [_describe(name, self.root) for name in self.names or NAMES]
        out.table(
            "",
            ["data set", "images", "classes", "size", "where"],
            [
                [row["name"], " × ".join(map(str, row["shape"])), row["classes"], _size(row["bytes"]), _place(row)]
                for row in rows
            ],
        )
        if any(not row["found"] for row in rows):
            out.line(
                "'bayesin data fetch NAME' gets what is not here; 'bayesin data check NAME' compares every byte."
            )
        return {"action": "list", "datasets": rows}

    def _fetch(self, name: str, out: Output) -> dict[str, Any]:
        with out.progress(f"fetching {name}", None) as bar:

            def report(done: int, total: int, file: str) -> None:
                bar.update(done, f"bytes, {file}", total)

            fetched = fetch(name, self.root, mirrors=self.mirror or None, timeout=self.timeout, on_progress=report)
        what = f"{len(fetched.downloaded)} downloaded, all compared" if fetched.downloaded else "already here"
        out.line(f"{name}: {what}, in {fetched.folder}")
        return {"name": name, "folder": str(fetched.folder), "downloaded": list(fetched.downloaded)}

    def _check(self, name: str, out: Output) -> dict[str, Any]:
        if name in SOURCES:
            files = check(name, self.root)
            out.line(f"{name}: {len(files.paths)} files as published, in {files.folder}")
            return {"name": name, "folder": str(files.folder), "files": [str(p) for p in files.paths.values()]}
        data = load(name, self.root)
        out.line(repr(data))
        return {"name": name, "training": len(data), "test": len(data.y_test), "classes": data.classes}


def _describe(name: str, root: Path | None) -> dict[str, Any]:
    if name == "digits":
        return {"name": name, "shape": [8, 8, 1], "classes": 10, "bytes": None, "found": True, "folder": None}
    if name not in SOURCES:
        raise ConfigError(f"'bayesin data list' knows {', '.join(NAMES)}; there is no '{name}'")
    source = SOURCES[name]
    here = locate(source, root)
    return {
        "name": name,
        "shape": list(source.shape),
        "classes": source.classes,
        "bytes": here.bytes if here else None,
        "found": here is not None and not here.missing(source),
        "folder": str(here.folder) if here else None,
        "missing": here.missing(source) if here else [file.name for file in source.files],
    }


def _place(row: dict[str, Any]) -> str:
    if row["name"] == "digits":
        return "in scikit-learn"
    if row["folder"] is None:
        return "not here"
    return row["folder"] if row["found"] else f"{row['folder']}, without {', '.join(row['missing'])}"


def _size(number: int | None) -> str:
    return "–" if number is None else f"{number / 1e6:,.0f} MB"
