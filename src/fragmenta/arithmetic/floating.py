"""What do fused steps make of whole matrices?

Blocks of rows and columns are taken apart into values and exponents, then
walked through step by step, eight columns at a time:

    largest exponent -> aligned sum -> round -> next step

Values are kept as floats wide enough to hold every product exactly (float32 for
types of at most 5 exponent bits, float64 for the rest), so that aligning a
product is one multiplication by a power of two and one conversion to an
integer, which cuts toward zero as the hardware does.  The accumulator is a
float64, which holds every sum of aligned terms exactly.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fragmenta.arithmetic.vector import (
    LANES,
    SAFE,
    Array,
    Integer,
    Real,
    add_aligned,
    bits32_of,
    bits64_of,
    compiled,
    cut,
    float32_of,
    float64_of,
    part,
    raise_exponents,
)

#: The exponent of zero: two of them stay below every other sum of exponents.
ZERO = -8192

#: Rows, columns and stored products of one block: its parts fit in the L2 cache.
BLOCK_ROWS, BLOCK_COLUMNS, BLOCK_PRODUCTS = 128, 128, 128

# Numba computes with 64 bits unless told otherwise, and half the lanes are lost.
i32 = np.int32


class Format(NamedTuple):
    """An element type, as the loops want to know it."""

    exponent_bits: int
    fraction_bits: int
    special: int  #: the least magnitude that is infinite or NaN
    infinity: int  #: the magnitude of infinity
    least: int  #: the exponent of subnormals


#: f16, the accumulator that is not f32.
HALF = Format(5, 10, 0x7C00, 0x7C00, -14)


class Rounding(NamedTuple):
    """How terms are aligned, and sums rounded."""

    fraction: int
    floor: int
    keep: int
    nearest: int
    least: int  #: the least exponent of the accumulator


class Plan(NamedTuple):
    """The sizes and numbers that :func:`multiply_blocks` works by."""

    rows: int
    columns: int
    instructions: int  #: how many are chained along k
    a_batches: int
    b_batches: int
    index_batches: int
    scale_a_batches: int
    scale_b_batches: int
    k: int
    stored: int
    products: int
    rounding: Rounding
    c_least: int  #: the least exponent of c, on entering the first step
    half: int  #: whether the accumulator is f16
    from_zero: int
    scales: int  #: block scales per row of A and instruction
    sparse: int
    reordered: int
    a: Format
    b: Format


class Block(NamedTuple):
    """Where the work is: some rows and columns, some instructions along k."""

    batch: Integer
    row: Integer
    rows: Integer
    column: Integer
    columns: Integer
    first: Integer  #: instruction
    count: Integer  #: of instructions


class Parts(NamedTuple):
    """A block of A and of B, taken apart."""

    fa: Array  #: the values of A, row by row in the order they are taken
    ea: Array  #: their exponents
    offsets: Array  #: where the row of B of each product begins in ``fb``
    fb: Array  #: the values of B, row by row
    eb: Array
    stride: Integer  #: of the rows of B


class Sums(NamedTuple):
    """The accumulators of eight columns, row by row."""

    c: Array
    e: Array  #: the largest exponent so far
    total: Array  #: of the aligned products, in units of 2**(e - fraction)
    special: Array  #: what infinities and NaN add up to, else zero
    held: Array  #: c, while the steps start from zero


# -- one element --------------------------------------------------------------


@part
def power_of_two(exponent: Integer) -> Real:
    """2.0**exponent, for normal results."""
    return float64_of(np.int64(exponent + 1023) << 52)


@part
def small_value(bits: Integer, form: Format) -> Real:
    """The value of an element with at most 5 exponent bits, as a float32."""
    fraction_bits = i32(form.fraction_bits)
    sign_at = i32(form.exponent_bits + form.fraction_bits)
    bias = (1 << (form.exponent_bits - 1)) - 1
    hidden, offset = i32(1 << form.fraction_bits), i32(127 - bias - form.fraction_bits)
    magnitude = i32(bits & i32((1 << sign_at) - 1))
    field = i32(magnitude >> fraction_bits)
    fraction = i32(magnitude & i32(hidden - 1))
    significand = i32(fraction | hidden) if field > 0 else fraction
    scale = i32(i32(max(field, i32(1)) + offset) << i32(23))
    x = np.float32(significand) * float32_of(scale)
    odd = i32(0x7F800000) if magnitude == i32(form.infinity) else i32(0x7FFFFFFF)
    word = odd if magnitude >= i32(form.special) else bits32_of(x)
    sign = i32(i32(bits >> sign_at) << i32(31))
    return float32_of(i32(word | sign))


@part
def field_of(x: Real) -> Integer:
    """The exponent field of a float32: 255 for what is infinite or NaN."""
    return i32(i32(bits32_of(x) >> i32(23)) & i32(255))


@part
def exponent_of(x: Real, least: Integer) -> Integer:
    """The exponent that a float32 brings into a product."""
    field = field_of(x)
    power = max(i32(field - i32(127)), least)
    return i32(ZERO) if field == 255 or x == 0 else power


@part
def power_of(x: Real) -> Integer:
    """floor(log2(abs(x))) of a normal float64; 1024 if infinite or NaN."""
    return (bits64_of(x) >> 52 & 2047) - 1023


@part
def entering(x: Real, floor: Integer, least: Integer) -> Integer:
    """The exponent that an accumulator brings into a step."""
    power = power_of(x)
    return max(power, least) if x != 0 and power < 1024 else floor


@part
def exact_sum(x: Real, e: Integer, total: Real, fraction: Integer) -> Real:
    """The aligned accumulator and the aligned products, added."""
    finite = x if x - x == 0 else 0.0
    units = total + cut(finite * power_of_two(fraction - e))
    return units * power_of_two(e - fraction)


@part
def toward_zero(x: Real, keep: Integer, least: Integer) -> Real:
    """x cut to ``keep`` fraction bits; never -0."""
    drop = 52 - keep + max(0, least - power_of(x))
    kept = float64_of(bits64_of(x) & np.int64(-1) << min(drop, 63))
    return kept if drop <= 52 else 0.0


@part
def to_nearest(x: Real, keep: Integer, least: Integer) -> Real:
    """x to nearest even with ``keep`` fraction bits; never -0."""
    unit = max(power_of(x), least) - keep
    # From 2**52 units on a float64 has no room for anything below a unit.
    large = 1.5 * power_of_two(unit + 52)
    return (x + large) - large


@part
def limited(x: Real, limit: Real) -> Real:
    """x, or infinity if it is too large."""
    return np.inf * x if abs(x) >= limit else x


@part
def half_bits(x: Real) -> Integer:
    """The f16 bits of a value that f16 holds."""
    magnitude = abs(x)
    subnormal = i32(magnitude * 2.0**24)
    normal = i32((bits64_of(magnitude) >> 42) - ((1023 - 15) << 10))
    word = subnormal if magnitude < 2.0**-14 else normal
    word = word if magnitude < 65536.0 else i32(0x7C00)
    sign = i32(bits64_of(x) >> 48 & 0x8000)
    return i32(0x7FFF) if np.isnan(x) else i32(word | sign)


# -- runs of elements ---------------------------------------------------------


@part
def decode(source: Array, values: Array, exponents: Array, form: Format) -> bool:
    """Take elements apart; says whether any is infinite or NaN."""
    least, top = i32(form.least), i32(0)
    if form.exponent_bits == 8:  # the upper bits of a float32
        shift = i32(0) if source.itemsize == 4 else i32(16)
        spare = i32(23 - form.fraction_bits)
        for i in range(len(source)):
            word = i32(i32(source[i]) << shift)
            x = float32_of(i32(i32(word >> spare) << spare))
            values[i] = x
            exponents[i] = exponent_of(x, least)
            top = max(top, field_of(x))
    else:
        for i in range(len(source)):
            x = small_value(i32(source[i]), form)
            values[i] = x
            exponents[i] = exponent_of(x, least)
            top = max(top, field_of(x))
    return bool(top == 255)


@part
def scale_run(values: Array, exponents: Array, scale: Integer) -> bool:
    """Multiply elements by a ue8m0 scale; says whether the scale is NaN."""
    if scale == 255:
        values[:] = np.nan
        exponents[:] = ZERO
        return True
    power = np.int64(scale) - 127
    factor = power_of_two(power)
    for i in range(len(values)):
        values[i] *= factor
        exponents[i] = i32(exponents[i] + power) if exponents[i] != ZERO else i32(ZERO)
    return False


@part
def reorder(values: Array, exponents: Array, order: Array, spare: Array) -> None:
    """Bring one instruction's elements into the order they are taken in."""
    for q in range(len(order)):
        spare[q] = values[order[q]]
    for q in range(len(order)):
        values[q] = spare[q]
    for q in range(len(order)):
        spare[q] = exponents[order[q]]
    for q in range(len(order)):
        exponents[q] = i32(spare[q])


