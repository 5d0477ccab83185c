r"""The notation of the table of opcodes, and the look-up in it.

A line of the table is written as the manual writes the syntax of an instruction,
then, after semicolons, the words that may stand for each name::

    add{.rnd}{.ftz}{.sat}.f32   d, a, b   ; rnd = rn rz rm rp
    setp.cmp.type               p, a, b   ; type = s32 u32 f32

A qualifier whose name is not explained stands for itself, as ``.ftz`` does.  Braces
may be left out in the instruction.  An operand has the type of the instruction, which
is the qualifier called ``type`` or else the last one that is a type; another type is
written after a colon (``b:u32``, ``p:pred``; also the name of a qualifier, as in
``a:atype``).  The results are the operands called ``d``, ``p`` and ``q``; ``p|q`` is one
or two results, and so is ``d|p``, whose second one is a predicate.  ``{c}`` is an
operand that may be left out, ``[a]`` an address.
``^carry_in:pred`` and ``^carry_out:pred`` are not written in PTX: the carry flag.
``immLut:imm`` is an operand that must be a constant; the function gets it among the
qualifiers, as text.  ``d*vec`` is as many registers
in braces as the qualifier ``vec`` says (``v4``: 4; left out: no braces), ``d*4`` always
4.  ``[a:tensor]`` is the address of a tensor map with coordinates.  ``a{.asel}`` is an
operand of which a part may be selected, as in ``%r1.h1``; the function gets the whole
register, and the selector (``h1``, or nothing) among the qualifiers as ``asel``.
``{-}a`` is an operand that may be negated, as in ``-%r1``; the function gets it as it
is, and ``-`` or nothing among the qualifiers as ``aneg``.  An operand may be explained
too: by the constants that it takes, ``n = 0..15`` or ``n = 4 8 16`` or
``n = 24..256/8``, multiples of 8.  A line that begins with a semicolon explains names
for all lines below it in the same text.

Two clauses say what the assembler asks for: ``ptx = 8.0`` the first PTX version,
``target = sm_90`` targets that have the line; a word with a letter (``sm_120a``) names
that target alone, one without it names that target and every later one.  ``100a/f``
names the targets with a letter in an architecture family, as in :mod:`fragmenta.reference.isa`.
``bits = modelled`` says how sure the bits of one line are.  ``name = lo hi wide`` are
words that belong to the name of an instruction: where they come first, they keep their
place, while ptxas takes other words in any order.

``kind = moves b c`` says what the instruction does to bits: a word of :data:`KINDS`, and
the operands that control it.  ``-sat`` behind it: with ``.sat`` it computes instead.
``bitwise 0x88`` has its truth table, as ``lop3`` has it; ``bitwise immLut`` the operand
that is one.  All that follow bits read it here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cache, cached_property
from typing import Any, NamedTuple, TypeAlias, TypeVar

from fragmenta.base.arrays.lazy_dataclass import dataclass

Qualifiers: TypeAlias = Mapping[str, str]
Emit = TypeVar("Emit", bound=Callable[..., Any])

_TYPES = (
    "b1 b8 b16 b32 b64 b128 u8 u16 u32 u64 s8 s16 s32 s64 f16 f32 f64 bf16 tf32 f16x2 "
    "bf16x2 f32x2 u16x2 s16x2 u8x4 s8x4 pred e4m3 e5m2 e4m3x2 e5m2x2 e2m1x2 e2m3x2 "
    "e3m2x2 ue8m0x2 s2f6x2 e4m3x4 e5m2x4 e2m1x4 e2m3x4 e3m2x4"
)
TYPES = frozenset(_TYPES.split())

KINDS = {
    "moves": "results are made of bits of the operands; some say which",
    "reverses": "the bits of an operand in reverse order",
    "bitwise": "each bit comes from the bits at its place, by a truth table",
    "carries": "each bit comes from the bits at its place and to the right",
    "computes": "each element comes from whole elements of the operands",
    "converts": "numbers become numbers of another type",
    "compares": "numbers become truth values, or zeros and ones",
    "loads": "results come from memory",
    "stores": "operands go to memory",
    "updates": "operands are combined with what is in memory",
    "copies": "memory goes to memory, later",
    "multiplies": "a product of matrices",
    "exchanges": "results come from operands of other lanes",
    "synchronises": "threads or memory accesses are ordered",
    "branches": "another instruction comes next",
    "calls": "a function comes next",
    "ends": "no instruction comes next",
    "manages": "something else than registers and memory changes",
    "hints": "nothing changes but time",
}
"""What instructions do to bits."""
COMPUTING = frozenset([*KINDS][: [*KINDS].index("loads")])
"""The kinds whose results come from the operands of their lane, and that do no more."""


class BitKind(NamedTuple):
    """What an instruction does to bits."""

    word: str
    """One of :data:`KINDS`."""
    controls: tuple[int, ...] = ()
    """The numbers of the operands that say which bits go where; 0 is the first."""
    table: int | None = None
    """Of a bitwise one: its truth table, as ``lop3`` has it, unless an operand is it."""


@dataclass(frozen=True)
class Slot:
    """An operand that a line of the table asks for."""

    name: str
    type: str
    """A type, or the name of the qualifier that has it; empty: the instruction's."""
    optional: bool = False
    address: bool = False
    hidden: bool = False
    """Whether it is not written: the carry flag."""
    vector: str = ""
    """For registers in braces: their number, or the name of the qualifier that has it."""
    selector: str = ""
    """The name of the qualifier for the selected part, if a part may be selected."""
    selectors: tuple[str, ...] = ()
    """What may be selected."""
    negatable: bool = False
    """Whether a minus sign may stand before it."""
    values: tuple[str, ...] = ()
    """The constants that it takes, such as ``4`` or ``0..15``; empty: any."""

    @property
    def result(self) -> bool:
        """Whether the instruction writes it."""
        return self.name in ("d", "p", "q", "p|q", "d|p", "carry_out")


