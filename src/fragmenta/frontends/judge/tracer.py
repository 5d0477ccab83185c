"""Sees which instructions of a candidate's Python run, in its own process.

Every code object of the candidate's file is traced, instruction by instruction.  What
is kept is which instruction came after which: so a condition that only went one way
shows, also within a line.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

MOST_STEPS = 20_000
"""Instructions of one call of a function that are looked at: loops repeat them."""

Local = Callable[[FrameType, str, Any], Any]


def codes(module: CodeType) -> Iterator[CodeType]:
    """The code of a module and of all functions in it, always in the same order.

    >>> [each.co_name for each in codes(compile("f = lambda x: x", "f.py", "exec"))]
    ['<module>', '<lambda>']
    """
    yield module
    for each in module.co_consts:
        if isinstance(each, CodeType):
            yield from codes(each)


class Tracer:
    """The pairs of instructions that came one after the other, by code object."""

    def __init__(self, module: CodeType) -> None:
        self._file = module.co_filename
        self._codes = [*codes(module)]
        self._pairs: dict[CodeType, set[tuple[int, int]]] = {
            each: set() for each in self._codes
        }

    def __enter__(self) -> None:
        """Trace this thread, and those that are started from now on."""
        # Python 3.12 sees instructions only if a frame asks for them before this.
        sys._getframe().f_trace_opcodes = True
        threading.settrace(self._enter)
        sys.settrace(self._enter)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        threading.settrace(None)

    def pairs(self) -> list[list[int]]:
        """What was seen of each code object, as numbers one after the other."""
        return [
            [at for pair in sorted(self._pairs[each]) for at in pair]
            for each in self._codes
        ]

    def _enter(self, frame: FrameType, event: str, given: Any) -> Local | None:
        code = frame.f_code
        if code.co_filename != self._file or code not in self._pairs:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        seen, before, steps = self._pairs[code], -1, 0
        if frame.f_lasti > 0 and event == "call":
            before = -2  # a generator goes on

        def local(frame: FrameType, event: str, given: Any) -> Any:
            nonlocal before, steps
            if event == "opcode":
                at = frame.f_lasti
                seen.add((before, at))
                before, steps = at, steps + 1
                if steps > MOST_STEPS:
                    frame.f_trace_opcodes = False
                    return None
            return local

        return local
