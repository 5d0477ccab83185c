"""Which PTX instructions are there, and what does each of them mean?

Importing this package fills the table of opcodes.
"""

from fragmenta.ptx.opcodes import (
    comparison,
    conversion,
    fields,
    floating,
    half,
    integer,
    logic,
    moving,
    small,
    special,
    video,
)
from fragmenta.ptx.opcodes.table import TABLE

__all__ = [
    "TABLE",
    "comparison",
    "conversion",
    "fields",
    "floating",
    "half",
    "integer",
    "logic",
    "moving",
    "small",
    "special",
    "video",
]
