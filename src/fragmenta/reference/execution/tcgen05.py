"""Executes one ``tcgen05.mma``: what is in tensor memory afterwards.

D, the scales and the metadata are in tensor memory, B is in shared memory, and A is in
either.  Both memories are images: tensor memory is an array of 32-bit cells (…, 128
lanes, 512 columns), shared memory an array of bytes.  With ``cta_group::2`` each image
has one more axis, for the two CTAs: (…, 2, 128, 512) and (…, 2, bytes).

What no source says is refused, with the reason: scales or rows of A whose copies in
tensor memory differ, an operand that shares cells with D, a subnormal D that
``scale-input-d`` scales, ``.ashift``.  The upper half of a cell with an f16 element of
D is unspecified; it becomes 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.base.arrays.checks import Array, as_array, batch_shape, is_whole
from fragmenta.errors import (
    AddressError,
    BadCall,
    Error,
    ShapeError,
    UnsupportedTarget,
    one_of,
)
from fragmenta.reference import arithmetic
from fragmenta.reference.arithmetic.operands import Bits
from fragmenta.reference.execution.mma import numeric_model, signed
from fragmenta.reference.execution.undefined import depending
from fragmenta.reference.isa.families import check_multiplies
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.target import chosen_target, number
from fragmenta.reference.registers.dtype import DType
from fragmenta.reference.registers.tensor_fragment import (
    Image,
    TensorAddress,
    TensorFragment,
)
from fragmenta.reference.registers.tensor_metadata import TensorMetadata
from fragmenta.reference.shared.descriptor import Descriptor
from fragmenta.reference.shared.tiles import read_tile
from fragmenta.reference.shared.zero_columns import ZeroColumnMask
from fragmenta.reference.sparse.compression import Compressed

Address = int | TensorAddress

_MOST_SCALED = 15
"""The largest ``scale-input-d``."""
_SCALING_KINDS = ("f16", "tf32")


def execute(
    op: Instruction,
    tmem: ArrayLike,
    a: ArrayLike | Descriptor | TensorAddress,
    b: ArrayLike | Descriptor,
    *,
    smem: ArrayLike,
    d: Address = 0,
    enable_input_d: ArrayLike = 1,
    scale_input_d: int | None = None,
    disable_output_lane: ArrayLike | None = None,
    scale_a: Address | None = None,
    scale_b: Address | None = None,
    metadata: Address | None = None,
    zero_column_mask: int | ZeroColumnMask | None = None,
    target: str | None = None,
) -> Image:
    """Tensor memory after one ``tcgen05.mma``, with the bits of D in it.

    ``a`` is a :class:`TensorAddress`, or a descriptor: a :class:`Descriptor`, its
    64-bit word, or an array of words.  ``d``, ``scale_a``, ``scale_b`` and ``metadata``
    are addresses in tensor memory.  Leading axes of the images broadcast.  If
    ``enable_input_d`` is 0, the old D is not added.  ``scale_input_d`` is s in
    D x 2**-s, 0 to 15.  ``disable_output_lane`` has 4 words, or 8 for a pair of CTAs:
    a lane whose bit is 1 is not written.

    >>> import numpy as np, fragmenta as fm
    >>> op = fm.tcgen05("m128n32k16", kind="f16", a="f16", d="f32")
    >>> smem, a = fm.shared.tile(op, "A", np.ones((128, 16), np.float16))
    >>> smem, b = fm.shared.tile(op, "B", np.ones((16, 32), np.float16), image=smem)
    >>> tmem = op.d.pack(np.full((128, 32), 0.5, np.float32), address=64)
    >>> tmem = execute(op, tmem, a, b, smem=smem, d=64)
    >>> float(op.d.unpack(tmem, address=64)[127, 31])
    16.5
    """
    check_multiplies(op)
    where = chosen_target(op, target)
    given = {"scale_a": scale_a, "scale_b": scale_b, "metadata": metadata}
    _check_operands(
        op, where, given, scale_input_d, disable_output_lane, zero_column_mask
    )
    _check_bases(op, a, d)
    check_apart(op, d, {"a": a, **given})
    how = numeric_model(op, where)
    found = operands(
        op,
        tmem,
        a,
        b,
        smem=smem,
        d=d,
        enable_input_d=enable_input_d,
        scale_input_d=scale_input_d,
        zero_column_mask=zero_column_mask,
        **given,
    )
    result = arithmetic.multiply(
        found.a,
        found.b,
        found.c,
        how,
        index=found.index,
        scale_a=found.scale_a,
        scale_b=found.scale_b,
    )
    return placed(op, result, tmem, d, disable_output_lane)


class RawOperands(NamedTuple):
    """What a ``tcgen05.mma`` multiplies, as raw bits."""

    a: Bits
    """(…, m, k), as stored if it is sparse"""
    b: Bits
    c: Bits
    index: Bits | None  # type: ignore[assignment]
    scale_a: Bits | None
    scale_b: Bits | None


def operands(
    op: Instruction,
    tmem: ArrayLike,
    a: ArrayLike | Descriptor | TensorAddress,
    b: ArrayLike | Descriptor,
    *,
    smem: ArrayLike,
    d: Address = 0,
    enable_input_d: ArrayLike = 1,
    scale_input_d: int | None = None,
    scale_a: Address | None = None,
    scale_b: Address | None = None,
    metadata: Address | None = None,
    zero_column_mask: int | ZeroColumnMask | None = None,
) -> RawOperands:
    """The matrices that :func:`execute` multiplies; nothing is checked.

    >>> import numpy as np, fragmenta as fm
    >>> op = fm.tcgen05("m128n32k16", kind="f16", a="f16", d="f32")
    >>> smem, a = fm.shared.tile(op, "A", np.ones((128, 16), np.float16))
    >>> smem, b = fm.shared.tile(op, "B", np.ones((16, 32), np.float16), image=smem)
    >>> found = operands(op, np.zeros((128, 512), np.uint32), a, b, smem=smem)
    >>> hex(found.a[127, 15]), found.b.shape, found.c.shape
    ('0x3c00', (16, 32), (128, 32))
    """
    part = _in_tensor_memory(op, "D")
    cells = part.unpack_bits(tmem, address=d)
    old = _kept(cells.astype(part.dtype.bits_dtype, copy=False), enable_input_d)
    if scale_input_d:
        old = _scaled(old, op.types["d"], scale_input_d)
    return RawOperands(
        _matrix_a(op, tmem, a, smem),
        _matrix_b(op, b, smem, zero_column_mask),
        old,
        _columns(op, tmem, metadata),
        None if scale_a is None else _same(op, "scale_A", tmem, scale_a),
        None if scale_b is None else _same(op, "scale_B", tmem, scale_b),
    )


def unsigned_operands(
    op: Instruction, tmem: Image, smem: NDArray[np.uint8], given: Mapping[str, Any]
) -> tuple[Bits, Bits, Bits]:
    """A, B and the old D as they are in other memories, which have the same places.

    ``given`` has ``a``, ``b``, ``d`` and ``enable_input_d``.  Nothing is negated.
    """
    part, a = _in_tensor_memory(op, "D"), given["a"]
    inside = isinstance(a, TensorAddress)
    of_a = _in_tensor_memory(op, "A") if inside else None
    left = (
        _from_shared(op, "A", a, smem)
        if of_a is None
        else of_a.unpack_bits(tmem, address=a)
    )
    old = part.unpack_bits(tmem, address=given["d"])
    old = _kept(old.astype(part.dtype.bits_dtype, copy=False), given["enable_input_d"])
    return left, _from_shared(op, "B", given["b"], smem), old


def placed(
    op: Instruction,
    result: Bits,
    tmem: ArrayLike,
    d: Address,
    disable_output_lane: ArrayLike | None = None,
) -> Image:
    """Tensor memory with a result in it, but for lanes that are not written."""
    part = _in_tensor_memory(op, "D")
    after = part.place(part.container.insert(result), address=d, image=tmem)
    return _without_lanes(op, after, tmem, disable_output_lane)


def undefined(
    op: Instruction,
    tmem: Image,
    a: int | TensorAddress,
    b: int,
    *,
    smem: NDArray[np.uint8],
    d: Address = 0,
    enable_input_d: int = 1,
    scale_input_d: int | None = None,
    disable_output_lane: ArrayLike | None = None,
    scale_a: Address | None = None,
    scale_b: Address | None = None,
    metadata: Address | None = None,
    zero_column_mask: int | None = None,
) -> Image:
    """Which bits of tensor memory are undefined after one ``tcgen05.mma``.

    The images have a bit for each bit of memory, which is 1 where that is undefined.
    The other operands are those of :func:`execute`.  An element of D is undefined if
    its row of A, its column of B, the scales of one of them, or its old value is.  If
    any metadata is undefined, all elements are.

    >>> import numpy as np, fragmenta as fm
    >>> op = fm.tcgen05("m128n32k16", kind="f16", a="f16", d="f32")
    >>> smem, a = fm.shared.tile(op, "A", np.zeros((128, 16), np.float16))
    >>> smem, b = fm.shared.tile(op, "B", np.zeros((16, 32), np.float16), image=smem)
    >>> smem[a.address(5, 3, "f16")] = 1
    >>> tmem = np.zeros((128, 512), np.uint32)
    >>> tmem = undefined(op, tmem, a.encode(), b.encode(), smem=smem, d=64)
    >>> np.argwhere(tmem.any(axis=1)).tolist(), hex(tmem[5, 95])
    ([[5]], '0xffffffff')
    """
    part = _in_tensor_memory(op, "D")
    left = (
        _any_copy(op, "A", tmem, a)
        if isinstance(a, TensorAddress)
        else _from_shared(op, "A", a, smem) != 0
    )
    right = _from_shared(op, "B", b, smem) != 0
    if zero_column_mask is not None:
        zero = ZeroColumnMask.decode(zero_column_mask)
        right = right & ~zero.columns(op.shape.n, op.shape.m)
    found = depending(left, right)
    if enable_input_d:
        found = found | (part.unpack_bits(tmem, address=d) != 0)
    if scale_a is not None and scale_b is not None:
        rows, columns = (
            _any_copy(op, name, tmem, each)
            for name, each in (("scale_A", scale_a), ("scale_B", scale_b))
        )
        found = found | depending(rows, columns)
    if metadata is not None:
        found = found | _any_copy(op, "metadata", tmem, metadata).any()
    ones = np.where(found, (1 << part.dtype.bits) - 1, 0).astype(part.dtype.bits_dtype)
    after = part.place(part.container.insert(ones), address=d, image=tmem)
    return _without_lanes(op, after, tmem, disable_output_lane)


def _any_copy(
    op: Instruction, name: str, tmem: Image, address: Address
) -> NDArray[np.bool_]:
    """The elements of an operand of which any copy in tensor memory is undefined."""
    part = _in_tensor_memory(op, name)
    copies = range(_copies(part))
    bits = [part.unpack_bits(tmem, address=address, copy=each) for each in copies]
    return np.asarray(np.any(bits, axis=0), bool)


# -- what it is given ---------------------------------------------------------


def _check_operands(
    op: Instruction,
    target: str,
    addresses: dict[str, Address | None],
    scale_input_d: int | None,
    disable_output_lane: ArrayLike | None,
    zero_column_mask: int | ZeroColumnMask | None,
) -> None:
    """Refuse operands that the instruction does not have, and ask for those it has."""
    wanted = {"scale_a": op.scale_vec, "scale_b": op.scale_vec, "metadata": op.sparse}
    for name, address in addresses.items():
        if (address is not None) != bool(wanted[name]):
            raise BadCall(f"{op} {'needs' if wanted[name] else 'takes no'} {name}")
    if reason := not_known(op):
        raise Error(reason)
    plain = not (op.ws or op.scale_vec)
    if disable_output_lane is not None and not plain:
        raise BadCall(f"{op} takes no disable_output_lane")
    if zero_column_mask is not None and not op.ws:
        raise BadCall(f"{op} takes no zero_column_mask; only .ws does")
    if scale_input_d is not None:
        _check_scaling(op, target, scale_input_d)


def not_known(op: Instruction) -> str:
    """Why the results of an instruction are not known; empty if they are."""
    options = [op.values.get(name) for name in ("ashift", "lut")]
    words = [
        f"what .{option} computes is not known without a GPU"
        for option in options
        if option
    ]
    return words[0] if words else ""


def _check_scaling(op: Instruction, target: str, scale: int) -> None:
    if op.ws or op.kind not in _SCALING_KINDS:
        kinds = one_of(_SCALING_KINDS, "and")
        raise BadCall(f"{op} takes no scale_input_d; kinds {kinds} do, without .ws")
    if number(target) == 110:
        raise UnsupportedTarget("sm_110 has no scale-input-d; sm_100 to sm_107 have it")
    if not is_whole(scale) or not 0 <= scale <= _MOST_SCALED:
        raise ShapeError(f"scale_input_d is 0 to {_MOST_SCALED}; given {scale!r}")


def _check_bases(op: Instruction, a: object, d: Address) -> None:
    """Where D has 16 of 32 lanes, A in tensor memory must be in the same ones."""
    if not isinstance(a, TensorAddress) or op.layout_letter not in "CF":
        return
    first, second = TensorAddress.of(d).lane, TensorAddress.of(a).lane
    if first != second:
        raise AddressError(
            f"A and D of {op} begin at the same lane, 0 or 16; given {second} and "
            f"{first}"
        )


_PARTS = {
    "a": "A",
    "scale_a": "scale_A",
    "scale_b": "scale_B",
    "metadata": "metadata",
}
"""What operands that may be in tensor memory are called as fragments."""


def check_apart(op: Instruction, d: Address, given: Mapping[str, Any]) -> None:
    """Refuse operands in tensor memory that share cells with D.

    ``given`` are operands by name; those that are not in tensor memory are left out.

    >>> import fragmenta as fm
    >>> op = fm.tcgen05("m128n32k16", kind="f16", a="f16", d="f32")
    >>> check_apart(op, 0, {"a": TensorAddress(0, 32)})
    >>> check_apart(op, 0, {"a": TensorAddress(0, 28)})
    Traceback (most recent call last):
    fragmenta.errors.AddressError: cells of A and D of tcgen05.mma.cta_group::1\
