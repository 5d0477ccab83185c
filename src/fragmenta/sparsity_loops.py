"""How are millions of chunks pruned, compressed and put back quickly?

The loops are plain Python over flat arrays of unsigned integers, compiled by
Numba when one is first needed.  A *place* is what a code chooses: one element,
or a pair of neighbours seen as one integer twice as wide.  Their form is what
the compiler turns into vector instructions: one flat index, every place of a
chunk by name, and no branch that would have to be predicted.

Matrices go through them in blocks of rows, side by side in threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Places = NDArray[Any]
Codes = NDArray[Any]
Progress = Callable[[float], object]
"""Called with the share of the work that is done, now and then."""

# Bytes of the matrix handled at once.  Threads take turns at Python's lock for
# every block, so it must keep one busy for a while; its temporaries are as large.
_BLOCK = 1 << 22

# Blocks below which starting threads costs more than it gains.
_FEW = 4


def prune_2_of_4(keys: Places, places: Places, out: Places) -> None:
    """Copy the two places of each four with the greatest keys, zero the rest.

    A place goes when two others beat it; of equals the lower one wins.

    >>> import numpy as np
    >>> out = np.zeros(4, np.uint8)
    >>> prune_2_of_4(np.array([5, 9, 5, 1]), np.uint8([5, 9, 5, 1]), out)
    >>> out
    array([5, 9, 0, 0], dtype=uint8)
    """
    for chunk in range(places.shape[0] // 4):
        i = 4 * chunk
        k0, k1, k2, k3 = keys[i], keys[i + 1], keys[i + 2], keys[i + 3]
        # Does the second of the two beat the first?
        b01, b02, b03 = int(k1 > k0), int(k2 > k0), int(k3 > k0)
        b12, b13, b23 = int(k2 > k1), int(k3 > k1), int(k3 > k2)
        out[i] = places[i] * (b01 + b02 + b03 < 2)
        out[i + 1] = places[i + 1] * (1 - b01 + b12 + b13 < 2)
        out[i + 2] = places[i + 2] * (2 - b02 - b12 + b23 < 2)
        out[i + 3] = places[i + 3] * (3 - b03 - b13 - b23 < 2)


def prune_1_of_2(keys: Places, places: Places, out: Places) -> None:
    """Copy the place of each two with the greater key, zero the other."""
    for chunk in range(places.shape[0] // 2):
        i = 2 * chunk
        second = keys[i + 1] > keys[i]
        out[i] = places[i] * (not second)
        out[i + 1] = places[i + 1] * second


def compress_2_of_4(
    places: Places, value_bits: Any, stored: Places, codes: Codes
) -> None:
    """Store two places of each four, and the code that says which.

    A place with none of the ``value_bits`` set is a zero.  Where fewer than two
    are values, the zero of place 2 is stored too, then that of place 3.  Where
    more are, the code is 0, which no chunk has.

    >>> import numpy as np
    >>> stored, codes = np.zeros(2, np.uint8), np.zeros(1, np.uint8)
    >>> compress_2_of_4(np.uint8([0, 7, 0, 9]), 255, stored, codes)
    >>> stored, f"{codes[0]:04b}"
    (array([7, 9], dtype=uint8), '1101')
    """
    for chunk in range(codes.shape[0]):
        i = 4 * chunk
        p0, p1, p2, p3 = places[i], places[i + 1], places[i + 2], places[i + 3]
        has0, has1 = p0 & value_bits != 0, p1 & value_bits != 0
        has2, has3 = p2 & value_bits != 0, p3 & value_bits != 0
        either, both = has0 | has1, has0 & has1
        last = has3 | (not either)
        stored[2 * chunk] = p0 if has0 else (p1 if has1 else p2)
        stored[2 * chunk + 1] = p1 if both else (p3 if last else p2)
        first = 0 if has0 else (1 if has1 else 2)
        code = first | (0b0100 if both else (0b1100 if last else 0b1000))
        full = (both & (has2 | has3)) | (either & has2 & has3)
        codes[chunk] = 0 if full else code


def compress_1_of_2(
    places: Places, value_bits: Any, stored: Places, codes: Codes
) -> None:
    """Store one place of each two: the second, unless the first is a value."""
    for chunk in range(codes.shape[0]):
        p0, p1 = places[2 * chunk], places[2 * chunk + 1]
        has0, has1 = p0 & value_bits != 0, p1 & value_bits != 0
        stored[chunk] = p0 if has0 else p1
        code = 0b0100 if has0 else 0b1110
        codes[chunk] = 0 if has0 & has1 else code


def decompress_2_of_4(stored: Places, codes: Codes, out: Places) -> None:
    """Put two stored places of each four back, zeros between them."""
    for chunk in range(codes.shape[0]):
        s0, s1 = stored[2 * chunk], stored[2 * chunk + 1]
        first, second = codes[chunk] & 3, codes[chunk] >> 2
        for place in range(4):
            out[4 * chunk + place] = s0 * (first == place) | s1 * (second == place)


def decompress_1_of_2(stored: Places, codes: Codes, out: Places) -> None:
    """Put one stored place of each two back, a zero beside it."""
    for chunk in range(codes.shape[0]):
        second = codes[chunk] == 0b1110
        out[2 * chunk] = stored[chunk] * (not second)
        out[2 * chunk + 1] = stored[chunk] * second


# ── blocks of rows ──────────────────────────────────────────────────────────


def rows_of(matrix: Array) -> Array:
    """All rows of all batches.

    >>> rows_of(np.zeros((2, 3, 4))).shape
    (6, 4)
    """
    rows = int(np.prod(matrix.shape[:-1]))
    return matrix.reshape(rows, matrix.shape[-1])


def places_of(rows: Array, group: int) -> Places:
    """Contiguous rows as one flat array of what the codes choose from.

    >>> places_of(np.uint8([[1, 2, 3, 4]]), 2)
    array([ 513, 1027], dtype=uint16)
    """
    return rows.reshape(-1).view(np.dtype(f"u{group * rows.itemsize}"))


def in_blocks(
    work: Callable[[slice], Any],
    rows: int,
    row_bytes: int,
    progress: Progress | None = None,
) -> list[Any]:
    """Do blocks of rows, in threads if they are many; the results in order.

    ``row_bytes`` is what the work needs for a row beyond its result.

    >>> in_blocks(lambda block: block.stop - block.start, rows=5, row_bytes=1 << 21)
    [2, 2, 1]
    """
    step = max(1, _BLOCK // max(1, row_bytes))
    starts = range(0, rows, step)
    blocks = [slice(start, min(start + step, rows)) for start in starts]
    if len(blocks) < _FEW:
        return _collect(map(work, blocks), len(blocks), progress)
    with ThreadPoolExecutor(min(_processors(), len(blocks))) as pool:
        return _collect(pool.map(work, blocks), len(blocks), progress)


def _collect(
    results: Iterable[Any], count: int, progress: Progress | None
) -> list[Any]:
    done = []
    for result in results:
        done.append(result)
        if progress is not None:
            progress(len(done) / count)
    return done


def _processors() -> int:
    """Processors this process may use, which can be fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def compiled(loop: Callable[..., None]) -> Any:
    """A loop as machine code that runs beside other threads."""
    import numba

    try:
        return numba.njit(nogil=True, cache=True)(loop)
    except RuntimeError:  # nowhere to keep the compiled code
        return numba.njit(nogil=True)(loop)
