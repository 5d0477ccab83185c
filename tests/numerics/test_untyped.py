"""Outputs whose memory has no type: the format is told by second values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fragmenta.values.numerics.report import Numerics
from tests.numerics.test_numerics import ONE, kernel

DIVIDED = "sub.f32 %f4, %f3, %f3; div.rn.f32 %f1, %f4, %f4;"
CANCELLED = (
    "add.rn.f32 %f4, %f3, 0f4E000000; sub.rn.f32 %f1, %f4, 0f4E000000; "
    "mul.rn.f32 %f1, %f1, 0f3F000000;"
)


def launched(body: str, x: Any) -> Numerics:
    """A launch that writes to words."""
    words = np.zeros(32, np.uint32)
    result = kernel(ONE, body).launch(1, 32, [x, words, 1], numerics=True)
    assert result.numerics is not None
    return result.numerics


def test_an_output_that_is_nan_throughout_is_an_output() -> None:
    found = launched(DIVIDED, np.ones(32, np.float32))
    assert found["y"].format == "f32"
    assert found["y"].nan == 32
    assert [(each.rule, each.severity) for each in found.problems] == [("nan", "error")]


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_an_output_that_is_wrong_throughout_is_an_output(scale: float) -> None:
    x = (scale * (1 + np.random.default_rng(0).random(32))).astype(np.float32)
    found = launched(CANCELLED, x)
    assert found["y"].format == "f32"
    np.testing.assert_allclose(found["y"].exact, x.astype(np.float64) / 2, rtol=1e-9)
    assert found.problems[0].rule == "output-error"
