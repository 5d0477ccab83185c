"""Finds where the bytes of outputs come from: launches, or the host.

The examiner carries out the launches, so it knows the bytes that each of them got and
left.  An output that no launch wrote was made by the host.
"""

from __future__ import annotations

from dataclasses import field
from typing import cast

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.checks import Array
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.frontends.judge.wire import Tree

Bytes = NDArray[np.uint8]


@dataclass
class Regions:
    """The memory of one launch, before and after it."""

    before: list[Bytes]
    after: list[Bytes]
    changed: list[bool]


@dataclass
class Origins:
    """The launches of one call."""

    launches: list[Regions] = field(default_factory=list)
    inputs_changed: set[int] = field(default_factory=set)
    """Inputs that a launch has written."""

    def add(self, before: list[Bytes], after: list[Bytes]) -> None:
        """A launch was carried out."""
        changed = [
            not np.array_equal(one, two) for one, two in zip(before, after, strict=True)
        ]
        self.launches.append(Regions(before, after, changed))

    def wrote(self, place: Tree, output: Array) -> bool:
        """Whether a launch left these bytes where the candidate says they are."""
        if not isinstance(place, list) or len(place) != 4:
            return False
        number, region, offset, strides = cast("list[int]", place)
        if not 0 <= number < len(self.launches):
            return False
        found = self.launches[number]
        if not 0 <= region < len(found.after):
            return False
        # Whatever launch wrote it first, its bytes are those after the last one.
        if not any(self._written(number, region, found)):
            return False
        try:
            memory = found.after[region]
            there = np.ndarray(
                output.shape,
                f"V{output.dtype.itemsize}",
                memory.data,
                offset,
                cast("list[int]", strides),
            )
        except (TypeError, ValueError):
            return False
        return there.tobytes() == np.ascontiguousarray(output).tobytes()

    def _written(self, number: int, region: int, found: Regions) -> list[bool]:
        """Whether this launch, or one before it, changed the memory."""
        size = found.after[region].size
        return [
            new and each.after[i].size == size
            for each in self.launches[: number + 1]
            for i, new in enumerate(each.changed)
        ]
