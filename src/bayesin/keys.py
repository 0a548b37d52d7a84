"""Random keys: explicit everywhere, and a number in their place is refused with what to write instead."""

from typing import Any

from .errors import ConfigError


def check_key(key: Any) -> None:
    """Raises `ConfigError` for what is no key of `jax.random`.

    Example:
        >>> check_key(0)
        Traceback (most recent call last):
        bayesin.errors.ConfigError: a key comes from jax.random, not 0; write jax.random.key(0)
    """
    if not hasattr(key, "dtype") or not hasattr(key, "shape"):
        instead = f"jax.random.key({key})" if isinstance(key, int) and key >= 0 else "jax.random.key(0)"
        raise ConfigError(f"a key comes from jax.random, not {key!r:.60}; write {instead}")
