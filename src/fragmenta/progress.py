"""How far along is it?

Work that takes longer than a second shows a progress bar on the error stream,
if that is a terminal.  Work that is done once, such as compiling, prints one
line on the error stream instead, also if that is not a terminal.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Progress = Callable[[float], object]
"""A function that is called now and then with the share of the work that is done."""


def ignore_progress(done: float) -> None:
    """Does nothing; the default where no progress is shown."""


_PATIENCE = 1.0
"""Seconds before a bar or a line is shown."""


@contextmanager
def notice(text: str) -> Iterator[None]:
    """Print what is being done if it takes more than a second.

    >>> with notice("compiling the f16 kernel, once"):
    ...     pass  # quick, so nothing is printed
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
    """A bar that starts late, so that short work shows none."""

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
