"""How programs are compiled and run: a cache on disk, and one thread where a second one only waits."""

import os
from importlib.util import find_spec
from pathlib import Path

import jax


def use_compilation_cache() -> Path | None:
    """Turns the cache on, in the user's cache folder unless JAX was told another; None where it cannot be written."""
    if os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return Path(os.environ["JAX_COMPILATION_CACHE_DIR"])
    folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "bayesin" / "compiled"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    if not os.access(folder, os.W_OK):
        return None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
    if find_spec("filelock") is not None:  # JAX cannot count without it, and warns at every entry
        jax.config.update("jax_compilation_cache_max_size", 2 << 30)  # the least recently used go first
    return folder


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
