"""`bayesin report`: the page of runs, from their saved numbers; of posteriors, from their predictions."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from ..errors import ConfigError
from ..lab.runs import ModelChoice
from .main import Common
from .output import Output

PAGE = "page"  # the folder in that of a training run


@dataclass(frozen=True)
class Report(ModelChoice, Common):
    """Writes one self-contained page from the saved numbers of runs; nothing is computed again.

    With one run the page goes into its folder, or beside its file; with several, --out says where. A training run, or
    a file with a posterior, has no such numbers: its members are tested as 'bayesin evaluate' does, with --model
    and --data for a network of your own, and the page goes into the folder 'page' of the run.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """Folders of finished runs, or files that 'bayesin barrier' wrote; or training runs and posteriors alone."""
    out: Path | None = None
    """The page to write, a file that ends in .html; of posteriors the folder that it goes into."""

    def run(self, out: Output) -> dict[str, Any]:
        from ..lab.report import write_page

        if not self.runs:
            raise ConfigError("which run? give one or more folders: bayesin report demo")
        posteriors = [name for run in self.runs for name in _posteriors(run)]
        if posteriors:
            return self._of_posteriors(out, posteriors)
        first, *others = self.runs
        if self.out is None and others:
            raise ConfigError("several runs make one page; say where it goes: --out report.html")
        path = self.out or (first.with_suffix(".html") if first.is_file() else first / "report.html")
        if path.suffix not in {".html", ".htm"}:
            raise ConfigError(f"--out {path}: a page needs a name that ends in .html")
        page = write_page(path, self.runs)
        out.line(f"Open {page.resolve().as_uri()}")
        return {"page": str(page), "runs": [str(run) for run in self.runs], "bytes": page.stat().st_size}

    def _of_posteriors(self, out: Output, posteriors: list[str]) -> dict[str, Any]:
        from .evaluate import Evaluate

        if any(not _posteriors(run) for run in self.runs):
            raise ConfigError(
                f"{posteriors[0]} has no saved numbers, and others do; 'bayesin evaluate {posteriors[0]} --out "
                "FOLDER' makes some, and FOLDER can stand on one page with the others"
            )
        first = self.runs[0]
        if self.out is None and (len(self.runs) > 1 or not first.is_dir()):
            raise ConfigError("say which folder the page goes into: --out FOLDER")
        if self.out is not None and self.out.suffix in {".html", ".htm"}:
            raise ConfigError(f"--out {self.out}: the page of posteriors comes with its numbers; name a folder")
        chosen = {name: getattr(self, name) for name in ModelChoice.__dataclass_fields__}
        made = Evaluate(posteriors=tuple(posteriors), out=self.out or first / PAGE, force=True, **chosen).run(out)
        return made | {"runs": [str(run) for run in self.runs]}


def _posteriors(run: Path) -> list[str]:
    """The posteriors of a training run, or of a file, that no page has been made of; none for anything else."""
    text = str(run)
    if Path(text.split("#")[0]).suffix == ".safetensors":
        return [text]
    folder = Path(text.split("#")[0])
    files = sorted(folder.glob("posterior-*.safetensors"))
    if not files or (folder / "report.json").exists() or not (folder / "config.json").exists():
        return []
    return [text] if len(files) == 1 or "#" in text else [f"{text}#{number}" for number in range(len(files))]
