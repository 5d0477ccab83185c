"""The fast path for an access of shared memory by one lane.

The usual cases are decided here.  In all others, ``done`` is false, and the complete
check follows.  Lanes side by side that read the same address are one access.
"""

from __future__ import annotations

from typing import NamedTuple

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import (
    I32,
    I64,
    Code,
    Memory,
    Value,
    Variable,
    compare_unsigned,
    convert,
    intrinsic,
    select,
    shift_unsigned,
)
from fragmenta.engine.simt.library import as_signed
from fragmenta.watch.races.shadow import layout
from fragmenta.watch.races.shadow.layout import Lanes
from fragmenta.watch.races.shadow.order import BlockHead, WarpClocks
from fragmenta.watch.races.shadow.readers import call_added, is_set
from fragmenta.watch.races.shadow.shared_check import settled, shadow
from fragmenta.watch.races.shadow.shared_records import (
    Viewer,
    kept_epoch,
    kept_site,
    lanes_of,
    mask_of,
    packed,
)

_ALIKE = as_signed(~layout.SITE_FIELD, 64)
_WHO = layout.AGENT_FIELD | layout.LANE_FIELD | layout.CLASS_FIELD
_PLACE = layout.LANE_FIELD | layout.CLASS_FIELD
_TIME = layout.EPOCH_FIELD | layout.AGENT_FIELD | layout.MASK_FIELD


