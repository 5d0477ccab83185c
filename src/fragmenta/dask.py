"""How do many machines multiply one pair of matrices, bit for bit?

Blocks of D are independent; the blocks of one row of A and one column of B
are chained in ascending k, each product taking the last one as its C, so the
bits are those of the whole matrices at once.
"""

from __future__ import annotations

from typing import Any

from fragmenta.errors import Error, ShapeError
from fragmenta.isa.instruction import Instruction


def matmul(
    A: Any,
    B: Any,
    op: Instruction,
    C: Any = None,
    *,
    target: str | None = None,
) -> Any:
    """D = A B + C as a lazy Dask array, blockwise over M and N.

    Blocks along k must be whole multiples of the instruction's k, except the
    last: otherwise a tile would straddle two machines and round differently.
    """
    import dask.array as da

    a, b = da.asarray(A), da.asarray(B)
    _check(a, b, op)
    b = b.rechunk({0: a.chunks[1]})
    rows, cols, depth = a.numblocks[0], b.numblocks[1], a.numblocks[1]
    c = None if C is None else da.asarray(C).rechunk((a.chunks[0], b.chunks[1]))
    blocks = [
        [_chain(a, b, c, op, target, i, j, depth) for j in range(cols)]
        for i in range(rows)
    ]
    return da.block(blocks)


def _chain(
    a: Any, b: Any, c: Any, op: Instruction, target: str | None, i: int, j: int, k: int
) -> Any:
    """One block of D: products along k, each continuing from the last."""
    import dask.array as da
    from dask.delayed import delayed

    name = str(op)  # text travels; the tables are at the other end already
    step = delayed(_step, pure=True)
    total = None if c is None else c.blocks[i, j]
    for part in range(k):
        total = step(a.blocks[i, part], b.blocks[part, j], name, total, target)
    shape = (a.chunks[0][i], b.chunks[1][j])
    return da.from_delayed(total, shape, dtype=op.types["d"].storage)


def _step(a: Any, b: Any, op: str, c: Any, target: str | None) -> Any:
    from fragmenta.matmul import matmul as whole

    return whole(a, b, op, c, target=target, progress=lambda _: None)


def _check(a: Any, b: Any, op: Instruction) -> None:
    if a.ndim != 2 or b.ndim != 2:
        raise Error("Dask arrays must have two axes; map over batches instead")
    if a.shape[1] != b.shape[0]:
        raise ShapeError(f"A has {a.shape[1]} columns and B has {b.shape[0]} rows")
    odd = [size for size in a.chunks[1][:-1] if size % op.shape.k]
    if odd:
        raise ShapeError(
            f"a block of {odd[0]} columns is not a multiple of k = {op.shape.k}; "
            f"rechunk A to {-(-odd[0] // op.shape.k) * op.shape.k} columns"
        )
