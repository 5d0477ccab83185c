"""Instructions that compare and select.

Halves (``f16``) are compared as integers of the same order, so that no processor needs
to know them; ``bf16`` is the upper half of a ``f32``.
"""

from __future__ import annotations

import re

from fragmenta.base.jit.llvm import Type
from fragmenta.base.jit.trace import I16, I32, Value, convert, float_of, select
from fragmenta.ptx.opcodes import bits
from fragmenta.ptx.opcodes.table import Qualifiers, opcodes, type_in

_SIGNS = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "lo": "<",
    "ls": "<=",
    "hi": ">",
    "hs": ">=",
}


def _holds(q: Qualifiers, kind: str, a: Value, b: Value) -> Value:
    """Whether a comparison of numbers of a type holds, as i1."""
    compare, ftz = q["CmpOp"], bool(q.get("ftz"))
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


def _combined(q: Qualifiers, found: Value, c: Value | None) -> Value:
    """A predicate combined with another one, if there is one."""
    if c is None:
        return found
    operation = q["BoolOp"]
    if operation == "and":
        return found & c
    return found | c if operation == "or" else found ^ c


_WORDS = {
    "CmpOp": "eq ne lt le gt ge equ neu ltu leu gtu geu num nan",
    "BoolOp": "and or xor",
}


def _with_predicate(lines: str) -> str:
    """The same lines with an operation that combines the result with a predicate."""
    return re.sub(r", b(:stype)?", r", b\1, c:pred", lines).replace(
        ".CmpOp", ".CmpOp.BoolOp"
    )


# ── predicates ──────────────────────────────────────────────────────────────

_SETP = """
    setp.CmpOp.type        p|q:pred, a, b  ; CmpOp = eq ne ; type = b16 b32 b64
    setp.CmpOp.type        p|q:pred, a, b  ; CmpOp = eq ne lt le gt ge ; type = s16 s32 s64
    setp.CmpOp.type        p|q:pred, a, b  ; CmpOp = eq ne lt le gt ge lo ls hi hs ; type = u16 u32 u64
    setp.CmpOp{.ftz}.f32   p|q:pred, a, b
    setp.CmpOp.f64         p|q:pred, a, b
"""
_SETP_SMALL = """
    setp.CmpOp{.ftz}.f16   p:pred, a, b
    setp.CmpOp.bf16        p:pred, a, b  ; ptx = 7.8 ; target = sm_90
"""
_SETP_PACKED = """
    setp.CmpOp{.ftz}.f16x2  p|q:pred, a, b
    setp.CmpOp.bf16x2       p|q:pred, a, b  ; ptx = 7.8 ; target = sm_90
"""


@opcodes(_SETP, words=_WORDS, kind="compares")
@opcodes(_with_predicate(_SETP), words=_WORDS, kind="compares")
def setp(
    q: Qualifiers, a: Value, b: Value, c: Value | None = None
) -> tuple[Value, Value]:
    """Whether a comparison holds, and whether it does not; each combined with ``c``."""
    found = _holds(q, type_in(q), a, b)
    return _combined(q, found, c), _combined(q, ~found, c)


@opcodes(_SETP_SMALL, words=_WORDS, kind="compares")
@opcodes(_with_predicate(_SETP_SMALL), words=_WORDS, kind="compares")
def setp_small(q: Qualifiers, a: Value, b: Value, c: Value | None = None) -> Value:
    """Whether a comparison holds, combined with ``c``."""
    return _combined(q, _holds(q, type_in(q), a, b), c)


@opcodes(_SETP_PACKED, words=_WORDS, kind="compares")
@opcodes(_with_predicate(_SETP_PACKED), words=_WORDS, kind="compares")
def setp_packed(
    q: Qualifiers, a: Value, b: Value, c: Value | None = None
) -> tuple[Value, Value]:
    """Whether it holds for the lower halves, and for the upper ones."""
    kind = type_in(q).removesuffix("x2")
    low = _holds(q, kind, bits.lower_half(a), bits.lower_half(b))
    high = _holds(q, kind, bits.upper_half(a), bits.upper_half(b))
    return _combined(q, low, c), _combined(q, high, c)


# ── numbers for true and false ──────────────────────────────────────────────

