"""The recorded SASS of every instruction.

``tables/sass.txt`` has, for every instruction and every architecture, the machine
instructions that ptxas wrote, as nvdisasm reads them.  A suffix of a target, ``a`` or
``f``, changes nothing.  ``python -m tests.isa.sass`` writes that file, and says how it
is recorded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import Error
from fragmenta.reference.isa.target import ARCHITECTURES

FILE = Path(__file__).parent / "tables" / "sass.txt"

Code = tuple[tuple[str, int], ...]
"""Names of machine instructions, with how many of each there are."""

Row = tuple[tuple[tuple[int, ...], Code, int], ...]
"""Architectures, what is written for them, and how many other instructions."""


class Rows(Mapping[str, Row]):
    """What is written for each mnemonic, as text that is read when it is asked for."""

    def __init__(self, heads: Mapping[str, str]) -> None:
        self._heads = heads

    def __getitem__(self, mnemonic: str) -> Row:
        return _row(self._heads[mnemonic])

    def __iter__(self) -> Iterator[str]:
        return iter(self._heads)

    def __len__(self) -> int:
        return len(self._heads)


@dataclass(frozen=True)
class SassRecords:
    """What ``tables/sass.txt`` says.

    >>> recorded().tools[90]
    ('13.5.37', '13.5.37')
    """

    tools: Mapping[int, tuple[str, str]]
    """For each architecture, the versions of ptxas and nvdisasm."""
    rows: Mapping[str, Row]
    """For each mnemonic, what is written for it."""

    def on(self, mnemonic: str, arch: int) -> tuple[Code, int]:
        """What is written for one architecture, and how many others."""
        for archs, code, others in self.rows.get(mnemonic, ()):
            if arch in archs:
                return code, others
        raise Error(f"no machine code is recorded for {mnemonic} on sm_{arch}")


@cache
def recorded() -> SassRecords:
    """The recording, read once.

    >>> len(recorded().rows)
    4357
    """
    return parse(FILE.read_text(encoding="utf-8"))


def parse(text: str) -> SassRecords:
    r"""Read a recording.

    A line with a colon says what is written for some architectures; the instructions
    for which that is so follow, indented.  Numbers after one take the place of ``{n}``.

    >>> text = "tools 90 13.4.92 13.4.92\n90: HGMMA.64x{n}x8.F32.TF32 +2\n  wgmma.{n} 8 16"
    >>> parse(text).on("wgmma.16", 90)
    ((('HGMMA.64x16x8.F32.TF32', 1),), 2)
    """
    tools: dict[int, tuple[str, str]] = {}
    heads: dict[str, str] = {}
    head = ""
    for line in text.splitlines():
        if line.startswith("tools "):
            _, archs, ptxas, nvdisasm = line.split()
            tools |= dict.fromkeys(_numbers(archs), (ptxas, nvdisasm))
        elif line.startswith("  "):
            mnemonic, *sizes = line.split()
            for n in sizes or [""]:
                heads[mnemonic.replace("{n}", n)] = head.replace("{n}", n)
        elif line and not line.startswith("#"):
            head = line
    return SassRecords(tools, Rows(heads))


def written(tools: Mapping[int, tuple[str, str]], rows: Mapping[str, Row]) -> str:
    """A recording as text: the inverse of :func:`parse`.

    >>> again = written(recorded().tools, recorded().rows)
    >>> again == FILE.read_text(encoding="utf-8")
    True
    """
    lines = ["# Written by python -m tests.isa.sass from what ptxas and nvdisasm say."]
    for versions in dict.fromkeys(tools.values()):
        archs = [arch for arch, each in tools.items() if each == versions]
        lines.append(f"tools {ranges(archs)} {' '.join(versions)}")
    blocks: dict[str, dict[str, list[str]]] = {}
    for mnemonic, row in rows.items():
        short, head, size = _short(mnemonic, _head(row))
        blocks.setdefault(head, {}).setdefault(short, []).extend(size)
    for head, mnemonics in blocks.items():
        lines += ["", head]
        lines += ["  " + " ".join([name, *size]) for name, size in mnemonics.items()]
    return "\n".join(lines) + "\n"


def _short(mnemonic: str, head: str) -> tuple[str, str, list[str]]:
    """Both texts without the n of a ``wgmma``, and that n."""
    match = re.match(r"(wgmma\..*\.m64n)(\d+)(k.*)", mnemonic)
    if match is None:
        return mnemonic, head, []
    return (
        f"{match[1]}{{n}}{match[3]}",
        head.replace(f"x{match[2]}x", "x{n}x"),
        [match[2]],
    )


@cache
def _row(head: str) -> Row:
    found = []
    for part in head.split("; "):
        archs, _, names = part.partition(":")
        words = names.split()
        others = int(words.pop()) if words and words[-1][0] == "+" else 0
        pairs = [word.partition("*") for word in words]
        code = tuple((name, int(count or 1)) for name, _, count in pairs)
        found.append((_numbers(archs), code, others))
    return tuple(found)


def _head(row: Row) -> str:
    parts = []
    for archs, code, others in row:
        words = [name if count == 1 else f"{name}*{count}" for name, count in code]
        words += [f"+{others}"] if others else []
        parts.append(" ".join([f"{ranges(archs)}:", *words]))
    return "; ".join(parts)


def _numbers(text: str) -> tuple[int, ...]:
    """The architectures that a text names: 80..89,100."""
    ends = [part.partition("..") for part in text.split(",")]
    return tuple(
        arch
        for first, _, last in ends
        for arch in ARCHITECTURES
        if int(first) <= arch <= int(last or first)
    )


def ranges(archs: Sequence[int]) -> str:
    """Architectures as text: 80..89,100.  A range has no gap in the list of all.

    >>> ranges([80, 86, 87, 100])
    '80..87,100'
    """
    return ",".join(_runs(archs))


def _runs(archs: Sequence[int]) -> Iterator[str]:
    places = sorted(ARCHITECTURES.index(arch) for arch in archs)
    while places:
        length = 1
        while places[length:] and places[length] == places[0] + length:
            length += 1
        first, last = ARCHITECTURES[places[0]], ARCHITECTURES[places[length - 1]]
        yield str(first) if length == 1 else f"{first}..{last}"
        places = places[length:]
