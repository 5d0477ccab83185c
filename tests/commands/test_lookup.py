"""``where``, ``holds``, ``table`` and ``which`` print what the library says."""

from __future__ import annotations

import json
import re

import pytest

from fragmenta import find
from tests.asking import answer, page, refusal
from tests.commands.names import S4, S4_FULL, SPARSE, WGMMA


def test_where() -> None:
    """Column 17 is element 1 of thread 2; row 3 is group 3: lane 4 * 3 + 2."""
    assert answer("where", S4, "A", 3, 17).splitlines() == [
        S4_FULL,
        "A[3, 17]  lane 14, register 0, bits 7:4 (a1)",
    ]


def test_where_takes_operands_in_any_case() -> None:
    assert answer("where", SPARSE, "METADATA", 3, 2) == answer(
        "where", SPARSE, "metadata", 3, 2
    )
    scaled = "mma.m16n8k64.kind::mxf4nvf4.ue4m3"
    assert "scale_A[3, 1]  thread 0: lane 12" in answer(
        "where", scaled, "scale_a", 3, 1
    )


def test_where_names_selectors_and_copies() -> None:
    metadata = answer("where", SPARSE, "metadata", 3, 2)
    assert "selector 0: lane 12, register 0, bits 11:8" in metadata
    assert "selector 1: lane 14, register 0, bits 11:8" in metadata
    doubled = answer("where", "wmma.mma.row.col.m16n16k16.f16.f16", "A", 5, 5)
    assert "(a1)" in doubled
    assert "(a9)" in doubled
    assert "observed on sm_90" in doubled


def test_where_says_what_a_stored_column_stands_for() -> None:
    text = answer("where", SPARSE, "A", 3, 17)
    assert "metadata[3, 4] says which of columns 32..39 this is" in text


def test_where_json_is_the_library() -> None:
    parsed = json.loads(answer("where", WGMMA, "D", 40, 5, "--json"))
    place = find(WGMMA).d.where(40, 5)
    assert parsed["instruction"] == str(find(WGMMA))
    assert parsed["element"] == {"row": 40, "col": 5}
    assert parsed["places"] == [
        {
            "warp": place.warp,
            "lane": place.lane,
            "register": place.register,
            "bits": [0, 31],
            "i": place.register,
        }
    ]


def test_holds() -> None:
    assert answer("holds", S4, "A", 13).splitlines()[2:] == [
        "  register 0, bits 31:0  A[3, 8..15]",
        "  register 1, bits 31:0  A[11, 8..15]",
        "  register 2, bits 31:0  A[3, 40..47]",
        "  register 3, bits 31:0  A[11, 40..47]",
    ]


def test_holds_one_register_of_one_warp() -> None:
    words = ("holds", WGMMA, "D", 13, "--warp", 2, "--register", 1)
    assert answer(*words).splitlines()[1:] == [
        "D in warp 2, lane 13",
        "  register 1, bits 31:0  D[35, 3]",
    ]
    (element,) = json.loads(answer(*words, "--json"))["elements"]
    assert (element["row"], element["col"], element["register"]) == (35, 3, 1)


@pytest.mark.parametrize("by", ["matrix", "lane"])
@pytest.mark.parametrize("format_", ["csv", "markdown", "json"])
def test_table_is_the_library(by: str, format_: str) -> None:
    text = answer("table", S4, "C", "--by", by, "--format", format_)
    assert text == find(S4).c.table(by, format_) + "\n"


def test_table_has_json_as_the_others_do() -> None:
    asked = ("table", S4, "C")
    assert answer(*asked, "--json") == answer(*asked, "--format", "json")
    assert "contradict" in refusal(*asked, "--json", "--format", "csv")


def test_table_follows_the_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    wide = answer("table", S4, "A")
    assert 120 < max(map(len, wide.splitlines())) <= 160


def test_which_of_a_sparse_instruction() -> None:
    text = answer("which", SPARSE, 3, 5)
    for line in (
        r"D\[3, 5\] +lane 14, register 1, bits 31:0",
        r"A\[3, 8\.\.15\] of columns 16\.\.31 +lane 13, register 0, bits 31:0",
        r"B\[56\.\.63, 5\] +lane 23, register 1, bits 31:0",
        r"metadata\[3, 0\.\.7\] selector 1 +lane 14, register 0, bits 31:0",
        r"C\[3, 5\] +lane 14, register 1, bits 31:0",
    ):
        assert re.search(f"(?m)^{line}$", text)


def test_which_says_that_b_is_in_shared_memory() -> None:
    text = answer("which", WGMMA, 40, 5)
    assert re.search(r"B\[0\.\.15, 5\] +in shared memory", text)
    assert json.loads(answer("which", WGMMA, 40, 5, "--json"))["shared_memory"] == ["B"]


