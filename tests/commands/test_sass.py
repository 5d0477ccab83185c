"""``which`` leads from machine instructions to fragments, and back."""

from __future__ import annotations

import json
import re

import pytest

from fragmenta import find
from tests.asking import answer, page, refusal
from tests.commands.names import S4

BF16 = find("mma.m16n8k16.f32.bf16")


def test_a_name_leads_to_the_fragment() -> None:
    assert answer("which", "HMMA.16816.F32.BF16").splitlines() == [
        "HMMA.16816.F32.BF16",
        f"  is {BF16}",
        "     on sm_80..121",
        "  is part of 12 wmma.mma, such as",
        "     wmma.mma.sync.aligned.row.row.m16n16k16.f32.bf16.bf16.f32",
        "     on sm_80..121",
        f"A: 16 x 16 bf16: {BF16.a.layout}",
        f"B: 16 x 8 bf16: {BF16.b.layout}",
        f"C and D: 16 x 8 f32: {BF16.d.layout}",
        f"more: fragmenta show {BF16}",
    ]


@pytest.mark.parametrize(
    "words",
    [
        ("hmma.16816.f32.bf16",),
        ("/*0090*/ @P0 HMMA.16816.F32.BF16 R4, R8.reuse, R12, R4 ;",),
        ("@P0", "HMMA.16816.F32.BF16", "R4,", "R8.reuse,", "R12,", "R4", ";"),
        ("HMMA.16816.F32.BF16", "R4,", "R8,", "R12,", "RZ"),
    ],
)
def test_lines_are_read_in_one_or_many_words(words: tuple[str, ...]) -> None:
    assert answer("which", *words) == answer("which", "HMMA.16816.F32.BF16")


def test_with_an_index_a_line_is_an_instruction() -> None:
    line = ("HMMA.16816.F32.BF16", "R4,", "R8,", "R12,", "R4")
    assert answer("which", *line, 3, 5) == answer("which", str(BF16), 3, 5)


def test_many_names_and_many_instructions_are_told_in_short() -> None:
    lines = answer("which", "UTCHMMA.2CTA").splitlines()
    assert "more, which --json lists" in "\n".join(lines)
    assert len(lines) < 30
    every = answer("which", "LDSM.16", "--target", "sm_90")
    assert every.count("\nLDSM.16.") == 5
    assert re.search(
        r"longer names: LDTM\S+,(?s:.*) and \d+ more", answer("which", "LDTM")
    )
    assert "longer names: LDSM.16.MT88.2 and LDSM.16.MT88.4" in answer(
        "which", "LDSM.16.MT88"
    )


def test_many_names_are_listed_alone_by_their_numbers() -> None:
    lines = page("which", "BGMMA").splitlines()
    assert lines[0] == "BGMMA fits 18 machine instructions"
    assert lines[1].split() == ["BGMMA.64x8x256.AND.POPC", "BGMMA.64x16x256.AND.POPC"]
    assert lines[-1] == "  fragmenta which BGMMA.64x8x256.AND.POPC"
    assert "  and 208 more, which --json lists" in page("which", "HGMMA")
    told = json.loads(answer("which", "HGMMA", "--json"))
    assert len({each["name"] for each in told["origins"]}) == 48 + 208


def test_which_json_of_a_name() -> None:
    told = json.loads(
        answer("which", "IMMA.16832.S8.S8", "--target", "sm_90", "--json")
    )
    assert told["name"] == "IMMA.16832.S8.S8"
    assert told["origins"][0] == {
        "name": "IMMA.16832.S8.S8",
        "instruction": "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32",
        "targets": ["sm_90"],
        "alone": True,
        "sass": "IMMA.16832.S8.S8",
    }
    assert any("expanded to s8/u8" in each["sass"] for each in told["origins"])


def test_and_back() -> None:
    lines = answer("which", S4).splitlines()
    assert lines[0] == str(find(S4))
    assert lines[1] == "  sm_80..89: IMMA.16864.S4.S4"
    assert lines[2].startswith("  sm_90..121: IMMA.16832.S8.S8 x 2, and ")
    assert answer("which", S4, "--target", "sm_80").splitlines()[1:] == [
        "  sm_80: IMMA.16864.S4.S4"
    ]
    told = json.loads(answer("which", S4, "--json"))["sass"]
    assert told["sm_86"] == find(S4).sass("sm_86").to_dict()
    assert list(told) == list(find(S4).requires.targets)


def test_targets_are_named_by_words_too() -> None:
    assert answer("which", S4, "--target", "ampere") == answer(
        "which", S4, "--target", "sm_80"
    )
    assert answer("which", "HMMA.16816.F32", "--target", "ampere") == answer(
        "which", "HMMA.16816.F32", "--target", "sm_80"
    )
    assert answer("which", "HMMA.16816.F32", "--target", "hopper") == answer(
        "which", "HMMA.16816.F32", "--target", "sm_90a"
    )


def test_show_tells_the_machine_instructions() -> None:
    assert "\nsass      HMMA.16816.F32.BF16\n" in answer("show", str(BF16))
    assert "\nsass      sm_80..89: IMMA.16864.S4.S4\n" in answer("show", S4)
    told = json.loads(answer("show", S4, "--json"))
    assert told["sass"]["sm_80"]["code"] == {"IMMA.16864.S4.S4": 1}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("which", "HMMA.16818.F32"), "the nearest are HMMA.1688.F32"),
        (("which", "QMMA.SF", "--target", "sm_90"), "writes no QMMA.SF for sm_90"),
        (("which", "HMMA.16816.F32", "--target", "sm_91"), "no target sm_91"),
        (("which", "HMMA.16816.F32", "--idesc", "0x1"), "has no --idesc"),
        (("which", S4, 3, 5, "--target", "sm_80"), "leave the index out"),
        (("which", S4, "--target", "sm_75"), "needs PTX 7.0, sm_80+; given sm_75"),
        (("which", "FOOMMA.16"), "no instruction has"),
    ],
)
def test_what_is_wrong_is_refused(words: tuple[str, ...], message: str) -> None:
    assert message in " ".join(refusal(*words).split())
