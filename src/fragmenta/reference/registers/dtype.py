"""Element types: their bits, their values, and how NumPy stores them.

There are sixteen element types, two types of block scales and three widths of raw
bits.  Each type has a name, a width, and a NumPy type in which its matrices are
stored.  A type converts between stored values, raw bits and exact values:

    encode   stored values -> raw bits, one element per item; never rounds
    decode   raw bits -> stored values
    split    raw bits -> sign, significand, exponent

>>> dtype("s4").encode([-8, -1, 0, 7, 1, 2, 3, 4])
array([ 8, 15,  0,  7,  1,  2,  3,  4], dtype=uint8)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from functools import cache
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fragmenta.base.arrays.checks import Array, as_array, is_real
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import (
    UnknownType,
    ValueRangeError,
    nearest,
    one_of,
)

Kind: TypeAlias = Literal["signed", "unsigned", "bit", "float", "scale", "raw"]

# Elements handled at once: few enough that a block and its temporaries stay in the
# L2 cache, enough that the cost of a NumPy call does not matter.
_BLOCK = 1 << 17

# The hardware ignores the low 13 bits of a tf32 register: it reads only the sign,
# the exponent and ten fraction bits.
_TF32_IGNORED = 13


class SplitBits(NamedTuple):
    """The exact value of each element as sign, significand and exponent.

    A finite value is ``(-1)**sign * significand * 2**exponent``.  Significands
    are not normalised: a subnormal keeps the exponent of its field.  Where
    ``special`` is 1 (infinity) or 2 (NaN), significand and exponent are 0.

    >>> parts = dtype("e4m3").split([0x01, 0xB8, 0x7F])
    >>> parts.significand, parts.exponent
    (array([1, 8, 0], dtype=uint32), array([-9, -3,  0], dtype=int32))
    >>> parts.sign, parts.special
    (array([0, 1, 0], dtype=uint8), array([0, 0, 2], dtype=uint8))
    """

    sign: NDArray[np.uint8]
    significand: Array
    exponent: NDArray[np.int32]
    special: NDArray[np.uint8]


@dataclass(frozen=True, slots=True, repr=False)
class DType:
    """One element type; look one up with :func:`dtype`.

    >>> e5m2 = dtype("e5m2")
    >>> e5m2.bits, e5m2.kind, e5m2.exponent_bits, e5m2.fraction_bits, e5m2.bias
    (8, 'float', 5, 2, 15)
    >>> e5m2.has_infinity, e5m2.has_nan
    (True, True)
    >>> e5m2.storage
    dtype(float8_e5m2)
    """

    name: str
    bits: int = field(compare=False)
    storage: np.dtype[np.generic] = field(compare=False)
    kind: Kind = field(compare=False)
    exponent_bits: int = field(default=0, compare=False)
    fraction_bits: int = field(default=0, compare=False)
    has_infinity: bool = field(default=False, compare=False)
    has_nan: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"dtype({self.name!r})"

    @property
    def bias(self) -> int:
        """The exponent field minus the exponent.

        >>> dtype("e4m3").bias, dtype("ue8m0").bias
        (7, 127)
        """
        return (1 << self.exponent_bits >> 1) - 1 if self.exponent_bits else 0

    @property
    def is_integer(self) -> bool:
        """Whether the values are integers (single bits and raw bits included).

        >>> dtype("s4").is_integer, dtype("ue8m0").is_integer
        (True, False)
        """
        return not self.exponent_bits

    @property
    def bits_dtype(self) -> np.dtype[np.generic]:
        """The unsigned NumPy type that holds one element's raw bits.

        >>> dtype("e2m1").bits_dtype, dtype("bf16").bits_dtype
        (dtype('uint8'), dtype('uint16'))
        """
        return unsigned_type(self.bits)

    @property
    def mask(self) -> int:
        """Ones in every bit that a raw pattern may have set.

        >>> dtype("s4").mask, dtype("ue4m3").mask
        (15, 127)
        """
        return (1 << (7 if self.name == "ue4m3" else self.bits)) - 1

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the greatest value of an integer type.

        >>> dtype("s4").limits, dtype("b1").limits
        ((-8, 7), (0, 1))
        """
        if not self.is_integer:
            raise UnknownType(
                f"{self} is not an integer type; only integer types have limits"
            )
        half = 1 << self.bits >> 1
        return (-half, half - 1) if self.kind == "signed" else (0, self.mask)

    def encode(self, array: ArrayLike) -> Array:
        """Raw bits, one element per item, the value in the low bits.

        An array of the storage type is reinterpreted, without a copy where that
        is possible; NaN payloads and signed zeros are kept.  The storage type of
        ``tf32`` is float32; the low 13 bits, which the hardware ignores, are kept
        too.  Raw types reinterpret every array of their item size.  Any other
        array must hold values that the type can represent exactly.

        >>> dtype("f16").encode([1.0, -0.0])
        array([15360, 32768], dtype=uint16)
        >>> dtype("s4").encode(np.array([9], np.int8))
        Traceback (most recent call last):
        fragmenta.errors.ValueRangeError: 9 at [0]: s4 holds integers from -8 to 7
        """
        given = as_array(array)
        if given.dtype == self.storage and self.kind != "bit":
            return self._reinterpret(given)
        _require_numbers(given, self)
        if self.kind == "raw" and given.itemsize * 8 == self.bits:
            return given.view(self.storage)
        if self.is_integer and given.dtype.kind in "biu" and self._spans(given):
            return self._narrow(given)
        return self._convert(given)

    def decode(self, bits: ArrayLike) -> Array:
        """Stored values of raw bits: the inverse of :meth:`encode`.

        >>> dtype("s4").decode([8, 15, 7])
        array([-8, -1, 7], dtype=int4)
        """
        return self._patterns(bits).view(self.storage)

    def split(self, bits: ArrayLike) -> SplitBits:
        """Sign, significand and exponent of raw bits, exactly.

        >>> parts = dtype("f16").split(dtype("f16").encode([1.5, -2.0**-24]))
        >>> parts.sign, parts.significand, parts.exponent
        (array([0, 1], dtype=uint8), array([1536,    1], dtype=uint32), \
array([-10, -24], dtype=int32))
        """
        self._require_value()
        patterns = self._patterns(bits)
        if self.is_integer:
            return self._split_integer(patterns)
        return self._split_float(patterns)

    def to_float64(self, bits: ArrayLike) -> NDArray[np.float64]:
        """The float64 of each raw pattern, exactly.

        >>> dtype("ue8m0").to_float64([127, 130, 255])
        array([ 1.,  8., nan])
        """
        self._require_value()
        patterns = self._patterns(bits)
        if self.name == "tf32":
            patterns = patterns >> _TF32_IGNORED << _TF32_IGNORED
        with np.errstate(invalid="ignore"):  # no warning about signalling NaNs
            return patterns.view(self.storage).astype(np.float64)

    def _require_value(self) -> None:
        if self.kind == "raw":
            same = (t.name for t in DTYPES.values() if t.bits == self.bits)
            raise UnknownType(
                f"{self} is raw bits and has no value; the types with values of the "
                "same width are "
                f"{one_of((name for name in same if name != self.name), 'and')}"
            )

    def _patterns(self, bits: ArrayLike) -> Array:
        """Raw bits as ``bits_dtype``; a pattern that is too wide is refused."""
        used = self.mask.bit_length()
        checked = within(as_array(bits), self.mask, f"{self} has {used} bits")
        return checked.astype(self.bits_dtype, copy=False)

    def _reinterpret(self, stored: Array) -> Array:
        bits = stored.view(self.bits_dtype)
        full = self.mask == np.iinfo(bits.dtype).max
        if full or not bits.size or bits.max() <= self.mask:
            return bits
        if self.is_integer:
            return bits & self.mask  # the upper nibble of ml_dtypes may hold anything
        allowed = f"{self} uses the low {self.mask.bit_length()} bits of a byte"
        return within(bits, self.mask, allowed)

    def _spans(self, integers: Array) -> bool:
        """Whether every integer lies within the limits."""
        low, high = self.limits
        info = np.iinfo(np.uint8 if integers.dtype == bool else integers.dtype)
        if not integers.size or (low <= info.min and info.max <= high):
            return True
        return low <= int(integers.min()) and int(integers.max()) <= high

    def _narrow(self, integers: Array) -> Array:
        """Two's complement in the low bits of integers known to fit."""
        same_size = integers.itemsize == self.bits_dtype.itemsize
        bits = (
            integers.view(self.bits_dtype)
            if same_size
            else integers.astype(self.bits_dtype)
        )
        padded = self.bits < 8 * self.bits_dtype.itemsize
        return bits & self.mask if padded and self.kind == "signed" else bits

    def _convert(self, given: Array) -> Array:
        """Raw bits of any numbers, refusing the first that is not exact."""
        flat = given.reshape(-1)
        out = np.empty(flat.shape, self.bits_dtype)
        convert = self._exact_integers if self.is_integer else self._exact_floats
        for block in blocks(flat.size):
            out[block], exact = convert(flat[block])
            if not exact.all():
                raise self._refusal(given, block.start + int(exact.argmin()))
        return out.reshape(given.shape)

    def _exact_integers(self, numbers: Array) -> tuple[Array, Array]:
        wide, exact = _float64(numbers)
        low, high = self.limits
        with np.errstate(invalid="ignore"):  # a signalling NaN is not a whole number
            exact &= (wide >= low) & (wide <= high) & (np.trunc(wide) == wide)
        whole = np.where(exact, wide, 0).astype(np.int64)
        return (whole & self.mask).astype(self.bits_dtype), exact

    def _exact_floats(self, numbers: Array) -> tuple[Array, Array]:
        wide, exact = _float64(numbers)
        with np.errstate(all="ignore"):
            bits = wide.astype(self.storage).view(self.bits_dtype)
        nan = np.isnan(wide)
        if self.kind == "scale":  # it has no sign; the sign of a NaN is dropped
            exact &= nan | ~np.signbit(wide)
            bits = bits & self.mask
        value = self.to_float64(bits)
        exact &= (value == wide) | (nan & self.has_nan)
        return bits, exact

    def _refusal(self, given: Array, position: int) -> ValueRangeError:
        value = given.reshape(-1)[position]
        index = [int(i) for i in np.unravel_index(position, given.shape)]
        what = f"{value} at {index}" if index else f"{value}"
        if self.is_integer:
            low, high = self.limits
            return ValueRangeError(
                f"{what}: {self} holds integers from {low} to {high}"
            )
        return ValueRangeError(f"{what}: {self._why_not(float(value))}")

    def _why_not(self, value: float) -> str:
        """Why this floating-point type cannot hold a number."""
        if np.isnan(value):
            return f"{self} has no NaN"
        if self.kind == "scale" and np.signbit(value):
            return f"{self} has no sign"
        if self.name == "ue8m0":
            return f"{self} holds powers of two from 2**-127 to 2**127"
        most = largest(self)
        if abs(value) > most:
            absent = (
                "" if self.has_infinity or np.isfinite(value) else " and no infinity"
            )
            return f"{self} holds magnitudes up to {most:g}{absent}"
        module = self.storage.type.__module__.replace("numpy", "np")
        how = "is accepted as it is" if self.name == "tf32" else "rounds it"
        return (
            f"{self} cannot hold it exactly; .astype({module}.{self.storage.name}) "
            f"{how}"
        )

    def _split_integer(self, patterns: Array) -> SplitBits:
        values = patterns.view(self.storage).astype(np.int64)
        zeros = np.zeros(values.shape, np.uint8)
        return SplitBits(
            sign=(values < 0).astype(np.uint8),
            significand=np.abs(values).astype(np.uint32),
            exponent=zeros.astype(np.int32),
            special=zeros,
        )

    def _split_float(self, patterns: Array) -> SplitBits:
        raw: Array = patterns.astype(np.uint64 if self.bits > 32 else np.uint32)
        if self.name == "tf32":
            raw >>= _TF32_IGNORED
        width, top = self.fraction_bits, (1 << self.exponent_bits) - 1
        ones = (1 << width) - 1
        fraction = raw & ones
        exponent = (raw >> width & top).astype(np.int32)
        special = np.zeros(raw.shape, np.uint8)
        if self.has_infinity:
            special[...] = np.where(exponent == top, 1 + (fraction != 0), 0)
        elif self.has_nan:
            special[...] = np.where((exponent == top) & (fraction == ones), 2, 0)
        # A type without fraction bits has neither zero nor subnormals.
        normal = (exponent > 0) | (width == 0)
        significand = fraction | normal.astype(raw.dtype) << width
        return SplitBits(
            sign=(raw >> (width + self.exponent_bits)).astype(np.uint8),
            significand=np.where(special, 0, significand).astype(raw.dtype),
            exponent=np.where(
                special, 0, exponent + ~normal - (self.bias + width)
            ).astype(np.int32),
            special=special,
        )


