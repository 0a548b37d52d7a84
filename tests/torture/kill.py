"""Verbs killed, terminated and interrupted at random moments, then run again: the same bits, and nothing left over.

Half of the moments are spread evenly over the time that the verb takes; the other half follow one of the changes
of its folder within milliseconds, so that writes are met.
"""

import os
import random
import shutil
import signal
import time
from pathlib import Path

from .common import Child, Tally, contents, differences, foreign, run, start, whole
from .verbs import JOBS, NO_CLIENT, Job, hub_for, prepare

SIGNALS = {"SIGKILL": signal.SIGKILL, "SIGTERM": signal.SIGTERM, "Ctrl-C": signal.SIGINT}


def kill(
    count: int,
    scratch: Path,
    jobs: tuple[str, ...] = tuple(JOBS),
    signals: tuple[str, ...] = tuple(SIGNALS),
    seed: int = 0,
) -> list[Tally]:
    """`count` kills, and a sixth as many of the gentler signals, spread evenly over the verbs."""
    jobs, skipped = tuple(name for name in jobs if name != "pull" or not NO_CLIENT), "pull" in jobs and NO_CLIENT
    if not jobs:
        return [Tally(f"{kind} of pull", skipped=str(skipped)) for kind in signals]
    given = prepare(scratch, jobs)
    with hub_for(jobs, given):
        return _kills(count, given, scratch, jobs, signals, seed)


def _kills(
    count: int, given: Path, scratch: Path, jobs: tuple[str, ...], signals: tuple[str, ...], seed: int
) -> list[Tally]:
    draws = random.Random(seed)
    whole_runs = {name: _undisturbed(JOBS[name], given, scratch) for name in jobs}
    tallies = [Tally(f"{kind} of {name}") for kind in signals for name in jobs]
    for place, tally in enumerate(tallies):
        kind, name = tally.fault.split(" of ")
        wanted = count if kind == "SIGKILL" else -(-count // 6)
        tries = len(range(place % len(jobs), wanted, len(jobs)))
        for _ in range(tries):
            tally.add(_disturb(JOBS[name], SIGNALS[kind], given, scratch, draws, *whole_runs[name]))
    return tallies


def _undisturbed(job: Job, given: Path, scratch: Path) -> tuple[dict[str, bytes], float]:
    folder, took = scratch / "cut", 0.0  # the folder of all, since pages hold names and links
    for _ in range(2):  # the first one fills the cache of compiled programs
        shutil.rmtree(folder, ignore_errors=True)
        began = time.monotonic()
        child = run(job.command(given, folder), scratch / "whole.log")
        took = time.monotonic() - began
        if child.code != 0:
            raise RuntimeError(f"{job.name} fails undisturbed: {child.said}")
    return _compared(job, folder), took


def _disturb(
    job: Job, number: int, given: Path, scratch: Path, draws: random.Random, wanted: dict[str, bytes], took: float
) -> list[str]:
    folder, log = scratch / "cut", scratch / "cut.log"
    problems: list[str] = []
    shutil.rmtree(folder, ignore_errors=True)
    for _ in range(20):  # a child that was done before its moment is no try
        child = start(job.command(given, folder), log)
        _moment(child, folder, draws, took)
        if child.poll() is None:
            os.kill(child.pid, number)
            code = child.wait(60)
            if code != 0 or number == signal.SIGKILL:
                break
        shutil.rmtree(folder, ignore_errors=True)
        took *= 0.9
    else:
        return ["was never met while it ran"]
    if number == signal.SIGKILL:
        problems += [] if code in (-number, 0) else [f"ended with {code}"]
    else:
        problems += [] if code == 130 else [f"exit {code}, not 130"]
        told = any(words in child.said for words in ("run the same command again", "is whole"))
        problems += [] if told else ["no message"]
        problems += foreign(child)
    problems += whole(folder) if folder.exists() else []
    again = run(job.command(given, folder), log)
    kept = again.code == 2 and "--force to replace it" in again.said  # the signal came when all was there
    if again.code != 0 and not kept:
        return [*problems, f"the second start ended with {again.code}: {again.said.strip()[-200:]}"]
    return problems + differences(_compared(job, folder), wanted)


def _moment(child: Child, folder: Path, draws: random.Random, took: float) -> None:
    """Waits for a random moment of the child's work."""
    until = time.monotonic() + max(0.02, draws.random() * took)
    changes, seen = (draws.randint(1, 25), None) if draws.random() < 0.5 else (0, None)
    while child.poll() is None and (changes or time.monotonic() < until):
        if changes:
            now = _listing(folder)
            changes -= now != seen
            seen = now
            if not changes:
                time.sleep(draws.random() * 0.005)
                return
        time.sleep(0.0005)


def _listing(folder: Path) -> tuple:
    """Names and sizes, two levels deep: enough to see a write begin and end."""
    found = []
    for place in (folder, folder / "checkpoints", folder / "runs", folder / "kl", folder / "figures"):
        try:
            found += [(entry.name, entry.stat().st_size) for entry in os.scandir(place)]
        except OSError:
            continue
    return tuple(sorted(found))


def _compared(job: Job, folder: Path) -> dict[str, bytes]:
    return {name: b"" if name in job.ignored else content for name, content in contents(folder).items()}
