"""Makes the arguments of recorded launches.

Arguments are described by small dictionaries of plain values, which a recording keeps
as JSON, and made from a seed by integer arithmetic alone.  So every machine and every
version of NumPy makes the same bytes.

Types that NumPy lacks (bf16 and 8-bit floats) are unsigned integers here, which hold
their bits; :func:`elements` shows the values.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from math import prod
from typing import NamedTuple, TypedDict

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt.arguments import Pointer, pointer
from fragmenta.errors import ShapeError, ValueRangeError


class Spec(TypedDict, total=False):
    """The description of an argument; its kind says which fields it has."""

    kind: str
    type: str
    shape: Sequence[int]
    seed: int
    """In place of the seed of the launch."""
    scale: float
    low: float
    high: float
    ordered: bool
    data: Sequence[float]
    value: float
    start: int
    """The offset of a stored array in the data of the recording."""
    bytes: str
    """The bytes of a struct, in hexadecimal."""
    argument: int
    offset: int


class Into(NamedTuple):
    """A pointer into the array of another argument: its number, and a byte offset."""

    argument: int
    offset: int

    def tobytes(self) -> bytes:
        """The bytes that enter a digest."""
        return b"%d %d" % self


Array = NDArray[np.generic]
Argument = Array | np.generic | Into

TYPES: dict[str, type[np.generic]] = {
    "i8": np.int8,
    "u8": np.uint8,
    "i16": np.int16,
    "u16": np.uint16,
    "i32": np.int32,
    "u32": np.uint32,
    "i64": np.int64,
    "u64": np.uint64,
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
    "bool": np.bool_,
    "bf16": np.uint16,
    "e4m3": np.uint8,
    "e5m2": np.uint8,
}
"""The types of elements, and the NumPy types that hold them."""
_SMALL: dict[str, type[np.generic]] = {
    "bf16": ml_dtypes.bfloat16,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}
MOST_BYTES = 1 << 32
"""The most bytes that an array may have."""

FLOATS = (
    "0x0p+0",
    "-0x0p+0",
    "0x1p+0",
    "-0x1p+0",
    "0x1p-1",
    "inf",
    "-inf",
    "nan",
    "0x1p-149",
    "-0x1p-127",
    "0x1.fffffcp-127",
    "0x1p-126",
    "0x1.fffffep+127",
    "0x1.921fb6p+1",
    "-0x1.921fb6p+0",
    "0x1.8p+1",
    "0x1.4p+4",
    "-0x1.2p+6",
    "0x1p-24",
    "0x1.ffcp+15",
    "0x1p+16",
    "0x1.0002p+0",
    "0x1p+31",
    "-0x1p+63",
)


# ── descriptions ────────────────────────────────────────────────────────────


def normal(kind: str, *shape: int, scale: float = 1.0) -> Spec:
    """Values around zero, approximately normally distributed."""
    return {"kind": "normal", "type": kind, "shape": shape, "scale": scale}


def uniform(kind: str, *shape: int, low: float = 0.0, high: float = 1.0) -> Spec:
    """Uniformly distributed values."""
    return {"kind": "uniform", "type": kind, "shape": shape, "low": low, "high": high}


def wide(kind: str, *shape: int, low: int = -20, high: int = 20) -> Spec:
    """Magnitudes of every exponent from low to high, with both signs."""
    return {"kind": "wide", "type": kind, "shape": shape, "low": low, "high": high}


def special(kind: str, *shape: int) -> Spec:
    """Zeros, infinities, NaN, subnormals and boundaries among ordinary values."""
    return {"kind": "special", "type": kind, "shape": shape}


def integers(
    kind: str, *shape: int, low: int, high: int, ordered: bool = False
) -> Spec:
    """Whole numbers from low to below high."""
    return {
        "kind": "integers",
        "type": kind,
        "shape": shape,
        "low": low,
        "high": high,
        "ordered": ordered,
    }


def bits(kind: str, *shape: int) -> Spec:
    """Random patterns of bits."""
    return {"kind": "bits", "type": kind, "shape": shape}


def counting(kind: str, *shape: int) -> Spec:
    """The patterns of bits 0, 1, 2 and so on: all of them, for a small type."""
    return {"kind": "counting", "type": kind, "shape": shape}


def arange(kind: str, *shape: int) -> Spec:
    """The values 0, 1, 2 and so on."""
    return {"kind": "arange", "type": kind, "shape": shape}


def values(kind: str, data: Sequence[float]) -> Spec:
    """These values."""
    return {"kind": "values", "type": kind, "shape": [len(data)], "data": list(data)}


def full(kind: str, *shape: int, value: float = 0) -> Spec:
    """One value everywhere."""
    return {"kind": "full", "type": kind, "shape": shape, "value": value}


def output(kind: str, *shape: int) -> Spec:
    """An array to be written; its bytes are 0xa5, which marks what stays unwritten."""
    return {"kind": "output", "type": kind, "shape": shape}


def stored(array: Array) -> Spec:
    """An array whose bytes the recording keeps.

    >>> stored(np.zeros((2, 3), np.float16))
    {'kind': 'stored', 'type': 'f16', 'shape': [2, 3]}
    """
    names = {np.dtype(kind): name for name, kind in reversed(TYPES.items())}
    names |= {np.dtype(kind): name for name, kind in _SMALL.items()}
    name = names.get(array.dtype)
    if name is None:  # such as a struct: its bytes
        return {"kind": "stored", "type": "u8", "shape": [array.nbytes]}
    return {"kind": "stored", "type": name, "shape": list(array.shape)}


def scalar(kind: str, value: float) -> Spec:
    """A number by value."""
    return {"kind": "scalar", "type": kind, "value": value}


def struct(content: bytes) -> Spec:
    """A struct by value, as the bytes that a C compiler lays out."""
    return {"kind": "struct", "bytes": content.hex()}


def into(argument: int, offset: int = 0) -> Spec:
    """A pointer into the array of another argument."""
    return {"kind": "pointer", "argument": argument, "offset": offset}


# ── arrays ──────────────────────────────────────────────────────────────────


def make(spec: Spec, seed: int, data: bytes = b"") -> Argument:
    """The argument of a description and a seed.

    Scalars are NumPy scalars; a struct is a ``numpy.void``; ``data`` has the bytes of
    arrays that are stored.

    >>> make(full("bf16", 2, value=1.5), 1).tolist()
    [16320, 16320]
    """
    if spec["kind"] == "struct":
        return np.void(bytes.fromhex(spec["bytes"]))
    if spec["kind"] == "pointer":
        return Into(spec["argument"], spec["offset"])
    if spec["kind"] == "scalar":
        found: np.generic = _exactly([spec["value"]], spec["type"])[0]
        return found
    shape = tuple(spec["shape"])
    if (size := prod(shape) * np.dtype(TYPES[spec["type"]]).itemsize) > MOST_BYTES:
        raise ShapeError(f"an array has at most {MOST_BYTES:,} bytes; given {size:,}")
    return _flat(spec, spec.get("seed", seed), prod(shape), data).reshape(shape)


def _flat(spec: Spec, seed: int, count: int, data: bytes) -> Array:
    name, kind = spec["type"], np.dtype(TYPES[spec["type"]])
    unsigned = np.dtype(f"u{kind.itemsize}")
    match spec["kind"]:
        case "stored":
            start = spec["start"]
            part = np.frombuffer(data[start : start + count * kind.itemsize], kind)
            return part.copy()
        case "output":
            return np.full(count * kind.itemsize, 0xA5, np.uint8).view(kind)
        case "full":
            return np.full(count, _exactly([spec["value"]], name)[0])
        case "values":
            return _exactly(spec["data"], name)
        case "counting":
            return np.arange(count).astype(unsigned).view(kind)
        case "arange":
            return _counted(count, name)
        case "bits" if kind == np.bool_:
            return (random_words(seed, count) & np.uint64(1)).astype(kind)
        case "bits":
            return random_words(seed, count).astype(unsigned).view(kind)
        case "integers":
            return _integers(random_words(seed, count), spec).astype(kind)
    if name in ("e4m3", "e5m2"):
        return _small_floats(random_words(seed, count))
    return as_type(_reals(random_words(seed, count), spec), name)


def elements(array: Array, name: str) -> Array:
    """The values of an array whose type NumPy may lack.

    >>> elements(np.array([16320], np.uint16), "bf16").tolist()
    [1.5]
    """
    return array.view(_SMALL[name]) if name in _SMALL else array


def random_words(seed: int, count: int) -> NDArray[np.uint64]:
    """The splitmix64 generator: a hash of seed and place, so it needs no state."""
    golden = 0x9E3779B97F4A7C15
    start = np.uint64(seed * 0xD1342543DE82EF95 % 2**64)
    word = (np.arange(1, count + 1, dtype=np.uint64) * np.uint64(golden)) ^ start
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


def seed_of(*names: object) -> int:
    """A seed that follows from names alone.

    >>> seed_of("wmma", "wmma_f16")
    3548752626
    """
    return zlib.crc32(" ".join(map(str, names)).encode())


def as_type(real: NDArray[np.float64], name: str) -> Array:
    """Real numbers rounded to a type; bf16 by its upper 16 bits, to nearest even."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        if name != "bf16":
            return real.astype(TYPES[name])
        word = real.astype(np.float32).view(np.uint32).astype(np.uint64)
    is_nan = (word & 0x7FFFFFFF) > 0x7F800000
    rounded = (word + 0x7FFF + ((word >> 16) & 1)) >> 16
    return np.where(is_nan, word >> 16 | 0x40, rounded).astype(np.uint16)


