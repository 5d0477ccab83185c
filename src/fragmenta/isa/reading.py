"""How far does a mnemonic follow the spelling of a family?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from fragmenta.isa.families import FORMS
from fragmenta.isa.table import Form


@dataclass(frozen=True)
class Reading:
    """How far a mnemonic follows one spelling, and what it says."""

    form: Form
    spelling: str
    values: Mapping[str, str]
    consumed: int
    complete: bool
    expected: str


def readings(mnemonic: str) -> list[Reading]:
    """The readings that get furthest, complete ones alone.

    >>> [each.expected for each in readings("wgmma.what")][-2:]
    ['commit_group', 'wait_group']
    """
    tokens = mnemonic.split(".")
    found = [
        _read(form, spelling, tokens) for form in FORMS for spelling in form.spellings
    ]
    furthest = max((each.complete, each.consumed) for each in found)
    return [each for each in found if (each.complete, each.consumed) == furthest]


@cache
def _grammar(form: Form, spelling: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The spelling as steps: ('', (literal,)) or (field, its values)."""
    steps = []
    for item in spelling.split("."):
        field = item.strip("{}") if item.startswith("{") else ""
        words = form.vocabulary(field) if field else [item]
        steps.append((field, tuple(sorted(words, key=len, reverse=True))))
    return tuple(steps)


def _read(form: Form, spelling: str, tokens: list[str]) -> Reading:
    values: dict[str, str] = {}
    position = 0
    for field, words in _grammar(form, spelling):
        for word in words:
            parts = word.split(".") if word else []
            if tokens[position : position + len(parts)] == parts:
                break
        else:
            expected = field or words[0]
            return Reading(form, spelling, values, position, False, expected)
        if field:
            values[field] = word
        position += len(parts)
    complete = position == len(tokens)
    return Reading(form, spelling, values, position, complete, "")
