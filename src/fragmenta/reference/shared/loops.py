"""The ``ldmatrix`` or ``stmatrix`` that move a tile, and their addresses.

Of all instructions and groups of fragments that fit, the one with the fewest
instructions is taken.  If nothing fits, the error says why, and what works instead.
"""

from __future__ import annotations

from collections.abc import Iterator

from fragmenta.base.arrays.checks import is_whole
from fragmenta.errors import BadCall, Error, one_of
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.searching import instruction
from fragmenta.reference.isa.target import check_target
from fragmenta.reference.shared.addresses import LaneAddresses
from fragmenta.reference.shared.matching import (
    SIDES,
    Along,
    Family,
    Grouping,
    TileGrid,
    addressed,
    groupings,
)
from fragmenta.reference.shared.matrix_loop import MatrixLoop
from fragmenta.reference.shared.placement import Order, Placed, Placement
from fragmenta.reference.shared.swizzles import AnySwizzle

OTHER_TARGETS = ("sm_90a", "sm_100a", "sm_120a")
"""Targets that have moves which others lack."""


def ldmatrix_loop(
    op: Instruction | str,
    operand: str,
    *,
    tile: tuple[int, int] | None = None,
    order: Order,
    pitch: int | None = None,
    start: int = 0,
    swizzle: AnySwizzle = 0,
    span: int | None = None,
    num: str | None = None,
    along: Along | None = None,
    packed: bool = False,
    target: str = "sm_90a",
) -> MatrixLoop:
    """The ``ldmatrix`` instructions that load all fragments of a tile.

    ``tile`` is (rows, columns) of the operand: (m, k) of A, (k, n) of B; by default
    one fragment.  It begins at ``start`` in shared memory.  It is stored by rows
    (``order="row"``: elements of a row are adjacent) or by columns, ``pitch`` bytes
    apart, by default without gaps.  ``swizzle`` is 0, 32, 64, 128, ``"128/32"`` or an
    :class:`~fragmenta.shared.XorSwizzle`.  It takes addresses, so address 0 must be a
    multiple of ``loop.memory.repeat`` in shared memory.  With ``span``, rows are cut
    into spans of so many bytes, and all rows of one span come first: so do tensor-map
    copies of rows that are longer than the swizzle.

    ``num`` is ``"x1"``, ``"x2"`` or ``"x4"``, by default the largest that fits.  If it
    has more registers than a fragment, it loads several, adjacent ``along`` m, n or k.
    With ``packed``, sixteen 6-bit or 4-bit elements are in each 16 bytes.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k16", a="f16", d="f32")
    >>> loop = fm.shared.ldmatrix_loop(op, "A", tile=(64, 32), order="row", pitch=80)
    >>> print(loop)
    8 ldmatrix.sync.aligned.m8n8.x4.b16: k 2, m 4
    A: 64 x 32 f16, row-major, rows 80 bytes apart, no swizzle
    row = L0 L1 L2 L3 m0 m1  col = U0 U1 U2 L4 k0
    no bank conflicts: 32 turns for 32 phases of 8 instructions
    """
    placed: Placed = {
        "order": order,
        "pitch": pitch,
        "start": start,
        "swizzle": swizzle,
    }
    placed |= {"span": span, "packed": packed}
    return find_loop("ldmatrix", op, operand, tile, placed, (num, along), target)


def stmatrix_loop(
    op: Instruction | str,
    operand: str,
    *,
    tile: tuple[int, int] | None = None,
    order: Order,
    pitch: int | None = None,
    start: int = 0,
    swizzle: AnySwizzle = 0,
    span: int | None = None,
    num: str | None = None,
    along: Along | None = None,
    target: str = "sm_90a",
) -> MatrixLoop:
    """The ``stmatrix`` instructions that store all fragments of a tile.

    The arguments are those of :func:`ldmatrix_loop`; C and D are (m, n).  D of
    ``wgmma`` has many registers, so one fragment takes several instructions.

    >>> import fragmenta as fm
    >>> op = fm.wgmma("m64n64k16", a="f16", d="f16")
    >>> print(fm.shared.stmatrix_loop(op, "D", order="row", swizzle=128))
    4 stmatrix.sync.aligned.m8n8.x4.b16 in each of 4 warps: m 1, n 1, part 4
    D: 64 x 64 f16, row-major, rows 128 bytes apart, 128-byte swizzle
    row = L0 L1 L2 L3 W0 W1  col = U0 U1 U2 L4 part0 part1
    no bank conflicts: 64 turns for 64 phases of 16 instructions
    """
    placed: Placed = {
        "order": order,
        "pitch": pitch,
        "start": start,
        "swizzle": swizzle,
    }
    placed |= {"span": span}
    return find_loop("stmatrix", op, operand, tile, placed, (num, along), target)


