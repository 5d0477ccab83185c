"""Every code of metadata is where the hardware reads it, and every bad one is named."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fragmenta as fm
from fragmenta.reference.isa.families import catalogue
from fragmenta.reference.registers.granularity import Granularity, as_codes, locate
from fragmenta.reference.registers.metadata import Metadata
from fragmenta.reference.sparse.compression import read_words

TWO_OF_FOUR = Granularity(2, 4)
ONE_OF_TWO = Granularity(1, 2)
PAIRS = Granularity(4, 8, group=2)

# Typed in from the manual: every legal ordered code, with its two positions.
ORDERED = {
    0b0100: (0, 1),
    0b1000: (0, 2),
    0b1001: (1, 2),
    0b1100: (0, 3),
    0b1101: (1, 3),
    0b1110: (2, 3),
}
TWICE = {0b0000, 0b0101, 0b1010, 0b1111}


def forms():
    """One sparse instruction for each family, type of A, k, kind and order."""
    found = {}
    for family in ("mma.sp", "wgmma.sp"):
        for op in catalogue(family):
            key = (family, op.types["a"], op.shape.k, op.kind, op.values.get("sp"))
            found.setdefault(key, op)
    return list(found.values())


FORMS = forms()


def name(op):
    order = "ordered" if op.values.get("sp") == "sp::ordered_metadata" else ""
    kind = op.kind or ""
    return f"{op.family} {op.shape} {op.types['a']} {kind} {order}".strip()


every_form = pytest.mark.parametrize("op", FORMS, ids=name)

# Which lanes of a group of four count, as measured, by width of the type and k:
# one lane; two, which share the columns; two, which share the rows; all four.
LANES = {
    ("mma.sp", 16, 16): "one",
    ("mma.sp", 32, 8): "one",
    ("mma.sp", 16, 32): "columns",
    ("mma.sp", 32, 16): "columns",
    ("wgmma.sp", 16, 32): "columns",
    ("wgmma.sp", 32, 16): "columns",
    ("mma.sp", 8, 32): "rows",
    ("mma.sp", 4, 64): "rows",
    ("mma.sp", 8, 64): "all",
    ("mma.sp", 4, 128): "all",
    ("wgmma.sp", 8, 64): "all",
}
SELECTORS = {"one": 4, "columns": 2, "rows": 2, "all": 1}


def lanes_of(op):
    of = op.types["a"]
    width = 8 if op.kind in ("f8f6f4", "mxf8f6f4") else of.bits
    return LANES[op.family, width, op.shape.k]


def place(op, row, chunk, selector):
    """Warp, lane and nibble of a code, by the measured table."""
    warp, half, g = row // 16, row // 8 % 2, row % 8
    match lanes_of(op):
        case "one":
            t, nibble = selector, chunk + 4 * half
        case "columns":
            t, nibble = 2 * selector + chunk // 4, chunk % 4 + 4 * half
        case "rows":
            t, nibble = 2 * selector + half, chunk
        case "all":
            t, nibble = half + 2 * (chunk // 8), chunk % 8
    return warp, 4 * g + t, nibble


def legal_codes(op, shape, seed=0):
    codes = np.uint8(op.granularity.codes(op.metadata.ordered))
    return np.random.default_rng(seed).choice(codes, shape)


def words_by_hand(op, codes, selector):
    words = np.zeros((op.metadata.lanes, 1), np.uint32)
    for (row, chunk), code in np.ndenumerate(codes):
        warp, lane, nibble = place(op, row, chunk, selector)
        words[32 * warp + lane, 0] |= np.uint32(int(code) << 4 * nibble)
    return words


# ── where codes live ────────────────────────────────────────────────────────


@every_form
def test_codes_lie_where_measured(op):
    codes = legal_codes(op, op.metadata.shape)
    assert op.metadata.shape == (op.shape.m, op.shape.k // op.granularity.chunk)
    assert op.selectors == tuple(range(SELECTORS[lanes_of(op)]))
    for selector in op.selectors:
        words = op.metadata.pack(codes, selector)
        assert words.dtype == np.uint32
        assert (words == words_by_hand(op, codes, selector)).all()
        assert (op.metadata.unpack(words, selector) == codes).all()


@every_form
def test_lanes_that_do_not_count_are_not_read(op):
    codes = legal_codes(op, op.metadata.shape)
    for selector in op.selectors:
        words = op.metadata.pack(codes, selector)
        counts = np.zeros(len(words), bool)
        for row, chunk in np.ndindex(*op.metadata.shape):
            warp, lane, _ = place(op, row, chunk, selector)
            counts[32 * warp + lane] = True
        assert not words[~counts].any()
        words[~counts] = 0xFFFFFFFF  # junk
        assert (op.metadata.unpack(words, selector) == codes).all()


@every_form
def test_a_set_of_words_holds_a_tile_for_each_selector(op):
    tiles = [legal_codes(op, op.metadata.shape, seed=s) for s in op.selectors]
    words = op.metadata.pack_pair(*tiles)
    by_hand = sum(words_by_hand(op, t, s) for s, t in enumerate(tiles))
    assert (words == by_hand).all()
    for selector, tile in enumerate(tiles):
        assert (op.metadata.unpack(words, selector) == tile).all()
    again = op.metadata.unpack_pair(words)
    assert len(again) == op.metadata.tiles
    assert all((x == y).all() for x, y in zip(again, tiles, strict=True))


@every_form
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_whole_matrices(op, data):
    rows, chunks = op.metadata.shape
    batch = data.draw(st.lists(st.integers(1, 2), max_size=2))
    m, k = data.draw(st.integers(1, 2 * rows)), data.draw(st.integers(1, 3 * chunks))
    codes = legal_codes(op, (*batch, m, k), seed=data.draw(st.integers(0, 99)))
    selector = data.draw(st.sampled_from(op.selectors))
    e = op.metadata
    words = e.pack_tiles(codes, pad=True, selector=selector)
    assert words.shape == (*batch, -(-m // rows), -(-k // chunks), e.lanes, 1)
    assert (e.unpack_tiles(words, (m, k), selector=selector) == codes).all()
    first = codes[..., :rows, :chunks]
    if first.shape[-2:] == e.shape:
        assert (words[..., 0, 0, :, :] == e.pack(first, selector)).all()
    shared = e.pack_tiles(codes, pad=True, shared=True)
    assert shared.shape[-3] == -(-k // (chunks * e.tiles))
    assert (e.unpack_tiles(shared, (m, k), shared=True) == codes).all()


@every_form
def test_tiles_that_share_words_are_neighbours_along_k(op):
    e = op.metadata
    rows, chunks = e.shape
    codes = legal_codes(op, (rows, chunks * e.tiles))
    words = e.pack_tiles(codes, shared=True)[0, 0]
    tiles = np.split(codes, e.tiles, axis=1)
    assert (words == e.pack_pair(*tiles)).all()


def test_padding_is_empty_chunks():
    e = fm.mma("m16n8k32", a="s8", sp="sp::ordered_metadata").metadata
    words = e.pack_tiles(np.full((1, 1), 0b0100), pad=True)[0, 0]
    codes = e.unpack(words)
    assert codes[0, 0] == 0b0100
    assert (codes.ravel()[1:] == 0b1110).all()


# ── codes ───────────────────────────────────────────────────────────────────


def test_the_legal_codes_of_two_of_four():
    assert TWO_OF_FOUR.codes() == tuple(sorted(ORDERED))
    assert set(TWO_OF_FOUR.codes(ordered=False)) == set(range(16)) - TWICE
    for code, places in ORDERED.items():
        assert TWO_OF_FOUR.positions(code) == places
        assert TWO_OF_FOUR.code(*places) == code
        swapped = places[1] | places[0] << 2
        assert TWO_OF_FOUR.positions(swapped) == places[::-1]
        assert TWO_OF_FOUR.code(*places[::-1]) == swapped


def test_the_two_codes_of_one_of_two():
    for ordered in (True, False):
        assert ONE_OF_TWO.codes(ordered) == (0b0100, 0b1110)
    assert [ONE_OF_TWO.positions(code) for code in (0b0100, 0b1110)] == [(0,), (1,)]
    assert [ONE_OF_TWO.code(column) for column in (0, 1)] == [0b0100, 0b1110]


def test_codes_of_pairs_name_pairs():
    assert PAIRS.codes() == tuple(sorted(ORDERED))
    for code, (first, second) in ORDERED.items():
        columns = (2 * first, 2 * first + 1, 2 * second, 2 * second + 1)
        assert PAIRS.positions(code) == columns
        assert PAIRS.code(first, second) == code


@pytest.mark.parametrize("granularity", [TWO_OF_FOUR, ONE_OF_TWO, PAIRS], ids=str)
def test_many_codes_at_once_as_one_by_one(granularity):
    for ordered in (True, False):
        codes = np.arange(16, dtype=np.uint8)
        wrong = [bool(granularity.problem(c, ordered)) for c in range(16)]
        assert granularity.illegal(codes, ordered).tolist() == wrong
    legal = np.uint8(granularity.codes(ordered=False))
    offsets = granularity.offsets(legal.reshape(2, -1)).reshape(len(legal), -1)
    assert [tuple(o) for o in offsets] == [granularity.positions(c) for c in legal]
    assert granularity.empty in granularity.codes()


@every_form
def test_granularity_and_order_of_every_form(op):
    of, kind = op.types["a"].name, op.kind
    if of == "tf32":
        expected = ONE_OF_TWO
    elif of in ("s4", "u4") or (of == "e2m1" and kind in ("mxf4", "mxf4nvf4")):
        expected = PAIRS
    else:
        expected = TWO_OF_FOUR
    assert isinstance(op.metadata, Metadata)
    assert op.granularity == op.metadata.granularity == expected
    # wgmma.sp has no ordered form; every kind:: has no other.
    ordered = "ordered_metadata" in str(op)
    assert op.metadata.ordered == op.metadata.shared.ordered == ordered
    assert ordered or not kind


# ── illegal codes ───────────────────────────────────────────────────────────


@every_form
def test_each_illegal_code_is_named_with_lane_nibble_and_rule(op):
    e, random = op.metadata, np.random.default_rng(1)
    legal = legal_codes(op, e.shape)
    for code in set(range(16)) - set(op.granularity.codes(e.ordered)):
        row, chunk = (int(random.integers(size)) for size in e.shape)
        selector = int(random.choice(op.selectors))
        warp, lane, nibble = place(op, row, chunk, selector)
        words = e.pack(legal, selector)
        line = 32 * warp + lane
        words[line] &= ~np.uint32(15 << 4 * nibble)
        words[line] |= np.uint32(code << 4 * nibble)
        where = f"lane {lane}, nibble {nibble} (row {row}, chunk {chunk}): "
        if op.family == "wgmma.sp":
            where = f"warp {warp}, " + where
        rule = {
            1: "is not one of the two codes of 1:2",
            2: "twice"
            if code in TWICE
            else "ordered metadata names the lower one first",
        }[op.granularity.picks]
        with pytest.raises(fm.errors.BadMetadata) as error:
            e.unpack(words, selector)
        assert str(error.value).startswith(f"{where}code {code:04b} ")
        assert rule in str(error.value)
        with pytest.raises(fm.errors.BadMetadata, match=re.escape(where)):
            e.pack(planted(legal, row, chunk, code), selector)


def planted(legal, row, chunk, code):
    codes = legal.copy()
    codes[row, chunk] = code
    return codes


def test_the_tile_of_an_illegal_code_is_named_and_the_others_counted():
    e = fm.mma("m16n8k32", a="s8", sp="sp").metadata
    codes = np.full((2, 3, 16, 8), 0b1110)
    codes[1, 2, 9, 4] = codes[1, 2, 9, 5] = 0
    with pytest.raises(fm.errors.BadMetadata) as error:
        e.pack(codes)
    assert str(error.value) == (
        "lane 5, nibble 4 (row 9, chunk 4 of tile [1, 2]): code 0000 names position 0 "
        "twice; 1 more is illegal"
    )


def test_plain_sp_takes_any_two_places():
    unordered = fm.mma("m16n8k32", a="s8", sp="sp").metadata
    ordered = fm.mma("m16n8k32", a="s8", sp="sp::ordered_metadata").metadata
    codes = np.full((16, 8), 0b0001)  # position 1, then position 0
    words = unordered.pack(codes)
    assert (unordered.unpack(words) == codes).all()
    with pytest.raises(fm.errors.BadMetadata, match="names position 1 before 0"):
        ordered.unpack(words)


BAD = {
    "codes: value": (
        lambda: as_codes([[16]]),
        fm.errors.BadMetadata,
        "from 0 to 15; given 16",
    ),
    "codes: negative": (
        lambda: as_codes([[-1]]),
        fm.errors.BadMetadata,
        "from 0 to 15; given -1",
    ),
    "codes: float": (
        lambda: as_codes([[4.0]]),
        fm.errors.BadMetadata,
        "from 0 to 15; given float64",
    ),
    "code: places": (
        lambda: TWO_OF_FOUR.code(1),
        fm.errors.BadMetadata,
        "keeps 2 of the places 0 to 3",
    ),
    "code: range": (lambda: PAIRS.code(1, 4), fm.errors.BadMetadata, "given 1 and 4"),
    "code: twice": (
        lambda: PAIRS.code(1, 1),
        fm.errors.BadMetadata,
        "0101 names pair 1 twice",
    ),
    "positions": (
        lambda: ONE_OF_TWO.positions(0),
        fm.errors.BadMetadata,
        "0000 is not one of the two",
    ),
    "positions: range": (
        lambda: TWO_OF_FOUR.positions(16),
        fm.errors.BadMetadata,
        "does not fit in 4 bits",
    ),
    "offsets": (
        lambda: PAIRS.offsets(np.uint8([4, 0])),
        fm.errors.BadMetadata,
        "chunk 1: code 0000",
    ),
    "check: batch": (
        lambda: TWO_OF_FOUR.check(np.uint8([[[4]], [[5]]]), ordered=True),
        fm.errors.BadMetadata,
        r"batch \[1\], row 0, chunk 0: code 0101",
    ),
    "selector": (
        lambda: S8.pack(np.full((16, 8), 4), selector=2),
        fm.errors.ShapeError,
        "selector 2 is out of range; it is 0 to 1",
    ),
    "selector of one": (
        lambda: ALL.pack(np.full((16, 16), 4), selector=1),
        fm.errors.ShapeError,
        "selector 1 is out of range; it is 0",
    ),
    "selector of shared": (
        lambda: S8.pack_tiles(np.full((16, 16), 4), shared=True, selector=1),
        fm.errors.ShapeError,
        "selector 1 is out of range; it is 0",
    ),
    "another selector": (
        lambda: S8.unpack(np.zeros((32, 1), np.uint32), copy=0),
        fm.errors.ShapeError,
        "has the selectors selector; given copy",
    ),
    "shape": (
        lambda: S8.pack(np.full((16, 9), 4)),
        fm.errors.ShapeError,
        r"given shape \(16, 9\)",
    ),
    "tiles": (
        lambda: S8.pack_pair(np.full((16, 8), 4)),
        fm.errors.ShapeError,
        "holds 2 tiles",
    ),
    "edge": (
        lambda: S8.pack_tiles(np.full((17, 8), 4)),
        fm.errors.ShapeError,
        "pad=True fills 32x8 with empty chunks",
    ),
    "axes": (
        lambda: S8.pack_tiles(np.full(8, 4)),
        fm.errors.ShapeError,
        "2 axes or more",
    ),
    "cut": (
        lambda: S8.unpack_tiles(np.full((1, 1, 32, 1), 0x44444444, np.uint32), (17, 8)),
        fm.errors.ShapeError,
        "cannot be cut to 17x8",
    ),
    "words": (
        lambda: S8.decode([1 << 32]),
        fm.errors.BadMetadata,
        "a metadata word has 32 bits",
    ),
    "whole words": (
        lambda: S8.decode([1.5]),
        fm.errors.BadMetadata,
        "32 bits; given 1.5",
    ),
    "words of text": (
        lambda: S8.decode("0xe4"),
        fm.errors.BadMetadata,
        "32 bits; given '0xe4'",
    ),
    "whole lanes": (
        lambda: S8.decode([0], lane=1.5),
        fm.errors.ShapeError,
        "lane must be a whole number",
    ),
    "lanes of a warp": (
        lambda: WIDE.decode([4], warp=1, lane=-1),
        fm.errors.ShapeError,
        "lane -1 is out",
    ),
    "lanes of the next": (
        lambda: WIDE.decode([4], lane=33),
        fm.errors.ShapeError,
        "lane 1 of warp 1",
    ),
    "batches": (
        lambda: S8.pack_pair(np.full((3, 16, 8), 4), np.full((2, 16, 8), 4)),
        fm.errors.ShapeError,
        "do not broadcast together",
    ),
    "selectors of one": (
        lambda: WIDE.pack(np.full(WIDE.shape, 4), selector="0"),
        fm.errors.ShapeError,
        "selector must be a whole number; given '0'",
    ),
    "cut to": (
        lambda: S8.unpack_tiles(np.full((1, 1, 32, 1), 0x44444444, np.uint32), 5),
        fm.errors.ShapeError,
        "rows and columns; given 5",
    ),
    "position": (
        lambda: S8.granularity.positions("x"),
        fm.errors.ShapeError,
        "code must be a whole",
    ),
    "whole warps": (
        lambda: S8.decode([0], warp="0"),
        fm.errors.ShapeError,
        "warp must be a whole number",
    ),
    "granularity": (
        lambda: Granularity(3, 7),
        fm.errors.ShapeError,
        "no tensor core keeps 3 of 7",
    ),
    "lanes": (
        lambda: S8.decode([0, 0], lane=31),
        fm.errors.ShapeError,
        "32 lanes hold metadata",
    ),
    "lane": (
        lambda: S8.decode([0], lane=-1),
        fm.errors.ShapeError,
        "lane -1 is out of range",
    ),
    "dense": (lambda: read_words(str(DENSE), [0]), fm.Error, "is dense; the sparse"),
}
S8 = fm.mma("m16n8k32", a="s8", sp="sp").metadata
WIDE = fm.wgmma("m64n8k64", a="e4m3", d="f32", sp="sp").metadata
ALL = fm.mma("m16n8k64", a="s8", sp="sp").metadata
DENSE = fm.mma("m16n8k32", a="s8")


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_with_what_is_allowed(case):
    call, error, words = BAD[case]
    with pytest.raises(error, match=words):
        call()


def test_codes_may_be_4_bit_integers():
    codes = np.array([[4, 14]], ml_dtypes.uint4)
    assert as_codes(codes).tolist() == [[4, 14]]


def test_places_are_named_with_their_batch():
    assert locate([3, 5]) == "row 3, chunk 5"
    assert locate([1, 3, 5]) == "batch [1], row 3, chunk 5"


# ── reading words by hand ───────────────────────────────────────────────────


@every_form
def test_decoding_finds_every_code_in_its_place(op):
    e = op.metadata
    tiles = [legal_codes(op, e.shape, seed=s) for s in op.selectors]
    found = read_words(op, e.pack_pair(*tiles))
    assert len(found) == 8 * e.lanes
    for each in found:
        warp, lane, nibble = place(op, each.row, each.chunk, each.selector)
        assert (each.warp or 0, each.lane, each.nibble) == (warp, lane, nibble)
        assert (each.warp is None) == (op.family == "mma.sp")
        code = int(tiles[each.selector][each.row, each.chunk])
        assert each.code == code
        assert not each.problem
        assert each.positions == op.granularity.positions(code)
        start = each.chunk * op.granularity.chunk
        assert each.columns == tuple(start + p for p in each.positions)


def test_decoding_says_what_is_wrong():
    op = fm.wgmma("m64n8k64", a="s8", sp="sp")
    (*_, last) = read_words(op, [0x50000000], lane=2, warp=3)
    assert (last.warp, last.lane, last.nibble, last.row) == (3, 2, 7, 48)
    assert last.problem == "names position 1 twice"
    assert last.positions == last.columns == ()


def test_decoding_runs_on_into_the_next_warp():
    op = fm.wgmma("m64n8k64", a="s8", sp="sp")
    found = read_words(op, [0x44444444] * 2, lane=31, warp=0)
    assert [(each.warp, each.lane) for each in found[::8]] == [(0, 31), (1, 0)]
