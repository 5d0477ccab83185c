"""What is hashed beside each instruction, and what a proof depends on.

Hashes are made where floats are computed, and where whole numbers are computed from
them.  What cannot be hashed is noted in the table of the context, by the number of the
instruction and the kind of note (:data:`KINDS`).
"""

from __future__ import annotations

from dataclasses import replace

from fragmenta.engine.planes.code.flow import from_parameter, of_lanes
from fragmenta.engine.planes.code.following import PlaneStep
from fragmenta.engine.planes.code.following import named_parameter as is_named
from fragmenta.engine.planes.code.kinds import floating
from fragmenta.engine.planes.code.probes import PlaneProbes
from fragmenta.engine.planes.code.routines import second_lanes
from fragmenta.engine.planes.code.shadow_registers import added
from fragmenta.engine.planes.code.warp_products import write_product
from fragmenta.engine.simt.accessing import element_type
from fragmenta.engine.simt.emitter import InMemory
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.program import Program
from fragmenta.ptx.checking.register_effects import registers
from fragmenta.ptx.families import RULES
from fragmenta.ptx.module import (
    Address,
    Immediate,
    Operand,
    Register,
    Vector,
    type_bits,
)
from fragmenta.ptx.opcodes.kinds import kind_of
from fragmenta.ptx.opcodes.table import TYPES
from fragmenta.values.expressions.code import routines
from fragmenta.values.expressions.code.elements import RegisterOperand
from fragmenta.values.expressions.code.names import ElementOperation, named, narrow
from fragmenta.values.expressions.code.notes import FIRST, KINDS, NOTES
from fragmenta.values.expressions.code.products import LOGGED

SPARE = 8
"""Registers for loads that are looked at."""


