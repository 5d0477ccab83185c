"""Runs the kernels of :mod:`fragmenta.arithmetic.floors` on whole products."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from fragmenta.arithmetic.blocks import Block, scratch
from fragmenta.arithmetic.constants import fused_constants
from fragmenta.arithmetic.floors import COLUMNS, FloorVariant, floor_kernel, work_bytes
from fragmenta.arithmetic.models import Model
from fragmenta.arithmetic.operands import Bits, Operands
from fragmenta.arithmetic.packing import (
    DEPTH,
    Packing,
    column_packer,
    row_packer,
)
from fragmenta.arrays.threads import cores, share_out
from fragmenta.jit.compiler import Traced, processor, type_of
from fragmenta.jit.trace import LANES
from fragmenta.registers.dtype import dtype

#: The most rows of a block, and the least: packing B takes time for each block.
_ROWS, _FEW_ROWS = 256, 32

# The fraction bits of float32.
_KEPT = 23

_NONE = np.zeros(1, np.uint8)


class _Kernels(NamedTuple):
    steps: Traced
    rows: Traced
    columns: Traced
    work: int  #: bytes that a thread needs


@cache
def suits(model: Model) -> bool:
    """Whether the kernels compute a model."""
    if model.form != "fused" or model.accumulator != "f32" or model.rounding != "rz":
        return False
    found = fused_constants(model)
    return (
        model.start == "c"
        and not model.reordered
        and found.c_least == found.rounding[-1]
        and model.stored % LANES == 0
        and model.products % 2 == 0
        and model.k <= DEPTH
        and model.keep <= _KEPT
        and _has_fma()
    )


@cache
def _has_fma() -> bool:
    """Whether this processor has fused multiply-adds: all but old ones of Intel."""
    _, features = processor()
    return "+sse" not in features or "+fma" in features.split(",")


@cache
def _kernels(model: Model) -> _Kernels:
    found = fused_constants(model)
    forms = (found.a, found.b)
    sources = tuple(type_of(dtype(name).bits_dtype) for name in (model.a, model.b))
    scaled = model.scale is not None
    wide = scaled or max(form.exponent_bits for form in forms) == 8
    variant = FloorVariant.of(model, wide)
    packings = [
        Packing(source, form, variant.values, scaled, model.sparse)
        for source, form in zip(sources, forms, strict=True)
    ]
    return _Kernels(
        floor_kernel(variant),
        row_packer(packings[0]),
        column_packer(packings[1]),
        work_bytes(variant.values),
    )


def products(given: Operands, c: Bits) -> tuple[Bits, list[Block]]:
    """The result, and the blocks of it that must be computed in another way."""
    model, kernels = given.model, _kernels(given.model)
    rows, columns = _block_size(given)
    across, down = -(-given.columns // columns), -(-given.rows // rows)
    count = given.batches * across * down
    status = np.zeros(count, np.uint8)
    operands = (given.a.view(np.uint8), given.b.view(np.uint8), c)
    others = (given.index, given.scale_a, given.scale_b)
    extra = tuple(_NONE if each is None else each for each in others)
    own = (given.a, given.b, *extra)
    numbers = (
        model.fraction,
        model.floor,
        model.keep,
        given.rows,
        given.columns,
        given.instructions,
        model.stored,
        model.k,
        model.scale_vec,
        *(int(len(each) > 1) for each in own),
        rows,
        columns,
        across,
        down,
        kernels.rows.address,
        kernels.columns.address,
        given.a.itemsize,
        given.b.itemsize,
    )

    def run(first: int, last: int) -> None:
        work = scratch("floors", (kernels.work,), np.uint8)
        kernels.steps(*operands, *extra, status, work, *numbers, first, last)

    share_out(run, count, given.products, given.progress)
    left = []
    for number in np.flatnonzero(status):
        tile, rest = divmod(int(number), across * down)
        top, side = divmod(rest, across)
        left.append(
            Block(
                slice(tile, tile + 1),
                slice(top * rows, min((top + 1) * rows, given.rows)),
                slice(side * columns, min((side + 1) * columns, given.columns)),
            )
        )
    return c.view(np.uint32), left


def _block_size(given: Operands) -> tuple[int, int]:
    """Rows and columns of a block; smaller where some cores would have none."""
    rows, columns = min(_ROWS, given.rows), min(COLUMNS, given.columns)
    wanted = 4 * cores()
    while (
        given.batches * -(-given.columns // columns) * -(-given.rows // rows) < wanted
        and rows > _FEW_ROWS
    ):
        rows = (rows + 1) // 2
    return rows, columns
