"""The record of one instruction.

An :class:`Instruction` is one row of a family's table with every qualifier
chosen.  It knows its shape and types, what it requires, its PTX operands, and
its operands' fragments.  What can be done with it is written in the rooms above; the
classes that users see extend it in :mod:`fragmenta.frontends.api`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field, replace
from functools import cache, cached_property
from types import MappingProxyType
from typing import NamedTuple, Self

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.base.arrays.record import Record
from fragmenta.errors import (
    LayoutError,
    UnknownInstruction,
    UnknownOperand,
    nearest,
    one_of,
    shortened,
)
from fragmenta.reference.isa.certainty import Certainty, of_instruction
from fragmenta.reference.isa.instruction_descriptor import InstructionDescriptor
from fragmenta.reference.isa.native import expansion
from fragmenta.reference.isa.notes import notes
from fragmenta.reference.isa.table import Form, Move, Row, Unit
from fragmenta.reference.isa.target import Requirement, Version, check_target
from fragmenta.reference.isa.tcgen05_scales import (
    check_scales,
    not_in_tensor_memory,
    scales_of,
)
from fragmenta.reference.isa.tcgen05_shapes import WIDE_K, WIDE_TARGETS, layout_letter
from fragmenta.reference.registers.dtype import DType, dtype
from fragmenta.reference.registers.fragment import Fragment
from fragmenta.reference.registers.granularity import Granularity, granularity
from fragmenta.reference.registers.layout import Layout
from fragmenta.reference.registers.metadata import Metadata
from fragmenta.reference.registers.tensor_metadata import TensorMetadata
from fragmenta.reference.registers.words import container

WARP = 32
_SHAPE = re.compile(r"m(\d{1,9})n(\d{1,9})(?:k(\d{1,9}))?", re.ASCII)


class Shape(NamedTuple):
    """The matrices of an instruction: D is m x n, A is m x k, B is k x n."""

    m: int
    n: int
    k: int

    @classmethod
    def parse(cls, text: str) -> Shape:
        """Read ``m16n8k64`` (or ``m8n8``, with k 0).

        >>> Shape.parse("m16n8k64")
        Shape(m=16, n=8, k=64)
        """
        match = _SHAPE.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise UnknownInstruction(
                f"a shape is written as m16n8k64 or m8n8; given {shortened(str(text))}"
            )
        return cls(*(int(number or 0) for number in match.groups()))

    def __str__(self) -> str:
        return f"m{self.m}n{self.n}" + (f"k{self.k}" if self.k else "")


_IN_WORDS = {
    "constant": "an integer constant",
    "tensor": "an address in tensor memory",
    "number": "a .b32 register or an integer constant",
    "columns": "a number of columns, in a .b32 register or as a constant",
}


@dataclass(frozen=True)
class Operand:
    """One operand as PTX writes it: a register class, or an immediate."""

    name: str
    ptx: str
    """``.b16``, ``.b32``, ``.f32``, ``.s32``, ``.f64``, ``.b64``, ``.pred``; or
    ``immediate``, ``integer``, ``constant``, ``address``, ``stride``; ``tensor``, an
    address in tensor memory; ``number`` and ``columns``, a .b32 or a constant."""
    count: int = 1
    vector: bool = True
    """Whether PTX writes it in braces."""
    values: tuple[int, ...] = ()
    """The legal values of an immediate."""
    targets: str = ""
    """The targets that take it, if not all that have the instruction do."""

    def __str__(self) -> str:
        if self.values:
            return f"{self.name}: one of {', '.join(map(str, self.values))}"
        if self.ptx == "integer":
            return f"{self.name}: an integer constant, 0 or more"
        if self.ptx in _IN_WORDS:
            return f"{self.name}: {_IN_WORDS[self.ptx]}"
        return f"{self.name}: {self.count} x {self.ptx}"


Parts = Mapping[str, Fragment]


@dataclass(frozen=True, eq=False)
class Instruction(Record):
    """One Tensor Core instruction: a row of a table, with every qualifier chosen.

    >>> from fragmenta.reference.isa.reading import instruction
    >>> instruction("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32").shape
    Shape(m=16, n=8, k=64)
    """

    form: Form = field(repr=False)
    row: Row = field(repr=False)
    values: Mapping[str, str]
    idesc: int | None = None
    """The instruction descriptor of a ``tcgen05.mma``, which says shape and types."""

    def __post_init__(self) -> None:
        # Instructions are shared between all who ask for them.
        object.__setattr__(self, "values", MappingProxyType(dict(self.values)))

    def __copy__(self) -> Self:
        return self  # it never changes

    def __deepcopy__(self, memo: object) -> Self:
        return self

    @property
    def family(self) -> str:
        """``mma``, ``mma.sp``, ``wgmma``, ``wgmma.sp``, ``wmma.mma`` … ``sync``."""
        return self.form.name

    @property
    def unit(self) -> Unit:
        """What executes it; empty if it only orders others.

        ``mma``, ``wmma``, ``wgmma`` or ``tcgen05``; ``matrix`` moves 8 x 8 matrices,
        ``sparsity`` compresses registers.

        >>> import fragmenta as fm
        >>> fm.find("ldmatrix.m8n8.x4.b16").unit
        'matrix'
        """
        return self.form.unit

    @property
    def multiplies(self) -> bool:
        """Whether it multiplies matrices; the others move or order.

        >>> import fragmenta as fm
        >>> fm.mma("m16n8k16", a="f16", d="f32").multiplies
        True
        """
        return bool(self.form.multiplies)

    @property
    def warp(self) -> bool:
        """Whether one warp multiplies, with all operands in its registers.

        >>> import fragmenta as fm
        >>> fm.find("wmma.mma.m8n8k32.s4").warp
        True
        """
        return self.multiplies and self.unit in ("mma", "wmma")

    @property
    def moves(self) -> Move:
        """Which way it moves a matrix: load, store, transpose or copy; or nothing.

        >>> import fragmenta as fm
        >>> fm.instruction("tcgen05.cp.cta_group::1.4x256b").moves
        'copy'
        """
        return self.form.moves

    @property
    def loads(self) -> bool:
        """Whether it moves a matrix from memory to registers.

        >>> import fragmenta as fm
        >>> fm.instruction("tcgen05.ld.sync.aligned.32x32b.x1.b32").loads
        True
        """
        return self.moves == "load"

    @property
    def stores(self) -> bool:
        """Whether it moves a matrix from registers to memory.

        >>> import fragmenta as fm
        >>> fm.find("stmatrix.m8n8.x1.b16").stores
        True
        """
        return self.moves == "store"

    @cached_property
    def shape(self) -> Shape:
        """The m, n and k of the instruction."""
        if "shape" not in self.values:
            if self.tensor_memory:
                raise UnknownOperand(
                    f"{self} alone has no shape: its instruction descriptor says it; "
                    "give idesc=, or build it with fm.tcgen05"
                )
            raise UnknownOperand(f"{self} has no shape; it holds no matrices")
        return Shape.parse(self.values["shape"])

    @cached_property
    def types(self) -> Mapping[str, DType]:
        """The element type of each operand that the mnemonic types."""
        chosen = {name: self.values.get(name) for name in "dabc"}
        found = {name: dtype(value) for name, value in chosen.items() if value}
        return MappingProxyType(found)

    @cached_property
    def kind(self) -> str | None:
        """``f8f6f4``, ``mxf8f6f4``, ``mxf4``, ``mxf4nvf4``, or None."""
        return self.values.get("kind", "").removeprefix("kind::") or None

    @property
    def sparse(self) -> bool:
        """Whether A is sparse."""
        return self.form.sparse

    @property
    def warpgroup(self) -> bool:
        """Whether a warpgroup multiplies, with B in shared memory: a ``wgmma``.

        >>> import fragmenta as fm
        >>> fm.wgmma("m64n8k16", a="f16", d="f32").warpgroup
        True
        >>> fm.find("wgmma.fence").warpgroup  # orders multiplications, and is none
        False
        """
        return self.multiplies and self.unit == "wgmma"

    @property
    def tensor_memory(self) -> bool:
        """Whether it multiplies with D in tensor memory: a ``tcgen05.mma``.

        >>> import fragmenta as fm
        >>> fm.tcgen05("m128n256k16", a="f16", d="f32").tensor_memory
        True
        """
        return self.form.multiplies == "tensor memory"

    @property
    def ws(self) -> bool:
        """Whether it is weight-stationary: a ``tcgen05.mma.ws``.

        >>> import fragmenta as fm
        >>> fm.tcgen05("m64n64k16", a="f16", ws=True).ws
        True
        """
        return self.form.ws

    @cached_property
    def cta_group(self) -> int | None:
        """How many CTAs work together: 1 or 2; None if it is no ``tcgen05``.

        >>> import fragmenta as fm
        >>> fm.tcgen05("m256n256k16", a="f16", d="f32", cta_group=2).cta_group
        2
        """
        text = self.values.get("cta_group", "")
        return int(text.removeprefix("cta_group::")) if text else None

    @cached_property
    def descriptor(self) -> InstructionDescriptor | None:
        """What its instruction descriptor says; None without one.

        >>> import fragmenta as fm
        >>> op = fm.instruction("tcgen05.mma.cta_group::1.kind::f16", idesc=0x08400010)
        >>> print(op.descriptor)
        m128n256k16 f16 x f16 -> f32
        """
        if self.idesc is None:
            return None
        return InstructionDescriptor.decode(self.idesc, kind=self.kind or "")

    def with_descriptor(self, idesc: int) -> Self:
        """The same mnemonic with an instruction descriptor, which has to fit.

        >>> import fragmenta as fm
        >>> op = fm.instruction("tcgen05.mma.cta_group::1.kind::f16")
        >>> op.with_descriptor(0x08400010).shape
        Shape(m=128, n=256, k=16)
        """
        if not self.tensor_memory:
            raise UnknownInstruction(
                f"{self.mnemonic} has no instruction descriptor; a tcgen05.mma has one"
            )
        found = InstructionDescriptor.decode(idesc, kind=self.kind or "")
        found.check(self.cta_group or 1, ws=self.ws, sparse=self.sparse)
        whole = replace(
            self, values={**self.values, **found.values}, idesc=found.encode()
        )
        check_scales(whole)
        return whole

    @cached_property
    def layout_letter(self) -> str:
        """The manual's letter, A to G, for the layout of D in tensor memory.

        It is empty for other instructions, and without an instruction descriptor.

        >>> import fragmenta as fm
        >>> fm.tcgen05("m128n256k16", a="f16", d="f32", cta_group=2).layout_letter
        'B'
        """
        if self.descriptor is None:
            return ""
        return layout_letter(self.shape.m, self.cta_group or 1, self.ws, self.sparse)

    @property
    def stored_k(self) -> int:
        """How many columns of A are stored: k, or k / 2 if A is sparse.

        >>> import fragmenta as fm
        >>> fm.mma("m16n8k64", a="s8", sp="sp").stored_k
        32
        """
        return self.shape.k // 2 if self.sparse else self.shape.k

    @property
    def satfinite(self) -> bool:
        """Whether integer results are clamped instead of wrapped."""
        return bool(self.values.get("satfinite"))

    @cached_property
    def scale_vec(self) -> int:
        """Scales per row of A: 1, 2, 4, or 0 without block scaling."""
        text = self.values.get("scale_vec", "")
        if self.tensor_memory:
            return scales_of(self, text)
        return int(text.removeprefix("scale_vec::").rstrip("X")) if text else 0

    @cached_property
    def selectors(self) -> tuple[int, ...]:
        """The legal sparsity selectors; empty for a dense instruction.

        >>> import fragmenta as fm
        >>> fm.mma("m16n8k64", a="s4", sp="sp").selectors
        (0, 1)
        """
        found = [each.values for each in self.operands if each.name == "selector"]
        return found[0] if found else ()

    @cached_property
    def granularity(self) -> Granularity | None:
        """Which elements of A may be stored; None for a dense instruction."""
        if not self.sparse:
            return None
        if "a" not in self.types:
            raise UnknownOperand(
                f"{self} alone has no type of A, which says what may be stored: give "
                "idesc=, or build it with fm.tcgen05"
            )
        return granularity(self.types["a"], self.kind)

    @cached_property
    def requires(self) -> Requirement:
        """The first PTX version, and the targets, that have it."""
        found = self.form.requirement(self.row, self.values)
        if self.idesc is None or self.shape.k != WIDE_K:
            return found
        targets = tuple(each for each in found.targets if each in WIDE_TARGETS)
        return Requirement(found.ptx, targets, " ".join(targets))

    def supported_on(self, target: str, ptx: str | None = None) -> bool:
        """Whether a target has it (in a given PTX version).

        >>> import fragmenta as fm
        >>> op = fm.wgmma("m64n8k16", a="f16", d="f32")
        >>> op.supported_on("sm_90a"), op.supported_on("sm_100a")
        (True, False)
        """
        found = check_target(target)
        if found not in self.requires.targets:
            return False
        return ptx is None or Version.parse(ptx) >= self.requires.ptx_on(found)

    def native_on(self, target: str) -> bool:
        """Whether a target runs it as it is, not as the assembler's expansion.

        >>> import fragmenta as fm
        >>> op = fm.mma("m16n8k64", a="s4", b="s4")
        >>> op.native_on("sm_80"), op.native_on("sm_90")
        (True, False)
        """
        return self.supported_on(target) and expansion(self, target) is None

    def expanded_to(self, target: str) -> str | None:
        """What the assembler makes of it on a target that lacks it, or None.

        >>> import fragmenta as fm
        >>> fm.mma("m16n8k64", a="s4", b="s4").expanded_to("sm_90")
        's8/u8'
        """
        return expansion(self, target)

    @cached_property
    def operands(self) -> tuple[Operand, ...]:
        """The operands in PTX order, with register classes and counts."""
        return self.form.operands(self)

    @cached_property
    def fragments(self) -> Parts:
        """Every operand that is spread over registers, by name."""
        return MappingProxyType(dict(self.form.parts(self)))

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Deprecations, and what the manual or the assembler warns about."""
        return notes(self)

    @cached_property
    def certainty(self) -> Mapping[str, Certainty]:
        """How sure each statement about a ``tcgen05`` is; empty for other families.

        >>> import fragmenta as fm
        >>> print(fm.tcgen05("m64n64k16", a="f16", ws=True).certainty["A"])
        one source: a simulator repeats A for each part of N
        """
        return of_instruction(self)

    @property
    def observed(self) -> str:
        """Where its layouts were observed, if no manual specifies them.

        >>> import fragmenta as fm
        >>> fm.find("wmma.mma.m8n8k32.s4").observed
        'sm_90 (H200)'
        """
        parts = self.fragments.values()
        return next((part.observed for part in parts if part.observed), "")

    def fragment(self, name: str) -> Fragment:
        """The operand of a name, in any case; other names are refused."""
        named = {each.lower(): part for each, part in self.fragments.items()}
        name = str(name)
        if name.lower() in named:
            return named[name.lower()]
        if not named and self.tensor_memory:
            raise UnknownOperand(
                f"{self} alone has no shape, so {name} is not known: give idesc="
            )
        if not named:
            raise UnknownOperand(f"{self} holds no matrices, so it has no {name}")
        have = f"in registers are {one_of(self.fragments, 'and') or 'none'}"
        if name.lower() == "b" and self.warpgroup:
            raise UnknownOperand(
                f"B of {self.family} is in shared memory, read through a descriptor; "
                f"{have}"
            )
        if self.tensor_memory:
            raise UnknownOperand(not_in_tensor_memory(self, name))
        hint = nearest(name, self.fragments)
        raise UnknownOperand(f"{self} has no operand {name}{hint}; {have}")

    @property
    def a(self) -> Fragment:
        """A, as it is stored."""
        return self.fragment("A")

    @property
    def b(self) -> Fragment:
        """B."""
        return self.fragment("B")

    @property
    def c(self) -> Fragment:
        """C."""
        return self.fragment("C")

    @property
    def d(self) -> Fragment:
        """D."""
        return self.fragment("D")

    @cached_property
    def metadata(self) -> Metadata:
        """The sparsity metadata: one nibble per row and chunk of A."""
        found = self.fragment("metadata")
        assert self.granularity is not None
        if self.tensor_memory:
            return TensorMetadata(found, self.granularity, ordered=True)
        ordered = self.values.get("sp") == "sp::ordered_metadata"
        return Metadata(found, self.granularity, ordered)

    @property
    def scale_a(self) -> Fragment:
        """The scales of A."""
        return self.fragment("scale_A")

    @property
    def scale_b(self) -> Fragment:
        """The scales of B."""
        return self.fragment("scale_B")

    @cached_property
    def mnemonic(self) -> str:
        """The canonical text, which parses back to the same instruction."""
        return self.form.spell(self.values)

    def __str__(self) -> str:
        if self.idesc is None:
            return self.mnemonic
        return f"{self.mnemonic} {self.idesc:#010x}"

    def __repr__(self) -> str:
        return f"<{self}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Instruction) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


