"""The observer of ``wgmma`` in machine code: registers, clocks and shared memory.

:mod:`fragmenta.watch.races.register_watch` is the half of this in Python that says what
is wrong with registers.
"""

from __future__ import annotations

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import (
    I8,
    I32,
    I64,
    Code,
    Memory,
    Value,
    convert,
    larger,
    select,
    smaller,
)
from fragmenta.engine.simt import layout as engine
from fragmenta.engine.simt.library import POINTER, as_signed, field, pointer_at
from fragmenta.engine.simt.warps import clear_memory
from fragmenta.engine.units.fast import layout as units
from fragmenta.engine.units.fast.step import declared, shift
from fragmenta.engine.units.fast.wgmma import FENCES
from fragmenta.watch.races.shadow import boxes, layout, product_steps, shared_memory
from fragmenta.watch.races.shadow import product_layout as places
from fragmenta.watch.races.shadow.observing import Seen, observing
from fragmenta.watch.races.shadow.order import (
    acquire,
    clear,
    merge,
    row_now,
    sync_warp,
    warp_at,
)
from fragmenta.watch.races.shadow.product_layout import COMPUTED, FINE, MOVED, READ

WARPS = 4
UNIT = 16
"""Bytes of a unit."""
WGMMA = layout.AGENT_KINDS.index(layout.WARPGROUP)
_ASK = ir.FunctionType(ir.VoidType(), [I64, I64])


class _RegisterUse:
    """What an instruction means for registers."""

    def __init__(self, code: Code, raw: Raw) -> None:
        self._code, self.raw = code, raw
        self.number = field(code, raw, places.USE_NUMBER, I32)[0]

    def count(self, offset: int) -> Value:
        """How many there are."""
        return convert(field(self._code, self.raw, offset, I32)[0], I64)

    def table(self, offset: int) -> Memory:
        """Bytes of registers, by number."""
        return field(self._code, pointer_at(self._code, self.raw, offset), 0, I32)

    def bytes(self, offset: int) -> Memory:
        """A table of small numbers."""
        return field(self._code, pointer_at(self._code, self.raw, offset), 0, I8)


