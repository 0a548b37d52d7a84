"""The persistent compilation cache: a program compiled once is read from disk the next time."""

import os
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
    jax.config.update("jax_compilation_cache_max_size", 2 << 30)  # the least recently used go first
    return folder
