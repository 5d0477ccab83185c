"""Locks that a forked process can take.

A process may fork while another of its threads compiles or launches.  The child has a
copy of every lock as it was, but not the thread that would release it.  So this package
uses :class:`Lock`, and the child starts with all of them released.  What they guard is
changed in one step at the end of the work, so it is whole there.

LLVM has a lock of its own around all its calls, and its memory may be half changed
while one runs.  A fork therefore waits until no thread is inside LLVM.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import cached_property
from threading import RLock
from typing import Protocol
from weakref import WeakSet


class Lock:
    """A lock that is released in a forked child.

    >>> guard = Lock()
    >>> with guard:
    ...     pass
    """

    def __init__(self) -> None:
        self._held = RLock()
        _LOCKS.add(self)

    def renew(self) -> None:
        """Release it, no matter which thread held it."""
        self._held = RLock()

    def __enter__(self) -> None:
        self._held.acquire()

    def __exit__(self, *_: object) -> None:
        self._held.release()


_LOCKS: WeakSet[Lock] = WeakSet()


def _llvm() -> AbstractContextManager[object] | None:
    """The lock around LLVM's calls; nothing if LLVM was never used."""
    ffi = sys.modules.get("llvmlite.binding.ffi")
    return getattr(getattr(ffi, "lib", None), "_lock", None)


_held_while_forking: list[AbstractContextManager[object]] = []


def _before() -> None:
    lock = _llvm()
    if lock is not None:
        lock.__enter__()
        _held_while_forking.append(lock)


def _after() -> None:
    if _held_while_forking:
        _held_while_forking.pop().__exit__(None, None, None)


class _Locked(Protocol):
    lock: RLock


def _properties() -> Iterator[_Locked]:
    """The cached properties of this package; before Python 3.12 each has a lock."""
    for name, module in [*sys.modules.items()]:
        if name.partition(".")[0] != "fragmenta" or module is None:
            continue
        for made in [*vars(module).values()]:
            if isinstance(made, type):
                yield from (
                    each
                    for each in vars(made).values()
                    if isinstance(each, cached_property) and hasattr(each, "lock")
                )


def _in_child() -> None:
    _after()
    for lock in [*_LOCKS]:
        lock.renew()
    for each in _properties():
        each.lock = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=_after, after_in_child=_in_child
    )
