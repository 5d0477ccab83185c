"""A compiled kernel, and how it is kept in the cache on disk.

All that is needed to run a kernel is in one :class:`Compiled`: object files, constants,
sizes, and what each code block consists of.  It is kept in the cache on disk, so that a
kernel that was compiled before starts at once.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fragmenta.arrays.once import once_property
from fragmenta.jit import compiler
from fragmenta.jit.cache import Cache
from fragmenta.progress import notice
from fragmenta.ptx.module import Module, demangled
from fragmenta.simt import library
from fragmenta.simt.probes import Probes


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
    mode: list[bool]
    """What it was compiled for; see :class:`~fragmenta.simt.mode.Mode`."""
    dirty: int = 0
    """Where a warp has two bytes for each register; 0 if it has none."""
    poisoned: tuple[int, ...] = (0, 0)
    """The place and the bytes of register shadows that begin undefined."""
    shadows: tuple[tuple[int, int], ...] = ()
    """The place of each register or word with a shadow, and that of its shadow."""
    undefined: tuple[tuple[int, ...], ...] = ()
    """The places of registers that begin undefined, and their bytes."""
    doubtful: bool = False
    """Whether a register may be used before it is written."""

    def to_bytes(self) -> bytes:
        """Everything in one piece."""
        about = asdict(self)
        parts = [*about.pop("objects"), about.pop("constants")]
        about["sizes"] = [len(part) for part in parts]
        text = json.dumps(about).encode()
        return b"".join([len(text).to_bytes(8, "little"), text, *parts])

    @classmethod
    def from_bytes(cls, data: bytes) -> Compiled:
        """What :meth:`to_bytes` made."""
        size = int.from_bytes(data[:8], "little")
        about = json.loads(data[8 : 8 + size])
        place, parts = 8 + size, []
        for length in about.pop("sizes"):
            parts.append(data[place : place + length])
            place += length
        return cls(objects=tuple(parts[:-1]), constants=parts[-1], **about)

    @once_property
    def memory(self) -> NDArray[np.uint8]:
        """The constants, where vectors can be loaded from."""
        made = aligned(max(len(self.constants), 64))
        made[: len(self.constants)] = np.frombuffer(self.constants, np.uint8)
        return made

    @once_property
    def code(self) -> Code:
        """The machine code, loaded."""
        kernel, *rest = self.objects
        return Code(kernel, map(library.Object, self.routines, rest))


def aligned(size: int) -> NDArray[np.uint8]:
    """Zeroed memory that begins at a multiple of 64."""
    memory = np.zeros(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size]


class Code:
    """Machine code in memory."""

    def __init__(self, kernel: bytes, routines: Iterable[library.Object]) -> None:
        library.load(routines)
        self._engine = compiler.load([kernel])
        self.kernel: int = self._engine.get_function_address("kernel")
        kinds = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)
        where = library.address
        self.grid = ctypes.CFUNCTYPE(None, *kinds)(where("grid"))
        self.turns = ctypes.CFUNCTYPE(None, *kinds)(where("turns"))
        self.reset = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(where("reset"))


def compiled(
    module: Callable[[], Module],
    text: str,
    chosen: tuple[str, str, str],
    mode: tuple[bool, ...] = (),
    probes: Callable[[], Probes] = Probes,
    measure: Callable[[int], None] = lambda _: None,
) -> Compiled:
    """The machine code of a kernel, from the cache if it is there.

    ``chosen`` are its name, the target, and what else the code depends on.  ``module``
    is called only if there is something to compile.  ``mode`` are the fields of a
    :class:`~fragmenta.simt.mode.Mode`, and ``probes`` makes its instrument.
    ``measure`` gets the number of lines to compile, and may refuse it.
    """
    about_it = [*chosen, str(tuple(mode)), text]
    key = "\0".join(["kernel", *compiler.processor(), library.digest(), *about_it])
    disk = Cache.present()
    kept = disk.get(key)
    if kept is not None:
        return Compiled.from_bytes(kept)
    # The compiler takes a while to import.
    from fragmenta.simt.compiling import make

    name, target, _ = chosen
    with notice(f"compiling the kernel {demangled(name)}, once"):
        about, objects, constants = make(
            module(), name, target, mode, probes(), measure
        )
        made = Compiled(objects=objects, constants=constants, **about)
    disk.put(key, made.to_bytes())
    return made
