"""Element types: every bit pattern, every refusal."""

from __future__ import annotations

import copy
import pickle
import re
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fragmenta.base.arrays.checks import as_array
from fragmenta.errors import (
    Error,
    ShapeError,
    UnknownType,
    ValueRangeError,
)
from fragmenta.reference.registers.dtype import DTYPES, DType, dtype, nearest_type
from fragmenta.reference.registers.words import (
    encode_words,
)
from tests.registers.bits import patterns, same
from tests.thinning import repeats

NUMERIC = [t for t in DTYPES.values() if t.kind != "raw"]
FLOATS = [t for t in NUMERIC if not t.is_integer]
INTEGERS = [t for t in NUMERIC if t.is_integer]

# Typed in from the manual, apart from the table under test: width, and for
# floats exponent and fraction bits, bias, infinity, NaN.
MANUAL = {
    "b1": (1,),
    "s4": (4,),
    "u4": (4,),
    "s8": (8,),
    "u8": (8,),
    "s32": (32,),
    "f16": (16, 5, 10, 15, True, True),
    "bf16": (16, 8, 7, 127, True, True),
    "tf32": (32, 8, 10, 127, True, True),
    "f32": (32, 8, 23, 127, True, True),
    "f64": (64, 11, 52, 1023, True, True),
    "e4m3": (8, 4, 3, 7, False, True),
    "e5m2": (8, 5, 2, 15, True, True),
    "e2m3": (6, 2, 3, 1, False, False),
    "e3m2": (6, 3, 2, 3, False, False),
    "e2m1": (4, 2, 1, 1, False, False),
    "ue8m0": (8, 8, 0, 127, False, True),
    "ue4m3": (8, 4, 3, 7, False, True),
    "b8": (8,),
    "b16": (16,),
    "b32": (32,),
}


def test_table_says_what_the_manual_says() -> None:
    assert list(DTYPES) == list(MANUAL)
    for name, (bits, *rest) in MANUAL.items():
        dt = DTYPES[name]
        assert dt.bits == bits
        found = (
            dt.exponent_bits,
            dt.fraction_bits,
            dt.bias,
            dt.has_infinity,
            dt.has_nan,
        )
        assert found == (tuple(rest) or (0, 0, 0, False, False))


@pytest.mark.parametrize("dt", FLOATS, ids=str)
def test_table_agrees_with_ml_dtypes(dt: DType) -> None:
    if dt.name != "tf32":
        info = ml_dtypes.finfo(dt.storage)
        assert (info.nexp, info.nmant) == (dt.exponent_bits, dt.fraction_bits)


def test_look_up() -> None:
    s4 = dtype("s4")
    assert dtype(s4) is s4
    assert dtype(".S4") is s4
    assert (str(s4), repr(s4)) == ("s4", "dtype('s4')")
    assert {s4: 1}[dtype("s4")] == 1
    assert s4 != dtype("u4")


@pytest.mark.parametrize("dt", DTYPES.values(), ids=str)
def test_copies_are_equal(dt: DType) -> None:
    for twin in (pickle.loads(pickle.dumps(dt)), copy.deepcopy(dt)):
        assert twin == dt
        assert hash(twin) == hash(dt)
        assert twin.storage == dt.storage


@pytest.mark.parametrize(
    ("name", "hint"), [("e4m4", "e4m3"), ("fp16", "f16"), ("int4", ""), ("", "")]
)
def test_unknown_names(name: str, hint: str) -> None:
    with pytest.raises(UnknownType, match="there are b1, s4, u4") as caught:
        dtype(name)
    assert not hint or f"did you mean {hint}" in str(caught.value)


@pytest.mark.parametrize("dt", DTYPES.values(), ids=str)
def test_decode_and_encode_are_inverse(dt: DType) -> None:
    bits = patterns(dt)
    stored = dt.decode(bits)
    assert stored.dtype == dt.storage
    assert same(dt.encode(stored), bits)


@pytest.mark.parametrize("dt", NUMERIC, ids=str)
def test_values_encode_to_their_own_pattern(dt: DType) -> None:
    bits = patterns(dt)
    values = dt.to_float64(bits)
    number = ~np.isnan(values)
    if dt.name == "tf32":
        bits = bits & np.uint32(0xFFFFE000)
    assert same(dt.encode(values[number]), bits[number])
    assert np.isnan(dt.to_float64(dt.encode(values[~number]))).all()