def _integer(name: str, bits: int, storage: DTypeLike, kind: Kind) -> DType:
    return DType(name, bits, np.dtype(storage), kind)


def _float(
    name: str,
    exponent_bits: int,
    fraction_bits: int,
    storage: DTypeLike,
    specials: Literal["", "NaN", "inf NaN"] = "inf NaN",
    kind: Kind = "float",
    bits: int = 0,
) -> DType:
    return DType(
        name,
        bits or 1 + exponent_bits + fraction_bits,
        np.dtype(storage),
        kind,
        exponent_bits,
        fraction_bits,
        has_infinity="inf" in specials,
        has_nan="NaN" in specials,
    )


DTYPES: Mapping[str, DType] = MappingProxyType(
    {
        entry.name: entry
        for entry in (
            _integer("b1", 1, np.uint8, "bit"),  # one 0 or 1 per byte
            _integer("s4", 4, ml_dtypes.int4, "signed"),
            _integer("u4", 4, ml_dtypes.uint4, "unsigned"),
            _integer("s8", 8, np.int8, "signed"),
            _integer("u8", 8, np.uint8, "unsigned"),
            _integer("s32", 32, np.int32, "signed"),
            #      name  exponent, fraction bits
            _float("f16", 5, 10, np.float16),
            _float("bf16", 8, 7, ml_dtypes.bfloat16),
            _float("tf32", 8, 10, np.float32, bits=32),  # the upper 19 of 32
            _float("f32", 8, 23, np.float32),
            _float("f64", 11, 52, np.float64),
            _float("e4m3", 4, 3, ml_dtypes.float8_e4m3fn, "NaN"),
            _float("e5m2", 5, 2, ml_dtypes.float8_e5m2),
            _float("e2m3", 2, 3, ml_dtypes.float6_e2m3fn, ""),
            _float("e3m2", 3, 2, ml_dtypes.float6_e3m2fn, ""),
            _float("e2m1", 2, 1, ml_dtypes.float4_e2m1fn, ""),
            _float("ue8m0", 8, 0, ml_dtypes.float8_e8m0fnu, "NaN", "scale", 8),
            _float("ue4m3", 4, 3, ml_dtypes.float8_e4m3fn, "NaN", "scale"),
            # Raw bits, which ldmatrix, stmatrix and movmatrix move.
            _integer("b8", 8, np.uint8, "raw"),
            _integer("b16", 16, np.uint16, "raw"),
            _integer("b32", 32, np.uint32, "raw"),
        )
    }
)
"""Every element type by name.

>>> DTYPES["tf32"].storage
dtype('float32')
"""


