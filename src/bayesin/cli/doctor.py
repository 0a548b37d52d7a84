"""`bayesin doctor`: what this machine has, what is missing, and how to mend it."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from rich.markup import escape

from .checks import CHECKS, Check
from .main import Common
from .output import Output

COLOURS = {"ok": "green", "warning": "yellow", "problem": "bold red"}


@dataclass(frozen=True)
class Doctor(Common):
    """Check Python, JAX and its devices, the solvers, packages, data sets, disk and caches.

    Each line is ok, a warning (something optional is missing, or slower than it could be) or a problem (something
    that every verb needs is broken), with what to do. The exit code is 1 where there is a problem.
    """

    def run(self, out: Output) -> dict[str, Any]:
        checks: list[Check] = []
        with out.progress("examining", len(CHECKS)) as bar:
            for done, (subject, examine) in enumerate(CHECKS.items()):
                bar.update(done, subject)
                checks += _examined(subject, examine)
        out.table("", ["subject", "state", "found"], [_row(check) for check in checks])
        remedies = [check for check in checks if check.remedy]
        if remedies:
            out.table("", ["subject", "what to do"], [[check.subject, escape(check.remedy)] for check in remedies])
        problems = [check for check in checks if check.status == "problem"]
        warnings = sum(check.status == "warning" for check in checks)
        out.line(f"Problems: {len(problems)}, warnings: {warnings}." if problems or warnings else "All is well.")
        if problems and self.quiet:
            out.warn(escape("; ".join(f"{check.subject}: {check.found}" for check in problems)))
        return {"checks": [asdict(check) for check in checks], "exit_code": int(bool(problems))}


def _examined(subject: str, examine: Callable[[], list[Check]]) -> list[Check]:
    """A check that itself fails is a finding too."""
    try:
        return examine()
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0]
        remedy = "pip install --force-reinstall bayesin"
        return [Check(subject, "problem", f"{type(error).__name__}: {first}", remedy)]


def _row(check: Check) -> list[str]:
    colour = COLOURS[check.status]
    return [check.subject, f"[{colour}]{check.status}[/]", escape(check.found)]