@part
def load(bits: Array, half: Integer, c: Array) -> None:
    """Accumulators from their bits."""
    if half:
        for i in range(len(bits)):
            c[i] = small_value(i32(bits[i]), HALF)
    else:
        for i in range(len(bits)):
            c[i] = float32_of(i32(bits[i]))


@part
def store(c: Array, half: Integer, bits: Array) -> None:
    """Accumulators to their bits; they fit exactly."""
    if half:
        for i in range(len(bits)):
            bits[i] = half_bits(c[i])
    else:
        for i in range(len(bits)):
            word = bits32_of(np.float32(c[i]))
            bits[i] = i32(0x7FFFFFFF) if np.isnan(c[i]) else word


@part
def settle(sums: Sums, p: Rounding) -> None:
    """End a step: round the sums, and begin the next one."""
    c, e, total, special = sums.c, sums.e, sums.total, sums.special
    fraction, floor, keep, least = p.fraction, p.floor, p.keep, p.least
    limit, nearest = power_of_two(2 - least), p.nearest != 0
    for i in range(len(c)):
        x = c[i]
        exact = exact_sum(x, e[i], total[i], fraction)
        if nearest:
            rounded = limited(to_nearest(exact, keep, least), limit)
        else:
            rounded = limited(toward_zero(exact, keep, least), limit)
        odd = special[i] + (0.0 if x - x == 0 else x)
        result = rounded if odd == 0 else odd
        c[i] = result
        e[i] = entering(result, floor, least)
        total[i] = 0.0
        special[i] = 0.0