def dtype(name: str | DType) -> DType:
    """The element type of a name, written as in PTX, with or without its dot.

    >>> dtype(".bf16").bits
    16
    >>> dtype("e4m4")
    Traceback (most recent call last):
    fragmenta.errors.UnknownType: no element type e4m4 (did you mean e4m3?); \
there are b1, s4, u4, s8, u8, s32, f16, bf16, tf32, f32, f64, e4m3, e5m2, e2m3, \
e3m2, e2m1, ue8m0, ue4m3, b8, b16 and b32
    """
    if isinstance(name, DType):
        return name
    key = str(name).strip().lower().removeprefix(".")
    if key in DTYPES:
        return DTYPES[key]
    raise UnknownType(
        f"no element type {key or 'without a name'}{nearest_type(key, DTYPES)}; "
        f"there are {one_of(DTYPES, 'and')}"
    )


# How C, NumPy and PTX begin the names of types of one kind.
_KINDS = {
    "s": ("s", "i", "int"),
    "u": ("u", "uint"),
    "f": ("f", "fp", "float"),
    "bf": ("bf", "bfloat"),
    "tf": ("tf", "tfloat"),
}
_KIND = {word: kind for kind, words in _KINDS.items() for word in words}
_BITS = (1, 2, 4, 6, 8, 16, 32, 64, 128)
_WORDS = {"double": "f64", "float": "f32", "single": "f32", "half": "f16", "int": "s32"}


