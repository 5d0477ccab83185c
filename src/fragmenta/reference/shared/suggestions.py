"""Searches for a swizzle or a padding without bank conflicts.

The search is complete over what kernels use: no swizzle, the swizzles of tensor maps
(TMA), every XOR of bits that choose banks, and padded lines.  Each is tried with all
addresses of the loop that moves the tile, and of the copies on the other side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import numpy as np

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import BadCall
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.shared.banks import BANKS, IDLE, LANES, WORD, degrees
from fragmenta.reference.shared.loops import check_choice, find_loop
from fragmenta.reference.shared.matching import Along, Family
from fragmenta.reference.shared.matrix_loop import LoopConflicts, MatrixLoop
from fragmenta.reference.shared.placement import Order, Placed, Placement
from fragmenta.reference.shared.swizzles import (
    UNIT,
    WGMMA_SWIZZLES,
    XorSwizzle,
    pattern,
    xor_swizzle,
)
from fragmenta.reference.shared.tensor_map_rules import MOST_BOX

Copy = Literal["cp.async", "st.shared.v4", "ld.shared.v4", "tma"]

COPIES = ("cp.async", "st.shared.v4", "ld.shared.v4", "tma")
"""How the other side copies the tile: 16 bytes per thread, or by a tensor map."""
_PADDINGS = range(UNIT, BANKS * WORD, UNIT)
_SHOWN = 6


@dataclass(frozen=True, repr=False)
class Suggestion:
    """One way to store the tile, and what it costs.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k16", a="f16", d="f32")
    >>> fm.shared.suggest_swizzle(op, "A", tile=(64, 64), order="row").best
    <Suggestion 128-byte swizzle: no bank conflicts>
    """

    loop: MatrixLoop
    """The instructions that move the tile."""
    copies: LoopConflicts | None
    """The accesses of the other side; None if they are not known, or TMA's."""
    tma: bool
    """Whether a tensor map can write the tile so."""

    @property
    def swizzle(self) -> XorSwizzle:
        """The swizzle, as ``swizzle=`` takes it."""
        return self.loop.memory.swizzle

    @property
    def pitch(self) -> int:
        """Bytes from one line to the next."""
        return self.loop.memory.pitch

    @property
    def span(self) -> int | None:
        """Bytes of a line that lie together, if lines are cut."""
        return self.loop.memory.span if self.loop.memory.boxes > 1 else None

    @property
    def extra(self) -> int:
        """Bytes that the tile does not need itself."""
        memory = self.loop.memory
        return memory.bytes - memory.lines * memory.line_bytes

    @property
    def turns(self) -> int:
        """The turns of the loop and of the copies."""
        return self.loop.conflicts().turns + (self.copies.turns if self.copies else 0)

    @property
    def free(self) -> bool:
        """Whether neither the loop nor the copies have conflicts."""
        return self.loop.conflicts().free and (self.copies is None or self.copies.free)

    @property
    def words(self) -> str:
        """How the tile is stored."""
        memory = self.loop.memory
        # A swizzle has its name only if the tile is as a tensor map writes it.
        named = self.tma or not self.swizzle.bits
        said = self.swizzle.words if named else str(self.swizzle)
        if memory.boxes > 1:
            return f"{said}, boxes of {memory.span} bytes"
        padded = self.pitch != memory.line_bytes
        return f"{said}, {self.pitch} bytes apart" if padded else said

    def __repr__(self) -> str:
        cost = "no bank conflicts" if self.free else f"{self.turns} turns"
        return f"<Suggestion {self.words}: {cost}>"

    @property
    def arguments(self) -> dict[str, object]:
        """What :func:`fragmenta.shared.ldmatrix_loop` takes to store the tile so.

        >>> import fragmenta as fm
        >>> op = fm.mma("m16n8k16", a="f16", d="f32")
        >>> found = fm.shared.suggest_swizzle(op, "A", tile=(64, 128), order="row")
        >>> found.best.arguments
        {'order': 'row', 'swizzle': 128, 'pitch': 128, 'span': 128}
        """
        memory = self.loop.memory
        named = {pattern(name).xor: name for name in WGMMA_SWIZZLES}
        options: dict[str, object] = {"order": memory.order}
        options["swizzle"] = named.get(self.swizzle, self.swizzle)
        options["pitch"] = self.pitch
        return options | ({"span": self.span} if self.span else {})

    @property
    def rank(self) -> tuple[int, ...]:
        """The order of suggestions: fewer turns, TMA, less memory, simpler."""
        return (
            self.turns,
            not self.tma,
            self.extra,
            self.loop.memory.boxes,
            self.swizzle.bits,
            abs(self.swizzle.shift - 3),
            self.swizzle.base,
            self.pitch,
        )


