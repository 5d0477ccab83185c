"""The record of machine instructions is complete and right, and is found in both directions."""

from __future__ import annotations

from collections import Counter

import pytest

import fragmenta as fm
from fragmenta.cuda.source import kernel, ptx
from fragmenta.cuda.tools import assembler
from fragmenta.reference.isa import synonyms
from fragmenta.reference.isa.sass import machine_name, names, opcodes
from fragmenta.reference.isa.sass_records import FILE, parse, recorded, written
from fragmenta.reference.isa.table import read
from fragmenta.reference.isa.target import ARCHITECTURES, TARGETS, number
from tests.isa import sass
from tests.thinning import some

OPS = list(fm.catalogue())
NEWEST = sass.Tools()

# What is known from disassemblies that others have printed, and from this project's.
BY_HAND = {
    ("mma.m16n8k16.f32.f16", "sm_80 sm_86 sm_90 sm_120a"): "HMMA.16816.F32",
    ("mma.m16n8k16.f16.f16.f16.f16", "sm_80 sm_90"): "HMMA.16816.F16",
    ("mma.m16n8k16.f32.bf16", "sm_80 sm_90a"): "HMMA.16816.F32.BF16",
    ("mma.m16n8k8.f32.f16", "sm_75 sm_80"): "HMMA.1688.F32",
    ("mma.m16n8k8.f32.tf32", "sm_80"): "HMMA.1688.F32.TF32",
    ("mma.m16n8k32.s8.s8", "sm_80 sm_90"): "IMMA.16832.S8.S8",
    ("mma.m16n8k64.s4.s4", "sm_80 sm_89"): "IMMA.16864.S4.S4",
    ("mma.sp.m16n8k32.f32.f16", "sm_80 sm_90"): "HMMA.SP.16832.F32",
    ("mma.m16n8k256.b1.and", "sm_80 sm_90"): "BMMA.168256.AND.POPC",
    ("mma.m8n8k4.f64", "sm_80"): "DMMA.884",
    ("mma.m8n8k4.f64", "sm_90"): "DMMA.8x8x4",
    ("mma.m16n8k32.f32.e4m3.e4m3", "sm_89 sm_120"): "QMMA.16832.F32.E4M3.E4M3",
    ("wgmma.m64n256k16.f32.f16", "sm_90a"): "HGMMA.64x256x16.F32",
    ("wgmma.m64n128k32.f32.e4m3.e5m2", "sm_90a"): "QGMMA.64x128x32.F32.E4M3.E5M2",
    ("wgmma.sp.m64n8k64.s8.u8", "sm_90a"): "IGMMA.SP.64x8x64.S8.U8",
    ("ldmatrix.m8n8.x4.shared.b16", "sm_75 sm_90"): "LDSM.16.M88.4",
    ("ldmatrix.m8n8.x1.trans.shared.b16", "sm_80"): "LDSM.16.MT88",
    ("stmatrix.m8n8.x2.shared.b16", "sm_90"): "STSM.16.M88.2",
    ("movmatrix", "sm_75 sm_90"): "MOVM.16.MT88",
    ("tcgen05.mma.cta_group::2.kind::f16", "sm_100a"): "UTCHMMA.2CTA",
    ("tcgen05.ld.32x32b.x8", "sm_100a"): "LDTM.x8",
    ("tcgen05.m128n256k16.f32.f16", "sm_100a"): "UTCHMMA",
    ("wgmma.fence", "sm_90a"): "WARPGROUP.ARRIVE",
}


@pytest.mark.parametrize(
    ("short", "target", "name"),
    [(s, t, name) for (s, ts), name in BY_HAND.items() for t in ts.split()],
)
def test_one_machine_instruction(short: str, target: str, name: str) -> None:
    op = fm.find(short)
    assert op.sass(target).code == ((name, 1),)
    assert op.sass(target).alone
    assert op.mnemonic in {str(each.instruction) for each in fm.from_sass(name, target)}


