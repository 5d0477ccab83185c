"""The explanation ends in the bits that the loops compute."""

import math
from fractions import Fraction

import numpy as np
import pytest

from fragmenta.reference.arithmetic import explain_steps, model, multiply
from tests.thinning import repeats, some

from .inputs import KINDS, operands
from .test_multiply import EXACT, FLOATING, _label, _model


def _explain(a, b, c, how, more, m, n):
    picked = {
        "index": lambda x: x[0, m],
        "scale_a": lambda x: x[0, m],
        "scale_b": lambda x: x[0, :, n],
    }
    some = {name: picked[name](array) for name, array in more.items()}
    return explain_steps(a[0, m], b[0, :, n], c[0, m, n], how, **some)


# Every second model.
@repeats(2)
@pytest.mark.parametrize("row", FLOATING + EXACT, ids=_label)
def test_the_bits_are_those_of_multiply(row):
    how = _model(row)
    chained = 2 if how.c == how.d else 1
    for turn, kind in enumerate(KINDS):
        rng = np.random.default_rng(5)
        a, b, c, more = operands(rng, how, kind, 1, 2, 2, chained)
        d = multiply(a, b, c, how, **more)
        for m, n in some(np.ndindex(2, 2), 4, turn):
            told = _explain(a, b, c, how, more, m, n)
            assert told.bits == d[0, m, n], (kind, hex(told.bits), hex(d[0, m, n]))


@pytest.mark.parametrize("row", FLOATING[13:31], ids=_label)
def test_what_is_lost_is_what_is_missing(row):
    how = _model(row)
    rng = np.random.default_rng(6)
    a, b, c, more = operands(rng, how, "wide", 1, 2, 2)
    for m, n in np.ndindex(2, 2):
        told = _explain(a, b, c, how, more, m, n)
        for step in told.steps:
            if step.operation != "fused" or not isinstance(step.total, Fraction):
                continue
            unit = Fraction(2) ** (step.emax - how.fraction)
            for term in step.terms:
                assert term.aligned + term.lost == term.value
                assert abs(term.lost) < unit
                assert term.aligned % unit == 0
                assert term.exponent is None or term.exponent <= step.emax
            assert sum(term.aligned for term in step.terms) == step.total


def test_an_exact_element_differs_by_nothing():
    how = model("sm_80", "s8", "s8", "s32", "s32", 32)
    a = np.arange(32, dtype=np.uint8)
    told = explain_steps(a, a, 5, how)
    assert told.difference == 0
    assert told.exact == 5 + sum(x * x for x in range(32))


def test_infinity_has_no_difference():
    how = model("sm_90", "f16", "f16", "f32", "f32", 16)
    a = np.full(16, 0x7C00, np.uint16)
    told = explain_steps(a, np.full(16, 0x3C00, np.uint16), 0, how)
    assert told.value == math.inf
    assert math.isnan(told.difference)
