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

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from fragmenta.arithmetic.vector import (
    LANES,
    SAFE,
    add_aligned,
    add_aligned_careful,
    bits32_of,
    bits64_of,
    compiled,
    cut,
    float32_of,
    float64_of,
    part,
    raise_exponents,
)

Array: TypeAlias = Any  # what mypy sees of the arrays of compiled code

#: The exponent of zero: two of them stay below every other sum of exponents.
ZERO = -8192

#: Rows, columns and stored products of one block: its parts fit in the L2 cache.
BLOCK_ROWS, BLOCK_COLUMNS, BLOCK_PRODUCTS = 128, 128, 128

i32 = np.int32


class Format(NamedTuple):
    """An element type, as the compiled code wants to know it."""

    exponent_bits: int
    fraction_bits: int
    special: int  #: the least magnitude that is infinite or NaN
    infinity: int  #: the magnitude of infinity, or -1
    least: int  #: the exponent of subnormals


#: f16, the accumulator that is not f32.
HALF = Format(5, 10, 0x7C00, 0x7C00, -14)


class Plan(NamedTuple):
    """Sizes and numbers that one call of :func:`multiply_blocks` works by."""

    rows: int
    columns: int
    k: int
    stored: int
    instructions: int  #: how many are chained along k
    a_batches: int
    b_batches: int
    index_batches: int
    scale_a_batches: int
    scale_b_batches: int
    products: int
    fraction: int
    floor: int
    keep: int
    nearest: int
    from_zero: int
    half: int  #: whether the accumulator is f16
    least: int  #: the least exponent of the accumulator
    c_least: int  #: the same of c, on entering the first step
    scales: int  #: per row of A and instruction
    sparse: int
    reordered: int
    a: Format
    b: Format


@part
def power_of_two(exponent: int) -> float:
    """2.0**exponent, for normal results."""
    return float64_of(np.int64(exponent + 1023) << 52)


@part
def small_value(bits: Any, form: Format) -> Any:
    """The value of an element with at most 5 exponent bits, as a float32.

    Every operation is told to stay within 32 bits, or half the lanes are lost.
    """
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
    return top == 255


@part
def field_of(x: Any) -> Any:
    """The exponent field of a float32: 255 for what is infinite or NaN."""
    return i32(i32(bits32_of(x) >> i32(23)) & i32(255))


@part
def exponent_of(x: Any, least: Any) -> Any:
    """The exponent that a value brings into a product."""
    field = field_of(x)
    power = max(i32(field - i32(127)), least)
    return i32(ZERO) if field == 255 or x == 0 else power


@part
def scale_run(values: Array, exponents: Array, scale: int) -> bool:
    """Multiply elements by a ue8m0 scale; says whether the scale is NaN."""
    if scale == 255:
        values[:] = np.nan
        exponents[:] = ZERO
        return True
    factor, power = power_of_two(np.int64(scale) - 127), i32(np.int64(scale) - 127)
    for i in range(len(values)):
        values[i] *= factor
        exponents[i] = exponents[i] + power if exponents[i] != ZERO else i32(ZERO)
    return False


@part
def power_of(x: float) -> Any:
    """floor(log2(abs(x))) of a normal float64; 1024 if infinite or NaN."""
    return (bits64_of(x) >> 52 & 2047) - 1023


@part
def entering(x: float, floor: int, least: int) -> Any:
    """The exponent that an accumulator brings into a step."""
    power = power_of(x)
    return max(power, least) if x != 0 and power < 1024 else floor


@part
def exact_sum(x: float, e: int, total: float, fraction: int) -> float:
    """The aligned accumulator and the aligned products, added."""
    finite = x if x - x == 0 else 0.0
    return (total + cut(finite * power_of_two(fraction - e))) * power_of_two(
        e - fraction
    )


@part
def toward_zero(x: float, keep: int, least: int) -> float:
    """x cut to ``keep`` fraction bits; never -0."""
    drop = 52 - keep + max(0, least - power_of(x))
    kept = float64_of(bits64_of(x) & np.int64(-1) << min(drop, 63))
    return kept if drop <= 52 else 0.0


