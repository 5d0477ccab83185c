"""Errors of a result against float64, for ``run --compare``.

The reference multiplies the numbers that were given, in float64 and in no
particular order.  For products of types up to 16 bits that is exact
but for the last bits of a float64, far below what any accumulator keeps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.checks import Array
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.base.progress import Progress
from fragmenta.reference.execution.reference import Wide, product, scaled_values, values
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.sparse.compression import Compressed, decompress

_ROWS = 1 << 22
"""Elements of the reference that are in memory at once."""


@dataclass
class ErrorStatistics:
    """The greatest error, where it is, and the mean."""

    greatest: float = -1.0
    at: tuple[int, ...] = ()
    total: float = 0.0
    count: int = 0

    def add(self, errors: Wide, counted: NDArray[np.bool_], origin: list[int]) -> None:
        """Add the counted errors of a block; ``origin`` is its first element."""
        number = int(np.count_nonzero(counted))
        if not number:
            return
        worst = int(np.where(counted, errors, -1.0).argmax())
        *batch, first = origin
        row, col = divmod(worst, errors.shape[1])
        if errors.flat[worst] > self.greatest:
            self.greatest = float(errors.flat[worst])
            self.at = (*batch, first + row, col)
        self.total += float(errors[counted].sum())
        self.count += number

    def to_dict(self) -> dict[str, object]:
        """As JSON; the errors are None if nothing was counted."""
        if not self.count:
            return {"max": None, "at": None, "mean": None}
        mean = self.total / self.count
        return {"max": self.greatest, "at": list(self.at), "mean": mean}

    def __str__(self) -> str:
        if not self.count:
            return "nothing to compare"
        if not self.greatest:
            return "none"
        mean = self.total / self.count
        return f"max {self.greatest:.3g} at {list(self.at)}, mean {mean:.3g}"


@dataclass
class Comparison:
    """Errors of a result; relative ones where the reference is not 0."""

    type: str
    absolute: ErrorStatistics = field(default_factory=ErrorStatistics)
    relative: ErrorStatistics = field(default_factory=ErrorStatistics)
    elements: int = 0
    differing: int = 0
    """Elements that are not the reference rounded to the result's type."""
    not_finite: int = 0

    def add(self, reference: Wide, found: Array, origin: list[int]) -> None:
        """Add a block of rows."""
        with np.errstate(all="ignore"):
            wide = found.astype(np.float64)
            finite = np.isfinite(wide) & np.isfinite(reference)
            errors = np.abs(wide - reference)
            self.absolute.add(errors, finite, origin)
            counted = finite & (reference != 0)
            self.relative.add(errors / np.abs(reference), counted, origin)
            exact = reference
            if found.dtype.kind == "f":
                exact = reference.astype(found.dtype).astype(np.float64)
            same = (exact == wide) | (np.isnan(exact) & np.isnan(wide))
        self.elements += found.size
        self.differing += found.size - int(np.count_nonzero(same))
        self.not_finite += found.size - int(np.count_nonzero(finite))

    def to_dict(self) -> dict[str, object]:
        """The comparison as JSON."""
        return {
            "reference": "float64",
            "absolute_error": self.absolute.to_dict(),
            "relative_error": self.relative.to_dict(),
            "elements": self.elements,
            "differ_from_rounded": self.differing,
            "not_finite": self.not_finite,
        }

    def __str__(self) -> str:
        share = self.differing / max(1, self.elements)
        rounded = f"{self.differing} of {self.elements} ({share:.2%})"
        lines = [
            "compared with float64",
            f"  absolute error  {self.absolute}",
            f"  relative error  {self.relative}",
            f"  rounding        {rounded} differ from float64 rounded to {self.type}",
        ]
        if self.not_finite:
            lines.append(
                f"  not finite      {self.not_finite} elements, left out of the errors"
            )
        return "\n".join(lines)


def compare(
    op: Instruction,
    A: Array | Compressed,
    B: Array,
    C: Array | None,
    D: Array,
    scales: Mapping[str, Array],
    progress: Progress,
    factors: Sequence[Array] = (),
) -> Comparison:
    """Compare D with A B + C in float64, times the factors, in blocks of rows."""
    dense = decompress(op, A) if isinstance(A, Compressed) else A
    result = Comparison("f32" if factors else op.types["d"].name)
    accumulator = np.zeros((1, 1), op.types["d"].storage) if C is None else C
    places = list(np.ndindex(D.shape[:-2]))
    for number, place in enumerate(places):
        one = {name: _at(s, D, place) for name, s in scales.items()}
        a, b = _at(dense, D, place), _at(B, D, place)
        c, d = _at(accumulator, D, place), D[place]
        right = scaled_values(op, "b", b, one.get("scale_b"))
        for block in _blocks(*d.shape):
            left_scale = one["scale_a"][block] if one else None
            left = scaled_values(op, "a", a[block], left_scale)[:, : len(right)]
            start = values(op, "c", np.broadcast_to(c, d.shape)[block])
            exact = product(op, left, right) + start
            for each in factors:
                exact = exact * np.broadcast_to(_at(each, D, place), d.shape)[block]
            result.add(exact, d[block], [*place, block.start])
            progress((number + min(1.0, block.stop / len(d))) / len(places))
    return result


def _at(matrix: Array, like: Array, place: tuple[int, ...]) -> Array:
    """One matrix of a batch."""
    whole = np.broadcast_to(matrix, (*like.shape[:-2], *matrix.shape[-2:]))
    one: Array = whole[place]
    return one


def _blocks(rows: int, columns: int) -> Iterator[slice]:
    step = max(1, _ROWS // max(1, columns))
    for start in range(0, rows, step):
        yield slice(start, start + step)
