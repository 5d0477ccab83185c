"""Comparisons that a compiler adds: of unrolled loops, and of the last block's ticket.

A loop that is unrolled asks how many steps are left over.  A block that takes a ticket
asks whether it is the last one.  Neither asks for a value or for a large size.
"""

from __future__ import annotations

from collections.abc import Iterator

from fragmenta.base.arrays.once import once
from fragmenta.ptx.module import Function, Immediate, Instruction, Register, Special

UNROLLED = (2, 4, 8, 16)
"""How many steps of a loop compilers put into one."""
SHORT = 64
"""Steps that a short loop has."""
FURTHEST = 10
"""The largest stride of a loop as a power of two: a block has 1,024 threads."""


def of_compilers(function: Function) -> set[int]:
    """The numbers of such comparisons in the text of a function.

    >>> from fragmenta.ptx.reading import parse
    >>> function = parse('''
    ... .version 8.0
    ... .target sm_80
    ... .entry f(.param .u32 n) {
    ...     .reg .pred %p<2>; .reg .b32 %r<5>;
    ...     ld.param.u32 %r0, [n];
    ...     shr.u32 %r1, %r0, 5;
    ...     add.s32 %r2, %r1, 1;
    ...     and.b32 %r3, %r2, 3;
    ...     setp.lt.u32 %p0, %r0, 96;
    ...     add.s32 %r4, %r4, 128;
    ...     setp.lt.u32 %p1, %r0, 95;
    ...     ret;
    ... }''').functions["f"]
    >>> of_compilers(function)
    {4}
    """
    text = _Text(function)
    tickets = dict(text.tickets())
    found = {at for at, _, _ in tickets.values()}
    for rest in function.instructions:
        found |= text.of_loop(rest, tickets)
    return found


