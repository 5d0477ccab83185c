"""Images of shared memory, and descriptors into them, for cases of ``wgmma``.

An image is random elements throughout, so a descriptor may lead anywhere in it:
offsets are the canonical ones or any others that stay inside.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fragmenta.inspect.evidence import inputs
from fragmenta.inspect.evidence.inputs import WordStream
from fragmenta.inspect.evidence.variants import Variant
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.registers.dtype import DType
from fragmenta.reference.shared.descriptor import (
    LIMIT,
    LINES,
    UNIT,
    Descriptor,
    MajorAxis,
    atoms,
    extent,
)
from fragmenta.reference.shared.descriptor import span as span_of
from fragmenta.reference.shared.tiles import PATTERN

SWIZZLES = (0, 32, 64, 128)
SLACK = 2 * PATTERN
"""Bytes beyond the canonical tile, for offsets that are not canonical."""


def memory(
    dt: DType, size: int, kinds: list[str], source: WordStream
) -> NDArray[np.uint8]:
    """A region of the image of each tile, elements of its kind throughout."""
    if dt.bits < 8:
        return source.words((len(kinds), size // 8)).view(np.uint8)
    shape = (1, 8 * size // dt.bits)
    make = inputs.floats if dt.kind == "float" else inputs.integers
    bits = [make(dt, kind, False, shape, source) for kind in kinds]
    return np.concatenate(bits).astype(dt.bits_dtype).view(np.uint8)


def regions(op: Instruction, variant: Variant) -> list[tuple[str, int]]:
    """What the image holds, one after the other, and how many bytes of each."""
    names = ("B",) if variant.a_registers else ("A", "B")
    found = []
    for name in names:
        of, major = op.types[name.lower()], variant.major(name)
        sizes = []
        for swizzle in SWIZZLES:
            lines, spans = atoms(*extent(op, name), of, major, swizzle)
            sizes.append(lines * spans * LINES * span_of(swizzle))
        found.append((name, -(-max(sizes) // PATTERN) * PATTERN + SLACK))
    return found


def descriptors(
    op: Instruction,
    operand: str,
    variant: Variant,
    start: int,
    size: int,
    tiles: int,
    source: WordStream,
) -> NDArray[np.uint64]:
    """A descriptor for each tile: swizzles in turn, canonical or not at random."""
    # A and B do not have the same swizzle in every tile.
    turn = variant.turn if operand == "B" else variant.turn // 4
    step = 1 if operand == "B" else 3
    words = []
    for tile in range(tiles):
        swizzle = SWIZZLES[(turn + step * tile) % 4]
        made = _descriptor(op, operand, variant.major(operand), swizzle, size, source)
        words.append(replace(made, start=made.start + start).encode())
    return np.array(words, np.uint64)


def _descriptor(
    op: Instruction,
    operand: str,
    major: MajorAxis,
    swizzle: int,
    size: int,
    source: WordStream,
) -> Descriptor:
    """A descriptor whose tile stays within the first bytes of the image."""
    rows, k = extent(op, operand)
    of = op.types[operand.lower()]
    wide = span_of(swizzle)
    advance = 0
    if major == "k" and swizzle:  # begin inside a swizzle row, where it has room
        advance = UNIT * _pick(source, max(0, wide - k * of.bits // 8) // UNIT)
    if _pick(source, 1):
        order: MajorAxis = "k" if _pick(source, 1) else "mn"
        tile = Descriptor.for_tile(
            rows, k, of, major=major, swizzle=swizzle, order=order
        )
        return replace(tile, start=advance)
    lines, spans = atoms(rows, k, of, major, swizzle)
    atom = LINES * wide
    start = atom * _pick(source, SLACK // 2 // atom)
    room = size - start - atom
    along = UNIT * _pick(source, room // max(1, spans - 1) // UNIT)
    used = along * (spans - 1)
    across = UNIT * _pick(source, (room - used) // max(1, lines - 1) // UNIT)
    # An offset that the tile does not use may have any value.
    along = along if spans > 1 else UNIT * _pick(source, LIMIT // UNIT - 1)
    across = across if lines > 1 else UNIT * _pick(source, LIMIT // UNIT - 1)
    return Descriptor.from_steps(
        start + advance, along, across, major=major, swizzle=swizzle
    )


def _pick(source: WordStream, most: int) -> int:
    """A number from 0 to ``most``."""
    return int(source.below(most + 1, (1,))[0])
