"""Declarations are read as they are written."""

import pytest

from fragmenta.ptx.module import Symbol
from fragmenta.ptx.reading import parse
from tests.ptx.reading.texts import HEADER, beside, kernel


def declared(text):
    return parse(beside(text)).variables["x"]


@pytest.mark.parametrize(
    "text, space, kind, elements, align, linkage",
    [
        (".global .u32 x;", "global", "u32", 1, 4, ""),
        (".visible .global .align 16 .b8 x[20];", "global", "b8", 20, 16, "visible"),
        (".const .f64 x[4];", "const", "f64", 4, 8, ""),
        (".extern .shared .align 16 .b8 x[];", "shared", "b8", None, 16, "extern"),
        (".shared .u32 x[4][8];", "shared", "u32", 32, 4, ""),
        (".shared .align 0x8 .b8 x[0x10][2];", "shared", "b8", 32, 8, ""),
        (".common .global .v4 .f32 x[2];", "global", "f32", 8, 16, "common"),
        (".weak .global .u64 x = a;", "global", "u64", 1, 8, "weak"),
        (".global .texref x;", "global", "texref", 1, 8, ""),
        (".global .u32 w, x[3], y;", "global", "u32", 3, 4, ""),
        (
            ".extern .global .u32 x; .visible .global .u32 x;",
            "global",
            "u32",
            1,
            4,
            "visible",
        ),
        (
            ".visible .global .u32 x; .extern .global .u32 x;",
            "global",
            "u32",
            1,
            4,
            "visible",
        ),
    ],
)
def test_variables(text, space, kind, elements, align, linkage):
    found = declared(text)
    assert (found.space, found.type, found.elements) == (space, kind, elements)
    assert (found.align, found.linkage) == (align, linkage)


def test_names_in_a_row():
    found = parse(beside(".global .u32 x<3>;")).variables
    assert [*found] == ["a", "x0", "x1", "x2"]


def test_attributes():
    found = declared(".global .attribute(.managed, .unified(1,0xab)) .u32 x;")
    assert found.attributes == ("managed", "unified(1,171)")
    sampler = declared(
        ".global .samplerref x = { addr_mode_0 = wrap, filter_mode = nearest };"
    )
    assert sampler.attributes == ("addr_mode_0=wrap", "filter_mode=nearest")


def test_addresses():
    found = declared(".global .u64 x[4] = {a, 7, generic(a)+8, quiet};")
    assert found.initial == bytes(8) + b"\7" + bytes(23)
    assert found.references == (
        (0, Symbol("a")),
        (16, Symbol("a", 8)),
        (24, Symbol("quiet")),
    )
    assert declared(".global .u64 x = a+4*2+4;").references == ((0, Symbol("a", 12)),)


def test_bytes_of_addresses():
    masks = [f"{0xFF << 8 * i:#x}(a+4)" for i in range(8)]
    whole = declared(f".global .u8 x[10] = {{1, {', '.join(masks)}}};")
    assert whole.references == ((1, Symbol("a", 4)),)
    assert whole.byte_references == ()
    some = declared(".global .u8 x[3] = {0xff00(generic(a)), 0XFF(a), 5};")
    assert some.references == ()
    assert some.byte_references == ((0, 1, Symbol("a")), (1, 0, Symbol("a")))
    assert some.initial == b"\0\0\5"


def test_parameters():
    text = (
        HEADER
        + """.visible .entry k (
        .param .u64 .ptr .global .align 16 p, .param .align 8 .b8 s[16],
        .param .b8 .align 4 t[4], .param .u64 .ptr q, .param .f32 f) { ret; }"""
    )
    given = parse(text).functions["k"].parameters
    assert [each.name for each in given] == ["p", "s", "t", "q", "f"]
    assert [each.size for each in given] == [8, 16, 4, 8, 4]
    assert [each.align for each in given] == [8, 8, 4, 8, 4]
    assert given[0].attributes == ("ptr", "global", "align 16")
    assert {each.space for each in given} == {"param"}


def test_functions():
    text = (
        HEADER
        + """
        .func (.param .b32 r) f (.param .b64 x);
        .extern .func (.param .b32 r) vprintf (.param .b64 x, .param .b64 y);
        .weak .func (.param .b32 r) f (.param .b64 x) { ret; }
        .extern .func stop () .noreturn;
        .entry k { ret; }
        .func (.reg .u32 o) g (.reg .u32 i) { mov.u32 o, i; ret; }
        .visible .func h; .alias h, f;"""
    )
    module = parse(text)
    assert [*module.functions] == ["f", "vprintf", "stop", "k", "g", "h"]
    assert not module.functions["f"].declared_only
    assert module.functions["vprintf"].declared_only
    assert module.functions["f"].linkage == "weak"
    assert module.functions["stop"].directives == {"noreturn": ()}
    assert module.functions["k"].kernel
    assert module.functions["g"].returns[0].space == "reg"
    assert [each.name for each in module.functions["g"].registers] == ["o", "i"]
    assert module.aliases == {"h": "f"}


