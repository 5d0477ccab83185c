"""A CUDA loop of ``ldmatrix`` or ``stmatrix`` that moves all fragments of a tile.

The offset of a lane is a sum over bits of the lane, and that of a step a sum over the
counters of the loop.  Without a swizzle the address is their sum.  A swizzle is an XOR
of address bits, so:

- a step that is a multiple of its pattern is added after the swizzle;
- a step that has no bit in common with the offset of any lane is XORed, swizzled as a
  constant, because ``swizzle(a ^ b) == swizzle(a) ^ swizzle(b)``;
- with other steps the sum carries, so every step computes its swizzle.

The case is determined from the addresses of all lanes and steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fragmenta.cuda.source.formatting import (
    check_identifier,
    comment,
    signature,
    wrapped,
)
from fragmenta.cuda.source.helpers import Snippet, needed
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.reading import instruction
from fragmenta.reference.registers.expressions import (
    STYLES,
    DigitRun,
    held,
    joined,
    terms,
    total,
)
from fragmenta.reference.shared.matching import SIDES
from fragmenta.reference.shared.matching import held as moved_part
from fragmenta.reference.shared.matrix_loop import MatrixLoop
from fragmenta.reference.shared.swizzles import XorSwizzle, moved

_STYLE = STYLES["cuda"]
_HEXADECIMAL = _STYLE._replace(mask="#x")
_LANES = ("W", "L")
_NAMES = {"W": "warp", "L": "lane", "R": "reg"}
_SHARED = "static_cast<unsigned>(__cvta_generic_to_shared(memory))"
_INLINE = 60
"""Columns of an expression that is written where it is used."""


def to_cuda(loop: MatrixLoop, name: str | None = None, *, after: str = "") -> str:
    """A CUDA function that moves all fragments of a tile, with what it calls.

    ``name`` is that of the function; by default it says what it moves.  Helpers
    that the source ``after`` already contains, such as ``lane_id``, are left out.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k16", a="f16", d="f32")
    >>> loop = fm.shared.ldmatrix_loop(op, "B", tile=(64, 64), order="col", swizzle=128)
    >>> for line in to_cuda(loop).splitlines():
    ...     if "address" in line and "//" not in line:
    ...         print(line.strip())
    unsigned address = shared + swizzle_3_4_3(offset);
    : "r"((address ^ 32 * k) + 2048 * n)
    """
    called = name if name is not None else _name(loop)
    check_identifier("name", called)
    text = _Text(loop)
    needs = ("lane_id", "warp_id") if text.warps else ("lane_id",)
    pieces = needed([Snippet(called, "", needs)])
    swizzle = [_swizzle(loop.memory.swizzle)] if text.swizzle.bits else []
    helpers = [*(piece.text for piece in pieces), *swizzle]
    new = [helper for helper in helpers if helper not in after]
    return "\n".join([*new, text.write(called)])


def _name(loop: MatrixLoop) -> str:
    """The name of the function: operand, tile and type."""
    verb = "load" if loop.move.loads else "store"
    sides = zip(SIDES[loop.operand], loop.tiles.shape, strict=True)
    shape = "".join(f"{side}{size}" for side, size in sides)
    return f"{verb}_{loop.operand.lower()}_{shape}_{loop.part.dtype}"


def _swizzle(xor: XorSwizzle) -> str:
    """The function that swizzles an offset."""
    bits, found = xor.bits, terms(xor.layout(), "address")
    changed, by = (
        f"bits {at} to {at + bits - 1}" if bits > 1 else f"bit {at}"
        for at in (xor.low, xor.source)
    )
    sources: dict[str, tuple[str | int, int]] = {"A": ("offset", xor.repeat)}
    moved = total(found.added, sources, _HEXADECIMAL, flipped=found.flipped)
    said = f"{xor}: {changed} of an offset, XORed with {by}."
    return "\n".join(
        [
            *comment(said),
            f"__device__ __forceinline__ unsigned {_function(xor)}(unsigned offset)",
            "{",
            f"    return {moved};",
            "}",
            "",
        ]
    )


def _function(xor: XorSwizzle) -> str:
    return "_".join(map(str, ("swizzle", *xor))).replace("-", "m")


class _Text:
    """The parts of the function."""

    def __init__(self, loop: MatrixLoop) -> None:
        self.loop = loop
        self.layout, self.swizzle = loop.unit_layout, loop.memory.swizzle
        self.repeat = self.swizzle.repeat if self.swizzle.bits else 1
        """Bytes after which the swizzle repeats."""
        self.warps = "W" in dict(self.layout.axes)
        self.steps = {name: size for name, size in loop.steps.items() if size > 1}
        self.register = loop.operand.lower()

    # ── what changes with what ──────────────────────────────────────────────

    def runs(self, axes: Iterable[str]) -> list[DigitRun]:
        """The bytes by which digits of some axes move a lane's row."""
        wanted = tuple(axes)
        return [
            piece
            for name, weight in self.loop.memory.weights.items()
            for run in joined(held(self.layout, name))
            if run.source in wanted
            for piece in _cut(run._replace(weight=run.weight * weight), self.repeat)
        ]

    def offsets(self, runs: list[DigitRun]) -> NDArray[np.int64]:
        """All values of the sum of these runs."""
        found, sizes = np.zeros(1, np.int64), dict(self.layout.axes)
        for axis in dict.fromkeys(run.source for run in runs):
            values = np.arange(sizes[axis])
            terms = [
                run.weight * (values // run.stride % run.size)
                for run in runs
                if run.source == axis
            ]
            found = (found[:, None] + sum(terms)).ravel()
        return found

    @cached_property
    def added(self) -> list[DigitRun]:
        """The parts of the steps that are multiples of the swizzle's pattern."""
        return [run for run in self.runs(self.steps) if run.weight % self.repeat == 0]

    @cached_property
    def exchanged(self) -> list[DigitRun]:
        """The parts of the steps that the swizzle depends on."""
        return [run for run in self.runs(self.steps) if run not in self.added]

    @cached_property
    def carries(self) -> bool:
        """Whether the swizzle must be computed in every step."""
        lanes = self.loop.memory.start + self.offsets(self.runs(_LANES))
        constants = self.offsets(self.exchanged)
        both = (lanes[:, None] & constants).any()
        return bool(both) or int(constants.max()) >= self.repeat

    # ── expressions ─────────────────────────────────────────────────────────

    def sum(self, runs: list[DigitRun], added: int = 0) -> str:
        """The bytes that these runs add, as an expression."""
        sources: dict[str, tuple[str | int, int]] = {
            axis: (_NAMES.get(axis, axis), size) for axis, size in self.layout.axes
        }
        order = [*self.loop.steps, *_LANES]
        ranked = sorted(runs, key=lambda run: (order.index(run.source), run.stride))
        return total(joined(ranked), sources, _STYLE, added)

    @property
    def offset(self) -> str:
        """The offset of a lane in the first step."""
        return self.sum(self.runs(_LANES), self.loop.memory.start)

    @property
    def address(self) -> str:
        """The address of a lane's row in one step."""
        if self.carries:
            steps = self.sum([*self.exchanged, *self.added])
            return f"shared + {_function(self.swizzle)}(offset + {steps})"
        plain = "address"
        if self.exchanged:
            constant = self.sum(self.exchanged)
            values = self.offsets(self.exchanged)
            if (moved(values, self.swizzle) != values).any():
                constant = f"{_function(self.swizzle)}({constant})"
            elif " + " in constant:
                constant = f"({constant})"
            plain = f"(address ^ {constant})"
        if self.added:
            plain += f" + {self.sum(self.added)}"
        return plain[1:-1] if self.exchanged and not self.added else plain

    def _index(self, register: int) -> str:
        """The element of the array that a register of the instruction is."""
        layout, found = self.loop.register_layout, ""
        for name in (*self.loop.tiles.counts, "R"):
            sources: dict[str, tuple[str | int, int]] = {
                axis: (axis, size) for axis, size in layout.axes
            }
            sources["R"] = (register, dict(layout.axes)["R"])
            runs = held(layout, name) if name in layout.sizes else []
            found += f"[{total(runs, sources, _STYLE)}]"
        return self.register + found

    # ── the function ────────────────────────────────────────────────────────

    def write(self, name: str) -> str:
        loop, register = self.loop, self.register
        loads = loop.move.loads
        const, memory = ("", "const void*") if loads else ("const ", "void*")
        sizes = "".join(f"[{size}]" for size in loop.fragments)
        parameters = [f"{const}unsigned (&{register}){sizes}", f"{memory} memory"]
        head = signature(f"__device__ __forceinline__ void {name}", parameters)
        return "\n".join([*self._about(), head, "{", *self._body(), "}", ""])

    def _about(self) -> list[str]:
        """What the function does, and what it needs."""
        loop, memory = self.loop, self.loop.memory
        rows, cols = loop.tiles.shape
        verb = "Load" if loop.move.loads else "Store"
        index = "".join(f"[{side}]" for side in loop.tiles.counts)
        align = max(memory.repeat, 16)
        begins = f" The tile begins {memory.start} bytes behind it." * bool(
            memory.start
        )
        said = (
            f"{verb} {loop.operand}, a tile of {rows} x {cols} {loop.part.dtype}: "
            f"{memory.words}. {self.register}{index} is a fragment of {loop.op}. "
            f"memory: shared memory, aligned to {align} bytes.{begins} All lanes of "
            f"{'the warpgroup' if self.warps else 'a warp'} call it."
        )
        cost = loop.conflicts()
        return [
            *comment(said),
            f"//   {loop.layout}",
            *comment(
                "L: bits of the lane that gives an address; U: of the element at it."
            ),
            *comment(f"{str(cost)[:1].upper()}{str(cost)[1:]}."),
        ]

    def _body(self) -> list[str]:
        lines = ["int lane = lane_id();"]
        used = dict(self.layout.axes).get("L", 1)
        if used < 32:
            lines[0] = f"int lane = lane_id() & {used - 1};"
        lines += ["int warp = warp_id();"] if self.warps else []
        lines += [
            f"unsigned shared = {_SHARED};",
            *_folded(f"unsigned offset = {self.offset};"),
        ]
        first = "offset"
        if self.swizzle.bits:
            first = f"{_function(self.swizzle)}(offset)"
        if not self.carries:
            lines.append(f"unsigned address = shared + {first};")
        depth = 0
        for name, size in self.steps.items():
            pad = "    " * depth
            lines.append(f"{pad}#pragma unroll")
            lines.append(f"{pad}for (int {name} = 0; {name} < {size}; ++{name}) {{")
            depth += 1
        lines += ["    " * depth + line for line in self._asm()]
        lines += ["    " * left + "}" for left in reversed(range(depth))]
        return [f"    {line}" for line in lines]

    def _asm(self) -> list[str]:
        """The instruction, with 32-bit addresses of shared memory."""
        move = _in_shared(self.loop.move)
        count = moved_part(move).registers
        loads = move.loads
        each = [self._index(number) for number in range(count)]
        first = 0 if loads else 1
        listed = ", ".join(f"%{first + number}" for number in range(count))
        places = f"{{{listed}}}, [%{count}]" if loads else f"[%0], {{{listed}}}"
        address, before = self.address, []
        if len(address) > _INLINE:
            before, address = _folded(f"unsigned row = {address};"), "row"
        outputs = wrapped([f'"=r"({one}),' for one in each], 60) if loads else []
        inputs = [f'"r"({address}),']
        if not loads:
            inputs += wrapped([f'"r"({one}),' for one in each], 60)
        return [
            *before,
            "asm volatile(",
            f'    "{move}\\n"',
            f'    "  {places};\\n"',
            *_bound(outputs),
            *_bound(inputs),
            '    : "memory");',
        ]


def _cut(run: DigitRun, repeat: int) -> list[DigitRun]:
    """A run as two, if its upper part is a multiple of the swizzle's pattern."""
    count, over = divmod(repeat, run.weight)
    if over or count <= 1 or run.size <= count or run.size % count:
        return [run]
    upper = DigitRun(run.source, run.stride * count, run.size // count, repeat)
    return [run._replace(size=count), upper]


def _bound(lines: list[str]) -> list[str]:
    """Operands of an asm, after their colon."""
    if not lines:
        return ["    :"]
    lines = [*lines[:-1], lines[-1].removesuffix(",")]
    return [f"    {' ' if number else ':'} {line}" for number, line in enumerate(lines)]


def _folded(line: str) -> list[str]:
    """A long sum on several lines."""
    if len(line) <= _INLINE + 10:
        return [line]
    head, *terms = line.split(" + ")
    return [head, *(f"    {each}" for each in wrapped([f"+ {t}" for t in terms], 64))]


def _in_shared(move: Instruction) -> Instruction:
    """The move that takes addresses of shared memory, which have 32 bits."""
    return instruction(move.form.spell({**move.values, "space": "shared"}))
