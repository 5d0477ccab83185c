"""Dense ``mma``: one warp multiplies one tile in registers."""

from __future__ import annotations

from fragmenta.reference.isa.instruction import (
    Instruction,
    Operand,
    Parts,
    register_class,
    spread,
)
from fragmenta.reference.isa.table import Form, Row, extras, read
from fragmenta.reference.isa.target import Version
from fragmenta.reference.registers.fragment import Fragment

# A and B may each have any type of the column "a, b".  The column "d.c" lists
# pairs of result and accumulator.  The assembler accepts f8f6f4 with 8-bit types
# on more targets than the manual lists.
TABLE = """
shape                    | a, b                      | d.c                     | extra                                                 | ptx | targets
m8n8k4                   | f16                       | f16.f16 f32.f16 f32.f32 | layouts                                               | 6.4 | sm_70+
m16n8k8                  | f16                       | f16.f16 f32.f32         |                                                       | 6.5 | sm_75+
m16n8k16                 | f16                       | f16.f16 f32.f32         |                                                       | 7.0 | sm_80+
m16n8k8 m16n8k16         | bf16                      | f32.f32                 |                                                       | 7.0 | sm_80+
m16n8k4 m16n8k8          | tf32                      | f32.f32                 |                                                       | 7.0 | sm_80+
m8n8k4                   | f64                       | f64.f64                 | rounding                                              | 7.0 | sm_80+
m16n8k4 m16n8k8 m16n8k16 | f64                       | f64.f64                 | rounding                                              | 7.8 | sm_90+
m8n8k16                  | s8 u8                     | s32.s32                 | satfinite                                             | 6.5 | sm_75+
m16n8k16 m16n8k32        | s8 u8                     | s32.s32                 | satfinite                                             | 7.0 | sm_80+
m8n8k32                  | s4 u4                     | s32.s32                 | satfinite                                             | 6.5 | sm_75+
m16n8k32 m16n8k64        | s4 u4                     | s32.s32                 | satfinite                                             | 7.0 | sm_80+
m8n8k128                 | b1                        | s32.s32                 | xor.popc                                              | 7.0 | sm_75+
m16n8k128 m16n8k256      | b1                        | s32.s32                 | xor.popc                                              | 7.0 | sm_80+
m8n8k128                 | b1                        | s32.s32                 | and.popc                                              | 7.1 | sm_80+
m16n8k128 m16n8k256      | b1                        | s32.s32                 | and.popc                                              | 7.1 | sm_80+
m16n8k32                 | e4m3 e5m2                 | f32.f32                 |                                                       | 8.4 | sm_89+
m16n8k32                 | e4m3 e5m2                 | f16.f16                 |                                                       | 8.7 | sm_89+
m16n8k16                 | e4m3 e5m2                 | f16.f16 f32.f32         |                                                       | 8.7 | sm_89+
m16n8k32                 | e4m3 e5m2                 | f32.f32                 | kind::f8f6f4                                          | 8.6 | 100a/f 110a/f 120a/f
m16n8k32                 | e4m3 e5m2                 | f16.f16                 | kind::f8f6f4                                          | 8.7 | 100a/f 110a/f 120a/f
m16n8k16                 | e4m3 e5m2                 | f16.f16 f32.f32         | kind::f8f6f4                                          | 8.7 | 100a/f 110a/f 120a/f
m16n8k32                 | e4m3 e5m2 e3m2 e2m3 e2m1  | f16.f16 f32.f32         | kind::f8f6f4                                          | 8.7 | 120a/f
m16n8k32                 | e4m3 e5m2 e3m2 e2m3 e2m1  | f32.f32                 | kind::mxf8f6f4 block_scale scale_vec::1X? ue8m0       | 8.7 | 120a/f
m16n8k64                 | e2m1                      | f32.f32                 | kind::mxf4 block_scale scale_vec::2X? ue8m0           | 8.7 | 120a/f
m16n8k64                 | e2m1                      | f32.f32                 | kind::mxf4nvf4 block_scale scale_vec::2X ue8m0        | 8.7 | 120a/f
m16n8k64                 | e2m1                      | f32.f32                 | kind::mxf4nvf4 block_scale scale_vec::4X ue4m3        | 8.7 | 120a/f
m16n8k64                 | e2m1                      | f32.f32                 | kind::mxf4nvf4 block_scale scale_vec::4X ue8m0        | 9.1 | 120a/f
"""