def test_directives():
    text = (
        HEADER.replace("8.5", "9.0")
        + """.pragma "outside";
        .entry k () .maxntid 128, 2 .minnctapersm 2 .reqnctapercluster 2, 1, 1
        .explicitcluster .maxnreg 32 .pragma "one"; { .pragma "two", "three"; ret; }"""
    )
    module = parse(text)
    assert module.functions["k"].directives == {
        "maxntid": (128, 2),
        "minnctapersm": (2,),
        "reqnctapercluster": (2, 1, 1),
        "explicitcluster": (),
        "maxnreg": (32,),
        "pragma": ("one", "two", "three"),
    }
    assert module.pragmas == ("outside",)


def test_header():
    module = parse(
        ".version 8.5 .target sm_90a, debug .address_size 64 .entry k {ret;}"
    )
    assert (module.version, module.target, module.options) == (
        (8, 5),
        "sm_90a",
        ("debug",),
    )
    assert module.address_size == 64
    assert parse(".version 8.5\n.target sm_80").address_size == 32


def test_registers_by_first_use():
    found = kernel(
        ".reg .b32 t, $u, _w; .reg .b32 q <10>; .reg .v2 .b64 %w;"
        "@%p1 mov.b32 t, q9; mov.b32 $u, q09; mov.b32 _w, t; mov.v2.b64 %w, {1, 2};"
    ).registers
    names = " ".join(each.name for each in found)
    assert names == "%p1 t q9 $u _w %w.x %w.y"
    assert [each.number for each in found] == [*range(7)]
    types = ["pred", "b32", "b32", "b32", "b32", "b64", "b64"]
    assert [each.type for each in found] == types
    assert [each.vector for each in found[-2:]] == ["%w", "%w"]


def test_lines_and_columns():
    text = HEADER + ".entry k {\n  ret;\n/* a\n b */ @%p1 exit; trap;\n}"
    found = parse(text).functions["k"]
    places = [(each.line, each.column) for each in found.instructions]
    assert places == [(5, 3), (7, 7), (7, 18)]
    assert found.line == 4


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_sources(end):
    text = (
        HEADER
        + """.entry k {
        mov.b32 %r1, 0;
        .loc 1 20 3
        mov.b32 %r1, 1;
        .loc 2 644 1, function_name $L__info_string1 + 20, inlined_at 1 20 3
        mov.b32 %r1, 2; mov.b32 %r1, 3;
        .loc 7 1 1 ret; }
        .file 1 "kernel.cu" .file 2 "a//b.h", 1234, 5678
        .section .debug_str { L: .b8 1, 2
        .b64 .debug_abbrev+4 }"""
    )
    module = parse(text.replace("\n", end))
    found = [each.source for each in module.functions["k"].instructions]
    assert found[0] is None
    assert [str(each) for each in found[1:]] == [
        "kernel.cu:20",
        "a//b.h:644",
        "a//b.h:644",
        "7:1",
    ]
    assert found[2].column == 1
    assert module.files == {1: "kernel.cu", 2: "a//b.h"}


def test_text_of_nvrtc():
    assert parse(HEADER + ".entry k { ret; }\n\0").functions["k"].kernel


def test_lines_of_a_preprocessor():
    found = kernel('\n# 12 "kernel.cu"\nmov.b32 %r1, 1;\n#line 7 "kernel.cu"\n')
    assert len(found.instructions) == 2


def test_what_the_compiler_of_cutile_writes():
    """Hidden parameters, its language, and its own form of the program."""
    module = parse(
        """.version 9.0
        .target sm_90a
        .address_size 64
        .visible .entry f(.param .u64 a, .hidden .param .align 64 .b8 map[128])
        .reqntid 128 .language 7 { ret; }
        .nv_intermediate_source_section { .code_block { .ir_name: "tile ir"
        .source_begin entry @f(%arg0: tile<ptr<f32>>) { "not closed { .source_end } }
        .visible .entry g() { ret; }"""
    )
    f, g = module.functions["f"], module.functions["g"]
    assert [each.attributes for each in f.parameters] == [(), ("hidden",)]
    assert f.of_tiles
    assert not g.of_tiles
