"""Nothing that is typed takes long to refuse, and no number is too long.

Each of these took seconds, or minutes at the sizes here.  Work is bounded, not time: a
slow machine passes, and what grows with the square of its input does not.
"""

import pytest

import fragmenta as fm
from fragmenta.reference.isa.statement import MOST
from fragmenta.reference.isa.target import Version
from fragmenta.reference.registers.layout import LONGEST
from fragmenta.reference.shared.tile_copies import tile_copies
from tests.clock import work

WITHIN = 2.0
S4 = "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32"
OP = fm.wgmma("m64n8k16", a="f16", d="f32")
TILE = fm.shared.Descriptor.for_tile(64, 64, "f16")
DIGITS = "9" * 5000


def descriptor(swizzle=0, k=10**8):
    return lambda: tile_copies(8, k, "f16", swizzle=swizzle)


REFUSED = {
    "spaces": lambda: fm.instruction("mma" + " " * 200_000 + "x"),
    "spaces within the limit": lambda: fm.instruction("mma" + " " * (MOST - 4) + "x"),
    "comments": lambda: fm.instruction("/*" * (MOST // 2)),
    "braces": lambda: fm.instruction(S4 + "{" * 16_000),
    "registers": lambda: fm.instruction(S4 + " {" + "%r0," * 4_000),
    "operands": lambda: fm.instruction(S4 + " %r0," * 3_000 + "1"),
    "dots": lambda: fm.instruction("mma." * 4_000 + "x"),
    "words": lambda: fm.find("x1." * 20_000),
    "words within the limit": lambda: fm.find("x1." * 5_000),
    "known words": lambda: fm.find("m16n8k16 f16 " * 1_000),
    "a word": lambda: fm.find("x" * MOST),
    "layout": lambda: fm.Layout.parse("a" * 200_000, L=4),
    "layout within the limit": lambda: fm.Layout.parse("a" * LONGEST, L=4),
    "layout digits": lambda: fm.Layout.parse("row = " + "L0 " * 1_300, L=4),
    "advance": lambda: TILE.advance(OP, "A", k=10**10, mn=-8),
    "tensor map": descriptor(),
    "tensor map with a swizzle": descriptor(swizzle=32),
    "tensor map without end": descriptor(k=10**40),
    "family": lambda: fm.catalogue("x" * 10**6),
    "type": lambda: fm.dtype("x" * 10**6),
    "target": lambda: OP.supported_on("x" * 10**6),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_are_quick(name):
    fm.find("mma.m16n8k64.s4.s4")  # what is made once does not count
    before = work()
    with pytest.raises(fm.Error):
        REFUSED[name]()
    assert work() - before < WITHIN


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: fm.instruction(
            f"mma.sync.aligned.m16n8k{DIGITS}.row.col.s32.s4.s4.s32"
        ),
        lambda: fm.instruction(
            f"mma.sync.aligned.m{DIGITS}n8k16.row.col.s32.s4.s4.s32"
        ),
        lambda: fm.instruction(f"{S4}.{DIGITS}"),
        lambda: fm.instruction(f"{S4} {DIGITS}"),
        lambda: fm.instruction(f"wgmma.wait_group.sync.aligned {DIGITS};"),
        lambda: fm.find(f"wgmma.m64n{DIGITS}k16.f32.f16"),
        lambda: fm.find(f"m64n8k{DIGITS}"),
        lambda: fm.find(DIGITS),
        lambda: fm.mma(f"m16n{DIGITS}k16", a="f16"),
        lambda: fm.wgmma(f"m64n{DIGITS}k16", a="f16", d="f32"),
        lambda: fm.Shape.parse(f"m{DIGITS}n8"),
        lambda: Version.parse(f"{DIGITS}.1"),
        lambda: OP.supported_on("sm_90a", ptx=f"8.{DIGITS}"),
        lambda: OP.supported_on(f"sm_{DIGITS}"),
        lambda: fm.Layout.parse(f"row = L{'1' * 4000}", L=4),
        lambda: fm.Layout.parse(f"row = L0*{'1' * 4000}", L=4),
    ],
)
def test_long_numbers_are_refused_like_others(wrong):
    with pytest.raises(fm.Error) as refusal:
        wrong()
    assert "Exceeds the limit" not in str(refusal.value)


def test_the_nearest_k_is_still_found():
    with pytest.raises(fm.Error, match="k 48 is possible"):
        TILE.advance(OP, "A", k=56)
    with pytest.raises(fm.Error, match=f"k {64 * 10**7 + 48} is possible"):
        TILE.advance(OP, "A", k=64 * 10**7 + 56)


def test_a_tensor_map_ends_where_descriptors_do():
    assert len(tile_copies(8, 16_384, "f16", swizzle=0).copies) == 2048
    with pytest.raises(fm.Error, match="must end by 262,144, the limit"):
        tile_copies(8, 16_400, "f16", swizzle=0)


def test_a_shape_is_read_whole():
    assert fm.Shape.parse("m8n8") == (8, 8, 0)
    for wrong in ("", "m16", "16x8x16", "m16n8k64k2", "xm16n8"):
        with pytest.raises(fm.errors.UnknownInstruction, match="m16n8k64 or m8n8"):
            fm.Shape.parse(wrong)
