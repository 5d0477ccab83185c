"""Places that people name: lines of files, instructions, functions, bytes of memory."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.once import once_property
from fragmenta.errors import BadCall, nearest, one_of, shortened
from fragmenta.inspect.debugging.moments import Steps
from fragmenta.ptx.module import Instruction, demangled
from fragmenta.ptx.reading.file import parse

if TYPE_CHECKING:
    from fragmenta.inspect.debugging.records import LocatedProblem, UnitHistory
    from fragmenta.inspect.replay.parts import Site
    from fragmenta.inspect.replay.recorded import Replay
    from fragmenta.ptx.module import Function

MOST_LISTED = 6
Place = tuple[str, int]
"""A file and a line."""


class Spot(NamedTuple):
    """Where to stop: instructions, and how the place is called."""

    kind: Literal["line", "ptx", "function"]
    text: str
    sites: list[int]
    file: str
    line: int


class SourceLines:
    """The files of a recording, and the instructions of their lines."""

    def __init__(self, replay: Replay) -> None:
        self.replay = replay
        self._levels: dict[int | None, NDArray[np.int64]] = {}

    @cached_property
    def files(self) -> list[str]:
        """The PTX, then the sources."""
        return list(dict.fromkeys([self.ptx_name, *self.sources]))

    @property
    def ptx_name(self) -> str:
        """What the file of the PTX is called."""
        return self.replay.ptx_file

    @cached_property
    def sources(self) -> list[str]:
        """The files that the PTX was compiled from."""
        return list(dict.fromkeys(e.file for e in self.replay.sites if e.file))

    def text(self, file: str) -> list[str]:
        """The lines of a file; none if it was not recorded."""
        return self.replay.lines(file)

    def number(self, file: str) -> int:
        """A number for a file, from 1."""
        return self.files.index(file) + 1

    def by_number(self, number: int) -> str:
        """The file of a number."""
        if not 1 <= number <= len(self.files):
            raise BadCall(f"files are 1 to {len(self.files)}; given {number}")
        return self.files[number - 1]

    # ── lines of instructions ───────────────────────────────────────────────

    @cached_property
    def frames(self) -> list[tuple[Place, ...]]:
        """For each site the lines it is in: of the kernel, and of what was inlined."""
        return [self._frames(each) for each in self.replay.sites]

    def _frames(self, site: Site) -> tuple[Place, ...]:
        if not site.file:
            return ((self.ptx_name, site.ptx_line),)
        function = self._functions.get(site.function)
        source = function.instructions[site.index].source if function else None
        if source is None:
            return ((site.file, site.line),)
        return tuple((each.file, each.line) for each in source.frames)

    def at_level(self, level: int | None) -> NDArray[np.int64]:
        """For each site a number for its line; -1 if a compiler gave it none.

        With a level, it is the line of the function that so many others are around;
        what is inlined there counts as its line.
        """
        if level not in self._levels:
            known: dict[tuple[str, Place], int] = {}
            found = []
            for site, frames in zip(self.replay.sites, self.frames, strict=True):
                place = frames[-1 if level is None else min(level, len(frames) - 1)]
                key = site.function, place
                found.append(known.setdefault(key, len(known)) if place[1] else -1)
            self._levels[level] = np.array(found, np.int64)
        return self._levels[level]

    def line_in(self, file: str, site: int) -> int:
        """The line of an instruction in a file, outermost; 0 if it is of another."""
        if file == self.ptx_name:
            return self.replay.sites[site].ptx_line
        return next((line for of, line in self.frames[site] if of == file), 0)

    # ── places in words ─────────────────────────────────────────────────────

    def spot(self, text: str, here: Site | None) -> Spot:
        """A place as people write it: FILE:LINE, LINE, ptx:LINE, a name."""
        found = re.fullmatch(r"(?:(.*):)?\s*(\d{1,9})", text.strip(), re.DOTALL)
        if found is None:
            return self._named(text.strip())
        file = self._file(found[1], here)
        return self._line(file, int(found[2]))

    def _file(self, text: str | None, here: Site | None) -> str:
        """The file that a name means: its end is enough."""
        if text is None:
            return here.file if here and here.file else self.ptx_name
        if text == "ptx":
            return self.ptx_name
        plain = text.replace("\\", "/")
        have = [each.rpartition("/")[2] for each in self.files]
        found = [
            *(each for each in self.files if each == plain),
            *(each for each in self.files if f"/{each}".endswith(f"/{plain}")),
            *(each for each in self.files if f"/{plain}".endswith(f"/{each}")),
            *(f for f, name in zip(self.files, have, strict=True) if name == plain),
        ]
        if found:
            return found[0]
        listed = one_of(have[:MOST_LISTED], "and")
        raise BadCall(f"no file {text:.60}{nearest(text, have)}; there are {listed}")

    def _line(self, file: str, line: int) -> Spot:
        """The instructions of a line, or of the next one that has some."""
        ptx = file == self.ptx_name
        lines: dict[int, list[int]] = {}
        for number, each in enumerate(self.replay.sites):
            places = [(file, each.ptx_line)] if ptx else self.frames[number]
            for of, found in dict.fromkeys(places):
                if of == file:
                    lines.setdefault(found, []).append(number)
        later = [each for each in lines if each >= max(1, line)]
        if not later:
            last = max(lines, default=0)
            raise BadCall(
                f"{file.rpartition('/')[2]} has no instruction at line {line} or "
                f"behind it; the last one is at line {last}"
            )
        chosen = min(later)
        name = f"{file.rpartition('/')[2]}:{chosen}"
        return Spot("ptx" if ptx else "line", name, lines[chosen], file, chosen)

    def _named(self, text: str) -> Spot:
        """A function by its name, or an instruction by its opcode."""
        sites = self.replay.sites
        first = [
            number
            for number, each in enumerate(sites)
            if each.function == text and each.index == 0
        ]
        found = first or [
            number
            for number, each in enumerate(sites)
            if f"{each.opcode}.".startswith(f"{text}.")
        ]
        if not found or not text:
            names = {each.function for each in sites}
            opcodes = {each.opcode for each in sites}
            words = sorted({*names, *opcodes, *(e.split(".")[0] for e in opcodes)})
            raise BadCall(
                f"no function or instruction {shortened(text, 40)}"
                f"{nearest(text, words)}; a place is FILE:LINE, LINE, ptx:LINE, a "
                "function or an opcode such as mma"
            )
        site = sites[found[0]]
        file = site.file or self.ptx_name
        return Spot("function", text, found, file, self.line_in(file, found[0]))

    # ── the PTX ─────────────────────────────────────────────────────────────

    @once_property
    def _functions(self) -> dict[str, Function]:
        module = parse("\n".join(self.text(self.ptx_name)), self.ptx_name)
        return {demangled(name): each for name, each in module.functions.items()}

    def instruction(self, site: Site) -> Instruction:
        """An instruction with its operands, read from the PTX."""
        function = self._functions.get(site.function)
        if function is None or site.index >= len(function.instructions):
            raise BadCall(f"the PTX of {site.function} was not recorded")
        return function.instructions[site.index]


class MemoryRange(NamedTuple):
    """Some bytes of a memory."""

    memory: int
    offset: int
    size: int
    text: str

    def writes(self, replay: Replay) -> Steps:
        """The steps at which one of the bytes is written."""
        found = replay.columns
        start = found["w_offset"].astype(np.int64)
        meant = found["w_memory"] == self.memory
        meant &= start < self.offset + self.size
        meant &= start + found["w_size"] > self.offset
        steps = np.unique(found["w_step"][meant].astype(np.int64))
        return steps[steps < len(replay)]  # a unit may write after the last step

    def _overlaps(self, memory: int, offset: int, size: int) -> bool:
        near = offset < self.offset + self.size and self.offset < offset + size
        return memory == self.memory and near

    def touched_by(self, unit: UnitHistory) -> bool:
        """Whether a unit writes one of the bytes."""
        return any(self._overlaps(*each) for each in unit.writes)

    def concerned(self, problem: LocatedProblem) -> bool:
        """Whether a problem is about one of the bytes."""
        return any(self._overlaps(*each) for each in problem.ranges)
