"""Instrumentation that records what synchronises threads, and what they access.

Every barrier, every meeting of the lanes of a warp, every strong access and every
ordinary one is an event.  What asynchronous units do are events anyway.  The observer
is :mod:`fragmenta.watch.races.recording.recorder`.

The words of these events:

- ``arrives``, the mode and the operands of a barrier of the block: lanes are about to
  arrive there, or poll it;
- ``met``: lanes of a warp go on together;
- ``leaves``: lanes end;
- ``accesses``, ``read`` or ``write``, the bytes of each lane, and the window: a plain
  access is about to happen;
- ``flag``, the opcode, the operation, the type, the window, the scope, the order, and
  what a loop on it waits for: a strong access.  That is a comparison, with a mask; or
  ``loop``: then the registers that the loop starts from are an operand.
"""

from __future__ import annotations

from typing import Any

from fragmenta.engine.simt.emitter import InMemory, Writer, immediate_bits
from fragmenta.engine.simt.events import described, if_some, located, notify, tell
from fragmenta.engine.simt.memory import AccessForm
from fragmenta.engine.simt.probes import Probes
from fragmenta.engine.simt.program import meets
from fragmenta.ptx.module import Address, Immediate, Instruction, Sink, Vector
from fragmenta.ptx.opcodes.atomics import OPERATIONS
from fragmenta.ptx.opcodes.table import TYPES
from fragmenta.ptx.ordering import role, scope
from fragmenta.watch.races.probes.polling import condition, looped
from fragmenta.watch.races.probes.windows import FAR, NEAR, window_of


class OrderProbes(Probes):
    """The instrument that records synchronisation."""

    def before(self, writer: Writer, instruction: Instruction) -> None:
        """Lanes that execute a ``.sync`` instruction have met."""
        if meets(instruction) and not instruction.is_barrier:
            tell(writer, ["met"], [])

    def access(
        self,
        writer: Writer,
        instruction: Instruction,
        what: AccessForm,
        at: InMemory,
        offset: int,
        registers: list[str],
        kind: str,
        banks: bool = True,
    ) -> None:
        """A load, a store or an atomic operation is about to happen."""
        if what.space == "local" or not window_of(instruction):
            return
        window = FAR if what.space == "global" else NEAR
        place = located(writer, at, offset)
        if role(instruction) is None:
            values = _values(writer) if kind == "write" and what.elements == 1 else []
            words = ["accesses", kind, str(what.bytes), window]
            tell(writer, words, [place, *values])
            return
        words, ends = _strong(instruction, window), _condition(writer)
        tell(writer, [*words, *ends[:2]], [place, *ends[2:], *_values(writer)])

    def matrix_rows(
        self,
        writer: Writer,
        at: InMemory,
        offset: int,
        used: int,
        stores: bool,
        values: str,
        width: int,
    ) -> None:
        """The rows of ``ldmatrix`` or ``stmatrix``: some lanes have their addresses."""
        kind = "write" if stores else "read"
        mask = (1 << used) - 1
        some = writer.value(f"and i32 {writer.lanes()}, {mask - (mask >> 31 << 32)}")
        with if_some(writer, some):
            words = ["accesses", kind, str(width), NEAR]
            notify(writer, words, [located(writer, at, offset)], some)

    def barrier_arrives(self, writer: Writer, number: str, mode: str) -> None:
        """Lanes arrive at a barrier of the block, or poll it."""
        instruction = writer.unit.function.instructions[writer.index]
        operands = list(instruction.operands)
        if instruction.votes:
            operands = operands[1:-1]
        tell(writer, ["arrives", mode], [described(writer, each) for each in operands])

    def warp_barrier_passed(self, writer: Writer, passed: str) -> None:
        """Lanes have passed a ``bar.warp.sync``; others did before, or will later."""
        (mask,) = writer.unit.function.instructions[writer.index].operands
        with if_some(writer, passed):
            notify(writer, ["met"], [described(writer, mask)], passed)

    def leaves(self, writer: Writer) -> None:
        """Lanes are about to end."""
        tell(writer, ["leaves"], [])


def _strong(instruction: Instruction, window: str) -> list[str]:
    """The words of the event of a strong access."""
    words = instruction.qualifiers
    operation = next((w for w in words if w in OPERATIONS), "")
    if not instruction.is_update:
        operation = ""
    kind = next(word for word in reversed(words) if word in TYPES)
    reach = scope((instruction.opcode, *words)).name.lower()
    orders = [w for w in words if w in ("acquire", "release", "acq_rel")]
    sense = orders[0] if orders else "relaxed"
    return ["flag", instruction.opcode, operation, kind, window, reach, sense]


LOOP = "loop"
"""Stands for a comparison, if the loop has to be run to know whether it ends."""


def _condition(writer: Writer) -> list[Any]:
    """What a loop on this access waits for: how it compares, a mask, the operand."""
    function, index = writer.unit.function, writer.index
    found, loop = condition(function, index), looped(function, index)
    if loop is not None and (found is None or any(e is not None for e in loop.sources)):
        inputs = [described(writer, each) for each in loop.inputs]
        return [LOOP, "", ["v", inputs]]
    if found is None:
        return ["", "", ["_"]]
    compare = f"{found.compare}.s" if found.signed else found.compare
    return [compare, str(found.mask), described(writer, found.against)]


def _values(writer: Writer) -> list[list[Any]]:
    """The operands of the present instruction that are no address and no result."""
    instruction = writer.unit.function.instructions[writer.index]
    given = list(instruction.operands)
    if instruction.is_read:
        given = given[1:]
    found: list[list[Any]] = []
    kind = next(word for word in reversed(instruction.qualifiers) if word in TYPES)
    for each in given:
        if isinstance(each, Address):
            continue
        if isinstance(each, Sink | Vector):
            found.append(["_"])
        elif isinstance(each, Immediate):
            found.append(["i", immediate_bits(each, kind)])
        else:
            found.append(described(writer, each))
    return found
