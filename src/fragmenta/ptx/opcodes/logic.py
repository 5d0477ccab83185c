"""Logic and shift instructions."""

from __future__ import annotations

from fragmenta.base.jit.trace import Value, convert, scalar_type, select
from fragmenta.ptx.opcodes import bits
from fragmenta.ptx.opcodes.table import Qualifiers, opcodes


@opcodes("""
    and.type  d, a, b  ; type = pred b16 b32 b64 ; kind = bitwise 0x88
""")
def and_(q: Qualifiers, a: Value, b: Value) -> Value:
    """The bits set in both."""
    return a & b


@opcodes("""
    or.type  d, a, b  ; type = pred b16 b32 b64 ; kind = bitwise 0xEE
""")
def or_(q: Qualifiers, a: Value, b: Value) -> Value:
    """The bits set in one or both."""
    return a | b


@opcodes("""
    xor.type  d, a, b  ; type = pred b16 b32 b64 ; kind = bitwise 0x66
""")
def xor(q: Qualifiers, a: Value, b: Value) -> Value:
    """The bits set in exactly one."""
    return a ^ b


@opcodes("""
    not.type  d, a  ; type = pred b16 b32 b64 ; kind = bitwise 0x55
""")
def not_(q: Qualifiers, a: Value) -> Value:
    """Every bit inverted."""
    return ~a


@opcodes("""
    cnot.type  d, a  ; type = b16 b32 b64
""")
def cnot(q: Qualifiers, a: Value) -> Value:
    """1 for zero, else 0: the ``!`` of C."""
    return convert(a == 0, scalar_type(a.type), signed=False)


# ── a table of three operands ───────────────────────────────────────────────


@opcodes("""
    lop3.b32  d, a, b, c, immLut:imm  ; kind = bitwise immLut
""")
def lop3(q: Qualifiers, a: Value, b: Value, c: Value) -> Value:
    """The bits that a truth table of eight entries gives for each three bits."""
    return _looked_up(int(q["immLut"]) & 255, a, b, c)


@opcodes("""
    lop3.BoolOp.b32  d|p, a, b, c, immLut:imm, source:pred  ; BoolOp = or and ; ptx = 8.2
""")
def lop3_predicate(
    q: Qualifiers, a: Value, b: Value, c: Value, source: Value
) -> tuple[Value, Value]:
    """As ``lop3``, and whether any bit is set, combined with a predicate."""
    found = lop3(q, a, b, c)
    any_set = found != 0
    return found, any_set & source if q["BoolOp"] == "and" else any_set | source


def _looked_up(table: int, x: Value, *rest: Value) -> Value:
    """A truth table; ``x`` chooses its upper half where it is set, else the lower."""
    if not rest:
        return (x.lift(0), ~x, x, x.lift(-1))[table]
    size = 1 << len(rest)
    every = (1 << size) - 1
    yes, no = table >> size, table & every
    if yes == no:
        return _looked_up(no, *rest)
    if yes ^ no == every:
        return x ^ _looked_up(no, *rest)
    if no in (0, every):
        found = _looked_up(yes, *rest)
        return ~x | found if no else x & found
    if yes in (0, every):
        found = _looked_up(no, *rest)
        return x | found if yes else ~x & found
    above, below = _looked_up(yes, *rest), _looked_up(no, *rest)
    return ((above ^ below) & x) ^ below


# ── shifts ──────────────────────────────────────────────────────────────────


@opcodes("""
    shl.type  d, a, b:u32  ; type = b16 b32 b64 ; kind = moves b
""")
def shl(q: Qualifiers, a: Value, b: Value) -> Value:
    """``a << b``; zero from the width on."""
    return bits.shifted_left(a, b)


@opcodes("""
    shr.type  d, a, b:u32  ; type = b16 b32 b64 u16 u32 u64 s16 s32 s64 ; kind = moves b
""")
def shr(q: Qualifiers, a: Value, b: Value) -> Value:
    """``a >> b``; signed types keep their sign."""
    return bits.shifted_right(a, b, bits.is_signed(q["type"]))


@opcodes("""
    ; name = l
    shf.l.mode.b32  d, a, b, c:u32  ; mode = clamp wrap ; kind = moves c
""")
def shf_left(q: Qualifiers, a: Value, b: Value, c: Value) -> Value:
    """The upper half of ``b:a`` shifted left by up to 32 (clamp) or 31 (wrap)."""
    return _funnel(q, bits.funnel_left(b, a, c), a, c)


@opcodes("""
    ; name = r
    shf.r.mode.b32  d, a, b, c:u32  ; mode = clamp wrap ; kind = moves c
""")
def shf_right(q: Qualifiers, a: Value, b: Value, c: Value) -> Value:
    """The lower half of ``b:a`` shifted right by up to 32 (clamp) or 31 (wrap)."""
    return _funnel(q, bits.funnel_right(b, a, c), b, c)


def _funnel(q: Qualifiers, found: Value, last: Value, amount: Value) -> Value:
    """What was found modulo 32; with ``clamp`` the last word from 32 on."""
    constant = bits.known(amount)
    if q["mode"] == "wrap" or (constant is not None and constant < 32):
        return found
    return select(bits.compared(">=", amount, 32, signed=False), last, found)