class _Keeper:
    """The registers of a warp."""

    def __init__(self, seen: Seen) -> None:
        self._code = code = seen.code
        number = convert(field(code, seen.warp, engine.WARP_NUMBER, I32)[0], I64)
        first = seen.head.pointer(layout.HEAD_KEEPERS)
        self.raw = code.builder.gep(first, [(number * places.KEEPER_BYTES).raw])
        self.touched, self.busy = (
            field(code, pointer_at(code, self.raw, each), 0, I8)
            for each in (places.KEEPER_TOUCHED, places.KEEPER_BUSY)
        )

    def word(self, offset: int) -> Memory:
        """A word of its record."""
        return field(self._code, self.raw, offset, I32)

    def _pair(self, offset: int, place: Value) -> Memory:
        b = self._code.builder
        first = pointer_at(self._code, self.raw, offset)
        at = b.gep(first, [(place * places.PAIR_BYTES).raw])
        return field(self._code, at, 0, I32)

    def _flight(self, number: Value) -> Memory:
        place = number & convert(self.word(places.KEEPER_CAPACITY)[0], I64) - 1
        return self._pair(places.KEEPER_FLIGHTS, place)

    def _any(self, memory: Memory, table: Memory, count: Value) -> Value:
        """All bits of some bytes."""
        found = self._code.variable(self._code.constant(0, I8))
        with self._code.loop(count) as number:
            found.value = found.value | memory[convert(table[number], I64)]
        return convert(found.value, I32)

    # ── questions ───────────────────────────────────────────────────────────

    def may_issue(self, use: _RegisterUse) -> Value:
        """Whether nothing is wrong with a product; Python has compared its uses."""
        capacity = self.word(places.KEEPER_CAPACITY)[0]
        in_flight = (
            self.word(places.KEEPER_ISSUED)[0] - self.word(places.KEEPER_FIRST)[0]
        )
        room = (in_flight < capacity) & (
            self.word(places.KEEPER_SINCE_COUNT)[0] < capacity
        )
        fenced = self.word(places.KEEPER_FENCED)[0] != 0
        fine = self._unchanged(use) & self._fits(use) & self._free(use)
        all_well: Value = fenced & room & fine
        return all_well

    def _unchanged(self, use: _RegisterUse) -> Value:
        """Whether no register was used without a fence after it."""
        done = self._any(
            self.touched,
            use.table(places.USE_ORDERED),
            use.count(places.USE_ORDERED_COUNT),
        )
        sums = self._any(
            self.touched, use.table(places.USE_SUMS), use.count(places.USE_SUMS_COUNT)
        )
        recent = self.word(places.KEEPER_RECENT)[0] != 0
        late = ((done & MOVED) | (sums & READ)) != 0
        unchanged: Value = ((done & COMPUTED) == 0) & (recent | ~late)
        return unchanged

    def _compared(self, table: Memory, pair: Memory) -> Value:
        """Whether a product was found to be fine beside another one."""
        number = pair[places.PAIR_USE // 4]
        inside = number < places.MOST_USES
        place = convert(smaller(number, places.MOST_USES - 1), I64)
        compared: Value = inside & (table[place] == FINE)
        return compared

    def _fits(self, use: _RegisterUse) -> Value:
        """Whether it may follow all products since the last fence."""
        code = self._code
        fine = code.variable(code.constant(1, I32))
        count = convert(self.word(places.KEEPER_SINCE_COUNT)[0], I64)
        table = use.bytes(places.USE_FITS)
        with code.loop(count) as number:
            good = self._compared(table, self._pair(places.KEEPER_SINCE, number))
            fine.value = select(good, fine.value, 0)
        good_so_far: Value = fine.value != 0
        return good_so_far

    def _free(self, use: _RegisterUse) -> Value:
        """Whether no product in flight has its registers in a way that matters."""
        code = self._code
        fine = code.variable(code.constant(1, I32))
        first, last = (
            convert(self.word(each)[0], I64)
            for each in (places.KEEPER_FIRST, places.KEEPER_ISSUED)
        )
        with code.when(first < last):
            busy = self._any(
                self.busy, use.table(places.USE_PLACES), use.count(places.USE_COUNT)
            )
            table = use.bytes(places.USE_APART)
            with code.when(busy != 0), code.loop(last, first) as number:
                good = self._compared(table, self._flight(number))
                fine.value = select(good, fine.value, 0)
        good_so_far: Value = fine.value != 0
        return good_so_far

    # ── changes ─────────────────────────────────────────────────────────────

    def issue(self, use: _RegisterUse, site: Value) -> None:
        """The warp issues a product."""
        code, ordered = self._code, use.table(places.USE_ORDERED)
        with code.loop(use.count(places.USE_ORDERED_COUNT)) as number:
            self.touched[convert(ordered[number], I64)] = code.constant(0, I8)
        issued = self.word(places.KEEPER_ISSUED)
        flight = self._flight(convert(issued[0], I64))
        flight[places.PAIR_USE // 4] = use.number
        flight[places.PAIR_SITE // 4] = site
        issued[0] = issued[0] + 1
        self._mark(use)
        self._add_since(use, site)

    def _mark(self, use: _RegisterUse) -> None:
        """Its registers are in flight."""
        table, roles = use.table(places.USE_PLACES), use.bytes(places.USE_ROLES)
        with self._code.loop(use.count(places.USE_COUNT)) as number:
            place = convert(table[number], I64)
            self.busy[place] = self.busy[place] | roles[number]

    def _add_since(self, use: _RegisterUse, site: Value) -> None:
        """Until the next fence, only its shape may go on with its accumulators."""
        code, count = self._code, self.word(places.KEEPER_SINCE_COUNT)
        place = code.variable(convert(count[0], I64))
        with code.loop(convert(count[0], I64)) as number:
            there = self._pair(places.KEEPER_SINCE, number)[0] == use.number
            place.value = select(there, number, place.value)
        with code.when(place.value == convert(count[0], I64)):
            count[0] = count[0] + 1
        pair = self._pair(places.KEEPER_SINCE, place.value)
        pair[places.PAIR_USE // 4] = use.number
        pair[places.PAIR_SITE // 4] = site

    def fence(self) -> None:
        """``wgmma.fence``."""
        code = self._code
        for offset, number in (
            (places.KEEPER_FENCED, 1),
            (places.KEEPER_RECENT, 1),
            (places.KEEPER_SINCE_COUNT, 0),
        ):
            self.word(offset)[0] = code.constant(number, I32)
        size = field(code, self.raw, places.KEEPER_SIZE, I64)[0]
        clear_memory(code.builder, self.touched.raw, size.raw)

    def retired(self, end: Value, uses: Memory) -> None:
        """The warp has waited for so many of its products."""
        code = self._code
        self.word(places.KEEPER_RECENT)[0] = end.lift(0)
        first, last = (
            self.word(each) for each in (places.KEEPER_FIRST, places.KEEPER_ISSUED)
        )
        with code.when((first[0] < last[0]) & (first[0] < end)):
            first[0] = smaller(end, last[0])
            size = field(code, self.raw, places.KEEPER_SIZE, I64)[0]
            clear_memory(code.builder, self.busy.raw, size.raw)
            bounds = (convert(each[0], I64) for each in (last, first))
            with code.loop(*bounds) as number:
                use = convert(self._flight(number)[places.PAIR_USE // 4], I64)
                self._mark(_RegisterUse(code, uses[use].raw))


# ── what the port calls ─────────────────────────────────────────────────────


def _meet(seen: Seen) -> None:
    """All lanes of a warp execute an instruction together."""
    sync_warp(seen.clocks, seen.lanes, seen.live)


def _first_of_d(code: Code, form: Raw) -> Value:
    """Where D begins in a warp."""
    return field(code, pointer_at(code, form, units.FORM_D), 0, I64)[0]


def _touch(seen: Seen) -> Value:
    """A warp is about to issue a product: whether nothing is wrong."""
    code = seen.code
    number = field(code, seen.warp, engine.WARP_NUMBER, I32)[0]
    d = code.builder.gep(seen.warp, [_first_of_d(code, seen.about).raw])
    product_steps.zero(code, seen.head, number, d)
    raw = pointer_at(code, seen.about, units.FORM_OBSERVER)
    answer = code.variable(code.constant(0, I32))
    with code.when(boxes.there(code, raw)):
        keeper, use = _Keeper(seen), _RegisterUse(code, raw)
        with code.when(keeper.may_issue(use)):
            _meet(seen)
            keeper.issue(use, seen.site)
            answer.value = code.constant(1, I32)
    return answer.value


def _fence(seen: Seen) -> None:
    """``wgmma.fence``, or ``wgmma.commit_group``."""
    _meet(seen)
    flags = field(seen.code, seen.event, units.EVENT_FLAGS, I32)[0]
    with seen.code.when((flags & FENCES) != 0):
        _Keeper(seen).fence()


def _agent(seen: Seen, group: Value) -> Value:
    """The agent of the products of a warpgroup."""
    head = seen.head
    count = (head.word(layout.HEAD_WARPS) + (WARPS - 1)) >> 2
    first = head.word(layout.HEAD_KINDS + 4 * WGMMA)
    agent: Value = first + head.word(layout.HEAD_RANK) * count + group
    return agent


def _spare(seen: Seen, number: int) -> Memory:
    b = seen.code.builder
    first = field(seen.code, seen.head.pointer(layout.HEAD_SPARE), 0, I32)
    return Memory(b, b.gep(first.raw, [(seen.head.row_words() * number).raw]), I32)


def _known_by_all(seen: Seen, group: Value) -> Memory:
    """What the four warps of a warpgroup know, each with its live lanes."""
    code, b = seen.code, seen.code.builder
    state = pointer_at(code, seen.block, engine.BLOCK_UNITS)
    at = convert(group, I64) * units.GROUP_BYTES
    record = b.gep(pointer_at(code, state, units.STATE_WARPGROUPS), [at.raw])
    warps = field(code, record, units.GROUP_WARPS, POINTER)
    total, one = _spare(seen, 0), _spare(seen, 1)
    for own in range(WARPS):
        live = field(code, warps[own].raw, engine.LIVE, I32)[0]
        clocks = warp_at(code, seen.head, group * WARPS + own)
        row_now(clocks, live, one if own else total)
        if own:
            merge(code, seen.head, total, one)
    return total


def _product(seen: Seen) -> None:
    """All four warps have issued a product: it reads shared memory from now on."""
    code = seen.code
    group = seen.word(units.PRODUCT_WARPGROUP)[0]
    epoch = seen.word(units.PRODUCT_GROUP)[0]
    agent = _agent(seen, group)
    clock = _known_by_all(seen, group)
    seen.note("product", group.lift(-1), agent, epoch)
    form = pointer_at(code, seen.about, units.PRODUCT_FORM)
    use = _RegisterUse(code, pointer_at(code, form, units.FORM_OBSERVER))
    words = seen.long(units.PRODUCT_DESCRIPTORS)
    from_shared = field(code, form, units.FORM_A_SHARED, I32)[0] != 0
    with code.when(from_shared):
        _read(seen, use, 0, words[0], agent, epoch, clock)
    _read(seen, use, 1, select(from_shared, words[1], words[0]), agent, epoch, clock)
    with code.when(from_shared):
        adds = seen.long(units.PRODUCT_SCALE_D)[0]
        number = field(code, seen.warp, engine.WARP_NUMBER, I32)[0]
        about = words[0], words[1], adds, epoch, _first_of_d(code, form)
        given = [each.raw for each in (use.number, *about, seen.site, number)]
        product_steps.step(code, seen.head.raw, *given)


def _read(
    seen: Seen,
    use: _RegisterUse,
    operand: int,
    word: Value,
    agent: Value,
    epoch: Value,
    clock: Memory,
) -> None:
    """A product reads A (operand 0) or B (1), where a descriptor says."""
    code, b = seen.code, seen.code.builder
    mode = convert(shift(word, 62), I64)
    # No swizzle, 128, 64 or 32 bytes repeat after 16, 1024, 512 or 256 bytes.
    repeat = select(mode == 0, mode.lift(UNIT), mode.lift(2048) >> mode)
    start = (word & 0x3FFF) * UNIT
    first = start - (start & (repeat - 1))
    key = word - shift(first, 4)
    of = convert(use.number, I64) * 2 + (operand + 2)
    entry = code.variable(_entry(seen, of, key))
    with code.when(entry.value == 0):
        function = b.bitcast(seen.head.pointer(layout.HEAD_ASK), _ASK.as_pointer())
        b.call(function, [of.raw, key.raw])
        entry.value = _entry(seen, of, key)
    found = b.inttoptr(entry.value.raw, POINTER)
    touch = declared(b.module, shared_memory.TOUCH.name, shared_memory.TOUCHES)
    kind = layout.READS | shared_memory.ASYNC
    b.call(
        touch,
        [
            seen.head.raw,
            pointer_at(code, found, places.UNITS_STARTS),
            field(code, found, places.UNITS_COUNT, I64)[0].raw,
            *(ir.Constant(I32, each) for each in (UNIT, kind)),
            agent.raw,
            epoch.raw,
            ir.Constant(I32, 0),
            seen.site.raw,
            b.bitcast(clock.raw, POINTER),
            convert(first, I32).raw,
        ],
    )
    number = field(code, seen.warp, engine.WARP_NUMBER, I32)[0]
    boxes.look(code, seen.head.raw, of.raw, word.raw, seen.site.raw, number.raw)


def _entry(seen: Seen, of: Value, key: Value) -> Value:
    """Where the units of a descriptor are listed; 0 if they are not."""
    code, b = seen.code, seen.code.builder
    table = seen.head.pointer(layout.HEAD_UNITS)
    hashed = (key ^ (of << 48)) * as_signed(units.HASH, 64)
    start, found = shift(hashed, 54), code.variable(key.lift(0))
    with code.loop(places.UNITS_PROBES) as probe:
        place = (start + probe) & (places.UNITS - 1)
        entry = b.gep(table, [(place * places.UNITS_BYTES).raw])
        same = field(code, entry, places.UNITS_OF, I64)[0] == of
        same = same & (field(code, entry, places.UNITS_KEY, I64)[0] == key)
        here = Value(b, b.ptrtoint(entry, I64))
        found.value = select(same, here, found.value)
    return found.value


def _multiplied(seen: Seen) -> None:
    """A warp has waited for all groups before a number."""
    code, head = seen.code, seen.head
    _meet(seen)
    number = field(code, seen.warp, engine.WARP_NUMBER, I32)[0]
    own = convert(number & (WARPS - 1), I64)
    uses = field(code, head.pointer(layout.HEAD_USES), 0, POINTER)
    _Keeper(seen).retired(seen.word(units.GROUP_RETIRED)[own], uses)
    row, agent = _spare(seen, 0), convert(_agent(seen, number >> 2), I64)
    clear(code, head, row)
    with code.loop(head.planes) as plane:
        place = plane * 3 * head.row + agent
        row[place] = larger(row[place], convert(seen.number, I32))
    seen.note("multiplied", number.lift(-1), seen.number)
    acquire(seen.clocks, seen.live, seen.live, row)


ROUTINES = {
    units.PORT_FENCE: observing("watch.port.fence", _fence),
    units.PORT_TOUCH: observing("watch.port.touch", _touch),
    units.PORT_PRODUCT: observing("watch.port.product", _product),
    units.PORT_MULTIPLIED: observing("watch.port.multiplied", _multiplied),
}
"""What answers the calls of the port."""
LINKED = (
    shared_memory.TOUCH,
    *shared_memory.SUPPORT,
    boxes.LOOK,
    boxes.WRITTEN,
    product_steps.STEP,
)
"""Routines that these call."""
