"""Reads constant expressions and computes their values.

Integers are 64 bits wide, signed or unsigned as in C: a literal is unsigned with the
suffix U or if it needs the highest bit, and an operation is unsigned if an operand is.
As ptxas has it, ``%`` is always unsigned and shifts count modulo 64.  Floats are
doubles, and are not mixed with integers; ``0f3F800000`` stands alone, with its bits.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable
from typing import TypeAlias

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.ptx.module import Immediate
from fragmenta.ptx.reading.lexer import Cursor

WARP_SZ = 32
MASK = (1 << 64) - 1
_MOST_DIGITS = 100


@dataclass(frozen=True, slots=True)
class Whole:
    """A 64-bit integer of a constant expression."""

    value: int
    unsigned: bool = False


Value: TypeAlias = Whole | float

_LEVELS: tuple[tuple[str, ...], ...] = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", "<=", ">", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
_LEVEL = {word: level for level, words in enumerate(_LEVELS) for word in words}
PRODUCT = _LEVEL["*"]

_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "|": operator.or_,
    "^": operator.xor,
    "&": operator.and_,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}
_OF_FLOATS: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def literal(word: str) -> Immediate:
    """The constant that one word of the text stands for.

    >>> literal("0x1F").value, literal("017").value, literal("0f3F800000").value
    (31, 15, 1.0)
    """
    form = word[:2].lower()
    if form == "0f":
        bits = int(word[2:], 16)
        return Immediate(struct.unpack("<f", struct.pack("<I", bits))[0], "f32", bits)
    if form == "0d":
        bits = int(word[2:], 16)
        return Immediate(struct.unpack("<d", struct.pack("<Q", bits))[0], "f64", bits)
    value = _value(word)
    return immediate(value)


def immediate(value: Value) -> Immediate:
    """A value as an operand."""
    if isinstance(value, Whole):
        return Immediate(value.value, "int", value.value & MASK)
    bits = struct.unpack("<Q", struct.pack("<d", value))[0]
    return Immediate(value, "f64", bits)


def _value(word: str) -> Value:
    form = word[:2].lower()
    digits = word.rstrip("U")
    if form == "0x":
        return _literal(int(digits, 16), word)
    if form == "0b":
        return _literal(int(digits, 2), word)
    if not digits.isdecimal():
        return float(word)
    return _literal(int(digits, 8 if word[0] == "0" else 10), word)


def _literal(value: int, word: str) -> Whole:
    return Whole(value, word[-1] == "U" or value >> 63 > 0)


def _whole(value: int, unsigned: bool) -> Whole:
    """An integer cut to 64 bits."""
    value &= MASK
    if not unsigned and value >> 63:
        value -= 1 << 64
    return Whole(value, unsigned)


def expression(cursor: Cursor) -> Value:
    """Take a constant expression."""
    at, condition = cursor.at, binary(cursor, 0)
    if not cursor.accept("?"):
        return condition
    cursor.enter()
    first = expression(cursor)
    cursor.expect(":", "an operator")
    second = expression(cursor)
    cursor.leave()
    if not (
        isinstance(condition, Whole)
        and isinstance(first, Whole)
        and isinstance(second, Whole)
    ):
        cursor.text.fail(at, "a float beside '?'", ["whole numbers"])
    return first if condition.value else second


def binary(cursor: Cursor, lowest: int) -> Value:
    """Take a constant expression of operators that bind at least so strongly."""
    left = unary(cursor)
    while _LEVEL.get(cursor.word, -1) >= lowest:
        at, word = cursor.at, cursor.step()
        right = binary(cursor, _LEVEL[word] + 1)
        left = _combined(cursor, at, word, left, right)
    return left


def unary(cursor: Cursor) -> Value:
    """Take a literal, what stands in parentheses, or one of them with a sign."""
    word, at = cursor.word, cursor.at
    if cursor.kind == "number":
        return _number(cursor)
    if word == "WARP_SZ":
        cursor.step()
        return Whole(WARP_SZ)
    if word not in ("+", "-", "!", "~", "("):
        cursor.fail("a constant")
    cursor.enter()
    cursor.step()
    value = _parenthesised(cursor) if word == "(" else unary(cursor)
    cursor.leave()
    if word in "(+":
        return value
    if isinstance(value, float):
        if word != "-":
            cursor.text.fail(at, f"'{word}' before a float", ["'-'"])
        return -value
    if word == "!":
        return Whole(int(not value.value))
    return _whole(-value.value if word == "-" else ~value.value, value.unsigned)


def _number(cursor: Cursor) -> Value:
    word, at = cursor.word, cursor.at
    if word[:2].lower() == "0f":
        cursor.text.fail(
            at, f"{cursor.found()} in an expression, where it cannot stand"
        )
    if word[:2].lower() == "0d":
        cursor.step()
        return float(literal(word).value)
    if word[0] == "0" and word.rstrip("U").isdecimal() and set(word) & set("89"):
        cursor.text.fail(at, f"{cursor.found()}, which is octal as it begins with 0")
    value = _value(word) if len(word) <= _MOST_DIGITS else Whole(MASK + 1)
    if isinstance(value, Whole) and value.value > MASK:
        cursor.text.fail(at, cursor.found(), ["a number of at most 64 bits"])
    cursor.step()
    return value


def _parenthesised(cursor: Cursor) -> Value:
    """What stands after an opening parenthesis: a cast, or an expression."""
    if cursor.kind != "directive":
        value = expression(cursor)
        cursor.expect(")", "an operator")
        return value
    at, cast = cursor.at, cursor.word
    if cast not in (".s64", ".u64"):
        cursor.fail(".s64", ".u64")
    cursor.step()
    cursor.expect(")")
    value = unary(cursor)
    if isinstance(value, float):
        cursor.text.fail(at, f"the cast {cast} of a float")
    return _whole(value.value, cast == ".u64")


def _combined(cursor: Cursor, at: int, word: str, left: Value, right: Value) -> Value:
    """The result of an operator between two values."""
    if isinstance(left, Whole) and isinstance(right, Whole):
        return _of_wholes(cursor, at, word, left, right)
    if isinstance(left, Whole) or isinstance(right, Whole):
        cursor.text.fail(at, f"'{word}' between a float and a whole number")
    if word in _COMPARISONS:
        return Whole(int(_COMPARISONS[word](left, right)))
    if word == "/":
        return _quotient(left, right)
    if word not in _OF_FLOATS:
        cursor.text.fail(at, f"'{word}' between floats")
    return _OF_FLOATS[word](left, right)


def _quotient(a: float, b: float) -> float:
    """A division of doubles that may give infinities, as IEEE 754 has it."""
    if b:
        return a / b
    if not a or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1, b)


def _of_wholes(cursor: Cursor, at: int, word: str, left: Whole, right: Whole) -> Whole:
    if word in ("&&", "||"):
        true = all if word == "&&" else any
        return Whole(int(true((left.value, right.value))))
    unsigned = left.unsigned or right.unsigned or word == "%"
    if word in ("<<", ">>"):  # the type of the left side alone
        count = right.value & 63
        shifted = left.value << count if word == "<<" else left.value >> count
        return _whole(shifted, left.unsigned)
    a = _whole(left.value, unsigned).value
    b = _whole(right.value, unsigned).value
    if word in _COMPARISONS:
        return Whole(int(_COMPARISONS[word](a, b)))
    if word not in ("/", "%"):
        return _whole(_ARITHMETIC[word](a, b), unsigned)
    if not b:
        cursor.text.fail(at, "a division by zero")
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return _whole(quotient if word == "/" else a - b * quotient, unsigned)


def added(cursor: Cursor) -> int:
    """Take the constants that are added to an address, if there are any."""
    total = 0
    while cursor.word in ("+", "-"):
        sign = 1 if cursor.step() == "+" else -1
        total += sign * whole(cursor, PRODUCT)
    return total


def whole(cursor: Cursor, lowest: int = 0) -> int:
    """Take a constant expression that gives an integer."""
    at = cursor.at
    value = binary(cursor, lowest) if lowest else expression(cursor)
    if isinstance(value, float):
        cursor.text.fail(at, f"the float {value}", ["a whole number"])
    return value.value
