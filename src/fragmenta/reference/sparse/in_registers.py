"""``spcompress`` and ``spdecompress``: two of four elements in registers, and back.

Elements lie in 32-bit registers one after the other, the first one lowest.  Of each
four, ``spcompress`` keeps two, in ascending order, and tells their indices: 2 or 4 bits
each, the first one lowest, with zeros above the last.  A descriptor says which two
remain, and of which type the elements are::

    bits 0 to 1   0: greatest, 1: greatest magnitude, 2: least, 3: least magnitude
    bits 2 to 4   0: f16 or u8, 1: bf16 or s8, 2: e5m2, 3: e4m3, 4: e3m2, 5: e2m3

A NaN always remains, and -0 is less than +0.  The manual leaves to the hardware which
of equal elements remain, and what an index does that is too large.  Both are refused.
No GPU was asked.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.base.arrays.checks import as_array, is_whole
from fragmenta.errors import BadCall, ShapeError, ValueRangeError, one_of
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.searching import instruction
from fragmenta.reference.isa.tables.sparse import sizes_of
from fragmenta.reference.registers.dtype import dtype

Registers = NDArray[np.uint32]
Keys = NDArray[np.int64]

GROUP, KEPT = 4, 2
SELECTIONS = ("MAX", "MAXABS", "MIN", "MINABS")
"""What the two lowest bits of a descriptor mean."""
TYPES = {
    8: ("u8", "s8", "e5m2", "e4m3", "e3m2", "e2m3"),
    16: ("f16", "bf16"),
}
"""The element types of a descriptor, by bits of an element."""
_NAN = 1 << 40  # above every key


class SparseDescriptor(NamedTuple):
    """What the operand ``spdesc`` of ``spcompress`` says.

    >>> SparseDescriptor.decode(5, 8)
    SparseDescriptor(selection='MAXABS', type='s8')
    """

    selection: str
    type: str

    @classmethod
    def decode(cls, word: int, bits: int) -> SparseDescriptor:
        """The meaning of a word, for elements of so many bits.

        >>> SparseDescriptor.decode(12, 16)
        Traceback (most recent call last):
        fragmenta.errors.ValueRangeError: elements of 16 bits are f16 or bf16, types 0 \
to 1; given descriptor 0xc, type 3
        """
        if bits not in TYPES:
            raise ValueRangeError(
                f"elements have {one_of(map(str, TYPES))} bits; given {bits!r}"
            )
        if not is_whole(word):
            raise BadCall(f"a descriptor is a whole number; given {word!r}")
        number, types = int(word) >> 2 & 7, TYPES[bits]
        if word >> 5:
            raise ValueRangeError(
                f"bits 5 to 31 of a descriptor must be zero; given {word:#x}"
            )
        if number >= len(types):
            raise ValueRangeError(
                f"elements of {bits} bits are {one_of(types)}, types 0 to "
                f"{len(types) - 1}; given descriptor {word:#x}, type {number}"
            )
        return cls(SELECTIONS[word & 3], types[number])

    def encode(self) -> int:
        """The word.

        >>> SparseDescriptor("MAXABS", "s8").encode()
        5
        """
        every = [name for types in TYPES.values() for name in types]
        if self.selection not in SELECTIONS or self.type not in every:
            raise BadCall(
                f"a descriptor has {one_of(SELECTIONS)} of {one_of(every)}; given "
                f"{self.selection!r} of {self.type!r}"
            )
        types = next(each for each in TYPES.values() if self.type in each)
        return SELECTIONS.index(self.selection) | types.index(self.type) << 2


# ── which two remain ────────────────────────────────────────────────────────


def keys(bits: NDArray[np.unsignedinteger], of: str, selection: str) -> Keys:
    """Whole numbers in the order of elements: the greatest are those that remain.

    >>> keys(np.array([0x80, 0x00, 0x38], np.uint8), "e4m3", "MAX")  # -0, 0 and 1
    array([-1,  0, 56])
    """
    kind = dtype(of)
    given = bits.astype(np.int64)
    if kind.is_integer:
        value = given - (given >> 7 << 8) if of == "s8" else given
        order = np.abs(value) if selection.endswith("ABS") else value
        return -order if selection.startswith("MIN") else order
    sign = 1 << kind.bits - 1
    if (given >> kind.bits).any():
        raise ValueRangeError(
            f"elements of {of} have {kind.bits} bits, and zeros above them"
        )
    magnitude = given & sign - 1
    order = np.where(given & sign, -1 - magnitude, magnitude)
    order = magnitude if selection.endswith("ABS") else order
    order = -order if selection.startswith("MIN") else order
    return np.where(np.isnan(decoded(bits, of)), _NAN, order)


def decoded(bits: NDArray[np.unsignedinteger], of: str) -> NDArray[np.float32]:
    """The numbers of elements.

    >>> decoded(np.array([0x38, 0x7F], np.uint8), "e4m3")
    array([ 1., nan], dtype=float32)
    """
    kind = dtype(of)
    words = np.ascontiguousarray(bits.astype(f"u{kind.storage.itemsize}"))
    with np.errstate(invalid="ignore"):
        return words.view(kind.storage).astype(np.float32)


def remaining(order: Keys, what: str) -> NDArray[np.intp]:
    """The places of the two greatest keys of each four, ascending: (…, 2).

    >>> remaining(np.array([[0, -7, 3, 9]]), "spcompress")
    array([[2, 3]])
    >>> remaining(np.array([[1, 1, 0, 1]]), "spcompress")
    Traceback (most recent call last):
    fragmenta.errors.ValueRangeError: spcompress: elements 0, 1 and 3 of group 0 are \
