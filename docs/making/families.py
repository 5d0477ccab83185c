"""The tables of instructions of each family, and their layouts."""

from __future__ import annotations

import re

import fragmenta as fm
from fragmenta.errors import one_of
from fragmenta.reference.isa import tcgen05_shapes as shapes
from fragmenta.reference.isa.families import FAMILIES as FAMILY_NAMES
from fragmenta.reference.isa.table import read
from making.markdown import anchor, counted, table
from making.numbers import status

TENSOR = tuple(name for name in FAMILY_NAMES if name.split(".")[0] == "tcgen05")
FAMILIES = {
    "mma": ("mma",),
    "mma_sp": ("mma.sp",),
    "wmma": ("wmma.mma", "wmma.load", "wmma.store"),
    "wgmma": ("wgmma", "wgmma.sp", "sync"),
    "moves": ("ldmatrix", "stmatrix", "movmatrix"),
}
"""The families on each page of families/ that has a table of them."""
LISTS = {
    **FAMILIES,
    "moves": (*FAMILIES["moves"], "spcompress", "spdecompress"),
    "tcgen05_mma": tuple(name for name in TENSOR if "mma" in name),
    "tcgen05": tuple(name for name in TENSOR if "mma" not in name),
}
"""The families on each page of instructions/; one page of tcgen05 is too long."""


def family(name: str) -> str:
    """The table of a family, then the layouts of every row, each set of them once."""
    groups: dict[tuple[str, ...], list[fm.Instruction]] = {}
    for op in (op for each in FAMILIES[name] for op in fm.catalogue(each)):
        groups.setdefault(_alike(op), []).append(op)
    rows: list[tuple[str, ...]] = []
    drawn: dict[tuple[object, ...], fm.Instruction] = {}
    for ops in groups.values():
        if not ops[0].fragments:  # it has no fragments to draw
            plain = [(f"`{op}`", str(op.requires), status(op)) for op in ops]
            rows += [(name, "", "", "", *facts, "") for name, *facts in plain]
            continue
        first = drawn.setdefault(_layouts(ops[0]), ops[0])
        rows.append((*_row(ops), f"[layouts](#{anchor(str(first))})"))
    head = ("instruction", "shapes", "A, B", "C, D", "requires", "numbers", "")
    return "\n\n".join([table(head, rows), *_figures(list(drawn.values()))])


def _alike(op: fm.Instruction) -> tuple[str, ...]:
    """What the instructions of one row have in common."""
    if not op.fragments:
        return (op.family,)
    shape = re.sub(r"n\d+", "nN", str(op.shape)) if "wgmma" in op.family else op.shape
    values = {k: v for k, v in op.values.items() if k in ("kind", "scale_vec", "num")}
    moved = op.values.get("operand", "") + op.values.get("trans", "")
    widths = [f"{part.container.bits}" for part in op.fragments.values()]
    results = [op.values.get("d", ""), op.values.get("c", "")]
    text = (op.family, str(shape), moved, *values.values(), *widths, *results)
    return (*text, str(op.requires.targets), status(op))


def _row(ops: list[fm.Instruction]) -> tuple[str, ...]:
    op = ops[0]
    sizes = dict.fromkeys(op.values["shape"] for op in ops)
    shown = ", ".join(sizes) if len(sizes) < 4 else _widths(ops)
    inputs = dict.fromkeys(
        op.values.get(key, "") for op in ops for key in ("a", "b", "type")
    )
    results = dict.fromkeys(op.values.get(key, "") for op in ops for key in "cd")
    words = [op.values.get(k, "") for k in ("operand", "num", "trans", "kind")]
    words += [op.values.get("scale_vec", "")]
    about = " ".join([op.family, *(f".{word}" for word in words if word)])
    return (
        about,
        shown,
        ", ".join(filter(None, inputs)),
        ", ".join(filter(None, results)),
        str(op.requires),
        status(op),
    )


def _widths(ops: list[fm.Instruction]) -> str:
    widths = sorted({op.shape.n for op in ops})
    shape = ops[0].shape
    return f"m{shape.m}nNk{shape.k}, N = {widths[0]} to {widths[-1]} ({len(widths)})"


