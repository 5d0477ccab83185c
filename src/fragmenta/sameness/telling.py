"""Trees of expressions: nodes, and their text.

A node is an input, a constant, an operation of one lane, or one Tensor Core
instruction: an accumulator and steps of products.  The text is folded where it is
regular.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fragmenta.arithmetic.models import Model
from fragmenta.ptx.module import Instruction


@dataclass(eq=False)
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


@dataclass(eq=False)
class Tree:
    """The expression of one element; ``str()`` is a text, folded where regular.

    >>> import numpy as np
    >>> from fragmenta import ptx
    >>> text = ".version 8.0 .target sm_80 .address_size 64 .entry k(.param .u64 x)"
    >>> text += "{.reg .b64 %a; .reg .f32 %f; ld.param.u64 %a, [x]; ld.global.f32 %f,"
    >>> text += "[%a]; add.f32 %f, %f, %f; st.global.f32 [%a], %f; ret; }"
    >>> kernel = ptx.parse(text).kernels["k"]
    >>> x = np.ones(4, np.float32)
    >>> tree = kernel.launch(1, 1, [x]).tree(x, 0)
    >>> tree.output, tree.element, len(list(tree.nodes()))
    ('x', (0,), 2)
    """

    output: str
    element: tuple[int, ...]
    root: Node
    complete: bool = True
    notes: tuple[str, ...] = field(default=())

    def __str__(self) -> str:
        return told(self)

    def nodes(self) -> Iterator[Node]:
        """All nodes, each once, operands before what uses them."""
        done: set[int] = set()
        left: list[tuple[Node, bool]] = [(self.root, False)]
        while left:
            node, ready = left.pop()
            if ready:
                yield node
            elif id(node) not in done:
                done.add(id(node))
                left.append((node, True))
                left += [(each, False) for each in parts(node)]

    def to_dict(self) -> dict[str, object]:
        """The nodes as plain Python values; operands are numbers of nodes."""
        listed = list(self.nodes())
        numbers = {id(each): n for n, each in enumerate(listed)}
        return {
            "output": self.output,
            "element": list(self.element),
            "complete": self.complete,
            "root": numbers[id(self.root)],
            "nodes": [_as_dict(each, numbers) for each in listed],
        }


def _as_dict(node: Node, numbers: dict[int, int]) -> dict[str, object]:
    made: dict[str, object] = {"kind": node.kind, "name": node.name}
    if node.operands:
        made["operands"] = [numbers[id(each)] for each in node.operands]
    if node.steps:
        made["steps"] = [
            [[numbers[id(x)], numbers[id(y)]] for x, y in step] for step in node.steps
        ]
    if node.kind == "input":
        made |= {"array": node.array, "index": list(node.index)}
    if node.where:
        made |= {"where": node.where, "target": node.target}
    return made


def parts(node: Node) -> list[Node]:
    """The nodes that a node is made of."""
    products = [each for step in node.steps for pair in step for each in pair]
    return [*node.operands, *products]


_LINES = 60
"""The most lines of a tree."""
_TERMS = 6
"""The most terms of a chain that are listed."""


def told(of: Tree) -> str:
    """The text of a tree."""
    index = ", ".join(map(str, of.element))
    lines = [f"{of.output}[{index}] ="]
    for number, line in enumerate(_lines(of.root, 1)):
        if number == _LINES:
            lines.append("  …")
            break
        lines.append(line)
    if not of.complete:
        lines.append("the log was full: a part of the tree is missing")
    return "\n".join(lines)


def _lines(node: Node, depth: int) -> Iterator[str]:
    pad = "  " * depth
    if node.kind in ("input", "constant", "unknown"):
        yield pad + brief(node)
    elif node.kind == "product":
        yield from _product_lines(node, depth)
    else:
        chain = chain_of(node)
        if len(chain) > 3:
            yield from _chain_lines(chain, depth)
            return
        yield f"{pad}{node.name}{_at(node)}"
        for each in node.operands:
            yield from _lines(each, depth + 1)


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


def _chain_lines(chain: list[Node], depth: int) -> Iterator[str]:
    pad = "  " * depth
    last = chain[-1]
    yield f"{pad}{len(chain)} times {last.name}, one after the other{_at(last)}"
    terms = []
    for outer, inner in zip(chain[-2::-1], chain[:0:-1], strict=True):
        others = [each for each in outer.operands if each is not inner]
        terms.append(others)
    yield f"{pad}  begins with {_joined(last.operands)}"
    plain = all(each.kind in ("input", "constant") for of in terms for each in of)
    if plain:
        yield f"{pad}  then {_series([_joined(each) for each in terms])}"
        return
    for number, others in enumerate(terms):
        if number == 2 and len(terms) > 4:
            yield f"{pad}  … {len(terms) - 3} more like these"
        if number < 2 or number == len(terms) - 1 or len(terms) <= 4:
            for each in others:
                yield from _lines(each, depth + 1)


def _joined(nodes: Sequence[Node]) -> str:
    return " and ".join(map(brief, nodes))


def _series(words: list[str]) -> str:
    if len(words) <= _TERMS:
        return ", ".join(words)
    return f"{', '.join(words[:3])}, …, {words[-1]} ({len(words)} terms)"


# ── Tensor Cores ────────────────────────────────────────────────────────────


def _product_lines(node: Node, depth: int) -> Iterator[str]:
    """All instructions whose results are the accumulators of the next."""
    pad = "  " * depth
    chain = accumulated(node)
    groups: list[list[Node]] = []
    for each in chain:
        if groups and groups[-1][-1].model == each.model:
            groups[-1].append(each)
        else:
            groups.append([each])
    for some in groups:
        steps = [step for each in some for step in each.steps]
        yield f"{pad}{steps_told(some[0].model, len(steps), len(some))}{_at(some[-1])}"
        yield f"{pad}  {some[0].name} on {some[0].target}"
        yield f"{pad}  {products_told(steps)}"
    yield f"{pad}  begins with"
    yield from _lines(chain[0].operands[0], depth + 2)


def accumulated(node: Node) -> list[Node]:
    """A product, after those whose results are accumulators of the next."""
    chain = [node]
    while chain[-1].operands and chain[-1].operands[0].kind == "product":
        chain.append(chain[-1].operands[0])
    return chain[::-1]


def steps_told(model: Model | None, steps: int, instructions: int) -> str:
    """How products are added, in words.

    >>> from fragmenta.arithmetic import model
    >>> steps_told(model("sm_80", "f16", "f16", "f32", "f32", 16), 4, 2)
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


def products_told(steps: Sequence[Sequence[tuple[Node, Node]]]) -> str:
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
        else ", in this order: " + _series([brief(step[0][0]) for step in steps])
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