def _exactly(given: Sequence[float], name: str) -> Array:
    """Numbers in a type, which must be large enough for them."""
    kind = TYPES[name]
    if name not in _SMALL and not issubclass(kind, np.floating):
        try:
            return np.array(given, kind)
        except (OverflowError, ValueError, TypeError) as error:
            raise ValueRangeError(f"{given} do not fit {name}: {error}") from None
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        real = np.array(given, np.float64)
        found = real.astype(_SMALL[name]) if name in _SMALL else real.astype(kind)
        wrong = np.isfinite(found.astype(np.float64)) != np.isfinite(real)
    if name == "e4m3":  # it has NaN, but no infinity
        wrong |= np.isinf(real)
    if wrong.any():
        raise ValueRangeError(f"{name} cannot hold {real[wrong][0]:g}")
    return found.view(kind)


def _counted(count: int, name: str) -> Array:
    kind = np.dtype(TYPES[name])
    if count and kind.kind in "iub" and name not in _SMALL:
        most = 1 if kind.kind == "b" else int(np.iinfo(kind).max)
        if count - 1 > most:
            raise ValueRangeError(f"{name} counts to {most:,}, not to {count - 1:,}")
    elif count:
        _exactly([count - 1], name)
    found = np.arange(count)
    return (
        found.astype(_SMALL[name]).view(kind) if name in _SMALL else found.astype(kind)
    )


