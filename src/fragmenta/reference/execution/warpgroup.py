"""Machine code for one ``wgmma`` of a warpgroup.

:func:`warpgroup_function` compiles a function for one instruction, its immediates and
one target.  It reads and writes register arrays and shared memory and needs no
Python::

    int32 f(uint32 *d, const uint32 *a, const uint64 *descriptors,
            const uint8 *shared, int64 shared_size,
            const uint32 *metadata, const int64 *selectors,
            int64 register_step, int64 warp_step)

``d``, and ``a`` if A is in registers, are in the order (register, lane), 128 lanes
each.  The last two numbers say that for ``d``: 128 and 32 words from a register or a
warp to the next.  If the function computes ``in_place``, they may be others, and D can
stay where the warps have it.  ``descriptors`` are those of A, if A is in shared
memory, and of B.  ``shared`` begins with the byte at address 0, and ``shared_size`` is
at most 2**18.  ``metadata`` is one register.  ``selectors`` are ``scale-d``, where 0
says that the old D is not added, and the sparsity selector, whose bits above the legal
values are ignored.  What the instruction does not have is not read and may be null.
D must not overlap the others.

The result is 0, or

1. if a metadata code is illegal: then the code's two positions are used as they are
   (:meth:`~fragmenta.reference.registers.granularity.Granularity.named`);
2. if an operand is not all in shared memory: then D is not changed;
3. if a descriptor has a bit that no field has: then D is not changed.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.once import once
from fragmenta.base.jit.compiler import Traced, pointer
from fragmenta.base.jit.trace import I8, I32, I64, Code, Memory, Value, select
from fragmenta.errors import BadCall
from fragmenta.reference.arithmetic.models import Model
from fragmenta.reference.execution.mma import numeric_model
from fragmenta.reference.execution.warp_floors import (
    floors_compute,
    form_of,
    kernels_of,
)
from fragmenta.reference.execution.warp_operands import (
    RegisterStrides,
    Side,
    WarpOperands,
    from_registers,
)
from fragmenta.reference.execution.warpgroup_shared import CheckedShared, from_shared
from fragmenta.reference.execution.wgmma import check_immediates
from fragmenta.reference.isa.instruction import WARP, Instruction
from fragmenta.reference.isa.tables.wgmma import Ways
from fragmenta.reference.isa.target import chosen_target
from fragmenta.reference.shared.descriptor import MAJORS

SELECTORS = ("scale_d", "selector")

#: The steps of D in the order (register, lane).
IN_ORDER = 4 * WARP, WARP


class WarpgroupFunction:
    """The machine code of one instruction with its immediates, on one target.

    >>> import fragmenta as fm
    >>> from fragmenta.reference.shared.tiles import tile as shared_tile
    >>> op = fm.wgmma("m64n8k16", a="f16", d="f32")
    >>> image, a = shared_tile(op, "A", np.ones((64, 16), np.float16))
    >>> image, b = shared_tile(op, "B", np.ones((16, 8), np.float16), image=image)
    >>> d = np.zeros((4, 128), np.uint32)
    >>> run = warpgroup_function(op, "sm_90a")
    >>> run(d, None, np.array([a.encode(), b.encode()], np.uint64), image)
    0
    >>> float(d.view(np.float32)[3, 127])
    16.0
    """

    def __init__(
        self,
        op: Instruction,
        target: str,
        ways: Ways,
        traced: Traced,
        in_place: bool,
    ) -> None:
        self.op = op
        self.target = target
        self.ways = ways
        self.traced = traced
        #: Whether the steps of D may be others than ``IN_ORDER``.
        self.in_place = in_place

    @property
    def address(self) -> int:
        """Where the machine code begins; valid as long as this object lives."""
        return self.traced.address

    def __call__(
        self,
        d: NDArray[np.uint32],
        a: NDArray[np.uint32] | None,
        descriptors: NDArray[np.uint64],
        shared: NDArray[np.uint8],
        metadata: NDArray[np.uint32] | None = None,
        selectors: NDArray[np.int64] | None = None,
        steps: tuple[int, int] = IN_ORDER,
    ) -> int:
        """Add to D; the result says whether it could, as the module describes.

        Without selectors, the old D is added, and the sparsity selector is 0.
        Nothing is checked but the types of the arrays.
        """
        nothing = np.zeros(1, np.uint32)
        if selectors is None:
            selectors = np.array([1, 0], np.int64)
        result: int = self.traced(
            d,
            nothing if a is None else a,
            descriptors,
            shared,
            shared.size,
            nothing if metadata is None else metadata,
            selectors,
            *steps,
        )
        return result

    def __repr__(self) -> str:
        return f"<WarpgroupFunction {self.op} on {self.target}>"


def warpgroup_function(
    op: Instruction,
    target: str,
    *,
    a_from_registers: bool = False,
    imm_scale_a: int = 1,
    imm_scale_b: int = 1,
    trans_a: int = 0,
    trans_b: int = 0,
) -> WarpgroupFunction:
    """The function for an instruction on a target; compiled when first used.

    >>> import fragmenta as fm
    >>> op = fm.wgmma("m64n8k32", a="s8")
    >>> warpgroup_function(op, "sm_90a", a_from_registers=True)
    <WarpgroupFunction wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 on sm_90a>
    """
    if not op.warpgroup:
        raise BadCall(f"{op} is not for a warpgroup; wgmma and wgmma.sp are")
    immediates = (imm_scale_a, imm_scale_b, trans_a, trans_b)
    check_immediates(op, *immediates, registers=a_from_registers)
    return _function(op, target, Ways(bool(a_from_registers), *map(int, immediates)))


@once
def _function(op: Instruction, target: str, ways: Ways) -> WarpgroupFunction:
    model = numeric_model(op, chosen_target(op, target))
    parameters = {
        "d": pointer(I32),
        "a": pointer(I32),
        "descriptors": pointer(I64),
        "shared": pointer(I8),
        "shared_size": I64,
        "metadata": pointer(I32),
        "selectors": pointer(I64),
        "register_step": I64,
        "warp_step": I64,
    }
    trace = partial(_trace, op, model, ways)
    calls = kernels_of(op, model)
    traced = Traced("warpgroup", parameters, trace, returns=I32, calls=calls)
    return WarpgroupFunction(op, target, ways, traced, floors_compute(op, model))


def _trace(
    op: Instruction,
    model: Model,
    ways: Ways,
    code: Code,
    d: Memory,
    a: Memory,
    descriptors: Memory,
    memory: Memory,
    size: Value,
    metadata: Memory,
    selectors: Memory,
    *steps: Value,
) -> Value:
    status = code.variable(code.constant(0, I32))
    shared = CheckedShared(memory, size, status)

    def in_shared(name: str, place: int, scale: int, transposed: int) -> Side:
        flipped = _sign(op, name, scale)
        word, major = descriptors[place], MAJORS[transposed]
        return from_shared(code, op, name, word, shared, major, flipped)

    if ways.a_from_registers:
        flipped = _sign(op, "a", ways.imm_scale_a)
        side_a = from_registers("a", op.a, a, model.stored, flipped)
    else:
        side_a = in_shared("a", 0, ways.imm_scale_a, ways.trans_a)
    last = 0 if ways.a_from_registers else 1
    side_b = in_shared("b", last, ways.imm_scale_b, ways.trans_b)
    chosen = {"selector": selectors[1]} if op.sparse else {}
    kept = select(selectors[0] == 0, code.constant(0, I32), -1)
    where = RegisterStrides(*steps)
    given = WarpOperands(op, model, side_a, side_b, d, d, metadata, chosen, kept, where)
    with code.when(status.value == 0):
        status.value = form_of(op, model)(code, given)
    return status.value


def _sign(op: Instruction, name: str, scale: int) -> int:
    """The bits of an element that an immediate of -1 inverts."""
    return 0 if scale == 1 else 1 << (op.types[name].bits - 1)
