"""Where is the whole table?

A module of this package adds its lines when it is imported.  Whoever needs all lines
calls :func:`table`.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from fragmenta.ptx import opcodes
from fragmenta.ptx.opcodes.table import TABLE, Table


@cache
def table() -> Table:
    """The table of opcodes, with the lines of every module.

    >>> "ld" in table().lines
    True
    """
    for module in sorted(each.name for each in iter_modules(opcodes.__path__)):
        import_module(f"{opcodes.__name__}.{module}")
    return TABLE