@pytest.mark.parametrize("dt", NUMERIC, ids=str)
def test_parts_make_up_the_value(dt: DType) -> None:
    bits = patterns(dt)
    sign, significand, exponent, special = dt.split(bits)
    value = dt.to_float64(bits)
    if dt.name not in ("tf32", "ue4m3"):
        with np.errstate(invalid="ignore"):
            assert same(value, bits.view(dt.storage).astype(np.float64))
    finite = special == 0
    exact = np.ldexp(significand.astype(np.float64), exponent)
    assert same(np.where(sign == 1, -exact, exact)[finite], value[finite])
    assert np.array_equal(special == 1, np.isinf(value))
    assert np.array_equal(special == 2, np.isnan(value))
    assert not significand[~finite].any()
    assert np.array_equal(sign[special == 1] == 1, value[special == 1] < 0)
    assert significand.max() < 1 << (dt.fraction_bits + 1 if dt.exponent_bits else 33)


@pytest.mark.parametrize("dt", [t for t in FLOATS if t.bits <= 8], ids=str)
def test_parts_against_plain_python(dt: DType) -> None:
    """The textbook reading of sign, exponent and fraction fields."""
    parts = dt.split(patterns(dt))
    for bits in range(dt.mask + 1):
        if parts.special[bits]:
            continue
        fraction = bits % (1 << dt.fraction_bits)
        field = (bits >> dt.fraction_bits) % (1 << dt.exponent_bits)
        sign = bits >> (dt.fraction_bits + dt.exponent_bits)
        one = Fraction(1 if field or dt.name == "ue8m0" else 0)
        power = (field if one else 1) - dt.bias
        wanted = (one + Fraction(fraction, 1 << dt.fraction_bits)) * Fraction(
            2
        ) ** power
        found = int(parts.significand[bits]) * Fraction(2) ** int(parts.exponent[bits])
        assert (found, parts.sign[bits]) == (wanted, sign)


def test_subnormals_keep_the_exponent_of_their_field() -> None:
    parts = dtype("f16").split([0x0001, 0x03FF, 0x0400])
    assert parts.significand.tolist() == [1, 1023, 1024]
    assert parts.exponent.tolist() == [-24, -24, -24]


def test_tf32_ignores_its_low_13_bits() -> None:
    tf32 = dtype("tf32")
    almost_two = np.array([0x3FFFFFFF, 0x7F800001], np.uint32).view(np.float32)
    bits = tf32.encode(almost_two)
    assert bits.tolist() == [0x3FFFFFFF, 0x7F800001]
    assert tf32.to_float64(bits).tolist() == [2 - 2**-10, np.inf]
    assert tf32.split(bits).significand.tolist() == [2047, 0]
    with pytest.raises(ValueRangeError, match=r"float32\) is accepted as it is"):
        tf32.encode([1 + 2.0**-11])


def test_raw_types_have_no_value() -> None:
    for read in (dtype("b16").split, dtype("b16").to_float64):
        with pytest.raises(UnknownType, match="of the same width are f16 and bf16"):
            read([0])


def test_raw_types_take_bits_as_they_are() -> None:
    halves = np.array([1.0, -0.0], np.float16)
    assert dtype("b16").encode(halves).tolist() == [0x3C00, 0x8000]
    assert dtype("b8").encode(np.int8([-1])).tolist() == [0xFF]
    assert dtype("b32").encode([0xFFFFFFFF]).tolist() == [0xFFFFFFFF]
    with pytest.raises(ValueRangeError, match=r"-1 at \[0\]: b8 holds integers"):
        dtype("b8").encode([-1])
    for wrong in (np.float32([1]), [1.0]):
        with pytest.raises(ValueRangeError, match="b16 takes integers or items of 16"):
            dtype("b16").encode(wrong)


# Encoding: what is taken without a copy, what is converted, what is refused.


