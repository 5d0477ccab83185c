"""What runs natively, read off the machine code that ptxas wrote."""

import re

import pytest

import fragmenta as fm
from fragmenta import catalogue
from fragmenta.reference.execution.mma import numeric_model
from fragmenta.reference.isa.families import IN_REGISTERS
from fragmenta.reference.isa.native import expansion
from fragmenta.reference.isa.target import TARGETS

#: How each element type shows in the name of a matrix instruction.
SHOWN = {
    "f16": r"HMMA(\.SP)?\.\d+\.F(16|32)(\.F(16|32))?(\.STEP\d)?$",
    "bf16": r"HMMA.*\.BF16",
    "tf32": r"HMMA.*\.TF32",
    "f64": "DMMA",
    "b1": "BMMA",
    "s8/u8": r"IMMA.*\.[SU]8\.[SU]8",
}


OPS = [op for family in ("mma", "mma.sp", "wmma.mma") for op in catalogue(family)]


def matrix_instructions(op, target):
    """The matrix operations in its machine code."""
    return {name for name in op.sass(target).names if re.match("[HIBDQO]MMA", name)}


def agrees(op, becomes, opcodes):
    """Whether the machine code is what the table says it becomes."""
    a = op.values["a"]
    if becomes == "fma":
        return not opcodes
    if becomes == "and.popc":
        return all("AND.POPC" in code for code in opcodes) and opcodes
    if becomes and becomes.startswith("m"):  # another shape of the same type
        digits = becomes.replace("m", "").replace("n", "x").replace("k", "x")
        names = (digits, digits.replace("x", ""))
        return opcodes and all(any(n in code for n in names) for code in opcodes)
    shown = SHOWN.get(becomes or a, (becomes or a).upper())
    if a == "b1" and not becomes:
        shown = f"BMMA.*{op.values['bitop'].upper()}"
    return opcodes and all(re.search(shown, code) for code in opcodes)


@pytest.mark.parametrize("target", TARGETS)
def test_expansions_are_what_the_machine_code_shows(target):
    """Every instruction; tests.isa.test_sass asks ptxas whether the record is right."""
    wrong = [
        (str(op), expansion(op, target), codes)
        for op in OPS
        if op.supported_on(target)
        and not agrees(
            op, expansion(op, target), codes := matrix_instructions(op, target)
        )
    ]
    assert not wrong


def test_native_needs_support():
    op = fm.instruction("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32")
    assert not op.native_on("sm_80")
    assert op.native_on("sm_89")
    assert not op.native_on("sm_90a")
    assert op.native_on("sm_120")


def test_the_numbers_follow_the_expansions():
    """Where an instruction is expanded, its numbers are those of the expansion.

    Integers, bits and f64 are exact in whatever way they are expanded.  The tf32
    of wmma stays tf32: it is only cut into two steps.
    """
    forms = {None: {"fused", "grouped"}, "f16": {"fused"}, "fma": {"chain", "pairs"}}
    operands = {None: None, "f16": "f16", "fma": "f32"}
    wrong, met = [], set()
    for op in (op for family in IN_REGISTERS for op in catalogue(family)):
        for target in op.requires.targets:
            how, becomes = numeric_model(op, target), expansion(op, target)
            if how.source == "exact by definition" and how.operand is None:
                continue
            met.add(becomes)
            if how.operand != operands[becomes] or how.form not in forms[becomes]:
                wrong.append(f"{op} on {target}: {becomes}, but {how.form}")
    assert not wrong
    assert met == set(forms)
