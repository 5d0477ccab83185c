"""What the answer about all orders says: text and JSON agree, and hints repair."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from tests.asking import ask

ROUNDS = """
.version 8.0
.target sm_90
.address_size 64
.entry k(.param .u64 out)
{{
    .shared .align 8 .b64 full, empty;
    .reg .pred %p<3>;
    .reg .b32 %r<8>;
    .reg .b64 %d;
    mov.u32 %r1, %tid.x;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra READY;
    mbarrier.init.shared.b64 [full], 32;
    mbarrier.init.shared.b64 [empty], 32;
READY:
    bar.sync 0;
    mov.u32 %r2, 0;
    setp.ge.u32 %p1, %r1, 32;
    @%p1 bra CONSUME;
PRODUCE:
    xor.b32 %r3, %r2, {first};
    and.b32 %r3, %r3, 1;
P:  mbarrier.try_wait.parity.shared.b64 %p2, [empty], %r3;
    @!%p2 bra P;
    mbarrier.arrive.shared.b64 %d, [full];
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p1, %r2, 6;
    @%p1 bra PRODUCE;
    ret;
CONSUME:
    and.b32 %r3, %r2, {parity};
C:  mbarrier.try_wait.parity.shared.b64 %p2, [full], %r3;
    @!%p2 bra C;
    mbarrier.arrive.shared.b64 %d, [empty];
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p1, %r2, 6;
    @%p1 bra CONSUME;
    ret;
}}
"""


def rounds(first: int = 1, parity: int = 1) -> Any:
    kernel = ptx.parse(ROUNDS.format(first=first, parity=parity)).kernels["k"]
    given = [np.zeros(4, np.uint32)]
    return kernel.launch(1, 64, given, orders="all", watch="report")


def test_a_ring_of_two_mbarriers_is_clean() -> None:
    found = rounds().orders
    assert (found.verdict, found.coverage, found.clean) == (
        "all orders",
        "all orders",
        True,
    )


def test_the_story_of_a_parity_that_stays() -> None:
    """The consumer passes the first phase again and again, and arrives each time."""
    found = rounds(parity=0).orders
    text, told = " ".join(found.text().split()), found.to_dict()
    assert "phases 0 to 5 had completed before it waited for phase 0" in text
    numbers = [each["step"] for each in told["steps"]]
    assert numbers == list(range(1, len(numbers) + 1))
    assert f"an order hangs, after {numbers[-1]} steps" in text
    shown = [int(each) for each in re.findall(r"(?m)^ +(\d+)\. ", found.text())]
    assert set(shown) < set(numbers)
    assert "(steps that matter less are left out)" in text
    assert (told["verdict"], told["hangs"], told["clean"]) == ("hangs", True, False)
    assert told["coverage"] in text
    assert told["summary"] == found.summary


def test_a_first_wait_for_an_empty_stage_is_explained() -> None:
    result = rounds(first=0)
    (hang,) = (each for each in result.problems if each.rule == "deadlock")
    assert "A new mbarrier passes a wait for parity 1" in " ".join(hang.hint.split())


TWO_COPIES = Path(__file__).parents[3] / "examples" / "two_copies.ptx"


def test_one_read_without_a_wait_is_one_error() -> None:
    """The launch reports it, and says which wait is missing; orders do not repeat it."""
    kernel = ptx.parse(TWO_COPIES.read_text()).kernels["add"]
    given = [np.arange(64, dtype=np.uint32), np.zeros(32, np.uint32)]
    result = kernel.launch(1, 32, given, orders="all", watch="report")
    found = [each for each in result.problems if each.severity == "error"]
    assert {each.rule for each in found} == {"read-before-arrival", "leak"}
    assert not result.orders.clean


LATE = """
.version 8.0
.target sm_90
.address_size 64
.entry k(.param .u64 in, .param .u64 out)
{{
    .shared .align 128 .b8 tile[128];
    .shared .align 8 .b64 full;
    .reg .pred %p<4>;
    .reg .b32 %r<8>;
    .reg .b64 %d<5>;
    mov.u32 %r1, %tid.x;
    ld.param.u64 %d1, [in];
    ld.param.u64 %d2, [out];
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra READY;
    mbarrier.init.shared.b64 [full], 1;
    mbarrier.arrive.expect_tx.shared.b64 %d3, [full], 128;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
        [tile], [%d1], 128, [full];
READY:
    bar.sync 0;
    mbarrier.test_wait.parity.shared.b64 %p2, [full], 0;
    @%p2 bra READ;
    {wait}
READ:
    ld.shared.u32 %r2, [tile];
W:  mbarrier.try_wait.parity.shared.b64 %p3, [full], 0;
    @!%p3 bra W;
    st.global.u32 [%d2], %r2;
    ret;
}}
"""
WAIT = """
L:  mbarrier.try_wait.parity.shared.b64 %p3, [full], 0;
    @!%p3 bra L;"""


@pytest.mark.parametrize("wait", ["", WAIT])
def test_the_hint_names_the_wait_that_a_copy_needs(wait: str) -> None:
    """Only where the test says no is the copy not waited for: other orders show it."""
    kernel = ptx.parse(LATE.format(wait=wait)).kernels["k"]
    given = [np.arange(32, dtype=np.uint32), np.zeros(1, np.uint32)]
    result = kernel.launch(1, 32, given, orders="all", watch="report")
    found = [each for each in result.problems if each.severity == "error"]
    if wait:
        assert not found
        assert result.orders.clean
        return
    assert found
    for each in found:
        assert each.rule in ("read-before-arrival", "overwrite-while-read")
        assert "Wait for" in each.hint
        assert "mbarrier full" in each.hint
        assert "Let a barrier come" not in each.hint


# ── recordings ──────────────────────────────────────────────────────────────

RECORDED = Path(__file__).parents[2] / "golden" / "programs" / "tile-1.npz"


@pytest.mark.parametrize("words", [("orders",), ("launch", "--orders")])
def test_recorded_launches_are_explored(words: tuple[str, ...]) -> None:
    told = ask(*words, str(RECORDED), "--json")
    assert told.exit_code == 0, told.output
    for each in json.loads(told.stdout)["launches"]:
        assert each["same"]
        assert each["orders"]["verdict"] in ("all orders", "this path only")
        assert each["orders"]["report"].startswith("no order hangs")


def test_what_a_recording_says_is_not_given_again() -> None:
    told = ask("orders", str(RECORDED), "--block", "32")
    assert told.exit_code == 2
    assert "is a recording, which says all of it; given --block" in " ".join(
        told.output.split()
    )