@pytest.mark.parametrize(
    "text",
    [S4, SPARSE, WGMMA, "mma.m8n8k4.row.col.f32.f16.f16.f32", "mma.sp.m16n8k16.tf32"],
)
def test_which_covers_the_whole_sum(text: str) -> None:
    """Every element of the row of A and of the column of B, and no other."""
    op = find(text)
    at = [1] * len(op.d.shape)
    parsed = json.loads(answer("which", text, *at, "--json"))
    for name, along in (("A", "col"), ("B", "row")):
        if name not in op.fragments:
            continue
        found: list[int] = []
        for feed in parsed["feeds"]:
            if feed["operand"] == name:
                extent = feed["element"][along]
                low, high = extent if isinstance(extent, list) else (extent, extent)
                found += range(low, high + 1)
        size = op.fragments[name].layout.sizes[along]
        assert found == list(range(size))


def test_which_of_a_move() -> None:
    assert "does not multiply" in refusal("which", "ldmatrix.m8n8.x1.b16", 0, 0, 0)


def test_an_ambiguous_name_lists_its_candidates() -> None:
    text = refusal("which", "mma.m16n8k64", 3, 5)
    assert f"  {S4_FULL}\n" in text
    assert "m16n8k64.row.col.s32.u4.s4.s32" in text


def test_a_column_that_is_not_stored_is_explained() -> None:
    said = " ".join(refusal("where", SPARSE, "A", 5, 63).split())
    assert "column 63 is one of stored columns 28..31, if metadata[5, 7]" in said
    found = json.loads(answer("where", SPARSE, "A", 5, 3, "--json"))
    assert found["columns"] == [0, 7]


def test_a_register_that_is_not_there() -> None:
    said = refusal("holds", SPARSE, "metadata", 13, "--register", 1)
    assert "register 1 is out of range; metadata has register 0 only" in said
    said = refusal("where", S4, "A", 10**23, 3)
    assert f"row {10**23} is out of range" in " ".join(said.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("where", S4, "A", -1, 5), "row -1 is out of range; row is 0 to 15"),
        (("where", S4, "A", 3, 64), "col 64 is out of range; col is 0 to 63"),
        (("where", S4, "A", 3), "A is indexed by"),
        (("where", S4, "A", 3, "x"), "x is not a whole number"),
        (("where", S4, "A", 3, 1.5), "1.5 is not a whole number"),
        (("where", S4, "metadata", 0, 0), "has no operand metadata"),
        (("where", SPARSE, "metadta", 0, 0), "did you mean metadata?"),
        (("where", WGMMA, "B", 0, 0), "B of wgmma is in shared memory"),
        (("where", S4, "A", 3, 5, "--jsn"), "--json"),
        (("holds", S4, "A", 32), "lane 32 is out of range"),
        (("holds", S4, "A", -1), "lane -1 is out of range"),
        (("holds", S4, "A", 0, "--register", 4), "out of range"),
        (("holds", S4, "A", 0, "--warp", 1), "one warp"),
        (("holds", WGMMA, "A", 0, "--warp", 4), "warp 4 is out of range"),
        (("holds", S4, "A"), "Missing argument 'LANE'"),
        (("table", S4, "A", "--by", "lanes"), "did you mean lane?"),
        (("table", S4, "A", "--format", "html"), "html is not text, csv, markdown"),
        (("which", S4, 16, 0), "row 16 is out of range"),
    ],
)
def test_refusals(words: tuple[object, ...], message: str) -> None:
    text = " ".join(refusal(*words).split())
    assert message in text


# ── words that fit several instructions ─────────────────────────────────────


def test_instructions_that_agree_on_an_operand_are_answered_at_once() -> None:
    words = ("mma", "m16n8k16", "fp16", "B", 9, 3)
    one = page("where", "mma.m16n8k16.f32.f16", *words[3:]).splitlines()
    many = page("where", *words).splitlines()
    assert many[1] == "and 1 more, in which B has the same places"
    assert many[2:] == one[1:]
    told = json.loads(answer("where", *words, "--json"))
    assert told["alike"] == ["mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"]
    assert page("table", *words[:4]).splitlines()[:2] == many[:2]
    both = page("formula", *words[:4], "--language", "cuda").splitlines()
    assert both[:2] == [f"// {line}" for line in many[:2]]
    held = page("holds", "mma.m16n8k32.e4m3", "A", 5).splitlines()
    assert held[1] == "and 5 more, in which A has the same places"


def test_instructions_that_do_not_agree_are_listed() -> None:
    assert "fits 2 instructions" in refusal("where", "mma m16n8k16 fp16", "C", 0, 0)
    assert "fits 16 instructions" in refusal("where", "mma.m16n8k16", "B[9,3]")
    assert "fits 2 instructions" in refusal("where", "mma m16n8k16 fp16", "metadata", 0)
