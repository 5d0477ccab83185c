"""Probes: the places where instrumentation may add to the code of a kernel.

The compiler calls a probe at every memory access, barrier and exit.  :class:`Probes`
adds nothing.  An instrument, such as the race detector, is a subclass that emits calls
of its own routines.  This room knows none of them: the caller that asks for machine
code passes the instrument.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fragmenta.engine.simt.emitter import InMemory, Writer
    from fragmenta.engine.simt.memory import AccessForm
    from fragmenta.engine.simt.program import Program
    from fragmenta.ptx.module import Instruction


class Probes:
    """The instrument of a kernel that is not observed: it emits nothing."""

    def head(self) -> list[str]:
        """Lines at the start of the function, where its pointers are loaded."""
        return []

    def executed(self, writer: Writer, number: int) -> None:
        """Where the executions of a code block are counted."""

    def before(self, writer: Writer, instruction: Instruction) -> None:
        """Before any instruction."""

    def after(self, writer: Writer, instruction: Instruction) -> None:
        """After any instruction that does not jump."""

    def entered(self, writer: Writer, instruction: Instruction) -> None:
        """A call has passed its arguments, and lanes go into the function."""

    def returned(self, writer: Writer, instruction: Instruction) -> None:
        """After lanes returned from a call."""

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
        """Before a load, a store or an atomic; ``kind`` is read, write or atomic.

        ``banks`` says whether its passes through shared memory are counted.
        """

    def lane_copy(
        self,
        writer: Writer,
        size: int,
        to: InMemory,
        to_offset: int,
        of: InMemory,
        of_offset: int,
        reads: str,
    ) -> None:
        """Before a ``cp.async``; ``reads`` are the lanes that read global memory."""

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
        """Before ``ldmatrix`` or ``stmatrix``: rows of ``width`` bytes.

        ``values`` is where the rows are that are stored, side by side.
        """

    def named_barrier(self, writer: Writer, number: str, count: str) -> None:
        """Before lanes arrive at a barrier that waits for a number of threads."""

    def whole_barrier(self, writer: Writer, number: str) -> None:
        """Before lanes arrive at a barrier that waits for all threads of the block."""

    def barrier_arrives(self, writer: Writer, number: str, mode: str) -> None:
        """Before lanes arrive at a barrier of the block."""

    def barrier_passed(
        self, writer: Writer, number: str, passed: str, whole: bool
    ) -> None:
        """After lanes passed a barrier; ``whole`` if it waits for all threads."""

    def warp_barrier_passed(self, writer: Writer, passed: str) -> None:
        """After lanes passed a ``bar.warp.sync``."""

    def leaves(self, writer: Writer) -> None:
        """Before lanes end."""

    def about(self, program: Program) -> dict[str, object]:
        """What the observer needs to know of the code: fields of ``Compiled``."""
        return {}


class Several(Probes):
    """Several instruments, one after the other."""

    def __init__(self, *every: Probes) -> None:
        self.every = every

    def head(self) -> list[str]:
        """The lines of all of them."""
        return [line for each in self.every for line in each.head()]

    def about(self, program: Program) -> dict[str, object]:
        """What all observers need to know."""
        return {
            name: value
            for each in self.every
            for name, value in each.about(program).items()
        }


def _handed_on(name: str) -> Callable[..., None]:
    """A method that calls that of each instrument."""

    def method(self: Several, *given: Any, **named: Any) -> None:
        for each in self.every:
            getattr(each, name)(*given, **named)

    method.__name__, method.__doc__ = name, getattr(Probes, name).__doc__
    return method


for _name in vars(Probes):
    if not _name.startswith("_") and _name not in vars(Several):
        setattr(Several, _name, _handed_on(_name))

NOTHING = Probes()
