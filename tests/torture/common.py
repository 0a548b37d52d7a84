"""What all faults share: the tally, verbs in processes that can be killed, and what a folder holds."""

import gc
import importlib
import json
import os
import pkgutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Files whose content is a matter of time: clocks, speeds, process numbers. Their names must agree, not their bytes.
TIMED = {"provenance.json", "metrics.jsonl"}


Rows = list[dict[str, Any]]  # tallies as JSON


@dataclass
class Tally:
    """How often a fault was tried, and what was lost: a wrong bit, a foreign error, a hang, a leftover."""

    fault: str
    tries: int = 0
    losses: list[str] = field(default_factory=list)
    note: str = ""
    skipped: str = ""  # why, where it could not be tried here

    def add(self, problems: Iterable[str]) -> None:
        """Counts one try with what went wrong in it."""
        self.tries += 1
        found = [problem for problem in problems if problem]
        if found:
            self.losses.append(f"try {self.tries}: {'; '.join(found)}")

    def to_json(self) -> dict[str, Any]:
        lost = len(self.losses)
        row = {"fault": self.fault, "tries": self.tries, "survived": self.tries - lost, "lost": lost}
        return row | {"note": self.note, "skipped": self.skipped, "losses": self.losses[:20]}


@dataclass
class Child:
    """A verb in a process of its own, and what it said."""

    pid: int
    log: Path
    code: int | None = None

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code

    def wait(self, seconds: float = 600.0) -> int:
        """Waits for the end; a hang is killed and has the code -1000."""
        until = time.monotonic() + seconds
        while self.poll() is None:
            if time.monotonic() > until:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                self.code = -1000
                break
            time.sleep(0.002)
        return self.code  # pyright: ignore[reportReturnType]

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")[-2000:] if self.log.exists() else ""


def import_everything() -> None:
    """Imports what verbs import on their way, so that forks begin with work; JAX is imported and not started."""
    import flax.nnx  # noqa: F401
    import fontTools.subset  # noqa: F401
    import matplotlib.backends.backend_pdf
    import matplotlib.backends.backend_svg
    import matplotlib.figure  # noqa: F401
    import optax  # noqa: F401
    import orbax.checkpoint  # noqa: F401

    import bayesin

    for extra in ("sklearn.datasets", "huggingface_hub"):
        with suppress(ImportError):
            importlib.import_module(extra)
    for module in pkgutil.walk_packages(bayesin.__path__, "bayesin."):
        if not module.name.endswith("__main__"):
            with suppress(ImportError):  # an adapter of a library that is not here
                importlib.import_module(module.name)
    gc.collect()
    gc.freeze()  # forks would search all of it for garbage, and copy the pages on which they note it


def in_forks(work: Mapping[str, Callable[[], list[Tally]]], scratch: Path, jobs: int) -> Iterator[tuple[str, Rows]]:
    """Runs every piece in a fork of this process, `jobs` at a time; what each found, as it ends.

    A piece that hangs is for itself to notice; one that dies is a loss of its own.
    """
    waiting, running = [*work], {}
    while waiting or running:
        while waiting and len(running) < jobs:
            name = waiting.pop(0)
            found = scratch / f"{len(work) - len(waiting)}.json"
            pid = os.fork()
            if pid == 0:
                _piece(work[name], found)
            running[pid] = name, found, time.monotonic()
        pid, status, used = os.wait4(-1, 0)
        name, found, began = running.pop(pid)
        code = os.waitstatus_to_exitcode(status)
        rows = json.loads(found.read_text()) if not code else []
        rows = rows or [Tally(f"{name} itself", 1, [f"the fault itself ended with {code}"]).to_json()]
        spent = {"seconds": round(time.monotonic() - began), "cpu": round(used.ru_utime + used.ru_stime)}
        yield name, [row | spent for row in rows]


def _piece(work: Callable[[], list[Tally]], found: Path) -> None:
    code = 1
    try:
        dump(found, [tally.to_json() for tally in work()])
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def start(
    argv: list[str],
    log: Path,
    *,
    limit: int | None = None,
    cwd: Path | None = None,
    prepared: Callable[[], Any] | None = None,
) -> Child:
    """Runs a verb in a fork of this process, which has imported everything and started nothing.

    So a random moment is a moment of work, not of importing. `limit` bounds the size of files, as a quota does;
    `prepared` is called in the fork before the verb.
    """
    import_everything()
    import bayesin.cli.main

    ready, begins = os.pipe()
    pid = os.fork()
    if pid:
        os.close(begins)
        os.read(ready, 1)  # a signal before the first line of the verb would meet this harness and not it
        os.close(ready)
        return Child(pid, log)
    code = 70
    try:
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if cwd is not None:
            os.chdir(cwd)
        if limit is not None:
            import resource

            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        os.write(begins, b".")
        os.close(begins)
        if prepared is not None:
            prepared()
        code = bayesin.cli.main.main(argv)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    finally:
        for stream in filter(None, (sys.stdout, sys.stderr)):  # one that was closed is None
            stream.flush()
        os._exit(code)
    return Child(0, log)


def run(argv: list[str], log: Path, seconds: float = 600.0, **options: Any) -> Child:
    """Runs a verb to its end."""
    child = start(argv, log, **options)
    child.wait(seconds)
    return child


def must(argv: list[str], log: Path) -> None:
    """Runs a verb that has to succeed."""
    child = run(argv, log)
    if child.code != 0:
        raise RuntimeError(f"bayesin {' '.join(argv)} ended with {child.code}: {child.said}")


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, hidden ones too."""
    return {
        str(path.relative_to(folder)): b"" if path.name in TIMED else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def differences(found: dict[str, bytes], wanted: dict[str, bytes]) -> list[str]:
    """In which files two folders differ."""
    odd = [f"'{name}' is {'left over' if name in found else 'missing'}" for name in sorted(found.keys() ^ wanted)]
    return odd + [f"'{name}' has other bits" for name in found.keys() & wanted if found[name] != wanted[name]]


def whole(folder: Path) -> list[str]:
    """What is half-written under its final name: every artifact must be whole or absent, whenever one looks."""
    from bayesin.errors import BayesinError
    from bayesin.json_files import read_json
    from bayesin.store import load_posterior
    from bayesin.store.tensors import read_tensors

    problems = []
    for path in folder.rglob("*"):
        inside = path.relative_to(folder).parts  # what is in a temporary folder has no final name yet
        if any(part.startswith(".tmp-") for part in inside) or "checkpoints" in inside or not path.is_file():
            continue
        try:
            if path.name.startswith("posterior-"):
                load_posterior(path)
            elif path.suffix == ".safetensors":
                read_tensors(path)
            elif path.suffix == ".json":
                read_json(path)
        except BayesinError as error:
            problems.append(f"half a file: {error}")
    return problems


def foreign(child: Child) -> list[str]:
    """Whether a verb failed in another way than its own."""
    said = child.said
    wrong = [word for word in ("Traceback", "unexpected ") if word in said]
    return [f"foreign error: {said[max(0, said.find(wrong[0]) - 150) :][:500]}"] if wrong else []


def dump(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")
