"""What should the instructions that read shared memory be tried on?

A plan names the cases: an instruction, a :class:`Variant` (where A is, and the
immediates), and how many tiles.  A trial is their operands.  Its image is
random elements throughout, so a descriptor may lead anywhere in it: offsets are
the canonical ones or any others that stay inside.  Everything follows from a
seed and is checked by a digest, as in :mod:`fragmenta.evidence.inputs`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from itertools import count, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fragmenta.arrays.checks import is_whole
from fragmenta.errors import Error, one_of
from fragmenta.evidence import inputs
from fragmenta.evidence.inputs import Source
from fragmenta.isa.families import catalogue
from fragmenta.isa.instruction import Instruction
from fragmenta.isa.table import read
from fragmenta.isa.tables.wgmma import operands_from
from fragmenta.registers.dtype import DType
from fragmenta.registers.fragment import Words
from fragmenta.shared.descriptor import (
    LIMIT,
    LINES,
    UNIT,
    Descriptor,
    Major,
    atoms,
    extent,
)
from fragmenta.shared.descriptor import span as span_of
from fragmenta.shared.tiles import PATTERN

SWIZZLES = (0, 32, 64, 128)
SLACK = 2 * PATTERN
"""Bytes beyond the canonical tile, for offsets that are not canonical."""

# D of one tile takes 256 x n bytes, so wide instructions get few.  ``each``
# says what every instruction is tried with: all variants, both places of A
# (the rest in turn), or one (everything in turn).  ``few`` are the
# instructions with A and B of one type, without .satfinite.
PLAN = """
n   | tiles | each | of
8   | 8     | all  | every
24  | 2     | both | every
64  | 1     | both | every
96  | 1     | one  | every
256 | 1     | one  | few
"""


@dataclass(frozen=True)
class Variant:
    """How an instruction is run: where A is, its immediates, and a turn.

    ``turn`` decides which kinds of input and which swizzles its tiles begin
    with, so that cases of few tiles do not all have the same.
    """

    a_registers: bool
    selector: int | None = None
    scale_a: int = 1
    scale_b: int = 1
    trans_a: int = 0
    trans_b: int = 0
    turn: int = 0

    def immediates(self, op: Instruction) -> dict[str, int]:
        """Those that the instruction has.

        >>> import fragmenta as fm
        >>> Variant(True).immediates(fm.wgmma("m64n8k8", a="tf32"))
        {'scale_a': 1, 'scale_b': 1}
        """
        listed = operands_from(op, registers=self.a_registers)
        names = [each.name for each in listed if each.ptx == "immediate"]
        return {name: int(getattr(self, name) or 0) for name in names}

    def major(self, operand: str) -> Major:
        """``"mn"`` where the operand is transposed."""
        return "mn" if (self.trans_a if operand == "A" else self.trans_b) else "k"


@dataclass(frozen=True)
class Trial:
    """Operands of one case: arrays (tiles, …), as the kernels take them.

    ``a`` is registers, or the words of descriptors; ``b`` is words.
    """

    variant: Variant
    c: Words
    a: NDArray[Any]
    b: NDArray[np.uint64]
    metadata: Words | None
    scale_d: NDArray[np.uint32]
    image: NDArray[np.uint8]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """By the names of the kernel's parameters."""
        found = {
            "c": self.c,
            "a": self.a,
            "b": self.b,
            "metadata": self.metadata,
            "scale_d": self.scale_d,
            "image": self.image,
        }
        return {name: array for name, array in found.items() if array is not None}

    def digest(self) -> str:
        """A short fingerprint of all operands."""
        return fingerprint(self.arrays(), asdict(self.variant))


def fingerprint(arrays: dict[str, NDArray[Any]], *more: object) -> str:
    """A short digest of named arrays and whatever else decides a case."""
    total = hashlib.sha256(repr(more).encode())
    for name in sorted(arrays):
        total.update(np.ascontiguousarray(arrays[name]).tobytes())
    return total.hexdigest()[:16]


# ── the plan ────────────────────────────────────────────────────────────────


def plan() -> Iterator[tuple[Instruction, Variant, int]]:
    """Every case of wgmma, with its number of tiles.

    >>> sum(1 for _ in plan())
    352
    """
    turns = count()
    for line in read(PLAN):
        n, tiles = int(line["n"]), int(line["tiles"])
        for family in ("wgmma", "wgmma.sp"):
            for op in catalogue(family):
                if op.shape.n != n or (line["of"] == "few" and not _plain(op)):
                    continue
                for variant in _chosen(variants(op), line["each"], turns):
                    yield op, variant, tiles


