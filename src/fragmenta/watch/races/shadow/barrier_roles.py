"""Which warps use a barrier together, in machine code.

A barrier with a count of threads belongs to a group of warps.  If other warps use the
same barrier, each of their arrivals must come after the phase before it is complete;
otherwise it may be counted in that phase, in another order of the warps.  So must those
of a warp that signalled in that phase and came again before it was complete
(:mod:`fragmenta.engine.simt.barriers`).  All arrivals of one phase must give the same
count.
"""

from __future__ import annotations

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import (
    I32,
    I64,
    Code,
    Memory,
    Value,
    convert,
    larger,
    select,
)
from fragmenta.engine.simt import layout as engine
from fragmenta.engine.simt import warps
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.library import field
from fragmenta.engine.simt.memory import lane_of
from fragmenta.engine.simt.warps import P, routine
from fragmenta.watch.races.shadow import layout
from fragmenta.watch.races.shadow.barrier_clocks import clock_at, each_barrier, watching
from fragmenta.watch.races.shadow.order import BlockHead, WarpClocks, clock_row, warp_of


def _collides(
    code: Code,
    warp: Raw,
    block: Raw,
    numbers: Raw,
    counts: Raw,
    lanes: Value,
    site: Value,
) -> Value:
    """The lanes whose arrival collides with those of others; it is noted, too."""
    found = code.variable(lanes.lift(0))

    def then(head: BlockHead) -> None:
        new = lanes & ~field(code, warp, engine.ARRIVED, I32)[0]
        clocks = warp_of(code, head, warp)

        def each(number: Value, group: Value) -> Value:
            wrong = _arrival(code, clocks, warp, block, number, counts, group, site)
            found.value = select(wrong != 0, found.value | group, found.value)
            return group

        each_barrier(code, numbers, new, each)

    watching(code, block, then)
    return found.value


def _arrival(
    code: Code,
    clocks: WarpClocks,
    warp: Raw,
    block: Raw,
    number: Value,
    counts: Raw,
    lanes: Value,
    site: Value,
) -> Value:
    """Note an arrival at a barrier; what is wrong with it."""
    head = clocks.head
    place = number * engine.BARRIER_BYTES + (engine.BLOCK_BARRIERS + 8)
    phase = field(code, code.builder.gep(block, [place.raw]), 0, I32)[0]
    first = convert(warps.first_lane(lanes), I64) & (LANES - 1)
    count = lane_of(code, warps.words(code, counts), first)
    own = field(code, warp, engine.WARP_NUMBER, I32)[0]
    now, last = (clock_at(code, head, number, each) for each in (phase, phase - 1))

    def word(clock: Raw, offset: int) -> Value:
        return field(code, clock, offset, I32)[0]

    wrong = code.variable(lanes.lift(0))
    begins = word(now, layout.CLOCK_USED) != phase + 1
    with code.when(begins):
        for offset, value in (
            (layout.CLOCK_USED, phase + 1),
            (layout.CLOCK_WARPS, phase.lift(0)),
            (layout.CLOCK_COUNT, count),
            (layout.CLOCK_SITE, site),
        ):
            field(code, now, offset, I32)[0] = value
    with code.when(word(now, layout.CLOCK_COUNT) != count):
        _tell(code, head, layout.COUNTS, number, now, _USED)
        wrong.value = lanes.lift(layout.COUNTS)
    before = word(last, layout.CLOCK_WARPS)
    apart = (word(last, layout.CLOCK_USED) == phase) & (phase > 0)
    held = field(code, warp, engine.HELD, I32)[0] != 0
    apart = apart & ((((before >> own) & 1) == 0) | held)
    with code.when(apart & (_unknown(code, clocks, lanes, before, last) != 0)):
        _tell(code, head, layout.WARPS, number, last, _USED)
        wrong.value = lanes.lift(layout.WARPS)
    mine = field(code, now, layout.CLOCK_WARPS, I32)
    mine[0] = mine[0] | own.lift(1) << own
    return wrong.value


def _unknown(
    code: Code, clocks: WarpClocks, lanes: Value, before: Value, last: Raw
) -> Value:
    """Whether lanes do not know of an arrival in the phase before."""
    head, found = clocks.head, code.variable(lanes.lift(0))
    mine, theirs = clocks.row_of(lanes), clock_row(code, last)
    with code.loop(convert(head.word(layout.HEAD_WARPS), I64)) as number:
        agent = convert(head.word(layout.HEAD_AGENT), I64) + number
        known, came = (
            larger(row[agent], row[agent + head.row]) for row in (mine, theirs)
        )
        took = ((before >> convert(number, I32)) & 1) != 0
        late = took & (known < came)
        found.value = found.value | convert(late, I32, signed=False)
    return found.value


_USED = (layout.CLOCK_WARPS, layout.CLOCK_COUNT, layout.CLOCK_SITE)
_MET = (layout.CLOCK_MET_WARPS, layout.CLOCK_MET_LINE, layout.CLOCK_MET_SITE)


def _meets(
    code: Code,
    warp: Raw,
    block: Raw,
    numbers: Raw,
    lanes: Value,
    line: Value,
    site: Value,
) -> Value:
    """The lanes that meet others which came to another line; it is noted, too."""
    found = code.variable(lanes.lift(0))

    def then(head: BlockHead) -> None:
        new = lanes & ~field(code, warp, engine.ARRIVED, I32)[0]
        own = field(code, warp, engine.WARP_NUMBER, I32)[0]

        def each(number: Value, group: Value) -> Value:
            place = number * engine.BARRIER_BYTES + (engine.BLOCK_BARRIERS + 8)
            phase = field(code, code.builder.gep(block, [place.raw]), 0, I32)[0]
            clock = clock_at(code, head, number, phase)

            def word(offset: int) -> Memory:
                return field(code, clock, offset, I32)

            with code.when(word(layout.CLOCK_MET)[0] != phase + 1):
                word(layout.CLOCK_MET)[0] = phase + 1
                word(layout.CLOCK_MET_LINE)[0] = line
                word(layout.CLOCK_MET_SITE)[0] = site
                word(layout.CLOCK_MET_WARPS)[0] = phase.lift(0)
            other = word(layout.CLOCK_MET_LINE)[0] != line
            with code.when(other):
                _tell(code, head, layout.LINES, number, clock, _MET)
                found.value = found.value | group
            with code.when(~other):
                mine = word(layout.CLOCK_MET_WARPS)
                mine[0] = mine[0] | own.lift(1) << own
            return group

        each_barrier(code, numbers, new, each)

    watching(code, block, then)
    return found.value


def _tell(
    code: Code,
    head: BlockHead,
    kind: int,
    number: Value,
    clock: Raw,
    parts: tuple[int, int, int],
) -> None:
    """Write down what collides, for Python."""
    found = [number.lift(kind), number]
    found += [field(code, clock, each, I32)[0] for each in parts]
    goal = field(code, head.raw, layout.HEAD_COLLIDED, I32)
    for place, value in enumerate(found):
        goal[place] = value


COLLIDES = routine("watch.bar.collides", _collides, [P, P, P, P, I32, I32], I32)
"""Called before a barrier with a count: warp, block, barriers and counts of the lanes,
lanes, site; the lanes that report."""
MEETS = routine("watch.bar.meets", _meets, [P, P, P, I32, I32, I32], I32)
"""Called before a barrier of all threads: warp, block, barriers of lanes, lanes, the
line of the source as a number, site; the lanes that report."""
