"""Cases of ``ldmatrix``, ``stmatrix`` and ``movmatrix``."""

from __future__ import annotations

import numpy as np

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.cuda.tools.device import Array
from fragmenta.cuda.tools.launch import Arrays, TileKernel
from fragmenta.errors import BadFile
from fragmenta.inspect.evidence.case import Answer, CaseOptions, TileCase
from fragmenta.inspect.evidence.inputs import WordStream
from fragmenta.inspect.evidence.validation import RecordedCase, recorded_instruction
from fragmenta.reference.isa.families import catalogue
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.target import Version
from fragmenta.reference.shared import moves
from fragmenta.reference.shared.descriptor import UNIT

FAMILIES = ("ldmatrix", "stmatrix", "movmatrix")
TILES = 4
IMAGE_BYTES = 4096
"""The shared memory of one tile."""
NEWEST = Version(9, 0)
"""The PTX version of toolkit 13.0, which drivers of recorded GPUs take; what is newer
is not asked about."""


@dataclass(frozen=True)
class MoveCase(TileCase):
    """Random bytes and registers, and a row of its own for each lane.

    >>> import fragmenta as fm
    >>> case = MoveCase(fm.find("ldmatrix.m8n8.x4.b16"), tiles=2, seed=1)
    >>> sorted(case.inputs()), case.form[0]
    (['address', 'image'], (2, 32, 4))
    """

    kind = "moves"

    op: Instruction
    tiles: int
    seed: int

    @property
    def kernel(self) -> TileKernel:
        """``movmatrix`` needs no shared memory."""
        size = 0 if self.op.moves == "transpose" else IMAGE_BYTES
        return TileKernel(self.op, image_bytes=size)

    @property
    def options(self) -> CaseOptions:
        """No options; recordings have always kept them in this form."""
        return {"variant": {}}

    @property
    def salt(self) -> str:
        """The same text for all."""
        return "()"

    def inputs(self) -> Arrays:
        """Registers, addresses and images: what the instruction takes."""
        op, tiles = self.op, self.tiles
        source = WordStream(str(op), tiles, self.seed)
        found: dict[str, Array] = {}
        if "A" in op.fragments:
            shape = (tiles, 32, op.fragments["A"].registers)
            found["a"] = source.words(shape).astype(np.uint32)
        if op.moves != "transpose":
            found["image"] = source.words((tiles, IMAGE_BYTES // 8)).view(np.uint8)
            order = np.argsort(source.words((tiles, IMAGE_BYTES // UNIT)), axis=1)
            found["address"] = (UNIT * order[:, :32]).astype(np.uint32)
        return found

    def expect(self, inputs: Arrays, target: str) -> Answer:
        """The result of ``shared.moves``; all targets have the same."""
        found: Answer
        if self.op.loads:
            found = moves.ldmatrix(self.op, inputs["image"], inputs["address"])
        elif self.op.stores:
            found = moves.stmatrix(
                self.op, inputs["image"], inputs["address"], inputs["a"]
            )
        else:
            found = moves.movmatrix(self.op, inputs["a"])
        return found.reshape(self.form[0])


def cases(target: str, *, tiles: int = TILES, seed: int) -> list[MoveCase]:
    """Every move that a target has.

    >>> len(cases("sm_90a", seed=1))
    37
    """
    return [
        MoveCase(op, tiles, seed)
        for family in FAMILIES
        for op in catalogue(family)
        if op.supported_on(target) and op.requires.ptx <= NEWEST
    ]


def again(recorded: RecordedCase, target: str) -> MoveCase:
    """The case that was recorded; an error if there is no such case."""
    op = recorded_instruction(recorded, FAMILIES, target)
    if recorded.variant != {}:
        raise BadFile(f"{op.family} has no variants; given {recorded.variant!r:.40}")
    if recorded.selector is not None:
        raise BadFile(f"{op.family} has no selectors; given {recorded.selector}")
    return MoveCase(op, recorded.tiles, recorded.seed)
