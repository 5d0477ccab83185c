"""A PTX module after it was read: functions, instructions, operands, variables.

These are the parts of a module after it was read.  Names are already resolved: a
register of an inner ``{ }`` block is another :class:`Register` than one of the same
name outside, and so is a label.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from typing import TypeAlias

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.ptx import families

INSTALLED = re.compile(r"/(site|dist)-packages/|^/(usr|opt)/")
"""Files of installed packages and of the toolkit."""


@dataclass(frozen=True, slots=True)
class Location:
    """A place in the program that the PTX was compiled from: what ``.loc`` says."""

    file: str
    line: int
    column: int
    caller: Location | None = None
    """Where the function was called, if it was inlined."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def frames(self) -> tuple[Location, ...]:
        """The line of the kernel itself, those of the functions it calls, and this."""
        found = [self]
        while found[-1].caller is not None:
            found.append(found[-1].caller)
        return tuple(reversed(found))

    @property
    def own(self) -> Location:
        """The innermost line that no installed library has; else the kernel's.

        >>> kernel = Location("gemm.cu", 205, 9)
        >>> str(Location("/usr/local/cuda/include/cuda_bf16.h", 59, 1, kernel).own)
        'gemm.cu:205'
        """
        frames = self.frames
        mine = (each for each in reversed(frames) if not INSTALLED.search(each.file))
        return next(mine, frames[0])

    @property
    def words(self) -> str:
        """The line of the kernel itself, and in brackets those of what it calls.

        >>> ring = Location("ring.cuh", 31, 5, Location("gemm.cu", 205, 9))
        >>> Location("include/copy.cuh", 59, 1, ring).words
        'gemm.cu:205 (ring.cuh:31, copy.cuh:59)'
        """
        first, *inner = self.frames
        short = dict.fromkeys(str(each).rpartition("/")[2] for each in inner)
        return f"{first} ({', '.join(short)})" if inner else str(first)


# ── operands ────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Register:
    """A declared register."""

    name: str
    type: str
    """``b32``, ``f32``, ``pred`` … as declared, without the dot."""
    number: int
    """Its place among all registers of the function that are used."""
    vector: str = ""
    """The vector register that it is an element of: ``%v`` for ``%v.x``."""


@dataclass(frozen=True, slots=True)
class RegisterPart:
    """A byte or half of a register, ``.b0`` or ``.h1``, in a video instruction."""

    of: Register
    which: str


@dataclass(frozen=True, slots=True)
class Not:
    """A negated predicate: ``!%p``."""

    of: Register


@dataclass(frozen=True, slots=True)
class Negative:
    """A negated operand of a video instruction: ``-%r1``, ``-%r1.h0``."""

    of: Register | RegisterPart


@dataclass(frozen=True, slots=True)
class Special:
    """A special register such as ``%tid.x``; the name has the percent sign."""

    name: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """A constant.  Floats written in hexadecimal keep their bits."""

    value: int | float
    form: str
    """``int``, ``f32`` (written ``0f…``) or ``f64`` (``0d…`` or decimal)."""
    bits: int
    """The bits: 64 of a two's complement integer, 32 or 64 of a float."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """The name of a variable, a parameter or a function, and bytes added to it."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Label:
    """A label; ``name`` is unique in the function, ``text`` as written."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Sink:
    """An underscore: the result is not wanted."""


@dataclass(frozen=True, slots=True)
class Vector:
    """Operands in braces, or all elements of a vector register."""

    items: tuple[Operand, ...]
    name: str = ""
    """The vector register that was written, ``%v`` or ``%tid``; empty for braces."""


@dataclass(frozen=True, slots=True)
class Address:
    """A place in memory: ``[%rd1+8]``, ``[name]``, ``[64]``.

    ``base`` is 0 for an absolute address.  A tensor map has coordinates, and may have
    further items: ``[%rd1, {%r1, %r2}, {%rs1}]``.
    """

    base: Register | Symbol | int
    offset: int = 0
    items: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Pair:
    """Two results, ``%p|%q``; either may be a sink."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class OperandGroup:
    """Operands in parentheses: what a call gives and gets."""

    items: tuple[Operand, ...]


