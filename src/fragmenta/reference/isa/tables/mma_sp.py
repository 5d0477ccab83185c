"""Sparse ``mma.sp``: A is stored without its zeros, with metadata."""

from __future__ import annotations

from fragmenta.reference.isa.instruction import Instruction, Operand, Parts, spread
from fragmenta.reference.isa.table import Form
from fragmenta.reference.isa.tables import mma
from fragmenta.reference.registers.granularity import granularity

# The column ``metadata`` names a line of METADATA below: which lanes hold which
# codes.  A and B may each have any type of the column "a, b".
TABLE = """
shape     | a, b                     | d.c             | extra                                          | metadata | sp                       | ptx | targets
m16n8k16  | f16                      | f16.f16 f32.f32 |                                                | one      | sp sp::ordered_metadata  | 7.1 | sm_80+
m16n8k32  | f16                      | f16.f16 f32.f32 |                                                | columns  | sp sp::ordered_metadata  | 7.1 | sm_80+
m16n8k16  | bf16                     | f32.f32         |                                                | one      | sp sp::ordered_metadata  | 7.1 | sm_80+
m16n8k32  | bf16                     | f32.f32         |                                                | columns  | sp sp::ordered_metadata  | 7.1 | sm_80+
m16n8k8   | tf32                     | f32.f32         |                                                | one      | sp sp::ordered_metadata  | 7.1 | sm_80+
m16n8k16  | tf32                     | f32.f32         |                                                | columns  | sp sp::ordered_metadata  | 7.1 | sm_80+
m16n8k32  | s8 u8                    | s32.s32         | satfinite                                      | rows     | sp sp::ordered_metadata  | 7.1 | sm_80+
m16n8k64  | s8 u8                    | s32.s32         | satfinite                                      | all      | sp sp::ordered_metadata  | 7.1 | sm_80+
m16n8k64  | s4 u4                    | s32.s32         | satfinite                                      | rows     | sp sp::ordered_metadata  | 7.1 | sm_80+
m16n8k128 | s4 u4                    | s32.s32         | satfinite                                      | all      | sp sp::ordered_metadata  | 7.1 | sm_80+
m16n8k64  | e4m3 e5m2                | f32.f32         |                                                | all      | sp sp::ordered_metadata  | 8.4 | sm_89+
m16n8k64  | e4m3 e5m2                | f16.f16         |                                                | all      | sp::ordered_metadata     | 8.7 | 120a/f
m16n8k64  | e4m3 e5m2                | f32.f32         | kind::f8f6f4                                   | all      | sp::ordered_metadata     | 8.6 | 100a/f 110a/f 120a/f
m16n8k64  | e4m3 e5m2 e3m2 e2m3 e2m1 | f16.f16 f32.f32 | kind::f8f6f4                                   | all      | sp::ordered_metadata     | 8.7 | 120a/f
m16n8k64  | e4m3 e5m2 e3m2 e2m3 e2m1 | f32.f32         | kind::mxf8f6f4 block_scale scale_vec::1X? ue8m0 | all     | sp::ordered_metadata     | 8.7 | 120a/f
m16n8k128 | e2m1                     | f32.f32         | kind::mxf4 block_scale scale_vec::2X? ue8m0    | all      | sp::ordered_metadata     | 8.7 | sm_120a sm_121a
m16n8k128 | e2m1                     | f32.f32         | kind::mxf4nvf4 block_scale scale_vec::2X ue8m0 | all      | sp::ordered_metadata     | 8.7 | sm_120a sm_121a
m16n8k128 | e2m1                     | f32.f32         | kind::mxf4nvf4 block_scale scale_vec::4X ue4m3 | all      | sp::ordered_metadata     | 8.7 | sm_120a sm_121a
m16n8k128 | e2m1                     | f32.f32         | kind::mxf4nvf4 block_scale scale_vec::4X ue8m0 | all      | sp::ordered_metadata     | 9.1 | sm_120a sm_121a
"""

SPELLINGS = (
    "mma.{sp}.sync.aligned.{shape}.{alayout}.{blayout}." + mma.SCALE + "." + mma.TYPES,
    "mma.sync.aligned.{kind}.{sp}.{block_scale}.{scale_vec}"
    ".{shape}.{alayout}.{blayout}." + mma.TYPES,
    "mma.{sp}.sync.aligned.{shape}.{alayout}.{blayout}.{d}.{a}.{b}.{c}.{satfinite}",
)

# Which lanes of a group of four hold which metadata.  An element of this fragment
# is one code, a nibble.
METADATA = {
    "one": "row = L2 L3 L4 E2 W*  chunk = E0 E1 | selector = L0 L1",
    "columns": "row = L2 L3 L4 E2 W*  chunk = E0 E1 L0 | selector = L1",
    "rows": "row = L2 L3 L4 L0 W*  chunk = E0 E1 E2 | selector = L1",
    "all": "row = L2 L3 L4 L0 W*  chunk = E0 E1 E2 L1",
}


def metadata(op: Instruction, warps: int = 1) -> Parts:
    """The metadata fragment: one nibble per row and chunk."""
    kept = granularity(op.types["a"], op.kind)
    line = METADATA[op.row.facts["metadata"]]
    shape = (op.shape.m, op.shape.k // kept.chunk)
    nibbles = spread("metadata", "u4", shape, line, warps=warps, registers=1)
    return {"metadata": nibbles}


def parts(op: Instruction) -> Parts:
    """The stored A, B, C, D, metadata and the scales."""
    return {
        **mma.multiplicands(op),
        **mma.accumulators(op, op.shape.m, op.shape.n),
        **metadata(op),
        **mma.scales(op),
    }


def metadata_operands(op: Instruction) -> list[Operand]:
    """The metadata register, and its selector, which is an immediate."""
    selectors = op.fragments["metadata"].layout.sizes.get("selector", 1)
    return [
        Operand("metadata", ".b32", vector=False),
        Operand("selector", "immediate", values=tuple(range(selectors))),
    ]


def operands(op: Instruction) -> tuple[Operand, ...]:
    """d, a, b, c, metadata and selector, then the scales."""
    plain = mma.register_operands(op, "DABC") + metadata_operands(op)
    return tuple(plain) + mma.scale_operands(op)


FORM = Form(
    "mma.sp",
    SPELLINGS,
    mma.rows_of(TABLE, sp=("sp", "sp::ordered_metadata")),
    operands,
    parts,
    later={"sp::ordered_metadata": "8.5"},
    unit="mma",
    multiplies="registers",
    sparse=True,
)
