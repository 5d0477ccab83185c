"""Calls the kernels of :mod:`fragmenta.reference.arithmetic.floor_tiles` for one
``wgmma``.

The elements of A and B are copied from registers or shared memory to where the kernels
want them.  D stays in its registers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from fragmenta.base.jit.compiler import Traced
from fragmenta.base.jit.llvm import Type
from fragmenta.base.jit.trace import (
    F32,
    I8,
    I32,
    I64,
    LANES,
    Code,
    Memory,
    Value,
    convert,
    each_lane,
)
from fragmenta.reference.arithmetic.floor_tiles import (
    Tiles,
    call_kernels,
    computes,
    instruction_kernels,
    sources,
)
from fragmenta.reference.arithmetic.models import Model
from fragmenta.reference.arithmetic.packing import GROUP
from fragmenta.reference.execution.warp_forms import FORMS
from fragmenta.reference.execution.warp_operands import (
    Side,
    WarpOperands,
    metadata_index,
)
from fragmenta.reference.execution.warp_registers import items_of
from fragmenta.reference.isa.instruction import WARP, Instruction
from fragmenta.reference.registers.fragment import Fragment


class Accumulators(NamedTuple):
    """Where the tiles of D are in its registers, in elements."""

    tops: tuple[int, ...]  #: where each group of rows begins
    panels: int
    panel_step: int
    odd_step: int


@cache
def accumulators(part: Fragment) -> Accumulators | None:
    """Where the tiles of a fragment are; None if they are not in such an order.

    >>> import fragmenta as fm
    >>> found = accumulators(fm.mma("m16n8k16", a="f16", d="f32").d)
    >>> found.panels, found.panel_step, found.odd_step
    (1, 0, 32)
    """
    if part.dtype.name not in ("f32", "f16") or len(part.shape) > 2:
        return None
    places = items_of(part, "col", single=True).places
    panels, _, _ = places.shape
    tops, starts = places[0, ::GROUP, 0], places[:, 0, 0]
    step = int(starts[1]) if panels > 1 else 0
    odd = int(places[0, 0, 1])
    pair, side = np.divmod(np.arange(GROUP * LANES), 2)
    tile = pair * part.elements + side * odd
    expected = np.arange(panels)[:, None, None] * step + tops[:, None] + tile
    if (expected.ravel() != places.ravel()).any():
        return None
    return Accumulators(tuple(tops.tolist()), panels, step, odd)


def floors_compute(op: Instruction, model: Model) -> bool:
    """Whether the kernels compute an instruction."""
    return computes(model, op.shape[0]) and accumulators(op.d) is not None


def form_of(op: Instruction, model: Model) -> Callable[[Code, WarpOperands], Value]:
    """What computes an instruction: these kernels, or the form of its model."""
    return floors if floors_compute(op, model) else FORMS[model.form]


def kernels_of(op: Instruction, model: Model) -> dict[str, Traced]:
    """The kernels that :func:`form_of` calls."""
    return instruction_kernels(model) if floors_compute(op, model) else {}


def floors(code: Code, given: WarpOperands) -> Value:
    """Compute D; 1 if a metadata code is illegal, otherwise 0."""
    op, model = given.op, given.model
    found = accumulators(op.d)
    assert found is not None
    types = sources(model)
    a, b = rows_of(code, given.a, types[0]), panels_of(code, given.b, types[1])
    index, illegal = a, code.constant(0, I32)
    if op.sparse:
        index, illegal = metadata_index(code, given)
    groups, panels = len(found.tops), found.panels
    assert given.kept is not None
    assert given.c is given.d
    tops = code.scratch(I32, groups)
    for group, top in enumerate(found.tops):
        tops[group] = convert(_moved(code, given, top), I32)
    steps = (_moved(code, given, each) for each in (found.panel_step, found.odd_step))
    tiles = Tiles(
        a.view(I8),
        b.view(I8),
        index.view(I8),
        given.d.view(F32),
        tops,
        code.scratch(I8, groups * panels),
        code.scratch(I32, 1),
        given.kept,
        *(code.constant(number, I64) for number in (groups, panels)),
        *steps,
    )
    call_kernels(code, tiles)
    return illegal


def _moved(code: Code, given: WarpOperands, place: int) -> Value:
    """Where an element of D is, if it is at a place in the order (register, lane)."""
    part, steps = given.op.d, given.steps
    assert steps is not None
    lane, element = divmod(place, part.elements)
    register, lane = divmod(lane, part.lanes)
    warp, lane = divmod(lane, WARP)
    start = steps.register * register + steps.warp * warp + lane
    return start * part.elements + element


def rows_of(code: Code, side: Side, of: Type) -> Memory:
    """The raw bits of A, row by row."""
    if _by_rows(side):
        return side.memory.view(of)
    panels, depth = side.panels(code), side.depth
    out = code.scratch(of, panels.rows * LANES)

    def put(bits: Value, row: Value) -> None:
        first = row // depth * (LANES * depth) + row % depth
        for lane, each in enumerate(each_lane(convert(bits, of))):
            out[first + lane * depth] = each

    panels.each(put)
    return out


def _by_rows(side: Side) -> bool:
    """Whether the raw bits are row by row already."""
    along = side.items.places.swapaxes(1, 2).ravel()
    whole = side.slot.bits == side.slot.width
    return whole and not side.flipped and bool((np.diff(along) == 1).all())


def panels_of(code: Code, side: Side, of: Type) -> Memory:
    """The raw bits of B, in panels of eight columns."""
    panels = side.panels(code)
    out = code.scratch(of, panels.rows * LANES)

    def put(bits: Value, row: Value) -> None:
        out[row * LANES] = convert(bits, of)

    panels.each(put)
    return out
