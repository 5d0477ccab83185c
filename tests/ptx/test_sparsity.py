"""Kernels with ``spcompress``, ``spdecompress`` and ``tcgen05.ld.spcompress``."""

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.cuda.tools import assembler
from fragmenta.errors import Error, KernelFault
from fragmenta.sparse import compress_registers

HEAD = ".version 9.4\n.target sm_107a\n.address_size 64\n"

COMPRESS = (
    HEAD
    + """
.visible .entry f(.param .u64 in, .param .u64 out, .param .u32 desc, .param .u32 lanes) {
    .reg .b32 %r<12>; .reg .b64 %rd<6>; .reg .pred %p<2>;
    ld.param.u64 %rd1, [in];
    ld.param.u64 %rd2, [out];
    ld.param.u32 %r5, [desc];
    ld.param.u32 %r8, [lanes];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd3, %r0, 8;
    add.u64 %rd1, %rd1, %rd3;
    mul.wide.u32 %rd3, %r0, 16;
    add.u64 %rd2, %rd2, %rd3;
    ld.global.v2.b32 {%r1, %r2}, [%rd1];
    mov.b32 %r3, 7;
    mov.b32 %r4, 7;
    mov.b32 %r6, 7;
    mov.b32 %r7, 7;
    setp.lt.u32 %p1, %r0, %r8;
    @%p1 spcompress.b8.b4.sp::2:4.x1 {%r3}, {%r4}, {%r1, %r2}, %r5;
    @%p1 spdecompress.b8.b4.sp::2:4.x2 {%r6, %r7}, {%r3}, {%r4};
    st.global.v4.b32 [%rd2], {%r3, %r4, %r6, %r7};
    ret;
}"""
)


def launched(data, descriptor, lanes=32, watch="raise"):
    out = np.zeros((32, 4), np.uint32)
    given = [data, out, np.uint32(descriptor), np.uint32(lanes)]
    result = ptx.parse(COMPRESS).kernels["f"].launch(1, 32, given, watch=watch)
    return out, result


def distinct():
    """Groups of four magnitudes that differ."""
    rng = np.random.default_rng(0)
    values = rng.permuted(np.tile(np.arange(1, 100), (64, 1)), axis=1)[:, :4]
    signs = rng.choice([-1, 1], values.shape)
    return (values * signs).astype(np.int8).reshape(32, 8)


@pytest.mark.parametrize("descriptor", [4, 5, 6, 7])
def test_every_lane_has_its_own(descriptor):
    data = distinct()
    out, result = launched(data.view(np.uint32), descriptor, lanes=20)
    mdata, cdata = compress_registers(
        "spcompress.b8.b4.sp::2:4.x1", data.view(np.uint32), descriptor
    )
    assert np.array_equal(out[:20, :1], mdata[:20])
    assert np.array_equal(out[:20, 1:2], cdata[:20])
    spread = out[:20, 2:].copy().view(np.int8)
    kept = spread != 0
    assert np.array_equal(spread[kept], data[:20][kept])
    assert (kept.reshape(-1, 4).sum(-1) == 2).all()
    assert (out[20:] == 7).all()  # lanes that the guard excludes
    assert result.fidelity["modelled"] == 2


def test_what_ptx_does_not_say_stops_the_kernel():
    data = distinct()
    data[3, 4:] = [1, 9, 1, 1]
    with pytest.raises(KernelFault, match="elements 0, 2 and 3 of group 1") as caught:
        launched(data.view(np.uint32), 5)
    assert "only a GPU" in str(caught.value)
    with pytest.raises(KernelFault, match="bits 5 to 31 of a descriptor"):
        launched(distinct().view(np.uint32), 0x100)


