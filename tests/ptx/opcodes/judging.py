"""Passes the lines of the opcode table to ptxas.

``forms`` writes out every instruction that a line allows: each choice of qualifiers,
with and without optional operands, with some immediates and selectors.  ``statement``
writes the registers it needs and the instruction.  ``judged`` asks the assembler.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from fragmenta.cuda.tools import assembler
from fragmenta.ptx import opcodes
from fragmenta.ptx.opcodes.table import TABLE, TYPES, Qualifiers, Slot, Syntax
from fragmenta.reference.isa.target import Version

NEWEST = "9.4"
#: The target that most lines are judged for: the H200's.
TARGET = "sm_90a"
#: Immediates that are tried for an operand that must be a constant.
IMMEDIATES: dict[str, Sequence[int]] = {"immLut": range(256)}
FEW_IMMEDIATES = 6
#: How many choices of selectors are tried for each mnemonic.
SELECTIONS = 6


#: The product or ``c`` may be negated, not both.
NEGATIONS = tuple(
    dict(zip(("aneg", "bneg", "cneg"), signs.split(","), strict=True))
    for signs in (",,", "-,,", ",-,", "-,-,", ",,-")
)


@dataclass(frozen=True)
class Form:
    """One instruction that a line of the table allows."""

    syntax: Syntax
    mnemonic: str
    qualifiers: Qualifiers
    """As the function of the line gets them, selectors too."""
    slots: tuple[Slot, ...]
    """The operands that are there, hidden ones too."""
    immediates: dict[str, int] = field(default_factory=dict)
    """The operands that are constants."""

    def type_of(self, slot: Slot) -> str:
        """The type of an operand."""
        return self.syntax.type_of(slot, self.qualifiers)

    def results(self) -> list[tuple[Slot, str]]:
        """Every result with its type; a pair is two."""
        found = []
        for slot in self.slots:
            if slot.result:
                kinds = [self.type_of(slot)]
                if "|" in slot.name:
                    kinds.append("pred")
                found += [(slot, kind) for kind in kinds]
        return found

    def operands(self) -> list[tuple[Slot, str]]:
        """Every operand that is read, with its type; those in braces one by one."""
        return [
            (slot, self.type_of(slot))
            for slot in self.slots
            if not slot.result
            for _ in range(self.count(slot) or 1)
        ]

    def count(self, slot: Slot) -> int:
        """How many registers stand in braces; 0 where there are no braces."""
        if not slot.vector:
            return 0
        text = slot.vector
        text = text if text.isdecimal() else self.qualifiers[text].lstrip("v")
        return int(text or 0)

    def __str__(self) -> str:
        parts = [self.mnemonic]
        first = TABLE.find(self.mnemonic)
        if first is not None and first.syntax is not self.syntax:
            # Another line has this mnemonic with fewer operands.
            parts.append(f"{len(self.slots)} operands")
        for slot in self.slots:
            chosen = self.qualifiers.get(slot.selector, "") if slot.selector else ""
            constant = self.immediates.get(slot.name)
            if chosen:
                parts.append(f"{slot.name}.{chosen}")
            if slot.negatable and self.qualifiers.get(f"{slot.name}neg"):
                parts.append(f"-{slot.name}")
            if constant is not None:
                parts.append(f"{slot.name}={constant}")
            if slot.optional:
                parts.append(f"+{slot.name}")
        return " ".join(parts)


@cache
def modules() -> tuple[str, ...]:
    """The modules that fill the table, all imported."""
    names = [each.name for each in iter_modules(opcodes.__path__)]
    for name in names:
        import_module(f"{opcodes.__name__}.{name}")
    return tuple(names)


def lines(module: str | None = None) -> list[Syntax]:
    """The lines that have a function, of one module of the package or of all."""
    modules()
    every = [
        line
        for some in TABLE.lines.values()
        for line in some
        if line.emit and not line.opcode.startswith("_")
    ]
    if module is None:
        return every
    return [line for line in every if home(line) == module]


def home(line: Syntax) -> str:
    """The module of a line's function."""
    return getattr(line.emit, "__module__", "").rpartition(".")[2]


def mnemonics(line: Syntax) -> Iterator[tuple[str, dict[str, str]]]:
    """Every mnemonic that a line allows, with its qualifiers."""
    choices = [
        (*(("",) if piece.optional else ()), *piece.words) for piece in line.pieces
    ]
    for words in itertools.product(*choices):
        mnemonic = ".".join([line.opcode, *filter(None, words)])
        found = line.match(mnemonic)
        assert found is not None, (line.text, mnemonic)
        yield mnemonic, dict(found.qualifiers)


def forms(line: Syntax, *, few: bool = False) -> Iterator[Form]:
    """Every instruction that a line allows; with ``few``, fewer immediates."""
    for mnemonic, qualifiers in mnemonics(line):
        for slots, selected in _written(line, mnemonic):
            for constants in _immediates(line, mnemonic, few or len(line.pieces) > 1):
                found = {**qualifiers, **selected}
                found |= {name: str(number) for name, number in constants.items()}
                yield Form(line, mnemonic, found, slots, constants)


