"""Every hint is tried: the repair that it names, where it names it, ends the report.

A hint that asks for a barrier at a line is read, and the barrier is put there.  Other
hints are checked by their words, and the repair with these words is made by hand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.commands.problems import of_fault
from fragmenta.cuda.tools import compiler
from fragmenta.ptx.checking.problem import Problem
from tests.ptx.hazards import pages, running
from tests.ptx.hazards.cases import SOURCES, Case, cases
from tests.thinning import some

HEAD = '#include "hopper.cuh"\n'
CLUSTER = 'asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");'
BARRIERS = {
    "__syncthreads()": "__syncthreads();",
    "__syncwarp()": "__syncwarp();",
    "a barrier of the cluster": CLUSTER,
    "a barrier of the warps that come there": "bar_sync(1, 64);",
}
PLACE = re.compile(
    r"(before|after) [\w-]+\.cu:(\d+)(?:, outside the (?:condition|loop) of line (\d+))?"
)


def found(body: str, block: int = 64, grid: int = 1, cluster: int = 1) -> list[Problem]:
    """What is worse than a note about a kernel of one array or two."""
    given = [np.zeros(1024, np.uint32)]
    if "const u32 *in" in body or "u32 *lock" in body:
        given.insert(0, np.arange(1024, dtype=np.uint32) % 7)
    result = _kernel(body).launch(
        grid,
        block,
        given,
        cluster=cluster,
        watch="report",
    )
    return [each for each in result.hazards if each.severity != "info"]


@cache
def _kernel(body: str) -> ptx.Kernel:
    code = running.with_headers(HEAD + body.lstrip("\n"), "k.cu")
    text = compiler.to_ptx(code, "sm_90a", "-lineinfo")
    [made] = ptx.parse(running.without_folders(text)).kernels.values()
    return made


def applied(hints: Iterable[str], code: str) -> str:
    """A source with the barriers of hints, at their places."""
    lines = code.splitlines()
    inserts: set[tuple[int, str]] = set()
    for hint in hints:
        barrier = next(
            each for words, each in BARRIERS.items() if f"Let {words}" in hint
        )
        places = PLACE.findall(hint)
        assert places, hint
        for side, number, outside in places:
            at = int(number) - (side == "before")
            if outside:
                at = _behind(lines, int(outside), int(number))
            inserts.add((at, barrier))
    for at, barrier in sorted(inserts, reverse=True):
        lines.insert(at, barrier)
    return "\n".join(lines) + "\n"


def _behind(lines: list[str], opened: int, number: int) -> int:
    """The line behind the brace that ends the block of a line."""
    depth, at = 0, opened - 1
    while True:
        depth += lines[at].count("{") - lines[at].count("}")
        at += 1
        if depth == 0 and at >= number:
            return at


class Lacking(NamedTuple):
    """A kernel that lacks a barrier, and what its reports say."""

    body: str
    place: str
    errors: int = 1
    message: str = ""
    grid: int = 1
    cluster: int = 1
    rule: str = "shared-race"


TILE = """
KERNEL k(const u32 *in, u32 *out)
{
    __shared__ u32 a[64], b[64];
    u32 sum = 0, t = threadIdx.x;
    for (int i = 0; i < 4; i++) {
        a[t] = in[64 * i + t];
        b[t] = in[64 * i + t] + 1;
        __syncthreads();
        for (int k = 0; k < 4; k++)
            sum += a[(t & ~3) + k] * b[t + 16 * k & 63];
    }
    out[t] = sum;
}
"""
COPIED = """
KERNEL k(const u32 *in, u32 *out)
{
    __shared__ u32 tile[64];
    copy4(&tile[threadIdx.x], in + threadIdx.x);
    commit_copies();
    wait_copies<0>();
    out[threadIdx.x] = tile[63 - threadIdx.x];
}
"""
TREE = """
KERNEL k(const u32 *in, u32 *out)
{
    __shared__ u32 sums[64];
    u32 t = threadIdx.x;
    sums[t] = in[t];
    __syncthreads();
#pragma unroll 1
    for (u32 w = 32; w > 0; w >>= 1) {
        if (t < w) {
            u32 more = get(&sums[t + w]);
            put(&sums[t], get(&sums[t]) + more);
        }
    }
    __syncthreads();
    out[t] = sums[0];
}
"""
LANES = """
KERNEL k(const u32 *in, u32 *out)
{
    __shared__ u32 tile[64];
    put(&tile[threadIdx.x], in[threadIdx.x]);
    u32 other = threadIdx.x ^ 1;
    out[threadIdx.x] = get(&tile[other]);
}
"""
NO_BARRIER = """
KERNEL k(const u32 *in, u32 *out)
{
    __shared__ u32 tile[64];
    u32 sum = 0, t = threadIdx.x;
#pragma unroll 1
    for (int i = 0; i < 4; i++) {
        put(&tile[t], in[64 * i + t]);
        u32 other = 63 - t;
        sum += get(&tile[other]);
    }
    out[t] = sum;
}
"""
UNROLLED = """
KERNEL k(const u32 *in, u32 *out)
{
    __shared__ u32 tile[64];
    u32 sum = 0, t = threadIdx.x;
#pragma unroll
    for (int i = 0; i < 3; i++) {
        put(&tile[t], in[64 * i + t]);
        __syncthreads();
        sum += get(&tile[63 - t]);
    }
    out[t] = sum;
}
"""
ROLES = """
KERNEL k(const u32 *in, u32 *out)
{
    __shared__ u32 tile[64];
    u32 t = threadIdx.x;
    if (t < 64) {
        put(&tile[t], in[t]);
        u32 other = 63 - t;
        out[t] = get(&tile[other]);
    } else
        out[t] = in[t];
}
"""
PEERS = """
KERNEL __cluster_dims__(2, 1, 1) k(const u32 *in, u32 *out)
{
    __shared__ u32 tile[64];
    put(&tile[threadIdx.x], in[threadIdx.x]);
    u32 other = remote(&tile[threadIdx.x], rank() ^ 1);
    out[64 * rank() + threadIdx.x] = load_remote(other);
    asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");
}
"""
STORED = pages.read("overwrite-while-read").kernel.replace(
    pages.read("overwrite-while-read").kernel.split(HEAD)[0] + HEAD, ""
)
LACKING = {
    "tile": Lacking(TILE, "after k.cu:11, at the end of the loop", 2, "round"),
    "copied": Lacking(COPIED, "before k.cu:8", rule="read-before-arrival"),
    "tree": Lacking(TREE, "outside the condition of line 10"),
    "lanes": Lacking(LANES, "before k.cu:7"),
    "no_barrier": Lacking(NO_BARRIER, "before k.cu:10 and after k.cu:10"),
    "unrolled": Lacking(UNROLLED, "after k.cu:10, at the end of the loop", 1, "round"),
    "roles": Lacking(ROLES, "before k.cu:9"),
    "peers": Lacking(PEERS, "before k.cu:7", grid=2, cluster=2),
    "stored": Lacking(
        STORED, "outside the condition of line", rule="overwrite-while-read"
    ),
}


@pytest.mark.parametrize("name", LACKING)
def test_a_barrier_where_the_hint_says_repairs_it(name: str) -> None:
    case = LACKING[name]
    block = 96 if name == "roles" else 64
    shape = {"grid": case.grid, "cluster": case.cluster, "block": block}
    said = found(case.body, **shape)
    assert [each.rule for each in said] == [case.rule] * case.errors
    assert len({each.hint for each in said}) == 1
    hint = said[0].hint
    assert case.place in hint
    assert case.message in said[0].message
    assert ("; that repairs both errors." in hint) == (case.errors == 2)
    repaired = applied([hint], HEAD + case.body.lstrip("\n")).removeprefix(HEAD)
    assert found(repaired, **shape) == []


def test_the_report_names_the_round() -> None:
    said = found(TILE)
    flat = [each.message for each in said]
    assert all("the barrier of k.cu:9 comes before both" in each for each in flat)
    assert any("in the next round" in e or "in the round before" in e for e in flat)


def test_pages_and_pictures_ask_for_the_barrier_of_the_hint() -> None:
    """One of the two races is between lanes of a warp; one barrier repairs both."""
    given = [np.arange(1024, dtype=np.uint32), np.zeros(1024, np.uint32)]
    result = _kernel(TILE).launch(1, 64, given, watch="report", replay=True)
    missing = [each["missing"] for each in result.replay().problems]
    assert missing == ["__syncthreads()"] * 2
    drawn = str(result.timeline())
    assert "missing here: __syncthreads()" in drawn
    assert "__syncwarp" not in drawn


# ── repairs that are not barriers ───────────────────────────────────────────


class Wrong(NamedTuple):
    """A kernel, the words of its hint or message, and the repair with these words."""

    body: str
    rule: str
    words: str
    repair: tuple[tuple[str, str], ...]
    grid: int = 1
    cluster: int = 1
    block: int = 64


COUNTED = """
KERNEL k(const u32 *in, u32 *out)
{
    __shared__ u64 bar;
    if (threadIdx.x == 0)
        init(&bar, COUNT);
    __syncthreads();
    arrive(&bar);
    wait(&bar, 0);
    out[threadIdx.x] = in[threadIdx.x];
}
"""
RELAXED_BARRIER = PEERS.replace(
    "    u32 other", "    cluster_arrive_relaxed();\n    cluster_wait();\n    u32 other"
)
RELAXED_WAIT = """
KERNEL k(const u32 *in, u32 *out)
{
    __shared__ alignas(16) u32 tile[64];
    __shared__ u64 bar;
    if (threadIdx.x == 0) {
        init(&bar, 1);
        fence_init();
        fence_async();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        arrive_expect(&bar, 256);
        load(tile, in, 256, &bar);
    }
    asm volatile("{ .reg .pred p;\\nL: mbarrier.try_wait.parity.relaxed.cta.shared::cta.b64 p, [%0], 0;\\n"
                 "@!p bra L; }" ::"r"(at(&bar)) : "memory");
    out[threadIdx.x] = get(&tile[63 - threadIdx.x]);
}
"""
LOCKED = """
KERNEL k(u32 *lock, u32 *out)
{
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) {}
        *out += 1 + blockIdx.x;
        atomicExch(lock, 0);
    }
}
"""
HISTOGRAM = """
KERNEL k(const u32 *in, u32 *out)
{
    __shared__ u32 bins[8];
    if (threadIdx.x < 8)
        bins[threadIdx.x] = 0;
    __syncthreads();
    bins[in[threadIdx.x]] += 1;
    __syncthreads();
    if (threadIdx.x < 8)
        out[threadIdx.x] = bins[threadIdx.x];
}
"""
SAME_PLACE = """
KERNEL k(const u32 *in, u32 *out)
{
    out[lane()] = in[threadIdx.x];
}
"""
CONDITION = """
KERNEL k(const u32 *in, u32 *out)
{
    if (threadIdx.x < 40)
        asm volatile("bar.sync 0;" ::: "memory");
    out[threadIdx.x] = in[threadIdx.x];
}
"""
PARITY = """
KERNEL k(const u32 *in, u32 *out)
{
    __shared__ u32 tile[32];
    __shared__ u64 full, empty;
    if (threadIdx.x == 0) {
        init(&full, 32);
        init(&empty, 32);
    }
    __syncthreads();
    for (int i = 0; i < 4; i++)
        if (warp() == 0) {
            wait(&empty, i & 1);
            put(&tile[lane()], in[32 * i + lane()]);
            arrive(&full);
        } else {
            wait(&full, i & 1);
            out[32 * i + lane()] = get(&tile[lane()]);
            arrive(&empty);
        }
}
"""
APART = """
KERNEL k(const u32 *in, u32 *out)
{
    if (warp() == 0)
        bar_sync(1, 64);
    else
        bar_sync(2, 64);
    out[threadIdx.x] = in[threadIdx.x];
}
"""
WRONG = {
    "too many": Wrong(
        COUNTED.replace("COUNT", "63"),
        "mbarrier",
        "its mbarrier.init is at k.cu:6 (hopper.cuh:34)|count of 64, or let 1 fewer",
        (("init(&bar, 63)", "init(&bar, 64)"),),
    ),
    "too few": Wrong(
        COUNTED.replace("COUNT", "65"),
        "deadlock",
        "still expects 1 arrival (64 came): its mbarrier.init at k.cu:6",
        (("init(&bar, 65)", "init(&bar, 64)"),),
    ),
    "relaxed barrier": Wrong(
        RELAXED_BARRIER,
        "shared-race",
        "barrier.cluster.arrive.relaxed at k.cu:6|Leave out .relaxed there.",
        (("cluster_arrive_relaxed()", "cluster_arrive()"),),
        grid=2,
        cluster=2,
    ),
    "relaxed wait": Wrong(
        RELAXED_WAIT,
        "read-before-arrival",
        "for which it waited with .relaxed|Write .acquire there instead of .relaxed.",
        ((".relaxed.cta", ".acquire.cta"),),
    ),
    "lock": Wrong(
        LOCKED,
        "global-race",
        "The lock that is taken at k.cu:5|__threadfence()|given back at k.cu:7",
        (
            ("        *out", "        __threadfence();\n        *out"),
            ("        atomicExch", "        __threadfence();\n        atomicExch"),
        ),
        grid=4,
    ),
    "histogram": Wrong(
        HISTOGRAM,
        "shared-race",
        "If both add to it, use atomicAdd.",
        (("bins[in[threadIdx.x]] += 1", "atomicAdd(&bins[in[threadIdx.x]], 1)"),),
    ),
    "same place": Wrong(
        SAME_PLACE,
        "global-race",
        "Let one thread store it, or let all of them store the same value.",
        (("    out", "    if (warp() == 0)\n        out"),),
    ),
    "condition": Wrong(
        CONDITION,
        "divergent-aligned",
        "Let bar.sync stand outside the condition of k.cu:4,",
        (("    if (threadIdx.x < 40)\n        ", "    "),),
    ),
    "parity": Wrong(
        PARITY,
        "deadlock",
        "nobody has arrived, and a new mbarrier passes a wait for parity 1",
        (("wait(&empty, i & 1)", "wait(&empty, i & 1 ^ 1)"),),
    ),
    "apart": Wrong(
        APART,
        "deadlock",
        "warp 1 does not come to the barrier of k.cu:5|warp 0 does not come to the",
        (("bar_sync(2, 64)", "bar_sync(1, 64)"),),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_repair_of_a_hint_ends_the_report(name: str) -> None:
    case = WRONG[name]
    shape = {"grid": case.grid, "cluster": case.cluster, "block": case.block}
    said = next(e for e in found(case.body, **shape) if e.rule == case.rule)
    told = " ".join(f"{said.message} {said.hint}".split())
    for words in case.words.split("|"):
        assert words in told
    body = case.body
    for old, new in case.repair:
        assert body.count(old) == 1
        body = body.replace(old, new)
    assert found(body, **shape) == []


CASES = {case.name: case for case in cases()}
TOLD = {
    "tensor-sums_in_turns-1": "Execute tcgen05.wait::ld before that arrival",
    "tensor-freed-1": "Let __syncthreads()",
    "lifetimes-stored_map-2": "Wait for the mbarrier of that copy before the write.",
    "maps-made_map-2": "Wait for that copy before the change",
    "pairs-early_flag-1": "cp.async.bulk.wait_group before it tells the other block",
    "barriers-init_again-1": "Initialise it once, or execute mbarrier.inval",
    "barriers-invalidated-1": "Let __syncthreads() come before it",
    "barriers-no_complete-1": "Leave out .noComplete",
    "barriers-unordered_init-1": "Let __syncthreads() come between the two",
    "known-half_written-1": "Let the writers execute fence.proxy.async",
    "again-rounds-1": "Execute mbarrier.inval before it, with a barrier between",
    "cached-read_back-1": "Load it without .nc",
    "clusters-early_exit-1": "a barrier of the cluster before the end",
    "known-refilled-1": "Let the readers arrive at a barrier or an mbarrier",
    "layouts-k_steps-1": "Advance the descriptors of A and B by the same number",
    "layouts-mn_major-2": "In the descriptor of B, set its stride offset to",
    "maps-made_map-1": "Execute fence.proxy.tensormap::generic.acquire",
    "masks-half_sum-1": "Let all lanes that are read execute it, and name them",
    "pairs-copied-2": "come after cp.async.wait_group and a barrier",
    "pairs-early_release-1": "execute wgmma.wait_group for it and then arrive",
    "pairs-exited_block-1": "Let a barrier of the cluster come before the end",
    "pairs-store_depth-1": "execute cp.async.bulk.wait_group.read before the write",
    "plain-some_lanes-1": "Let bar.sync stand outside the condition of plain.cu",
    "plain-some_warps-1": "Let every thread that is expected come to the barrier",
    "registers-pool-1": "Let other warps release more by setmaxnreg.dec",
    "scopes-counted-2": "Write .cluster as the scope of both",
    "scopes-handed_over-1": "Write .release.cluster here",
    "scopes-handed_over-2": "Write .acquire.cluster here",
    "scopes-turns-2": "Write .gpu as the scope of both",
    "tensor-freed-2": "Wait for phase 0 of the mbarrier s",
    "tensor-product-1": "wait for the mbarrier of its tcgen05.commit before the",
    "tensor-refilled_operand-1": "Let a tcgen05.commit follow it, and wait for the",
    "tensor-stored-1": "Execute tcgen05.wait::st there first",
    "values-counted-2": "Let __syncthreads() or an mbarrier come between the two",
    "values-one_word-1": "Let one lane store it, or let all of them store the same",
}
"""Mistakes of the corpus, whose right kernels have the repair, and words of the hint."""


@pytest.mark.parametrize("name", some(TOLD, 3))
def test_the_hint_is_what_the_right_kernel_does(name: str) -> None:
    case = CASES[name]
    said, _ = running.launch(case, "eager")
    told = [" ".join(each.words.split()) for each in said if each.severity != "info"]
    assert any(TOLD[name] in each for each in told), told
    assert case.row.cluster > 1 or not any("blocks of the cluster" in e for e in told)
    right, _ = running.launch(case._replace(bug=0), "eager")
    assert [each for each in right if each.severity != "info"] == []


PLACED = (
    "pairs-lonely_wait-1",
    "pairs-copied-1",
    "plain-exchange-1",
    "plain-sliding-1",
    "plain-handed_over-1",
    "plain-lanes-1",
    "plain-warp_sum-1",
    "plain-double_buffer-2",
    "clusters-remote_write-1",
    "clusters-remote_arrive-1",
    "slices-way_out-1",
    "slices-last_prefetch-2",
    "values-replicated-1",
    "values-first_of_all-1",
)
"""Mistakes of the corpus whose hints ask for barriers at lines."""


def errors_of(case: Case, module: Any) -> list[Problem]:
    """What is worse than a note about a case of the corpus."""
    row = case.row
    options = {"cluster": row.cluster} if row.cluster > 1 else {}
    given = running.for_launch(row, running.made(row))
    run = module.kernels[row.entry].launch
    result = run(row.grid, row.block, given, watch="report", **options)
    return [each for each in result.hazards if each.severity != "info"]


@pytest.mark.parametrize("name", some(PLACED, 3))
def test_barriers_at_the_lines_of_hints_repair_the_corpus(name: str) -> None:
    case = CASES[name]
    source = case.row.source
    said = errors_of(case, running.loaded(source, case.bug))
    code = (SOURCES / f"{source}.cu").read_text("utf-8")
    code = running.with_headers(applied({e.hint for e in said}, code), f"{source}.cu")
    target, flags = running.target(source), (f"-DBUG={case.bug}", "-lineinfo")
    text = running.without_folders(compiler.to_ptx(code, target, *flags))
    assert said
    assert errors_of(case, ptx.parse(text, source)) == []


# ── every rule ──────────────────────────────────────────────────────────────

ASKED = {
    "barrier-collision": ("a barrier of its own", "bar_sync(2, 64)"),
    "deadlock": ("bytes that are expected", "arrive_expect(&full, 128)"),
    "divergent-aligned": (
        "stand outside the condition of divergent-aligned.cu:6",
        '    asm volatile("bar.sync 0;" ::: "memory");',
    ),
    "global-race": ("__threadfence() and an atomic flag", "__threadfence();"),
    "layout-mismatch": (
        "descriptor of A, set its swizzle to 128 bytes",
        "tile_of(A + k, 16, 1024) | of_128",
    ),
    "leak": ("Wait for it before the kernel ends", "wait_copies<0>();"),
    "mbarrier": ("Keep away from it", "put(&s.tile[threadIdx.x], 0);"),
    "membermask": ("Name every lane that executes it", "__ballot_sync(~0u,"),
    "missing-proxy-fence": (
        "Execute fence.proxy.async in the threads that write, after they have written",
        "tile[threadIdx.x] = threadIdx.x;\n    fence_async();",
    ),
    "missing-tensor-fence": (
        "tcgen05.fence::after_thread_sync after it",
        "wait(&s.done, 0);\n    after_sync();",
    ),
    "missing-wgmma-fence": (
        "Execute wgmma.fence before the wgmma",
        "wgmma_fence();\n    wgmma(",
    ),
    "overwrite-while-read": (
        "Let __syncthreads() come between that and the write: after "
        "overwrite-while-read.cu:14, outside the condition of line 11",
        "        }\n        __syncthreads();",
    ),
    "read-before-arrival": (
        "Wait for phase 0 (parity 0) of the mbarrier full before the read",
        "wait(&full[0], 0);",
    ),
    "shared-race": ("Let __syncthreads() come between the two", "__syncthreads();"),
    "tensor-memory-race": (
        "Let a tcgen05.commit follow it, and wait for the mbarrier of that",
        "operand(s.B)), commit(&s.done);\n    wait(&s.done, 0);",
    ),
    "tensor-registers-in-flight": (
        "Execute tcgen05.wait::ld before the instruction",
        "wait_ld();\n    put(out, r);",
    ),
    "uninitialised": ("Write it first", "in[threadIdx.x] : 0;"),
    "wgmma-registers-in-flight": (
        "Execute wgmma.wait_group for that wgmma before the instruction",
        "wgmma_wait<0>();\n    put(out, d);",
    ),
}
"""Words of the hint of each rule, and what they ask for in the repair of its page.

