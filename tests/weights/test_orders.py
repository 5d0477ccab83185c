"""The orders are those of the libraries, and a refusal says why."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import fragmenta as fm
from fragmenta.reference.weights.moving import Blocks
from fragmenta.reference.weights.orders import KNOWN
from tests.weights import published

CASES = [
    (name, bits, shape)
    for name, known in KNOWN.items()
    for bits in known.memory
    # Sizes that are no powers of two, too.
    for shape in ((128, 64), (192, 320))
]


def codes(shape: tuple[int, ...], bits: int) -> np.ndarray:
    kind = np.uint8 if bits <= 8 else np.uint16
    high = min(1 << bits, 1 << 16)
    return (
        np.random.default_rng(7).integers(0, high, shape, dtype=np.uint32).astype(kind)
    )


@pytest.mark.parametrize(("name", "bits", "shape"), CASES)
def test_known_orders_are_those_of_the_libraries(
    name: str, bits: int, shape: tuple[int, int]
) -> None:
    order, W = fm.weights.shuffle(name, shape=shape, bits=bits), codes(shape, bits)
    words = order.pack(W)
    wanted = published.ORDERS[name](W, bits)
    assert words.shape == (wanted.shape if wanted.ndim == 2 else words.shape)
    assert (words.ravel() == wanted.ravel()).all()
    assert (order.unpack(words) == W).all()
    assert (order.unpack(words.view(np.int32).ravel()) == W).all()


@pytest.mark.parametrize("name", KNOWN)
def test_indices_are_the_same_order(name: str) -> None:
    order, W = fm.weights.shuffle(name, shape=(128, 64)), codes((128, 64), 4)
    slots = W.ravel()[order.indices()].reshape(-1, 8).astype(np.uint32)
    words = (slots << np.arange(0, 32, 4, dtype=np.uint32)).sum(1, dtype=np.uint32)
    assert (words == order.pack(W).ravel()).all()
    assert sorted(order.indices()) == list(range(128 * 64))


def test_indices_of_several_blocks_are_those_of_the_layout() -> None:
    order = fm.weights.shuffle("tensorrt_llm", shape=(512, 384))
    assert order._blocks.outer  # the weight is larger than a block
    assert (order.indices() == order.layout.gather()).all()


@pytest.mark.parametrize(
    ("name", "groups", "wanted"),
    [
        ("marlin", 4, published.MARLIN_SCALES),
        ("marlin", 1, published.MARLIN_CHANNEL),
        ("marlin_a8", 4, published.MARLIN_CHANNEL),
        ("marlin_a8", 1, published.MARLIN_CHANNEL),
        ("sparse_marlin", 4, published.SPARSE_SCALES),
        ("sparse_marlin", 1, list(range(64))),
        ("awq", 4, list(range(64))),
        ("gptq", 1, list(range(64))),
    ],
)
def test_scales(name: str, groups: int, wanted: list[int]) -> None:
    order = fm.weights.shuffle(name, shape=(128, 192))
    scales = np.arange(groups * 192, dtype=np.float16).reshape(groups, 192)
    assert (order.pack_scales(scales) == published.scales(scales, wanted)).all()


@pytest.mark.parametrize("bits", [4, 8])
def test_zero_points_of_marlin(bits: int) -> None:
    zeros = codes((4, 192), bits)
    found = fm.weights.shuffle("marlin", shape=(128, 192), bits=bits).pack_zeros(zeros)
    assert (found == published.marlin_zeros(zeros, bits)).all()


def test_zero_points_of_awq_and_gptq() -> None:
    zeros = codes((4, 64), 4)
    for name, wanted in (("awq", published.awq), ("gptq", published.plain)):
        found = fm.weights.shuffle(name, shape=(128, 64)).pack_zeros(zeros)
        assert (found == wanted(zeros, 4)).all()


def test_marlin_is_an_order_that_anyone_could_ask_for() -> None:
    op = fm.mma("m16n8k16", a="f16", d="f32")
    asked = fm.weights.shuffle(op, "B", shape=(64, 128), n_steps=8, inner="n")
    known = fm.weights.shuffle("marlin", shape=(64, 128))
    assert asked.layout == known.layout
    assert asked.nibbles == (0, 2, 4, 6, 1, 3, 5, 7)
    line = "offset = E* R* X0 X1 X2 L* X3* Y*"
    assert (
        fm.weights.shuffle(op, "b", shape=(64, 128), memory=line).layout == known.layout
    )


# ── any operand ─────────────────────────────────────────────────────────────

OPERANDS = [
    ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "AB", (1, 2, 4, 8, 16)),
    ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "AB", (4, 8, 16, 32)),
    ("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", "AB", (2, 4, 8)),
    ("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32", "AB", (4,)),
    ("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "A", (4, 8)),
    ("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16", "A", (4, 16)),
]


@pytest.mark.parametrize(
    ("op", "operand", "bits"),
    [
        (op, operand, bits)
        for op, operands, widths in OPERANDS
        for operand in operands
        for bits in widths
    ],
)
def test_a_lane_loads_what_its_fragment_holds(op: str, operand: str, bits: int) -> None:
    order = fm.weights.shuffle(op, operand, shape=(512, 512), bits=bits, load_bytes=32)
    part = fm.instruction(op).fragment(operand)
    W = codes((512, 512), bits)
    flat = W.ravel()[order.indices()]
    held = order.k_steps * order.n_steps * part.registers * part.elements
    assert held * bits == 32 * 8
    assert (order.unpack(order.pack(W)) == W).all()
    # Lane 13 of the last block along k: all that it loads is in its fragments.
    rows, columns = part.shape
    steps = {
        "Y": order._steps("k" if operand == "B" else "n"),
        "X": order._steps("n" if operand == "B" else "k"),
    }
    sizes, along = dict(order.memory.axes), order.tile_axes["k"]
    place = dict.fromkeys(sizes, 0) | {"L": 13, along: sizes[along] - order.k_steps}
    first = order.memory.element(**place)["offset"] // held * held
    loaded = sorted(flat[first : first + held].tolist())
    y, x = place["Y"], place["X"]
    wanted = [
        W[(y + dy) * rows + row, (x + dx) * columns + column]
        for dy in range(steps["Y"])
        for dx in range(steps["X"])
        for row, column in part.holds(13, warp=0 if "wgmma" in op else None)
    ]
    assert loaded == sorted(int(each) for each in wanted)


@pytest.mark.parametrize("bits", [16, 8, 4])
def test_a_float_is_taken_as_its_bits(bits: int) -> None:
    kinds = {16: np.float16, 8: ml_dtypes.float8_e4m3fn, 4: ml_dtypes.float4_e2m1fn}
    raw = codes((64, 64), bits)
    W = raw.view(kinds[bits])
    order = fm.weights.shuffle("plain", shape=(64, 64), bits=bits)
    assert (order.pack(W) == order.pack(raw)).all()


def test_experts_stay_apart() -> None:
    order = fm.weights.shuffle("marlin", shape=(64, 128))
    W = codes((3, 2, 64, 128), 4)
    words = order.pack(W)
    assert words.shape == (3, 2, 4, 256)
    assert (words[2, 1] == order.pack(W[2, 1])).all()
    assert (order.unpack(words) == W).all()


@pytest.mark.parametrize("most", [1, 64, 1 << 16])
def test_blocks_of_any_size_give_the_same(most: int) -> None:
    order = fm.weights.shuffle("tensorrt_llm", shape=(192, 64)).layout.inverse()
    W = codes((192, 64), 4)
    blocks = Blocks(order, ("k", "n"), most)
    moved = blocks.gather(W)
    assert (moved == W.ravel()[order.inverse().gather()]).all()
    assert (blocks.scatter(moved) == W).all()


# ── refusals ────────────────────────────────────────────────────────────────

OP = fm.mma("m16n8k16", a="f16", d="f32")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fm.weights.shuffle("marlni", shape=(64, 64)), "did you mean marlin"),
        (
            lambda: fm.weights.shuffle("marlin", shape=(64, 96)),
            "multiples of 16 rows .k. and 64 columns .n.; given 64x96; the next is 64x128",
        ),
        (
            lambda: fm.weights.shuffle("awq", shape=(64, 64), bits=8),
            "awq has 4 bits; given 8",
        ),
        (
            lambda: fm.weights.shuffle("awq", shape=(64, 63)),
            "1 rows .k. and 8 columns .n.",
        ),
        (
            lambda: fm.weights.shuffle("marlin", "B", shape=(64, 64), k_steps=2),
            "own order; operand and k_steps cannot",
        ),
        (lambda: fm.weights.shuffle(OP, shape=(64, 64)), "A or B"),
        (lambda: fm.weights.shuffle(OP, "C", shape=(64, 64)), "given 'C'"),
        (
            lambda: fm.weights.shuffle(OP, "B", shape=(64, 64), bits=3),
            "1, 2, 4, 8, 16 or 32",
        ),
        (
            lambda: fm.weights.shuffle(OP, "B", shape=(64, 64), bits=32),
            "1, 2, 4, 8 or 16",
        ),
        (
            lambda: fm.weights.shuffle(OP, "B", shape=(64, 64), load_bytes=12),
            "4, 8, 16, 32 or",
        ),
        (
            lambda: fm.weights.shuffle(
                OP, "B", shape=(64, 64), load_bytes=8, k_steps=8
            ),
            "8 bytes are k_steps x n_steps of 4 x 1, 2 x 2 or 1 x 4; given load_bytes=8, k",
        ),
        (
            lambda: fm.weights.shuffle(OP, "A", shape=(64, 64), bits=16, load_bytes=8),
            "16 bytes of A in one step",
        ),
        (
            lambda: fm.weights.shuffle(OP, "B", shape=(48, 64), k_steps=8),
            "multiples of 128 rows",
        ),
        (lambda: fm.weights.shuffle(OP, "B", shape=(64, 64), inner="m"), "given 'm'"),
        (lambda: fm.weights.shuffle(OP, "B", shape=(64,)), "K, N"),
        (lambda: fm.weights.shuffle(OP, "A", shape=(64, 0)), "N, K"),
        (
            lambda: fm.weights.shuffle(
                OP, "B", shape=(64, 64), memory="E* R* L*", k_steps=1
            ),
            "whole order; k_steps cannot",
        ),
        (
            lambda: fm.weights.shuffle(OP, "B", shape=(64, 64), memory="E* R* L* Y*"),
            "not used",
        ),
        (
            lambda: fm.weights.shuffle(
                OP, "B", shape=(64, 64), memory="row = E* R* L* Y* X*"
            ),
            "one coordinate",
        ),
        (
            lambda: fm.weights.shuffle(
                OP, "B", shape=(64, 64), nibbles=(0, 1, 2, 3, 4, 5, 7, 6)
            ),
            "permutes the bits",
        ),
        (
            lambda: fm.weights.shuffle(
                "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16",
                "B",
                shape=(64, 64),
            ),
            "in shared memory",
        ),
        (
            lambda: fm.weights.shuffle(
                "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", "B", shape=(64, 64)
            ),
            "64 bits",
        ),
    ],
)
def test_what_does_not_exist_is_refused(call: object, message: str) -> None:
    with pytest.raises(fm.Error, match=message):
        call()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("W", "message"),
    [
        (np.full((64, 64), -1), "given -1 at .0, 0.; add the zero point, such as 8"),
        (np.full((64, 64), 16), "0 to 15; given 16"),
        (np.zeros((64, 64)), "whole numbers from 0 to 15; given float64"),
        (np.zeros((64, 32), int), "64x64; given shape .64, 32."),
        (np.full((64, 64), "x"), "whole numbers"),
    ],
)
def test_what_is_no_weight_is_refused(W: np.ndarray, message: str) -> None:
    with pytest.raises(fm.Error, match=message):
        fm.weights.shuffle("marlin", shape=(64, 64)).pack(W)


def test_what_are_no_words_or_scales_is_refused() -> None:
    order = fm.weights.shuffle("marlin", shape=(128, 64))
    with pytest.raises(fm.errors.ShapeError, match="8x128"):
        order.unpack(np.zeros((8, 64), np.uint32))
    with pytest.raises(fm.errors.ShapeError, match="uint32 or int32"):
        order.unpack(np.zeros((8, 128), np.uint64))
    with pytest.raises(fm.errors.ShapeError, match="groups, 64"):
        order.pack_scales(np.zeros((4, 32)))
    with pytest.raises(fm.errors.ShapeError, match="3 groups do not divide k of 128"):
        order.pack_scales(np.zeros((3, 64)))
    with pytest.raises(fm.errors.ShapeError, match="2 groups of 64; given scales of 4"):
        order.pack_scales(np.zeros((4, 64)), group_size=64)
    with pytest.raises(fm.errors.ShapeError, match="given 0"):
        order.pack_scales(np.zeros((4, 64)), group_size=0)
    with pytest.raises(fm.Error, match="not known"):
        fm.weights.shuffle("marlin_a8", shape=(128, 64)).pack_zeros(
            np.zeros((4, 64), int)
        )
    # A sparse weight has twice its stored rows.
    sparse = fm.weights.shuffle("sparse_marlin", shape=(64, 64))
    assert sparse.pack_scales(np.zeros((4, 64)), group_size=32).shape == (4, 64)
    assert sparse.pack_scales(np.zeros((1, 64)), group_size=-1).shape == (1, 64)
