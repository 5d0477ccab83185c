"""Instructions that move and resize integers.

An instruction may write a register that is wider than its type.  The emitter then
extends the result as the type says, with its sign or with zeros.
"""

from __future__ import annotations

from fragmenta.base.jit.trace import Value, convert
from fragmenta.ptx.opcodes import bits
from fragmenta.ptx.opcodes.table import Qualifiers, declare, opcodes


@opcodes("""
    ; kind = moves
    mov.type  d, a  ; type = pred b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64
    mov.b128  d, a  ; ptx = 8.3
""")
def mov(q: Qualifiers, a: Value) -> Value:
    """``a`` itself; for ``b128`` a pair of halves."""
    return a


declare(
    """
mov.vec.type  d*vec, a*vec  ; vec = v2 ; type = b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64
mov.vec.type  d*vec, a*vec  ; vec = v4 ; type = b16 b32 u16 u32 s16 s32 f32
""",
    kind="moves",
)


@opcodes("""
    ; kind = converts
    cvt.dtype.atype      d:dtype, a:atype  ; dtype = u8 u16 u32 u64 s8 s16 s32 s64 ; atype = u8 u16 u32 u64 s8 s16 s32 s64 ; kind = moves
    cvt.sat.dtype.atype  d:dtype, a:atype  ; dtype = u8  ; atype = u16 u32 u64 s8 s16 s32 s64
    cvt.sat.dtype.atype  d:dtype, a:atype  ; dtype = u16 ; atype = u32 u64 s8 s16 s32 s64
    cvt.sat.dtype.atype  d:dtype, a:atype  ; dtype = u32 ; atype = u64 s8 s16 s32 s64
    cvt.sat.dtype.atype  d:dtype, a:atype  ; dtype = u64 ; atype = s8 s16 s32 s64
    cvt.sat.dtype.atype  d:dtype, a:atype  ; dtype = s8  ; atype = u8 u16 u32 u64 s16 s32 s64
    cvt.sat.dtype.atype  d:dtype, a:atype  ; dtype = s16 ; atype = u16 u32 u64 s32 s64
    cvt.sat.dtype.atype  d:dtype, a:atype  ; dtype = s32 ; atype = u32 u64 s64
    cvt.sat.dtype.atype  d:dtype, a:atype  ; dtype = s64 ; atype = u64
""")
def cvt(q: Qualifiers, a: Value) -> Value:
    """An integer in another width; ``.sat`` brings it into the range of the result."""
    to, signed = bits.type_named(q["dtype"]), bits.is_signed(q["atype"])
    if q.get("sat"):
        a = _in_range(a, signed, to.width, bits.is_signed(q["dtype"]))
    return convert(a, to, signed=signed)


def _in_range(a: Value, signed: bool, width: int, to_signed: bool) -> Value:
    """A number brought into the range of a type, as far as it can be outside."""
    least = -(1 << (width - 1)) if to_signed else 0
    most = (1 << (width - to_signed)) - 1
    if least > bits.lowest(a, signed):
        a = bits.larger_of(signed)(a, least)
    if most < bits.highest(a, signed):
        a = bits.smaller_of(signed)(a, most)
    return a


@opcodes("""
    ; name = pack
    cvt.pack.sat.to.s32  d:b32, a, b  ; to = u16 s16 ; ptx = 6.5 ; kind = converts
""")
def cvt_pack(q: Qualifiers, a: Value, b: Value) -> Value:
    """Two integers brought into 16 bits each; ``b`` is the lower half."""
    signed = bits.is_signed(q["to"])
    high, low = (_in_range(x, True, 16, signed) for x in (a, b))
    return (high << 16) | (low & 0xFFFF)


@opcodes("""
    ; name = pack
    cvt.pack.sat.to.s32.b32  d:b32, a:s32, b:s32, c:b32  ; to = u2 s2 u4 s4 u8 s8 ; ptx = 6.5 ; kind = converts
""")
def cvt_pack_more(q: Qualifiers, a: Value, b: Value, c: Value) -> Value:
    """Two small integers, ``b`` the lower one, below the lower bits of ``c``."""
    signed, width = bits.is_signed(q["to"]), int(q["to"][1:])
    mask = (1 << width) - 1
    high, low = (_in_range(x, True, width, signed) & mask for x in (a, b))
    return (c << (2 * width)) | (high << width) | low
