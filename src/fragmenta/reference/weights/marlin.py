"""The format marlin-24 of compressed-tensors.

Integers of 4 or 8 bits, their scales and the codes, each in the order in which the
kernel of Marlin 2:4 reads them.  Integers and scales have the order ``sparse_marlin``
of :mod:`fragmenta.reference.weights.orders`; that of the codes is in
:mod:`fragmenta.reference.sparse.exchange`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fragmenta.base.arrays.checks import Array, as_array
from fragmenta.errors import BadCall, ShapeError, ValueRangeError, one_of
from fragmenta.reference.sparse.compression import Compressed, require_compressed
from fragmenta.reference.sparse.exchange import from_marlin, to_marlin
from fragmenta.reference.weights.shuffling import shuffle

GROUP = 128
"""Columns that share a scale, if a row has several."""
_BITS = (4, 8)
_OUTPUTS = 64  # must be a multiple of this
_HALVES = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
_INTEGERS = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"


class Marlin24(NamedTuple):
    """A quantised sparse weight: value = integer x scale.

    >>> import fragmenta as fm
    >>> parts = (np.zeros((1, 128), np.int32), np.ones((1, 64), np.float16),
    ...          np.full((1, 128), 0x4444, np.int16))
    >>> from_marlin_24(*parts).scales.shape
    (64, 1)
    """

    compressed: Compressed
    """The integers, int8, and their codes."""
    scales: Array
    """(out, groups): for each row, or for each 128 columns of it."""
    bits: int
    """4 or 8."""


def from_marlin_24(
    weight_packed: ArrayLike, scale_packed: ArrayLike, meta: ArrayLike
) -> Marlin24:
    """The integers, codes and scales of a weight in the format marlin-24.

    ``weight_packed`` is int32 of (in / 32, out * bits / 2), ``scale_packed`` float16 of
    (groups, out), and ``meta`` int16 of (in / 32, 2 * out).

    >>> words = np.full((1, 128), 0x99999999, np.uint32).view(np.int32)
    >>> meta = np.full((1, 128), 0x4444, np.int16)
    >>> found = from_marlin_24(words, np.ones((1, 64), np.float16), meta)
    >>> found.compressed, found.compressed.values.max(), found.bits
    (<Compressed 64x32 int8, 2:4>, np.int8(1), 4)
    """
    words, packed, codes = map(as_array, (weight_packed, scale_packed, meta))
    bits, rows, columns = _sizes(words, packed, codes)
    order = shuffle("sparse_marlin", shape=(columns // 2, rows), bits=bits)
    # Stored with an offset, so that they are not negative; here a byte wraps around.
    values = (order.unpack(words.ravel()).T - np.uint8(1 << bits - 1)).view(np.int8)
    places = order.scale_order(channel=len(packed) == 1).scatter()
    scales = np.ascontiguousarray(packed[:, places].T)
    return Marlin24(from_marlin(_INTEGERS, values, codes), scales, bits)


class Marlin24Words(NamedTuple):
    """The three arrays of a weight in the format marlin-24.

    >>> Marlin24Words._fields
    ('weight_packed', 'scale_packed', 'meta')
    """

    weight_packed: Array
    scale_packed: Array
    meta: Array


def to_marlin_24(sp: Compressed, scales: ArrayLike, *, bits: int = 4) -> Marlin24Words:
    """Integers, codes and scales in the format marlin-24.

    ``sp`` has integers of int8, 2:4; ``scales`` are float16 of (out, groups).

    >>> words = np.full((1, 128), 0x99999999, np.uint32).view(np.int32)
    >>> meta = np.full((1, 128), 0x4444, np.int16)
    >>> found = from_marlin_24(words, np.ones((1, 64), np.float16), meta)
    >>> again = to_marlin_24(found.compressed, found.scales)
    >>> bool((again.weight_packed == words).all() and (again.meta == meta).all())
    True
    """
    values, factors = _integers(sp, bits), as_array(scales)
    rows, columns = sp.shape[-2:]
    if rows % _OUTPUTS or columns % 32 or values.ndim != 2 or sp.width != columns:
        raise ShapeError(
            f"marlin-24 has a multiple of {_OUTPUTS} outputs and of 32 columns; given "
            f"{'x'.join(map(str, sp.shape))}"
        )
    if factors.dtype != np.float16 or factors.ndim != 2 or len(factors) != rows:
        raise ShapeError(
            f"scales of marlin-24 are float16 of ({rows}, groups); given "
            f"{factors.dtype} of shape {factors.shape}"
        )
    order = shuffle("sparse_marlin", shape=(columns // 2, rows), bits=bits)
    low = 1 << bits - 1
    stored = (values.astype(np.int16) + low).astype(np.uint8)
    words = order.pack(stored.T).view(np.int32).reshape(columns // 32, -1)
    channel = factors.shape[-1] == 1
    packed = np.empty(factors.shape[::-1], np.float16)
    packed[:, order.scale_order(channel=channel).scatter()] = factors.T
    half = Compressed(stored.astype(np.float16), sp.indices, sp.granularity)
    meta = to_marlin(_HALVES, half).meta.reshape(columns // 32, 2 * rows)
    found = Marlin24Words(words, packed, meta)
    _sizes(*found)
    return found


def _integers(sp: Compressed, bits: int) -> Array:
    """The integers of a compressed matrix, if they have so many bits."""
    require_compressed(sp)
    if type(bits) is not int or bits not in _BITS:
        raise BadCall(f"marlin-24 has {one_of(_BITS)} bits; given {bits!r}")
    values, low = as_array(sp.values), -(1 << bits - 1)
    if values.dtype != np.int8:
        raise BadCall(f"marlin-24 has integers of int8; given {values.dtype}")
    if values.size and (values.min() < low or values.max() >= -low):
        raise ValueRangeError(
            f"integers of {bits} bits are {low} to {-low - 1}; given "
            f"{values.min()} to {values.max()}"
        )
    return values


def _sizes(words: Array, scales: Array, meta: Array) -> tuple[int, int, int]:
    """Bits of an integer, rows and columns, if the three arrays fit together."""
    for name, each, kind in (
        ("weight_packed", words, np.dtype(np.int32)),
        ("scale_packed", scales, np.dtype(np.float16)),
        ("meta", meta, np.dtype(np.int16)),
    ):
        if each.dtype != kind or each.ndim != 2 or not each.size:
            raise ShapeError(
                f"{name} of marlin-24 is a matrix of {kind}; given {each.dtype} of "
                f"shape {each.shape}"
            )
    (groups, rows), columns = scales.shape, 32 * len(words)
    bits = next((b for b in _BITS if 2 * words.shape[1] == b * rows), 0)
    if not bits or rows % _OUTPUTS or meta.shape != (columns // 32, 2 * rows):
        raise ShapeError(
            f"marlin-24 has {one_of(_BITS)} bits, and a multiple of {_OUTPUTS} outputs"
            f": weight_packed (in / 32, out * bits / 2), scale_packed (groups, out), "
            f"meta (in / 32, 2 * out); given {words.shape}, {scales.shape} and "
            f"{meta.shape}"
        )
    if groups != 1 and groups * GROUP != columns:
        raise ShapeError(
            f"marlin-24 has a scale for each row, or for each {GROUP} columns; given "
            f"{groups} for {columns} columns"
        )
    if groups == 2:  # the writer and the kernel do not agree in which order they are
        raise ShapeError(
            f"the order of the scales of {columns} columns in groups of {GROUP} is not "
            f"defined: marlin-24 must have one group, or more than two"
        )
    return bits, rows, columns
