"""Which elements of a product depend on undefined elements of its operands.

An element of D depends on a row of A and on a column of B as a whole: what is
multiplied by zero counts, too, since the other factor may be NaN.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def depending(a: NDArray[np.bool_], b: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The elements of a product that depend on undefined elements of A or B.

    >>> a, b = np.zeros((2, 3), bool), np.zeros((3, 2), bool)
    >>> a[1, 0] = True
    >>> depending(a, b).tolist()
    [[False, False], [True, True]]
    """
    rows, columns = a.any(axis=-1, keepdims=True), b.any(axis=-2, keepdims=True)
    return np.asarray(rows | columns)
