"""Finds out that no block can go on: nothing changes however many turns they have.

If all threads that are left repeat loads and atomic operations that leave memory as it
is, or wait at barriers, nobody can change the words that they wait for.  That is a
deadlock.  It is certain, because memory stays as it is, each lane has had its turn, and
each block comes back to a state that it was in: the same will happen again and again.

Not found, and left to the limits: loops that store to memory, also if it is always the
same value; loops that read a clock or count how often they ask, if that can end them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt import layout
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.mode import Mode
from fragmenta.engine.simt.program import PlacedFunction, program, register_bytes
from fragmenta.ptx.checking.register_effects import effects, registers
from fragmenta.ptx.families import BARRIERS, FETCHES, STORES
from fragmenta.ptx.flow import BRANCHES
from fragmenta.ptx.module import (
    Address,
    Immediate,
    Instruction,
    Operand,
    Register,
    type_bytes,
)

if TYPE_CHECKING:
    from fragmenta.engine.simt.context import Context
    from fragmenta.launch.launch import Launch
    from fragmenta.launch.runners import Runner

Blocks: TypeAlias = NDArray[np.int64]

EARLY = 4
"""Turns of each block, at least, before it is asked whether nothing changes."""
SURE = 2
"""So often all blocks are back in their states, again, before it is a deadlock."""
_POLLS = frozenset({"loads", "exchanges", "calls"})
"""Kinds that leave memory as it is, besides calculations."""
_ALSO = FETCHES | BARRIERS | {"ret"}
"""Opcodes that may do so, too; atomics are looked at closely."""


class Standstill:
    """Watches the blocks of a launch that have turns."""

    def __init__(self) -> None:
        self._turns = 0
        self._since: dict[int, _Since] = {}
        """What each block has done for some turns, by the identity of its runner."""
        self._sure = 0
        """How often all blocks were back, one time after the other."""
        self._code: _Code | None = None

    def moved(self) -> None:
        """A block has begun or ended."""
        self._turns = self._sure = 0
        self._since.clear()

    def forget(self) -> None:
        """The launch is over: keep nothing of it."""
        self.moved()
        self._code = None

    def turn(self, runner: Runner, blocks: int) -> bool:
        """A runner has had a turn, and has not ended; whether all stand still.

        ``blocks`` is how many runners have blocks that have not ended.
        """
        self._turns += 1
        machine = runner.launch.machine
        if self._turns < EARLY * blocks or (machine and machine.asynchronous):
            return False
        since = self._since.get(id(runner))
        if since is None or not since.only_polled():
            if since is not None:  # whatever the others polled may have changed
                self._since.clear()
            self._since[id(runner)], self._sure = _Since(runner), 0
            return False
        if self._code is None:
            self._code = _Code(runner.launch)
        if not since.look(self._code):
            self._sure = 0
        every = self._since.values()
        if sum(each.back for each in every) < blocks:
            return False
        if not all(each.leaves_memory(self._code) for each in every):
            self._sure = 0
        elif self._sure == SURE:
            return True
        # Some were back before others changed a word: all do it again from here.
        self._sure += 1
        for each in every:
            each.begin()
        return False


class _Since:
    """What a block has done since a state that it may come back to."""

    def __init__(self, runner: Runner) -> None:
        self.runner, self.back = runner, False
        """Whether it was in that state again, and each lane has had its turn."""
        self._age, self._renew = 0, 2
        self.begin()

    def begin(self) -> None:
        """Take the present state for the one to come back to."""
        self.back = False
        self._counts = self.runner.counts.copy()
        self._warps = [each.copy() for each in self._every()]
        for each in self._every():
            _word(each, layout.SEEN)[0] = 0

    def _every(self) -> Iterator[NDArray[np.uint8]]:
        warps = self.runner.launch.shape.warps
        return (c.warp(n) for c in self.runner.contexts for n in range(warps))

    @property
    def ran(self) -> tuple[int, ...]:
        """The code blocks that were executed."""
        return tuple(np.flatnonzero(self.runner.counts != self._counts).tolist())

    def only_polled(self) -> bool:
        """Whether nothing was executed that changes memory, atomics apart."""
        code = self.runner.launch.compiled.counted
        return all(_polls(mnemonic) for block in self.ran for mnemonic in code[block])

    def look(self, code: _Code) -> bool:
        """See whether the block is back in its state.

        After a while it takes another; whether it has not.
        """
        self._age += 1
        if not self.back:
            kept = code.kept(self.ran)
            self.back = all(
                _all_seen(now) and np.array_equal(now[kept], before[kept])
                for now, before in zip(self._every(), self._warps, strict=True)
            )
        late = not self.back and self._age >= self._renew
        if late:
            self._age, self._renew = 0, 2 * self._renew
            self.begin()
        return not late

    def leaves_memory(self, code: _Code) -> bool:
        """Whether no atomic operation changes the word that it reads."""
        ran = self.ran
        atomics, inside = code.atomics(ran), np.array(ran)
        return atomics is not None and all(
            code.leaves(context, context.warp(n), each, inside)
            for each in atomics
            for context in self.runner.contexts
            for n in range(self.runner.launch.shape.warps)
        )


def _word(warp: NDArray[np.uint8], at: int) -> NDArray[np.uint32]:
    return warp[at : at + 4].view(np.uint32)


def _all_seen(warp: NDArray[np.uint8]) -> bool:
    """Whether each lane that has not ended has executed something, or waits."""
    seen = (_word(warp, e)[0] for e in (layout.SEEN, layout.ACTIVE, layout.WAITING))
    return not int(_word(warp, layout.LIVE)[0]) & ~int(np.bitwise_or.reduce([*seen]))


@cache
def _polls(mnemonic: str) -> bool:
    """Whether an instruction leaves memory as it is; an atomic one may do so.

    >>> _polls("ld.acquire.gpu.global.u32"), _polls("red.global.add.u32")
    (True, False)
    """
    # A launch that is not watched loads nothing of the race detector.
    from fragmenta.ptx.opcodes.kinds import kind_of
    from fragmenta.watch.races.probes.polling import is_quiet

    opcode, *words = mnemonic.split(".")
    if opcode in _ALSO or (opcode in STORES and words[0] == "param"):
        return True
    return kind_of(mnemonic).word in _POLLS or is_quiet(mnemonic)


class _Atomic(NamedTuple):
    """An atomic operation whose operands stay as they are."""

    unit: PlacedFunction
    instruction: Instruction
    address: Address
    operands: tuple[Operand, ...]

    def value(self, operand: Operand | int, warp: NDArray[np.uint8], lane: int) -> int:
        """What an operand is in a lane."""
        if isinstance(operand, int):
            return operand
        if isinstance(operand, Immediate):
            return operand.bits
        if not isinstance(operand, Register):
            return -1  # the name of a variable: it is in no memory that is known here
        start, size = self.unit.registers[operand.number], register_bytes(operand)
        each = size // LANES
        at = start + lane * each
        return int.from_bytes(warp[at : at + each].tobytes(), "little")


class _Code:
    """What is read off the text of a kernel."""

    def __init__(self, launch: Launch) -> None:
        self._launch, compiled = launch, launch.compiled
        stepped = Mode.of(tuple(compiled.mode)).stepped
        self._program = program(launch.module(), compiled.kernel, stepped)
        self._kept: dict[tuple[int, ...], NDArray[np.intp]] = {}

    def kept(self, ran: tuple[int, ...]) -> NDArray[np.intp]:
        """The bytes of a warp that decide what some code blocks will do.

        A register that counts how often a word was read decides nothing, if the loop
        does not ask for it.
        """
        if ran not in self._kept:
            kept = np.zeros(self._program.warp_bytes, bool)
            for part in _DECIDES:
                kept[part] = True
            for unit, register in self._idle(ran):
                start = unit.registers[register.number]
                kept[start : start + register_bytes(register)] = False
            self._kept[ran] = np.flatnonzero(kept)
        return self._kept[ran]

    def _parts(self, ran: tuple[int, ...]) -> Iterator[_LoopBody]:
        """The instructions of some code blocks, function by function."""
        blocks = [self._program.blocks[each] for each in ran]
        for unit in {id(block.unit): block.unit for block in blocks}.values():
            own = [each for each in blocks if each.unit is unit]
            yield _LoopBody(unit, [i for each in own for i in each.instructions])

    def _idle(self, ran: tuple[int, ...]) -> Iterator[tuple[PlacedFunction, Register]]:
        """The registers that some code blocks write, and that decide nothing there.

        A loop that only counts is left to the limits: nobody else could end it.
        """
        for part in self._parts(ran):
            if not any(each.is_read for each in part.code):
                continue
            asked = part.asked()
            for each in part.code:
                for register in effects(each).writes:
                    if register.number not in asked:
                        yield part.unit, register

    def atomics(self, ran: tuple[int, ...]) -> list[_Atomic] | None:
        """The atomic operations of some code blocks; None if one has other operands
        each time, or other forms than are known here.
        """
        found = []
        for part in self._parts(ran):
            for each in part.code:
                if each.is_fetch:
                    _, goal, *values = each.operands
                    scalar = all(isinstance(e, Register | Immediate) for e in values)
                    if not isinstance(goal, Address) or not scalar:
                        return None
                    if not all(map(part.stays, registers((goal, *values)))):
                        return None
                    found.append(_Atomic(part.unit, each, goal, tuple(values)))
        return found

    def leaves(
        self, context: Context, warp: NDArray[np.uint8], atomic: _Atomic, ran: Blocks
    ) -> bool:
        """Whether an atomic operation leaves all words as they are, for those lanes of
        a warp that may execute it.
        """
        pcs = warp[layout.PC : layout.PC + 4 * LANES].view(np.int32)
        live = int(_word(warp, layout.LIVE)[0])
        for lane in np.flatnonzero(np.isin(pcs, ran)).tolist():
            if not live >> lane & 1:
                continue
            base, *values = (
                atomic.value(each, warp, lane)
                for each in (atomic.address.base, *atomic.operands)
            )
            held = self._held(context, atomic, base + atomic.address.offset)
            if held is None or not _leaves(atomic.instruction, held, *values):
                return False
        return True

    def _held(self, context: Context, atomic: _Atomic, address: int) -> int | None:
        """The word at an address; None if it is not known where that is."""
        slot, offset = divmod(address, 1 << layout.SLOT_BITS)
        words = atomic.instruction.qualifiers
        shared = any(each.startswith("shared") for each in words)
        if shared or slot == layout.SHARED_SLOT:
            memory = context.parts["shared"]
        else:
            places = self._launch.places
            memory = next((e.data for e in places if e.slot == slot), _NOTHING)
        size = type_bytes(words[-1])
        if not 0 <= offset <= memory.size - size:
            return None
        return int.from_bytes(memory[offset : offset + size].tobytes(), "little")


class _LoopBody(NamedTuple):
    """Instructions of a function that are executed again and again."""

    unit: PlacedFunction
    code: list[Instruction]

    def asked(self) -> set[int]:
        """The numbers of the registers that decide what happens."""
        reads = [
            each
            for each in self.code
            if each.opcode in BRANCHES or not _is_quiet(each.mnemonic)
        ]
        asked: set[int] = set()
        while reads:
            more = {r.number for each in reads for r in effects(each).reads} - asked
            asked |= more
            reads = [
                e for e in self.code if more & {r.number for r in effects(e).writes}
            ]
        return asked

    def stays(self, register: Register, after: tuple[Register, ...] = ()) -> bool:
        """Whether a register is the same each time: it is computed from such ones.

        ``after`` are computed from it: they must not be what it is computed from.
        """
        writers = [e for e in self.code if register in effects(e).writes]
        if not writers:
            return True
        each, after = writers[0], (*after, register)
        plain = all(isinstance(e, Register | Immediate) for e in each.operands)
        alone = len(writers) == 1 and each.guard is None and plain
        reads = effects(each).reads
        return (
            alone
            and not {*reads} & {*after}
            and _is_quiet(each.mnemonic)
            and all(self.stays(read, after) for read in reads)
        )


def _is_quiet(mnemonic: str) -> bool:
    # A launch that is not watched loads nothing of the race detector.
    from fragmenta.watch.races.probes.polling import is_quiet

    return is_quiet(mnemonic)


_NOTHING = np.zeros(0, np.uint8)
_DECIDES = (
    slice(layout.PC, layout.ACTIVE),
    slice(layout.LIVE, layout.WAITING),
    slice(layout.ARRIVED, layout.STATUS),
    slice(layout.TIME, layout.TICKETS),
    slice(layout.STACK, layout.RAN),
    slice(layout.SAVED, layout.TEMPORARY),
    slice(layout.RESULTS, None),
)
"""The parts of a warp that say what it does; not whose turn it is, nor how often it
was at a barrier."""


def _leaves(atomic: Instruction, held: int, *values: int) -> bool:
    """Whether an atomic operation leaves a word as it is."""
    kind, bits = atomic.qualifiers[-1], 8 * type_bytes(atomic.qualifiers[-1])
    whole = (1 << bits) - 1
    first, *more = (each & whole for each in values)
    words = set(atomic.qualifiers)
    if "cas" in words:
        return held != first or more[0] == held
    if "exch" in words:
        return first == held
    if kind.startswith(("f", "bf")):
        return False
    if "and" in words:
        return held & first == held
    if "or" in words:
        return held | first == held
    if words & {"min", "max"}:
        sign = 1 << bits - 1 if kind.startswith("s") else 0
        less = held ^ sign <= first ^ sign
        return held == first or less == ("min" in words)
    return bool(words & {"add", "xor"}) and not first
