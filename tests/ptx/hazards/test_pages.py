"""The pages on hazards show what is really printed, and repairs that work."""

import pytest

from fragmenta.ptx.rules import RULES
from tests.ptx.hazards import pages
from tests.ptx.hazards.cases import cases
from tests.thinning import some

ROOT = pages.FOLDER.parents[1]


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
    drawn = pages.picture(pages.PICTURES[name])
    assert (pages.IMAGES / f"{name}.svg").read_text("utf-8") == drawn


@pytest.mark.parametrize("rule", pages.PAGES)
def test_a_page_has_its_picture(rule: str) -> None:
    name = f"hazard-{rule}.svg"
    assert f"](../images/{name})" in (pages.FOLDER / f"{rule}.md").read_text("utf-8")
    assert (pages.IMAGES / name).read_text("utf-8") == pages.page_picture(rule)


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
    assert kept == pages.readme_picture()


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
