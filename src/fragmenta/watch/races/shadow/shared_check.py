"""The complete check of an access of a word of shared memory, in compiled code.

An access is compared with the last write, and a write also with the reads since then.
Then it is recorded in the shadow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fragmenta.base.jit.trace import (
    I32,
    I64,
    Code,
    Memory,
    Value,
    Variable,
    convert,
    select,
)
from fragmenta.engine.simt.library import as_signed, field
from fragmenta.watch.races.shadow import layout
from fragmenta.watch.races.shadow.detected import Detected
from fragmenta.watch.races.shadow.layout import Apart, Lanes
from fragmenta.watch.races.shadow.order import BlockHead
from fragmenta.watch.races.shadow.problem_table import (
    PARTLY,
    WAS_WRITE,
    MomentValues,
    ProblemValues,
    report,
)
from fragmenta.watch.races.shadow.readers import added, each_reader, is_set
from fragmenta.watch.races.shadow.shared_records import (
    Viewer,
    agent_of,
    combined,
    epoch_of,
    is_strong,
    known,
    lane_in,
    lanes_of,
    mask_of,
    packed,
    part,
    site_of,
    with_part,
)

OTHER, SAME, BESIDE = 0, 1, 2
"""What is written is not what is there; it is; another lane writes something else."""


class Now(NamedTuple):
    """Who accesses, from where, and how."""

    viewer: Viewer
    fenced: Viewer | None
    """What it knows through the async proxy; None if it does not use it."""
    agent: Value
    epoch: Value
    lane: Value
    lanes: Value
    """One of ``Lanes``."""
    site: Value
    kind: Value
    """Bits: ``WRITES``, ``STRONG``, ``READS``."""
    through: Value
    """Whether it uses the async proxy."""

    def record(self, mask: Value) -> Value:
        """The record of an access of these bytes."""
        return packed(self.site, self.epoch, self.agent, self.lane, self.lanes, mask)

    def has(self, bit: int) -> Value:
        """Whether the kind of access has a bit."""
        there: Value = (self.kind & bit) != 0
        return there


class SharedWord(NamedTuple):
    """A word of shared memory and its records."""

    writes: Memory
    reads: Memory
    number: Value
    mask: Value
    """The bytes that are accessed."""
    address: Value
    """The address of the word, with the rank."""


def shadow(code: Code, head: BlockHead) -> tuple[Memory, Memory]:
    """The records of writes and of reads."""
    writes, reads = (
        field(code, head.pointer(offset), 0, I64)
        for offset in (layout.HEAD_WRITES, layout.HEAD_READS)
    )
    return writes, reads


def check(
    code: Code,
    head: BlockHead,
    now: Now,
    word: SharedWord,
    equal: Callable[[], Value] | None,
) -> None:
    """Check an access of a word, and record it.

    ``equal`` compares the bytes that are written with those that other lanes write by
    the same instruction, or else with those that are there: ``SAME``, ``OTHER``, or
    ``BESIDE`` if another lane writes others.
    """
    write, reads = word.writes[word.number], word.reads[word.number]
    ever = part(write, layout.EVER_AT, layout.EVER_BITS)
    missing = word.mask & ~ever
    with code.when(now.has(layout.READS) & (missing != 0)):
        rule = missing.lift(int(Detected.UNINITIALISED))
        # The range is as wide as the access, so that those side by side are one.
        partly = select(missing == word.mask, missing.lift(0), PARTLY)
        _report(code, head, now, word, rule, write.lift(0), word.mask, partly)
    overlap = word.mask & mask_of(write)
    observed = code.variable(code.constant(0, I32))
    with code.when(overlap != 0):
        _after_write(code, head, now, word, write, overlap, equal, observed)
    new = now.record(word.mask)
    with code.when(now.has(layout.WRITES)):
        common = word.mask & mask_of(reads)
        with code.when(common != 0):
            _after_reads(code, head, now, word, reads, common)
        word.writes[word.number] = _written(now, write, new) | convert(
            ever | word.mask, I64, signed=False
        )
        rest = mask_of(reads) & ~word.mask
        left = with_part(reads, layout.MASK_AT, layout.MASK_BITS, rest)
        word.reads[word.number] = select(rest == 0, reads.lift(0), left)
    # The strong read through which a read is ordered is worth more than that.
    with code.when(~now.has(layout.WRITES) & (observed.value == 0)):
        word.reads[word.number] = added(code, head, now.viewer, reads, new)


def _strict(head: BlockHead) -> Value:
    """Whether rules are reported that shipped kernels break."""
    strict: Value = head.word(layout.HEAD_STRICT) != 0
    return strict


def _trusts(head: BlockHead, now: Now, record: Value) -> Value:
    """Whether lanes of a warp rely on ``.volatile`` alone; with strict rules only.

    Such accesses are strong, so they do not race, but nothing says which is first:
    lanes of a warp need not execute an instruction at the same time.
    """
    same = agent_of(record) == now.agent
    strict: Value = now.has(layout.VOLATILE) & same & _strict(head)
    return strict


def _after_write(
    code: Code,
    head: BlockHead,
    now: Now,
    word: SharedWord,
    write: Value,
    overlap: Value,
    equal: Callable[[], Value] | None,
    observed: Variable,
) -> None:
    """The bytes were written before.

    ``observed`` becomes 1 if only a strong read of them orders the access.
    """
    agent = agent_of(write)
    ordered = known(now.viewer, write, lane_in(write), overlap)
    strong = now.has(layout.STRONG) & _in_scope(head, now.agent, now.lanes, write)
    trusts = _trusts(head, now, write) & strong & ~ordered
    with code.when(trusts):
        case = agent.lift(int(Detected.VOLATILE))
        _report(code, head, now, word, case, write, overlap, WAS_WRITE)
    with code.when(~ordered & ~strong):
        observed.value = _observed(code, head, now, word, write, overlap)
    ordered = ordered | strong | (observed.value != 0)
    with code.when(~ordered):
        late = _is(head, agent, "cp.async") | _is(head, agent, layout.COUNTED)
        rule = select(
            late & ~now.has(layout.WRITES),
            agent.lift(int(Detected.READ_BEFORE_ARRIVAL)),
            int(Detected.SHARED_RACE),
        )
        chosen = code.variable(rule)
        was = code.variable(rule.lift(WAS_WRITE))
        if equal is not None:
            plain = now.has(layout.WRITES) & ~now.has(layout.READS)
            with code.when(plain & _is(head, agent, "warp")):
                found = equal()
                together = (agent == now.agent) & (site_of(write) == now.site)
                together = together & (epoch_of(write) == now.epoch)
                other = select(together, rule.lift(int(Detected.ONE_STORE)), rule)
                note = rule.lift(int(Detected.SAME_VALUE))
                chosen.value = select(found == SAME, note, other)
                lanes = now.lane ^ lane_in(write)
                lanes = select(found == BESIDE, lanes, layout.TWICE)
                was.value = lanes << layout.LANES_APART_AT | WAS_WRITE
        _report(code, head, now, word, chosen.value, write, overlap, was.value)
    if now.fenced is not None:
        contested = _is(head, agent, "cp.async") & _strict(head)
        generic = (_is(head, agent, "warp") | contested) & now.through
        with code.when(ordered & generic):
            seen = known(now.fenced, write, lane_in(write), overlap)
            with code.when(~seen):
                rule = agent.lift(int(Detected.MISSING_PROXY_FENCE))
                _report(code, head, now, word, rule, write, overlap, WAS_WRITE)


def _in_scope(head: BlockHead, agent: Value, lanes: Value, record: Value) -> Value:
    """Whether a record is strong, and it and a strong access include each other."""
    before, block = lanes_of(record), int(Lanes.STRONG_BLOCK)
    warps = head.word(layout.HEAD_WARPS)
    apart = agent // warps != agent_of(record) // warps
    narrow = ((lanes == block) | (before == block)) & apart
    both: Value = is_strong(before) & ~narrow
    return both


def _observed(
    code: Code,
    head: BlockHead,
    now: Now,
    word: SharedWord,
    write: Value,
    overlap: Value,
) -> Value:
    """1 if an access comes after a strong read of what a strong operation wrote.

    Then it comes after that operation, too.
    """
    found = code.variable(overlap.lift(0))
    reads = word.reads[word.number]
    seen = (overlap & ~mask_of(reads)) == 0
    with code.when(seen & is_strong(lanes_of(write))):

        def visit(entry: Value) -> None:
            lane = lane_in(reads)
            covers = (overlap & ~mask_of(entry)) == 0
            read = _in_scope(head, agent_of(write), lanes_of(write), entry)
            before = known(now.viewer, entry, lane, overlap)
            good = convert(covers & read & before, I32, signed=False)
            found.value = found.value | good

        each_reader(code, head, reads, visit)
    return found.value


def _after_reads(
    code: Code,
    head: BlockHead,
    now: Now,
    word: SharedWord,
    reads: Value,
    overlap: Value,
) -> None:
    """The bytes were read since they were written."""
    lane = lane_in(reads)

    def visit(entry: Value) -> None:
        common = overlap & mask_of(entry)
        strong = now.has(layout.STRONG) & _in_scope(head, now.agent, now.lanes, entry)
        ordered = known(now.viewer, entry, lane, common) | strong
        with code.when((common != 0) & ~ordered):
            agent = agent_of(entry)
            in_flight = _is(head, agent, "bulk-read")
            for kind in (layout.WARPGROUP, layout.COMMITTED):
                in_flight = in_flight | _is(head, agent, kind)
            rule = select(
                in_flight,
                agent.lift(int(Detected.OVERWRITE_WHILE_READ)),
                int(Detected.SHARED_RACE),
            )
            whole = with_part(entry, layout.LANE_AT, layout.LANE_BITS, lane)
            _report(code, head, now, word, rule, whole, common, 0)
        if now.fenced is not None:
            generic = _is(head, agent_of(entry), "warp") & now.through & _strict(head)
            unseen = ~known(now.fenced, entry, lane, common)
            with code.when((common != 0) & ordered & generic & unseen):
                fence = agent_of(entry).lift(int(Detected.MISSING_PROXY_FENCE))
                whole = with_part(entry, layout.LANE_AT, layout.LANE_BITS, lane)
                _report(code, head, now, word, fence, whole, common, 0)

    each_reader(code, head, reads, visit)


def _written(now: Now, old: Value, new: Value) -> Value:
    """The record of writes after one more."""
    same = (agent_of(old) == now.agent) & (epoch_of(old) == now.epoch)
    apart = (mask_of(old) & mask_of(new)) == 0
    there = mask_of(old) != 0
    one = (lanes_of(old) == now.lanes) & (lane_in(old) == now.lane)
    union = new | (old & layout.MASK_FIELD)
    pair = combined(old & as_signed(~layout.EVER_FIELD, 64), new, lane_in(old))
    own = one | (now.viewer.agent < 0)
    made = select(
        same & there & own, union, select(same & there & apart & ~own, pair, new)
    )
    # Others that use atomics may know nothing of a lane's plain store before its own.
    plain = (lanes_of(old) == int(Lanes.ONE)) & (lane_in(old) == now.lane)
    covers = (mask_of(new) & ~mask_of(old)) == 0
    strong = _is_one(now.lanes) & is_strong(now.lanes)
    kept = same & there & plain & covers & strong
    return select(kept, old, made)


def _is(head: BlockHead, agent: Value, kind: str) -> Value:
    """Whether an agent is of a kind."""
    number = layout.AGENT_KINDS.index(kind)
    first = head.word(layout.HEAD_KINDS + 4 * number)
    last = head.word(layout.HEAD_KINDS + 4 * (number + 1))
    return (agent >= first) & (agent < last)


def _report(
    code: Code,
    head: BlockHead,
    now: Now,
    word: SharedWord,
    rule: Value,
    before: Value,
    bytes_: Value,
    was: Value | int,
) -> None:
    """Note a problem with some bytes of a word.

    ``was`` is ``WAS_WRITE`` after a write, ``PARTLY`` if a part of the bytes was
    written.
    """
    skipped = select(
        (bytes_ & 1) != 0,
        bytes_.lift(0),
        select(
            (bytes_ & 2) != 0,
            bytes_.lift(1),
            select((bytes_ & 4) != 0, bytes_.lift(2), bytes_.lift(3)),
        ),
    )
    end = select(
        (bytes_ & 8) != 0,
        bytes_.lift(4),
        select(
            (bytes_ & 4) != 0,
            bytes_.lift(3),
            select((bytes_ & 2) != 0, bytes_.lift(2), bytes_.lift(1)),
        ),
    )
    flags = (now.kind & layout.WRITES) | now.kind.lift(was)
    report(
        code,
        head.pointer(layout.HEAD_PROBLEMS),
        ProblemValues(
            rule,
            convert(word.address + skipped, I64),
            convert(word.address + end, I64),
            *_moments(head, now, before),
            flags | _apart(head, now, before),
        ),
        widen=True,
    )


def _moments(
    head: BlockHead, now: Now, before: Value
) -> tuple[MomentValues, MomentValues]:
    """The access, and the one of a record before it."""
    group, none = head.word(layout.HEAD_CLUSTER), now.lane.lift(-1)
    this = MomentValues(
        now.site,
        group,
        now.agent,
        select(_is_one(now.lanes), now.lane, none),
        now.epoch,
    )
    earlier = MomentValues(
        select(before == 0, none, site_of(before)),
        group,
        agent_of(before),
        select(_is_one(lanes_of(before)), lane_in(before), none),
        epoch_of(before),
    )
    return this, earlier


def _is_one(lanes: Value) -> Value:
    """Whether a record is about one lane, which it names."""
    named = (Lanes.ONE, Lanes.STRONG_ONE, Lanes.STRONG_BLOCK)
    one: Value = lanes == int(named[0])
    for each in named[1:]:
        one = one | (lanes == int(each))
    return one


def _apart(head: BlockHead, now: Now, before: Value) -> Value:
    """How far apart two warps are: bits of ``Apart``."""
    earlier, warps = agent_of(before), head.word(layout.HEAD_WARPS)
    nothing, copiers = now.agent.lift(0), head.word(layout.HEAD_KINDS + 4)

    def warp_of(agent: Value) -> Value:
        """The warp that accesses, or that issued a ``cp.async``."""
        return select(_is(head, agent, "cp.async"), agent - copiers, agent)

    known = earlier < head.word(layout.HEAD_KINDS + 8)
    known = known & (now.agent < head.word(layout.HEAD_KINDS + 8))
    one, other = warp_of(now.agent), warp_of(earlier)
    warp = select(one == other, nothing, int(Apart.WARP))
    same = (one // warps == other // warps) | ~known
    return warp | select(same, nothing, int(Apart.BLOCK))


def settled(viewer: Viewer, record: Value) -> Value:
    """Whether an access of any lanes happened before; never true for a set."""
    agent = agent_of(record)
    safe = select(is_set(record), agent.lift(0), agent)
    before = viewer.plane.knows_all(safe, epoch_of(record))
    return before & ~is_set(record)
