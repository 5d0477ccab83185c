"""Cases of ``wgmma`` and ``wgmma.sp``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import accumulate, count
from textwrap import wrap
from typing import Any

import numpy as np

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.cuda.tools.device import Array
from fragmenta.cuda.tools.launch import Arrays, TileKernel
from fragmenta.errors import BadFile
from fragmenta.inspect.evidence import images, inputs
from fragmenta.inspect.evidence.case import Answer, CaseOptions, Mismatch, TileCase
from fragmenta.inspect.evidence.inputs import WordStream
from fragmenta.inspect.evidence.reproduction import Fed, repeating
from fragmenta.inspect.evidence.validation import RecordedCase, recorded_instruction
from fragmenta.inspect.evidence.variants import Variant, checked_variant, variants
from fragmenta.reference.execution.mma import stored_columns
from fragmenta.reference.execution.wgmma import execute
from fragmenta.reference.isa.families import catalogue
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.table import read
from fragmenta.reference.registers.fragment import Words
from fragmenta.reference.shared.tiles import read_tile

FAMILIES = ("wgmma", "wgmma.sp")

# D of one tile takes 256 x n bytes, so wide instructions get few.  ``each``
# says what every instruction is tried with: all variants, both places of A
# (the rest in turn), or one (everything in turn).  ``few`` are the
# instructions with A and B of one type, without .satfinite.
RECORDED = """
n   | tiles | each | of
8   | 8     | all  | every
24  | 2     | both | every
64  | 1     | both | every
96  | 1     | one  | every
256 | 1     | one  | few
"""


@dataclass(frozen=True)
class WarpgroupCase(TileCase):
    """Tiles of one instruction, all run in one way.

    >>> import fragmenta as fm
    >>> op = fm.wgmma("m64n8k16", a="f16", d="f32")
    >>> found = WarpgroupCase(op, Variant(False), tiles=8, seed=1).inputs()
    >>> found["c"].shape, found["a"].shape, found["image"].shape
    ((8, 128, 4), (8,), (8, 13312))
    """

    kind = "warpgroup"

    op: Instruction
    way: Variant
    tiles: int
    seed: int

    @property
    def kernel(self) -> TileKernel:
        """One for each variant, whose images are all of one size."""
        size = sum(size for _, size in images.regions(self.op, self.way))
        chosen = tuple(self.way.immediates(self.op).items())
        return TileKernel(self.op, chosen, self.way.a_registers, size)

    @property
    def options(self) -> CaseOptions:
        """The variant, and its selector once more."""
        return {"selector": self.way.selector, "variant": asdict(self.way)}

    @property
    def salt(self) -> str:
        """The variant."""
        return repr((asdict(self.way),))

    def inputs(self) -> Arrays:
        """Registers, descriptors and images; ``a`` is registers or descriptors."""
        op, way, tiles = self.op, self.way, self.tiles
        source = WordStream(str(op), asdict(way), tiles, self.seed)
        kinds = inputs.kinds(op)
        chosen = [kinds[(way.turn + tile) % len(kinds)] for tile in range(tiles)]
        found: dict[str, Array] = {"c": _registers(op, "C", chosen, source)}
        regions = images.regions(op, way)
        parts = [
            images.memory(op.types[name.lower()], size, chosen, source)
            for name, size in regions
        ]
        found["image"] = np.concatenate(parts, axis=1)
        starts = accumulate((size for _, size in regions), initial=0)
        for (name, size), start in zip(regions, starts, strict=False):
            words = images.descriptors(op, name, way, start, size, tiles, source)
            found[name.lower()] = words
        if way.a_registers:
            found["a"] = _registers(op, "A", chosen, source)
        if op.sparse:
            found["metadata"] = inputs.metadata(op, tiles, way.selector or 0, source)
        found["scale_d"] = source.below(2, (tiles,)).astype(np.uint32)
        return found

    def expect(self, inputs: Arrays, target: str) -> Answer:
        """The result of ``execute``."""
        operands, options = self.operands(inputs)
        return execute(self.op, *operands, **options, target=target)

    def operands(self, inputs: Arrays) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The inputs as ``execute`` and ``on_device`` take them."""
        options = {
            "smem": inputs["image"],
            "scale_d": inputs["scale_d"],
            **self.way.immediates(self.op),
        }
        if "metadata" in inputs:
            options["metadata"] = inputs["metadata"]
        return (inputs["c"], inputs["a"], inputs["b"]), options

    def program(self, inputs: Arrays, found: Mismatch, target: str) -> str:
        """A program that makes the tile again: its image is too long to print."""
        lines = [
            "import fragmenta as fm",
            "from fragmenta.inspect.evidence.warpgroup import Variant, wgmma_tile",
            "",
            f'op = fm.instruction("{self.op}")',
            *wrap(f"variant = {self.way}", 84, subsequent_indent="    "),
            "operands, options = wgmma_tile(",
            f"    op, variant, tiles={self.tiles}, seed={self.seed}, tile={found.tile}",
            ")",
        ]
        one = {name: array[found.tile] for name, array in inputs.items()}
        return repeating(self.op, lines, self.fed(one), found, target)

    def fed(self, one: Arrays) -> Fed:
        """The matrices of one tile, from its registers and its image."""
        op, way, image = self.op, self.way, one["image"]
        a = (
            op.a.unpack_bits(one["a"])
            if way.a_registers
            else read_tile(op, "A", image, one["a"], major=way.major("A"))
        )
        b = read_tile(op, "B", image, one["b"], major=way.major("B"))
        c = op.c.unpack_bits(one["c"]) * one["scale_d"].astype(one["c"].dtype)
        index = stored_columns(op, one.get("metadata"), way.selector or 0)
        return Fed(a, b, c, index)


