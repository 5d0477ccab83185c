"""Bank conflicts, counted a second way, and pictures that fit a terminal."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fragmenta as fm
from fragmenta.errors import AddressError, ranges
from fragmenta.reference.shared.banks import (
    ACCESSES,
    RowTile,
    access_addresses,
    bank_conflicts,
    conflict_picture,
    conflict_table,
)
from fragmenta.reference.shared.descriptor import Descriptor


def turns(addresses, width):
    """How many different 128-byte lines each bank has to give, phase by phase."""
    size = {1: 32, 2: 32, 4: 32, 8: 16, 16: 8}[width]
    found = []
    for first in range(0, 32, size):
        lines = [set() for _ in range(32)]
        for address in addresses[first : first + size]:
            for byte in range(address, address + width):
                lines[byte % 128 // 4].add(byte // 128)
        found.append(max(map(len, lines)))
    return found


@given(
    st.sampled_from([1, 2, 4, 8, 16]),
    st.lists(st.integers(0, 255), min_size=32, max_size=32),
)
def test_turns_are_the_lines_of_the_busiest_bank(width, units):
    addresses = [width * unit for unit in units]
    found = bank_conflicts(addresses, width)
    assert [phase.degree for phase in found.phases] == turns(addresses, width)
    assert found.turns == sum(turns(addresses, width))
    assert found.degree == max(turns(addresses, width))


KNOWN = [
    (range(0, 128, 4), 4, 1),  # neighbours
    ([0] * 32, 4, 1),  # one word for all: a broadcast
    (range(0, 256, 8), 4, 2),  # every second word
    (range(0, 4096, 128), 4, 32),  # one bank
    (range(32), 1, 1),  # four lanes share a word
    (range(0, 512, 16), 16, 1),
    ([128 * row for row in range(32)], 16, 8),
    ([144 * row for row in range(32)], 16, 1),  # rows padded by 16 bytes
]


@pytest.mark.parametrize(("addresses", "width", "degree"), KNOWN)
def test_known_degrees(addresses, width, degree):
    assert bank_conflicts(addresses, width).degree == degree


def test_idle_lanes_cost_nothing():
    found = bank_conflicts([0] * 4 + [-1] * 28, 16)
    assert [phase.degree for phase in found.phases] == [1, 0, 0, 0]
    assert str(found).splitlines() == [
        "no bank conflicts: 1 turns for 1 phases",
        "  lanes  0 to  7: 1 turn",
    ]


# ── addresses that know their width ─────────────────────────────────────────


def moved(function):
    """What each half-precision operand's move costs, by its own phases."""
    op = fm.mma("m16n8k16", a="f16", d="f16")
    for pitch in (32, 48, 64, 128, 144):
        for name in ("A", "B", "D"):
            try:
                yield function(op, name, order="row", pitch=pitch)
            except fm.Error:
                assert function is fm.shared.ldmatrix_addresses or name != "D"


@pytest.mark.parametrize(
    "function", [fm.shared.ldmatrix_addresses, fm.shared.stmatrix_addresses]
)
def test_addresses_of_moves_need_no_width(function):
    """One phase for each matrix of eight rows of 16 bytes, and no more."""
    seen = 0
    for move, addresses in moved(function):
        matrices, rows, _ = next(iter(move.fragments.values())).shape
        found = bank_conflicts(addresses)
        counted = addresses.tolist()[: matrices * rows]
        idle = [0] * (4 - matrices)
        assert found.width == 16
        expected = [
            turns(counted[first : first + 8] * 4, 16)[0]
            for first in range(0, 8 * matrices, 8)
        ]
        assert [phase.degree for phase in found.phases] == expected + idle
        assert bank_conflicts(addresses, 16) == found
        assert bank_conflicts(addresses, np.int8(16)) == found
        seen += 1
    assert seen >= 10


def test_a_tile_padded_by_16_bytes_is_free_of_conflicts():
    """With 4 bytes a lane the same numbers would be 4-way."""
    op = fm.mma("m16n8k16", a="f16", d="f32")
    _, addresses = fm.shared.ldmatrix_addresses(op, "A", order="row", pitch=144)
    assert bank_conflicts(addresses).degree == 1
    assert bank_conflicts(addresses + 1024).degree == 1
    assert bank_conflicts(np.asarray(addresses), 4).degree > 1


def test_another_width_is_refused():
    _, addresses = fm.shared.ldmatrix_addresses(
        fm.mma("m16n8k16", a="f16", d="f32"), "A", order="row"
    )
    with pytest.raises(AddressError, match=r"have width 16; given width=4"):
        bank_conflicts(addresses, 4)
    with pytest.raises(AddressError, match=r"given 4\.0"):
        bank_conflicts(addresses, 4.0)


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a.tolist(),
        np.asarray,
        lambda a: a // 4,
        lambda a: a[::-1],
        lambda a: a[np.argsort(-a)],
        np.sort,
        lambda a: np.where(a < 64, a, -1),
        lambda a: a.astype(np.int16),
        lambda a: a + fm.shared.LaneAddresses(range(0, 128, 4), width=4),
        lambda a: np.concatenate([a[:16], a[:16]]),
    ],
)
def test_plain_integers_need_a_width(change):
    """Also those that were addresses of a move, once lanes changed places."""
    _, addresses = fm.shared.ldmatrix_addresses(
        fm.mma("m16n8k16", a="f16", d="f32"), "B", order="col"
    )
    assert (addresses.width, addresses.used) == (16, 16)
    with pytest.raises(AddressError, match=r"give width=1, 2, 4, 8 or 16"):
        bank_conflicts(change(addresses))


