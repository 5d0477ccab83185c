"""Lays out a program: its code blocks, and the places of its registers.

A program is a kernel and all functions that it may call.  Its *code blocks* are basic
blocks: the code between labels and jumps.  An instruction at which lanes may have
to wait is a block of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import field
from functools import cached_property

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.engine.simt import layout
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.synchronisation import synchronises
from fragmenta.errors import BadOperands, ValueRangeError, nearest
from fragmenta.ptx import flow
from fragmenta.ptx.module import (
    Function,
    Instruction,
    Module,
    Register,
    Symbol,
    Variable,
    demangled,
    type_bytes,
)
from fragmenta.ptx.placement import Space, callees, named_in, place_shared, reachable

MOST_LOCAL = 512 << 10
"""Bytes of local memory of a thread, as CUDA's programming guide has them."""
MOST_PARAMETERS = 32764
"""Bytes of the parameters of a kernel: ptxas refuses more."""
JUMPS = flow.BRANCHES | flow.ENDS | {"call"}
"""Opcodes after which a lane may be elsewhere."""
_ONE_FOR_ALL = frozenset({"tensormap"})
"""Opcodes with ``.sync`` at which no lane waits here: any lane acts for its warp."""


def meets(instruction: Instruction) -> bool:
    """Whether lanes wait for one another at an instruction."""
    if instruction.is_barrier:
        return True
    return "sync" in instruction.qualifiers and instruction.opcode not in _ONE_FOR_ALL


def waits(instruction: Instruction) -> bool:
    """Whether lanes may have to wait at an instruction for something asynchronous."""
    words = instruction.qualifiers
    if instruction.is_mbarrier:
        return "try_wait" in words
    if instruction.of_warpgroup:
        return "wait_group" in words or "mma_async" in words
    if instruction.of_tensor_memory:
        return "alloc" in words
    return instruction.is_barrier and "cluster" in words and "wait" in words


def stays(instruction: Instruction) -> bool:
    """Whether lanes may have to wait at an instruction; it is then a block alone."""
    return meets(instruction) or waits(instruction)


def _calls(instruction: Instruction) -> bool:
    return instruction.opcode == "call"


def _calls_or_synchronises(instruction: Instruction) -> bool:
    return _calls(instruction) or synchronises(instruction) != 0


@dataclass(frozen=True)
class CodeBlock:
    """Instructions that are executed one after the other."""

    number: int
    unit: PlacedFunction
    start: int
    stop: int
    returns_here: bool = False
    """Whether lanes come here only when they return from a call."""

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """Its instructions."""
        return self.unit.function.instructions[self.start : self.stop]


@dataclass(eq=False)
class PlacedFunction:
    """A function, and where its registers and variables are."""

    function: Function
    start: int
    """Where its registers begin in a warp."""
    registers: list[int] = field(default_factory=list)
    """Where each register is in a warp, by number."""
    words: dict[str, int] = field(default_factory=dict)
    """Where each variable in parameter space is: 128 bytes for each of its words."""
    addressed: frozenset[str] = frozenset()
    """Parameters that are in local memory, because their address is taken."""
    local: dict[str, int] = field(default_factory=dict)
    """Where each variable in local memory is, from the start of the frame."""
    shared: dict[str, int] = field(default_factory=dict)
    frame: int = 0
    """Bytes of local memory."""
    frame_start: int = 0
    """Where the frame begins, if the function does not call itself."""
    recursive: bool = False
    at: dict[int, int] = field(default_factory=dict)
    """The number of the code block that begins with an instruction, by its index."""
    carry: int = 0
    frame_register: int = 0
    shadow_words: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Where the shadows of each of ``words`` are, plane by plane."""

    @property
    def entry(self) -> int:
        """The number of its first code block."""
        return self.at[0]

    @cached_property
    def given(self) -> dict[str, Variable]:
        """Its parameters and results by name."""
        both = (*self.function.parameters, *self.function.returns)
        return {each.name: each for each in both}

    @cached_property
    def named(self) -> dict[str, list[Register]]:
        """Its registers by name, and the elements of a vector by that of the vector."""
        found: dict[str, list[Register]] = {}
        for each in self.function.registers:
            for name in dict.fromkeys((each.name, each.vector)):
                found.setdefault(name, []).append(each)
        return found


@dataclass(eq=False)
class Program:
    """A kernel with the functions that it may call."""

    module: Module
    kernel: Function
    units: dict[str, PlacedFunction]
    blocks: list[CodeBlock]
    warp_bytes: int
    shared: int
    """Bytes of shared memory, without those given at launch."""
    local: int
    addresses: Mapping[str, int]
    """The address of each variable that is used, and of each kernel parameter."""
    dirty: int = 0
    """Where a warp has two bytes for each register; 0 if it has none."""
    shadows: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Where the shadows of a register or a word are, plane by plane, by where that
    is in a warp."""


