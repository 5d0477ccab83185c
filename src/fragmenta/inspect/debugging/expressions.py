"""Expressions of a debugger: a small language with a parser of its own.

    %r5             a register, one value for each lane; %r5[3] of lane 3
    %f1 * 2 + %f2   arithmetic, lane by lane
    %r5 as f16x2    the same bits as another type
    shared[0x400]   a byte of memory; shared[0x400:0x420] as f32 several elements
    shared[%r7] as f32  what is at the address of each lane
    tile[3]         an element of a variable

Integers are exact, floats are rounded to their own type.  Nothing is ever executed: an
expression is read into a tree, and the tree is computed here.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fragmenta.errors import BadCall, Error, ShapeError, ValueRangeError, shortened
from fragmenta.inspect.debugging.values import (
    IN_FLIGHT,
    UNWRITTEN,
    WRITTEN,
    Value,
    element,
    reinterpreted,
)

LONGEST = 500
"""Characters of an expression."""
DEEPEST = 40
MOST_BYTES = 4096
"""Bytes of memory that are shown at once."""


# ── reading ─────────────────────────────────────────────────────────────────


class Number(NamedTuple):
    """A number."""

    value: int | float


class Name(NamedTuple):
    """A register, a memory or a variable."""

    name: str


class Unary(NamedTuple):
    """An operator and its operand."""

    sign: str
    of: Tree


class Binary(NamedTuple):
    """An operator between two operands."""

    sign: str
    left: Tree
    right: Tree


class Index(NamedTuple):
    """Lanes of a register, or a part of memory; ``last`` is behind the end."""

    of: Tree
    first: Tree
    last: Tree | None


class As(NamedTuple):
    """The bits as another type."""

    of: Tree
    type: str


Tree: TypeAlias = Number | Name | Unary | Binary | Index | As

_ORDER = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!=", "<", "<=", ">", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
_STRENGTH = {sign: level for level, signs in enumerate(_ORDER) for sign in signs}
_NUMBER = re.compile(
    r"0[xX][0-9a-fA-F]+|0[bB][01]+|(\d+\.\d*|\.\d+|\d+)([eE][-+]?\d+)?", re.ASCII
)
_NAME = re.compile(r"[%$]?[A-Za-z_$][\w$]*(::\w+|\.[A-Za-z]\w*|@\d+)*", re.ASCII)
_SIGN = re.compile(r"\|\||&&|<<|>>|[=!<>]=|[-+*/%&|^~!<>()\[\]:]")


class _ExpressionParser:
    """Reads one expression from left to right."""

    def __init__(self, text: str) -> None:
        if len(text) > LONGEST:
            raise BadCall(
                f"an expression has at most {LONGEST} characters; given {len(text)}"
            )
        self.text, self.at, self.depth = text, 0, 0

    def _skip(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def _fail(self, wanted: str) -> Error:
        rest = self.text[self.at :]
        found = f"at {shortened(rest, 20)}" if rest else "at the end"
        return BadCall(f"{shortened(self.text)}: {wanted} is missing {found}")

    def _peek(self) -> str:
        """The operator or bracket that is next, or nothing."""
        self._skip()
        found = _SIGN.match(self.text, self.at)
        return found[0] if found else ""

    def _take(self, sign: str) -> None:
        if self._peek() != sign:
            raise self._fail(sign)
        self.at += len(sign)

    def whole(self) -> Tree:
        """The expression, up to the end of the text."""
        found = self.binary(0)
        self._skip()
        if self.at < len(self.text):
            raise self._fail("an operator")
        return found

    def binary(self, least: int) -> Tree:
        """Operands with operators of at least this strength between them."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise BadCall(f"{shortened(self.text)}: it is nested too deeply")
        left = self.unary()
        while _STRENGTH.get(sign := self._peek(), -1) >= least:
            self.at += len(sign)
            left = Binary(sign, left, self.binary(_STRENGTH[sign] + 1))
        self.depth -= 1
        return left

    def unary(self) -> Tree:
        """An operand, behind signs."""
        sign = self._peek()
        if sign in ("-", "+", "~", "!") and sign:
            self.depth += 1
            if self.depth > DEEPEST:
                raise BadCall(f"{shortened(self.text)}: it is nested too deeply")
            self.at += len(sign)
            found = Unary(sign, self.unary())
            self.depth -= 1
            return found
        return self.postfix(self.primary())

    def primary(self) -> Tree:
        """A number, a name, or an expression in parentheses."""
        if self._peek() == "(":
            self._take("(")
            found = self.binary(0)
            self._take(")")
            return found
        self._skip()
        if name := _NAME.match(self.text, self.at):
            self.at = name.end()
            return Name(name[0])
        if number := _NUMBER.match(self.text, self.at):
            self.at = number.end()
            plain = number[0]
            if re.search(r"^0[xXbB]", plain) or plain.isdecimal():
                return Number(int(plain, 10 if plain.isdecimal() else 0))
            return Number(float(plain))
        raise self._fail("a register, a number or a name")

    def postfix(self, of: Tree) -> Tree:
        """What stands behind an operand: an index, or a type."""
        while True:
            self._skip()
            if self._peek() == "[":
                self._take("[")
                first, last = self.binary(0), None
                if self._peek() == ":":
                    self._take(":")
                    last = self.binary(0)
                self._take("]")
                of = Index(of, first, last)
            elif found := re.compile(r"as\s+(\w+)", re.ASCII).match(self.text, self.at):
                self.at = found.end()
                element(found[1])
                of = As(of, found[1])
            else:
                return of


