"""Events: the instructions that Python carries out, and the table of what does.

An :class:`Event` is the static description that the engine wrote down when the kernel
was compiled; see ``simt.events``.  Its operands read registers from the memory of a
warp when the instruction is executed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.once import OncePer
from fragmenta.engine.simt.layout import LANES, RANK_BITS
from fragmenta.engine.units.faults import Stop
from fragmenta.errors import BadOperands
from fragmenta.ptx import rules
from fragmenta.ptx.effects import not_run

if TYPE_CHECKING:
    from fragmenta.engine.units.blocks import Warp

Plain: TypeAlias = "str | int | bool | list[Plain]"
"""A value of JSON; operands are described by such values."""
_WORDS: dict[int, type[np.unsignedinteger]] = {
    8: np.uint8,
    16: np.uint16,
    32: np.uint32,
    64: np.uint64,
}


class EventOperand(NamedTuple):
    """Where an operand is: see ``simt.events`` for the kinds."""

    kind: str
    place: int = 0
    """The offset of a register, or the number itself."""
    bits: int = 0
    items: tuple[EventOperand, ...] = ()
    base: tuple[EventOperand, ...] = ()
    """The base of an address, alone."""

    def value(self, warp: Warp, lane: int) -> int:
        """The number that a lane has."""
        match self.kind:
            case "r" if self.bits == 128:  # the low halves of all lanes, then the high
                low = EventOperand("r", self.place, 64)
                high = EventOperand("r", self.place + 8 * LANES, 64)
                return low.value(warp, lane) | high.value(warp, lane) << 64
            case "r":
                size = self.bits // 8
                at = self.place + size * lane
                return int.from_bytes(warp.memory[at : at + size].tobytes(), "little")
            case "i":
                return self.place
            case "s":
                return self.place + (warp.block.rank << RANK_BITS)
            case "p":
                word = int(warp.words[self.place >> 2])
                return (word >> lane & 1) ^ self.bits
            case "a":
                (base,) = self.base
                wrap = (1 << 32) - 1 if base.bits == 32 else (1 << 64) - 1
                return (base.value(warp, lane) + self.place) & wrap
        raise BadOperands(f"an operand of kind {self.kind} has no value")

    def values(self, warp: Warp, lane: int) -> list[int]:
        """The numbers of a vector, or the one number, that a lane has."""
        if self.kind == "v":
            return [each.value(warp, lane) for each in self.items]
        return [self.value(warp, lane)]

    def lanes(self, warp: Warp) -> NDArray[Any]:
        """The numbers of all lanes; of registers of 128 bits a copy, of Python's."""
        if self.kind == "r" and self.bits == 128:
            low, high = (
                EventOperand("r", self.place + half, 64).lanes(warp).astype(object)
                for half in (0, 8 * LANES)
            )
            return np.asarray(low | high << 64)
        if self.kind == "r":
            size = self.bits // 8 * LANES
            return np.asarray(
                warp.memory[self.place : self.place + size].view(_WORDS[self.bits])
            )
        if self.kind == "p":
            word = int(warp.words[self.place >> 2])
            return np.array([word >> lane & 1 ^ self.bits for lane in range(LANES)])
        if self.kind == "a":
            (base,) = self.base
            found = base.lanes(warp)
            most = (1 << 8 * found.itemsize) - 1
            return np.asarray(found + found.dtype.type(self.place & most))
        return np.full(LANES, self.value(warp, 0) & (1 << 64) - 1, np.uint64)

    def put(self, warp: Warp, lanes: int, value: int) -> None:
        """Set a register or a predicate of some lanes."""
        if self.kind == "_":
            return
        if self.kind == "p":
            word = int(warp.words[self.place >> 2])
            warp.words[self.place >> 2] = word | lanes if value else word & ~lanes
            return
        register = self.lanes(warp)
        for lane in numbers(lanes):
            register[lane] = value


def operand(given: list[Plain]) -> EventOperand:
    """An operand as the engine wrote it down; see ``simt.events``."""
    match given:
        case ["r" | "p" as kind, int(place), int(bits)]:  # a bool is an int
            return EventOperand(kind, place, int(bits))
        case ["a", list(base), int(offset), list(items)]:
            return EventOperand("a", offset, 0, _operands(items), (operand(base),))
        case ["v", list(items)]:
            return EventOperand("v", items=_operands(items))
        case ["_"]:
            return EventOperand("_")
        case ["i" | "s" as kind, int(number)]:
            return EventOperand(kind, number, 64 if kind == "i" else 32)
    raise BadOperands(f"an operand is not described as {given}")


