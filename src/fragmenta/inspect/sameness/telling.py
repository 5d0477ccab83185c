"""Trees of expressions: nodes, and their text.

A node is an input, a constant, an operation of one lane, or one Tensor Core
instruction: an accumulator and steps of products.  The text is folded where it is
regular.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fragmenta.ptx.module import Instruction
from fragmenta.reference.arithmetic.models import Model


@dataclass(eq=False, repr=False)
class Node:
    """One part of an expression."""

    kind: str
    """``input``, ``constant``, ``operation``, ``product`` or ``unknown``."""
    name: str
    """The operation; the element of an input; the value of a constant."""
    hash: tuple[int, int] = (0, 0)
    operands: tuple[Node, ...] = ()
    """Those of an operation; of a product its accumulator."""
    steps: tuple[tuple[tuple[Node, Node], ...], ...] = ()
    """The products of each step."""
    model: Model | None = None
    instruction: Instruction | None = None
    target: str = ""
    array: str = ""
    index: tuple[int, ...] = ()
    """The array and the element of an input."""

    def __repr__(self) -> str:
        return brief(self)  # parts that are shared would be printed again and again

    @property
    def where(self) -> str:
        """The line that computes it."""
        if self.instruction is None:
            return ""
        source = self.instruction.source
        return str(source) if source is not None else f"line {self.instruction.line}"

    @property
    def line(self) -> str:
        """The same without the folder of the file."""
        return self.where.replace("\\", "/").rpartition("/")[2]


def parts(node: Node) -> list[Node]:
    """The nodes that a node is made of."""
    products = [each for step in node.steps for pair in step for each in pair]
    return [*node.operands, *products]


_LINES = 60
"""The most lines of a tree."""
_FOLDED = 8
"""The fewest nodes of an operand that is folded if it is like the one before."""
_TERMS = 6
"""The most terms of a chain that are listed."""


def expression_text(name: str, root: Node, complete: bool = True) -> str:
    """The text of the tree of an element."""
    lines = [f"{name} ="]
    for number, line in enumerate(_lines(root, 1, {})):
        if number == _LINES:
            lines.append("  …")
            break
        lines.append(line)
    if not complete:
        lines.append("the log was full: a part of the tree is missing")
    return "\n".join(lines)


def _lines(node: Node, depth: int, shapes: dict[int, int]) -> Iterator[str]:
    pad = "  " * depth
    if node.kind in ("input", "constant", "unknown"):
        yield pad + brief(node)
    elif node.kind == "product":
        yield from _product_lines(node, depth, shapes)
    else:
        chain = chain_of(node)
        if len(chain) > 3:
            yield from _chain_lines(chain, depth, shapes)
            return
        yield f"{pad}{node.name}{_at(node)}"
        for number, each in enumerate(node.operands):
            first = node.operands[0]
            alike = number and shape_of(each, shapes) == shape_of(first, shapes)
            if alike and _large(each):
                yield f"{pad}  the same of {inputs_text([each])}"
            else:
                yield from _lines(each, depth + 1, shapes)


def shape_of(node: Node, known: dict[int, int]) -> int:
    """What an expression is without the elements of its inputs, as a number."""
    left = [node]
    while left:
        each = left[-1]
        missing = [part for part in parts(each) if id(part) not in known]
        if id(each) in known or not missing:
            left.pop()
            name = each.array if each.kind == "input" else each.name
            inner = (known[id(part)] for part in parts(each))
            known.setdefault(id(each), hash((each.kind, name, *inner)))
        else:
            left += missing
    return known[id(node)]


def _large(node: Node) -> bool:
    """Whether an expression has so many nodes that it may be folded."""
    count, left = 0, [node]
    while left and count < _FOLDED:
        each = left.pop()
        count += 1
        left += parts(each)
    return count >= _FOLDED


def inputs_text(nodes: Sequence[Node]) -> str:
    """The first and the last input of expressions."""
    found: dict[str, None] = {}
    done: set[int] = set()
    left = list(reversed(nodes))
    while left:
        node = left.pop()
        if id(node) not in done:
            done.add(id(node))
            if node.kind == "input":
                found[node.name] = None
            left += reversed(parts(node))
    names = list(found) or ["constants"]
    return names[0] if len(names) == 1 else f"{names[0]}, …, {names[-1]}"


def _at(node: Node) -> str:
    return f"   ({node.where})" if node.where else ""


# ── chains of operations ────────────────────────────────────────────────────


def chain_of(node: Node) -> list[Node]:
    """Operations of one name, each an operand of the next: the last one first."""
    found = [node]
    while True:
        inner = [
            each
            for each in found[-1].operands
            if each.kind == "operation" and each.name == node.name
        ]
        if len(inner) != 1:
            return found
        found.append(inner[0])


def terms_of(chain: list[Node]) -> list[list[Node]]:
    """What each operation of a chain adds to the one before; the first one first."""
    pairs = zip(chain[-2::-1], chain[:0:-1], strict=True)
    return [[e for e in outer.operands if e is not inner] for outer, inner in pairs]


def _chain_lines(
    chain: list[Node], depth: int, shapes: dict[int, int]
) -> Iterator[str]:
    pad = "  " * depth
    last = chain[-1]
    yield f"{pad}{len(chain)} times {last.name}, one after the other{_at(last)}"
    terms = terms_of(chain)
    yield f"{pad}  begins with {_joined(last.operands)}"
    plain = all(each.kind in ("input", "constant") for of in terms for each in of)
    if plain:
        yield f"{pad}  then {series([_joined(each) for each in terms])}"
        return
    for number, others in enumerate(terms):
        if number == 2 and len(terms) > 4:
            yield f"{pad}  … {len(terms) - 3} more like these"
        if number < 2 or number == len(terms) - 1 or len(terms) <= 4:
            for each in others:
                yield from _lines(each, depth + 1, shapes)


def _joined(nodes: Sequence[Node]) -> str:
    return " and ".join(map(brief, nodes))


def series(words: list[str]) -> str:
    """Words in a line: the first and the last of many.

    >>> series(list("abc")), series(list("abcdefgh"))
    ('a, b, c', 'a, b, c, …, h (8 terms)')
    """
    if len(words) <= _TERMS:
        return ", ".join(words)
    return f"{', '.join(words[:3])}, …, {words[-1]} ({len(words)} terms)"


# ── Tensor Cores ────────────────────────────────────────────────────────────


def _product_lines(node: Node, depth: int, shapes: dict[int, int]) -> Iterator[str]:
    """All instructions whose results are the accumulators of the next."""
    pad = "  " * depth
    chain = accumulated(node)
    for some in grouped(chain):
        steps = [step for each in some for step in each.steps]
        yield f"{pad}{steps_text(some[0].model, len(steps), len(some))}{_at(some[-1])}"
        yield f"{pad}  {some[0].name} on {some[0].target}"
        yield f"{pad}  {products_text(steps)}"
    yield f"{pad}  begins with"
    yield from _lines(chain[0].operands[0], depth + 2, shapes)


def grouped(chain: Sequence[Node]) -> list[list[Node]]:
    """Products that follow one another, in groups that are added in the same way."""
    groups: list[list[Node]] = []
    for each in chain:
        if groups and groups[-1][-1].model == each.model:
            groups[-1].append(each)
        else:
            groups.append([each])
    return groups


def accumulated(node: Node) -> list[Node]:
    """A product, after those whose results are accumulators of the next."""
    chain = [node]
    while chain[-1].operands and chain[-1].operands[0].kind == "product":
        chain.append(chain[-1].operands[0])
    return chain[::-1]


def steps_text(model: Model | None, steps: int, instructions: int) -> str:
    """How products are added, in words.

    >>> from fragmenta.reference.arithmetic import model
    >>> steps_text(model("sm_80", "f16", "f16", "f32", "f32", 16), 4, 2)
    '4 steps of 8 products; 24 bits below the largest exponent, 23 kept, rz'
    """
    assert model is not None
    many = f"{steps} steps" if steps != 1 else "1 step"
    if model.form in ("chain", "pairs"):
        return f"{instructions * model.stored} fused multiply-adds, {model.form}"
    if model.form in ("integer", "bits"):
        return f"an exact sum of {instructions * model.stored} products"
    last = "; then c is added" if model.start == "zero" else ""
    first = f"as {model.operand}: " if model.operand else ""
    return (
        f"{first}{many} of {model.products} products; {model.fraction} bits below the "
        f"largest exponent, {model.keep} kept, {model.rounding}{last}"
    )


def products_text(steps: Sequence[Sequence[tuple[Node, Node]]]) -> str:
    """Which products the steps add, and in which order."""
    firsts = [_span(step) for step in steps]
    if len(steps) == 1:
        return firsts[0]
    order = _order(steps)
    return f"{firsts[0]}, …, {firsts[-1]}{order}"


def _span(step: Sequence[tuple[Node, Node]]) -> str:
    """The products of one step: ``A[0, 0:16] x B[0:16, 3]``."""
    left, right = (_slice([pair[side] for pair in step]) for side in (0, 1))
    return f"{left} x {right}"


def _slice(nodes: Sequence[Node]) -> str:
    """Elements of one array along one axis, or the first and the last of them."""
    inputs = all(each.kind == "input" for each in nodes)
    if inputs and len({each.array for each in nodes}) == 1 and len(nodes) > 1:
        axes = list(zip(*(each.index for each in nodes), strict=True))
        moving = [n for n, axis in enumerate(axes) if len(set(axis)) > 1]
        if len(moving) == 1:
            axis = sorted(axes[moving[0]])
            step = axis[1] - axis[0]
            if axis == list(range(axis[0], axis[-1] + 1, step)):
                by = f":{step}" if step != 1 else ""
                words = [str(each[0]) for each in axes]
                words[moving[0]] = f"{axis[0]}:{axis[-1] + 1}{by}"
                return f"{nodes[0].array}[{', '.join(words)}]"
    names = [brief(each) for each in nodes]
    return names[0] if len(set(names)) == 1 else f"({names[0]}, …, {names[-1]})"


def _order(steps: Sequence[Sequence[tuple[Node, Node]]]) -> str:
    """Whether the steps go through an input in ascending order."""
    firsts = [min(pair[0].index for pair in step) for step in steps if _inputs(step)]
    if len(firsts) != len(steps):
        return ""
    if firsts == sorted(firsts):
        return ", ascending"
    return (
        ", descending"
        if firsts == sorted(firsts, reverse=True)
        else ", in this order: " + series([brief(step[0][0]) for step in steps])
    )


def _inputs(step: Sequence[tuple[Node, Node]]) -> bool:
    return all(pair[0].kind == "input" for pair in step)


# ── nodes in a few words ────────────────────────────────────────────────────


def brief(node: Node, depth: int = 2) -> str:
    """A node in a few words."""
    if node.kind in ("input", "constant"):
        return node.name
    if node.kind == "unknown":
        return "?"
    if node.kind == "product":
        many = sum(len(step) for step in node.steps)
        return f"a product of matrices ({many} products)"
    if not depth:
        return f"{node.name}(…)"
    inner = ", ".join(brief(each, depth - 1) for each in node.operands)
    return f"{node.name}({inner})"
