"""The registers of ``tcgen05.ld`` and ``.st``: which lane and column each one holds.

The fragment R is what one warp moves.  ``row`` counts the lanes of tensor memory from
the lane of the address, ``col`` the columns from its column.  ``.16x32bx2`` makes two
accesses: ``half`` 0 at the address, and ``half`` 1 at the address plus the immediate.

``.pack::16b`` and ``.unpack::16b`` move the low 16 bits of a cell.  Two neighbouring
columns share a register, so bit 0 of the column is E0, and all columns are two of the
columns that the line below has.
"""

from __future__ import annotations

from fragmenta.reference.isa.instruction import Instruction, Parts, spread
from fragmenta.reference.isa.table import read
from fragmenta.reference.isa.tables import mma

# 16x256b is the C fragment of mma.m16n8 with f32: the same line, with as many n as there
# are columns.  A register holds one element of it, so I is R.
ACCUMULATOR = mma.C[16].replace("I", "R")

# Columns are those of .x1.
LINES = f"""
tile     | rows | columns | line
32x32b   | 32   | 1       | row = L0 L1 L2 L3 L4  col = R*
16x64b   | 16   | 2       | row = L2 L3 L4 L0  col = L1 R*
16x128b  | 16   | 4       | row = L2 L3 L4 R0  col = L0 L1 R1*
16x256b  | 16   | 8       | {ACCUMULATOR}
16x32bx2 | 16   | 1       | half = L4  row = L0 L1 L2 L3  col = R*
"""
_LINES = {line["tile"]: line for line in read(LINES)}

TYPES = {"f32": "f32", "s32": "s32"}
"""The types that ``ld.red`` compares; other registers are raw bits."""


def load_parts(op: Instruction) -> Parts:
    """R, which ``tcgen05.ld`` loads.

    ``ld.red`` writes one more register, the least or the greatest value of each thread.
    It is no cell of tensor memory, so it is not in R.  ``ld.spcompress`` has no R: its
    data decide which of the cells its registers hold.
    """
    if "spcompress" in op.mnemonic:
        return {}
    return _fragment(op, bool(op.values.get("pack")))


def store_parts(op: Instruction) -> Parts:
    """R, which ``tcgen05.st`` stores."""
    return _fragment(op, bool(op.values.get("unpack")))


def _fragment(op: Instruction, packed: bool) -> Parts:
    found = _LINES[op.values["tile"]]
    line = found["line"]
    columns = int(found["columns"]) * int(op.values["num"].removeprefix("x"))
    of = TYPES.get(op.values.get("type", ""), "b32")
    if packed:
        line, columns, of = line.replace("col =", "col = E0"), 2 * columns, "b16"
    shape: tuple[int, ...] = (int(found["rows"]), columns)
    return {"R": spread("R", of, (2, *shape) if "half" in line else shape, line)}
