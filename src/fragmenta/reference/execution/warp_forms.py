"""Machine code of each form of model, for one warp.

A function here is traced once for each instruction and target.  It reads the
registers into panels (:mod:`fragmenta.reference.execution.warp_registers`), and
computes with the same traced steps as the kernels for whole matrices.  Every size is a
constant.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fragmenta.base.jit.llvm import Type
from fragmenta.base.jit.trace import (
    F32,
    F64,
    I1,
    I8,
    I32,
    I64,
    LANES,
    Code,
    Memory,
    Value,
    Variable,
    any_lane,
    bits_of,
    convert,
    float_of,
    fma,
    is_nan,
    joined,
    larger,
    select,
)
from fragmenta.reference.arithmetic.chain import (
    MODES,
    fma_with_nan,
    set_rounding,
    software_sum,
)
from fragmenta.reference.arithmetic.constants import (
    SCALE_PARTS,
    TWICE,
    FusedConstants,
    format_of,
    fused_constants,
    grouped_variant,
    rounding,
)
from fragmenta.reference.arithmetic.elements import (
    SPECIAL,
    Format,
    Rounding,
    powers,
    scaled,
    small_value,
    to_float32,
    wide_value,
)
from fragmenta.reference.arithmetic.floating import (
    FusedNumbers,
    Products,
    fused_instruction,
)
from fragmenta.reference.arithmetic.floor_tiles import DecodedElements
from fragmenta.reference.arithmetic.grouped import (
    GroupedOperands,
    Scaled,
    Starts,
    grouped_step,
)
from fragmenta.reference.arithmetic.integer_kernels import (
    IntegerProducts,
    bit_products,
    integer_instruction,
)
from fragmenta.reference.arithmetic.integers import integer_variant
from fragmenta.reference.execution.warp_operands import (
    Ends,
    FloatEnds,
    Offsets,
    Side,
    WarpOperands,
    each_row,
    each_scale,
    offsets_of,
    scale_places,
)
from fragmenta.reference.execution.warp_registers import Panels

# -- fused steps --------------------------------------------------------------


def fused(code: Code, given: WarpOperands) -> Value:
    """Fused steps; with infinities or NaN among the elements, the careful ones."""
    found = fused_constants(given.model)
    top = code.variable(code.constant(0, I32).in_all_lanes())
    sides, forms = given.sides(), (found.a, found.b)
    a, b = (
        _decoded(code, given, side, form, top)
        for side, form in zip(sides, forms, strict=True)
    )
    offsets = offsets_of(code, given)
    ends = FloatEnds(code, given)
    careful = any_lane(top.value == SPECIAL)
    with code.when(~careful):
        _steps(code, given, found, a, b, offsets, ends)
    odd = found._replace(variant=found.variant._replace(careful=True))
    with code.when(careful):
        _steps(code, given, odd, a, b, offsets, ends)
    return offsets.illegal


def _steps(
    code: Code,
    given: WarpOperands,
    found: FusedConstants,
    a: DecodedElements,
    b: DecodedElements,
    offsets: Offsets,
    ends: FloatEnds,
) -> None:
    """Compute and write every row of the result."""
    model = given.model
    numbers = (*found.rounding, found.c_least)
    r = FusedNumbers(*(code.constant(number, I64) for number in numbers))
    first, stored = code.constant(0, I64), code.constant(model.stored, I64)
    with each_row(code, given.op) as row:
        at = Products(
            fa=a.values,
            ea=a.exponents,
            offsets=offsets.memory,
            fb=b.values,
            eb=b.exponents,
            a_at=row.a_panel * (model.stored * LANES) + row.a,
            offsets_at=row.m * offsets.row,
            b_at=row.b_panel * (model.k * LANES),
            a_step=LANES,
        )
        c = convert(ends.read(row), F64)
        x = fused_instruction(code, at, first, c, r.c_least, stored, r, found.variant)
        ends.write(row, to_float32(x))


def _decoded(
    code: Code, given: WarpOperands, side: Side, form: Format, top: Variable
) -> DecodedElements:
    """An operand in panels; ``top`` becomes 255 where there is an infinity or NaN."""
    model = given.model
    panels = side.panels(code)
    kind = fused_constants(model).variant.values
    place = _destination(code, given, side, panels.rows)
    values = code.scratch(kind, panels.rows * LANES)
    exponents = code.scratch(I32, panels.rows * LANES)

    def take_apart(bits: Value, row: Value) -> None:
        if form.exponent_bits == 8:
            x = wide_value(bits, side.slot.bits // 8, form)
        else:
            x = small_value(bits, form)
        power, field = powers(x, form)
        top.value = larger(top.value, field)
        to = place(row)
        values[to] = convert(x, kind)
        exponents[to] = power

    panels.each(take_apart)
    found = DecodedElements(values, exponents)
    if model.scale:
        _scale(code, given, side, found, top)
    return found


def _destination(
    code: Code, given: WarpOperands, side: Side, rows: int
) -> Callable[[Value], Value]:
    """Where eight elements are put: those of A in the order of the products."""
    if side.name != "a" or not given.model.reordered:
        return lambda row: row * LANES
    panel, place = np.divmod(np.arange(rows), side.depth)
    to = panel * side.depth + np.argsort(given.model.order)[place]
    table = code.table((to * LANES).tolist(), I32)
    return lambda row: convert(table[row], I64)


def _scale(
    code: Code, given: WarpOperands, side: Side, found: DecodedElements, top: Variable
) -> None:
    """Multiply the elements of an operand by their scales."""
    inner = side.depth // given.model.scale_vec
    with each_scale(code, given, side) as (bits, row):
        scale = convert(joined(bits), I32)
        top.value = larger(top.value, scale)  # NaN is 255, here too
        with code.loop(inner) as i:
            at = (row * inner + i) * LANES
            element = found.values.lanes(at), found.exponents.lanes(at)
            found.values[at], found.exponents[at] = scaled(*element, scale)


# -- groups -------------------------------------------------------------------


def grouped(code: Code, given: WarpOperands) -> Value:
    """mxf4 and mxf4nvf4: groups of products with shared scales."""
    model, variant = given.model, grouped_variant(given.model)
    sides = given.sides()
    a, b = (_doubled(code, given, side) for side in sides)
    scale_a, scale_b = (_scale_parts(code, given, side) for side in sides)
    offsets, ends = offsets_of(code, given), FloatEnds(code, given)
    numbers = [code.constant(number, I64) for number in rounding(model)]
    fraction, floor, keep, least = numbers
    how = Rounding(fraction, floor, keep, least, variant.nearest)
    operands = GroupedOperands(a, offsets.memory, b, scale_a, scale_b)
    with each_row(code, given.op) as row:
        at = Starts(
            row.a_panel * (model.stored * LANES) + row.a,
            row.m * offsets.row,
            row.b_panel * (model.k * LANES),
            row.a_panel * (model.scale_vec * LANES) + row.a,
            row.b_panel * (model.scale_vec * LANES),
            code.constant(model.scale_vec, I64),
            code.constant(model.stored, I64),
            a_step=LANES,
        )
        x = code.variable(convert(ends.read(row), F64))
        with code.loop(model.stored, step=variant.group * variant.groups) as first:
            x.value = grouped_step(code, operands, at, first, x.value, how, variant)
        ends.write(row, to_float32(x.value))
    return offsets.illegal


def _doubled(code: Code, given: WarpOperands, side: Side) -> Memory:
    """An operand in panels of doubled values."""
    # The eight magnitudes have four bits each; the other eight values are negative.
    packed = sum(int(value) << 4 * place for place, value in enumerate(TWICE[:8]))

    def double(bits: Value) -> Value:
        magnitude = (bits.lift(packed) >> ((bits & 7) << 2)) & 15
        return convert(select(bits > 7, 0 - magnitude, magnitude), I8)

    return _in_panels(code, side.panels(code), I8, double)


def _in_panels(
    code: Code, panels: Panels, of: Type, decode: Callable[[Value], Value]
) -> Memory:
    """All elements of an operand, eight at a time, as numbers of one type."""
    out = code.scratch(of, panels.rows * LANES)

    def put(bits: Value, row: Value) -> None:
        out[row * LANES] = decode(bits)

    panels.each(put)
    return out


def _scale_parts(code: Code, given: WarpOperands, side: Side) -> Scaled:
    """The values and exponents of the scales of an operand, in panels."""
    values, exponents = SCALE_PARTS[given.model.scale or ""]
    tables = Scaled(
        code.table(values.tolist(), F64), code.table(exponents.tolist(), I32)
    )
    count = scale_places(given.op.fragment(f"scale_{side.name}")).rows * LANES
    out = Scaled(code.scratch(F64, count), code.scratch(I32, count))
    with each_scale(code, given, side) as (bits, row):
        for memory, table in zip(out, tables, strict=True):
            memory[row * LANES] = table.gather(bits)
    return out


# -- IEEE 754 -----------------------------------------------------------------


def chain(code: Code, given: WarpOperands) -> Value:
    """A chain of fused multiply-adds, in hardware or in software."""
    return (double if given.model.accumulator == "f64" else software)(code, given)


def double(code: Code, given: WarpOperands) -> Value:
    """f64.  To nearest, the bits of NaN need care: only then it is done again."""
    a, b = (
        _in_panels(code, side.panels(code), F64, float_of) for side in given.sides()
    )
    mode = given.model.rounding
    again = code.constant(1, I1)
    if mode == "rn":
        again = any_lane(_multiplied(code, given, a, b, fma))
    with code.when(again):
        set_rounding(code, code.constant(MODES[mode], I32))
        _multiplied(code, given, a, b, fma_with_nan)
        set_rounding(code, code.constant(MODES["rn"], I32))
    return code.constant(0, I32)


def _multiplied(
    code: Code, given: WarpOperands, a: Memory, b: Memory, step: Callable[..., Value]
) -> Value:
    """Write every row of the result, and return the columns that have a NaN."""
    k, ends = given.model.k, Ends(code, given)
    odd = code.variable(code.constant(0, I32).in_all_lanes() != 0)
    with each_row(code, given.op) as row:
        x = code.variable(float_of(ends.read(row)))
        a_at, b_at = row.a_panel * (k * LANES) + row.a, row.b_panel * (k * LANES)
        with code.loop(k) as i:
            y = b.lanes(b_at + i * LANES)
            x.value = step(a[a_at + i * LANES], y, x.value)
        ends.write(row, bits_of(x.value))
        odd.value = odd.value | is_nan(x.value)
    return odd.value


def software(code: Code, given: WarpOperands) -> Value:
    """f16 with k = 4, computed in f32, on targets without it in hardware."""
    half = format_of("f16")
    a, b = (
        _in_panels(code, side.panels(code), F32, lambda bits: small_value(bits, half))
        for side in given.sides()
    )
    ends, k = FloatEnds(code, given), given.model.k
    with each_row(code, given.op) as row:
        a_at, b_at = row.a_panel * (k * LANES) + row.a, row.b_panel * (k * LANES)
        x = [a[a_at + i * LANES] for i in range(k)]
        y = [b.lanes(b_at + i * LANES) for i in range(k)]
        total = software_sum(x, y, ends.read(row), given.model.form == "pairs")
        bits = bits_of(total)
        canonical = float_of(select(is_nan(total), bits.lift(0x7FFFFFFF), bits))
        ends.write(row, canonical)
    return code.constant(0, I32)


# -- integers and bits --------------------------------------------------------


def integer(code: Code, given: WarpOperands) -> Value:
    """Exact sums of products of integers."""
    model, variant = given.model, integer_variant(given.model)
    a, b = (_integers(code, given, side) for side in given.sides())
    offsets, ends = offsets_of(code, given), Ends(code, given)
    with each_row(code, given.op) as row:
        at = IntegerProducts(
            a,
            offsets.memory,
            b,
            row.a_panel * (model.stored * LANES) + row.a,
            row.m * offsets.row,
            row.b_panel * (model.k * LANES),
            a_step=LANES,
        )
        total = integer_instruction(code, at, model.stored, ends.read(row), variant)
        ends.write(row, total)
    return offsets.illegal


def _integers(code: Code, given: WarpOperands, side: Side) -> Memory:
    """The elements of an operand as 8-bit integers, in panels."""
    of = side.dtype
    spare = 32 - of.bits if of.kind == "signed" else 0

    def extended(bits: Value) -> Value:
        return convert((bits << spare) >> spare, I8)

    return _in_panels(code, side.panels(code), I8, extended)


def bits(code: Code, given: WarpOperands) -> Value:
    """b1: a register holds 32 bits along k, which are multiplied at once."""
    a, b = (side.panels(code) for side in given.sides())
    x, y = (_copied(code, panels) for panels in (a, b))
    words, ends = a.items.places.shape[1], Ends(code, given)
    xor = given.model.bitop == "xor"
    with each_row(code, given.op) as row:
        total = code.variable(ends.read(row))
        a_at = row.a_panel * (words * LANES) + row.a
        b_at = row.b_panel * (words * LANES)
        with code.loop(words) as i:
            some = bit_products(x[a_at + i * LANES], y.lanes(b_at + i * LANES), xor)
            total.value = total.value + some
        ends.write(row, total.value)
    return code.constant(0, I32)


def _copied(code: Code, panels: Panels) -> Memory:
    """The registers of an operand in panels."""
    out = code.scratch(I32, panels.items.rows * LANES)

    def put(words: Value, row: Value) -> None:
        out[row * LANES] = words

    panels.each_item(put)
    return out


FORMS: dict[str, Callable[[Code, WarpOperands], Value]] = {
    "fused": fused,
    "grouped": grouped,
    "chain": chain,
    "pairs": software,
    "integer": integer,
    "bits": bits,
}
