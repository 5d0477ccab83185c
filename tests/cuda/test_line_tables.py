"""The PTX in a cubin gets the lines of the source back, from its two line tables."""

import re

import pytest

from fragmenta import ptx
from fragmenta.cuda.tools import assembler, fatbin
from fragmenta.cuda.tools.line_tables import with_lines
from tests.fuzz.binaries import line_table

TEXT = """
.version 8.7
.target sm_90a
.address_size 64
.func (.param .b32 out) helper(.param .b32 given)
{
    .reg .b32 %r<3>;
    .loc 2 40 5
    ld.param.b32 %r1, [given];
    .loc 2 41 5
    mul.lo.s32 %r2, %r1, %r1;
    st.param.b32 [out], %r2;
    ret;
}
.visible .entry first(.param .u64 data)
{
    .reg .b32 %r<9>;
    .reg .b64 %rd<4>;
    .reg .pred %p<3>;
    .shared .align 4 .b8 words[512];
    .loc 1 5 3
    ld.param.u64 %rd1, [data];
    mov.u32 %r1, %tid.x;
    // a comment is an empty line, too
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    .loc 1 6 9
    ld.global.u32 %r2, [%rd3];
    .loc 1 7 9
    mov.u32 %r3, words;
    mad.lo.u32 %r3, %r1, 4, %r3;
    st.shared.u32 [%r3], %r2;
    .loc 1 9 1
    bar.sync 0;
    mov.u32 %r5, 0;
$again:
    .loc 1 11 1
    ld.shared.u32 %r4, [%r3];
    .loc 1 12 1
    atom.global.add.u32 %r6, [%rd1], %r4;
    .loc 1 13 1
    add.u32 %r5, %r5, 1;
    setp.lt.u32 %p1, %r5, %r6;
    @%p1 bra $again;
    .loc 1 14 1
    .loc 3 8 1, function_name $name, inlined_at 1 14 1
    st.global.u32 [%rd3+8], %r5;
    .loc 3 9 1, function_name $name, inlined_at 1 14 1
    st.global.u32 [%rd3+16], %r5;
    .loc 2 77 1, function_name $name, inlined_at 3 9 1
    st.global.u32 [%rd3+24], %r4;
    .loc 1 15 1
    ret;
}
.visible .entry second(.param .u64 data)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    .loc 3 1000 3
    ld.param.u64 %rd1, [data];
    .loc 3 70000 3
    ld.global.u32 %r1, [%rd1+16];
    .loc 1 3 3
    st.global.u32 [%rd1], %r1;
    ret;
}
.file 1 "/home/user/first.cu"
.file 2 "helper.h"
.file 3 "folder/inner.cuh"
.section .debug_str
{
$name:
.b8 97, 0
}
"""
MEMORY = re.compile(r"(ld|st)\.(global|shared)|atom")


def places(text):
    """Where the source of each access to memory is, with the calls that it is in."""
    return [
        (name, each.mnemonic, list(map(str, each.source.frames)))
        for name, function in ptx.parse(text).module.functions.items()
        for each in function.instructions
        if MEMORY.match(each.mnemonic)
    ]


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
def test_each_access_to_memory_has_its_line(target):
    text = TEXT.replace("sm_90a", target)
    cubin = assembler.assemble(text, target, "-lineinfo")
    (image,) = fatbin.ptx_texts(cubin)
    wanted = places(text)
    assert len(wanted) == 9
    assert places(image.text) == wanted


def test_no_line_moves():
    cubin = assembler.assemble(TEXT, "sm_90a", "-lineinfo")
    kept = dict(fatbin.sections(cubin))[".nv_debug_ptx_txt"].replace(b"\0", b"\n")
    (image,) = fatbin.ptx_texts(cubin)
    changed = image.text.splitlines()
    for old, new in zip(kept.decode().splitlines(), changed, strict=False):
        assert old == new or (not old and new.startswith((".loc ", ".file ")))


def test_damaged_tables_give_no_lines():
    """What cannot be read is left out; the PTX stays as it is."""
    cubin = assembler.assemble(TEXT, "sm_90a", "-lineinfo")
    parts = dict(fatbin.sections(cubin))
    text = parts[".nv_debug_ptx_txt"].replace(b"\0", b"\n").decode()
    assert ".loc" in with_lines(text, parts)
    for name in (".debug_line", ".nv_debug_line_sass"):
        for end in (0, 3, 9, 20, len(parts[name]) // 2):
            cut = with_lines(text, parts | {name: parts[name][:end]})
            assert cut.replace("\n", "").startswith(
                text.split("{")[0].replace("\n", "")
            )
        assert with_lines(text, parts | {name: b"\xff" * 40}) == text


def _repeated(step, times):
    """A table whose rows come from a step, and one that asks for all of them."""
    start, end = b"\0\x09\x02" + bytes(8), b"\0\x01\x01"
    program = b"".join(step(number) for number in range(1, times))
    return {
        ".debug_line": line_table(start + program + end),
        ".nv_debug_line_sass": line_table(start + b"\x01" * 9 + end),
    }


@pytest.mark.parametrize(
    "step",
    [
        lambda number: b"\x01\0\x03\x90" + bytes((number & 127 | 128, number >> 7)),
        lambda number: b"\x03" + b"\xff" * 3000,
        lambda number: b"\0\xff\xff\x03\x02" + b"\xff" * 65534 + b"\x20",
    ],
    ids=["calls in calls", "long numbers", "long addresses"],
)
def test_tables_that_grow_without_end_give_no_lines(step):
    text = "{\n\nadd;\n}"
    assert with_lines(text, _repeated(step, 3000 if step(1)[0] == 1 else 40)) == text


@pytest.mark.parametrize("name", [b'a".cu', b"a\n.cu", b"a\x1b[2J.cu"])
def test_a_name_that_cannot_be_written_is_left_out(name):
    start = b"\0\x09\x02" + bytes(8)
    table = line_table(start + b"\x01\0\x01\x01")
    sass = line_table(start + b"\x03\x02\x01\0\x01\x01")
    text = "{\n\nadd;\n}"
    assert '"folder/first.cu"' in with_lines(
        text, {".debug_line": table, ".nv_debug_line_sass": sass}
    )
    name = name.ljust(8, b"x")[:8]
    hostile = {".debug_line": table.replace(b"first.cu", name)}
    assert with_lines(text, hostile | {".nv_debug_line_sass": sass}) == text
