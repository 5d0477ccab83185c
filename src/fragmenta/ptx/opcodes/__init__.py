"""Which PTX instructions are there, and what does each of them mean?

Importing this package fills the table of opcodes.
"""

from fragmenta.ptx.opcodes import (
    atomics,
    comparison,
    control,
    conversion,
    fields,
    floating,
    fp8,
    half,
    integer,
    logic,
    memory,
    moving,
    special,
    synchronising,
    video,
)
from fragmenta.ptx.opcodes.table import TABLE

__all__ = [
    "TABLE",
    "atomics",
    "comparison",
    "control",
    "conversion",
    "fields",
    "floating",
    "fp8",
    "half",
    "integer",
    "logic",
    "memory",
    "moving",
    "special",
    "synchronising",
    "video",
]
