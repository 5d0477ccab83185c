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

from fragmenta.arithmetic.elements import (
    ZERO,
    Format,
    Rounding,
    Sums,
    add_to,
    decode,
    entering,
    i32,
    load,
    scale_run,
    settle,
    store,
)
from fragmenta.arithmetic.vector import (
    LANES,
    SAFE,
    Array,
    Integer,
    add_aligned,
    compiled,
    part,
    raise_exponents,
)

#: Rows, columns and stored products of one block: its parts fit in the L2 cache.
BLOCK_ROWS, BLOCK_COLUMNS, BLOCK_PRODUCTS = 128, 128, 128

#: Accumulators that are taken through all steps together: these fit in L1.
GROUP_SUMS = 1024


class Plan(NamedTuple):
    """The sizes and numbers that :func:`multiply_blocks` works by."""

    batches: int
    stack: int  #: how many small matrices make one block
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
    """Where the work is: some rows and columns, some instructions along k.

    Small matrices of a batch are stacked: their rows follow one another.
    """

    batch: Integer
    tiles: Integer  #: how many are stacked
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
    tile: Integer  #: of the B of stacked matrices


@part
def take_rows(
    a: Array, order: Array, raw: Array, p: Plan, here: Block, to: Parts
) -> bool:
    """Take apart a block of A; says whether it holds infinities or NaN."""
    width, length = p.stored * p.instructions, p.stored * here.count
    batch = here.batch if p.a_batches > 1 else 0
    start = (batch * p.rows + here.row) * width + here.first * p.stored
    if p.reordered:
        for m in range(here.rows):
            for i in range(0, length, p.stored):
                source, at = start + m * width + i, m * length + i
                some, out = a[source : source + p.stored], raw[at : at + p.stored]
                for q in range(p.stored):
                    out[q] = some[order[q]]
        return decode(raw[: here.rows * length], to.fa, to.ea, p.a)
    if length == width:  # the rows follow one another: take them as one
        return decode(a[start : start + here.rows * width], to.fa, to.ea, p.a)
    found = False
    for m in range(here.rows):
        source, at = start + m * width, m * length
        found |= decode(a[source : source + length], to.fa[at:], to.ea[at:], p.a)
    return found


