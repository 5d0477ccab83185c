"""The rows of the table of rules, and the cases that compiled code detects."""

import copy
import pickle
import string

import pytest

from fragmenta.engine.units.faults import CopyFault
from fragmenta.ptx import rules
from fragmenta.ptx.rules import RULES, SEVERITIES, Rule
from fragmenta.watch.races.shadow.detected import BY_NUMBER, Detected

ROWS = {name: each for name, each in vars(rules).items() if isinstance(each, Rule)}


@pytest.mark.parametrize("constant", ROWS)
def test_a_row(constant: str) -> None:
    row = ROWS[constant]
    assert row.name == constant.lower().replace("_", "-")
    assert row.severity in SEVERITIES
    assert row.meaning.endswith(".")
    assert row.meaning[0].isupper()
    filled = {field for _, field, _, _ in string.Formatter().parse(row.before) if field}
    assert filled <= {"other", "verb", "user"}
    assert not (row.race or row.stops or row.page) or row.launch
    assert row.race >= row.symmetric
    assert pickle.loads(pickle.dumps(row)) is row is copy.deepcopy(row)


def test_every_row_is_found_by_its_name() -> None:
    assert {each.name: each for each in ROWS.values() if each is each.reported} == RULES
    for each in ROWS.values():
        assert rules.named(each.name) is each
        assert rules.of_fault(each.name).name in RULES
    with pytest.raises(AssertionError, match="two rows for leak"):
        Rule("leak", rules.ERROR, "Twice.")


def test_a_fault_of_a_copy_keeps_its_row_between_processes() -> None:
    fault = pickle.loads(pickle.dumps(CopyFault(rules.BAD_SIZE, "too large")))
    assert fault.rule is rules.BAD_SIZE
    assert str(fault) == "too large"


@pytest.mark.parametrize("case", Detected)
def test_a_case_says_its_rule_and_severity(case: Detected) -> None:
    assert BY_NUMBER[int(case)] is case
    assert case.rule.launch
    assert case.severity in SEVERITIES
    assert not case.same_value or (case.severity == rules.INFO and case.rule.race)


def test_what_two_accesses_can_be_has_words() -> None:
    told = {case.rule for case in Detected} - {rules.UNINITIALISED}
    assert all(each.before for each in told)
