"""Ctrl-C and SIGTERM as a request that is granted at the next good moment; a second one is not waited for.

While compiled code runs, Python's handlers wait for its end. A thread that is told of signals at once answers
meanwhile, and ends the process where it was asked twice: files are whole or absent, so nothing is torn.
"""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

AGAIN = "interrupted; run the same command again to go on"
GRACE = 2.0  # seconds that a second request leaves for an orderly end
NUMBERS = (signal.SIGINT, signal.SIGTERM)
made: list[str] = []  # folders whose results have become whole in this call: whoever stops it now loses nothing


def interrupted() -> str:
    """What a verb that was stopped says."""
    return f"interrupted; the result in {made[-1]} is whole" if made else AGAIN


class Stop:
    """Whether someone asked to stop, and whether there is work that a good moment would save."""

    def __init__(self):
        self.asked = self.patient = self.over = False

    def check(self) -> None:
        """Raises KeyboardInterrupt where someone did; from the first such moment on, requests wait for the next."""
        if self.asked:
            raise KeyboardInterrupt
        self.patient = True


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Turns the first SIGINT or SIGTERM into a request while `patient` is set; any other one interrupts at once."""
    stop = Stop()

    def handle(number: int, frame: Any) -> None:
        if stop.asked or not stop.patient:
            raise KeyboardInterrupt
        stop.asked = True

    hears, tells = socket.socketpair()
    tells.setblocking(False)
    before = {number: signal.signal(number, handle) for number in NUMBERS}
    earlier = signal.set_wakeup_fd(tells.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(hears, stop), daemon=True).start()
    try:
        yield stop
    finally:
        stop.over = True
        signal.set_wakeup_fd(earlier)
        for number, handler in before.items():
            signal.signal(number, handler)
        tells.close()  # which ends the thread


def _watch(hears: socket.socket, stop: Stop) -> None:
    count = 0
    with hears:
        while number := hears.recv(1):
            if number[0] not in NUMBERS:
                continue
            count += 1
            if count == 1 and stop.patient and sys.stderr.isatty():
                sys.stderr.write("\nstopping as soon as this interval is saved; once more stops at once\n")
            if count == 2:
                time.sleep(GRACE)
                if not stop.over:
                    sys.stderr.write("bayesin: stopped at once; run the same command again to go on\n")
                    sys.stderr.flush()
                    os._exit(130)