@part
def take_columns(b: Array, p: Plan, here: Block, to: Parts) -> bool:
    """Take apart a block of B; says whether it holds infinities or NaN."""
    width, length, stride = p.columns, here.count * p.k, to.stride
    batch = here.batch if p.b_batches > 1 else 0
    start = (batch * p.instructions + here.first) * p.k * width + here.column
    if stride == width:  # the rows follow one another: take them as one
        size = length * width * (here.tiles if p.b_batches > 1 else 1)
        return decode(b[start : start + size], to.fb, to.eb, p.b)
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
            to.offsets[i * p.stored + q] = (i * p.k + np.int64(order[q])) * to.stride


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
def load_sums(
    d: Array, p: Plan, here: Block, first_row: Integer, width: Integer, c: Array
) -> None:
    """The accumulators of some rows of a block; zeros fill their width."""
    row = here.batch * p.rows + here.row + first_row
    start = row * p.columns + here.column
    if p.columns == width:  # the rows follow one another: take them as one
        load(d[start : start + len(c)], p.half, c)
        return
    for m in range(len(c) // width):
        at, from_ = m * width, start + m * p.columns
        load(d[from_ : from_ + here.columns], p.half, c[at:])
        c[at + here.columns : at + width] = 0.0


@part
def store_sums(
    c: Array, p: Plan, here: Block, first_row: Integer, width: Integer, d: Array
) -> None:
    """Put them back."""
    row = here.batch * p.rows + here.row + first_row
    start = row * p.columns + here.column
    if p.columns == width:
        store(c, p.half, d[start : start + len(c)])
        return
    for m in range(len(c) // width):
        at, to = m * width, start + m * p.columns
        store(c[at:], p.half, d[to : to + here.columns])


@part
def add_rows(
    parts: Parts,
    p: Plan,
    length: Integer,
    first_row: Integer,
    step: Integer,
    width: Integer,
    careful: bool,
    sums: Sums,
) -> None:
    """One step of some rows: the largest exponents, the aligned products."""
    fa, ea, fb, eb, offsets = parts.fa, parts.ea, parts.fb, parts.eb, parts.offsets
    e, total, special = sums.e, sums.total, sums.special
    products, fraction = p.products, p.rounding.fraction
    offsets_row = length if p.sparse else 0
    tile = parts.tile
    for m in range(len(e) // width):
        at = (first_row + m) * length + step
        row = (first_row + m) * offsets_row + step
        tile_at = (first_row + m) // p.rows * tile
        for n in range(0, width, LANES):
            to, b_at = m * width + n, tile_at + n
            raise_exponents(ea, at, eb, b_at, offsets, row, products, e, to)
            for q in range(0, products, SAFE):
                size = min(SAFE, products - q)
                add_aligned(
                    fa, at + q, fb, b_at, offsets, row + q, size, e, fraction, total,
                    special, careful, to,
                )  # fmt: skip


@part
def run_steps(
    parts: Parts,
    p: Plan,
    here: Block,
    first_row: Integer,
    width: Integer,
    careful: bool,
    sums: Sums,
) -> None:
    """Walk some rows of a block through its instructions."""
    c, held, length = sums.c, sums.held, here.count * p.stored
    for i in range(here.count):
        if p.from_zero:
            for j in range(len(c)):
                held[j] = c[j]
                c[j] = 0.0
        least = p.c_least if here.first + i == 0 else p.rounding.least
        for j in range(len(c)):
            sums.e[j] = entering(c[j], p.rounding.floor, least)
        for step in range(i * p.stored, (i + 1) * p.stored, p.products):
            add_rows(parts, p, length, first_row, step, width, careful, sums)
            settle(sums, p.rounding)
        if p.from_zero:
            add_to(held, c, p.half)
            for j in range(len(c)):
                c[j] = held[j]


@part
def take_apart(
    operands: tuple[Array, ...],
    order: Array,
    raw: Array,
    p: Plan,
    here: Block,
    parts: Parts,
) -> bool:
    """Take a block apart; says whether it holds infinities or NaN."""
    a, b, index, scale_a, scale_b = operands
    found = take_rows(a, order, raw, p, here, parts)
    found |= take_columns(b, p, here, parts)
    if p.scales:
        found |= scale_rows(scale_a, p, here, parts)
        found |= scale_columns(scale_b, p, here, parts)
    if p.sparse:
        sparse_offsets(index, order, p, here, parts)
    return found


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
    most_rows = min(BLOCK_ROWS, p.rows) * p.stack
    width = min(BLOCK_COLUMNS, (p.columns + LANES - 1) // LANES * LANES)
    # A stride of a power of two would map the rows of B to few cache lines.
    stride = width if width == LANES else width + LANES
    tile = chunk * p.k * stride if p.b_batches > 1 else 0
    in_a, in_b = most_rows * chunk * p.stored, chunk * p.k * stride * p.stack
    parts = Parts(
        np.empty(in_a, values.dtype), np.empty(in_a, i32),
        np.empty(in_a if p.sparse else chunk * p.stored, i32),
        np.empty(in_b, values.dtype), np.empty(in_b, i32), stride, tile,
    )  # fmt: skip
    raw = np.empty(in_a if p.reordered else 0, a.dtype)
    group = min(max(1, GROUP_SUMS // width), most_rows)
    c, e = np.zeros(group * width), np.empty(group * width, i32)
    total, special, held = np.zeros(len(c)), np.zeros(len(c)), np.zeros(len(c))
    if not p.sparse:
        dense_offsets(order, chunk, p, parts)
    down = (p.rows + BLOCK_ROWS - 1) // BLOCK_ROWS
    across = (p.columns + BLOCK_COLUMNS - 1) // BLOCK_COLUMNS
    for block in range(first_block, last_block):
        batch, place = block // (down * across) * p.stack, block % (down * across)
        tiles = min(p.stack, p.batches - batch)
        row, column = place // across * BLOCK_ROWS, place % across * BLOCK_COLUMNS
        rows = min(BLOCK_ROWS, p.rows - row) * tiles
        columns = min(BLOCK_COLUMNS, p.columns - column)
        for first in range(0, p.instructions, chunk):
            count = min(chunk, p.instructions - first)
            here = Block(batch, tiles, row, rows, column, columns, first, count)
            operands = (a, b, index, scale_a, scale_b)
            careful = take_apart(operands, order, raw, p, here, parts)
            for m in range(0, rows, group):
                size = min(group, rows - m) * width
                sums = Sums(
                    c[:size], e[:size], total[:size], special[:size], held[:size]
                )
                load_sums(d, p, here, m, width, sums.c)
                run_steps(parts, p, here, m, width, careful, sums)
                store_sums(sums.c, p, here, m, width, d)