Operand: TypeAlias = (
    Register
    | RegisterPart
    | Not
    | Negative
    | Special
    | Immediate
    | Symbol
    | Label
    | Sink
    | Vector
    | Address
    | Pair
    | OperandGroup
)


# ── statements ──────────────────────────────────────────────────────────────


class _OneOf:
    """Whether an instruction is of a family."""

    def __init__(self, opcodes: frozenset[str]) -> None:
        self._opcodes = opcodes

    def __get__(self, of: Instruction, owner: object) -> bool:
        return of.opcode in self._opcodes


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a function."""

    opcode: str
    """The first word: ``ld``, ``mma``, ``cp``."""
    qualifiers: tuple[str, ...]
    """The words after it, without dots: ``("global", "v4", "f32")``."""
    operands: tuple[Operand, ...]
    guard: Register | Not | None
    line: int
    """The line in the PTX text, from 1."""
    column: int
    source: Location | None = None

    is_load = _OneOf(families.LOADS)
    is_store = _OneOf(families.STORES)
    is_fetch = _OneOf(families.FETCHES)
    is_update = _OneOf(families.UPDATES)
    is_access = _OneOf(families.ACCESSES)
    is_read = _OneOf(families.READS)
    is_write = _OneOf(families.WRITES)
    is_copy = _OneOf(families.COPIES)
    is_barrier = _OneOf(families.BARRIERS)
    is_mbarrier = _OneOf(families.MBARRIERS)
    is_move = _OneOf(families.MOVES)
    is_conversion = _OneOf(families.CONVERSIONS)
    is_comparison = _OneOf(families.COMPARISONS)
    is_shuffle = _OneOf(families.SHUFFLES)
    is_sum = _OneOf(families.SUMS)
    is_product = _OneOf(families.PRODUCTS)
    is_fused = _OneOf(families.FUSED)
    of_fragments = _OneOf(families.WARP_PRODUCTS)
    of_warpgroup = _OneOf(families.WARPGROUP)
    of_tensor_memory = _OneOf(families.TENSOR_MEMORY)

    @property
    def votes(self) -> bool:
        """Whether threads get a result of all at a barrier."""
        return self.is_barrier and "red" in self.qualifiers

    @property
    def mnemonic(self) -> str:
        """Opcode and qualifiers as written: ``ld.global.v4.f32``."""
        return ".".join((self.opcode, *self.qualifiers))


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of a module or a function."""

    name: str
    space: str
    """``global``, ``const``, ``shared``, ``local`` or ``param``."""
    type: str
    """The type of one element; ``b8`` for bytes."""
    elements: int | None
    """How many elements; None for ``[]``, whose size is known at launch."""
    align: int
    """Alignment in bytes."""
    initial: bytes | None = None
    """The first bytes of its memory; the rest is zero.  None: not initialised."""
    references: tuple[tuple[int, Symbol], ...] = ()
    """Places in ``initial`` that hold an address: 8 bytes, or as many as an element."""
    linkage: str = ""
    """``visible``, ``extern``, ``weak``, ``common`` or nothing."""
    attributes: tuple[str, ...] = ()
    """``managed``; of a parameter ``hidden``; of a pointer among them ``ptr``,
    ``global`` and ``align 16``."""
    line: int = 0
    byte_references: tuple[tuple[int, int, Symbol], ...] = ()
    """Places that hold one byte of an address, and which; ``0xff00(x)`` is byte 1."""

    @property
    def size(self) -> int:
        """Its bytes; 0 if the size is known only at launch."""
        return (self.elements or 0) * type_bytes(self.type)


