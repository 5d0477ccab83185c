"""Finds the PTX in what CUDA's compilers write: fat binaries, cubins, programs.

A fat binary has PTX and machine code for several targets.  It is a file of its own, or
it is in the section ``.nv_fatbin`` of an object file, a library or a program.  A cubin
is machine code; with line information for debuggers it also has the PTX that it was
made from.  Machine code without PTX is listed, so that an error can say what is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from fragmenta.cuda.tools import unpacking
from fragmenta.cuda.tools.line_tables import with_lines
from fragmenta.errors import BadFile, one_of

MAGIC = b"\x50\xed\x55\xba"
"""The first bytes of a fat binary."""
ELF = b"\x7fELF"
_CUDA = 190
"""The machine of a cubin, in the header of ELF."""
_PTX, _CUBIN, _SEVERAL = 1, 2, 256
"""The kinds of entries; the last has several modules that are compressed together."""
_LZ4, _ZSTD = 0x2000, 0x8000
_SECTIONS = (".nv_fatbin", "__nv_relfatbin")
_EMBEDDED = ".nv_debug_ptx_txt"
_TARGET = re.compile(r"^[ \t]*\.target[ \t]+(\w+)", re.MULTILINE)
_LONGEST_NAME = 4096
"""The most bytes of a section's name that are read."""


class Image(NamedTuple):
    """A module inside a file: PTX, or machine code."""

    target: str
    """Such as ``sm_90a``; of machine code, without the suffix."""
    text: str | None
    """Its PTX; None if there is machine code only."""
    name: str = ""
    """The file that it was compiled from, as far as that is written there."""


def is_binary(data: bytes) -> bool:
    r"""Whether these are bytes that :func:`images` reads.

    >>> is_binary(b"\x7fELF"), is_binary(b".version 8.0")
    (True, False)
    """
    return data[:4] in (MAGIC, ELF)


def ptx_texts(data: bytes, what: str = "the file") -> list[Image]:
    """The PTX of a fat binary, a cubin, an object file or a program; at least one.

    >>> ptx_texts(MAGIC + bytes([1, 0, 16, 0]) + bytes(8))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    fragmenta.errors.BadFile: the file has no PTX: it is empty; ...
    """
    every = images(data, what)
    found = [each for each in every if each.text is not None]
    if not found:
        raise BadFile(f"{what} has no PTX: {_instead(every)}")
    return found


def _instead(every: list[Image]) -> str:
    """What a file without PTX has, and how it gets some."""
    targets = dict.fromkeys(each.target for each in every)
    has = (
        f"only machine code for {one_of(targets, 'and')}" if targets else "it is empty"
    )
    keeps = "nvcc -gencode arch=compute_90a,code=compute_90a, or with -lineinfo"
    return f"{has}; compile with {keeps}, which keep it"


def images(data: bytes, what: str = "the file") -> list[Image]:
    """All modules of a fat binary, a cubin, an object file or a program."""
    with _whole(what):
        if data[:4] == MAGIC:
            return list(_fat(data))
        if data[:4] == ELF:
            return list(_elf(data))
    first = repr(data[:8])
    raise BadFile(
        f"{what} is no fat binary, cubin, object file or program; it begins {first}"
    )


@contextmanager
def _whole(what: str) -> Iterator[None]:
    """Refuse a file that ends too early or is damaged otherwise."""
    try:
        yield
    except (IndexError, unpacking.Damaged) as why:
        raise BadFile(f"{what} is damaged: {why or 'it ends too early'}") from why


def _number(data: bytes, at: int, size: int) -> int:
    if at < 0 or at + size > len(data):
        raise IndexError("it ends too early")
    return int.from_bytes(data[at : at + size], "little")


# ── fat binaries ────────────────────────────────────────────────────────────


class _Room:
    """How many bytes of a file may still be unpacked, whatever its entries say."""

    def __init__(self) -> None:
        self.left = unpacking.MOST

    def take(self, size: int) -> None:
        """Unpack so many more."""
        self.left -= size
        if self.left < 0:
            raise unpacking.Damaged(
                f"it says that more than {unpacking.MOST:,} bytes are packed in it"
            )


def size_of(data: bytes, at: int = 0) -> int:
    """The bytes of a fat binary, its header included."""
    return _number(data, at + 6, 2) + _number(data, at + 8, 8)


