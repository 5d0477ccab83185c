"""``tcgen05.ld`` and ``.st`` move the right cells, and refuse the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.tensor_memory import (
    TensorAddress,
    base_lanes,
    load,
    reach,
    reduce,
    shift,
    store,
)
from tests.thinning import repeats

NUMBERED = np.arange(128 * 512, dtype=np.uint32).reshape(128, 512)
"""The cell at (lane, column) holds 512 * lane + column."""
TILES = ("32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2")


def cell(tile: str, t: int, r: int, imm: int) -> tuple[int, int]:
    """The lane and column, from the address, of register r of thread t."""
    return {
        "32x32b": (t, r),
        "16x64b": (t // 4 + 8 * (t % 2), t // 2 % 2 + 2 * r),
        "16x128b": (t // 4 + 8 * (r % 2), t % 4 + 4 * (r // 2)),
        "16x256b": (t // 4 + 8 * (r // 2 % 2), r % 2 + 2 * (t % 4) + 8 * (r // 4)),
        "16x32bx2": (t % 16, r + imm * (t // 16)),
    }[tile]


def moving(name: str, tile: str, num: int, packed: str = "") -> fm.Instruction:
    word = f".{packed}::16b" if packed else ""
    return fm.instruction(f"tcgen05.{name}.sync.aligned.{tile}.x{num}{word}.b32")


def second(tile: str, imm: int = 40) -> int | None:
    return imm if tile == "16x32bx2" else None


# Every shape and every warp; they take turns.
@repeats(together=1)
@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("warp", [0, 1, 3, 6])
def test_a_warp_loads_its_quarter(tile: str, warp: int) -> None:
    op = moving("ld", tile, 4)
    for lane in base_lanes(op, warp):
        found = load(op, NUMBERED, TensorAddress(lane, 9), warp=warp, imm=second(tile))
        for t in (0, 1, 2, 5, 15, 16, 30, 31):
            for r in range(found.shape[1]):
                row, column = cell(tile, t, r, 40)
                assert found[t, r] == NUMBERED[lane + row, 9 + column]


@pytest.mark.parametrize("tile", TILES)
def test_a_warpgroup_is_four_warps(tile: str) -> None:
    op = moving("ld", tile, 2)
    whole = load(op, NUMBERED, TensorAddress(0, 3), imm=second(tile))
    parts = [
        load(op, NUMBERED, TensorAddress(32 * w, 3), warp=w, imm=second(tile))
        for w in range(4)
    ]
    assert (whole == np.concatenate(parts)).all()


@pytest.mark.parametrize("tile", TILES)
def test_packed_loads_have_the_low_halves_of_two_columns(tile: str) -> None:
    image = NUMBERED | np.uint32(0xABCD0000)
    op = moving("ld", tile, 2, "pack")
    found = load(op, image, TensorAddress(32, 5), warp=1, imm=second(tile))
    for t in range(32):
        for r in range(found.shape[1]):
            # The immediate is a distance in columns; it is not doubled.
            row, column = cell(tile, t, r, 0)
            first = 5 + 2 * column + (40 * (t // 16) if tile == "16x32bx2" else 0)
            low, high = (int(image[32 + row, first + i]) & 0xFFFF for i in (0, 1))
            assert found[t, r] == low | high << 16


@repeats(together=1)
@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("warp", [None, 2])
def test_stored_data_are_loaded_again(
    tile: str, packed: bool, warp: int | None
) -> None:
    rng = np.random.default_rng(1)
    put = moving("st", tile, 4, "unpack" if packed else "")
    get = moving("ld", tile, 4, "pack" if packed else "")
    count = put.fragment("R").registers
    words = rng.integers(0, 1 << 32, (3, 128 if warp is None else 32, count), np.uint32)
    # The batch axes of the image and of the registers broadcast.
    before = rng.integers(0, 1 << 32, (2, 1, 128, 512), np.uint32)
    kept = before.copy()
    image = store(put, before, 64, words, warp=warp, imm=second(tile, 128))
    assert image.shape == (2, 3, 128, 512)
    assert (before == kept).all()
    found = load(get, image, 64, warp=warp, imm=second(tile, 128))
    assert (found == words).all()
    changed = (image != before).any(axis=(0, 1))
    cells = words[0].size * (2 if packed else 1)
    assert cells - 2 <= changed.sum() <= cells
    if packed:
        assert not (image[:, :, changed] >> 16).any()


def test_the_immediate_is_added_to_the_whole_address() -> None:
    op = moving("ld", "16x32bx2", 1)
    down = load(op, NUMBERED, TensorAddress(0, 8), warp=0, imm=(16 << 16) + 2)
    assert down[16, 0] == NUMBERED[16, 10]
    back = load(op, NUMBERED, TensorAddress(0, 8), warp=0, imm=-8)
    assert back[16, 0] == NUMBERED[0, 0]
    for imm, why in [(-9, "lane 65535"), (32 << 16, "lane 32"), (504, "do not fit")]:
        with pytest.raises(fm.errors.AddressError, match=why):
            load(op, NUMBERED, TensorAddress(0, 8), warp=0, imm=imm)
    with pytest.raises(fm.Error, match="needs an immediate"):
        load(op, NUMBERED, 0)
    with pytest.raises(fm.Error, match="has no immediate"):
        load(moving("ld", "32x32b", 1), NUMBERED, 0, imm=0)


def test_halves_that_overlap_must_agree() -> None:
    op = moving("st", "16x32bx2", 4)
    same = np.full((32, 4), 7, np.uint32)
    image = store(op, np.zeros((128, 512), np.uint32), 0, same, warp=0, imm=2)
    assert (image != 0).sum() == 16 * 6
    with pytest.raises(fm.Error, match="not defined which"):
        store(
            op, image, 0, np.arange(128, dtype=np.uint32).reshape(32, 4), warp=0, imm=2
        )


# ── which lanes ─────────────────────────────────────────────────────────────


def test_quarters() -> None:
    assert [reach(warp).start for warp in range(6)] == [0, 32, 64, 96, 0, 32]
    assert base_lanes(moving("ld", "32x32b", 1), 3) == (96,)
    assert base_lanes(moving("st", "16x64b", 1), 3) == (96, 112)


def test_lanes_may_be_counted_from_the_quarter() -> None:
    op = moving("ld", "16x64b", 1)
    for lane in (0, 16):
        relative = load(op, NUMBERED, TensorAddress(lane, 0), warp=2)
        absolute = load(op, NUMBERED, TensorAddress(64 + lane, 0), warp=2)
        assert (relative == absolute).all()
        above = load(op, NUMBERED, TensorAddress(128 + 64 + lane, 0), warp=2)
        assert (above == absolute).all()


@pytest.mark.parametrize(
    "tile, lane, warp, why",
    [
        ("32x32b", 32, 2, "outside the warp's quarter is not known"),
        ("32x32b", 96, None, "outside the warp's quarter is not known"),
        ("16x64b", 80, 3, "outside the warp's quarter is not known"),
        ("32x32b", 16, 0, "begins at lane 0; given lane 16"),
        ("16x64b", 72, 2, "begins at lane 64 or 80; given lane 72"),
        ("32x32b", 144, 0, "begins at lane 0; given lane 144"),
    ],
)
def test_other_lanes_are_refused(
    tile: str, lane: int, warp: int | None, why: str
) -> None:
    with pytest.raises(fm.errors.AddressError, match=why):
        load(moving("ld", tile, 1), NUMBERED, TensorAddress(lane, 0), warp=warp)


def test_wrong_arguments() -> None:
    op, put = moving("ld", "32x32b", 4), moving("st", "32x32b", 4)
    with pytest.raises(
        fm.errors.AddressError, match="from column 509 on they do not fit"
    ):
        load(op, NUMBERED, 509)
    with pytest.raises(fm.errors.ShapeError, match="given float64"):
        load(op, np.zeros((128, 512)), 0)
    with pytest.raises(fm.errors.ShapeError, match=r"128 lanes, 4\) of four warps"):
        store(put, NUMBERED, 0, np.zeros((32, 4), np.uint32))
    with pytest.raises(fm.Error, match=r"takes an instruction of tcgen05\.st"):
        store(op, NUMBERED, 0, np.zeros((32, 4), np.uint32))
    with pytest.raises(fm.errors.ShapeError, match="counted from 0"):
        load(op, NUMBERED, 0, warp=-1)


# ── ld.red ──────────────────────────────────────────────────────────────────


def reduced(way: str, values: Any, of: Any, tile: str = "32x32b") -> Any:
    op = fm.instruction(f"tcgen05.ld.red.sync.aligned.{tile}.x4.{way}")
    words = np.tile(np.asarray(values, of), (32, 1)).view(np.uint32)
    found = reduce(op, words)
    assert found.shape == (32,)
    return found.view(of)[0]


def test_reductions() -> None:
    assert reduced("max.f32", [1, -5, 3, -np.inf], np.float32) == 3
    assert reduced("min.f32", [1, -5, 3, np.inf], np.float32) == -5
    assert reduced("max.abs.f32", [1, -5, 3, 2], np.float32) == 5
    assert reduced("min.abs.f32", [-1, -5, -0.0, 0.0], np.float32).view("u4") == 0
    assert reduced("min.s32", [1, -5, 3, 2], np.int32) == -5
    assert reduced("max.u32", [1, 2**32 - 5, 3, 2], np.uint32) == 2**32 - 5
    assert reduced("max.f32", [-0.0, -1, -2, -3], np.float32).view("u4") == 1 << 31
    assert reduced("max.f32", [np.nan, -1, -2, -3], np.float32) == -1
    assert reduced("min.f32", [np.nan, -1, 0.0, -0.0], np.float32) == -1


def test_each_thread_of_a_lane_has_its_own_result() -> None:
    op = fm.instruction("tcgen05.ld.red.sync.aligned.16x32bx2.x2.max.u32")
    words = load(op, NUMBERED, TensorAddress(16, 4), warp=0, imm=100)
    found = reduce(op, words)
    assert found[3] == NUMBERED[19, 5]
    assert found[19] == NUMBERED[19, 105]


@pytest.mark.parametrize(
    "way, values, why",
    [
        ("max.f32", [0.0, -0.0, -1, -1], "both"),
        ("min.f32", [0.0, -0.0, 1, 1], "both"),
        ("max.NaN.f32", [np.nan, 1, 1, 1], "NaN"),
        ("max.f32", [np.nan] * 4, "NaN"),
    ],
)
def test_what_only_a_gpu_can_tell_is_refused(way: str, values: Any, why: str) -> None:
    with pytest.raises(fm.errors.ValueRangeError, match=why):
        reduced(way, values, np.float32)


def test_random_reductions() -> None:
    rng = np.random.default_rng(2)
    words = rng.integers(0, 1 << 32, (5, 128, 8), np.uint32)
    words &= ~np.uint32(1 << 30)  # no infinities or NaNs
    floats = words.view(np.float32)
    for way, numpy in [("max", np.max), ("min", np.min)]:
        op = fm.instruction(f"tcgen05.ld.red.sync.aligned.32x32b.x8.{way}.f32")
        assert (reduce(op, words).view(np.float32) == numpy(floats, axis=-1)).all()
    with pytest.raises(fm.Error, match="reduces nothing"):
        reduce(moving("ld", "32x32b", 8), words)


# ── refused ─────────────────────────────────────────────────────────────────


def test_compressing_loads() -> None:
    """Two of four columns; a reduction looks at all of them."""
    op = "tcgen05.ld.red.spcompress.sync.aligned.32x32b.x8.min.sp::2:4.abs.f32.b2"
    values = np.random.default_rng(0).normal(size=(128, 512)).astype(np.float32)
    image = values.view(np.uint32)
    words = load(op, image, 3)
    groups = values[:, 3:11].reshape(128, 2, 4)
    places = np.sort(np.argsort(np.abs(groups), axis=-1)[..., :2], axis=-1)
    kept = np.take_along_axis(groups, places, axis=-1).reshape(128, 4)
    assert words.shape == (128, 5)
    assert np.array_equal(words[:, 1:].view(np.float32), kept)
    shifts = np.arange(0, 8, 2)
    assert np.array_equal(words[:, 0], (places.reshape(128, 4) << shifts).sum(-1))
    every = load("tcgen05.ld.sync.aligned.32x32b.x8.b32", image, 3)
    least = reduce(op, every).view(np.float32)
    assert np.array_equal(least, np.abs(values[:, 3:11]).min(axis=1))
    with pytest.raises(fm.Error, match="reduces nothing"):
        reduce(op.replace(".red", ""), every)
    with pytest.raises(fm.Error, match="PTX does not say which"):
        load(op, np.zeros((128, 512), np.uint32), 0)


def test_shift_is_refused() -> None:
    with pytest.raises(fm.Error, match="to the next or to the previous"):
        shift("tcgen05.shift.cta_group::2.down", NUMBERED, 0)
