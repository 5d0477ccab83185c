"""What ``spcompress`` and ``spdecompress`` compute, against plain Python."""

import math
from itertools import product

import ml_dtypes
import numpy as np
import pytest

import fragmenta as fm
from fragmenta.reference.isa.tables.sparse import sizes_of
from fragmenta.reference.sparse.in_registers import SELECTIONS, TYPES, keys, remaining
from fragmenta.sparse import SparseDescriptor, compress_registers, decompress_registers
from tests.thinning import some

KINDS = {
    "u8": np.uint8,
    "s8": np.int8,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "e5m2": ml_dtypes.float8_e5m2,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
}


def test_the_manuals_example():
    """Figure 43 and 44 of PTX 9.4: the greatest magnitudes of s8, and back."""
    data = np.array([0, -7, 3, 0, 0, 5, 3, 6], np.int8).view(np.uint32)
    mdata, cdata = compress_registers("spcompress.b8.b4.sp::2:4.x1", data, 5)
    assert [hex(word) for word in (*mdata, *cdata)] == ["0x3121", "0x60503f9"]
    again = decompress_registers("spdecompress.b8.b4.sp::2:4.x2", mdata, cdata)
    assert again.view(np.int8).tolist() == [0, -7, 3, 0, 0, 5, 0, 6]


def by_hand(values, selection):
    """Places of the two that remain; None if PTX does not say which."""

    def key(x):
        if math.isnan(x):
            return (1, 0.0, 0)
        size = abs(x) if selection.endswith("ABS") else x
        zero = 0 if selection.endswith("ABS") else int(math.copysign(1, x))
        sign = -1 if selection.startswith("MIN") else 1
        return (0, sign * size, sign * zero * (x == 0))

    order = sorted(range(4), key=lambda i: key(values[i]), reverse=True)
    if key(values[order[1]]) == key(values[order[2]]):
        return None
    return sorted(order[:2])


@pytest.mark.parametrize("name", KINDS)
def test_every_type_and_selection(name):
    rng = np.random.default_rng(sum(map(ord, name)))
    bits = 16 if name in TYPES[16] else 8
    most = 1 << {"e3m2": 6, "e2m3": 6}.get(name, bits)
    groups = rng.integers(0, most, (400, 4), f"u{bits // 8}")
    few = rng.choice(np.array([0, most >> 1, 1, most - 1], groups.dtype), (100, 4))
    groups = np.concatenate([groups, few])
    with np.errstate(invalid="ignore"):
        numbers = groups.view(KINDS[name]).astype(float)
    for selection in SELECTIONS:
        wanted = [by_hand(row.tolist(), selection) for row in numbers]
        clear = np.array([each is not None for each in wanted])
        assert clear.sum() > 300
        op = fm.instruction(f"spcompress.b{bits}.b2.sp::2:4.x{bits // 8}")
        desc = SparseDescriptor(selection, name).encode()
        pairs = groups[clear][: clear.sum() // 4 * 4].reshape(-1, 4, 4)
        chosen = [each for each in wanted if each is not None]
        for four, places in zip(
            pairs,
            np.reshape(chosen, (-1, 2))[: 4 * len(pairs)].reshape(-1, 4, 2),
            strict=True,
        ):
            data = four.reshape(-1).view(np.uint32)[: 2 * (bits // 8)]
            count = data.nbytes * 8 // bits // 4
            mdata, cdata = compress_registers(op, data, desc)
            kept = np.take_along_axis(four[:count], places[:count], axis=-1)
            assert cdata.view(groups.dtype).tolist() == kept.ravel().tolist()
            word = sum(int(p) << 2 * i for i, p in enumerate(places[:count].ravel()))
            assert mdata.tolist() == [word]
        for row in groups[~clear][:3]:
            with pytest.raises(fm.Error, match="PTX does not say which"):
                remaining(keys(row[None], name, selection), "it")


@pytest.mark.parametrize("op", some(fm.search("spdecompress"), 12), ids=str)
def test_there_and_back(op):
    element, index, kept, of, count = sizes_of(op)
    rng = np.random.default_rng(count)
    dense = np.zeros((3, count, of), f"u{element // 8}")
    places = np.sort(
        rng.permuted(np.tile(np.arange(of), (3, count, 1)), axis=-1)[..., :kept]
    )
    values = rng.integers(1, 1 << element, places.shape, dense.dtype)
    np.put_along_axis(dense, places, values, axis=-1)
    words = [0] * 3
    for lane, row in enumerate(places.reshape(3, -1).tolist()):
        words[lane] = sum(p << index * i for i, p in enumerate(row))
    into, first, second = op.operands
    mdata = np.array(
        [[w >> 32 * i & 0xFFFFFFFF for i in range(first.count)] for w in words]
    )
    cdata = np.zeros((3, second.count * 32 // element), dense.dtype)
    cdata[:, : kept * count] = values.reshape(3, -1)
    found = decompress_registers(op, mdata, cdata.view(np.uint32))
    assert found.shape == (3, into.count)
    assert np.array_equal(
        found.view(dense.dtype)[:, : of * count], dense.reshape(3, -1)
    )


def test_several_elements_of_one_index():
    """The manual writes them one after the other."""
    found = decompress_registers(
        "spdecompress.b8.b4.sp::2:4.x2", [0x0011], [0x04030201]
    )
    assert found.tolist() == [0x0200, 0x04]


@pytest.mark.parametrize(
    "word, said",
    [
        (1 << 5, "bits 5 to 31 of a descriptor must be zero; given 0x20"),
        (6 << 2, "types 0 to 5; given descriptor 0x18, type 6"),
    ],
)
def test_wrong_descriptors(word, said):
    with pytest.raises(fm.errors.ValueRangeError, match=said):
        compress_registers("spcompress.b8.b4.sp::2:4.x1", [0, 0], word)


def test_what_is_refused():
    op = "spcompress.b8.b4.sp::2:4.x1"
    with pytest.raises(fm.errors.ShapeError, match=r"data of .* \(…, 2\); given"):
        compress_registers(op, [1, 2, 3], 5)
    with pytest.raises(fm.errors.ShapeError, match="data of"):
        compress_registers(op, [1.0, 2.0], 5)
    with pytest.raises(fm.Error, match="takes an instruction of spdecompress"):
        decompress_registers(op, [0], [0])
    with pytest.raises(fm.errors.ValueRangeError, match="must be below 4; given 15"):
        decompress_registers("spdecompress.b8.b4.sp::2:4.x2", [0xF], [0])
    with pytest.raises(fm.errors.ValueRangeError, match="e3m2 have 6 bits"):
        compress_registers(op, [0x40, 0], SparseDescriptor("MAX", "e3m2").encode())


def test_descriptors_there_and_back():
    with pytest.raises(fm.errors.BadCall, match="given 'MOST' of 's8'"):
        SparseDescriptor("MOST", "s8").encode()
    with pytest.raises(fm.errors.BadCall, match=r"whole number; given 1\.5"):
        SparseDescriptor.decode(1.5, 8)
    with pytest.raises(fm.errors.ValueRangeError, match="8 or 16 bits; given 32"):
        SparseDescriptor.decode(0, 32)
    for bits, types in TYPES.items():
        for selection, name in product(SELECTIONS, types):
            made = SparseDescriptor(selection, name)
            assert SparseDescriptor.decode(made.encode(), bits) == made