def test_bits_that_nobody_wrote_are_reported():
    text = COMPRESS.replace("ld.global.v2.b32 {%r1, %r2}, [%rd1];", "")
    out = np.zeros((32, 4), np.uint32)
    given = [distinct().view(np.uint32), out, np.uint32(5), np.uint32(0)]
    problems = (
        ptx.parse(text).kernels["f"].launch(1, 32, given, watch="report").problems
    )
    assert not problems  # no lane takes part
    given[-1] = np.uint32(32)
    found = ptx.parse(text).check()
    assert "uninitialised" in {each.rule for each in found}


# ── tcgen05.ld.spcompress ───────────────────────────────────────────────────

X4 = "{%r10}, {%r11, %r12}"
LOAD_X4 = "tcgen05.ld.spcompress.sync.aligned.32x32b.x4.max.sp::2:4.f32.b2"
#: Statements, and whether PTX has them.  The first two are known from the manual: its
#: own example, and the same with a register too few.
JUDGED = {
    "spcompress.b8.b2.sp::2:4.x4 {%r1}, {%r2, %r3, %r4, %r5}, {%r10, %r11, %r12, %r13, "
    "%r14, %r15, %r16, %r17}, %r20;": True,
    "spcompress.b8.b2.sp::2:4.x4 {%r1}, {%r2, %r3, %r4}, {%r10, %r11, %r12, %r13, "
    "%r14, %r15, %r16, %r17}, %r20;": False,
    "spcompress.b8.b2.sp::1:2.x1 {%r1}, {%r2}, {%r3, %r4}, %r5;": False,
    "spcompress.b32.b2.sp::2:4.x1 {%r1}, {%r2}, {%r3, %r4}, %r5;": False,
    "spcompress.b8.b2.sp::2:4.x3 {%r1}, {%r2}, {%r3, %r4}, %r5;": False,
    "spcompress.b8.b2.sp::2:4.x1 {%r1}, {%r2}, {%r3, %r4}, 5;": False,
    "spcompress.b8.b2.sp::2:4.x1 %r1, %r2, {%r3, %r4}, %r5;": False,
    "spcompress.b16.b4.x1.sp::2:4 {%r1}, {%r2}, {%r3, %r4}, %r5;": True,
    "spdecompress.b8.b4.sp::2:4.x2 {%r1, %r2}, {%r3}, {%r4};": True,
    "spdecompress.b8.b4.sp::2:4.x2 {%r1}, {%r3}, {%r4};": False,
    "spdecompress.b16.b4.sp::4:8.x4 {%r1, %r2}, {%r3}, {%r4};": False,
    "spdecompress.b8.b2.sp::1:8.x4 {%r1}, {%r3}, {%r4};": False,
    f"{LOAD_X4} {X4}, [%r1];": True,
    f"{LOAD_X4} {{%r10}}, {{%r11}}, [%r1];": False,
    f"{LOAD_X4.replace('.f32', '.NaN.f32')} {X4}, [%r1];": False,
    f"{LOAD_X4.replace('ld.', 'ld.red.')} {X4}, [%r1];": False,
    f"{LOAD_X4.replace('ld.', 'ld.red.')} {X4}, %r5, [%r1];": True,
    f"{LOAD_X4.replace('x4', 'x2')} {{%r10}}, {{%r11}}, [%r1];": False,
    f"{LOAD_X4.replace('32x32b', '16x64b')} {X4}, [%r1];": False,
}


def test_the_check_and_ptxas_agree():
    declared = ".reg .b32 %r<32>;"
    try:
        said = assembler.judge([[declared, each] for each in JUDGED], "sm_107a", "9.4")
    except Error:
        pytest.skip("no ptxas of PTX 9.4 here")
    for (text, good), why in zip(JUDGED.items(), said, strict=True):
        assert (why is None) == good, (text, why)
        module = ptx.parse(f"{HEAD}.visible .entry f() {{ {declared} {text} ret; }}")
        errors = [each for each in module.check() if each.severity == "error"]
        assert bool(errors) != good, (text, errors)


LOAD = "tcgen05.ld{red}.spcompress.sync.aligned.32x32b.x8.{op}.sp::2:4{abs}.f32.b2"


