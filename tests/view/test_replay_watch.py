"""Expressions and call stacks in the page are those of the debugger."""

import re

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.errors import Error
from fragmenta.inspect.debugging.expressions import evaluate
from fragmenta.inspect.debugging.moments import Moments
from fragmenta.inspect.debugging.scope import WarpScope
from tests.debugging import kernels
from tests.view.test_explorer_page import need
from tests.view.test_replay_products import answers

TYPES = f"""{kernels.HEAD.replace("8.0", "8.3")}
.entry types(.param .u64 data, .param .u64 small) {{
    .reg .b32 %r<6>; .reg .b64 %rd<6>; .reg .f32 %f<6>; .reg .f16 %h<4>;
    .reg .f64 %d<3>; .reg .pred %p<3>; .reg .s32 %s<3>; .reg .b16 %b<3>;
    .reg .u8 %c; .reg .b128 %q;
    .shared .align 8 .f64 wide[16];
    .shared .align 4 .b8 raw[64];
    ld.param.u64 %rd1, [data];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.f32 %f1, [%rd3];
    cvt.rn.f16.f32 %h1, %f1;
    mov.b16 %b1, %h1;
    cvt.f64.f32 %d1, %f1;
    sub.s32 %s1, %r1, 7;
    setp.lt.s32 %p1, %s1, 3;
    cvt.u8.u32 %c, %r1;
    mov.b128 %q, {{%rd2, %rd3}};
    mov.u32 %r2, wide;
    shl.b32 %r3, %r1, 3;
    add.u32 %r4, %r2, %r3;
    setp.lt.u32 %p2, %r1, 11;
    @%p2 st.shared.f64 [%r4], %d1;
    ret;
}}
"""

EXPRESSIONS = """
%f1 | %f1[3] | %f1 * 2 + 1 | %f1 / 3 | %f1 / 0 | -%f1 | %f1 * 0.1 | %f1[2] * 0.1
%f1 as b32 | %f1 as f16 | %f1[1:3] as u16 | %f1 as bf16x2 | %f1 as u8 | %f1 as s64
%h1 | %h1 + %h1 | %h1 * %h1 | %h1 * 3 | %h1 + %f1 | %h1 + %d1 | %b1 | %b1 as bf16
(%b1 as bf16) * 3 | (%b1 as bf16) / 3 | (%b1 as e4m3)[2] | (%f1 as e5m2)[4] | %b1 as e4m3
%d1 | %d1 / 3 | %d1[5] as b64 | %d1 as b32x2 | %d1 < 2 | %d1 * 1e300 | %d1 * 1e-310
%s1 | %s1 * 1000000000000 | %s1 / 2 | %s1 % 4 | %s1 >> 1 | %s1 << 40 | ~%s1 | !%s1
%p1 | !%p1 | %p1 & %p2 | %p1 + %p2 | %p1 == 1 | -%p1 | ~%p1 | %p1 && %f1 > 1 | %p1 ^ 1
%r1 == 3 || %r1 > 30 | %r1 & 3 | %r1[4] | %r1 as f16x2 | %r1 as b128 | %q | %q[1] | %c
wide | wide[2] | wide[3:6] | wide[%r1] | wide[%laneid][4:6] | wide[2] * 2 | raw | raw[0:8]
shared[%r4] as f64 | shared[0x400] | shared[0x400:0x410] as f64 | shared[%r4] as f32
shared[0x400:0x440] as f32 | data | data[2:4] | data[%r1] | small | small[3:6] | arg1 | arg0[1]
data[0:4] + 1 | shared[0x408] as u16 | (shared[%r4] as f64)[7] | data[%tid.x] as b32
%tid.x[9] + %ntid.x[0] | %laneid | %warpid | %ctaid.x | %nctaid.y | %tid.q | %r9 | %nope
1 + 2 * 3 | -7 / 2 | -7 % 4 | 1 << 4 | 1 << 65 | 1 / 0 | 0x10 + 0b101 | 1.5e3 | 1e999 | -1e999
~0xff & 0xfff | 2 + 3 * 4 == 14 && !0 | 1 as f32 | 5 as b64 | 3.25 as b64 | (1 < 2) as u8
1 | .5 | 1e-7 * 3 | 123456789.125 | 5[0] | %f1[32] | %f1[3:1] | %r1 + %r1[0:3] | shared[%f1]
(1 | 1 2 | %r1 as f31 | %r1 as f64 | data[99] | data[0][1] | tile | shared[0:0] | %f1 & 1 | %f1 % 2
%r3 as | as f32 | %r5%r6 | data as f16 | shared[0x400] as f64 as b8 | %f1 as tf32 | "é" |
"""