@part
def to_nearest(x: float, keep: int, least: int) -> float:
    """x to nearest even with ``keep`` fraction bits; never -0."""
    unit = max(power_of(x), least) - keep
    # From 2**52 units on a float64 has no room for anything below a unit.
    large = 1.5 * power_of_two(unit + 52)
    return (x + large) - large


@part
def limited(x: float, limit: float) -> float:
    """x, or infinity if it is too large."""
    return np.inf * x if abs(x) >= limit else x


@part
def settle(
    c: Array, e: Array, total: Array, special: Array, fraction: int, floor: int,
    keep: int, least: int, nearest: bool,
) -> None:
    """End a step: round the sums, and begin the next one."""  # fmt: skip
    limit = power_of_two(2 - least)
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
def add_to(c: Array, total: Array, half: int) -> None:
    """c + total, an ordinary addition of the accumulator's type, to nearest."""
    if half:
        for i in range(len(c)):
            exact = c[i] + total[i]
            rounded = limited(to_nearest(exact, 10, -14), 65536.0)
            c[i] = rounded if exact - exact == 0 else exact
    else:
        for i in range(len(c)):
            c[i] = np.float32(c[i]) + np.float32(total[i])


@part
def load(bits: Array, half: int, c: Array) -> None:
    """Accumulators from their bits."""
    if half:
        for i in range(len(bits)):
            c[i] = small_value(i32(bits[i]), HALF)
    else:
        for i in range(len(bits)):
            c[i] = float32_of(i32(bits[i]))


@part
def store(c: Array, half: int, bits: Array) -> None:
    """Accumulators to their bits; they fit exactly."""
    if half:
        for i in range(len(bits)):
            bits[i] = half_bits(c[i])
    else:
        for i in range(len(bits)):
            word = bits32_of(np.float32(c[i]))
            bits[i] = word if c[i] == c[i] else i32(0x7FFFFFFF)


@part
def half_bits(x: float) -> Any:
    """The f16 bits of a value that f16 holds."""
    magnitude = abs(x)
    subnormal = i32(magnitude * 2.0**24)
    normal = i32((bits64_of(magnitude) >> 42) - ((1023 - 15) << 10))
    word = subnormal if magnitude < 2.0**-14 else normal
    word = word if magnitude < 65536.0 else i32(0x7C00)
    sign = i32(bits64_of(x) >> 48 & 0x8000)
    return i32(word | sign) if x == x else i32(0x7FFF)


@part
def take_rows(
    a: Array,
    index: Array,
    scales: Array,
    order: Array,
    p: Plan,
    batch: int,
    row: int,
    rows: int,
    first: int,
    count: int,
    stride: int,
    values: Array,
    exponents: Array,
    offsets: Array,
    spare: Array,
) -> bool:
    """Take apart ``count`` instructions' worth of some rows of A."""  # fmt: skip
    width, length = p.stored * p.instructions, p.stored * count
    start = ((batch if p.a_batches > 1 else 0) * p.rows + row) * width
    found = False
    if length == width:  # the rows follow one another: take them as one
        everything = rows * width
        found = decode(a[start : start + everything], values, exponents, p.a)
    else:
        for m in range(rows):
            source, at = start + m * width + first * p.stored, m * length
            found |= decode(
                a[source : source + length], values[at:], exponents[at:], p.a
            )
    if p.scales:
        found |= scale_rows(
            scales, p, batch, row, rows, first, count, values, exponents
        )
    if p.reordered:
        for at in range(0, rows * length, p.stored):
            reorder(values[at:], exponents[at:], order, spare)
    if p.sparse:
        index_row = (batch if p.index_batches > 1 else 0) * p.rows + row
        for m in range(rows):
            chosen = (index_row + m) * width + first * p.stored
            for at in range(0, length, p.stored):
                sparse_offsets(
                    index[chosen + at :], order, at // p.stored * p.k, stride,
                    offsets[m * length + at :],
                )  # fmt: skip
    return found


