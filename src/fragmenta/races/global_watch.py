"""Who has touched which word of global memory during a launch?

A :class:`GlobalWatch` belongs to a launch.  Each context has a :class:`Ledger`, which
machine code reads (:mod:`global_memory`).  What the copy engine does comes here from
Python: :meth:`GlobalWatch.touch`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.races.shadow import global_records
from fragmenta.races.shadow import layout as clocks
from fragmenta.races.shadow.detected import BY_NUMBER, Detected
from fragmenta.races.shadow.global_records import (
    ENTRY,
    FIRST_ID,
    ID_SHIFT,
    MASK_BITS,
    PROBLEM,
    SEVERAL,
    SEVERAL_STRONG,
    WORD,
    Flags,
)
from fragmenta.races.shadow.layout import knows as row_knows
from fragmenta.races.shadow.problem_table import Noted
from fragmenta.races.shared_watch import Watch
from fragmenta.simt import empties, layout
from fragmenta.simt.compiled import aligned

MOST_PRECISE = 1024
"""With more groups than this, all that acquire share what any of them released: the
work would grow with the square of their number."""

Knows = Callable[[int, int, int], bool]
"""Whether a thread knows what an agent's lane did in an epoch: (agent, lane, epoch)."""


class Who(NamedTuple):
    """An access, as far as it is known."""

    site: int
    group: int
    agent: int
    lane: int
    epoch: int
    flags: Flags


