"""The compiled functions that multiply the matrices of a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fragmenta.planes.algebra import Algebra


def function_table(
    wanted: list[list[str]], algebra: Algebra | None = None
) -> tuple[NDArray[np.int64], list[Any]]:
    """The addresses of the functions, and what keeps them alive.

    Those of second values have the name of their algebra after the target.
    """
    if not wanted:
        return np.zeros(1, np.int64), []
    # They take a while to import, and most kernels multiply no matrices.
    from fragmenta.execution.warp import warp_function
    from fragmenta.isa.reading import instruction

    made: list[Any] = []
    for name, target, *second in wanted:
        if not second:
            made.append(warp_function(instruction(name), target))
            continue
        from fragmenta.planes.warp_products import warp_product

        assert algebra is not None
        made.append(warp_product(instruction(name), target, algebra.products))
    table = np.array([each.address for each in made], np.int64)
    return table, made
