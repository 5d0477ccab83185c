"""Tables of instructions: a spelling and rows for each family.

A family has a *spelling*, the order of its qualifiers::

    mma.sync.aligned.{shape}.{alayout}.{blayout}.{satfinite}.{d}.{a}.{b}.{c}

It also has rows, which say which qualifiers may be combined.  A row of the text
tables in this package names shapes, operand types, further qualifiers, the first PTX
version and the targets.  Every combination of them is an instruction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from functools import cache
from itertools import product
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.reference.isa.target import Requirement, Version, expand, shown

if TYPE_CHECKING:
    from fragmenta.reference.isa.instruction import Instruction, Operand, Parts

Values = tuple[tuple[str, str], ...]
Unit = Literal["", "mma", "wmma", "wgmma", "tcgen05", "matrix", "sparsity"]
Where = Literal["", "registers", "tensor memory"]
Move = Literal["", "load", "store", "transpose", "copy"]


@dataclass(frozen=True)
class Row:
    """Qualifiers that may be combined: each field with its allowed values."""

    allowed: Mapping[str, tuple[str, ...]]
    ptx: Version
    targets: str
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Per field, the value of a qualifier that is left out or is redundant."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Further facts about the row that are not in its spelling, such as notes."""

    def __post_init__(self) -> None:
        for name in ("allowed", "defaults", "facts"):  # instructions share rows
            frozen = MappingProxyType(dict(getattr(self, name)))
            object.__setattr__(self, name, frozen)

    def takes(self, name: str, value: str) -> bool:
        """Whether this row allows the value for the field, written or implied."""
        return self.settle(name, value) in self.allowed.get(name, ("",))

    def settle(self, name: str, value: str) -> str:
        """The value of a qualifier as written, with defaults filled in."""
        return self.defaults.get(f"{name}={value}", value)

    def combinations(self) -> Iterator[dict[str, str]]:
        """Every combination of values, in the order of the table."""
        for values in product(*self.allowed.values()):
            yield dict(zip(self.allowed, values, strict=True))


@dataclass(frozen=True, eq=False)
class Form:
    """One family of instructions: its spellings, its rows, its operands."""

    name: str
    """The family."""
    spellings: tuple[str, ...]
    rows: tuple[Row, ...]
    operands: Callable[[Instruction], tuple[Operand, ...]]
    parts: Callable[[Instruction], Parts]
    later: Mapping[str, str] = field(default_factory=dict)
    """Qualifiers that need a later PTX version than the row they are in."""
    any_order: str = ""
    """The words that come first, if those after them may be in any order."""
    lists: Callable[[Instruction], tuple[tuple[Operand, ...], ...]] | None = None
    """Every list of operands, if there are several; the first is ``operands``."""
    unit: Unit = ""
    """What executes it: ``mma`` and ``wmma`` are the Tensor Cores of one warp."""
    multiplies: Where = ""
    """Where D is, if it multiplies matrices."""
    moves: Move = ""
    """Which way it moves a matrix, seen from the registers; ``copy`` passes them by."""
    sparse: bool = False
    """Whether A is sparse."""
    ws: bool = False
    """Whether it is weight-stationary: ``tcgen05.mma.ws``."""

    def requirement(self, row: Row, values: Mapping[str, str]) -> Requirement:
        """The version and targets of one combination of a row."""
        versions = [row.ptx]
        versions += [
            Version.parse(self.later[v]) for v in values.values() if v in self.later
        ]
        targets = expand(row.targets)
        return Requirement(max(versions), targets, shown(row.targets))

    def spell(self, values: Mapping[str, str]) -> str:
        """The canonical mnemonic of one combination."""
        return spell(self.spellings[0], values)

    def most_words(self) -> int:
        """How many words its longest mnemonic has.

        A row allows every combination of its values.
        """
        steps = _steps(self.spellings[0])
        fixed = sum(bool(literal) for _, literal in steps)
        return fixed + max(
            sum(
                max(len(value.split(".")) if value else 0 for value in values)
                for name, _ in steps
                if (values := row.allowed.get(name))
            )
            for row in self.rows
        )

    def fields(self, spelling: str | None = None) -> list[str]:
        """The qualifiers, in the order they are written."""
        return re.findall(r"\{(\w+)\}", spelling or self.spellings[0])

    def vocabulary(self, name: str) -> list[str]:
        """Every value that a row has for a field, including written defaults."""
        values: dict[str, None] = {}
        for row in self.rows:
            values.update(dict.fromkeys(row.allowed.get(name, ("",))))
            for spelled in row.defaults:
                key, _, value = spelled.partition("=")
                if key == name:
                    values[value] = None
        return list(values)


def spell(spelling: str, values: Mapping[str, str]) -> str:
    """Fill in a spelling; empty qualifiers are left out.

    >>> spell("mma.{sp}.{shape}", {"sp": "", "shape": "m16n8k16"})
    'mma.m16n8k16'
    """
    words = [
        values.get(name, "") if name else literal for name, literal in _steps(spelling)
    ]
    return ".".join(filter(None, words))


@cache
def _steps(spelling: str) -> tuple[tuple[str, str], ...]:
    """The qualifiers of a spelling in order: a field, or else a word.

    >>> _steps("mma.{sp}")
    (('', 'mma'), ('sp', ''))
    """
    return tuple(
        (each[1:-1], "") if each.startswith("{") else ("", each)
        for each in spelling.split(".")
    )


#: The field and the values of each word in the ``extra`` column of a table.
EXTRAS: dict[str, tuple[str, tuple[str, ...]]] = {
    "satfinite": ("satfinite", ("", "satfinite")),
    "rounding": ("rounding", ("", "rz", "rm", "rp")),
    "block_scale": ("block_scale", ("block_scale",)),
    "trans?": ("trans", ("", "trans")),
    "trans": ("trans", ("trans",)),
}
_EXTRA_FIELDS = {
    "kind::": "kind",
    "scale_vec::": "scale_vec",
    "ue": "stype",
    "xor": "bitop",
    "and": "bitop",
}


def read(text: str) -> list[dict[str, str]]:
    """Rows of a text table as dictionaries; its first line has the keys.

    >>> read('''
    ... shape  | ptx
    ... m8n8k4 | 6.4
    ... ''')
    [{'shape': 'm8n8k4', 'ptx': '6.4'}]
    """
    lines = [line for line in text.splitlines() if line.strip()]
    head, *body = ([cell.strip() for cell in line.split("|")] for line in lines)
    return [dict(zip(head, cells, strict=True)) for cells in body]


def extras(words: str) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """The fields and defaults named in an ``extra`` column.

    With ``rounding``, ``.rn`` means the same as no rounding qualifier.  A word with
    ``?``, such as ``scale_vec::1X?``, may be left out and is then implied.
    """
    allowed: dict[str, tuple[str, ...]] = {}
    defaults: dict[str, str] = {}
    for word in words.split():
        if word in EXTRAS:
            name, values = EXTRAS[word]
            allowed[name] = values
        else:
            name = next(
                f for start, f in _EXTRA_FIELDS.items() if word.startswith(start)
            )
            allowed[name] = (word.rstrip("?"),)
            if word.endswith("?"):
                defaults[f"{name}="] = word.rstrip("?")
    if "rounding" in allowed:
        defaults["rounding=rn"] = ""
    return allowed, defaults
