"""A times B plus C in raw bits, exactly as on the target.

:func:`multiply` checks its operands and calls the compiled loops for the form of the
model.  The loops and LLVM are imported when first needed.
"""

from __future__ import annotations

from math import prod

import numpy as np

from fragmenta.base.progress import Progress, ignore_progress
from fragmenta.reference.arithmetic.models import Model
from fragmenta.reference.arithmetic.operands import Bits, Operands
from fragmenta.reference.registers.dtype import dtype


def multiply(
    a: Bits,
    b: Bits,
    c: Bits,
    model: Model,
    *,
    index: Bits | None = None,
    scale_a: Bits | None = None,
    scale_b: Bits | None = None,
    progress: Progress = ignore_progress,
) -> Bits:
    """A times B plus C, bit for bit as the model's target computes it.

    Matrices are raw bits, one element per item: ``a`` is (..., M, Ks), ``b``
    (..., K, N), ``c`` (..., M, N); leading axes broadcast.  K may be any
    multiple of the instruction's k.  Instructions then follow each other in
    ascending k: the result of one is the accumulator of the next.  b1 may also be
    packed along k, 32 elements in a ``uint32``, the lowest k in the lowest bit.

    A sparse ``a`` holds only the stored values; ``index`` (..., M, Ks) holds the k
    of each, counted from the first k of its instruction.  Block scales are raw bits,
    too: ``scale_a`` is (..., M, V), ``scale_b`` (..., V, N), with ``scale_vec``
    scales per instruction.

    >>> import numpy as np
    >>> from fragmenta.reference.arithmetic import model
    >>> half = model("sm_90", "f16", "f16", "f32", "f32", 16)
    >>> ones = np.full((16, 16), 0x3C00, np.uint16)  # 1.0 as f16
    >>> d = multiply(ones, ones[:, :8], np.zeros((16, 8), np.uint32), half)
    >>> d.view(np.float32)[0, 0]
    np.float32(16.0)
    """
    from fragmenta.reference.arithmetic.dispatch import FORMS

    given = Operands.check(model, a, b, c, index, scale_a, scale_b, progress)
    shape = (*given.leading, given.rows, given.columns)
    if not prod(shape):
        return np.empty(shape, dtype(model.d).bits_dtype)
    result = FORMS[model.form](given).reshape(shape)
    progress(1.0)
    return result
