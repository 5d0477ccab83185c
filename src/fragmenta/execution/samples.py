"""Which matrices are instructions compared on?

Random matrices of the same numbers for every instruction, or matrices that were given.
Both are rounded to the instruction's types: float64 has values that no small type has.
If the instruction takes block scales, given matrices are quantised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fragmenta.arrays.checks import Array, as_array, is_whole
from fragmenta.errors import Error, ShapeError, ValueRangeError, nearest, one_of
from fragmenta.execution.reference import Wide
from fragmenta.isa.instruction import Instruction
from fragmenta.quant.quantization import quantize
from fragmenta.registers.dtype import DType
from fragmenta.sparse.pruning import prune

LENGTHS = (64, 512, 4096)
MOST = 1 << 18
"""The longest sum of random numbers."""
KINDS = ("normal", "uniform")

_SIDE = 32  # rows and columns of D
_F64_POWER = 300  # f64 products have to be exact as a sum of two float64


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
            raise Error(f"a seed is a whole number from 0; given {seed!r}")
        if isinstance(input, str):
            if input not in KINDS:
                near = nearest(input, KINDS)
                raise Error(
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
    def told(self) -> str:
        """Where the numbers come from."""
        if self.kind == "given":
            return "input as given"
        return f"{self.kind}, seed {self.seed}"

    def operands(self, op: Instruction, k: int) -> tuple[Array, Array, dict[str, Any]]:
        """A, B and scales of the first k products, in the instruction's types."""
        if op.scale_vec and self.kind == "given":
            return self._quantized(op, k)
        a = self._typed("A", op.types["a"], self.a[:, :k])
        b = self._typed("B", op.types["b"], self.b[:k])
        if op.sparse:  # with zeros up to whole chunks
            a = prune(op, a, pad=True)
            b = np.pad(b, ((0, a.shape[1] - k), (0, 0)))
        return a, b, self._scales(op, k) if op.scale_vec else {}

    def _typed(self, name: str, of: DType, x: Wide) -> Array:
        if of.is_integer and self.kind != "given":
            low, high = of.limits
            if self.kind == "uniform":
                x = np.floor(x * (high + 1))
            elif of.bits == 1:
                x = np.where(x > 0, 1.0, 0.0)
            elif low == 0:
                x = np.rint(np.minimum(np.abs(x) / 4, 1) * high)
            else:
                x = np.rint(np.clip(x / 4, -1, 1) * high)
        return rounded(of, x, name)

    def _quantized(
        self, op: Instruction, k: int
    ) -> tuple[Array, Array, dict[str, Any]]:
        """Given numbers, with the block scales that they need.

        The factor of the whole matrix, of nvfp4, changes no relative error.
        """
        a, b = self.a[:, :k], self.b[:k]
        if op.sparse:
            a = prune(op, a, pad=True)
            b = np.pad(b, ((0, a.shape[1] - k), (0, 0)))
        left, right = quantize(op, a), quantize(op, b, operand="B")
        scales = {"scale_a": left.scales, "scale_b": right.scales}
        return left.values, right.values, scales

    def _scales(self, op: Instruction, k: int) -> dict[str, Array]:
        """Powers of two around one, a scale for each block of k."""
        count = -(-k // op.shape.k) * op.scale_vec
        random = np.random.default_rng(self.seed + 1)
        rows, cols = self.shape
        powers = random.standard_normal((count, rows + cols)).round()
        scales = (2.0**powers).astype(op.scale_a.dtype.storage)
        return {"scale_a": scales[:, :rows].T, "scale_b": scales[:, rows:]}


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
        raise Error(
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
        raise Error(f"{name} holds {given.dtype}, not real numbers")
    return given.astype(np.float64)


def _lengths(k: Any, most: int) -> tuple[int, ...]:
    given: Sequence[Any] = k if isinstance(k, list | tuple | range) else [k]
    for each in given:
        if not is_whole(each) or not 1 <= each <= most:
            raise ShapeError(f"k is a whole number from 1 to {most}; given {each!r}")
    if not given:
        raise ShapeError("k is a whole number, or several; given none")
    return tuple(sorted({int(each) for each in given}))
