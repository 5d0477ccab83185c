"""Clusters follow one another in machine code, and nothing differs from Python's way."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.base.arrays import threads
from fragmenta.errors import Error
from fragmenta.launch.runners import ClusterRunner
from fragmenta.launch.stepping import StepRunner
from tests.simt.kernels import kernel

BLOCKS = 10
THREADS = 64

#: Every block copies 256 bytes and waits for them.  Block ``odd`` does what is wrong.
BODY = """
    .shared .align 128 .b8 tile[512];
    .shared .align 8 .b64 bar;
    ld.param.u64 %rd1, [memory]; ld.param.u32 %r1, [odd]; ld.param.u32 %r2, [what];
    mov.u32 %r20, %cluster_ctarank; mov.u32 %r21, %clusterid.x;
    mov.u32 %r22, %nclusterid.x; mov.u32 %r23, %cluster_nctarank;
    mad.lo.u32 %r24, %r21, 16, %r20; mad.lo.u32 %r24, %r22, 4096, %r24;
    mad.lo.u32 %r24, %r23, 65536, %r24;
    setp.ne.u32 %p1, %cta, %r1;
    selp.u32 %r2, 0, %r2, %p1;
    mul.wide.u32 %rd2, %cta, 256; add.u64 %rd2, %rd1, %rd2;
    mov.u32 %r3, tile; mov.u32 %r4, bar;
    setp.eq.u32 %p2, %t, 0;
    @%p2 mbarrier.init.shared.b64 [bar], 1;
    bar.sync 0;
    @!%p2 bra GO;
    mbarrier.arrive.expect_tx.shared.b64 _, [bar], 256;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
        [%r3], [%rd2], 256, [%r4];
GO:
    setp.eq.u32 %p3, %r2, 1; @%p3 bra OVER;
    setp.eq.u32 %p3, %r2, 2; selp.u32 %r5, 1, 0, %p3;
WAIT:
    mbarrier.try_wait.parity.shared.b64 %p4, [bar], 0;
    @!%p4 bra WAIT;
    setp.eq.u32 %p3, %r5, 0; @%p3 bra ON;
AGAIN:
    mbarrier.try_wait.parity.shared.b64 %p4, [bar], 1;
    @!%p4 bra AGAIN;
ON:
    mad.lo.u32 %r6, %t, 4, %r3;
    ld.shared.u32 %r7, [%r6]; add.u32 %r7, %r7, %r24;
    setp.ne.u32 %p3, %r2, 3; @%p3 bra RIGHT;
    st.shared.u32 [tile+256], %t;
RIGHT:
    setp.ne.u32 %p3, %r2, 4; @%p3 bra STORE;
    add.u64 %mine, %mine, 1048576;
STORE:
    st.global.u32 [%mine], %r7;
OVER:
    bar.sync 0;
    ret;
"""
WHATS = {
    "nothing": 0,
    "a copy that nobody waits for": 1,
    "a phase that never ends": 2,
    "a race": 3,
    "a store outside": 4,
}
FATAL = "a phase that never ends", "a store outside"


@cache
def made() -> ptx.Kernel:
    return kernel(BODY, ".param .u64 memory, .param .u32 odd, .param .u32 what")


def outcome(what: str, **options: Any) -> dict[str, Any]:
    """All that a launch says and leaves, as plain values."""
    given = np.arange(BLOCKS * 64, dtype=np.uint32)
    out = np.zeros(BLOCKS * THREADS, np.uint32)
    arguments = [out, given, np.uint32(6), np.uint32(WHATS[what])]
    found: dict[str, Any] = {}
    try:
        result = made().launch(BLOCKS, THREADS, arguments, **options)
    except Error as error:
        found["error"] = type(error).__name__, str(error)
    else:
        found["counts"] = result.counts
        found["schedule"] = result.schedule
        found["problems"] = [str(each) for each in result.problems]
    return {**found, "out": out.tobytes()}


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The clusters that Python began."""
    found: list[int] = []
    begin = ClusterRunner._begin

    def count(self: ClusterRunner) -> None:
        found.append(self.index)
        begin(self)

    monkeypatch.setattr(ClusterRunner, "_begin", count)
    return found


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    """One thread takes all clusters: where Python begins some is always the same."""
    before = threads.cores()
    threads.use_cores(1)
    yield
    threads.use_cores(before)


def compare(what: str, begun: list[int], **options: Any) -> tuple[int, int]:
    """Launch both ways; how many clusters Python began, with and without."""
    fast = outcome(what, **options)
    counted = len(begun)
    begun.clear()
    with pytest.MonkeyPatch.context() as patch:
        for each in (ClusterRunner, StepRunner):
            patch.setattr(each, "_renewed", lambda self: None)
        assert outcome(what, **options) == fast
    slow = len(begun)
    begun.clear()
    return counted, slow


SCHEDULES = (
    "eager",
    "lazy",
    "lazy+oldest-waits",
    "eager+in-steps",
    "lazy+random-7",
    "lazy+producer-waits",
)


@pytest.mark.parametrize("watch", [False, "report"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_clusters_begin_and_end_in_machine_code(
    schedule: str, watch: Any, begun: list[int]
) -> None:
    found = compare("nothing", begun, schedule=schedule, watch=watch)
    assert found == (2, BLOCKS)


@pytest.mark.parametrize("watch", [False, "report"])
@pytest.mark.parametrize("schedule", ["eager", "lazy", "lazy+in-steps"])
@pytest.mark.parametrize("what", list(WHATS)[1:])
def test_what_is_wrong_in_one_cluster_is_said_in_the_same_words(
    what: str, schedule: str, watch: Any, begun: list[int]
) -> None:
    fast, slow = compare(what, begun, schedule=schedule, watch=watch)
    assert fast < slow


@pytest.mark.parametrize("watch", [False, "report"])
@pytest.mark.parametrize("schedule", ["eager", "lazy", "lazy+oldest-waits"])
def test_clusters_of_two(schedule: str, watch: Any, begun: list[int]) -> None:
    found = compare("nothing", begun, schedule=schedule, watch=watch, cluster=2)
    blocks = BLOCKS // 2
    # The end of one block of several is observed by Python.
    assert found == (blocks if watch else 2, blocks)


def test_the_special_registers_of_clusters() -> None:
    for cluster in (1, 2, 5):
        found = np.frombuffer(outcome("nothing", cluster=cluster)["out"], np.uint32)
        here = found.reshape(BLOCKS, THREADS)
        block = np.arange(BLOCKS)
        count = (65536 * cluster + 4096 * (BLOCKS // cluster)).__int__()
        number = block // cluster * 16 + block % cluster + count
        expected = np.arange(BLOCKS * 64).reshape(BLOCKS, 64) + number[:, None]
        assert (here == expected).all()


@pytest.mark.parametrize("what", WHATS)
def test_threads_say_the_same(what: str, begun: list[int]) -> None:
    alone = outcome(what, watch="report")
    threads.use_cores(3)
    several = outcome(what, watch="report")
    if what in FATAL:  # other blocks may have run before
        assert several["problems"] == alone["problems"]
    else:
        assert several == alone