class Ledger:
    """What machine code needs to watch the block of one context."""

    def __init__(self, watch: GlobalWatch, first_agent: int = 0) -> None:
        self.memory = aligned(global_records.LEDGER_BYTES)
        self.problems = np.zeros(global_records.MOST_PROBLEMS, PROBLEM)
        self.narrow = self.memory.view(np.int32)
        self.wide = self.memory.view(np.int64)
        self.narrow[global_records.LIMIT // 4] = watch.limit
        self.narrow[global_records.FIRST_AGENT // 4] = first_agent
        self.narrow[global_records.ROW // 4] = watch.row
        self.wide[global_records.FOREIGN_OF // 8] = -1
        for place, memory in (
            (global_records.SHADOWS, watch.pointers),
            (global_records.TABLE, watch.table),
            (global_records.NEXT, watch.following),
            (global_records.PROBLEMS, self.problems),
        ):
            self.wide[place // 8] = memory.ctypes.data

    @property
    def address(self) -> int:
        """Where it is."""
        return int(self.memory.ctypes.data)

    def attach(self, block: NDArray[np.uint8]) -> None:
        """Let the block of a context use it."""
        place = slice(layout.BLOCK_GLOBAL_WATCH, layout.BLOCK_GLOBAL_WATCH + 8)
        block[place].view(np.int64)[0] = self.address

    def clocks(self, address: int, size: int) -> None:
        """Say where the clocks of the warps are, and the bytes of each."""
        self.wide[global_records.STATES // 8] = address
        self.wide[global_records.STATE_BYTES // 8] = size

    def follow(self, watch: Watch, rank: int) -> None:
        """Use the clocks of a block of a cluster."""
        memory = (ctypes.c_int64 * (clocks.HEAD_BYTES // 8)).from_address(
            watch.address(rank)
        )
        head = np.ctypeslib.as_array(memory)
        self.clocks(
            int(head[clocks.HEAD_STATES // 8]), int(head[clocks.HEAD_STATE_BYTES // 8])
        )
        self.narrow[global_records.ROW // 4] = watch.plan.row
        self.narrow[global_records.FIRST_AGENT // 4] = watch.agent("warp", rank, 0)

    def cluster(self, group: int) -> None:
        """The block belongs to a cluster: the group is not its own number."""
        self.narrow[global_records.CLUSTERED // 4] = 1
        self.narrow[global_records.GROUP // 4] = group

    def knows(self, group: int, foreign: Foreign) -> None:
        """Say what the group that runs here has learned of others."""
        self.wide[global_records.FOREIGN // 8] = foreign.components.ctypes.data
        self.wide[global_records.STAMPS // 8] = foreign.stamps.ctypes.data
        self.wide[global_records.FOREIGN_OF // 8] = group


class Foreign:
    """What one group knows of all others."""

    def __init__(self, watch: GlobalWatch, components: Any = None) -> None:
        shape = (watch.groups, 3, watch.row)
        self.components: NDArray[np.int32] = (
            np.zeros(shape, np.int32) if components is None else components
        )
        self.stamps = np.zeros((global_records.MOST_STAMPS + 1, 4), np.int32)
        self._stamped: set[tuple[int, int]] = set()
        self.rows: dict[int, NDArray[np.int32]] = {}
        """What it has learned of each group; such an array is never changed."""

    def put(self, group: int, row: NDArray[np.int32]) -> None:
        """Learn what a group released."""
        known = self.rows.get(group)
        if known is row:
            return
        # Other groups have to do with the first proxy only.
        if known is not None and not covers(row, known):
            row = joined(known, row)
        self.rows[group] = row
        self.components[group] = row[:3]

    def stamp(self, agent: int, epoch: int, lanes: int) -> None:
        """Note that lanes have acquired; the first time counts for each of them."""
        key = (agent, lanes)
        count = int(self.stamps[0, 0])
        if key in self._stamped or count < 0:
            return
        self._stamped.add(key)
        if count == global_records.MOST_STAMPS:
            self.stamps[0, 0] = -1
            return
        first = (lanes & -lanes).bit_length() - 1
        signed = lanes - (1 << 32) if lanes >> 31 else lanes
        self.stamps[count + 1] = agent, epoch, signed, first
        self.stamps[0, 0] = count + 1


def covers(one: NDArray[np.int32], other: NDArray[np.int32]) -> bool:
    """Whether a clock knows all that another one knows."""
    base, extra, mask = (other[i::3] for i in range(3))
    named = (extra <= one[1::3]) & ((mask & ~one[2::3]) == 0)
    return bool(((base <= one[::3]) & ((extra <= one[::3]) | named)).all())


def joined(one: NDArray[np.int32], other: NDArray[np.int32]) -> NDArray[np.int32]:
    """Two clocks as one: what either of them knows; perhaps a little more.

    A clock is three arrays, or three for each proxy.
    """
    made = np.maximum(one, other)
    base, extra, mask = (made[i::3] for i in range(3))
    mask[:] = np.where(one[1::3] > base, one[2::3], 0)
    mask |= np.where(other[1::3] > base, other[2::3], 0)
    extra[extra <= base] = 0
    return made


class _Shadow(NamedTuple):
    """The records of one segment."""

    writes: NDArray[np.int32]
    reads: NDArray[np.int32]
    unwritten: NDArray[np.uint8] | None
    size: int


class GlobalWatch:
    """The records of a launch.

    ``segments`` are its memory, ``groups`` how many groups of blocks there are (blocks
    or clusters), ``row`` how many agents each array of a clock has room for.
    """

    def __init__(
        self,
        segments: Iterable[Any],
        groups: int,
        row: int,
        most: int = global_records.MOST_ACCESSES,
    ) -> None:
        self.groups, self.row = groups, row
        # Memory that is never touched costs nothing: the host gives it when it is used.
        self.table = np.zeros(most, ENTRY)
        self.following = np.full(1, FIRST_ID, np.int32)
        # Machine code takes the first lines, several threads at a time; Python takes
        # the last ones.
        self.limit = most - most // 8
        self._last = most
        self._lock = Lock()
        self.pointers = np.zeros((layout.SLOTS, 3), np.int64)
        self._shadows: dict[int, _Shadow] = {}
        for each in segments:
            if each.writable:
                self._shadows[each.slot] = _shadow(each.data)
        for slot, made in self._shadows.items():
            marks = 0 if made.unwritten is None else made.unwritten.ctypes.data
            self.pointers[slot] = made.writes.ctypes.data, made.reads.ctypes.data, marks
        self._ledgers: list[Ledger] = []
        self._foreign: dict[int, Foreign] = {}
        self._shared: Foreign | None = None
        self._findings: dict[tuple[int, int, int], Noted[Who]] = {}
        self._ids: dict[tuple[int, int, int, int], int] = {}
        self._full = False
        self.fenced: set[int] = set()
        """Groups with a proxy fence since they learned something of others."""

    def ledger(self, first_agent: int = 0) -> Ledger:
        """A ledger for a context, whose first warp is this agent."""
        self._ledgers.append(Ledger(self, first_agent))
        return self._ledgers[-1]

    @property
    def full(self) -> bool:
        """Whether some accesses were left out, because there were too many."""
        return self._full or any(
            each.narrow[global_records.FULL // 4] for each in self._ledgers
        )

    @property
    def unset(self) -> bool:
        """Whether there is memory that nobody has written yet."""
        return any(each.unwritten is not None for each in self._shadows.values())

    # ── other groups ────────────────────────────────────────────────────────

    def foreign(self, group: int) -> Foreign:
        """What a group knows of others; made when it first learns something."""
        if group not in self._foreign:
            everyone = self.everyone
            components = None if everyone is None else everyone.components
            self._foreign[group] = Foreign(self, components)
        return self._foreign[group]

    @property
    def everyone(self) -> Foreign | None:
        """What any group has released, if there are too many to tell them apart."""
        if self._shared is None and self.groups > MOST_PRECISE:
            self._shared = Foreign(self)
        return self._shared

    def informed(self, group: int) -> bool:
        """Whether a group has learned anything of others."""
        return group in self._foreign

    def fenced_abroad(self, group: int, before: Who) -> bool:
        """Whether a proxy fence is on the way from another group's write.

        Either the writer executed one before it released, or this group did after it
        acquired.
        """
        if group in self.fenced or group not in self._foreign:
            return True
        row = self._foreign[group].rows.get(before.group)
        if row is None or row.shape[0] < 6:
            return True
        return row_knows(row[3:6], before.agent, before.lane, before.epoch)

    # ── asynchronous accesses ───────────────────────────────────────────────

    def touch(
        self,
        who: Who,
        spans: Iterable[tuple[int, int]],
        knows: Knows,
        fenced: Knows | None = None,
    ) -> None:
        """An access that is not by a load or store: a copy of so many bytes each.

        ``who`` accesses the memory; ``knows`` is what the thread knows that issued it,
        and ``fenced`` what it knows in the async proxy.
        """
        number = self._id(who)
        if not number:
            return
        for address, size in spans:
            shadow = self._shadows.get(address >> layout.SLOT_BITS)
            start = address & (1 << layout.SLOT_BITS) - 1
            if shadow is not None and 0 < size <= shadow.size - start:
                touch = _Touch(self, who, number, knows, fenced)
                self._span(touch, shadow, start, size, address)

    def touch_rows(
        self,
        who: Who,
        starts: NDArray[np.int64],
        size: int,
        knows: Knows,
        fenced: Knows | None = None,
    ) -> None:
        """The same for pieces of one size, such as the rows of a box."""
        slots = starts >> layout.SLOT_BITS
        shadow = self._shadows.get(int(slots[0])) if starts.size else None
        offsets = starts & (1 << layout.SLOT_BITS) - 1
        plain = not (starts % WORD).any() and size % WORD == 0 and size > 0
        if shadow is None and (slots == slots[:1]).all():
            return
        if shadow is None or not plain or (slots != slots[0]).any():
            self.touch(who, [(int(each), size) for each in starts], knows, fenced)
            return
        number = self._id(who)
        offsets = offsets[offsets + size <= shadow.size]
        if number and offsets.size:
            words = (offsets[:, None] // WORD + np.arange(size // WORD)).ravel()
            touch = _Touch(self, who, number, knows, fenced)
            base = int(slots[0]) << layout.SLOT_BITS
            self._words(touch, shadow, words, base)

    def _words(
        self, touch: _Touch, shadow: _Shadow, words: NDArray[np.int64], base: int
    ) -> None:
        """Whole words, by their numbers."""
        own = np.int32(touch.number << ID_SHIFT | touch.who.lane << MASK_BITS | 0b1111)
        writing = bool(touch.who.flags & Flags.WRITE)
        writes, reads = shadow.writes[words], shadow.reads[words]
        rule = Detected.WRITE_WRITE if writing else Detected.WRITE_READ
        touch.compare(writes, 0b1111, rule, base, words)
        marks = shadow.unwritten
        if marks is not None:
            bytes_ = (words[:, None] * WORD + np.arange(WORD)).ravel()
            missing = marks[bytes_]
            if (not writing or touch.who.flags & Flags.ATOMIC) and missing.any():
                at = base + int(bytes_[missing.argmax()])
                touch.report(Detected.GLOBAL_UNINITIALISED, at, None, 1)
            if writing:
                marks[bytes_] = 0
        if writing:
            touch.compare(reads, 0b1111, Detected.READ_WRITE, base, words)
            shadow.writes[words] = own
            shadow.reads[words] = 0
        else:
            others = touch.second_read(reads)
            shadow.reads[words] = np.where(others, others << ID_SHIFT | 0b1111, own)

    def _id(self, who: Who) -> int:
        """The line of the table for an access; 0 if there is none."""
        key = (who.site, who.group, who.agent, who.epoch)
        with self._lock:
            if key not in self._ids:
                if self._last <= self.limit:
                    self._full = True
                    return 0
                self._last -= 1
                self.table[self._last] = (
                    who.group,
                    who.agent,
                    int(who.flags),
                    who.epoch,
                    who.site,
                )
                self._ids[key] = self._last
            return self._ids[key]

    def _span(
        self, touch: _Touch, shadow: _Shadow, start: int, size: int, address: int
    ) -> None:
        first, last = start // WORD, (start + size - 1) // WORD + 1
        masks = np.full(last - first, 0b1111, np.int32)
        masks[0] &= 0b1111 << start % WORD & 0b1111
        masks[-1] &= 0b1111 >> (-(start + size) % WORD)
        writes, reads = shadow.writes[first:last], shadow.reads[first:last]
        own = np.int32(touch.number << ID_SHIFT | touch.who.lane << MASK_BITS)
        atomic = bool(touch.who.flags & Flags.ATOMIC)
        writing = bool(touch.who.flags & Flags.WRITE)
        rule = Detected.WRITE_WRITE if writing else Detected.WRITE_READ
        base = address - (start - first * WORD)
        touch.compare(writes, masks, rule, base)
        marks = shadow.unwritten
        if marks is not None:
            missing = marks[start : start + size]
            if (not writing or atomic) and missing.any():
                at = address + int(missing.argmax())
                touch.report(Detected.GLOBAL_UNINITIALISED, at, None, 1)
            if writing:
                missing[:] = 0
        if writing:
            touch.compare(reads, masks, Detected.READ_WRITE, base)
            writes[:] = own | masks
            reads &= ~masks
            reads[(reads & 0b1111) == 0] = 0
        else:
            others = touch.second_read(reads)
            reads[:] = np.where(others, others << ID_SHIFT | 0b1111, own | masks)

    def who(self, number: int, lane: int) -> Who | None:
        """The access that a record names."""
        if number < FIRST_ID:
            return None
        entry = self.table[number]
        return Who(
            int(entry["site"]),
            int(entry["group"]),
            int(entry["agent"]),
            lane,
            int(entry["epoch"]),
            Flags(int(entry["flags"])),
        )

    def add(self, finding: Noted[Who]) -> None:
        """Keep a problem, once for each rule and pair of instructions."""
        before = finding.before.site if finding.before else -1
        key = (finding.case, finding.now.site, before)
        with self._lock:
            known = self._findings.get(key, finding)
            count = finding.count + (known.count if known is not finding else 0)
            apart = known.apart | finding.apart
            self._findings[key] = replace(known, count=count, apart=apart)

    def found(self) -> list[Noted[Who]]:
        """All problems so far; those of machine code are taken out of the ledgers."""
        for ledger in self._ledgers:
            count = int(ledger.narrow[global_records.FOUND // 4])
            for each in ledger.problems[:count]:
                self.add(self._finding(each))
            ledger.problems[:] = 0
            ledger.narrow[global_records.FOUND // 4] = 0
        return sorted(self._findings.values(), key=lambda each: (each.case, each.now))

    def _finding(self, problem: Any) -> Noted[Who]:
        now = self.who(int(problem["id"]), int(problem["lane"]))
        assert now is not None
        before = self.who(int(problem["id_before"]), int(problem["lane_before"]))
        return _noted(
            BY_NUMBER[int(problem["rule"])],
            int(problem["address"]),
            now,
            before,
            int(problem["count"]),
            int(problem["apart"]),
        )

    # ── slow answers, for Python ────────────────────────────────────────────

    def ordered(self, who: Who, before: Who, knows: Knows) -> bool:
        """Whether an access is ordered after an earlier one."""
        both = bool(who.flags & before.flags & Flags.STRONG)
        if before.group == who.group:
            return both or knows(before.agent, before.lane, before.epoch)
        if both and not who.flags & before.flags & Flags.CTA:
            return True
        if before.group >= self.groups or who.group not in self._foreign:
            return False
        clock = self._foreign[who.group].components[before.group]
        return row_knows(clock, before.agent, before.lane, before.epoch)


class _Touch(NamedTuple):
    """One asynchronous access while its records are compared."""

    watch: GlobalWatch
    who: Who
    number: int
    knows: Knows
    fenced: Knows | None

    def compare(
        self,
        records: NDArray[np.int32],
        masks: NDArray[np.int32] | int,
        case: Detected,
        address: int,
        words: NDArray[np.int64] | None = None,
    ) -> None:
        """Report the words whose records are not ordered before this access.

        Without their numbers, the words are side by side.
        """
        hit = (records & masks) != 0
        for record, places in _distinct(records, hit):
            number, lane = record >> ID_SHIFT, record >> MASK_BITS & 31
            if number in (SEVERAL, SEVERAL_STRONG):
                strong = number == SEVERAL_STRONG and self.who.flags & Flags.STRONG
                good = bool(strong) or self.watch.informed(self.who.group)
                before = None
            else:
                before = self.watch.who(number, lane)
                assert before is not None
                good = self.watch.ordered(self.who, before, self.knows)
            first = places[0] if words is None else words[places[0]]
            at = address + WORD * int(first)
            if not good:
                self.report(case, at, before, len(places))
            elif before is not None and self._unfenced(before):
                self.report(Detected.GLOBAL_PROXY, at, before, len(places))

    def _unfenced(self, before: Who) -> bool:
        """Whether a plain write of the same group has no proxy fence behind it."""
        plain = before.flags & Flags.WRITE and not before.flags & Flags.ASYNC
        if self.fenced is None or not plain:
            return False
        if before.group == self.who.group:
            return not self.fenced(before.agent, before.lane, before.epoch)
        return not self.watch.fenced_abroad(self.who.group, before)

    def second_read(self, records: NDArray[np.int32]) -> NDArray[np.int32]:
        """For each word 0, or the id for several groups."""
        found = np.zeros_like(records)
        strong = bool(self.who.flags & Flags.STRONG)
        for record, places in _distinct(records, records != 0):
            number = record >> ID_SHIFT
            if number in (SEVERAL, SEVERAL_STRONG):
                found[places] = number if strong else SEVERAL
                continue
            before = self.watch.who(number, record >> MASK_BITS & 31)
            assert before is not None
            alone = before.group == self.who.group
            if not alone and not self.watch.ordered(
                self.who._replace(flags=Flags(0)), before, self.knows
            ):
                both = strong and bool(before.flags & Flags.STRONG)
                found[places] = SEVERAL_STRONG if both else SEVERAL
        return found

    def report(
        self, case: Detected, address: int, before: Who | None, count: int
    ) -> None:
        """Keep a problem."""
        self.watch.add(
            _noted(case, address, self.who, before, count, _apart(self.who, before))
        )


def _noted(
    case: Detected, address: int, now: Who, before: Who | None, count: int, apart: int
) -> Noted[Who]:
    """A problem of a word."""
    wrote = before is not None and bool(before.flags & Flags.WRITE)
    writes = bool(now.flags & Flags.WRITE)
    return Noted(
        case,
        address,
        address + WORD,
        now,
        before,
        count,
        wrote,
        writes,
        now.group,
        apart=apart,
    )


def _apart(who: Who, before: Who | None) -> int:
    """How far apart two accesses are; in a cluster, warps may be in any block."""
    if before is None or before.group != who.group:
        return int(clocks.Apart.GROUP)
    return 0 if before.agent == who.agent else int(clocks.Apart.WARP)


def _distinct(
    records: NDArray[np.int32], where: NDArray[np.bool_]
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """The records without their masks, and the words that have each."""
    places = np.flatnonzero(where)
    names = records[places] >> MASK_BITS
    for name in np.unique(names).tolist():
        yield name << MASK_BITS, places[names == name]


def _shadow(data: NDArray[np.uint8]) -> _Shadow:
    words = -(-data.size // WORD) + 32  # a vector at the end may go beyond it
    marks = empties.marks(data)
    return _Shadow(
        np.zeros(words, np.int32), np.zeros(words, np.int32), marks, data.size
    )
