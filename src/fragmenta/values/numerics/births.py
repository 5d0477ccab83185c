"""The event of a birth that stops the launch: ``nan="raise"``."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING

from fragmenta.engine.units.blocks import Warp
from fragmenta.engine.units.events import Event, carries_out
from fragmenta.engine.units.faults import Stop
from fragmenta.ptx import rules
from fragmenta.values.numerics.code.layout import Birth
from fragmenta.values.numerics.code.steps import BORN
from fragmenta.values.numerics.words import event_words

if TYPE_CHECKING:
    from fragmenta.values.numerics.engine import NonFiniteNode


@carries_out(BORN)
def born(warp: Warp, event: Event, lanes: int) -> int:
    """A NaN or an infinity was born: the launch ends here."""
    following = warp.block.cluster.machine.following
    algebra = getattr(following, "algebra", None)
    number = int(event.words[1])
    nodes: list[NonFiniteNode] = [] if algebra is None else algebra.births_at(number)
    raise stopped(nodes, number, event.site, warp, lanes)


def stopped(
    nodes: list[NonFiniteNode], number: int, site: int, warp: Warp, lanes: int
) -> Stop:
    """The end of a launch where something was born; ``number`` is that of the place."""
    launch = warp.block.cluster.machine.launch
    function, index = launch.compiled.followed[number]
    instruction = launch.module().functions[function].instructions[index]
    said = "a NaN or an infinity is born"
    rule = rules.NAN
    if nodes:
        node = nodes[-1]
        words = {
            Birth.OVERFLOW: "a number becomes infinite",
            Birth.DIVISION: "a number is divided by zero",
        }.get(node.kind, "a NaN is born")
        rule = rules.NAN if isnan(node.value) else rules.INFINITY
        given = node.values, node.value, node.operand
        said = f"{words}: {event_words(instruction, *given, born=True)}"
    return Stop(rule, site, warp, lanes, said)
