"""The emulation is the kernel's own chain of instructions, step by step."""

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.hopper.kernels.emulate import Epilogue, accumulate, emulate, finish
from fragmenta.kernels import Kernel, Tile, pack
from fragmenta.reference.execution.wgmma import execute
from fragmenta.reference.shared.descriptor import Descriptor
from fragmenta.reference.shared.tiles import tile as shared_tile


def operands(kernel, m, n, k, seed=0):
    rng = np.random.default_rng(seed)
    of = kernel.instruction.types["a"]
    if of.is_integer:
        low, high = (int(end) for end in of.limits)
        A, B = (
            rng.integers(low, high + 1, s).astype(of.storage) for s in ((m, k), (n, k))
        )
    else:
        A, B = (
            rng.normal(size=s).astype(np.float32).astype(of.storage)
            for s in ((m, k), (n, k))
        )
    return (fm.sparse.prune(kernel.instruction, A) if kernel.sparse else A), B


def walked(kernel, A, B):
    """64 rows through the kernel's own steps: packed bytes, descriptors, wgmma."""
    op = kernel.instruction
    data = pack(op, fm.sparse.compress(op, A)).data
    d = np.zeros((128, op.d.registers), np.uint32)
    total = np.zeros((64, kernel.tile.n), np.float32)
    for slab in range(data.shape[1]):
        columns = slice(slab * kernel.slab_k, (slab + 1) * kernel.slab_k)
        image = np.zeros(8192, np.uint8)
        image[: kernel.block_bytes] = data[0, slab, 0]
        image, b = shared_tile(op, "B", B[:, columns].T, swizzle=128, image=image)
        words = data[0, slab, 0, 4096:].view(np.uint32).reshape(128, kernel.words)
        for step in range(kernel.steps):
            a = Descriptor(32 * step, 64, 512, swizzle=64)
            moved = Descriptor(b.start + 64 * step, b.leading, b.stride, 128)
            paired = op.metadata.tiles == 2
            d = execute(
                op,
                d,
                a.encode(),
                moved.encode(),
                smem=image,
                metadata=words[:, :1] if paired else words[:, step : step + 1],
                selector=step if paired else 0,
                scale_d=int(step > 0 or (slab > 0 and not kernel.promote)),
            )
        if kernel.promote:
            total = total + op.d.unpack(d)
    return total if kernel.promote else op.d.unpack(d)


@pytest.mark.parametrize("a", ["e4m3", "e5m2", "s8", "u8", "bf16", "f16", "tf32"])
def test_the_kernels_steps_one_by_one(a):
    kernel = Kernel(a, tile=Tile(64, 8))
    A, B = operands(kernel, 64, 8, 3 * kernel.slab_k)
    found = accumulate(kernel, A, B)
    assert (found.view(np.uint32) == walked(kernel, A, B).view(np.uint32)).all()


def test_promotion_adds_in_f32():
    kernel = Kernel("e4m3", tile=Tile(64, 8), promote=True)
    A, B = operands(kernel, 64, 8, 5 * 128)
    found = accumulate(kernel, A, B)
    assert (found == walked(kernel, A, B)).all()
    plain = accumulate(Kernel("e4m3", tile=Tile(64, 8)), A, B)
    exact = A.astype(np.float64) @ B.astype(np.float64).T
    assert np.abs(found - exact).max() < np.abs(plain - exact).max()


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("a", ["e4m3", "bf16", "tf32"])
def test_close_to_the_exact_product(a, sparse):
    kernel = Kernel(a, tile=Tile(64, 8), sparse=sparse)
    A, B = operands(kernel, 30, 20, 96)
    exact = A.astype(np.float64) @ B.astype(np.float64).T
    assert np.allclose(emulate(kernel, A, B), exact, atol=0.05)


def test_bits():
    rng = np.random.default_rng(0)
    A, B = (
        rng.integers(0, 2, (9, 300), np.uint8),
        rng.integers(0, 2, (7, 300), np.uint8),
    )
    both = Kernel("b1", tile=Tile(64, 8), sparse=False)
    differ = Kernel("b1", tile=Tile(64, 8), sparse=False, xor=True)
    assert (emulate(both, A, B) == (A[:, None] & B).sum(-1)).all()
    assert (emulate(differ, A, B) == (A[:, None] ^ B).sum(-1)).all()


def test_epilogue_rounds_after_every_step():
    kernel = Kernel("e4m3", out="f32", tile=Tile(64, 8), scaled=True, transposed=True)
    rng = np.random.default_rng(0)
    sums, row, col, bias = (
        rng.normal(size=s).astype(np.float32) for s in ((5, 3), (5,), (3,), (5,))
    )
    scale = np.float32(0.3)
    out = finish(kernel, sums, Epilogue(scale, row, col, bias))
    for i in range(5):
        for j in range(3):
            want = np.float32(
                np.float32(sums[i, j] * np.float32(scale * row[i])) * col[j]
            )
            assert out[j, i] == np.float32(want + bias[i])


def test_a_nan_is_the_hardwares():
    nan = np.array([[np.nan]], np.float32)
    for out, bits in (("f32", 0x7FFFFFFF), ("bf16", 0x7FFF), ("f16", 0x7FFF)):
        found = finish(Kernel("e4m3", out=out, tile=Tile(64, 8)), nan.copy())
        assert found.view(f"u{found.itemsize}")[0, 0] == bits


def test_k_may_end_anywhere():
    kernel = Kernel("s8", tile=Tile(64, 8))
    A, B = operands(kernel, 10, 6, 36)
    want = A.astype(np.int64) @ B.astype(np.int64).T
    assert (emulate(kernel, A, B) == want).all()
    packed = pack(kernel.instruction, fm.sparse.compress(kernel.instruction, A))
    assert (emulate(kernel, packed, B) == want).all()


@pytest.mark.parametrize("split", [2, 3, 8])
def test_parts_of_k_are_added_in_ascending_order(split):
    kernel = Kernel("bf16", tile=Tile(64, 8, split=split))
    k = 9 * kernel.slabs * kernel.slab_k + 16
    A, B = operands(kernel, 16, 8, k)
    whole = Kernel("bf16", tile=Tile(64, 8))
    total = None
    for first, last in kernel.parts(k):
        part = accumulate(whole, A[:, first:last], B[:, first:last])
        total = part if total is None else total + part
    found = accumulate(kernel, A, B)
    assert (found == total).all()
    assert (found != accumulate(whole, A, B)).any()  # another order, other bits


def test_a_split_changes_no_integers():
    kernel = Kernel("s8", tile=Tile(64, 8, split=4))
    A, B = operands(kernel, 16, 8, 4 * kernel.slabs * kernel.slab_k)
    plain = Kernel("s8", tile=Tile(64, 8))
    assert (accumulate(kernel, A, B) == accumulate(plain, A, B)).all()
