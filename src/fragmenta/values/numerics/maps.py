"""Heat maps of arrays, as SVG."""

from __future__ import annotations

from html import escape

import numpy as np
from numpy.typing import NDArray

MOST = 64
"""Cells along an axis: a larger array is shown by the largest number of each cell."""
CELL = 8
_LOW, _HIGH = (247, 251, 255), (8, 48, 107)
_NAN = "#d7301f"


def heat_map(values: NDArray[np.float64], title: str) -> str:
    """A picture of an array: dark is large, red is NaN.

    >>> heat_map(np.array([[0.0, 1.0]]), "x").count("<rect")
    2
    """
    table = _cells(values)
    rows, columns = table.shape
    finite = table[np.isfinite(table)]
    largest = float(finite.max()) if finite.size else 0.0
    body = []
    for row in range(rows):
        for column in range(columns):
            value = float(table[row, column])
            colour = _colour(value / largest if largest else 0.0 * value)
            body.append(
                f'<rect x="{column * CELL}" y="{row * CELL + 16}" width="{CELL}" '
                f'height="{CELL}" fill="{colour}"><title>{value:.3g}</title></rect>'
            )
    words = f"{title}, at most {largest:.3g}"
    width, height = max(columns * CELL, 7 * len(words)), rows * CELL + 20
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="monospace" font-size="11" style="background:#fff">'
        f'<text x="0" y="11">{escape(words)}</text>{"".join(body)}</svg>'
    )


def _cells(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """An array as a table of at most 64 by 64 cells."""
    flat = np.atleast_1d(values)
    table = flat.reshape(-1, flat.shape[-1]) if flat.ndim > 1 else flat[np.newaxis]
    if table.shape[0] == 1 and table.shape[1] > MOST:
        width = int(np.ceil(np.sqrt(table.shape[1])))
        padded = np.zeros(width * width)
        padded[: table.shape[1]] = table[0]
        table = padded.reshape(width, width)
    for axis in (0, 1):
        size = table.shape[axis]
        step = -(-size // MOST)
        starts = np.arange(0, size, step)
        table = np.maximum.reduceat(table, starts, axis=axis)
    return table


def _colour(share: float) -> str:
    if not np.isfinite(share):
        return _NAN
    mixed = (
        round(low + (high - low) * share) for low, high in zip(_LOW, _HIGH, strict=True)
    )
    return "#" + "".join(f"{each:02x}" for each in mixed)
