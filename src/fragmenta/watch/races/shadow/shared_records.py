"""Records of accesses of shared memory, in compiled code.

A record has 64 bits; :mod:`layout` has its fields.  :func:`known` says whether the
access of a record happened before another one.
"""

from __future__ import annotations

from typing import NamedTuple

from fragmenta.base.jit.trace import (
    I32,
    I64,
    Value,
    compare_unsigned,
    convert,
    ones,
    select,
    shift_unsigned,
    smaller,
)
from fragmenta.engine.simt.library import as_signed
from fragmenta.watch.races.shadow import layout
from fragmenta.watch.races.shadow.layout import Lanes
from fragmenta.watch.races.shadow.order import Plane


def part(record: Value, at: int, bits: int) -> Value:
    """A field of a record, as 32 bits."""
    return convert(shift_unsigned(record, at) & ((1 << bits) - 1), I32)


def epoch_of(record: Value) -> Value:
    """The epoch of the access."""
    return part(record, layout.EPOCH_AT, layout.EPOCH_BITS)


def agent_of(record: Value) -> Value:
    """The agent that accessed."""
    return part(record, layout.AGENT_AT, layout.AGENT_BITS)


def lane_in(record: Value) -> Value:
    """The lane that the record names."""
    return part(record, layout.LANE_AT, layout.LANE_BITS)


def lanes_of(record: Value) -> Value:
    """The class of its lanes: one of ``Lanes``."""
    return part(record, layout.CLASS_AT, layout.CLASS_BITS)


def mask_of(record: Value) -> Value:
    """The bytes of the word that were accessed."""
    return part(record, layout.MASK_AT, layout.MASK_BITS)


def site_of(record: Value) -> Value:
    """The place in the kernel."""
    return part(record, layout.SITE_AT, layout.SITE_BITS)


def with_part(record: Value, at: int, bits: int, value: Value) -> Value:
    """A record with another field."""
    cleared = record & as_signed(~layout.field_mask(at, bits), 64)
    return cleared | (convert(value, I64, signed=False) << at)


def packed(
    site: Value, epoch: Value, agent: Value, lane: Value, lanes: Value, mask: Value
) -> Value:
    """A new record, without the bytes that were ever written."""
    record = convert(site, I64, signed=False) << layout.SITE_AT
    for value, at in (
        (epoch, layout.EPOCH_AT),
        (agent, layout.AGENT_AT),
        (lane, layout.LANE_AT),
        (lanes, layout.CLASS_AT),
        (mask, layout.MASK_AT),
    ):
        record = record | (convert(value, I64, signed=False) << at)
    return record


def kept_epoch(epoch: Value) -> Value:
    """An epoch as a record keeps it."""
    return smaller(epoch, layout.LAST_EPOCH)


def kept_site(site: Value) -> Value:
    """A site as a record keeps it."""
    inside = compare_unsigned("<", site, layout.LAST_SITE)
    return select(inside, site, layout.LAST_SITE)


def is_strong(lanes: Value) -> Value:
    """Whether the lanes of a record used strong operations."""
    strong: Value = lanes >= int(Lanes.STRONG_ONE)
    return strong


class Viewer(NamedTuple):
    """Who makes the later access, and what it knows."""

    plane: Plane
    """What it knows, through one proxy."""
    agent: Value
    """Its agent, or -1 if it knows nothing by itself."""
    own: Value
    """A mask of its lane, which knows its own accesses; 0 if there are several."""
    copier: Value | None = None
    """The agent of the ``cp.async`` of its warp."""
    waited: Value | None = None
    """Its lane has waited for its own ``cp.async`` before this epoch."""


