"""Summaries of many instructions, for ``show`` and ``list``.

``show`` has a line for each group of instructions with the same types: their shapes,
the types of D, the first PTX version and the targets.  ``list`` counts them.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.commands.output import emit, emit_json
from fragmenta.errors import Error
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.searching import find, search
from fragmenta.reference.isa.target import Version
from fragmenta.reference.isa.tcgen05_shapes import OF_KIND
from fragmenta.reference.registers.dtype import DTYPES

LISTED = 12
"""The most instructions that are listed by name."""
_ROWS = 21
"""The most rows of an overview, so that it fits on a screen."""
_FURTHER = ("kind", "block_scale", "scale_vec", "stype", "bitop")


@dataclass(frozen=True)
class InstructionGroup:
    """Instructions of one family that differ in shape, types and options only."""

    family: str
    further: tuple[str, ...]
    shapes: tuple[str, ...]
    types: tuple[str, ...]
    results: tuple[str, ...]
    ptx: Version
    targets: str

    def about(self) -> dict[str, object]:
        """The group as JSON."""
        return {**vars(self), "ptx": str(self.ptx)}


def print_summary(text: str, as_json: bool) -> None:
    """Print a summary of the instructions that words fit."""
    every, plain = search(text, every=True), search(text)
    found = groups(every)
    if as_json:
        records = [group.about() for group in found]
        names = [str(op) for op in plain]
        emit_json(
            {"asked": text, "count": len(every), "groups": records, "plain": names}
        )
        return
    lines = [f"{text} fits {len(every)} instructions"]
    for family in dict.fromkeys(op.family for op in every):
        lines += ["", *_family_lines(family, every, found)]
    if len(plain) <= LISTED:
        lines += ["", "without optional qualifiers:", *(f"  {op}" for op in plain)]
    lines += ["", "more about one of them:", f"  fragmenta show {_example(plain)}"]
    emit("\n".join(lines))


def overview(found: Sequence[Instruction], asked: str) -> list[str]:
    r"""How many instructions there are of each kind, and how to see fewer, or all.

    >>> lines = overview(search("tcgen05", every=True), "fragmenta list tcgen05")
    >>> print("\n".join(lines[:3]))
    2,060 instructions, by family
      tcgen05.mma          772
      tcgen05.mma.sp       652
    >>> print("\n".join(lines[-2:]))
    some of them: fragmenta list tcgen05 --family tcgen05.mma
    all of them:  fragmenta list tcgen05 --full
    """
    name, counts = _split(found)
    label = max(map(len, counts)) + 2
    ordered = sorted(counts, key=lambda value: counts[value])
    fewer = f"--family {ordered[-1]}" if name == "family" else ordered[0]
    lines = [f"{len(found):,} instructions, by {name}"]
    lines += [f"  {value:<{label}}{count:>5,}" for value, count in counts.items()]
    return [*lines, f"some of them: {asked} {fewer}", f"all of them:  {asked} --full"]


def _split(found: Sequence[Instruction]) -> tuple[str, Counter[str]]:
    """A property in which instructions differ, and how many have each value."""
    titles = {"family": "family", "kind": "kind", "a": "type of A", "shape": "shape"}
    others = {name: name for op in found for name in op.values}
    for name, title in (
        titles | {n: t for n, t in others.items() if n not in titles}
    ).items():
        each = (
            op.family if name == "family" else op.values.get(name, "") for op in found
        )
        counts = Counter(value for value in each if value)
        if 1 < len(counts) <= _ROWS:
            return title, counts
    return "family", Counter(op.family for op in found)


def groups(ops: Iterable[Instruction]) -> list[InstructionGroup]:
    """Instructions in groups, in their order; those that do not multiply are left out.

    >>> [each.shapes for each in groups(search("mma.tf32"))]
    [('m16n8k4', 'm16n8k8')]
    """
    single: dict[InstructionGroup, Version] = {}
    for op in ops:
        for group in _of(op):
            key = replace(group, ptx=Version(0, 0))
            single[key] = min(group.ptx, single.get(key, group.ptx))
    found = [replace(group, ptx=ptx) for group, ptx in single.items()]
    for field in ("results", "shapes", "types"):
        found = _merged(found, field)
    return found


def _of(op: Instruction) -> Iterator[InstructionGroup]:
    """The instruction as groups of its own, one for each type of A and of D."""
    further = tuple(v for name in _FURTHER if (v := op.values.get(name, "")))
    types: tuple[str, ...] = (op.values.get("a", ""),)
    results: tuple[str, ...] = (op.values.get("d", ""),)
    if op.tensor_memory and op.idesc is None:
        row = OF_KIND.get(op.kind or "")
        types, results = (row.operands, row.results) if row else ((), ())
    shape, needs = op.values.get("shape", ""), op.requires
    shapes = (shape,) if shape else ()
    for a, d in product(filter(None, types), results):
        yield InstructionGroup(
            op.family, further, shapes, (a,), (d,), needs.ptx, needs.text
        )


def _merged(found: Iterable[InstructionGroup], field: str) -> list[InstructionGroup]:
    """Groups that differ in this field alone, as one."""
    alike: defaultdict[InstructionGroup, list[str]] = defaultdict(list)
    for group in found:
        alike[_with(group, field, ())] += getattr(group, field)
    return [_with(g, field, dict.fromkeys(values)) for g, values in alike.items()]


def _with(
    group: InstructionGroup, field: str, values: Iterable[str]
) -> InstructionGroup:
    kept = {name: getattr(group, name) for name in ("shapes", "types", "results")}
    shapes, types, results = (kept | {field: tuple(values)}).values()
    return replace(group, shapes=shapes, types=types, results=results)


# ── as text ─────────────────────────────────────────────────────────────────

_COLUMNS = (("shape", 26), ("A, B", 14), ("D", 7), ("PTX", 3), ("targets", 20))


def _family_lines(
    family: str, ops: Sequence[Instruction], found: Sequence[InstructionGroup]
) -> list[str]:
    count = sum(op.family == family for op in ops)
    mine = [group for group in found if group.family == family]
    many = f"{family}: {count} instruction{'s' * (count > 1)}"
    if not mine:
        return [f"{many}; fragmenta list --family {family} has them"]
    lines = [many, _row([[title] for title, _ in _COLUMNS])[0]]
    for group in mine:
        cells = [
            " ".join(_short(group.shapes)) or "by its descriptor",
            " ".join(group.types),
            " ".join(sorted(group.results, key=list(DTYPES).index)),
            str(group.ptx),
            group.targets,
        ]
        wrapped = [
            textwrap.wrap(cell, size, break_long_words=False, break_on_hyphens=False)
            for cell, (_, size) in zip(cells, _COLUMNS, strict=True)
        ]
        lines += _row(wrapped)
        if group.further:
            lines.append(f"    with .{' .'.join(group.further)}")
    return lines


def _row(cells: Sequence[Sequence[str]]) -> list[str]:
    height = max(map(len, cells))
    padded = [[*cell, *[""] * (height - len(cell))] for cell in cells]
    sizes = [size for _, size in _COLUMNS]
    return [
        "  " + "  ".join(f"{t:<{n}}" for t, n in zip(line, sizes, strict=True)).rstrip()
        for line in zip(*padded, strict=True)
    ]


def _short(shapes: Sequence[str]) -> list[str]:
    """The shapes; many that differ in n alone as one: m64n8..256k16."""
    widths: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for shape in shapes:
        m, n, k = re.fullmatch(r"(m\d+)n(\d+)(.*)", shape, re.ASCII).groups()  # type: ignore[union-attr]
        widths[m, k].append(int(n))
    found = []
    for (m, k), each in widths.items():
        many = [f"{min(each)}..{max(each)}"] if len(each) > 3 else map(str, each)
        found += [f"{m}n{n}{k}" for n in many]
    return found


def _example(plain: Sequence[Instruction]) -> str:
    """A short name of one of them; the whole name if none is short."""
    for op in plain[:40]:
        family = op.family.removesuffix(".mma")
        words = [op.values.get(name, "") for name in ("shape", "d", "a", "b")]
        for some in (words[:3], words):
            short = ".".join((family, *some))
            try:
                if all(some) and op.idesc is None and find(short) == op:
                    return short
            except Error:
                continue
    return str(plain[0])
