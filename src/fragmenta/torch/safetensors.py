"""Reads and writes files of the safetensors format.

A file has eight bytes with the length of the header (little-endian), the header (JSON:
the type, the shape and the first and last byte of every tensor), then the bytes of the
tensors.  They are contiguous, without gaps or overlaps, up to the end of the file.

    SafeTensors   a file that is read: its names, and its tensors, mapped into memory
    write         tensors -> a file; an existing file is never half overwritten

A file that breaks a rule of the format is refused before any tensor is read.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from fragmenta.errors import BadCall, BadFile, nearest, one_of, shortened

DTYPES: dict[str, torch.dtype] = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I16": torch.int16,
    "U16": torch.uint16,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I32": torch.int32,
    "U32": torch.uint32,
    "F32": torch.float32,
    "I64": torch.int64,
    "U64": torch.uint64,
    "F64": torch.float64,
}
"""The type of a tensor by its name in a header."""
NAMES = {kind: name for name, kind in DTYPES.items()}
LENGTH = 8
"""Bytes of the length of a header, and what a header is padded to a multiple of."""
LONGEST_HEADER = 100_000_000
"""Other readers refuse longer headers, too."""
_ABOUT = "__metadata__"
_FIELDS = {"dtype", "shape", "data_offsets"}


class Entry(NamedTuple):
    """Where a tensor is in a file, and what it is.

    >>> Entry(torch.float32, (2, 3), 0, 24).dtype
    torch.float32
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int
    """The first byte, counted from the end of the header."""
    end: int


# ── reading ─────────────────────────────────────────────────────────────────


