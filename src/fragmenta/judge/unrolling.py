"""Comparisons that a compiler adds: of unrolled loops, and of the last block's ticket.

A loop that is unrolled asks how many steps are left over.  A block that takes a ticket
asks whether it is the last one.  Neither asks for a value or for a large size.
"""

from __future__ import annotations

from collections.abc import Iterator

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


class _Text:
    """The instructions of a function, by the registers that they write."""

    def __init__(self, function: Function) -> None:
        self.instructions = function.instructions
        self._writes: dict[int, list[Instruction]] = {}
        for each in function.instructions:
            goal = each.operands[0] if each.operands else None
            if isinstance(goal, Register):
                self._writes.setdefault(goal.number, []).append(each)

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
            if each.opcode == "setp" and len(each.operands) == 3:
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
