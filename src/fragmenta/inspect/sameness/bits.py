"""Decides small graphs of whole numbers bit by bit, for every input.

Each bit of a result is a function of the bits of the inputs.  It is kept as a *decision
diagram*: ask one bit, go on at one of two diagrams, down to 0 or 1.  If bits are asked
in one order and equal diagrams are one, equal functions are one diagram.  So results
are the same for every input, or a path through their difference is an input.

Sums, comparisons and shifts stay small if bits of one place are asked after each other.
Products of two inputs do not, and are given up; so is what computes with floats.  What
an instruction does to bits is read from the code that is compiled for the launches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import scalar_type
from fragmenta.inspect.sameness.cones import ConeNode, written

MOST = 1 << 17
"""Diagrams that are made, if there are no more."""
Bits: TypeAlias = list[int]
"""A number: the diagram of each of its bits, the lowest first."""
NO, YES = 0, 1


class Undecided(Exception):
    """An instruction that is not followed, or too many diagrams."""


class Diagrams:
    """Makes diagrams, of which no two are equal.

    >>> made = Diagrams()
    >>> x, y = made.asking(0), made.asking(1)
    >>> made.both(x, y) == made.flipped(made.either(made.flipped(x), made.flipped(y)))
    True
    >>> made.path(made.apart(x, y))
    {0: 0, 1: 1}
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        # The place of the bit, and where 0 and 1 lead; 0 and 1 ask nothing.
        self._every = [(1 << 30, NO, NO), (1 << 30, YES, YES)]
        self._known: dict[tuple[int, int, int], int] = {}
        self._chosen: dict[tuple[int, int, int], int] = {}

    def _made(self, place: int, no: int, yes: int) -> int:
        if no == yes:
            return no
        key = place, no, yes
        if key not in self._known:
            if max(len(self._every), len(self._chosen) >> 3) >= self._most:
                raise Undecided
            self._known[key] = len(self._every)
            self._every.append(key)
        return self._known[key]

    def asking(self, place: int) -> int:
        """The bit at a place in the order."""
        return self._made(place, NO, YES)

    def choice(self, condition: int, yes: int, no: int) -> int:
        """One of two diagrams."""
        if condition in (NO, YES) or yes == no:
            return yes if condition == YES or yes == no else no
        if (yes, no) == (YES, NO):
            return condition
        key = condition, yes, no
        if key not in self._chosen:
            place = min(self._every[each][0] for each in key)
            under = [
                self.choice(*(self._below(each, place, way) for each in key))
                for way in (NO, YES)
            ]
            self._chosen[key] = self._made(place, under[0], under[1])
        return self._chosen[key]

    def _below(self, diagram: int, place: int, way: int) -> int:
        asked, *ways = self._every[diagram]
        return ways[way] if asked == place else diagram

    def flipped(self, x: int) -> int:
        """The other bit."""
        return self.choice(x, NO, YES)

    def both(self, x: int, y: int) -> int:
        """Whether both are 1."""
        return self.choice(x, y, NO)

    def either(self, x: int, y: int) -> int:
        """Whether one of them is 1."""
        return self.choice(x, YES, y)

    def apart(self, x: int, y: int) -> int:
        """Whether they differ."""
        return self.choice(x, self.flipped(y), y)

    def path(self, diagram: int) -> dict[int, int]:
        """Some bits, by their places, for which a diagram is 1; it is not ``NO``."""
        found = {}
        while diagram != YES:
            place, no, yes = self._every[diagram]
            found[place] = int(no == NO)
            diagram = yes if no == NO else no
        return found


def parting(
    one: ConeNode, two: ConeNode, inputs: Sequence[ConeNode]
) -> list[int] | None:
    """Inputs for which two results differ; None if they never do.

    >>> from fragmenta.inspect.sameness.cones import Nodes
    >>> nodes = Nodes()
    >>> x, y = nodes.input(32, 0), nodes.input(32, 1)
    >>> low = nodes.extracted(x, 0, 16)
    >>> both = nodes.joined([low, nodes.extracted(x, 16, 16)])
    >>> parting(both, x, [x, y])
    >>> parting(nodes.joined([low, low]), x, [x, y])
    [65536, 0]
    """
    diagrams = Diagrams()
    count = len(inputs)
    given = [
        [diagrams.asking(place * count + number) for place in range(each.bits)]
        for number, each in enumerate(inputs)
    ]
    raws, arguments = written([one, two], inputs)
    reading = _Reading(diagrams, dict(zip(map(id, arguments), given, strict=True)))
    for x, y in zip(*(reading.of(each) for each in raws), strict=True):
        difference = diagrams.apart(x, y)
        if difference != NO:
            asked = diagrams.path(difference)
            return [
                sum(
                    asked.get(place * count + number, 0) << place
                    for place in range(each.bits)
                )
                for number, each in enumerate(inputs)
            ]
    return None


