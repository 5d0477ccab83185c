"""The instruction descriptor of tcgen05.mma: words whose meaning is known."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.reference.isa.instruction_descriptor import TABLES
from fragmenta.reference.isa.tcgen05_shapes import OF_KIND, sizes

D = fm.tensor_memory.InstructionDescriptor


# Put together by hand from the bits of the manual's tables.
WORDS: list[tuple[int, dict[str, Any]]] = [
    (
        0x08400010,
        {"kind": "f16", "m": 128, "n": 256, "a": "f16", "b": "f16", "d": "f32"},
    ),
    (
        8 << 24 | 1 << 17 | 1 << 10 | 1 << 7 | 1 << 4,
        {"kind": "f16", "m": 128, "n": 8, "a": "bf16", "b": "bf16", "d": "f32"},
    ),
    (
        4 << 24 | 32 << 17 | 1 << 16 | 1 << 13 | 2 << 10 | 2 << 7 | 1 << 4 | 1 << 2 | 1,
        {
            "kind": "tf32",
            "m": 64,
            "n": 256,
            "a": "tf32",
            "b": "tf32",
            "d": "f32",
            "transpose_b": True,
            "negate_a": True,
            "sparse": True,
            "selector": 1,
        },
    ),
    (
        4 << 24 | 8 << 17 | 5 << 10 | 3 << 7,
        {"kind": "f8f6f4", "m": 64, "n": 64, "a": "e2m3", "b": "e2m1", "d": "f16"},
    ),
    (
        2 << 24 | 8 << 17 | 1 << 7 | 2 << 4 | 1 << 3 | 3 << 30,
        {
            "kind": "i8",
            "m": 32,
            "n": 64,
            "a": "s8",
            "b": "u8",
            "d": "s32",
            "saturate": True,
            "max_shift": 32,
        },
    ),
    (
        1 << 27 | 1 << 23 | 1 << 17 | 4 << 10 | 1 << 7 | 3 << 29 | 2 << 4 | 1 << 15,
        {
            "kind": "mxf8f6f4",
            "m": 128,
            "n": 8,
            "a": "e5m2",
            "b": "e3m2",
            "d": "f32",
            "scale": "ue8m0",
            "scale_a_id": 3,
            "scale_b_id": 2,
            "transpose_a": True,
        },
    ),
    (
        2 << 27 | 1 << 23 | 32 << 17 | 1 << 10 | 1 << 7 | 2 << 29 | 1 << 31,
        {
            "kind": "mxf4",
            "m": 256,
            "n": 256,
            "a": "e2m1",
            "b": "e2m1",
            "d": "f32",
            "scale": "ue8m0",
            "scale_a_id": 2,
            "wide": True,
        },
    ),
    (
        1 << 27 | 16 << 17 | 1 << 10 | 1 << 7 | 1 << 2,
        {
            "kind": "mxf4nvf4",
            "m": 128,
            "n": 128,
            "a": "e2m1",
            "b": "e2m1",
            "d": "f32",
            "scale": "ue4m3",
            "sparse": True,
        },
    ),
]


@pytest.mark.parametrize(("word", "given"), WORDS, ids=lambda value: str(value)[:20])
def test_known_words(word: int, given: dict[str, Any]) -> None:
    found = D(**given)
    assert found.encode() == word
    assert D.decode(word, kind=given["kind"]) == found


def test_every_shape_of_the_table_comes_back() -> None:
    seen = set()
    for kind, row in OF_KIND.items():
        for group, ws, sparse in product((1, 2), (False, True), (False, True)):
            for m, widths in sizes(kind, group, ws=ws, sparse=sparse).items():
                for n, a, d in product(widths, row.operands, row.results):
                    if a == "bf16" and d == "f16":
                        continue
                    scale = "ue8m0" if kind.startswith("mx") else ""
                    made = D(kind, m, n, a, a, d, scale, sparse)
                    made.check(group, ws=ws, sparse=sparse)
                    assert D.decode(made.encode(), kind=kind) == made
                    seen.add((kind, made.encode(), group, ws))
    assert len(seen) > 1500


def test_e2m1_has_two_codes() -> None:
    """5 where types are mixed, 1 where all elements have four bits."""
    for kind, code in (("f8f6f4", 5), ("mxf8f6f4", 5), ("mxf4", 1), ("mxf4nvf4", 1)):
        scale = "ue8m0" if kind.startswith("mx") else ""
        word = D(kind, 128, 64, "e2m1", "e2m1", "f32", scale).encode()
        assert (word >> 7 & 7, word >> 10 & 7) == (code, code)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"m": 100}, "m of kind f16 is 32, 64, 128 or 256"),
    ({"n": 4}, "n of kind f16 is a multiple of 8"),
    ({"a": "e4m3"}, "type of A of kind f16 is f16 or bf16; given e4m3"),
    ({"b": "bf16"}, "only a GPU could tell; use one type"),
    ({"a": "bf16", "b": "bf16", "d": "f16"}, "D of f16 needs A and B of f16"),
    ({"saturate": True}, "kind f16 has no saturate"),
    ({"scale_a_id": 1}, "kind f16 has no scale_a_id"),
    ({"selector": 1}, "a dense instruction has no sparsity selector"),
    ({"selector": 2, "sparse": True}, "the manual allows 0 to 3"),
    ({"wide": True}, "kind f16 has no wide"),
    ({"scale": "ue8m0"}, "type of scales of kind f16 is none"),
    ({"kind": "f15"}, r"no kind f15 \(did you mean f16\?\)"),
    ({"kind": "ti16"}, "known by its spelling only"),
    (
        {"kind": "mxf4nvf4", "a": "e2m1", "b": "e2m1", "d": "f32", "scale": "ue5m3"},
        "no source says which of their bytes are NaN",
    ),
    ({"max_shift": 4}, "max_shift is 0, 8, 16 or 32"),
    ({"sparse": 2}, "sparse is False or True"),
]


@pytest.mark.parametrize(("change", "words"), REFUSED, ids=lambda v: str(v)[:30])
def test_values_that_mean_nothing_are_refused(
    change: dict[str, Any], words: str
) -> None:
    plain = {"kind": "f16", "m": 128, "n": 64, "a": "f16", "b": "f16", "d": "f32"}
    with pytest.raises(fm.errors.UnknownInstruction, match=words):
        D(**plain | change)


def test_bits_that_no_field_has_are_refused() -> None:
    plain = 0x08400010
    for bit in (6, 23, 29):
        with pytest.raises(fm.errors.UnknownInstruction, match=f"bit {bit} must be 0"):
            D.decode(plain | 1 << bit, kind="f16")
    with pytest.raises(
        fm.errors.UnknownInstruction, match=r"bit 3 .clamp integers. must be 0"
    ):
        D.decode(plain | 1 << 3, kind="f16")
    with pytest.raises(fm.errors.UnknownInstruction, match="scales of ue5m3"):
        D.decode(0x08080480 | 1 << 24, kind="mxf4nvf4")
    with pytest.raises(
        fm.errors.UnknownInstruction, match="on sm_107 some of these bits"
    ):
        D.decode(4 << 24 | 1 << 17 | 1 << 4 | 1 << 29, kind="f8f6f4")
    for wrong in (-1, 1 << 32, 1.5, "0x10"):
        with pytest.raises(
            fm.errors.UnknownInstruction, match="whole number of 32 bits"
        ):
            D.decode(wrong, kind="f16")  # type: ignore[arg-type]


FITS: list[tuple[str, dict[str, Any], str]] = [
    ("m256n64k16", {"a": "f16"}, "has no M = 256; it has 64 and 128; .* cta_group::2"),
    ("m32n64k16", {"a": "f16"}, "M = 32 is in cta_group::1 with .ws"),
    ("m128n8k16", {"a": "f16"}, "16 to 256 in steps of 16; nearest: 16; sources dis"),
    ("m256n48k16", {"a": "f16", "cta_group": 2}, "32 to 256 in steps of 32"),
    ("m64n32k16", {"a": "f16", "ws": True}, "it has 64, 128 and 256"),
    ("m64n256k32", {"a": "f16", "ws": True, "sp": True}, "it has 64 and 128"),
    ("m128n24k32", {"a": "s8", "transpose_b": True}, "multiple of 16"),
    ("m128n64k32", {"a": "f16"}, "kind f16 has k 16; given m128n64k32"),
    (
        "m64n64k32",
        {"a": "e4m3", "kind": "mxf8f6f4"},
        "m of kind mxf8f6f4 is 128 or 256; given 64",
    ),
    ("m128n64k64", {"a": "e2m1", "kind": "mxf4", "scale_a_id": 1}, "is 0 or 2"),
    ("m128n64k64", {"a": "e2m1", "kind": "mxf4", "scale": "ue4m3"}, "is ue8m0; given"),
    ("m128n64k64", {"a": "e2m1", "kind": "mxf4nvf4", "scale_a_id": 2}, "fill a cell"),
    ("m128n32k32", {"a": "e2m1", "transpose_a": True}, "A of e2m1 is always K-major"),
    ("m128n64k16", {"a": "f16", "max_shift": 8}, "max_shift is only for .ws"),
    ("m128n64k16", {"a": "f16", "cta_group": 3}, "cta_group is 1 or 2"),
    ("m128n64k16", {"a": "f17"}, r"no tcgen05.mma has A of f17 \(did you mean f16"),
    ("m128n64k16", {"a": "f16", "scale_vec": 1}, "with scales, kind is mxf8f6f4"),
    ("m128n64k16", {"a": "f16", "colour": 1}, "tcgen05.mma has no colour"),
    ("m128n64k96", {"a": "e2m1", "kind": "mxf4", "sp": True}, "k 128 .* given|dense"),
]


@pytest.mark.parametrize(("shape", "given", "words"), FITS, ids=lambda v: str(v)[:24])
def test_what_does_not_fit_the_mnemonic_is_refused(
    shape: str, given: dict[str, Any], words: str
) -> None:
    with pytest.raises(fm.errors.UnknownInstruction, match=words):
        fm.tcgen05(shape, **given)


def test_a_kernels_word_is_read() -> None:
    op = fm.instruction("tcgen05.mma.cta_group::1.kind::f16", idesc=0x08400010)
    assert op == fm.tcgen05("m128n256k16", kind="f16", a="f16", d="f32", cta_group=1)
    assert op.idesc == 0x08400010
    text = "tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, 0x08400010, %p1;"
    assert fm.instruction(text) == op
    bare = fm.instruction(text.replace("0x08400010", "%r2"))
    assert bare.idesc is None
    assert bare.descriptor is None
    with pytest.raises(fm.errors.UnknownOperand, match="give idesc="):
        _ = bare.shape
    with pytest.raises(fm.errors.UnknownOperand, match="give idesc="):
        _ = bare.d
    with pytest.raises(fm.errors.UnknownInstruction, match="operand"):
        fm.instruction("tcgen05.mma.cta_group::1.kind::f16 9999 A")
    with pytest.raises(
        fm.errors.UnknownInstruction, match="two instruction descriptors"
    ):
        fm.instruction(text, idesc=0)
    with pytest.raises(
        fm.errors.UnknownInstruction, match="has no instruction descriptor"
    ):
        fm.instruction("wgmma.fence.sync.aligned", idesc=0)
    with pytest.raises(fm.errors.UnknownInstruction, match="bit 2 of the descriptor"):
        fm.instruction("tcgen05.mma.sp.cta_group::1.kind::f16", idesc=0x08400010)


def test_what_is_no_shape_and_no_address_is_refused() -> None:
    for shape in ((128, 64, 16), None, 128):
        said = "a shape is written as|shape is a text, such as 'm16n8k16'"
        with pytest.raises(fm.errors.UnknownInstruction, match=said):
            fm.tcgen05(shape, a="f16")  # type: ignore[arg-type]
    for address in (
        fm.tensor_memory.TensorAddress("a", 3),
        fm.tensor_memory.TensorAddress(-1, 3),
    ):  # type: ignore[arg-type]
        with pytest.raises(fm.Error, match="lane"):
            address.encode()
    with pytest.raises(fm.errors.UnknownInstruction, match="lacks the CTA group"):
        fm.instruction("tcgen05.mma")


def test_b_is_in_shared_memory() -> None:
    op = fm.tcgen05("m128n256k16", a="f16")
    with pytest.raises(
        fm.errors.UnknownOperand, match=r"B of tcgen05.mma is in shared memory"
    ):
        _ = op.b


def test_every_kind_has_a_table() -> None:
    assert set(TABLES) == set(OF_KIND)


def test_any_word_is_refused_or_comes_back() -> None:
    random = np.random.default_rng(3)
    words = random.integers(0, 1 << 32, 1500, np.uint64)
    # Mostly bits that fields have, so that some words mean something.
    words[500:] &= 0x1FFF0000 | 0x0490
    met = 0
    for kind in TABLES:
        for word in map(int, words):
            try:
                found = D.decode(word, kind=kind)
            except fm.errors.UnknownInstruction:
                continue
            assert found.encode() == word
            met += 1
    assert met > 20
