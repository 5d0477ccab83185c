"""A tensor map has the bytes that the driver makes of its arguments."""

from dataclasses import replace
from zlib import crc32

import ml_dtypes
import numpy as np
import pytest

from fragmenta.errors import AddressError, Error, ShapeError, UnknownType
from fragmenta.reference.shared.tensor_map import Im2col, TensorMap
from tests.shared.recorded_boxes import Case, recording


def test_the_driver_makes_the_same_bytes_and_refuses_the_same_maps() -> None:
    recorded = recording("tensor_maps")
    wrong, made = [], 0
    for row, refused, crc in zip(
        recorded["rows"], recorded["refused"], recorded["crc"], strict=True
    ):
        try:
            data = Case(row).map().encode()
        except Error:
            data = None
        made += data is not None
        if (data is None) != refused or (data is not None and crc32(data) != crc):
            wrong.append(row.tolist())
    assert not wrong, f"{len(wrong)}, such as {wrong[0]}"
    assert made > 4000 and recorded["refused"].sum() > 2000  # noqa: PT018


def test_bytes_are_read_back() -> None:
    recorded = recording("tensor_maps")
    for row in recorded["rows"][~recorded["refused"]][::7]:
        map = Case(row).map()
        assert TensorMap.decode(map.encode()) == map


TILED = TensorMap("f16", (64, 9, 8), (128, 1152), (32, 4, 2), swizzle=64)
COLUMN = TensorMap(
    "f16", (64, 9, 8, 2), (128, 1152, 9216), im2col=Im2col((-1, -1), (0, 0), 32, 16)
)


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"dtype": "float16"}, UnknownType, "did you mean f16"),
        (
            {"swizzle": 96},
            Error,
            "0, 32, 64, 128, 128/32, 128/32/8 or 128/64; given 96",
        ),
        ({"fill": "one"}, Error, "zeros or nan; given 'one'"),
        ({"dtype": "u16", "fill": "nan"}, Error, "only floats"),
        ({"address": 8}, AddressError, "multiple of 16 bytes; given 8"),
        ({"address": 1 << 57}, AddressError, "57 bits"),
        ({"strides": (120, 1152)}, AddressError, "dimension 1 .* nearest 128"),
        ({"strides": (128, 1 << 40)}, AddressError, "dimension 2"),
        ({"strides": (128,)}, ShapeError, "2 strides in its map; given 1"),
        ({"sizes": (64, 0, 8)}, ShapeError, "size of dimension 1 must be 1 to"),
        ({"box": (32, 257, 2)}, ShapeError, "1 to 256; given 257"),
        ({"box": (30, 4, 2)}, ShapeError, "8 elements of f16; given 30, nearest 32"),
        ({"box": (64, 4, 2)}, ShapeError, "at most 32 elements of f16; given 64"),
        ({"box": (32, 256, 256)}, ShapeError, "at most 233,472 bytes"),
        ({"element_strides": (1, 9, 1)}, ShapeError, "1 to 8; given 9"),
        ({"interleave": 16, "sizes": (64, 9), "strides": (128,)}, ShapeError, "3 to 5"),
        ({"box": (32.0, 4, 2)}, ShapeError, "given 32.0"),
    ],
)
def test_what_is_refused_is_explained(
    changed: dict[str, object], error: type[Error], words: str
) -> None:
    with pytest.raises(error, match=words):
        replace(TILED, **changed)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (Im2col((-129, 0), (0, 0), 32, 16), "-128 to 127; given -129"),
        (Im2col((0,), (0, 0), 32, 16), "2 numbers; given"),
        (Im2col((0, 0), (0, 0), 32, 1025), "1 to 1024; given 1025"),
        (Im2col((0, 0), (0, 0), 3, 16), "given 3, nearest 8"),
        (Im2col((0, 4), (0, -4), 32, 16), "is empty: in dimension 2"),
    ],
)
def test_columns_that_are_refused_are_explained(column: Im2col, words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        replace(COLUMN, im2col=column)


def test_bytes_that_are_no_map_are_refused() -> None:
    data = bytearray(TILED.encode())
    with pytest.raises(ShapeError, match="128 bytes; given 127"):
        TensorMap.decode(bytes(data[:127]))
    for place, bits, words in (
        (8, 0x70, "1 to 5 dimensions; given 8"),
        (9, 0x07, "element type 14 with tf32 0"),
        (10, 0x01, "element type 6 with tf32 1"),
        (9, 0x18, "interleave must be 0 to 2; given 3"),
    ):
        wrong = bytearray(data)
        wrong[place] |= bits
        with pytest.raises(Error, match=words):
            TensorMap.decode(bytes(wrong))


def test_a_map_of_an_array_is_in_the_order_of_its_axes() -> None:
    array = np.zeros((4, 10, 64), ml_dtypes.bfloat16)
    map = TensorMap.of(
        array[:, 2:], (2, 8, 32), swizzle=64, fill="nan", element_strides=(2, 1, 1)
    )
    assert map.dtype == "bf16"
    assert map.sizes == (64, 8, 4)
    assert map.strides == (128, 1280)
    assert map.box == (32, 8, 2)
    assert map.element_strides == (1, 1, 2)
    assert map.at(64).address == 64
    assert (
        TensorMap.of(np.zeros((8, 16), np.float32), (8, 8), dtype="tf32").dtype
        == "tf32"
    )


@pytest.mark.parametrize(
    ("array", "options", "words"),
    [
        (np.zeros((4, 4), complex), {}, "no elements of complex128"),
        (np.zeros((4, 16), np.float32), {"dtype": "f16"}, "f16 has 2 bytes"),
        (np.zeros((16, 16), np.float32).T, {}, "must be adjacent"),
    ],
)
def test_arrays_without_a_map_are_refused(
    array: np.ndarray, options: dict[str, str], words: str
) -> None:
    with pytest.raises(Error, match=words):
        TensorMap.of(array, (4, 4), **options)  # type: ignore[arg-type]
