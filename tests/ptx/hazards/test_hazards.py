"""Every wrong kernel is reported with its rule, and no right one, in any schedule.

The bits of kernels that are right are those of an H200, in every schedule.
"""

import json
import os
import re
import zlib
from pathlib import Path

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.cuda.tools import assembler
from fragmenta.ptx.rules import INFO
from fragmenta.reference.isa.target import number as target_number
from tests.ptx.hazards import running
from tests.ptx.hazards.cases import GLOBAL, READ, SHARED, WRITE, Case, cases
from tests.thinning import kinds

SCHEDULES = ("eager", "lazy", 1)
COMPLETE = bool(os.environ.get("FRAGMENTA_HOPPER"))
RIGHT = [case for case in cases() if not case.bug]
WRONG = [case for case in cases() if case.bug]


def kind(case: Case) -> tuple[object, ...]:
    """A mistake in a source that must be reported in one way is of one kind."""
    mistake = case.row.mistakes[case.bug]
    return case.row.source, mistake.rules, mistake.severity


CHOSEN = WRONG if COMPLETE else kinds(WRONG, kind, 30)
SOURCES = RIGHT if COMPLETE else kinds(RIGHT, lambda case: case.row.source, 12)


def schedules(case: Case) -> tuple[str | int, ...]:
    """One schedule, the same every time, and all of them in turn; ``make hopper``: all."""
    if COMPLETE:
        return SCHEDULES
    return (SCHEDULES[zlib.crc32(case.name.encode()) % len(SCHEDULES)],)


@pytest.mark.parametrize("case", SOURCES, ids=[case.name for case in SOURCES])
def test_nothing_is_said_about_a_right_kernel(case: Case) -> None:
    for schedule in schedules(case):
        said, arrays = running.launch(case, schedule)
        assert not [each for each in said if each.severity != INFO]
        assert running.left(case.row, arrays) == running.expected(case)


@pytest.mark.parametrize("case", RIGHT, ids=[case.name for case in RIGHT])
def test_a_recording_is_what_numpy_computes(case: Case) -> None:
    if case.row.entry in running.RESULTS:
        assert running.expected(case) == running.computed(case)


@pytest.mark.parametrize("case", CHOSEN, ids=[case.name for case in CHOSEN])
def test_a_wrong_kernel_is_reported(case: Case) -> None:
    for schedule in schedules(case):
        said, _ = running.launch(case, schedule)
        mistake = case.row.mistakes[case.bug]
        found = {each.severity for each in said if each.rule in mistake.rules}
        assert found, said
        assert not mistake.severity or mistake.severity in found
        others = {each.rule for each in said if each.severity != INFO}
        assert others <= {*mistake.rules, *mistake.also}


def bad_maps() -> dict[str, object]:
    """Arguments for ``box`` and ``pointed`` that are no tensor map of rank 2."""
    deep = np.zeros((2, 16, 32), np.uint32)
    return {
        "box-zeros": bytes(128),
        "box-rank": ptx.tensor_map(deep, (1, 8, 16)),
        "pointed-alignment": ptx.pointer(np.zeros(64, np.uint32), 32),
    }


@pytest.mark.parametrize("which", ["box-zeros", "box-rank", "pointed-alignment"])
def test_a_bad_tensor_map_is_reported(which: str) -> None:
    entry = which.partition("-")[0]
    kernel = running.loaded("maps", 0).kernels[entry]
    arguments = [bad_maps()[which], np.zeros(128, np.uint32)]
    if entry == "box":
        arguments.append(np.zeros(512, np.uint32))
    said = running.reported(kernel, 1, 128, arguments)
    assert [(each.rule, each.severity) for each in said] == [
        ("bad-tensor-map", "error")
    ]


@pytest.mark.parametrize(
    ("source", "bug"), sorted({(case.row.source, case.bug) for case in RIGHT + CHOSEN})
)
def test_the_assembler_takes_every_kernel(source: str, bug: int) -> None:
    target = max(running.target(source), "sm_90a", key=target_number)
    assert assembler.assemble(running.text(source, bug), target, "-O0")


