"""Hours in one process: every step of the work over and over, while memory, files and open files do not grow.

`python -m torture soak` takes an hour; `--count 10` a tenth of it.
"""

import gc
import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

from .common import Tally
from .verbs import BARRIER, CHAIN, METHODS, SHORT

GROWTH = 64 << 20  # bytes that may be gained after the first tenth, by caches that fill up
FILES = 4  # open files likewise
POINTS = 20  # of the curve of memory
VERBS = 20  # rounds from one to the next in which the verbs run as well, which take as long as all the others


def soak(count: int, scratch: Path) -> list[Tally]:
    """`count` seconds of saving, reading, aligning, measuring, folding, writing pages and refusing bad files."""
    tally = Tally("soak: rounds of all steps in one process")
    began = time.monotonic()
    work = _Work(scratch / "soak")
    curve: list[tuple[int, int, int]] = []  # one point after each twentieth of the time
    while time.monotonic() < began + count or tally.tries < 2:
        tally.add(work.round(tally.tries))
        if time.monotonic() > began + count * (len(curve) + 1) / POINTS:
            curve.append(work.stand())
    now = work.stand()
    early = curve[1] if len(curve) > 1 else now
    grown, opened, left = (after - before for after, before in zip(now, early, strict=True))
    tally.losses += [f"grew by {grown >> 20} MiB"] if grown > GROWTH else []
    tally.losses += [f"{opened} more open files"] if opened > FILES else []
    tally.losses += [f"{left} more files on the disk"] if left else []
    tally.note = (
        f"{count} s at load {os.getloadavg()[2]:.0f}, {time.process_time():.0f} CPU s; "
        f"{grown / 2**20:+.1f} MiB, {opened:+d} open files and {left:+d} files after the first tenth; "
        f"MiB after each twentieth: {' '.join(str(memory >> 20) for memory, *_ in curve)}"
    )
    return [tally]


class _Work:
    def __init__(self, folder: Path):
        from bayesin import PermutationSpec

        axes = {"w0": ["16", "g0"], "w1": ["g0", "g1"], "w2": ["g1", "10"]}
        self.folder, self.spec = folder, PermutationSpec.parse(axes, {"g0": 32, "g1": 32})
        draws = np.random.default_rng(0)
        self.x, self.y = draws.standard_normal((50, 16), np.float32), draws.integers(0, 10, 50)

    def stand(self) -> tuple[int, int, int]:
        """Resident bytes, open files, and files on the disk, hidden ones too."""
        gc.collect()
        memory = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return memory, len(os.listdir("/proc/self/fd")), sum(1 for _ in self.folder.rglob("*"))

    def round(self, number: int) -> list[str]:
        """One round; what went wrong in it."""
        import jax

        from bayesin import Gaussian, Samples, align, align_files, barrier, compact, evaluate, geodesic, merge
        from bayesin.errors import BayesinError
        from bayesin.file_sets import replaced_together
        from bayesin.lab.report import write_page, write_report
        from bayesin.store import load_alignment, load_posterior, save_alignment, save_posterior

        draws, key, problems = np.random.default_rng(number), jax.random.key(number), []
        ends = [Gaussian(self._weights(draws), self._weights(draws, 0.05)) for _ in range(2)]
        with replaced_together(self.folder) as place:
            paths = [save_posterior(place / f"{at}.safetensors", end, spec=self.spec) for at, end in enumerate(ends)]
            first, second = (load_posterior(path) for path in paths)
            found: Any = align(first, second, self.spec, key=key)
            curve = barrier(geodesic(first, found.posterior), _apply, (self.x, self.y), key=key, samples=2, taus=3)
            stack = {name: np.stack([leaf] * 3) for name, leaf in ends[0].mean.items()}
            folded = compact(Samples(stack), self.spec, key=key)
            problems += [] if folded.spread_after < 1e-6 else ["equal samples have a spread"]
            merged = merge([first, second], self.spec, key=key)
            evaluate(merged.posterior, _apply, (self.x, self.y), key=key, samples=2)
            streamed = align_files(*paths, place / "moved.safetensors", key=key)
            problems += [] if streamed.objective == found.objective else ["another objective from file to file"]
            save_alignment(place / "alignment.safetensors", found.perms, self.spec)
            kept = load_alignment(place / "alignment.safetensors").perms
            same = all(np.array_equal(kept[name], found.perms[name]) for name in kept)
            problems += [] if same else ["an alignment came back as another"]
            report = {"barrier": {"sets": {"test": {"naive": curve.to_json()}}}}
            write_report(place, {"title": "soak", **report})
            write_page(place / "report.html", [place])
        bad = self.folder / "0.safetensors"
        bad.write_bytes(bad.read_bytes()[: number % 900])
        try:
            load_posterior(bad)
            problems.append("half a file was read")
        except BayesinError:
            pass
        return problems + (self._verbs(number // VERBS) if number % VERBS == 0 else [])

    def _verbs(self, number: int) -> list[str]:
        """Every verb that makes a result, in this process, with new keys; the methods of training take turns."""
        from bayesin.cli.main import main

        methods = {"vi": SHORT, "hmc": CHAIN}
        methods |= {name: [*SHORT, "--method", name, *flags] for name, flags in METHODS.items()}
        flags = [*methods.values()][number % len(methods)]
        verbs, key = self.folder / "verbs", ["--quiet", "--key", str(number)]
        pair = [f"{verbs / 'two'}#0", f"{verbs / 'two'}#1"]
        commands = [
            [*flags, *key, "--out", str(verbs / "run")],
            [*SHORT, *key, "--members", "2", "--out", str(verbs / "two")],
            [*SHORT, *key, "--method", "ensemble", "--members", "3", "--out", str(verbs / "many")],
            [*BARRIER, *pair, *key, "--out", str(verbs / "barrier")],
            ["try", *pair, "--samples", "2", "--taus", "3", *key, "--out", str(verbs / "try")],
            ["align", *pair, *key, "--out", str(verbs / "align")],
            ["merge", *pair, "--samples", "2", *key, "--out", str(verbs / "merge")],
            ["evaluate", *pair, "--samples", "2", *key, "--out", str(verbs / "evaluate")],
            ["compact", str(verbs / "many"), *key, "--out", str(verbs / "compact")],
            ["report", str(verbs / "barrier"), "--quiet", "--out", str(verbs / "page.html")],
            ["explain", "mlp", "--width", "4", "--quiet", "--out", str(verbs / "spec.json")],
        ]
        codes = [main(command) for command in commands]
        shutil.rmtree(verbs)
        return [f"{' '.join(words)} ended with {code}" for words, code in zip(commands, codes, strict=True) if code]

    def _weights(self, draws: np.random.Generator, scale: float = 1.0) -> dict[str, np.ndarray]:
        shapes = {name: self.spec.shape(name) for name in self.spec.axes}
        return {name: np.abs(scale * draws.standard_normal(shape, np.float32)) for name, shape in shapes.items()}


def _apply(params: Any, x: Any) -> Any:
    import jax

    return jax.nn.relu(jax.nn.relu(x @ params["w0"]) @ params["w1"]) @ params["w2"]