@part
def scale_rows(
    scales: Array,
    p: Plan,
    batch: int,
    row: int,
    rows: int,
    first: int,
    count: int,
    values: Array,
    exponents: Array,
) -> bool:
    """Put the block scales of A into its elements; says whether one is NaN."""  # fmt: skip
    size, found = p.stored // p.scales, False
    scale_row = (batch if p.scale_a_batches > 1 else 0) * p.rows + row
    for m in range(rows):
        start = ((scale_row + m) * p.instructions + first) * p.scales
        for s in range(count * p.scales):
            at = m * count * p.stored + s * size
            found |= scale_run(
                values[at : at + size], exponents[at : at + size], scales[start + s]
            )
    return found


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
def take_columns(
    b: Array,
    scales: Array,
    p: Plan,
    batch: int,
    column: int,
    columns: int,
    first: int,
    count: int,
    stride: int,
    values: Array,
    exponents: Array,
) -> bool:
    """Take apart ``count`` instructions' worth of some columns of B."""  # fmt: skip
    width, length = p.columns, count * p.k
    b_batch = batch if p.b_batches > 1 else 0
    start = (b_batch * p.instructions + first) * p.k * width + column
    found = False
    if stride == width:  # the rows follow one another: take them as one
        found = decode(b[start : start + length * width], values, exponents, p.b)
    else:
        for k in range(length):
            source, at = start + k * width, k * stride
            found |= decode(
                b[source : source + columns], values[at:], exponents[at:], p.b
            )
            values[at + columns : at + stride] = 0.0
            exponents[at + columns : at + stride] = ZERO
    if p.scales:
        size = p.k // p.scales
        scale_batch = batch if p.scale_b_batches > 1 else 0
        for s in range(count * p.scales):
            row = (scale_batch * p.instructions + first) * p.scales + s
            for n in range(columns):
                block = slice(s * size * stride + n, (s + 1) * size * stride, stride)
                scale = scales[row * width + column + n]
                found |= scale_run(values[block], exponents[block], scale)
    return found


@part
def dense_offsets(order: Array, count: int, k: int, stride: int, to: Array) -> None:
    """Where in the block of B the row of each product of a dense A begins."""
    stored = len(order)
    for i in range(count):
        for q in range(stored):
            to[i * stored + q] = (i * k + order[q]) * stride


@part
def sparse_offsets(index: Array, order: Array, k: int, stride: int, to: Array) -> None:
    """The same for one instruction's share of a row of a sparse A."""
    for q in range(len(order)):
        to[q] = (k + np.int64(index[order[q]])) * stride


@part
def run_steps(
    fa: Array, ea: Array, fb: Array, eb: Array, column: int, offsets: Array,
    rows: int, first: int, count: int, p: Plan, careful: bool,
    c: Array, e: Array, total: Array, special: Array, held: Array,
) -> None:
    """Walk eight columns of a block through ``count`` instructions."""  # fmt: skip
    length, nearest = count * p.stored, p.nearest != 0
    for instruction in range(count):
        if p.from_zero:
            for i in range(len(c)):
                held[i] = c[i]
                c[i] = 0.0
        least = p.c_least if first + instruction == 0 else p.least
        for i in range(len(c)):
            e[i] = entering(c[i], p.floor, least)
        start = instruction * p.stored
        for step in range(start, start + p.stored, p.products):
            add_rows(
                fa, ea, length, fb, eb, column, offsets, length if p.sparse else 0,
                step, rows, p.products, p.fraction, careful, e, total, special,
            )  # fmt: skip
            settle(
                c, e, total, special, p.fraction, p.floor, p.keep, p.least, nearest
            )
        if p.from_zero:
            add_to(held, c, p.half)
            for i in range(len(c)):
                c[i] = held[i]


