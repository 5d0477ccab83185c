"""Integer arithmetic.

Packed types (``u16x2``, ``s8x4``) have several numbers in one register; each of them is
treated as a lane of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from fragmenta.base.jit.trace import I8, I16, Value, convert, scalar_type, select
from fragmenta.ptx.opcodes import bits
from fragmenta.ptx.opcodes.table import Qualifiers, opcodes, type_in

_PACKED = {"x2": I16, "x4": I8}


def _lanes(kind: str, *operands: Value) -> tuple[Value, ...]:
    """The numbers of packed operands as lanes; other operands as they are."""
    of = _PACKED.get(kind[-2:])
    return tuple(bits.parts(x, of) for x in operands) if of else operands


# ── sums ────────────────────────────────────────────────────────────────────


@opcodes("""
    add.type        d, a, b  ; type = u16 u32 u64 s16 s64 ; kind = carries
    add{.sat}.s32   d, a, b  ; kind = carries -sat
    add.type        d, a, b  ; type = u16x2 s16x2 ; ptx = 8.0 ; target = sm_90
    add{.sat}.type  d, a, b  ; type = u8x4 s8x4 ; ptx = 9.2 ; target = sm_107a sm_107f sm_120a sm_120f sm_121a sm_121f
    add.sat.type    d, a, b  ; type = u32 u16x2 s16x2 ; ptx = 9.2 ; target = sm_107a sm_107f sm_120a sm_120f sm_121a sm_121f
""")
def add(q: Qualifiers, a: Value, b: Value) -> Value:
    """``a + b``, saturating with ``.sat``."""
    kind = type_in(q)
    x, y = _lanes(kind, a, b)
    if not q.get("sat"):
        return bits.joined(x + y, a)
    sat = bits.add_sat_signed if bits.is_signed(kind) else bits.add_sat_unsigned
    return bits.joined(sat(x, y), a)


@opcodes("""
    sub.type        d, a, b  ; type = u16 u32 u64 s16 s64 ; kind = carries
    sub{.sat}.s32   d, a, b  ; kind = carries -sat
    sub{.sat}.type  d, a, b  ; type = u8x4 s8x4 ; ptx = 9.2 ; target = sm_107a sm_107f sm_120a sm_120f sm_121a sm_121f
""")
def sub(q: Qualifiers, a: Value, b: Value) -> Value:
    """``a - b``, saturating with ``.sat``."""
    kind = type_in(q)
    x, y = _lanes(kind, a, b)
    if not q.get("sat"):
        return bits.joined(x - y, a)
    signed = bits.is_signed(kind)
    sat = bits.subtract_sat_signed if signed else bits.subtract_sat_unsigned
    return bits.joined(sat(x, y), a)


@opcodes("""
    sad.type  d, a, b, c  ; type = u16 u32 u64 s16 s32 s64
""")
def sad(q: Qualifiers, a: Value, b: Value, c: Value) -> Value:
    """``c + |a - b|``."""
    signed = bits.is_signed(q["type"])
    return c + (bits.larger_of(signed)(a, b) - bits.smaller_of(signed)(a, b))


# ── sums with a carry ───────────────────────────────────────────────────────


@opcodes("""
    add.cc.type   d, a, b, ^carry_out:pred                  ; type = u32 s32 u64 s64
    addc.cc.type  d, a, b, ^carry_in:pred, ^carry_out:pred  ; type = u32 s32 u64 s64
""")
def add_cc(
    q: Qualifiers, a: Value, b: Value, carry_in: Value | None = None
) -> tuple[Value, Value]:
    """``a + b`` and the carry; with ``addc`` one more where a carry came in."""
    return _sum_and_carry(a, b, carry_in)


def _sum_and_carry(a: Value, b: Value, carry: Value | None) -> tuple[Value, Value]:
    total = a + b
    out = bits.compared("<", total, a, signed=False)
    if carry is None:
        return total, out
    more = total + _as_number(carry, total)
    # The second sum overflows only from all ones to zero.
    return more, out | bits.compared("<", more, total, signed=False)


def _as_number(flag: Value, like: Value) -> Value:
    return convert(flag, scalar_type(like.type), signed=False)


@opcodes("""
    addc.type  d, a, b, ^carry_in:pred  ; type = u32 s32 u64 s64