class QualifierSlot(NamedTuple):
    """One word after a dot in a line of the table."""

    name: str
    words: tuple[str, ...]
    """What may be written there."""
    optional: bool


@dataclass(frozen=True, eq=False)
class Syntax:
    """One line of the table."""

    text: str
    opcode: str
    operands: tuple[Slot, ...]
    emit: Callable[..., Any] | None = None
    """The function that computes it: see :func:`opcodes`."""
    large: bool = False
    fidelity: str = "ieee"
    pieces: tuple[QualifierSlot, ...] = ()
    """The words after the opcode, in order."""
    since: str = ""
    """The first PTX version that has it, if the assembler asks for one."""
    targets: str = ""
    """The targets that have it, if not all have."""
    fixed: int = 0
    """How many words behind the opcode belong to the name, and keep their place."""
    does: tuple[str, ...] = ("computes",)
    """Its kind as the line has it."""

    @property
    def computes(self) -> bool:
        """Whether all it does is to compute results from the operands of its lane."""
        return self.does[0] in COMPUTING

    def kind(self, found: Qualifiers) -> BitKind:
        """What an instruction with some qualifiers does."""
        if not self.does:
            raise ValueError(f"a line of the table of opcodes has no kind: {self.text}")
        word, *about = self.does
        without = {each[1:] for each in about if each.startswith("-")}
        if without & {*found.values()}:
            return BitKind("computes")
        names = [each.name for each in self.operands if not each.hidden]
        controls = tuple(names.index(each) for each in about if each in names)
        tables = [int(each, 16) for each in about if each.startswith("0x")]
        return BitKind(word, controls, tables[0] if tables else None)

    def match(self, mnemonic: str) -> Match | None:
        """What an instruction of this line says, if its words stand in this order.

        >>> line = Syntax("", "add", (), pieces=(
        ...     QualifierSlot("sat", ("sat",), True), QualifierSlot("type", ("s32", "u32"), False)))
        >>> line.match("add.s32").qualifiers
        {'sat': '', 'type': 's32'}
        >>> line.match("add.s32.sat") is None
        True
        """
        opcode, *words = mnemonic.split(".")
        if opcode != self.opcode or len(words) > len(self.pieces):
            return None
        chosen = _in_order(self.pieces, words)
        if chosen is None:
            return None
        pairs = zip(self._names, chosen, strict=True)
        return Match(self, {name: word for name, word in pairs if name})

    @cached_property
    def _names(self) -> tuple[str, ...]:
        """The name of each piece; nothing if another has it, or if it is a number."""
        found: list[str] = []
        for piece in self.pieces:
            name = qualifier(piece)
            found.append("" if name in found or name[0].isdecimal() else name)
        return tuple(found)

    def takes(self, count: int) -> bool:
        """Whether an instruction of this line may have so many operands."""
        written = [slot for slot in self.operands if not slot.hidden]
        needed = [slot for slot in written if not slot.optional]
        return len(needed) <= count <= len(written)

    def type_of(self, slot: Slot, found: Qualifiers) -> str:
        """The type of an operand, given the qualifiers of an instruction."""
        if slot.type:
            return found.get(slot.type) or slot.type
        return type_in(found)


