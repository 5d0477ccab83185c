"""Shared memory in the explorer against Python: addresses, lanes and bank conflicts.

The page works them out from the tables and the layout lines that it has.  Everything it
says about an operand is worked out here once more, by the functions of ``shared/``.
"""

import json
import subprocess
from functools import cache

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.inspect.view import explorer_data
from fragmenta.reference.isa.tables.moves import PACKINGS, row_bytes
from fragmenta.reference.shared.banks import (
    ACCESSES,
    RowTile,
    access_addresses,
    bank_conflicts,
)
from fragmenta.reference.shared.descriptor import Descriptor
from fragmenta.reference.shared.elements import stored
from fragmenta.reference.shared.loops import find_loop, tried
from fragmenta.reference.shared.matching import SIDES, TileGrid
from fragmenta.reference.shared.operands import extent, family_of
from fragmenta.reference.shared.placement import Placement
from fragmenta.reference.shared.swizzles import read_swizzle
from tests.thinning import some
from tests.view.test_explorer_page import EXPLORER, digest, need

pytestmark = pytest.mark.xdist_group("explorer")
UNIT = 16


@cache
def sampled():
    """One instruction of each kind that looks different in shared memory."""
    found = {}
    for op in explorer_data.holding():
        words = ("type", "num", "trans") if op.family.endswith("matrix") else ()
        words += ("kind", "cta_group") if op.tensor_memory else ()
        parts = op.fragments.items()
        held = [
            (name, part.layout, part.container)
            for name, part in parts
            if name in ("A", "B", "D") and not op.warpgroup and not op.tensor_memory
        ]
        # Integers of one size are alike, and so are most widths.
        wide = [op.types[each].bits for each in "abd" if each in op.types]
        wide += [op.shape.k, op.shape.n == 24] if op.warpgroup else []
        wide += [op.shape.k] if op.tensor_memory else []
        key = (*held, *wide, *(op.values.get(word) for word in words))
        found.setdefault((op.family, *key), op)
    many = [op for op in found.values() if op.family in ("mma", "mma.sp")]
    few = [op for op in found.values() if op not in many]
    return {str(op): op for op in (*some(many, 3), *few)}


