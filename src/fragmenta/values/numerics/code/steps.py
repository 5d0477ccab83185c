"""What numerics does beside each instruction: its steps.

A step finds out which floats an instruction has, and calls the routine for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, NamedTuple

from fragmenta.engine.planes.code.flow import DOTS
from fragmenta.engine.planes.code.probes import PlaneProbes
from fragmenta.engine.simt.accessing import element_type, space_of
from fragmenta.engine.simt.atomics import Atomic, computing
from fragmenta.engine.simt.emitter import MEMORY, SHADOWS, InMemory, address_of
from fragmenta.engine.simt.events import if_some, notify
from fragmenta.engine.simt.program import Program
from fragmenta.ptx.checking.mnemonics import reading
from fragmenta.ptx.families import REDUCING
from fragmenta.ptx.module import (
    Address,
    Immediate,
    Instruction,
    Negative,
    Operand,
    Pair,
    Register,
    RegisterPart,
    Sink,
    Vector,
    type_bits,
)
from fragmenta.ptx.opcodes.table import TABLE, Match, Slot
from fragmenta.values.numerics.code.atomics import AtomicForm, atomic, scratch_bytes
from fragmenta.values.numerics.code.bits import bit_routines
from fragmenta.values.numerics.code.constants import rounds_by_magic, upper_words
from fragmenta.values.numerics.code.counting import OPERATIONS
from fragmenta.values.numerics.code.elements import KINDS, WHOLE_KINDS, PackedFloats
from fragmenta.values.numerics.code.exact import (
    CLIPPED,
    HALF,
    MEANINGS,
    QUANTISED,
    UNROUNDED,
    WRAPPED,
)
from fragmenta.values.numerics.code.notes import NOTE
from fragmenta.values.numerics.code.product_steps import ProductStep
from fragmenta.values.numerics.code.provisional import PendingDecision, provisional
from fragmenta.values.numerics.code.quantising import quantised
from fragmenta.values.numerics.code.routines import (
    COMPARES,
    DECIDES,
    MAGIC,
    ROUNDS,
    Form,
    Routines,
    RoutineSlot,
    routines_of,
)

BORN = "numerics-birth"
"""The event of a birth, if it stops the launch."""


class NumericsProbes(PlaneProbes):
    """The instrument, with room for what atomic operations compute."""

    scratch = 0
    """Where a warp has that room."""

    def begin(self, program: Program) -> None:
        """Place the shadows of all registers, and the room."""
        super().begin(program)
        self.scratch = program.warp_bytes
        program.warp_bytes += scratch_bytes(self.planes)


class _Operand(NamedTuple):
    """An operand, where it is, and where its second value is."""

    place: RoutineSlot
    at: InMemory | None
    twin: InMemory | None


class NumericsStep(ProductStep):
    """Computes nearly exact values beside those of the hardware."""

    stops: ClassVar[bool] = False
    """Whether a birth stops the launch."""
    cuts = False
    """Whether the result has the whole register, also if its type is a byte."""
    wraps = False
    """Whether it keeps a sum of bytes in one, which is a number."""
    probes: NumericsProbes

    def write(self) -> None:
        """Also what was decided before, for threads that go on with it."""
        function = self.writer.unit.function
        for each in provisional(function).at.get(self.writer.index, ()):
            self._keeps(function.instructions[each.decision], each)
        super().write()

    def _keeps(self, decision: Instruction, kept: PendingDecision) -> None:
        """Call the routine of a decision at a branch, for threads that keep it."""
        writer, place, taken = self.writer, self.writer.index, self.writer.mask
        if not kept.taken:
            others = writer.value(f"xor i32 {taken}, -1")
            writer.mask = writer.value(f"and i32 {others}, {writer.active()}")
        writer.index = kept.decision
        try:
            type(self)(self.probes, writer, decision)._beside(DECIDES)
        finally:
            writer.index, writer.mask = place, taken

    def compute(self) -> None:
        """A float instruction: its exact result, and what it lost.

        Of one that is not known, as much is followed as of an operation on bits.
        """
        if not self._beside(self._way()) and not self._bits():
            self.clear()

    def _float(self) -> None:
        """A rounding that quantises keeps the exact value; others are meant."""
        if not self._quantises() or not self._beside(ROUNDS):
            super()._float()

    def _quantises(self) -> bool:
        found = quantised(self.writer.unit.function)
        return id(self.instruction) in found.roundings

    def decides(self) -> None:
        """A comparison, or a conversion to an integer."""
        function = self.writer.unit.function
        if id(self.instruction) in quantised(function).narrowed:
            return
        if self.writer.index in provisional(function).decisions:
            return  # what a branch throws away does not count
        if not {"num", "nan"} & set(self.instruction.qualifiers):
            decides = self.instruction.is_conversion
            self._beside(DECIDES if decides else COMPARES)

    def lost(self) -> None:
        """Bits of floats are changed: a new sign or exponent keeps the second value.

        Integers that were quantised are computed with.
        """
        if self._counts_whole() and self._beside(ROUNDS):
            return
        if not self._bits():
            self.clear()

    def _moved(self) -> None:
        """An integer that is cut to fewer bits still stands for the whole one."""
        given, function = self.instruction, self.writer.unit.function
        known = quantised(function)
        cut = known.cut.get(id(given))
        goal = given.operands[0]
        if cut is None or not (isinstance(goal, Register) and self.has(goal)):
            super()._moved()
            return
        both = given.operands[:2]  # a mask is written as a conversion
        self.instruction = replace(given, opcode="cvt", qualifiers=cut, operands=both)
        self.cuts, self.wraps = True, id(given) in known.wraps
        done = self._beside(ROUNDS)
        self.instruction, self.cuts, self.wraps = given, False, False
        if not done:
            super()._moved()

    def _counts_whole(self) -> bool:
        """Whether it computes with integers that stand for numbers."""
        goal = self.instruction.operands[0]
        known = quantised(self.writer.unit.function).integers
        return (
            self.instruction.opcode in OPERATIONS
            and isinstance(goal, Register)
            and goal.number in known
            and self.has(goal)
        )

    def _kind(self, operand: Operand, kind: str) -> PackedFloats | None:
        """The floats of an operand, or the integers that stand for numbers."""
        if kind in WHOLE_KINDS and isinstance(operand, Register):
            known = quantised(self.writer.unit.function)
            found = WHOLE_KINDS[kind] if operand.number in known.integers else None
            short = known.short.get(operand.number)
            return found if not (found and short) else found._replace(format=short)
        return KINDS.get(kind)

    def _packed(self, slot: Slot, match: Match) -> PackedFloats | None:
        """The integers of an operand of a product of packed integers."""
        if match.syntax.opcode not in DOTS:
            return None
        if slot.name in "cd":
            return WHOLE_KINDS["s32"]
        sign = match.qualifiers[f"{slot.name}type"][0]
        if match.syntax.opcode == "dp2a" and slot.name == "a":
            return PackedFloats(f"{sign}16", 2, 16)
        return PackedFloats(f"{sign}8", 4, 8)

    def reduction(self) -> None:
        """An atomic operation: the exact value in memory changes, too."""
        if not self._atomic():
            super().reduction()

    def _way(self) -> str:
        given = self.instruction
        if given.is_conversion and _integral(given):
            return ROUNDS if self._quantises() else DECIDES
        if rounds_by_magic(self.writer.unit.function, given):
            return MAGIC
        return ROUNDS

    # ── routines ────────────────────────────────────────────────────────────

    def _beside(self, way: str) -> bool:
        """Call the routine beside the instruction; false if there is none."""
        match = _match(self.instruction)
        if match is None or match.syntax.emit is None:
            return False
        opcode = match.syntax.opcode
        if way in (ROUNDS, MAGIC) and opcode not in MEANINGS and opcode != "_factors":
            return False
        gathered = self._gathered(match)
        if gathered is None:
            return False
        results, operands, extra = gathered
        known, number = quantised(self.writer.unit.function), id(self.instruction)
        if number in known.bounds:
            extra.append((QUANTISED, str(known.bounds[number])))
        if number in known.spans:
            extra.append((CLIPPED, str(known.spans[number])))
        if number in known.unrounded:
            extra.append((UNROUNDED, known.unrounded[number]))
        if self.wraps:
            extra.append((WRAPPED, "u8"))
        if number in known.halves:
            extra.append((HALF, known.halves[number]))
        kinds = [each.place.kind for each in results]
        if way in (ROUNDS, MAGIC) and not all(kinds):
            return False
        form = Form(
            self.instruction.mnemonic,
            match,
            tuple(extra),
            tuple(each.place for each in results),
            tuple(None if each is None else each.place for each in operands),
            _sources(way, results, operands),
            way,
        )
        self._call(routines_of(form), results, operands)
        return True

    def _call(
        self,
        made: Routines,
        results: Sequence[_Operand],
        operands: Sequence[_Operand | None],
    ) -> None:
        given = [each for each in operands if each is not None]
        places = [each.twin for each in results if each.twin is not None]
        places += [each.at for each in given if each.at is not None]
        places += [each.twin for each in given if each.twin is not None]
        writer = self.writer
        arguments = [
            "ptr %warp",
            "ptr %block",
            self.table,
            f"i32 {self.number}",
            *(f"i64 {writer.from_warp(at)}" for at in places),
        ]
        if writer.mask:
            arguments.append(f"i32 {writer.mask}")
        routine = made.masked if writer.mask else made.full
        writer.routines[NOTE.name] = NOTE
        self._stop(writer.call(routine, *arguments, returns="i32"))

    def _stop(self, born: str) -> None:
        """Stop where something was born, if that is asked for."""
        if self.stops:
            with if_some(self.writer, born):
                notify(self.writer, [BORN, str(self.number)], [], born)

    def _stop_if(self, made: str, bit: int) -> None:
        """The same for a product of a warp: all its lanes take part."""
        if self.stops:
            writer = self.writer
            some = writer.value(f"and i32 {made}, {bit}")
            found = writer.value(f"icmp ne i32 {some}, 0")
            self._stop(writer.value(f"select i1 {found}, i32 {writer.lanes()}, i32 0"))

    # ── operands ────────────────────────────────────────────────────────────

    def _gathered(
        self, match: Match
    ) -> tuple[list[_Operand], list[_Operand | None], list[tuple[str, str]]] | None:
        """The operands of an instruction, as its line of the table has them."""
        results: list[_Operand] = []
        operands: list[_Operand | None] = []
        extra: list[tuple[str, str]] = []
        rest = list(self.instruction.operands)
        for slot in match.syntax.operands:
            if slot.hidden:
                return None
            if not rest:
                operands.append(None)
                continue
            operand = rest.pop(0)
            kind = match.syntax.type_of(slot, match.qualifiers)
            if slot.type == "imm":
                if not isinstance(operand, Immediate):
                    return None
                extra.append((slot.name, str(operand.value)))
                continue
            operand = _marked(slot, operand, extra)
            if slot.result:
                both = (
                    (operand.first, operand.second)
                    if isinstance(operand, Pair)
                    else (operand,)
                )
                whole = self._packed(slot, match)
                results += [self._result(each, kind, match, whole) for each in both]
            else:
                items = operand.items if isinstance(operand, Vector) else (operand,)
                whole = self._packed(slot, match)
                operands += [self._source(each, kind, whole) for each in items]
        return results, operands, extra

    def _result(
        self,
        operand: Operand,
        kind: str,
        match: Match,
        whole: PackedFloats | None = None,
    ) -> _Operand:
        tf32 = bool(match.qualifiers.get("tf32"))
        floats = whole or (KINDS["tf32"] if tf32 else self._kind(operand, kind))
        if kind == "pred":
            return _Operand(RoutineSlot(1, 1), None, None)
        bits = type_bits(kind)
        twin = self._twin(operand)
        width = bits if twin is None else twin.bits
        if self.cuts and floats is not None and floats.whole:
            floats = floats._replace(bits=max(width, bits))
        planes = self.planes if twin is not None and floats is not None else 0
        place = RoutineSlot(width, bits, floats, planes, kind.startswith("s"))
        return _Operand(place, None, twin if planes else None)

    def _source(
        self, operand: Operand, kind: str, whole: PackedFloats | None = None
    ) -> _Operand:
        at = self.writer.source(operand, kind)
        bits, floats = type_bits(kind), whole or self._kind(operand, kind)
        twin = self._twin(operand) if floats is not None else None
        planes = 0 if twin is None else self.planes
        place = RoutineSlot(at.bits, bits, floats, planes, kind.startswith("s"))
        return _Operand(place, at, twin)

    def _twin(self, operand: Operand) -> InMemory | None:
        register = operand.of if isinstance(operand, RegisterPart) else operand
        if isinstance(register, Register) and self.has(register):
            return self.second(register)
        return None

    # ── atomic operations ───────────────────────────────────────────────────

    def _atomic(self) -> bool:
        """Call the routine of an atomic operation; false if there is none."""
        given, writer = self.instruction, self.writer
        operation = next((e for e in given.qualifiers if e in REDUCING), "")
        if not given.is_update or not operation:
            return False
        operands = list(given.operands)
        goal = operands.pop(0) if given.is_fetch else Sink()
        address, source = operands[:2]
        kind = element_type(given)
        if kind not in KINDS or not isinstance(address, Address):
            return False
        at, offset = address_of(writer, address)
        space = space_of(given)
        name = computing(Atomic(operation, kind, space, at.bits, 1))
        match = TABLE.find(name, 3)
        if match is None:
            return False
        items = source.items if isinstance(source, Vector) else (source,)
        goals = goal.items if isinstance(goal, Vector) else (goal,) * len(items)
        for index, (one, result) in enumerate(zip(items, goals, strict=True)):
            step = offset + index * type_bits(kind) // 8
            self._element(match, name, kind, (one, result), (at, step, space))
        return True

    def _element(
        self,
        match: Match,
        name: str,
        kind: str,
        operands: tuple[Operand, Operand],
        where: tuple[InMemory, int, str],
    ) -> None:
        """One element of an atomic operation."""
        writer, bits = self.writer, type_bits(kind)
        source, goal = operands
        value, old = self._source(source, kind), self._twin(goal)
        place = RoutineSlot(bits, bits, KINDS[kind], self.planes)
        count = KINDS[kind].many
        form = Form(
            name,
            match,
            (),
            (place,),
            (place, value.place._replace(register=bits)),
            tuple(((0, i), (1, i)) for i in range(count)),
        )
        at, offset, space = where
        followed = value.twin is not None
        returns = old is not None
        made = AtomicForm(form, space, at.bits, self.planes, followed, returns)
        routine, inner = atomic(made)
        writer.routines |= {each.name: each for each in (inner, NOTE)}
        assert value.at is not None
        places = [str(self.probes.scratch), writer.from_warp(value.at)]
        places += [str(each.offset) for each in (value.twin, old) if each is not None]
        memories = [each for plane in range(self.planes) for each in SHADOWS[plane]]
        born = writer.call(
            routine,
            *MEMORY,
            self.table,
            *memories,
            f"ptr {writer.address(at)}",
            f"i64 {offset}",
            f"i32 {writer.lanes()}",
            f"i32 {self.number}",
            *(f"i64 {each}" for each in places),
            returns="i32",
        )
        self._stop(born)

    # ── bits ────────────────────────────────────────────────────────────────

    def _bits(self) -> bool:
        """Call the routine for an operation on the bits of floats."""
        match = _match(self.instruction)
        if match is None or match.syntax.emit is None:
            return False
        gathered = self._gathered_bits(match)
        if gathered is None:
            return False
        results, operands, extra = gathered
        if len(results) != 1:
            return False
        uppers = upper_words(self.writer.unit.function)
        wide = any(each.number in uppers for each in self.reads)
        form = Form(
            self.instruction.mnemonic,
            match,
            tuple(extra),
            tuple(each.place for each in results),
            tuple(None if each is None else each.place for each in operands),
            (),
            "parts" if wide else "bits",
        )
        self._call(bit_routines(form), results, operands)
        return True

    def _gathered_bits(
        self, match: Match
    ) -> tuple[list[_Operand], list[_Operand | None], list[tuple[str, str]]] | None:
        """The same for operands that are whole numbers with second values of floats."""
        found = self._gathered(match)
        if found is None:
            return None
        results, operands, extra = found
        written = [e for e in self.instruction.operands if not isinstance(e, Immediate)]
        if any(isinstance(each, Vector | Pair) for each in written):
            return None
        goal = self._twin(self.instruction.operands[0])
        if any(each.place.bits not in (16, 32, 64) for each in results):
            return None
        if goal is not None:
            one = results[0]
            results = [_Operand(one.place._replace(planes=self.planes), None, goal)]
        sources = list(self.instruction.operands[1:])
        kept: list[_Operand | None] = []
        for each in operands:
            operand = sources.pop(0) if sources else None
            while isinstance(operand, Immediate) and each is None and sources:
                operand = sources.pop(0)
            twin = None if operand is None else self._twin(operand)
            if each is None or twin is None:
                kept.append(each)
            else:
                place = each.place._replace(planes=self.planes)
                kept.append(_Operand(place, each.at, twin))
        return results, kept, extra


class StoppingStep(NumericsStep):
    """The same, and a birth stops the launch."""

    stops = True


def _integral(instruction: Instruction) -> bool:
    """Whether a conversion rounds to an integer."""
    return bool({"rni", "rzi", "rmi", "rpi"} & set(instruction.qualifiers))


def _match(instruction: Instruction) -> Match | None:
    """The line of the table for an instruction."""
    count = len(instruction.operands)
    found = TABLE.find(instruction.mnemonic, count)
    if found is None:  # ptxas takes modifiers in any order
        every = reading(instruction.mnemonic).matches
        found = next((each for each in every if each.syntax.takes(count)), None)
    return found


def _marked(slot: Slot, operand: Operand, extra: list[tuple[str, str]]) -> Operand:
    """An operand without a sign or a selector, which become qualifiers."""
    if slot.negatable:
        extra.append((f"{slot.name}neg", "-" * isinstance(operand, Negative)))
        operand = operand.of if isinstance(operand, Negative) else operand
    if slot.selector:
        extra.append(
            (slot.selector, operand.which if isinstance(operand, RegisterPart) else "")
        )
    return operand


def _sources(
    way: str, results: Sequence[_Operand], operands: Sequence[_Operand | None]
) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Where each float of the results comes from."""
    kinds = [each.place.kind for each in results]
    if any(each is not None and each.whole for each in kinds) and way == ROUNDS:
        every = [(i, each.place.kind) for i, each in enumerate(operands) if each]
        return (
            tuple((i, j) for i, kind in every for j in range(kind.many if kind else 1)),
        )
    floats = [
        (index, each.place.kind)
        for index, each in enumerate(operands)
        if each is not None and each.place.kind is not None
    ]
    whole = [i for i, e in enumerate(operands) if e is not None and not e.place.kind]
    if way == COMPARES:
        count = floats[0][1].many if floats and floats[0][1] else 0
        return tuple(tuple((i, j) for i, _ in floats) for j in range(count))
    found: list[tuple[tuple[int, int], ...]] = []
    for each in results:
        kind = each.place.kind
        count = 1 if kind is None else kind.many
        found += [_of_float(place, count, floats, whole) for place in range(count)]
    return tuple(found)


def _of_float(
    place: int,
    count: int,
    floats: Sequence[tuple[int, PackedFloats | None]],
    whole: Sequence[int],
) -> tuple[tuple[int, int], ...]:
    if not floats:  # from an integer
        return ((whole[0], 0),)
    single = all(kind is not None and kind.many == 1 for _, kind in floats)
    if count > 1 and single:  # packed: the first operand on top
        return ((floats[count - 1 - place][0], 0),)
    return tuple((index, place) for index, _ in floats)
