"""Instructions are shared: nobody can change one for others."""

import copy
import pickle

import pytest

import fragmenta as fm

NAME = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"


@pytest.mark.parametrize(
    "mapping",
    [
        lambda op: op.values,
        lambda op: op.types,
        lambda op: op.fragments,
        lambda op: op.row.allowed,
        lambda op: op.row.defaults,
        lambda op: op.row.facts,
    ],
)
def test_nothing_of_an_instruction_can_be_changed(mapping):
    op = fm.instruction(NAME)
    before = dict(mapping(op))
    with pytest.raises(TypeError):
        mapping(op)["shape"] = "m16n8k99"
    assert dict(mapping(fm.instruction(NAME))) == before


def test_values_that_were_given_stay_with_their_giver():
    op = fm.instruction(NAME)
    values = dict(op.values)
    made = type(op)(op.form, op.row, values)
    values["shape"] = "m16n8k99"
    assert made == op


def test_copies_are_the_same_instruction():
    op = fm.instruction(NAME)
    for made in (pickle.loads(pickle.dumps(op)), copy.copy(op), copy.deepcopy(op)):
        assert made == op
        assert made.a.shape == (16, 16)