@part
def add_to(c: Array, total: Array, half: Integer) -> None:
    """c + total, an ordinary addition of the accumulator's type, to nearest."""
    if half:
        for i in range(len(c)):
            exact = c[i] + total[i]
            rounded = limited(to_nearest(exact, 10, -14), 65536.0)
            c[i] = rounded if exact - exact == 0 else exact
    else:
        for i in range(len(c)):
            c[i] = np.float32(c[i]) + np.float32(total[i])


# -- blocks -------------------------------------------------------------------


@part
def take_rows(a: Array, p: Plan, here: Block, to: Parts) -> bool:
    """Take apart a block of A; says whether it holds infinities or NaN."""
    width, length = p.stored * p.instructions, p.stored * here.count
    batch = here.batch if p.a_batches > 1 else 0
    start = (batch * p.rows + here.row) * width
    if length == width:  # the rows follow one another: take them as one
        return decode(a[start : start + here.rows * width], to.fa, to.ea, p.a)
    found = False
    for m in range(here.rows):
        source, at = start + m * width + here.first * p.stored, m * length
        found |= decode(a[source : source + length], to.fa[at:], to.ea[at:], p.a)
    return found


@part
def take_columns(b: Array, p: Plan, here: Block, to: Parts) -> bool:
    """Take apart a block of B; says whether it holds infinities or NaN."""
    width, length, stride = p.columns, here.count * p.k, to.stride
    batch = here.batch if p.b_batches > 1 else 0
    start = (batch * p.instructions + here.first) * p.k * width + here.column
    if stride == width:  # the rows follow one another: take them as one
        return decode(b[start : start + length * width], to.fb, to.eb, p.b)
    found = False
    for k in range(length):
        source, at = start + k * width, k * stride
        end = at + here.columns
        found |= decode(b[source : source + here.columns], to.fb[at:], to.eb[at:], p.b)
        to.fb[end : at + stride] = 0.0
        to.eb[end : at + stride] = ZERO
    return found


