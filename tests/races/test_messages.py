"""Reports about wrong kernels say who, what, where, and what repairs it."""

from __future__ import annotations

from typing import Any

import pytest

from fragmenta import ptx
from fragmenta.ptx.checking.problem import Problem
from fragmenta.ptx.rules import RULES, SEVERITIES
from fragmenta.watch.races.report import messages
from tests.ptx.hazards import running
from tests.ptx.hazards.cases import Case, cases

CASES = {case.name: case for case in cases()}


def result(name: str, **options: Any) -> ptx.Result:
    case: Case = CASES[name]
    row = case.row
    kernel = running.loaded(row.source, case.bug).kernels[row.entry]
    given = running.for_launch(row, running.made(row))
    found: ptx.Result = kernel.launch(
        row.grid,
        row.block,
        given,
        cluster=row.cluster,
        limits=ptx.Limits(instructions=2_000_000),
        **{"watch": "report", "schedule": "lazy", **options},
    )
    return found


def first(name: str, rule: str) -> Problem:
    return next(each for each in result(name).hazards if each.rule == rule)


def line(name: str, text: str) -> int:
    """The line of the source, which has a text once in it after the kernel's name."""
    source, entry, _ = name.split("-")
    lines = (running.SOURCES / f"{source}.cu").read_text().splitlines()
    start = next(i for i, each in enumerate(lines) if f"KERNEL {entry}(" in each)
    return next(i + 1 for i in range(start, len(lines)) if text in lines[i])


def test_a_read_that_comes_too_early() -> None:
    name = "pairs-wrong_parity-2"
    found = first(name, "read-before-arrival")
    assert found.message.startswith("block (0, 0, 0): ld.shared of warp 0 lane 0 at ")
    assert f"the copy of pairs.cu:{line(name, 'load(')} (hopper.cuh:" in found.message
    assert "reads tile (shared 0x400-0x47f)" in found.message
    assert "issued by warp 0 lane 0" in found.message
    assert "it belongs to phase 1 of the mbarrier full (shared 0x480)" in found.message
    assert "for phase 0 (parity 0), which was already past" in found.message
    wait = "Wait for phase 1 (parity 1) of the mbarrier full before the read."
    assert found.hint == wait
    assert found.count == 32
    assert found.block == (0, 0, 0)


def test_the_phase_before_the_first() -> None:
    found = first("pairs-wrong_parity-1", "read-before-arrival")
    assert "for the phase before the first (parity 1), which every new" in found.message


def test_a_wait_that_comes_too_late_does_not_count() -> None:
    found = first("pairs-early_read-1", "read-before-arrival")
    assert "for which warp 0 had not waited" in found.message


def test_an_arrival_that_comes_too_early() -> None:
    found = first("pairs-early_release-1", "overwrite-while-read")
    assert "wgmma of warpgroup 0 at pairs.cu:" in found.message
    assert "warp 4 lane 0 had last waited, at pairs.cu:" in found.message
    arrival = f"at pairs.cu:{line('pairs-early_release-1', 'arrive(&empty')}"
    assert f"where warps 0-3 had arrived, {arrival}" in found.message
    assert "before they had waited for it" in found.message
    assert "Let warps 0-3 execute wgmma.wait_group" in found.hint


def test_another_block_of_the_cluster_is_named() -> None:
    found = first("pairs-relaxed_arrival-1", "shared-race")
    assert "of block 1 of the cluster" in found.message
    assert found.hint.startswith("barrier.cluster.arrive.relaxed at pairs.cu:")
    assert found.hint.endswith("orders no memory. Leave out .relaxed there.")


def test_global_memory_is_an_argument() -> None:
    found = first("plain-neighbour-1", "global-race")
    assert " of argument " in found.message
    assert found.related[0].source is not None


def test_a_deadlock_says_what_is_missing() -> None:
    found = first("pairs-counts-1", "deadlock")
    assert "warp 0 of block (0, 0, 0) waits for phase 0 (parity 0) of" in (
        found.message
    )
    assert "which still expects 16 bytes" in found.message
    more = first("pairs-counts-2", "deadlock")
    assert "which got 16 bytes more than were expected" in more.message


def test_an_unrolled_loop_is_one_problem() -> None:
    found = [
        each
        for each in result("pairs-written_operands-1").hazards
        if each.rule == "missing-proxy-fence"
    ]
    places = {str(each.related[0].source) for each in found}
    assert len(found) == len(places)


def test_errors_come_first() -> None:
    for name in ("products-descriptors-1", "plain-two_barriers-1"):
        order = [SEVERITIES.index(e.severity) for e in result(name).problems]
        assert order == sorted(order)


def test_the_exception_tells_the_errors() -> None:
    with pytest.raises(ptx.KernelHazard) as raised:
        result("plain-exchange-1", watch=True)
    text = str(raised.value)
    assert raised.value.source.startswith("plain.cu:")
    assert raised.value.line == raised.value.problems[0].line > 0
    title, *lines = text.splitlines()
    assert title.startswith("shared-race, plain.cu:")
    assert all(each.startswith("  ") and len(each) <= 80 for each in lines)
    assert "come between the two: before plain.cu:13." in " ".join(text.split())


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("maps-")])
def test_problems_are_plain_values(name: str) -> None:
    for each in result(name).problems:
        assert each.rule in RULES
        assert each.to_dict()["rule"] == each.rule
        assert "{" not in each.hint


def test_lanes() -> None:
    assert messages._lanes(0b101) == " lanes 0, 2"
