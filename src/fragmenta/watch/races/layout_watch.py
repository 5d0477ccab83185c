"""The detector of tiles that are read in another layout than they were copied in.

It remembers for each block which box of a tensor map is where in shared memory, and
judges each operand of a product once for all blocks and stages with the same boxes:
:func:`fragmenta.reference.shared.copied_operands.mismatch`.  What threads have stored
since is not judged: the shadow of shared memory knows who wrote last.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.once import once
from fragmenta.engine.simt.compiled import address_of, aligned, callback_address, zeros
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.loaded import LoadedRoutines
from fragmenta.engine.units.blocks import Warp
from fragmenta.engine.units.events import Described, once_per_kernel
from fragmenta.engine.units.findings import Finding
from fragmenta.engine.units.port import Step
from fragmenta.engine.units.reset_schedule import ResetSchedule
from fragmenta.engine.units.tcgen05 import Queued
from fragmenta.engine.units.wgmma_forms import signed
from fragmenta.engine.units.work import Transfer
from fragmenta.ptx import rules
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.shared.box_layouts import BoxLayout, numbered
from fragmenta.reference.shared.copied_operands import (
    Box,
    Mismatch,
    SharedOperand,
    mismatch,
)
from fragmenta.reference.shared.descriptor import (
    MAJORS,
    UNIT,
    Descriptor,
    Family,
    MajorAxis,
)
from fragmenta.reference.shared.operands import major_of
from fragmenta.reference.shared.swizzles import REPEAT, WGMMA_SWIZZLES, pattern
from fragmenta.watch.races.judged import Judged, JudgedTable
from fragmenta.watch.races.report import layout_words
from fragmenta.watch.races.shadow import box_layout as at
from fragmenta.watch.races.shadow import layout as heads

if TYPE_CHECKING:
    from fragmenta.watch.races.observer import Observer

_LONG, _WORD, _POINTER = ctypes.c_int64, ctypes.c_int32, ctypes.c_void_p
ASK_LAYOUT = ctypes.CFUNCTYPE(None, *5 * (_LONG,))
ASK_ROWS = ctypes.CFUNCTYPE(None, *3 * (_LONG,), _POINTER)
_MATRIX = 8
"""Rows of one matrix of ``ldmatrix``."""
ALL = 0xFFFFFFFF
_SOURCES = 1 << 20
"""Addresses of sources are larger than numbers of operands."""
_NEAR = 8
"""How many boxes a descriptor is compared with that might be meant."""
_START = 0x3FFF
"""The bits of a descriptor that have the start address, in units."""


@once
def functions() -> tuple[Callable[..., None], Callable[..., None]]:
    """What notes a box, and what looks at an operand; loaded once."""
    # Tracing takes a while to import.
    from fragmenta.watch.races.shadow import boxes

    loaded = LoadedRoutines([boxes.WRITTEN, boxes.LOOK])
    kinds = (_POINTER, _WORD, _WORD, _LONG, *4 * (_WORD,), _POINTER)
    looking = (_POINTER, _LONG, _LONG, _WORD, _WORD)
    return (
        loaded.function(boxes.WRITTEN, *kinds),
        loaded.function(boxes.LOOK, *looking),
    )


class WrittenBox(NamedTuple):
    """A box in shared memory."""

    box: Box
    site: int
    coordinates: tuple[int, ...]


class _Operand(NamedTuple):
    """An operand of an instruction, and its descriptor as a word."""

    op: Instruction
    name: str
    major: MajorAxis
    family: Family
    word: int

    @property
    def start(self) -> int:
        """Where the operand begins, in repeats of every swizzle."""
        return (self.word & _START) * UNIT // REPEAT

    @property
    def near(self) -> _Operand:
        """The same operand in the first repeat."""
        return self._replace(word=self.word - self.start * (REPEAT // UNIT))

    @property
    def reading(self) -> SharedOperand:
        """What is read."""
        given = Descriptor.decode(self.word, self.family)
        return SharedOperand(self.op, self.name, given, self.major)


@lru_cache(maxsize=4096)
def _judged(of: _Operand, boxes: tuple[tuple[int, int], ...]) -> Mismatch | None:
    """What is wrong with an operand; boxes are numbers of layouts, and lines."""
    made = [Box(numbered(kind), line * at.LINE) for kind, line in boxes]
    return mismatch(of.reading, made)


@lru_cache(maxsize=4096)
def _lines(of: _Operand) -> NDArray[np.int64]:
    """The lines of 128 bytes that an operand is in."""
    return np.unique(of.reading.addresses() // at.LINE)


@lru_cache(maxsize=4096)
def _oddities(
    of: _Operand,
) -> tuple[tuple[tuple[int, int], tuple[int, int]] | None, str]:
    """Two parts of an operand that are the same bytes; an offset that is uneven."""
    return of.reading.twice(), of.reading.uneven()


@lru_cache(maxsize=4096)
def _meant(layout: BoxLayout, start: int, rows: tuple[int, ...]) -> tuple[int, ...]:
    """The swizzles by which rows of a box are below each other, unless they are so."""
    addresses = np.array(rows, np.int64)
    line, byte = layout.find(start, addresses)
    if (line < 0).any() or len(set(byte.tolist())) == 1:
        return ()
    found = []
    for swizzle in WGMMA_SWIZZLES:
        other = layout._replace(swizzle=swizzle)
        if swizzle == layout.swizzle or other.pitch != layout.pitch:
            continue
        meant, place = other.find(start, addresses)
        if len(set(place.tolist())) == 1 and len(set(meant.tolist())) == _MATRIX:
            found.append(swizzle)
    return tuple(found)


@once_per_kernel
def layouts_of(compiled: Described) -> JudgedTable:
    """What is known of a kernel; its instructions have the same numbers in launches.

    What is right depends on the operand and on the layouts of boxes alone.
    """
    return JudgedTable(at.JUDGED)


class LayoutWatch:
    """The boxes in the shared memory of a cluster, and who reads them."""

    def __init__(self, observer: Observer, asks: tuple[int, int] | None = None) -> None:
        """``asks`` are functions that call :meth:`asked` and :meth:`rows`."""
        self._observer = observer
        order, blocks = observer.order, observer.cluster.blocks
        count = -(-blocks[0].shared.size // at.LINE)
        shape = len(blocks), count
        self._lines = zeros(shape, np.int32)
        self._records = zeros((*shape, at.BOX_BYTES), np.uint8)
        self._states = aligned(len(blocks) * at.BOXES_BYTES).view(np.int64)
        self._states = self._states.reshape(len(blocks), -1)
        self.judged = Judged(layouts_of(observer.machine.launch.compiled))
        sites = len(observer.machine.launch.compiled.places)
        self._looked = zeros(max(sites, 1), np.uint8)
        self._written, self._look = functions()
        if asks is None:
            self._functions = ASK_LAYOUT(self.asked), ASK_ROWS(self.rows)
            first, second = self._functions
            asks = callback_address(first), callback_address(second)
        ask, rows = asks
        for rank in range(len(blocks)):
            state, head = self._states[rank], order.head(rank, np.int64)
            state[at.BOXES_LINES >> 3] = address_of(self._lines[rank])
            state[at.BOXES_RECORDS >> 3] = address_of(self._records[rank])
            state[at.BOXES_COUNT >> 3] = count
            for offset, address in (
                (heads.HEAD_BOXES, address_of(state)),
                (heads.HEAD_JUDGED, address_of(self.judged.table)),
                (heads.HEAD_ASK_LAYOUT, ask),
                (heads.HEAD_ASK_ROWS, rows),
                (heads.HEAD_ROWS, address_of(self._looked)),
            ):
                head[offset // 8] = address

    def close(self) -> None:
        """Free everything: the functions and this object refer to one another."""
        vars(self).clear()

    def begin(self) -> None:
        """A new cluster begins: nothing was copied yet."""
        used = self._states[:, at.BOXES_USED >> 3]
        for rank in np.flatnonzero(used):
            self._lines[rank] = 0
            self._records[rank] = 0
            self._states[rank, at.BOXES_SIGNATURE >> 3] = 0
        used[:] = 0

    def renewed(self, resets: ResetSchedule) -> None:
        """Tell what :meth:`begin` does."""
        for rank, state in enumerate(self._states):
            used = state[at.BOXES_USED >> 3 :][:1]
            signature = state[at.BOXES_SIGNATURE >> 3 :][:1]
            for each in (self._lines[rank], self._records[rank], signature):
                resets.clear(each, when=used)
            resets.clear(used)

    # ── copies ──────────────────────────────────────────────────────────────

    def copied(self, step: Step, copy: Transfer) -> None:
        """A copy that Python observes is in flight: a box, or other bytes."""
        warp, site, box = step.warp, step.event.site, copy.box
        copier = warp.block.rank << 16 | warp.number
        places = np.zeros(5, np.int64)
        if box is not None:
            places[: len(box.coordinates)] = box.coordinates[:5]
        if box is not None and box.layout is not None:
            layout = box.layout
            swizzle = pattern(layout.swizzle).changed
            about = layout.number, swizzle, layout.pitch, site, copier
            for rank in box.ranks:
                self._call(rank, box.at, layout.bytes, about, places)
            return
        for each in copy.goals:
            if each.space == "shared":
                for first in each.starts.tolist():
                    about = 0, 0, 16, site, copier
                    self._call(each.rank, first, each.size, about, places)

    def _call(
        self,
        rank: int,
        start: int,
        size: int,
        about: tuple[int, int, int, int, int],
        places: NDArray[np.int64],
    ) -> None:
        head = self._observer.order.address(rank)
        self._written(head, start, size, *about, address_of(places))

    def _box(self, rank: int, line: int) -> WrittenBox:
        """The box that begins at a line."""
        record = self._records[rank, line]
        longs, words = record.view(np.int64), record.view(np.int32)
        layout = numbered(int(longs[at.BOX_LAYOUT >> 3]))
        first = at.BOX_COORDINATES >> 3
        places = tuple(longs[first : first + len(layout.counts)].tolist())
        box = Box(layout, line * at.LINE)
        return WrittenBox(box, int(words[at.BOX_SITE >> 2]), places)

    def _begins(self, rank: int, lines: NDArray[np.int64]) -> list[tuple[int, int]]:
        """The boxes that some lines are in: the layout, and the line of its begin."""
        inside = lines[(lines >= 0) & (lines < self._lines.shape[1])]
        kinds = self._records[rank].view(np.int64)[:, at.BOX_LAYOUT >> 3]
        begins = sorted({each - 1 for each in self._lines[rank, inside].tolist()})
        return [
            (int(kinds[line]), line) for line in begins if line >= 0 and kinds[line]
        ]

    def _alike(self, rank: int, begins: list[tuple[int, int]]) -> list[Box]:
        """Boxes of the same kind near some boxes."""
        kinds = self._records[rank].view(np.int64)[:, at.BOX_LAYOUT >> 3]
        wanted, first = {kind for kind, _ in begins}, begins[0][1]
        found = [int(line) for line in np.flatnonzero(kinds) if kinds[line] in wanted]
        found.sort(key=lambda line: abs(line - first))
        return [self._box(rank, line).box for line in found[:_NEAR]]

    # ── products ────────────────────────────────────────────────────────────

    def asked(self, rank: int, of: int, word: int, site: int, number: int) -> None:
        """Machine code asks about an operand of a product.

        ``of`` is the number of an operand of ``wgmma``, or the address of a source of
        ``tcgen05.mma``; then the lane and the rank of the issuer are in ``number``.
        """
        observer = self._observer
        if of >= _SOURCES:
            self._asked_tensor(rank, of, site, number)
            return
        warp = observer.cluster.blocks[rank].warps[number]
        try:
            use, operand = divmod(of - 2, 2)
            located = observer.launch_watch.uses.all[use].of
            trans = located.ways.trans_b if operand else located.ways.trans_a
            word &= (1 << 64) - 1
            given = _Operand(located.op, "AB"[operand], MAJORS[trans], "wgmma", word)
            self._read(given, warp, site)
        except BaseException as error:  # an interrupt, too: compiled code drops it
            observer.machine.failed(error, warp, site, ALL)

    def _asked_tensor(self, rank: int, source: int, site: int, issuer: int) -> None:
        observer = self._observer
        lane, own, number = issuer >> 24, issuer >> 16 & 0xFF, issuer & 0xFFFF
        warp = observer.cluster.blocks[own].warps[number]
        try:
            op, name, word = observer.machine.tensor_forms.named(source)
            given = _Operand(op, name, major_of(op, name), "tcgen05", word)
            self._read(given, warp, site, 1 << lane, rank)
        except BaseException as error:  # an interrupt, too: compiled code drops it
            observer.machine.failed(error, warp, site, 1 << lane)

    def product(self, warp: Warp, use: int, words: tuple[int, ...], site: int) -> None:
        """Python observes a product of ``wgmma``."""
        head = self._observer.order.address(warp.block.rank)
        for operand, word in zip((1, 0), reversed(words), strict=False):
            of = 2 * use + 2 + operand
            self._look(head, of, signed(word), site, warp.number)

    def queued(self, step: Step, task: Queued) -> None:
        """A thread issues ``tcgen05.mma``."""
        for name, word in task.described.items():
            given = _Operand(task.op, name, major_of(task.op, name), "tcgen05", word)
            for block in task.blocks:
                if self._states[block.rank, at.BOXES_SIGNATURE >> 3]:
                    site = step.event.site
                    self._read(given, step.warp, site, step.lanes, block.rank)

    def _read(
        self,
        given: _Operand,
        warp: Warp,
        site: int,
        lanes: int = ALL,
        rank: int | None = None,
    ) -> None:
        """Judge an operand, with the boxes that it is in."""
        rank = warp.block.rank if rank is None else rank
        line = (given.word & _START) * UNIT // at.LINE
        if line >= self._lines.shape[1] or not self._lines[rank, line]:
            self._odd(given, warp, site, lanes)
            return  # what begins in no box is not judged otherwise
        near, first = given.near, given.start * (REPEAT // at.LINE)
        begins = self._begins(rank, _lines(near) + first)
        found = _judged(near, tuple((kind, line - first) for kind, line in begins))
        if found is None:
            return
        self.judged.right = False
        boxes = [self._box(rank, line) for _, line in begins]
        reading = given.reading
        if self._goes_on(found, boxes):
            return
        if not self.copied_last(rank, reading.addresses(), boxes):
            return
        places = [each.coordinates for each in boxes]
        parts = [each.box for each in boxes]
        others = [each for each in self._alike(rank, begins) if each not in parts]
        message, repair = layout_words.of_product(reading, parts, found, places, others)
        self._report(warp, site, lanes, message, boxes[found.box].site, repair)

    def _odd(self, given: _Operand, warp: Warp, site: int, lanes: int) -> None:
        """Report a descriptor that no layout of a tile explains.

        The manual does not forbid it, so it is a warning.
        """
        twice, uneven = _oddities(given.near)
        if twice is None and not uneven:
            return
        self.judged.right = False
        reading = given.reading
        if twice is not None:
            message, repair = layout_words.of_overlap(reading, *twice)
        else:
            message, repair = layout_words.of_uneven(reading, uneven)
        self._report(warp, site, lanes, message, None, repair, rules.WARNING)

    def _goes_on(self, found: Mismatch, boxes: list[WrittenBox]) -> bool:
        """Whether the next box is the continuation of the one that was left."""
        if found.leaves is None:
            return False
        old, new = boxes[found.leaves], boxes[found.box]
        layout, other = old.box.layout, new.box.layout
        if not layout.steps or not other.steps:
            return True
        last = max(n for n, count in enumerate(layout.counts) if count > 1)
        same = layout._replace(counts=layout.counts[:last])
        if same != other._replace(counts=other.counts[:last]):
            return False
        wanted = list(old.coordinates)
        wanted[last] += layout.counts[last] * layout.steps[last]
        return tuple(wanted) == new.coordinates

    def copied_last(
        self, rank: int, addresses: NDArray[np.int64], boxes: list[WrittenBox]
    ) -> bool:
        """Whether the copies were the last to write all that is in their boxes."""
        writes = self._observer.shared.writes(rank)
        for each in boxes:
            line, _ = each.box.layout.find(each.box.at, addresses)
            words = (addresses[line >= 0].reshape(-1, 1) // 4 + np.arange(UNIT // 4)).T
            record = writes[words.reshape(-1)]
            sites = record >> np.uint64(heads.SITE_AT)
            if (sites != min(each.site, heads.LAST_SITE)).any():
                return False
        return True

    def _report(
        self,
        warp: Warp,
        site: int,
        lanes: int,
        message: str,
        other: int | None,
        repair: str,
        severity: str = "",
    ) -> None:
        block = warp.block
        made = Finding(
            rules.LAYOUT_MISMATCH,
            site,
            message,
            block.index,
            warp.number,
            lanes,
            severity,
            other=other,
            repair=repair or None,
        )
        block.cluster.touch()
        block.cluster.machine.problems.put(made)

    # ── ldmatrix ────────────────────────────────────────────────────────────

    def rows(self, rank: int, number: int, site: int, where: int) -> None:
        """Machine code asks about rows of ``ldmatrix`` that are not below each other.

        It is a mistake only if another swizzle explains the addresses.
        """
        warp = self._observer.cluster.blocks[rank].warps[number]
        try:
            memory = (ctypes.c_int64 * LANES).from_address(where)
            every = np.array(memory, np.int64).reshape(-1, _MATRIX)
            for matrix, rows in enumerate(every):
                if self._matrix(warp, site, matrix, rows):
                    return
        except BaseException as error:  # an interrupt, too: compiled code drops it
            self._observer.machine.failed(error, warp, site, ALL)

    def _matrix(
        self, warp: Warp, site: int, number: int, rows: NDArray[np.int64]
    ) -> bool:
        """Report a matrix whose rows are at different bytes of the lines of a box."""
        begins = self._begins(warp.block.rank, rows // at.LINE)
        if len(begins) != 1:
            return False
        noted = self._box(warp.block.rank, begins[0][1])
        layout, start = noted.box
        first = start // REPEAT * REPEAT
        near = tuple((rows - first).tolist())
        for swizzle in _meant(layout, start - first, near):
            if self.copied_last(warp.block.rank, rows, [noted]):
                message, repair = layout_words.of_rows(
                    noted.box, number, rows, swizzle, noted.coordinates
                )
                self._report(warp, site, ALL, message, noted.site, repair)
                return True
        return False


def is_watched(words: tuple[str, ...]) -> bool:
    """Whether an instruction copies boxes to shared memory.

    >>> is_watched(("cp", "async", "bulk", "tensor", "2d", "shared::cta", "global"))
    True
    """
    spaces = [each for each in words if each == "global" or each.startswith("shared")]
    return words[:4] == ("cp", "async", "bulk", "tensor") and spaces[:1] != ["global"]
