"""Launches that a program makes, as values: they are noted while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields

import numpy as np

from fragmenta.base.arrays.checks import Array
from fragmenta.engine.simt.arguments import as_list
from fragmenta.inspect.sameness.calls import OPTIONS, Call
from fragmenta.inspect.sameness.naming import root_of
from fragmenta.launch.instruments import Instruments
from fragmenta.launch.kernel import Kernel
from fragmenta.launch.listening import before_launches
from fragmenta.launch.request import LaunchRequest


def called(kernel: Kernel, request: LaunchRequest) -> Call:
    """What a launch was asked for, as a call."""
    chosen = {
        each.name: value
        for each in fields(request)
        if each.name in OPTIONS and (value := getattr(request, each.name)) is not None
    }
    arguments = as_list(request.arguments)
    return Call(kernel, request.grid, request.block, arguments, **chosen)


class Stopped(BaseException):
    """A launch was noted, and is not made."""


@contextmanager
def captured(stop: bool = False) -> Iterator[list[Call]]:
    """In this block, all launches are noted; afterwards, arrays are as before them.

    With ``stop``, the first of them is noted, and the block ends there.

    >>> import numpy as np
    >>> from fragmenta import ptx
    >>> kernel = ptx.parse('''
    ... .version 8.0 .target sm_80 .address_size 64
    ... .entry nothing(.param .u64 x) { ret; }''').kernels["nothing"]
    >>> with captured() as calls:
    ...     result = kernel.launch(1, 32, [np.zeros(4)])
    >>> calls
    [Call(nothing, grid 1, block 32)]
    """
    found: list[Call] = []
    before: dict[int, tuple[Array, Array]] = {}

    def note(kernel: Kernel, request: LaunchRequest) -> None:
        if Instruments.of(request.instruments).algebra is not None:
            return
        call = called(kernel, request)
        for each in call.arrays():
            root = root_of(each.array)
            before.setdefault(id(root), (root, root.copy()))
        found.append(call)
        if stop:
            raise Stopped

    try:
        with before_launches(note), suppress(Stopped):
            yield found
    finally:
        for root, old in before.values():
            if root.flags.writeable:
                np.copyto(root, old)
