"""The constants that kernels compare with, choose, or cut off at; inputs have them.

A comparison with one number goes the other way for inputs that random ones never are.
So these numbers, their neighbours and their negatives are put into inputs, and so are
those that come to them by sums and products with constants, as far as that is simple.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from fragmenta.frontends.judge.roots import ENDS, Roots, registers
from fragmenta.ptx.families import COMPARISONS
from fragmenta.ptx.module import INSTALLED, Function, Immediate, Instruction, Module

ASKING = COMPARISONS | {"set", "selp", "slct", "min", "max", "testp", "copysign"}
"""Instructions whose constants say for which numbers they do something else."""
_FLOATS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
_WORDS = ("b32", "u32", "s32", "b64", "u64", "s64", "b16", "u16", "s16")
_DEPTH = 4
"""Steps back from a comparison to what was loaded."""
_PATTERN = 1 << 20
"""Whole numbers of 32 bits from here on may be the bits of a float."""


def constants(modules: Iterable[Module]) -> tuple[list[float], list[int]]:
    """The floats and the whole numbers that kernels ask for, and what comes to them.

    >>> from fragmenta.ptx.reading import parse
    >>> module = parse('''
    ... .version 8.0
    ... .target sm_80
    ... .entry f(.param .u64 x) {
    ...     .reg .pred %p; .reg .f32 %f<3>; .reg .b64 %rd;
    ...     ld.param.u64 %rd, [x];
    ...     ld.global.f32 %f0, [%rd];
    ...     fma.rn.f32 %f1, %f0, 0f40000000, 0f3F800000;
    ...     setp.gt.f32 %p, %f1, 0f44800000;
    ...     ret;
    ... }''')
    >>> constants([module])
    ([1024.0, 511.5], [])
    """
    floats, whole = dict[float, None](), dict[int, None]()
    for module in modules:
        for function in module.functions.values():
            found = _Found(function)
            floats |= dict.fromkeys(found.floats())
            whole |= dict.fromkeys(found.whole())
    return [*floats], [*whole]


class _Found:
    """The constants of one function."""

    def __init__(self, function: Function) -> None:
        self._function, self._roots = function, Roots(function)
        self._made: dict[int, list[Instruction]] = {}
        for each in function.instructions:
            for number in registers(each.operands[0]) if each.operands else ():
                self._made.setdefault(number, []).append(each)

    def floats(self) -> Iterator[float]:
        for each in self._asking():
            kind = _kind(each)
            fixed = [(o, self._fixed(o)) for o in each.operands[1:]]
            others = [o for o, number in fixed if number is None]
            for _, constant in fixed:
                if constant is None:
                    continue
                value = _value(constant, kind)
                if value is None or not np.isfinite(value):
                    continue
                yield value
                if kind in _FLOATS:
                    yield from self._before(others, value, _DEPTH)

    def whole(self) -> Iterator[int]:
        for each in self._asking():
            if _kind(each) not in _WORDS:
                continue
            for operand in each.operands[1:]:
                constant = self._fixed(operand)
                if constant is not None and isinstance(constant.value, int):
                    yield constant.value

    def _asking(self) -> Iterator[Instruction]:
        """Instructions of the candidate's text that choose by what memory had."""
        if self._function.name.startswith(("__internal_", "__nv_")):
            return
        for each in self._function.instructions:
            source = each.source.file if each.source else ""
            if each.opcode not in ASKING or not each.qualifiers:
                continue
            inlined = self._roots.is_inlined(each) or INSTALLED.search(source)
            if not inlined and self._roots.kinds_of(each):
                yield each

    def _fixed(self, operand: object) -> Immediate | None:
        """A constant, also if a register has it."""
        if isinstance(operand, Immediate):
            return operand
        made = [m for n in registers(operand) for m in self._made.get(n, ())]
        if len(made) == 1 and made[0].is_move:
            given = made[0].operands[1]
            return given if isinstance(given, Immediate) else None
        return None

    def _before(
        self, operands: Iterable[object], value: float, depth: int
    ) -> Iterator[float]:
        """What comes to a value by sums and products with constants."""
        made = [
            each
            for number in {n for operand in operands for n in registers(operand)}
            for each in self._made.get(number, ())
            if _kind(each) in _FLOATS and not (each.is_load or each.is_comparison)
        ]
        for one in made if depth else ():
            read = one.operands[1:]
            fixed = [self._fixed(each) for each in read]
            given = [None if e is None else _value(e, _kind(one)) for e in fixed]
            left = [o for o, known in zip(read, given, strict=True) if known is None]
            back = _inverse(one.opcode, given, value) if len(left) == 1 else []
            for each in filter(np.isfinite, back):
                yield each
                yield from self._before(left, each, depth - 1)


def _inverse(opcode: str, given: list[float | None], value: float) -> list[float]:
    """What an instruction with one unknown operand makes a value of."""
    with np.errstate(all="ignore"):
        known = [np.float64(each) for each in given if each is not None]
        first = bool(given) and given[0] is None
        if opcode == "add" and len(known) == 1:
            return [float(value - known[0])]
        if opcode == "sub" and len(known) == 1:
            return [float(value + known[0] if first else known[0] - value)]
        if opcode == "mul" and len(known) == 1:
            return [float(value / known[0])]
        if opcode == "div" and len(known) == 1:
            return [float(value * known[0] if first else known[0] / value)]
        if opcode in ("fma", "mad") and len(known) == 2 and given[2] is not None:
            return [float((value - known[1]) / known[0])]
        if opcode in ("neg", "abs") and not known:
            return [-value, value] if opcode == "abs" else [-value]
        if opcode == "sqrt" and not known:
            return [value * value]
        if opcode == "rcp" and not known:
            return [float(1 / np.float64(value))]
        if opcode == "ex2" and not known and value > 0:
            return [float(np.log2(value))]
        if opcode == "lg2" and not known:
            return [float(np.exp2(value))]
    return []


def _kind(instruction: Instruction) -> str:
    """The type of what an instruction reads."""
    return instruction.qualifiers[-1] if instruction.qualifiers else ""


def _value(constant: Immediate, kind: str) -> float | None:
    """The float that a constant is, or whose bits it is."""
    if isinstance(constant.value, float):
        return constant.value
    bits = constant.bits % (1 << 32)
    if bits in ENDS or kind not in _WORDS or kind[1:] != "32":
        return None
    if not _PATTERN <= bits < (1 << 32) - _PATTERN:
        return float(constant.value) if kind[0] != "b" else None
    return float(np.array(bits, np.uint32).view(np.float32))
