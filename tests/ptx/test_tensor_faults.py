"""Kernels that misuse tensor memory are stopped, and the reason is given."""

from __future__ import annotations

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.errors import KernelFault, KernelHazard

HEAD = """
.version 8.8
.target sm_100a
.address_size 64
.visible .entry f(.param .u64 out)
{
.reg .pred %p, %q; .reg .b32 %t, %w, %r<9>, %d, %e; .reg .b64 %l<9>;
.shared .align 1024 .b8 tile[4096];
.shared .align 8 .b64 bar;
.shared .align 4 .b32 slot[2];
mov.u32 %t, %tid.x;
shr.u32 %w, %t, 5;
setp.ne.u32 %p, %w, 0;
ld.param.u64 %l0, [out];
mul.wide.u32 %l1, %t, 4;
add.u64 %l0, %l0, %l1;
"""
ALLOC = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32"
FREE = "tcgen05.dealloc.cta_group::1.sync.aligned.b32"
LOAD = "tcgen05.ld.sync.aligned.32x32b.x1.b32"
BEGIN = f"@!%p {ALLOC} [slot], 64;\nbar.sync 0;\nld.shared.u32 %d, [slot];\n"
END = f"bar.sync 0;\n@!%p {FREE} %d, 64;\n"
MMA = "tcgen05.mma.cta_group::1.kind::f16 [%d], %l2, %l3, %r1, %q;"


def launch(
    body: str, schedule: str | int = "eager", warps: int = 1, watch: bool = False
) -> np.ndarray:
    """What a kernel with this body writes to ``out``."""
    out = np.zeros(32 * warps, np.uint32)
    text = f"{HEAD}{body}\nret;\n}}"
    kernel = ptx.parse(text).kernels["f"]
    kernel.launch(1, 32 * warps, [out], schedule=schedule, watch=watch)
    return out


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        (
            f"{ALLOC} [slot], 32;\n{ALLOC} [slot+4], 64;",
            "tensor-memory",
            "of 64 columns after one of 32",
        ),
        (
            "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n"
            f"{ALLOC} [slot], 32;",
            "tensor-memory",
            "gave up the right",
        ),
        (
            f"mov.u32 %r1, 48;\n{ALLOC} [slot], %r1;",
            "tensor-memory",
            "32, 64, 128, 256 or 512",
        ),
        (f"{FREE} 0, 32;", "tensor-memory", "needs tensor memory"),
        (
            f"{BEGIN}add.u32 %d, %d, 32;\n{FREE} %d, 32;",
            "tensor-memory",
            "dealloc of 32 columns at 0x20: allocated are columns 0 to 63",
        ),
        (
            f"{BEGIN}{LOAD} {{%r1}}, [%d+64];",
            "tensor-memory",
            r"reaches columns 64 to 64 .* allocated are 0 to 63",
        ),
        (
            f"{BEGIN}add.u32 %d, %d, 0x200000;\n{LOAD} {{%r1}}, [%d];",
            "tensor-memory",
            "reaches lanes 0 to 31",
        ),
        (
            f"{BEGIN}add.u32 %d, %d, %t;\n{LOAD} {{%r1}}, [%d];",
            "divergent-aligned",
            "the same in all lanes",
        ),
        (f"{BEGIN}mov.u32 %r1, 0x80;\n{MMA}", "bad-descriptor", "kind::f16|N|M"),
        (
            f"{BEGIN}mov.u32 %r1, 0x08100010;\nmov.u64 %l2, 0;\nmov.u64 %l3, 0;\n{MMA}",
            "bad-descriptor",
            "bit",
        ),
        (
            f"{BEGIN}mov.u32 %r1, 0x04040014;\n"
            "tcgen05.mma.sp.cta_group::1.kind::f16 [%d], %l2, %l3, [%d+32], %r1, %q;",
            "tensor-memory",
            "no source but figures says where the metadata",
        ),
        (
            f"{BEGIN}tcgen05.shift.cta_group::1.down [%d];",
            "unsupported",
            "the direction in which rows move is not known",
        ),
        (
            f"{ALLOC} [slot], 512;\n{ALLOC} [slot+4], 512;",
            "deadlock",
            r"every warp .*\n  warp 0 .* 512 columns: 512 of the 512 columns are allocated",
        ),
    ],
)
def test_faults(body: str, kind: str, message: str) -> None:
    with pytest.raises(KernelFault, match=message) as caught:
        launch(body)
    assert caught.value.kind == kind


def test_a_target_without_tensor_memory() -> None:
    text = f"{HEAD}{BEGIN}{END}ret;\n}}"
    kernel = ptx.parse(text).kernels["f"]
    with pytest.raises(KernelFault, match=r"sm_120a does not have tcgen05\.alloc"):
        kernel.launch(1, 32, [np.zeros(32, np.uint32)], target="sm_120a", watch=False)