def is_unrolled(function: Function, number: int) -> bool:
    """Whether a loop may be asked whether it has so many steps left, by a compiler.

    It goes on by several strides at once, and one less of them is the number.
    """
    if number < SHORT:
        return True
    text = _Text(function)
    return any(
        number % (steps - 1) == 0 and text.goes_on_by(steps * number // (steps - 1))
        for steps in UNROLLED
    )


def of_functions(function: Function) -> set[int]:
    """The numbers of instructions of ``expm1f`` that a compiler put into a function.

    It scales large results in two steps.  What only calls it with small numbers never
    does so.  All of its instructions must be there, with their constants.
    """
    text = _Text(function)
    found: set[int] = set()
    for at, each in enumerate(function.instructions):
        if each.mnemonic == "selp.f32":
            found |= _Match(_template(), text).of(at)
    return found


@once
def _template() -> _Text:
    from fragmenta.ptx.reading import parse

    return _Text(parse(_EXPM1F).functions["expm1f"])


class _Match:
    """Whether instructions compute what those of another text do."""

    def __init__(self, wanted: _Text, text: _Text) -> None:
        self._wanted, self._text = wanted, text
        self._same: dict[int, int] = {}
        self._found: set[int] = set()

    def of(self, at: int) -> set[int]:
        """All instructions behind this one; none if any of them is another."""
        last, own = self._wanted.instructions[-2], self._text.instructions[at]
        self._found.add(at)
        return self._found if self._alike(last, own) else set()

    def _alike(self, wanted: Instruction, own: Instruction) -> bool:
        pairs = zip(wanted.operands[1:], own.operands[1:], strict=False)
        return wanted.mnemonic == own.mnemonic and all(
            self._is(one, other) for one, other in pairs
        )

    def _is(self, wanted: object, own: object) -> bool:
        first, second = self._wanted.fixed(wanted), self._text.fixed(own)
        if first is not None or second is not None:
            return first == second
        number = _number(own)
        if _number(wanted) in self._same:
            return self._same[_number(wanted)] == number
        self._same[_number(wanted)] = number
        made, at = self._wanted.only(wanted), self._text.place(own)
        if made is None or made.is_load:  # the argument
            return number >= 0
        if at is None:
            return False
        self._found.add(at)
        return self._alike(made, self._text.instructions[at])


class _Text:
    """The instructions of a function, by the registers that they write."""

    def __init__(self, function: Function) -> None:
        self.instructions = function.instructions
        self._writes: dict[int, list[Instruction]] = {}
        for each in function.instructions:
            goal = each.operands[0] if each.operands else None
            if isinstance(goal, Register):
                self._writes.setdefault(goal.number, []).append(each)

    def only(self, register: object) -> Instruction | None:
        """The one instruction that writes a register."""
        found = self._writes.get(_number(register), [])
        return found[0] if len(found) == 1 else None

    def place(self, register: object) -> int | None:
        """Where that is."""
        made = self.only(register)
        places = (at for at, each in enumerate(self.instructions) if each is made)
        return next(places, None)

    def fixed(self, operand: object) -> int | None:
        """The bits of a constant, also if a register has it; None if it is none."""
        made = self.only(operand)
        if made is not None and made.is_move:
            operand = made.operands[1]
        return operand.bits & 0xFFFFFFFF if isinstance(operand, Immediate) else None

    def _made_by(self, register: object, opcode: str) -> Instruction | None:
        """The one instruction that writes a register, if it is such a one."""
        found = self._writes.get(_number(register), [])
        return found[0] if len(found) == 1 and found[0].opcode == opcode else None

    def _plus(self, register: object, by: int) -> int:
        """The register that another one is, plus a constant; -1 if it is none."""
        made = self._made_by(register, "add")
        plain = made is not None and _constant(made.operands[2]) == by
        return _number(made.operands[1]) if made is not None and plain else -1

    def _comparisons(self) -> Iterator[tuple[int, Instruction, object, object]]:
        for at, each in enumerate(self.instructions):
            if each.is_comparison and len(each.operands) == 3:
                yield at, each, each.operands[1], each.operands[2]

    def tickets(self) -> Iterator[tuple[int, tuple[int, int, int]]]:
        """Results of atomics that are compared with the number of blocks less one.

        Each is a register with the comparison, the number of blocks, and the one less.
        """
        for at, each, left, right in self._comparisons():
            if not {"eq", "ne"} & {*each.qualifiers}:
                continue
            for ticket, last in ((left, right), (right, left)):
                blocks = self._plus(last, -1)
                made = self._writes.get(blocks, [])
                grid = len(made) == 1 and _is_grid(made[0])
                if grid and self._made_by(ticket, "atom"):
                    yield _number(ticket), (at, blocks, _number(last))

    def of_loop(
        self, rest: Instruction, tickets: dict[int, tuple[int, int, int]]
    ) -> set[int]:
        """The comparisons of an unrolled loop, by what its steps leave over."""
        steps = _constant(rest.operands[2]) + 1 if rest.opcode == "and" else 0
        if steps not in UNROLLED:
            return set()
        count, shift = _number(rest.operands[1]), 0
        before = self._plus(rest.operands[1], 1)
        for made in self._writes.get(before, []):
            if made.opcode == "shr" and 0 < _constant(made.operands[2]) <= FURTHEST:
                before, shift = _number(made.operands[1]), _constant(made.operands[2])
        if not self._goes_on(steps, shift):
            return set()
        spans = {before} | {t for t, (_, b, _) in tickets.items() if b == count}
        spans |= {n for n in self._writes if self._less_one(n) == count}
        found = set()
        for at, each, left, right in self._comparisons():
            sizes = {"lt", "gt", "ge", "le"} & {*each.qualifiers}
            whole = _constant(right) == (steps - 1) << shift and _number(left) in spans
            over = _constant(right) == 0 and _number(left) == _number(rest.operands[0])
            if (sizes and whole) or (over and not sizes):
                found.add(at)
        return found

    def _less_one(self, number: int) -> int:
        made = self._writes[number]
        plain = len(made) == 1 and made[0].opcode == "add"
        less = plain and _constant(made[0].operands[2]) == -1
        return _number(made[0].operands[1]) if less else -1

    def _goes_on(self, steps: int, shift: int) -> bool:
        """Whether something goes on by so many steps at once."""
        return any(map(self.goes_on_by, (steps, -steps, steps << shift)))

    def goes_on_by(self, by: int) -> bool:
        """Whether a register grows by this number."""
        return any(
            each.opcode == "add"
            and _number(each.operands[0]) == _number(each.operands[1])
            and _constant(each.operands[2]) == by
            for each in self.instructions
        )


def _number(operand: object) -> int:
    return operand.number if isinstance(operand, Register) else -1


def _constant(operand: object) -> int:
    """A constant of the text; one that is never compared with if it is none."""
    given = isinstance(operand, Immediate) and isinstance(operand.value, int)
    return int(operand.value) if given else -(1 << 70)  # type: ignore[attr-defined]


def _is_grid(instruction: Instruction) -> bool:
    of = instruction.operands[1] if len(instruction.operands) == 2 else None
    return isinstance(of, Special) and of.name.startswith("%nctaid")


_EXPM1F = """
.version 8.0
.target sm_80
.entry expm1f(.param .f32 x) {
    .reg .pred %p<4>; .reg .b32 %r<6>; .reg .f32 %f<36>;
    ld.param.f32 %f1, [x];
    abs.f32 %f2, %f1;
    setp.gt.f32 %p1, %f2, 0f42B17218;
    mov.f32 %f3, 0f42B17218;
    copysign.f32 %f4, %f1, %f3;
    selp.f32 %f5, %f4, %f1, %p1;
    fma.rn.f32 %f8, %f5, 0f3FB8AA3B, 0f4B40007F;
    add.f32 %f9, %f8, 0fCB40007F;
    neg.f32 %f10, %f9;
    fma.rn.f32 %f12, %f10, 0f3F317217, %f5;
    fma.rn.f32 %f14, %f10, 0f3377D1CF, %f12;
    mov.b32 %r2, %f8;
    shl.b32 %r3, %r2, 23;
    setp.ge.f32 %p2, %f9, 0f41C80000;
    add.s32 %r4, %r3, -8388608;
    selp.b32 %r5, %r4, %r3, %p2;
    mov.b32 %f15, %r5;
    setp.eq.f32 %p3, %f9, 0fC3000000;
    selp.f32 %f16, 0f00000000, %f15, %p3;
    fma.rn.f32 %f20, 0f3AB5B2C6, %f14, 0f3C091356;
    fma.rn.f32 %f22, %f20, %f14, 0f3D2AA9AF;
    fma.rn.f32 %f24, %f22, %f14, 0f3E2AAA59;
    fma.rn.f32 %f26, %f24, %f14, 0f3F000003;
    fma.rn.f32 %f27, %f26, %f14, 0f00000000;
    fma.rn.f32 %f28, %f27, %f14, %f14;
    sub.f32 %f30, 0f3F800000, %f16;
    neg.f32 %f31, %f30;
    fma.rn.f32 %f32, %f28, %f16, %f31;
    add.f32 %f33, %f32, %f32;
    selp.f32 %f34, %f33, %f32, %p2;
    ret;
}
"""
"""What NVRTC makes of it."""
