"""Which compiled loop computes which form of model, and on what arrays?"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.arithmetic import chain, floating, grouped
from fragmenta.arithmetic.elements import Format, Rounding
from fragmenta.arithmetic.models import GROUP, Model
from fragmenta.arithmetic.operands import Bits, Operands
from fragmenta.arithmetic.threads import spread
from fragmenta.arithmetic.vector import LANES
from fragmenta.arithmetic.whole import NOTHING, bits, flat, integer, padded
from fragmenta.dtype import dtype

# Twice the value of each e2m1.
_TWICE = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)


def fused(given: Operands) -> Bits:
    """Fused steps, in the loops of :mod:`fragmenta.arithmetic.floating`."""
    fixed = _fixed(given.model)
    d = _accumulators(given)
    optional = (given.index, given.scale_a, given.scale_b)
    stack = _stack(given)
    sizes: tuple[Any, ...] = (
        *(given.batches, stack, given.rows, given.columns, given.instructions),
        *(len(given.a), len(given.b)),
        *(1 if array is None else len(array) for array in optional),
    )
    arguments: tuple[Any, ...] = (
        *(flat(given.a), flat(given.b), d.reshape(-1)),
        *(NOTHING if array is None else flat(array) for array in optional),
        *(fixed.order, floating.Plan(*sizes, *fixed.numbers), fixed.values),
    )
    down = -(-given.rows // floating.BLOCK_ROWS)
    across = -(-given.columns // floating.BLOCK_COLUMNS)
    run = partial(floating.multiply_blocks, *arguments)
    spread(run, -(-given.batches // stack) * down * across, given.products)
    if given.model.accumulator == "f16":
        return d.astype(np.uint16)
    return _rounded(d) if given.model.d == "f16" else d


def grouped_products(given: Operands) -> Bits:
    """mxf4 and mxf4nvf4, in :mod:`fragmenta.arithmetic.grouped`."""
    model, width = given.model, -(-given.columns // 8) * 8
    assert given.scale_a is not None
    assert given.scale_b is not None
    plan = grouped.Plan(
        rows=given.rows,
        columns=width,
        instructions=given.instructions,
        a_batches=len(given.a),
        b_batches=len(given.b),
        index_batches=1 if given.index is None else len(given.index),
        scale_a_batches=len(given.scale_a),
        scale_b_batches=len(given.scale_b),
        k=model.k,
        stored=model.stored,
        products=model.products,
        group=GROUP,
        scales=model.scale_vec,
        ue4m3=int(model.scale == "ue4m3"),
        rounding=_rounding(model),
    )
    a, b = flat(_TWICE[given.a]), flat(_TWICE[padded(given.b, width)])
    d = padded(_accumulators(given), width)
    index = NOTHING if given.index is None else flat(given.index)
    scales = flat(given.scale_a), flat(padded(given.scale_b, width))
    sizes = flat(np.abs(a)), flat(np.abs(b))
    arguments: tuple[Any, ...] = (a, b, *sizes, d.reshape(-1), index, *scales, plan)
    run = partial(grouped.groups, *arguments)
    spread(run, given.batches * given.rows, given.products)
    return d[..., : given.columns]


def double(given: Operands) -> Bits:
    """f64, in :mod:`fragmenta.arithmetic.chain`."""
    model = given.model
    d = np.empty((given.batches, given.rows, given.columns))
    d[...] = given.c.view(np.float64)
    plan = chain.Plan(
        given.rows,
        given.columns,
        model.k * given.instructions,
        len(given.a),
        len(given.b),
        mode=chain.MODES[model.rounding],
        pairs=0,
    )
    a, b = (flat(each.view(np.float64)) for each in (given.a, given.b))
    run = partial(chain.chain64, a, b, d.reshape(-1), plan)
    spread(run, given.batches * given.rows, given.products)
    return d.view(np.uint64)


def software(given: Operands) -> Bits:
    """f16 with k = 4 where no hardware has it, one instruction at a time."""
    model, d = given.model, _accumulators(given)
    a, b = (_widened(each).view(np.float32) for each in (given.a, given.b))
    pairs = int(model.form == "pairs")
    plan = chain.Plan(given.rows, given.columns, 4, len(a), len(b), 0, pairs)
    for first in range(0, a.shape[-1], 4):
        some = (a[..., first : first + 4], b[..., first : first + 4, :])
        x, y = (flat(np.ascontiguousarray(each)) for each in some)
        run = partial(chain.chain32, x, y, d.view(np.float32).reshape(-1), plan)
        spread(run, given.batches * given.rows, given.products)
        if model.d == "f16":
            d = _widened(_rounded(d))
    d[np.isnan(d.view(np.float32))] = 0x7FFFFFFF
    return _rounded(d) if model.d == "f16" else d


def ieee(given: Operands) -> Bits:
    """A chain of fused multiply-adds, in hardware or in software."""
    return double(given) if given.model.accumulator == "f64" else software(given)


FORMS: dict[str, Callable[[Operands], Bits]] = {
    "fused": fused,
    "grouped": grouped_products,
    "chain": ieee,
    "pairs": software,
    "integer": integer,
    "bits": bits,
}


def _stack(given: Operands) -> int:
    """How many matrices of the batch to take as one, their rows below another.

    Single tiles are too small for the loops over elements; but the tiles of a
    batch lie behind one another in memory.
    """
    own = [array for array in (given.a, given.index) if array is not None]
    if (
        given.columns != LANES
        or given.model.stored * given.instructions > floating.BLOCK_PRODUCTS
        or given.model.scale
        or any(len(array) == 1 for array in own)
    ):
        return 1
    return max(1, floating.BLOCK_ROWS // given.rows)


class _Fixed(NamedTuple):
    """What a model alone decides about a call of the loops of fused steps."""

    numbers: tuple[Any, ...]  #: the fields of Plan from ``k`` on
    order: NDArray[np.uintp]  #: unsigned: no loop needs to look for negatives
    values: Bits  #: empty; its type holds every product exactly


@cache
def _fixed(model: Model) -> _Fixed:
    a, b = _format(model.a, model.operand), _format(model.b, model.operand)
    narrow = max(a.exponent_bits, b.exponent_bits) <= 5 and not model.scale
    numbers = (
        model.k,
        model.stored,
        model.products,
        _rounding(model),
        _least(model.c_enters),
        int(model.accumulator == "f16"),
        int(model.start == "zero"),
        model.scale_vec,
        int(model.sparse),
        int(model.order != tuple(range(model.stored))),
        a,
        b,
    )
    values = np.empty(0, np.float32 if narrow else np.float64)
    return _Fixed(numbers, np.array(model.order, np.uintp), values)


def _rounding(model: Model) -> Rounding:
    nearest, least = int(model.rounding == "rn"), _least(model.accumulator)
    return Rounding(model.fraction, model.floor, model.keep, nearest, least)


def _least(name: str) -> int:
    """The exponent of a type's subnormals."""
    return 1 - dtype(name).bias


