"""Hints about tensor memory, tiles and boxes: the repair that each names ends its report."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.cuda.tools import compiler
from fragmenta.ptx.checking.problem import Problem
from tests.ptx.hazards import running
from tests.ptx.hazards.cases import SOURCES, cases

CASES = {case.name: case for case in cases()}
HEAD = '#include "hopper.cuh"\n#include "blackwell.cuh"\n'


class Wrong(NamedTuple):
    """A kernel, the words of its hint, and the repair with these words."""

    body: str
    rule: str
    words: str
    repair: tuple[tuple[str, str], ...]
    grid: int = 1
    block: int = 128


def found(case: Wrong, body: str) -> list[Problem]:
    """What is worse than a note about a kernel, by the letter of the manual."""
    code = running.with_headers(HEAD + body.lstrip("\n"), "k.cu")
    text = compiler.to_ptx(code, "sm_100a", "-lineinfo")
    [kernel] = ptx.parse(running.without_folders(text)).kernels.values()
    given = [np.zeros(size, np.uint32) for size in (1024, 128, 4096)]
    watch = ptx.Watch("report", strict=True)
    shape = {"cluster": case.grid} if case.grid > 1 else {}
    result = kernel.launch(case.grid, case.block, given, watch=watch, **shape)
    return [each for each in result.hazards if each.severity != "info"]


ISSUED = """
KERNEL k(const u16 *a, const u16 *b, u32 *out)
{
    __shared__ Tiles s;
    u32 tensor = begin(s, a, b);
    if (warp() == 0) {
        mma(tensor, operand(s.A), operand(s.B));
        if (lane() == 0)
            commit(&s.done);
    }
    wait(&s.done, 0);
    after_sync();
    finish(out, tensor);
    end(tensor);
}
"""
LOADED_FIRST = """
KERNEL k(const u16 *a, const u16 *b, u32 *out)
{
    __shared__ Tiles s;
    u32 tensor = begin(s, a, b), r[8] = {};
    st(tensor, r);
    wait_st();
    before_sync();
    __syncthreads();
    after_sync();
    ld(r, tensor);
    wait_ld();
    put(out, r);
    before_sync();
    if (threadIdx.x == 96) {
        after_sync();
        mma(tensor, operand(s.A), operand(s.B));
        commit(&s.done);
    }
    wait(&s.done, 0);
    after_sync();
    end(tensor);
}
"""
UNSEEN = (
    "If the tcgen05.ld is to load what this instruction writes, wait for the mbarrier "
    "of its tcgen05.commit before the tcgen05.ld; a barrier alone does not help. If "
    "the tcgen05.ld is to come first, let __syncthreads() come between the two."
)
FREED = """
KERNEL __cluster_dims__(2, 1, 1) k(const u16 *a, const u16 *b, u32 *out)
{
    __shared__ Tiles s;
    u32 tensor = begin(s, a, b), r[8] = {};
    st(tensor, r);
    wait_st();
    if (warp() == 0) {
        cluster_arrive_relaxed();
        cluster_wait();
        dealloc(tensor);
    } else {
        cluster_arrive_relaxed();
        cluster_wait();
    }
}
"""
STORED_APART = FREED.replace(
    """    st(tensor, r);
    wait_st();
