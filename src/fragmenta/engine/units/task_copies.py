"""Copies that machine code issued, as an observer and a recorder see them.

Compiled code observes the usual ones itself.  It calls Python for the others, with the
record of the task.  A recorder has a copy of that record, and asks for all that is in
it after the copy is done.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from fragmenta.engine.simt.layout import LANES, RANK_BITS
from fragmenta.engine.units.blocks import Block, Thread
from fragmenta.engine.units.events import first, numbers
from fragmenta.engine.units.fast import task_layout as at
from fragmenta.engine.units.lane_copies import WarpCopy, lane_pairs
from fragmenta.engine.units.records import Bytes, Word
from fragmenta.engine.units.tasks import TaskFields
from fragmenta.engine.units.work import (
    CopiedBox,
    Copy,
    Pair,
    Range,
    Starts,
    Work,
    pairs,
    pieces,
    ranks,
)
from fragmenta.engine.units.work import CopyBlock as At
from fragmenta.reference.shared.box_layouts import numbered
from fragmenta.reference.shared.swizzles import exchanged

UNIT = 16


class TaskRecord(TaskFields):
    """The record of a task: who issued it, what it reads and writes."""

    index = Word(at.TASK_INDEX)
    ranks = Word(at.TASK_RANKS)
    line = Word(at.TASK_LINE)
    swizzle = Word(at.TASK_SWIZZLE)
    source = Word(at.TASK_SOURCE)

    def long(self, offset: int, count: int = 1) -> list[int]:
        """Numbers of 64 bits."""
        found: list[int] = self.longs[offset >> 3 : (offset >> 3) + count].tolist()
        return found

    @property
    def members(self) -> int:
        """The lanes that issued it."""
        return self.lanes & 0xFFFFFFFF

    # ── a bulk copy ─────────────────────────────────────────────────────────

    @property
    def goals(self) -> list[Range]:
        """What it writes."""
        return self.in_global if self.kind == at.STORE else self.in_shared

    @property
    def sources(self) -> list[Range]:
        """What it reads."""
        if self.kind == at.STORE:
            return self.in_shared
        if self.kind == at.LOAD:
            return self.in_global
        rank, offset = divmod(self.source, 1 << RANK_BITS)
        return [Range("shared", rank, offset, self.line)]

    def rows(self, first: int, steps: int) -> Starts:
        """Where each row begins, with the steps at a place of the record."""
        starts = np.array([first], np.int64)
        counts = self.long(at.TASK_COUNTS, 4)
        for count, step in zip(counts, self.long(steps, 4), strict=True):
            starts = np.add.outer(np.arange(count) * step, starts).reshape(-1)
        return starts

    @property
    def firsts(self) -> Starts:
        """The addresses of its rows in global memory."""
        return self.rows(self.long(at.TASK_FIRST)[0], at.TASK_STEPS)

    @property
    def in_shared(self) -> list[Range]:
        """The lines of its box, in each block."""
        lines = self.shared + np.arange(self.lines)[:, None] * self.pitch
        units: Starts = exchanged(
            lines + np.arange(0, self.line, UNIT), self.swizzle
        ).reshape(-1)
        return [
            each
            for rank in ranks(self.ranks)
            for each in pieces("shared", rank, units, UNIT)
        ]

    @property
    def in_global(self) -> list[Range]:
        """Its rows in global memory."""
        (row,) = self.long(at.TASK_ROW)
        return pieces("global", -1, self.firsts, row)

    @property
    def pairs(self) -> list[Pair]:
        """Which bytes it copies as they are, and from where."""
        if self.kind == at.LANE_COPY:
            given = map(self.of_lanes, (at.TASK_GOALS, at.TASK_COUNTED))
            goal, count = given
            return lane_pairs(self.rank, goal, self.lane_sources, count)
        if self.kind > at.LANE_COPY or self.flags >> at.OPERATION_AT & 0xFF:
            return []
        every = [Range("shared", r, self.shared, self.line) for r in ranks(self.ranks)]
        if self.kind == at.EXCHANGE:
            return [Pair(each, of) for of in self.sources for each in every]
        (row,), (skip,) = self.long(at.TASK_ROW), self.long(at.TASK_SKIP)
        steps, here = np.arange(row), self.rows(self.shared + skip, at.TASK_JUMPS)
        bytes_: Starts = exchanged(here[:, None] + steps, self.swizzle).reshape(-1)
        memory = (self.firsts[:, None] + steps).reshape(-1)
        tensor, found = Range("global", -1, memory, 1), []
        for each in every:
            box = each._replace(start=bytes_, size=1)
            both = (box, tensor) if self.kind == at.LOAD else (tensor, box)
            found += pairs(*both)
        return found

    # ── lanes that copy ─────────────────────────────────────────────────────

    def of_lanes(self, place: int) -> Starts:
        """A number of each lane that takes part: a goal, or how much it reads."""
        found = self.words[place >> 2 : (place >> 2) + LANES]
        return found[list(numbers(self.members))].astype(np.int64)

    @property
    def lane_sources(self) -> Starts:
        """Where each lane reads."""
        return np.array(self.long(at.TASK_SOURCES, LANES))[list(numbers(self.members))]


class TaskLaneCopy(WarpCopy):
    """A ``cp.async`` that machine code issued."""

    has_note = True

    def __init__(self, block: Block, memory: Bytes) -> None:
        self.record = record = TaskRecord(memory)
        self.members = record.members
        Work.__init__(self, -1)
        self.warp = block.warps[record.number]
        self.thread = Thread(self.warp, first(self.members))
        self.lanes = np.array(list(numbers(self.members)))
        self.size = record.line
        self.goal, self.count = map(record.of_lanes, (at.TASK_GOALS, at.TASK_COUNTED))
        self.source = record.lane_sources


class TaskCopy(Copy):
    """A copy that machine code issued."""

    name = "bulk copy"
    has_note = True

    def __init__(self, block: Block, memory: Bytes) -> None:
        self.record = record = TaskRecord(memory)
        lanes = record.members
        thread = Thread(block.warps[record.number], lanes.bit_length() - 1)
        super().__init__(block, thread, -1)
        self.members = lanes
        self.mbarriers = [
            block.cluster.blocks[rank].mbarriers[record.mbarrier]
            for rank in ranks(record.signals)
        ]
        (address,) = record.long(at.TASK_MAP)
        if address:
            self.map_range = Range("global", -1, address, 128)

    @property
    def completes(self) -> str:
        """How it completes."""
        return "mbarrier" if self.mbarriers else "bulk_group"

    @property
    def proxy(self) -> str:
        """It uses the async proxy."""
        return "async"

    @property
    def combines(self) -> bool:
        """Whether it is a reduction."""
        return bool(self.record.flags >> at.OPERATION_AT & 0xFF)

    def counted_in(self, goal: int) -> int:
        """The mbarrier of each block counts what goes there."""
        return goal

    @cached_property
    def goals(self) -> list[Range]:
        """What it writes."""
        return self.record.goals

    @cached_property
    def sources(self) -> list[Range]:
        """What it reads."""
        return self.record.sources

    @property
    def box(self) -> CopiedBox | None:  # type: ignore[override]
        """The box that it loads by a tensor map."""
        record = self.record
        if record.kind != at.LOAD:
            return None
        (form,) = record.long(at.TASK_FORM)
        number = ctypes.c_int64.from_address(form + at.MAP_LAYOUT).value if form else 0
        layout = numbered(number) if number else None
        place = tuple(record.long(at.TASK_COORDINATES, 5))
        return CopiedBox(layout, ranks(record.ranks), record.shared, place)

    @property
    def useful(self) -> list[Range]:
        """Of a store, the part of the box that is in the tensor."""
        return pieces(*self._stored) if self.useless else self.sources

    @cached_property
    def useless(self) -> list[Range]:
        """The rest of the box."""
        if self.record.kind != at.STORE:
            return []
        space, rank, stored, size = self._stored
        every = [
            (each.starts[:, None] + np.arange(0, each.size, UNIT)).reshape(-1)
            for each in self.sources
        ]
        others = np.setdiff1d(np.concatenate(every), stored)
        return pieces(space, rank, others, size)

    @cached_property
    def _stored(self) -> tuple[str, int, Starts, int]:
        """The units of shared memory that a store moves."""
        record = self.record
        (row,), (skip,) = record.long(at.TASK_ROW), record.long(at.TASK_SKIP)
        rows = record.rows(record.shared + skip, at.TASK_JUMPS)
        units = rows[:, None] + np.arange(0, row, UNIT)
        places: Starts = exchanged(units.reshape(-1), record.swizzle)
        return "shared", ranks(record.ranks)[0], places, UNIT

    def follow(self, shadow: At, values: Sequence[int] = ()) -> Starts:
        """Make the same copy in other memory; only stores are asked for."""
        record = self.record
        assert record.kind == at.STORE
        assert not self.combines
        _, size = record.long(at.TASK_FIRST, 2)
        (skip,) = record.long(at.TASK_SKIP)
        (rank,) = ranks(record.ranks)
        source = shadow.cluster.blocks[rank].shared
        here = record.rows(record.shared + skip, at.TASK_JUMPS)
        for there, start in zip(record.firsts.tolist(), here.tolist(), strict=True):
            goal, index = shadow.memory(there)
            places = start + np.arange(size)
            goal[index : index + size] = source[exchanged(places, record.swizzle)]
        return np.empty(0, np.int64)
