"""Kernels that were not checked reach the passes of ptxas with operands of any kind."""

import numpy as np
import pytest

from fragmenta import Error, ptx

HEADER = """
.version 9.0 .target sm_90a .address_size 64
.visible .entry k(.param .u64 a) {
    .reg .b64 %d<8>; .reg .b32 %r<8>; .reg .f32 %f<8>; .reg .pred %p<4>;
    .reg .v4 .f32 %v<2>;
    ld.param.u64 %d1, [a];
    BODY
    ret;
}
"""
WRONG = {
    "sin.approx.f32 %r1;": "takes 2 operands (d, a); given 1",
    "cos.approx.f32;": "given 0",
    "ex2.approx.f32 %f1, 0f3F800000, 0f3F800000;": "given 3",
    "rcp.approx.ftz.f32 %f1;": "given 1",
    "rcp.approx.f32 [%d1], 0f3F800000;": "d is written",
    "div.approx.f32 %f1;": "takes 3 operands (d, a, b); given 1",
    "div.full.f32 [%d1+4], [%d2+8], %f1;": "d is written",
    "div.full.f32 %f2, [%d2+8], 0f3F800000; add.f32 %f3, %f2, %f2;": "a is a .f32",
    "div %f1, %f2, %f3;": "div",
    "mul.f32 [%d1], %f1, %f2; add.f32 %f3, %f1, %f2;": "d is written",
    "mul.f32 _, %f1, %f2; add.f32 %f3, %f1, %f2;": "d is written",
    "mul.f32 %f1; add.f32 %f2, %f1, %f1;": "takes 3 operands",
    "mul.f32 %f1, %f2, %f3; add.f32 %f2, %f1;": "takes 3 operands",
    "mul.f32 %f1, %f2, %f3; add.f32;": "takes 3 operands",
    "mul.f32 %f1, %f2, %f3; sub.f32 [%d1], %f1, %f2;": "d is written",
}


@pytest.mark.parametrize("watch", [False, "report"])
@pytest.mark.parametrize("body", WRONG)
def test_wrong_operands_are_refused_in_words(body: str, watch: object) -> None:
    kernel = ptx.parse(HEADER.replace("BODY", body)).kernels["k"]
    try:
        result = kernel.launch(1, 1, [np.zeros(64, np.uint64)], watch=watch)
        said = "\n".join(each.message for each in result.problems)
    except Error as refused:
        said = str(refused)
    assert WRONG[body] in said
