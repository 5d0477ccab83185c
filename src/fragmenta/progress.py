"""How far along is it?

A bar on the terminal's error stream for work longer than a second; nothing in
a pipe, a file or a test.  And a line there, wherever it goes, when something
that is done once takes longer than that.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Progress = Callable[[float], object]
"""Called with the share of the work that is done, now and then."""


def nobody(done: float) -> None:
    """Nobody wants to know."""


_PATIENCE = 1.0
"""Seconds that need no bar."""


@contextmanager
def notice(text: str) -> Iterator[None]:
    """Say what is being done if it takes more than a second.

    >>> with notice("compiling the f16 kernel, once"):
    ...     pass  # quick: nothing is said
    """
    timer = threading.Timer(
        _PATIENCE, lambda: print(f"fragmenta: {text}", file=sys.stderr, flush=True)
    )
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def bar(title: str) -> Iterator[Progress]:
    """A bar that appears when the work takes more than a second.

    >>> with bar("multiplying") as progress:
    ...     for done in (0.5, 1.0):
    ...         progress(done)
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda _: None
        return
    shown = _Shown(title)
    try:
        yield shown
    finally:
        shown.close()


class _Shown:
    """Starts rich's bar late, so that short work shows none."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._start = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __call__(self, done: float) -> None:
        if self._bar is None:
            if time.monotonic() - self._start < _PATIENCE or done >= 1:
                return
            self._open()
        self._bar.update(self._task, completed=done)

    def _open(self) -> None:
        from rich.console import Console
        from rich.progress import Progress as RichProgress

        self._bar = RichProgress(console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(self._title, total=1.0)
        self._bar.start()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
