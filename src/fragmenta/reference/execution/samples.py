"""Matrices on which instructions are compared.

They are random matrices of the same numbers for every instruction, or matrices that
were given.  Both are rounded to the instruction's types, or quantised if it takes block
scales.  A sparse instruction takes A pruned.  The numbers before they were rounded are
kept, so that the whole error can be measured, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np
from numpy.typing import ArrayLike

from fragmenta.base.arrays.checks import Array, as_array, is_whole
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import BadCall, ShapeError, ValueRangeError, nearest, one_of
from fragmenta.reference.execution.reference import Wide
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.quant.quantization import described, quantize
from fragmenta.reference.registers.dtype import DType
from fragmenta.reference.sparse.pruning import prune

LENGTHS = (64, 512, 4096)
MOST = 1 << 18
"""The longest sum of random numbers."""
KINDS = ("normal", "uniform")

_SIDE = 32  # rows and columns of D
_F64_POWER = 300  # f64 products have to be exact as a sum of two float64


class Scales(TypedDict, total=False):
    """Block scales, by the names of their arguments."""

    scale_a: Array
    scale_b: Array


class SampleOperands(NamedTuple):
    """What is multiplied, and the numbers that it stands for."""

    a: Array
    b: Array
    scales: Scales
    left: Wide
    """A before it was rounded, but pruned."""
    right: Wide
    """B before it was rounded."""
    factor: float
    """What D is multiplied by: the scales of whole matrices, of nvfp4."""
    how: str
    """How the operands were made of the numbers."""


@dataclass(frozen=True)
class Samples:
    """A and B in float64, and the lengths of the sums."""

    a: Wide
    b: Wide
    lengths: tuple[int, ...]
    kind: str  #: normal, uniform or given
    seed: int

    @classmethod
    def make(cls, input: object, k: int | Sequence[int] | None, seed: int) -> Samples:
        """The samples of the arguments of :func:`fragmenta.compare`."""
        if not is_whole(seed) or seed < 0:
            raise BadCall(f"a seed is a whole number from 0; given {seed!r}")
        if isinstance(input, str):
            if input not in KINDS:
                near = nearest(input, KINDS)
                raise BadCall(
                    f"input is {one_of(KINDS)}, or a pair of arrays; given {input!r}"
                    f"{near}"
                )
            lengths = _lengths(LENGTHS if k is None else k, MOST)
            random = np.random.default_rng(seed)
            draw = random.standard_normal if input == "normal" else random.random
            # Row by row of k, so that shorter sums have the same numbers.
            drawn = draw((max(lengths), 2 * _SIDE))
            return cls(drawn[:, :_SIDE].T, drawn[:, _SIDE:], lengths, input, seed)
        a, b = _given(input)
        return cls(a, b, _lengths(len(b) if k is None else k, len(b)), "given", seed)

    @property
    def shape(self) -> tuple[int, int]:
        """The size of D."""
        return len(self.a), self.b.shape[1]

    @property
    def description(self) -> str:
        """Where the numbers come from."""
        if self.kind == "given":
            return "input as given"
        return f"{self.kind}, seed {self.seed}"

    def operands(self, op: Instruction, k: int) -> SampleOperands:
        """The first k products, in the instruction's types."""
        a, b = self.a[:, :k], self.b[:k]
        if op.scale_vec:
            return _quantized(op, *_pruned(op, a, b))
        types = op.types["a"], op.types["b"]
        left, right = (self._spread(of, x) for of, x in zip(types, (a, b), strict=True))
        stored, padded = _pruned(
            op, self._typed("A", types[0], left), self._typed("B", types[1], right)
        )
        if op.sparse:  # the same elements are kept, unless they round to zero
            left, right = _pruned(op, left, right)
        names = one_of(dict.fromkeys(each.name for each in types), "and")
        pruned = "A is pruned, " if op.sparse else ""
        how = f"{pruned}the numbers are rounded to {names} first"
        return SampleOperands(stored, padded, Scales(), left, right, 1.0, how)

    def _spread(self, of: DType, x: Wide) -> Wide:
        """Random numbers over the whole range of an integer type."""
        if not of.is_integer or self.kind == "given":
            return x
        low, high = of.limits
        if self.kind == "uniform":
            return x * (high + 1)
        if of.bits == 1:
            return np.where(x > 0, 1.0, 0.0)
        return (np.abs(x) if low == 0 else x) / 4 * high

    def _typed(self, name: str, of: DType, x: Wide) -> Array:
        if of.is_integer and self.kind != "given":
            x = np.floor(x) if self.kind == "uniform" else np.rint(x)
            x = np.clip(x, -of.limits[1], of.limits[1])
        return rounded(of, x, name)


