"""Which compiled functions multiply the matrices of a kernel?"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def function_table(wanted: list[list[str]]) -> tuple[NDArray[np.int64], list[Any]]:
    """The addresses of the functions, and what keeps them alive."""
    from fragmenta.execution.warp import warp_function
    from fragmenta.isa.reading import instruction

    made = [warp_function(instruction(name), target) for name, target in wanted]
    table = np.array([each.address for each in made] or [0], np.int64)
    return table, made
