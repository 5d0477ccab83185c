"""The log: what each instruction computed, for trees.

An entry of an operation has 32 lanes: for each element of the result its hash (U, V),
then for each operand its hash and its bits; a constant has no hash.  An entry of a
product has its matrices: the bits and the words of A, B and C, the words of D, and the
index of a sparse A.  If the log is full, the rest is not written.
"""

from __future__ import annotations

from collections.abc import Sequence

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import (
    I64,
    LANES,
    Code,
    Memory,
    Value,
    Variable,
    convert,
    select,
)
from fragmenta.engine.simt.layout import LANES as WARP
from fragmenta.engine.simt.library import field
from fragmenta.values.expressions.code.notes import (
    HEAD,
    LOG_AT,
    LOG_SIZE,
    LOG_USED,
    OPERATION,
    PRODUCT,
)


class OpenEntry:
    """An entry that is being written; it counts only once it is kept."""

    def __init__(self, code: Code, table: Memory, size: int) -> None:
        self.code, self.size, self._table = code, size, table
        used, most = table[LOG_USED], table[LOG_SIZE]
        self.fits = (used + size) <= most
        first = table[LOG_AT] + used * 8
        place = select(self.fits, first, code.constant(0, I64))
        pointer = code.builder.inttoptr(place.raw, I64.as_pointer())
        self.memory = Memory(code.builder, pointer, I64)
        self.wanted: Variable = code.variable(code.constant(0, I64))

    def head(self, kind: int, site: Value, *numbers: int) -> None:
        """Write the head."""
        given: list[int | Value] = [kind, site, self.size, *numbers]
        for place, each in enumerate(given):
            value = each if isinstance(each, Value) else self.code.constant(each, I64)
            self.memory[place] = value

    def keep(self) -> None:
        """Count the entry, if it is wanted and fits."""
        with self.code.when(self.fits & (self.wanted.value != 0)):
            self._table[LOG_USED] = self._table[LOG_USED] + self.size


def operation_entry(
    code: Code, table: Raw, site: Value, elements: int, operands: int
) -> OpenEntry:
    """An entry for an operation."""
    size = HEAD + elements * (2 + 3 * operands) * WARP
    made = OpenEntry(code, field(code, table, 0, I64), size)
    with code.when(made.fits):
        made.head(OPERATION, site, elements, operands)
    return made


def put_lanes(
    entry: OpenEntry, element: int, operands: int, index: Value, values: Sequence[Value]
) -> None:
    """Write some lanes: the hash of the result, then hash and bits of each operand."""
    first = HEAD + element * (2 + 3 * operands) * WARP
    for place, each in enumerate(values):
        entry.memory[index * LANES + (first + place * WARP)] = each


def log_product(
    code: Code,
    data: Value,
    site: Value,
    parts: Sequence[tuple[Memory, int, Value | None]],
) -> None:
    """Write the matrices of a product: memory, its numbers, whether it is filled."""
    pointer = code.builder.inttoptr(data.raw, I64.as_pointer())
    total = HEAD + sum(size for _, size, _ in parts)
    entry = OpenEntry(code, Memory(code.builder, pointer, I64), total)
    with code.when(entry.fits):
        entry.head(PRODUCT, site)
        first = HEAD
        for memory, size, filled in parts:
            with code.loop(size) as at:
                place = at if filled is None else select(filled, at, at.lift(0))
                value = convert(memory[place], I64, signed=False)
                if filled is not None:
                    value = select(filled, value, value.lift(0))
                entry.memory[at + first] = value
            first += size
    entry.wanted.value = code.constant(1, I64)
    entry.keep()
