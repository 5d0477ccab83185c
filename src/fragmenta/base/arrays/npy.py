"""Reading and writing NumPy files, without executing what is in them.

Files come from anywhere, so everything in them is checked.  The first bytes say
what kind of file it is.  A header of limited length says what follows.  Its size
is compared with the size of the file before anything is read.  Arrays of a
``.npy`` are mapped from disk; those of a ``.npz`` are read when they are asked
for.

Only regular files are read.  A pipe or a device cannot be mapped and may never
end, so it is refused.
"""

from __future__ import annotations

import ast
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import IO, BinaryIO, Literal, NamedTuple, cast

import numpy as np

from fragmenta.base.arrays.checks import Array, is_whole
from fragmenta.errors import Error, one_of

MAGIC, ARCHIVE = b"\x93NUMPY", b"PK"
LONGEST = 10_000
"""The most bytes that a header may have: NumPy's own limit, more than any matrix
needs."""
_LENGTH_BYTES = {(1, 0): 2, (2, 0): 4, (3, 0): 4}
_PART = 1 << 20


def read(path: str | Path) -> Array | Archive:
    """The array of a ``.npy`` file, or the arrays of a ``.npz`` file by name.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/x.npy", np.eye(2))
    ...     read(f"{folder}/x.npy").shape
    (2, 2)
    """
    with open_regular(path) as file, _whole(path):
        begins = file.read(len(MAGIC))
        file.seek(0)
        if begins == MAGIC:
            return _mapped(file)
        if begins[:2] == ARCHIVE:
            return Archive(path, file)
        what = "is not a .npy or .npz file of NumPy" if begins else "is empty"
        raise Error(f"{path} {what}")


class Archive(Mapping[str, Array]):
    """The arrays of a ``.npz`` file; each is read when it is used.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/x.npz", values=np.eye(2), width=3)
    ...     found = read(f"{folder}/x.npz")
    ...     sorted(found), found["width"]
    (['values', 'width'], array(3))
    """

    def __init__(self, path: str | Path, file: BinaryIO) -> None:
        from zipfile import ZipFile  # most programs never need it

        self.path = path
        with ZipFile(file) as archive:
            members = archive.infolist()
        self._members = {each.filename.removesuffix(".npy"): each for each in members}
        if len(self._members) < len(members):
            raise Error(f"{path} holds arrays of the same name; names must differ")

    def __getitem__(self, name: str) -> Array:
        from zipfile import ZipFile

        member = self._members[name]
        if member.flag_bits & 1:
            raise Error(f"{self.path} is encrypted; save it without a password")
        with (
            open_regular(self.path) as file,
            _whole(self.path),
            ZipFile(file) as archive,
            archive.open(member) as content,
        ):
            return _in_memory(content, member.file_size)

    def bytes_of(self, name: str) -> int:
        """The bytes that an array has in memory, before any of them is read."""
        return self._members[name].file_size

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


# ── kinds of files ──────────────────────────────────────────────────────────

_KINDS = {
    stat.S_ISDIR: "a directory",
    stat.S_ISFIFO: "a pipe",
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
    stat.S_ISSOCK: "a socket",
}


@contextmanager
def open_regular(path: str | Path) -> Iterator[BinaryIO]:
    """An open file on disk; anything else is refused without waiting for it."""
    waits_not = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, os.O_RDONLY | waits_not)
    except OSError as error:
        raise Error(f"{path}: {error.strerror or error}") from None
    except ValueError as error:  # such as a null character in the name
        raise Error(f"{os.fspath(path)!r} is not a file name: {error}") from None
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        found = (kind for test, kind in _KINDS.items() if test(mode))
        raise Error(
            f"{path} is {next(found, 'not a regular file')}; matrices are read from "
            "files on disk, so save it to a file first"
        )
    with os.fdopen(descriptor, "rb") as file:
        yield file


class _Damaged(Exception):
    """A file is damaged; the text says how."""


class _Objects(Exception):
    """A file is not damaged, but holds Python objects."""


@contextmanager
def _whole(path: str | Path) -> Iterator[None]:
    """Turn every exception that a damaged file causes into an Error."""
    try:
        yield
    except Error:
        raise
    except _Objects as why:
        raise Error(f"{path} {why}") from None
    except MemoryError:
        raise Error(f"{path} does not fit in memory") from None
    except Exception as why:  # zipfile and zlib raise eight kinds, undocumented
        raise Error(f"{path} is cut short or damaged: {_said(why)}") from None