def only_as(
    operand: str, found: list[str], chosen: tuple[str | None, str | None]
) -> str:
    """The instructions that exist, and what was given instead.

    >>> only_as("A", ["x4", "x2"], ("x4", "k"))
    'x4 or x2; given x4 along k; none of them loads more than one A, so leave along out'
    """
    num, along = chosen
    asked = " ".join(word for word in (num, along and f"along {along}") if word)
    single = along and not any("along" in each for each in found)
    none = "none of them loads" if len(found) > 1 else "it does not load"
    hint = f"; {none} more than one {operand}, so leave along out" if single else ""
    return f"{one_of(found)}; given {asked}{hint}"


def find_loop(
    family: Family,
    op: Instruction | str,
    operand: str,
    shape: tuple[int, int] | None,
    placed: Placed,
    chosen: tuple[str | None, str | None] = (None, None),
    target: str = "sm_90a",
) -> MatrixLoop:
    """The first loop that does it; ``placed`` is how the tile is stored."""
    tiles = TileGrid.of(instruction(op), operand, shape)
    memory = Placement.of(tiles.part, tiles.shape, **placed)
    _check_chosen(operand, *chosen)
    (num, along), found, reasons = chosen, [], []
    for loop in tried(family, tiles, memory, target):
        if isinstance(loop, str):
            reasons.append(loop)
        elif num in (None, loop.group.num) and along in (None, loop.along):
            return loop
        else:
            found.append(str(loop.group))
    where = {"row": "row-major", "col": "column-major"}[memory.order]
    if found:
        only = only_as(operand, list(dict.fromkeys(found)), chosen)
        raise BadCall(f"{family} moves {operand} of this {where} tile as {only}")
    raise BadCall(
        f"no {family} of {target} moves {operand} of {tiles.op} "
        f"{'from' if family == 'ldmatrix' else 'to'} {where} memory"
        + "".join(f"; {why}" for why in dict.fromkeys(reasons))
        + _instead(family, tiles, memory, target)
    )


def tried(
    family: Family, tiles: TileGrid, memory: Placement, target: str
) -> Iterator[MatrixLoop | str]:
    """All loops, the one with the fewest instructions first, and why others fail."""
    found: list[Grouping] = []
    for group in groupings(family, tiles, memory.packed, check_target(target)):
        if any(_alike(group, other) for other in found):
            continue
        rows = addressed(group, tiles, memory)
        if isinstance(rows, str):
            yield rows
        else:
            found.append(group)
            yield MatrixLoop(tiles, memory, group, rows)


def _alike(one: Grouping, other: Grouping) -> bool:
    """Whether two groupings differ only in the order of registers."""
    return one._replace(tiles_first=other.tiles_first) == other


def check_choice(name: str, given: object, allowed: tuple[str, ...]) -> None:
    """Refuse a word that is none of these; None is no choice.

    >>> check_choice("num", "x3", ("x1", "x2", "x4"))
    Traceback (most recent call last):
    fragmenta.errors.BadCall: num must be 'x1', 'x2' or 'x4'; given 'x3'
    """
    if given is None or (isinstance(given, str) and given in allowed):
        return
    raise BadCall(f"{name} must be {one_of(map(repr, allowed))}; given {given!r}")


def _check_chosen(
    operand: str, num: object, along: object, several: bool = False
) -> None:
    check_choice("num", num, ("x1", "x2", "x4"))
    sides = SIDES[operand]
    known = along is None or (isinstance(along, str) and along in tuple(sides))
    if not known or (along is None and several):
        raise BadCall(
            f"tiles of {operand} must be adjacent along {one_of(sides)}; given "
            f"along={along!r}"
        )