def test_moved_addresses_know_as_much():
    addresses = fm.shared.LaneAddresses(range(0, 512, 16), width=16, used=8)
    warps = addresses + 512 * np.arange(4)[:, None]
    again = pickle.loads(pickle.dumps(warps))
    for each in (addresses ^ 16, 64 + addresses, warps, warps[2], warps[1:], again):
        assert isinstance(each, fm.shared.LaneAddresses)
        assert (each.width, each.used) == (16, 8)
    assert bank_conflicts(warps[3]).turns == 1
    addresses += 1024
    assert bank_conflicts(addresses).turns == 1
    assert addresses[0] == 1024


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"width": 3}, AddressError),
        ({"width": True}, AddressError),
        ({"width": 16, "used": 33}, fm.errors.ShapeError),
        ({"width": 16, "used": 0}, fm.errors.ShapeError),
    ],
)
def test_no_addresses_with_impossible_facts(options, error):
    with pytest.raises(error):
        fm.shared.LaneAddresses(range(32), **options)


@pytest.mark.parametrize("width", [np.int8(1), np.int8(16), np.uint8(8), np.int64(4)])
def test_a_width_of_any_integer_type(width):
    found = bank_conflicts(range(0, 512, 16), width)
    assert found == bank_conflicts(range(0, 512, 16), int(width))
    assert type(found.width) is int


@pytest.mark.parametrize("swizzle", [32, 64, 128])
def test_a_tile_is_what_a_descriptor_describes(swizzle):
    """Rows as wide as the swizzle are the K-major tile of wgmma."""
    tile = RowTile(64, swizzle, swizzle)
    d = Descriptor.for_tile(64, swizzle, "s8", swizzle=swizzle)
    row, unit = np.mgrid[:64, : swizzle // 16]
    assert (tile.address(row, unit) == d.address(row, 16 * unit, "s8")).all()


def test_the_swizzle_of_a_rows_width_is_free_of_conflicts():
    for width in (32, 64, 128):
        degrees = {
            record["swizzle"]: record["degree"]
            for record in conflict_table(64, width)
            if record["access"] == "ldmatrix"
        }
        assert degrees[width] == 1
        assert degrees[0] == width // 16
    assert len(conflict_table(64, 128)) == 4 * len(ACCESSES)


def test_accesses_name_these_rows_and_units():
    tile = RowTile(64, 128)
    lane = np.arange(32)
    rows = access_addresses(tile, "rows")
    assert (rows == 16 * lane).all()
    column = access_addresses(tile, "column")
    assert (column == 128 * lane).all()
    loads = access_addresses(RowTile(16, 128), "ldmatrix")
    assert (loads == 128 * (lane % 16) + 16 * (lane // 16)).all()
    assert access_addresses(RowTile(4, 16), "column").tolist()[3:6] == [48, -1, -1]


@pytest.mark.parametrize("access", ACCESSES)
@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize(
    ("rows", "row_bytes", "pitch"), [(8, 16, None), (64, 128, None), (256, 256, 272)]
)
def test_pictures_fit_a_terminal(rows, row_bytes, pitch, swizzle, access):
    text = conflict_picture(rows, row_bytes, swizzle, access, pitch)
    assert max(map(len, text.splitlines())) <= 80
    assert f"{rows} rows of {row_bytes} bytes" in text
    cells = [line for line in text.splitlines() if "r0.0" in line]
    assert len(cells) == 1


def test_brackets_in_one_column_are_the_conflict():
    body = conflict_picture(8, 128).splitlines()[2:10]
    assert all("[" in line for line in body)
    assert {line.index("[") for line in body} == {9}
    assert "8-way" in conflict_picture(8, 128)
    swizzled = conflict_picture(8, 128, 128).splitlines()[2:10]
    assert len({line.index("[") for line in swizzled}) == 8


def test_ranges():
    assert ranges([]) == ""
    assert ranges([5]) == "5"
    assert ranges([1, 2, 4, 5, 6, 9]) == "1-2, 4-6, 9"


def test_bad_input_is_refused():
    with pytest.raises(fm.errors.ShapeError, match="addresses must be 32 integers"):
        bank_conflicts(range(31), 4)
    with pytest.raises(fm.errors.ShapeError, match="float64"):
        bank_conflicts(np.zeros(32), 4)
    with pytest.raises(fm.errors.ShapeError, match="one warp at a time"):
        bank_conflicts(np.zeros((4, 32), int), 4)
    with pytest.raises(AddressError, match="1, 2, 4, 8 or 16 bytes"):
        bank_conflicts(range(32), 3)
    with pytest.raises(AddressError, match=r"given 4\.0"):
        bank_conflicts(range(0, 128, 4), 4.0)
    with pytest.raises(AddressError, match="given 9223372036854775808 for lane 2"):
        bank_conflicts(np.uint64([0, 4, 2**63] + [8] * 29), 4)
    with pytest.raises(AddressError, match="lane 1 takes 4 bytes at address 1"):
        bank_conflicts(range(32), 4)
    with pytest.raises(AddressError, match="lane 0 takes"):
        bank_conflicts([-4] * 32, 4)
    with pytest.raises(AddressError, match="rows of a multiple of 16 bytes"):
        conflict_picture(8, 24)
    with pytest.raises(AddressError, match="given pitch 120"):
        conflict_picture(8, 128, pitch=120)
    with pytest.raises(AddressError, match="swizzle must be"):
        conflict_picture(8, 128, 16)
    with pytest.raises(AddressError, match="access must be ldmatrix, rows or column"):
        conflict_picture(8, 128, access="diagonal")
