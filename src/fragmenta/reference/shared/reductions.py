"""What a reducing copy leaves in global memory.

``cp.reduce.async.bulk.tensor`` combines each element in memory with one of the box.
Which operations a type has, which NaN is written, and what becomes of subnormal numbers
was seen on an H200.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import ml_dtypes
import numpy as np

from fragmenta.base.arrays.checks import Array
from fragmenta.errors import BadOperands, nearest, one_of
from fragmenta.reference.isa.table import read

Bits: TypeAlias = Array

#: The types that each operation takes.
REDUCTIONS = """
operation | types
add       | u32 s32 u64 f16 bf16 f32 f32.ftz f64 tf32 tf32.ftz
min       | u32 s32 u64 s64 f16 bf16
max       | u32 s32 u64 s64 f16 bf16
inc       | u32
dec       | u32
and       | u32 s32 u64
or        | u32 s32 u64
xor       | u32 s32 u64
"""
TYPES_OF = {line["operation"]: line["types"].split() for line in read(REDUCTIONS)}

_NUMPY: dict[str, type[np.generic]] = {
    "u32": np.uint32,
    "s32": np.int32,
    "u64": np.uint64,
    "s64": np.int64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f32.ftz": np.float32,
    "tf32": np.float32,
    "tf32.ftz": np.float32,
    "f64": np.float64,
}
_NAN = {2: 0x7FFF, 4: 0x7FFFFFFF}
"""By the bytes of a float, the NaN that is written."""


def check_reduction(operation: str, dtype: str) -> None:
    """Refuse an operation that this type does not have.

    >>> check_reduction("inc", "s32")
    Traceback (most recent call last):
    fragmenta.errors.BadOperands: inc takes a tensor of u32; given s32
    """
    if operation not in TYPES_OF:
        raise BadOperands(
            f"a copy reduces with {one_of(TYPES_OF)}; given {operation!r}"
            + nearest(str(operation), TYPES_OF)
        )
    if dtype not in TYPES_OF[operation]:
        allowed = one_of(TYPES_OF[operation])
        raise BadOperands(f"{operation} takes a tensor of {allowed}; given {dtype}")


def reduced(operation: str, dtype: str, old: Bits, new: Bits) -> Bits:
    """The bits that memory has afterwards; ``new`` are those of the box.

    >>> old, new = np.array([3, 7], np.uint32), np.array([5, 5], np.uint32)
    >>> reduced("inc", "u32", old, new)
    array([4, 0], dtype=uint32)
    """
    check_reduction(operation, dtype)
    kind = np.dtype(_NUMPY[dtype])
    x, y = old.view(kind), new.view(kind)
    with np.errstate(all="ignore"):
        found = _add(dtype, x, y) if operation == "add" else _OTHERS[operation](x, y)
    bits: Bits = np.asarray(found, kind).view(old.dtype)
    return bits


def _add(dtype: str, x: Bits, y: Bits) -> Bits:
    if x.dtype.kind in "iu":
        return np.asarray(x + y)
    flushes = dtype.endswith(".ftz")
    if x.dtype.itemsize == 2:  # exact: f32 has more than twice the precision
        total = (x.astype(np.float32) + y.astype(np.float32)).astype(x.dtype)
    elif flushes:
        total = _flushed(_flushed(x) + _flushed(y))
    else:
        total = x + y
    if x.dtype.itemsize == 8:
        return _with_operand(np.asarray(total), x, y)
    return _canonical(np.asarray(total))


def _with_operand(total: Bits, x: Bits, y: Bits) -> Bits:
    """f64 sums; where one is NaN, it has all bits of the operand that is NaN."""
    bits = np.where(np.isnan(total), np.uint64(0xFFF8 << 48), total.view(np.uint64))
    for each in (x, y):
        bits = np.where(np.isnan(each), each.view(np.uint64), bits)
    return bits.view(np.float64)


def _flushed(x: Bits) -> Bits:
    """f32 without subnormals: they are zeros of their sign."""
    tiny = np.abs(x) < np.finfo(np.float32).tiny
    return np.where(tiny, np.copysign(np.float32(0), x), x)


def _canonical(x: Bits) -> Bits:
    size = x.dtype.itemsize
    bits = np.ascontiguousarray(x).view(f"u{size}")
    return np.where(np.isnan(x), _NAN[size], bits).astype(bits.dtype).view(x.dtype)


def _extreme(least: bool) -> Callable[[Bits, Bits], Bits]:
    """The smaller or the larger one; NaN only if both are, and -0 is below +0."""

    def pick(x: Bits, y: Bits) -> Bits:
        if x.dtype.kind in "iu":
            return np.asarray(np.minimum(x, y) if least else np.maximum(x, y))
        first, second = x.astype(np.float32), y.astype(np.float32)
        tie = (first == second) & (np.signbit(first) == least)
        below = first < second if least else first > second
        mine = np.isnan(second) | below | tie
        return _canonical(np.where(mine, x, y))

    return pick


_OTHERS: dict[str, Callable[[Bits, Bits], Bits]] = {
    "min": _extreme(True),
    "max": _extreme(False),
    "inc": lambda x, y: np.where(x >= y, 0, x + 1),
    "dec": lambda x, y: np.where((x == 0) | (x > y), y, x - 1),
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
