"""What copies do to the shadow of global memory, in machine code.

Most words of a tile are alike: what was found for one vector of words holds for the
next, if the records are the same.  Whatever is not simple is left to Python
(:mod:`fragmenta.watch.races.global_watch`): a race, memory that was not written yet, a
group that has learned something of others.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import NamedTuple

from fragmenta.base.jit.trace import (
    I8,
    I32,
    I64,
    LANES,
    Memory,
    Value,
    any_lane,
    compare_unsigned,
    convert,
    select,
    shift_unsigned,
)
from fragmenta.engine.simt import layout as engine
from fragmenta.engine.simt.library import field, pointer_at
from fragmenta.engine.units.fast import task_layout as at
from fragmenta.engine.units.fast.copies import MAP_SIZE
from fragmenta.watch.races.shadow import global_records as records
from fragmenta.watch.races.shadow import layout
from fragmenta.watch.races.shadow.global_check import Here, composite, interned
from fragmenta.watch.races.shadow.global_records import ID_SHIFT, MASK_BITS, WORD, Flags
from fragmenta.watch.races.shadow.observing import Seen
from fragmenta.watch.races.shadow.order import Plane

Do = Callable[[Value], None]
WHOLE = 0b1111
"""All bytes of a word."""


class Rows(NamedTuple):
    """Rows in the shadow of global memory, which a task reads or writes."""

    seen: Seen
    here: Here
    clock: Memory
    """What the issuer of the copy knew."""
    first: Value
    """The address of the first row."""
    row: Value
    """Bytes of each."""
    repeats: tuple[tuple[Value, Value], ...] = ()
    """How often they repeat along each dimension, and how far apart they are."""

    def _shadow(self, number: int) -> Value:
        """Where the records of writes (0), of reads (1), or marks (2) are."""
        code = self.seen.code
        slot = shift_unsigned(self.first, engine.SLOT_BITS)
        safe = select(compare_unsigned("<", slot, engine.SLOTS), slot, 0)
        table = pointer_at(code, self.here.ledger, records.SHADOWS)
        line = code.builder.gep(table, [(safe * records.SHADOW_BYTES).raw])
        return field(code, line, 8 * number, I64)[0]

    def watched(self) -> Value:
        """Whether the memory can be written, so that it has a shadow."""
        there: Value = (self._shadow(0) != 0) & (self.row > 0)
        return there

    def plain(self) -> Value:
        """Whether all rows are whole words, and all of them were written before."""
        bits = self.first | self.row
        for _, step in self.repeats:
            bits = bits | step
        good: Value = ((bits & (WORD - 1)) == 0) & (self._shadow(2) == 0)
        return good

    def _records(self, number: int) -> Memory:
        b = self.seen.code.builder
        return Memory(b, b.inttoptr(self._shadow(number).raw, I32.as_pointer()), I32)

    # ── one record ──────────────────────────────────────────────────────────

    def _ordered(self, record: Value) -> Value:
        """Whether an access of the own group is ordered before, proxies included."""
        number, lane = shift_unsigned(record, ID_SHIFT), self._lane(record)
        entry = self.here.entry(number)
        length = self.here.head.row
        b = self.seen.code.builder
        second = Memory(b, b.gep(self.clock.raw, [(length * 3).raw]), I32)
        known, fenced = (
            Plane(each, length).knows(entry.agent, lane, entry.epoch)
            for each in (self.clock, second)
        )
        stored = (entry.flags & int(Flags.WRITE | Flags.ASYNC)) == int(Flags.WRITE)
        good: Value = (entry.group == self.here.group()) & known & (~stored | fenced)
        return good

    def _lane(self, record: Value) -> Value:
        lane: Value = shift_unsigned(record, MASK_BITS) & 31
        return lane

    def _before(self, record: Value, *, write: bool) -> Value:
        """Whether nothing is wrong with an earlier access: 1 if it is simple.

        A write of several lanes is left to Python.
        """
        code = self.seen.code
        good = code.variable(code.constant(1, I32))
        with code.when(record != 0):
            good.value = code.constant(0, I32)
            one = shift_unsigned(record, ID_SHIFT) >= records.FIRST_ID
            with code.when(one & ~composite(record) if write else one):
                good.value = convert(self._ordered(record), I32, signed=False)
        return good.value

    def _after_read(self, record: Value, own: Value) -> Value:
        """The record of reads after this one; a group that knows nothing of others."""
        code, number = self.seen.code, shift_unsigned(record, ID_SHIFT)
        several = (record & WHOLE) | (records.SEVERAL << ID_SHIFT)
        new = code.variable(select(record == 0, own, several))
        with code.when(number >= records.FIRST_ID):
            mine = self.here.entry(number).group == self.here.group()
            new.value = select(mine, own, several)
        return new.value

    # ── all of them ─────────────────────────────────────────────────────────

    def simple(self, own: Value, *, write: bool) -> Value:
        """Whether nothing is wrong; then reads are noted already, writes are not."""
        code = self.seen.code
        writes, reads = self._records(0), self._records(1)
        fine = code.variable(code.constant(1, I32))
        last = [code.variable(code.constant(-1, I32)) for _ in range(3)]

        def words(first: Value) -> None:
            alike = self._alike(writes, first, last[0].value)
            alike = alike & self._alike(reads, first, last[1].value)
            with code.when(~alike), code.loop(LANES) as lane:
                one(first + lane)
            if not write:
                # Many threads read the same words: what does not change is not stored.
                with code.when(alike & (last[1].value != last[2].value)):
                    reads[first] = last[2].value.in_all_lanes(LANES)

        def one(place: Value) -> None:
            before = writes[place], reads[place]
            good = self._before(before[0], write=True)
            if write:
                good = good & self._before(before[1], write=False)
            fine.value = fine.value & good
            new = before[1]
            if not write:
                new = self._after_read(before[1], own)
                with code.when(new != before[1]):
                    reads[place] = new
            for kept, value in zip(last, (*before, new), strict=True):
                kept.value = value

        self._each(words, one)
        is_fine: Value = fine.value != 0
        return is_fine

    def _alike(self, of: Memory, first: Value, record: Value) -> Value:
        """Whether a vector of records is this one, again and again."""
        same = of.lanes(first) == record.in_all_lanes(LANES)
        return ~any_lane(~same)

    def only_read(self) -> Value:
        """Whether all words were read before, and no instruction has written to any."""
        code, writes, reads = self.seen.code, self._records(0), self._records(1)
        found = code.variable(code.constant(1, I32))

        def one(place: Value) -> None:
            good = (writes[place] == 0) & (reads[place] != 0)
            found.value = select(good, found.value, 0)

        def words(first: Value) -> None:
            bad = (writes.lanes(first) != 0) | (reads.lanes(first) == 0)
            found.value = select(any_lane(bad), found.value.lift(0), found.value)

        self._each(words, one)
        good: Value = found.value != 0
        return good

    def written(self, own: Value) -> None:
        """Note that all words are written."""
        code = self.seen.code
        writes, reads = self._records(0), self._records(1)

        def words(first: Value) -> None:
            writes[first] = own.in_all_lanes(LANES)
            with code.when(any_lane(reads.lanes(first) != 0)):
                reads[first] = own.lift(0).in_all_lanes(LANES)

        def one(place: Value) -> None:
            writes[place] = own
            with code.when(reads[place] != 0):
                reads[place] = own.lift(0)

        self._each(words, one)

    def _each(self, words: Do, one: Do) -> None:
        """Do something for all words: for vectors, and for what is left of a row."""
        code = self.seen.code
        start = self.first & (1 << engine.SLOT_BITS) - 1
        length = shift_unsigned(self.row, 2)
        whole = length & -LANES
        with ExitStack() as loops:
            for count, step in reversed(self.repeats):
                start = start + loops.enter_context(code.loop(count)) * step
            first = shift_unsigned(start, 2)
            with code.loop(whole, step=LANES) as place:
                words(first + place)
            with code.loop(length, whole) as place:
                one(first + place)

    def own(self, agent: Value, epoch: Value, lane: Value, flags: Flags) -> Value:
        """The record of this copy; 0 if there is no room for it."""
        site = self.seen.site
        given = agent, agent, epoch, site, site.lift(int(flags))
        number = interned(self.here, *given)
        made = number << ID_SHIFT | lane << MASK_BITS | WHOLE
        return select(number == 0, number, made)


def _here(seen: Seen) -> Here:
    ledger = pointer_at(seen.code, seen.block, engine.BLOCK_GLOBAL_WATCH)
    return Here(seen.code, seen.warp, seen.block, ledger)


def rows_of(seen: Seen, clock: Memory) -> Rows:
    """The rows of a task."""
    counts, steps = seen.long(at.TASK_COUNTS), seen.long(at.TASK_STEPS)
    first, row = (seen.long(each)[0] for each in (at.TASK_FIRST, at.TASK_ROW))
    repeats = tuple((counts[each], steps[each]) for each in range(4))
    return Rows(seen, _here(seen), clock, first, row, repeats)


def map_of(seen: Seen, clock: Memory) -> Rows:
    """The tensor map of a task."""
    address = seen.long(at.TASK_MAP)[0]
    return Rows(seen, _here(seen), clock, address, address.lift(MAP_SIZE))


def informed(seen: Seen) -> Value:
    """Whether the group has learned something of others."""
    told = field(seen.code, seen.head.pointer(layout.HEAD_TOLD), 0, I8)
    some: Value = told[0] != 0
    return some