def parse(text: str) -> Tree:
    """The tree of an expression.

    >>> parse("%r5 + 1")
    Binary(sign='+', left=Name(name='%r5'), right=Number(value=1))
    >>> parse("%r5 %")
    Traceback (most recent call last):
    fragmenta.errors.BadCall: '%r5 %': a register, a number or a name is missing at \
the end
    """
    return _ExpressionParser(text).whole()


# ── computing ───────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Area:
    """A part of memory that is not read yet."""

    memory: str
    """What it is called."""
    read: Callable[[int, int], tuple[NDArray[np.uint8], NDArray[np.uint8]]]
    """Bytes and their states: from an offset, so many or as many as there are."""
    size: int
    start: int = 0
    type: str = ""
    """The type of its elements; empty for bytes."""
    base: int = 0
    """The address of the first byte of the memory, as registers hold it."""
    single: bool = False
    """Whether one element is meant, of whatever type it is read as."""
    at: Value | None = None
    """The offset of each lane, where an element for each lane is meant."""
    mask: int = -1
    """The bits of an address that say where in the memory it is."""
    number: int = -1
    """Its number in the recording."""


class NameLookup(Protocol):
    """What the names of an expression mean."""

    def named(self, name: str) -> Value | Area:
        """The value of a name; an error lists what there is."""


def evaluate(tree: Tree | str, scope: NameLookup) -> Value:
    """The value of an expression."""
    found = _found(parse(tree) if isinstance(tree, str) else tree, scope)
    return _read(found) if isinstance(found, Area) else found


def area(tree: Tree | str, scope: NameLookup) -> Area | None:
    """The part of memory that an expression names; None if it is another value."""
    found = _found(parse(tree) if isinstance(tree, str) else tree, scope)
    return found if isinstance(found, Area) else None


def _found(tree: Tree, scope: NameLookup) -> Value | Area:
    match tree:
        case Number(value):
            return Value(np.array(value, object if isinstance(value, int) else None))
        case Name(name):
            return scope.named(name)
        case Unary(sign, of):
            return _unary(sign, evaluate(of, scope))
        case Binary(sign, left, right):
            return _binary(sign, evaluate(left, scope), evaluate(right, scope))
        case As(of, kind):
            return _as(_found(of, scope), kind)
        case Index(of, first, last):
            start = evaluate(first, scope)
            end = None if last is None else whole(evaluate(last, scope), "the end")
            return _indexed(_found(of, scope), start, end)
    raise AssertionError(tree)