def _integers(word: NDArray[np.uint64], spec: Spec) -> NDArray[np.int64]:
    low, high = int(spec["low"]), int(spec["high"])
    found: NDArray[np.int64] = (word % np.uint64(high - low)).astype(np.int64) + low
    return np.sort(found) if spec["ordered"] else found


def _small_floats(word: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """Bits of an 8-bit float with either sign, finite and not large."""
    byte = (word % np.uint64(0x60)) | (
        word >> np.uint64(40) & np.uint64(1)
    ) << np.uint64(7)
    return byte.astype(np.uint8)


def _bell(word: NDArray[np.uint64]) -> NDArray[np.float64]:
    """The sum of four 16-bit numbers, centred, with a deviation near one."""
    parts = np.zeros(word.shape, np.int64)
    for shift in (0, 16, 32, 48):
        parts += (word >> np.uint64(shift) & np.uint64(0xFFFF)).astype(np.int64)
    return np.asarray((parts - 131070) * (2.0**-15 * 0.875), np.float64)


def _reals(word: NDArray[np.uint64], spec: Spec) -> NDArray[np.float64]:
    if spec["kind"] == "normal":
        return _bell(word) * float(spec["scale"])
    unit = (word >> np.uint64(11)).astype(np.float64) * 2.0**-53
    if spec["kind"] == "uniform":
        return float(spec["low"]) + unit * float(spec["high"] - spec["low"])
    if spec["kind"] == "wide":
        span = spec["high"] - spec["low"] + 1
        exponent = spec["low"] + (word % np.uint64(span)).astype(np.int64)
        sign = np.where(word & np.uint64(1 << 10), -1.0, 1.0)
        return np.asarray(np.ldexp(sign * (1.0 + unit), exponent.astype(np.int32)))
    table = np.array([float.fromhex(text) for text in FLOATS])
    chosen = table[(word >> np.uint64(20)) % np.uint64(len(table))]
    return np.where(word % np.uint64(3) == 0, _bell(word) * 8, chosen)


def for_kernel(arguments: Sequence[Argument]) -> list[Array | bytes | Pointer]:
    """The arguments as a kernel takes them: scalars are their bytes."""
    given: list[Array | bytes | Pointer] = []
    for each in arguments:
        if isinstance(each, Into):
            given.append(pointer(arguments[each.argument], each.offset))
        else:
            given.append(each if isinstance(each, np.ndarray) else each.tobytes())
    return given