def _fat(data: bytes) -> Iterator[Image]:
    """The modules of fat binaries, one after the other."""
    at, room = 0, _Room()
    while (at := data.find(MAGIC, at)) >= 0:
        header, end = _number(data, at + 6, 2), at + size_of(data, at)
        if header < 16:
            raise IndexError(f"the header of a fat binary has {header} bytes, not 16")
        if end > len(data):
            raise IndexError("it ends too early")
        yield from _entries(data[at + header : end], room)
        at = end


def _entries(data: bytes, room: _Room) -> Iterator[Image]:
    at = 0
    while at + 64 <= len(data):
        header, size = _number(data, at + 4, 4), _number(data, at + 8, 8)
        if header < 64 or at + header + size > len(data):
            raise IndexError("an entry of a fat binary ends behind it")
        begin, at = at, at + header + size
        yield from _entry(data[begin : begin + header], data[begin + header : at], room)


def _entry(header: bytes, payload: bytes, room: _Room) -> Iterator[Image]:
    kind, flags = _number(header, 0, 2), _number(header, 40, 8)
    packed, whole = _number(header, 16, 4), _number(header, 56, 8)
    if kind not in (_PTX, _CUBIN, _SEVERAL):
        return
    if flags & (_ZSTD | _LZ4):
        room.take(whole)
    if flags & _ZSTD:
        payload = unpacking.zstd(payload[:packed], whole)
    elif flags & _LZ4:
        payload = unpacking.lz4(payload[:packed], whole)
    if kind == _SEVERAL:
        for at in range(72, 72 + 80 * _number(header, 64, 4), 80):
            begin, size = _number(header, at + 4, 4), _number(header, at + 8, 8)
            part = payload[begin : begin + size]
            room.take(len(part))
            yield from _module(header[at : at + 80], part, "")
        return
    at, length = _number(header, 32, 4), _number(header, 36, 4)
    name = header[at : at + length].rstrip(b"\0").decode("utf-8", "replace")
    yield from _module(header, payload, name)


def _module(header: bytes, payload: bytes, name: str) -> Iterator[Image]:
    target = f"sm_{_number(header, 28, 4)}"
    if _number(header, 0, 2) == _PTX:
        yield _text(payload, target, name)
        return
    found = list(_embedded(payload)) if payload[:4] == ELF else []
    yield from found or [Image(target, None, name)]


def _text(payload: bytes, target: str, name: str = "") -> Image:
    text = payload.rstrip(b"\0").decode("utf-8", "replace")
    said = _TARGET.search(text)
    return Image(said[1] if said else target, text, name)


# ── ELF ─────────────────────────────────────────────────────────────────────


def _elf(data: bytes) -> Iterator[Image]:
    if data[4:6] != b"\x02\x01":
        raise IndexError("it is no 64-bit little-endian ELF")
    if _number(data, 18, 2) == _CUDA:
        found = list(_embedded(data))
        yield from found or [Image(_cubin_target(data), None)]
        return
    for name, section in _sections(data):
        if name in _SECTIONS:
            yield from _fat(section)


def _cubin_target(data: bytes) -> str:
    """The target of machine code: its number has moved in newer versions."""
    flags, new = _number(data, 48, 4), data[8] >= 8
    return f"sm_{flags >> 8 & 0xFFFF if new else flags & 0xFF}"


def _embedded(data: bytes) -> Iterator[Image]:
    """The PTX that a cubin was made from; its lines end with a zero."""
    parts = dict(_sections(data))
    if _EMBEDDED in parts:
        made = _text(parts[_EMBEDDED].replace(b"\0", b"\n"), _cubin_target(data))
        yield made._replace(text=with_lines(made.text or "", parts))


def sections(data: bytes, what: str = "the file") -> dict[str, bytes]:
    """The sections of a 64-bit ELF file, by their names."""
    with _whole(what):
        return dict(_sections(data))


def _sections(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The sections of a 64-bit ELF file: name and bytes."""
    start, size = _number(data, 40, 8), _number(data, 58, 2)
    count, strings = _number(data, 60, 2), _number(data, 62, 2)
    rows, left = [], 2 * len(data)
    for at in range(start, start + size * count, size or 1):
        name, kind = _number(data, at, 4), _number(data, at + 4, 4)
        begin, length = _number(data, at + 24, 8), _number(data, at + 32, 8)
        # A section of kind 8 has no bytes in the file.
        rows.append((name, b"" if kind == 8 else data[begin : begin + length]))
        left -= len(rows[-1][1])
        if left < 0:
            raise IndexError("its sections overlap")
    if strings >= len(rows):
        return
    names = rows[strings][1]
    for place, section in rows:
        text, _, _ = names[place : place + _LONGEST_NAME].partition(b"\0")
        yield text.decode("utf-8", "replace"), section
