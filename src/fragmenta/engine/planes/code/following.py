"""What is done with second values beside each instruction.

Before an instruction runs, it is done to planes what it will do to values: a move moves
them, a load loads them from the planes of memory.  Where the hardware computes, an
algebra has its turn: a subclass of :class:`PlaneStep` with methods of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from fragmenta.engine.planes.code import accesses, routines
from fragmenta.engine.planes.code.accesses import AccessRegister
from fragmenta.engine.planes.code.flow import from_parameter, of_lanes
from fragmenta.engine.planes.code.kinds import (
    floating,
    from_float,
    transparent,
    truth_table,
)
from fragmenta.engine.planes.code.plane_instruction import ZERO, PlaneInstruction
from fragmenta.engine.simt.accessing import (
    access_of,
    element_type,
    param_space,
    space_of,
)
from fragmenta.engine.simt.emitter import Writer, address_of
from fragmenta.engine.simt.lane_copies import call_copy, is_lane_copy, lane_copy
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.library import Routine
from fragmenta.engine.simt.synchronising import MODES, members
from fragmenta.errors import Error
from fragmenta.ptx.checking.register_effects import registers
from fragmenta.ptx.families import PERMUTATIONS, RULES
from fragmenta.ptx.module import (
    Address,
    Instruction,
    Not,
    Operand,
    Pair,
    Register,
    Sink,
    Symbol,
    Vector,
    type_bits,
)
from fragmenta.ptx.opcodes.kinds import kind_of

if TYPE_CHECKING:
    from fragmenta.engine.planes.code.probes import PlaneProbes


class PlaneStep(PlaneInstruction):
    """What is done beside one instruction; an algebra overrides what computes.

    The methods for algebras are :meth:`compute`, :meth:`product`, :meth:`reduction`,
    :meth:`decides`, :meth:`given`, :meth:`lost` and :meth:`after`.  Each writes the
    planes of :attr:`writes`; here, results have no second value.  All but ``after`` are
    called before the instruction runs, so that its operands are as they are.
    """

    whole: ClassVar[bool] = False
    """Whether whole numbers from memory are followed until they become floats."""

    def __init__(
        self, probes: PlaneProbes, writer: Writer, instruction: Instruction
    ) -> None:
        self.probes, self.planes, self.granule = probes, probes.planes, probes.granule
        self.twins = probes.shadow_registers_of(writer.unit)
        super().__init__(writer, instruction, self.twins.of)

    # ── what an algebra overrides ───────────────────────────────────────────

    def compute(self) -> None:
        """An instruction that computes with floats in each lane."""
        self.clear()

    def product(self) -> None:
        """A product of matrices: ``mma`` or ``wmma.mma``.

        All lanes take part.  Those of ``wgmma`` and ``tcgen05`` are the algebra's
        :meth:`~fragmenta.engine.planes.algebra.Algebra.product`.
        """
        self.clear()

    def reduction(self) -> None:
        """``redux``, or an ``atom`` or ``red`` that computes.

        An atomic operation leaves no second value in memory here.
        """
        if self.instruction.is_update:
            self.forget()
        self.clear()

    def decides(self) -> None:
        """A comparison of floats, or a conversion to a whole number."""

    def given(self) -> None:
        """After planes were loaded from global memory, before the value is.

        Also after those of a generic address, which may be one of shared memory.
        """

    def lost(self) -> None:
        """Whole numbers are computed from a register that is followed."""
        self.clear()

    def after(self) -> None:
        """After the instruction has run; not called if it jumps."""

    # ── registers ───────────────────────────────────────────────────────────

    def absent(self, register: Register) -> Operand:
        """A register that always holds zeros."""
        bits = self.writer.register(register).bits
        return self.twins.nothing.get(bits, ZERO)

    def pointer(self, operand: Operand) -> str:
        """A pointer to plane 0 of an operand, of zeros if it has no planes."""
        if isinstance(operand, Register) and self.has(operand):
            return f"ptr {self.writer.address(self.second(operand))}"
        return f"ptr {self.writer.at('%warp', self.probes.zeros)}"

    @property
    def table(self) -> str:
        """The pointer to the algebra's table, as an argument of a routine."""
        return "ptr %planes_table"

    @property
    def number(self) -> int:
        """A number for the instruction, by which the algebra knows it."""
        return self.probes.number_of(self.writer)

    def clear(self) -> None:
        """No result has a second value, in the lanes that take part."""
        for each in self.writes:
            self.clear_lanes(each, self.writer.mask or "-1")

    def clear_lanes(self, register: Register, lanes: str) -> None:
        """Some lanes of a register have no second value."""
        at = self.second(register)
        made = routines.clear(at.bits, self.planes)
        self.writer.call(made, f"ptr {self.writer.address(at)}", f"i32 {lanes}")

    def lanes_with(self, register: Register) -> str:
        """The lanes of a register that have a second value, as a word."""
        at = self.second(register)
        made = routines.second_lanes(at.bits, self.planes)
        return self.writer.call(made, f"ptr {self.writer.address(at)}", returns="i32")

    def in_planes(self, results: int = 1, controls: tuple[int, ...] = ()) -> None:
        """Do in every plane what the instruction does."""
        for plane in range(self.planes):
            self.execute(self.shadowed(plane, results, controls), plane)

    # ── one instruction ─────────────────────────────────────────────────────

    def write(self) -> None:
        """Write what is done before the instruction."""
        rule = RULES.get(self.instruction.opcode)
        if rule is not None:
            getattr(self, rule)()
        elif not of_lanes(self.instruction):
            self.clear()
        elif floating(self.instruction):
            self._float()
        elif self.writes:
            self._moved()
        elif self.reads and self._counts():
            self.lost()

    def _counts(self) -> bool:
        """Whether a computation without a followed result makes numbers of floats."""
        return self.probes.counts_losses and not self._addresses_only()

    def _addresses_only(self) -> bool:
        given = self.instruction.operands
        named = registers(each for each in given if isinstance(each, Address))
        return set(named) >= set(self.reads)

    @property
    def compares(self) -> bool:
        """Whether numbers become truth values."""
        return kind_of(self.instruction.mnemonic).word == "compares"

    def _float(self) -> None:
        """Floats are compared, or computed."""
        if self.compares or from_float(self.instruction):
            self.decides()
            self.clear()
        else:
            self.compute()

    def _moved(self) -> None:
        """Whole numbers are moved, or computed."""
        opcode = self.instruction.opcode
        if not self.reads:
            self.clear()
        elif not transparent(self.instruction, self.granule):
            self.lost()
        elif self.instruction.is_move:
            self.move()
        elif opcode == "selp":
            self.choose()
        elif kind_of(self.instruction.mnemonic).word == "bitwise":
            self._bitwise()
        else:
            self._shift()

    def move(self) -> None:
        """``mov``, also of vectors."""
        goal, source = self.instruction.operands
        bits = self.second(self.writes[0]).bits
        if isinstance(source, Vector) and isinstance(goal, Register):
            parts = self._parts(source.items, goal)
            if parts is not None:
                made = routines.packed(bits, parts, self.planes)
                self._pack(made, goal, source.items, parts)
                return
        if isinstance(goal, Vector) and isinstance(source, Register):
            parts = self._parts(goal.items, source)
            if parts is not None:
                own = self.second(source).bits
                made = routines.unpacked(own, parts, self.planes)
                self._pack(made, source, goal.items, parts)
                return
        if not (isinstance(goal, Register) and self._same_width(source, bits)):
            self.in_planes()
            return
        made = routines.move(bits, self.planes)
        both = (self.pointer(each) for each in (goal, source))
        self.writer.call(made, *both, self.all_lanes)

    def _parts(
        self, items: tuple[Operand, ...], whole: Register
    ) -> tuple[bool, ...] | None:
        """Which parts of a register are followed; None if they do not fit into it."""
        bits = self.writer.register(whole).bits
        named = [each for each in items if isinstance(each, Register)]
        widths = {self.writer.register(each).bits for each in named}
        if bits > 64 or widths != {bits // len(items)} or not self.has(whole):
            return None
        return tuple(isinstance(e, Register) and self.has(e) for e in items)

    def _pack(
        self,
        made: Routine,
        whole: Register,
        items: tuple[Operand, ...],
        parts: tuple[bool, ...],
    ) -> None:
        both = zip(items, parts, strict=True)
        given = [self.pointer(each) for each, there in both if there]
        self.writer.call(made, self.pointer(whole), *given, self.all_lanes)

    def choose(self) -> None:
        """``selp``: the planes of what was chosen."""
        goal, first, second, choice = self.instruction.operands
        assert isinstance(goal, Register)
        assert isinstance(choice, Register | Not)
        bits = self.second(goal).bits
        sources = [self._same_width(each, bits) for each in (first, second)]
        both = zip((first, second), sources, strict=True)
        given = [self.pointer(each) for each, there in both if there]
        made = routines.chosen(bits, self.planes, *sources)
        word = f"i32 {self.writer.predicate(choice)}"
        self.writer.call(made, self.pointer(goal), *given, word, self.all_lanes)

    def _same_width(self, operand: Operand, bits: int) -> bool:
        """Whether an operand is a followed register of so many bits."""
        if not isinstance(operand, Register) or not self.has(operand):
            return False
        return self.second(operand).bits == bits

    def _shift(self) -> None:
        """Bits go where controls say: by a number of granules, or all is lost."""
        opcode, given = self.instruction.opcode, self.instruction.operands
        controls = kind_of(self.instruction.mnemonic).controls
        bad = "0"
        for each in registers(given[index] for index in controls):
            at = self.writer.register(each)
            made = (
                routines.unpermuted(self.granule)
                if opcode in PERMUTATIONS
                else routines.misplaced(at.bits, self.granule)
            )
            place = f"ptr {self.writer.address(at)}"
            word = self.writer.call(made, place, returns="i32")
            bad = self.writer.value(f"or i32 {bad}, {word}")
        self.in_planes(controls=controls)
        if bad != "0":
            lanes = self.writer.value(f"and i32 {bad}, {self.writer.lanes()}")
            for each in self.writes:
                self.clear_lanes(each, lanes)

    def _bitwise(self) -> None:
        table, count = truth_table(self.instruction)
        given = self.instruction.operands[1 : 1 + count]
        kind = self.instruction.qualifiers[-1]
        bits = type_bits(kind)
        goal = self.second(self.writes[0])
        places = [self.writer.source(each, kind) for each in given]
        if {each.bits for each in (goal, *places)} != {bits}:
            self.lost()
            return
        followed = tuple(isinstance(e, Register) and self.has(e) for e in given)
        pointers = []
        for operand, place, there in zip(given, places, followed, strict=True):
            pointers.append(f"ptr {self.writer.address(place)}")
            if there:
                pointers.append(self.pointer(operand))
        made = routines.looked_up(bits, table, followed, self.planes, self.granule)
        base = f"ptr {self.writer.address(goal)}"
        self.writer.call(made, base, *pointers, self.all_lanes)

    # ── between lanes ───────────────────────────────────────────────────────

    def shuffle(self) -> None:
        """The planes of a lane come from the lane that its value comes from."""
        d, a, *rest = self.instruction.operands
        goal = d.first if isinstance(d, Pair) else d
        if not self.writes:
            return
        mode = next(w for w in self.instruction.qualifiers if w in MODES)
        given = (f"ptr {self.writer.pointer(each, 'b32')}" for each in rest[:2])
        both = (self.pointer(each) for each in (goal, a))
        who = members(self.writer, self.instruction)
        among = f"ptr {who.named}", f"i32 {who.apart}", f"i32 {self.writer.lanes()}"
        made = routines.shuffled(mode, self.planes)
        self.writer.call(made, *both, *given, *among)

    def multiply(self) -> None:
        """``mma`` and ``wmma``: products, or moves of their operands."""
        words = self.instruction.qualifiers
        if self.instruction.opcode == "wmma" and words[0] == "load":
            self.rows()
        elif self.instruction.opcode == "wmma" and words[0] == "store":
            self.stored_rows()
        else:
            self.if_any(self.product)

    def transpose(self) -> None:
        """``movmatrix``: all lanes take part."""
        if self.writes:
            self.if_any(self.in_planes)

    # ── memory ──────────────────────────────────────────────────────────────

    def load(self) -> None:
        """``ld``: from the planes of memory, into those of registers."""
        if not self.writes:
            return
        if from_parameter(self.instruction, self.writer.unit.function):
            self.clear()
            return
        goal, address = self.instruction.operands[:2]
        if not self._access(goal, address, stores=False):
            self.in_planes(controls=(1,))
        space = space_of(self.instruction)
        if space == "global" and "const" not in self.instruction.qualifiers:
            self.given()

    def store(self) -> None:
        """``st``: what is not followed clears the planes of memory."""
        words = self.instruction.qualifiers
        if "async" in words or "bulk" in words:
            return  # those are copies
        address, data = self.instruction.operands[:2]
        if not self._access(data, address, stores=True):
            self.in_planes(results=0, controls=(0,))

    def _access(self, data: Operand, address: Operand, *, stores: bool) -> bool:
        """Load or store in all planes at once; False for parameters by their name."""
        assert isinstance(address, Address)
        writer, kind = self.writer, element_type(self.instruction)
        space = param_space(writer, space_of(self.instruction), address)
        if space == "param" and isinstance(address.base, Symbol):
            return False
        items = data.items if isinstance(data, Vector) else (data,)
        registers_, held, places = [], [], []
        for each in items:
            own = writer.result(each, kind) if not stores else writer.source(each, kind)
            there = isinstance(each, Register) and self.has(each)
            size = own.bits // 8 * LANES
            for part in range(0, max(own.bits, 64), 64):  # b128 has two halves
                registers_.append(own._replace(bits=min(own.bits, 64)))
                held.append(AccessRegister(there, size))
                if isinstance(each, Register) and there:
                    second = self.second(each).moved(part // 8 * LANES, 0)
                    places.append(f"ptr {writer.address(second)}")
        at, offset = address_of(writer, address)
        what = access_of(space, kind, at.bits, registers_, not stores)
        with writer.in_plane(0):
            made = accesses.access(what, stores, tuple(held), self.planes)
            where = f"ptr {writer.address(at)}", f"i64 {offset}"
            site = f"i32 {writer.lanes()}", f"i32 {writer.site()}"
            writer.call(made, *writer.memory, *where, *site, *places, returns="i32")
        return True

    def forget(self) -> None:
        """No second value in memory where an atomic operation is about to write."""
        # After the address; a cache policy may follow.
        data = self.instruction.operands[1 + self.instruction.is_fetch]
        items = data.items if isinstance(data, Vector) else (data,)
        kind = type_bits(element_type(self.instruction))
        zero = self.twins.nothing[min(kind, 64)]
        count = len(items) * (kind // min(kind, 64))
        source = zero if count == 1 else Vector((zero,) * count)
        for plane in range(self.planes):
            self.execute(self._accessing(source, stores=True), plane)

    def _accessing(self, data: Operand, *, stores: bool) -> Instruction:
        """A load or a store where an atomic operation is."""
        given = self.instruction.operands
        address = next(each for each in given if isinstance(each, Address))
        bits = min(type_bits(element_type(self.instruction)), 64)
        words = [e for e in self.instruction.qualifiers if _names_space(e)]
        if isinstance(data, Vector):
            words.append(f"v{len(data.items)}")
        return replace(
            self.instruction,
            opcode="st" if stores else "ld",
            qualifiers=(*words, f"b{bits}"),
            operands=(address, data) if stores else (data, address),
            guard=None,
        )

    def atomic(self) -> None:
        """``atom`` and ``red``: exchanges move, others compute."""
        words = self.instruction.qualifiers
        if "async" in words:
            return  # a copy
        if "exch" in words:
            self.in_planes(controls=(1,))
        elif self._swaps():
            self._load_old()
        elif "cas" in words:
            self.forget()
            self.clear()
        else:
            self.reduction()

    def _swaps(self) -> bool:
        """Whether it is a ``cas`` after which one can see which lanes stored."""
        if not self.instruction.is_fetch:
            return False
        bits = type_bits(element_type(self.instruction))
        goal, _, *sources = self.instruction.operands[:4]
        free = isinstance(goal, Register) and goal not in registers(sources)
        return "cas" in self.instruction.qualifiers and free and bits <= 64

    def _load_old(self) -> None:
        """The planes of what memory holds."""
        goal = self.instruction.operands[0]
        for plane in range(self.planes):
            twin = self.twin(goal, plane, True)
            if not isinstance(twin, Sink):
                self.execute(self._accessing(twin, stores=False), plane)

    def swapped(self) -> None:
        """After a ``cas``: lanes that found what they expected have stored."""
        writer = self.writer
        goal, _, expected, new = self.instruction.operands[:4]
        kind = f"b{type_bits(element_type(self.instruction))}"
        same = writer.scratch(1)
        writer.compute(f"setp.eq.{kind}", same, goal, expected)
        word = writer.load("i32", writer.address(same), 0)
        mask, lanes = writer.mask, writer.lanes()
        writer.mask = writer.value(f"and i32 {word}, {lanes}")
        for plane in range(self.planes):
            self.execute(self._accessing(self.twin(new, plane), stores=True), plane)
        writer.mask = mask

    def finish(self) -> None:
        """Write what is done after the instruction."""
        if self._swaps():
            self.swapped()
        self.after()

    def copy(self) -> None:
        """``cp.async``; bulk copies are done in planes when they are issued."""
        if is_lane_copy(self.instruction) and not self.writer.mode.scheduled:
            writer = self.writer
            with writer.in_plane(0):
                given = lane_copy(writer, self.instruction)
                sizes = given.size, given.to.bits, given.of.bits
                call_copy(writer, given, accesses.lane_copies(*sizes, self.planes))

    def rows(self) -> None:
        """``ldmatrix`` and ``wmma.load``: all lanes take part."""
        if self.writes:
            controls = tuple(range(1, len(self.instruction.operands)))
            self.if_any(lambda: self.in_planes(controls=controls))

    def stored_rows(self) -> None:
        """``stmatrix`` and ``wmma.store``."""
        given = self.instruction.operands
        data = next(i for i, each in enumerate(given) if isinstance(each, Vector))
        controls = tuple(i for i in range(len(given)) if i != data)
        self.if_any(lambda: self.in_planes(0, controls))

    def vote(self) -> None:
        """``redux`` computes; ``vote`` and ``match`` give truth values."""
        if floating(self.instruction):
            self.reduction()
        else:
            self.clear()

    def elsewhere(self) -> None:
        """Units do it to planes when they are issued; calls move their parameters."""

    call = warpgroup = tensor = elsewhere


def _names_space(word: str) -> bool:
    return word.startswith(("shared", "global", "local"))


def named_parameter(instruction: Instruction) -> bool:
    """Whether it accesses a parameter by its name, which is not in memory."""
    bases: Iterable[object] = (
        each.base for each in instruction.operands if isinstance(each, Address)
    )
    by_name = any(isinstance(each, Symbol) for each in bases)
    return by_name and space_of(instruction) == "param"


def follow(probes: PlaneProbes, writer: Writer, instruction: Instruction) -> None:
    """Write the code before an instruction."""
    step = probes.step(probes, writer, instruction)
    before = len(writer.lines)
    try:
        step.write()
    except Error:  # the instruction is refused, too
        writer.take_back(before)
        step.clear()


def follow_on(probes: PlaneProbes, writer: Writer, instruction: Instruction) -> None:
    """Write the code after an instruction."""
    if instruction.is_fetch or probes.step.after is not PlaneStep.after:
        probes.step(probes, writer, instruction).finish()
