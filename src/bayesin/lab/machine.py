"""This machine: where compiled programs are kept, and what the doctor examines.

Every check is a function that returns one or several findings; `CHECKS` lists them.
"""

import importlib
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import linear_sum_assignment

from ..data import NAMES, SOURCES, home, locate
from ..errors import DataError, first_line
from ..files import cache_folder
from ..matching import assign, solver_name

OLDEST_PYTHON = (3, 11)
SPARE = 2 << 30  # bytes that a campaign and its data sets need; under a tenth of it nothing can be written safely
# Distributions whose module has another name, or a sub-module that shows better whether they work.
MODULES = {"orbax-checkpoint": "orbax.checkpoint", "scikit-learn": "sklearn.datasets"}
# Without these, some verbs work differently or not at all, but all others do.
SPARED = {
    "blackjax": "no HMC",
    "requests": "no downloads of data sets",
    "filelock": "no limit to the cache of compiled programs",
    "plotly": "no interactive report",
    "matplotlib": "no figures",
    "orbax-checkpoint": "no checkpoints",
    "scikit-learn": "no digits data set",
}
OPTIONAL = {"dm-haiku": ("haiku", "Haiku models"), "ray": ("ray", "campaigns on several machines")}


@dataclass(frozen=True)
class Check:
    """A finding: its subject, how grave it is, what was found, and what to do about it."""

    subject: str
    status: Literal["ok", "warning", "problem"]
    found: str
    remedy: str = ""


def use_compilation_cache() -> Path | None:
    """Turns the cache on, in the user's cache folder unless JAX was told another; None where it cannot be written."""
    if os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return Path(os.environ["JAX_COMPILATION_CACHE_DIR"])
    folder = cache_folder("compiled")
    try:
        if folder is None:
            return None
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    if not os.access(folder, os.W_OK):
        return None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
    if find_spec("filelock") is not None:  # JAX cannot count without it, and warns at every entry
        jax.config.update("jax_compilation_cache_max_size", 2 << 30)  # the least recently used go first
        _remove_half_programs(folder)
    return folder


def _remove_half_programs(folder: Path) -> None:
    """Removes programs without the time of their last use, which JAX writes behind them.

    A process was killed in between, or the disk was full. JAX would keep no program any more, and say so at each.
    """
    import filelock

    def halves() -> list[Path]:
        return [path for path in folder.glob("*-cache") if not path.with_name(f"{path.name[:-6]}-atime").is_file()]

    # Under JAX's own lock, or the program that a living process is just writing would be one of them.
    with suppress(OSError, filelock.Timeout):
        if halves():
            with filelock.FileLock(folder / ".lockfile", timeout=0):
                for path in halves():
                    path.unlink(missing_ok=True)


def use_one_thread() -> None:
    """Starts JAX with one CPU thread, unless NPROC says otherwise; without effect once it has started.

    Steps of a few milliseconds, as those of the demo, gain nothing from a second thread, and where other processes
    want the cores, threads that wait for each other take far longer.
    """
    if "NPROC" in os.environ:
        return
    os.environ["NPROC"] = "1"  # read when the backend starts, and not meant for processes that this one starts
    try:
        jax.devices()
    finally:
        del os.environ["NPROC"]


def examine(subject: str) -> list[Check]:
    """The findings about one of `CHECKS`; a check that itself fails is a finding too."""
    try:
        return CHECKS[subject]()
    except Exception as error:
        remedy = "pip install --force-reinstall bayesin"
        return [Check(subject, "problem", f"{type(error).__name__}: {first_line(error)}", remedy)]


def python() -> list[Check]:
    """The interpreter."""
    version = platform.python_version()
    if sys.version_info < OLDEST_PYTHON:
        return [Check("Python", "problem", version, "bayesin needs Python 3.11 or newer")]
    return [Check("Python", "ok", f"{version}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores")]


def packages() -> list[Check]:
    """What `pip install bayesin` should have brought: each is imported, and its version compared."""
    checks, fine = [], 0
    for name, oldest in _required():
        if name == "lapx":  # the solver's own check knows more
            continue
        problem = _import_problem(MODULES.get(name, name.replace("-", "_")))
        version = _version(name)
        if problem is None and version is not None and _numbers(version) < _numbers(oldest):
            problem = f"version {version} is older than {oldest}"
        if problem is None:
            fine += 1
            continue
        spared = SPARED.get(name)
        checks.append(
            Check(
                name,
                "warning" if spared else "problem",
                f"{problem}; {spared}" if spared else problem,
                f"pip install --upgrade '{name}>={oldest}'",
            )
        )
    return [Check("packages", "ok", f"{fine} of {fine + len(checks)} as needed"), *checks]


def optional() -> list[Check]:
    """What only some people need; missing is no fault."""
    here = [name for name, (module, _) in OPTIONAL.items() if _import_problem(module) is None]
    absent = [f"{name} ({use})" for name, (_, use) in OPTIONAL.items() if name not in here]
    text = "; ".join([*([", ".join(here)] if here else []), *([f"not here: {', '.join(absent)}"] if absent else [])])
    return [Check("optional", "ok", text)]


