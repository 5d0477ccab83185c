"""The cells of tensor memory that a warp reaches.

Warp w of a CTA reaches the 32 lanes from ``32 * (w % 4)`` on, its *quarter*, with
``tcgen05.ld`` and ``tcgen05.st``.  ``.32x32b`` begins at the first lane of the quarter;
the shapes with 16 lanes begin there or 16 lanes further.

Two kinds of lanes are accepted in the address:

- the lane itself, as the manual has it, and as CUTLASS and Triton write it;
- the lane counted from the quarter.  The manual does not say so; DeepGEMM gives lanes 0
  and 16 from all four warps, and says that the hardware ignores the bits of the warp.

Bits 7 and up of the lane are ignored: there are 128 lanes.  learn-cuda's kernels for
two CTAs add 128 in the second one, and are right on a B200.  A launch warns of it.

Other lanes are refused.  Whether a GPU then ignores bits 5 and 6 of the lane, or does
something else, is not known.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fragmenta.base.arrays.checks import as_array, check_numbers
from fragmenta.errors import AddressError, BadCall, ShapeError, one_of
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.registers.fragment import Fragment
from fragmenta.reference.registers.layout import Index, Layout
from fragmenta.reference.registers.tensor_fragment import (
    COLUMNS,
    LANES,
    Image,
    TensorAddress,
)

QUARTER = 32
"""Lanes that a warp reaches."""
WARPS = LANES // QUARTER
HALF = 16
"""Lanes of the shapes that do not take a whole quarter."""


def reach(warp: int) -> range:
    """The lanes that a warp reaches; ``warp`` is its number in the CTA.

    >>> reach(2), reach(5)
    (range(64, 96), range(32, 64))
    """
    check_numbers(warp=warp)
    if warp < 0:
        raise ShapeError(f"warps are counted from 0; given {warp}")
    first = int(warp) % WARPS * QUARTER
    return range(first, first + QUARTER)


def base_lanes(op: Instruction, warp: int = 0) -> tuple[int, ...]:
    """The lanes at which a load or store of this warp may begin.

    >>> import fragmenta as fm
    >>> base_lanes(fm.instruction("tcgen05.ld.sync.aligned.16x256b.x1.b32"), warp=1)
    (32, 48)
    """
    rows = registers_of(op).layout.sizes["row"]
    return tuple(reach(warp)[::rows])


def first_lane(op: Instruction, address: TensorAddress, warp: int) -> int:
    """The first lane that a warp accesses at this address.

    This is the one place that decides which lanes an address may have.

    >>> import fragmenta as fm
    >>> op = fm.instruction("tcgen05.ld.sync.aligned.32x32b.x1.b32")
    >>> first_lane(op, TensorAddress(64, 0), warp=2), first_lane(op, TensorAddress(0, 0), warp=2)
    (64, 64)
    >>> first_lane(op, TensorAddress(128, 0), warp=2)
    64
    >>> first_lane(op, TensorAddress(32, 0), warp=2)
    Traceback (most recent call last):
    fragmenta.errors.AddressError: tcgen05.ld.sync.aligned.32x32b.x1.b32: warp 2 reaches \
