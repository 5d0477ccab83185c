"""Copies by a tensor map.

``cp.async.bulk.tensor`` loads a box to the shared memory of one block or of several, or
stores one; ``cp.reduce.async.bulk.tensor`` combines a box with global memory.  Machine
code moves the bytes: :func:`fragmenta.engine.simt.boxes.run_box`.

``.tile::gather4`` and ``.tile::scatter4`` move four boxes of one row each, which stand
below one another in shared memory.

A swizzle depends on the addresses in shared memory and repeats after 1024 bytes.  So
what is kept between ``read`` and ``write`` is a window of shared memory that begins
at a multiple of 1024.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property, lru_cache
from math import prod
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt.atomics import noted
from fragmenta.engine.simt.boxes import Copy as Kind
from fragmenta.engine.simt.boxes import CopyRefusal, atomic_of, run_box
from fragmenta.engine.simt.layout import PLAIN
from fragmenta.engine.units.blocks import Thread
from fragmenta.engine.units.faults import CopyFault
from fragmenta.engine.units.tensor_maps import decoded, map_used, shown
from fragmenta.engine.units.work import (
    Bytes,
    CopiedBox,
    Copy,
    CopyBlock,
    Pair,
    Range,
    Starts,
    destinations,
    in_shared,
    pairs,
    pieces,
    shared_address,
)
from fragmenta.errors import Error, one_of
from fragmenta.ptx import rules
from fragmenta.ptx.effects import effect
from fragmenta.ptx.rules import Rule
from fragmenta.reference.shared.box_layouts import BoxLayout
from fragmenta.reference.shared.boxes import (
    check_copy,
    fill_box,
    flattened,
    plan,
    put_box,
    slice_bytes,
)
from fragmenta.reference.shared.descriptor import UNIT
from fragmenta.reference.shared.reductions import TYPES_OF
from fragmenta.reference.shared.swizzles import WGMMA_SWIZZLES, moved_in_box
from fragmenta.reference.shared.tensor_map import TensorMap
from fragmenta.reference.shared.tiles import PATTERN

WORDS = {
    CopyRefusal.MAP: "the instruction needs a map of another rank or mode",
    CopyRefusal.OPERATION: "the type of the map does not have the operation",
    CopyRefusal.SHARED_ALIGNMENT: "the box is misaligned in shared memory",
    CopyRefusal.COORDINATE_ALIGNMENT: "the box begins within 16 bytes",
    CopyRefusal.NEGATIVE: "a store begins before the tensor",
    CopyRefusal.FIRST_PIXEL: "the first pixel is not between the corners",
    CopyRefusal.SHARED_BOUNDS: "the box is not in shared memory",
    CopyRefusal.GLOBAL_BOUNDS: "the tensor is not in the memory that its address is in",
    CopyRefusal.READ_ONLY: "the tensor is in memory that must not be written",
    CopyRefusal.OFFSET: "an offset has too many bits",
}
"""What was wrong with a copy that the machine code refused."""
_KINDS = {
    CopyRefusal.MAP: rules.BAD_TENSOR_MAP,
    CopyRefusal.OPERATION: rules.BAD_TENSOR_MAP,
    CopyRefusal.SHARED_ALIGNMENT: rules.MISALIGNED,
    CopyRefusal.SHARED_BOUNDS: rules.OUT_OF_BOUNDS,
    CopyRefusal.GLOBAL_BOUNDS: rules.OUT_OF_BOUNDS,
    CopyRefusal.READ_ONLY: rules.READ_ONLY,
}
"""The rule of each problem; the same as if Python had refused the copy."""


class TensorCopy(Copy):
    """What loads and stores have in common."""

    def __init__(
        self,
        block: CopyBlock,
        thread: Thread,
        site: int,
        map: int | bytes,
        coordinates: Sequence[int],
        at: int,
        kind: Kind,
        offsets: Sequence[int] = (),
        space: str = "shared::cta",
    ) -> None:
        super().__init__(block, thread, site)
        self.kind = kind
        self.coordinates, self.offsets = tuple(coordinates), tuple(offsets)
        self.boxes = [self.coordinates]
        if kind.rank < len(self.coordinates):  # one column, four rows
            self.boxes = [(self.coordinates[0], row) for row in self.coordinates[1:]]
        if isinstance(map, bytes):
            self.data = map
        else:
            place = map_used(block, map)
            self.data, self.map_range = place.take().tobytes(), place.range
        self.map = decoded(self.data)
        what = f"the box of a {self.name}"
        self.rank, self.at = shared_address(block, at, what, space)
        self._check()
        self.bytes = self.map.box_bytes * len(self.boxes)
        self.element = self.map.element
        self._flatten()
        self._image: Bytes = np.empty(0, np.uint8)

    def _check(self) -> None:
        """Refuse what an H200 refuses at the issue."""
        kind, map_ = self.kind, self.map
        if map_.rank != kind.rank or (map_.im2col is not None) != kind.im2col:
            raise self._fault(
                rules.BAD_TENSOR_MAP,
                f"the instruction needs a map of {_mode(kind.rank, kind.im2col)}; "
                f"given one of {_mode(map_.rank, map_.im2col is not None)}",
            )
        if len(self.boxes) > 1 and (map_.box[1] != 1 or map_.interleave):
            raise self._fault(
                rules.BAD_TENSOR_MAP,
                "a copy of four rows needs a box of one row, without an interleave; "
                f"given {map_.box[1]} rows, interleave {map_.interleave}",
            )
        allowed = TYPES_OF.get(kind.operation)
        if allowed is not None and map_.dtype not in allowed:
            raise self._fault(
                rules.BAD_TENSOR_MAP,
                f"{kind.operation} takes a map of {one_of(allowed)}; "
                f"given {map_.dtype}",
            )
        try:
            for box in self.boxes:
                check_copy(map_, box, self.offsets, at=self.at, store=not kind.loads)
        except Error as error:
            raise self._fault(rules.BAD_COPY, str(error)) from error

    def _flatten(self) -> None:
        """Count bytes, if the elements have less; find out who moves them.

        Machine code knows no gaps, and the swizzles of sm_90.
        """
        given = self.map
        self.map = given.flat
        self.whole = given if given.element.padded else self.map
        """The map with its gaps, and where the boxes are in its elements."""
        self.whole_boxes = self.boxes
        if not given.element.bytes:
            self.coordinates = tuple(flattened(given, self.coordinates)[1])
            self.boxes = [tuple(flattened(given, box)[1]) for box in self.boxes]
            if not given.element.padded:
                self.whole_boxes = self.boxes
        self.moving = self.data if self.map is given else self.map.encode()
        self.in_python = given.element.padded or given.swizzle not in WGMMA_SWIZZLES

    def _fault(self, rule: Rule, message: str) -> CopyFault:
        given = f"coordinates {self.coordinates}"
        if self.offsets:
            given += f", offsets {self.offsets}"
        return CopyFault(
            rule, f"{self.name}: {message}; {given}; the map: {shown(self.data)}"
        )

    @property
    def window(self) -> int:
        """The address of the window of shared memory that the box is in."""
        return self.at // PATTERN * PATTERN

    @cached_property
    def footprint(self) -> Footprint:
        """The bytes of the window that the box takes."""
        data = self.element.data
        return _footprint(self.map, self.at % PATTERN, len(self.boxes), data)

    def _shared_ranges(self, ranks: list[int]) -> list[Range]:
        return [
            Range("shared", rank, each.start + self.window, each.size)
            for rank in ranks
            for each in self.footprint.ranges
        ]

    @cached_property
    def global_ranges(self) -> list[Range]:
        """The bytes of the tensor that are moved, without those outside of it."""
        store = not self.kind.loads
        if self.kind.im2col:
            of, box = self.whole, self.whole_boxes[0]
            found = plan(of, box, self.offsets, at=0, store=store)
            return pieces(
                "global", -1, found.memory[found.inside], self.map.element.bytes
            )
        parts = [rows(self.map, box, store=store) for box in self.boxes]
        starts = np.concatenate([first for first, _ in parts])
        return pieces("global", -1, starts, parts[0][1])

    def _pairs(self, ranks: list[int]) -> list[Pair]:
        """The elements of its boxes in the tensor, and in the memory of blocks."""
        found, size = [], self.map.element.bytes
        for number, box in enumerate(self.whole_boxes):
            at = self.at if len(self.boxes) == 1 else 0
            store = not self.kind.loads
            of = plan(self.whole, box, self.offsets, at=at, store=store)
            inside, shared = of.inside.reshape(-1), of.shared.reshape(-1)
            if len(self.boxes) > 1:  # one row each
                line = self._line(number).reshape(-1, UNIT)[:, : self.element.data]
                shared = self.window + line.reshape(-1)[: shared.size * size : size]
            tensor = Range("global", -1, of.memory.reshape(-1)[inside], size)
            for rank in ranks:
                here = Range("shared", rank, shared[inside], size)
                both = (here, tensor) if self.kind.loads else (tensor, here)
                found += pairs(*both)
        return found

    @cached_property
    def extent(self) -> tuple[int, int] | None:
        """The first byte of the tensor that is moved, and the one past the last."""
        if not self.kind.im2col:
            store = not self.kind.loads
            parts = [extent(self.map, box, store=store) for box in self.boxes]
            ends = [each for each in parts if each is not None]
            return (min(ends)[0], max(ends)[1]) if ends else None
        ranges = self.global_ranges
        if not ranges:
            return None
        return (
            min(int(each.starts[0]) for each in ranges),
            max(int(each.starts[-1]) + each.size for each in ranges),
        )

    def _move(self, image: Bytes) -> None:
        """Move all boxes between the tensor and an image of the window."""
        if len(self.boxes) == 1:
            self._move_box(0, image)
            return
        first = self._line(0)
        for number in range(len(self.boxes)):
            units = self._line(number)
            row = np.zeros(int(first.max()) + 1, np.uint8)
            if not self.kind.loads:
                row[first] = image[units]
            self._move_box(number, row)
            if self.kind.loads:
                image[units] = row[first]

    def _line(self, number: int) -> Starts:
        """Where each byte of a line of the box is in its window."""
        return _units(self.map, self.at % PATTERN, number, self.element.data)

    def _move_box(self, number: int, image: Bytes) -> None:
        """Move one box between the tensor and an image of the window."""
        # A box that is outside the tensor as a whole touches no memory.
        memory, origin = np.empty(0, np.uint8), self.map.address
        if self.extent is not None:
            memory, index = self.block.memory(self.map.address)
            origin -= index
        if self.in_python:
            self._move_in_python(number, memory, image, origin)
            return
        problem, address = run_box(
            self.kind,
            self.moving,
            self.boxes[number],
            self.offsets,
            memory,
            image,
            at=self.at - self.window,
            origin=origin,
        )
        if problem:
            place = f", at {address:#x}" if problem == CopyRefusal.GLOBAL_BOUNDS else ""
            raise self._fault(
                _KINDS.get(problem, rules.BAD_COPY), f"{WORDS[problem]}{place}"
            )

    def _move_in_python(
        self, number: int, memory: Bytes, image: Bytes, origin: int
    ) -> None:
        """Move one box whose map machine code does not know."""
        of, box, at = self.whole, self.whole_boxes[number], self.at - self.window
        if self.kind.loads:
            fill_box(of, memory, image, box, self.offsets, at=at, origin=origin)
            return
        operation = None if self.kind.operation == "store" else self.kind.operation
        put_box(of, memory, image, box, at=at, origin=origin, operation=operation)

    def _on(self, shadow: CopyBlock) -> Self:
        """A copy of the same bytes of shadows: bits are moved, and 0 fills."""
        twin = copy(self)
        twin.block, twin.kind = shadow, self.kind._replace(operation=self.moves)
        twin.moving = self._plain.encode()
        if not self.element.padded:
            twin.whole = self._plain
        return twin

    @cached_property
    def _plain(self) -> TensorMap:
        """The map as one of plain bits, with zeros outside."""
        kind = f"u{8 * self.map.element.bytes}"
        return replace(self.map, dtype=kind, fill="zeros")

    @property
    def moves(self) -> str:
        """The operation that moves bytes as they are."""
        return "load" if self.kind.loads else "store"

    def _check_bounds(self, *, writes: bool) -> None:
        """Refuse a box that is not in the memory of the tensor's address."""
        if self.extent is None:
            return
        memory, index = self.block.memory(self.map.address)
        first, stop = (each - self.map.address + index for each in self.extent)
        if first < 0 or stop > memory.size:
            raise self._fault(
                rules.OUT_OF_BOUNDS,
                f"the box is at bytes {first} to {stop - 1} of the memory that the "
                f"tensor is in, which has {memory.size} bytes",
            )
        if writes and not memory.flags.writeable:
            raise self._fault(rules.READ_ONLY, WORDS[CopyRefusal.READ_ONLY])