TYPES = "{satfinite}.{d}.{a}.{b}.{c}.{stype}.{bitop}.{rounding}"
SCALE = "{kind}.{block_scale}.{scale_vec}"
SPELLINGS = (
    "mma.sync.aligned.{shape}.{alayout}.{blayout}." + SCALE + "." + TYPES,
    # the assembler also accepts the kind before the shape, and .satfinite at the end
    "mma.sync.aligned." + SCALE + ".{shape}.{alayout}.{blayout}." + TYPES,
    "mma.sync.aligned.{shape}.{alayout}.{blayout}.{d}.{a}.{b}.{c}.{satfinite}",
)

# ── layouts ─────────────────────────────────────────────────────────────────
# The lane is 4g + t: L2 L3 L4 is the group g, L0 L1 is the thread t in the group.
# Registers 0 and 1 of A are in rows g and g + 8; the next two are in the same rows,
# further along k.

A = {
    16: "row = L2 L3 L4 R0 W*  col = E* L0 L1 R1*",
    8: "row = L2 L3 L4  col = E* L0 L1",
}
B = "row = E* L0 L1 R*  col = L2 L3 L4"
C = {
    16: "row = L2 L3 L4 I1 W*  col = I0 L0 L1 I2*",
    8: "row = L2 L3 L4  col = I0 L0 L1",
}

# m8n8k4 f16 is four multiplications at once.  Lanes 4q + 0..3 and 16 + 4q + 0..3
# hold multiplication q.  The layouts of A and B depend on .row or .col.
QUAD_A = {
    "row": "matrix = L2 L3  row = L0 L1 L4  col = I0 I1",
    "col": "matrix = L2 L3  row = I0 I1 L4  col = L0 L1",
}
QUAD_B = {
    "row": "matrix = L2 L3  row = L0 L1  col = I0 I1 L4",
    "col": "matrix = L2 L3  row = I0 I1  col = L0 L1 L4",
}
QUAD_C = {
    "f16": "matrix = L2 L3  row = L0 L1 L4  col = I0 I1 I2",
    "f32": "matrix = L2 L3  row = L0 I1 L4  col = I0 L1 I2",
}

# Block scales: each lane has one 32-bit register of four bytes.  The thread
# selector chooses the lanes that are read, the byte selector the bytes.  With two
# scales, the byte selector is 0 or 2, twice the number of the pair of bytes.
SCALE_A = {
    1: "row = L2 L3 L4 L0  col = 0 | thread = L1  byte = E0 E1",
    2: "row = L2 L3 L4 L0  col = E0 | thread = L1  pair = E1",
    4: "row = L2 L3 L4 L0  col = E0 E1 | thread = L1",
}
SCALE_B = {
    1: "row = 0  col = L2 L3 L4 | thread = L0 L1  byte = E0 E1",
    2: "row = E0  col = L2 L3 L4 | thread = L0 L1  pair = E1",
    4: "row = E0 E1  col = L2 L3 L4 | thread = L0 L1",
}


def parts(op: Instruction) -> Parts:
    """A, B, C, D and the scales of a dense ``mma``."""
    m, n, k = op.shape
    if (m, k) == (8, 4) and op.values["a"] == "f16":
        return _quad(op)
    return multiplicands(op) | accumulators(op, m, n) | scales(op)


