"""Addresses of shared memory in the other form work, and are reported as warnings.

Machine code takes the low word of the register (ptxas 13.0 for sm_100a), so that a
generic address and an offset in shared memory do the same.
"""

from __future__ import annotations

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.errors import KernelFault

HEAD = """
.version 8.8
.target sm_100a
.address_size 64
.visible .entry f(.param .u64 in, .param .u64 out)
{
.reg .pred %p, %q; .reg .b32 %t, %r<9>; .reg .b64 %l<9>, %g<9>, %w<9>;
.shared .align 16 .b8 tile[128];
.shared .align 8 .b64 bar;
.shared .align 4 .b32 slot;
ld.param.u64 %l0, [in];
ld.param.u64 %l1, [out];
mov.u32 %t, %tid.x;
mul.wide.u32 %l2, %t, 4;
add.u64 %l1, %l1, %l2;
setp.ne.u32 %p, %t, 0;
// generic addresses
mov.u64 %g0, bar;
cvta.shared.u64 %g0, %g0;
mov.u64 %g1, tile;
cvta.shared.u64 %g1, %g1;
mov.u64 %g2, slot;
cvta.shared.u64 %g2, %g2;
// offsets, made wider
mov.u64 %w0, bar;
mov.u64 %w1, tile;
"""
WAIT = """
bar.sync 0;
WAIT:
mbarrier.try_wait.parity.shared::cta.b64 %q, [bar], 0;
@!%q bra WAIT;
"""
COPY = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
READ = """
mov.u32 %r1, tile;
shl.b32 %r2, %t, 2;
add.u32 %r1, %r1, %r2;
ld.shared.u32 %r3, [%r1];
st.global.u32 [%l1], %r3;
"""
BYTES = "@!%p mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128;\n"
INIT = "@!%p mbarrier.init.shared::cta.b64 [bar], 1;\n"
TENSOR = "tcgen05.alloc.cta_group::1.sync.aligned"
KERNELS = {
    "alloc, a generic address": (
        f"{TENSOR}.shared::cta.b32 [%g2], 32;\nld.shared.u32 %r1, [slot];\n"
        "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, 32;\n"
        "st.global.u32 [%l1], %t;\n",
        1,
    ),
    "commit, an offset": (
        f"{INIT}bar.sync 0;\n@!%p tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64"
        f" [%w0];\n{WAIT}st.global.u32 [%l1], %t;\n",
        1,
    ),
    "init, an offset": (
        "@!%p mbarrier.init.b64 [%w0], 1;\nbar.sync 0;\n"
        f"@!%p mbarrier.arrive.shared::cta.b64 _, [bar];\n{WAIT}"
        "st.global.u32 [%l1], %t;\n",
        1,
    ),
    "arrive, a generic address": (
        f"{INIT}bar.sync 0;\n@!%p mbarrier.arrive.shared::cta.b64 _, [%g0];\n{WAIT}"
        "st.global.u32 [%l1], %t;\n",
        1,
    ),
    "goal and mbarrier of a copy, generic addresses": (
        f"{INIT}bar.sync 0;\n{BYTES}@!%p {COPY} [%g1], [%l0], 128, [%g0];\n{WAIT}{READ}",
        1,
    ),
    "the form that the manual allows": (
        f"{INIT}bar.sync 0;\n{BYTES}@!%p {COPY} [%w1], [%l0], 128, [%w0];\n{WAIT}{READ}",
        0,
    ),
}


def launch(
    body: str, watch: str | bool = "report"
) -> tuple[np.ndarray, list[ptx.Problem]]:
    given, out = np.arange(32, dtype=np.uint32), np.zeros(32, np.uint32)
    kernel = ptx.parse(f"{HEAD}{body}ret;\n}}").kernels["f"]
    result = kernel.launch(1, 32, [given, out], watch=watch)
    return out, list(result.problems)


@pytest.mark.parametrize("name", KERNELS)
def test_the_low_word_is_taken_and_reported(name: str) -> None:
    body, warnings = KERNELS[name]
    out, problems = launch(body)
    np.testing.assert_array_equal(out, np.arange(32))
    found = [each for each in problems if each.rule == "state-space"]
    assert len(found) == warnings
    assert all(each.severity == "warning" for each in found)
    assert all("the low word" in each.message for each in found)
    times = 2 if "goal and" in name else 1  # addresses in the other form
    assert all(each.count == times for each in found)


def test_an_address_of_global_memory_is_refused() -> None:
    body = f"{INIT}bar.sync 0;\n@!%p mbarrier.arrive.shared::cta.b64 _, [%l0];\n"
    with pytest.raises(KernelFault, match="takes an offset in shared memory"):
        launch(body, watch=True)
