"""``show`` and ``formula`` print what the library says."""

from __future__ import annotations

import json

from fragmenta import find
from tests.asking import answer, refusal
from tests.commands.names import S4, S4_FULL, SPARSE, WGMMA


def test_formula_of_one_operand_and_of_all() -> None:
    one = answer("formula", S4, "C")
    assert one == f"{S4_FULL}\n\nC:\n{find(S4).c.formula()}\n"
    every = answer("formula", S4)
    assert [line for line in every.splitlines() if line.endswith(":")] == [
        "A:",
        "B:",
        "C:",
        "D:",
    ]


def test_formula_breaks_lines_not_formulas() -> None:
    """Cut to 80 columns it has the same words as the library's."""
    narrow = answer("formula", S4, "A").split("A:", 1)[1]
    assert narrow.split() == find(S4).a.formula().split()


def test_formula_as_expressions_of_cuda_and_python() -> None:
    a = find(S4).a
    assert answer("formula", S4, "A", "--language", "cuda") == (
        f"// {S4_FULL}\n\n// A: the element at a place\n{a.to_cuda('holds')}\n\n"
        f"// A: the place of an element\n{a.to_cuda('where')}\n"
    )
    text = answer(
        "formula", "tcgen05.m128n48k64.kind::mxf4.f32.e2m1", "--language", "python"
    )
    exec(
        text, {}, dict.fromkeys(("row", "col", "copy", "lane", "column", "element"), 0)
    )
    told = json.loads(answer("formula", S4, "--language", "python", "--json"))
    assert told["language"] == "python"
    assert list(told["expressions"]) == ["A", "B", "C", "D"]
    assert told["expressions"]["A"]["where"] == a.to_cuda("where", language="python")


def test_show() -> None:
    text = answer("show", SPARSE)
    for line in (
        "requires  PTX 8.5, sm_80+",
        "native    sm_80 sm_86 sm_87 sm_88 sm_89",
        "sparsity  4:8 in pairs, selector 0 or 1",
        "          selector: one of 0, 1",
        "  layout    row = L2 L3 L4 R0  col = E0 E1 E2 L0 L1",
        "  CuTe      ((4,8),(8,2)):((128,1),(16,8))",
    ):
        assert line in text.splitlines()
    becomes = find(SPARSE).expanded_to("sm_90")
    assert f"expanded  to {becomes} on sm_90 sm_90a" in text


def test_show_json_is_the_library() -> None:
    op = find(SPARSE)
    parsed = json.loads(answer("show", SPARSE, "--json"))
    assert parsed["targets"]["sm_90"] == "8.5"
    assert parsed["expanded"]["sm_90"] == op.expanded_to("sm_90")
    assert parsed["native"] == [t for t in op.requires.targets if op.native_on(t)]
    assert parsed["sparsity"]["selectors"] == [0, 1]
    assert parsed["notes"] == list(op.notes)
    for name, part in op.fragments.items():
        assert parsed["fragments"][name]["layout"] == str(part.layout)
        assert parsed["fragments"][name]["formula"] == part.formula()


def test_show_tells_how_it_sums_on_each_target() -> None:
    text = answer("show", "mma.m16n8k16.f32.f16")
    told = """
sums      sm_80 sm_86 sm_87 sm_88 sm_89
            2 steps of 8 products; 24 bits below emax; 23 kept, toward zero;
            published
          sm_90 sm_90a
            1 step of 16 products; 25 bits below emax; 23 kept, toward zero;
            measured on H200
"""
    assert told in text
    parsed = json.loads(answer("show", "mma.m16n8k16.f32.f16", "--json"))
    assert parsed["sums"][1]["targets"] == ["sm_90", "sm_90a"]
    assert parsed["sums"][1]["fraction"] == 25
    assert json.loads(answer("show", "movmatrix", "--json"))["sums"] is None


def test_show_both_ways_of_a_wgmma() -> None:
    text = answer("show", WGMMA)
    assert "A in shared memory:" in text
    assert "A in registers:" in text
    odd = answer("show", "wgmma.m64n24k16.f32.f16")
    assert "none: a size is not a power of two" in odd


def test_what_does_not_exist_names_the_nearest() -> None:
    full = "mma.sync.aligned.m16n8k64.row.col.f32.tf32.tf32.f32"
    text = " ".join(refusal("show", full).split())
    assert "does not exist" in text
    assert "nearest: mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32" in text
