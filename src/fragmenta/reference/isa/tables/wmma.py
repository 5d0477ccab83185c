"""``wmma``: load, multiply and store fragments.

The PTX manual does not specify the fragment layouts of ``wmma``; they differ between
architectures.  The layouts below were observed on an H200 (sm_90).  Other targets may
have other layouts.
"""

from __future__ import annotations

from fragmenta.reference.isa.instruction import (
    Instruction,
    Operand,
    Parts,
    Shape,
    register_class,
    spread,
)
from fragmenta.reference.isa.table import Form, Row, extras, read
from fragmenta.reference.isa.tables import mma
from fragmenta.reference.isa.target import Version
from fragmenta.reference.registers.fragment import Fragment

OBSERVED = "sm_90 (H200)"

# A and B have the same type.  With the layouts ``any``, A and B may each be row or
# col.  The versions are for the spelling with ``.aligned``, which is new in 6.3.
TABLE = """
a, b  | shape                       | d.c                             | layouts | extra     | ptx | targets
f16   | m16n16k16 m8n32k16 m32n8k16 | f16.f16 f16.f32 f32.f16 f32.f32 | any     |           | 6.3 | sm_70+
s8 u8 | m16n16k16 m8n32k16 m32n8k16 | s32.s32                         | any     | satfinite | 6.3 | sm_72+
bf16  | m16n16k16 m8n32k16 m32n8k16 | f32.f32                         | any     |           | 7.0 | sm_80+
tf32  | m16n16k8                    | f32.f32                         | any     |           | 7.0 | sm_80+
f64   | m8n8k4                      | f64.f64                         | any     | rounding  | 7.0 | sm_80+
s4 u4 | m8n8k32                     | s32.s32                         | row.col | satfinite | 6.3 | sm_75+
b1    | m8n8k128                    | s32.s32                         | row.col | xor.popc  | 6.3 | sm_75+
b1    | m8n8k128                    | s32.s32                         | row.col | and.popc  | 7.1 | sm_80+
"""

# Observed layouts by shape, operand and, for A and B, the width of an element.
LINES = """
shape     | use | bits | line
m16n16k16 | A   | 16   | row = L2 L3 L4 I1  col = I0 L0 L1 I2; copy = I3*
m16n16k16 | B   | 16   | row = I0 L0 L1 I1  col = L2 L3 L4 I2; copy = I3*
m16n16k16 | A   | 8    | row = L2 L3 L4 I2  col = I0 I1 L0 L1
m16n16k16 | B   | 8    | row = I0 I1 L0 L1  col = L2 L3 L4 I2
m16n16k16 | C   |      | row = L2 L3 L4 I1  col = I0 L0 L1 I2
m32n8k16  | A   | 16   | row = L2 L3 L4 I1 I3  col = I0 L0 L1 I2
m32n8k16  | B   | 16   | row = I0 L0 L1 I1  col = L2 L3 L4; copy = I2*
m32n8k16  | A   | 8    | row = L2 L3 L4 I2*  col = I0 I1 L0 L1
m32n8k16  | B   | 8    | row = I0 I1 L0 L1  col = L2 L3 L4
m32n8k16  | C   |      | row = L2 L3 L4 I1*  col = I0 L0 L1
m8n32k16  | A   | 16   | row = L2 L3 L4  col = I0 L0 L1 I1; copy = I2*
m8n32k16  | B   | 16   | row = I0 L0 L1 I2  col = L2 L3 L4 I1 I3
m8n32k16  | A   | 8    | row = L2 L3 L4  col = I0 I1 L0 L1
m8n32k16  | B   | 8    | row = I0 I1 L0 L1  col = L2 L3 L4 I2*
m8n32k16  | C   |      | row = I0 L0 L1  col = L2 L3 L4 I1*
m16n16k8  | A   | 32   | row = L2 L3 L4 I0  col = L0 L1 I1
m16n16k8  | B   | 32   | row = L0 L1 I0  col = L2 L3 L4 I1
m16n16k8  | C   |      | row = L2 L3 L4 I1  col = I0 L0 L1 I2
"""
_LINES = {
    (line["shape"], line["use"], line["bits"]): line["line"].replace(";", " |")
    for line in read(LINES)
}


def fragment(use: str, shape: str, of: str, name: str | None = None) -> Fragment:
    """The observed fragment of one operand; ``use`` is A, B or C."""
    m, n, k = Shape.parse(shape)
    sizes = {"A": (m, k), "B": (k, n), "C": (m, n)}[use]
    width = {"s8": "8", "u8": "8", "f16": "16", "bf16": "16", "tf32": "32"}.get(of, "")
    line = _LINES.get((shape, use, "" if use == "C" else width))
    if line is None:  # the m8n8 shapes have the layouts of mma
        line = {"A": mma.A[8], "B": mma.B, "C": mma.C[8]}[use]
    # f16 always has eight registers for A and B; if fewer are needed, copies fill them.
    registers = 8 if of == "f16" and use != "C" else 0
    return spread(name or use, of, sizes, line, registers=registers, observed=OBSERVED)


