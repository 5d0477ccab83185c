"""``wgmma.mma_async``: a warpgroup multiplies, with B in shared memory."""

from __future__ import annotations

from typing import NamedTuple

from fragmenta.reference.isa.instruction import (
    Instruction,
    Operand,
    Parts,
    register_class,
    spread,
)
from fragmenta.reference.isa.table import Form, Row, extras, read
from fragmenta.reference.isa.tables import mma, mma_sp
from fragmenta.reference.isa.target import Version
from fragmenta.reference.registers.fragment import Fragment

WARPS = 4

# The column "k" has the dense and the sparse k.  In the column "n", "8s" means every
# multiple of 8 up to 256; "16s" means 8, 16, 24, 32 and then every multiple of 16 up
# to 256.  The column "a.b" lists pairs of types.
TABLE = """
k        | n   | a.b                                     | d       | extra     | metadata | ptx
16 / 32  | 8s  | f16.f16                                 | f16 f32 |           | columns  | 8.0
16 / 32  | 8s  | bf16.bf16                               | f32     |           | columns  | 8.0
8 / 16   | 8s  | tf32.tf32                               | f32     |           | columns  | 8.0
32 / 64  | 8s  | e4m3.e4m3 e4m3.e5m2 e5m2.e4m3 e5m2.e5m2 | f16 f32 |           | all      | 8.0
32 / 64  | 16s | s8.s8 u8.u8                             | s32     | satfinite | all      | 8.0
32 / 64  | 16s | s8.u8 u8.s8                             | s32     | satfinite | all      | 8.4
256 /    | 16s | b1.b1                                   | s32     | and.popc  |          | 8.0
"""
SPARSE_SINCE = Version(8, 2)
WIDTHS = {
    "8s": tuple(range(8, 257, 8)),
    "16s": (8, 16, 24, 32, *range(48, 257, 16)),
}


class Ways(NamedTuple):
    """Where A is, and the immediates of the instruction."""

    a_from_registers: bool = False
    imm_scale_a: int = 1
    imm_scale_b: int = 1
    trans_a: int = 0
    trans_b: int = 0


def _rows(sparse: bool) -> tuple[Row, ...]:
    rows = []
    for line in read(TABLE):
        k = line["k"].split("/")[sparse].strip()
        if not k:
            continue
        allowed, defaults = extras(line["extra"])
        version = Version.parse(line["ptx"])
        version = max(version, SPARSE_SINCE) if sparse else version
        for pair in line["a.b"].split():
            a, b = pair.split(".")
            fields = {
                "shape": tuple(f"m64n{n}k{k}" for n in WIDTHS[line["n"]]),
                "d": tuple(line["d"].split()),
                "a": (a,),
                "b": (b,),
                **allowed,
            }
            facts = {"metadata": line["metadata"]}
            rows.append(Row(fields, version, "sm_90a", defaults, facts))
    return tuple(rows)


def parts(op: Instruction) -> Parts:
    """A (if it comes from registers), C, D and metadata.

    B has no fragment: it is always read from shared memory.
    """
    m, n, k = op.shape
    fragments: dict[str, Fragment] = {}
    a, size, stored = op.types["a"], (m, op.stored_k), k // op.stored_k
    fragments["A"] = spread("A", a, size, mma.A[16], warps=WARPS, stored=stored)
    for name in ("C", "D"):  # the accumulator is read and written in place
        fragments[name] = spread(name, op.types["d"], (m, n), mma.C[16], warps=WARPS)
    if op.sparse:
        fragments.update(mma_sp.metadata(op, warps=WARPS))
    return fragments


def operands(op: Instruction) -> tuple[Operand, ...]:
    """The operands with A as a descriptor; see :func:`operands_from`."""
    return operands_from(op, registers=False)


def operands_from(op: Instruction, *, registers: bool) -> tuple[Operand, ...]:
    """d, a, b, metadata, selector, scale-d, then the immediates that the type has."""
    d, a = op.fragments["D"], op.fragments["A"]
    found = [Operand("d", register_class(d.dtype), d.registers)]
    if registers:
        found.append(Operand("a", ".b32", a.registers))
    else:
        found.append(Operand("a", ".b64", vector=False))
    found.append(Operand("b", ".b64", vector=False))
    if op.sparse:
        found += mma_sp.metadata_operands(op)
    found.append(Operand("scale_d", ".pred", vector=False))
    if a.dtype.kind == "float":
        found += [
            Operand("imm_scale_a", "immediate", values=(1, -1)),
            Operand("imm_scale_b", "immediate", values=(1, -1)),
        ]
    if a.dtype.bits == 16:  # only 16-bit types can be transposed in memory
        if not registers:
            found.append(Operand("trans_a", "immediate", values=(0, 1)))
        found.append(Operand("trans_b", "immediate", values=(0, 1)))
    return tuple(found)


_TAIL = ".sync.aligned.{shape}.{satfinite}.{d}.{a}.{b}.{bitop}"
_LATE = ".sync.aligned.{shape}.{d}.{a}.{b}.{bitop}.{satfinite}"
DENSE = Form(
    "wgmma",
    ("wgmma.mma_async" + _TAIL, "wgmma.mma_async" + _LATE),
    _rows(sparse=False),
    operands,
    parts,
    unit="wgmma",
    multiplies="registers",
)
SPARSE = Form(
    "wgmma.sp",
    ("wgmma.mma_async.sp" + _TAIL, "wgmma.mma_async.sp" + _LATE),
    _rows(sparse=True),
    operands,
    parts,
    unit="wgmma",
    multiplies="registers",
    sparse=True,
)
