"""What does a launch of the corpus start from?

Arguments are described by small dictionaries of plain values, which a recording keeps
as JSON, and made from a seed by integer arithmetic alone.  So every machine and every
version of NumPy makes the same bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Spec = dict[str, Any]
Argument = NDArray[Any] | np.generic

# NumPy has no bf16 and no 8-bit floats: their bits are kept in unsigned integers.
TYPES: dict[str, type[np.generic]] = {
    "i8": np.int8, "u8": np.uint8, "i16": np.int16, "u16": np.uint16,
    "i32": np.int32, "u32": np.uint32, "i64": np.int64, "u64": np.uint64,
    "f16": np.float16, "f32": np.float32, "f64": np.float64, "bool": np.bool_,
    "bf16": np.uint16, "e4m3": np.uint8, "e5m2": np.uint8,
}  # fmt: skip

FLOATS = (
    "0x0p+0", "-0x0p+0", "0x1p+0", "-0x1p+0", "0x1p-1", "inf", "-inf", "nan",
    "0x1p-149", "-0x1p-127", "0x1.fffffcp-127", "0x1p-126", "0x1.fffffep+127",
    "0x1.921fb6p+1", "-0x1.921fb6p+0", "0x1.8p+1", "0x1.4p+4", "-0x1.2p+6",
    "0x1p-24", "0x1.ffcp+15", "0x1p+16", "0x1.0002p+0", "0x1p+31", "-0x1p+63",
)  # fmt: skip


# ── descriptions ────────────────────────────────────────────────────────────


def normal(kind: str, *shape: int, scale: float = 1.0) -> Spec:
    """Values around zero whose distribution looks like a bell."""
    return {"kind": "normal", "type": kind, "shape": shape, "scale": scale}


def uniform(kind: str, *shape: int, low: float = 0.0, high: float = 1.0) -> Spec:
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
    spec = {"kind": "integers", "type": kind, "shape": shape, "low": low, "high": high}
    return {**spec, "ordered": ordered}


def bits(kind: str, *shape: int) -> Spec:
    """Every pattern of bits."""
    return {"kind": "bits", "type": kind, "shape": shape}


def counting(kind: str, *shape: int) -> Spec:
    """The patterns of bits 0, 1, 2 and so on: all of them, for a small type."""
    return {"kind": "counting", "type": kind, "shape": shape}


def values(kind: str, data: Sequence[float]) -> Spec:
    return {"kind": "values", "type": kind, "shape": [len(data)], "data": list(data)}


def full(kind: str, *shape: int, value: float = 0) -> Spec:
    return {"kind": "full", "type": kind, "shape": shape, "value": value}


def output(kind: str, *shape: int) -> Spec:
    """An array to be written: bytes of 0xa5, so that what stays unwritten shows."""
    return {"kind": "output", "type": kind, "shape": shape}


def scalar(kind: str, value: float) -> Spec:
    return {"kind": "scalar", "type": kind, "value": value}


def struct(content: bytes) -> Spec:
    """A struct by value, as the bytes that a C compiler lays out."""
    return {"kind": "struct", "bytes": content.hex()}


# ── arrays ──────────────────────────────────────────────────────────────────


def make(spec: Spec, seed: int) -> Argument:
    """The argument that a description and a seed stand for.

    Scalars are NumPy scalars; a struct is a ``numpy.void``.
    """
    if spec["kind"] == "struct":
        return np.void(bytes.fromhex(spec["bytes"]))
    name, kind = spec["type"], TYPES[spec["type"]]
    if spec["kind"] == "scalar":
        return kind(spec["value"])
    shape = tuple(spec["shape"])
    count = int(np.prod(shape))
    flat: NDArray[Any]
    if spec["kind"] == "output":
        flat = np.full(count * np.dtype(kind).itemsize, 0xA5, np.uint8).view(kind)
    elif spec["kind"] in ("full", "values"):
        flat = np.array(spec.get("data", [spec.get("value")] * count), kind)
    elif spec["kind"] == "counting":
        flat = np.arange(count).astype(f"u{np.dtype(kind).itemsize}").view(kind)
    elif spec["kind"] == "bits":
        flat = (
            random_words(seed, count).astype(f"u{np.dtype(kind).itemsize}").view(kind)
        )
    elif spec["kind"] == "integers":
        flat = _integers(random_words(seed, count), spec).astype(kind)
    elif name in ("e4m3", "e5m2"):
        flat = _small_floats(random_words(seed, count))
    else:
        flat = as_type(_reals(random_words(seed, count), spec), name)
    return flat.reshape(shape)


def random_words(seed: int, count: int) -> NDArray[np.uint64]:
    """The splitmix64 generator: a hash of seed and place, so it needs no state."""
    golden = 0x9E3779B97F4A7C15
    start = np.uint64(seed * 0xD1342543DE82EF95 % 2**64)
    word = (np.arange(1, count + 1, dtype=np.uint64) * np.uint64(golden)) ^ start
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


def seed_of(*names: object) -> int:
    """A seed that follows from names alone."""
    return zlib.crc32(" ".join(map(str, names)).encode())


def as_type(real: NDArray[np.float64], name: str) -> NDArray[Any]:
    """Real numbers rounded to a type; bf16 by its upper 16 bits, to nearest even."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        if name != "bf16":
            return real.astype(TYPES[name])
        word = real.astype(np.float32).view(np.uint32).astype(np.uint64)
    is_nan = (word & 0x7FFFFFFF) > 0x7F800000
    rounded = (word + 0x7FFF + ((word >> 16) & 1)) >> 16
    return np.where(is_nan, word >> 16 | 0x40, rounded).astype(np.uint16)


def _integers(word: NDArray[np.uint64], spec: Spec) -> NDArray[np.int64]:
    span = np.uint64(spec["high"] - spec["low"])
    found: NDArray[np.int64] = (word % span).astype(np.int64) + spec["low"]
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
    if spec["kind"] == "special":
        table = np.array([float.fromhex(text) for text in FLOATS])
        chosen = table[(word >> np.uint64(20)) % np.uint64(len(table))]
        return np.where(word % np.uint64(3) == 0, _bell(word) * 8, chosen)
    raise ValueError(f"no such kind of argument: {spec['kind']}")
