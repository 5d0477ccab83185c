"""The event of a birth that stops the launch: ``nan="raise"``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fragmenta.numerics.code.layout import Birth
from fragmenta.numerics.code.steps import BORN
from fragmenta.numerics.words import formula
from fragmenta.ptx import rules
from fragmenta.units.events import Event, carries_out
from fragmenta.units.faults import Stop
from fragmenta.units.machine import Warp

if TYPE_CHECKING:
    from fragmenta.numerics.engine import Node


@carries_out(BORN)
def born(warp: Warp, event: Event, lanes: int) -> int:
    """A NaN or an infinity was born: the launch ends here."""
    watching = warp.block.cluster.machine.watching
    algebra = getattr(watching, "algebra", None)
    site = int(event.words[1])
    nodes: list[Node] = [] if algebra is None else algebra.births_at(site)
    launch = warp.block.cluster.machine.launch
    function, index = launch.compiled.followed[site]
    instruction = launch.module().functions[function].instructions[index]
    said = "a NaN or an infinity is born"
    rule = rules.NAN
    if nodes:
        node = nodes[-1]
        words = {
            Birth.OVERFLOW: "a number becomes infinite",
            Birth.DIVISION: "a number is divided by zero",
        }.get(node.kind, "a NaN is born")
        rule = rules.NAN if node.value != node.value else rules.INFINITY
        said = f"{words}: {formula(instruction, node.values, node.value)}"
    raise Stop(rule, event.site, warp, lanes, said)