@dataclass(frozen=True, repr=False)
class Suggestions:
    """What the search found; ``str()`` explains it.

    ``found`` has everything that was tried, the best first.
    """

    found: tuple[Suggestion, ...]
    copy: Copy | None

    @property
    def best(self) -> Suggestion:
        """The first of them."""
        return self.found[0]

    @property
    def free(self) -> tuple[Suggestion, ...]:
        """Those without any conflict."""
        return tuple(each for each in self.found if each.free)

    @property
    def plain(self) -> Suggestion:
        """The tile without swizzle and padding, for comparison."""
        return min(
            self.found, key=lambda each: (each.extra, each.swizzle.bits, each.span or 0)
        )

    def records(self) -> list[dict[str, object]]:
        """One flat record for each way, for a program."""
        return [
            {
                "words": each.words,
                "swizzle": list(each.swizzle),
                "pitch": each.pitch,
                "span": each.span,
                "tma": each.tma,
                "extra": each.extra,
                "degree": each.loop.conflicts().degree,
                "turns": each.loop.conflicts().turns,
                "copy_degree": each.copies and each.copies.degree,
                "copy_turns": each.copies and each.copies.turns,
            }
            for each in self.found
        ]

    def __str__(self) -> str:
        loop, best, plain = self.best.loop, self.best, self.plain
        rows, cols = loop.tiles.shape
        major = {"row": "row-major", "col": "column-major"}[loop.memory.order]
        lines = [f"{loop.operand}: {rows} x {cols} {loop.part.dtype}, {major}"]
        if best.free:
            lines.append(f"{best.words}: no bank conflicts")
        else:
            lines.append(
                f"nothing is free of bank conflicts; {best.words} is best: "
                f"{best.turns} turns"
            )
        side = f"{loop.move.family} {self.copy or ''}".split()
        # 80 columns: the longest words have 36.
        head = "".join(f"{name:>13}" for name in side)
        lines += ["", f"  {'':<36}{head}{'more bytes':>12}"]
        shown = list(self.found[:_SHOWN])
        shown += [] if plain in shown else [plain]
        for each in shown:
            mark = "*" if each is best else " "
            cells = [_cell(each.loop.conflicts())]
            if self.copy:
                cells.append(_cell(each.copies) if each.copies else "free")
            text = "".join(f"{cell:>13}" for cell in cells)
            tma = " TMA" if each.tma else ""
            lines.append(f"{mark} {each.words:<36}{text}{each.extra:>12}{tma}")
        left = len(self.found) - len(shown)
        more = len(self.free) - sum(each.free for each in shown)
        if left:
            lines.append(f"  {left} others, {more} of them without conflicts")
        return "\n".join(lines)

    __repr__ = __str__


def _cell(cost: LoopConflicts) -> str:
    return "free" if cost.free else f"{cost.degree}-way, {cost.turns}"


def suggest_swizzle(
    op: Instruction | str,
    operand: str,
    *,
    tile: tuple[int, int] | None = None,
    order: Order,
    copy: Copy | None = None,
    move: Family | None = None,
    num: str | None = None,
    along: Along | None = None,
    packed: bool = False,
    target: str = "sm_90a",
) -> Suggestions:
    """Ways to store a tile so that no access of it has bank conflicts.

    The tile is loaded by ``ldmatrix``, or stored by ``stmatrix`` if it is C or D;
    ``move`` says otherwise.  ``copy`` is how the other side writes or reads it:
    ``"cp.async"``, ``"st.shared.v4"`` or ``"ld.shared.v4"``, with which adjacent
    threads take adjacent 16 bytes, line after line, or ``"tma"``.  The other arguments
    are those of :func:`fragmenta.shared.ldmatrix_loop`.

    Ways with fewer turns come first, then those of tensor maps (TMA), then those that
    need no further memory.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k16", a="f16", d="f32")
    >>> found = suggest_swizzle(op, "B", tile=(64, 64), order="col", copy="cp.async")
    >>> for line in str(found).splitlines()[:2]:
    ...     print(line)
    B: 64 x 64 f16, column-major
    128-byte swizzle: no bank conflicts
    >>> found.best.loop.conflicts().free, found.plain.loop.conflicts().degree
    (True, 8)
    """
    check_choice("copy", copy, COPIES)
    check_choice("move", move, ("ldmatrix", "stmatrix"))
    family: Family = move or ("stmatrix" if str(operand) in ("C", "D") else "ldmatrix")
    # Which instruction moves it does not depend on pitch and swizzle.
    placed: Placed = {"order": order, "packed": packed}
    if family == "stmatrix" and packed:
        raise BadCall("packed is for ldmatrix; stmatrix has no such form")
    loop = find_loop(family, op, operand, tile, placed, (num, along), target)
    found = [
        Suggestion(replace(loop, memory=memory), _copied(memory, copy), tma)
        for memory, tma in _ways(loop.memory)
        if tma or copy != "tma"
    ]
    return Suggestions(tuple(sorted(found, key=lambda each: each.rank)), copy)


def _ways(plain: Placement) -> Iterator[tuple[Placement, bool]]:
    """Every way to store the tile, and whether a tensor map can write it."""
    line, seen = plain.line_bytes, set()
    for name in WGMMA_SWIZZLES:
        xor = xor_swizzle(name)
        if not name:
            # Maps count elements narrower than a byte as bytes.
            yield plain, line * 8 // max(plain.slot, 8) <= MOST_BOX
        elif line <= name:
            yield replace(plain, swizzle=xor, pitch=name), True
        elif line % name == 0:
            yield replace(plain, swizzle=xor, pitch=name, span=name), True
        if line == name:
            seen.add(xor)
    top = max(plain.bytes - 1, 1).bit_length()
    for base in range(UNIT.bit_length() - 1, 7):
        for bits in range(1, 8 - base):
            for shift in range(bits, top - bits - base + 1):
                xor = XorSwizzle(bits, base, shift)
                if xor not in seen:
                    yield replace(plain, swizzle=xor), False
    for more in _PADDINGS:
        yield replace(plain, pitch=line + more), False


def _copied(memory: Placement, copy: Copy | None) -> LoopConflicts | None:
    """The accesses of threads that take 16 bytes each, line after line."""
    if copy in (None, "tma"):
        return None
    where = memory.units().ravel()
    idle = -where.size % LANES
    where = np.pad(where, (0, idle), constant_values=IDLE)
    return LoopConflicts(degrees(where.reshape(-1, LANES), UNIT))
