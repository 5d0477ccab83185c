"""tcgen05 in the catalogue: what is read, what is refused, and why."""

import pytest

import fragmenta as fm
from fragmenta.reference.isa.unsupported import lacking, why_not

MMA = fm.instruction("tcgen05.mma.cta_group::1.kind::f16")


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("tcgen05.mma.kind::f16.cta_group::1", str(MMA)),
        ("tcgen05.mma.cta_group::1.kind::f16.collector::a::discard", str(MMA)),
        (
            "tcgen05.mma.kind::f16.cta_group::1.sp",
            "tcgen05.mma.sp.cta_group::1.kind::f16",
        ),
        (
            "tcgen05.mma.ws.kind::i8.collector::b0::discard.sp.cta_group::1",
            "tcgen05.mma.ws.sp.cta_group::1.kind::i8",
        ),
        (
            "tcgen05.cp.b8x16.warpx4.cta_group::2.b4x16_p64.32x128b",
            "tcgen05.cp.cta_group::2.32x128b.warpx4.b8x16.b4x16_p64",
        ),
        (
            "tcgen05.ld.red.u32.max.x2.32x32b.aligned.sync",
            "tcgen05.ld.red.sync.aligned.32x32b.x2.max.u32",
        ),
        (
            "tcgen05.commit.b64.shared::cluster.cta_group::1.mbarrier::arrive::one",
            "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64",
        ),
    ],
)
def test_one_canonical_spelling(text, means):
    assert str(fm.instruction(text)) == means
    assert fm.instruction(text) == fm.instruction(means)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tcgen05.mma.cta_group::1.kind::f17", r"not a qualifier .* mean kind::f16\?"),
        (
            "tcgen05.mma.cta_group::3.kind::f16",
            r"mean cta_group::2\?\); the CTA group is missing: .cta_group::1 or .cta",
        ),
        (
            "tcgen05.mma.kind::f16",
            "lacks the CTA group: .cta_group::1 or .cta_group::2",
        ),
        (
            "tcgen05.mma.sp.ws.cta_group::1.kind::f16",
            "ws comes directly after the name, as in tcgen05.mma.ws",
        ),
        ("tcgen05.ld.sync.red.aligned.32x32b.x2.min.f32", "as in tcgen05.ld.red$"),
        (
            "tcgen05.mma.cta_group::1.kind::f16.collector::a:fill",
            r"did you mean collector::a::fill\?",
        ),
        ("tcgen05.mma.cta_group::1.cta_group::1.kind::f16", "is there twice"),
        (
            "tcgen05.mma.cta_group::1.kind::mxf8f6f4",
            "with no block scaling does not exist; it has .block_scale",
        ),
        (
            "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale",
            "no scale vector does not exist; it has",
        ),
        (
            "tcgen05.mma.cta_group::1.kind::mxf4.block_scale.block16",
            "it has none, .block32 or .scale_vec::2X",
        ),
        ("tcgen05.mma.ws.cta_group::2.kind::f16", r"mean cta_group::1\?"),
        (
            "tcgen05.mma.cta_group::1.kind::f16.ashift.collector::a::use",
            "with .collector::a::use as the collector does not exist; it has none or "
            ".collector::a::lastuse",
        ),
        ("tcgen05.ld.sync.aligned.16x256b.x64.b32", "with .x64 as the count does not"),
        ("tcgen05.ld.red.sync.aligned.32x32b.x1.min.f32", r"mean x16\?|x1 is not"),
        ("tcgen05.mna", r"mean mma\?"),
        ("tcgen05", "ends too soon"),
    ],
)
def test_refusals_name_what_is_wrong_and_what_is_near(text, said):
    with pytest.raises(fm.errors.UnknownInstruction, match=said):
        fm.instruction(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{} [%r1], %rd1, %rd2, %r2, %p1, 16;", "scale-input-d is 0 to 15; given 16"),
        ("{} [%r1], %rd1, [%r3], %r2, %p1;", "b-desc is a descriptor"),
        ("{} %r1, %rd1, %rd2, %r2, %p1;", "d-tmem is an address in tensor memory"),
        (
            "{} [%r1], %rd1, %rd2, %r2, {{%r3, %r4}}, %p1;",
            "disable-output-lane is 4 registers in braces; given 2",
        ),
        (
            "{} [%r1], %rd1, %rd2, 0x100000000, %p1;",
            "idesc is a 32-bit register or an integer of 32 bits",
        ),
        ("{} [%r1], %rd1, %rd2, %r2;", "enable-input-d is missing"),
        (
            "tcgen05.mma.cta_group::1.kind::f8f6f4 [%r1], %rd1, %rd2, %r2, %p1, 3;",
            "given 6 operands, 1 too many",
        ),
        (
            "tcgen05.mma.cta_group::1.kind::f16.ashift [%r1], %rd1, %rd2, %r2, %p1;",
            "a-tmem is an address in tensor memory",
        ),
        (
            "tcgen05.alloc.cta_group::1.sync.aligned.b32 [%rd1], 96;",
            "nCols is 32, 64, 128, 256 or 512 as a constant, or a 32-bit register",
        ),
        (
            "tcgen05.alloc.exclusive.cta_group::1.sync.aligned.b32 [%rd1], 48;",
            "nCols is a multiple of 32",
        ),
        (
            "tcgen05.ld.sync.aligned.32x32b.x2.b32 {{%r1, %r1}}, [%r2];",
            "r is registers that differ",
        ),
        (
            "tcgen05.ld.sync.aligned.32x32b.x2.b32 {{%r1, _}}, [%r2];",
            "among which _ cannot stand",
        ),
        (
            "tcgen05.ld.sync.aligned.16x32bx2.x1.b32 {{%r1}}, [%r2];",
            "immHalfSplitoff is missing",
        ),
        (
            "tcgen05.ld.sync.aligned.16x128b.x2.b32 {{%r1, %r2}}, [%r2];",
            "r is 4 registers in braces; given 2",
        ),
    ],
)
def test_operands_are_refused_by_name(text, said):
    with pytest.raises(fm.errors.BadOperands, match=said):
        fm.instruction(text.format(MMA))


