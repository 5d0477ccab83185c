"""Pairs of expressions that differ by a rewriting: no wrong verdict on any of them."""

import numpy as np
import pytest

from fragmenta.inspect.sameness.following import follow, run_plain
from fragmenta.inspect.sameness.naming import name_roots, roots
from tests.sameness import fuzzing, rewriting
from tests.thinning import THOROUGH

COUNT = 200


@pytest.fixture(scope="module")
def followed():
    given = list(rewriting.pairs(COUNT, 5))
    x, y = rewriting.memory(COUNT)
    found = []
    for side, layout in ((0, "plain"), (1, "shuffled"), (1, "shared")):
        program = (rewriting.call([each[side] for each in given], x, y, layout),)
        memory = roots(program)
        name_roots(memory)
        found.append((follow(program, memory), program, memory))
    return given, x, y, found


def equal(one, two):
    (left,), (right,) = one.outputs, two.outputs
    same = (left.hashes.u == right.hashes.u) & (left.hashes.v == right.hashes.v)
    return same.reshape(left.shape)


@pytest.mark.long
@pytest.mark.parametrize("other", [1, 2], ids=["shuffled", "shared"])
def test_the_expressions_are_equal_exactly_where_the_oracle_says_so(followed, other):
    given, _, _, found = followed
    same = equal(found[0][0], found[other][0])
    wanted = [rewriting.normal(a) == rewriting.normal(b) for a, b in given]
    assert same.all(axis=0).tolist() == wanted
    assert same.any(axis=0).tolist() == wanted
    assert 60 < sum(wanted) < 180  # both kinds are there


def test_equal_expressions_have_equal_bits_for_other_inputs(followed):
    given, x, y, found = followed
    wanted = np.array([rewriting.normal(a) == rewriting.normal(b) for a, b in given])
    random, apart = np.random.default_rng(2), np.zeros(COUNT, bool)
    for scale in (1, 12, 20):
        x[...] = random.standard_normal(x.shape) * np.exp2(
            random.integers(-scale, scale, x.shape)
        )
        one, two = (run_plain(found[n][1], found[n][2], [y])[0] for n in (0, 1))
        apart |= (one.view(np.uint32) != two.view(np.uint32)).any(axis=0)
    assert not apart[wanted].any()
    assert apart[~wanted].mean() > 0.8  # nearly all of the others are seen to differ


def test_an_oracle_that_commutes_everything_would_be_wrong():
    a, b = rewriting.Leaf(0), rewriting.Leaf(1)
    minus = [rewriting.Op("sub.rn.f32", each) for each in ((a, b), (b, a))]
    assert rewriting.normal(minus[0]) != rewriting.normal(minus[1])


@pytest.mark.parametrize("seed", range(16) if THOROUGH else [3])
def test_random_pairs_in_which_threads_choose_their_inputs(seed):
    """Of the same two expressions, some threads have equal ones and others do not."""
    found = fuzzing.portion(seed, fuzzing.SHAPES if THOROUGH else 14)
    assert (found["wrong_same"], found["wrong_different"]) == (0, 0)
    assert found["pairs"] // 3 < found["equal"] < found["pairs"] - 500


def test_a_fuzzer_with_a_wrong_oracle_finds_something(monkeypatch):
    """If it took divisions as commutative, some would be wrongly different."""
    monkeypatch.setitem(rewriting.COMMUTE, "div.rn.f32", 2)
    assert fuzzing.portion(3, 14)["wrong_different"]
