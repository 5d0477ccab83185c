"""Modules that a program loads: PTX, cubins with PTX, and fat binaries."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fragmenta.cuda.tools import fatbin
from fragmenta.engine.simt import layout
from fragmenta.engine.simt.arguments import Segment
from fragmenta.engine.simt.program import (
    module_addresses,
    parameter_offsets,
    variable_addresses,
)
from fragmenta.errors import BadFile, Error, one_of
from fragmenta.frontends.programs.memory import MappedMemory
from fragmenta.launch.kernel import Kernel, Loaded
from fragmenta.ptx import reading
from fragmenta.ptx.checking.memory import shared_bytes
from fragmenta.ptx.linking import link
from fragmenta.ptx.module import Module
from fragmenta.reference.isa.target import TARGETS

REGISTERS = 32
"""What programs are told about registers: only an assembler knows how many."""


class Skipped:
    """Slots that variables of the modules of a program have: global, constant."""

    def __init__(self) -> None:
        self.count = (0, 0)

    def add(self, addresses: dict[str, int]) -> None:
        """Those of a further module."""
        slots = [address >> layout.SLOT_BITS for address in addresses.values()]
        constant = sum(slot >= layout.FIRST_CONSTANT for slot in slots)
        there, other = self.count
        self.count = there + len(slots) - constant, other + constant


class LoadedModule:
    """A module that a program loaded, ready to launch its kernels."""

    def __init__(
        self, image: bytes, target: str, skipped: Skipped, parts: int = 0
    ) -> None:
        """``parts`` counts images that are to be linked; see :func:`chosen`."""
        text, self.name = chosen(image, target, parts)
        module = replace(reading.parse(text, self.name), skipped=skipped.count)
        self.module: Module = module
        self.loaded = Loaded(module)
        self.addresses = variable_addresses(module)
        skipped.add(self.addresses)
        self.shared: dict[str, MappedMemory] = {}
        self._made: list[MappedMemory] = []
        every = module_addresses(module)
        self.variables = self.loaded.place_variables(every, self._memory)
        order = [name for name, v in module.variables.items() if v.space in _IN_MEMORY]
        self.shared = dict(zip(order, self._made, strict=True))
        self.sent: set[str] = set()
        """Variables that the program has mapped."""

    def _memory(self, size: int) -> NDArray[np.uint8]:
        self._made.append(MappedMemory.make(size))
        return self._made[-1].data

    def kernel(self, name: str) -> Kernel | None:
        """A kernel by the name in the PTX."""
        return self.loaded.kernels.get(name)

    def close(self) -> None:
        """Close the files of its variables."""
        for each in self._made:
            each.close()

    def segments(self) -> list[Segment]:
        """Its variables, for kernels of other modules that get a pointer to them."""
        return self.variables.segments


_IN_MEMORY = ("global", "const")


def facts(kernel: Kernel) -> tuple[list[int], list[int], list[int]]:
    """The offsets and the sizes of the parameters of a kernel, and other numbers.

    Programs do not pass hidden parameters.
    """
    module, function = kernel.loaded.module, kernel.function
    passed = [each for each in function.parameters if "hidden" not in each.attributes]
    places = parameter_offsets(function)
    offsets = [places[each.name] for each in passed]
    sizes = [each.size for each in passed]
    constant = sum(v.size for v in module.variables.values() if v.space == "const")
    local = sum(
        v.size
        for each in module.functions.values()
        for v in each.variables.values()
        if v.space == "local"
    )
    most = function.directives.get("maxntid") or function.directives.get("reqntid")
    threads = int(np.prod([int(n) for n in most])) if most else 1024
    needed = function.directives.get("reqnctapercluster") or ()
    cluster = [int(n) for n in (*needed, 1, 1)[:3]] if needed else [0, 0, 0]
    target = int(re.sub(r"\D", "", module.target))
    static = shared_bytes(module, function)
    numbers = [static, constant, local, threads, REGISTERS, target, target, *cluster]
    return offsets, sizes, numbers


def of_tiles(
    kernel: Kernel, grid: tuple[int, ...], block: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The grid and the block of a launch, also of a kernel that is written in tiles.

    Programs of cuTile launch a grid of tiles with blocks of one thread.  The kernel
    says how many threads and blocks compute a tile.
    """
    directives = kernel.function.directives
    if not kernel.function.of_tiles or "reqntid" not in directives:
        return grid, block
    threads, blocks = (
        tuple(int(n) for n in (*directives.get(name, ()), 1, 1, 1)[:3])
        for name in ("reqntid", "reqnctapercluster")
    )
    return tuple(a * b for a, b in zip(grid, blocks, strict=True)), threads


def chosen(image: bytes, target: str, parts: int = 0) -> tuple[str, str]:
    r"""The PTX of an image that a card would run, and the file that it is from.

    Of relocatable code there are several images, ``parts``: their sizes, then the
    images.  They are linked, but for those without PTX that fits, such as a library
    of machine code: a kernel that needs one of its functions is refused by its name.

    >>> chosen(b".version 8.0 .target sm_80 .address_size 64\0", "sm_90a")[0][:8]
    '.version'
    """
    if parts:
        made, wrong = [], list[Error]()
        for each in _split(image, parts):
            try:
                made.append(chosen(each, target))
            except Error as why:  # such as a library of machine code
                wrong.append(why)
        if not made:
            raise wrong[0]
        return link([text for text, _ in made]), made[0][1]
    if not fatbin.is_binary(image):
        return image.rstrip(b"\0").decode("utf-8", "replace"), ""
    found = fatbin.ptx_texts(image, "the program")
    fitting = [each for each in found if runs_on(each.target, target)]
    if not fitting:
        have = one_of(dict.fromkeys(each.target for each in found), "and")
        raise BadFile(
            f"the program has PTX for {have}, which {target} does not run; compile "
            f"with nvcc -arch={target.replace('sm_', 'compute_')}, or name another "
            "--card"
        )
    best = max(fitting, key=lambda each: _rank(each.target))
    return best.text or "", best.name


def _split(image: bytes, parts: int) -> Iterator[bytes]:
    """The images of a message that has several."""
    if len(image) < 8 * parts:
        raise BadFile(f"a message of {parts:,} images is too short")
    at = 8 * parts
    for size in struct.unpack(f"<{parts}Q", image[:at]):
        yield image[at : at + size]
        at += size


def _rank(target: str) -> tuple[int, bool]:
    return int(re.sub(r"\D", "", target)), target[-1:] in "af"


def runs_on(written: str, target: str) -> bool:
    """Whether a card runs PTX that was written for a target.

    >>> runs_on("sm_80", "sm_90a"), runs_on("sm_90a", "sm_100a")
    (True, False)
    """
    if written == target:
        return True
    if written not in TARGETS or written[-1] not in "af":
        return _rank(written) <= _rank(target)
    same = _rank(written)[0] == _rank(target)[0]
    if written[-1] == "a":
        return same and target[-1] == "a"
    family = _rank(written)[0] // 10 == _rank(target)[0] // 10
    return family and _rank(written)[0] <= _rank(target)[0] and target[-1] in "af"