lanes 64 to 95 and begins at lane 64; given lane 32; what a GPU does with a lane outside \
the warp's quarter is not known
    """  # noqa: E501 - two calls on a line
    allowed = base_lanes(op, warp)
    quarter = reach(warp)
    given = address.lane % LANES
    for lane in (given, given + quarter.start):
        if lane in allowed:
            return lane
    inside = given in quarter or given < QUARTER
    unknown = (
        ""
        if inside
        else ("; what a GPU does with a lane outside the warp's quarter is not known")
    )
    raise AddressError(
        f"{op}: warp {warp} reaches lanes {quarter.start} to {quarter.stop - 1} and "
        f"begins at lane {one_of(allowed)}; given lane {address.lane}{unknown}"
    )


class ElementCells(NamedTuple):
    """Where the elements of registers are: (lanes, registers, elements)."""

    lane: Index
    column: Index

    @property
    def flat(self) -> Index:
        """Their numbers in an image, row by row."""
        found: Index = self.lane * COLUMNS + self.column
        return found


def reached(
    op: Instruction,
    address: int | TensorAddress = 0,
    *,
    warp: int | None = None,
    imm: int | None = None,
) -> ElementCells:
    """The cell of each element of the registers: lanes x registers x elements.

    ``warp`` is the number of the warp.  Without it, they are those of four warps, and
    ``address`` is what warp 0 gives; each warp adds its quarter, as kernels do.
    ``imm`` is the immediate of ``.16x32bx2``.  It is added to the whole address.

    >>> import fragmenta as fm
    >>> op = fm.instruction("tcgen05.ld.sync.aligned.16x32bx2.x2.b32")
    >>> cells = reached(op, TensorAddress(32, 8), warp=1, imm=100)
    >>> cells.lane[[0, 15, 16], 0, 0].tolist(), cells.column[[0, 15, 16], 1, 0].tolist()
    ([32, 47, 32], [9, 9, 109])
    """
    if warp is None:
        at = TensorAddress.of(address)
        each = [_of_warp(op, at, number, imm) for number in range(WARPS)]
        return ElementCells(
            *(np.concatenate(parts) for parts in zip(*each, strict=True))
        )
    return _of_warp(op, TensorAddress.of(address), warp, imm)


def _of_warp(
    op: Instruction, address: TensorAddress, warp: int, imm: int | None
) -> ElementCells:
    part = registers_of(op)
    half, row, column = _grid(part.layout)
    starts = [address]
    if "half" in part.layout.sizes:
        starts.append(_second(op, address, imm))
    elif imm is not None:
        raise BadCall(f"{op} has no immediate; only .16x32bx2 has one")
    lanes = np.array([first_lane(op, at, warp) for at in starts])
    columns = np.array([at.column for at in starts])
    width = part.layout.sizes["col"]
    for at in starts:
        if at.column + width > COLUMNS:
            raise AddressError(
                f"{op} has {width} columns; from column {at.column} on they do not fit "
                f"in {COLUMNS}"
            )
    return ElementCells(lanes[half] + row, columns[half] + column)


def _second(op: Instruction, address: TensorAddress, imm: int | None) -> TensorAddress:
    """The address of the second half: the immediate is added to the whole word."""
    if imm is None:
        raise BadCall(f"{op} needs an immediate, imm=; the second half is so far away")
    check_numbers(imm=imm)
    return TensorAddress.decode(address.encode() + int(imm) & 0xFFFFFFFF)


@lru_cache(maxsize=128)
def _grid(layout: Layout) -> tuple[Index, Index, Index]:
    """Half, row and column of each place of a fragment."""
    grid = layout.grid()
    zero = np.zeros(layout.place_shape, np.intp)
    return grid.get("half", zero), grid["row"], grid["col"]


def registers_of(op: Instruction) -> Fragment:
    """The registers of a load or store: its fragment R.

    >>> import fragmenta as fm
    >>> registers_of(fm.instruction("tcgen05.st.sync.aligned.16x64b.x2.b32"))
    <Fragment R: b32 16x4, row = L2 L3 L4 L0  col = L1 R0>
    """
    if not isinstance(op, Instruction):
        raise BadCall(f"op is an Instruction; given {type(op).__name__}")
    if op.unit != "tcgen05" or not (op.loads or op.stores):
        raise BadCall(f"tcgen05.ld and tcgen05.st reach lanes of a warp; given {op}")
    if "R" not in op.fragments:
        raise BadCall(
            f"{op} is known by its spelling only: what its registers hold is not "
            "documented"
        )
    return op.fragments["R"]


def as_tensor_memory(image: ArrayLike, ctas: int = 1) -> Image:
    """Tensor memory, checked: uint32 (…, 128, 512), or (…, 2, 128, 512) of two CTAs.

    >>> as_tensor_memory(np.zeros((128, 256), np.uint32))
    Traceback (most recent call last):
    fragmenta.errors.ShapeError: an image of tensor memory is uint32 (…, 128, 512); \
given uint32 of shape (128, 256)
    """
    words = as_array(image)
    tail = (LANES, COLUMNS) if ctas == 1 else (ctas, LANES, COLUMNS)
    whole = words.dtype.kind in "iu" and words.dtype.itemsize == 4
    if words.shape[max(0, words.ndim - len(tail)) :] != tail or not whole:
        raise ShapeError(
            "an image of tensor memory is uint32 "
            f"(…, {', '.join(map(str, tail))}); given {words.dtype} of shape "
            f"{words.shape}"
        )
    return np.ascontiguousarray(words).view(np.uint32)