def test_several_machine_instructions() -> None:
    steps = fm.find("mma.m8n8k4.row.col.f32.f16.f16.f32").sass("sm_70")
    assert steps.names == tuple(f"HMMA.884.F32.F32.STEP{i}" for i in range(4))
    assert steps.toolkit == "12.8"
    expanded = fm.find("mma.m16n8k64.s4.s4").sass("sm_90")
    assert expanded.code == (("IMMA.16832.S8.S8", 2),)
    assert expanded.expanded == "s8/u8"
    assert expanded.others > 50
    assert not expanded.alone
    tiles = fm.instruction("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32")
    assert tiles.sass("sm_75").code == (("HMMA.1688.F32", 4),)
    assert tiles.sass("sm_80").code == (("HMMA.16816.F32", 2),)
    assert fm.find("wgmma.commit_group").sass().code == ()


def test_every_instruction_is_recorded_for_every_target_and_nothing_else() -> None:
    have = {op.mnemonic: {number(t) for t in op.requires.targets} for op in OPS}
    rows = recorded().rows
    kept = {
        name: [a for archs, _, _ in row for a in archs] for name, row in rows.items()
    }
    assert {name: sorted(archs) for name, archs in have.items()} == {
        name: sorted(archs) for name, archs in kept.items()
    }
    assert set(recorded().tools) == set(ARCHITECTURES)


def test_what_has_no_instruction_of_its_own() -> None:
    """ptxas only orders the code around these, or sets a flag of another."""
    none = {op.mnemonic for op in OPS if not op.sass(op.requires.targets[0]).code}
    assert none == {
        "wgmma.commit_group.sync.aligned",
        "tcgen05.wait::ld.sync.aligned",
        "tcgen05.fence::before_thread_sync",
        "tcgen05.fence::after_thread_sync",
    }


# ── before the assembler ────────────────────────────────────────────────────


@pytest.mark.long
@pytest.mark.parametrize("arch", some([a for a in ARCHITECTURES if a >= 75], 3))
def test_the_record_is_what_the_tools_say(arch: int) -> None:
    """A run takes some of each architecture; a thorough one, all."""
    target = [each for each in TARGETS if number(each) == arch][-1]
    every = [op for op in OPS if op.supported_on(target)]
    asked = some(every, 149, arch)
    told = sass.codes(asked, target, NEWEST)
    wrong = [
        (str(op), code, recorded().on(op.mnemonic, arch))
        for op, code in zip(asked, told, strict=True)
        if code != recorded().on(op.mnemonic, arch)
    ]
    assert not wrong


def test_the_tools_are_those_of_the_record() -> None:
    assert recorded().tools[90] == NEWEST.versions()
    assert assembler.release() == recorded().tools[121][0]


def test_names_do_not_depend_on_where_a_is_or_on_immediates() -> None:
    """Negations and transpositions show in operands, not in names."""
    ops = [op for op in OPS if op.warpgroup][::97]
    texts, kinds = (
        [],
        (("plain", False, {}), ("registers", True, {}), ("signs", False, {-1})),
    )
    for i, op in enumerate(ops):
        for kind, a_registers, _ in kinds:
            made = kernel.KernelBuilder(
                f"{kind}{i}", {"p_d": kernel.ParameterType(".u64")}
            )
            made.declare(ptx.operands(op, a_registers=a_registers))
            made.threads()
            given = {
                e.name: e.values[0]
                for e in op.operands
                if -1 in e.values and kind == "signs"
            }
            made.do("mov.pred %scale_d, 1;")
            made.do(
                *kernel.group([ptx.statement(op, a_registers=a_registers, **given)])
            )
            made.store(ptx.operands(op)[0], place="%thread")
            texts.append(made.text())
    found = NEWEST.names(texts, "sm_90a", assembler.newest_version())
    for i, op in enumerate(ops):
        for kind, *_ in kinds:
            assert {n for n in found[f"{kind}{i}"] if "GMMA" in n} == {*op.sass().names}