def type_in(found: Qualifiers) -> str:
    """The type that the qualifiers of an instruction name.

    >>> type_in({"sat": "", "s32": "s32"}), type_in({"type": "u16"})
    ('s32', 'u16')
    """
    if "type" in found:
        return found["type"]
    typed = [word for word in found.values() if word in TYPES]
    return typed[-1] if typed else ""


@dataclass(frozen=True)
class Match:
    """An instruction that was found in the table."""

    syntax: Syntax
    qualifiers: Qualifiers
    """Each named qualifier, ``""`` if it was left out."""

    @property
    def kind(self) -> BitKind:
        """What it does to bits."""
        return self.syntax.kind(self.qualifiers)


class OpcodeLines(Mapping[str, list["Syntax"]]):
    """The lines of each opcode, which are read when they are first asked for."""

    def __init__(self) -> None:
        self._unread: dict[str, list[_Line]] = {}
        self._read: dict[str, list[Syntax]] = {}

    def add(self, opcode: str, line: _Line) -> None:
        """Add a line behind those of its opcode."""
        self._unread.setdefault(opcode, []).append(line)
        self._read.pop(opcode, None)

    def drop(self, opcode: str) -> None:
        """Forget an opcode."""
        self._unread.pop(opcode, None)
        self._read.pop(opcode, None)

    def __getitem__(self, opcode: str) -> list[Syntax]:
        found = self._read.get(opcode)
        if found is None:
            found = [line.read() for line in self._unread[opcode]]
            found = self._read.setdefault(opcode, found)
        return found

    def __contains__(self, opcode: object) -> bool:
        return opcode in self._unread

    def __iter__(self) -> Iterator[str]:
        return iter(self._unread)

    def __len__(self) -> int:
        return len(self._unread)


@dataclass
class OpcodeTable:
    """All lines, by opcode."""

    lines: OpcodeLines = field(default_factory=OpcodeLines)

    def find(self, mnemonic: str, count: int | None = None) -> Match | None:
        """The line that allows a mnemonic, or None.

        ``count`` is the number of operands; it chooses among lines that differ in it.
        """
        first = None
        for syntax in self.lines.get(mnemonic.partition(".")[0], ()):
            match = syntax.match(mnemonic)
            if match:
                if count is None or syntax.takes(count):
                    return match
                first = first or match
        return first


TABLE = OpcodeTable()
"""The table; the modules of this package fill it when they are imported."""


def opcodes(
    text: str,
    *,
    large: bool = False,
    fidelity: str = "ieee",
    words: Mapping[str, str] | None = None,
    kind: str = "computes",
) -> Callable[[Emit], Emit]:
    """Add lines to the table, together with the function that computes them.

    The function gets the qualifiers and the operands as traced values: vectors of
    integers that hold the operands' bits (i8 … i64), and of i1 for predicates.  It
    returns the result's bits, or a tuple if there are several results.  With ``large``
    it is compiled once as a function of its own instead of at every use.  ``fidelity``
    says how sure its bits are: ``ieee``, ``h200``, ``published`` or ``modelled``.
    ``words`` explain names that several of the lines have.  ``kind`` is that of lines
    which do not say it themselves.
    """

    def add(emit: Emit) -> Emit:
        declare(text, kind, emit=emit, large=large, fidelity=fidelity, words=words)
        return emit

    return add


def declare(
    text: str,
    kind: str = "",
    *,
    emit: Callable[..., Any] | None = None,
    large: bool = False,
    fidelity: str = "ieee",
    words: Mapping[str, str] | None = None,
) -> None:
    """Add lines to the table; without ``emit`` a handler in ``simt`` writes their code.

    ``kind`` is that of lines which do not say it themselves.
    """
    below = {name: tuple(said.split()) for name, said in (words or {}).items()}
    about = _About(emit, large, fidelity, tuple(kind.split()))
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith(";"):
            below = _explained(line.split(";"), below)
        else:
            opcode = _OPCODE.match(line)
            TABLE.lines.add(opcode[0] if opcode else "", _Line(line, below, about))


