"""Instructions are found by the words that people and disassemblers use."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.reference.isa import matching, synonyms
from fragmenta.reference.isa.families import FORMS
from fragmenta.reference.isa.target import TARGETS

# Words, and the one instruction that they mean.
ONE = {
    "int8 16x8x32": "mma.m16n8k32.s32.s8.s8.s32",
    "INT4 16864": "mma.m16n8k64.s32.s4.s4.s32",
    "half fp32 mma 16x8x16": "mma.m16n8k16.f32.f16.f16.f32",
    "m16n8k16 mma f32 f16": "mma.m16n8k16.f32.f16.f16.f32",
    "bfloat16 mma 16816": "mma.m16n8k16.f32.bf16.bf16.f32",
    "mma mxfp8 e4m3": "mma.m16n8k32.kind::mxf8f6f4.f32.e4m3.e4m3.f32.ue8m0",
    "nvfp4 mma": "mma.m16n8k64.kind::mxf4nvf4.scale_vec::4x.f32.e2m1.e2m1.f32.ue4m3",
    "mxfp4 16x8x64": "mma.m16n8k64.kind::mxf4.f32.e2m1.e2m1.f32.ue8m0",
    "sparse half f32 16x8x32": "mma.sp.m16n8k32.f32.f16.f16.f32",
    "2:4 int8 16864": "mma.sp.m16n8k64.s32.s8.s8.s32",
    "hopper binary gmma 64x8x256": "wgmma.m64n8k256.s32.b1.b1.and.popc",
    "turing mma int8": "mma.m8n8k16.s32.s8.s8.s32",
    "tcgen05 half f32 m128n256k16": "tcgen05.m128n256k16.f32.f16",
    "blackwell nvfp4 umma 128x256x64": "tcgen05.kind::mxf4nvf4.m128n256k64",
    "tcgen05 sparse nvfp4 256x256x128": "tcgen05.sp.kind::mxf4nvf4.m256n256k128",
    "tcgen05 mxfp8 e4m3 128x64x32": "tcgen05.kind::mxf8f6f4.m128n64k32.f32.e4m3",
}

# Names that nvdisasm printed for kernels of these instructions.
MACHINE = {
    "HMMA.16816.F32 R4, R8, R12, R4 ;": "mma.m16n8k16.f32.f16.f16.f32",
    "HMMA.16816.F16": "mma.m16n8k16.f16.f16.f16.f16",
    "HMMA.16816.F32.BF16": "mma.m16n8k16.f32.bf16",
    "HMMA.1688.F32.TF32": "mma.m16n8k8.f32.tf32",
    "HMMA.SP.16832.F32": "mma.sp.m16n8k32.f32.f16",
    "IMMA.16832.S8.S8": "mma.m16n8k32.s8.s8",
    "IMMA.16864.S4.S4": "mma.m16n8k64.s4.s4",
    "IMMA.SP.16864.S8.S8": "mma.sp.m16n8k64.s8.s8",
    "BMMA.168256.AND.POPC": "mma.m16n8k256.b1.and",
    "DMMA.16x8x16": "mma.m16n8k16.f64",
    "QMMA.16832.F32.E4M3.E4M3": "mma.m16n8k32.f32.e4m3.e4m3",
    "QMMA.SF.16832.F32.E4M3.E4M3.E8": "mma.m16n8k32.kind::mxf8f6f4.f32.e4m3.e4m3",
    "OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X": "mma.kind::mxf4nvf4.f32.e2m1.e2m1.ue4m3",
    "HGMMA.64x128x16.F32": "wgmma.m64n128k16.f32.f16",
    "HGMMA.64x128x16.F32.BF16": "wgmma.m64n128k16.f32.bf16",
    "HGMMA.SP.64x128x32.F32": "wgmma.sp.m64n128k32.f32.f16",
    "IGMMA.64x128x32.S8.S8": "wgmma.m64n128k32.s8.s8",
    "QGMMA.64x128x32.F32.E4M3.E4M3": "wgmma.m64n128k32.f32.e4m3.e4m3",
    "BGMMA.64x128x256.AND.POPC": "wgmma.m64n128k256.b1",
    "LDSM.16.M88.4": "ldmatrix.m8n8.x4.b16",
    "LDSM.16.MT88": "ldmatrix.m8n8.x1.trans.b16",
    "STSM.16.M88.4": "stmatrix.m8n8.x4.b16",
    "MOVM.16.MT88": "movmatrix",
}

# The same where several instructions have one name.
AMONG = {
    "UTCHMMA": {
        "tcgen05.mma.cta_group::1.kind::f16",
        "tcgen05.mma.cta_group::2.kind::tf32",
    },
    "UTCHMMA.2CTA": {"tcgen05.mma.cta_group::2.kind::f16"},
    "UTCIMMA": {"tcgen05.mma.cta_group::1.kind::i8"},
    "UTCQMMA": {
        "tcgen05.mma.cta_group::1.kind::f8f6f4",
        "tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale",
    },
    "UTCOMMA": {"tcgen05.mma.cta_group::1.kind::mxf4.block_scale"},
    "UTCOMMA.4X": {"tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X"},
    "LDTM.x4": {"tcgen05.ld.sync.aligned.32x32b.x4.b32"},
    "STTM.x4": {"tcgen05.st.sync.aligned.32x32b.x4.b32"},
    "UTCCP.T.S": {"tcgen05.cp.cta_group::1.128x256b"},
    "DMMA.884": {"mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"},
}


@pytest.mark.parametrize(("words", "short"), [*ONE.items(), *MACHINE.items()])
def test_words_mean_one_instruction(words: str, short: str) -> None:
    assert fm.find(words) == fm.find(short)


@pytest.mark.parametrize("words", AMONG)
def test_a_machine_instruction_may_be_several(words: str) -> None:
    assert {str(op) for op in fm.search(words)} >= AMONG[words]


@pytest.mark.parametrize(
    ("words", "families", "types"),
    [
        ("fp8", {"mma", "wgmma", "tcgen05.mma"}, {"e4m3", "e5m2"}),
        ("fp4 mma", {"mma"}, {"e2m1"}),
        ("fp6 mma", {"mma"}, {"e2m3", "e3m2"}),
        ("binary", {"mma", "wmma.mma", "wgmma"}, {"b1"}),
        ("ada fp8", {"mma"}, {"e4m3", "e5m2"}),
        ("volta", {"mma", "wmma.mma"}, {"f16", "s8", "u8"}),
        ("ampere bfloat16", {"mma", "wmma.mma"}, {"bf16"}),
        ("hopper fp64", {"mma", "wmma.mma"}, {"f64"}),
        ("1:2", {"mma.sp", "wgmma.sp", "tcgen05.mma.sp"}, {"tf32"}),
        ("4:8 int4", {"mma.sp"}, {"s4"}),
        ("sm_120a nvfp4", {"mma"}, {"e2m1"}),
        ("half wmma load", {"wmma.load"}, {"f16"}),
    ],
)
def test_words_choose_families_and_types(
    words: str, families: set[str], types: set[str]
) -> None:
    found = fm.search(words)
    assert {op.family for op in found} == families
    named = [op.values.get("a") or op.values.get("type") for op in found]
    assert {each for each in named if each} == types


def test_two_types_are_those_of_a_and_b_or_of_d() -> None:
    mixed = {(op.values["a"], op.values["b"]) for op in fm.search("mma fp8 fp4")}
    assert {"e2m1"} < {t for pair in mixed for t in pair}
    assert all("e2m1" in pair and pair != ("e2m1", "e2m1") for pair in mixed)
    assert {op.values["d"] for op in fm.search("mma fp8 half")} == {"f16"}
    assert {op.values["d"] for op in fm.search("half fp32 wgmma")} == {"f32"}


def test_every_architecture_is_its_targets() -> None:
    meant = {
        "volta": "sm_70 sm_72",
        "turing": "sm_75",
        "ampere": "sm_80 sm_86 sm_87 sm_88",
        "ada": "sm_89",
        "hopper": "sm_90 sm_90a",
        # A GPU is one chip, which has one number.
        "v100": "sm_70",
        "xavier": "sm_72",
        "t4": "sm_75",
        "a100": "sm_80",
        "a10": "sm_86",
        "orin": "sm_87",
        "l4": "sm_89",
        "h100": "sm_90 sm_90a",
    }
    for word, targets in meant.items():
        found = synonyms.meaning(word)
        assert found is not None
        assert " ".join(found.targets) == targets
    blackwell = synonyms.meaning("Blackwell")
    assert blackwell is not None
    assert {"sm_100a", "sm_103f", "sm_110", "sm_120a", "sm_121"} <= {*blackwell.targets}
    assert {*blackwell.targets} <= {*TARGETS} - {"sm_107", "sm_90a"}


def test_no_word_is_one_of_ptx() -> None:
    """So what was found in the words of PTX is found as before."""
    words = {w for form in FORMS for row in matching.row_words(form) for w in row}
    assert not [word for word in words if synonyms.has_synonym([word])]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("nvfp4 hopper", ["nvfp4 (e2m1", "hopper (sm_90 or sm_90a)", "kind::mxf4nvf4"]),
        ("fp9", ["did you mean fp8?"]),
        ("blackwel fp8", ["did you mean blackwell?"]),
        ("2:4 tf32", ["mma.sp.sync.aligned.m16n8k8.row.col.f32.tf32"]),
        ("half mma 16x8x17", ["16x8x17 (m16n8k17)", "are mma.sync.aligned.m16n8k16"]),
        ("HMMA.16864", ["are mma.sync.aligned.m16n8k16"]),
        ("tcgen05 fp8 128x250x32", ["multiple of 8", "given 250"]),
    ],
)
def test_what_words_cannot_mean(words: str, told: list[str]) -> None:
    with pytest.raises(fm.errors.UnknownInstruction) as refusal:
        fm.find(words)
    assert all(each in str(refusal.value) for each in told), refusal.value


@pytest.mark.parametrize(
    ("given", "near"),
    [
        (
            "mma.m16n8k16.f32.f16.f16.f16",
            "are mma.sync.aligned.m16n8k16.row.col.f16.f16",
        ),
        ("mma.m16n8k8.s8", "are mma.sync.aligned.m16n8k16.row.col.s32.s8.s8"),
        ("mma.m16n8k16.s4", "are mma.sync.aligned.m16n8k32.row.col.s32.s4.s4"),
        (
            "mma.sync.aligned.m16n8k16.col.row.f32.f16.f16.f16",
            "nearest: mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16",
        ),
        (
            "mma.sync.aligned.m16n8k16.row.col.f32.e2m1.e2m1.f32",
            "nearest: mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1",
        ),
    ],
)
def test_what_is_nearest_has_the_same_types(given: str, near: str) -> None:
    with pytest.raises(fm.errors.UnknownInstruction) as refusal:
        fm.find(given)
    assert near in str(refusal.value)
    assert "m8n8k4" not in str(refusal.value).partition("are mma")[2]


def test_every_keeps_optional_qualifiers() -> None:
    plain, every = fm.search("mma int8"), fm.search("mma int8", every=True)
    assert {*plain} < {*every}
    assert any(op.satfinite for op in every)
    assert {*fm.search("mma.m16n8k32")} < {*fm.search("mma.m16n8k32", every=True)}


def test_what_is_found_needs_what_the_mnemonic_needs() -> None:
    """Rows of the tables overlap; the first one counts, however it is found."""
    for text in ("mma.m16n8k32.kind::f8f6f4.f32.e4m3.e4m3", "mma kind::f8f6f4 fp8"):
        for op in fm.search(text):
            assert op.requires == fm.instruction(str(op)).requires


@pytest.mark.parametrize(
    "word, target",
    [
        ("rtx4090", "sm_89"),
        ("RTX5090", "sm_120a"),
        ("gb200", "sm_100a"),
        ("a10", "sm_86"),
    ],
)
def test_gpus_by_their_names(word: str, target: str) -> None:
    assert synonyms.named_target(word) == target
    op = fm.mma("m16n8k16", a="bf16")
    assert op.supported_on(word) == op.supported_on(target)
    assert str(op.sass(word)) == str(op.sass(target))


# ── Python takes the words that the command line takes ──────────────────────


@pytest.mark.parametrize(
    "words, mnemonic",
    [
        ("mma m16n8k16 bf16", "mma.m16n8k16.f32.bf16.bf16.f32"),
        ("mma.sp m16n8k128 s4", "mma.sp.m16n8k128.s4.s4"),
        ("mma m16n8k32 u8", "mma.m16n8k32.u8.u8"),
        ("sparse int8 16x8x64", "mma.sp.m16n8k64.s8.s8"),
        ("tcgen05 m128n256k16 f32 f16", "tcgen05.m128n256k16.f32.f16"),
    ],
)
def test_words_name_an_instruction_in_python(words: str, mnemonic: str) -> None:
    assert fm.instruction(words) == fm.find(mnemonic)
    assert fm.find(words) == fm.find(mnemonic)


def test_functions_take_the_words_of_an_instruction() -> None:
    op = fm.instruction("sparse int8 16x8x64")
    A = np.zeros((16, 64), np.int8)
    found = fm.matmul("sparse int8 16x8x64", A, np.ones((64, 8), np.int8))
    assert (found == fm.matmul(op, A, np.ones((64, 8), np.int8))).all()
    assert fm.sparse.compress("sparse int8 16x8x64", A).granularity == op.granularity


def test_a_statement_with_operands_is_no_words() -> None:
    with pytest.raises(fm.errors.UnknownInstruction, match="sync"):
        fm.instruction("mma.m16n8k16 {%r0}, {%r1}, {%r2}, {%r3};")
    with pytest.raises(fm.errors.AmbiguousInstruction, match="fits 8 instructions"):
        fm.instruction("hopper wgmma fp8 m64n256k32")


@pytest.mark.parametrize(
    "build, said, meant",
    [
        (fm.mma, {"shape": "16x8x64", "a": "int4"}, {"shape": "m16n8k64", "a": "s4"}),
        (
            fm.mma,
            {"shape": "m16n8k128", "a": "uint4", "b": "int4", "sp": True},
            {"shape": "m16n8k128", "a": "u4", "b": "s4", "sp": "sp"},
        ),
        (
            fm.wgmma,
            {"shape": "m64n8k32", "a": "half", "d": "float", "sp": True},
            {"shape": "m64n8k32", "a": "f16", "d": "f32", "sp": "sp"},
        ),
        (
            fm.tcgen05,
            {"shape": "128x256x16", "a": "bfloat16", "d": "fp32"},
            {"shape": "m128n256k16", "a": "bf16", "d": "f32"},
        ),
    ],
)
def test_builders_take_words(build: Any, said: Any, meant: Any) -> None:
    assert build(**said) == build(**meant)


def test_a_word_of_several_types_is_refused() -> None:
    with pytest.raises(fm.errors.UnknownInstruction, match="a may be e4m3 or e5m2"):
        fm.mma("m16n8k32", a="fp8", d="f32")


@pytest.mark.parametrize("word", synonyms.architectures())
def test_every_word_of_targets_is_a_target_or_says_which(word: str) -> None:
    meant = synonyms.named_targets(word)
    op = fm.mma("m16n8k16", a="f16", d="f32")
    if len(meant) == 1:
        assert op.supported_on(word) == op.supported_on(meant[0])
        return
    with pytest.raises(fm.errors.UnsupportedTarget, match=f"{word} is {meant[0]}"):
        op.supported_on(word)


def test_a_text_of_ptx_names_its_target_as_ptx_does() -> None:
    text = ".version 8.0 .target a100 .address_size 64 .entry f() { ret; }"
    with pytest.raises(fm.Error, match="a100"):
        fm.ptx.parse(text).kernels["f"].launch(1, 1, watch=False)
