"""What the table says about bits is so: bits of operands are flipped, one by one."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from fragmenta.ptx.opcodes import TABLE
from fragmenta.ptx.opcodes.kinds import kind_of, opcodes_of
from fragmenta.ptx.opcodes.table import KINDS, Syntax
from fragmenta.ptx.opcodes.tensor import NAMES
from tests.ptx.opcodes.judging import Form, bits_of_type, forms, lines
from tests.ptx.opcodes.meanings import MEANINGS

FOLLOWED = ("moves", "reverses", "bitwise", "carries")
MODULES = ("comparison", "fields", "integer", "logic", "moving")
TRIES = 8


def every() -> list[Syntax]:
    return [line for opcode in TABLE.lines for line in TABLE.lines[opcode]]


def test_each_line_has_a_kind() -> None:
    for line in every():
        assert line.does, line.text
        word, *about = line.does
        assert word in KINDS, line.text
        names = {slot.name for slot in line.operands}
        words = {each for piece in line.pieces for each in piece.words}
        for each in about:
            known = each in names or each.startswith("0x") or each[1:] in words
            assert known, f"{line.text}: {each}"
    assert {kind.word for kind in NAMES.values()} <= {*KINDS}


def test_each_kind_has_lines() -> None:
    words = {line.does[0] for line in every()} | {each.word for each in NAMES.values()}
    assert words == {*KINDS}
    assert opcodes_of("multiplies") == {"mma", "wmma", "wgmma", "tcgen05"}


def followed() -> Iterator[tuple[Form, str]]:
    """The forms of which the table says where each bit comes from."""
    for module in MODULES:
        for line in lines(module):
            for form in forms(line, few=True):
                word = form.syntax.kind(form.qualifiers).word
                wide = any(kind == "b128" for _, kind in form.operands())
                if word in FOLLOWED and form.syntax.opcode in MEANINGS and not wide:
                    yield form, word


FORMS = {str(form): (form, word) for form, word in followed()}


class Stated:
    """What a form makes of operands, as the manual says."""

    def __init__(self, form: Form, numbers: random.Random) -> None:
        self.form = form
        first = next(slot for slot in form.slots if not slot.result)
        self._kind = form.type_of(first)
        self.widths = [
            8 if kind in ("u8", "s8") else bits_of_type(kind)
            for _, kind in form.operands()
        ]
        self.names = [slot.name for slot, _ in form.operands()]
        kind = form.syntax.kind(form.qualifiers)
        named = [slot.name for slot in form.syntax.operands if not slot.hidden]
        self.controls = {named[each] for each in kind.controls}
        self.words = [self._drawn(n, w, numbers) for n, w in self._operands()]
        while self.answer() is None:  # the manual is silent about large controls
            self.words = [self._drawn(n, w, numbers) for n, w in self._operands()]

    def _operands(self) -> Iterator[tuple[str, int]]:
        return zip(self.names, self.widths, strict=True)

    def _drawn(self, name: str, width: int, numbers: random.Random) -> int:
        word = numbers.getrandbits(width)
        if name in self.controls and width == 32 and self.form.syntax.opcode != "prmt":
            word >>= numbers.choice([0, 26, 27])
        return self.form.immediates.get(name, word)

    def answer(self, place: int = 0, flips: int = 0) -> int | None:
        words = list(self.words)
        words[place] ^= flips
        opcode, about = self.form.syntax.opcode, self.form.qualifiers
        answer = MEANINGS[opcode](about, self._kind, *words, opcode=opcode)
        found: int | None = answer[0] if isinstance(answer, tuple) else answer
        return found

    def __call__(self, place: int = 0, flips: int = 0) -> int:
        answer = self.answer(place, flips)
        assert answer is not None
        return int(answer)


@pytest.mark.parametrize("name", FORMS)
def test_bits_go_where_the_kind_says(name: str) -> None:
    form, word = FORMS[name]
    numbers = random.Random(name)
    for _ in range(TRIES):
        stated = Stated(form, numbers)
        before, taken = stated(), 0
        for place, width in enumerate(stated.widths):
            if stated.names[place] in stated.controls | {*form.immediates}:
                continue
            for bit in range(width):
                changed = before ^ stated(place, 1 << bit)
                match word:
                    case "bitwise":
                        assert not changed & ~(1 << bit)
                    case "carries":
                        assert not changed & (1 << bit) - 1
                    case _:  # each bit of the result is one of an operand
                        assert not changed & taken
                        taken |= changed


@pytest.mark.parametrize(
    "name", [n for n, (_, word) in FORMS.items() if word == "bitwise"]
)
def test_truth_tables_are_those_of_lop3(name: str) -> None:
    form, _ = FORMS[name]
    stated = Stated(form, random.Random(name))
    if "pred" in form.qualifiers.values():
        stated.words = [each & 1 for each in stated.words]
    table = kind_of(str(form).split()[0]).table
    data = [w for w, n in zip(stated.words, stated.names, strict=True) if n != "immLut"]
    if table is None:
        table = form.immediates["immLut"]
    made, width = 0, stated.widths[0]
    for bit in range(width):
        index = 0
        for word in data:
            index = index << 1 | word >> bit & 1
        made |= (table >> index & 1) << bit
    assert made == stated()
