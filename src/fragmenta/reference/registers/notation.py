"""Layouts as the PTX manual, CuTe and Triton write them.

The PTX manual writes formulas with ``%laneid`` and ``i``.  CuTe writes
``shape:stride``.  Triton writes, for each bit of the place, where it moves the
element.  All three are derived here from the digits of a
:class:`~fragmenta.reference.registers.layout.Layout`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import LayoutError
from fragmenta.reference.registers.expressions import (
    MANUAL,
    DigitRun,
    Name,
    XorSum,
    flip,
    joined,
    part_of,
    placed,
    terms,
    total,
    weighted,
)
from fragmenta.reference.registers.layout import Digit, Layout

LinearLayout = dict[str, list[tuple[int, ...]]]


# ── the PTX manual's formulas ───────────────────────────────────────────────


class Branch(NamedTuple):
    """One line of a formula: an expression and when it holds."""

    expression: str
    condition: str


@dataclass(frozen=True)
class Formula:
    """A layout as the PTX manual writes it; ``str()`` gives the text."""

    definitions: tuple[tuple[str, str], ...]
    cases: tuple[tuple[str, tuple[Branch, ...]], ...]

    def __str__(self) -> str:
        width = max((len(name) for name, _ in self.definitions), default=0)
        lines = [f"{name:<{width}} = {text}" for name, text in self.definitions]
        if lines:
            lines.append("")
        indent = max(len(name) for name, _ in self.cases) + 3
        longest = max(len(case.expression) for _, cs in self.cases for case in cs)
        for name, cases in self.cases:
            head = f"{name:<{indent - 3}} = "
            for case in cases:
                text = f"{case.expression:<{longest}}  {case.condition}"
                lines.append((head + text).rstrip())
                head = " " * indent
        return "\n".join(lines)


def formula(layout: Layout, letter: str, stored: int = 1) -> Formula:
    """The PTX-style formula of a fragment whose elements are ``letter`` + i.

    If only one of ``stored`` columns is stored, ``col`` counts stored columns;
    firstcol and lastcol are the bounds of the column in the whole matrix.

    >>> layout = Layout.parse("row = L2 L3 L4 R0  col = E* L0 L1 R1*", L=32, R=4, E=8)
    >>> print(formula(layout, "a"))
    groupID           = %laneid >> 2
    threadID_in_group = %laneid % 4
    <BLANKLINE>
    row = groupID                                   for ai where 0 <= i < 8 || 16 <= i < 24
          groupID + 8                               otherwise
    col = (threadID_in_group * 8) + (i & 0x7)       for ai where i < 16
          (threadID_in_group * 8) + (i & 0x7) + 32  for ai where i >= 16
    """  # noqa: E501 - the manual's own line
    sizes = dict(layout.axes)
    count = sizes.get("R", 1) * sizes.get("E", 1)
    cases = tuple(
        (name, _cases(*_runs(layout, name), letter, count))
        for name, _ in layout.coordinates
    )
    if stored > 1:
        cases += _bounds(_runs(layout, "col").added, letter, count, stored)
    text = " ".join(case.expression for _, cs in cases for case in cs)
    known = (
        ("warpID", "%warpid % 4"),
        ("groupID", "%laneid >> 2"),
        ("threadID_in_group", "%laneid % 4"),
    )
    return Formula(tuple(pair for pair in known if pair[0] in text), cases)


def _bounds(
    runs: Sequence[DigitRun], letter: str, count: int, stored: int
) -> tuple[tuple[str, tuple[Branch, ...]], ...]:
    """The range of columns of A from which neighbouring elements of a lane come."""
    together = runs[0].size if runs[0].source == "i" else 1
    rest = [
        run._replace(weight=run.weight * stored)
        for run in runs
        if run.source != "i" or run.weight > 1
    ]
    first = tuple(
        case._replace(expression=re.sub(r"^\(([^()]*)\)$", r"\1", case.expression))
        for case in _cases(rest, (), letter, count)
    )
    last = Branch(f"firstcol + {together * stored - 1}", "(col counts stored columns)")
    return ("firstcol", first), ("lastcol", (last,))


def _runs(layout: Layout, coordinate: str) -> XorSum:
    """The coordinate as a sum of runs, with E and R joined into axis i."""
    elements = dict(layout.axes).get("E", 1)
    steps = {"E": 1, "R": elements}

    def renamed(runs: Iterable[DigitRun]) -> tuple[DigitRun, ...]:
        return tuple(
            joined(
                run._replace(source="i", stride=run.stride * steps[run.source])
                if run.source in steps
                else run
                for run in runs
            )
        )

    return XorSum(*map(renamed, terms(layout, coordinate)))


def _cases(
    runs: Sequence[DigitRun], flipped: Sequence[DigitRun], letter: str, count: int
) -> tuple[Branch, ...]:
    """Two cases if one bit of i only adds a constant, as in the manual; else one."""
    split = [run for run in runs if run.source == "i" and run.size == 2]
    split = [run for run in split if run.weight > 1 or len(runs) == 1]
    plain = [run for run in runs if run not in split]
    if flipped:
        flips = [flip(_variable(run.source), run, MANUAL) for run in flipped]
        return (Branch(" ^ ".join([f"({_sum(runs, count)})", *flips]), ""),)
    if len(split) != 1:
        return (Branch(_sum(runs, count), ""),)
    (run,) = split
    low, high = _conditions(run, letter, count)
    base = _sum(plain, count) if plain else ""
    added = f"{base} + {run.weight}" if base else str(run.weight)
    return (Branch(base or "0", low), Branch(added, high))


def _conditions(run: DigitRun, letter: str, count: int) -> tuple[str, str]:
    """The conditions that this bit of i is clear, and that it is set."""
    bit = run.stride
    where = f"for {letter}i where "
    if count == 2 * bit:
        return f"{where}i < {bit}", f"{where}i >= {bit}"
    if count == 4 * bit:
        return (
            f"{where}0 <= i < {bit} || {2 * bit} <= i < {3 * bit}",
            "otherwise",
        )
    return f"{where}(i & {bit:#x}) == 0", "otherwise"


def _sum(runs: Sequence[DigitRun], count: int) -> str:
    """The runs as a sum in the manual's order: warp, lane, then i."""
    order = {"W": 0, "L": 1, "i": 2}
    ranked = sorted(runs, key=lambda run: order.get(run.source, 3))
    terms = [weighted(_value(run, count), run.weight, MANUAL) for run in ranked]
    return " + ".join(terms) or "0"


