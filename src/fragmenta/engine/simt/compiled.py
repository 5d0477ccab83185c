"""A compiled kernel, and how it is kept in the cache on disk.

All that is needed to run a kernel is in one :class:`Compiled`: object files, constants,
sizes, and what each code block consists of.  It is kept in the cache on disk, so that a
kernel that was compiled before starts at once.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import field, fields
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fragmenta.base.arrays import checks
from fragmenta.base.arrays.forking import Lock
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.base.arrays.once import once_property
from fragmenta.base.progress import notice
from fragmenta.engine.simt import layout
from fragmenta.engine.simt.arena import in_use, taken
from fragmenta.engine.simt.layout import Fault, Status
from fragmenta.engine.simt.probes import Probes
from fragmenta.ptx.module import Module, demangled

if TYPE_CHECKING:  # LLVM takes a while to import
    from fragmenta.base.jit.engines import Engine
    from fragmenta.engine.simt import library
    from fragmenta.engine.simt.compiling import CompiledKernel

address_of = checks.address_of
NumberT = TypeVar("NumberT", bound=np.generic)


@dataclass(frozen=True)
class Compiled:
    """A kernel as machine code."""

    kernel: str
    objects: tuple[bytes, ...]
    """The object file of the kernel, and those of the routines that it calls."""
    routines: list[list[str]]
    """The names of the functions of each of these routines."""
    constants: bytes
    warp_bytes: int
    shared: int
    local: int
    recursive: bool
    calls: bool
    counted: list[list[str]]
    """The mnemonics of each code block."""
    places: list[list[Any]]
    """For each site of a possible fault: function and index of the instruction."""
    waits: list[list[Any]]
    """For each code block, function and index of its first instruction."""
    refusals: dict[str, str]
    """Why an instruction is not supported, by its site."""
    functions: list[list[str]]
    fidelity: dict[str, str]
    ordered: bool
    """Whether blocks may influence one another, so that their order matters."""
    addresses: dict[str, int]
    allocates: bool
    """Whether it allocates local memory while it runs."""
    prints: bool
    """Whether it prints; then blocks run one after the other, as does their text."""
    events: list[list[Any]]
    """Instructions that are carried out in Python: site, words, operands."""
    mode: list[int]
    """What it was compiled for; see :class:`~fragmenta.engine.simt.mode.Mode`."""
    dirty: int = 0
    """Where a warp has two bytes for each register; 0 if it has none."""
    poisoned: tuple[int, ...] = (0, 0)
    """The place and the bytes of register shadows that begin undefined."""
    shadows: tuple[tuple[int, ...], ...] = ()
    """The place of each register or word with shadows, and those of its shadows."""
    undefined: tuple[tuple[int, ...], ...] = ()
    """The places of registers that begin undefined, and their bytes."""
    doubtful: bool = False
    """Whether a register may be used before it is written."""
    followed: tuple[tuple[str, int], ...] = ()
    """Function and index of the instructions beside which second values go."""
    remembered: dict[str, Any] = field(default_factory=dict)
    """What else the instrument of second values knows of the code."""
    traced: dict[str, Any] = field(default_factory=dict)
    """What is needed to read the log of a launch that is recorded."""

    partial: Callable[[], list[library.Object]] = list
    """Makes the code for a part of the lanes, and the routines that it calls."""

    def to_bytes(self) -> bytes:
        """Everything in one piece, but the code for a part of the lanes."""
        about = {each.name: getattr(self, each.name) for each in fields(self)}
        del about["partial"]
        parts = [*about.pop("objects"), about.pop("constants")]
        return packed(about, parts)

    @classmethod
    def from_bytes(
        cls, data: bytes, partial: Callable[[], list[library.Object]] = list
    ) -> Compiled:
        """What :meth:`to_bytes` made."""
        about, (*objects, constants) = unpacked(data)
        return cls(
            objects=tuple(objects), constants=constants, partial=partial, **about
        )

    @once_property
    def memory(self) -> NDArray[np.uint8]:
        """The constants, where vectors can be loaded from."""
        made = aligned(max(len(self.constants), 64))
        made[: len(self.constants)] = np.frombuffer(self.constants, np.uint8)
        return made

    @once_property
    def numbered(self) -> tuple[list[str], NDArray[np.int64], NDArray[np.int64]]:
        """The mnemonics, that of each instruction, and the length of code blocks."""
        every = [name for block in self.counted for name in block]
        names = list(dict.fromkeys(every))
        numbers = {name: number for number, name in enumerate(names)}
        lengths = np.array([len(block) for block in self.counted], np.int64)
        return names, np.array([numbers[name] for name in every], np.int64), lengths

    @once_property
    def code(self) -> MachineCode:
        """The machine code, loaded."""
        from fragmenta.engine.simt import library

        kernel, *rest = self.objects
        routines = map(library.Object, self.routines, rest)
        return MachineCode(kernel, routines, self.partial)


def aligned(size: int) -> NDArray[np.uint8]:
    """Zeroed memory that begins at a multiple of 64."""
    found = taken(size)
    if found is not None:
        return found
    memory = np.zeros(size + 64, np.uint8)
    start = -address_of(memory) % 64
    return memory[start : start + size]


def zeros(shape: int | tuple[int, ...], of: DTypeLike) -> NDArray[Any]:
    """Zeros that belong to a context, as machine code uses them."""
    if not in_use():
        return np.zeros(shape, of)
    kind = np.dtype(of)
    many = (shape,) if isinstance(shape, int) else shape
    return aligned(prod(many) * kind.itemsize).view(kind).reshape(many)


def copied(numbers: NDArray[NumberT]) -> NDArray[NumberT]:
    """A copy that belongs to a context, as machine code uses it."""
    if not in_use():
        return numbers.copy()
    made: NDArray[NumberT] = zeros(numbers.shape, numbers.dtype)
    made[...] = numbers
    return made


LARGE = 1 << 18
"""Bytes that are worth pages of their own."""
HUGE = 1 << 21
"""The size of a large page."""


def sparse(size: int) -> NDArray[np.uint8]:
    """The same, if little of it will be used: pages that nobody touches cost nothing.

    Memory that was used before and freed would have to be cleared.
    """
    if size < LARGE or sys.platform == "win32":
        return aligned(size)
    found = taken(size, sparse=True)
    return np.frombuffer(_pages(size), np.uint8) if found is None else found


def fresh(size: int) -> NDArray[np.uint8]:
    """The same, if much of it will be used, by several threads.

    Each thread clears the pages that it uses first, while others go on.
    """
    if size < LARGE or sys.platform == "win32":
        return aligned(size)
    if size < HUGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.frombuffer(_pages(size), np.uint8)
    pages = _pages(size + HUGE)
    with suppress(OSError):  # the host may have no large pages
        pages.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(pages, np.uint8)
    start = -address_of(memory) % HUGE
    return memory[start : start + size]


def _pages(size: int) -> mmap.mmap:
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def packed(about: dict[str, Any], parts: list[bytes]) -> bytes:
    """Facts and parts in one piece.

    >>> unpacked(packed({"name": "f"}, [b"code", b""]))
    ({'name': 'f'}, [b'code', b''])
    """
    text = json.dumps({**about, "sizes": [len(part) for part in parts]}).encode()
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])


def unpacked(data: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """What :func:`packed` made."""
    size = int.from_bytes(data[:8], "little")
    about = json.loads(data[8 : 8 + size])
    place, parts = 8 + size, []
    for length in about.pop("sizes"):
        parts.append(data[place : place + length])
        place += length
    return about, parts


PARTIAL = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32
)


class PartialCode:
    """The code for a part of the lanes of a warp; compiled when it is first called.

    Most kernels never need it: their lanes stay together.
    """

    def __init__(self, make: Callable[[], list[library.Object]]) -> None:
        self._make = make
        self._lock = Lock()
        self._engine: Engine | None = None
        self.address = 0
        """Where it is; 0 before it is compiled."""
        self.errors: dict[int, BaseException] = {}
        """Why it could not be compiled, by the address of the block."""

    def call(self, warp: int, block: int, chosen: int) -> int:
        """Compile it, let the block call it without Python from now on, and call it."""
        try:
            self._compile()
        except BaseException as error:  # an interrupt, too: machine code would lose it
            self.errors[block] = error
            for place, word in (
                (layout.STATUS, Status.FAULT),
                (layout.FAULT_KIND, Fault.HOST),
                (layout.FAULT_ID, 0),
                (layout.FAULT_LANE, 0),
            ):
                ctypes.c_int32.from_address(warp + place).value = word
            return -1
        at = block + layout.BLOCK_PARTIAL
        ctypes.c_int64.from_address(at).value = self.address
        return int(PARTIAL(self.address)(warp, block, chosen))

    def _compile(self) -> None:
        from fragmenta.base.jit import compiler
        from fragmenta.engine.simt import library

        with self._lock:
            if self.address:
                return
            partial, *routines = self._make()
            library.load(routines)
            self._engine = compiler.load([partial.code])
            self.address = self._engine.get_function_address("partial")
            self._make = list  # the text is not needed any more


class MachineCode:
    """Machine code in memory."""

    def __init__(
        self,
        kernel: bytes,
        routines: Iterable[library.Object],
        partial: Callable[[], list[library.Object]],
    ) -> None:
        from fragmenta.base.jit import compiler
        from fragmenta.engine.simt import library

        library.load(routines)
        self.rest = PartialCode(partial)
        self._first = PARTIAL(self.rest.call)
        self._engine = compiler.load([kernel])
        self.kernel: int = self._engine.get_function_address("kernel")
        kinds = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)
        where = library.address
        self.grid = ctypes.CFUNCTYPE(None, *kinds)(where("grid"))
        self.turns = ctypes.CFUNCTYPE(None, *kinds)(where("turns"))
        self.steps = ctypes.CFUNCTYPE(None, *kinds, ctypes.c_int32)(where("steps"))
        self.reset = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(where("reset"))

    @property
    def partial(self) -> int:
        """The function that a kernel calls if not all lanes of a warp take part."""
        return self.rest.address or callback_address(self._first)


def callback_address(callback: ctypes._CFunctionType) -> int:
    """Where machine code finds a function of ``ctypes``.

    With ``ctypes.cast`` the function would refer to itself, and never be freed.
    """
    return int(ctypes.c_void_p.from_buffer(callback).value or 0)


def compiled(
    module: Callable[[], Module],
    text: str,
    chosen: tuple[str, str, str],
    mode: tuple[int, ...] = (),
    probes: Callable[[], Probes] = Probes,
    measure: Callable[[int], None] = lambda _: None,
) -> Compiled:
    """The machine code of a kernel, from the cache if it is there.

    ``chosen`` are its name, the target, and what else the code depends on.  ``module``
    is called only if there is something to compile.  ``mode`` are the fields of a
    :class:`~fragmenta.engine.simt.mode.Mode`, and ``probes`` makes its instrument.
    ``measure`` gets the number of lines to compile, and may refuse it.
    """
    from fragmenta.base.jit import compiler
    from fragmenta.base.jit.cache import Cache
    from fragmenta.engine.simt import library

    about_it = [*chosen, str(tuple(mode)), text]
    key = "\0".join(["kernel", *compiler.processor(), library.digest(), *about_it])
    disk = Cache.present()
    name, target, _ = chosen

    def make() -> CompiledKernel:
        # The compiler takes a while to import.
        from fragmenta.engine.simt.compiling import make

        return make(module(), name, target, mode, probes(), measure)

    kept = disk.get(key)
    if kept is not None:
        return Compiled.from_bytes(kept, lambda: _partial(key, name, make))
    with notice(f"compiling the kernel {demangled(name)}, once"):
        new = make()
    held = [new]  # what it was made from may be large: it is used at most once

    def again() -> CompiledKernel:
        return held.pop() if held else make()

    made = Compiled(
        objects=new.objects,
        constants=new.constants,
        partial=lambda: _partial(key, name, again),
        **new.about,
    )
    disk.put(key, made.to_bytes())
    return made


def _partial(
    key: str, name: str, make: Callable[[], CompiledKernel]
) -> list[library.Object]:
    """The code for a part of the lanes, from the cache if it is there."""
    from fragmenta.base.jit.cache import Cache
    from fragmenta.engine.simt import library

    disk, key = Cache.present(), f"partial\0{key}"
    kept = disk.get(key)
    if kept is not None:
        about, parts = unpacked(kept)
        return list(map(library.Object, about["names"], parts))
    with notice(f"compiling the kernel {demangled(name)} for diverged warps, once"):
        found = make().partial()
    about = {"names": [each.names for each in found]}
    disk.put(key, packed(about, [each.code for each in found]))
    return found
