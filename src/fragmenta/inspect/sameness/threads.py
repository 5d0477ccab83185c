"""What the threads of a launch compute, if each of them works for itself.

All threads are followed at once.  What depends on the thread alone, such as an address,
is an array with a number for each.  What depends on numbers in memory is a node of a
graph (:mod:`fragmenta.inspect.sameness.cones`).  Where threads go different ways they
become different groups; where data decides, both ways are followed, and results are
chosen by the condition.  So what is said of a graph is said of every path.

It gives up (:class:`Unfit`) where threads work together, where data is an address, and
where there are too many ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt.accessing import element_type, space_of
from fragmenta.engine.simt.arguments import Arguments
from fragmenta.engine.simt.emitter import immediate_bits
from fragmenta.engine.simt.layout import SLOT_BITS
from fragmenta.engine.simt.program import parameter_offsets
from fragmenta.errors import Error
from fragmenta.inspect.sameness.calls import Call
from fragmenta.inspect.sameness.cones import (
    WIDTHS,
    Computed,
    ConeNode,
    Nodes,
    Words,
    runner,
)
from fragmenta.inspect.sameness.naming import Root
from fragmenta.launch.options import check_shape
from fragmenta.ptx.checking.mnemonics import reading
from fragmenta.ptx.module import (
    Address,
    Immediate,
    Instruction,
    Label,
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
)
from fragmenta.ptx.opcodes.table import TABLE, TYPES, Match

MOST_THREADS = 1 << 16
MOST_STEPS = 1 << 13
"""Instructions of all ways together."""
MOST_WAYS = 64
NOWHERE = np.uint64(2**63)
"""The place of a thread that does not load."""
Threads = NDArray[np.bool_]
Number = ConeNode | Words
"""What a register holds: a node, or a number for each thread."""
_ENDS = frozenset({"ret", "exit"})
_WORDS = frozenset({"global", "nc", "weak", "relaxed", "cta", "gpu", "L1", "ca", "cg"})


class Unfit(Exception):
    """The threads of a launch cannot be followed in this way."""


class Input(NamedTuple):
    """An input: the label of its memory, and for each thread which byte it is."""

    label: str
    bytes: Words


class Stored(NamedTuple):
    """What each thread of a group leaves at an address."""

    address: Words
    value: ConeNode


@dataclass
class _State:
    """What threads have at one place of the program."""

    registers: dict[int, Number] = field(default_factory=dict)
    stores: list[Stored] = field(default_factory=list)

    def copy(self) -> _State:
        return _State(dict(self.registers), list(self.stores))


class Stores(NamedTuple):
    """What the threads of a group leave."""

    threads: Threads
    stores: list[Stored]


@dataclass(eq=False)
class Inputs:
    """The inputs of the threads of two programs: they share what is the same."""

    nodes: Nodes = field(default_factory=Nodes)
    every: list[Input | Words] = field(default_factory=list)
    """By number: what is loaded, or a number of each thread that is computed with."""
    _known: dict[tuple[object, ...], ConeNode] = field(default_factory=dict)

    def loaded(self, label: str, bytes_: Words, bits: int, name: str) -> ConeNode:
        """The input at some bytes of a memory."""
        return self._of((label, bytes_.tobytes(), bits), Input(label, bytes_), name)

    def own(self, numbers: Words, bits: int) -> ConeNode:
        """A number that each thread has."""
        return self._of(("", numbers.tobytes(), bits), numbers, "")

    def _of(self, key: tuple[object, ...], what: Input | Words, name: str) -> ConeNode:
        if key not in self._known:
            bits = int(str(key[2]))
            self._known[key] = self.nodes.input(bits, len(self.every), name)
            self.every.append(what)
        return self._known[key]


class Following:
    """Follows all threads of one launch."""

    def __init__(self, call: Call, roots: Sequence[Root], inputs: Inputs) -> None:
        contract = bool(call.options.get("contract", True))
        kernel = call.kernel
        self.function = kernel.loaded.changed(contract).functions[kernel.name]
        self.shape = check_shape(self.function, call.grid, call.block)
        self.count = int(np.prod(self.shape.grid)) * self.shape.threads
        if self.count > MOST_THREADS or call.options.get("cluster"):
            raise Unfit("too many threads")
        self.arguments = Arguments(self.function, call.arguments, kernel.names)
        self.roots, self.inputs, self.nodes = roots, inputs, inputs.nodes
        self._steps = self._ways = 0
        self.loads: list[Input] = []
        """What was loaded of memory as it was before the launch."""
        self._offsets = parameter_offsets(self.function)
        self._runs: dict[tuple[object, ...], object] = {}

    def followed(self) -> list[Stores]:
        """What each group of threads leaves."""
        everyone = np.ones(self.count, bool)
        try:
            return self._run(0, _State(), everyone)
        except (Error, KeyError, StopIteration) as why:
            raise Unfit(str(why)) from why

    def on_this_machine(self, address: Words) -> Words:
        """Addresses of the launch as those of its arrays; 0 if they are in none."""
        found = np.zeros_like(address)
        for segment, (start, stop) in zip(
            self.arguments.segments, self.arguments.spans, strict=True
        ):
            offset = address - np.uint64(segment.address)
            found = np.where(offset < stop - start, offset + np.uint64(start), found)
        return found

    # ── ways ────────────────────────────────────────────────────────────────

    def _run(self, at: int, state: _State, threads: Threads) -> list[Stores]:
        """Follow threads from an instruction to their end."""
        self._ways += 1
        if self._ways > MOST_WAYS:
            raise Unfit("too many ways")
        listed = self.function.instructions
        while at < len(listed):
            self._steps += 1
            if self._steps > MOST_STEPS:
                raise Unfit("too many steps")
            each = listed[at]
            guard = None if each.guard is None else self._condition(each.guard, state)
            if isinstance(guard, np.ndarray):
                here = guard != 0
                if (here & threads).any() and (~here & threads).any():
                    return [
                        *self._run_on(at, each, state.copy(), threads & here),
                        *self._run(at + 1, state, threads & ~here),
                    ]
                if not (here & threads).any():
                    at += 1
                    continue
                guard = None
            if each.opcode in ("bra", *_ENDS):
                if guard is not None:
                    return self._both(at, each, state, threads, guard)
                if each.opcode != "bra":
                    break
                at = self._goal(each)
                continue
            self._one(each, state, threads, guard)
            at += 1
        return [Stores(threads, state.stores)]

    def _run_on(
        self, at: int, each: Instruction, state: _State, threads: Threads
    ) -> list[Stores]:
        """Go on with threads for which a guard holds."""
        if each.opcode == "bra":
            return self._run(self._goal(each), state, threads)
        if each.opcode in _ENDS:
            return [Stores(threads, state.stores)]
        self._one(each, state, threads, None)
        return self._run(at + 1, state, threads)

    def _goal(self, each: Instruction) -> int:
        goal = each.operands[0]
        if not isinstance(goal, Label):
            raise Unfit("an indirect branch")
        return self.function.labels[goal.name]

    def _both(
        self,
        at: int,
        each: Instruction,
        state: _State,
        threads: Threads,
        guard: ConeNode,
    ) -> list[Stores]:
        """Data decides: follow both ways, and choose what they leave."""
        first = self._run_on(at, each, state.copy(), threads)
        second = self._run(at + 1, state.copy(), threads)
        made = []
        for one in first:
            for two in second:
                common = one.threads & two.threads
                if common.any():
                    made.append(self._chosen(common, guard, one, two))
        return made

    def _chosen(
        self, threads: Threads, guard: ConeNode, one: Stores, two: Stores
    ) -> Stores:
        stores: list[Stored] = []
        for each in (*one.stores, *two.stores):
            place = each.address, each.value.bits
            if any(self._alike(s.address, each.address, threads) for s in stores):
                continue
            yes, no = (self._held(left.stores, *place, threads) for left in (one, two))
            stores.append(Stored(each.address, self.nodes.chosen(guard, yes, no)))
        return Stores(threads, stores)

    # ── memory ──────────────────────────────────────────────────────────────

    def _alike(self, one: Words, two: Words, threads: Threads) -> bool:
        return bool((one[threads] == two[threads]).all())

    def _held(
        self, stores: Sequence[Stored], address: Words, bits: int, threads: Threads
    ) -> ConeNode:
        """What memory holds at an address, for each of the threads."""
        for each in reversed(stores):
            if each.value.bits == bits and self._alike(each.address, address, threads):
                return each.value
            low, high = each.address[threads], address[threads]
            size, wanted = np.uint64(each.value.bits // 8), np.uint64(bits // 8)
            if ((low < high + wanted) & (high < low + size)).any():
                raise Unfit("a part of what was stored is loaded")
        return self._initial(address, bits, threads)

    def _initial(self, address: Words, bits: int, threads: Threads) -> ConeNode:
        """What memory held before the launch: the elements of an array."""
        chosen = address[threads]
        slots = chosen >> np.uint64(SLOT_BITS)
        if (slots != slots[0]).any():
            raise Unfit("threads load from several arrays at once")
        span = None
        for segment, (start, _) in zip(
            self.arguments.segments, self.arguments.spans, strict=True
        ):
            if segment.slot == int(slots[0]):
                span = segment, start
        if span is None:
            raise Unfit("memory that is no argument")
        segment, start = span
        offset = address - np.uint64(segment.address)
        if (offset[threads] + np.uint64(bits // 8) > segment.data.size).any():
            raise Unfit("out of bounds")
        root = next(
            e
            for e in self.roots
            if e.start <= start + int(offset[threads][0]) < e.start + e.size
        )
        size = root.bits or 8 * root.array.itemsize
        if size not in WIDTHS:
            raise Unfit("elements of a size that is not followed")
        shift = start - root.start + root.first * size // 8
        at = offset + np.uint64(shift)
        before = at % np.uint64(size // 8)
        first = 8 * int(before[threads][0])
        if (before[threads] != before[threads][0]).any():
            raise Unfit("threads load other parts of an element")
        if size % bits == 0 and first + bits <= size:  # the whole, of which this is one
            whole = self._elements(root, at - before, size, 1, threads)
            return self.nodes.extracted(whole, first, bits)
        if bits % size or first:
            raise Unfit("an element is loaded that is not aligned")
        return self._elements(root, at, size, bits // size, threads)

    def _elements(
        self, root: Root, at: Words, size: int, count: int, threads: Threads
    ) -> ConeNode:
        """Some elements of a memory, one after the other, as one number."""
        for n in range(count):
            there = np.where(threads, at + np.uint64(n * size // 8), NOWHERE)
            self.loads.append(Input(root.label, there))
        parts = [
            self.inputs.loaded(
                root.label,
                np.where(threads, at + np.uint64(n * size // 8), NOWHERE),
                size,
                "" if root.floats is None else root.floats.name,
            )
            for n in range(count)
        ]
        return self.nodes.joined(parts)

    # ── instructions ────────────────────────────────────────────────────────

    def _one(
        self, each: Instruction, state: _State, threads: Threads, guard: ConeNode | None
    ) -> None:
        """Follow one instruction, which data may guard."""
        before = dict(state.registers) if guard is not None else {}
        if each.is_load:
            self._load(each, state, threads)
        elif each.is_store:
            self._store(each, state, threads, guard)
        elif each.is_move:
            self._move(each, state, threads)
        elif each.opcode == "cvta":
            self._write(
                each.operands[0], self._read(each.operands[1], "u64", state), state
            )
        else:
            self._compute(each, state, threads)
        if guard is not None:
            for number, new in list(state.registers.items()):
                old = before.get(number)
                if old is None:
                    raise Unfit("a register that only some inputs write")
                if new is not old:
                    bits = self._bits_of(number)
                    pair = [self._node(e, bits, threads) for e in (new, old)]
                    state.registers[number] = self.nodes.chosen(guard, *pair)

    def _bits_of(self, number: int) -> int:
        register = self.function.registers[number]
        return 1 if register.type == "pred" else max(8, type_bits(register.type))

    def _load(self, each: Instruction, state: _State, threads: Threads) -> None:
        goal, address = each.operands[:2]
        kind, bits = element_type(each), type_bits(element_type(each))
        if not isinstance(address, Address) or bits not in WIDTHS:
            raise Unfit(each.mnemonic)
        items = goal.items if isinstance(goal, Vector) else (goal,)
        if any(word.startswith("param") for word in each.qualifiers):
            for place, item in enumerate(items):
                self._write(item, self._parameter(address, place, kind), state, kind)
            return
        at = self._address(each, address, state)
        for place, item in enumerate(items):
            there = at + np.uint64(place * bits // 8)
            found = self._held(state.stores, there, bits, threads)
            self._write(item, found, state, kind)

    def _parameter(self, address: Address, place: int, kind: str) -> Number:
        base, size = address.base, type_bits(kind) // 8
        if not isinstance(base, Symbol) or base.name not in self._offsets:
            raise Unfit("a parameter by its address")
        first = self._offsets[base.name] + base.offset + address.offset + place * size
        data = self.arguments.parameters[first : first + size].tobytes()
        return self.nodes.constant(8 * size, int.from_bytes(data, "little"))

    def _address(self, each: Instruction, address: Address, state: _State) -> Words:
        words = {
            word.partition("::")[0] for word in each.qualifiers if word not in TYPES
        }
        if space_of(each) not in ("global", "generic", "") or words - _WORDS - {
            "v2",
            "v4",
        }:
            raise Unfit(each.mnemonic)
        if not isinstance(address.base, Register) or address.items:
            raise Unfit("an address that is no register")
        found = self._read(address.base, "u64", state)
        offset = np.uint64(address.offset % 2**64)
        if isinstance(found, np.ndarray):
            return found + offset
        if found.kind == "constant":
            return np.full(self.count, found.about, np.uint64) + offset
        raise Unfit("data is an address")

    def _store(
        self, each: Instruction, state: _State, threads: Threads, guard: ConeNode | None
    ) -> None:
        address, value = each.operands[:2]
        kind, bits = element_type(each), type_bits(element_type(each))
        if not isinstance(address, Address) or bits not in WIDTHS:
            raise Unfit(each.mnemonic)
        at = self._address(each, address, state)
        items = value.items if isinstance(value, Vector) else (value,)
        for place, item in enumerate(items):
            there = at + np.uint64(place * bits // 8)
            made = self._node(self._read(item, kind, state), bits, threads)
            if guard is not None:
                old = self._held(state.stores, there, bits, threads)
                made = self.nodes.chosen(guard, made, old)
            state.stores = [
                s for s in state.stores if not self._alike(s.address, there, threads)
            ]
            state.stores.append(Stored(there, made))

    def _move(self, each: Instruction, state: _State, threads: Threads) -> None:
        goal, source = each.operands
        kind = next(word for word in each.qualifiers if word in TYPES)
        bits = type_bits(kind)
        if each.qualifiers[0] in ("v2", "v4") or bits not in WIDTHS:
            raise Unfit(each.mnemonic)
        if isinstance(source, Vector):
            part = bits // len(source.items)
            parts = [
                self._node(self._read(e, f"b{part}", state), part, threads)
                for e in source.items
            ]
            self._write(goal, self.nodes.joined(parts), state)
        elif isinstance(goal, Vector):
            part = bits // len(goal.items)
            whole = self._node(self._read(source, kind, state), bits, threads)
            for place, item in enumerate(goal.items):
                self._write(
                    item, self.nodes.extracted(whole, place * part, part), state
                )
        else:
            self._write(goal, self._read(source, kind, state), state)

    def _compute(self, each: Instruction, state: _State, threads: Threads) -> None:
        """An instruction of the table that computes in each lane."""
        match = _match(each)
        if match is None or match.syntax.emit is None:
            raise Unfit(each.mnemonic)
        results: list[tuple[Operand, str]] = []
        given: list[Number | None] = []
        kinds: list[int] = []
        extra: list[tuple[str, str]] = []
        rest = list(each.operands)
        for slot in match.syntax.operands:
            if slot.hidden:
                raise Unfit("a carry")
            if not rest:
                given.append(None)
                kinds.append(0)
                continue
            operand = rest.pop(0)
            kind = match.syntax.type_of(slot, match.qualifiers)
            if slot.type == "imm":
                if not isinstance(operand, Immediate):
                    raise Unfit(each.mnemonic)
                extra.append((slot.name, str(operand.value)))
                continue
            if slot.negatable:
                extra.append((f"{slot.name}neg", "-" * isinstance(operand, Negative)))
                operand = operand.of if isinstance(operand, Negative) else operand
            if slot.selector:
                which = operand.which if isinstance(operand, RegisterPart) else ""
                extra.append((slot.selector, which))
                operand = operand.of if isinstance(operand, RegisterPart) else operand
            if slot.result:
                both = (
                    (operand.first, operand.second)
                    if isinstance(operand, Pair)
                    else (operand,)
                )
                results += [(one, kind) for one in both]
                continue
            for one in operand.items if isinstance(operand, Vector) else (operand,):
                given.append(self._read(one, kind, state))
                kinds.append(type_bits(kind))
        how = Computed(each.mnemonic, match, tuple(extra), tuple(kinds))
        self._results(how, results, given, state, threads)

    def _results(
        self,
        how: Computed,
        results: Sequence[tuple[Operand, str]],
        given: Sequence[Number | None],
        state: _State,
        threads: Threads,
    ) -> None:
        here = [
            (each, bits)
            for each, bits in zip(given, how.sources, strict=True)
            if each is not None
        ]
        if any(bits not in (*WIDTHS, 4) for _, bits in here):
            raise Unfit(how.mnemonic)
        plain = all(
            isinstance(each, np.ndarray) or each.kind == "constant" for each, _ in here
        )
        made: list[Number] = []
        for number, (_, kind) in enumerate(results):
            bits = type_bits(kind)
            if bits not in WIDTHS:
                raise Unfit(how.mnemonic)
            if plain:
                made.append(self._numbers(how, here, number, bits))
            else:
                operands = [
                    self._node(
                        e, e.bits if isinstance(e, ConeNode) else max(8, b), threads
                    )
                    for e, b in here
                ]
                made.append(self.nodes.computed(how, operands, number, bits))
        for (goal, kind), value in zip(results, made, strict=True):
            self._write(goal, value, state, kind)

    def _numbers(
        self,
        how: Computed,
        given: Sequence[tuple[Number, int]],
        result: int,
        bits: int,
    ) -> Number:
        """A result that depends on the thread alone."""
        widths = [
            e.bits if isinstance(e, ConeNode) else max(8, b) if b > 1 else 1
            for e, b in given
        ]
        key = *how.key, result, tuple(widths)
        if key not in self._runs:
            nodes = Nodes()
            leaves = [nodes.input(w, n) for n, w in enumerate(widths)]
            root = nodes.computed(how, leaves, result, bits)
            self._runs[key] = runner([root], leaves)
        run = self._runs[key]
        assert callable(run)
        arrays = [
            e if isinstance(e, np.ndarray) else np.array([e.about], np.uint64)
            for e, _ in given
        ]
        size = max(each.size for each in arrays) if arrays else 1
        (found,) = run(*(np.broadcast_to(each, size) for each in arrays))
        if size == 1:
            return self.nodes.constant(bits, int(found[0]))
        numbers: Words = found
        return numbers

    # ── operands ────────────────────────────────────────────────────────────

    def _read(self, operand: Operand, kind: str, state: _State) -> Number:
        bits = type_bits(kind)
        if isinstance(operand, Register):
            found = state.registers.get(operand.number)
            if found is None:
                raise Unfit("a register that was not written")
            return found
        if isinstance(operand, Immediate):
            return self.nodes.constant(max(bits, 1), immediate_bits(operand, kind))
        if isinstance(operand, Special):
            return self._special(operand.name)
        if isinstance(operand, Not):
            return self._condition(operand, state)
        raise Unfit(f"an operand that is a {type(operand).__name__}")

    def _condition(self, guard: Register | Not, state: _State) -> ConeNode | Words:
        """The truth value of a predicate; of a constant, that of each thread."""
        of = guard.of if isinstance(guard, Not) else guard
        found = self._read(of, "pred", state)
        if isinstance(found, ConeNode) and found.kind == "constant":
            found = np.full(self.count, found.about, np.uint64)
        if not isinstance(guard, Not):
            return found
        if isinstance(found, np.ndarray):
            return found ^ np.uint64(1)
        return self.nodes.negated(found)

    def _special(self, name: str) -> Number:
        block, grid = self.shape.block, self.shape.grid
        every = np.arange(self.count, dtype=np.uint64)
        thread = every % np.uint64(self.shape.threads)
        number = every // np.uint64(self.shape.threads)
        for what, of, sizes in (("tid", thread, block), ("ctaid", number, grid)):
            x, y = np.uint64(sizes[0]), np.uint64(sizes[1])
            parts = {"x": of % x, "y": of // x % y, "z": of // (x * y)}
            for axis, found in parts.items():
                if name == f"%{what}.{axis}":
                    return found
                size = sizes["xyz".index(axis)]
                if name == f"%n{what}.{axis}":
                    return self.nodes.constant(32, int(size))
        raise Unfit(name)

    def _write(
        self, goal: Operand, value: Number, state: _State, kind: str = ""
    ) -> None:
        """Put a value into a register, which may be wider than its type."""
        if isinstance(goal, Sink):
            return
        if not isinstance(goal, Register):
            raise Unfit(f"a result that is a {type(goal).__name__}")
        bits, signed = self._bits_of(goal.number), kind.startswith("s")
        if isinstance(value, ConeNode):
            value = self.nodes.resized(value, bits, signed) if bits > 1 else value
        elif bits > 1:
            value = _resized(value, type_bits(kind) if kind else bits, bits, signed)
        state.registers[goal.number] = value

    def _node(self, value: Number, bits: int, threads: Threads) -> ConeNode:
        """A value as a node: what all threads have is a constant."""
        if isinstance(value, ConeNode):
            return self.nodes.resized(value, bits, False)
        own = value & np.uint64((1 << bits) - 1)
        chosen = own[threads]
        if (chosen == chosen[0]).all():
            return self.nodes.constant(bits, int(chosen[0]))
        return self.inputs.own(np.where(threads, own, 0), bits)


def _resized(value: Words, of: int, bits: int, signed: bool) -> Words:
    """Numbers in registers of another width."""
    value = value & np.uint64((1 << of) - 1)
    if signed and bits > of:
        sign = (value >> np.uint64(of - 1) & np.uint64(1)) != 0
        more = np.uint64((1 << bits) - (1 << of))
        value = np.where(sign, value | more, value)
    return value & np.uint64((1 << bits) - 1)


def _match(each: Instruction) -> Match | None:
    """The line of the table for an instruction."""
    count = len(each.operands)
    found = TABLE.find(each.mnemonic, count)
    if found is None:  # ptxas takes modifiers in any order
        every = reading(each.mnemonic).matches
        found = next((e for e in every if e.syntax.takes(count)), None)
    return found
