"""Descriptors and tiles against formulas written out a second time, by hand."""

import doctest
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fragmenta as fm
from fragmenta.errors import AddressError
from fragmenta.reference.isa.families import catalogue
from fragmenta.reference.shared.boxes import load_box
from fragmenta.reference.shared.descriptor import Descriptor, atoms, extent, swizzled
from fragmenta.reference.shared.tile_copies import tile_copies
from fragmenta.reference.shared.tiles import read_tile
from fragmenta.reference.shared.tiles import tile as shared_tile
from tests.thinning import repeats

GOLDEN = Path(__file__).parents[1] / "golden"

SWIZZLES = (0, 32, 64, 128)
F16 = fm.wgmma("m64n24k16", a="f16", d="f32")
WIDTHS = {"b1": 1, "s8": 8, "e4m3": 8, "f16": 16, "bf16": 16, "tf32": 32}


def plain_address(d, mn, k, bits, major):
    """The byte address, case by case, as it was measured."""
    span = d.swizzle or 16
    if major == "k":
        kb = k * bits // 8
        address = (mn // 8) * d.stride + (mn % 8) * span
        address += (kb // span) * d.leading + kb % span
    elif d.swizzle:
        mb = mn * bits // 8
        address = (mb // span) * d.leading + (k // 8) * d.stride
        address += (k % 8) * span + mb % span
    else:
        mb = mn * bits // 8
        address = (mb // 16) * d.stride + (k // 8) * d.leading
        address += (k % 8) * 16 + mb % 16
    return plain_swizzle(d.start + address, d.swizzle)


def plain_swizzle(address, swizzle):
    def bit(n):
        return address >> n & 1

    flips = {0: (), 32: ((4, 7),), 64: ((4, 7), (5, 8)), 128: ((4, 7), (5, 8), (6, 9))}[
        swizzle
    ]
    found = address
    for low, high in flips:
        found ^= bit(high) << low
    return found


offsets = st.integers(0, (1 << 14) - 1).map(lambda n: 16 * n)
descriptors = st.builds(
    Descriptor, offsets, offsets, offsets, st.sampled_from(SWIZZLES)
)


# ── the word ────────────────────────────────────────────────────────────────


@given(offsets, offsets, offsets, st.sampled_from(SWIZZLES), st.integers(0, 7))
def test_the_word_is_these_bits_and_no_others(start, leading, stride, swizzle, base):
    base = base if swizzle else 0
    d = Descriptor(start, leading, stride, swizzle, base)
    mode = {0: 0, 128: 1, 64: 2, 32: 3}[swizzle]
    word = start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | base << 49
    assert d.encode() == word | mode << 62
    assert Descriptor.decode(d.encode()) == d
    assert Descriptor.decode(np.uint64(d.encode())) == d


WORKED = """
a K-major tile without swizzle, tf32   | 16 | 16 | tf32 | k  | 0  | 16 | 8
K-major, 32-byte swizzle, tf32         | 16 | 8  | tf32 | k  | 32 | -  | 16
MN-major without swizzle, bf16         | 16 | 16 | bf16 | mn | 0  | 16 | 8
MN-major, 32-byte swizzle, bf16        | 32 | 16 | bf16 | mn | 32 | 16 | 32
MN-major, 64-byte swizzle, bf16        | 64 | 16 | bf16 | mn | 64 | 32 | 64
"""


@pytest.mark.parametrize("line", WORKED.strip().splitlines())
def test_the_manuals_worked_examples(line):
    """Leading and stride field of each; the manual puts atoms along mn first."""
    _, rows, k, dtype, major, swizzle, leading, stride = map(str.strip, line.split("|"))
    d = Descriptor.for_tile(
        int(rows), int(k), dtype, major=major, swizzle=int(swizzle), order="mn"
    )
    assert d.encode() >> 32 & 0x3FFF == int(stride)
    if leading != "-":
        assert d.encode() >> 16 & 0x3FFF == int(leading)


def test_the_manuals_layout_of_the_first_example():
    """((8,2),(4,4)):((4,32),(1,64)), in elements of 4 bytes."""
    d = Descriptor.for_tile(16, 16, "tf32", swizzle=0)
    for m, k in np.ndindex(16, 16):
        element = m % 8 * 4 + m // 8 * 32 + k % 4 + k // 4 * 64
        assert d.address(m, k, "tf32") == 4 * element


# ── the map ─────────────────────────────────────────────────────────────────


@given(
    descriptors,
    st.integers(0, 255),
    st.integers(0, 255),
    st.sampled_from(sorted(WIDTHS)),
    st.sampled_from(["k", "mn"]),
)
def test_addresses_are_the_measured_ones(d, mn, k, dtype, major):
    bits = WIDTHS[dtype]
    if major == "mn" and bits != 16:
        return
    assert d.address(mn, k, dtype, major) == plain_address(d, mn, k, bits, major)
    where = d.bit_address(mn, k, dtype, major)
    assert where == 8 * plain_address(d, mn, k, bits, major) + k * bits % 8


def test_addresses_broadcast():
    d = Descriptor(1024, 128, 256, 64)
    grid = d.address(np.arange(64)[:, None], np.arange(16), "f16")
    assert grid.shape == (64, 16)
    assert grid[13, 9] == d.address(13, 9, "f16")
    assert isinstance(d.address(13, 9, "f16"), int)


@given(st.integers(0, (1 << 18) - 1), st.sampled_from(SWIZZLES))
def test_a_swizzle_exchanges_16_byte_units_and_undoes_itself(address, swizzle):
    found = int(swizzled(address, swizzle))
    assert found == plain_swizzle(address, swizzle)
    assert found // 128 == address // 128
    assert found % 16 == address % 16
    assert swizzled(found, swizzle) == address


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 16),
    st.integers(1, 6),
    st.sampled_from(sorted(WIDTHS)),
    st.sampled_from(["k", "mn"]),
    st.sampled_from(SWIZZLES),
    st.sampled_from([None, "k", "mn"]),
)
def test_a_canonical_tile_has_a_place_for_every_element(
    eights, reads, dtype, major, swizzle, order
):
    bits = WIDTHS[dtype]
    if major == "mn" and bits != 16:
        return
    rows, k = 8 * eights, reads * 256 // bits
    d = Descriptor.for_tile(
        rows, k, dtype, major=major, swizzle=swizzle, order=order, start=2048
    )
    found = d.bit_address(np.arange(rows)[:, None], np.arange(k), dtype, major)
    assert len(np.unique(found)) == rows * k
    lines, spans = atoms(rows, k, dtype, major, swizzle)
    assert found.min() >= 8 * 2048
    assert found.max() < 8 * (2048 + lines * spans * 8 * (swizzle or 16))


def test_the_leading_offset_counts_only_beyond_a_span():
    """32 bytes of k fit a 32-byte span; 64 (a sparse B) do not."""
    near, far = Descriptor(0, 16, 256, 32), Descriptor(0, 5120, 256, 32)
    inside, outside = np.arange(16), np.arange(16, 32)
    assert (near.address(0, inside, "f16") == far.address(0, inside, "f16")).all()
    apart = far.address(0, outside, "f16") - near.address(0, outside, "f16")
    assert set(apart) == {5104}


# ── advancing ───────────────────────────────────────────────────────────────


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["f16", "tf32", "s8", "b1"]),
    st.booleans(),
    st.sampled_from("AB"),
    st.sampled_from(SWIZZLES),
    st.sampled_from(["k", "mn"]),
    st.integers(0, 3),
    st.integers(0, 1),
)
def test_an_advanced_descriptor_reads_the_next_tile(
    dtype, sparse, operand, swizzle, major, step, below
):
    k = {"f16": 16, "tf32": 8, "s8": 32, "b1": 256}[dtype] * (2 if sparse else 1)
    if (sparse and dtype == "b1") or (major == "mn" and dtype != "f16"):
        return
    more = {"sp": "sp"} if sparse else {}
    wide = {"d": "f32"} if dtype == "f16" else {}
    op = fm.wgmma(f"m64n64k{k}", a=dtype, **wide, **more)
    rows, stored = extent(op, operand)
    matrix = random_matrix(op, operand, (2 * rows, 4 * stored))
    image, first = shared_tile(op, operand, matrix, swizzle=swizzle, major=major)
    there = first.advance(op, operand, k=step * stored, mn=below * rows, major=major)
    found = read_tile(op, operand, image, there, major=major)
    lines = matrix if operand == "A" else matrix.T
    wanted = lines[below * rows :, step * stored :][:rows, :stored]
    wanted = op.types[operand.lower()].encode(wanted)
    assert (found == (wanted if operand == "A" else wanted.T)).all()


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["f16", "s8"]),
    st.sampled_from("AB"),
    st.sampled_from(SWIZZLES),
    st.sampled_from(["k", "mn"]),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1)), max_size=4),
)
def test_steps_add_up_and_stay_in_the_tile(dtype, operand, swizzle, major, steps):
    """Step by step as at once; beyond the tile there is nothing."""
    if major == "mn" and dtype != "f16":
        return
    wide = {"d": "f32"} if dtype == "f16" else {}
    op = fm.wgmma(f"m64n64k{16 if dtype == 'f16' else 32}", a=dtype, **wide)
    rows, stored = extent(op, operand)
    first = Descriptor.for_tile(
        2 * rows, 4 * stored, dtype, swizzle=swizzle, major=major
    )
    unknown = Descriptor.decode(first.encode())
    here, at, below = first, 0, 0
    for step, down in steps:
        at, below = at + step, below + down
        if at > 3 or below > 1:
            with pytest.raises(AddressError, match="leaves its tile"):
                here.advance(op, operand, k=step * stored, mn=down * rows, major=major)
            return
        here = here.advance(op, operand, k=step * stored, mn=down * rows, major=major)
        unknown = unknown.advance(
            op, operand, k=step * stored, mn=down * rows, major=major
        )
        far = {"k": at * stored, "mn": below * rows, "major": major}
        assert here == unknown == first.advance(op, operand, **far)


