"""Gives the PTX in a cubin the lines of the source back, and machine code its own.

A cubin keeps the PTX that it was made from without its ``.loc`` and ``.file``
directives: an empty line stands in the place of each.  Two tables of the cubin, in the
format of DWARF, tell where each machine instruction comes from: ``.debug_line`` has the
line of the source, ``.nv_debug_line_sass`` the line of the PTX.  Together they say
which line of the source each part of the PTX is of.

A program for the host has a ``.debug_line``, too, if it was compiled with ``-g``.
"""

from __future__ import annotations

import posixpath
import struct
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

_SOURCE, _PTX = ".debug_line", ".nv_debug_line_sass"
_RELOCATIONS = {".rel": 16, ".rela": 24}
"""Where it is written which function a part of a table is about; bytes of an entry."""
_FORMS = {0x0B: 1, 0x05: 2, 0x06: 4, 0x07: 8, 0x0E: 4, 0x1F: 4, 0x1E: 16}
"""The bytes of values in lists of files, by the numbers of their forms."""
_STRINGS = {0x0E: ".debug_str", 0x1F: ".debug_line_str"}
"""Where the names are of which only the place is written."""
_MOST_CALLS = 100
"""The most calls that a row is inlined in."""
_MOST_BITS = 64
"""The most bits of a number: DWARF has none that is larger."""


class LineRow(NamedTuple):
    """Where the machine code from an address on comes from."""

    function: int
    """The number of a function's symbol."""
    address: int
    file: str
    line: int
    callers: Places = ()
    """Where the functions are called that it is inlined from, the outermost first."""

    @property
    def places(self) -> Places:
        """The places, from the outermost call to the place itself."""
        return (*self.callers, (self.file, self.line))


Places: TypeAlias = tuple[tuple[str, int], ...]


def with_lines(text: str, sections: Mapping[str, bytes]) -> str:
    """The PTX of a cubin with ``.loc`` and ``.file`` where the tables know them.

    No line moves: the directives stand in empty lines, those of files at the end.  A
    table that is damaged tells nothing.
    """
    known = _known(sections)
    lines = text.split("\n")
    files: dict[str, int] = {}
    for begin, end in _parts(lines):
        votes: Counter[Places] = Counter()
        for number in range(begin, end):
            votes.update(known.get(number + 1, ()))
        if votes:
            lines[begin - 1] = _directive(votes.most_common(1)[0][0], files)
    lines += [f'.file {number} "{file}"' for file, number in files.items()]
    return "\n".join(lines)


def _directive(places: Places, files: dict[str, int]) -> str:
    """The ``.loc`` of a place, after those of the calls that it is in."""
    words, outer = [], ""
    for file, line in places:
        place = f"{files.setdefault(file, len(files) + 1)} {line} 0"
        words.append(f".loc {place}{outer}")
        outer = f", function_name $inlined, inlined_at {place}"
    return " ".join(words)


def _known(sections: Mapping[str, bytes]) -> dict[int, list[Places]]:
    """The places of the source that a line of the PTX has machine code of."""
    rows: dict[int, list[LineRow]] = defaultdict(list)
    for row in _rows(sections, _SOURCE):
        rows[row.function].append(row)
    found: dict[int, list[Places]] = defaultdict(list)
    addresses = {function: [row.address for row in of] for function, of in rows.items()}
    for row in _rows(sections, _PTX):
        at = bisect_right(addresses.get(row.function, ()), row.address) - 1
        if at >= 0:
            places = rows[row.function][at].places
            if all(line > 0 and _can_be_written(file) for file, line in places):
                found[row.line].append(places)
    return found


def _can_be_written(file: str) -> bool:
    """Whether a name can stand in quotation marks in one line of PTX."""
    return bool(file) and file.isprintable() and '"' not in file


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


# ── programs of the host ────────────────────────────────────────────────────


class LineTable:
    """The lines of a program, by the addresses of its machine code."""

    def __init__(self, sections: Mapping[str, bytes]) -> None:
        self._rows = _rows(sections, _SOURCE)
        self._addresses = [row.address for row in self._rows]

    def at(self, address: int) -> tuple[str, int] | None:
        """The file and the line of an address; None if they are not known."""
        found = bisect_right(self._addresses, address) - 1
        row = self._rows[found] if found >= 0 else None
        return None if row is None or not row.line else (row.file, row.line)


# ── the format of DWARF, versions 2 to 5 ────────────────────────────────────


def _rows(sections: Mapping[str, bytes], name: str) -> list[LineRow]:
    """The rows of a table, by function and address; none if it cannot be read."""
    data = sections.get(name, b"")
    functions = {
        offset: info >> 32
        for kind, size in _RELOCATIONS.items()
        for offset, info in _entries(sections.get(f"{kind}{name}", b""), size)
    }
    found: list[LineRow] = []
    at = 0
    try:
        while at < len(data):
            end = at + 4 + int.from_bytes(data[at : at + 4], "little")
            found += _Program(data[at:end], at, functions, sections).rows()
            at = end
    except (IndexError, KeyError, struct.error, ValueError, ZeroDivisionError):
        return []
    # Where one part ends, the next may begin: the end, of line 0, comes first.
    return sorted(found, key=lambda row: (row.function, row.address, row.line > 0))


