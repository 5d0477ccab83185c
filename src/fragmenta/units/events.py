"""What does an instruction that Python carries out say, and for which lanes?

An :class:`Event` is the static description that the engine wrote down when the kernel
was compiled; see ``simt.events``.  Its operands read registers from the memory of a
warp when the instruction is executed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.errors import Error
from fragmenta.ptx import rules
from fragmenta.ptx.effects import not_run
from fragmenta.simt.layout import LANES, RANK_BITS
from fragmenta.units.faults import Stop

if TYPE_CHECKING:
    from fragmenta.units.machine import Warp

_WORDS = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


class Operand(NamedTuple):
    """Where an operand is: see ``simt.events`` for the kinds."""

    kind: str
    place: int = 0
    """The offset of a register, or the number itself."""
    bits: int = 0
    items: tuple[Operand, ...] = ()
    base: tuple[Operand, ...] = ()
    """The base of an address, alone."""

    def value(self, warp: Any, lane: int) -> int:
        """The number that a lane has."""
        match self.kind:
            case "r":
                size = self.bits // 8
                at = self.place + size * lane
                return int.from_bytes(warp.memory[at : at + size].tobytes(), "little")
            case "i":
                return self.place
            case "s":
                return self.place + (int(warp.block.rank) << RANK_BITS)
            case "p":
                word = int(warp.words[self.place >> 2])
                return (word >> lane & 1) ^ self.bits
            case "a":
                (base,) = self.base
                wrap = (1 << 32) - 1 if base.bits == 32 else (1 << 64) - 1
                return (base.value(warp, lane) + self.place) & wrap
        raise Error(f"an operand of kind {self.kind} has no value")

    def values(self, warp: Any, lane: int) -> list[int]:
        """The numbers of a vector that a lane has."""
        if self.kind == "v":
            return [each.value(warp, lane) for each in self.items]
        return [self.value(warp, lane)]

    def lanes(self, warp: Any) -> NDArray[Any]:
        """The numbers of all lanes."""
        if self.kind == "r":
            size = self.bits // 8 * LANES
            return np.asarray(
                warp.memory[self.place : self.place + size].view(_WORDS[self.bits])
            )
        if self.kind == "a":
            (base,) = self.base
            found: NDArray[Any] = base.lanes(warp)
            most = (1 << 8 * found.itemsize) - 1
            return np.asarray(found + found.dtype.type(self.place & most))
        return np.full(LANES, self.value(warp, 0), np.uint64)

    def put(self, warp: Any, lanes: int, value: int) -> None:
        """Give some lanes a number, or a predicate."""
        if self.kind == "_":
            return
        if self.kind == "p":
            word = int(warp.words[self.place >> 2])
            warp.words[self.place >> 2] = word | lanes if value else word & ~lanes
            return
        register = self.lanes(warp)
        for lane in numbers(lanes):
            register[lane] = value


def operand(given: list[Any]) -> Operand:
    """An operand as the engine wrote it down."""
    kind, *rest = given
    match kind:
        case "r":
            return Operand("r", rest[0], rest[1])
        case "p":
            return Operand("p", rest[0], int(rest[1]))
        case "a":
            base, offset, items = rest
            parts = tuple(map(operand, items))
            return Operand("a", offset, 0, parts, (operand(base),))
        case "v":
            return Operand("v", items=tuple(map(operand, rest[0])))
        case "_":
            return Operand("_")
    return Operand(kind, rest[0], 64 if kind == "i" else 32)


class Event(NamedTuple):
    """An instruction that Python carries out."""

    number: int
    site: int
    words: tuple[str, ...]
    """The opcode and the qualifiers."""
    operands: tuple[Operand, ...]
    run: Callable[..., int]
    """Carries it out: ``run(warp, event, lanes)``; the lanes that may go on."""

    @property
    def mnemonic(self) -> str:
        """The instruction as written."""
        return ".".join(self.words)


Run = Callable[[Any, Event, int], int]
_RUNS: dict[tuple[str, ...], Run] = {}


def carries_out(*starts: str) -> Callable[[Run], Run]:
    """Say that a function carries out the instructions that begin with some words."""

    def add(run: Run) -> Run:
        for start in starts:
            _RUNS[tuple(start.split("."))] = run
        return run

    return add


def events(described: list[list[Any]]) -> list[Event]:
    """The events of a kernel, ready to be carried out."""
    found = []
    for number, (site, words, operands) in enumerate(described):
        run = carrier(words)
        products = "mma_async" in words
        given = () if products else tuple(map(operand, operands))
        found.append(Event(number, site, tuple(words), given, run))
    return found


def carrier(words: Sequence[str]) -> Run:
    """What carries out the instruction with these words, or refuses it."""
    starts = (tuple(words[:n]) for n in range(len(words), 0, -1))
    found = next((_RUNS[start] for start in starts if start in _RUNS), _refuse)
    return _refuse if not_run(".".join(words)) else found


def refusal(mnemonic: str) -> str:
    """Why a kernel that reaches this instruction is stopped; nothing if it is not.

    >>> refusal("tcgen05.shift.cta_group::1.down")
    'tcgen05.shift.cta_group::1.down: the direction in which rows move is not known'
    """
    if carrier(mnemonic.split(".")) is not _refuse:
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
    warp: Any, lanes: int, *given: Operand
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
