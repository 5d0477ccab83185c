"""A relaxed barrier of the cluster is enough before tensor memory is freed."""

from __future__ import annotations

import numpy as np
import pytest

from fragmenta import ptx

KERNEL = """
.version 8.8
.target sm_100a
.address_size 64
.visible .entry f(.param .u64 out) .reqnctapercluster 2, 1, 1
{{
.reg .pred %p; .reg .b32 %t, %w, %r<4>, %d; .reg .b64 %l<3>;
.shared .align 4 .b32 slot;
.shared .align 4 .b8 kept[512];
mov.u32 %t, %tid.x;
shr.u32 %w, %t, 5;
setp.ne.u32 %p, %w, 0;
@!%p tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 32;
bar.sync 0;
ld.shared.u32 %d, [slot];
shl.b32 %r1, %w, 21;
add.u32 %r1, %r1, %d;
tcgen05.st.sync.aligned.32x32b.x1.b32 [%r1], {{%t}};
tcgen05.wait::st.sync.aligned;
tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%r2}}, [%r1];
{wait}
{barrier}
@!%p tcgen05.dealloc.cta_group::1.sync.aligned.b32 %d, 32;
ld.param.u64 %l0, [out];
mov.u32 %r3, %ctaid.x;
shl.b32 %r3, %r3, 7;
add.u32 %r3, %r3, %t;
mul.wide.u32 %l1, %r3, 4;
add.u64 %l0, %l0, %l1;
st.global.u32 [%l0], %r2;
ret;
}}"""
RELAXED = "barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;"
PLAIN = RELAXED.replace(".relaxed", "")
WAIT = "tcgen05.wait::ld.sync.aligned;"


def problems(barrier: str, wait: str = WAIT, *, strict: bool = False) -> list[str]:
    """The races of tensor memory, if the load is followed by ``wait`` and ``barrier``."""
    out = np.zeros(256, np.uint32)
    kernel = ptx.parse(KERNEL.format(barrier=barrier, wait=wait)).kernels["f"]
    watch = ptx.Watch("report", strict=strict)
    found = kernel.launch(2, 128, [out], watch=watch).problems
    assert out.tolist() == [*range(128)] * 2
    return [f"{e.rule} {e.severity}" for e in found if e.rule == "tensor-memory-race"]


def test_a_relaxed_barrier_orders_the_end_of_what_was_waited_for() -> None:
    assert not problems(PLAIN)
    assert not problems(RELAXED)
    # By the letter, it orders no memory.
    found = problems(RELAXED, strict=True)  # of the load, and of the store
    assert found == ["tensor-memory-race warning"] * 2


@pytest.mark.parametrize(("barrier", "wait"), [(RELAXED, ""), (PLAIN, "")])
def test_what_nobody_waited_for_is_still_an_error(barrier: str, wait: str) -> None:
    assert problems(barrier, wait) == ["tensor-memory-race error"]


PLACE = "mov.u32 %r3, kept;\nmad.lo.u32 %r3, %t, 4, %r3;\n"
STORED = PLACE + "add.u32 %r1, %r2, 1;\nst.shared.u32 [%r3], %r1;"
BRANCH = "setp.ne.u32 %p, %r2, 4096;\n@!%p bra ON;\nON:\nsetp.ne.u32 %p, %w, 0;"
COMPUTED = "add.u32 %r1, %r2, 1;"


@pytest.mark.parametrize("barrier", [PLAIN, RELAXED], ids=["plain", "relaxed"])
@pytest.mark.parametrize("use", [STORED, BRANCH], ids=["stored", "branch"])
def test_a_load_whose_registers_are_used_is_done(barrier: str, use: str) -> None:
    """By the letter, a wait is missing; but ptxas waits for the registers."""
    assert problems(barrier, use) == ["tensor-memory-race warning"]


@pytest.mark.parametrize("barrier", [PLAIN, RELAXED], ids=["plain", "relaxed"])
def test_what_is_computed_from_a_load_may_come_later(barrier: str) -> None:
    """ptxas may move it behind the barrier."""
    assert problems(barrier, COMPUTED) == ["tensor-memory-race error"]


def test_a_path_without_a_use_is_an_error() -> None:
    guarded = f"setp.gt.u32 %p, %t, 200;\n@%p bra ON;\n{STORED}\nON:"
    assert problems(PLAIN, f"{guarded}\nsetp.ne.u32 %p, %w, 0;") == [
        "tensor-memory-race error"
    ]
