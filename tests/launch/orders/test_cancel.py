"""A persistent kernel that asks for more clusters, whether they are granted or not.

Lane 0 of warp 0 asks for a cluster that has not begun, and all wait for the answer at
an mbarrier, with a parity that turns each time (marin 8870 waited for the wrong one).
Each cluster counts the blocks whose work it does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fragmenta import ptx

TEXT = """
.version 8.7
.target sm_100a
.address_size 64
.visible .entry persistent(.param .u64 out)
{{
    .shared .align 16 .b8 answer[16];
    .shared .align 8 .b64 told, read;
    .reg .pred %first, %q, %more;
    .reg .b32 %r<9>;
    .reg .b64 %d<4>;
    .reg .b128 %x;
    mov.u32 %r0, %tid.x;
    setp.eq.u32 %first, %r0, 0;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, 0;
    ld.param.u64 %d0, [out];
    cvta.to.global.u64 %d0, %d0;
    @!%first bra BEGIN;
    mbarrier.init.shared::cta.b64 [told], 1;
    mbarrier.init.shared::cta.b64 [read], 64;
BEGIN:
    bar.sync 0;
NEXT:
    @!%first bra ASKED;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [told], 16;
    clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [answer], [told];
ASKED:
    mul.wide.u32 %d1, %r1, 4;
    add.s64 %d1, %d1, %d0;
    @%first red.relaxed.gpu.global.add.u32 [%d1], 1;
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %q, [told], {parity};
    @!%q bra WAIT;
    ld.shared.b128 %x, [answer];
    fence.proxy.async;
    {release}
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %more, %x;
    @!%more bra DONE;
    clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r1, %x;
READ:
    {again}
    xor.b32 %r2, %r2, 1;
    bra NEXT;
DONE:
    ret;
}}"""
RELEASE = "mbarrier.arrive.shared::cta.b64 _, [read];"
AGAIN = """mbarrier.try_wait.parity.shared::cta.b64 %q, [read], %r2;
    @!%q bra READ;"""
RIGHT = {"parity": "%r2", "release": RELEASE, "again": AGAIN}
WRONG = {
    "the parity of the answer is not turned": ({"parity": "0"}, "read-before-arrival"),
    "the first parity is the other one": ({"parity": "%r3"}, "deadlock"),
    "the answer is read while the next one comes": (
        {"again": ""},
        "overwrite-while-read",
    ),
    "nobody says that it has read the answer": ({"release": ""}, "deadlock"),
}


def launched(blocks: int = 3, **changes: str) -> tuple[Any, Any]:
    text = TEXT.format(**{**RIGHT, **changes})
    if changes.get("parity") == "%r3":
        text = text.replace("WAIT:\n", "WAIT:\n    xor.b32 %r3, %r2, 1;\n", 1)
    out = np.zeros(blocks, np.uint32)
    kernel = ptx.parse(text).kernels["persistent"]
    result = kernel.launch(blocks, 64, [out], orders="all", watch="report")
    return result, out


def errors(result: Any) -> set[str]:
    return {each.rule for each in result.problems if each.severity == "error"}


@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_grants_and_refusals_are_explored(blocks: int) -> None:
    result, out = launched(blocks)
    assert not errors(result), result.problems
    assert result.orders.verdict == "all orders", result.orders.reasons
    assert (out == 1).all()
    alone = result.orders.states
    assert blocks == 1 or alone > launched(1)[0].orders.states


def test_what_is_left_out_is_said() -> None:
    result, _ = launched(12)
    assert result.orders.verdict == "this path only"
    assert any("at most 8" in each for each in result.orders.reasons)


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_found(name: str) -> None:
    changes, rule = WRONG[name]
    assert rule in errors(launched(**changes)[0])


def test_a_mistake_that_needs_a_grant_is_found_by_orders_alone() -> None:
    """Nobody is granted anything in the launch itself, so each cluster asks once."""
    changes, rule = WRONG["the answer is read while the next one comes"]
    result, _ = launched(**changes)
    told = {each.rule.name for _, each in result.orders.found}
    assert rule in told
    assert not errors(launched(1, **changes)[0])