def _entries(data: bytes, size: int) -> Iterator[tuple[int, int]]:
    """The first two words of each entry."""
    for at in range(0, len(data) - size + 1, size):
        offset, info = struct.unpack_from("<QQ", data, at)
        yield offset, info


class _Program:
    """The instructions that make the rows of one part of a table."""

    def __init__(
        self,
        data: bytes,
        offset: int,
        functions: dict[int, int],
        sections: Mapping[str, bytes],
    ) -> None:
        self.data, self.offset, self.functions = data, offset, functions
        """The part, where it begins in the table, and functions by places there."""
        self.at, self.sections = 0, sections

    def rows(self) -> Iterator[LineRow]:
        """All rows."""
        (version,) = struct.unpack_from("<H", self.data, 4)
        if not 2 <= version <= 5:
            return
        self.at = 8 if version == 5 else 6  # 5: sizes of addresses come first
        (length,) = struct.unpack_from("<I", self.data, self.at)
        self.at += 4
        begin, step = self.at + length, self._byte()
        if version >= 4:
            self._byte()  # operations in one instruction
        _, base, wide, first = struct.unpack_from("<BbBB", self.data, self.at)
        self.at += 4
        counts = [self._byte() for _ in range(first - 1)]
        self.files = self._described_files() if version == 5 else self._files()
        self.at = begin
        self._reset()
        while self.at < len(self.data):
            code = self._byte()
            if code >= first:
                code -= first
                self.address += code // wide * step
                self.line += base + code % wide
                self._row()
            elif code:
                if self._standard(code, counts[code - 1], step, (255 - first) // wide):
                    self._row()
            else:
                yield from self._extended()

    def _reset(self) -> None:
        self.function, self.address, self.file, self.line = -1, 0, 1, 1
        self.callers: Places = ()
        self.made: list[LineRow] = []

    def _row(self) -> None:
        file = self.files.get(self.file, "")
        made = LineRow(self.function, self.address, file, self.line, self.callers)
        self.made.append(made)

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

    def _extended(self) -> Iterator[LineRow]:
        """Do an instruction with a length; the rows of a function at its end.

        Those that are not known are left out.  0x90 is NVIDIA's own: what follows is
        inlined where the row of a number, from 1, is; 0 ends that.
        """
        length = self._unsigned()
        begin = self.at
        code = self._byte()
        if code == 1:
            self.line = 0
            self._row()
            yield from self.made
            self._reset()
        elif code == 0x90:
            number = self._unsigned()
            self.callers = self.made[number - 1].places if number else ()
            if len(self.callers) > _MOST_CALLS:
                raise ValueError("calls are inlined in too many others")
        elif code == 2:
            self.function = self.functions.get(self.offset + self.at, -1)
            address = self.data[self.at : min(begin + length, self.at + 8)]
            self.address = int.from_bytes(address, "little")
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

    def _described_files(self) -> dict[int, str]:
        """The names of the files, from 0; the first folder is that of the compiler."""
        folders = [str(each.get(1, "")) for each in self._described()]
        found: dict[int, str] = {}
        for number, each in enumerate(self._described()):
            place, name = int(each.get(2, 0)), str(each.get(1, ""))
            folder = folders[place] if place < len(folders) else ""
            path = posixpath.join(*folders[:1], folder, name)
            found[number] = posixpath.normpath(path)
        return found

    def _described(self) -> list[dict[int, int | str]]:
        """A list whose entries are described before it: 1 is a name, 2 a folder."""
        count = self._byte()
        kinds = [(self._unsigned(), self._unsigned()) for _ in range(count)]
        entries = self._unsigned()
        if entries > len(self.data):
            raise ValueError("a list is longer than the table")
        return [
            {kind: self._value(form) for kind, form in kinds} for _ in range(entries)
        ]

    def _value(self, form: int) -> int | str:
        """A value of one of the forms that such a list may have."""
        if form == 0x08:
            return self._text()
        if form == 0x0F:
            return self._unsigned()
        size = _FORMS[form]
        self.at += size
        value = int.from_bytes(self.data[self.at - size : self.at], "little")
        strings = self.sections.get(_STRINGS.get(form, ""), b"")
        if form not in _STRINGS:
            return value
        return strings[value : strings.index(b"\0", value)].decode("utf-8", "replace")

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
        while bits < _MOST_BITS:
            byte = self._byte()
            value |= (byte & 127) << bits
            bits += 7
            if byte < 128:
                return value, bits, bool(byte & 64)
        raise ValueError("a number has too many bits")

    def _unsigned(self) -> int:
        return self._number()[0]

    def _signed(self) -> int:
        value, bits, negative = self._number()
        return value - (1 << bits) if negative else value
