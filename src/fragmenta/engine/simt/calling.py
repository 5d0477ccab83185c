"""Calls of functions, and returns from them.

The return address of a lane is the number of a code block, on a stack of its own.  A
function has its registers in a fixed place; if it may be active twice at a time in one
lane, its registers are saved before a call and restored after it.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import I32, I64, Code, Trace, Value, convert
from fragmenta.engine.simt import layout, warps
from fragmenta.engine.simt.control import (
    all_to,
    name_of,
    return_addresses,
    skip_excluded,
)
from fragmenta.engine.simt.emitter import (
    MEMORY,
    SHADOWS,
    Writer,
    handles,
    immediate_bits,
)
from fragmenta.engine.simt.layout import LANES, Fault
from fragmenta.engine.simt.library import field, pointer_at
from fragmenta.engine.simt.memory import AccessForm, fault, has, lane_of, store
from fragmenta.engine.simt.program import PlacedFunction
from fragmenta.engine.simt.warps import P, routine
from fragmenta.errors import BadOperands, Error, nearest
from fragmenta.ptx.host_functions import HOST_FUNCTIONS, missing
from fragmenta.ptx.module import (
    Function,
    Immediate,
    Instruction,
    Module,
    Operand,
    OperandGroup,
    Register,
    Sink,
    Vector,
    demangled,
    type_bytes,
)


@handles("call")
def call(writer: Writer, instruction: Instruction) -> None:
    """Call a function by name or by address."""
    given, goal, operands = _call_parts(instruction)
    module = writer.program.module
    after = writer.block.number + 1
    if isinstance(goal, Register):
        _indirect(writer, goal, given, operands)
        writer.probes.entered(writer, instruction)
    else:
        name = module.aliases.get(name_of(goal), name_of(goal))
        function = _called(module, name, given, operands)
        if function.declared_only:
            _host(writer, function, given, operands)
            writer.probes.entered(writer, instruction)
            writer.goto(after)
            return
        unit = writer.program.units[name]
        why = _mismatch(writer, unit, given, operands)
        if why:
            raise BadOperands(why)
        skip_excluded(writer, instruction)
        _enter(writer, unit, operands, writer.lanes())
        writer.probes.entered(writer, instruction)
    writer.line("br label %dispatch")


def _called(
    module: Module, name: str, given: tuple[Operand, ...], operands: tuple[Operand, ...]
) -> Function:
    """The function of a name, if it can be called with so many operands."""
    function = module.functions.get(name)
    if function is None:
        hint = nearest(name, module.functions)
        raise Error(f"the function {name} is not declared{hint}")
    if function.kernel:
        raise Error(f"{function.shown} is a kernel, which cannot be called")
    takes, returns = len(function.parameters), len(function.returns)
    if (takes, returns) != (len(operands), len(given)):
        raise BadOperands(
            f"{function.shown} has {takes} parameters, {returns} results; the call has "
            f"{len(operands)} and {len(given)}"
        )
    return function


def _call_parts(
    instruction: Instruction,
) -> tuple[tuple[Operand, ...], Operand, tuple[Operand, ...]]:
    """The results, the function and the arguments of a call."""
    operands = list(instruction.operands)
    if all(isinstance(each, OperandGroup) for each in operands):
        raise Error("a call names a function, or a register with its address")
    returned: tuple[Operand, ...] = ()
    if isinstance(operands[0], OperandGroup):
        returned = operands.pop(0).items  # type: ignore[union-attr]
    goal = operands.pop(0)
    given: tuple[Operand, ...] = ()
    if operands and isinstance(operands[0], OperandGroup):
        given = operands[0].items
    return returned, goal, given


def _pieces(unit: PlacedFunction, name: str) -> list[tuple[int, int]]:
    """The bits and the place of each piece of a parameter or a register."""
    function = unit.function
    variable = function.variables.get(name) or unit.given.get(name)
    if variable is None or variable.space == "reg":
        found = unit.named.get(name, [])
        return [piece for each in found for piece in _register_pieces(unit, each)]
    if name in unit.addressed:
        raise Error(f"the address of {name} is taken, and it is given to a function")
    if name not in unit.words:
        raise BadOperands(f"a call gives registers and parameters; {name} is neither")
    first = unit.words[name]
    count = -(-variable.size // 4)
    return [(32, first + 4 * LANES * word) for word in range(count)]


def _register_pieces(unit: PlacedFunction, register: Register) -> list[tuple[int, int]]:
    place = unit.registers[register.number]
    bits = 1 if register.type == "pred" else 8 * type_bytes(register.type)
    step = 4 if bits == 1 else min(bits, 64) // 8 * LANES
    count = max(bits // 64, 1)
    return [(min(bits, 64), place + part * step) for part in range(count)]


def _given(writer: Writer, operand: Operand) -> list[tuple[int, int]]:
    """The pieces of what a call gives or gets."""
    if isinstance(operand, Register):
        return _register_pieces(writer.unit, operand)
    if isinstance(operand, Vector):
        return [piece for each in operand.items for piece in _given(writer, each)]
    return _pieces(writer.unit, name_of(operand))


def _mismatch(
    writer: Writer,
    unit: PlacedFunction,
    given: tuple[Operand, ...],
    operands: tuple[Operand, ...],
) -> str:
    """Why a call does not fit a function: too many operands, too few, or other widths.

    A register that the function never names has no place, and any operand fits it.
    """
    function = unit.function
    takes, returns = len(function.parameters), len(function.returns)
    if (len(operands), len(given)) != (takes, returns):
        return (
            f"{function.shown} has {takes} parameters, {returns} results; the call has "
            f"{len(operands)} and {len(given)}"
        )
    formals = (*function.parameters, *function.returns)
    for formal, actual in zip(formals, (*operands, *given), strict=True):
        if isinstance(actual, (Immediate, Sink)):
            continue
        theirs = [bits for bits, _ in _given(writer, actual)]
        if formal.name in unit.addressed:
            wanted = [32] * -(-formal.size // 4)
        else:
            wanted = [bits for bits, _ in _pieces(unit, formal.name)]
        if wanted and theirs != wanted:
            return (
                f"{demangled(formal.name)} of {function.shown} has {sum(wanted)} bits "
                f"in {len(wanted)} pieces; given {sum(theirs)} in {len(theirs)}"
            )
    return ""


def _callable(
    writer: Writer, given: tuple[Operand, ...], operands: tuple[Operand, ...]
) -> list[PlacedFunction]:
    """The functions that a call by address may go to."""
    return [
        unit
        for unit in writer.program.units.values()
        if not unit.function.kernel and not _mismatch(writer, unit, given, operands)
    ]


def _enter(
    writer: Writer, unit: PlacedFunction, given: tuple[Operand, ...], lanes: str
) -> None:
    """Go into a function with its arguments, for some lanes."""
    if unit.recursive:
        _save(writer, unit, lanes)
    moves: list[tuple[int, int, int | str]] = []
    for formal, actual in zip(unit.function.parameters, given, strict=True):
        if formal.name in unit.addressed:
            _to_local(writer, unit, formal.name, _given(writer, actual), lanes)
            continue
        goals = _pieces(unit, formal.name)
        sources: Sequence[int | str]
        if isinstance(actual, Immediate):
            sources = _constant_pieces(writer, actual, formal.type, goals)
        else:
            sources = [at for _, at in _given(writer, actual)]
        moves += [(*to, of) for to, of in zip(goals, sources, strict=False)]
    if unit is writer.unit:
        moves = _kept_apart(writer, moves, lanes)
    for bits, place, source in moves:
        _copy(writer, bits, place, source, lanes)
    failed = writer.call(
        CALL,
        "ptr %warp",
        "ptr %block",
        f"i32 {writer.block.number + 1}",
        f"i32 {unit.entry}",
        f"i32 {lanes}",
        f"i32 {writer.site()}",
        returns="i32",
    )
    writer.stop_if(failed)


def _constant_pieces(
    writer: Writer, constant: Immediate, kind: str, goals: list[tuple[int, int]]
) -> list[str]:
    """The pieces of a parameter that is given as a constant."""
    number, found = immediate_bits(constant, kind), []
    for bits, _ in goals:
        found.append(writer.address(writer.constant(bits, number)))
        number >>= bits
    return found


def _kept_apart(
    writer: Writer, moves: list[tuple[int, int, int | str]], lanes: str
) -> list[tuple[int, int, int | str]]:
    """Copy arguments first: a recursive call may pass one parameter as another."""
    if len(moves) > layout.RESULT_WORDS:
        raise Error(
            f"{writer.unit.function.shown} calls itself with more than "
            f"{layout.RESULT_WORDS} words; this is not supported"
        )
    apart: list[tuple[int, int, int | str]] = []
    for number, (bits, place, source) in enumerate(moves):
        between = layout.RESULTS + 8 * LANES * number
        _copy(writer, bits, between, source, lanes)
        apart.append((bits, place, between))
    return apart


def _to_local(
    writer: Writer,
    unit: PlacedFunction,
    name: str,
    pieces: list[tuple[int, int]],
    lanes: str,
) -> None:
    """Put an argument into the local memory of a function that takes its address."""
    first = unit.local[name]
    if unit.recursive:
        place = writer.address(writer.temporary(64))
        frame = writer.at("%warp", unit.frame_register)
        writer.call(warps.FRAME, f"ptr {place}", f"ptr {frame}", f"i64 {first}")
    else:
        place = writer.address(writer.constant(64, unit.frame_start + first))
    offset = 0
    for bits, source in pieces:
        data = [(MEMORY, writer.at("%warp", source))]
        data += [
            (SHADOWS[plane], _shadow(writer, bits, source, plane))
            for plane in range(writer.mode.shadows)
        ]
        for memory, value in data:
            failed = writer.call(
                store(AccessForm("local", bits, bits)),
                *memory,
                f"ptr {place}",
                f"i64 {offset}",
                f"i32 {lanes}",
                f"i32 {writer.site()}",
                f"ptr {value}",
                returns="i32",
            )
            writer.stop_if(failed)
        offset += bits // 8


def _kept(writer: Writer, unit: PlacedFunction) -> list[tuple[int, int]]:
    """What a call saves of a function: the bits and the place of each register.

    Their shadows are saved, too.
    """
    found = [(1, unit.carry), (32, unit.frame_register)]
    for register in unit.function.registers:
        found += _register_pieces(unit, register)
    for name, first in unit.words.items():
        if not any(first == place for _, place in found):
            found += _pieces(unit, name)
    known = writer.program.shadows
    shadows = [(bits, at) for bits, place in found for at in known.get(place, ())]
    return found + shadows


def _save(writer: Writer, unit: PlacedFunction, lanes: str) -> None:
    """Save the registers of a function that may be active already."""
    for bits, place in _kept(writer, unit):
        failed = writer.call(
            PUSH[bits],
            "ptr %warp",
            "ptr %block",
            f"ptr {writer.at('%warp', place)}",
            f"i32 {lanes}",
            f"i32 {writer.site()}",
            returns="i32",
        )
        writer.stop_if(failed)
    failed = writer.call(
        ENTER_FRAME,
        "ptr %warp",
        "ptr %block",
        f"ptr {writer.at('%warp', unit.frame_register)}",
        f"i32 {unit.frame}",
        f"i32 {lanes}",
        f"i32 {writer.site()}",
        returns="i32",
    )
    writer.stop_if(failed)


def _copy(writer: Writer, bits: int, goal: int, source: int | str, lanes: str) -> None:
    """Copy a register or a constant; its shadow goes with it."""
    pairs = [(goal, source if isinstance(source, str) else writer.at("%warp", source))]
    for plane, shadow in enumerate(writer.program.shadows.get(goal, ())):
        pairs.append((shadow, _shadow(writer, bits, source, plane)))
    for place, value in pairs:
        to = writer.at("%warp", place)
        writer.call(COPY[bits], f"ptr {to}", f"ptr {value}", f"i32 {lanes}")


def _shadow(writer: Writer, bits: int, source: int | str, plane: int) -> str:
    """Where a shadow of a register is; zeros if it has none."""
    found = writer.program.shadows.get(source) if isinstance(source, int) else None
    if found is not None:
        return writer.at("%warp", found[plane])
    return writer.address(writer.constant(bits, 0))


def _indirect(
    writer: Writer,
    goal: Register,
    given: tuple[Operand, ...],
    operands: tuple[Operand, ...],
) -> None:
    """Call whatever function each lane has the address of."""
    pointer = writer.pointer(goal, "b64")
    lanes = writer.lanes()
    behind = writer.unit.at[writer.index + 1]
    all_to(writer, behind)
    for unit in _callable(writer, given, operands):
        address = writer.program.addresses[unit.function.name]
        some = writer.call(
            SAME, f"ptr {pointer}", f"i64 {address}", f"i32 {lanes}", returns="i32"
        )
        skip, enter = writer.new_label(), writer.new_label()
        any_ = writer.value(f"icmp ne i32 {some}, 0")
        writer.line(f"br i1 {any_}, label %{enter}, label %{skip}")
        writer.label(enter)
        _enter(writer, unit, operands, some)
        writer.line(f"br label %{skip}")
        writer.label(skip)
    failed = writer.call(
        UNCALLED,
        "ptr %warp",
        f"ptr {pointer}",
        f"i32 {behind}",
        f"i32 {lanes}",
        f"i32 {writer.site()}",
        returns="i32",
    )
    writer.stop_if(failed)


def after_call(writer: Writer, instruction: Instruction) -> None:
    """Write what a lane does when it returns: take results, restore registers."""
    given, goal, operands = _call_parts(instruction)
    module = writer.program.module
    lanes = writer.active()
    if isinstance(goal, Register):
        for unit in _callable(writer, given, operands):
            some = writer.call(
                LAST,
                "ptr %warp",
                "ptr %block",
                f"i32 {unit.entry}",
                f"i32 {lanes}",
                returns="i32",
            )
            _come_back(writer, unit, given, some)
        return
    name = module.aliases.get(name_of(goal), name_of(goal))
    if _called(module, name, given, operands).declared_only:
        return
    _come_back(writer, writer.program.units[name], given, lanes)


def _come_back(
    writer: Writer, unit: PlacedFunction, given: tuple[Operand, ...], lanes: str
) -> None:
    """Copy results to temporary places: restoring registers may overwrite them."""
    moves: list[tuple[int, int, int]] = []
    for formal, actual in zip(unit.function.returns, given, strict=True):
        if isinstance(actual, Sink):
            continue
        goals, sources = _given(writer, actual), _pieces(unit, formal.name)
        pieces = zip(goals, sources, strict=False)
        moves += [(bits, goal, source) for (bits, goal), (_, source) in pieces]
    if not unit.recursive:
        for bits, goal, source in moves:
            _copy(writer, bits, goal, source, lanes)
        return
    if len(moves) > layout.RESULT_WORDS:
        raise Error(
            f"{unit.function.shown} returns more than {layout.RESULT_WORDS} words and "
            "calls itself; this is not supported"
        )
    places = [layout.RESULTS + 8 * LANES * number for number in range(len(moves))]
    for place, (bits, _, source) in zip(places, moves, strict=True):
        _copy(writer, bits, place, source, lanes)
    writer.call(LEAVE_FRAME, "ptr %warp", f"i32 {unit.frame}", f"i32 {lanes}")
    for bits, place in reversed(_kept(writer, unit)):
        where = f"ptr {writer.at('%warp', place)}"
        writer.call(POP[bits], "ptr %warp", "ptr %block", where, f"i32 {lanes}")
    for place, (bits, goal, _) in zip(places, moves, strict=True):
        _copy(writer, bits, goal, place, lanes)


def _host(
    writer: Writer,
    function: Function,
    given: tuple[Operand, ...],
    operands: tuple[Operand, ...],
) -> None:
    """A function that the host carries out: its arguments are in memory already."""
    why = missing(function.name)
    if why:
        raise Error(why)
    if function.name not in HOST_FUNCTIONS:
        writer.fault(Fault.UNSUPPORTED)
        return
    sizes = HOST_FUNCTIONS[function.name]
    found = [_given(writer, each) for each in (*given, *operands)]
    words = [[bits for bits, _ in each] for each in found]
    if words != [[32] * size for some in sizes for size in some]:
        raise BadOperands(
            f"{function.name} takes parameters of {_counts(sizes[1])} words and gives "
            f"{_counts(sizes[0])}"
        )
    for bits, place in found[0] if given else ():  # what the host returns is defined
        for shadow in writer.program.shadows.get(place, ()):
            to = writer.at("%warp", shadow)
            nothing = writer.address(writer.constant(bits, 0))
            writer.call(
                COPY[bits], f"ptr {to}", f"ptr {nothing}", f"i32 {writer.lanes()}"
            )
    places = [each[0][1] for each in found]
    data = b"".join(place.to_bytes(8, "little") for place in places)
    table = writer.at("%constants", writer.data(data))
    number = list(HOST_FUNCTIONS).index(function.name)
    failed = writer.call(
        HOST,
        "ptr %warp",
        "ptr %block",
        f"i32 {number}",
        f"ptr {table}",
        f"i32 {writer.lanes()}",
        f"i32 {writer.site()}",
        returns="i32",
    )
    writer.stop_if(failed)


def _counts(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers)) or "nothing"


# ── routines ────────────────────────────────────────────────────────────────


def _call(
    code: Code,
    warp: Raw,
    block: Raw,
    after: Value,
    entry: Value,
    lanes: Value,
    number: Value,
) -> Value:
    b = code.builder
    depth = field(code, warp, layout.DEPTH, I32)
    pcs = field(code, warp, layout.PC, I32)
    calls = field(code, warp, layout.CONTEXT, I32)
    failed = code.variable(number.lift(0))
    with code.loop(LANES) as lane, code.when(has(lanes, lane)):
        top = depth[lane]
        with code.when(top >= layout.RETURNS):
            nowhere = Value(b, ir.Constant(I64, 0))
            fault(code, warp, Fault.DEPTH, number, lane, nowhere, 0)
            failed.value = number.lift(1)
        with code.when(top < layout.RETURNS):
            stack = return_addresses(code, warp, block, lane)
            b.store(after.raw, b.gep(stack, [top.raw]))
            b.store(entry.raw, b.gep(stack, [(top + layout.RETURNS).raw]))
            before = calls[lane]
            b.store(before.raw, b.gep(stack, [(top + 2 * layout.RETURNS).raw]))
            calls[lane] = before * 1_000_003 + after + 1
            depth[lane] = top + 1
            pcs[lane] = entry
    field(code, warp, layout.MOVED, I32)[0] = lanes.lift(1)
    return failed.value


def _last(code: Code, warp: Raw, block: Raw, entry: Value, lanes: Value) -> Value:
    """The lanes that come back from a function, by its first code block."""
    b = code.builder
    depth = field(code, warp, layout.DEPTH, I32)
    found = code.variable(lanes.lift(0))
    with code.loop(LANES) as lane, code.when(has(lanes, lane)):
        stack = return_addresses(code, warp, block, lane)
        called = Value(b, b.load(b.gep(stack, [(depth[lane] + layout.RETURNS).raw])))
        bit = lanes.lift(1) << convert(lane, I32)
        with code.when(called == entry):
            found.value = found.value | bit
    return found.value


def _copy_lanes(bits: int) -> Trace:
    def trace(code: Code, goal: Raw, source: Raw, lanes: Value) -> None:
        b = code.builder
        if bits == 1:
            word, given = field(code, goal, 0, I32), field(code, source, 0, I32)
            word[0] = (word[0] & ~lanes) | (given[0] & lanes)
            return
        of = ir.VectorType(ir.IntType(bits), LANES).as_pointer()
        to = b.bitcast(goal, of)
        new, old = b.load(b.bitcast(source, of)), b.load(to)
        new.align = old.align = 16
        b.store(b.select(warps.to_lanes(lanes).raw, new, old), to).align = 16

    return trace


def _same(code: Code, register: Raw, address: Value, lanes: Value) -> Value:
    b = code.builder
    wide = ir.VectorType(I64, LANES)
    loaded = b.load(b.bitcast(register, wide.as_pointer()))
    loaded.align = 16
    return warps.to_word(Value(b, loaded) == address) & lanes


def _uncalled(
    code: Code, warp: Raw, register: Raw, here: Value, lanes: Value, number: Value
) -> Value:
    """A fault if a lane called an address without a function: it has not moved."""
    b = code.builder
    pcs = field(code, warp, layout.PC, I32)
    goals = b.bitcast(register, I64.as_pointer())
    failed = code.variable(number.lift(0))
    with code.loop(LANES) as lane:
        still = has(lanes, lane) & (pcs[lane] == here)
        with code.when(still & (failed.value == 0)):
            address = lane_of(code, goals, lane)
            fault(code, warp, Fault.BOUNDS, number, lane, address, 16)
            failed.value = number.lift(1)
    return failed.value


def _saved(code: Code, warp: Raw, block: Raw, lane: Value) -> tuple[Raw, Value]:
    """The words of saved registers of a lane, and how many there may be."""
    b = code.builder
    number = convert(field(code, warp, layout.WARP_NUMBER, I32)[0], I64)
    size = field(code, block, layout.BLOCK_SAVED_SIZE, I64)[0]
    base = pointer_at(code, block, layout.BLOCK_SAVED)
    memory = b.gep(base, [((number * LANES + lane) * size).raw])
    most = convert(Value(b, b.lshr(size.raw, ir.Constant(I64, 3))), I32)
    return b.bitcast(memory, I64.as_pointer()), most


def _push(bits: int) -> Trace:
    """Save a register for some lanes; 1 if there is no more room."""

    def trace(
        code: Code, warp: Raw, block: Raw, register: Raw, lanes: Value, number: Value
    ) -> Value:
        b = code.builder
        failed = code.variable(number.lift(0))
        used = field(code, warp, layout.SAVED, I32)
        with code.loop(LANES) as lane, code.when(has(lanes, lane)):
            words, most = _saved(code, warp, block, lane)
            top = used[lane]
            with code.when(top >= most):
                fault(code, warp, Fault.STACK, number, lane, convert(top, I64), 0)
                failed.value = number.lift(1)
            with code.when(top < most):
                value = _lane_bits(code, register, bits, lane)
                b.store(value.raw, b.gep(words, [top.raw]))
                used[lane] = top + 1
        return failed.value

    return trace


def _pop(bits: int) -> Trace:
    """Restore a register for some lanes."""

    def trace(code: Code, warp: Raw, block: Raw, register: Raw, lanes: Value) -> None:
        b = code.builder
        used = field(code, warp, layout.SAVED, I32)
        with code.loop(LANES) as lane, code.when(has(lanes, lane)):
            words, _ = _saved(code, warp, block, lane)
            top = used[lane] - 1
            used[lane] = top
            value = Value(b, b.load(b.gep(words, [top.raw])))
            _put_lane_bits(code, register, bits, lane, value)

    return trace


def _lane_bits(code: Code, register: Raw, bits: int, lane: Value) -> Value:
    """What a lane has in a register, as 64 bits."""
    b = code.builder
    if bits == 1:
        word = Value(b, b.load(b.bitcast(register, I32.as_pointer())))
        return convert((word >> convert(lane, I32)) & 1, I64)
    of = ir.IntType(bits)
    found = b.load(b.gep(b.bitcast(register, of.as_pointer()), [lane.raw]))
    return convert(Value(b, found), I64, signed=False)


def _put_lane_bits(
    code: Code, register: Raw, bits: int, lane: Value, value: Value
) -> None:
    b = code.builder
    if bits == 1:
        place = b.bitcast(register, I32.as_pointer())
        word = Value(b, b.load(place))
        bit = word.lift(1) << convert(lane, I32)
        chosen = (word & ~bit) | (convert(value, I32) << convert(lane, I32))
        b.store(chosen.raw, place)
        return
    of = ir.IntType(bits)
    place = b.gep(b.bitcast(register, of.as_pointer()), [lane.raw])
    b.store(convert(value, of).raw, place)


def _enter_frame(
    code: Code,
    warp: Raw,
    block: Raw,
    frame: Raw,
    size: Value,
    lanes: Value,
    number: Value,
) -> Value:
    """Allocate a new frame in local memory for some lanes."""
    stack = field(code, warp, layout.STACK, I32)
    frames = field(code, frame, 0, I32)
    most = field(code, block, layout.BLOCK_LOCAL_SIZE, I64)[0]
    failed = code.variable(number.lift(0))
    with code.loop(LANES) as lane, code.when(has(lanes, lane)):
        start = stack[lane]
        end = start + size
        with code.when(convert(end, I64) > most):
            fault(code, warp, Fault.STACK, number, lane, convert(end, I64), 0)
            failed.value = number.lift(1)
        frames[lane] = start
        stack[lane] = end
    return failed.value


def _leave_frame(code: Code, warp: Raw, size: Value, lanes: Value) -> None:
    """Free the frame of some lanes."""
    stack = field(code, warp, layout.STACK, I32)
    with code.loop(LANES) as lane, code.when(has(lanes, lane)):
        stack[lane] = stack[lane] - size


def _ask_host(
    code: Code,
    warp: Raw,
    block: Raw,
    number: Value,
    table: Raw,
    lanes: Value,
    site: Value,
) -> Value:
    """Call a function of the host for some lanes; it returns 0, or a fault."""
    b = code.builder
    host = pointer_at(code, block, layout.BLOCK_HOST)
    kind = ir.FunctionType(I32, [P, P, I32, P, I32])
    given = [warp, block, number.raw, table, lanes.raw]
    answer = code.variable(number.lift(0))
    with code.when(lanes != 0):
        answer.value = Value(b, b.call(b.bitcast(host, kind.as_pointer()), given))
        with code.when(answer.value != 0):
            none = Value(b, ir.Constant(I64, 0))
            lane = convert(warps.first_lane(lanes), I64)
            fault(code, warp, Fault.HOST, site, lane, none, 0)
    return answer.value


CALL = routine("call", _call, [P, P, I32, I32, I32, I32], I32)
LAST = routine("last", _last, [P, P, I32, I32], I32)
COPY = {
    bits: routine(f"copy.{bits}", _copy_lanes(bits), [P, P, I32], None)
    for bits in (1, 8, 16, 32, 64)
}
SAME = routine("same", _same, [P, I64, I32], I32)
UNCALLED = routine("uncalled", _uncalled, [P, P, I32, I32, I32], I32)
ENTER_FRAME = routine("enter_frame", _enter_frame, [P, P, P, I32, I32, I32], I32)
LEAVE_FRAME = routine("leave_frame", _leave_frame, [P, I32, I32], None)
HOST = routine("host", _ask_host, [P, P, I32, P, I32, I32], I32)
PUSH = {
    bits: routine(f"push.{bits}", _push(bits), [P, P, P, I32, I32], I32)
    for bits in (1, 8, 16, 32, 64)
}
POP = {
    bits: routine(f"pop.{bits}", _pop(bits), [P, P, P, I32], None)
    for bits in (1, 8, 16, 32, 64)
}
