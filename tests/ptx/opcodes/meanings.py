"""What the PTX manual says that the instructions compute.

Each function states it for one input in Python's integers, bit by bit where the
manual does.  Operands and results are bits without a sign; ``q`` are the qualifiers.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from typing import Any

Meaning = Callable[..., Any]
MEANINGS: dict[str, Meaning] = {}


def width(kind: str) -> int:
    return int("".join(filter(str.isdecimal, kind.partition("x")[0].lstrip("bf"))) or 1)


def number(x: int, kind: str) -> int:
    """The number that bits stand for in an integer type."""
    bits = width(kind)
    x &= (1 << bits) - 1
    return x - (1 << bits) if kind.startswith("s") and x >> (bits - 1) else x


def cut(x: int, kind: str) -> int:
    return x & ((1 << width(kind)) - 1)


def clamp(x: int, kind: str) -> int:
    bits = width(kind)
    low = -(1 << (bits - 1)) if kind.startswith("s") else 0
    high = (1 << (bits - kind.startswith("s"))) - 1
    return max(low, min(high, x))


def means(*names: str) -> Callable[[Meaning], Meaning]:
    def add(meaning: Meaning) -> Meaning:
        MEANINGS.update(dict.fromkeys(names, meaning))
        return meaning

    return add


def in_lanes(kind: str, compute: Callable[..., int], *operands: int) -> int:
    """A packed type: each part by itself."""
    base, _, times = kind.partition("x")
    bits, found = width(kind), 0
    for part in range(int(times or 1)):
        parts = [number(x >> (bits * part), base) for x in operands]
        found |= cut(compute(*parts), base) << (bits * part)
    return found


# ── integers ────────────────────────────────────────────────────────────────


@means("add", "sub")
def sums(q: Mapping[str, str], kind: str, a: int, b: int, opcode: str) -> Any:
    sign = 1 if opcode == "add" else -1
    if q.get("cc"):
        exact = a + sign * b
        beyond = int(exact != cut(exact, kind))
        return cut(exact, kind), beyond if opcode == "add" else 1 - beyond
    base = kind.partition("x")[0]

    def one(x: int, y: int) -> int:
        return clamp(x + sign * y, base) if q.get("sat") else x + sign * y

    return in_lanes(kind, one, a, b)


@means("addc", "subc")
def carried(
    q: Mapping[str, str], kind: str, a: int, b: int, carry: int, opcode: str
) -> Any:
    # The flag of a subtraction is set where nothing is borrowed.
    exact = a + b + carry if opcode == "addc" else a - b - (1 - carry)
    found = cut(exact, kind)
    beyond = int(exact != found)
    flag = beyond if opcode == "addc" else 1 - beyond
    return (found, flag) if q.get("cc") else found


def half(q: Mapping[str, str], kind: str, product: int) -> int:
    return product >> width(kind) if "hi" in q.values() else product


@means("mul")
def mul(q: Mapping[str, str], kind: str, a: int, b: int, opcode: str) -> int:
    product = number(a, kind) * number(b, kind)
    if "wide" in q:
        return product & ((1 << (2 * width(kind))) - 1)
    return cut(half(q, kind, product), kind)


@means("mad", "madc")
def mad(
    q: Mapping[str, str], kind: str, a: int, b: int, c: int, *carry: int, opcode: str
) -> Any:
    product = number(a, kind) * number(b, kind)
    if "wide" in q:
        return (product + c) & ((1 << (2 * width(kind))) - 1)
    part = half(q, kind, product)
    if q.get("sat"):
        return cut(clamp(number(part, kind) + number(c, kind), kind), kind)
    exact = cut(part, kind) + c + sum(carry)
    return (cut(exact, kind), exact >> width(kind)) if q.get("cc") else cut(exact, kind)


@means("mul24", "mad24")
def mul24(q: Mapping[str, str], kind: str, a: int, b: int, *c: int, opcode: str) -> int:
    small = kind[0] + "24"
    product = number(a, small) * number(b, small)
    part = product >> 16 if "hi" in q.values() else product
    if q.get("sat"):
        return cut(clamp(number(part, kind) + number(c[0], kind), kind), kind)
    return cut(part + sum(c), kind)


@means("clmad")
def clmad(q: Mapping[str, str], kind: str, a: int, b: int, c: int, opcode: str) -> int:
    product = 0
    for place in range(64):
        if b >> place & 1:
            product ^= a << place
    return cut(half(q, kind, product) ^ c, kind)


@means("sad")
def sad(q: Mapping[str, str], kind: str, a: int, b: int, c: int, opcode: str) -> int:
    return cut(c + abs(number(a, kind) - number(b, kind)), kind)


@means("div", "rem")
def div(q: Mapping[str, str], kind: str, a: int, b: int, opcode: str) -> int | None:
    x, y = number(a, kind), number(b, kind)
    if y == 0:
        return None  # the manual leaves it open
    quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
    return cut(quotient if opcode == "div" else x - quotient * y, kind)


@means("abs", "neg")
def signs(q: Mapping[str, str], kind: str, a: int, opcode: str) -> int:
    return in_lanes(kind, abs if opcode == "abs" else lambda x: -x, a)


@means("min", "max")
def extremes(q: Mapping[str, str], kind: str, a: int, b: int, opcode: str) -> int:
    pick = min if opcode == "min" else max
    least = 0 if q.get("relu") else -(1 << 64)
    return in_lanes(kind, lambda x, y: max(pick(x, y), least), a, b)


@means("dp4a", "dp2a")
def dot(q: Mapping[str, str], kind: str, a: int, b: int, c: int, opcode: str) -> int:
    size, count = (8, 4) if opcode == "dp4a" else (16, 2)
    first = 2 if q.get("half") == "hi" else 0
    for i in range(count):
        x = number(a >> (size * i), f"{q['atype'][0]}{size}")
        c += x * number(b >> (8 * (first + i)), f"{q['btype'][0]}8")
    return cut(c, "u32")


# ── logic, shifts ───────────────────────────────────────────────────────────


@means("and", "or", "xor")
def logic(q: Mapping[str, str], kind: str, a: int, b: int, opcode: str) -> int:
    return {"and": a & b, "or": a | b, "xor": a ^ b}[opcode]


@means("not", "cnot")
def negation(q: Mapping[str, str], kind: str, a: int, opcode: str) -> int:
    return cut(~a, kind) if opcode == "not" else int(a == 0)


@means("lop3")
def lop3(
    q: Mapping[str, str],
    kind: str,
    a: int,
    b: int,
    c: int,
    table: int,
    *p: int,
    opcode: str,
) -> Any:
    found = 0
    for bit in range(32):
        entry = (a >> bit & 1) << 2 | (b >> bit & 1) << 1 | (c >> bit & 1)
        found |= (table >> entry & 1) << bit
    if not p:
        return found
    return found, int(found != 0) & p[0] if q["BoolOp"] == "and" else int(
        found != 0
    ) | p[0]


@means("shl", "shr")
def shifts(q: Mapping[str, str], kind: str, a: int, b: int, opcode: str) -> int:
    by = min(b, width(kind))
    return cut(a << by if opcode == "shl" else number(a, kind) >> by, kind)


@means("shf")
def shf(q: Mapping[str, str], kind: str, a: int, b: int, c: int, opcode: str) -> int:
    by = min(c, 32) if q["mode"] == "clamp" else c & 31
    both = b << 32 | a
    return cut(both << by >> 32 if "l" in q else both >> by, "b32")


# ── bits ────────────────────────────────────────────────────────────────────


@means("popc", "clz", "brev")
def counted(q: Mapping[str, str], kind: str, a: int, opcode: str) -> int:
    text = f"{a:0{width(kind)}b}"
    if opcode == "brev":
        return int(text[::-1], 2)
    return text.count("1") if opcode == "popc" else len(text) - len(text.lstrip("0"))


@means("bfind")
def bfind(q: Mapping[str, str], kind: str, a: int, opcode: str) -> int:
    bits = width(kind)
    if kind.startswith("s") and a >> (bits - 1):
        a = cut(~a, kind)
    if not a:
        return 0xFFFFFFFF
    place = a.bit_length() - 1
    return bits - 1 - place if q["shiftamt"] else place


@means("fns")
def fns(
    q: Mapping[str, str], kind: str, mask: int, base: int, offset: int, opcode: str
) -> int | None:
    if base > 31:
        return None  # the manual leaves it open
    offset = number(offset, "s32")
    if offset == 0:
        return base if mask >> base & 1 else 0xFFFFFFFF
    if offset == -(1 << 31):
        return None  # its magnitude does not fit
    place, count = base, abs(offset) - 1
    while 0 <= place < 32:
        if mask >> place & 1:
            if count == 0:
                return place
            count -= 1
        place += 1 if offset > 0 else -1
    return 0xFFFFFFFF


@means("bfe")
def bfe(
    q: Mapping[str, str], kind: str, a: int, b: int, c: int, opcode: str
) -> int | None:
    top, place, count = width(kind) - 1, b & 255, c & 255
    if top == 63 and max(b, c) > 255:
        return None  # the H200 does not do what the manual says
    sign = 0
    if kind.startswith("s") and count:
        sign = a >> min(place + count - 1, top) & 1
    found = 0
    for i in range(top + 1):
        inside = i < count and place + i <= top
        found |= (a >> (place + i) & 1 if inside else sign) << i
    return found


@means("bfi")
def bfi(
    q: Mapping[str, str], kind: str, a: int, b: int, c: int, d: int, opcode: str
) -> int | None:
    top, place, count = width(kind) - 1, c & 255, d & 255
    if top == 63 and max(c, d) > 255:
        return None  # the H200 does not do what the manual says
    for i in range(count):
        if place + i <= top:
            b = b & ~(1 << (place + i)) | (a >> i & 1) << (place + i)
    return b


@means("szext")
def szext(q: Mapping[str, str], kind: str, a: int, b: int, opcode: str) -> int:
    count = b & 31
    if q["mode"] == "clamp" and b >= 32:
        return a
    field = a & ((1 << count) - 1)
    negative = kind == "s32" and count and field >> (count - 1)
    return cut(field - (1 << count), kind) if negative else field


@means("bmsk")
def bmsk(q: Mapping[str, str], kind: str, a: int, b: int, opcode: str) -> int:
    if q["mode"] == "wrap":
        a, b = a & 31, b & 31
    return sum(1 << bit for bit in range(32) if a <= bit < a + b)


_PERMUTED = {
    "f4e": ("3210", "4321", "5432", "6543"),
    "b4e": ("5670", "6701", "7012", "0123"),
    "rc8": ("0000", "1111", "2222", "3333"),
    "ecl": ("3210", "3211", "3222", "3333"),
    "ecr": ("0000", "1110", "2210", "3210"),
    "rc16": ("1010", "3232", "1010", "3232"),
}


@means("prmt")
def prmt(q: Mapping[str, str], kind: str, a: int, b: int, c: int, opcode: str) -> int:
    both, found = b << 32 | a, 0
    for place in range(4):
        chosen = c >> (4 * place) & 15
        if q.get("mode"):  # the manual lists the highest byte first
            chosen = int(_PERMUTED[q["mode"]][c & 3][3 - place])
        byte = both >> (8 * (chosen & 7)) & 255
        found |= ((255 if byte >> 7 else 0) if chosen & 8 else byte) << (8 * place)
    return found


# ── comparisons, conversions ────────────────────────────────────────────────

_FORMATS = {"f16": "<He", "f32": "<If", "f64": "<Qd"}
_SMALLEST = {"f16": 2.0**-14, "f32": 2.0**-126}


def value(x: int, kind: str, ftz: bool) -> float | int:
    if kind == "bf16":
        return value(x << 16, "f32", ftz)
    if kind not in _FORMATS:
        return number(x, kind)
    whole, real = _FORMATS[kind][1], _FORMATS[kind][2]
    found: float = struct.unpack("<" + real, struct.pack("<" + whole, x))[0]
    return 0.0 if ftz and abs(found) < _SMALLEST[kind] else found


def holds(q: Mapping[str, str], kind: str, a: int, b: int) -> bool:
    x, y = (value(each, kind, bool(q.get("ftz"))) for each in (a, b))
    unordered = math.isnan(x) or math.isnan(y)
    name = q["CmpOp"]
    if name in ("num", "nan"):
        return unordered == (name == "nan")
    if unordered:
        return name.endswith("u")
    name = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(name, name)
    found = {
        "eq": x == y,
        "ne": x != y,
        "lt": x < y,
        "le": x <= y,
        "gt": x > y,
        "ge": x >= y,
    }
    return found[name.removesuffix("u")]


def combined(q: Mapping[str, str], found: bool, *c: int) -> int:
    operations = {
        "and": lambda x, y: x & y,
        "or": lambda x, y: x | y,
        "xor": lambda x, y: x ^ y,
    }
    return int(operations[q["BoolOp"]](int(found), c[0]) if c else found)


def of_halves(q: Mapping[str, str], kind: str, a: int, b: int) -> list[bool]:
    base = kind.removesuffix("x2")
    return [holds(q, base, a >> at & 0xFFFF, b >> at & 0xFFFF) for at in (0, 16)]


@means("setp")
def setp(q: Mapping[str, str], kind: str, a: int, b: int, *c: int, opcode: str) -> Any:
    if kind.endswith("x2"):
        return tuple(combined(q, found, *c) for found in of_halves(q, kind, a, b))
    found = holds(q, kind, a, b)
    if kind in ("f16", "bf16"):
        return combined(q, found, *c)
    return combined(q, found, *c), combined(q, not found, *c)


_ONE = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}


@means("set")
def set_(q: Mapping[str, str], kind: str, a: int, b: int, *c: int, opcode: str) -> int:
    to, source = q["dtype"], q["stype"]
    if source.endswith("x2"):
        true = _ONE.get(to.removesuffix("x2"), 0xFFFF)
        low, high = (combined(q, x, *c) for x in of_halves(q, source, a, b))
        return true * low | (true * high) << 16
    true = _ONE.get(to, (1 << width(to)) - 1)
    return true * combined(q, holds(q, source, a, b), *c)


@means("selp")
def selp(q: Mapping[str, str], kind: str, a: int, b: int, c: int, opcode: str) -> int:
    return a if c else b


@means("slct")
def slct(q: Mapping[str, str], kind: str, a: int, b: int, c: int, opcode: str) -> int:
    return a if value(c, "s32" if "s32" in q else "f32", bool(q.get("ftz"))) >= 0 else b


@means("mov")
def mov(q: Mapping[str, str], kind: str, *a: int, opcode: str) -> Any:
    return a if len(a) > 1 else a[0]


@means("cvt")
def cvt(q: Mapping[str, str], kind: str, a: int, *more: int, opcode: str) -> int:
    if "pack" in q:
        b, c = more[0], (*more[1:], 0)[0]
        bits = int(q["to"][1:])
        high, low = (
            clamp(number(x, "s32"), q["to"]) & ((1 << bits) - 1) for x in (a, b)
        )
        return cut(
            (c << (2 * bits) if len(more) > 1 else 0) | high << bits | low, "b32"
        )
    exact = number(a, q["atype"])
    found = cut(clamp(exact, q["dtype"]) if q.get("sat") else exact, q["dtype"])
    # A signed byte is extended in its register of 32 bits.
    return cut(number(found, "s8"), "u32") if q["dtype"] == "s8" else found