""")
def addc(q: Qualifiers, a: Value, b: Value, carry_in: Value) -> Value:
    """``a + b``, and one more where a carry came in."""
    return a + b + _as_number(carry_in, a)


# The H200 subtracts by adding the complement: its carry flag is set where nothing is
# borrowed.  The manual says the opposite; that shows only if a program reads the flag of
# a subtraction with addc, or that of a sum with subc.


@opcodes(
    """
    sub.cc.type   d, a, b, ^carry_out:pred                  ; type = u32 s32 u64 s64
    """,
    fidelity="h200",
)
def sub_cc(q: Qualifiers, a: Value, b: Value) -> tuple[Value, Value]:
    """``a - b``, and whether nothing was borrowed."""
    return a - b, bits.compared(">=", a, b, signed=False)


@opcodes(
    """
    subc.cc.type  d, a, b, ^carry_in:pred, ^carry_out:pred  ; type = u32 s32 u64 s64
    """,
    fidelity="h200",
)
def subc_cc(q: Qualifiers, a: Value, b: Value, carry_in: Value) -> tuple[Value, Value]:
    """``a - b``, one less where no carry came in, and whether nothing was borrowed."""
    return _sum_and_carry(a, ~b, carry_in)


@opcodes(
    """
    subc.type  d, a, b, ^carry_in:pred  ; type = u32 s32 u64 s64
    """,
    fidelity="h200",
)
def subc(q: Qualifiers, a: Value, b: Value, carry_in: Value) -> Value:
    """``a - b``, one less where no carry came in."""
    return a + ~b + _as_number(carry_in, a)


@opcodes("""
    ; name = lo hi
    mad.half.cc.type   d, a, b, c, ^carry_out:pred   ; half = lo hi ; type = u32 s32
    mad.lo.cc.type     d, a, b, c, ^carry_out:pred   ; type = u64 s64
    madc.half.cc.type  d, a, b, c, ^carry_in:pred, ^carry_out:pred ; half = lo hi ; type = u32 s32
    madc.lo.cc.type    d, a, b, c, ^carry_in:pred, ^carry_out:pred ; type = u64 s64
""")
def mad_cc(
    q: Qualifiers, a: Value, b: Value, c: Value, carry_in: Value | None = None
) -> tuple[Value, Value]:
    """One half of ``a * b``, plus ``c``, and the carry of that sum."""
    return _sum_and_carry(_half(q, a, b), c, carry_in)


@opcodes(
    """
    ; name = hi
    mad.hi.cc.type   d, a, b, c, ^carry_out:pred                  ; type = u64 s64
    madc.hi.cc.type  d, a, b, c, ^carry_in:pred, ^carry_out:pred  ; type = u64 s64
    """,
    large=True,
)
def mad_hi_cc_64(
    q: Qualifiers, a: Value, b: Value, c: Value, carry_in: Value | None = None
) -> tuple[Value, Value]:
    """As the others; a product of 128 bits is long."""
    return mad_cc(q, a, b, c, carry_in)


@opcodes("""
    ; name = lo hi
    madc.half.type  d, a, b, c, ^carry_in:pred  ; half = lo hi ; type = u32 s32
    madc.lo.type    d, a, b, c, ^carry_in:pred  ; type = u64 s64
""")
def madc(q: Qualifiers, a: Value, b: Value, c: Value, carry_in: Value) -> Value:
    """One half of ``a * b``, plus ``c``, and one more where a carry came in."""
    return _half(q, a, b) + c + _as_number(carry_in, c)


@opcodes(
    """
    ; name = hi
    madc.hi.type  d, a, b, c, ^carry_in:pred  ; type = u64 s64
    """,
    large=True,
)
def madc_hi_64(q: Qualifiers, a: Value, b: Value, c: Value, carry_in: Value) -> Value:
    """As the others; a product of 128 bits is long."""
    return madc(q, a, b, c, carry_in)


# ── products ────────────────────────────────────────────────────────────────


def _product(q: Qualifiers, a: Value, b: Value) -> Value:
    """``a * b`` in twice the bits."""
    signed = bits.is_signed(type_in(q))
    return bits.widened(a, signed) * bits.widened(b, signed)


def _half(q: Qualifiers, a: Value, b: Value) -> Value:
    """The lower or upper half of ``a * b``."""
    high = q.get("half") == "hi" or "hi" in q
    return bits.upper_half(_product(q, a, b)) if high else a * b


@opcodes("""
    ; name = lo hi
    mul.half.type  d, a, b  ; half = lo hi ; type = u16 u32 s16 s32 ; kind = carries -hi
    mul.lo.type    d, a, b  ; type = u64 s64 ; kind = carries
