"""Membermasks that do not name the right lanes: an H200's answers, and the reports."""

import json
from functools import cache
from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from tests.simt.membermasks import KEPT, REFUSED, SETUPS

RECORDED = json.loads(KEPT.read_text("utf-8"))
ONE, NUMBER, NEGATIVE, NONE, SAME = "%one", "%number", "%negative", "%none", "7"
TEXTS = {
    **{
        f"shfl.{mode}": f"shfl.sync.{mode}.b32 %d|%q, %a, %b, {limit}, %m;"
        for mode, limit in (("up", 0), ("down", 31), ("bfly", 31), ("idx", 31))
    },
    **{
        f"vote.{mode}": f"vote.sync.{mode}.pred %q, %t, %m;"
        for mode in ("all", "any", "uni")
    },
    "vote.ballot": "vote.sync.ballot.b32 %d, %t, %m;",
    "match.any.b32": "match.any.sync.b32 %d, %odd, %m;",
    "match.all.b32": "match.all.sync.b32 %d|%q, 7, %m;",
    "match.any.b64": "match.any.sync.b64 %d, %odd64, %m;",
    "match.all.b64": "match.all.sync.b64 %d|%q, 7, %m;",
    "redux.add.u32": "redux.sync.add.u32 %d, %one, %m;",
    "redux.min.u32": "redux.sync.min.u32 %d, %number, %m;",
    "redux.max.s32": "redux.sync.max.s32 %d, %negative, %m;",
    "redux.and.b32": "redux.sync.and.b32 %d, %none, %m;",
    "redux.or.b32": "redux.sync.or.b32 %d, %one, %m;",
    "redux.xor.b32": "redux.sync.xor.b32 %d, %one, %m;",
    "elect": "elect.sync %d|%q, %m;",
    "activemask": "activemask.b32 %d;",
    "bar.warp": "bar.warp.sync %m;",
    "bar.warp half": "bar.warp.sync 0xffff;",
}
KERNEL = """
.version 8.5
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 given, .param .u64 out, .param .u32 constant)
{{
    .reg .b32 %d, %a, %b, %m, %n, %w, %one, %number, %negative, %none, %odd, %x;
    .reg .b64 %at, %to, %odd64, %off;
    .reg .pred %q, %t, %gone, %away;
    ld.param.u64 %at, [given];
    ld.param.u64 %to, [out];
    mov.u32 %n, %tid.x;
    mul.wide.u32 %off, %n, 4;
    add.u64 %at, %at, %off;
    add.u64 %to, %to, %off;
    ld.global.u32 %m, [%at];
    ld.global.u32 %w, [%at+128];
    ld.global.u32 %b, [%at+256];
    add.u32 %a, %n, 0x1000;
    add.u32 %d, %n, 0xD000;
    and.b32 %odd, %n, 1;
    setp.ne.u32 %q, %odd, 0;
    cvt.u64.u32 %odd64, %odd;
    rem.u32 %x, %n, 3;
    setp.eq.u32 %t, %x, 0;
    shl.b32 %one, 1, %n;
    not.b32 %none, %one;
    add.u32 %number, %n, 0x100;
    sub.s32 %negative, %n, 16;
    setp.eq.u32 %gone, %w, 2;
    @%gone exit;
    setp.eq.u32 %away, %w, 1;
    @%away bra ELSEWHERE;
    {instruction}
    st.global.u32 [%to], %d;
    selp.u32 %x, 1, 0, %q;
    st.global.u32 [%to+128], %x;
    ret;
ELSEWHERE:
    st.global.u32 [%to], 0xEEEE;
    exit;
}}
"""


@cache
def kernel(text: str) -> Any:
    return ptx.parse(KERNEL.format(instruction=text)).kernels["k"]


def run(op: str, setup: str, watch: Any) -> Any:
    """What the lanes get that execute it, as it is recorded, and the problems."""
    given = SETUPS[setup]
    steps = [
        n ^ given["step"] if op == "shfl.idx" else given["step"] for n in range(32)
    ]
    words = np.array([*given["masks"], *given["where"], *steps], np.uint32)
    out = np.zeros(64, np.uint32)
    result = kernel(TEXTS[op]).launch(1, 32, [words, out, 0], watch=watch)
    if not result.complete:
        return REFUSED, result.problems
    lanes = [lane for lane in range(32) if not given["where"][lane]]
    d = " ".join(f"{out[lane]:x}" for lane in lanes)
    return [d, "".join(str(out[32 + lane]) for lane in lanes)], result.problems