def accelerators() -> list[Check]:
    """JAX: its version, its devices, and one computation."""
    devices = jax.devices()
    names = ", ".join(sorted({f"{device.platform} ({device.device_kind})" for device in devices}))
    text = f"jax {jax.__version__}, {f'{len(devices)} × ' if len(devices) > 1 else ''}{names}"
    if float(jnp.sum(jnp.arange(100.0) @ jnp.ones((100, 2)))) != 9900.0:
        return [Check("JAX", "problem", f"{text}; computes wrongly", "reinstall jax and jaxlib of one version")]
    if jax.default_backend() == "cpu" and Path("/dev/nvidia0").exists():
        return [Check("JAX", "warning", f"{text}; the NVIDIA GPU is not used", "pip install --upgrade 'jax[cuda12]'")]
    return [Check("JAX", "ok", text)]


def solver() -> list[Check]:
    """The assignment solver: lapx, and not lap, which installs the same module; compared with scipy."""
    similarity = np.random.default_rng(0).normal(size=(32, 32))
    rows = np.arange(32)
    best = similarity[linear_sum_assignment(-similarity)].sum()
    mend = "pip uninstall --yes lap lapx && pip install lapx"
    if not np.isclose(similarity[rows, assign(similarity).perm].sum(), best):
        return [Check("solver", "problem", f"{solver_name()} and scipy disagree", mend)]
    if solver_name() == "scipy" and _import_problem("lap") is not None:
        return [Check("solver", "warning", "scipy alone; lapx is about three times faster", "pip install lapx")]
    if solver_name() == "scipy":
        return [Check("solver", "warning", "the module 'lap' is not of lapx; scipy is used instead", mend)]
    if _version("lap") is not None:
        return [Check("solver", "warning", "lap and lapx are both installed and overwrite each other", mend)]
    return [Check("solver", "ok", f"{solver_name()} {_version('lapx') or ''}, agrees with scipy")]


def data() -> list[Check]:
    """Which data sets are here; their content is left to `bayesin data check`."""
    here, partial, absent = [], [], []
    for name in NAMES:
        place = locate(SOURCES[name]) if name in SOURCES else None
        if name not in SOURCES or (place and not place.missing(SOURCES[name])):
            here.append(name)
        elif place:
            lacking = ", ".join(place.missing(SOURCES[name]))
            text = f"{place.folder} lacks {lacking}"
            partial.append(Check(f"data: {name}", "warning", text, f"bayesin data fetch {name}"))
        else:
            absent.append(name)
    if not absent:
        return [Check("data", "ok", ", ".join(here)), *partial]
    text = f"{', '.join(here)}; not here: {', '.join(absent)}"
    return [Check("data", "warning", text, f"bayesin data fetch {absent[0]}"), *partial]


def disk() -> list[Check]:
    """Free space and the right to write, here and where data sets are kept."""
    here = _folder("this folder", Path.cwd(), "work in a folder of your own")
    mend = "set BAYESIN_DATA to a folder of your own"
    try:
        return [here, _folder("data folder", home(), mend)]
    except DataError as error:  # a user without a home folder
        return [here, Check("data folder", "warning", str(error), mend)]


def compilation_cache() -> list[Check]:
    """Where compiled programs are kept between runs."""
    folder, mend = use_compilation_cache(), "set JAX_COMPILATION_CACHE_DIR to a folder of your own"
    if folder is None:
        text = "off: the user's cache folder cannot be written, so that every run compiles anew"
        return [Check("compilation cache", "warning", text, mend)]
    return [_folder("compilation cache", folder, mend)]


CHECKS: dict[str, Callable[[], list[Check]]] = {
    "Python": python,
    "packages": packages,
    "optional": optional,
    "JAX": accelerators,
    "solver": solver,
    "data": data,
    "disk": disk,
    "compilation cache": compilation_cache,
}


def _folder(subject: str, folder: Path, remedy: str) -> Check:
    """Free space of a folder, or of the nearest one above it that exists, and whether files can be made there."""
    place = folder.absolute()
    while not place.is_dir() and place != place.parent:
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place):
            free = shutil.disk_usage(place).free
    except OSError as error:
        return Check(subject, "problem", f"{folder} cannot be written: {error.strerror or error}", remedy)
    text = f"{folder}, {free / 2**30:,.1f} GiB free"
    if free < SPARE:
        return Check(subject, "warning" if free > SPARE // 10 else "problem", text, "make room on this disk")
    return Check(subject, "ok", text)


def _required() -> list[tuple[str, str]]:
    """Name and least version of every dependency, as the installed package declares them."""
    try:
        lines = metadata.requires("bayesin") or []
    except metadata.PackageNotFoundError:
        return [("jax", "0"), ("flax", "0"), ("equinox", "0"), ("numpy", "0"), ("scipy", "0")]
    matches = [re.match(r"([A-Za-z0-9._-]+)\s*(?:>=\s*([0-9.]+))?", line) for line in lines if "extra ==" not in line]
    return [(match[1], match[2] or "0") for match in matches if match]


def _import_problem(module: str) -> str | None:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        return "not installed" if module.split(".")[0] == missing.split(".")[0] else f"needs '{missing}'"
    except Exception as error:
        return f"cannot be imported: {first_line(error)}"
    return None


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
