"""Several processes at once: one works, the others say who does, wait, or take over from the dead."""

import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

from .common import Child, Tally, contents, differences, foreign, run, start
from .verbs import TINY, TRAIN


def two_at_once(count: int, scratch: Path) -> list[Tally]:
    """Two on one run folder: the second leaves with the name of the first, or waits and finds the work done."""
    tally, wanted = Tally("two processes on one run folder"), _whole(scratch)
    for number in range(count):
        folder = scratch / "cut"
        shutil.rmtree(folder, ignore_errors=True)
        waits = number % 2 == 1
        first = start([*TRAIN, "--out", str(folder)], scratch / "first.log")
        _until(lambda folder=folder: (folder / "config.json").exists(), first)
        second = run([*TRAIN, "--out", str(folder), *(["--wait"] if waits else [])], scratch / "second.log")
        problems = foreign(second) + ([f"the first ended with {first.code}"] if first.wait() else [])
        if waits:
            problems += [f"the one that waited ended with {second.code}: {second.said}"] if second.code else []
        elif second.code != 1 or f"process {first.pid}" not in second.said:
            problems += [f"the second ended with {second.code} and said {second.said.strip()[-200:]}"]
        tally.add(problems + differences(contents(folder), wanted))
    return [tally]


def stale_lock(count: int, scratch: Path) -> list[Tally]:
    """The lock of a killed process is nobody's."""
    tally, wanted = Tally("lock of a dead process"), _whole(scratch)
    for _ in range(count):
        folder = scratch / "cut"
        shutil.rmtree(folder, ignore_errors=True)
        first = start([*TRAIN, "--out", str(folder)], scratch / "first.log")
        _until(lambda folder=folder: (folder / ".lock").exists(), first)
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        there = (folder / ".lock").exists()
        second = run([*TRAIN, "--out", str(folder)], scratch / "second.log")
        problems = [] if there else ["there was no lock"]
        problems += [f"the second ended with {second.code}: {second.said}"] if second.code else []
        tally.add(problems + differences(contents(folder), wanted))
    return [tally]


def ten_on_one_campaign(count: int, scratch: Path) -> list[Tally]:
    """Ten processes with the same runs to do: every run is done exactly once, and each is whole."""
    tally = Tally("ten processes on one campaign of ten runs", note="a try is a run of the campaign")
    for number in range(count):
        runs = scratch / f"campaign-{number}"
        flags = ["train", *TINY, "--batch", "50", "--epochs", "2", "--json", "--wait"]
        commands = [[*flags, "--key", str(key), "--out", str(runs / f"run-{key}")] for key in range(10)]
        logs = scratch / "logs"
        logs.mkdir(exist_ok=True)
        workers = [_worker(commands[at:] + commands[:at], logs, at) for at in range(10)]
        codes = [child.wait(500) for child in workers]
        for key in range(10):
            said = [json.loads((logs / f"{at}-{key}.json").read_text()) for at in range(10) if not codes[at]]
            did = sum(not one["reused"] for one in said)
            problems = [f"done {did} times"] if did != 1 else []
            problems += [f"{sum(map(bool, codes))} processes failed"] if any(codes) else []
            leftovers = [path.name for path in (runs / f"run-{key}").iterdir() if path.name.startswith(".")]
            tally.add(problems + [f"left over: {name}" for name in leftovers])
        shutil.rmtree(runs, ignore_errors=True)
    return [tally]


def two_on_one_chain(count: int, scratch: Path) -> list[Tally]:
    """Two with the same long chains to draw: the draws are those of one, also where the one that draws is killed."""
    tallies = [Tally("two processes on one long chain"), Tally("two on one long chain, one killed")]

    def command(folder: Path, out: Path) -> list[str]:
        return ["reproduce", "chains", "--quiet", "--runs", str(folder), "--out", str(out)]

    folder, log = scratch / "cut", scratch / "whole.log"
    if (child := run(command(folder, scratch / "whole"), log)).code:
        raise RuntimeError(child.said)
    wanted = _draws(folder)
    for number in range(count):
        shutil.rmtree(folder)
        two = [start(command(folder, scratch / name), scratch / f"{name}.log") for name in ("first", "second")]
        tally, killed = tallies[number % 2], None
        if number % 2:
            part = (number // 2) % 2  # the first part of the chains, then the one that goes on from it
            _until(lambda part=part: len(_held_parts(folder)) > part, two[0])
            time.sleep(0.3 * (number + 1) / count)
            holder = (_held_parts(folder)[-1] / ".lock").read_text()
            killed = next((child for child in two if f"process {child.pid} " in holder), None)
            if killed is not None:
                os.kill(killed.pid, signal.SIGKILL)
        codes = [child.wait() for child in two]
        problems = [problem for child in two for problem in foreign(child)]
        problems += [] if number % 2 == 0 or killed is not None else [f"the lock named neither: {holder!r}"]
        problems += [
            f"one ended with {code}" for child, code in zip(two, codes, strict=True) if code and child is not killed
        ]
        tally.add(problems + differences(_draws(folder), wanted))
    return tallies


def _held_parts(folder: Path) -> list[Path]:
    """The parts of chains that were begun, in their order: those that are done, and one that is held."""
    begun = [path.parent for path in folder.glob("chain-part-*/config.json")]
    held = [path for path in begun if (path / ".lock").exists()]
    done = [path for path in begun if path not in held]
    return [*done, *held] if held else []


def _draws(folder: Path) -> dict[str, bytes]:
    """What chains and all that rests on them left, without clocks: those of a trace lie in the state of a sampler."""
    found = contents(folder)
    for name in found:
        if name.endswith("state.safetensors"):
            found[name] = b""
        elif name.endswith("numbers.json"):
            found[name] = json.dumps(_without_clocks(json.loads(found[name]))).encode()
    return found


def _without_clocks(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_clocks(inner) for name, inner in value.items() if "seconds" not in name}
    return [_without_clocks(inner) for inner in value] if isinstance(value, list) else value


def _worker(commands: list[list[str]], logs: Path, at: int) -> Child:
    """One process that does all commands in its own order and keeps the JSON of each."""
    pid = os.fork()
    if pid:
        return Child(pid, logs / f"{at}.log")
    failed = 0
    for command in commands:
        key = command[command.index("--key") + 1]
        failed |= run(command, logs / f"{at}-{key}.json").code != 0
    os._exit(failed)


def _whole(scratch: Path) -> dict[str, bytes]:
    folder = scratch / "cut"
    shutil.rmtree(folder, ignore_errors=True)
    child = run([*TRAIN, "--out", str(folder)], scratch / "whole.log")
    if child.code != 0:
        raise RuntimeError(child.said)
    return contents(folder)


def _until(holds, child: Child, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not holds() and child.poll() is None and time.monotonic() < end:
        time.sleep(0.001)
