"""The committed results of MMA-Sim, where MMA-Sim is not installed.

MMA-Sim is somebody else's model of the same hardware.  It has answered for every
row that it knows (``make published``); its answers are replayed here.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from answers import Answers
from survey import RELATIVES, any_width, every_multiplication, survey

from fragmenta.reference.arithmetic import multiply
from fragmenta.reference.execution.mma import numeric_model
from fragmenta.reference.isa.target import number as architecture
from fragmenta.reference.registers.dtype import dtype
from tests.thinning import some

from .edges import highest, lowest
from .inputs import KINDS

ANSWERS = Answers.load()


def known(unit, architecture, name):
    """What MMA-Sim had when the result was made."""
    return (unit, architecture, any_width(name)) in KNOWN


ROOT = Path(__file__).resolve().parents[2]
RESULT = json.loads((ROOT / "docs/published/mma-sim.json").read_text("utf-8"))
KNOWN = {(row["unit"], row["architecture"], row["name"]) for row in RESULT["rows"]}
ROWS, EXCLUDED = survey(known)
every_row = pytest.mark.parametrize("row", some(ROWS, 2), ids=lambda row: row.id)
fused_rows = pytest.mark.parametrize(
    "row",
    some([row for row in ROWS if row.model.form in ("fused", "grouped")], 2, 1),
    ids=lambda row: row.id,
)


def answered(row, how=None):
    """Our D and MMA-Sim's, a tile of every kind of inputs."""
    a, b, c, *scales = ANSWERS.of(row.model).values()
    named = dict(zip(("scale_a", "scale_b"), scales, strict=False))
    ours, theirs = multiply(a, b, c, how or row.model, **named), ANSWERS.results[row.id]
    if row.model.d == "f64":  # whose NaN are those of MMA-Sim's host
        ours, theirs = (np.where(np.isnan(d.view("f8")), 0, d) for d in (ours, theirs))
    return ours, theirs


@every_row
def test_every_row_gives_mma_sims_bits(row):
    ours, theirs = answered(row)
    assert len(theirs) == len(KINDS)
    assert np.array_equal(ours, theirs)


@fused_rows
def test_no_other_parameters_give_them(row):
    """Each number of the table is pinned by the answers: its neighbours fail."""
    how = row.model
    for name, value in neighbours(how):
        ours, theirs = answered(row, replace(how, **{name: value}))
        assert not np.array_equal(ours, theirs), (name, value)


def neighbours(how):
    """One parameter of a model changed a little."""
    names = ["fraction", "keep", *(["floor"] if floor_shows(how) else [])]
    for name in names:
        yield name, getattr(how, name) - 1
        yield name, getattr(how, name) + 1
    yield "rounding", {"rz": "rn", "rn": "rz"}[how.rounding]
    yield "products", how.products // 2
    if how.products < how.stored:
        yield "products", how.products * 2


def floor_shows(how):
    """Whether products can be small enough for the floor under emax to count.

    It counts when the whole sum is at the least accumulator and a product is cut
    below it.  Most types end far above that.
    """
    grouped = how.form == "grouped"
    a, b = (dtype(how.scale),) * 2 if grouped else (dtype(how.a), dtype(how.b))
    least, top = lowest(a) + lowest(b), highest(a) + highest(b)
    cut = how.floor - how.fraction
    if not how.scale or grouped:
        return least < cut - 1
    result = dtype(how.accumulator)
    return top - least > 1 - result.bias - result.fraction_bits - cut + 2


def test_the_floor_is_pinned_where_it_can_be():
    pinned = {
        (row.model.a, row.model.d)
        for row in ROWS
        if row.model.form == "fused" and not row.model.scale and floor_shows(row.model)
    }
    assert pinned == {("f16", "f16"), ("bf16", "f32"), ("tf32", "f32")}


def test_the_answers_are_of_the_rows_that_were_compared():
    assert set(ANSWERS.results) == {row.id for row in ROWS}
    assert ANSWERS.made["inputs"] == RESULT["made"]["inputs"] == list(KINDS)
    assert ANSWERS.made["mmasim"] == RESULT["made"]["mmasim"]


def test_the_committed_result_is_about_this_table():
    """Whoever changes a row has to ask MMA-Sim again."""
    told = {(r["target"], r["unit"], r["name"]): r for r in RESULT["rows"]}
    assert {(row.target, row.unit, row.name) for row in ROWS} == set(told)
    for row in ROWS:
        line = told[row.target, row.unit, row.name]
        found = {name: getattr(row.model, name) for name in line["model"]}
        assert found == line["model"], row.id
        assert line["instructions"] == len(row.instructions)


def test_the_committed_result_is_clean_and_large():
    assert len(RESULT["rows"]) == len(ROWS) > 170
    for line in RESULT["rows"]:
        assert line["different"] == 0, line
        assert line["elements"] >= 1_000_000, line


def test_what_is_left_out_is_what_the_result_says():
    told = {line["reason"]: line for line in RESULT["excluded"]}
    assert {each.reason for each in EXCLUDED} == set(told)
    for each in EXCLUDED:
        assert told[each.reason]["instructions"] == len(each.instructions)
        assert told[each.reason]["targets"] == list(each.targets)


def test_targets_that_mma_sim_does_not_know_compute_as_their_relatives():
    targets = {}
    for op, target in every_multiplication():
        targets.setdefault(str(op), {})[architecture(target)] = (op, target)
    checked = 0
    for on in targets.values():
        for number, relative in RELATIVES.items():
            if number in on and relative in on:
                ours, theirs = (numeric_model(*on[n]) for n in (number, relative))
                # The source of tcgen05 says that this is an assumption.
                alike = replace(ours, target=theirs.target, source=theirs.source)
                assert alike == theirs
                checked += 1
    assert checked > 1000
