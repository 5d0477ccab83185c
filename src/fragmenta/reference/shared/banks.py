"""Bank conflicts: how many passes an access to shared memory takes.

Shared memory has 32 banks, each 4 bytes wide.  A warp's access is served in *phases*:
all 32 lanes at once if each takes 4 bytes or less, 16 lanes if each takes 8 bytes, 8
lanes if each takes 16 bytes.  (A phase of an ``ldmatrix`` is one matrix: eight rows of
16 bytes.)  In one turn, a bank delivers one word to all lanes of the phase that need
it.  Every further word of the same bank takes another turn.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias, TypedDict

import numpy as np
from numpy.typing import ArrayLike

from fragmenta.base.arrays.checks import as_array
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import AddressError, ShapeError, one_of, ranges
from fragmenta.reference.shared.addresses import WIDTHS, LaneAddresses, check_width
from fragmenta.reference.shared.descriptor import (
    LIMIT,
    UNIT,
    Addresses,
    Swizzle,
    swizzled,
)
from fragmenta.reference.shared.swizzles import (
    WGMMA_SWIZZLES,
    AnySwizzle,
    unit_swizzle,
    xor_swizzle,
)

LaneAccess: TypeAlias = Literal["ldmatrix", "rows", "column"]

BANKS = 32
WORD = 4
LANES = 32
IDLE = -1
"""The address of a lane without an access."""

#: The accesses of a warp to a tile, 16 bytes for each lane.
ACCESSES: dict[LaneAccess, str] = {
    "ldmatrix": "lanes 8i to 8i + 7 take the same 16 bytes of eight rows",
    "rows": "adjacent lanes take adjacent 16 bytes, row after row",
    "column": "each lane takes the same 16 bytes of its own row",
}


@dataclass(frozen=True)
class Phase:
    """Lanes that are served together."""

    lanes: tuple[int, ...]
    words: tuple[tuple[int, ...], ...]
    """For each bank, the addresses of the words that lanes take from it."""

    @property
    def degree(self) -> int:
        """The most words taken from one bank; 1 means no conflict."""
        return max(len(words) for words in self.words)

    @property
    def busiest(self) -> tuple[int, ...]:
        """The banks from which the most words are taken."""
        return tuple(
            bank for bank, words in enumerate(self.words) if len(words) == self.degree
        )


class PhaseRecord(TypedDict):
    """A phase as a flat record."""

    phase: int
    first_lane: int
    last_lane: int
    degree: int
    busiest: list[int]


@dataclass(frozen=True)
class Conflicts:
    """The cost of one access of a warp; ``str()`` shows it phase by phase."""

    width: int
    phases: tuple[Phase, ...]

    @property
    def degree(self) -> int:
        """The degree of the worst phase: 1 means no conflict, 8 an 8-way conflict."""
        return max(phase.degree for phase in self.phases)

    @property
    def turns(self) -> int:
        """All turns; without conflicts there is one for each phase."""
        return sum(phase.degree for phase in self.phases)

    def records(self) -> list[PhaseRecord]:
        """One flat record for each phase.

        >>> bank_conflicts(range(0, 1024, 32), width=4).records()[0]["degree"]
        8
        """
        return [
            {
                "phase": number,
                "first_lane": phase.lanes[0],
                "last_lane": phase.lanes[-1],
                "degree": phase.degree,
                "busiest": list(phase.busiest),
            }
            for number, phase in enumerate(self.phases)
        ]

    def __str__(self) -> str:
        free = "no bank conflicts" if self.degree <= 1 else f"{self.degree}-way"
        taken = [phase for phase in self.phases if phase.degree]
        lines = [f"{free}: {self.turns} turns for {len(taken)} phases"]
        for phase in taken:
            lanes = f"lanes {phase.lanes[0]:2} to {phase.lanes[-1]:2}"
            turns = f"{phase.degree} turn{'s' if phase.degree > 1 else ''}"
            where = f", banks {ranges(phase.busiest)}" if phase.degree > 1 else ""
            lines.append(f"  {lanes}: {turns}{where}")
        return "\n".join(lines)


def bank_conflicts(addresses: ArrayLike, width: int | None = None) -> Conflicts:
    """The cost of a warp's access to 32 byte addresses, ``width`` bytes at each.

    The addresses from :func:`fragmenta.shared.ldmatrix_addresses` and
    :func:`fragmenta.shared.stmatrix_addresses` have a width, and the number of lanes
    used.  With plain integers, ``width`` must be given.  A lane with address -1 is not
    used.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k16", a="f16", d="f32")
    >>> _, rows = fm.shared.ldmatrix_addresses(op, "B", order="col", pitch=48)
    >>> print(bank_conflicts(rows))
    no bank conflicts: 2 turns for 2 phases
      lanes  0 to  7: 1 turn
      lanes  8 to 15: 1 turn
    >>> bank_conflicts(range(0, 128, 4), width=4).degree
    1
    >>> print(bank_conflicts([128 * row for row in range(32)], width=16))
    8-way: 32 turns for 4 phases
      lanes  0 to  7: 8 turns, banks 0-3
      lanes  8 to 15: 8 turns, banks 0-3
      lanes 16 to 23: 8 turns, banks 0-3
      lanes 24 to 31: 8 turns, banks 0-3
    """
    given = as_array(list(addresses) if isinstance(addresses, range) else addresses)
    if given.shape != (LANES,) or given.dtype.kind not in "iu":
        warps = given.ndim > 1 and given.shape[-1] == LANES
        raise ShapeError(
            f"addresses must be {LANES} integers, one for each lane; given "
            f"{given.dtype} of shape {given.shape}"
            + (", so pass one warp at a time" if warps else "")
        )
    taken = _width(addresses, width)
    if (given >= LIMIT).any():
        lane = int((given >= LIMIT).argmax())
        raise AddressError(
            f"byte addresses in shared memory must be below {LIMIT}; given "
            f"{int(given[lane])} for lane {lane}"
        )
    where: Addresses = np.array(given, np.int64)
    if isinstance(addresses, LaneAddresses) and addresses.used is not None:
        where[addresses.used :] = IDLE
    wrong = (where < IDLE) | ((where >= 0) & (where % taken != 0))
    if wrong.any():
        lane = int(wrong.argmax())
        raise AddressError(
            f"lane {lane} takes {taken} bytes at address {where[lane]}, which is not a "
            f"multiple of {taken}"
        )
    size = min(LANES, LANES * WORD // taken)
    starts = range(0, LANES, size)
    return Conflicts(taken, tuple(_phase(where, at, size, taken) for at in starts))


def degrees(addresses: ArrayLike, width: int) -> Addresses:
    """The degree of each phase of many accesses: (…, lanes) gives (…, phases).

    It is what :func:`bank_conflicts` finds, for all of them at once, and without a
    check.  A phase without lanes has degree 0.

    >>> degrees([[128 * row for row in range(32)], range(0, 512, 16)], 16)
    array([[8, 8, 8, 8],
           [1, 1, 1, 1]])
    """
    cell = max(width, WORD)
    lanes = BANKS * WORD // cell  # in a phase; there are as many groups of banks
    where = np.asarray(addresses, np.int64)
    cells = np.where(where < 0, IDLE, where // cell)
    cells = np.sort(cells.reshape(*where.shape[:-1], -1, lanes), axis=-1)
    first = np.ones(cells.shape, bool)
    first[..., 1:] = cells[..., 1:] != cells[..., :-1]
    taken = first & (cells >= 0)
    bank = np.arange(lanes)[:, None]
    each = ((cells % lanes)[..., None, :] == bank) & taken[..., None, :]
    found: Addresses = each.sum(axis=-1).max(axis=-1)
    return found


def _width(addresses: object, given: int | None) -> int:
    """The bytes that each lane takes, from the addresses or as given."""
    known = addresses.width if isinstance(addresses, LaneAddresses) else None
    if given is None and known is None:
        raise AddressError(
            "plain addresses do not say how many bytes a lane takes: give width="
            f"{one_of(WIDTHS)}; the results of ldmatrix_addresses and "
            "stmatrix_addresses have a width until lanes are selected or changed"
        )
    if known is None:
        return check_width(given)
    if given is not None and check_width(given) != known:
        raise AddressError(
            f"these addresses have width {known}; given width={given}; with "
            "np.asarray(addresses) any width can be given"
        )
    return known


def _phase(where: Addresses, first: int, size: int, width: int) -> Phase:
    lanes = range(first, first + size)
    wanted: list[set[int]] = [set() for _ in range(BANKS)]
    for address in where[first : first + size].tolist():
        if address < 0:
            continue
        for word in range(address // WORD, (address + width - 1) // WORD + 1):
            wanted[word % BANKS].add(word * WORD)
    return Phase(tuple(lanes), tuple(tuple(sorted(words)) for words in wanted))


# ── accesses to a tile ──────────────────────────────────────────────────────


class RowTile(NamedTuple):
    """Rows of bytes in shared memory, ``pitch`` bytes apart, swizzled or not.

    Rows of 128 bytes with a swizzle of 128 are the K-major tile of ``wgmma``, of
    ``tcgen05`` and of a tensor map.
    """

    rows: int
    row_bytes: int
    swizzle: AnySwizzle = 0
    pitch: int | None = None

    def check(self) -> None:
        """Refuse a tile that does not consist of whole 16-byte units."""
        unit_swizzle(self.swizzle)
        step = self.pitch if self.pitch is not None else self.row_bytes
        if self.rows < 1 or self.row_bytes < UNIT or self.row_bytes % UNIT:
            raise AddressError(
                f"a tile must have rows of a multiple of {UNIT} bytes; given "
                f"{self.rows} rows of {self.row_bytes}"
            )
        if step < self.row_bytes or step % UNIT:
            raise AddressError(
                f"the pitch of rows of {self.row_bytes} bytes must be at least that, "
                f"and a multiple of {UNIT}; given pitch {self.pitch}"
            )

    def address(self, row: ArrayLike, unit: ArrayLike) -> Addresses:
        """The address of a 16-byte unit of a row.

        >>> RowTile(8, 128, swizzle=128).address(1, 0)
        np.int64(144)
        """
        step = self.row_bytes if self.pitch is None else self.pitch
        linear = np.asarray(row) * step + np.asarray(unit) * UNIT
        found: Addresses = swizzled(linear, self.swizzle)
        return found


def access_addresses(tile: RowTile, access: LaneAccess = "ldmatrix") -> LaneAddresses:
    """The 32 addresses of one of the :data:`ACCESSES`.

    Each lane takes 16 bytes; lanes beyond the tile are not used (-1).

    >>> access_addresses(RowTile(8, 128), "ldmatrix")[:9].tolist()
    [0, 128, 256, 384, 512, 640, 768, 896, 16]
    """
    tile.check()
    if access not in ACCESSES:
        raise AddressError(f"access must be {one_of(ACCESSES)}; given {access!r}")
    lane = np.arange(LANES)
    units = tile.row_bytes // UNIT
    if access == "rows":
        row, unit = lane // units, lane % units
    elif access == "column":
        row, unit = lane, np.zeros_like(lane)
    else:  # matrices one below the other first, then side by side
        down = max(1, min(4, tile.rows // 8))
        matrix = lane // 8
        row, unit = lane % 8 + 8 * (matrix % down), matrix // down
    inside = (row < tile.rows) & (unit < units)
    found = np.where(inside, tile.address(row, unit), IDLE)
    return LaneAddresses(found, width=UNIT)


def conflict_picture(
    rows: int,
    row_bytes: int,
    swizzle: Swizzle = 0,
    access: LaneAccess = "ldmatrix",
    pitch: int | None = None,
) -> str:
    """A picture of a tile in shared memory, and the cost of an access.

    A line is 128 bytes.  A cell is 16 bytes, so four banks; it shows the row and the
    16-byte unit of that row that are stored there.  The cells of the first phase are
    in brackets; two of them in one column are a conflict.

    >>> print(conflict_picture(8, 64, swizzle=64))
    8 rows of 64 bytes, 64-byte swizzle; ldmatrix
    banks       0-3      4-7     8-11    12-15    16-19    20-23    24-27    28-31
        0    [r0.0]    r0.1     r0.2     r0.3    [r1.0]    r1.1     r1.2     r1.3
      128     r2.1    [r2.0]    r2.3     r2.2     r3.1    [r3.0]    r3.3     r3.2
      256     r4.2     r4.3    [r4.0]    r4.1     r5.2     r5.3    [r5.0]    r5.1
      384     r6.3     r6.2     r6.1    [r6.0]    r7.3     r7.2     r7.1    [r7.0]
    no bank conflicts: 4 turns for 4 phases
      lanes  0 to  7: 1 turn
      lanes  8 to 15: 1 turn
      lanes 16 to 23: 1 turn
      lanes 24 to 31: 1 turn
    """
    tile = RowTile(rows, row_bytes, swizzle, pitch)
    return tile_picture(tile, access_addresses(tile, access), access)


def tile_picture(tile: RowTile, addresses: LaneAddresses, access: str) -> str:
    """:func:`conflict_picture` of any addresses in a tile; ``access`` names them.

    >>> tile = RowTile(8, 16)
    >>> addresses = LaneAddresses(range(0, 512, 16), width=16, used=8)
    >>> print(tile_picture(tile, addresses, "ldmatrix.m8n8.x1.b16"))
    8 rows of 16 bytes, no swizzle; ldmatrix.m8n8.x1.b16
    banks       0-3      4-7     8-11    12-15    16-19    20-23    24-27    28-31
        0    [r0.0]   [r1.0]   [r2.0]   [r3.0]   [r4.0]   [r5.0]   [r6.0]   [r7.0]
    no bank conflicts: 1 turns for 1 phases
      lanes  0 to  7: 1 turn
    """
    tile.check()
    rows, row_bytes, swizzle, pitch = tile
    cost = bank_conflicts(addresses)
    first = {int(addresses[lane]) for lane in cost.phases[0].lanes}
    mode = xor_swizzle(swizzle).words
    apart = f", {pitch} apart" if pitch not in (None, row_bytes) else ""
    title = f"{rows} rows of {row_bytes} bytes{apart}, {mode}; {access}"
    return "\n".join([title, *_cells(tile, first), str(cost)])


def _cells(tile: RowTile, marked: set[int], most: int = 16) -> list[str]:
    """The lines of the picture; at most ``most`` of them are shown."""
    held = {
        int(tile.address(row, unit)): f"r{row}.{unit}"
        for row in range(min(tile.rows, 256))
        for unit in range(tile.row_bytes // UNIT)
    }
    heads = [f"{bank}-{bank + 3}" for bank in range(0, BANKS, UNIT // WORD)]
    lines = ["banks " + "".join(f"{head:>9}" for head in heads)]
    line_bytes = BANKS * WORD
    last = max(held) // line_bytes
    for number in range(min(last + 1, most)):
        cells = ""
        for place in range(number * line_bytes, (number + 1) * line_bytes, UNIT):
            text = held.get(place, "-")
            cells += f"[{text}]".rjust(9) if place in marked else f"{text:>8} "
        lines.append(f"{number * line_bytes:5} {cells}".rstrip())
    if last >= most:
        lines.append(f"  …   {last + 1 - most} more lines of {line_bytes} bytes")
    return lines


def conflict_table(rows: int, row_bytes: int) -> list[dict[str, object]]:
    """The degree of every access with every swizzle, as flat records.

    >>> for record in conflict_table(64, 128):
    ...     if record["access"] == "ldmatrix":
    ...         print(record["swizzle"], record["degree"])
    0 8
    32 4
    64 2
    128 1
    """
    return [
        {
            "access": access,
            "swizzle": swizzle,
            "degree": cost.degree,
            "turns": cost.turns,
        }
        for access in ACCESSES
        for swizzle in WGMMA_SWIZZLES
        for cost in [_cost(RowTile(rows, row_bytes, swizzle), access)]
    ]


def _cost(tile: RowTile, access: LaneAccess) -> Conflicts:
    return bank_conflicts(access_addresses(tile, access))