def test_register_counts():
    counts = {
        "32x32b.x8": 8,
        "16x64b.x8": 8,
        "16x128b.x8": 16,
        "16x256b.x8": 32,
        "16x32bx2.x8": 8,
    }
    for shape, count in counts.items():
        for kind in ("ld", "st"):
            op = fm.instruction(f"tcgen05.{kind}.sync.aligned.{shape}.b32")
            assert {"r": count}.items() <= {
                o.name: o.count for o in op.operands
            }.items()
    for num, (meta, data) in {
        4: (1, 2),
        32: (1, 16),
        64: (2, 32),
        128: (4, 64),
    }.items():
        op = fm.instruction(
            f"tcgen05.ld.spcompress.sync.aligned.32x32b.x{num}.max.sp::2:4.f32.b2"
        )
        assert [each.count for each in op.operands[:2]] == [meta, data]


@pytest.mark.parametrize(
    ("text", "target", "said"),
    [
        (str(MMA), "sm_120a", "no tensor memory: their Tensor Cores run mma"),
        (str(MMA), "sm_121f", "no tensor memory"),
        (str(MMA), "sm_90a", "wgmma is what it has"),
        (str(MMA), "sm_80", "mma is what it has"),
        (str(MMA), "sm_103", "it needs the suffix a or f: sm_103a or sm_103f"),
        ("tcgen05.mma.cta_group::1.kind::i8", "sm_103a", "sm_103 has no .kind::i8"),
        (
            "tcgen05.mma.cta_group::1.kind::i8",
            "sm_100f",
            "no target for a whole family",
        ),
        ("tcgen05.mma.cta_group::1.kind::i8", "sm_100", "suffix a: sm_100a"),
        ("tcgen05.shift.cta_group::1.down", "sm_110f", "sm_110a has it"),
        ("tcgen05.ld.red.sync.aligned.32x32b.x2.max.f32", "sm_100a", "sm_103 has it"),
        ("tcgen05.mma.cta_group::1.kind::ti16", "sm_100a", "came with sm_107"),
    ],
)
def test_a_target_that_lacks_it_is_told_why(text, target, said):
    op = fm.instruction(text)
    assert said in why_not(op, target)
    assert lacking(op, target).startswith(f"{target} does not have {op}; it needs PTX ")
    assert why_not(op, op.requires.targets[0]) == ""


def test_old_names_of_targets():
    with pytest.raises(
        fm.errors.UnsupportedTarget, match="sm_101a is sm_110a since PTX 9"
    ):
        MMA.supported_on("sm_101a")


def test_a_scaled_d_is_not_on_every_target():
    (last,) = {each for some in MMA.form.lists(MMA) for each in some if each.targets}
    assert (last.name, last.targets) == ("scale_input_d", "100a/f")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tcgen05.alloc.exclusive.cta_group::1.sync.aligned.b32", "for sm_107f only"),
        ("tcgen05.mma.cta_group::1.kind::mxf4.block_scale", "need PTX 8.8"),
        (
            "tcgen05.mma.cta_group::1.kind::mxf4.block_scale.scale_vec::2X",
            "sm_100a only",
        ),
        ("tcgen05.ld.sync.aligned.32x32b.x1.b32", "after tcgen05.wait::ld"),
        (str(MMA), "after tcgen05.commit"),
    ],
)
def test_notes(text, said):
    assert said in " ".join(fm.instruction(text).notes)


def test_abbreviations():
    assert str(fm.find("tcgen05.wait::ld")) == "tcgen05.wait::ld.sync.aligned"
    assert fm.find("tcgen05.mma.cta_group::1.kind::f16") == MMA
    found = fm.find("tcgen05.ld.32x32b.x4")
    assert str(found) == "tcgen05.ld.sync.aligned.32x32b.x4.b32"


def test_a_module_for_the_wrong_target_says_why():
    with pytest.raises(fm.errors.UnsupportedTarget, match="no tensor memory"):
        fm.find("tcgen05.wait::ld").to_ptx(target="sm_120a")


def test_a_name_without_its_descriptor_does_not_say_what_may_be_stored():
    op = fm.instruction("tcgen05.mma.sp.cta_group::1.kind::f16")
    with pytest.raises(fm.errors.UnknownOperand, match="alone has no type of A"):
        _ = op.granularity
