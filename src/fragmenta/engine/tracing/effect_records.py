"""Reads the notes that machine code wrote of what units did."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from fragmenta.engine.simt import layout as engine
from fragmenta.engine.tracing.log import EffectRows, Words
from fragmenta.engine.tracing.trace import (
    Bytes,
    CopiedBytes,
    Mark,
    Moved,
    Starts,
    TraceContext,
    Unit,
    Wait,
    Where,
)
from fragmenta.engine.units.fast import layout as units
from fragmenta.engine.units.fast import task_layout as tasks
from fragmenta.engine.units.fast import tensor_layout as tensors
from fragmenta.engine.units.task_copies import TaskRecord
from fragmenta.engine.units.tcgen05_sources import read_ranges
from fragmenta.engine.units.warpgroups import ProductRecord, read_units
from fragmenta.engine.units.work import Pair, Range, ranks
from fragmenta.ptx.effects import Effect, find

if TYPE_CHECKING:
    from fragmenta.engine.simt.compiled import Compiled
    from fragmenta.reference.isa.instruction import Instruction

LANES, WARPS = engine.LANES, 4
LOADED = -2
"""The key of a load of tensor memory, which is done at once."""
POISON = np.frombuffer(engine.POISON.to_bytes(4, "little"), np.uint8)


class Gatherer(Protocol):
    """Hears of notes: :class:`fragmenta.engine.tracing.gathering.Gathering`."""

    def at(self, time: int, step: int) -> None:
        """An event, and the step at which it was."""

    def phase(self, block: int, offset: int) -> int:
        """The phase of an mbarrier."""

    def issued(self, key: int, made: Unit) -> None:
        """Work is in flight from now on."""

    def moved(self, key: int, moved: list[Moved]) -> None:
        """A unit has read or written bytes."""

    def copied(self, key: int, copied: list[CopiedBytes]) -> None:
        """A unit has copied bytes."""

    def done(self, key: int, step: int) -> None:
        """A unit has written its results."""

    def late(self, key: int, step: int, site: int, warp: int, words: Words) -> None:
        """A unit has written registers of a warp, or has hidden them."""

    def mark(self, mark: Mark) -> None:
        """Something happened at a barrier."""

    def waited(self, wait: Wait) -> None:
        """Lanes have waited for something."""


class EffectRecord(NamedTuple):
    """A note: who did something and when, and what is written down with it."""

    kind: int
    step: int
    site: int
    """A number of ``Compiled.places``."""
    block: int
    """The place of the block among those that are recorded."""
    rank: int
    warp: int
    lanes: int
    time: int
    number: int
    payload: Words

    def place(self, rank: int) -> int:
        """The place of another block of the cluster."""
        return self.block + rank - self.rank

    def bytes(self, first: int = 0) -> Bytes:
        """The payload from a byte on."""
        return self.payload.view(np.uint8)[first:]


def _note(notes: EffectRows, number: int) -> EffectRecord:
    row = notes.rows[number]
    kind, step, site, block, rank, warp, lanes, _ = row[:8].view(np.int32).tolist()
    time, about, begin, words = row[8:].view(np.int64).tolist()
    payload = notes.payload[begin : begin + words]
    who = kind, step, site, block, rank, warp, lanes & 0xFFFFFFFF
    return EffectRecord(*who, time, about, payload)


class WrittenCells(NamedTuple):
    """Cells of tensor memory that a task writes: some lanes, and adjacent columns."""

    block: int
    starts: Starts
    columns: int

    @property
    def bytes(self) -> int:
        """How many bytes they have."""
        return 4 * self.columns * self.starts.size

    def moved(self, note: EffectRecord, data: Bytes | None = None) -> Moved:
        """That they are written; without bytes, that they will be."""
        where = "tensor", self.block
        return Moved(note.step, where, self.starts, 4 * self.columns, data)

    def hidden(self, note: EffectRecord) -> Moved:
        """That a reader sees poison there."""
        return self.moved(note, np.resize(POISON, self.bytes))


class Issued(NamedTuple):
    """A task as it was issued."""

    record: TaskRecord
    cells: list[WrittenCells]
    """The cells of tensor memory that it writes."""


class Reader:
    """Tells a gatherer what notes say."""

    def __init__(self, known: TraceContext, to: Gatherer) -> None:
        self._known, self._to = known, to
        self._tasks: dict[int, Issued] = {}
        """Tasks as they were issued, by their ordinals."""
        self._events = {each.site: each for each in known.events}
        self._kinds: dict[int, Callable[[EffectRecord], None]] = {
            units.NOTE_MBARRIER: self._mbarrier,
            units.NOTE_WAITED: self._waited,
            units.NOTE_ISSUED: self._issued,
            units.NOTE_HIDDEN: self._hidden,
            units.NOTE_DONE: self._done,
            units.NOTE_PRODUCT: self._product,
            units.NOTE_RAN: self._ran,
            units.NOTE_HELD: self._held,
            units.NOTE_FAILED: self._failed,
            units.NOTE_MULTIPLIED: self._multiplied,
            units.NOTE_GROUP: self._group,
            units.NOTE_LANES: self._lanes,
            units.NOTE_ARRIVED: self._arrived,
            units.NOTE_PASSED: self._passed,
            units.NOTE_LOADED: self._loaded,
            units.NOTE_MOVED: self._moved,
        }

    def read(self, notes: EffectRows, number: int) -> None:
        """Read one note."""
        note = _note(notes, number)
        self._to.at(note.time, note.step)
        if note.kind in self._kinds:
            self._kinds[note.kind](note)

    # ── mbarriers and waits ─────────────────────────────────────────────────

    def _mbarrier(self, note: EffectRecord) -> None:
        """The bits of an mbarrier have changed."""
        words = note.payload.view(np.int32)
        pending, bytes_, expected = (
            int(words[each >> 2])
            for each in (
                units.MBARRIER_PENDING,
                units.MBARRIER_TX,
                units.MBARRIER_EXPECTED,
            )
        )
        block, offset = self._place(note)
        phase = int(note.bytes(units.MBARRIER_PHASE)[:8].view(np.int64)[0])
        packed = (phase & 0xFFFFFF) << 40 | (bytes_ & 0xFFFFF) << 20
        bits = (packed | pending & 0xFFFFF) ^ units.MARK
        data = np.frombuffer(bits.to_bytes(8, "little"), np.uint8)
        starts = np.array([offset], np.int64)
        self._to.moved(-1, [Moved(note.step, ("shared", block), starts, 8, data)])
        state = phase, pending, bytes_, -1, expected
        self._to.mark(Mark(note.step, "mbarrier", block, offset, *state))

    def _place(self, note: EffectRecord) -> tuple[int, int]:
        """The place of the block of an mbarrier, and where it is there."""
        address = int(note.payload[units.MBARRIER_PLACE >> 2])
        rank, offset = divmod(address, 1 << engine.RANK_BITS)
        return note.place(rank), offset

    def _waited(self, note: EffectRecord) -> None:
        block, offset = self._place(note)
        wait = Wait(note.step, note.warp, "mbarrier", note.number)
        self._to.waited(wait._replace(block=block, offset=offset))

    def _multiplied(self, note: EffectRecord) -> None:
        self._to.waited(Wait(note.step, note.warp, "wgmma_group", note.number))

    def _group(self, note: EffectRecord) -> None:
        read = "read" in self._events[note.site].words
        self._to.waited(Wait(note.step, note.warp, "bulk_group", note.number, read))

    def _lanes(self, note: EffectRecord) -> None:
        self._to.waited(Wait(note.step, note.warp, "async_group", note.number))

    def _moved(self, note: EffectRecord) -> None:
        words = self._events[note.site].words
        kind = next(each for each in words if each.startswith("wait::"))
        self._to.waited(Wait(note.step, note.warp, kind, 0))

    def _arrived(self, note: EffectRecord) -> None:
        self._to.mark(Mark(note.step, "cluster arrive", -1, 0, 0, 0, 0, note.warp))

    def _passed(self, note: EffectRecord) -> None:
        self._to.waited(Wait(note.step, note.warp, "cluster", note.number))

    # ── copies ──────────────────────────────────────────────────────────────

    def _effect(self, site: int) -> Effect:
        found = find(self._events[site].mnemonic)
        assert found is not None
        return found

    def _issued(self, note: EffectRecord) -> None:
        """A task is in flight."""
        record = TaskRecord(note.bytes()[: tasks.TASK_RECORD].copy())
        (ordinal,) = record.long(tasks.TASK_ORDINAL)
        cells = _cells(note, record)
        self._tasks[ordinal] = Issued(record, cells)
        made = self._unit(note)
        offset = record.mbarrier
        blocks = [note.place(rank) for rank in ranks(record.signals)]
        made.signals = tuple((b, offset, self._to.phase(b, offset)) for b in blocks)
        made.group = note.number
        for each in _goals(record):
            made.goals += self._ranges(note, each)
        made.goals += [each.moved(note) for each in cells]
        self._to.issued(ordinal, made)

    def _unit(self, note: EffectRecord) -> Unit:
        effect = self._effect(note.site)
        kind, done_by = effect.instruction, effect.done_by
        return Unit(-1, kind, done_by, note.site, note.warp, note.lanes, note.step)

    def _hidden(self, note: EffectRecord) -> None:
        """A task in flight has hidden what it will write."""
        ordinal, (record, cells) = self._task(note)
        hidden = [each.hidden(note) for each in cells]
        self._to.moved(ordinal, hidden or self._written(note, record))

    def _done(self, note: EffectRecord) -> None:
        """A task has written its results."""
        ordinal, (record, cells) = self._task(note)
        self._tasks.pop(ordinal)
        sources = _sources(record) if record.kind < tasks.CELLS else self._read(record)
        read = [m for each in sources for m in self._ranges(note, each)]
        self._to.done(ordinal, note.step)
        if cells:
            wrote, data = [], note.bytes(tasks.TASK_EVENT)
            for each in cells:
                wrote.append(each.moved(note, data[: each.bytes]))
                data = data[each.bytes :]
        else:
            wrote = self._written(note, record)
        self._to.moved(ordinal, [*read, *wrote])
        self._to.copied(ordinal, copied(record.pairs, note.place, self._known.slots))

    def _read(self, record: TaskRecord) -> list[Range]:
        """What a product of ``tcgen05`` reads from shared memory."""
        if record.kind != tasks.PRODUCT:
            return []
        first = tasks.TASK_TENSOR + tensors.PRODUCT_PLACES
        (address,) = record.long(tasks.TASK_TENSOR + tensors.PRODUCT_FORM)
        form = self._known.tensor_products[address]
        found = []
        for place in record.long(first, 2):
            if place in form.sources:
                ranges, _, _ = read_ranges(form.key.op, *form.sources[place])
                found += [
                    each._replace(rank=rank)
                    for rank in _pair(record, form.key.op)
                    for each in ranges
                ]
        return found

    def _loaded(self, note: EffectRecord) -> None:
        """A warp has loaded cells of tensor memory; that is done at once."""
        made = self._unit(note)
        made.done = note.step
        self._to.issued(LOADED, made)
        count = note.payload.size // (2 + LANES)
        places = note.bytes()[: 8 * count].view(np.int64).tolist()
        words = note.payload[2 * count :]
        who = note.site, LOADED, note.warp
        self._registers(note, *who, tuple(places), words)

    def _task(self, note: EffectRecord) -> tuple[int, Issued]:
        ordinal = int(note.bytes(tasks.TASK_ORDINAL)[:8].view(np.int64)[0])
        return ordinal, self._tasks[ordinal]

    def _ranges(self, note: EffectRecord, of: Range) -> list[Moved]:
        """Bytes that a task touches."""
        if of.space == "shared":
            where = "shared", note.place(of.rank)
            return [Moved(note.step, where, of.starts, of.size)]
        return [
            Moved(note.step, where, starts, of.size)
            for where, starts, _ in self._in_slots(of.starts)
        ]

    def _in_slots(self, starts: Starts) -> list[tuple[Where, Starts, Starts]]:
        """Addresses of global memory: the memory, where in it, which of them."""
        slots, found = starts >> engine.SLOT_BITS, []
        for slot in np.unique(slots).tolist():
            if slot in self._known.slots:
                which = np.flatnonzero(slots == slot)
                offsets = starts[which] & (1 << engine.SLOT_BITS) - 1
                found.append((("global", slot), offsets, which))
        return found

    def _written(self, note: EffectRecord, record: TaskRecord) -> list[Moved]:
        """The bytes that a task has written, or hidden."""
        data = note.bytes(tasks.TASK_EVENT)
        if not data.size:
            return []
        if record.kind == tasks.STORE:
            (row,) = record.long(tasks.TASK_ROW)
            rows = data.reshape(-1, (row + 3) & ~3)[:, :row]
            return [
                Moved(note.step, where, starts, row, rows[which].reshape(-1))
                for where, starts, which in self._in_slots(record.firsts)
            ]
        if record.kind == tasks.LANE_COPY:
            goals = record.of_lanes(tasks.TASK_GOALS)
            where = "shared", note.place(record.rank)
            return [Moved(note.step, where, goals, record.line, data)]
        goals_of = {rank: n for n, rank in enumerate(ranks(record.ranks))}
        windows = data.reshape(len(goals_of), -1)
        first = record.shared & -tasks.EXCHANGED
        found = []
        for each in record.goals:
            places = each.starts[:, None] - first + np.arange(each.size)
            bytes_ = windows[goals_of[each.rank]][places].reshape(-1)
            where = "shared", note.place(each.rank)
            found.append(Moved(note.step, where, each.starts, each.size, bytes_))
        return found

    # ── products ────────────────────────────────────────────────────────────

    def _product(self, note: EffectRecord) -> None:
        """A product of a warpgroup is in flight."""
        product, made = ProductRecord(note.bytes().copy()), self._unit(note)
        made.group = product.group
        self._to.issued(product.ordinal, made)

    def _ran(self, note: EffectRecord) -> None:
        """A product has run: D of four warps is as it left it."""
        product = ProductRecord(note.bytes()[: units.PRODUCT_BYTES].copy())
        form, key = self._known.products[product.form], product.ordinal
        *descriptors, _ = product.given(len(form.located.descriptors))
        self._to.done(key, note.step)
        where = "shared", note.block
        read = [
            Moved(note.step, where, np.unique(starts.astype(np.int64)), 16)
            for _, starts, _ in read_units(form.located, descriptors)
        ]
        self._to.moved(key, read)
        self._left(note, key, product)

    def _failed(self, note: EffectRecord) -> None:
        """A product could not be computed: D is what it left there."""
        product = ProductRecord(note.bytes()[: units.PRODUCT_BYTES].copy())
        self._left(note, -1, product)

    def _left(self, note: EffectRecord, key: int, product: ProductRecord) -> None:
        """What a product left in D of four warps."""
        form = self._known.products[product.form]
        words = note.payload[units.PRODUCT_BYTES >> 2 :]
        for own, part in enumerate(words.reshape(WARPS, -1)):
            d = form.located.d
            self._registers(note, product.site, key, note.warp + own, d, part)

    def _held(self, note: EffectRecord) -> None:
        """A warp is held at a product, whose D may be hidden."""
        d = self._known.products[note.number].located.d
        self._registers(note, note.site, -1, note.warp, d, note.payload)

    def _registers(
        self,
        note: EffectRecord,
        site: int,
        key: int,
        warp: int,
        d: tuple[int, ...],
        words: Words,
    ) -> None:
        """Registers of a warp; a record has those of an instruction in its order."""
        rows = dict(zip(d, words.reshape(-1, LANES), strict=True))
        starts = late_registers(self._known.compiled, site)
        found = np.concatenate([rows[4 * each] for each in starts.tolist()])
        self._to.late(key, note.step, site, warp, found)


def copied(
    every: list[Pair], place: Callable[[int], int], slots: Collection[int]
) -> list[CopiedBytes]:
    """What was copied, with the memories in which it is.

    ``place`` is that of a block, by its rank; ``slots`` say where memory is.
    """
    found = []
    for to, of in every:
        goals, sources = (_one_memory(each, place) for each in (to, of))
        known = [
            each.where[0] != "global" or each.where[1] in slots
            for each in (goals, sources)
        ]
        if all(known):
            where = goals.where, goals.starts, sources.where, sources.starts
            found.append(CopiedBytes(*where, to.size))
    return found


class _In(NamedTuple):
    where: Where
    starts: Starts


def _one_memory(of: Range, place: Callable[[int], int]) -> _In:
    """The memory of some bytes; what is copied at once is in one of them."""
    if of.space != "global":
        return _In((of.space, place(of.rank)), of.starts)
    slot = int(of.starts[0]) >> engine.SLOT_BITS
    return _In(("global", slot), of.starts & (1 << engine.SLOT_BITS) - 1)


def late_registers(compiled: Compiled, site: int) -> Starts:
    """Where registers begin in a warp, in words, that an instruction writes later."""
    name, index = compiled.places[site]
    about = compiled.traced
    numbers = about["late"].get(name, {}).get(str(index), [])
    return np.array([about["registers"][name][n] >> 2 for n in numbers], np.int64)


def _cells(note: EffectRecord, record: TaskRecord) -> list[WrittenCells]:
    """The cells of tensor memory that a task will write."""
    if record.kind not in (tasks.CELLS, tasks.PRODUCT):
        return []
    product = record.kind == tasks.PRODUCT
    column = tensors.PRODUCT_PLACES + 8 * tensors.D if product else tensors.STORE_COLUMN
    (begin,) = record.long(tasks.TASK_TENSOR + column)
    regions = note.bytes(tasks.TASK_RECORD).reshape(-1, tensors.REGION_BYTES)
    # Of a pair, the first region is that of the first block.
    pair = product and len(regions) == 2
    found = []
    for number, each in enumerate(regions):
        mask = each[:16]
        lanes = np.flatnonzero(np.unpackbits(mask, bitorder="little")).astype(np.int64)
        first, columns = each[16:].view(np.int32).tolist()
        starts = (lanes * tensors.COLUMNS + begin + first) * 4
        rank = record.rank & ~1 | number if pair else record.rank
        found.append(WrittenCells(note.place(rank), starts, columns))
    return found


def _pair(record: TaskRecord, op: Instruction) -> list[int]:
    """The blocks that take part in a product of ``tcgen05``, by rank."""
    if op.cta_group == 2:
        return [record.rank & ~1, record.rank | 1]
    return [record.rank]


def _goals(record: TaskRecord) -> list[Range]:
    if record.kind == tasks.LANE_COPY:
        goals = np.sort(record.of_lanes(tasks.TASK_GOALS))
        return [Range("shared", record.rank, goals, record.line)]
    return record.goals if record.kind < tasks.LANE_COPY else []


def _sources(record: TaskRecord) -> list[Range]:
    if record.kind != tasks.LANE_COPY:
        return record.sources if record.kind < tasks.LANE_COPY else []
    used = record.of_lanes(tasks.TASK_COUNTED) > 0
    starts = np.sort(record.lane_sources[used])
    return [Range("global", -1, starts, record.line)] if starts.size else []
