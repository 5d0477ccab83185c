"""Mistakes that only another order of the warps shows are found by all orders."""

from itertools import islice

from tests.launch.orders.cases import text
from tests.orders.mutated import KINDS, SWAPPED, chosen, judged, of_text, table

TURNS = "taken_turns"
FIRST = 6
"""Which of its barriers; others are reported by the launch alone, too."""


def test_every_kind_of_mistake_is_made() -> None:
    found = [each for name in (TURNS, "ring") for each in of_text(name, text(0), name)]
    assert {each.kind for each in found} == {*KINDS.values(), SWAPPED}
    assert len({each.text for each in found}) == len(found)
    assert text(0) not in {each.text for each in found}


def test_swapped_barriers_that_a_launch_does_not_show_are_found_by_orders() -> None:
    swaps = (each for each in chosen(False, [TURNS]) if each[0].kind == SWAPPED)
    pair = next(islice(swaps, FIRST, None))
    row = judged(*pair)
    assert not row["launch"]
    assert row["orders"]
    assert table([row]) == [(SWAPPED, 1, 0, 1, 0, 0)]