def whole(value: Value, what: str) -> int:
    """A whole number."""
    if value.data.ndim or not isinstance(value.data.item(), int):
        raise BadCall(f"{what} is a whole number; given {', '.join(value.texts)[:60]}")
    return int(value.data.item())


def _as(of: Value | Area, kind: str) -> Value | Area:
    if isinstance(of, Area):
        return _read(replace(of, type=kind))
    if of.offsets is not None:
        raise BadCall("a type stands once behind a part of memory")
    return reinterpreted(of, kind)


def _indexed(of: Value | Area, start: Value, end: int | None) -> Value | Area:
    if not isinstance(of, Area):
        return _lanes(of, whole(start, "a lane"), end)
    if of.at is not None:
        return _lanes(_read(of), whole(start, "a lane"), end)
    if of.single:
        raise BadCall(f"{of.memory} has one index")
    if not start.lanes:
        return _part(of, whole(start, "the offset"), end)
    if end is not None or start.data.dtype.kind not in "iuO" or start.data.ndim > 1:
        raise BadCall("the offset of each lane is one whole number")
    return replace(of, at=_offsets(of, start), single=True)


def _offsets(of: Area, index: Value) -> Value:
    """Where in an area the index of each lane is, in bytes."""
    unit = element(of.type).size if of.type else 1
    found = [
        int(each) * unit if of.type else int(each) - of.base & of.mask
        for each in index.data.tolist()
    ]
    return Value(np.array(found, object), "", index.lanes)


def _lanes(of: Value, first: int, end: int | None) -> Value:
    """One lane of a register, or several."""
    if not of.lanes:
        raise BadCall("only registers and memory have an index")
    last = first + 1 if end is None else end
    if not (0 <= first < last <= len(of.lanes)):
        raise ShapeError(
            f"lanes are 0 to {len(of.lanes) - 1}; given {first}"
            + ("" if end is None else f":{end}")
        )
    states = None if of.states is None else of.states[first:last]
    if end is None:
        return Value(np.asarray(of.data[first]), of.type, states=states)
    lanes = of.lanes[first:last]
    return Value(of.data[first:last], of.type, lanes, states=states)


def _part(of: Area, first: int, end: int | None) -> Area:
    """Bytes of a memory, or elements of a variable."""
    unit = element(of.type).size if of.type else 1
    if not of.type and of.base and first >= of.base:  # an address
        first, end = first - of.base, None if end is None else end - of.base
    last = first + 1 if end is None else end
    if not 0 <= first < last or last * unit > of.size:
        raise ShapeError(
            f"{of.memory} has {'elements' if of.type else 'bytes'} 0 to "
            f"{of.size // unit - 1:#x}; given {first:#x}"
            + ("" if end is None else f":{end:#x}")
        )
    size = (last - first) * unit
    return replace(of, start=of.start + first * unit, size=size, single=end is None)


def _read(of: Area) -> Value:
    """The elements of a part of memory."""
    kind = of.type or "b8"
    one = element(kind)
    if of.at is not None:
        content, states = _gathered(of, one.size)
    else:
        size = one.size if of.single else min(of.size, MOST_BYTES)
        content, states = of.read(of.start, size)
    usable = len(content) // one.size * one.size
    if not usable:
        raise ShapeError(f"{of.memory} has no whole {kind} at {of.start:#x}")
    data = np.ascontiguousarray(content[:usable]).view(one.dtype)
    data = data.reshape(-1, one.side) if one.side > 1 else data
    least = _least(states[:usable].reshape(-1, one.size))
    if of.at is not None:
        return Value(data, kind, of.at.lanes, None, least)
    offsets = of.start + one.size * np.arange(len(data))
    if of.single:
        return Value(np.asarray(data[0]), kind, (), offsets, least)
    return Value(data, kind, (), offsets, least)