""")
def mul(q: Qualifiers, a: Value, b: Value) -> Value:
    """One half of ``a * b``."""
    return _half(q, a, b)


@opcodes(
    """
    ; name = hi
    mul.hi.type  d, a, b  ; type = u64 s64
    """,
    large=True,
)
def mul_hi_64(q: Qualifiers, a: Value, b: Value) -> Value:
    """The upper half of a product of 128 bits."""
    return _half(q, a, b)


@opcodes("""
    ; name = wide
    mul.wide.u16  d:u32, a, b
    mul.wide.s16  d:s32, a, b
    mul.wide.u32  d:u64, a, b
    mul.wide.s32  d:s64, a, b
""")
def mul_wide(q: Qualifiers, a: Value, b: Value) -> Value:
    """``a * b`` in twice the bits."""
    return _product(q, a, b)


@opcodes("""
    ; name = lo hi
    mad.half.type   d, a, b, c  ; half = lo hi ; type = u16 u32 s16 s32 ; kind = carries -hi
    mad.lo.type     d, a, b, c  ; type = u64 s64 ; kind = carries
    mad.hi.sat.s32  d, a, b, c
""")
def mad(q: Qualifiers, a: Value, b: Value, c: Value) -> Value:
    """One half of ``a * b``, plus ``c``."""
    half = _half(q, a, b)
    return bits.add_sat_signed(half, c) if q.get("sat") else half + c


@opcodes(
    """
    ; name = hi
    mad.hi.type  d, a, b, c  ; type = u64 s64
    """,
    large=True,
)
def mad_hi_64(q: Qualifiers, a: Value, b: Value, c: Value) -> Value:
    """The upper half of a product of 128 bits, plus ``c``."""
    return _half(q, a, b) + c


@opcodes("""
    ; name = wide
    mad.wide.u16  d:u32, a, b, c:u32
    mad.wide.s16  d:s32, a, b, c:s32
    mad.wide.u32  d:u64, a, b, c:u64
    mad.wide.s32  d:s64, a, b, c:s64
""")
def mad_wide(q: Qualifiers, a: Value, b: Value, c: Value) -> Value:
    """``a * b`` in twice the bits, plus ``c``."""
    return _product(q, a, b) + c


@opcodes("""
    ; name = lo hi
    mul24.half.type  d, a, b  ; half = lo hi ; type = u32 s32
""")
def mul24(q: Qualifiers, a: Value, b: Value) -> Value:
    """The lower or upper 32 of the 48 bits of a product of two 24-bit numbers."""
    signed = bits.is_signed(q["type"])
    x, y = (bits.field(each, 0, 24, signed) for each in (a, b))
    if q["half"] == "lo":
        return x * y
    product = bits.widened(x, signed) * bits.widened(y, signed)
    return bits.lower_half(bits.shift_right(product, 16))


@opcodes("""
    ; name = lo hi
    mad24.half.type   d, a, b, c  ; half = lo hi ; type = u32 s32
    mad24.hi.sat.s32  d, a, b, c
""")
def mad24(q: Qualifiers, a: Value, b: Value, c: Value) -> Value:
    """What ``mul24`` gives, plus ``c``."""
    product = mul24({"half": q.get("half", "hi"), "type": type_in(q)}, a, b)
    return bits.add_sat_signed(product, c) if q.get("sat") else product + c


@opcodes(
    """
    clmad.half.type  d, a, b, c  ; half = lo hi ; type = u64 s64 ; ptx = 9.3 ; target = sm_80
    """,
    large=True,
    fidelity="h200",
)
def clmad(q: Qualifiers, a: Value, b: Value, c: Value) -> Value:
    """One half of the product without carries, its bits inverted where ``c`` is set."""
    high = q["half"] == "hi"
    for place in range(high, 64):
        part = bits.shift_right(a, 64 - place) if high else a << place
        # All ones where this bit of b is set.
        c = c ^ (part & ((b << (63 - place)) >> 63))
    return c


@opcodes("""
    dp4a.atype.btype  d:b32, a:b32, b:b32, c:b32  ; atype = u32 s32 ; btype = u32 s32
""")
def dp4a(q: Qualifiers, a: Value, b: Value, c: Value) -> Value:
    """``c`` plus the products of four pairs of bytes."""
    x, y = bits.is_signed(q["atype"]), bits.is_signed(q["btype"])
    for first in range(0, 32, 8):
        c = c + bits.field(a, first, 8, x) * bits.field(b, first, 8, y)
    return c


@opcodes("""
    ; name = lo hi
    dp2a.half.atype.btype  d:b32, a:b32, b:b32, c:b32  ; half = lo hi ; atype = u32 s32 ; btype = u32 s32