That the repair ends the report is tested beside the pages.
"""


@cache
def _hint(rule: str) -> str:
    """The hint of the first report of a page that has its rule; none is empty."""
    try:
        result = pages.launched(rule, pages.read(rule).kernel)
    except ptx.KernelFault as fault:
        return fault.hint or ""
    return next(each.hint for each in result.problems if each.rule == rule)


@pytest.mark.long
@pytest.mark.parametrize("rule", ASKED)
def test_the_repair_of_a_page_is_what_its_hint_asks_for(rule: str) -> None:
    words, code = ASKED[rule]
    repair = pages.read(rule).repair
    added = "\n".join(re.findall(r"(?m)^\+(.*)$", repair))
    assert words in " ".join(_hint(rule).split())
    assert code in added


@pytest.mark.parametrize("rule", pages.PAGES)
def test_no_hint_of_a_page_was_not_tried(rule: str) -> None:
    assert bool(_hint(rule)) == (rule in ASKED)


# ── kernels that cannot go on ───────────────────────────────────────────────

PARITY = """
KERNEL k(const u32 *in, u32 *out)
{
    __shared__ u64 full;
    if (threadIdx.x == 0)
        init(&full, 1);
    __syncthreads();
    for (int n = 0; n < 4; n++) {
        if (threadIdx.x == 0)
            arrive(&full);
        wait(&full, 0);
        __syncthreads();
    }
}
"""


def test_a_deadlock_has_its_hint_in_json() -> None:
    """Every round waits for parity 0: the hint asks about the other one."""
    given = [np.zeros(8, np.uint32), np.zeros(8, np.uint32)]
    with pytest.raises(ptx.KernelFault, match="did you mean parity 1") as caught:
        _kernel(PARITY).launch(1, 64, given)
    [problem] = of_fault(caught.value)
    assert problem.hint.startswith("Did you mean parity 1?")
    meant = _kernel(PARITY.replace("wait(&full, 0)", "wait(&full, n & 1)"))
    assert meant.launch(1, 64, given, watch="report").problems == []


# ── what is missing is not a wait, nor a barrier ────────────────────────────

TREE = """
KERNEL k(const u32 *in, u32 *out)
{
    __shared__ u32 s[128];
    u32 i = threadIdx.x;
    s[i] = in[i];
    __syncthreads();
    for (u32 step = 64; step > 0; step /= 2) {
        if (i < step)
            s[i] += s[i + step];
        __syncwarp();
    }
    if (i == 0)
        *out = s[0];
}
"""


def test_no_barrier_is_asked_for_under_a_condition() -> None:
    """The loop is unrolled: the text has one line several times."""
    [problem] = found(TREE, 128)
    assert problem.hint.endswith(
        "after k.cu:10, outside the condition of line 9, at the end of the loop."
    )
    assert not found(TREE.replace("__syncwarp", "__syncthreads"), 128)


COMMIT = """
KERNEL k(const u32 *in, u32 *out)
{
    __shared__ u32 s[2][64];
    copy4(&s[0][threadIdx.x], in + threadIdx.x);
    commit_copies();
    copy4(&s[1][threadIdx.x], in + 64 + threadIdx.x);
    wait_copies<0>();
    __syncthreads();
    out[threadIdx.x] = s[0][63 - threadIdx.x] + s[1][63 - threadIdx.x];
}
"""


def test_a_commit_that_is_missing_is_named() -> None:
    problem = found(COMMIT)[0]
    assert problem.rule == "read-before-arrival"
    assert problem.hint.startswith("Execute cp.async.commit_group after the work of k")
    assert not found(COMMIT.replace("wait_c", "commit_copies();\n    wait_c"))
    late = COMMIT.replace("wait_copies<0>();", "wait_copies<0>();\n commit_copies();")
    assert "commit" not in found(late)[0].hint


BYTES = """
KERNEL k(const u32 *in, u32 *out)
{
    __shared__ alignas(128) u32 s[2][64];
    __shared__ u64 full;
    if (threadIdx.x == 0) {
        init(&full, 1);
        arrive_expect(&full, 256);
        load(s[0], in, 256, &full);
        load(s[1], in + 64, 256, &full);
    }
    __syncthreads();
    wait(&full, 0);
    out[threadIdx.x] = s[0][63 - threadIdx.x] ^ s[1][threadIdx.x];
}
"""


def test_bytes_that_nobody_expected_are_counted() -> None:
    problem = found(BYTES)[0]
    assert problem.rule == "read-before-arrival"
    assert "got 256 bytes more than were expected" in problem.message
    assert problem.hint.startswith("Expect 256 bytes more")
    assert not found(BYTES.replace("expect(&full, 256", "expect(&full, 512"))


COUNTS = """
KERNEL k(const u32 *in, u32 *out)
{
    __shared__ u32 s[32];
    u32 i = threadIdx.x;
    if (i < 32) {
        s[i] = in[i];
        asm volatile("bar.arrive 2, 64;" ::: "memory");
    } else {
        asm volatile("bar.sync 2, 96;" ::: "memory");
        out[i - 32] = s[i % 32];
    }
}
"""


def test_counts_that_differ_are_to_be_made_equal() -> None:
    [problem] = (e for e in found(COUNTS, 96) if e.rule == "barrier-collision")
    assert problem.hint == "Give barrier 2 the same count at k.cu:10 and at k.cu:8."
    assert not found(COUNTS.replace("2, 64", "2, 96"), 96)
