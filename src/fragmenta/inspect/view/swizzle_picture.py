"""The picture of a tile in shared memory, once for each swizzle.

A line of the picture is all banks, a cell is 16 bytes and names the row and the unit of
that row.  Each unit of a row has a colour, so a column of one colour is a bank
conflict. The explorer draws the same picture.
"""

from __future__ import annotations

from collections.abc import Iterator

from fragmenta.base.arrays.checks import check_numbers
from fragmenta.errors import AddressError, one_of
from fragmenta.inspect.view.picture import Picture
from fragmenta.inspect.view.svg import Drawing, across, document, down, words
from fragmenta.reference.shared.banks import (
    ACCESSES,
    BANKS,
    WORD,
    LaneAccess,
    RowTile,
    access_addresses,
    bank_conflicts,
)
from fragmenta.reference.shared.descriptor import LIMIT
from fragmenta.reference.shared.swizzles import (
    LINE,
    UNIT,
    WGMMA_SWIZZLES,
    AnySwizzle,
    unit_swizzle,
)

_WIDTH, _HEIGHT = 34, 20  # of a cell
_LEFT, _TOP = 34, 32
_MOST = 16  # lines of a panel
_LETTER = 5.6
_STYLE = "svg.fm .f{fill:none;stroke-width:1.8}\nsvg.fm .q{opacity:.3}\n"


def swizzle_picture(
    *swizzles: AnySwizzle,
    rows: int = 8,
    row_bytes: int = 128,
    pitch: int | None = None,
    access: LaneAccess = "ldmatrix",
) -> Picture:
    """Rows of a tile in shared memory, once for each swizzle, side by side.

    A swizzle is 0, 32, 64, 128, ``"128/32"`` or an
    :class:`~fragmenta.shared.XorSwizzle`; by default all that ``wgmma`` has are drawn.
    ``pitch`` is the distance of rows, by default without gaps.  ``access`` is how a
    warp takes them, 16 bytes for each lane: ``"ldmatrix"``, ``"rows"`` or ``"column"``.
    What its first lanes take together is framed; other units that it takes have full
    colours.

    A notebook shows the picture; ``save`` writes it, ``str()`` is its text.

    >>> import fragmenta as fm
    >>> picture = fm.shared.swizzle_picture(0, 128)
    >>> str(picture)[:4], "no swizzle: 8-way" in str(picture)
    ('<svg', True)
    >>> "128-byte swizzle: free" in str(picture)
    True
    """
    given = {"rows": rows, "row_bytes": row_bytes}
    check_numbers(**given, **({} if pitch is None else {"pitch": pitch}))
    if not isinstance(access, str) or access not in ACCESSES:
        names = one_of(map(repr, ACCESSES))
        raise AddressError(f"access must be {names}; given {access!r}")
    if rows * (row_bytes if pitch is None else pitch) > LIMIT:
        raise AddressError(
            f"{rows} rows do not fit into shared memory, which has less than {LIMIT} "
            "bytes"
        )
    chosen = swizzles or WGMMA_SWIZZLES
    tiles = [RowTile(rows, row_bytes, swizzle, pitch) for swizzle in chosen]
    panels = [_panel(tile, access) for tile in tiles]
    lines = [across(panels[at : at + 4]) for at in range(0, len(panels), 4)]
    notes = down((words(line, "k s") for line in _legend(tiles[0], access)), 2)
    title = f"{_size(tiles[0])} in shared memory; {access}"
    body = down([words(title, "g t"), *lines, notes], 16)
    return _SwizzlePicture(document(body, title, _STYLE))


class _SwizzlePicture(Picture):
    what = "picture of swizzles"


def _size(tile: RowTile) -> str:
    apart = f", {tile.pitch} apart" if tile.pitch not in (None, tile.row_bytes) else ""
    return f"{tile.rows} rows of {tile.row_bytes} bytes{apart}"


def _legend(tile: RowTile, access: LaneAccess) -> Iterator[str]:
    last = bank_conflicts(access_addresses(tile, access)).phases[0].lanes[-1]
    yield f"r5.2 is unit 2 of row 5, {UNIT} bytes; each unit of a row has a colour"
    yield f"{access}: {ACCESSES[access]}; lanes 0 to {last} are served together: framed"
    if len(_held(tile)) > len({*access_addresses(tile, access).tolist()} - {-1}):
        yield "pale units are not taken"


