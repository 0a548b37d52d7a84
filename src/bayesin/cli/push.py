"""`bayesin push`: the posteriors of a folder, with their card, onto the Hugging Face hub."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from ..errors import ConfigError
from ..store import push
from .main import Common
from .output import Output


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
