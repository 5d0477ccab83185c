"""Elements in words: how several of them share a register.

Elements are packed with the lowest element in the lowest bits.  A narrow element
may sit in a wider slot, its container.

    pack     raw bits -> words of 32 or 64 bits
    unpack   words -> raw bits
    encode   stored values -> words, in one step
    decode   words -> stored values

Everything here assumes a little-endian machine; NVIDIA GPUs and all their hosts
are little-endian.  Packing 8, 16 and 32-bit elements is then a NumPy view.

>>> hex(pack_words([8, 15, 0, 7, 1, 2, 3, 4], 4)[0])
'0x432170f8'
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fragmenta.base.arrays.checks import Array, as_array
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import (
    Error,
    ShapeError,
    UnknownInstruction,
    UnknownType,
    ValueRangeError,
    nearest,
    one_of,
)
from fragmenta.reference.registers.dtype import (
    DType,
    blocks,
    dtype,
    unsigned_type,
    within,
)


def pack_words(bits: ArrayLike, width: int, word_bits: int = 32) -> Array:
    """Pack raw bits along the last axis, lowest element in the lowest bits.

    The result is a view if the elements are whole bytes and contiguous, otherwise
    a new array.

    >>> pack_words(np.uint8([1, 2, 3, 4]), 8)
    array([67305985], dtype=uint32)
    >>> bin(pack_words([1, 1, 0, 1] + [0] * 28, 1)[0])
    '0b1011'
    """
    per_word = _per_word(width, word_bits)
    given = _require_groups(as_array(bits), per_word, f"{width}-bit")
    checked = within(given, (1 << width) - 1, f"an element has {width} bits")
    return _pack(checked.astype(unsigned_type(width), copy=False), width, word_bits)


def unpack_words(words: ArrayLike, width: int) -> Array:
    """Raw bits of packed words, one element per item: the inverse of `pack_words`.

    >>> unpack_words(np.uint32([0x432170F8]), 4)
    array([ 8, 15,  0,  7,  1,  2,  3,  4], dtype=uint8)
    """
    given = as_array(words)
    if given.dtype.kind != "u":
        raise ValueRangeError(
            f"words are uint32 or uint64 arrays, not {given.dtype}; "
            "view signed words as unsigned"
        )
    _per_word(width, 8 * given.itemsize)
    if not given.ndim:
        raise ShapeError("words lie along the last axis, and a scalar has none")
    data = np.ascontiguousarray(given).view(np.uint8)
    if width == 1:
        return np.unpackbits(data, axis=-1, bitorder="little")
    if width == 4:
        return _unpack_nibbles(data)
    return data.view(unsigned_type(width))


def encode_words(
    array: ArrayLike, of: str | DType, slot: Container | None = None
) -> Array:
    """Encode and pack in one step: 32-bit words (64-bit for ``f64``).

    The result is that of ``pack_words(dt.encode(array), ...)``, but computed block
    by block, so that narrow elements are read from memory once.  ``slot`` is the
    container of each element; by default it is as wide as the element.

    >>> hex(encode_words([-8, -1, 0, 7, 1, 2, 3, 4], "s4")[0])
    '0x432170f8'
    """
    dt = dtype(of)
    slot = slot or container(dt)
    word_bits = max(32, slot.bits)
    per_word = _per_word(slot.bits, word_bits)
    given = _require_groups(as_array(array), per_word, f"{slot.bits}-bit")
    snug = slot.bits == slot.width
    if snug and slot.bits >= 8:
        return _pack(dt.encode(given), slot.bits, word_bits)
    flat = np.ascontiguousarray(given).reshape(-1)
    out = np.empty(flat.size // per_word, unsigned_type(word_bits))
    for block in blocks(flat.size):
        try:
            bits = dt.encode(flat[block])
        except Error:
            dt.encode(given)  # raises again, with the index in the whole array
            raise
        words = slice(block.start // per_word, block.stop // per_word)
        slots = bits if snug else slot.insert(bits)
        out[words] = _pack(slots, slot.bits, word_bits)
    return out.reshape(*given.shape[:-1], given.shape[-1] // per_word)


def decode_words(
    words: ArrayLike, of: str | DType, slot: Container | None = None
) -> Array:
    """Stored values of packed words: the inverse of `encode_words`.

    >>> decode_words(np.uint32([0x432170F8]), "s4")
    array([-8, -1, 0, 7, 1, 2, 3, 4], dtype=int4)
    """
    dt = dtype(of)
    slot = slot or container(dt)
    return dt.decode(slot.extract(unpack_words(words, slot.bits)))


@dataclass(frozen=True, slots=True)
class Container:
    """How an element sits in a register slot; see :func:`container`.

    ``bits`` is the width of the slot, ``shift`` the position of the value's
    lowest bit in it, ``width`` the width of the value.

    >>> Container(bits=8, shift=2, width=4).insert([0b1111])
    array([60], dtype=uint8)
    """

    bits: int
    shift: int
    width: int

    def insert(self, bits: ArrayLike) -> Array:
        """Slots that hold raw bits; all other bits are zero.

        >>> container("e2m1", "mxf8f6f4").insert([1, 15])
        array([ 4, 60], dtype=uint8)
        """
        allowed = f"an element has {self.width} bits"
        values = within(as_array(bits), (1 << self.width) - 1, allowed)
        slots = values.astype(unsigned_type(self.bits), copy=False)
        return slots << self.shift if self.shift else slots

    def extract(self, slots: ArrayLike) -> Array:
        """The raw bits in slots; the bits around the value are ignored.

        >>> container("e2m1", "mxf8f6f4").extract([4, 63])
        array([ 1, 15], dtype=uint8)
        """
        allowed = f"a slot has {self.bits} bits"
        checked = within(as_array(slots), (1 << self.bits) - 1, allowed)
        given = checked.astype(unsigned_type(self.bits), copy=False)
        if self.width == self.bits:
            return given
        return given >> self.shift & ((1 << self.width) - 1)


_BYTE_KINDS = ("f8f6f4", "mxf8f6f4")
_NIBBLE_KINDS = ("mxf4", "mxf4nvf4")
_PLAIN_KINDS = ("f16", "tf32", "i8")


def container(of: str | DType, kind: str | None = None) -> Container:
    """Where an instruction of this ``.kind`` expects an element.

    The kinds that mix 8, 6 and 4-bit floats give each element a byte: ``e2m1`` is
    in bits 5:2, ``e2m3`` and ``e3m2`` are in bits 5:0.  Elsewhere a slot is as wide
    as the type, and the 6-bit types do not occur.

    >>> container("e2m1", "f8f6f4")
    Container(bits=8, shift=2, width=4)
    >>> container("e2m1", "mxf4")
    Container(bits=4, shift=0, width=4)
    """
    dt = dtype(of)
    name = kind.removeprefix(".").removeprefix("kind::") if kind else None
    if name in _BYTE_KINDS:
        shift = 2 if dt.name == "e2m1" else 0
        return Container(max(8, dt.bits), shift, dt.bits)
    if name is not None and name not in _NIBBLE_KINDS + _PLAIN_KINDS:
        kinds = _BYTE_KINDS + _NIBBLE_KINDS + _PLAIN_KINDS
        raise UnknownInstruction(
            f"no kind::{name}{nearest(name, kinds)}; there are {one_of(kinds, 'and')}"
        )
    if dt.bits == 6:
        raise UnknownType(
            f"{dt} has no packed form; it exists only in the byte containers of "
            f"{one_of(f'kind::{k}' for k in _BYTE_KINDS)}"
        )
    return Container(dt.bits, 0, dt.bits)


def _per_word(width: int, word_bits: int) -> int:
    """How many elements a word holds."""
    if word_bits not in (8, 16, 32, 64):
        raise ShapeError(f"a word has 8, 16, 32 or 64 bits, not {word_bits}")
    if width not in (1, 4, 8, 16, 32, 64) or width > word_bits:
        raise ShapeError(
            f"{word_bits}-bit words hold elements of "
            f"{one_of(w for w in (1, 4, 8, 16, 32, 64) if w <= word_bits)} bits, "
            f"not {width}"
        )
    return word_bits // width


def _require_groups(given: Array, per_word: int, what: str) -> Array:
    if given.ndim and given.shape[-1] % per_word == 0:
        return given
    raise ShapeError(
        f"{per_word} {what} elements fill a word, so the last axis must be a "
        f"multiple of {per_word}; the shape is {given.shape}"
    )


def _pack(bits: Array, width: int, word_bits: int) -> Array:
    """Pack raw bits that fit their width and fill whole words."""
    data = np.ascontiguousarray(bits)
    if width == 1:
        data = np.packbits(data, axis=-1, bitorder="little")
    elif width == 4:
        data = _pack_nibbles(data)
    return data.view(unsigned_type(word_bits))


def _pack_nibbles(bits: Array) -> Array:
    """Two 4-bit patterns per byte, the first in the lower half.

    A pair of bytes read as one little-endian 16-bit number is
    ``second << 8 | first``; shifted right by 4 and merged into itself, its low
    byte is ``second << 4 | first``.
    """
    out = np.empty((*bits.shape[:-1], bits.shape[-1] // 2), np.uint8)
    pairs, flat = bits.reshape(-1).view(np.uint16), out.reshape(-1)
    for block in blocks(flat.size):
        merged = pairs[block] >> 4
        merged |= pairs[block]
        np.copyto(flat[block], merged, casting="unsafe")
    return out


def _unpack_nibbles(data: Array) -> Array:
    """One 4-bit pattern per byte: the steps of `_pack_nibbles` in reverse."""
    out = np.empty((*data.shape[:-1], data.shape[-1] * 2), np.uint8)
    pairs, flat = out.reshape(-1).view(np.uint16), data.reshape(-1)
    for block in blocks(flat.size):
        spread = flat[block].astype(np.uint16)
        spread |= spread << 4
        np.bitwise_and(spread, 0x0F0F, out=pairs[block])
    return out
