"""Sees what a candidate's numbers decide without a branch.

A comparison that is used as a number, a quotient, the smaller of two numbers, an entry
of a table, or the end of a slice can choose as a branch does.  So the file is marked
before it runs: each of these reports what it got and gave.  A step that gave the same
for all sizes never showed what it does for others.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from numbers import Number
from typing import Any, NamedTuple

from fragmenta.frontends.judge.exempt import Place, is_kernel, place_of

NAME = "__saw__"
"""The name by which marked code reports.  A candidate that has it knows the judge."""
MOST = 64
"""Different numbers that are kept of each place."""

STEP, CHOICE, TRUTH, ENTRY, SLICE = "step", "choice", "truth", "entry", "slice"
SUM = "sum"
LARGE = 1 << 16
"""A number that is added to sizes, and is larger than most of them, hides them."""
_OPERATORS: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
    ast.RShift: (">>", operator.rshift),
    ast.BitAnd: ("&", operator.and_),
}
_SUMS: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "+="),
    ast.Sub: ("-", "-="),
}
_BY_SIGN: dict[str, Callable[[Any, Any], Any]] = {
    **dict(_OPERATORS.values()),
    "+": operator.add,
    "-": operator.sub,
    "+=": operator.iadd,
    "-=": operator.isub,
}
_STEPS = frozenset(
    [
        *("int", "round", "bool", "range", "len", "floor", "ceil", "trunc", "isqrt"),
        *("cdiv", "next_power_of_2", "divmod", "bit_length", "bit_count", "sign"),
        *("heaviside", "clip", "copysign", "bincount"),
    ]
)
"""Functions whose results are the same for many numbers."""
_CHOICES = ("min", "max", "minimum", "maximum")


class ReportPoint(NamedTuple):
    """A place that reports."""

    kind: str
    place: Place


class _Marker(ast.NodeTransformer):
    """Puts reports into a tree."""

    def __init__(self) -> None:
        self.marks: list[ReportPoint] = []
        self._tests: set[int] = set()

    def _call(self, kind: str, node: ast.expr, *given: ast.expr | str) -> ast.Call:
        number = len(self.marks)
        self.marks.append(ReportPoint(kind, place_of(node)))
        return _reported(node, number, given)

    def _test(self, node: ast.expr) -> None:
        """A condition: its comparisons are seen by where it goes."""
        self._tests.add(id(node))
        if isinstance(node, ast.BoolOp):
            for each in node.values:
                self._test(each)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self._test(node.operand)

    def visit(self, node: ast.AST) -> Any:
        test = getattr(node, "test", None)
        if isinstance(test, ast.expr):
            self._test(test)
        for each in getattr(node, "ifs", []):
            self._test(each)
        return super().visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        if is_kernel(node):
            return node
        kept = node.returns, [each.annotation for each in _arguments(node)]
        self.generic_visit(node)
        node.returns = kept[0]
        for each, annotation in zip(_arguments(node), kept[1], strict=True):
            each.annotation = annotation
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        kept = node.annotation
        self.generic_visit(node)
        node.annotation = kept
        return node

    def visit_Assert(self, node: ast.Assert) -> Any:
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> Any:
        self.generic_visit(node)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        self.generic_visit(node)
        if type(node.op) in _SUMS:
            return self._call(SUM, node, _SUMS[type(node.op)][0], node.left, node.right)
        if type(node.op) not in _OPERATORS or _is_text(node.left):
            return node
        return self._call(
            STEP, node, _OPERATORS[type(node.op)][0], node.left, node.right
        )

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        self.generic_visit(node)
        if type(node.op) not in _SUMS or not isinstance(node.target, ast.Name):
            return node
        load = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
        number = len(self.marks)
        self.marks.append(ReportPoint(SUM, place_of(node)))
        sign = _SUMS[type(node.op)][1]
        made = _reported(load, number, [sign, load, node.value])
        return ast.copy_location(ast.Assign([node.target], made), node)

    def visit_Compare(self, node: ast.Compare) -> Any:
        self.generic_visit(node)
        identity = all(isinstance(each, ast.Is | ast.IsNot) for each in node.ops)
        if id(node) in self._tests or identity:
            return node
        return self._call(TRUTH, node, node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Not) or id(node) in self._tests:
            return node
        return self._call(TRUTH, node, node)

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        plain = not node.keywords and node.func is not None
        if name in _CHOICES and plain and len(node.args) > 1:
            return self._call(CHOICE, node, "call", node.func, *node.args)
        if name in _STEPS and plain:
            return self._call(STEP, node, "call", node.func, *node.args)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        self.generic_visit(node)
        index = node.slice
        if not _chooses(index) or _is_form(node.value):
            return node
        kind = SLICE if _slices(index) else ENTRY
        if isinstance(node.ctx, ast.Load):
            return self._call(kind, node, "item", node.value, _whole(index))
        if isinstance(node.value, ast.Name):
            of = ast.copy_location(ast.Name(node.value.id, ast.Load()), node.value)
            node.slice = self._call(kind, node, "at", of, _whole(index))
        return node


def _reported(node: ast.expr, number: int, given: Sequence[ast.expr | str]) -> ast.Call:
    texts = [ast.Constant(each) if isinstance(each, str) else each for each in given]
    made = ast.Call(ast.Name(NAME, ast.Load()), [ast.Constant(number), *texts], [])
    return ast.fix_missing_locations(ast.copy_location(made, node))


def _arguments(node: ast.FunctionDef) -> list[ast.arg]:
    of = node.args
    found = [*of.posonlyargs, *of.args, *of.kwonlyargs, of.vararg, of.kwarg]
    return [each for each in found if each is not None]


def _is_text(node: ast.expr) -> bool:
    text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return text or isinstance(node, ast.JoinedStr)


def _slices(index: ast.expr) -> bool:
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return any(isinstance(each, ast.Slice) for each in parts)


def _chooses(index: ast.expr) -> bool:
    """Whether an index is not the same in all calls, or cuts."""
    if isinstance(index, ast.Tuple):
        return any(map(_chooses, index.elts))
    if isinstance(index, ast.Slice):
        return index.lower is not None or index.upper is not None
    if isinstance(index, ast.UnaryOp):
        index = index.operand
    return not isinstance(index, ast.Constant)


def _is_form(node: ast.expr) -> bool:
    """Whether something is the shape of an array, of which an axis is taken."""
    of = node.func if isinstance(node, ast.Call) else node
    return getattr(of, "attr", "") in ("shape", "strides", "stride", "size")


def _whole(index: ast.expr) -> ast.expr:
    """An index as a value: slices are made by a call."""
    if isinstance(index, ast.Tuple):
        made = ast.Tuple([_whole(each) for each in index.elts], ast.Load())
        return ast.copy_location(made, index)
    if not isinstance(index, ast.Slice):
        return index
    ends = [
        each or ast.Constant(None) for each in (index.lower, index.upper, index.step)
    ]
    return _reported(index, -1, ["slice", *ends])


def marked(tree: ast.Module) -> list[ReportPoint]:
    r"""Put reports into a tree, and return the places that report, in order.

    >>> tree = ast.parse("def f(n):\n    return n // 9")
    >>> [each.kind for each in marked(tree)]
    ['step']
    >>> print(ast.unparse(tree).splitlines()[1].strip())
    return __saw__(0, '//', n, 9)
    """
    marker = _Marker()
    marker.visit(tree)
    return marker.marks


class Seen:
    """What marked places got and gave, in the process of the candidate."""

    def __init__(self) -> None:
        self._given: dict[int, set[str]] = {}
        self._made: dict[int, set[str]] = {}
        self._entries: dict[int, set[str]] = {}
        self._sums: dict[int, tuple[set[float], set[float], set[str]]] = {}
        """What sums got on both sides, and what was wrong with them."""

    def report(self, number: int, what: str, *given: Any) -> Any:
        """Do what a marked place does, and keep what it gave."""
        if what == "slice":
            return slice(*given)
        if what == "call":
            return self._call(number, *given)
        if what in ("item", "at"):
            self._index(number, *given)
            return given[1] if what == "at" else given[0][given[1]]
        made = _BY_SIGN[what](*given)
        if what[0] in "+-":
            self._summed(number, given, made)
            return made
        if all(isinstance(each, Number) for each in given):
            self._keep(number, given, made)
        return made

    def truth(self, number: int, made: Any) -> Any:
        """A comparison that is used as a value."""
        if type(made).__name__ in ("bool", "bool_"):
            self._keep(number, (), bool(made))
        return made

    def __call__(self, number: int, what: Any, *given: Any) -> Any:
        """What marked code calls."""
        if not given and not isinstance(what, str):
            return self.truth(number, what)
        return self.report(number, what, *given)

    def _keep(self, number: int, given: Sequence[Any], made: object) -> None:
        for row, text in ((self._given, repr(given)), (self._made, repr(made))):
            kept = row.setdefault(number, set())
            if len(kept) < MOST:
                kept.add(text)

    def _summed(self, number: int, given: Sequence[Any], made: Any) -> None:
        """A sum of two numbers, in which one may be lost."""
        one, other = given
        if not (isinstance(one, int | float) and isinstance(other, int | float)):
            return
        row = self._sums.setdefault(number, (set(), set(), set()))
        for side, value in zip(row[:2], given, strict=True):
            if len(side) < MOST:
                side.add(value)
        lost = (made == one and other != 0) or (abs(made) == abs(other) and one != 0)
        if lost and isinstance(made, float) and math.isfinite(made):
            row[2].add("lost")

    def _call(self, number: int, function: Callable[..., Any], *given: Any) -> Any:
        made = function(*given)
        name = getattr(function, "__name__", "")
        if not given:  # a method of a number
            given = (getattr(function, "__self__", None),)
        known = [isinstance(each, Number | str) for each in given]
        if name in _CHOICES and all(known):
            for at, each in enumerate(given):
                if each == made:
                    self._keep(number, given, at)
            self._entries[number] = {*map(str, range(len(given)))}
        elif all(known) and name != "len":
            self._keep(number, given, len(made) if isinstance(made, range) else made)
        elif name == "len" and isinstance(given[0], str):
            self._keep(number, given, made)
        return made

    def _index(self, number: int, of: Any, index: Any) -> None:
        shape = getattr(of, "shape", None)
        if shape is None and not isinstance(of, list | tuple | dict | str):
            return
        if isinstance(of, dict):
            entries = [*map(repr, of)]
        else:
            sizes = (len(of),) if shape is None else tuple(shape)
            entries = [*map(repr, range(sizes[0]))] if shape is None else []
            parts = index if isinstance(index, tuple) else (index,)
            for size, part in zip(sizes, parts, strict=False):
                if isinstance(part, slice):
                    self._keep(number, (), _ends(part, int(size)))
                    return
        if shape is not None:
            return
        at = index
        if isinstance(index, int) and not isinstance(of, dict):
            at = int(index) % max(1, len(of))
        self._keep(number, (repr(index),), at)
        if len(self._entries.setdefault(number, set())) < MOST:
            self._entries[number] |= {*entries}

    def told(self) -> list[list[object]]:
        """What was seen of each place, to be sent."""
        rows: list[list[object]] = []
        for number, made in sorted(self._made.items()):
            left = self._entries.get(number, set()) - made
            given = len(self._given.get(number, ()))
            rows.append([number, given, sorted(made)[:3], len(made), len(left)])
        for number, (one, other, wrong) in sorted(self._sums.items()):
            hides = any(
                len(side) == 1 < len(rest) and abs(next(iter(side))) > LARGE
                for side, rest in ((one, other), (other, one))
            )
            said = ["lost"] if wrong else ["hides"] if hides else []
            rows += [[number, 0, said, len(said), 0]] if said else []
        return rows


def _ends(part: slice, size: int) -> str:
    """Whether a slice ends within what it slices, at its end, or behind it."""
    ends = [each for each in (part.start, part.stop) if isinstance(each, int)]
    beyond = any(each > size or each < -size for each in ends)
    return "beyond" if beyond else "within"


_SUMMED = {
    "lost": "lost one of its numbers",
    "hides": "adds a number that is larger than those that were tried",
}


def never_changed(
    marks: Sequence[ReportPoint], rows: Sequence[Sequence[Any]]
) -> Iterator[tuple[Place, str]]:
    """The places that always gave the same, though they got other numbers."""
    for number, given, made, count, left in rows:
        mark = marks[number]
        if mark.kind == SUM:
            yield mark.place, _SUMMED[made[0]]
        fixed = count == 1 and (given > 1 or mark.kind == TRUTH)
        if mark.kind in (STEP, TRUTH) and fixed:
            yield mark.place, f"was always {made[0]}"
        elif mark.kind == CHOICE and given > 1 and left:
            yield mark.place, "never chose one of its numbers"
        elif mark.kind == ENTRY and left:
            yield mark.place, "never took some of the entries"
        elif mark.kind == SLICE and count == 1 and made[0] == "'beyond'":
            yield mark.place, "never cut anything off"
