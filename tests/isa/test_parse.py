"""Reading mnemonics: what is tolerated, what is refused, and how."""

import pytest

import fragmenta as fm
from fragmenta.reference.isa.building import build
from fragmenta.reference.isa.tables import wgmma

S4 = "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32"


@pytest.mark.parametrize(
    "text",
    [
        f"  {S4}  ",
        f"{S4} {{%r0,%r1,%r2,%r3}}, {{%r4,%r5,%r6,%r7}}, {{%r8,%r9}}, {{0,0,0,%r0}};",
        f"@%p1 {S4} d, a, b, c;",
        "mma.sync.aligned.m16n8k64.row.col\n    .s32.s4.s4.s32 d, a, b, c;",
        f"{S4};",
        f"again: @!p {S4}{{%0,%1,%2,%3}},{{%4,%5,%6,%7}},{{%8,%9}},{{%0,%1,%2,%3}} // x",
        f"/* one */ {S4} /* two; */ d, /* ; */ a, b, c; // three",
    ],
)
def test_white_space_guards_and_operands_are_tolerated(text):
    assert str(fm.instruction(text)) == S4


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        (
            "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32.satfinite",
            "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32",
        ),
        (
            "mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col.f32.e4m3.e2m1.f32",
            "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e2m1.f32",
        ),
        (
            "mma.sync.aligned.kind::mxf4.sp::ordered_metadata.block_scale"
            ".scale_vec::2X.m16n8k128.row.col.f32.e2m1.e2m1.f32.ue8m0",
            "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.kind::mxf4"
            ".block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0",
        ),
        (
            "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale"
            ".f32.e4m3.e4m3.f32.ue8m0",
            "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale"
            ".scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0",
        ),
        (
            "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64.rn",
            "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64",
        ),
        (
            "wmma.load.a.sync.aligned.m16n16k16.row.f16",
            "wmma.load.a.sync.aligned.row.m16n16k16.f16",
        ),
        (
            "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.u8.satfinite",
            "wgmma.mma_async.sync.aligned.m64n8k32.satfinite.s32.s8.u8",
        ),
    ],
)
def test_other_spellings_of_the_assembler(text, canonical):
    assert str(fm.instruction(text)) == canonical


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "mma.sync.aligned.m16n8k64.row.col.f32.tf32.tf32.f32",
            [
                "m16n8k64 with .tf32",
                ".tf32 has m16n8k4 and m16n8k8",
                "mma.sp m16n8k8 and m16n8k16",
                "nearest: mma.sync.aligned.m16n8k8",
            ],
        ),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32", [".bf16", "nearest"]),
        ("mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32", ["layout of B"]),
        (
            "mma.sync.aligned.m16n8k16.row.col.f32.f17.f16.f32",
            [".f17 is not a type of A", "did you mean f16?"],
        ),
        (
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16",
            ["ends too soon", "type of C"],
        ),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32.rz", ["rounding"]),
        (
            "mma.aligned.m16n8k16.row.col.f32.f16.f16.f32",
            [".aligned cannot follow mma"],
        ),
        ("wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16", ["m64n12k16", "shape"]),
        (
            "wgmma.mma_async.sync.aligned.m64n40k32.s32.s8.s8",
            ["m64n40k32", "nearest: wgmma.mma_async.sync.aligned.m64n32k32.s32.s8.s8"],
        ),
        ("ldmatrix.sync.aligned.m16n16.x4.trans.b8", [".x4", "m8n8 and m8n16"]),
        ("hmma.16816", ["no instruction hmma", "did you mean", "wgmma"]),
        ("", ["does not begin with a mnemonic"]),
        (
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32.f32",
            [".f32 does not belong after"],
        ),
    ],
)
def test_what_does_not_exist_is_refused_with_reasons(text, words):
    with pytest.raises(fm.errors.UnknownInstruction) as refusal:
        fm.instruction(text)
    for word in words:
        assert word in str(refusal.value)


def test_the_nearest_instruction_exists():
    with pytest.raises(fm.errors.UnknownInstruction) as refusal:
        fm.instruction("mma.sp.sync.aligned.m16n8k32.row.col.s32.s4.s4.s32")
    nearest = str(refusal.value).partition("nearest: ")[2]
    assert str(fm.instruction(nearest)) == nearest


def test_text_is_wanted():
    with pytest.raises(fm.errors.UnknownInstruction, match="named by text"):
        fm.instruction(5)


