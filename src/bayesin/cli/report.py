"""`bayesin report`: the page of one or several runs, from their saved numbers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from ..errors import ConfigError
from .main import Common
from .output import Output


@dataclass(frozen=True)
class Report(Common):
    """Writes one self-contained page from the saved numbers of runs; nothing is computed again.

    With one run the page goes into its folder, or beside its file; with several, --out says where.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """Folders of finished runs, each with a report.json, or files that 'bayesin barrier' wrote."""
    out: Path | None = None
    """The page to write, a file that ends in .html."""

    def run(self, out: Output) -> dict[str, Any]:
        from ..lab.report import write_page

        if not self.runs:
            raise ConfigError("which run? give one or more folders: bayesin report demo")
        first, *others = self.runs
        if self.out is None and others:
            raise ConfigError("several runs make one page; say where it goes: --out report.html")
        path = self.out or (first.with_suffix(".html") if first.is_file() else first / "report.html")
        if path.suffix not in {".html", ".htm"}:
            raise ConfigError(f"--out {path}: a page needs a name that ends in .html")
        page = write_page(path, self.runs)
        out.line(f"Open {page.resolve().as_uri()}")
        return {"page": str(page), "runs": [str(run) for run in self.runs], "bytes": page.stat().st_size}
