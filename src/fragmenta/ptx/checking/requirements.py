"""The PTX version and the targets that an instruction needs.

A line of the table of opcodes may say what it needs.  Some words need more than their
line does; the table here has them.  All of it was read from ptxas.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from fragmenta.ptx.checking.operands import bits_at_once
from fragmenta.ptx.module import Instruction
from fragmenta.ptx.opcodes.table import Match
from fragmenta.reference.isa.table import read
from fragmenta.reference.isa.target import TARGETS, Version, expand, shown

# An empty cell of ``opcodes`` means every opcode, of ``targets`` every target.
WORDS = """
opcodes           | word                  | ptx | targets
                  | shared::cta           | 7.8 |
                  | shared::cluster       | 7.8 | sm_90+
                  | cluster               | 7.8 | sm_90+
                  | L2::cache_hint        | 7.4 | sm_80+
                  | L1::no_allocate       | 7.4 | sm_70+
                  | L2::64B               | 7.4 | sm_75+
                  | L2::128B              | 7.4 | sm_75+
                  | L2::256B              | 7.4 | sm_80+
                  | param::entry          | 8.3 |
                  | param::func           | 8.3 |
                  | cta_group::1          | 8.6 | 100a/f 110a/f
                  | cta_group::2          | 8.6 | 100a/f 110a/f
ld ldu st         | b128                  | 8.3 | sm_70+
atom red          | bf16                  | 7.8 | sm_90+
atom red          | bf16x2                | 7.8 | sm_90+
bar barrier       | cta                   | 7.8 |
multimem          | acc::f32              | 8.2 | sm_90+
clusterlaunchcontrol | multicast::cluster::all | 8.6 | 100a/f 110a/f 120a/f
"""
_WORDS = read(WORDS)


class Need(NamedTuple):
    """A version and targets that something needs."""

    what: str
    ptx: Version | None
    targets: tuple[str, ...] | None
    text: str
    """The targets as a message names them."""


@cache
def targets(text: str) -> tuple[str, ...]:
    """The targets that a clause of the table of opcodes names.

    >>> targets("sm_120a"), targets("sm_121")
    (('sm_120a',), ('sm_121', 'sm_121a', 'sm_121f'))
    """
    words = [
        f"{word}+" if word.startswith("sm_") and word[-1].isdecimal() else word
        for word in text.split()
    ]
    return expand(" ".join(words))


def needs(of: Instruction, match: Match) -> Iterator[Need]:
    """What a line, and the words in it, need."""
    line, opcode, qualifiers = match.syntax, of.opcode, of.qualifiers
    if line.since or line.targets:
        yield Need(
            ".".join((opcode, *qualifiers)),
            Version.parse(line.since) if line.since else None,
            targets(line.targets) if line.targets else None,
            line.targets,
        )
    if bits_at_once(of, match) == 256:
        yield Need("a vector of 256 bits", Version(8, 8), expand("sm_100+"), "sm_100+")
    for row in _WORDS:
        if row["word"] in qualifiers and opcode in (row["opcodes"].split() or [opcode]):
            yield Need(
                f".{row['word']}",
                Version.parse(row["ptx"]),
                expand(row["targets"]) if row["targets"] else None,
                row["targets"],
            )


def listed(text: str) -> str:
    """The targets of a need as a message names them.

    >>> listed("sm_90"), listed("sm_90a 120a/f")
    ('sm_90 and later', 'sm_90a, sm_120a/f, sm_121a/f')
    """
    words = shown(text.replace("+", "")).split()
    return ", ".join(
        f"{word} and later" if word[-1].isdecimal() else word for word in words
    )


def known(target: str) -> bool:
    """Whether a target is in the tables."""
    return target in TARGETS
