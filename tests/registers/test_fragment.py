"""Fragments: looking up, packing whole matrices, and refusing bad input."""

from functools import cache
from math import prod

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fragmenta as fm
from fragmenta import catalogue, instruction
from tests.thinning import repeats, some

INT4 = instruction("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32")
F16 = instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")


@cache
def every_fragment():
    """One fragment for each layout, type and container."""
    found = {}
    for op in catalogue():
        for part in op.fragments.values():
            key = (part.layout, part.dtype.name, part.container)
            found.setdefault(key, part)
    return list(found.values())


def some_fragments():
    """Every third; of wide ones, which take long and differ in their width, fewer."""
    parts = every_fragment()[::3]
    wide = [part for part in parts if prod(part.shape) > 64 * 64]
    return some([part for part in parts if part not in wide], 2) + some(wide, 7)


def random_bits(part, shape, seed=0):
    bits = np.random.default_rng(seed).integers(0, 1 << 62, shape, dtype=np.uint64)
    return (bits & part.dtype.mask).astype(part.dtype.bits_dtype)


def one_by_one(part, bits, **selected):
    """Packing as its definition says: element by element, bit by bit."""
    words = np.zeros((part.lanes, part.registers), dtype=object)
    for index in np.ndindex(*part.shape):
        place = part.where(*index, **selected)
        for each in (place, *place.copies):
            row = 32 * (each.warp or 0) + each.lane
            words[row, each.register] |= int(bits[index]) << each.bits[0]
    return words.astype(f"uint{part.register_bits}")


@pytest.mark.parametrize("part", some_fragments(), ids=repr)
def test_packing_puts_each_element_where_it_belongs(part):
    bits = random_bits(part, part.shape)
    selected = dict.fromkeys(part.selectors, 0)
    words = part.pack(part.dtype.decode(bits), **selected)
    assert words.shape == (part.lanes, part.registers)
    assert (words == one_by_one(part, bits, **selected)).all()
    assert (part.unpack_bits(words) == bits).all()


# One of three fragments.
@repeats(3)
@pytest.mark.parametrize("part", every_fragment(), ids=repr)
def test_unpack_undoes_pack_in_batches(part):
    bits = random_bits(part, (2, 3, *part.shape))
    matrix = part.dtype.decode(bits)
    words = part.pack(matrix)
    assert words.shape == (2, 3, part.lanes, part.registers)
    assert (part.dtype.encode(part.unpack(words)) == bits).all()


def test_every_lane_holds_what_where_says():
    for part in (INT4.a, INT4.b, INT4.c):
        for lane in range(32):
            for i, element in enumerate(part.holds(lane)):
                place = part.where(*element)
                assert place.lane == lane
                assert place.register == i // part.elements
                assert place.bits[0] == i % part.elements * part.container.bits


def test_copies_are_found():
    part = instruction("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32").a
    place = part.where(3, 5)
    assert len(place.copies) == 1
    assert place.copies[0].register == place.register + 4


