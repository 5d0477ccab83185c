"""A launch on a Dask cluster gives the bits and the reports of one machine.

What is sent to workers and back is pickled here; ``test_dask.py`` has real workers.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.errors import BadCall, Error, KernelError, KernelFault, KernelHazard
from fragmenta.launch import grid
from tests.launch.loopback import Loopback
from tests.ptx.hazards import running
from tests.ptx.hazards.cases import Case, cases
from tests.ptx.hopper import launching
from tests.ptx.hopper.gemms import FEW
from tests.ptx.test_triton_blackwell import kept
from tests.ptx.test_triton_hopper import arrays_of, parameters, recorded
from tests.thinning import some


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks run in their order, so that the first of two that race is known."""
    monkeypatch.setattr(grid, "cores", lambda: 1)


def same(kernel: Any, shape: Any, given: Any, **options: Any) -> Loopback:
    """Launch here and there, and compare all that can be seen; the client."""
    client, seen = Loopback(options.pop("threads", 2)), []
    for where in (None, client):
        arguments = given()
        try:
            result = kernel.launch(*shape, arguments, client=where, **options)
        except KernelError as fault:
            result, said = None, [type(fault).__name__, fault.kind, str(fault)]
        else:
            said = [str(each) for each in result.problems]
        arrays = [each for each in arguments if isinstance(each, np.ndarray)]
        seen.append(
            (
                said,
                result and (result.counts, result.output),
                [each.tobytes() for each in arrays],
            )
        )
    assert seen[0] == seen[1]
    return client


# ── small kernels, right and wrong ──────────────────────────────────────────

SEVERAL = [case for case in cases() if case.row.grid > case.row.cluster]
OTHERS = [case for case in cases() if case.row.grid == case.row.cluster]
CHOSEN = [*some(SEVERAL, 2), *some(OTHERS, 40)]


def refused(kernel: Any, client: Any) -> AbstractContextManager[Any]:
    """Whether a launch on a cluster must be refused: the order of blocks matters."""
    ready = kernel.loaded.compiled(kernel.name, kernel.loaded.module.target, True)
    if client is not None and ready.ordered:
        return pytest.raises(BadCall, match="their order matters")
    return nullcontext()


@pytest.mark.long
@pytest.mark.parametrize("case", some(CHOSEN, 2), ids=lambda case: case.name)
def test_reports_are_the_same(case: Case) -> None:
    row = case.row
    kernel = running.loaded(row.source, case.bug).kernels[row.entry]
    watch = ptx.Watch("report", strict=row.source in running.STRICT)
    found = []
    for client in (None, Loopback()):
        given = running.made(row)
        options = {"cluster": row.cluster if row.cluster > 1 else None, "watch": watch}
        arguments = running.for_launch(row, given)
        with refused(kernel, client):
            said = running.reported(
                kernel, row.grid, row.block, arguments, client=client, **options
            )
            left = [each.tobytes() for each in given if isinstance(each, np.ndarray)]
            found.append((said, left))
    if len(found) == 1:  # it was refused in the right words
        return
    assert found[0] == found[1]


# ── whole GEMMs: bulk copies, mbarriers, wgmma, clusters with multicast ─────

MULTICAST = next(each for each in FEW if each.kernel.tile.cluster == 2)
SPLIT = next(each for each in FEW if each.kernel.tile.split == 2)
ALONE = next(
    each
    for each in FEW
    if each.geometry.grid == 2 and each.blocks == 2 and each.geometry.cluster[0] == 1
)
GEMMS = {
    "multicast": replace(MULTICAST, m=700, n=129, k=136, blocks=6),
    "split": replace(SPLIT, k=600),
    "alone": ALONE,
}


@cache
def compiled(name: str) -> Any:
    return ptx.parse(GEMMS[name].text).kernels[launching.ENTRY]


