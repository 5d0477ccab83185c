"""Whether a target runs an instruction itself, or the assembler expands it.

A PTX instruction is not always one instruction of the machine.  If a target does not
have it, the assembler replaces it by others, and the results can differ.  The table
was made from the machine code that ptxas writes, from toolkit 13.0 to 13.4.
:mod:`fragmenta.reference.isa.sass_records` has that code, and :mod:`fragmenta.reference.arithmetic.models` has
the numbers; tests tie the three tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fragmenta.reference.isa.table import read
from fragmenta.reference.isa.target import check_target, expand

if TYPE_CHECKING:
    from fragmenta.reference.isa.instruction import Instruction

#: The first toolkit whose assembler does what the table says.
TOOLKIT = "13.0"

# An empty cell means any value.  ``becomes`` is what computes the result: another
# element type, another shape, or "fma" for ordinary scalar arithmetic.
TABLE = """
family          | a, b      | shape                    | bitop    | targets      | becomes
mma             | f16       | m8n8k4                   |          | sm_80+       | fma
mma mma.sp wmma | s4 u4     |                          |          | sm_90+       | s8/u8
mma wmma        | b1        |                          | xor.popc | sm_90..90    | and.popc
mma wmma        | b1        |                          |          | sm_100+      | u8
mma mma.sp      | e4m3 e5m2 |                          |          | sm_90..110   | f16
mma             | s8 u8     | m8n8k16                  |          | sm_100+      | m16n8k16
mma             | f64       | m16n8k4 m16n8k8 m16n8k16 |          | sm_100+      | m8n8k4
"""
_ROWS = read(TABLE)


def expansion(op: Instruction, target: str) -> str | None:
    """What the assembler writes instead of the instruction; None if it is native.

    >>> import fragmenta as fm
    >>> xor = fm.mma("m16n8k256", a="b1", bitop="xor")
    >>> expansion(xor, "sm_80"), expansion(xor, "sm_90a"), expansion(xor, "sm_120")
    (None, 'and.popc', 'u8')
    """
    target = check_target(target)
    for row in _ROWS:
        if target in expand(row["targets"]) and _fits(op, row):
            return row["becomes"]
    return None


def _fits(op: Instruction, row: dict[str, str]) -> bool:
    family = "wmma" if op.family == "wmma.mma" else op.family
    given = {
        "family": family,
        "a, b": op.values.get("a", ""),
        "shape": op.values.get("shape", ""),
        "bitop": op.values.get("bitop", ""),
    }
    return all(not row[name] or v in row[name].split() for name, v in given.items())
