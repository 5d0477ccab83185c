"""Files of the safetensors format as NumPy arrays.

A file has eight bytes with the length of the header (little-endian), the header (JSON:
the type, the shape and the first and last byte of every tensor), then the bytes of the
tensors.  They follow one another without a gap and without an overlap, up to the end of
the file.

    SafeArrays    a file that is read: its names, and its arrays, mapped into memory
    read_header   what a header says, checked against the size of the file
    write_header  the header of tensors that are to be written

A file that breaks a rule of the format is refused before any tensor is read.
:mod:`fragmenta.hopper.torch.safetensors` has the same files as tensors of PyTorch.
"""

from __future__ import annotations

import json
import math
import mmap
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, NoReturn

import ml_dtypes
import numpy as np

from fragmenta.base.arrays.checks import Array
from fragmenta.base.arrays.npy import open_regular
from fragmenta.errors import BadCall, BadFile, nearest, one_of, shortened

TYPES: dict[str, type[np.generic]] = {
    "BOOL": np.bool_,
    "U8": np.uint8,
    "I8": np.int8,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu,
    "I16": np.int16,
    "U16": np.uint16,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "I32": np.int32,
    "U32": np.uint32,
    "F32": np.float32,
    "I64": np.int64,
    "U64": np.uint64,
    "F64": np.float64,
}
"""The type of an array by its name in a header."""
NAMES = {np.dtype(kind): name for name, kind in TYPES.items()}
LENGTH = 8
"""Bytes of the length of a header, and what a header is padded to a multiple of."""
LONGEST_HEADER = 100_000_000
"""Other readers refuse longer headers, too."""
ABOUT = "__metadata__"
"""The name of what is no tensor in a header."""
_FIELDS = {"dtype", "shape", "data_offsets"}


class TensorEntry(NamedTuple):
    """Where a tensor is in a file, and what it is.

    >>> TensorEntry("F32", (2, 3), 0, 24).type
    'F32'
    """

    type: str
    shape: tuple[int, ...]
    begin: int
    """The first byte, counted from the end of the header."""
    end: int


class Header(NamedTuple):
    """What a header says."""

    entries: dict[str, TensorEntry]
    metadata: dict[str, str]
    start: int
    """The first byte after the header."""


# ── reading ─────────────────────────────────────────────────────────────────


