"""Blocks in several threads that store the same value in one place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.watch.races import equal_writes

TEXT = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry stores(.param .u64 goal, .param .u64 values)
{
    .reg .b32 %r<4>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [goal];
    ld.param.u64 %rd2, [values];
    mov.u32 %r1, %ctaid.x;
    mad.wide.u32 %rd2, %r1, 4, %rd2;
    ld.global.u32 %r2, [%rd2];
    st.global.u32 [%rd1], %r2;
    ret;
}"""


def launched(kernel: Any, values: np.ndarray) -> list[tuple[str, str]]:
    goal = np.zeros(1, np.uint32)
    result = kernel.launch(2, 1, [goal, values], watch="report")
    return [(each.rule, each.severity) for each in result.problems]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many stores each launch had that are looked at again; two threads run."""
    counts: list[int] = []
    doubtful = equal_writes.doubtful

    def counted(*given: Any) -> Any:
        found = doubtful(*given)
        counts.append(len(found))
        return found

    monkeypatch.setattr(equal_writes, "doubtful", counted)
    monkeypatch.setattr("fragmenta.launch.grid.cores", lambda: 2)
    return counts


def test_different_values_are_an_error_and_looked_at_once(asked: list[int]) -> None:
    kernel = ptx.parse(TEXT).kernels["stores"]
    for _ in range(3):
        values = np.array([3, 4], np.uint32)
        assert launched(kernel, values) == [("global-race", "error")]
    assert asked == [1, 0, 0]


def test_equal_values_that_come_late_are_a_note(
    asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second block looks before the first one has stored."""
    kernel, values = ptx.parse(TEXT).kernels["stores"], np.array([3, 4], np.uint32)
    counted = equal_writes.doubtful

    def late(*given: Any) -> Any:
        found = counted(*given)
        values[:] = 4  # what the first block was about to store
        return found

    monkeypatch.setattr(equal_writes, "doubtful", late)
    assert launched(kernel, values) == [("global-race", "info")]
    assert asked == [1]
