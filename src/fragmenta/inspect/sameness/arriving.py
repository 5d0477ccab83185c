"""Whether results depend on the order in which threads arrive, or on a race.

Blocks and warps influence one another through atomic operations, and through loads and
stores that wait for others.  A program with any of them is followed again in other
orders: the last block begins first, then a random order; in a block, other warps come
first.  If an expression is another one then, the program is not deterministic.  A
program without them depends on no order, unless it has a race: the race detector says
so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import numpy as np

from fragmenta.engine.simt.compiling import may_order
from fragmenta.engine.simt.program import program
from fragmenta.errors import Error, KernelFault
from fragmenta.inspect.sameness.calls import Call, Program
from fragmenta.inspect.sameness.following import (
    CallNote,
    Followed,
    Known,
    follow,
    put_back,
)
from fragmenta.inspect.sameness.naming import Root
from fragmenta.launch.grid import one_at_a_time, shuffled
from fragmenta.launch.instruments import Watch
from fragmenta.ptx.module import Instruction
from fragmenta.ptx.rules import ERROR

ORDERS = ((0, "youngest-waits"), (1, "random-1"))
"""Orders that are tried: of blocks by a seed, and of the warps of a block."""
MOST = 4
"""The most places that are named."""


def followed(
    of: Program,
    given: list[Root],
    planes: int | None = None,
    known: Known | None = None,
    *,
    watch: bool = True,
) -> Followed:
    """Follow a program, with notes on orders and races."""
    raced = list(races(of, given)) if watch else []
    with one_at_a_time(bool(raced)):
        made = follow(of, given, planes, known)
    return replace(made, places=[*made.places, *orders(made, planes), *raced])


# ── orders ──────────────────────────────────────────────────────────────────


def orders(of: Followed, planes: int | None = None) -> list[CallNote]:
    """Where threads meet: ``order`` if results depend on it, else ``met``."""
    known = {id(each.instruction) for each in of.noted("atomic")}  # said already
    meets = [
        (call, each)
        for call in of.program
        for each in meeting(call)
        if id(each) not in known
    ]
    if not meets:
        return []
    kind, why = "met", ""
    for seed, warps in ORDERS:
        try:
            other = _in_order(of, planes, seed, warps)
        except KernelFault as fault:
            kind, why = "stuck", str(fault).splitlines()[0]
            break
        if not _equal(of, other):
            kind = "order"
            break
    return [CallNote(kind, call, each, why) for call, each in meets[:MOST]]


def meeting(call: Call) -> Iterator[Instruction]:
    """Instructions through which threads of a launch influence one another."""
    contract = call.options.get("contract", True)
    functions = call.kernel.loaded.changed(contract).functions
    units = program(call.kernel.loaded.module, call.kernel.name).units
    for name in units:
        for each in functions[name].instructions:
            if may_order(each) or each.is_fetch:
                yield each


def _in_order(of: Followed, planes: int | None, seed: int, warps: str) -> Followed:
    """The program once more, in another order."""
    with ExitStack() as stack:
        stack.enter_context(shuffled(seed))
        return follow(of.program, of.roots, planes, schedule=warps)


def _equal(one: Followed, two: Followed) -> bool:
    """Whether two runs of a program left the same expressions."""
    names = [[each.name for each in of.outputs] for of in (one, two)]
    if names[0] != names[1]:
        return False
    return all(
        np.array_equal(x.hashes.u, y.hashes.u)
        and np.array_equal(x.hashes.v, y.hashes.v)
        for x, y in zip(one.outputs, two.outputs, strict=True)
    )


# ── races ───────────────────────────────────────────────────────────────────


def races(of: Program, given: list[Root]) -> Iterator[CallNote]:
    """What the race detector finds in a program; its memory is as it was."""
    with put_back(given):
        for call in of:
            try:
                result = call.run(watch=Watch("report"))
            except Error as why:
                first = next(iter(call.kernel.function.instructions))
                yield CallNote("unwatched", call, first, str(why).splitlines()[0])
                return
            for each in result.problems:
                if each.severity == ERROR:
                    yield CallNote("race", call, _at(call, each.line), each.rule)


def _at(call: Call, line: int) -> Instruction:
    """The instruction of a line."""
    functions = call.kernel.loaded.module.functions.values()
    every = [each for of in functions for each in of.instructions]
    return min(every, key=lambda each: abs(each.line - line))
