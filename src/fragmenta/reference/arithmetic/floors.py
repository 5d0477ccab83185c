"""Kernels that compute blocks of a product with the steps of ``floor_steps``.

A block is computed in parts along k.  For each part, its columns of B are packed once,
then a few rows of A at a time, which are multiplied by every panel of the columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from fragmenta.base.arrays.once import once
from fragmenta.base.jit.compiler import Traced, kernel, pointer
from fragmenta.base.jit.trace import (
    F32,
    F64,
    I8,
    I32,
    I64,
    LANES,
    Code,
    Memory,
    Value,
    call_address,
    convert,
    copy_bytes,
    larger,
    prefetch,
    select,
    size_of,
    smaller,
)
from fragmenta.reference.arithmetic.chain import MODES, set_rounding
from fragmenta.reference.arithmetic.elements import add_ordinary, to_float32
from fragmenta.reference.arithmetic.floor_steps import (
    LINE,
    FloorNumbers,
    FloorStep,
    FloorVariant,
    Panel,
    Scratch,
    add_step,
    of_group,
    starting_at,
)

# How many matrices are copied before they are computed: they stay in the cache.
_COPIED = 16

# The most bytes of a matrix that are brought into the cache before they are needed.
_MOST_FETCHED = 2048


class FloorSizes(NamedTuple):
    """The sizes of a product and of its blocks."""

    rows: Value
    columns: Value
    instructions: Value
    stored: Value
    k: Value
    scale_vec: Value
    own_a: Value  #: 1 if every matrix of a batch has its own A, 0 if all share one
    own_b: Value
    own_index: Value
    own_scale_a: Value
    own_scale_b: Value
    block_rows: Value
    block_columns: Value
    across: Value  #: blocks side by side
    down: Value
    pack_rows: Value  #: addresses of the packers
    pack_columns: Value
    add: Value  #: the address of what adds c last
    a_size: Value  #: bytes of an element
    b_size: Value


class FloorOperands(NamedTuple):
    """The operands of a product; ``d`` holds c at first."""

    a: Memory
    b: Memory
    d: Memory
    places: Memory  #: the index
    scale_a: Memory
    scale_b: Memory


_PARAMETERS = {
    "a": pointer(I8),
    "b": pointer(I8),
    "d": pointer(F32),
    "index": pointer(I8),
    "scale_a": pointer(I8),
    "scale_b": pointer(I8),
    "status": pointer(I8),
    **dict.fromkeys(FloorNumbers._fields, I32),
    **dict.fromkeys(FloorSizes._fields, I64),
    "work": pointer(I8),
    "first": I64,
    "last": I64,
}


@once
def floor_kernel(variant: FloorVariant) -> Traced:
    """The kernel that computes some blocks of a product.

    ``d`` holds c at first.  The status of a block is 1 if it must be computed in
    another way; then its part of ``d`` is arbitrary.
    """

    @kernel(**_PARAMETERS)
    def floor_steps(code: Code, *given: Any) -> None:
        *operands, status = given[:7]
        *numbers, work, start, stop = given[7:]
        n, p = FloorNumbers(*numbers[:3]), FloorSizes(*numbers[3:])
        w = Scratch.of(work, variant)
        step, of = FloorStep(code, variant, n, w), FloorOperands(*operands)
        set_rounding(code, code.constant(MODES["rz"], I32))
        with code.loop(stop, start=start) as number:
            if variant.once:
                _prefetch(code, p, of, number + 1)
            _block(step, p, of, number)
            status[number] = convert(w.special[0], I8)
        set_rounding(code, code.constant(MODES["rn"], I32))

    return floor_steps


@kernel(c=pointer(F32), size=I64, own=I64, steps=I64, **_PARAMETERS)
def copy_and_compute(
    code: Code, c: Memory, size: Value, own: Value, steps: Value, *given: Any
) -> None:
    """Copy c to d and compute, for a few small matrices at a time.

    ``size`` is that of a matrix in bytes, ``own`` is 0 if all have the same c, and
    ``steps`` the address of a :func:`floor_kernel`.
    """
    *others, start, stop = given
    d = given[2].view(I8)
    with code.loop(stop, start=start, step=_COPIED) as first:
        last = smaller(stop, first + _COPIED)
        with code.loop(last, start=first) as tile:
            source = starting_at(c.view(I8), tile * own * size)
            copy_bytes(starting_at(d, tile * size), source, size)
        call_address(steps, [*others, first, last])


def _prefetch(code: Code, p: FloorSizes, of: FloorOperands, tile: Value) -> None:
    """Bring a small matrix of A, B and D into the cache, if it is computed as a whole.

    A processor does so itself where memory is read at a constant pace.  Here, most of
    the time nothing is read.
    """
    depth, rows = p.instructions * p.stored, p.instructions * p.k
    sizes = (
        (of.a, p.own_a, p.rows * depth * p.a_size),
        (of.b, p.own_b, rows * p.columns * p.b_size),
        (of.d.view(I8), code.constant(1, I64), p.rows * p.columns * size_of(F32)),
    )
    for memory, own, size in sizes:
        whole = own * select(p.across * p.down == 1, size, 0)
        with code.loop(smaller(whole, _MOST_FETCHED), step=LINE) as line:
            prefetch(memory, tile * size + line)


class BlockSlice(NamedTuple):
    """A block, and the part of it along k that is computed."""

    tile: Value
    top: Value
    side: Value
    rows: Value
    panels: Value
    first: Value  #: instruction
    some: Value  #: instructions


def _block(step: FloorStep, p: FloorSizes, of: FloorOperands, number: Value) -> None:
    """One block, in parts along k."""
    code, v, _, w = step
    tile, rest = number // (p.across * p.down), number % (p.across * p.down)
    top, side = rest // p.across * p.block_rows, rest % p.across * p.block_columns
    rows = smaller(p.rows - top, p.block_rows)
    columns = smaller(p.columns - side, p.block_columns)
    panels = (columns + (v.across - 1)) // v.across
    w.special[0] = code.constant(0, I32)
    each = larger(code.constant(v.depth, I64) // p.k, 1)  # instructions at a time
    with code.loop(p.instructions, step=each) as first:
        some = smaller(p.instructions - first, each)
        here = BlockSlice(tile, top, side, rows, panels, first, some)
        with code.loop(panels * (v.across // LANES)) as eight:
            _pack_columns(step, p, of, here, eight)
        at_once = v.group * v.several
        with code.loop(select(w.special[0] == 0, rows, 0), step=at_once) as m:
            stop = smaller(rows, m + at_once)
            with code.loop(stop, start=m, step=v.group) as row:
                _pack_rows(step, p, of, here, row, of_group(v, w, row - m))
            every_panel = code.loop(select(w.special[0] == 0, panels, 0))
            with every_panel as panel, code.loop(stop, start=m, step=v.group) as row:
                group = step._replace(w=of_group(v, w, row - m))
                _group_and_panel(group, p, of, here, row, panel)


def _pack_columns(
    step: FloorStep, p: FloorSizes, of: FloorOperands, here: BlockSlice, eight: Value
) -> None:
    """Pack eight columns of B."""
    v, w = step.v, step.w
    column = here.side + eight * LANES
    at = (here.tile * p.own_b * p.instructions + here.first) * p.k
    scales = here.tile * p.own_scale_b * p.instructions + here.first
    to = _eight_columns(v, eight, here.some * p.k)
    start = (at * p.columns + column) * p.b_size
    call_address(
        p.pack_columns,
        [
            starting_at(of.b, start),
            starting_at(of.scale_b, scales * p.scale_vec * p.columns + column),
            starting_at(w.b_values, to.values),
            starting_at(w.b_powers, to.powers),
            starting_at(w.b_lows, to.lows),
            starting_at(w.b_base, to.base),
            w.special,
            here.some * p.k,
            p.columns,
            p.columns - column,
            p.k // larger(p.scale_vec, 1),
        ],
    )


def _pack_rows(
    step: FloorStep,
    p: FloorSizes,
    of: FloorOperands,
    here: BlockSlice,
    m: Value,
    to: Scratch,
) -> None:
    """Pack a group of rows of A."""
    depth, scales = p.instructions * p.stored, p.instructions * p.scale_vec
    row = here.top + m
    a, index, scale = (
        here.tile * own * p.rows + row for own in (p.own_a, p.own_index, p.own_scale_a)
    )
    start = here.first * p.stored
    at = (a * depth + start) * p.a_size
    call_address(
        p.pack_rows,
        [
            starting_at(of.a, at),
            starting_at(of.scale_a, scale * scales + here.first * p.scale_vec),
            starting_at(of.places, index * depth + start),
            to.a_values,
            to.a_powers,
            to.a_lows,
            to.a_signs,
            to.a_places,
            to.a_base,
            to.special,
            here.some * p.stored,
            depth,
            here.rows - m,
            p.stored // larger(p.scale_vec, 1),
            scales,
            p.stored,
            p.k,
        ],
    )


def _group_and_panel(
    step: FloorStep,
    p: FloorSizes,
    of: FloorOperands,
    here: BlockSlice,
    m: Value,
    panel: Value,
) -> None:
    """The sums of a group of rows and a panel of columns."""
    code, v, _, w = step
    column = here.side + panel * v.across
    place = (here.tile * p.rows + here.top + m) * p.columns + column
    left = here.rows - m, p.columns - column
    sums = Sums(of.d, place, p.columns, *left, v.group, v.across)
    _load(code, w.sums, sums)
    _instructions(step, p, _panel(v, panel, here.some * p.k), here.some)
    _store(code, w.sums, sums)


def _instructions(step: FloorStep, p: FloorSizes, at: Panel, count: Value) -> None:
    """The steps of some instructions."""
    code, v, _, w = step
    if not v.from_zero:
        with code.loop(count * p.stored, step=v.products) as product:
            add_step(step, at, product)
        return
    with code.loop(count) as instruction:
        held = w.sums.lanes(0, v.sums)
        w.held[0] = held
        w.sums[0] = held.lift(0.0)
        with code.loop(p.stored, step=v.products) as product:
            add_step(step, at, instruction * p.stored + product)
        set_rounding(code, code.constant(MODES["rn"], I32))
        call_address(p.add, [w.held, w.sums])
        set_rounding(code, code.constant(MODES["rz"], I32))


@once
def ordinary_adder(half: bool, sums: int) -> Traced:
    """A kernel that adds c to the sums of an instruction.

    It is compiled apart from the steps, which round in another mode.
    """

    @kernel(held=pointer(F32), added=pointer(F32))
    def add_last(code: Code, held: Memory, added: Memory) -> None:
        with code.loop(sums, step=LANES) as lane:
            x, y = (convert(each.lanes(lane), F64) for each in (held, added))
            added[lane] = to_float32(add_ordinary(x, y, half))

    return add_last


def _panel(v: FloorVariant, panel: Value, depth: Value) -> Panel:
    """A panel of so many elements along k.

    Panels follow each other: in the cache, those of a few elements do not collide.
    """
    first = panel * depth * v.across
    return Panel(first, first, first * v.signs, panel * v.across)


def _eight_columns(v: FloorVariant, eight: Value, depth: Value) -> Panel:
    """Where eight columns begin; a panel may have several times as many."""
    each = v.across // LANES
    whole = _panel(v, eight // each, depth)
    return Panel(*(start + eight % each * LANES for start in whole))


# -- accumulators -------------------------------------------------------------


class Sums(NamedTuple):
    """Where the accumulators of a group of rows and a panel are."""

    d: Memory
    place: Value
    columns: Value
    rows_left: Value
    columns_left: Value
    group: int  #: rows
    across: int  #: columns

    @property
    def whole(self) -> Value:
        """Whether the group and the panel are not at an edge."""
        return (self.rows_left >= self.group) & (self.columns_left >= self.across)


def _load(code: Code, to: Memory, sums: Sums) -> None:
    """Copy accumulators; beyond the last row or column there are ones."""
    with code.when(sums.whole):
        for row in range(sums.group):
            start = sums.place + sums.columns * row
            to[row * sums.across] = sums.d.lanes(start, sums.across)
    with code.when(~sums.whole):
        every = sums.group * sums.across
        to[0] = code.constant(1.0, F32).in_all_lanes(every)
        with _each_left(code, sums) as (there, here):
            to[here] = sums.d[there]


def _store(code: Code, source: Memory, sums: Sums) -> None:
    with code.when(sums.whole):
        for row in range(sums.group):
            some = source.lanes(row * sums.across, sums.across)
            sums.d[sums.place + sums.columns * row] = some
    with code.when(~sums.whole), _each_left(code, sums) as (there, here):
        sums.d[there] = source[here]


@contextmanager
def _each_left(code: Code, sums: Sums) -> Iterator[tuple[Value, Value]]:
    """The accumulators at the edge: where they are in d, and in a group."""
    rows = code.loop(smaller(sums.rows_left, sums.group))
    with rows as row, code.loop(smaller(sums.columns_left, sums.across)) as column:
        yield sums.place + row * sums.columns + column, row * sums.across + column
