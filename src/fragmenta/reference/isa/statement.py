"""Splits a PTX statement into its parts.

::

    label: @!%p mma.sync…  {%d0, %d1}, {%a0}, %r1, 0x2;  // comment

:func:`split` finds the guard, the mnemonic and the text of the operands;
:func:`listed` reads that text.  What the operands have to be is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from fragmenta.errors import BadOperands, UnknownInstruction, shortened

MOST = 16_384
"""The most characters a statement may have; the longest need about 2,000."""

_NAME = r"(?:[A-Za-z][\w$]*|[_$%][\w$]+)"
_LABEL = re.compile(rf"\s*{_NAME}\s*:(?!:)", re.ASCII)
_GUARD = re.compile(rf"\s*@\s*!?\s*({_NAME})(?![\w$.])", re.ASCII)
# White space may come before a dot, not after one.
_MNEMONIC = re.compile(r"\s*([\w:]+(?:\s*\.[\w:]+)*)", re.ASCII)


class Statement(NamedTuple):
    """One PTX statement in parts."""

    guard: str
    """The predicate after the ``@``, or nothing."""
    mnemonic: str
    operands: str
    """What is between the mnemonic and the semicolon."""


def split(text: str) -> Statement:
    """The parts of a statement; comments, a label and the semicolon are left out.

    >>> split("@!%p mma .sync  {%r0}, 1; // why")
    Statement(guard='%p', mnemonic='mma.sync', operands='{%r0}, 1')
    """
    if len(text) > MOST:
        raise UnknownInstruction(
            f"an instruction has at most {MOST:,} characters; given {shortened(text)}"
        )
    bare = "".join(_without_comments(text))
    label = _LABEL.match(bare)
    start = label.end() if label else 0
    guard = _GUARD.match(bare, start)
    match = _MNEMONIC.match(bare, guard.end() if guard else start)
    if match is None:
        raise UnknownInstruction(f"{shortened(text)} does not begin with a mnemonic")
    operands, _, rest = bare[match.end() :].partition(";")
    if rest.strip():
        raise BadOperands(
            f"one instruction at a time; after the semicolon there is "
            f"{shortened(rest.strip())}"
        )
    mnemonic = re.sub(r"\s+", "", match[1])
    if operands.startswith("."):
        raise UnknownInstruction(
            f"no qualifier follows the dot after {shortened(mnemonic)}; PTX allows "
            "white space before a dot, not after it"
        )
    return Statement(guard[1] if guard else "", mnemonic, operands.strip())


def _without_comments(text: str) -> Iterator[str]:
    """The text between comments; each comment leaves a space."""
    position = 0
    for opening in re.finditer(r"/\*|//", text):
        if opening.start() < position:  # inside a comment
            continue
        yield text[position : opening.start()]
        yield " "
        closing = "*/" if opening[0] == "/*" else "\n"
        end = text.find(closing, opening.end())
        if end < 0 and closing == "*/":
            raise UnknownInstruction("a comment opens with /* and does not close")
        position = len(text) if end < 0 else end + len(closing)
    yield text[position:]


# ── operands ────────────────────────────────────────────────────────────────


class OperandText(NamedTuple):
    """One operand as it was written."""

    form: str
    """``vector`` in braces, ``address`` in brackets, else ``scalar``."""
    items: tuple[str, ...]
    """Names and numbers; a sign or a ``!`` belongs to its item."""

    def __str__(self) -> str:
        if self.form == "vector":
            return "{" + ", ".join(self.items) + "}"
        if self.form == "address":
            return "[" + "+".join(self.items) + "]"
        return self.items[0]


# A number ends where no letter, digit or dot follows: 08 and 1u are not numbers.
_TOKEN = re.compile(
    rf"""\s*(?:
    (?P<name>{_NAME}(?:\.[xyzwrgba](?![\w$]))?|_(?![\w$]))
    |(?P<float>(?:0[fF][0-9a-fA-F]{{8}}|0[dD][0-9a-fA-F]{{16}}
        |\d+\.\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)(?![\w.]))
    |(?P<integer>(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[0-7]*|[1-9]\d*)U?(?![\w.]))
    |(?P<mark>[{{}}\[\],+!-])
    )""",
    re.ASCII | re.VERBOSE,
)
_CLOSED = {"{": ("vector", "}", ","), "[": ("address", "]", "+")}


class Unreadable(Exception):
    """The text is not a list of operands; the message says where it stops being one."""


def kind_of(item: str) -> str:
    """``name``, ``float`` or ``integer``: what one item of an operand is.

    >>> [kind_of(item) for item in ("%r1", "_", "0f3F800000", "-0x1", "!%p")]
    ['name', 'name', 'float', 'integer', 'name']
    """
    match = _TOKEN.match(item.lstrip("+-!"))
    return match.lastgroup or "" if match else ""


def integer(item: str) -> int | None:
    """The value of an integer constant; None for anything else or beyond 64 bits.

    >>> integer("-0x10"), integer("010"), integer("0b11U"), integer("%r0")
    (-16, 8, 3, None)
    >>> integer("9" * 5000), integer("0=y.npy")
    (None, None)
    """
    digits = item.lstrip("+-").strip().removesuffix("U")
    if len(digits) > len("0b") + 64:
        return None
    match = _TOKEN.fullmatch(digits)
    if match is None or match.lastgroup != "integer":
        return None
    if re.fullmatch(r"0[0-7]+", digits):
        digits = f"0o{digits}"
    value = int(digits, 0)
    if value >= 1 << 64:
        return None
    return -value if item.startswith("-") else value


def listed(text: str) -> list[OperandText]:
    """The operands of a statement, as they are written.

    >>> [str(each) for each in listed("{%r0,%r1}, [%rd0 + 16], -1, !%p")]
    ['{%r0, %r1}', '[%rd0+16]', '-1', '!%p']
    >>> listed("garbage !!")
    Traceback (most recent call last):
    ...
    fragmenta.reference.isa.statement.Unreadable: '!!' does not belong there
    """
    tokens = _Tokens(text)
    found = [_operand(tokens)]
    while not tokens.ended:
        tokens.take(",")
        found.append(_operand(tokens))
    return found


class _Tokens:
    """The text, token by token."""

    def __init__(self, text: str) -> None:
        self.text, self.position = text.strip(), 0

    @property
    def ended(self) -> bool:
        return self.position == len(self.text)

    def peek(self) -> re.Match[str]:
        match = _TOKEN.match(self.text, self.position)
        if match is None:
            self.refuse()
        return match

    def refuse(self) -> NoReturn:
        rest = self.text[self.position :].strip()
        raise Unreadable(
            f"{shortened(rest)} does not belong there" if rest else "it ends too soon"
        )

    def take(self, *marks: str) -> str:
        """The next token: one of these marks, or with none any name or number."""
        match = self.peek()
        mark = match["mark"]
        if (mark not in marks) if marks else mark:
            self.refuse()
        self.position = match.end()
        return match[0].strip()


def _operand(tokens: _Tokens) -> OperandText:
    opening = tokens.peek()["mark"]
    if opening not in _CLOSED:
        return OperandText("scalar", (_item(tokens, "!+-"),))
    form, closing, between = _CLOSED[opening]
    tokens.take(opening)
    items = [_item(tokens, "+-")]
    while tokens.take(between, closing) == between:
        items.append(_item(tokens, "+-"))
    return OperandText(form, tuple(items))


def _item(tokens: _Tokens, signs: str) -> str:
    """A name or a number, with the sign or the ``!`` before it."""
    mark = tokens.peek()["mark"]
    sign = tokens.take(mark) if mark and mark in signs else ""
    item = tokens.take()
    kind = kind_of(item)
    if (sign == "!" and kind == "float") or (sign in ("+", "-") and kind != "integer"):
        raise Unreadable(f"{sign}{item} is neither a register nor a constant")
    return sign + item
