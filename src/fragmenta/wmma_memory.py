"""Which bytes of memory does a fragment's matrix occupy, and may it?

A load or store of ``wmma`` names a pointer and a leading dimension.  Here the
pointer is an array and an offset into it; everything that could be wrong with
them is found before a single byte moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.dtype import DType, refuse_masks
from fragmenta.errors import Error, ShapeError, UnknownType, one_of
from fragmenta.fragment import Fragment
from fragmenta.layout import Index, is_whole

Array = NDArray[Any]

#: Whose alignment rules hold.
RULES = ("guide", "ptx")

# The programming guide: pointers are 256-bit aligned, and a leading dimension
# is a multiple of 16 bytes (said of half, float, u4, s4 and b1; taken here for
# the types it does not mention).
_GUIDE_POINTER, _GUIDE_LEADING = 32, 16


class AlignmentError(ShapeError):
    """A pointer or a leading dimension breaks an alignment rule."""


class OutOfBounds(ShapeError):
    """A load or store would touch elements outside the memory."""


@dataclass(frozen=True)
class Access:
    """One load or store, but for its pointer: what moves, and how to speak of it."""

    call: str
    part: Fragment
    label: str
    type_name: str
    warps: tuple[int, ...]
    rules: str
    write: bool = False

    @property
    def fragment_bytes(self) -> int:
        """What one lane holds: the alignment that the PTX manual asks for."""
        return self.part.registers * self.part.register_bits // 8

    @property
    def pointer_bytes(self) -> int:
        """What addresses must be multiples of."""
        return _GUIDE_POINTER if self.rules == "guide" else self.fragment_bytes

    @property
    def leading_bytes(self) -> int:
        """What the distance between two rows must be a multiple of."""
        return _GUIDE_LEADING if self.rules == "guide" else self.fragment_bytes


@dataclass(frozen=True)
class View:
    """Memory as a load or store sees it."""

    units: Array
    """All of it, as elements (as 32-bit words of them where they are packed)."""
    index: Index
    """(…warps, lanes, entries): the unit that each entry of a fragment is."""


def view(
    access: Access, memory: object, ldm: int, major: str, offset: ArrayLike
) -> View:
    """Check everything about a load or store, then say where it goes.

    ``major`` is ``row`` or ``col``; ``ldm`` and ``offset`` count elements.
    """
    buffer = _buffer(access, memory)
    rows, cols = access.part.shape
    leading, inner = (rows, cols) if major == "row" else (cols, rows)
    _check_ldm(access, ldm, inner)
    offsets = _offsets(access, offset)
    _check_pointer(access, offsets, _distance(buffer))
    _check_bounds(access, buffer, offsets, (leading - 1) * int(ldm) + inner)
    bits = access.part.dtype.bits
    unit = np.dtype("u4" if bits < 8 else f"u{bits // 8}")
    per_unit = unit.itemsize * 8 // bits
    data = buffer.reshape(-1, order="A").view(np.uint8)
    units = data[: data.size // unit.itemsize * unit.itemsize].view(unit)
    outer, along = _coordinates(access.part, major, per_unit)
    index = (offsets[..., None, None] + outer * int(ldm) + along) // per_unit
    if access.write:
        _refuse_race(access, index)
    return View(units, index)


@lru_cache
def _coordinates(part: Fragment, major: str, per_unit: int) -> tuple[Index, Index]:
    """Of each entry: its row (or column), and its place along it."""
    grid = part.layout.grid()
    names = ("row", "col") if major == "row" else ("col", "row")
    outer, along = (grid[name].reshape(part.lanes, -1) for name in names)
    # packed elements are neighbours in memory, so the first stands for its word
    return outer[:, ::per_unit], along[:, ::per_unit]


# ── the memory itself ───────────────────────────────────────────────────────


def _buffer(access: Access, memory: object) -> Array:
    """The memory as an array in one piece, of a type that makes sense."""
    if isinstance(memory, bytes | bytearray | memoryview):
        memory = np.frombuffer(memory, np.uint8)
    refuse_masks(memory)
    if not isinstance(memory, np.ndarray):
        raise Error(f"memory is a NumPy array or bytes, not {type(memory).__name__}")
    if not (memory.flags.c_contiguous or memory.flags.f_contiguous):
        raise ShapeError(
            "memory must lie in one piece; give the whole array and say with "
            "offset= where the matrix begins"
        )
    if access.write and not memory.flags.writeable:
        raise Error("memory is read-only")
    if not memory.dtype.isnative or not _holds(memory.dtype, access.part.dtype):
        raise UnknownType(f"memory of {memory.dtype} does not hold {_hint(access)}")
    return memory


def _holds(given: np.dtype[Any], of: DType) -> bool:
    """Whether memory of a NumPy type can be a T* of the fragment's T."""
    if of.bits < 8:  # a void*: packed bytes or words
        return given.kind == "u" or given == np.int32
    if given == of.storage:
        return True
    return of.bits > 8 and given in (np.uint8, np.dtype(f"u{of.bits // 8}"))