def _written(
    line: Syntax, mnemonic: str
) -> Iterator[tuple[tuple[Slot, ...], dict[str, str]]]:
    """Which optional operands are there, and which parts are selected."""
    chosen = [slot for slot in line.operands if slot.selector]
    if not chosen:
        optional = [slot for slot in line.operands if slot.optional]
        for there in itertools.product((True, False), repeat=len(optional)):
            left_out = {s for s, here in zip(optional, there, strict=True) if not here}
            yield tuple(s for s in line.operands if s not in left_out), {}
        return
    draw, seen = random.Random(mnemonic), set()
    for number in range(SELECTIONS):
        selected = {slot.selector: "" for slot in chosen}
        if number:
            for slot in chosen:
                selected[slot.selector] = draw.choice(("", *slot.selectors))
        if any(slot.negatable for slot in line.operands):
            selected |= draw.choice(NEGATIONS)
        # Only what is merged into c has a selected destination, where c is optional.
        whole = [s for s in line.operands if s.optional]
        left_out = set(whole) if whole and not selected.get("dsel") else set()
        if tuple(selected.values()) in seen:
            continue
        seen.add(tuple(selected.values()))
        yield tuple(s for s in line.operands if s not in left_out), selected


def _immediates(line: Syntax, mnemonic: str, few: bool) -> Iterator[dict[str, int]]:
    constants = [slot.name for slot in line.operands if slot.type == "imm"]
    choices: list[Sequence[int]] = [IMMEDIATES[name] for name in constants]
    if few:
        draw = random.Random(mnemonic)
        choices = [draw.sample(list(some), FEW_IMMEDIATES) for some in choices]
    for values in itertools.product(*choices):
        yield dict(zip(constants, values, strict=True))


# ── as PTX ──────────────────────────────────────────────────────────────────

_SMALL = {
    "u8": ".b32",
    "s8": ".b32",
    "b8": ".b8",
    "e2m1x2": ".b8",
    "pred": ".pred",
    "b128": ".b128",
}


def bits_of_type(kind: str) -> int:
    """The width of a type's register; 1 for predicates."""
    return int(register(kind)[2:]) if kind != "pred" else 1


def register(kind: str) -> str:
    """The type of the register that holds a PTX type.

    Integers of eight bits stand in 32-bit registers, where it is seen how an
    instruction extends them.
    """
    if kind in _SMALL:
        return _SMALL[kind]
    base, _, times = kind.partition("x")
    number = "".join(filter(str.isdecimal, base.lstrip("b")))
    if kind.startswith(("u", "s", "b", "f")) and number in ("16", "32", "64"):
        return f".b{int(number) * int(times or 1)}"
    if kind == "tf32":
        return ".b32"
    return {"2": ".b16", "4": ".b16" if "e2m1" in kind else ".b32"}.get(times, ".b16")


def statement(form: Form) -> list[str]:
    """Declarations, and the instruction; registers are called r0, r1, … in order."""
    declared, written, number = [], [], itertools.count()

    def new(kind: str) -> str:
        name = f"r{next(number)}"
        declared.append(f".reg {register(kind)} {name};")
        return name

    for slot in form.slots:
        kind = form.type_of(slot)
        minus = form.qualifiers.get(f"{slot.name}neg", "") if slot.negatable else ""
        selected = form.qualifiers.get(slot.selector, "") if slot.selector else ""
        if slot.hidden:
            continue
        if slot.name in form.immediates:
            written.append(str(form.immediates[slot.name]))
        elif "|" in slot.name:
            written.append(f"{new(kind)}|{new('pred')}")
        elif form.count(slot):
            items = ", ".join(new(kind) for _ in range(form.count(slot)))
            written.append(f"{{{items}}}")
        else:
            written.append(minus + new(kind) + (f".{selected}" if selected else ""))
    return [*declared, f"{form.mnemonic} {', '.join(written)};"]


def supported(line: Syntax, target: str) -> bool:
    """Whether a line's clause names a target."""
    words = line.targets.split()
    plain = [int(word[3:]) for word in words if word[-1].isdecimal()]
    at = int("".join(filter(str.isdecimal, target)))
    return not words or target in words or any(at >= first for first in plain)


def target_of(line: Syntax) -> str:
    """A target that has a line: the H200's if it does."""
    first = line.targets.split()[0] if line.targets else TARGET
    return TARGET if int("".join(filter(str.isdecimal, first))) <= 90 else first


def judged(
    some: Iterable[Form], target: str | None = None, version: str = NEWEST
) -> dict[str, str]:
    """What ptxas refuses: the instruction, and why.  Code is not generated."""
    groups: dict[str, list[Form]] = {}
    for form in some:
        groups.setdefault(target or target_of(form.syntax), []).append(form)
    refused = {}
    for place, each in groups.items():
        texts = [statement(form) for form in each]
        verdicts = assembler.judge(texts, place, Version.parse(version))
        for form, verdict in zip(each, verdicts, strict=True):
            if verdict is not None:
                refused[str(form)] = verdict
    return refused


# ptxas takes .pred in place of most optional words, and ignores it.
WORDS = tuple(sorted(TYPES - {"pred"}))


def near_misses(
    line: Syntax, words: Sequence[str] = WORDS, count: int = 60
) -> Iterator[Form]:
    """Some instructions that differ from a line in one word, and are on no line."""
    draw, every, seen = random.Random(line.text), list(mnemonics(line)), set()
    for _ in range(count):
        mnemonic, qualifiers = draw.choice(every)
        parts = mnemonic.split(".")
        if len(parts) == 1:
            return
        place, word = draw.randrange(1, len(parts)), draw.choice(words)
        other = ".".join([*parts[:place], word, *parts[place + 1 :]])
        if other in seen or TABLE.find(other):
            continue
        seen.add(other)
        changed = {
            name: word if text == parts[place] else text
            for name, text in qualifiers.items()
        }
        slots, selected = next(_written(line, mnemonic))
        constants = next(_immediates(line, mnemonic, True))
        yield Form(line, other, {**changed, **selected}, slots, constants)
