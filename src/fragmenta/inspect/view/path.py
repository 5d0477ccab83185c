"""The path of data through a ``tcgen05.mma``, in words and as a picture.

Data go from shared memory into tensor memory, through the Tensor Core into D, and from
there into the registers of each warp.  The text of the boxes, and the instructions at
the arrows, are computed from the instruction: its fragments, the copies of its scales,
and the loads that fetch all columns of D.  The explorer shows the same words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import BadCall
from fragmenta.inspect.view.svg import Drawing, document, down, words
from fragmenta.inspect.view.tensor_memory import arrangement, blocks, summary
from fragmenta.reference.isa.searching import instruction
from fragmenta.reference.registers.tensor_fragment import TensorFragment
from fragmenta.reference.registers.words import container
from fragmenta.reference.tensor_memory.scales import scale_copy

if TYPE_CHECKING:
    from fragmenta.inspect.view.tensor_memory import Rectangle
    from fragmenta.reference.isa.instruction import Instruction
    from fragmenta.reference.registers.tensor_fragment import TensorAddress

_MOST = {"32x32b": 128, "16x256b": 32}
_COLUMNS = {"32x32b": 1, "16x256b": 8}
_ARROW = 30  # the shaft beyond its label
_LINE = 15


@dataclass(frozen=True)
class ColumnLoad:
    """A ``tcgen05.ld`` of some columns of D."""

    op: Instruction
    column: int
    """The first column, from that of D."""


def loads(op: Instruction) -> list[ColumnLoad]:
    """The loads with which each warp fetches its part of D.

    >>> import fragmenta as fm
    >>> for load in loads(fm.tcgen05("m64n24k16", a="f16")):
    ...     print(load.column, load.op)
    0 tcgen05.ld.sync.aligned.16x256b.x2.b32
    16 tcgen05.ld.sync.aligned.16x256b.x1.b32
    """
    part = op.d
    assert isinstance(part, TensorFragment)
    tile = "16x256b" if len(part.base_lanes) > 1 else "32x32b"
    found, column = list[ColumnLoad](), 0
    while column < part.columns:
        left = (part.columns - column) // _COLUMNS[tile]
        count = min(_MOST[tile], 1 << left.bit_length() - 1)
        name = f"tcgen05.ld.sync.aligned.{tile}.x{count}.b32"
        found.append(ColumnLoad(instruction(name), column))
        column += count * _COLUMNS[tile]
    return found


@dataclass(frozen=True)
class Path:
    """The text of the boxes and arrows, stage by stage."""

    shared: tuple[str, ...]
    copies: tuple[str, ...]
    inputs: tuple[str, ...]
    """What is in tensor memory before the multiplication."""
    bypass: str
    """The operands that bypass tensor memory, and how they are read."""
    multiplies: tuple[str, ...]
    result: tuple[str, ...]
    loaded: tuple[str, ...]
    registers: str
    warps: tuple[tuple[tuple[int, str], ...], ...]
    """For each CTA: a warp, and which part of D it has after its loads."""
    notes: tuple[str, ...]


def path(op: Instruction) -> Path:
    """The path from shared memory to registers, in words.

    >>> import fragmenta as fm
    >>> found = path(fm.tcgen05("m128n64k64", a="e2m1", kind="mxf4"))
    >>> print(*found.copies, *found.result, found.registers, sep=chr(10))
    tcgen05.cp.cta_group::1.32x128b.warpx4
    D  f32 128 x 64
    columns 0–63
    layout D
    registers: 32 lanes x 64 registers
    """
    if not op.tensor_memory or op.descriptor is None:
        raise BadCall(f"{op} is no tcgen05.mma with a shape: it has no path to draw")
    count = sum(load.op.fragment("R").registers for load in loads(op))
    word = "register" if count == 1 else "registers"
    inputs = tuple(_inputs(op))
    return Path(
        shared=tuple(_shared(op)),
        copies=tuple(_copies(op)) if inputs else (),
        inputs=inputs,
        bypass="A and B, through descriptors" if inputs else "",
        multiplies=tuple(re.sub(r"(?=\.kind|\.block_)", "\n", op.mnemonic).split("\n")),
        result=tuple(_result(op)),
        loaded=tuple(_loaded(op)),
        registers=f"registers: 32 lanes x {count} {word}",
        warps=tuple(tuple(_warps(op, cta)) for cta in range(op.cta_group or 1)),
        notes=tuple(_notes(op)),
    )


def path_svg(op: Instruction) -> str:
    """The picture of the path from shared memory to registers.

    >>> import fragmenta as fm
    >>> picture = path_svg(fm.tcgen05("m128n64k64", a="e2m1", kind="mxf4"))
    >>> "tcgen05.cp.cta_group::1.32x128b.warpx4" in picture
    True
    """
    found = path(op)
    head = [words(str(op), "g t"), words(summary(op), "k s")]
    ctas = [_row(found, cta) for cta in range(len(found.warps))]
    notes = down((words(line, "k s") for line in found.notes), 2)
    return document(down([down(head, 4), *ctas, notes], 22), f"The path of {op}")


# ── what is said about each stage ───────────────────────────────────────────


def _shared(op: Instruction) -> Iterator[str]:
    """The tiles of one CTA, and their bytes."""
    group = op.cta_group or 1
    for name, rows, k in (
        ("A", op.shape.m // group, op.stored_k),
        ("B", op.shape.n // group, op.shape.k),
    ):
        of = op.types[name.lower()]
        size = rows * k * container(of, op.kind).bits // 8
        shape = f"{rows} x {k}" if name == "A" else f"{k} x {rows}"
        stored = " stored" if name == "A" and op.sparse else ""
        yield f"{name}  {of} {shape}{stored}, {size:,} bytes"
    if "scale_A" in op.fragments:
        yield "scales, in blocks of 512 bytes"
    if "metadata" in op.fragments:
        yield "metadata"


def _inputs(op: Instruction) -> Iterator[str]:
    at = arrangement(op)
    for name, part in op.fragments.items():
        if name != "D" and isinstance(part, TensorFragment):
            first = at[name].column + part.skipped
            many = f"columns {first}–{first + part.columns - 1}"
            columns = f"column {first}" if part.columns == 1 else many
            either = ", or in shared memory" if name == "A" else ""
            yield f"{name}  {part.dtype}, {columns}{either}"


def _copies(op: Instruction) -> Iterator[str]:
    scales = [name for name in ("scale_A", "scale_B") if name in op.fragments]
    yield from dict.fromkeys(str(scale_copy(op, name)) for name in scales)
    if not scales:
        yield f"tcgen05.cp.cta_group::{op.cta_group}"
        yield "or tcgen05.st"


def _result(op: Instruction) -> Iterator[str]:
    part = op.d
    size = " x ".join(map(str, part.shape))
    yield f"D  {part.dtype} {size}"
    yield f"columns 0–{part.registers - 1}"
    yield f"layout {op.layout_letter}"


def _loaded(op: Instruction) -> Iterator[str]:
    found: dict[str, int] = {}
    for load in loads(op):
        found[str(load.op)] = found.get(str(load.op), 0) + 1
    for name, times in found.items():
        head, _, tail = name.partition(".aligned")
        yield f"{head}.aligned"
        yield tail + (f", {times} times" if times > 1 else "")


def _warps(op: Instruction, cta: int) -> Iterator[tuple[int, str]]:
    """What each warp has after its loads."""
    part = op.d
    assert isinstance(part, TensorFragment)
    for block in _blocks(part, arrangement(op)["D"]):
        if block.cta == cta:
            rows, cols = (f"{a}–{b}" for a, b in (block.rows, block.cols))
            yield block.warp, f"warp {block.warp}  rows {rows}, cols {cols}"


@lru_cache(maxsize=256)
def _blocks(part: TensorFragment, at: TensorAddress) -> tuple[Rectangle, ...]:
    """Many instructions have the same D."""
    return tuple(blocks(part, at))


def _notes(op: Instruction) -> Iterator[str]:
    yield "one thread issues tcgen05.cp and tcgen05.mma; each warp loads its own lanes"
    if op.cta_group == 2:
        yield "one thread of the pair issues tcgen05.mma for both CTAs"
    if "metadata" in op.fragments:
        yield "metadata may be stored by tcgen05.st instead of copied"
    elif op.sparse:
        yield "where metadata is in tensor memory is not known for this shape"


# ── the four stages of a CTA ────────────────────────────────────────────────


def _row(found: Path, cta: int) -> Drawing:
    """Shared memory, inputs in tensor memory, D, registers."""
    stages, arrows = [_box("shared memory", found.shared)], list[Sequence[str]]()
    if found.inputs:
        stages.append(_box("tensor memory", found.inputs))
        arrows.append(found.copies)
    warps, lines = zip(*found.warps[cta], strict=True)
    stages.append(_box("tensor memory", found.result))
    stages.append(_box(found.registers, lines, warps))
    arrows += [found.multiplies, found.loaded]
    title = [words(f"CTA {cta}", "g t")] if len(found.warps) == 2 else []
    return down([*title, _chain(stages, arrows, found.bypass)], 6)


# ── boxes and arrows ────────────────────────────────────────────────────────


def _box(title: str, lines: Iterable[str], hues: Sequence[int] = ()) -> Drawing:
    """A frame with a title and lines; the lines of warps have a colour each."""
    texts = list(lines)
    width = max(6.9 * max(map(len, [title, *texts])), 110) + 20
    height = 30 + _LINE * len(texts) + 8
    body = [
        f'<rect class="b" width="{width:g}" height="{height:g}" rx="6"/>',
        f'<rect class="o" width="{width:g}" height="{height:g}" rx="6"/>',
        f'<text class="k s" x="10" y="18">{escape(title)}</text>',
    ]
    for number, text in enumerate(map(escape, texts)):
        y = 30 + _LINE * number
        if hues:
            hue = 4 * hues[number] + 2
            body.append(
                f'<rect class="l{hue}" x="6" y="{y}" width="{width - 12:g}" '
                f'height="{_LINE - 1}" rx="3"/>'
            )
        body.append(f'<text class="k t" x="10" y="{y + 11}">{text}</text>')
    return Drawing(width, height, "".join(body))


def _chain(stages: list[Drawing], arrows: list[Sequence[str]], bypass: str) -> Drawing:
    """Stages side by side with arrows between them, and one past the second."""
    height = max(stage.height for stage in stages)
    body, x, starts = [], 0.0, list[tuple[float, float]]()
    for number, stage in enumerate(stages):
        starts.append((x, x + stage.width))
        body.append(stage.at(x, (height - stage.height) / 2))
        x += stage.width
        if number < len(arrows):
            length = 6.2 * max(map(len, arrows[number])) + _ARROW
            body.append(_arrow(arrows[number], x + 4, height / 2, length - 8))
            x += length
    if bypass:
        body.append(_under(starts, stages[0], height, bypass))
        height += 40
    return Drawing(x, height, "".join(body))


def _arrow(lines: Sequence[str], x: float, y: float, length: float) -> str:
    texts = [
        f'<text class="m t" x="{x + length / 2 - 3:g}" '
        f'y="{y - 7 - 11 * (len(lines) - 1 - number):g}">{escape(line)}</text>'
        for number, line in enumerate(lines)
    ]
    end = x + length
    return f'<path class="o" d="M{x:g} {y:g}H{end - 6:g}"/>{_head(end, y)}' + "".join(
        texts
    )


def _head(x: float, y: float) -> str:
    return f'<path class="t" d="M{x:g} {y:g}l-9 -4.5v9z"/>'


def _under(
    starts: list[tuple[float, float]], first: Drawing, height: float, text: str
) -> str:
    """From below shared memory to the arrow of the multiplication."""
    left = (starts[0][0] + starts[0][1]) / 2
    right = (starts[1][1] + starts[2][0]) / 2
    y = height + 22
    down_from = (height + first.height) / 2
    up_to = height / 2 + 8
    return (
        f'<path class="o" d="M{left:g} {down_from:g}V{y:g}H{right:g}V{up_to + 8:g}"/>'
        f'<path class="t" d="M{right:g} {up_to:g}l-4.5 9h9z"/>'
        f'<text class="k s" x="{left + 14:g}" y="{y - 6:g}">{escape(text)}</text>'
    )
