"""Attacks that once got through, each tried again by the commands that showed it, in processes of their own.

`tests/test_red_team.py` holds a test of each within one process; here is what somebody at a terminal meets. The note
of a row is what the last command said, or did.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from .common import Tally

SMALL = ["--preset", "demo", "--members", "2", "--width", "16", "--epochs", "4"]
POINTS = ["--data", "points.npz", "--width", "4", "--depth", "1", "--epochs", "20", "--batch", "20"]
SECONDS = 1800  # that a command may take, on a machine with much else to do
CONTROLS = ("\x1b", "\x07", "\x9b")


class Said(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def both(self) -> str:
        return self.out + self.err


class Place:
    """A folder in which an attack works, and the commands that it gives."""

    def __init__(self, folder: Path, made: Path):
        self.folder, self.made, self.said, self.problems = folder, made, Said(0, "", ""), []

    def __truediv__(self, name: str) -> Path:
        return self.folder / name

    def shell(self, line: str, **environment: str | None) -> Said:
        """A line of bash in the folder, in which `B` is bayesin and `P` this Python."""
        begin = f'B() {{ "{sys.executable}" -m bayesin "$@"; }}; P="{sys.executable}"; '
        changed = {name: value for name, value in environment.items() if value is not None}
        kept = {name: value for name, value in os.environ.items() if name not in environment} | changed
        kept["PYTHONPATH"] = os.pathsep.join(sys.path)
        command = ["bash", "-c", begin + line]
        try:
            done = subprocess.run(command, cwd=self.folder, env=kept, capture_output=True, timeout=SECONDS)
            self.said = Said(done.returncode, *(text.decode(errors="replace") for text in (done.stdout, done.stderr)))
        except subprocess.TimeoutExpired:
            self.said = Said(-1000, "", "it hung")
        for word in ("Traceback", "unexpected ", "it hung"):
            self.want(word not in self.said.both, f"{line[:60]}: {self.said.both.strip()[-300:]}")
        return self.said

    def python(self, text: str) -> Said:
        """Lines of Python in the folder; what they print last is the note."""
        (self.folder / "attack.py").write_text(text)
        return self.shell('"$P" attack.py')

    def digits(self, name: str = "digits") -> Path:
        """A copy of a run with two members."""
        return Path(shutil.copytree(self.made / "digits", self.folder / name))

    def want(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.problems.append(otherwise)

    def refused(self, *words: str) -> None:
        """The last command must have been, in one line with these words."""
        lines = self.said.err.strip().splitlines()
        self.want(self.said.code in (1, 2), f"ended with {self.said.code}")
        self.want(bool(lines) and lines[-1].startswith("bayesin: "), f"said {self.said.err[-200:]!r}")
        self.want(all(word in self.said.err for word in words), f"said {self.said.err[-200:]!r}, not {words}")


def commands(_: int, scratch: Path, numbers: frozenset[int] = frozenset(range(1, 26))) -> list[Tally]:
    """Every attack of the table, or those of these numbers, once."""
    made = scratch / "made"
    made.mkdir()
    first = Place(made, made)
    first.shell(f"B train {' '.join(SMALL)} --quiet --out digits")
    first.shell("B train --preset demo --method ensemble --members 3 --width 16 --epochs 4 --quiet --out many")
    if first.said.code:
        raise RuntimeError(first.said.both)
    tallies = []
    for name, attack in ATTACKS.items():
        if int(name.partition(" ")[0]) not in numbers:
            continue
        folder = scratch / name.partition(" ")[0]
        folder.mkdir()
        place, tally = Place(folder, made), Tally(f"red team {name}")
        try:
            attack(place)
        except Exception as error:
            place.problems.append(f"{type(error).__name__}: {error}")
        tally.add(place.problems)
        lines = [line for line in place.said.both.strip().splitlines() if line.strip()]
        tally.note = (lines[-1] if lines else "").removeprefix("bayesin: ").replace(f"{folder}/", "")[:200]
        tallies.append(tally)
        sys.stderr.write(f"  {name}: {'; '.join(tally.losses) or 'held'}\n")
    return tallies


def _lock_is_a_link(place: Place) -> None:
    (place / "precious.txt").write_text("precious")
    run = place.digits()
    (run / ".lock").symlink_to(place / "precious.txt")
    place.shell(f"B train {' '.join(SMALL)} --out digits")
    place.refused("link")
    (place / "al").mkdir()
    (place / "al" / ".lock").symlink_to(place / "precious.txt")
    place.shell(f"B align {place.made}/digits#0 {place.made}/digits#1 --out al")
    place.want((place / "precious.txt").read_text() == "precious", "the target was written over")


def _quota(place: Place) -> None:
    pair = f"{place.made}/digits#0 {place.made}/digits#1"
    place.shell(f"B align {pair} --quiet --out al; B compact {place.made}/many --quiet --out co")
    before = _bytes(place / "al") | _bytes(place / "co")
    place.shell(f"(ulimit -f 2; B compact {place.made}/many --key 1 --force --out co)")
    place.refused("cannot write")
    place.shell(f"(ulimit -f 2; B align {pair} --key 1 --force --out al)")
    place.refused("cannot write")
    place.want(_bytes(place / "al") | _bytes(place / "co") == before, "the old result is not what it was")


def _writers(place: Place) -> None:
    text = "from bayesin.json_files import write_json\nfor n in range(300): write_json('x.json', [n] * 50)\n"
    (place / "w.py").write_text(text)
    place.shell('for n in 1 2 3 4; do "$P" w.py & done; wait; cat x.json | wc -l; ls -a | grep -c tmp')
    place.want(place.said.out.split() == ["52", "0"] and not place.said.err, f"writers failed: {place.said}")


def _numbers_and_page(place: Place) -> None:
    pair = f"{place.made}/digits#0 {place.made}/digits#1"
    place.shell(f"B barrier {pair} --samples 2 --taus 3 --quiet --out ba")
    for blocks in (2, 8, 60):  # too little for the numbers, for their page, for neither
        place.shell(f"(ulimit -f {blocks}; B barrier {pair} --samples 3 --taus 5 --quiet --out ba)")
        numbers, page = place / "ba" / "barrier.json", place / "ba" / "report.json"
        points = _points_of(json.loads(numbers.read_text()))
        shown = _points_of(json.loads(page.read_text())["barrier"]) if page.exists() else points  # no page is no lie
        place.want(points == shown, f"{blocks} kB: {points} points in the numbers, {shown} in the page")


def _keys(place: Place) -> None:
    words = "--preset demo --width 4 --epochs 1 --quiet"
    place.shell(f"B train {words} --key 0 --out a; B train {words} --key 4294967296 --out b")
    runs = [(place / name / "posterior-0.safetensors").read_bytes() for name in "ab"]
    place.want(runs[0] != runs[1], "2^32 is 0")
    for key in ("-1", "18446744073709551616"):
        place.shell(f"B train {words} --key={key} --out c")
        place.refused("key")


def _data_changed(place: Place) -> None:
    _points(place / "points.npz", 0)
    place.shell(f"B train {' '.join(POINTS)} --quiet --out run")
    _points(place / "points.npz", 1)
    place.shell(f"B train {' '.join(POINTS)} --out run")
    place.refused("content")


def _namesake(place: Place) -> None:
    for name, seed in (("w1", 0), ("w2", 5)):
        (place / name).mkdir()
        _points(place / name / "points.npz", seed)
    place.shell(f"cd w1; B train {' '.join(POINTS)} --members 2 --quiet --out run")
    line = "B barrier ../w1/run#0 ../w1/run#1 --samples 2 --taus 3 --json"
    right = place.shell(f"cd w1; {line.replace('../w1/', '')} --out ../right")
    elsewhere = place.shell(f"cd w2; {line} --out ../elsewhere")
    if elsewhere.code == 0:
        first, second = (json.loads((place / name / "barrier.json").read_text()) for name in ("right", "elsewhere"))
        place.want(_numbers(first) == _numbers(second), "other numbers in another folder")
    else:
        place.refused("points.npz")
    place.want(right.code == 0, right.err)


def _equal_names(place: Place) -> None:
    place.python(_TRY.format(what="save_posterior('x.safetensors', {1: np.ones(2), '1': np.zeros(2)})"))
    place.want("refused" in place.said.out and not (place / "x.safetensors").exists(), place.said.both)


def _ascii(place: Place) -> None:
    line = f"B barrier {place.made}/digits#0 {place.made}/digits#1 --samples 2 --taus 3"
    for number, flags in enumerate(({"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "LANG": None})):
        place.shell(f"{line} --out {number}", PYTHONCOERCECLOCALE="0", **flags)
        place.want(place.said.code == 0 and (place / str(number) / "barrier.json").exists(), place.said.both)


def _pipe(place: Place) -> None:
    place.shell("B reproduce kl --quiet --runs runs --out kl")
    for run in (place / "runs").glob("*/config.json"):
        os.mkfifo(run.parent / ".lock")
    place.shell("B status runs")
    place.want(place.said.code == 0, place.said.both)


def _promised_inputs(place: Place) -> None:
    params = "{'w': np.zeros((16, 4), np.float32)}"
    model = "{'name': 'mlp', 'input_shape': [2048, 2048], 'classes': 2, 'width': 4, 'depth': 1}"
    place.python(
        "import numpy as np\nfrom bayesin import save_posterior\n"
        f"save_posterior('x.safetensors', {params}, metadata={{'model': {model}}})\n"
    )
    place.shell("(ulimit -v 12000000; time B align x.safetensors x.safetensors --out al)")
    place.want(place.said.code in (1, 2) and "bayesin: " in place.said.err, place.said.both)


def _escapes(place: Place) -> None:
    spec = {"format": "bayesin-spec", "version": 1}
    spec |= {
        "groups": {"g0": 3},
        "parameters": {"w\x07\x1b[31mred": ["g0"]},
        "why": {"w\x07\x1b[31mred": ["\x1b[2J"]},
    }
    (place / "spec.json").write_text(json.dumps(spec))
    place.digits("runs/run")
    record = place / "runs" / "run" / "provenance.json"
    failed = {"status": "failed", "error": "\x1b]0;owned\x07"}
    record.write_text(json.dumps(json.loads(record.read_text()) | failed))
    for line in ("B explain spec.json", "B status runs", "B status runs/run", "B report runs/run --out page"):
        place.shell(line)
        place.want(not any(mark in place.said.both for mark in CONTROLS), f"{line}: control characters")


def _damaged_run(place: Place) -> None:
    run = place.digits()
    before = _bytes(run)
    path = run / "posterior-1.safetensors"
    path.write_bytes(path.read_bytes()[:-5] + b"wrong")
    place.shell(f"B train {' '.join(SMALL)} --out digits")
    names = ("posterior-0.safetensors", "posterior-1.safetensors", "results.json")
    place.want(all(_bytes(run)[name] == before[name] for name in names), "it was not made again")


def _planted_mark(place: Place) -> None:
    pair = f"{place.made}/digits#0 {place.made}/digits#1"
    place.shell(f"B align {pair} --quiet --out al; echo '{{}}' > al/.unfinished")
    before = _bytes(place / "al")
    place.shell(f"B align {pair} --key 1 --out al")
    place.refused("--force")
    place.want({**_bytes(place / "al"), ".unfinished": b"{}\n"} == before, "it was replaced")


def _tiny_weights(place: Place) -> None:
    place.python(_SCALES)
    place.want(place.said.out.split() == ["found"] * 6, place.said.both)


def _narrowed(place: Place) -> None:
    tries = (
        "wasserstein({'w': np.array([1e300])}, {'w': np.array([2e300])})",
        "wasserstein({'w': np.array([1.0])}, {'w': np.array([1 + 1e-9])})",
        "geodesic({'w': np.array([2**40])}, {'w': np.array([2**41])})(0.5)",
    )
    for what in tries:
        place.python(_TRY.format(what=what))
        place.want("refused" in place.said.out, f"{what}: {place.said.both}")


def _labels(place: Place) -> None:
    tries = (
        "from_arrays(np.ones((4, 2)), np.full(4, 'NaT', 'm8[s]'), np.ones((4, 2)), np.full(4, 'NaT', 'm8[s]'))",
        "from_arrays(1e-170 * np.eye(4), np.arange(4) % 2, 1e-170 * np.eye(4), np.arange(4) % 2)",
    )
    for what in tries:
        place.python(_TRY.format(what=what))
        place.want("refused" in place.said.out, f"{what}: {place.said.both}")


def _many_axes(place: Place) -> None:
    place.python(_TRY.format(what="save_posterior('x.safetensors', {'w': np.ones((1,) * 40)})"))
    place.want("refused" in place.said.out and not (place / "x.safetensors").exists(), place.said.both)


def _edited(place: Place) -> None:
    edits = [("results.json", name, value) for name, value in (("members", 3), ("members", [[]]), ("weights", None))]
    edits += [("provenance.json", "files", [1]), ("provenance.json", "train_seconds", "x")]
    edits += [("config.json", "training", [])]
    for number, (name, field, value) in enumerate(edits):
        path = place.digits(str(number)) / name
        path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
        for line in (f"B status {number}", f"B report {number} --out page-{number}"):
            place.shell(line)
            place.want(place.said.code == 0 or name in place.said.both, f"{name} is not named: {place.said.both}")


def _links(place: Place) -> None:
    os.symlink("loop", place / "loop")
    for number, name in enumerate(("a\0b", "x" * 5000, "loop")):
        report = {"format": "bayesin-report", "version": 1, "title": "links", "files": [{"name": name}]}
        (place / str(number)).mkdir()
        (place / str(number) / "report.json").write_text(json.dumps(report))
        place.shell(f"B report {number} --out {number}.html")
        place.want(place.said.code in (0, 1, 2), str(place.said.code))


def _constructor(place: Place) -> None:
    report = {"format": "bayesin-report", "version": 1, "title": "x", "claims": [{"verdict": "constructor"}]}
    (place / "report.json").write_text(json.dumps(report))
    place.shell("B report report.json --out page.html")
    page = (place / "page.html").read_text() if (place / "page.html").exists() else ""
    place.want("Object.hasOwn" in page or place.said.code != 0, "names are looked up among those of every object")


def _no_home(place: Place) -> None:
    """Nobody's number, without a home; the interpreter must be where anybody can read it."""
    line = "import os, pwd, sys; pwd.getpwuid = lambda n: {}[n]; from bayesin.cli.main import main; "
    for verb in ("'data', 'list'", "'doctor'", "'data', 'fetch', 'mnist'"):
        place.shell(f'"$P" -c "{line}sys.exit(main([{verb}]))"', HOME=None, XDG_CACHE_HOME=None, BAYESIN_DATA=None)
    place.refused("home folder")


