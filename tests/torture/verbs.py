"""The verbs that are disturbed, each as a tiny job; one line adds another."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from .common import must

TINY = ["--data", "digits", "--limit", "100", "--width", "8", "--depth", "1", "--test-samples", "4"]
TRAIN = ["train", *TINY, "--batch", "50", "--quiet", "--epochs", "40", "--members", "2", "--checkpoint-epochs", "5"]
HMC = ["train", *TINY, "--quiet", "--method", "hmc", "--samples", "12", "--burn-in", "4", "--steps", "5"]
HMC += ["--step-size", "0.01", "--draws-per-file", "3"]

BARRIER = ["barrier", "--samples", "2", "--taus", "3", "--sets", "test"]


@dataclass(frozen=True)
class Job:
    """A command that fills a folder, and which of its files are a function of the command alone."""

    name: str
    command: Callable[[Path, Path], list[str]]  # (inputs, folder to fill)
    ignored: tuple[str, ...] = ()  # files that hold clocks
    reads: bool = False  # whether it has inputs, which `prepare` makes


JOBS = {
    job.name: job
    for job in (
        Job("train", lambda _, out: [*TRAIN, "--out", str(out)]),
        Job("train hmc", lambda _, out: [*HMC, "--out", str(out)]),
        Job(
            "compact",
            lambda given, out: ["compact", str(given / "many"), "--quiet", "--out", str(out)],
            ("report.json", "report.html"),
            reads=True,
        ),
        Job(
            "align",
            lambda given, out: ["align", str(given / "two"), f"{given / 'two'}#1", "--quiet", "--out", str(out)],
            ("alignment.safetensors",),
            reads=True,
        ),
        Job(
            "barrier",
            lambda given, out: [*BARRIER, str(given / "two"), f"{given / 'two'}#1", "--quiet", "--out", str(out)],
            ("report.json", "report.html"),
        ),
        Job(
            "reproduce",
            lambda _, out: ["reproduce", "kl", "--quiet", "--runs", str(out / "runs"), "--out", str(out / "kl")],
            ("kl/kl.json", "kl/report.json", "kl/report.html"),
        ),
        Job(
            "report",
            lambda given, out: ["report", str(given / "barrier.json"), "--quiet", "--out", str(out / "page.html")],
            reads=True,
        ),
    )
}


def prepare(folder: Path, names: Iterable[str]) -> Path:
    """Makes what these verbs read, if they do: two posteriors, an ensemble, a barrier."""
    given = folder / "given"
    given.mkdir(parents=True)
    if not any(JOBS[name].reads for name in names):
        return given
    log = folder / "prepare.log"
    short = ["train", *TINY, "--batch", "50", "--quiet", "--epochs", "4"]
    must([*short, "--members", "2", "--out", str(given / "two")], log)
    must([*short, "--method", "ensemble", "--members", "12", "--out", str(given / "many")], log)
    pair = [str(given / "two"), f"{given / 'two'}#1"]
    must(["barrier", *pair, "--samples", "2", "--taus", "3", "--quiet", "--out", str(given / "barrier.json")], log)
    return given
