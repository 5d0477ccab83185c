"""Multiplies two matrices with Dask on many machines, bit for bit.

Blocks of D are independent.  For each block of D, the blocks along k are multiplied
in ascending k, and the result of one product is the C of the next.  So the bits are
the same as if the whole matrices were multiplied at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import isnan
from typing import Any, Protocol

from numpy.typing import ArrayLike

from fragmenta.base.arrays.checks import Array
from fragmenta.errors import BadCall, ShapeError
from fragmenta.reference.execution.mma import Shaped, check_whole, given_scales
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.sparse.compression import Compressed


class Blocks(Protocol):
    """The blocks of a Dask array, by their number along each axis."""

    def __getitem__(self, index: tuple[int, int]) -> object: ...


class DaskArray(Protocol):
    """A Dask array, as far as it is used here."""

    ndim: int
    shape: tuple[int, ...]
    chunks: tuple[tuple[int, ...], ...]
    numblocks: tuple[int, ...]
    blocks: Blocks


def matmul(
    multiply: Callable[..., Array],
    A: object,
    B: object,
    op: Instruction,
    C: Any = None,
    *,
    scale_a: ArrayLike | None = None,
    scale_b: ArrayLike | None = None,
    target: str | None = None,
) -> Any:
    """D = A B + C as a lazy Dask array, blockwise over M and N.

    ``multiply`` is the function that multiplies whole arrays; workers call it by name.
    The size of a block along k must be a multiple of the instruction's k, except
    for the last block.  Otherwise a tile would be split between two blocks and round
    differently.
    """
    import dask.array as da
    from dask.delayed import delayed

    if isinstance(A, Compressed):
        raise BadCall("a Compressed A is not cut into blocks; give the pruned matrix")
    a, b = da.asarray(A), da.asarray(B)
    _check(a, b, op, C)
    b = b.rechunk({0: a.chunks[1]})
    c = None if C is None else da.asarray(C).rechunk((a.chunks[0], b.chunks[1]))
    scales = _scales(a, b, op, scale_a, scale_b)
    step = delayed(partial(multiply, target=target), pure=True)
    rows, cols = a.numblocks[0], b.numblocks[1]
    blocks = [
        [_chain(step, a, b, c, scales, op, i, j) for j in range(cols)]
        for i in range(rows)
    ]
    return da.block(blocks)


def _scales(
    a: DaskArray,
    b: DaskArray,
    op: Instruction,
    scale_a: ArrayLike | None,
    scale_b: ArrayLike | None,
) -> list[DaskArray] | None:
    """The block scales, with the same blocks as A and B."""
    import dask.array as da

    given = given_scales(op, scale_a, scale_b)
    if not given:
        return None
    check_whole(op, (a.shape[0], b.shape[1], a.shape[1]), scales=given)
    along = tuple(-(-size // op.shape.k) * op.scale_vec for size in a.chunks[1])
    cut = ((a.chunks[0], along), (along, b.chunks[1]))
    return [da.asarray(s).rechunk(n) for s, n in zip(given.values(), cut, strict=True)]


def _chain(
    step: Callable[..., object],
    a: DaskArray,
    b: DaskArray,
    c: DaskArray | None,
    scales: list[DaskArray] | None,
    op: Instruction,
    i: int,
    j: int,
) -> DaskArray:
    """One block of D: products along k; the result of one is the C of the next."""
    import dask.array as da

    name = str(op)  # only the name is sent: each machine has the tables
    total = None if c is None else c.blocks[i, j]
    for part in range(a.numblocks[1]):
        pair: tuple[object, object] = (None, None)
        if scales is not None:
            pair = (scales[0].blocks[i, part], scales[1].blocks[part, j])
        left, right = a.blocks[i, part], b.blocks[part, j]
        total = step(name, left, right, total, scale_a=pair[0], scale_b=pair[1])
    shape = (a.chunks[0][i], b.chunks[1][j])
    made: DaskArray = da.from_delayed(total, shape, dtype=op.types["d"].storage)
    return made


def _check(a: DaskArray, b: DaskArray, op: Instruction, c: Shaped | None) -> None:
    if a.ndim != 2 or b.ndim != 2:
        raise ShapeError("Dask arrays must have two axes; map over batches instead")
    if any(map(isnan, (*a.shape, *b.shape))):
        raise ShapeError(
            f"A has shape {a.shape} and B {b.shape}; nan is a size that Dask does not "
            "know yet; compute_chunk_sizes() computes it"
        )
    if a.shape[1] != b.shape[0]:
        raise ShapeError(f"A has {a.shape[1]} columns and B has {b.shape[0]} rows")
    check_whole(op, (a.shape[0], b.shape[1], a.shape[1]), c)
    if a.shape[1] > op.shape.k and op.types.get("c", op.types["d"]) != op.types["d"]:
        raise ShapeError(
            f"{op} cannot use its D as the next C: C is {op.types['c']}, D is "
            f"{op.types['d']}; k is at most {op.shape.k}, given {a.shape[1]}"
        )
    odd = [size for size in a.chunks[1][:-1] if size % op.shape.k]
    if odd:
        raise ShapeError(
            f"a block of {odd[0]} columns is not a multiple of k = {op.shape.k}; "
            f"rechunk A to {-(-odd[0] // op.shape.k) * op.shape.k} columns"
        )
