"""What is done beside an instruction that multiplies matrices."""

from __future__ import annotations

from fragmenta.engine.planes.code.following import PlaneStep
from fragmenta.engine.planes.code.warp_products import write_product
from fragmenta.engine.simt.emitter import InMemory
from fragmenta.engine.simt.matrices import operation
from fragmenta.ptx.module import Register
from fragmenta.ptx.opcodes.kinds import kind_of
from fragmenta.values.numerics.code.chains import chains, multiplies
from fragmenta.values.numerics.code.products import BORN

ALGEBRA = "numerics"
"""Its name in the table of functions of a launch."""


class ProductStep(PlaneStep):
    """Makes the nearly exact D of ``mma`` and ``wmma.mma`` after they have run.

    Those of ``wgmma`` and ``tcgen05.mma`` are made when they are issued.
    """

    def product(self) -> None:
        """Nothing before it: C must be as it is, and D must be known."""

    def after(self) -> None:
        """All operands are in the stage, and so is D."""
        if self.instruction.of_fragments and multiplies(self.instruction):
            self.if_any(self._multiplied)

    def warpgroup(self) -> None:
        """Products that are carried out elsewhere have numbers, too."""
        if kind_of(self.instruction.mnemonic).word == "multiplies":
            self._number()

    tensor = warpgroup

    def _number(self) -> int:
        """Number the instruction, and tell the launch that it is a product."""
        found = self.probes.remembered.setdefault("products", {})
        program = self.writer.program
        every = chains(program)
        key = self.writer.unit.function.name, self.writer.index
        found[str(self.number)] = every.of.get(key, 0)
        self.probes.remembered["chains"] = every.total
        return self.number

    def _multiplied(self) -> None:
        if operation(self.instruction).types["d"].is_integer:
            self.clear()
            return
        number = self._number()
        chain = self.probes.remembered["products"][str(number)]
        count = max(1, self.probes.remembered["chains"])
        made = write_product(
            self.writer,
            self.instruction,
            ALGEBRA,
            self.planes,
            self._second,
            self.table.removeprefix("ptr "),
            number,
            (chain, count),
        )
        self._stop_if(made, BORN)

    def _stop_if(self, made: str, bit: int) -> None:
        """Stop if a product says that something was born, if that is asked for."""

    def _second(self, register: Register) -> InMemory | None:
        return self.second(register) if self.has(register) else None