""",
    "",
).replace("else {\n", "else {\n        st(tensor, r);\n        wait_st();\n")
READ_APART = """
KERNEL __cluster_dims__(2, 1, 1) k(const u32 *in, const u32 *, u32 *out)
{
    __shared__ u32 tile[64];
    put(&tile[threadIdx.x], in[threadIdx.x]);
    if (warp() == 0) {
        cluster_arrive_relaxed();
        cluster_wait();
        u32 other = remote(&tile[32 + lane()], rank() ^ 1);
        out[32 * rank() + lane()] = load_remote(other);
    } else {
        cluster_arrive_relaxed();
        cluster_wait();
    }
    cluster_arrive();
    cluster_wait();
}
"""
STRICTLY = ("cluster_arrive_relaxed()", "cluster_arrive()")
WRONG = {
    "every lane": Wrong(
        ISSUED,
        "tensor-memory-race",
        "Let one thread of the warp issue it: the one that elect.sync chooses.",
        (("warp() == 0)", "warp() == 0 && elect())"), ("if (lane() == 0)\n", "\n")),
    ),
    "every lane commits": Wrong(
        ISSUED.replace("if (lane() == 0)\n", "\n").replace(
            "(&s.done, 0)", "(&s.full, 0)"
        ),
        "mbarrier",
        "Let one thread of the warp (elect.sync) issue the work and commit it",
        (("warp() == 0)", "warp() == 0 && elect())"), ("wait(&s.full", "wait(&s.done")),
    ),
    "loaded first": Wrong(
        LOADED_FIRST,
        "tensor-memory-race",
        UNSEEN,
        (("    if (thread", "    __syncthreads();\n    if (thread"),),
    ),
    "freed by one": Wrong(
        FREED,
        "tensor-memory-race",
        "barrier.cluster.arrive.relaxed at k.cu:10 (hopper.cuh:136) and k.cu:14 "
        "(hopper.cuh:136) orders no memory. Leave out .relaxed there.",
        (STRICTLY,),
        grid=2,
    ),
    "stored by others": Wrong(
        STORED_APART,
        "tensor-memory-race",
        "Leave out .relaxed at barrier.cluster.arrive.",
        (STRICTLY,),
        grid=2,
    ),
    "read by one": Wrong(
        READ_APART,
        "shared-race",
        "barrier.cluster.arrive.relaxed at k.cu:8 (hopper.cuh:136) and k.cu:13 "
        "(hopper.cuh:136) orders no memory. Leave out .relaxed there.",
        (STRICTLY,),
        grid=2,
        block=64,
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", WRONG)
def test_the_repair_of_a_hint_ends_the_report(name: str) -> None:
    case = WRONG[name]
    said = [each.hint for each in found(case, case.body) if each.rule == case.rule]
    assert any(case.words in " ".join(each.split()) for each in said), said
    body = case.body
    for old, new in case.repair:
        assert old in body
        body = body.replace(old, new)
    assert found(case, body) == []


# ── boxes and tiles ─────────────────────────────────────────────────────────


def boxes(
    name: str, changes: tuple[tuple[str, str], ...], maps: dict[int, Any]
) -> list[Problem]:
    """What is said about a mistake of the corpus, with changes of its text and maps.

    A map is made of the array of the row, as a type, with a box and a swizzle.
    """
    case = CASES[name]
    row = case.row
    code = (SOURCES / f"{row.source}.cu").read_text("utf-8")
    for old, new in changes:
        assert code.count(old) == 1
        code = code.replace(old, new)
    code = running.with_headers(code, f"{row.source}.cu")
    text = compiler.to_ptx(code, "sm_90a", f"-DBUG={case.bug}", "-lineinfo")
    kernel = ptx.parse(running.without_folders(text)).kernels[row.entry]
    made = running.made(row)
    given = running.for_launch(row, made)
    for place, (kind, box, swizzle) in maps.items():
        array = made[row.arguments[place]["of"]].view(kind)
        given[place] = ptx.tensor_map(array, box, swizzle=swizzle)
    result = kernel.launch(row.grid, row.block, given, watch="report")
    return [each for each in result.hazards if each.severity != "info"]


OVERLAP = (
    "Let the offsets be at least as large as the atoms that they step over, or 0 if a "
    "part is to be repeated."
)
AGREE = (
    "Let the descriptor and the tensor map agree: their swizzles, and the offsets with "
    "the box."
)
IN_TURN = (("tile_of(A), tile_of(B)", "described(A, SWIZZLE_32, 256), tile_of(B)"),)
TILES: dict[str, tuple[str, Any, Any, Any]] = {
    "layouts-prepacked-2": (OVERLAP, {}, (("1024 - 128", "0"),), {}),
    "layouts-rearranged-1": (AGREE, {}, IN_TURN, {0: ("f2", (64, 16), 32)}),
}
"""The words of hints, wrong maps, the repair of the text, and right maps."""


@pytest.mark.parametrize("name", TILES)
def test_the_repair_of_a_tile_ends_the_report(name: str) -> None:
    words, wrong, changes, right = TILES[name]
    said = boxes(name, (), wrong)
    assert [each.rule for each in said] == ["layout-mismatch"] * len(said)
    assert words in {" ".join(each.hint.split()) for each in said}
    assert boxes(name, changes, right) == []
