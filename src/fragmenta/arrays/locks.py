"""Locks that a forked process can take.

A child of ``fork`` has one thread.  A lock that another thread of the parent held would
stay locked in it for ever.
"""

from __future__ import annotations

import os
import threading


class ForkLock:
    """A lock that is free in a forked child, whoever held it in the parent.

    >>> with ForkLock() as lock:
    ...     lock.held
    True
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = os.getpid()

    def _own(self) -> threading.Lock:
        if self._process != os.getpid():  # only one thread can be here: the child's
            self._lock, self._process = threading.Lock(), os.getpid()
        return self._lock

    def __enter__(self) -> ForkLock:
        self._own().acquire()
        return self

    def __exit__(self, *error: object) -> None:
        self._own().release()

    @property
    def held(self) -> bool:
        """Whether a thread of this process has it."""
        return self._own().locked()
