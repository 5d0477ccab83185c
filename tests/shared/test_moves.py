"""The moves, one element at a time as the manual words them, and the way back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fragmenta as fm
from fragmenta.errors import AddressError
from fragmenta.reference.isa.families import catalogue
from fragmenta.reference.isa.reading import instruction
from fragmenta.reference.registers.words import pack_words
from fragmenta.reference.shared.descriptor import swizzled
from fragmenta.reference.shared.loops import ldmatrix_addresses, stmatrix_addresses
from fragmenta.reference.shared.moves import ldmatrix, movmatrix, stmatrix

LOADS = [op for op in catalogue("ldmatrix") if not op.values["space"]]
STORES = [op for op in catalogue("stmatrix") if not op.values["space"]]
MOVE = instruction("movmatrix.sync.aligned.m8n8.trans.b16")
X4 = instruction("ldmatrix.sync.aligned.m8n8.x4.b16")
SIZE = 2048


def scattered(rng, tiles=None, width=16):
    """Different rows of the image for all lanes, in no order."""
    shape = (SIZE // width,) if tiles is None else (tiles, SIZE // width)
    return width * np.argsort(rng.random(shape), axis=-1)[..., :32]


def element(image, address, column, kind):
    """Element ``column`` of the 16 bytes, or 8 of s8.s4, at an address."""
    row = int.from_bytes(image[address : address + 16].tobytes(), "little")
    widths = {"b16": 16, "b8": 8, "b8x16.b6x16_p32": 6, "b8x16.b4x16_p64": 4}
    width = widths.get(kind, 4)
    found = row >> width * column & (1 << width) - 1
    return found | 0xF0 if kind == "s8.s4" and found & 8 else found


def plain_load(op, image, addresses):
    """Register by register: which row and column of memory each part is."""
    count = int(op.values["num"][1:])
    kind, shape, trans = (op.values[name] for name in ("type", "shape", "trans"))
    words = []
    for lane in range(32):
        g, t = lane >> 2, lane & 3
        for matrix in range(count):
            if shape == "m8n8":
                at = addresses[8 * matrix :]
                pairs = [(g, 2 * t + j) for j in range(2)]
                pairs = [pair[::-1] for pair in pairs] if trans else pairs
                parts = [element(image, at[r], c, kind) for r, c in pairs]
                words.append(parts[0] | parts[1] << 16)
            elif shape == "m8n16":
                at = addresses[8 * matrix :]
                parts = [element(image, at[g], 4 * t + j, kind) for j in range(4)]
                words.append(sum(p << 8 * j for j, p in enumerate(parts)))
            else:
                at = addresses[16 * matrix :]
                for r in range(2):
                    parts = [
                        element(image, at[4 * t + j], g + 8 * r, kind) for j in range(4)
                    ]
                    words.append(sum(p << 8 * j for j, p in enumerate(parts)))
    return np.array(words, np.uint32).reshape(32, -1)


def plain_store(op, image, addresses, words):
    count = int(op.values["num"][1:])
    after = image.copy()
    for lane in range(32):
        g, t = lane >> 2, lane & 3
        for matrix in range(count):
            at = addresses[8 * matrix :]
            word = int(words[lane, matrix])
            if op.values["shape"] == "m8n8":
                for j in range(2):
                    place = (2 * t + j, g) if op.values["trans"] else (g, 2 * t + j)
                    row, column = place
                    after[at[row] + 2 * column] = word >> 16 * j & 0xFF
                    after[at[row] + 2 * column + 1] = word >> 16 * j + 8 & 0xFF
            else:
                for j in range(4):
                    row, column = g + 8 * (j >> 1), 2 * t + (j & 1)
                    after[at[column] + row] = word >> 8 * j & 0xFF
    return after


@pytest.mark.parametrize("op", LOADS, ids=str)
def test_every_load_delivers_what_the_manual_says(op):
    rng = np.random.default_rng(1)
    image = rng.integers(0, 256, SIZE, dtype=np.uint8)
    addresses = scattered(rng, width=8 if op.values["type"] == "s8.s4" else 16)
    found = ldmatrix(op, image, addresses)
    assert (found == plain_load(op, image, addresses)).all()


def test_signed_nibbles_become_signed_bytes():
    """As vLLM's probe of the instruction has it: low nibbles first, 8 bytes a row."""
    op = instruction("ldmatrix.sync.aligned.m8n16.x4.shared.s8.s4")
    values = np.random.default_rng(5).integers(-8, 8, (4, 8, 16)).astype(np.int8)
    nibbles = (values & 15).view(np.uint8)
    image = (nibbles[..., ::2] | nibbles[..., 1::2] << 4).reshape(-1)
    words = ldmatrix(op, image, np.arange(32) * 8)
    found = words.view(np.int8).reshape(32, 4, 4)
    for matrix, row, column in np.ndindex(values.shape):
        lane, byte = row * 4 + column // 4, column % 4
        assert found[lane, matrix, byte] == values[matrix, row, column]
    assert (op.d.unpack(words) == values).all()
    with pytest.raises(
        AddressError, match="8 bytes at address 252, which is not a mul"
    ):
        ldmatrix(op, image, np.full(32, 252))
    with pytest.raises(AddressError, match="8 bytes at address 256, which is outside"):
        ldmatrix(op, image, np.full(32, 256))


