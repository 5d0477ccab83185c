"""Every instruction knows the line of the source that it was compiled from."""

from __future__ import annotations

import re

import pytest

from fragmenta.ptx.module import Location
from fragmenta.ptx.reading import parse
from tests.ptx.test_triton_hopper import VERSIONS, recorded

HEAD = '.version 8.0 .target sm_80 .address_size 64\n.file 1 "k.py"\n.file 2 "lib.py"\n'
# As Triton 3.9 writes it for tl.load in line 8 and tl.store in line 10.
TRITON = """
.entry k(.param .u64 p) { .reg .b32 %r<4>; .reg .b64 %rd<2>;
	.loc	1 8 17                          // k.py:8:17
	ld.param.b64 	%rd1, [p];
	.loc	1 8 9                           // k.py:8:9
	// begin inline asm
	.loc	1 8 9                           // k.py:8:9
	mov.u32 %r1, 0x0;
	.loc	1 9 9                           // k.py:9:9
	ld.global.b32 { %r1 }, [ %rd1 + 0 ];

	// end inline asm
	.loc	1 9 9                           // k.py:9:9
	add.s32 	%r2, %r1, %r1;
	// begin inline asm
	// wait for regs: %r1
	.loc	1 10 9                          // k.py:10:9
	st.global.b32 [ %rd1 + 0 ], { %r2 };
	// end inline asm
	ret;
}
"""


def test_lines_in_inline_assembly_are_not_counted() -> None:
    code = parse(HEAD + TRITON).functions["k"].instructions
    lines = [each.source.line for each in code if each.source]
    assert lines == [8, 8, 8, 9, 9, 9]


def test_a_line_that_only_inline_assembly_has_is_kept() -> None:
    text = ".entry k() { // begin inline asm\n.loc 1 5 1\nret; // end inline asm\n}"
    (only,) = parse(HEAD + text).functions["k"].instructions
    assert str(only.source) == "k.py:5"


@pytest.mark.parametrize("version", VERSIONS)
def test_inline_assembly_has_the_line_before_it(version: str) -> None:
    """LLVM's lines in it are those of the assembly, counted on from there."""
    counted = 0
    for row in list(recorded(version).values())[:3]:
        where = {
            each.line: each.source
            for function in parse(row["text"]).functions.values()
            for each in function.instructions
        }
        before, inside = "", False
        for number, line in enumerate(row["text"].splitlines(), 1):
            inside = (inside or "begin inline asm" in line) and (
                "end inline asm" not in line
            )
            found = re.match(r"\s*\.loc\s+\d+ (\d+) (\d+)", line)
            if found and not inside:
                before = found.groups()
            elif inside and where.get(number) is not None:
                counted += 1
                assert (str(where[number].line), str(where[number].column)) == before
    assert counted > 50


CHAIN = """
.entry k() {
    .loc 1 205 9
    mov.u32 %r1, 0;
    .loc 2 80 5, function_name $L__info_string0, inlined_at 1 205 9
    mov.u32 %r1, 0;
    .loc 2 31 1, function_name $L__info_string1+4, inlined_at 2 80 5
    mov.u32 %r1, 0;
    .loc 2 7 1, function_name $L__info_string1, inlined_at 2 31 1
    mov.u32 %r1, 0;
    .loc 2 80 5, function_name $L__info_string0, inlined_at 1 300 9
    mov.u32 %r1, 0;
    .loc 2 31 1, function_name $L__info_string1, inlined_at 2 80 5
    mov.u32 %r1, 0;
}"""


def test_the_whole_chain_of_calls_is_told() -> None:
    text = HEAD + CHAIN.replace("{", "{ .reg .b32 %r<2>;", 1)
    code = parse(text).functions["k"].instructions
    assert [each.source.words for each in code if each.source] == [
        "k.py:205",
        "k.py:205 (lib.py:80)",
        "k.py:205 (lib.py:80, lib.py:31)",
        "k.py:205 (lib.py:80, lib.py:31, lib.py:7)",
        "k.py:300 (lib.py:80)",
        "k.py:300 (lib.py:80, lib.py:31)",
    ]


def test_a_chain_as_long_as_a_file_can_be() -> None:
    source = Location("k.py", 1, 1)
    for line in range(20_000):
        source = Location("lib.py", line, 1, source)
    assert len(source.frames) == 20_001
    assert source.words.endswith("lib.py:19999)")