def _pruned(op: Instruction, a: Array, b: Array) -> tuple[Array, Array]:
    """A sparse A with zeros up to whole chunks, and B with as many rows."""
    if not op.sparse:
        return a, b
    pruned = prune(op, a, pad=True)
    return pruned, np.pad(b, ((0, pruned.shape[1] - len(b)), (0, 0)))


def _quantized(op: Instruction, a: Wide, b: Wide) -> SampleOperands:
    """Numbers with the block scales that they need."""
    left, right = quantize(op, a), quantize(op, b, operand="B")
    scales = Scales(scale_a=left.scales, scale_b=right.scales)
    factor = 1.0
    for each in (left, right):
        if each.tensor_scale is not None:
            factor *= float(each.tensor_scale.item())
    pruned = "A is pruned, " if op.sparse else ""
    how = f"{pruned}the numbers are quantised first: {described(left)}"
    return SampleOperands(left.values, right.values, scales, a, b, factor, how)


def rounded(of: DType, x: Wide, name: str) -> Array:
    """Values rounded to the nearest ones of a type; those beyond it are refused.

    >>> import fragmenta as fm
    >>> rounded(fm.dtype("e2m1"), np.array([[0.9, -5.1]]), "A").tolist()
    [[1.0, -6.0]]
    >>> rounded(fm.dtype("s4"), np.array([[9.0]]), "A")
    Traceback (most recent call last):
    ...
    fragmenta.errors.ValueRangeError: A[0, 0] is 9, but s4 goes from -8 to 7
    """
    if of.is_integer:
        x = np.rint(x)
    low, high = _limits(of)
    wrong = ~((x >= low) & (x <= high))
    if of.name == "f64":
        wrong |= (x != 0) & (np.abs(x) < 2.0**-_F64_POWER)
    if wrong.any():
        row, col = (int(each) for each in np.argwhere(wrong)[0])
        goes = f"goes from {low:g} to {high:g}"
        if of.name == "f64":
            goes = f"is compared from 2^-{_F64_POWER} to 2^{_F64_POWER} only"
        raise ValueRangeError(
            f"{name}[{row}, {col}] is {x[row, col]:g}, but {of} {goes}"
        )
    if of.name == "tf32":
        fraction, power = np.frexp(x)
        x = np.ldexp(np.rint(fraction * 2.0**11), power - 11)
    return x.astype(of.storage)


def _limits(of: DType) -> tuple[float, float]:
    """The least and the greatest value that a matrix may have."""
    if of.is_integer:
        low, high = of.limits
        return float(low), float(high)
    if of.name == "f64":
        most = 2.0**_F64_POWER
    elif of.has_infinity:
        most = (2 - 2.0**-of.fraction_bits) * 2.0**of.bias
    else:
        every = np.arange(of.mask + 1, dtype=of.bits_dtype)
        most = float(np.nanmax(of.to_float64(every)))
    return -most, most


def _given(input: object) -> tuple[Wide, Wide]:
    if not isinstance(input, tuple | list) or len(input) != 2:
        raise BadCall(
            f"input is {one_of(KINDS)}, or a pair of arrays; given "
            f"{type(input).__name__}"
        )
    a, b = (_numbers(each, name) for each, name in zip(input, "AB", strict=True))
    if a.shape[1] != len(b):
        raise ShapeError(
            f"A has {a.shape[1]} columns and B has {len(b)} rows; they must agree"
        )
    return a, b


def _numbers(array: ArrayLike, name: str) -> Wide:
    given = as_array(array)
    if given.ndim != 2 or not given.size:
        raise ShapeError(f"{name} is a matrix; given shape {given.shape}")
    if given.dtype.kind in "cMmUSO" or given.dtype.names:
        raise BadCall(f"{name} holds {given.dtype}, not real numbers")
    return given.astype(np.float64)


def _lengths(k: object, most: int) -> tuple[int, ...]:
    given: Sequence[Any] = k if isinstance(k, list | tuple | range) else [k]
    for each in given:
        if not is_whole(each) or not 1 <= each <= most:
            raise ShapeError(f"k is a whole number from 1 to {most}; given {each!r}")
    if not given:
        raise ShapeError("k is a whole number, or several; given none")
    return tuple(sorted({int(each) for each in given}))
