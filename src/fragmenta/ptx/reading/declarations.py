"""Reads declarations: variables, parameters, registers."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator
from dataclasses import field, replace

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import nearest
from fragmenta.ptx.module import Symbol, Variable, type_bytes
from fragmenta.ptx.reading import expressions
from fragmenta.ptx.reading.expressions import Whole, literal
from fragmenta.ptx.reading.lexer import Cursor

SPACES = ("global", "const", "shared", "local", "param")
LINKAGES = ("visible", "extern", "weak", "common")
_TYPES = (
    "b8 b16 b32 b64 b128 u8 u16 u32 u64 s8 s16 s32 s64 f16 f16x2 bf16 bf16x2 f32 f64 "
    "tf32 f32x2 pred texref samplerref surfref e4m3 e5m2 e4m3x2 e5m2x2"
)
TYPES = tuple(_TYPES.split())
_LANES = {".v2": 2, ".v4": 4}
_MOST_VECTOR_BYTES = 16
_VECTOR_TYPES = "b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f16 f16x2 f32 f64"
_IN_VECTORS = tuple(_VECTOR_TYPES.split())
MOST_ELEMENTS, MOST_NAMES = 1 << 40, 1 << 16
_ADDRESS_BYTES = 8
_NUMBERS = re.compile(
    r"\{((?:\s*+(?:0|[1-9]\d{0,17})\s*+,)*+\s*+(?:0|[1-9]\d{0,17})\s*+)\}", re.ASCII
)
_ADDRESS_TYPES = ("u32", "u64", "b32", "b64", "s32", "s64")


@dataclass
class DeclarationHead:
    """What stands before the names of a declaration."""

    space: str
    linkage: str = ""
    type: str = ""
    lanes: int = 1
    align: int = 0
    attributes: list[str] = field(default_factory=list)
    line: int = 0

    @property
    def bytes(self) -> int:
        """The bytes of one element, which is a vector if there are lanes."""
        return type_bytes(self.type) * self.lanes

    def variable(self, name: str, elements: int | None) -> Variable:
        """A variable of this kind."""
        return Variable(
            name,
            self.space,
            self.type,
            None if elements is None else elements * self.lanes,
            self.align or self.bytes,
            linkage=self.linkage,
            attributes=tuple(self.attributes),
            line=self.line,
        )


def head(cursor: Cursor, space: str, linkage: str = "") -> DeclarationHead:
    """Take alignment, attributes and type; the state space was taken before."""
    made = DeclarationHead(space, linkage, line=cursor.text.place(cursor.at)[0])
    if space == "const" and cursor.accept("["):  # a bank, up to PTX 2.1
        cursor.number()
        cursor.expect("]")
    while not made.type:
        word = cursor.word
        if word == ".align":
            made.align = _align(cursor)
        elif word == ".attribute":
            made.attributes += attributes(cursor)
        elif word in _LANES and made.lanes == 1:
            made.lanes = _LANES[cursor.step()]
        elif word[1:] in TYPES and cursor.kind == "directive":
            _fits_vector(cursor, made.lanes)
            made.type = cursor.step()[1:]
        else:
            _no_type(cursor)
    return made


def _fits_vector(cursor: Cursor, lanes: int) -> None:
    """Refuse a type that a vector of so many elements cannot have."""
    kind = cursor.word[1:]
    if lanes == 1 or (
        kind in _IN_VECTORS and type_bytes(kind) * lanes <= _MOST_VECTOR_BYTES
    ):
        return
    fit = [
        f"'.{each}'"
        for each in _IN_VECTORS
        if type_bytes(each) * lanes <= _MOST_VECTOR_BYTES
    ]
    cursor.text.fail(cursor.at, f"'{cursor.word}' in a vector of {lanes}", fit)


def _no_type(cursor: Cursor) -> None:
    """Raise the error for a word that is neither a type nor what may precede it."""
    hint = nearest(cursor.word[1:], TYPES) if cursor.kind == "directive" else ""
    allowed = ["a type such as .b32 or .f32", "'.align'", "'.v4'"]
    cursor.text.fail(cursor.at, cursor.found(), allowed, hint)


def _align(cursor: Cursor) -> int:
    cursor.expect(".align")
    at, align = cursor.at, cursor.number("an alignment in bytes")
    if align < 1 or align & (align - 1):
        cursor.text.fail(at, f"the alignment {align}", ["a power of two"])
    return align


def attributes(cursor: Cursor) -> Iterator[str]:
    """Take ``.attribute(.managed, .unified(1, 2))``: managed, unified(1,2)."""
    cursor.expect(".attribute")
    cursor.expect("(")
    while True:
        if cursor.kind != "directive":
            cursor.fail("'.managed'", "'.unified'")
        word = cursor.step()[1:]
        if cursor.accept("("):
            numbers = [str(cursor.number())]
            while cursor.accept(","):
                numbers.append(str(cursor.number()))
            cursor.expect(")", "','")
            word += f"({','.join(numbers)})"
        yield word
        if not cursor.accept(","):
            break
    cursor.expect(")", "','")


def _dimensions(cursor: Cursor) -> list[int | None]:
    """Take ``[4][8]``; None for ``[]``."""
    found: list[int | None] = []
    while cursor.accept("["):
        at = cursor.at
        if not found and cursor.accept("]"):
            found.append(None)
            continue
        found.append(expressions.whole(cursor))
        if not 0 <= (found[-1] or 0) < MOST_ELEMENTS:
            cursor.text.fail(at, f"an array of {found[-1]} elements")
        cursor.expect("]", "an operator")
    return found


def _elements(sizes: list[int | None]) -> int | None:
    return None if None in sizes else math.prod(size or 0 for size in sizes)


def register_names(
    cursor: Cursor, what: str = "the name of a register"
) -> Iterator[tuple[str, int | None, int]]:
    """Take the names of registers: ``%a, %r<100>``, with the count and the place."""
    while True:
        at, name = cursor.at, cursor.name(what)
        yield name, _count(cursor), at
        if not cursor.accept(","):
            break
    cursor.expect(";", "','", "'<'")


def _count(cursor: Cursor) -> int | None:
    """Take the ``<100>`` after a name, if it is there."""
    if not cursor.accept("<"):
        return None
    count = cursor.number()
    cursor.expect(">")
    return count


def numbered(cursor: Cursor, name: str, count: int) -> list[str]:
    """The names that ``name<count>`` stands for."""
    if count > MOST_NAMES:
        cursor.text.fail(cursor.at, f"{count} names at once", [f"up to {MOST_NAMES}"])
    return [f"{name}{number}" for number in range(count)]


def variables(cursor: Cursor, of: DeclarationHead) -> Iterator[tuple[Variable, int]]:
    """Take the names of variables with their initial values, and their places."""
    while True:
        at, name = cursor.at, cursor.name("the name of a variable")
        count = _count(cursor)
        if count is None:
            yield _initialised(cursor, of, name), at
        else:
            for each in numbered(cursor, name, count):
                yield of.variable(each, 1), at
        if not cursor.accept(","):
            break
    cursor.expect(";", "','", "'['", "'='")


def _initialised(cursor: Cursor, of: DeclarationHead, name: str) -> Variable:
    """Take the dimensions and the initial value after a name."""
    sizes = _dimensions(cursor)
    elements = _elements(sizes)
    if not cursor.accept("="):
        return of.variable(name, elements)
    if of.type in ("texref", "samplerref", "surfref"):
        return replace(
            of.variable(name, elements),
            attributes=(*of.attributes, *_settings(cursor)),
        )
    if of.lanes > 1:
        sizes.append(of.lanes)
    initial = Initial(cursor, of)
    if sizes:
        inner = [size or 0 for size in sizes[1:]]
        rows = initial.row(sizes[0], inner)
        if elements is None:
            elements = rows * math.prod(inner) // of.lanes
    else:
        initial.value()
    made = of.variable(name, elements)
    places, parts = initial.references()
    return replace(
        made, initial=bytes(initial.data), references=places, byte_references=parts
    )


def _settings(cursor: Cursor) -> Iterator[str]:
    """Take ``{ addr_mode_0 = wrap, filter_mode = nearest }``."""
    cursor.expect("{")
    while True:
        name = cursor.name("a setting")
        cursor.expect("=")
        yield f"{name}={cursor.step()}"
        if not cursor.accept(","):
            break
    cursor.expect("}", "','")


@dataclass
class Initial:
    """The initial value of a variable, while it is read."""

    cursor: Cursor
    of: DeclarationHead
    data: bytearray = field(default_factory=bytearray)
    addresses: list[tuple[int, Symbol, int | None]] = field(default_factory=list)
    """Place, symbol, and which byte of the address; None for the whole."""

    def row(self, size: int | None, inner: list[int]) -> int:
        """Take the values of an array in braces, and count them.

        ptxas puts all values in a row, also if an inner array has too few of them.
        """
        cursor = self.cursor
        is_vector = not inner and self.of.lanes > 1
        if not (inner or is_vector) and (taken := self.numbers(size)):
            return taken
        cursor.enter()
        cursor.expect("{")
        count = 0
        while count or cursor.word != "}":
            if count == size:
                cursor.fail("'}'")
            if inner:
                self.row(inner[0], inner[1:])
            else:
                self.value()
            count += 1
            if not cursor.accept(","):
                break
        if is_vector and count != size:
            cursor.fail("','")
        cursor.expect("}", "','")
        cursor.leave()
        return count

    def numbers(self, most: int | None) -> int:
        """Take whole numbers in braces at once, and count them; 0 if it is not that.

        Programs hold long texts, byte by byte.
        """
        found = _NUMBERS.match(self.cursor.clean, self.cursor.at)
        if found is None or self.of.type[0] not in "bus" or self.of.type == "bf16":
            return 0
        values = list(map(int, found[1].split(",")))
        if most is not None and len(values) > most:
            return 0
        size = type_bytes(self.of.type)
        mask = (1 << 8 * size) - 1
        self.data.extend(b"".join((n & mask).to_bytes(size, "little") for n in values))
        self.cursor.jump(found.end())
        return len(values)

    def value(self) -> None:
        """Take one value, a number or an address."""
        cursor, start = self.cursor, self.cursor.at
        if cursor.kind == "name" and cursor.word != "WARP_SZ":
            if self.of.type not in _ADDRESS_TYPES:
                cursor.fail(f"a number in a .{self.of.type}")
            self.addresses.append((len(self.data), self.symbol(), None))
            self.data.extend(bytes(type_bytes(self.of.type)))
            return
        word = cursor.word
        if cursor.kind == "number" and word[:2].lower() == "0f":
            cursor.step()
            self.data.extend(self.packed(float(literal(word).value), word, start))
            return
        value = expressions.expression(cursor)
        if cursor.word == "(" and isinstance(value, Whole):
            self.masked(value.value, start)
        else:
            self.data.extend(self.packed(value, word, start))

    def symbol(self) -> Symbol:
        """Take ``name``, ``name+4`` or ``generic(name)+4``."""
        cursor = self.cursor
        name = cursor.name("a name")
        if name == "generic" and cursor.accept("("):
            name = cursor.name("a name")
            cursor.expect(")")
        return Symbol(name, expressions.added(cursor))

    def masked(self, mask: int, start: int) -> None:
        """Take the rest of ``0xff00(name)``: one byte of an address."""
        self.cursor.expect("(")
        symbol = self.symbol()
        self.cursor.expect(")", "'+'")
        byte = next((i for i in range(8) if mask == 0xFF << 8 * i), None)
        if byte is None:
            self.cursor.text.fail(start, f"the mask {mask:#x}", ["0xff", "0xff00", "…"])
        self.addresses.append((len(self.data), symbol, byte))
        self.data.extend(bytes(type_bytes(self.of.type)))

    def packed(self, value: expressions.Value, word: str, start: int) -> bytes:
        """The bytes of a number.

        As ptxas has it, a ``0f…`` gives its 32 bits in any type of at least as many,
        and a float in an untyped variable of 8 or 16 bits the lowest bits of a double.
        """
        of, size = self.of.type, type_bytes(self.of.type)
        if isinstance(value, Whole):
            if of[0] not in "bus" or of == "bf16":
                self.cursor.text.fail(start, f"'{word}' in a .{of}", ["a float"])
            return (value.value & (1 << 8 * size) - 1).to_bytes(size, "little")
        if of not in ("f32", "f64") and (of[0] != "b" or of == "bf16"):
            self.cursor.text.fail(start, f"'{word}' in a .{of}", ["a whole number"])
        if word[:2].lower() == "0f" and size >= 4:
            return int(word[2:], 16).to_bytes(size, "little")
        return _float_bytes(value, size)

    def references(
        self,
    ) -> tuple[tuple[tuple[int, Symbol], ...], tuple[tuple[int, int, Symbol], ...]]:
        """Whole addresses, and single bytes of addresses that are not in a row of 8."""
        whole = [(at, symbol) for at, symbol, byte in self.addresses if byte is None]
        parts = {
            at: (symbol, byte)
            for at, symbol, byte in self.addresses
            if byte is not None
        }
        for at, (symbol, byte) in sorted(parts.items()):
            run = range(at, at + _ADDRESS_BYTES)
            if byte == 0 and all(parts.get(i) == (symbol, i - at) for i in run):
                whole.append((at, symbol))
                for i in run:
                    del parts[i]
        single = ((at, byte, symbol) for at, (symbol, byte) in sorted(parts.items()))
        return tuple(sorted(whole, key=lambda each: each[0])), tuple(single)


def _float_bytes(value: float, size: int) -> bytes:
    if size != 4:
        return struct.pack("<d", value).ljust(size, b"\0")[:size]
    try:
        return struct.pack("<f", value)
    except OverflowError:  # it rounds to infinity
        return struct.pack("<f", math.copysign(math.inf, value))


def parameter(cursor: Cursor) -> Variable:
    """Take one parameter of a function or a kernel.

    A hidden one is filled by NVIDIA's driver; cuTile's compiler makes them.
    """
    hidden = cursor.accept(".hidden")
    if cursor.word not in (".param", ".reg"):
        cursor.fail("'.param'", "'.reg'", "')'")
    of = head(cursor, cursor.step()[1:])
    if hidden:
        of.attributes.append("hidden")
    if cursor.word == ".align":  # of a parameter, it may also stand after the type
        of.align = _align(cursor)
    if cursor.accept(".ptr"):
        of.attributes.append("ptr")
        if cursor.word in (".global", ".const", ".shared", ".local", ".generic"):
            of.attributes.append(cursor.step()[1:])
        if cursor.word == ".align":
            of.attributes.append(f"align {_align(cursor)}")
    name = cursor.name("the name of a parameter")
    sizes = _dimensions(cursor)
    elements = _elements(sizes)
    return of.variable(name, elements)


def parameters(cursor: Cursor) -> tuple[Variable, ...]:
    """Take a list of parameters in parentheses, if there is one."""
    if not cursor.accept("("):
        return ()
    found = []
    if cursor.word != ")":
        found.append(parameter(cursor))
        while cursor.accept(","):
            found.append(parameter(cursor))
    cursor.expect(")", "','")
    return tuple(found)
