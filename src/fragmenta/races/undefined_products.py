"""Shadow bits through ``wgmma`` and ``tcgen05``: which results are undefined.

The shadow of a register is elsewhere in the memory of its warp; ``twins`` says where.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fragmenta.arrays.once import once
from fragmenta.execution.tcgen05 import undefined
from fragmenta.execution.undefined import depending
from fragmenta.isa.instruction import Instruction as Op
from fragmenta.isa.reading import instruction
from fragmenta.shared.descriptor import MAJORS, Descriptor
from fragmenta.shared.tiles import read_tile
from fragmenta.simt.layout import LANES
from fragmenta.tensor_memory.copying import copy
from fragmenta.units.machine import Warp
from fragmenta.units.tcgen05 import Product, Queued
from fragmenta.units.tmem_copies import Fill
from fragmenta.units.tmem_moves import Load, Store
from fragmenta.units.undefined import Elements
from fragmenta.units.warpgroups import Wgmma

if TYPE_CHECKING:
    from fragmenta.races.definedness_watch import Shadow

Words: TypeAlias = NDArray[np.uint8 | np.uint16 | np.uint32 | np.uint64]
"""A register in all lanes."""
WARPS = 4
UNSET = 0xFFFFFFFF
"""The shadow of a word that was not written."""


@once
def _elements(mnemonic: str, name: str) -> Elements:
    return Elements(instruction(mnemonic).fragments[name])


def warpgroup_product(
    work: Wgmma,
    warps: Sequence[Warp],
    twins: Mapping[int, int],
    shared: NDArray[np.uint8],
) -> None:
    """Make the shadow of D of a ``wgmma`` that all warps have issued.

    If any metadata is undefined, all elements of D are, as in ``mma``.
    """
    of, ways = work.located, work.located.ways
    *of_a, of_b = work.descriptors
    if of_a:
        a = _in_shared(shared, of.op, "A", of_a[0], ways.trans_a)
    else:
        places = [each.offset for each in of.a]
        a = _elements(of.mnemonic, "A").gather(_gathered(warps, twins, places))[0]
    found = depending(a, _in_shared(shared, of.op, "B", of_b, ways.trans_b))
    if of.metadata is not None:
        found |= bool(_gathered(warps, twins, [of.metadata.offset]).any())
    d = _elements(of.mnemonic, "D")
    if work.given[-1]:  # the old D is added
        found |= d.gather(_gathered(warps, twins, of.d))[0]
    made = d.spread(found[None]).astype(np.uint32)
    there, index = _index(twins, of.d)
    for number, warp in enumerate(warps):
        part = made[LANES * number : LANES * (number + 1)]
        warp.words[index] = part[:, there].T


def _in_shared(
    shared: NDArray[np.uint8], op: Op, name: str, word: int, trans: int
) -> NDArray[np.bool_]:
    """The undefined elements of A or B in shared memory."""
    bits = read_tile(op, name, shared, word, major=MAJORS[trans])
    return np.asarray(bits != 0)


def _index(
    twins: Mapping[int, int], places: Sequence[int]
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Which registers have shadows, and where these are in the words of a warp."""
    found = np.array([twins.get(place, -1) for place in places], np.int64)
    there = found >= 0
    return there, found[there, None] // 4 + np.arange(LANES)


def _gathered(
    warps: Sequence[Warp], twins: Mapping[int, int], places: Sequence[int]
) -> NDArray[np.uint64]:
    """The shadows of registers: lanes of all warps, registers."""
    found = np.zeros((len(warps) * LANES, len(places)), np.uint64)
    there, index = _index(twins, places)
    for number, warp in enumerate(warps):
        part = found[LANES * number : LANES * (number + 1)]
        part[:, there] = warp.words[index].T
    return found


def _words(warp: Warp, place: int) -> NDArray[np.uint32]:
    """A register of 32 bits in all lanes, by where it is in a warp."""
    found: NDArray[np.uint32] = warp.words[place // 4 : place // 4 + LANES]
    return found


def _put(warp: Warp, place: int | None, words: NDArray[np.uint32]) -> None:
    if place is not None:
        _words(warp, place)[:] = words


# ── tensor memory ───────────────────────────────────────────────────────────


def loaded(
    task: Load, warp: Warp, twins: Mapping[int, int], cells: NDArray[np.uint32]
) -> None:
    """Fill the shadows of the registers of a ``tcgen05.ld``."""
    words = task.words_of(cells.reshape(-1).take(task.way.numbers))
    for place, row in zip(task.results.offsets, words, strict=True):
        _put(warp, twins.get(place), row)
    if task.reduced is not None:
        some = np.where(words.any(axis=0), np.uint32(UNSET), np.uint32(0))
        _put(warp, twins.get(task.reduced.place), some)


def stored(
    task: Store, given: Sequence[Words | None], cells: NDArray[np.uint32]
) -> None:
    """Fill the shadows of the cells of a ``tcgen05.st``."""
    words = np.zeros(task.words.shape, np.uint32)
    for row, each in zip(words, given, strict=True):
        if each is not None:
            row[:] = each
    cells.reshape(-1)[task.way.numbers] = task.cells_of(words)


def tensor_work(task: Queued, shadows: Sequence[Shadow]) -> None:
    """Do to shadows what a ``tcgen05.mma`` or ``tcgen05.cp`` does to tensor memory."""
    pair = len(shadows) == 2
    image = np.stack([each.cells for each in shadows])
    shared = np.stack([each.shared for each in shadows])
    if not pair:
        image, shared = image[0], shared[0]
    if isinstance(task, Product):
        given = dict(task.given)
        a, b = given.pop("a"), given.pop("b")
        made = undefined(task.op, image, a, b, smem=shared, **given)
    else:
        assert isinstance(task, Fill)
        of = Descriptor.decode(task.descriptor, "tcgen05")
        made = copy(task.op, image, shared, task.at, of)
    for shadow, part in zip(shadows, made if pair else made[None], strict=True):
        for each in task.writes:
            if each.rank == shadow.rank:
                shadow.cells[each.index] = part[each.index]
