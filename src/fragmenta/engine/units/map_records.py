"""What machine code needs to know of a tensor map, written down."""

from __future__ import annotations

from math import prod

import numpy as np

from fragmenta.engine.simt.boxes import Copy, compiled
from fragmenta.engine.simt.compiled import aligned
from fragmenta.engine.units.fast import task_layout as at
from fragmenta.engine.units.records import Record
from fragmenta.reference.shared.box_layouts import BoxLayout
from fragmenta.reference.shared.boxes import OUTSIDE, slice_bytes
from fragmenta.reference.shared.swizzles import WGMMA_SWIZZLES, pattern
from fragmenta.reference.shared.tensor_map import BYTES, TensorMap
from fragmenta.reference.shared.tensor_map_rules import MOST_SIZE

_REACH = 1 << 46
"""The bytes of a tensor that addresses of 64 bits are sure to reach."""


def reduction(record: Record, kind: Copy) -> None:
    """Write down where the code of a reduction is, which was used once."""
    if kind.operation in at.OPERATIONS:
        place = (at.MAP_REDUCE >> 3) + at.OPERATIONS.index(kind.operation)
        record.longs[place] = compiled(kind).address


def ordinary(map: TensorMap) -> bool:
    """Whether machine code copies by such a map."""
    reach = sum(
        size * stride for size, stride in zip(map.sizes[1:], map.strides, strict=True)
    )
    return (
        map.im2col is None
        and not map.interleave
        and not map.element.tf32
        and map.element.bytes > 0
        and map.swizzle in WGMMA_SWIZZLES
        and max(map.sizes) <= MOST_SIZE
        and reach + map.sizes[0] * map.element.bytes + map.address < _REACH
    )


def written(data: bytes, map: TensorMap) -> Record:
    """The record of a map."""
    made = Record(aligned(at.MAP_RECORD))
    made.raw[:BYTES] = np.frombuffer(data, np.uint8)
    line = map.counts[0] * slice_bytes(map)
    for place, word in (
        (at.MAP_RANK, map.rank),
        (at.MAP_ELEMENT, map.element.bytes),
        (at.MAP_BYTES, map.box_bytes),
        (at.MAP_LINE, line),
        (at.MAP_PITCH, max(line, map.span)),
        (at.MAP_LINES, prod(map.counts[1:])),
        (at.MAP_SWIZZLE, pattern(map.swizzle).changed),
        (at.MAP_FILL, OUTSIDE if map.fill == "nan" else 0),
    ):
        made.words[place >> 2] = word
    layout = BoxLayout.of(map)
    made.longs[at.MAP_LAYOUT >> 3] = layout.number if layout is not None else 0
    made.longs[at.MAP_ADDRESS >> 3] = map.address
    made.longs[at.MAP_WIDTH >> 3] = map.sizes[0] * map.element.bytes
    for place, numbers, rest in (
        (at.MAP_COUNTS, map.counts[1:], 1),
        (at.MAP_SIZES, map.sizes[1:], 1),
        (at.MAP_STEPS, map.element_strides[1:], 1),
        (at.MAP_STRIDES, map.strides, 0),
    ):
        four = [*numbers, *[rest] * 4][:4]
        made.longs[place >> 3 : (place >> 3) + 4] = four
    return made