class ExpressionStep(PlaneStep):
    """The hashes of one instruction."""

    whole = True
    products = "expressions"
    """The name of the algebra of products."""
    logged = False
    """Whether operations are written into the log."""
    _doubted = ""
    """The lanes whose operands have hashes, while a shift is written."""

    def note(self, kind: str, lanes: str) -> None:
        """Count lanes that do something which a proof depends on."""
        place = FIRST + self.number * NOTES + KINDS.index(kind)
        call = self.writer.call
        call(routines.NOTED, self.table, f"i64 {place}", f"i32 {lanes}")

    def _noted(self, kind: str, named: list[Register]) -> None:
        """Note the lanes in which registers have hashes."""
        word = "0"
        for each in named:
            found = self.lanes_with(each)
            word = self.writer.value(f"or i32 {word}, {found}")
        if word != "0":
            self.note(kind, self.writer.value(f"and i32 {word}, {self.writer.lanes()}"))

    def write(self) -> None:
        """Note addresses that are made of data, then go on."""
        given = self.instruction.operands
        addresses = [each for each in given if isinstance(each, Address)]
        named = [e for e in dict.fromkeys(registers(addresses)) if self.has(e)]
        if named:
            self._noted("address", named)
        rule = RULES.get(self.instruction.opcode, "vote")
        if rule == "vote" and not of_lanes(self.instruction):
            others = [each for each in self.reads if each not in named]
            self._noted("lost", others)  # such as ``match`` or ``redux``
        super().write()

    def _float(self) -> None:
        if self.compares or not self.writes:
            self._noted("compared", self.reads)
            if self.writes:
                self.compute()
        else:
            self.compute()

    def lost(self) -> None:
        """Whole numbers that are computed from data have hashes, too."""
        if self.writes:
            self.compute()
        elif self.compares:
            self._noted("compared", self.reads)
        else:
            self._noted("lost", self.reads)

    # ── operations ──────────────────────────────────────────────────────────

    def compute(self) -> None:
        """Hash an operation; what has no form here is noted as lost."""
        made = named(self.instruction)
        goal, *operands = self.instruction.operands
        if (
            not isinstance(goal, Register)
            or not self.has(goal)
            or not all(isinstance(e, Register | Immediate) for e in operands)
        ):
            self._noted("lost", self.reads)
            self.clear()
            return
        kinds = [each for each in self.instruction.qualifiers if each in TYPES]
        places = [
            self.writer.source(e, kinds[-1] if kinds else "b32") for e in operands
        ]
        to = self.second(goal)
        bits = {each.bits for each in places}
        if to.bits > 64 or not bits <= {8, 16, 32, 64} or any(map(narrow, kinds)):
            self._noted("lost", self.reads)
            self.clear()
            return
        sources = tuple(
            self._held(made, number, operand, place)
            for number, (operand, place) in enumerate(
                zip(operands, places, strict=True)
            )
        )
        own = made.goal if to.bits % made.goal == 0 else to.bits
        self._call(made, RegisterOperand(to.bits, own), to, operands, places, sources)

    def _call(
        self,
        made: ElementOperation,
        goal: RegisterOperand,
        to: InMemory,
        operands: list[Operand],
        places: list[InMemory],
        sources: tuple[RegisterOperand, ...],
    ) -> None:
        pointers = [f"ptr {self.writer.address(to)}"]
        for operand, place, held in zip(operands, places, sources, strict=True):
            pointers.append(f"ptr {self.writer.address(place)}")
            if held.followed:
                pointers.append(self.pointer(operand))
        if self.logged:
            pointers += [self.table, f"i64 {self.number}"]
        routine = routines.computed(made, goal, sources, self.logged)
        self.writer.call(routine, *pointers, self.all_lanes)

    def _held(
        self, made: ElementOperation, number: int, operand: Operand, at: InMemory
    ) -> RegisterOperand:
        followed = isinstance(operand, Register) and self.has(operand)
        bits = made.sources if at.bits % made.sources == 0 else at.bits
        return RegisterOperand(at.bits, bits, followed, made.negated == number)

    # ── bits of floats ──────────────────────────────────────────────────────

    def _lanes_of_reads(self) -> str:
        """The lanes in which any operand has a hash, before the instruction."""
        word = "0"
        for each in self.reads:
            word = self.writer.value(f"or i32 {word}, {self.lanes_with(each)}")
        return word

    def _shift(self) -> None:
        """What is no whole number of halves ends an expression."""
        self._doubted = self._lanes_of_reads()
        super()._shift()
        self._doubted = ""

    def clear_lanes(self, register: Register, lanes: str) -> None:
        """Some lanes of a register lose their hashes; in a shift, that is noted."""
        if self._doubted:
            self.note("lost", self.writer.value(f"and i32 {lanes}, {self._doubted}"))
        super().clear_lanes(register, lanes)

    def _bitwise(self) -> None:
        """Halves that pass as a whole are moved; where none does, that is noted."""
        held = self._lanes_of_reads()
        super()._bitwise()
        after = "0"
        for each in self.writes:
            after = self.writer.value(f"or i32 {after}, {self.lanes_with(each)}")
        gone = self.writer.value(f"xor i32 {after}, -1")
        gone = self.writer.value(f"and i32 {gone}, {held}")
        self.note("lost", self.writer.value(f"and i32 {gone}, {self.writer.lanes()}"))

    # ── memory ──────────────────────────────────────────────────────────────

    def load(self) -> None:
        """Data that is loaded as something else is noted."""
        super().load()
        if not self.writes and not from_parameter(
            self.instruction, self.writer.unit.function
        ):
            self._unfollowed()

    def _unfollowed(self) -> None:
        """Note whether a register that is not followed gets data."""
        assert isinstance(self.probes, ExpressionProbes)
        goal, address, *rest = self.instruction.operands
        items = goal.items if isinstance(goal, Vector) else (goal,)
        bits = max(type_bits(element_type(self.instruction)), 8)
        spare = self.probes.spare[self.writer.unit.function.name].get(bits, [])
        if len(items) > len(spare) or is_named(self.instruction):
            return
        goals = tuple(spare[: len(items)])
        to = Vector(goals) if isinstance(goal, Vector) else goals[0]
        twin = replace(self.instruction, operands=(to, address, *rest), guard=None)
        self.execute(twin, 0)
        word = "0"
        for each in goals:
            at = self.writer.register(each)
            made = second_lanes(at.bits, 1)
            place = f"ptr {self.writer.address(at)}"
            found = self.writer.call(made, place, returns="i32")
            word = self.writer.value(f"or i32 {word}, {found}")
        self.note("lost", self.writer.value(f"and i32 {word}, {self.writer.lanes()}"))

    # ── products, atomic operations ─────────────────────────────────────────

    def product(self) -> None:
        """The hashes of D are made after the instruction."""

    def after(self) -> None:
        """Hash products of matrices."""
        kind = kind_of(self.instruction.mnemonic).word
        if self.instruction.of_fragments and kind == "multiplies":
            self.if_any(self._multiplied)

    def _multiplied(self) -> None:
        def second(register: Register) -> InMemory | None:
            return self.second(register) if self.has(register) else None

        write_product(
            self.writer,
            self.instruction,
            self.products,
            self.planes,
            second,
            self.table.removeprefix("ptr "),
            self.number,
        )

    def atomic(self) -> None:
        """Data that is exchanged depends on the order of arrival."""
        words = self.instruction.qualifiers
        if "async" not in words and {"exch", "cas"} & set(words):
            self._noted("atomic", self.reads)
        super().atomic()

    def reduction(self) -> None:
        """Additions in the order of arrival are noted; others have no hash."""
        if floating(self.instruction):
            self.note("atomic", self.writer.lanes())
        else:
            self._noted("lost", self.reads)
        super().reduction()


class LoggedStep(ExpressionStep):
    """The same, and everything is written into the log."""

    products = LOGGED
    logged = True


class ExpressionProbes(PlaneProbes):
    """The instrument of expressions: it has registers for loads that are looked at."""

    def begin(self, program: Program) -> None:
        """Place the shadows of all registers, and spare registers."""
        super().begin(program)
        place = program.warp_bytes
        size = 8 * LANES
        program.warp_bytes += SPARE * size
        self.spare: dict[str, dict[int, list[Register]]] = {}
        for name, unit in program.units.items():
            self.spare[name] = {
                bits: [
                    added(unit, Register(f"%spare{n}", f"b{bits}", 0), place + n * size)
                    for n in range(SPARE)
                ]
                for bits in (8, 16, 32, 64)
            }
