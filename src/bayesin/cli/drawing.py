"""Whether a page can be drawn on this machine; numbers never wait for it."""

from importlib.util import find_spec

from .output import Output

NEEDED = ("plotly", "matplotlib")


def can_draw(out: Output) -> bool:
    """Whether the libraries of the page are here; says what to install where they are not."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        out.warn(f"no page is written: pip install {' '.join(missing)}; --no-page says that none is wanted")
    return not missing
