"""A number with a zero point, kept from 0 to 255 and stored as a byte, is quantised."""

from __future__ import annotations

import numpy as np
import pytest

from tests.numerics.test_numerics import ONE, kernel, launched

CODES = """cvt.rni.s32.f32 %r5, %f3; add.s32 %r8, %r5, {zero};
    max.s32 %r6, %r8, 0; min.s32 %r6, %r6, 255; {then}
    sub.s32 %r7, %r6, {zero}; cvt.rn.f32.s32 %f1, %r7;"""
STORED = "st.global.u8 [%rd4], %r6;"
EXPONENT = """cvt.rni.s32.f32 %r5, %f3; add.s32 %r8, %r5, {zero};
    max.s32 %r6, %r8, 0; min.s32 %r6, %r6, 255;
    shl.b32 %r7, %r6, 23; mov.b32 %f1, %r7;"""


@pytest.mark.parametrize(
    ("zero", "then", "wrong"),
    [(100, STORED, False), (128, STORED, True), (128, "", True)],
)
def test_what_a_range_cuts_off_is_an_error(zero: int, then: str, wrong: bool) -> None:
    x = np.linspace(50.25, 154.75, 32)
    found, _ = launched(kernel(ONE, CODES.format(zero=zero, then=then)), x)
    assert ("output-error" in {each.rule for each in found.problems}) == wrong


def test_an_exponent_is_cut_on_purpose() -> None:
    x = np.linspace(50.25, 154.75, 32)
    found, _ = launched(kernel(ONE, EXPONENT.format(zero=127)), x)
    assert not {each.rule for each in found.problems} & {"output-error"}


ROUNDED = """{round} max.f32 %f4, %f4, 0fC2FE0000; min.f32 %f4, %f4, 0f42FE0000;
    cvt.rzi.s32.f32 %r5, %f4; cvt.rn.f32.s32 %f1, %r5;"""


@pytest.mark.parametrize(("largest", "wrong"), [(127.0, False), (254.0, True)])
def test_what_was_rounded_before_it_is_cut_is_quantised(
    largest: float, wrong: bool
) -> None:
    """``(int)rintf(x)``: the first rounds, the second changes nothing."""
    x = np.linspace(-largest, largest, 32) * 0.99
    body = ROUNDED.format(round="cvt.rni.f32.f32 %f4, %f3;")
    found, _ = launched(kernel(ONE, body), x)
    assert ("output-error" in {each.rule for each in found.problems}) == wrong
    errors = np.abs(found["y"].error)
    assert 0.4 < errors[np.abs(x) <= 127].max() <= 0.5
    assert not found.branches
