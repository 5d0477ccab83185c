"""Routines that check accesses of global memory, in compiled code.

A routine is called just before a load, a store or an atomic operation, for the same
lanes.  It compares the lanes with the records of the words that they access, notes
problems, and leaves records of its own.  Usually the words of a warp are side by side
and all were accessed last by the same instruction: then one look at the table of
accesses is enough.
"""

from __future__ import annotations

from typing import NamedTuple

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import (
    I8,
    I32,
    I64,
    Code,
    Value,
    Variable,
    compare_unsigned,
    convert,
    intrinsic,
    select,
    shift_unsigned,
)
from fragmenta.engine.simt import layout
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.library import (
    POINTER,
    Routine,
    define,
    field,
    pointer_at,
)
from fragmenta.engine.simt.memory import (
    AccessForm,
    AddressRange,
    addresses,
    has,
    inside,
    lane_of,
    pointer,
    segment,
    spill,
)
from fragmenta.engine.simt.warps import first_lane, to_word
from fragmenta.ptx.ordering import Scope
from fragmenta.watch.races.shadow import global_check, global_records
from fragmenta.watch.races.shadow.detected import Detected
from fragmenta.watch.races.shadow.global_check import composite
from fragmenta.watch.races.shadow.global_records import (
    ID_SHIFT,
    MASK_BITS,
    PAIR,
    QUAD,
    SCOPES,
    WORD,
    Flags,
)
from fragmenta.watch.races.shadow.problem_table import REPORT

_FLAGS = {
    "read": Flags(0),
    "write": Flags.WRITE,
    "atomic": Flags.WRITE | Flags.STRONG | Flags.ATOMIC,
    "strong read": Flags.STRONG,
    "strong write": Flags.WRITE | Flags.STRONG,
}
_INTEGERS = {8: I8, 16: ir.IntType(16), 32: I32, 64: I64}


class _Site(NamedTuple):
    """One execution of an instruction, and what all its lanes need."""

    code: Code
    access: AccessForm
    flags: Flags
    warp: Raw
    block: Raw
    ledger: Raw
    lanes: Value
    number: Value
    """The site."""
    own: Value
    """The id of this access."""
    spilled: Raw
    """The lanes' addresses."""
    registers: tuple[Raw, ...]
    constant: bool
    """Whether it is a load of what nobody may write: ``ld.global.nc``."""

    def call(self, name: str, *given: Value) -> Value:
        """Call one of the functions of :mod:`global_check`."""
        b = self.code.builder
        function = b.module.globals[global_check.called(name)]
        rest = [each.raw for each in given]
        called = b.call(function, [self.warp, self.block, self.ledger, *rest])
        return Value(b, called)


class _Shadow(NamedTuple):
    """The shadows of a segment, as host addresses; 0 where there is none."""

    writes: Value
    reads: Value
    unwritten: Value
    plain: Value


def watched_global(
    access: AccessForm, kind: str, *, scope: Scope = Scope.GPU, constant: bool = False
) -> Routine:
    """The routine that checks an access; it returns nothing.

    ``kind`` is a key of ``layout.KINDS``, but not ``cp.async``.  ``constant``: it is a
    load of what no thread of the launch may write.

    It takes what the routine of the access takes, without the registers unless it is a
    store.  ``scope`` counts if it is strong.  Lanes whose address is not in a segment
    that can be written are left out.  :data:`GLOBAL_SUPPORT` must be linked, too.
    """
    stores = kind.endswith("write")
    access = access if stores else access.bare
    flags = _FLAGS[kind]
    narrow = SCOPES.get(scope) if flags & Flags.STRONG else None
    flags |= narrow or Flags(0)
    word = ".nc" if constant else "" if narrow is None else scope.word
    name = f"watch.{kind.replace(' ', '.')}{word}.{access.name}"

    def trace(
        code: Code,
        warp: Raw,
        block: Raw,
        register: Raw,
        offset: Value,
        lanes: Value,
        number: Value,
        *registers: Raw,
    ) -> None:
        ledger = pointer_at(code, block, layout.BLOCK_GLOBAL_WATCH)
        there = Value(code.builder, code.builder.ptrtoint(ledger, I64)) != 0
        place = register, offset, lanes, number
        with code.when(there & (lanes != 0)):
            _watch(
                code,
                access,
                flags,
                constant,
                warp,
                block,
                ledger,
                *place,
                *registers,
            )

    def build(module: ir.Module) -> None:
        global_check.declare(module)
        registers = [POINTER] * access.elements if stores else []
        parameters = [POINTER, POINTER, POINTER, I64, I32, I32]
        define(module, name, [*parameters, *registers], trace)

    return Routine(name, build)


