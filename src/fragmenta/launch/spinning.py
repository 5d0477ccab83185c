"""Finds the words of memory on which lanes spin, when a kernel does not end.

Lanes spin if they repeat a load or an atomic operation, and do nothing in between that
others can see.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fragmenta.ptx.flow import successors
from fragmenta.ptx.module import Address, Function, Instruction, Module, Register
from fragmenta.races.probes.polling import quiet, spins
from fragmenta.simt.layout import LANES
from fragmenta.simt.program import program


class Spun(NamedTuple):
    """A load or an atomic operation that lanes repeat."""

    instruction: Instruction
    address: int
    """Of the first of the lanes."""
    several: bool
    """Whether other lanes have other addresses."""


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
        wide = np.uint64 if goal.base.type.endswith("64") else np.uint32
        start = self._placed.units[function].registers[goal.base.number]
        values = warp[start : start + LANES * np.dtype(wide).itemsize].view(wide)
        addresses = [int(values[lane]) + goal.offset for lane in lanes]
        return Spun(instruction, addresses[0], len(set(addresses)) > 1)


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
    >>> repeated(function, 2), repeated(function, 0)
    (1, None)
    """
    after, seen, left = successors(function), set[int](), [index]
    while left:
        place = left.pop()
        if place in seen or place >= len(function.instructions):
            continue
        seen.add(place)
        instruction = function.instructions[place]
        words = set(instruction.qualifiers)
        if instruction.opcode in ("ld", "atom") and not words & _ELSEWHERE:
            if spins(function, place):
                return place
        elif quiet(instruction):
            left += after[place]
    return None


_ELSEWHERE = frozenset({"param", "const", "local"})
"""Memory that no other thread changes."""