equal, and not all of them remain; PTX does not say which do, so only a GPU that has \
this instruction can tell
    """
    ranked = np.argsort(-order, axis=-1, kind="stable")
    best = np.take_along_axis(order, ranked, axis=-1)
    equal = best[..., KEPT - 1] == best[..., KEPT]
    if equal.any():
        where = tuple(np.argwhere(equal)[0])
        same = np.flatnonzero(order[where] == best[where][KEPT]).tolist()
        thread = f" in thread {where[-2]}" if len(where) > 1 else ""
        raise ValueRangeError(
            f"{what}: elements {one_of(same, 'and')} of group {where[-1]}{thread} are "
            "equal, and not all of them remain; PTX does not say which do, so only a "
            "GPU that has this instruction can tell"
        )
    return np.sort(ranked[..., :KEPT], axis=-1)


# ── registers ───────────────────────────────────────────────────────────────


def compress_registers(
    op: Instruction | str, data: ArrayLike, spdesc: int
) -> tuple[Registers, Registers]:
    """``mdata`` and ``cdata`` of ``spcompress``: (…, registers) each.

    ``data`` are the registers of one thread, or of many: (…, registers).

    >>> import fragmenta as fm
    >>> op = fm.instruction("spcompress.b8.b4.sp::2:4.x1")
    >>> data = np.array([[0, -7, 3, 0, 0, 5, 3, 6]], np.int8).view(np.uint32)
    >>> mdata, cdata = compress_registers(op, data, 5)  # the greatest magnitudes of s8
    >>> cdata.view(np.int8), hex(mdata[0, 0])
    (array([[-7,  3,  5,  6]], dtype=int8), '0x3121')
    """
    found = _of(op, "spcompress")
    element, index, *_ = sizes_of(found)
    _, _, given, _ = found.operands
    words = _words(found, data, given.count, "data")
    about = SparseDescriptor.decode(spdesc, element)
    elements = words.view(f"u{element // 8}")
    groups = elements.reshape(*words.shape[:-1], -1, GROUP)
    places = remaining(keys(groups, about.type, about.selection), str(found))
    kept = np.take_along_axis(groups, places, axis=-1)
    cdata = np.ascontiguousarray(kept.reshape(*words.shape[:-1], -1)).view(np.uint32)
    return packed_indices(places.reshape(*words.shape[:-1], -1), index), cdata


def decompress_registers(
    op: Instruction | str, mdata: ArrayLike, cdata: ArrayLike
) -> Registers:
    """``data`` of ``spdecompress``: (…, registers).

    Of two elements with the same index, the later one remains: the manual writes them
    one after the other.

    >>> import fragmenta as fm
    >>> op = fm.instruction("spdecompress.b8.b4.sp::2:4.x2")
    >>> kept = np.array([[-7, 3, 5, 6]], np.int8).view(np.uint32)
    >>> decompress_registers(op, [[0x3121]], kept).view(np.int8)
    array([[ 0, -7,  3,  0,  0,  5,  0,  6]], dtype=int8)
    """
    found = _of(op, "spdecompress")
    element, index, kept, of, count = sizes_of(found)
    into, first, second = found.operands
    indices = _words(found, mdata, first.count, "mdata")
    given = _words(found, cdata, second.count, "cdata")
    batch = np.broadcast_shapes(indices.shape[:-1], given.shape[:-1])
    places = unpacked_indices(indices, index)[..., : kept * count]
    if (places >= of).any():
        most = int(places.max())
        raise ValueRangeError(
            f"{found}: indices must be below {of}; given {most}, and what it does is "
            "left to the hardware"
        )
    elements = given.view(f"u{element // 8}")[..., : kept * count]
    shape = (*batch, count, kept)
    places = np.broadcast_to(places, (*batch, count * kept)).reshape(shape)
    elements = np.broadcast_to(elements, (*batch, count * kept)).reshape(shape)
    room = into.count * 32 // element
    data = np.zeros((*batch, count, of), elements.dtype)
    for at in range(kept):  # one after the other: the last of several remains
        one = slice(at, at + 1)
        np.put_along_axis(data, places[..., one], elements[..., one], axis=-1)
    whole = np.zeros((*batch, room), elements.dtype)
    whole[..., : count * of] = data.reshape(*batch, -1)
    return whole.view(np.uint32)


def packed_indices(places: NDArray[np.integer], bits: int) -> Registers:
    """Indices in registers, the first one lowest; zeros fill the last register.

    >>> [hex(word) for word in packed_indices(np.array([1, 2, 1, 3]), 4)]
    ['0x3121']
    """
    per = 32 // bits
    count = -(-places.shape[-1] // per)
    room = np.zeros((*places.shape[:-1], count * per), np.uint32)
    room[..., : places.shape[-1]] = places
    shifts = bits * np.arange(per, dtype=np.uint32)
    parted = room.reshape(*places.shape[:-1], count, per) << shifts
    found: Registers = np.bitwise_or.reduce(parted, axis=-1)
    return found


def unpacked_indices(words: Registers, bits: int) -> NDArray[np.intp]:
    """Every index of registers: the inverse of :func:`packed_indices`.

    >>> unpacked_indices(np.array([0x3121], np.uint32), 4)
    array([1, 2, 1, 3, 0, 0, 0, 0])
    """
    shifts = bits * np.arange(32 // bits, dtype=np.uint32)
    parted = words[..., None] >> shifts & np.uint32((1 << bits) - 1)
    return parted.reshape(*words.shape[:-1], -1).astype(np.intp)


def _of(op: Instruction | str, family: str) -> Instruction:
    found = instruction(op)
    if found.family != family:
        raise BadCall(f"this takes an instruction of {family}; given {found}")
    return found


def _words(op: Instruction, given: ArrayLike, count: int, name: str) -> Registers:
    words = as_array(given)
    whole = words.dtype.kind in "iu" and words.shape[-1:] == (count,)
    if not whole or (words.dtype.itemsize != 4 and not _small(words)):
        raise ShapeError(
            f"{name} of {op} has uint32 registers (…, {count}); given {words.dtype} of "
            f"shape {words.shape}"
        )
    if words.dtype.itemsize == 4:
        return np.ascontiguousarray(words).view(np.uint32)
    return np.ascontiguousarray(words.astype(np.uint32))


def _small(words: NDArray[np.integer]) -> bool:
    """Whether every number fits a register: lists of Python become 64 bits."""
    return not words.size or (words.min() >= 0 and words.max() < 1 << 32)