def _said(why: Exception) -> str:
    return str(why) or type(why).__name__


# ── headers ─────────────────────────────────────────────────────────────────


class _Header(NamedTuple):
    """What a header says, and how many bytes come before the array."""

    of: np.dtype[np.generic]
    shape: tuple[int, ...]
    order: Literal["C", "F"]
    offset: int

    @property
    def size(self) -> int:
        """Bytes of the array."""
        return prod(self.shape) * self.of.itemsize


def _header(file: IO[bytes]) -> _Header:
    begins = file.read(len(MAGIC) + 2)
    if begins[: len(MAGIC)] != MAGIC:
        raise _Damaged("an array does not begin with NumPy's magic bytes")
    version = tuple(begins[len(MAGIC) :])
    if version not in _LENGTH_BYTES:
        known = one_of((".".join(map(str, each)) for each in _LENGTH_BYTES), "and")
        given = ".".join(map(str, version)) or "none"
        raise _Damaged(f"its format version is {given}; known are {known}")
    size = _LENGTH_BYTES[version]
    length = int.from_bytes(file.read(size), "little")
    if length > LONGEST:
        raise _Damaged(f"its header has {length} bytes; the limit is {LONGEST}")
    text = file.read(length)
    if len(text) < length:
        raise _Damaged(f"its header ends after {len(text)} of {length} bytes")
    return _read_header(text.decode("utf8"), len(begins) + size + length)


def _read_header(text: str, offset: int) -> _Header:
    try:
        found = ast.literal_eval(text.strip(" \n"))
    except (MemoryError, RecursionError):
        raise _Damaged("its header is nested too deeply") from None
    if not isinstance(found, dict) or set(found) != {"descr", "fortran_order", "shape"}:
        raise _Damaged("its header does not give type, order and shape")
    shape = found["shape"]
    if not isinstance(shape, tuple) or not all(map(is_whole, shape)):
        raise _Damaged(f"its shape is {shape!r}")
    if min(shape, default=0) < 0 or prod(filter(None, shape)) > sys.maxsize:
        raise _Damaged(f"its shape is {shape!r}")
    if not isinstance(found["fortran_order"], bool):
        raise _Damaged(f"its order is {found['fortran_order']!r}")
    order: Literal["C", "F"] = "F" if found["fortran_order"] else "C"
    return _Header(_numbers(found["descr"]), shape, order, offset)


def _numbers(written: object) -> np.dtype[np.generic]:
    """The type of the items.  Reading Python objects could run code: refused."""
    if written == "<f1":  # NumPy writes this for e5m2, but cannot read it
        written = "|V1"
    # NumPy's annotation leaves out descriptions that are texts.
    of = np.lib.format.descr_to_dtype(cast("list[tuple[str, str]]", written))
    if of.hasobject:
        raise _Objects("holds Python objects, not numbers")
    if of.kind in "mM":
        raise _Objects("holds times, not numbers")
    if not of.itemsize or of.subdtype:
        raise _Damaged(f"its items are {of}")
    return of


# ── contents ────────────────────────────────────────────────────────────────


def _mapped(file: BinaryIO) -> Array:
    """The array, mapped from disk; changes to it stay in memory."""
    header = _header(file)
    _check_size(header, os.fstat(file.fileno()).st_size)
    if not header.size:
        return np.empty(header.shape, header.of, header.order)
    mapped = np.memmap(
        file, header.of, "c", header.offset, header.shape, order=header.order
    )
    return np.asarray(mapped)


def _in_memory(file: IO[bytes], size: int) -> Array:
    header = _header(file)
    _check_size(header, size)
    content = np.empty(header.size, np.uint8)
    done = 0
    while part := file.read(_PART):
        content[done : done + len(part)] = np.frombuffer(part, np.uint8)
        done += len(part)
    if done < header.size:
        raise _Damaged(f"only {done} of {header.size} bytes are there")
    return content.view(header.of).reshape(header.shape, order=header.order)


def _check_size(header: _Header, size: int) -> None:
    have = size - header.offset
    if have < header.size:
        raise _Damaged(f"only {have} of {header.size} bytes are there")
    if have > header.size:
        raise _Damaged(f"{have - header.size} bytes follow the array")
