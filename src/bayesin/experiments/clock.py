"""Where the time went: seconds by stage."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Clock:
    """Adds up the seconds that blocks of each name took.

    Example:
        >>> clock = Clock()
        >>> with clock("align"):
        ...     pass
        >>> list(clock.seconds)
        ['align']
    """

    def __init__(self):
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
