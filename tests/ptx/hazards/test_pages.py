"""The pages on hazards show what is really printed, and repairs that work."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from fragmenta.inspect.view import timeline
from fragmenta.ptx.rules import RULES
from tests.ptx.hazards import pages
from tests.ptx.hazards.cases import cases
from tests.thinning import some

ROOT = pages.FOLDER.parents[1]


@cache
def drawn(name: str) -> tuple[str, list[Any]]:
    """A picture and what it is drawn from, once for all tests."""
    found: list[Any] = []
    document = timeline._document

    def kept(pictures: list[Any], *given: Any) -> str:
        found.extend(pictures)
        return document(pictures, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timeline, "_document", kept)
        if name in pages.PICTURES:
            return pages.picture(pages.PICTURES[name]), found
        if name == "timeline-readme":
            return pages.readme_picture(), found
        return pages.page_picture(name.removeprefix("hazard-")), found


@pytest.mark.parametrize("rule", pages.PAGES)
def test_a_page_shows_the_report(rule: str) -> None:
    page = pages.read(rule)
    assert page.report == pages.report(page)


@pytest.mark.parametrize("rule", pages.PAGES)
def test_the_repair_is_one(rule: str) -> None:
    code = pages.repaired(pages.read(rule))
    assert pages.problems(rule, code, right=True) == []


@pytest.mark.parametrize("name", pages.PICTURES)
def test_a_picture_is_drawn_from_a_launch(name: str) -> None:
    kept = (pages.IMAGES / f"{name}.svg").read_text("utf-8")
    assert kept == drawn(name)[0]


@pytest.mark.parametrize("rule", pages.PAGES)
def test_a_page_has_its_picture(rule: str) -> None:
    name = f"hazard-{rule}"
    page = (pages.FOLDER / f"{rule}.md").read_text("utf-8")
    assert f"](../images/{name}.svg)" in page
    assert (pages.IMAGES / f"{name}.svg").read_text("utf-8") == drawn(name)[0]


@pytest.mark.parametrize("rule", some(pages.PAGES, 8, start=2))
def test_a_page_has_its_replay_beside_the_repair(rule: str) -> None:
    found = pages.replay(rule)
    *wrong, right = found.runs
    assert [each.name for each in found.runs] == ["eager", "lazy", "3", "repaired"]
    assert right.problems == []
    for run in wrong:
        problem = next(each for each in run.problems if each["code"] == rule)
        step = max(problem["steps"])
        assert step >= 0
        there = run.aligned(step, right)
        assert (right.warps[right.steps.warp[there]]) == run.warps[run.steps.warp[step]]


def test_the_readme_has_the_picture_of_its_kernel() -> None:
    kept = (pages.IMAGES / "timeline-readme.svg").read_text("utf-8")
    assert kept == drawn("timeline-readme")[0]


def late_phases(picture: Any) -> Iterator[tuple[float, float]]:
    """Where each phase ends in a picture, and where the copies that it counts do."""
    seen, copies = picture.seen, {}
    for number, (_, bar) in seen.works.items():
        note = seen.notes[number]
        for rank, offset, phase in note.about[2] if note.what == "copy" else ():
            key = "mbarrier", int(rank), int(offset), str(phase)
            copies.setdefault(key, []).append((bar, picture.until(bar)))
    for row in (row for band in seen.bands for row in band.rows):
        for bar, start, end in picture.bars(row):
            for copy, until in copies.get((*row.key, bar.label), []):
                if start <= copy.start <= end:
                    yield end, until


DRAWN = [*pages.PICTURES, "timeline-readme", *(f"hazard-{e}" for e in pages.PAGES)]


@pytest.mark.parametrize("name", DRAWN)
def test_no_phase_ends_before_a_copy_that_it_counts(name: str) -> None:
    _, found = drawn(name)
    every = [pair for each in found for pair in late_phases(each)]
    assert all(end >= until for end, until in every)
    for each in found:  # what was read too early was read before the phase ended
        for mark in each.found if name in EARLY else ():
            late = [bar for bar, of in each.late.items() if of is mark]
            assert all(p.time < each.until(bar) for p in mark.points for bar in late)
    assert every or name not in EARLY


EARLY = ("timeline-readme", "hazard-read-before-arrival")


def test_every_rule_of_a_launch_has_a_page_and_a_case() -> None:
    ruled = {each.name for each in RULES.values() if each.page}
    assert {*pages.PAGES} == ruled
    assert {*pages.SPECIAL, *pages.STRICT} <= ruled
    assert all((ROOT / each.page).is_file() for each in RULES.values() if each.page)
    wrong = [case.row.mistakes[case.bug] for case in cases() if case.bug]
    assert ruled <= {rule for each in wrong for rule in each.rules}


def test_the_index_explains_a_report_of_today() -> None:
    index = pages.FOLDER.with_suffix(".md").read_text("utf-8")
    assert pages.read("read-before-arrival").report in index