def nearest_type(word: str, allowed: Iterable[str]) -> str:
    """A hint as of :func:`nearest`, but a type of another kind or size is not near.

    >>> nearest_type("uint4", DTYPES), nearest_type("e4m4", DTYPES)
    (' (did you mean u4?)', ' (did you mean e4m3?)')
    >>> nearest_type("fp8", ["e4m3", "e5m2", "f64"]), nearest_type("int16", DTYPES)
    (' (did you mean e4m3 or e5m2?)', '')
    """
    known, meant = list(allowed), _kind_and_bits(word)
    if meant is None:
        return nearest(word, known, cutoff=0.7)  # names are short, and differ little
    kind, bits = meant
    if bits not in _BITS:  # no type has so many: a slip of the finger
        alike = ((each, _kind_and_bits(each)) for each in known)
        return nearest(word, [each for each, says in alike if says and says[0] == kind])
    near = [each for each in known if _kind_and_bits(each) == meant]
    return f" (did you mean {one_of(near)}?)" if near else ""


def _kind_and_bits(word: str) -> tuple[str, int] | None:
    """What a name of a type says, if it says that; fp8 is e4m3 as well as e5m2."""
    name = _WORDS.get(word, word).rpartition("::")[2].removesuffix("_t")
    if name.startswith("e") and name in DTYPES:
        return "f", DTYPES[name].bits
    found = re.fullmatch(r"([a-z]+)(\d{1,3})", name, re.ASCII)
    if found is None or found[1] not in _KIND:
        return None
    return _KIND[found[1]], int(found[2])


