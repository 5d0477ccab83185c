"""Compares the explorer with the oracle on random programs, and counts what was seen.

python -m tests.orders.compare --count 10000 --output docs/verification/orders.json
"""

from __future__ import annotations

import argparse
import json
import platform
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import fragmenta
from fragmenta.base.progress import ignore_progress
from fragmenta.watch.orders.explore import Search
from fragmenta.watch.orders.program import Issue, Program
from fragmenta.watch.orders.state import State
from fragmenta.watch.orders.tree import Node, Tree
from fragmenta.watch.orders.verdict import Coverage
from tests.orders.oracle import Answer, TooMany, answer
from tests.orders.programs import program

MOST = 400
"""Programs with more interleavings are left out."""
SEEDS = 100_000
"""Seeds for each process, if there are several."""


class Listing(Search):
    """A search that lists every hang and every race."""

    hangs: set[frozenset[Any]]

    def _end(self, number: int, state: State) -> None:
        super()._end(number, state)
        agents = any(each < self.machine.agents for each in state.actors)
        if agents and not any(each.node.cut for each in state.actors.values()):
            places = paths(self.tree)
            left = frozenset(places[id(e.node)] for e in state.actors.values())
            self.hangs.add(left)


def explored(given: Program) -> tuple[Answer, Coverage]:
    """The explorer's answer, in the oracle's words."""
    tree = Tree(given)
    search = Listing(tree, None, None, None, ignore_progress)
    search.hangs = set()
    search.run()
    verdict = search.verdict()
    places = paths(tree)
    found = Answer()
    found.hangs = search.hangs
    if verdict.hang is not None:
        found.shortest = len(verdict.hang.order)
    found.cut = not search.complete
    found.misuses = {(kind, places[id(node)]) for kind, node in search.misuses}
    for first, second, _, fence, _ in search.races.values():
        pair = frozenset(side(tree, places, each) for each in (first, second))
        found.races.add((pair, fence))
    return found, verdict.coverage


def side(tree: Tree, places: dict[int, Any], access: int) -> Any:
    name = "write" if tree.accesses.sides[access].writes else "read"
    return places[id(tree.sources[access])], name


def paths(tree: Tree) -> dict[int, Any]:
    """Where each node is, in the oracle's words."""
    found: dict[int, Any] = {}

    def walk(node: Node | None, path: tuple[Any, ...]) -> None:
        index = 0
        while node is not None:
            found[id(node)] = (*path, index)
            if isinstance(node.event, Issue):
                first = tree.first[node.result - len(tree.program.agents)]
                walk(first, (*path, index, "unit"))
            for value, each in (node.branches or {}).items():
                walk(each, (*path, index, value))
            node = node.next
            index += 1

    for number, root in enumerate(tree.roots):
        walk(root, (number,))
    return found


def differences(given: Program, most: int = MOST) -> tuple[list[str], Answer]:
    """What the two answers differ in; :class:`TooMany` if it takes too long."""
    expected = answer(given, most)
    got, coverage = explored(given)
    found = [
        f"{name}: the oracle has {theirs}, the explorer {ours}"
        for name in ("hangs", "shortest", "races", "misuses", "cut")
        if (theirs := getattr(expected, name)) != (ours := getattr(got, name))
    ]
    if (coverage is Coverage.INCOMPLETE) != expected.cut:
        found.append(f"coverage is {coverage}")
    return found, expected


def compare(start: int, count: int) -> dict[str, Any]:
    """Compare programs until ``count`` are done; the first that differs ends it."""
    seen: Counter[str] = Counter()
    interleavings = 0
    seed = start - 1
    while seen["programs"] < count:
        seed += 1
        try:
            found, expected = differences(program(seed))
        except TooMany:
            seen["left out"] += 1
            continue
        if found:
            return {"seed": seed, "differences": found}
        seen["programs"] += 1
        interleavings += expected.interleavings
        for name in ("hangs", "races", "misuses", "cut"):
            seen[name] += bool(getattr(expected, name))
        seen["fences"] += any(fence for _, fence in expected.races)
        seen["clean"] += not (expected.hangs or expected.races or expected.misuses)
    return {"seeds": [start, seed], **dict(seen), "interleavings": interleavings}


def compare_all(start: int, count: int, jobs: int) -> dict[str, Any]:
    """The same in several processes, each of which has seeds of its own."""
    if jobs == 1:
        return compare(start, count)
    share = -(-count // jobs)
    with ProcessPoolExecutor(jobs) as pool:
        starts = [start + number * SEEDS for number in range(jobs)]
        parts = list(pool.map(compare, starts, [share] * jobs))
    wrong = next((each for each in parts if "differences" in each), None)
    if wrong is not None:
        return wrong
    total: Counter[str] = Counter()
    for each in parts:
        total.update({name: n for name, n in each.items() if name != "seeds"})
    return {"seeds": [each["seeds"] for each in parts], **dict(total)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    about = {
        "date": date.today().isoformat(),
        "fragmenta": fragmenta.__version__,
        "python": platform.python_version(),
        "most interleavings": MOST,
    }
    found = about | compare_all(given.start, given.count, given.jobs)
    text = json.dumps(found, indent=2)
    print(text)
    if given.output is not None and "differences" not in found:
        given.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
