"""Words build the ``tcgen05.mma`` that they describe."""

from __future__ import annotations

import pytest

import fragmenta as fm
from fragmenta.errors import AmbiguousInstruction, UnknownInstruction
from fragmenta.reference.isa.searching import find

# Words, and the same instruction by keywords.
MEANT = {
    "tcgen05.m128n256k16.f32.f16": {"shape": "m128n256k16", "a": "f16", "d": "f32"},
    "tcgen05.m128n256k16.f16.f16.f16": {"shape": "m128n256k16", "a": "f16", "d": "f16"},
    "tcgen05.m128n256.bf16": {"shape": "m128n256k16", "a": "bf16"},
    "tcgen05.m256n64k32.f16.e4m3.e2m1": {
        "shape": "m256n64k32",
        "a": "e4m3",
        "b": "e2m1",
        "d": "f16",
        "cta_group": 2,
    },
    "tcgen05.mma.ws.sp.m32n64k16.tf32": {
        "shape": "m32n64k16",
        "a": "tf32",
        "ws": True,
        "sp": True,
    },
    "tcgen05.sp.m64n24k64.s8.u8": {
        "shape": "m64n24k64",
        "a": "s8",
        "b": "u8",
        "sp": True,
    },
    "tcgen05.m128n8k32.e5m2.ue8m0": {
        "shape": "m128n8k32",
        "a": "e5m2",
        "kind": "mxf8f6f4",
    },
    "tcgen05.kind::mxf4nvf4.m128n64k64": {
        "shape": "m128n64k64",
        "a": "e2m1",
        "kind": "mxf4nvf4",
    },
    "tcgen05.kind::mxf4nvf4.m128n64k64.ue8m0": {
        "shape": "m128n64k64",
        "a": "e2m1",
        "kind": "mxf4nvf4",
        "scale": "ue8m0",
    },
    "tcgen05.kind::mxf4nvf4.block16.m256n64k96": {
        "shape": "m256n64k96",
        "a": "e2m1",
        "kind": "mxf4nvf4",
        "cta_group": 2,
        "scale_vec": "block16",
    },
    "tcgen05.kind::f16.ashift.m128n64k16.f32.f16": {
        "shape": "m128n64k16",
        "a": "f16",
        "ashift": True,
    },
}


@pytest.mark.parametrize("words", MEANT)
def test_words_and_keywords_mean_the_same(words: str) -> None:
    assert find(words) == fm.tcgen05(**MEANT[words])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("tcgen05.m128n256k16.f16.f32", "the order is D, A, B"),
        ("tcgen05.m128n256k32.kind::f16.f32.f16", "kind f16 has k 16"),
        ("tcgen05.m128n24k16.f32.f16", "nearest: 16"),
        ("tcgen05.m128n64k16.f32.bf17", "did you mean bf16"),
        ("tcgen05.mxf4.m128n64k64", "did you mean kind::mxf4"),
        ("tcgen05.ws.block_scale.m128n64k64", "together"),
    ],
)
def test_what_words_cannot_mean(words: str, why: str) -> None:
    with pytest.raises(UnknownInstruction, match=why):
        find(words)


def test_a_choice_is_left_to_the_user() -> None:
    """Alone, f16 may be D or A; the list says what each number means."""
    with pytest.raises(AmbiguousInstruction, match=r"0x08400000  m128n256k16 f16 x"):
        find("tcgen05.m128n256k16.f16")


def test_the_plain_load_is_meant() -> None:
    found = find("tcgen05.ld.32x32b.x4")
    assert str(found) == "tcgen05.ld.sync.aligned.32x32b.x4.b32"
    assert "ld.red" in str(find("tcgen05.ld.red.32x32b.x4.min.u32"))