""")
def dp2a(q: Qualifiers, a: Value, b: Value, c: Value) -> Value:
    """``c`` plus the products of two halves of ``a`` with two bytes of ``b``."""
    x, y = bits.is_signed(q["atype"]), bits.is_signed(q["btype"])
    start = 16 if q["half"] == "hi" else 0
    for place in range(2):
        byte = bits.field(b, start + 8 * place, 8, y)
        c = c + bits.field(a, 16 * place, 16, x) * byte
    return c


# ── quotients ───────────────────────────────────────────────────────────────


@opcodes(
    """
    div.type  d, a, b  ; type = u16 u32 u64 s16 s32 s64
    """,
    large=True,
    fidelity="h200",
)
def div(q: Qualifiers, a: Value, b: Value) -> Value:
    """``a / b``, toward zero; all ones where ``b`` is zero."""
    if not bits.is_signed(q["type"]):
        return select(b == 0, -1, bits.divide_unsigned(a, select(b == 0, 1, b)))
    return select(b == 0, -1, a // _divisor(a, b))


@opcodes(
    """
    rem.type  d, a, b  ; type = u16 u32 u64 s16 s32 s64
    """,
    large=True,
    fidelity="h200",
)
def rem(q: Qualifiers, a: Value, b: Value) -> Value:
    """What ``div`` leaves of ``a``; it has the sign of ``a``."""
    if not bits.is_signed(q["type"]):
        return select(b == 0, -1, bits.remainder_unsigned(a, select(b == 0, 1, b)))
    return select(b == 0, -1, a % _divisor(a, b))


def _divisor(a: Value, b: Value) -> Value:
    """``b``, or one where LLVM does not define the quotient.

    The smallest number divided by -1 is itself, as it is divided by one.
    """
    smallest = bits.lowest(a, signed=True)
    return select((b == 0) | ((a == smallest) & (b == -1)), 1, b)


# ── one sign, one of two ────────────────────────────────────────────────────


@opcodes("""
    abs.type  d, a  ; type = s16 s32 s64
""")
def absolute(q: Qualifiers, a: Value) -> Value:
    """``|a|``; the smallest number stays as it is."""
    return bits.magnitude(a)


@opcodes("""
    neg.type  d, a  ; type = s16 s32 s64 ; kind = carries
    neg.s8x4  d, a  ; ptx = 9.2 ; target = sm_107a sm_107f sm_120a sm_120f sm_121a sm_121f
""")
def neg(q: Qualifiers, a: Value) -> Value:
    """``-a``."""
    (x,) = _lanes(type_in(q), a)
    return bits.joined(0 - x, a)


@opcodes("""
    min.type          d, a, b  ; type = u16 u32 u64 s16 s32 s64
    min.relu.s32      d, a, b  ; ptx = 8.0 ; target = sm_90
    min.u16x2         d, a, b  ; ptx = 8.0 ; target = sm_90
    min{.relu}.s16x2  d, a, b  ; ptx = 8.0 ; target = sm_90
    min.u8x4          d, a, b  ; ptx = 9.2 ; target = sm_107a sm_107f sm_120a sm_120f sm_121a sm_121f
    min{.relu}.s8x4   d, a, b  ; ptx = 9.2 ; target = sm_107a sm_107f sm_120a sm_120f sm_121a sm_121f
""")
def smaller(q: Qualifiers, a: Value, b: Value) -> Value:
    """The smaller of two; with ``.relu`` zero instead of less."""
    return _one_of_two(bits.smaller_of, q, a, b)


@opcodes("""
    max.type          d, a, b  ; type = u16 u32 u64 s16 s32 s64
    max.relu.s32      d, a, b  ; ptx = 8.0 ; target = sm_90
    max.u16x2         d, a, b  ; ptx = 8.0 ; target = sm_90
    max{.relu}.s16x2  d, a, b  ; ptx = 8.0 ; target = sm_90
    max.u8x4          d, a, b  ; ptx = 9.2 ; target = sm_107a sm_107f sm_120a sm_120f sm_121a sm_121f
    max{.relu}.s8x4   d, a, b  ; ptx = 9.2 ; target = sm_107a sm_107f sm_120a sm_120f sm_121a sm_121f
""")
def larger(q: Qualifiers, a: Value, b: Value) -> Value:
    """The larger of two; with ``.relu`` zero instead of less."""
    return _one_of_two(bits.larger_of, q, a, b)


def _one_of_two(
    pick: Callable[[bool], Callable[..., Value]], q: Qualifiers, a: Value, b: Value
) -> Value:
    kind = type_in(q)
    x, y = _lanes(kind, a, b)
    one = pick(bits.is_signed(kind))(x, y)
    return bits.joined(bits.larger_signed(one, 0) if q.get("relu") else one, a)
