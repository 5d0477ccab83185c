"""Splits PTX text into words, and knows the place of each.

Comments are blanked first, so that every place in the text keeps its offset.  The
frequent statements are then read by one regular expression each; :class:`Cursor` reads
all others word by word.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from functools import cached_property
from typing import NoReturn

from fragmenta.errors import PtxSyntaxError, nearest, one_of

NAME = r"[%$_a-zA-Z][\w$]*"

_BLANKED = re.compile(
    r'"[^"]*"|//[^\n]*|/\*.*?\*/|^[ \t]*#[ \t]*(?:line\b|\d)[^\n]*|/\*',
    re.DOTALL | re.MULTILINE,
)
_INLINE = re.compile(r"//\s*begin inline asm\b(?s:.*?)(//\s*end inline asm\b|\Z)")
_FILLED = re.compile(r"[^\n]")

_TOKEN = re.compile(
    rf"""\s*+(?:
      (?P<name>{NAME})
    | (?P<number>0[fF][0-9a-fA-F]{{8}}(?!\w) | 0[dD][0-9a-fA-F]{{16}}(?!\w)
        | 0[xX][0-9a-fA-F]+U? | 0[bB][01]+U?
        | (?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)? | \d+[eE][+-]?\d+ | \d+U?)
    | (?P<directive>\.[a-zA-Z_]\w*)
    | (?P<string>"[^"]*")
    | (?P<mark><<|>>|<=|>=|==|!=|&&|\|\||.)
    )""",
    re.VERBOSE | re.ASCII | re.DOTALL,
)
MNEMONIC = re.compile(r"[a-zA-Z]\w*(?:\s*\.\w+(?:::\w+)*(?::\d+)?)*", re.ASCII)
_LONGEST_LINE, _MARGIN = 100, 40
MOST_DEPTH = 100
"""How deep brackets may be nested; compilers stay far below."""


class PtxText:
    r"""PTX text, and where its lines begin.

    >>> text = PtxText("// one\nret; // two\n")
    >>> text.clean
    '      \nret;       \n'
    >>> text.place(7)
    (2, 1)
    """

    def __init__(self, text: str, name: str = ""):
        self.raw, self.name = text, name
        self.starts = [0, *(found.end() for found in re.finditer("\n", text))]
        self.clean = _BLANKED.sub(self._blank, text)

    def _blank(self, found: re.Match[str]) -> str:
        word = found[0]
        if word[0] == '"':
            return word
        if word == "/*":
            self.fail(found.start(), "a comment that is not closed", ["*/"])
        return _FILLED.sub(" ", word)

    @cached_property
    def _inline(self) -> list[int]:
        """Where pieces of inline assembly begin and end, in turns."""
        found = _INLINE.finditer(self.raw)
        return [edge for each in found for edge in (each.start(), each.start(1))]

    def in_inline_assembly(self, at: int) -> bool:
        r"""Whether an offset is in what compilers mark as inline assembly.

        >>> text = PtxText("ret; // begin inline asm\nret; // end inline asm\nret;")
        >>> [text.in_inline_assembly(at) for at in (0, 25, 50)]
        [False, True, False]
        """
        return bool(bisect_right(self._inline, at) % 2)

    def place(self, at: int) -> tuple[int, int]:
        """The line and the column of an offset, both from 1."""
        line = bisect_right(self.starts, at)
        return line, at - self.starts[line - 1] + 1

    def fail(
        self, at: int, found: str, allowed: Iterable[str] = (), hint: str = ""
    ) -> NoReturn:
        """Raise the error for what was found, with the line and a caret below it."""
        line, column = self.place(at)
        allowed = list(allowed)
        may = f"; here may stand {one_of(allowed)}" if allowed else ""
        where = f"{self.name or 'PTX'}, line {line}, column {column}"
        raise PtxSyntaxError(
            f"{where}: found {found}{may}{hint}\n{self._shown(line, column)}",
            line,
            column,
            self.name,
        )

    def _shown(self, line: int, column: int) -> str:
        """A line of the text and a caret; a part of it, if the line is long."""
        first = self.starts[line - 1]
        end = self.raw.find("\n", first)
        shown = self.raw[first : end if end >= 0 else None].rstrip("\r")
        if len(shown) > _LONGEST_LINE:
            cut = max(0, column - 1 - _MARGIN)
            shown, column = shown[cut : cut + _LONGEST_LINE], column - cut
        # Everything that is not printed as one column would move the caret.
        shown = "".join(c if c.isprintable() else " " for c in shown)
        number = f"{line:>6}"
        return f"{number} | {shown}\n{' ' * len(number)} | {' ' * (column - 1)}^"


class Cursor:
    """Reads a text word by word; ``word`` is the one that comes next."""

    def __init__(self, text: PtxText):
        self.text, self.clean = text, text.clean
        self.depth = 0
        self.jump(0)

    def jump(self, at: int) -> None:
        """Go on at an offset."""
        found = _TOKEN.match(self.clean, at)
        if found is None:
            self.kind, self.word = "end", ""
            self.at = self.end = len(self.clean)
        else:
            self.kind = str(found.lastgroup)
            self.word = found[self.kind]
            self.at, self.end = found.start(self.kind), found.end()

    def step(self) -> str:
        """Take the word."""
        word = self.word
        self.jump(self.end)
        return word

    def accept(self, word: str) -> bool:
        """Take the word if it is this one."""
        if self.word != word:
            return False
        self.jump(self.end)
        return True

    def expect(self, word: str, *others: str) -> None:
        """Take this word; ``others`` are named in the error as allowed, too."""
        if not self.accept(word):
            self.fail(*others, f"'{word}'")

    def name(self, what: str) -> str:
        """Take a name."""
        if self.kind != "name" or self.word == "WARP_SZ":
            self.fail(what)
        return self.step()

    def number(self, what: str = "a number") -> int:
        """Take a whole number that stands alone."""
        word = self.word
        if self.kind != "number" or not re.fullmatch(r"\d{1,12}U?|0[xX]\w{1,12}", word):
            self.fail(what)
        self.step()
        return int(word.rstrip("U"), 16 if word[:2] in ("0x", "0X") else 10)

    def string(self) -> str:
        """Take a text in quotation marks."""
        if self.kind != "string":
            self.fail('a text in "…"')
        return self.step()[1:-1]

    def enter(self) -> None:
        """Go into a bracket."""
        self.depth += 1
        if self.depth > MOST_DEPTH:
            self.text.fail(self.at, f"brackets nested more than {MOST_DEPTH} deep")

    def leave(self) -> None:
        """Come out of a bracket."""
        self.depth -= 1

    def found(self) -> str:
        """The next word as an error names it."""
        if self.kind == "end":
            return "the end of the text"
        word = self.word if len(self.word) <= 60 else self.word[:60] + "…"
        return f"'{word}'" if word.isprintable() else repr(word)

    def fail(self, *allowed: str) -> NoReturn:
        """Raise the error for the next word."""
        hint = ""
        if self.kind in ("name", "directive"):
            hint = nearest(self.word, [word for word in allowed if " " not in word])
        self.text.fail(self.at, self.found(), allowed, hint)
