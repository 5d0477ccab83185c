"""Where a program calls CUDA: the lines of its source, from addresses of its code.

The client sends the addresses to which its callers return.  The system knows which file
each of them is in, and the debug information of that file knows the line.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from fragmenta.base.arrays.once import once_property
from fragmenta.cuda.tools import fatbin, line_tables
from fragmenta.errors import Error
from fragmenta.frontends.programs.building import CORE, DRIVER, RUNTIMES
from fragmenta.ptx.module import Location, demangled

MOST_BYTES = 1 << 24
"""Larger tables of lines are not read: that takes too long."""
_OURS = (CORE, DRIVER, *RUNTIMES.values())
_FUNCTION = 2
"""The type of a symbol that is a function."""


class CallSite(NamedTuple):
    """A call of CUDA: the function, and where its callers go on."""

    name: str = ""
    stack: tuple[int, ...] = ()

    @classmethod
    def of(cls, data: bytes) -> CallSite:
        """What the client has sent.

        >>> CallSite.of(b"cudaFree" + bytes([0, 16, 1, 0, 0, 0, 0, 0, 0]))
        CallSite(name='cudaFree', stack=(272,))
        """
        name, _, rest = data.partition(b"\0")
        count = len(rest) // 8
        stack = struct.unpack_from(f"<{count}Q", rest)
        return cls(name.decode("ascii", "replace"), stack)


class Symbolizer:
    """The lines of one process's code."""

    def __init__(self, process: int) -> None:
        self._process = process
        self._files: dict[str, _Code | None] = {}

    def source(self, call: CallSite, kernel: str = "") -> Location | None:
        """The line that a function is called in, and the calls around it.

        That of a launch is not in what compilers write to launch ``kernel``.
        """
        frames = list(self._frames(call))
        if kernel:
            inside = [kernel in code.symbol(address) for code, address in frames]
            own = max((n for n, each in enumerate(inside) if each), default=-1)
            frames = frames[own + 1 :] or frames
        places = [code.lines.at(address) for code, address in frames]
        here = [each for each in places if each and os.path.isfile(each[0])]
        if not here and (not places or places[0] is None):
            return None  # calls further out are those of interpreters
        found: Location | None = None
        for file, line in reversed(here or [each for each in places if each]):
            found = Location(_shown(file), line, 0, found)
        return found

    def words(self, call: CallSite) -> str:
        """A call in words: its line, else the function or the place in its file."""
        source = self.source(call)
        if source is not None:
            return f"{call.name} at {source.words}"
        for code, address in self._frames(call):
            return f"{call.name} in {code.function(address)}"
        return call.name

    def _frames(self, call: CallSite) -> Iterator[tuple[_Code, int]]:
        """The code of the program itself in which calls are, the innermost first."""
        mapped = self._mapped() if call.stack else []
        for returns in call.stack:
            at = returns - 1  # the call itself; it may be the last of its function
            for first, end, offset, path in mapped:
                if first <= at < end and Path(path).name not in _OURS:
                    code = self._code(path)
                    address = code.address(at - first + offset) if code else None
                    if code is not None and address is not None:
                        yield code, address

    def _mapped(self) -> list[tuple[int, int, int, str]]:
        """Where files are in the memory of the process: first, end, offset, path."""
        try:
            text = Path(f"/proc/{self._process}/maps").read_text(errors="replace")
        except OSError:
            return []
        found = []
        for words in (line.split(maxsplit=5) for line in text.splitlines()):
            if len(words) == 6 and words[5].startswith("/"):
                first, end = (int(each, 16) for each in words[0].split("-"))
                found.append((first, end, int(words[2], 16), words[5]))
        return found

    def _code(self, path: str) -> _Code | None:
        if path not in self._files:
            try:
                self._files[path] = _Code(path)
            except (OSError, Error):
                self._files[path] = None
        return self._files[path]


class _Code:
    """A program or library: its machine code, functions and lines."""

    def __init__(self, path: str) -> None:
        self.path = path
        data = Path(path).read_bytes()
        self._sections = fatbin.sections(data, path)
        start, size, count = (
            int.from_bytes(data[at : at + width], "little")
            for at, width in ((32, 8), (54, 2), (56, 2))
        )
        heads = (
            data[at : at + 56] for at in range(start, start + size * count, size or 1)
        )
        parts = (struct.unpack("<IIQQQQQQ", head) for head in heads if len(head) == 56)
        self._loaded: list[tuple[int, int, int]] = [
            (p[2], p[3], p[5]) for p in parts if p[0] == 1
        ]

    def address(self, offset: int) -> int | None:
        """The address that a byte of the file has in its tables."""
        for first, address, size in self._loaded:
            if first <= offset < first + size:
                return offset - first + address
        return None

    @once_property
    def lines(self) -> line_tables.LineTable:
        """The lines; none if the file has no debug information."""
        size = len(self._sections.get(".debug_line", b""))
        return line_tables.LineTable(self._sections if size <= MOST_BYTES else {})

    @cached_property
    def _functions(self) -> list[tuple[int, int, str]]:
        """Where functions begin, their sizes and their names."""
        found = []
        for table, strings in ((".symtab", ".strtab"), (".dynsym", ".dynstr")):
            data, text = (self._sections.get(each, b"") for each in (table, strings))
            for at in range(0, len(data) - 23, 24):
                name, info, _, _, address, size = struct.unpack_from(
                    "<IBBHQQ", data, at
                )
                if info & 15 == _FUNCTION and size:
                    named, _, _ = text[name : name + 4096].partition(b"\0")
                    found.append((address, size, named.decode("utf-8", "replace")))
        return sorted(found)

    def symbol(self, address: int) -> str:
        """The function that an address is in; nothing if that is not known."""
        begins = [each[0] for each in self._functions]
        at = bisect_right(begins, address) - 1
        inside = at >= 0 and address < sum(self._functions[at][:2])
        return self._functions[at][2] if inside else ""

    def function(self, address: int) -> str:
        """The function that an address is in, or its place in the file."""
        symbol, name = self.symbol(address), Path(self.path).name
        return f"{demangled(symbol)} of {name}" if symbol else f"{name}+{address:#x}"


def _shown(file: str) -> str:
    """A file as it is called from here, if it is below."""
    below = os.path.relpath(file) if os.path.isabs(file) else file
    return file if below.startswith(os.pardir) else below
