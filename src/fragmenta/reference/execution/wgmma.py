"""Executes one ``wgmma``: the registers of D.

A warpgroup reads B from shared memory, through a descriptor.  A comes from registers
or from shared memory, too.  Shared memory is an image: an array of bytes whose index
is the address; see :mod:`fragmenta.reference.shared.tiles`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fragmenta.base.arrays.checks import Array, as_array, batch_shape, is_whole
from fragmenta.errors import BadCall, ShapeError
from fragmenta.reference import arithmetic
from fragmenta.reference.arithmetic.operands import Bits
from fragmenta.reference.execution.mma import negated, numeric_model, stored_columns
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.target import chosen_target
from fragmenta.reference.registers.fragment import Words
from fragmenta.reference.shared.descriptor import MAJORS, Descriptor
from fragmenta.reference.shared.tiles import read_tile


def execute(
    op: Instruction,
    d: ArrayLike,
    a: ArrayLike | Descriptor,
    b: ArrayLike | Descriptor,
    *,
    smem: ArrayLike,
    metadata: ArrayLike | None = None,
    selector: int = 0,
    scale_d: ArrayLike = 1,
    imm_scale_a: int = 1,
    imm_scale_b: int = 1,
    trans_a: int = 0,
    trans_b: int = 0,
    target: str | None = None,
) -> Words:
    """The registers of D: what one ``wgmma`` returns, bit for bit.

    ``d``, and ``a`` in registers, are (…, 128 lanes, n).  A descriptor is a
    :class:`Descriptor`, its 64-bit word, or an array of words.  ``smem`` is
    (…, bytes).  Leading axes broadcast.  If ``scale_d`` is 0, the old D is not
    added.  If ``imm_scale_a`` or ``imm_scale_b`` is -1, that operand is negated.  If
    ``trans_a`` or ``trans_b`` is 1, neighbours in memory are neighbours along m or
    n, not along k.

    >>> import numpy as np, fragmenta as fm
    >>> from fragmenta.reference.shared.tiles import tile as shared_tile
    >>> op = fm.wgmma("m64n8k16", a="f16", d="f32")
    >>> smem, a = shared_tile(op, "A", np.ones((64, 16), np.float16), swizzle=32)
    >>> smem, b = shared_tile(op, "B", np.ones((16, 8), np.float16), swizzle=32,
    ...                       image=smem)
    >>> d = execute(op, np.zeros((128, 4), np.uint32), a, b, smem=smem)
    >>> float(op.d.unpack(d)[63, 7])
    16.0
    """
    where = chosen_target(op, target)
    registers = in_registers(a)
    check_immediates(
        op, imm_scale_a, imm_scale_b, trans_a, trans_b, registers=registers
    )
    index = stored_columns(op, metadata, selector)
    if registers:
        bits_a = op.a.unpack_bits(a)  # type: ignore[arg-type]
    else:
        bits_a = read_tile(op, "A", smem, a, major=MAJORS[trans_a])
    bits_b = read_tile(op, "B", smem, b, major=MAJORS[trans_b])
    result = arithmetic.multiply(
        bits_a if imm_scale_a == 1 else negated(bits_a, op.types["a"]),
        bits_b if imm_scale_b == 1 else negated(bits_b, op.types["b"]),
        _accumulator(op, d, scale_d),
        numeric_model(op, where),
        index=index,
    )
    return op.d.pack(op.d.dtype.decode(result))


def in_registers(a: ArrayLike | Descriptor) -> bool:
    """Whether A is in registers: 32-bit words (…, 128, 4); descriptors have 64 bits.

    >>> in_registers(np.zeros((128, 4), np.uint32)), in_registers(1 << 62)
    (True, False)
    """
    if isinstance(a, Descriptor | int | np.integer):
        return False
    given = as_array(a)
    if given.shape[-2:] == (128, 4) and given.dtype == np.int64:
        raise ShapeError("registers are uint32, descriptor words uint64; given int64")
    return given.ndim >= 2 and given.dtype.itemsize == 4


def check_immediates(op: Instruction, *given: int, registers: bool) -> None:
    """Refuse values of the immediates that the instruction does not have.

    They are imm_scale_a, imm_scale_b, trans_a and trans_b.

    >>> import fragmenta as fm
    >>> op = fm.wgmma("m64n8k16", a="f16", d="f32")
    >>> check_immediates(op, 1, -1, 1, 0, registers=True)
    Traceback (most recent call last):
    fragmenta.errors.BadCall: A from registers cannot be transposed; trans_a is 0
    """
    names = ("imm_scale_a", "imm_scale_b", "trans_a", "trans_b")
    have = {each.name: each.values for each in op.operands}
    for name, value in zip(names, given, strict=True):
        plain = 1 if name.startswith("imm_scale") else 0
        allowed = have.get(name, (plain,))
        if not is_whole(value) or value not in allowed:
            what = " or ".join(map(str, allowed))
            raise ShapeError(f"{name} {value} is not allowed; {op} takes {what}")
    if registers and given[names.index("trans_a")]:
        raise BadCall("A from registers cannot be transposed; trans_a is 0")


def checked_scale_d(scale_d: ArrayLike) -> Array:
    """Whether the old D is added: one value for each tile, or one for all.

    >>> checked_scale_d([0, 1])
    array([0, 1])
    """
    keep = as_array(scale_d)
    if keep.dtype.kind not in "biu" or not np.isin(keep, (0, 1)).all():
        raise ShapeError(f"scale_d is 0 or 1; given {scale_d!r}")
    return keep


def _accumulator(op: Instruction, d: ArrayLike, scale_d: ArrayLike) -> Bits:
    """The old D, or zero where it is not added."""
    bits = op.d.unpack_bits(d)
    keep = checked_scale_d(scale_d)
    batch_shape(d=bits.shape[:-2], scale_d=keep.shape)
    return np.where(keep.astype(bool)[..., None, None], bits, bits.dtype.type(0))
