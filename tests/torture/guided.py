"""Bad files by coverage: atheris (libFuzzer) mutates the first-version files, guided by the readers' branches.

Needs `pip install atheris`, and is skipped without it. A process for each reader; any exception but ours ends it.
"""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

from .common import Tally
from .readers import READERS


def guided(count: int, scratch: Path) -> list[Tally]:
    """`count` inputs for each reader."""
    if importlib.util.find_spec("atheris") is None:
        return [Tally("bad file, guided by coverage", skipped="atheris is not installed")]
    return [_one(name, count, scratch) for name in READERS]


def _one(name: str, count: int, scratch: Path) -> Tally:
    tally, place = Tally(f"bad file, guided: {name}"), scratch / name.replace(" ", "-").replace(":", "")
    corpus = place / "corpus"
    corpus.mkdir(parents=True)
    (corpus / "first").write_bytes(READERS[name].content)
    command = [sys.executable, "-m", "torture.guided", name, str(place), str(corpus), f"-runs={count}", "-seed=1"]
    command += ["-max_len=8192", "-timeout=10", "-rss_limit_mb=4096", f"-artifact_prefix={place}/"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace")
    ran = re.search(r"Done (\d+) runs", done.stderr)
    tally.tries = int(ran[1]) if ran else 1
    if done.returncode or not ran:
        tally.losses.append(f"ended with {done.returncode}: {done.stderr.strip()[-600:]}")
    reached = re.findall(r"cov: (\d+)", done.stderr)
    tally.note = f"{reached[-1]} branches reached" if reached else ""
    return tally


def _fuzz(name: str, place: Path, arguments: list[str]) -> None:
    import atheris  # pyright: ignore[reportMissingImports]

    with atheris.instrument_imports(include=["bayesin"]):
        import bayesin.lab.campaign
        import bayesin.lab.report  # noqa: F401

    from .files import judge, read_quietly

    reader = READERS[name]
    answer = read_quietly(reader, reader.content, place)

    def one(content: bytes) -> None:
        problems, _ = judge(reader, content, answer, place)
        if problems:
            raise RuntimeError("; ".join(problems))

    atheris.Setup([sys.argv[0], *arguments], one)
    atheris.Fuzz()


if __name__ == "__main__":
    _fuzz(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