def _many_groups(place: Place) -> None:
    sizes = {f"g{n}": 1 for n in range(30_000)}
    spec = {"format": "bayesin-spec", "version": 1, "groups": sizes, "parameters": {"w": [*sizes]}}
    (place / "spec.json").write_text(json.dumps(spec))
    place.shell("B explain spec.json")
    place.refused("spec.json")


def _leaves(place: Place) -> None:
    tries = (
        "save_posterior('x.safetensors', {'k': jax.random.key(0)})",
        "save_posterior('x.safetensors', {'m': np.ma.masked_array(np.ones(3), [1, 0, 0])})",
        "Samples({'w': np.zeros((3, 2))})[7]",
    )
    for what in tries:
        place.python(_TRY.format(what=what))
        place.want("refused" in place.said.out or "IndexError" in place.said.out, f"{what}: {place.said.both}")


def _folder_gone(place: Place) -> None:
    for verb in ("doctor", "status .", f"train {' '.join(SMALL)} --out x"):
        place.shell(f"mkdir gone; cd gone; rmdir ../gone; B {verb}")
        place.refused("working folder is gone")


_TRY = """
import jax
import numpy as np
from bayesin import Samples, save_posterior
from bayesin.data import from_arrays
from bayesin.errors import BayesinError
from bayesin.paths import geodesic, wasserstein
try:
    print("accepted:", {what})
except BayesinError as error:
    print("refused:", error)
except IndexError as error:
    print("IndexError:", error)
"""
_SCALES = """
import jax
import numpy as np
from bayesin import Gaussian, PermutationSpec, align, permute
spec = PermutationSpec.parse({"a": ["5", "g0"], "b": ["g0", "3"]}, {"g0": 6})
draws = np.random.default_rng(0)
mean, std = ({name: draws.random(spec.shape(name)) for name in spec.axes} for _ in range(2))
hidden = spec.random(jax.random.key(1))
for cost in ("wasserstein", "kl"):
    for scale in (1e-30, 1e-15, 1e30):
        q = Gaussian(*({n: (scale * leaf).astype(np.float32) for n, leaf in tree.items()} for tree in (mean, std)))
        moved = Gaussian(permute(q.mean, spec, hidden), permute(q.std, spec, hidden))
        perms = align(q, moved, spec, key=jax.random.key(0), cost=cost).perms
        print("found" if np.array_equal(perms["g0"], np.argsort(hidden["g0"])) else "not found")
"""
ATTACKS: dict[str, Callable[[Place], Any]] = {
    "1 lock is a link": _lock_is_a_link,
    "2 --force beyond a quota": _quota,
    "3 four writers of one file": _writers,
    "4 barrier beyond a quota": _numbers_and_page,
    "5 keys of more than 32 bits": _keys,
    "6 data changed after training": _data_changed,
    "7 data with a namesake": _namesake,
    "8 keys 1 and '1' in one tree": _equal_names,
    "9 an ASCII terminal": _ascii,
    "10 lock is a pipe": _pipe,
    "11 inputs that a file promises": _promised_inputs,
    "12 escape sequences in names": _escapes,
    "13 a damaged posterior in a done run": _damaged_run,
    "14 a planted mark": _planted_mark,
    "15 weights of 1e-30 and 1e30": _tiny_weights,
    "16 leaves that JAX would narrow": _narrowed,
    "17 labels that are no times": _labels,
    "18 a leaf with 40 axes": _many_axes,
    "19 edited results and records": _edited,
    "20 odd links in a report": _links,
    "21 a verdict named constructor": _constructor,
    "22 no home": _no_home,
    "23 a spec of 30,000 groups": _many_groups,
    "24 keys, masks and Samples[7]": _leaves,
    "25 a working folder that is gone": _folder_gone,
}


def _points(path: Path, seed: int) -> None:
    import numpy as np

    draws, labels = np.random.default_rng(seed), np.arange(60) % 2
    points = (draws.normal(size=(60, 2)) + 3 * labels[:, None]).astype(np.float32)
    np.savez(path, x_train=points[:40], y_train=labels[:40], x_test=points[40:], y_test=labels[40:])


def _bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _numbers(barrier: Any) -> str:
    return json.dumps(barrier.get("sets", barrier.get("barrier")), sort_keys=True)


def _points_of(barrier: Any) -> int:
    """At how many τ it was measured."""
    curves = next(iter(barrier["sets"].values()))
    return next(len(curve["taus"]) for curve in curves.values() if isinstance(curve, dict) and "taus" in curve)