class SafeTensors:
    """The tensors of a file by name; each is mapped into memory when it is asked for.

    A tensor shares its bytes with the file until it is written to; writing to it does
    not change the file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "two.safetensors")
    ...     write(path, {"weight": torch.ones(2, 2), "bias": torch.zeros(2)})
    ...     file = SafeTensors(path)
    ...     print(list(file), file["weight"].sum())
    ['bias', 'weight'] tensor(4.)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            with self.path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size < LENGTH:
                    raise self._refused(f"it has {size} bytes, which is no header")
                # A private copy: PyTorch takes no memory that cannot be written.
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        except OSError as why:
            raise BadFile(
                f"{self.path} cannot be read: {why.strerror or why}"
            ) from None
        length = int.from_bytes(self._bytes[:LENGTH], "little")
        if not 2 <= length <= min(LONGEST_HEADER, size - LENGTH):
            raise self._refused(
                f"its first {LENGTH} bytes say that the header has {length:,} bytes, "
                f"and the file has {size:,}"
            )
        self._start = LENGTH + length
        self.entries, self.metadata = self._header(self._bytes[LENGTH : self._start])
        self._check_places(size - self._start)

    def _refused(self, why: str) -> BadFile:
        return BadFile(f"{self.path} is no whole safetensors file: {why}")

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.entries:
            hint = nearest(name, self.entries)
            raise BadFile(f"{self.path} has no tensor {shortened(name)}{hint}")
        kind, shape, begin, end = self.entries[name]
        if begin == end:
            return torch.empty(shape, dtype=kind)
        at = self._start + begin
        raw = torch.frombuffer(
            self._bytes, dtype=torch.uint8, count=end - begin, offset=at
        )
        if at % kind.itemsize:  # files of other writers may be unaligned
            raw = raw.clone()
        return raw.view(kind).reshape(shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, name: object) -> bool:
        return name in self.entries

    # ── the header ──────────────────────────────────────────────────────────

    def _header(self, text: bytes) -> tuple[dict[str, Entry], dict[str, str]]:
        def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
            names = [name for name, _ in pairs]
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise self._refused(f"the header has {shortened(twice)} twice")
            return dict(pairs)

        try:
            found = json.loads(text.decode("utf-8"), object_pairs_hook=once)
        except (ValueError, RecursionError) as why:
            raise self._refused(f"the header is not JSON ({why})") from None
        if not isinstance(found, dict):
            raise self._refused("the header is not a JSON object")
        about = found.pop(_ABOUT, {})
        if not isinstance(about, dict) or not all(
            isinstance(value, str) for value in about.values()
        ):
            raise self._refused(f"{_ABOUT} must have texts only; given {about!r:.60}")
        return {name: self._entry(name, each) for name, each in found.items()}, about

    def _entry(self, name: str, given: object) -> Entry:
        if not isinstance(given, dict) or given.keys() != _FIELDS:
            raise self._refused(
                f"tensor {shortened(name)} must have {one_of(sorted(_FIELDS), 'and')}; "
                f"given {given!r:.80}"
            )
        shape, places, kind = (given[key] for key in ("shape", "data_offsets", "dtype"))
        if not isinstance(kind, str) or kind not in DTYPES:
            hint = nearest(str(kind), DTYPES)
            raise BadFile(
                f"{self.path}: tensor {shortened(name)} has the type {kind!r:.40}{hint}"
                f"; types that are read are {one_of(DTYPES, 'and')}"
            )
        for what, numbers in (("shape", shape), ("data_offsets", places)):
            if not isinstance(numbers, list) or not all(map(_is_size, numbers)):
                raise self._refused(
                    f"{what} of tensor {shortened(name)} must be whole numbers of at "
                    f"least 0; given {numbers!r:.60}"
                )
        size = math.prod(shape) * DTYPES[kind].itemsize
        if len(places) != 2 or places[1] - places[0] != size:
            raise self._refused(
                f"tensor {shortened(name)} of {kind} and shape {tuple(shape)} takes "
                f"{size:,} bytes; given data_offsets {places!r:.60}"
            )
        return Entry(DTYPES[kind], tuple(shape), *places)

    def _check_places(self, size: int) -> None:
        """Refuse gaps and overlaps: each byte of the file belongs to one tensor."""
        at, before = 0, "the header"
        for name, each in sorted(self.entries.items(), key=lambda item: item[1][2:]):
            if each.begin != at:
                what = "overlap" if each.begin < at else "leave a gap"
                raise self._refused(
                    f"{before} and tensor {shortened(name)} {what}: byte {at:,} is "
                    f"next, and the tensor begins at {each.begin:,}"
                )
            at, before = each.end, f"tensor {shortened(name)}"
        if at != size:
            raise self._refused(
                f"the tensors have {at:,} bytes, and {size:,} follow the header"
            )


def _is_size(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0


# ── writing ─────────────────────────────────────────────────────────────────


def write(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Tensor],
    *,
    metadata: Mapping[str, str] | None = None,
    overwrite: bool = False,
) -> None:
    """Write tensors into a file; a file that exists is refused unless ``overwrite``.

    The file appears when it is complete: until then it has another name.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "one.safetensors")
    ...     write(path, {"x": torch.arange(3)})
    ...     write(path, {"x": torch.arange(4)}, overwrite=True)
    ...     SafeTensors(path)["x"]
    tensor([0, 1, 2, 3])
    """
    # The widest elements first, so that every tensor is aligned.
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0]))
    header = _described(ordered, metadata or {})

    def parts() -> Iterator[bytes | memoryview]:
        yield len(header).to_bytes(LENGTH, "little")
        yield header
        for _, each in ordered:
            plain = each.detach().cpu().resolve_neg().contiguous()
            yield plain.reshape(-1).view(torch.uint8).numpy().data

    write_whole(Path(path), parts(), overwrite)


def _described(tensors: list[tuple[str, Tensor]], metadata: Mapping[str, str]) -> bytes:
    """The header: type, shape and place of each tensor."""
    found: dict[str, object] = {_ABOUT: dict(metadata)} if metadata else {}
    at = 0
    for name, each in tensors:
        if name == _ABOUT or each.dtype not in NAMES or each.layout != torch.strided:
            raise BadCall(
                f"tensor {shortened(name)} cannot be stored: it must be dense, of "
                f"{one_of(DTYPES)}, and not be called {_ABOUT}; given {each.dtype} of "
                f"layout {each.layout}"
            )
        if each.is_meta:
            raise BadCall(f"tensor {shortened(name)} is on meta: it has no numbers")
        end = at + each.numel() * each.itemsize
        found[name] = {
            "dtype": NAMES[each.dtype],
            "shape": list(each.shape),
            "data_offsets": [at, end],
        }
        at = end
    text = json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode()
    return text.ljust(-(-len(text) // LENGTH) * LENGTH)


def write_whole(
    path: Path, parts: Iterator[bytes | memoryview], overwrite: bool
) -> None:
    """Write a file under another name, then give it its name.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "a.txt")
    ...     write_whole(path, iter([b"one"]), overwrite=False)
    ...     write_whole(path, iter([b"two"]), overwrite=False)
    Traceback (most recent call last):
    fragmenta.errors.BadFile: a.txt exists already; overwrite=True replaces it
    """
    check_free([path], overwrite)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        _give_name(temporary, path, overwrite)
    except OSError as why:
        raise BadFile(f"{path} cannot be written: {why.strerror or why}") from None
    finally:
        temporary.unlink(missing_ok=True)


def check_free(paths: list[Path], overwrite: bool) -> None:
    """Refuse files that exist, unless they may be replaced.

    >>> check_free([Path("no such file")], overwrite=False)
    """
    for path in paths:
        if path.is_dir() or (path.exists() and not path.is_file()):
            raise BadFile(f"{path.name} is not a regular file; it is not replaced")
        if os.path.lexists(path) and not overwrite:
            raise BadFile(f"{path.name} exists already; overwrite=True replaces it")


def _give_name(temporary: Path, path: Path, overwrite: bool) -> None:
    if overwrite:
        os.replace(temporary, path)
        return
    try:  # unlike a rename, a link never replaces a file that has just appeared
        os.link(temporary, path)
    except FileExistsError:
        check_free([path], overwrite)
    except OSError:  # a file system without links
        check_free([path], overwrite)
        os.rename(temporary, path)
