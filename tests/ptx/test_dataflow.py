"""One dataflow: its answers are those of the equations, on graphs of any form."""

from __future__ import annotations

from collections.abc import Callable
from operator import and_, or_
from random import Random

import pytest

from fragmenta.ptx.dataflow import reached, reversed_graph, solved

ALL = 0xFF


def graph(seed: int) -> list[list[int]]:
    """Some nodes, each of which leads to some others, to itself, or past the end."""
    random = Random(seed)
    count = random.randint(1, 12)
    return [random.sample(range(count + 1), random.randint(0, 2)) for _ in range(count)]


def equations(
    join: Callable[[int, int], int], bottom: int, back: bool, seed: int
) -> tuple[dict[int, int], dict[int, int]]:
    """What is found on a graph, and what its equations give when all are repeated."""
    after, random = graph(seed), Random(seed)
    adds, keeps = ([random.getrandbits(8) for _ in after] for _ in range(2))

    def through(node: int, held: int) -> int:
        return adds[node] | held & keeps[node]

    given = dict.fromkeys(range(len(after)), bottom) | {0: 3}
    expected, sources = dict(given), after if back else reversed_graph(after)
    for _ in range(8 * len(after) + 1):  # as often as states can change
        for node, some in enumerate(sources):
            for one in (each for each in some if each < len(after)):
                expected[node] = join(expected[node], through(one, expected[one]))
    return solved(after, given, join, through, back=back), expected


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("join, bottom", [(or_, 0), (and_, ALL)])
def test_the_equations_hold(
    join: Callable[[int, int], int], bottom: int, back: bool
) -> None:
    for seed in range(300):
        found, expected = equations(join, bottom, back, seed)
        assert found == expected


def test_what_is_not_reached_has_no_state() -> None:
    for seed in range(300):
        after = graph(seed)
        ways = reached([0], [*after, []].__getitem__)
        assert {*solved(after, {0: True}, or_)} == {*ways} - {len(after)}


def test_a_search_goes_no_further_than_it_is_asked() -> None:
    asked = []

    def after(number: int) -> list[int]:
        asked.append(number)
        return [number + 1]

    assert 4 in reached([1], after)
    assert asked == [1, 2, 3]