.kind::f16 0x08080010 overlap: columns 28 to 31 of tensor memory; A is at column 28, D \
at column 0; what hardware does then is not known without a GPU
    """
    goal = TensorAddress.of(d)
    for name, part in _PARTS.items():
        address = given.get(name)
        if address is None or (name == "a" and not isinstance(address, TensorAddress)):
            continue
        at = TensorAddress.of(address)
        common = _common(op, part, at, goal)
        if common is None:
            continue
        first, last = common
        where = f"column {first}" if first == last else f"columns {first} to {last}"
        raise AddressError(
            f"cells of {part} and D of {op} overlap: {where} of tensor memory; {part} "
            f"is at column {at.column}, D at column {goal.column}; what "
            "hardware does then is not known without a GPU"
        )


@lru_cache(maxsize=4096)
def _common(
    op: Instruction, name: str, at: TensorAddress, d: TensorAddress
) -> tuple[int, int] | None:
    """The first and the last column in which an operand and D share cells."""
    one, two = _in_tensor_memory(op, name), _in_tensor_memory(op, "D")
    common = one.cells(address=at) & two.cells(address=d)
    columns = np.flatnonzero(common.any(axis=tuple(range(common.ndim - 1))))
    return (int(columns[0]), int(columns[-1])) if columns.size else None


# -- D ------------------------------------------------------------------------


def _kept(before: Bits, enable_input_d: ArrayLike) -> Bits:
    """The old D, or zero where it is not added."""
    keep = as_array(enable_input_d)
    if keep.dtype.kind not in "biu" or not np.isin(keep, (0, 1)).all():
        raise ShapeError(f"enable_input_d is 0 or 1; given {enable_input_d!r}")
    if not keep.ndim:
        return before if keep else np.zeros_like(before)
    batch_shape(d=before.shape[:-2], enable_input_d=keep.shape)
    return np.where(keep.astype(bool)[..., None, None], before, before.dtype.type(0))


def _scaled(old: Bits, of: DType, scale: int) -> Bits:
    """D times a negative power of two, where that is exact."""
    place = old.dtype.type(of.fraction_bits)
    top = (1 << of.exponent_bits) - 1
    field = old >> place & old.dtype.type(top)
    rest = old & old.dtype.type((1 << (of.bits - 1)) - 1)
    low = (rest != 0) & (field <= scale)
    if low.any():
        raise Error(
            f"scale_input_d of {scale} makes {int(low.sum())} elements of D subnormal; "
            "what hardware does with them is not known without a GPU"
        )
    moved = (rest != 0) & (field != top)
    by = old.dtype.type(scale << of.fraction_bits)
    return np.where(moved, old - by, old)


def _without_lanes(
    op: Instruction, after: Image, tmem: ArrayLike, words: ArrayLike | None
) -> Image:
    """The lanes that are not written get back what they had."""
    if words is None:
        return after
    mask, count = as_array(words), 8 if op.cta_group == 2 else 4
    if mask.dtype.kind not in "iu" or mask.shape[-1:] != (count,):
        raise ShapeError(
            f"disable_output_lane of {op} is {count} words of 32 bits; given "
            f"{mask.dtype} of shape {mask.shape}"
        )
    if mask.size and (mask.min() < -(1 << 31) or mask.max() >= 1 << 32):
        raise ShapeError("disable_output_lane has words of 32 bits; given more")
    bits = mask.astype(np.int64)[..., None] >> np.arange(32) & 1
    batch = mask.shape[:-1]
    lanes = bits.reshape(*batch, *((2, 128) if count == 8 else (128,)), 1) == 1
    return np.where(lanes, as_array(tmem).view(np.uint32), after)


# -- A, B, scales, metadata ---------------------------------------------------


def _matrix_a(
    op: Instruction,
    tmem: ArrayLike,
    a: ArrayLike | Descriptor | TensorAddress,
    smem: ArrayLike,
) -> Bits:
    """A as stored: (…, m, k), or half of k if it is sparse."""
    if isinstance(a, TensorAddress):
        return signed(op, "a", _same(op, "A", tmem, a))
    return signed(op, "a", _from_shared(op, "A", a, smem))


def _matrix_b(
    op: Instruction,
    b: ArrayLike | Descriptor,
    smem: ArrayLike,
    mask: int | ZeroColumnMask | None,
) -> Bits:
    """B: (…, k, n)."""
    if isinstance(b, TensorAddress):
        raise BadCall("B is in shared memory, never in tensor memory; given an address")
    bits = signed(op, "b", _from_shared(op, "B", b, smem))
    if mask is None:
        return bits
    if not isinstance(mask, ZeroColumnMask):
        mask = ZeroColumnMask.decode(mask)
    zero = mask.columns(op.shape.n, op.shape.m)
    return np.where(zero, bits.dtype.type(0), bits)


def _from_shared(
    op: Instruction, name: str, descriptor: ArrayLike | Descriptor, smem: ArrayLike
) -> Bits:
    """A or B from shared memory; of a pair, each CTA has half of the rows or columns.

    Both CTAs use the same descriptor, each in its own memory.
    """
    if op.cta_group != 2:
        return read_tile(op, name, smem, descriptor)
    image = as_array(smem)
    if image.ndim < 2 or image.shape[-2] != 2:
        raise ShapeError(
            f"cta_group::2 reads the shared memory of two CTAs: (…, 2, bytes); given "
            f"shape {image.shape}"
        )
    words = descriptor
    if not isinstance(descriptor, Descriptor):
        listed = as_array(descriptor)
        words = listed[..., None] if listed.ndim else descriptor
    return join_pair(read_tile(op, name, image, words), name)


def join_pair(halves: Array, name: str) -> Array:
    """One matrix from what two CTAs hold: rows of A, columns of B.

    >>> join_pair(np.arange(4).reshape(2, 2, 1), "A").tolist()
    [[0], [1], [2], [3]]
    >>> join_pair(np.arange(4).reshape(2, 2, 1), "B").tolist()
    [[0, 2], [1, 3]]
    """
    *batch, _, rows, columns = halves.shape
    if name == "A":
        return halves.reshape(*batch, 2 * rows, columns)
    return np.moveaxis(halves, -3, -2).reshape(*batch, rows, 2 * columns)


def _in_tensor_memory(op: Instruction, name: str) -> TensorFragment:
    part = op.fragment(name)
    assert isinstance(part, TensorFragment)
    return part


def _copies(part: TensorFragment) -> int:
    """How often an operand is in tensor memory."""
    sizes = part.layout.sizes
    return prod(sizes[each] for each in part.layout.free if each != "base")


def _same(op: Instruction, name: str, tmem: ArrayLike, address: Address) -> Bits:
    """An operand in tensor memory; its copies must be equal.

    Which lanes read which copy is not published, so copies that differ are refused.
    """
    part = _in_tensor_memory(op, name)
    copies = _copies(part)
    first = part.unpack_bits(tmem, address=address)
    for copy in range(1, copies):
        other = part.unpack_bits(tmem, address=address, copy=copy)
        if not np.array_equal(first, other):
            *_, row, col = (int(i) for i in np.argwhere(first != other)[0])
            place = part.where(row, col, address=address)
            raise Error(
                f"{name} has {copies} copies in tensor memory, and they differ: "
                f"element ({row}, {col}) at {place}, and at {place.copies[copy - 1]}; "
                "which one is read is not known without a GPU"
            )
    return first


def _columns(op: Instruction, tmem: ArrayLike, metadata: Address | None) -> Bits | None:
    """The logical column of each stored value."""
    if metadata is None:
        return None
    _same(op, "metadata", tmem, metadata)
    part, granularity = op.metadata, op.granularity
    assert isinstance(part, TensorMetadata)
    assert granularity is not None
    codes = part.unpack(tmem, address=metadata)
    values = np.empty((*codes.shape[:-1], op.stored_k), np.uint8)
    return Compressed(values, codes, granularity).columns()
