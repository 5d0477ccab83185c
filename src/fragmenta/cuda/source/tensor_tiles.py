"""CUDA statements that fill shared and tensor memory for ``tcgen05.mma``.

A chunk is what four instructions read.  A and B are tiles that descriptors describe;
scales are blocks in the order of cuBLAS, which a copy moves; metadata, and A in tensor
memory, are gathered by the threads of each lane.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.cuda.source.access import expression, summand
from fragmenta.cuda.source.formatting import wrapped
from fragmenta.cuda.source.tensor_moves import STEPS, column_of, lane_of, stored_bits
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.registers.fragment import Fragment
from fragmenta.reference.shared.descriptor import (
    Descriptor,
    MajorAxis,
    atoms,
    offset_names,
)
from fragmenta.reference.shared.fields import MODES_OF
from fragmenta.reference.shared.operands import extent, major_of
from fragmenta.reference.shared.swizzles import UNIT, pattern
from fragmenta.reference.shared.tiles import PATTERN, default_swizzle
from fragmenta.reference.tensor_memory.scales import FACTORS, ROWS

_BLOCK = ROWS * FACTORS
"""Bytes of a block of scales."""
_ROOM = 68
"""Characters of a statement in the innermost loop."""
_TOTAL = {"A": "m", "B": "n"}
_FIRST = {"A": "row_0", "B": "col_0"}


def indented(lines: Iterable[str]) -> list[str]:
    """Lines of the body of something."""
    return [f"    {line}" if line else "" for line in lines]


def folded(statement: str) -> list[str]:
    """A statement in lines that fit, broken before a sum's term.

    >>> folded("int row = 1 + 2;")
    ['int row = 1 + 2;']
    """
    first, *rest = statement.split(" + ")
    lines = wrapped([first, *(f"+ {term}" for term in rest)], _ROOM)
    return [lines[0], *indented(lines[1:])]


def times(number: str, factor: Fraction) -> str:
    """A number times a factor, as C in 64 bits.

    >>> times("k", Fraction(2)), times("k", Fraction(1, 2)), times("k", Fraction(1))
    ('k * 2ll', 'k / 2ll', 'k')
    """
    if factor == 1:
        return number
    if factor > 1:
        return f"{number} * {factor.numerator}ll"
    return f"{number} / {factor.denominator}ll"


# ── A and B ─────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Tile:
    """A chunk of A or B in shared memory."""

    where: Descriptor
    major: MajorAxis
    rows: int
    """Of the block: half of them if two blocks work together."""
    k: int
    """Stored columns of the chunk."""
    bits: int
    narrow: int
    """The bits of elements that are stored without gaps, with padding; or 0."""
    size: int
    steps: tuple[int, ...]
    """The bytes from the beginning to where each instruction begins."""

    @property
    def change(self) -> str:
        """The conversion of a unit of 16 bytes while it is copied."""
        return f"packed_units<{self.narrow}>()" if self.narrow else "as_they_are()"

    @property
    def descriptor(self) -> str:
        """The call that makes the descriptor."""
        d = self.where
        mode = MODES_OF["tcgen05"].index(d.swizzle)
        words = f"image + {d.start}, {d.leading}, {d.stride}, {mode}"
        return f"tcgen05_descriptor({words})"

    def at(self, name: str, step: int) -> str:
        """The descriptor for one instruction: only the start differs."""
        further = self.steps[step] // UNIT
        return f"{name} + {further}" if further else name

    def fill(self, op: Instruction, operand: str) -> list[str]:
        """Statements that copy the chunk from global memory."""
        shape, d = pattern(self.where.swizzle), self.where
        by_name = {"leading": d.leading, "stride": d.stride}
        to_span, to_lines = (by_name[n] for n in offset_names(self.major, d.swizzle))
        each = Fraction(self.bits, 8)
        stored = each / 2 if op.sparse and operand == "A" else each
        first = _FIRST[operand]
        if op.cta_group == 2:
            first = f"({first} + cta * {self.rows})"
        if self.major == "k":
            lines, along = self.rows, self.k
            stride, across = times("k", stored), first
            inside = f"chunk * {int(along * each)}"
        else:
            lines, along = self.k, self.rows
            stride, across = times(_TOTAL[operand], each), f"chunk * {self.k}ll"
            inside = times(first, each)
        numbers = (
            lines,
            int(along * each) // UNIT,
            shape.span,
            shape.lines,
            to_span,
            to_lines,
            shape.changed,
            shape.xor.shift,
        )
        words = [
            f"image + {d.start},",
            f"{operand} + {across} * ({stride}) + {inside},",
            f"{stride},",
            f"{self.change});",
        ]
        head = f"fill_tile<{', '.join(map(str, numbers))}>("
        return [head, *indented(wrapped(words, 76))]


def tile(op: Instruction, operand: str, start: int) -> Tile:
    """The chunk of an operand, from a byte of shared memory on.

    >>> import fragmenta as fm
    >>> found = tile(fm.tcgen05("m128n64k16", a="f16", d="f32"), "A", 0)
    >>> found.size, found.steps
    (16384, (0, 32, 64, 96))
    """
    rows, k = extent(op, operand)
    of, major = op.types[operand.lower()], major_of(op, operand)
    swizzle = default_swizzle(op, operand, major)
    where = Descriptor.for_tile(
        rows,
        STEPS * k,
        of,
        major=major,
        swizzle=swizzle,
        start=start,
        family="tcgen05",
        kind=op.kind,
    )
    across, along = atoms(rows, STEPS * k, of, major, swizzle, "tcgen05", op.kind)
    size = -(-across * along * pattern(swizzle).atom // PATTERN) * PATTERN
    bits = stored_bits(op, operand)
    steps = [where.advance(op, operand, k=k * step).start for step in range(STEPS)]
    return Tile(
        where,
        major,
        rows,
        STEPS * k,
        bits,
        of.bits if of.bits < bits else 0,
        size,
        tuple(each - start for each in steps),
    )


# ── scales ──────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Scales:
    """The factors of a chunk: in shared memory, then in tensor memory."""

    start: int
    column: int
    rows: int
    """Blocks of 128 rows."""
    blocks: int
    """Blocks of 4 factors."""
    width: int
    """Columns of tensor memory for 4 factors of all rows."""

    @property
    def size(self) -> int:
        """Bytes of shared memory; more tiles begin at a multiple of 1024."""
        return -(-self.rows * self.blocks * _BLOCK // PATTERN) * PATTERN

    @property
    def columns(self) -> int:
        """Columns of tensor memory."""
        return self.width * self.blocks

    def fill(self, op: Instruction, name: str) -> list[str]:
        """Statements that copy the chunk's blocks from global memory."""
        line = self.blocks * _BLOCK
        first = f"blockIdx.y * {self.rows}"
        if name == "scale_A":
            first = f"row_0 / {ROWS}" + (" + cta" if op.cta_group == 2 else "")
        total = f"k / {STEPS * op.shape.k} * {line}ll"
        words = [
            f"image + {self.start},",
            f"{name} + ({first}) * ({total}) + chunk * {line},",
            f"{total},",
            "as_they_are());",
        ]
        # The blocks are contiguous, so there is no swizzle, and the copy is one span.
        numbers = (self.rows, line // UNIT, line, 1, 0, line, 0, 0)
        head = f"fill_tile<{', '.join(map(str, numbers))}>("
        return [head, *indented(wrapped(words, 76))]

    def copy(self, function: str) -> list[str]:
        """Statements that copy the blocks to tensor memory."""
        lines = []
        for row in range(self.rows):
            for block in range(self.blocks):
                at = self.start + (row * self.blocks + block) * _BLOCK
                column = self.column + block * self.width + row * (ROWS // 32)
                # Eight lanes of 16 bytes, one after the other.
                made = f"tcgen05_descriptor(image + {at}, {UNIT}, {8 * UNIT}, 0)"
                lines += [f"{function}(", f"    taddr + {column}, {made});"]
        return lines

    def step(self, step: int, each: int) -> tuple[int, int]:
        """The column of an instruction with ``each`` factors, and its first byte."""
        block, first = divmod(step * each, FACTORS)
        return self.column + block * self.width, first


def scales(op: Instruction, name: str, start: int, column: int) -> Scales:
    """The scales of A or B, from a byte and a column on."""
    width = op.fragments[name].registers
    return Scales(start, column, width * 32 // ROWS, op.scale_vec, width)


# ── what threads store ──────────────────────────────────────────────────────


def gathered(op: Instruction, name: str, store: Instruction) -> list[str]:
    """Statements that gather the words of each lane, without the store."""
    part = op.fragments[name]
    count, each = STEPS * part.registers, part.registers
    rows = f"row_0 + {summand(part.layout, 'row')}"
    body = [
        f"int tensor_lane = 32 * warp + {lane_of(store)};",
        f"int column = {column_of(store)}, step = column / {each};",
        f"column %= {each};",
    ]
    body += _codes(op, part, rows) if name == "metadata" else _words(op, part, rows)
    return [
        f"unsigned {name}_words[{count}];",
        "#pragma unroll",
        f"for (int r = 0; r < {count}; ++r) {{",
        *indented(body),
        "}",
    ]


def _codes(op: Instruction, part: Fragment, rows: str) -> list[str]:
    """A word of metadata: eight codes of 4 bits, each from its row and chunk."""
    assert op.granularity is not None
    chunks = part.shape[1]
    inside = [
        *folded(f"int row = {rows};"),
        *folded(f"int code = {expression(part.layout, 'chunk')};"),
        f"code += (chunk * {STEPS} + step) * {chunks};",
        f"unsigned bits = nibble(metadata, row * (k / {op.granularity.chunk}) + code);",
        "word |= bits << 4 * e;",
    ]
    return [
        "unsigned word = 0;",
        "#pragma unroll",
        f"for (int e = 0; e < {part.elements}; ++e) {{",
        *indented(inside),
        "}",
        "metadata_words[r] = word;",
    ]


def _words(op: Instruction, part: Fragment, rows: str) -> list[str]:
    """A word of A: elements that are neighbours in memory, too."""
    slot = part.container
    stride = times("k", Fraction(slot.bits, 16 if op.sparse else 8))
    step = op.stored_k * slot.bits // 8
    col = expression(part.layout, "col", run=part.elements)
    lines = [
        *folded(f"long long row = {rows};"),
        f"long long at = row * ({stride}) + (chunk * {STEPS} + step) * {step};",
        f"at += {col if slot.bits == 8 else f'({col}) * {slot.bits} / 8'};",
        "unsigned word = *reinterpret_cast<const unsigned*>(A + at);",
    ]
    if slot.width == slot.bits:
        return [*lines, "A_words[r] = word;"]
    mask = sum(((1 << slot.width) - 1) << slot.bits * i for i in range(part.elements))
    shift = f" << {slot.shift}" if slot.shift else ""
    return [*lines, f"A_words[r] = (word & {mask:#x}u){shift};"]
