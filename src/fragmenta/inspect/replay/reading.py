"""A record from what a launch wrote down."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fragmenta.engine.tracing.trace import Stepped
from fragmenta.inspect.replay import columns
from fragmenta.inspect.replay.left_out import joined, kept_steps, left_out
from fragmenta.inspect.replay.memories import Memories
from fragmenta.inspect.replay.parts import COLUMNS, Array, Columns, Head, Value
from fragmenta.inspect.replay.program import Traced
from fragmenta.inspect.replay.steps import steps
from fragmenta.inspect.replay.units import UnitsAndBarriers
from fragmenta.ptx.module import demangled


class ReplayRecord(NamedTuple):
    """A record: what is small, and what is large."""

    head: Head
    columns: Columns


def made(stepped: Stepped) -> ReplayRecord:
    """Read the record of a launch; its problems are added elsewhere."""
    of = Traced(stepped)
    memories = Memories(of)
    found = steps(of)
    wrote, read, copies = _accesses(of, memories)
    found |= columns.joined(wrote, "w") | columns.joined(read, "r")
    found |= memories.initial() | columns.copied(of.told, memories.numbers)
    head = _head(
        of, memories, UnitsAndBarriers(of, memories, found), copies, len(found["site"])
    )
    typed = {
        name: np.ascontiguousarray(found.get(name, ()), COLUMNS[name])
        for name in COLUMNS
    }
    return ReplayRecord(head, typed)


def _head(
    of: Traced,
    memories: Memories,
    beside: UnitsAndBarriers,
    copies: list[Array],
    count: int,
) -> Head:
    told, launched = of.told, of.stepped.of
    kept, others = kept_steps(of.first, count, told.total, told.cut), left_out(told)
    return {
        "kernel": demangled(launched.compiled.kernel),
        "target": of.stepped.target,
        "schedule": of.stepped.schedule,
        "grid": list(launched.shape.grid),
        "block": list(launched.shape.block),
        "cluster": list(launched.shape.cluster),
        "first": of.first,
        "total": told.total,
        "left_out": joined(kept, others),
        "others": others,
        "cut": told.cut,
        "files": of.files(),
        "sites": of.sites,
        "registers": of.registers,
        "warps": of.warps(),
        "memories": memories.rows,
        "units": beside.units(copies),
        "barriers": beside.barriers(),
        "problems": [],
    }


def _accesses(
    of: Traced, memories: Memories
) -> tuple[list[Value], list[Value], list[Array]]:
    """What was written and read, and the ``cp.async`` of compiled code."""
    ranks, told = of.stepped.of.shape.cluster_blocks, of.told
    numbers = memories.numbers
    places = columns.AddressTable(numbers, told.warps, ranks, memories.local_size())
    wrote, read, copies = columns.lane_parts(told.pieces, of.about["forms"], places)
    if of.first:
        wrote, read = (
            [each._replace(step=each.step - of.first) for each in some]
            for some in (wrote, read)
        )
    # What units do is done before a step, or after the last one.
    before: tuple[list[Value], list[Value]] = ([], [])
    after: tuple[list[Value], list[Value]] = ([], [])
    for unit, moved in told.moved:
        step = of.at(moved.step)
        part = columns.unit_part(moved, unit, numbers, step)
        if part is not None and step >= 0:
            found = after if of.is_over(moved.step) else before
            found[moved.data is None].append(part)
    wrote, read = (
        [*before[kind], *some, *after[kind]] for kind, some in enumerate((wrote, read))
    )
    return wrote, read, copies