def test_selected_places_count_and_the_others_are_zero():
    op = instruction("mma.sp.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32")
    nibbles = np.full((16, 8), 0b0100, np.uint8)
    for selector in op.selectors:
        place = op.metadata.where(9, 3, selector=selector)
        assert place.lane % 4 // 2 == selector
        words = op.metadata.pack(nibbles, selector=selector)
        lanes = np.flatnonzero(words[:, 0])
        assert (lanes % 4 // 2 == selector).all()
        assert lanes.size == 16


TILED = [
    "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32",
    "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32",
    "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16",
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
    "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc",
    "mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64",
    "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e3m2.f32",
    "wgmma.mma_async.sync.aligned.m64n24k16.f16.f16.f16",
    "wmma.mma.sync.aligned.row.col.m8n32k16.f32.f32",
]


@pytest.mark.parametrize("name", ["A", "B", "D"])
@pytest.mark.parametrize("text", TILED)
def test_all_tiles_at_once_are_the_tiles_one_by_one(text, name):
    parts = instruction(text).fragments
    if name not in parts:
        assert name == "B"  # a wgmma reads B from shared memory
        return
    part = parts[name]
    rows, cols = part.shape
    bits = random_bits(part, (2, 3 * rows, 2 * cols))
    matrix = part.dtype.decode(bits)
    tiles = part.pack_tiles(matrix)
    assert tiles.shape == (2, 3, 2, part.lanes, part.registers)
    for r in range(3):
        for c in range(2):
            tile = matrix[:, r * rows : (r + 1) * rows, c * cols : (c + 1) * cols]
            assert (tiles[:, r, c] == part.pack(tile)).all()
    assert (part.dtype.encode(part.unpack_tiles(tiles)) == bits).all()


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(1, 70), cols=st.integers(1, 150), batch=st.integers(0, 2))
def test_padding_is_zero_and_comes_off_again(rows, cols, batch):
    shape = (2,) * batch + (rows, cols)
    matrix = np.random.default_rng(rows).integers(-8, 8, shape, dtype=np.int8)
    tiles = INT4.a.pack_tiles(matrix, pad=True)
    assert (INT4.a.unpack_tiles(tiles, (rows, cols)) == matrix).all()
    whole = INT4.a.unpack_tiles(tiles)
    assert not whole[..., rows:, :].astype(np.int8).any()
    assert not whole[..., cols:].astype(np.int8).any()


def test_a_column_major_matrix_packs_alike():
    matrix = np.random.default_rng(0).integers(-8, 8, (128, 64), dtype=np.int8)
    assert (
        INT4.b.pack_tiles(matrix) == INT4.b.pack_tiles(np.asfortranarray(matrix))
    ).all()
    assert (
        INT4.a.pack_tiles(matrix[::-1].copy()) == INT4.a.pack_tiles(matrix[::-1])
    ).all()


def test_small_types_come_as_ml_dtypes():
    unpacked = INT4.a.unpack(np.zeros((32, 4), np.uint32))
    assert unpacked.dtype == ml_dtypes.int4
    assert F16.a.unpack(np.zeros((32, 4), np.uint32)).dtype == np.float16


def test_nan_payloads_and_negative_zero_survive():
    bits = np.array([0x7C01, 0xFE00, 0x8000, 0xFC00] * 64, np.uint16).reshape(16, 16)
    words = F16.a.pack(bits.view(np.float16))
    assert (F16.a.unpack(words).view(np.uint16) == bits).all()


