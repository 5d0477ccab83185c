"""Writes a program in LLVM's language.

The code of a kernel is one function that runs one warp until it has to stop.  Each
code block is written twice: once for all lanes of the warp, and once for some of them.
Nearly every instruction is the call of a routine.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from fragmenta.engine.simt import layout, warps
from fragmenta.engine.simt.admitting import refused, unknown
from fragmenta.engine.simt.elementwise import ElementOperand, Elementwise, elementwise
from fragmenta.engine.simt.layout import LANES, Fault
from fragmenta.engine.simt.library import Routine, as_signed
from fragmenta.engine.simt.mode import PLAIN, Mode
from fragmenta.engine.simt.probes import NOTHING, Probes
from fragmenta.engine.simt.program import JUMPS, CodeBlock, PlacedFunction, Program
from fragmenta.errors import BadOperands, Error
from fragmenta.ptx.checking.mnemonics import reading
from fragmenta.ptx.families import ROW_LOADS, ROW_STORES, WARP_PRODUCTS
from fragmenta.ptx.module import (
    Address,
    Immediate,
    Instruction,
    Negative,
    Not,
    Operand,
    Pair,
    Register,
    RegisterPart,
    Sink,
    Special,
    Symbol,
    Vector,
    type_bits,
    type_bytes,
)
from fragmenta.ptx.opcodes.newer import not_covered
from fragmenta.ptx.opcodes.table import TABLE, Match, Slot

FULL, PARTIAL = "b", "m"
ADDRESSES = (8, 16, 32, 64)
"""Bits of registers that may hold an address; ptxas takes them all."""
WHOLE_WARP = WARP_PRODUCTS | ROW_LOADS | ROW_STORES | {"movmatrix"}
"""Opcodes that are carried out for all lanes at once, with any guard."""
INTERNAL = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    StopIteration,
    TypeError,
    ValueError,
)
"""What handlers raise for operands that their instruction does not have."""
LONGEST_PIECE = 2000
"""Lines without a label.  LLVM takes more than twice the time for twice as many."""
Handler = Callable[["Writer", Instruction], None]
HANDLERS: dict[str, Handler] = {}
"""The functions that write opcodes which do more than compute in each lane."""
MEMORY = ("ptr %warp", "ptr %block")
"""The first arguments of an access routine: whose memory it accesses."""
MOST_PLANES = 16
"""How many shadows a register and a memory may have."""


def shadow_names(plane: int) -> tuple[str, str]:
    """The pointers to the shadow of a warp and of its block in a plane.

    >>> shadow_names(0), shadow_names(2)
    (('%shadow_warp', '%shadow'), ('%shadow_warp2', '%shadow2'))
    """
    number = str(plane) if plane else ""
    return f"%shadow_warp{number}", f"%shadow{number}"


SHADOWS = tuple(
    (f"ptr {warp}", f"ptr {block}")
    for warp, block in map(shadow_names, range(MOST_PLANES))
)
"""What ``MEMORY`` is for the shadows of memory, in each plane."""


def handles(*opcodes: str) -> Callable[[Handler], Handler]:
    """Register a function that writes the code of some opcodes."""

    def add(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(opcodes, handler))
        return handler

    return add


class InMemory(NamedTuple):
    """An operand in memory: where, and the bits of the register that holds it."""

    base: str
    """The pointer that it is counted from: mostly ``%warp`` or ``%constants``."""
    offset: int
    bits: int

    def moved(self, step: int, bits: int) -> InMemory:
        """What is so many bytes further on."""
        return InMemory(self.base, self.offset + step, bits)


class FaultSite(NamedTuple):
    """An instruction that can fail."""

    unit: str
    place: int
    """The number of the instruction in its function."""


class Section(NamedTuple):
    """The code of all blocks in one version, and what it calls."""

    lines: list[str]
    routines: dict[str, Routine]
    declared: dict[str, str]


class _Form(NamedTuple):
    """An instruction with so many operands, as the table has it."""

    match: Match
    plain: tuple[tuple[str, bool], ...]
    """The type of each operand, and whether it is a result; empty if one has more."""


class _Call(NamedTuple):
    """A routine for an instruction, and the places of its operands."""

    name: str
    places: list[InMemory]


class _Gathered(NamedTuple):
    """The operands that a routine is compiled for and called with."""

    results: list[tuple[ElementOperand, InMemory]]
    sources: list[tuple[ElementOperand, InMemory] | None]
    """None for an operand that was not written."""
    extra: list[tuple[str, str]]
    """Further qualifiers."""


def _both(operand: InMemory | Operand) -> tuple[InMemory | Operand, ...]:
    """One result, or the two of a pair."""
    if isinstance(operand, Pair):
        return operand.first, operand.second
    return (operand,)


class Writer:
    """Writes the code of one program."""

    def __init__(
        self,
        program: Program,
        target: str,
        mode: Mode = PLAIN,
        probes: Probes = NOTHING,
        measure: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.program, self.probes = program, probes
        self._measure = measure
        """Gets the number of lines now and then, and may refuse it."""
        self.target = target
        self.mode = mode
        self.events: list[list[Any]] = []
        """Instructions that are carried out in Python: see ``events``."""
        self.sections = {each: Section([], {}, {}) for each in (FULL, PARTIAL)}
        self.lines, self.routines, self.declared = self.sections[FULL]
        """Those of the present version."""
        self.constants = bytearray()
        self._constant_places: dict[bytes, int] = {}
        self.sites: list[FaultSite] = []
        self.functions: list[tuple[str, ...]] = []
        """Functions that are called by address: instruction, target, perhaps more."""
        self.fidelity: dict[str, str] = {}
        self.refusals: dict[int, str] = {}
        """Why an instruction cannot be executed, by its site."""
        self._forms: dict[tuple[str, int], _Form] = {}
        self._names: dict[tuple[object, ...], str] = {}
        """The routine for a form with registers of some bits."""
        self._calls: dict[int, tuple[Instruction, _Call]] = {}
        """What is called for an instruction, by its identity."""
        self._elementwise: dict[str, Elementwise] = {}
        self._ways: dict[str, tuple[str, Handler]] = {}
        """How each mnemonic is written."""
        self._constants: dict[tuple[int, int], InMemory] = {}
        self._active = ""
        """The lanes of the code block, if the present piece has loaded them."""
        self._fresh = 0
        self._scratch = 0
        self._begun = 0
        """The line with which the present piece of code begins."""
        self.unit: PlacedFunction = program.units[program.kernel.name]
        self.block: CodeBlock = program.blocks[0]
        self.version = FULL
        self.index = 0
        self.mask = ""
        """The lanes of the present instruction; nothing if they are all."""
        self.memory = MEMORY
        """Whose memory accesses are about: ``MEMORY`` or one of ``SHADOWS``."""
        self.plane: int | None = None
        """The plane of the shadows that accesses are about; None for the memory."""

    def begin(self, block: CodeBlock, version: str) -> None:
        """Begin a code block in one version."""
        self.block, self.version, self.unit = block, version, block.unit
        self.lines, self.routines, self.declared = self.sections[version]
        self.label(f"{version}{block.number}")

    @contextmanager
    def in_plane(self, plane: int) -> Iterator[None]:
        """Write accesses of the shadows of memory in a plane; no probe sees them."""
        probes, self.probes = self.probes, NOTHING
        self.memory, self.plane = SHADOWS[plane], plane
        try:
            yield
        finally:
            self.memory, self.plane, self.probes = MEMORY, None, probes

    # ── text ────────────────────────────────────────────────────────────────

    def fresh(self) -> str:
        """A new name for a value."""
        self._fresh += 1
        return f"%v{self._fresh}"

    def line(self, text: str) -> None:
        """Write a line that gives no value."""
        self.lines.append("  " + text)

    def value(self, text: str) -> str:
        """Write a line that gives a value, and return its name."""
        name = self.fresh()
        self.lines.append(f"  {name} = {text}")
        return name

    def label(self, name: str) -> None:
        """Begin a piece of code that can be jumped to."""
        self.lines.append(f"{name}:")
        self._begun = len(self.lines)
        self._active = ""

    def _cut(self) -> None:
        """Begin a new piece of code where the present one is long."""
        if len(self.lines) - self._begun > LONGEST_PIECE:
            on = self.new_label()
            self.line(f"br label %{on}")
            self.label(on)

    def new_label(self) -> str:
        """A new name for a label."""
        self._fresh += 1
        return f"l{self._fresh}"

    def at(self, base: str, offset: int) -> str:
        """A pointer so many bytes further on."""
        if not offset:
            return base
        return self.value(f"getelementptr i8, ptr {base}, i64 {offset}")

    def load(self, kind: str, base: str, offset: int) -> str:
        """A number in memory."""
        return self.value(f"load {kind}, ptr {self.at(base, offset)}")

    def store(self, kind: str, number: str | int, base: str, offset: int) -> None:
        """Put a number into memory."""
        self.line(f"store {kind} {number}, ptr {self.at(base, offset)}")

    def call(self, routine: Routine, *arguments: str, returns: str = "void") -> str:
        """Call a routine; each argument has its type before it."""
        self.routines[routine.name] = routine
        return self.call_name(routine.name, *arguments, returns=returns)

    def call_name(self, name: str, *arguments: str, returns: str = "void") -> str:
        """Call a function by its name."""
        if name not in self.declared:
            kinds = ", ".join(each.split()[0] for each in arguments)
            self.declared[name] = f'declare {returns} @"{name}"({kinds})'
        text = f'call {returns} @"{name}"({", ".join(arguments)})'
        if returns == "void":
            self.line(text)
            return ""
        return self.value(text)

    # ── lanes ───────────────────────────────────────────────────────────────

    def active(self) -> str:
        """The lanes that execute the block, as a word."""
        if not self._active:
            self._active = self.load("i32", "%warp", layout.ACTIVE)
        return self._active

    def lanes(self) -> str:
        """The lanes that execute the present instruction, as a word."""
        return self.mask or self.active()

    def predicate(self, operand: Register | Not) -> str:
        """The bits of a predicate, as a word."""
        register = operand.of if isinstance(operand, Not) else operand
        word = self.load("i32", "%warp", self.unit.registers[register.number])
        return self.value(f"xor i32 {word}, -1") if isinstance(operand, Not) else word

    def scratch(self, number: int) -> InMemory:
        """A place for a predicate that is used at once."""
        return InMemory("%warp", layout.SCRATCH + 4 * number, 1)

    def temporary(self, bits: int) -> InMemory:
        """A place for a register that is used at once; none is kept for long."""
        place = layout.TEMPORARY + 256 * self._scratch
        self._scratch = (self._scratch + 1) % layout.TEMPORARIES
        return InMemory("%warp", place, bits)

    # ── operands ────────────────────────────────────────────────────────────

    def register(self, register: Register) -> InMemory:
        """Where a register is."""
        bits = 1 if register.type == "pred" else 8 * type_bytes(register.type)
        return InMemory("%warp", self.unit.registers[register.number], bits)

    def address(self, at: InMemory) -> str:
        """A pointer to an operand."""
        return self.at(at.base, at.offset)

    def from_warp(self, at: InMemory) -> str:
        """How far an operand is behind the start of the warp: a number of 64 bits."""
        if at.base == "%warp":
            return str(at.offset)
        base = "%constants_from_warp"
        if at.base != "%constants":
            there = self.value(f"ptrtoint ptr {at.base} to i64")
            base = self.value(f"sub i64 {there}, %warp_at")
        return self.value(f"add i64 {base}, {at.offset}") if at.offset else base

    def constant(self, bits: int, number: int) -> InMemory:
        """A register that holds a number in every lane."""
        key = bits, number
        if key not in self._constants:
            self._constants[key] = self._constant(bits, number)
        return self._constants[key]

    def _constant(self, bits: int, number: int) -> InMemory:
        number &= (1 << max(bits, 1)) - 1
        if bits == 1:
            word = -1 if number else 0
            place = self.data(word.to_bytes(4, "little", signed=True))
        elif bits == 128:
            low, high = number & (1 << 64) - 1, number >> 64
            place = self.data(
                low.to_bytes(8, "little") * LANES + high.to_bytes(8, "little") * LANES
            )
        else:
            place = self.data(number.to_bytes(bits // 8, "little") * LANES)
        return InMemory("%constants", place, bits)

    def data(self, data: bytes) -> int:
        """Where bytes are among the constants."""
        if data not in self._constant_places:
            self.constants += bytes(-len(self.constants) % 64)
            self._constant_places[data] = len(self.constants)
            self.constants += data
        return self._constant_places[data]

    def source(self, operand: Operand, kind: str) -> InMemory:
        """Where the bits of an operand are."""
        bits = type_bits(kind)
        match operand:
            case Register():
                return self.register(operand)
            case Not():
                word = self.predicate(operand)
                at = self.scratch(self._next_scratch())
                self.line(f"store i32 {word}, ptr {self.address(at)}")
                return at
            case Immediate():
                return self.constant(bits, immediate_bits(operand, kind))
            case Special():
                return self.special(operand)
            case Symbol():
                return self.symbol(operand, bits)
            case RegisterPart():
                return self.register(operand.of)
        raise Error(f"{type(operand).__name__} cannot be an operand here")

    def pointer(self, operand: Operand, kind: str, *, result: bool = False) -> str:
        """A pointer to an operand, for a routine that takes the bits of a type."""
        return self.address(self.exact(operand, kind, result=result))

    def exact(self, operand: Operand, kind: str, *, result: bool = False) -> InMemory:
        """Where an operand is that has exactly the bits of a type."""
        at = self.result(operand, kind) if result else self.source(operand, kind)
        bits = type_bits(kind)
        if at.bits != bits:
            raise BadOperands(
                f"an operand has {bits} bit{'s' * (bits != 1)} here; given one of "
                f"{at.bits}"
            )
        return at

    def _next_scratch(self) -> int:
        self._scratch = (self._scratch + 1) % layout.TEMPORARIES
        return self._scratch

    def special(self, operand: Special) -> InMemory:
        """Where a special register is."""
        place = layout.special_place(operand.name)
        if place is None:
            raise Error(f"the special register {operand.name} is not supported")
        if operand.name in layout.TICKING:
            self.call(warps.TICK, "ptr %warp")
        bits = 64 if operand.name in layout.SPECIALS_64 else 32
        return InMemory("%warp", place, bits)

    def symbol(self, operand: Symbol, bits: int) -> InMemory:
        """The address of a variable or function."""
        unit, name = self.unit, operand.name
        if name in unit.local:
            offset = unit.local[name] + operand.offset
            if not unit.recursive:
                return self.constant(bits, unit.frame_start + offset)
            at, step = self.temporary(64), f"i64 {as_signed(offset, 64)}"
            frame = f"ptr {self.frame()}"
            self.call(warps.FRAME, f"ptr {self.address(at)}", frame, step)
            return at
        if name in unit.shared:
            return self._shared(bits, unit.shared[name] + operand.offset)
        known = self.program.addresses
        goal = self.program.module.aliases.get(name, name)
        if goal in known:
            variable = self.program.module.variables.get(goal)
            if variable is not None and variable.space == "shared":
                return self._shared(bits, known[goal] + operand.offset)
            return self.constant(bits, known[goal] + operand.offset)
        raise Error(f"{name} is not declared")

    def _shared(self, bits: int, offset: int) -> InMemory:
        """An address in the shared memory of the block."""
        plain = self.constant(bits, offset)
        if not self.mode.clustered:
            return plain
        rank = self.special(Special("%cluster_ctarank"))
        made = self.temporary(bits)
        mask, self.mask = self.mask, ""
        first = Immediate(layout.RANK_BITS, "int", layout.RANK_BITS)
        if bits == 64:
            self.compute("cvt.u64.u32", made, rank)
            self.compute("shl.b64", made, made, first)
        else:
            self.compute("shl.b32", made, rank, first)
        self.compute(f"add.u{bits}", made, made, plain)
        self.mask = mask
        return made

    def frame(self) -> str:
        """The register with the start of the frame of a recursive function."""
        return self.at("%warp", self.unit.frame_register)

    def result(self, operand: Operand, kind: str) -> InMemory:
        """Where a result goes."""
        if isinstance(operand, Sink):
            bits = type_bits(kind)
            if bits == 1:
                return self.scratch(self._next_scratch())
            return self.temporary(max(bits, 8))
        if isinstance(operand, RegisterPart):
            return self.register(operand.of)
        if not isinstance(operand, Register):
            raise Error(f"{type(operand).__name__} cannot be a result")
        return self.register(operand)

    # ── instructions ────────────────────────────────────────────────────────

    def compute(self, mnemonic: str, *operands: InMemory | Operand) -> None:
        """Execute an instruction of the table on operands, for the present lanes."""
        self._call(self._call_of(mnemonic, operands))

    def by_table(self, instruction: Instruction) -> None:
        """Write an instruction that computes something in each lane.

        It is written for all lanes and for some of them.  What is called is found once,
        unless its operands need code of their own.
        """
        known = self._calls.get(id(instruction))
        if known is None:
            before = len(self.lines)
            made = self._call_of(instruction.mnemonic, instruction.operands)
            known = instruction, made
            if len(self.lines) == before:
                self._calls[id(instruction)] = known
        self._call(known[1])

    def _call_of(
        self, mnemonic: str, operands: tuple[InMemory | Operand, ...]
    ) -> _Call:
        """The routine of an instruction of the table, and where its operands are."""
        key = mnemonic, len(operands)
        if key not in self._forms:
            self._forms[key] = _form(*key)
        form = self._forms[key]
        if not form.plain or not _PLAIN.issuperset(map(type, operands)):
            return self._gathered(mnemonic, form.match, list(operands))
        places = [
            each
            if isinstance(each, InMemory)
            else (self.result if result else self.source)(each, kind)
            for (kind, result), each in zip(form.plain, operands, strict=True)
        ]
        held = (key, *(at.bits for at in places))
        if held not in self._names:
            self._names[held] = self._gathered(mnemonic, form.match, [*places]).name
        return _Call(self._names[held], places)

    def _gathered(
        self, mnemonic: str, match: Match, given: list[InMemory | Operand]
    ) -> _Call:
        gathered = _Gathered([], [], [])
        rest = list(given)
        for slot in match.syntax.operands:
            if slot.hidden:
                self._carry(slot, match, gathered)
            elif rest:
                self._gather(mnemonic, slot, match, rest.pop(0), gathered)
            elif slot.optional:
                gathered.sources.append(None)
            else:
                raise Error(f"{mnemonic} has too few operands")
        if rest:
            raise Error(f"{mnemonic} has too many operands")
        routine = elementwise(
            mnemonic,
            match,
            tuple(held for held, _ in gathered.results),
            tuple(None if each is None else each[0] for each in gathered.sources),
            tuple(gathered.extra),
        )
        self.fidelity[mnemonic] = match.syntax.fidelity
        self._elementwise[routine.name] = routine
        places = [place for _, place in gathered.results]
        places += [each[1] for each in gathered.sources if each is not None]
        return _Call(routine.name, places)

    def _call(self, made: _Call) -> None:
        routine = self._elementwise[made.name]
        arguments = ["ptr %warp", *(f"i64 {self.from_warp(at)}" for at in made.places)]
        if self.mask:
            self.call(routine.masked, *arguments, f"i32 {self.mask}")
        else:
            self.call(routine.full, *arguments)

    def _carry(self, slot: Slot, match: Match, gathered: _Gathered) -> None:
        """The carry is an operand that is not written."""
        place = InMemory("%warp", self.unit.carry, 1)
        if slot.result and not match.qualifiers.get("cc", "cc"):
            place = self.scratch(0)
        pair = (ElementOperand(1, 1), place)
        if slot.result:
            gathered.results.append(pair)
        else:
            gathered.sources.append(pair)

    def _gather(
        self,
        mnemonic: str,
        slot: Slot,
        match: Match,
        operand: InMemory | Operand,
        gathered: _Gathered,
    ) -> None:
        """What one operand adds to the arguments of a routine."""
        kind = match.syntax.type_of(slot, match.qualifiers)
        if slot.type == "imm":
            if not isinstance(operand, Immediate):
                raise Error(f"{slot.name} of {mnemonic} must be a constant")
            gathered.extra.append((slot.name, str(operand.value)))
            return
        if slot.negatable:
            minus = isinstance(operand, Negative)
            gathered.extra.append((f"{slot.name}neg", "-" * minus))
            operand = operand.of if isinstance(operand, Negative) else operand
        if slot.selector:
            part = operand.which if isinstance(operand, RegisterPart) else ""
            gathered.extra.append((slot.selector, part))
        held = ElementOperand(type_bits(kind), 0, signed=kind.startswith("s"))
        if slot.result:
            for each in _both(operand):
                at = each if isinstance(each, InMemory) else self.result(each, kind)
                gathered.results.append((_holding(held, at), at))
                if slot.name == "d|p":  # the second is a predicate
                    kind, held = "pred", ElementOperand(1, 1)
            return
        for each in operand.items if isinstance(operand, Vector) else (operand,):
            at = each if isinstance(each, InMemory) else self.source(each, kind)
            gathered.sources.append((_holding(held, at), at))

    def site(self) -> int:
        """A number for the present instruction, by which a fault names it."""
        self.sites.append(FaultSite(self.unit.function.name, self.index))
        return len(self.sites) - 1

    def stop_if(self, failed: str) -> None:
        """Leave the code if a routine has failed.

        If that is an access of a shadow, the access itself fails, too.
        """
        if self.plane is not None:
            return
        on = self.new_label()
        bad = self.value(f"icmp ne i32 {failed}, 0")
        self.line(f"br i1 {bad}, label %stop, label %{on}")
        self.label(on)

    def fault(self, kind: Fault) -> None:
        """Stop here with a fault, if any lane is active."""
        lanes = self.lanes()
        self.call(
            warps.FAULT,
            "ptr %warp",
            f"i32 {int(kind)}",
            f"i32 {self.site()}",
            f"i32 {lanes}",
            returns="void",
        )
        on, bad = self.new_label(), self.value(f"icmp ne i32 {lanes}, 0")
        self.line(f"br i1 {bad}, label %stop, label %{on}")
        self.label(on)

    def instruction(self, instruction: Instruction) -> None:
        """Write one instruction."""
        guard = instruction.guard
        self.mask = ""
        self._measure(sum(len(each.lines) for each in self.sections.values()))
        self._cut()
        if guard is not None:
            chosen = self.predicate(guard)
            self.mask = self.value(f"and i32 {chosen}, {self.active()}")
        elif self.version == PARTIAL:
            self.mask = self.active()
        mnemonic = instruction.mnemonic
        if mnemonic not in self._ways:
            self._ways[mnemonic] = _way(instruction)
        why, handler = self._ways[mnemonic]
        if why:
            self.refuse(why)
            return
        self.guarded(lambda: self._instruction(instruction, handler))

    def _instruction(self, instruction: Instruction, handler: Handler) -> None:
        """Write what a probe adds before an instruction, and what it does."""
        self.probes.before(self, instruction)
        if instruction.guard is not None and instruction.opcode in WHOLE_WARP:
            self.if_any(lambda: handler(self, instruction))
        else:
            handler(self, instruction)
        if instruction.opcode not in JUMPS:
            self.probes.after(self, instruction)

    def if_any(self, write: Callable[[], None]) -> None:
        """Write code that runs only if a lane takes part."""
        on, behind = self.new_label(), self.new_label()
        some = self.value(f"icmp ne i32 {self.mask}, 0")
        self.line(f"br i1 {some}, label %{on}, label %{behind}")
        self.label(on)
        write()
        self.line(f"br label %{behind}")
        self.label(behind)

    def guarded(self, write: Callable[[], None]) -> None:
        """Write something; if that is not possible, write a fault in its place.

        Operands that do not fit are refused at once: nothing is compiled then.
        """
        before = len(self.lines)
        try:
            write()
        except BadOperands as error:
            here = self.unit.function.instructions[self.index]
            raise refused(self.program.module, here, str(error)) from error
        except Error as error:
            self.take_back(before)
            self.refuse(str(error))
        except INTERNAL:
            # Operands that no instruction has; module.check reports them.
            self.take_back(before)
            self.refuse("it is not written as PTX has it; module.check says why")

    def take_back(self, before: int) -> None:
        """Remove the last lines, and what was remembered of them."""
        del self.lines[before:]
        self._active = ""

    def refuse(self, why: str) -> None:
        """Write a fault with a reason, for the lanes that come here."""
        self.refusals[len(self.sites)] = why
        self.fault(Fault.UNSUPPORTED)
        jumps = self.unit.function.instructions[self.index].opcode in JUMPS
        if jumps and not self.block.returns_here:
            self.goto(self.unit.at[self.index + 1])

    # ── going on ────────────────────────────────────────────────────────────

    def goto(self, number: int) -> None:
        """All lanes of the block go to another one."""
        back = number <= self.block.number
        if self.version == PARTIAL:
            self.call(
                warps.DIVERGE, "ptr %warp", "i32 -1", f"i32 {number}", f"i32 {number}"
            )
            if back:
                self._spend(number)
            self.line("br label %dispatch")
            return
        if back:
            self._spend(number)
        self.line(f"br label %{FULL}{number}")

    def end_turn(self, kind: int, lanes: str) -> None:
        """All lanes of the block go on behind it, in the next turn of the warp.

        ``kind`` is what the event was that it ends with.  If no lane of ``lanes`` took
        part in it, the turn does not end.
        """
        after = self.block.number + 1
        if lanes:
            self._unless(f"icmp eq i32 {lanes}, 0", after)
        if kind & layout.MEETS:
            resumed = self.load("i32", "%warp", layout.RESUMED)
            self._unless(f"icmp ne i32 {resumed}, 0", after)
        goal = f"i32 {after}"
        self.call(warps.DIVERGE, "ptr %warp", "i32 -1", goal, goal)
        here = f"i32 {self.block.number}"
        self.call(warps.YIELD, "ptr %warp", here, f"i32 {kind}")
        self.line("br label %stop")

    def _unless(self, condition: str, number: int) -> None:
        """Write what follows; if a condition holds, go on with a code block."""
        on, otherwise = self.new_label(), self.new_label()
        holds = self.value(condition)
        self.line(f"br i1 {holds}, label %{on}, label %{otherwise}")
        self.label(on)
        self.store("i32", 0, "%warp", layout.RESUMED)
        self.goto(number)
        self.label(otherwise)

    def _spend(self, number: int) -> None:
        """Stop if the turn of the warp is over."""
        left = self.value("load i32, ptr %budget")
        less = self.value(f"sub i32 {left}, 1")
        self.line(f"store i32 {less}, ptr %budget")
        over, on = self.value(f"icmp slt i32 {less}, 0"), self.new_label()
        out = self.new_label()
        self.line(f"br i1 {over}, label %{out}, label %{on}")
        self.label(out)
        if self.version == FULL:
            self.call(
                warps.DIVERGE, "ptr %warp", "i32 -1", f"i32 {number}", f"i32 {number}"
            )
        self.call(warps.SPENT, "ptr %warp")
        self.line("br label %stop")
        self.label(on)

    def branch(self, taken: str, yes: int, no: int) -> None:
        """The lanes in ``taken`` go to one block, the other active ones to another."""
        active = self.active()
        if self.version == FULL:
            all_, none, mixed = (self.new_label() for _ in range(3))
            test = self.new_label()
            every = self.value(f"icmp eq i32 {taken}, {active}")
            self.line(f"br i1 {every}, label %{all_}, label %{test}")
            self.label(test)
            nobody = self.value(f"icmp eq i32 {taken}, 0")
            self.line(f"br i1 {nobody}, label %{none}, label %{mixed}")
            self.label(all_)
            self.goto(yes)
            self.label(none)
            self.goto(no)
            self.label(mixed)
        self.call(warps.DIVERGE, "ptr %warp", f"i32 {taken}", f"i32 {yes}", f"i32 {no}")
        if min(yes, no) <= self.block.number:
            self.spend_partial(min(yes, no))
        self.line("br label %dispatch")

    def spend_partial(self, number: int) -> None:
        """Stop if the turn is over; each lane already has its next block."""
        version, self.version = self.version, PARTIAL
        self._spend(number)
        self.version = version


def _holding(held: ElementOperand, at: InMemory) -> ElementOperand:
    """An operand in the register that it was given.

    Routines convert between widths of 8 to 64 bits; a predicate and 128 bits are kept
    in other ways.
    """
    for bits in (1, 128):
        if (held.bits == bits) != (at.bits == bits):
            raise BadOperands(
                f"an operand of {held.bits} bits cannot be in a register of {at.bits}"
            )
    return held._replace(register=at.bits)


_PLAIN = frozenset({Immediate, Not, Register, Sink, Special, Symbol, InMemory})
"""Operands that are in one place."""


def _form(mnemonic: str, operands: int) -> _Form:
    """The line of the table for a mnemonic with so many operands."""
    match = TABLE.find(mnemonic, operands)
    if match is None:  # ptxas takes modifiers in any order
        found = reading(mnemonic).matches
        match = next((m for m in found if m.syntax.takes(operands)), None)
    if match is None or match.syntax.emit is None:
        raise Error(f"{mnemonic} is not supported")
    syntax, slots = match.syntax, match.syntax.operands
    if len(slots) != operands or not all(map(_plain, slots)):
        return _Form(match, ())
    kinds = (syntax.type_of(each, match.qualifiers) for each in slots)
    results = (each.result for each in slots)
    return _Form(match, tuple(zip(kinds, results, strict=True)))


def _plain(slot: Slot) -> bool:
    """Whether nothing but a place and its bits counts of an operand."""
    more = slot.hidden or slot.negatable or slot.selector or slot.vector
    return not more and slot.type != "imm"


def _way(instruction: Instruction) -> tuple[str, Handler]:
    """Why an instruction cannot be written, or the function that writes it."""
    refused = bool(not_covered(instruction.mnemonic))
    handler = HANDLERS.get(instruction.opcode, _by_table)
    return unknown(instruction), _refused if refused else handler


def _refused(writer: Writer, instruction: Instruction) -> None:
    why = not_covered(instruction.mnemonic)
    raise Error(f"{instruction.mnemonic} is not supported: {why}")


def _by_table(writer: Writer, instruction: Instruction) -> None:
    """An instruction that computes something in each lane."""
    writer.by_table(instruction)


def immediate_bits(operand: Immediate, kind: str) -> int:
    """The bits of a constant as an operand of a type.

    >>> hex(immediate_bits(Immediate(1.0, "f64", 0x3FF0000000000000), "f32"))
    '0x3f800000'
    >>> immediate_bits(Immediate(-1, "int", (1 << 64) - 1), "s16")
    65535
    """
    bits = type_bits(kind)
    if operand.form == "int":
        if kind in ("f32", "f64"):
            form = "<f" if kind == "f32" else "<d"
            return int.from_bytes(struct.pack(form, float(operand.value)), "little")
        return operand.bits & (1 << bits) - 1
    if kind == "f32" and operand.form == "f64":
        return int.from_bytes(struct.pack("<f", operand.value), "little")
    if kind == "f64" and operand.form == "f32":
        return int.from_bytes(struct.pack("<d", operand.value), "little")
    return operand.bits & (1 << bits) - 1


def address_of(writer: Writer, address: Address) -> tuple[InMemory, int]:
    """The register with an address, and the bytes to add to it, of 64 bits."""
    base, offset = address.base, as_signed(address.offset, 64)
    if isinstance(base, Register):
        at = writer.register(base)
        if at.bits not in ADDRESSES:
            raise BadOperands(f"an address is in an integer register, not {base.name}")
        return at, offset
    if isinstance(base, Symbol):
        return writer.symbol(Symbol(base.name, base.offset), 64), offset
    return writer.constant(64, base), offset
