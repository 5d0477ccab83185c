"""Reports use the user's words: names, elements, barriers, parity, causes."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.cuda.tools.parameter_names import parameter_names
from fragmenta.ptx.checking.problem import Problem
from fragmenta.ptx.languages import CUDA, PTX, Words
from fragmenta.ptx.rules import RULES, SEVERITIES
from fragmenta.watch.races.report.messages import order
from tests.ptx.hazards.cases import cases
from tests.races.test_messages import first, result

HEAD = '.version 8.0\n.target sm_80\n.address_size 64\n.file 1 "FILE"\n'
RACE = """
.visible .entry NAME(.param .u64 NAME_param_0)
{
    .reg .b32 %r<6>; .reg .b64 %rd<4>; .reg .pred %p<2>;
    .shared .align 4 .b8 tile[4096];
    ld.param.u64 %rd1, [NAME_param_0];
    mov.u32 %r1, %tid.x; mov.u32 %r5, %ctaid.x; mad.lo.u32 %r1, %r5, 1024, %r1;
    BODY
    ret;
}
"""
# Threads with the same PLACE store different values there.
GLOBAL = """
    .loc 1 7 1
    PLACE
    mul.wide.u32 %rd2, %r2, 4; add.s64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r1;"""
# Each thread stores a word, loads that of another, and uses it.
SHARED = """
    .loc 1 7 1
    shl.b32 %r2, %r1, 2; mov.u32 %r3, tile; add.u32 %r4, %r3, %r2;
    st.shared.u32 [%r4], %r1;
    PLACE
    shl.b32 %r2, %r2, 2; add.u32 %r3, %r3, %r2;
    .loc 1 8 1
    ld.shared.u32 %r4, [%r3];
    mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r4;"""


def kernel(body: str, place: str, file: str = "k.cu", name: str = "k") -> ptx.Kernel:
    text = HEAD.replace("FILE", file) + RACE.replace("BODY", body)
    text = text.replace("PLACE", place).replace("NAME", name)
    found: ptx.Kernel = ptx.parse(text).kernels[name]
    return found


def race(made: ptx.Kernel, grid: int = 1, block: int = 64, out: Any = None) -> Problem:
    """The error of a launch."""
    given = np.zeros((64, 64), np.uint32) if out is None else out
    found = made.launch(grid, block, [given], watch="report").hazards
    return next(each for each in found if each.severity == "error")


# ── the strongest barrier ───────────────────────────────────────────────────

LANES = "and.b32 %r2, %r1, 0xffe;"  # two lanes of a warp
WARPS = "and.b32 %r2, %r1, 0xfdf;"  # the same lane of two warps
MIXED = "and.b32 %r2, %r1, 0xfde;"  # both; the lanes of a warp meet first
BLOCKS = "and.b32 %r2, %r1, 0x3ff;"  # two blocks
ALL = "and.b32 %r2, %r1, 0x3de;"  # everything
LANE = "xor.b32 %r2, %r1, 1;"  # of the same warp
WARP = "xor.b32 %r2, %r1, 32;"  # the same lane of another warp
EITHER = """
    and.b32 %r5, %r1, 16; setp.eq.u32 %p1, %r5, 0;
    selp.b32 %r5, 1, 32, %p1; xor.b32 %r2, %r1, %r5;"""


@pytest.mark.parametrize(
    ("body", "place", "grid", "repair", "also"),
    [
        (SHARED, LANE, 1, "Let __syncwarp() come between the two: before k.cu:8.", ""),
        (
            SHARED,
            WARP,
            1,
            "Let __syncthreads() come between the two: before k.cu:8.",
            "",
        ),
        (
            SHARED,
            MIXED,
            1,
            "Let __syncthreads() come between the two: before k.cu:8.",
            "between warps",
        ),
        (GLOBAL, LANES, 1, "Let one thread store it, or", ""),
        (GLOBAL, WARPS, 1, "Let one thread store it, or", ""),
        (
            GLOBAL,
            MIXED,
            1,
            "Let one thread store it, or",
            "between warps",
        ),
        (GLOBAL, BLOCKS, 2, "If both add to it, use atomicAdd.", ""),
        (GLOBAL, ALL, 2, "If both add to it, use atomicAdd.", None),
    ],
)
def test_the_repair_is_enough_for_all_threads(
    body: str, place: str, grid: int, repair: str, also: str | None
) -> None:
    found = race(kernel(body, place), grid)
    assert found.hint.startswith(repair)
    if also is None:  # blocks run side by side: any pair may be the first
        return
    assert ("the same happens" in found.message) == bool(also)
    assert also in found.message


# ── the front end's words ───────────────────────────────────────────────────

MINE = Words("mine", "mine.warp()", "mine.block()", "mine.add()", "mine.flag()")


@pytest.mark.parametrize(
    ("file", "name", "language", "barrier", "adding"),
    [
        ("k.cu", "k", PTX, "__syncthreads()", "atomicAdd"),
        ("k.cuh", "k", PTX, "__syncthreads()", "atomicAdd"),
        ("k.py", "k", MINE, "mine.block()", "mine.add()"),
        ("k.py", "_ZN6cudapy1kE", PTX, "cuda.syncthreads()", "cuda.atomic.add"),
        ("k.py", "k", PTX, "a barrier (bar.sync)", "an atomic operation"),
        ("k.py", "k", CUDA, "__syncthreads()", "atomicAdd"),
    ],
)
def test_repairs_are_called_as_in_the_source(
    file: str, name: str, language: Words, barrier: str, adding: str
) -> None:
    inside = replace(kernel(SHARED, WARP, file, name), language=language)
    place = f"before {file}:8"
    assert race(inside).hint == f"Let {barrier} come between the two: {place}."
    between = replace(kernel(GLOBAL, BLOCKS, file, name), language=language)
    assert f"use {adding}." in race(between, 2).hint


def test_a_copy_of_a_kernel_has_its_language_and_its_names() -> None:
    made = replace(kernel(SHARED, WARP), language=MINE, names=("data",))
    copy = pickle.loads(pickle.dumps(made))
    assert (copy.language, copy.names) == (MINE, ("data",))
    found = race(copy).hint
    assert found == "Let mine.block() come between the two: before k.cu:8."


# ── names and elements ──────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("out", "names", "place"),
    [
        (np.zeros((64, 64), np.uint32), ("x",), "x[0, 2] (argument 0)"),
        (np.zeros((4, 1024), np.uint16), ("x",), "x[0, 4] (argument 0)"),
        (np.zeros(4096, np.uint32), ("x",), "x[2] (argument 0)"),
        (np.zeros(2048, np.uint64), ("x",), "x[1] (argument 0)"),
        (np.zeros((64, 64), np.uint32), (), "element [0, 2] of argument 0"),
        (np.zeros(4096, np.uint32), ("",), "element 2 of argument 0"),
    ],
)
def test_elements_have_their_index(
    out: Any, names: tuple[str, ...], place: str
) -> None:
    made = replace(kernel(GLOBAL, "mov.u32 %r2, 2;"), names=names)
    assert f"writes {place};" in race(made, out=out).message


@pytest.mark.parametrize(
    ("code", "name", "count", "names"),
    [
        ("__global__ void f(float *x, int n) {}", "f", 2, ("x", "n")),
        (
            "__global__ void f(const T* __restrict__ a, T (&b)[3]) {}",
            "f<int>",
            2,
            ("a", "b"),
        ),
        (
            "namespace q { __global__ void f(Pair<int, 3> p, int = 4) {} }",
            "q::f",
            2,
            ("p", ""),
        ),
        (
            "void f(int); __global__ void f(float *x, /* a, b */ int n) {}",
            "f",
            2,
            ("x", "n"),
        ),
        ("__global__ void f(void) {}", "f", 0, ()),
        ("__global__ void f(unsigned int) {}", "f", 1, ("",)),
        ("#define F f\n__global__ void g(int n) {}", "f", 1, ()),
    ],
)
def test_parameters_of_cpp_have_their_names(
    code: str, name: str, count: int, names: tuple[str, ...]
) -> None:
    assert parameter_names(code, name, count) == names


def test_a_kernel_in_cpp_has_its_names() -> None:
    made = ptx.RawKernel(
        "__global__ void twice(unsigned *total, int n) { *total += n; }", "twice"
    )
    with pytest.raises(ptx.KernelHazard) as raised:
        made((2,), (32,), (np.zeros(1, np.uint32), 3))
    assert "total[0] (argument 0)" in " ".join(str(raised.value).split())
    assert "atomicAdd" in str(raised.value)
    assert "error" in repr(raised.value.result)
    with pytest.raises(ptx.KernelFault, match=r"argument 0 \(total\)"):
        made((1,), (1,), (np.zeros(0, np.uint32), 3))


# ── parity, metadata, order ─────────────────────────────────────────────────


def test_a_wrong_parity_is_called_so() -> None:
    for name, parity in (("pairs-wrong_parity-1", 1), ("pairs-wrong_parity-2", 0)):
        assert f"(parity {parity})" in first(name, "read-before-arrival").message


METADATA = """
.version 8.5
.target sm_80
.address_size 64
.visible .entry sparse(.param .u32 metadata)
{
    .reg .b32 %r<9>;
    ld.param.u32 %r1, [metadata];
    mov.b32 %r2, 0;
    mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32
        {%r3, %r4, %r5, %r6}, {%r2, %r2, %r2, %r2}, {%r2, %r2, %r2, %r2},
        {%r2, %r2, %r2, %r2}, %r1, 0x0;
    ret;
}
"""


def test_illegal_metadata_names_lane_code_and_row() -> None:
    made = ptx.parse(METADATA).kernels["sparse"]
    made.launch(1, 32, [0x44444444])
    with pytest.raises(ptx.KernelFault) as raised:
        made.launch(1, 32, [0x44440444])
    assert raised.value.kind == "metadata"
    assert "lane 0, nibble 3 (row 0, chunk 3): code 0000" in str(raised.value)
    found = made.launch(1, 32, [0x44440444], watch="report").hazards
    assert "code 0000" in found[-1].message


def test_a_cause_comes_before_what_follows_from_it() -> None:
    def problem(rule: str, severity: str, line: int) -> Problem:
        return Problem(rule, severity, line, 1, "", "")

    for rule in (each.name for each in RULES.values() if each.consequence):
        late, early = problem(rule, "error", 1), problem("shared-race", "error", 9)
        assert sorted([late, early], key=order) == [early, late]
        assert order(problem(rule, "error", 9)) < order(problem("leak", "info", 1))


@pytest.mark.parametrize(
    "name",
    [c.name for c in cases() if c.bug and c.row.source in ("pairs", "plain")][::4],
)
def test_the_order_of_real_reports(name: str) -> None:
    found = result(name).hazards
    keys = [(SEVERITIES.index(e.severity), RULES[e.rule].consequence) for e in found]
    assert keys == sorted(keys)
