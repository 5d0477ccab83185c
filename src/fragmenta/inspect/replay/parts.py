"""What a record consists of."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Value: TypeAlias = Any
"""A value of JSON."""
Array: TypeAlias = NDArray[Value]
Row: TypeAlias = dict[str, Value]
"""Something that is kept as JSON: a site, a unit, a barrier, a problem."""
Head: TypeAlias = Row
"""All that is small: sites, registers, warps, memories, units, barriers, problems."""
Columns: TypeAlias = dict[str, Array]
"""All that is large, by name."""

NOBODY = 65535
"""The lane of an access that has none."""
MOST_RUNS = 16
"""Runs that are beside one another."""
MOST_NAME = 40
"""Letters of the name of a run."""
ALL_LANES = 0xFFFFFFFF
UNWRITTEN, WRITTEN, IN_FLIGHT = 0, 1, 2
"""States of a byte."""

COLUMNS: dict[str, str] = {
    "site": "u4",
    "warp": "u2",
    "lanes": "u4",
    "at": "u4",
    "words": "u4",
    "w_step": "u4",
    "w_memory": "u2",
    "w_offset": "u4",
    "w_size": "u2",
    "w_lane": "u2",
    "w_unit": "i4",
    "w_at": "u4",
    "bytes": "u1",
    "r_step": "u4",
    "r_memory": "u2",
    "r_offset": "u4",
    "r_size": "u2",
    "r_lane": "u2",
    "r_unit": "i4",
    "initial": "u1",
    "defined": "u1",
    "i_warp": "u2",
    "i_register": "u4",
    "i_at": "u4",
    "i_lanes": "u4",
    "e_exact": "u4",
    "e_error": "u4",
    "e_ulp": "u4",
    "e_lost": "u4",
    "u_step": "u4",
    "u_warp": "u2",
    "u_register": "u4",
    "u_unit": "i4",
    "u_at": "u4",
    "c_unit": "i4",
    "c_memory": "u2",
    "c_offset": "u4",
    "c_from": "u2",
    "c_at": "u4",
    "c_size": "u4",
    "h_element": "u4",
    "h_step": "i4",
    "h_known": "u1",
    "h_exact": "u4",
    "h_error": "u4",
    "h_ulp": "u4",
    "h_lost": "u4",
}
"""The columns of a record, in their order, and the type of each.

``i_warp``, ``i_register`` and ``i_at`` are registers before the first step, if that is
not the first step of the run; ``i_lanes`` are the lanes that had written them.  Those
with ``u_`` are registers that units wrote, before a step is done; the number of all
steps is after the last one.

``e_exact`` and the like are about the elements of arrays that a launch with numerics
wrote: the exact value as f64, two words; the error, the same in units of the last place
and the bits that are lost as f32.

Those with ``h_`` are the errors of elements over time: from a step on, an element has
an error, or none is known.  The step -1 is before the first one.

Those with ``c_`` are bytes that units copied as they are, in the order of the units: a
memory, an offset there, and the memory and the offset that they come from.
"""
ERRORS = tuple(each for each in COLUMNS if each[:2] == "e_")
"""Columns with errors."""
COPIES = tuple(each for each in COLUMNS if each[:2] == "c_")
"""Columns with what units copied."""
MOMENTS = tuple(each for each in COLUMNS if each[:2] == "h_")
"""Columns with errors over time."""
LATER = (*ERRORS, *COPIES, *MOMENTS, "i_lanes")
"""Columns that records of earlier versions do not have."""


def moments_of(columns: Columns, output: Row) -> Columns:
    """The errors of an array over time, in the order of its elements and of steps."""
    begin, count = output.get("from", 0), output.get("moments", 0)
    return {
        name: columns[name][2 * begin : 2 * (begin + count)]
        if name == "h_exact"
        else columns[name][begin : begin + count]
        for name in MOMENTS
    }


class Site(NamedTuple):
    """An instruction of the kernel, or of a function that it calls."""

    function: str
    index: int  # type: ignore[assignment]
    """Its place in the function."""
    opcode: str
    text: str
    ptx_line: int
    file: str
    """The file that the PTX was compiled from; empty if that is not known."""
    line: int
    writes: tuple[int, ...]
    """The registers that a step of it writes, in the order of the record."""
    reads: tuple[int, ...]


class Register(NamedTuple):
    """A register of a function."""

    name: str
    type: str
    bits: int
    function: str

    @property
    def words(self) -> int:
        """The words that a record has of it, for all lanes."""
        return 1 if self.bits == 1 else max(32, self.bits)

    def typed(self, words: NDArray[np.uint32]) -> Array:
        """Its values by lane, in its type; a predicate has true and false."""
        if self.bits == 1:
            bits = words[0] >> np.arange(32, dtype=np.uint32) & np.uint32(1)
            return np.asarray(bits, bool)
        if self.bits == 128:
            return words.view(np.uint64).reshape(2, 32).T
        if self.bits == 64:
            return words.view(_WIDE.get(self.type[0], "u8"))
        if self.bits == 32:
            kind = self.type if self.type in ("f32", "s32") else "u32"
            return words.view(_NARROW[kind])
        of = np.uint8 if self.bits == 8 else np.uint16
        values = words.astype(of)
        if self.type == "f16":
            return values.view(np.float16)
        return values.view(f"i{of().itemsize}") if self.type[0] == "s" else values


_WIDE = {"f": "f8", "s": "i8"}
_NARROW = {"f32": "f4", "s32": "i4", "u32": "u4"}
"""The types of NumPy that values are shown in."""


class RecordedWarp(NamedTuple):
    """A warp that was recorded."""

    block: int
    """The number of its block in the grid."""
    warp: int
    threads: int
    """How many threads it has."""


class Memory(NamedTuple):
    """A memory: that of an array, of a variable, or the shared memory of a block."""

    name: str
    kind: str
    """``shared``, ``global``, ``local`` or ``tensor``."""
    block: int
    """Its block; -1 for global memory."""
    size: int
    start: int
    """The address of its first byte, as the kernel has it."""
    variables: tuple[tuple[str, int, int, str], ...]
    """Name, offset, bytes and type of what is in it."""


class Access(NamedTuple):
    """An access of memory by a lane, or by a unit beside the lanes."""

    step: int
    memory: int
    offset: int
    size: int
    lane: int | None
    unit: int | None
    writes: bool
    value: bytes = b""
    """What was written."""


class Origin(NamedTuple):
    """A byte, and who wrote it; see ``Replay.origins``."""

    memory: int
    offset: int
    writer: Access | None
    """None: it was there before the first step."""
