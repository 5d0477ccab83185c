"""Which kernel computes which form of model, and on which arrays?"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.arithmetic import chain, floating, grouped
from fragmenta.arithmetic.blocks import (
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
from fragmenta.arithmetic.elements import ZERO, Format, decoder
from fragmenta.arithmetic.models import GROUP, Model
from fragmenta.arithmetic.operands import Bits, Operands
from fragmenta.arithmetic.whole import integer, single_bits
from fragmenta.arrays.threads import share_out
from fragmenta.machine.compiler import Traced, type_of
from fragmenta.machine.trace import F32, F64
from fragmenta.registers.dtype import dtype

# Twice the value of each e2m1.
_TWICE = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)

Floats = NDArray[Any]


class Decoded(NamedTuple):
    """Elements as values and exponents."""

    values: Floats
    exponents: NDArray[np.int32]
    careful: bool  #: whether an element is infinite or NaN


# -- fused steps --------------------------------------------------------------


def fused(given: Operands) -> Bits:
    """Fused steps, with the kernels of :mod:`fragmenta.arithmetic.floating`."""
    model, fixed = given.model, _fixed(given.model)
    d = np.empty(given.shape, _BITS[model.accumulator])

    def work(block: Block) -> None:
        c = to_panels(_accumulators(given, block))
        chunk = max(1, DEPTH // model.stored)
        for first in range(0, given.instructions, chunk):
            count = min(chunk, given.instructions - first)
            _run_steps(given, fixed, block, first, count, c)
        d[block] = _result(from_panels(c, block.shape[2]), model.accumulator)

    each_block(given, work)
    return _rounded(d) if model.accumulator == "f32" and model.d == "f16" else d


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
) -> Decoded:
    """Some rows of A, in the order in which their products are added."""
    model = given.model
    some = slice(first * model.stored, (first + count) * model.stored)
    a = block.of_a(given.a)[..., some]
    if fixed.reordered:
        a = a.reshape(*a.shape[:2], count, model.stored)[..., model.order]
        a = a.reshape(*a.shape[:2], -1)
    parts = _taken_apart("A", a, fixed.a)
    if given.scale_a is None:
        return parts
    some = slice(first * model.scale_vec, (first + count) * model.scale_vec)
    scales = block.of_a(given.scale_a)[..., some]
    shape = (*scales.shape[1:], model.stored // model.scale_vec)
    return _scaled(parts, scales[..., None], shape)


def _columns(
    given: Operands, fixed: _Fixed, block: Block, first: int, count: int
) -> Decoded:
    """Some columns of B, in panels."""
    model = given.model
    b = block.of_b(given.b)[:, first * model.k : (first + count) * model.k]
    parts = _taken_apart("B", to_panels(b), fixed.b)
    if given.scale_b is None:
        return parts
    some = slice(first * model.scale_vec, (first + count) * model.scale_vec)
    scales = to_panels(block.of_b(given.scale_b)[:, some])
    shape = (*scales.shape[1:3], model.k // model.scale_vec, scales.shape[3])
    return _scaled(parts, scales[..., None, :], shape)


def _taken_apart(name: str, elements: Bits, of: _Elements) -> Decoded:
    source = np.ascontiguousarray(elements)
    floats = scratch(f"{name} values", source.shape, of.values)
    exponents = scratch(f"{name} exponents", source.shape, np.int32)
    found = np.zeros(1, np.int32)
    of.decode(source, floats, exponents, found, source.size, *of.form)
    return Decoded(floats, exponents, bool(found[0]))


# The value and the power of every ue8m0 scale; the last is NaN.
_SCALE_POWERS = np.arange(256, dtype=np.int32) - 127
_SCALES = np.append(np.ldexp(1.0, _SCALE_POWERS[:-1]), np.nan)


def _scaled(parts: Decoded, scales: Bits, shape: tuple[int, ...]) -> Decoded:
    """Elements times their ue8m0 scales.

    ``shape`` is the shape of the elements after the axis of tiles.  Where the scales
    have an axis of length 1, all elements along that axis share a scale.
    """
    values = parts.values.reshape(-1, *shape) * _SCALES[scales]
    powers = parts.exponents.reshape(-1, *shape)
    nothing = (powers == ZERO) | (scales == 255)
    exponents = np.where(nothing, np.int32(ZERO), powers + _SCALE_POWERS[scales])
    careful = parts.careful or bool((scales == 255).any())
    whole = (len(values), *parts.values.shape[1:])
    return Decoded(values.reshape(whole), exponents.reshape(whole), careful)


# -- groups -------------------------------------------------------------------


def grouped_products(given: Operands) -> Bits:
    """mxf4 and mxf4nvf4, with the kernel of :mod:`fragmenta.arithmetic.grouped`."""
    model = given.model
    assert given.scale_a is not None
    assert given.scale_b is not None
    scale_a, scale_b = given.scale_a, given.scale_b
    a, b = _TWICE[given.a], _TWICE[given.b]
    d = np.empty(given.shape, np.uint32)
    nearest, rounding = model.rounding == "rn", _numbers(model)
    groups = model.products // GROUP
    run = grouped.grouped_kernel(grouped.GroupedVariant(GROUP, groups, nearest))

    def work(block: Block) -> None:
        x, y = np.ascontiguousarray(block.of_a(a)), to_panels(block.of_b(b))
        sx = np.ascontiguousarray(block.of_a(scale_a))
        sy = to_panels(block.of_b(scale_b))
        c = to_panels(_accumulators(given, block))
        offsets = row_offsets(given, block, 0, given.instructions)
        sizes = sizes_of(given, block, given.instructions, x, y, offsets)
        numbers = (model.scale_vec, stride(sx), stride(sy), *rounding)
        table = _SCALE_PARTS[model.scale or ""]
        scales = (part[each] for each in (sx, sy) for part in table)
        run(x, offsets, y, *scales, c, *sizes, *numbers)
        d[block] = _result(from_panels(c, block.shape[2]), "f32")

    each_block(given, work)
    return d


def _scale_parts(name: str) -> tuple[Floats, NDArray[np.int32]]:
    """The significand (in eighths) and the exponent of every scale.

    The significand of a NaN is NaN.  The exponent of a subnormal is not normalised.
    """
    bits = np.arange(256)
    if name == "ue8m0":
        return np.where(bits == 255, np.nan, 8.0), (bits - 127).astype(np.int32)
    field, fraction = bits >> 3, (bits & 7).astype(float)
    significand = np.where(field > 0, fraction + 8, fraction)
    significand[127] = np.nan
    return significand, (np.maximum(field, 1) - 7).astype(np.int32)


_SCALE_PARTS = {name: _scale_parts(name) for name in ("ue8m0", "ue4m3")}


# -- IEEE 754 -----------------------------------------------------------------


def double(given: Operands) -> Bits:
    """f64, with the kernels of :mod:`fragmenta.arithmetic.chain`."""
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
    values: np.dtype[Any]


class _Fixed(NamedTuple):
    """What depends only on the model."""

    steps: tuple[Traced, Traced]  #: without and with infinities or NaN
    rounding: tuple[int, int, int, int]  #: fraction, floor, keep, least
    c_least: int
    reordered: bool
    a: _Elements
    b: _Elements


@cache
def _fixed(model: Model) -> _Fixed:
    forms = [_format(name, model.operand) for name in (model.a, model.b)]
    narrow = max(form.exponent_bits for form in forms) <= 5 and not model.scale
    values = F32 if narrow else F64
    variant = floating.FusedVariant(
        values=values,
        products=model.products,
        nearest=model.rounding == "rn",
        from_zero=model.start == "zero",
        half=model.accumulator == "f16",
        careful=False,
    )
    numbers = _numbers(model)
    steps = (
        floating.fused_kernel(variant),
        floating.fused_kernel(variant._replace(careful=True)),
    )
    a, b = (
        _Elements(
            form,
            decoder(type_of(dtype(name).bits_dtype), values, form.exponent_bits == 8),
            np.dtype(np.float32 if narrow else np.float64),
        )
        for name, form in zip((model.a, model.b), forms, strict=True)
    )
    return _Fixed(steps, numbers, _least(model.c_enters), model.reordered, a, b)


def _numbers(model: Model) -> tuple[int, int, int, int]:
    """The fraction, the floor, the bits to keep and the least exponent of a step."""
    return model.fraction, model.floor, model.keep, _least(model.accumulator)


def _least(name: str) -> int:
    """The exponent of a type's subnormals."""
    return 1 - dtype(name).bias


def _format(name: str, operand: str | None) -> Format:
    """A type as the kernels need it, after conversion to ``operand``."""
    kind = dtype(name)
    top = ((1 << kind.exponent_bits) - 1) << kind.fraction_bits
    special = infinity = 1 << 30  # greater than every pattern
    if kind.has_infinity:
        special = infinity = top & (infinity - 1)
    elif kind.has_nan:
        special = top | ((1 << kind.fraction_bits) - 1)
    least = _least(operand or name)
    return Format(kind.exponent_bits, kind.fraction_bits, special, infinity, least)


_BITS: dict[str, np.dtype[Any]] = {
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
        return some.astype(np.float32)


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
