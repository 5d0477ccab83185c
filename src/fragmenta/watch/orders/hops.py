"""Leaves out events that nobody else can notice, for looking ahead.

Plain accesses and fences are such events.  So is a product that only reads memory,
with the groups that one agent alone uses: it can always come to its end.  Barriers that
need all of their users, with nothing in between, are one meeting: who is there arrives
at all of them, and goes on when all are complete.  That lets events happen earlier than
they can, never later, so looking ahead misses nothing.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from fragmenta.watch.orders.program import (
    Access,
    Commit,
    Event,
    Fence,
    GroupWait,
    Issue,
    ProxyFence,
    ReadDone,
    Sync,
    Unit,
    UnitWait,
)
from fragmenta.watch.orders.tree import Node, Tree

QUIET = (Access, Fence, ProxyFence)
"""Events that nobody else can notice."""


class Meetings(NamedTuple):
    """Barriers that need all of their users, one after the other."""

    times: dict[int, tuple[Sync, int]]
    """By the number of the barrier: its first event, and how often it is there."""
    after: Node
    """What follows."""


class Hops:
    """Where looking ahead goes on after each node of a tree."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._loud: dict[Node, Node] = {}
        self._meetings: dict[Node, Meetings | None] = {}
        self._groups: dict[Hashable, bool] = {}
        self._named: dict[Hashable, bool] = {}
        self._nodes = len(tree.nodes)

    def refresh(self) -> None:
        """Forget what was found if events were added since."""
        if self._nodes != len(self.tree.nodes):
            self.__init__(self.tree)  # type: ignore[misc]

    def loud(self, node: Node) -> Node:
        """The first node from one on whose event others can notice."""
        found = self._loud.get(node)
        if found is None:
            found = node
            while self._quiet(found):
                assert found.next is not None
                found = found.next
            self._loud[node] = found
        return found

    def meetings(self, node: Node) -> Meetings | None:
        """The barriers from one on, if it needs all of its users; None: it does not."""
        if node not in self._meetings:
            self._meetings[node] = self._found(node)
        return self._meetings[node]

    def _found(self, node: Node) -> Meetings | None:
        times: dict[int, tuple[Sync, int]] = {}
        while isinstance(node.event, Sync) and self.tree.whole(node.event.barrier):
            first, count = times.get(node.key, (node.event, 0))
            times[node.key] = first, count + 1
            assert node.next is not None
            node = self.loud(node.next)
        return Meetings(times, node) if times else None

    # ── who notices ─────────────────────────────────────────────────────────

    def _quiet(self, node: Node) -> bool:
        event = node.event
        if isinstance(event, QUIET):
            return True
        if node.branches is not None:
            return False
        if isinstance(event, Issue):
            return self._silent(event.unit) and self._own(event.unit.group)
        if isinstance(event, Commit | GroupWait):
            return self._own(event.group)
        return isinstance(event, UnitWait) and all(map(self._ends, event.units))

    def _own(self, group: Hashable) -> bool:
        """Whether a group is of one agent, and nothing in it signals anything."""
        if group is None:
            return True
        found = self._groups.get(group)
        if found is None:
            inside = (each for each in self.tree.units if each.group == group)
            found = self.tree.private(group) and all(map(self._silent, inside))
            self._groups[group] = found
        return found

    def _ends(self, name: Hashable) -> bool:
        """Whether all units of a name always come to their end."""
        found = self._named.get(name)
        if found is None:
            first = len(self.tree.program.agents)
            units = [self.tree.units[n - first] for n in self.tree.names.get(name, ())]
            found = self._named[name] = all(map(self._silent, units))
        return found

    def _silent(self, unit: Unit) -> bool:
        silent = all(isinstance(each, _SILENT) for each in unit.events)
        return silent and all(map(self._ends, unit.after))


_SILENT: tuple[type[Event], ...] = (Access, ReadDone, ProxyFence)
"""Events of units after which nothing goes on that waits for other than units."""
