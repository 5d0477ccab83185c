"""Batch sizes, splits and targets in classes of equal bits."""

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.reference.arithmetic.equality import equal_models
from fragmenta.reference.execution.mma import numeric_model
from fragmenta.reference.isa.reading import instruction

K = 64
SUM = r"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry rows(.param .u64 x, .param .u64 y, .param .u32 splits)
{
    .reg .b32 %r<12>; .reg .b64 %rd<9>; .reg .f32 %f<8>; .reg .pred %p<4>;
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.param.u32 %r5, [splits];
    mov.u32 %r1, %ctaid.x;
    mul.wide.u32 %rd3, %r1, 256; mul.wide.u32 %rd4, %r1, 4;
    add.s64 %rd5, %rd1, %rd3; add.s64 %rd6, %rd2, %rd4;
    div.u32 %r6, 64, %r5;
    mov.f32 %f1, 0f00000000; mov.u32 %r2, 0;
outer:
    mov.f32 %f2, 0f00000000; mov.u32 %r3, 0;
inner:
    ld.global.f32 %f3, [%rd5];
    add.f32 %f2, %f2, %f3;
    add.s64 %rd5, %rd5, 4; add.u32 %r3, %r3, 1;
    setp.lt.u32 %p1, %r3, %r6; @%p1 bra inner;
    add.f32 %f1, %f1, %f2;
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p1, %r2, %r5; @%p1 bra outer;
    st.global.f32 [%rd6], %f1;
    ret;
}"""
ROWS = ptx.parse(SUM).kernels["rows"]
X = np.random.default_rng(0).standard_normal((64, K)).astype(np.float32)


def fixed(batch):
    return batch, 1, [X[:batch], np.zeros(batch, np.float32), 4]


def by_shape(batch):
    """Few rows are split among more: what libraries do to fill a GPU."""
    return batch, 1, [X[:batch], np.zeros(batch, np.float32), 8 if batch < 4 else 1]


def test_a_fixed_split_is_the_same_for_every_batch():
    found = ROWS.invariant(fixed, over=[1, 2, 7, 64])
    assert found.invariant
    assert found.members == (("1", "2", "7", "64"),)
    assert str(found).startswith("1 class: the same bits")


def test_a_split_by_shape_is_caught():
    found = ROWS.invariant(by_shape, over=[1, 2, 7, 64])
    assert not found
    assert found.members == (("1", "2"), ("7", "64"))
    (between,) = found.between.values()
    assert between.verdict == "different"
    assert between.cause == "partial sums at line 21 are added in another order"
    assert between.reason.splitlines()[2:] == [
        "first at line 21: 8 partial sums of 8 terms, one after the other",
        "second at line 21: 64 terms, then 0.0 is added",
    ]


def test_the_text_of_many_classes_has_80_columns_and_one_reason_for_each_two():
    y = np.zeros(1, np.float32)
    made = ROWS.invariant(lambda n: (1, 1, [X[:1], y, n]), over=[1, 2, 4, 8, 16])
    lines = str(made).splitlines()
    assert len(made.members) == 5
    assert max(map(len, lines)) <= 80
    order = "       partial sums at line 21 are added in another order"
    assert lines.count(order) == len(made.between) == 10
    assert "       y[0]: 2 partial sums of 32 terms, one after the other" in lines


MMA = """
.version 9.0
.target sm_80
.address_size 64
.visible .entry product(.param .u64 a, .param .u64 b, .param .u64 d)
{{
    .reg .b32 %r<12>; .reg .b64 %rd<9>; .reg .f32 %f<8>;
    ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [d];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd4, %r1, 16; mul.wide.u32 %rd5, %r1, 8;
    add.s64 %rd6, %rd1, %rd4; add.s64 %rd7, %rd2, %rd5; add.s64 %rd8, %rd3, %rd4;
    ld.global.v4.b32 {{%r2, %r3, %r4, %r5}}, [%rd6];
    ld.global.v2.b32 {{%r6, %r7}}, [%rd7];
    mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f00000000;
    mov.f32 %f3, 0f00000000; mov.f32 %f4, 0f00000000;
    {body}
    st.global.v4.f32 [%rd8], {{%f1, %f2, %f3, %f4}};
    ret;
}}"""
WHOLE = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
HALF = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"
GOAL = "{%f1, %f2, %f3, %f4}"
BODIES = {
    "whole": f"{WHOLE} {GOAL}, {{%r2, %r3, %r4, %r5}}, {{%r6, %r7}}, {GOAL};",
    "halves": f"{HALF} {GOAL}, {{%r2, %r3}}, {{%r6}}, {GOAL};"
    f"{HALF} {GOAL}, {{%r4, %r5}}, {{%r7}}, {GOAL};",
    "backwards": f"{HALF} {GOAL}, {{%r4, %r5}}, {{%r7}}, {GOAL};"
    f"{HALF} {GOAL}, {{%r2, %r3}}, {{%r6}}, {GOAL};",
}
A = np.random.default_rng(1).standard_normal((32, 8)).astype(np.float16)
B = np.random.default_rng(2).standard_normal((32, 4)).astype(np.float16)


def product(name, target):
    kernel = ptx.parse(MMA.format(body=BODIES[name])).kernels["product"]
    d = np.zeros((32, 4), np.float32)
    return ptx.Call(kernel, 1, 32, [A, B, d], target=target)


@pytest.mark.long
def test_targets_are_one_class_exactly_where_their_models_are_equal():
    names = ["sm_80", "sm_90", "sm_120a"]
    found = ptx.targets(product("whole", "sm_80"), names)
    assert found.members == (("sm_80",), ("sm_90", "sm_120a"))
    models = [numeric_model(instruction(WHOLE), each) for each in names]
    assert equal_models(*models[1:])
    assert not equal_models(*models[:2])
    reason = found.between[0, 1].reason
    assert "2 steps of 8 products" in reason
    assert "1 step of 16 products" in reason
    assert found.between[0, 1].cause == (
        "mma m16n8k16 adds 2 times 8 products on sm_80, 16 products at once on sm_90"
    )


@pytest.mark.long
@pytest.mark.parametrize("target, same", [("sm_80", True), ("sm_90", False)])
def test_two_instructions_of_half_the_size(target, same):
    """sm_80 adds eight products at a time anyway; sm_90 sixteen."""
    found = ptx.same(product("whole", target), product("halves", target))
    assert found.verdict == ("same" if same else "different")


def test_instructions_in_another_order_differ():
    found = ptx.same(product("halves", "sm_90"), product("backwards", "sm_90"))
    assert found.verdict == "different"
    assert found.witness.count > 0
    assert found.cause == "products at line 16 are added in another order"