def _layouts(op: fm.Instruction) -> tuple[object, ...]:
    """What a picture of an instruction shows."""
    key: list[tuple[object, ...]] = [
        (p.name, p.layout, p.stored, p.dtype.bits) for p in op.fragments.values()
    ]
    if op.warpgroup:  # of C and D only the width of elements counts
        key = [part for part in key if part[0] not in ("C", "D")]
        key.append(("D", op.fragments["D"].elements))
    return (op.family, *key)


def _figures(ops: list[fm.Instruction]) -> list[str]:
    """The layouts of each, and a mark that the site replaces by a picture."""
    example = f"fragmenta draw '{ops[0]}'"
    parts = ["## Layouts", f"A command draws each of them: `{example}`."]
    for op in ops:
        lines = [f"{p.name:<8}  {p.layout}" for p in op.fragments.values()]
        text = "\n".join(["```text", *lines, "```"])
        parts += [f"### `{op}`", text, f"<!-- picture: {op} -->"]
    return parts


# ── tcgen05 ─────────────────────────────────────────────────────────────────

#: One instruction for each layout, and one for each kind of operand.
TCGEN05 = (
    fm.tcgen05("m128n32k16", a="f16"),
    fm.tcgen05("m64n32k16", a="f16"),
    fm.tcgen05("m256n32k16", a="f16", cta_group=2),
    fm.tcgen05("m128n32k16", a="f16", cta_group=2),
    fm.tcgen05("m128n32k32", a="f16", cta_group=2, sp=True),
    fm.tcgen05("m64n64k16", a="f16", ws=True),
    fm.tcgen05("m32n64k16", a="f16", ws=True),
    fm.tcgen05("m128n32k32", a="f16", sp=True),
    fm.tcgen05("m128n32k64", a="e4m3", sp=True),
    fm.tcgen05("m128n64k32", a="e4m3", kind="mxf8f6f4"),
    fm.tcgen05("m128n64k64", a="e2m1", kind="mxf4nvf4"),
    fm.tcgen05("m128n64k64", a="e2m1", kind="mxf4nvf4", cta_group=2),
)


def tcgen05_tables() -> str:
    """The shapes, then each layout."""
    rows = []
    for line in read(shapes.SIZES):
        kinds = line["kinds"].split()
        ks = [" / ".join(map(str, shapes.OF_KIND[kind].k)) for kind in kinds]
        form = {"plain": "", "ws": "`.ws`", "ws.sp": "`.ws.sp`"}
        rows.append(
            (
                ", ".join(f"`{kind}`" for kind in kinds),
                f"`cta_group::{line['group']}`",
                form.get(line["form"], line["form"]),
                line["M"],
                line["N"].replace("..", " to ").replace("/", " by "),
                ", ".join(dict.fromkeys(ks)),
            )
        )
    head = ("kind", "group", "form", "M", "N", "K, dense / sparse")
    return "\n\n".join(["## Shapes", table(head, rows), *_figures(list(TCGEN05))])


# ── every instruction ───────────────────────────────────────────────────────


def index() -> str:
    """The pages with every instruction, and how many are on each."""
    rows = []
    for page, names in LISTS.items():
        ops = [op for name in names for op in fm.catalogue(name)]
        families = f"[{one_of(names, 'and')}](instructions/{page}.md)"
        explained = f"[{_family(page)}](families/{_family(page)}.md)"
        rows.append((families, f"{len(ops):,}", explained))
    whole = ("all", f"{len(list(fm.catalogue())):,}", "")
    return table(("families", "instructions", "explained in"), [*rows, whole])


def instructions(page: str) -> str:
    """Every instruction of some families."""
    parts = []
    for name in LISTS[page]:
        ops = list(fm.catalogue(name))
        rows = [(f"`{op}`", str(op.requires), status(op)) for op in ops]
        listed = table(("instruction", "requires", "numbers"), rows)
        parts.append(f"## {name}\n\n{counted(len(ops), 'instruction')}.\n\n{listed}")
    return "\n\n".join(parts)


def _family(page: str) -> str:
    """The page that explains what a page lists."""
    return page.removesuffix("_mma") if page.startswith("tcgen05") else page
