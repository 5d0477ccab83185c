"""Matrices padded to a whole number of tiles, and back."""

from __future__ import annotations

import numpy as np

from fragmenta.base.arrays.checks import Array, check_numbers
from fragmenta.errors import ShapeError


def whole_tiles(
    array: Array, tile: tuple[int, ...], name: str, pad: bool, fill: int = 0
) -> Array:
    """The matrix as a whole number of tiles; ``pad`` allows it to be filled up.

    >>> whole_tiles(np.ones((3, 4)), (2, 4), "A", pad=True).shape
    (4, 4)
    """
    if array.ndim < 2:
        raise ShapeError(f"a matrix has 2 axes or more; given shape {array.shape}")
    short = [-size % step for size, step in zip(array.shape[-2:], tile, strict=True)]
    if not any(short):
        return array
    if not pad:
        rows, columns = array.shape[-2:]
        raise ShapeError(
            f"{rows}x{columns} is not a whole number of {name} tiles of "
            f"{tile[0]}x{tile[1]}; pad=True fills {rows + short[0]}x"
            f"{columns + short[1]} with {'empty chunks' if fill else 'zeros'}"
        )
    width = [(0, 0)] * (array.ndim - 2) + [(0, short[0]), (0, short[1])]
    return np.pad(array, width, constant_values=fill)


def cut_tiles(
    array: Array, tile: tuple[int, ...], shape: tuple[int, int] | None
) -> Array:
    """The matrix without the padding; ``shape`` is its size before it was padded.

    >>> cut_tiles(np.ones((4, 4)), (2, 4), (3, 4)).shape
    (3, 4)
    """
    if shape is None:
        return array
    if not isinstance(shape, tuple | list) or len(shape) != 2:
        raise ShapeError(f"a matrix is cut to rows and columns; given {shape!r}")
    check_numbers(rows=shape[0], columns=shape[1])
    rows, columns = array.shape[-2:]
    left = rows - shape[0], columns - shape[1]
    if not all(0 <= rest < step for rest, step in zip(left, tile, strict=True)):
        raise ShapeError(
            f"these tiles hold a {rows}x{columns} matrix; it cannot be cut to "
            f"{shape[0]}x{shape[1]}"
        )
    return array[..., : shape[0], : shape[1]]
