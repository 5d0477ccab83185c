"""Loads and stores move the right bytes, in every space, width and form."""

from __future__ import annotations

import numpy as np
import pytest

from fragmenta import ptx
from tests.simt.kernels import kernel, launched, run
from tests.thinning import some

BYTES = np.random.default_rng(3).integers(0, 256, 4096).astype(np.uint8)
REGISTERS = {8: "%h", 16: "%h", 32: "%r", 64: "%rd"}


def registers(bits: int, count: int) -> str:
    names = [f"{REGISTERS[bits]}{i + 1}" for i in range(count)]
    return "{" + ", ".join(names) + "}" if count > 1 else names[0]


@pytest.mark.parametrize("space", some(["global", "shared", "local", ""], 2))
def test_vectors_of_every_size(space: str) -> None:
    # Each form copies its own 1,024 bytes, by way of the space.
    forms = [
        (bits, count)
        for bits in (8, 16, 32, 64)
        for count in (1, 2, 4, 8)
        if bits * count <= 128 or (bits * count == 256 and space in ("global", ""))
    ]
    forms = [(b, n) for b, n in forms if n < 8 or b == 32]
    lines = []
    for number, (bits, count) in enumerate(forms):
        size = bits * count // 8
        vector = f".v{count}" if count > 1 else ""
        given = registers(bits, count)
        lines.append(f"""
            mul.wide.u32 %rd20, %lane, {size};
            add.u64 %rd21, %rd20, %rd30;
            add.u64 %rd22, %rd20, %out;
            ld.global{vector}.b{bits} {given}, [%rd21+{1024 * number}];""")
        if space in ("shared", "local"):
            place = "%rd23" if space == "local" else "%r21"
            start = "mov.u64 %rd23, room; add.u64 %rd23, %rd23, %rd20;"
            if space == "shared":
                start = "mov.u32 %r21, room; cvt.u32.u64 %r22, %rd20;"
                start += "add.u32 %r21, %r21, %r22;"
            lines.append(f"{start} st.{space}{vector}.b{bits} [{place}], {given};")
            lines += [
                f"mov.b{max(bits, 16)} {each.strip()}, 0;"
                for each in given.strip("{}").split(",")
            ]
            lines.append(f"ld.{space}{vector}.b{bits} {given}, [{place}];")
            # The next form gives these bytes to other lanes.
            lines.append("bar.warp.sync 0xffffffff;")
        word = ".global" if space != "" else ""
        lines.append(f"st{word}{vector}.b{bits} [%rd22+{1024 * number}], {given};")
    made = kernel(
        f".{space if space in ('shared', 'local') else 'shared'} .align 32 .b8 "
        f"room[1024]; ld.param.u64 %rd30, [from];{''.join(lines)}",
        ".param .u64 from",
    )
    source = np.resize(BYTES, (len(forms), 1024))
    out = np.zeros_like(source)
    run(made, out, source, watch="report")  # the head is older than 256 bits
    for number, (bits, count) in enumerate(forms):
        size = 32 * bits * count // 8
        assert (out[number, :size] == source[number, :size]).all(), (bits, count)
        assert not out[number, size:].any()


def test_128_bits() -> None:
    out = np.zeros((32, 16), np.uint8)
    source = BYTES[:512].reshape(32, 16)
    run(
        kernel(
            """
            ld.param.u64 %rd1, [from];
            mad.wide.u32 %rd2, %lane, 16, %rd1;
            mad.wide.u32 %rd3, %lane, 16, %out;
            ld.global.b128 %q1, [%rd2];
            st.global.b128 [%rd3], %q1;""",
            ".param .u64 from",
        ),
        out,
        source,
    )
    assert (out == source).all()


@pytest.mark.parametrize("kind", ["u8", "s8", "u16", "s16", "u32", "s32"])
def test_numbers_are_extended_to_the_register(kind: str) -> None:
    size = int(kind[1:]) // 8
    out, source = np.zeros((32, 3), np.uint64), BYTES[: 32 * size]
    narrow = "" if size == 4 else f"ld.global.{kind} %r1, [%rd2];"
    shortest = "" if size > 1 else f"ld.global.{kind} %h1, [%rd2];"
    run(
        kernel(
            f"""
            ld.param.u64 %rd1, [from];
            mad.wide.u32 %rd2, %lane, {size}, %rd1;
            mad.wide.u32 %rd3, %lane, 24, %out;
            ld.global.{kind} %rd4, [%rd2];
            st.global.u64 [%rd3], %rd4;
            {narrow} st.global.u32 [%rd3+8], %r1;
            {shortest} st.global.u16 [%rd3+16], %h1;""",
            ".param .u64 from",
        ),
        out,
        source,
    )
    values = source.view(f"{'i' if kind[0] == 's' else 'u'}{size}")
    assert (out[:, 0] == values.astype(np.int64).view(np.uint64)).all()
    if narrow:
        assert (out[:, 1] == values.astype(np.int32).view(np.uint32)).all()
    if shortest:
        assert (out[:, 2] == values.astype(np.int16).view(np.uint16)).all()