class SafeArrays(Mapping[str, Array]):
    """The arrays of a file by name; each is mapped into memory when it is asked for.

    An array shares its bytes with the file until it is written to; writing to it does
    not change the file.

    >>> import tempfile
    >>> parts = [b"".join(to_bytes({"x": np.arange(3.0)}, {"made": "here"}))]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "one.safetensors")
    ...     _ = path.write_bytes(parts[0])
    ...     file = SafeArrays(path)
    ...     print(list(file), file["x"], file.metadata)
    ['x'] [0. 1. 2.] {'made': 'here'}
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        with open_regular(self.path) as file:
            if os.fstat(file.fileno()).st_size < LENGTH:
                refuse(self.path, "it is shorter than the length of a header")
            # A private copy, so that arrays can be written to.
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        self.entries, self.metadata, self._start = read_header(
            self.path, self._bytes, TYPES
        )

    def __getitem__(self, name: str) -> Array:
        if name not in self.entries:
            hint = nearest(name, self.entries)
            raise BadCall(f"{self.path} has no tensor {shortened(name)}{hint}")
        kind, shape, begin, end = self.entries[name]
        size, of = end - begin, np.dtype(TYPES[kind])
        raw = np.frombuffer(self._bytes, np.uint8, size, self._start + begin)
        if (self._start + begin) % of.itemsize:  # other writers do not always align
            raw = raw.copy()
        return raw.view(of).reshape(shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, name: object) -> bool:
        return name in self.entries


def refuse(path: Path, why: str) -> NoReturn:
    """Say that a file breaks a rule of the format.

    >>> refuse(Path("x.safetensors"), "it is empty")
    Traceback (most recent call last):
    fragmenta.errors.BadFile: x.safetensors is no whole safetensors file: it is empty
    """
    raise BadFile(f"{path} is no whole safetensors file: {why}")


def read_header(
    path: Path, content: mmap.mmap | bytes, types: Collection[str]
) -> Header:
    """What the header of a file says; tensors of other types than these are refused.

    >>> content = b"".join(to_bytes({"x": np.ones((2, 3), np.float32)}))
    >>> read_header(Path("x"), content, TYPES).entries
    {'x': TensorEntry(type='F32', shape=(2, 3), begin=0, end=24)}
    """
    size = len(content)
    if size < LENGTH:
        refuse(path, f"it has {size} bytes, which is no header")
    length = int.from_bytes(content[:LENGTH], "little")
    if not 2 <= length <= min(LONGEST_HEADER, size - LENGTH):
        refuse(
            path,
            f"its first {LENGTH} bytes say that the header has {length:,} bytes, and "
            f"the file has {size:,}",
        )
    start = LENGTH + length
    found = _parsed(path, content[LENGTH:start])
    about = found.pop(ABOUT, {})
    if not isinstance(about, dict) or not all(
        isinstance(value, str) for value in about.values()
    ):
        refuse(path, f"{ABOUT} must have texts only; given {about!r:.60}")
    entries = {name: _entry(path, name, each, types) for name, each in found.items()}
    _check_places(path, entries, size - start)
    return Header(entries, about, start)


def _parsed(path: Path, text: bytes) -> dict[str, object]:
    """The JSON object of a header, in which no name is there twice."""

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        names = [name for name, _ in pairs]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            refuse(path, f"the header has {shortened(twice)} twice")
        return dict(pairs)

    try:
        found: object = json.loads(text.decode("utf-8"), object_pairs_hook=once)
    except (ValueError, RecursionError) as why:
        refuse(path, f"the header is not JSON ({why})")
    if not isinstance(found, dict):
        refuse(path, "the header is not a JSON object")
    return found


def _entry(path: Path, name: str, given: object, types: Collection[str]) -> TensorEntry:
    if not isinstance(given, dict) or given.keys() != _FIELDS:
        refuse(
            path,
            f"tensor {shortened(name)} must have {one_of(sorted(_FIELDS), 'and')}; "
            f"given {given!r:.80}",
        )
    kind = given["dtype"]
    if not isinstance(kind, str) or kind not in types:
        hint = nearest(str(kind), types)
        raise BadFile(
            f"{path}: tensor {shortened(name)} has the type {kind!r:.40}{hint}"
            f"; types that are read are {one_of(types, 'and')}"
        )
    shape = _sizes(path, name, "shape", given["shape"])
    places = _sizes(path, name, "data_offsets", given["data_offsets"])
    size = math.prod(shape) * np.dtype(TYPES[kind]).itemsize
    if len(places) != 2 or places[1] - places[0] != size:
        refuse(
            path,
            f"tensor {shortened(name)} of {kind} and shape {tuple(shape)} takes "
            f"{size:,} bytes; given data_offsets {places!r:.60}",
        )
    return TensorEntry(kind, tuple(shape), places[0], places[1])


def _sizes(path: Path, name: str, what: str, given: object) -> list[int]:
    if isinstance(given, list) and all(map(_is_size, given)):
        return given
    refuse(
        path,
        f"{what} of tensor {shortened(name)} must be whole numbers of at least 0; "
        f"given {given!r:.60}",
    )


def _is_size(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0


def _check_places(path: Path, entries: Mapping[str, TensorEntry], size: int) -> None:
    """The tensors fill the file: no byte is missing, left over or used twice."""
    at, before = 0, "the header"
    for name, each in sorted(entries.items(), key=lambda item: item[1][2:]):
        if each.begin != at:
            what = "overlap" if each.begin < at else "leave a gap"
            refuse(
                path,
                f"{before} and tensor {shortened(name)} {what}: byte {at:,} is next, "
                f"and the tensor begins at {each.begin:,}",
            )
        at, before = each.end, f"tensor {shortened(name)}"
    if at != size:
        refuse(path, f"the tensors have {at:,} bytes, and {size:,} follow the header")


# ── writing ─────────────────────────────────────────────────────────────────


def write_header(
    tensors: Iterable[tuple[str, str, tuple[int, ...], int]],
    metadata: Mapping[str, str],
) -> bytes:
    """The length and the header of tensors: name, type, shape and bytes of each.

    >>> write_header([("x", "F32", (3,), 12)], {})[8:]
    b'{"x":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}} '
    """
    found: dict[str, object] = {ABOUT: dict(metadata)} if metadata else {}
    at = 0
    for name, kind, shape, size in tensors:
        found[name] = {
            "dtype": kind,
            "shape": list(shape),
            "data_offsets": [at, at + size],
        }
        at += size
    text = json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode()
    whole = text.ljust(-(-len(text) // LENGTH) * LENGTH)
    return len(whole).to_bytes(LENGTH, "little") + whole


def to_bytes(
    arrays: Mapping[str, Array], metadata: Mapping[str, str] | None = None
) -> Iterator[bytes | memoryview]:
    r"""The parts of a file of arrays.

    The widest elements come first, so that every array is aligned.

    >>> whole = b"".join(to_bytes({"x": np.array([1, 2], np.uint8)}))
    >>> whole[-2:], len(whole)
    (b'\x01\x02', 66)
    """
    ordered = sorted(arrays.items(), key=lambda item: (-item[1].itemsize, item[0]))
    for name, array in ordered:
        if name == ABOUT or array.dtype not in NAMES:
            raise BadCall(
                f"array {shortened(name)} cannot be stored: it must be of "
                f"{one_of(TYPES)}, and not be called {ABOUT}; given {array.dtype}"
            )
    yield write_header(
        ((name, NAMES[x.dtype], x.shape, x.nbytes) for name, x in ordered),
        metadata or {},
    )
    for _, array in ordered:
        yield np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
