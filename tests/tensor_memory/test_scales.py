"""Scale factors are in cuBLAS's order, and copies put them where ``mma`` reads them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fragmenta as fm
from fragmenta.tensor_memory import copy, scale_blocks, scale_copy, scale_matrix
from tests.thinning import repeats


def factors(rows: int, count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 127, (rows, count), np.uint8)


@pytest.mark.parametrize("rows, count", [(128, 4), (256, 16), (200, 6), (1, 1)])
def test_the_order_of_cublas(rows: int, count: int) -> None:
    matrix = factors(rows, count)
    memory = scale_blocks(matrix).reshape(-1)
    along = -(-count // 4)
    for (r, j), value in np.ndenumerate(matrix):
        block = r // 128 * along + j // 4
        inside = 16 * (r % 32) + 4 * (r // 32 % 4) + j % 4
        assert memory[512 * block + inside] == value
    assert memory.astype(int).sum() == matrix.astype(int).sum()  # the rest is zero
    assert (scale_matrix(memory, rows, count) == matrix).all()


def test_batches_and_types() -> None:
    matrix = np.arange(3 * 130 * 5).reshape(3, 130, 5).astype(np.uint8)
    floats = matrix.view(ml_dtypes.float8_e8m0fnu)
    blocks = scale_blocks(floats)
    assert blocks.shape == (3, 2, 2, 512)
    assert (scale_matrix(blocks, 130, 5) == matrix).all()
    assert (scale_matrix(blocks.reshape(3, -1), 130, 5) == matrix).all()


def test_wrong_arguments() -> None:
    with pytest.raises(fm.errors.ShapeError, match="one byte each"):
        scale_blocks(np.ones((128, 4), np.float32))
    with pytest.raises(fm.errors.ShapeError, match="4 blocks of 512 bytes"):
        scale_matrix(np.zeros(512, np.uint8), 256, 8)
    with pytest.raises(fm.errors.ShapeError, match="1 or more"):
        scale_matrix(np.zeros(512, np.uint8), 0, 4)
    with pytest.raises(fm.Error, match="no scales in tensor memory"):
        scale_copy(fm.tcgen05("m128n64k16", a="f16", d="f32"), "scale_A")
    with pytest.raises(fm.errors.UnknownOperand, match="scale_A and scale_B"):
        scale_copy(fm.tcgen05("m128n64k16", a="f16", d="f32"), "A")


# ── from memory to where the multiplication reads ───────────────────────────

COLUMN = 40


def copied(op: Any, operand: str, sources: list[np.ndarray]) -> np.ndarray:
    """Tensor memory of each CTA after its blocks, (rows, 4), were copied one by one."""
    move = scale_copy(op, operand)
    step = 1024 if "64x128b" in str(move) else 512
    memory = np.stack([scale_blocks(each).reshape(-1) for each in sources])
    image = np.zeros((len(sources), 128, 512), np.uint32)
    if op.cta_group == 1:
        memory, image = memory[0], image[0]
    for number in range(memory.shape[-1] // step):
        where = fm.shared.Descriptor(
            step * number, 16, 128, swizzle=0, family="tcgen05"
        )
        image = copy(move, image, memory, COLUMN + 4 * number, where)
    return image


FORMS = [
    ("m128n64k32", 1),
    ("m128n256k32", 1),
    ("m128n200k32", 1),
    ("m256n256k32", 2),
    ("m256n128k32", 2),
    ("m128n256k32", 2),
    ("m128n64k32", 2),
]


# Every product, every place; they take turns.
@repeats(together=1)
@pytest.mark.parametrize("shape, group", FORMS)
@pytest.mark.parametrize("number", range(4))
def test_copies_bring_scales_to_the_multiplication(
    shape: str, group: int, number: int
) -> None:
    """The four factors of a row are those of four instructions along k: ids 0 to 3."""
    op = fm.tcgen05(
        shape,
        kind="mxf8f6f4",
        a="e4m3",
        cta_group=group,
        scale_a_id=number,
        scale_b_id=number,
    )
    m, n, _ = op.shape
    own = m // group
    a, b = factors(m, 4), factors(n, 4, seed=1)
    image = copied(
        op, "scale_A", [a[own * cta : own * (cta + 1)] for cta in range(group)]
    )
    found = op.scale_a.unpack_bits(image, address=COLUMN)
    assert (found[:, 0] == a[:, number]).all()
    split = group == 2 and m == 128
    if split:  # each half of N has blocks of its own
        half = np.zeros((2, 128, 4), np.uint8)
        half[:, : n // 2] = b.reshape(2, n // 2, 4)
        image = copied(op, "scale_B", [half.reshape(256, 4)] * 2)
    else:
        image = copied(op, "scale_B", [b] * group)
    copies = 4 if split else 4 * group
    for each in range(copies):
        found = op.scale_b.unpack_bits(image, address=COLUMN, copy=each)
        assert (found[0] == b[:, number]).all()


def test_the_formula_of_tensor_memory() -> None:
    """Lane r % 32 of each quarter, column r / 32, byte j."""
    op = fm.tcgen05("m128n128k64", kind="mxf4nvf4", a="e2m1", scale_vec=4)
    matrix = factors(128, 4)
    image = copied(op, "scale_A", [matrix])
    for (r, j), value in np.ndenumerate(matrix):
        for quarter in range(4):
            word = int(image[r % 32 + 32 * quarter, COLUMN + r // 32])
            assert word >> 8 * j & 255 == value
    assert (op.scale_a.unpack_bits(image, address=COLUMN) == matrix).all()
