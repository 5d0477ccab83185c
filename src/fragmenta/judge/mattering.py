"""What a kernel computes must be seen to matter.

Launches count how the results of instructions differ.  An instruction that gave the
same result whatever it got, a part of a sum that was always lost, a choice that was
always the same: what it does in other cases was not seen.  So it was not judged.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

from fragmenta.counters.code.layout import VALUES
from fragmenta.counters.code.results import parts
from fragmenta.judge.roots import (
    ENDS,
    MEMORY,
    SMALL,
    THREAD,
    UNBOUND,
    Roots,
    registers,
    where,
)
from fragmenta.ptx.module import INSTALLED, Function, Immediate, Instruction

Counts = Counter[tuple[int, str]]
LOST = 6
"""Bits of places that a division may take away, and give the same for all that ran."""
_WORD = 1 << 64
_MOVES = frozenset(
    [
        *(
            "ld",
            "ldu",
            "mov",
            "cvta",
            "atom",
            "call",
            "shfl",
            "ldmatrix",
            "mma",
            "wmma",
        ),
        *("vote", "match", "tex", "setp", "wgmma", "tcgen05", "elect", "mapa", "redux"),
        *("mbarrier", "barrier", "clusterlaunchcontrol", "selp", "prmt", "wmma"),
        "_factors",  # of a quotient: the product of the two is looked at
    ]
)
"""What brings numbers from elsewhere, or is looked at in another way."""


class Mattering:
    """What the instructions of one function gave in all launches."""

    def __init__(self, function: Function, counts: Counts, roots: Roots) -> None:
        self._function, self._counts, self._roots = function, counts, roots
        self._writers: dict[int, list[int]] = {}
        for at, each in enumerate(function.instructions):
            for number in registers(each.operands[0]) if each.operands else ():
                self._writers.setdefault(number, []).append(at)
        self._lost = self._lost_bits()

    def told(self) -> Iterator[str]:
        """What never mattered, in words."""
        for at, each in enumerate(self._function.instructions):
            ran = self._counts[at, "made"] or each.opcode in _CONDITIONS
            if not ran or self._is_library(each):
                continue
            why = self._why(at, each)
            if why:
                yield f"{where(self._function, each)}: `{each.mnemonic}` {why}"

    def _is_library(self, instruction: Instruction) -> bool:
        if self._function.name.startswith(("__internal_", "__nv_")):
            return True
        source = instruction.source
        return source is not None and INSTALLED.search(source.file) is not None

    def _why(self, at: int, each: Instruction) -> str:
        if each.opcode in _CONDITIONS and "pred" in each.qualifiers:
            return self._condition(at, each)
        if each.opcode not in _MOVES and self._is_same(at, each):
            return "gave the same for all numbers"
        return self._part(at, each)

    # ── results ─────────────────────────────────────────────────────────────

    def _only(self, at: int) -> int | None:
        """The one result of an instruction; None if it had several."""
        made, total, squares = (self._counts[at, each] for each in VALUES[:3])
        if not made or total % made:
            return None
        one = total // made
        return one if (made * one * one - squares) % _WORD == 0 else None

    def varied(self, operand: object) -> bool:
        """Whether an operand was not the same in all lanes and launches."""
        if isinstance(operand, Immediate):
            return False
        found: set[int] = set()
        for number in registers(operand):
            for at in self._writers.get(number, ()):
                if not self._counts[at, "made"]:
                    ways = self._counts[at, "on"], self._counts[at, "off"]
                    if self._counts[at, "lanes"] and (all(ways) or not any(ways)):
                        return True
                    continue
                one = self._only(at)
                if one is None:
                    return True
                found.add(one)
        return len(found) > 1

    def _is_same(self, at: int, each: Instruction) -> bool:
        """Whether it gave one result, though it got several numbers."""
        if self._only(at) is None or not any(map(self.varied, each.operands[1:])):
            return False
        kinds = self._roots.kinds_of(each)
        if MEMORY in kinds:  # zero and infinity leave nothing of other numbers
            given = [e for e in each.operands if isinstance(e, Immediate)]
            return not any(isinstance(e.value, float) and e.bits in ENDS for e in given)
        if kinds <= {THREAD} or self._lost[at] <= LOST:
            return False
        # A size that divides may be larger than all that was divided.
        return not any(map(self.varied, each.operands[2:]))

    def _lost_bits(self) -> list[float]:
        """How many bits of a place each result has lost, on the longest way."""
        lost = [0.0] * len(self._function.instructions)
        for _ in range(4):
            for at, each in enumerate(self._function.instructions):
                given = [
                    lost[of]
                    for operand in each.operands[1:]
                    for number in registers(operand)
                    for of in self._writers.get(number, ())
                    if of < at
                ]
                if each.opcode != "ld":
                    lost[at] = max(given, default=0.0) + self._loss(each)
        return lost

    def _loss(self, each: Instruction) -> float:
        """How many bits an instruction takes away, also by a number that is fixed."""
        fixed = each.opcode in ("div", "rem") and self._roots.is_fixed(
            each.operands[-1]
        )
        if fixed:
            return math.log2(max(1, self._roots.of(each.operands[-1])[1]))
        return _own_loss(each)

    # ── parts ───────────────────────────────────────────────────────────────

    def _part(self, at: int, each: Instruction) -> str:
        """Whether a part of a sum, a product or an extreme never mattered."""
        found = parts(each)
        if found is None or self._only(at) is not None:
            return ""
        given = [each.operands[number] for number in found.operands]
        lost: list[list[Any]] = [given[1:], given[:1]]
        if found.form == "fused":
            lost = [given[:2], given[2:]]
        names = VALUES[3:] if each.opcode not in ("sub", "div") else VALUES[3:4]
        kinds = self._roots.kinds_of(each)
        for name, operands in zip(names, lost, strict=False):
            if self._counts[at, name]:
                continue
            fixed = each.opcode in ("min", "max") and MEMORY in kinds
            if each.opcode == "rem" and self._loss(each) > LOST:
                return "gets a part that never mattered"
            if self._is_mask(each, kinds):
                continue
            if found.form == "fused" and any(map(self._is_low_part, operands)):
                continue
            if any(map(self.varied, operands)) or (fixed and _is_inside(operands)):
                return "gets a part that never mattered"
        return ""

    def _is_low_part(self, operand: object) -> bool:
        """Whether it is the rest of a constant of CUDA, behind its float."""
        if isinstance(operand, Immediate):
            return operand.bits in _LOW_PARTS
        made = [at for n in registers(operand) for at in self._writers.get(n, ())]
        return bool(made) and all(self._only(at) in _LOW_PARTS for at in made)

    def _is_mask(self, each: Instruction, kinds: set[str]) -> bool:
        """Whether it takes the last bits of a size or a place, as compilers do."""
        given = [e.value for e in each.operands if isinstance(e, Immediate)]
        small = [
            e for e in given if isinstance(e, int) and min(abs(e), abs(~e)) < SMALL
        ]
        return MEMORY not in kinds and bool(small)

    # ── choices ─────────────────────────────────────────────────────────────

    def _condition(self, at: int, each: Instruction) -> str:
        on, off = self._counts[at, "on"], self._counts[at, "off"]
        if not on + off or (on and off):
            return ""
        given = each.operands[1:]
        bounded = any(UNBOUND not in self._roots.of(operand)[0] for operand in given)
        if bounded or not all(map(self.varied, given)):
            return ""
        return f"was always {'true' if on else 'false'}"


_SIGN = 27
"""Shifts from this one on are of signs."""
_CONDITIONS = frozenset(["and", "or", "xor"])


def _own_loss(instruction: Instruction) -> float:
    """How many bits an instruction takes away at the low end."""
    given = [
        e.value
        for e in instruction.operands[1:]
        if isinstance(e, Immediate) and isinstance(e.value, int)
    ]
    if not given:
        return 0.0
    last = abs(given[-1])
    if instruction.opcode in ("shr", "bfe"):
        by = given[0] if instruction.opcode == "bfe" else last
        return 0.0 if by >= _SIGN else float(by)  # else it takes the sign
    if instruction.opcode == "mul" and "hi" in instruction.qualifiers and last:
        return max(0.0, 32 - math.log2(min(last, 1 << 32)))
    if instruction.opcode in ("div", "rem") and last:
        return math.log2(last)
    if instruction.opcode == "and" and last:
        return float((last & -last).bit_length() - 1)
    if instruction.opcode in ("shl", "mul", "mad"):
        return -math.log2(max(1, 1 << last if instruction.opcode == "shl" else last))
    return 0.0


_LOW_PARTS = (0x32A57060, 0x33A22168, 0xB3A22168, 0x27C234C5, 0xA7C234C5, 0x35BFBE8E)
"""What is behind the floats of log2(e), pi/2 and ln(2): CUDA adds its products."""
_LARGEST = 3e38


def _is_inside(operands: list[object]) -> bool:
    """Whether a constant of ``min`` or ``max`` is no end of all numbers."""
    for each in operands:
        if isinstance(each, Immediate):
            value = each.value
            if isinstance(value, float) and abs(value) < _LARGEST:
                return True
    return False
