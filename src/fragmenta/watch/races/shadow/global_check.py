"""The check of an access of global memory against an earlier one, in compiled code.

These are small functions that every routine of :mod:`global_memory` calls.  They are
compiled once, not in each of the routines.  Two accesses of one group of blocks are
ordered if the clocks of the later lane say so (:mod:`order`).  Accesses of two groups
are ordered if the later group has acquired what the earlier one released.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw, Type
from fragmenta.base.jit.trace import (
    I32,
    I64,
    Code,
    Memory,
    Value,
    convert,
    select,
    shift_unsigned,
)
from fragmenta.engine.simt import layout
from fragmenta.engine.simt.library import (
    POINTER,
    Routine,
    define,
    field,
    pointer_at,
    taken,
)
from fragmenta.watch.races.shadow import global_records
from fragmenta.watch.races.shadow.global_records import (
    FIRST_ID,
    ID_SHIFT,
    MASK_BITS,
    PAIR,
    QUAD,
    SEVERAL,
    SEVERAL_STRONG,
    WORD,
    Flags,
)
from fragmenta.watch.races.shadow.layout import (
    HEAD_KINDS,
    HEAD_PROBLEMS,
    HEAD_WARPS,
    Apart,
)
from fragmenta.watch.races.shadow.order import BlockHead, Plane, warp_of
from fragmenta.watch.races.shadow.problem_table import (
    NOW_WRITES,
    WAS_WRITE,
    MomentValues,
    ProblemValues,
)
from fragmenta.watch.races.shadow.problem_table import report as note


class _AccessEntry(NamedTuple):
    """A line of the table of accesses."""

    group: Value
    agent: Value
    flags: Value
    epoch: Value
    site: Value


class Here:
    """The warp that accesses memory: its clocks, its ledger, its group."""

    def __init__(self, code: Code, warp: Raw, block: Raw, ledger: Raw) -> None:
        self.code, self.warp, self.block, self.ledger = code, warp, block, ledger
        self.head = BlockHead(code, pointer_at(code, block, layout.BLOCK_WATCH))
        self.clocks = warp_of(code, self.head, warp)
        self.agent = self.clocks.agent

    def group(self) -> Value:
        """The number of the group of the block."""
        number = convert(field(self.code, self.block, layout.BLOCK_INDEX, I64)[0], I32)
        clustered = field(self.code, self.ledger, global_records.CLUSTERED, I32)[0]
        group = field(self.code, self.ledger, global_records.GROUP, I32)[0]
        return select(clustered != 0, group, number)

    def foreign(self) -> tuple[Raw, Value]:
        """What the group knows of others, and whether it knows anything."""
        b = self.code.builder
        foreign = pointer_at(self.code, self.ledger, global_records.FOREIGN)
        there = Value(b, b.ptrtoint(foreign, I64)) != 0
        owner = field(self.code, self.ledger, global_records.FOREIGN_OF, I64)[0]
        return foreign, there & (owner == convert(self.group(), I64))

    def line(self, number: Value) -> Memory:
        """The memory of a line of the table of accesses."""
        b = self.code.builder
        table = pointer_at(self.code, self.ledger, global_records.TABLE)
        place = convert(number, I64) * global_records.ENTRY.itemsize
        return field(self.code, b.gep(table, [place.raw]), 0, I32)

    def entry(self, number: Value) -> _AccessEntry:
        """A line of the table of accesses."""
        line = self.line(number)
        agent = line[1]
        return _AccessEntry(line[0], agent & 0xFFFF, agent >> 16, line[2], line[3])


# ── functions ───────────────────────────────────────────────────────────────

Check = Callable[..., Value]
"""A function of this module: it takes a :class:`Here`, and then numbers."""


def _build(module: ir.Module) -> None:
    for check, numbers in _CHECKS.items():

        def body(
            code: Code,
            warp: Raw,
            block: Raw,
            ledger: Raw,
            *given: Value,
            check: Check = check,
        ) -> Value:
            return check(Here(code, warp, block, ledger), *given)

        define(module, called(_name(check)), [POINTER] * 3 + numbers, body, I32)


def declare(module: ir.Module) -> None:
    """Let the routine of a module call the functions."""
    for check, numbers in _CHECKS.items():
        kind = ir.FunctionType(I32, [POINTER] * 3 + numbers)
        ir.Function(module, kind, called(_name(check)))


def called(name: str) -> str:
    """What a function is called in machine code."""
    return f"watch.global.{name}"


def _name(check: Check) -> str:
    return check.__name__[1:]


def _intern(here: Here, site: Value, flags: Value) -> Value:
    """The id of an access of a warp in its present epoch; 0 if there is no room."""
    number = field(here.code, here.warp, layout.WARP_NUMBER, I32)[0]
    return interned(here, number, here.agent, here.clocks.epoch[0], site, flags)


def interned(
    here: Here, number: Value, agent: Value, epoch: Value, site: Value, flags: Value
) -> Value:
    """The id of an access of an agent in an epoch; 0 if there is no room.

    ``number`` is that of a warp of the block, or of an agent that is no warp.
    """
    code, ledger = here.code, here.ledger
    b, group = code.builder, here.group()
    wide = convert(group, I64) << 32 | convert(epoch, I64, signed=False)
    narrow = number << 20 | site
    line = (number * 37 + site) & (global_records.CACHE_LINES - 1)
    cached = b.gep(
        ledger, [(line * global_records.CACHE_BYTES + global_records.CACHE).raw]
    )
    key = field(code, cached, 0, I64)
    rest = field(code, cached, 8, I32)
    hit = (key[0] == wide) & (rest[0] == narrow) & (rest[1] != 0)
    found = code.variable(rest[1])
    with code.when(~hit):
        found.value = epoch.lift(0)
        following = b.bitcast(
            pointer_at(code, ledger, global_records.NEXT), I32.as_pointer()
        )
        limit = field(code, ledger, global_records.LIMIT, I32)[0]
        with code.when(Value(b, b.load(following)) < limit):
            found.value = taken(code, following)
        full = (found.value == 0) | (found.value >= limit)
        found.value = select(full, epoch.lift(0), found.value)
        with code.when(full):
            field(code, ledger, global_records.FULL, I32)[0] = epoch.lift(1)
        with code.when(~full):
            entry = here.line(found.value)
            entry[0] = group
            entry[1] = agent | flags << 16
            entry[2], entry[3] = epoch, site
            # Another thread of the host sees the line before it sees a record.
            b.fence("release")
            key[0] = wide
            rest[0], rest[1] = narrow, found.value
    return found.value


def _is(flags: Value, flag: Flags) -> Value:
    found: Value = (flags & int(flag)) != 0
    return found


def _one_of_both(
    code: Code, condition: Value, yes: Callable[[], Value], no: Callable[[], Value]
) -> Value:
    """The result of one of two functions; the other is not called."""
    result = code.variable(code.constant(0, I32))
    with code.builder.if_else(condition.raw) as (then, otherwise):
        with then:
            result.value = yes()
        with otherwise:
            result.value = no()
    return result.value


def _word(condition: Value) -> Value:
    return convert(condition, I32, signed=False)


def _of_other(
    here: Here,
    entry: _AccessEntry,
    before: Value | None = None,
    lane: Value | None = None,
) -> Value:
    """1 if an access of another group is known to a lane.

    Without lanes: if those of all its lanes are known to all lanes.
    """
    code = here.code
    foreign, there = here.foreign()

    def look() -> Value:
        row = here.head.row
        place = convert(entry.group, I64) * row * 12
        plane = Plane(field(code, code.builder.gep(foreign, [place.raw]), 0, I32), row)
        known, lanes = plane.known(entry.agent, entry.epoch)
        known = known | (
            lanes == -1 if before is None else ((lanes >> before) & 1) != 0
        )
        return _one_of_both(
            code, known, lambda: _informed(here, lane), lambda: _zero(code)
        )

    return _one_of_both(code, there, look, lambda: _zero(code))


def _zero(code: Code) -> Value:
    return code.constant(0, I32)


def _informed(here: Here, lane: Value | None) -> Value:
    """1 if a lane, or every lane, comes after a thread of its group that acquired.

    The stamps say when each warp first acquired something.
    """
    code, clocks = here.code, here.clocks
    stamps = pointer_at(code, here.ledger, global_records.STAMPS)
    count = field(code, stamps, 0, I32)[0]
    result = code.variable(_word(count < 0))
    with code.loop(convert(count, I64)) as number:
        size = global_records.STAMP_BYTES
        place = convert(number, I32) * size + size
        stamp = field(code, code.builder.gep(stamps, [place.raw]), 0, I32)
        agent, epoch, lanes, first = (stamp[i] for i in range(4))
        own = agent == here.agent
        if lane is None:
            known = clocks.common_plane().knows_all(agent, epoch)
            known = known | (own & (lanes == -1))
        else:
            known = clocks.plane_of(lane).knows(agent, first, epoch)
            known = known | (own & (((lanes >> lane) & 1) != 0))
        result.value = result.value | _word(known)
    return result.value


def _narrow(here: Here, entry: _AccessEntry, flags: Value) -> Value:
    """Whether the scope of an access or of an earlier one leaves out the other."""
    either = flags | entry.flags
    apart = _apart(here, entry)
    group = (apart & int(Apart.GROUP)) != 0
    # A copy's own agent is in no block; its scope is the GPU.
    thread = entry.agent < here.head.word(HEAD_KINDS + 4)
    block = (((apart & int(Apart.BLOCK)) != 0) & thread) | group
    narrow = (_is(either, Flags.CTA) & block) | (_is(either, Flags.CLUSTER) & group)
    found: Value = narrow
    return found


def _ordered(
    here: Here, number: Value, before: Value, lane: Value, own: Value, flags: Value
) -> Value:
    """1 if an access is ordered after an earlier one, 0 if not.

    2: its scope is too small; 3: one is atomic, the other a plain load.
    """
    code = here.code
    strong = _is(flags, Flags.STRONG)
    atomic = _is(flags, Flags.ATOMIC)

    def special() -> Value:
        _, there = here.foreign()
        good = _word(there | (strong & (number == SEVERAL_STRONG)))
        return select((good == 0) & atomic, good.lift(3), good)

    def line() -> Value:
        entry = here.entry(number)
        same = entry.group == here.group()
        both = strong & _is(entry.flags, Flags.STRONG)
        narrow = _narrow(here, entry, flags)

        def clocks() -> Value:
            thread = (entry.agent == here.agent) & (before == lane)
            plane = here.clocks.plane_of(lane)
            return _word(thread | plane.knows(entry.agent, before, entry.epoch))

        def others() -> Value:
            return _of_other(here, entry, before, lane)

        found = _one_of_both(code, same, clocks, others)
        writes = _is(entry.flags, Flags.WRITE)
        mixed = (atomic & ~writes) | (
            ~_is(flags, Flags.WRITE) & _is(entry.flags, Flags.ATOMIC)
        )
        wrong = select(both, found.lift(1), select(mixed, found.lift(3), 0))
        scoped = both & narrow
        return select(found == 1, found, select(scoped, found.lift(2), wrong))

    strong_self = (number == own) & strong
    simple = _one_of_both(code, number < FIRST_ID, special, line)
    return select(strong_self, simple.lift(1), simple)


def _strong(here: Here, record: Value) -> Value:
    """1 if a record is that of one strong access; not of none or several lanes."""

    def line() -> Value:
        number = shift_unsigned(record, ID_SHIFT)
        return _word(_is(here.entry(number).flags, Flags.STRONG))

    one = (record != 0) & ~composite(record)
    return _one_of_both(here.code, one, line, lambda: _zero(here.code))


def _observed(
    here: Here, write: Value, read: Value, reader: Value, lane: Value, verdict: Value
) -> Value:
    """1 if a strong read of what was written is ordered before an access.

    Otherwise the verdict without it.  Both must be strong, and in each other's scope.
    """
    code = here.code

    def look() -> Value:
        wrote = here.entry(write)

        def one() -> Value:
            entry = here.entry(read)
            either, apart = wrote.flags | entry.flags, wrote.agent != entry.agent
            other = wrote.group != entry.group
            narrow = _is(either, Flags.CTA) & (
                other | (apart & _far(here, wrote, entry))
            )
            narrow = narrow | (_is(either, Flags.CLUSTER) & other)
            return _word(_is(entry.flags, Flags.STRONG) & ~narrow)

        def many() -> Value:
            return _word(read == SEVERAL_STRONG)

        good = _one_of_both(code, read >= FIRST_ID, one, many)
        good = select(_is(wrote.flags, Flags.STRONG), good, 0)
        zero = read.lift(0)

        def after() -> Value:
            return _ordered(here, read, reader, lane, zero, zero)

        return _one_of_both(code, good != 0, after, lambda: _zero(code))

    found = _one_of_both(code, write >= FIRST_ID, look, lambda: _zero(code))
    return select(found == 1, found, verdict)


def _far(here: Here, one: _AccessEntry, other: _AccessEntry) -> Value:
    """Whether two warps of a group are in different blocks."""
    warps = here.head.word(HEAD_WARPS)
    apart: Value = one.agent // warps != other.agent // warps
    return apart


def _known_to_all(here: Here, entry: _AccessEntry, match: Value) -> Value:
    """Whether all lanes know an access of their group.

    With ``match`` each lane is compared with its own earlier access only.
    """
    thread: Value = (entry.agent == here.agent) & (match != 0)
    known = here.clocks.common_plane().knows_all(entry.agent, entry.epoch)
    return known | thread


def _all_ordered(
    here: Here, number: Value, match: Value, own: Value, flags: Value
) -> Value:
    """1 if all lanes are ordered after all lanes of an earlier access.

    With ``match`` each lane is compared with its own earlier access only.
    """
    code = here.code
    strong = _is(flags, Flags.STRONG)

    def line() -> Value:
        entry = here.entry(number)
        same = entry.group == here.group()
        both = strong & _is(entry.flags, Flags.STRONG)
        narrow = _narrow(here, entry, flags)

        def others() -> Value:
            return _of_other(here, entry)

        found = _one_of_both(
            code, same, lambda: _word(_known_to_all(here, entry, match)), others
        )
        return found | _word(both & ~narrow)

    own_lane = (number == own) & ((match != 0) | strong)
    several = strong & (number == SEVERAL_STRONG)
    return _one_of_both(
        code,
        own_lane | (number < FIRST_ID),
        lambda: _word(own_lane | several),
        line,
    )


def _second_read(here: Here, number: Value, match: Value, flags: Value) -> Value:
    """What the record of a read becomes by another one.

    0: the new one; 1 or 2: the id for several groups; 3: it stays as it is.
    """
    code = here.code
    strong = _is(flags, Flags.STRONG)

    wide = (flags & int(Flags.CTA | Flags.CLUSTER)) == 0

    def special() -> Value:
        kept = strong & wide & (number == SEVERAL_STRONG)
        return select(kept, number, number.lift(SEVERAL))

    def line() -> Value:
        entry = here.entry(number)
        both = strong & _is(entry.flags, Flags.STRONG) & ~_narrow(here, entry, flags)
        several = select(both, number.lift(SEVERAL_STRONG), number.lift(SEVERAL))

        def inside() -> Value:
            known = _known_to_all(here, entry, match)
            # The record of a plain load is worth more than that of a strong one.  That
            # of another warp is kept, because who reads often writes then: its own read
            # would hide the other one.
            plain = ~_is(entry.flags, Flags.STRONG) & (entry.agent != here.agent)
            keep = ~known & ((strong & ~both) | (~strong & plain))
            return select(keep, number.lift(3), number.lift(0))

        def outside() -> Value:
            zero = number.lift(0)
            known = _of_other(here, entry)
            return select(known != 0, zero, several)

        same = entry.group == here.group()
        return _one_of_both(code, same, inside, outside)

    return _one_of_both(code, number < FIRST_ID, special, line)


# ── bytes of a word ─────────────────────────────────────────────────────────


def composite(record: Value) -> Value:
    """Whether the record of a write is that of several lanes."""
    mask = record & 0b1111
    several: Value = (record < 0) | (mask == PAIR) | (mask == QUAD)
    return several


def _splits(here: Here, record: Value) -> Memory:
    """The records of the bytes of a split word."""
    table = pointer_at(here.code, here.ledger, global_records.SPLITS)
    line = (record & ~global_records.SPLIT) >> MASK_BITS
    place = convert(line, I64) * (WORD * WORD)
    return field(here.code, here.code.builder.gep(table, [place.raw]), 0, I32)


def _part(here: Here, record: Value, byte: Value) -> Value:
    """The record of who wrote a byte of a word, with all its bytes there; 0: nobody."""
    code = here.code
    one = _byte(here, record, byte)
    made = code.variable(one)
    with code.when(one != 0), code.loop(WORD) as number:
        other = _byte(here, record, convert(number, I32))
        same = ((one ^ other) & ~0b1111) == 0
        made.value = made.value | select(same, other & 0b1111, 0)
    return made.value


def _byte(here: Here, record: Value, byte: Value) -> Value:
    """The record of one byte of a word; 0 if there is none."""
    mask, bit = record & 0b1111, byte.lift(1) << byte

    def split() -> Value:
        return _splits(here, record)[convert(byte, I64)]

    def simple() -> Value:
        pair, quad = mask == PAIR, mask == QUAD
        back = select(quad, 3 - byte, select(pair & (byte < 2), byte.lift(1), 0))
        kept = select(pair | quad, bit, mask & bit)
        one = ((record & ~0b1111) - (back << MASK_BITS)) | kept
        return select(kept == 0, kept, one)

    return _one_of_both(here.code, record < 0, split, simple)


def _joined(here: Here, old: Value, mine: Value) -> Value:
    """The record of a word after a lane has written some of its bytes."""
    code = here.code
    bytes_, before = mine & 0b1111, old & 0b1111
    simple = ~composite(old)
    covered = simple & ((before & ~bytes_) == 0)
    beside = old - before + (1 << MASK_BITS) == mine - bytes_
    pair = simple & beside & (before == 0b0011) & (bytes_ == 0b1100)

    def alone() -> Value:
        return select(pair, mine - bytes_ + PAIR, mine)

    def several() -> Value:
        split = old < 0
        made = _one_of_both(code, split, lambda: old, lambda: _new_split(here, old))

        def update() -> Value:
            line = _splits(here, made)
            with code.loop(WORD) as byte:
                bit = convert(byte, I32).lift(1) << convert(byte, I32)
                with code.when((bytes_ & bit) != 0):
                    line[byte] = mine - bytes_ + bit
            return made

        return _one_of_both(code, made != 0, update, lambda: mine)

    return _one_of_both(code, covered | pair, alone, several)


def _new_split(here: Here, old: Value) -> Value:
    """A record that names a new split word, with the bytes of a record; 0: no room."""
    code, b = here.code, here.code.builder
    following = b.bitcast(
        pointer_at(code, here.ledger, global_records.NEXT_SPLIT), I32.as_pointer()
    )
    limit = field(code, here.ledger, global_records.SPLIT_LIMIT, I32)[0]
    found = code.variable(limit)
    with code.when(Value(b, b.load(following)) < limit):
        found.value = taken(code, following)
    made = code.variable(old.lift(0))
    full = found.value >= limit
    with code.when(full):
        field(code, here.ledger, global_records.FULL, I32)[0] = old.lift(1)
    with code.when(~full):
        made.value = found.value << MASK_BITS | global_records.SPLIT | 0b1111
        line = _splits(here, made.value)
        with code.loop(WORD) as byte:
            line[byte] = _byte(here, old, convert(byte, I32))
    return made.value


# ── problems ────────────────────────────────────────────────────────────────


def _report(
    here: Here,
    case: Value,
    before: Value,
    own: Value,
    earlier: Value,
    lane: Value,
    address: Value,
) -> Value:
    """Note a problem: lane ``earlier`` of access ``before``, and a lane of ``own``."""
    code = here.code
    there = before >= FIRST_ID
    old, new = here.entry(select(there, before, own)), here.entry(own)
    apart = select(there, _apart(here, old), int(Apart.GROUP))
    wrote = there & _is(old.flags, Flags.WRITE)
    flags = select(wrote, apart | WAS_WRITE, apart)
    flags = select(_is(new.flags, Flags.WRITE), flags | NOW_WRITES, flags)
    site = select(there, old.site, old.site.lift(-1))
    note(
        code,
        here.head.pointer(HEAD_PROBLEMS),
        ProblemValues(
            case,
            address,
            address + WORD,
            MomentValues(new.site, new.group, new.agent, lane, new.epoch),
            MomentValues(site, old.group, old.agent, earlier, old.epoch),
            flags,
        ),
        widen=False,  # the address is that of the lanes that are named
    )
    return case


def _apart(here: Here, entry: _AccessEntry) -> Value:
    """How far a thread is from an earlier access: bits of ``Apart``."""
    mine, warps = here.agent, here.head.word(HEAD_WARPS)
    nothing = mine.lift(0)
    found = select(entry.agent == mine, nothing, int(Apart.WARP))
    same = entry.agent // warps == mine // warps
    found = found | select(same, nothing, int(Apart.BLOCK))
    return select(entry.group == here.group(), found, int(Apart.GROUP))


_CHECKS: dict[Check, list[Type]] = {
    _intern: [I32] * 2,
    _ordered: [I32] * 5,
    _all_ordered: [I32] * 4,
    _second_read: [I32] * 3,
    _strong: [I32],
    _observed: [I32] * 5,
    _part: [I32] * 2,
    _joined: [I32] * 2,
    _report: [I32] * 5 + [I64],
}
"""The functions, and the types of their numbers."""

CHECKS = Routine("watch.global", _build)
"""All of them, as one routine that must be linked."""
