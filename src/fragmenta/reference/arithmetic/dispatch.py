"""Chooses the kernel for each form of model, and prepares its arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.checks import Array
from fragmenta.base.arrays.threads import share_out
from fragmenta.base.jit.compiler import Traced, type_of
from fragmenta.base.jit.trace import F32, LANES
from fragmenta.reference.arithmetic import chain, floating, floored, grouped
from fragmenta.reference.arithmetic.blocks import (
    DEPTH,
    Block,
    each_block,
    from_panels,
    row_offsets,
    scratch,
    sizes_of,
    stride,
    to_panels,
)
from fragmenta.reference.arithmetic.constants import (
    SCALE_PARTS,
    fused_constants,
    grouped_variant,
    rounding,
)
from fragmenta.reference.arithmetic.elements import (
    SPECIAL,
    Format,
    decoder,
    scale_elements,
)
from fragmenta.reference.arithmetic.integers import integer, single_bits
from fragmenta.reference.arithmetic.models import Model
from fragmenta.reference.arithmetic.operands import Bits, Operands
from fragmenta.reference.registers.dtype import dtype

Floats = Array


class DecodedArray(NamedTuple):
    """Elements as values and exponents."""

    values: Floats
    exponents: NDArray[np.int32]
    careful: bool  #: whether an element is infinite or NaN


# -- fused steps --------------------------------------------------------------


def fused(given: Operands) -> Bits:
    """Fused steps: as chains of fused multiply-adds, or product by product."""
    model = given.model
    if floored.suits(given):
        sums, left = floored.products(given)
        d = _result(sums, model.accumulator)
    else:
        d, left = np.empty(given.shape, _BITS[model.accumulator]), None
    _one_by_one(given, d, left)
    return _rounded(d) if model.accumulator == "f32" and model.d == "f16" else d


def _one_by_one(given: Operands, d: Bits, blocks: Iterable[Block] | None) -> None:
    """Blocks (or all of it), with the kernels of :mod:`.floating`."""
    model, fixed = given.model, _fixed(given.model)

    def work(block: Block) -> None:
        c = to_panels(_accumulators(given, block))
        chunk = max(1, DEPTH // model.stored)
        for first in range(0, given.instructions, chunk):
            count = min(chunk, given.instructions - first)
            _run_steps(given, fixed, block, first, count, c)
        d[block] = _result(from_panels(c, block.shape[2]), model.accumulator)

    if blocks is None:
        each_block(given, work)
    else:
        for block in blocks:
            work(block)


def _run_steps(
    given: Operands, fixed: _Fixed, block: Block, first: int, count: int, c: Floats
) -> None:
    """Compute some instructions of a block; the accumulators change in place."""
    a = _rows(given, fixed, block, first, count)
    b = _columns(given, fixed, block, first, count)
    offsets = row_offsets(given, block, first, count)
    careful = a.careful or b.careful
    sizes = sizes_of(given, block, count, a.values, b.values, offsets)
    least = fixed.c_least if first == 0 else fixed.rounding[-1]
    run = fixed.steps[careful]
    run(
        a.values,
        a.exponents,
        offsets,
        b.values,
        b.exponents,
        c,
        *sizes,
        *fixed.rounding,
        least,
    )


def _rows(
    given: Operands, fixed: _Fixed, block: Block, first: int, count: int
) -> DecodedArray:
    """Some rows of A, in the order in which their products are added."""
    model = given.model
    some = slice(first * model.stored, (first + count) * model.stored)
    a = block.of_a(given.a)[..., some]
    if model.reordered:
        a = a.reshape(*a.shape[:2], count, model.stored)[..., model.order]
        a = a.reshape(*a.shape[:2], -1)
    parts = _taken_apart("A", a, fixed.a)
    if given.scale_a is None:
        return parts
    some = slice(first * model.scale_vec, (first + count) * model.scale_vec)
    scales = block.of_a(given.scale_a)[..., some]
    return _scaled(parts, scales, model.stored // model.scale_vec, 1)


def _columns(
    given: Operands, fixed: _Fixed, block: Block, first: int, count: int
) -> DecodedArray:
    """Some columns of B, in panels."""
    model = given.model
    b = block.of_b(given.b)[:, first * model.k : (first + count) * model.k]
    parts = _taken_apart("B", to_panels(b), fixed.b)
    if given.scale_b is None:
        return parts
    some = slice(first * model.scale_vec, (first + count) * model.scale_vec)
    scales = to_panels(block.of_b(given.scale_b)[:, some])
    return _scaled(parts, scales, model.k // model.scale_vec, LANES)


def _taken_apart(name: str, elements: Bits, of: _Elements) -> DecodedArray:
    source = np.ascontiguousarray(elements)
    floats = scratch(f"{name} values", source.shape, of.values)
    exponents = scratch(f"{name} exponents", source.shape, np.int32)
    found = np.zeros(1, np.int32)
    of.decode(source, floats, exponents, found, source.size, *of.form)
    return DecodedArray(floats, exponents, bool(found[0]))


def _scaled(parts: DecodedArray, scales: Bits, inner: int, lanes: int) -> DecodedArray:
    """Elements times their ue8m0 scales.

    ``inner`` times, a row of ``lanes`` elements has the same row of scales.  The
    elements may be those of one tile, while each tile has its own scales.
    """
    given = np.ascontiguousarray(scales)
    tiles = max(len(given), len(parts.values))
    shape = (tiles, *parts.values.shape[1:])
    values, exponents = np.empty(shape), np.empty(shape, np.int32)
    numbers = (tiles, given[0].size // lanes, inner, lanes)
    arrays = (parts.values, parts.exponents, given, values, exponents)
    scale_elements(*arrays, *numbers, stride(parts.values), stride(given))
    careful = parts.careful or bool((given == SPECIAL).any())
    return DecodedArray(values, exponents, careful)


# -- groups -------------------------------------------------------------------


def grouped_products(given: Operands) -> Bits:
    """mxf4 and mxf4nvf4, with the kernel of the module ``grouped``."""
    model = given.model
    assert given.scale_a is not None
    assert given.scale_b is not None
    scale_a, scale_b = given.scale_a, given.scale_b
    d = np.empty(given.shape, np.uint32)
    run = grouped.grouped_kernel(grouped_variant(model))

    def work(block: Block) -> None:
        x, some_x = _e2m1("A", block.of_a(given.a), grouped.unpack_rows)
        panels = to_panels(block.of_b(given.b))
        y, some_y = _e2m1("B", panels, grouped.unpack_columns)
        sx, sy = block.of_a(scale_a), to_panels(block.of_b(scale_b))
        c = to_panels(_accumulators(given, block))
        offsets = row_offsets(given, block, 0, given.instructions)
        sizes = sizes_of(given, block, given.instructions, x, y, offsets)
        numbers = (model.scale_vec, stride(sx), stride(sy), *rounding(model))
        scales = (*_scale_parts("A", sx, model), *_scale_parts("B", sy, model))
        masks = (_NONE,) * 2 if model.sparse else (some_x, some_y)
        run(x, offsets, y, *scales, *masks, c, *sizes, *numbers)
        d[block] = _result(from_panels(c, block.shape[2]), "f32")

    each_block(given, work)
    return d


_NONE = np.zeros(1, np.uint16)


def _e2m1(name: str, elements: Bits, unpack: Traced) -> tuple[Floats, Bits]:
    """The doubled values of e2m1 numbers, and which of sixteen along k are not zero."""
    source = np.ascontiguousarray(elements)
    values = scratch(f"{name} e2m1", source.shape, np.float32)
    masks = scratch(f"{name} masks", (source.size // grouped.MASKED,), np.uint16)
    unpack(source, values, masks, source.size)
    return values, masks


def _scale_parts(name: str, scales: Bits, model: Model) -> tuple[Floats, Bits]:
    """The values and exponents of scales."""
    source = np.ascontiguousarray(scales)
    values = scratch(f"{name} scales", source.shape, np.float64)
    exponents = scratch(f"{name} powers", source.shape, np.int32)
    table = SCALE_PARTS[model.scale or ""]
    grouped.unpack_scales(source, *table, values, exponents, source.size)
    return values, exponents


# -- IEEE 754 -----------------------------------------------------------------


def double(given: Operands) -> Bits:
    """f64, with the kernels of :mod:`fragmenta.reference.arithmetic.chain`."""
    rounding = given.model.rounding
    a, b, c = (each.view(np.float64) for each in (given.a, given.b, given.c))
    d = given.copy_of(c)
    sizes = _chain_sizes(given, a, b, given.model.k * given.instructions)
    rows = given.batches * given.rows
    if rounding == "rn":
        run = partial(chain.chain64, a, b, d, *sizes)
        share_out(run, rows, given.products, given.progress)
        if not np.isnan(d).any():
            return d.view(np.uint64)
        d = given.copy_of(c)
    run = partial(chain.chain64_careful, a, b, d, chain.MODES[rounding], *sizes)
    share_out(run, rows, given.products, given.progress)
    return d.view(np.uint64)


def software(given: Operands) -> Bits:
    """f16 with k = 4 on targets without it in hardware, one instruction at a time."""
    model = given.model
    c = _widened(given.c) if model.c == "f16" else given.c
    d = given.copy_of(c.view(np.float32))
    a, b = (_widened(each).view(np.float32) for each in (given.a, given.b))
    kernel = chain.chain32(model.form == "pairs")
    for first in range(0, a.shape[-1], 4):
        some = (a[..., first : first + 4], b[..., first : first + 4, :])
        x, y = (np.ascontiguousarray(each) for each in some)
        run = partial(kernel, x, y, d, *_chain_sizes(given, x, y, 4))
        share_out(run, given.batches * given.rows, given.products)
        if model.d == "f16":
            d = _widened(_rounded(d.view(np.uint32))).view(np.float32)
    words = d.view(np.uint32)
    words[np.isnan(d)] = 0x7FFFFFFF
    return _rounded(words) if model.d == "f16" else words


def _chain_sizes(given: Operands, a: Bits, b: Bits, k: int) -> tuple[int, ...]:
    """All of :class:`chain.ChainSizes` except the first and the last row."""
    return given.rows, given.columns, k, int(len(a) > 1), int(len(b) > 1)


def ieee(given: Operands) -> Bits:
    """A chain of fused multiply-adds, in hardware or in software."""
    return double(given) if given.model.accumulator == "f64" else software(given)


FORMS: dict[str, Callable[[Operands], Bits]] = {
    "fused": fused,
    "grouped": grouped_products,
    "chain": ieee,
    "pairs": software,
    "integer": integer,
    "bits": single_bits,
}


# -- constants of a model -----------------------------------------------------


class _Elements(NamedTuple):
    """How the elements of an operand are decoded."""

    form: Format
    decode: Traced
    values: np.dtype[np.generic]


class _Fixed(NamedTuple):
    """What depends only on the model."""

    steps: tuple[Traced, Traced]  #: without and with infinities or NaN
    rounding: tuple[int, int, int, int]  #: fraction, floor, keep, least
    c_least: int
    a: _Elements
    b: _Elements


@cache
def _fixed(model: Model) -> _Fixed:
    found = fused_constants(model)
    variant = found.variant
    steps = (
        floating.fused_kernel(variant),
        floating.fused_kernel(variant._replace(careful=True)),
    )
    values = variant.values
    a, b = (
        _Elements(
            form,
            decoder(type_of(dtype(name).bits_dtype), values, form.exponent_bits == 8),
            np.dtype(np.float32 if values == F32 else np.float64),
        )
        for name, form in ((model.a, found.a), (model.b, found.b))
    )
    return _Fixed(steps, found.rounding, found.c_least, a, b)


_BITS: dict[str, np.dtype[np.generic]] = {
    "f32": np.dtype(np.uint32),
    "f16": np.dtype(np.uint16),
}


def _accumulators(given: Operands, block: Block) -> Floats:
    """The part of c for a block, as a new array of float32."""
    half = given.model.c == "f16"
    c = given.c.view(np.float16 if half else np.float32)
    if len(c) < given.batches:
        c = np.broadcast_to(c, given.shape)
    some = block.of(c)
    if not half:
        return some.copy()
    with np.errstate(invalid="ignore"):  # no warning about signalling NaNs
        return some.astype(np.float32, order="C")


def _result(sums: Floats, accumulator: str) -> Bits:
    """The bits of the accumulators; their type holds them exactly."""
    if accumulator == "f32":
        return sums.view(np.uint32)
    # The kernel's NaN has all bits set but its sign, and so has its upper half.
    return sums.astype(np.float16).view(np.uint16)


def _widened(half: Bits) -> Bits:
    """f16 bits as f32 bits."""
    with np.errstate(invalid="ignore"):
        return half.view(np.float16).astype(np.float32).view(np.uint32)


def _rounded(single: Bits) -> Bits:
    """f32 bits as f16 single_bits, rounded to nearest."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        half = single.view(np.float32).astype(np.float16)
    return np.where(np.isnan(half), np.uint16(0x7FFF), half.view(np.uint16))
