"""``tcgen05.ld`` and ``tcgen05.st``: moves between tensor memory and registers.

An image of tensor memory is uint32 (…, 128 lanes, 512 columns).  Registers are uint32
(…, 32, n) of one warp, or (…, 128, n) of four.  Batch axes broadcast.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.base.arrays.checks import Array, as_array, batch_shape
from fragmenta.errors import BadCall, Error, ShapeError, ValueRangeError
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.searching import instruction
from fragmenta.reference.registers.tensor_fragment import (
    COLUMNS,
    LANES,
    Image,
    TensorAddress,
)
from fragmenta.reference.sparse.in_registers import (
    GROUP,
    keys,
    packed_indices,
    remaining,
)
from fragmenta.reference.tensor_memory.reaching import (
    QUARTER,
    as_tensor_memory,
    reached,
    registers_of,
)

Registers = NDArray[np.uint32]
LOW, MAGNITUDE = np.uint32(0xFFFF), np.uint32(0x7FFFFFFF)


def load(
    op: Instruction | str,
    image: ArrayLike,
    address: int | TensorAddress = 0,
    *,
    warp: int | None = None,
    imm: int | None = None,
) -> Registers:
    """The registers that a ``tcgen05.ld`` loads: (…, 32, n), or (…, 128, n).

    ``warp`` is the number of the warp in its CTA.  Without it, four warps load, each
    from its quarter of the lanes; ``address`` is then what warp 0 gives.  ``imm`` is
    the immediate of ``.16x32bx2``.  The one more register of ``ld.red`` is
    :func:`reduce` of these.  ``ld.spcompress`` returns its metadata first, and then the
    values that remain.

    >>> import numpy as np, fragmenta as fm
    >>> image = np.arange(128 * 512, dtype=np.uint32).reshape(128, 512)
    >>> op = fm.instruction("tcgen05.ld.sync.aligned.32x32b.x2.b32")
    >>> load(op, image, address=7).shape
    (128, 2)
    >>> at = fm.tensor_memory.TensorAddress(lane=96, column=7)
    >>> words = load(op, image, at, warp=3)
    >>> words.shape, bool((words[31] == image[127, 7:9]).all())
    ((32, 2), True)
    """
    found = _family(op, "tcgen05.ld")
    if ".spcompress" in found.mnemonic:
        every = load(uncompressed(found), image, address, warp=warp, imm=imm)
        return np.concatenate(compressed(found, every)[:2], axis=-1)
    memory = as_tensor_memory(image)
    index = reached(found, address, warp=warp, imm=imm).flat
    flat = memory.reshape(*memory.shape[:-2], LANES * COLUMNS)
    # The index was checked; "wrap" skips NumPy's slower check.
    cells = flat.take(index.ravel(), axis=-1, mode="wrap")
    cells = cells.reshape(*memory.shape[:-2], *index.shape)
    if index.shape[-1] == 1:
        return cells[..., 0]
    return cells[..., 0] & LOW | cells[..., 1] << np.uint32(16)


def store(
    op: Instruction | str,
    image: ArrayLike,
    address: int | TensorAddress,
    registers: ArrayLike,
    *,
    warp: int | None = None,
    imm: int | None = None,
) -> Image:
    """Tensor memory after a ``tcgen05.st``, as a new array.

    The arguments are those of :func:`load`.  ``.unpack::16b`` writes whole cells: the
    element in the low half and zeros in the high half.  That the high half is zero is
    assumed; what reads these cells ignores it.

    If the two halves of ``.16x32bx2`` overlap and differ, they are refused, because it
    is not defined which of them remains.

    >>> import numpy as np, fragmenta as fm
    >>> op = fm.instruction("tcgen05.st.sync.aligned.16x256b.x1.b32")
    >>> words = np.arange(4 * 128, dtype=np.uint32).reshape(128, 4)
    >>> image = store(op, np.zeros((128, 512), np.uint32), 16, words)
    >>> image[:3, 16:20].tolist()
    [[0, 1, 4, 5], [16, 17, 20, 21], [32, 33, 36, 37]]
    """
    found = _family(op, "tcgen05.st")
    memory = as_tensor_memory(image)
    index = reached(found, address, warp=warp, imm=imm).flat
    words = _registers(found, registers, index.shape[:2])
    batch = batch_shape(image=memory.shape[:-2], registers=words.shape[:-2])
    cells = words[..., None]
    if index.shape[-1] > 1:
        cells = np.stack([words & LOW, words >> np.uint32(16)], axis=-1)
    after = np.array(np.broadcast_to(memory, (*batch, LANES, COLUMNS)))
    flat = after.reshape(*batch, LANES * COLUMNS)
    values = cells.reshape(*words.shape[:-2], index.size)
    flat[..., index.ravel()] = values
    if imm is not None and (flat[..., index.ravel()] != values).any():
        raise Error(
            f"{found}: both halves store to the same cells, and their data differ; it "
            "is not defined which of them remains"
        )
    return after


def _family(op: Instruction | str, family: str) -> Instruction:
    found = instruction(op)
    if found.family != family:
        raise BadCall(f"this takes an instruction of {family}; given {found}")
    return found


def _registers(
    op: Instruction, registers: ArrayLike, tail: tuple[int, ...]
) -> Registers:
    words = as_array(registers)
    whole = words.dtype.kind in "iu" and words.dtype.itemsize == 4
    if words.shape[-2:] != tail or not whole:
        warps = "four warps, warp=None" if tail[0] > QUARTER else "one warp"
        raise ShapeError(
            f"{op} has uint32 registers (…, {tail[0]} lanes, {tail[1]}) of {warps}; "
            f"given {words.dtype} of shape {words.shape}"
        )
    return np.ascontiguousarray(words).view(np.uint32)


# ── ld.spcompress ───────────────────────────────────────────────────────────


def uncompressed(op: Instruction) -> Instruction:
    """The load of everything that a ``tcgen05.ld.spcompress`` looks at.

    >>> import fragmenta as fm
    >>> text = "tcgen05.ld.spcompress.sync.aligned.32x32b.x4.max.sp::2:4.f32.b2"
    >>> print(uncompressed(fm.instruction(text)))
    tcgen05.ld.sync.aligned.32x32b.x4.b32
    """
    tile, num = op.values["tile"], op.values["num"]
    return instruction(f"tcgen05.ld.sync.aligned.{tile}.{num}.b32")


class CompressedLoad(NamedTuple):
    """What ``tcgen05.ld.spcompress`` makes of the registers that it looks at."""

    mdata: Registers
    """2 bits for each value that remains: its place among four columns."""
    cdata: Registers
    places: NDArray[np.intp]
    """The register of each of them among all."""


def compressed(op: Instruction, every: Registers) -> CompressedLoad:
    """Two of each four neighbouring columns, as ``spcompress`` chooses them.

    ``every`` are the registers of :func:`uncompressed`: (…, lanes, n).

    >>> import fragmenta as fm
    >>> text = "tcgen05.ld.spcompress.sync.aligned.32x32b.x4.max.sp::2:4.abs.f32.b2"
    >>> values = np.float32([[1, -5, 3, 0.5]]).view(np.uint32)
    >>> mdata, cdata, _ = compressed(fm.instruction(text), values)
    >>> cdata.view(np.float32), mdata
    (array([[-5.,  3.]], dtype=float32), array([[9]], dtype=uint32))
    """
    selection = op.values["red"].upper() + ("ABS" if op.values.get("abs") else "")
    groups = every.reshape(*every.shape[:-1], -1, GROUP)
    within = remaining(keys(groups, "f32", selection), str(op))
    first = GROUP * np.arange(groups.shape[-2])[:, None]
    places = (first + within).reshape(*every.shape[:-1], -1)
    cdata = np.take_along_axis(every, places, axis=-1)
    chosen = within.reshape(*every.shape[:-1], -1)
    return CompressedLoad(packed_indices(chosen, 2), cdata, places)


# ── ld.red ──────────────────────────────────────────────────────────────────


def reduce(op: Instruction | str, registers: ArrayLike) -> Registers:
    """The one more register of ``tcgen05.ld.red``: (…, lanes).

    Each thread reduces the registers that it loads; with ``.spcompress``, all that it
    looks at (:func:`uncompressed`).  With ``.16x32bx2``, the two
    threads of a lane have their own results: the assembler makes two loads of it, and
    nothing that joins them.

    ``.abs`` compares and returns magnitudes.  NaNs are left out, unless ``.NaN`` asks
    for a NaN.  Refused is what only a GPU can tell: a result that is a NaN, because its
    bits are not known, and a zero if both +0 and -0 are among the registers.

    >>> import numpy as np, fragmenta as fm
    >>> op = fm.instruction("tcgen05.ld.red.sync.aligned.32x32b.x2.max.abs.f32")
    >>> words = np.tile(np.float32([1, -3]), (32, 1)).view(np.uint32)
    >>> reduce(op, words).view(np.float32)[:2]
    array([3., 3.], dtype=float32)
    """
    found = _family(op, "tcgen05.ld")
    way = found.values.get("red", "")
    if not way or ".red" not in found.mnemonic:
        raise BadCall(f"{found} reduces nothing; ld.red does")
    given = as_array(registers)
    lanes = given.shape[-2] if given.ndim > 1 else 0
    whole = uncompressed(found) if ".spcompress" in found.mnemonic else found
    tail = (lanes if lanes == LANES else QUARTER, registers_of(whole).registers)
    words = _registers(found, given, tail)
    if not prod(words.shape):
        return np.zeros(words.shape[:-1], np.uint32)
    least = way.endswith("min")
    if found.values["type"].startswith("f32"):
        return _reduce_floats(found, words, least)
    signed = words.view(np.int32) if found.values["type"] == "s32" else words
    best = signed.min(axis=-1) if least else signed.max(axis=-1)
    return np.asarray(best).view(np.uint32)


def _reduce_floats(op: Instruction, words: Registers, least: bool) -> Registers:
    if op.values.get("abs"):
        words = words & MAGNITUDE
    nan = (words & MAGNITUDE) > 0x7F800000
    result_nan = np.asarray(nan.any(-1) if op.values.get("nan") else nan.all(-1))
    if result_nan.any():
        _refuse(op, result_nan, "the result is a NaN, and its bits are not known")
    # Bits in the order of the numbers: -0 is just below +0.
    signed = words.view(np.int32)
    order = np.where(signed < 0, signed ^ 0x7FFFFFFF, signed)
    worst = np.iinfo(np.int32).max if least else np.iinfo(np.int32).min
    order = np.where(nan, worst, order)
    best = order.min(axis=-1) if least else order.max(axis=-1)
    both = (words == 0).any(axis=-1) & (words == 0x80000000).any(axis=-1)
    zero = both & ((best == 0) | (best == -1))
    if zero.any():
        _refuse(op, zero, "both +0 and -0 are candidates, and their order is not known")
    found: Registers = np.where(best < 0, best ^ 0x7FFFFFFF, best).astype(np.int32)
    return found.view(np.uint32)


def _refuse(op: Instruction, where: Array, why: str) -> NoReturn:
    lane = int(np.argwhere(where)[0][-1])
    raise ValueRangeError(
        f"{op}: in thread {lane} {why}; only a GPU that has this instruction can tell"
    )


# ── shift ───────────────────────────────────────────────────────────────────


def shift(
    op: Instruction | str, image: ArrayLike, address: int | TensorAddress
) -> NoReturn:
    """Refused: in which direction ``tcgen05.shift.down`` moves rows is not known.

    >>> shift("tcgen05.shift.cta_group::1.down", None, 0)
    Traceback (most recent call last):
    fragmenta.errors.Error: tcgen05.shift.cta_group::1.down moves rows of 8 columns by \
one lane, but the manual does not say whether to the next or to the previous one; only \
a GPU that has this instruction can tell
    """
    raise Error(
        f"{instruction(op)} moves rows of 8 columns by one lane, but the manual does "
        "not say whether to the next or to the previous one; only a GPU that has this "
        "instruction can tell"
    )
