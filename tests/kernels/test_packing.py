"""Packed blocks hold what the descriptor and the metadata fragment say."""

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.hopper.kernels.packing import code_places, packed_shape, places
from fragmenta.kernels import Kernel, Tile, pack, unpack
from fragmenta.reference.shared.descriptor import Descriptor
from fragmenta.reference.shared.tiles import read_tile

TYPES = ("e4m3", "e5m2", "s8", "u8", "bf16", "f16", "tf32")


def drawn(a, m, k, seed=0):
    rng = np.random.default_rng(seed)
    op = Kernel(a, tile=Tile(64, 8)).instruction
    of = op.types["a"]
    if of.is_integer:
        A = rng.integers(-100 if a == "s8" else 0, 100, (m, k)).astype(of.storage)
    else:
        A = rng.normal(size=(m, k)).astype(np.float32).astype(of.storage)
    return fm.sparse.compress(op, fm.sparse.prune(op, A, pad=True)[:, :k], pad=True), op


@pytest.mark.parametrize("a", TYPES)
@pytest.mark.parametrize("m, k", [(64, 128), (300, 200), (1, 4), (257, 1000), (5, 3)])
def test_round_trip(a, m, k):
    sp, op = drawn(a, m, k)
    packed = pack(op, sp)
    assert packed.data.shape == packed_shape(a, m, k)
    back = unpack(packed)
    assert (back.values.view(np.uint8) == sp.values.view(np.uint8)).all()
    assert (back.indices == sp.indices).all()
    assert back.shape == sp.shape


@pytest.mark.parametrize("a", TYPES)
def test_the_instruction_finds_its_values_and_codes(a):
    kernel = Kernel(a, tile=Tile(64, 8))
    op = kernel.instruction
    sp, _ = drawn(a, 512, 3 * kernel.slab_k)
    data = pack(op, sp).data
    kept, k = op.shape.k // 2, op.shape.k
    chunks = k // op.granularity.chunk
    for tall, slab, block, step in [(0, 0, 0, 0), (1, 2, 3, 1), (0, 1, 2, 1)]:
        rows = slice(tall * 256 + block * 64, tall * 256 + block * 64 + 64)
        number = slab * kernel.steps + step
        at = Descriptor(32 * step, 64, 512, swizzle=64)
        found = read_tile(op, "A", data[tall, slab, block], at)
        stored = op.types["a"].encode(sp.values[rows, number * kept :][:, :kept])
        assert (found == stored).all()
        words = data[tall, slab, block, 4096:].view(np.uint32)
        words = words.reshape(128, kernel.words)
        shared = op.metadata.tiles == 2
        word = words[:, :1] if shared else words[:, step : step + 1]
        codes = op.metadata.unpack(word, step if shared else 0)
        assert (codes == sp.indices[rows, number * chunks :][:, :chunks]).all()


def test_swizzle_by_hand():
    row, unit = np.divmod(np.arange(256), 4)
    assert (places("bf16") == 4 * row + (unit ^ (row >> 1 & 3))).all()


def test_code_places_by_hand():
    row, unit = np.divmod(np.arange(256), 4)
    warp, g, high = row // 16, row % 8, row // 8 % 2
    lane = 32 * warp + 4 * g
    eight = (lane + high + 2 * (unit % 2)) * 8 + unit // 2 * 4
    assert (code_places("e4m3") == eight).all()
    sixteen = (lane + unit) * 4 + 2 * high
    assert (code_places("bf16") == sixteen).all()
    assert (code_places("tf32") == sixteen).all()


def test_padding_is_zeros_and_legal_codes():
    sp, op = drawn("e4m3", 3, 20)
    back = unpack(pack(op, sp))
    assert back.shape == (3, 20)
    whole = pack(op, sp).data
    assert not whole[0, 0, 1:, :4096].any()
    assert (whole[0, 0, 1:, 4096:] == 0xEE).all()


def test_batches_are_refused():
    op = Kernel("s8").instruction
    with pytest.raises(fm.Error, match="one matrix"):
        pack(op, fm.sparse.compress(op, np.zeros((2, 4, 8))))
