"""The shadow of global memory: who accessed each word last, during a launch.

A :class:`GlobalWatch` belongs to a launch.  Each block has a :class:`Ledger`, which
compiled code reads (:mod:`fragmenta.watch.races.shadow.global_memory`).  What the copy
engine accesses is checked here: :meth:`GlobalWatch.touch`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from threading import Lock
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt import empties, layout
from fragmenta.engine.simt.compiled import aligned, fresh
from fragmenta.watch.races.order import Clock, covers, joined, knows
from fragmenta.watch.races.shadow import global_records
from fragmenta.watch.races.shadow.detected import Detected
from fragmenta.watch.races.shadow.global_records import (
    ENTRY,
    FIRST_ID,
    ID_SHIFT,
    MASK_BITS,
    NARROW,
    PAIR,
    QUAD,
    SEVERAL,
    SEVERAL_STRONG,
    WORD,
    Flags,
    composite,
)
from fragmenta.watch.races.shadow.layout import Apart
from fragmenta.watch.races.shadow.problem_table import (
    DetectedProblem,
    Moment,
    ProblemTable,
)

MOST_PRECISE = 1024
"""With more groups than this, all that acquire share what any of them released: the
work would grow with the square of their number."""

Knows = Callable[[int, int, int], bool]
"""Whether a thread knows what an agent's lane did in an epoch: (agent, lane, epoch)."""


Same = Callable[["Who", NDArray[np.int64]], NDArray[np.bool_]]
"""Whether a copy writes to some words what an earlier one wrote there, for each word:
the earlier access, and the addresses of the words."""


class Who(NamedTuple):
    """An access: who made it, when, where in the kernel, and of which kind."""

    site: int
    group: int
    agent: int
    lane: int
    epoch: int
    flags: Flags

    @property
    def moment(self) -> Moment:
        """The access without its kind."""
        return Moment(*self[:5])


class Segment(Protocol):
    """An array of a launch in global memory."""

    @property
    def slot(self) -> int:
        """The upper bits of its addresses."""

    @property
    def data(self) -> NDArray[np.uint8]:
        """Its bytes."""

    @property
    def writable(self) -> bool:
        """Whether a kernel may write it."""


