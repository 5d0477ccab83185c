"""Loops of ``ldmatrix`` and ``stmatrix`` over a whole tile.

A tile in shared memory has many fragments: m-tiles or n-tiles, and k-steps.  One
instruction moves several of them, one, or a part of one.  A :class:`MatrixLoop` is all
of it: the instruction, the address of each lane in each step, which register of which
fragment each register is, what it costs, and the CUDA function that does it.
"""

from __future__ import annotations

from functools import cached_property
from types import EllipsisType

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.base.arrays.checks import Array, as_array
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.base.arrays.record import Record
from fragmenta.errors import BadCall, ShapeError
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.registers.fragment import Fragment, Words
from fragmenta.reference.registers.layout import Index, Layout
from fragmenta.reference.shared.addresses import LaneAddresses
from fragmenta.reference.shared.banks import degrees
from fragmenta.reference.shared.matching import (
    Along,
    Grouping,
    TileGrid,
    held,
    registers,
)
from fragmenta.reference.shared.moves import LANES, ldmatrix, stmatrix
from fragmenta.reference.shared.placement import Placement
from fragmenta.reference.shared.swizzles import UNIT
from fragmenta.reference.shared.tiles import Image


@dataclass(frozen=True, repr=False)
class LoopConflicts:
    """What all instructions of a loop cost; ``str()`` says it in one line.

    ``degrees`` has the degree of each phase: (steps …, phases).  1 means no conflict.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k16", a="f16", d="f32")
    >>> fm.shared.ldmatrix_loop(op, "A", tile=(16, 32), order="row").conflicts()
    <LoopConflicts up to 4-way: 32 turns for 8 phases of 2 instructions>
    """

    degrees: NDArray[np.int64]

    @property
    def degree(self) -> int:
        """The degree of the worst phase."""
        return int(self.degrees.max())

    @property
    def turns(self) -> int:
        """All turns of all instructions."""
        return int(self.degrees.sum())

    @property
    def phases(self) -> int:
        """The turns that there would be without conflicts."""
        return int((self.degrees > 0).sum())

    @property
    def free(self) -> bool:
        """Whether there is no conflict in any step."""
        return self.degree <= 1

    @property
    def instructions(self) -> int:
        """How many instructions there are, of all warps."""
        return int(np.prod(self.degrees.shape[:-1]))

    def __str__(self) -> str:
        free = "no bank conflicts" if self.free else f"up to {self.degree}-way"
        many = f"{self.instructions} instruction{'s' * (self.instructions > 1)}"
        return f"{free}: {self.turns} turns for {self.phases} phases of {many}"

    def __repr__(self) -> str:
        return f"<LoopConflicts {self}>"


