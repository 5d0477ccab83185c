"""Fused steps of whole matrices.

Blocks of A and B are decoded to values and exponents.  The steps are then computed
one after the other, eight columns at a time:

    largest exponent -> aligned sum -> round -> next step

Values are floats that hold every product exactly: float32 for types of at most 5
exponent bits, float64 for the others.  To align a product, it is multiplied by a
power of two and converted to an integer; the conversion truncates toward zero as the
hardware does.  The accumulator is a float64, which holds every sum of aligned terms
exactly.

B is stored in *panels* of eight columns, one panel after the other.  One panel stays
in the L1 cache while the loop runs over all rows of A.
"""

from __future__ import annotations

from typing import NamedTuple

from fragmenta.base.arrays.once import once
from fragmenta.base.jit.compiler import Traced, kernel, pointer
from fragmenta.base.jit.llvm import Type
from fragmenta.base.jit.trace import (
    F32,
    F64,
    I32,
    I64,
    LANES,
    Code,
    Memory,
    Value,
    convert,
    float_of,
    larger,
    select,
    smaller,
)
from fragmenta.reference.arithmetic.blocks import BlockSizes
from fragmenta.reference.arithmetic.elements import (
    Rounding,
    add_ordinary,
    entering,
    is_finite,
    row_of,
    settle,
    to_float32,
)

#: So many aligned products can be added without overflow in 32 bits (F <= 25).
SAFE = 16


class FusedVariant(NamedTuple):
    """What must be known to compile the steps."""

    values: Type  #: the float type that holds every product
    products: int  #: the number of products in one step
    nearest: bool
    from_zero: bool  #: c is added last, by an ordinary addition
    half: bool  #: whether the accumulator is f16
    careful: bool  #: whether there are infinities or NaNs


class FusedNumbers(NamedTuple):
    """How the steps of a block align and round."""

    fraction: Value
    floor: Value
    keep: Value
    least: Value
    c_least: Value  #: the least exponent of c in the first step


_NUMBERS = (*BlockSizes._fields, *FusedNumbers._fields)


class Products(NamedTuple):
    """Where the products of one step are."""

    fa: Memory
    ea: Memory
    offsets: Memory | None  #: None if the rows of B are taken one after the other
    fb: Memory
    eb: Memory
    a_at: Value
    offsets_at: Value
    b_at: Value
    a_step: int = 1  #: items from one element of A to the next


@once
def fused_kernel(variant: FusedVariant) -> Traced:
    """The kernel that computes all steps of a block.

    ``c`` holds the accumulators, in the order (tiles, panels, rows, 8).  For each
    product, ``offsets`` is where its row begins in a panel of B.
    """
    values = pointer(variant.values)

    @kernel(
        fa=values,
        ea=pointer(I32),
        offsets=pointer(I32),
        fb=values,
        eb=pointer(I32),
        c=pointer(F32),
        **dict.fromkeys(_NUMBERS, I64),
    )
    def fused_steps(
        code: Code,
        fa: Memory,
        ea: Memory,
        offsets: Memory,
        fb: Memory,
        eb: Memory,
        c: Memory,
        *numbers: Value,
    ) -> None:
        sizes = len(BlockSizes._fields)
        p, r = BlockSizes(*numbers[:sizes]), FusedNumbers(*numbers[sizes:])
        depth = p.instructions * p.stored
        panel = p.instructions * p.k * LANES
        tiles, panels, rows = code.loop(p.tiles), code.loop(p.panels), code.loop(p.rows)
        with tiles as tile, panels as n, rows as m:
            at = Products(
                fa,
                ea,
                offsets,
                fb,
                eb,
                tile * p.a_tile + m * depth,
                tile * p.offsets_tile + m * p.offsets_row,
                tile * p.b_tile + n * panel,
            )
            place = ((tile * p.panels + n) * p.rows + m) * LANES
            x = code.variable(convert(c.lanes(place), F64))
            with code.loop(p.instructions) as i:
                least = select(i == 0, r.c_least, r.least)
                x.value = fused_instruction(
                    code, at, i * p.stored, x.value, least, p.stored, r, variant
                )
            c[place] = to_float32(x.value)

    return fused_steps


def fused_instruction(
    code: Code,
    at: Products,
    first: Value,
    c: Value,
    least: Value,
    stored: Value,
    r: FusedNumbers,
    v: FusedVariant,
) -> Value:
    """The accumulators after the instruction that begins with product ``first``."""
    rounding = Rounding(r.fraction, r.floor, r.keep, r.least, v.nearest)
    x = code.variable(c.lift(0.0) if v.from_zero else c)
    e = code.variable(entering(x.value, r.floor, least))
    with code.loop(stored, step=v.products) as step:
        start = first + step
        here = at._replace(
            a_at=at.a_at + start * at.a_step, offsets_at=at.offsets_at + start
        )
        largest = _largest(code, here, e.value, v)
        total, special = _aligned(code, here, largest, r.fraction, v)
        x.value = settle(x.value, largest, total, special, rounding)
        e.value = entering(x.value, r.floor, r.least)
    return add_ordinary(c, x.value, v.half) if v.from_zero else x.value


def _row(at: Products, q: Value | int) -> Value:
    """Where the row of B of a product begins."""
    return row_of(at.b_at, at.offsets, at.offsets_at + q)


def _largest(code: Code, at: Products, e: Value, v: FusedVariant) -> Value:
    """The largest exponent of the accumulators and all products."""
    so_far = code.variable(e)
    with code.loop(v.products) as q:
        power = at.ea[at.a_at + q * at.a_step] + at.eb.lanes(_row(at, q))
        so_far.value = larger(so_far.value, power)
    return so_far.value


def _aligned(
    code: Code, at: Products, largest: Value, fraction: Value, v: FusedVariant
) -> tuple[Value, Value | None]:
    """The sum of the aligned products, and the sum of infinite and NaN products."""
    scale = _scale(fraction, largest, v.values)
    zero = convert(scale, F64).lift(0.0)
    total, special = code.variable(zero), code.variable(zero)
    for start in range(0, v.products, SAFE):
        units = code.variable(largest.lift(0))
        with code.loop(min(start + SAFE, v.products), start=start) as q:
            product = at.fa[at.a_at + q * at.a_step] * at.fb.lanes(_row(at, q))
            if v.careful:
                finite = is_finite(product)
                odd = select(finite, product.lift(0.0), product)
                special.value = special.value + convert(odd, F64)
                product = select(finite, product, 0.0)
            units.value = units.value + convert(product * scale, I32)
        total.value = total.value + convert(units.value, F64)
    return total.value, special.value if v.careful else None


def _scale(fraction: Value, largest: Value, values: Type) -> Value:
    """2**(fraction - largest), limited to the range of normal floats.

    If it is out of range, every product is zero or is truncated to zero.
    """
    bits, width, bias = (I32, 23, 127) if values == F32 else (I64, 52, 1023)
    field = convert(fraction, bits) - convert(largest, bits) + bias
    return float_of(smaller(larger(field, 1), 2 * bias) << width)