def _plain(op: Instruction) -> bool:
    return op.types["a"] == op.types["b"] and not op.satfinite


def variants(op: Instruction) -> list[Variant]:
    """All places of A, selectors and transpositions an instruction has.

    >>> import fragmenta as fm
    >>> len(variants(fm.wgmma("m64n8k32", a="f16", d="f32", sp="sp")))
    12
    """
    found = []
    transposed = (0, 1) if op.types["a"].bits == 16 else (0,)
    for registers, selector in product((False, True), op.selectors or (None,)):
        for trans_a in (0,) if registers else transposed:
            for trans_b in transposed:
                variant = Variant(registers, selector, trans_a=trans_a, trans_b=trans_b)
                found.append(variant)
    return found


def check_variant(op: Instruction, given: Mapping[str, Any]) -> None:
    """Refuse names and values that are no variant of an instruction.

    >>> import fragmenta as fm
    >>> op = fm.wgmma("m64n8k8", a="tf32")
    >>> check_variant(op, asdict(Variant(False)))
    >>> check_variant(op, asdict(Variant(False, trans_a=1)))
    Traceback (most recent call last):
    fragmenta.errors.Error: wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 has no \
such variant: {'a_registers': False, 'selector': None, 'trans_a': 1, 'trans_b': 0}
    """
    names = [each.name for each in fields(Variant)]
    if not isinstance(given, Mapping) or set(given) != set(names):
        raise Error(f"a variant has {one_of(names, 'and')}; given {given!r:.60}")
    free = {"scale_a": (1, -1), "scale_b": (1, -1), "turn": range(1 << 31)}
    for name, allowed in free.items():
        if not is_whole(given[name]) or given[name] not in allowed:
            raise Error(f"{name} of a variant is not {given[name]!r:.40}")
    fixed = {name: given[name] for name in names if name not in free}
    listed = [asdict(each) for each in variants(op)]
    # repr tells 1 from True and from 1.0, which decide how inputs are made.
    if repr(fixed) not in {repr({name: x[name] for name in fixed}) for x in listed}:
        raise Error(f"{op} has no such variant: {fixed!r:.120}")


def _chosen(found: list[Variant], each: str, turns: Iterator[int]) -> Iterator[Variant]:
    """The variants of one instruction; negations go in turn."""
    places = ([v for v in found if v.a_registers == a] for a in (False, True))
    groups = {"all": [[v] for v in found], "both": list(places), "one": [found]}
    for group in groups[each]:
        number = next(turns)
        # Two cases for each instruction must not mean that each has its own
        # half of the kinds and swizzles: 0, 1, 3, 4, 6, 7, 9 …
        turn = number + number // 2
        yield replace(
            group[turn % len(group)],
            scale_a=-1 if turn & 1 else 1,
            scale_b=-1 if turn & 2 else 1,
            turn=turn,
        )


# ── the operands ────────────────────────────────────────────────────────────


def trial(op: Instruction, variant: Variant, tiles: int, seed: int) -> Trial:
    """The operands of one case.

    >>> import fragmenta as fm
    >>> one = trial(fm.wgmma("m64n8k16", a="f16", d="f32"), Variant(False), 8, seed=1)
    >>> one.c.shape, one.a.shape, one.image.shape
    ((8, 128, 4), (8,), (8, 13312))
    """
    source = Source(str(op), asdict(variant), tiles, seed)
    kinds = inputs.kinds(op)
    chosen = [kinds[(variant.turn + tile) % len(kinds)] for tile in range(tiles)]
    c = _registers(op, "C", chosen, source)
    regions = _regions(op, variant)
    image = np.concatenate(
        [
            _memory(op.types[name.lower()], size, chosen, source)
            for name, size in regions
        ],
        axis=1,
    )
    words = {
        name: _descriptors(op, name, variant, start, size, tiles, source)
        for (name, size), start in zip(regions, _starts(regions), strict=True)
    }
    a = words["A"] if "A" in words else _registers(op, "A", chosen, source)
    metadata = None
    if op.sparse:
        codes = inputs._codes(op, tiles, source)
        part = op.fragments["metadata"]
        metadata = inputs._noise(part, codes, variant.selector or 0, source)
    scale_d = source.below(2, (tiles,)).astype(np.uint32)
    return Trial(variant, c, a, words["B"], metadata, scale_d, image)


