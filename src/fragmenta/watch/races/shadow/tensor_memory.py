"""The observer of tensor memory in machine code.

:mod:`fragmenta.watch.races.tmem_watch` does the same in Python, with the same records,
and says what is wrong.  A routine that asks changes nothing unless all is well.  With
``watch="strict"`` Python sees every instruction.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from llvmlite import ir

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import (
    I32,
    I64,
    Code,
    Memory,
    Value,
    convert,
    larger,
    select,
)
from fragmenta.engine.simt import layout as engine
from fragmenta.engine.simt.library import POINTER, field, pointer_at
from fragmenta.engine.simt.warps import clear_memory, first_lane
from fragmenta.engine.units.fast import layout as units
from fragmenta.engine.units.fast import task_layout as tasks
from fragmenta.engine.units.fast import tensor_layout as tensors
from fragmenta.engine.units.fast.step import declared
from fragmenta.engine.units.fast.tensor_cells import (
    CellRegion,
    after,
    part_region,
    there,
)
from fragmenta.engine.units.fast.tensor_issue import BEFORE
from fragmenta.engine.units.fast.tensor_moves import STORES
from fragmenta.ptx.effects import in_order
from fragmenta.watch.races.shadow import boxes, layout, shared_memory
from fragmenta.watch.races.shadow import tensor_layout as at
from fragmenta.watch.races.shadow.copies import task_row
from fragmenta.watch.races.shadow.observing import Seen, mark_used, observing
from fragmenta.watch.races.shadow.order import (
    Plane,
    acquire,
    clear,
    know,
    publish,
    row_now,
    sync_warp,
)

LD, ST, MMA = (at.KINDS.index(each) for each in ("ld", "st", "mma"))
QUEUE, LOADS, WRITES = range(3)
"""Places of agents in the periods."""
_FENCE = layout.AGENT_KINDS.index("tcgen05.fence")
_KINDS = [layout.AGENT_KINDS.index(each) for each in at.AGENTS]
_CELLS = tensors.LANES * tensors.COLUMNS


class _Watch:
    """What is known of the tensor memories of a cluster."""

    def __init__(self, seen: Seen) -> None:
        self.seen, self.code = seen, seen.code
        self.raw = seen.head.pointer(layout.HEAD_TENSOR)
        head = seen.head
        self.rank = head.word(layout.HEAD_RANK)
        self.number = field(self.code, seen.warp, engine.WARP_NUMBER, I32)[0]
        self._who = self.rank * head.word(layout.HEAD_WARPS) + self.number
        self._warps = head.word(layout.HEAD_WARPS) * head.word(layout.HEAD_BLOCKS)

    def long(self, offset: int) -> Memory:
        """A word of 64 bits of the record."""
        return field(self.code, self.raw, offset, I64)

    def word(self, offset: int) -> Memory:
        """A word of 32 bits of the record."""
        return field(self.code, self.raw, offset, I32)

    def agent(self, kind: int) -> Value:
        """The agent of a kind of the warp."""
        first = self.seen.head.word(layout.HEAD_KINDS + 4 * kind)
        agent: Value = first + self._who
        return agent

    def _of(self, pointer: int, number: Value) -> Memory:
        """Words from one with a number on."""
        b = self.code.builder
        every = field(self.code, pointer_at(self.code, self.raw, pointer), 0, I32)
        return Memory(b, b.gep(every.raw, [convert(number, I64).raw]), I32)

    def period(self, of: int) -> Memory:
        """The present epoch of an agent of the warp."""
        return self._of(at.WATCH_PERIODS, self._warps * of + self._who)

    @property
    def issued(self) -> Memory:
        """How many accesses the warp has issued."""
        return self._of(at.WATCH_NUMBERS, self._who)

    def cells(self, rank: Value) -> Memory:
        """The numbers of the last writes of the cells of a block."""
        return self._of(at.WATCH_CELLS, rank * _CELLS)

    def row(self, first: int, number: Value, of: np.dtype[np.void]) -> Raw:
        """A record of a list."""
        start, place = pointer_at(self.code, self.raw, first), number * of.itemsize
        return self.code.builder.gep(start, [place.raw])

    def has_room(self, first: int) -> Value:
        """Whether there is room for some more records in a list."""
        room: Value = self.long(first + 8)[0] + at.MARGIN < self.long(first + 16)[0]
        return room


def _access_word(code: Code, record: Raw, name: str) -> Memory:
    return field(code, record, at.offset(at.ACCESS, name), I32)


# ── new accesses ────────────────────────────────────────────────────────────


class _ShadowRegion:
    """A region of a block that an access reads or writes."""

    def __init__(self, region: CellRegion, rank: Value) -> None:
        self.region, self.rank = region, rank

    @property
    def start(self) -> Value:
        """The first column."""
        return convert(self.region.first, I32)

    @property
    def stop(self) -> Value:
        """The column after the last."""
        return convert(self.region.first + self.region.columns, I32)

    def write(self, record: Raw, start: int) -> None:
        """Write it into a record."""
        code = self.region.code
        for name, word in (
            ("rank", self.rank),
            ("start", self.start),
            ("stop", self.stop),
            ("there", self.rank.lift(1)),
        ):
            field(code, record, start + at.offset(at.REGION, name), I32)[0] = word
        lanes = field(code, record, start + at.offset(at.REGION, "lanes"), I64)
        for half in range(2):
            lanes[half] = self.region.lanes[half]

    def equals(self, record: Raw, start: int) -> Value:
        """Whether it is the same region as that of a record."""
        code = self.region.code
        words = [
            field(code, record, start + at.offset(at.REGION, name), I32)[0]
            for name in ("rank", "start", "stop", "there")
        ]
        lanes = field(code, record, start + at.offset(at.REGION, "lanes"), I64)
        same: Value = (words[0] == self.rank) & (words[1] == self.start)
        same = same & (words[2] == self.stop) & (words[3] != 0)
        for half in range(2):
            same = same & (lanes[half] == self.region.lanes[half])
        return same

    def meets(self, record: Raw, start: int) -> Value:
        """Whether it has common cells with the region of a record."""
        code = self.region.code
        rank, first, stop = (
            field(code, record, start + at.offset(at.REGION, name), I32)[0]
            for name in ("rank", "start", "stop")
        )
        lanes = field(code, record, start + at.offset(at.REGION, "lanes"), I64)
        common = lanes[0] & self.region.lanes[0] | lanes[1] & self.region.lanes[1]
        near = (rank == self.rank) & (first < self.stop) & (self.start < stop)
        found: Value = near & (common != 0)
        return found


class _New:
    """An access that is about to be recorded."""

    def __init__(self, watch: _Watch, kind: int, row: Memory) -> None:
        self.watch, self.code, self.kind = watch, watch.code, kind
        self.plane = Plane(row, watch.seen.head.row)
        self._fine = self.code.variable(self.code.constant(1, I32))

    def refuse(self, wrong: Value) -> None:
        """Something is wrong if a condition holds."""
        bit = convert(wrong, I32, signed=False)
        self._fine.value = self._fine.value & (bit ^ 1)

    @property
    def fine(self) -> Value:
        """Whether nothing is wrong so far."""
        found: Value = self._fine.value != 0
        return found

    def same_form(self, old: Raw) -> Value:
        """Whether an earlier product has the same shape and the same D."""
        never: Value = self.code.constant(0, I32) != 0
        return never

    # ── earlier accesses ────────────────────────────────────────────────────

    def _judge(self, old: Raw, was_write: bool, own: bool) -> None:
        """Refuse an earlier access that need not be done."""
        code = self.code

        def word(name: str) -> Value:
            return _access_word(code, old, name)[0]

        lane = larger(word("lane"), 0)
        known = self.plane.knows(word("agent"), lane, word("epoch"))
        if self.kind == MMA:
            known = known | self._promised(old, was_write, own)
        self.refuse(~known)

    def _promised(self, old: Raw, was_write: bool, own: bool) -> Value:
        """Whether the Tensor Cores do an earlier access first."""
        code = self.code

        def word(name: str) -> Value:
            return _access_word(code, old, name)[0]

        kind, promised = word("kind"), code.constant(0, I32) != 0
        same = self.same_form(old) if own else promised
        for number, name in enumerate(at.KINDS):
            if name not in ("mma", "cp", "shift"):
                continue
            plain, equal = (
                in_order(f"tcgen05.{name}", "tcgen05.mma", was_write, each) is not False
                for each in (False, True)
            )
            here = kind == number
            if plain:
                promised = promised | here
            elif equal:
                promised = promised | here & same
        lane = larger(word("lane"), 0)
        issued = self.plane.knows(word("issuer"), lane, word("issued"))
        first: Value = promised & issued
        return first

    def after_writes(self, part: _ShadowRegion, own: bool, written: Value) -> None:
        """Compare with the last writes of cells; perhaps all must be written."""
        code, watch = self.code, self.watch
        cells, last = watch.cells(part.rank), code.variable(code.constant(-1, I32))

        def one(first: Value) -> None:
            with code.loop(part.region.columns) as column:
                number = cells[first + column]
                with code.when(number != last.value):
                    last.value = number
                    self.refuse(written & (number == 0))
                    with code.when(number != 0):
                        place = convert(number, I64) - 1
                        old = watch.row(at.WATCH_WRITES, place, at.ACCESS)
                        self._judge(old, True, own)

        part.region.each_lane(one)

    def after_reads(self, part: _ShadowRegion) -> None:
        """Compare with the reads of cells that it writes."""
        code, watch = self.code, self.watch
        with code.loop(watch.long(at.WATCH_READS_COUNT)[0]) as number:
            old = watch.row(at.WATCH_READS, number, at.READ)
            with code.when(part.meets(old, at.offset(at.READ, "where"))):
                self._judge(old, False, True)

    # ── records ─────────────────────────────────────────────────────────────

    def words(self, lane: Value, of: int) -> dict[str, Value]:
        """The words of the record, once it is issued."""
        watch, seen = self.watch, self.watch.seen
        zero = lane.lift(0)
        return {
            "kind": zero + self.kind,
            "rank": watch.rank,
            "warp": watch.number,
            "lane": lane,
            "agent": watch.agent(_KINDS[of]),
            "epoch": watch.period(of)[0],
            "issuer": seen.clocks.agent,
            "issued": seen.clocks.epoch[0],
            "number": watch.issued[0],
            "site": seen.site,
            "threads": zero + 1,
            "m": zero,
            "n": zero,
        }

    def put(self, record: Raw, words: dict[str, Value]) -> None:
        """Write the record; the form of a product is written later."""
        code = self.code
        for name, word in words.items():
            _access_word(code, record, name)[0] = word
        form = after(code, record, at.offset(at.ACCESS, "form"))
        clear_memory(code.builder, form, ir.Constant(I64, 2 * at.REGION.itemsize))

    def read(self, part: _ShadowRegion, words: dict[str, Value]) -> None:
        """List a read; of an agent and a lane, only the last of each region."""
        code, watch = self.code, self.watch
        count, where = watch.long(at.WATCH_READS_COUNT), at.offset(at.READ, "where")
        place = code.variable(count[0])
        with code.loop(count[0]) as number:
            old = watch.row(at.WATCH_READS, number, at.READ)
            same = part.equals(old, where)
            for name in ("agent", "lane"):
                same = same & (_access_word(code, old, name)[0] == words[name])
            place.value = select(same, number, place.value)
        record = watch.row(at.WATCH_READS, place.value, at.READ)
        self.put(record, words)
        part.write(record, where)
        count[0] = larger(count[0], place.value + 1)

    def wrote(self, words: dict[str, Value]) -> Raw:
        """List a write; its record."""
        watch = self.watch
        count = watch.long(at.WATCH_WRITES_COUNT)
        record = watch.row(at.WATCH_WRITES, count[0], at.ACCESS)
        self.put(record, words)
        count[0] = count[0] + 1
        return record

    def mark(self, part: _ShadowRegion) -> None:
        """It is the last write of these cells."""
        code, watch = self.code, self.watch
        cells = watch.cells(part.rank)
        number = convert(watch.long(at.WATCH_WRITES_COUNT)[0], I32)

        def one(first: Value) -> None:
            with code.loop(part.region.columns) as column:
                cells[first + column] = number

        part.region.each_lane(one)


def _spare(seen: Seen) -> Memory:
    return field(seen.code, seen.head.pointer(layout.HEAD_SPARE), 0, I32)


# ── loads and stores ────────────────────────────────────────────────────────


def _move(seen: Seen) -> Value:
    """A warp loads or stores cells: whether nothing is wrong, and then it is noted."""
    code, watch = seen.code, _Watch(seen)
    flags = field(code, seen.event, units.EVENT_FLAGS, I32)[0]
    stores = (flags & STORES) != 0
    row = _spare(seen)
    row_now(seen.clocks, seen.lanes, row)
    answer = code.variable(code.constant(0, I32))
    for kind, of, chosen in ((LD, LOADS, ~stores), (ST, WRITES, stores)):
        with code.when(chosen):
            new = _New(watch, kind, row)
            lists = (at.WATCH_READS, at.WATCH_WRITES)
            for each in lists:
                new.refuse(~watch.has_room(each))
            always = convert(chosen, I32, signed=False) != 0
            written = always if kind == LD else ~always

            _each_part(seen, watch, _comparing(new, written))
            with code.when(new.fine):
                answer.value = code.constant(1, I32)
                sync_warp(seen.clocks, seen.lanes, seen.live)
                watch.issued[0] = watch.issued[0] + 1
                words = new.words(seen.lanes.lift(-1), of)
                seen.note("move", seen.lanes, words["agent"], words["epoch"])
                if kind == ST:
                    new.wrote(words)
                    _each_part(seen, watch, new.mark)
                else:
                    _each_part(seen, watch, _reading(new, words))
    return answer.value


def _comparing(new: _New, written: Value) -> Callable[[_ShadowRegion], None]:
    def one(part: _ShadowRegion) -> None:
        new.after_writes(part, True, written)
        if new.kind == ST:
            new.after_reads(part)

    return one


def _reading(new: _New, words: dict[str, Value]) -> Callable[[_ShadowRegion], None]:
    def one(part: _ShadowRegion) -> None:
        new.read(part, words)

    return one


def _each_part(seen: Seen, watch: _Watch, do: Callable[[_ShadowRegion], None]) -> None:
    """Do something with each region of a load or a store."""
    code = seen.code
    move = pointer_at(code, seen.event, units.EVENT_FORM)
    regions = field(code, move, tensors.MOVE_REGIONS, I32)[0]
    for number in range(2):
        with code.when(regions > number):
            place = tensors.ENTRY_REGIONS + number * tensors.REGION_BYTES
            region = CellRegion(code, after(code, seen.about, place), seen.number)
            do(_ShadowRegion(region, watch.rank))


def _moved(seen: Seen) -> None:
    """A warp has waited for its loads, or for its stores."""
    code, watch = seen.code, _Watch(seen)
    flags = field(code, seen.event, units.EVENT_FLAGS, I32)[0]
    stores = (flags & STORES) != 0
    sync_warp(seen.clocks, seen.lanes, seen.live)
    for of, chosen in ((LOADS, ~stores), (WRITES, stores)):
        with code.when(chosen):
            period, agent = watch.period(of), watch.agent(_KINDS[of])
            period[0] = period[0] + 1
            seen.note("moved", seen.lanes, agent, period[0])
            _learn(seen, agent, period[0])


def _learn(seen: Seen, agent: Value, epoch: Value) -> None:
    """Lanes know what an agent of their warp did before an epoch."""
    code, head, row = seen.code, seen.head, _spare(seen)
    clear(code, head, row)
    place = convert(agent, I64)
    with code.loop(head.planes) as plane:
        row[plane * 3 * head.row + place] = epoch
    acquire(seen.clocks, seen.lanes, seen.live, row)


def _fence(seen: Seen) -> None:
    """``tcgen05.fence``: only strict rules need what it says."""
    flags = field(seen.code, seen.event, units.EVENT_FLAGS, I32)[0]
    with seen.code.when((flags & BEFORE) != 0):
        watch = _Watch(seen)
        _learn(seen, watch.agent(_FENCE), watch.issued[0] + 1)


# ── products ────────────────────────────────────────────────────────────────


class _Product(_New):
    """A product that is about to be recorded."""

    def __init__(self, watch: _Watch, row: Memory) -> None:
        super().__init__(watch, MMA, row)
        seen, code = watch.seen, watch.code
        self.record = seen.about
        self.form = pointer_at(code, self.record, tensors.PRODUCT_FORM)
        self.pair = field(code, self.form, tensors.FORM_PAIR, I32)[0] != 0
        self.enabled = field(code, self.record, tensors.PRODUCT_ENABLE, I64)[0] != 0
        scaled = field(code, self.form, tensors.FORM_SCALED, I32)[0] != 0
        table = tensors.FORM_PARTS + tensors.A * tensors.PART_BYTES
        cells = there(code, pointer_at(code, self.form, table + tensors.PART_TABLE))
        self.read_parts = (
            (tensors.A, cells),
            (tensors.SCALE_A, scaled),
            (tensors.SCALE_B, scaled),
        )
        self.in_cells = cells
        self.m, self.n = (
            field(code, self.form, tensors.FORM_SHAPE + each, I32)[0] for each in (0, 4)
        )

    @property
    def group(self) -> Value:
        """Its ``.cta_group``."""
        return select(self.pair, self.watch.rank.lift(2), 1)

    def block(self, number: int) -> Value:
        """The rank of a block of the pair."""
        rank = self.watch.rank
        return select(self.pair, (rank & -2) + number, rank)

    def part(self, operand: int, block: int) -> _ShadowRegion:
        """The cells of an operand in a block."""
        place = tensors.PRODUCT_PLACES + 8 * operand
        column = field(self.code, self.record, place, I64)[0]
        region = part_region(self.code, self.form, operand, block, column)
        return _ShadowRegion(region, self.block(block))

    def each_block(self, do: Callable[[int], None]) -> None:
        """Do something for each block."""
        do(0)
        with self.code.when(self.pair):
            do(1)

    def same_form(self, old: Raw) -> Value:
        """Whether an earlier product has the same shape and the same D."""
        code = self.code
        start, size = at.offset(at.ACCESS, "form"), at.REGION.itemsize
        same = (_access_word(code, old, "m")[0] == self.m) & (
            _access_word(code, old, "n")[0] == self.n
        )
        same = same & self.part(tensors.D, 0).equals(old, start)
        second = field(code, old, start + size + at.offset(at.REGION, "there"), I32)[0]
        both = self.part(tensors.D, 1).equals(old, start + size)
        all_same: Value = same & select(self.pair, both, second == 0)
        return all_same

    def compare(self) -> None:
        """Compare with all that came before."""
        code = self.code
        for operand, chosen in self.read_parts:

            def reads(block: int, operand: int = operand) -> None:
                always = self.pair | ~self.pair
                self.after_writes(self.part(operand, block), False, always)

            with code.when(chosen):
                self.each_block(reads)

        def writes(block: int) -> None:
            part = self.part(tensors.D, block)
            self.after_writes(part, True, self.enabled)
            self.after_reads(part)

        self.each_block(writes)

    def keep(self, lane: Value) -> dict[str, Value]:
        """Record it."""
        code, watch = self.code, self.watch
        watch.issued[0] = watch.issued[0] + 1
        words = self.words(lane, QUEUE) | {"m": self.m, "n": self.n}

        def formed(record: Raw) -> None:
            start, size = at.offset(at.ACCESS, "form"), at.REGION.itemsize

            def one(block: int) -> None:
                self.part(tensors.D, block).write(record, start + block * size)

            self.each_block(one)

        for operand, chosen in self.read_parts:

            def listed(block: int, operand: int = operand) -> None:
                self.read(self.part(operand, block), words)

            with code.when(chosen):
                self.each_block(listed)
        formed(self.wrote(words))
        self.each_block(lambda block: self.mark(self.part(tensors.D, block)))
        return words


def _issue(seen: Seen) -> Value:
    """A thread is about to issue a product: whether nothing is wrong."""
    code, watch = seen.code, _Watch(seen)
    row = _spare(seen)
    row_now(seen.clocks, seen.lanes, row)
    product = _Product(watch, row)
    group = watch.word(at.WATCH_GROUP)[0]
    product.refuse((group != 0) & (group != product.group))
    for each in (at.WATCH_WRITES, at.WATCH_READS):
        product.refuse(~watch.has_room(each))
    with code.when(product.fine):
        product.compare()
    return convert(product.fine, I32, signed=False)


def _issued(seen: Seen) -> None:
    """A product is in flight: it reads and writes from now on."""
    code, watch = seen.code, _Watch(seen)
    row = _spare(seen)
    product = _Product(watch, row)
    group = watch.word(at.WATCH_GROUP)
    with code.when(group[0] == 0):
        group[0] = product.group
        watch.word(at.WATCH_GROUP_SITE)[0] = seen.site
    lane = first_lane(seen.lanes)
    words = product.keep(lane)
    agent, epoch = words["agent"], words["epoch"]
    seen.note("tensor", seen.lanes, agent, epoch)
    row_now(seen.clocks, seen.lanes, row)

    def read(operand: int) -> None:
        def one(block: int) -> None:
            _touch(seen, product, operand, block, (agent, epoch, lane), row)

        product.each_block(one)

    with code.when(~product.in_cells):
        read(tensors.A)
    read(tensors.B)


def _touch(
    seen: Seen,
    product: _Product,
    operand: int,
    block: int,
    who: tuple[Value, Value, Value],
    clock: Memory,
) -> None:
    """A product reads the shared memory of a block."""
    code, b = seen.code, seen.code.builder
    place = tensors.PRODUCT_PLACES + 8 * operand
    source = b.inttoptr(field(code, product.record, place, I64)[0].raw, POINTER)
    ranges = pointer_at(code, source, tensors.SOURCE_READS)
    count = field(code, source, tensors.SOURCE_READS_COUNT, I64)[0]
    at_rank = convert(product.block(block), I64) * layout.HEAD_BYTES
    head = b.gep(seen.head.pointer(layout.HEAD_FIRST), [at_rank.raw])
    touch = declared(b.module, shared_memory.TOUCH.name, shared_memory.TOUCHES)
    kind = ir.Constant(I32, layout.READS | shared_memory.ASYNC)
    agent, epoch, lane = who
    watch = product.watch
    boxes.look(
        code,
        head,
        b.ptrtoint(source, I64),
        field(code, source, tensors.SOURCE_WORD, I64)[0].raw,
        seen.site.raw,
        (lane << 24 | watch.rank << 16 | watch.number).raw,
    )
    with code.loop(count) as number:
        one = b.gep(ranges, [(number * tensors.RANGE_BYTES).raw])
        b.call(
            touch,
            [
                head,
                pointer_at(code, one, tensors.RANGE_STARTS),
                field(code, one, tensors.RANGE_COUNT, I64)[0].raw,
                convert(field(code, one, tensors.RANGE_SIZE, I64)[0], I32).raw,
                kind,
                agent.raw,
                epoch.raw,
                lane.raw,
                seen.site.raw,
                b.bitcast(clock.raw, POINTER),
                ir.Constant(I32, 0),
            ],
        )


# ── commits ─────────────────────────────────────────────────────────────────


def _room(seen: Seen) -> Value:
    """Whether a commit can be noted."""
    return convert(_Watch(seen).has_room(at.WATCH_COMMITS), I32, signed=False)


def _commit(seen: Seen) -> None:
    """A thread commits its work so far: an mbarrier will say when it is done."""
    code, head, watch = seen.code, seen.head, _Watch(seen)
    row, b = task_row(seen), seen.code.builder
    rank = first_lane(seen.word(tasks.TASK_SIGNALS)[0])
    peers = field(code, seen.cluster, units.CLUSTER_PEERS, POINTER)
    records = pointer_at(code, peers[convert(rank, I64)].raw, units.STATE_MBARRIERS)
    offset = convert(seen.word(tasks.TASK_MBARRIER)[0], I64)
    mbarrier = b.gep(records, [(offset * (units.MBARRIER_BYTES // 8)).raw])
    mark_used(code, head, mbarrier)
    agent, period = watch.agent(_KINDS[QUEUE]), watch.period(QUEUE)
    clear(code, head, row)
    publish(seen.clocks, seen.lanes, seen.live, row)
    before = period[0]
    period[0] = before + 1
    with code.loop(head.planes) as plane:
        part = Memory(b, b.gep(row.raw, [(plane * 3 * head.row).raw]), I32)
        never = code.constant(0, I32) != 0
        know(part, head.row, agent, before + 1, seen.lanes, never)
    count = watch.long(at.WATCH_COMMITS_COUNT)
    record = watch.row(at.WATCH_COMMITS, count[0], at.COMMIT)
    lane = first_lane(seen.lanes)
    place = field(code, mbarrier, units.MBARRIER_PLACE, I32)[0]
    for name, word in (
        ("agent", agent),
        ("lane", lane),
        ("epoch", before),
        ("place", place),
    ):
        field(code, record, at.offset(at.COMMIT, name), I32)[0] = word
    phase = field(code, mbarrier, units.MBARRIER_PHASE, I64)[0]
    field(code, record, at.offset(at.COMMIT, "phase"), I64)[0] = phase
    count[0] = count[0] + 1
    seen.note("commit", seen.lanes, agent, before, place, phase)
    with code.when(seen.number == 0):
        idle = field(code, pointer_at(code, watch.raw, at.WATCH_IDLE), 0, I32)
        idle[convert(watch.rank, I64)] = watch.number * 32 + lane + 1


ROUTINES = {
    units.PORT_MOVE: observing("watch.port.move", _move),
    units.PORT_MOVED: observing("watch.port.moved", _moved),
    units.PORT_TENSOR: observing("watch.port.tensor", _issue),
    units.PORT_TENSOR_ISSUED: observing("watch.port.tensor_issued", _issued),
    units.PORT_COMMIT_ROOM: observing("watch.port.commit_room", _room),
    units.PORT_COMMIT: observing("watch.port.commit", _commit),
    units.PORT_TENSOR_FENCE: observing("watch.port.tensor_fence", _fence),
}
"""What answers the calls of the port."""
LINKED = (shared_memory.TOUCH, *shared_memory.SUPPORT, boxes.LOOK)
"""Routines that these call."""