class _Reading:
    """Follows instructions of LLVM; all lanes of a vector do the same."""

    def __init__(self, diagrams: Diagrams, known: dict[int, Bits]) -> None:
        self._all, self._known = diagrams, known
        d = diagrams
        self._plain: dict[str, Callable[[Bits, Bits], Bits]] = {
            "add": self._sum,
            "sub": lambda x, y: self._sum(x, [d.flipped(each) for each in y], YES),
            "mul": self._product,
            "and": lambda x, y: list(map(d.both, x, y)),
            "or": lambda x, y: list(map(d.either, x, y)),
            "xor": lambda x, y: list(map(d.apart, x, y)),
            "shl": lambda x, y: self._moved(x[::-1], y, NO)[::-1],
            "lshr": lambda x, y: self._moved(x, y, NO),
            "ashr": lambda x, y: self._moved(x, y, x[-1]),
        }
        for sign in "us":
            self._plain |= {
                f"llvm.{sign}max": partial(self._extreme, f"{sign}gt"),
                f"llvm.{sign}min": partial(self._extreme, f"{sign}lt"),
            }

    def of(self, root: Raw) -> Bits:
        """The bits of a value; operands first, since graphs may be deep."""
        left: list[Any] = [root]
        while left:
            raw = left[-1]
            if id(raw) in self._known:
                left.pop()
                continue
            needed = [each for each in _operands(raw) if id(each) not in self._known]
            if not needed:
                self._known[id(raw)] = self._made(raw)
            left += needed
        return self._known[id(root)]

    def _made(self, raw: Any) -> Bits:
        if isinstance(raw, ir.Constant):
            return _constant(raw)
        bits = scalar_type(raw.type).width
        given = [self._known[id(each)] for each in _operands(raw)]
        if (name := _name(raw)) in self._plain:
            return self._plain[name](*given)
        if raw.opname == "icmp":
            return [self._compared(raw.op, *given)]
        if raw.opname == "select":
            (condition,), yes, no = given
            return self._chosen(condition, yes, no)
        (x,) = given
        if raw.opname == "sext":
            return x + [x[-1]] * (bits - len(x))
        return (x + [NO] * bits)[:bits]

    def _chosen(self, condition: int, yes: Bits, no: Bits) -> Bits:
        pairs = zip(yes, no, strict=True)
        return [self._all.choice(condition, *each) for each in pairs]

    def _extreme(self, sign: str, x: Bits, y: Bits) -> Bits:
        return self._chosen(self._compared(sign, x, y), x, y)

    def _sum(self, x: Bits, y: Bits, carry: int = NO) -> Bits:
        made, d = [], self._all
        for a, b in zip(x, y, strict=True):
            half = d.apart(a, b)
            made.append(d.apart(half, carry))
            carry = d.choice(half, carry, a)
        return made

    def _product(self, x: Bits, y: Bits) -> Bits:
        made = [NO] * len(x)
        if not set(y) <= {NO, YES}:
            x, y = y, x
        if not set(y) <= {NO, YES}:
            raise Undecided
        for place, each in enumerate(y):
            if each == YES:
                made = self._sum(made, ([NO] * place + x)[: len(x)])
        return made

    def _moved(self, x: Bits, by: Bits, fill: int) -> Bits:
        """Bits moved down; by as many as there are, the code asks for no result."""
        for place, each in enumerate(by):
            size = min(1 << place, len(x))
            down = x[size:] + [fill] * size
            x = [self._all.choice(each, *pair) for pair in zip(down, x, strict=True)]
        return x

    def _compared(self, sign: str, x: Bits, y: Bits) -> int:
        d = self._all
        if sign in ("eq", "ne"):
            differ = NO
            for pair in zip(x, y, strict=True):
                differ = d.either(differ, d.apart(*pair))
            return differ if sign == "ne" else d.flipped(differ)
        if sign[0] == "s":  # the highest bit counts the other way
            x, y = ([*each[:-1], d.flipped(each[-1])] for each in (x, y))
        if sign[1:] in ("gt", "le"):
            x, y = y, x
        less = NO
        for a, b in zip(x, y, strict=True):
            less = d.choice(d.apart(a, b), b, less)
        return less if sign[1:] in ("lt", "gt") else d.flipped(less)


_ALONE = frozenset({"icmp", "select", "sext", "zext", "trunc"})
_PAIRS = frozenset({"add", "sub", "mul", "and", "or", "xor", "shl", "lshr", "ashr"})
_CALLED = frozenset({"llvm.umax", "llvm.umin", "llvm.smax", "llvm.smin"})


def _name(raw: Any) -> str:
    """The word of an instruction, or the intrinsic that it calls, without its type."""
    word = str(getattr(raw, "opname", ""))
    return raw.operands[0].name.rpartition(".")[0] if word == "call" else word


def _operands(raw: Any) -> list[Any]:
    """The operands of an instruction that is followed; constants have none."""
    if isinstance(raw, ir.Constant):
        return []
    name, operands = _name(raw), list(getattr(raw, "operands", ()))
    if name in _CALLED:
        return operands[1:]
    if name == "insertelement" and _undefined(operands[0]):
        return operands[1:2]  # one number, which goes to all lanes
    if name == "shufflevector" and not any(e.constant for e in operands[2].constant):
        return operands[:1]
    if name not in _ALONE | _PAIRS:
        raise Undecided
    return operands


def _number(raw: Any) -> Any:
    """The number of a constant, or the one in all lanes of a vector; else None."""
    if isinstance(number := raw.constant, list | tuple):
        every = {getattr(each, "constant", each) for each in number}
        return every.pop() if len(every) == 1 else None
    return number


def _undefined(raw: Any) -> bool:
    return isinstance(raw, ir.Constant) and _number(raw) is ir.Undefined


def _constant(raw: Any) -> Bits:
    number = _number(raw)
    if not isinstance(number, int):
        raise Undecided
    return [number >> place & 1 for place in range(scalar_type(raw.type).width)]
