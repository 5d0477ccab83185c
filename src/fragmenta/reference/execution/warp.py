"""Machine code for one multiplication of one warp.

:func:`warp_function` compiles a function for one instruction on one target.  It reads
and writes register arrays and needs no Python::

    int32 f(uint32 *d, const uint32 *a, const uint32 *b, const uint32 *c,
            const uint32 *extra, const int64 *selectors)

An operand is its registers in the order (register, lane), 32 lanes each; the
registers of f64 are 64 bits wide.  ``extra`` holds, as far as the instruction has
them, one register each of metadata, scales of A and scales of B.  ``selectors`` are
the sparsity selector, byte-id-a, thread-id-a, byte-id-b and thread-id-b; those that
the instruction does not have are not used.  Bits above the legal values of a selector
are ignored, and so is the highest bit of a ue4m3 scale.  d must not overlap the other
operands.

The result is 0, or 1 if a metadata code is illegal.  Then the code's two positions
are used as they are
(:meth:`~fragmenta.reference.registers.granularity.Granularity.named`).
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.checks import Array
from fragmenta.base.arrays.once import once
from fragmenta.base.jit.compiler import Traced, pointer
from fragmenta.base.jit.trace import I32, I64, Code, Memory, Value
from fragmenta.errors import BadCall, one_of
from fragmenta.reference.arithmetic.models import Model
from fragmenta.reference.execution.mma import numeric_model
from fragmenta.reference.execution.warp_forms import FORMS
from fragmenta.reference.execution.warp_operands import WarpOperands, from_registers
from fragmenta.reference.isa.families import OF_WARPS
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.target import chosen_target

SELECTORS = ("selector", "byte_a", "thread_a", "byte_b", "thread_b")


class WarpFunction:
    """The machine code of one instruction on one target.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k16", a="f16", d="f32")
    >>> run = warp_function(op, "sm_90a")
    >>> a = op.a.pack(np.ones((16, 16), np.float16)).T.copy()
    >>> b = op.b.pack(np.ones((16, 8), np.float16)).T.copy()
    >>> c, d = np.zeros((4, 32), np.uint32), np.zeros((4, 32), np.uint32)
    >>> run(d, a, b, c)
    0
    >>> float(d.view(np.float32)[3, 31])
    16.0
    """

    def __init__(self, op: Instruction, target: str, traced: Traced) -> None:
        self.op = op
        self.target = target
        self.traced = traced

    @property
    def address(self) -> int:
        """Where the machine code begins; valid as long as this object lives."""
        return self.traced.address

    def __call__(
        self,
        d: Array,
        a: Array,
        b: Array,
        c: Array,
        extra: NDArray[np.uint32] | None = None,
        selectors: NDArray[np.int64] | None = None,
    ) -> int:
        """Write D; the result is 1 if a metadata code is illegal, otherwise 0.

        Nothing is checked but the types of the arrays.
        """
        if extra is None:
            extra = np.zeros((3, 32), np.uint32)
        if selectors is None:
            selectors = np.zeros(len(SELECTORS), np.int64)
        result: int = self.traced(d, a, b, c, extra, selectors)
        return result

    def __repr__(self) -> str:
        return f"<WarpFunction {self.op} on {self.target}>"


@once
def warp_function(op: Instruction, target: str) -> WarpFunction:
    """The function for an instruction on a target; compiled when first used.

    >>> import fragmenta as fm
    >>> warp_function(fm.mma("m16n8k32", a="s8"), "sm_80")
    <WarpFunction mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 on sm_80>
    """
    if not op.warp:
        raise BadCall(f"{op} is not for one warp; {one_of(OF_WARPS, 'and')} are")
    model = numeric_model(op, chosen_target(op, target))
    of = I64 if model.accumulator == "f64" else I32
    parameters = {
        **dict.fromkeys("dabc", pointer(of)),
        "extra": pointer(I32),
        "selectors": pointer(I64),
    }
    trace = partial(_trace, op, model)
    return WarpFunction(op, target, Traced("warp", parameters, trace, returns=I32))


def _trace(op: Instruction, model: Model, code: Code, *operands: Memory) -> Value:
    d, a, b, c, extra, selectors = operands
    chosen = {name: selectors[place] for place, name in enumerate(SELECTORS)}
    sides = (
        from_registers("a", op.a, a, model.stored),
        from_registers("b", op.b, b, model.k),
    )
    return FORMS[model.form](code, WarpOperands(op, model, *sides, c, d, extra, chosen))
