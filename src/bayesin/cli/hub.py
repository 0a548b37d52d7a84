"""`bayesin push` and `bayesin pull`: posteriors and their card onto the Hugging Face hub, and from it, checked."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from ..errors import ConfigError
from ..file_sets import replaced_already
from ..store import CARD, FIRST, describe, posterior_files, pull, push
from .main import Common
from .output import Output
from .output_dir import result_folder


@dataclass(frozen=True)
class Push(Common):
    """Send the posteriors and the card of FOLDER to REPO on the Hugging Face hub, as one commit.

    FOLDER is a run, the result of compact or merge, or what save_posterior wrote; without a card it gets one. Nothing
    but posterior-N.safetensors and README.md is sent. Needs pip install 'bayesin[hub]', and 'hf auth login' once (or
    a token in HF_TOKEN); HF_ENDPOINT names another hub.
    """

    folder: Annotated[str, tyro.conf.Positional] = ""
    """Folder with posteriors, or one safetensors file."""
    repo: Annotated[str, tyro.conf.Positional] = ""
    """Repository, user/name; made where it is not there."""
    private: bool = True
    """Make a new repository public; one that is there stays as it is."""
    revision: str = "main"
    """Branch to commit to."""
    message: str | None = None
    """Of the commit."""

    def run(self, out: Output) -> dict[str, Any]:
        if not self.folder or not self.repo:
            raise ConfigError("needs a folder and a repository: bayesin push FOLDER user/name")
        if not Path(self.folder).exists():
            raise ConfigError(f"there is no folder '{self.folder}'")
        with out.progress(f"sending {self.folder}", None):
            done = push(self.folder, self.repo, private=self.private, revision=self.revision, message=self.message)
        out.line(f"Sent {', '.join(done.files)}: {done.url}")
        return done._asdict()


@dataclass(frozen=True)
class Pull(Common):
    """Bring the posteriors and the card of REPO on the Hugging Face hub into a folder.

    Of one commit, files named posterior-N.safetensors and README.md are taken and nothing else. Sizes are bounded,
    hashes compared, posteriors read whole before they are put in their place, and nothing is run. Needs
    pip install 'bayesin[hub]'; for what is private also 'hf auth login', or a token in HF_TOKEN.
    """

    repo: Annotated[str, tyro.conf.Positional] = ""
    """Repository, user/name."""
    out: Path | None = None
    """Folder for the files. Needed."""
    revision: str = "main"
    """Branch, tag or commit."""
    largest: float = 16.0
    """Gigabytes of all files together that are accepted."""
    force: bool = False
    """Replace posteriors that are in the folder."""

    def run(self, out: Output) -> dict[str, Any]:
        if not self.repo or self.out is None:
            raise ConfigError("needs a repository and a place: bayesin pull user/name --out FOLDER")
        if not 0 < self.largest < 1e9:
            raise ConfigError(f"--largest needs a positive number of gigabytes, not {self.largest}")
        gone = [*(path.name for path in posterior_files(self.out)), CARD]
        with (
            result_folder(self.out, [FIRST, CARD], [], force=self.force, gone=gone, again=_is_part) as place,
            out.progress(f"fetching {self.repo}", None) as bar,
        ):
            done = pull(
                self.repo,
                place,
                revision=self.revision,
                largest=int(self.largest * 1e9),
                on_progress=lambda count, total, name: bar.update(count, f"bytes, {name}", total),
            )
        about = describe(self.out)
        out.line(f"{self.repo} at {done.commit[:10]}: {', '.join(done.files)}, in {self.out}")
        out.line(f"{about.kind}, {about.weights:,} weights; see {self.out / CARD}" if CARD in done.files else "")
        return done._asdict() | {"folder": str(self.out), "kind": about.kind, "weights": about.weights}


def _is_part(folder: Path) -> bool:
    """Whether all that is there is what a killed process put there, while further posteriors were still to come.

    The first one and a card, which every repository may have, are not the whole of it then.
    """
    there = [path.name for path in posterior_files(folder)] + [CARD] * (folder / CARD).exists()
    return bool(there) and replaced_already(folder).issuperset(there)