@pytest.mark.parametrize("op", STORES, ids=str)
def test_every_store_writes_what_the_manual_says(op):
    rng = np.random.default_rng(2)
    image = rng.integers(0, 256, SIZE, dtype=np.uint8)
    addresses = scattered(rng)
    shape = (32, op.fragments["A"].registers)
    words = rng.integers(0, 1 << 32, shape, dtype=np.uint32)
    before = image.copy()
    found = stmatrix(op, image, addresses, words)
    assert (found == plain_store(op, image, addresses, words)).all()
    assert (image == before).all()


def test_movmatrix_transposes():
    words = np.random.default_rng(3).integers(0, 1 << 32, (32, 1), dtype=np.uint32)
    found = movmatrix(MOVE, words).view(np.uint16).reshape(32, 2)
    given_ = words.view(np.uint16).reshape(32, 2)
    for lane in range(32):
        g, t = lane >> 2, lane & 3
        for j in range(2):
            row, column = 2 * t + j, g
            assert found[lane, j] == given_[4 * row + column // 2, column % 2]
    assert (movmatrix(MOVE, movmatrix(MOVE, words)) == words).all()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from(STORES))
def test_what_is_stored_is_loaded(seed, store):
    load = next(
        (
            op
            for op in LOADS
            if all(op.values[n] == store.values[n] for n in ("shape", "num", "trans"))
        ),
        None,
    )
    if load is None:  # stmatrix.m16n8 has no counterpart
        return
    rng = np.random.default_rng(seed)
    addresses = scattered(rng)
    shape = (32, store.fragments["A"].registers)
    words = rng.integers(0, 1 << 32, shape, dtype=np.uint32)
    image = stmatrix(store, np.zeros(SIZE, np.uint8), addresses, words)
    assert (ldmatrix(load, image, addresses) == words).all()


def test_batches_broadcast():
    rng = np.random.default_rng(4)
    images = rng.integers(0, 256, (3, SIZE), dtype=np.uint8)
    addresses = scattered(rng, tiles=2)
    found = ldmatrix(X4, images[:, None], addresses)
    assert found.shape == (3, 2, 32, 4)
    assert (found[2, 1] == ldmatrix(X4, images[2], addresses[1])).all()
    store = instruction("stmatrix.sync.aligned.m8n8.x4.b16")
    after = stmatrix(store, images[0], addresses, found[:, 0][:, None])
    assert after.shape == (3, 2, SIZE)
    assert (after[1, 0] == stmatrix(store, images[0], addresses[0], found[1, 0])).all()


# ── the addresses of a fragment ─────────────────────────────────────────────