class _About(NamedTuple):
    """What is said of lines in the call that adds them."""

    emit: Callable[..., Any] | None
    large: bool
    fidelity: str
    kind: tuple[str, ...]


class _Line(NamedTuple):
    """A line of the table that no one has asked for yet."""

    text: str
    names: Mapping[str, tuple[str, ...]]
    about: _About

    def read(self) -> Syntax:
        """The line as it is looked up."""
        head, *explained = (part.strip() for part in self.text.split(";"))
        spelled, _, operands = head.partition(" ")
        names = _explained(explained, self.names)
        opcode, pieces = _pieces(spelled, names)
        return Syntax(
            self.text,
            opcode,
            tuple(_slot(each, names) for each in _split(operands)),
            self.about.emit,
            self.about.large,
            " ".join(names.get("bits", (self.about.fidelity,))),
            pieces,
            " ".join(names.get("ptx", ())),
            " ".join(names.get("target", ())),
            _fixed(pieces, names.get("name", ())),
            names.get("kind", self.about.kind),
        )


def _explained(
    parts: Sequence[str], names: Mapping[str, tuple[str, ...]]
) -> dict[str, tuple[str, ...]]:
    """What names stand for, with those that parts of a line explain."""
    found = dict(names)
    for part in parts:
        name, _, said = part.partition("=")
        found[name.strip()] = tuple(said.split())
    return found


_OPCODE = re.compile(r"[^.{\s]+")
_PIECE = re.compile(r"\{\.([\w:]+)\}|\.([\w:]+)")


def _pieces(
    spelled: str, names: Mapping[str, tuple[str, ...]]
) -> tuple[str, tuple[QualifierSlot, ...]]:
    """The opcode of a line, and the words that may follow it."""
    opcode = re.split(r"[.{]", spelled)[0]
    found = _PIECE.findall(spelled.removeprefix(opcode))
    return opcode, tuple(
        QualifierSlot(name, names.get(name, (name,)), bool(optional))
        for optional, needed in found
        for name in [optional or needed]
    )


def _fixed(pieces: tuple[QualifierSlot, ...], name: tuple[str, ...]) -> int:
    """How many words at the beginning belong to the name of the instruction."""
    count = 0
    for piece in pieces:
        if piece.optional or not set(piece.words) <= set(name):
            break
        count += 1
    return count


def qualifier(piece: QualifierSlot) -> str:
    """The name under which an instruction has its word for a piece."""
    return re.sub(r"\W", "_", piece.name)


def _in_order(
    pieces: Sequence[QualifierSlot], words: Sequence[str]
) -> list[str] | None:
    """The word for each piece, empty where one is left out, if all words have a piece.

    An optional piece takes a word if it can, as long as the rest then has a place.
    """
    if not pieces:
        return None if words else []
    first, rest = pieces[0], pieces[1:]
    if words and words[0] in first.words:
        found = _in_order(rest, words[1:])
        if found is not None:
            return [words[0], *found]
    if not first.optional:
        return None
    found = _in_order(rest, words)
    return None if found is None else ["", *found]


def _split(operands: str) -> list[str]:
    return [each.strip() for each in operands.split(",") if each.strip()]


_OPERAND = re.compile(
    r"(?P<minus>\{-\})?(?P<name>[\w|]+)(?:\{?\.(?P<selector>\w+)\}?)?(?:\*(?P<vector>\w+))?(?::(?P<type>\w+))?"
)


def _slot(text: str, names: Mapping[str, tuple[str, ...]]) -> Slot:
    """An operand as a line has it; most are in many lines."""
    bare = _bare_slot(text)
    selectors = names.get(bare.selector, ())
    values = tuple(each for each in names.get(bare.name, ()) if each[0].isdecimal())
    if not selectors and not values:
        return bare
    return replace(bare, selectors=selectors, values=values)


@cache
def _bare_slot(text: str) -> Slot:
    """An operand without what a line explains of it."""
    optional = text.startswith("{") and text.endswith("}") and "{-" not in text
    bare = text[1:-1] if optional else text
    address, hidden = bare.startswith("["), bare.startswith("^")
    found = _OPERAND.fullmatch(bare.strip("[]^"))
    if found is None:
        raise ValueError(f"an operand is written as {text!r}")
    minus, name, selector, vector, kind = (each or "" for each in found.groups())
    return Slot(
        name,
        kind,
        optional,
        address,
        hidden,
        vector,
        selector,
        negatable=bool(minus),
    )
