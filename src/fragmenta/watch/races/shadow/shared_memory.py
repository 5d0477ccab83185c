"""Routines that check accesses of shared memory, in compiled code.

``watched`` makes a routine that is called just before a load or a store.  If the lanes
access words side by side that were accessed in one way before, one check does for all.
Otherwise each lane is checked alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw, Type
from fragmenta.base.jit.trace import (
    I1,
    I8,
    I32,
    I64,
    Code,
    Memory,
    Value,
    compare_unsigned,
    convert,
    intrinsic,
    ones,
    select,
    shift_unsigned,
    smaller,
)
from fragmenta.engine.simt import layout as engine
from fragmenta.engine.simt import memory
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.library import POINTER, Routine, define, field, pointer_at
from fragmenta.engine.simt.warps import P, first_lane, routine, to_word
from fragmenta.engine.units.fast.step import declared
from fragmenta.watch.races.shadow import fast_line, fast_word, layout
from fragmenta.watch.races.shadow.barrier_clocks import watching
from fragmenta.watch.races.shadow.collection import COLLECT, make_room
from fragmenta.watch.races.shadow.layout import KINDS, Lanes
from fragmenta.watch.races.shadow.order import (
    BlockHead,
    Plane,
    WarpClocks,
    warp_at,
    warp_of,
)
from fragmenta.watch.races.shadow.problem_table import REPORT
from fragmenta.watch.races.shadow.readers import ADDED, each_reader, is_set
from fragmenta.watch.races.shadow.shared_check import (
    BESIDE,
    OTHER,
    SAME,
    Now,
    SharedWord,
    check,
    settled,
    shadow,
)
from fragmenta.watch.races.shadow.shared_records import Viewer, kept_epoch, kept_site

OFFSET = (1 << 24) - 1
"""The bits of a shared address that are not the rank."""
UNIT = 4
"""Words of shared memory that copies and products access together."""
ASYNC = 8
"""With the bits of a kind of access: it uses the async proxy."""


def _target(code: Code, head: BlockHead, rank: Value) -> BlockHead:
    """The head of another block of the cluster."""
    b = code.builder
    step = convert(rank, I64) * layout.HEAD_BYTES
    return BlockHead(code, b.gep(head.pointer(layout.HEAD_FIRST), [step.raw]))


def _word(
    code: Code,
    parts: tuple[Memory, Memory],
    rank: Value,
    at: Value,
    begin: Value,
    end: Value,
) -> SharedWord:
    """The word at an offset, of an access from ``begin`` to ``end``."""
    zero = convert(at, I32).lift(0)
    low = convert(begin - at, I32)
    low = select(low > 0, low, zero)
    high = smaller(convert(end - at, I32), 4)
    mask = ((zero + 1) << high) - ((zero + 1) << low)
    address = convert(at, I32) | (rank << 24)
    return SharedWord(*parts, shift_unsigned(at, 2), mask, address)


# ── one lane ────────────────────────────────────────────────────────────────


def _lane(
    code: Code,
    head_at: Raw,
    block: Raw,
    number: Value,
    lanes: Value,
    address: Value,
    size: Value,
    kind: Value,
    site: Value,
    values: Raw,
) -> None:
    head = BlockHead(code, head_at)
    rank = convert(shift_unsigned(address, 24), I32)
    begin = address & OFFSET
    end = begin + convert(size, I64)
    good = compare_unsigned("<", address, 1 << 32)
    good = good & (rank < head.word(layout.HEAD_BLOCKS))
    with code.when(good):
        target = _target(code, head, rank)
        with code.when(end <= target.long(layout.HEAD_SIZE)):
            now = _now(code, head, number, lanes, kind, site)
            parts = shadow(code, target)
            local: Value = rank == head.word(layout.HEAD_RANK)
            with code.loop(end, begin & -4, 4) as at:
                word = _word(code, parts, rank, at, begin, end)

                def equal(at: Value = at, word: SharedWord = word) -> Value:
                    lane = convert(now.lane, I64)
                    given = (values, lane, address, at, begin, word.mask)
                    return _equal(code, block, local, *given)

                check(code, head, now, word, equal)


def _now(
    code: Code, head: BlockHead, number: Value, lanes: Value, kind: Value, site: Value
) -> Now:
    """An access by lanes of a warp."""
    warp = warp_at(code, head, number)
    known = warp.plane_of_all(lanes)
    several = ones(lanes) > 1
    own = select(several, lanes.lift(0), lanes)
    plain = select(several, lanes.lift(int(Lanes.SEVERAL)), int(Lanes.ONE))
    narrow = (kind & layout.NARROW) != 0
    one = select(narrow, lanes.lift(int(Lanes.STRONG_BLOCK)), int(Lanes.STRONG_ONE))
    strong = select(several, lanes.lift(int(Lanes.STRONG_ANY)), one)
    copy = (kind & layout.COPY) != 0
    agent, epoch = _copier(code, head, warp, number, copy)
    return Now(
        Viewer(known, warp.agent, own, warp.copier, warp.waited),
        None,
        agent,
        kept_epoch(epoch),
        first_lane(lanes) & (LANES - 1),
        select((kind & layout.STRONG) != 0, strong, plain),
        kept_site(site),
        kind & (7 | layout.VOLATILE),
        code.constant(0, I1),
    )


def _copier(
    code: Code, head: BlockHead, warp: WarpClocks, number: Value, copy: Value
) -> tuple[Value, Value]:
    """Who accesses, and when: the warp, or its ``cp.async``."""
    first = head.word(layout.HEAD_KINDS + 4)
    warps, rank = head.word(layout.HEAD_WARPS), head.word(layout.HEAD_RANK)
    epoch = field(code, warp.state, layout.STATE_COPY_EPOCH, I32)[0]
    issued = field(code, warp.state, layout.STATE_COPIES, I32)
    issued[0] = select(copy, issued[0].lift(1), issued[0])
    agent = select(copy, first + rank * warps + number, warp.agent)
    return agent, select(copy, epoch, warp.epoch[0])


def _equal(
    code: Code,
    block: Raw,
    local: Value,
    values: Raw,
    lane: Value,
    address: Value,
    at: Value,
    begin: Value,
    mask: Value,
) -> Value:
    """Whether a lane writes bytes of a word that leave it as it is: ``SAME``.

    If lanes before it write there by the same instruction, it is compared with them;
    else with what is in shared memory, if that is the block's own.
    """
    b = code.builder
    same = code.variable(mask.lift(OTHER))
    with b.if_then(b.icmp_unsigned("!=", values, values.type(None))):
        written = _Written(code, values)
        memory_at = pointer_at(code, block, engine.BLOCK_SHARED)
        first = code.variable(mask.lift(1))
        same.value = mask.lift(SAME)

        def compare(old: Callable[[Value, Value], Value], other: int) -> None:
            with (
                code.loop(4) as byte,
                code.when(((mask >> convert(byte, I32)) & 1) != 0),
            ):
                index = at + byte - begin
                new = written.byte(lane, index)
                same.value = select(new == old(at + byte, index), same.value, other)

        with code.loop(lane) as other, code.when(written.is_at(other, address)):
            first.value = mask.lift(0)
            compare(lambda _, index: written.byte(other, index), BESIDE)
        with code.when((first.value != 0) & local):
            compare(
                lambda place, _: Value(b, b.load(b.gep(memory_at, [place.raw]))), OTHER
            )
        with code.when((first.value != 0) & ~local):
            same.value = mask.lift(OTHER)
    return same.value


class _Written:
    """What the lanes write by one instruction, and where."""

    def __init__(self, code: Code, values: Raw) -> None:
        self._code = code
        self._element = convert(field(code, values, 0, I32)[0], I64)
        self._register = convert(field(code, values, 4, I32)[0], I64)
        self._lanes = field(code, values, 8, I32)[0]
        self._addresses = self._pointer(field(code, values, 16, I64)[0], I64)
        self._places = field(code, values, 24, I64)

    def _pointer(self, at: Value, of: Type) -> Raw:
        return self._code.builder.inttoptr(at.raw, of.as_pointer())

    def is_at(self, lane: Value, address: Value) -> Value:
        """Whether a lane takes part and writes to this address."""
        there: Value = memory.lane_of(self._code, self._addresses, lane) == address
        found: Value = there & memory.has(self._lanes, lane)
        return found

    def byte(self, lane: Value, index: Value) -> Value:
        """A byte of what a lane writes."""
        base = self._pointer(self._places[index // self._element], I8)
        step = lane * self._register + index % self._element
        return memory.lane_of(self._code, base, step)


LANE = routine("watch.lane", _lane, [P, P, I32, I32, I64, I32, I32, I32, P], None)
"""Checks one access by one lane, or a read of several lanes: the head of the watched
block, block, number of the warp, lanes, address, bytes, bits of the kind, site, values.
"""


def _build(module: ir.Module) -> None:
    """The functions that ``watched`` calls; those that others call come first."""
    for each in (ADDED, COLLECT, LANE):
        each.build(module)


_OTHERS = "watch.added", "watch.collect", "watch.lane"
SUPPORT = (Routine("watch.shared", _build, _OTHERS), REPORT)
"""Routines that must be linked wherever ``watched`` or ``check_lane`` is used."""


def check_lane(
    code: Code,
    head: BlockHead,
    block: Raw,
    warp: Raw,
    lanes: Value,
    address: Value,
    size: int,
    kind: str,
    site: Value,
    values: Raw | None = None,
) -> None:
    """Check an access by one lane, or a read of several, of a shared address.

    ``lanes`` is a mask, ``address`` has 64 bits: the rank from bit 24 up, without the
    window of generic addresses.
    """
    number = field(code, warp, engine.WARP_NUMBER, I32)[0]
    _call_lane(code, head, block, number, lanes, address, size, kind, site, values)


def _call_lane(
    code: Code,
    head: BlockHead,
    block: Raw,
    number: Value,
    lanes: Value,
    address: Value,
    size: int,
    kind: str,
    site: Value,
    values: Raw | None,
) -> None:
    b = code.builder
    function = b.module.globals.get(LANE.name)
    if function is None:
        kinds = [P, P, I32, I32, I64, I32, I32, I32, P]
        void = ir.VoidType()
        function = ir.Function(b.module, ir.FunctionType(void, kinds), LANE.name)
    given = [
        head.raw,
        block,
        number.raw,
        lanes.raw,
        address.raw,
        ir.Constant(I32, size),
        ir.Constant(I32, KINDS[kind]),
        site.raw,
        POINTER(None) if values is None else values,
    ]
    b.call(function, given)


# ── a warp ──────────────────────────────────────────────────────────────────


@cache
def watched(access: memory.AccessForm, kind: str, raced: bool = False) -> Routine:
    """The routine that checks an access of shared memory, just before it happens.

    ``kind`` is one of ``layout.KINDS``.  It has the parameters of the routine of the
    access, without the registers unless it is a store, and returns nothing.
    :data:`SUPPORT` must be linked, too.  With ``raced``, the reads of some lanes are
    left out, as :meth:`WarpClocks.ignored` says.
    """
    stores = kind.endswith("write")
    access = access if stores else access.bare
    name = f"watch.{kind.replace(' ', '.')}.{access.name}{'.raced' * raced}"

    def trace(
        code: Code,
        warp: Raw,
        block: Raw,
        register: Raw,
        offset: Value,
        lanes: Value,
        site: Value,
        *registers: Raw,
    ) -> None:
        def check(head: BlockHead) -> None:
            some = lanes & ~warp_of(code, head, warp).ignored if raced else lanes
            place = register, offset, some, site
            _warp(code, access, kind, head, warp, block, *place, *registers)

        watching(code, block, check)

    def build(module: ir.Module) -> None:
        registers = [POINTER] * access.elements if stores else []
        given = [POINTER, POINTER, POINTER, I64, I32, I32, *registers]
        define(module, name, given, trace)

    return Routine(name, build)


def _warp(
    code: Code,
    access: memory.AccessForm,
    kind: str,
    head: BlockHead,
    warp: Raw,
    block: Raw,
    register: Raw,
    offset: Value,
    lanes: Value,
    site: Value,
    *registers: Raw,
) -> None:
    make_room(code, head)
    at = memory.addresses(code, register, access.address, offset)
    spilled = memory.spill(code, at)
    first = convert(first_lane(lanes), I64, signed=False) & (LANES - 1)
    one = memory.lane_of(code, spilled, first)
    number = field(code, warp, engine.WARP_NUMBER, I32)[0]
    values = None
    if kind == "write":
        values = _values(code, access, registers, lanes, spilled)
    left = code.variable(lanes)

    def slow(some: Value, address: Value) -> None:
        size = access.bytes
        _call_lane(code, head, block, number, some, address, size, kind, site, values)

    alone = (lanes & (lanes - 1)) == 0
    if kind == "read":
        alone = alone | ((~to_word(at == at.lift(one)) & lanes) == 0)
    with code.when(alone & (lanes != 0)):
        slow(lanes, one)
        left.value = lanes.lift(0)
    if kind in ("read", "write"):
        clocks = warp_of(code, head, warp)
        with code.when(left.value != 0):
            line = fast_line.WarpLine(
                code, head, clocks, access.bytes, kind, lanes, first, one, site
            )
            step = ir.Constant(memory.WIDE, [access.bytes * i for i in range(LANES)])
            ideal = at.lift(line.start) + Value(code.builder, step)
            straight = (~to_word(at == ideal) & lanes) == 0
            with code.when(straight & line.fits()):
                left.value = select(line.done(), lanes.lift(0), lanes)
        with code.when(left.value != 0):
            fast = fast_word.quick(
                code, head, clocks, access.bytes, kind == "write", site
            )
            _lanes(code, access, kind, fast, lanes, spilled, slow)
    else:
        with code.when(left.value != 0), code.loop(LANES) as lane:
            bit = lanes.lift(1) << convert(lane, I32)
            with code.when((lanes & bit) != 0):
                slow(bit, memory.lane_of(code, spilled, lane))


def _lanes(
    code: Code,
    access: memory.AccessForm,
    kind: str,
    fast: fast_word.Quick,
    lanes: Value,
    spilled: Raw,
    slow: Callable[[Value, Value], None],
) -> None:
    """Check lanes one by one, but lanes side by side that read the same together."""
    group = code.variable(lanes.lift(0))
    # The loop looks at the lane after the last, too; it never takes part.
    following = code.array(I64, LANES + 1)
    b = code.builder
    wide = b.bitcast(following, memory.WIDE.as_pointer())
    b.store(b.load(b.bitcast(spilled, memory.WIDE.as_pointer())), wide)
    with code.loop(LANES) as lane, code.when(memory.has(lanes, lane)):
        address = memory.lane_of(code, following, lane)
        bit = lanes.lift(1) << convert(lane, I32)
        group.value = group.value | bit
        ends = code.variable(lanes.lift(1))
        if kind == "read":
            later = (lanes & (bit << 1)) != 0
            same = memory.lane_of(code, following, lane + 1) == address
            ends.value = convert(~(later & same), I32, signed=False)
        with code.when(ends.value != 0):
            several = group.value != bit
            with code.when(~fast.done(lane, several, address)):
                slow(group.value, address)
            group.value = lanes.lift(0)


def _values(
    code: Code,
    access: memory.AccessForm,
    registers: tuple[Raw, ...],
    lanes: Value,
    spilled: Raw,
) -> Raw:
    """What lanes write, and where: sizes, lanes, addresses, then registers."""
    b = code.builder
    kept = b.bitcast(code.array(I64, 3 + access.elements), POINTER)
    sizes = code.constant(access.bits // 8, I32)
    field(code, kept, 0, I32)[0] = sizes
    field(code, kept, 4, I32)[0] = sizes.lift(access.register // 8)
    field(code, kept, 8, I32)[0] = lanes
    for index, each in enumerate((spilled, *registers)):
        field(code, kept, 16 + 8 * index, I64)[0] = Value(b, b.ptrtoint(each, I64))
    return kept


# ── other agents ────────────────────────────────────────────────────────────


def _touch(
    code: Code,
    head_at: Raw,
    starts: Raw,
    count: Value,
    size: Value,
    kind: Value,
    agent: Value,
    epoch: Value,
    lane: Value,
    site: Value,
    clock: Raw,
    added: Value,
) -> None:
    """An agent that is not a warp accesses bytes at each of several offsets."""
    b = code.builder
    head = BlockHead(code, head_at)
    make_room(code, head)
    row = field(code, clock, 0, I32)
    # Without clocks of the async proxy, this reads the first plane again.
    two = (head.planes > 1) & ((kind & ASYNC) != 0)
    step = select(two, head.row * 3, 0)
    second = Memory(b, b.gep(row.raw, [step.raw]), I32)
    no_agent = agent.lift(-1)
    planes = [Plane(each, head.row) for each in (row, second)]
    views = [Viewer(each, no_agent, agent.lift(0)) for each in planes]
    now = Now(
        views[0],
        views[1],
        agent,
        kept_epoch(epoch),
        lane,
        lane.lift(int(Lanes.ONE)),
        kept_site(site),
        kind & 7,
        two,
    )
    offsets = field(code, starts, 0, I32)
    memo = _Memo(code, head, now)
    with code.loop(count) as index:
        begin = convert(offsets[index] + added, I64, signed=False)
        end = begin + convert(size, I64)
        with code.when(end <= head.long(layout.HEAD_SIZE)):
            _range(code, head, now, memo, begin, end)


def _range(
    code: Code, head: BlockHead, now: Now, memo: _Memo, begin: Value, end: Value
) -> None:
    """Bytes side by side: units of whole words at once where they are alike."""
    parts = shadow(code, head)
    whole = ((begin | end) & (4 * UNIT - 1)) == 0
    with code.when(whole), code.loop(end, begin, 4 * UNIT) as at:
        unit = _unit(code, parts, shift_unsigned(at, 2))
        again = memo.fits_all(unit)
        with code.when(again):
            memo.repeat_all(unit)
        with code.when(~again):
            _words(code, head, now, memo, at, at + 4 * UNIT)
    with code.when(~whole):
        _words(code, head, now, memo, begin, end)


def _unit(code: Code, parts: tuple[Memory, Memory], first: Value) -> list[Memory]:
    """The records of the words of a unit."""
    b = code.builder
    return [Memory(b, b.gep(each.raw, [first.raw]), I64) for each in parts]


def _words(
    code: Code, head: BlockHead, now: Now, memo: _Memo, begin: Value, end: Value
) -> None:
    """Bytes side by side, word by word."""
    parts = shadow(code, head)
    rank = head.word(layout.HEAD_RANK)
    with code.loop(end, begin & -4, 4) as at:
        word = _word(code, parts, rank, at, begin, end)
        before = word.writes[word.number], word.reads[word.number]
        again = memo.fits(before) & (word.mask == 15)
        with code.when(again):
            memo.repeat(word)
        with code.when(~again):
            check(code, head, now, word, None)
            memo.keep(word, before)


class _Memo:
    """What was done for the last word: most words of a tile are alike.

    Only accesses that are known for all lanes are remembered.
    """

    def __init__(self, code: Code, head: BlockHead, now: Now) -> None:
        self.code, self.head, self.now = code, head, now
        none = code.constant(-1, I64)
        self.before = [code.variable(none) for _ in range(2)]
        self.after = [code.variable(none) for _ in range(2)]

    def _shape(self, write: Value) -> Value:
        """A write without its site and its lane."""
        return write & ~(
            write.lift(layout.LANE_FIELD) | (write.lift(-1) << layout.SITE_AT)
        )

    def fits(self, records: tuple[Value, Value]) -> Value:
        """Whether a word is like the last one."""
        write, reads = records
        alike: Value = self._shape(write) == self.before[0].value
        return alike & compare_unsigned("==", reads, self.before[1].value)

    def fits_all(self, unit: list[Memory]) -> Value:
        """Whether all words of a unit are like the last one."""
        write, reads = (each.lanes(0, UNIT) for each in unit)
        other = self._shape(write) ^ write.lift(self.before[0].value)
        other = other | (reads ^ reads.lift(self.before[1].value))
        b = self.code.builder
        name = f"llvm.vector.reduce.or.v{UNIT}i64"
        nothing: Value = Value(b, intrinsic(b, name, I64, [other.raw])) == 0
        return nothing

    def repeat_all(self, unit: list[Memory]) -> None:
        """Do the same for all words of a unit."""
        like = unit[0].lanes(0, UNIT)
        with self.code.when(self.now.has(layout.WRITES)):
            unit[0][0] = like.lift(self.after[0].value)
        unit[1][0] = like.lift(self.after[1].value)

    def repeat(self, word: SharedWord) -> None:
        """Do the same again."""
        with self.code.when(self.now.has(layout.WRITES)):
            word.writes[word.number] = self.after[0].value
        word.reads[word.number] = self.after[1].value

    def _quiet(self, reads: Value) -> Value:
        """Whether all reads before are known; with strict rules, through a fence."""
        code, now = self.code, self.now
        lenient: Value = self.head.word(layout.HEAD_STRICT) == 0

        def seen(record: Value) -> Value:
            fenced = settled(now.fenced or now.viewer, record)
            return settled(now.viewer, record) & (lenient | fenced)

        plain = (reads == 0) | seen(reads)
        found = code.variable(convert(plain, I32, signed=False))
        with code.when(is_set(reads) & now.has(layout.WRITES)):
            found.value = found.value.lift(1)

            def visit(entry: Value) -> None:
                found.value = select(seen(entry), found.value, 0)

            each_reader(code, self.head, reads, visit)
        quiet: Value = found.value != 0
        return quiet

    def keep(self, word: SharedWord, records: tuple[Value, Value]) -> None:
        """Remember what was done, if it was in order."""
        write, reads = records
        now = self.now
        fenced = now.fenced or now.viewer
        fine = settled(now.viewer, write) & settled(fenced, write)
        ever = (write & layout.EVER_FIELD) == layout.EVER_FIELD
        fine = (fine & ever & ((write & layout.MASK_FIELD) != 0)) | (
            (write == 0) & now.has(layout.WRITES)
        )
        fine = fine & (word.mask == 15)
        fine = fine & (~now.has(layout.WRITES) | self._quiet(reads))
        none = write.lift(-1)
        self.before[0].value = select(fine, self._shape(write), none)
        self.before[1].value = reads
        self.after[0].value = word.writes[word.number]
        self.after[1].value = word.reads[word.number]


TOUCH = routine(
    "watch.touch", _touch, [P, P, I64, I32, I32, I32, I32, I32, I32, P, I32], None
)
"""The head of a block, offsets, how many, bytes of each, bits of the kind, agent,
epoch, lane, site, clock, and what is added to each offset."""
TOUCHES = ir.FunctionType(
    ir.VoidType(),
    [POINTER, POINTER, I64, I32, I32, I32, I32, I32, I32, POINTER, I32],
)
"""The type of :data:`TOUCH`."""


def touch(
    code: Code,
    head: Raw,
    start: Value,
    size: Value,
    kind: int,
    by: tuple[Value, Value, Value, Value],
    clock: Memory,
) -> None:
    """Write a call of :data:`TOUCH` for bytes side by side, of one block.

    ``by`` are the agent, its epoch, the lane and the site.
    """
    b, starts = code.builder, code.array(I32, 1)
    b.store(start.raw, starts)
    b.call(
        declared(b.module, TOUCH.name, TOUCHES),
        [
            head,
            b.bitcast(starts, POINTER),
            ir.Constant(I64, 1),
            size.raw,
            ir.Constant(I32, kind),
            *(each.raw for each in by),
            b.bitcast(clock.raw, POINTER),
            ir.Constant(I32, 0),
        ],
    )
