"""Finds where the bytes of outputs come from: launches, or the host.

The examiner carries out the launches, so it knows the bytes that each of them got and
left.  An output that no launch wrote was made by the host.  So was memory that a kernel
reads if it is neither an input or a weight, nor left by a launch, nor made of values of
these; it may be a table or a folded weight if it is the same for other inputs.
"""

from __future__ import annotations

import hashlib
from dataclasses import field
from typing import cast

import numpy as np
from numpy.typing import NDArray

from fragmenta.arrays.checks import Array
from fragmenta.arrays.lazy_dataclass import dataclass
from fragmenta.judge.held import elements, leaves
from fragmenta.judge.wire import Tree
from fragmenta.simt.layout import POISON

Bytes = NDArray[np.uint8]
LEAST = 16
"""Words of memory that are worth asking about."""
FOREIGN = 0.05
"""The share of words of unknown origin from which on memory is the host's work."""
INDEX = 1 << 22
"""Numbers below this, as whole numbers, are indices and counts."""


@dataclass
class Regions:
    """The memory of one launch, before and after it."""

    before: list[Bytes]
    after: list[Bytes]
    changed: list[bool]


@dataclass
class Origins:
    """The launches of one call, and the values that are known."""

    inputs: Tree
    state: Tree
    launches: list[Regions] = field(default_factory=list)
    foreign: dict[tuple[int, int], str] = field(default_factory=dict)
    """Regions whose bytes were made by the host, by launch and number: a digest."""
    inputs_changed: set[int] = field(default_factory=set)
    """Inputs that a launch has written."""

    def __post_init__(self) -> None:
        held = [*leaves(self.inputs), *leaves(self.state)]
        self._known = _words([cast("Array", each["data"]) for each in held])
        for each in held:
            if str(each["type"]).startswith(("float", "bfloat")):
                self._known = np.union1d(self._known, _casts(elements(each)))
        self._given = [
            (number, cast("Array", each["data"]).tobytes())
            for number, each in enumerate(leaves(self.inputs))
        ]

    def add(self, before: list[Bytes], after: list[Bytes]) -> None:
        """A launch was carried out."""
        number = len(self.launches)
        changed = [
            not np.array_equal(one, two) for one, two in zip(before, after, strict=True)
        ]
        for region, data in enumerate(before):
            if self._is_foreign(data):
                digest = hashlib.sha256(data.tobytes()).hexdigest()
                self.foreign[number, region] = digest
            if changed[region]:
                raw = data.tobytes()
                for which, given in self._given:
                    if len(given) >= LEAST and given in raw:
                        self.inputs_changed.add(which)
        self.launches.append(Regions(before, after, changed))
        written = [two for two, new in zip(after, changed, strict=True) if new]
        self._known = np.union1d(self._known, _words(written))

    def _is_foreign(self, data: Bytes) -> bool:
        words = _words([data])
        if words.size < LEAST:
            return False
        ordinary = (words < INDEX) | (words > (1 << 32) - INDEX) | (words == POISON)
        unknown = words[~ordinary]
        if unknown.size < LEAST:
            return False
        strange = ~np.isin(unknown, self._known, assume_unique=True)
        return bool(strange.sum() > FOREIGN * words.size)

    def is_strange(self, data: Array) -> bool:
        """Whether memory has values that are neither known nor left by a launch."""
        return self._is_foreign(np.ascontiguousarray(data).reshape(-1).view(np.uint8))

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


def _words(arrays: list[Array]) -> NDArray[np.uint32]:
    """The different words of some memory."""
    parts = [np.zeros(0, np.uint32)]
    for each in arrays:
        raw = np.ascontiguousarray(each).reshape(-1).view(np.uint8)
        parts.append(raw[: raw.size // 4 * 4].view(np.uint32))
    return np.unique(np.concatenate(parts))


def _casts(values: Array) -> NDArray[np.uint32]:
    """Values in other formats, as words; those of 16 bits two by two."""
    import ml_dtypes

    flat = values.reshape(-1)
    flat = flat[: flat.size // 2 * 2]
    with np.errstate(all="ignore"):
        made = [
            flat.astype(kind).view(np.uint8)
            for kind in (np.float32, np.float16, ml_dtypes.bfloat16)
        ]
    return _words([each.view(np.uint8) for each in made])
