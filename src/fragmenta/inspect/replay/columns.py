"""Accesses as columns, from the rows of a log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt import layout
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.memory import PASS_BYTES
from fragmenta.engine.tracing.code import layout as at
from fragmenta.engine.tracing.log import StepChunk
from fragmenta.engine.tracing.trace import Moved, Trace, Where
from fragmenta.inspect.replay.parts import NOBODY, Array, Columns, Value

OFFSETS = (1 << layout.RANK_BITS) - 1
SLOTS = (1 << layout.SLOT_BITS) - 1
MOST_SIZE = 65535


class AccessColumns(NamedTuple):
    """Some accesses: one of each column, and the bytes that they write."""

    step: Array
    memory: Array
    offset: Array
    size: Array
    lane: Array
    unit: Array
    data: Array
    """The bytes, access after access; empty if they read."""


class AddressTable:
    """Where addresses are: the number of a memory, and the offset there."""

    def __init__(
        self,
        numbers: dict[Where, int],
        warps: Sequence[tuple[int, int]],
        ranks: int,
        local: int,
    ) -> None:
        self.numbers = numbers
        self._blocks = np.array([block for block, _ in warps], np.int64)
        self._own = np.array([warp for _, warp in warps], np.int64)
        self._ranks, self._local = ranks, local
        blocks = int(self._blocks.max(initial=-1)) + 1
        self._shared = self._table("shared", blocks)
        self._locals = self._table("local", blocks)
        self._global = self._table("global", layout.SLOTS)

    def _table(self, kind: str, count: int) -> NDArray[np.int64]:
        return np.array(
            [self.numbers.get((kind, each), -1) for each in range(count)], np.int64
        )

    def find(
        self, space: str, address: NDArray[np.uint64], warp: Array, lane: Array
    ) -> tuple[Array, Array]:
        """The memories and offsets of addresses; a memory is -1 if it is not kept."""
        where = address.astype(np.int64)
        block = self._blocks[warp]
        if space == "local":
            return self._in_local(where, warp, block, lane)
        if space in ("shared", "cluster"):
            return self._in_shared(where, block)
        slot, offset = where >> layout.SLOT_BITS & (layout.SLOTS - 1), where & SLOTS
        memory = self._global[slot]
        near, own = slot == layout.SHARED_SLOT, slot == layout.LOCAL_SLOT
        if near.any():
            found = self._in_shared(offset[near], block[near])
            memory[near], offset[near] = found
        if own.any():
            given = offset[own], warp[own], block[own], lane[own]
            memory[own], offset[own] = self._in_local(*given)
        return memory, offset

    def _in_shared(self, where: Array, block: Array) -> tuple[Array, Array]:
        if self._ranks > 1:
            block = block // self._ranks * self._ranks + (where >> layout.RANK_BITS)
        known = (block >= 0) & (block < len(self._shared))
        memory = np.where(known, self._shared[np.where(known, block, 0)], -1)
        return memory, where & OFFSETS

    def _in_local(
        self, where: Array, warp: Array, block: Array, lane: Array
    ) -> tuple[Array, Array]:
        thread = self._own[warp] * LANES + lane
        return self._locals[block], thread * self._local + where


# ── lanes ───────────────────────────────────────────────────────────────────


def lane_parts(
    pieces: Iterable[StepChunk], forms: Sequence[Sequence[Value]], places: AddressTable
) -> tuple[list[AccessColumns], list[AccessColumns], list[Array]]:
    """What lanes wrote and read, and the ``cp.async`` among it: steps and warps."""
    wrote: list[AccessColumns] = []
    read: list[AccessColumns] = []
    copies: list[Array] = []
    for piece in pieces:
        rows = piece.rows
        if not len(rows):
            continue
        order = np.argsort(rows[:, 1], kind="stable")
        kinds, starts = np.unique(rows[order, 1], return_index=True)
        ends = [*starts[1:].tolist(), len(order)]
        for kind, start, end in zip(kinds.tolist(), starts.tolist(), ends, strict=True):
            _, what, space, size, elements = forms[kind]
            some = rows[order[start:end]]
            copies += [some[:, [0, 3, 2]]] if what == "copy" else []
            given = piece.data, some, what, space, size, elements, places
            some_wrote, some_read = _form(*given)
            wrote += some_wrote
            read += some_read
    return wrote, read, copies


def _form(
    data: Array,
    rows: Array,
    what: str,
    space: str,
    size: int,
    elements: int,
    places: AddressTable,
) -> tuple[list[AccessColumns], list[AccessColumns]]:
    """The accesses of one kind of row."""
    total = size * elements
    first = rows[:, 4].astype(np.int64)[:, None]
    mask = (rows[:, 2:3] >> np.arange(LANES, dtype=np.uint32) & 1).astype(bool)
    if what != "read":  # of lanes that write to one place, the one that stays is last
        turn = np.arange(LANES) ^ (min(LANES, max(1, PASS_BYTES // total)) - 1)
    else:
        turn = np.arange(LANES)
    row, index = np.nonzero(mask[:, turn])
    lane = turn[index]
    about = rows[row, 0].astype(np.int64), rows[row, 3].astype(np.int64)
    vectors = 2 if what == "copy" else 1
    found: list[tuple[Array, Array]] = []
    for number, of in enumerate((space, "global")[:vectors]):
        span = first + np.arange(at.ADDRESS_WORDS) + number * at.ADDRESS_WORDS
        address = data[span].view(np.uint64)
        found.append(places.find(of, address[row, lane], about[1], lane))
    wrote: list[AccessColumns] = []
    read: list[AccessColumns] = []
    if what != "read":
        words = total * LANES // 4
        span = first + vectors * at.ADDRESS_WORDS + np.arange(words)
        taken = data[span].view(np.uint8).reshape(len(rows), elements, LANES, size)
        taken = taken.transpose(0, 2, 1, 3).reshape(len(rows), LANES, total)[row, lane]
        wrote += _part(about[0], *found[0], total, lane, taken)
    if what in ("read", "atomic"):
        read += _part(about[0], *found[0], total, lane)
    elif what == "copy":
        reads = (rows[row, 5] >> lane.astype(np.uint32) & 1).astype(bool)
        memory, offset = found[1]
        known = np.where(reads, memory, -1)
        read += _part(about[0], known, offset, total, lane)
    return wrote, read


def _part(
    step: Array,
    memory: Array,
    offset: Array,
    size: int,
    lane: Array,
    data: Array | None = None,
) -> list[AccessColumns]:
    known = memory >= 0
    if not known.any():
        return []
    count = int(known.sum())
    return [
        AccessColumns(
            step[known],
            memory[known],
            offset[known],
            np.full(count, size),
            lane[known],
            np.full(count, -1),
            np.empty(0, np.uint8) if data is None else data[known].reshape(-1),
        )
    ]


# ── units ───────────────────────────────────────────────────────────────────


def unit_part(
    moved: Moved, unit: int, numbers: dict[Where, int], step: int
) -> AccessColumns | None:
    """What a unit read or wrote; at most 65,535 bytes side by side are one access."""
    memory = numbers.get(moved.where, -1)
    if memory < 0 or not moved.size:
        return None
    starts, size = moved.starts, moved.size
    data = np.empty(0, np.uint8) if moved.data is None else moved.data
    if size > MOST_SIZE:
        cuts = np.arange(0, size, 1 << 15)
        sizes = np.tile(np.minimum(size - cuts, 1 << 15), len(starts))
        starts = (starts[:, None] + cuts).reshape(-1)
    else:
        sizes = np.full(len(starts), size)
    count = len(starts)
    return AccessColumns(
        np.full(count, step),
        np.full(count, memory),
        starts,
        sizes,
        np.full(count, NOBODY),
        np.full(count, unit),
        data,
    )


def copied(told: Trace, numbers: dict[Where, int]) -> Columns:
    """The bytes that units copied as they are, in the order of the units."""
    rows: list[tuple[Array, ...]] = [tuple(np.empty((6, 0), np.int64))]
    for unit, each in told.copied:
        to, of = (numbers.get(where, -1) for where in (each.to, each.of))
        if to >= 0 and of >= 0:
            one = np.ones_like(each.starts)
            own = unit * one, to * one, each.starts
            rows.append((*own, of * one, each.sources, each.size * one))
    found = [np.concatenate(each) for each in zip(*rows, strict=True)]
    order = np.argsort(found[0], kind="stable")
    names = ("unit", "memory", "offset", "from", "at", "size")
    return {f"c_{name}": of[order] for name, of in zip(names, found, strict=True)}


def joined(parts: Sequence[AccessColumns], begin: str) -> Columns:
    """All accesses in the order of their steps; ``begin`` is how columns begin."""
    empty = np.empty(0, np.int64)
    fields = {
        name: np.concatenate([empty, *(getattr(each, name) for each in parts)])
        for name in AccessColumns._fields[:-1]
    }
    order = np.argsort(fields["step"], kind="stable")
    made = {f"{begin}_{name}": of[order] for name, of in fields.items()}
    if begin == "w":
        ends = np.cumsum(fields["size"])
        made["w_at"] = (ends - fields["size"])[order]
        none = np.empty(0, np.uint8)
        made["bytes"] = np.concatenate([none, *(each.data for each in parts)])
    return made