def _mode(rank: int, im2col: bool) -> str:
    return f"{rank} dimension{'s' * (rank > 1)}{' for im2col' if im2col else ''}"


class TensorLoad(TensorCopy):
    """``cp.async.bulk.tensor`` from global to shared memory.

    ``map`` is the address of the map, or its 128 bytes.  ``at`` is where the box goes
    to, ``mask`` the blocks that a multicast goes to.  If it is ``paired``, the mbarrier
    may be in the other block of the pair.  With ``rows``, the coordinates are a column
    and four rows.
    """

    name = "tensor load"
    effect = effect("cp.async.bulk.tensor", "mbarrier::complete_tx::bytes")

    def __init__(
        self,
        block: CopyBlock,
        thread: Thread,
        site: int,
        map: int | bytes,
        coordinates: Sequence[int],
        offsets: Sequence[int],
        at: int,
        mbarrier: int | None,
        mask: int | None = None,
        *,
        im2col: bool = False,
        space: str = "shared::cluster",
        paired: bool = False,
        rows: bool = False,
    ) -> None:
        kind = Kind("load", 2 if rows else len(coordinates), im2col)
        super().__init__(
            block, thread, site, map, coordinates, at, kind, offsets, space
        )
        self.mask, self.paired = mask, paired
        self.ranks = destinations(block, self.rank, mask, self.name)
        self._signal(mbarrier, space, self.rank)
        size = self.footprint.end + self.window - self.at
        for rank in self.ranks:
            in_shared(block, rank, self.at, size, f"the box of a {self.name}")
        self._check_bounds(writes=False)

    @cached_property
    def goals(self) -> list[Range]:
        """What it writes, in each block that it goes to."""
        return self._shared_ranges(self.ranks)

    @property
    def sources(self) -> list[Range]:
        """What it reads."""
        return self.global_ranges

    @property
    def box(self) -> CopiedBox:  # type: ignore[override]
        """The box that it loads."""
        layout = BoxLayout.of(self.whole, len(self.boxes))
        return CopiedBox(layout, self.ranks, self.at, tuple(self.coordinates))

    @property
    def pairs(self) -> list[Pair]:
        """Where the elements of its box come from; what is outside comes from none."""
        return self._pairs(self.ranks)

    def read(self) -> None:
        """Take the box from the tensor, and fill what is outside."""
        self._image = np.empty(self.footprint.end, np.uint8)
        self._move(self._image)

    def write(self) -> None:
        """Put it to each block."""
        for rank in self.ranks:
            shared = self.block.cluster.blocks[rank].shared
            for each in self.footprint.ranges:
                for part in self._without_gaps(each):
                    _copy_pieces(self._image, shared[self.window :], part)

    def _without_gaps(self, units: Range) -> list[Range]:
        """The bytes of units that are data."""
        if not self.element.padded:
            return [units]
        starts = units.starts[:, None] + np.arange(0, units.size, UNIT)
        return [Range("shared", 0, starts.reshape(-1), self.element.data)]

    def carry(self, shadow: CopyBlock, values: Sequence[int] = ()) -> None:
        """Load the shadows of the box."""
        twin = self._on(shadow)
        twin.read()
        twin.write()

    def follow(self, shadow: CopyBlock, values: Sequence[int] = ()) -> Starts:
        """Load the shadows of the box."""
        self.carry(shadow)
        return self._undefined(shadow)


