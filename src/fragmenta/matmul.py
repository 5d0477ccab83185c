"""What is the product of whole matrices, computed with one instruction?

Every element of D depends on one row of A and one column of B only, so tiling
along m and n changes nothing.  Along k it does: instructions follow each other
in ascending k, each taking the last one's result as its C, and what is missing
at the edge of the last tile is zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta import arithmetic
from fragmenta.arithmetic.models import Model
from fragmenta.dtype import DType, as_array, batch_shape
from fragmenta.errors import ShapeError
from fragmenta.execute import (
    Stored,
    accumulator,
    chosen_target,
    numeric_model,
    scale_bits,
    stored,
)
from fragmenta.isa.instruction import Instruction, check_multiplies
from fragmenta.isa.parse import instruction
from fragmenta.progress import Progress, bar
from fragmenta.sparsity import Compressed

Bits = NDArray[Any]

_STEP = 1 << 27
"""Multiply-adds between two reports of progress."""

_EXACT_FLOAT = 1 << 24
"""Integers up to here are exact in f32, and so are their sums."""


def matmul(
    A: ArrayLike | Compressed,
    B: ArrayLike,
    op: Instruction | str,
    C: ArrayLike | None = None,
    *,
    scale_a: ArrayLike | None = None,
    scale_b: ArrayLike | None = None,
    target: str | None = None,
    progress: Progress | None = None,
) -> NDArray[Any]:
    """D = A B + C of any size, as a kernel of this instruction computes it.

    A is (…, M, K), B (…, K, N), C (…, M, N); batch axes broadcast.  A sparse
    instruction takes a pruned A or a ``Compressed`` one.  Block scales follow
    each other along k: ``scale_a`` is (…, M, scales), ``scale_b`` (…, scales,
    N).  Dask arrays give a Dask array.  A long computation shows a bar unless
    ``progress`` is given.

    >>> import numpy as np, fragmenta as fm
    >>> op = fm.mma("m16n8k32", a="s8")
    >>> A = np.full((100, 70), 2, np.int8)
    >>> B = np.full((70, 30), 3, np.int8)
    >>> D = matmul(A, B, op)
    >>> D.shape, D.dtype, int(D[99, 29])
    ((100, 30), dtype('int32'), 420)
    """
    found = instruction(op)
    check_multiplies(found)
    model = numeric_model(found, chosen_target(found, target))
    if _is_dask(A) or _is_dask(B) or _is_dask(C):
        from fragmenta.dask import matmul as lazily

        return lazily(  # type: ignore[no-any-return]
            A, B, found, C, scale_a=scale_a, scale_b=scale_b, target=target
        )
    given = stored(found, A)
    b = found.types["b"].encode(as_array(B))
    a, b, index = whole_tiles(found, given, b)
    shape = _shape(a, b)
    c = accumulator(found, C, shape)
    if c.shape[-2:] != shape[-2:]:
        raise ShapeError(f"A B is {shape[-2]}x{shape[-1]}; C has shape {c.shape}")
    scales = scale_bits(found, scale_a, scale_b)
    operands = _Operands(found, model, a, b, c, index, scales)
    if progress is not None:
        d = _by_batch(operands, progress)
    else:
        with bar(f"{shape[-2]}x{shape[-1]}x{b.shape[-2]}") as shown:
            d = _by_batch(operands, shown)
    return found.types["d"].decode(d)


@dataclass(frozen=True)
class _Operands:
    """The bits of everything that goes into a product."""

    op: Instruction
    model: Model
    a: Bits
    b: Bits
    c: Bits
    index: Bits | None
    scales: dict[str, Bits]

    @property
    def batch(self) -> tuple[int, ...]:
        operands = {"A": self.a, "B": self.b, "C": self.c, **self.scales}
        return batch_shape(**{name: x.shape[:-2] for name, x in operands.items()})

    def at(self, place: tuple[int, ...]) -> _Operands:
        """One product of the batch."""

        def one(bits: Bits) -> Bits:
            whole = np.broadcast_to(bits, (*self.batch, *bits.shape[-2:]))
            chosen: Bits = whole[place]
            return chosen

        return _Operands(
            self.op,
            self.model,
            one(self.a),
            one(self.b),
            one(self.c),
            None if self.index is None else one(self.index),
            {name: one(bits) for name, bits in self.scales.items()},
        )

    def rows(self, block: slice) -> Bits:
        """D of a block of rows."""
        scales = {
            name: bits[block] if name == "scale_a" else bits
            for name, bits in self.scales.items()
        }
        return arithmetic.multiply(
            self.a[block],
            self.b,
            self.c[block],
            self.model,
            index=None if self.index is None else self.index[block],
            **scales,
        )


def _is_dask(array: object) -> bool:
    return type(array).__module__.partition(".")[0] == "dask"


def whole_tiles(op: Instruction, A: Stored, b: Bits) -> tuple[Bits, Bits, Bits | None]:
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
    """Columns for stored zeros at the edge: any will do, B is zero there too."""
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


def _by_batch(operands: _Operands, progress: Progress) -> Bits:
    """One product after the other over the batch axes."""
    places = list(np.ndindex(*operands.batch))
    shape = (operands.a.shape[-2], operands.b.shape[-1])
    d = np.empty((*operands.batch, *shape), operands.op.types["d"].bits_dtype)
    for number, place in enumerate(places):

        def part(done: float, number: int = number) -> None:
            progress((number + done) / len(places))

        d[place] = _product(operands.at(place), part)
    return d


def _product(x: _Operands, progress: Progress) -> Bits:
    """Blocks of rows, so that memory stays bounded and progress shows."""
    of = x.op.types["a"]
    if of.is_integer and of.bits > 1 and _never_saturates(x.op, x.c, len(x.b)):
        return _integer_product(x, progress)
    step = max(16, _STEP // max(1, x.a.shape[1] * x.b.shape[1]))
    d = np.empty((len(x.a), x.b.shape[1]), x.op.types["d"].bits_dtype)
    for start in range(0, len(d), step):
        block = slice(start, start + step)
        d[block] = x.rows(block)
        progress(min(1.0, (start + step) / len(d)))
    return d


# ── integers ────────────────────────────────────────────────────────────────


def _never_saturates(op: Instruction, c: Bits, k: int) -> bool:
    """Whether wrapping at the end is all that can happen on the way.

    Without ``.satfinite`` sums wrap, and the order does not matter; with it
    they may only be taken in one go if no partial sum can reach the limits.
    """
    if not op.satfinite:
        return True
    largest = [max(abs(int(end)) for end in op.types[x].limits) for x in "ab"]
    values = c.view(np.int32)
    start = max(abs(int(values.min(initial=0))), abs(int(values.max(initial=0))))
    return start + k * largest[0] * largest[1] < 1 << 31


def _integer_product(x: _Operands, progress: Progress) -> Bits:
    """Exact integers through the floating-point BLAS, in slices of k.

    A slice is so short that every sum is an integer up to 2^24, which f32
    holds exactly whatever order BLAS adds in.
    """
    of_a, of_b = x.op.types["a"], x.op.types["b"]
    largest = [max(abs(int(end)) for end in of.limits) for of in (of_a, of_b)]
    depth = max(1, _EXACT_FLOAT // (largest[0] * largest[1]))
    a = x.a if x.index is None else _spread(x.a, x.index, x.op.shape.k)
    total = x.c.astype(np.uint32)
    for start in range(0, len(x.b), depth):
        part = slice(start, start + depth)
        product = _values(of_a, a[:, part]) @ _values(of_b, x.b[part])
        total += product.astype(np.int32).view(np.uint32)
        progress(min(1.0, (start + depth) / len(x.b)))
    return total


def _spread(a: Bits, index: Bits, k: int) -> Bits:
    """A with its zeros again: two columns for each stored value."""
    dense = np.zeros((len(a), a.shape[1] * 2), a.dtype)
    tile = np.arange(a.shape[1]) // (k // 2) * k
    np.put_along_axis(dense, index + tile, a, axis=1)
    return dense


def _values(of: DType, bits: Bits) -> NDArray[np.float32]:
    """Raw bits of an integer type as f32."""
    if of.kind == "unsigned":
        return bits.astype(np.float32)
    if of.bits == 8:
        return bits.view(np.int8).astype(np.float32)
    unused = 8 - of.bits  # bring the sign bit to the top and back
    return ((bits << unused).view(np.int8) >> unused).astype(np.float32)
