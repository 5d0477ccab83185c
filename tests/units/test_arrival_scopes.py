"""Scopes of arrivals at the mbarrier of another block of the cluster."""

from __future__ import annotations

import numpy as np
import pytest

from fragmenta import ptx

KERNEL = """
.version 8.8
.target sm_90a
.address_size 64
.visible .entry f(.param .u64 in, .param .u64 out) .reqnctapercluster 2, 1, 1
{{
.reg .pred %p, %q, %first; .reg .b32 %t, %c, %r<6>; .reg .b64 %l<4>;
.shared .align 16 .b8 tile[128];
.shared .align 8 .b64 bar;
ld.param.u64 %l0, [in];
ld.param.u64 %l1, [out];
mov.u32 %t, %tid.x;
mov.u32 %c, %cluster_ctarank;
setp.ne.u32 %p, %t, 0;
setp.eq.u32 %first, %c, 0;
@%p bra MADE;
mbarrier.init.shared::cta.b64 [bar], 1;
fence.mbarrier_init.release.cluster;
MADE:
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
@%first bra COPY;
@%p bra LAST;
mov.u32 %r0, bar;
mapa.shared::cluster.u32 %r1, %r0, 0;
{arrive}
bra LAST;
COPY:
@!%p {copy} [tile], [%l0], 128, [bar];
{more}
WAIT:
mbarrier.try_wait.parity{wait}.shared::cta.b64 %q, [bar], 0;
@!%q bra WAIT;
mov.u32 %r1, tile;
shl.b32 %r2, %t, 2;
add.u32 %r1, %r1, %r2;
ld.shared.u32 %r3, [%r1];
mul.wide.u32 %l2, %t, 4;
add.u64 %l1, %l1, %l2;
st.global.u32 [%l1], %r3;
LAST:
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
ret;
}}"""
COPY = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
EXPECT = "mbarrier.arrive.expect_tx{}.shared::cluster.b64 _, [%r1], 128;"
PLAIN = "mbarrier.arrive{}.shared::cluster.b64 _, [%r1];"
BYTES = "@!%p mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 128;"
BLOCK, CLUSTER = ".release.cta", ".release.cluster"


def reported(arrive: str, wait: str, strict: bool, more: str = "") -> list[str]:
    """The severities of what is said about scopes of mbarriers."""
    given, out = np.arange(32, dtype=np.uint32), np.zeros(32, np.uint32)
    text = KERNEL.format(copy=COPY, arrive=arrive, wait=wait, more=more)
    watch = ptx.Watch("report", strict=strict)
    result = ptx.parse(text).kernels["f"].launch(2, 32, [given, out], watch=watch)
    np.testing.assert_array_equal(out, given)
    return [e.severity for e in result.problems if e.rule == "mbarrier"]


@pytest.mark.parametrize("wait", ["", ".acquire.cta"])
def test_an_arrival_that_expects_bytes_may_name_the_scope_of_its_block(
    wait: str,
) -> None:
    """Only a copy depends on it; no scope means the same."""
    for scope in ("", BLOCK):
        assert reported(EXPECT.format(scope), wait, strict=False) == []
        assert reported(EXPECT.format(scope), wait, strict=True) == ["warning"]
    assert reported(EXPECT.format(CLUSTER), wait, strict=True) == []


def test_a_plain_arrival_that_names_the_scope_of_its_block_is_an_error() -> None:
    told = reported(PLAIN.format(BLOCK), "", strict=False, more=BYTES)
    assert told == ["error"]
    told = reported(PLAIN.format(BLOCK), ".acquire.cta", strict=False, more=BYTES)
    assert sorted(told) == ["error", "warning"]
    assert reported(PLAIN.format(""), "", strict=False, more=BYTES) == []
