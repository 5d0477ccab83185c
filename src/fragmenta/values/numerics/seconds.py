"""Second values of arrays: the exact value of each element, and nodes of NaN."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.planes.elements import joined, split
from fragmenta.engine.simt import untouched
from fragmenta.values.numerics.code.elements import KINDS, MOST_SOURCES, PackedFloats

FORMATS = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
}
"""The formats of NumPy's types, and of those of ml_dtypes."""
_TYPES = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}
_ENOUGH = 1 << 13
"""Bytes by which the format of an array is told."""
_BITS = {"f64": 64, "f32": 32, "f16": 16, "bf16": 16, "e4m3": 8, "e5m2": 8}


class Seconds(NamedTuple):
    """The elements of an array, exactly, and as the hardware left them."""

    values: NDArray[np.float64]
    exact: NDArray[np.float64]
    lower: NDArray[np.float64]
    """What is added to the exact values, which are double-doubles."""
    nodes: NDArray[np.int64]
    """The node of an element that is NaN or infinite; 0: it was given so."""
    present: NDArray[np.bool_]
    """Whether an element has a second value."""
    sources: NDArray[np.int64]
    """The site that most of the error of an element comes from, and 1; 0: unknown."""

    @property
    def error(self) -> NDArray[np.float64]:
        """What the hardware has less the exact value; NaN where one is not finite."""
        with np.errstate(invalid="ignore"):
            found = (self.values - self.exact) - self.lower
        good = np.isfinite(self.values) & np.isfinite(self.exact)
        return np.where(good, found, np.nan)


def kind_of(name: str) -> PackedFloats:
    """The kind of an element of a format."""
    return KINDS.get(name) or KINDS[f"{name}x2"]


def decoded(
    data: NDArray[np.uint8], planes: NDArray[np.uint8] | None, name: str
) -> Seconds:
    """The elements of memory in a format, with their second values."""
    bits = _BITS[name]
    size = bits // 8
    count = data.size // size
    with np.errstate(invalid="ignore"):  # NaN of small formats
        held = data[: count * size].view(_TYPES[name]).astype(np.float64)
    if planes is None or not planes.any():
        none = np.zeros(held.shape)
        zero = none.astype(np.int64)
        return Seconds(held, held, none, zero, none.astype(bool), zero)
    # The other planes are for smaller elements.
    used = planes[: 4 if bits >= 16 else 8, : count * size]
    numbers = joined(np.ascontiguousarray(used), bits)
    upper = np.ascontiguousarray(numbers[:, 0])
    present = upper != 0
    exact, lower = upper.view(np.float64), np.zeros(held.shape)
    if bits < 16 and planes.shape[0] * bits < 64:
        exact = upper.astype(np.uint32).view(np.float32).astype(np.float64)
    elif bits >= 32:
        lower = np.ascontiguousarray(numbers[:, 1]).view(np.float64)
    finite = np.isfinite(held)
    words = (upper & np.uint64(0xFFFFFFFF00000000)).view(np.float64)
    exact = np.where(finite, exact, words)
    exact = np.where(present, exact, held)
    lower = np.where(present & finite, lower, 0.0)
    nodes = np.where(finite | ~present, 0, upper & np.uint64(0xFFFFFFFF))
    named = finite & present & (planes.shape[0] * bits >= 64)
    sources = np.where(named, upper & np.uint64(MOST_SOURCES), 0)
    return Seconds(
        held, exact, lower, nodes.astype(np.int64), present, sources.astype(np.int64)
    )


PART = 1 << 16
"""Elements that are decoded at a time."""


