"""``ldmatrix``, ``stmatrix``, ``movmatrix``: load, store and transpose small matrices.

The coordinates of these fragments are those of memory.  ``matrix`` is the number of
the matrix, ``row`` is the row whose address a lane supplies, and ``col`` is the
element in that row.
"""

from __future__ import annotations

from typing import NamedTuple

from fragmenta.reference.isa.instruction import Instruction, Operand, Parts, spread
from fragmenta.reference.isa.table import EXTRAS, Form, Row, read
from fragmenta.reference.isa.target import Version

# ``trans?`` may be left out; ``trans`` must be written.
TABLE = """
name      | shape  | num      | trans  | type                             | ptx | targets
ldmatrix  | m8n8   | x1 x2 x4 | trans? | b16                              | 6.5 | sm_75+
ldmatrix  | m16n16 | x1 x2    | trans  | b8                               | 8.6 | 100a/f 110a/f 120a/f
ldmatrix  | m16n16 | x1 x2    | trans  | b8x16.b6x16_p32 b8x16.b4x16_p64  | 8.6 | 100a/f 110a/f 120a/f
ldmatrix  | m8n16  | x1 x2 x4 |        | b8x16.b6x16_p32 b8x16.b4x16_p64  | 8.6 | 100a/f 110a/f 120a/f
ldmatrix  | m8n16  | x1 x2 x4 |        | s8.s4                            | 9.4 | sm_90a 100a/f 110a/f 120a/f
stmatrix  | m8n8   | x1 x2 x4 | trans? | b16                              | 7.8 | sm_90+
stmatrix  | m16n8  | x1 x2 x4 | trans  | b8                               | 8.6 | 100a/f 110a/f 120a/f
movmatrix | m8n8   |          | trans  | b16                              | 7.8 | sm_75+
"""

# Layouts by name, shape and transposition, and the rows x columns in memory.
LINES = """
name      | shape  | trans | rows | cols | line
ldmatrix  | m8n8   |       | 8    | 8    | matrix = R*  row = L2 L3 L4  col = E0 L0 L1
ldmatrix  | m8n8   | trans | 8    | 8    | matrix = R*  row = E0 L0 L1  col = L2 L3 L4
ldmatrix  | m16n16 | trans | 16   | 16   | matrix = R1*  row = E0 E1 L0 L1  col = L2 L3 L4 R0
ldmatrix  | m8n16  |       | 8    | 16   | matrix = R*  row = L2 L3 L4  col = E0 E1 L0 L1
stmatrix  | m8n8   |       | 8    | 8    | matrix = R*  row = L2 L3 L4  col = E0 L0 L1
stmatrix  | m8n8   | trans | 8    | 8    | matrix = R*  row = E0 L0 L1  col = L2 L3 L4
stmatrix  | m16n8  | trans | 8    | 16   | matrix = R*  row = E0 L0 L1  col = L2 L3 L4 E1
movmatrix | m8n8   |       | 8    | 8    | matrix = R*  row = L2 L3 L4  col = E0 L0 L1
movmatrix | m8n8   | trans | 8    | 8    | matrix = R*  row = E0 L0 L1  col = L2 L3 L4
"""
#: Bytes of a row of a matrix in memory, unless a row of the table says otherwise.
ROW_BYTES = 16

# Narrow elements that become bytes when they are loaded: the bits of an element, the
# bytes of a row of 16, padding included, and whether the sign fills the byte.
PACKED = """
type            | bits | row | sign
b8x16.b6x16_p32 | 6    | 16  |
b8x16.b4x16_p64 | 4    | 16  |
s8.s4           | 4    | 8   | yes
"""


class NarrowElements(NamedTuple):
    """How narrow elements are in memory."""

    bits: int
    row_bytes: int
    signed: bool


PACKINGS = {
    line["type"]: NarrowElements(
        int(line["bits"]), int(line["row"]), bool(line["sign"])
    )
    for line in read(PACKED)
}
"""By the words of the mnemonic."""


def row_bytes(op: Instruction) -> int:
    """The bytes of a row, which are also its alignment.

    >>> import fragmenta as fm
    >>> row_bytes(fm.find("ldmatrix.m8n16.x1.s8.s4"))
    8
    """
    packed = PACKINGS.get(op.values["type"])
    return packed.row_bytes if packed else ROW_BYTES


_LINES = {(line["name"], line["shape"], line["trans"]): line for line in read(LINES)}


def _rows(name: str) -> tuple[Row, ...]:
    rows = []
    for line in read(TABLE):
        if line["name"] != name:
            continue
        trans = EXTRAS[line["trans"]][1] if line["trans"] else ("",)
        fields = {
            "shape": (line["shape"],),
            "num": tuple(line["num"].split()) or ("",),
            "trans": trans,
            "space": ("",) if name == "movmatrix" else ("", "shared", "shared::cta"),
            "type": tuple(line["type"].split()),
        }
        rows.append(Row(fields, Version.parse(line["ptx"]), line["targets"]))
    return tuple(rows)


def _fragment(op: Instruction, name: str, trans: str) -> Parts:
    line = _LINES[op.family, op.values["shape"], trans]
    count = int(op.values["num"].removeprefix("x") or 1)
    shape = (count, int(line["rows"]), int(line["cols"]))
    of = {"b16": "b16", "s8.s4": "s8"}.get(op.values["type"], "b8")
    return {name: spread(name, of, shape, line["line"])}


def load_parts(op: Instruction) -> Parts:
    """D, which ``ldmatrix`` loads."""
    return _fragment(op, "D", op.values["trans"])


def store_parts(op: Instruction) -> Parts:
    """A, which ``stmatrix`` stores."""
    return _fragment(op, "A", op.values["trans"])


def move_parts(op: Instruction) -> Parts:
    """A and D: ``movmatrix`` reads a matrix and writes its transpose."""
    return {**_fragment(op, "A", ""), **_fragment(op, "D", "trans")}


def load_operands(op: Instruction) -> tuple[Operand, ...]:
    """The registers, then the address of a row."""
    (part,) = op.fragments.values()
    return (
        Operand(part.name.lower(), ".b32", part.registers),
        Operand("address", "address", vector=False),
    )


def store_operands(op: Instruction) -> tuple[Operand, ...]:
    """The address of a row, then the registers."""
    return load_operands(op)[::-1]


def move_operands(op: Instruction) -> tuple[Operand, ...]:
    """d and a, one register each."""
    return tuple(Operand(name, ".b32", vector=False) for name in "da")


LATER = {"shared::cta": "7.8"}
LDMATRIX = Form(
    "ldmatrix",
    ("ldmatrix.sync.aligned.{shape}.{num}.{trans}.{space}.{type}",),
    _rows("ldmatrix"),
    load_operands,
    load_parts,
    later=LATER,
    unit="matrix",
    moves="load",
)
STMATRIX = Form(
    "stmatrix",
    ("stmatrix.sync.aligned.{shape}.{num}.{trans}.{space}.{type}",),
    _rows("stmatrix"),
    store_operands,
    store_parts,
    later=LATER,
    unit="matrix",
    moves="store",
)
MOVMATRIX = Form(
    "movmatrix",
    ("movmatrix.sync.aligned.{shape}.{trans}.{type}",),
    _rows("movmatrix"),
    move_operands,
    move_parts,
    unit="matrix",
    moves="transpose",
)