def test_a_kernel_without_the_instruction_has_nothing_of_it() -> None:
    ops = [fm.find(short) for short in ("mma.m16n8k16.f32.f16", "ldmatrix.m8n8.x4.b16")]
    texts = [sass.entry(op, f"k{i}", there=False) for i, op in enumerate(ops)]
    for found in NEWEST.names(texts, "sm_90", "8.0").values():
        assert "STG.E.STRONG.SYS" in found
        assert not any(sass.WORK.fullmatch(name.split(".")[0]) for name in found)


def test_what_works_is_told_from_what_goes_along() -> None:
    op = fm.find("mma.m16n8k32.f32.e4m3.e4m3")
    more = Counter(
        {"HMMA.16816.F32": 2, "F2FP.F16.E4M3.UNPACK_B": 12, "FADD": 4, "NOP": 9}
    )
    more |= Counter({"UIADD3": 2, "LDC.64": 1, "IMAD.MOV.U32": 3, "MOV": 1})
    assert sass.sorted_out(op, more) == ((("HMMA.16816.F32", 2),), 16)


# ── the file ────────────────────────────────────────────────────────────────


def test_the_file_is_small_and_is_what_would_be_written() -> None:
    text = FILE.read_text(encoding="utf-8")
    assert len(text) < 350_000
    assert written(recorded().tools, recorded().rows) == text
    again = parse(text)
    assert again == recorded()


def test_what_is_not_recorded_is_refused() -> None:
    with pytest.raises(
        fm.Error, match=r"no machine code is recorded for mma\.x on sm_90"
    ):
        recorded().on("mma.x", 90)


# ── from an instruction ─────────────────────────────────────────────────────


def test_the_target_is_chosen_and_checked_as_everywhere() -> None:
    assert fm.mma("m16n8k16", a="f16", d="f32").sass().target == "sm_90a"
    assert fm.tcgen05("m128n256k16", a="f16", d="f32").sass().target == "sm_100a"
    op = fm.wgmma("m64n8k16", a="f16", d="f32")
    with pytest.raises(
        fm.errors.UnsupportedTarget, match=r"needs PTX 8\.0, sm_90a; given sm_80"
    ):
        op.sass("sm_80")
    with pytest.raises(fm.errors.UnsupportedTarget, match="did you mean sm_90"):
        op.sass("sm_91")


def test_sass_is_told_in_words_and_for_json() -> None:
    code = fm.find("wmma.mma.row.col.m16n16k16.f32.f16").sass("sm_80")
    assert str(code) == "HMMA.16816.F32 x 2, and 8 others"
    assert code.to_dict() == {
        "code": {"HMMA.16816.F32": 2},
        "others": 8,
        "expanded": None,
        "ptxas": code.ptxas,
        "nvdisasm": code.nvdisasm,
    }
    assert str(fm.find("wgmma.commit_group").sass()) == "no instruction of its own"


# ── from a name ─────────────────────────────────────────────────────────────

LINES = [
    "HMMA.16816.F32.BF16",
    "hmma.16816.f32.bf16",
    "        /*0090*/                   HMMA.16816.F32.BF16 R4, R8, R12, R4 ;",
    "/*0090*/ @P0 HMMA.16816.F32.BF16 R4, R8.reuse, R12, R4 ;   /* 0x0000000c0804723c */",
    "@!UP1 HMMA.16816.F32.BF16 R4, R8, R12, RZ;",
    "  37  00007f3a 5d2e4a10        HMMA.16816.F32.BF16 R4, R8, R12, R4",
    "0x0090: HMMA.16816.F32.BF16 R4,R8,R12,R4;",
    "\tHMMA.16816.F32.BF16\t",
]


@pytest.mark.parametrize("line", LINES)
def test_lines_of_disassemblers_are_read(line: str) -> None:
    assert machine_name(line) == "HMMA.16816.F32.BF16"
    first = fm.from_sass(line)[0]
    assert first.instruction == fm.find("mma.m16n8k16.f32.bf16")
    assert first.alone


def test_exact_names_then_beginnings_then_some_words() -> None:
    assert names("HMMA.16816.F32") == ("HMMA.16816.F32",)
    assert set(names("HMMA.16816")) == {
        f"HMMA.16816.{each}" for each in ("F16", "F32", "F32.BF16")
    }
    assert "IMMA.SP.16864.U8.S8.SAT" in names("imma.16864.sat")
    assert names("ldtm.X8") == ("LDTM.x8",)


