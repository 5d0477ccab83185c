"""What do the instructions that compare and select compute?

Halves (``f16``) are compared as integers of the same order, so that no processor needs
to know them; ``bf16`` is the upper half of a ``f32``.
"""

from __future__ import annotations

from fragmenta.machine.trace import (
    I32,
    Value,
    convert,
    float_of,
    select,
)
from fragmenta.ptx.opcodes import bits
from fragmenta.ptx.opcodes.table import Qualifiers, opcodes

_SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
          "lo": "<", "ls": "<=", "hi": ">", "hs": ">="}  # fmt: skip


def _holds(compare: str, kind: str, ftz: bool, a: Value, b: Value) -> Value:
    """Whether a comparison holds, as i1."""
    if kind == "f16":
        return _of_halves(compare, ftz, a, b)
    if kind == "bf16":
        a, b = (convert(x, I32, signed=False) << 16 for x in (a, b))
        kind = "f32"
    if kind not in ("f32", "f64"):
        return bits.compared(_SIGNS[compare], a, b, bits.is_signed(kind))
    if ftz:
        a, b = _flushed(a), _flushed(b)
    x, y, emit = float_of(a), float_of(b), a.builder
    if compare in ("num", "nan"):
        name = "ord" if compare == "num" else "uno"
        return Value(emit, emit.fcmp_ordered(name, x.raw, y.raw))
    # A comparison that ends in u also holds if one of the two is NaN.
    if compare.endswith("u"):
        sign = _SIGNS[compare.removesuffix("u")]
        return Value(emit, emit.fcmp_unordered(sign, x.raw, y.raw))
    return Value(emit, emit.fcmp_ordered(_SIGNS[compare], x.raw, y.raw))


def _flushed(x: Value) -> Value:
    """Subnormal numbers of f32 or f16 as zeros of the same sign, in bits."""
    exponent = 0x7C00 if bits.width(x) == 16 else 0x7F800000
    sign = 1 << (bits.width(x) - 1)
    return select((x & exponent) == 0, x & sign, x)


def _of_halves(compare: str, ftz: bool, a: Value, b: Value) -> Value:
    """A comparison of f16."""
    nan = bits.compared(">", a & 0x7FFF, 0x7C00, signed=False)
    nan = nan | bits.compared(">", b & 0x7FFF, 0x7C00, signed=False)
    if compare in ("num", "nan"):
        return ~nan if compare == "num" else nan
    if ftz:
        a, b = _flushed(a), _flushed(b)
    # Both zeros become 0; negative numbers are ordered the other way round.
    x, y = (select(each < 0, 0 - (each & 0x7FFF), each) for each in (a, b))
    unordered = compare.endswith("u")
    found = bits.compared(_SIGNS[compare.removesuffix("u")], x, y, signed=True)
    return found | nan if unordered else found & ~nan


def _combined(q: Qualifiers, found: Value, c: Value) -> Value:
    operation = q["BoolOp"]
    if operation == "and":
        return found & c
    return found | c if operation == "or" else found ^ c


# ── predicates ──────────────────────────────────────────────────────────────
#
# Every line gives both predicates, the second for the comparison that does not hold.


@opcodes("""
    setp.CmpOp.type        p|q:pred, a, b          ; CmpOp = eq ne ; type = b16 b32 b64
    setp.CmpOp.type        p|q:pred, a, b          ; CmpOp = eq ne lt le gt ge ; type = s16 s32 s64
    setp.CmpOp.type        p|q:pred, a, b          ; CmpOp = eq ne lt le gt ge lo ls hi hs ; type = u16 u32 u64
    setp.CmpOp{.ftz}.type  p|q:pred, a, b          ; CmpOp = eq ne lt le gt ge equ neu ltu leu gtu geu num nan ; type = f32
    setp.CmpOp.type        p|q:pred, a, b          ; CmpOp = eq ne lt le gt ge equ neu ltu leu gtu geu num nan ; type = f64
    setp.CmpOp{.ftz}.type  p|q:pred, a, b          ; CmpOp = eq ne lt le gt ge equ neu ltu leu gtu geu num nan ; type = f16
    setp.CmpOp.type        p|q:pred, a, b          ; CmpOp = eq ne lt le gt ge equ neu ltu leu gtu geu num nan ; type = bf16 ; ptx = 7.8 ; target = sm_90
""")
def setp(q: Qualifiers, a: Value, b: Value) -> tuple[Value, Value]:
    """Whether a comparison holds, and whether it does not."""
    found = _holds(q["CmpOp"], q["type"], bool(q.get("ftz")), a, b)
    return found, ~found


@opcodes("""
    setp.CmpOp.BoolOp.type        p|q:pred, a, b, c:pred  ; CmpOp = eq ne ; BoolOp = and or xor ; type = b16 b32 b64
    setp.CmpOp.BoolOp.type        p|q:pred, a, b, c:pred  ; CmpOp = eq ne lt le gt ge ; BoolOp = and or xor ; type = s16 s32 s64
    setp.CmpOp.BoolOp.type        p|q:pred, a, b, c:pred  ; CmpOp = eq ne lt le gt ge lo ls hi hs ; BoolOp = and or xor ; type = u16 u32 u64
    setp.CmpOp.BoolOp{.ftz}.type  p|q:pred, a, b, c:pred  ; CmpOp = eq ne lt le gt ge equ neu ltu leu gtu geu num nan ; BoolOp = and or xor ; type = f32
    setp.CmpOp.BoolOp.type        p|q:pred, a, b, c:pred  ; CmpOp = eq ne lt le gt ge equ neu ltu leu gtu geu num nan ; BoolOp = and or xor ; type = f64
    setp.CmpOp.BoolOp{.ftz}.type  p|q:pred, a, b, c:pred  ; CmpOp = eq ne lt le gt ge equ neu ltu leu gtu geu num nan ; BoolOp = and or xor ; type = f16
    setp.CmpOp.BoolOp.type        p|q:pred, a, b, c:pred  ; CmpOp = eq ne lt le gt ge equ neu ltu leu gtu geu num nan ; BoolOp = and or xor ; type = bf16 ; ptx = 7.8 ; target = sm_90
""")
def setp_combined(q: Qualifiers, a: Value, b: Value, c: Value) -> tuple[Value, Value]:
    """Both predicates of ``setp``, each combined with another one."""
    found, other = setp(q, a, b)
    return _combined(q, found, c), _combined(q, other, c)


@opcodes("""
    selp.type  d, a, b, c:pred  ; type = b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64
""")
def selp(q: Qualifiers, a: Value, b: Value, c: Value) -> Value:
    """``a`` where the predicate holds, else ``b``."""
    return select(c, a, b)