@dataclass(frozen=True, eq=False)
class ArrayPlanes:
    """The memory of an array and its planes, from which elements are decoded.

    Decoded elements take much more memory, so that they are decoded in parts.
    """

    data: NDArray[np.uint8]
    planes: NDArray[np.uint8]
    format: str
    touched: tuple[tuple[int, int], ...] = ()
    """Bytes ``start`` to ``stop`` that may be other than zero; none stands for all."""

    @classmethod
    def of(
        cls, data: NDArray[np.uint8], planes: NDArray[np.uint8], name: str
    ) -> ArrayPlanes:
        """A copy of memory with its planes; some are for smaller elements only."""
        copy = untouched.copied(data)
        touched = tuple((each.start, each.stop) for each in untouched.touched(data))
        return cls(copy, planes[: 4 if _BITS[name] >= 16 else 8], name, touched)

    @property
    def size(self) -> int:
        """How many elements it has."""
        return int(self.data.size) // (_BITS[self.format] // 8)

    def parts(self, size: int = PART) -> Iterator[tuple[int, Seconds]]:
        """Some elements after the other, each time with the number of the first.

        Where nobody touched memory, elements are zero without an error: left out.
        """
        width = _BITS[self.format] // 8
        step = size * width
        where = self.touched or ((0, self.data.size),)
        steps = (range(start // step, -(-stop // step)) for start, stop in where)
        for number in sorted({*chain.from_iterable(steps)}):
            first = number * size
            if first >= self.size:
                return
            some = slice(number * step, (number + 1) * step)
            yield first, decoded(self.data[some], self.planes[:, some], self.format)

    def whole(self) -> Seconds:
        """All of them."""
        return decoded(self.data, self.planes, self.format)


def encoded(
    data: NDArray[np.uint8],
    exact: NDArray[np.float64],
    name: str,
    planes: NDArray[np.uint8],
) -> None:
    """Let the elements of memory stand for other numbers: write their planes."""
    bits = _BITS[name]
    held = data.view(_TYPES[name]).astype(np.float64)
    given = np.ascontiguousarray(exact, np.float64).reshape(-1)
    upper = given.view(np.uint64) & ~np.uint64(MOST_SOURCES)
    rest = given - upper.view(np.float64)
    apart = (given != held) & np.isfinite(held)
    numbers = np.zeros((given.size, max(1, planes.shape[0] * bits // 64)), np.uint64)
    numbers[:, 0] = np.where(apart, np.maximum(upper, 1), 0)
    if bits >= 32:
        numbers[:, 1] = np.where(apart, rest.view(np.uint64), 0)
    planes[:] = split(numbers, bits, planes.shape[0]).view(np.uint8)


def best_format(data: NDArray[np.uint8], planes: NDArray[np.uint8], first: int) -> str:
    """The format in which values and second values agree best; empty if none does.

    The first byte that has a second value is ``first``.
    If all elements are wrong, they agree in none: then f32 has a form of its own.
    """
    names = ["f32", "f64", "bf16", "f16"]
    if planes.shape[0] >= 8:
        names += ["e4m3", "e5m2"]
    best, least = "", 0.5
    start = first // 64 * 64
    some = slice(start, start + _ENOUGH)
    for name in names:
        found = decoded(data[some], planes[:, some], name)
        with np.errstate(all="ignore"):
            apart = np.abs(found.error / found.exact)
        # The second value of a NaN or of an infinity is that, too.
        special = ~np.isfinite(found.values)
        alike = np.nan_to_num(found.values) == np.nan_to_num(found.exact)
        alike &= np.isnan(found.values) == np.isnan(found.exact)
        apart = np.where(special & alike, 0.0, apart)[found.present]
        if not apart.size:
            continue
        apart = np.where(np.isfinite(apart), apart, 1e300)
        middle = float(np.median(apart))
        if middle < least:
            best, least = name, middle
    return best or (
        "f32" if _has_form(decoded(data[some], planes[:, some], "f32")) else ""
    )


def _has_form(found: Seconds) -> bool:
    """Whether second values are pairs of numbers, the second far smaller.

    Those of 16-bit elements would be those of neighbours; those of f64 stand in every
    second word only.
    """
    upper, lower = np.abs(found.exact), np.abs(found.lower)
    here = found.present & np.isfinite(found.values)
    if not (np.isfinite(upper[here]) & np.isfinite(lower[here])).all():
        return False  # before anything is computed: bits may be signalling NaN
    return bool(here[::2].any() and (lower[here] <= 2.0**-30 * upper[here]).all())
