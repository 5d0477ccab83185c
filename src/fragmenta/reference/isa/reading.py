"""Reads the mnemonic of an instruction.

A mnemonic is read qualifier by qualifier against the spelling of its family,
then against the rows of the family's table, so that the first thing wrong can
be named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache, lru_cache

from fragmenta.base.arrays.checks import is_whole
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.base.arrays.once import once
from fragmenta.errors import UnknownInstruction, shortened
from fragmenta.reference.isa.families import FORMS, uncovered
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.mnemonic_errors import contradiction, misspelled
from fragmenta.reference.isa.operand_checks import check
from fragmenta.reference.isa.statement import MOST, integer, listed, split
from fragmenta.reference.isa.table import Form, Row


def instruction(text: str | Instruction, *, idesc: int | None = None) -> Instruction:
    """The instruction that a PTX mnemonic names; an instruction is its own name.

    A whole statement is read, too; its operands have to fit.

    >>> str(instruction("@p mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 "
    ...                 "{%r1, %r2}, {%r3}, {%r4}, {%r1, %r2};"))
    'mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32'
    """
    if isinstance(text, Instruction):
        return text if idesc is None else text.with_descriptor(idesc)
    check_text(text)
    if idesc is not None and not is_whole(idesc):
        raise UnknownInstruction(f"idesc is a word of 32 bits; given {idesc!r}")
    guard, mnemonic, operands = split(text)
    op = _named(mnemonic)
    word = integer(operands) if op.tensor_memory else None
    if operands and word is None:
        check(op, operands, guard=guard)
        word = _descriptor_of(op, operands)
    if idesc is not None and word not in (None, idesc):
        raise UnknownInstruction(
            f"two instruction descriptors are given: {word:#010x} and idesc={idesc!r}"
        )
    word = word if idesc is None else idesc
    return op if word is None else _complete(op, word)


@lru_cache(maxsize=4096)
def _complete(op: Instruction, idesc: int) -> Instruction:
    return op.with_descriptor(idesc)


def _descriptor_of(op: Instruction, operands: str) -> int | None:
    """The instruction descriptor among the operands, if it is a constant."""
    if not op.tensor_memory:
        return None
    names = [each.name for each in op.operands]
    item = listed(operands)[names.index("idesc")].items[0]
    word = integer(item)
    return None if word is None else word & 0xFFFF_FFFF  # as int, its top bit is a sign


@lru_cache(maxsize=4096)
def _named(mnemonic: str) -> Instruction:
    found = readings(mnemonic)
    if not found[0].complete:
        words = mnemonic.split(".")
        whole = "sync" in words or found[0].named or uncovered(words)
        hint = "" if whole else "; find() takes names in short"
        raise UnknownInstruction(misspelled(mnemonic, found) + hint)
    return _choose(found[0])


def check_text(text: object) -> None:
    """Refuse what cannot name an instruction: not text, or too long."""
    if not isinstance(text, str):
        raise UnknownInstruction(f"an instruction is named by text; given {text!r}")
    if len(text) > MOST:
        raise UnknownInstruction(
            f"an instruction has at most {MOST:,} characters; given {shortened(text)}"
        )


def _choose(reading: SpellingMatch) -> Instruction:
    """The row that a well-spelled mnemonic names, or the first contradiction."""
    names = reading.form.fields(reading.spelling)
    row = select(reading.form, reading.values, names)
    values = {
        name: row.settle(name, reading.values.get(name, allowed[0]))
        for name, allowed in row.allowed.items()
    }
    return Instruction(reading.form, row, values)


def select(form: Form, values: Mapping[str, str], names: Iterable[str]) -> Row:
    """The first row that takes these qualifiers, or the first contradiction."""
    order = sorted(names, key=_importance)
    rows = list(form.rows)
    for position, name in enumerate(order):
        value = values.get(name, "")
        left = [row for row in rows if row.takes(name, value)]
        if not left:
            before = {n: values.get(n, "") for n in order[:position]}
            raise UnknownInstruction(
                contradiction(form, rows, before, name, value, values)
            )
        rows = left
    return rows[0]


def _importance(name: str) -> int:
    """Shape and multiplicands first: they are what users look for."""
    first = ("sp", "shape", "kind", "tile", "a", "b", "type", "operand", "num")
    return first.index(name) if name in first else len(first)


# ── how far does a mnemonic follow a spelling? ──────────────────────────────


@dataclass(frozen=True)
class SpellingMatch:
    """How far a mnemonic follows one spelling, and what it says."""

    form: Form
    spelling: str
    values: Mapping[str, str]
    consumed: int
    complete: bool
    expected: str
    named: bool = False
    """Whether the rest may stand in any order, and the words before it are there."""
    left: tuple[str, ...] = ()
    """Then, the words of the rest that fit no qualifier."""


def readings(mnemonic: str) -> list[SpellingMatch]:
    """The readings that get furthest, complete ones alone.

    >>> [each.expected for each in readings("wgmma.what")][-2:]
    ['commit_group', 'wait_group']
    """
    tokens = mnemonic.split(".")
    found = [
        _read(form, spelling, tokens)
        for form in _begun().get(tokens[0], FORMS)
        for spelling in form.spellings
    ]
    furthest = max((each.complete, each.consumed) for each in found)
    return [each for each in found if (each.complete, each.consumed) == furthest]


@once
def _begun() -> Mapping[str, tuple[Form, ...]]:
    """The families by the first word of their instructions."""
    names = dict.fromkeys(form.spellings[0].split(".")[0] for form in FORMS)
    return {
        name: tuple(f for f in FORMS if f.spellings[0].split(".")[0] == name)
        for name in names
    }


@cache
def _grammar(form: Form, spelling: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The spelling as steps: ('', (literal,)) or (field, its values)."""
    steps = []
    for item in spelling.split("."):
        field = item.strip("{}") if item.startswith("{") else ""
        words = form.vocabulary(field) if field else [item]
        steps.append((field, tuple(sorted(words, key=len, reverse=True))))
    return tuple(steps)