def split(text):
    """Expressions stand between bars, unless a bar is an operator."""
    return [each.strip() for line in text.splitlines() for each in line.split(" | ")]


def launched():
    (kernel,) = ptx.parse(TYPES).kernels.values()
    data = np.float32([0, 1.1, -2.5, np.nan, np.inf, 1e-7, 65519, 3e38] * 4)
    data[9:14] = 1e16, 123456789, 1e-5, 0.1, -np.inf
    small = np.arange(32).astype(np.uint8)
    return kernel.launch(1, 32, [data, small], replay=True).replay()


def python(replay, step, warp, text):
    try:
        value = evaluate(text, WarpScope(replay, step + 1, warp))
    except Error as why:
        return {"refused": str(why)}
    return {"texts": value.texts, "type": value.type, "lanes": list(value.lanes)}


def random_expressions(count):
    parts = [
        "%r1",
        "%f1",
        "wide",
        "shared",
        "[",
        "]",
        "(",
        ")",
        "1",
        "0x4",
        "as",
        "f16",
    ]
    parts += [
        ":",
        "+",
        "-",
        "%",
        "<<",
        "1e999",
        ".",
        "@",
        "é",
        " ",
        "&&",
        "!",
        "%p1",
        "/",
    ]
    choose = np.random.default_rng(3)
    return [
        "".join(choose.choice(parts, int(choose.integers(1, 9)))) for _ in range(count)
    ]


@pytest.mark.xdist_group("explorer")
def test_expressions_have_the_answers_of_the_debugger(tmp_path):
    need("whether the page computes expressions as the debugger does")
    replay = launched()
    last = len(replay) - 1
    texts = [*split(EXPRESSIONS), *random_expressions(600)]
    asked = [[step, 0, text] for text in texts for step in (last,)]
    asked += [[step, 0, text] for text in split(EXPRESSIONS)[::7] for step in (-1, 9)]
    page = tmp_path / "page.html"
    found = answers(replay, page, {"expressions": asked})["expressions"]
    values = 0
    for (step, warp, text), said in zip(asked, found, strict=True):
        wanted = python(replay, step, warp, text)
        if "refused" in wanted:
            # Python adds what might have been meant.
            words = re.sub(r" \(did you mean .*?\?\)", "", wanted["refused"])
            assert said == {"refused": words, "kind": "Refused"}, text
        else:
            assert said == wanted, text
            values += 1
    assert values > 130


@pytest.mark.xdist_group("explorer")
def test_call_stacks_are_those_of_the_debugger(tmp_path):
    need("whether the page has the call stacks of the debugger")
    replay = kernels.launched(kernels.CALLS, 64, np.zeros(32, np.float32))
    moments = Moments(replay)
    asked = [
        [int(step), warp] for warp in (0, 1) for step in replay.steps_of_warp(warp)
    ]
    found = answers(replay, tmp_path / "page.html", {"stacks": asked})["stacks"]
    wanted = [
        [[each.site.function, each.step] for each in moments.frames(warp, step)]
        for step, warp in asked
    ]
    assert found == wanted
    assert max(map(len, wanted)) == 2
