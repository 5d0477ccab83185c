"""The library of routines: machine code that all kernels share.

A *routine* is a compiled function for a whole warp: an addition of two registers, a
load, a shuffle.  A kernel is little more than a list of calls of routines.  So a new
kernel is compiled in little time, and a routine is compiled once for all kernels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

from llvmlite import __version__, binding, ir

from fragmenta.base.arrays.forking import Lock
from fragmenta.base.arrays.threads import WORTH_THREADS, share_out
from fragmenta.base.jit import compiler
from fragmenta.base.jit.cache import Cache
from fragmenta.base.jit.engines import Engine
from fragmenta.base.jit.llvm import Raw, Type
from fragmenta.base.jit.trace import I8, I32, Code, Memory, Trace, Value
from fragmenta.base.progress import notice
from fragmenta.errors import Error, shortened

POINTER = I8.as_pointer()


class Routine(NamedTuple):
    """A function for a warp, and how it is made."""

    name: str
    build: Callable[[ir.Module], None]
    others: tuple[str, ...] = ()
    """Further functions that it makes, which other routines call."""


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


def taken(code: Code, counter: Raw) -> Value:
    """What a counter in memory was before; all threads take numbers of it."""
    b, one = code.builder, ir.Constant(counter.type.pointee, 1)
    return Value(b, b.atomic_rmw("add", counter, one, "monotonic"))


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


COMPILING = (
    "base/jit",
    "ptx",
    "engine/simt",
    "engine/units/fast",
    "values/counters/code",
    "engine/tracing/code",
    "engine/planes/code",
    "values/numerics/code",
    "values/expressions/code",
    "watch/races/shadow",
    "watch/races/probes",
)
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


class Object(NamedTuple):
    """The object file of a routine."""

    names: list[str]
    """The functions that are in it."""
    code: bytes
    calls: Sequence[str] = ()
    """The functions of other object files that it calls."""

    def to_bytes(self) -> bytes:
        """All in one piece.

        >>> made = Object(["one", "two more"], b"code", ["three"])
        >>> Object.from_bytes(made.to_bytes()) == made
        True
        """
        lists = ("\n".join(each).encode() for each in (self.names, self.calls))
        return b"\0".join([*lists, self.code])

    @classmethod
    def from_bytes(cls, data: bytes) -> Object:
        """What :meth:`to_bytes` made."""
        names, calls, code = data.split(b"\0", 2)
        return cls(names.decode().split("\n"), code, calls.decode().split("\n"))


BRANCHING = ("units.", "watch.")
"""How routines begin that branch more than they compute: units, and checks."""
LONG = 12_000
"""Characters of their code from which on few passes optimise it.

Unrolled loops and vectors make them no faster, and took three quarters of the time of
a first launch.
"""

_KEPT: dict[str, Object] = {}


def objects(routines: Iterable[Routine]) -> list[Object]:
    """The object files of routines, in their order; compiled if they are not kept."""
    every, missing = list(routines), []
    disk = Cache.present()
    for routine in every:
        if routine.name not in _KEPT:
            kept = disk.get(_key(routine.name))
            if kept is None:
                missing.append(routine)
            else:
                _KEPT[routine.name] = Object.from_bytes(kept)
    if missing:
        with notice(f"compiling {len(missing)} instructions, once"):
            _compile(missing, disk)
    return [_KEPT[routine.name] for routine in every]


class _Loaded:
    """The routines that are in memory, for all kernels of the process.

    An engine has some pages for each object file, and a process may have 65,530 such
    ranges of pages.  If every kernel had its own copy of its routines, a few hundred
    kernels would use them up.
    """

    def __init__(self) -> None:
        self._engines: list[Engine] = []
        self._addresses: dict[str, int] = {}
        self._lock = Lock()

    def load(self, routines: Iterable[Object]) -> None:
        """Load the object files of routines that are not in memory yet."""
        with self._lock:
            new = [r for r in routines if r.names[0] not in self._addresses]
            if not new:
                return
            engine = compiler.load(each.code for each in new)
            self._engines.append(engine)
            for name in (name for each in new for name in each.names):
                where = engine.get_function_address(name)
                binding.add_symbol(name, where)
                self._addresses[name] = where

    def address(self, name: str) -> int:
        """Where the code of a routine is."""
        return self._addresses[name]


_LOADED = _Loaded()


def load(routines: Iterable[Object]) -> None:
    """Load routines; those that are in memory stay there.

    Object files that are loaded later find them by their names.
    """
    _LOADED.load(routines)


def address(name: str) -> int:
    """Where the code of a routine is that was loaded."""
    return _LOADED.address(name)


def addresses(routines: Iterable[Routine]) -> dict[str, int]:
    """Where the code of routines is, by their names; they stay in memory."""
    every = list(routines)
    found = objects(every)
    load(found)
    return {name: address(name) for each in found for name in each.names}


def _key(name: str) -> str:
    return "\0".join(["routine", __version__, *compiler.processor(), digest(), name])


def _compile(routines: list[Routine], disk: Cache) -> None:
    """Compile routines on all cores, and keep them."""
    texts = list(map(_text, routines))

    def compile_some(first: int, last: int) -> None:
        for routine, (names, calls, text) in zip(
            routines[first:last], texts[first:last], strict=True
        ):
            few = routine.name.startswith(BRANCHING) and len(text) > LONG
            with _named(routine):
                code = compiler.object_code(text, optimise=1 if few else 2)
                made = Object(names, code, calls)
            disk.put(_key(routine.name), made.to_bytes())
            _KEPT[routine.name] = made

    share_out(compile_some, len(routines), WORTH_THREADS)


def _text(routine: Routine) -> tuple[list[str], list[str], str]:
    """The functions of a routine, those that it calls, and its code for LLVM."""
    with _named(routine):
        module = ir.Module(routine.name)
        routine.build(module)
        own = [each.name for each in module.functions if not each.is_declaration]
        calls = [each.name for each in module.functions if each.is_declaration]
        return own, calls, str(module)


@contextmanager
def _named(routine: Routine) -> Iterator[None]:
    """Say in an error which routine it is about."""
    try:
        yield
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as why:
        # Sizes that no instruction has; LLVM refuses them with a RuntimeError.
        raise Error(f"no code can be made for {shortened(routine.name)}") from why
