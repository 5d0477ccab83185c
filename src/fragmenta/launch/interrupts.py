"""Ctrl-C during a launch: held back, and raised where it cannot be lost."""

from __future__ import annotations

import signal
import threading


class Interrupts:
    """Holds Ctrl-C back until the launch asks for it.

    Python raises ``KeyboardInterrupt`` in whichever frame runs, also in a callback of
    machine code, where it would be lost.
    """

    def __init__(self) -> None:
        self._seen = False
        self._installed = False

    def __enter__(self) -> None:
        own = threading.current_thread() is threading.main_thread()
        if own and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._note)
            self._installed = True

    def __exit__(self, *error: object) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self._installed = False
        if error[0] is None:
            self.check()

    def _note(self, *_: object) -> None:
        self._seen = True

    def check(self) -> None:
        """Raise a ``KeyboardInterrupt`` that was held back, in the main thread only."""
        if self._seen and threading.current_thread() is threading.main_thread():
            self._seen = False
            raise KeyboardInterrupt
