"""The formulas of the manual pages the project grew from, typed in by hand.

Nothing here is derived from the package: each function is the page's own
statement about one fragment, and must agree for every lane and element.
"""

import pytest

import fragmenta as fm


def group(lane):
    return lane >> 2


def thread(lane):
    return lane % 4


# ── mma.m16n8k64, .u4 / .s4 / .e2m1 ────────────────────────────────────────


def m16n8k64_a(lane, i):
    row = group(lane) if 0 <= i < 8 or 16 <= i < 24 else group(lane) + 8
    col = thread(lane) * 8 + (i & 0x7) + (0 if i < 16 else 32)
    return row, col


def m16n8k64_b(lane, i):
    return thread(lane) * 8 + (i & 0x7) + (0 if i < 8 else 32), group(lane)


def m16n8_c(lane, i):
    return group(lane) + (0 if i < 2 else 8), thread(lane) * 2 + (i & 0x1)


DENSE = [
    "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32",
    "mma.sync.aligned.m16n8k64.row.col.s32.u4.u4.s32",
    "mma.sync.aligned.m16n8k64.row.col.satfinite.s32.s4.u4.s32",
    "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X"
    ".f32.e2m1.e2m1.f32.ue8m0",
    "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X"
    ".f32.e2m1.e2m1.f32.ue4m3",
]


@pytest.mark.parametrize("text", DENSE)
def test_mma_m16n8k64(text):
    op = fm.instruction(text)
    agree(op.a, m16n8k64_a, 32, registers=4)
    agree(op.b, m16n8k64_b, 16, registers=2)
    agree(op.c, m16n8_c, 4, registers=4)
    agree(op.d, m16n8_c, 4, registers=4)


def agree(fragment, formula, count, registers, warps=1):
    assert fragment.registers == registers
    for warp in range(warps):
        for lane in range(32):
            held = fragment.holds(lane, warp=warp if warps > 1 else None)
            assert len(held) == count
            place = (warp, lane) if warps > 1 else (lane,)
            assert held == [formula(*place, i) for i in range(count)], (warp, lane)


# ── sparse mma.m16n8k64, .u4 / .s4 ─────────────────────────────────────────


@pytest.mark.parametrize("sp", ["sp", "sp::ordered_metadata"])
@pytest.mark.parametrize("a", ["s4", "u4"])
def test_sparse_mma_m16n8k64(sp, a):
    op = fm.mma("m16n8k64", a=a, b="s4", sp=sp)
    assert op.a.registers == 2
    for lane in range(32):
        for i, (row, stored) in enumerate(op.a.holds(lane)):
            assert row == (group(lane) if 0 <= i < 8 else group(lane) + 8)
            # eight stored elements stand for sixteen columns from firstcol on
            firstcol = thread(lane) * 16
            assert firstcol <= 2 * stored <= firstcol + 15
    agree(op.b, m16n8k64_b, 16, registers=2)
    agree(op.c, m16n8_c, 4, registers=4)
    assert op.metadata.registers == 1
    assert str(op.granularity) == "4:8 in pairs"


# ── sparse mma.m16n8k16, .tf32 ─────────────────────────────────────────────


@pytest.mark.parametrize("sp", ["sp", "sp::ordered_metadata"])
def test_sparse_mma_m16n8k16_tf32(sp):
    op = fm.mma("m16n8k16", a="tf32", sp=sp)
    assert op.a.registers == 4
    for lane in range(32):
        for i, (row, stored) in enumerate(op.a.holds(lane)):
            assert row == (group(lane) if i in (0, 2) else group(lane) + 8)
            firstcol = thread(lane) * 2 + (0 if i in (0, 1) else 8)
            assert 2 * stored == firstcol
    assert op.b.registers == 4
    assert op.metadata.registers == 1
    assert str(op.granularity) == "1:2"

    def m16n8k16_c(lane, i):  # the same as for dense m16n8k16
        return group(lane) + (0 if i < 2 else 8), thread(lane) * 2 + (i & 0x1)

    agree(op.c, m16n8k16_c, 4, registers=4)
    agree(op.d, m16n8k16_c, 4, registers=4)


# ── sparse wgmma.mma_async.m64nNk64 ────────────────────────────────────────


@pytest.mark.parametrize("n", [8, 24, 64, 256])
@pytest.mark.parametrize(
    ("a", "d"), [("e4m3", "f32"), ("e5m2", "f16"), ("s8", "s32"), ("u8", "s32")]
)
def test_sparse_wgmma_m64nNk64(n, a, d):
    op = fm.wgmma(f"m64n{n}k64", a=a, d=d, sp="sp")
    assert op.a.registers == 4
    assert op.a.elements == 4
    for warp in range(4):
        for lane in range(32):
            for i, (row, stored) in enumerate(op.a.holds(lane, warp=warp)):
                assert row // 16 == warp
                assert row % 8 == group(lane)
                register = i // 4
                # four stored elements out of eight consecutive columns
                first = 2 * (stored - i % 4)
                assert first % 8 == 0
                assert first == thread(lane) * 8 + 32 * (register // 2)

    def m64nN_d(warp, lane, i):
        row = 16 * warp + group(lane) + 8 * (i // 2 % 2)
        return row, 8 * (i // 4) + thread(lane) * 2 + i % 2

    per_register = 1 if d != "f16" else 2
    agree(op.d, m64nN_d, n // 2, registers=n // 2 // per_register, warps=4)
    assert op.metadata.registers == 1
    assert op.selectors == (0,)


# ── sub-byte operations of the CUDA wmma API ───────────────────────────────


@pytest.mark.parametrize(
    ("type_", "shape", "elements"), [("u4", 32, 8), ("s4", 32, 8), ("b1", 128, 32)]
)
def test_sub_byte_wmma(type_, shape, elements):
    bitop = {"bitop": "xor"} if type_ == "b1" else {}
    op = fm.wmma.mma(f"m8n8k{shape}", a=type_, **bitop)
    for part in (op.a, op.b):
        assert part.registers == 1  # one storage element
        assert part.elements == elements
    with pytest.raises(fm.errors.UnknownInstruction, match="layout of A"):
        fm.wmma.mma(f"m8n8k{shape}", a=type_, alayout="col", **bitop)
    with pytest.raises(fm.errors.UnknownInstruction, match="layout of B"):
        fm.wmma.mma(f"m8n8k{shape}", a=type_, blayout="row", **bitop)


def test_bit_operations_by_compute_capability():
    xor = fm.wmma.mma("m8n8k128", a="b1", bitop="xor")
    both = fm.wmma.mma("m8n8k128", a="b1", bitop="and")
    assert xor.supported_on("sm_75")
    assert not both.supported_on("sm_75")
    assert both.supported_on("sm_80")
    assert any("deprecates" in note for note in xor.notes)


# ── the columns that a sparse A is kept from ────────────────────────────────


def test_firstcol_and_lastcol_as_the_pages_have_them():
    s4 = fm.mma("m16n8k64", a="s4", sp="sp::ordered_metadata").a.formula()
    assert s4.splitlines()[-2:] == [
        "firstcol = threadID_in_group * 16",
        "lastcol  = firstcol + 15                        (col counts stored columns)",
    ]
    tf32 = fm.mma("m16n8k16", a="tf32", sp="sp").a.formula()
    assert tf32.splitlines()[-3:] == [
        "firstcol = threadID_in_group * 2        for ai where i < 2",
        "           (threadID_in_group * 2) + 8  for ai where i >= 2",
        "lastcol  = firstcol + 1                 (col counts stored columns)",
    ]
    assert "firstcol" not in fm.mma("m16n8k64", a="s4").a.formula()
