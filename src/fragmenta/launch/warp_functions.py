"""The compiled functions that multiply the matrices of a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fragmenta.execution.warp import WarpFunction


def function_table(
    wanted: list[list[str]],
) -> tuple[NDArray[np.int64], list[WarpFunction]]:
    """The addresses of the functions, and what keeps them alive."""
    if not wanted:
        return np.zeros(1, np.int64), []
    # They take a while to import, and most kernels multiply no matrices.
    from fragmenta.execution.warp import warp_function
    from fragmenta.isa.reading import instruction

    made = [warp_function(instruction(name), target) for name, target in wanted]
    table = np.array([each.address for each in made], np.int64)
    return table, made