def _mma_rows(implied: bool) -> tuple[Row, ...]:
    """Rows of ``wmma.mma``; with f16 the types of A and B are not written."""
    rows = []
    for line in read(TABLE):
        if (line["a, b"] == "f16") != implied:
            continue
        allowed, defaults = extras(line["extra"])
        anyway = line["layouts"] == "any"
        for shape in line["shape"].split():
            for of in line["a, b"].split():
                for pair in line["d.c"].split():
                    d, c = pair.split(".")
                    fields = {
                        "alayout": ("row", "col") if anyway else ("row",),
                        "blayout": ("row", "col") if anyway else ("col",),
                        "shape": (shape,),
                        "d": (d,),
                        "a": (of,),
                        "b": (of,),
                        "c": (c,),
                        **allowed,
                    }
                    version = Version.parse(line["ptx"])
                    rows.append(Row(fields, version, line["targets"], defaults))
    return tuple(rows)


def _move_rows(operands: str) -> tuple[Row, ...]:
    """Rows of ``wmma.load`` and ``wmma.store``, from the same table."""
    found: dict[tuple[str, str, str], Row] = {}
    for line in read(TABLE):
        anyway = line["layouts"] == "any" or operands == "d"
        for operand in operands:
            if operand in "ab":
                types = line["a, b"].split()
                layouts = (
                    ("row", "col") if anyway else ("row" if operand == "a" else "col",)
                )
            else:
                types = [
                    pair.split(".")["dc".index(operand)] for pair in line["d.c"].split()
                ]
                layouts = ("row", "col")
            for shape in line["shape"].split():
                for of in types:
                    fields = {
                        "operand": (operand,),
                        "layout": layouts,
                        "shape": (shape,),
                        "space": ("", "global", "shared", "shared::cta"),
                        "type": (of,),
                    }
                    row = Row(fields, Version.parse(line["ptx"]), line["targets"])
                    # the first row with a fragment has the lowest requirements
                    found.setdefault((operand, shape, of), row)
    return tuple(found.values())


def mma_parts(op: Instruction) -> Parts:
    """A, B, C and D of ``wmma.mma``."""
    shape = op.values["shape"]
    return {
        "A": fragment("A", shape, op.values["a"]),
        "B": fragment("B", shape, op.values["b"]),
        "C": fragment("C", shape, op.values["c"]),
        "D": fragment("C", shape, op.values["d"], name="D"),
    }


def move_parts(op: Instruction) -> Parts:
    """The one fragment that a load or store moves."""
    name = op.values["operand"].upper()
    use = "C" if name == "D" else name
    return {name: fragment(use, op.values["shape"], op.values["type"], name=name)}


def mma_operands(op: Instruction) -> tuple[Operand, ...]:
    """d, a, b, c."""
    return tuple(mma.register_operands(op, "DABC"))


def load_operands(op: Instruction) -> tuple[Operand, ...]:
    """The fragment, the address and the optional stride."""
    (part,) = op.fragments.values()
    return (
        Operand(part.name.lower(), register_class(part.dtype), part.registers),
        Operand("address", "address", vector=False),
        Operand("stride", "stride", vector=False),
    )


def store_operands(op: Instruction) -> tuple[Operand, ...]:
    """The address, the fragment and the optional stride."""
    part, address, stride = load_operands(op)
    return (address, part, stride)


LATER = {"shared::cta": "7.8"}
MMA = Form(
    "wmma.mma",
    (
        "wmma.mma.{bitop}.sync.aligned.{alayout}.{blayout}.{shape}.{rounding}.{d}.{a}.{b}.{c}.{satfinite}",
        # Compilers write the rounding last.
        "wmma.mma.{bitop}.sync.aligned.{alayout}.{blayout}.{shape}.{d}.{a}.{b}.{c}.{rounding}",
    ),
    _mma_rows(implied=False),
    mma_operands,
    mma_parts,
    unit="wmma",
    multiplies="registers",
)
MMA_F16 = Form(
    "wmma.mma",
    ("wmma.mma.sync.aligned.{alayout}.{blayout}.{shape}.{d}.{c}",),
    _mma_rows(implied=True),
    mma_operands,
    mma_parts,
    unit="wmma",
    multiplies="registers",
)
LOAD = Form(
    "wmma.load",
    (
        "wmma.load.{operand}.sync.aligned.{layout}.{shape}.{space}.{type}",
        "wmma.load.{operand}.sync.aligned.{shape}.{layout}.{space}.{type}",
    ),
    _move_rows("abc"),
    load_operands,
    move_parts,
    later=LATER,
    unit="wmma",
    moves="load",
)
STORE = Form(
    "wmma.store",
    (
        "wmma.store.{operand}.sync.aligned.{layout}.{shape}.{space}.{type}",
        "wmma.store.{operand}.sync.aligned.{shape}.{layout}.{space}.{type}",
    ),
    _move_rows("d"),
    store_operands,
    move_parts,
    later=LATER,
    unit="wmma",
    moves="store",
)
