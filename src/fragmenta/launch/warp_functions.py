"""The compiled functions that multiply the matrices of a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fragmenta.base.jit.compiler import Traced
    from fragmenta.engine.planes.code.products import ProductAlgebra
    from fragmenta.reference.execution.warp import WarpFunction


def function_table(
    wanted: list[list[str]],
) -> tuple[NDArray[np.int64], list[WarpFunction | Traced]]:
    """The addresses of the functions, and what keeps them alive.

    A function is named by its instruction and target; one that makes second values also
    by its algebra and the number of planes.
    """
    if not wanted:
        return np.zeros(1, np.int64), []
    # They take a while to import, and most kernels multiply no matrices.
    from fragmenta.reference.execution.warp import warp_function
    from fragmenta.reference.isa.reading import instruction

    made: list[WarpFunction | Traced] = [
        _second(name, target, *more)
        if more
        else warp_function(instruction(name), target)
        for name, target, *more in wanted
    ]
    table = np.array([each.address for each in made], np.int64)
    return table, made


def _second(name: str, target: str, algebra: str, planes: str) -> Traced:
    """The function that makes the second values of an instruction."""
    from fragmenta.engine.planes.code.warp_products import warp_product
    from fragmenta.reference.isa.reading import instruction

    return warp_product(instruction(name), target, _algebra(algebra, int(planes)))


def _algebra(name: str, planes: int) -> ProductAlgebra:
    """The algebra of products with a name."""
    if name == "numerics":
        from fragmenta.values.numerics.code.products import NumericProducts

        return NumericProducts(planes)
    from fragmenta.values.expressions.code.products import ProductHashes

    return ProductHashes(planes, name)
