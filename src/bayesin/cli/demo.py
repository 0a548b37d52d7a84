"""`bayesin demo`: two posteriors of the digits, the barrier between them, and its end."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..file_sets import replaced_already
from .main import Common
from .output import Output

SHARED = ("config.json", "provenance.json", "barrier.json", "alignment.safetensors", "report.json", "report.html")
OWN = "plane.json"  # which no other verb writes


@dataclass(frozen=True)
class Demo(Common):
    """Trains two posteriors on the embedded digits, aligns them, and writes a page that shows what changed.

    Needs no data and no network, and takes about half a minute on two cores.
    """

    out: Path = Path("demo")
    """Folder for the page, the figures, the posteriors and all numbers."""
    key: int = 0
    """Seed of everything that is random."""

    def run(self, out: Output) -> dict[str, Any]:
        from ..lab.demo import SETS, DemoProgress, run_demo
        from ..lab.machine import use_one_thread
        from ..lab.report import write_demo_report
        from .output_dir import result_folder

        _check_folder(self.out)
        use_one_thread()
        with out.progress("demo", 100) as bar, result_folder(self.out, [], [], force=True) as place:

            def tell(progress: DemoProgress) -> None:
                bar.update(round(100 * progress.overall), f"{progress.stage} {progress.note}".strip())

            demo = run_demo(place, self.key, on_progress=tell)
            bar.update(100, "writing the page")
            page = self.out / write_demo_report(place, demo).name
        out.table("Two posteriors of the digits", ["", "measured"], _rows(demo, SETS))
        out.line(f"Open {page.resolve().as_uri()}")
        return _result(demo, page)


def _check_folder(folder: Path) -> None:
    """Refuses a folder with the files of something else, which would be replaced; an earlier demo may be."""
    taken = [name for name in SHARED if (folder / name).exists()]
    if taken and not (folder / OWN).is_file() and not replaced_already(folder):
        raise ConfigError(f"--out {folder} holds {taken[0]} of something else than a demo; choose another folder")


def _rows(demo: Any, sets: dict[str, str]) -> list[list[str]]:
    first, second = demo.accuracies
    moved, units = demo.units_moved
    rows = [["test accuracy", f"{100 * first:.1f} % and {100 * second:.1f} %"]]
    for name, kinds in demo.barriers.items():
        naive, aligned = ((kinds[kind].value, kinds[kind].standard_error) for kind in ("naive", "aligned"))
        share = f" ({100 * aligned[0] / naive[0]:.1f} %)" if naive[0] > 0 else ""
        rows.append([f"barrier without alignment, {sets[name]}", "{:.3f} ± {:.3f} nats".format(*naive)])
        rows.append([f"barrier after alignment, {sets[name]}", "{:.3f} ± {:.3f} nats".format(*aligned) + share])
        if "rescaled" in kinds:
            height = kinds["rescaled"].value, kinds["rescaled"].standard_error
            rows.append([f"barrier, aligned and rescaled, {sets[name]}", "{:.3f} ± {:.3f} nats".format(*height)])
    rows.append(["units moved", f"{moved} of {units}"])
    rows.append(["largest change of an output by moving them", f"{demo.function_change:.1e} of the largest"])
    rows.append(["seconds", f"{sum(demo.seconds.values()):.0f}"])
    return rows


def _result(demo: Any, page: Path) -> dict[str, Any]:
    barriers = {
        name: {kind: {"value": one.value, "standard_error": one.standard_error} for kind, one in kinds.items()}
        for name, kinds in demo.barriers.items()
    }
    return {
        "page": str(page),
        "accuracy": list(demo.accuracies),
        "barrier": barriers,
        "units_moved": demo.units_moved[0],
        "units": demo.units_moved[1],
        "function_gap": demo.function_change,
        "converged": demo.alignment.converged,
        "seconds": {name: round(value, 2) for name, value in demo.seconds.items()},
        "settings": asdict(demo.settings),
        "key": demo.key,
    }
