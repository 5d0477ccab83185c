"""The loops load what the instructions need, with the addresses of known kernels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fragmenta as fm
from fragmenta.reference.shared.banks import bank_conflicts, degrees
from fragmenta.reference.shared.loops import tried
from fragmenta.reference.shared.matching import TileGrid
from fragmenta.reference.shared.placement import Placement

F16 = fm.mma("m16n8k16", a="f16", d="f32")
LANE = np.arange(32)


def tiled(part, matrix, counts):
    """The fragments of a matrix, (first, second, rows, columns); k is first."""
    rows, cols = part.shape
    tall, wide = matrix.shape[0] // rows, matrix.shape[1] // cols
    found = matrix.reshape(tall, rows, wide, cols).swapaxes(1, 2)
    if part.name == "A":  # m comes before k in the matrix, after it in the loop
        found = found.swapaxes(0, 1)
    assert found.shape[:2] == tuple(counts)
    return found


def random_matrix(part, shape, rng):
    bits = rng.integers(0, 1 << min(part.dtype.bits, 16), shape, dtype=np.uint32)
    if part.dtype.bits == 32:  # tf32 has 13 zeros below
        bits = bits << 16
    return part.dtype.decode(bits.astype(part.dtype.bits_dtype))


# ── expressions that everybody knows ────────────────────────────────────────


def test_a_by_rows_is_lane_modulo_16():
    loop = fm.shared.ldmatrix_loop(F16, "A", tile=(32, 64), order="row", pitch=144)
    assert str(loop.move) == "ldmatrix.sync.aligned.m8n8.x4.b16"
    assert loop.steps == {"k": 4, "m": 2}
    row, col = LANE % 16, 8 * (LANE // 16)
    for k in range(4):
        for m in range(2):
            wanted = (16 * m + row) * 144 + 2 * (16 * k + col)
            assert (loop.addresses[k, m] == wanted).all()
    assert str(loop.layout.to_cuda("holds", U=0, k=0, m=0)) == (
        "int row = lane & 15;\nint col = 8 * (lane >> 4);"
    )


def test_b_by_columns_for_two_n_tiles():
    loop = fm.shared.ldmatrix_loop(F16, "B", tile=(32, 32), order="col", along="n")
    n, k = (LANE & 7) + 8 * (LANE >> 4), 8 * ((LANE >> 3) & 1)
    assert str(loop.move) == "ldmatrix.sync.aligned.m8n8.x4.b16"
    for step in np.ndindex(2, 2):
        wanted = (16 * step[1] + n) * 64 + 2 * (16 * step[0] + k)
        assert (loop.addresses[step] == wanted).all()
    assert loop.registers[1, 1].tolist() == [[1, 2, 0], [1, 2, 1], [1, 3, 0], [1, 3, 1]]


def test_b_by_columns_for_two_k_steps():
    loop = fm.shared.ldmatrix_loop(F16, "B", tile=(64, 16), order="col", along="k")
    n, k = LANE & 7, 8 * (LANE >> 3)
    for step in np.ndindex(2, 2):
        wanted = (8 * step[1] + n) * 128 + 2 * (32 * step[0] + k)
        assert (loop.addresses[step] == wanted).all()
    assert loop.registers[1, 0].tolist() == [[2, 0, 0], [2, 0, 1], [3, 0, 0], [3, 0, 1]]


def test_b_by_rows_is_transposed():
    loop = fm.shared.ldmatrix_loop(F16, "B", tile=(32, 64), order="row", swizzle=128)
    assert str(loop.move) == "ldmatrix.sync.aligned.m8n8.x4.trans.b16"
    k, n = LANE % 16, 8 * (LANE // 16)
    for step in np.ndindex(2, 4):
        row, unit = 16 * step[0] + k, (16 * step[1] + n) // 8
        assert (loop.addresses[step] == 128 * row + 16 * (unit ^ row % 8)).all()


def test_d_of_wgmma_is_stored_by_each_warp():
    op = fm.wgmma("m64n128k16", a="f16", d="f16")
    loop = fm.shared.stmatrix_loop(op, "D", order="row", span=128, swizzle=128)
    assert loop.addresses.shape == (1, 1, 8, 4, 32)
    row, unit = 16 * np.arange(4)[:, None] + LANE % 16, LANE // 16
    for part in range(8):
        inside = 2 * (part % 4) + unit
        wanted = 8192 * (part // 4) + 128 * row + 16 * (inside ^ row % 8)
        assert (loop.addresses[0, 0, part] == wanted).all()


# ── the fragments arrive ────────────────────────────────────────────────────

SHAPES = [
    ("m16n8k16", "f16", "f32"),
    ("m16n8k8", "bf16", "f32"),
    ("m16n8k8", "tf32", "f32"),
    ("m16n8k4", "tf32", "f32"),
    ("m16n8k32", "s8", None),
    ("m16n8k16", "u8", None),
    ("m16n8k64", "s4", None),
    ("m16n8k32", "e4m3", "f32"),
    ("m8n8k16", "s8", None),
]
PLACES = [
    {},
    {"pitch": 16},
    {"swizzle": 32},
    {"swizzle": 128},
    {"swizzle": (2, 4, 4)},
    {"swizzle": (2, 5, 3), "start": 48},
    {"swizzle": 64, "pitch": 32},
    {"swizzle": (2, 4, -3)},
    {"swizzle": "128/32", "span": 32},
]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(SHAPES),
    st.sampled_from("AB"),
    st.sampled_from(["row", "col"]),
    st.sampled_from(PLACES),
    st.integers(1, 4),
    st.integers(1, 6),
    st.sampled_from(["sm_80", "sm_120a"]),
    st.integers(0, 1 << 30),
)
def test_every_loop_loads_every_fragment(
    shape, operand, order, place, first, second, target, seed
):
    op = fm.mma(shape[0], a=shape[1], **({"d": shape[2]} if shape[2] else {}))
    part = op.fragments[operand]
    tile = (first * part.shape[0], second * part.shape[1])
    line = tile[order == "row"] * part.container.bits // 8
    place = dict(place)
    if "pitch" in place:
        place["pitch"] += line
    try:
        memory = Placement.of(part, tile, order=order, **place)
    except fm.errors.AddressError:
        return
    tiles = TileGrid.of(op, operand, tile)
    each = list(tried("ldmatrix", tiles, memory, target))
    assert each
    found = [loop for loop in each if not isinstance(loop, str)]
    if (order == "col") == (operand == "B") and line % 16 == 0:
        assert found  # what needs no transposition is always possible
    if not found:
        return
    matrix = random_matrix(part, tile, np.random.default_rng(seed))
    image = memory.image(matrix)
    encode = part.dtype.encode  # NaNs are compared, too
    assert (encode(memory.matrix(image)) == encode(matrix)).all()
    wanted = part.pack(tiled(part, matrix, tiles.counts.values()))
    for loop in found:
        assert (loop.load(image) == wanted).all(), loop


def test_transposed_bytes_of_b_take_the_registers_of_two_in_turn():
    """ldmatrix.m16n16 has n before k in its registers; mma has k before n."""
    op = fm.mma("m16n8k32", a="s8")
    loop = fm.shared.ldmatrix_loop(
        op, "B", tile=(64, 32), order="row", target="sm_120a"
    )
    assert str(loop.move) == "ldmatrix.sync.aligned.m16n16.x2.trans.b8"
    assert str(loop.register_layout) == "R = R1  n = R0 n0  k = k0"
    B = np.arange(-1024, 1024).reshape(64, 32).astype(np.int8)
    assert (loop.load(loop.image(B)) == op.b.pack(tiled(op.b, B, (2, 4)))).all()
    with pytest.raises(fm.Error, match="into consecutive registers"):
        fm.shared.ldmatrix_addresses(
            op, "B", order="row", tiles=2, along="n", target="sm_120a"
        )


def test_packed_elements_are_unpacked():
    op = fm.mma("m16n8k32", a="e3m2", d="f32", kind="f8f6f4")
    loop = fm.shared.ldmatrix_loop(
        op, "B", tile=(64, 16), order="col", packed=True, swizzle=64, target="sm_120a"
    )
    assert str(loop.move) == "ldmatrix.sync.aligned.m8n16.x4.b8x16.b6x16_p32"
    B = random_matrix(op.b, (64, 16), np.random.default_rng(1))
    image = loop.image(B)
    assert (loop.matrix(image) == B).all()
    assert (loop.load(image) == op.b.pack(tiled(op.b, B, (2, 2)))).all()


def test_images_may_be_many():
    loop = fm.shared.ldmatrix_loop(F16, "A", tile=(32, 32), order="row", swizzle=64)
    A = np.random.default_rng(0).standard_normal((2, 3, 32, 32)).astype("f2")
    words = loop.load(loop.image(A))
    assert words.shape == (2, 3, 2, 2, 32, 4)
    assert (words[1, 2] == loop.load(loop.image(A[1, 2]))).all()


@pytest.mark.parametrize("order", ["row", "col"])
@pytest.mark.parametrize("place", [{}, {"swizzle": 64}, {"swizzle": (1, 4, 5)}])
def test_every_store_leaves_the_matrix(order, place):
    rng = np.random.default_rng(2)
    for op, operand, tile in (
        (fm.mma("m16n8k16", a="f16", d="f16"), "D", (32, 32)),
        (fm.wgmma("m64n32k16", a="f16", d="f16"), "D", (64, 32)),
        (fm.wgmma("m64n24k16", a="f16", d="f16"), "D", (128, 48)),
        (F16, "A", (32, 32)),
    ):
        part = op.fragments[operand]
        tiles = TileGrid.of(op, operand, tile)
        memory = Placement.of(part, tile, order=order, **place)
        matrix = random_matrix(part, tile, rng)
        words = part.pack(tiled(part, matrix, tiles.counts.values()))
        each = list(tried("stmatrix", tiles, memory, "sm_90a"))
        found = [loop for loop in each if not isinstance(loop, str)]
        assert found
        for loop in found:
            image = loop.store(np.zeros(memory.end, np.uint8), words)
            same = loop.matrix(image).view(np.uint16) == matrix.view(np.uint16)
            assert same.all(), loop


# ── what it costs ───────────────────────────────────────────────────────────


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 30), st.sampled_from([1, 2, 4, 8, 16]))
def test_degrees_are_those_of_bank_conflicts(seed, width):
    rng = np.random.default_rng(seed)
    where = width * rng.integers(-1 if width == 1 else 0, 40, (3, 32))
    where[rng.random(where.shape) < 0.2] = -1
    for row, found in zip(where, degrees(where, width), strict=True):
        phases = bank_conflicts(row, width).phases
        assert found.tolist() == [phase.degree for phase in phases]


@pytest.mark.parametrize(
    ("place", "degree"),
    [
        ({}, 8),
        ({"swizzle": 32}, 4),
        ({"swizzle": 64}, 2),
        ({"swizzle": 128}, 1),
        ({"pitch": 144}, 1),
        ({"pitch": 160}, 2),
        ({"swizzle": (3, 4, 4)}, 2),
    ],
)
def test_the_cost_is_that_of_exactly_these_accesses(place, degree):
    loop = fm.shared.ldmatrix_loop(F16, "B", tile=(64, 32), order="col", **place)
    cost = loop.conflicts()
    each = [fm.shared.bank_conflicts(loop.addresses[step]) for step in np.ndindex(4, 2)]
    assert cost.degree == degree == max(one.degree for one in each)
    assert cost.turns == sum(one.turns for one in each)
    assert (cost.phases, cost.instructions, cost.free) == (32, 8, degree == 1)


# ── refusals, and what works instead ────────────────────────────────────────

S8 = fm.mma("m16n8k32", a="s8")


@pytest.mark.parametrize(
    ("op", "operand", "options", "message"),
    [
        (F16, "A", {"tile": (24, 16)}, r"multiples of 16 and 16; given \(24, 16\)"),
        (F16, "A", {"tile": 64}, "rows, columns.*given 64"),
        (F16, "A", {"num": "x3"}, "'x1', 'x2' or 'x4'; given 'x3'"),
        (F16, "A", {"along": "n"}, "along m or k; given along='n'"),
        (F16, "B", {"order": "col", "num": "x4"}, "as x2 or x1; given x4"),
        (
            F16,
            "B",
            {"order": "col", "num": "x4", "along": "n", "tile": (32, 8)},
            "as x4 along k, x2 or x1; given x4 along n",
        ),
        (F16, "A", {"span": 24}, "span must be a multiple of 16 bytes.*given 24"),
        (F16, "A", {"start": -16}, "given start -16"),
        (F16, "A", {"tile": (1 << 14, 16)}, "must be below 262,144"),
        (F16, "A", {"swizzle": (3, 3, 3)}, "must be 4 or higher, but it is 3"),
        (F16, "A", {"swizzle": (3, 4)}, "three whole numbers"),
        (F16, "A", {"swizzle": (3, 4, 2)}, "shift must be at least 3"),
        (F16, "A", {"swizzle": (-1, 4, 3)}, "must be 0 to 32"),
        (F16, "A", {"swizzle": (9, 20, 12)}, "beyond bit 31"),
        (F16, "A", {"swizzle": (1, 4, 15)}, "has 1,048,576 bytes; shared memory has"),
        (
            S8,
            "B",
            {"tile": (32, 16)},
            "but these have 8; column-major memory works, with .*x4.b16; sm_100a has .*m16n16",
        ),
        (S8, "A", {"order": "col"}, "column-major memory.*; row-major memory works"),
        (
            fm.mma("m16n8k8", a="tf32", d="f32"),
            "B",
            {"tile": (8, 8)},
            "transposes elements of 16 bits, but these have 32; column-major",
        ),
        (fm.mma("m8n8k4", a="f64"), "A", {}, "64 bits, so use ld.shared"),
        (F16, "D", {}, "convert to 16 bits first: D of the same mma with d='f16'"),
        (F16, "E", {}, "has the fragments A, B, C and D"),
    ],
)
def test_what_is_impossible_says_what_works(op, operand, options, message):
    told = {"order": "row"} | options
    with pytest.raises(fm.Error, match=message):
        fm.shared.ldmatrix_loop(op, operand, **told)


def test_loads_do_not_store():
    load = fm.shared.ldmatrix_loop(F16, "A", order="row")
    with pytest.raises(fm.Error, match="this is a loop of ldmatrix"):
        load.store(np.zeros(512, np.uint8), np.zeros((1, 1, 32, 4), np.uint32))
    store = fm.shared.stmatrix_loop(F16, "A", order="row")
    with pytest.raises(fm.Error, match=r"made by fm.shared.stmatrix_loop"):
        store.load(np.zeros(512, np.uint8))
    with pytest.raises(fm.errors.ShapeError, match=r"\(1, 1, 32, 4\); given \(32, 4\)"):
        store.store(np.zeros(512, np.uint8), np.zeros((32, 4), np.uint32))
    with pytest.raises(
        fm.errors.ShapeError, match=r"16 x 16 elements; given \(16, 8\)"
    ):
        load.image(np.zeros((16, 8)))
    with pytest.raises(
        fm.errors.AddressError, match="ends at byte 512; the image has 256"
    ):
        load.matrix(np.zeros(256, np.uint8))


def test_swizzles_of_elements_are_swizzles_of_bytes():
    assert fm.shared.XorSwizzle.of_elements(3, 3, 3, "bf16") == (3, 4, 3)
    assert fm.shared.XorSwizzle.of_elements(2, 5, 2, "s4") == (2, 4, 2)
    with pytest.raises(fm.errors.AddressError, match="count bytes"):
        fm.shared.XorSwizzle.of_elements(3, 3, 3, "e3m2")