class TensorStore(TensorCopy):
    """``cp.async.bulk.tensor`` from shared to global memory, and its reductions.

    ``operation`` is that of ``cp.reduce.async.bulk.tensor``, such as ``"add"``.
    """

    name, effect = "tensor store", effect("cp.async.bulk.tensor", "bulk_group")

    def __init__(
        self,
        block: CopyBlock,
        thread: Thread,
        site: int,
        map: int | bytes,
        coordinates: Sequence[int],
        at: int,
        *,
        im2col: bool = False,
        operation: str | None = None,
        rows: bool = False,
    ) -> None:
        if operation is not None:
            self.name = "tensor reduction"
            self.effect = effect("cp.reduce.async.bulk.tensor", "bulk_group")
        kind = Kind(operation or "store", 2 if rows else len(coordinates), im2col)
        super().__init__(block, thread, site, map, coordinates, at, kind)
        size = self.footprint.end + self.window - self.at
        in_shared(block, self.rank, self.at, size, f"the box of a {self.name}")
        self._check_bounds(writes=True)

    @property
    def goals(self) -> list[Range]:
        """What it writes."""
        return self.global_ranges

    @property
    def noted(self) -> int:
        """The note of what it writes to global memory."""
        if not self.combines:
            return PLAIN
        return noted(atomic_of(self.kind.operation, self.map.element))

    @cached_property
    def sources(self) -> list[Range]:
        """What it reads: the whole box, also what is outside the tensor."""
        return self._shared_ranges([self.rank])

    @property
    def pairs(self) -> list[Pair]:
        """Where the elements of its box go to, unless it combines them."""
        return [] if self.combines else self._pairs([self.rank])

    @cached_property
    def _units(self) -> tuple[Starts, Starts]:
        """The units of the box that are in the tensor, and the others."""
        box, start = self.map, self.at - self.window
        lines = np.arange(prod(box.counts[1:]))
        every = self.window + _places(box, start, lines)
        stored = _stored(box, self.coordinates)
        return every[stored], every[~stored]

    @property
    def useful(self) -> list[Range]:
        """The part of the box that is in the tensor."""
        if not self.useless:
            return self.sources
        return pieces("shared", self.rank, self._units[0], UNIT)

    @cached_property
    def useless(self) -> list[Range]:
        """The rest of a tiled box."""
        if self.kind.im2col or self.map.interleave or len(self.boxes) > 1:
            return []
        if self.element.padded:  # the sizes of such tensors are whole boxes
            return []
        return pieces("shared", self.rank, self._units[1], UNIT)

    def read(self) -> None:
        """Take the window of shared memory that the box is in."""
        shared = self.block.cluster.blocks[self.rank].shared
        self._image = shared[self.window : self.window + self.footprint.end].copy()

    def write(self) -> None:
        """Put the box to the tensor, or combine it with what is there."""
        self._move(self._image)

    @property
    def sum(self) -> tuple[str, str]:
        """The operation, and the type of the elements."""
        return self.kind.operation, self.map.dtype

    def summands(
        self, block: CopyBlock, values: Sequence[int] = ()
    ) -> list[tuple[Bytes, Bytes]]:
        """The box in the tensor, and that in shared memory, in its layout."""
        twin = self._on(block)
        twin.read()
        old = np.zeros_like(twin._image)
        twin.kind = twin.kind._replace(operation="load")
        twin._move(old)
        return [(old, twin._image)]

    def put_sums(self, block: CopyBlock, sums: Sequence[Bytes]) -> None:
        """Put a box of this layout into the tensor."""
        self._on(block)._move(np.array(sums[0]))

    def follow(self, shadow: CopyBlock, values: Sequence[int] = ()) -> Starts:
        """Store the shadows of the box; what is outside the tensor does not count."""
        twin, before = self._on(shadow), np.empty(0, np.int64)
        if self.combines:  # the result is undefined where memory was
            before = self._undefined(shadow)
        twin.read()
        twin.write()
        return np.union1d(before, self._undefined(shadow))


