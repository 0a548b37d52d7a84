"""Ctrl-C and SIGTERM as a request that is granted at the next good moment; a second one is not waited for."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Stop:
    """Whether someone asked to stop."""

    def __init__(self):
        self.asked = False

    def check(self) -> None:
        """Raises KeyboardInterrupt where someone did."""
        if self.asked:
            raise KeyboardInterrupt


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Turns the first SIGINT or SIGTERM into a request; the second one interrupts at once."""
    stop = Stop()

    def handle(number: int, frame: Any) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        stop.asked = True
        if sys.stderr.isatty():
            sys.stderr.write("\nstopping as soon as this interval is saved; once more stops at once\n")

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
