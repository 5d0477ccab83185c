"""Keeps the engines that hold machine code, and lets LLVM free them safely.

Python calls finalisers in any thread, in any order, and between any two steps of other
code: its garbage collector runs when something is allocated.  LLVM must not be called
there: the collector may free a context before the modules in it, or an engine while
another thread compiles.  So an engine is held here until nobody needs its code.  It is
freed before the next one is made, while no thread compiles.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Protocol

from fragmenta.base.arrays.forking import Lock


class Closable(Protocol):
    """An object of LLVM: ``llvmlite.binding.ffi.ObjectRef``."""

    def close(self) -> None:
        """Free it."""


class LLVMEngine(Closable, Protocol):
    """Holds machine code: ``llvmlite.binding.ExecutionEngine``."""

    def add_object_file(self, file: object) -> None:
        """Add the machine code of an object file."""

    def finalize_object(self) -> None:
        """Link what was added."""

    def get_function_address(self, name: str) -> int:
        """Where the machine code of a function begins."""

    def get_global_value_address(self, name: str) -> int:
        """Where a global variable is."""


_HELD: dict[int, LLVMEngine] = {}
"""All engines, by number: none of them is ever garbage."""
_GIVEN_BACK: deque[int] = deque()
"""Those whose code nobody needs any more."""
_COMPILING: dict[int, int] = {}
"""The threads that compile, and how often they have begun to."""
_GATE = Lock()
_NUMBERS = count()


class Engine:
    """Machine code that stays in memory as long as this object lives."""

    def __init__(self, make: Callable[[], LLVMEngine]) -> None:
        """``make`` makes the engine; no other is freed meanwhile."""
        with _GATE:
            free_engines()
            self._number = next(_NUMBERS)
            _HELD[self._number] = make()

    def get_function_address(self, name: str) -> int:
        """Where the machine code of a function begins."""
        return _HELD[self._number].get_function_address(name)

    def get_global_value_address(self, name: str) -> int:
        """Where a global variable is."""
        return _HELD[self._number].get_global_value_address(name)

    def __del__(self, given_back: deque[int] = _GIVEN_BACK) -> None:
        number = vars(self).get("_number")
        if number is not None:  # it was made
            given_back.append(number)


def free_engines() -> int:
    """Free what nobody needs, unless a thread compiles; how many are left."""
    with _GATE:
        while _GIVEN_BACK and not _COMPILING:
            engine = _HELD.pop(_GIVEN_BACK.popleft(), None)
            if engine is not None:
                engine.close()
        return len(_GIVEN_BACK)


@contextmanager
def compiling() -> Iterator[None]:
    """While this thread is inside LLVM without its lock, nothing is freed."""
    own = threading.get_ident()
    with _GATE:
        _COMPILING[own] = _COMPILING.get(own, 0) + 1
    try:
        yield
    finally:
        with _GATE:
            left = _COMPILING.pop(own, 1) - 1
            if left:
                _COMPILING[own] = left


@contextmanager
def closing(*objects: Closable) -> Iterator[None]:
    """Free objects of LLVM at the end, the last one first.

    If Python's collector found them in a circle, such as that of an error and its
    traceback, it would free them in any order.
    """
    try:
        yield
    finally:
        for each in reversed(objects):
            each.close()


if hasattr(os, "register_at_fork"):  # the threads that compile are not in the child
    os.register_at_fork(after_in_child=_COMPILING.clear)