def test_stores_take_the_low_bits() -> None:
    out = np.zeros(96, np.uint32)
    run(
        kernel("""
        mov.u32 %r1, 0x12345678;
        mov.u64 %rd1, 0x1122334455667788;
        mad.wide.u32 %rd2, %lane, 12, %out;
        st.global.u8 [%rd2], %r1;
        st.global.u16 [%rd2+2], %r1;
        st.global.u32 [%rd2+4], %rd1;
        st.global.u8 [%rd2+8], %rd1;"""),
        out,
    )
    assert (out.reshape(32, 3) == [0x56780078, 0x55667788, 0x88]).all()


def test_weak_strong_and_cached_forms() -> None:
    loads = [
        "ld.volatile.global.u32",
        "ld.relaxed.gpu.global.u32",
        "ld.acquire.sys.global.u32",
        "ld.acquire.cta.u32",
        "ld.weak.global.u32",
        "ld.global.nc.u32",
        "ld.global.ca.u32",
        "ld.global.cg.L2::128B.u32",
        "ldu.global.u32",
        "ld.global.nc.L1::no_allocate.u32",
    ]
    stores = [
        "st.volatile.global.u32",
        "st.relaxed.gpu.global.u32",
        "st.release.sys.global.u32",
        "st.release.cta.u32",
        "st.weak.global.u32",
        "st.global.wt.u32",
        "st.global.cs.u32",
        "st.global.u32",
        "st.mmio.relaxed.sys.global.u32",
        "st.global.L1::evict_last.u32",
    ]
    lines = [
        f"{load} %r1, [%rd2+{128 * i}]; add.u32 %r1, %r1, {i};"
        f"{store} [%mine+{128 * i}], %r1;"
        for i, (load, store) in enumerate(zip(loads, stores, strict=True))
    ]
    source = BYTES[:1280].view(np.uint32).reshape(10, 32)
    out = np.zeros_like(source)
    made = kernel(
        "ld.param.u64 %rd1, [from]; mad.wide.u32 %rd2, %lane, 4, %rd1;"
        + "".join(lines),
        ".param .u64 from",
    )
    run(made, out, source)
    assert (out == source + np.arange(10, dtype=np.uint32)[:, None]).all()


SPACES = """
    .shared .align 8 .b8 room[256];
    .local .align 8 .b8 mine[16];
    mov.u64 %rd1, room;
    cvta.shared.u64 %rd1, %rd1;
    mov.u64 %rd2, mine;
    cvta.local.u64 %rd2, %rd2;
    mov.u64 %rd3, table;
    cvta.const.u64 %rd3, %rd3;
    mov.u64 %rd4, x;
    cvta.param.u64 %rd4, %rd4;
    cvta.to.global.u64 %rd5, %out;
    cvta.global.u64 %rd5, %rd5;
"""


def test_generic_addresses_of_every_space() -> None:
    # Lanes of one warp load from five spaces with one instruction.
    found = launched(
        SPACES
        + """
        cvta.to.shared.u64 %rd6, %rd1;
        st.shared.u32 [%rd6+4], 20;
        cvta.to.local.u64 %rd7, %rd2;
        add.u32 %r2, %lane, 30;
        st.local.u32 [%rd7+4], %r2;
        st.u32 [%rd5+4], 50;
        rem.u32 %r3, %lane, 5;
        mov.u64 %rd8, %rd5;
        setp.eq.u32 %p1, %r3, 1;
        @%p1 mov.u64 %rd8, %rd1;
        setp.eq.u32 %p2, %r3, 2;
        @%p2 mov.u64 %rd8, %rd2;
        setp.eq.u32 %p3, %r3, 3;
        @%p3 mov.u64 %rd8, %rd3;
        setp.eq.u32 %p4, %r3, 4;
        @%p4 mov.u64 %rd8, %rd4;
        bar.warp.sync 0xffffffff;
        ld.u32 %r1, [%rd8+4];
        bar.sync 0;
        st.global.u32 [%mine], %r1;""",
        arguments=[9 << 32],
        parameters=".param .u64 x",
        before=".const .align 8 .b32 table[2] = {39, 40};",
    )
    want = [[50, 20, 30 + n, 40, 9][n % 5] for n in range(32)]
    assert found.tolist() == want


