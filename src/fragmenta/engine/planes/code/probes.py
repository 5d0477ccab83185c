"""The instrument that moves second values along with the values of a kernel."""

from __future__ import annotations

from typing import Any

from fragmenta.engine.planes.code import layout as at
from fragmenta.engine.planes.code.following import PlaneStep, follow, follow_on
from fragmenta.engine.planes.code.shadow_registers import ShadowRegisters, place_shadows
from fragmenta.engine.simt import layout
from fragmenta.engine.simt.emitter import Writer, shadow_names
from fragmenta.engine.simt.probes import Probes
from fragmenta.engine.simt.program import PlacedFunction, Program
from fragmenta.ptx.module import Instruction


class PlaneProbes(Probes):
    """The instrument of an algebra: what its steps write beside each instruction."""

    def __init__(
        self,
        step: type[PlaneStep],
        planes: int,
        granule: int,
        counts_losses: bool = False,
    ) -> None:
        self.step, self.planes, self.granule = step, planes, granule
        self.counts_losses = counts_losses
        self.zeros = 0
        """Where a warp has zeros, as many as a plane of a register has bytes."""
        self.remembered: dict[str, Any] = {}
        """What the algebra wants to know of the code when it runs: for JSON."""
        self._twins: dict[str, ShadowRegisters] = {}
        self._numbers: dict[tuple[str, int], int] = {}

    def shadow_registers_of(self, unit: PlacedFunction) -> ShadowRegisters:
        """The shadow registers of a function."""
        return self._twins[unit.function.name]

    def number_of(self, writer: Writer) -> int:
        """The number of the present instruction, in both versions of the code."""
        key = writer.unit.function.name, writer.index
        return self._numbers.setdefault(key, len(self._numbers))

    def begin(self, program: Program) -> None:
        """Place the shadows of all registers, before any code is written."""
        self.zeros = program.warp_bytes
        given = self.planes, self.granule, self.step.whole
        self._twins = place_shadows(program, *given)

    def head(self) -> list[str]:
        """The shadows of a block and of a warp in each plane, and the table."""
        place = "getelementptr i8, ptr"
        return [
            *shadow_lines(self.planes),
            f"  %planes_table_at = {place} %shadow, i64 {at.TABLE}",
            "  %planes_table = load ptr, ptr %planes_table_at",
        ]

    def before(self, writer: Writer, instruction: Instruction) -> None:
        """Do to planes what the instruction does to values."""
        if not self._twins:
            self.begin(writer.program)
        follow(self, writer, instruction)

    def after(self, writer: Writer, instruction: Instruction) -> None:
        """Do what has to wait for results, and let the algebra see them."""
        follow_on(self, writer, instruction)

    def about(self, program: Program) -> dict[str, object]:
        """Where planes of registers are, and which instructions have numbers."""
        return {
            "shadows": [[at, *of] for at, of in sorted(program.shadows.items())],
            "followed": [list(each) for each in self._numbers],
            "remembered": self.remembered,
        }


def shadow_lines(planes: int) -> list[str]:
    """Lines that load where the shadows of a block and of a warp are, in each plane."""
    place = "getelementptr i8, ptr"
    lines = [
        f"  %shadow_at = {place} %block, i64 {layout.BLOCK_SHADOW}",
        "  %shadow = load ptr, ptr %shadow_at",
        f"  %number_at = {place} %warp, i64 {layout.WARP_NUMBER}",
        "  %number = load i32, ptr %number_at",
        f"  %behind = mul i32 %number, {at.WARP_BYTES}",
    ]
    for plane in range(planes):
        warp, block = shadow_names(plane)
        if plane:
            _, before = shadow_names(plane - 1)
            lines += [
                f"  {block}_at = {place} {before}, i64 {at.NEXT}",
                f"  {block} = load ptr, ptr {block}_at",
            ]
        lines += [
            f"  {warp}s_at = {place} {block}, i64 {at.WARPS_AT}",
            f"  {warp} = {place} {warp}s_at, i32 %behind",
        ]
    return lines