@pytest.mark.parametrize(
    "mnemonic",
    [
        "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32",
        "wmma.mma.sync.aligned.row.row.m16n16k16.f16.f16",
        "tcgen05.ld.red.sync.aligned.32x32b.x64.max.NaN.f32",
    ],
)
def test_a_mnemonic_without_sync_and_aligned_is_complete(mnemonic: str) -> None:
    assert str(fm.find(mnemonic.replace(".sync.aligned", ""))) == mnemonic


def test_construction_by_keyword():
    assert str(fm.mma("m16n8k64", a="s4", b="s4")) == S4
    assert fm.mma("m16n8k32", a="e4m3", b="e2m1", d="f16", kind="f8f6f4").kind
    assert str(fm.mma("m8n8k4", a="f64", rounding="rz")).endswith(".rz")
    with pytest.raises(fm.errors.AmbiguousInstruction, match="fits 2 instructions"):
        fm.mma("m16n8k16", a="f16")
    with pytest.raises(fm.errors.UnknownInstruction, match="no qualifier alayot"):
        fm.mma("m16n8k16", a="f16", alayot="row")
    with pytest.raises(fm.errors.UnknownInstruction, match=r"m16n8k64 with \.tf32"):
        fm.mma("m16n8k64", a="tf32")
    with pytest.raises(fm.errors.UnknownInstruction, match="m16n8k5"):
        fm.mma("m16n8k5", a="tf32")


def test_abbreviations():
    assert str(fm.find("mma.m16n8k64.s4.s4")) == S4
    assert str(fm.find("m16n8k64 s32 s4 s4")) == S4
    assert fm.find("mma.sp.m16n8k64.s4.s4").values["sp"] == "sp"
    assert fm.find("wgmma.sp.m64n256k64.f32.e4m3.e4m3").sparse
    with pytest.raises(fm.errors.AmbiguousInstruction) as several:
        fm.find("mma.m16n8k16")
    assert "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" in str(several.value)
    with pytest.raises(fm.errors.UnknownInstruction):
        fm.find("m16n8k64.tf32")


@pytest.mark.parametrize(
    "text, near",
    [
        ("wgmma.sp.m64n7k64.s8.s8", "m64n8k64"),
        ("wgmma.m64n264k16.f32.f16", "m64n256k16"),
        ("mma.m16n8k63.s4.s4", "m16n8k64"),
    ],
)
def test_the_nearest_shape_is_near_in_numbers(text, near):
    with pytest.raises(fm.errors.UnknownInstruction, match=rf"did you mean {near}\?"):
        fm.find(text)


@pytest.mark.parametrize(
    "wrong, said",
    [
        (lambda: fm.mma("m16n8k64", a="s4", sp=1), "sp is True, 'sp' or 'sp::ord.* 1"),
        (lambda: fm.mma("m16n8k32", a=int), "a is a text, such as 'f16'; given type"),
        (lambda: fm.instruction("mma.m16n8k64.s4.s4"), "find.. takes names in short"),
    ],
)
def test_what_is_no_word_is_told(wrong, said):
    with pytest.raises(fm.errors.UnknownInstruction, match=said):
        wrong()


def test_a_semicolon_ends_a_short_name_too():
    assert fm.find("mma.sp.m16n8k16.tf32;") == fm.find("mma.sp.m16n8k16.tf32")


def test_a_long_list_of_choices_says_how_many_more_there_are():
    """Building by keyword cut its list at twelve and did not say so."""
    count = len(fm.search("wgmma.f16.f16"))
    assert count > 12
    with pytest.raises(fm.errors.AmbiguousInstruction, match=f"and {count - 12} more"):
        fm.find("wgmma.f16.f16")
    with pytest.raises(fm.errors.AmbiguousInstruction) as several:
        build([wgmma.DENSE], a="f16", d="f32")
    assert "wgmma .f16 fits 32 instructions" in str(several.value)
    assert str(several.value).endswith("… and 20 more")


def test_wmma_is_built_by_keyword_too():
    assert str(fm.wmma.mma("m8n32k16", a="bf16", blayout="row")) == (
        "wmma.mma.sync.aligned.row.row.m8n32k16.f32.bf16.bf16.f32"
    )
    with pytest.raises(
        fm.errors.AmbiguousInstruction, match=r"wmma\.mma m16n16k16 \.f16 fits"
    ):
        fm.wmma.mma("m16n16k16", a="f16")
    with pytest.raises(
        fm.errors.UnknownInstruction, match=r"m16n16k16 with \.s4 as the"
    ):
        fm.wmma.mma("m16n16k16", a="s4")