def test_the_place_of_a_parameter_in_32_bits() -> None:
    # Triton takes the address of a tensor map so.
    found = launched(
        """
        mov.b32 %r1, y;
        cvt.u64.u32 %rd1, %r1;
        cvta.param.u64 %rd1, %rd1;
        ld.u32 %r2, [%rd1+4];
        st.global.u32 [%mine], %r2;""",
        arguments=[8, 9 << 32],
        parameters=".param .u64 x, .param .u64 y",
    )
    assert found.tolist() == [9] * 32


def test_which_space_an_address_is_in() -> None:
    lines = []
    spaces = ("shared", "local", "const", "param", "global")
    for number, space in enumerate(spaces):
        lines.append(f"mov.u32 %r{number + 1}, 0;")
        lines += [
            f"isspacep.{space} %p1, %rd{other + 1}; selp.u32 %r9, {1 << other}, 0, %p1;"
            f"or.b32 %r{number + 1}, %r{number + 1}, %r9;"
            for other in range(5)
        ]
        lines.append(f"st.global.u32 [%out+{4 * number}], %r{number + 1};")
    found = launched(
        SPACES + "\n".join(lines),
        arguments=[0],
        parameters=".param .u64 x",
        before=".const .align 8 .b32 table[2] = {39, 40};",
    )
    assert found[:5].tolist() == [1, 2, 4, 8, 16]


@pytest.mark.parametrize(
    ("mask", "kept"), [(0xFFFFFFFF, 0), (0xFFFF0000, 16), (0x80000000, 31)]
)
def test_of_lanes_that_store_to_one_shared_word_a_low_one_is_kept(
    mask: int, kept: int
) -> None:
    """As on an H200, where unsloth's backward pass of RMSNorm depends on it."""
    made = kernel(
        f""".shared .align 4 .b32 room;
        mov.u32 %r1, 1; shl.b32 %r1, %r1, %lane; and.b32 %r1, %r1, {mask};
        setp.ne.u32 %p1, %r1, 0;
        @%p1 st.shared.u32 [room], %lane;
        bar.warp.sync 0xffffffff;
        ld.shared.u32 %r2, [room];
        st.global.u32 [%out], %r2;"""
    )
    out = np.full(1, 99, np.uint32)
    run(made, out, watch=False)
    assert out[0] == kept


def test_local_memory_is_of_each_thread() -> None:
    found = launched(
        """
        .local .align 4 .b32 mine[8];
        mov.u32 %r1, 0;
        mov.u64 %rd1, mine;
    PUT: mad.lo.u32 %r2, %t, 8, %r1;
        st.local.u32 [%rd1], %r2;
        add.u64 %rd1, %rd1, 4;
        add.u32 %r1, %r1, 1;
        setp.lt.u32 %p1, %r1, 8;
        @%p1 bra PUT;
        and.b32 %r3, %t, 7;
        mov.u64 %rd1, mine;
        mad.wide.u32 %rd1, %r3, 4, %rd1;
        ld.local.u32 %r4, [%rd1];
        st.global.u32 [%mine], %r4;""",
        100,
    )
    thread = np.arange(100)
    assert (found == thread * 8 + thread % 8).all()


def test_memory_that_is_asked_for() -> None:
    found = launched(
        """
        stacksave.u64 %rd1;
        add.u32 %r9, %lane, 1;
        mul.wide.u32 %rd9, %r9, 8;
        alloca.u64 %rd2, %rd9, 16;
        alloca.u64 %rd3, 32;
        mul.wide.u32 %rd8, %lane, 8;
        add.u64 %rd7, %rd2, %rd8;
        st.local.u32 [%rd7], %lane;
        st.local.u32 [%rd3], 1000;
        ld.local.u32 %r1, [%rd7];
        ld.local.u32 %r2, [%rd3];
        add.u32 %r1, %r1, %r2;
        and.b64 %rd6, %rd2, 15;
        cvt.u32.u64 %r3, %rd6;
        add.u32 %r1, %r1, %r3;
        stackrestore.u64 %rd1;
        stacksave.u64 %rd5;
        setp.ne.u64 %p1, %rd1, %rd5;
        @%p1 add.u32 %r1, %r1, 5000;
        st.global.u32 [%mine], %r1;"""
    )
    assert (found == 1000 + np.arange(32)).all()


def test_parameters_by_a_computed_address() -> None:
    found = launched(
        """
        and.b32 %r1, %lane, 3;
        mov.u64 %rd1, x;
        mad.wide.u32 %rd1, %r1, 4, %rd1;
        ld.param.u32 %r2, [%rd1];
        ld.param.u16 %r3, [x+6];
        add.u32 %r2, %r2, %r3;
        st.global.u32 [%mine], %r2;""",
        arguments=[np.array([1, 0x70002, 3, 4], np.uint32).tobytes()],
        parameters=".param .align 4 .b8 x[16]",
    )
    assert found.tolist() == [8, 0x70009, 10, 11] * 8


