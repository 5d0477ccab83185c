"""The control-flow graph: one answer for the check, for ptxas' fusions and for lanes."""

from __future__ import annotations

import lzma
from dataclasses import replace
from pathlib import Path

import pytest

from fragmenta.engine.simt.program import program
from fragmenta.ptx.checking.register_effects import effects
from fragmenta.ptx.flow import blocks, destinations, falls_through, successors
from fragmenta.ptx.module import Function
from fragmenta.ptx.ptxas.contraction import contract
from fragmenta.ptx.ptxas.pieces import Pieces, uses
from fragmenta.ptx.reading import parse

FILES = Path(__file__).parent / "files"
HEADER = ".version 9.0\n.target sm_90a\n.address_size 64\n"


def function(body: str) -> Function:
    text = f"""{HEADER}.visible .entry k(.param .u64 x) {{
    .reg .pred %p<4>; .reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b64 %rd<4>;
    {body}
}}"""
    return parse(text).functions["k"]


# What follows each instruction, by place; 0 and so on are labels L0, L1 and L2.
@pytest.mark.parametrize(
    "body, expected",
    [
        ("ret;", [[]]),
        ("mov.u32 %r1, 0;", [[1]]),
        ("L0: bra L0;", [[0]]),
        ("L0: @%p1 bra L0; exit;", [[1, 0], []]),
        ("@%p1 exit; trap;", [[1], []]),
        ("@!%p1 ret; ret;", [[1], []]),
        ("@%p1 bra L0; L0: ret;", [[1], []]),
        ("bra L0; mov.u32 %r1, 0; L0: ret;", [[2], [2], []]),
        (
            "t: .branchtargets L0, L1; brx.idx %r1, t; L0: ret; L1: ret;",
            [[1, 2], [], []],
        ),
        (
            "t: .branchtargets L1, L1; @%p1 brx.idx %r1, t; L0: ret; L1: ret;",
            [[1, 2], [], []],
        ),
    ],
)
def test_where_a_thread_goes_on(body: str, expected: list[list[int]]) -> None:
    assert successors(function(body)) == expected


def test_an_indirect_branch_without_a_list_may_go_to_any_label() -> None:
    made = function(
        "t: .branchtargets L0; brx.idx %r1, t; L0: ret; mov.u32 %r2, 1; L1: ret;"
    )
    lost = replace(made, tables={})
    assert destinations(lost, lost.instructions[0]) == [1, 3]
    assert destinations(made, made.instructions[0]) == [1]


def texts() -> dict[str, str]:
    found = {path.name: path.read_text() for path in FILES.glob("*.ptx")}
    for path in FILES.glob("*.ptx.xz"):
        found[path.name] = lzma.decompress(path.read_bytes()).decode()
    return found


@pytest.mark.parametrize("name", sorted(texts()))
def test_all_users_of_the_graph_agree(name: str) -> None:
    """Every edge between instructions is one in or between blocks, for each cut."""
    module = parse(texts()[name])
    for each in module.functions.values():
        if each.declared_only:
            continue
        after = successors(each)
        end = len(each.instructions)
        for cut in (blocks(each), blocks(each, alone=lambda i: i.opcode == "bar")):
            assert [b.start for b in cut] == [0, *(b.end for b in cut[:-1])]
            for block in cut:
                inside = range(block.start, block.end - 1)
                assert all(after[i] == [i + 1] for i in inside)
                leads = {cut[number].start for number in block.after}
                assert leads == set(after[block.end - 1]) - {end}
        pieces = Pieces(each).pieces
        for piece in pieces:
            assert all(falls_through(each.instructions[i]) for i in piece[:-1])
        if each.kernel:
            made = program(module, each.name)
            own = [b for b in made.blocks if b.unit.function is each]
            starts = {b.start for b in blocks(each)}
            assert starts | {end} <= {b.start for b in own}


def test_a_guarded_indirect_branch_goes_on() -> None:
    """What it reads later keeps a product from being fused."""
    fused = contract(
        function(
            "ld.param.u64 %rd1, [x]; ld.global.f32 %f1, [%rd1]; mul.f32 %f2, %f1, %f1;"
            "add.f32 %f3, %f2, %f1; st.global.f32 [%rd1], %f3;"
            "t: .branchtargets L0; @%p1 brx.idx %r1, t;"
            "st.global.f32 [%rd1], %f2; L0: ret;"
        )
    )
    assert "mul.f32" in [each.mnemonic for each in fused.instructions]


@pytest.mark.parametrize(
    "statement, read, written",
    [
        ("vadd.s32.s32.s32 %r1, -%r2, %r3;", {2, 3}, {1}),
        ("vmad.s32.s32.s32 %r1, %r2.b0, -%r3.h1, %r4;", {2, 3, 4}, {1}),
        ("@%p1 mov.u32 %r1, %r2;", {2}, {1}),
        ("st.global.v2.b32 [%rd1], {%r1, %r2};", {1, 2}, set()),
        ("red.global.add.u32 [%rd1], %r1;", {1}, set()),
        ("bar.red.popc.u32 %r1, %r2, %p1;", {2}, {1}),
        ("shfl.sync.idx.b32 %r1|%p2, %r2, %r3, %r4, -1;", {2, 3, 4}, {1}),
        ("prefetch.global.L1 [%rd1];", set(), set()),
        ("frobnicate.b32 %r1, %r2;", {1, 2}, {1, 2}),
    ],
)
def test_which_registers_are_read_and_written(
    statement: str, read: set[int], written: set[int]
) -> None:
    """The same for what is fused as for the check; %rN are counted alone."""
    made = function(statement)
    numbers = {
        each.number: int(each.name[2:])
        for each in made.registers
        if each.name.startswith("%r") and each.type == "b32"
    }
    (instruction,) = made.instructions
    found = {numbers[each] for each in uses(instruction).reads if each in numbers}
    assert found == read
    assert {numbers[n] for n in uses(instruction).writes if n in numbers} == written
    if not effects(instruction).unknown:
        both = {e.number for e in effects(instruction).writes}
        assert set(uses(instruction).writes) == both


def test_a_product_that_is_negated_in_a_video_instruction_is_kept() -> None:
    fused = contract(
        function(
            "ld.param.u64 %rd1, [x]; ld.global.f32 %f1, [%rd1]; mul.f32 %f2, %f1, %f1;"
            "add.f32 %f3, %f2, %f1; mov.b32 %r3, 1; vadd.s32.s32.s32 %r1, -%f2, %r3;"
            "st.global.f32 [%rd1], %f3; st.global.b32 [%rd1+4], %r1; ret;"
        )
    )
    assert "mul.f32" in [each.mnemonic for each in fused.instructions]
