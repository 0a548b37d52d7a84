"""What every fit is given: a model and settings of its own kind; anything else is refused in one line."""

from typing import Any

from ..errors import ConfigError, ModelError
from ..keys import check_key


def check_given(verb: str, key: Any, model: Any, config: Any, kind: type) -> None:
    """Raises unless key, model and settings are what the fit takes.

    Raises:
        ConfigError: no key, or settings of another method.
        ModelError: a network of some framework that has not gone through its adapter.
    """
    check_key(key)
    if not all(hasattr(model, name) for name in ("init", "apply", "statistics")):
        raise ModelError(
            f"{verb} takes a bayesin Model, not {type(model).__name__}; models.from_nnx, from_linen, from_equinox, "
            "from_haiku and from_functions make one"
        )
    if not isinstance(config, kind):
        raise ConfigError(f"{verb} takes the settings {kind.__name__}(...), not {type(config).__name__}")