GLOBAL_SUPPORT = (global_check.CHECKS, REPORT)
"""Routines that must be linked wherever ``watched_global`` is used."""


def _watch(
    code: Code,
    access: AccessForm,
    flags: Flags,
    constant: bool,
    warp: Raw,
    block: Raw,
    ledger: Raw,
    register: Raw,
    offset: Value,
    lanes: Value,
    number: Value,
    *registers: Raw,
) -> None:
    at = addresses(code, register, access.address, offset)
    spilled = spill(code, at)
    first = convert(first_lane(lanes), I64, signed=False) & (LANES - 1)
    one = lane_of(code, spilled, first)
    where = segment(code, block, one)
    shadow = _shadow(code, ledger, one)
    good = inside(where, at, access.bytes) & ((at & (access.bytes - 1)) == 0)
    together = (~to_word(good) & lanes) == 0
    # Memory that cannot be written needs no look.
    with code.when(~(together & (shadow.writes == 0))):
        site = _Site(
            code,
            access,
            flags,
            warp,
            block,
            ledger,
            lanes,
            number,
            number,
            spilled,
            registers,
            constant,
        )
        own = site.call("intern", number, number.lift(int(flags)))
        site = site._replace(own=own)
        with code.when(own != 0):
            done = code.variable(code.constant(0, I32))
            step = ir.VectorType(I64, LANES)
            numbers = ir.Constant(step, [access.bytes * i for i in range(LANES)])
            line = at == at.lift(one) + Value(code.builder, numbers)
            aligned = (one & (WORD - 1)) == 0
            dense = (to_word(line) == -1) & (lanes == -1) & together & aligned
            with code.when(dense & (shadow.unwritten == 0)):
                _dense(site, shadow, where, one, done)
            with (
                code.when(done.value == 0),
                code.loop(LANES) as lane,
                code.when(has(lanes, lane)),
            ):
                _lane(site, lane)


def _shadow(code: Code, ledger: Raw, address: Value) -> _Shadow:
    """The shadows of the segment of an address."""
    slot = shift_unsigned(address, layout.SLOT_BITS)
    safe = select(compare_unsigned("<", slot, layout.SLOTS), slot, 0)
    table = pointer_at(code, ledger, global_records.SHADOWS)
    entry = code.builder.gep(table, [(safe * global_records.SHADOW_BYTES).raw])
    return _Shadow(*(field(code, entry, 8 * i, I64)[0] for i in range(4)))


# ── words side by side ──────────────────────────────────────────────────────


