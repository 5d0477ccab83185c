"""Products of integers and of single bits, in whatever order is fast.

Their sums are exact, so they may be added in any order.  Large matrices of integers
are multiplied by BLAS as float32, in parts along k that are small enough: every
partial sum is below 2**24 and so exact.  The kernels of
:mod:`fragmenta.reference.arithmetic.integer_kernels` multiply small matrices, and those
that ``.satfinite`` may clamp between instructions.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from fragmenta.base.arrays.threads import share_out
from fragmenta.reference.arithmetic import integer_kernels
from fragmenta.reference.arithmetic.blocks import (
    Block,
    each_block,
    from_panels,
    row_offsets,
    sizes_of,
    to_panels,
)
from fragmenta.reference.arithmetic.models import Model
from fragmenta.reference.arithmetic.operands import Bits, Operands
from fragmenta.reference.registers.dtype import dtype

# With at least this many products in one matrix, BLAS is faster.
_LARGE = 1 << 18


def integer(given: Operands) -> Bits:
    """Products of s8, u8, s4 and u4 in any combination."""
    a, b = _integers(given.a, given.model.a), _integers(given.b, given.model.b)
    return _blas(given, a, b) if suits_blas(given) else _plain(given, a, b)


def single_bits(given: Operands) -> Bits:
    """Products of b1, 64 at a time."""
    a, b = _words(given.a), _words(np.swapaxes(given.b, -1, -2))
    d = given.copy_of(given.c.view(np.int32))
    sizes = (given.rows, given.columns, a.shape[-1], *(int(len(x) > 1) for x in (a, b)))
    run = partial(
        integer_kernels.count_bits(given.model.bitop == "xor"), a, b, d, *sizes
    )
    share_out(run, given.batches * given.rows, given.products, given.progress)
    return d.view(np.uint32)


def suits_blas(given: Operands) -> bool:
    """Whether the matrices are large, and no intermediate sum can be clamped."""
    length = given.model.stored * given.instructions
    if given.rows * given.columns * length < _LARGE:
        return False
    if not given.model.satfinite:
        return True
    most = _largest_product(given) * length
    c = given.c.view(np.int32)
    return int(c.max()) + most < 1 << 31 and int(c.min()) - most >= -(1 << 31)


def integer_variant(model: Model) -> integer_kernels.IntegerVariant:
    """What must be known to compile the sums of a model of integers."""
    a, b = (dtype(name).kind == "signed" for name in (model.a, model.b))
    return integer_kernels.IntegerVariant(a, b, model.satfinite)


def _plain(given: Operands, a: Bits, b: Bits) -> Bits:
    model = given.model
    add = integer_kernels.integers(integer_variant(model))
    d = np.empty(given.shape, np.uint32)

    def work(block: Block) -> None:
        x = np.ascontiguousarray(block.of_a(a))
        y = to_panels(block.of_b(b))
        c = np.broadcast_to(given.c, d.shape)
        out = to_panels(block.of(c).copy())
        offsets = row_offsets(given, block, 0, given.instructions)
        sizes = sizes_of(given, block, given.instructions, x, y, offsets)
        add(x, offsets, y, out, *sizes)
        d[block] = from_panels(out, block.shape[2])

    each_block(given, work)
    return d


def _blas(given: Operands, a: Bits, b: Bits) -> Bits:
    k = given.model.k
    deep = max((1 << 24) // _largest_product(given) // k, 1) * k
    d = given.copy_of(given.c.view(np.int32))
    for first in range(0, b.shape[-2], deep):
        last = min(first + deep, b.shape[-2])
        x, y = _dense(given, a, first, last), b[:, first:last].astype(np.float32)
        for batch in range(given.batches):
            product = np.matmul(x[batch % len(x)], y[batch % len(y)])
            d[batch] += product.astype(np.int32)
        given.progress(last / b.shape[-2])
    return d.view(np.uint32)


def _dense(given: Operands, a: Bits, first: int, last: int) -> Bits:
    """Columns of A as float32; a sparse A gets back its zeros."""
    model, index = given.model, given.index
    if index is None:
        return a[..., first:last].astype(np.float32)
    share = slice(first * model.stored // model.k, last * model.stored // model.k)
    base = np.arange(0, last - first, model.k).repeat(model.stored)
    place = index[..., share].astype(np.int64) + base
    shape = (max(len(a), len(index)), given.rows, place.shape[-1])
    x = np.zeros((*shape[:-1], last - first), np.float32)
    stored = np.broadcast_to(a[..., share], shape).astype(np.float32)
    np.put_along_axis(x, np.broadcast_to(place, shape), stored, axis=-1)
    return x


def _integers(patterns: Bits, name: str) -> Bits:
    """Raw bits as 8-bit integers."""
    if name == "s8":
        return patterns.view(np.int8)
    if name == "s4":
        return (patterns << 4).view(np.int8) >> 4
    return patterns


def _largest_product(given: Operands) -> int:
    """The largest magnitude of a product of the two types."""
    types = (dtype(given.model.a), dtype(given.model.b))
    (low_a, high_a), (low_b, high_b) = (each.limits for each in types)
    return max(-low_a, high_a) * max(-low_b, high_b)


def _words(patterns: Bits) -> Bits:
    """Bits along the last axis as 64-bit words; zeros fill the last word."""
    if patterns.dtype == np.uint8:
        packed = np.packbits(patterns, axis=-1, bitorder="little")
    else:
        packed = np.ascontiguousarray(patterns).view(np.uint8)
    rest = -packed.shape[-1] % 8
    if rest:
        packed = np.pad(packed, [(0, 0), (0, 0), (0, rest)])
    return np.ascontiguousarray(packed).view(np.uint64)