def tensor(load, red):
    results = ", %r31" if red else ""
    return (
        HEAD
        + f"""
.visible .entry f(.param .u64 in, .param .u64 out) {{
    .reg .b32 %r<40>; .reg .b64 %rd<6>;
    .shared .align 4 .b32 base;
    ld.param.u64 %rd1, [in];
    ld.param.u64 %rd2, [out];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd3, %r0, 32;
    add.u64 %rd1, %rd1, %rd3;
    mul.wide.u32 %rd3, %r0, 32;
    add.u64 %rd2, %rd2, %rd3;
    mov.b32 %r31, 0;
    ld.global.v4.b32 {{%r1, %r2, %r3, %r4}}, [%rd1];
    ld.global.v4.b32 {{%r5, %r6, %r7, %r8}}, [%rd1+16];
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [base], 32;
    ld.shared.b32 %r9, [base];
    tcgen05.st.sync.aligned.32x32b.x8.b32 [%r9], {{%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}};
    tcgen05.wait::st.sync.aligned;
    {load} {{%r10}}, {{%r11, %r12, %r13, %r14}}{results}, [%r9];
    tcgen05.wait::ld.sync.aligned;
    st.global.v4.b32 [%rd2], {{%r11, %r12, %r13, %r14}};
    st.global.v2.b32 [%rd2+16], {{%r10, %r31}};
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r9, 32;
    tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
    ret;
}}"""
    )


@pytest.mark.parametrize("red", [False, True])
@pytest.mark.parametrize(
    "op, absolute", [("max", True), ("max", False), ("min", False)]
)
def test_a_load_keeps_two_of_four(op, absolute, red):
    rng = np.random.default_rng(1)
    data = rng.normal(size=(32, 8)).astype(np.float32)
    data[5, 2] = np.nan  # always remains, and no reduction sees it
    out = np.zeros((32, 8), np.uint32)
    text = LOAD.format(red=".red" * red, op=op, abs=".abs" * absolute)
    module = ptx.parse(tensor(text, red))
    assert not [each for each in module.check() if each.severity == "error"]
    module.kernels["f"].launch(1, 32, [data.view(np.uint32), out])
    key = np.abs(data) if absolute else data
    key = -key if op == "min" else key
    key = np.where(np.isnan(data), np.inf, key).reshape(32, 2, 4)
    places = np.sort(np.argsort(-key, axis=-1)[..., :2], axis=-1)
    kept = np.take_along_axis(data.reshape(32, 2, 4), places, axis=-1)
    assert np.array_equal(out[:, :4], kept.reshape(32, 4).view(np.uint32))
    words = (places.reshape(32, 4) << np.arange(0, 8, 2)).sum(-1)
    assert np.array_equal(out[:, 4], words)
    if red:
        best = np.nanmax if op == "max" else np.nanmin
        wanted = best(np.abs(data) if absolute else data, axis=1)
        assert np.array_equal(out[:, 5].view(np.float32), wanted)


def test_second_values_go_with_what_remains():
    """A launch that follows errors has the same bits, and nothing is lost here."""
    data = np.random.default_rng(2).normal(size=(32, 8)).astype(np.float32)
    out, again = np.zeros((2, 32, 8), np.uint32)
    text = LOAD.format(red="", op="max", abs="")
    kernel = ptx.parse(tensor(text, False)).kernels["f"]
    kernel.launch(1, 32, [data.view(np.uint32), out])
    kernel.launch(1, 32, [data.view(np.uint32), again], numerics=True)
    assert np.array_equal(out, again)


def test_equal_columns_stop_the_kernel():
    data = np.tile(np.float32([1, 1, 1, 2, 3, 4, 5, 6]), (32, 1))
    text = LOAD.format(red="", op="max", abs="")
    kernel = ptx.parse(tensor(text, False)).kernels["f"]
    with pytest.raises(KernelFault, match="elements 0, 1 and 2 of group 0 in thread 0"):
        kernel.launch(1, 32, [data.view(np.uint32), np.zeros((32, 8), np.uint32)])
