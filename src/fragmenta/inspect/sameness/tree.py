"""The expression of one element: its text, its picture, its nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fragmenta.inspect.sameness.drawing import Titled, tree_svg, trees_svg
from fragmenta.inspect.sameness.telling import Node, expression_text, parts


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

    @property
    def name(self) -> str:
        """The element: ``y[2]``."""
        return f"{self.output}[{', '.join(map(str, self.element))}]"

    def __str__(self) -> str:
        return expression_text(self.name, self.root, self.complete)

    def to_svg(self) -> str:
        """A picture, folded so that it fits a page; notebooks show it.

        >>> import numpy as np
        >>> from fragmenta import ptx
        >>> text = ".version 8.0 .target sm_80 .address_size 64 .entry k(.param .u64 x)"
        >>> text += "{.reg .b64 %a; .reg .f32 %f; ld.param.u64 %a, [x]; ld.global.f32 "
        >>> text += "%f, [%a]; add.f32 %f, %f, %f; st.global.f32 [%a], %f; ret; }"
        >>> x = np.ones(4, np.float32)
        >>> result = ptx.parse(text).kernels["k"].launch(1, 1, [x])
        >>> result.tree(x, 0).to_svg().count("<rect class='l2'".replace("'", '"'))
        2
        """
        return tree_svg(Titled(f"{self.name} =", self.root, self.complete))

    def _repr_svg_(self) -> str:
        return self.to_svg()

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


def drawn_apart(one: Tree, two: Tree, titles: tuple[str, str]) -> str:
    """The picture of two trees, with the place where they part."""
    return trees_svg(
        *(
            Titled(f"{title}: {each.name} =", each.root, each.complete)
            for title, each in zip(titles, (one, two), strict=True)
        )
    )
