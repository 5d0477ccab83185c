"""Settings of a thread that hold while a block of code runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Setting = TypeVar("Setting")


@contextmanager
def held(variable: ContextVar[Setting], value: Setting) -> Iterator[None]:
    """A variable has a value in this block.

    >>> loud = ContextVar("loud", default=False)
    >>> with held(loud, True):
    ...     print(loud.get())
    True
    >>> loud.get()
    False
    """
    before = variable.set(value)
    try:
        yield
    finally:
        variable.reset(before)