def _least(states: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The state of elements, from those of their bytes."""
    found = np.full(len(states), WRITTEN, np.uint8)
    found[(states == IN_FLIGHT).any(axis=1)] = IN_FLIGHT
    found[(states == UNWRITTEN).any(axis=1)] = UNWRITTEN
    return found


def _gathered(of: Area, size: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """So many bytes at the place of each lane; unwritten where there is no memory."""
    assert of.at is not None
    content, states = of.read(of.start, of.size)
    found = np.zeros((2, len(of.at.lanes), size), np.uint8)
    for lane, at in enumerate(of.at.data.tolist()):
        if 0 <= at <= len(content) - size:
            found[0, lane] = content[at : at + size]
            found[1, lane] = states[at : at + size]
    return found[0].ravel(), found[1].ravel()


# ── arithmetic ──────────────────────────────────────────────────────────────


def _numbers(value: Value) -> NDArray[np.generic]:
    """Numbers to compute with: integers of Python's, which have no end."""
    if value.data.ndim > (1 if value.lanes or value.offsets is not None else 0):
        raise BadCall(f"{value.type} has several elements; compute with one of them")
    if value.data.dtype.kind in "iub":
        return value.data.astype(object)
    return value.data


def _unary(sign: str, of: Value) -> Value:
    data = _numbers(of)
    if sign == "~" and data.dtype != object:
        raise BadCall("~ takes integers")
    done: dict[str, Callable[[NDArray[np.generic]], object]] = {
        "-": operator.neg,
        "+": operator.pos,
        "~": operator.invert,
        "!": lambda each: each == 0,
    }
    return _result(done[sign](data), of.lanes)


def _divided(left: NDArray[np.generic], right: NDArray[np.generic]) -> object:
    """The quotient; of integers without the fraction, as in C."""
    if left.dtype == right.dtype == object:
        return np.frompyfunc(_quotient, 2, 1)(left, right)
    return operator.truediv(left, right)


def _quotient(left: int, right: int) -> int:
    if right == 0:
        raise ValueRangeError("an integer is divided by 0")
    size = abs(left) // abs(right)
    return size if (left < 0) == (right < 0) else -size


def _remainder(left: NDArray[np.generic], right: NDArray[np.generic]) -> object:
    if not left.dtype == right.dtype == object:
        raise BadCall("% takes integers")
    quotient = np.asarray(_divided(left, right), object)
    return left - right * quotient


def _shifted(sign: str) -> Callable[[int, int], int]:
    def shift(left: int, right: int) -> int:
        if not 0 <= right <= 64:
            raise ValueRangeError(f"a shift is by 0 to 64 bits; given {right}")
        return left << right if sign == "<<" else left >> right

    return shift


_ARITHMETIC: dict[str, Callable[..., object]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divided,
    "%": _remainder,
    "<<": np.frompyfunc(_shifted("<<"), 2, 1),
    ">>": np.frompyfunc(_shifted(">>"), 2, 1),
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "&&": lambda left, right: (left != 0) & (right != 0),
    "||": lambda left, right: (left != 0) | (right != 0),
}


def _binary(sign: str, left: Value, right: Value) -> Value:
    one, other = _numbers(left), _numbers(right)
    if sign in ("<<", ">>", "&", "|", "^") and not one.dtype == other.dtype == object:
        raise BadCall(f"{sign} takes integers")
    if object in (one.dtype, other.dtype) and one.dtype != other.dtype:
        # An integer beside a float becomes one of its type.
        one, other = (
            each if each.dtype != object else each.astype(there.dtype)
            for each, there in ((one, other), (other, one))
        )
    elif one.dtype != other.dtype and one.ndim != other.ndim:
        one, other = (  # a constant has the type of the registers
            each if each.ndim or each.dtype != np.float64 else each.astype(there.dtype)
            for each, there in ((one, other), (other, one))
        )
    if one.ndim and other.ndim and left.lanes != right.lanes:
        raise ShapeError("lanes are computed with the same lanes")
    with np.errstate(all="ignore"):
        return _result(_ARITHMETIC[sign](one, other), left.lanes or right.lanes)


def _result(found: object, lanes: tuple[int, ...]) -> Value:
    data = np.asarray(found)
    if data.dtype.kind == "b":
        return Value(data, "pred", lanes)
    if data.dtype.kind == "O" and isinstance(data.reshape(-1)[0], bool | np.bool_):
        return Value(data.astype(bool), "pred", lanes)
    return Value(data, "", lanes)
