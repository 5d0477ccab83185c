"""What a kernel computes must be seen to matter.

Launches count how the results of instructions differ.  An instruction that gave the
same result whatever it got, a part of a sum that was always lost, a choice that was
always the same: what it does in other cases was not seen.  So it was not judged.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fragmenta.frontends.judge.roots import (
    ENDS,
    MEMORY,
    SMALL,
    THREAD,
    UNBOUND,
    Roots,
    registers,
    where,
)
from fragmenta.ptx import flow
from fragmenta.ptx.families import COMPARISONS, FUSED, MOVES, PERMUTATIONS, PRODUCTS
from fragmenta.ptx.module import INSTALLED, Function, Immediate, Instruction
from fragmenta.ptx.opcodes.kinds import computes
from fragmenta.values.counters.code.layout import VALUES
from fragmenta.values.counters.code.results import parts

Counts = Counter[tuple[int, str]]
LOST = 6
"""Bits of places that a division may take away, and give the same for all that ran."""
_WORD = 1 << 64
_MOVES = MOVES | COMPARISONS | PERMUTATIONS | {"cvta", "mapa", "selp"}
"""Calculations that bring numbers from elsewhere, or are looked at in another way."""


class Mattering:
    """What the instructions of one function gave in all launches."""

    def __init__(self, function: Function, counts: Counts, roots: Roots) -> None:
        self.function, self.counts, self.roots = function, counts, roots
        self._writers: dict[int, list[int]] = {}
        for at, each in enumerate(function.instructions):
            for number in registers(each.operands[0]) if each.operands else ():
                self._writers.setdefault(number, []).append(at)
        self._lost = self._lost_bits()
        self._steps: list[list[int]] = []

    def told(
        self, versions: Sequence[Mattering] = (), chooses: bool = True
    ) -> Iterator[str]:
        """What never mattered, in words.

        ``versions`` are others that a compiler made of the same kernel; ``chooses``
        says whether its text can choose for them.
        """
        for at, each in enumerate(self.function.instructions):
            why = self._why(at, each) if self._is_asked(at, each) else ""
            if why and not any(v._was_seen(self, at, chooses) for v in versions):
                yield f"{where(self.function, each)}: `{each.mnemonic}` {why}"

    def _is_asked(self, at: int, each: Instruction) -> bool:
        ran = self.counts[at, "made"] or each.opcode in _CONDITIONS
        return bool(ran) and not self._is_library(each)

    def _is_library(self, instruction: Instruction) -> bool:
        if self.function.name.startswith(("__internal_", "__nv_")):
            return True
        if self.roots.is_inlined(instruction):
            return True
        source = instruction.source
        return source is not None and INSTALLED.search(source.file) is not None

    def _why(self, at: int, each: Instruction) -> str:
        if each.opcode in _CONDITIONS and "pred" in each.qualifiers:
            return self._condition(at, each)
        computed = computes(each.mnemonic) and each.opcode not in _MOVES
        if computed and self._is_same(at, each):
            return "gave the same for all numbers"
        return self._part(at, each)

    # ── versions ────────────────────────────────────────────────────────────

    def _was_seen(self, other: Mattering, at: int, chooses: bool) -> bool:
        """Whether all of this version that computes the same was seen to matter.

        Triton compiles a kernel anew for other sizes: with more elements for each
        thread, or for sizes that 16 divides.  What one version shows counts for another
        if both have the same arithmetic of floats, with the same constants, at the same
        places of the source.  If its text can choose when it is compiled, numbers must
        come the same way, too.
        """
        alike = self._alike(other, at)
        if chooses:
            alike = [e for e in alike if self._origins(e) == other._origins(at)]
        made = self.function.instructions
        lacks = [name for name in VALUES[3:] if not other.counts[at, name]]
        same = other._only(at) is not None
        return bool(alike) and all(
            not self._why(own, made[own])
            and all(self.counts[own, name] for name in lacks if not same)
            and not (same and self._only(own) is not None)
            for own in alike
        )

    def went_both(self, other: Mattering, at: int, chooses: bool) -> bool:
        """Whether a comparison of another version went both ways in this one."""
        return any(
            self.counts[own, "on"] and self.counts[own, "off"]
            for own in self._alike(other, at)
            if not chooses or self._origins(own) == other._origins(at)
        )

    def _alike(self, other: Mattering, at: int) -> list[int]:
        """The instructions that do the same at the same place as one of another."""
        if other is self or self._arithmetic() != other._arithmetic():
            return []
        asked = other.function.instructions[at]
        return [
            own
            for own, each in enumerate(self.function.instructions)
            if each.mnemonic == asked.mnemonic
            and _place(each) == _place(asked)
            and (_constants(each) == _constants(asked) or not each.is_comparison)
            and (self._is_asked(own, each) or each.is_comparison)
        ]

    def _arithmetic(self) -> frozenset[object]:
        """What is done with floats: where, and with which constants."""
        return frozenset(
            (_place(each), each.mnemonic, _constants(each))
            for each in self.function.instructions
            if _is_of_floats(each)
        )

    def _origins(self, at: int) -> list[set[object]]:
        """What each operand was computed with, back to what was loaded."""
        return [
            self._behind(each) for each in self.function.instructions[at].operands[1:]
        ]

    def _behind(self, operand: object) -> set[object]:
        found: set[object] = set()
        left, seen = [*registers(operand)], set[int]()
        while left:
            number = left.pop()
            if number in seen:
                continue
            seen.add(number)
            for at in self._writers.get(number, ()):
                made = self.function.instructions[at]
                kinds = self.roots.kinds_of(made)
                if made.is_load:  # of which argument, in which memory
                    names = frozenset(self.roots.names_of(made.operands[1:]))
                    found.add((made.qualifiers[:1], names))
                elif MEMORY in kinds or _is_of_floats(made):
                    found.add((made.opcode, _constants(made)))
                    left += [n for e in made.operands[1:] for n in registers(e)]
        return found

    # ── results ─────────────────────────────────────────────────────────────

    def _only(self, at: int) -> int | None:
        """The one result of an instruction; None if it had several."""
        made, total, squares = (self.counts[at, each] for each in VALUES[:3])
        if not made or total % made:
            return None
        one = total // made
        return one if (made * one * one - squares) % _WORD == 0 else None

    def _comes_to(self, at: int, register: int, goal: int) -> bool:
        """Whether what is written somewhere was read somewhere else.

        Of a loop that ended after its first step, what the step leaves was not.
        """
        if not self._steps:
            self._steps = self._ways_gone()
        others = {
            each
            for each in self._writers[register]
            if self.function.instructions[each].guard is None
        }
        left, seen = [*self._steps[at]], set[int]()
        while left:
            here = left.pop()
            if here == goal:
                return True
            if here not in seen and here < len(self._steps):
                seen.add(here)
                left += [] if here in others else self._steps[here]
        return False

    def _ways_gone(self) -> list[list[int]]:
        """Where threads went on after each instruction."""
        after = [[*each] for each in flow.successors(self.function)]
        for at, each in enumerate(self.function.instructions):
            on, off = self.counts[at, "on"], self.counts[at, "off"]
            if each.opcode == "bra" and each.guard is not None and not (on and off):
                goals = flow.destinations(self.function, each)
                gone = [*goals] if on else [at + 1]
                after[at] = gone if on + off else after[at]
        return after

    def varied(self, operand: object, before: int = -1) -> bool:
        """Whether an operand was not the same in all lanes and launches.

        ``before``: for this instruction, only what came to it counts.
        """
        if isinstance(operand, Immediate):
            return False
        found: set[int] = set()
        for number in registers(operand):
            for at in self._writers.get(number, ()):
                if before >= 0 and not self._comes_to(at, number, before):
                    continue
                if not self.counts[at, "made"]:
                    ways = self.counts[at, "on"], self.counts[at, "off"]
                    if self.counts[at, "lanes"] and (all(ways) or not any(ways)):
                        return True
                    continue
                one = self._only(at)
                if one is None:
                    return True
                found.add(one)
        return len(found) > 1

    def _is_same(self, at: int, each: Instruction) -> bool:
        """Whether it gave one result, though it got several numbers."""
        several = [*map(self.varied, each.operands[1:])]
        if self._only(at) is None or not any(several) or self._is_of_pair(each):
            return False
        whole = each.is_sum and each.qualifiers[-1][0] in "su"
        if whole and sum(several) == 1:
            # A sum with a constant loses nothing, so one number came here, as to the
            # counter of a loop that makes one step.
            return False
        kinds = self.roots.kinds_of(each)
        if asks_for_high_words(each) and MEMORY not in kinds:
            return False
        if MEMORY in kinds:  # zero and infinity leave nothing of other numbers
            direct = [e for e in each.operands if isinstance(e, Immediate)]
            floats = [e.bits for e in direct if isinstance(e.value, float)]
            if each.opcode in PRODUCTS | FUSED | {"div"} and _is_of_floats(each):
                fixed = map(self._fixed_bits, each.operands[1:])
                floats += [bits for bits in fixed if bits is not None]
            return not {*floats} & {*ENDS}
        if kinds <= {THREAD} or self._lost[at] <= LOST:
            return False
        # A size that divides may be larger than all that was divided.
        return not any(map(self.varied, each.operands[2:]))

    def _is_of_pair(self, each: Instruction) -> bool:
        """Whether all it gets is a half of a register, of which the other half varied.

        Behind the end of a row, one half may be an element and the other none.
        """
        made = [
            self.function.instructions[at]
            for number in registers(each.operands[-1])
            for at in self._writers.get(number, ())
        ]
        pairs = all(m.is_move and len(registers(m.operands[0])) > 1 for m in made)
        return len(each.operands) == 2 and bool(made) and pairs

    def _lost_bits(self) -> list[float]:
        """How many bits of a place each result has lost, on the longest way."""
        lost = [0.0] * len(self.function.instructions)
        for _ in range(4):
            for at, each in enumerate(self.function.instructions):
                given = [
                    lost[of]
                    for operand in each.operands[1:]
                    for number in registers(operand)
                    for of in self._writers.get(number, ())
                    if of < at
                ]
                if not each.is_load:
                    lost[at] = max(given, default=0.0) + self._loss(each)
        return lost

    def _loss(self, each: Instruction) -> float:
        """How many bits an instruction takes away, also by a number that is fixed."""
        fixed = each.opcode in ("div", "rem") and self.roots.is_fixed(each.operands[-1])
        if fixed:
            return math.log2(max(1, self.roots.of(each.operands[-1])[1]))
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
        kinds = self.roots.kinds_of(each)
        for name, operands in zip(names, lost, strict=False):
            if self.counts[at, name]:
                continue
            fixed = each.opcode in ("min", "max") and MEMORY in kinds
            if each.opcode == "rem" and self._loss(each) > LOST:
                return "gets a part that never mattered"
            if self._is_mask(each, kinds):
                continue
            if found.form == "fused" and any(map(self._is_low_part, operands)):
                continue
            if self._is_beside_end(each, found.form, given, operands):
                continue
            varied = any(map(self.varied, operands)) and any(
                self.varied(operand, at) for operand in operands
            )
            if varied or (fixed and _is_inside(operands)):
                return "gets a part that never mattered"
        return ""

    def _is_beside_end(
        self, each: Instruction, form: str, given: list[Any], lost: list[Any]
    ) -> bool:
        """Whether a part was lost beside a zero or an infinity that never changed.

        That is what programs take in place of elements behind the end of a row.  Why
        it is always there is told where it is made.
        """
        if each.opcode == "selp":  # a place or a size may always go the same way
            return UNBOUND not in self.roots.of(each.operands[-1])[0]
        if form == "fused":
            bits = [self._fixed_bits(operand) for operand in given]
            ended = bits[0] in _ZEROS or bits[1] in _ZEROS or bits[2] in _INFINITIES
            return len(lost) == 2 and ended
        others = [e for e in given if not any(e is one for one in lost)]
        scales = each.is_product or each.opcode == "div"
        ends = ENDS if scales else _INFINITIES
        both = scales or each.is_sum
        return both and all(self._fixed_bits(operand) in ends for operand in others)

    def _fixed_bits(self, operand: object) -> int | None:
        """The bits of an operand that was always the same; None if it was not."""
        if isinstance(operand, Immediate):
            return operand.bits
        made = [at for n in registers(operand) for at in self._writers.get(n, ())]
        ran = [at for at in made if self.counts[at, "made"]]
        seen = {self._only(at) for at in ran}
        return seen.pop() if len(seen) == 1 and not self.varied(operand) else None

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
        on, off = self.counts[at, "on"], self.counts[at, "off"]
        if not on + off or (on and off):
            return ""
        given = each.operands[1:]
        bounded = any(UNBOUND not in self.roots.of(operand)[0] for operand in given)
        if bounded or not all(map(self.varied, given)):
            return ""
        return f"was always {'true' if on else 'false'}"


def asks_for_high_words(each: Instruction) -> bool:
    """Whether it takes the high words of places, as compilers do before they divide.

    Places of fewer bits are divided in another way.
    """
    given = [e.bits for e in each.operands[1:] if isinstance(e, Immediate)]
    return each.opcode == "and" and each.qualifiers == ("b64",) and given == [_HIGH]


_HIGH = 0xFFFFFFFF00000000
_ZEROS, _INFINITIES = ENDS[:2], ENDS[2:]
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
    if instruction.is_product and "hi" in instruction.qualifiers and last:
        return max(0.0, 32 - math.log2(min(last, 1 << 32)))
    if instruction.opcode in ("div", "rem") and last:
        return math.log2(last)
    if instruction.opcode == "and" and last:
        return float((last & -last).bit_length() - 1)
    if instruction.opcode in PRODUCTS | FUSED | {"shl"}:
        return -math.log2(max(1, 1 << last if instruction.opcode == "shl" else last))
    return 0.0


_LOW_PARTS = (0x32A57060, 0x33A22168, 0xB3A22168, 0x27C234C5, 0xA7C234C5, 0x35BFBE8E)
"""What is behind the floats of log2(e), pi/2 and ln(2): CUDA adds its products."""
_LARGEST = 3e38
_FLOATS = frozenset(["f16", "f16x2", "bf16", "bf16x2", "f32", "f64"])


def _is_of_floats(each: Instruction) -> bool:
    moves = each.is_load or each.is_store
    return bool(_FLOATS & {*each.qualifiers}) and not moves


def _constants(each: Instruction) -> tuple[int, ...]:
    return tuple(e.bits for e in each.operands if isinstance(e, Immediate))


def _place(each: Instruction) -> tuple[tuple[str, int], ...]:
    """The lines of the source that an instruction comes from."""
    frames = each.source.frames if each.source is not None else ()
    return tuple((Path(frame.file).name, frame.line) for frame in frames)


def _is_inside(operands: list[object]) -> bool:
    """Whether a constant of ``min`` or ``max`` is no end of all numbers."""
    for each in operands:
        if isinstance(each, Immediate):
            value = each.value
            if isinstance(value, float) and abs(value) < _LARGEST:
                return True
    return False
