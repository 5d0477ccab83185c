"""Reasons why a target does not have an instruction."""

from __future__ import annotations

from collections.abc import Callable

from fragmenta.errors import one_of
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.target import check_target, number
from fragmenta.reference.isa.tcgen05_shapes import WIDE_K

#: What a target of each number has for Tensor Cores; the first line that fits counts.
GENERATIONS: tuple[tuple[range, str], ...] = (
    (range(90), "tensor memory came with sm_100; mma is what it has"),
    (range(90, 100), "tensor memory came with sm_100; wgmma is what it has"),
    (
        range(120, 130),
        (
            "sm_120 and sm_121 are Blackwell, too, but have no tensor memory: their "
            "Tensor Cores run mma, also with .block_scale"
        ),
    ),
)

#: Instructions that not all targets with tensor memory have, and what is known of them.
SOME: tuple[tuple[Callable[[Instruction], bool], str], ...] = (
    (
        lambda op: op.kind == "i8",
        (
            "only sm_100a and sm_110a multiply integers of 8 bits there; sm_103 has no "
            ".kind::i8, so that no target for a whole family has it"
        ),
    ),
    (
        lambda op: ".ld.red" in op.mnemonic,
        "sm_100 has no tcgen05.ld.red; sm_103 has it",
    ),
    (
        lambda op: op.idesc is not None and op.shape.k == WIDE_K,
        f"k = {WIDE_K} came with sm_103a",
    ),
    (lambda op: op.kind == "ti16", ".kind::ti16 came with sm_107"),
    (lambda op: bool(op.values.get("lut")), "tables for B came with sm_107"),
    (lambda op: bool(op.values.get("collector_b")), "collectors of B came with sm_107"),
    (lambda op: bool(op.values.get("restrict")), ".sync_restrict came with sm_107"),
    (lambda op: "32b" in op.values.get("multicast", ""), "32 CTAs came with sm_107"),
)


def why_not(op: Instruction, target: str) -> str:
    """Why a target lacks an instruction, as far as that is known; or nothing.

    >>> import fragmenta as fm
    >>> why_not(fm.find("tcgen05.wait::ld"), "sm_120a")
    'sm_120 and sm_121 are Blackwell, too, but have no tensor memory: their Tensor \
Cores run mma, also with .block_scale'
    >>> why_not(fm.find("tcgen05.wait::ld"), "sm_100")
    'it needs the suffix a or f: sm_100a or sm_100f'
    >>> why_not(fm.find("tcgen05.shift.cta_group::1"), "sm_100f")
    'sm_100f stands for what later targets of its family have, too; sm_100a has it'
    """
    if op.supported_on(target) or op.unit != "tcgen05":
        return ""
    which = number(check_target(target))
    for numbers, reason in GENERATIONS:
        if which in numbers:
            return reason
    near = [each for each in op.requires.targets if number(each) == which]
    if near and target[-1] not in "af":
        suffixes = one_of(each[-1] for each in near)
        return f"it needs the suffix {suffixes}: {one_of(near)}"
    for applies, reason in SOME:
        if applies(op):
            return reason
    if near:
        return (
            f"{target} stands for what later targets of its family have, too; "
            f"{one_of(near, 'and')} has it"
        )
    return ""


def lacking(op: Instruction, target: str) -> str:
    """That a target does not have an instruction, what would, and why.

    >>> import fragmenta as fm
    >>> print(lacking(fm.wgmma("m64n8k16", a="f16", d="f32"), "sm_100a"))
    sm_100a does not have wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16; it needs \
PTX 8.0, sm_90a
    """
    reason = why_not(op, target)
    text = f"{target} does not have {op}; it needs {op.requires}"
    return f"{text}; {reason}" if reason else text
