"""Other libraries find the codes where they read them."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fragmenta as fm
from fragmenta.reference.isa.families import catalogue
from fragmenta.reference.sparse.compression import Compressed, compress, decompress
from fragmenta.reference.sparse.exchange import (
    from_cutlass_sm90,
    from_marlin,
    from_nibbles,
    from_torch,
    to_cutlass_sm90,
    to_marlin,
    to_nibbles,
    to_torch,
)
from fragmenta.reference.sparse.pruning import prune

GOLDEN = Path(__file__).parents[1] / "golden" / "exchange"
ORDERED = "sp::ordered_metadata"
TORCH = {
    "f16": fm.mma("m16n8k32", a="f16", d="f32", sp=ORDERED),
    "bf16": fm.mma("m16n8k32", a="bf16", d="f32", sp=ORDERED),
    "tf32": fm.mma("m16n8k16", a="tf32", sp=ORDERED),
    "s8": fm.mma("m16n8k64", a="s8", sp=ORDERED),
}
HOPPER = {op.types["a"].name: op for op in catalogue("wgmma.sp")}
S4 = fm.mma("m16n8k128", a="s4", sp=ORDERED)

torch_types = pytest.mark.parametrize("name", TORCH)
hopper_types = pytest.mark.parametrize("name", HOPPER)


def raw(array):
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def sparse_matrix(op, shape, seed=0):
    of, random = op.types["a"], np.random.default_rng(seed)
    values = random.integers(0, 3, shape).astype(of.storage)
    return prune(op, values, scores=random.random(shape))


def same(left, right):
    assert left.granularity == right.granularity
    assert (raw(left.values) == raw(right.values)).all()
    assert (left.indices == right.indices).all()


# ── plain row-major nibbles ─────────────────────────────────────────────────


@pytest.mark.parametrize(
    "op", [*HOPPER.values(), S4], ids=lambda op: str(op.types["a"])
)
def test_nibbles_by_the_book(op):
    sp = compress(op, sparse_matrix(op, (2, 3, 64)))
    nibbles = to_nibbles(sp)
    assert nibbles.shape == (2, 3, sp.indices.shape[-1] // 2)
    for (*row, chunk), code in np.ndenumerate(sp.indices):
        byte = int(nibbles[(*row, chunk // 2)])
        assert (byte >> 4 if chunk % 2 else byte & 15) == code
    same(from_nibbles(op, sp.values, nibbles), sp)
    for word in (np.uint16, np.int32):
        same(from_nibbles(op, sp.values, nibbles.view(word)), sp)


# ── PyTorch ─────────────────────────────────────────────────────────────────


def torch_offset(row, column, rows, word_bits):
    """Where PyTorch's CUTLASS backend keeps the word of a row and a column.

    Rows are dealt in groups of eight: lines of a group of 32 (16) rows are
    rows 0, 8, 16, 24, 1, 9 … (0, 8, 1, 9 …).  In each square of two lines and
    two columns the two words off the diagonal change places.  Two columns of
    words then lie side by side, line after line, pair of columns after pair.
    """
    eights = 4 if word_bits == 16 else 2
    group, row = divmod(row, 8 * eights)
    line = row % 8 * eights + row // 8
    pair, column = divmod(column, 2)
    square, line = divmod(line, 2)
    line, column = column, line
    line += 2 * square + 8 * eights * group
    return pair * 2 * rows + line * 2 + column


def torch_meta_by_hand(codes, word_bits):
    per_word = word_bits // 4
    rows, columns = codes.shape[0], codes.shape[1] // per_word
    meta = np.zeros(rows * columns, np.uint32)
    for row in range(rows):
        for column in range(columns):
            word = 0
            for nibble in range(per_word):
                word |= int(codes[row, column * per_word + nibble]) << 4 * nibble
            meta[torch_offset(row, column, rows, word_bits)] = word
    return meta.reshape(rows, columns)


@torch_types
@pytest.mark.parametrize("shape", [(32, 64), (96, 128), (64, 320)])
def test_torch_by_the_book(name, shape):
    op = TORCH[name]
    sp = compress(op, sparse_matrix(op, shape))
    packed, meta = to_torch(op, sp)
    bits = 32 if name == "s8" else 16
    assert meta.dtype == np.dtype(f"i{bits // 8}")
    by_hand = torch_meta_by_hand(sp.indices, bits).astype(f"u{bits // 8}")
    assert (raw(meta) == by_hand).all()
    same(from_torch(op, packed, meta), sp)


@torch_types
@pytest.mark.parametrize("shape", ["32x64", "64x128", "96x192"])
def test_torch_as_pytorch_answered(name, shape):
    """`golden/make_exchange.py` asked; chunks with room to spare included."""
    op, storage = TORCH[name], TORCH[name].types["a"].storage
    with np.load(GOLDEN / f"torch_{name}.npz") as kept:
        assert str(kept["torch_version"])
        dense = kept[f"{shape}_dense"].view(storage)
        stored, meta = kept[f"{shape}_packed"], kept[f"{shape}_meta"]
    packed, ours = to_torch(op, compress(op, dense))
    assert (raw(packed) == stored).all()
    assert ours.dtype == meta.dtype
    assert (ours == meta).all()
    back = decompress(op, from_torch(op, stored.view(storage), meta))
    assert (raw(back) == raw(dense)).all()


@pytest.mark.torch
@torch_types
@settings(max_examples=10, deadline=None)
@given(rows=st.integers(1, 4), columns=st.integers(1, 5), seed=st.integers(0, 99))
def test_torch_as_pytorch_answers(name, rows, columns, seed):
    """The same, asked now, where PyTorch is installed."""
    import torch
    import torch.sparse._semi_structured_conversions as ask

    op = TORCH[name]
    dense = sparse_matrix(op, (32 * rows, 64 * columns), seed)
    signed = raw(dense).view(f"i{dense.itemsize}")
    dtype = {"f16": "float16", "bf16": "bfloat16", "tf32": "float32", "s8": "int8"}
    tensor = torch.from_numpy(signed).view(getattr(torch, dtype[name]))
    stored, meta = ask.sparse_semi_structured_from_dense_cutlass(tensor)
    sp = from_torch(op, stored, meta)
    assert (raw(decompress(op, sp)) == raw(dense)).all()
    packed, ours = to_torch(op, compress(op, dense))
    assert (ours == meta.numpy()).all()
    assert (raw(packed) == raw(sp.values)).all()
    bits = torch.from_numpy(raw(packed).view(signed.dtype)).view(tensor.dtype)
    back = ask.sparse_semi_structured_to_dense_cutlass(bits, torch.from_numpy(ours))
    assert torch.equal(back, tensor)


# ── Sparse-Marlin ───────────────────────────────────────────────────────────


def marlin_offsets(rows, columns):
    """Where Sparse-Marlin's conversion scatters the word of each row and column.

    Step by step as its index arithmetic goes, for a matrix of words: rows of a
    group of 64 are dealt out, two words of each 2 x 2 square change places, and
    columns are interleaved by two.
    """
    row, column = np.mgrid[:rows, :columns]
    inside = row % 64
    line = (
        row
        - inside
        + 2 * (row % 2)
        + row // 4 % 2
        + 32 * (row // 2 % 2)
        + 4 * (inside // 8)
    )
    upper = (line % 2 == 0) & (column % 2 == 1)
    lower = (line % 2 == 1) & (column % 2 == 0)
    step = upper.astype(int) - lower
    line, column = line + step, column - step
    return column // 2 * rows * 2 + line * 2 + column % 2


def scattered(codes, word_bits):
    """Reordered words of a matrix of codes."""
    unsigned = np.dtype(f"u{word_bits // 8}")
    digits = codes.reshape(len(codes), -1, word_bits // 4).astype(unsigned)
    shifts = np.arange(0, word_bits, 4, dtype=unsigned)
    words = np.bitwise_or.reduce(digits << shifts, axis=-1)
    meta = np.zeros(words.size, unsigned)
    offsets = marlin_offsets(*words.shape).ravel()
    assert sorted(offsets) == list(range(words.size))
    meta[offsets] = words.ravel()
    return meta.reshape(words.shape)


@torch_types
@pytest.mark.parametrize("shape", [(64, 64), (192, 128), (128, 320)])
def test_marlin_by_the_book(name, shape):
    op = TORCH[name]
    granularity = op.granularity
    random = np.random.default_rng(1)
    codes = random.choice(
        granularity.codes(), (shape[0], shape[1] // granularity.chunk)
    )
    values = random.integers(1, 9, (shape[0], shape[1] // 2))
    sp = Compressed(values.astype(op.types["a"].storage), codes, granularity)
    packed, meta = to_marlin(op, sp)
    bits = 32 if name == "s8" else 16
    assert meta.dtype == np.dtype(f"i{bits // 8}")
    assert (raw(meta) == scattered(codes, bits)).all()
    same(from_marlin(op, packed, meta), sp)
    # as vLLM and torchao keep it: the same words in another shape
    kept = meta.reshape(meta.shape[1] // 2, meta.shape[0] * 2)
    same(from_marlin(op, packed, kept), sp)
    # another order than PyTorch's, so that nobody has to take this on trust
    assert (raw(meta) != raw(to_torch(op, sp).meta)).any()


def test_marlin_quantized_to_8_bits():
    """Values in int32 tensors have codes of int16, whatever their size."""
    op = TORCH["s8"]
    sp = compress(op, sparse_matrix(op, (64, 64)))
    meta = scattered(sp.indices, 16).view(np.int16)
    same(from_marlin(op, sp.values.astype(np.int32), meta), sp)


@torch_types
@pytest.mark.parametrize("shape", ["64x64", "128x128"])
def test_marlin_as_torchao_answered(name, shape):
    """`golden/make_exchange.py` asked; chunks with room to spare included."""
    op, storage = TORCH[name], TORCH[name].types["a"].storage
    with np.load(GOLDEN / f"marlin_{name}.npz") as kept:
        assert str(kept["torchao_version"])
        dense = kept[f"{shape}_dense"].view(storage)
        stored, meta = kept[f"{shape}_packed"], kept[f"{shape}_meta"]
    packed, ours = to_marlin(op, compress(op, dense))
    assert (raw(packed) == stored).all()
    assert ours.dtype == meta.dtype
    assert (ours == meta).all()
    back = decompress(op, from_marlin(op, stored.view(storage), meta))
    assert (raw(back) == raw(dense)).all()
    with pytest.raises(fm.errors.BadMetadata, match="which from_marlin reads"):
        from_torch(op, stored.view(storage), meta)


@torch_types
def test_pytorch_is_not_taken_for_marlin(name):
    """Nor the other way; with every stored value non-zero nothing tells them apart."""
    op, storage = TORCH[name], TORCH[name].types["a"].storage
    with np.load(GOLDEN / f"torch_{name}.npz") as kept:
        stored = kept["64x128_packed"].view(storage)
        meta = kept["64x128_meta"]
    with pytest.raises(
        fm.errors.BadMetadata, match=r"Sparse-Marlin: .* which from_torch reads"
    ):
        from_marlin(op, stored, meta)
    full = np.ones_like(stored)
    assert from_torch(op, full, meta).shape == from_marlin(op, full, meta).shape


@pytest.mark.parametrize("name", ["f16", "s8"])
def test_zeros_stored_under_any_code_are_welcome(name):
    """Only what the other order explains throughout is refused."""
    op = TORCH[name]
    random = np.random.default_rng(3)
    shape = (64, 128 // op.granularity.chunk)
    indices = random.choice(op.granularity.codes(), shape)
    values = random.integers(0, 2, (64, 64)).astype(op.types["a"].storage)
    for stored in (values, np.zeros_like(values)):
        sp = Compressed(stored, indices, op.granularity)
        same(from_torch(op, *to_torch(op, sp)), sp)
        same(from_marlin(op, *to_marlin(op, sp)), sp)


def test_every_word_of_marlin_is_the_register_of_a_lane():
    """The order serves the hardware: 32 words are a register of a warp.

    Four mma.sp take 64 rows: number j has rows 8g + j as its row g and rows
    8g + 4 + j as its row g + 8.  Two of them share a register, told apart by
    the selector.  The metadata fragment is measured on a GPU, so this is a
    second witness.
    """
    op = TORCH["f16"]
    random = np.random.default_rng(2)
    codes = random.choice(op.granularity.codes(), (128, 24))
    sp = Compressed(np.ones((128, 48), np.float16), codes, op.granularity)
    words = np.ascontiguousarray(to_marlin(op, sp).meta).view(np.uint32)
    found = words.reshape(3, 2, 2, 32)  # along k, along m, register, lane
    for k, m, j in np.ndindex(3, 2, 4):
        rows = 64 * m + j + np.r_[8 * np.arange(8), 8 * np.arange(8) + 4]
        own = codes[rows, 8 * k : 8 * k + 8]
        lanes = np.arange(32).reshape(8, 2, 2)[:, j % 2].ravel()
        register = op.metadata.pack(own, selector=j % 2)[:, 0]
        assert (found[k, m, j // 2, lanes] == register[lanes]).all()


# ── CUTLASS for Hopper ──────────────────────────────────────────────────────


def cutlass_offset(m, k, rows, width, tile):
    """Where tensor E has the code of element (m, k), counted in elements of A.

    From CUTLASS's ``sm90_sparse_config.inl``: the atom of 8-bit types is 64 x
    tile, k fastest.  That of 16 (32) bits is ((8, 2, 4), (16, 2, blocks)) with
    16 (8) columns in the low digit, ordered k0, m1, k2, m0, k1, m2 from the
    fastest.  Atoms follow each other along m, then along k.
    """
    m_tile, m = divmod(m, 64)
    k_tile, k = divmod(k, tile)
    aligned = -(-rows // 64) * 64
    start = m_tile * 64 * tile + k_tile * aligned * tile
    if width == 8:
        return start + m * tile + k
    low = 256 // width
    blocks = tile // (2 * low)
    m0, m1, m2 = m % 8, m // 8 % 2, m // 16
    k0, k1, k2 = k % low, k // low % 2, k // (2 * low)
    offset, stride = 0, 1
    for digit, size in (
        (k0, low),
        (m1, 2),
        (k2, blocks),
        (m0, 8),
        (k1, 2),
        (m2, 4),
    ):
        offset += digit * stride
        stride *= size
    return start + offset


def tiles_of(name):
    width = HOPPER[name].types["a"].bits
    return [512 // width, 128, 256] + ([96] if width > 8 else [])


@hopper_types
def test_cutlass_by_the_book(name):
    op = HOPPER[name]
    width, chunk = op.types["a"].bits, op.granularity.chunk
    for tile_k in tiles_of(name):
        tile = min(tile_k, 128)
        sp = compress(op, sparse_matrix(op, (100, 2 * tile)))
        image = to_cutlass_sm90(op, sp, tile_k=tile_k)
        assert image.dtype == np.uint8
        assert image.shape == (128 * 2 * tile // chunk // 2,)
        for (row, number), code in np.ndenumerate(sp.indices):
            offset = cutlass_offset(row, number * chunk, 100, width, tile) // chunk
            byte = int(image[offset // 2])
            assert (byte >> 4 if offset % 2 else byte & 15) == code
        same(from_cutlass_sm90(op, sp.values, image, tile_k=tile_k), sp)


@hopper_types
def test_every_word_of_cutlass_is_the_register_of_a_lane(name):
    """The layout serves the hardware: a word is what one lane hands to wgmma.

    The metadata fragment is measured on a GPU, so this is a second witness.
    """
    op = HOPPER[name]
    e, tile = op.metadata, 128
    rows, chunks = 128, 2 * tile // op.granularity.chunk
    codes = np.random.default_rng(0).choice(op.granularity.codes(), (rows, chunks))
    sp = Compressed(
        np.ones((rows, chunks * op.granularity.kept)), codes, op.granularity
    )
    words = to_cutlass_sm90(op, sp, tile_k=tile).view(np.uint32)
    registers = e.pack_tiles(codes)[..., 0]  # (m tile, instruction along k, lane)
    blocks = tile // op.shape.k
    if op.types["a"].bits == 8:
        found = words.reshape(2, 2, 64, blocks, 2)
        for x, y, row, block, half in np.ndindex(*found.shape):
            lane = 32 * (row // 16) + 4 * (row % 8) + row // 8 % 2 + 2 * half
            word = registers[y, x * blocks + block, lane]
            assert found[x, y, row, block, half] == word
        return
    found = words.reshape(2, 2, 4, 2, 8, blocks)
    for x, y, warp, half, g, block in np.ndindex(*found.shape):
        word = registers[y, x * blocks + block, 32 * warp + 4 * g + half]
        assert found[x, y, warp, half, g, block] == word


@hopper_types
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_cutlass_round_trip(name, data):
    op = HOPPER[name]
    batch = data.draw(st.lists(st.integers(1, 2), max_size=2))
    rows = data.draw(st.integers(1, 150))
    columns = op.granularity.chunk * data.draw(st.integers(1, 90))
    tile_k = data.draw(st.sampled_from(tiles_of(name)))
    A = sparse_matrix(op, (*batch, rows, columns), data.draw(st.integers(0, 99)))
    sp = compress(op, A)
    image = to_cutlass_sm90(op, sp, tile_k=tile_k)
    assert image.shape[:-1] == tuple(batch)
    same(from_cutlass_sm90(op, sp.values, image, tile_k=tile_k), sp)
    same(from_cutlass_sm90(op, sp.values, image.view(np.uint16), tile_k=tile_k), sp)


def test_cutlass_padding_is_empty_chunks():
    op = HOPPER["s8"]
    sp = compress(op, np.int8([[1, 2, 0, 0]]))
    image = to_cutlass_sm90(op, sp, tile_k=64)
    assert image[0] == 0b1110_0100
    assert (image[1:] == 0b1110_1110).all()


def test_cutlass_zeros_for_chunks_of_zeros_are_understood():
    op = HOPPER["e4m3"]
    values = np.zeros((64, 32), ml_dtypes.float8_e4m3fn)
    image = np.zeros(64 * 8, np.uint8)
    sp = from_cutlass_sm90(op, values, image, tile_k=64)
    assert (sp.indices == op.granularity.empty).all()
    values[3, 5] = 1
    with pytest.raises(fm.errors.BadMetadata, match="row 3, chunk 2: code 0000 names"):
        from_cutlass_sm90(op, values, image, tile_k=64)


# ── refusals ────────────────────────────────────────────────────────────────


def codes(rows, chunks, op):
    values = np.zeros((rows, chunks * op.granularity.kept), op.types["a"].storage)
    return Compressed(values, np.full((rows, chunks), 14), op.granularity)


F16, S8, E4M3 = TORCH["f16"], TORCH["s8"], HOPPER["e4m3"]
BAD = {
    "odd nibbles": (
        lambda: to_nibbles(codes(1, 3, S8)),
        fm.errors.ShapeError,
        "even number of chunks; given 3",
    ),
    "nibbles: type": (
        lambda: from_nibbles(S8, np.ones((1, 4)), np.ones((1, 1))),
        fm.errors.ShapeError,
        "must be an array of integers",
    ),
    "nibbles: code": (
        lambda: from_nibbles(S8, np.ones((1, 4)), np.uint8([[0xE5]])),
        fm.errors.BadMetadata,
        "row 0, chunk 0: code 0101 names position 1 twice",
    ),
    "nibbles: shape": (
        lambda: from_nibbles(S8, np.ones((1, 6)), np.uint8([[0xE4]])),
        fm.errors.ShapeError,
        "2:4 stores 2 values for each code",
    ),
    "nibbles: values": (
        lambda: from_nibbles(S8, np.full((1, 4), 0.5), np.uint8([[0xE4]])),
        fm.errors.ValueRangeError,
        "s8 holds integers",
    ),
    "torch: type": (
        lambda: to_torch(E4M3, codes(32, 16, E4M3)),
        fm.Error,
        "has f16, bf16, tf32 and s8; given e4m3",
    ),
    "torch: rows": (
        lambda: to_torch(F16, codes(16, 16, F16)),
        fm.errors.ShapeError,
        r"32 rows and 32 columns; .* \(16, 16\)",
    ),
    "torch: columns": (
        lambda: to_torch(S8, codes(32, 8, S8)),
        fm.errors.ShapeError,
        "16 rows and 64 columns",
    ),
    "torch: empty": (
        lambda: to_torch(S8, codes(0, 16, S8)),
        fm.errors.ShapeError,
        r"\(0, 16\)",
    ),
    "torch: meta type": (
        lambda: from_torch(F16, np.ones((32, 16)), np.zeros((32, 2), np.int32)),
        fm.errors.ShapeError,
        "meta of f16 must be int16; given int32",
    ),
    "torch: meta shape": (
        lambda: from_torch(F16, np.ones((32, 16)), np.zeros(64, np.int16)),
        fm.errors.ShapeError,
        "meta must be a matrix",
    ),
    "torch: code": (
        lambda: from_torch(F16, np.ones((32, 16)), np.zeros((32, 2), np.int16)),
        fm.errors.BadMetadata,
        "code 0000 names position 0 twice; 255 more are illegal",
    ),
    "torch: descending": (
        lambda: from_torch(
            fm.mma("m16n8k32", a="f16", d="f32", sp="sp"),
            np.ones((32, 16)),
            np.full((32, 2), 0x1111, np.int16),
        ),
        fm.errors.BadMetadata,
        "code 0001 names position 1 before 0",
    ),
    "torch: to descending": (
        lambda: to_torch(
            fm.mma("m16n8k32", a="f16", d="f32", sp="sp"),
            Compressed(np.ones((32, 16), "f2"), np.ones((32, 8), int), F16.granularity),
        ),
        fm.errors.BadMetadata,
        "code 0001 names position 1 before 0",
    ),
    "marlin: type": (
        lambda: to_marlin(S4, codes(64, 16, S4)),
        fm.Error,
        "Sparse-Marlin has f16, bf16, tf32 and s8; given s4",
    ),
    "marlin: rows": (
        lambda: to_marlin(F16, codes(96, 16, F16)),
        fm.errors.ShapeError,
        r"64 rows and 32 columns; .* \(96, 16\)",
    ),
    "marlin: meta type": (
        lambda: from_marlin(S8, np.ones((64, 16)), np.zeros((64, 2), int)),
        fm.errors.ShapeError,
        "meta of s8 must be int32 or int16; given int64",
    ),
    "marlin: meta shape": (
        lambda: from_marlin(F16, np.ones((64, 16)), np.zeros(128, np.int16)),
        fm.errors.ShapeError,
        "meta must be a matrix",
    ),
    "marlin: another matrix": (
        lambda: from_marlin(F16, np.ones((64, 16)), np.full((64, 4), 0x4444, np.int16)),
        fm.errors.ShapeError,
        "2:4 stores 2 values for each code",
    ),
    "marlin: quantized": (
        lambda: from_marlin(
            F16, np.zeros((1, 128), np.int32), np.full((1, 128), 0x4444, np.int16)
        ),
        fm.errors.ShapeError,
        "64 rows and 32 columns",
    ),
    "marlin: code": (
        lambda: from_marlin(F16, np.ones((64, 16)), np.zeros((64, 2), np.int16)),
        fm.errors.BadMetadata,
        "code 0000 names position 0 twice",
    ),
    "cutlass: type": (
        lambda: to_cutlass_sm90(S4, codes(64, 8, S4)),
        fm.Error,
        "no sparse Hopper kernels for s4",
    ),
    "cutlass: tile": (
        lambda: to_cutlass_sm90(E4M3, codes(64, 16, E4M3), tile_k=32),
        fm.errors.ShapeError,
        "tile_k of e4m3 must be a multiple of 64; given 32",
    ),
    "cutlass: no tile": (
        lambda: to_cutlass_sm90(E4M3, codes(64, 16, E4M3), tile_k=0),
        fm.errors.ShapeError,
        "given 0",
    ),
    "cutlass: empty": (
        lambda: to_cutlass_sm90(E4M3, codes(0, 16, E4M3)),
        fm.errors.ShapeError,
        "matrix is empty; given 0 rows of 16 chunks",
    ),
    "cutlass: bytes": (
        lambda: from_cutlass_sm90(E4M3, np.ones((64, 64)), np.zeros(9, np.uint8)),
        fm.errors.ShapeError,
        "must have 1024 bytes for each matrix; given 9 bytes",
    ),
    "cutlass: values": (
        lambda: from_cutlass_sm90(E4M3, np.ones(64), np.zeros(9, np.uint8)),
        fm.errors.ShapeError,
        "matrix is empty",
    ),
    "cutlass: odd values": (
        lambda: from_cutlass_sm90(E4M3, np.ones((64, 33)), np.zeros(1024, np.uint8)),
        fm.errors.ShapeError,
        "2:4 stores 2 values for each code",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_with_what_is_allowed(case):
    call, error, words = BAD[case]
    with pytest.raises(error, match=words):
        call()


def test_a_matrix_goes_with_its_instruction():
    tf32 = fm.wgmma("m64n8k16", a="tf32", d="f32", sp="sp")
    f16 = fm.wgmma("m64n8k32", a="f16", d="f32", sp="sp")
    sp = fm.sparse.compress(tf32, np.zeros((64, 64), np.float32))
    for call in (to_torch, to_cutlass_sm90):
        with pytest.raises(fm.errors.BadMetadata, match="is 2:4; given an A of 1:2"):
            call(f16, sp)
    s8 = fm.wgmma("m64n8k64", a="s8", sp="sp")
    halves = fm.sparse.compress(f16, np.zeros((64, 64), np.float16))
    with pytest.raises(
        fm.errors.ShapeError, match="must have values of int8; given float16"
    ):
        to_torch(s8, halves)
