"""``tcgen05.cp`` puts each byte into the right cell."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.tensor_memory import TensorAddress, copies, copy, expanded

# The rows and bytes of the source, and the lanes of row i.
LANES: dict[str, tuple[int, int, Callable[[int], set[int]]]] = {
    "128x256b": (128, 32, lambda i: {i}),
    "128x128b": (128, 16, lambda i: {i}),
    "4x256b": (4, 32, lambda i: {32 * i}),
    "64x128b.warpx2::02_13": (64, 16, lambda i: {i, i + 64}),
    "64x128b.warpx2::01_23": (
        64,
        16,
        lambda i: {i % 32 + 64 * (i // 32), i % 32 + 64 * (i // 32) + 32},
    ),
    "32x128b.warpx4": (32, 16, lambda i: {i, i + 32, i + 64, i + 96}),
}
ZERO = np.zeros((128, 512), np.uint32)


def copying(shape: str, group: int = 1, source: str = "") -> str:
    form = f".b8x16.{source}" if source else ""
    return f"tcgen05.cp.cta_group::{group}.{shape}{form}"


def plain(rows: int, start: int = 0) -> fm.shared.Descriptor:
    """Eight rows of 16 bytes in 128 bytes; the next 16 bytes after all rows."""
    return fm.shared.Descriptor(start, 16 * rows, 128, swizzle=0, family="tcgen05")


def tile(rows: int, size: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (rows, size), np.uint8)


def shared(rows: np.ndarray, start: int = 0) -> np.ndarray:
    """Shared memory with the rows in it, as :func:`plain` describes."""
    image = np.zeros(start + rows.size, np.uint8)
    for (row, byte), value in np.ndenumerate(rows):
        image[start + 16 * row + byte % 16 + byte // 16 * 16 * len(rows)] = value
    return image


@pytest.mark.parametrize("shape", LANES)
def test_the_map_is_the_formula(shape: str) -> None:
    rows, size, lanes = LANES[shape]
    part = copies(copying(shape))
    assert part.shape == (rows, size // 4)
    for row in range(rows):
        for word in range(size // 4):
            cell = part.where(row, word, address=100)
            found = [cell, *cell.copies]
            assert {each.lane for each in found} == lanes(row)
            assert {each.column for each in found} == {100 + word}


@pytest.mark.parametrize("shape", LANES)
def test_every_byte(shape: str) -> None:
    rows, size, lanes = LANES[shape]
    data = tile(rows, size)
    before = np.full((128, 512), 5, np.uint32)
    image = copy(copying(shape), before, shared(data, 256), 33, plain(rows, 256))
    wanted = np.full((128, 512), 5, np.uint32)
    for row in range(rows):
        for lane in lanes(row):
            wanted[lane, 33 : 33 + size // 4] = data[row].view(np.uint32)
    assert (image == wanted).all()


def test_the_base_lane_of_4x256b() -> None:
    data = tile(4, 32)
    image = copy(copying("4x256b"), ZERO, shared(data), TensorAddress(31, 0), plain(4))
    assert np.flatnonzero(image.any(axis=1)).tolist() == [31, 63, 95, 127]
    for lane, shape, most in ((32, "4x256b", "30 or 31"), (1, "128x128b", "lane 0;")):
        rows, size, _ = LANES[shape]
        source = shared(tile(rows, size))
        with pytest.raises(fm.errors.AddressError, match=most):
            copy(copying(shape), ZERO, source, TensorAddress(lane, 0), plain(rows))


def test_swizzled_rows() -> None:
    data = tile(128, 32)
    where = fm.shared.Descriptor(0, 16, 256, swizzle=32, family="tcgen05")
    memory = np.zeros(128 * 32, np.uint8)
    for (row, byte), value in np.ndenumerate(data):
        memory[where.address(row, byte, "b8")] = value
    image = copy(copying("128x256b"), ZERO, memory, 0, where.encode())
    assert (image[:, :8] == data.view(np.uint32)).all()


def test_both_ctas_copy_their_own() -> None:
    data = [tile(32, 16, seed) for seed in (0, 1)]
    memory = np.stack([shared(each) for each in data])
    both = np.zeros((3, 2, 128, 512), np.uint32)
    image = copy(copying("32x128b.warpx4", 2), both, memory, 4, plain(32))
    assert image.shape == (3, 2, 128, 512)
    for cta in (0, 1):
        assert (image[:, cta, 32:64, 4:8] == data[cta].view(np.uint32)).all()
    with pytest.raises(fm.errors.ShapeError, match="each from its own shared memory"):
        copy(copying("32x128b.warpx4", 2), both, memory[0], 4, plain(32))
    with pytest.raises(fm.errors.ShapeError, match="2, 128, 512"):
        copy(copying("32x128b.warpx4", 2), ZERO, memory, 4, plain(32))


@pytest.mark.parametrize(
    "source, bits, shift", [("b4x16_p64", 4, 2), ("b6x16_p32", 6, 0)]
)
@pytest.mark.parametrize("shape", LANES)
def test_elements_become_bytes(shape: str, source: str, bits: int, shift: int) -> None:
    rows, size, lanes = LANES[shape]
    elements = tile(rows, size) % (1 << bits)
    data = tile(rows, size, seed=1)  # whatever the padding holds
    for row in range(rows):
        for unit in range(size // 16):
            values = elements[row, 16 * unit : 16 * unit + 16].tolist()
            packed = sum(value << bits * i for i, value in enumerate(values))
            begin = 16 * unit
            data[row, begin : begin + 2 * bits] = list(
                packed.to_bytes(2 * bits, "little")
            )
    image = copy(copying(shape, source=source), ZERO, shared(data), 0, plain(rows))
    for row in range(rows):
        for lane in lanes(row):
            found = image[lane, : size // 4].view(np.uint8)
            assert (found == elements[row] << shift).all()


def test_fp4_lands_where_the_multiplication_reads_it() -> None:
    """A of kind::f8f6f4 has e2m1 in bits 5:2 of a byte, as the copy writes it."""
    a = fm.tcgen05("m128n64k32", kind="f8f6f4", a="e2m1", b="e4m3", d="f32").a
    bits = tile(128, 32) % 16
    packed = np.zeros((128, 32), np.uint8)
    for unit in (0, 16):
        low = bits[:, unit : unit + 16]
        packed[:, unit : unit + 8] = low[:, ::2] | low[:, 1::2] << 4
    op = copying("128x256b", source="b4x16_p64")
    image = copy(op, ZERO, shared(packed), 64, plain(128))
    assert (a.unpack_bits(image, address=64) == bits).all()


def test_wrong_arguments() -> None:
    with pytest.raises(fm.Error, match="copies to tensor memory"):
        copies("tcgen05.ld.sync.aligned.32x32b.x1.b32")
    with pytest.raises(fm.errors.AddressError, match="do not fit"):
        copy(copying("128x256b"), ZERO, shared(tile(128, 32)), 505, plain(128))
    with pytest.raises(fm.errors.AddressError, match="outside"):
        copy(copying("128x256b"), ZERO, shared(tile(64, 32)), 0, plain(128))
    with pytest.raises(fm.errors.ShapeError, match="multiple of 16"):
        expanded(np.zeros(20, np.uint8), "b8x16.b4x16_p64")
    with pytest.raises(fm.Error, match="b4x16_p64 and b8x16"):
        expanded(np.zeros(16, np.uint8), "b4x16")