def _operands(given: list[Plain]) -> tuple[EventOperand, ...]:
    return tuple(operand(each) for each in given if isinstance(each, list))


Run: TypeAlias = "Callable[[Warp, Event, int], int]"
"""Carries out an event for some lanes of a warp."""


class Event(NamedTuple):
    """An instruction that Python carries out."""

    number: int
    site: int
    words: tuple[str, ...]
    """The opcode and the qualifiers."""
    operands: tuple[EventOperand, ...]
    run: Run
    """Carries it out, and returns the lanes that may go on."""

    @property
    def mnemonic(self) -> str:
        """The instruction as written."""
        return ".".join(self.words)


_RUNS: dict[tuple[str, ...], Run] = {}


def carries_out(*starts: str) -> Callable[[Run], Run]:
    """Let a function carry out the instructions that begin with some words."""

    def add(run: Run) -> Run:
        for start in starts:
            _RUNS[tuple(start.split("."))] = run
        carrier.cache_clear()
        for forget in _FORGET:
            forget()
        return run

    return add


class Described(Protocol):
    """A kernel that was compiled."""

    @property
    def events(self) -> list[list[Plain]]:
        """Its events, as the engine wrote them down."""

    @property
    def counted(self) -> list[list[str]]:
        """The mnemonics of each code block."""


KernelT = TypeVar("KernelT", bound=Described)
Made = TypeVar("Made")
_FORGET: list[Callable[[], None]] = []
"""Forget what was made of kernels: it is wrong once another unit is registered."""


def once_per_kernel(make: Callable[[KernelT], Made]) -> Callable[[KernelT], Made]:
    """Decorate what makes something of a kernel that all of its launches share.

    It lives as long as the kernel.  Several threads may launch a kernel for the first
    time; all of them get the same object.
    """
    made = OncePer(make)
    _FORGET.append(made.cache_clear)
    return made


def events(described: list[list[Plain]]) -> list[Event]:
    """The events of a kernel, ready to be carried out."""
    return [_event(number, *each) for number, each in enumerate(described)]


def _event(number: int, site: Plain, words: Plain, operands: Plain) -> Event:
    assert isinstance(site, int)
    assert isinstance(words, list)
    assert isinstance(operands, list)
    said = tuple(map(str, words))
    # The operands of wgmma.mma_async are read by Located.
    given = () if "mma_async" in said else _operands(operands)
    return Event(number, site, said, given, carrier(said))


@lru_cache(maxsize=1024)
def carrier(words: tuple[str, ...]) -> Run:
    """What carries out the instruction with these words, or refuses it."""
    starts = (words[:n] for n in range(len(words), 0, -1))
    found = next((_RUNS[start] for start in starts if start in _RUNS), _refuse)
    return _refuse if not_run(".".join(words)) else found


def refusal(mnemonic: str) -> str:
    """Why a kernel that reaches this instruction is stopped; nothing if it is not.

    >>> refusal("tcgen05.shift.cta_group::1.down")
    'tcgen05.shift.cta_group::1.down: the direction in which rows move is not known'
    """
    if carrier(tuple(mnemonic.split("."))) is not _refuse:
        return ""
    return not_run(mnemonic) or f"{mnemonic} is not supported"


def _refuse(warp: Warp, event: Event, lanes: int) -> int:
    """Stop the kernel at an instruction that nothing carries out."""
    raise Stop(rules.UNSUPPORTED, event.site, warp, lanes, refusal(event.mnemonic))


def numbers(lanes: int) -> Iterator[int]:
    """The numbers of the lanes in a mask.

    >>> list(numbers(0b1010))
    [1, 3]
    """
    while lanes:
        low = lanes & -lanes
        yield low.bit_length() - 1
        lanes ^= low


def first(lanes: int) -> int:
    """The lowest lane in a mask."""
    return (lanes & -lanes).bit_length() - 1


def together(
    warp: Warp, lanes: int, *given: EventOperand
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Lanes with the same operands together, and these operands.

    Usually all lanes have the same, or there is one lane.
    """
    groups: dict[tuple[int, ...], int] = {}
    if lanes & (lanes - 1) == 0:
        lane = first(lanes)
        yield lanes, tuple(each.value(warp, lane) for each in given)
        return
    columns = [each.lanes(warp) for each in given]
    leader = first(lanes)
    if lanes == 0xFFFFFFFF and all((c == c[leader]).all() for c in columns):
        yield lanes, tuple(int(c[leader]) for c in columns)
        return
    for lane in numbers(lanes):
        key = tuple(int(column[lane]) for column in columns)
        groups[key] = groups.get(key, 0) | 1 << lane
    for key, members in groups.items():
        yield members, key