def test_what_is_that_instruction_alone_comes_first() -> None:
    origins = fm.from_sass("HMMA.16816.F32", "sm_90")
    assert [each.alone for each in origins] == sorted(
        (o.alone for o in origins), reverse=True
    )
    assert (
        str(origins[0].instruction)
        == "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    )
    parts = {each.instruction.family for each in origins if not each.alone}
    assert parts == {"mma", "wmma.mma"}
    assert {each.targets for each in origins} == {("sm_90",)}


def test_every_way_there_leads_back() -> None:
    for op in some(OPS, 101):
        for target in (op.requires.targets[0], op.requires.targets[-1]):
            code = op.sass(target)
            for name in code.names:
                back = [o for o in fm.from_sass(name, target) if o.instruction == op]
                assert [(o.name, o.alone) for o in back] == [(name, code.alone)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "HMMA.16818.F32",
            r"no machine instruction HMMA\.16818\.F32 .*nearest are .*HMMA\.16816\.F32",
        ),
        ("FFMAX R1, R2", r"no machine instruction FFMAX is recorded"),
        ("", "a machine instruction is written as"),
        ("x" * 5000, "a machine instruction is written as"),
        ("/* nothing */", "no machine instruction"),
        ("LDSM.16.M88 R4 ; HMMA.1688.F32 R8", "one machine instruction at a time"),
    ],
)
def test_unknown_names_are_refused(text: str, message: str) -> None:
    with pytest.raises(fm.errors.UnknownInstruction, match=message):
        fm.from_sass(text)


def test_a_target_that_has_no_such_instruction_is_refused() -> None:
    with pytest.raises(
        fm.errors.UnknownInstruction, match=r"no QMMA.* for sm_90; it does for sm_89"
    ):
        fm.from_sass("QMMA.16832.F32.E4M3.E4M3", "sm_90")
    with pytest.raises(fm.errors.UnsupportedTarget, match="no target sm_91"):
        fm.from_sass("HMMA.16816.F32", "sm_91")
    with pytest.raises(fm.errors.UnknownInstruction, match="given 'None'"):
        fm.from_sass(None)  # type: ignore[arg-type]


def test_searches_know_every_name() -> None:
    """What fm.find and fm.search understand rests on the same record."""
    everything = [name for name in sorted(recorded_names()) if "." in name]
    for name in some(everything, 67):
        alone = {each.instruction for each in fm.from_sass(name) if each.alone}
        if alone and name.partition(".")[0] not in ORDERING:
            assert set(fm.search(name, every=True)) == alone, name
    for name in ("UTCBAR.2CTA", "UTCCP.T.S"):  # their words do not say what they are
        found = {each.instruction for each in fm.from_sass(name) if each.alone}
        assert set(fm.search(name, every=True)) == found
    assert fm.find("QMMA.SF.SP.16864.F32.E2M1.E4M3.E8").sparse
    assert (
        str(fm.find("LDTM.16dp128bit.x16")) == "tcgen05.ld.sync.aligned.16x128b.x16.b32"
    )


def test_words_of_searches_are_first_words_of_names() -> None:
    known = {row["said"].upper() for row in read(synonyms.SASS) if row["families"]}
    assert known - {"GMMA", "UMMA"} <= {*opcodes()}  # those two are how people speak
    assert {*opcodes()} - known == {
        *ORDERING,
        *MEMORY,
        "FADD",
        "FMUL",
        "FFMA",
        "UNNAMED",
    }


# Ordinary instructions, and those that order or shift: no words of searches.
ORDERING = {"FENCE", "MEMBAR", "WARPGROUP", "UVIRTCOUNT", "UTCSHIFT"}
MEMORY = {"LD", "LDG", "LDS", "ST", "STG", "STS"}


def recorded_names() -> set[str]:
    rows = recorded().rows.values()
    return {name for row in rows for _, code, _ in row for name, _ in code}
