"""Models that give the same bits, and inputs that separate the others."""

import itertools
from collections import defaultdict

import numpy as np
import pytest

from fragmenta.errors import BadCall, Error
from fragmenta.reference.arithmetic import equality as eq
from fragmenta.reference.arithmetic import model
from fragmenta.reference.execution.mma import numeric_model
from fragmenta.reference.isa.families import catalogue
from tests.thinning import some

_SCALED = (("mxf4nvf4", "ue4m3", 4), ("mxf4nvf4", "ue8m0", 2), ("mxf4", "ue8m0", 2))


def models_of_tcgen05():
    """Those that the instruction descriptor decides, not the mnemonic."""
    rows = [("f16", "f32", 16), ("bf16", "f32", 16), ("f16", "f16", 16)]
    rows += [("tf32", "f32", 8), ("s8", "s32", 32), ("u8", "s32", 32)]
    rows += [(a, d, 32) for a in ("e4m3", "e5m2", "e2m1") for d in ("f16", "f32")]
    for target, sparse in itertools.product(("sm_100a", "sm_110a"), (False, True)):
        for a, d, k in rows:
            more = {"unit": "tcgen05", "sparse": sparse}
            yield model(target, a, a, d, d, k * (1 + sparse), **more)
        for kind, scale, vector in () if sparse else _SCALED:
            more = {"unit": "tcgen05", "kind": kind, "scale": scale}
            yield model(
                target, "e2m1", "e2m1", "f32", "f32", 64, scale_vec=vector, **more
            )


def all_models():
    """One model of each kind that a catalogue of instructions and targets has."""
    found = {}
    known = list(models_of_tcgen05())
    for op in catalogue():
        if not op.multiplies or "a" not in op.types:
            continue
        for target in op.requires.targets:
            try:
                known.append(numeric_model(op, target))
            except Error:  # in no publication
                continue
    for each in known:
        key = eq.signature(each), eq.normal_form(each, each.k), each.k, each.unit
        found.setdefault(key, each)
    return list(found.values())


def pairs():
    of = defaultdict(list)
    for each in all_models():
        of[eq.signature(each)].append(each)
    for alike in of.values():
        for x, y in itertools.combinations(alike, 2):
            if not eq.why_not_comparable(x, y):
                yield x, y


PAIRS = list(pairs())
EQUAL = [pair for pair in PAIRS if eq.equal_models(*pair)]
UNEQUAL = [pair for pair in PAIRS if not eq.equal_models(*pair)]


def test_there_are_pairs_of_both_kinds():
    assert len(EQUAL) > 50
    assert len(UNEQUAL) > 300


@pytest.mark.parametrize("x, y", some(UNEQUAL, 25), ids=str)
def test_a_pair_that_differs_has_a_witness(x, y):
    found = eq.separate(x, y)
    assert found is not None
    assert found.run(x) == found.first != found.second == found.run(y)


@pytest.mark.parametrize("x, y", some(EQUAL, 20), ids=str)
def test_a_pair_that_is_equal_has_the_same_bits(x, y):
    random = np.random.default_rng(3)
    for _ in range(20):
        given = eq.Inputs(x, eq.common_k(x, y), random)
        assert np.array_equal(given.run(x), given.run(y))


def test_a_limit_that_no_input_reaches_does_not_separate():
    short, long = (
        model("sm_80", "u8", "u8", "s32", "s32", k, satfinite=True) for k in (16, 32)
    )
    assert eq.equal_models(short, long)
    short, long = (
        model("sm_80", "s8", "u8", "s32", "s32", k, satfinite=True) for k in (16, 32)
    )
    assert not eq.equal_models(short, long)


def test_a_step_ignores_the_order_of_its_products_only():
    ampere, hopper = (
        model(t, "f16", "f16", "f32", "f32", 16) for t in ("sm_80", "sm_90")
    )
    assert eq.normal_form(ampere, 16)[1] == (
        frozenset(range(8)),
        frozenset(range(8, 16)),
    )
    assert eq.normal_form(hopper, 16)[1] == (frozenset(range(16)),)


def test_models_of_different_operands_are_not_compared():
    half, brain = (model("sm_90", t, t, "f32", "f32", 16) for t in ("f16", "bf16"))
    with pytest.raises(BadCall, match="they take different operands: f16 x f16"):
        eq.separate(half, brain)
    x, y = (model("sm_75", "f16", "f16", "f16", "f32", k, unit="wmma") for k in (8, 16))
    assert "cannot be the f16 accumulator" in eq.why_not_comparable(x, y)
    with pytest.raises(BadCall, match="no multiple of 16"):
        eq.normal_form(half, 8)


def test_a_witness_is_reduced():
    ampere, hopper = (
        model(t, "f16", "f16", "f32", "f32", 16) for t in ("sm_80", "sm_90")
    )
    found = eq.separate(ampere, hopper)
    assert np.count_nonzero(found.a) < 8
    assert not found.b[found.a[0] == 0].any()