SPREAD = [("multicast", "eager"), ("split", "lazy"), ("alone", 1)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "schedule", "watch"),
    some([(*each, watch) for each in SPREAD for watch in (False, True)], 2, 1),
)
def test_a_gemm_is_spread(name: str, schedule: str | int, watch: bool) -> None:
    gemm, client = GEMMS[name], Loopback()
    options: dict[str, Any] = {"watch": watch, "schedule": schedule}
    here = launching.launch(gemm, compiled(name), **options)
    there = launching.launch(gemm, compiled(name), **options, client=client)
    assert len(client.submitted) > 1
    assert there.right(gemm)
    assert here.d.buffer.tobytes() == there.d.buffer.tobytes()
    assert here.result.counts == there.result.counts
    assert [*map(str, here.result.problems)] == [*map(str, there.result.problems)]


TRITON = {
    "matmul_specialised": kept,  # tcgen05
    "matmul_made_here-f16": partial(recorded, "3.9.0"),  # maps that the kernel makes
    "matmul-f16-cluster": partial(recorded, "3.9.0"),
}


def triton(name: str, rows: Any, **options: Any) -> tuple[Any, list[bytes]]:
    """Launch a kernel of Triton; the result, and what it leaves."""
    row = rows[name]
    arrays = arrays_of(row)
    kernel = ptx.parse(row["text"], row["name"]).kernels[row["entry"]]
    result = kernel.launch(
        row["grid"],
        row["block"],
        parameters(row, arrays),
        cluster=row["cluster"],
        shared=row["shared"],
        watch="report",
        **options,
    )
    return result, [each.tobytes() for each in arrays]


@pytest.mark.long
@pytest.mark.parametrize("name", TRITON)
def test_a_kernel_of_triton_is_spread(name: str) -> None:
    client, rows = Loopback(), TRITON[name]()
    here, left = triton(name, rows)
    there, found = triton(name, rows, client=client)
    assert len(client.submitted) > 1
    assert left == found
    assert here.counts == there.counts
    assert [*map(str, here.hazards)] == [*map(str, there.hazards)]


@pytest.mark.long
def test_several_schedules_are_compared() -> None:
    gemm = GEMMS["alone"]
    kernel, client = compiled("alone"), Loopback()
    there = launching.launch(gemm, kernel, client=client, schedule=["eager", "lazy"])
    assert there.right(gemm)
    assert len(client.submitted) == 2 * gemm.geometry.grid


# ── memory that several blocks touch ────────────────────────────────────────

HEAD = """
.version 8.6
.target sm_90a
.address_size 64
"""
COMMON = """
    .reg .b32 %r<12>;
    .reg .b64 %rd<12>;
    .reg .pred %p<4>;
    ld.param.u64 %rd1, [data];
    cvta.to.global.u64 %rd1, %rd1;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd3, %rd1, %rd2;
"""


def written(body: str, *more: str) -> Any:
    """A kernel of one parameter; ``%rd3`` is the address of the block's own word."""
    text = f"{HEAD}{''.join(more)}.visible .entry work(.param .u64 data)\n{{{COMMON}"
    return ptx.parse(f"{text}{body}\n    ret;\n}}").kernels["work"]


