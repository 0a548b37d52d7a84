"""Bad files to every reader: an error of ours within a second and little memory, or an answer that is right."""

import gc
import random
import resource
import shutil
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from .common import Tally
from .mutate import mutate
from .readers import FIXTURES, READERS, Reader, checkpoint

SECONDS = 1.0  # of computing, whatever else the machine does; a read that waits for ever meets LONGEST
LONGEST = 60.0
MEMORY = 256 << 20  # bytes that reading a file of a few kilobytes may take at the very most


def fuzz(count: int, scratch: Path, seed: int = 0) -> list[Tally]:
    """`count` bad files for each reader."""
    return [fuzz_one(reader, count, scratch, seed) for reader in READERS.values()]


def fuzz_one(reader: Reader, count: int, scratch: Path, seed: int = 0) -> Tally:
    """Bad files to one reader; the same seed makes the same files."""
    draws = random.Random(f"{reader.name} {seed}")
    others = [other.content for other in READERS.values()]
    answer = read_quietly(reader, reader.content, scratch)
    tally, refused, slowest = Tally(f"bad file: {reader.name}"), 0, 0.0
    before = _peak()
    for _ in range(count):
        content = mutate(reader.content, others, draws)
        began, began_computing = time.perf_counter(), time.process_time()
        problems, found = judge(reader, content, answer, scratch)
        took, waited = time.process_time() - began_computing, time.perf_counter() - began
        slowest, refused = max(slowest, took), refused + (found is None)
        slow = took > SECONDS or waited > LONGEST
        tally.add(problems + ([f"took {took:.1f} s of computing, {waited:.0f} s in all"] if slow else []))
    grown = _peak() - before
    if grown > MEMORY:
        tally.losses.append(f"needed {grown >> 20} MiB")
    tally.note = f"{refused} refused, slowest {1000 * slowest:.0f} ms, {max(0, grown) >> 20} MiB more at the peak"
    return tally


def judge(reader: Reader, content: bytes, answer: Any, scratch: Path) -> tuple[list[str], Any]:
    """What is wrong with how a file was read: a foreign error, a message of several lines, another answer."""
    from bayesin.errors import BayesinError

    try:
        found = read_quietly(reader, content, scratch)
    except BayesinError as error:
        text = str(error)
        return (["the message has several lines"] if "\n" in text or not text else []), None
    except Exception as error:
        return [f"{type(error).__name__}: {error!s:.120} from {content[:60]!r}"], None
    if content == reader.content and found != answer:
        return ["the good file was read wrongly"], found
    return [], found


def read_quietly(reader: Reader, content: bytes, scratch: Path) -> Any:
    """Reads content as a file in a folder of its own."""
    folder = scratch / "file"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / reader.filename).write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return reader.read(folder / reader.filename)


def flips(count: int, scratch: Path) -> list[Tally]:
    """Single flipped bits of files with a checksum: each is noticed. `count` of them, evenly spread, for each."""
    tallies = []
    for reader in (reader for reader in READERS.values() if reader.checked):
        tally, size = Tally(f"flipped bit: {reader.name}"), 8 * len(reader.content)
        for number in range(min(count, size)):
            place, damaged = number * size // min(count, size), bytearray(reader.content)
            damaged[place // 8] ^= 1 << (place % 8)
            problems, found = judge(reader, bytes(damaged), None, scratch)
            tally.add(problems + ([f"bit {place} was not noticed"] if found is not None else []))
        tallies.append(tally)
    return tallies


def checkpoints(count: int, scratch: Path) -> list[Tally]:
    """Checkpoints with one file cut, flipped, emptied, swapped or gone: the bits that were written, or none."""
    from bayesin.errors import BayesinError

    tally, draws, kept = Tally("damaged checkpoint"), random.Random(3), 0
    folder = scratch / "checkpoint"
    shutil.copytree(FIXTURES / "checkpoint-v1", folder)
    answer = checkpoint(folder)
    for _ in range(count):
        shutil.rmtree(folder)
        shutil.copytree(FIXTURES / "checkpoint-v1", folder)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        chosen = draws.choice(files)
        if draws.random() < 0.1:
            chosen.unlink()
        else:
            chosen.write_bytes(mutate(chosen.read_bytes(), [path.read_bytes() for path in files], draws))
        try:
            found = checkpoint(folder)
            kept += found is not None
            tally.add([] if found in (None, answer) else [f"other bits after damage to {chosen.name}"])
        except BayesinError as error:
            tally.add([] if str(error) else ["no message"])
        except Exception as error:
            tally.add([f"{type(error).__name__}: {error!s:.120} after damage to {chosen.name}"])
    tally.note = f"{kept} damages did not matter, {tally.tries - kept} refused"
    return [tally]


def _peak() -> int:
    gc.collect()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1024 if sys.platform == "linux" else 1)