@pytest.mark.parametrize("size", [4, 8, 16])
def test_asynchronous_copies(size: int) -> None:
    cache = "cg" if size == 16 else "ca"
    copied = f"cp.async.{cache}.shared.global [%r9], [%rd2], {size}"
    body = """
        .shared .align 16 .b8 room[512];
        ld.param.u64 %rd1, [from];
        mad.wide.u32 %rd2, %lane, 16, %rd1;
        mov.u32 %r9, room;
        mad.lo.u32 %r9, %lane, 16, %r9;
        st.shared.v4.u32 [%r9], {-1, -1, -1, -1};
        {}
        cp.async.commit_group;
        cp.async.wait_group 0;
        bar.sync 0;
        ld.shared.v4.u32 {{%r1, %r2, %r3, %r4}}, [%r9];
        mad.wide.u32 %rd3, %lane, 16, %out;
        st.global.v4.u32 [%rd3], {{%r1, %r2, %r3, %r4}};"""
    body = body.replace("{-1, -1, -1, -1}", "{{-1, -1, -1, -1}}")
    source = BYTES[:512].reshape(32, 16)
    lane = np.arange(32)[:, None]
    place = np.arange(16)
    forms = {
        f"{copied};": np.full((32, 1), size),
        # As many bytes as the number of the lane; the rest are zeros.
        f"min.u32 %r8, %lane, {size}; {copied}, %r8;": np.minimum(lane, size),
        f"setp.lt.u32 %p1, %lane, 7; {copied}, %p1;": np.where(lane < 7, 0, size),
    }
    for text, count in forms.items():
        out = np.zeros((32, 16), np.uint8)
        run(kernel(body.format(text), ".param .u64 from"), out, source)
        zeros = np.where(place < size, 0, 255)
        assert (out == np.where(place < count, source, zeros)).all()


def test_shared_memory_whose_size_is_given_at_launch() -> None:
    body = """
        .shared .align 4 .b32 fixed[3];
        mov.u32 %r1, given;
        mad.lo.u32 %r2, %t, 4, %r1;
        st.shared.u32 [%r2], %t;
        st.shared.u32 [fixed+8], 77;
        bar.sync 0;
        xor.b32 %r3, %t, 1;
        mad.lo.u32 %r3, %r3, 4, %r1;
        ld.shared.u32 %r4, [%r3];
        mov.u32 %r5, %dynamic_smem_size;
        mad.lo.u32 %r4, %r5, 1000, %r4;
        st.global.u32 [%mine], %r4;"""
    before = ".extern .shared .align 16 .b8 given[];"
    found = launched(body, 64, before=before, shared=256)
    assert (found == 256_000 + (np.arange(64) ^ 1)).all()


WRAPPED = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry wrapped(.param .u64 out)
{{
    .shared .align 16 .b8 s[3072];
    .reg .b32 %r<12>; .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, s;
    mov.u32 %r2, %tid.x;
    shl.b32 %r3, %r2, 4;
    add.u32 %r4, %r1, %r3;
    st.shared.v4.u32 [%r4], {{%r2, %r2, %r2, %r2}};
    bar.warp.sync 0xffffffff;
    sub.u32 %r5, %r4, 3072;
    {access}
    mad.wide.u32 %rd2, %r2, 4, %rd1;
    st.global.u32 [%rd2], %r6;
    ret;
}}"""
ACCESSES = {
    "ld": "ld.shared.u32 %r6, [%r5+3072];",
    "vector": "ld.shared.v2.u32 {%r7, %r6}, [%r5+3072];",
    "st": "st.shared.u32 [%r5+3072], %r2; ld.shared.u32 %r6, [%r4];",
    "atom": "atom.shared.add.u32 %r6, [%r5+3072], 1;",
    "copy": "cp.async.ca.shared.global [%r5+3072], [%rd1], 4; cp.async.wait_all; "
    "ld.shared.u32 %r6, [%r4+4];",
    "stmatrix": "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r5+3072], {%r2}; "
    "ld.shared.u32 %r6, [%r4+8]; mov.u32 %r6, %r2;",
}


@pytest.mark.parametrize("watch", [True, False])
@pytest.mark.parametrize("name", ACCESSES)
def test_shared_addresses_wrap_around(name: str, watch: bool) -> None:
    """A compiler adds a constant to an address of 32 bits that is below zero."""
    kernel = ptx.parse(WRAPPED.format(access=ACCESSES[name])).kernels["wrapped"]
    out = np.zeros(32, np.uint32)
    kernel.launch(1, 32, [out], watch=watch)
    assert out.tolist() == list(range(32))