def _dense(
    site: _Site, shadow: _Shadow, where: AddressRange, one: Value, done: Variable
) -> None:
    """All lanes, side by side: as vectors, if all records have one id."""
    code, size = site.code, site.access.bytes
    start = one - where.start
    count = min(LANES, LANES * size // WORD)
    patterns = list(
        zip(_patterns(size, count, write=True), _patterns(size, count), strict=True)
    )
    fine, known = (code.constant(each, ir.IntType(1)) for each in (1, 0))
    first = shift_unsigned(start, 2)
    before: list[Value] = []
    kept: list[Value] = []
    behind: list[tuple[Value, Value]] = []
    for number, (written, pattern) in enumerate(patterns):
        place = first + count * number
        write = _Records(site, shadow.writes, place, written)
        read = _Records(site, shadow.reads, place, pattern)
        before.append(read.raw)
        fine = fine & (write.empty if site.constant else write.harmless())
        if site.flags & Flags.STRONG:
            plain = _Records(site, shadow.plain, place, written)
            strong = site.call("strong", write.first) != 0
            fine = fine & (~strong | plain.harmless())
            behind.append((strong, write.raw))
        if site.flags & Flags.WRITE:
            fine = fine & read.harmless()
            known = known | ~read.empty
        else:
            good, new = read.after_read()
            fine = fine & good
            kept.append(new)
    with code.when(fine):
        done.value = code.constant(1, I32)
        if site.flags & Flags.ATOMIC:
            _updated(site, known)
        for number, (written, _) in enumerate(patterns):
            place = first + count * number
            if site.flags & Flags.WRITE:
                new = (site.own << ID_SHIFT).in_all_lanes(count) | constants(
                    code, written
                )
                if site.flags & Flags.STRONG:
                    strong, old = behind[number]
                    with code.when(~strong):
                        _put(code, shadow.plain, place, old)
                _put(code, shadow.writes, place, new)
                _replace(code, shadow.reads, place, before[number], new ^ new)
            else:
                _replace(code, shadow.reads, place, before[number], kept[number])


def _patterns(size: int, count: int, *, write: bool = False) -> list[list[int]]:
    """The lane and the mask of each record, for vectors of words one after the other.

    Of several lanes that read bytes of a word, the last is kept.
    """
    masks = {1: QUAD, 2: PAIR} if write else {1: 0b1000, 2: 0b1100}
    words = [
        ((number * WORD + WORD - 1) // size) << MASK_BITS | masks.get(size, 0b1111)
        for number in range(LANES * size // WORD)
    ]
    return [words[i : i + count] for i in range(0, len(words), count)]


def constants(code: Code, pattern: list[int]) -> Value:
    """A vector of constants."""
    of = ir.VectorType(I32, len(pattern))
    return Value(code.builder, ir.Constant(of, pattern))


def _put(code: Code, base: Value, place: Value, value: Value) -> None:
    b = code.builder
    goal = b.inttoptr((base + place * WORD).raw, value.type.as_pointer())
    b.store(value.raw, goal).align = WORD


def _replace(code: Code, base: Value, place: Value, old: Value, new: Value) -> None:
    """Store records that have changed.

    Many threads read the same words.  A store makes the caches of all other cores fetch
    the line again, also if it changes nothing.
    """
    with code.when(~_none(old ^ new)):
        _put(code, base, place, new)


def _none(value: Value) -> Value:
    """Whether all numbers of a vector are 0."""
    b, of = value.builder, value.type
    name = f"llvm.vector.reduce.or.v{of.count}i32"
    none: Value = Value(b, intrinsic(b, name, I32, [value.raw])) == 0
    return none


class _Records:
    """The records of some words, as a vector."""

    def __init__(
        self, site: _Site, base: Value, place: Value, pattern: list[int]
    ) -> None:
        b = site.code.builder
        self.site, count = site, len(pattern)
        of = ir.VectorType(I32, count)
        loaded = b.load(b.inttoptr((base + place * WORD).raw, of.as_pointer()))
        loaded.align = WORD
        self.raw = Value(b, loaded)
        self.pattern = constants(site.code, pattern)
        self.first = first_of(self.raw)
        self.id = shift_unsigned(self.first, ID_SHIFT)
        """The id of all of them, if they have one id."""
        self.empty = _none(self.raw)
        splat = (self.id << ID_SHIFT).in_all_lanes(count)
        self.match = _none((self.raw ^ self.pattern) ^ splat)
        """Whether every record is of the lane that accesses the word now."""
        self.one = _none((self.raw ^ splat) & ~((1 << ID_SHIFT) - 1))

    def harmless(self) -> Value:
        """Whether all of them are ordered before this access."""
        site, code = self.site, self.site.code
        result = code.variable(convert(self.empty, I32, signed=False))
        with code.when(~self.empty & self.one & (self.first >= 0)):
            result.value = site.call(
                "all_ordered",
                self.id,
                convert(self.match, I32, signed=False),
                site.own,
                site.own.lift(int(site.flags)),
            )
        found: Value = result.value != 0
        return found

    def after_read(self) -> tuple[Value, Value]:
        """Whether the records of reads are simple, and what they are after a read."""
        site, code = self.site, self.site.code
        count = self.raw.type.count
        mine = (site.own << ID_SHIFT).in_all_lanes(count) | self.pattern
        # 0: the new record; 1 and 2: several groups; 3: as before.
        state = code.variable(code.constant(0, I32))
        with code.when(~self.empty & self.one & (self.id != site.own)):
            state.value = site.call(
                "second_read",
                self.id,
                convert(self.match, I32, signed=False),
                site.own.lift(int(site.flags)),
            )
        now = state.value
        # Several groups have read the bytes that both records have.
        shared = self.raw & self.pattern & 0b1111
        several = (now << ID_SHIFT).in_all_lanes(count) | shared
        several = select(shared == 0, mine, several)
        new = select(now == 0, mine, select(now == 3, self.raw, several))
        return self.empty | self.one, new


def first_of(vector: Value) -> Value:
    """The first number of a vector."""
    b = vector.builder
    return Value(b, b.extract_element(vector.raw, ir.Constant(I32, 0)))


# ── one lane ────────────────────────────────────────────────────────────────


def _lane(site: _Site, lane: Value) -> None:
    """One lane, word by word, wherever its address is."""
    code, size = site.code, site.access.bytes
    address = lane_of(code, site.spilled, lane)
    where = segment(code, site.block, address)
    shadow = _shadow(code, site.ledger, address)
    good = inside(where, address, size) & ((address & (size - 1)) == 0)
    with code.when(good & (shadow.writes != 0)):
        start = address - where.start
        mask = code.constant(0b1111, I32)
        if size < WORD:
            shift = convert(start & (WORD - 1), I32)
            mask = code.constant((1 << size) - 1, I32) << shift
        _initialised(site, shadow, where, address, lane)
        first = shift_unsigned(start, 2)
        with code.loop(max(1, size // WORD)) as number:
            _word(site, shadow, where, address, lane, first + number, mask)


def _word(
    site: _Site,
    shadow: _Shadow,
    where: AddressRange,
    address: Value,
    lane: Value,
    place: Value,
    mask: Value,
) -> None:
    b, code = site.code.builder, site.code
    write, read = (
        b.inttoptr((base + place * WORD).raw, I32.as_pointer())
        for base in (shadow.writes, shadow.reads)
    )
    wrote, has_read = Value(b, b.load(write)), Value(b, b.load(read))
    own_lane = convert(lane, I32)
    mine = site.own << ID_SHIFT | own_lane << MASK_BITS | mask
    at = (where.start + place * WORD) - address
    if site.flags & Flags.STRONG:
        _behind(site, shadow, where, address, lane, place, wrote, mask)
    if not site.flags & Flags.WRITE:
        seen = _compare_parts(site, where, address, lane, at, wrote, mask, has_read)
        # The strong read through which this one is ordered is worth more than it.
        state = code.variable(select(seen, code.constant(3, I32), 0))
        before = shift_unsigned(has_read, ID_SHIFT)
        with code.when((has_read != 0) & (before != site.own) & ~seen):
            same = convert(_lane_in(has_read) == own_lane, I32, signed=False)
            state.value = site.call(
                "second_read", before, same, before.lift(int(site.flags))
            )
        now = state.value
        # Several groups have read the bytes that both records have.
        shared = has_read & mask
        several = select(shared == 0, mine, now << ID_SHIFT | shared)
        new = select(now == 0, mine, select(now == 3, has_read, several))
        with code.when(new != has_read):  # see _replace
            b.store(new.raw, read)
        return
    _compare_parts(site, where, address, lane, at, wrote, mask, has_read)
    _compare(site, where, address, lane, at, has_read, mask, Detected.READ_WRITE)
    if site.flags & Flags.ATOMIC:
        _updated(site, has_read != 0)
    if site.access.bytes < WORD:
        mine = site.call("joined", wrote, mine)
    b.store(mine.raw, write)
    rest = has_read & ~mask
    rest = select((rest & 0b1111) == 0, rest.lift(0), rest)
    with code.when(rest != has_read):
        b.store(rest.raw, read)


def _behind(
    site: _Site,
    shadow: _Shadow,
    where: AddressRange,
    address: Value,
    lane: Value,
    place: Value,
    wrote: Value,
    mask: Value,
) -> None:
    """Compare with the plain write before the strong ones; a write may begin these."""
    b, code = site.code.builder, site.code
    plain = b.inttoptr((shadow.plain + place * WORD).raw, I32.as_pointer())
    strong = site.call("strong", wrote) != 0
    with code.when(strong):
        at, record = (where.start + place * WORD) - address, Value(b, b.load(plain))
        _compare_parts(site, where, address, lane, at, record, mask)
    if site.flags & Flags.WRITE:
        with code.when(~strong):
            b.store(wrote.raw, plain)


def _updated(site: _Site, read: Value) -> None:
    """Note that an atomic operation changes a word whose reads it makes forget."""
    code = site.code
    with code.when(read):
        flag = field(code, site.ledger, global_records.UPDATED, I32)
        flag[0] = code.constant(1, I32)


def _lane_in(record: Value) -> Value:
    lane: Value = shift_unsigned(record, MASK_BITS) & (LANES - 1)
    return lane


def _compare_parts(
    site: _Site,
    where: AddressRange,
    address: Value,
    lane: Value,
    at: Value,
    record: Value,
    mask: Value,
    has_read: Value | None = None,
) -> Value:
    """Compare with the last write of a word, or with each writer of its bytes.

    Without ``has_read``, it is not the last write: its value is not there any more.
    """
    code, writes = site.code, site.flags & Flags.WRITE
    case = Detected.WRITE_WRITE if writes else Detected.WRITE_READ
    several = composite(record)
    seen = code.variable(code.constant(0, I32))
    size = min(site.access.bytes, WORD)
    first_byte = convert(at.lift(0) - at if size < WORD else at.lift(0), I32)
    with code.loop(convert(select(several, mask.lift(size), 1), I64)) as number:
        byte = first_byte + convert(number, I32)
        part = code.variable(record)
        with code.when(several):
            found = site.call("part", record, byte)
            # A writer is looked at with the first of its bytes.
            before = (byte.lift(1) << byte) - 1
            part.value = select((found & mask & before) == 0, found, 0)
        given = site, where, address, lane, at, part.value, mask, case, has_read
        alone = convert(_compare(*given), I32, signed=False)
        seen.value = seen.value | alone
    any_seen: Value = seen.value != 0
    return any_seen


def _compare(
    site: _Site,
    where: AddressRange,
    address: Value,
    lane: Value,
    at: Value,
    record: Value,
    mask: Value,
    case: Detected,
    has_read: Value | None = None,
) -> Value:
    """Report an access that is not ordered after the one in a record.

    ``at`` is where the word begins, from the address on.
    ``has_read`` is the record of reads since then, if that is one of a write: who comes
    after a strong read of what was written comes after the write.  The answer is
    whether the access is ordered by that alone.
    """
    code = site.code
    observed = code.variable(code.constant(0, I32))
    before, earlier = shift_unsigned(record, ID_SHIFT), _lane_in(record)
    own_lane = convert(lane, I32)
    same = (before == site.own) & (earlier == own_lane)
    with code.when(((record & mask) != 0) & ~same):
        verdict = site.call(
            "ordered",
            before,
            earlier,
            own_lane,
            site.own,
            before.lift(int(site.flags)),
        )
        unordered = code.variable(verdict)
        if has_read is not None:
            seen = ((record & mask) & ~has_read & 0b1111) == 0
            with code.when((verdict != 1) & seen):
                unordered.value = site.call(
                    "observed",
                    before,
                    shift_unsigned(has_read, ID_SHIFT),
                    _lane_in(has_read),
                    own_lane,
                    verdict,
                )
            late = (verdict != 1) & (unordered.value == 1)
            observed.value = convert(late, I32, signed=False)
        verdict = unordered.value
        with code.when(verdict != 1):
            name = select(
                verdict == 3, verdict.lift(Detected.MIXED), verdict.lift(case)
            )
            found = code.variable(
                select(verdict == 2, verdict.lift(Detected.SCOPE), name)
            )
            last = has_read is not None and case is Detected.WRITE_WRITE
            if last and not site.flags & Flags.ATOMIC:
                bytes_ = record & mask
                given = where, address, lane, at, bytes_, before, earlier
                equal = _equal(site, *given)
                plain = verdict == 0
                found.value = select(
                    plain & equal, verdict.lift(Detected.GLOBAL_SAME_VALUE), found.value
                )
            site.call(
                "report",
                found.value,
                before,
                site.own,
                earlier,
                own_lane,
                address,
            )
        if site.constant:  # no order helps
            with code.when(verdict == 1):
                case_now = verdict.lift(Detected.NOT_COHERENT)
                lanes = before, site.own, earlier, own_lane
                site.call("report", case_now, *lanes, address)
    alone: Value = observed.value != 0
    return alone


def _equal(
    site: _Site,
    where: AddressRange,
    address: Value,
    lane: Value,
    at: Value,
    bytes_: Value,
    before: Value,
    earlier: Value,
) -> Value:
    """Whether a lane stores what is there, or what a lane beside it stores there.

    ``bytes_`` are those of the word that both have stored.
    """
    code = site.code
    other = convert(earlier, I64, signed=False)
    beside = (before == site.own) & has(site.lanes, other) & (other < lane)
    beside = beside & (lane_of(code, site.spilled, other) == address)
    mine, theirs = (_stored(site, each) for each in (lane, other))
    memory = pointer(code, where, address, I8)
    same = code.variable(code.constant(1, I32))
    with code.loop(WORD) as byte, code.when(has(bytes_, byte)):
        place = at + byte
        there = code.variable(code.constant(0, I8))
        with code.when(beside):
            there.value = lane_of(code, theirs, place)
        with code.when(~beside):
            there.value = lane_of(code, memory, place)
        equal = lane_of(code, mine, place) == there.value
        same.value = select(equal, same.value, 0)
    is_same: Value = same.value != 0
    return is_same


def _stored(site: _Site, lane: Value) -> Raw:
    """The bytes that a lane stores, one after the other."""
    b, code, access = site.code.builder, site.code, site.access
    of, held = _INTEGERS[access.bits], _INTEGERS[access.register]
    made = code.array(I8, access.bytes)
    goal = b.bitcast(made, of.as_pointer())
    for index, register in enumerate(site.registers):
        values = b.bitcast(register, held.as_pointer())
        value = convert(lane_of(code, values, lane), of)
        b.store(value.raw, b.gep(goal, [ir.Constant(I32, index)])).align = 1
    return b.bitcast(made, I8.as_pointer())


def _initialised(
    site: _Site, shadow: _Shadow, where: AddressRange, address: Value, lane: Value
) -> None:
    """Check bytes that may not be written yet."""
    b, code = site.code.builder, site.code
    with code.when(shadow.unwritten != 0):
        begin = (shadow.unwritten + (address - where.start)).raw
        marks = b.inttoptr(begin, I8.as_pointer())
        missing = code.variable(code.constant(0, I8))
        with code.loop(site.access.bytes) as number:
            mark = b.gep(marks, [number.raw])
            missing.value = missing.value | Value(b, b.load(mark))
            if site.flags & Flags.WRITE:
                b.store(ir.Constant(I8, 0), mark)
        if not site.flags & Flags.WRITE or site.flags & Flags.ATOMIC:
            with code.when(missing.value != 0):
                nothing, own_lane = code.constant(0, I32), convert(lane, I32)
                site.call(
                    "report",
                    nothing.lift(Detected.GLOBAL_UNINITIALISED),
                    nothing,
                    site.own,
                    nothing,
                    own_lane,
                    address,
                )
