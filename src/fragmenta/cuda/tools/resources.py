"""What machine code needs of a processor: the registers of a thread.

The assembler writes them into the section ``.nv.info`` of machine code, for the symbol
of each kernel.
"""

from __future__ import annotations

import struct

from fragmenta.cuda.tools import programs
from fragmenta.errors import BadFile

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SIZED, _REGISTERS = 4, 0x2F
"""An entry with its size, and the one that has the registers."""


def registers(text: str, entry: str, target: str) -> int:
    """The registers that a thread of a kernel has, by the assembler that is here."""
    return registers_of(programs.machine_code(text, target), entry)


def registers_of(code: bytes, entry: str) -> int:
    """The registers that a thread of a kernel of machine code has.

    >>> registers_of(b"no machine code", "f")
    Traceback (most recent call last):
    fragmenta.errors.BadFile: this is no machine code of a GPU
    """
    try:
        found = _registers(code)
    except (struct.error, IndexError, KeyError, ValueError) as error:
        raise BadFile("this is no machine code of a GPU") from error
    if entry not in found:
        raise BadFile(f"this machine code does not say the registers of {entry}")
    return found[entry]


def _registers(code: bytes) -> dict[str, int]:
    """The registers by the names of kernels."""
    if code[:4] != b"\x7fELF":
        raise ValueError
    header = _HEADER.unpack_from(code)
    first, count, names = header[6], header[12], header[13]
    rows = [
        _SECTION.unpack_from(code, first + number * _SECTION.size)
        for number in range(count)
    ]
    named = {_name(code, rows[names][4] + row[0]): row for row in rows}
    symbols = named[".symtab"]
    strings = rows[symbols[6]][4]
    _, _, _, _, place, size = named[".nv.info"][:6]
    found = {}
    stop = place + size
    while place < stop:
        kind, what, length = struct.unpack_from("<BBH", code, place)
        place += 4
        if kind != _SIZED:
            continue
        if what == _REGISTERS:
            symbol, many = struct.unpack_from("<II", code, place)
            at = _SYMBOL.unpack_from(code, symbols[4] + symbol * _SYMBOL.size)[0]
            found[_name(code, strings + at)] = int(many)
        place += length
    return found


def _name(code: bytes, place: int) -> str:
    return code[place : code.index(b"\0", place)].decode()
