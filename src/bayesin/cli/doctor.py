"""`bayesin doctor`: what this machine has, what is missing, and how to mend it."""

from dataclasses import asdict, dataclass
from typing import Any

from ..lab import machine
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
        checks: list[machine.Check] = []
        with out.progress("examining", len(machine.CHECKS)) as bar:
            for done, subject in enumerate(machine.CHECKS):
                bar.update(done, subject)
                checks += machine.examine(subject)
        rows = [[check.subject, check.status, check.found] for check in checks]
        out.table("", ["subject", "state", "found"], rows, COLOURS)
        remedies = [check for check in checks if check.remedy]
        if remedies:
            out.table("", ["subject", "what to do"], [[check.subject, check.remedy] for check in remedies])
        problems = [check for check in checks if check.status == "problem"]
        warnings = sum(check.status == "warning" for check in checks)
        out.line(f"Problems: {len(problems)}, warnings: {warnings}." if problems or warnings else "All is well.")
        if problems and self.quiet:
            out.warn("; ".join(f"{check.subject}: {check.found}" for check in problems))
        return {"checks": [asdict(check) for check in checks], "exit_code": int(bool(problems))}
