"""Where the bytes of a box are in shared memory, and which elements they are.

A :class:`BoxLayout` is what all boxes of a tensor map have in common: lines of bytes,
one below the other, and a swizzle.  Two maps of different tensors may have the same
layout.  Each layout has a number, by which machine code knows it.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.forking import Lock
from fragmenta.reference.shared.swizzles import WGMMA_SWIZZLES, Swizzle, map_span, moved
from fragmenta.reference.shared.tensor_map import TensorMap, element_type

Numbers = tuple[int, ...]
_NUMBERS: dict[BoxLayout, int] = {}
_LAYOUTS: list[BoxLayout] = []
_LOCK = Lock()


class BoxLayout(NamedTuple):
    """How the boxes of a tensor map lie in shared memory."""

    dtype: str
    counts: Numbers
    """Elements along each dimension, the innermost first."""
    steps: Numbers
    """How far apart they are in the tensor; nothing if its rows are in any order."""
    swizzle: Swizzle

    @classmethod
    def of(cls, map: TensorMap, rows: int = 1) -> BoxLayout | None:
        """The layout of a map's boxes; None if it is not made of lines.

        ``rows`` is 4 for a copy of four rows.

        >>> map = TensorMap("f16", (256, 100), (512,), box=(64, 8), swizzle=128)
        >>> BoxLayout.of(map)
        BoxLayout(dtype='f16', counts=(64, 8), steps=(1, 1), swizzle=128)
        """
        if map.interleave or map.rank < 2 or map.element.padded:
            return None
        if map.swizzle not in WGMMA_SWIZZLES:
            return None
        map = map.flat
        if map.im2col is not None:
            counts = map.im2col.channels, map.im2col.pixels
            return cls(map.dtype, counts, (), map.swizzle)
        if rows > 1:
            return cls(map.dtype, (map.counts[0], rows), (), map.swizzle)
        steps = (1, *map.element_strides[1:])
        return cls(map.dtype, map.counts, steps, map.swizzle)

    @property
    def element(self) -> int:
        """Bytes of an element."""
        return element_type(self.dtype).bytes

    @property
    def line(self) -> int:
        """Bytes of a line that a copy writes."""
        return self.counts[0] * self.element

    @property
    def pitch(self) -> int:
        """Bytes from one line to the next."""
        return max(self.line, map_span(self.swizzle))

    @property
    def lines(self) -> int:
        """How many lines there are."""
        return prod(self.counts[1:])

    @property
    def bytes(self) -> int:
        """Bytes from the first line to the end of the last one."""
        return self.lines * self.pitch

    @property
    def number(self) -> int:
        """Its number, 1 or more; the same for equal layouts.

        >>> one = BoxLayout("u8", (64, 8), (1, 1), 64)
        >>> one.number == BoxLayout("u8", (64, 8), (1, 1), 64).number
        True
        >>> numbered(one.number) == one
        True
        """
        with _LOCK:
            if self not in _NUMBERS:
                _LAYOUTS.append(self)
                _NUMBERS[self] = len(_LAYOUTS)
            return _NUMBERS[self]

    def find(
        self, at: int, addresses: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The line and the byte of the line that is at each address.

        ``at`` is where the box begins.  What is not in the box has line -1; so has
        what is beyond the end of a line that is narrower than the swizzle.

        >>> layout = BoxLayout("f16", (64, 8), (1, 1), 128)
        >>> layout.find(1024, np.array([1024, 1168, 1152, 2048]))
        (array([ 0,  1,  1, -1]), array([ 0,  0, 16,  0]))
        """
        linear = moved(addresses, self.swizzle) - at
        line, byte = np.divmod(linear, self.pitch)
        there = (linear >= 0) & (line < self.lines) & (byte < self.line)
        return np.where(there, line, -1), np.where(there, byte, 0)

    def indices(self, line: int, byte: int) -> Numbers:
        """The place in the box of what is at a byte of a line, the innermost first.

        >>> BoxLayout("f16", (64, 4, 2), (1, 1, 1), 128).indices(5, 16)
        (8, 1, 1)
        """
        found = [byte // self.element]
        for count in self.counts[1:]:
            line, index = divmod(line, count)
            found.append(index)
        return tuple(found)

    def place(self, coordinates: Numbers, line: int, byte: int) -> Numbers:
        """The place in the tensor, of a box at these coordinates."""
        indices = self.indices(line, byte)
        steps = self.steps or (1,) * len(indices)
        parts = zip(coordinates, indices, steps, strict=False)
        return tuple(first + index * step for first, index, step in parts)


def numbered(number: int) -> BoxLayout:
    """The layout with a number."""
    return _LAYOUTS[number - 1]
