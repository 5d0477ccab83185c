"""PTX texts are linked by names, as the linker of relocatable device code does it."""

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.ptx.linking import link

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
MAIN = """
.file 1 "main.cu"
.extern .func (.param .b32 back) scaled (.param .b32 given);
.extern .global .align 4 .u32 base[2];
.weak .func (.param .b32 back) one ();
.global .u32 own = 5;
.global .u64 table[1] = {one};
.weak .func (.param .b32 back) one () { st.param.b32 [back], 1; ret; }
.func (.param .b32 back) hidden () { st.param.b32 [back], 10; ret; }
.visible .entry main(.param .u64 out) {
    .reg .b64 %rd1; .reg .b32 %r<8>;
    .param .b32 a; .param .b32 b;
    .loc 1 7 3
    ld.param.u64 %rd1, [out];
    ld.global.u32 %r1, [base+4];
    st.param.b32 [a], %r1;
    call (b), scaled, (a);
    ld.param.b32 %r2, [b];
    call (b), one, ();
    ld.param.b32 %r3, [b];
    call (b), hidden, ();
    ld.param.b32 %r4, [b];
    ld.global.u32 %r5, [own];
    add.u32 %r6, %r2, %r3;
    add.u32 %r6, %r6, %r4;
    add.u32 %r6, %r6, %r5;
    st.global.u32 [%rd1], %r6;
    ret;
}"""
OTHER = """
.file 1 "other.cu"
.file 2 "main.cu"
.visible .global .align 4 .u32 base[2] = {7, 100};
.global .u32 own = 3; // a comment with main and own
.weak .func (.param .b32 back) one () { st.param.b32 [back], 2000000; ret; }
.func (.param .b32 back) hidden () { st.param.b32 [back], 40; ret; }
.visible .func (.param .b32 back) scaled (.param .b32 given) {
    .reg .b32 %r<4>; .param .b32 c;
    .loc 1 3 3
    ld.param.b32 %r1, [given];
    ld.global.u32 %r2, [own];
    mul.lo.u32 %r1, %r1, %r2;
    .loc 2 9 1
    call (c), hidden, ();
    ld.param.b32 %r3, [c];
    add.u32 %r1, %r1, %r3;
    st.param.b32 [back], %r1;
    ret;
}"""


@pytest.mark.parametrize("texts", [(MAIN, OTHER), (OTHER, MAIN)], ids=["as", "turned"])
def test_names_mean_what_they_mean_in_their_text(texts):
    """100 * 3 + 40 of the other text; its own names and constants for each."""
    made = link([HEAD + each for each in texts])
    module = fm.ptx.parse(made)
    assert not [p for p in module.check() if p.severity == "error"]
    out = np.zeros(1, np.uint32)
    module.kernels["main"].launch(1, 1, [out])
    first_one = 1 if texts[0] is MAIN else 2000000
    assert out[0] == 340 + first_one + 10 + 5


def test_lines_keep_their_files():
    made = link([HEAD + MAIN, HEAD + OTHER])
    assert made.count('.file 1 "main.cu"') == 1
    assert made.count('.file 2 "other.cu"') == 1
    lines = [line.strip() for line in made.splitlines() if ".loc" in line]
    assert lines == [".loc 1 7 3", ".loc 2 3 3", ".loc 1 9 1"]


def test_one_text_stays_what_it_is():
    made = link([HEAD + OTHER])
    assert fm.ptx.parse(made).functions.keys() == {"one", "hidden", "scaled"}
    assert link([made]) == made


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (
            ".visible .global .u32 twice = 1;",
            "twice is defined by text 1 and by text 2",
        ),
        (
            ".visible .entry twice() { ret; }",
            "twice is defined by text 1 and by text 2",
        ),
        (".func f() { } }", "text 2 has a brace too many"),
        (".file 1", "text 2 has .file 1; .file has a number and a name"),
        (".version", "a version is two numbers, such as 8.0"),
        (".version 8", "two numbers, such as 8.0; given 8"),
        ("/* " * 20_000, "text 2 has a comment without an end"),
        ("/*/", "text 2 has a comment without an end"),
    ],
)
def test_what_cannot_be_linked_is_refused(other, said):
    with pytest.raises(fm.Error, match=said):
        link([f"{HEAD}.visible .func twice() {{ ret; }}", HEAD + other])


def test_the_time_is_that_of_the_length():
    """Spaces and lines are read once; each of these took minutes."""
    for long in ("\n", " ", "/**/", "// x\n", ";"):
        link([HEAD + long * 100_000 + ".visible .func f() { ret; }"])


def test_targets_must_be_one():
    with pytest.raises(fm.Error, match="one target; given sm_80 and sm_90"):
        link([HEAD, HEAD.replace("80", "90")])


def test_what_nobody_defines_stays_outside():
    text = (
        f"{HEAD}.extern .func (.param .b32 a) vprintf (.param .b64 b, .param .b64 c);"
    )
    made = link([text, text])
    assert made.count("vprintf") == 1
    assert ".extern" in made


def test_labels_of_line_information_are_kept_apart():
    text = (
        HEAD + '.file 1 "a.cu"\n'
        ".visible .entry {0}() {{\n"
        ".loc 1 2 3, function_name $L__info_string0, inlined_at 1 5 6\nret;\n}}\n"
        ".section .debug_str {{\n$L__info_string0:\n.b8 97,0\n}}\n"
    )
    made = link([text.format("first"), text.format("second")])
    assert fm.ptx.parse(made).kernels.keys() == {"first", "second"}
    assert made.count("$L__info_string0_1") == made.count("$L__info_string0_2") == 2