def _read(form: Form, spelling: str, tokens: list[str]) -> SpellingMatch:
    if form.any_order:
        return _read_in_any_order(form, spelling, tokens)
    values: dict[str, str] = {}
    position = 0
    for field, words in _grammar(form, spelling):
        for word in words:
            parts = word.split(".") if word else []
            if tokens[position : position + len(parts)] == parts:
                break
        else:
            expected = field or words[0]
            return SpellingMatch(form, spelling, values, position, False, expected)
        if field:
            values[field] = word
        position += len(parts)
    complete = position == len(tokens)
    return SpellingMatch(form, spelling, values, position, complete, "")


def _read_in_any_order(form: Form, spelling: str, tokens: list[str]) -> SpellingMatch:
    """The same where the words after the name of an instruction have no order.

    The words of one qualifier, such as ``.b8x16.b4x16_p64``, keep theirs.
    """
    head = form.any_order.split(".")
    named = next(
        (i for i, word in enumerate(head) if tokens[i : i + 1] != [word]), None
    )
    if named is not None:
        return SpellingMatch(form, spelling, {}, named, False, head[named])
    values: dict[str, str] = {}
    left = tokens[len(head) :]
    missing = ""
    for field, words in _grammar(form, spelling)[len(head) :]:
        found = next((word for word in words if _within(word, left)), None)
        if found is None:
            missing = missing or field or words[0]
            continue
        for part in found.split(".") if found else ():
            left.remove(part)
        if field:
            values[field] = found
    consumed = len(tokens) - len(left)
    complete = not (missing or left)
    return SpellingMatch(
        form,
        spelling,
        values,
        consumed,
        complete,
        missing,
        named=True,
        left=tuple(left),
    )


def _within(word: str, tokens: list[str]) -> bool:
    """Whether the parts of a word are among these, in their order."""
    rest = iter(tokens)
    return all(part in rest for part in word.split(".")) if word else True
