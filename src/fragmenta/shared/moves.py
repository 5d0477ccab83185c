"""What do ``ldmatrix``, ``stmatrix`` and ``movmatrix`` move where?

Each row of a small matrix is 16 bytes of shared memory, and one lane supplies its
address: lane ``i * rows + r`` that of row r of matrix i.  The layout of the
instruction's fragment says to which lane and register each element of a row goes.
:func:`ldmatrix_addresses` answers the opposite question: which addresses load the
fragment that an ``mma`` takes?
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.arrays.checks import as_array, batch_shape, is_whole
from fragmenta.errors import AddressError, Error, ShapeError, one_of
from fragmenta.isa.families import catalogue
from fragmenta.isa.instruction import Instruction
from fragmenta.isa.reading import instruction
from fragmenta.isa.target import check_target
from fragmenta.registers.fragment import Fragment, Words
from fragmenta.registers.words import unpack_words
from fragmenta.shared.addresses import LaneAddresses
from fragmenta.shared.descriptor import UNIT, Addresses, Swizzle, swizzled
from fragmenta.shared.tiles import Image, as_image

Order = Literal["row", "col"]
Along = Literal["m", "n", "k"]
Bytes = NDArray[np.uint8]

LANES = 32
SIDES = {"A": "mk", "B": "kn", "C": "mn", "D": "mn"}
"""The dimensions of the rows and columns of each operand."""
PADDED = {"b8x16.b6x16_p32": 6, "b8x16.b4x16_p64": 4}
"""Forms that unpack 16 elements into 16 bytes, and the bits of an element."""


# ── execution ───────────────────────────────────────────────────────────────


def ldmatrix(op: Instruction | str, image: ArrayLike, addresses: ArrayLike) -> Words:
    """Registers (…, 32, n) that an ``ldmatrix`` loads.

    ``image`` is (…, bytes) of shared memory.  ``addresses`` is (…, 32), one for each
    lane; only the first rows x matrices are used.  Each packed 6-bit or 4-bit element
    is loaded into the low bits of a byte.

    >>> import numpy as np, fragmenta as fm
    >>> op = fm.find("ldmatrix.m8n8.x1.b16")
    >>> image = np.arange(128, dtype=np.uint8)
    >>> [hex(word) for word in ldmatrix(op, image, np.arange(32) * 16 % 128)[:5, 0]]
    ['0x3020100', '0x7060504', '0xb0a0908', '0xf0e0d0c', '0x13121110']
    """
    op, part = _part(op, "ldmatrix", "D")
    memory = as_image(image)
    where = _rows(op, part, addresses, memory.shape[-1])
    rows = _gather(memory, where)
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
        raise Error(f"{family} takes an instruction of this family; given {found}")
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
    used = given[..., : matrices * rows]
    for wrong, why in (
        (used % UNIT != 0, f"is not a multiple of {UNIT}"),
        ((used < 0) | (used > size - UNIT), f"is outside the image of {size} bytes"),
    ):
        if wrong.any():
            found = np.argwhere(wrong)[0]
            lane = int(found[-1])
            raise AddressError(
                f"{op}: lane {lane} (matrix {lane // rows}, row {lane % rows}) reads "
                f"{UNIT} bytes at address {used[tuple(found)]}, which {why}"
            )
    return used.astype(np.int64)


def _gather(memory: Image, where: Addresses) -> Bytes:
    """The bytes of each row: (…, rows, 16)."""
    batch = batch_shape(image=memory.shape[:-1], addresses=where.shape[:-1])
    count = where.shape[-1]
    index = np.broadcast_to(where, (*batch, count))[..., None]
    flat = (index + np.arange(UNIT)).reshape(*batch, count * UNIT)
    memory = np.broadcast_to(memory, (*batch, memory.shape[-1]))
    found = np.take_along_axis(memory, flat, axis=-1)
    return found.reshape(*batch, count, UNIT)


def _elements(op: Instruction, part: Fragment, rows: Bytes) -> NDArray[Any]:
    """Rows of bytes as elements: (…, matrix, row, col)."""
    bits = PADDED.get(op.values["type"], part.dtype.bits)
    items = rows if bits < 8 else np.ascontiguousarray(rows).view(f"u{bits // 8}")
    if bits < 8:
        items = _unpack(rows[..., : 2 * bits], bits)
    return items.reshape(*rows.shape[:-2], *part.shape)


def _unpack(packed: Bytes, bits: int) -> Bytes:
    """Elements of 4 or 6 bits, lowest first, each in its own byte."""
    single = unpack_words(np.ascontiguousarray(packed), 1)
    grouped = single.reshape(*packed.shape[:-1], packed.shape[-1] * 8 // bits, bits)
    weights = (1 << np.arange(bits)).astype(np.uint8)
    found: Bytes = (grouped * weights).sum(axis=-1, dtype=np.uint8)
    return found


# ── the addresses that a fragment needs ─────────────────────────────────────


class _Placement(NamedTuple):
    """How an operand is stored in shared memory, and how many tiles are moved."""

    order: Order
    pitch: int | None
    start: int
    swizzle: Swizzle
    tiles: int
    along: Along | None
    packed: bool = False


class _Sources(NamedTuple):
    """Where each byte of the registers comes from: (lanes, registers, 4).

    ``unit`` is the address of 16 aligned bytes.  ``position`` is the byte within them,
    or the element if elements are packed; -1 if it is not a single one.
    """

    unit: Addresses
    position: Addresses


def ldmatrix_addresses(
    op: Instruction | str,
    operand: str,
    *,
    order: Order,
    pitch: int | None = None,
    start: int = 0,
    swizzle: Swizzle = 0,
    tiles: int = 1,
    along: Along | None = None,
    packed: bool = False,
    target: str = "sm_90a",
) -> tuple[Instruction, LaneAddresses]:
    """The ``ldmatrix`` and the lane addresses that load a fragment.

    The operand begins at ``start`` in shared memory.  It is stored by rows
    (``order="row"``: elements of a row are adjacent) or by columns, ``pitch`` bytes
    apart, by default without gaps.  ``swizzle`` is the swizzle of its 16-byte units.
    With ``packed``, sixteen 6-bit or 4-bit elements are stored in each 16-byte unit,
    whose upper bytes are unused; otherwise each element has a byte, as the
    instruction's kind defines.

    The addresses have an axis for the lanes, and before it one for the warps of a
    warpgroup.  They have a width, 16 bytes, and the number of lanes used
    (:class:`~fragmenta.LaneAddresses`).

    With ``tiles``, one instruction loads that many fragments, adjacent ``along`` m, n
    or k, into consecutive registers: an ``.x4`` loads B for two ``mma``.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k16", a="f16", d="f32")
    >>> load, addresses = ldmatrix_addresses(op, "A", order="row")
    >>> print(load, addresses[:10].tolist())
    ldmatrix.sync.aligned.m8n8.x4.b16 [0, 32, 64, 96, 128, 160, 192, 224, 256, 288]
    >>> print(ldmatrix_addresses(op, "B", order="row")[0])
    ldmatrix.sync.aligned.m8n8.x2.trans.b16
    >>> print(ldmatrix_addresses(op, "B", order="row", tiles=2, along="n")[0])
    ldmatrix.sync.aligned.m8n8.x4.trans.b16
    """
    tile = _Placement(order, pitch, start, swizzle, tiles, along, packed)
    return _addresses("ldmatrix", op, operand, tile, target)


def stmatrix_addresses(
    op: Instruction | str,
    operand: str,
    *,
    order: Order,
    pitch: int | None = None,
    start: int = 0,
    swizzle: Swizzle = 0,
    tiles: int = 1,
    along: Along | None = None,
    target: str = "sm_90a",
) -> tuple[Instruction, LaneAddresses]:
    """The ``stmatrix`` and the lane addresses that store a fragment.

    The arguments are those of :func:`ldmatrix_addresses`.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k16", a="f16", d="f16")
    >>> store, addresses = stmatrix_addresses(op, "D", order="row")
    >>> print(store, addresses[:10].tolist())
    stmatrix.sync.aligned.m8n8.x2.b16 [0, 16, 32, 48, 64, 80, 96, 112, 128, 144]
    """
    tile = _Placement(order, pitch, start, swizzle, tiles, along)
    return _addresses("stmatrix", op, operand, tile, target)


def _addresses(
    family: str, op: Instruction | str, operand: str, tile: _Placement, target: str
) -> tuple[Instruction, LaneAddresses]:
    op = instruction(op)
    part = _operand(op, operand)
    sources = _sources(part, operand, tile)
    reasons = []
    for move in _candidates(family, part, tile, check_target(target)):
        found = _solve(move, part, sources)
        if not isinstance(found, str):
            return move, found
        reasons.append(found)
    raise Error(
        f"no {family} of {target} moves {operand} of {op} "
        f"{'from' if family == 'ldmatrix' else 'to'} {tile.order}-major memory"
        + "".join(f"; {why}" for why in reasons)
    )


def _operand(op: Instruction, operand: str) -> Fragment:
    if operand not in op.fragments:
        raise Error(
            f"{op} has the fragments {one_of(op.fragments, 'and')}; given {operand!r}"
        )
    part = op.fragments[operand]
    if part.layout.data != ("row", "col") or part.layout.free:
        raise Error(f"{operand} of {op} is not a single matrix without copies")
    if part.register_bits != 32 or part.registers not in (1, 2, 4):
        raise Error(
            f"one instruction moves 1, 2 or 4 registers of 32 bits; {operand} of {op} "
            f"has {part.registers} of {part.register_bits} bits"
        )
    return part


def _candidates(
    family: str, part: Fragment, tile: _Placement, target: str
) -> list[Instruction]:
    """Forms with as many registers, in the order of the catalogue."""
    packed, registers = tile.packed, part.registers * tile.tiles
    wanted = {6: "b8x16.b6x16_p32", 4: "b8x16.b4x16_p64"}.get(part.dtype.bits)
    if packed and wanted is None:
        raise Error(f"packed is for 6-bit and 4-bit types; given {part.dtype}")
    found = [
        move
        for move in catalogue(family)
        if not move.values["space"]
        and move.supported_on(target)
        and (move.values["type"] in PADDED) == packed
        and (not packed or move.values["type"] == wanted)
        and next(iter(move.fragments.values())).registers == registers
    ]
    if not found:
        many = f"{registers} registers, {tile.tiles} x {part.registers},"
        what = f"packed {part.dtype} elements" if packed else many
        raise Error(f"{target} has no {family} for {what}")
    return found


def _sources(part: Fragment, operand: str, tile: _Placement) -> _Sources:
    """Where each byte of all tiles comes from; their registers are consecutive."""
    tiles, along, sides = tile.tiles, tile.along, SIDES.get(operand, "")
    if not is_whole(tiles) or tiles not in (1, 2, 4):
        raise Error(f"tiles must be 1, 2 or 4; given {tiles!r}")
    if along not in (None, *sides) or (along is None and tiles > 1):
        raise Error(
            f"tiles of {operand} must be adjacent along {one_of(sides)}; given "
            f"along={along!r}"
        )
    rows, cols = part.shape
    row, col = (rows * (along == sides[:1]), cols * (along == sides[1:]))
    extent = (rows + row * (tiles - 1), cols + col * (tiles - 1))
    each = [
        _source(part, tile, (number * row, number * col), extent)
        for number in range(tiles)
    ]
    return _Sources(
        *(np.concatenate(parts, axis=1) for parts in zip(*each, strict=True))
    )


def _source(
    part: Fragment, tile: _Placement, origin: tuple[int, int], extent: tuple[int, int]
) -> _Sources:
    """Where each byte of the tile that begins at ``origin`` comes from."""
    order, pitch, start, swizzle, *_ = tile
    if order not in ("row", "col"):
        raise Error(f'order must be "row" or "col"; given {order!r}')
    if tile.packed and part.container.shift:
        raise Error(
            f"{part.dtype} must be in bits {part.container.shift} and up of a byte, "
            "but unpacking puts it into the lowest bits: shift it by "
            f"{part.container.shift} afterwards"
        )
    slot = 8 if tile.packed else part.container.bits
    inner = extent[1] if order == "row" else extent[0]
    tight = -(-inner * slot // 8)
    pitch = tight if pitch is None else pitch
    whole = is_whole(start) and is_whole(pitch)
    if not whole or start % UNIT or pitch % UNIT or pitch < tight:
        raise AddressError(
            f"rows of a matrix are {UNIT} aligned bytes, so the tile must start at a "
            f"multiple of {UNIT}, and its {'rows' if order == 'row' else 'columns'} of "
            f"{tight} bytes must be a multiple of {UNIT} apart; given start {start!r}, "
            f"pitch {pitch!r}"
        )
    grid = part.layout.grid()
    row, col = grid["row"] + origin[0], grid["col"] + origin[1]
    line, place = (row, col) if order == "row" else (col, row)
    bit = (line * pitch + start) * 8 + place * slot
    shape = (part.lanes, part.registers, -1)
    address = _bytes(np.asarray(bit, np.int64).reshape(shape), slot)
    nowhere = address < 0
    unit = swizzled(np.where(nowhere, 0, address), swizzle) // UNIT * UNIT
    return _Sources(np.where(nowhere, -1, unit), np.where(nowhere, -1, address % UNIT))


def _bytes(bit: Addresses, slot: int) -> Addresses:
    """The byte address of each register byte, from the bits of its elements."""
    if slot >= 8:
        parts = bit[..., None] // 8 + np.arange(slot // 8)
        return parts.reshape(*bit.shape[:2], -1)
    groups = bit.reshape(*bit.shape[:2], -1, 8 // slot)
    first = groups[..., :1]
    adjacent = (groups == first + slot * np.arange(8 // slot)).all(axis=-1)
    whole = adjacent & (first[..., 0] % 8 == 0)
    return np.where(whole, first[..., 0] // 8, -1)


def _solve(move: Instruction, part: Fragment, sources: _Sources) -> LaneAddresses | str:
    """An address for each lane, or the reason why there is none."""
    (held,) = move.fragments.values()
    matrices, rows, _ = held.shape
    grid = held.layout.grid()
    number = np.asarray(grid["matrix"] * rows + grid["row"], np.int64)
    lanes = (LANES, held.registers, 4)
    size = held.dtype.bits // 8
    number = np.repeat(number.reshape(LANES, held.registers, -1), size, axis=-1)
    offset = grid["col"].reshape(LANES, held.registers, -1)[..., None] * size
    position = (offset + np.arange(size)).reshape(lanes)
    warps = part.lanes // LANES
    unit = sources.unit.reshape(warps, *lanes)
    wrong = sources.position.reshape(warps, *lanes) != position
    if wrong.any():
        warp, lane, register, byte = np.argwhere(wrong)[0].tolist()
        found = int(sources.position[warp * LANES + lane, register, byte])
        return f"{_short(move)} {_why(move, part, (lane, register, byte), found)}"
    addresses = np.zeros((warps, LANES), np.int64)
    addresses[:, number] = unit
    lane_of = np.broadcast_to(number, unit.shape)
    agreed = np.take_along_axis(addresses, lane_of.reshape(warps, -1), axis=1).reshape(
        unit.shape
    )
    if (agreed != unit).any():
        return f"{_short(move)} would need two addresses for one of its rows"
    # Lanes that are not used repeat the last address: sm_75 reads all of them.
    used = matrices * rows
    addresses[:, used:] = addresses[:, used - 1 : used]
    return LaneAddresses(
        addresses[0] if warps == 1 else addresses, width=UNIT, used=used
    )


def _why(
    move: Instruction, part: Fragment, place: tuple[int, int, int], found: int
) -> str:
    """Why a form is not possible: by its element size, or by its first mismatch."""
    (held,) = move.fragments.values()
    slot = part.container.bits
    if move.values["trans"] and slot != held.dtype.bits:
        return f"transposes elements of {held.dtype.bits} bits, but these have {slot}"
    lane, register, byte = place
    where = f"lane {lane}, register {register}, byte {byte}"
    if found < 0:
        return f"moves whole bytes, but the elements in {where} are not adjacent"
    return f"does not move byte {found} of a row to {where}, where it must be"


def _short(move: Instruction) -> str:
    return ".".join(
        word for word in str(move).split(".") if word not in ("sync", "aligned")
    )