@dataclass(frozen=True)
class Function:
    """A kernel (``.entry``) or a function (``.func``)."""

    name: str
    kernel: bool
    parameters: tuple[Variable, ...]
    returns: tuple[Variable, ...]
    instructions: tuple[Instruction, ...]
    labels: Mapping[str, int]
    """For each unique label name, the index of the instruction it stands before."""
    registers: tuple[Register, ...]
    """All registers that the instructions use, by number."""
    variables: Mapping[str, Variable]
    """Variables declared inside (local, shared, param), by unique name."""
    tables: Mapping[str, tuple[Symbol | Label, ...]] = field(default_factory=dict)
    """``.branchtargets`` and ``.calltargets`` by unique name; used as a Symbol."""
    prototypes: Mapping[str, Function] = field(default_factory=dict)
    """``.callprototype`` by unique name, used as a Symbol; without instructions."""
    directives: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)
    """``.maxntid``, ``.reqntid``, ``.noreturn`` … with their numbers."""
    linkage: str = ""
    declared_only: bool = False
    """Whether there is no body, as for ``vprintf``."""
    line: int = 0

    @property
    def shown(self) -> str:
        """Its name in messages: that of C++, if it is one."""
        return demangled(self.name)

    @property
    def of_tiles(self) -> bool:
        """Whether cuTile's compiler made it, which says so in ``.language``."""
        return self.directives.get("language") == (_TILES,)


_TILES = 7
_LINE = 200
"""Characters of a line that a message quotes."""


@dataclass(frozen=True)
class Module:
    """A PTX file."""

    version: tuple[int, int]
    target: str
    """The first word of ``.target``, such as ``sm_90a``."""
    options: tuple[str, ...]
    """Further words of ``.target``: ``debug``, ``texmode_independent`` …"""
    address_size: int
    functions: Mapping[str, Function]
    """Kernels and functions by name."""
    variables: Mapping[str, Variable]
    aliases: Mapping[str, str]
    files: Mapping[int, str]
    text: str = field(repr=False)
    name: str = ""
    """The name of the file it was read from."""
    pragmas: tuple[str, ...] = ()
    """What ``.pragma`` says outside of functions."""
    skipped: tuple[int, int] = (0, 0)
    """Slots of memory that variables of other modules have: global and constant."""

    def where(self, instruction: Instruction) -> str:
        """The place and the text of an instruction, for a message."""
        lines = self.text.splitlines()
        text = ""
        if 0 < instruction.line <= len(lines):
            text = lines[instruction.line - 1].strip()
        if len(text) > _LINE:
            text = f"{text[: _LINE - 2]} …"
        source = f", {instruction.source.words}" if instruction.source else ""
        return f"{self.name or 'PTX'} line {instruction.line}{source}: {text}"


@cache
def type_bits(name: str) -> int:
    """The bits of a type by its PTX name; a predicate has one.

    >>> type_bits("f16x2"), type_bits("pred"), type_bits("e4m3x2"), type_bits("s64")
    (32, 1, 16, 64)
    """
    base, _, times = name.partition("x")
    named = {"pred": 1, "bf16": 16, "tf32": 32, "e2m1": 4}.get(base)
    digits = base.lstrip("busf")
    # The other small floats (e4m3, ue8m0, s2f6) are bytes.
    bits = named or (int(digits) if digits.isdecimal() else 8)
    return bits * int(times or 1)


@cache
def type_bytes(name: str) -> int:
    """The bytes of a type of a variable or register.

    >>> type_bytes("f32"), type_bytes("b128"), type_bytes("f16x2"), type_bytes("pred")
    (4, 16, 4, 1)
    """
    if name in ("", "texref", "samplerref", "surfref"):
        return 8
    return max(1, type_bits(name) // 8)


def demangled(name: str) -> str:
    """The name of a function or a variable in C++, without types and templates.

    The parameters of a kernel are called after it.

    >>> demangled("_Z5scaleIfLi4EEvPT_i"), demangled("_ZN3lib4mine5scaleEPfi")
    ('scale', 'lib::mine::scale')
    >>> demangled("_Z5scalePf_param_0")
    'scale_param_0'
    >>> demangled("_ZN12_GLOBAL__N_15scaleEv"), demangled("add"), demangled("_Z99x")
    ('scale', 'add', '_Z99x')
    """
    found = re.match(r"_ZN?[KVrL]*(?=\d)", name)
    if found is None:
        return name
    at, parts = found.end(), []
    while number := re.compile(r"\d{1,6}").match(name, at):
        at = number.end() + int(number[0])
        if at > len(name):
            return name
        parts.append(name[number.end() : at])
        if not found[0].startswith("_ZN"):
            break
    plain = "::".join(each for each in parts if not each.startswith("_GLOBAL__N_"))
    suffix = re.search(r"_param_\d+$", name)
    return plain + (suffix[0] if suffix else "")