@pytest.fixture(scope="module")
def page():
    need("whether the explorer's shared memory is Python's")
    done = subprocess.run(
        ["node", "tests/memory.mjs"],
        cwd=EXPLORER,
        input="\n".join(sampled()),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def records(page, family):
    for name, found in page["stored"].items():
        op = sampled()[name]
        if op.family.startswith(family) and not isinstance(found, str):
            for record in found:
                yield op, record


def test_what_uses_shared_memory(page):
    families = {op.family for op in map(fm.instruction, page["used"])}
    assert {"mma", "mma.sp", "wgmma", "wgmma.sp", "ldmatrix", "stmatrix"} < families
    assert {"tcgen05.mma", "tcgen05.mma.sp", "tcgen05.mma.ws.sp"} < families
    assert not any(name.startswith(("wmma", "tcgen05.ld")) for name in families)


@pytest.mark.parametrize("family", ["wgmma", "tcgen05"])
def test_descriptors(page, family):
    found = [each for each in records(page, family) if each[1]["descriptor"]]
    assert len(found) > 100
    assert {record["swizzle"] for _, record in found} >= {"0", "32", "64", "128"}
    for op, record in found:
        check_descriptor(op, record)


def check_descriptor(op, record):
    operand, major = record["operand"], record["major"]
    swizzle, of = read_swizzle(record["swizzle"]), op.types[operand.lower()]
    rows, own = extent(op, operand)
    units, per_unit = record["units"], record["perUnit"]
    assert per_unit == 128 // stored(of, major, family_of(op), swizzle, op.kind).bits
    k = units * per_unit if major == "k" else own
    assert record["lines"] == (rows if major == "k" else k)
    made = Descriptor.for_tile(
        rows, k, of, major=major, swizzle=swizzle, family=family_of(op), kind=op.kind
    )
    assert record["descriptor"]["leading"] == made.leading
    assert record["descriptor"]["stride"] == made.stride
    assert int(record["descriptor"]["word"], 16) == made.encode()

    def address(mn, k):
        return made.address(mn, k, of, major, op.kind)

    mn, at = np.ogrid[:rows, :own]
    whole = address(mn, at)
    ctas = op.cta_group or 1
    shaped = np.concatenate([whole] * ctas)
    assert record["bytes"] == digest(shaped if operand == "A" else shaped.T), op
    line, unit = np.ogrid[: record["lines"], :units]
    place = (line, unit * per_unit) if major == "k" else (unit * per_unit, line)
    where = np.broadcast_to(address(*place), (record["lines"], units))
    assert record["addresses"] == digest(where), (op, record)
    assert record["touched"] == np.unique(whole // UNIT * UNIT).tolist()
    check_accesses(record, where)


def check_accesses(record, where):
    """The cost of accesses to units whose addresses are (lines, units)."""
    flat = where.reshape(-1)
    for access in ACCESSES:
        # In rows without gaps an address is the number of the unit.
        plain = access_addresses(RowTile(len(where), UNIT * where.shape[1]), access)
        lanes = [int(flat[at // UNIT]) if at >= 0 else -1 for at in np.array(plain)]
        cost = bank_conflicts(lanes, width=UNIT)
        degrees = [phase.degree for phase in cost.phases]
        assert record["accesses"][access] == degrees, (record, access)


def test_the_first_choice_is_the_one_with_the_fewest_instructions(page):
    """Of what Python finds for a Hopper, where it finds something."""
    seen = 0
    for op, record in records(page, "mma"):
        single = record["move"]["tiles"] == 1 and record["swizzle"] == "0"
        if not single or not op.supported_on("sm_90a"):
            continue
        family = "stmatrix" if record["operand"] == "D" else "ldmatrix"
        placed = {"order": order(record)}
        try:
            loop = find_loop(family, op, record["operand"], None, placed)
        except fm.Error:
            continue  # sm_100 has more moves
        seen += 1
        assert str(loop.move) == record["move"]["name"]
    assert seen > 15


@pytest.mark.parametrize("family", ["mma", "wgmma"])
def test_lanes_of_moves(page, family):
    found = [each for each in records(page, family) if each[1]["move"]]
    assert len(found) > 100
    for op, record in found:
        check_move(op, record)


def order(record):
    return "row" if (record["operand"] != "B") == (record["major"] == "k") else "col"


FOUND = {}


def loops(op, operand, shape, where):
    """Every loop over a tile of one instruction's operands, on any target."""
    tiles = TileGrid.of(op, operand, shape)
    targets = [t for t in ("sm_90a", "sm_100a", "sm_120a") if op.supported_on(t)]
    part = tiles.part
    key = (part.layout, part.container, operand, shape, where, *targets)
    if key not in FOUND:
        memory = Placement.of(part, shape, order=where)
        family = "stmatrix" if operand == "D" else "ldmatrix"
        FOUND[key] = [
            loop
            for target in targets
            for loop in tried(family, tiles, memory, target)
            if not isinstance(loop, str) and not loop.group.tiles_first
        ]
    return FOUND[key]


def check_move(op, record):
    operand, move = record["operand"], record["move"]
    shape = tuple(
        size * (move["tiles"] if side == move["along"] else 1)
        for side, size in zip(SIDES[operand], op.fragments[operand].shape, strict=True)
    )
    where = order(record)
    (loop,) = {
        str(loop.move): loop
        for loop in loops(op, operand, shape, where)
        if str(loop.move) == move["name"]
        and (loop.group.tiles, loop.along or "") == (move["tiles"], move["along"])
    }.values()
    assert loop.group.parts == move["parts"]
    grid = loop.layout.without("U").grid()  # in which 16 bytes count as one element
    across, along = (grid[name].reshape(-1) for name in (where, loop.memory.along))
    first = along * record["perUnit"]
    rows = np.stack((across, first) if where == "row" else (first, across), axis=-1)
    assert record["rows"] == digest(rows), (op, record)
    tile = TileGrid.of(op, operand, shape)
    swizzle = read_swizzle(record["swizzle"])
    placed = {"order": where, "pitch": record["pitch"], "swizzle": swizzle}
    memory = Placement.of(tile.part, shape, **placed)
    used = loop.addresses.used
    lanes = memory.addresses(across[:used], along[:used])
    assert record["lanes"][:used] == lanes.tolist()
    assert set(record["lanes"][used:]) <= {-1}
    assert record["laneBytes"] == UNIT
    check_phases(record)


def check_phases(record):
    """The cost of the lanes' own access."""
    cost = bank_conflicts(record["lanes"], width=record["laneBytes"])
    assert record["phases"] == [
        [phase.degree, list(map(len, phase.words))] for phase in cost.phases
    ]


@pytest.mark.parametrize("family", ["ldmatrix", "stmatrix"])
def test_rows_of_ldmatrix_and_stmatrix(page, family):
    """The instruction itself says whether the page has each element at its byte."""
    found = list(records(page, family))
    assert len({record["swizzle"] for _, record in found}) == 5
    widths = {"ldmatrix": {8, 16}, "stmatrix": {16}}
    assert {record["laneBytes"] for _, record in found} == widths[family]
    for op, record in found:
        (part,) = op.fragments.values()
        matrices, rows, cols = part.shape
        used = matrices * rows
        lanes = np.array(record["lanes"])
        assert (lanes[:used] >= 0).all()
        assert (lanes[used:] == -1).all()
        packed = PACKINGS.get(op.values["type"])
        bits = packed.bits if packed else part.dtype.bits
        inside = np.arange(cols) * bits // 8
        assert record["bytes"] == digest(lanes[:used, None] + inside), str(op)
        tile = RowTile(record["lines"], 128, read_swizzle(record["swizzle"]), 144)
        line, unit = np.ogrid[: record["lines"], : record["units"]]
        assert record["addresses"] == digest(tile.address(line, unit))
        if rows == 8:  # the same as Python's access of this name
            small = tile._replace(rows=8 * min(2, matrices))
            want = np.array(access_addresses(small, "ldmatrix"))[:used]
            assert lanes[:used].tolist() == want.tolist(), str(op)
        assert record["laneBytes"] == row_bytes(op), str(op)
        check_phases(record)
        if family == "ldmatrix" and bits >= 8:
            check_loaded(op, part, lanes)


def check_loaded(op, part, lanes):
    image = np.random.default_rng(7).integers(0, 256, 1 << 13, dtype=np.uint8)
    given = np.where(lanes < 0, 0, lanes)
    got = part.unpack_bits(fm.shared.ldmatrix(op, image, given))
    matrices, rows, cols = part.shape
    size = part.dtype.bits // 8
    starts = lanes[: matrices * rows, None] + np.arange(cols) * size
    expected = sum(image[starts + byte].astype(int) << 8 * byte for byte in range(size))
    assert (got.reshape(starts.shape) == expected).all(), str(op)


def test_operands_that_no_ldmatrix_loads_are_refused(page):
    """What the page says is refused, Python refuses, both ways round."""
    refused = [name for name, found in page["stored"].items() if isinstance(found, str)]
    assert refused
    for name in refused:
        op = sampled()[name]
        for operand in ("A", "B"):
            for where in ("row", "col"):
                with pytest.raises(fm.Error):
                    fm.shared.ldmatrix_loop(op, operand, order=where, target="sm_120a")