class Quick(NamedTuple):
    """What all lanes of an access have in common."""

    code: Code
    head: BlockHead
    viewer: Viewer
    size: int
    writes: bool
    base: Value
    """The record of lane 0, without the bytes."""
    records: tuple[Memory, Memory]
    start: Value
    """The first address of the block's shared memory."""
    total: Value
    """Its size."""
    memo: tuple[Variable, Variable]
    """The last step from a set of readers: what it depends on, and the new set."""

    def done(self, lane: Value, several: Value, address: Value) -> Value:
        """Check an access of a lane, or of several; whether that was possible."""
        code, size = self.code, self.size
        begin = address - self.start
        result = code.variable(convert(lane, I32).lift(0))
        aligned = (begin & (min(size, 4) - 1)) == 0
        fits = compare_unsigned("<", begin, self.total) & compare_unsigned(
            "<=", begin + size, self.total
        )
        with code.when(fits & aligned):
            self._inside(lane, several, begin, result)
        return result.value > 0

    def _inside(
        self, lane: Value, several: Value, begin: Value, result: Variable
    ) -> None:
        code = self.code
        number = shift_unsigned(begin, 2)
        mask = begin.lift(15)
        if self.size < 4:
            mask = begin.lift((1 << self.size) - 1) << (begin & 3)
        mine = self.base | (lane << layout.LANE_AT) | (mask << layout.MASK_AT)
        kind = convert(several, I64, signed=False) << layout.CLASS_AT
        mine = mine | kind
        (write, even_write), (read, even_read) = (
            self._words(each, number) for each in self.records
        )
        seen = even_write & self._write_seen(write, mine, mask)
        none = mask_of(read) == 0
        own = ((read ^ mine) & _WHO) == 0
        clear = none | settled(self.viewer, read) | (own & ~several)
        clear = clear & even_read
        if self.writes:
            if self.size < 4:
                inside = (mask_of(read) & ~convert(mask, I32)) == 0
                clear = clear & inside
            with code.when(seen & clear):
                self._put(self.records[0], number, mine | self._ever(write, mask))
                self._put(self.records[1], number, mine.lift(0))
                result.value = result.value.lift(1)
            return
        if self.size < 4:  # other bytes of the same lane stay
            clear = clear & ~(own & (((read ^ mine) & layout.EPOCH_FIELD) == 0))
        now = (((read ^ mine) & as_signed(_TIME, 64)) == 0) & even_read
        now = now & (lanes_of(read) <= int(Lanes.SEVERAL))
        exact = ((read ^ mine) & _PLACE) == 0
        stays = exact | (lanes_of(read) == int(Lanes.SEVERAL))
        # What another lane read may be unknown to this one.
        now = now & (exact | seen)
        with code.when(now & ~stays):
            many = read | (int(Lanes.SEVERAL) << layout.CLASS_AT)
            self._put(self.records[1], number, many)
        with code.when(~now & seen & clear):
            self._put(self.records[1], number, mine)
        done = now | (seen & clear)
        result.value = convert(done, I32, signed=False)
        if self.size >= 4:
            with code.when(~done & seen & even_read & ~none):
                self._join(number, read, mine, lane, several)
                result.value = result.value.lift(1)

    def _join(
        self, number: Value, read: Value, mine: Value, lane: Value, several: Value
    ) -> None:
        """Add a lane to the readers of a word; most words have the same readers."""
        code = self.code
        lanes = as_signed(~layout.LANE_FIELD, 64)
        placed = ((read ^ mine) & layout.LANE_FIELD) == 0
        state = convert(placed, I64, signed=False) * 2
        state = (state + convert(several, I64, signed=False)) << layout.LANE_AT
        key = (read & lanes) | state
        before, after = self.memo
        with code.when(before.value != key):
            bit = self.viewer.own.lift(1) << convert(lane, I32)
            own = select(several, bit.lift(0), bit)
            viewer = self.viewer._replace(own=own)
            grown = call_added(code, self.head, viewer, read, mine)
            self._put(self.records[1], number, grown)
            # The lane of a set's record is that of the word.
            before.value = select(is_set(grown), key, key.lift(0))
            after.value = grown & lanes
        with code.when(before.value == key):
            same = after.value | (read & layout.LANE_FIELD)
            self._put(self.records[1], number, same)

    def _write_seen(self, write: Value, mine: Value, mask: Value) -> Value:
        """Whether the last write is known to the lane, and bytes were written."""
        own: Value = ((write ^ mine) & _WHO) == 0
        known = settled(self.viewer, write) | own
        if self.writes:
            # Other bytes that the same lane just wrote stay in the record.
            keeps: Value = ((write ^ mine) & layout.EPOCH_FIELD) != 0
            fresh = compare_unsigned("==", mask_of(write), 0)
            return fresh | (known & keeps if self.size < 4 else known)
        missing = mask & ~(write & layout.EVER_FIELD)
        return compare_unsigned("==", missing, 0) & known

    def _ever(self, write: Value, mask: Value) -> Value:
        return mask | (write & layout.EVER_FIELD)

    def _words(self, records: Memory, number: Value) -> tuple[Value, Value]:
        """The record of the first word, and whether those of all words are alike."""
        b, count = self.code.builder, max(1, self.size // 4)
        first = records[number]
        if count == 1:
            return first, Value(b, ir.Constant(ir.IntType(1), 1))
        every = Value(b, self._load(records, number, count))
        name = f"llvm.vector.reduce.or.v{count}i64"
        other = every ^ first
        total = Value(b, intrinsic(b, name, I64, [other.raw]))
        same: Value = (total & _ALIKE) == 0
        return first, same

    def _at(self, records: Memory, number: Value, count: int) -> Raw:
        b = self.code.builder
        place = b.gep(records.raw, [number.raw])
        return b.bitcast(place, ir.VectorType(I64, count).as_pointer())

    def _load(self, records: Memory, number: Value, count: int) -> Raw:
        loaded = self.code.builder.load(self._at(records, number, count))
        loaded.align = 8
        return loaded

    def _put(self, records: Memory, number: Value, value: Value) -> None:
        """Store the same record for all words."""
        count = max(1, self.size // 4)
        if count == 1:
            records[number] = value
            return
        place = self._at(records, number, count)
        self.code.builder.store(value.in_all_lanes(count).raw, place).align = 8


def quick(
    code: Code, head: BlockHead, warp: WarpClocks, size: int, writes: bool, site: Value
) -> Quick:
    """What all lanes of an access have in common."""
    zero = site.lift(0)
    epoch = kept_epoch(warp.epoch[0])
    base = packed(kept_site(site), epoch, warp.agent, zero, zero, zero)
    return Quick(
        code,
        head,
        Viewer(warp.common_plane(), warp.agent, zero),
        size,
        writes,
        base,
        shadow(code, head),
        convert(head.word(layout.HEAD_RANK), I64) << 24,
        head.long(layout.HEAD_SIZE),
        (code.variable(base.lift(0)), code.variable(base.lift(0))),
    )
