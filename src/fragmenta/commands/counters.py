"""Prints what a launch counted."""

from __future__ import annotations

from fragmenta.errors import Error
from fragmenta.launch.kernel import Kernel
from fragmenta.launch.result import Result
from fragmenta.values.counters.code.layout import SECTOR


def registers_by_ptxas(kernel: Kernel, target: str) -> int | None:
    """The registers of a thread; None if no assembler is here or it refuses."""
    from fragmenta.cuda.tools.resources import registers

    try:
        return registers(kernel.loaded.module.text, kernel.name, target)
    except Error:
        return None


def counter_lines(kernel: Kernel, result: Result, card: str) -> list[str]:
    """The counts that are not 0, occupancy and a bound; nothing if it did not count."""
    counted = result.counters
    if counted is None:
        return []
    rows = [(name, value) for name, value in counted.metrics.items() if value]
    rows += [(f"products of {unit}", n) for unit, n in counted.products.items()]
    rows += [(f"bytes of bulk copies, {way}", n) for way, n in counted.tma.items()]
    rows += [
        (f"bytes of {each.name}, {way}", SECTOR * many)
        for each in counted.footprints
        for way, many in (("read", each.read), ("written", each.written))
        if many
    ]
    shown = [(name, f"{value:,}") for name, value in rows]
    wide = max(len(value) for _, value in shown)
    lines = [
        "",
        "counters",
        *(f"  {name:<{76 - wide}}  {n:>{wide}}" for name, n in shown),
    ]
    registers = registers_by_ptxas(kernel, result.target)
    if registers is not None:
        found = counted.occupancy(registers, card)
        limit = min(found.limits, key=lambda each: found.limits[each])
        lines.append(
            f"occupancy     {found.percent:.3g} % of {card}: {found.blocks} "
            f"blocks, limited by {limit}; {registers} registers"
        )
    bound = counted.bound(card)
    by = max(bound.by, key=lambda each: bound.by[each])
    lines.append(f"bound         {bound.seconds:.3g} s on {card}, by {by}")
    return lines


def counter_fields(kernel: Kernel, result: Result, card: str) -> dict[str, object]:
    """The same as a field of JSON, with the instructions that access memory."""
    counted = result.counters
    if counted is None:
        return {}
    fields = {**counted.to_dict(), "bound": counted.bound(card)._asdict()}
    registers = registers_by_ptxas(kernel, result.target)
    if registers is not None:
        fields["registers"] = registers
        fields["occupancy"] = counted.occupancy(registers, card)._asdict()
    return {"counters": fields}
