"""Commands understand synonyms, alone and combined."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.commands.shell_words import arranged, grouped
from fragmenta.commands.targets import target_of
from fragmenta.reference.isa.synonyms import named_target
from tests.asking import answer, ask, complaint, page

F16 = "mma.m16n8k16.f32.f16"
F16_FULL = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"


def test_show_of_many_is_a_summary() -> None:
    """Known by heart: what mma m16n8k16 multiplies."""
    text = page("show", "mma", "m16n8k16")
    rows = [line.split() for line in text.splitlines() if " m16n8k16 " in line]
    assert ["m16n8k16", "f16", "f16", "f32", "7.0", "sm_80+"] in rows
    assert ["m16n8k16", "bf16", "f32", "7.0", "sm_80+"] in rows
    assert ["m16n8k16", "s8", "u8", "s32", "7.0", "sm_80+"] in rows
    assert ["m16n8k16", "f64", "f64", "7.8", "sm_90+"] in rows
    assert "fragmenta show mma.m16n8k16.f16.f16.f16\n" in text
    assert text == page("show", "mma.m16n8k16").replace(
        "mma.m16n8k16 fits", "mma m16n8k16 fits"
    )


def test_show_of_a_family_has_all_of_its_shapes() -> None:
    text = page("show", "mma")
    shapes = {op.values["shape"] for op in fm.catalogue("mma")}
    assert shapes <= {*text.split()}
    wide = page("show", "wgmma")
    assert "m64n8..256k16" in wide.split()
    assert "sync: 3 instructions" in wide
    few = page("show", "hmma.1688").splitlines()
    assert f"  {fm.find('mma.m16n8k8.f32.tf32')}" in few


@pytest.mark.parametrize("family", ["ldmatrix", "tcgen05.mma"])
def test_every_family_has_a_summary(family: str) -> None:
    assert f"{family}: " in page("show", family)


def test_a_summary_for_programs() -> None:
    """The groups have each instruction once, and nothing else."""
    parsed = json.loads(answer("show", "mma", "int8", "--json"))
    assert parsed["asked"] == "mma int8"
    assert parsed["plain"] == [str(op) for op in fm.search("mma int8")]
    assert parsed["count"] == len(fm.search("mma int8", every=True))
    dense = [each for each in parsed["groups"] if each["family"] == "mma"]
    assert [(each["shapes"], each["ptx"]) for each in dense] == [
        (["m8n8k16"], "6.5"),
        (["m16n8k16", "m16n8k32"], "7.0"),
    ]


def test_a_group_has_the_targets_of_its_results() -> None:
    """Sparse fp8 with D of f16 is not on Ada; with f32 it is."""
    parsed = json.loads(answer("show", "sparse", "mma", "fp8", "--json"))
    plain = [each for each in parsed["groups"] if not each["further"]]
    assert {each["family"] for each in plain} == {"mma.sp"}
    told = {tuple(each["results"]): each["targets"] for each in plain}
    assert told == {("f32",): "sm_89+", ("f16",): "sm_120a/f sm_121a/f"}


@pytest.mark.parametrize(
    "words",
    [
        ("mma", "m16n8k16", "f32", "f16"),
        ("m16n8k16", "mma", "f32", "f16"),
        ("half", "fp32", "mma", "16x8x16"),
        ("HMMA.16816.F32",),
        ("HMMA.16816.F32 R4, R8, R12, R4",),
        ("mma m16n8k16 f32 f16",),
    ],
)
def test_an_instruction_in_several_words(words: tuple[str, ...]) -> None:
    assert answer("show", *words).startswith(f"{F16_FULL}\n")
    assert answer("where", *words, "B", 9, 3) == answer("where", F16, "B", 9, 3)
    assert answer("which", *words, 3, 5).startswith(f"{F16_FULL}\nD[3, 5]")


@pytest.mark.parametrize(
    "element",
    [
        ("B[9,3]",),
        ("B[9, 3]",),
        ("b[9][3]",),
        ("B(9,3)",),
        ("B", "9,3"),
        ("B", "9,", "3"),
    ],
)
def test_an_element_as_it_is_written(element: tuple[str, ...]) -> None:
    told = answer("where", F16, *element)
    assert told == answer("where", F16, "B", 9, 3)
    assert "B[9, 3]  lane 12, register 1, bits 31:16 (b3)" in told


def test_an_element_of_d_and_bad_ones() -> None:
    told = answer("which", F16, 3, 5)
    assert told == answer("which", F16, "3,5") == answer("which", F16, "D[3,5]")
    assert "row -1 is out of range" in complaint("where", F16, "B[-1,3]")
    assert "row 99 is out of range" in complaint("where", F16, "B", "99,3")
    assert "not a whole number" in complaint("which", F16, "B[3,5]")
    assert "not a whole number" in complaint("where", F16, "B", "3,x")


@pytest.mark.parametrize(
    "args",
    [
        ["where", F16, "A", "3", "17"],
        ["which", "mma", "3", "5"],
        ["holds", F16_FULL, "A", "13"],
        ["matmul", F16, "half", "int8"],  # files
        ["emit", F16, "wgmma.m64n8k16.f32.f16"],
        ["sparsity", "half", "mma.sp.m16n8k64.s4.s4"],
        ["draw", F16, "metadata"],
        ["where"],
        [],
    ],
)
def test_what_was_apart_stays_apart(args: list[str]) -> None:
    assert arranged(args) == args


def test_list_by_words() -> None:
    found = answer("list", "sparse", "fp8", "hopper").splitlines()
    assert found == [
        str(op)
        for op in fm.catalogue()
        if op.sparse
        and op.values.get("a") in ("e4m3", "e5m2")
        and op.values.get("b") in ("e4m3", "e5m2")
        and (op.supported_on("sm_90") or op.supported_on("sm_90a"))
    ]
    both = answer("list", "hmma", "--family", "wmma.mma", "--type", "bf16")
    assert both == answer("list", "--family", "wmma.mma", "--type", "bf16")


def test_options_of_list_take_the_same_words() -> None:
    said = answer("list", "--type", "int8", "--shape", "16x8x32", "--target", "ampere")
    assert said == answer(
        "list", "--type", "int8", "--shape", "16832", "--target", "a100"
    )
    plain = answer("list", "--type", "s8", "--shape", "m16n8k32", "--target", "sm_80")
    assert {*said.split()} == {line for line in plain.split() if "u8" not in line}
    assert "did you mean fp8?" in complaint("list", "--type", "fp9")
    assert "did you mean hopper?" in complaint("list", "hoper")


# ── several instructions, targets, names ────────────────────────────────────


@pytest.mark.parametrize(
    ("given", "known"),
    [
        ("mma m16n8k16 bf16", ["mma m16n8k16 bf16"]),
        (f"{F16} wgmma.m64n8k16.f32.f16", [F16, "wgmma.m64n8k16.f32.f16"]),
        ("mma wgmma", ["mma", "wgmma"]),
        ("sparse fp8 mma , fp8 mma", ["sparse fp8 mma", "fp8 mma"]),
        ("fp8 mma,int8 mma", ["fp8 mma", "int8 mma"]),
        (f"{F16} sparse int8 mma", [F16, "sparse int8 mma"]),
        ("HMMA.16816.F32 QMMA.16832.F32", ["HMMA.16816.F32", "QMMA.16832.F32"]),
        ("hmma 16816 f32 igmma", ["hmma 16816 f32", "igmma"]),
        ("", []),
    ],
)
def test_words_of_several_instructions(given: str, known: list[str]) -> None:
    assert grouped(given.split()) == known


def test_quotes_still_work() -> None:
    statement = "mma.sync.aligned {%r1, %r2}, {%r3}"
    assert grouped(["mma int8", statement, "mma fp8"]) == [
        "mma int8",
        statement,
        "mma fp8",
    ]
    assert "no instruction is named; given ','" in complaint("compare", ",")


def test_emit_takes_words() -> None:
    full = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
    assert answer("emit", "mma", "m16n8k16", "bf16") == answer("emit", full)
    both = ("mma", "m16n8k16", "bf16,", "mma.m16n8k32.s8.s8", "--header")
    assert answer("emit", *both) == answer(
        "emit", full, "mma.m16n8k32.s8.s8", "--header"
    )
    ptx = answer("emit", "wgmma", "m64n8k16", "bf16", "--language", "ptx")
    assert ".target sm_90a" in ptx
    assert "one instruction at a time" in complaint("emit", F16, "mma", "int8")


def test_compare_takes_words() -> None:
    words = ("mma", "m16n8k16", "bf16,", "mma", "m16n8k32", "int8", "--k", 16, "--json")
    parsed = json.loads(answer("compare", *words, "--targets", "ampere,Hopper"))
    assert {row["instruction"].split(".", 3)[3] for row in parsed["rows"]} == {
        "m16n8k16.row.col.f32.bf16.bf16.f32",
        "m16n8k32.row.col.s32.s8.s8.s32",
    }
    assert {row["target"] for row in parsed["rows"]} == {
        "sm_80",
        "sm_86",
        "sm_87",
        "sm_88",
        "sm_90a",
    }


def test_sparsity_takes_words_before_or_after_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("w.npy", np.zeros((4, 64), np.float16))
    words = ("sparse", "mma", "m16n8k32", "half", "f32")
    text = page("sparsity", "w.npy", *words)
    assert text == page("sparsity", *words, "w.npy")
    assert text == page("sparsity", "w.npy", " ".join(words))
    assert text.startswith(str(fm.find("mma.sp.m16n8k32.f32.f16")))


def test_explore_takes_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda *_args, **_options: True)
    words = ("mma", "m16n8k16", "bf16")
    assert answer("explore", *words) == answer("explore", " ".join(words))


@pytest.mark.parametrize(
    ("command", "known"),
    [
        (["matmul", F16, "a.npy", "b.npy", "--target", "H100"], "target  sm_90a"),
        (["matmul", F16, "a.npy", "b.npy", "--target", "ada"], "target  sm_89"),
        (["matmul", F16, "a.npy", "b.npy", "--target", "ampere"], "target  sm_80"),
        (
            [
                "explain",
                F16,
                "--seed",
                "1",
                "--row",
                "0",
                "--col",
                "0",
                "--target",
                "turing",
            ],
            "needs PTX 7.0, sm_80+; given sm_75",
        ),
        (["emit", F16, "--language", "ptx", "--target", "hopper"], ".target sm_90a"),
        (
            ["emit", F16, "--language", "ptx", "--target", "hoper"],
            "did you mean hopper?",
        ),
        (["list", "--target", "hoper"], "no target 'hoper' (did you mean hopper?)"),
        (["check", "add.s32 %r1, %r2, 5;", "--target", "ada"], "no problems"),
        (
            ["check", "add.s32 %r1, %r2, 5;", "--target", "ampere"],
            "ampere is sm_80, sm_86, sm_87 or sm_88; name one of them",
        ),
        (["compare", F16, "--targets", "sm_91"], "did you mean sm_90?"),
        (["compare", F16, "--targets", "sm_80,amper"], "did you mean ampere?"),
    ],
)
def test_targets_by_words(
    command: list[str], known: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        np.save(f"{name}.npy", np.ones((4, 4), np.float16))
    assert (
        known in " ".join(ask(*command).output.split()) or known in ask(*command).output
    )


def test_a_word_for_targets_that_compute_differently() -> None:
    """f16 on Blackwell is the same everywhere; a word of two arithmetics is refused."""
    op = fm.find(F16)
    assert target_of("blackwell", op) == "sm_100a"
    with pytest.raises(fm.errors.UnsupportedTarget, match="name one of them"):
        named_target("blackwell", op.requires.targets, same=str)


def test_formula_names_variables() -> None:
    text = answer("formula", F16, "A", "--language", "cuda", "--name", "L=threadIdx.x")
    part = fm.find(F16).a
    assert str(part.to_cuda("holds", L="threadIdx.x")) in text
    assert str(part.to_cuda("where")) in text  # lane is the result
    words = ("--name", "lane=thread", "--name", "row=i", "--name", "bit=b", "--name")
    text = answer("formula", F16, "A", "--language", "python", *words, "register=0")
    assert (
        str(part.to_cuda("where", language="python", lane="thread", row="i", bit="b"))
        in text
    )
    assert (
        str(
            part.to_cuda("holds", language="python", lane="thread", row="i", register=0)
        )
        in text
    )
    for given, message in (
        (["--name", "L=x"], "--name is for the variables of --language cuda or python"),
        (["--language", "cuda", "--name", "Lx"], "--name is VARIABLE=NAME"),
        (["--language", "cuda", "--name", "self=x"], "--name is VARIABLE=NAME"),
        (["--language", "cuda", "--name", "q=x"], "the variables are"),
        (["--language", "cuda", "--name", "row=1+1"], "row is called '1+1'"),
        (["--language", "cuda", "--name", "L=x", "--name", "L=y"], "two names"),
        (["--language", "cuda", "--name", "row=x", "--name", "col=x"], "x"),
    ):
        assert message in complaint("formula", F16, "A", *given)