@pytest.mark.parametrize("dt", DTYPES.values(), ids=str)
def test_stored_arrays_are_not_copied(dt: DType) -> None:
    stored = dt.decode(np.zeros((4, 6), dt.bits_dtype))
    assert np.shares_memory(dt.encode(stored), stored)
    strided = stored[::2, ::3]
    assert dt.encode(strided).shape == (2, 2)
    assert np.shares_memory(dt.encode(strided), stored)


@pytest.mark.parametrize("source", ["?", "i1", "u1", "i2", "u4", "i8", "u8", "f4"])
@pytest.mark.parametrize("dt", INTEGERS, ids=str)
def test_integers_of_any_type(dt: DType, source: str) -> None:
    low, high = dt.limits
    info = None if source in ("?", "f4") else np.iinfo(source)
    low, high = max(low, info.min if info else 0), min(high, info.max if info else 1)
    values = np.array([low, 0, 1, high]).astype(source)
    bits = dt.encode(values)
    assert bits.dtype == dt.bits_dtype
    assert bits.tolist() == [int(v) & dt.mask for v in values]


@pytest.mark.parametrize("source", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
@pytest.mark.parametrize("dt", INTEGERS, ids=str)
def test_integers_out_of_range(dt: DType, source: str) -> None:
    low, high = dt.limits
    for wrong in (low - 1, high + 1):
        info = np.iinfo(source)
        if info.min <= wrong <= info.max:
            array = np.zeros((3, 5), source)
            array[1, 2] = array[2, 4] = wrong
            message = rf"{wrong} at \[1, 2\]: {dt} holds integers from {low} to {high}"
            with pytest.raises(ValueRangeError, match=message):
                dt.encode(array)


def test_range_of_large_unsigned_and_far_blocks() -> None:
    with pytest.raises(ValueRangeError, match=f"{2**64 - 1} at"):
        dtype("s32").encode(np.array([2**64 - 1], np.uint64))
    array = np.zeros((1000, 1000), np.int8)
    array[700, 5] = 8
    for attempt in (dtype("s4").encode, lambda a: encode_words(a, "s4")):
        with pytest.raises(ValueRangeError, match=r"8 at \[700, 5\]"):
            attempt(array)
    with pytest.raises(ValueRangeError, match=r"at \[700, 5\]"):
        encode_words(array.T.copy().T, "s4")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.5, 1e300])
@pytest.mark.parametrize("dt", INTEGERS, ids=str)
def test_no_integer(dt: DType, value: float) -> None:
    with pytest.raises(ValueRangeError, match=rf"at \[1\]: {dt} holds integers from"):
        dt.encode([0, value])


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("e4m3", 0.1, r"\.astype\(ml_dtypes\.float8_e4m3fn\) rounds it"),
        ("e5m2", 0.1, r"\.astype\(ml_dtypes\.float8_e5m2\) rounds it"),
        ("f16", 0.1, r"\.astype\(np\.float16\) rounds it"),
        ("f32", 0.1, r"\.astype\(np\.float32\) rounds it"),
        ("e4m3", 500.0, "magnitudes up to 448$"),
        ("e4m3", -np.inf, "magnitudes up to 448 and no infinity"),
        ("f16", 65520.0, "magnitudes up to 65504$"),
        ("tf32", 3.4028234e38, "magnitudes up to"),
        ("e2m1", np.nan, "e2m1 has no NaN"),
        ("e2m3", np.inf, "magnitudes up to 7.5 and no infinity"),
        ("e3m2", np.nan, "e3m2 has no NaN"),
        ("ue8m0", 0.0, r"powers of two from 2\*\*-127 to 2\*\*127"),
        ("ue8m0", 3.0, "powers of two"),
        ("ue8m0", -1.0, "has no sign"),
        ("ue4m3", -1.0, "has no sign"),
        ("ue4m3", -0.0, "has no sign"),
        ("ue4m3", 449.0, "magnitudes up to 448"),
    ],
)
def test_no_such_float(name: str, value: float, reason: str) -> None:
    with pytest.raises(ValueRangeError, match=reason) as caught:
        dtype(name).encode([[1.0, 1.0], [1.0, value]])
    assert f"{value} at [1, 1]" in str(caught.value)


def test_scalars_name_no_index() -> None:
    with pytest.raises(ValueRangeError, match=r"^0\.1: f16"):
        dtype("f16").encode(0.1)
    assert dtype("f16").encode(1.0).shape == ()