@pytest.mark.parametrize("source", sorted({case.row.source for case in RIGHT}))
def test_nothing_is_said_about_a_right_kernel_before_it_runs(source: str) -> None:
    said = [each for each in running.loaded(source, 0).check() if each.severity != INFO]
    assert {each.rule for each in said} <= {"aligned"}  # a launch knows better


def test_every_kernel_of_a_source_is_launched() -> None:
    known = {(case.row.source, case.row.entry) for case in cases()}
    for source in {source for source, _ in known}:
        missing = {
            entry
            for entry in running.loaded(source, 0).kernels
            if (source, entry) not in known
        }
        assert missing <= {"pointed"}  # test_a_bad_tensor_map_is_a_fault has it


def test_every_rule_has_wrong_kernels() -> None:
    """At least two mistakes for each rule that has a page."""
    pages = Path(running.__file__).parents[3] / "docs" / "hazards"
    rules = [rule for case in WRONG for rule in case.row.mistakes[case.bug].rules]
    for page in pages.glob("*.md"):
        assert rules.count(page.stem) >= 2 or page.stem == "bad-tensor-map", page.stem


def test_the_page_counts_right() -> None:
    """What it says about the kernels here, and about racecheck."""
    root = Path(running.__file__).parents[3]
    page = " ".join((root / "docs" / "hazards.md").read_text("utf-8").split())
    (counts,) = re.findall(
        r"more than (\d+) small kernels that are right and more than (\d+) variants",
        page,
    )
    for said_count, some in zip(counts, (RIGHT, WRONG), strict=True):
        assert int(said_count) < len(some) < int(said_count) + 50
    measured = json.loads(running.GOLDEN.with_name("racecheck.json").read_text("utf-8"))
    said, made = measured["said"], measured["made"]
    right = [said[case.name] for case in RIGHT if case.name in said]
    wrong = [said[case.name] for case in WRONG if case.name in said and races(case)]
    assert made["date"] in page
    for some in (right, wrong):
        assert f"{len(some) - some.count('nothing')} of {len(some)}" in page


def races(case: Case) -> bool:
    """Whether a mistake is a race in shared memory."""
    rules = {*case.row.mistakes[case.bug].rules}
    return bool(rules & {SHARED, READ, WRITE}) and GLOBAL not in rules


def test_a_racy_load_that_nobody_uses_is_a_note() -> None:
    kernel = running.loaded("values", 0).kernels["replicated"]
    x, out = np.zeros(32, np.uint32), np.zeros(32, np.uint32)
    result = kernel.launch(1, 64, [x, out], watch="report")
    (said,) = result.problems
    assert (said.rule, said.severity, said.hint) == (GLOBAL, INFO, "")
    assert "nobody uses the value that was read" in said.message
    # The run that follows the value leaves memory as the launch left it.
    assert (x == 1).all()
    assert (out == 7).all()


def test_an_arrival_at_a_block_that_has_ended_is_ignored() -> None:
    kernel = running.loaded("values", 1).kernels["late_arrival"]
    flag, out = np.zeros(1, np.uint32), np.zeros(32, np.uint32)
    result = kernel.launch(2, 32, [flag, out], cluster=2, watch="report")
    assert result.complete
    assert [each.rule for each in result.problems if each.severity == "error"] == [
        SHARED
    ]
    assert "the arrival is ignored" in result.problems[0].message
    assert (out == np.arange(32)).all()
    with pytest.raises(ptx.KernelFault, match="have all ended"):
        kernel.launch(2, 32, [np.zeros(1, np.uint32), out], cluster=2)


def test_a_launch_that_a_fault_stopped_is_not_complete() -> None:
    kernel = running.loaded("values", 0).kernels["two_warps_global"]
    short = np.zeros(0, np.uint32)  # what is stored near the end would go on
    assert not kernel.launch(1, 64, [short], watch="report").complete
    assert kernel.launch(1, 64, [np.zeros(32, np.uint32)], watch="report").complete
