"""The verbs that are disturbed, each as a tiny job; one line adds another."""

import hashlib
import importlib.util
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from .common import must

TINY = ["--data", "digits", "--limit", "100", "--width", "8", "--depth", "1", "--test-samples", "4"]
TRAIN = ["train", *TINY, "--batch", "50", "--quiet", "--epochs", "40", "--members", "2", "--checkpoint-epochs", "5"]
HMC = ["train", *TINY, "--quiet", "--method", "hmc", "--samples", "12", "--burn-in", "4", "--steps", "5"]
HMC += ["--step-size", "0.01", "--draws-per-file", "3"]

BARRIER = ["barrier", "--samples", "2", "--taus", "3", "--sets", "test"]


NO_CLIENT = "" if importlib.util.find_spec("huggingface_hub") else "huggingface_hub is not installed"


def _streamed(given: Path) -> list[str]:
    """Alignment from file to file; the first one holds the spec."""
    files = given / "aligned" / "posterior-0.safetensors", given / "two" / "posterior-0.safetensors"
    return ["align", "--stream", *map(str, files)]


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
            "evaluate",
            lambda given, out: ["evaluate", *_pair(given), "--samples", "2", "--quiet", "--out", str(out)],
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
            "align --stream",
            lambda given, out: [*_streamed(given), "--quiet", "--out", str(out)],
            ("alignment.safetensors",),
            reads=True,
        ),
        Job("pull", lambda _, out: ["pull", "me/new", "--quiet", "--out", str(out)], reads=True),
        Job(
            "barrier",
            lambda given, out: [*BARRIER, str(given / "two"), f"{given / 'two'}#1", "--quiet", "--out", str(out)],
            ("report.json", "report.html"),
            reads=True,
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
    if "align --stream" in names:
        must(["align", *_pair(given), "--quiet", "--out", str(given / "aligned")], log)
    if "compact" in names:
        must([*short, "--method", "ensemble", "--members", "12", "--out", str(given / "many")], log)
    if "report" not in names:
        return given
    pair = [str(given / "two"), f"{given / 'two'}#1"]
    must(["barrier", *pair, "--samples", "2", "--taus", "3", "--quiet", "--out", str(given / "barrier.json")], log)
    return given


# What `inject` runs: as small as a verb can be, since it is run some thousand times.

SMALLEST = ["--data", "digits", "--limit", "20", "--width", "4", "--depth", "1", "--test-samples", "2", "--quiet"]
SHORT = ["train", *SMALLEST, "--batch", "10", "--epochs", "2", "--checkpoint-epochs", "1"]
CHAIN = ["train", *SMALLEST, "--method", "hmc", "--samples", "3", "--burn-in", "1", "--steps", "2"]
CHAIN += ["--step-size", "0.01", "--draws-per-file", "2"]
METHODS = {
    "ensemble": ["--members", "2"],
    "swag": ["--rank", "2", "--collect-from", "0.1", "--collect-every", "1"],
    "laplace": [],
    "sgmcmc": ["--samples", "2"],
}  # with one checkpoint; that of vi has two, of which one goes
PAGE = ("report.json", "report.html")


@dataclass(frozen=True)
class Injected:
    """A command that fills a folder; `old` makes what is there before, in a process that has run nothing yet."""

    name: str
    command: Callable[[Path, Path], list[str]]  # (inputs, folder to fill)
    old: Callable[[Callable[[list[str]], None], Path, Path], None] | None = None  # (run, inputs, folder to fill)
    ignored: tuple[str, ...] = ()  # files that hold clocks
    together: bool = True  # whether its files are of one making, and replaced so
    reads: bool = False  # whether it has inputs, which `prepare_injected` makes


def _pair(given: Path) -> list[str]:
    return [f"{given / 'two'}#0", f"{given / 'two'}#1"]


def _over(name: str, words: Callable[[Path], list[str]], *flags: str, ignored: tuple[str, ...] = ()) -> Injected:
    """A verb over what it made with another key."""

    def command(given: Path, out: Path) -> list[str]:
        return [*words(given), "--quiet", *flags, "--out", str(out)]

    old = lambda run, given, out: run([*command(given, out), "--key", "1"])  # noqa: E731
    return Injected(name, command, old, ignored, reads=True)


def _train(method: str) -> Injected:
    flags = CHAIN if method == "hmc" else SHORT
    if method in METHODS:
        flags = [*SHORT[:-1], "2", "--method", method, *METHODS[method]]
    return Injected(f"train, {method}", lambda _, out: [*flags, "--out", str(out)], together=False)


def _damaged_run(run: Callable[[list[str]], None], given: Path, out: Path) -> None:
    run([*SHORT, "--out", str(out)])
    damage(out / "posterior-0.safetensors")


def _damaged_campaign(run: Callable[[list[str]], None], given: Path, out: Path) -> None:
    run(_campaign(given, out))
    for path in sorted((out / "runs").glob("*/posterior-0.safetensors"))[:1]:
        damage(path)


def _campaign(_: Path, out: Path) -> list[str]:
    return ["reproduce", "kl", "--quiet", "--runs", str(out / "runs"), "--out", str(out / "kl")]


def _damaged_data(run: Callable[[list[str]], None], given: Path, out: Path) -> None:
    run(_fetch(given, out))
    damage(out / "toy" / "raw" / "train-images-idx3-ubyte.gz")


def _fetch(given: Path, out: Path) -> list[str]:
    out.mkdir(exist_ok=True)  # so that everything happens below it
    address = (given / "mirror").read_text()
    return ["data", "fetch", "toy", "--quiet", "--root", str(out), "--mirror", address]


def damage(path: Path) -> None:
    """Flips a bit in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


INJECTED = {
    job.name: job
    for job in (
        *(_train(method) for method in ("vi", *METHODS, "hmc")),
        Injected(
            "train over a damaged run", lambda _, out: [*SHORT, "--out", str(out)], _damaged_run, together=False
        ),
        _over("align --force", lambda given: ["align", *_pair(given)], "--force", ignored=("alignment.safetensors",)),
        _over("align --stream --force", _streamed, "--force", ignored=("alignment.safetensors",)),
        Injected(
            "pull --force",
            lambda _, out: ["pull", "me/new", "--quiet", "--force", "--out", str(out)],
            lambda run, _, out: run(["pull", "me/old", "--quiet", "--out", str(out)]),
            reads=True,
        ),
        _over("merge --force", lambda given: ["merge", *_pair(given), "--samples", "2"], "--force"),
        _over("compact --force", lambda given: ["compact", str(given / "many")], "--force", ignored=PAGE),
        _over(
            "evaluate --force", lambda given: ["evaluate", *_pair(given), "--samples", "2"], "--force", ignored=PAGE
        ),
        _over("barrier", lambda given: ["barrier", *_pair(given), *BARRIER[1:]], ignored=PAGE),
        _over(
            "try",
            lambda given: ["try", *_pair(given), "--samples", "2", "--taus", "3"],
            ignored=(*PAGE, "barrier.json"),
        ),
        Injected(
            "report",
            lambda given, out: ["report", str(given / "barrier"), "--quiet", "--out", str(out / "page.html")],
            lambda run, given, out: run(
                ["report", str(given / "barrier"), str(given / "barrier"), "--quiet", "--out", str(out / "page.html")]
            ),
            reads=True,
        ),
        Injected(
            "explain",
            lambda _, out: ["explain", "mlp", "--width", "4", "--quiet", "--out", str(out / "s.json")],
            lambda run, _, out: run(["explain", "mlp", "--width", "5", "--quiet", "--out", str(out / "s.json")]),
        ),
        Injected("data fetch", _fetch, lambda run, given, out: out.mkdir(), together=False),
        Injected("data fetch over a damaged file", _fetch, _damaged_data, together=False),
        Injected("reproduce", _campaign, None, ("kl/kl.json", "kl/report.json", "kl/report.html"), together=False),
        Injected(
            "reproduce over a damaged run",
            _campaign,
            _damaged_campaign,
            ("kl/kl.json", "kl/report.json", "kl/report.html"),
            together=False,
        ),
    )
}


def prepare_injected(folder: Path, names: Iterable[str] = tuple(INJECTED)) -> Path:
    """Makes what these verbs read, if they do: two posteriors, an ensemble, a barrier with its page."""
    given, log = folder / "given", folder / "prepare.log"
    given.mkdir(parents=True)
    if not any(INJECTED[name].reads for name in names):
        return given
    must([*SHORT, "--members", "2", "--out", str(given / "two")], log)
    must([*SHORT, "--method", "ensemble", "--members", "3", "--out", str(given / "many")], log)
    must([*BARRIER, *_pair(given), "--quiet", "--out", str(given / "barrier")], log)
    must(["align", *_pair(given), "--quiet", "--out", str(given / "aligned")], log)
    return given


@contextmanager
def mirror(given: Path) -> Iterator[None]:
    """A mirror of a small data set, whose address stands beside the inputs."""
    import bayesin.data.sources as sources
    from data_toys import idx_contents, idx_source, write_files

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    sources.SOURCES["toy"] = idx_source(idx_contents())
    served = write_files(given / "served", idx_contents())
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(served))) as http:
        (given / "mirror").write_text(f"http://127.0.0.1:{http.server_address[1]}/")
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield
        finally:
            http.shutdown()
            thread.join()


def hub_for(names: Iterable[str], given: Path) -> Any:
    """A hub, where one of these verbs asks one."""
    return hub(given) if any(name.startswith("pull") for name in names) and not NO_CLIENT else nullcontext()


@contextmanager
def hub(given: Path) -> Iterator[Any]:
    """A hub with two repositories of the same posteriors, one of which has more; its client is told where it is."""
    from huggingface_hub import constants

    from hub_server import TOKEN, Hub

    first, second = ((given / "two" / f"posterior-{number}.safetensors").read_bytes() for number in (0, 1))
    card = (given / "two" / "README.md").read_bytes()
    served = Hub()
    for name, posteriors in {"me/new": [first], "me/old": [second, first]}.items():
        files = {f"posterior-{number}.safetensors": content for number, content in enumerate(posteriors)}
        served.repos[name] = [{}, {**files, "README.md": card + name.encode()}]
        served.visibility[name] = "private"
        served.stored |= {hashlib.sha256(content).hexdigest(): content for content in posteriors}
    before = constants.ENDPOINT, constants.HUGGINGFACE_CO_URL_TEMPLATE
    # As if HF_ENDPOINT and HF_TOKEN had said so when the client was imported.
    constants.HUGGINGFACE_CO_URL_TEMPLATE = before[1].replace(before[0], served.endpoint)
    constants.ENDPOINT, constants.HF_HUB_DISABLE_XET = served.endpoint, True
    kept = {name: os.environ.get(name) for name in ("HF_TOKEN", "NO_PROXY")}
    os.environ |= {"HF_TOKEN": TOKEN, "NO_PROXY": "127.0.0.1,localhost"}
    try:
        yield served
    finally:
        constants.ENDPOINT, constants.HUGGINGFACE_CO_URL_TEMPLATE = before
        for name, value in kept.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        served.close()