def test_exact_values_of_other_types() -> None:
    assert dtype("bf16").encode(np.float32([1.5])).tolist() == [0x3FC0]
    assert dtype("f32").encode(np.int64([2**60])).tolist() == [0x5D800000]
    assert dtype("f64").encode([True]).view(np.float64).tolist() == [1.0]
    assert dtype("e2m1").encode([6, -0.0]).tolist() == [7, 8]
    assert dtype("f16").encode(np.array([1, 2], ml_dtypes.int4)).tolist() == [
        0x3C00,
        0x4000,
    ]
    assert dtype("s8").encode(np.array([-8], ml_dtypes.int4)).tolist() == [0xF8]
    assert dtype("f16").encode(np.longdouble([0.5])).tolist() == [0x3800]
    assert dtype("f16").encode([]).shape == (0,)


@pytest.mark.parametrize(
    "inexact",
    [
        np.int64([2**53 + 1]),
        np.int64([2**63 - 1]),
        np.int64([-(2**63) + 1]),
        np.uint64([2**64 - 1]),
        np.longdouble([1]) / np.longdouble(3),
    ],
    ids=str,
)
def test_float64_is_no_way_to_round_either(inexact: Any) -> None:
    if inexact.itemsize > 8 or inexact.dtype.kind != "f":
        with pytest.raises(ValueRangeError, match="cannot hold it exactly"):
            dtype("f64").encode(inexact)


# Every type and every value, not each with each.
@repeats(together=1)
@pytest.mark.parametrize("dt", DTYPES.values(), ids=str)
@pytest.mark.parametrize(
    "nonsense",
    [
        np.array([1 + 2j]),
        np.array(["1"]),
        np.array([b"1"]),
        np.array([None]),
        np.array([10**30], object),
        np.array(["2020"], "M8[Y]"),
        np.zeros(2, [("a", "i4")]),
        np.array([1], getattr(ml_dtypes, "bcomplex32", np.complex64)),
    ],
    ids=lambda a: str(a.dtype),
)
def test_no_real_numbers(dt: DType, nonsense: Any) -> None:
    with pytest.raises(ValueRangeError, match=f"{dt} takes real numbers, not"):
        dt.encode(nonsense)


def test_stored_arrays_with_stray_bits() -> None:
    stray = np.array([[0x03, 0x41]], np.uint8)
    assert dtype("s4").encode(stray.view(ml_dtypes.int4)).tolist() == [[3, 1]]
    assert dtype("u4").encode(stray.view(ml_dtypes.uint4)).tolist() == [[3, 1]]
    for name in ("e2m1", "e2m3", "e3m2"):
        with pytest.raises(ValueRangeError, match=r"0x41 at \[0, 1\]"):
            dtype(name).encode(stray.view(dtype(name).storage))
    with pytest.raises(ValueRangeError, match="ue4m3 uses the low 7 bits"):
        dtype("ue4m3").encode(np.array([-1], ml_dtypes.float8_e4m3fn))
    with pytest.raises(ValueRangeError, match=r"2 at \[0\]: b1 holds integers"):
        dtype("b1").encode(np.uint8([2]))


@pytest.mark.parametrize("dt", DTYPES.values(), ids=str)
def test_patterns_too_wide(dt: DType) -> None:
    for wrong in (-1, dt.mask + 1):
        if wrong < 1 << 63:
            with pytest.raises(ValueRangeError, match=r"at \[1\]: .* has .* bits"):
                dt.decode(np.array([0, wrong]))
    with pytest.raises(ValueRangeError, match="raw bits are unsigned integers"):
        dt.decode([0.0])


def test_limits_are_integers() -> None:
    with pytest.raises(UnknownType, match="f16 is not an integer type"):
        _ = dtype("f16").limits


def test_nan_payloads_and_byte_order_survive() -> None:
    payload = np.array([0x7E01, 0xFE02], np.uint16)
    assert same(dtype("f16").encode(payload.view(np.float16)), payload)
    swapped = payload.view(np.float16).astype(">f2")
    assert dtype("f16").encode(swapped).dtype == np.uint16
    assert dtype("s32").encode(np.array([-2], ">i4")).tolist() == [0xFFFFFFFE]


