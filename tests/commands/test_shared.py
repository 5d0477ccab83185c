"""``shared`` shows the tile that the library describes."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.reference.shared.banks import conflict_picture, conflict_table
from fragmenta.reference.shared.descriptor import Descriptor
from fragmenta.reference.shared.moves import ldmatrix
from fragmenta.reference.shared.tiles import read_tile
from fragmenta.reference.shared.tiles import tile as shared_tile
from tests.asking import answer, complaint, page

WGMMA = "wgmma.m64n24k16.f32.f16"
MMA = "mma.m16n8k16.f32.f16"
MMA_OP = fm.find(MMA)
TCGEN05 = "tcgen05.mma.cta_group::1.kind::f16 0x08400010"
PADDED = fm.tcgen05("m128n48k32", a="e2m3", b="e2m1", d="f32")
PAIR = fm.tcgen05("m256n64k96", a="e2m1", kind="mxf4", cta_group=2)
TURNED = fm.tcgen05("m128n64k8", a="tf32", d="f32", transpose_b=True)


def test_a_wgmma_tile() -> None:
    lines = page("shared", WGMMA, "A").splitlines()
    assert lines[1:5] == [
        "A: 64 x 64 f16, K-major",
        "descriptor 0x4000004002000000",
        "  start 0, leading offset 8192, stride offset 1024, 128-byte swizzle",
        "rN.u below is 16-byte unit u of one row of A",
    ]
    text = "\n".join(lines)
    assert conflict_picture(64, 128, 128) in text
    assert "  ldmatrix        8-way      4-way      2-way       free" in lines
    assert "  boxDim         {64, 64}, elementStrides {1, 1}" in lines


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize(("operand", "major"), [("A", "k"), ("B", "k"), ("B", "mn")])
def test_the_descriptor_finds_the_tile(swizzle: int, operand: str, major: str) -> None:
    op = fm.find(WGMMA)
    words = ("shared", WGMMA, operand, "--swizzle", swizzle, "--major", major)
    found = json.loads(page(*words, "--json"))
    shape = (found["rows"], found["k"])
    matrix = np.random.default_rng(0).standard_normal(shape).astype("f2")
    matrix = matrix if operand == "A" else matrix.T
    image, _ = shared_tile(op, operand, matrix, swizzle=swizzle, major=major)
    word = int(found["descriptor"]["word"], 16)
    bits = read_tile(op, operand, image, Descriptor.decode(word), major=major)
    k = op.shape.k
    first = matrix[:, :k] if operand == "A" else matrix[:k]
    assert (bits.view("f2") == first).all()
    page(*words)


def test_a_tcgen05_tile() -> None:
    lines = page("shared", TCGEN05, "B", "--swizzle", 128).splitlines()
    assert lines[1:5] == [
        "B: 64 x 256 f16, K-major",
        "descriptor 0x4000404008000000",
        "  start 0, leading offset 32768, stride offset 1024, 128-byte swizzle",
        "rN.u below is 16-byte unit u of one column of B",
    ]
    text = "\n".join(lines)
    assert conflict_picture(256, 128, 128) in text
    assert "  boxDim         {64, 256}, elementStrides {1, 1}" in lines


def test_an_mn_major_tcgen05_tile_has_atoms_of_32_bytes() -> None:
    lines = page("shared", str(TURNED), "B").splitlines()
    assert "B: 8 x 64 tf32, MN-major" in lines
    where = "start 0, leading offset 1024, stride offset 512, 128/32-byte swizzle"
    assert f"  {where}" in lines
    assert "  128     r1.2     r1.3    [r1.0]    r1.1     r1.6     r1.7     r1.4" in (
        "\n".join(lines)
    )
    assert "  swizzle        CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B" in lines
    found = json.loads(
        page("shared", str(TURNED), "B", "--swizzle", "128/32", "--json")
    )
    assert found["swizzle"] == "128/32"
    assert {record["swizzle"] for record in found["by_swizzle"]} == {"128/32"}


def test_narrow_elements_of_tcgen05() -> None:
    text = page("shared", str(PADDED), "A")
    assert "A: 128 x 128 e2m3, K-major" in text
    assert "e2m3 has padding in shared memory" in text
    text = page("shared", str(PAIR), "B")
    assert "B: 768 x 32 e2m1, K-major, in each block of the pair" in text
    assert "This is the first of 3 spans with the same layout." in text


@pytest.mark.parametrize("op", [fm.instruction(TCGEN05), PADDED, PAIR, TURNED], ids=str)
@pytest.mark.parametrize("operand", ["A", "B"])
def test_the_descriptor_of_tcgen05_finds_the_tile(op, operand: str) -> None:
    found = json.loads(page("shared", str(op), operand, "--json"))
    assert found["descriptor"]["family"] == "tcgen05"
    of = op.types[operand.lower()]
    shape = (found["rows"], found["k"])
    bits = np.random.default_rng(0).integers(0, of.mask, shape, dtype=np.uint32)
    bits = bits.astype(of.bits_dtype)
    bits = bits if operand == "A" else bits.T
    image, _ = shared_tile(op, operand, of.decode(bits), swizzle=found["swizzle"])
    word = int(found["descriptor"]["word"], 16)
    k = op.shape.k
    first = bits[:, :k] if operand == "A" else bits[:k]
    assert (read_tile(op, operand, image, word) == first).all()


def test_spans_that_follow_are_mentioned() -> None:
    text = page("shared", WGMMA, "B", "--swizzle", 32, "--k", 64)
    assert "This is the first of 4 spans with the same layout." in text
    assert "copy {48, 0} to shared address 2304" in text
    narrow = page("shared", WGMMA, "B", "--major", "mn")
    assert "spans" not in narrow


def test_an_mma_tile_is_what_ldmatrix_loads() -> None:
    """The addresses, given to the instruction, make the fragment."""
    op = fm.find(MMA)
    words = ("shared", MMA, "A", "--k", 64, "--pitch", 144)
    title, *body = conflict_picture(16, 128, 0, "ldmatrix", 144).splitlines()
    assert "\n".join([f"{title}.m8n8.x4.b16", *body]) in page(*words)
    found = json.loads(page(*words, "--json"))["ldmatrix"]
    A = np.random.default_rng(0).standard_normal((16, 16)).astype("f2")
    image = np.zeros((16, 144), np.uint8)
    image[:, :32] = A.view(np.uint8)
    load = fm.find(found["instruction"])
    registers = ldmatrix(load, image.ravel(), found["addresses"])
    assert (registers == op.a.pack(A)).all()


@pytest.mark.parametrize(
    "words",
    [
        (MMA, "A", "--k", 64),
        (MMA, "B", "--k", 64),
        (MMA, "B", "--k", 64, "--swizzle", 128),
        (MMA, "B", "--k", 64, "--num", "x4"),
        (MMA, "B", "--k", 64, "--num", "x4", "--along", "n"),
        (MMA, "B", "--major", "mn", "--pitch", 64, "--along", "n"),
        ("mma.m16n8k8.f32.f16", "A", "--k", 32),
        ("mma.m16n8k8.f32.f16", "B", "--k", 32),
        ("mma.m16n8k8.f32.f16", "B", "--k", 32, "--num", "x2"),
        ("mma.m16n8k64.s4.s4", "B", "--k", 256, "--num", "x4"),
    ],
)
def test_what_is_analysed_is_what_is_recommended(words: tuple[object, ...]) -> None:
    found = json.loads(page("shared", *words, "--json"))
    load = found["ldmatrix"]
    counted = load["addresses"]
    lanes = 8 * int(load["instruction"].partition(".x")[2][0])
    assert len(counted) == lanes
    assert found["addresses"] == counted + [-1] * (32 - lanes)
    assert (load["degree"], load["turns"]) == (found["degree"], found["turns"])
    assert sum(phase["degree"] > 0 for phase in found["phases"]) == lanes // 8
    here = {"access": "ldmatrix", "swizzle": found["swizzle"]}
    cost = {"degree": found["degree"], "turns": found["turns"]}
    assert here | cost in found["by_swizzle"]
    text = page("shared", *words)
    assert f"; {load['instruction'].replace('.sync.aligned', '')}\n" in text
    assert text.count("\n* ") == 1
    assert f"\n* {load['instruction']}\n    {load['covers']}; " in text


def test_b_is_loaded_for_one_mma_or_for_two() -> None:
    """The registers of an .x4 are those of two neighbours, along k or along n."""
    words = ("shared", MMA, "B", "--k", 32, "--pitch", 80, "--json")
    one, k, n = json.loads(page(*words))["loads"]
    assert [load["covers"] for load in (one, k, n)] == [
        "B of one mma: k 0-15, n 0-7",
        "B of two mma: k 0-31, n 0-7",
        "B of two mma: k 0-15, n 0-15",
    ]
    B = np.random.default_rng(0).standard_normal((32, 16)).astype("f2")
    image = np.zeros((16, 80), np.uint8)
    image[:, :64] = np.ascontiguousarray(B.T).view(np.uint8)
    part = fm.find(MMA).b
    tiles = {"k": (B[:16, :8], B[16:, :8]), "n": (B[:16, :8], B[:16, 8:])}
    for load in (k, n):
        got = ldmatrix(load["instruction"], image.ravel(), load["addresses"])
        first, second = (part.pack(tile) for tile in tiles[load["along"]])
        assert (got == np.concatenate([first, second], axis=-1)).all()


def test_the_expression_of_a_lane_gives_its_address() -> None:
    words = ("shared", MMA, "B", "--k", 32, "--pitch", 80)
    found = json.loads(page(*words, "--json"))["loads"]
    for load in found:
        assert f"    {load['lane']}\n" in page(*words)
        k, n = (text.partition(" = ")[2] for text in load["lane"].split(", "))
        for lane, address in enumerate(load["addresses"]):
            at = [eval(text, {"lane": lane}) for text in (k, n)]
            assert address == 2 * at[0] + 80 * at[1]


def test_the_loop_over_a_whole_tile() -> None:
    words = ("shared", MMA, "B", "--k", 64, "--rows", 64, "--swizzle", 128)
    words = (*words, "--num", "x4", "--along", "n")
    loop = fm.shared.ldmatrix_loop(MMA_OP, "B", tile=(64, 64), order="col", swizzle=128)
    text = page(*words)
    assert "the whole tile (--language cuda writes the function):" in text
    assert "  16 ldmatrix.sync.aligned.m8n8.x4.b16: k 4, n 4\n" in text
    found = json.loads(page(*words, "--json"))["loop"]
    assert found["addresses"] == loop.addresses.tolist()
    assert found["steps"] == {"k": 4, "n": 4}
    assert answer(*words, "--language", "cuda") == loop.to_cuda()
    assert (
        json.loads(page(*words, "--language", "cuda", "--json"))["source"]
        == loop.to_cuda()
    )
    assert "whole tile" not in page("shared", MMA, "A")


def test_a_swizzle_of_cute() -> None:
    words = ("shared", MMA, "A", "--k", 64, "--swizzle", "Swizzle<3,4,3>")
    named = page(*words[:-1], 128)
    assert page(*words).count("128-byte swizzle") == named.count("128-byte swizzle")
    other = json.loads(page(*words[:-1], "2,4,4", "--json"))
    assert other["swizzle"] == [2, 4, 4]
    assert other["by_swizzle"][4]["swizzle"] == [2, 4, 4]
    assert "      2,4,4\n" in page(*words[:-1], "2,4,4")


def test_a_suggestion() -> None:
    words = ("shared", MMA, "A", "--k", 32, "--rows", 64, "--suggest")
    found = fm.shared.suggest_swizzle(
        MMA_OP, "A", tile=(64, 32), order="row", copy="cp.async"
    )
    assert str(found) in page(*words, "--copy", "cp.async")
    assert "\n64-byte swizzle: no bank conflicts\n" in page(*words)
    told = json.loads(page(*words, "--copy", "cp.async", "--json"))
    assert told["suggestions"] == json.loads(json.dumps(found.records()))
    assert told["loop"]["swizzle"] == [2, 4, 3]
    assert told["loop"]["degree"] == 1


def test_the_function_of_a_suggestion() -> None:
    words = (
        "shared",
        MMA,
        "A",
        "--k",
        32,
        "--rows",
        64,
        "--suggest",
        "--language",
        "cuda",
    )
    best = fm.shared.suggest_swizzle(MMA_OP, "A", tile=(64, 32), order="row").best
    assert answer(*words) == best.loop.to_cuda()
    told = json.loads(page(*words, "--json"))
    assert told["source"] == best.loop.to_cuda()
    assert told["suggestions"]


@pytest.mark.parametrize(("along", "size"), [("n", "16 x 16"), ("k", "32 x 8")])
def test_a_tile_has_what_one_ldmatrix_loads(along: str, size: str) -> None:
    words = ("shared", MMA, "B", "--num", "x4", "--along", along)
    assert f"\nB: {size} f16, K-major\n" in page(*words)
    assert f"// Load B, a tile of {size} f16" in answer(*words, "--language", "cuda")


def test_without_an_ldmatrix_none_is_analysed() -> None:
    words = ("wmma.mma.row.col.m16n16k16.f16.f16", "A")
    found = json.loads(page("shared", *words, "--json"))
    assert found["access"] == "rows"
    assert found["loads"] == []
    assert {record["access"] for record in found["by_swizzle"]} == {"rows", "column"}
    assert "not loaded by ldmatrix: A of wmma" in page("shared", *words)
    assert "no ldmatrix loads this tile" in complaint(
        "shared", *words, "--access", "ldmatrix"
    )


@pytest.mark.parametrize("access", ["ldmatrix", "rows", "column"])
def test_costs_are_the_library(access: str) -> None:
    words = ("shared", MMA, "A", "--k", 32, "--access", access, "--json")
    found = json.loads(page(*words))
    assert found["by_swizzle"] == conflict_table(16, 64)
    (here,) = [
        record
        for record in found["by_swizzle"]
        if record["access"] == access and not record["swizzle"]
    ]
    assert (found["degree"], found["turns"]) == (here["degree"], here["turns"])
    assert max(phase["degree"] for phase in found["phases"]) == found["degree"]


@pytest.mark.parametrize(
    "words",
    [
        (MMA, "b"),
        (MMA, "B", "--major", "mn", "--k", 16),
        ("mma.m16n8k8.f32.tf32", "B"),
        ("mma.m16n8k64.s4.s4", "A", "--access", "rows"),
        ("mma.sp.m16n8k32.f32.f16", "A"),
        ("mma.m16n8k32.kind::f8f6f4.f32.e2m1.e2m1", "A"),
        ("wgmma.sp.m64n8k32.f32.f16", "A", "--swizzle", 32),
        ("wgmma.m64n8k256.s32.b1.b1.and.popc", "B"),
        ("wgmma.m64n264k16.f32.f16".replace("264", "256"), "B", "--major", "mn"),
        ("wmma.mma.row.col.m16n16k16.f16.f16", "A"),
    ],
)
def test_every_kind_of_operand_fits_80_columns(words: tuple[object, ...]) -> None:
    assert "banks" in page("shared", *words)
    json.loads(page("shared", *words, "--json"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((MMA, "D"), "A or B of an instruction that multiplies; given D"),
        ((MMA, "metadata"), "given METADATA"),
        (("ldmatrix.m8n8.x1.b16", "A"), "an instruction that multiplies"),
        ((MMA, "A", "--k", 0), "a multiple of 16; given 0"),
        ((MMA, "A", "--k", -16), "a multiple of 16; given -16"),
        ((WGMMA, "A", "--k", 24), "a multiple of 16; given 24"),
        ((WGMMA, "A", "--pitch", 144), "has no --pitch"),
        ((MMA, "A", "--pitch", 16), "must be at least that"),
        ((MMA, "B", "--num", "x1"), "as x2 or x4 along n; given x1"),
        ((MMA, "B", "--num", "x2", "--along", "n"), "given x2 along n"),
        ((MMA, "B", "--along", "m"), "as x2 or x4 along n; given along m"),
        (
            (MMA, "A", "--access", "rows", "--num", "x4"),
            "choose an ldmatrix; --access rows does not use it",
        ),
        ((WGMMA, "A", "--num", "x4"), "an ldmatrix; wgmma does not use it"),
        ((WGMMA, "A", "--swizzle", 16), "0, 32, 64 or 128 bytes; given 16"),
        ((WGMMA, "A", "--swizzle", "128/32"), "or 128 bytes; given '128/32'"),
        ((MMA, "A", "--swizzle", "wide"), "(bits, base, shift); given 'wide'"),
        ((TCGEN05, "A", "--swizzle", "128/32"), "a K-major operand cannot have"),
        ((TCGEN05, "B", "--major", "mn"), "is K-major: bit 16 of its instruction"),
        ((TCGEN05, "B", "--pitch", 144), "a tcgen05 tile has no --pitch"),
        ((str(TURNED), "B", "--swizzle", 128), "tf32 has only swizzle '128/32'"),
        (("tcgen05.mma.cta_group::1.kind::f16", "B"), "no instruction descriptor"),
        ((WGMMA, "A", "--major", "m"), "m is not k or mn"),
        ((WGMMA, "A", "--access", "store"), "store is not ldmatrix, rows or column"),
        (("wgmma.m64n8k32.s32.s8.s8", "A", "--major", "mn"), "cannot be MN-major"),
        (("mma.m16n8k32.s32.s8.s8", "B", "--major", "mn"), "a multiple of 16 bytes"),
        (("mma.m8n8k4.row.col.f32.f16.f16.f32", "A"), "several matrices"),
        ((MMA, "B", "--rows", 12), "the n of a tile must be a multiple of 8; given 12"),
        ((WGMMA, "B", "--rows", 16), "--rows of a wgmma tile are those of the"),
        ((WGMMA, "B", "--suggest"), "takes a descriptor, not an ldmatrix"),
        (
            (WGMMA, "B", "--swizzle", "2,4,4"),
            "wgmma has no Swizzle<2,4,4>; it has 0, 32",
        ),
        ((MMA, "B", "--copy", "tma"), "--copy is for --suggest; given --copy tma"),
        ((MMA, "B", "--suggest", "--pitch", 64), "does not go with --pitch 64"),
        (
            (MMA, "B", "--language", "cuda", "--access", "rows"),
            "does not go with --access rows",
        ),
        ((MMA, "B", "--language", "cuda", "--num", "x4"), "as x2 or x1; given x4"),
        ((MMA, "A", "--along", "k"), "more than one A, so leave along out"),
        (
            (MMA, "A", "--along", "k", "--language", "cuda"),
            "given along k; none of them loads",
        ),
        ((MMA, "A", "--swizzle", "3,3,3"), "must be 4 or higher, but it is 3"),
        (
            (
                "mma.m16n8k32.s32.s8.s8",
                "B",
                "--major",
                "mn",
                "--rows",
                16,
                "--language",
                "cuda",
            ),
            "but these have 8; column-major memory works, with",
        ),
    ],
)
def test_refusals(words: tuple[object, ...], message: str) -> None:
    assert message in complaint("shared", *words)
