"""Finds aligned instructions that only a part of a warp runs.

Only what is certain is reported.  A register that is written once, from ``%tid.x`` or
``%laneid`` and constants, has known values in every lane.  If a branch depends on it
and lanes of one warp take different paths, then the code between the branch and the
block where all paths meet again runs with a part of the warp.  ``elect.sync`` chooses
one lane.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TypeAlias

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.ptx.checking.register_effects import writers
from fragmenta.ptx.dataflow import region
from fragmenta.ptx.flow import BasicBlock, postdominators
from fragmenta.ptx.module import (
    Function,
    Immediate,
    Instruction,
    Not,
    Operand,
    Pair,
    Register,
    Special,
)

WARP = 32
_WARPS = 4
"""How many warps are checked, if the kernel does not say how many it has."""
Lanes: TypeAlias = tuple[int, ...]
"""One value for each thread of the first warps."""

_BITS = 32
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "lo": operator.lt,
    "ls": operator.le,
    "hi": operator.gt,
    "hs": operator.ge,
}
_COMPUTE: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shl": lambda a, b: a << min(b & 0xFFFFFFFF, 64),
    "shr": lambda a, b: a >> min(b & 0xFFFFFFFF, 64),
}


def is_aligned(of: Instruction) -> bool:
    """Whether all threads of a warp have to run it together."""
    if of.opcode == "bar":
        return "warp" not in of.qualifiers
    return "aligned" in of.qualifiers


@dataclass
class Divergence:
    """What is known about the lanes of a function."""

    function: Function
    threads: int = WARP * _WARPS
    _once: Mapping[int, Instruction] = field(init=False)
    _known: dict[int, Lanes | None] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        sizes = self.function.directives.get("reqntid", ())
        if sizes and all(isinstance(each, int) for each in sizes):
            total = 1
            for each in sizes:
                total *= int(each)
            self.threads = min(total, 1024)
        code = self.function.instructions
        self._once = {
            number: code[places[0]]
            for number, places in writers(self.function).items()
            if len(places) == 1 and code[places[0]].guard is None
        }

    # ── values ──────────────────────────────────────────────────────────────

    def splits(self, guard: Register | Not) -> bool:
        """Whether a predicate surely differs between lanes of one warp."""
        register = guard.of if isinstance(guard, Not) else guard
        made = self._once.get(register.number)
        if made is not None and made.opcode == "elect":
            return self.threads > 1
        lanes = self.value(register)
        if lanes is None:
            return False
        return any(
            len(set(lanes[start : start + WARP])) > 1
            for start in range(0, len(lanes), WARP)
        )

    def value(self, of: Operand, depth: int = 0) -> Lanes | None:
        """The value of an operand in each thread, if it is known."""
        if isinstance(of, Immediate) and of.form == "int":
            return (int(of.value),) * self.threads
        if isinstance(of, Special):
            return self._special(of.name)
        if isinstance(of, Not):
            lanes = self.value(of.of, depth)
            return None if lanes is None else tuple(1 - each for each in lanes)
        if not isinstance(of, Register) or depth > 50:
            return None
        if of.number not in self._known:
            self._known[of.number] = None  # until it is known; also ends a cycle
            made = self._once.get(of.number)
            if made is not None:
                self._known[of.number] = self._result(made, of, depth + 1)
        return self._known[of.number]

    def _special(self, name: str) -> Lanes | None:
        sizes = self.function.directives.get(
            "reqntid", ()
        ) or self.function.directives.get("maxntid", ())
        if name == "%laneid":
            return tuple(each % WARP for each in range(self.threads))
        if name == "%tid.x" and all(each == 1 for each in sizes[1:]):
            return tuple(range(self.threads))
        return None

    def _result(self, made: Instruction, of: Register, depth: int) -> Lanes | None:
        if (made.is_move or made.is_conversion) and len(made.operands) == 2:
            return self._copied(made, depth)
        if made.opcode in _COMPUTE and len(made.operands) == 3:
            return self._computed(made, depth)
        if made.opcode == "not" and made.qualifiers == ("pred",):
            lanes = self.value(made.operands[1], depth)
            return None if lanes is None else tuple(1 - each for each in lanes)
        if made.is_comparison and len(made.operands) == 3:
            return self._compared(made, depth)
        return None

    def _copied(self, made: Instruction, depth: int) -> Lanes | None:
        if any(word[0] == "f" or word.startswith("bf") for word in made.qualifiers):
            return None
        return self.value(made.operands[1], depth)

    def _computed(self, made: Instruction, depth: int) -> Lanes | None:
        kind = made.qualifiers[-1]
        if kind not in ("u32", "s32", "b32", "pred") or made.qualifiers[0] in (
            "hi",
            "wide",
        ):
            return None
        if any(word in ("cc", "sat") for word in made.qualifiers):
            return None
        one, other = (self.value(each, depth) for each in made.operands[1:])
        if one is None or other is None:
            return None
        compute = _COMPUTE[made.opcode]
        if kind == "pred":
            return tuple(compute(a, b) & 1 for a, b in zip(one, other, strict=True))
        signed = kind == "s32"
        return tuple(
            _whole(compute(_whole(a, signed), _whole(b, signed)), signed)
            for a, b in zip(one, other, strict=True)
        )

    def _compared(self, made: Instruction, depth: int) -> Lanes | None:
        if isinstance(made.operands[0], Pair) or len(made.qualifiers) != 2:
            return None
        word, kind = made.qualifiers
        if word not in _COMPARE or kind not in ("u32", "s32", "b32"):
            return None
        one, other = (self.value(each, depth) for each in made.operands[1:])
        if one is None or other is None:
            return None
        signed = kind == "s32"
        return tuple(
            int(_COMPARE[word](_whole(a, signed), _whole(b, signed)))
            for a, b in zip(one, other, strict=True)
        )

    # ── places ──────────────────────────────────────────────────────────────

    def partial(self, made: Sequence[BasicBlock]) -> Iterator[tuple[int, int]]:
        """Instructions that a part of a warp runs, and the branch that splits it."""
        code = self.function.instructions
        if not any(map(is_aligned, code)):
            return
        for index, each in enumerate(code):
            if is_aligned(each) and each.guard is not None and self.splits(each.guard):
                yield index, index
        meets: dict[int, int | None] | None = None
        for number, block in enumerate(made):
            last = code[block.end - 1]
            if last.opcode != "bra" or last.guard is None or len(block.after) < 2:
                continue
            if not self.splits(last.guard):
                continue
            if meets is None:
                meets = postdominators(made)
            if number not in meets:
                continue
            for index in region(made, block.after, meets[number]):
                if is_aligned(code[index]):
                    yield index, block.end - 1


def _whole(number: int, signed: bool) -> int:
    """A number in 32 bits."""
    number &= (1 << _BITS) - 1
    return number - (1 << _BITS) if signed and number >> (_BITS - 1) else number