def test_columns_that_are_not_freed() -> None:
    with pytest.raises(KernelHazard, match=r"columns 0 to 63[^:]* still allocated"):
        launch(BEGIN)
    launch(BEGIN + END)


def test_room_is_waited_for() -> None:
    """A second block of columns is given when the first has been freed."""
    body = f"""
@%p bra SECOND;
{ALLOC} [slot], 512;
bar.arrive 1, 64;
mov.u32 %r1, 0;
SPIN:
add.u32 %r1, %r1, 1;
setp.lt.u32 %q, %r1, 100;
@%q bra SPIN;
ld.shared.u32 %d, [slot];
{FREE} %d, 512;
bra LAST;
SECOND:
bar.sync 1, 64;
{ALLOC} [slot+4], 256;
ld.shared.u32 %d, [slot+4];
{FREE} %d, 256;
LAST:
"""
    launch(body, warps=2)


def test_a_store_is_there_after_its_wait() -> None:
    """Under the lazy schedule, cells hold nothing before ``wait::st``."""
    store = "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r1], {%t};"
    waits = "tcgen05.wait::{}.sync.aligned;"
    lanes = f"{BEGIN}shl.b32 %r1, %w, 21;\nadd.u32 %r1, %r1, %d;\n"
    load = f"{LOAD} {{%r2}}, [%r1];"
    right = [store, waits.format("st"), load, waits.format("ld")]
    for missing, bad in ((None, False), (1, True), (3, False)):
        lines = [each for i, each in enumerate(right) if i != missing]
        body = lanes + "\n".join([*lines, "st.global.u32 [%l0], %r2;", END])
        out = launch(body, schedule="lazy", warps=4)
        assert (out == np.arange(128)).all() != bad
        if bad:
            assert (out == 0x7FFF7FFF).all()


def test_a_pair_allocates_together() -> None:
    text = HEAD + (BEGIN + END).replace("cta_group::1", "cta_group::2") + "ret;\n}"
    kernel = ptx.parse(text).kernels["f"]
    out = np.zeros(64, np.uint32)
    for schedule in ("eager", "lazy"):
        kernel.launch(4, 32, [out], cluster=4, schedule=schedule, watch=False)
    with pytest.raises(KernelFault, match="needs a pair of blocks"):
        kernel.launch(1, 32, [out], watch=False)


def test_a_load_that_reduces() -> None:
    stores = "".join(
        f"add.u32 %r{i + 2}, %t, {i};\n" for i in range(4)
    )  # lane, lane + 1, ...
    body = f"""
{BEGIN}
{stores}
tcgen05.st.sync.aligned.32x32b.x4.b32 [%d], {{%r2, %r4, %r5, %r3}};
tcgen05.wait::st.sync.aligned;
tcgen05.ld.red.sync.aligned.32x32b.x4.max.u32 {{%r2, %r3, %r4, %r5}}, %r6, [%d];
tcgen05.wait::ld.sync.aligned;
st.global.u32 [%l0], %r6;
{END}
"""
    text = HEAD.replace("sm_100a", "sm_103a") + body + "ret;\n}"
    out = np.zeros(32, np.uint32)
    ptx.parse(text).kernels["f"].launch(1, 32, [out], watch=False)
    assert (out == np.arange(32) + 3).all()


def test_nobody_cancels_a_cluster() -> None:
    body = """
.reg .b128 %x;
.reg .pred %z;
setp.ne.u32 %q, %t, 0;
@!%q mbarrier.init.shared::cta.b64 [bar], 1;
@!%q mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16;
@!%q clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [tile], [bar];
bar.sync 0;
WAIT:
mbarrier.try_wait.parity.shared::cta.b64 %q, [bar], 0;
@!%q bra WAIT;
ld.shared.b128 %x, [tile];
clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %z, %x;
selp.u32 %r1, 1, 2, %z;
st.global.u32 [%l0], %r1;
"""
    for schedule in ("eager", "lazy"):
        assert (launch(body, schedule=schedule) == 2).all()


def test_lanes_above_the_last_are_cut_off_with_a_warning() -> None:
    """A B200 ignores the bits of the lane above 6: kernels of pairs add 128."""
    put = "tcgen05.st.sync.aligned.32x32b.x1.b32"
    body = f"""{BEGIN}{put} [%d], {{%t}};
tcgen05.wait::st.sync.aligned;
add.u32 %e, %d, {128 << 16};
{LOAD} {{%r1}}, [%e];
tcgen05.wait::ld.sync.aligned;
st.global.u32 [%l0], %r1;
{END}"""
    kernel = ptx.parse(f"{HEAD}{body}\nret;\n}}").kernels["f"]
    for _ in range(2):  # the second launch knows the load from the first one
        out = np.zeros(32, np.uint32)
        found = kernel.launch(1, 32, [out], watch=True).problems
        assert out.tolist() == list(range(32))
        (only,) = found
        assert (only.rule, only.severity) == ("tensor-memory", "warning")
        assert "names lane 128 of tensor memory, which has 128" in only.message
