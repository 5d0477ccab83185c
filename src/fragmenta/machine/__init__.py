"""How does a loop over numbers become machine code?

A *kernel* is a Python function that is run once, on stand-ins for its arguments,
and writes down the operations it sees; LLVM makes machine code of them::

    @kernel(x=pointer(F64), factor=F64, count=I64)
    def scale(code, x, factor, count):
        with code.loop(count) as i:
            x[i] = x[i] * factor

    scale(array, 2.0, array.size)

Compiling one takes a fraction of a second, and its machine code is kept on disk.
"""

from fragmenta.machine.compiler import Kernel, kernel, pointer, type_of
from fragmenta.machine.trace import (
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    LANES,
    Array,
    Code,
    Value,
    bits_of,
    convert,
    float_of,
    fma,
    intrinsic,
    is_nan,
    larger,
    ones,
    select,
    smaller,
    truncate,
    unsigned,
)

__all__ = [
    "F32",
    "F64",
    "I8",
    "I16",
    "I32",
    "I64",
    "LANES",
    "Array",
    "Code",
    "Kernel",
    "Value",
    "bits_of",
    "convert",
    "float_of",
    "fma",
    "intrinsic",
    "is_nan",
    "kernel",
    "larger",
    "ones",
    "pointer",
    "select",
    "smaller",
    "truncate",
    "type_of",
    "unsigned",
]