@part
def add_rows(
    fa: Array, ea: Array, a_row: int, fb: Array, eb: Array, column: int,
    offsets: Array, offsets_row: int, step: int, rows: int, products: int,
    fraction: int, careful: bool, e: Array, total: Array, special: Array,
) -> None:
    """One step of each row: the largest exponents, then the aligned sums."""  # fmt: skip
    for m in range(rows):
        at, offset, to = m * a_row + step, m * offsets_row + step, m * LANES
        raise_exponents(ea, at, eb, column, offsets, offset, products, e, to)
        for first in range(0, products, SAFE):
            size = min(SAFE, products - first)
            if careful:
                add_aligned_careful(
                    fa, at + first, fb, column, offsets, offset + first, size, e,
                    fraction, total, special, to,
                )  # fmt: skip
            else:
                add_aligned(
                    fa, at + first, fb, column, offsets, offset + first, size, e,
                    fraction, total, special, to,
                )  # fmt: skip


@part
def load_block(d: Array, start: int, p: Plan, width: int, c: Array) -> None:
    """Eight columns, or the last few, of the accumulators of a block."""
    if p.columns == LANES:  # the rows follow one another
        load(d[start : start + len(c)], p.half, c)
    else:
        for m in range(len(c) // LANES):
            row = start + m * p.columns
            load(d[row : row + width], p.half, c[m * LANES :])


@part
def store_block(c: Array, p: Plan, width: int, d: Array, start: int) -> None:
    """Put them back."""
    if p.columns == LANES:
        store(c, p.half, d[start : start + len(c)])
    else:
        for m in range(len(c) // LANES):
            row = start + m * p.columns
            store(c[m * LANES :], p.half, d[row : row + width])


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
    wide: Array,
    first_block: int,
    last_block: int,
) -> None:
    """Compute some blocks of d in place; d holds c when this begins.

    All arrays are flat.  ``wide`` is empty; its type is that of the values.
    """  # fmt: skip
    chunk = min(max(1, BLOCK_PRODUCTS // p.stored), p.instructions)
    most_rows = min(BLOCK_ROWS, p.rows)
    most_columns = min(BLOCK_COLUMNS, (p.columns + LANES - 1) // LANES * LANES)
    # A stride of a power of two would map the rows of B to few cache lines.
    stride = LANES if p.columns == LANES else most_columns + LANES
    fa = np.empty(most_rows * chunk * p.stored, wide.dtype)
    fb = np.empty(chunk * p.k * stride, wide.dtype)
    ea, eb = np.empty(len(fa), i32), np.empty(len(fb), i32)
    offsets = np.empty(len(fa) if p.sparse else chunk * p.stored, i32)
    spare = np.empty(p.stored, wide.dtype)
    e = np.empty(most_rows * LANES, i32)
    c, held = np.zeros(len(e)), np.zeros(len(e))
    total, special = np.zeros(len(e)), np.zeros(len(e))
    if not p.sparse:
        dense_offsets(order, chunk, p.k, stride, offsets)
    down = (p.rows + BLOCK_ROWS - 1) // BLOCK_ROWS
    across = (p.columns + BLOCK_COLUMNS - 1) // BLOCK_COLUMNS
    for block in range(first_block, last_block):
        batch, place = block // (down * across), block % (down * across)
        row, column = place // across * BLOCK_ROWS, place % across * BLOCK_COLUMNS
        rows = min(BLOCK_ROWS, p.rows - row)
        columns = min(BLOCK_COLUMNS, p.columns - column)
        lanes = rows * LANES
        for first in range(0, p.instructions, chunk):
            count = min(chunk, p.instructions - first)
            careful = take_rows(
                a, index, scale_a, order, p, batch, row, rows, first, count, stride,
                fa, ea, offsets, spare,
            )  # fmt: skip
            careful |= take_columns(
                b, scale_b, p, batch, column, columns, first, count, stride, fb, eb
            )
            for n in range(0, columns, LANES):
                start = (batch * p.rows + row) * p.columns + column + n
                width = min(LANES, columns - n)
                load_block(d, start, p, width, c[:lanes])
                run_steps(
                    fa, ea, fb, eb, n, offsets, rows, first, count, p, careful,
                    c[:lanes], e[:lanes], total[:lanes], special[:lanes], held[:lanes],
                )  # fmt: skip
                store_block(c[:lanes], p, width, d, start)