def _value(run: DigitRun, count: int) -> str:
    if run.source == "L" and (run.stride, run.size) == (4, 8):
        return "groupID"
    if run.source == "L" and (run.stride, run.size) == (1, 4):
        return "threadID_in_group"
    if run.source == "W" and (run.stride, run.size) == (1, 4):
        return "warpID"
    name = _variable(run.source)
    full = {"L": 32, "W": 4}.get(run.source, count)
    return part_of(name, run.stride, run.size, full, MANUAL)


def _variable(source: str) -> str:
    return {"L": "%laneid", "W": "warpID"}.get(source, source)


# ── tensor memory ───────────────────────────────────────────────────────────

_CELL = {"P": "cta", "T": "lane", "C": "column", "E": "element"}


def cells_formula(layout: Layout, bits: int) -> str:
    """Which element a cell holds, and where an element is, as sums of digits.

    Element e of a cell is in the bits from ``e * bits`` up.

    >>> line = "row = T0 T1 T2 T3 T4 T5  col = C* T6"
    >>> print(cells_formula(Layout.parse(line, T=128, C=24), 32))
    row    = (lane & 0x3f)
    col    = column + ((lane >> 6) * 24)
    <BLANKLINE>
    lane   = row + ((col / 24) * 64)
    column = (col % 24)
    """
    axes: dict[str, tuple[Name, int]] = {
        axis: (_CELL[axis], size) for axis, size in layout.axes if size > 1
    }
    given: dict[str, tuple[Name, int]] = {
        name: (name, size) for name, size in layout.sizes.items()
    }
    forward = [(name, _total(terms(layout, name), axes)) for name in layout.sizes]
    backward = [
        (word, _total(placed(layout, axis), given)) for axis, (word, _) in axes.items()
    ]
    if "E" in axes:
        backward.append(("bits", f"element * {bits} and up"))
    width = max(len(str(name)) for name, _ in (*forward, *backward))
    blocks = [
        "\n".join(f"{name:<{width}} = {text}" for name, text in lines)
        for lines in (forward, backward)
    ]
    return "\n\n".join(blocks)


def _total(found: XorSum, sources: Mapping[str, tuple[Name, int]]) -> str:
    return total(found.added, sources, MANUAL, flipped=found.flipped)


# ── CuTe ────────────────────────────────────────────────────────────────────


