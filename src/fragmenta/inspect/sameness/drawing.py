"""Trees of expressions as pictures: results above, inputs below.

A box is an input, a constant, an operation, or a chain of them in one box.  A picture
fits a page: what is regular is folded first, then what is deep.  A frame in red marks
where two trees part.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from textwrap import wrap

from fragmenta.inspect.sameness.parting import parting
from fragmenta.inspect.sameness.telling import (
    Node,
    accumulated,
    brief,
    chain_of,
    grouped,
    inputs_text,
    products_text,
    series,
    shape_of,
    steps_text,
    terms_of,
)
from fragmenta.inspect.view.svg import Drawing, across, document, down, words

PAGE = 930, 1250
"""The most pixels of a picture: its width and its height."""
_LETTER, _LINE, _PAD, _GAP, _BETWEEN = 6.7, 14, 9, 12, 30
_COLUMNS = 34
"""Letters of a line in a box."""
_MOST = 300
"""Boxes of a picture."""
_DEPTHS = (40, 14, 10, 8, 7, 6, 5, 4, 3, 2, 1)
_COLOURS = {
    "input": "l2",
    "constant": "l31",
    "operation": "b",
    "product": "l5",
    "unknown": "p",
    "folded": "p",
}
_INDEX = re.compile(r"\[[^\]]*\]")
_STYLE = """
svg.fm .ek{font-size:11px;text-anchor:middle}
svg.fm .es{font-size:9px;text-anchor:middle}
svg.fm .e{fill:none;stroke-width:1.2}
svg.fm .ef{stroke-dasharray:4 3}
svg.fm .x{stroke:#c4262e;fill:none;stroke-width:2.2}
@media (prefers-color-scheme: dark){
svg.fm .x{stroke:#ff7b72}
}
"""


@dataclass(eq=False)
class _DiagramBox:
    """A box with its lines, and the boxes below it."""

    kind: str
    lines: list[str]
    where: str = ""
    below: list[_DiagramBox] = field(default_factory=list)
    of: tuple[Node, ...] = ()
    """The nodes that it stands for."""

    @property
    def width(self) -> float:
        """Its own width."""
        widths = [len(line) * _LETTER for line in self.lines]
        return max(*widths, len(self.where) * 5.6, 20) + 2 * _PAD

    @property
    def height(self) -> float:
        """Its own height."""
        return len(self.lines) * _LINE + (12 if self.where else 0) + 8


class _TooMany(Exception):
    """More boxes than a picture has."""


# ── what is drawn ───────────────────────────────────────────────────────────


@dataclass
class _Builder:
    """Makes the boxes of one tree."""

    depth: int
    folds: bool
    """Whether operands of the same shape are drawn once."""
    count: int = 0
    shapes: dict[int, int] = field(default_factory=dict)

    def box(self, node: Node, depth: int = 0) -> _DiagramBox:
        """A node, and what it is made of."""
        self.count += 1
        if self.count > _MOST:
            raise _TooMany
        if node.kind in ("input", "constant", "unknown"):
            return _DiagramBox(node.kind, _wrapped(brief(node)), of=(node,))
        if depth >= self.depth:
            return _folded("", [node])
        if node.kind == "product":
            return self._product(node, depth)
        chain = chain_of(node)
        if len(chain) > 3:
            return self._chain(chain, depth)
        made = _DiagramBox("operation", _wrapped(node.name), node.where, of=(node,))
        made.below = self._operands(node.operands, depth + 1)
        return made

    def _operands(self, nodes: Sequence[Node], depth: int) -> list[_DiagramBox]:
        if not self.folds or len(nodes) < 2 or nodes[0].kind in ("input", "constant"):
            return [self.box(each, depth) for each in nodes]
        first, *rest = nodes
        made = [self.box(first, depth)]
        for each in rest:
            alike = shape_of(each, self.shapes) == shape_of(first, self.shapes)
            folded = _folded("the same of ", [each])
            made.append(folded if alike else self.box(each, depth))
        return made

    def _chain(self, chain: list[Node], depth: int) -> _DiagramBox:
        """Operations of one name, each an operand of the next."""
        last, terms = chain[-1], terms_of(chain)
        lines = [f"{len(chain)} times {last.name},", "one after the other"]
        made = _DiagramBox("operation", lines, last.where, of=tuple(chain))
        made.below = [self.box(each, depth + 1) for each in last.operands]
        flat = [each for term in terms for each in term]
        if all(each.kind in ("input", "constant") for each in flat):
            told = [" and ".join(map(brief, term)) for term in terms]
            kind = "input" if flat[0].kind == "input" else "constant"
            made.below.append(_DiagramBox(kind, _wrapped(f"then {series(told)}")))
            return made
        shown = [*terms[:1], *terms[-1:]] if len(terms) > 2 else terms
        made.below += [self.box(each, depth + 1) for each in shown[0]]
        if len(terms) > 2:
            lines = [f"… {len(terms) - 2} more", "like these"]
            made.below.append(_DiagramBox("folded", lines))
        made.below += [self.box(e, depth + 1) for term in shown[1:] for e in term]
        return made

    def _product(self, node: Node, depth: int) -> _DiagramBox:
        """Instructions of Tensor Cores whose results are accumulators of the next."""
        lines: list[str] = []
        chain = accumulated(node)
        products = []
        for some in grouped(chain):
            steps = [step for each in some for step in each.steps]
            told = steps_text(some[0].model, len(steps), len(some))
            for part in (*told.split("; "), some[0].name, f"on {some[0].target}"):
                lines += _wrapped(part)
            products.append(_DiagramBox("input", _wrapped(products_text(steps))))
        made = _DiagramBox("product", lines, node.where, of=tuple(chain))
        made.below = [self.box(chain[0].operands[0], depth + 1), *products]
        return made


def _wrapped(text: str) -> list[str]:
    """Lines of a box; a mnemonic that is too long is parted at its dots."""
    lines: list[str] = []
    whole = _INDEX.sub(lambda found: found[0].replace(" ", "\u00a0"), text)
    left = wrap(whole, _COLUMNS, break_long_words=False)
    while left:
        line = left.pop(0)
        if len(line) > _COLUMNS and "." in line[1:_COLUMNS]:
            at = line.rindex(".", 1, _COLUMNS)
            line, rest = line[:at], line[at:]
            left.insert(0, rest)
        lines.append(line)
    return [line.replace("\u00a0", " ") for line in lines] or [""]


def _folded(how: str, nodes: Sequence[Node]) -> _DiagramBox:
    """An expression in one box: its operation, and its first and last input."""
    told = inputs_text(nodes)
    name = f"{nodes[0].name} of " if nodes[0].kind == "operation" else ""
    return _DiagramBox("folded", _wrapped(f"{how or name}{told}"), of=tuple(nodes))


# ── where it is drawn ───────────────────────────────────────────────────────


def _drawn(box: _DiagramBox, marked: set[int]) -> tuple[Drawing, float]:
    """A box above those below it, and where the middle of the box is."""
    parts = [_drawn(each, marked) for each in box.below]
    below = sum(each.width for each, _ in parts) + _GAP * max(0, len(parts) - 1)
    middles, x = [], 0.0
    for each, at in parts:
        middles.append(x + at)
        x += each.width + _GAP
    middle = (middles[0] + middles[-1]) / 2 if middles else box.width / 2
    shift = max(0.0, box.width / 2 - middle)
    middle, middles = middle + shift, [each + shift for each in middles]
    width = max(below + shift, middle + box.width / 2)
    body, x, foot = [], shift, box.height
    for (each, _), end in zip(parts, middles, strict=True):
        bend = foot + _BETWEEN / 2
        body.append(
            f'<path class="h e" d="M{middle:.1f} {foot:.1f}C{middle:.1f} {bend:.1f} '
            f'{end:.1f} {bend:.1f} {end:.1f} {foot + _BETWEEN:.1f}"/>'
        )
        body.append(each.at(x, foot + _BETWEEN))
        x += each.width + _GAP
    body.append(_box(box, middle, marked))
    deepest = max((each.height + _BETWEEN for each, _ in parts), default=0.0)
    return Drawing(width, foot + deepest, "".join(body)), middle


def _box(box: _DiagramBox, middle: float, marked: set[int]) -> str:
    left, wide, high = middle - box.width / 2, box.width, box.height
    size = f'x="{left:.1f}" width="{wide:.1f}" height="{high:.1f}" rx="5"'
    folded = " ef" if box.kind == "folded" else ""
    frame = "x" if any(id(each) in marked for each in box.of) else f"h e{folded}"
    said = "; ".join(dict.fromkeys(_title(each) for each in box.of[:1]))
    parts = [
        f"<g><title>{escape(said)}</title>" if said else "<g>",
        f'<rect class="{_COLOURS[box.kind]}" {size}/><rect class="{frame}" {size}/>',
    ]
    for number, line in enumerate(box.lines):
        y = 15 + number * _LINE
        parts.append(
            f'<text class="ek t" x="{middle:.1f}" y="{y}">{escape(line)}</text>'
        )
    if box.where:
        y = 14 + len(box.lines) * _LINE
        parts.append(
            f'<text class="es s" x="{middle:.1f}" y="{y}">{escape(box.where)}</text>'
        )
    return "".join([*parts, "</g>"])


def _title(node: Node) -> str:
    where = f", {node.where}" if node.where else ""
    return f"{brief(node)}{where}"


def _fitting(root: Node, marked: set[int], page: tuple[float, float]) -> Drawing:
    """The tree with as much as fits: regular parts are folded, then deep ones."""
    tried = [(_DEPTHS[0], False), *((depth, True) for depth in _DEPTHS)]
    found = Drawing(0, 0)
    for depth, folds in tried:
        try:
            box = _Builder(depth, folds).box(root)
        except _TooMany:
            continue
        found, _ = _drawn(box, marked)
        if found.width <= page[0] and found.height <= page[1]:
            break
    return found


# ── pictures ────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Titled:
    """An expression, with what is said above it."""

    title: str
    root: Node
    complete: bool = True

    def drawn(self, marked: set[int], page: tuple[float, float]) -> Drawing:
        """The tree below its title."""
        parts = [words(self.title, "g t"), _fitting(self.root, marked, page)]
        if not self.complete:
            note = "the log was full: a part of the tree is missing"
            parts.append(words(note, "k s"))
        return down(parts, 10)


def tree_svg(of: Titled) -> str:
    """The picture of one tree."""
    return document(of.drawn(set(), PAGE), of.title, _STYLE)


def trees_svg(one: Titled, two: Titled) -> str:
    """Two trees, and where they part; side by side if there is room."""
    marked = {id(each) for each in parting(one.root, two.root)}
    half = PAGE[0], PAGE[1] / 2
    drawn = [each.drawn(marked, half) for each in (one, two)]
    beside = sum(each.width for each in drawn) + 40 <= PAGE[0]
    if beside:  # their tops on one line
        height = max(each.height for each in drawn)
        drawn = [Drawing(e.width, height, e.body) for e in drawn]
    body = across(drawn, 40) if beside else down(drawn, 28)
    note = words("a red frame: here the expressions part", "k s")
    title = f"{one.title} and {two.title}"
    return document(down([body, note], 14), title, _STYLE)
