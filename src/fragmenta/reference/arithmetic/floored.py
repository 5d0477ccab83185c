"""Runs the kernels of the module ``floors`` on whole products."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

import numpy as np

from fragmenta.base.arrays.checks import Array
from fragmenta.base.arrays.threads import cores, share_out
from fragmenta.base.jit.compiler import Traced, processor, type_of
from fragmenta.base.jit.trace import LANES
from fragmenta.reference.arithmetic.blocks import Block, scratch
from fragmenta.reference.arithmetic.constants import fused_constants
from fragmenta.reference.arithmetic.floor_steps import (
    COLUMNS,
    LINE,
    FloorVariant,
    work_bytes,
)
from fragmenta.reference.arithmetic.floors import (
    copy_and_compute,
    floor_kernel,
    ordinary_adder,
)
from fragmenta.reference.arithmetic.models import Model
from fragmenta.reference.arithmetic.operands import Bits, Operands
from fragmenta.reference.arithmetic.packing import (
    DEPTH,
    SUMS,
    WIDE,
    WIDE_DEPTH,
    Packing,
    column_packer,
    row_packer,
)
from fragmenta.reference.registers.dtype import dtype

#: The most rows of a block, and the least: packing B takes time for each block.
_ROWS, _FEW_ROWS = 256, 32

# The fraction bits of float32.
_KEPT = 23

# So many products are worth a compilation.
_WORTH_COMPILING = 1 << 15
_COMPILED: set[Model] = set()

_NONE = np.zeros(1, np.uint8)


class _Kernels(NamedTuple):
    steps: Traced
    rows: Traced
    columns: Traced
    add: Traced
    work: int  #: bytes that a thread needs


def suits(given: Operands) -> bool:
    """Whether the kernels should compute a product.

    Compiling them takes some tenths of a second.  For a few products, those that take
    less are used until others have had them compiled.
    """
    if not computes(given.model):
        return False
    return given.products >= _WORTH_COMPILING or given.model in _COMPILED


@cache
def computes(model: Model) -> bool:
    """Whether the kernels compute a model."""
    if model.form != "fused":
        return False
    found = fused_constants(model)
    return (
        (model.rounding == "rn") == (model.accumulator == "f16")
        and found.c_least == found.rounding[-1]
        and model.stored % LANES == 0
        and model.products % 2 == 0
        and model.k <= DEPTH
        and model.keep <= _KEPT
        and _has_fma()
    )


@cache
def _has_fma() -> bool:
    """Whether this processor multiplies and adds at once, and converts f16.

    All do but old ones of Intel and AMD.
    """
    features = set(processor()[1].split(","))
    return "+sse" not in features or {"+fma", "+f16c"} <= features


@cache
def _kernels(
    model: Model, across: int = LANES, once: bool = False, sums: int = SUMS
) -> _Kernels:
    found = fused_constants(model)
    forms = (found.a, found.b)
    sources = tuple(type_of(dtype(name).bits_dtype) for name in (model.a, model.b))
    scaled = model.scale is not None
    wide = scaled or max(form.exponent_bits for form in forms) == 8
    variant = FloorVariant.of(model, wide, across, sums, once)
    sixteens = model.stored % (2 * LANES) == 0
    about = variant.values, scaled, model.sparse, across, sixteens, sums
    packings = [
        Packing(source, form, *about, model.products if once else 0)
        for source, form in zip(sources, forms, strict=True)
    ]
    return _Kernels(
        floor_kernel(variant),
        row_packer(packings[0]),
        column_packer(packings[1]),
        ordinary_adder(variant.half, sums),
        work_bytes(variant),
    )


class CompiledInstruction(NamedTuple):
    """What machine code needs to compute the result of one instruction."""

    steps: Traced  #: :func:`~fragmenta.reference.arithmetic.floors.floor_kernel`
    numbers: tuple[int, ...]  #: its arguments after ``status`` and before ``work``
    blocks: int
    work: int  #: bytes that a thread needs, at a multiple of 64

    kept: _Kernels  #: whose code the numbers have the addresses of


def instruction(
    model: Model, rows: int, columns: int, *, many: bool = False
) -> CompiledInstruction:
    """How one instruction with so many rows and columns of D is computed.

    If there are ``many``, each has its own A and B.
    """
    kernels = _kernels(model, LANES, many and columns <= LANES, SUMS)
    sizes = _Sizes(rows, columns, 1, min(_ROWS, rows), min(COLUMNS, columns))
    items = [dtype(name).bits_dtype.itemsize for name in (model.a, model.b)]
    own = (int(many), int(many), 0, 0, 0)
    numbers = _numbers(model, kernels, sizes, own, items)
    return CompiledInstruction(
        kernels.steps, numbers, sizes.across * sizes.down, kernels.work, kernels
    )


class _Sizes(NamedTuple):
    """The sizes of a product, and of its blocks."""

    rows: int
    columns: int
    instructions: int
    block_rows: int
    block_columns: int

    @property
    def across(self) -> int:
        """Blocks side by side."""
        return -(-self.columns // self.block_columns)

    @property
    def down(self) -> int:
        """Blocks below each other."""
        return -(-self.rows // self.block_rows)


def _numbers(
    model: Model,
    kernels: _Kernels,
    sizes: _Sizes,
    own: Iterable[int],
    items: Iterable[int],
) -> tuple[int, ...]:
    """:class:`FloorNumbers` and :class:`FloorSizes` of a product.

    ``own`` says of A, B, the index and the scales whether each matrix of a batch has
    its own; ``items`` are the bytes of an element of A and of B.
    """
    return (
        model.fraction,
        model.floor,
        model.keep,
        sizes.rows,
        sizes.columns,
        sizes.instructions,
        model.stored,
        model.k,
        model.scale_vec,
        *own,
        sizes.block_rows,
        sizes.block_columns,
        sizes.across,
        sizes.down,
        kernels.rows.address,
        kernels.columns.address,
        kernels.add.address if model.start == "zero" else 0,
        *items,
    )


def products(given: Operands) -> tuple[Array, list[Block]]:
    """The accumulators, and the blocks of them that must be computed in another way."""
    model = given.model
    across = _panel_width(given)
    once = given.columns <= LANES
    kernels = _kernels(model, across, once, SUMS)
    rows, columns = _block_size(given)
    sizes = _Sizes(given.rows, given.columns, given.instructions, rows, columns)
    blocks = sizes.across * sizes.down
    count = given.batches * blocks
    status = np.zeros(count, np.uint8)
    a, b, index = _in_order(given)
    d = np.empty(given.shape, np.float32)
    operands = (a.view(np.uint8), b.view(np.uint8), d)
    others = (index, given.scale_a, given.scale_b)
    extra = tuple(_NONE if each is None else each for each in others)
    own = (given.a, given.b, *extra)
    several = (int(len(each) > 1) for each in own)
    items = given.a.itemsize, given.b.itemsize
    numbers = _numbers(model, kernels, sizes, several, items)
    arguments = (*operands, *extra, status, *numbers)
    if blocks == 1 and model.c == "f32":
        c, size = given.c.view(np.float32), d[0].nbytes
        copied = c, size, int(len(c) > 1), kernels.steps.address
        steps = copy_and_compute.bind(*copied, *arguments)
    else:
        _copy_accumulators(given, d)
        steps = kernels.steps.bind(*arguments)

    def run(first: int, last: int) -> None:
        work = scratch("floors", (kernels.work + LINE,), np.uint8)
        start = work.ctypes.data
        steps(start + -start % LINE, first, last)

    share_out(run, count, given.products, given.progress)
    _COMPILED.add(model)
    left = []
    for number in np.flatnonzero(status):
        tile, rest = divmod(int(number), blocks)
        top, side = divmod(rest, sizes.across)
        left.append(
            Block(
                slice(tile, tile + 1),
                slice(top * rows, min((top + 1) * rows, given.rows)),
                slice(side * columns, min((side + 1) * columns, given.columns)),
            )
        )
    return d, left


def _copy_accumulators(given: Operands, d: Array) -> None:
    """Copy c to the accumulators."""
    c = given.c.view(np.float16 if given.model.c == "f16" else np.float32)
    with np.errstate(invalid="ignore"):  # no warning about signalling NaNs
        d[...] = c


def _in_order(given: Operands) -> tuple[Bits, Bits, Bits | None]:
    """A, B and the index, in the order in which products are added."""
    model, a, b, index = given.model, given.a, given.b, given.index
    if not model.reordered:
        return a, b, index
    order = np.array(model.order)
    starts = np.arange(given.instructions)[:, None]
    along = (starts * model.stored + order).ravel()
    a = np.ascontiguousarray(a[..., along])
    if index is not None:
        return a, b, np.ascontiguousarray(index[..., along])
    return a, np.ascontiguousarray(b[:, along]), None


def _panel_width(given: Operands) -> int:
    """The columns of a panel; wide ones where few of them would be empty."""
    if not given.model.sparse or given.model.k > WIDE_DEPTH:
        return LANES
    narrow, wide = (-(-given.columns // each) * each for each in (LANES, WIDE))
    return WIDE if wide - narrow <= narrow // LANES else LANES


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
