"""The commands print what the library says about tensor memory."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import fragmenta as fm
from tests.asking import answer, complaint, page

F16 = "tcgen05.mma.cta_group::1.kind::f16"
PAIR = "tcgen05.cta_group::2.m128n64k16.f32.f16"
SCALED = "tcgen05.kind::mxf4.m128n64k64"


@pytest.mark.parametrize(
    "words",
    [
        (f"{F16} 0x08400010",),
        (F16, "0x08400010"),
        (F16, "--idesc", "0x08400010"),
        (F16, "--idesc", str(0x08400010)),
        ("tcgen05.m128n256k16.f32.f16",),
    ],
)
def test_five_ways_to_name_one_instruction(words: tuple[str, ...]) -> None:
    text = page("show", *words)
    assert text.startswith(f"{F16} 0x08400010\n")
    assert "shape     m128n256k16" in text
    assert "layout    D of the PTX manual, one CTA" in text


def test_a_mnemonic_alone_shows_its_shapes() -> None:
    text = page("show", F16)
    assert "shapes    m64   k16  n 8 to 256 by 8" in text
    assert "types     a, b: f16 or bf16; d: f16 or f32" in text
    assert "optional  disable_output_lane: 4 x .b32" in text
    possible = json.loads(answer("show", F16, "--json"))["possible"]
    assert "m64n8k16" in possible["shapes"]
    assert "m128n8k16" not in possible["shapes"]


def test_no_shape_no_place() -> None:
    assert "add its descriptor, such as 0x08400010" in complaint(
        "where", F16, "D", 0, 0
    )
    assert "tcgen05.m128n256k16.f32.f16" in complaint("draw", F16)
    assert "two instruction descriptors" in complaint(
        "show", F16, "0x08400010", "--idesc", "0x08400000"
    )


def test_where_names_cta_lane_column_and_warp() -> None:
    """M = 128 in a pair: row 100 is row 36 of CTA 1; N / 2 is 32, so col 40 is 8."""
    lines = answer("where", PAIR, "D", 100, 40, "--address", "0x20").splitlines()
    assert lines[1:] == [
        "D[100, 40]  CTA 1, lane 100, column 40, bits 31:0",
        "warp 3 of a warpgroup reaches it by tcgen05.ld",
    ]
    (place,) = json.loads(answer("where", PAIR, "D", 100, 40, "--json"))["places"]
    assert place == {
        "cta": 1,
        "lane": 100,
        "column": 8,
        "bits": [0, 31],
        "reached_by_warp": 3,
    }


def test_where_lists_copies() -> None:
    text = answer("where", SCALED, "scale_A", 100, 1)
    assert text.count("column 3, bits 15:8") == 4
    assert "every warp" in text
    assert "warps 0 and 2 of a warpgroup reach a copy each" in answer(
        "where", PAIR, "A", 5, 5
    )


def test_address_is_for_tensor_memory() -> None:
    assert "is in registers" in complaint(
        "where", "mma.m16n8k64.s4.s4", "A", 0, 0, "--address", 1
    )
    assert "D begins at lane 0" in complaint(
        "where", PAIR, "D", 0, 0, "--address", "0x100000"
    )


def test_holds_joins_columns() -> None:
    words = ("holds", PAIR, "A", 100, "--cta", 1)
    assert answer(*words).splitlines()[1:] == [
        "A in CTA 1, lane 100",
        "  columns 0..7, bits 31:0  A[100, 0..15]",
        "warp 3 of a warpgroup reaches this lane",
    ]
    assert "column 3, bits 31:0  A[100, 6..7]" in answer(*words, "--column", 3)
    elements = json.loads(answer(*words, "--json"))["elements"]
    part = fm.find(PAIR).a
    assert isinstance(part, fm.tensor_memory.TensorFragment)
    assert [(e["row"], e["col"]) for e in elements] == part.holds(100, cta=1)


def test_holds_refuses_axes_of_the_other_memory() -> None:
    words = ("holds", PAIR, "A", 0)
    assert "no --register, but --cta and --column" in complaint(*words, "--register", 1)
    registers = ("holds", "mma.m16n8k64.s4.s4", "A", 0)
    assert "no --column, but --warp and --register" in complaint(
        *registers, "--column", 1
    )


def test_holds_of_lanes_that_the_address_does_not_choose() -> None:
    half = ("holds", "tcgen05.m64n16k16.f32.f16", "D", 17)
    assert "  nothing" in answer(*half)
    assert "columns 4..19, bits 31:0  D[1, 0..15]" in answer(
        *half, "--address", "0x100004"
    )


def test_which_says_in_whose_shared_memory_b_is() -> None:
    text = page("which", PAIR, 100, 40)
    assert "A[100, 0..15]  CTA 1, lane 36, columns 0..7, bits 31:0" in text
    assert "A[100, 0..15]  CTA 1, lane 100, columns 0..7, bits 31:0" in text
    assert "in shared memory of CTA 1, through the descriptor b" in text


def test_reading_a_descriptor() -> None:
    text = page("idesc", "0x08400010", "--kind", "f16")
    assert text.startswith("0x08400010  kind f16: m128n256k16 f16 x f16 -> f32\n")
    assert " 22:17  n             32  N, in eights: 256" in text
    assert "for tcgen05.mma.ws.cta_group::1.kind::f16" in text
    both = answer("idesc", "0x08400010")
    assert "kind f16:" in both
    assert "kind f8f6f4:" in both
    assert "kind i8:" not in both


def test_a_descriptor_of_no_kind() -> None:
    assert "of any kind" in complaint("idesc", "0xffffffff")
    assert "bits 1:0" in complaint("idesc", "0x08400011", "--kind", "i8")
    assert "is a number" in complaint("idesc", "what")


def test_writing_a_descriptor() -> None:
    types = ("--kind", "f16", "--a", "f16", "--d", "f32")
    words = ("--shape", "m128n256k16", *types, "--cta-group", 1)
    found = json.loads(answer("idesc", *words, "--json"))
    assert found["instruction"] == f"{F16} 0x08400010"
    (told,) = found["descriptors"]
    assert {"name": "m", "bits": [24, 28], "code": 8, "value": 128} in told["fields"]
    text = answer(
        "idesc",
        "--shape",
        "m256n64k32",
        "--a",
        "e4m3",
        "--cta-group",
        2,
        "--set",
        "transpose_b",
        "--set",
        "negate-a=1",
    )
    op = fm.tcgen05(
        "m256n64k32", a="e4m3", cta_group=2, transpose_b=True, negate_a=True
    )
    assert text.startswith(f"{op}\n")


def test_what_cannot_be_written() -> None:
    assert "both are given" in complaint("idesc", "0x1", "--shape", "m128n256k16")
    assert "--shape and --a" in complaint("idesc")
    assert "--set takes" in complaint(
        "idesc", "--shape", "m128n16k16", "--a", "f16", "--set", "swap"
    )


def test_pictures_of_tensor_memory_and_of_the_path(tmp_path: Path) -> None:
    whole, path = tmp_path / "memory.svg", tmp_path / "path.svg"
    assert "all operands drawn in" in answer("draw", PAIR, "-o", whole)
    assert "CTA 1" in whole.read_text()
    assert "the path of its operands" in answer("draw", PAIR, "--path", "-o", path)
    assert "registers: 32 lanes x 32 registers" in path.read_text()
    assert "add -o path.svg" in complaint("draw", PAIR, "--path")
    assert "leave out 'D'" in complaint("draw", PAIR, "D", "--path", "-o", path)


def test_pictures_in_the_terminal() -> None:
    text = page("draw", PAIR, "D")
    assert "P1 T64 C0" in text
    assert "T8 C0E0-3" in page("draw", "tcgen05.sp.m128n16k32.f32.f16", "metadata")


def test_the_explorer_has_some_of_the_types() -> None:
    """A page with all of them would be too large; draw knows all."""
    said = complaint("explore", "tcgen05.m128n32k32.f32.e5m2")
    assert "tcgen05.m128n32k32.f32.e4m3" in said
    assert "fragmenta draw" in said


def test_one_product_on_the_command_line(tmp_path: Path) -> None:
    a, b = tmp_path / "a.npy", tmp_path / "b.npy"
    np.save(a, np.ones((128, 16), np.float16))
    np.save(b, np.ones((16, 64), np.float16))
    assert "16." in answer("matmul", "tcgen05.m128n64k16.f32.f16", a, b)
    told = answer("explain", F16, "0x08100010", a, b, "--row", 3, "--col", 4)
    assert told.startswith(f"{F16} 0x08100010")
