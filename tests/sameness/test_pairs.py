"""Small kernels for which the truth is known: none is judged wrongly, few not at all."""

from __future__ import annotations

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.inspect.sameness.bits import Undecided, parting
from fragmenta.inspect.sameness.calls import Call
from fragmenta.inspect.sameness.cones import Computed, Nodes, counting, runner
from fragmenta.inspect.sameness.numbers import specials
from fragmenta.ptx.opcodes.table import TABLE
from tests.sameness.pairs import KINDS, PAIRS, Pair
from tests.thinning import THOROUGH, some

CHOSEN = some(PAIRS, 3)
EACH = pytest.mark.parametrize("pair", CHOSEN, ids=[each.what for each in CHOSEN])


def run(call: Call, x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """What a kernel leaves of many inputs, one for each thread."""
    y = np.zeros_like(x)
    for first in range(0, x.size, 1024):
        part = slice(first, first + 1024)
        call.kernel.launch(1, x[part].size, [y[part], x[part], z[part]], watch=False)
    return y.view(f"u{y.itemsize}")


@pytest.mark.long
@EACH
def test_the_verdict_is_the_truth(pair: Pair) -> None:
    long = pair.what == "halves: a sum in f32" and not THOROUGH
    found = ptx.same(*pair.calls(), most=2**20 if long else 2**32, watch=False)
    if long:
        assert found.verdict == "same here"
    else:
        assert found.verdict == ("same" if pair.same else "different"), str(found)


@EACH
def test_the_truth_is_that_of_the_kernels(pair: Pair) -> None:
    """A witness shows it, or many inputs show no difference."""
    _, _, of = KINDS[pair.kind]
    word = np.dtype(f"u{np.dtype(of).itemsize}")
    few = specials(8 * word.itemsize, np.dtype(of).name).astype(word)[:48]
    x, z = (each.reshape(-1).view(of) for each in np.meshgrid(few, few))
    one, two = (run(each, x.copy(), z.copy()) for each in pair.calls())
    if pair.same:
        assert np.array_equal(one, two)
    elif "rare" not in pair.what:
        found = ptx.same(*pair.calls(), watch=False)
        assert found.witness is not None
        assert found.witness.first.tobytes() != found.witness.second.tobytes()


OPERATIONS = (
    *("add.s32", "sub.s32", "and.b32", "or.b32", "xor.b32", "shl.b32", "shr.u32"),
    *("shr.s32", "min.s32", "max.u32", "min.u32", "max.s32", "setp.lt.s32"),
    *("setp.ge.u32", "setp.ls.u32", "setp.eq.s32", "setp.gt.s32"),
)


@pytest.mark.parametrize("name", OPERATIONS)
def test_bits_are_those_of_the_launches(name: str) -> None:
    """A rare number in place of a result: the inputs that are found have that result."""
    rare = 1 if name.startswith("setp") else 0x12345679
    nodes = Nodes()
    x, y = nodes.input(32, 0), nodes.input(32, 1)
    match = TABLE.find(name, 3)
    assert match is not None
    bits = 1 if rare == 1 else 32
    made = nodes.computed(Computed(name, match, (), (32, 32)), [x, y], 0, bits)
    wanted = nodes.constant(bits, rare)
    equal = TABLE.find("setp.eq.u32", 3)
    assert equal is not None
    how = Computed("setp.eq.u32", equal, (), (32, 32))
    wide = [nodes.resized(each, 32, False) for each in (made, wanted)]
    found = parting(nodes.computed(how, wide, 0, 1), nodes.constant(1, 0), [x, y])
    assert found is not None
    words = [np.array([each], np.uint64) for each in found]
    assert runner([made], [x, y])(*words)[0].tolist() == [rare]


def test_products_and_floats_are_given_up() -> None:
    nodes = Nodes()
    x, y = nodes.input(32, 0), nodes.input(32, 1)
    for name in ("mul.lo.s32", "add.f32"):
        match = TABLE.find(name, 3)
        assert match is not None
        how = Computed(name, match, (), (32, 32))
        one, two = (nodes.computed(how, each, 0, 32) for each in ([x, y], [y, x]))
        with pytest.raises(Undecided):
            parting(one, two, [x, y])


def test_all_inputs_are_run() -> None:
    """Every number is counted: one that differs is found wherever it is."""
    nodes = Nodes()
    x, y = nodes.input(8, 0), nodes.input(16, 1)
    both = nodes.joined([nodes.extracted(y, 0, 8), x])
    call = counting(both, nodes.made("join", 16, [x, x]), [x, y])
    # They are the same only if the lower byte of y is x.
    found = [call(first, 8) for first in range(0, 1 << 16, 8)]
    wanted = [
        -1 if all((n >> 8 & 255) == (n & 255) for n in range(f, f + 8)) else f
        for f in range(0, 1 << 16, 8)
    ]
    assert found == wanted


def test_a_choice_of_another_path_is_seen() -> None:
    """Expressions are equal on the path of ones and twos; a NaN takes another."""
    pair = next(each for each in PAIRS if each.what == "a choice, turned")
    found = ptx.same(*pair.calls(), watch=False)
    assert found.verdict == "different"
    assert (
        np.isnan(found.witness.inputs["x"]).any()
        or np.isnan(found.witness.inputs["z"]).any()
    )


def test_threads_that_work_together_are_left_alone() -> None:
    """A thread that reads what another one stores is none of these."""
    text = """
    .version 8.0 .target sm_80 .address_size 64
    .entry turn(.param .u64 x) {
        .reg .b64 %rd<5>; .reg .b32 %r<4>; .reg .f32 %f<3>;
        ld.param.u64 %rd1, [x]; mov.u32 %r1, %tid.x; xor.b32 %r2, %r1, 1;
        mul.wide.u32 %rd2, %r1, 4; add.s64 %rd2, %rd1, %rd2;
        mul.wide.u32 %rd3, %r2, 4; add.s64 %rd3, %rd1, %rd3;
        ld.global.f32 %f1, [%rd3]; BODY st.global.f32 [%rd2], %f1; ret;
    }"""
    x = np.ones(32, np.float32)
    calls = [
        ptx.Call(ptx.parse(text.replace("BODY", body)).kernels["turn"], 1, 32, [x])
        for body in ("add.f32 %f1, %f1, %f1;", "mul.f32 %f1, %f1, 0f40000000;")
    ]
    assert ptx.same(*calls, watch=False).verdict == "same here"


def test_another_launch_with_the_same_elements() -> None:
    """Two elements for each thread, and one: elements are compared, not threads."""
    text = """
    .version 8.0 .target sm_80 .address_size 64
    .entry each(.param .u64 y, .param .u64 x) {
        .reg .b64 %rd<5>; .reg .b32 %r<4>; .reg .f32 %f<5>;
        ld.param.u64 %rd1, [y]; ld.param.u64 %rd2, [x]; mov.u32 %r1, %tid.x;
        mul.wide.u32 %rd3, %r1, SIZE; add.s64 %rd1, %rd1, %rd3; add.s64 %rd2, %rd2, %rd3;
        BODY ret;
    }"""
    single = (
        "ld.global.f32 %f1, [%rd2]; add.f32 %f1, %f1, %f1; st.global.f32 [%rd1], %f1;"
    )
    double = (
        "ld.global.v2.f32 {%f1, %f2}, [%rd2]; mul.f32 %f1, %f1, 0f40000000; "
        "mul.f32 %f2, %f2, 0f40000000; st.global.v2.f32 [%rd1], {%f1, %f2};"
    )
    x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
    calls = [
        ptx.Call(
            ptx.parse(text.replace("BODY", body).replace("SIZE", str(size))).kernels[
                "each"
            ],
            1,
            threads,
            [y, x],
        )
        for body, size, threads in ((single, 4, 64), (double, 8, 32))
    ]
    found = ptx.same(*calls, watch=False)
    assert found.verdict == "same"
    assert "for every input" in str(found)
    assert found.proof
