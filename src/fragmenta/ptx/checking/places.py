"""Finds the place of a part of an instruction in the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from fragmenta.base.arrays.once import once_property
from fragmenta.ptx.module import Instruction
from fragmenta.ptx.reading.lexer import PtxText


class LineSpan(NamedTuple):
    """A part of one line."""

    line: int
    column: int
    length: int


_HEAD = re.compile(r"\s*(?:@\s*!?\s*[%$\w]+\s+)?([\w:]+(?:\s*\.[\w:]+)*)\s*")
_GUARD = re.compile(r"@\s*!?\s*[%$\w]+")


class SpanFinder:
    """Finds the parts of instructions in a text."""

    def __init__(self, text: str):
        self.raw = text

    @once_property
    def _text(self) -> PtxText:
        return PtxText(self.raw)

    @property
    def clean(self) -> str:
        """The text with blanks in the place of comments."""
        return self._text.clean

    def line(self, number: int) -> str:
        """One line of the text."""
        starts = self._text.starts
        if not 1 <= number <= len(starts):
            return ""
        end = starts[number] if number < len(starts) else len(self.raw)
        return self.raw[starts[number - 1] : end].rstrip("\r\n\0")

    def statement(self, of: Instruction) -> tuple[int, str]:
        """The offset of an instruction, and its text without comments and semicolon."""
        text = self._text
        start = text.starts[of.line - 1] + of.column - 1
        end = text.clean.find(";", start)
        return start, text.clean[start : end if end >= 0 else None]

    @staticmethod
    def operands_text(statement: str) -> str:
        """What stands after the mnemonic of a statement."""
        head = _HEAD.match(statement)
        return statement[head.end() :].strip() if head else ""

    def of(self, offset: int, length: int) -> LineSpan:
        """The place of an offset; what goes beyond the line is left out."""
        line, column = self._text.place(offset)
        return LineSpan(
            line, column, max(1, min(length, len(self.line(line)) - column + 1))
        )

    def whole(self, of: Instruction) -> LineSpan:
        """The mnemonic of an instruction."""
        start, text = self.statement(of)
        head = _HEAD.match(text)
        if head is None:
            return self.of(start, 1)
        return self.of(start + head.start(1), len(head[1]))

    def guard(self, of: Instruction) -> LineSpan:
        """The guard of an instruction."""
        start, text = self.statement(of)
        found = _GUARD.match(text)
        return self.of(start, found.end() if found else 1)

    def qualifier(self, of: Instruction, index: int) -> LineSpan:
        """One word after the opcode, by its number, with its dot."""
        start, text = self.statement(of)
        head = _HEAD.match(text)
        found = list(re.finditer(r"\.[\w:]+", head[0])) if head else []
        if index >= len(found) or head is None:
            return self.whole(of)
        return self.of(start + found[index].start(), len(found[index][0]))

    def operand(self, of: Instruction, index: int) -> LineSpan:
        """One operand, by its number."""
        start, text = self.statement(of)
        head = _HEAD.match(text)
        pieces = list(_pieces(text, head.end() if head else 0))
        if index >= len(pieces):
            return self.whole(of)
        first, last = pieces[index]
        return self.of(start + first, last - first)


def _pieces(text: str, at: int) -> Iterator[tuple[int, int]]:
    """Where each operand begins and ends."""
    depth, start = 0, at
    for position in range(at, len(text) + 1):
        mark = text[position] if position < len(text) else ","
        depth += (mark in "{[(") - (mark in "}])")
        if mark == "," and depth <= 0:
            piece = text[start:position]
            first = start + len(piece) - len(piece.lstrip())
            yield first, max(first + 1, start + len(piece.rstrip()))
            start = position + 1
