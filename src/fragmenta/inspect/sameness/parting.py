"""Where two trees part, and why, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fragmenta.inspect.sameness.telling import (
    Node,
    accumulated,
    brief,
    chain_of,
    parts,
    products_text,
    steps_text,
)
from fragmenta.ptx.families import FUSED, SUMS

_FOLDED = 3
"""Chains of more operations are not spelled out."""
_DEPTH = 3
"""How far sums of sums are told."""


class Parting(NamedTuple):
    """Why two trees part."""

    cause: str
    """In one line."""
    sides: tuple[str, str]
    """What each tree has there."""


def why_parted(one: Node, two: Node) -> Parting:
    """Where two trees part, in words."""
    x, y = parting(one, two)
    if x.kind == y.kind == "product" and _steps(x) != _steps(y):
        first, second = (f"{e.target}, {e.line}: {_steps(e)}" for e in (x, y))
        return Parting(_other_steps(x, y), (first, second))
    told = how if _partly_summed(x, y) else _summed
    first, second = (f"{_at(each)}: {told(each)}" for each in (x, y))
    return Parting(_other_order(x, y), (f"first{first}", f"second{second}"))


def _at(node: Node) -> str:
    return f" at {node.line}" if node.line else ""


# ── where ───────────────────────────────────────────────────────────────────


def parting(one: Node, two: Node) -> tuple[Node, Node]:
    """The first nodes, from the results on, that are not made in the same way."""
    while _alike(one, two):
        following = _next(one, two)
        if following is None:
            return one, two
        one, two = following
    return one, two


def _alike(one: Node, two: Node) -> bool:
    """Whether two nodes are the same operation, of other operands."""
    if one.kind != two.kind or one.name != two.name:
        return False
    if one.kind == "operation":
        return len(one.operands) == len(two.operands)
    if one.kind != "product" or one.model is None or two.model is None:
        return False
    sizes = [[len(step) for step in each.steps] for each in (one, two)]
    return sizes[0] == sizes[1] and one.model.fraction == two.model.fraction


def _next(one: Node, two: Node) -> tuple[Node, Node] | None:
    """The only operands that differ; None if more than one does."""
    left = [each for each in parts(one) if not _among(each, parts(two))]
    right = [each for each in parts(two) if not _among(each, parts(one))]
    if len(left) == len(right) == 1:
        return left[0], right[0]
    return None


def _among(node: Node, others: Sequence[Node]) -> bool:
    return any(
        node.hash == each.hash and (node.hash != (0, 0) or node.name == each.name)
        for each in others
    )


# ── steps of Tensor Cores ───────────────────────────────────────────────────


def _steps(node: Node) -> str:
    """The steps of one instruction, in words."""
    return "" if node.model is None else steps_text(node.model, len(node.steps), 1)


def _other_steps(x: Node, y: Node) -> str:
    """Two instructions, or one on two targets, add products in other steps."""
    short = [_instruction(each) for each in (x, y)]
    told = [_at_once(each) for each in (x, y)]
    if told[0] == told[1]:
        told = [_kept(each) for each in (x, y)]
    if x.target != y.target and short[0] == short[1]:
        ways = [f"{way} on {e.target}" for way, e in zip(told, (x, y), strict=True)]
        return f"{short[0]} adds {ways[0]}, {ways[1]}"
    return f"{short[0]} adds {told[0]}, {short[1]} adds {told[1]}"


def _instruction(node: Node) -> str:
    """The instruction in two words: ``mma m16n8k16``."""
    words = node.name.split(".")
    shape = next(
        (each for each in words if each[:1] == "m" and each[1:2].isdigit()), ""
    )
    return f"{words[0]} {shape}".rstrip()


def _at_once(node: Node) -> str:
    model = node.model
    if model is None or model.form not in ("fused", "grouped"):
        return _steps(node)
    count = len(node.steps)
    if count == 1:
        return f"{model.products} products at once"
    return f"{count} times {model.products} products"


def _kept(node: Node) -> str:
    return _steps(node).partition("; ")[2] or _steps(node)


# ── the order of sums ───────────────────────────────────────────────────────


class _Sum(NamedTuple):
    """Additions of one line, each an operand of the next."""

    partial: list[Node]
    """Terms that are sums themselves."""
    others: list[Node]
    zeros: int
    """Terms that are a constant zero."""
    linear: bool
    """Whether they are added one after the other."""


def _sum(node: Node) -> _Sum | None:
    """The terms of a sum; None if a node is none."""
    if node.kind != "operation" or not _adds(node):
        return None
    terms: list[Node] = []
    linear, left, seen = True, [node], {id(node)}
    while left:
        each = left.pop()
        inner = [e for e in each.operands if _same_line(e, node)]
        linear &= len(inner) < 2
        left += [e for e in inner if id(e) not in seen]
        seen |= {id(e) for e in inner}
        terms += [e for e in each.operands if not _same_line(e, node)]
    zeros = [e for e in terms if e.kind == "constant" and e.name in ("0.0", "0")]
    rest = [e for e in terms if e not in zeros]
    partial = [e for e in rest if _is_sum(e)]
    others = [e for e in rest if e not in partial]
    return _Sum(partial, others, len(zeros), linear)


def _adds(node: Node) -> bool:
    return node.kind == "operation" and node.name.split(".")[0] in SUMS | FUSED


def _same_line(node: Node, other: Node) -> bool:
    return _adds(node) and (node.name, node.where) == (other.name, other.where)


def _is_sum(node: Node) -> bool:
    if node.kind == "product":
        return True
    return _adds(node) and any(map(_adds, node.operands))


def how(node: Node, depth: int = _DEPTH) -> str:
    """How a sum is added, in words."""
    if node.kind == "product":
        chain = accumulated(node)
        steps = sum(len(each.steps) for each in chain)
        return steps_text(node.model, steps, len(chain)).partition(";")[0]
    found = _sum(node)
    if found is None or not depth:
        return brief(node, 1)
    count = len(found.partial)
    if not count:
        return f"{len(found.others)} terms{'' if found.linear else ' in pairs'}"
    hows = {how(each, depth - 1) for each in found.partial}
    of = hows.pop() if len(hows) == 1 else "different lengths"
    if count == 1 and not found.others:
        return f"{of}, then 0.0 is added" if found.zeros else of
    more = f" and {len(found.others)} terms" if found.others else ""
    order = "one after the other" if found.linear else "in pairs"
    return f"{count} partial sums of {of}{more}, {order}"


def _partly_summed(x: Node, y: Node) -> Node | None:
    """The sum of two that has more partial sums, if that is what makes them differ."""
    sums = [_sum(each) for each in (x, y)]
    counts = [0 if each is None else len(each.partial) for each in sums]
    alike = all(
        each is not None or _is_sum(node)
        for each, node in zip(sums, (x, y), strict=True)
    )
    if not alike or max(counts) < 2:
        return None
    return x if counts[0] > counts[1] else y


def _other_order(x: Node, y: Node) -> str:
    """Two expressions of the same kind have other operands, or another order."""
    summed = _partly_summed(x, y)
    if summed is not None:
        own = [_products(each) for each in (x, y)]
        steps = [{_steps(each) for each in some} for some in own]
        if steps[0] != steps[1] and len(own[0]) == len(own[1]):
            return _other_steps(own[0][0], own[1][0])
        also = "" if steps[0] == steps[1] else "products are added in other steps, and "
        return f"{also}partial sums{_at(summed)} are added in another order"
    if x.kind == y.kind == "product":
        return f"products{_at(y)} are added in another order"
    if x.name != y.name:
        return f"{_short(x)}{_at(x)} against {_short(y)}{_at(y)}"
    if _adds(x):
        return f"terms{_at(y)} are added in another order"
    return f"{x.name}{_at(y)} has other operands"


def _short(node: Node) -> str:
    """A node in one or two words."""
    if node.kind == "operation":
        return node.name
    return _instruction(node) if node.kind == "product" else brief(node)


def _products(node: Node) -> list[Node]:
    """The products of matrices among the terms of a sum."""
    found = _sum(node)
    return [e for e in ([node] if found is None else found.partial) if e.model]


def _summed(node: Node) -> str:
    """A node where two trees part: chains are folded."""
    chain = chain_of(node) if node.kind == "operation" else []
    if len(chain) > _FOLDED:
        return f"{len(chain)} times {node.name}, one after the other"
    if node.kind == "product":
        return f"{node.name}: {products_text(node.steps)}"
    return brief(node)
