"""A few seconds of hostile accesses, and whether they would see anything."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pytest

import fragmenta
from fragmenta.ptx.opcodes import TABLE
from tests import thinning
from tests.fuzz.bounds import forms, mutants, plan
from tests.fuzz.bounds.children import Child
from tests.fuzz.bounds.harness import Setting

REPORT = Path(__file__).parents[3] / "docs" / "verification" / "bounds.json"


def some(family: str, count: int) -> tuple[forms.Form, ...]:
    """A few instructions of a family that are compiled."""
    found = [f for f in forms.table_forms(2026) if f.family == family]
    random.Random(family).shuffle(found)
    good = (f for f in found if forms.fate(f.text).supported)
    return tuple(f for f, _ in zip(good, range(count), strict=False))


@pytest.mark.long
@pytest.mark.parametrize(
    ("family", "setting"),
    [
        ("ld", Setting()),
        ("st", Setting(low=True)),
        ("atom", Setting()),
        ("cp", Setting(threads=1, cluster=2)),
        ("mbarrier", Setting(threads=1, schedule="lazy")),
    ],
)
def test_nothing_outside_is_touched(family: str, setting: Setting) -> None:
    blocks = 2048 if setting.threads == 32 else 96
    found = plan.Job(family, some(family, 6), setting, blocks, 2026).run()
    assert not found.findings, "\n".join(found.findings)
    assert found.faults > blocks // 20
    assert found.accesses > blocks // 4


@pytest.mark.parametrize("family", ["wgmma", "wgmma.sp", "tcgen05.mma", "tcgen05.cp"])
def test_descriptors_reach_the_memory_that_they_name(family: str) -> None:
    """Some blocks run to their end, so descriptors near right ones are drawn."""
    form = next(f for f in forms.catalogue_forms() if f.family == family and f.reads)
    setting = Setting(threads=form.threads)
    found = plan.Job(family, (form,), setting, 48, 2026).run()
    assert not found.findings, "\n".join(found.findings)
    assert 24 < found.faults < 48


def test_hostile_texts_are_refused_or_bounded() -> None:
    found = plan.Texts("texts", 60, 2026).run()
    assert not found.findings, "\n".join(found.findings)
    assert found.refused > 30


def test_parameters_and_calls_are_refused_or_bounded() -> None:
    found = plan.Modules("modules", 7, 40).run()
    assert not found.findings, "\n".join(found.findings)
    assert found.refused > found.texts // 4


def test_every_line_with_an_address_is_among_the_instructions() -> None:
    named = {form.text.split()[0].split(".")[0] for form in forms.table_forms(1)}
    assert named == {
        line.opcode
        for some in TABLE.lines.values()
        for line in some
        if any(slot.address for slot in line.operands)
    }
    listed = {form.family for form in forms.catalogue_forms()}
    assert listed >= {"wmma.load", "wmma.store", "ldmatrix", "stmatrix", "wgmma"}
    assert listed >= {"tcgen05.ld", "tcgen05.st", "tcgen05.cp", "tcgen05.mma"}


# ── a fuzzer that finds nothing must be able to ─────────────────────────────


@pytest.mark.parametrize("mutant", mutants.MUTANTS, ids=lambda each: each.name)
def test_what_a_mutant_changes_is_there(mutant: mutants.Mutant) -> None:
    for change in mutant.changes:
        path = Path(fragmenta.__file__).parent / change.file
        assert change.old in path.read_text("utf-8"), change


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    thinning.some(
        ["the parameters of a function", "a rank that is not in the cluster"], 2
    ),
)
def test_a_bound_that_is_removed_is_seen(name: str) -> None:
    (mutant,) = (each for each in mutants.MUTANTS if each.name == name)
    assert mutants.caught(mutant)["caught"]


def test_a_child_that_dies_is_a_finding() -> None:
    child = Child([sys.executable, "-c", "import os; os.kill(os.getpid(), 11)"])
    assert child.run(0)["findings"] == ["killed by SIGSEGV"]
    assert child.run(1)["findings"] == ["killed by SIGSEGV"]
    child.close()


def test_the_report_says_what_was_run() -> None:
    report = json.loads(REPORT.read_text(encoding="utf-8"))
    assert report["accesses"] >= 10_000_000
    assert report["findings"] == []
    assert report["missed"] == []
    assert [each["name"] for each in report["mutants"]] == [
        each.name for each in mutants.MUTANTS
    ]
