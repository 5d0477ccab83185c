"""The product of whole matrices, computed with one instruction.

Every element of D depends on only one row of A and one column of B, so tiling along
m and n does not change the result.  Tiling along k does: instructions follow each
other in ascending k, and the result of one is the C of the next.  The last tile is
filled up with zeros.

Quantised operands bring their scales; :mod:`fragmenta.reference.execution.scaled` says
where each of them goes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fragmenta.base.arrays.checks import Array, batch_shape
from fragmenta.base.progress import Progress, bar
from fragmenta.errors import BadCall, ShapeError
from fragmenta.reference.arithmetic.operands import Bits
from fragmenta.reference.execution.mma import (
    Stored,
    accumulator,
    matrix_b,
    multiply_bits,
    numeric_model,
    scale_bits,
    stored,
)
from fragmenta.reference.execution.scaled import ScaledOperand, operand, rescaled
from fragmenta.reference.isa.families import check_multiplies
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.searching import instruction
from fragmenta.reference.isa.target import chosen_target
from fragmenta.reference.quant.quantization import Quantized
from fragmenta.reference.sparse.compression import Compressed


def matmul(
    op: Instruction | str,
    A: ArrayLike | Compressed | Quantized,
    B: ArrayLike | Quantized,
    C: ArrayLike | None = None,
    *,
    scale_a: ArrayLike | None = None,
    scale_b: ArrayLike | None = None,
    rescale: bool = True,
    target: str | None = None,
    progress: Progress | None = None,
) -> Array:
    """D = A B + C of any size, as a kernel with this instruction computes it.

    A is (…, M, K), B (…, K, N), C (…, M, N); batch axes broadcast.  A sparse
    instruction takes a pruned A or a ``Compressed`` one.  Block scales are in order
    of k: ``scale_a`` is (…, M, scales), ``scale_b`` (…, scales, N).  If the operands
    are Dask arrays, so is the result.  A long computation shows a progress bar
    unless ``progress`` is given.

    A and B may be what :func:`quantize` returns.  Their block scales go into the
    instruction.  Scales that it does not take (the tensor scales of nvfp4; float32 of
    rows, columns or matrices) are factors of D, which a kernel multiplies with at its
    end.  So does this function: D becomes float32, times the product of the factors.
    ``rescale=False`` returns the bits that the instruction leaves.  C is added by the
    instruction; with factors it is refused unless ``rescale`` is false.

    >>> import numpy as np, fragmenta as fm
    >>> op = fm.mma("m16n8k32", a="s8")
    >>> A = np.full((100, 70), 2, np.int8)
    >>> B = np.full((70, 30), 3, np.int8)
    >>> D = matmul(op, A, B)
    >>> D.shape, D.dtype, int(D[99, 29])
    ((100, 30), dtype('int32'), 420)

    >>> a, b = fm.quant.quantize(op, A / 7), fm.quant.quantize(op, B, operand="B")
    >>> float(matmul(op, a, b)[0, 0]), int(matmul(op, a, b, rescale=False)[0, 0])
    (60.0, 1129030)
    """
    found = instruction(op)
    check_multiplies(found)
    model = numeric_model(found, chosen_target(found, target))
    if isinstance(A, Quantized) or isinstance(B, Quantized):
        parts = (operand(found, "A", A, scale_a), operand(found, "B", B, scale_b))
        return _scaled(found, *parts, C, rescale, target=target, progress=progress)
    if _is_dask(A) or _is_dask(B) or _is_dask(C):
        from fragmenta.reference.execution.dask import matmul as lazily

        return lazily(  # type: ignore[no-any-return]
            _block, A, B, found, C, scale_a=scale_a, scale_b=scale_b, target=target
        )
    given = stored(found, A)
    b = matrix_b(found, B)
    a, b, index = whole_along_k(found, given, b)
    shape = _shape(a, b)
    c = accumulator(found, C, shape)
    if c.shape[-2:] != shape[-2:]:
        raise ShapeError(f"A B is {shape[-2]}x{shape[-1]}; C has shape {c.shape}")
    scales = scale_bits(found, scale_a, scale_b)
    with bar(f"{shape[-2]}x{shape[-1]}x{b.shape[-2]}") as shown:
        told = progress or shown
        told(0.0)  # all is checked, and nothing loaded that computes
        d = multiply_bits(a, b, c, model, index, scales, told)
    return found.types["d"].decode(d)


def _scaled(
    op: Instruction,
    a: ScaledOperand,
    b: ScaledOperand,
    C: ArrayLike | None,
    rescale: bool,
    *,
    target: str | None,
    progress: Progress | None,
) -> Array:
    """The product of quantised matrices."""
    if not isinstance(rescale, bool):
        raise BadCall(f"rescale must be True or False; given {rescale!r}")
    factors = a.factor is not None or b.factor is not None
    if C is not None and factors and rescale:
        raise BadCall(
            "C would be multiplied with the scales of A and B, too; add it to the "
            "result, or give rescale=False and a C in units of these scales"
        )
    D = matmul(
        op,
        a.values,
        b.values,
        C,
        scale_a=a.scales,
        scale_b=b.scales,
        target=target,
        progress=progress,
    )
    return rescaled(D, a, b) if rescale else D


def _block(*matrices: Any, **options: Any) -> Array:
    """The product of one block, as Dask's machines compute it: with no bar."""
    return matmul(*matrices, **options, progress=lambda _: None)


def _is_dask(array: object) -> bool:
    return type(array).__module__.partition(".")[0] == "dask"


def whole_along_k(
    op: Instruction, A: Stored, b: Bits
) -> tuple[Bits, Bits, Bits | None]:
    """Fill the last tile along k with zeros."""
    a, index, columns = A
    if a.ndim < 2 or b.ndim < 2:
        raise ShapeError(f"matrices have 2 axes or more; given {a.shape}, {b.shape}")
    per, rows = 2 if op.sparse else 1, b.shape[-2]
    if columns != rows:
        raise ShapeError(
            f"A has {columns} columns and B has {rows} rows; they must agree"
        )
    if not rows:
        raise ShapeError("A has no columns and B no rows: there is nothing to multiply")
    whole = -(-rows // op.shape.k) * op.shape.k
    if index is not None:
        index = _fill_columns(index, whole // per) % op.shape.k
    return _pad(a, -1, whole // per), _pad(b, -2, whole), index


def _fill_columns(index: Bits, count: int) -> Bits:
    """Add columns for stored zeros at the edge; any are right, as B is zero there."""
    tail = np.arange(index.shape[-1], count, dtype=index.dtype) * 2
    tail = np.broadcast_to(tail, (*index.shape[:-1], tail.size))
    return np.concatenate([index, tail], axis=-1)


def _pad(bits: Bits, axis: int, size: int) -> Bits:
    if bits.shape[axis] == size:
        return bits
    width = [(0, 0)] * bits.ndim
    width[axis] = (0, size - bits.shape[axis])
    return np.pad(bits, width)


def _shape(a: Bits, b: Bits) -> tuple[int, ...]:
    batch = batch_shape(A=a.shape[:-2], B=b.shape[:-2])
    return (*batch, a.shape[-2], b.shape[-1])
