"""The bytes that a load or store accesses, checked.

A load or store of ``wmma`` takes a pointer and a leading dimension.  Here the pointer
is an array and an offset, or a :class:`pointer`, which counts as in C++.  Everything
is checked before any byte is moved.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fragmenta.base.arrays.checks import Array, as_array, is_whole, refuse_masks
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import (
    AlignmentError,
    BadCall,
    Error,
    OutOfBounds,
    ShapeError,
    UnknownType,
    one_of,
)
from fragmenta.reference.registers.dtype import DType
from fragmenta.reference.registers.fragment import Fragment
from fragmenta.reference.registers.layout import Index

#: The alignment rules that can be chosen.
RULES = ("either", "guide", "ptx")

# The programming guide: pointers are 256-bit aligned, and a leading dimension is a
# multiple of 16 bytes.  It says so for half, float, u4, s4 and b1; here the rule is
# used for all types.
_GUIDE_POINTER, _GUIDE_LEADING = 32, 16


@dataclass(frozen=True)
class Transfer:
    """One load or store without its pointer, and its names in messages."""

    call: str
    part: Fragment
    label: str
    type_name: str
    warps: tuple[int, ...]
    rules: str
    write: bool = False

    @property
    def fragment_bytes(self) -> int:
        """Bytes that one lane holds: the alignment that the PTX manual requires."""
        return self.part.registers * self.part.register_bits // 8

    @property
    def pointer_bytes(self) -> int:
        """Addresses must be multiples of this."""
        return self._ruled(_GUIDE_POINTER)

    @property
    def leading_bytes(self) -> int:
        """The distance between two rows must be a multiple of this."""
        return self._ruled(_GUIDE_LEADING)

    def _ruled(self, guide: int) -> int:
        # A fragment has 4, 8, 16 or 32 bytes.  For 32 bytes, the guide allows all that
        # the PTX manual allows; for fewer, the PTX manual allows all that the guide
        # allows.  So the smaller number allows exactly what one of them allows.
        size = self.fragment_bytes
        return {"guide": guide, "ptx": size, "either": min(guide, size)}[self.rules]


class pointer:
    """A pointer that counts items of an array, as in C++.

    ``pointer(A) + n`` is the C++ expression ``A + n``.  If A is an array of uint32 with
    packed 4-bit elements, it is n words of 32 bits further, which are 8 n elements, as
    with ``const unsigned* A``.  ``offset=n`` of a load counts elements instead.  For
    elements of 8 bits or more both are the same.

    n may be an array, with one number for each warp.

    >>> import numpy as np
    >>> from fragmenta import wmma
    >>> A = np.arange(256, dtype=np.uint32)
    >>> a = wmma.fragment(wmma.matrix_a, 8, 8, 32, "s4", wmma.row_major)
    >>> wmma.load_matrix_sync(a, wmma.pointer(A) + 8, 32)
    >>> hex(a.x[0, 0])
    '0x8'
    >>> wmma.load_matrix_sync(a, A, 32, offset=64)
    >>> hex(a.x[0, 0])
    '0x8'
    """

    __array_ufunc__ = None  # so n + pointer is a pointer even if n is an array

    def __init__(self, memory: object, index: ArrayLike = 0) -> None:
        if isinstance(memory, bytes | bytearray | memoryview):
            memory = np.frombuffer(memory, np.uint8)
        if not isinstance(memory, np.ndarray):
            raise BadCall(
                f"a pointer must be into an array or bytes; given {_kind(memory)}"
            )
        counted = np.asarray(index)
        if counted.dtype.kind not in "iu" or not _in_memory(counted):
            raise ShapeError(f"a pointer must move by whole items; given {index!r}")
        self.memory: Array = memory
        self.index: Index = counted.astype(np.intp)

    def __add__(self, items: ArrayLike) -> pointer:
        if isinstance(items, pointer):
            raise BadCall("two pointers cannot be added")
        moved = pointer(self.memory, items)
        return pointer(self.memory, self.index + moved.index)

    __radd__ = __add__

    def __sub__(self, items: ArrayLike) -> pointer:
        if isinstance(items, pointer):
            raise BadCall("two pointers cannot be subtracted")
        return self + -pointer(self.memory, items).index

    def __repr__(self) -> str:
        return f"<pointer to {self.memory.dtype} + {self.index.tolist()}>"


def _kind(given: object) -> str:
    return type(given).__name__


def _in_memory(index: Array) -> bool:
    """Whether sums and products of an index cannot wrap around."""
    return bool(((index > -(1 << 48)) & (index < 1 << 48)).all())


@dataclass(frozen=True)
class View:
    """The memory of a load or store."""

    units: Array
    """The whole memory as elements, or as 32-bit words if elements are packed."""
    index: Index
    """(…warps, lanes, entries): the unit of each entry of the fragment."""


def view(
    access: Transfer, memory: object, ldm: int, major: str, offset: ArrayLike
) -> View:
    """Check everything about a load or store, and return what it accesses.

    ``major`` is ``row`` or ``col``; ``ldm`` and ``offset`` count elements, and a
    :class:`pointer` counts its own items.
    """
    at = memory if isinstance(memory, pointer) else None
    buffer = _buffer(access, at.memory if at else memory)
    rows, cols = access.part.shape
    leading, inner = (rows, cols) if major == "row" else (cols, rows)
    _check_ldm(access, ldm, inner)
    start = _pointed(access, at, offset) if at else _offsets(access, offset)
    distance = _distance(buffer)
    _check_pointer(access, start, distance)
    _check_bounds(access, buffer, start, (leading - 1) * int(ldm) + inner)
    bits = access.part.dtype.bits
    unit = np.dtype("u4" if bits < 8 else f"u{bits // 8}")
    per_unit = unit.itemsize * 8 // bits
    data = buffer.reshape(-1, order="A").view(np.uint8)
    # Units begin at multiples of their size from the first byte of the array that owns
    # the memory, and a view may begin between two of them.
    data = data[-distance % unit.itemsize :]
    units = data[: data.size // unit.itemsize * unit.itemsize].view(unit)
    offsets = (start.bits - -distance % unit.itemsize * 8) // bits
    outer, along = _coordinates(access.part, major, per_unit)
    index = (offsets[..., None, None] + outer * int(ldm) + along) // per_unit
    if access.write:
        _refuse_race(access, index)
    return View(units, index)


@lru_cache
def _coordinates(part: Fragment, major: str, per_unit: int) -> tuple[Index, Index]:
    """For each entry: its row (or column), and its position within it."""
    grid = part.layout.grid()
    names = ("row", "col") if major == "row" else ("col", "row")
    outer, along = (grid[name].reshape(part.lanes, -1) for name in names)
    # Packed elements are adjacent in memory, so the first of a word is enough.
    return outer[:, ::per_unit], along[:, ::per_unit]


# ── the memory itself ───────────────────────────────────────────────────────


def _buffer(access: Transfer, memory: object) -> Array:
    """The memory as a contiguous array of a type that fits."""
    if isinstance(memory, bytes | bytearray | memoryview):
        memory = np.frombuffer(memory, np.uint8)
    refuse_masks(memory)
    if not isinstance(memory, np.ndarray):
        raise BadCall(
            f"memory must be a NumPy array or bytes; given {type(memory).__name__}"
        )
    if not (memory.flags.c_contiguous or memory.flags.f_contiguous):
        raise ShapeError(
            "memory must be contiguous; give the whole array, and offset= where the "
            "matrix begins"
        )
    if access.write and not memory.flags.writeable:
        raise BadCall("memory must be writable; given a read-only array")
    if not memory.dtype.isnative or not _holds(memory.dtype, access.part.dtype):
        raise UnknownType(f"memory of {memory.dtype} does not hold {_hint(access)}")
    return memory


def _holds(given: np.dtype[np.generic], of: DType) -> bool:
    """Whether memory of a NumPy type can hold elements of the fragment."""
    if of.bits < 8:  # packed bytes or words
        return given.kind == "u" or given == np.int32
    if given == of.storage:
        return True
    return of.bits > 8 and given in (np.uint8, np.dtype(f"u{of.bits // 8}"))


def _hint(access: Transfer) -> str:
    of, name = access.part.dtype, access.type_name
    if of.bits < 8:
        return (
            f"packed {name}; it takes bytes (uint8) of {8 // of.bits} elements, or "
            f"words, as fragmenta.reference.registers.words.encode_words(matrix, "
            f"{of.name!r}) makes them"
        )
    if of.bits == 8:
        return f"{name}; it takes {of.storage.name}"
    raw = f"uint{of.bits}"
    return f"{name}; it takes {of.storage.name}, or raw bits as {raw} or uint8"


def _distance(buffer: Array) -> int:
    """Bytes from the start of the array that owns the memory to this view."""
    owner = buffer
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    return _address(buffer) - _address(owner)


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


# ── the rules ───────────────────────────────────────────────────────────────


def _check_ldm(access: Transfer, ldm: int, inner: int) -> None:
    if not is_whole(ldm):
        raise ShapeError(f"ldm must be a whole number of elements; given {ldm!r}")
    if ldm < inner:
        raise ShapeError(
            f"ldm must be at least {inner}, the contiguous elements of {access.label}; "
            f"given {ldm}"
        )
    wanted, bits = access.leading_bytes, access.part.dtype.bits
    step = wanted * 8 // bits
    if ldm % step:
        below = int(ldm) // step * step
        near = one_of(each for each in (below, below + step) if each >= inner)
        raise AlignmentError(
            f"ldm {ldm} of {access.type_name} is {_bytes(int(ldm) * bits)}; it must "
            f"be a multiple of {wanted} bytes, {step} elements (nearest: {near})"
        )


class _Start(NamedTuple):
    """Where the matrix of each warp begins, in bits and as it was given."""

    bits: Index
    said: Index
    words: str


def _offsets(access: Transfer, offset: ArrayLike) -> _Start:
    """The beginnings from offsets, which count elements."""
    given = as_array(offset)
    if given.dtype.kind not in "iu":
        raise ShapeError(f"offset must be whole numbers of elements; given {offset!r}")
    if not _in_memory(given):
        raise OutOfBounds(f"offset must be within memory; given {offset!r}")
    said = _each_warp(access, given.astype(np.intp), "offset")
    return _Start(said * access.part.dtype.bits, said, "offset {}")


def _pointed(access: Transfer, at: pointer, offset: ArrayLike) -> _Start:
    """The beginnings from pointers, which count items of their array."""
    if np.any(np.asarray(offset) != 0):
        raise BadCall(
            f"offset= counts elements, and a pointer counts items of "
            f"{at.memory.dtype}: give only one; given {at} and offset {offset!r}"
        )
    said = _each_warp(access, at.index, "pointer")
    words = f"pointer + {{}} ({at.memory.dtype})"
    return _Start(said * at.memory.itemsize * 8, said, words)


def _each_warp(access: Transfer, given: Index, what: str) -> Index:
    try:
        return np.broadcast_to(given, access.warps)
    except ValueError as why:
        raise ShapeError(
            f"{what} must have the shape of the warps of {access.label}, "
            f"{access.warps}; given {given.shape}"
        ) from why


def _check_pointer(access: Transfer, begin: _Start, distance: int) -> None:
    """Refuse a matrix that does not begin at an aligned address.

    The first byte of the array that owns the memory counts as aligned, because memory
    allocated on a GPU is.
    """
    wanted, bits = access.pointer_bytes, access.part.dtype.bits
    positions = distance * 8 + begin.bits
    wrong = positions % (wanted * 8) != 0
    if wrong.any():
        said = begin.words.format(int(begin.said[wrong][0]))
        raise AlignmentError(
            f"{said} is {_bytes(int(positions[wrong][0]))} "
            f"into memory; {access.label} must begin at a multiple of {wanted} bytes "
            f"({wanted * 8} bits, {wanted * 8 // bits} elements)"
        )


def _check_bounds(access: Transfer, buffer: Array, begin: _Start, span: int) -> None:
    bits = access.part.dtype.bits
    wrong = (begin.bits < 0) | (begin.bits > buffer.nbytes * 8 - span * bits)
    if wrong.any():
        first = int(begin.bits[wrong][0]) // bits
        raise OutOfBounds(
            f"{access.call} would access elements {first} to {first + span - 1} of "
            f"memory with {buffer.nbytes * 8 // bits} elements of {access.type_name}"
        )


def _refuse_race(access: Transfer, index: Index) -> None:
    """Refuse warps that write the same element: the order on a GPU is undefined."""
    if prod(access.warps) == 1:
        return
    order = np.sort(index, axis=None)
    twice = order[1:][order[1:] == order[:-1]]
    if twice.size:
        raise Error(
            f"several warps would write element {int(twice[0])}, in undefined order"
        )


def _bytes(bits: int) -> str:
    return f"{bits / 8:g} byte" + ("" if bits == 8 else "s")