class Ledger:
    """What compiled code needs to check the accesses of one block."""

    def __init__(self, watch: GlobalWatch) -> None:
        self.memory = aligned(global_records.LEDGER_BYTES)
        self.narrow = self.memory.view(np.int32)
        self.wide = self.memory.view(np.int64)
        self.narrow[global_records.LIMIT // 4] = watch.limit
        self.narrow[global_records.SPLIT_LIMIT // 4] = watch.split.limit
        self.wide[global_records.FOREIGN_OF // 8] = -1
        for place, memory in (
            (global_records.SHADOWS, watch.pointers),
            (global_records.TABLE, watch.table),
            (global_records.NEXT, watch.following),
            (global_records.SPLITS, watch.split.records),
            (global_records.NEXT_SPLIT, watch.split.following),
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

    def cluster(self, group: int) -> None:
        """Say that the block belongs to a cluster: its group is not its own number."""
        self.narrow[global_records.CLUSTERED // 4] = 1
        self.narrow[global_records.GROUP // 4] = group

    def knows(self, group: int, foreign: Foreign) -> None:
        """Say what the group that runs here has learned of others."""
        self.wide[global_records.FOREIGN // 8] = foreign.components.ctypes.data
        self.wide[global_records.STAMPS // 8] = foreign.stamps.ctypes.data
        self.wide[global_records.FOREIGN_OF // 8] = group


class Foreign:
    """What one group knows of all others, through the generic proxy."""

    def __init__(
        self, watch: GlobalWatch, components: NDArray[np.int32] | None = None
    ) -> None:
        shape = (watch.groups, 3, watch.row)
        self.components = (
            np.zeros(shape, np.int32) if components is None else components
        )
        self.stamps = np.zeros((global_records.MOST_STAMPS + 1, 4), np.int32)
        self._stamped: set[tuple[int, int, bool]] = set()
        self.rows: dict[int, Clock] = {}
        """What it has learned of each group; such an array is never changed."""

    def put(self, group: int, row: Clock) -> None:
        """Learn what a group released."""
        known = self.rows.get(group)
        if known is row:
            return
        if known is not None and not covers(row, known):
            row = joined(known, row)
        self.rows[group] = row
        self.components[group] = row[0]

    def stamp(self, agent: int, epoch: int, lanes: int, itself: bool = True) -> None:
        """Note that lanes have acquired; the first time counts for each of them.

        Without ``itself``, only those know it that come after them by a barrier.
        """
        key = (agent, lanes, itself)
        count = int(self.stamps[0, 0])
        if key in self._stamped or count < 0:
            return
        self._stamped.add(key)
        if count == global_records.MOST_STAMPS:
            self.stamps[0, 0] = -1
            return
        first = (lanes & -lanes).bit_length() - 1
        signed = lanes - (1 << 32) if lanes >> 31 else lanes
        self.stamps[count + 1] = agent, epoch, signed if itself else 0, first
        self.stamps[0, 0] = count + 1


class _Shadow(NamedTuple):
    """The records of one segment."""

    writes: NDArray[np.int32]
    reads: NDArray[np.int32]
    unwritten: NDArray[np.uint8] | None
    size: int
    plain: NDArray[np.int32]
    """Plain writes before strong ones, where the last write is strong."""


class SplitWords:
    """The table of words whose bytes were written by several lanes."""

    def __init__(self, most: int = global_records.MOST_SPLIT) -> None:
        # Memory that is never touched costs nothing.
        self.records = np.zeros((most, WORD), np.int32)
        self.following = np.zeros(1, np.int32)
        # Machine code takes the first lines, Python the last ones.
        self.limit = most - most // 8
        self._last = most
        self.full = False
        """Whether Python found no line."""

    def parts(self, records: NDArray[np.int32]) -> NDArray[np.int32]:
        """The record of each byte of some words, (words, 4); 0 if there is none."""
        bytes_ = np.arange(WORD, dtype=np.int32)
        masks = records[:, None] & 0b1111
        pair, quad = masks == PAIR, masks == QUAD
        back = np.where(quad, 3 - bytes_, np.where(pair & (bytes_ < 2), 1, 0))
        bits = np.where(pair | quad, 0b1111, masks) & 1 << bytes_
        made = records[:, None] - masks - (back << MASK_BITS) + bits
        made = np.where(bits == 0, 0, made).astype(np.int32)
        split = records < 0
        lines = (records[split] & ~np.int32(global_records.SPLIT)) >> MASK_BITS
        made[split] = self.records[lines]
        return made

    def joined(self, old: int, mine: int) -> int:
        """The record of a word after some of its bytes were written."""
        bytes_ = mine & 0b1111
        before = np.array([old], np.int32)
        if not composite(before)[0] and not old & 0b1111 & ~bytes_:
            return mine
        parts = self.parts(before)[0]
        for byte in range(WORD):
            if bytes_ >> byte & 1:
                parts[byte] = mine - bytes_ + (1 << byte)
        if old >= 0:
            if self._last <= self.limit:
                self.full = True
                return mine  # the others are forgotten
            self._last -= 1
            line, old = self._last, self._last << MASK_BITS | 0b1111
            old |= global_records.SPLIT
        else:
            line = (old & ~global_records.SPLIT) >> MASK_BITS
        self.records[line] = parts
        return old


class GlobalWatch:
    """The records of a launch.

    ``segments`` are its memory, ``groups`` how many groups of blocks there are (blocks
    or clusters), ``row`` how many agents each array of a clock has room for.
    """

    def __init__(
        self,
        segments: Iterable[Segment],
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
        self.split = SplitWords()
        self.pointers = np.zeros((layout.SLOTS, 4), np.int64)
        self._shadows: dict[int, _Shadow] = {}
        for each in segments:
            if each.writable:
                self._shadows[each.slot] = _shadow(each.data)
        for slot, made in self._shadows.items():
            marks = 0 if made.unwritten is None else made.unwritten.ctypes.data
            records = (made.writes, made.reads, made.plain)
            writes, reads, plain = (each.ctypes.data for each in records)
            self.pointers[slot] = writes, reads, marks, plain
        self._ledgers: list[Ledger] = []
        self._tables: dict[int, ProblemTable] = {}
        """The tables of problems of all clusters that run, by address."""
        self._foreign: dict[int, Foreign] = {}
        self._shared: Foreign | None = None
        self._copied: dict[tuple[Detected, int, int], DetectedProblem] = {}
        """The problems of copies."""
        self._ids: dict[tuple[int, int, int, int], int] = {}
        self._full = self._updated = False
        self.told = np.zeros(groups + 1, np.uint8)
        """Whether a group has learned anything of others."""
        self.fenced = np.zeros(groups + 1, np.uint8)
        """Whether a group has a proxy fence since it learned something of others."""

    def ledger(self, problems: ProblemTable) -> Ledger:
        """A ledger for a block, whose problems are noted in this table."""
        self._ledgers.append(Ledger(self))
        self._tables[problems.address] = problems
        return self._ledgers[-1]

    @property
    def shadows(self) -> list[_Shadow]:
        """The records of all segments that can be written."""
        return list(self._shadows.values())

    @property
    def records(self) -> dict[int, NDArray[np.int32]]:
        """The records of writes, by slot."""
        return {slot: each.writes for slot, each in self._shadows.items()}

    @property
    def full(self) -> bool:
        """Whether some accesses were left out, because there were too many."""
        return (
            self._full
            or self.split.full
            or any(each.narrow[global_records.FULL // 4] for each in self._ledgers)
        )

    @property
    def updated(self) -> bool:
        """Whether an atomic operation changed a word that was read before.

        Such reads are not among :meth:`reads`: a write replaces them.
        """
        return self._updated or any(
            each.narrow[global_records.UPDATED // 4] for each in self._ledgers
        )

    @property
    def lines(self) -> tuple[slice, slice]:
        """The lines of the table that are used."""
        taken = min(int(self.following[0]), self.limit)
        return slice(FIRST_ID, taken), slice(self._last, self.table.size)

    @property
    def scoped(self) -> bool:
        """Whether an atomic operation had a scope that leaves other blocks out."""
        for lines in self.lines:
            flags = self.table[lines]["flags"]
            if ((flags & Flags.ATOMIC != 0) & (flags & NARROW != 0)).any():
                return True
        return False

    def reads(self, slot: int) -> NDArray[np.bool_]:
        """Which bytes of a segment were read and not written since then."""
        shadow = self._shadows[slot]
        masks = shadow.reads[:, None] >> np.arange(WORD) & 1
        return masks.astype(np.bool_).reshape(-1)[: shadow.size]

    @property
    def unset(self) -> bool:
        """Whether there is unwritten memory."""
        return any(each.unwritten is not None for each in self._shadows.values())

    # ── other groups ────────────────────────────────────────────────────────

    def foreign(self, group: int) -> Foreign:
        """What a group knows of others; made when it first learns something."""
        if group not in self._foreign:
            everyone = self.everyone
            components = None if everyone is None else everyone.components
            self._foreign[group] = Foreign(self, components)
            self.told[group] = 1
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
        if self.fenced[group] or group not in self._foreign:
            return True
        row = self._foreign[group].rows.get(before.group)
        if row is None or len(row) < 2:
            return True
        return knows(row[1], before.agent, before.lane, before.epoch)

    # ── asynchronous accesses ───────────────────────────────────────────────

    def touch(
        self,
        who: Who,
        spans: Iterable[tuple[int, int]],
        knows: Knows,
        fenced: Knows | None = None,
        same: Same | None = None,
    ) -> None:
        """An access that is not by a load or store: a copy of so many bytes each.

        ``who`` accesses the memory; ``knows`` is what the thread knows that issued it,
        and ``fenced`` what it knows in the async proxy.  ``same`` compares what it
        writes with what another copy wrote.
        """
        number = self._id(who)
        if not number:
            return
        for address, size in spans:
            shadow = self._shadows.get(address >> layout.SLOT_BITS)
            start = address & (1 << layout.SLOT_BITS) - 1
            if shadow is not None and 0 < size <= shadow.size - start:
                touch = _Touch(self, who, number, knows, fenced, same)
                self._span(touch, shadow, start, size, address)

    def touch_rows(
        self,
        who: Who,
        starts: NDArray[np.int64],
        size: int,
        knows: Knows,
        fenced: Knows | None = None,
        same: Same | None = None,
    ) -> None:
        """The same for pieces of one size, such as the rows of a box."""
        slots = starts >> layout.SLOT_BITS
        shadow = self._shadows.get(int(slots[0])) if starts.size else None
        offsets = starts & (1 << layout.SLOT_BITS) - 1
        plain = not (starts % WORD).any() and size % WORD == 0 and size > 0
        if shadow is None and (slots == slots[:1]).all():
            return
        if shadow is None or not plain or (slots != slots[0]).any():
            spans = [(int(each), size) for each in starts]
            self.touch(who, spans, knows, fenced, same)
            return
        number = self._id(who)
        offsets = offsets[offsets + size <= shadow.size]
        if number and offsets.size:
            words = (offsets[:, None] // WORD + np.arange(size // WORD)).ravel()
            touch = _Touch(self, who, number, knows, fenced, same)
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
        if touch.who.flags & Flags.STRONG:
            shadow.plain[words] = self._behind(
                touch, writes, shadow.plain[words], 0b1111, base, words
            )
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
            self._note_update(touch.who, reads)
            shadow.writes[words] = own
            shadow.reads[words] = 0
        else:
            others = touch.second_read(reads)
            several = others << ID_SHIFT | reads & 0b1111
            shadow.reads[words] = np.where(others, several, own)

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
        if touch.who.flags & Flags.STRONG:
            plain = shadow.plain[first:last]
            plain[:] = self._behind(touch, writes, plain, masks, base)
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
            self._note_update(touch.who, reads)
            writes[masks == 0b1111] = own | 0b1111
            for each in np.flatnonzero(masks != 0b1111):  # at its ends
                mine = int(own | masks[each])
                writes[each] = self.split.joined(int(writes[each]), mine)
            reads &= ~masks
            reads[(reads & 0b1111) == 0] = 0
        else:
            others, both = touch.second_read(reads), reads & masks
            several = others << ID_SHIFT | both
            reads[:] = np.where((others != 0) & (both != 0), several, own | masks)

    def _behind(
        self,
        touch: _Touch,
        writes: NDArray[np.int32],
        plain: NDArray[np.int32],
        masks: NDArray[np.int32] | int,
        base: int,
        words: NDArray[np.int64] | None = None,
    ) -> NDArray[np.int32]:
        """The plain writes before strong ones, after one more strong write.

        It is compared with those that are there.
        """
        one = (writes != 0) & ~composite(writes)
        flags = self.table["flags"][np.where(one, writes >> ID_SHIFT, 0)]
        strong = one & (flags & Flags.STRONG != 0)
        some = np.where(strong, plain, 0).astype(np.int32)
        touch.compare(some, masks, Detected.WRITE_WRITE, base, words)
        return np.where(strong, plain, writes).astype(np.int32)

    def _note_update(self, who: Who, reads: NDArray[np.int32]) -> None:
        if who.flags & Flags.ATOMIC and reads.any():
            self._updated = True

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

    def written(self, address: int, size: int) -> Who | None:
        """The last write of this launch to some bytes, whole words; None: no write."""
        shadow = self._shadows.get(address >> layout.SLOT_BITS)
        if shadow is None:
            return None
        first = (address & (1 << layout.SLOT_BITS) - 1) // WORD
        some = self.split.parts(shadow.writes[first : first + size // WORD])
        for record in some.ravel().tolist():
            lane = record >> MASK_BITS & 31
            found = self.who(record >> ID_SHIFT, lane) if record else None
            if found is not None:
                return found
        return None

    def add(self, problem: DetectedProblem) -> None:
        """Keep a problem of a copy."""
        with self._lock:
            _count(self._copied, problem)

    def found(self) -> list[DetectedProblem]:
        """All problems so far, of copies and of compiled code."""
        every = dict(self._copied)
        for table in self._tables.values():
            for each in table.found("global"):
                _count(every, each)
        return sorted(every.values(), key=lambda each: (each.case, each.now))

    # ── slow answers, for Python ────────────────────────────────────────────

    def ordered(self, who: Who, before: Who, known: Knows) -> bool:
        """Whether an access is ordered after an earlier one."""
        both = bool(who.flags & before.flags & Flags.STRONG)
        if before.group == who.group:  # copies have the scope of the GPU
            near = both and not before.flags & Flags.CTA
            return near or known(before.agent, before.lane, before.epoch)
        if both and not before.flags & (Flags.CTA | Flags.CLUSTER):
            return True
        if before.group >= self.groups or who.group not in self._foreign:
            return False
        clock = self._foreign[who.group].components[before.group]
        return knows(clock, before.agent, before.lane, before.epoch)


class _Touch(NamedTuple):
    """One asynchronous access while its records are compared."""

    watch: GlobalWatch
    who: Who
    number: int
    knows: Knows
    fenced: Knows | None
    same: Same | None = None

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
        several = composite(records)
        if case is Detected.READ_WRITE or not several.any():
            self._compare(records, masks, case, address, words)
            return
        self._compare(np.where(several, 0, records), masks, case, address, words)
        places = np.flatnonzero(several)
        parts = self.watch.split.parts(records[places])
        masks = np.broadcast_to(np.asarray(masks, np.int32), records.shape)[places]
        numbers = places if words is None else words[places]
        for byte in range(WORD):
            one = np.where(masks >> byte & 1, parts[:, byte], 0)
            for other in range(byte):  # a writer is looked at once
                known = (masks >> other & 1) * parts[:, other] >> MASK_BITS
                one = np.where(known == one >> MASK_BITS, 0, one)
            self._compare(one, 0b1111, case, address, numbers)

    def _compare(
        self,
        records: NDArray[np.int32],
        masks: NDArray[np.int32] | int,
        case: Detected,
        address: int,
        words: NDArray[np.int64] | None,
    ) -> None:
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
            some = address + WORD * (places if words is None else words[places])
            if not good:
                self._unordered(case, some, before)
            elif before is not None and self._unfenced(before):
                self.report(Detected.GLOBAL_PROXY, int(some[0]), before, len(places))

    def _unordered(
        self, case: Detected, words: NDArray[np.int64], before: Who | None
    ) -> None:
        """Report words; those apart that both wrote with the same value."""
        equal = np.zeros(words.size, np.bool_)
        comparable = self.same is not None and case is Detected.WRITE_WRITE
        if comparable and self.same is not None and before is not None:
            equal = self.same(before, words)
        for kind, chosen in (
            (case, words[~equal]),
            (Detected.GLOBAL_SAME_VALUE, words[equal]),
        ):
            if chosen.size:
                self.report(kind, int(chosen[0]), before, chosen.size)

    def _unfenced(self, before: Who) -> bool:
        """Whether a plain write of the same group has no proxy fence after it."""
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
            DetectedProblem(
                case,
                address,
                address + WORD,
                self.who.moment,
                None if before is None else before.moment,
                count,
                before is not None and bool(before.flags & Flags.WRITE),
                bool(self.who.flags & Flags.WRITE),
                apart=_apart(self.who, before),
            )
        )


def _count(
    every: dict[tuple[Detected, int, int], DetectedProblem], problem: DetectedProblem
) -> None:
    """Add a problem, once for each case and pair of instructions."""
    known = every.get(problem.key)
    if known is not None:
        count, apart = known.count + problem.count, known.apart | problem.apart
        shown = min(known, problem, key=lambda each: each.rank)
        problem = replace(shown, count=count, apart=apart)
    every[problem.key] = problem


def _apart(who: Who, before: Who | None) -> int:
    """How far apart two accesses are; in a cluster, warps may be in any block."""
    if before is None or before.group != who.group:
        return int(Apart.GROUP)
    return 0 if before.agent == who.agent else int(Apart.WARP)


def _distinct(
    records: NDArray[np.int32], where: NDArray[np.bool_]
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """The records without their masks, and the words that have each."""
    places = np.flatnonzero(where)
    names = records[places] >> MASK_BITS
    for name in np.unique(names).tolist():
        yield name << MASK_BITS, places[names == name]


def _shadow(data: NDArray[np.uint8]) -> _Shadow:
    words = -(-data.size // WORD) + 32  # a vector at the end may go past it
    marks = empties.marks(data)
    writes, reads, plain = (fresh(4 * words).view(np.int32) for _ in range(3))
    return _Shadow(writes, reads, marks, data.size, plain)
