"""Instruments that stack: races, exact values and counts of one run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.engine.units.port import Port, Stacked
from fragmenta.errors import KernelHazard

#: Each thread puts 1.1 x into shared memory, and adds a large number to another's.
SUMS = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry sums(.param .u64 x)
{{
    .shared .align 4 .b8 tile[256];
    .reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .f32 %f<4>;
    ld.param.u64 %rd1, [x];
    mov.u32 %r1, %tid.x;
    mad.wide.u32 %rd2, %r1, 4, %rd1;
    ld.global.f32 %f1, [%rd2];
    mul.f32 %f2, %f1, 0f3F8CCCCD;
    mov.u32 %r2, tile;
    mad.lo.u32 %r3, %r1, 4, %r2;
    st.shared.f32 [%r3], %f2;
    {barrier}
    xor.b32 %r1, %r1, 32;
    mad.lo.u32 %r3, %r1, 4, %r2;
    ld.shared.f32 %f1, [%r3];
    add.f32 %f1, %f1, 0f4CBEBC20;
    st.global.f32 [%rd2], %f1;
    ret;
}}"""
RIGHT, WRONG = SUMS.format(barrier="bar.sync 0;"), SUMS.format(barrier="")


def launched(text: str, **options: Any) -> tuple[Any, np.ndarray]:
    x = np.arange(64, dtype=np.float32)
    kernel = ptx.parse(text).kernels["sums"]
    return kernel.launch(1, 64, [x], **options), x


def found(result: Any) -> list[tuple[str, int | None]]:
    return [(str(each.rule), each.line) for each in result.problems]


def numbers(result: Any) -> dict[str, Any]:
    """What numerics found, without whether the launch was watched."""
    return {k: v for k, v in result.numerics.to_dict().items() if k != "watched"}


@pytest.mark.parametrize("text", [RIGHT, WRONG], ids=["right", "wrong"])
def test_each_finds_what_it_finds_alone(text: str) -> None:
    raced, bits = launched(text, watch="report")
    exact, _ = launched(text, watch=False, numerics=True)
    counts, _ = launched(text, watch=False, counters=True)
    result, x = launched(text, watch="report", numerics=True, counters=True)
    assert found(result) == found(raced)
    assert found(result) == ([] if text == RIGHT else [("shared-race", 20)])
    assert str(numbers(result)) == str(numbers(exact))
    assert result.counters == counts.counters
    assert x.tobytes() == bits.tobytes()


def test_a_race_is_raised_and_has_the_numerics() -> None:
    with pytest.raises(KernelHazard, match="shared-race") as hazard:
        launched(WRONG, numerics=True)
    assert hazard.value.result is not None
    assert hazard.value.result.numerics is not None


def test_the_report_says_whether_races_were_looked_for() -> None:
    said = "races were not looked for"
    assert said not in str(launched(RIGHT, numerics=True)[0].numerics)
    assert said in str(launched(RIGHT, numerics=True, watch=False)[0].numerics)


def test_machine_code_answers_for_all_or_for_none() -> None:
    class Some(Port):
        def __init__(self, functions: dict[int, int] | None) -> None:
            self.functions = functions

    one, two, quiet = Some({0: 10, 8: 11, 16: 12}), Some({0: 20, 8: 1, 24: 2}), {1}
    assert Stacked(one, two, ignored=quiet).functions == {8: 11}
    assert Stacked(one, Some({}), ignored=quiet).functions == one.functions
    assert Stacked(one, Some(None)).functions is None
    assert Stacked(Some({}), Some({})).functions == {}


def test_each_block_begins_anew() -> None:
    # What a block before has left in shared memory was written by nobody.
    text = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry turned(.param .u64 y, .param .u64 x)
{
    .shared .align 4 .b8 tile[256];
    .reg .b32 %r<8>; .reg .b64 %rd<6>; .reg .f32 %f<4>; .reg .pred %p;
    ld.param.u64 %rd0, [y];
    ld.param.u64 %rd1, [x];
    mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %tid.x;
    mad.lo.u32 %r2, %r0, 64, %r1;
    mad.wide.u32 %rd2, %r2, 4, %rd1;
    mad.wide.u32 %rd3, %r2, 4, %rd0;
    ld.global.f32 %f1, [%rd2];
    mov.u32 %r3, tile;
    mad.lo.u32 %r4, %r1, 4, %r3;
    BEFORE st.shared.f32 [%r4], %f1;
    bar.sync 0;
    xor.b32 %r1, %r1, 63;
    mad.lo.u32 %r4, %r1, 4, %r3;
    ld.shared.f32 %f1, [%r4];
    st.global.f32 [%rd3], %f1;
    ret;
}"""
    skips = "setp.eq.u32 %p, %r0, 0; @%p "
    for before, rules in (("", set()), (skips, {"uninitialised"})):
        kernel = ptx.parse(text.replace("BEFORE ", before)).kernels["turned"]
        for options in ({}, {"numerics": True}):
            x, y = np.ones(512, np.float32), np.zeros(512, np.float32)
            made = kernel.launch(8, 64, [y, x], watch="report", **options)
            errors = {e.rule for e in made.problems if e.severity != "info"}
            assert errors == rules, options