def _instead(family: Family, tiles: TileGrid, memory: Placement, target: str) -> str:
    """What does work: the other order, or another target."""
    other: Order = "row" if memory.order == "col" else "col"
    ways = [(other, target), *((memory.order, chip) for chip in OTHER_TARGETS)]
    found: dict[str, str] = {}
    for order, chip in ways:
        move = _possible(family, tiles, order, memory.packed, chip)
        if move is not None and order == memory.order:
            found.setdefault(str(move), f"{chip} has {move}")
        elif move is not None:
            where = {"row": "row-major", "col": "column-major"}[order]
            found[where] = f"{where} memory works, with {move}"
    if tiles.part.dtype.bits == 32 and tiles.operand in "CD":
        found["wide"] = "convert to 16 bits first: D of the same mma with d='f16' works"
    return "".join(f"; {each}" for each in found.values())


def _possible(
    family: Family, tiles: TileGrid, order: Order, packed: bool, target: str
) -> Instruction | None:
    """The instruction that moves such a tile, if there is one."""
    try:
        memory = Placement.of(tiles.part, tiles.shape, order=order, packed=packed)
        for loop in tried(family, tiles, memory, target):
            if not isinstance(loop, str):
                return loop.move
    except Error:
        pass
    return None


# ── one instruction ─────────────────────────────────────────────────────────


def ldmatrix_addresses(
    op: Instruction | str,
    operand: str,
    *,
    order: Order,
    pitch: int | None = None,
    start: int = 0,
    swizzle: AnySwizzle = 0,
    tiles: int = 1,
    along: Along | None = None,
    packed: bool = False,
    target: str = "sm_90a",
) -> tuple[Instruction, LaneAddresses]:
    """The ``ldmatrix`` and the lane addresses that load a fragment.

    It is the only step of an :func:`ldmatrix_loop`, whose arguments these are.  With
    ``tiles``, one instruction loads that many fragments, adjacent ``along`` m, n or k,
    into consecutive registers: an ``.x4`` loads B for two ``mma``.

    The addresses have an axis for the lanes, and before it one for the warps of a
    warpgroup.  They have a width, 16 bytes, and the number of lanes used
    (:class:`~fragmenta.shared.LaneAddresses`).

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
    placed: Placed = {
        "order": order,
        "pitch": pitch,
        "start": start,
        "swizzle": swizzle,
    }
    placed |= {"packed": packed}
    return single_loop("ldmatrix", op, operand, placed, tiles, along, target).first


def stmatrix_addresses(
    op: Instruction | str,
    operand: str,
    *,
    order: Order,
    pitch: int | None = None,
    start: int = 0,
    swizzle: AnySwizzle = 0,
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
    placed: Placed = {
        "order": order,
        "pitch": pitch,
        "start": start,
        "swizzle": swizzle,
    }
    return single_loop("stmatrix", op, operand, placed, tiles, along, target).first


def single_loop(
    family: Family,
    op: Instruction | str,
    operand: str,
    placed: Placed,
    tiles: int = 1,
    along: Along | None = None,
    target: str = "sm_90a",
) -> MatrixLoop:
    """A loop of one step, in which registers are consecutive."""
    op = instruction(op)
    one = TileGrid.of(op, operand, None)
    if not is_whole(tiles) or tiles not in (1, 2, 4):
        raise BadCall(f"tiles must be 1, 2 or 4; given {tiles!r}")
    _check_chosen(operand, None, along, several=tiles > 1)
    count = tiles * one.part.registers
    if count not in (1, 2, 4):
        raise BadCall(
            f"one instruction moves 1, 2 or 4 registers of 32 bits; {tiles} x "
            f"{operand} of {op} are {count}, which fm.shared.{family}_loop moves with "
            "several"
        )
    rows, cols = (
        size * (tiles if side == along else 1)
        for side, size in zip(SIDES[operand], one.part.shape, strict=True)
    )
    # Of one fragment, ``along`` says nothing.
    chosen = (None, along if tiles > 1 else None)
    loop = find_loop(family, op, operand, (rows, cols), placed, chosen, target)
    if set(loop.steps.values()) != {1} or loop.group.tiles_first:
        raise BadCall(
            f"no {family} of {target} moves {tiles} x {operand} of {op} into "
            f"consecutive registers; fm.shared.{family}_loop has {loop.move}"
        )
    return loop
