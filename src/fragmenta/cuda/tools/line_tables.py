"""Gives the PTX in a cubin the lines of the source back.

A cubin keeps the PTX that it was made from without its ``.loc`` and ``.file``
directives: an empty line stands in the place of each.  Two tables of the cubin, in the
format of DWARF, tell where each machine instruction comes from: ``.debug_line`` has the
line of the source, ``.nv_debug_line_sass`` the line of the PTX.  Together they say
which line of the source each part of the PTX is of.
"""

from __future__ import annotations

import posixpath
import struct
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_SOURCE, _PTX = ".debug_line", ".nv_debug_line_sass"
_RELOCATION = struct.Struct("<QQq")


class Row(NamedTuple):
    """Where the machine code from an address on comes from."""

    function: int
    """The number of a function's symbol."""
    address: int
    file: str
    line: int


def with_lines(text: str, sections: Mapping[str, bytes]) -> str:
    """The PTX of a cubin with ``.loc`` and ``.file`` where the tables know them.

    No line moves: the directives stand in empty lines, those of files at the end.
    """
    known = _known(sections)
    lines = text.split("\n")
    files: dict[str, int] = {}
    for begin, end in _parts(lines):
        votes: Counter[tuple[str, int]] = Counter()
        for number in range(begin, end):
            votes.update(known.get(number + 1, ()))
        if votes:
            (file, line), _ = votes.most_common(1)[0]
            number = files.setdefault(file, len(files) + 1)
            lines[begin - 1] = f".loc {number} {line} 0"
    lines += [f'.file {number} "{file}"' for file, number in files.items()]
    return "\n".join(lines)


def _known(sections: Mapping[str, bytes]) -> dict[int, list[tuple[str, int]]]:
    """The lines of the source that a line of the PTX has machine code of."""
    places: dict[int, list[Row]] = defaultdict(list)
    for row in _rows(sections, _SOURCE):
        places[row.function].append(row)
    found: dict[int, list[tuple[str, int]]] = defaultdict(list)
    addresses = {
        function: [row.address for row in rows] for function, rows in places.items()
    }
    for row in _rows(sections, _PTX):
        at = bisect_right(addresses.get(row.function, ()), row.address) - 1
        if at >= 0:
            place = places[row.function][at]
            if place.file and place.line > 0:
                found[row.line].append((place.file, place.line))
    return found


def _parts(lines: list[str]) -> Iterator[tuple[int, int]]:
    """The lines between empty ones in functions: first and end, counted from 0."""
    begin, depth, inside = 0, 0, False
    for number, line in enumerate([*lines, ""]):
        if line.strip():
            depth += line.count("{") - line.count("}")
            continue
        if inside and begin < number:
            yield begin, number
        begin, inside = number + 1, depth > 0


# ── the format of DWARF, version 2 ──────────────────────────────────────────


def _rows(sections: Mapping[str, bytes], name: str) -> list[Row]:
    """The rows of a table, by function and address; none if it cannot be read."""
    data = sections.get(name, b"")
    functions = {
        offset: info >> 32
        for offset, info, _ in _RELOCATION.iter_unpack(_whole(sections, f".rela{name}"))
    }
    found: list[Row] = []
    at = 0
    try:
        while at < len(data):
            end = at + 4 + int.from_bytes(data[at : at + 4], "little")
            found += _Program(data, at, min(end, len(data)), functions).rows()
            at = end
    except (IndexError, struct.error, ValueError):
        return []
    return sorted(found, key=lambda row: row[:2])


def _whole(sections: Mapping[str, bytes], name: str) -> bytes:
    data = sections.get(name, b"")
    return data[: len(data) // _RELOCATION.size * _RELOCATION.size]


class _Program:
    """The instructions that make the rows of one part of a table."""

    def __init__(self, data: bytes, at: int, end: int, functions: dict[int, int]):
        self.data, self.at, self.end, self.functions = data, at, end, functions

    def rows(self) -> Iterator[Row]:
        """All rows."""
        version, length = struct.unpack_from("<HI", self.data, self.at + 4)
        if version != 2:
            return
        begin = self.at + 10 + length
        step, _, base, wide, first = struct.unpack_from(
            "<BBbBB", self.data, self.at + 10
        )
        self.at += 15
        counts = [self._byte() for _ in range(first - 1)]
        self.files = self._files()
        self.at = begin
        self._reset()
        while self.at < self.end:
            code = self._byte()
            if code >= first:
                code -= first
                self.address += code // wide * step
                self.line += base + code % wide
                yield self._row()
            elif code:
                if self._standard(code, counts[code - 1], step, (255 - first) // wide):
                    yield self._row()
            else:
                self._extended()

    def _reset(self) -> None:
        self.function, self.address, self.file, self.line = -1, 0, 1, 1

    def _row(self) -> Row:
        return Row(
            self.function, self.address, self.files.get(self.file, ""), self.line
        )

    def _standard(self, code: int, count: int, step: int, advance: int) -> bool:
        """Do an instruction with a fixed number of operands; whether it gives a row."""
        if code == 3:
            self.line += self._signed()
            return False
        if code == 9:
            self.address += struct.unpack_from("<H", self.data, self.at)[0]
            self.at += 2
            return False
        given = [self._unsigned() for _ in range(count)]
        if code == 2:
            self.address += given[0] * step
        elif code == 4:
            self.file = given[0]
        elif code == 8:
            self.address += advance * step
        return code == 1

    def _extended(self) -> None:
        """Do an instruction with a length; those that are not known are left out."""
        length = self._unsigned()
        begin = self.at
        code = self._byte()
        if code == 1:
            self._reset()
        elif code == 2:
            self.function = self.functions.get(self.at, -1)
            self.address = int.from_bytes(self.data[self.at : begin + length], "little")
        self.at = begin + length

    def _files(self) -> dict[int, str]:
        """The names of the files, from 1; a file may be in a folder."""
        folders = [""]
        while folder := self._text():
            folders.append(folder)
        found: dict[int, str] = {}
        while name := self._text():
            place, _, _ = (self._unsigned() for _ in range(3))
            folder = folders[place] if place < len(folders) else ""
            found[len(found) + 1] = posixpath.normpath(posixpath.join(folder, name))
        return found

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _text(self) -> str:
        end = self.data.index(b"\0", self.at)
        found = self.data[self.at : end].decode("utf-8", "replace")
        self.at = end + 1
        return found

    def _number(self) -> tuple[int, int, bool]:
        """A number in parts of seven bits: its value, its bits, and the last one."""
        value = bits = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << bits
            bits += 7
            if byte < 128:
                return value, bits, bool(byte & 64)

    def _unsigned(self) -> int:
        return self._number()[0]

    def _signed(self) -> int:
        value, bits, negative = self._number()
        return value - (1 << bits) if negative else value
