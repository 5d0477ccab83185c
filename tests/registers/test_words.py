"""Elements in registers: packing, and containers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fragmenta.errors import (
    Error,
    ShapeError,
    UnknownInstruction,
    UnknownType,
    ValueRangeError,
)
from fragmenta.reference.registers.dtype import DTYPES, DType, dtype
from fragmenta.reference.registers.words import (
    Container,
    container,
    decode_words,
    encode_words,
    pack_words,
    unpack_words,
)
from tests.registers.bits import patterns, same

WIDTHS = (1, 4, 8, 16, 32, 64)


# Packing.


def by_hand(bits: list[int], width: int, word_bits: int) -> list[int]:
    """Packing as a sentence: element i of a word is worth 2**(width * i)."""
    per_word = word_bits // width
    return [
        sum(bits[start + i] << (width * i) for i in range(per_word))
        for start in range(0, len(bits), per_word)
    ]


@pytest.mark.parametrize("word_bits", [8, 16, 32, 64])
@pytest.mark.parametrize("width", WIDTHS)
def test_packing_order(width: int, word_bits: int) -> None:
    if width > word_bits:
        return
    count = 3 * word_bits // width
    random = np.random.default_rng(width)
    bits = random.integers(0, (1 << width) - 1, (2, 5, count), np.uint64, endpoint=True)
    words = pack_words(bits, width, word_bits)
    assert words.dtype == f"u{word_bits // 8}"
    assert words.shape == (2, 5, 3)
    for row in np.ndindex(2, 5):
        assert words[row].tolist() == by_hand(bits[row].tolist(), width, word_bits)
    back = unpack_words(words, width)
    assert np.array_equal(back, bits)
    assert back.dtype.itemsize == max(1, width // 8)


@pytest.mark.parametrize("width", WIDTHS)
def test_packing_does_not_care_for_strides(width: int) -> None:
    word_bits = max(32, width)
    shape = (2 * word_bits // width, 7)
    random = np.random.default_rng(width)
    bits = random.integers(0, (1 << width) - 1, shape, np.uint64, endpoint=True)
    bits = bits.astype(f"u{max(1, width // 8)}")
    words = pack_words(bits.T, width, word_bits)
    assert np.array_equal(words, pack_words(bits.T.copy(), width, word_bits))
    assert np.array_equal(
        unpack_words(words[:, ::2], width), bits.T.reshape(7, 2, -1)[:, 0]
    )


def test_whole_bytes_pack_as_a_view() -> None:
    bits = np.zeros((4, 8), np.uint16)
    assert np.shares_memory(pack_words(bits, 16), bits)
    halves = np.zeros((4, 8), np.float16)
    assert np.shares_memory(encode_words(halves, "f16"), halves)


def test_packing_nothing() -> None:
    for width in WIDTHS:
        empty = np.zeros((3, 0), np.uint8)
        assert pack_words(empty, width, 64).shape == (3, 0)
        assert unpack_words(empty.view(np.uint64), width).shape == (3, 0)
    assert encode_words(np.zeros((0, 8), np.int8), "s4").shape == (0, 1)


@pytest.mark.parametrize(
    ("bits", "width", "word_bits", "error", "message"),
    [
        (np.zeros((2, 7), np.uint8), 4, 32, ShapeError, "multiple of 8.*(2, 7)"),
        (np.uint8(1), 8, 32, ShapeError, "last axis"),
        (np.zeros(8, np.uint8), 6, 32, ShapeError, "1, 4, 8, 16 or 32 bits, not 6"),
        (np.zeros(8, np.uint64), 64, 32, ShapeError, "not 64"),
        (np.zeros(8, np.uint8), 8, 24, ShapeError, "8, 16, 32 or 64 bits, not 24"),
        (np.full(8, 16, np.uint8), 4, 32, ValueRangeError, "has 4 bits"),
        (np.full(32, 2, np.uint8), 1, 32, ValueRangeError, "has 1 bits?"),
        (np.full(8, -1, np.int8), 8, 32, ValueRangeError, "-0x1 at"),
        (np.zeros(8, np.float32), 32, 32, ValueRangeError, "unsigned integers"),
    ],
)
def test_packing_refuses(
    bits: Any, width: int, word_bits: int, error: type[Error], message: str
) -> None:
    with pytest.raises(error, match=message):
        pack_words(bits, width, word_bits)


def test_unpacking_refuses() -> None:
    with pytest.raises(ValueRangeError, match="uint32 or uint64 arrays, not int64"):
        unpack_words([1, 2], 4)
    with pytest.raises(ShapeError, match="a scalar has none"):
        unpack_words(np.uint32(1), 4)
    with pytest.raises(ShapeError, match="not 64"):
        unpack_words(np.uint32([1]), 64)


PACKED = [t for t in DTYPES.values() if t.bits != 6]


@pytest.mark.parametrize("dt", PACKED, ids=str)
def test_words_of_values(dt: DType) -> None:
    bits = patterns(dt)
    bits = np.resize(bits, (3, 1 << 17))
    stored = dt.decode(bits)
    words = encode_words(stored, dt)
    assert same(words, pack_words(bits, dt.bits, max(32, dt.bits)))
    assert same(decode_words(words, dt), stored)


@given(st.data())
def test_round_trips(data: st.DataObject) -> None:
    dt = data.draw(st.sampled_from(PACKED))
    per_word = max(1, 32 // dt.bits)
    batch = data.draw(st.lists(st.integers(0, 3), max_size=2))
    shape = (*batch, per_word * data.draw(st.integers(0, 3)))
    count = int(np.prod(shape))
    drawn = data.draw(st.lists(st.integers(0, dt.mask), min_size=count, max_size=count))
    bits = np.array(drawn, dt.bits_dtype).reshape(shape)
    assert same(dt.encode(dt.decode(bits)), bits)
    word_bits = max(32, dt.bits)
    assert same(unpack_words(pack_words(bits, dt.bits, word_bits), dt.bits), bits)
    assert same(decode_words(encode_words(dt.decode(bits), dt), dt), dt.decode(bits))


# Containers.


@pytest.mark.parametrize(
    ("name", "kind", "wanted"),
    [
        ("e2m1", "f8f6f4", Container(8, 2, 4)),
        ("e2m1", "mxf8f6f4", Container(8, 2, 4)),
        ("e2m1", ".kind::f8f6f4", Container(8, 2, 4)),
        ("e2m1", "mxf4", Container(4, 0, 4)),
        ("e2m1", "mxf4nvf4", Container(4, 0, 4)),
        ("e2m1", None, Container(4, 0, 4)),
        ("e2m3", "f8f6f4", Container(8, 0, 6)),
        ("e3m2", "mxf8f6f4", Container(8, 0, 6)),
        ("e4m3", "f8f6f4", Container(8, 0, 8)),
        ("f32", "f8f6f4", Container(32, 0, 32)),
        ("s4", None, Container(4, 0, 4)),
        ("tf32", None, Container(32, 0, 32)),
    ],
)
def test_containers(name: str, kind: str | None, wanted: Container) -> None:
    slot = container(name, kind)
    assert slot == wanted
    bits = patterns(dtype(name))
    slots = slot.insert(bits)
    assert slots.dtype.itemsize * 8 == max(8, slot.bits)
    assert same(slot.extract(slots), bits)
    if slot.width < slot.bits:
        around = 0xFF ^ ((1 << slot.width) - 1 << slot.shift)
        assert same(slot.extract(slots | np.uint8(around)), bits)


def test_words_of_containers() -> None:
    slot = container("e2m1", "f8f6f4")
    values = np.array([0.5, 1.0, -6.0, 0.0], ml_dtypes.float4_e2m1fn)
    words = encode_words(values, "e2m1", slot)
    assert [hex(word) for word in words] == [hex(0x00_3C_08_04)]
    assert same(decode_words(words, "e2m1", slot), values)


def test_containers_refuse() -> None:
    for kind in (None, "mxf4"):
        with pytest.raises(UnknownType, match="e2m3 has no packed form"):
            container("e2m3", kind)
    with pytest.raises(UnknownInstruction, match="did you mean mxf4"):
        container("e2m1", "mxf5")
    slot = container("e2m1", "f8f6f4")
    with pytest.raises(ValueRangeError, match="has 4 bits"):
        slot.insert([16])
    with pytest.raises(ValueRangeError, match="slot has 8 bits"):
        slot.extract([256])
