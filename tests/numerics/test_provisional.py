"""A decision that a branch throws away is none: the quick way of ``sinf``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fragmenta.ptx.reading import parse
from fragmenta.values.numerics.code.provisional import provisional
from tests.numerics.test_numerics import HEAD, ONE, kernel, launched

LARGE = "0f4B800000"  # 2**24: an f32 there is even
QUICK = f"""
    add.f32 %f4, %f3, {LARGE};
    cvt.rni.s32.f32 %r5, %f4;
    cvt.rn.f32.s32 %f5, %r5;
    sub.f32 %f1, %f4, %f5;
    abs.f32 %f6, %f3;
    setp.{{compare}}.f32 %p2, %f6, 0f3F000000;
    @%p2 bra DONE;
    {{slow}}
DONE:
    cvt.rn.f32.s32 %f7, %r5;
    add.f32 %f1, %f1, %f7;
"""
ANEW = "mov.f32 %f1, 0f40000000; mov.b32 %r5, 7;"
"""Both results of the quick way are computed anew."""


def found(compare: str, slow: str, x: Any) -> tuple[int, list[str]]:
    """How many threads decide otherwise, and the severities of that."""
    made = kernel(ONE, QUICK.format(compare=compare, slow=slow))
    numerics, _ = launched(made, x)
    count = sum(each.counts["other_way"] for each in numerics.branches)
    said = [e.severity for e in numerics.problems if e.rule == "other-branch"]
    return count, said


def test_what_is_computed_anew_was_not_decided() -> None:
    # All of 2**24 + 0.99 round down, and exact values up.
    assert found("lt", ANEW, np.full(32, 0.99)) == (0, [])


def test_only_threads_that_go_on_with_it_have_decided() -> None:
    x = np.where(np.arange(32) < 5, 0.3, 0.99)  # 0.3 is rounded as it is exactly
    assert found("lt", ANEW, x) == (0, [])
    assert found("gt", ANEW, x) == (27, ["warning"])
    x[8:] = 0.3
    assert found("gt", ANEW, x) == (3, ["warning"])


@pytest.mark.parametrize("kept", ["mov.f32 %f1, 0f40000000;", "mov.b32 %r5, 7;", ""])
def test_what_is_computed_anew_in_part_was_decided(kept: str) -> None:
    assert found("lt", kept, np.full(32, 0.99)) == (32, ["warning"])


def test_the_branch_may_lead_to_what_is_computed_anew() -> None:
    """Threads that do not branch go on with what was decided."""
    body = QUICK.replace("bra DONE;", "bra SLOW; bra DONE; SLOW:")
    x = np.where(np.arange(32) < 5, 0.3, 0.99)
    for compare, count in (("gt", []), ("lt", [27])):
        made = kernel(ONE, body.format(compare=compare, slow=ANEW))
        numerics, _ = launched(made, x)
        assert [each.counts["other_way"] for each in numerics.branches] == count


@pytest.mark.parametrize(
    "between",
    [
        "st.global.u32 [%rd5], %r5;",  # seen by others
        "setp.gt.s32 %p2, %r5, 3;",  # it decides the branch itself
        "mov.f32 %f4, 0f00000000;",  # what it was decided by is gone
        "HERE: mov.b32 %r6, 0;",  # others may come here
    ],
)
def test_a_decision_that_is_used_before_the_branch_counts_at_once(between: str) -> None:
    body = QUICK.replace("@%p2 bra", f"{between} @%p2 bra")
    text = HEAD + ONE.format(body=body.format(compare="lt", slow=ANEW))
    assert not provisional(parse(text).functions["f"]).at


def test_a_sum_that_rounds_to_either_of_two_integers() -> None:
    """As ``expf`` does: 252 (0.5 - 2**-30) is rounded down to 125 or 126."""
    body = """
        fma.rn.f32 %f4, %f3, 0f30800000, 0f3F000000;
        mov.f32 %f5, 0f437C0000; mov.f32 %f6, 0f4B400001;
        fma.rm.f32 %f7, %f4, %f5, %f6;
        sub.f32 %f8, %f7, %f6;
        mov.b32 %r5, %f7; shl.b32 %r5, %r5, 31; mov.b32 %f9, %r5;
        add.f32 %f1, %f8, %f9;"""
    numerics, _ = launched(kernel(ONE, body), np.full(32, -1.0))
    said = [each for each in numerics.problems if each.rule == "other-branch"]
    assert [(each.severity, each.count) for each in said] == [("info", 32)]