def fragments():
    """One instruction for each fragment that might be moved."""
    found = {}
    for family in ("mma", "mma.sp", "wgmma"):
        for op in catalogue(family):
            for name in "ABCD":
                part = op.fragments.get(name)
                if part is not None and len(part.shape) == 2:
                    key = (part.layout, part.dtype, part.container)
                    found.setdefault(key, (op, name))
    return list(found.values())


def in_memory(part, order, pitch, rng):
    """A random image of so many lines, and the matrix of slots it holds."""
    slot = part.container.bits
    rows, cols = part.shape
    lines, inner = (rows, cols) if order == "row" else (cols, rows)
    image = rng.integers(0, 256, (lines, pitch), dtype=np.uint8)
    single = np.unpackbits(image, axis=1, bitorder="little")[:, : inner * slot]
    weights = np.uint64(1) << np.arange(slot, dtype=np.uint64)
    slots = (single.reshape(lines, inner, slot) * weights).sum(-1, dtype=np.uint64)
    matrix = slots if order == "row" else slots.T
    return image.reshape(-1), part.container.extract(matrix)


def test_whenever_addresses_are_given_the_fragment_arrives():
    rng = np.random.default_rng(6)
    delivered = 0
    for op, name in fragments():
        part = op.fragments[name]
        for order in ("row", "col"):
            inner = part.shape[order == "row"] * part.container.bits // 8
            pitch = -(-inner // 16) * 16 + 16 * int(rng.integers(3))
            target = "sm_120a" if rng.integers(2) else "sm_90a"
            try:
                load, addresses = ldmatrix_addresses(
                    op, name, order=order, pitch=pitch, target=target
                )
            except fm.Error:
                continue
            assert load.supported_on(target)
            image, matrix = in_memory(part, order, pitch, rng)
            words = ldmatrix(load, image, addresses)
            words = words.reshape(part.lanes, part.registers)
            assert (part.unpack_bits(words) == matrix).all(), (op, name, order)
            delivered += 1
    assert delivered > 60


EXPECTED = """
m16n8k16  f16  A row x4         | m16n8k16  f16  A col x4.trans
m16n8k16  f16  B col x2         | m16n8k16  f16  B row x2.trans
m16n8k8   f16  B col x1         | m16n8k8   bf16 A col x2.trans
m16n8k8   tf32 A row x4         | m16n8k8   tf32 B col x2
m16n8k32  s8   A row x4         | m16n8k32  s8   B col x2
m16n8k64  s4   A row x4         | m16n8k256 b1   B col x2
m16n8k32  e4m3 A row x4         | m16n8k8   tf32 A col -
m16n8k32  s8   B row -          | m16n8k64  s4   A col -
m16n8k16  f16  C row -          | m16n8k256 b1   B row -
"""


@pytest.mark.parametrize("case", EXPECTED.replace("|", "\n").split("\n"))
def test_the_forms_one_expects_on_hopper(case):
    if not case.strip():
        return
    shape, dtype, name, order, form = case.split()
    wide = {"d": "f32"} if dtype in ("f16", "bf16", "e4m3") else {}
    bitop = {"bitop": "and"} if dtype == "b1" else {}
    op = fm.mma(shape, a=dtype, **wide, **bitop)
    pitch = 512
    if form == "-":
        with pytest.raises(fm.Error, match="no ldmatrix of sm_90a moves"):
            ldmatrix_addresses(op, name, order=order, pitch=pitch)
        return
    load, addresses = ldmatrix_addresses(op, name, order=order, pitch=pitch)
    assert str(load) == f"ldmatrix.sync.aligned.m8n8.{form}.b16"
    assert addresses.shape == (32,)


def test_addresses_follow_start_pitch_and_swizzle():
    op = fm.mma("m16n8k16", a="f16", d="f32")
    _, plain = ldmatrix_addresses(op, "A", order="row", pitch=128, start=1024)
    lane = np.arange(32)
    row, unit = lane % 16, lane // 16
    assert (plain == 1024 + 128 * row + 16 * unit).all()
    _, mixed = ldmatrix_addresses(
        op, "A", order="row", pitch=128, start=1024, swizzle=128
    )
    assert (mixed == 1024 + 128 * row + 16 * (unit ^ row % 8)).all()


@pytest.mark.parametrize("along", ["k", "n"])
@pytest.mark.parametrize("order", ["row", "col"])
@pytest.mark.parametrize(
    ("shape", "of", "tiles"),
    [
        ("m16n8k16", "f16", 2),
        ("m16n8k8", "bf16", 2),
        ("m16n8k8", "bf16", 4),
        ("m16n8k32", "s8", 2),
        ("m16n8k8", "tf32", 2),
        ("m16n8k64", "s4", 2),
    ],
)
@pytest.mark.parametrize("swizzle", [0, 64])
def test_one_load_brings_the_b_of_several(shape, of, tiles, order, along, swizzle):
    """Each tile's registers are what its own mma packs."""
    wide = {"d": "f32"} if of in ("f16", "bf16") else {}
    op = fm.mma(shape, a=of, **wide)
    part, bits = op.b, op.b.dtype.bits
    sizes = dict(zip("kn", part.shape, strict=True))
    sizes[along] *= tiles
    lines, inner = (sizes["k"], sizes["n"])[:: 1 if order == "row" else -1]
    pitch = -(-inner * bits // 8 // 16) * 16 + 16
    named = {"order": order, "pitch": pitch, "start": 1024, "swizzle": swizzle}
    if order == "row" and bits != 16:
        with pytest.raises(fm.Error, match="no ldmatrix of sm_90a"):
            ldmatrix_addresses(op, "B", tiles=tiles, along=along, **named)
        return
    load, addresses = ldmatrix_addresses(op, "B", tiles=tiles, along=along, **named)
    assert load.values["num"] == f"x{tiles * part.registers}"
    assert addresses.used == 8 * tiles * part.registers
    rng = np.random.default_rng(3)
    matrix = rng.integers(0, 1 << min(bits, 16), (lines, inner)).astype(np.uint32)
    packed = pack_words(matrix, bits, 32) if bits < 32 else matrix
    image = np.zeros(1024 + lines * pitch + 64, np.uint8)
    for line, row in enumerate(np.ascontiguousarray(packed).view(np.uint8)):
        where = 1024 + line * pitch + np.arange(row.size)
        image[swizzled(where, swizzle)] = row
    words = ldmatrix(load, image, addresses).reshape(32, tiles, part.registers)
    B = matrix if order == "row" else matrix.T
    for number in range(tiles):
        first = {
            side: number * size * (side == along)
            for side, size in zip("kn", part.shape, strict=True)
        }
        own = B[first["k"] :, first["n"] :][: part.shape[0], : part.shape[1]]
        assert (part.unpack_bits(words[:, number]) == own).all()


def test_one_store_takes_the_d_of_two():
    op = fm.mma("m16n8k16", a="f16", d="f16")
    store, addresses = stmatrix_addresses(op, "D", order="row", tiles=2, along="n")
    assert str(store) == "stmatrix.sync.aligned.m8n8.x4.b16"
    D = np.arange(256, dtype=np.uint16).reshape(16, 16)
    words = [op.d.pack(half.view(np.float16)) for half in (D[:, :8], D[:, 8:])]
    image = np.zeros(512, np.uint8)
    after = stmatrix(store, image, addresses, np.concatenate(words, axis=-1))
    assert (after.view(np.uint16).reshape(16, 16) == D).all()


def test_lanes_that_do_not_count_have_an_address_too():
    op = fm.mma("m16n8k16", a="f16", d="f32")
    _, addresses = ldmatrix_addresses(op, "B", order="col")
    assert addresses[:16].tolist() == [32 * (n % 8) + 16 * (n // 8) for n in range(16)]
    assert set(addresses[16:]) == {addresses[15]}


def test_a_warpgroup_has_an_address_for_each_of_its_lanes():
    op = fm.wgmma("m64n8k16", a="f16", d="f32")
    load, addresses = ldmatrix_addresses(op, "A", order="row")
    assert addresses.shape == (4, 32)
    A = np.arange(64 * 16, dtype=np.uint16).reshape(64, 16)
    words = ldmatrix(load, A.view(np.uint8).reshape(-1), addresses)
    assert (op.a.unpack_bits(words.reshape(128, 4)) == A).all()


def test_six_bit_elements_are_unpacked_for_an_mma():
    op = fm.mma("m16n8k32", a="e3m2", d="f32", kind="f8f6f4")
    load, addresses = ldmatrix_addresses(
        op, "A", order="row", packed=True, target="sm_120a"
    )
    assert str(load) == "ldmatrix.sync.aligned.m8n16.x4.b8x16.b6x16_p32"
    values = np.random.default_rng(7).integers(0, 64, (16, 32), dtype=np.uint8)
    image = np.zeros((16, 2, 16), np.uint8)
    for row, col in np.ndindex(16, 32):
        for bit in range(6):
            at = 6 * (col % 16) + bit
            image[row, col // 16, at // 8] |= (values[row, col] >> bit & 1) << at % 8
    words = ldmatrix(load, image.reshape(-1), addresses)
    assert (op.a.unpack_bits(words) == values).all()


def test_eight_bit_elements_are_transposed_where_that_exists():
    op = fm.mma("m16n8k32", a="s8")
    load, _ = ldmatrix_addresses(op, "A", order="col", target="sm_120a")
    assert str(load) == "ldmatrix.sync.aligned.m16n16.x2.trans.b8"


def test_accumulators_are_stored():
    op = fm.wgmma("m64n8k16", a="f16", d="f16")
    store, addresses = stmatrix_addresses(op, "D", order="col")
    assert str(store) == "stmatrix.sync.aligned.m8n8.x2.trans.b16"
    D = np.arange(64 * 8, dtype=np.uint16).reshape(64, 8)
    words = op.d.pack(D.view(np.float16)).reshape(4, 32, 2)
    image = np.zeros(1024, np.uint8)
    for warp in range(4):
        image = stmatrix(store, image, addresses[warp], words[warp])
    assert (image.view(np.uint16).reshape(8, 64).T == D).all()


# ── refusals ────────────────────────────────────────────────────────────────


def test_bad_addresses_are_refused():
    image = np.zeros(SIZE, np.uint8)
    good = 16 * np.arange(32)
    for lane, wrong, message in (
        (9, 8, r"lane 9 \(matrix 1, row 1\) reads 16 bytes at address 8, which is not"),
        (3, SIZE, "address 2048, which is outside the image of 2048 bytes"),
        (0, -16, "address -16, which is outside"),
    ):
        bad = good.copy()
        bad[lane] = wrong
        with pytest.raises(AddressError, match=message):
            ldmatrix(X4, image, bad)
    with pytest.raises(fm.errors.ShapeError, match=r"32 byte addresses.*given int64"):
        ldmatrix(X4, image, good[:31])
    with pytest.raises(fm.errors.ShapeError, match="float64"):
        ldmatrix(X4, image, good.astype(float))
    # only the addresses of the matrices that are loaded count
    x1 = instruction("ldmatrix.sync.aligned.m8n8.x1.b16")
    bad = np.where(np.arange(32) < 8, good, 3)
    assert ldmatrix(x1, image, bad).shape == (32, 1)


def test_rows_on_each_other_are_refused_when_they_differ():
    store = instruction("stmatrix.sync.aligned.m8n8.x1.b16")
    image, addresses = np.zeros(128, np.uint8), np.zeros(32, np.int64)
    words = np.zeros((32, 1), np.uint32)
    assert not stmatrix(store, image, addresses, words).any()
    words[31] = 1
    with pytest.raises(AddressError, match="and another lane store different rows"):
        stmatrix(store, image, addresses, words)


def test_other_instructions_are_refused():
    mma = fm.mma("m16n8k16", a="f16", d="f32")
    image = np.zeros(16, np.uint8)
    with pytest.raises(
        fm.Error, match="ldmatrix takes an instruction of this family; given mma"
    ):
        ldmatrix(mma, image, np.zeros(32, int))
    with pytest.raises(
        fm.Error, match="stmatrix takes an instruction of this family; given ldmatrix"
    ):
        stmatrix(X4, image, np.zeros(32, int), np.zeros((32, 4), np.uint32))
    with pytest.raises(fm.Error, match="movmatrix takes an instruction"):
        movmatrix(X4, np.zeros((32, 1), np.uint32))


def test_names_of_instructions_will_do():
    image, addresses = np.arange(128, dtype=np.uint8), np.arange(32) * 16 % 128
    words = ldmatrix(str(X4), np.tile(image, 4), np.arange(32) * 16)
    assert (words == ldmatrix(X4, np.tile(image, 4), np.arange(32) * 16)).all()
    op = fm.mma("m16n8k16", a="f16", d="f32")
    load, named = ldmatrix_addresses(str(op), "A", order="row")
    assert load == ldmatrix_addresses(op, "A", order="row")[0]
    assert named[1] == 32
    one = "stmatrix.sync.aligned.m8n8.x1.shared.b16"
    stored = stmatrix(one, image * 0, addresses, np.full((32, 1), 7, np.uint32))
    assert (stored[::4] == 7).all()
    with pytest.raises(fm.errors.UnknownInstruction, match="named by text; given 5"):
        ldmatrix(5, image, addresses)


def test_what_no_load_can_do_says_why():
    f16 = fm.mma("m16n8k16", a="f16", d="f32")
    s8 = fm.mma("m16n8k32", a="s8")
    for op, name, options, message in (
        (f16, "E", {}, "has the fragments A, B, C and D"),
        (f16, "A", {"order": "diagonal"}, 'order must be "row" or "col"'),
        (f16, "A", {"pitch": 40}, "a multiple of 16 apart; given start 0, pitch 40"),
        (f16, "A", {"pitch": 16}, "rows of 32 bytes"),
        (f16, "A", {"pitch": "32"}, "given start 0, pitch '32'"),
        (f16, "A", {"start": 16.0}, "given start 16.0"),
        (f16, "A", {"start": 8}, "must start at a multiple of 16"),
        (f16, "A", {"packed": True}, "6-bit and 4-bit types; given f16"),
        (f16, "A", {"target": "sm_91"}, "no target sm_91"),
        (s8, "A", {"order": "col"}, "transposes elements of 16 bits, but these have 8"),
        (f16, "B", {"tiles": 3, "along": "k"}, "tiles must be 1, 2 or 4; given 3"),
        (f16, "B", {"tiles": 2}, "along k or n; given along=None"),
        (f16, "B", {"tiles": 2, "along": "m"}, "along k or n; given along='m'"),
        (f16, "A", {"along": "n"}, "tiles of A .* along m or k; given along='n'"),
        (
            f16,
            "A",
            {"tiles": 2, "along": "k"},
            "2 x A of .* are 8, which fm.shared.ldmatrix_loop",
        ),
        (f16, "B", {"tiles": 2, "along": "n", "pitch": 16}, "rows of 32 bytes"),
        (fm.mma("m8n8k4", a="f64"), "A", {}, "registers of 64 bits, so use ld.shared"),
        (fm.mma("m8n8k4", a="f16", d="f32"), "A", {}, "is not a single matrix"),
        (
            fm.mma("m16n8k32", a="e2m1", d="f32", kind="f8f6f4"),
            "A",
            {"packed": True, "target": "sm_120a"},
            "shift it by 2 afterwards",
        ),
        (
            fm.mma("m16n8k32", a="e3m2", d="f32", kind="f8f6f4"),
            "A",
            {"packed": True},
            "sm_90a has no ldmatrix for packed e3m2",
        ),
    ):
        with pytest.raises(fm.Error, match=message):
            ldmatrix_addresses(op, name, **{"order": "row", **options})
    wide = fm.wgmma("m64n64k16", a="f16", d="f32")
    with pytest.raises(fm.Error, match="1, 2 or 4 registers of 32 bits"):
        stmatrix_addresses(wide, "D", order="row")