def test_what_would_pass_the_end_of_a_span_is_refused():
    d = Descriptor.for_tile(24, 32, "f16", swizzle=64)
    assert d.advance(F16, "B", k=8).start == 16
    with pytest.raises(AddressError, match=r"cannot begin at mn 0, k 24.*k 16 is"):
        d.advance(F16, "B", k=24)
    gaps = Descriptor.for_tile(32, 64, "f16", swizzle=64, order="k")
    assert gaps.advance(F16, "B", mn=8).start == gaps.stride
    with pytest.raises(AddressError, match="cannot begin at mn 3, k 0"):
        gaps.advance(F16, "B", mn=3)
    with pytest.raises(
        fm.errors.ShapeError, match="k must be 0 to 2147483647; given -16"
    ):
        d.advance(F16, "B", k=-16)
    # without a swizzle every 16 bytes of k begin a span
    plain = Descriptor.for_tile(24, 32, "f16", swizzle=0)
    assert plain.advance(F16, "B", k=8).start == plain.leading


# ── tiles ───────────────────────────────────────────────────────────────────


def random_matrix(op, operand, shape, seed=0):
    """Stored values, (m, k) or (k, n), from rows and k."""
    of = op.types[operand.lower()]
    bits = np.random.default_rng(seed).integers(0, 1 << 62, shape, dtype=np.uint64)
    lines = of.decode((bits & of.mask).astype(of.bits_dtype))
    return lines if operand == "A" else lines.swapaxes(-1, -2)


