"""Words of findings: types, bits, lines, and nothing twice."""

from __future__ import annotations

import numpy as np

from fragmenta import ptx
from fragmenta.ptx.checking.problem import Problem
from fragmenta.ptx.module import Location
from tests.numerics.test_numerics import HEAD, LOOP, ONE, kernel, launched

GROWS = "mul.f32 %f4, %f4, 0f3F804000; "  # less than half a unit of bf16
FILE = '\n.file 1 "sum.cu"\n'


def test_the_type_that_explains_is_the_one_on_the_way() -> None:
    rounds = "cvt.rn.bf16.f32 %h1, %f4; cvt.f32.bf16 %f4, %h1; "
    body = f"mov.f32 %f4, %f3; {8 * (GROWS + rounds)} mov.f32 %f1, %f4;"
    head = HEAD.replace("sm_80", "sm_90")
    made = ptx.parse(head + ONE.format(body=body)).kernels["f"]
    found, _ = launched(made, np.full(32, 1.003))
    assert found.losses["argument 1 (y)"].by == "bf16"
    assert "bf16 explains 0.0079" in found.problems[0].message
    assert "bf16 explains 0.0079" in " ".join(str(found).split())


def test_no_more_bits_cancel_than_a_type_has() -> None:
    body = "add.f32 %f4, %f3, 0f4E000000; sub.f32 %f1, %f4, 0f4E000000;"
    found, y = launched(kernel(ONE, body), np.full(32, 0.3))
    assert not y.any()
    (said,) = [each for each in found.problems if each.rule == "cancellation"]
    assert said.message.startswith("24 bits cancel")


def test_an_infinity_that_becomes_nan_is_told_once() -> None:
    body = "mul.f32 %f4, %f3, 0f7F000000; sub.f32 %f5, %f4, %f4; "
    body += "max.f32 %f1, %f5, %f3;"
    found, y = launched(kernel(ONE, body), np.full(32, 1e9))
    assert np.isfinite(y).all()
    (note,) = found.notes
    assert note.nan
    assert str(found).count("overflow: ") == 1


def test_an_unrolled_loop_is_one_finding() -> None:
    body = 4 * ".loc 1 7 0\n add.f32 %f1, %f1, %f3;\n"
    made = ptx.parse(HEAD + LOOP.format(body=body) + FILE)
    x = np.ones((8, 32), np.float32)
    x[0] = 2.0**25
    found, _ = launched(made.kernels["f"], x)
    (said,) = [each for each in found.problems if each.rule == "absorption"]
    assert said.message == "896 of 1,024 addends vanish whole"


def test_a_line_of_an_installed_header_is_named_by_its_caller() -> None:
    inner = Location("/usr/include/cuda_bf16.h", 9, 1, Location("k.cu", 16, 1))
    found = Problem("nan", "error", 1, 1, "", "", source=inner).to_dict()
    assert found["source"] == "k.cu:16"
    assert found["frames"] == ["k.cu:16", "/usr/include/cuda_bf16.h:9"]
