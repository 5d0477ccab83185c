"""Lanes that store one reduction, each with a rounding of its own.

After a butterfly of ``shfl.bfly``, all lanes hold the same sum.  Lanes that differ add
the two halves of a step in different orders.  That leaves the same bits, since an
addition of two numbers has no order.  But if a compiler fuses a product into the first
step, each lane rounds the product of the other lane and not its own: ``fma(c, c, d)``
in one lane, ``fma(d', d', c')`` in the other.  Triton's reductions of ``x * x`` are
compiled like this, and all lanes of a warp store the result to one word of shared
memory.

So the text says which copies may differ by rounding alone: a store's register is
followed back through additions of a register and its shuffled self.
"""

from __future__ import annotations

from fragmenta.ptx.checking.register_effects import effects, registers
from fragmenta.ptx.module import Function, Immediate, Instruction, Operand, Register

_PASSED = frozenset({"mov", "cvt"})
_REDUCED = frozenset({"add", "mul", "min", "max"})
_FLOATS = ("f16", "f32", "f64", "bf16")
_WHOLE_WARP = 31


def butterfly(function: Function, index: int) -> int:
    """The bits of the lane's number over which what a store writes was reduced.

    Lanes that differ in these bits only store the same result, up to its rounding.  0:
    it is not the result of a reduction of floats that the text shows.
    """
    chains = _Chains(function)
    stored = list(registers(function.instructions[index].operands[1:]))
    found = [chains.follow(each) for each in stored]
    return min(found, default=0) if len(set(found)) == 1 else 0


class _Chains:
    """Where registers of a function come from, if one instruction writes them."""

    def __init__(self, function: Function) -> None:
        self._made: dict[int, Instruction | None] = {}
        for each in function.instructions:
            for register in effects(each).writes:
                known = register.number in self._made
                self._made[register.number] = None if known or each.guard else each

    def _maker(self, operand: Operand) -> Instruction | None:
        if not isinstance(operand, Register):
            return None
        return self._made.get(operand.number)

    def follow(self, register: Operand) -> int:
        """The bits of the butterfly that a register is the result of."""
        bits, maker = 0, self._maker(register)
        while maker is not None:
            if maker.opcode in _PASSED:
                maker = self._maker(maker.operands[1])
                continue
            step = self._step(maker)
            if step is None:
                break
            bits |= step[0]
            maker = self._maker(step[1])
        return bits

    def _step(self, of: Instruction) -> tuple[int, Operand] | None:
        """The lanes that a step of a butterfly exchanges, and what it exchanges."""
        if not any(each.startswith(_FLOATS) for each in of.qualifiers):
            return None
        given = of.operands[1:]
        for shuffled in given:
            shuffle = self._maker(shuffled)
            if shuffle is None or "bfly" not in shuffle.qualifiers:
                continue
            _, source, lanes, clamp, *_ = shuffle.operands
            rest = [each for each in given if each is not shuffled]
            if of.opcode in _REDUCED:
                same = _numbers(rest) == _numbers([source])
            else:
                product = self._maker(source)
                same = of.opcode == "fma" and product is not None
                same = same and _is_product(product, rest)
            whole = isinstance(clamp, Immediate) and clamp.value == _WHOLE_WARP
            if same and whole and isinstance(lanes, Immediate):
                return int(lanes.value), source
        return None


def _numbers(operands: list[Operand]) -> list[int]:
    return sorted(each.number for each in registers(operands))


def _is_product(maker: Instruction | None, factors: list[Operand]) -> bool:
    """Whether an instruction multiplies just these."""
    if maker is None or maker.opcode != "mul":
        return False
    return _numbers(list(maker.operands[1:])) == _numbers(factors)