READS_NEXT = "ld.global.u32 %r3, [%rd3+4];\n add.u32 %r3, %r3, 1;\n"
UPDATED = "ld.global.u32 %r3, [%rd1];\n setp.lt.u32 %p1, %r3, 99;\n"
BODIES = {
    "each its own word": "st.global.u32 [%rd3], %r1;",
    "all one word": "st.global.u32 [%rd1], %r1;",
    "all one word, the same value": "st.global.u32 [%rd1], 7;",
    "a word that the next block writes": f"{READS_NEXT}st.global.u32 [%rd3], %r3;",
    "a sum": "red.global.add.u32 [%rd1], %r1;",
    "a sum that is read before": f"{UPDATED}@%p1 red.global.add.u32 [%rd1], 1;",
    "a sum that one block reads": (
        "red.global.add.u32 [%rd1], 1;\n setp.eq.u32 %p1, %r1, 5;\n"
        "@%p1 ld.global.u32 %r3, [%rd1];\n @%p1 st.global.u32 [%rd1+40], %r3;"
    ),
    "a sum of each block": "red.relaxed.cta.global.add.u32 [%rd3], 1;",
    "a sum whose scope is the block": "red.relaxed.cta.global.add.u32 [%rd1], 1;",
    "a maximum whose scope is the cluster": (
        "red.relaxed.cluster.global.max.u32 [%rd1], %r1;"
    ),
    "a sum with two scopes": (
        "red.relaxed.cta.global.add.u32 [%rd1], 1;\n red.global.add.u32 [%rd1], 1;"
    ),
    "a sum to which one block adds with a narrow scope": (
        "setp.eq.u32 %p1, %r1, 5;\n @!%p1 red.global.add.u32 [%rd1], 1;\n"
        "@%p1 red.relaxed.cta.global.add.u32 [%rd1], 1;"
    ),
}
SPREADS = {"each its own word", "a sum", "a sum of each block"}
"""Those whose blocks do not depend on one another."""


@pytest.mark.parametrize("body", some(BODIES, 2))
def test_watched_blocks_that_depend_on_others_run_in_order(body: str) -> None:
    kernel = written(BODIES[body])

    def given() -> list[Any]:
        return [np.arange(20, dtype=np.uint32)]

    for watch in (True, "report"):
        same(kernel, (9, 1), given, watch=watch)


@pytest.mark.parametrize("body", BODIES)
def test_unwatched_blocks_must_not_write_one_byte(body: str) -> None:
    kernel, data = written(BODIES[body]), np.zeros(20, np.uint32)
    if body.startswith("all one word"):
        with pytest.raises(KernelFault, match=r"byte 0 of argument 0 .* was writ"):
            kernel.launch(9, 1, [data], watch=False, client=Loopback())
        assert not data.any()
    elif body in SPREADS:
        same(kernel, (9, 1), lambda: [np.arange(20, dtype=np.uint32)], watch=False)


def test_only_portions_that_depend_on_others_run_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from fragmenta.launch import dask

    here: list[tuple[int, int]] = []

    def run_blocks(launch: Any, limit: Any, first: int, last: int) -> None:
        here.append((first, last))
        grid.run_blocks(launch, limit, first, last)

    kernel = written(
        "setp.lt.u32 %p1, %r1, 3;\n @%p1 mov.u64 %rd3, %rd1;\n"
        "st.global.u32 [%rd3], %r1;"
    )
    monkeypatch.setattr(dask, "run_blocks", run_blocks)
    data, client = np.zeros(8, np.uint32), Loopback(2)
    with pytest.raises(KernelHazard, match="global-race"):
        kernel.launch(8, 1, [data], client=client)
    assert data.tolist() == [2, 0, 0, 3, 4, 5, 6, 7]
    assert here == [*client.submitted, (0, 1), (1, 2), (2, 3)]


BULK = """
    .shared .align 16 .b8 tile[16];
    mov.u32 %r5, tile;
    cvt.u64.u32 %rd5, %r5;
    st.shared.v4.b32 [%r5], {{%r1, %r1, %r1, %r1}};
    fence.proxy.async.shared::cta;
    {copy} [%rd{goal}], [%r5], 16;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
"""
STORE = "cp.async.bulk.global.shared::cta.bulk_group"
REDUCE = "cp.reduce.async.bulk.global.shared::cta.bulk_group.add"
COPIES = {
    "stores": (STORE, 6, True),
    "stores to one place": (STORE, 1, False),
    "sums of u32": (f"{REDUCE}.u32", 1, True),
    "sums of f32": (f"{REDUCE}.f32", 1, False),
}