def multiplicands(op: Instruction) -> dict[str, Fragment]:
    """A and B, with the columns of A that are stored."""
    m, n, k = op.shape
    a, b = op.types["a"], op.types["b"]
    stored = k // op.stored_k
    return {
        "A": spread("A", a, (m, op.stored_k), A[m], kind=op.kind, stored=stored),
        "B": spread("B", b, (k, n), B, kind=op.kind),
    }


def accumulators(
    op: Instruction, m: int, n: int, warps: int = 1
) -> dict[str, Fragment]:
    """C and D."""
    line = C[8 if m == 8 else 16]
    return {
        name: spread(name, op.types[name.lower()], (m, n), line, warps=warps)
        for name in ("C", "D")
    }


def scales(op: Instruction) -> dict[str, Fragment]:
    """The scales of A and B, if the instruction has them."""
    if not op.scale_vec:
        return {}
    m, n, _ = op.shape
    v, stype = op.scale_vec, op.values["stype"]
    return {
        "scale_A": spread("scale_A", stype, (m, v), SCALE_A[v], registers=1),
        "scale_B": spread("scale_B", stype, (v, n), SCALE_B[v], registers=1),
    }


def _quad(op: Instruction) -> Parts:
    m, n, k = op.shape
    a, b = op.values["alayout"], op.values["blayout"]
    c, d = op.values["c"], op.values["d"]
    return {
        "A": spread("A", "f16", (4, m, k), QUAD_A[a]),
        "B": spread("B", "f16", (4, k, n), QUAD_B[b]),
        "C": spread("C", c, (4, m, n), QUAD_C[c]),
        "D": spread("D", d, (4, m, n), QUAD_C[d]),
    }


def operands(op: Instruction) -> tuple[Operand, ...]:
    """d, a, b and c, then the scales with their selectors."""
    return tuple(register_operands(op, "DABC")) + scale_operands(op)


def register_operands(op: Instruction, names: str) -> list[Operand]:
    """The operands that are fragments in registers."""
    return [
        Operand(name.lower(), register_class(part.dtype), part.registers)
        for name in names
        for part in [op.fragments[name]]
    ]


def scale_operands(op: Instruction) -> tuple[Operand, ...]:
    """Scale data and the {byte, thread} selectors of A and of B."""
    if not op.scale_vec:
        return ()
    bytes_ = {1: (0, 1, 2, 3), 2: (0, 2), 4: (0,)}[op.scale_vec]
    found: list[Operand] = []
    for side, threads in (("a", (0, 1)), ("b", (0, 1, 2, 3))):
        found += [
            Operand(f"scale_{side}", ".b32", vector=False),
            Operand(f"byte_{side}", "immediate", values=bytes_),
            Operand(f"thread_{side}", "immediate", values=threads),
        ]
    return tuple(found)


def rows_of(table: str, sp: tuple[str, ...] = ("",)) -> tuple[Row, ...]:
    """Rows of an mma table, one for each shape and d.c pair."""
    rows = []
    for line in read(table):
        words = line["extra"].split()
        layouts = ("row", "col") if "layouts" in words else None
        allowed, defaults = extras(" ".join(w for w in words if w != "layouts"))
        types = tuple(line["a, b"].split())
        facts = {key: line[key] for key in ("metadata",) if key in line}
        for shape in line["shape"].split():
            for pair in line["d.c"].split():
                d, c = pair.split(".")
                fields = {
                    "sp": tuple(s for s in sp if s in line.get("sp", "").split())
                    or ("",),
                    "shape": (shape,),
                    "alayout": layouts or ("row",),
                    "blayout": layouts or ("col",),
                    "d": (d,),
                    "a": types,
                    "b": types,
                    "c": (c,),
                    **allowed,
                }
                version = Version.parse(line["ptx"])
                rows.append(Row(fields, version, line["targets"], defaults, facts))
    return tuple(rows)


FORM = Form(
    "mma",
    SPELLINGS,
    rows_of(TABLE),
    operands,
    parts,
    unit="mma",
    multiplies="registers",
)
