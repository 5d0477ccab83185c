"""Encoding and packing 8192 x 8192 elements, against copying them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fragmenta.reference.registers.dtype import dtype
from fragmenta.reference.registers.words import (
    decode_words,
    encode_words,
    pack_words,
    unpack_words,
)

SIZE = (8192, 8192)
Within = Callable[[Callable[[], object], int, float], None]


def matrix(name: str, storage: Any) -> Any:
    """Small integers in the storage asked for, negative ones if there are any."""
    low, high = (0, 2) if name == "b1" else (0 if name.startswith("u") else -4, 5)
    values = np.random.default_rng(0).integers(low, high, SIZE, np.int8)
    return values.astype(storage)


@pytest.mark.parametrize(
    ("name", "storage", "limit"),
    [
        ("b1", np.uint8, 8),
        ("s4", np.int8, 8),
        ("s4", ml_dtypes.int4, 8),
        ("u4", np.uint8, 8),
        ("e2m1", ml_dtypes.float4_e2m1fn, 8),
        ("s8", np.int8, 1),
        ("e4m3", ml_dtypes.float8_e4m3fn, 1),
        ("f16", np.float16, 1),
        ("f64", np.float64, 1),
    ],
)
def test_encode_words(
    within_copies: Within, name: str, storage: Any, limit: float
) -> None:
    array = matrix(name, storage)
    within_copies(lambda: encode_words(array, name), array.nbytes, limit)


def test_encode_s4(within_copies: Within) -> None:
    array, s4 = matrix("s4", np.int8), dtype("s4")
    within_copies(lambda: s4.encode(array), array.nbytes, 8)


@pytest.mark.parametrize("width", [1, 4, 16])
def test_pack(within_copies: Within, width: int) -> None:
    bits = np.ones(SIZE, f"u{max(1, width // 8)}")
    within_copies(lambda: pack_words(bits, width), bits.nbytes, 8)


@pytest.mark.parametrize("width", [1, 4, 16])
def test_unpack(within_copies: Within, width: int) -> None:
    words = pack_words(np.ones(SIZE, f"u{max(1, width // 8)}"), width)
    out_bytes = SIZE[0] * SIZE[1] * max(1, width // 8)
    within_copies(lambda: unpack_words(words, width), out_bytes, 8)


def test_decode_words_s4(within_copies: Within) -> None:
    array = matrix("s4", np.int8)
    words = encode_words(array, "s4")
    within_copies(lambda: decode_words(words, "s4"), array.nbytes, 8)
