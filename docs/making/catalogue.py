"""The data of the table of every instruction.

The page filters in the browser.  Its data are a script, because a page that was opened
from a folder may not read other files.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import fragmenta as fm
from fragmenta.reference.isa.matching import fits
from fragmenta.reference.isa.synonyms import meaning, vocabulary
from fragmenta.reference.isa.target import TARGETS
from making import explorer
from making.numbers import status


class Pool(list[Any]):
    """Values that many rows share, each once."""

    def number(self, value: Any) -> int:
        """The number of a value; a new value is added.

        >>> pool = Pool()
        >>> [pool.number(each) for each in ("a", "b", "a")]
        [0, 1, 0]
        """
        if value not in self:
            self.append(value)
        return self.index(value)


def script() -> str:
    """The data as a script, one row for each instruction."""
    return f"window.fragmentaCatalogue = {json.dumps(data(), separators=(',', ':'))};\n"


def data() -> dict[str, Any]:
    """The rows, and what they share."""
    names = ("families", "requires", "numbers", "targetsets", "wordsets")
    pools = {name: Pool() for name in names}
    ops = sorted(fm.catalogue(), key=_old)
    rows = [_row(op, words, pools) for op, words in zip(ops, spoken(ops), strict=True)]
    return {"rows": rows, "targets": list(TARGETS), **pools}


def _old(op: fm.Instruction) -> bool:
    """Whether it is listed last, because later instructions have replaced it."""
    return op.family.startswith("wmma") or op.values.get("shape", "").startswith("m8")


def _row(op: fm.Instruction, words: list[str], pools: dict[str, Pool]) -> list[Any]:
    shown = explorer.link(op).partition("#op=")[2]
    own = explorer.like(op) is not None and str(explorer.like(op)) == str(op)
    return [
        str(op),
        pools["families"].number(op.family),
        op.values.get("shape", op.values.get("tile", "")),
        inputs(op),
        op.values.get("d", ""),
        pools["requires"].number(str(op.requires)),
        pools["numbers"].number(status(op)),
        pools["targetsets"].number(list(op.requires.targets)),
        pools["wordsets"].number(words),
        1 if own else shown or 0,
    ]


def inputs(op: fm.Instruction) -> str:
    """The types of A and B, or the type that is moved.

    >>> inputs(fm.mma("m16n8k32", a="s8", b="u8")), inputs(fm.find("movmatrix"))
    ('s8, u8', 'b16')
    """
    found = (op.values.get(key, "") for key in ("a", "b", "type"))
    return ", ".join(dict.fromkeys(filter(None, found)))


def spoken(ops: list[fm.Instruction]) -> list[list[str]]:
    """The synonyms that fit each instruction, such as fp8 and hopper.

    Instructions that differ only in other qualifiers are looked up once.

    >>> spoken([fm.mma("m16n8k16", a="f16", d="f16")])[0][:3]
    ['fp16', 'float16', 'half']
    """
    alike = {_alike(op): op for op in ops}
    found: dict[object, list[str]] = {key: [] for key in alike}
    for words in _words():
        for key, op in alike.items():
            found[key] += words if fits(op, words[:1]) else []
    return [found[_alike(op)] for op in ops]


UNSAID = ("shape", "num", "collector", "collector_b", "ashift", "lut")
"""Qualifiers that no synonym is about."""


def _alike(op: fm.Instruction) -> tuple[object, ...]:
    rest = tuple(value for key, value in op.values.items() if key not in UNSAID)
    return (op.family, op.requires.targets, rest)


@cache
def _words() -> list[list[str]]:
    """All words; those with the same meaning are together."""
    found: dict[object, list[str]] = {}
    for word in vocabulary():
        said = meaning(word)
        assert said is not None
        found.setdefault(replace(said, word=""), []).append(word)
    return list(found.values())