def some_ops():
    """One instruction of each type and sparsity, n 8, 24 and 256."""
    found = {}
    for family in ("wgmma", "wgmma.sp"):
        for op in catalogue(family):
            if op.shape.n in (8, 24, 256):
                found.setdefault((op.types["a"], op.shape.n, op.sparse), op)
    return list(found.values())


# Every operand and every layout; they take turns.
@repeats(together=1)
@pytest.mark.parametrize("op", some_ops(), ids=str)
@pytest.mark.parametrize("swizzle", SWIZZLES)
def test_what_is_written_is_read(op, swizzle):
    for operand in "AB":
        of = op.types[operand.lower()]
        for major in ("k", "mn") if of.bits == 16 else ("k",):
            matrix = random_matrix(op, operand, (3, *extent(op, operand)))
            image, d = shared_tile(op, operand, matrix, swizzle=swizzle, major=major)
            assert image.shape[0] == 3
            found = read_tile(op, operand, image, d, major=major)
            assert (found == of.encode(matrix)).all()


def bit_of(image, where):
    return int(image[where // 8]) >> where % 8 & 1


@pytest.mark.parametrize("dtype", ["b1", "s8", "f16", "tf32"])
def test_reading_is_one_by_one_at_those_addresses(dtype):
    """Any descriptor, canonical or not, against single bits of the image."""
    rng = np.random.default_rng(5)
    k = 256 // WIDTHS[dtype]
    op = fm.wgmma(f"m64n8k{k}", a=dtype, **({"d": "f32"} if dtype == "f16" else {}))
    image = rng.integers(0, 256, 1 << 14, dtype=np.uint8)
    for major in ("k", "mn") if dtype == "f16" else ("k",):
        for swizzle in SWIZZLES:
            fields = (16 * rng.integers(0, 60, 3)).tolist()
            d = Descriptor(*fields, swizzle)
            found = read_tile(op, "B", image, d, major=major)
            assert found.shape == (k, 8)
            for _ in range(40):
                row, col = int(rng.integers(k)), int(rng.integers(8))
                bits = WIDTHS[dtype]
                at = plain_address(d, col, row, bits, major) * 8 + row * bits % 8
                value = sum(bit_of(image, at + i) << i for i in range(bits))
                assert found[row, col] == value


def test_words_and_images_broadcast():
    matrix = random_matrix(F16, "B", (5, 24, 16))
    image, d = shared_tile(F16, "B", matrix, swizzle=32)
    other = Descriptor(0, 16, 32, 0)
    words = np.array([[d.encode(), other.encode()]] * 5, np.uint64)
    found = read_tile(F16, "B", image[:, None], words)
    assert found.shape == (5, 2, 16, 24)
    for i in range(5):
        assert (found[i, 0] == read_tile(F16, "B", image[i], d)).all()
        assert (found[i, 1] == read_tile(F16, "B", image[i], other)).all()
    assert (read_tile(F16, "B", image, d.encode()) == found[:, 0]).all()
    assert (read_tile(F16, "B", image[0], words[0]) == found[0]).all()


def test_single_bits_may_stay_in_words():
    op = fm.wgmma("m64n8k256", a="b1")
    for operand, shape in (("A", (64, 8)), ("B", (8, 8))):
        matrix = random_matrix(op, operand, extent(op, operand))
        image, d = shared_tile(op, operand, matrix, swizzle=64)
        words = read_tile(op, operand, image, d, packed=True)
        assert words.shape == shape
        assert words.dtype == np.uint32
        lines = words if operand == "A" else words.T
        single = (lines[..., None] >> np.arange(32) & 1).reshape(len(lines), -1)
        assert (single == (matrix if operand == "A" else matrix.T)).all()


def test_tiles_share_an_image():
    A, B = random_matrix(F16, "A", (64, 64)), random_matrix(F16, "B", (24, 64))
    image, a = shared_tile(F16, "A", A)
    both, b = shared_tile(F16, "B", B, image=image, swizzle=64, major="mn")
    assert (both[: len(image)] == image).all()
    assert b.start == len(image)
    assert b.start % 1024 == 0
    here = read_tile(F16, "A", both, a.advance(F16, "A", k=16))
    assert (here == A[:, 16:32].view(np.uint16)).all()
    assert (read_tile(F16, "B", both, b, major="mn") == B[:16].view(np.uint16)).all()
    twice, _ = shared_tile(F16, "B", np.stack([B, B]), image=image)
    assert twice.shape[0] == 2


# ── tensor maps ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize("swizzle", SWIZZLES)
@pytest.mark.parametrize("major", ["k", "mn"])
def test_tensor_map_copies_leave_the_same_bytes(swizzle, major):
    """A box lands row after row, a span each, its 16-byte units swizzled."""
    matrix = random_matrix(F16, "A", (64, 128))
    image, d = shared_tile(F16, "A", matrix, swizzle=swizzle, major=major, start=1024)
    settings = tile_copies(64, 128, "f16", major=major, swizzle=swizzle, start=1024)
    source = matrix if major == "k" else matrix.T
    items = source.view(np.uint16)
    left = np.zeros_like(image)
    wide, high = settings.box
    for (first, second), where in settings.copies:
        for line, item in np.ndindex(high, wide):
            byte = where + line * (swizzle or 16) + 2 * item
            value = int(items[second + line, first + item])
            left[plain_swizzle(byte, swizzle)] = value & 0xFF
            left[plain_swizzle(byte + 1, swizzle)] = value >> 8
    assert (left == image).all()
    assert d.start == 1024


@pytest.mark.parametrize("swizzle", SWIZZLES)
@pytest.mark.parametrize("major", ["k", "mn"])
def test_copies_by_the_map_leave_the_same_bytes(swizzle, major):
    """The copies are carried out as an H200 carries them out."""
    matrix = random_matrix(F16, "A", (64, 128))
    image, _ = shared_tile(F16, "A", matrix, swizzle=swizzle, major=major, start=1024)
    told = tile_copies(64, 128, "f16", major=major, swizzle=swizzle, start=1024)
    source = np.ascontiguousarray(matrix if major == "k" else matrix.T)
    map_ = told.map(source.shape[::-1], source.strides[0])
    left = np.zeros_like(image)
    for coordinates, where in told.copies:
        left = load_box(
            map_, source.view(np.uint8).reshape(-1), left, coordinates, at=where
        )
    assert (left == image).all()


def test_tensor_maps_have_limits():
    assert tile_copies(512, 16, "f16", swizzle=32).box == (16, 256)
    assert len(tile_copies(512, 16, "f16", swizzle=32).copies) == 2
    assert tile_copies(64, 256, "b1", swizzle=32).box == (32, 64)
    assert tile_copies(64, 32, "s8").data_type.endswith("UINT8")
    with pytest.raises(fm.Error, match="not a whole number of boxes"):
        tile_copies(264, 16, "f16")
    with pytest.raises(fm.Error, match="not a whole number of boxes"):
        tile_copies(64, 48, "f16", swizzle=64)


# ── refusals ────────────────────────────────────────────────────────────────

FIELDS = [
    ((8, 0, 0, 0), "start address must be a multiple of 16 bytes; given 8"),
    ((0, 24, 0, 0), "leading offset must be a multiple of 16 bytes; given 24"),
    ((0, 0, 1, 0), "stride offset must be a multiple of 16"),
    ((1 << 18, 0, 0, 0), "start address must be 0 to 262128"),
    ((0, -16, 0, 0), "leading offset must be 0 to 262128"),
    ((0, 0, 1.5, 0), "stride offset must be a number of bytes"),
    ((0, 0, 0, 16), "swizzle must be 0, 32, 64 or 128 bytes; given 16"),
    ((0, 0, 0, 128, 8), "base_offset must be 0 to 7"),
]


@pytest.mark.parametrize(("fields", "message"), FIELDS)
def test_bad_fields_are_refused(fields, message):
    with pytest.raises(AddressError, match=message):
        Descriptor(*fields)


def test_bad_words_are_refused():
    with pytest.raises(AddressError, match="bit 14 and 46 must be 0"):
        Descriptor.decode(1 << 14 | 1 << 46)
    with pytest.raises(AddressError, match="64 bits"):
        Descriptor.decode(1 << 64)
    with pytest.raises(AddressError, match="64 bits"):
        Descriptor.decode(-1)


def test_base_offsets_are_those_of_an_h200():
    """Addresses (k, n) of a u8 B of m64n8k32, for all swizzles and base offsets."""
    with np.load(GOLDEN / "addresses" / "base_offset.npz") as recorded:
        words, found = recorded["words"], recorded["found"]
    k, n = np.mgrid[:32, :8]
    descriptors = [Descriptor.decode(int(word)) for word in words]
    assert {(d.swizzle, d.base_offset) for d in descriptors} == {
        (swizzle, base) for swizzle in (32, 64, 128) for base in range(8)
    }
    for d, seen in zip(descriptors, found, strict=True):
        assert Descriptor.decode(d.encode()) == d
        assert (d.address(n, k, "u8") == seen).all(), d


def test_without_a_swizzle_a_base_offset_means_nothing_on_an_h200():
    """The same addresses; the recording has every base offset without a swizzle."""
    with np.load(GOLDEN / "addresses" / "base_offset_no_swizzle.npz") as recorded:
        words, found = recorded["words"], recorded["found"]
    k, n = np.mgrid[:32, :8]
    descriptors = [Descriptor.decode(int(word)) for word in words]
    assert {d.base_offset for d in descriptors if not d.swizzle} == set(range(8))
    for d, seen in zip(descriptors, found, strict=True):
        assert (d.address(n, k, "u8") == seen).all(), d


@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_of_4_bits_is_that_of_an_h200(count):
    with np.load(GOLDEN / "h200" / "ldmatrix_s8_s4.npz") as recorded:
        image, at, found = (recorded[f"x{count}_{w}"] for w in ("image", "at", "found"))
    op = fm.instruction(f"ldmatrix.sync.aligned.m8n16.x{count}.shared.s8.s4")
    assert (fm.shared.ldmatrix(op, image, at) == found).all()


def test_a_base_offset_is_where_the_pattern_begins():
    """The pattern from 384 on is the one from 0 on, moved."""
    mn, k = np.mgrid[:64, :16]
    plain = Descriptor(0, 16, 1024, 128)
    moved = Descriptor(384, 16, 1024, 128, base_offset=3)
    expected = plain.address(mn, k, "f16") + 384
    assert (moved.address(mn, k, "f16") == expected).all()


@pytest.mark.parametrize("family", ["wgmma", "tcgen05"])
@pytest.mark.parametrize("major", ["k", "mn"])
@pytest.mark.parametrize("base", range(8))
def test_without_a_swizzle_a_base_offset_has_no_effect(family, major, base):
    """The manual has it for all swizzling modes except no swizzle; Triton writes 4."""
    mn, k = np.mgrid[:64, :16]
    plain = Descriptor(1152, 128, 256, 0, family=family)
    given = Descriptor.decode(plain.encode() | base << 49, family)
    assert given.base_offset == base
    assert given.encode() == plain.encode() | base << 49
    found = given.address(mn, k, "f16", major)
    assert (found == plain.address(mn, k, "f16", major)).all()


TILES = [
    ((60, 16, "f16"), {}, "rows must be a positive multiple of 8; given 60"),
    ((64, 8, "f16"), {}, "multiple of 16, the 32 bytes of f16"),
    ((64, 0, "f16"), {}, "multiple of 16, the 32 bytes"),
    ((64, 32, "s8"), {"major": "mn"}, "s8 cannot be MN-major"),
    ((64, 16, "f16"), {"major": "m"}, 'major must be "k" or "mn"'),
    ((64, 16, "f16"), {"swizzle": 48}, "swizzle must be"),
    ((64, 16, "f16"), {"start": 512}, "must start at a multiple of 1024 bytes"),
    ((64, 16, "f16"), {"start": 8, "swizzle": 0}, "multiple of 128|multiple of 16"),
    ((64, 16, "e3m2"), {}, "no packed form"),
    ((4096, 64, "f16"), {}, "leading offset must be 0 to 262128"),
]


@pytest.mark.parametrize(("tile", "options", "message"), TILES)
def test_impossible_tiles_say_why(tile, options, message):
    with pytest.raises(AddressError, match=message):
        Descriptor.for_tile(*tile, **options)


def test_reading_outside_names_operand_row_column_and_address():
    d = Descriptor(0, 128, 256, 0)
    image = np.zeros(700, np.uint8)
    with pytest.raises(
        AddressError,
        match=r"B of .*n24k16.*: row 0, column 19 is at address 560, "
        "outside the image of 560 bytes",
    ):
        read_tile(F16, "B", image[:560], d)
    with pytest.raises(
        AddressError, match=r"A of .*row 16, column 0 is at address 512"
    ):
        read_tile(F16, "A", image[:512], d)
    bits = fm.wgmma("m64n8k256", a="b1")
    with pytest.raises(
        AddressError, match=r"B of .*row 128, column 0 is at address 128"
    ):
        read_tile(bits, "B", image[:128], d)


def test_images_words_and_operands_are_checked():
    d = Descriptor(0, 128, 256, 0)
    with pytest.raises(fm.errors.ShapeError, match="array of uint8"):
        read_tile(F16, "B", np.zeros(16, np.int8), d)
    with pytest.raises(AddressError, match="at most 262144 bytes"):
        read_tile(F16, "B", np.zeros((1 << 18) + 1, np.uint8), d)
    with pytest.raises(AddressError, match="a descriptor must be"):
        read_tile(F16, "B", np.zeros(16, np.uint8), "start")
    with pytest.raises(fm.Error, match="operand must be 'A' or 'B'; given 'D'"):
        read_tile(F16, "D", np.zeros(16, np.uint8), d)
    with pytest.raises(fm.Error, match="does not take descriptors"):
        extent(fm.mma("m16n8k16", a="f16", d="f32"), "A")
    with pytest.raises(fm.errors.ShapeError, match="mn must be 0 to"):
        d.address(-1, 0, "f16")
    with pytest.raises(fm.errors.ShapeError, match="k must be a whole number"):
        d.address(0, 0.5, "f16")


def test_tiles_that_do_not_fit_are_refused():
    with pytest.raises(
        fm.errors.ShapeError, match=r"A of .* must be a whole number of 64x16 tiles"
    ):
        shared_tile(F16, "A", np.zeros((64, 24), np.float16))
    sparse = fm.wgmma("m64n24k32", a="f16", d="f32", sp="sp")
    with pytest.raises(fm.errors.ShapeError, match=r"the stored A of .* 64x16 tiles"):
        shared_tile(sparse, "A", np.zeros((64, 24), np.float16))
    with pytest.raises(fm.errors.ShapeError, match="whole number of 16x24"):
        shared_tile(F16, "B", np.zeros((0, 24), np.float16))
    with pytest.raises(fm.errors.ShapeError, match="whole number of 16x24"):
        shared_tile(F16, "B", np.zeros(16, np.float16))
    with pytest.raises(AddressError, match="ends at 263168"):
        shared_tile(F16, "A", np.zeros((64, 64), np.float16), start=249 * 1024)
    with pytest.raises(fm.errors.ValueRangeError):
        shared_tile(F16, "A", np.full((64, 16), 1e9))


def test_the_page_about_descriptors_runs():
    page = Path(__file__).resolve().parents[2] / "docs" / "descriptors.md"
    told = doctest.testfile(str(page), module_relative=False)
    assert told.attempted > 20
    assert not told.failed


@pytest.mark.parametrize("kind", [np.int16, np.int32, np.uint32, np.int64])
def test_numpy_integers_lose_no_bits(kind):
    fields = (1024, 128, 1024, 128, 1)
    made = Descriptor(*(kind(each) for each in fields))
    assert made.encode() == Descriptor(*fields).encode()
    assert Descriptor.decode(np.uint64(made.encode())) == made


@pytest.mark.parametrize("word", [1.5, "12", None])
def test_what_is_no_word_is_refused(word):
    with pytest.raises(AddressError, match="whole number"):
        Descriptor.decode(word)
    with pytest.raises(AddressError):
        Descriptor(0, 128, 1024, 128.0)


def test_tiles_that_are_none():
    with pytest.raises(AddressError, match="order must be 'k' or 'mn'; given 'banana'"):
        Descriptor.for_tile(64, 64, "f16", order="banana")
    with pytest.raises(AddressError, match="multiple of 16 bytes; given 8"):
        Descriptor.for_tile(64, 64, "f16", swizzle=0, start=8)