@part
def scale_rows(scales: Array, p: Plan, here: Block, to: Parts) -> bool:
    """Put the block scales of A into its elements; says whether one is NaN."""
    size, count, found = p.stored // p.scales, here.count * p.scales, False
    batch = here.batch if p.scale_a_batches > 1 else 0
    for m in range(here.rows):
        row = batch * p.rows + here.row + m
        start = (row * p.instructions + here.first) * p.scales
        for s in range(count):
            at = (m * count + s) * size
            fa, ea = to.fa[at : at + size], to.ea[at : at + size]
            found |= scale_run(fa, ea, scales[start + s])
    return found


@part
def scale_columns(scales: Array, p: Plan, here: Block, to: Parts) -> bool:
    """Put the block scales of B into its elements; says whether one is NaN."""
    size, found = p.k // p.scales * to.stride, False
    batch = here.batch if p.scale_b_batches > 1 else 0
    for s in range(here.count * p.scales):
        row = (batch * p.instructions + here.first) * p.scales + s
        for n in range(here.columns):
            scale = scales[row * p.columns + here.column + n]
            start, end = s * size + n, (s + 1) * size
            fb = to.fb[start : end : to.stride]
            found |= scale_run(fb, to.eb[start : end : to.stride], scale)
    return found


@part
def dense_offsets(order: Array, count: Integer, p: Plan, to: Parts) -> None:
    """Where the row of B of each product begins, the same in all rows of A."""
    for i in range(count):
        for q in range(p.stored):
            to.offsets[i * p.stored + q] = (i * p.k + order[q]) * to.stride


@part
def sparse_offsets(index: Array, order: Array, p: Plan, here: Block, to: Parts) -> None:
    """The same where every row of A has its own."""
    batch = here.batch if p.index_batches > 1 else 0
    row, width = batch * p.rows + here.row, p.stored * p.instructions
    for m in range(here.rows):
        for i in range(here.count):
            start = (row + m) * width + (here.first + i) * p.stored
            chosen = index[start : start + p.stored]
            at = (m * here.count + i) * p.stored
            offsets = to.offsets[at : at + p.stored]
            for q in range(p.stored):
                offsets[q] = (i * p.k + np.int64(chosen[order[q]])) * to.stride


