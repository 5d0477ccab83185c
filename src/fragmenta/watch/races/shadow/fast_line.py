"""The fast path for 32 lanes whose words of shared memory are side by side.

The records of all words are compared with the first one.  If they are alike, a decision
about the first holds for all of them.  If they are not, or if something may be wrong,
each lane is checked alone.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

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
from fragmenta.base.jit.trace import LANES as TOGETHER
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.library import as_signed
from fragmenta.watch.races.shadow import layout
from fragmenta.watch.races.shadow.layout import Lanes
from fragmenta.watch.races.shadow.order import BlockHead, WarpClocks
from fragmenta.watch.races.shadow.readers import call_added, each_reader, is_set
from fragmenta.watch.races.shadow.shared_check import settled, shadow
from fragmenta.watch.races.shadow.shared_records import (
    Viewer,
    kept_epoch,
    kept_site,
    lanes_of,
    mask_of,
    packed,
)

_CLASSES = {1: Lanes.BYTES, 2: Lanes.HALVES}
_WHO = layout.AGENT_FIELD | layout.CLASS_FIELD
_ALIKE = layout.EPOCH_FIELD | _WHO | layout.MASK_FIELD
_EXACT = _ALIKE | layout.LANE_FIELD


class WarpLine:
    """Words side by side that 32 lanes access, each of them its own."""

    def __init__(
        self,
        code: Code,
        head: BlockHead,
        warp: WarpClocks,
        size: int,
        kind: str,
        lanes: Value,
        first: Value,
        one: Value,
        site: Value,
    ) -> None:
        self.code, self.head, self.warp = code, head, warp
        self.size, self.writes, self.lanes = size, kind == "write", lanes
        self.count = LANES * size // 4
        # Lanes that do not take part have their words, too, but only of 4 bytes.
        self.start = one - first * size
        self.whole: Value = lanes == -1
        names = [i * LANES // self.count << layout.LANE_AT for i in range(self.count)]
        self.names = code.table(names, I64)
        self.mine = self._mine(site)
        own = lanes.lift(1) << convert(first, I32)
        self.viewer = Viewer(warp.common_plane(), warp.agent, own)
        self.first = convert(first, I64)

    def _mine(self, site: Value) -> Value:
        """The record of lane 0."""
        zero = site.lift(0)
        lanes = zero + int(_CLASSES.get(self.size, Lanes.ONE))
        epoch = kept_epoch(self.warp.epoch[0])
        return packed(kept_site(site), epoch, self.warp.agent, zero, lanes, zero + 15)

    def fits(self) -> Value:
        """Whether the words are in the shared memory of the block."""
        rank = convert(self.head.word(layout.HEAD_RANK), I64) << 24
        begin = self.start - rank
        end = begin + LANES * self.size
        good = compare_unsigned("<", begin, self.head.long(layout.HEAD_SIZE))
        good = good & compare_unsigned("<=", end, self.head.long(layout.HEAD_SIZE))
        good = good & compare_unsigned("==", begin & 3, 0)
        return good if self.size == 4 else self.whole & good

    def done(self) -> Value:
        """Check and record the accesses; whether that was possible."""
        code = self.code
        records = shadow(code, self.head)
        base = shift_unsigned(self.start & ((1 << 24) - 1), 2)
        here = [_from(code, each, base) for each in records]
        leader = self.first if self.size == 4 else self.first.lift(0)
        firsts = [each[leader] for each in here]
        result = code.variable(self.lanes.lift(0))
        name = self.names[leader]
        pick = 0 if self.writes else 1
        same = ((firsts[pick] ^ (self.mine | name)) & as_signed(_EXACT, 64)) == 0
        if self.writes:
            same = same & (firsts[1] == 0)
        with code.when(same):
            result.value = convert(self._repeated(here), I32, signed=False)
        with code.when(result.value == 0):
            self._general(here, firsts, name, result)
        return result.value > 0

    def _each(self) -> AbstractContextManager[Value]:
        return self.code.loop(self.count, step=TOGETHER)

    def _active(self, at: Value, value: Value) -> Value:
        """A vector, with 0 for words of lanes that do not take part."""
        if self.size != 4:
            return value
        return value & self._all_ones(at)

    def _all_ones(self, at: Value) -> Value:
        """-1 for each word whose lane takes part."""
        code = self.code
        bits = shift_unsigned(self.lanes, convert(at, I32))
        table = code.table([1 << i for i in range(TOGETHER)], I32).lanes(0)
        here: Value = (table & bits) != 0
        return convert(here, I64)

    def _repeated(self, here: list[Memory]) -> Value:
        """Whether the warp did the same since anybody else accessed the words."""
        code = self.code
        total = _zeros(code)
        with self._each() as at:
            mine = self.names.lanes(at) | self.mine
            if self.writes:
                other = (here[0].lanes(at) ^ mine) & as_signed(_EXACT, 64)
                other = other | here[1].lanes(at)
            else:
                other = (here[1].lanes(at) ^ mine) & as_signed(_EXACT, 64)
            total.value = total.value | self._active(at, other)
        nothing: Value = _any(code, total.value) == 0
        return nothing

    def _general(
        self, here: list[Memory], firsts: list[Value], name: Value, result: Variable
    ) -> None:
        """Decide about all words by the first one, if they are alike."""
        code = self.code
        ever = layout.EVER_FIELD
        alike = [_zeros(code) for _ in range(2)]
        own = [_zeros(code) for _ in range(2)]
        with self._each() as at:
            mine = self.names.lanes(at) | (self.mine | ever)
            for number in range(2):
                loaded = here[number].lanes(at)
                one, two = loaded ^ firsts[number], loaded ^ mine
                alike[number].value = alike[number].value | self._active(at, one)
                own[number].value = own[number].value | self._active(at, two)
        unlike = [_any(code, each.value) for each in alike]
        strange = [_any(code, each.value) for each in own]
        write_ok = self._write_ok(firsts[0], unlike[0], strange[0])
        reads = self._reads(firsts[1], unlike[1], strange[1], name)
        fine, following = reads
        with code.when(write_ok & (fine.value != 0)):
            self._store(here, following.value)
            result.value = result.value.lift(1)

    def _write_ok(self, first: Value, unlike: Value, strange: Value) -> Value:
        """Whether all writes before are known."""
        ever = 0 if self.writes else layout.EVER_FIELD
        even = compare_unsigned("==", unlike & (_ALIKE | ever), 0)
        seen = settled(self.viewer, first)
        if self.writes:
            seen = seen | compare_unsigned("==", mask_of(first), 0)
        else:
            seen = seen & compare_unsigned("==", first & ever, ever)
        fields = _WHO | layout.LANE_FIELD | layout.MASK_FIELD | ever
        return (seen & even) | compare_unsigned("==", strange & fields, 0)

    def _reads(
        self, first: Value, unlike: Value, strange: Value, name: Value
    ) -> tuple[Variable, Variable]:
        """Whether the reads before are in order, and the record after a read."""
        code = self.code
        site = (unlike.lift(-1) << layout.SITE_AT) | layout.LANE_FIELD
        even = (
            unlike & ~select(is_set(first), unlike.lift(layout.LANE_FIELD), site)
        ) == 0
        none = mask_of(first) == 0
        own = (strange & (_WHO | layout.LANE_FIELD)) == 0
        clear = even & (none | settled(self.viewer, first))
        fine = code.variable(convert(clear | own, I32, signed=False))
        following = code.variable(self.mine)
        with code.when(even & is_set(first) & ~none):
            if self.writes:
                fine.value = self._all_settled(first)
            else:
                fine.value = fine.value | self._all_settled(first)
        if not self.writes:
            same = (unlike & ~unlike.lift(layout.LANE_FIELD)) == 0
            placed = (strange & layout.LANE_FIELD) == 0
            one = lanes_of(self.mine) == int(Lanes.ONE)
            with code.when((fine.value == 0) & same & placed & one & ~none):
                mine = self.mine | name
                grown = call_added(code, self.head, self.viewer, first, mine)
                following.value = grown & as_signed(~layout.LANE_FIELD, 64)
                fine.value = fine.value.lift(1)
        return fine, following

    def _all_settled(self, record: Value) -> Value:
        """1 if all readers of a set are known."""
        code = self.code
        fine = code.variable(self.lanes.lift(1))

        def visit(entry: Value) -> None:
            seen = settled(self.viewer, entry)
            fine.value = select(seen, fine.value, 0)

        each_reader(code, self.head, record, visit)
        return fine.value

    def _store(self, here: list[Memory], reads: Value) -> None:
        """Record the accesses of all words."""
        with self._each() as at:
            names = self.names.lanes(at)
            if self.writes:
                written = names | (self.mine | layout.EVER_FIELD)
                self._put(here[0], at, written)
                self._put(here[1], at, written.lift(0))
            else:
                self._put(here[1], at, names | reads)

    def _put(self, goal: Memory, at: Value, value: Value) -> None:
        if self.size == 4:
            active = self._all_ones(at)
            value = (value & active) | (goal.lanes(at) & ~active)
        goal[at] = value


def _from(code: Code, records: Memory, base: Value) -> Memory:
    b = code.builder
    return Memory(b, b.gep(records.raw, [base.raw]), I64)


def _zeros(code: Code) -> Variable:
    return code.variable(code.constant(0, I64).in_all_lanes(TOGETHER))


def _any(code: Code, vector: Value) -> Value:
    """The bits that are set in any number of a vector."""
    b = code.builder
    name = f"llvm.vector.reduce.or.v{TOGETHER}i64"
    return Value(b, intrinsic(b, name, I64, [vector.raw]))