@pytest.mark.parametrize("name", COPIES)
def test_what_bulk_copies_write_is_noted(name: str) -> None:
    copy, goal, spreads = COPIES[name]
    own = "mul.wide.u32 %rd6, %r1, 16;\n add.u64 %rd6, %rd1, %rd6;\n"
    kernel = written(own + BULK.format(copy=copy, goal=goal))

    def given() -> list[Any]:
        return [np.zeros(64, np.uint32)]

    same(kernel, (6, 1), given, watch="report")
    if spreads:
        same(kernel, (6, 1), given, watch=False)
    else:
        with pytest.raises(KernelFault, match="the result would depend"):
            kernel.launch(6, 1, given(), watch=False, client=Loopback())


# ── arguments ───────────────────────────────────────────────────────────────

TWO = """
.visible .entry copy(.param .u64 a, .param .u64 b)
{
    .reg .b32 %r<4>; .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b];
    mov.u32 %r1, %ctaid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.u64 %rd4, %rd1, %rd3; add.u64 %rd5, %rd2, %rd3;
    ld.global.u32 %r2, [%rd4];
    st.global.u32 [%rd5], %r2;
    ret;
}"""


def locked() -> list[Any]:
    x, y = np.arange(12, dtype=np.uint32), np.zeros(12, np.uint32)
    x.flags.writeable = False
    return [x, y]


def fortran() -> list[Any]:
    x = np.asfortranarray(np.arange(12, dtype=np.uint32).reshape(3, 4))
    return [x, np.zeros((3, 4), np.uint32, order="F")]


def shared() -> list[Any]:
    x = np.arange(24, dtype=np.uint32)
    return [x[:12], x[12:]]


def inside() -> list[Any]:
    x = np.arange(24, dtype=np.uint32)
    return [x, ptx.pointer(x, 48)]


def unwritten() -> list[Any]:
    return [ptx.empty(12, np.uint32), np.zeros(12, np.uint32)]


def test_undefined_bits_without_effect_are_not_reported() -> None:
    """Whether ``(a + x) - x`` depends on x, only runs with other bits of x show."""
    more = "add.u32 %r3, %r1, %r2;\n sub.u32 %r2, %r3, %r2;\n st.global.u32 [%rd5]"
    text = TWO.replace("st.global.u32 [%rd5]", more)
    kernel = ptx.parse(HEAD + text).kernels["copy"]
    same(kernel, (12, 1), unwritten, watch="report")


@pytest.mark.parametrize("make", [locked, fortran, shared, inside, unwritten])
@pytest.mark.parametrize("watch", [False, "report"])
def test_every_kind_of_array_is_sent(make: Any, watch: bool | str) -> None:
    kernel = ptx.parse(HEAD + TWO).kernels["copy"]
    same(kernel, (12, 1), make, watch=watch)


# ── what a launch says besides ──────────────────────────────────────────────


def test_the_first_block_that_fails_is_reported() -> None:
    """Words of the portions before it are there, those after it are not."""
    kernel = written(
        "setp.gt.u32 %p1, %r1, 3;\n @%p1 add.u64 %rd3, %rd3, 4096;\n"
        "st.global.u32 [%rd3], 1;"
    )
    for watch in (False, True, "report"):
        same(kernel, (9, 1), lambda: [np.zeros(20, np.uint32)], watch=watch)


def test_a_limit_holds_for_the_whole_launch() -> None:
    kernel, limits = written(""), ptx.Limits(instructions=50)
    assert kernel.launch(8, 32, [np.zeros(8, np.uint32)]).instructions > 50
    with pytest.raises(KernelFault, match="more than 50 warp instructions"):
        kernel.launch(
            8, 32, [np.zeros(8, np.uint32)], limits=limits, client=Loopback(2)
        )


def test_a_cooperative_launch_is_refused() -> None:
    with pytest.raises(Error, match="cooperative grid run together"):
        written("").launch(
            2, 32, [np.zeros(8, np.uint32)], cooperative=True, client=Loopback()
        )


def test_a_client_is_one_of_dask() -> None:
    with pytest.raises(BadCall, match=r"dask.distributed.Client; given str"):
        written("").launch(2, 32, [np.zeros(8, np.uint32)], client="here")
