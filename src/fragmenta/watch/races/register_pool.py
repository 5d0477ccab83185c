"""Registers that warps release and ask for: ``setmaxnreg``.

``setmaxnreg.inc`` waits until other warps of its block have released enough.  If they
never do, a card hangs.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.units.blocks import Block, Warp
from fragmenta.engine.units.clusters import Cluster
from fragmenta.engine.units.events import Event
from fragmenta.engine.units.fast import layout
from fragmenta.errors import one_of
from fragmenta.ptx import rules

WARPS = 4
"""The warps of a warpgroup."""
REGISTERS = 1 << 16
"""The registers of a multiprocessor."""


def at_entry(directives: Mapping[str, tuple[int | str, ...]]) -> int:
    """The registers of each thread when a kernel begins; 0 if ptxas cannot know.

    It then ignores ``setmaxnreg``.  Otherwise threads begin with as many as
    ``.maxnreg`` says, or as fit for the threads that the other directives allow.

    >>> at_entry({"maxntid": (384,)}), at_entry({"maxnreg": (128,)}), at_entry({})
    (168, 128, 0)
    """
    if "maxnreg" in directives:
        return int(directives["maxnreg"][0])
    bound = directives.get("reqntid") or directives.get("maxntid")
    if not bound:
        return 0
    blocks = int(directives.get("minnctapersm", (1,))[0])
    warps = -(-prod(map(int, bound)) // LANES) * max(blocks, 1)
    return min(REGISTERS // (max(warps, 1) * LANES) // 8 * 8, 255)


def count(cluster: Cluster) -> None:
    """Let the registers of all warps be counted from now on."""
    launch = cluster.machine.launch
    function = launch.module().functions[launch.compiled.kernel]
    for block in cluster.blocks:
        block.words[layout.STATE_START >> 2] = at_entry(function.directives)


def check(cluster: Cluster) -> None:
    """Report blocks whose warps ask for more than the block has; they have ended.

    Also warpgroups whose warps do not ask for the same.
    """
    for block in cluster.blocks:
        if block.lack_of_registers[1]:
            _report(block)
        if block.words[layout.STATE_START >> 2]:
            _compare(block)


def _compare(block: Block) -> None:
    """Report a warpgroup of which only some warps ask, or not for as many."""
    given = block.registers.reshape(len(block.warps), -1)
    asked = [
        (
            bool(each[layout.REGISTERS_EVENT >> 2]),
            int(each[layout.REGISTERS_SURPLUS >> 2]),
        )
        for each in given
    ]
    for first in range(0, len(asked) - WARPS + 1, WARPS):
        group = asked[first : first + WARPS]
        if len({*group}) == 1:
            continue
        one = max(n for n, each in enumerate(group) if each[0])
        warp = block.warps[first + one]
        count = int(block.words[layout.STATE_START >> 2]) + group[one][1]
        same = group.count(group[one])
        warp.report(
            rules.DIVERGENT_ALIGNED,
            _asked_by(warp),
            0,
            f"all warps of a warpgroup execute the same setmaxnreg; {same} of {WARPS} "
            f"have {count} registers for each thread in the end, warp {warp.number} "
            "among them",
        )


def _asked_by(warp: Warp) -> Event:
    """The last ``setmaxnreg`` of a warp."""
    given = warp.block.registers.reshape(len(warp.block.warps), -1)
    number = int(given[warp.number, layout.REGISTERS_EVENT >> 2]) - 1
    return warp.block.cluster.machine.kernel.events[number]


def _report(block: Block) -> None:
    machine, start = block.cluster.machine, int(block.words[layout.STATE_START >> 2])
    given = block.registers.reshape(len(block.warps), -1)
    counts = [start + int(each[layout.REGISTERS_SURPLUS >> 2]) for each in given]
    pool, asked = start * len(counts) * LANES, sum(counts) * LANES
    parts = [f"{counts.count(each)} with {each}" for each in sorted({*counts})]
    warp = block.warps[max(n for n, each in enumerate(counts) if each > start)]
    threads = machine.launch.shape.threads
    warp.report(
        rules.DEADLOCK,
        _asked_by(warp),
        0,
        f"the {threads:,} threads of the block begin with {start} registers each, "
        f"{pool:,} in all; its warps want {one_of(parts, 'and')} in the end, "
        f"{asked:,} in all: setmaxnreg.inc waits for ever for {asked - pool:,} "
        "registers that nobody releases",
        repair="Let other warps release more by setmaxnreg.dec, or ask for fewer.",
    )