# Arrays from elsewhere.


class OnlyDlpack:
    """An array library that speaks DLPack and nothing else."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class OnlyArray:
    """An array library that converts itself and nothing else."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self.array


class OnDevice:
    """An array that cannot be read from the host."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("can't convert cuda:0 tensor to numpy")


def test_foreign_arrays() -> None:
    half = np.float16([[1, 2]])
    assert same(as_array(OnlyDlpack(half)), half)
    assert same(as_array(OnlyArray(half)), half)
    assert dtype("f16").encode(OnlyDlpack(half)).tolist() == [[0x3C00, 0x4000]]
    with pytest.raises(Error, match="cannot read this OnDevice"):
        dtype("f16").encode(OnDevice())
    with pytest.raises(ShapeError, match="cannot read this list"):
        dtype("f16").encode([[1, 2], [3]])


@pytest.mark.torch
@pytest.mark.parametrize(
    "name", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"]
)
def test_torch_tensors(name: str) -> None:
    import torch

    ours = {str(t.storage): t for t in FLOATS if t.name != "ue4m3"}[name]
    tensor = torch.tensor([[0.5, 1, 2, 4]]).to(getattr(torch, name))
    assert ours.to_float64(ours.encode(tensor)).tolist() == [[0.5, 1, 2, 4]]
    assert ours.encode(tensor.T).shape == (4, 1)


@given(st.data())
def test_integers_come_back(data: st.DataObject) -> None:
    dt = data.draw(st.sampled_from(INTEGERS))
    values = data.draw(st.lists(st.integers(*dt.limits), max_size=20))
    assert dt.decode(dt.encode(values)).astype(np.int64).tolist() == values


@given(st.floats(width=64), st.sampled_from(FLOATS))
def test_encoding_is_exact_or_refused(value: float, dt: DType) -> None:
    with np.errstate(all="ignore"):
        stored = np.array([value]).astype(dt.storage)
    rounded = dt.to_float64(stored.view(dt.bits_dtype) & dt.mask)
    exact = rounded[0] == value or (np.isnan(value) and dt.has_nan)
    if exact and not (dt.kind == "scale" and np.signbit(value)):
        assert np.array_equal(
            dt.to_float64(dt.encode([value])), [value], equal_nan=True
        )
    elif not np.isnan(value):
        with pytest.raises(ValueRangeError, match=str(dt)):
            dt.encode([value])


@pytest.mark.parametrize(
    "prefix", ["s", "i", "int", "u", "uint", "f", "fp", "float", "bf"]
)
@pytest.mark.parametrize("bits", [1, 2, 4, 6, 8, 16, 32, 64, 128])
def test_a_hint_names_a_type_of_the_same_kind_and_size(prefix: str, bits: int) -> None:
    hint = nearest_type(f"{prefix}{bits}", DTYPES)
    for name in re.findall(r"mean (.*)\?", hint):
        for each in name.split(" or "):
            found = DTYPES[each]
            assert found.bits == bits
            assert found.is_integer == (prefix in ("s", "i", "int", "u", "uint"))
            assert each.startswith("u") == (prefix in ("u", "uint"))
    exists = {("s", 4), ("s", 8), ("s", 32), ("u", 4), ("u", 8), ("f", 4), ("f", 6)}
    exists |= {("f", 8), ("f", 16), ("f", 32), ("f", 64), ("b", 16)}
    kind = {"int": "s", "i": "s", "uint": "u", "bf": "b"}.get(prefix, prefix[0])
    assert bool(hint) == ((kind, bits) in exists)


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("uint4", "u4"),
        ("half", "f16"),
        ("double", "f64"),
        ("uint8_t", "u8"),
        ("e4m4", "e4m3"),
        ("fp6", "e2m3 or e3m2"),
        ("nvfp4", ""),
        ("complex", ""),
    ],
)
def test_hints_of_types(word: str, hint: str) -> None:
    assert nearest_type(word, DTYPES) == (f" (did you mean {hint}?)" if hint else "")
    said = f"(did you mean {hint}?)" if hint else f"no element type {word};"
    with pytest.raises(UnknownType, match=re.escape(said)):
        dtype(word)