BAD = {
    "shape": (
        lambda: INT4.a.pack(np.zeros((16, 32), np.int8)),
        fm.errors.ShapeError,
        r"16x64 s4 .*given shape \(16, 32\)",
    ),
    "rank": (lambda: INT4.a.pack(np.zeros(16, np.int8)), fm.errors.ShapeError, "16x64"),
    "range": (
        lambda: INT4.a.pack(np.full((16, 64), 8, np.int8)),
        fm.errors.ValueRangeError,
        "-8",
    ),
    "nan": (
        lambda: INT4.a.pack(np.full((16, 64), np.nan)),
        fm.errors.ValueRangeError,
        "nan",
    ),
    "inexact": (
        lambda: F16.a.pack(np.full((16, 16), 0.1)),
        fm.errors.ValueRangeError,
        "0.1",
    ),
    "lane 32": (
        lambda: INT4.a.holds(32),
        fm.errors.ShapeError,
        "lane 32 is out of range; lanes are 0 to 31; that is lane 0 of warp 1",
    ),
    "lane -1": (
        lambda: INT4.a.holds(-1),
        fm.errors.ShapeError,
        "lane -1 is out of range",
    ),
    "warp": (lambda: INT4.a.holds(0, warp=1), fm.errors.ShapeError, "one warp"),
    "register": (lambda: INT4.a.holds(0, register=4), fm.errors.ShapeError, "0 to 3"),
    "row": (
        lambda: INT4.a.where(-1, 0),
        fm.errors.ShapeError,
        "row -1 is out of range",
    ),
    "column": (lambda: INT4.a.where(0, 64), fm.errors.ShapeError, "col is 0 to 63"),
    "indices": (
        lambda: INT4.a.where(0),
        fm.errors.ShapeError,
        r"indexed by \(row, col\)",
    ),
    "lanes": (
        lambda: INT4.a.unpack(np.zeros((31, 4), np.uint32)),
        fm.errors.ShapeError,
        r"32 lanes, 4\); given shape \(31, 4\)",
    ),
    "word": (
        lambda: INT4.a.unpack(np.zeros((32, 4), np.uint64)),
        fm.errors.ShapeError,
        "registers are uint32; given uint64",
    ),
    "floats": (
        lambda: INT4.a.unpack(np.zeros((32, 4), np.float32)),
        fm.errors.ShapeError,
        "registers are uint32",
    ),
    "tiles": (
        lambda: INT4.a.pack_tiles(np.zeros((17, 64), np.int8)),
        fm.errors.ShapeError,
        "17x64 is not a whole number of A tiles of 16x64; pad=True fills 32x64",
    ),
    "cut": (
        lambda: INT4.a.unpack_tiles(np.zeros((1, 1, 32, 4), np.uint32), (9, 99)),
        fm.errors.ShapeError,
        "cannot be cut to 9x99",
    ),
    "selector": (
        lambda: INT4.a.pack(np.zeros((16, 64), np.int8), selector=0),
        fm.errors.ShapeError,
        "A has no selectors; given selector",
    ),
    "no metadata": (lambda: INT4.metadata, fm.Error, "has no operand metadata"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_with_what_is_allowed(name):
    call, error, words = BAD[name]
    with pytest.raises(error, match=words):
        call()


def test_what_an_instruction_lacks_is_no_attribute():
    assert not hasattr(INT4, "metadata")
    assert getattr(fm.wgmma("m64n8k16", a="f16", d="f32"), "b", None) is None


def test_registers_of_another_byte_order_are_converted():
    ones = np.ones((16, 8), np.int32)
    swapped = INT4.c.pack(ones).astype(">u4")
    np.testing.assert_array_equal(INT4.c.unpack(swapped), ones)


@pytest.mark.parametrize("batch", [(0,), (2, 0, 3)])
def test_batches_of_nothing(batch):
    for part in (INT4.a, INT4.c, fm.mma("m16n8k16", a="f16", d="f32").b):
        matrix = np.zeros((*batch, *part.shape), part.dtype.storage)
        registers = part.pack(matrix)
        assert registers.shape == (*batch, part.lanes, part.registers)
        assert part.unpack(registers).shape == matrix.shape
        tiles = part.pack_tiles(matrix)
        assert tiles.shape == (*batch, 1, 1, part.lanes, part.registers)
        assert part.unpack_tiles(tiles).shape == matrix.shape


@pytest.mark.parametrize("selector", [0.5, True, "1", 2])
def test_a_selector_is_a_whole_number(selector):
    e = fm.mma("m16n8k64", a="s4", sp="sp").metadata
    codes = np.full((16, 8), 4)
    for call in (e.pack, e.pack_tiles):
        with pytest.raises(fm.errors.ShapeError, match="selector"):
            call(codes, selector=selector)
    assert e.pack(codes, selector=np.int8(1)).any()
    assert e.pack_tiles(codes[None][:0], selector=1).shape == (0, 1, 1, 32, 1)


def test_one_element_at_a_time_is_looked_up():
    with pytest.raises(fm.errors.ShapeError, match="row is one number"):
        INT4.a.where([1, 2], 2)
    found = INT4.a.where(np.int64(1), np.uint8(2))
    assert {type(found.lane), type(found.register)} == {int}
