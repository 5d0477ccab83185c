"""Garbage collection of the sets of readers, in compiled code.

Sets that no word names any more are dropped, and the others move together.  A set has a
greater number than the set it was made from, so one pass upwards can renumber all.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw, Type
from fragmenta.base.jit.trace import I32, I64, Code, Memory, Value, convert, select
from fragmenta.engine.simt.library import field
from fragmenta.engine.simt.warps import P, place, routine
from fragmenta.watch.races.shadow import layout
from fragmenta.watch.races.shadow.order import BlockHead
from fragmenta.watch.races.shadow.readers import bucket_of, cell_at, is_set
from fragmenta.watch.races.shadow.shared_records import epoch_of, with_part

FULL = layout.CELLS // 2
"""With more sets than this, they are collected."""


class _Sets:
    """The sets of readers, by their numbers."""

    def __init__(self, code: Code, head: BlockHead) -> None:
        self.code, self.raw = code, head.pointer(layout.HEAD_SETS)
        self.used = field(code, self.raw, layout.SETS_USED, I32)
        self.heads = field(code, place(code, self.raw, layout.SETS_HEADS), 0, I32)

    def _part(self, number: Value, offset: int, of: Type) -> Memory:
        return field(self.code, cell_at(self.code, self.raw, number), offset, of)

    def entry(self, number: Value) -> Memory:
        """The record of the last reader."""
        return self._part(number, layout.CELL_ENTRY, I64)

    def rest(self, number: Value) -> Memory:
        """The set without it."""
        return self._part(number, layout.CELL_REST, I32)

    def mark(self, number: Value) -> Memory:
        """While sets are collected: whether it is needed, then its new number."""
        return self._part(number, layout.CELL_NEXT, I32)


def _each_read(
    code: Code, head: BlockHead, do: Callable[[Memory, Value, Value], None]
) -> None:
    """Write code that runs for each record in the cluster that names a set."""
    b = code.builder
    first = head.pointer(layout.HEAD_FIRST)
    with code.loop(convert(head.word(layout.HEAD_BLOCKS), I64)) as rank:
        other = BlockHead(code, b.gep(first, [(rank * layout.HEAD_BYTES).raw]))
        reads = field(code, other.pointer(layout.HEAD_READS), 0, I64)
        with code.loop((other.long(layout.HEAD_SIZE) + 3) >> 2) as word:
            record = reads[word]
            with code.when(is_set(record)):
                do(reads, word, record)


def _collect(code: Code, head_at: Raw) -> None:
    head = BlockHead(code, head_at)
    sets = _Sets(code, head)
    last = convert(sets.used[0], I64)
    one = sets.used[0].lift(1)
    with code.loop(last + 1, 1) as number:
        sets.mark(number)[0] = one.lift(0)

    def needed(reads: Memory, word: Value, record: Value) -> None:
        sets.mark(convert(epoch_of(record), I64))[0] = one

    _each_read(code, head, needed)
    with code.loop(last) as step, code.when(sets.mark(last - step)[0] != 0):
        sets.mark(convert(sets.rest(last - step)[0], I64))[0] = one
    count = _renumber(code, sets, last)
    # If nearly all are needed, who read is forgotten.
    keep = count < FULL * 3 // 4

    def renamed(reads: Memory, word: Value, record: Value) -> None:
        new = sets.mark(convert(epoch_of(record), I64))[0]
        moved = with_part(record, layout.EPOCH_AT, layout.EPOCH_BITS, new)
        reads[word] = select(keep, moved, record.lift(0))

    _each_read(code, head, renamed)
    sets.used[0] = select(keep, count, 0)
    _rebuild(code, sets)


def _renumber(code: Code, sets: _Sets, last: Value) -> Value:
    """Move the sets that are needed together; how many there are."""
    count = code.variable(convert(last, I32).lift(0))
    with code.loop(last + 1, 1) as number, code.when(sets.mark(number)[0] != 0):
        count.value = count.value + 1
        goal = convert(count.value, I64)
        rest = sets.rest(number)[0]
        moved = select(rest == 0, rest, sets.mark(convert(rest, I64))[0])
        entry = sets.entry(number)[0]
        sets.entry(goal)[0] = entry
        sets.rest(goal)[0] = moved
        sets.mark(number)[0] = count.value
    return count.value


def _rebuild(code: Code, sets: _Sets) -> None:
    """Make the table by which equal sets are found."""
    with code.loop(layout.HEADS) as bucket:
        sets.heads[bucket] = sets.used[0].lift(0)
    with code.loop(convert(sets.used[0], I64) + 1, 1) as number:
        bucket = bucket_of(sets.entry(number)[0], sets.rest(number)[0])
        sets.mark(number)[0] = sets.heads[bucket]
        sets.heads[bucket] = convert(number, I32)


COLLECT = routine("watch.collect", _collect, [P], None)
"""Drops sets that no word names: the head of any block of the cluster."""


def make_room(code: Code, head: BlockHead) -> None:
    """Collect sets, if there are too many; no set may be in use here."""
    b = code.builder
    used = field(code, head.pointer(layout.HEAD_SETS), layout.SETS_USED, I32)[0]
    with code.when(used > FULL):
        function = b.module.globals.get(COLLECT.name)
        if function is None:
            kind = ir.FunctionType(ir.VoidType(), [P])
            function = ir.Function(b.module, kind, COLLECT.name)
        b.call(function, [head.raw])