def known(viewer: Viewer, record: Value, lane: Value, overlap: Value) -> Value:
    """Whether the access of these bytes happened before.

    If a record does not name its lanes, it counts as known if any lanes that are known
    may be those.
    """
    agent, epoch, lanes = agent_of(record), epoch_of(record), lanes_of(record)
    every, named_lanes = viewer.plane.known(agent, epoch)
    mine = agent == viewer.agent
    available = named_lanes | select(mine, viewer.own, 0)
    if viewer.copier is not None and viewer.waited is not None:
        copied = (agent == viewer.copier) & (epoch < viewer.waited)
        available = available | select(copied, viewer.own, 0)
    halves = convert((overlap & 3) != 0, I32, signed=False) | (
        convert((overlap & 12) != 0, I32, signed=False) << 1
    )
    spread = select(
        lanes == int(Lanes.HALVES),
        halves,
        select(lanes == int(Lanes.BYTES), overlap, overlap.lift(1)),
    )
    needed = spread << lane
    several = lanes == int(Lanes.SEVERAL)
    anyone = (lanes == int(Lanes.ANY)) | (lanes == int(Lanes.STRONG_ANY))
    named = (needed & ~available) == 0
    count = ones(available)
    enough = select(several, count > 1, select(anyone, (count > 0) | mine, named))
    return every | enough


def combined(old: Value, new: Value, lane: Value) -> Value:
    """One record for two accesses by lanes of a warp that do not know one another.

    ``lane`` is the lane of the old record.  The epoch is that of the earlier one.
    """
    classes = lanes_of(old), lanes_of(new)
    masks = mask_of(old), mask_of(new)
    epoch = smaller(epoch_of(old), epoch_of(new))
    one = classes[0].lift(int(Lanes.ONE))
    many = [each == int(Lanes.SEVERAL) for each in classes]
    whole = (classes[0] <= one + 1) & (classes[1] <= one + 1)
    # Every byte must be one of at least two lanes.
    covered = (masks[0] == masks[1]) | (many[0] & many[1])
    covered = covered | (many[0] & ((masks[1] & ~masks[0]) == 0))
    covered = covered | (many[1] & ((masks[0] & ~masks[1]) == 0))
    strong = is_strong(classes[0]), is_strong(classes[1])
    lanes = select(covered & whole, one.lift(int(Lanes.SEVERAL)), int(Lanes.ANY))
    lanes = select(strong[0] & strong[1], one.lift(int(Lanes.STRONG_ANY)), lanes)
    result = with_part(new, layout.CLASS_AT, layout.CLASS_BITS, lanes)
    result = with_part(result, layout.MASK_AT, layout.MASK_BITS, masks[0] | masks[1])
    result = with_part(result, layout.EPOCH_AT, layout.EPOCH_BITS, epoch)
    side, first, kind = _side_by_side(old, new, lane)
    spread = with_part(result, layout.CLASS_AT, layout.CLASS_BITS, kind)
    spread = with_part(spread, layout.LANE_AT, layout.LANE_BITS, first)
    result = select(side, spread, result)
    # A plain access is worth more than a strong one.
    result = select(strong[1] & ~strong[0], old, result)
    return select(strong[0] & ~strong[1], new, result)


def _first_lane(record: Value, lane: Value) -> tuple[Value, Value]:
    """For bytes side by side: the lane of the first byte, and ``Lanes``."""
    mask, lanes = mask_of(record), lanes_of(record)
    half = (mask == 3) | (mask == 12)
    single = (mask == 1) | (mask == 2) | (mask == 4) | (mask == 8)
    number = select(
        half,
        shift_unsigned(mask, 3),
        shift_unsigned(mask, 1) - shift_unsigned(mask, 3),
    )
    one = lanes == int(Lanes.ONE)
    spread = (lanes == int(Lanes.HALVES)) | (lanes == int(Lanes.BYTES))
    first = select(one, lane - number, lane)
    kind = select(
        one & half,
        lanes.lift(int(Lanes.HALVES)),
        select(one & single, lanes.lift(int(Lanes.BYTES)), 0),
    )
    return first, select(spread, lanes, kind)


def _side_by_side(old: Value, new: Value, lane: Value) -> tuple[Value, Value, Value]:
    """Whether lanes side by side accessed bytes side by side."""
    before, now = _first_lane(old, lane), _first_lane(new, lane_in(new))
    side = (before[0] == now[0]) & (before[1] == now[1]) & (now[1] != 0)
    side = side & (now[0] >= 0) & (epoch_of(old) == epoch_of(new))
    return side, now[0], now[1]
