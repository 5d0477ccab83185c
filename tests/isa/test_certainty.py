"""Every statement about tcgen05 says how sure it is."""

from __future__ import annotations

import fragmenta as fm
from fragmenta.reference.isa.certainty import TABLE, WORDS, certainty
from fragmenta.reference.isa.table import read


def test_only_words_that_are_explained() -> None:
    assert {line["how sure"] for line in read(TABLE)} <= set(WORDS)


def test_every_part_of_an_instruction_has_a_line() -> None:
    for op in fm.catalogue():
        newest = op.family.startswith("sp") or op.values.get("type") == "s8.s4"
        if op.family.startswith("tcgen05") or newest:
            assert op.certainty["spelling"].word == "assembler"
        else:
            assert not op.certainty
    whole = fm.tcgen05("m128n64k128", a="e2m1", kind="mxf4", sp=True)
    assert set(whole.certainty) == {
        "spelling",
        "descriptor",
        "shape",
        "D",
        "A",
        "scale_A",
        "scale_B",
        "metadata",
    }


def test_nobody_has_seen_the_newest_run() -> None:
    for name in ("spcompress.b8.b4.x1", "spdecompress.b8.b4.sp::1:4.x4"):
        known = fm.find(name).certainty["elements"]
        assert known.word == "agreed"
        assert "no sm_107 has run it" in known.because
    text = "tcgen05.ld.red.spcompress.sync.aligned.32x32b.x4.max.sp::2:4.f32.b2"
    assert fm.instruction(text).certainty["ld"].word == "manual"
    loaded = fm.find("ldmatrix.m8n16.x1.s8.s4").certainty["D"]
    assert loaded.word == "agreed"
    assert "nibbles" in loaded.because


def test_what_differs_with_the_layout() -> None:
    assert certainty("metadata", "D").word == "agreed"
    assert certainty("metadata", "G").word == "one source"
    assert certainty("metadata", "C").word == "open"
    wide = fm.tcgen05("m128n64k96", a="e2m1", kind="mxf4")
    assert wide.certainty["shape"].word == "one source"
