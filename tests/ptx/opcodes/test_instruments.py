"""Every instrument is asked about every line of the table; none falls through unseen."""

from __future__ import annotations

from collections.abc import Container, Iterator

import pytest

from fragmenta.numerics.code.exact import MEANINGS
from fragmenta.planes.code import following
from fragmenta.planes.code.kinds import FLOATS
from fragmenta.ptx.opcodes import TABLE
from fragmenta.ptx.opcodes.table import COMPUTING, Syntax
from fragmenta.ptx.opcodes.tensor import NAMES
from fragmenta.races.probes import definedness

NEW = ("manages", "synchronises")
"""Kinds whose results are made of no operand."""
OF_LANES = {"activemask", "elect"}
"""Their results say which lanes are there, and have nothing of other operands."""
OF_CONDITIONS = {"match", "vote"}
"""Their results are truth values of all lanes, which have no second values."""
NOT_RUN = {"multimem"}


def lines() -> Iterator[Syntax]:
    for opcode in TABLE.lines:
        if not opcode.startswith("_"):  # those are parts of others
            yield from TABLE.lines[opcode]


def moved() -> dict[str, set[str]]:
    """The opcodes whose results come from elsewhere than their lane, with their kinds."""
    found: dict[str, set[str]] = {}
    for line in lines():
        kind = line.does[0]
        results = any(slot.result for slot in line.operands)
        if results and kind not in (*COMPUTING, *NEW):
            found.setdefault(line.opcode, set()).add(kind)
    for name, each in NAMES.items():
        if each.word in ("loads", "multiplies", "exchanges"):
            found.setdefault(name.partition(".")[0], set()).add(each.word)
    return found


@pytest.mark.parametrize(
    ("rules", "without"),
    [
        (definedness.RULES, OF_LANES | NOT_RUN),
        ({*following.RULES, "redux"}, OF_LANES | OF_CONDITIONS | NOT_RUN),
    ],
    ids=["undefined bits", "second values"],
)
def test_what_comes_from_elsewhere_has_a_rule(
    rules: Container[str], without: set[str]
) -> None:
    assert {opcode for opcode in moved() if opcode not in rules} == without
    opcodes = {*TABLE.lines} | {name.partition(".")[0] for name in NAMES}
    assert {opcode for opcode in opcodes if opcode in rules} >= {"ld", "shfl", "mma"}


@pytest.mark.parametrize(
    "rules", [definedness.RULES, following.RULES], ids=["undefined", "second"]
)
def test_a_rule_is_of_an_opcode_that_there_is(rules: Container[str]) -> None:
    opcodes = {*TABLE.lines} | {name.partition(".")[0] for name in NAMES}
    assert set(rules) <= opcodes


def test_numerics_knows_what_is_computed_with_floats() -> None:
    computing = {
        line.opcode
        for line in lines()
        if line.does[0] in ("computes", "converts", "carries")
        and FLOATS.intersection(word for piece in line.pieces for word in piece.words)
    }
    # ``testp`` asks of what kind a number is, and has no number for a result.
    assert computing - {*MEANINGS} == {"testp"}
    assert {*MEANINGS} <= {line.opcode for line in lines()}