@cache
def unsigned_type(bits: int) -> np.dtype[np.generic]:
    """The smallest unsigned NumPy type with at least this many bits.

    >>> unsigned_type(4), unsigned_type(20)
    (dtype('uint8'), dtype('uint32'))
    """
    return np.dtype(f"u{max(1, 1 << (bits - 1).bit_length() >> 3)}")


def blocks(size: int) -> Iterator[slice]:
    """Slices that cover ``size`` elements, each small enough to stay in the cache.

    >>> list(blocks(200_000))
    [slice(0, 131072, None), slice(131072, 200000, None)]
    """
    for start in range(0, size, _BLOCK):
        yield slice(start, min(start + _BLOCK, size))


def within(bits: Array, mask: int, allowed: str) -> Array:
    """The same raw bits; a pattern with a bit outside the mask is refused.

    >>> within(np.array([3, 16]), 15, "s4 has 4 bits")
    Traceback (most recent call last):
    fragmenta.errors.ValueRangeError: pattern 0x10 at [1]: s4 has 4 bits, 0 to 0xf
    """
    if not bits.size:
        return bits
    if bits.dtype.kind not in "biu":
        raise ValueRangeError(
            f"raw bits are unsigned integers, not {bits.dtype}; "
            "encode() converts values to raw bits"
        )
    unsigned = bits.dtype.kind != "i"
    full = bits.dtype.kind == "u" and np.iinfo(bits.dtype).max <= mask
    if full or ((unsigned or bits.min() >= 0) and bits.max() <= mask):
        return bits
    flat = bits.reshape(-1)
    position = int(((flat < 0) | (flat > mask)).argmax())
    index = [int(i) for i in np.unravel_index(position, bits.shape)]
    raise ValueRangeError(
        f"pattern {int(flat[position]):#x} at {index}: {allowed}, 0 to {mask:#x}"
    )


def _require_numbers(given: Array, dt: DType) -> None:
    if not is_real(given):
        raise ValueRangeError(
            f"{dt} takes real numbers, not {given.dtype}; "
            f"a matrix of it is stored as {dt.storage.name}"
        )
    # A float of another width has no obvious raw bits: 1.0 as a float32 is not 16 bits.
    other_size = given.itemsize * 8 != dt.bits
    if dt.kind == "raw" and other_size and given.dtype.kind not in "biu":
        raise ValueRangeError(
            f"{dt} takes integers or items of {dt.bits} bits, not {given.dtype}"
        )


def _float64(numbers: Array) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Each number as float64, and whether that is exactly the number."""
    with np.errstate(all="ignore"):
        wide = numbers.astype(np.float64)
    exact = np.ones(wide.shape, np.bool_)
    if numbers.itemsize > 8:  # long double
        exact = (wide == numbers) | np.isnan(wide)
    elif numbers.dtype.kind in "iu" and numbers.itemsize == 8:
        # A number that was rounded up beyond the range must not be cast back: that
        # is undefined.
        exact = wide < float(np.iinfo(numbers.dtype).max)
        exact &= np.where(exact, wide, 0).astype(numbers.dtype) == numbers
    return wide, exact


def largest(dt: DType) -> float:
    """The greatest finite value of a floating-point type.

    >>> largest(dtype("e2m1")), largest(dtype("e4m3"))
    (6.0, 448.0)
    """
    if dt.kind == "scale" or not dt.has_infinity:
        patterns = np.arange(dt.mask + 1, dtype=np.uint8)
    else:
        infinity = ((1 << dt.exponent_bits) - 1) << dt.fraction_bits
        shift = _TF32_IGNORED if dt.name == "tf32" else 0
        patterns = np.array([(infinity - 1) << shift], dt.bits_dtype)
    return float(np.nanmax(dt.to_float64(patterns)))
