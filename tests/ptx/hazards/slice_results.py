"""What the kernels of ``slices.cu`` leave in memory, computed with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]


def way_out(inputs: Words, out: Words) -> None:
    out[:] = inputs[:, ::-1] + 1


def last_prefetch(inputs: Words, out: Words) -> None:
    sums = np.zeros((2, 32), np.uint32)
    for tile in inputs.reshape(-1, 2, 4, 32):
        for register in range(4):
            sums = 3 * sums + tile[:, register]
    out[:] = sums[0] + sums[1]


def scales(inputs: Words, scale: Words, out: Words) -> None:
    out[:] = (inputs * scale.repeat(2, axis=0)).sum(axis=0, dtype=np.uint32)[::-1]


RESULTS: dict[str, Any] = {
    "way_out": way_out,
    "last_prefetch": last_prefetch,
    "scales": scales,
}