_SET = """
    set.CmpOp.dtype.stype       d:dtype, a:stype, b:stype  ; CmpOp = eq ne ; dtype = u32 s32 f32 f16 ; stype = b16 b32 b64
    set.CmpOp.dtype.stype       d:dtype, a:stype, b:stype  ; CmpOp = eq ne lt le gt ge ; dtype = u32 s32 f32 f16 ; stype = s16 s32 s64
    set.CmpOp.dtype.stype       d:dtype, a:stype, b:stype  ; CmpOp = eq ne lt le gt ge lo ls hi hs ; dtype = u32 s32 f32 f16 ; stype = u16 u32 u64
    set.CmpOp{.ftz}.dtype.stype d:dtype, a:stype, b:stype  ; dtype = u32 s32 f32 f16 ; stype = f32
    set.CmpOp.dtype.stype       d:dtype, a:stype, b:stype  ; dtype = u32 s32 f32 f16 ; stype = f64
    set.CmpOp{.ftz}.dtype.stype d:dtype, a:stype, b:stype  ; dtype = f16 ; stype = f16
    set.CmpOp{.ftz}.dtype.stype d:dtype, a:stype, b:stype  ; dtype = u16 s16 u32 s32 ; stype = f16 ; ptx = 6.5
    set.CmpOp.dtype.stype       d:dtype, a:stype, b:stype  ; dtype = u16 s16 u32 s32 bf16 ; stype = bf16 ; ptx = 7.8 ; target = sm_90
    set.CmpOp.dtype.stype       d:dtype, a:stype, b:stype  ; CmpOp = eq ne ; dtype = bf16 ; stype = b16 b32 b64 ; ptx = 7.8 ; target = sm_90
    set.CmpOp.dtype.stype       d:dtype, a:stype, b:stype  ; CmpOp = eq ne lt le gt ge ; dtype = bf16 ; stype = s16 s32 s64 ; ptx = 7.8 ; target = sm_90
    set.CmpOp.dtype.stype       d:dtype, a:stype, b:stype  ; CmpOp = eq ne lt le gt ge lo ls hi hs ; dtype = bf16 ; stype = u16 u32 u64 ; ptx = 7.8 ; target = sm_90
    set.CmpOp.dtype.stype       d:dtype, a:stype, b:stype  ; dtype = bf16 ; stype = f16 f32 f64 ; ptx = 7.8 ; target = sm_90
"""
_SET_PACKED = """
    set.CmpOp{.ftz}.dtype.stype d:dtype, a:stype, b:stype  ; dtype = f16x2 ; stype = f16x2
    set.CmpOp{.ftz}.dtype.stype d:dtype, a:stype, b:stype  ; dtype = u32 s32 ; stype = f16x2 ; ptx = 6.5
    set.CmpOp.dtype.stype       d:dtype, a:stype, b:stype  ; dtype = u32 s32 bf16x2 ; stype = bf16x2 ; ptx = 7.8 ; target = sm_90
"""
# 1.0; an integer has all its bits set.
_TRUE = {
    "f32": 0x3F800000,
    "f16": 0x3C00,
    "bf16": 0x3F80,
    "f16x2": 0x3C00,
    "bf16x2": 0x3F80,
}


@opcodes(_SET, words=_WORDS, kind="compares")
@opcodes(_with_predicate(_SET), words=_WORDS, kind="compares")
def set_(q: Qualifiers, a: Value, b: Value, c: Value | None = None) -> Value:
    """What the type has for true, or zero."""
    found = _combined(q, _holds(q, q["stype"], a, b), c)
    return _as_number(found, q["dtype"], bits.type_named(q["dtype"]))


@opcodes(_SET_PACKED, words=_WORDS, kind="compares")
@opcodes(_with_predicate(_SET_PACKED), words=_WORDS, kind="compares")
def set_packed(q: Qualifiers, a: Value, b: Value, c: Value | None = None) -> Value:
    """What the type has for true, or zero, in each half."""
    low, high = setp_packed({**q, "type": q["stype"]}, a, b, c)
    lower, upper = (_as_number(found, q["dtype"], I16) for found in (low, high))
    wide = [convert(half, I32, signed=False) for half in (lower, upper)]
    return wide[0] | (wide[1] << 16)


def _as_number(found: Value, kind: str, of: Type) -> Value:
    """What a type has for true and false."""
    whole = convert(found, of)
    return whole & _TRUE[kind] if kind in _TRUE else whole


# ── one of two ──────────────────────────────────────────────────────────────


@opcodes("""
    selp.type  d, a, b, c:pred  ; type = b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64 ; kind = moves c
""")
def selp(q: Qualifiers, a: Value, b: Value, c: Value) -> Value:
    """``a`` where the predicate holds, else ``b``."""
    return select(c, a, b)


@opcodes(
    """
    slct.dtype.s32        d:dtype, a:dtype, b:dtype, c:s32
    slct{.ftz}.dtype.f32  d:dtype, a:dtype, b:dtype, c:f32
    """,
    words={"dtype": "b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64"},
)
def slct(q: Qualifiers, a: Value, b: Value, c: Value) -> Value:
    """``a`` where ``c`` is at least zero, else ``b``; also for NaN."""
    if "s32" in q:
        return select(c >= 0, a, b)
    at_least_zero = float_of(_flushed(c) if q["ftz"] else c) >= 0.0
    return select(at_least_zero, a, b)
