"""Every entry of the catalogue: coverage, counts, requirements, spelling."""

import re
from math import prod

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.reference.isa.families import FAMILIES, IN_TENSOR_MEMORY, catalogue
from fragmenta.reference.isa.target import TARGETS, expand

OPS = list(catalogue())


def test_the_catalogue_holds_every_family():
    counts = {family: sum(op.family == family for op in OPS) for family in FAMILIES}
    assert counts == {
        "mma": 193,
        "mma.sp": 171,
        "wmma.mma": 134,
        "wmma.load": 352,
        "wmma.store": 104,
        "wgmma": 546,
        "wgmma.sp": 528,
        "ldmatrix": 63,
        "stmatrix": 27,
        "movmatrix": 1,
        "spcompress": 28,
        "spdecompress": 143,
        "sync": 7,
        "tcgen05.mma": 772,
        "tcgen05.mma.sp": 652,
        "tcgen05.mma.ws": 80,
        "tcgen05.mma.ws.sp": 80,
        "tcgen05.ld": 314,
        "tcgen05.st": 74,
        "tcgen05.cp": 36,
        "tcgen05": 52,
    }
    assert len({str(op) for op in OPS}) == len(OPS)


def test_every_mnemonic_reads_back():
    for op in OPS:
        assert fm.instruction(str(op)) == op


#: Families without fragments, or with none before there is a descriptor.
WITHOUT = {
    "sync",
    "spcompress",
    "spdecompress",
    "tcgen05",
    "tcgen05.cp",
    *IN_TENSOR_MEMORY,
}


@pytest.mark.parametrize("family", [each for each in FAMILIES if each not in WITHOUT])
def test_every_layout_covers_its_operand(family):
    checked = set()
    for op in catalogue(family):
        for part in op.fragments.values():
            layout = part.layout
            if (layout, part.container) in checked:
                continue
            checked.add((layout, part.container))
            counts = np.bincount(layout.gather().ravel(), minlength=prod(part.shape))
            assert (counts == layout.copies).all(), (op, part)
            bits = part.container.bits * part.elements
            assert bits == part.register_bits, (op, part)
    assert checked


def test_only_what_orders_holds_nothing():
    assert {op.family for op in OPS if not op.fragments} - {"tcgen05.ld"} == WITHOUT
    loads = [op for op in fm.catalogue("tcgen05.ld") if not op.fragments]
    assert all("spcompress" in str(op) for op in loads)


def matrix_shapes(op):
    m, n, k = op.shape
    stored = k // 2 if op.sparse else k
    return {"A": (m, stored), "B": (k, n), "C": (m, n), "D": (m, n)}


def test_fragments_have_the_shapes_of_the_matrices():
    for op in OPS:
        if op.family in ("mma", "mma.sp", "wmma.mma", "wgmma", "wgmma.sp"):
            for name, shape in matrix_shapes(op).items():
                if name in op.fragments:
                    assert op.fragments[name].shape[-2:] == shape, (op, name)


REGISTERS = {  # d, a, b, c, as the manual and the assembler have them
    "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f16": (8, 2, 2, 4),
    "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16": (2, 4, 2, 2),
    "mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32": (4, 2, 1, 4),
    "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64": (4, 8, 4, 4),
    "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc": (4, 4, 2, 4),
    "mma.sp.sync.aligned.m16n8k32.row.col.f16.f16.f16.f16": (2, 4, 4, 2),
    "mma.sp.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32": (4, 2, 2, 4),
    "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f16": (8, 8, 8, 4),
    "wmma.mma.sync.aligned.row.col.m8n32k16.s32.s8.s8.s32": (8, 1, 4, 8),
    "wmma.mma.sync.aligned.row.col.m32n8k16.f32.bf16.bf16.f32": (8, 8, 2, 8),
    "wmma.mma.sync.aligned.row.col.m8n8k4.f64.f64.f64.f64": (2, 1, 1, 2),
}


@pytest.mark.parametrize(("text", "counts"), REGISTERS.items())
def test_register_counts(text, counts):
    op = fm.instruction(text)
    found = {each.name: each.count for each in op.operands}
    assert tuple(found[name] for name in "dabc") == counts


def test_operand_classes():
    op = fm.instruction("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16")
    assert [(each.name, each.ptx) for each in op.operands] == [
        ("d", ".f32"),
        ("a", ".b64"),
        ("b", ".b64"),
        ("metadata", ".b32"),
        ("selector", "immediate"),
        ("scale_d", ".pred"),
        ("imm_scale_a", "immediate"),
        ("imm_scale_b", "immediate"),
        ("trans_a", "immediate"),
        ("trans_b", "immediate"),
    ]


def test_targets():
    assert expand("100a/f") == (
        "sm_100a",
        "sm_100f",
        "sm_103a",
        "sm_103f",
        "sm_107a",
        "sm_107f",
    )
    assert expand("sm_90..90") == ("sm_90", "sm_90a")
    op = fm.instruction("mma.sp.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32")
    assert op.supported_on("sm_90a")
    assert not op.supported_on("sm_80", ptx="7.0")
    assert op.supported_on("sm_80", ptx="7.1")
    with pytest.raises(fm.errors.UnsupportedTarget, match=r"no target sm_91 .*sm_90"):
        op.supported_on("sm_91")
    assert set(op.requires.targets) <= set(TARGETS)


def test_a_requirement_names_every_target_that_has_the_instruction():
    """Families with all of their members."""
    seen = set()
    for op in OPS:
        named = set()
        for word in op.requires.text.split():
            plain = re.fullmatch(r"sm_(\d+)a/f", word)
            own = [f"sm_{plain[1]}{each}" for each in "af"] if plain else expand(word)
            named |= set(own)
        assert named == set(op.requires.targets), op
        seen |= {each for each in named if "a/f" in op.requires.text}
    assert {"sm_103a", "sm_103f", "sm_107a", "sm_121f"} <= seen