@pytest.mark.long
@pytest.mark.parametrize("op", RECORDED)
def test_each_setup_is_as_on_an_h200(op: str) -> None:
    for setup, wanted in RECORDED[op].items():
        found, problems = run(op, setup, "report")
        assert found == wanted, setup
        assert problems or wanted != REFUSED
        if wanted == REFUSED:
            with pytest.raises(ptx.KernelFault, match="does not name that lane"):
                run(op, setup, False)
        elif all(each.severity != "error" for each in problems):
            assert run(op, setup, False)[0] == wanted


def said(op: str, setup: str, watch: Any = "report") -> list[tuple[str, str]]:
    _, problems = run(op, setup, watch)
    return [(each.rule, each.severity) for each in problems]


def test_a_value_of_a_lane_that_takes_no_part_is_a_warning_if_it_is_used() -> None:
    for setup in (
        "lanes 16-31 elsewhere, mask 0000ffff",
        "lanes 16-31 ended, mask -1",
        "all lanes execute, each half names itself",
    ):
        assert said("shfl.bfly", setup) == [("membermask", "warning")]
        assert said("shfl.bfly", setup, False) == [("membermask", "info")]


def test_right_masks_are_not_reported() -> None:
    assert said("shfl.bfly", "all lanes, mask -1") == []
    for op in ("vote.ballot", "match.any.b32", "redux.add.u32"):
        for setup in (
            "all lanes execute, each half names itself",
            "lanes 16-31 ended, mask -1",
            "odd lanes elsewhere, mask 55555555",
        ):
            assert said(op, setup) == said(op, setup, False) == []


def test_lanes_with_different_masks_are_an_error() -> None:
    setup = "all lanes execute, even name the even, odd name all"
    assert said("vote.ballot", setup) == [("membermask", "error")]
    with pytest.raises(ptx.KernelHazard, match="come with another one"):
        run("vote.ballot", setup, False)


def test_a_mask_without_the_lane_names_lane_and_mask() -> None:
    _, [problem] = run("vote.all", "all lanes execute, mask 0000ffff", "report")
    assert "0x0000ffff of lane 16 does not name that lane" in problem.message
    assert problem.severity == "error"


HALVES = """
extern "C" __global__ void half(int *x, int all)
{
    int v = threadIdx.x;
    if (threadIdx.x < 16) {
        for (int o = 8; o; o >>= 1)
            v += __shfl_down_sync(0xffff, v, o);
        if (all || threadIdx.x == 0)
            x[threadIdx.x] = v;
    }
}"""


def test_a_reduction_whose_last_lanes_are_dropped_is_right() -> None:
    half = ptx.RawKernel(HALVES, "half").kernel
    x = np.zeros(32, np.int32)
    assert half.launch(1, 32, [x, 0], watch="report").problems == []
    assert x[0] == sum(range(16))
    [problem] = half.launch(1, 32, [x, 1], watch="report").problems
    assert (problem.rule, problem.severity) == ("membermask", "warning")
    assert "it is stored at" in problem.message


@pytest.mark.parametrize("op", ["bar.warp", "bar.warp half"])
def test_a_barrier_names_the_lanes_that_come_to_it(op: str) -> None:
    first = {
        "all lanes, mask -1": None,
        "all lanes execute, each half names itself": None,
        "all lanes execute, mask 0000ffff": 16,
        "all lanes execute, mask 55555555": 1,
        "lanes 16-31 elsewhere, mask 0000ffff": None,
    }
    for setup, lane in first.items():
        if op == "bar.warp half":
            lane = None if "elsewhere" in setup else 16
        left, problems = run(op, setup, "report")
        said = [(each.rule, each.severity) for each in problems]
        assert said == [("membermask", "error")] * (lane is not None), setup
        words = f"of lane {lane} does not name that lane"
        assert all(words in each.message for each in problems)
        assert run(op, setup, False) == (left, [])