@cache  # a few hundred fragments serve thousands of instructions
def spread(
    name: str,
    of: str | DType,
    shape: tuple[int, ...],
    line: str,
    *,
    kind: str | None = None,
    warps: int = 1,
    registers: int = 0,
    stored: int = 1,
    observed: str = "",
) -> Fragment:
    """A fragment from its one line: counts follow from the shape and type.

    ``registers`` is given only where copies make it more than the elements
    need.
    """
    element = dtype(of)
    slot = container(element, kind)
    register_bits = max(32, slot.bits)
    elements = register_bits // slot.bits
    count = 1
    for size in shape:
        count *= size
    sizes = {"W": warps} if warps > 1 else {}
    sizes["L"] = WARP
    sizes["R"] = registers or max(1, count // (elements * WARP * warps))
    sizes["E"] = elements
    layout = Layout.parse(line.replace("W*", "W*" if warps > 1 else ""), **sizes)
    if layout.shape != shape:
        raise LayoutError(f"{name} {element} {shape}: {layout} covers {layout.shape}")
    major = ("col", "row") if name == "B" else layout.data[-2:]
    if len(layout.data) > 2:
        major = (*major, *layout.data[:-2])
    return Fragment(name, element, layout, slot, major, stored, observed)


def register_class(of: DType) -> str:
    """The PTX register class of an operand of this type."""
    return {"f32": ".f32", "s32": ".s32", "f64": ".f64"}.get(of.name, ".b32")


def check_holds(op: Instruction, what: str) -> None:
    """Refuse instructions that hold no matrices; ``what`` was to be done.

    >>> import fragmenta as fm
    >>> check_holds(fm.find("wgmma.fence"), "draw")
    Traceback (most recent call last):
    fragmenta.errors.UnknownOperand: wgmma.fence.sync.aligned holds no matrices: \
there is nothing to draw
    """
    if not op.fragments:
        raise UnknownOperand(f"{op} holds no matrices: there is nothing to {what}")
