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
    found = asked("compared", "compared", most=0)
    assert found.verdict == "same"
    assert [each.kind for each in found.conditions] == ["compared"]
    assert "setp.gt.f32" in str(found)


def test_bits_of_data_that_are_used_otherwise_are_unknown():
    found = asked("masked", "masked", most=0)
    assert found.verdict == "unknown"
    assert {each.kind for each in found.open} == {"lost"}
    assert asked("masked", "masked").verdict == "same"  # threads say more


def test_a_shift_that_only_a_register_knows_is_unknown():
    assert asked("exponent", "exponent", most=0).verdict == "unknown"


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


def test_whole_numbers_that_become_floats_are_no_proof():
    """A product of a zero and a negative whole number is -0 only among floats."""
    head = ".version 8.0 .target sm_80 .address_size 64\n"
    entry = """.entry k(.param .u64 y, .param .u64 a, .param .u64 b) {
        .reg .b64 %d<8>; .reg .b32 %r<6>; .reg .f32 %f<4>;
        ld.param.u64 %d1, [y]; ld.param.u64 %d2, [a]; ld.param.u64 %d3, [b];
        mov.u32 %r1, %tid.x; mul.wide.u32 %d4, %r1, 4; mul.wide.u32 %d7, %r1, 2;
        add.u64 %d1, %d1, %d4; add.u64 %d2, %d2, %d7; add.u64 %d3, %d3, %d7;
        ld.global.s16 %r2, [%d2]; ld.global.s16 %r3, [%d3];
        BODY
        st.global.f32 [%d1], %f3; ret;
    }"""
    bodies = (
        "cvt.rn.f32.s32 %f1, %r2; cvt.rn.f32.s32 %f2, %r3; mul.f32 %f3, %f1, %f2;",
        "mul.lo.s32 %r4, %r2, %r3; cvt.rn.f32.s32 %f3, %r4;",
    )
    y = np.zeros(32, np.float32)
    a, b = (np.arange(1, 33, dtype=np.int16) + n for n in (0, 7))
    calls = [
        ptx.Call(
            ptx.parse(head + entry.replace("BODY", each)).kernels["k"], 1, 32, [y, a, b]
        )
        for each in bodies
    ]
    found = ptx.same(*calls)
    assert found.verdict == "different"
    assert ptx.same(*calls, tries=0).verdict == "same here"
    assert ptx.same(*calls, tries=0, by_value=["a", "b"]).verdict == "same"


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


def test_a_raw_kernel_is_a_kernel():
    code = """extern "C" __global__ void twice(float *y, const float *x)
    { y[threadIdx.x] = BODY; }"""
    x, y = np.ones(32, np.float32), np.zeros(32, np.float32)
    calls = [
        ptx.Call(ptx.RawKernel(code.replace("BODY", body), "twice"), 1, 32, [y, x])
        for body in ("x[threadIdx.x] + x[threadIdx.x]", "2 * x[threadIdx.x]")
    ]
    assert ptx.same(*calls).verdict == "same"
    with pytest.raises(BadCall, match=r"or a ptx\.RawKernel; given str"):
        ptx.Call("twice", 1, 32, [y, x])


HALVES = """.version 8.0 .target sm_90 .address_size 64
.visible .entry f(.param .u64 x, .param .u64 y) {
    .reg .b64 %d<6>; .reg .b32 %r<2>; .reg .f32 %f<2>; .reg .b16 %h<2>;
    ld.param.u64 %d1, [x]; ld.param.u64 %d2, [y];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %d3, %r1, 4; add.s64 %d3, %d1, %d3;
    mul.wide.u32 %d4, %r1, 2; add.s64 %d4, %d2, %d4;
    BODY
    st.global.u16 [%d4], %h1; ret;
}"""
UPPER = "ld.global.u16 %h1, [%d3+2];"
ROUNDED = "ld.global.f32 %f1, [%d3]; cvt.rz.bf16.f32 %h1, %f1;"
PARTED = "ld.global.u32 %r1, [%d3]; shr.u32 %r1, %r1, 16; cvt.u16.u32 %h1, %r1;"


@pytest.mark.parametrize(
    ("body", "verdict"), [(ROUNDED, "different"), (PARTED, "same")]
)
def test_a_part_of_an_element_that_is_loaded(body, verdict):
    """As compilers load ``bits >> 16``; NaN parts it from a conversion to bf16."""
    x, y = np.ones(32, np.float32), np.zeros(32, np.uint16)
    one, two = (
        ptx.Call(ptx.parse(HALVES.replace("BODY", each)).kernels["f"], 1, 32, [x, y])
        for each in (body, UPPER)
    )
    found = ptx.same(one, two)
    assert found.verdict == verdict
    if verdict == "different":
        assert np.isnan(found.witness.inputs["x"]).any()


LARGEST = """
extern "C" __global__ void {name}(const float *x, float *y)
{{
    __shared__ float all[32];
    float most = x[4 * threadIdx.x];
    for (int i = 1; i < 4; i++) most = {first};
    {body}
    if (threadIdx.x == 0) *y = most;
}}"""
BUTTERFLY = """for (int step = 1; step < 32; step *= 2)
        most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, step));"""
SERIAL = """all[threadIdx.x] = most;
    __syncthreads();
    for (int i = 31; i > 0; i--) if (threadIdx.x == 0) most = fmaxf(all[i], most);"""


@pytest.mark.parametrize(
    ("first", "verdict"),
    [("fmaxf(x[4 * threadIdx.x + i], most)", "same"),
     ("most > x[4 * threadIdx.x + i] ? most : x[4 * threadIdx.x + i]", "different")],
)  # fmt: skip
def test_the_order_of_maxima_does_not_matter(first, verdict):
    """A choice by a comparison is another maximum: with NaN, and of +0 and -0."""
    texts = [
        LARGEST.format(name="k", first="fmaxf(most, x[4 * threadIdx.x + i])", body=BUTTERFLY),
        LARGEST.format(name="k", first=first, body=SERIAL),
    ]  # fmt: skip
    made = [ptx.Call(ptx.RawKernel(text, "k"), 1, 32, [X, Y[:1]]) for text in texts]
    assert ptx.same(*made).verdict == verdict