def registers_of(function: Function) -> Iterator[tuple[Register, int]]:
    """Each register, and the bytes that it takes in a warp."""
    for register in function.registers:
        if not register.type:
            declared = [each.name for each in function.registers if each.type]
            hint = nearest(register.name, declared)
            raise BadOperands(
                f"{function.shown} does not declare {register.name}{hint}"
            )
        yield register, register_bytes(register)


def register_bytes(register: Register) -> int:
    """The bytes that a register takes in a warp."""
    if register.type == "pred":
        return 4
    # 16 bytes at least, so that vectors are aligned.
    return type_bytes(register.type) * LANES


def program(module: Module, name: str, stepped: bool = False) -> Program:
    """Lay out a kernel and the functions it may call.

    If it is stepped, code blocks end at every synchronising event.
    """
    kernel = module.functions[name]
    names = _reachable(module, kernel)
    recursive = _recursive(module, names)
    place = layout.REGISTERS
    units: dict[str, PlacedFunction] = {}
    shared, local = place_shared(module, kernel, layout.SHARED_START), Space(0)
    for each in names:
        function = module.functions[each]
        unit = PlacedFunction(function, place, recursive=each in recursive)
        place = _place_registers(unit)
        _place_local(unit, local)
        units[each] = unit
    _check_local(name, local.size)
    for (owner, variable), start in shared.inner.items():
        units[owner].shared[variable] = start
    addresses = _addresses(module, kernel) | shared.module
    blocks: list[CodeBlock] = []
    for unit in units.values():
        _cut(unit, blocks, stepped)
    size = -(-place // 64) * 64
    return Program(
        module, kernel, units, blocks, size, shared.end, local.size, addresses
    )


def _check_local(name: str, size: int) -> None:
    """Refuse more local memory or parameters of calls than a thread has."""
    if size > MOST_LOCAL:
        raise ValueRangeError(
            f"{demangled(name)} declares {size:,} bytes of local memory and parameters "
            f"of calls; a thread has at most {MOST_LOCAL:,}"
        )


def _place_registers(unit: PlacedFunction) -> int:
    place = unit.start
    sized = list(registers_of(unit.function))
    unit.registers = [0] * len(sized)
    for register, size in sized:
        if register.type == "pred":
            unit.registers[register.number] = place
            place += size
    unit.carry, place = place, place + 4
    place = -(-place // 64) * 64
    for register, size in sized:
        if register.type != "pred":
            unit.registers[register.number] = place
            place += -(-size // 64) * 64
    function = unit.function
    given = () if function.kernel else (*function.parameters, *function.returns)
    inner = [v for v in function.variables.values() if v.space == "param"]
    unit.addressed = _addressed(function)
    _check_local(function.name, sum(each.size for each in (*given, *inner)))
    for variable in (*given, *inner):
        if variable.name in unit.addressed:
            continue
        unit.words[variable.name] = place
        place += -(-variable.size // 4) * 4 * LANES
    unit.frame_register, place = place, place + 4 * LANES
    return place


def _addressed(function: Function) -> frozenset[str]:
    """The parameters whose address is taken: they have to be in local memory."""
    if function.kernel:
        return frozenset()
    names = {v.name for v in function.parameters}
    names |= {v.name for v in function.variables.values() if v.space == "param"}
    return frozenset(
        each.name
        for instruction in function.instructions
        if instruction.is_move
        for each in instruction.operands
        if isinstance(each, Symbol) and each.name in names
    )


def _place_local(unit: PlacedFunction, local: Space) -> None:
    """Give each variable of a function its place in local memory."""
    frame = Space(0)
    for variable in unit.function.variables.values():
        if variable.space == "local":
            unit.local[variable.name] = frame.take(variable.size, variable.align)
    for variable in (*unit.function.parameters, *unit.function.variables.values()):
        if variable.name in unit.addressed:
            unit.local[variable.name] = frame.take(variable.size, variable.align)
    _check_local(unit.function.name, frame.size)  # also if it calls itself
    unit.frame = -(-frame.size // 16) * 16
    if not unit.recursive:
        unit.frame_start = local.take(unit.frame, 16)


def _addresses(module: Module, kernel: Function) -> dict[str, int]:
    """The address of what a module has, and of every parameter."""
    found = module_addresses(module)
    for name, offset in parameter_offsets(kernel).items():
        found[name] = layout.PARAM_WINDOW + offset
    return found


def module_addresses(module: Module) -> dict[str, int]:
    """The address of every variable that is used, and of every function."""
    found = variable_addresses(module)
    for index, name in enumerate(module.functions):
        found[name] = layout.CODE_WINDOW + 16 * index
    return found


def variable_addresses(module: Module) -> dict[str, int]:
    """The address of every variable that is used, in global and constant memory."""
    found: dict[str, int] = {}
    slots = {
        space: iter(numbers[module.skipped[space == "const"] :])
        for space, numbers in _SLOTS.items()
    }
    used = _used(module)
    for variable in module.variables.values():
        if variable.space != "shared" and variable.name in used:
            space = "const" if variable.space == "const" else "global"
            slot = next(slots[space], None)
            if slot is None:
                most = len(_SLOTS[space])
                raise ValueRangeError(
                    f"the module uses more than {most} variables in .{space}; "
                    f"{variable.name} is one too many"
                )
            found[variable.name] = slot << layout.SLOT_BITS
    return found


_SLOTS = {
    "global": range(layout.FIRST_VARIABLE, layout.WORKSPACE_SLOT),
    "const": range(layout.FIRST_CONSTANT, layout.SLOTS),
}


def _used(module: Module) -> set[str]:
    """The variables that code or another variable names.

    Headers declare thousands that are never named: they need no address.
    """
    found: set[str] = set()
    for variable in module.variables.values():
        found.update(symbol.name for _, symbol in variable.references)
        found.update(symbol.name for *_, symbol in variable.byte_references)
    for function in module.functions.values():
        for instruction in function.instructions:
            found.update(named_in(instruction.operands))
    return found


def parameter_offsets(kernel: Function) -> dict[str, int]:
    """Where each parameter of a kernel is in parameter space."""
    space = Space(0)
    found = {
        each.name: space.take(each.size, max(each.align, type_bytes(each.type)))
        for each in kernel.parameters
    }
    if space.size > MOST_PARAMETERS:
        raise ValueRangeError(
            f"{kernel.shown} has {space.size:,} bytes of parameters; a kernel has at "
            f"most {MOST_PARAMETERS:,}"
        )
    return found


# ── calls ───────────────────────────────────────────────────────────────────


def _reachable(module: Module, kernel: Function) -> list[str]:
    """The functions with a body that a kernel may call; it is the first."""
    found = reachable(module, kernel)
    return [name for name in found if not module.functions[name].declared_only]


def _recursive(module: Module, names: list[str]) -> set[str]:
    """The functions that may be active twice at a time in one lane."""
    calls = {name: set(callees(module, module.functions[name])) for name in names}
    indirect = {
        name
        for name in names
        if any(
            i.opcode == "call" and any(isinstance(o, Register) for o in i.operands)
            for i in module.functions[name].instructions
        )
    }
    others = set(names[1:])
    for name in indirect:
        calls[name] |= others
    return in_circles({name: goals & calls.keys() for name, goals in calls.items()})


def in_circles(after: Mapping[str, Collection[str]]) -> set[str]:
    """The names that can reach themselves, in time linear in all edges.

    It is Tarjan's algorithm, without recursion: a text may have calls in a chain that
    is longer than Python's stack.

    >>> sorted(in_circles({"a": "b", "b": "cb", "c": "d", "d": "ec", "e": ""}))
    ['b', 'c', 'd']
    """
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    found: set[str] = set()
    open_: dict[str, None] = {}
    for start in after:
        path = [] if start in order else [(start, iter(after[start]))]
        while path:
            name, rest = path[-1]
            if name not in order:
                order[name] = lowest[name] = len(order)
                open_[name] = None
            goal = next(rest, None)
            if goal is None:
                path.pop()
                if path:
                    above = path[-1][0]
                    lowest[above] = min(lowest[above], lowest[name])
                if lowest[name] == order[name]:
                    circle = {open_.popitem()[0]}
                    while name not in circle:
                        circle.add(open_.popitem()[0])
                    found |= circle if len(circle) > 1 else set()
                continue
            if goal == name:
                found.add(name)
            if goal not in order:
                path.append((goal, iter(after[goal])))
            elif goal in open_:
                lowest[name] = min(lowest[name], order[goal])
    return found


# ── code blocks ─────────────────────────────────────────────────────────────


def _cut(unit: PlacedFunction, blocks: list[CodeBlock], stepped: bool) -> None:
    """Cut a function into code blocks."""
    instructions = unit.function.instructions
    ends = _calls_or_synchronises if stepped else _calls
    cut = flow.blocks(unit.function, ends=ends, alone=stays)
    pieces = [(each.start, each.end) for each in cut]
    # An empty last block: the end of a function is a return.
    for start, stop in (*pieces, (len(instructions), len(instructions))):
        if start and instructions[start - 1].opcode == "call":
            blocks.append(CodeBlock(len(blocks), unit, start, start, returns_here=True))
        unit.at[start] = len(blocks)
        blocks.append(CodeBlock(len(blocks), unit, start, stop))
