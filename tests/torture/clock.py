"""A clock that jumps: verbs whose wall clock goes back and forth by more than a year give the bits they always give.

Each runs in a process of its own, with a small library (`jumping_clock.c`) between it and the clock. Training is
killed on the way as well, and goes on from what it saved in a year that is still to come.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from .common import Tally, contents, differences
from .inject import NO_COMPILER
from .verbs import JOBS, Job, hub_for, prepare

VERBS = ("train", "train hmc", "align", "align --stream", "barrier", "reproduce")
SECONDS = 1800  # that a verb may take, on a machine with much else to do


def clock(_: int, scratch: Path, names: tuple[str, ...] = VERBS) -> list[Tally]:
    """Each verb once, and training that is killed."""
    tally, compiler = Tally("clock that jumps"), shutil.which("cc")
    if compiler is None:
        return [Tally(tally.fault, skipped=NO_COMPILER)]
    library, source = scratch / "jumping_clock.so", Path(__file__).with_name("jumping_clock.c")
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    given, folder = prepare(scratch, names), scratch / "cut"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    jumping = environment | {"LD_PRELOAD": str(library)}
    with hub_for(names, given):
        for name in names:
            job = JOBS[name]
            command = [sys.executable, "-m", "bayesin", *job.command(given, folder)]
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run(command, env=environment, check=True, capture_output=True, timeout=SECONDS)
            wanted = _compared(job, folder)
            for killed in (False, True) if name.startswith("train") else (False,):
                shutil.rmtree(folder, ignore_errors=True)
                if killed:
                    _kill_on_the_way(command, jumping, folder)
                done = subprocess.run(command, env=jumping, capture_output=True, timeout=SECONDS)
                problems = [f"ended with {done.returncode}: {done.stderr.decode()[-300:]}"] if done.returncode else []
                problems += differences(_compared(job, folder), wanted)
                tally.add(f"{name}{', killed' * killed}: {problem}" for problem in problems)
    return [tally]


def _kill_on_the_way(command: list[str], environment: dict[str, str], folder: Path) -> None:
    """Kills a run once something of it is saved."""
    child = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + SECONDS
    while child.poll() is None and time.monotonic() < until:
        if any(path.is_file() for path in (folder / "checkpoints").rglob("*")):
            child.send_signal(signal.SIGKILL)
        time.sleep(0.002)
    child.wait()


def _compared(job: Job, folder: Path) -> dict[str, bytes]:
    return {name: b"" if name in job.ignored else content for name, content in contents(folder).items()}