@dataclass(frozen=True, eq=False, repr=False)
class MatrixLoop(Record):
    """The instructions that move a tile between shared memory and registers.

    :mod:`fragmenta.reference.shared.loops` makes it.
    """

    tiles: TileGrid
    memory: Placement
    """How the tile is stored."""
    group: Grouping
    layout: Layout
    """The row and col that each lane addresses; U counts the elements there."""

    # ── what there is ───────────────────────────────────────────────────────

    @property
    def op(self) -> Instruction:
        """The instruction whose operand is moved."""
        return self.tiles.op

    @property
    def operand(self) -> str:
        """A, B, C or D."""
        return self.tiles.operand

    @property
    def part(self) -> Fragment:
        """The fragment of one operand."""
        return self.tiles.part

    @property
    def move(self) -> Instruction:
        """The instruction that moves, the same in all steps."""
        return self.group.move

    @property
    def along(self) -> Along | None:
        """Where the fragments of one instruction are adjacent: m, n or k."""
        return self.group.along

    @property
    def steps(self) -> dict[str, int]:
        """The loop: how often the instruction is issued, outermost dimension first.

        ``part`` is there if a fragment takes several instructions.
        """
        return self.tiles.steps(self.group)

    @property
    def fragments(self) -> tuple[int, ...]:
        """The fragments in each dimension, and the registers of each."""
        return (*self.tiles.counts.values(), self.part.registers)

    @cached_property
    def register_layout(self) -> Layout:
        """Which register of which fragment each register of each instruction is.

        >>> import fragmenta as fm
        >>> op = fm.mma("m16n8k16", a="f16", d="f32")
        >>> tile = {"tile": (64, 64), "order": "col"}
        >>> loop = fm.shared.ldmatrix_loop(op, "B", **tile, along="k")
        >>> print(loop.register_layout)
        R = R0  k = R1 k0  n = n0 n1 n2
        """
        return registers(self.group, self.tiles)

    @property
    def registers(self) -> NDArray[np.intp]:
        """The fragment and its register, of each register: (steps …, registers, 3).

        The last axis is an index of the array that :meth:`load` returns and that the
        CUDA function fills: ``b[k][n][register]``.
        """
        found = self._spread(self.register_layout, "R")
        names = (*self.tiles.counts, "R")
        size = held(self.move).registers
        shape = (*self.steps.values(), size)
        zero = np.zeros(shape, np.intp)
        return np.stack([found.get(name, zero) for name in names], axis=-1)

    @cached_property
    def unit_layout(self) -> Layout:
        """The line, unit and box that each lane addresses in each step."""
        return self.layout.without("U").then(self.memory.layout)

    @cached_property
    def addresses(self) -> LaneAddresses:
        """Byte addresses (steps …, 32), with the warps of a warpgroup before the lanes.

        Lanes that are not used repeat the last address: sm_75 reads all of them.
        """
        found = self._spread(self.unit_layout, "W", "L")
        used = held(self.move).shape[0] * held(self.move).shape[1]
        lanes = np.minimum(np.arange(LANES), used - 1)
        where = self.memory.swizzled(found)[..., lanes]
        made = LaneAddresses(where, width=UNIT, used=used)
        made.setflags(write=False)
        return made

    @property
    def first(self) -> tuple[Instruction, LaneAddresses]:
        """The instruction, and its addresses in the first step."""
        return self.move, self.addresses[(0,) * len(self.steps)]

    def _spread(self, layout: Layout, *places: str) -> dict[str, NDArray[np.intp]]:
        """Each coordinate over all steps, and then over axes of the place."""
        sizes = dict(layout.axes)
        names = [*self.steps, *(name for name in places if name in sizes)]
        shape = [sizes.get(name, 1) for name in names]
        order = [name for name, _ in layout.axes]
        # Layouts leave out axes of size 1, but every step has its axis here.
        assert order == [name for name in names if name in sizes]
        return {name: grid.reshape(shape) for name, grid in layout.grid().items()}

    def conflicts(self) -> LoopConflicts:
        """What exactly these accesses cost.

        >>> import fragmenta as fm
        >>> op = fm.mma("m16n8k16", a="f16", d="f32")
        >>> loop = fm.shared.ldmatrix_loop(op, "A", tile=(64, 32), order="row")
        >>> print(loop.conflicts())
        up to 4-way: 128 turns for 32 phases of 8 instructions
        """
        used = self.addresses.used
        where = np.array(self.addresses)
        where[..., used:] = -1
        return LoopConflicts(degrees(where, UNIT))

    # ── execution ───────────────────────────────────────────────────────────

    def image(self, matrix: ArrayLike) -> Image:
        """Shared memory that holds the tile: bytes, from address 0 on.

        >>> import numpy as np, fragmenta as fm
        >>> op = fm.mma("m16n8k16", a="f16", d="f32")
        >>> tile = {"tile": (64, 64), "order": "col"}
        >>> loop = fm.shared.ldmatrix_loop(op, "B", **tile, swizzle=128)
        >>> B = np.arange(64 * 64).reshape(64, 64) % 2048
        >>> b = loop.load(loop.image(B))
        >>> b.shape, bool((b[1, 2] == op.b.pack(B[16:32, 16:24])).all())
        ((4, 8, 32, 2), True)
        """
        return self.memory.image(matrix)

    def load(self, image: ArrayLike) -> Words:
        """The registers of all fragments after the loop: (…, fragments …, lanes, n).

        Only an ``ldmatrix`` loads.
        """
        self._check_family("ldmatrix", "load")
        memory = as_array(image)
        batch, steps = memory.shape[:-1], self.addresses.shape[:-1]
        spread = memory.reshape(*batch, *(1,) * len(steps), memory.shape[-1])
        words = ldmatrix(self.move, spread, self.addresses)
        count = len(self.steps)
        words = np.moveaxis(words, -1, len(batch) + count)  # before warps and lanes
        # Warps and lanes are one axis of a fragment.
        words = words.reshape(*words.shape[: len(batch) + count + 1], -1)
        made = np.empty((*batch, *self.fragments, self.part.lanes), words.dtype)
        made[self._index(...)] = words
        return np.moveaxis(made, -1, -2)

    def store(self, image: ArrayLike, fragments: ArrayLike) -> Image:
        """The image after the loop has stored all fragments, as a new array.

        ``fragments`` is (fragments …, lanes, registers).  Only an ``stmatrix`` stores.

        >>> import numpy as np, fragmenta as fm
        >>> op = fm.mma("m16n8k16", a="f16", d="f16")
        >>> tile = {"tile": (32, 16), "order": "row"}
        >>> loop = fm.shared.stmatrix_loop(op, "D", **tile, swizzle=32)
        >>> D = np.arange(32 * 16, dtype=np.float16).reshape(32, 16)
        >>> tiles = D.reshape(2, 16, 2, 8).swapaxes(1, 2)
        >>> image = loop.store(np.zeros(1024, np.uint8), op.d.pack(tiles))
        >>> bool((loop.matrix(image) == D).all())
        True
        """
        self._check_family("stmatrix", "store")
        given = as_array(fragments)
        *counts, each = self.fragments
        wanted = (*counts, self.part.lanes, each)
        if given.shape != wanted:
            raise ShapeError(
                f"{self.operand} has fragments {', '.join(self.tiles.counts)}, lanes "
                f"and registers: {wanted}; given {given.shape}"
            )
        words = np.moveaxis(given, -1, -2)[self._index()]
        number = len(self.steps)
        words = np.moveaxis(words, number, -1)
        words = words.reshape(*self.addresses.shape, -1)
        after = np.array(as_array(image))
        for step in np.ndindex(self.addresses.shape[:-1]):
            after = stmatrix(self.move, after, self.addresses[step], words[step])
        return after

    def matrix(self, image: ArrayLike) -> Array:
        """The tile that an image of shared memory holds."""
        return self.memory.matrix(image)

    def _index(self, *batch: EllipsisType) -> tuple[Index | slice | EllipsisType, ...]:
        """Where the registers of all steps are among (fragments …, lanes)."""
        return (*batch, *np.moveaxis(self.registers, -1, 0), slice(None))

    def _check_family(self, family: str, verb: str) -> None:
        if self.move.family != family:
            raise BadCall(
                f"{family} {verb}s; this is a loop of {self.move.family}, made by "
                f"fm.shared.{self.move.family}_loop"
            )

    def __str__(self) -> str:
        rows, cols = self.tiles.shape
        steps = ", ".join(f"{name} {size}" for name, size in self.steps.items())
        count = int(np.prod(list(self.steps.values())))
        tile = f"{rows} x {cols} {self.part.dtype}"
        return "\n".join(
            [
                f"{count} {self.move}{self._warps}: {steps}",
                f"{self.operand}: {tile}, {self.memory.words}",
                str(self.layout),
                str(self.conflicts()),
            ]
        )

    @property
    def _warps(self) -> str:
        warps = self.part.lanes // LANES
        return f" in each of {warps} warps" if warps > 1 else ""

    def __repr__(self) -> str:
        return f"<MatrixLoop {str(self).splitlines()[0]}>"
