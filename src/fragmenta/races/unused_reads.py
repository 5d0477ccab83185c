"""Racy reads whose values nobody uses.

Triton lets several warps load what one of them stores, if a tile is smaller than the
block; the stores of the others are disabled.  Such a read races, and its value goes
nowhere.  So a launch with a race between a load and a store of global memory is run
again with code that follows undefined bits (:mod:`definedness_watch`).  What such a
load reads is undefined there, in each lane that is not the last writer of the word.  If
nothing undefined reaches memory, a branch or an address, the race is a note.

A race in shared memory, and one of a copy or an atomic operation, stays an error.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.ptx.checking.register_effects import effects
from fragmenta.ptx.rules import ERROR, INFO, UNINITIALISED
from fragmenta.races.definedness_watch import DefinedWatch
from fragmenta.races.launch_watch import LaunchWatch
from fragmenta.races.probes.undefined_flow import can_follow
from fragmenta.races.report.stories import Collision
from fragmenta.races.shadow.detected import Detected
from fragmenta.races.shadow.global_records import FIRST_ID, ID_SHIFT, MASK_BITS, WORD
from fragmenta.races.shadow.problem_table import Moment
from fragmenta.races.suspicions import Run, Slices, place_of
from fragmenta.simt.layout import LANES, SLOT_BITS

MOST = 20_000_000
"""Warp instructions of a launch that is run again for this."""


class Writers(NamedTuple):
    """Who wrote each word of global memory last in a watched launch."""

    sites: frozenset[tuple[str, int]]
    """The loads that race: function and instruction."""
    records: dict[int, NDArray[np.int32]]
    """The records of writes, by slot."""
    threads: NDArray[np.int64]
    """The warp of each access in the table, in the grid; -1 if it is no warp."""

    def racy(self, warp: int, address: NDArray[np.uint64], size: int) -> int:
        """The lanes of a warp that read words whose last writer is another thread."""
        found = 0
        for lane, start in enumerate(address.astype(np.int64).tolist()):
            records = self.records.get(start >> SLOT_BITS)
            place = start & (1 << SLOT_BITS) - 1
            if records is None:
                continue
            some = records[place // WORD : (place + size - 1) // WORD + 1]
            some = some[some != 0]
            own = self.threads[some >> ID_SHIFT] * LANES + (some >> MASK_BITS & 31)
            found |= int((own != warp * LANES + lane).any()) << lane
        return found


def racy_reads(launch: Run) -> list[Collision]:
    """Races of a load with a store of global memory whose values can be followed."""
    watch = None if launch.machine is None else launch.machine.watching
    if not isinstance(watch, LaunchWatch) or watch.memory.full or watch.spread:
        return []
    if launch.compiled.recursive:  # its registers are not followed
        return []
    return [
        each
        for each in (launch.machine.problems if launch.machine else ())
        if isinstance(each, Collision)
        and each.severity == ERROR
        and each.noted.case in (Detected.WRITE_READ, Detected.READ_WRITE)
        and _followable(launch, watch, each)
    ]


def _reader(found: Collision) -> Moment | None:
    late = found.noted.case is Detected.WRITE_READ
    return found.noted.now if late else found.noted.before


def _followable(launch: Run, watch: LaunchWatch, found: Collision) -> bool:
    reader = _reader(found)
    if reader is None:  # several groups have read
        return False
    function, index = place_of(launch, reader.site)
    load = launch.module().functions[function].instructions[index]
    kind = watch.observers[0].order.describe(reader.agent)[0]
    narrow = all(map(can_follow, effects(load).writes))
    return kind == "warp" and load.opcode in ("ld", "ldu") and narrow


def writers(launch: Run, found: list[Collision]) -> Writers:
    """Who wrote what, for the run that follows the racy reads."""
    assert launch.machine is not None
    watch, shape = launch.machine.watching, launch.machine.launch.shape
    assert isinstance(watch, LaunchWatch)
    memory = watch.memory
    groups, agents = memory.table["group"], memory.table["agent"].astype(np.int64)
    ranks, numbers = agents // shape.warps, agents % shape.warps
    blocks = np.array([shape.members(g) for g in range(memory.groups)])
    safe = np.minimum(ranks, blocks.shape[1] - 1)
    threads = blocks[groups, safe] * shape.warps + numbers
    threads[ranks >= blocks.shape[1]] = -1
    threads[:FIRST_ID] = -1
    sites = frozenset(place_of(launch, r.site) for r in map(_reader, found) if r)
    return Writers(sites, memory.records, threads)


def judge(again: Run, launch: Run, found: list[Collision]) -> None:
    """Make races notes whose reads had no effect in the run that followed them."""
    assert again.machine is not None
    watch = again.machine.watching
    assert isinstance(watch, DefinedWatch)
    slices = Slices(again)
    used = {id(each) for each in found if _place(launch, each) not in watch.asked}
    for use in again.machine.problems:
        if use.rule != UNINITIALISED:
            continue
        places, _ = slices.origins(use)
        named = [e for e in found if _place(launch, e) in places]
        used |= {id(each) for each in named or found}
    for each in found:
        if id(each) not in used:
            each.severity, each.unused = INFO, True


def _place(launch: Run, found: Collision) -> tuple[str, int]:
    reader = _reader(found)
    assert reader is not None
    return place_of(launch, reader.site)


def is_short(instructions: int, found: list[Collision]) -> bool:
    """Whether it is worth to run a launch again."""
    return bool(found) and instructions <= MOST
