"""Converts the codes in a word to the elements of registers.

Elements of one register are as far apart in the word as in the register, so one mask
cuts out all of them.  A code of up to 8 bits is then made a float without a
conversion: put into the fraction of 1024 (f16) or 128 (bf16), it is added to that
number.  What is too much is subtracted, and what a code in higher bits is too large,
is divided, in one multiply-add.  All of it is exact.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fragmenta.base.arrays.checks import is_whole
from fragmenta.errors import BadCall, one_of

_TYPES = {"f16": 16, "bf16": 16, "s8": 8, "u8": 8}
"""The types of registers that words are converted to, and their bits."""
_FAMILIES = (("f16", "bf16"), ("s8", "u8"))
"""Types whose instructions have the same fragments."""
_DEVICE = "__device__ __forceinline__"


class Conversion(NamedTuple):
    """From words of codes to registers."""

    bits: int
    to: str
    zero: int

    @property
    def registers(self) -> int:
        """The registers that a word fills."""
        return _TYPES[self.to] // self.bits

    def function(self) -> str:
        """The function ``dequantize``, and what it calls."""
        write = {"f16": _half, "bf16": _bfloat, "s8": _bytes, "u8": _bytes}[self.to]
        if self.bits == 8:
            write = _half_of_bytes if self.to == "f16" else _bfloat_of_bytes
        helpers, lines = write(self)
        named = ", ".join(f"unsigned& r{i}" for i in range(self.registers))
        head = f"{_DEVICE} void dequantize(unsigned word, {named})"
        if len(head) > 80:
            named = f",\n{' ' * 4}".join(
                ", ".join(
                    f"unsigned& r{j}" for j in range(i, min(i + 4, self.registers))
                )
                for i in range(0, self.registers, 4)
            )
            head = f"{_DEVICE} void dequantize(unsigned word,\n    {named})"
        body = "\n".join(f"    {line}" for line in lines)
        value = f"the code - {self.zero}" if self.zero else "the code"
        about = (
            f"// {self.registers} registers of {self.to} from a word of codes of "
            f"{self.bits} bits; each element is {value}."
        )
        return "\n\n".join([*helpers, f"{about}\n{head}\n{{\n{body}\n}}"])


def conversion(bits: int, operand: str, to: str | None, zero: int | None) -> Conversion:
    """The conversion by its name; what does not exist is refused."""
    wanted = operand if to is None else str(to)
    allowed = next((family for family in _FAMILIES if operand in family), ())
    if any(bits >= _TYPES[name] for name in allowed):
        allowed = ()
    if not allowed:
        able = [name for name, size in _TYPES.items() if size > bits]
        others = f"; operands of {one_of(able)} have one" if able else ""
        raise BadCall(
            f"no function converts codes of {bits} bits for an operand of {operand}"
            f"{others}; to_cuda('load') writes the loads alone"
        )
    if wanted not in allowed:
        raise BadCall(
            f"for an operand of {operand}, codes of {bits} bits are converted to "
            f"{one_of(allowed)}; given {wanted}"
        )
    highest = (1 << bits) - 1
    if zero is None:
        zero = 0 if wanted == "u8" else 1 << (bits - 1)
    if not is_whole(zero) or not 0 <= zero <= highest:
        raise BadCall(f"zero is a code, 0 to {highest}; given {zero!r}")
    if wanted == "u8" and zero:
        raise BadCall(f"u8 has no negative numbers, so zero is 0; given {zero}")
    return Conversion(bits, wanted, int(zero))


def _assembly(name: str, about: str, mnemonic: str, inputs: int) -> str:
    parameters = ", ".join(f"unsigned {each}" for each in "abc"[:inputs])
    places = ", ".join(f"%{place}" for place in range(1 + inputs))
    given = ", ".join(f'"r"({each})' for each in "abc"[:inputs])
    return f"""\