def _hint(access: Access) -> str:
    of, name = access.part.dtype, access.type_name
    if of.bits < 8:
        return (
            f"packed {name}; it takes bytes (uint8) of {8 // of.bits} elements, or "
            f"words, as fragmenta.words.encode_words(matrix, {of.name!r}) makes them"
        )
    if of.bits == 8:
        return f"{name}; it takes {of.storage.name}"
    raw = f"uint{of.bits}"
    return f"{name}; it takes {of.storage.name}, or raw bits as {raw} or uint8"


def _distance(buffer: Array) -> int:
    """Bytes between the array that owns the memory and this view of it."""
    owner = buffer
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    return _address(buffer) - _address(owner)


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


# ── the rules ───────────────────────────────────────────────────────────────


def _check_ldm(access: Access, ldm: int, inner: int) -> None:
    if not is_whole(ldm):
        raise ShapeError(f"ldm is a whole number of elements; given {ldm!r}")
    if ldm < inner:
        raise ShapeError(
            f"ldm {ldm} is too small: {access.label} has {inner} elements in a row"
        )
    wanted, bits = access.leading_bytes, access.part.dtype.bits
    step = wanted * 8 // bits
    if ldm % step:
        below = int(ldm) // step * step
        near = one_of(each for each in (below, below + step) if each >= inner)
        raise AlignmentError(
            f"ldm {ldm} of {access.type_name} is {_bytes(int(ldm) * bits)}; it must "
            f"be a multiple of {wanted} bytes, {step} elements ({near} would do)"
        )


def _offsets(access: Access, offset: ArrayLike) -> Index:
    """The offset of each warp."""
    given = np.asarray(offset)
    if given.dtype.kind not in "iu":
        raise ShapeError(f"offset counts elements; given {offset!r}")
    try:
        return np.broadcast_to(given.astype(np.intp), access.warps)
    except ValueError as why:
        raise ShapeError(
            f"offset has shape {given.shape}; {access.label} is of warps {access.warps}"
        ) from why


def _check_pointer(access: Access, offsets: Index, start: int) -> None:
    """Every matrix must begin at an aligned address.

    The first byte of the array that owns the memory counts as aligned, as the
    address is that an allocation on a GPU returns.
    """
    wanted, bits = access.pointer_bytes, access.part.dtype.bits
    positions = start * 8 + offsets * bits
    wrong = positions % (wanted * 8) != 0
    if wrong.any():
        raise AlignmentError(
            f"offset {int(offsets[wrong][0])} is {_bytes(int(positions[wrong][0]))} "
            f"into memory; {access.label} must begin at a multiple of {wanted} bytes "
            f"({wanted * 8} bits, {wanted * 8 // bits} elements)"
        )


def _check_bounds(access: Access, buffer: Array, offsets: Index, span: int) -> None:
    total = buffer.nbytes * 8 // access.part.dtype.bits
    wrong = (offsets < 0) | (offsets > total - span)  # cannot overflow
    if wrong.any():
        first = int(offsets[wrong][0])
        raise OutOfBounds(
            f"{access.call} would touch elements {first} to {first + span - 1} of "
            f"memory that holds {total} of {access.type_name}"
        )


def _refuse_race(access: Access, index: Index) -> None:
    """Two warps that write the same element: on a GPU, either may win."""
    if prod(access.warps) == 1:
        return
    order = np.sort(index, axis=None)
    twice = order[1:][order[1:] == order[:-1]]
    if twice.size:
        raise Error(f"several warps would write element {int(twice[0])}: a race")


def _bytes(bits: int) -> str:
    return f"{bits / 8:g} byte" + ("" if bits == 8 else "s")
