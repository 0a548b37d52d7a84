"""Where a run's numbers come from: versions, device, commit."""

import importlib.metadata
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax

PACKAGES = ("jax", "jaxlib", "flax", "optax", "equinox", "orbax-checkpoint", "numpy", "scipy")


def provenance() -> dict[str, Any]:
    """Returns versions, device and commit of this process."""
    from .. import __version__

    devices = jax.devices()
    return {
        "bayesin": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "machine": f"{platform.system()} {platform.machine()}",
        "device": devices[0].device_kind,
        "devices": len(devices),
        "backend": jax.default_backend(),
    }


def now() -> str:
    """The time, in UTC to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of the sources, with a + where they were changed; None where there is no repository."""
    folder = Path(__file__).resolve().parents[3]
    if not (folder / ".git").exists():
        return None
    try:
        run = lambda *words: subprocess.run(  # noqa: E731
            ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()
        return run("rev-parse", "HEAD") + ("+" if run("status", "--porcelain", "--", "src") else "")
    except (OSError, subprocess.SubprocessError):
        return None
