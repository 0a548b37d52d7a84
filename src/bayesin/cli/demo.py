"""`bayesin demo`: two posteriors of the digits, the barrier between them, and its end."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .main import Common
from .output import Output


@dataclass(frozen=True)
class Demo(Common):
    """Trains two posteriors on the embedded digits, aligns them, and writes a page that shows what changed.

    Needs no data and no network, and takes about a minute on two cores.
    """

    out: Path = Path("demo")
    """Folder for the page, the figures, the posteriors and all numbers."""
    key: int = 0
    """Seed of everything that is random."""

    def run(self, out: Output) -> dict[str, Any]:
        from ..experiments.demo import DemoProgress, run_demo
        from ..report.demo import result, table, write_demo_report

        with out.progress("demo", 100) as bar:

            def tell(progress: DemoProgress) -> None:
                bar.update(round(100 * progress.overall), f"{progress.stage} {progress.note}".strip())

            demo = run_demo(self.out, self.key, on_progress=tell)
            bar.update(100, "report")
            page = write_demo_report(self.out, demo)
        out.table("Two posteriors of the digits", ["", "measured"], table(demo))
        out.line(f"Open {page.resolve().as_uri()}")
        return result(demo, page)
