"""Lets others hear of every launch: what it did, or why it failed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from fragmenta.errors import KernelError
from fragmenta.launch.frames import origin

if TYPE_CHECKING:
    from fragmenta.launch.kernel import Kernel
    from fragmenta.launch.request import LaunchRequest
    from fragmenta.launch.result import Result

Listener = Callable[["Kernel", "Result | KernelError"], None]
Made = TypeVar("Made", bound="Result")
Launcher = TypeVar("Launcher", bound="Kernel")

_LISTENERS: list[Listener] = []
Before = Callable[["Kernel", "LaunchRequest"], None]
_BEFORE: list[Before] = []
"""Who is told of a launch before it runs."""


def told(
    launch: Callable[[Launcher, LaunchRequest], Made],
) -> Callable[[Launcher, LaunchRequest], Made]:
    """A launch that listeners are told of.

    Its errors then say which line of the user's program launched the kernel.
    """

    @functools.wraps(launch)
    def telling(kernel: Launcher, request: LaunchRequest) -> Made:
        for before in _BEFORE:
            before(kernel, request)
        if not _LISTENERS:
            return launch(kernel, request)
        try:
            made = launch(kernel, request)
        except KernelError as error:
            error.origin = error.origin or origin(kernel.name)
            for each in _LISTENERS:
                each(kernel, error)
            raise
        for each in _LISTENERS:
            each(kernel, made)
        return made

    return telling


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """In this block, a listener is told of every launch of this process.

    >>> with listening(lambda kernel, result: print(kernel.name)):
    ...     pass
    """
    _LISTENERS.append(listener)
    try:
        yield
    finally:
        _LISTENERS.remove(listener)


@contextmanager
def before_launches(listener: Before) -> Iterator[None]:
    """In this block, a listener is told of every launch before it runs.

    >>> with before_launches(lambda kernel, request: None):
    ...     pass
    """
    _BEFORE.append(listener)
    try:
        yield
    finally:
        _BEFORE.remove(listener)