def _format(name: str, operand: str | None) -> Format:
    """A type as the loops know it, after conversion to ``operand``."""
    kind = dtype(name)
    top = ((1 << kind.exponent_bits) - 1) << kind.fraction_bits
    special = infinity = 1 << 30  # beyond every pattern
    if kind.has_infinity:
        special = infinity = top & (infinity - 1)
    elif kind.has_nan:
        special = top | ((1 << kind.fraction_bits) - 1)
    least = _least(operand or name)
    return Format(kind.exponent_bits, kind.fraction_bits, special, infinity, least)


def _accumulators(given: Operands) -> Bits:
    """A new array of the accumulators that c brings, as 32-bit words."""
    model, c = given.model, given.c
    if model.c == "f16" and (model.accumulator == "f32" or model.form == "pairs"):
        c = _widened(c)
    d = np.empty((given.batches, given.rows, given.columns), np.uint32)
    d[...] = c
    return d


def _widened(half: Bits) -> Bits:
    """f16 bits as f32 bits."""
    with np.errstate(invalid="ignore"):
        return half.view(np.float16).astype(np.float32).view(np.uint32)


def _rounded(single: Bits) -> Bits:
    """f32 bits as f16 bits, to nearest."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        half = single.view(np.float32).astype(np.float16)
    return np.where(np.isnan(half), np.uint16(0x7FFF), half.view(np.uint16))
