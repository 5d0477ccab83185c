"""Short names of long headings, for the table of contents."""

from __future__ import annotations

import re

import fragmenta as fm

LABELS = {
    "Training and rollout: do they agree?": "Training and rollout",
    "Occupancy and a bound of the time": "Occupancy and time",
    "Files: CUDA C++, cubins, programs": "Files",
    "Kernels with copies and mbarriers": "Copies and mbarriers",
    "Comparing instructions and targets": "Comparing",
    "Where an instruction does not exist": "What does not exist",
    "What the assembler accepts beyond the manual": "Beyond the manual",
    "Test a Triton kernel without a GPU": "Test a Triton kernel",
    "An NVFP4 product, and its error": "An NVFP4 product",
    "How do they get to the instruction?": "Into registers",
    "Write a kernel for Blackwell without one": "A kernel for Blackwell",
    "From a profiler to the fragment": "From a profiler",
    "What limits 4-bit weights": "4-bit weights",
    "Microseconds, settled, s4-128-e4m3": "Settled, s4-128-e4m3",
    "From an instruction to the machine": "To the machine",
    "Which thread supplies the metadata?": "Who supplies metadata",
    "What does ordered_metadata promise?": "Ordered metadata",
    "How do I exchange sparse matrices with others?": "Exchange with others",
    "What ptxas makes of each instruction": "What ptxas makes of it",
    "Marlin, from codes to a product": "Marlin",
    "What is specified, and what was observed": "Specified and observed",
    "K-major: is the leading offset 0, 1 or 16?": "The leading offset",
    "Smaller types, the same registers": "Smaller types",
    "Own letters: a block copies a tile": "Own letters",
    "Gather and tile: a weight in the order of its loads": "Gather and tile",
    "From one fragment to another: `tcgen05.ld` to `stmatrix`": "Between fragments",
    "What was checked against what": "What was checked",
    "Which scale does a block get?": "The scale of a block",
    "What did another program make?": "From other programs",
    "Why has tf32 only two codes?": "The codes of tf32",
    "Which lane holds which element": "Who holds what",
    "Both directions always agree": "Both directions",
    "Store buffering, load buffering, independent reads": "Store buffering",
    "Asynchronous copies and proxies": "Copies and proxies",
    "Kernel two: one mma, two targets": "Two targets",
    "Kernel three: split by batch size": "Split by batch size",
    "Kernel four: configurations of an autotuner": "Configurations",
}
"""Headings of the pages that are whole sentences, and short names for them."""
HEADING = re.compile(r"(?m)^(#{2,3}) (.+)$")
CODE = re.compile(r"(?s)(```.*?```)")


def put(text: str) -> str:
    """A page whose headings have short names where they are long."""
    parts = CODE.split(text)
    parts[::2] = [HEADING.sub(_labelled, each) for each in parts[::2]]
    return "".join(parts)


def _labelled(heading: re.Match[str]) -> str:
    level, title = heading.groups()
    instruction = re.fullmatch(r"`(\w[^`]*\.[^`]*)`", title)
    short = LABELS.get(title)
    if instruction and "(" not in title:
        short = label(fm.instruction(instruction[1]))
    return f'{level} {title} {{ data-toc-label="{short}" }}' if short else heading[0]


def label(op: fm.Instruction) -> str:
    """An instruction in few words.

    >>> label(fm.mma("m16n8k16", a="f16", d="f32"))
    'm16n8k16 f16 → f32'
    >>> label(fm.mma("m16n8k32", a="s8", b="u8"))
    'm16n8k32 s8 u8 → s32'
    >>> label(fm.find("ldmatrix.m8n8.x4.trans.b16"))
    'ldmatrix m8n8 x4 trans b16'
    """
    values = op.values
    inputs = " ".join(dict.fromkeys(filter(None, map(values.get, ("a", "b")))))
    types = f"{inputs} → {values['d']}" if inputs else values.get("type", "")
    types = types.removeprefix("b8x16.")
    order = " ".join(filter(None, map(values.get, ("alayout", "blayout", "layout"))))
    words = [
        "" if inputs else op.family.removeprefix("wmma."),
        values.get("operand", ""),
        values.get("shape", values.get("tile", "")),
        values.get("num", ""),
        values.get("trans", ""),
        "" if order == "row col" else order,
        types,
        "pair" if values.get("cta_group") == "cta_group::2" else "",
    ]
    return " ".join(filter(None, words))