def cute(
    layout: Layout, order: Iterable[str], threads: str = "LW", values: str = "ER"
) -> str:
    """The thread-value layout as CuTe's ``shape:stride``.

    The coordinates in ``order`` are numbered with the first one fastest, as in
    CuTe's MMA traits: (m, k) for A, (n, k) for B, (m, n) for C.  Digits that do
    not change the element (copies, selectors) have stride 0.

    >>> layout = Layout.parse("row = L2 L3 L4 R0  col = E* L0 L1 R1*", L=32, R=4, E=2)
    >>> cute(layout, ("row", "col"))
    '((4,8),(2,2,2)):((32,1),(16,8,128))'
    """
    if layout.has_xor:
        raise LayoutError(
            f"{layout}: shape:stride has no XOR; in CuTe a Swizzle is composed with a "
            "layout"
        )
    scale, weight = {}, 1
    for name in order:
        scale[name] = weight
        weight *= layout.sizes[name]
    thread = _modes(layout, threads, scale)
    value = _modes(layout, values, scale)
    shape = f"({_tuple(s for s, _ in thread)},{_tuple(s for s, _ in value)})"
    stride = f"({_tuple(d for _, d in thread)},{_tuple(d for _, d in value)})"
    return f"{shape}:{stride}"


def _modes(layout: Layout, axes: str, scale: dict[str, int]) -> list[tuple[int, int]]:
    """(size, stride) of each digit of some axes; adjoining digits are merged."""
    modes: list[tuple[int, int]] = []
    for axis in axes:
        for digit, name, weight in layout.weights(axis):
            size, stride = digit.size, weight * scale.get(name, 0)
            if modes and modes[-1][1] * modes[-1][0] == stride:
                size, stride = modes[-1][0] * size, modes[-1][1]
                modes.pop()
            modes.append((size, stride))
    return modes or [(1, 0)]


def _tuple(numbers: Iterable[int]) -> str:
    listed = [str(number) for number in numbers]
    return listed[0] if len(listed) == 1 else f"({','.join(listed)})"


# ── Triton ──────────────────────────────────────────────────────────────────


_OF_REGISTERS = (("register", "ER"), ("lane", "L"), ("warp", "W"))


def linear_layout(
    layout: Layout, names: Iterable[tuple[str, str]] = _OF_REGISTERS
) -> LinearLayout:
    """Triton's linear-layout bases: where each bit of the place moves the element.

    ``register`` counts the elements of one lane (i), as Triton does.

    >>> layout = Layout.parse("row = L2 L3 L4 R1  col = R0 L0 L1", L=32, R=4)
    >>> linear_layout(layout)["register"]
    [(0, 1), (8, 0)]
    >>> swizzle = Layout.parse("address = A0 A1^A2 A2", A=8)
    >>> linear_layout(swizzle, [("offset", "A")])
    {'offset': [(1,), (2,), (6,)]}
    """
    return {
        name: [basis for axis in axes for basis in _bases(layout, axis)]
        for name, axes in names
    }


def _bases(layout: Layout, axis: str) -> list[tuple[int, ...]]:
    """Where each bit of an axis moves the element; of an XOR, by several bits."""
    found: dict[Digit, dict[str, int]] = {}
    for digit, coordinate, weight in layout.weights(axis):
        if digit.size != 2:
            near = 1 << digit.size.bit_length() - 1
            raise LayoutError(
                f"linear layouts have only sizes that are powers of two; {digit} has "
                f"{digit.size} values; the nearest is {near}"
            )
        moved = found.setdefault(digit, dict.fromkeys(layout.sizes, 0))
        moved[coordinate] ^= weight
    return [tuple(moved[name] for name in layout.data) for moved in found.values()]


def linear_layout_text(bases: LinearLayout, shape: Sequence[int]) -> str:
    """The bases as Triton prints them.

    >>> print(linear_layout_text({"lane": [(0, 1), (1, 0)], "warp": []}, (2, 2)))
     - lane=1 -> (0, 1)
       lane=2 -> (1, 0)
     - warp is a size 1 dimension
    where out dims are: [dim0 (size 2), dim1 (size 2)]
    """
    lines = []
    for name, vectors in bases.items():
        if not vectors:
            lines.append(f" - {name} is a size 1 dimension")
        for bit, vector in enumerate(vectors):
            inside = ", ".join(map(str, vector))
            lines.append(f" {' ' if bit else '-'} {name}={1 << bit} -> ({inside})")
    dims = ", ".join(f"dim{i} (size {size})" for i, size in enumerate(shape))
    return "\n".join([*lines, f"where out dims are: [{dims}]"])
