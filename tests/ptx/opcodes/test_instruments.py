"""Every instrument is asked about every line of the table; none falls through unseen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fragmenta.engine.planes.code import following
from fragmenta.engine.planes.code.kinds import FLOATS
from fragmenta.ptx import families
from fragmenta.ptx.opcodes import TABLE
from fragmenta.ptx.opcodes.table import COMPUTING, Syntax
from fragmenta.ptx.opcodes.tensor import NAMES
from fragmenta.values.numerics.code.exact import MEANINGS
from fragmenta.watch.races.probes import definedness

NEW = ("manages", "synchronises")
"""Kinds whose results are made of no operand."""
OF_LANES = {"activemask", "elect"}
"""Their results say which lanes are there, and have nothing of other operands."""
NOT_RUN = {"multimem"}
EXACTLY = {
    "LOADS": "loads",
    "STORES": "stores",
    "UPDATES": "updates",
    "COPIES": "copies",
}
FAMILIES = EXACTLY | {
    "ROW_LOADS": "loads",
    "ROW_STORES": "stores",
    "BARRIERS": "synchronises",
    "MBARRIERS": "synchronises",
    "MOVES": "moves",
    "CONVERSIONS": "converts",
    "COMPARISONS": "compares",
    "PERMUTATIONS": "moves",
    "SHUFFLES": "exchanges",
    "SUMS": "computes",
    "PRODUCTS": "computes",
    "FUSED": "computes",
    "WARP_PRODUCTS": "multiplies",
    "WARPGROUP": "multiplies",
    "TENSOR_MEMORY": "multiplies",
}


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


def kinds() -> dict[str, set[str]]:
    """All opcodes, with the kinds of their instructions."""
    found = {
        opcode: {one.does[0] for one in TABLE.lines[opcode]} for opcode in TABLE.lines
    }
    for name, each in NAMES.items():
        found.setdefault(name.partition(".")[0], set()).add(each.word)
    return found


def test_what_comes_from_elsewhere_has_a_rule() -> None:
    assert {*moved()} - {*families.RULES} == OF_LANES | NOT_RUN
    assert {*families.RULES} <= {*kinds()}


def test_each_instrument_has_each_rule() -> None:
    words = {*families.RULES.values()}
    assert {*definedness.RULES} == words
    assert all(callable(getattr(following.PlaneStep, each)) for each in words)


def test_what_has_a_rule_is_no_calculation() -> None:
    assert not [each for each in families.RULES if kinds()[each] & COMPUTING]


@pytest.mark.parametrize(("family", "kind"), FAMILIES.items())
def test_a_family_is_of_one_kind(family: str, kind: str) -> None:
    opcodes = getattr(families, family)
    assert {*opcodes} <= {*kinds()}
    assert all(kind in kinds()[each] for each in opcodes)


def test_all_of_a_kind_are_of_its_family() -> None:
    """Beside what the catalogue has, and what does not run."""
    for family, kind in EXACTLY.items():
        others = {name.partition(".")[0] for name in NAMES} | NOT_RUN
        found = {each for each, words in kinds().items() if kind in words}
        assert found - others == {*getattr(families, family)}


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
