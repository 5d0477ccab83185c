"""Finds the words of memory on which lanes spin, when a kernel does not end.

Lanes spin if they repeat a load or an atomic operation, and do nothing in between that
others can see.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.program import program
from fragmenta.ptx.dataflow import onward, reached
from fragmenta.ptx.families import BARRIERS, FETCHES
from fragmenta.ptx.flow import successors
from fragmenta.ptx.module import (
    Address,
    Function,
    Immediate,
    Instruction,
    Module,
    Register,
    type_bytes,
)


class Spun(NamedTuple):
    """A load or an atomic operation that lanes repeat."""

    instruction: Instruction
    address: int
    """Of the first of the lanes."""
    several: bool
    """Whether other lanes have other addresses."""
    at: tuple[str, int]
    """The function, and the number of the instruction in it."""
    until: tuple[str, int] | None = None
    """How the word is compared, and with which number, if that ends the loop."""
    counts: bool = False
    """Whether the kernel adds ones to words: those who arrive are counted."""


class Spinning:
    """The loops of a kernel on words of memory."""

    def __init__(self, module: Module, kernel: str) -> None:
        self.module = module
        self._placed = program(module, kernel)

    def found(
        self, warp: np.ndarray, function: str, index: int, lanes: list[int]
    ) -> Spun | None:
        """What some lanes of a warp spin on, from an instruction on, if they do."""
        code = self.module.functions[function]
        at = repeated(code, index)
        if at is None:
            return None
        instruction = code.instructions[at]
        goal = next(e for e in instruction.operands if isinstance(e, Address))
        if not isinstance(goal.base, Register):
            return None
        values = self._values(warp, function, goal.base)
        addresses = [int(values[lane]) + goal.offset for lane in lanes]
        several = len(set(addresses)) > 1
        until = self._until(warp, function, at, lanes[0])
        counts = any(map(_counts, code.instructions))
        made = instruction, addresses[0], several, (function, at)
        return Spun(*made, until, counts)

    def _values(
        self, warp: np.ndarray, function: str, register: Register
    ) -> np.ndarray:
        """What a register is in each lane."""
        wide = np.uint64 if type_bytes(register.type) == 8 else np.uint32
        start = self._placed.units[function].registers[register.number]
        return warp[start : start + LANES * np.dtype(wide).itemsize].view(wide)

    def _until(
        self, warp: np.ndarray, function: str, at: int, lane: int
    ) -> tuple[str, int] | None:
        """What the loop on a word waits for, if that is a number."""
        # A launch that is not watched loads nothing of the race detector.
        from fragmenta.watch.races.probes.polling import condition

        found = condition(self.module.functions[function], at)
        if found is None or found.mask != -1:
            return None
        if isinstance(found.against, Immediate):
            return found.compare, int(found.against.value)
        assert isinstance(found.against, Register)
        if type_bytes(found.against.type) not in (4, 8):
            return None
        return found.compare, int(self._values(warp, function, found.against)[lane])


def _counts(instruction: Instruction) -> bool:
    """Whether an instruction adds one to a word."""
    words = instruction.qualifiers
    if not instruction.is_update or not {"add", "inc"} & set(words):
        return False
    last = instruction.operands[-1]
    return "inc" in words or (isinstance(last, Immediate) and last.value == 1)


def repeated(function: Function, index: int) -> int | None:
    """The load or atomic operation that is repeated from an instruction on.

    >>> from fragmenta.ptx.reading import parse
    >>> function = parse('''
    ... .version 8.0
    ... .target sm_80
    ... .entry f(.param .u64 at) {
    ...     .reg .pred %p; .reg .b32 %r; .reg .b64 %d;
    ...     ld.param.u64 %d, [at];
    ... L:  ld.acquire.gpu.global.u32 %r, [%d];
    ...     setp.eq.u32 %p, %r, 0;
    ...     @%p bra L;
    ...     ret;
    ... }''').functions["f"]
    >>> repeated(function, 2), repeated(function, 4)
    (1, None)
    """
    following = _reached(function, [index])
    return next((each for each in following if _repeats(function, each)), None)


def _reached(function: Function, start: list[int]) -> Iterator[int]:
    """The instructions that are executed from some on, up to one that others see."""
    # A launch that is not watched loads nothing of the race detector.
    from fragmenta.ptx.opcodes.kinds import kind_of
    from fragmenta.watch.races.probes.polling import quiet

    def passes(instruction: Instruction) -> bool:
        kind = kind_of(instruction.mnemonic).word
        passed = instruction.opcode in _PASSED or kind in ("loads", "exchanges")
        return passed or quiet(instruction)

    return reached(start, onward(function, passes))


def _repeats(function: Function, place: int) -> bool:
    """Whether an instruction reads a word that others may change, again and again."""
    instruction = function.instructions[place]
    if not instruction.is_read or set(instruction.qualifiers) & _ELSEWHERE:
        return False
    return place in _reached(function, list(successors(function)[place]))


_PASSED = FETCHES | BARRIERS
"""What may stand in a loop on a word, besides loads, exchanges and calculations."""
_ELSEWHERE = frozenset({"param", "const", "local"})
"""Memory that no other thread changes."""
