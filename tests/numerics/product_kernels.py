"""Small kernels around ``wgmma`` and ``mma`` with block scales, and their exact results.

A kernel of ``wgmma`` is given the tiles of each step as they are in shared memory.  It
may add its accumulators to others after so many steps, and begin them anew.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import fragmenta as fm
from fragmenta import ptx

TYPES = {"bf16": ml_dtypes.bfloat16, "e4m3": ml_dtypes.float8_e4m3fn}
OPS = {
    "bf16": fm.wgmma("m64n8k16", a="bf16", d="f32"),
    "e4m3": fm.wgmma("m64n8k32", a="e4m3", d="f32"),
}
TILE, FIRST_B = 4096, 2048
"""Bytes of the tiles of a step, and where that of B begins."""

WGMMA = """
.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 tiles, .param .u64 goal, .param .u32 steps,
                  .param .u32 every)
{
.reg .pred p, q; .reg .b64 x<8>; .reg .b32 r<16>; .reg .f32 f<8>, g<8>;
.shared .align 1024 .b8 tile[4096];
ld.param.u64 x0, [tiles]; ld.param.u64 x1, [goal];
ld.param.u32 r0, [steps]; ld.param.u32 r1, [every];
mov.u32 r2, %tid.x; mov.u32 r3, tile;
shl.b32 r4, r2, 4; add.u32 r5, r3, r4; mul.wide.u32 x2, r2, 16; add.u64 x0, x0, x2;
mul.wide.u32 x3, r2, 4; add.u64 x1, x1, x3;
and.b32 r6, r3, 0x3ffff; shr.u32 r6, r6, 4; cvt.u64.u32 x4, r6;
add.u64 x5, x4, A_WORD; add.u64 x6, x4, B_WORD;
mov.b32 r7, 0; mov.b32 r8, 0; mov.f32 g0, 0f00000000; mov.f32 g1, g0;
mov.f32 g2, g0; mov.f32 g3, g0; mov.f32 f0, g0; mov.f32 f1, g0; mov.f32 f2, g0;
mov.f32 f3, g0;
STEP:
ld.global.v4.b32 {r10, r11, r12, r13}, [x0]; st.shared.v4.b32 [r5], {r10, r11, r12, r13};
ld.global.v4.b32 {r10, r11, r12, r13}, [x0+2048];
st.shared.v4.b32 [r5+2048], {r10, r11, r12, r13};
fence.proxy.async; bar.sync 0;
setp.ne.u32 p, r8, 0;
wgmma.fence.sync.aligned;
MNEMONIC {f0, f1, f2, f3}, x5, x6, p, 1, 1REST;
wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
add.u32 r7, r7, 1; add.u32 r8, r8, 1; add.u64 x0, x0, 4096;
setp.lt.u32 q, r8, r1; setp.lt.u32 p, r7, r0; and.pred q, q, p;
bar.sync 0;
@q bra STEP;
add.rn.f32 g0, g0, f0; add.rn.f32 g1, g1, f1;
add.rn.f32 g2, g2, f2; add.rn.f32 g3, g3, f3;
mov.b32 r8, 0;
@p bra STEP;
st.global.f32 [x1], g0; st.global.f32 [x1+512], g1;
st.global.f32 [x1+1024], g2; st.global.f32 [x1+1536], g3;
ret;
}
"""


@lru_cache(maxsize=4)
def _kernel(kind: str, a_word: int, b_word: int) -> Any:
    op = OPS[kind]
    text = WGMMA.replace("MNEMONIC", str(op)).replace("A_WORD", str(a_word))
    rest = ", 0, 0" if kind == "bf16" else ""
    text = text.replace("B_WORD", str(b_word)).replace("REST", rest)
    return ptx.parse(text).kernels["k"]


def matrices(kind: str, steps: int, seed: int = 0) -> tuple[Any, Any]:
    """A and B of so many steps."""
    k = OPS[kind].shape[2] * steps
    numbers = np.random.default_rng(seed)
    a, b = numbers.normal(size=(64, k)), numbers.normal(size=(k, 8))
    return a.astype(TYPES[kind]), b.astype(TYPES[kind])


def multiplied(
    kind: str, a: Any, b: Any, every: int | None = None, **options: Any
) -> tuple[NDArray[np.float32], Any]:
    """D of ``wgmma``, and the result of the launch."""
    op = OPS[kind]
    k = op.shape[2]
    steps = a.shape[1] // k
    tiles = np.zeros((steps, TILE), np.uint8)
    for step in range(steps):
        part = slice(step * k, (step + 1) * k)
        image, word_a = fm.shared.tile(op, "A", a[:, part], swizzle=0)
        tiles[step, : image.size] = image
        image, word_b = fm.shared.tile(op, "B", b[part], swizzle=0)
        tiles[step, FIRST_B : FIRST_B + image.size] = image
    d = np.zeros((4, 128), np.float32)
    made = _kernel(kind, word_a.encode(), word_b.encode() + FIRST_B // 16)
    given = [tiles, d, np.uint32(steps), np.uint32(every or steps)]
    result = made.launch(1, 128, given, target="sm_90a", **options)
    return op.d.unpack(d.T.view(np.uint32)), result


# ── tcgen05.mma ─────────────────────────────────────────────────────────────

TENSOR_OPS = {
    "f8f6f4": fm.tcgen05("m128n16k32", kind="f8f6f4", a="e4m3", d="f32"),
    "mxf8": fm.tcgen05("m128n16k32", kind="mxf8f6f4", a="e4m3", d="f32"),
    "nvfp4": fm.tcgen05("m128n16k64", kind="mxf4nvf4", a="e2m1", d="f32"),
}
BYTES = 4096 + 1024
"""Bytes of A and B in shared memory; then come 512 of the scales of each."""
_PAIR = "cvt.rn.satfinite.e4m3x2.f32 %h, %f1, %f0; st.shared.b16 [%r4], %h;"
_NIBBLES = "cvt.rn.satfinite.e2m1x2.f32 %b, %f1, %f0; st.shared.b8 [%r4], %b;"
_POWERS = "cvt.rp.satfinite.ue8m0x2.f32 %h, %f1, %f0; st.shared.b16 [%r4], %h;"
QUANTISED = {
    "f8f6f4": (_PAIR, ""),
    "mxf8": (_PAIR, _POWERS),
    "nvfp4": (_NIBBLES, _PAIR),
}
"""How a kernel makes two elements of A and B, and two scales, of two f32."""

TENSOR = """
.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 numbers, .param .u64 scales, .param .u64 goal)
{
.reg .pred %first, %q, %p; .reg .b8 %b; .reg .b16 %h; .reg .b32 %t, %w, %r<8>, %d;
.reg .b32 %c<32>; .reg .f32 %f<2>; .reg .b64 %l<10>;
.shared .align 1024 .b8 tile[8192];
.shared .align 8 .b64 bar;
.shared .align 4 .b32 slot;
mov.u32 %t, %tid.x; shr.u32 %w, %t, 5;
setp.ne.u32 %first, %w, 0;
@%first bra ALLOCATED;
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 64;
tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
ALLOCATED:
setp.ne.u32 %q, %t, 0;
@!%q mbarrier.init.shared::cta.b64 [bar], 1;
mov.u32 %r1, tile;
FILLED
fence.proxy.async.shared::cta;
bar.sync 0;
ld.shared.u32 %d, [slot];
setp.ne.u32 %q, %t, 0;
@%q bra OTHERS;
tcgen05.fence::after_thread_sync;
and.b32 %r5, %r1, 0x3ffff; shr.u32 %r5, %r5, 4; cvt.u64.u32 %l5, %r5;
add.u64 %l6, %l5, A_WORD; add.u64 %l7, %l5, B_WORD; mov.b32 %r6, IDESC;
PRODUCTS
tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];
OTHERS:
mbarrier.try_wait.parity.shared::cta.b64 %q, [bar], 0;
@!%q bra OTHERS;
tcgen05.fence::after_thread_sync;
shl.b32 %r7, %w, 21; add.u32 %r7, %r7, %d;
tcgen05.ld.sync.aligned.32x32b.x16.b32 {EVERY}, [%r7];
tcgen05.wait::ld.sync.aligned;
ld.param.u64 %l8, [goal]; mul.wide.u32 %l9, %t, 64; add.u64 %l8, %l8, %l9;
STORED
bar.sync 0;
@%first bra LAST;
tcgen05.dealloc.cta_group::1.sync.aligned.b32 %d, 64;
LAST:
ret;
}
"""
_FILL = """
ld.param.u64 %l0, [GIVEN]; mov.u32 %r2, %t;
GIVEN_LOOP:
mul.wide.u32 %l1, %r2, 8; add.u64 %l1, %l0, %l1;
ld.global.v2.f32 {%f0, %f1}, [%l1];
mul.lo.u32 %r4, %r2, SIZE; add.u32 %r4, %r4, %r1; add.u32 %r4, %r4, FIRST;
CONVERT
add.u32 %r2, %r2, 128; setp.lt.u32 %q, %r2, COUNT; @%q bra GIVEN_LOOP;
"""
_CP = "tcgen05.cp.cta_group::1.32x128b.warpx4"
_SCALES = f"add.u64 %l8, %l5, S_WORD; {_CP} [%d+32], %l8; "
_SCALES += f"add.u64 %l8, %l8, 32; {_CP} [%d+36], %l8;"


def _filled(given: str, convert: str, size: int, first: int, count: int) -> str:
    words = {"GIVEN": given, "SIZE": size, "FIRST": first, "CONVERT": convert}
    text = _FILL
    for name, word in {**words, "COUNT": count}.items():
        text = text.replace(name, str(word))
    return text


@lru_cache(maxsize=4)
def _tensor_kernel(kind: str, a_word: int, b_word: int) -> Any:
    op, (elements, scales) = TENSOR_OPS[kind], QUANTISED[kind]
    size = 1 if elements is _NIBBLES else 2
    filled = _filled("numbers", elements, size, 0, BYTES // size)
    mma, more = f"{op}".split()[0], ""
    products = [f"{_SCALES}" if scales else ""]
    if scales:
        filled += _filled("scales", scales, 2, BYTES, 512)
        more = " [%r4], [%r3],"
        products.append("add.u32 %r4, %d, 32; add.u32 %r3, %d, 36;")
    for value in (0, 1):
        products.append(f"setp.eq.u32 %p, 1, {value};")
        products.append(f"{mma} [%d], %l6, %l7, %r6,{more} %p;")
    every = ", ".join(f"%c{each}" for each in range(16))
    stored = "\n".join(f"st.global.b32 [%l8+{4 * i}], %c{i};" for i in range(16))
    text = TENSOR.replace("FILLED", filled).replace("PRODUCTS", "\n".join(products))
    where = fm.shared.Descriptor(BYTES, 0, 128, 0, family="tcgen05").encode()
    for name, word in (
        ("EVERY", every),
        ("STORED", stored),
        ("A_WORD", a_word),
        ("B_WORD", b_word),
        ("S_WORD", where),
        ("IDESC", op.idesc),
    ):
        text = text.replace(name, str(word))
    return ptx.parse(text).kernels["k"]


def _positions(op: Any, name: str, shape: tuple[int, int]) -> tuple[Any, Any]:
    """Which element of a matrix is where in shared memory; and the descriptor."""
    of = op.types[name.lower()]
    numbers, found = np.arange(1, 1 + shape[0] * shape[1]).reshape(shape), 0
    for shift in range(0, 16, of.bits):
        part = (numbers >> shift & of.mask).astype(of.bits_dtype)
        image, word = fm.shared.tile(op, name, of.decode(part), swizzle=0)
        slots = image if of.bits == 8 else np.stack([image & 15, image >> 4], 1).ravel()
        found = found + (slots.astype(np.int64) << shift)
    return found - 1, word


def _in_blocks(matrix: Any) -> NDArray[np.float32]:
    """Scales in the order in which a copy to tensor memory wants them."""
    rows = np.zeros((128, 4), np.float32)
    rows[: matrix.shape[0], : matrix.shape[1]] = matrix
    parts = np.ascontiguousarray(rows).view(np.uint8).reshape(128, 4, 4)
    blocks = [fm.tensor_memory.scale_blocks(parts[:, :, i]) for i in range(4)]
    return np.stack(blocks, -1).reshape(512, 4).copy().view(np.float32)[:, 0]


def tensor_multiplied(
    kind: str, a: Any, b: Any, scale_a: Any = None, scale_b: Any = None, **options: Any
) -> tuple[NDArray[np.float32], Any]:
    """Twice the product of f32 matrices, which the kernel quantises, and its result.

    Scales are (m, scales along k) and (n, scales along k).
    """
    op = TENSOR_OPS[kind]
    per = 8 // op.types["a"].bits
    numbers = np.zeros(BYTES * per, np.float32)
    words = []
    for name, matrix, first in (("A", a, 0), ("B", b, 4096)):
        places, word = _positions(op, name, matrix.shape)
        there = places >= 0
        part = numbers[first * per : first * per + places.size]
        part[there] = matrix.reshape(-1)[places[there]]
        words.append(word.encode() + first // 16)
    scales = np.zeros(1024, np.float32)
    if scale_a is not None:
        for first, matrix in ((0, scale_a), (512, scale_b)):
            scales[first : first + 512] = _in_blocks(matrix)
    d = np.zeros((128, 16), np.float32)
    made = _tensor_kernel(kind, *words)
    result = made.launch(1, 128, [numbers, scales, d], target="sm_100a", **options)
    return d, result


# ── mma with block scales ───────────────────────────────────────────────────

SCALED = fm.mma(
    "m16n8k64", a="e2m1", d="f32", kind="mxf4nvf4", scale_vec="4X", stype="ue4m3"
)
MMA = """
.version 8.8
.target sm_120a
.address_size 64
.visible .entry k(.param .u64 numbers, .param .u64 scales, .param .u64 goal)
{
.reg .b8 %b<4>; .reg .b16 %h<2>; .reg .b32 %t, %r<8>; .reg .f32 %f<8>, %d<4>;
.reg .b64 %l<4>;
ld.param.u64 %l0, [numbers]; ld.param.u64 %l1, [scales]; ld.param.u64 %l2, [goal];
mov.u32 %t, %tid.x;
mul.wide.u32 %l3, %t, 192; add.u64 %l0, %l0, %l3;
mul.wide.u32 %l3, %t, 32; add.u64 %l1, %l1, %l3;
mul.wide.u32 %l3, %t, 16; add.u64 %l2, %l2, %l3;
QUANTISED
mov.f32 %d0, 0f00000000; mov.f32 %d1, %d0; mov.f32 %d2, %d0; mov.f32 %d3, %d0;
MNEMONIC {%d0, %d1, %d2, %d3}, {%r0, %r1, %r2, %r3}, {%r4, %r5},
    {%d0, %d1, %d2, %d3}, %r6, {0, 0}, %r7, {0, 0};
st.global.v4.f32 [%l2], {%d0, %d1, %d2, %d3};
ret;
}
"""


def _four(of: str, first: int) -> str:
    """Four f32 of memory."""
    return f"ld.global.v4.f32 {{%f0, %f1, %f2, %f3}}, [{of}+{first}];"


def _register(number: int) -> str:
    """Eight elements of 4 bits."""
    lines = []
    for half in (0, 1):
        lines.append(_four("%l0", 32 * number + 16 * half))
        for pair in (0, 1):
            low = 2 * pair
            goal = f"%b{2 * half + pair}, %f{low + 1}, %f{low}"
            lines.append(f"cvt.rn.satfinite.e2m1x2.f32 {goal};")
    return "\n".join([*lines, f"mov.b32 %r{number}, {{%b0, %b1, %b2, %b3}};"])


def _scale_register(place: int) -> str:
    lines = [_four("%l1", 16 * place)]
    lines += [
        f"cvt.rn.satfinite.e4m3x2.f32 %h{i}, %f{2 * i + 1}, %f{2 * i};" for i in (0, 1)
    ]
    return "\n".join([*lines, f"mov.b32 %r{6 + place}, {{%h0, %h1}};"])


@lru_cache(maxsize=1)
def _scaled_kernel() -> Any:
    made = [_register(each) for each in range(6)]
    made += [_scale_register(each) for each in range(2)]
    text = MMA.replace("QUANTISED", "\n".join(made)).replace("MNEMONIC", str(SCALED))
    return ptx.parse(text).kernels["k"]


def _in_registers(part: Any, matrix: Any, bits: int) -> NDArray[np.float32]:
    """A matrix in the order of the registers of lanes: (32, elements)."""
    numbers, found = np.arange(1, 1 + matrix.size).reshape(matrix.shape), 0
    for shift in range(0, 12, 4):
        codes = (numbers >> shift & 15).astype(np.uint8)
        words = part.pack(part.dtype.decode(codes)).reshape(32, -1)
        slots = words[:, :, None] >> np.arange(0, 32, bits, dtype=np.uint32)
        found = found + ((slots & 15).reshape(32, -1).astype(np.int64) << shift)
    flat = np.concatenate([[0], matrix.reshape(-1)])
    return flat[found].astype(np.float32)


def scaled_multiplied(
    a: Any, b: Any, scale_a: Any, scale_b: Any, **options: Any
) -> tuple[NDArray[np.float32], Any]:
    """The product of f32 matrices by ``mma``, quantised with scales by the kernel."""
    op = SCALED
    numbers = [_in_registers(op.a, a, 4), _in_registers(op.b, b, 4)]
    scales = [
        _in_registers(op.scale_a, scale_a, 8),
        _in_registers(op.scale_b, scale_b, 8),
    ]
    d = np.zeros((32, 4), np.float32)
    given = [np.concatenate(each, 1) for each in (numbers, scales)]
    result = _scaled_kernel().launch(1, 32, [*given, d], target="sm_120a", **options)
    return op.d.unpack(d.view(np.uint32)), result
