"""The steps that compute a product of ``tcgen05.mma`` in machine code.

There are three kinds: those of floats (:mod:`fragmenta.reference.arithmetic.floors`),
those of groups of e2m1 (:mod:`fragmenta.reference.arithmetic.grouped`) and those of
integers (:mod:`fragmenta.reference.arithmetic.integer_kernels`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fragmenta.engine.simt.compiled import address_of
from fragmenta.engine.units.fast import tensor_layout as at
from fragmenta.reference.arithmetic import floored, grouped, integer_kernels
from fragmenta.reference.arithmetic.blocks import PANEL, BlockSizes, dense_offsets
from fragmenta.reference.arithmetic.constants import (
    SCALE_PARTS,
    grouped_variant,
    rounding,
)
from fragmenta.reference.arithmetic.integers import integer_variant
from fragmenta.reference.arithmetic.models import Model
from fragmenta.reference.registers.dtype import dtype

_LINE = 64
_KINDS = {"fused": at.FUSED, "grouped": at.GROUPED, "integer": at.INTEGERS}


class ProductCode(NamedTuple):
    """What machine code needs to compute the result of one instruction."""

    kind: int
    numbers: list[int]
    address: int
    blocks: int
    work: int
    """Bytes that it needs, at a multiple of 64."""
    kept: object
    """What the numbers have the addresses of."""


def computes(model: Model) -> bool:
    """Whether there are such steps."""
    if model.form == "fused":
        return floored.computes(model)
    return model.form in _KINDS and not model.reordered and not model.sparse


def in_panels(model: Model) -> bool:
    """Whether the steps take B, D and the scales of B in panels of eight columns."""
    return model.form != "fused"


def steps(model: Model, rows: int, columns: int) -> ProductCode:
    """The steps for so many rows and columns of D."""
    if model.form == "fused":
        found = floored.instruction(model, rows, columns)
        numbers = list(found.numbers)
        return ProductCode(
            at.FUSED, numbers, found.steps.address, found.blocks, found.work, found
        )
    make = _grouped if model.form == "grouped" else _integers
    return make(model, rows, columns)


def _sizes(model: Model, rows: int, columns: int) -> BlockSizes[int]:
    panels = columns // PANEL
    return BlockSizes(1, rows, panels, 1, model.k, model.stored, 0, 0, 0, 0)


def _integers(model: Model, rows: int, columns: int) -> ProductCode:
    run, offsets = (
        integer_kernels.integers(integer_variant(model)),
        dense_offsets(model, 1),
    )
    numbers = [run.address, address_of(offsets), *_sizes(model, rows, columns)]
    return ProductCode(at.INTEGERS, numbers, run.address, 1, 0, (run, offsets))


def _grouped(model: Model, rows: int, columns: int) -> ProductCode:
    run = grouped.grouped_kernel(grouped_variant(model))
    offsets = dense_offsets(model, 1)
    tables = SCALE_PARTS[model.scale or ""]
    counts = [
        rows * model.stored,
        columns * model.stored,
        rows * model.scale_vec,
        columns * model.scale_vec,
    ]
    sizes = [
        *(np.float32().itemsize * each for each in counts[:2]),
        *(np.uint16().itemsize * each // grouped.MASKED for each in counts[:2]),
        *(np.float64().itemsize * each for each in counts[2:]),
        *(np.int32().itemsize * each for each in counts[2:]),
    ]
    ends = np.cumsum([-(-each // _LINE) * _LINE for each in sizes]).tolist()
    unpack = (grouped.unpack_rows, grouped.unpack_columns, grouped.unpack_scales)
    functions = (run, *unpack)
    numbers = [
        *(each.address for each in functions),
        *map(address_of, (*tables, offsets)),
        *counts,
        *(0, *ends[:-1]),
        0xFF & ~dtype(model.scale or "").mask,
        *_sizes(model, rows, columns),
        *(model.scale_vec, 0, 0, *rounding(model)),
    ]
    kept = (functions, offsets, tables)
    return ProductCode(at.GROUPED, numbers, run.address, 1, ends[-1], kept)
