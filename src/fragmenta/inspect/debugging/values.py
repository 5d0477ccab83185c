"""Values that a debugger shows: numbers, registers by lane, bytes of memory.

A type is named as in PTX: ``u32``, ``f16``, ``bf16x2``, ``e4m3``, ``b64``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, cast

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from fragmenta.errors import UnknownType, nearest, one_of

LANES = 32

_FLOATS = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "tf32": np.float32,
    "f64": np.float64,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "ue8m0": ml_dtypes.float8_e8m0fnu,
}
_WHOLE = {f"{kind}{bits}": bits for bits in (8, 16, 32, 64) for kind in "bus"}
TYPES = (*_FLOATS, *_WHOLE, "b128", "pred")
"""The types of single elements."""


class ElementStorage(NamedTuple):
    """How a type is stored: NumPy's type, and how many of them side by side."""

    dtype: np.dtype[np.generic]
    side: int
    """How many of them a value has side by side."""

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.dtype.itemsize * self.side


@cache
def element(name: str) -> ElementStorage:
    """How a type is stored.

    >>> element("f16x2").size, element("s64").dtype, element("b128").side
    (4, dtype('int64'), 2)
    """
    base, _, times = name.partition("x")
    count = int(times) if times.isdecimal() and len(times) < 3 else 1
    if times and not 1 < count <= 16:
        base = name
    if base == "b128":
        return ElementStorage(np.dtype(np.uint64), 2 * count)
    if base == "pred":
        return ElementStorage(np.dtype(bool), 1)
    if base in _FLOATS:
        return ElementStorage(np.dtype(_FLOATS[base]), count)
    if base in _WHOLE:
        kind = "i" if base[0] == "s" else "u"
        return ElementStorage(np.dtype(f"{kind}{_WHOLE[base] // 8}"), count)
    raise UnknownType(
        f"no type {name:.40}{nearest(name, TYPES)}; there are {one_of(TYPES, 'and')}, "
        "and several side by side such as f16x2"
    )


@dataclass(frozen=True, eq=False)
class Value:
    """A number, or one for each lane, or elements of memory."""

    data: NDArray[np.generic]
    """() for a number; (n,) for lanes and elements; one more axis if packed."""
    type: str = ""
    """Empty for what was computed."""
    lanes: tuple[int, ...] = ()
    """The lanes that the values are of; empty if they are of none."""
    offsets: NDArray[np.int64] | None = None
    """Where in memory the elements are."""
    states: NDArray[np.uint8] | None = None
    """For each element the state of its bytes: the least certain of them."""

    @property
    def texts(self) -> list[str]:
        """Each element in words."""
        found = [text(each, self.type) for each in self._rows()]
        if self.states is None:
            return found
        marks = np.broadcast_to(self.states, len(found))
        return [f"{each}{MARKS[mark]}" for each, mark in zip(found, marks, strict=True)]

    def _rows(self) -> NDArray[np.generic]:
        """Element after element; a packed one with its parts."""
        count = len(self.lanes)
        if self.offsets is not None:
            count = len(self.offsets)
        elif not count and self.type not in ("", "pred"):
            count = 1
        if not count or self.data.size == count:
            return self.data.reshape(-1)
        return self.data.reshape(count, -1)


UNWRITTEN, WRITTEN, IN_FLIGHT = 0, 1, 2
MARKS = {UNWRITTEN: "?", WRITTEN: "", IN_FLIGHT: "~"}
"""What stands behind a value of memory that was not written, or is in flight."""


def text(item: NDArray[np.generic], kind: str = "") -> str:
    """One element as it is shown; parts of a packed one stand in brackets.

    >>> text(np.float32(0.1)), text(np.uint32(255), "b32"), text(np.int32(-1), "s32")
    ('0.1', '0xff', '-1')
    >>> text(np.float16([1, 2]), "f16x2"), text(np.True_, "pred")
    ('(1, 2)', '1')
    """
    found = np.asarray(item)
    if found.ndim and kind.startswith("b128"):
        return f"0x{int(found[1]) << 64 | int(found[0]):x}"
    if found.ndim:
        base = kind.partition("x")[0]
        return f"({', '.join(text(each, base) for each in found)})"
    one = found.item() if found.dtype != object else found[()]
    if isinstance(one, bool):
        return str(int(one))
    if isinstance(one, int):
        if kind == "b8":
            return f"{one:02x}"
        return hex(one) if re.fullmatch(r"b\d+", kind) else str(one)
    if found.dtype.itemsize < 4 or found.dtype == np.float32:
        return _short(found)
    return f"{float(one):.10g}"


def _short(found: NDArray[np.generic]) -> str:
    """The shortest digits that give the same float again.

    NumPy's own texts differ from version to version.

    >>> _short(np.float32(16777216)), _short(np.float16(1e-5)), _short(np.float32(1e20))
    ('16777216', '1e-05', '1e+20')
    """
    if found.dtype.kind != "f":
        return str(found.dtype.type(found)).removesuffix(".0").removesuffix(".")
    one = cast("np.floating", found.dtype.type(found))
    size = abs(float(one))
    if size == 0 or not np.isfinite(size) or 1e-4 <= size < 1e16:
        return np.format_float_positional(one, trim="-")
    return np.format_float_scientific(one, trim="-", exp_digits=2)


def reinterpreted(given: Value, kind: str) -> Value:
    """The same bits as another type; of a narrower type there are several.

    >>> reinterpreted(Value(np.uint32([0x3C003C00]), "b32", (0,)), "f16").texts
    ['(1, 1)']
    """
    wanted = element(kind)
    data = np.ascontiguousarray(given.data)
    if data.dtype == object:  # what was computed has 64 bits
        data = np.array([int(each) & (1 << 64) - 1 for each in data.ravel()], np.uint64)
    items = data.reshape(max(1, len(given.lanes)), -1).view(np.uint8)
    have = items.shape[1]
    if have % wanted.size:
        raise UnknownType(
            f"{kind} has {wanted.size} bytes, what it is read from {have}"
        )
    found = items.view(wanted.dtype)
    count = found.shape[1]
    shape = (len(given.lanes),) if given.lanes else ()
    if count == 1:
        return Value(found.reshape(shape), kind, given.lanes)
    base = kind if kind == "b128" else kind.partition("x")[0]
    name = base if base == "b128" else f"{base}x{count}"
    return Value(found.reshape(*shape, count), name, given.lanes)