def _registers(op: Instruction, name: str, kinds: list[str], source: Source) -> Words:
    part = op.fragments[name]
    bits = [inputs._elements(part, name, kind, 1, source) for kind in kinds]
    return part.pack(part.dtype.decode(np.concatenate(bits)))


def _memory(
    dt: DType, size: int, kinds: list[str], source: Source
) -> NDArray[np.uint8]:
    """A region of the image of each tile, elements of its kind throughout."""
    if dt.bits < 8:
        return source.words((len(kinds), size // 8)).view(np.uint8)
    shape = (1, 8 * size // dt.bits)
    make = inputs._floats if dt.kind == "float" else inputs._integers
    bits = [make(dt, kind, False, shape, source) for kind in kinds]
    return np.concatenate(bits).astype(dt.bits_dtype).view(np.uint8)


def _regions(op: Instruction, variant: Variant) -> list[tuple[str, int]]:
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


def _starts(regions: list[tuple[str, int]]) -> list[int]:
    return [sum(size for _, size in regions[:n]) for n in range(len(regions))]


def _descriptors(
    op: Instruction,
    operand: str,
    variant: Variant,
    start: int,
    size: int,
    tiles: int,
    source: Source,
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
    major: Major,
    swizzle: int,
    size: int,
    source: Source,
) -> Descriptor:
    """One that stays within so many bytes, from 0 on."""
    rows, k = extent(op, operand)
    of = op.types[operand.lower()]
    wide = span_of(swizzle)
    advance = 0
    if major == "k" and swizzle:  # begin inside a swizzle row, where it has room
        advance = UNIT * _pick(source, max(0, wide - k * of.bits // 8) // UNIT)
    if _pick(source, 1):
        order: Major = "k" if _pick(source, 1) else "mn"
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
    # An offset that leads nowhere may be anything: nobody reads it.
    along = along if spans > 1 else UNIT * _pick(source, LIMIT // UNIT - 1)
    across = across if lines > 1 else UNIT * _pick(source, LIMIT // UNIT - 1)
    return Descriptor.from_steps(
        start + advance, along, across, major=major, swizzle=swizzle
    )


def _pick(source: Source, most: int) -> int:
    """A number from 0 to ``most``."""
    return int(source.below(most + 1, (1,))[0])


# ── ldmatrix, stmatrix, movmatrix ───────────────────────────────────────────

MOVE_BYTES = 4096
"""The image of a move."""


@dataclass(frozen=True)
class MoveTrial:
    """Operands of one move, (tiles, …); what it does not take is absent."""

    a: Words | None
    address: NDArray[np.uint32] | None
    image: NDArray[np.uint8] | None

    def arrays(self) -> dict[str, NDArray[Any]]:
        """By the names of the kernel's parameters."""
        found = {"a": self.a, "address": self.address, "image": self.image}
        return {name: array for name, array in found.items() if array is not None}

    def digest(self) -> str:
        """A short fingerprint of all operands."""
        return fingerprint(self.arrays())


def move_plan(target: str) -> Iterator[Instruction]:
    """Every move that a target has.

    >>> sum(1 for _ in move_plan("sm_90a"))
    37
    """
    for family in ("ldmatrix", "stmatrix", "movmatrix"):
        for op in catalogue(family):
            if op.supported_on(target):
                yield op


def move_trial(op: Instruction, tiles: int, seed: int) -> MoveTrial:
    """Random bytes and registers, and a row of its own for each lane.

    >>> import fragmenta as fm
    >>> sorted(move_trial(fm.find("ldmatrix.m8n8.x4.b16"), 2, seed=1).arrays())
    ['address', 'image']
    """
    source = Source(str(op), tiles, seed)
    a = address = image = None
    if "A" in op.fragments:
        shape = (tiles, 32, op.fragments["A"].registers)
        a = source.words(shape).astype(np.uint32)
    if op.family != "movmatrix":
        image = source.words((tiles, MOVE_BYTES // 8)).view(np.uint8)
        order = np.argsort(source.words((tiles, MOVE_BYTES // UNIT)), axis=1)
        address = (UNIT * order[:, :32]).astype(np.uint32)
    return MoveTrial(a, address, image)
