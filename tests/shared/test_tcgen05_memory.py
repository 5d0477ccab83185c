"""Shared memory of tcgen05 against formulas written out a second time, by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fragmenta as fm
from fragmenta.errors import AddressError
from fragmenta.reference.shared.descriptor import (
    Descriptor,
    atoms,
    extent,
    major_of,
    swizzled,
)
from fragmenta.reference.shared.elements import pad_row, unpad_row
from fragmenta.reference.shared.tile_copies import tile_copies
from fragmenta.reference.shared.tiles import pair_halves, read_rows, read_tile
from fragmenta.reference.shared.tiles import tile as shared_tile

SWIZZLES = (0, 32, 64, 128, "128/32")
CODES = {0: 0, "128/32": 1, 128: 2, 64: 4, 32: 6}
SPANS = {0: 16, 32: 32, 64: 64, 128: 128, "128/32": 128}
WORD = 0x4000404000010000
"""Leading offset 16, stride offset 1024, 128-byte swizzle, start 0."""

offsets = st.integers(0, (1 << 14) - 1).map(lambda n: 16 * n)


def plain_swizzle(address, swizzle):
    flips = {
        0: (),
        32: ((4, 7),),
        64: ((4, 7), (5, 8)),
        128: ((4, 7), (5, 8), (6, 9)),
        "128/32": ((5, 7), (6, 8)),
    }
    found = address
    for low, high in flips[swizzle]:
        found ^= (address >> high & 1) << low
    return found


def plain_address(d, mn, byte_of_k=0, k=0, mn_bytes=0, major="k"):
    """The canonical layouts, case by case; bytes along, elements across."""
    span = SPANS[d.swizzle]
    if major == "k":
        at = mn // 8 * d.stride + mn % 8 * span
        at += byte_of_k // span * d.leading + byte_of_k % span
    elif d.swizzle == 0:
        at = mn_bytes // 16 * d.stride + k // 8 * d.leading
        at += k % 8 * 16 + mn_bytes % 16
    else:
        high = 4 if d.swizzle == "128/32" else 8
        at = mn_bytes // span * d.leading + k // high * d.stride
        at += k % high * span + mn_bytes % span
    return plain_swizzle(d.start + at, d.swizzle)


# ── the word ────────────────────────────────────────────────────────────────


@given(
    offsets,
    offsets,
    offsets,
    st.sampled_from(SWIZZLES),
    st.integers(0, 7),
    st.booleans(),
)
def test_the_word_is_these_bits(start, leading, stride, swizzle, base, absolute):
    base = base if swizzle else 0
    absolute = absolute and swizzle == 128 and not base
    d = Descriptor(start, leading, stride, swizzle, base, "tcgen05", absolute)
    word = start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | 1 << 46
    word |= base << 49 | absolute << 52 | CODES[swizzle] << 61
    assert d.encode() == word
    assert Descriptor.decode(np.uint64(word), family="tcgen05") == d


def test_the_known_word_both_ways():
    old = Descriptor(0, 16, 1024, 128)
    new = Descriptor(0, 16, 1024, 128, family="tcgen05")
    assert (old.encode(), new.encode()) == (0x4000004000010000, WORD)
    assert old.to_tcgen05() == new
    assert new.to_wgmma() == old
    assert old != new
    assert eval(repr(new)) == new
    assert repr(old) == (
        "Descriptor(start=0, leading=16, stride=1024, swizzle=128, base_offset=0)"
    )


@given(offsets, offsets, offsets, st.sampled_from([0, 32, 64, 128]))
def test_only_bit_46_tells_the_families_apart(start, leading, stride, swizzle):
    d = Descriptor(start, leading, stride, swizzle)
    assert d.to_tcgen05().encode() == d.encode() | 1 << 46


REFUSED = [
    (
        0x4000004000010000,
        "bit 46 is not set: this is a wgmma descriptor; for tcgen05 "
        "set it: 0x4000404000010000",
    ),
    (WORD | 1 << 47, "bits 46 to 48 must be 0b001; given 0b011"),
    (WORD | 1 << 14, "bit 14 is for sm_107 only, where the start address has 15 bits"),
    (WORD | 1 << 30, "bit 30 is for sm_107 only, where the leading offset has 15"),
    (WORD | 1 << 53, "bit 53 is for sm_107 only, where it selects 24 bytes for .decom"),
    (WORD | 1 << 15 | 1 << 60, "bit 15 and 60 must be 0"),
    (WORD | 1 << 61, "swizzle code 3 is invalid; valid are 0 0, 1 128/32, 2 128, 4 64"),
    (1 << 46 | 1 << 52, "an absolute leading offset needs swizzle 128"),
    (WORD | 1 << 52 | 1 << 49, "an absolute leading offset needs base_offset 0"),
    (1 << 64, "64 bits"),
]


@pytest.mark.parametrize(("word", "message"), REFUSED)
def test_words_are_refused_with_the_reason(word, message):
    with pytest.raises(AddressError, match=message.replace("(", r"\(")):
        Descriptor.decode(word, family="tcgen05")


def test_a_word_of_tcgen05_is_no_word_of_wgmma():
    with pytest.raises(AddressError, match=r'bit 46 must be 0; .*family="tcgen05"'):
        Descriptor.decode(WORD)
    with pytest.raises(AddressError, match="given '128/32'"):
        Descriptor(0, 0, 0, "128/32")
    with pytest.raises(AddressError, match="family must be 'wgmma' or 'tcgen05'"):
        Descriptor(0, 0, 0, 0, family="mma")
    with pytest.raises(AddressError, match="needs family tcgen05"):
        Descriptor(0, 0, 0, 128, absolute=True)
    with pytest.raises(AddressError, match="15 bits, and only sm_107"):
        Descriptor(1 << 18, 0, 0, 128, family="tcgen05")


# ── the map ─────────────────────────────────────────────────────────────────


@given(st.integers(0, (1 << 18) - 1))
def test_atoms_of_32_bytes_stay_together(address):
    found = int(swizzled(address, "128/32"))
    assert found == plain_swizzle(address, "128/32")
    assert (found // 128, found % 32) == (address // 128, address % 32)
    assert swizzled(found, "128/32") == address


def test_the_swizzle_of_128_32_by_hand():
    """Four lines of four atoms: the XOR table of two bits."""
    lines = [
        [int(swizzled(128 * y + 32 * x, "128/32")) % 128 // 32 for x in range(4)]
        for y in range(5)
    ]
    assert lines == [
        [0, 1, 2, 3],
        [1, 0, 3, 2],
        [2, 3, 0, 1],
        [3, 2, 1, 0],
        [0, 1, 2, 3],
    ]


@given(offsets, offsets, offsets, st.integers(0, 255), st.integers(0, 255))
def test_addresses_are_those_of_the_canonical_layouts(start, leading, stride, mn, k):
    for swizzle in SWIZZLES:
        d = Descriptor(start, leading, stride, swizzle, family="tcgen05")
        if swizzle == "128/32":
            wanted = plain_address(d, 0, k=k, mn_bytes=4 * mn, major="mn")
            assert d.address(mn, k, "tf32", "mn") == wanted
            continue
        assert d.address(mn, k, "bf16") == plain_address(d, mn, 2 * k)
        assert d.address(mn, k, "tf32") == plain_address(d, mn, 4 * k)
        wanted = plain_address(d, 0, k=k, mn_bytes=mn, major="mn")
        assert d.address(mn, k, "e4m3", "mn") == wanted


def test_narrow_elements_with_and_without_padding():
    d = Descriptor(0, 128, 256, 0, family="tcgen05")
    k = np.arange(64)
    packed = d.bit_address(3, k, "e2m1", kind="mxf4")
    assert (packed == [8 * plain_address(d, 3, i // 2) + 4 * (i % 2) for i in k]).all()
    for of, bits in (("e2m1", 4), ("e2m3", 6)):
        found = d.bit_address(3, k, of, kind="f8f6f4")
        byte = [i // 16 * 16 + i % 16 * bits // 8 for i in range(64)]
        wanted = [8 * plain_address(d, 3, b) + i * bits % 8 for i, b in enumerate(byte)]
        assert (found == wanted).all()


RULES = [
    (("tf32", "mn", 128, None), "MN-major operand of tf32 has only swizzle '128/32'"),
    (("f16", "mn", "128/32", None), "an MN-major operand of f16 cannot have swizzle"),
    (("s8", "k", "128/32", None), "a K-major operand cannot have swizzle '128/32'"),
    (("e2m1", "mn", 128, "f8f6f4"), "e2m1 cannot be MN-major: tcgen05 transposes only"),
    (("e3m2", "mn", 128, "f8f6f4"), "e3m2 cannot be MN-major"),
    (("e3m2", "k", 128, None), "e3m2 has no packed form"),
    (("b1", "k", 128, None), "tcgen05 does not take b1"),
]


@pytest.mark.parametrize(("tile", "message"), RULES)
def test_which_swizzle_for_what(tile, message):
    of, major, swizzle, kind = tile
    d = Descriptor(0, 1024, 1024, swizzle, family="tcgen05")
    with pytest.raises(AddressError, match=message):
        d.address(0, 0, of, major, kind)
    with pytest.raises(AddressError, match=message):
        Descriptor.for_tile(
            64, 64, of, major=major, swizzle=swizzle, family="tcgen05", kind=kind
        )


def test_what_only_hardware_can_say_is_refused():
    odd = Descriptor(128, 16, 1024, 128, 1, "tcgen05")
    with pytest.raises(AddressError, match="base offset was not seen on hardware"):
        odd.address(0, 0, "f16")
    far = Descriptor(96, 8192, 1024, 128, family="tcgen05", absolute=True)
    assert far.address(1, 63, "e2m1", kind="mxf4") == plain_swizzle(96 + 128 + 31, 128)
    with pytest.raises(AddressError, match="absolute leading offset was not seen"):
        far.address(0, 64, "e2m1", kind="mxf4")
    with pytest.raises(AddressError, match="is for K-major operands"):
        far.address(0, 0, "f16", "mn")


# ── padding ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("width", [4, 6])
def test_padded_rows_bit_by_bit(width):
    bits = np.random.default_rng(1).integers(0, 1 << width, (3, 64), dtype=np.uint8)
    rows = pad_row(bits, width)
    assert rows.shape == bits.shape
    for row, wanted in zip(rows, bits, strict=True):
        for group in range(4):
            number = int.from_bytes(
                row[16 * group : 16 * group + 16].tobytes(), "little"
            )
            elements = [number >> width * i & (1 << width) - 1 for i in range(16)]
            assert elements == wanted[16 * group : 16 * group + 16].tolist()
            assert number >> 16 * width == 0
    full = rows.copy()
    full.reshape(3, 4, 16)[..., 2 * width :] = 0xFF  # nobody reads the padding
    assert (unpad_row(full, width) == bits).all()


# ── tiles ───────────────────────────────────────────────────────────────────

OPS = [
    ("m128n32k16", {"a": "f16", "d": "f32"}),
    ("m128n32k16", {"a": "bf16", "d": "f32", "transpose_a": True}),
    ("m64n24k8", {"a": "tf32", "d": "f32"}),
    ("m64n64k8", {"a": "tf32", "d": "f32", "transpose_a": True, "transpose_b": True}),
    ("m128n32k32", {"a": "s8", "d": "s32", "transpose_b": True}),
    ("m128n48k32", {"a": "e4m3", "b": "e2m1", "d": "f32"}),
    ("m128n48k32", {"a": "e3m2", "b": "e2m3", "d": "f16"}),
    ("m128n48k32", {"a": "e2m1", "b": "e5m2", "kind": "mxf8f6f4"}),
    ("m128n64k64", {"a": "e2m1", "kind": "mxf4"}),
    ("m256n64k64", {"a": "e2m1", "kind": "mxf4nvf4", "cta_group": 2}),
    ("m256n64k96", {"a": "e2m1", "kind": "mxf4", "cta_group": 2}),
    ("m256n32k32", {"a": "f16", "d": "f32", "cta_group": 2, "sp": True}),
    ("m128n64k64", {"a": "e2m3", "b": "e4m3", "d": "f32", "sp": True}),
    ("m32n64k16", {"a": "f16", "d": "f32", "ws": True, "transpose_b": True}),
]


def made(case):
    shape, options = case
    return fm.tcgen05(shape, **options)


def random_lines(op, operand, shape, seed=0):
    of = op.types[operand.lower()]
    bits = np.random.default_rng(seed).integers(0, 1 << 62, shape, dtype=np.uint64)
    return (bits & of.mask).astype(of.bits_dtype)


def turned(lines, operand):
    return lines if operand == "A" else lines.swapaxes(-1, -2)


def swizzles(op, operand):
    """All that one instruction can read with."""
    of = op.types[operand.lower()]
    if major_of(op, operand) == "mn":
        return ("128/32",) if of.bits == 32 else (0, 32, 64, 128)
    rows = extent(op, operand)[1] * (
        4 if op.kind.startswith("mxf4") else max(8, of.bits)
    )
    return [s for s in (0, 32, 64, 128) if not s or rows // 8 <= s]


@pytest.mark.parametrize("case", OPS, ids=str)
def test_what_is_written_is_read_next_step_too(case):
    op = made(case)
    for operand in "AB":
        of = op.types[operand.lower()]
        rows, k = extent(op, operand)
        lines = random_lines(op, operand, (2, rows, 2 * k))
        matrix = of.decode(turned(lines, operand))
        for swizzle in swizzles(op, operand):
            image, d = shared_tile(op, operand, matrix, swizzle=swizzle)
            assert d.family == "tcgen05"
            found = read_tile(op, operand, image, d)
            assert (found == turned(lines[..., :k], operand)).all(), swizzle
            again = read_tile(op, operand, image, np.uint64(d.encode()))
            assert (again == found).all()
            if op.shape.k == 96 and swizzle:
                continue
            there = d.advance(op, operand, k=k)
            found = read_tile(op, operand, image, there)
            assert (found == turned(lines[..., k:], operand)).all(), swizzle


@pytest.mark.parametrize("case", OPS, ids=str)
def test_reading_is_one_by_one_at_those_addresses(case):
    """Single bits of random images, by the formulas above."""
    op, rng = made(case), np.random.default_rng(7)
    image = rng.integers(0, 256, 1 << 16, dtype=np.uint8)
    for operand in "AB":
        of, major = op.types[operand.lower()], major_of(op, operand)
        (rows, k), padded = extent(op, operand), "8f6f4" in op.kind
        for swizzle in swizzles(op, operand):
            d = Descriptor(
                0, *(16 * rng.integers(1, 90, 2)).tolist(), swizzle, family="tcgen05"
            )
            found = turned(read_tile(op, operand, image, d), operand)
            assert found.shape == (rows, k)
            for _ in range(20):
                mn, at = int(rng.integers(rows)), int(rng.integers(k))
                if major == "k":
                    bit = at * of.bits
                    if padded and of.bits < 8:
                        bit = at // 16 * 128 + at % 16 * of.bits
                    numbers = [
                        8 * plain_address(d, mn, (bit + i) // 8) + (bit + i) % 8
                        for i in range(of.bits)
                    ]
                else:
                    byte = mn * of.bits // 8
                    numbers = [
                        8
                        * plain_address(d, 0, k=at, mn_bytes=byte + i // 8, major="mn")
                        + i % 8
                        for i in range(of.bits)
                    ]
                value = sum(
                    (int(image[n // 8]) >> n % 8 & 1) << i
                    for i, n in enumerate(numbers)
                )
                assert found[mn, at] == value


def test_rows_of_k_are_32_48_or_64_bytes():
    """For every kind, as bytes between the first and the last element."""
    sizes = set()
    for case in OPS:
        op = made(case)
        for operand in "AB":
            if major_of(op, operand) == "k":
                of, (_, k) = op.types[operand.lower()], extent(op, operand)
                lines, spans = atoms(8, k, of, "k", 0, "tcgen05", op.kind)
                assert lines == 1
                sizes.add((op.sparse and operand == "B", op.shape.k == 96, 16 * spans))
    assert sizes == {(False, False, 32), (False, True, 48), (True, False, 64)}


def test_a_pair_has_halves():
    op = fm.tcgen05("m256n32k16", a="f16", d="f32", cta_group=2)
    A = np.arange(256 * 16).reshape(256, 16) % 1009
    B = np.arange(16 * 32).reshape(16, 32)
    assert (pair_halves(A, op, "A")[1] == A[128:]).all()
    assert (pair_halves(B, op, "B")[1] == B[:, 16:]).all()
    image, b = shared_tile(op, "B", pair_halves(B, op, "B"))
    assert image.shape[0] == 2
    halves = op.types["b"].decode(read_tile(op, "B", image, b))
    assert (halves == np.stack([B[:, :16], B[:, 16:]])).all()
    alone = fm.tcgen05("m128n32k16", a="f16", d="f32")
    assert pair_halves(B, alone, "B").shape == B.shape


def test_rows_that_pass_the_end_of_a_span_are_refused():
    sparse = fm.tcgen05("m128n32k32", a="f16", d="f32", sp=True)
    image = np.zeros(1 << 14, np.uint8)
    narrow = Descriptor(0, 256, 256, 32, family="tcgen05")
    with pytest.raises(AddressError, match=r"rows of 64 bytes .* beyond its 32 bytes"):
        read_tile(sparse, "B", image, narrow)
    op = fm.tcgen05("m128n32k16", a="f16", d="f32")
    inside = Descriptor(96, 16, 1024, 128, family="tcgen05")
    assert read_tile(op, "B", image, inside).shape == (16, 32)
    with pytest.raises(AddressError, match="from byte 112 of a span on"):
        read_tile(op, "B", image, Descriptor(112, 16, 1024, 128, family="tcgen05"))


def test_the_family_and_the_major_side_must_fit():
    op = fm.tcgen05("m128n32k16", a="f16", d="f32", transpose_b=True)
    image = np.zeros(1 << 14, np.uint8)
    with pytest.raises(AddressError, match=r"given one of wgmma; .to_tcgen05\(\)"):
        read_tile(op, "A", image, Descriptor(0, 16, 1024, 128))
    with pytest.raises(AddressError, match="bit 46 is not set"):
        read_tile(op, "A", image, Descriptor(0, 16, 1024, 128).encode())
    with pytest.raises(
        AddressError, match=r"bit 16 of its instruction descriptor is 1"
    ):
        shared_tile(op, "B", np.zeros((16, 32)), major="k")
    assert major_of(op, "B") == "mn"
    bare = fm.instruction("tcgen05.mma.cta_group::1.kind::f16")
    with pytest.raises(fm.Error, match="has no instruction descriptor"):
        extent(bare, "A")
    hopper = fm.wgmma("m64n8k16", a="f16", d="f32")
    with pytest.raises(AddressError, match=r"given one of tcgen05; .to_wgmma\(\)"):
        read_tile(hopper, "B", image, Descriptor(0, 16, 1024, 128, family="tcgen05"))


# ── rows for tcgen05.cp ─────────────────────────────────────────────────────


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from([0, 32, 64, 128]),
    st.sampled_from([(128, 32), (128, 16), (4, 32), (64, 16), (32, 16)]),
    st.integers(0, 50),
    st.integers(0, 50),
    st.integers(0, 9),
)
def test_rows_are_read_byte_by_byte(swizzle, shape, leading, stride, start):
    image = np.random.default_rng(3).integers(0, 256, (2, 1 << 15), dtype=np.uint8)
    start = 1024 * start if swizzle else 16 * start
    d = Descriptor(start, 16 * leading, 16 * stride, swizzle, family="tcgen05")
    rows, size = shape
    found = read_rows(image, d, rows, size)
    assert found.shape == (2, rows, size)
    where = [
        [plain_address(d, row, byte) for byte in range(size)] for row in range(rows)
    ]
    assert (found == image[:, where]).all()
    words = np.array([[d.encode()], [WORD]], np.uint64)
    both = read_rows(image, words, rows, size)
    assert both.shape == (2, 2, rows, size)
    assert (both[0] == found).all()


def test_rows_outside_are_refused():
    image = np.zeros(2048, np.uint8)
    d = Descriptor(0, 128, 256, 0, family="tcgen05")
    with pytest.raises(AddressError, match="row 64 of 128 rows of 16 bytes is outside"):
        read_rows(image, d, 128, 16)
    with pytest.raises(
        fm.errors.ShapeError, match="size must be a positive multiple of 16"
    ):
        read_rows(image, d, 8, 24)
    with pytest.raises(AddressError, match="given one of wgmma"):
        read_rows(image, d.to_wgmma(), 8, 16)
    with pytest.raises(AddressError, match="bit 46 is not set"):
        read_rows(image, d.to_wgmma().encode(), 8, 16)


# ── copies by tensor maps ───────────────────────────────────────────────────


def test_copies_leave_the_bytes_of_mn_major_tf32():
    """A box lands row after row, 128 bytes each, its 32-byte atoms exchanged."""
    op = fm.tcgen05("m128n64k8", a="tf32", d="f32", transpose_b=True)
    lines = random_lines(op, "B", (64, 16))
    image, d = shared_tile(op, "B", op.types["b"].decode(lines.T), start=1024)
    assert (d.swizzle, d.leading, d.stride) == ("128/32", 2048, 512)
    told = tile_copies(
        64, 16, "tf32", major="mn", swizzle="128/32", start=1024, family="tcgen05"
    )
    assert "SWIZZLE_128B_ATOM_32B" in str(told)
    assert told.box == (32, 16)
    left = np.zeros_like(image)
    for (first, second), where in told.copies:
        for line, item, byte in np.ndindex(told.box[1], told.box[0], 4):
            value = int(lines[first + item, second + line]) >> 8 * byte & 0xFF
            at = where + 128 * line + 4 * item + byte
            left[plain_swizzle(at, "128/32")] = value
    assert (left == image).all()
    with pytest.raises(fm.Error, match="tensor maps of sm_100"):
        told.map((64, 16), 256)
    with pytest.raises(fm.Error, match="has padding in shared memory"):
        tile_copies(64, 32, "e2m3", family="tcgen05", kind="f8f6f4")


@pytest.mark.parametrize("bad", [np.zeros(2), None, "128/16", 128.0, True, ["128/32"]])
def test_what_is_no_swizzle_is_refused(bad):
    with pytest.raises(AddressError, match="swizzle must be"):
        Descriptor(0, 0, 0, bad, family="tcgen05")
    with pytest.raises(AddressError, match="swizzle must be"):
        Descriptor.from_steps(0, 0, 0, major="mn", swizzle=bad, family="tcgen05")
    with pytest.raises(AddressError, match="swizzle must be"):
        swizzled(0, bad)