class TensorPrefetch(TensorCopy):
    """``cp.async.bulk.prefetch.tensor``: it is checked, and does nothing."""

    name = "tensor prefetch"
    effect = effect("cp.async.bulk.prefetch.tensor")

    def __init__(
        self,
        block: CopyBlock,
        thread: Thread,
        site: int,
        map: int | bytes,
        coordinates: Sequence[int],
        offsets: Sequence[int] = (),
        *,
        im2col: bool = False,
        rows: bool = False,
    ) -> None:
        kind = Kind("load", 2 if rows else len(coordinates), im2col)
        own = block.rank << 24
        super().__init__(block, thread, site, map, coordinates, own, kind, offsets)
        self.bytes = 0


# ── where a box is ──────────────────────────────────────────────────────────


class Footprint(NamedTuple):
    """The bytes of shared memory that a box takes."""

    ranges: list[Range]
    """Relative to the address of the window."""
    end: int
    """The first byte past all of them."""


@lru_cache(maxsize=1024)
def _footprint(map: TensorMap, at: int, boxes: int = 1, data: int = UNIT) -> Footprint:
    """The bytes of boxes, the first of which begins at this place in its window."""
    column = map.im2col
    lines = prod(map.counts[1:]) * boxes if column is None else column.pixels
    units = _places(map, at, np.arange(lines), data)
    ranges = pieces("shared", 0, units.reshape(-1), UNIT)
    return Footprint(ranges, int(units.max()) + UNIT)


