"""Values that agents keep, as far as they matter.

A value that an agent found decides how a loop of it goes on later.  Two values for
which that loop does the same, whatever its word may hold, are one: so orders that
differ only in them lead to one state.  At ``grid.sync()``, the sign of the old count
matters, and not who came first.
"""

from __future__ import annotations

from collections.abc import Hashable

from fragmenta.watch.orders.program import Await, Loop
from fragmenta.watch.orders.tree import Node, Tree


class KeptValues:
    """The values that the agents of a program keep."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._nodes = -1
        self._uses: dict[tuple[int, Hashable], list[Node]] = {}
        self._values: dict[int, frozenset[int] | None] = {}
        self._first: dict[Hashable, int] = {}

    def value(self, agent: int, name: Hashable, value: int) -> int:
        """The value that stands for a value that an agent keeps under a name."""
        if self._nodes != len(self.tree.nodes):
            self._look()
        done: list[Hashable] = []
        for node in self._uses.get((agent, name), ()):
            assert isinstance(node.event, Await)
            loop, values = node.event.condition, self._values[node.key]
            if values is None or len(loop.keeps) > 1 or node.event.update is not None:
                return value
            self.tree.relied.add(("values", (node.key, values)))
            done.append(tuple(loop.passed(e, (value,)) for e in sorted(values)))
        return self._first.setdefault((agent, name, tuple(done)), value)

    def _look(self) -> None:
        self._nodes = len(self.tree.nodes)
        self._uses.clear()
        for node in self.tree.nodes:
            event = node.event
            if isinstance(event, Await) and isinstance(event.condition, Loop):
                for name in event.condition.keeps:
                    self._uses.setdefault((node.agent, name), []).append(node)
                self._values[node.key] = self.tree.values(node.key)