@part
def load_sums(d: Array, p: Plan, start: Integer, width: Integer, c: Array) -> None:
    """Eight columns of accumulators, or the last few."""
    if p.columns == LANES:  # the rows follow one another
        load(d[start : start + len(c)], p.half, c)
    else:
        for m in range(len(c) // LANES):
            row = start + m * p.columns
            load(d[row : row + width], p.half, c[m * LANES :])


@part
def store_sums(c: Array, p: Plan, start: Integer, width: Integer, d: Array) -> None:
    """Put them back."""
    if p.columns == LANES:
        store(c, p.half, d[start : start + len(c)])
    else:
        for m in range(len(c) // LANES):
            row = start + m * p.columns
            store(c[m * LANES :], p.half, d[row : row + width])


@part
def add_rows(
    parts: Parts,
    p: Plan,
    here: Block,
    step: Integer,
    n: Integer,
    careful: bool,
    sums: Sums,
) -> None:
    """One step of eight columns: the largest exponents, the aligned products."""
    fa, ea, fb, eb, offsets = parts.fa, parts.ea, parts.fb, parts.eb, parts.offsets
    e, total, special = sums.e, sums.total, sums.special
    products, length = p.products, here.count * p.stored
    fraction = p.rounding.fraction
    offsets_row = length if p.sparse else 0
    for m in range(here.rows):
        at, row, to = m * length + step, m * offsets_row + step, m * LANES
        raise_exponents(ea, at, eb, n, offsets, row, products, e, to)
        for q in range(0, products, SAFE):
            size = min(SAFE, products - q)
            add_aligned(
                fa, at + q, fb, n, offsets, row + q, size, e, fraction, total,
                special, careful, to,
            )  # fmt: skip


@part
def run_steps(
    parts: Parts, p: Plan, here: Block, n: Integer, careful: bool, sums: Sums
) -> None:
    """Walk eight columns of a block through its instructions."""
    c, held = sums.c, sums.held
    for i in range(here.count):
        if p.from_zero:
            for j in range(len(c)):
                held[j] = c[j]
                c[j] = 0.0
        least = p.c_least if here.first + i == 0 else p.rounding.least
        for j in range(len(c)):
            sums.e[j] = entering(c[j], p.rounding.floor, least)
        for step in range(i * p.stored, (i + 1) * p.stored, p.products):
            add_rows(parts, p, here, step, n, careful, sums)
            settle(sums, p.rounding)
        if p.from_zero:
            add_to(held, c, p.half)
            for j in range(len(c)):
                c[j] = held[j]


@part
def run_block(
    operands: tuple[Array, ...],
    order: Array,
    p: Plan,
    here: Block,
    parts: Parts,
    sums: Sums,
    spare: Array,
    d: Array,
) -> None:
    """Take a block apart, walk through it, put the results back."""
    a, b, index, scale_a, scale_b = operands
    careful = take_rows(a, p, here, parts) | take_columns(b, p, here, parts)
    if p.scales:
        careful |= scale_rows(scale_a, p, here, parts)
        careful |= scale_columns(scale_b, p, here, parts)
    if p.reordered:
        for at in range(0, here.rows * here.count * p.stored, p.stored):
            reorder(parts.fa[at:], parts.ea[at:], order, spare)
    if p.sparse:
        sparse_offsets(index, order, p, here, parts)
    start = (here.batch * p.rows + here.row) * p.columns + here.column
    for n in range(0, here.columns, LANES):
        width = min(LANES, here.columns - n)
        load_sums(d, p, start + n, width, sums.c)
        run_steps(parts, p, here, n, careful, sums)
        store_sums(sums.c, p, start + n, width, d)


@compiled
def multiply_blocks(
    a: Array,
    b: Array,
    d: Array,
    index: Array,
    scale_a: Array,
    scale_b: Array,
    order: Array,
    p: Plan,
    values: Array,
    first_block: Integer,
    last_block: Integer,
) -> None:
    """Compute some blocks of d in place; d holds c when this begins.

    All arrays are flat.  ``values`` is empty: its type is that of the values.
    """
    chunk = min(max(1, BLOCK_PRODUCTS // p.stored), p.instructions)
    rows = min(BLOCK_ROWS, p.rows)
    columns = min(BLOCK_COLUMNS, (p.columns + LANES - 1) // LANES * LANES)
    # A stride of a power of two would map the rows of B to few cache lines.
    stride = LANES if p.columns == LANES else columns + LANES
    in_a, in_b = rows * chunk * p.stored, chunk * p.k * stride
    parts = Parts(
        np.empty(in_a, values.dtype), np.empty(in_a, i32),
        np.empty(in_a if p.sparse else chunk * p.stored, i32),
        np.empty(in_b, values.dtype), np.empty(in_b, i32), stride,
    )  # fmt: skip
    spare = np.empty(p.stored, values.dtype)
    lanes = rows * LANES
    c, e, held = np.zeros(lanes), np.empty(lanes, i32), np.zeros(lanes)
    total, special = np.zeros(lanes), np.zeros(lanes)
    if not p.sparse:
        dense_offsets(order, chunk, p, parts)
    down = (p.rows + BLOCK_ROWS - 1) // BLOCK_ROWS
    across = (p.columns + BLOCK_COLUMNS - 1) // BLOCK_COLUMNS
    for block in range(first_block, last_block):
        batch, place = block // (down * across), block % (down * across)
        row, column = place // across * BLOCK_ROWS, place % across * BLOCK_COLUMNS
        rows = min(BLOCK_ROWS, p.rows - row)
        columns = min(BLOCK_COLUMNS, p.columns - column)
        lanes = rows * LANES
        sums = Sums(c[:lanes], e[:lanes], total[:lanes], special[:lanes], held[:lanes])
        for first in range(0, p.instructions, chunk):
            count = min(chunk, p.instructions - first)
            here = Block(batch, row, rows, column, columns, first, count)
            operands = (a, b, index, scale_a, scale_b)
            run_block(operands, order, p, here, parts, sums, spare, d)
