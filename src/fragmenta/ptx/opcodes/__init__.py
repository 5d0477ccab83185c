"""Which PTX instructions are there, and what does each of them mean?

Importing this package fills the table of opcodes.
"""

from fragmenta.ptx.opcodes import (
    comparison,
    conversion,
    floating,
    half,
    integer,
    logic,
    moving,
)
from fragmenta.ptx.opcodes.table import TABLE

__all__ = [
    "TABLE",
    "comparison",
    "conversion",
    "floating",
    "half",
    "integer",
    "logic",
    "moving",
]
