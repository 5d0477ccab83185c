"""Video instructions.

They select bytes or halves of their operands, compute with more bits than those have,
saturate, and then merge the result into a part of ``c`` or combine it with ``c``.  The
selectors come with the qualifiers: ``asel``, ``bsel`` and ``dsel`` are words such as
``b0``, ``h1`` or (for several numbers at once) ``h10`` and ``b3210``, or empty.

No GPU of today has these instructions: ptxas writes other ones for them.  With ``.sat``,
a scale, or a second operation ``min`` or ``max``, what it writes for one number is not
what the manual says: ``vadd.u32.u32.u32.sat`` does not saturate, for example.  The
functions compute what the code of ptxas 13.4 for sm_90 does.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TypeAlias

from fragmenta.base.jit.trace import I32, I64, Value, convert, select
from fragmenta.ptx.opcodes import bits
from fragmenta.ptx.opcodes.table import Qualifiers, opcodes

Compute: TypeAlias = Callable[[Value, Value], Value]

_TYPES = dict.fromkeys(("dtype", "atype", "btype"), "u32 s32")
_PARTS = "b0 b1 b2 b3 h0 h1"
_WORDS = {
    **_TYPES,
    "asel": _PARTS,
    "bsel": _PARTS,
    "dsel": _PARTS,
    "op2": "add min max",
    "mode": "clamp wrap",
    "cmp": "eq ne lt le gt ge",
}

# ── one number ──────────────────────────────────────────────────────────────


def _place(selector: str) -> tuple[int, int]:
    """The first bit and the number of bits of a selected part."""
    if not selector:
        return 0, 32
    size = 8 if selector[0] == "b" else 16
    return int(selector[1]) * size, size


def _selected(x: Value, selector: str, kind: str) -> Value:
    """A part of an operand as a number of 64 bits."""
    signed = bits.is_signed(kind)
    return convert(bits.field(x, *_place(selector), signed), I64, signed=signed)


def _saturated(x: Value, size: int, signed: bool) -> Value:
    """A number brought into the range of so many bits."""
    least = -(1 << (size - 1)) if signed else 0
    return bits.clamped(x, least, (1 << (size - signed)) - 1)


def _whole(q: Qualifiers, found: Value) -> Value:
    """A number saturated to a word: an unsigned one only from below."""
    if bits.is_signed(q["dtype"]):
        return _saturated(found, 32, signed=True)
    return bits.larger_signed(found, 0)


def _part(q: Qualifiers, found: Value) -> Value:
    """A number saturated to the selected part: only from above, as without a sign."""
    size = _place(q["dsel"])[1]
    most = (1 << (size - bits.is_signed(q["dtype"]))) - 1
    return bits.smaller_unsigned(found, most)


def _finished(q: Qualifiers, found: Value, c: Value | None, wide: Value) -> Value:
    """A result combined with ``c`` or merged into it.

    The second operations ``min`` and ``max`` compare ``wide``, which has 64 bits.
    """
    word = convert(found, I32)
    if c is None:
        return word
    operation = q.get("op2")
    if operation == "add":
        return word + c
    if operation:
        signed = bits.is_signed(q["dtype"])
        sign = "<" if operation == "min" else ">"
        other = convert(c, I64, signed=signed)
        return select(bits.compared(sign, wide, other, signed), word, c)
    first, size = _place(q.get("dsel", ""))
    mask = ((1 << size) - 1) << first
    return ((word << first) & mask) | (c & ~mask)


def _extended(x: Value) -> Value:
    """The lowest 32 bits as a signed number of 64."""
    return convert(convert(x, I32), I64)


def _distance(x: Value, y: Value) -> Value:
    return bits.magnitude(x - y)


_SIMPLE: dict[str, Compute] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "absdiff": _distance,
    "min": bits.smaller_signed,
    "max": bits.larger_signed,
}


def _one(name: str) -> Callable[..., Value]:
    """An instruction with one number."""

    def emit(q: Qualifiers, a: Value, b: Value, c: Value | None = None) -> Value:
        x = _selected(a, q.get("asel", ""), q["atype"])
        y = _selected(b, q.get("bsel", ""), q["btype"])
        found = _SIMPLE[name](x, y)
        if q["sat"]:
            found = _part(q, found) if q.get("dsel") else _whole(q, found)
        sums = name in ("add", "sub")
        return _finished(q, found, c, _extended(found) if sums else found)

    return emit


def _declared(name: str, emit: Callable[..., Value], btype: str = "u32 s32") -> None:
    """The lines of an instruction with one number; ``name`` has its qualifiers."""
    operands = "a{.asel}:atype, b{.bsel}:btype"
    opcodes(
        f"""
    {name}      d{{.dsel}}:dtype, {operands}, {{c:b32}}
    {name}.op2  d:dtype, {operands}, c:b32
        """,
        large=True,
        fidelity="h200",
        words={**_WORDS, "btype": btype},
    )(emit)


for _name in _SIMPLE:
    _declared(f"v{_name}.dtype.atype.btype{{.sat}}", _one(_name))


def _shift(q: Qualifiers, a: Value, b: Value) -> tuple[Value, Value]:
    """The number to be shifted, and by how much."""
    by = _selected(b, q.get("bsel", ""), "u32")
    by = by & 31 if q["mode"] == "wrap" else bits.smaller_unsigned(by, 32)
    return _selected(a, q.get("asel", ""), q["atype"]), by


def vshl(q: Qualifiers, a: Value, b: Value, c: Value | None = None) -> Value:
    """A selected part shifted left by up to 32; 34 bits of that are saturated."""
    x, by = _shift(q, a, b)
    found = x << by
    if not q["sat"]:
        return _finished(q, found, c, found)
    found = _saturated((found << 30) >> 30, 32, bits.is_signed(q["dtype"]))
    return _finished(q, found, c, _extended(found))


def vshr(q: Qualifiers, a: Value, b: Value, c: Value | None = None) -> Value:
    """A selected part shifted right by up to 32; saturated to a word, never to a part."""
    x, by = _shift(q, a, b)
    found = _whole(q, x >> by) if q["sat"] else x >> by
    return _finished(q, found, c, _extended(found) if q["sat"] else found)


_declared("vshl.dtype.atype.btype{.sat}.mode", vshl, "u32")
_declared("vshr.dtype.atype.btype{.sat}.mode", vshr, "u32")

_SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


@opcodes(
    """
    vset.atype.btype.cmp      d{.dsel}:u32, a{.asel}:atype, b{.bsel}:btype, {c:b32}
    vset.atype.btype.cmp.op2  d:u32, a{.asel}:atype, b{.bsel}:btype, c:b32
    """,
    large=True,
    fidelity="h200",
    words=_WORDS,
)
def vset(q: Qualifiers, a: Value, b: Value, c: Value | None = None) -> Value:
    """1 where a comparison of two selected parts holds, else 0."""
    x = _selected(a, q.get("asel", ""), q["atype"])
    y = _selected(b, q.get("bsel", ""), q["btype"])
    found = bits.compared(_SIGNS[q["cmp"]], x, y, signed=True)
    # A second operation min or max takes the signedness of a.
    kind = {**q, "dtype": q["atype"]}
    number = convert(found, I64, signed=False)
    return _finished(kind, number, c, number)


@opcodes(
    """
    vmad.dtype.atype.btype{.sat}{.scale}     d:dtype, {-}a{.asel}:atype, {-}b{.bsel}:btype, {-}c:b32
    vmad.dtype.atype.btype.po{.sat}{.scale}  d:dtype, a{.asel}:atype, b{.bsel}:btype, c:b32
    """,
    large=True,
    fidelity="h200",
    words={**_WORDS, "scale": "shr7 shr15"},
)
def vmad(q: Qualifiers, a: Value, b: Value, c: Value) -> Value:
    """``a * b + c`` of selected parts, scaled down by a shift, in 32 bits.

    One of the product and ``c`` may be negated; ``.po`` adds one.  Whole words are
    taken as signed numbers, whatever their types.
    """
    asel, bsel = q.get("asel", ""), q.get("bsel", "")
    x = _selected(a, asel, q["atype"] if asel else "s32")
    y = _selected(b, bsel, q["btype"] if bsel else "s32")
    z = convert(c, I64)
    minus = q.get("aneg", "") != q.get("bneg", "")
    signed = "s32" in (q["atype"], q["btype"]) or minus or bool(q.get("cneg"))
    product = 0 - x * y if minus else x * y
    total = product + (0 - z if q.get("cneg") else z)
    if q.get("po"):
        total = total + 1
    if q["scale"]:
        total = total >> int(q["scale"].removeprefix("shr"))
    if q["sat"] and q["scale"] and not signed:
        total = bits.smaller_unsigned(total, 0xFFFFFFFF)
    elif q["sat"]:
        total = _saturated(total, 32, signed)
    return convert(total, I32)


# ── several numbers at once ─────────────────────────────────────────────────


def _average(x: Value, y: Value) -> Value:
    """Half the sum; a half is rounded away from zero."""
    total = x + y
    return (total + select(total >= 0, total.lift(1), 0)) >> 1


_SEVERAL: dict[str, Compute] = {**_SIMPLE, "avrg": _average}


def _choices(letter: str, count: int) -> dict[str, str]:
    """What may be selected: which numbers of ``b:a``, and which results."""
    digits = [str(number) for number in reversed(range(count))]
    masks = [
        letter + "".join(some)
        for size in range(1, count + 1)
        for some in itertools.combinations(digits, size)
    ]
    picks = itertools.product(map(str, range(2 * count)), repeat=count)
    sources = " ".join(letter + "".join(some) for some in picks)
    return {**_WORDS, "asel": sources, "bsel": sources, "dsel": " ".join(masks)}


def _numbers(
    a: Value, b: Value, selector: str, count: int, signed: bool, first: int
) -> list[Value]:
    """The selected numbers of ``b:a``, the lowest first; by default from ``first`` on."""
    size = 32 // count
    chosen = [int(digit) for digit in reversed(selector[1:])]
    return [
        bits.field(b if number >= count else a, number % count * size, size, signed)
        for number in chosen or range(first, first + count)
    ]


def _in_parts(count: int, compute: Compute | None) -> Callable[..., Value]:
    """An instruction that computes with two halves or four bytes, or compares them."""
    size = 32 // count

    def emit(q: Qualifiers, a: Value, b: Value, c: Value) -> Value:
        x = _numbers(a, b, q.get("asel", ""), count, bits.is_signed(q["atype"]), 0)
        y = _numbers(a, b, q.get("bsel", ""), count, bits.is_signed(q["btype"]), count)
        each = compute or _comparison(q["cmp"])
        found = [each(one, two) for one, two in zip(x, y, strict=True)]
        if q.get("sat"):
            signed = bits.is_signed(q["dtype"])
            found = [_saturated(one, size, signed) for one in found]
        chosen = q.get("dsel", "")
        wanted = [not chosen or str(n) in chosen[1:] for n in range(count)]
        return _gathered(found, wanted, c, bool(q.get("add")))

    return emit


def _comparison(name: str) -> Compute:
    def compute(x: Value, y: Value) -> Value:
        found = bits.compared(_SIGNS[name], x, y, signed=True)
        return convert(found, I32, signed=False)

    return compute


def _gathered(found: list[Value], wanted: list[bool], c: Value, add: bool) -> Value:
    """The wanted numbers added to ``c``, or in their places in ``c``."""
    size = 32 // len(found)
    for number, one in enumerate(found):
        if not wanted[number]:
            continue
        mask = ((1 << size) - 1) << (number * size)
        c = c + one if add else (c & ~mask) | ((one << (number * size)) & mask)
    return c


for _count, _letter in ((2, "h"), (4, "b")):
    _words = _choices(_letter, _count)
    for _name, _compute in _SEVERAL.items():
        opcodes(
            f"""
    v{_name}{_count}.dtype.atype.btype{{.sat}}  d{{.dsel}}:dtype, a{{.asel}}:atype, b{{.bsel}}:btype, c:b32
    v{_name}{_count}.dtype.atype.btype.add      d{{.dsel}}:dtype, a{{.asel}}:atype, b{{.bsel}}:btype, c:b32
            """,
            large=True,
            fidelity="h200",
            words=_words,
        )(_in_parts(_count, _compute))
    opcodes(
        f"""
    vset{_count}.atype.btype.cmp{{.add}}  d{{.dsel}}:u32, a{{.asel}}:atype, b{{.bsel}}:btype, c:b32
        """,
        large=True,
        fidelity="h200",
        words=_words,
    )(_in_parts(_count, None))
