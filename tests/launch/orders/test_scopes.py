"""Scopes of arrivals and waits at mbarriers decide what other blocks are ordered after.

Block 1 stores into the shared memory of block 0, and arrives at an mbarrier there.
Block 0 waits for it, and reads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.launch.orders import exploring
from fragmenta.watch.orders.explore import explore

TEXT = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry told(.param .u64 out)
{{
    .shared .align 8 .b64 full;
    .shared .align 4 .b32 word;
    .reg .pred %zero, %q;
    .reg .b32 %r<9>;
    .reg .b64 %d<2>;
    mov.u32 %r0, %cluster_ctarank;
    setp.eq.u32 %zero, %r0, 0;
    mov.u32 %r1, full;
    mov.u32 %r2, word;
    mbarrier.init.shared.b64 [%r1], 1;
    fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive;
    barrier.cluster.wait;
    @%zero bra READ;
    mapa.shared::cluster.u32 %r3, %r1, 0;
    mapa.shared::cluster.u32 %r4, %r2, 0;
    st.shared::cluster.u32 [%r4], 7;
    mbarrier.arrive{arrives}.shared::cluster.b64 _, [%r3];
    bra END;
READ:
    mbarrier.try_wait.parity{waits}.shared::cta.b64 %q, [%r1], 0;
    @!%q bra READ;
    ld.shared.u32 %r5, [%r2];
    ld.param.u64 %d0, [out];
    cvta.to.global.u64 %d0, %d0;
    st.global.u32 [%d0], %r5;
END:
    barrier.cluster.arrive;
    barrier.cluster.wait;
    ret;
}}"""


def launched(arrives: str, waits: str, patch: pytest.MonkeyPatch) -> Any:
    """What was explored: the launch's own watcher sees some of it, too."""
    verdicts = []

    def kept(*given: Any, **more: Any) -> Any:
        verdicts.append(explore(*given, **more))
        return verdicts[-1]

    patch.setattr(exploring, "explore", kept)
    out = np.zeros(1, np.uint32)
    kernel = ptx.parse(TEXT.format(arrives=arrives, waits=waits)).kernels["told"]
    kernel.launch(2, 1, [out], cluster=2, orders="all", watch="report")
    assert out[0] == 7
    (verdict,) = verdicts
    return verdict


@pytest.mark.parametrize("waits", ["", ".acquire.cluster"])
@pytest.mark.parametrize("arrives", ["", ".release.cluster"])
def test_a_cluster_is_ordered(
    arrives: str, waits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = launched(arrives, waits, monkeypatch)
    assert found.clean
    assert found.coverage.value == "all orders"


@pytest.mark.parametrize(
    ("arrives", "waits"),
    [
        (".release.cta", ".acquire.cluster"),
        (".release.cta", ""),
        (".release.cluster", ".acquire.cta"),
        ("", ".acquire.cta"),
        (".release.cta", ".acquire.cta"),
    ],
)
def test_the_scope_of_a_block_orders_nothing_for_another(
    arrives: str, waits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = launched(arrives, waits, monkeypatch)
    (race,) = found.races
    assert race.span.space == "shared:0"
    assert found.hang is None
