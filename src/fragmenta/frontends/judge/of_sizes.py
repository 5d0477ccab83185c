"""What the host may do with sizes: a list of what is known, and nothing else.

A number that grows with a size shows on small inputs what it does on large ones.  A
float that follows a size may only be a factor: in a sum it may be lost as long as sizes
are small, and matter later.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

Tag = str | tuple[str, object]
Value = frozenset[Tag]
SIZE, PART = "size", "part"
"""What follows a size; what is a float, too."""
POWERS = (2, 3, -1, 0.5, -0.5, 1.5, 4)
"""Exponents of sizes."""
MOST = 1 << 16
"""Whole numbers that are added to sizes are smaller."""
_ROUNDS = frozenset(
    [
        *("builtins.int", "builtins.round", "builtins.len", "math.ceil", "math.floor"),
        *("math.isqrt", "numpy.int32", "numpy.int64", "numpy.uint32", "numpy.uint64"),
        *("numpy.intp", "builtins.bool", "numpy.bool_", "builtins.range"),
        *("triton.cdiv", "triton.next_power_of_2", "builtins.str", "math.trunc"),
    ]
)
"""Functions whose results are no floats."""
_FLOATS = frozenset(
    [
        *("math.sqrt", "math.log", "math.log2", "builtins.float", "numpy.float32"),
        *("numpy.float64", "math.exp", "numpy.sqrt", "numpy.log", "numpy.log2"),
    ]
)
"""Functions whose results are floats."""


def converted(name: str, value: Value) -> Value:
    """What a function of a library makes of numbers.

    >>> sorted(converted("math.sqrt", frozenset([SIZE])))
    ['part', 'size']
    >>> sorted(converted("math.ceil", frozenset([SIZE, PART])))
    ['size']
    """
    if SIZE not in value:
        return value
    if name in _ROUNDS:
        return value - {PART}
    return value | {PART} if name in _FLOATS else value


def is_float(node: ast.BinOp | ast.UnaryOp, value: Value) -> bool:
    """Whether arithmetic with a size gives a float."""
    if isinstance(node, ast.UnaryOp):
        return PART in value
    if isinstance(node.op, ast.Div) or PART in value:
        return True
    sides = [node.left, node.right]
    return any(isinstance(_number(each), float) for each in sides) or (
        isinstance(node.op, ast.Pow) and _negative(node.right)
    )


def not_known(node: ast.BinOp | ast.UnaryOp, sides: Sequence[Value]) -> str:
    """Why arithmetic with a size is not known; nothing if it is.

    >>> whole, part = frozenset([SIZE]), frozenset([SIZE, PART])
    >>> def ask(text, *sides):
    ...     return not_known(ast.parse(text, mode="eval").body, sides)
    >>> ask("n // 4", whole, frozenset()), ask("n - 1", whole, frozenset())
    ('', '')
    >>> ask("1 + s", frozenset(), part)
    'adds to a float that follows a size'
    """
    if isinstance(node, ast.UnaryOp):
        inverts = isinstance(node.op, ast.Invert)
        return "is no arithmetic of sizes that is known" if inverts else ""
    floats = [PART in each for each in sides]
    numbers = [_number(each) for each in (node.left, node.right)]
    if isinstance(node.op, ast.BitXor | ast.BitOr | ast.MatMult):
        return "is no arithmetic of sizes that is known"
    if isinstance(node.op, ast.Add | ast.Sub | ast.Mod):
        if any(floats) or any(isinstance(each, float) for each in numbers):
            return "adds to a float that follows a size"
        if any(each is not None and abs(each) > MOST for each in numbers):
            return "adds a large number to a size"
    if isinstance(node.op, ast.Mult | ast.Div) and all(floats):
        return "multiplies floats that follow sizes"
    if isinstance(node.op, ast.Pow):
        base = numbers[0] == 2 and SIZE not in sides[0]
        known = numbers[1] in POWERS and SIZE not in sides[1] and not floats[0]
        return "" if base or known else "is no power of a size that is known"
    return ""


def _number(node: ast.expr) -> float | None:
    """A constant; None if it is none."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _number(node.operand)
        return None if inner is None else -inner
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value  # type: ignore[return-value]
    return None


def _negative(node: ast.expr) -> bool:
    number = _number(node)
    return number is not None and number < 0
