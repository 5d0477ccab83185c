"""Operations on integers that the opcodes share.

A value holds bits; each function says whether they are signed.  Every
function works on vectors of any number of lanes and on single numbers.  Functions
that LLVM has as one instruction or intrinsic are emitted as that: the code of a
kernel is compiled without optimisation.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from fragmenta.base.jit.llvm import Type
from fragmenta.base.jit.trace import (
    I1,
    I8,
    I16,
    I32,
    I64,
    Number,
    Value,
    compare_unsigned,
    convert,
    intrinsic,
    scalar_type,
    select,
)

WIDTHS = {
    "8": I8,
    "16": I16,
    "32": I32,
    "64": I64,
}


def is_signed(kind: str) -> bool:
    """Whether a PTX type is of signed integers.

    >>> is_signed("s32"), is_signed("u32"), is_signed("s16x2")
    (True, False, True)
    """
    return kind.startswith("s")


def type_named(kind: str) -> Type:
    """The LLVM type for the bits of a scalar PTX type.

    >>> str(type_named("u16")), str(type_named("f64")), str(type_named("pred"))
    ('i16', 'i64', 'i1')
    """
    made: Type = I1 if kind == "pred" else WIDTHS[kind.lstrip("bfsu")]
    return made


def width(x: Value) -> int:
    """The bits of each lane."""
    bits: int = scalar_type(x.type).width
    return bits


def lowest(x: Value, signed: bool) -> int:
    """The smallest number that a lane can hold."""
    return -(1 << (width(x) - 1)) if signed else 0


def highest(x: Value, signed: bool) -> int:
    """The largest number that a lane can hold."""
    return (1 << (width(x) - signed)) - 1


def _both(x: Number, y: Number) -> tuple[Value, Value]:
    """Two operands as values of one shape."""
    if isinstance(x, Value):
        right = x.lift(y)
        return right.lift(x), right
    if isinstance(y, Value):
        return y.lift(x), y
    raise TypeError("one of the two must be a traced value")


def _instruction(name: str) -> Callable[[Number, Number], Value]:
    """An instruction of LLVM with two operands."""

    def emit(x: Number, y: Number) -> Value:
        left, right = _both(x, y)
        return Value(left.builder, getattr(left.builder, name)(left.raw, right.raw))

    return emit


def _intrinsic(name: str, *flags: int) -> Callable[..., Value]:
    """An intrinsic whose operands and result have one type; ``flags`` are i1."""

    def emit(x: Value, *others: Number) -> Value:
        for other in others:
            x, _ = _both(x, other)
        raws = [x.raw] + [x.lift(other).raw for other in others]
        raws += [ir.Constant(I1, flag) for flag in flags]
        of, one = x.type, scalar_type(x.type)
        lanes = f"v{of.count}" if one is not of else ""
        called = f"{name}.{lanes}i{one.width}"
        return Value(x.builder, intrinsic(x.builder, called, of, raws))

    return emit


#: A shift that fills with zeros; undefined from the width on.
shift_right = _instruction("lshr")
#: Undefined for zero: the caller guards it.
divide_unsigned = _instruction("udiv")
remainder_unsigned = _instruction("urem")

larger_signed = _intrinsic("llvm.smax")
larger_unsigned = _intrinsic("llvm.umax")
smaller_signed = _intrinsic("llvm.smin")
smaller_unsigned = _intrinsic("llvm.umin")
add_sat_signed = _intrinsic("llvm.sadd.sat")
add_sat_unsigned = _intrinsic("llvm.uadd.sat")
subtract_sat_signed = _intrinsic("llvm.ssub.sat")
subtract_sat_unsigned = _intrinsic("llvm.usub.sat")
count_ones = _intrinsic("llvm.ctpop")
reverse_bits = _intrinsic("llvm.bitreverse")
#: The upper half of ``x:y`` shifted left; the amount counts modulo the width.
funnel_left = _intrinsic("llvm.fshl")
#: The lower half of ``x:y`` shifted right.
funnel_right = _intrinsic("llvm.fshr")
#: The number of zeros above the highest one; the width for zero.
leading_zeros = _intrinsic("llvm.ctlz", 0)
#: The magnitude of a signed number; the smallest number stays as it is.
magnitude = _intrinsic("llvm.abs", 0)


def larger_of(signed: bool) -> Callable[..., Value]:
    """How the larger of two numbers is found."""
    return larger_signed if signed else larger_unsigned


def smaller_of(signed: bool) -> Callable[..., Value]:
    """How the smaller of two numbers is found."""
    return smaller_signed if signed else smaller_unsigned


def clamped(x: Value, least: int, most: int, signed: bool = True) -> Value:
    """A number brought into a range, whose ends are numbers of its type."""
    return smaller_of(signed)(larger_of(signed)(x, least), most)


def compared(sign: str, x: Number, y: Number, signed: bool) -> Value:
    """A comparison of integers: ``<``, ``<=``, ``>``, ``>=``, ``==`` or ``!=``."""
    left, right = _both(x, y)
    if not signed:
        return compare_unsigned(sign, left, right)
    return left._compare(sign, right)


def widened(x: Value, signed: bool) -> Value:
    """The same numbers in twice the bits."""
    return convert(x, ir.IntType(2 * width(x)), signed=signed)


def upper_half(x: Value) -> Value:
    """The upper half of the bits of each lane."""
    half = width(x) // 2
    return convert(shift_right(x, half), ir.IntType(half))


def lower_half(x: Value) -> Value:
    """The lower half of the bits of each lane."""
    return convert(x, ir.IntType(width(x) // 2))


def parts(x: Value, of: Type) -> Value:
    """The halves or bytes of each lane as lanes of their own, the lowest first."""
    lanes = x.type.count if isinstance(x.type, ir.VectorType) else 1
    kind = ir.VectorType(of, lanes * width(x) // of.width)
    return Value(x.builder, x.builder.bitcast(x.raw, kind))


def joined(x: Value, shape: Value) -> Value:
    """What :func:`parts` took apart, in the shape it had."""
    if x.type == shape.type:
        return x
    return Value(x.builder, x.builder.bitcast(x.raw, shape.type))


def shifted_left(x: Value, amount: Value) -> Value:
    """``x << amount``; zero from the width on.  The amount is unsigned."""
    constant = known(amount)
    if constant is not None:
        return x << constant if constant < width(x) else x.lift(0)
    small, inside = _amount(x, amount)
    return select(inside, x << small, 0)


def shifted_right(x: Value, amount: Value, signed: bool) -> Value:
    """``x >> amount``; from the width on, the sign or zero is left."""
    constant = known(amount)
    if constant is not None:
        if signed:
            return x >> min(constant, width(x) - 1)
        return shift_right(x, constant) if constant < width(x) else x.lift(0)
    small, inside = _amount(x, amount)
    if signed:
        return x >> select(inside, small, width(x) - 1)
    return select(inside, shift_right(x, small), 0)


def _amount(x: Value, amount: Value) -> tuple[Value, Value]:
    """An amount in the type of ``x``, and whether it is below the width.

    The bits above are cut off, so that the shift itself is always defined.
    """
    inside = compare_unsigned("<", amount, width(x))
    of = scalar_type(x.type)
    return convert(amount & (width(x) - 1), of, signed=False), inside


def field(x: Value, first: int, count: int, signed: bool) -> Value:
    """Some bits of each lane, at a fixed place, as a number."""
    above = width(x) - first - count
    high = x << above if above and signed else x
    if signed:
        return high >> (width(x) - count) if width(x) > count else high
    low = shift_right(x, first) if first else x
    return low & ((1 << count) - 1) if above else low


def known(x: Value) -> int | None:
    """The unsigned number that a value has in every lane, if it is a constant."""
    number = getattr(x.raw, "constant", None)
    if isinstance(number, list | tuple):
        each = {one.constant for one in number}
        number = each.pop() if len(each) == 1 else None
    return number & ((1 << width(x)) - 1) if isinstance(number, int) else None
