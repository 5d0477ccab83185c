"""Verdicts: same, same here, different, unknown."""

import numpy as np
import pytest

import fragmenta as fm
from fragmenta import ptx
from fragmenta.errors import BadCall
from tests.sameness.kernels import call

X = np.random.default_rng(0).standard_normal((32, 4)).astype(np.float32)
Y = np.zeros(32, np.float32)


def asked(one, two, x=X, **options):
    return ptx.same(call(one, x, Y), call(two, x, Y), **options)


@pytest.mark.parametrize(
    "one, two", [("chain", "turned"), ("contracted", "fused"), ("tree", "tree")]
)
def test_equal_expressions_are_the_same(one, two):
    found = asked(one, two)
    assert found.verdict == "same"
    assert found
    assert (found.conditions, found.open, found.apart) == ((), (), 0)
    assert not Y.any()  # arrays are as they were


@pytest.mark.parametrize("one, two", [("chain", "tree"), ("fused", "apart")])
def test_a_witness_runs(one, two):
    found = asked(one, two)
    assert found.verdict == "different"
    x = found.witness.inputs["x"].reshape(32, 4).copy()
    left, right = np.zeros(32, np.float32), np.zeros(32, np.float32)
    call(one, x, left).run()
    call(two, x, right).run()
    at = found.witness.element
    assert left[at] == found.witness.first != found.witness.second == right[at]
    assert "part" in found.reason


def test_inputs_that_separate_are_searched():
    """With ones, all sums are exact: other inputs must be tried."""
    x = np.ones((32, 4), np.float32)
    found = asked("chain", "tree", x)
    assert (found.verdict, found.witness is not None) == ("different", True)
    assert found.tries >= 1
    assert (x == 1).all()


def test_without_tries_it_is_the_same_here_only():
    found = asked("chain", "tree", np.ones((32, 4), np.float32), tries=0)
    assert found.verdict == "same here"
    assert not found


def test_comparisons_are_conditions():
    found = asked("compared", "compared")
    assert found.verdict == "same"
    assert [each.kind for each in found.conditions] == ["compared"]
    assert "setp.gt.f32" in str(found)


def test_bits_of_data_that_are_used_otherwise_are_unknown():
    found = asked("masked", "masked")
    assert found.verdict == "unknown"
    assert {each.kind for each in found.open} == {"lost"}


def test_a_shift_that_only_a_register_knows_is_unknown():
    assert asked("exponent", "exponent").verdict == "unknown"


def test_the_sign_bit_is_not_lost():
    """An exclusive or with a constant is an operation: not a copy, and not unknown."""
    assert asked("negated", "negated").verdict == "same"
    assert asked("negated", "copied").verdict == "different"


def test_whole_numbers_of_data_have_expressions():
    assert asked("integer", "integer").verdict == "same"


def test_atomic_additions_are_not_deterministic():
    body = "mov.f32 %f9, %f1;"
    store = "red.global.add.f32 [%rd2], %f9;"
    made = [call("", X, Y, body, store) for _ in range(2)]
    found = ptx.same(*made)
    assert found.verdict == "unknown"
    assert "not deterministic" in str(found)


CAS = """
again:
    ld.volatile.global.u32 %r7, [%rd2];
    mov.b32 %f10, %r7; add.f32 %f11, %f10, %f1; mov.b32 %r8, %f11;
    atom.global.cas.b32 %r9, [%rd2], %r7, %r8;
    setp.ne.b32 %p3, %r9, %r7; @%p3 bra again;"""


def test_additions_by_exchanges_are_not_deterministic():
    made = [call("", X, Y, "mov.f32 %f9, %f1;", CAS) for _ in range(2)]
    found = ptx.same(*made)
    assert found.verdict == "unknown"
    assert "atomic" in {each.kind for each in found.open}


def test_a_ticket_is_a_condition():
    """What an atomic operation on whole numbers gives may decide the order of sums."""
    ticket = "mov.u64 %rd8, count; atom.shared.add.u32 %r9, [%rd8], 1;"
    body = f".shared .b32 count; {ticket} mov.f32 %f9, %f1;"
    found = ptx.same(*(call("", X, Y, body) for _ in range(2)))
    assert found.verdict == "same"
    assert [each.kind for each in found.conditions] == ["met"]


def of_rows(x):
    """A launch of 24 threads on 24 rows."""
    return ptx.Call(call("chain").kernel, 1, 24, [x, np.zeros(24, np.float32)])


def test_views_share_names():
    part = X.reshape(-1)[32:].reshape(24, 4)
    assert ptx.same(of_rows(X[8:]), of_rows(part)).verdict == "same"
    assert ptx.same(of_rows(X[8:]), of_rows(X[7:31])).verdict == "different"


def test_labels_name_copies():
    copy = X[8:].copy()
    labels = ({}, {"x": ("x", 32)})
    assert ptx.same(of_rows(X[8:]), of_rows(copy), labels=labels).verdict == "same"
    assert ptx.same(of_rows(X[8:]), of_rows(copy)).verdict == "different"


def test_by_value_holds_for_these_numbers_only():
    found = asked("chain", "chain", by_value=["x"])
    assert found.verdict == "same"
    assert "x" in found.by_value


def test_several_launches_are_one_program():
    """The results of one launch are the inputs of the next."""
    z = np.zeros((32, 4), np.float32)
    first = call("chain", X, z.reshape(-1)[:32])
    second = call("tree", z, Y)
    assert ptx.same([first, second], [first, second], outputs=[("y", "y")])


def test_a_launch_on_another_target():
    made = call("chain", X, Y)
    assert ptx.same(made, made.on("sm_90")).verdict == "same"


def test_the_assertion_says_where_expressions_part(assert_same_bits_for_all_inputs):
    assert_same_bits_for_all_inputs(call("chain", X, Y), call("turned", X, Y))
    with pytest.raises(AssertionError, match="part"):
        fm.assert_same_bits_for_all_inputs(call("chain", X, Y), call("tree", X, Y))


def test_wrong_calls_are_refused():
    with pytest.raises(BadCall, match="no option watch"):
        ptx.Call(call("chain").kernel, 1, 32, [X, Y], watch=True)
    with pytest.raises(BadCall, match="a launch is a"):
        ptx.same([], [])
    with pytest.raises(BadCall, match="tries"):
        asked("chain", "chain", tries=-1)
