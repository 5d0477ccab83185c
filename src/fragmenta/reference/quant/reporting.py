"""Reports of what quantisation lost."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fragmenta.base.arrays.checks import Array
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.base.arrays.threads import in_blocks
from fragmenta.base.progress import bar
from fragmenta.errors import BadCall, ShapeError
from fragmenta.reference.arithmetic.rounding import Numbers, largest_element
from fragmenta.reference.quant.quantization import Quantized, element_scales, numbers
from fragmenta.reference.registers.dtype import DType


@dataclass(frozen=True)
class Report:
    """How far elements and scales are from the numbers that they stand for.

    ``str()`` is a sentence about it.

    >>> import fragmenta as fm
    >>> X = [[1.0, -2.7, 0.3, 12.0]]
    >>> print(fm.quant.report(X, fm.quant.quantize("mxfp4", X)))
    rms error 3.44% of the rms; largest error 0.3 at [0, 2]; 0 of 4 clipped, 1 zeroed
    """

    elements: int
    max_error: float
    """The largest |x - x'|, with x' what element and scale stand for."""
    at: tuple[int, ...]
    """The index of that number."""
    relative_rms: float
    """The root mean square of the errors, divided by that of the numbers."""
    clipped: int
    """Numbers beyond the largest element by more than half of its last step."""
    zeroed: int
    """Numbers other than 0 whose element is 0."""
    smallest_scale: float
    """Of the blocks that are not zeros; 0 if all of them are."""
    largest_scale: float

    def __str__(self) -> str:
        return (
            f"rms error {self.relative_rms:.2%} of the rms; largest error "
            f"{self.max_error:.3g} at {list(self.at)}; {self.clipped} of "
            f"{self.elements} clipped, {self.zeroed} zeroed"
        )

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        return {**asdict(self), "at": list(self.at)}


def report(X: ArrayLike, q: Quantized) -> Report:
    """Compare numbers with what their elements and scales stand for, in float64.

    Scales count with the tensor scale.

    >>> import numpy as np, fragmenta as fm
    >>> X = np.array([[7.0, 0.1, 1.0, -7.5]])
    >>> found = report(X, fm.quant.quantize("mxfp4", X))
    >>> found.clipped, found.zeroed, found.max_error, found.at
    (1, 1, 1.5, (0, 3))
    """
    given = numbers(X)
    if not isinstance(q, Quantized):
        raise BadCall(f"q is what quantize returns; given {type(q).__name__}")
    if given.shape != q.shape:
        raise ShapeError(f"X has shape {given.shape} and q has shape {q.shape}")
    most = float(np.abs(given).max())
    flat = given.reshape(-1, given.shape[-1])
    scales = np.broadcast_to(element_scales(q), given.shape).reshape(flat.shape)
    values = q.values.reshape(flat.shape)
    bound = _bound(q.dtype)

    def work(rows: slice) -> tuple[_RowErrors, int]:
        return _RowErrors.of(
            flat[rows], values[rows], scales[rows], bound, most
        ), rows.start

    with bar("measuring the error") as progress:
        parts = in_blocks(work, len(flat), 4 * flat[0].nbytes, progress)
    worst, first = max(parts, key=lambda part: part[0].max_error)
    place = worst.place + first * flat.shape[1]
    every = [part for part, _ in parts]
    squares, size = map(sum, zip(*(part.squares for part in every), strict=True))
    lowest = min(part.smallest_scale for part in every)
    return Report(
        elements=given.size,
        max_error=worst.max_error,
        at=tuple(int(i) for i in np.unravel_index(place, given.shape)),
        relative_rms=math.sqrt(squares / size) if most else 0.0,
        clipped=sum(part.clipped for part in every),
        zeroed=sum(part.zeroed for part in every),
        smallest_scale=lowest if most else 0.0,
        largest_scale=max(part.largest_scale for part in every),
    )


class _RowErrors(NamedTuple):
    """The errors of some rows."""

    max_error: float
    place: int
    squares: tuple[float, float]
    """The squares of the errors and of the numbers, by that of the largest number."""
    clipped: int
    zeroed: int
    smallest_scale: float
    largest_scale: float

    @classmethod
    def of(
        cls, given: Numbers, values: Array, scales: Numbers, bound: float, most: float
    ) -> _RowErrors:
        elements = values.astype(np.float64)
        errors = np.abs(given - elements * scales)
        place = int(errors.argmax())
        beyond = np.abs(given) > bound * scales
        used = scales[given != 0]
        unit = most or 1.0  # squares of tiny numbers are not lost
        with np.errstate(under="ignore"):
            squares = [float(np.square(x / unit).sum()) for x in (errors, given)]
        return cls(
            max_error=float(errors.flat[place]),
            place=place,
            squares=(squares[0], squares[1]),
            clipped=int(np.count_nonzero(beyond & (elements != 0))),
            zeroed=int(np.count_nonzero((elements == 0) & (given != 0))),
            smallest_scale=float(used.min()) if used.size else math.inf,
            largest_scale=float(used.max()) if used.size else 0.0,
        )


def _bound(of: DType) -> float:
    """The largest element and half a step: what is beyond is not only rounded."""
    patterns = np.arange(1 << of.bits).astype(of.bits_dtype)
    every = np.abs(of.to_float64(patterns))
    most = largest_element(of)
    return (3 * most - float(every[every < most].max())) / 2
