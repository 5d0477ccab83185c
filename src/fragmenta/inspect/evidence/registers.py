"""Cases of ``mma``, ``mma.sp`` and ``wmma.mma`` on registers."""

from __future__ import annotations

from typing import Any

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.cuda.tools.launch import Arrays, TileKernel
from fragmenta.errors import BadFile
from fragmenta.inspect.evidence import inputs
from fragmenta.inspect.evidence.case import Answer, CaseOptions, Mismatch, TileCase
from fragmenta.inspect.evidence.reproduction import Fed, packed, repeating
from fragmenta.inspect.evidence.validation import RecordedCase, recorded_instruction
from fragmenta.reference.execution.mma import execute, stored_columns
from fragmenta.reference.isa.families import catalogue
from fragmenta.reference.isa.instruction import Instruction

TILES = 40
"""Tiles of a recorded case: five of each kind of floating-point input."""


@dataclass(frozen=True)
class RegisterCase(TileCase):
    """Tiles of one instruction with one selector, as many of each kind of input.

    >>> import fragmenta as fm
    >>> case = RegisterCase(fm.mma("m16n8k64", a="s8", sp="sp"), 0, tiles=8, seed=1)
    >>> case.kernel.immediates, case.form[0]
    ((('selector', 0),), (9, 32, 4))
    """

    kind = "registers"

    op: Instruction
    selector: int | None
    tiles: int
    seed: int

    @property
    def kernel(self) -> TileKernel:
        """One for each selector."""
        chosen = () if self.selector is None else (("selector", self.selector),)
        return TileKernel(self.op, chosen)

    @property
    def count(self) -> int:
        """The tiles: at least as many as were asked for."""
        return inputs.tile_count(self.op, self.tiles)

    @property
    def options(self) -> CaseOptions:
        """The selector."""
        return {"selector": self.selector}

    def inputs(self) -> Arrays:
        """The registers of each operand."""
        return inputs.registers(self.op, self.tiles, self.seed, self.selector)

    def expect(self, inputs: Arrays, target: str) -> Answer:
        """The result of ``execute``."""
        given: dict[str, Any] = dict(inputs)
        operands = [given.pop(name) for name in "abc"]
        if self.selector is not None:
            given["selector"] = self.selector
        return execute(self.op, *operands, **given, target=target)

    def program(self, inputs: Arrays, found: Mismatch, target: str) -> str:
        """A program with the registers of the tile in it."""
        op = self.op
        one = {name: words[found.tile] for name, words in inputs.items()}
        selector = self.selector or 0
        index = stored_columns(op, one.get("metadata"), selector)
        fed = Fed(
            op.a.unpack_bits(one["a"]),
            op.b.unpack_bits(one["b"]),
            op.c.unpack_bits(one["c"]),
            index,
        )
        given = [f"{name}={name}" for name in one if name not in "abc"]
        if self.selector is not None:
            given.append(f"selector={selector}")
        lines = packed(op, one)
        lines += [f"operands, options = (a, b, c), dict({', '.join(given)})"]
        return repeating(op, lines, fed, found, target)


def cases(
    family: str, target: str, *, tiles: int = TILES, seed: int
) -> list[RegisterCase]:
    """Every instruction of a family that a target has, with every selector.

    >>> len(cases("mma", "sm_90a", seed=1))
    106
    """
    return [
        RegisterCase(op, selector, tiles, seed)
        for op in catalogue(family)
        if op.supported_on(target)
        for selector in op.selectors or (None,)
    ]


def again(recorded: RecordedCase, target: str) -> RegisterCase:
    """The case that was recorded; an error if there is no such case."""
    op = recorded_instruction(recorded, ("mma", "mma.sp"), target)
    if recorded.variant is not None:
        raise BadFile(f"{op.family} has no variants; given {recorded.variant!r:.40}")
    if recorded.selector not in (op.selectors or (None,)):
        raise BadFile(f"selector {recorded.selector} is not one of {op}")
    return RegisterCase(op, recorded.selector, recorded.tiles, recorded.seed)
