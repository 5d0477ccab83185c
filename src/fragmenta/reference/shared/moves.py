"""``ldmatrix``, ``stmatrix`` and ``movmatrix``, executed.

Each row of a small matrix is 16 bytes of shared memory, or 8 with ``.s8.s4``.  One lane
supplies its address: lane ``i * rows + r`` that of row r of matrix i.  The layout of
the instruction's fragment says to which lane and register each element of a row goes.
:mod:`fragmenta.reference.shared.loops` answers the opposite question: which addresses
load the fragments that an ``mma`` takes?
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.base.arrays.checks import Array, as_array, batch_shape
from fragmenta.errors import AddressError, BadCall, ShapeError
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.searching import instruction
from fragmenta.reference.isa.tables.moves import PACKINGS, row_bytes
from fragmenta.reference.registers.fragment import Fragment, Words
from fragmenta.reference.registers.words import unpack_words
from fragmenta.reference.shared.descriptor import UNIT, Addresses
from fragmenta.reference.shared.tiles import Image, as_image

Bytes = NDArray[np.uint8]

LANES = 32


# ── execution ───────────────────────────────────────────────────────────────


def ldmatrix(op: Instruction | str, image: ArrayLike, addresses: ArrayLike) -> Words:
    """Registers (…, 32, n) that an ``ldmatrix`` loads.

    ``image`` is (…, bytes) of shared memory.  ``addresses`` is (…, 32), one for each
    lane; only the first rows x matrices are used.  Each packed 6-bit or 4-bit element
    is loaded into the low bits of a byte; with ``.s8.s4``, its sign fills the others.

    >>> import numpy as np, fragmenta as fm
    >>> op = fm.find("ldmatrix.m8n8.x1.b16")
    >>> image = np.arange(128, dtype=np.uint8)
    >>> [hex(word) for word in ldmatrix(op, image, np.arange(32) * 16 % 128)[:5, 0]]
    ['0x3020100', '0x7060504', '0xb0a0908', '0xf0e0d0c', '0x13121110']
    """
    op, part = _part(op, "ldmatrix", "D")
    memory = as_image(image)
    where = _rows(op, part, addresses, memory.shape[-1])
    rows = _gather(memory, where, row_bytes(op))
    return part.pack(_elements(op, part, rows))


def stmatrix(
    op: Instruction | str,
    image: ArrayLike,
    addresses: ArrayLike,
    registers: ArrayLike,
) -> Image:
    """The image after an ``stmatrix``, as a new array.

    Lanes that store different bytes to the same address are refused, because it is
    not defined which of them remain.

    >>> import numpy as np, fragmenta as fm
    >>> op = fm.find("stmatrix.m8n8.x1.b16")
    >>> words = np.arange(32, dtype=np.uint32).reshape(32, 1)
    >>> after = stmatrix(op, np.zeros(128, np.uint8), np.arange(32) * 16 % 128, words)
    >>> after[:20:4], after.view(np.uint32)[31]
    (array([0, 1, 2, 3, 4], dtype=uint8), np.uint32(31))
    """
    op, part = _part(op, "stmatrix", "A")
    memory = as_image(image)
    where = _rows(op, part, addresses, memory.shape[-1])
    elements = part.unpack_bits(registers)
    batch = batch_shape(
        image=memory.shape[:-1],
        addresses=where.shape[:-1],
        registers=elements.shape[:-3],
    )
    count = where.shape[-1]
    rows = np.ascontiguousarray(elements).view(np.uint8)
    rows = np.broadcast_to(
        rows.reshape(*elements.shape[:-3], count, UNIT), (*batch, count, UNIT)
    )
    where = np.broadcast_to(where, (*batch, count))
    after = np.array(np.broadcast_to(memory, (*batch, memory.shape[-1])))
    index = where[..., None] + np.arange(UNIT)
    flat = index.reshape(*batch, count * UNIT)
    np.put_along_axis(after, flat, rows.reshape(flat.shape), axis=-1)
    stored = np.take_along_axis(after, flat, axis=-1).reshape(rows.shape)
    if (stored != rows).any():
        lane = int(np.argwhere((stored != rows).any(axis=-1))[0][-1])
        raise AddressError(
            f"{op}: lane {lane} and another lane store different rows to the same "
            "address; it is not defined which of them remains"
        )
    return after


def movmatrix(op: Instruction | str, registers: ArrayLike) -> Words:
    """Registers that hold the transposed matrix.

    >>> import numpy as np, fragmenta as fm
    >>> op = fm.find("movmatrix")
    >>> words = movmatrix(op, np.arange(32, dtype=np.uint32).reshape(32, 1))
    >>> [hex(word) for word in words[:3, 0]]
    ['0x40000', '0xc0008', '0x140010']
    """
    op, source = _part(op, "movmatrix", "A")
    return op.fragments["D"].pack(source.unpack_bits(registers))


def _part(
    op: Instruction | str, family: str, name: str
) -> tuple[Instruction, Fragment]:
    found = instruction(op)
    if found.family != family:
        raise BadCall(f"{family} takes an instruction of this family; given {found}")
    return found, found.fragments[name]


def _rows(
    op: Instruction, part: Fragment, addresses: ArrayLike, size: int
) -> Addresses:
    """The addresses that are used, checked: (…, rows of all matrices)."""
    given = as_array(addresses)
    if given.shape[-1:] != (LANES,) or given.dtype.kind not in "iu":
        raise ShapeError(
            f"{op} takes {LANES} byte addresses, one for each lane: integers of shape "
            f"(…, {LANES}); given {given.dtype} of shape {given.shape}"
        )
    matrices, rows, _ = part.shape
    used, width = given[..., : matrices * rows], row_bytes(op)
    for wrong, why in (
        (used % width != 0, f"is not a multiple of {width}"),
        ((used < 0) | (used > size - width), f"is outside the image of {size} bytes"),
    ):
        if wrong.any():
            found = np.argwhere(wrong)[0]
            lane = int(found[-1])
            raise AddressError(
                f"{op}: lane {lane} (matrix {lane // rows}, row {lane % rows}) reads "
                f"{width} bytes at address {used[tuple(found)]}, which {why}"
            )
    return used.astype(np.int64)


def _gather(memory: Image, where: Addresses, width: int) -> Bytes:
    """The bytes of each row: (…, rows, width)."""
    batch = batch_shape(image=memory.shape[:-1], addresses=where.shape[:-1])
    count = where.shape[-1]
    index = np.broadcast_to(where, (*batch, count))[..., None]
    flat = (index + np.arange(width)).reshape(*batch, count * width)
    memory = np.broadcast_to(memory, (*batch, memory.shape[-1]))
    found = np.take_along_axis(memory, flat, axis=-1)
    return found.reshape(*batch, count, width)


def _elements(op: Instruction, part: Fragment, rows: Bytes) -> Array:
    """Rows of bytes as elements: (…, matrix, row, col)."""
    packed = PACKINGS.get(op.values["type"])
    if packed is None:
        items: Array = np.ascontiguousarray(rows).view(f"u{part.dtype.bits // 8}")
    else:
        items = _unpack(rows[..., : 2 * packed.bits], packed.bits)
        if packed.signed:
            items = (items << (8 - packed.bits)).view(np.int8) >> (8 - packed.bits)
    made: Array = items.reshape(*rows.shape[:-2], *part.shape)
    return made


def _unpack(packed: Bytes, bits: int) -> Bytes:
    """Elements of 4 or 6 bits, lowest first, each in its own byte."""
    single = unpack_words(np.ascontiguousarray(packed), 1)
    grouped = single.reshape(*packed.shape[:-1], packed.shape[-1] * 8 // bits, bits)
    weights = (1 << np.arange(bits)).astype(np.uint8)
    found: Bytes = (grouped * weights).sum(axis=-1, dtype=np.uint8)
    return found
