"""Progress of work that takes long, on the error stream.

Work that takes longer than a second shows a progress bar, if the error stream is a
terminal.  Work that is done once, such as compiling, prints one line instead, also
if that is not a terminal.  A launch prints lines that say how far it is.  The
environment variable ``FRAGMENTA_PATIENCE`` changes the second: it is a number of
seconds, or ``never``.

The lines are messages of the logger ``fragmenta``.  A program that gives it a handler
or a level decides where they go; otherwise they go to the error stream.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fragmenta.errors import Error

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

Progress = Callable[[float], object]
"""A function that is called now and then with the share of the work that is done."""

VARIABLE = "FRAGMENTA_PATIENCE"
NEVER = "never"


class Clock:
    """The clock that decides whether work takes long.

    Tests put another one in its place (``tests/clock.py``), so that no test depends on
    how fast the machine is.
    """

    def now(self) -> float:
        """Seconds since some moment."""
        return time.monotonic()

    def after(self, seconds: float, call: Callable[[], object]) -> Callable[[], object]:
        """Call a function later; what is returned calls it off."""
        timer = threading.Timer(seconds, call)
        timer.daemon = True
        timer.start()
        return timer.cancel


clock = Clock()


def ignore_progress(done: float) -> None:
    """Does nothing; the default where no progress is shown."""


def patience() -> float:
    """Seconds before a bar or a line is shown.

    >>> patience() >= 0
    True
    """
    given = os.environ.get(VARIABLE, "1")
    if given == NEVER:
        return math.inf
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < threading.TIMEOUT_MAX:
        raise Error(
            f"{VARIABLE} is {given!r}; it is a number of seconds from 0, or {NEVER!r}"
        )
    return seconds


def log() -> logging.Logger:
    """The logger of the package, with a handler if the program has given it none.

    >>> log().name
    'fragmenta'
    """
    found = logging.getLogger("fragmenta")
    if not found.handlers:
        found.addHandler(_ErrorStream())
        found.propagate = False
    if found.level == logging.NOTSET:
        found.setLevel(logging.INFO)
    return found


class _ErrorStream(logging.Handler):
    """Writes messages to what is the error stream when they come."""

    def emit(self, record: logging.LogRecord) -> None:
        if sys.stderr is not None:
            print(f"fragmenta: {record.getMessage()}", file=sys.stderr, flush=True)


@contextmanager
def notice(text: str) -> Iterator[None]:
    """Print what is being done if it takes more than a second.

    >>> with notice("compiling the f16 kernel, once"):
    ...     pass  # quick, so nothing is printed
    """
    seconds = patience()
    if seconds == math.inf:
        yield
        return
    call_off = clock.after(seconds, lambda: log().info(text))
    try:
        yield
    finally:
        call_off()


@contextmanager
def lines(title: str) -> Iterator[Progress]:
    """Print how much is done, and how long the rest may take, if it takes long.

    There is a line after a second, and another whenever ten times as long has passed.

    >>> with lines("launching softmax") as progress:
    ...     progress(0.5)  # quick, so nothing is printed
    """
    told = _Lines(title, patience())
    try:
        yield told
    finally:
        told.close()


_TIMES = 10
"""How much more time passes before the next line."""
_FIRST = 1.0
"""The second line comes after ten times this, if patience is shorter."""


class _Lines:
    """How far work is, in lines.

    What comes before the first report, such as compiling, does not count: the rest is
    estimated by the time between two reports.
    """

    def __init__(self, title: str, patience: float) -> None:
        self._title, self._next = title, patience
        self._from: tuple[float, float] | None = None
        self._last = 0.0, 0.0
        self._call_off: Callable[[], object] = int
        self._lock = threading.Lock()
        self._wait(patience)

    def __call__(self, done: float) -> None:
        now = clock.now()
        with self._lock:
            if done > 0 and (self._from is None or done < self._last[1]):
                self._from = now, done
            elif not done:  # it begins, perhaps once more
                self._from = None
            self._last = now, done

    def _wait(self, seconds: float) -> None:
        if seconds < threading.TIMEOUT_MAX:
            self._call_off = clock.after(seconds, self._tell)

    def _tell(self) -> None:
        with self._lock:
            said = self._words()
        log().info(said)
        passed = max(_FIRST, self._next)
        self._next = passed * _TIMES
        self._wait(self._next - passed)

    def _words(self) -> str:
        now, (when, done) = clock.now(), self._last
        if self._from is None or done <= self._from[1]:
            return self._title
        start, before = self._from
        left = (1 - done) * (when - start) / (done - before) - (now - when)
        return f"{self._title}: {done:.0%} done, about {_shown(max(0.0, left))} left"

    def close(self) -> None:
        self._call_off()


def _shown(seconds: float) -> str:
    """A time in the unit that fits.

    >>> _shown(7.6), _shown(100), _shown(10_000)
    ('8 s', '2 min', '2.8 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


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
        self._start = clock.now() + patience()
        self._bar: RichProgress | None = None

    def __call__(self, done: float) -> None:
        if self._bar is None:
            if clock.now() < self._start or done >= 1:
                return
            self._bar = self._open()
        self._bar.update(self._bar.task_ids[0], completed=done)

    def _open(self) -> RichProgress:
        from rich.console import Console
        from rich.progress import Progress as RichProgress

        bar = RichProgress(console=Console(stderr=True), transient=True)
        bar.add_task(self._title, total=1.0)
        bar.start()
        return bar

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