def _places(map: TensorMap, at: int, lines: Starts, data: int = UNIT) -> Starts:
    """Where each unit of 16 bytes of these lines of a box is in its window.

    ``data`` bytes of each unit are data.
    """
    wide = slice_bytes(map)
    if map.im2col is None:
        row = map.counts[0] * wide
    else:
        row = map.interleave or map.im2col.channels * wide
    row = row * UNIT // data
    pitch = row if map.interleave else max(row, map.span)
    line = at + lines[:, None] * pitch
    found: Starts = moved_in_box(line + np.arange(0, row, UNIT), map.swizzle)
    return found & -UNIT  # a swizzle may exchange the halves of a unit


def _units(map: TensorMap, at: int, line: int, data: int = UNIT) -> Starts:
    """Where each byte of one line of a box is in its window."""
    units = _places(map, at, np.array([line]), data)
    return (units.reshape(-1, 1) + np.arange(UNIT)).reshape(-1)


def rows(
    map: TensorMap, coordinates: Sequence[int], *, store: bool = False
) -> tuple[Starts, int]:
    """The rows of a tiled box that are in the tensor: their addresses and their size.

    >>> map = TensorMap("f16", (256, 100), (512,), box=(64, 8), address=4096)
    >>> rows(map, (224, 98))
    (array([54720, 55232]), 64)
    """
    first, size, steps = _clipped(map, coordinates, store)
    starts = np.array([first], np.int64)
    for count, step in steps:
        starts = np.add.outer(np.arange(count) * step, starts).reshape(-1)
    return starts, size