def _held(tile: RowTile) -> dict[int, tuple[int, int]]:
    """The row and the unit at each address."""
    return {
        int(tile.address(row, unit)): (row, unit)
        for row in range(tile.rows)
        for unit in range(tile.row_bytes // UNIT)
    }


def _panel(tile: RowTile, access: LaneAccess) -> Drawing:
    """The tile with one swizzle: what is where, and what an access costs."""
    addresses = access_addresses(tile, access)  # checks the tile, too
    cost = bank_conflicts(addresses)
    held = _held(tile)
    count = max(held) // LINE + 1
    shown = min(count, _MOST)
    ways = f"{cost.degree}-way" if cost.degree > 1 else "free"
    title = words(f"{unit_swizzle(tile.swizzle).words}: {ways}", "k t")
    width = _LEFT + LINE // UNIT * _WIDTH + 2
    body = [title.at(_LEFT, -3), *_axes(shown)]
    taken = {address for address in addresses.tolist() if address >= 0}
    body += _cells(held, taken, shown)
    first = {int(addresses[lane]) for lane in cost.phases[0].lanes} & taken
    frames = (_box(address, 1) for address in sorted(first) if address < shown * LINE)
    body.append(f'<g class="o f">{"".join(frames)}</g>')
    height = _TOP + shown * _HEIGHT + 2
    if count > shown:
        more = f"… {count - shown} more lines of {LINE} bytes"
        body.append(words(more, "k s").at(_LEFT, height - 2))
        height += 16
    return Drawing(max(width, _LEFT + title.width), height, "".join(body))


def _axes(lines: int) -> Iterator[str]:
    """The banks of each column, and the first byte of each line."""
    yield f'<text class="r s" x="{_LEFT - 5}" y="{_TOP - 5}">byte</text>'
    yield '<g class="m s">'
    for first in range(0, BANKS, UNIT // WORD):
        x = _LEFT + (first * WORD // UNIT + 0.5) * _WIDTH
        banks = f"{first}–{first + UNIT // WORD - 1}"
        yield f'<text x="{x:g}" y="{_TOP - 5}">{banks}</text>'
    yield '</g><g class="r s">'
    for line in range(lines):
        y = _TOP + (line + 0.5) * _HEIGHT + 3
        yield f'<text x="{_LEFT - 5}" y="{y:g}">{line * LINE}</text>'
    yield "</g>\n"


def _cells(
    held: dict[int, tuple[int, int]], taken: set[int], lines: int
) -> Iterator[str]:
    """Each 16 bytes: the unit's colour, its name; pale if the access leaves it."""
    names = []
    for address in range(0, lines * LINE, UNIT):
        if address not in held:
            yield f'<rect class="b q" {_place(address)}/>'
            continue
        row, unit = held[address]
        pale = "" if address in taken else " q"
        yield f'<rect class="l{4 * unit % 32}{pale}" {_place(address)}/>'
        x, y = _corner(address)
        name = f"r{row}.{unit}"
        name = name if len(name) * _LETTER < _WIDTH else f"{row}.{unit}"
        style = "s" if pale else "t"
        place = f'x="{x + _WIDTH / 2 - 0.5:g}" y="{y + _HEIGHT / 2 + 3:g}"'
        names.append(f'<text class="m {style}" {place}>{name}</text>')
    yield "".join(names)


def _corner(address: int) -> tuple[float, float]:
    line, byte = divmod(address, LINE)
    return _LEFT + byte // UNIT * _WIDTH, _TOP + line * _HEIGHT


def _place(address: int) -> str:
    x, y = _corner(address)
    return f'x="{x:g}" y="{y:g}" width="{_WIDTH - 1}" height="{_HEIGHT - 1}"'


def _box(address: int, inside: float) -> str:
    """A frame within a cell."""
    x, y = (at + inside for at in _corner(address))
    size = f'width="{_WIDTH - 1 - 2 * inside:g}" height="{_HEIGHT - 1 - 2 * inside:g}"'
    return f'<rect x="{x:g}" y="{y:g}" {size}/>'
