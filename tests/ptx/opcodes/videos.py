"""What the PTX manual says that the video instructions compute.

As ``meanings.py``; selectors are among the qualifiers.  What ptxas writes for one number
with ``.sat``, a scale, or a second operation min or max is something else: None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from tests.ptx.opcodes.meanings import clamp, cut, number

_COMPUTE: dict[str, Callable[[int, int], int]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "absdiff": lambda x, y: abs(x - y),
    "min": min,
    "max": max,
    # Python's >> rounds down, as the manual's does.
    "avrg": lambda x, y: (x + y + 1) >> 1 if x + y >= 0 else (x + y) >> 1,
}
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
}


def selected(x: int, selector: str, kind: str) -> int:
    if not selector:
        return number(x, kind)
    size = 8 if selector[0] == "b" else 16
    return number(x >> (size * int(selector[1])), f"{kind[0]}{size}")


def finished(q: Mapping[str, str], found: int, *c: int) -> int:
    dsel = q.get("dsel", "")
    size = {"": 32, "b": 8, "h": 16}[dsel[:1]]
    if q.get("op2"):
        to = q["atype"]  # of vset
        word, other = number(found, to), number(c[0], to)
        pick = {"add": word + other, "min": min(word, other), "max": max(word, other)}
        return cut(pick[q["op2"]], "u32")
    if not dsel:
        return cut(found, "u32")
    place = size * int(dsel[1])
    mask = ((1 << size) - 1) << place
    return (found << place) & mask | c[0] & ~mask


def one(name: str, q: Mapping[str, str], a: int, b: int, *c: int) -> int | None:
    if q.get("sat") or (q.get("op2") in ("min", "max") and name != "set"):
        return None
    x = selected(a, q["asel"], q["atype"])
    y = selected(b, q["bsel"], q.get("btype", "u32"))
    if name == "set":
        found = int(_COMPARE[q["cmp"]](x, y))
    elif name in ("shl", "shr"):
        by = min(y, 32) if q["mode"] == "clamp" else y & 31
        found = x << by if name == "shl" else x >> by
    else:
        found = _COMPUTE[name](x, y)
    return finished(q, found, *c)


def vmad(q: Mapping[str, str], a: int, b: int, c: int) -> int | None:
    if q["sat"] or q["scale"]:
        return None
    minus = (q.get("aneg") == "-") != (q.get("bneg") == "-")
    signed = "s32" in (q["atype"], q["btype"]) or minus or q.get("cneg") == "-"
    found = selected(a, q["asel"], q["atype"]) * selected(b, q["bsel"], q["btype"])
    z = number(c, "s32") if signed else c
    found = (-found if minus else found) + (-z if q.get("cneg") else z)
    found += "po" in q
    return cut(found, "u32")


def several(name: str, count: int, q: Mapping[str, str], a: int, b: int, c: int) -> int:
    size = 32 // count
    both = b << 32 | a
    default = {2: ("10", "32"), 4: ("3210", "7654")}[count]

    def numbers(selector: str, kind: str, default: str) -> list[int]:
        digits = (selector[1:] or default)[::-1]
        return [number(both >> (size * int(n)), f"{kind[0]}{size}") for n in digits]

    x = numbers(q["asel"], q["atype"], default[0])
    y = numbers(q["bsel"], q["btype"], default[1])
    compute = _COMPARE[q["cmp"]] if name == "set" else _COMPUTE[name]
    found = [int(compute(*pair)) for pair in zip(x, y, strict=True)]
    if q.get("sat"):
        found = [clamp(each, f"{q['dtype'][0]}{size}") for each in found]
    for place, each in enumerate(found):
        if q["dsel"] and str(place) not in q["dsel"][1:]:
            continue
        mask = ((1 << size) - 1) << (size * place)
        c = c + each if q.get("add") else c & ~mask | (each << (size * place)) & mask
    return cut(c, "u32")


_ONE = ("add", "sub", "absdiff", "min", "max", "shl", "shr", "set")
_SEVERAL = ("add", "sub", "absdiff", "min", "max", "avrg", "set")
VIDEOS: dict[str, Callable[..., int | None]] = {
    "vmad": vmad,
    **{f"v{name}": partial(one, name) for name in _ONE},
    **{
        f"v{n}{count}": partial(several, n, count) for n in _SEVERAL for count in (2, 4)
    },
}