def _stored(map: TensorMap, coordinates: Sequence[int]) -> NDArray[np.bool_]:
    """Whether each unit of each line of a tiled box is in the tensor.

    >>> map = TensorMap("f16", (24, 3), (64,), box=(32, 2), address=4096)
    >>> _stored(map, (0, 2)).astype(int)
    array([[1, 1, 1, 0],
           [0, 0, 0, 0]])
    """
    wide = slice_bytes(map)
    first, limit = coordinates[0] * wide, -(-map.sizes[0] * wide // UNIT) * UNIT
    at = first + np.arange(0, map.counts[0] * wide, UNIT)
    found = (at >= 0) & (at < limit)
    for place in range(1, map.rank):
        steps = np.arange(map.counts[place]) * map.element_strides[place]
        at = coordinates[place] + steps
        inside = (at >= 0) & (at < map.sizes[place])
        found = np.logical_and.outer(inside, found)
    return found.reshape(-1, found.shape[-1])


def extent(
    map: TensorMap, coordinates: Sequence[int], *, store: bool = False
) -> tuple[int, int] | None:
    """The first byte of a tiled box in the tensor, and the one past the last.

    >>> map = TensorMap("f16", (256, 100), (512,), box=(64, 8), address=4096)
    >>> extent(map, (224, 98)), extent(map, (256, 0))
    ((54720, 55296), None)
    """
    first, size, steps = _clipped(map, coordinates, store)
    if size <= 0 or any(count <= 0 for count, _ in steps):
        return None
    return first, first + sum((count - 1) * step for count, step in steps) + size


def _clipped(
    map: TensorMap, coordinates: Sequence[int], store: bool
) -> tuple[int, int, list[tuple[int, int]]]:
    """The part of a tiled box in the tensor: its rows, and how often they repeat.

    That is the address of the first row, the bytes of each, and for each dimension how
    many there are and how far apart.
    """
    wide, first, size = slice_bytes(map), map.address, slice_bytes(map)
    steps = []
    if not map.interleave:
        limit = map.sizes[0] * wide
        if store:  # it moves whole units
            limit = -(-limit // UNIT) * UNIT
        begin = max(0, coordinates[0] * wide)
        size = max(0, min((coordinates[0] + map.counts[0]) * wide, limit) - begin)
        first += begin
    for place in range(0 if map.interleave else 1, map.rank):
        at, step = coordinates[place], map.element_strides[place]
        low = max(0, -(at // step))
        high = min(map.counts[place], -(-(map.sizes[place] - at) // step))
        stride = wide if place == 0 else map.strides[place - 1]
        first += (at + low * step) * stride
        steps.append((max(0, high - low), step * stride))
    return first, size, steps


def _copy_pieces(source: Bytes, goal: Bytes, range_: Range) -> None:
    """Copy the bytes of a range from one memory to the same places of another."""
    if isinstance(range_.start, int):
        stop = range_.start + range_.size
        goal[range_.start : stop] = source[range_.start : stop]
        return
    places = range_.starts[:, None] + np.arange(range_.size)
    goal[places] = source[places]
