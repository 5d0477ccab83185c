"""Shadow bits through ``wgmma`` and ``tcgen05``: which results are undefined.

The shadow of a register is elsewhere in the memory of its warp; ``twins`` says where.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.once import once
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.units.blocks import Warp
from fragmenta.engine.units.tcgen05 import QueuedMma
from fragmenta.engine.units.undefined import Elements
from fragmenta.engine.units.warpgroups import Wgmma
from fragmenta.reference.execution.tcgen05 import undefined
from fragmenta.reference.execution.undefined import depending
from fragmenta.reference.isa.instruction import Instruction as Op
from fragmenta.reference.isa.reading import instruction
from fragmenta.reference.shared.descriptor import MAJORS
from fragmenta.reference.shared.tiles import read_tile

if TYPE_CHECKING:
    from fragmenta.engine.planes.shadows import Shadow

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


# ── tensor memory ───────────────────────────────────────────────────────────


def tensor_work(task: QueuedMma, shadows: Sequence[Shadow]) -> None:
    """Do to shadows what a ``tcgen05.mma`` does to tensor memory."""
    pair = len(shadows) == 2
    image = np.stack([each.cells for each in shadows])
    shared = np.stack([each.shared for each in shadows])
    if not pair:
        image, shared = image[0], shared[0]
    given = dict(task.given)
    a, b = given.pop("a"), given.pop("b")
    made = undefined(task.op, image, a, b, smem=shared, **given)
    for shadow, part in zip(shadows, made if pair else made[None], strict=True):
        for each in task.cells_written:
            if each.rank == shadow.rank:
                shadow.cells[each.index] = part[each.index]
