"""The table of opcodes: which PTX instructions there are, and what each computes.

Importing this package fills the table of opcodes.
"""

from fragmenta.ptx.opcodes import (  # noqa: F401 - they fill the table
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
from fragmenta.ptx.opcodes.table import TABLE as TABLE
