"""The library of routines: machine code that all kernels share.

A *routine* is a compiled function for a whole warp: an addition of two registers, a
load, a shuffle.  A kernel is little more than a list of calls of routines.  So a new
kernel is compiled in little time, and a routine is compiled once for all kernels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

from llvmlite import __version__, ir

from fragmenta.errors import Error, shortened
from fragmenta.jit import compiler
from fragmenta.jit.cache import Cache
from fragmenta.jit.llvm import Raw, Type
from fragmenta.jit.trace import I8, I32, Code, Memory, Trace, Value
from fragmenta.progress import notice

POINTER = I8.as_pointer()


class Routine(NamedTuple):
    """A function for a warp, and how it is made."""

    name: str
    build: Callable[[ir.Module], None]


def define(
    module: ir.Module,
    name: str,
    parameters: list[Type],
    trace: Trace,
    returns: Type | None = None,
) -> None:
    """Add a function to a module; ``trace`` gets the code and the parameters."""
    kind = ir.FunctionType(returns or ir.VoidType(), parameters)
    function = ir.Function(module, kind, name)
    code = Code(function)
    given = [
        argument if argument.type == POINTER else Value(code.builder, argument)
        for argument in function.args
    ]
    code.close(trace(code, *given))


def field(code: Code, base: Raw, offset: int, of: Type) -> Memory:
    """The memory at a fixed distance from a pointer."""
    b = code.builder
    place = b.gep(base, [ir.Constant(I32, offset)])
    return Memory(b, b.bitcast(place, of.as_pointer()), of)


def pointer_at(code: Code, base: Raw, offset: int) -> Raw:
    """A pointer that is kept at a fixed distance from another."""
    b = code.builder
    place = b.gep(base, [ir.Constant(I32, offset)])
    return b.load(b.bitcast(place, POINTER.as_pointer()))


def as_signed(number: int, bits: int) -> int:
    """A number of so many bits as LLVM writes it.

    >>> as_signed(255, 8), as_signed(127, 8)
    (-1, 127)
    """
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number


COMPILING = ("jit", "ptx", "simt", "units/fast", "races/shadow", "races/probes")
"""Folders whose modules write code.  Others may change without a new compilation."""
DESCRIBING = ("rules.py",)
"""Modules in them that only have words for people."""


@cache
def digest() -> str:
    """What machine code depends on: the text of all modules that write it."""
    total = hashlib.sha256()
    for room in COMPILING:
        folder = files("fragmenta").joinpath(*room.split("/"))
        for text in sorted(_texts(folder)):
            total.update(text)
    return total.hexdigest()


def _texts(folder: Traversable) -> Iterable[bytes]:
    for item in folder.iterdir():
        if item.is_dir():
            yield from _texts(item)
        elif item.name.endswith(".py") and item.name not in DESCRIBING:
            yield item.read_bytes()


_KEPT: dict[str, bytes] = {}


def objects(routines: Iterable[Routine]) -> list[bytes]:
    """The object files of routines, compiled if they are not in the cache."""
    missing, found = [], []
    disk = Cache.present()
    for routine in routines:
        if routine.name not in _KEPT:
            kept = disk.get(_key(routine.name))
            if kept is None:
                missing.append(routine)
                continue
            _KEPT[routine.name] = kept
        found.append(_KEPT[routine.name])
    if missing:
        with notice(f"compiling {len(missing)} instructions, once"):
            for routine in missing:
                made = _compiled(routine)
                disk.put(_key(routine.name), made)
                _KEPT[routine.name] = made
                found.append(made)
    return found


def _key(name: str) -> str:
    return "\0".join(["routine", __version__, *compiler.processor(), digest(), name])


def _compiled(routine: Routine) -> bytes:
    try:
        module = ir.Module(routine.name)
        routine.build(module)
        return compiler.object_code(str(module), optimise=2)
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as why:
        # Sizes that no instruction has; LLVM refuses them with a RuntimeError.
        raise Error(f"no code can be made for {shortened(routine.name)}") from why