def _registers(
    op: Instruction, name: str, kinds: list[str], source: WordStream
) -> Words:
    """Each tile of a kind of its own."""
    part = op.fragments[name]
    bits = [inputs.elements(part, name, kind, 1, source) for kind in kinds]
    return part.pack(part.dtype.decode(np.concatenate(bits)))


def wgmma_tile(
    op: Instruction, variant: Variant, *, tiles: int, seed: int, tile: int
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """One tile of a case, as ``execute`` and ``on_device`` take it.

    >>> import fragmenta as fm
    >>> op = fm.wgmma("m64n8k32", a="s8")
    >>> operands, options = wgmma_tile(op, Variant(True), tiles=8, seed=1, tile=3)
    >>> op.execute(*operands, **options).shape
    (128, 4)
    """
    case = WarpgroupCase(op, variant, tiles, seed)
    operands, options = case.operands(case.inputs())
    one = {
        name: value[tile] if isinstance(value, np.ndarray) else value
        for name, value in options.items()
    }
    return tuple(each[tile] for each in operands), one


# ── what is recorded ────────────────────────────────────────────────────────


def cases(target: str, *, seed: int) -> list[WarpgroupCase]:
    """Every case that is recorded, with its own number of tiles.

    >>> len(cases("sm_90a", seed=1)), len(cases("sm_80", seed=1))
    (352, 0)
    """
    turns = count()
    return [
        WarpgroupCase(op, variant, int(line["tiles"]), seed)
        for line in read(RECORDED)
        for family in FAMILIES
        for op in catalogue(family)
        if op.shape.n == int(line["n"]) and (line["of"] == "every" or _plain(op))
        for variant in _chosen(variants(op), line["each"], turns)
        if op.supported_on(target)
    ]


def _plain(op: Instruction) -> bool:
    return op.types["a"] == op.types["b"] and not op.satfinite


def _chosen(found: list[Variant], each: str, turns: Iterator[int]) -> Iterator[Variant]:
    """The variants of one instruction; negations alternate."""
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


def again(recorded: RecordedCase, target: str) -> WarpgroupCase:
    """The case that was recorded; an error if there is no such case."""
    op = recorded_instruction(recorded, FAMILIES, target)
    variant = checked_variant(op, recorded.variant)
    if variant.selector != recorded.selector:
        raise BadFile(
            f"its selector is {recorded.selector}, and that of its variant "
            f"{variant.selector}"
        )
    return WarpgroupCase(op, variant, recorded.tiles, recorded.seed)
