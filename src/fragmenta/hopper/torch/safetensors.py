"""Files of the safetensors format as tensors of PyTorch.

:mod:`fragmenta.base.arrays.safetensors` describes the format, reads and writes headers.

    SafeTensors   a file that is read: its names, and its tensors, mapped into memory
    write         tensors -> a file; an existing file is never half overwritten

A file that breaks a rule of the format is refused before any tensor is read.
"""

from __future__ import annotations

import mmap
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from fragmenta.base.arrays.safetensors import ABOUT, read_header, write_header
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


class TorchEntry(NamedTuple):
    """Where a tensor is in a file, and what it is.

    >>> TorchEntry(torch.float32, (2, 3), 0, 24).dtype
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
                # A private copy: PyTorch takes no memory that cannot be written.
                size = os.fstat(file.fileno()).st_size
                whole = (
                    mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
                    if size
                    else b""
                )
        except OSError as why:
            raise BadFile(
                f"{self.path} cannot be read: {why.strerror or why}"
            ) from None
        found, self.metadata, self._start = read_header(self.path, whole, DTYPES)
        self._bytes = whole
        self.entries = {
            name: TorchEntry(DTYPES[each.type], *each[1:])
            for name, each in found.items()
        }

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
    header = write_header(_described(ordered), metadata or {})

    def parts() -> Iterator[bytes | memoryview]:
        yield header
        for _, each in ordered:
            plain = each.detach().cpu().resolve_neg().contiguous()
            yield plain.reshape(-1).view(torch.uint8).numpy().data

    write_whole(Path(path), parts(), overwrite)


def _described(
    tensors: list[tuple[str, Tensor]],
) -> Iterator[tuple[str, str, tuple[int, ...], int]]:
    """What the header says about every tensor."""
    for name, each in tensors:
        if name == ABOUT or each.dtype not in NAMES or each.layout != torch.strided:
            raise BadCall(
                f"tensor {shortened(name)} cannot be stored: it must be dense, of "
                f"{one_of(DTYPES)}, and not be called {ABOUT}; given {each.dtype} of "
                f"layout {each.layout}"
            )
        if each.is_meta:
            raise BadCall(f"tensor {shortened(name)} is on meta: it has no numbers")
        yield name, NAMES[each.dtype], tuple(each.shape), each.numel() * each.itemsize


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