// {about}
{_DEVICE} unsigned {name}({parameters})
{{
    unsigned d;
    asm("{mnemonic} {places};" : "=r"(d) : {given});
    return d;
}}"""


# 0xea is the table of (a & b) | c.
_SELECT = f"""\
// (a & b) | c
{_DEVICE} unsigned and_or(unsigned a, unsigned b, unsigned c)
{{
    unsigned d;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}}"""
_SUBTRACT = _assembly("subtract", "a - b, two f16", "sub.f16x2", 2)
_FMA = _assembly("multiply_add", "a * b + c, two f16", "fma.rn.f16x2", 3)
_FMA_BF16 = _assembly("multiply_add", "a * b + c, two bf16", "fma.rn.bf16x2", 3)
_PERMUTE = _assembly("permute", "bytes of b:a, by the digits of c", "prmt.b32", 3)


def _twice(pattern: int) -> str:
    return f"{pattern << 16 | pattern:#010x}"


def _f16(value: float) -> str:
    """The number in both halves of a word; it must be exact."""
    assert float(np.float16(value)) == value
    return _twice(int(np.float16(value).view(np.uint16)))


def _bf16(value: float) -> str:
    raw = int(np.float32(value).view(np.uint32))
    assert raw & 0xFFFF == 0
    return _twice(raw >> 16)


def _half(of: Conversion) -> tuple[list[str], list[str]]:
    """Codes in bits 0 to 7 of each half, then those in bits 8 to 15."""
    helpers, lines = [_SELECT, _SUBTRACT], []
    for register in range(of.registers):
        low = register * of.bits % 8
        if register and not low:
            lines.append("word >>= 8;")
        mask = ((1 << of.bits) - 1) << low
        lines.append(f"r{register} = and_or(word, {_twice(mask)}, {_f16(1024)});")
        # In bits from `low` up, the number is 1024 + code * 2^low.
        if not low:
            exact = f"subtract(r{register}, {_f16(1024 + of.zero)})"
        else:
            part = 0.5**low
            added = _f16(-(1024 * part + of.zero))
            exact = f"multiply_add(r{register}, {_f16(part)}, {added})"
            helpers = [_SELECT, _SUBTRACT, _FMA]
        lines.append(f"r{register} = {exact};")
    return helpers, lines


def _bfloat(of: Conversion) -> tuple[list[str], list[str]]:
    """A bf16 has a fraction of 7 bits, so each code is moved to the lowest bits."""
    lines = []
    mask = _twice((1 << of.bits) - 1)
    for register in range(of.registers):
        if register:
            lines.append(f"word >>= {of.bits};")
        lines.append(f"r{register} = and_or(word, {mask}, {_bf16(128)});")
        added = _bf16(-(128 + of.zero))
        lines.append(f"r{register} = multiply_add(r{register}, {_bf16(1)}, {added});")
    return [_SELECT, _FMA_BF16], lines


def _bytes(of: Conversion) -> tuple[list[str], list[str]]:
    """Bytes of 8 bits; a subtraction must not borrow from the next byte."""
    lines = []
    mask = f"{((1 << of.bits) - 1) * 0x01010101:#010x}"
    for register in range(of.registers):
        part = f"word >> {register * of.bits}" if register else "word"
        value = f"{f'({part})' if register else part} & {mask}"
        if of.zero:
            less = f"{of.zero * 0x01010101:#010x}"
            value = f"((({value}) | 0x80808080) - {less}) ^ 0x80808080"
        lines.append(f"r{register} = {value};")
    return [], lines


def _half_of_bytes(of: Conversion) -> tuple[list[str], list[str]]:
    """The bytes 0 and 2, then 1 and 3, below the upper byte of 1024."""
    lines = []
    for register, selector in enumerate(("0x4240", "0x4341")):
        lines.append(f"r{register} = permute(word, 0x64646464, {selector});")
        lines.append(f"r{register} = subtract(r{register}, {_f16(1024 + of.zero)});")
    return [_PERMUTE, _SUBTRACT], lines


def _bfloat_of_bytes(of: Conversion) -> tuple[list[str], list[str]]:
    """By way of f32: 2^23 + code, less 2^23 + zero, has its bits in the upper half."""
    lines = ["float low, high;"]
    for register, (low, high) in enumerate(
        (("0x7650", "0x7652"), ("0x7651", "0x7653"))
    ):
        less = f"{(1 << 23) + of.zero}.0f"
        for name, selector in (("low", low), ("high", high)):
            made = f"permute(word, 0x4b000000, {selector})"
            lines.append(f"{name} = __uint_as_float({made}) - {less};")
        lines.append(
            f"r{register} = permute("
            "__float_as_uint(low), __float_as_uint(high), 0x7632);"
        )
    return [_PERMUTE], lines
