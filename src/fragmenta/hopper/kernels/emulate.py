"""Computes the bits of a kernel without a GPU.

A kernel adds along k in ascending order.  So its result is that of
:func:`fragmenta.matmul` with the kernel's instruction.  If its tile is split along k,
each part of k is summed in this way, and then the parts are added in f32, in ascending
order.  Promotion adds the sums of the slabs in f32.  The epilogue rounds to f32 after
every step, and once more to the output type.  A grouped kernel does this for each
expert.

If A has 4-bit integers, the sums of each group of columns are those of the integers.
They leave the tensor core and are added in f32 to the groups before, with the scale, in
one rounding: ``total = fma(sum, scale, total)``, from zero, in ascending k.  Without
groups, this is done for each 128 columns, and the scale is 1.  If the kernel is
rounded, each integer x scale is rounded to the type of B, and the product is that of a
sparse A of this type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.base.arrays.checks import Array, as_array
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import ShapeError
from fragmenta.hopper.kernels.config import SLAB_S4, Kernel
from fragmenta.hopper.kernels.four_bits import (
    PackedIntegers,
    multiplied_values,
    unpack_integers,
)
from fragmenta.hopper.kernels.packing import Packed, unpack
from fragmenta.reference.execution.matmul import matmul
from fragmenta.reference.sparse.compression import Compressed

Float = NDArray[np.float32]

STORAGE = {
    "f32": np.dtype(np.float32),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16),
    "s32": np.dtype(np.int32),
}
#: The only NaN that the hardware writes.
_NAN = {"f32": 0x7FFFFFFF, "bf16": 0x7FFF, "f16": 0x7FFF}


@dataclass(frozen=True)
class Epilogue:
    """The steps between the sums and the stored result; all of them are optional.

    The result is ``sum * (scale * scale_m) * scale_n + bias``, and every step is
    rounded to f32.  ``scale`` is one number; ``scale_m`` and ``bias`` have one for
    each row of D, ``scale_n`` one for each column.

    >>> bool(Epilogue()), bool(Epilogue(scale=2.0))
    (False, True)
    """

    scale: ArrayLike | None = None
    scale_m: ArrayLike | None = None
    scale_n: ArrayLike | None = None
    bias: ArrayLike | None = None

    def __bool__(self) -> bool:
        parts = (self.scale, self.scale_m, self.scale_n, self.bias)
        return any(part is not None for part in parts)


def emulate(
    kernel: Kernel,
    A: ArrayLike | Compressed | Packed,
    B: ArrayLike,
    epilogue: Epilogue | None = None,
) -> Array:
    """D = A B as the kernel computes it; A is m x k, B is n x k.

    >>> import fragmenta as fm
    >>> kernel = Kernel("s8")
    >>> A = fm.sparse.prune(kernel.instruction, np.arange(-8, 8).reshape(2, 8))
    >>> emulate(kernel, A, np.ones((3, 8), np.int8))
    array([[-22, -22, -22],
           [ 18,  18,  18]], dtype=int32)
    """
    counts = bits(A, B) if kernel.xor else None
    return finish(kernel, accumulate(kernel, A, B), epilogue, counts)


def emulate_grouped(
    kernel: Kernel,
    A: Sequence[ArrayLike | Compressed | Packed],
    B: ArrayLike,
    ends: ArrayLike,
    epilogue: Epilogue | None = None,
) -> Array:
    """D of a grouped kernel: the rows of B of each expert, multiplied with its A.

    ``ends`` has the number of rows of B up to and with each expert.  ``scale_m`` and
    ``bias`` have one row for each expert.  Rows of B after the last end belong to no
    expert, and their results are zeros here; the kernel leaves them as they were.

    >>> from fragmenta.hopper.kernels.config import Tile
    >>> kernel = Kernel("s8", tile=Tile(64, 8), transposed=True, grouped=True)
    >>> A = [[[1, 0, 0, 1]], [[0, 2, 2, 0]]]
    >>> emulate_grouped(kernel, A, np.ones((3, 4), np.int8), [1, 2])
    array([[2],
           [4],
           [0]], dtype=int32)
    """
    b, single = as_array(B), replace(kernel, grouped=False)
    given, first = epilogue or Epilogue(), 0
    found: Array | None = None
    for number, (a, end) in enumerate(zip(A, bounded(ends, len(b)), strict=True)):
        rows = slice(first, max(first, end))
        own = _of_expert(given, number, rows)
        # An expert without rows tells the shape of the others' results.
        d = emulate(single, a, b[rows] if end > first else b[:1], own)
        if found is None:
            found = np.zeros((len(b), d.shape[1]), d.dtype)
        if end > first:
            found[rows] = d
        first = end
    if found is None:
        raise ShapeError("a grouped product needs at least one expert; given none")
    return found


def bounded(ends: ArrayLike, rows: int) -> list[int]:
    """The ends of the experts' rows, each of them inside of B.

    >>> bounded([-1, 2, 9], 4)
    [0, 2, 4]
    """
    found: list[int] = np.clip(as_array(ends), 0, rows).tolist()
    return found


def _of_expert(epilogue: Epilogue, number: int, rows: slice) -> Epilogue:
    """What one expert has of an epilogue."""

    def part(values: ArrayLike | None, which: int | slice) -> ArrayLike | None:
        return None if values is None else as_array(values)[which]

    return Epilogue(
        epilogue.scale,
        part(epilogue.scale_m, number),
        part(epilogue.scale_n, rows),
        part(epilogue.bias, number),
    )


def accumulate(
    kernel: Kernel, A: ArrayLike | Compressed | Packed, B: ArrayLike
) -> Array:
    """The sums in the registers after the last slab.

    >>> accumulate(Kernel("s8", sparse=False), np.ones((2, 32)), np.ones((1, 32)))
    array([[32],
           [32]], dtype=int32)
    """
    b = np.swapaxes(as_array(B), -1, -2)
    if not b.shape[-2]:
        raise ShapeError("k must be at least 1; given 0")
    if not isinstance(A, PackedIntegers):
        a = unpack(A) if isinstance(A, Packed) else A
    else:
        return _accumulate_groups(kernel, A, b)
    with np.errstate(all="ignore"):
        sums = [
            _part(kernel, _columns(a, first, last), b[first:last])
            for first, last in kernel.parts(b.shape[-2])
        ]
        return reduce(_added, sums)


def _part(kernel: Kernel, a: ArrayLike | Compressed, b: Array) -> Array:
    """The sums of one part of k."""
    step = kernel.slab_k if kernel.promote else len(b)
    ends = [(first, min(first + step, len(b))) for first in range(0, len(b), step)]
    sums = (matmul(kernel.instruction, _columns(a, *x), b[slice(*x)]) for x in ends)
    return reduce(_added, sums)


def _accumulate_groups(kernel: Kernel, A: PackedIntegers, b: Array) -> Array:
    """The sums of integers with a scale for each group of columns."""
    integers, scales = unpack_integers(A)
    a = multiplied_values(integers, kernel.b)
    wide = kernel.group or SLAB_S4
    unit = np.float32(512 if kernel.multiplied == "e4m3" else 1)
    rows, last = len(a.values), b.shape[-2]
    factors = np.full((rows, -(-last // wide)), unit)
    if scales is not None:
        factors = scales.astype(np.float32) * unit

    def part(first: int, end: int) -> Array:
        total = np.zeros((rows, b.shape[-1]), np.float32)
        for at in range(first, end, wide):
            ends = at, min(at + wide, end)
            sums = matmul(kernel.instruction, _columns(a, *ends), b[slice(*ends)])
            total = fused(sums, factors[:, at // wide, None], total)
        return total

    with np.errstate(all="ignore"):
        return reduce(_added, [part(*ends) for ends in kernel.parts(last)])


def fused(x: Array, y: Array, z: Array) -> Array:
    """x * y + z of f32, rounded once.

    The product is exact in f64.  The sum there is rounded to an odd number where it is
    not exact, so that rounding it again to f32 is right.

    >>> fused(np.float32([3]), np.float32([2**-24]), np.float32([1]))
    array([1.0000002], dtype=float32)
    """
    with np.errstate(all="ignore"):
        product, added = (
            x.astype(np.float64) * y.astype(np.float64),
            z.astype(np.float64),
        )
        total = np.asarray(product + added)
        other = total - product
        error = (product - (total - other)) + (added - other)
        even = (total.view(np.int64) & 1) == 0
        move = np.isfinite(total) & (error != 0) & even
        total = np.where(move, np.nextafter(total, np.copysign(np.inf, error)), total)
        rounded = total.astype(np.float32)
    return _one_nan(rounded, "f32")


def _added(x: Array, y: Array) -> Array:
    return _one_nan(x + y, "f32" if x.dtype == np.float32 else "")


def _columns(a: ArrayLike | Compressed, first: int, last: int) -> Array | Compressed:
    """Columns of A, compressed or not."""
    if not isinstance(a, Compressed):
        return as_array(a)[..., first:last]
    chunk, kept = a.granularity.chunk, a.granularity.kept
    low, high = first // chunk, -(-last // chunk)
    return Compressed(
        a.values[..., low * kept : high * kept],
        a.indices[..., low:high],
        a.granularity,
        last - first,
    )


def bits(
    A: ArrayLike | Compressed | Packed, B: ArrayLike
) -> tuple[Array, Array] | None:
    """The number of set bits in each row of A and of B, if they are b1."""
    if isinstance(A, Compressed | Packed):
        return None
    a, b = as_array(A), as_array(B)
    if a.dtype != np.uint8 or b.dtype != np.uint8:
        return None
    return a.sum(axis=-1, dtype=np.int32), b.sum(axis=-1, dtype=np.int32)


def finish(
    kernel: Kernel,
    sums: Array,
    epilogue: Epilogue | None = None,
    counts: tuple[Array, Array] | None = None,
) -> Array:
    """D from the sums: scaled, rounded, transposed.

    ``counts`` are the numbers of set bits in each row of A and of B, for xor.

    >>> kernel = Kernel("e4m3", out="bf16", scaled=True)
    >>> finish(kernel, np.float32([[1, 3]]), Epilogue(scale=0.5, bias=[1.0]))
    array([[1.5, 2.5]], dtype=bfloat16)
    """
    if kernel.xor:
        if counts is None:
            raise ShapeError("xor needs the bits of A and B as uint8, each 0 or 1")
        sums = counts[0][:, None] + counts[1] - 2 * sums
    with np.errstate(all="ignore"):
        if kernel.scaled:
            sums = _scaled(sums.astype(np.float32), epilogue or Epilogue())
        out = sums.astype(STORAGE[kernel.out])
    out = _one_nan(out, kernel.out)
    return np.ascontiguousarray(out.swapaxes(-1, -2)) if kernel.transposed else out


def _scaled(sums: Float, epilogue: Epilogue) -> Float:
    factor = np.float32(1) if epilogue.scale is None else _single(epilogue.scale)
    if epilogue.scale_m is not None:
        factor = factor * _single(epilogue.scale_m)[:, None]
    sums = sums * factor
    if epilogue.scale_n is not None:
        sums = sums * _single(epilogue.scale_n)
    if epilogue.bias is not None:
        sums = sums + _single(epilogue.bias)[:, None]
    return sums


def _single(values: ArrayLike) -> NDArray[np.float32]:
    return as_array(values).astype(np.float32)


def _one_nan(values: Array, name: str) -> Array:
    """The same values, with every NaN as the hardware writes it."""
    if name in _NAN:
        raw = values.view(np.dtype(f"u{values.itemsize}"))
        raw[np.isnan(values)] = _NAN[name]
    return values
