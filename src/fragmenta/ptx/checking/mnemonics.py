"""Finds the lines of the table that a mnemonic follows, or what is wrong with it.

ptxas takes most modifiers in any order.  So does this module; only types, state spaces
and priorities have an order of their own, and the words that make the name of the
instruction (``mbarrier.try_wait.parity``) come first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import nearest, one_of
from fragmenta.ptx import rules
from fragmenta.ptx.opcodes import TABLE
from fragmenta.ptx.opcodes.newer import not_covered
from fragmenta.ptx.opcodes.table import TYPES, Match, QualifierSlot, Syntax, qualifier
from fragmenta.ptx.opcodes.tensor import TENSOR
from fragmenta.ptx.opcodes.textures import TEXTURES
from fragmenta.ptx.rules import ERROR, WARNING, Rule
from fragmenta.reference.isa.families import OTHERS

#: Words that ptxas lets stand twice.
_TWICE = ("NaN", "approx", "cc", "relu", "sat", "satfinite", "shiftamt", "sync", "uni")
#: Words of testp and tensormap.replace, and ``.pred``: ptxas ignores them elsewhere.
_IGNORED = (
    "finite",
    "infinite",
    "number",
    "notanumber",
    "normal",
    "subnormal",
    "box_dim",
    "element_stride",
    "elemtype",
    "fill_mode",
    "global_address",
    "global_dim",
    "global_stride",
    "interleave_layout",
    "rank",
    "swizzle_mode",
    "swizzle_atomicity",
    "pred",
)
_SPACES = ("shared", "global", "local", "const", "param", "L2::evict")


@dataclass(frozen=True)
class MnemonicMatch:
    """What the table says about a mnemonic."""

    matches: tuple[Match, ...] = ()
    ordered: bool = True
    """Whether the modifiers stand in the order of the manual."""
    rule: Rule | None = None
    """The rule that is broken, if no line fits."""
    message: str = ""
    hint: str = ""
    at: int | None = None
    """The number of the qualifier that is wrong."""
    severity: str = ""
    """How bad it is that no line fits, if not as the rule says."""

    @property
    def refuses(self) -> bool:
        """Whether no line fits, and that is an error."""
        return self.rule is not None and (self.severity or self.rule.severity) == ERROR


@cache
def reading(mnemonic: str) -> MnemonicMatch:
    """The lines that a mnemonic follows, or why there is none.

    >>> reading("ld.global.v4.f32").matches[0].qualifiers["vec"]
    'v4'
    >>> print(reading("ld.globl.f32").message)
    ld has no modifier .globl (did you mean global?)
    """
    opcode, *words = mnemonic.split(".")
    newer = not_covered(mnemonic)
    if newer:
        return MnemonicMatch(rule=rules.NOT_COVERED, message=newer)
    lines = TABLE.lines.get(opcode, [])
    if not lines:
        return _without_lines(opcode)
    found = [each for line in lines if (each := line.match(mnemonic))]
    if found:
        return MnemonicMatch(tuple(found))
    once = [w for i, w in enumerate(words) if w not in _TWICE or w not in words[:i]]
    found = [each for line in lines if (each := _in_any_order(line, once))]
    if found:
        return MnemonicMatch(tuple(found), ordered=False)
    return _refused(opcode, words, lines)


def is_opcode(word: str) -> bool:
    """Whether PTX has instructions that begin with this word.

    >>> is_opcode("ld"), is_opcode("wgmma"), is_opcode("kernel")
    (True, True, False)
    """
    return word in _opcodes()


@cache
def _opcodes() -> frozenset[str]:
    return frozenset((*TABLE.lines, *TENSOR, *TEXTURES, *OTHERS.split()))


def _without_lines(opcode: str) -> MnemonicMatch:
    if is_opcode(opcode):
        return MnemonicMatch()
    return MnemonicMatch(
        rule=rules.UNKNOWN_OPCODE,
        message=f"no instruction {opcode}{nearest(opcode, sorted(_opcodes()))}",
    )


# ── any order ───────────────────────────────────────────────────────────────


def _in_any_order(line: Syntax, words: Sequence[str]) -> Match | None:
    placed = next(_assignments(line, words, whole=True), None)
    return None if placed is None else Match(line, placed)


def _assignments(
    line: Syntax, words: Sequence[str], whole: bool
) -> Iterator[Mapping[str, str]]:
    """Ways to give each word a place in the line; with ``whole``, to all of them."""
    taken: dict[int, int] = {}

    def place(number: int) -> Iterator[Mapping[str, str]]:
        if number == len(line.pieces):
            if not whole or len(taken) == len(words):
                yield _named(line.pieces, words, taken)
            return
        piece = line.pieces[number]
        for at, word in enumerate(words):
            free = at not in taken.values() and word in piece.words
            if not free or (number < line.fixed and at != number):
                continue
            if _out_of_order(words, at, taken):
                continue
            taken[number] = at
            yield from place(number + 1)
            del taken[number]
        if piece.optional:
            yield from place(number + 1)

    yield from place(0)


def _out_of_order(words: Sequence[str], at: int, taken: Mapping[int, int]) -> bool:
    """Whether a word stands before one of its kind that was placed before it."""
    kind = _order(words[at])
    return bool(kind) and any(
        other > at and _order(words[other]) == kind for other in taken.values()
    )


def _order(word: str) -> str:
    if word in TYPES or re.fullmatch(r"[bsuf]\d{1,3}", word):
        return "type"
    if word.startswith("L2::evict"):
        return "priority"
    return "space" if word.startswith(_SPACES) else ""


def _named(
    pieces: tuple[QualifierSlot, ...], words: Sequence[str], taken: Mapping[int, int]
) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for number, piece in enumerate(pieces):
        word = words[taken[number]] if number in taken else ""
        found.setdefault(qualifier(piece), word)
    return found


# ── what is wrong ───────────────────────────────────────────────────────────


def _refused(
    opcode: str, words: Sequence[str], lines: Sequence[Syntax]
) -> MnemonicMatch:
    """Why no line takes these words: a strange one, one too many, one missing."""
    known = {word for line in lines for piece in line.pieces for word in piece.words}
    for number, word in enumerate(words):
        if word not in known:
            message = f"{opcode} has no modifier .{word}{nearest(word, sorted(known))}"
            rest = ".".join((opcode, *words[:number], *words[number + 1 :]))
            ignored = word in _IGNORED and reading(rest).matches
            lax = WARNING if ignored else ""
            return MnemonicMatch(
                rule=rules.UNKNOWN_MODIFIER, message=message, at=number, severity=lax
            )
    line = max(lines, key=lambda each: _likeness(each, words))
    missing = [
        piece
        for piece in line.pieces
        if not piece.optional and not set(piece.words) & set(words)
    ]
    hint = f"the nearest form is {spelled(line)}"
    if missing:
        allowed = one_of(f".{word}" for word in missing[0].words)
        message = f"{'.'.join((opcode, *words))} lacks {allowed}"
        return MnemonicMatch(rule=rules.MODIFIERS, message=message, hint=hint)
    places = {word for piece in line.pieces for word in piece.words}
    strange = (i for i, word in enumerate(words) if word not in places)
    twice = (i for i, word in enumerate(words) if word in words[:i])
    at = next(strange, next(twice, None))
    what = (
        "these modifiers do not go together"
        if at is None
        else (f".{words[at]} does not go with the other modifiers")
    )
    return MnemonicMatch(
        rule=rules.MODIFIERS,
        message=f"{'.'.join((opcode, *words))}: {what}",
        hint=hint,
        at=at,
    )


def _likeness(line: Syntax, words: Sequence[str]) -> tuple[int, int, int]:
    """How near a line is to these words; one with more of them is nearer."""
    places = {word for piece in line.pieces for word in piece.words}
    missing = sum(
        not piece.optional and not set(piece.words) & set(words)
        for piece in line.pieces
    )
    there = sum(word in places for word in words)
    return there - missing, there, -len(line.pieces)


def spelled(line: Syntax) -> str:
    """A line as the manual writes it, without operands.

    >>> spelled(TABLE.lines["nanosleep"][0])
    'nanosleep.u32'
    """
    return line.text.split(";")[0].split()[0]
